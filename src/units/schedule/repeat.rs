//! What follows an attempt without anybody asking, and how it is made again: what the tools of an attempt did outside of a
//! workspace is not done twice.

use super::{Order, Schedule, say};
use crate::{
    tape::note::{Level, Verdict},
    units::retry::{Next, Repeat},
};

impl Schedule {
    /// What follows `verdict` of the unit at `at`.
    pub(super) fn next(
        &mut self,
        at: usize,
        verdict: &Verdict,
        repeat: Repeat,
        asked_to_stop: bool,
        orders: &mut Vec<Order>,
    ) -> Next {
        let next = match self.settings.retry.next(verdict, self.board.units()[at].retries) {
            Next::AwaitLimit if !self.settings.pacing.enabled => Next::Stand,
            Next::AwaitRoom if self.is_alone(at) => Next::Stand,
            next => next,
        };
        match repeat {
            _ if next == Next::Stand => next,
            Repeat::Afresh => next,
            Repeat::Resume(session) => {
                self.board.resume(at, session);
                next
            }
            Repeat::Never => {
                if !asked_to_stop && self.halt.is_none() {
                    let key = &self.board.units()[at].key;
                    let text = format!("{key} is not retried: its tools have run, and its session id is unknown");
                    say(Level::Warning, text, orders);
                }
                Next::Stand
            }
        }
    }
}
