//! The causes: failures by cause, and the forecast of the remaining work.

use ratatui::{buffer::Buffer, layout::Rect};

use crate::{
    action::{Availability, UserAction, require},
    effect::ScreenEffect,
    layout::{self, ScreenLayout},
    model::{ScrollList, SharedModel},
    page::{DrawContext, Page, PageKey, ScreenModel, SearchPlace, rows_to_search},
    search_match::{matches, nearest},
};
use ingestdeck_core::run::state::{RunView, UnitState};

mod state;
pub(crate) mod view;

pub(crate) use state::{FailureGroupLine, FailureGroupsPage};

impl Page for FailureGroupsPage {
    fn name(&self) -> &'static str {
        "the causes"
    }

    fn hints(&self, _: &SharedModel, _: &RunView) -> &'static [UserAction] {
        use UserAction::*;
        &[Back, Open, Retry, RetryWith, NextFailure, Search]
    }

    fn help(&self, _: &SharedModel) -> (&'static str, &'static [UserAction]) {
        use UserAction::*;
        (
            self.name(),
            &[RetryWith, RetryFailed, PreviousFailure, Copy],
        )
    }

    fn keys(&self) -> &'static [PageKey] {
        const KEYS: &[PageKey] =
            &[PageKey::new(UserAction::Open, "open", show_unit).when(has_lines)];
        KEYS
    }

    fn offers(&self, action: UserAction) -> bool {
        use UserAction::*;
        !matches!(action, NextFailure | PreviousFailure) || !self.lines.is_empty()
    }

    fn list(&self) -> Option<&ScrollList> {
        Some(&self.list)
    }

    fn list_mut(&mut self) -> Option<&mut ScrollList> {
        Some(&mut self.list)
    }

    fn len(&self, _: &SharedModel, _: &RunView) -> usize {
        self.lines.len()
    }

    fn rows_area(&self, _: &SharedModel, body: Rect) -> Rect {
        let inside = layout::inner(body);
        layout::below(inside, usize::from(Self::header_rows(inside.height)))
    }

    fn next_failure(
        &mut self,
        _: &mut SharedModel,
        _: &RunView,
        forward: bool,
    ) -> Result<(), &'static str> {
        let len = self.lines.len();
        let hit = nearest(len, self.list.selected, forward, |line| {
            matches!(self.lines[line], FailureGroupLine::Group(_))
        });
        if let Some(hit) = hit {
            self.list.select(hit, len);
        }
        Ok(())
    }

    fn unit<'a>(&self, _: &SharedModel, run_view: &'a RunView) -> Option<&'a UnitState> {
        run_view.state.units.get(self.selected_unit()?)
    }

    fn copy(&self, _: &SharedModel, _: &RunView) -> Vec<ScreenEffect> {
        let example = self.group().map(|failures| ScreenEffect::Copy {
            text: failures.example.clone(),
            what: "error".to_owned(),
        });
        example.into_iter().collect()
    }

    fn search(&self, model: &SharedModel, run_view: &RunView) -> Option<SearchPlace> {
        rows_to_search(self, model, run_view)
    }

    fn is_match(&self, _: &SharedModel, run_view: &RunView, place: usize, query: &str) -> bool {
        self.line_has(place, &run_view.state.units, |text| matches(text, query))
    }

    fn refresh(&mut self, model: &mut SharedModel, run_view: &RunView, plan: &ScreenLayout) {
        let rows = self.rows_area(model, plan.body);
        self.update(run_view, usize::from(rows.width), usize::from(rows.height));
    }

    fn draw(&self, scene: &DrawContext<'_>, plan: &ScreenLayout, buf: &mut Buffer) {
        view::draw(scene, self, plan.body, buf);
    }
}

fn has_lines(model: &ScreenModel, _: &RunView) -> Availability {
    let page = model.top::<FailureGroupsPage>();
    require(page.is_some_and(|page| !page.lines.is_empty()))
}

/// Shows the unit of the selected line on the page of units, from which Esc returns.
fn show_unit(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let page = model.top::<FailureGroupsPage>();
    if let Some(unit) = page.and_then(FailureGroupsPage::selected_unit) {
        model.reveal_from_page(run_view, unit);
    }
    Vec::new()
}
