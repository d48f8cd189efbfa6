//! Requests of a person to stop a unit or the run.

use super::{HaltReason, RunStage, Schedule, ScheduleEffect, push_message, unit_table::UnitPhase};
use crate::tape::{
    UnitKey,
    note::{AttemptOutcome, Note, Severity, StopMode, StopReason},
};

impl Schedule {
    pub(super) fn handle_stop_request(&mut self, key: &UnitKey, effects: &mut Vec<ScheduleEffect>) {
        let Some(at) = self.table.find(key) else {
            return;
        };
        let how = match self.table.units()[at].phase {
            UnitPhase::InFlight {
                stop: Some(StopMode::Kill),
                ..
            } => return,
            UnitPhase::Settled => {
                return push_message(
                    Severity::Info,
                    format!("{key} does not run, so nothing is stopped"),
                    effects,
                );
            }
            UnitPhase::InFlight {
                stop: Some(StopMode::Stop),
                ..
            } => StopMode::Kill,
            UnitPhase::InFlight { .. }
            | UnitPhase::Queued
            | UnitPhase::RetryPending(_)
            | UnitPhase::ReconcilePending => StopMode::Stop,
        };
        effects.push(self.table.units()[at].note_effect(Note::StopRequested { how }));
        if let Some(attempt) = self.table.request_stop(at, how) {
            effects.push(ScheduleEffect::StopAttempt {
                unit: key.clone(),
                attempt,
                how,
            });
        } else {
            self.table
                .record_outcome(at, AttemptOutcome::Stopped, StopReason::Error);
            self.table.set_phase(at, UnitPhase::Settled);
        }
    }

    pub(super) fn stop_run(&mut self, how: StopMode, effects: &mut Vec<ScheduleEffect>) {
        if self.stage == RunStage::Ended {
            return;
        }
        effects.push(ScheduleEffect::RecordNote {
            attempt: None,
            note: Note::StopRequested { how },
        });
        self.halt(HaltReason::Requested, effects);
        self.is_killed |= how == StopMode::Kill;
        if how != StopMode::Drain {
            self.stop_in_flight(how, effects);
        }
    }

    /// Stops the attempts whose agents have not started.
    pub(super) fn stop_starting(&mut self, how: StopMode, effects: &mut Vec<ScheduleEffect>) {
        for at in 0..self.table.units().len() {
            let unit = &self.table.units()[at];
            let (key, is_starting) = (
                unit.key.clone(),
                matches!(unit.phase, UnitPhase::InFlight { ready: false, .. }),
            );
            if let Some(attempt) = is_starting
                .then(|| self.table.request_stop(at, how))
                .flatten()
            {
                effects.push(ScheduleEffect::StopAttempt {
                    unit: key,
                    attempt,
                    how,
                });
            }
        }
    }

    pub(super) fn stop_in_flight(&mut self, how: StopMode, effects: &mut Vec<ScheduleEffect>) {
        for at in 0..self.table.units().len() {
            if let Some(attempt) = self.table.request_stop(at, how) {
                effects.push(ScheduleEffect::StopAttempt {
                    unit: self.table.units()[at].key.clone(),
                    attempt,
                    how,
                });
            }
        }
    }
}
