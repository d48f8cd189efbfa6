//! The schedule by example, and against an oracle that keeps plain lists and looks at all of them every time.

use std::collections::BTreeMap;

use proptest::prelude::*;

mod settle;

use super::*;
use crate::{
    tape::{Millis, note::StopReason},
    units::limits::LimitStatus,
};

fn keys(count: usize) -> Vec<UnitKey> {
    (0..count).map(key).collect()
}

fn key(n: usize) -> UnitKey {
    UnitKey::new(format!("u{n}"))
}

pub(super) fn verdict(outcome: Outcome, cause: Cause) -> Verdict {
    Verdict { outcome, stop: StopReason::Error, cause, reason: "x".into(), remedy: None }
}

fn ok() -> Verdict {
    verdict(Outcome::Succeeded, Cause::Completed)
}

fn bad() -> Verdict {
    verdict(Outcome::Failed, Cause::ToolFailures)
}

fn busy() -> Verdict {
    verdict(Outcome::Failed, Cause::Transient)
}

fn limited() -> Verdict {
    verdict(Outcome::Failed, Cause::UsageLimit { resets_at: None })
}

fn ended(n: usize, attempt: u32, verdict: Verdict) -> Input {
    Input::Ended { unit: key(n), attempt, verdict }
}

fn ready(n: usize, attempt: u32) -> Input {
    Input::Ready { unit: key(n), attempt }
}

fn rejected(at: u64, resets_in_ms: Option<u64>) -> Input {
    let name = "five_hour".into();
    Input::LimitObserved(Observed {
        at: Millis(at),
        name,
        status: LimitStatus::Rejected,
        utilization: None,
        resets_in_ms,
    })
}

/// Orders as short words, for tables.
fn words(orders: &[Order]) -> String {
    let word = |order: &Order| match order {
        Order::Start { unit, attempt, amendment: None } => format!("start {unit}/{attempt}"),
        Order::Start { unit, attempt, amendment: Some(amendment) } => format!("start {unit}/{attempt} ({amendment})"),
        Order::Stop { unit, attempt, how } => format!("{how:?} {unit}/{attempt}").to_lowercase(),
        Order::Integrate { units } => {
            let units: Vec<String> = units.iter().map(|(unit, attempt)| format!("{unit}/{attempt}")).collect();
            format!("INTEGRATE {}", units.join(" "))
        }
        Order::Save { failed } => format!("SAVE without [{}]", failed.join(" ")),
        Order::SetTimer { id, after_ms } => format!("timer {} {after_ms}ms", id.0),
        Order::Note { lane, note } => {
            let lane = lane.as_ref().map(|(unit, attempt)| format!(" {unit}/{attempt}")).unwrap_or_default();
            let kind = match note {
                Note::RetryScheduled { next, delay_ms, .. } => format!("retry-scheduled {next} {delay_ms}ms"),
                Note::RetryRequested { next, amendment } => match amendment {
                    Some(amendment) => format!("retry-requested {next} ({amendment})"),
                    None => format!("retry-requested {next}"),
                },
                Note::StopRequested { how } => format!("stop-requested {how:?}").to_lowercase(),
                Note::LimitPaused { until, limit } => format!("paused {limit} {:?}", until.map(|until| until.0)),
                Note::LimitLifted => "lifted".into(),
                Note::ConcurrencyChanged { slots } => format!("slots {slots}"),
                Note::Said { text, .. } => format!("said {text:?}"),
                other => format!("{other:?}"),
            };
            format!("note{lane}: {kind}")
        }
        Order::End(end) => {
            let unsaved = if end.unsaved > 0 { format!(" unsaved={}", end.unsaved) } else { String::new() };
            format!(
                "END {} succeeded={} failed={} stopped={} not_run={}{unsaved}",
                end.outcome, end.succeeded, end.failed, end.stopped, end.not_run
            )
        }
    };
    orders.iter().map(word).collect::<Vec<_>>().join(" | ")
}

/// Feeds inputs and gives back one line of orders for each.
fn play(schedule: &mut Schedule, inputs: impl IntoIterator<Item = Input>) -> String {
    inputs.into_iter().map(|input| words(&schedule.handle(input))).collect::<Vec<_>>().join("\n")
}

fn settings(slots: u32) -> Settings {
    Settings::new(slots, 8)
}

#[test]
fn units_start_in_plan_order_within_the_slots() {
    let mut schedule = Schedule::new(keys(4), settings(2));
    let told = play(
        &mut schedule,
        [Input::Begin, ended(1, 1, ok()), ended(0, 1, bad()), ended(2, 1, ok()), ended(3, 1, ok()), ended(3, 1, ok())],
    );
    insta::assert_snapshot!(told, @r"
    start u0/1 | start u1/1
    start u2/1
    start u3/1

    END partial succeeded=3 failed=1 stopped=0 not_run=0
    ");
    assert!(schedule.is_over());
}

#[test]
fn starts_are_staggered() {
    let mut schedule = Schedule::new(keys(4), Settings::new(3, 1));
    let told = play(
        &mut schedule,
        [Input::Begin, ready(0, 1), ended(1, 1, ok()), ready(2, 2), ready(2, 1), ended(0, 1, ok())],
    );
    insta::assert_snapshot!(told, @r"
    start u0/1
    start u1/1
    start u2/1

    start u3/1
    ");
}

#[test]
fn what_passes_by_itself_is_retried_until_the_policy_is_spent() {
    let retry = RetryPolicy { max_retries: 2, ..RetryPolicy::default() };
    let mut schedule = Schedule::new(keys(2), Settings { retry, ..settings(1) });
    let told = play(
        &mut schedule,
        [
            Input::Begin,
            ended(0, 1, busy()),
            Input::TimerFired(TimerId(7)),
            Input::TimerFired(TimerId(0)),
            Input::TimerFired(TimerId(0)),
            ended(1, 1, ok()),
            ended(0, 2, busy()),
            Input::TimerFired(TimerId(1)),
            ended(0, 3, busy()),
            Input::RetryRequested { unit: key(0), amendment: None },
            ended(0, 4, busy()),
            Input::RetryRequested { unit: key(0), amendment: None },
            Input::TimerFired(TimerId(2)),
            ended(0, 5, ok()),
        ],
    );
    insta::assert_snapshot!(told, @r"
    start u0/1
    note u0/1: retry-scheduled 2 1000ms | timer 0 1000ms | start u1/1



    start u0/2
    note u0/2: retry-scheduled 3 2000ms | timer 1 2000ms
    start u0/3
    END partial succeeded=1 failed=1 stopped=0 not_run=0
    note u0/3: retry-requested 4 | start u0/4
    note u0/4: retry-scheduled 5 1000ms | timer 2 1000ms
    note u0/4: retry-requested 5 | start u0/5

    END done succeeded=2 failed=0 stopped=0 not_run=0
    ");
}

#[test]
fn a_usage_limit_pauses_the_run_and_costs_no_retry() {
    let retry = RetryPolicy { max_retries: 0, ..RetryPolicy::default() };
    let mut schedule = Schedule::new(keys(3), Settings { retry, ..settings(2) });
    let told = play(
        &mut schedule,
        [
            Input::Begin,
            rejected(5_000, Some(90_000)),
            ended(0, 1, limited()),
            ended(1, 1, ok()),
            Input::TimerFired(TimerId(0)),
            ended(0, 2, limited()),
            Input::LiftLimit,
            Input::TimerFired(TimerId(1)),
            ended(0, 3, ok()),
            ended(2, 1, ok()),
        ],
    );
    insta::assert_snapshot!(told, @r"
    start u0/1 | start u1/1
    note: paused five_hour Some(95000) | timer 0 90000ms
    note u0/1: retry-scheduled 2 90000ms

    note: lifted | start u0/2 | start u2/1
    note: paused x None | timer 1 60000ms | note u0/2: retry-scheduled 3 60000ms
    note: lifted | start u0/3


    END done succeeded=3 failed=0 stopped=0 not_run=0
    ");
}

#[test]
fn a_limit_that_resets_too_late_ends_the_run() {
    let mut schedule = Schedule::new(keys(3), Settings { max_limit_wait_ms: Some(1_000_000), ..settings(2) });
    let told =
        play(&mut schedule, [Input::Begin, rejected(0, Some(2_000_000)), ended(0, 1, limited()), ended(1, 1, ok())]);
    insta::assert_snapshot!(told, @r#"
    start u0/1 | start u1/1
    note: said "five_hour resets too late to wait for: the run ends and can be resumed"

    END limit succeeded=1 failed=1 stopped=0 not_run=1
    "#);
}

#[test]
fn pressure_leaves_one_slot() {
    let observed =
        |status| Observed { at: Millis(0), name: "five_hour".into(), status, utilization: None, resets_in_ms: None };
    let mut schedule = Schedule::new(keys(4), settings(2));
    let told = play(
        &mut schedule,
        [
            Input::Begin,
            Input::LimitObserved(observed(LimitStatus::Warning)),
            ended(0, 1, ok()),
            ended(1, 1, ok()),
            Input::LimitObserved(observed(LimitStatus::Allowed)),
        ],
    );
    insta::assert_snapshot!(told, @r#"
    start u0/1 | start u1/1
    note: said "five_hour is nearly spent: one unit at a time"

    start u2/1
    note: said "five_hour is well again: full speed" | start u3/1
    "#);
}

#[test]
fn abort_stops_the_rest() {
    let mut schedule = Schedule::new(keys(4), Settings { failure_mode: FailureMode::Abort, ..settings(3) });
    let stopped = || verdict(Outcome::Stopped, Cause::Cancelled);
    let told = play(
        &mut schedule,
        [
            Input::Begin,
            ended(0, 1, busy()),
            ended(3, 1, ok()),
            ended(1, 1, bad()),
            Input::RetryFailed,
            Input::TimerFired(TimerId(0)),
            ended(2, 1, stopped()),
            Input::RetryRequested { unit: key(1), amendment: None },
            ended(1, 2, ok()),
        ],
    );
    insta::assert_snapshot!(told, @r#"
    start u0/1 | start u1/1 | start u2/1
    note u0/1: retry-scheduled 2 1000ms | timer 0 1000ms | start u3/1

    note: said "u1 failed, and the failure mode is abort: the run stops" | stop u2/1
    note: said "the run is ending: retry once it has ended"

    END error succeeded=1 failed=2 stopped=1 not_run=0
    note u1/1: retry-requested 2 | start u1/2
    END partial succeeded=2 failed=1 stopped=1 not_run=0
    "#);
}

#[test]
fn people_stop_units_and_runs_more_and_more_firmly() {
    let mut schedule = Schedule::new(keys(5), settings(3));
    let stop = |n| Input::StopRequested { unit: key(n) };
    let stopped = || verdict(Outcome::Stopped, Cause::Cancelled);
    let told = play(
        &mut schedule,
        [
            Input::Begin,
            stop(0),
            stop(0),
            stop(0),
            stop(4),
            Input::RetryRequested { unit: key(0), amendment: None },
            Input::Drain,
            Input::RetryRequested { unit: key(4), amendment: None },
            Input::StopAll,
            Input::KillAll,
            ended(0, 1, stopped()),
            ended(1, 1, busy()),
            ended(2, 1, ok()),
            Input::Drain,
        ],
    );
    insta::assert_snapshot!(told, @r#"
    start u0/1 | start u1/1 | start u2/1
    note u0/1: stop-requested stop | stop u0/1
    note u0/1: stop-requested kill | kill u0/1

    note u4/0: stop-requested stop
    note: said "u0 still runs: stop it before you retry it"
    note: stop-requested drain
    note: said "the run is ending: retry once it has ended"
    note: stop-requested stop | stop u1/1 | stop u2/1
    note: stop-requested kill | kill u1/1 | kill u2/1


    END stopped succeeded=1 failed=1 stopped=2 not_run=1
    "#);
}

#[test]
fn a_person_may_open_a_finished_run_again() {
    let mut schedule = Schedule::new(keys(3), settings(2));
    let told = play(
        &mut schedule,
        [
            Input::Begin,
            ended(0, 1, bad()),
            ended(1, 1, bad()),
            ended(2, 1, ok()),
            Input::RetryFailed,
            ended(1, 2, ok()),
            ended(0, 2, ok()),
            Input::RetryRequested { unit: key(2), amendment: None },
            ended(2, 2, bad()),
            Input::RetryRequested { unit: "nobody".into(), amendment: None },
        ],
    );
    insta::assert_snapshot!(told, @r"
    start u0/1 | start u1/1
    start u2/1

    END partial succeeded=1 failed=2 stopped=0 not_run=0
    note u0/1: retry-requested 2 | note u1/1: retry-requested 2 | start u0/2 | start u1/2

    END done succeeded=3 failed=0 stopped=0 not_run=0
    note u2/1: retry-requested 2 | start u2/2
    END partial succeeded=2 failed=1 stopped=0 not_run=0
    ");
}

#[test]
fn what_a_person_wants_otherwise_stays_until_they_say_so() {
    let retry = |amendment| Input::RetryRequested { unit: key(0), amendment };
    let amendment = Amendment {
        feedback: Some("use the glossary".into()),
        model: Some("opus".into()),
        step_budget: Some(60),
        resume: Some("session".into()),
    };
    let mut schedule = Schedule::new(keys(1), settings(1));
    let told = play(
        &mut schedule,
        [
            Input::Begin,
            ended(0, 1, bad()),
            retry(Some(amendment)),
            ended(0, 2, busy()),
            Input::TimerFired(TimerId(0)),
            ended(0, 3, bad()),
            retry(None),
            ended(0, 4, bad()),
            retry(Some(Amendment::default())),
        ],
    );
    insta::assert_snapshot!(told, @r"
    start u0/1
    END error succeeded=0 failed=1 stopped=0 not_run=0
    note u0/1: retry-requested 2 (same session, model opus, 60 turns, feedback: use the glossary) | start u0/2 (same session, model opus, 60 turns, feedback: use the glossary)
    note u0/2: retry-scheduled 3 1000ms | timer 0 1000ms
    start u0/3 (same session, model opus, 60 turns, feedback: use the glossary)
    END error succeeded=0 failed=1 stopped=0 not_run=0
    note u0/3: retry-requested 4 (model opus, 60 turns, feedback: use the glossary) | start u0/4 (model opus, 60 turns, feedback: use the glossary)
    END error succeeded=0 failed=1 stopped=0 not_run=0
    note u0/4: retry-requested 5 | start u0/5
    ");
}

#[test]
fn a_unit_that_waits_for_its_turn_can_still_be_told_otherwise() {
    let mut schedule = Schedule::new(keys(2), settings(1));
    let amendment = Some(Amendment { step_budget: Some(60), ..Amendment::default() });
    let retry = |amendment| Input::RetryRequested { unit: key(1), amendment };
    let told = play(&mut schedule, [Input::Begin, retry(None), retry(amendment), ended(0, 1, ok())]);
    insta::assert_snapshot!(told, @r"
    start u0/1

    note u1/0: retry-requested 1 (60 turns)
    start u1/1 (60 turns)
    ");
}

#[test]
fn slots_change_while_running() {
    let mut schedule = Schedule::new(keys(4), settings(1));
    let told = play(
        &mut schedule,
        [
            Input::Begin,
            Input::SlotsChanged { by: 2 },
            Input::SlotsChanged { by: -9 },
            ended(0, 1, ok()),
            ended(1, 1, ok()),
            ended(2, 1, ok()),
        ],
    );
    insta::assert_snapshot!(told, @r"
    start u0/1
    note: slots 3 | start u1/1 | start u2/1
    note: slots 1


    start u3/1
    ");
}

#[test]
fn slots_stay_within_their_bounds() {
    let slots = |from: u32, by: i32| {
        let mut schedule = Schedule::new(keys(1), settings(from));
        play(&mut schedule, [Input::SlotsChanged { by }])
    };
    assert_eq!(slots(63, 5), "note: slots 64");
    assert_eq!(slots(64, 1), "");
    assert_eq!(slots(1, -1), "");
    assert_eq!(slots(100, 1), "", "never fewer by asking for more");
    assert_eq!(slots(100, -1), "note: slots 99");
    assert_eq!(slots(2, i32::MIN), "note: slots 1");
}

#[test]
fn nothing_to_do_is_done_and_a_run_stopped_before_it_begins_runs_nothing() {
    assert_eq!(
        play(&mut Schedule::new(vec![], settings(1)), [Input::Begin]),
        "END done succeeded=0 failed=0 stopped=0 not_run=0"
    );
    let told = play(&mut Schedule::new(keys(2), settings(1)), [Input::StopAll, Input::Begin]);
    assert_eq!(told, "note: stop-requested stop\nEND stopped succeeded=0 failed=0 stopped=0 not_run=2");
    let twice = [keys(2), keys(2)].concat();
    let told = play(&mut Schedule::new(twice, settings(9)), [Input::Begin]);
    assert_eq!(told, "start u0/1 | start u1/1");
}

/// One unit as the oracle sees it.
#[derive(Clone, Debug, Default)]
struct Naive {
    attempts: u32,
    retries: u32,
    state: NaiveState,
    stop: Option<StopHow>,
    timer: Option<TimerId>,
    last: Option<Outcome>,
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

/// Says what must start and whether the run must be over, from plain lists.
#[derive(Debug)]
struct Oracle {
    units: Vec<Naive>,
    slots: usize,
    at_once: usize,
    abort: bool,
    max_retries: u32,
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

    fn halt(&mut self) {
        self.halted = true;
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
        unit.retries = 0;
        if self.over {
            (self.over, self.halted) = (false, false);
        }
    }

    /// Follows an input; timers and pauses were already read off the orders.
    fn follow(&mut self, input: &Input) {
        let index = |unit: &UnitKey| unit.as_str()[1..].parse::<usize>().ok();
        match input {
            Input::Ready { unit, attempt } => {
                if let Some(unit) = index(unit).and_then(|n| self.units.get_mut(n))
                    && unit.state == NaiveState::Starting
                    && unit.attempts == *attempt
                {
                    unit.state = NaiveState::Running;
                }
            }
            Input::Ended { unit, attempt, verdict } => {
                let Some(n) = index(unit).filter(|n| *n < self.units.len()) else { return };
                let halted = self.halted;
                let max = self.max_retries;
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
                    Cause::UsageLimit { .. } if free => NaiveState::Queued,
                    _ => NaiveState::Over,
                };
                unit.stop = None;
                if free && unit.state == NaiveState::Over && self.abort {
                    self.halt();
                }
            }
            Input::TimerFired(id) => {
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
                for n in 0..self.units.len() {
                    if self.units[n].state == NaiveState::Over && self.units[n].last == Some(Outcome::Failed) {
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
                    self.halt();
                }
            }
            Input::SlotsChanged { by } => {
                let slots = i32::try_from(self.slots).unwrap() + by;
                self.slots = usize::try_from(slots.clamp(1, 64)).unwrap();
            }
            Input::Begin
            | Input::LimitObserved(_)
            | Input::LiftLimit
            | Input::Integrated { .. }
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
                    }
                }
                Order::Note { note: Note::LimitPaused { .. }, .. } => self.paused = true,
                Order::Note { note: Note::LimitLifted, .. } => self.paused = false,
                Order::Note { .. } => {}
                Order::Integrate { .. } | Order::Save { .. } => {
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
        while !self.over && !self.halted && !self.paused && self.flying() < self.slots && self.starting() < self.at_once
        {
            let Some(n) = self.units.iter().position(|unit| unit.state == NaiveState::Queued) else { break };
            self.units[n].state = NaiveState::Starting;
            self.units[n].attempts += 1;
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
enum Move {
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

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        6 => any::<usize>().prop_map(Move::Ready),
        12 => (any::<usize>(), 0..8u8).prop_map(|(n, how)| Move::End(n, how)),
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
        _ => verdict(Outcome::Stopped, Cause::Cancelled),
    }
}

fn input_for(schedule: &Schedule, step: &Move) -> Option<Input> {
    let flying: Vec<(UnitKey, u32)> = schedule.in_flight().map(|(unit, attempt)| (unit.clone(), attempt)).collect();
    let pick = |n: usize| flying.get(n % flying.len().max(1)).cloned();
    Some(match step {
        Move::Ready(n) => pick(*n).map(|(unit, attempt)| Input::Ready { unit, attempt })?,
        Move::End(n, how) => pick(*n).map(|(unit, attempt)| Input::Ended { unit, attempt, verdict: judged(*how) })?,
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
        steps in moves(),
    ) {
        let retry = RetryPolicy { max_retries, ..RetryPolicy::default() };
        let failure_mode = if abort { FailureMode::Abort } else { FailureMode::Continue };
        let mut schedule = Schedule::new(
            keys(count),
            Settings { starting_at_once: at_once, failure_mode, retry, ..settings(slots) },
        );
        let mut oracle = Oracle {
            units: vec![Naive::default(); count],
            slots: slots.max(1) as usize,
            at_once: at_once.max(1) as usize,
            abort,
            max_retries,
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
                    Order::Integrate { .. } | Order::Save { .. } => {
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
                    schedule.handle(Input::Ended { unit, attempt, verdict })
                }
                (None, Some(timer)) => schedule.handle(Input::TimerFired(timer)),
                (None, None) => break,
            };
        }
        prop_assert_eq!((ends, schedule.is_over()), (1, true));
    }
}
