//! What follows once all units have settled: their patches are put together, the result is saved, the run ends. Where
//! attempts write into the project themselves, it ends at once.

use crate::tape::{
    UnitKey,
    note::{Level, Outcome, RunEnded},
};

use super::{Halt, Order, Schedule, Stage, Taken, Together, say};

impl Schedule {
    /// Goes on to the next stage when nothing runs or waits any more.
    pub(super) fn settle_if_idle(&mut self, orders: &mut Vec<Order>) {
        if self.stage == Stage::Reconciling {
            return self.settle_pass(orders);
        }
        if self.stage != Stage::Open || !self.board.is_idle() {
            return;
        }
        let units = self.unsaved();
        // With patches to save, the pass is judged once they are put together.
        let pass = self.pass_is_due() && (!units.is_empty() || self.affords_pass(orders));
        match self.kept_back() {
            _ if units.is_empty() && !pass => self.end(orders),
            Some(why) => self.keep_back(why, orders),
            None => {
                self.stage = Stage::Integrating;
                orders.push(Order::Integrate { units });
            }
        }
    }

    /// Ends with patches that stay patches.
    pub(super) fn keep_back(&mut self, why: &str, orders: &mut Vec<Order>) {
        let what = match self.unsaved().len() {
            0 => None,
            1 => Some("1 patch is".to_owned()),
            patches => Some(format!("{patches} patches are")),
        };
        if let Some(what) = what {
            say(Level::Warning, format!("{what} kept and not put on the branch: {why}"), orders);
        }
        self.round.clear();
        self.end(orders);
    }

    /// Why patches stay patches for now.
    fn kept_back(&self) -> Option<&'static str> {
        if self.killed {
            return Some("the run was killed");
        }
        (self.halt == Some(Halt::Aborted)).then_some("a unit failed, and the failure mode is abort")
    }

    pub(super) fn unsaved(&self) -> Vec<(UnitKey, u32)> {
        if self.settings.integrates { self.board.unsaved() } else { Vec::new() }
    }

    pub(super) fn integrated(&mut self, Together { results, ok }: Together, orders: &mut Vec<Order>) {
        if self.stage != Stage::Integrating {
            return;
        }
        for Taken { unit, attempt, verdict, .. } in &results {
            match (verdict, self.board.find(unit).filter(|at| self.board.units()[*at].attempts == *attempt)) {
                (Some(verdict), Some(at)) => self.board.judge(at, verdict.outcome, verdict.stop),
                (None, Some(_)) => self.round.push((unit.clone(), *attempt)),
                (_, None) => {}
            }
        }
        if self.killed {
            return self.keep_back("the run was killed", orders);
        }
        if ok && self.goes_on_to_pass(&results, orders) {
            return;
        }
        if !ok {
            // Saving says why. What is not put together cannot be looked at, nor is another try any better by itself.
            self.withdraw_pass();
        }
        self.stage = Stage::Saving;
        orders.push(Order::Save { failed: self.unsuccessful() });
    }

    pub(super) fn saved(&mut self, ok: bool, orders: &mut Vec<Order>) {
        if self.stage != Stage::Saving {
            return;
        }
        let round = std::mem::take(&mut self.round);
        if ok {
            self.board.saved(&round);
        }
        // Somebody may have asked for another attempt meanwhile; what it writes is saved in a round of its own.
        if self.board.is_idle() && !self.pass_is_due() {
            self.end(orders);
        } else {
            self.stage = Stage::Open;
        }
    }

    /// Another try to save what is not saved, where that is all there is to try again.
    pub(super) fn save_again(&mut self) {
        if self.stage == Stage::Ended && !self.unsaved().is_empty() {
            // A limit that cut the run short still did. An aborted one may not save, and whoever asked for an end asks
            // for more now.
            let halt = self.halt.filter(|halt| !matches!(halt, Halt::Aborted | Halt::Asked));
            self.reopen();
            self.halt = halt;
        }
    }

    /// Goes on after the end, because a person asked.
    pub(super) fn reopen(&mut self) {
        if self.stage == Stage::Ended {
            self.stage = Stage::Open;
            self.halt = None;
            self.killed = false;
        }
    }

    fn end(&mut self, orders: &mut Vec<Order>) {
        self.stage = Stage::Ended;
        orders.push(Order::End(self.summary()));
    }

    fn summary(&self) -> RunEnded {
        let mut ended = self.board.count();
        ended.unsaved = u32::try_from(self.unsaved().len()).unwrap_or(u32::MAX);
        let all = ended.failed + ended.stopped + ended.not_run + ended.unsaved == 0;
        let cut_short = ended.stopped + ended.not_run > 0;
        let saved = (ended.succeeded + ended.budget + ended.reused).saturating_sub(ended.unsaved) > 0;
        let outcome = match self.halt {
            _ if all => "done",
            Some(Halt::Limited) => "limit",
            Some(Halt::Unusable) => "unusable",
            Some(Halt::Aborted) => "error",
            Some(Halt::Asked) if cut_short => "stopped",
            Some(Halt::Asked) | None if saved => "partial",
            Some(Halt::Asked) | None if ended.failed + ended.unsaved > 0 => "error",
            Some(Halt::Asked) | None => "stopped",
        };
        ended.outcome = outcome.to_owned();
        ended
    }
}

/// True for a last verdict that does not count.
pub(super) fn is_unsuccessful(last: Option<Outcome>) -> bool {
    matches!(last, Some(Outcome::Failed | Outcome::Stopped))
}
