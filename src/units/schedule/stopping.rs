//! Requests of the user to stop a unit or the run.

use super::{HaltReason, RunStage, Schedule, ScheduleEffect, unit_table::UnitPhase};
use crate::tape::{
    UnitKey,
    note::{AttemptOutcome, Note, StopMode, StopReason},
};

impl Schedule {
    pub(super) fn handle_stop_request(&mut self, key: &UnitKey, orders: &mut Vec<ScheduleEffect>) {
        let Some(at) = self.board.find(key) else { return };
        let how = match self.board.units()[at].phase {
            UnitPhase::InFlight { stop: Some(StopMode::Kill), .. } | UnitPhase::Settled => return,
            UnitPhase::InFlight { stop: Some(StopMode::Stop), .. } => StopMode::Kill,
            UnitPhase::InFlight { .. }
            | UnitPhase::Queued
            | UnitPhase::RetryPending(_)
            | UnitPhase::ReconcilePending => StopMode::Stop,
        };
        orders.push(self.board.units()[at].note_effect(Note::StopRequested { how }));
        if let Some(attempt) = self.board.request_stop(at, how) {
            orders.push(ScheduleEffect::StopAttempt { unit: key.clone(), attempt, how });
        } else {
            self.board.record_outcome(at, AttemptOutcome::Stopped, StopReason::Error);
            self.board.set_phase(at, UnitPhase::Settled);
        }
    }

    pub(super) fn stop_run(&mut self, how: StopMode, orders: &mut Vec<ScheduleEffect>) {
        if self.stage == RunStage::Ended {
            return;
        }
        orders.push(ScheduleEffect::RecordNote { lane: None, note: Note::StopRequested { how } });
        self.halt(HaltReason::Requested, orders);
        self.is_killed |= how == StopMode::Kill;
        if how != StopMode::Drain {
            self.stop_in_flight(how, orders);
        }
    }

    pub(super) fn stop_in_flight(&mut self, how: StopMode, orders: &mut Vec<ScheduleEffect>) {
        for at in 0..self.board.units().len() {
            if let Some(attempt) = self.board.request_stop(at, how) {
                orders.push(ScheduleEffect::StopAttempt { unit: self.board.units()[at].key.clone(), attempt, how });
            }
        }
    }
}
