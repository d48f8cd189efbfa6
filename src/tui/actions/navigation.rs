//! Navigation by rows, pages and ends, and sideways among attempts and neighbours.

use super::{ActionSpec, Availability, change, compare, grid, inspect, is_grid, require, views};
use crate::{
    run::state::RunView,
    tui::{
        action::UserAction,
        layout::Pane,
        model::{OverlayView, PaneDirection, ScreenModel, ScrollList},
    },
};

pub(super) const ACTIONS: &[ActionSpec] = &[
    change(UserAction::Down, "down", "down", "next row", rows::<true>),
    change(UserAction::Up, "up", "up", "previous row", rows::<false>),
    change(UserAction::Top, "top", "top", "first row", go_to_first_or_last::<false>),
    change(UserAction::Bottom, "bottom", "end", "last row; follow new rows", go_to_first_or_last::<true>),
    change(UserAction::HalfDown, "half-down", "½ down", "half a page down", half_pages::<1>),
    change(UserAction::HalfUp, "half-up", "½ up", "half a page up", half_pages::<-1>),
    change(UserAction::PageDown, "page-down", "page down", "a page down", half_pages::<2>),
    change(UserAction::PageUp, "page-up", "page up", "a page up", half_pages::<-2>),
    change(UserAction::Right, "right", "next", "next attempt, or next entry", show_adjacent::<1>).when(has_adjacent),
    change(UserAction::Left, "left", "previous", "previous attempt, or previous entry", show_adjacent::<-1>)
        .when(has_adjacent),
    change(UserAction::NextPane, "next-pane", "pane", "next pane", next_pane::<true>),
    change(UserAction::PreviousPane, "previous-pane", "pane", "previous pane", next_pane::<false>),
    change(UserAction::Zoom, "zoom", "zoom", "the focused pane alone, and back", |model, _| {
        let zoom = match model.views.last_mut() {
            Some(OverlayView::Inspect(view)) => &mut view.zoom,
            Some(OverlayView::Grid) => &mut model.grid.zoom,
            _ => &mut model.units_view.zoom,
        };
        *zoom = !*zoom;
    }),
    change(UserAction::Open, "open", "open", "open or unfold the selection", views::open)
        .when(|model, _| match model.views.last() {
            Some(OverlayView::FailureGroups(view)) => require(!view.lines.is_empty()),
            _ => Ok(()),
        })
        .special_hint(|model, _| views::is_breakpoints(model).then_some("on or off")),
    change(UserAction::Inspect, "inspect", "inspect", "inspect the unit, and back", inspect::open),
    change(UserAction::Compare, "compare", "compare", "two attempts side by side, and back", compare::open),
    // The key selects by its number; see `update`.
    change(UserAction::Tab, "tab", "panel", "panel or pane by number", |_, _| {}),
    change(UserAction::Counterpart, "counterpart", "match", "from a call to its result and back", inspect::counterpart),
    change(UserAction::Back, "back", "back", "one level back; never quits", views::back),
];

/// True if there can be another attempt or entry.
fn has_adjacent(model: &ScreenModel, run_view: &RunView) -> Availability {
    let unit = match model.views.last() {
        Some(OverlayView::Transcript(view)) => run_view.state.units.iter().find(|unit| unit.key == view.unit),
        Some(OverlayView::Inspect(view)) => view.unit(run_view),
        _ => return Ok(()),
    };
    require(unit.is_some_and(|unit| unit.attempts.len() > 1))
}

/// Moves by a row; in the grid, to the pane below or above.
fn rows<const DOWN: bool>(model: &mut ScreenModel, run_view: &RunView) {
    if is_grid(model) {
        let body = model.layout(run_view).body;
        model.grid.go(if DOWN { PaneDirection::Down } else { PaneDirection::Up }, body);
    } else {
        step(model, run_view, if DOWN { 1 } else { -1 });
    }
}

/// Moves by half a page, or by two halves; in the grid always by half of the pane.
fn half_pages<const HALVES: isize>(model: &mut ScreenModel, run_view: &RunView) {
    if is_grid(model) {
        return grid::scroll(model, run_view, None, HALVES > 0);
    }
    let page = isize::try_from(page(model, run_view)).unwrap_or(1).max(1);
    let by = if HALVES.abs() == 1 { (page / 2).max(1) } else { page };
    step(model, run_view, by * HALVES.signum());
}

fn next_pane<const FORWARD: bool>(model: &mut ScreenModel, _: &RunView) {
    match model.views.last_mut() {
        Some(OverlayView::Inspect(view)) => inspect::toggle_side(view),
        Some(OverlayView::Compare(view)) => view.side = 1 - view.side,
        Some(OverlayView::Grid) => model.grid.step(FORWARD),
        Some(_) => {}
        None => model.units_view.focus = other(model.units_view.focus),
    }
}

/// Selects a pane of the grid or a panel of the inspector by its number, from 0.
pub(crate) fn select_tab(model: &mut ScreenModel, number: usize) {
    if is_grid(model) {
        model.grid.choose(number);
    } else {
        inspect::select_panel(model, number);
    }
}

fn other(pane: Pane) -> Pane {
    match pane {
        Pane::Units => Pane::Stream,
        Pane::Stream => Pane::Units,
    }
}

/// Rows of the focused pane.
fn page(model: &ScreenModel, run_view: &RunView) -> usize {
    let plan = model.layout(run_view);
    match (model.views.last(), model.units_view.focus) {
        (Some(OverlayView::Inspect(view)), _) => inspect::page(view, plan.body),
        (Some(OverlayView::Compare(view)), _) => usize::from(view.areas(plan.body).calls.height),
        (Some(_), _) => usize::from(plan.body_rows()),
        (None, Pane::Units) => plan.unit_rows(),
        (None, Pane::Stream) => plan.stream_rows(model.attempt(run_view).map(|(_, attempt)| attempt)),
    }
}

pub(crate) fn step(model: &mut ScreenModel, run_view: &RunView, by: isize) {
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
        Some(OverlayView::Breakpoints(list)) => list.step(by, model.playhead.breakpoints.len()),
        Some(OverlayView::FailureGroups(view)) => view.list.step(by, view.lines.len()),
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
pub(crate) fn select_unit_row(model: &mut ScreenModel, run_view: &RunView, row: usize) {
    model.units_view.follows_work = false;
    let row = row.min(model.listed_count(run_view).saturating_sub(1));
    if let Some(unit) = model.listed_unit(row)
        && unit != model.units_view.unit
    {
        model.units_view.unit = unit;
        model.units_view.attempt = None;
    }
}

fn go_to_first_or_last<const LAST: bool>(model: &mut ScreenModel, run_view: &RunView) {
    let go = |list: &mut ScrollList, len: usize| if LAST { list.end(len) } else { list.select(0, len) };
    match model.views.last_mut() {
        Some(OverlayView::Transcript(view)) => {
            let len = view.attempt_id(run_view).map_or(0, |attempt_id| run_view.entries(attempt_id).len());
            go(&mut view.list, len);
        }
        Some(OverlayView::Inspect(view)) => inspect::go_to_first_or_last(view, run_view, LAST),
        Some(OverlayView::Compare(view)) => compare::go_to_first_or_last(view, LAST),
        Some(OverlayView::Entry(view)) => view.scroll = if LAST { view.lines } else { 0 },
        Some(OverlayView::Log(list)) => go(list, run_view.messages().len()),
        Some(OverlayView::Breakpoints(list)) => go(list, model.playhead.breakpoints.len()),
        Some(OverlayView::FailureGroups(view)) => go(&mut view.list, view.lines.len()),
        Some(OverlayView::Grid) => {
            if let Some(pane) = model.grid.panes.get_mut(model.grid.focus) {
                let len = pane.len(run_view);
                go(&mut pane.list, len);
            }
        }
        Some(OverlayView::Help(list)) => list.offset = if LAST { usize::MAX } else { 0 },
        None if model.units_view.focus == Pane::Units => {
            select_unit_row(model, run_view, if LAST { usize::MAX } else { 0 })
        }
        None => {
            let len = model.units_view.attempt_id.map_or(0, |attempt_id| run_view.rows(attempt_id).len());
            go(&mut model.units_view.stream, len);
        }
    }
}

/// Moves among the attempts of a unit, or among neighbours of an entry.
fn show_adjacent<const BY: isize>(model: &mut ScreenModel, run_view: &RunView) {
    match model.views.last_mut() {
        Some(OverlayView::Transcript(view)) => {
            if let Some((index, _)) = view.attempt(run_view) {
                let next = index.saturating_add_signed(BY);
                if next != view.attempt {
                    view.attempt = next;
                    view.list = ScrollList::following();
                }
            }
        }
        Some(OverlayView::Inspect(view)) => inspect::show_adjacent(view, run_view, BY),
        Some(OverlayView::Compare(_)) => compare::show_adjacent(model, run_view, BY > 0),
        Some(OverlayView::Entry(view)) => view.show_neighbour(run_view, BY),
        Some(
            OverlayView::Help(_) | OverlayView::Log(_) | OverlayView::FailureGroups(_) | OverlayView::Breakpoints(_),
        ) => {}
        Some(OverlayView::Grid) => {
            let body = model.layout(run_view).body;
            model.grid.go(if BY > 0 { PaneDirection::Right } else { PaneDirection::Left }, body);
        }
        None => {
            model.units_view.follows_work = false;
            if let (Some((index, _)), Some(unit)) = (model.attempt(run_view), model.unit(run_view)) {
                let next = index.saturating_add_signed(BY).min(unit.attempts.len().saturating_sub(1));
                // With the newest attempt selected, later attempts are shown automatically.
                model.units_view.attempt = (next + 1 < unit.attempts.len()).then_some(next);
            }
        }
    }
}
