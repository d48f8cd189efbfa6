//! Keys of the grid of panes: focus and scrolling. Commands apply to the unit of the focused pane.

use crate::{
    run::state::{RunView, UnitState},
    tui::{
        action::UserAction,
        layout,
        model::{OverlayView, PaneDirection, ScreenModel, is_problem},
        update::find::nearest,
    },
};

/// Opens or closes the grid.
pub(super) fn toggle(model: &mut ScreenModel) {
    if model.views.iter().any(|view| matches!(view, OverlayView::Grid)) {
        while let Some(view) = model.views.pop() {
            if matches!(view, OverlayView::Grid) {
                break;
            }
        }
    } else {
        model.units_view.follows_work = false;
        model.views.clear();
        model.views.push(OverlayView::Grid);
    }
}

/// Handles an action of the grid. Returns false if the action has its general meaning.
pub(super) fn act(model: &mut ScreenModel, run_view: &RunView, action: UserAction) -> bool {
    if !matches!(model.views.last(), Some(OverlayView::Grid)) {
        return false;
    }
    let body = model.layout(run_view).body;
    let grid = &mut model.grid;
    match action {
        UserAction::Left => grid.go(PaneDirection::Left, body),
        UserAction::Right => grid.go(PaneDirection::Right, body),
        UserAction::Up => grid.go(PaneDirection::Up, body),
        UserAction::Down => grid.go(PaneDirection::Down, body),
        UserAction::NextPane => grid.step(true),
        UserAction::PreviousPane => grid.step(false),
        UserAction::Zoom => grid.zoom = !grid.zoom,
        UserAction::Back if grid.zoom => grid.zoom = false,
        UserAction::HalfUp | UserAction::PageUp => scroll(model, run_view, None, false),
        UserAction::HalfDown | UserAction::PageDown => scroll(model, run_view, None, true),
        UserAction::Top | UserAction::Bottom => {
            if let Some(slot) = grid.panes.get_mut(grid.focus) {
                let len = slot.len(run_view);
                if action == UserAction::Bottom { slot.list.end(len) } else { slot.list.select(0, len) }
            }
        }
        UserAction::NextFailure | UserAction::PreviousFailure => {
            let failed = |slot: usize| {
                let unit = grid.panes.get(slot).and_then(|slot| run_view.state.units.get(slot.unit));
                unit.is_some_and(|unit: &UnitState| is_problem(unit.status))
            };
            match nearest(grid.panes.len(), grid.focus, action == UserAction::NextFailure, failed) {
                Some(slot) => grid.choose(slot),
                None => model.show_message("no problem here"),
            }
        }
        UserAction::Search | UserAction::NextMatch | UserAction::PreviousMatch => {
            let key = model.keymap.first(UserAction::Open).unwrap_or_default();
            model.show_message(format!("{key} opens the pane; its content can be searched there"));
        }
        _ => return false,
    }
    true
}

/// Scrolls a pane by the wheel, or the focused one by half of its height.
pub(super) fn scroll(model: &mut ScreenModel, run_view: &RunView, wheel: Option<(usize, isize)>, down: bool) {
    let body = model.layout(run_view).body;
    let panes = model.grid.panes(body);
    let place = wheel.map_or(model.grid.focus, |(place, _)| place);
    let Some((_, area)) = panes.iter().find(|(shown, _)| *shown == place) else { return };
    let Some(slot) = model.grid.panes.get_mut(place) else { return };
    let attempt = run_view.state.units.get(slot.unit).and_then(UnitState::latest);
    let height = layout::stream_list(*area, attempt).0.height;
    let by = wheel.map_or(isize::try_from(height / 2).unwrap_or(1).max(1), |(_, by)| by);
    let len = slot.len(run_view);
    // A pane that follows has no visible selection, so the visible edge moves instead.
    let edge = if down { slot.list.offset + usize::from(height).saturating_sub(1) } else { slot.list.offset };
    slot.list.select(edge.saturating_add_signed(if down { by } else { -by }), len);
    if slot.list.selected + 1 >= len {
        slot.list.end(len);
    }
}
