//! What is known of the calls of one attempt beside their results. Counts nothing twice, whoever reports it.

use std::collections::HashSet;

use crate::{
    actions::{Event, Phase, event::Detail},
    run::{fold::Aside, state::RowEnd},
};

/// Calls by their ids.
#[derive(Clone, Debug, Default)]
pub(super) struct Fates {
    /// Those whose failure is counted, or is none because a person refused them.
    failed: HashSet<Box<str>>,
    denied: HashSet<Box<str>>,
    /// Those that their tool did not carry out.
    declined: HashSet<Box<str>>,
    /// The attempt is ended: what its open calls come to says nothing about them.
    cut: bool,
}

impl Fates {
    /// A call failed, or its failure is none. True the first time.
    pub(super) fn fails(&mut self, id: &str) -> bool {
        self.failed.insert(id.into())
    }

    /// A call was refused. True the first time.
    pub(super) fn denies(&mut self, id: &str) -> bool {
        self.denied.insert(id.into())
    }

    /// A tool did not carry out a call. True the first time.
    pub(super) fn declines(&mut self, id: &str) -> bool {
        self.declined.insert(id.into())
    }

    /// True for a call that was refused.
    pub(super) fn is_denied(&self, id: &str) -> bool {
        self.denied.contains(id)
    }

    /// Calls without a result will have none of their own.
    pub(super) fn cut_short(&mut self) {
        self.cut = true;
    }

    /// How a call ended whose result says that it was refused, or an error.
    pub(super) fn of_result(&self, id: &str, refused: bool, is_error: Option<bool>) -> RowEnd {
        // The agent answers what our interrupt cuts short in words of a person's refusal.
        let cut = self.is_cut(id);
        match (refused || self.is_denied(id), is_error) {
            (true, _) | (false, Some(true)) if cut => RowEnd::Cut,
            (true, _) => RowEnd::Denied,
            (false, Some(true)) => RowEnd::Failed,
            (false, _) if self.declined.contains(id) => RowEnd::Declined,
            (false, _) => RowEnd::Ok,
        }
    }

    /// How a call ends that will have no result.
    pub(super) fn of_open(&self, id: &str) -> RowEnd {
        if self.is_denied(id) { RowEnd::Denied } else { self.of_session() }
    }

    /// How a session ends that does not end well.
    pub(super) fn of_session(&self) -> RowEnd {
        if self.cut { RowEnd::Cut } else { RowEnd::Failed }
    }

    /// What an event about a call cannot say of it.
    pub(super) fn aside(&self, event: &Event<'_>) -> Option<Aside> {
        let Event::Action(action) = event else { return None };
        let (Detail::Tool(_), Phase::Completed) = (&action.action.detail, action.phase) else { return None };
        let id = action.action.id.as_ref();
        match action.ok {
            Some(false) => self.is_cut(id).then_some(Aside::Cut),
            Some(true) | None => self.declined.contains(id).then_some(Aside::Declined),
        }
    }

    fn is_cut(&self, id: &str) -> bool {
        self.cut && !self.denied.contains(id) && !self.failed.contains(id)
    }
}
