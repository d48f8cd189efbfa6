//! How units stand once their run has ended, or its record breaks off.

use super::*;
use crate::{
    run::Aside,
    tape::note::{Continues, Earlier, Reused, RunEnded, StopHow},
};

fn plan(units: &[&str]) -> Recorded {
    let unit = |unit: &&str| PlannedUnit { unit: (*unit).into(), ..PlannedUnit::default() };
    let earlier = |unit: &str| {
        let reused =
            Reused { attempt: 1, budget: false, content: Default::default(), patch: None, work: Default::default() };
        let run = crate::tape::RunId(uuid::Uuid::from_u128(1));
        (UnitKey::from(unit), Earlier { run, attempts: 1, cost_usd: None, reused: Some(reused) })
    };
    let reused: Vec<&str> = units.iter().copied().filter(|unit| unit.starts_with("old")).collect();
    let continues = (!reused.is_empty()).then(|| Continues {
        run: crate::tape::RunId(uuid::Uuid::from_u128(1)),
        outcome: None,
        cost_usd: None,
        units: reused.into_iter().map(earlier).collect(),
        unreconciled: Default::default(),
    });
    let units = units.iter().map(unit).collect();
    note(None, &Note::RunPlanned(Box::new(RunPlanned { units, continues, ..RunPlanned::default() })))
}

fn started(unit: &str, number: u32) -> Recorded {
    note(Some((unit, number)), &Note::AttemptStarted(Box::default()))
}

fn over(unit: &str, number: u32, outcome: Outcome) -> Recorded {
    note(Some((unit, number)), &ended(outcome))
}

fn waits(unit: &str, next: u32) -> Recorded {
    let cause = Cause::UsageLimit { resets_at: None };
    note(Some((unit, next - 1)), &Note::RetryScheduled { next, delay_ms: 5_000, cause })
}

fn asked(unit: &str, next: u32) -> Recorded {
    note(Some((unit, next - 1)), &Note::RetryRequested { next, amendment: None })
}

fn stopped(unit: &str, number: u32) -> Recorded {
    note(Some((unit, number)), &Note::StopRequested { how: StopHow::Stop })
}

fn run_stopped(how: StopHow) -> Recorded {
    note(None, &Note::StopRequested { how })
}

fn run_ended() -> Recorded {
    note(None, &Note::RunEnded(RunEnded { outcome: "limit".into(), ..RunEnded::default() }))
}

type Stands = Vec<(String, UnitStatus, Option<Millis>)>;

fn stands(timeline: &Timeline) -> Stands {
    timeline.story().state.units.iter().map(|unit| (unit.key.to_string(), unit.status, unit.retry_at)).collect()
}

/// How units stand where the record of a run has not ended yet.
fn so_far(mut entries: Vec<Recorded>) -> Stands {
    let length = entries.len() as u64;
    entries.push(note(None, &Note::LimitLifted));
    let mut timeline = timeline(entries, 1, false);
    timeline.seek(length).unwrap();
    stands(&timeline)
}

/// How they stand at the end of a record, which is also what was told of them last.
fn at_last(entries: Vec<Recorded>) -> Stands {
    let mut timeline = timeline(entries, 3, false);
    let mut told = std::collections::HashMap::new();
    let mut tell = |emitted: Emitted<'_>| {
        if let Emitted::Unit { unit, status, .. } = emitted {
            told.insert(unit.to_owned(), status);
        }
    };
    while timeline.advance(1, &mut tell).unwrap() == Progress::More {}
    let stands = stands(&timeline);
    assert!(stands.iter().all(|(unit, status, _)| told.get(unit) == Some(status)), "{stands:?} is not {told:?}");
    stands
}

fn at_rest(units: &[(&str, UnitStatus)]) -> Stands {
    units.iter().map(|(unit, status)| ((*unit).to_owned(), *status, None)).collect()
}

#[test]
fn what_has_not_begun_is_stopped_by_a_word() {
    let run = vec![
        plan(&["queued", "waits", "starts", "runs", "again"]),
        started("waits", 1),
        over("waits", 1, Outcome::Failed),
        waits("waits", 2),
        started("again", 1),
        over("again", 1, Outcome::Failed),
        asked("again", 2),
        started("runs", 1),
        stopped("queued", 0),
        stopped("waits", 1),
        stopped("again", 1),
        // Its first attempt is being prepared: what comes of that is on the tape later.
        stopped("starts", 1),
        stopped("runs", 1),
        note(None, &Note::LimitLifted),
    ];
    use UnitStatus::{Queued, Running, Stopped};
    let expected = [("queued", Stopped), ("waits", Stopped), ("starts", Queued), ("runs", Running), ("again", Stopped)];
    assert_eq!(so_far(run), at_rest(&expected));
}

#[test]
fn a_run_that_ended_leaves_nothing_waiting() {
    let run = || {
        vec![
            plan(&["good", "waits", "again", "untried", "old"]),
            started("good", 1),
            over("good", 1, Outcome::Succeeded),
            started("waits", 1),
            over("waits", 1, Outcome::Failed),
            waits("waits", 2),
            started("again", 1),
            over("again", 1, Outcome::Failed),
            asked("again", 2),
            asked("good", 2),
            note(Some(("old", 0)), &Note::RetryRequested { next: 1, amendment: None }),
            run_ended(),
        ]
    };
    use UnitStatus::{Failed, Queued, Reused, Succeeded, Untried};
    let expected = [("good", Succeeded), ("waits", Failed), ("again", Failed), ("untried", Untried), ("old", Reused)];
    assert_eq!(so_far(run()), at_rest(&expected));
    assert_eq!(at_last(run()), at_rest(&expected));
    // A person asks for more: what was not asked for still has no turn.
    let more = [run(), vec![asked("waits", 2)]].concat();
    let expected = [("good", Succeeded), ("waits", Queued), ("again", Failed), ("untried", Untried), ("old", Reused)];
    assert_eq!(so_far(more), at_rest(&expected));
}

#[test]
fn a_record_that_breaks_off_leaves_nothing_waiting_either() {
    let run =
        vec![plan(&["waits", "queued"]), started("waits", 1), over("waits", 1, Outcome::Failed), waits("waits", 2)];
    assert_eq!(at_last(run), at_rest(&[("waits", UnitStatus::Interrupted), ("queued", UnitStatus::Untried)]));
}

#[test]
fn step_that_never_began_is_a_unit_without_a_turn() {
    let planned =
        |job: &str| note(None, &Note::RunPlanned(Box::new(RunPlanned { job: job.into(), ..RunPlanned::default() })));
    let ended = |not_run| note(None, &Note::RunEnded(RunEnded { not_run, ..RunEnded::default() }));
    let untried = at_rest(&[("reconcile", UnitStatus::Untried)]);
    assert_eq!(so_far(vec![planned("job"), ended(1)]), untried);
    assert_eq!(at_last(vec![planned("job"), ended(1)]), untried);
    assert_eq!(at_last(vec![planned("job")]), untried, "its record breaks off");
    assert_eq!(so_far(vec![planned("job")]), at_rest(&[]), "it may still begin");
    assert_eq!(at_last(vec![planned("job"), ended(0)]), at_rest(&[]), "it is done");
    assert_eq!(at_last(vec![planned("")]), at_rest(&[]), "a record of another program");
    let begun = vec![planned("job"), ended(1), asked("reconcile", 1), started("reconcile", 1)];
    assert_eq!(so_far(begun), at_rest(&[("reconcile", UnitStatus::Running)]));
}

/// A tool that did not do it, one that failed, one that went well, and two that our stop cut short: the result of one
/// is what the agent makes of an interrupt.
#[test]
fn what_calls_came_to_is_told_beside_their_results() {
    let declined = |id: &str| Note::ToolDeclined {
        tool: "read_raw_file".into(),
        tool_use_id: Some(id.into()),
        message: "no".into(),
    };
    let entries = vec![
        out("a", 1, INIT),
        out("a", 1, &call("t1")),
        note(Some(("a", 1)), &declined("t1")),
        note(Some(("a", 1)), &declined("t1")),
        out("a", 1, &answer("t1", false)),
        out("a", 1, &call("t2")),
        out("a", 1, &answer("t2", true)),
        out("a", 1, &call("t3")),
        out("a", 1, &answer("t3", false)),
        out("a", 1, &call("t4")),
        out("a", 1, &call("t5")),
        stopped("a", 1),
        out("a", 1, &answer("t4", true)),
        over("a", 1, Outcome::Stopped),
        // Its record breaks off.
        started("b", 1),
        out("b", 1, INIT),
        out("b", 1, &call("t6")),
    ];
    let mut timeline = timeline(entries, 3, false);
    let (mut told, mut gathering) = (Vec::new(), crate::run::report::Gathering::default());
    let mut tell = |emitted: Emitted<'_>| {
        gathering.take(&emitted);
        if let Emitted::Event { event: crate::actions::Event::Action(event), aside, .. } = &emitted
            && event.phase == crate::actions::Phase::Completed
        {
            told.push((event.action.id.to_string(), event.ok, *aside));
        }
    };
    while timeline.advance(1, &mut tell).unwrap() == Progress::More {}
    let (cut, declined) = (Some(Aside::Cut), Some(Aside::Declined));
    let expected = [
        ("t1", Some(true), declined),
        ("t2", Some(false), None),
        ("t3", Some(true), None),
        ("t4", Some(false), cut),
        ("t5", Some(false), cut),
    ];
    let told: Vec<_> = told.iter().map(|(id, ok, aside)| (id.as_str(), *ok, *aside)).collect();
    assert_eq!(told[..5], expected, "`ok` is what the result says");
    let story = timeline.story();
    let attempt = &story.state.units[0].attempts[0];
    assert_eq!((attempt.declined, attempt.failures, attempt.calls), (1, 1, 5));
    let rows = story.rows(attempt.lane).iter().filter(|row| row.kind == RowKind::Tool);
    let ends: Vec<RowEnd> = rows.map(|row| row.end(story.state.entries)).collect();
    assert_eq!(ends, [RowEnd::Declined, RowEnd::Failed, RowEnd::Ok, RowEnd::Cut, RowEnd::Cut]);
    let report = gathering.report(timeline.source().origin(), timeline.story(), false);
    let made = |at: usize| report.units[at].attempts[0].tools.values().copied().collect::<Vec<_>>();
    assert_eq!(made(0), [crate::run::report::Calls { made: 5, failed: 1, declined: 1, cut: 2 }]);
    assert_eq!(made(1), [crate::run::report::Calls { made: 1, failed: 0, declined: 0, cut: 1 }]);
    assert_eq!(report.units[0].attempts[0].failed.len(), 1);
}

#[test]
fn a_stop_of_the_whole_run_cuts_short_what_runs_and_a_drain_does_not() {
    for (how, end) in [(StopHow::Drain, RowEnd::Failed), (StopHow::Stop, RowEnd::Cut), (StopHow::Kill, RowEnd::Cut)] {
        let entries = vec![
            started("a", 1),
            out("a", 1, INIT),
            out("a", 1, &call("t1")),
            run_stopped(how),
            out("a", 1, &answer("t1", true)),
            over("a", 1, Outcome::Stopped),
        ];
        let timeline = played(timeline(entries, 2, false));
        let story = timeline.story();
        let mut rows = story.rows(story.state.units[0].attempts[0].lane).iter();
        assert_eq!(rows.find(|row| row.kind == RowKind::Tool).unwrap().end(story.state.entries), end, "{how:?}");
    }
}
