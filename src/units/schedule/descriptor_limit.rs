//! File descriptors as backpressure: a unit that finds none waits until fewer units run, which costs no retry. Knows no
//! number of descriptors: what was running when they ran out is what there is room for.

use super::{Schedule, ScheduleEffect, UnitPhase, push_throttle_note};
use crate::tape::note::Cause;

/// Name of the limit that the system sets to the units that run at once.
const OPEN_FILE_LIMIT: &str = "the limit of open files";

impl Schedule {
    /// Units that may run at once.
    pub(super) fn concurrency(&self) -> u32 {
        self.governor.concurrency(self.settings.concurrency).min(self.descriptor_limit.unwrap_or(u32::MAX))
    }

    /// Nothing else runs, nor did when this unit started: what is not enough for it now will not be enough later.
    pub(super) fn runs_alone(&self, at: usize) -> bool {
        self.board.in_flight_count() <= 1 && self.board.started_alone(at)
    }

    /// A unit found no descriptors, so no more units run at once than there are now.
    pub(super) fn wait_for_descriptors(&mut self, at: usize, cause: &Cause, orders: &mut Vec<ScheduleEffect>) {
        self.board.set_phase(at, UnitPhase::Queued);
        self.push_retry_note(at, 0, cause, orders);
        let room = self.board.in_flight_count().max(1);
        if self.descriptor_limit.is_none_or(|known| room < known) {
            self.descriptor_limit = Some(room);
            push_throttle_note(self.descriptor_limit, OPEN_FILE_LIMIT, orders);
        }
    }

    /// A limit of the service recovered; that of the system has not.
    pub(super) fn push_restored_note(&self, limit: &str, orders: &mut Vec<ScheduleEffect>) {
        match self.descriptor_limit {
            Some(_) => push_throttle_note(self.descriptor_limit, OPEN_FILE_LIMIT, orders),
            None => push_throttle_note(None, limit, orders),
        }
    }
}
