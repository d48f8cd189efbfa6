//! What persons wrote in the sessions of a run: an attempt that continues a session has received it, too.
//!
//! It must not know what the texts are for.

use std::collections::HashMap;

use parking_lot::Mutex;

/// Texts by session, in the order in which they were sent.
#[derive(Debug, Default)]
pub(super) struct SessionTexts(Mutex<HashMap<String, Vec<String>>>);

impl SessionTexts {
    pub(super) fn push(&self, session: &str, text: &str) {
        let mut sessions = self.0.lock();
        sessions
            .entry(session.to_owned())
            .or_default()
            .push(text.to_owned());
    }

    pub(super) fn of(&self, session: &str) -> Vec<String> {
        let sessions = self.0.lock();
        sessions.get(session).cloned().unwrap_or_default()
    }
}
