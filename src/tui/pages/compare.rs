//! Two attempts at a unit side by side.

use ratatui::{buffer::Buffer, layout::Rect};

use super::inspect::InspectPage;
use crate::{
    action::{Availability, Unavailable, UserAction},
    cache::{CacheRequest, DocumentContent, DocumentRequest, ScreenCache},
    comparison::align::CallDifference,
    effect::{ExportRequest, ExportTool, ScreenEffect},
    export_request::{self, copy_row},
    layout::{self, ScreenLayout},
    model::{ScrollList, SharedModel},
    page::{ContentContext, DrawContext, Page, PageKey, ScreenModel},
    search_match::nearest,
};
use ingestdeck_core::run::state::{RunView, UnitState};

mod state;
mod view;

pub(crate) use state::ComparePage;

impl Page for ComparePage {
    fn name(&self) -> &'static str {
        "the comparison"
    }

    fn hints(&self, _: &SharedModel, _: &RunView) -> &'static [UserAction] {
        use UserAction::*;
        &[Back, Open, Left, NextPane, Copy]
    }

    fn help(&self, _: &SharedModel) -> (&'static str, &'static [UserAction]) {
        use UserAction::*;
        (
            self.name(),
            &[
                Right,
                NextFailure,
                PreviousFailure,
                ScrollDown,
                ScrollUp,
                CopyName,
                Editor,
                Pager,
            ],
        )
    }

    fn keys(&self) -> &'static [PageKey] {
        const KEYS: &[PageKey] = &[
            PageKey::new(UserAction::Open, "open", open_call),
            PageKey::new(UserAction::Inspect, "inspect", open_call),
            PageKey::new(UserAction::Left, "older attempt", older)
                .about("an older attempt at the side of Tab")
                .when(has_others),
            PageKey::new(UserAction::Right, "newer attempt", newer)
                .about("a newer attempt at the side of Tab"),
        ];
        KEYS
    }

    fn list(&self) -> Option<&ScrollList> {
        Some(&self.list)
    }

    fn list_mut(&mut self) -> Option<&mut ScrollList> {
        Some(&mut self.list)
    }

    fn len(&self, _: &SharedModel, _: &RunView) -> usize {
        self.pair_count()
    }

    fn rows_area(&self, _: &SharedModel, body: Rect) -> Rect {
        self.areas(body).calls
    }

    /// The last call; calls that follow do not move the selection.
    fn go_to_end(&mut self, model: &mut SharedModel, run_view: &RunView, last: bool) {
        let len = self.len(model, run_view);
        self.list.select(if last { usize::MAX } else { 0 }, len);
    }

    /// Scrolls the difference of the selected calls.
    fn scroll(&mut self, model: &mut SharedModel, _: &RunView, by: isize) {
        let area = self.areas(model.layout().body).difference;
        self.scroll_difference(by, layout::below(area, 1).height);
    }

    fn sideways(&mut self, model: &mut SharedModel, run_view: &RunView, right: bool) {
        if !self.change_attempt(run_view, right) {
            model.toasts.show(if right {
                "there is no newer attempt"
            } else {
                "there is no older attempt"
            });
        }
    }

    fn next_pane(&mut self, _: &mut SharedModel, _: bool) {
        self.side = 1 - self.side;
    }

    fn next_failure(
        &mut self,
        _: &mut SharedModel,
        _: &RunView,
        forward: bool,
    ) -> Result<(), &'static str> {
        let pairs = self.pairs.as_deref().unwrap_or_default();
        let hit = nearest(pairs.len(), self.list.selected, forward, |pair| {
            pairs[pair].difference != CallDifference::Same
        });
        let len = pairs.len();
        self.list.select(hit.ok_or("no call differs")?, len);
        Ok(())
    }

    fn unit<'a>(&self, _: &SharedModel, run_view: &'a RunView) -> Option<&'a UnitState> {
        run_view.state.unit(&self.unit)
    }

    fn copy(&self, _: &SharedModel, run_view: &RunView) -> Vec<ScreenEffect> {
        let row = self.selected_row().and_then(|(side, row)| {
            let attempt_id = self.attempts(run_view)?[side].id;
            run_view.rows(attempt_id).get(row)
        });
        row.map_or_else(Vec::new, |row| copy_row(run_view, row))
    }

    fn export(
        &self,
        _: &SharedModel,
        run_view: &RunView,
        tool: ExportTool,
    ) -> Option<ExportRequest> {
        let (side, index) = self.selected_row()?;
        export_request::row(run_view, self.attempts(run_view)?[side].id, index, tool)
    }

    fn search(&self, _: &SharedModel, _: &RunView) -> Option<crate::page::SearchPlace> {
        None
    }

    fn search_elsewhere(&self) -> Option<&'static str> {
        Some("opens a call; its content can be searched there")
    }

    fn add_content(&self, scene: &ContentContext<'_>, wants: &mut CacheRequest) {
        let run_view = scene.run_view;
        let Some(attempts) = self.attempts(run_view) else {
            return;
        };
        wants.summaries = attempts.map(|attempt| attempt.id).to_vec();
        wants.comparison = Some(attempts.map(|attempt| {
            let version = scene.cache.summary_version(attempt.id);
            (attempt.id, run_view.rows(attempt.id).len(), version)
        }));
        let areas = self.areas(scene.plan.body);
        if let (Some(sides), 1..) = (wants.comparison, areas.difference.height) {
            wants.document = Some(DocumentRequest {
                content: DocumentContent::Difference(sides, self.selected_pair()),
                width: areas.difference.width,
            });
        }
        let visible = usize::from(areas.calls.height);
        let pairs = self.pairs.iter().flatten();
        for pair in pairs.skip(self.list.offset).take(visible) {
            for (attempt, row) in attempts.into_iter().zip([pair.left, pair.right]) {
                wants
                    .rows
                    .extend(row.and_then(|row| run_view.rows(attempt.id).get(row)));
            }
        }
    }

    fn take_layout(&mut self, _: &RunView, cache: &ScreenCache, wants: &CacheRequest) -> bool {
        let is_known = wants
            .comparison
            .is_some_and(|sides| cache.has_comparison(&sides));
        self.set_comparison(cache.comparison().filter(|_| is_known));
        let document = cache.requested_document(wants);
        self.set_difference(document.map_or(0, |document| document.lines.len()));
        true
    }

    fn reads_after_layout(&self) -> bool {
        true
    }

    fn draw(&self, scene: &DrawContext<'_>, plan: &ScreenLayout, buf: &mut Buffer) {
        view::draw(scene, self, plan.body, buf);
    }
}

/// Opens the comparison of the unit's last two attempts, or closes it.
pub(crate) fn open(model: &mut ScreenModel, run_view: &RunView) {
    if model.top::<ComparePage>().is_some() {
        model.close();
        return;
    }
    let unit = model.page().unit(model, run_view);
    let Some(unit) = unit else {
        return model.toasts.show("no unit is selected");
    };
    let (key, attempts) = (unit.key.clone(), unit.attempts.len());
    model.units_view.follows_work = false;
    match attempts {
        0 => model.toasts.show(format!("{key} has not run yet")),
        1 => model.toasts.show(format!(
            "{key} has one attempt; there is nothing to compare it with"
        )),
        attempts => model.open(ComparePage::new(key, attempts)),
    }
}

/// The key is offered if there are attempts besides the two.
fn has_others(model: &ScreenModel, run_view: &RunView) -> Availability {
    let unit = model.unit_of_page(run_view);
    match unit.is_some_and(|unit| unit.attempts.len() > 2) {
        true => Ok(()),
        false => Err(Unavailable::because("there is no older attempt")),
    }
}

fn older(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let (page, model) = model.page_mut();
    page.sideways(model, run_view, false);
    Vec::new()
}

fn newer(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let (page, model) = model.page_mut();
    page.sideways(model, run_view, true);
    Vec::new()
}

/// Opens the selected call in the inspector.
fn open_call(model: &mut ScreenModel, _: &RunView) -> Vec<ScreenEffect> {
    let call = model.top::<ComparePage>().and_then(|page| {
        let (side, row) = page.selected_row()?;
        Some((page.unit.clone(), page.sides[side], row))
    });
    if let Some((unit, attempt, row)) = call {
        model.open(InspectPage::new(unit, attempt, Some(row)));
    }
    Vec::new()
}
