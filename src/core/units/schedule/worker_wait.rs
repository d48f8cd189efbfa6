//! The wait for workers: nothing can run, neither on this machine nor on a worker.
//!
//! A short absence, as at the start of a run, is not reported. A wait has its own end and costs no attempt. The module
//! must not know how workers connect.

use super::{
    HaltReason, RunStage, Schedule, ScheduleEffect, TimerId, push_message, unit_table::TimerPurpose,
};
use crate::tape::{
    Millis, Note,
    note::{Severity, StopMode},
};

/// How long places may be missing before the wait is reported.
const GRACE_MS: u64 = 5_000;

/// The state of the wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WorkerWaitState {
    #[default]
    None,
    /// There is no place; this timer ends the grace.
    Unreported(TimerId),
    /// The wait is reported; this timer ends the run.
    Reported(TimerId),
}

impl Schedule {
    /// Sets the slots of all workers; `lack` is why no worker can come.
    pub(super) fn set_worker_slots(&mut self, slots: u32, lack: Option<String>) {
        self.settings.worker_slots = Some(slots);
        self.blockers.worker_lack = lack;
    }

    /// Begins or ends the wait after a change.
    pub(super) fn update_worker_wait(&mut self, effects: &mut Vec<ScheduleEffect>) {
        if !self.lacks_places() {
            if let WorkerWaitState::Reported(_) = std::mem::take(&mut self.blockers.worker_wait) {
                effects.push(ScheduleEffect::RecordNote {
                    attempt: None,
                    note: Note::WorkerWaitEnded,
                });
            }
        } else if let Some(lack) = self.blockers.worker_lack.clone() {
            self.end_without_workers(&lack, effects);
        } else if self.blockers.worker_wait == WorkerWaitState::None {
            self.blockers.worker_wait =
                WorkerWaitState::Unreported(self.set_wait_timer(GRACE_MS, effects));
        }
    }

    /// Handles the timer of a wait. Stale timers change nothing.
    pub(super) fn handle_worker_timer(
        &mut self,
        timer: TimerId,
        effects: &mut Vec<ScheduleEffect>,
    ) {
        let wait_ms = self.settings.worker_wait_ms;
        if self.blockers.worker_wait == WorkerWaitState::Unreported(timer) {
            let note = Note::WorkersAwaited { wait_ms };
            effects.push(ScheduleEffect::RecordNote {
                attempt: None,
                note,
            });
            self.blockers.worker_wait =
                WorkerWaitState::Reported(self.set_wait_timer(wait_ms, effects));
        } else if self.blockers.worker_wait == WorkerWaitState::Reported(timer) {
            let wait = Millis(wait_ms);
            self.end_without_workers(
                &format!(
                    "no worker has come for {wait}; `worker_wait` in [ingest] sets this limit"
                ),
                effects,
            );
        }
    }

    fn set_wait_timer(&mut self, after_ms: u64, effects: &mut Vec<ScheduleEffect>) -> TimerId {
        let id = self.table.new_timer(TimerPurpose::Workers);
        effects.push(ScheduleEffect::SetTimer { id, after_ms });
        id
    }

    /// True if something would run, and nothing can.
    fn lacks_places(&self) -> bool {
        let is_due = match self.stage {
            RunStage::Running => self.table.has_queued() || self.table.starting_count() > 0,
            RunStage::Reconciling => self.is_reconcile_pending() || self.table.starting_count() > 0,
            _ => false,
        };
        is_due
            && self.halt.is_none()
            && self.settings.concurrency == 0
            && self.settings.worker_slots == Some(0)
    }

    fn end_without_workers(&mut self, why: &str, effects: &mut Vec<ScheduleEffect>) {
        push_message(
            Severity::Error,
            format!("{why}: the run ends and can be resumed"),
            effects,
        );
        self.halt(HaltReason::LimitReached, effects);
        // An attempt that has no place yet would wait for ever.
        self.stop_starting(StopMode::Stop, effects);
        self.update_worker_wait(effects);
    }
}
