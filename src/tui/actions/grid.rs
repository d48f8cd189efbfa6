//! Keys of the grid of panes: focus and scrolling. Commands apply to the unit of the focused pane.

use crate::{
    layout,
    model::{OverlayView, ScreenModel},
    search_match::nearest,
};
use ingestdeck_core::run::state::{RunView, UnitNeed, UnitState};

/// Opens the grid with the selected unit in the focused pane, or closes it.
pub(crate) fn toggle(model: &mut ScreenModel, _: &RunView) {
    if model
        .views
        .iter()
        .any(|view| matches!(view, OverlayView::Grid))
    {
        while let Some(view) = model.views.pop() {
            if matches!(view, OverlayView::Grid) {
                break;
            }
        }
    } else {
        model
            .grid
            .show(model.units_view.unit, !model.units_view.follows_work);
        (model.units_view.follows_work, model.units_view.heading) = (false, None);
        model.views.clear();
        model.views.push(OverlayView::Grid);
    }
}

/// Focuses the next or previous pane whose unit has a problem.
pub(crate) fn select_next_problem(model: &mut ScreenModel, run_view: &RunView, forward: bool) {
    let grid = &mut model.grid;
    let failed = |pane: usize| {
        let unit = grid
            .panes
            .get(pane)
            .and_then(|pane| run_view.state.units.get(pane.unit));
        unit.is_some_and(|unit: &UnitState| unit.status.need() == UnitNeed::Person)
    };
    match nearest(grid.panes.len(), grid.focus, forward, failed) {
        Some(pane) => grid.choose(pane),
        None => model.toasts.show("no problem here"),
    }
}

/// Scrolls a pane by the wheel, or the focused one by half of its height.
pub(crate) fn scroll(
    model: &mut ScreenModel,
    run_view: &RunView,
    wheel: Option<(usize, isize)>,
    down: bool,
) {
    let body = model.layout().body;
    let panes = model.grid.panes(body);
    let place = wheel.map_or(model.grid.focus, |(place, _)| place);
    let Some((_, area)) = panes.iter().find(|(shown, _)| *shown == place) else {
        return;
    };
    let Some(slot) = model.grid.panes.get_mut(place) else {
        return;
    };
    let attempt = run_view
        .state
        .units
        .get(slot.unit)
        .and_then(UnitState::latest);
    let height = layout::stream_areas(*area, attempt).rows.height;
    let by = wheel.map_or(
        isize::try_from(height / 2).unwrap_or(1).max(1),
        |(_, by)| by,
    );
    let len = slot.len(run_view);
    // A pane that follows has no visible selection, so the visible edge moves instead.
    let edge = if down {
        slot.list.offset + usize::from(height).saturating_sub(1)
    } else {
        slot.list.offset
    };
    slot.list
        .select(edge.saturating_add_signed(if down { by } else { -by }), len);
    if slot.list.selected + 1 >= len {
        slot.list.end(len);
    }
}
