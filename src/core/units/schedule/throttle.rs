//! The effects of the service's limits on the schedule: pauses, and fewer units at the same time.

use super::{HaltReason, Schedule, ScheduleEffect, push_message, push_throttle_note};
use crate::{
    tape::{Note, note::Severity},
    units::{governor::ThrottleChange, limits::window_name},
};

impl Schedule {
    pub(super) fn apply_throttle_change(
        &mut self,
        change: ThrottleChange,
        limit: &str,
        effects: &mut Vec<ScheduleEffect>,
    ) {
        match change {
            ThrottleChange::Unchanged => {}
            ThrottleChange::Throttled(slots) => push_throttle_note(Some(slots), limit, effects),
            ThrottleChange::Restored => self.push_restored_note(limit, effects),
            // Nothing starts anyway, and a later request may try again.
            ThrottleChange::Paused { .. } if self.halt.is_some() => self.governor.end_pause(),
            ThrottleChange::ResetTooLate if self.halt.is_some() => {}
            ThrottleChange::ResetTooLate => {
                let limit = window_name(limit);
                let text = format!(
                    "{limit} limit resets too late to wait for: the run ends and can be resumed"
                );
                push_message(Severity::Error, text, effects);
                self.halt(HaltReason::LimitReached, effects);
            }
            ThrottleChange::Paused { wait_ms, until } => {
                let id = self.table.new_limit_timer();
                let note = Note::LimitPaused {
                    until,
                    limit: limit.to_owned(),
                    wait_ms: Some(wait_ms),
                };
                effects.push(ScheduleEffect::RecordNote {
                    attempt: None,
                    note,
                });
                effects.push(ScheduleEffect::SetTimer {
                    id,
                    after_ms: wait_ms,
                });
            }
        }
    }

    pub(super) fn resume_after_limit(&mut self, effects: &mut Vec<ScheduleEffect>) {
        self.governor.end_pause();
        if self.table.drop_limit_timer() {
            effects.push(ScheduleEffect::RecordNote {
                attempt: None,
                note: Note::LimitLifted,
            });
        }
    }
}
