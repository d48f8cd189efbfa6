//! Who runs next: a state machine over the units of a run. Inputs are what happened, orders are what to do; timers
//! are orders too.
//!
//! It must not know how a unit runs, what time it is, or who carries out its orders. Whoever does answers every
//! [`Order::Start`] with one [`Input::Ended`], and every [`Order::SetTimer`] with at most one [`Input::TimerFired`].

mod begin;
mod board;
mod purse;
mod reconcile;
mod repeat;
mod room;
mod settle;
mod unusable;

use std::sync::Arc;

use crate::tape::{
    Note, UnitKey,
    note::{Amendment, Cause, Level, Outcome, RunEnded, StopHow, StopReason, Verdict},
};

use self::{
    board::{Board, Phase, Timer},
    purse::Purse,
    reconcile::Pass,
    unusable::Absence,
};
use super::{
    governor::{self, Change, Governor, Pacing},
    limits::Observed,
    retry::{self, Next, Repeat, RetryPolicy},
};

/// What a failed unit means for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FailureMode {
    /// Nothing.
    #[default]
    Continue,
    /// Nothing new starts, and what runs is stopped.
    Abort,
}

impl FailureMode {
    /// Reads the setting's value.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "continue" => Some(Self::Continue),
            "abort" => Some(Self::Abort),
            _ => None,
        }
    }

    /// The setting's value.
    pub fn word(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::Abort => "abort",
        }
    }
}

/// How a run is to go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Units that may run at once; at least 1.
    pub slots: u32,
    /// Units that may be starting up at once; at least 1. Start-up is what costs CPU, so cores are a good number.
    pub starting_at_once: u32,
    /// What a failed unit means for the others.
    pub failure_mode: FailureMode,
    /// Retries that nobody asks for.
    pub retry: RetryPolicy,
    /// What units wrote is in patches, which have to be put together once all of them have settled.
    pub integrates: bool,
    /// What all attempts together may cost, in US dollars; when it is spent, nothing more starts and the run ends as
    /// `limit`. `None` for anything.
    pub budget_usd: Option<f64>,
    /// How limits of the service are met.
    pub pacing: Pacing,
}

impl Settings {
    /// `slots` units at once on a machine of `cores`, everything else as by default.
    pub fn new(slots: u32, cores: u32) -> Self {
        Self {
            slots,
            starting_at_once: cores,
            failure_mode: FailureMode::default(),
            retry: RetryPolicy::default(),
            integrates: false,
            budget_usd: None,
            pacing: Pacing::default(),
        }
    }
}

/// What a person can set the slots to while the run goes on.
pub const SLOTS: std::ops::RangeInclusive<u32> = 1..=64;

/// Name of a timer. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerId(pub u64);

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The run begins.
    Begin,
    /// An attempt is up: its agent has said what it offers.
    Ready {
        /// Unit.
        unit: UnitKey,
        /// Attempt.
        attempt: u32,
    },
    /// An attempt is over.
    Ended {
        /// Unit.
        unit: UnitKey,
        /// Attempt.
        attempt: u32,
        /// How.
        verdict: Verdict,
        /// How it may be made again without anybody asking.
        repeat: Repeat,
    },
    /// What [`Order::Project`] asked for has been done, or could not be.
    Projected,
    /// What came of [`Order::Integrate`].
    Integrated(Together),
    /// What [`Order::Save`] asked for has been done.
    Saved {
        /// False if what was taken is not on the project's branch; the patches are still there.
        ok: bool,
    },
    /// A timer ran out.
    TimerFired(TimerId),
    /// A person wants a new attempt.
    RetryRequested {
        /// Unit.
        unit: UnitKey,
        /// What is to be otherwise than planned. `None` repeats what the last attempt was given, in a session of its own.
        amendment: Option<Amendment>,
    },
    /// A person wants a new attempt of every unit that failed, was stopped or ran out of turns.
    RetryFailed,
    /// A person wants a unit stopped; asked again while it still runs, killed.
    StopRequested {
        /// Unit.
        unit: UnitKey,
    },
    /// Start nothing new, let what runs end.
    Drain,
    /// Start nothing new and stop what runs.
    StopAll,
    /// Start nothing new and end what runs now.
    KillAll,
    /// The service spoke of a usage window. Tell it before the end of the attempt that heard it.
    LimitObserved(Observed),
    /// A person does not want to wait for the limit.
    LiftLimit,
    /// What the run has cost so far. Tell it before the end of the attempt that it comes from.
    Spent {
        /// In US dollars.
        usd: f64,
    },
    /// A person wants more slots or fewer: relative, so that two wishes in a row are two. Stays within [`SLOTS`]; with
    /// fewer, what runs ends by itself.
    SlotsChanged {
        /// How many more.
        by: i32,
    },
}

/// Patches that have been put together, as far as they go together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Together {
    /// What became of each unit, as far as it went.
    pub results: Vec<Taken>,
    /// False if it broke off: there is nothing to save then, and the patches are all that there is.
    pub ok: bool,
}

/// What became of the patch of a unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken {
    /// Unit.
    pub unit: UnitKey,
    /// The attempt that left the patch.
    pub attempt: u32,
    /// The verdict that holds from now on, where the patch was not taken.
    pub verdict: Option<Verdict>,
    /// It changes something.
    pub changed: bool,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Start an attempt.
    Start {
        /// Unit.
        unit: UnitKey,
        /// Attempt: 1 for the first, never reused.
        attempt: u32,
        /// What is otherwise than planned.
        amendment: Option<Arc<Amendment>>,
    },
    /// End a running attempt. May be followed by a firmer one.
    Stop {
        /// Unit.
        unit: UnitKey,
        /// Attempt.
        attempt: u32,
        /// How firmly.
        how: StopHow,
    },
    /// Write the sources that units build on, and say [`Input::Projected`].
    Project,
    /// Put the patches of these attempts together, in this order, and say [`Input::Integrated`]. The pass alone goes on
    /// top of what the order before it put together, unless that was saved meanwhile.
    Integrate {
        /// Units and attempts, in plan order; none where only the pass is to look at what there is.
        units: Vec<(UnitKey, u32)>,
    },
    /// Put what was taken on the project's branch as one commit, and say [`Input::Saved`].
    Save {
        /// Units whose writes do not count, in plan order, for the commit's message.
        failed: Vec<UnitKey>,
    },
    /// Say [`Input::TimerFired`] later.
    SetTimer {
        /// Which.
        id: TimerId,
        /// When, from now.
        after_ms: u64,
    },
    /// Write a note on the tape.
    Note {
        /// The unit and its newest attempt (0 before the first); `None` for the run itself.
        lane: Option<(UnitKey, u32)>,
        /// What.
        note: Note,
    },
    /// Nothing is left to do. A later request of a person may open the run again, and lead to another end.
    End(RunEnded),
}

/// Why nothing new starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Halt {
    /// A person said so.
    Asked,
    /// A unit failed and the run aborts.
    Aborted,
    /// A limit resets too late, or never seems to.
    Limited,
    /// Login, credit, model or network are in the way of every unit.
    Unusable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Planned,
    /// The sources that units build on are being written.
    Projecting,
    Open,
    /// All units have settled; their patches are being put together.
    Integrating,
    /// One more unit looks at what was put together.
    Reconciling,
    /// What was taken is being put on the branch.
    Saving,
    Ended,
}

/// The units of a run and where they stand.
#[derive(Clone, Debug)]
pub struct Schedule {
    settings: Settings,
    board: Board,
    governor: Governor,
    purse: Purse,
    stage: Stage,
    /// Sources are to be written before the first unit starts.
    projects: bool,
    halt: Option<Halt>,
    /// Somebody wants out now: what is in patches stays there.
    killed: bool,
    /// The pass over what the units wrote, where one is wanted.
    pass: Option<Pass>,
    /// Attempts whose patches are put together and not saved yet.
    round: Vec<(UnitKey, u32)>,
    /// Some attempt succeeded.
    got_through: bool,
    /// Units for which there are file descriptors, once it turned out that there are not enough for all.
    room: Option<u32>,
    /// The agent's program could not be started.
    absence: Option<Absence>,
}

impl Schedule {
    /// A run of `units` in this order. A key that comes twice counts once.
    pub fn new(units: Vec<UnitKey>, settings: Settings) -> Self {
        let settings =
            Settings { slots: settings.slots.max(1), starting_at_once: settings.starting_at_once.max(1), ..settings };
        let governor = Governor::new(settings.pacing);
        Self {
            purse: Purse::new(settings.budget_usd),
            settings,
            board: Board::new(units),
            governor,
            stage: Stage::Planned,
            projects: false,
            halt: None,
            killed: false,
            pass: None,
            round: Vec::new(),
            got_through: false,
            room: None,
            absence: None,
        }
    }

    /// The same run without `units`, which an earlier run did: they run only when a person asks for it.
    pub fn reusing<'a>(mut self, units: impl IntoIterator<Item = &'a UnitKey>) -> Self {
        for unit in units {
            if let Some(at) = self.board.find(unit) {
                self.board.reuse(at);
            }
        }
        self
    }

    /// The same run with patches of `units` that an earlier run left: they are put together with those of this one.
    pub fn with_patches_of<'a>(mut self, units: impl IntoIterator<Item = &'a UnitKey>) -> Self {
        for unit in units {
            if let Some(at) = self.board.find(unit) {
                self.board.take_over(at);
            }
        }
        self
    }

    /// Takes an input and answers with orders, to be carried out in their order. Inputs about units, attempts and
    /// timers that it does not know (any more) change nothing.
    pub fn handle(&mut self, input: Input) -> Vec<Order> {
        let mut orders = Vec::new();
        match input {
            Input::Begin => self.begin(&mut orders),
            Input::Projected => self.projected(),
            Input::Ready { unit, attempt } => {
                if let Some((at, _)) = self.board.in_flight(&unit, attempt) {
                    self.board.ready(&unit, attempt);
                    self.program_started(at, &mut orders);
                }
            }
            Input::Ended { unit, attempt, verdict, repeat } => {
                self.ended(&unit, attempt, &verdict, repeat, &mut orders);
            }
            Input::Integrated(together) => self.integrated(together, &mut orders),
            Input::Saved { ok } => self.saved(ok, &mut orders),
            Input::TimerFired(id) => self.timer_fired(id, &mut orders),
            Input::RetryRequested { unit, amendment } => self.retry_requested(&unit, amendment, &mut orders),
            Input::RetryFailed => self.retry_failed(&mut orders),
            Input::StopRequested { unit } => self.stop_requested(&unit, &mut orders),
            Input::Drain => self.stop_run(StopHow::Drain, &mut orders),
            Input::StopAll => self.stop_run(StopHow::Stop, &mut orders),
            Input::KillAll => self.stop_run(StopHow::Kill, &mut orders),
            Input::LimitObserved(seen) => {
                let change = self.governor.observe(&seen);
                self.limit_changed(change, &seen.name, &mut orders);
            }
            Input::LiftLimit => self.lift(&mut orders),
            Input::Spent { usd } => self.purse.spent(usd),
            Input::SlotsChanged { by } => self.slots_changed(by, &mut orders),
        }
        self.launch(&mut orders);
        self.settle_if_idle(&mut orders);
        orders
    }

    /// Attempts that run now, with their units.
    pub fn in_flight(&self) -> impl Iterator<Item = (&UnitKey, u32)> {
        self.board.units().iter().filter(|unit| unit.is_in_flight()).map(|unit| (&unit.key, unit.attempts))
    }

    /// True once there is nothing to do until a person asks.
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Ended
    }

    fn ended(&mut self, key: &UnitKey, attempt: u32, verdict: &Verdict, repeat: Repeat, orders: &mut Vec<Order>) {
        let Some((at, asked_to_stop)) = self.board.in_flight(key, attempt) else { return };
        self.board.judge(at, verdict.outcome, verdict.stop);
        if verdict.outcome == Outcome::Succeeded {
            self.program_started(at, orders);
            self.got_through = true;
            let change = self.governor.passed();
            self.limit_changed(change, governor::REQUESTS, orders);
        }
        let next = self.next(at, verdict, repeat, asked_to_stop, orders);
        let given_up = next == Next::AwaitLimit && self.board.meet_limit(at) >= self.settings.pacing.max_attempts;
        if next == Next::AwaitLimit && !given_up {
            let change = self.governor.hit();
            self.limit_changed(change, verdict.cause.word(), orders);
        }
        match next {
            // Whoever asked to stop did not ask for another try.
            _ if asked_to_stop || self.halt.is_some() => self.board.set(at, Phase::Over),
            Next::AwaitLimit if given_up => {
                self.board.set(at, Phase::Over);
                self.give_up_on_limit(at, orders);
            }
            Next::AwaitProgram if self.await_program(at, &verdict.cause, orders) => {}
            Next::AwaitProgram | Next::Stand => {
                self.board.set(at, Phase::Over);
                self.give_up_if_unusable(at, verdict, orders);
                // The pass is no unit of the ingest: what the others wrote stands without it.
                if !self.is_pass(key) {
                    self.abort_after(key, verdict.outcome, orders);
                }
            }
            Next::Retry { delay_ms } => {
                let timer = self.board.new_timer(Timer::Retry(at));
                self.board.spend_retry(at);
                self.board.set(at, Phase::Waiting(timer));
                self.retry_scheduled(at, delay_ms, &verdict.cause, orders);
                orders.push(Order::SetTimer { id: timer, after_ms: delay_ms });
            }
            Next::AwaitLimit => {
                self.board.set(at, Phase::Queued);
                self.retry_scheduled(at, self.governor.wait_ms(), &verdict.cause, orders);
            }
            Next::AwaitRoom => self.await_room(at, &verdict.cause, orders),
        }
        self.end_trial(at);
    }

    fn abort_after(&mut self, key: &UnitKey, outcome: Outcome, orders: &mut Vec<Order>) {
        if outcome != Outcome::Failed || self.settings.failure_mode == FailureMode::Continue {
            return;
        }
        say(Level::Error, format!("{key} failed, and the failure mode is abort: the run stops"), orders);
        self.halt(Halt::Aborted, orders);
        self.stop_in_flight(StopHow::Stop, orders);
    }

    fn timer_fired(&mut self, id: TimerId, orders: &mut Vec<Order>) {
        match self.board.take_timer(id) {
            Some(Timer::Retry(at)) => self.board.set(at, Phase::Queued),
            Some(Timer::Limit) => self.lift(orders),
            Some(Timer::Program) => self.try_program(id),
            None => {}
        }
    }

    fn retry_requested(&mut self, key: &UnitKey, amendment: Option<Amendment>, orders: &mut Vec<Order>) {
        let Some(at) = self.board.find(key) else { return };
        let unit = &self.board.units()[at];
        match unit.phase {
            // It runs anyway; only what it is told may change.
            Phase::Queued | Phase::Due if amendment.is_none() => {}
            Phase::InFlight { .. } => {
                say(Level::Warning, format!("{key} still runs: stop it before you retry it"), orders);
            }
            _ if self.is_ending() => say_ending(orders),
            _ if self.is_broke(orders) => {}
            Phase::Queued | Phase::Waiting(_) | Phase::Due | Phase::Over => self.reopen_for(at, amendment, orders),
        }
    }

    fn retry_failed(&mut self, orders: &mut Vec<Order>) {
        let mut failed = self.board.not_done();
        // Units that had no part in what cut the run short were to be run all the same.
        if !self.board.has_failed() || matches!(self.halt, Some(Halt::Limited | Halt::Unusable)) {
            failed.extend(self.board.untried());
        }
        failed.extend(self.pass_left());
        failed.sort_unstable();
        failed.dedup();
        if self.is_ending() && !failed.is_empty() {
            return say_ending(orders);
        }
        // Saving costs nothing.
        if !failed.is_empty() && self.is_broke(orders) {
            failed.clear();
        }
        if failed.is_empty() {
            self.save_again();
        }
        for at in failed {
            self.reopen_for(at, None, orders);
        }
    }

    /// Nothing may start any more, whoever asks; says so.
    fn is_broke(&self, orders: &mut Vec<Order>) -> bool {
        let empty = self.purse.is_empty();
        let is_broke = empty.is_some();
        if let Some(sentence) = empty {
            say(Level::Warning, format!("{sentence}; resume the run with a budget of its own"), orders);
        }
        is_broke
    }

    fn reopen_for(&mut self, at: usize, amendment: Option<Amendment>, orders: &mut Vec<Order>) {
        let phase = self.phase_for(at);
        self.reopen();
        self.board.request(at, amendment, phase);
        let unit = &self.board.units()[at];
        let amendment = unit.amendment.as_deref().cloned();
        orders.push(unit.note(Note::RetryRequested { next: unit.attempts + 1, amendment }));
    }

    /// Nothing new may start, and something still runs.
    fn is_ending(&self) -> bool {
        self.halt.is_some() && self.stage != Stage::Ended
    }

    fn stop_requested(&mut self, key: &UnitKey, orders: &mut Vec<Order>) {
        let Some(at) = self.board.find(key) else { return };
        let how = match self.board.units()[at].phase {
            Phase::InFlight { stop: Some(StopHow::Kill), .. } | Phase::Over => return,
            Phase::InFlight { stop: Some(StopHow::Stop), .. } => StopHow::Kill,
            Phase::InFlight { .. } | Phase::Queued | Phase::Waiting(_) | Phase::Due => StopHow::Stop,
        };
        orders.push(self.board.units()[at].note(Note::StopRequested { how }));
        if let Some(attempt) = self.board.stop(at, how) {
            orders.push(Order::Stop { unit: key.clone(), attempt, how });
        } else {
            self.board.judge(at, Outcome::Stopped, StopReason::Error);
            self.board.set(at, Phase::Over);
        }
    }

    fn stop_run(&mut self, how: StopHow, orders: &mut Vec<Order>) {
        if self.stage == Stage::Ended {
            return;
        }
        orders.push(Order::Note { lane: None, note: Note::StopRequested { how } });
        self.halt(Halt::Asked, orders);
        self.killed |= how == StopHow::Kill;
        if how != StopHow::Drain {
            self.stop_in_flight(how, orders);
        }
    }

    fn stop_in_flight(&mut self, how: StopHow, orders: &mut Vec<Order>) {
        for at in 0..self.board.units().len() {
            if let Some(attempt) = self.board.stop(at, how) {
                orders.push(Order::Stop { unit: self.board.units()[at].key.clone(), attempt, how });
            }
        }
    }

    /// Nothing starts any more, so nothing waits for a limit either. The first reason stays.
    fn halt(&mut self, why: Halt, orders: &mut Vec<Order>) {
        self.halt.get_or_insert(why);
        self.absence = None;
        self.board.withdraw();
        self.lift(orders);
    }

    fn limit_changed(&mut self, change: Change, limit: &str, orders: &mut Vec<Order>) {
        match change {
            Change::Same => {}
            Change::Throttled(slots) => throttled(Some(slots), limit, orders),
            Change::Restored => self.restored(limit, orders),
            // Nothing starts anyway, and a later request of a person is worth a try.
            Change::Paused { .. } if self.halt.is_some() => self.governor.lift(),
            Change::TooLate if self.halt.is_some() => {}
            Change::TooLate => {
                let text = format!("{limit} resets too late to wait for: the run ends and can be resumed");
                say(Level::Error, text, orders);
                self.halt(Halt::Limited, orders);
            }
            Change::Paused { wait_ms, until } => {
                let id = self.board.new_limit_timer();
                let note = Note::LimitPaused { until, limit: limit.to_owned(), wait_ms: Some(wait_ms) };
                orders.push(Order::Note { lane: None, note });
                orders.push(Order::SetTimer { id, after_ms: wait_ms });
            }
        }
    }

    fn lift(&mut self, orders: &mut Vec<Order>) {
        self.governor.lift();
        if self.board.drop_limit_timer() {
            orders.push(Order::Note { lane: None, note: Note::LimitLifted });
        }
    }

    fn slots_changed(&mut self, by: i32, orders: &mut Vec<Order>) {
        let now = self.settings.slots;
        // A run that was started with more than can be set here may keep them, but gets no more.
        let slots = now.saturating_add_signed(by).clamp(*SLOTS.start(), now.max(*SLOTS.end()));
        if slots != now {
            self.settings.slots = slots;
            orders.push(Order::Note { lane: None, note: Note::ConcurrencyChanged { slots } });
        }
    }

    fn launch(&mut self, orders: &mut Vec<Order>) {
        if self.stage == Stage::Open
            && self.halt.is_none()
            && self.board.is_left()
            && let Some(sentence) = self.purse.is_empty()
        {
            say(Level::Error, format!("{sentence}; the run can be resumed"), orders);
            self.halt(Halt::Limited, orders);
        }
        self.keep_pass_within_budget(orders);
        let slots = self.slots();
        while matches!(self.stage, Stage::Open | Stage::Reconciling)
            && self.halt.is_none()
            && !self.governor.is_paused()
            && self.may_start()
            && self.board.in_flight_count() < slots
            && self.board.starting_count() < self.settings.starting_at_once
        {
            // Whoever asks for another try meanwhile waits until all of this is saved.
            let start = if self.stage == Stage::Reconciling { self.start_pass() } else { self.board.start_next() };
            let Some(start) = start else { return };
            self.starts(&start);
            orders.push(start);
        }
    }

    fn retry_scheduled(&self, at: usize, delay_ms: u64, cause: &Cause, orders: &mut Vec<Order>) {
        let unit = &self.board.units()[at];
        let note = Note::RetryScheduled { next: unit.attempts + 1, delay_ms, cause: cause.clone() };
        orders.push(unit.note(note));
    }
}

fn throttled(slots: Option<u32>, limit: &str, orders: &mut Vec<Order>) {
    orders.push(Order::Note { lane: None, note: Note::Throttled { slots, limit: limit.to_owned() } });
}

fn say_ending(orders: &mut Vec<Order>) {
    say(Level::Warning, "the run is ending: retry once it has ended".to_owned(), orders);
}

fn say(level: Level, text: String, orders: &mut Vec<Order>) {
    orders.push(Order::Note { lane: None, note: Note::Said { level, text } });
}

#[cfg(test)]
mod tests;
