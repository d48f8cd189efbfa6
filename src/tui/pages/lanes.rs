//! The lanes: attempts over time, one lane for each slot.

use ratatui::{buffer::Buffer, layout::Position};

use super::inspect;
use crate::{
    action::{Availability, Unavailable, UserAction, require},
    effect::SearchScope,
    layout::{self, ScreenLayout},
    model::SharedModel,
    page::{
        DrawContext, InspectPlace, Page, PageKey, ScreenModel, SearchPlace, clicked_row,
        initial_action,
    },
    search_match::{matches, nearest},
};
use ingestdeck_core::run::state::{RunView, UnitNeed, UnitState};

mod state;
mod view;

pub(crate) use state::LanesPage;

impl Page for LanesPage {
    fn name(&self) -> &'static str {
        "the lanes"
    }

    fn hints(&self, _: &SharedModel, _: &RunView) -> &'static [UserAction] {
        use UserAction::*;
        &[Back, Open, Down, Right, Zoom]
    }

    fn help(&self, _: &SharedModel) -> (&'static str, &'static [UserAction]) {
        use UserAction::*;
        (
            self.name(),
            &[Up, Left, NextFailure, PreviousFailure, Search, NextMatch],
        )
    }

    fn keys(&self) -> &'static [PageKey] {
        const KEYS: &[PageKey] =
            &[PageKey::new(UserAction::Open, "open", inspect::inspect).when(has_attempts)];
        KEYS
    }

    fn step(&mut self, _: &mut SharedModel, _: &RunView, by: isize) {
        self.step_lanes(by);
    }

    fn go_to_end(&mut self, _: &mut SharedModel, _: &RunView, last: bool) {
        self.select(if last { usize::MAX } else { 0 });
    }

    fn sideways(&mut self, _: &mut SharedModel, _: &RunView, right: bool) {
        self.step_in_lane(right);
    }

    fn next_failure(
        &mut self,
        _: &mut SharedModel,
        _: &RunView,
        forward: bool,
    ) -> Result<(), &'static str> {
        let attempts = &self.lanes.attempts;
        let hit = nearest(attempts.len(), self.selected_index(), forward, |index| {
            attempts[index].status.need() == UnitNeed::Person
        });
        self.select(hit.ok_or("no failure here")?);
        Ok(())
    }

    fn unit<'a>(&self, _: &SharedModel, run_view: &'a RunView) -> Option<&'a UnitState> {
        run_view.state.units.get(self.selected()?.unit)
    }

    fn inspected(
        &self,
        model: &SharedModel,
        run_view: &RunView,
    ) -> Result<InspectPlace, Unavailable> {
        let found = self.selected().and_then(|shown| {
            let unit = self.unit(model, run_view)?;
            Some((unit, shown.attempt, unit.attempts.get(shown.attempt)?))
        });
        let (unit, index, attempt) = found.ok_or(Unavailable::NoEffect)?;
        Ok(InspectPlace {
            unit: unit.key.clone(),
            attempt: index,
            action: initial_action(run_view, attempt),
        })
    }

    fn search(&self, _: &SharedModel, _: &RunView) -> Option<SearchPlace> {
        Some(SearchPlace::new(
            SearchScope::Page(self.name()),
            self.selected_index(),
            self.lanes.attempts.len(),
        ))
    }

    fn is_match(&self, _: &SharedModel, run_view: &RunView, place: usize, query: &str) -> bool {
        let attempt = self.lanes.attempts.get(place);
        attempt
            .and_then(|attempt| run_view.state.units.get(attempt.unit))
            .is_some_and(|unit| matches(&unit.key, query))
    }

    fn select_match(&mut self, _: &mut SharedModel, _: &RunView, place: usize) {
        self.select(place);
    }

    fn zoom(&mut self, _: &mut SharedModel) {
        self.is_zoomed = !self.is_zoomed;
    }

    fn back(&mut self, _: &mut SharedModel) -> bool {
        std::mem::take(&mut self.is_zoomed)
    }

    fn restore(&mut self, before: &dyn Page) {
        if let Some(before) = (before as &dyn std::any::Any).downcast_ref::<Self>() {
            self.select(before.selected_index());
        }
    }

    fn click(
        &mut self,
        _: &mut SharedModel,
        _: &RunView,
        plan: &ScreenLayout,
        at: Position,
    ) -> bool {
        let [_, rows, _] = self.areas(layout::inner(plan.body));
        let row = clicked_row(rows, at);
        if let (Some(row), Some(selected)) = (row, self.selected()) {
            self.step_lanes((self.offset + row).cast_signed() - selected.lane.cast_signed());
        }
        row.is_some()
    }

    fn refresh(&mut self, _: &mut SharedModel, run_view: &RunView, plan: &ScreenLayout) {
        self.update(run_view, plan.body);
    }

    fn draw(&self, scene: &DrawContext<'_>, plan: &ScreenLayout, buf: &mut Buffer) {
        view::draw(scene, self, plan.body, buf);
    }
}

fn has_attempts(model: &ScreenModel, _: &RunView) -> Availability {
    let page = model.top::<LanesPage>();
    require(page.is_some_and(|page| page.selected().is_some()))
}
