//! Against an oracle that keeps plain lists and looks at all of them every time.

use std::collections::BTreeMap;

use super::*;

/// One unit as the oracle sees it.
#[derive(Clone, Debug, Default)]
struct Naive {
    attempts: u32,
    retries: u32,
    limited: u32,
    state: NaiveState,
    stop: Option<StopHow>,
    timer: Option<TimerId>,
    last: Option<Outcome>,
    started_alone: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum NaiveState {
    #[default]
    Queued,
    Waiting,
    Starting,
    Running,
    Over,
}

/// The agent's program as the oracle sees it, with the tries since it went missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NaiveProgram {
    Present,
    Waiting { tries: usize, timer: Option<TimerId> },
    Due { tries: usize },
    Trying { tries: usize, unit: usize },
}

/// Says what must start and whether the run must be over, from plain lists.
#[derive(Debug)]
struct Oracle {
    units: Vec<Naive>,
    slots: usize,
    room: usize,
    at_once: usize,
    abort: bool,
    max_retries: u32,
    max_limited: u32,
    program: NaiveProgram,
    cut: bool,
    paused: bool,
    halted: bool,
    over: bool,
}

impl Oracle {
    fn flying(&self) -> usize {
        self.units.iter().filter(|unit| matches!(unit.state, NaiveState::Starting | NaiveState::Running)).count()
    }

    fn starting(&self) -> usize {
        self.units.iter().filter(|unit| unit.state == NaiveState::Starting).count()
    }

    fn is_idle(&self) -> bool {
        self.units.iter().all(|unit| unit.state == NaiveState::Over)
    }

    /// `cut` by what no unit is to blame for.
    fn halt(&mut self, cut: bool) {
        self.cut = if self.halted { self.cut } else { cut };
        self.halted = true;
        self.program = NaiveProgram::Present;
        for unit in &mut self.units {
            if matches!(unit.state, NaiveState::Queued | NaiveState::Waiting) {
                unit.state = NaiveState::Over;
            }
        }
    }

    fn request(&mut self, n: usize) {
        let unit = &mut self.units[n];
        if !matches!(unit.state, NaiveState::Waiting | NaiveState::Over) || (self.halted && !self.over) {
            return;
        }
        unit.state = NaiveState::Queued;
        (unit.retries, unit.limited) = (0, 0);
        if self.over {
            (self.over, self.halted) = (false, false);
        }
    }

    fn leave_trial(&mut self, n: usize, program: NaiveProgram) {
        if matches!(self.program, NaiveProgram::Trying { unit, .. } if unit == n) {
            self.program = program;
        }
    }

    /// The program once unit `n` did not find it either; `None` if it was waited for long enough.
    fn tries_after(&self, n: usize) -> Option<NaiveProgram> {
        let tries = match self.program {
            NaiveProgram::Present => 0,
            NaiveProgram::Trying { tries, unit } if unit == n => tries,
            known => return Some(known),
        };
        (tries < 6).then_some(NaiveProgram::Waiting { tries: tries + 1, timer: None })
    }

    /// Follows an input; timers and pauses were already read off the orders.
    fn follow(&mut self, input: &Input) {
        let index = |unit: &UnitKey| unit.as_str()[1..].parse::<usize>().ok();
        match input {
            Input::Ready { unit, attempt } => {
                let Some(n) = index(unit).filter(|n| *n < self.units.len()) else { return };
                let unit = &mut self.units[n];
                if matches!(unit.state, NaiveState::Starting | NaiveState::Running) && unit.attempts == *attempt {
                    unit.state = NaiveState::Running;
                    self.leave_trial(n, NaiveProgram::Present);
                }
            }
            Input::Ended { unit, attempt, verdict, .. } => {
                let Some(n) = index(unit).filter(|n| *n < self.units.len()) else { return };
                let halted = self.halted;
                let (max, max_limited) = (self.max_retries, self.max_limited);
                let others = self.flying().saturating_sub(1);
                let awaited = self.tries_after(n).filter(|_| verdict.cause == Cause::ProgramMissing);
                let unit = &mut self.units[n];
                if !matches!(unit.state, NaiveState::Starting | NaiveState::Running) || unit.attempts != *attempt {
                    return;
                }
                unit.last = Some(verdict.outcome);
                let free = !halted && unit.stop.is_none() && verdict.outcome == Outcome::Failed;
                unit.state = match verdict.cause {
                    Cause::Transient if free && unit.retries < max => {
                        unit.retries += 1;
                        NaiveState::Waiting
                    }
                    Cause::UsageLimit { .. } | Cause::RateLimited if free => {
                        unit.limited += 1;
                        if unit.limited < max_limited { NaiveState::Queued } else { NaiveState::Over }
                    }
                    Cause::OpenFiles if free && (others > 0 || !unit.started_alone) => {
                        self.room = self.room.min(others.max(1));
                        NaiveState::Queued
                    }
                    Cause::ProgramMissing if free && awaited.is_some() => {
                        self.program = awaited.unwrap_or(self.program);
                        NaiveState::Queued
                    }
                    _ => NaiveState::Over,
                };
                unit.stop = None;
                let over = free && unit.state == NaiveState::Over;
                match verdict.cause {
                    Cause::UsageLimit { .. } | Cause::RateLimited | Cause::Auth | Cause::ProgramMissing if over => {
                        self.halt(true);
                    }
                    _ if over && self.abort => self.halt(false),
                    _ => {}
                }
                if let NaiveProgram::Trying { tries, .. } = self.program {
                    let is_back = verdict.outcome == Outcome::Succeeded;
                    self.leave_trial(n, if is_back { NaiveProgram::Present } else { NaiveProgram::Due { tries } });
                }
            }
            Input::TimerFired(id) => {
                if let NaiveProgram::Waiting { tries, timer: Some(timer) } = self.program
                    && timer == *id
                {
                    self.program = NaiveProgram::Due { tries };
                }
                for unit in &mut self.units {
                    if unit.state == NaiveState::Waiting && unit.timer == Some(*id) {
                        unit.state = NaiveState::Queued;
                    }
                }
            }
            Input::RetryRequested { unit, .. } => {
                if let Some(n) = index(unit).filter(|n| *n < self.units.len()) {
                    self.request(n);
                }
            }
            Input::RetryFailed => {
                let fails = |unit: &Naive| {
                    let ended_badly = matches!(unit.last, Some(Outcome::Failed | Outcome::Stopped));
                    unit.state == NaiveState::Over && ended_badly
                };
                let failed = |unit: &Naive| unit.state == NaiveState::Over && unit.last == Some(Outcome::Failed);
                let all = (self.halted && self.cut) || !self.units.iter().any(failed);
                for n in 0..self.units.len() {
                    let untried = self.units[n].state == NaiveState::Over && self.units[n].last.is_none();
                    if fails(&self.units[n]) || (all && untried) {
                        self.request(n);
                    }
                }
            }
            Input::StopRequested { unit } => {
                let Some(unit) = index(unit).and_then(|n| self.units.get_mut(n)) else { return };
                match unit.state {
                    NaiveState::Queued | NaiveState::Waiting => {
                        unit.state = NaiveState::Over;
                        unit.last = Some(Outcome::Stopped);
                    }
                    NaiveState::Starting | NaiveState::Running => unit.stop = unit.stop.or(Some(StopHow::Stop)),
                    NaiveState::Over => {}
                }
            }
            Input::Drain | Input::StopAll | Input::KillAll => {
                if !self.over {
                    self.halt(false);
                }
            }
            Input::SlotsChanged { by } => {
                let slots = i32::try_from(self.slots).unwrap() + by;
                self.slots = usize::try_from(slots.clamp(1, 64)).unwrap();
            }
            Input::Begin
            | Input::LimitObserved(_)
            | Input::LiftLimit
            | Input::Spent { .. }
            | Input::Projected
            | Input::Integrated(_)
            | Input::Saved { .. } => {}
        }
    }

    /// Compares the orders with what must happen.
    fn check(&mut self, input: &Input, orders: &[Order]) -> Result<(), TestCaseError> {
        self.follow(input);
        let mut started = Vec::new();
        let mut end = None;
        for order in orders {
            match order {
                Order::SetTimer { id, .. } => {
                    // A timer belongs to whatever began to wait: a unit of this input, or the run.
                    let waits =
                        |unit: &&mut Naive| unit.state == NaiveState::Waiting && unit.timer.is_none_or(|t| t < *id);
                    let unit = match input {
                        Input::Ended { unit, .. } => unit.as_str()[1..].parse::<usize>().ok(),
                        _ => None,
                    };
                    if let Some(unit) = unit.and_then(|n| self.units.get_mut(n)).filter(waits) {
                        unit.timer = Some(*id);
                    } else if let NaiveProgram::Waiting { timer: timer @ None, .. } = &mut self.program {
                        *timer = Some(*id);
                    }
                }
                Order::Note { note: Note::LimitPaused { .. }, .. } => self.paused = true,
                Order::Note { note: Note::LimitLifted, .. } => self.paused = false,
                Order::Note { .. } => {}
                Order::Project | Order::Integrate { .. } | Order::Save { .. } => {
                    return Err(TestCaseError::fail("there are no patches"));
                }
                Order::Stop { unit, attempt, how } => {
                    let known = self.units.iter_mut().enumerate().find(|(n, _)| key(*n) == *unit).map(|(_, unit)| unit);
                    let known = known.ok_or_else(|| TestCaseError::fail("stops an unknown unit"))?;
                    prop_assert!(matches!(known.state, NaiveState::Starting | NaiveState::Running));
                    prop_assert_eq!(known.attempts, *attempt);
                    known.stop = Some(*how);
                }
                Order::Start { unit, attempt, .. } => started.push((unit.clone(), *attempt)),
                Order::End(summary) => end = Some(summary.clone()),
            }
        }
        let mut expected = Vec::new();
        while !self.over
            && !self.halted
            && !self.paused
            && matches!(self.program, NaiveProgram::Present | NaiveProgram::Due { .. })
            && self.flying() < self.slots.min(self.room)
            && self.starting() < self.at_once
        {
            let Some(n) = self.units.iter().position(|unit| unit.state == NaiveState::Queued) else { break };
            self.units[n].started_alone = self.flying() == 0;
            self.units[n].state = NaiveState::Starting;
            self.units[n].attempts += 1;
            if let NaiveProgram::Due { tries } = self.program {
                self.program = NaiveProgram::Trying { tries, unit: n };
            }
            expected.push((key(n), self.units[n].attempts));
        }
        prop_assert_eq!(started, expected);
        let ends = !self.over && self.is_idle();
        prop_assert_eq!(end.is_some(), ends);
        self.over |= ends;
        if let Some(end) = end {
            let count = |outcome| self.units.iter().filter(|unit| unit.last == outcome).count() as u32;
            prop_assert_eq!(end.succeeded, count(Some(Outcome::Succeeded)));
            prop_assert_eq!(end.failed, count(Some(Outcome::Failed)));
            prop_assert_eq!(end.stopped, count(Some(Outcome::Stopped)));
            prop_assert_eq!(end.not_run, count(None));
            let all = end.succeeded as usize == self.units.len();
            prop_assert_eq!(end.outcome == "done", all);
        }
        Ok(())
    }
}

/// Something to do next, to be turned into an input that fits the moment.
#[derive(Clone, Debug)]
pub(super) enum Move {
    Ready(usize),
    End(usize, u8),
    Fire(u64),
    Retry(usize),
    RetryFailed,
    Stop(usize),
    Run(u8),
    Slots(i32),
    Reject(Option<u64>),
    Lift,
    Stray(usize, u32),
}

pub(super) fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        6 => any::<usize>().prop_map(Move::Ready),
        12 => (any::<usize>(), 0..13u8).prop_map(|(n, how)| Move::End(n, how)),
        4 => (0..40u64).prop_map(Move::Fire),
        3 => (0..8usize).prop_map(Move::Retry),
        1 => Just(Move::RetryFailed),
        2 => (0..8usize).prop_map(Move::Stop),
        1 => (0..9u8).prop_map(Move::Run),
        1 => (-5..6i32).prop_map(Move::Slots),
        1 => prop::option::of(0..100_000u64).prop_map(Move::Reject),
        1 => Just(Move::Lift),
        1 => (0..9usize, 0..4u32).prop_map(|(n, attempt)| Move::Stray(n, attempt)),
    ];
    prop::collection::vec(one, 0..120)
}

fn judged(how: u8) -> Verdict {
    match how {
        0..3 => ok(),
        3 => bad(),
        4 | 5 => busy(),
        6 => limited(),
        8 => verdict(Outcome::Failed, Cause::RateLimited),
        9 => verdict(Outcome::Failed, Cause::Auth),
        10 => crowded(),
        11 | 12 => missing(),
        _ => verdict(Outcome::Stopped, Cause::Cancelled),
    }
}

pub(super) fn input_for(schedule: &Schedule, step: &Move) -> Option<Input> {
    let flying: Vec<(UnitKey, u32)> = schedule.in_flight().map(|(unit, attempt)| (unit.clone(), attempt)).collect();
    let pick = |n: usize| flying.get(n % flying.len().max(1)).cloned();
    Some(match step {
        Move::Ready(n) => pick(*n).map(|(unit, attempt)| Input::Ready { unit, attempt })?,
        Move::End(n, how) => pick(*n).map(|(unit, attempt)| Input::Ended {
            unit,
            attempt,
            verdict: judged(*how),
            repeat: Repeat::Afresh,
        })?,
        Move::Fire(id) => Input::TimerFired(TimerId(*id)),
        Move::Retry(n) => Input::RetryRequested { unit: key(*n), amendment: None },
        Move::RetryFailed => Input::RetryFailed,
        Move::Stop(n) => Input::StopRequested { unit: key(*n) },
        Move::Run(0) => Input::Drain,
        Move::Run(1) => Input::StopAll,
        Move::Run(2) => Input::KillAll,
        Move::Run(_) => return None,
        Move::Slots(slots) => Input::SlotsChanged { by: *slots },
        Move::Reject(resets) => rejected(0, *resets),
        Move::Lift => Input::LiftLimit,
        Move::Stray(n, attempt) => Input::Ready { unit: key(*n), attempt: *attempt },
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever happens: exactly what the oracle starts is started, and the run ends exactly when it is idle. Driven
    /// on, it always ends, with every unit in one of the four counts and no retry beyond the policy.
    #[test]
    fn the_schedule_agrees_with_the_oracle(
        count in 0..7usize, slots in 0..4u32, at_once in 0..3u32, max_retries in 0..3u32, abort in any::<bool>(),
        max_limited in 1..4u32, steps in moves(),
    ) {
        let retry = RetryPolicy { max_retries, ..RetryPolicy::default() };
        let failure_mode = if abort { FailureMode::Abort } else { FailureMode::Continue };
        let mut schedule = Schedule::new(
            keys(count),
            Settings {
                starting_at_once: at_once,
                failure_mode,
                retry,
                pacing: Pacing { max_attempts: max_limited, ..Pacing::default() },
                ..settings(slots)
            },
        );
        let mut oracle = Oracle {
            units: vec![Naive::default(); count],
            slots: slots.max(1) as usize,
            room: usize::MAX,
            at_once: at_once.max(1) as usize,
            abort,
            max_retries,
            max_limited,
            program: NaiveProgram::Present,
            cut: false,
            paused: false,
            halted: false,
            over: false,
        };
        let mut timers = BTreeMap::new();
        let mut give = |schedule: &mut Schedule, oracle: &mut Oracle, input: Input| {
            let orders = schedule.handle(input.clone());
            for order in &orders {
                if let Order::SetTimer { id, after_ms } = order {
                    prop_assert_eq!(timers.insert(*id, *after_ms), None, "a timer id was reused");
                }
            }
            oracle.check(&input, &orders)
        };
        give(&mut schedule, &mut oracle, Input::Begin)?;
        for step in &steps {
            if let Some(input) = input_for(&schedule, step) {
                give(&mut schedule, &mut oracle, input)?;
            }
        }
        for _ in 0..200 {
            if schedule.is_over() {
                break;
            }
            give(&mut schedule, &mut oracle, Input::LiftLimit)?;
            for unit in 0..count {
                if let Some(timer) = oracle.units[unit].timer {
                    give(&mut schedule, &mut oracle, Input::TimerFired(timer))?;
                }
            }
            if let NaiveProgram::Waiting { timer: Some(timer), .. } = oracle.program {
                give(&mut schedule, &mut oracle, Input::TimerFired(timer))?;
            }
            if let Some(input) = input_for(&schedule, &Move::End(0, 4)) {
                give(&mut schedule, &mut oracle, input)?;
            }
        }
        prop_assert!(schedule.is_over(), "a busy service must lead to an end: {schedule:?}");
    }

    /// Without people, a unit runs at most once and `max_retries` times more, and abort starts nothing after the first
    /// final failure.
    #[test]
    fn left_alone_it_keeps_to_the_policy(
        count in 1..6usize, slots in 1..4u32, max_retries in 0..4u32, abort in any::<bool>(),
        fates in prop::collection::vec(0..6u8, 1..60),
    ) {
        let retry = RetryPolicy { max_retries, ..RetryPolicy::default() };
        let failure_mode = if abort { FailureMode::Abort } else { FailureMode::Continue };
        let mut schedule = Schedule::new(keys(count), Settings { failure_mode, retry, ..settings(slots) });
        let mut orders = schedule.handle(Input::Begin);
        let (mut fates, mut ends, mut final_failure) = (fates.into_iter().cycle(), 0, false);
        let mut pending = Vec::new();
        for _ in 0..10_000 {
            for order in orders.drain(..) {
                match order {
                    Order::Start { attempt, .. } => {
                        prop_assert!(attempt <= max_retries + 1);
                        prop_assert!(!(abort && final_failure), "started after the first failure");
                    }
                    Order::SetTimer { id, .. } => pending.push(id),
                    Order::End(_) => ends += 1,
                    Order::Project | Order::Integrate { .. } | Order::Save { .. } => {
                        return Err(TestCaseError::fail("there are no patches"));
                    }
                    Order::Stop { .. } | Order::Note { .. } => {}
                }
            }
            prop_assert!(schedule.in_flight().count() <= slots as usize);
            let first = schedule.in_flight().next().map(|(unit, attempt)| (unit.clone(), attempt));
            orders = match (first, pending.pop()) {
                (Some((unit, attempt)), timer) => {
                    pending.extend(timer);
                    let verdict = judged(fates.next().unwrap());
                    let spent = attempt > max_retries;
                    final_failure |= verdict.outcome == Outcome::Failed && (verdict.cause != Cause::Transient || spent);
                    schedule.handle(Input::Ended { unit, attempt, verdict, repeat: Repeat::Afresh })
                }
                (None, Some(timer)) => schedule.handle(Input::TimerFired(timer)),
                (None, None) => break,
            };
        }
        prop_assert_eq!((ends, schedule.is_over()), (1, true));
    }
}
