//! Changes that decide when attempts start and how long they wait. The lanes of a run are computed from them. Must not
//! know how they are shown.

use crate::tape::Millis;

/// A change with its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedChange {
    /// Number of the entry that it comes from. An entry is at most one change.
    pub seq: u32,
    pub at: Millis,
    pub change: ScheduleChange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleChange {
    /// Units may run with this concurrency: the plan was made, or a person changed it.
    Concurrency(u32),
    /// A limit lowers the concurrency; `None` if it is restored.
    Throttled(Option<u32>),
    /// The whole run waits for a limit.
    LimitPaused,
    LimitLifted,
    /// The unit with this index will start again automatically.
    RetryScheduled {
        unit: u32,
        due: Millis,
    },
    /// A person requested another attempt at the unit with this index.
    RetryRequested {
        unit: u32,
    },
    /// A call of the attempt with this id began to wait for an approval.
    CallHeld {
        attempt: u32,
    },
    /// A held call no longer waits.
    CallDecided {
        attempt: u32,
    },
    RunEnded,
}
