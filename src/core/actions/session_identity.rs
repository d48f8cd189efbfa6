//! The session of an attempt, and the check that it is the requested one.

use std::sync::Arc;

use crate::decode::{AgentLine, LineBody};

/// The meaning of a line's session id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionCheck {
    Unchanged,
    /// The agent reports that the session does not exist; its result contains the reason.
    UnknownSession,
    /// Another session answers, which is tolerated. Contains the message, which is returned only once.
    Tolerated(String),
    /// Another session answers, which ends the attempt. Contains the message.
    Mismatch(String),
}

#[derive(Clone, Debug, Default)]
pub struct SessionIdentity {
    expected: Option<Arc<str>>,
    tolerant: bool,
    observed: Option<Arc<str>>,
    /// The message about a session that answered instead of the requested one.
    mismatch: Option<Arc<str>>,
}

impl SessionIdentity {
    /// The attempt must continue `session`. If `tolerant`, another session only causes a warning and replaces it.
    pub fn resuming(session: &str, tolerant: bool) -> Self {
        Self {
            expected: Some(session.into()),
            tolerant,
            ..Self::default()
        }
    }

    /// The session that answered, once it is known. A new session keeps its first id, a session file its last.
    pub(crate) fn observed(&self) -> Option<&str> {
        self.observed.as_deref()
    }

    /// The message about a session that answered instead of the requested one.
    pub fn mismatch(&self) -> Option<&str> {
        self.mismatch.as_deref()
    }

    /// The session that answered, or else the requested one.
    pub fn session(&self) -> Option<&str> {
        self.observed.as_deref().or(self.expected.as_deref())
    }

    /// True for a line of a session that must not answer.
    pub(crate) fn is_mismatch(&self, line: &AgentLine<'_>) -> bool {
        !self.tolerant
            && self.mismatching_id(line).is_some()
            && !self.is_unknown_session_result(line)
    }

    /// Processes the next line.
    pub fn push(&mut self, line: &AgentLine<'_>) -> SessionCheck {
        let sighting = match self.mismatching_id(line) {
            None => SessionCheck::Unchanged,
            Some(_) if !self.tolerant && self.is_unknown_session_result(line) => {
                return SessionCheck::UnknownSession;
            }
            Some(_) if self.mismatch.is_some() => return SessionCheck::Unchanged,
            Some((id, expected)) => {
                let sentence = format!("claude emitted session id {id} but expected {expected}");
                self.mismatch = Some(sentence.as_str().into());
                if !self.tolerant {
                    return SessionCheck::Mismatch(sentence);
                }
                SessionCheck::Tolerated(sentence)
            }
        };
        if let Some(id) = line.session_id.as_deref() {
            let is_new = match &self.observed {
                None => true,
                // A session file may begin with lines that have the id of the session that was resumed.
                Some(observed) => line.is_session_file && **observed != *id,
            };
            if is_new {
                self.observed = Some(id.into());
            }
        }
        sighting
    }

    /// Returns the id of a line that differs from the requested one, and the requested one.
    fn mismatching_id<'l>(&self, line: &'l AgentLine<'_>) -> Option<(&'l str, Arc<str>)> {
        let (id, expected) = (line.session_id.as_deref()?, self.expected.as_ref()?);
        (**expected != *id).then(|| (id, Arc::clone(expected)))
    }

    /// True if the first line is a failed result: the agent invents an id for a session that does not exist.
    fn is_unknown_session_result(&self, line: &AgentLine<'_>) -> bool {
        matches!(&line.body, LineBody::Result(result) if self.observed.is_none() && result.failed())
    }
}
