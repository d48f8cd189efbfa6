//! Navigation by rows, pages and ends, and sideways among attempts and neighbours.

use super::{compare, inspect};
use crate::{
    run::state::RunView,
    tui::model::{OverlayView, Pane, ScreenModel, ScrollList},
};

pub(super) fn other(pane: Pane) -> Pane {
    match pane {
        Pane::Units => Pane::Stream,
        Pane::Stream => Pane::Units,
    }
}

/// Rows of the focused pane.
pub(super) fn page(model: &ScreenModel, run_view: &RunView) -> usize {
    let plan = model.layout(run_view);
    match (model.views.last(), model.units_view.focus) {
        (Some(OverlayView::Inspect(view)), _) => inspect::page(view, plan.body),
        (Some(OverlayView::Compare(view)), _) => usize::from(view.areas(plan.body).calls.height),
        (Some(_), _) => usize::from(plan.body_rows()),
        (None, Pane::Units) => plan.unit_rows(),
        (None, Pane::Stream) => plan.stream_rows(model.attempt(run_view).map(|(_, attempt)| attempt)),
    }
}

pub(super) fn step(model: &mut ScreenModel, run_view: &RunView, by: isize) {
    match model.views.last_mut() {
        Some(OverlayView::Transcript(view)) => {
            let len = view.attempt_id(run_view).map_or(0, |attempt_id| run_view.entries(attempt_id).len());
            view.list.step(by, len);
        }
        Some(OverlayView::Inspect(view)) => inspect::step(view, run_view, by),
        Some(OverlayView::Compare(view)) => {
            let len = view.pair_count();
            view.list.step(by, len);
        }
        Some(OverlayView::Entry(view)) => view.scroll = view.scroll.saturating_add_signed(by),
        Some(OverlayView::Log(list)) => list.step(by, run_view.messages().len()),
        Some(OverlayView::Breakpoints(list)) => list.step(by, model.breakpoints.len()),
        Some(OverlayView::FailureGroups(view)) => view.list.step(by, view.lines.len()),
        // The grid handles its own keys.
        Some(OverlayView::Grid) => {}
        Some(OverlayView::Help(list)) => list.offset = list.offset.saturating_add_signed(by),
        None if model.units_view.focus == Pane::Units => {
            let row = model.unit_row().saturating_add_signed(by);
            select_unit_row(model, run_view, row);
        }
        None => {
            let len = model.units_view.attempt_id.map_or(0, |attempt_id| run_view.rows(attempt_id).len());
            model.units_view.stream.step(by, len);
        }
    }
}

/// Selects a row of the unit table.
pub(super) fn select_unit_row(model: &mut ScreenModel, run_view: &RunView, row: usize) {
    model.units_view.follows_work = false;
    let row = row.min(model.listed_count(run_view).saturating_sub(1));
    if let Some(unit) = model.listed_unit(row)
        && unit != model.units_view.unit
    {
        model.units_view.unit = unit;
        model.units_view.attempt = None;
    }
}

pub(super) fn go_to_first_or_last(model: &mut ScreenModel, run_view: &RunView, last: bool) {
    let go = |list: &mut ScrollList, len: usize| if last { list.end(len) } else { list.select(0, len) };
    match model.views.last_mut() {
        Some(OverlayView::Transcript(view)) => {
            let len = view.attempt_id(run_view).map_or(0, |attempt_id| run_view.entries(attempt_id).len());
            go(&mut view.list, len);
        }
        Some(OverlayView::Inspect(view)) => inspect::go_to_first_or_last(view, run_view, last),
        Some(OverlayView::Compare(view)) => compare::go_to_first_or_last(view, last),
        Some(OverlayView::Entry(view)) => view.scroll = if last { view.lines } else { 0 },
        Some(OverlayView::Log(list)) => go(list, run_view.messages().len()),
        Some(OverlayView::Breakpoints(list)) => go(list, model.breakpoints.len()),
        Some(OverlayView::FailureGroups(view)) => go(&mut view.list, view.lines.len()),
        Some(OverlayView::Grid) => {}
        Some(OverlayView::Help(list)) => list.offset = if last { usize::MAX } else { 0 },
        None if model.units_view.focus == Pane::Units => {
            select_unit_row(model, run_view, if last { usize::MAX } else { 0 })
        }
        None => {
            let len = model.units_view.attempt_id.map_or(0, |attempt_id| run_view.rows(attempt_id).len());
            go(&mut model.units_view.stream, len);
        }
    }
}

/// Moves among the attempts of a unit, or among neighbours of an entry.
pub(super) fn show_adjacent(model: &mut ScreenModel, run_view: &RunView, by: isize) {
    match model.views.last_mut() {
        Some(OverlayView::Transcript(view)) => {
            if let Some((index, _)) = view.attempt(run_view) {
                let next = index.saturating_add_signed(by);
                if next != view.attempt {
                    view.attempt = next;
                    view.list = ScrollList::following();
                }
            }
        }
        Some(OverlayView::Inspect(view)) => inspect::show_adjacent(view, run_view, by),
        Some(OverlayView::Compare(_)) => compare::show_adjacent(model, run_view, by > 0),
        Some(OverlayView::Entry(view)) => view.show_neighbour(run_view, by),
        Some(
            OverlayView::Help(_)
            | OverlayView::Log(_)
            | OverlayView::FailureGroups(_)
            | OverlayView::Breakpoints(_)
            | OverlayView::Grid,
        ) => {}
        None => {
            model.units_view.follows_work = false;
            if let (Some((index, _)), Some(unit)) = (model.attempt(run_view), model.unit(run_view)) {
                let next = index.saturating_add_signed(by).min(unit.attempts.len().saturating_sub(1));
                // With the newest attempt selected, later attempts are shown automatically.
                model.units_view.attempt = (next + 1 < unit.attempts.len()).then_some(next);
            }
        }
    }
}
