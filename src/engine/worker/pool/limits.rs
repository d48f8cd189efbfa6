//! Usage limits of the accounts of places: who rests until when.

use std::time::Duration;

use tokio::time::Instant;

use super::{PoolState, PoolWorker, SlotPool};
use ingestdeck_core::{
    control::RunCommand,
    tape::{Note, note::Severity},
    units::schedule::ScheduleEvent,
};

/// How long an account without a reported reset time rests.
const REST_WITHOUT_RESET: Duration = Duration::from_secs(60);
/// How long a worker rests because another one of its account has reported that their usage limit is spent.
const REST_BY_REPORT: Duration = Duration::from_secs(60);
/// Longest time to the reset of a usage limit, and more.
const LONGEST_LIMIT: Duration = Duration::from_secs(8 * 24 * 60 * 60);

impl SlotPool {
    /// A person does not want to wait for the limits of accounts.
    pub(crate) fn lift_limits(&self) {
        let mut state = self.state();
        state.spent.clear();
        state.local.limit_rest = None;
        for worker in state.workers.values_mut() {
            worker.limit_rest = None;
        }
        drop(state);
        self.mark_changed();
    }

    /// Attempts of an account rest until its usage limit is reset. `worker` has reported it: the accounts of workers are
    /// their claims, so others of the account only rest for a while, and then find out themselves; this machine needs no
    /// report. Returns true if attempts can continue somewhere.
    pub(crate) fn record_limit(
        &self,
        (account, worker): (&str, Option<&str>),
        resets_in: Option<Duration>,
    ) -> bool {
        let mut state = self.state();
        let now = Instant::now();
        let resets_in = resets_in.unwrap_or(REST_WITHOUT_RESET).min(LONGEST_LIMIT);
        let until = now + resets_in;
        let others_until = match worker {
            Some(worker) => {
                if let Some(of) = state.workers.get_mut(worker) {
                    of.limit_rest = Some(until);
                }
                now + resets_in.min(REST_BY_REPORT)
            }
            None => {
                state.local.limit_rest = Some(until);
                until
            }
        };
        // What this machine has found counts on.
        let known = state.spent.get(account).copied();
        let others_until = known.map_or(others_until, |known| known.max(others_until));
        state.spent.insert(account.to_owned(), others_until);
        let is_new = known.is_none_or(|known| known <= now);
        let goes_on = state.has_unspent_place();
        drop(state);
        if is_new {
            let text = format!("the usage limit of account {account} is spent; its workers wait");
            self.record(&Note::Message {
                level: Severity::Warning,
                text,
            });
        }
        goes_on
    }

    /// Ends a pause of the run if a worker with room has joined since [`record_limit`](Self::record_limit).
    pub(in crate::worker) fn recheck_limit(&self) {
        if self.state().has_unspent_place() {
            self.override_limit();
        }
    }

    /// True if attempts can also run with another account.
    pub(in crate::worker) fn has_other_account(&self, account: &str) -> bool {
        let state = self.state();
        let local = state.local.slots > 0 && state.local.account.as_deref() != Some(account);
        local || state.workers.values().any(|of| of.join.account != account)
    }

    /// Ends a pause of the run for the limit of an account: another account has room.
    pub(super) fn override_limit(&self) {
        if let Some(schedule) = self.schedule.upgrade()
            && schedule
                .try_send(ScheduleEvent::Requested(RunCommand::LiftLimit))
                .is_err()
        {
            tracing::warn!("the end of a pause was not sent to the schedule");
        }
    }
}

impl PoolState {
    /// True if attempts may start somewhere now, or once the others of an account have rested.
    pub(super) fn has_unspent_place(&self) -> bool {
        let is_local_spent = is_ahead(self.local.limit_rest);
        let is_spent = |of: &PoolWorker| {
            let is_of_local = self.local.account.as_ref() == Some(&of.join.account);
            is_ahead(of.limit_rest) || is_of_local && is_local_spent
        };
        self.local.slots > 0 && !is_local_spent
            || self
                .workers
                .values()
                .any(|of| !of.is_draining && of.reaches(&self.databases) && !is_spent(of))
    }

    /// True if a worker waits for the reset of its usage limit.
    pub(super) fn rests(&self, worker: &PoolWorker) -> bool {
        is_ahead(worker.limit_rest) || self.spent.contains_key(&worker.join.account)
    }
}

/// True if a rest is not over.
pub(super) fn is_ahead(until: Option<Instant>) -> bool {
    until.is_some_and(|until| until > Instant::now())
}
