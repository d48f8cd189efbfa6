//! How far the changes of a run are on their way to the branch.

use super::{HeaderItem, cut};
use crate::{action::UserAction, page::DrawContext, theme::StyleRole, widgets::key_names};
use ingestdeck_core::text;

/// The commit on the branch, the failure to save it, or what is integrated while units run.
pub(super) fn publication(scene: &DrawContext<'_>) -> Option<HeaderItem> {
    let state = &scene.run_view.state;
    if let Some(why) = &state.publication.save_error {
        return Some(HeaderItem::new(0, StyleRole::Failed, not_saved(scene, why)));
    }
    let ahead = state.publication.ahead;
    if ahead.patches > 0 && state.ended.is_none() {
        return Some(HeaderItem::new(4, StyleRole::Dim, ahead.to_string()));
    }
    let commit = state.publication.saved.as_ref()?.short_commit()?;
    Some(HeaderItem::new(
        2,
        StyleRole::Succeeded,
        format!("commit {}", cut(commit, 8)),
    ))
}

/// Why the results are not saved. The log has the whole sentence, whose end is the remedy.
fn not_saved(scene: &DrawContext<'_>, why: &str) -> String {
    let room = match scene.model.size.0 {
        0..=79 => 0,
        80..=99 => 24,
        100..=159 => 48,
        _ => 96,
    };
    let key = scene
        .model
        .keymap
        .first(UserAction::Log)
        .unwrap_or_else(|| ":log".to_owned());
    let key = key_names(scene, &key);
    match room {
        0 => format!("NOT SAVED ({key})"),
        room if text::width(&text::printable(why, 1000)) <= room => {
            format!("NOT SAVED: {}", cut(why, room))
        }
        room => format!("NOT SAVED: {} ({key}: all of it)", cut(why, room)),
    }
}
