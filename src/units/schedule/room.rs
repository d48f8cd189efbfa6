//! File descriptors as backpressure: a unit that finds none waits until fewer units run, which costs no retry. Knows no
//! number of descriptors: what was running when they ran out is what there is room for.

use super::{Order, Phase, Schedule, throttled};
use crate::tape::note::Cause;

/// Name of the limit that the system sets to the units that run at once.
const OPEN_FILES: &str = "the limit of open files";

impl Schedule {
    /// Units that may run at once.
    pub(super) fn slots(&self) -> u32 {
        self.governor.slots(self.settings.slots).min(self.room.unwrap_or(u32::MAX))
    }

    /// Nothing else runs, nor did when this unit started: what is not enough for it now will not be enough later.
    pub(super) fn is_alone(&self, at: usize) -> bool {
        self.board.in_flight_count() <= 1 && self.board.started_alone(at)
    }

    /// A unit found no descriptors, so no more units run at once than there are now.
    pub(super) fn await_room(&mut self, at: usize, cause: &Cause, orders: &mut Vec<Order>) {
        self.board.set(at, Phase::Queued);
        self.retry_scheduled(at, 0, cause, orders);
        let room = self.board.in_flight_count().max(1);
        if self.room.is_none_or(|known| room < known) {
            self.room = Some(room);
            throttled(self.room, OPEN_FILES, orders);
        }
    }

    /// A limit of the service recovered; that of the system has not.
    pub(super) fn restored(&self, limit: &str, orders: &mut Vec<Order>) {
        match self.room {
            Some(_) => throttled(self.room, OPEN_FILES, orders),
            None => throttled(None, limit, orders),
        }
    }
}
