//! Notes about the workers of a run.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

/// A worker joined the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerJoined {
    /// Its name, unique among the workers that are present.
    pub worker: String,
    /// Number of attempts that it runs concurrently.
    pub slots: u32,
    /// Whose usage limits apply to it.
    pub account: String,
    /// Release of its agent program.
    pub agent_release: String,
    /// Its clock in milliseconds since 1970.
    pub clock_ms: i64,
}

/// A worker left the run or was lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerLeft {
    pub worker: String,
    /// Why, as the end of a sentence about the worker.
    pub reason: String,
    /// It did not leave in order; its attempts are repeated elsewhere.
    #[serde(rename = "lost")]
    pub is_lost: bool,
    /// Number of attempts that were running on it.
    pub attempts: u32,
}

/// Nothing more starts on a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerDrained {
    pub worker: String,
    /// The command or the fault that caused it.
    pub reason: String,
    /// Units start there again.
    #[serde(rename = "undone", skip_serializing_if = "std::ops::Not::not")]
    pub is_undone: bool,
}

/// What other runs of the pool do on the workers of this one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolUse {
    /// The other runs, by their ids.
    pub runs: BTreeMap<String, PoolRun>,
    /// Slots that they hold, by the name of the worker; workers without any are left out.
    pub slots: BTreeMap<String, u32>,
}

/// Another run of the pool, as its engine names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolRun {
    /// Name of the directory of its project.
    pub project: String,
    /// Who started it, as `user@host`.
    pub user: String,
}

impl fmt::Display for PoolUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots: u32 = self.slots.values().sum();
        let plural = if slots == 1 { "" } else { "s" };
        write!(f, "other runs of the pool hold {slots} slot{plural}")?;
        for (index, (run, of)) in self.runs.iter().enumerate() {
            let PoolRun { project, user } = of;
            let before = if index == 0 { ": " } else { ", " };
            write!(f, "{before}run {run} of {user} in {project}")?;
        }
        Ok(())
    }
}

impl fmt::Display for WorkerDrained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_undone {
            true => write!(f, "units start again on worker {}", self.worker)?,
            false => write!(f, "nothing more starts on worker {}", self.worker)?,
        }
        if self.reason.is_empty() {
            Ok(())
        } else {
            write!(f, ": {}", self.reason)
        }
    }
}

impl fmt::Display for WorkerJoined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            worker,
            slots,
            account,
            ..
        } = self;
        let plural = if *slots == 1 { "" } else { "s" };
        write!(f, "worker {worker} joined with {slots} slot{plural}")?;
        if account.is_empty() {
            Ok(())
        } else {
            write!(f, " and account {account}")
        }
    }
}

impl fmt::Display for WorkerLeft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            worker,
            reason,
            is_lost,
            ..
        } = self;
        let what = if *is_lost { "was lost" } else { "left" };
        write!(f, "worker {worker} {what}")?;
        if reason.is_empty() {
            Ok(())
        } else {
            write!(f, ": {reason}")
        }
    }
}
