//! The workers that are present in a run.

use std::{collections::BTreeMap, num::NonZeroU16, sync::Arc};

use crate::tape::{
    Millis,
    note::{PoolUse, WorkerDrained, WorkerJoined, WorkerLeft},
};

/// The workers of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunWorkers {
    /// Those that are present, by name.
    pub present: BTreeMap<Arc<str>, WorkerState>,
    /// The names of all workers so far, in the order in which they were named first.
    names: Vec<Arc<str>>,
    /// What other runs do on them.
    pub pool: PoolUse,
    /// Set while the run waits for workers.
    pub wait: Option<WorkerWait>,
}

/// A wait for workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerWait {
    pub since: Millis,
    /// When the run ends without workers.
    pub until: Millis,
}

/// A worker that an attempt names: small, because every attempt has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerNumber(NonZeroU16);

/// A worker that is present.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerState {
    pub slots: u32,
    pub account: Arc<str>,
    /// Nothing more starts there.
    pub is_draining: bool,
}

impl RunWorkers {
    pub(in crate::run) fn join(&mut self, joined: &WorkerJoined) {
        let state = WorkerState {
            slots: joined.slots,
            account: joined.account.as_str().into(),
            is_draining: false,
        };
        self.present.insert(joined.worker.as_str().into(), state);
        self.number(&joined.worker);
    }

    /// The number of the worker `name`; `None` above the largest number.
    pub(in crate::run) fn number(&mut self, name: &str) -> Option<WorkerNumber> {
        let known = self.names.iter().position(|known| **known == *name);
        let index = known.unwrap_or_else(|| {
            self.names.push(name.into());
            self.names.len() - 1
        });
        u16::try_from(index + 1)
            .ok()
            .and_then(NonZeroU16::new)
            .map(WorkerNumber)
    }

    /// The name of a worker.
    pub fn name(&self, number: WorkerNumber) -> Option<&str> {
        self.names
            .get(usize::from(number.0.get()) - 1)
            .map(|name| &**name)
    }

    /// The account of a worker that is present.
    pub(crate) fn account(&self, number: WorkerNumber) -> Option<Arc<str>> {
        self.present
            .get(self.name(number)?)
            .map(|worker| Arc::clone(&worker.account))
    }

    /// True once a worker has joined or run an attempt.
    pub fn had_any(&self) -> bool {
        !self.names.is_empty()
    }

    pub(in crate::run) fn leave(&mut self, left: &WorkerLeft) {
        self.present.remove(left.worker.as_str());
    }

    pub(in crate::run) fn drain(&mut self, drained: &WorkerDrained) {
        if let Some(worker) = self.present.get_mut(drained.worker.as_str()) {
            worker.is_draining = !drained.is_undone;
        }
    }

    /// The slots of those where units start.
    pub fn slots(&self) -> u32 {
        self.present
            .values()
            .filter(|worker| !worker.is_draining)
            .map(|worker| worker.slots)
            .sum()
    }
}
