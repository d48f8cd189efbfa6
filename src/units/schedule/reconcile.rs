//! The pass after the units: once their patches are put together, one more unit looks at all of it, before it is saved.
//! Its failure costs what it wrote itself, and nothing else.

use super::{Order, Schedule, Stage, Taken, say};
use crate::tape::{UnitKey, note::Level};

/// The pass, where one is wanted.
#[derive(Clone, Debug)]
pub(super) struct Pass {
    key: UnitKey,
    /// Raw files are gone, which is reason enough for it. Once.
    evictions: bool,
    /// Its place on the board, once it was due.
    at: Option<usize>,
}

impl Schedule {
    /// The same run with a pass `unit` over what the units wrote; `evictions` tells that raw files are gone.
    pub fn reconciling(mut self, unit: UnitKey, evictions: bool) -> Self {
        self.pass = Some(Pass { key: unit, evictions, at: None });
        self
    }

    /// True, with the pass on the board, unless there is none, it is over, or there is nothing for it to look at.
    pub(super) fn goes_on_to_pass(&mut self, results: &[Taken], orders: &mut Vec<Order>) -> bool {
        let Some(pass) = &mut self.pass else { return false };
        if results.iter().any(|taken| taken.unit == pass.key) {
            return false;
        }
        let wrote = results.iter().any(|taken| taken.changed && taken.verdict.is_none());
        let evictions = std::mem::take(&mut pass.evictions);
        let why = match (self.halt, wrote || evictions) {
            (Some(_), _) => "the run is ending",
            (None, false) => "nothing was written, and no raw file is gone",
            (None, true) => {
                let at = self.board.add(&pass.key);
                pass.at = Some(at);
                self.stage = Stage::Reconciling;
                return true;
            }
        };
        say(Level::Info, format!("not reconciled: {why}"), orders);
        false
    }

    /// Starts the pass, if it waits for that.
    pub(super) fn start_pass(&mut self) -> Option<Order> {
        let at = self.pass.as_ref()?.at?;
        self.board.start_queued(at)
    }

    /// Goes on once the pass is over.
    pub(super) fn settle_pass(&mut self, orders: &mut Vec<Order>) {
        let Some(Pass { key, at: Some(at), .. }) = &self.pass else { return };
        let (key, at) = (key.clone(), *at);
        if !self.board.is_over(at) {
            return;
        }
        if self.killed {
            let patches = self.unsaved().len();
            return self.keep_back(patches, "the run was killed", orders);
        }
        if self.board.has_succeeded(at) {
            self.stage = Stage::Integrating;
            orders.push(Order::Integrate { units: vec![(key, self.board.units()[at].attempts)] });
        } else {
            self.stage = Stage::Saving;
            orders.push(Order::Save { failed: self.unsuccessful() });
        }
    }

    /// Units whose writes do not count, for the commit. The pass is no unit of the ingest.
    pub(super) fn unsuccessful(&self) -> Vec<UnitKey> {
        let is_pass = |unit: &UnitKey| self.pass.as_ref().is_some_and(|pass| pass.key == *unit);
        self.board.unsuccessful().into_iter().filter(|unit| !is_pass(unit)).collect()
    }
}
