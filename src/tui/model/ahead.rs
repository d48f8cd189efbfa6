//! What is left of the run, judged again only when something happened that may change it.

use super::Totals;
use crate::{
    run::{RunState, outlook::Outlook},
    tape::Millis,
};

/// Milliseconds after which time alone is reason enough: what runs longer than expected ends later than expected.
const WHILE: u64 = 1000;

/// What is left.
#[derive(Clone, Debug, Default)]
pub(super) struct Ahead {
    /// As it was judged last.
    pub(super) outlook: Outlook,
    seen: Option<Seen>,
}

/// What a judgement goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    statuses: [usize; Totals::ORDER.len()],
    attempts: usize,
    slots: u32,
    pause: bool,
    while_of: u64,
}

impl Ahead {
    /// Judges again if need be; `time` is that of the run.
    pub(super) fn settle(&mut self, state: &RunState, totals: &Totals, time: Millis) {
        let now = time.max(state.now);
        let seen = Seen {
            statuses: totals.statuses,
            attempts: totals.attempts,
            slots: state.planned.as_ref().map_or(0, |plan| plan.concurrency),
            pause: state.paused.is_some(),
            while_of: now.0 / WHILE,
        };
        if self.seen != Some(seen) {
            self.seen = Some(seen);
            self.outlook = Outlook::of_rest(state, now);
        }
    }
}
