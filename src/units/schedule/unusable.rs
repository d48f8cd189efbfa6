//! What keeps every unit from running, so that nothing more starts.
//!
//! If the agent's program is missing in the middle of a run, as while it is being updated, nothing starts for a while, and
//! then one unit tries whether it is back. Failed starts cost no retry. Everything else ends the run.

use super::{Halt, Order, Phase, Schedule, TimerId, board::Timer, retry, say};
use crate::tape::note::{Cause, Level, Outcome, Verdict};

/// Waits before each try, in milliseconds; about 40 s together. An update takes some ten.
const WAITS_MS: [u64; 6] = [1_000, 2_000, 4_000, 8_000, 10_000, 15_000];

/// A program that is missing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Absence {
    /// Tries so far.
    tries: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Until this timer fires, nothing starts.
    Waiting(TimerId),
    /// The next unit to start tries it.
    Due,
    /// This unit tries it.
    Trying(usize),
}

impl Schedule {
    /// A unit could not be started because the program is missing. False once it was waited for long enough.
    pub(super) fn await_program(&mut self, at: usize, cause: &Cause, orders: &mut Vec<Order>) -> bool {
        let tries = match self.absence {
            // It was started before this was known, together with the unit that found out.
            Some(Absence { tries, state }) if state != State::Trying(at) => {
                self.board.set(at, Phase::Queued);
                self.retry_scheduled(at, WAITS_MS[tries - 1], cause, orders);
                return true;
            }
            Some(Absence { tries, .. }) => tries,
            None => {
                let seconds = WAITS_MS.iter().sum::<u64>() / 1000;
                let text = format!(
                    "the agent's program is missing; waiting up to {seconds} s for it, as an update may be in progress"
                );
                say(Level::Warning, text, orders);
                0
            }
        };
        let Some(wait_ms) = WAITS_MS.get(tries).copied() else {
            self.absence = None;
            return false;
        };
        self.board.set(at, Phase::Queued);
        self.retry_scheduled(at, wait_ms, cause, orders);
        let id = self.board.new_timer(Timer::Program);
        self.absence = Some(Absence { tries: tries + 1, state: State::Waiting(id) });
        orders.push(Order::SetTimer { id, after_ms: wait_ms });
        true
    }

    /// The timer of a wait fired: the next unit tries. A timer of a wait that was given up changes nothing.
    pub(super) fn try_program(&mut self, timer: TimerId) {
        self.make_trial_due(State::Waiting(timer));
    }

    /// The attempt of this unit is over. If it was to try the program and its end does not show whether the program is
    /// back, the next unit tries.
    pub(super) fn end_trial(&mut self, at: usize) {
        self.make_trial_due(State::Trying(at));
    }

    fn make_trial_due(&mut self, after: State) {
        if let Some(absence) = self.absence.as_mut().filter(|absence| absence.state == after) {
            absence.state = State::Due;
        }
    }

    /// True unless the program is missing and a unit tries already, or is to wait.
    pub(super) fn may_start(&self) -> bool {
        self.absence.is_none_or(|absence| absence.state == State::Due)
    }

    /// A unit starts.
    pub(super) fn starts(&mut self, order: &Order) {
        if let (Some(absence), Order::Start { unit, .. }) = (&mut self.absence, order)
            && let Some(at) = self.board.find(unit)
        {
            absence.state = State::Trying(at);
        }
    }

    /// The process of this unit started.
    pub(super) fn program_started(&mut self, at: usize, orders: &mut Vec<Order>) {
        if self.absence.is_some_and(|absence| absence.state == State::Trying(at)) {
            self.absence = None;
            say(Level::Info, "the agent's program is back".to_owned(), orders);
        }
    }

    /// The limit would turn the others away as well.
    pub(super) fn give_up_on_limit(&mut self, at: usize, orders: &mut Vec<Order>) {
        let (key, tries) = (&self.board.units()[at].key, self.settings.pacing.max_attempts);
        say(Level::Error, format!("{key} met the limit {tries} times: the run ends and can be resumed"), orders);
        self.halt(Halt::Limited, orders);
    }

    /// Told once, instead of by every unit. What runs may end by itself: it may have got through before.
    pub(super) fn give_up_if_unusable(&mut self, at: usize, verdict: &Verdict, orders: &mut Vec<Order>) {
        let unit = &self.board.units()[at];
        let amended = || unit.amendment.as_ref().is_some_and(|amendment| amendment.model.is_some());
        let own_model = self.is_pass(&unit.key) || amended();
        if verdict.outcome != Outcome::Failed || !retry::is_everybodys(&verdict.cause, own_model, self.got_through) {
            return;
        }
        if !self.board.is_idle() {
            let (word, remedy) = (verdict.cause.word(), verdict.remedy.as_deref().unwrap_or("mend it, then retry"));
            let text = format!("no unit can run ({word}), so none is started any more: {remedy}");
            say(Level::Error, text, orders);
        }
        self.halt(Halt::Unusable, orders);
    }
}
