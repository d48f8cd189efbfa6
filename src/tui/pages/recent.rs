//! The last minutes: what all units did in the time before the moment that is shown, oldest first.

use ratatui::buffer::Buffer;

use super::{inspect, log::LogPage};
use crate::{
    action::{ActionScope, Availability, Unavailable, UserAction, require},
    cache::CacheRequest,
    effect::{ExportRequest, ExportTool, ScreenEffect},
    export_request::{self, copy_row},
    layout::ScreenLayout,
    model::{ScrollList, SharedModel, is_problem_end},
    page::{
        ContentContext, DrawContext, InspectPlace, Page, PageKey, ScreenModel, SearchPlace,
        rows_to_search,
    },
    search_match::{matches, nearest},
};
use ingestdeck_core::{
    run::state::{AttemptState, RowKind, RunView, UnitState},
    tape::{Millis, note::Severity},
};

mod state;
mod view;

pub(crate) use state::RecentPage;
use state::RecentRow;

impl Page for RecentPage {
    fn name(&self) -> &'static str {
        "the last minutes"
    }

    fn hints(&self, _: &SharedModel, _: &RunView) -> &'static [UserAction] {
        use UserAction::*;
        &[Back, Open, Left, Right, NextFailure, Filter]
    }

    fn help(&self, _: &SharedModel) -> (&'static str, &'static [UserAction]) {
        use UserAction::*;
        (
            self.name(),
            &[FilterText, PreviousFailure, Bottom, WallClock, Search, Copy],
        )
    }

    fn keys(&self) -> &'static [PageKey] {
        const KEYS: &[PageKey] = &[
            PageKey::new(UserAction::Open, "inspect", open_selected)
                .when(is_selected)
                .about("inspect the action; the log for a message of the run"),
            PageKey::new(UserAction::Left, "longer", change_time::<true>)
                .about("a longer time before this moment"),
            PageKey::new(UserAction::Right, "shorter", change_time::<false>)
                .about("a shorter time before this moment"),
        ];
        KEYS
    }

    /// The selection moves as rows arrive, so only actions that ask first apply to its unit.
    fn scope(&self) -> ActionScope {
        ActionScope::View
    }

    fn list(&self) -> Option<&ScrollList> {
        Some(&self.list)
    }

    fn list_mut(&mut self) -> Option<&mut ScrollList> {
        Some(&mut self.list)
    }

    fn len(&self, _: &SharedModel, _: &RunView) -> usize {
        self.rows.len()
    }

    fn next_failure(
        &mut self,
        _: &mut SharedModel,
        run_view: &RunView,
        forward: bool,
    ) -> Result<(), &'static str> {
        let len = self.rows.len();
        let hit = nearest(len, self.list.selected, forward, |place| {
            self.is_problem(run_view, place)
        });
        self.list.select(hit.ok_or("no failure here")?, len);
        Ok(())
    }

    fn unit<'a>(&self, _: &SharedModel, run_view: &'a RunView) -> Option<&'a UnitState> {
        let action = self.selected()?.action()?;
        run_view.state.units.get(action.unit)
    }

    fn row<'a>(
        &self,
        model: &SharedModel,
        run_view: &'a RunView,
    ) -> Option<(&'a AttemptState, usize)> {
        let action = self.selected()?.action()?;
        let attempts = &self.unit(model, run_view)?.attempts;
        Some((attempts.get(action.attempt)?, action.row))
    }

    fn inspected(
        &self,
        model: &SharedModel,
        run_view: &RunView,
    ) -> Result<InspectPlace, Unavailable> {
        let action = self.selected().and_then(|row| row.action());
        let found = action.zip(self.unit(model, run_view));
        let (action, unit) = found.ok_or(Unavailable::NoEffect)?;
        Ok(InspectPlace {
            unit: unit.key.clone(),
            attempt: action.attempt,
            action: Some(action.row),
        })
    }

    fn copy(&self, model: &SharedModel, run_view: &RunView) -> Vec<ScreenEffect> {
        let row = self.row(model, run_view);
        let row = row.and_then(|(attempt, row)| run_view.rows(attempt.id).get(row));
        row.map_or_else(Vec::new, |row| copy_row(run_view, row))
    }

    fn export(
        &self,
        model: &SharedModel,
        run_view: &RunView,
        tool: ExportTool,
    ) -> Option<ExportRequest> {
        let (attempt, row) = self.row(model, run_view)?;
        export_request::row(run_view, attempt.id, row, tool)
    }

    fn search(&self, model: &SharedModel, run_view: &RunView) -> Option<SearchPlace> {
        rows_to_search(self, model, run_view)
    }

    /// Compares the names of units and the messages of the run; `:find` searches in actions.
    fn is_match(&self, _: &SharedModel, run_view: &RunView, place: usize, query: &str) -> bool {
        let text = match self.rows.get(place) {
            Some(RecentRow::Action(action)) => {
                let unit = run_view.state.units.get(action.unit);
                unit.map(|unit| unit.key.as_str())
            }
            Some(RecentRow::Message(index)) => {
                let message = run_view.messages().get(*index);
                message.map(|message| message.text.as_str())
            }
            None => None,
        };
        text.is_some_and(|text| matches(text, query))
    }

    fn refresh(&mut self, model: &mut SharedModel, run_view: &RunView, plan: &ScreenLayout) {
        self.update(run_view, &model.units_view.listing);
        let height = usize::from(self.rows_area(model, plan.body).height);
        self.list.clamp(self.rows.len(), height);
    }

    fn add_content(&self, scene: &ContentContext<'_>, wants: &mut CacheRequest) {
        let height = usize::from(self.rows_area(scene.model, scene.plan.body).height);
        let visible = self.rows.iter().skip(self.list.offset).take(height);
        let actions = visible.filter_map(|row| row.action()?.find(scene.run_view));
        wants.rows.extend(actions.map(|(_, _, row)| *row));
    }

    fn draw(&self, scene: &DrawContext<'_>, plan: &ScreenLayout, buf: &mut Buffer) {
        view::draw(scene, self, plan.body, buf);
    }
}

impl RecentPage {
    fn is_problem(&self, run_view: &RunView, place: usize) -> bool {
        match self.rows.get(place) {
            Some(RecentRow::Action(action)) => action.find(run_view).is_some_and(|(_, _, row)| {
                let end = row.end(run_view.state.entries);
                !row.is_already_marked() && is_problem_end(end) || row.kind == RowKind::Denial
            }),
            Some(RecentRow::Message(index)) => {
                let message = run_view.messages().get(*index);
                message.is_some_and(|message| message.level >= Severity::Warning)
            }
            None => false,
        }
    }
}

/// `Err` for a record whose times are not known.
pub(crate) fn has_times(model: &ScreenModel, _: &RunView) -> Availability {
    match model.playhead.bounds.has_times {
        true => Ok(()),
        false => Err(Unavailable::because("this record has no times")),
    }
}

/// Shows what happened in this time before the moment that is shown.
pub(crate) fn show(model: &mut ScreenModel, time: Millis) {
    if let Some(page) = model.top_mut::<RecentPage>() {
        page.time = time;
    } else {
        model.close_every::<RecentPage>();
        model.open(RecentPage::new(time));
    }
}

/// Shows or closes the page.
pub(crate) fn toggle(model: &mut ScreenModel, _: &RunView) {
    let time = RecentPage::usual_time(model.connection.is_live);
    model.toggle(RecentPage::new(time));
}

fn is_selected(model: &ScreenModel, _: &RunView) -> Availability {
    let page = model.top::<RecentPage>();
    require(page.is_some_and(|page| page.selected().is_some()))
}

fn open_selected(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    match model.top::<RecentPage>().and_then(RecentPage::selected) {
        Some(RecentRow::Message(index)) => model.open(LogPage::at(*index)),
        Some(RecentRow::Action(_)) => return inspect::inspect(model, run_view),
        None => {}
    }
    Vec::new()
}

fn change_time<const LONGER: bool>(model: &mut ScreenModel, _: &RunView) -> Vec<ScreenEffect> {
    if let Some(page) = model.top_mut::<RecentPage>() {
        page.change_time(LONGER);
    }
    Vec::new()
}
