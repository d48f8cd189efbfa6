//! The calls of one attempt: which are open, and how they ended. Each outcome is counted once, whichever lines report
//! it.

use crate::actions::CallMap;

/// Outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    Ok,
    Failed,
    /// A rule or a person denied it.
    Denied,
    /// The tool declined it, which is not a failure.
    Declined,
    /// The attempt was ended before its result.
    Aborted,
}

/// A call without a result.
#[derive(Clone, Debug)]
pub(crate) struct UnansweredCall {
    pub tool: Box<str>,
    /// The call is made by a sub-agent and may outlive the turn.
    pub is_nested: bool,
}

#[derive(Clone, Debug, Default)]
pub struct CallLedger {
    open: CallMap<Box<str>, UnansweredCall>,
    /// Bad outcomes by call id.
    outcomes: CallMap<Box<str>, ReportedFailures>,
    /// Number of counted denials without a call id.
    unnamed_denials: usize,
    pub(super) counts: CallCounts,
    /// The attempt is being ended, so calls without a result are cut short.
    is_interrupted: bool,
}

/// Numbers of calls. Each call counts once for each outcome.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallCounts {
    pub(super) calls: u32,
    pub(super) failures: u32,
    pub(super) denials: u32,
    pub(super) refused_by_person: u32,
    pub(super) declined: u32,
}

/// What was reported about a call. Several may apply: a denied call is also reported as failed.
#[derive(Clone, Copy, Debug, Default)]
struct ReportedFailures {
    failed: bool,
    denied: bool,
    declined: bool,
}

impl CallLedger {
    pub(super) fn open(&mut self, id: &str, tool: &str, is_nested: bool) {
        self.counts.calls += 1;
        self.open.insert(
            id.into(),
            UnansweredCall {
                tool: tool.into(),
                is_nested,
            },
        );
    }

    pub(super) fn close(&mut self, id: &str) -> Option<UnansweredCall> {
        self.open.remove(id)
    }

    /// Closes the open calls that meet the condition, and returns how they end.
    pub(super) fn close_where(
        &mut self,
        is_over: impl Fn(&UnansweredCall) -> bool,
    ) -> Vec<(Box<str>, CallOutcome)> {
        if self.open.is_empty() {
            return Vec::new();
        }
        let ended: Vec<Box<str>> = self
            .open
            .extract_if(|_, call| is_over(call))
            .map(|(id, _)| id)
            .collect();
        let end = |id: Box<str>| {
            let end = if self.is_denied(&id) {
                CallOutcome::Denied
            } else {
                self.cut_end()
            };
            (id, end)
        };
        ended.into_iter().map(end).collect()
    }

    pub(crate) fn get(&self, id: &str) -> Option<&UnansweredCall> {
        self.open.get(id)
    }

    pub fn open_count(&self) -> usize {
        self.open.len()
    }

    /// Counts a failed call. A failure without an id is always another one.
    pub(super) fn count_failure(&mut self, id: Option<&str>) {
        let is_new = self.mark(id, |outcomes| &mut outcomes.failed);
        self.counts.failures += u32::from(is_new);
    }

    /// Counts a denied call. The agent also reports it as failed.
    pub(super) fn count_denial(&mut self, id: Option<&str>) {
        let is_new = self.mark(id, |outcomes| &mut outcomes.denied);
        self.counts.denials += u32::from(is_new);
        self.count_failure(id);
    }

    /// Counts a call that a person denied, which is not a failure.
    pub(super) fn count_refusal(&mut self, id: Option<&str>) {
        let is_new = self.mark(id, |outcomes| &mut outcomes.denied);
        self.counts.denials += u32::from(is_new);
        let is_new = self.mark(id, |outcomes| &mut outcomes.failed);
        self.counts.refused_by_person += u32::from(is_new);
    }

    /// Counts a call that its tool declined.
    pub(super) fn count_decline(&mut self, id: Option<&str>) {
        let is_new = self.mark(id, |outcomes| &mut outcomes.declined);
        self.counts.declined += u32::from(is_new);
    }

    /// Counts the denial number `number` without a call id of a result. Returns false if a call that is known to have
    /// failed, or an earlier result, accounts for it.
    pub(super) fn count_unnamed_denial(&mut self, number: usize) -> bool {
        let failed = self
            .outcomes
            .values()
            .filter(|outcome| outcome.failed)
            .count();
        let is_new = number > failed + self.unnamed_denials;
        self.unnamed_denials += usize::from(is_new);
        is_new
    }

    pub(crate) fn is_denied(&self, id: &str) -> bool {
        self.outcomes(id).denied
    }

    pub(crate) fn is_declined(&self, id: &str) -> bool {
        self.outcomes(id).declined
    }

    /// Marks the attempt as being ended: calls that end badly from now on were cut short.
    pub(super) fn mark_interrupted(&mut self) {
        self.is_interrupted = true;
    }

    /// True for a bad end that the end of the attempt caused. The agent reports such a call as if it had been denied.
    pub fn was_aborted(&self, id: &str) -> bool {
        let ReportedFailures { failed, denied, .. } = self.outcomes(id);
        self.is_interrupted && !denied && !failed
    }

    /// True for a failure without a call id that the end of the attempt caused.
    pub fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }

    /// End of a call with this result.
    pub(super) fn result_end(
        &self,
        id: &str,
        is_refused: bool,
        is_error: Option<bool>,
    ) -> CallOutcome {
        match (is_refused || self.is_denied(id), is_error) {
            (true, _) | (false, Some(true)) if self.was_aborted(id) => CallOutcome::Aborted,
            (true, _) => CallOutcome::Denied,
            (false, Some(true)) => CallOutcome::Failed,
            (false, _) if self.is_declined(id) => CallOutcome::Declined,
            (false, _) => CallOutcome::Ok,
        }
    }

    /// End of what is still open when the attempt ends.
    pub(crate) fn cut_end(&self) -> CallOutcome {
        if self.is_interrupted {
            CallOutcome::Aborted
        } else {
            CallOutcome::Failed
        }
    }

    fn outcomes(&self, id: &str) -> ReportedFailures {
        self.outcomes.get(id).copied().unwrap_or_default()
    }

    /// Sets a mark and returns true if it was not set. Calls without an id are not distinguished, so each counts.
    fn mark(
        &mut self,
        id: Option<&str>,
        field: impl Fn(&mut ReportedFailures) -> &mut bool,
    ) -> bool {
        let Some(id) = id.filter(|id| !id.is_empty()) else {
            return true;
        };
        !std::mem::replace(field(self.outcomes.entry(id.into()).or_default()), true)
    }
}
