//! The grid: live panes of several units. Commands apply to the unit of the focused pane.

use ratatui::{buffer::Buffer, layout::Position};

use super::inspect;
use crate::{
    action::{Unavailable, UserAction},
    cache::CacheRequest,
    effect::ScreenEffect,
    layout::{ScreenLayout, stream_areas},
    model::{PaneDirection, SharedModel},
    page::{
        ContentContext, DrawContext, InspectPlace, Page, PageKey, ScreenModel, initial_action,
        selected_attempt,
    },
    search_match::nearest,
    widgets::stream,
};
use ingestdeck_core::run::state::{RunView, UnitNeed, UnitState, UnitStatus};

pub(crate) mod actions;
mod view;

#[derive(Clone, Copy, Debug)]
pub(crate) struct GridPage;

impl Page for GridPage {
    fn name(&self) -> &'static str {
        "the live panes"
    }

    fn hints(&self, model: &SharedModel, run_view: &RunView) -> &'static [UserAction] {
        use UserAction::*;
        let status = model.unit(run_view).map(|unit| unit.status);
        if status.is_some_and(UnitStatus::is_retryable) {
            &[Back, Open, Retry, NextPane, Zoom, NextFailure]
        } else {
            &[Back, Open, Stop, NextPane, Zoom, NextFailure]
        }
    }

    fn help(&self, _: &SharedModel) -> (&'static str, &'static [UserAction]) {
        use UserAction::*;
        (
            self.name(),
            &[Right, Left, Tab, PreviousPane, PreviousFailure],
        )
    }

    fn keys(&self) -> &'static [PageKey] {
        const KEYS: &[PageKey] = &[PageKey::new(UserAction::Open, "inspect", open)];
        KEYS
    }

    fn unit<'a>(&self, model: &SharedModel, run_view: &'a RunView) -> Option<&'a UnitState> {
        model.unit(run_view)
    }

    fn step(&mut self, model: &mut SharedModel, _: &RunView, by: isize) {
        let body = model.layout().body;
        model.grid.go(
            if by > 0 {
                PaneDirection::Down
            } else {
                PaneDirection::Up
            },
            body,
        );
    }

    fn go_to_end(&mut self, model: &mut SharedModel, run_view: &RunView, last: bool) {
        let focus = model.grid.focus;
        if let Some(pane) = model.grid.panes.get_mut(focus) {
            let len = pane.len(run_view);
            pane.list.go_to_end(len, last);
        }
    }

    fn half_pages(&mut self, model: &mut SharedModel, run_view: &RunView, halves: isize) {
        actions::scroll(model, run_view, None, halves > 0);
    }

    fn scroll(&mut self, _: &mut SharedModel, _: &RunView, _: isize) {}

    fn sideways(&mut self, model: &mut SharedModel, _: &RunView, right: bool) {
        let body = model.layout().body;
        model.grid.go(
            if right {
                PaneDirection::Right
            } else {
                PaneDirection::Left
            },
            body,
        );
    }

    fn next_pane(&mut self, model: &mut SharedModel, forward: bool) {
        model.grid.step(forward);
    }

    fn zoom(&mut self, model: &mut SharedModel) {
        model.grid.zoom = !model.grid.zoom;
    }

    fn next_failure(
        &mut self,
        model: &mut SharedModel,
        run_view: &RunView,
        forward: bool,
    ) -> Result<(), &'static str> {
        let grid = &mut model.grid;
        let failed = |pane: usize| {
            let unit = grid
                .panes
                .get(pane)
                .and_then(|pane| run_view.state.units.get(pane.unit));
            unit.is_some_and(|unit: &UnitState| unit.status.need() == UnitNeed::Person)
        };
        let pane = nearest(grid.panes.len(), grid.focus, forward, failed);
        grid.choose(pane.ok_or("no problem here")?);
        Ok(())
    }

    fn back(&mut self, model: &mut SharedModel) -> bool {
        std::mem::take(&mut model.grid.zoom)
    }

    fn inspected(
        &self,
        model: &SharedModel,
        run_view: &RunView,
    ) -> Result<InspectPlace, Unavailable> {
        let (unit, index, attempt) = selected_attempt(model, run_view)?;
        Ok(InspectPlace {
            unit: unit.key.clone(),
            attempt: index,
            action: initial_action(run_view, attempt),
        })
    }

    fn search_elsewhere(&self) -> Option<&'static str> {
        Some("opens the pane; its content can be searched there")
    }

    fn click(
        &mut self,
        model: &mut SharedModel,
        _: &RunView,
        plan: &ScreenLayout,
        at: Position,
    ) -> bool {
        let panes = model.grid.panes(plan.body);
        let pane = panes.into_iter().find(|(_, area)| area.contains(at));
        if let Some((place, _)) = pane {
            model.grid.choose(place);
        }
        pane.is_some()
    }

    fn wheel(
        &mut self,
        model: &mut SharedModel,
        run_view: &RunView,
        plan: &ScreenLayout,
        at: Position,
        by: isize,
    ) {
        let panes = model.grid.panes(plan.body);
        if let Some((place, _)) = panes.into_iter().find(|(_, area)| area.contains(at)) {
            actions::scroll(model, run_view, Some((place, by.abs())), by > 0);
        }
    }

    fn ignores_listing(&self) -> bool {
        true
    }

    fn select_unit(&mut self, model: &mut SharedModel, run_view: &RunView) {
        let body = model.layout().body;
        let held = &model.dialogs.held_changes;
        model.grid.refresh(run_view, held, body);
        // Commands apply to the focused pane, whatever the table hides.
        let (grid, deck) = (&model.grid, &mut model.units_view);
        if let Some(unit) = grid.unit().filter(|unit| *unit != deck.unit) {
            (deck.unit, deck.attempt) = (unit, None);
        }
        (deck.chosen_unit, deck.last_valid_unit, deck.hidden_by) = (deck.unit, deck.unit, None);
    }

    fn add_content(&self, scene: &ContentContext<'_>, wants: &mut CacheRequest) {
        let grid = &scene.model.grid;
        for (place, area) in grid.panes(scene.plan.body) {
            let Some(slot) = grid.panes.get(place) else {
                continue;
            };
            let Some((_, Some(attempt))) = slot.subject(scene.run_view) else {
                continue;
            };
            let held = &scene.model.dialogs.held_changes;
            let areas = stream_areas(area, Some(attempt), held);
            let rows = scene
                .run_view
                .rows(attempt.id)
                .iter()
                .skip(slot.list.offset);
            wants.rows.extend(rows.take(usize::from(areas.rows.height)));
            let result = stream::result_below(&slot.list, scene.run_view, attempt, &areas);
            wants.reading.extend(result.map(|(key, _)| key));
        }
    }

    fn draw(&self, scene: &DrawContext<'_>, plan: &ScreenLayout, buf: &mut Buffer) {
        view::draw(scene, plan.body, buf);
    }
}

fn open(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let unit = model.unit(run_view);
    model.grid.mark_seen(unit);
    inspect::open(model, run_view);
    Vec::new()
}
