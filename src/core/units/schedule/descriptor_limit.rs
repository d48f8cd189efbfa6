//! File descriptors as backpressure: a unit that cannot open one waits until fewer units run, which does not count as a
//! retry. The module does not know the number of descriptors: the number of units that were running when they ran out
//! is the limit.

use super::{Schedule, ScheduleEffect, UnitPhase, push_throttle_note};
use crate::tape::note::VerdictCause;

/// Display name of the system's limit on running units.
const OPEN_FILE_LIMIT: &str = "the limit of open files";

impl Schedule {
    /// Maximum number of running units.
    pub(super) fn concurrency(&self) -> u32 {
        let total = self
            .settings
            .concurrency
            .saturating_add(self.settings.worker_slots.unwrap_or(0));
        // Each unit builds on the one before, wherever it runs: workers add no concurrency.
        let most = if self.settings.saves_between_units {
            self.settings.concurrency.max(1)
        } else {
            u32::MAX
        };
        let slots = total.min(most);
        self.governor
            .concurrency(slots)
            .min(self.descriptor_limit.unwrap_or(u32::MAX))
    }

    /// Maximum number of units that are starting: workers have their own cores.
    pub(super) fn max_starting(&self) -> u32 {
        self.settings
            .max_starting
            .saturating_add(self.settings.worker_slots.unwrap_or(0))
    }

    /// Nothing else runs, and nothing else ran when this unit started, so waiting cannot free any descriptors.
    pub(super) fn runs_alone(&self, at: usize) -> bool {
        self.table.in_flight_count() <= 1 && self.table.started_alone(at)
    }

    /// A unit found no free descriptors. Limits the concurrency to the number of units that run now.
    pub(super) fn wait_for_descriptors(
        &mut self,
        at: usize,
        cause: &VerdictCause,
        effects: &mut Vec<ScheduleEffect>,
    ) {
        self.table.set_phase(at, UnitPhase::Queued);
        self.push_retry_note(at, 0, cause, effects);
        let room = self.table.in_flight_count().max(1);
        if self.descriptor_limit.is_none_or(|known| room < known) {
            self.descriptor_limit = Some(room);
            push_throttle_note(self.descriptor_limit, OPEN_FILE_LIMIT, effects);
        }
    }

    /// Notes that a limit of the service recovered, unless the limit of descriptors still applies.
    pub(super) fn push_restored_note(&self, limit: &str, effects: &mut Vec<ScheduleEffect>) {
        match self.descriptor_limit {
            Some(_) => push_throttle_note(self.descriptor_limit, OPEN_FILE_LIMIT, effects),
            None => push_throttle_note(None, limit, effects),
        }
    }
}
