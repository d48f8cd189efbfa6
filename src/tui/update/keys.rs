//! Looks up keys in the current scopes and performs their actions.

use super::MAX_TYPED_CHARS;
use crate::{
    run::state::RunView,
    tui::{
        action::{ActionScope, UserAction},
        actions::{hold, marks, navigation, scopes, units},
        effect::ScreenEffect,
        key::KeyPress,
        keymap::ChordLookup,
        model::ScreenModel,
    },
};

pub(super) fn press(model: &mut ScreenModel, run_view: &RunView, key: KeyPress) -> Vec<ScreenEffect> {
    model.toasts.dismiss_answers();
    let scopes = scopes(model, run_view);
    model.pending.push(key);
    let found = match model.keymap.lookup_in(&scopes, &model.pending) {
        // After an unknown sequence, the last key may still start another chord.
        ChordLookup::Nothing if model.pending.len() > 1 => {
            model.pending = vec![key];
            model.keymap.lookup_in(&scopes, &model.pending)
        }
        found => found,
    };
    match found {
        ChordLookup::Action(UserAction::Tab) => {
            let chord = std::mem::take(&mut model.pending);
            let number = model.keymap.chords(UserAction::Tab).position(|keys| keys == chord);
            navigation::select_tab(model, number.unwrap_or_default());
            Vec::new()
        }
        ChordLookup::Action(action) => {
            let chord = std::mem::take(&mut model.pending);
            let action = marks::action_of_marks(model, action, &chord);
            // If no unit is listed, a key for units must not fall through to another meaning. A group can be retried.
            if action != UserAction::RetryWith
                && hold::has_no_listed_unit(model, run_view)
                && let ChordLookup::Action(_) = model.keymap.lookup_in(&[ActionScope::Held, ActionScope::Live], &chord)
            {
                units::no_unit_selected(model);
                return Vec::new();
            }
            action.spec().perform(model, run_view)
        }
        ChordLookup::Pending => Vec::new(),
        ChordLookup::Nothing => {
            model.pending.clear();
            // Global keys such as Ctrl-C always work.
            if !scopes.contains(&ActionScope::View)
                && let ChordLookup::Action(action @ (UserAction::Interrupt | UserAction::Suspend | UserAction::Redraw)) =
                    model.keymap.lookup(ActionScope::View, &[key])
            {
                return action.spec().perform(model, run_view);
            }
            if let Some(form) = &mut model.dialogs.amend_form {
                form.handle_key(key);
            } else if let Some(editor) = &mut model.dialogs.editor {
                editor.handle_key(key);
            } else if let (Some(typed), Some(char)) = (&mut model.dialogs.line_input, key.typed())
                && typed.text.len() < MAX_TYPED_CHARS
            {
                typed.text.push(char);
            }
            Vec::new()
        }
    }
}
