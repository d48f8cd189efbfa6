//! Marked units of the table: commands that apply to several units take them instead of the selected one.

use crate::{
    action::{ActionScope, Availability, Unavailable, UserAction, require},
    key::KeyPress,
    keymap::ChordLookup,
    layout::Pane,
    page::ScreenModel,
};
use ingestdeck_core::{run::state::RunView, tape::UnitKey};

/// True if commands apply to the marked units.
pub(super) fn has_marks(model: &ScreenModel) -> bool {
    model.is_bottom() && !model.units_view.marked.is_empty()
}

pub(super) fn can_mark(model: &ScreenModel, run_view: &RunView) -> Availability {
    require(model.is_bottom())?;
    match model.heading().is_some() || model.unit(run_view).is_some() {
        true => Ok(()),
        false => Err(Unavailable::no_unit_selected()),
    }
}

/// Toggles the mark of the selected unit and selects the next line, or toggles the marks of the selected group.
pub(super) fn toggle(model: &mut ScreenModel, _: &RunView) {
    model.units_view.focus = Pane::Units;
    let view = &model.units_view;
    let units = match model.heading() {
        Some(group) => view.listing.units_of(group).to_vec(),
        None => vec![view.unit],
    };
    let is_marked = units.iter().all(|unit| view.marked.contains(unit));
    let (is_unit, line) = (model.heading().is_none(), model.selected_line());
    let view = &mut model.units_view;
    view.follows_work = false;
    for unit in units {
        if is_marked {
            view.marked.remove(&unit)
        } else {
            view.marked.insert(unit)
        };
    }
    if is_unit {
        model.select_line(line + 1, true);
    }
}

/// Resolves a key that both edits a held call and retries: while units are marked, it retries those.
pub(crate) fn action_of_marks(
    model: &ScreenModel,
    action: UserAction,
    chord: &[KeyPress],
) -> UserAction {
    let retries = ChordLookup::Action(UserAction::RetryWith);
    let is_shared = || model.keymap.lookup(ActionScope::View, chord) == retries;
    if action == UserAction::EditCall && has_marks(model) && is_shared() {
        UserAction::RetryWith
    } else {
        action
    }
}

/// Removes all marks. Returns false if there are none.
pub(super) fn clear(model: &mut ScreenModel) -> bool {
    let had_marks = has_marks(model);
    if had_marks {
        model.units_view.marked.clear();
    }
    had_marks
}

/// The marked units that have not ended.
pub(super) fn stoppable(model: &ScreenModel, run_view: &RunView) -> Vec<UnitKey> {
    let units = model
        .units_view
        .marked
        .iter()
        .filter_map(|unit| run_view.state.units.get(*unit));
    units
        .filter(|unit| !unit.status.is_finished())
        .map(|unit| unit.key.clone())
        .collect()
}
