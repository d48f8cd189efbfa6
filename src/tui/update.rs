//! Handles messages: changes the screen model and returns effects. Synchronous and total; all decisions of the screen
//! are made here.
//!
//! It must not read a clock, a file or a terminal: input arrives in the message, and output is returned as data.

use super::{
    actions::{find, hold, listing, time},
    edited_text::EditTarget,
    effect::ScreenEffect,
    page::ScreenModel,
    pages::{
        self, find::add_found, record_search::actions as record_search, review::actions as review,
    },
    screen_message::ScreenMessage,
};
use ingestdeck_core::run::state::RunView;

mod keys;
mod mouse;

/// Maximum characters of a typed line.
const MAX_TYPED_CHARS: usize = 200;

pub(crate) fn update(
    model: &mut ScreenModel,
    run_view: &RunView,
    msg: ScreenMessage,
) -> Vec<ScreenEffect> {
    let mut effects = match msg {
        ScreenMessage::Key(key) => keys::press(model, run_view, key),
        // A text that cannot be seen is not changed.
        ScreenMessage::Paste(_) if model.layout().is_too_small() => Vec::new(),
        ScreenMessage::Paste(text) => {
            if let Some(form) = &mut model.dialogs.amend_form {
                form.paste(&text);
            } else if let Some(editor) = &mut model.dialogs.editor {
                editor.paste(&text);
            } else if let Some(form) = &mut model.dialogs.answer_form {
                form.paste(&text);
            } else {
                type_text(model, &text.lines().collect::<Vec<_>>().join(" "));
            }
            Vec::new()
        }
        ScreenMessage::Click { x, y } => mouse::click(model, run_view, x, y),
        ScreenMessage::Drag { x } => mouse::drag(model, x),
        ScreenMessage::Wheel { x, y, down } => mouse::wheel(model, run_view, x, y, down),
        ScreenMessage::Resize { width, height } => {
            model.size = (width, height);
            Vec::new()
        }
        ScreenMessage::Tick { now, time, present } => {
            model.toasts.now = now;
            model.playhead.time = time;
            model.playhead.bounds.now = present;
            model.toasts.list.retain(|toast| toast.until > now);
            Vec::new()
        }
        ScreenMessage::Edited {
            target: EditTarget::Reviewed(path),
            text,
        } => review::edited(model, run_view, path, text),
        ScreenMessage::Edited {
            target: EditTarget::Form,
            text,
        } => {
            let dialogs = &mut model.dialogs;
            match (text, &mut dialogs.amend_form, &mut dialogs.editor) {
                (Ok(text), Some(form), _) => {
                    form.replace_feedback(text.trim_end_matches(['\r', '\n']))
                }
                (Ok(text), None, Some(editor)) => editor.replace(&text),
                (Err(edit), Some(form), _) => form.problem = Some(edit.to_string()),
                (Err(edit), None, Some(editor)) => editor.problem = Some(edit.to_string()),
                (text, None, None) => {
                    if let Some(form) = &mut dialogs.answer_form {
                        match text {
                            Ok(text) => form.replace(&text),
                            Err(edit) => form.problem = Some(edit.to_string()),
                        }
                    }
                }
            }
            Vec::new()
        }
        ScreenMessage::SearchFinished(place) => {
            find::search_finished(model, run_view, place);
            Vec::new()
        }
        ScreenMessage::MatchesCounted(matches) => {
            model.search.matches = Some(matches);
            Vec::new()
        }
        ScreenMessage::FoundInRun { rows, searched } => {
            add_found(model, rows, searched);
            Vec::new()
        }
        ScreenMessage::TimeStopped(hit) => {
            time::time_stopped(model, run_view, &hit);
            Vec::new()
        }
    };
    effects.extend(hold::deny_next(model, run_view));
    listing::filter_while_typing(model, run_view);
    effects.extend(find::search_pane(model, run_view));
    effects.extend(record_search::search_while_typing(model));
    pages::refresh(model, run_view);
    effects
}

/// Adds a text to the typed line, without control characters, and shows if it does not fit.
fn type_text(model: &mut ScreenModel, text: &str) {
    let Some(typed) = &mut model.dialogs.line_input else {
        return;
    };
    let room = MAX_TYPED_CHARS.saturating_sub(typed.text.chars().count());
    let mut chars = text.chars().filter(|char| !char.is_control());
    typed.text.extend(chars.by_ref().take(room));
    if chars.next().is_some() {
        model.toasts.show(format!(
            "a line has at most {MAX_TYPED_CHARS} characters; the rest was not added"
        ));
    }
}
