//! What is known of the calls of one attempt beside their results. Counts nothing twice, whoever reports it.

use std::collections::HashSet;

use crate::{
    actions::{ActionPhase, AgentEvent, event::ActionDetail},
    run::{fold::OutcomeDetail, state::RowEnd},
};

/// Calls by their ids.
#[derive(Clone, Debug, Default)]
pub(super) struct CallOutcomes {
    /// Those whose failure is counted, or is none because a person refused them.
    failed: HashSet<Box<str>>,
    denied: HashSet<Box<str>>,
    /// Those that their tool did not carry out.
    declined: HashSet<Box<str>>,
    /// The attempt is ended: what its open calls come to says nothing about them.
    is_aborted: bool,
}

impl CallOutcomes {
    /// A call failed, or its failure is none. True the first time.
    pub(super) fn mark_failed(&mut self, id: &str) -> bool {
        self.failed.insert(id.into())
    }

    /// A call was refused. True the first time.
    pub(super) fn mark_denied(&mut self, id: &str) -> bool {
        self.denied.insert(id.into())
    }

    /// A tool did not carry out a call. True the first time.
    pub(super) fn mark_declined(&mut self, id: &str) -> bool {
        self.declined.insert(id.into())
    }

    /// True for a call that was refused.
    pub(super) fn is_denied(&self, id: &str) -> bool {
        self.denied.contains(id)
    }

    /// Calls without a result will have none of their own.
    pub(super) fn mark_aborted(&mut self) {
        self.is_aborted = true;
    }

    /// How a call ended whose result says that it was refused, or an error.
    pub(super) fn result_end(&self, id: &str, refused: bool, is_error: Option<bool>) -> RowEnd {
        // The agent answers what our interrupt cuts short in words of a person's refusal.
        let cut = self.is_call_aborted(id);
        match (refused || self.is_denied(id), is_error) {
            (true, _) | (false, Some(true)) if cut => RowEnd::Aborted,
            (true, _) => RowEnd::Denied,
            (false, Some(true)) => RowEnd::Failed,
            (false, _) if self.declined.contains(id) => RowEnd::Declined,
            (false, _) => RowEnd::Ok,
        }
    }

    /// How a call ends that will have no result.
    pub(super) fn open_call_end(&self, id: &str) -> RowEnd {
        if self.is_denied(id) { RowEnd::Denied } else { self.session_end() }
    }

    /// How a session ends that does not end well.
    pub(super) fn session_end(&self) -> RowEnd {
        if self.is_aborted { RowEnd::Aborted } else { RowEnd::Failed }
    }

    /// What an event about a call cannot say of it.
    pub(super) fn detail_for(&self, event: &AgentEvent<'_>) -> Option<OutcomeDetail> {
        let AgentEvent::Action(action) = event else { return None };
        let (ActionDetail::Tool(_), ActionPhase::Completed) = (&action.action.detail, action.phase) else {
            return None;
        };
        let id = action.action.id.as_ref();
        match action.ok {
            Some(false) => self.is_call_aborted(id).then_some(OutcomeDetail::Aborted),
            Some(true) | None => self.declined.contains(id).then_some(OutcomeDetail::Declined),
        }
    }

    fn is_call_aborted(&self, id: &str) -> bool {
        self.is_aborted && !self.denied.contains(id) && !self.failed.contains(id)
    }
}
