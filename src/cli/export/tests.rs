//! Exports of recorded runs.

use serde_json::Value;

use super::*;
use crate::{
    replay::FileSource,
    tape::{
        Millis, Note, Seq,
        note::{Cause, Outcome, PlannedUnit, RunEnded, RunPlanned, StopReason, Verdict, Work, work::Unmapped},
    },
};

const TAPE: &str = include_str!("../../../tests/fixtures/tapes/demo.jsonl");

fn replays(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let mut timeline = Timeline::forward(Box::new(FileSource::open(&path).unwrap()));
    let (mut gathering, mut steps) = (Gathering::default(), memory_flow::Steps::default());
    while timeline
        .advance(SLICE, &mut |emitted| {
            gathering.take(&emitted);
            steps.take(&emitted);
        })
        .unwrap()
        == Progress::More
    {}
    memory_flow::replays(&gathering.report(timeline.source().origin(), timeline.story(), false), &steps)
}

#[test]
fn every_line_of_a_tape_stays_an_entry() {
    let mut redactor = Redactor::default();
    for line in TAPE.lines().skip(1) {
        let redacted = entry(line.as_bytes(), &mut redactor);
        let (before, after) = (Entry::parse(line.as_bytes()).unwrap(), Entry::parse(redacted.trim_ascii()).unwrap());
        assert_eq!((before.seq, before.at, &before.lane), (after.seq, after.at, &after.lane));
    }
    assert_eq!(redactor.masked, 0, "the demo holds no secrets");
}

#[test]
fn a_secret_in_bytes_that_are_no_text_is_masked_as_well() {
    let mut line = Vec::new();
    let bytes = b"\xff password=hunter22".to_vec();
    Entry { seq: Seq(1), at: Millis(2), lane: None, body: Body::Raw(bytes.into()) }.write(&mut line);
    let mut redactor = Redactor::default();
    let redacted = String::from_utf8(entry(line.trim_ascii(), &mut redactor)).unwrap();
    assert!(redacted.contains("password=[masked]") && !redacted.contains("b64"), "{redacted}");
    assert_eq!(redactor.masked, 1);
}

#[test]
fn a_replay_has_the_shape_of_ktx() {
    let replays = replays("tapes/demo.jsonl");
    assert_eq!(replays.len(), 2, "one a connection");
    for wrapper in &replays {
        assert_eq!(wrapper["memoryFlowReplaySchemaVersion"], 1);
        let replay = &wrapper["replay"];
        for key in ["runId", "connectionId", "adapter", "syncId"] {
            assert!(replay[key].as_str().is_some_and(|text| !text.is_empty()), "{key}");
        }
        assert_eq!(replay["status"], "done");
        assert!(replay["events"].as_array().unwrap().iter().all(|event| event["emittedAt"].is_string()));
        assert!(replay["details"]["transcripts"].is_array());
    }
    let handbook = &replays[1]["replay"];
    let of = |kind: &str| handbook["events"].as_array().unwrap().iter().filter(|event| event["type"] == kind).count();
    assert_eq!((of("work_unit_started"), of("work_unit_finished")), (8, 8), "seven units, one of them twice");
    let failed = handbook["events"].as_array().unwrap().iter().filter(|event| event["status"] == "failed").count();
    assert_eq!((failed, of("candidate_action"), of("saved")), (1, 7, 1));
    assert!(of("work_unit_step") > 30);
}

/// The replays of a tape with these notes, a second apart.
fn told(notes: &[(Option<(&str, u32)>, Note)]) -> Vec<Value> {
    let directory = tempfile::tempdir().unwrap();
    let mut bytes = Header::parse(TAPE.lines().next().unwrap().as_bytes()).unwrap().to_line();
    for (at, (lane, note)) in (0..).zip(notes) {
        let (json, lane) = (note.to_json(), lane.map(|(unit, attempt)| (unit.into(), attempt)));
        Entry { seq: Seq(at), at: Millis(at * 1_000), lane, body: Body::Note(&json) }.write(&mut bytes);
    }
    let path = directory.path().join("tape.jsonl");
    std::fs::write(&path, bytes).unwrap();
    replays(path.to_str().unwrap())
}

fn planned() -> (Option<(&'static str, u32)>, Note) {
    let unit = |key: &str| PlannedUnit { unit: key.into(), connection: "docs".into(), ..PlannedUnit::default() };
    (None, Note::RunPlanned(Box::new(RunPlanned { units: vec![unit("a"), unit("b")], ..RunPlanned::default() })))
}

fn started() -> Note {
    Note::AttemptStarted(Box::default())
}

fn over(outcome: Outcome, reason: &str, work: Work) -> Note {
    let verdict =
        Verdict { outcome, stop: StopReason::Natural, cause: Cause::Completed, reason: reason.into(), remedy: None };
    let json = serde_json::json!({"kind": "attempt_ended", "verdict": verdict, "work": work});
    Note::parse(json.to_string().as_bytes())
}

fn events(replay: &Value, kinds: &[&str]) -> Vec<Value> {
    let all = replay["replay"]["events"].as_array().unwrap().iter();
    all.filter(|event| kinds.contains(&event["type"].as_str().unwrap())).cloned().collect()
}

#[test]
fn waits_and_what_the_pass_settled_are_in_a_replay() {
    let paused = |wait_ms| Note::LimitPaused { until: None, limit: "five_hour".into(), wait_ms };
    let unmapped =
        Unmapped { raw_path: "x".into(), reason: "parse_error".into(), detail: None, fallback: "flagged".into() };
    let conflict = |unit: &str| serde_json::json!({"unitKey": unit, "kind": "near_duplicate"});
    let settled =
        Work { unmapped: vec![unmapped], conflicts: vec![conflict("a"), conflict("elsewhere")], ..Work::default() };
    let all = told(&[
        planned(),
        (None, paused(Some(5_000))),
        (None, paused(None)),
        (None, Note::LimitLifted),
        (Some(("reconcile", 1)), started()),
        (Some(("reconcile", 1)), over(Outcome::Failed, "no luck", Work::default())),
        (Some(("reconcile", 2)), started()),
        (Some(("reconcile", 2)), over(Outcome::Succeeded, "completed", settled)),
    ]);
    assert_eq!(all.len(), 1, "the pass is of no connection");
    let waits = events(&all[0], &["rate_limit_wait"]);
    assert_eq!((waits.len(), &waits[0]["remainingMs"]), (1, &5_000.into()), "KTX knows no wait without an end");
    assert!(waits[0]["resumeAtMs"].as_i64().unwrap() > 1_700_000_000_000);
    let reconciled = events(&all[0], &["reconciliation_finished"]);
    assert_eq!(reconciled.len(), 1);
    assert_eq!((&reconciled[0]["conflictCount"], &reconciled[0]["fallbackCount"]), (&1.into(), &1.into()));
}

#[test]
fn a_replay_tells_of_each_attempt_once_and_of_a_commit_only_if_there_is_one() {
    let again = |next| Note::RetryRequested { next, amendment: None };
    let busy = Note::RetryScheduled { next: 2, delay_ms: 1, cause: Cause::Transient };
    let all = told(&[
        planned(),
        (Some(("a", 1)), started()),
        (Some(("a", 1)), over(Outcome::Succeeded, "completed", Work::default())),
        (Some(("a", 1)), again(2)),
        (Some(("a", 2)), started()),
        (Some(("a", 2)), over(Outcome::Failed, "no luck", Work::default())),
        // What was never started ends all the same, and waits in vain.
        (Some(("b", 1)), over(Outcome::Failed, "too large", Work::default())),
        (Some(("b", 1)), busy),
        (None, Note::RunEnded(RunEnded { outcome: "error".into(), ..RunEnded::default() })),
    ]);
    let ends = events(&all[0], &["work_unit_finished", "saved"]);
    let told: Vec<_> =
        ends.iter().map(|end| (end["unitKey"].as_str(), end["status"].as_str(), end["reason"].as_str())).collect();
    assert_eq!(
        told,
        [
            (Some("a"), Some("success"), None),
            (Some("a"), Some("failed"), Some("no luck")),
            (Some("b"), Some("failed"), Some("too large")),
        ]
    );
}
