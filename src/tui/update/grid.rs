//! Keys of the panes: which has the focus, what of it is seen. Orders are about the unit of the focused pane.

use crate::{
    run::state::{Story, Unit},
    tui::{
        action::Action,
        layout,
        model::{Model, Towards, View, is_problem},
        update::find::nearest,
    },
};

/// Shows the panes, or goes back.
pub(super) fn toggle(model: &mut Model) {
    if model.views.iter().any(|view| matches!(view, View::Grid)) {
        while let Some(view) = model.views.pop() {
            if matches!(view, View::Grid) {
                break;
            }
        }
    } else {
        model.deck.auto = false;
        model.views.clear();
        model.views.push(View::Grid);
    }
}

/// Does what a key means among panes. False when it means there what it means everywhere.
pub(super) fn act(model: &mut Model, story: &Story, action: Action) -> bool {
    if !matches!(model.views.last(), Some(View::Grid)) {
        return false;
    }
    let body = model.plan(story).body;
    let grid = &mut model.grid;
    match action {
        Action::Left => grid.go(Towards::Left, body),
        Action::Right => grid.go(Towards::Right, body),
        Action::Up => grid.go(Towards::Up, body),
        Action::Down => grid.go(Towards::Down, body),
        Action::NextPane => grid.step(true),
        Action::PreviousPane => grid.step(false),
        Action::Zoom => grid.zoom = !grid.zoom,
        Action::Back if grid.zoom => grid.zoom = false,
        Action::HalfUp | Action::PageUp => scroll(model, story, None, false),
        Action::HalfDown | Action::PageDown => scroll(model, story, None, true),
        Action::Top | Action::Bottom => {
            if let Some(slot) = grid.slots.get_mut(grid.focus) {
                let len = slot.len(story);
                if action == Action::Bottom { slot.list.end(len) } else { slot.list.select(0, len) }
            }
        }
        Action::NextFailure | Action::PreviousFailure => {
            let failed = |slot: usize| {
                let unit = grid.slots.get(slot).and_then(|slot| story.state.units.get(slot.unit));
                unit.is_some_and(|unit: &Unit| is_problem(unit.status))
            };
            match nearest(grid.slots.len(), grid.focus, action == Action::NextFailure, failed) {
                Some(slot) => grid.choose(slot),
                None => model.say("no problem here"),
            }
        }
        Action::Search | Action::NextMatch | Action::PreviousMatch => {
            let key = model.keymap.first(Action::Open).unwrap_or_default();
            model.say(format!("{key} opens the pane; what is in it can be searched there"));
        }
        _ => return false,
    }
    true
}

/// Scrolls a pane, or the focused one by half of its height.
pub(super) fn scroll(model: &mut Model, story: &Story, wheel: Option<(usize, isize)>, down: bool) {
    let body = model.plan(story).body;
    let panes = model.grid.panes(body);
    let place = wheel.map_or(model.grid.focus, |(place, _)| place);
    let Some((_, area)) = panes.iter().find(|(shown, _)| *shown == place) else { return };
    let Some(slot) = model.grid.slots.get_mut(place) else { return };
    let attempt = story.state.units.get(slot.unit).and_then(Unit::latest);
    let height = layout::stream_list(*area, attempt).0.height;
    let by = wheel.map_or(isize::try_from(height / 2).unwrap_or(1).max(1), |(_, by)| by);
    let len = slot.len(story);
    // A pane shows no selection unless it stands still, so what moves is what is seen.
    let edge = if down { slot.list.offset + usize::from(height).saturating_sub(1) } else { slot.list.offset };
    slot.list.select(edge.saturating_add_signed(if down { by } else { -by }), len);
    if slot.list.selected + 1 >= len {
        slot.list.end(len);
    }
}
