//! Outcomes of one attempt's calls that are known from other lines than their results. Each outcome is counted once,
//! whichever lines report it.

use std::collections::HashSet;

use crate::{
    actions::{ActionPhase, AgentEvent, event::ActionDetail},
    run::{fold::OutcomeDetail, state::RowEnd},
};

#[derive(Clone, Debug, Default)]
pub(super) struct CallOutcomes {
    /// Calls whose failure is counted, or is ignored because a person denied the call.
    failed: HashSet<Box<str>>,
    denied: HashSet<Box<str>>,
    /// Calls that their tool declined.
    declined: HashSet<Box<str>>,
    /// The attempt is being ended, so the results of its open calls are not evidence of failures.
    is_aborted: bool,
}

impl CallOutcomes {
    /// Marks a call whose failure is counted or ignored. Returns true the first time.
    pub(super) fn mark_failed(&mut self, id: &str) -> bool {
        self.failed.insert(id.into())
    }

    /// Marks a denied call. Returns true the first time.
    pub(super) fn mark_denied(&mut self, id: &str) -> bool {
        self.denied.insert(id.into())
    }

    /// Marks a declined call. Returns true the first time.
    pub(super) fn mark_declined(&mut self, id: &str) -> bool {
        self.declined.insert(id.into())
    }

    pub(super) fn is_denied(&self, id: &str) -> bool {
        self.denied.contains(id)
    }

    /// Marks open calls as aborted: they get no result.
    pub(super) fn mark_aborted(&mut self) {
        self.is_aborted = true;
    }

    /// Returns how a call ended whose result is a denial or an error.
    pub(super) fn result_end(&self, id: &str, refused: bool, is_error: Option<bool>) -> RowEnd {
        // The agent reports a call that was cut short by an interrupt as if a person had denied it.
        let cut = self.is_call_aborted(id);
        match (refused || self.is_denied(id), is_error) {
            (true, _) | (false, Some(true)) if cut => RowEnd::Aborted,
            (true, _) => RowEnd::Denied,
            (false, Some(true)) => RowEnd::Failed,
            (false, _) if self.declined.contains(id) => RowEnd::Declined,
            (false, _) => RowEnd::Ok,
        }
    }

    /// Returns how a call ends that gets no result.
    pub(super) fn open_call_end(&self, id: &str) -> RowEnd {
        if self.is_denied(id) { RowEnd::Denied } else { self.session_end() }
    }

    /// Returns how a session ends that failed.
    pub(super) fn session_end(&self) -> RowEnd {
        if self.is_aborted { RowEnd::Aborted } else { RowEnd::Failed }
    }

    /// Returns the detail about a call that its event lacks.
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
