//! The pass after the units: once their patches are put together, one more unit looks at all of it, before it is saved.
//! Its failure costs what it wrote itself, and nothing else.

use super::{
    Halt, Order, Schedule, Stage, Taken,
    board::{Board, Phase},
    say,
};
use crate::tape::{UnitKey, note::Level};

/// The pass, where one is wanted.
#[derive(Clone, Debug)]
pub(super) struct Pass {
    key: UnitKey,
    /// Its place on the board, once it was due.
    at: Option<usize>,
}

impl Pass {
    /// Puts it on the board, as one that has not run.
    fn put(&mut self, board: &mut Board, phase: Phase) {
        self.at = Some(board.add(&self.key, phase));
    }
}

impl Schedule {
    /// The same run with a pass `unit` over what the units write. One that is `due` has something to look at whatever
    /// they do: raw files that are gone, or what an earlier run saved.
    pub fn reconciling(mut self, unit: UnitKey, due: bool) -> Self {
        let mut pass = Pass { key: unit, at: None };
        if due && self.settings.integrates {
            pass.put(&mut self.board, Phase::Due);
        }
        self.pass = Some(pass);
        self
    }

    pub(super) fn is_pass(&self, key: &UnitKey) -> bool {
        self.pass.as_ref().is_some_and(|pass| pass.key == *key)
    }

    fn pass_at(&self) -> Option<usize> {
        self.pass.as_ref()?.at
    }

    fn pass_phase(&self) -> Option<Phase> {
        Some(self.board.units()[self.pass_at()?].phase)
    }

    pub(super) fn pass_is_due(&self) -> bool {
        self.pass_phase() == Some(Phase::Due)
    }

    /// The pass, if it was due and never came to run.
    pub(super) fn pass_left(&self) -> Option<usize> {
        self.pass_at().filter(|at| self.stage == Stage::Ended && self.board.is_untried(*at))
    }

    /// Where a unit goes that a person wants to run: the pass waits for what it is to look at. What it made of patches
    /// that could not be saved does not fit what a unit makes anew.
    pub(super) fn phase_for(&mut self, at: usize) -> Phase {
        if self.pass_at() == Some(at) {
            return if self.stage == Stage::Reconciling { Phase::Queued } else { Phase::Due };
        }
        if let Some(pass) = &mut self.pass
            && self.stage == Stage::Ended
            && pass.at.is_some_and(|at| self.board.is_unsaved(at))
        {
            pass.put(&mut self.board, Phase::Due);
        }
        Phase::Queued
    }

    /// True, with the pass on the board, unless there is none, it is over, or there is nothing for it to look at.
    pub(super) fn goes_on_to_pass(&mut self, results: &[Taken], orders: &mut Vec<Order>) -> bool {
        let Some(Pass { key, .. }) = &self.pass else { return false };
        if results.iter().any(|taken| taken.unit == *key) {
            return false;
        }
        let wrote = results.iter().any(|taken| taken.changed && taken.verdict.is_none());
        let is_due = wrote || self.pass_is_due();
        let goes_on = if self.halt.is_some() {
            say(Level::Info, "not reconciled: the run is ending".to_owned(), orders);
            false
        } else if !is_due {
            say(Level::Info, "not reconciled: nothing was written, and no raw file is gone".to_owned(), orders);
            false
        } else {
            self.affords_pass(orders)
        };
        if let Some(pass) = self.pass.as_mut().filter(|_| is_due) {
            pass.put(&mut self.board, if goes_on { Phase::Queued } else { Phase::Over });
        }
        if goes_on {
            self.stage = Stage::Reconciling;
        }
        goes_on
    }

    /// There is nothing that the pass could look at.
    pub(super) fn withdraw_pass(&mut self) {
        if let Some(at) = self.pass_at().filter(|_| self.pass_is_due()) {
            self.board.set(at, Phase::Over);
        }
    }

    /// True while the budget lasts. Where it is spent, that is said, and nothing starts any more.
    pub(super) fn affords_pass(&mut self, orders: &mut Vec<Order>) -> bool {
        let Some(sentence) = self.purse.is_empty() else { return true };
        say(Level::Error, format!("not reconciled: {sentence}; the run can be resumed"), orders);
        self.halt(Halt::Limited, orders);
        false
    }

    /// Withdraws a pass that would start although the budget is spent.
    pub(super) fn keep_pass_within_budget(&mut self, orders: &mut Vec<Order>) {
        if self.stage == Stage::Reconciling && self.halt.is_none() && self.pass_phase() == Some(Phase::Queued) {
            self.affords_pass(orders);
        }
    }

    /// Starts the pass, if it waits for that.
    pub(super) fn start_pass(&mut self) -> Option<Order> {
        self.board.start_queued(self.pass_at()?)
    }

    /// Goes on once the pass is over.
    pub(super) fn settle_pass(&mut self, orders: &mut Vec<Order>) {
        let Some(Pass { key, at: Some(at) }) = &self.pass else { return };
        let (key, at) = (key.clone(), *at);
        if !self.board.is_over(at) {
            return;
        }
        if self.killed {
            return self.keep_back("the run was killed", orders);
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
        self.board.unsuccessful().into_iter().filter(|unit| !self.is_pass(unit)).collect()
    }
}
