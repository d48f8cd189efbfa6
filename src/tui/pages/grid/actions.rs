//! Opening the grid, and scrolling its panes.

use super::GridPage;
use crate::{layout, model::SharedModel, page::ScreenModel};
use ingestdeck_core::run::state::{RunView, UnitState};

/// Opens the grid with the selected unit in the focused pane, or closes it.
pub(crate) fn toggle(model: &mut ScreenModel, _: &RunView) {
    if !model.close_down_to::<GridPage>() {
        let (unit, is_chosen) = (model.units_view.unit, !model.units_view.follows_work);
        model.grid.show(unit, is_chosen);
        (model.units_view.follows_work, model.units_view.heading) = (false, None);
        model.close_all();
        model.open(GridPage);
    }
}

/// Scrolls a pane by the wheel, or the focused one by half of its height.
pub(crate) fn scroll(
    model: &mut SharedModel,
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
    let held = &model.dialogs.held_changes;
    let height = layout::stream_areas(*area, attempt, held).rows.height;
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
