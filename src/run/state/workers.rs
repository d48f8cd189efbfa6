//! The workers that are present in a run.

use std::{collections::BTreeMap, sync::Arc};

use crate::tape::note::{WorkerJoined, WorkerLeft};

/// The workers of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RunWorkers {
    /// Those that are present, by name.
    pub present: BTreeMap<Arc<str>, WorkerState>,
    /// True once a worker has joined.
    pub had_any: bool,
}

/// A worker that is present.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkerState {
    pub slots: u32,
    pub account: Arc<str>,
}

impl RunWorkers {
    pub(in crate::run) fn join(&mut self, joined: &WorkerJoined) {
        let state = WorkerState { slots: joined.slots, account: joined.account.as_str().into() };
        self.present.insert(joined.worker.as_str().into(), state);
        self.had_any = true;
    }

    pub(in crate::run) fn leave(&mut self, left: &WorkerLeft) {
        self.present.remove(left.worker.as_str());
    }

    /// The slots of all of them.
    pub(crate) fn slots(&self) -> u32 {
        self.present.values().map(|worker| worker.slots).sum()
    }
}
