//! Looks up keys in the current scopes and performs their actions.

use super::type_text;
use crate::{
    action::{ActionScope, UserAction},
    actions::{answer, hold, marks, navigation, scopes, screen},
    effect::ScreenEffect,
    key::KeyPress,
    keymap::ChordLookup,
    page::ScreenModel,
};
use ingestdeck_core::run::state::RunView;

pub(super) fn press(
    model: &mut ScreenModel,
    run_view: &RunView,
    key: KeyPress,
) -> Vec<ScreenEffect> {
    model.toasts.dismiss_answers();
    if model.layout().is_too_small() {
        return press_unseen(model, run_view, key);
    }
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
            let number = model
                .keymap
                .chords(UserAction::Tab)
                .position(|keys| keys == chord);
            // Where digits select no panel, they answer the question that waits.
            let answers = model.is_bottom() && answer::open(model, run_view, number);
            if !answers {
                navigation::select_tab(model, number.unwrap_or_default());
            }
            Vec::new()
        }
        ChordLookup::Action(action) => {
            let chord = std::mem::take(&mut model.pending);
            let action = marks::action_of_marks(model, action, &chord);
            // If no unit is listed, a key for units must not fall through to another meaning. A group can be retried.
            if action != UserAction::RetryWith
                && hold::has_no_listed_unit(model, run_view)
                && let ChordLookup::Action(_) = model
                    .keymap
                    .lookup_in(&[ActionScope::Held, ActionScope::Live], &chord)
            {
                model.toasts.show("no unit is selected");
                return Vec::new();
            }
            action.spec().perform(model, run_view)
        }
        ChordLookup::Pending => Vec::new(),
        ChordLookup::Nothing => {
            model.pending.clear();
            // Global keys such as Ctrl-C always work.
            if !scopes.contains(&ActionScope::View)
                && let ChordLookup::Action(
                    action @ (UserAction::Interrupt | UserAction::Suspend | UserAction::Redraw),
                ) = model.keymap.lookup(ActionScope::View, &[key])
            {
                return action.spec().perform(model, run_view);
            }
            if let Some(form) = &mut model.dialogs.amend_form {
                form.handle_key(key);
            } else if let Some(editor) = &mut model.dialogs.editor {
                editor.handle_key(key);
            } else if model.dialogs.answer_form.is_some() {
                return answer::handle_key(model, run_view, key);
            } else if let Some(char) = key.typed() {
                type_text(model, char.encode_utf8(&mut [0; 4]));
            }
            Vec::new()
        }
    }
}

/// Handles a key while the screen has no room to show anything: only what the notice names works, and keys that change
/// neither the run nor a text.
fn press_unseen(model: &mut ScreenModel, run_view: &RunView, key: KeyPress) -> Vec<ScreenEffect> {
    model.pending.push(key);
    let named: Vec<UserAction> = screen::unseen_hints(model, run_view)
        .into_iter()
        .map(|(action, _)| action)
        .collect();
    let scopes = [
        ActionScope::View,
        ActionScope::Typing,
        ActionScope::Editing,
        ActionScope::Question,
    ];
    let lookup = |scope: &ActionScope| match model.keymap.lookup(*scope, &model.pending) {
        ChordLookup::Action(action @ (UserAction::Suspend | UserAction::Redraw)) => {
            ChordLookup::Action(action)
        }
        ChordLookup::Action(action) if named.contains(&action) => ChordLookup::Action(action),
        ChordLookup::Pending => ChordLookup::Pending,
        _ => ChordLookup::Nothing,
    };
    let found: Vec<_> = scopes.iter().map(lookup).collect();
    let action = found.iter().find_map(|found| {
        if let ChordLookup::Action(action) = found {
            Some(*action)
        } else {
            None
        }
    });
    if action.is_some() || !found.contains(&ChordLookup::Pending) {
        model.pending.clear();
    }
    match action {
        Some(UserAction::Quit) => screen::leave_unseen(model),
        Some(action) => action.spec().perform(model, run_view),
        None => Vec::new(),
    }
}
