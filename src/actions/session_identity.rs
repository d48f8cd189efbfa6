//! Which session an attempt works in, and whether it is the one that was asked for.

use std::sync::Arc;

use crate::decode::{AgentLine, LineBody};

/// What the session id of a line means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionCheck {
    /// Nothing new.
    Unchanged,
    /// The agent says that there is no such session; its result gives the reason.
    UnknownSession,
    /// Another session answers, which is tolerated. The sentence about it, once.
    Tolerated(String),
    /// Another session answers, by which the attempt is over. The sentence about it.
    Mismatch(String),
}

/// The session of one attempt.
#[derive(Clone, Debug, Default)]
pub struct SessionIdentity {
    expected: Option<Arc<str>>,
    tolerant: bool,
    observed: Option<Arc<str>>,
    /// The sentence about another session that answered.
    mismatch: Option<Arc<str>>,
}

impl SessionIdentity {
    /// The attempt must continue `session`. If `tolerant`, another session gives a warning and is followed.
    pub fn resuming(session: &str, tolerant: bool) -> Self {
        Self { expected: Some(session.into()), tolerant, ..Self::default() }
    }

    /// The session that answered, once it is known. A new session keeps its first id.
    pub fn observed(&self) -> Option<&str> {
        self.observed.as_deref()
    }

    /// The sentence about another session that answered than the one that was asked for.
    pub fn mismatch(&self) -> Option<&str> {
        self.mismatch.as_deref()
    }

    /// The session that answered, or the one that was asked for.
    pub fn session(&self) -> Option<&str> {
        self.observed.as_deref().or(self.expected.as_deref())
    }

    /// True for a line of a session that must not answer.
    pub fn is_mismatch(&self, line: &AgentLine<'_>) -> bool {
        !self.tolerant && self.mismatching_id(line).is_some() && !self.is_unknown_session_result(line)
    }

    /// Takes in the next line.
    pub fn push(&mut self, line: &AgentLine<'_>) -> SessionCheck {
        let sighting = match self.mismatching_id(line) {
            None => SessionCheck::Unchanged,
            Some(_) if !self.tolerant && self.is_unknown_session_result(line) => return SessionCheck::UnknownSession,
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
        if self.observed.is_none() {
            self.observed = line.session_id.as_deref().map(Arc::from);
        }
        sighting
    }

    /// The id of a line that is not the one that was asked for, and that one.
    fn mismatching_id<'l>(&self, line: &'l AgentLine<'_>) -> Option<(&'l str, Arc<str>)> {
        let (id, expected) = (line.session_id.as_deref()?, self.expected.as_ref()?);
        (**expected != *id).then(|| (id, Arc::clone(expected)))
    }

    /// A failed result as the first sign of life: the agent makes up an id for a session that does not exist.
    fn is_unknown_session_result(&self, line: &AgentLine<'_>) -> bool {
        matches!(&line.body, LineBody::Result(result) if self.observed.is_none() && result.failed())
    }
}
