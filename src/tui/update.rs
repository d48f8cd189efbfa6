//! Messages → changes of the state and wishes to the world. Synchronous, total, and the only place that decides.
//!
//! It must not read a clock, a file or a terminal: what it needs comes in the message, what it wants goes out as data.

use super::{effect::Effect, model::Model, msg::Msg};
use crate::run::state::{RowEnd, Story};

mod amend;
mod causes;
pub(super) mod command;
mod compare;
pub(super) mod find;
pub(super) mod grid;
mod handout;
pub(super) mod hold;
mod inspect;
mod keys;
mod listing;
mod mouse;
mod moves;
mod orders;
mod time;
mod views;

/// Characters of a typed line.
const MOST_TYPED: usize = 200;

/// Takes one message.
pub fn update(model: &mut Model, story: &Story, msg: Msg) -> Vec<Effect> {
    let effects = match msg {
        Msg::Key(key) => keys::press(model, story, key),
        Msg::Paste(text) => {
            if let Some(form) = &mut model.amending {
                form.paste(&text);
            } else if let Some(editor) = &mut model.editor {
                editor.paste(&text);
            } else if let Some(typed) = &mut model.typing {
                typed.text.extend(text.chars().filter(|char| !char.is_control()).take(MOST_TYPED));
            }
            Vec::new()
        }
        Msg::Click { x, y } => mouse::click(model, story, x, y),
        Msg::Drag { x } => mouse::drag(model, story, x),
        Msg::Wheel { x, y, down } => mouse::wheel(model, story, x, y, down),
        Msg::Resize { width, height } => {
            model.size = (width, height);
            Vec::new()
        }
        Msg::Tick { now, time, present } => {
            model.now = now;
            model.time = time;
            model.extent.now = present;
            model.toasts.retain(|toast| toast.until > now);
            Vec::new()
        }
        Msg::Found(place) => {
            find::found(model, story, place);
            Vec::new()
        }
        Msg::Stopped(hit) => {
            time::stopped(model, story, &hit);
            Vec::new()
        }
        Msg::Say(text) => {
            model.say(text);
            Vec::new()
        }
    };
    listing::follow_typing(model, story);
    model.settle(story);
    effects
}

/// True for rows that a person has to look at.
fn is_bad(end: RowEnd) -> bool {
    matches!(end, RowEnd::Failed | RowEnd::Denied)
}
