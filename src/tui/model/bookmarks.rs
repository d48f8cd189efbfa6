//! The bookmarks of the record on the screen.

use std::sync::Arc;

use ingestdeck_core::run::{
    bookmark::{Bookmark, BookmarkStore},
    state::{AttemptId, RunState},
};

#[derive(Clone, Debug, Default)]
pub struct Bookmarks {
    /// In the order of their entries.
    pub list: Vec<Bookmark>,
    /// Keeps changes; `None` for input without a name, whose bookmarks are lost with the session.
    pub store: Option<Arc<dyn BookmarkStore>>,
    /// True once a message has reported that changes are not kept.
    pub has_reported_loss: bool,
}

impl Bookmarks {
    /// The bookmarks of an attempt.
    pub(crate) fn of_attempt(&self, state: &RunState, id: AttemptId) -> Vec<&Bookmark> {
        // Most records have no bookmarks.
        if self.list.is_empty() {
            return Vec::new();
        }
        let owner = state.units.iter().find_map(|unit| {
            let attempt = unit.attempts.iter().find(|attempt| attempt.id == id)?;
            Some((&unit.key, attempt.number))
        });
        let Some((key, number)) = owner else {
            return Vec::new();
        };
        let is_own = |bookmark: &&Bookmark| {
            bookmark.unit.as_ref() == Some(key) && bookmark.attempt.is_none_or(|own| own == number)
        };
        self.list.iter().filter(is_own).collect()
    }
}
