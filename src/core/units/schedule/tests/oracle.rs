//! Comparison with an oracle that keeps plain lists and scans all of them every time.

use std::collections::BTreeMap;

use super::*;

/// State of one unit in the oracle.
#[derive(Clone, Debug, Default)]
struct OracleUnit {
    attempts: u32,
    retries: u32,
    limited: u32,
    state: OracleUnitState,
    stop: Option<StopMode>,
    timer: Option<TimerId>,
    last: Option<AttemptOutcome>,
    started_alone: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum OracleUnitState {
    #[default]
    Queued,
    Waiting,
    Starting,
    Running,
    Over,
}

/// State of the agent's program in the oracle, with the trials since it went missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OracleProgram {
    Present,
    Waiting {
        tries: usize,
        timer: Option<TimerId>,
    },
    Due {
        tries: usize,
    },
    Trying {
        tries: usize,
        unit: usize,
    },
}

/// Computes from plain lists what must start and whether the run must be over.
#[derive(Debug)]
struct ScheduleOracle {
    units: Vec<OracleUnit>,
    slots: usize,
    max_open: usize,
    max_starting: usize,
    abort: bool,
    max_retries: u32,
    max_limited: u32,
    program: OracleProgram,
    unusable: bool,
    paused: bool,
    halted: bool,
    over: bool,
}

impl ScheduleOracle {
    fn in_flight(&self) -> usize {
        self.units
            .iter()
            .filter(|unit| {
                matches!(
                    unit.state,
                    OracleUnitState::Starting | OracleUnitState::Running
                )
            })
            .count()
    }

    fn starting(&self) -> usize {
        self.units
            .iter()
            .filter(|unit| unit.state == OracleUnitState::Starting)
            .count()
    }

    fn is_idle(&self) -> bool {
        self.units
            .iter()
            .all(|unit| unit.state == OracleUnitState::Over)
    }

    /// Stops starting units. `cut` is true if no unit caused that.
    fn halt(&mut self, cut: bool) {
        self.unusable = if self.halted { self.unusable } else { cut };
        self.halted = true;
        self.program = OracleProgram::Present;
        for unit in &mut self.units {
            if matches!(
                unit.state,
                OracleUnitState::Queued | OracleUnitState::Waiting
            ) {
                unit.state = OracleUnitState::Over;
            }
        }
    }

    fn request(&mut self, n: usize) {
        let unit = &mut self.units[n];
        if !matches!(unit.state, OracleUnitState::Waiting | OracleUnitState::Over)
            || (self.halted && !self.over)
        {
            return;
        }
        unit.state = OracleUnitState::Queued;
        (unit.retries, unit.limited) = (0, 0);
        if self.over {
            (self.over, self.halted) = (false, false);
        }
    }

    fn leave_program_trial(&mut self, n: usize, program: OracleProgram) {
        if matches!(self.program, OracleProgram::Trying { unit, .. } if unit == n) {
            self.program = program;
        }
    }

    /// State of the program after unit `n` did not find it either; `None` if all waits are used.
    fn tries_after(&self, n: usize) -> Option<OracleProgram> {
        let tries = match self.program {
            OracleProgram::Present => 0,
            OracleProgram::Trying { tries, unit } if unit == n => tries,
            known => return Some(known),
        };
        (tries < 6).then_some(OracleProgram::Waiting {
            tries: tries + 1,
            timer: None,
        })
    }

    /// Applies an event; timers and pauses were already read from the effects.
    fn apply(&mut self, input: &ScheduleEvent) {
        let index = |unit: &UnitKey| unit.as_str()[1..].parse::<usize>().ok();
        match input {
            ScheduleEvent::AttemptReady { unit, attempt } => {
                let Some(n) = index(unit).filter(|n| *n < self.units.len()) else {
                    return;
                };
                let unit = &mut self.units[n];
                if matches!(
                    unit.state,
                    OracleUnitState::Starting | OracleUnitState::Running
                ) && unit.attempts == *attempt
                {
                    unit.state = OracleUnitState::Running;
                    self.leave_program_trial(n, OracleProgram::Present);
                }
            }
            ScheduleEvent::AttemptEnded {
                unit,
                attempt,
                verdict,
                ..
            } => {
                let Some(n) = index(unit).filter(|n| *n < self.units.len()) else {
                    return;
                };
                let halted = self.halted;
                let (max, max_limited) = (self.max_retries, self.max_limited);
                let others = self.in_flight().saturating_sub(1);
                let awaited = self
                    .tries_after(n)
                    .filter(|_| verdict.cause == VerdictCause::ProgramMissing);
                let unit = &mut self.units[n];
                if !matches!(
                    unit.state,
                    OracleUnitState::Starting | OracleUnitState::Running
                ) || unit.attempts != *attempt
                {
                    return;
                }
                unit.last = Some(verdict.outcome);
                let free =
                    !halted && unit.stop.is_none() && verdict.outcome == AttemptOutcome::Failed;
                unit.state = match verdict.cause {
                    VerdictCause::Transient if free && unit.retries < max => {
                        unit.retries += 1;
                        OracleUnitState::Waiting
                    }
                    VerdictCause::UsageLimit { .. } | VerdictCause::RateLimited if free => {
                        unit.limited += 1;
                        if unit.limited < max_limited {
                            OracleUnitState::Queued
                        } else {
                            OracleUnitState::Over
                        }
                    }
                    VerdictCause::OpenFiles if free && (others > 0 || !unit.started_alone) => {
                        self.max_open = self.max_open.min(others.max(1));
                        OracleUnitState::Queued
                    }
                    VerdictCause::ProgramMissing if free && awaited.is_some() => {
                        self.program = awaited.unwrap_or(self.program);
                        OracleUnitState::Queued
                    }
                    _ => OracleUnitState::Over,
                };
                unit.stop = None;
                let over = free && unit.state == OracleUnitState::Over;
                match verdict.cause {
                    VerdictCause::UsageLimit { .. }
                    | VerdictCause::RateLimited
                    | VerdictCause::Auth
                    | VerdictCause::ProgramMissing
                        if over =>
                    {
                        self.halt(true);
                    }
                    _ if over && self.abort => self.halt(false),
                    _ => {}
                }
                if let OracleProgram::Trying { tries, .. } = self.program {
                    let is_back = verdict.outcome == AttemptOutcome::Succeeded;
                    self.leave_program_trial(
                        n,
                        if is_back {
                            OracleProgram::Present
                        } else {
                            OracleProgram::Due { tries }
                        },
                    );
                }
            }
            ScheduleEvent::TimerFired(id) => {
                if let OracleProgram::Waiting {
                    tries,
                    timer: Some(timer),
                } = self.program
                    && timer == *id
                {
                    self.program = OracleProgram::Due { tries };
                }
                for unit in &mut self.units {
                    if unit.state == OracleUnitState::Waiting && unit.timer == Some(*id) {
                        unit.state = OracleUnitState::Queued;
                    }
                }
            }
            ScheduleEvent::Requested(RunCommand::Retry { unit, .. }) => {
                if let Some(n) = index(unit).filter(|n| *n < self.units.len()) {
                    self.request(n);
                }
            }
            ScheduleEvent::Requested(RunCommand::RetryUnsuccessful) => {
                let fails = |unit: &OracleUnit| {
                    let ended_badly = matches!(
                        unit.last,
                        Some(AttemptOutcome::Failed | AttemptOutcome::Stopped)
                    );
                    unit.state == OracleUnitState::Over && ended_badly
                };
                let failed = |unit: &OracleUnit| {
                    unit.state == OracleUnitState::Over && unit.last == Some(AttemptOutcome::Failed)
                };
                let all = (self.halted && self.unusable) || !self.units.iter().any(failed);
                for n in 0..self.units.len() {
                    let untried = self.units[n].state == OracleUnitState::Over
                        && self.units[n].last.is_none();
                    if fails(&self.units[n]) || (all && untried) {
                        self.request(n);
                    }
                }
            }
            ScheduleEvent::Requested(RunCommand::Stop { unit }) => {
                let Some(unit) = index(unit).and_then(|n| self.units.get_mut(n)) else {
                    return;
                };
                match unit.state {
                    OracleUnitState::Queued | OracleUnitState::Waiting => {
                        unit.state = OracleUnitState::Over;
                        unit.last = Some(AttemptOutcome::Stopped);
                    }
                    OracleUnitState::Starting | OracleUnitState::Running => {
                        unit.stop = unit.stop.or(Some(StopMode::Stop))
                    }
                    OracleUnitState::Over => {}
                }
            }
            ScheduleEvent::Requested(
                RunCommand::Drain | RunCommand::StopAll | RunCommand::KillAll,
            ) => {
                if !self.over {
                    self.halt(false);
                }
            }
            ScheduleEvent::Requested(RunCommand::AdjustConcurrency { by }) => {
                let slots = i32::try_from(self.slots).unwrap() + by;
                self.slots = usize::try_from(slots.clamp(1, 64)).unwrap();
            }
            // Not among the random steps, or without an effect here.
            ScheduleEvent::Requested(_)
            | ScheduleEvent::PersonWaitExpired(..)
            | ScheduleEvent::ReleaseSeen { .. }
            | ScheduleEvent::WorkerSlotsChanged { .. }
            | ScheduleEvent::ReviewRequested { .. }
            | ScheduleEvent::ReviewFinished { .. }
            | ScheduleEvent::ReviewReopened
            | ScheduleEvent::RunStarted
            | ScheduleEvent::LimitObserved(_)
            | ScheduleEvent::CostUpdated { .. }
            | ScheduleEvent::Projected { .. }
            | ScheduleEvent::Integrated(_)
            | ScheduleEvent::PartlySaved { .. }
            | ScheduleEvent::Saved { .. } => {}
        }
    }

    /// Compares the effects with the expected ones.
    fn check(
        &mut self,
        input: &ScheduleEvent,
        effects: &[ScheduleEffect],
    ) -> Result<(), TestCaseError> {
        self.apply(input);
        let mut started = Vec::new();
        let mut end = None;
        for order in effects {
            match order {
                ScheduleEffect::SetTimer { id, .. } => {
                    // A timer belongs to the waiting unit of this event, or to the run.
                    let waits = |unit: &&mut OracleUnit| {
                        unit.state == OracleUnitState::Waiting && unit.timer.is_none_or(|t| t < *id)
                    };
                    let unit = match input {
                        ScheduleEvent::AttemptEnded { unit, .. } => {
                            unit.as_str()[1..].parse::<usize>().ok()
                        }
                        _ => None,
                    };
                    if let Some(unit) = unit.and_then(|n| self.units.get_mut(n)).filter(waits) {
                        unit.timer = Some(*id);
                    } else if let OracleProgram::Waiting {
                        timer: timer @ None,
                        ..
                    } = &mut self.program
                    {
                        *timer = Some(*id);
                    }
                }
                ScheduleEffect::RecordNote {
                    note: Note::LimitPaused { .. },
                    ..
                } => self.paused = true,
                ScheduleEffect::RecordNote {
                    note: Note::LimitLifted,
                    ..
                } => self.paused = false,
                ScheduleEffect::RecordNote { .. }
                | ScheduleEffect::MessageAttempt { .. }
                | ScheduleEffect::RequestAttempt { .. } => {}
                ScheduleEffect::Project
                | ScheduleEffect::IntegrateAhead { .. }
                | ScheduleEffect::Integrate { .. }
                | ScheduleEffect::RequestReview
                | ScheduleEffect::Save { .. } => {
                    return Err(TestCaseError::fail("there are no patches"));
                }
                ScheduleEffect::StopAttempt { unit, attempt, how } => {
                    let known = self
                        .units
                        .iter_mut()
                        .enumerate()
                        .find(|(n, _)| key(*n) == *unit)
                        .map(|(_, unit)| unit);
                    let known =
                        known.ok_or_else(|| TestCaseError::fail("stops an unknown unit"))?;
                    prop_assert!(matches!(
                        known.state,
                        OracleUnitState::Starting | OracleUnitState::Running
                    ));
                    prop_assert_eq!(known.attempts, *attempt);
                    known.stop = Some(*how);
                }
                ScheduleEffect::StartAttempt { unit, attempt, .. } => {
                    started.push((unit.clone(), *attempt))
                }
                ScheduleEffect::EndRun(summary) => end = Some(summary.clone()),
            }
        }
        let mut expected = Vec::new();
        while !self.over
            && !self.halted
            && !self.paused
            && matches!(
                self.program,
                OracleProgram::Present | OracleProgram::Due { .. }
            )
            && self.in_flight() < self.slots.min(self.max_open)
            && self.starting() < self.max_starting
        {
            let Some(n) = self
                .units
                .iter()
                .position(|unit| unit.state == OracleUnitState::Queued)
            else {
                break;
            };
            self.units[n].started_alone = self.in_flight() == 0;
            self.units[n].state = OracleUnitState::Starting;
            self.units[n].attempts += 1;
            if let OracleProgram::Due { tries } = self.program {
                self.program = OracleProgram::Trying { tries, unit: n };
            }
            expected.push((key(n), self.units[n].attempts));
        }
        prop_assert_eq!(started, expected);
        let ends = !self.over && self.is_idle();
        prop_assert_eq!(end.is_some(), ends);
        self.over |= ends;
        if let Some(end) = end {
            let count = |outcome| {
                self.units
                    .iter()
                    .filter(|unit| unit.last == outcome)
                    .count() as u32
            };
            prop_assert_eq!(end.succeeded, count(Some(AttemptOutcome::Succeeded)));
            prop_assert_eq!(end.failed, count(Some(AttemptOutcome::Failed)));
            prop_assert_eq!(end.stopped, count(Some(AttemptOutcome::Stopped)));
            prop_assert_eq!(end.not_run, count(None));
            let all = end.succeeded as usize == self.units.len();
            prop_assert_eq!(end.outcome.as_str() == "done", all);
        }
        Ok(())
    }
}

/// A step that is turned into an event that fits the current state.
#[derive(Clone, Debug)]
pub(super) enum RandomStep {
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

pub(super) fn any_steps() -> impl Strategy<Value = Vec<RandomStep>> {
    let one = prop_oneof![
        6 => any::<usize>().prop_map(RandomStep::Ready),
        12 => (any::<usize>(), 0..13u8).prop_map(|(n, how)| RandomStep::End(n, how)),
        4 => (0..40u64).prop_map(RandomStep::Fire),
        3 => (0..8usize).prop_map(RandomStep::Retry),
        1 => Just(RandomStep::RetryFailed),
        2 => (0..8usize).prop_map(RandomStep::Stop),
        1 => (0..9u8).prop_map(RandomStep::Run),
        1 => (-5..6i32).prop_map(RandomStep::Slots),
        1 => prop::option::of(0..100_000u64).prop_map(RandomStep::Reject),
        1 => Just(RandomStep::Lift),
        1 => (0..9usize, 0..4u32).prop_map(|(n, attempt)| RandomStep::Stray(n, attempt)),
    ];
    prop::collection::vec(one, 0..120)
}

fn verdict_for(how: u8) -> Verdict {
    match how {
        0..3 => succeeded_verdict(),
        3 => failed_verdict(),
        4 | 5 => transient_verdict(),
        6 => usage_limit_verdict(),
        8 => verdict(AttemptOutcome::Failed, VerdictCause::RateLimited),
        9 => verdict(AttemptOutcome::Failed, VerdictCause::Auth),
        10 => open_files_verdict(),
        11 | 12 => missing_program_verdict(),
        _ => verdict(AttemptOutcome::Stopped, VerdictCause::Cancelled),
    }
}

pub(super) fn to_event(schedule: &Schedule, step: &RandomStep) -> Option<ScheduleEvent> {
    let flying: Vec<(UnitKey, u32)> = schedule
        .in_flight()
        .map(|(unit, attempt)| (unit.clone(), attempt))
        .collect();
    let pick = |n: usize| flying.get(n % flying.len().max(1)).cloned();
    Some(match step {
        RandomStep::Ready(n) => {
            pick(*n).map(|(unit, attempt)| ScheduleEvent::AttemptReady { unit, attempt })?
        }
        RandomStep::End(n, how) => pick(*n).map(|(unit, attempt)| ScheduleEvent::AttemptEnded {
            unit,
            attempt,
            verdict: verdict_for(*how),
            repeat: RetryMode::FromStart,
        })?,
        RandomStep::Fire(id) => ScheduleEvent::TimerFired(TimerId(*id)),
        RandomStep::Retry(n) => ScheduleEvent::Requested(RunCommand::Retry {
            unit: key(*n),
            amendment: None,
        }),
        RandomStep::RetryFailed => ScheduleEvent::Requested(RunCommand::RetryUnsuccessful),
        RandomStep::Stop(n) => ScheduleEvent::Requested(RunCommand::Stop { unit: key(*n) }),
        RandomStep::Run(0) => ScheduleEvent::Requested(RunCommand::Drain),
        RandomStep::Run(1) => ScheduleEvent::Requested(RunCommand::StopAll),
        RandomStep::Run(2) => ScheduleEvent::Requested(RunCommand::KillAll),
        RandomStep::Run(_) => return None,
        RandomStep::Slots(slots) => {
            ScheduleEvent::Requested(RunCommand::AdjustConcurrency { by: *slots })
        }
        RandomStep::Reject(resets) => rejected(0, *resets),
        RandomStep::Lift => ScheduleEvent::Requested(RunCommand::LiftLimit),
        RandomStep::Stray(n, attempt) => ScheduleEvent::AttemptReady {
            unit: key(*n),
            attempt: *attempt,
        },
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// For any sequence of events, the schedule starts exactly the attempts that the oracle starts, and ends exactly
    /// when the oracle is idle. If continued, it always ends, with every unit in one of the four counts and no more
    /// retries than the policy allows.
    #[test]
    fn the_schedule_agrees_with_the_oracle(
        count in 0..7usize, slots in 0..4u32, at_once in 0..3u32, max_retries in 0..3u32, abort in any::<bool>(),
        max_limited in 1..4u32, steps in any_steps(),
    ) {
        let retry = RetryPolicy { max_retries, ..RetryPolicy::default() };
        let failure_mode = if abort { FailureMode::Abort } else { FailureMode::Continue };
        let mut schedule = Schedule::new(
            keys(count),
            ScheduleSettings {
                max_starting: at_once,
                failure_mode,
                retry,
                throttle_policy: ThrottlePolicy { max_limit_attempts: max_limited, ..ThrottlePolicy::default() },
                ..settings(slots)
            },
        );
        let mut oracle = ScheduleOracle {
            units: vec![OracleUnit::default(); count],
            slots: slots.max(1) as usize,
            max_open: usize::MAX,
            max_starting: at_once.max(1) as usize,
            abort,
            max_retries,
            max_limited,
            program: OracleProgram::Present,
            unusable: false,
            paused: false,
            halted: false,
            over: false,
        };
        let mut timers = BTreeMap::new();
        let mut give = |schedule: &mut Schedule, oracle: &mut ScheduleOracle, input: ScheduleEvent| {
            let effects = schedule.handle(input.clone());
            for order in &effects {
                if let ScheduleEffect::SetTimer { id, after_ms } = order {
                    prop_assert_eq!(timers.insert(*id, *after_ms), None, "a timer id was reused");
                }
            }
            oracle.check(&input, &effects)
        };
        give(&mut schedule, &mut oracle, ScheduleEvent::RunStarted)?;
        for step in &steps {
            if let Some(input) = to_event(&schedule, step) {
                give(&mut schedule, &mut oracle, input)?;
            }
        }
        for _ in 0..200 {
            if schedule.is_finished() {
                break;
            }
            give(&mut schedule, &mut oracle, ScheduleEvent::Requested(RunCommand::LiftLimit))?;
            for unit in 0..count {
                if let Some(timer) = oracle.units[unit].timer {
                    give(&mut schedule, &mut oracle, ScheduleEvent::TimerFired(timer))?;
                }
            }
            if let OracleProgram::Waiting { timer: Some(timer), .. } = oracle.program {
                give(&mut schedule, &mut oracle, ScheduleEvent::TimerFired(timer))?;
            }
            if let Some(input) = to_event(&schedule, &RandomStep::End(0, 4)) {
                give(&mut schedule, &mut oracle, input)?;
            }
        }
        prop_assert!(schedule.is_finished(), "a busy service must lead to an end: {schedule:?}");
    }

    /// Without requests, a unit runs at most `max_retries + 1` times, and abort starts nothing after the first final
    /// failure.
    #[test]
    fn automatic_retries_stay_within_the_policy(
        count in 1..6usize, slots in 1..4u32, max_retries in 0..4u32, abort in any::<bool>(),
        fates in prop::collection::vec(0..6u8, 1..60),
    ) {
        let retry = RetryPolicy { max_retries, ..RetryPolicy::default() };
        let failure_mode = if abort { FailureMode::Abort } else { FailureMode::Continue };
        let mut schedule = Schedule::new(keys(count), ScheduleSettings { failure_mode, retry, ..settings(slots) });
        let mut effects = schedule.handle(ScheduleEvent::RunStarted);
        let (mut fates, mut ends, mut final_failure) = (fates.into_iter().cycle(), 0, false);
        let mut pending = Vec::new();
        for _ in 0..10_000 {
            for order in effects.drain(..) {
                match order {
                    ScheduleEffect::StartAttempt { attempt, .. } => {
                        prop_assert!(attempt <= max_retries + 1);
                        prop_assert!(!(abort && final_failure), "started after the first failure");
                    }
                    ScheduleEffect::SetTimer { id, .. } => pending.push(id),
                    ScheduleEffect::EndRun(_) => ends += 1,
                    ScheduleEffect::Project | ScheduleEffect::IntegrateAhead { .. } | ScheduleEffect::Integrate { .. } | ScheduleEffect::RequestReview | ScheduleEffect::Save { .. } => {
                        return Err(TestCaseError::fail("there are no patches"));
                    }
                    ScheduleEffect::StopAttempt { .. } | ScheduleEffect::RecordNote { .. } | ScheduleEffect::MessageAttempt { .. } | ScheduleEffect::RequestAttempt { .. } => {}
                }
            }
            prop_assert!(schedule.in_flight().count() <= slots as usize);
            let first = schedule.in_flight().next().map(|(unit, attempt)| (unit.clone(), attempt));
            effects = match (first, pending.pop()) {
                (Some((unit, attempt)), timer) => {
                    pending.extend(timer);
                    let verdict = verdict_for(fates.next().unwrap());
                    let spent = attempt > max_retries;
                    final_failure |= verdict.outcome == AttemptOutcome::Failed && (verdict.cause != VerdictCause::Transient || spent);
                    schedule.handle(ScheduleEvent::AttemptEnded { unit, attempt, verdict, repeat: RetryMode::FromStart })
                }
                (None, Some(timer)) => schedule.handle(ScheduleEvent::TimerFired(timer)),
                (None, None) => break,
            };
        }
        prop_assert_eq!((ends, schedule.is_finished()), (1, true));
    }
}
