//! KTX's records through the fold that every other record goes through.

use std::path::Path;

use proptest::prelude::*;

use crate::{
    replay::{FileSource, Format},
    run::{
        Progress, RunOutcome, Source as _, Timeline,
        state::{RowEnd, RowKind, UnitStatus},
    },
    tape::note::work::{Change, Target},
};

fn opened(name: &str) -> FileSource {
    FileSource::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/ktx").join(name)).unwrap()
}

fn folded(source: FileSource) -> Timeline {
    let mut timeline = Timeline::new(Box::new(source));
    while timeline.advance(1 << 20, &mut |_| {}).unwrap() == Progress::More {}
    timeline
}

#[test]
fn a_replay_of_ktx_shows_units_attempts_and_what_they_saved() {
    let source = opened("replay.memory-flow.v1.json");
    assert_eq!((source.format(), source.origin().format), (Format::MemoryFlow, "KTX memory-flow replay"));
    assert_eq!(source.origin().started_at.unwrap().to_string(), "2026-06-20T09:00:00Z");
    let timeline = folded(source);
    let state = &timeline.story().state;
    let units: Vec<_> = state.units.iter().map(|unit| (unit.key.as_str(), unit.status)).collect();
    assert_eq!(
        units,
        [
            ("lookml-harvest", UnitStatus::Succeeded),
            ("lookml-orphans", UnitStatus::Failed),
            ("lookml-dashboard-yield", UnitStatus::Untried)
        ]
    );
    assert_eq!(RunOutcome::of(state, false), RunOutcome::Partial);
    let harvest = state.units[0].latest().unwrap();
    assert_eq!((harvest.started_at.0, harvest.ended_at.unwrap().0), (3_000, 70_000));
    let actions: Vec<_> =
        harvest.work.as_ref().unwrap().actions.iter().map(|a| (a.target, a.change, &*a.key)).collect();
    assert_eq!(actions, [(Target::Wiki, Change::Created, "harvest-yield"), (Target::Sl, Change::Updated, "harvests")]);
    let verdict = state.units[1].latest().unwrap().verdict.clone().unwrap();
    assert_eq!(
        (verdict.cause.word(), verdict.reason.as_str()),
        ("tool failures", "2 tool call(s) failed during WorkUnit lookml-orphans")
    );
    assert_eq!(state.lost, Default::default());
    let log: Vec<_> = timeline.story().remarks().iter().map(|remark| remark.text.as_str()).collect();
    for expected in [
        "files: +5 ~0 -0 =0",
        "saved: 1 wiki pages, 1 sources, commit 0f3c2a91d7",
        "paused: five_hour",
        "from the future",
    ] {
        assert!(log.contains(&expected), "{expected} in {log:?}");
    }
    assert!(!log.iter().any(|text| text.contains("still at it")), "what passes is not kept");
    assert_eq!(log.iter().filter(|text| text.starts_with("paused")).count(), 1, "one wait, however often it is told");
    assert_eq!(state.paused, None);
}

#[test]
fn a_bare_replay_without_times_says_so() {
    let source = opened("replay.bare.json");
    assert_eq!((source.format(), source.origin().has_times), (Format::MemoryFlow, false));
    let timeline = folded(source);
    let state = &timeline.story().state;
    assert_eq!((state.units.len(), state.ended.as_ref()), (3, None), "its run goes on");
    assert!(state.now.0 > 0);
}

#[test]
fn a_transcript_of_ktx_shows_its_calls_in_the_order_in_which_they_began() {
    let source = opened("transcript.jsonl");
    assert_eq!((source.format(), source.origin().has_times), (Format::KtxTranscript, true));
    let timeline = folded(source);
    let state = &timeline.story().state;
    let units: Vec<_> = state.units.iter().map(|unit| (unit.key.as_str(), unit.attempts.len())).collect();
    assert_eq!(units, [("lookml-harvest", 1), ("lookml-orphans", 2)]);
    let calls = |unit: usize, attempt: usize| {
        let attempt = &state.units[unit].attempts[attempt];
        let rows = timeline.story().rows(attempt.lane).iter().filter(|row| row.kind == RowKind::Tool);
        (attempt.turns, attempt.failures, rows.map(|row| row.end(u64::MAX)).collect::<Vec<_>>())
    };
    assert_eq!(calls(0, 0), (0, 0, vec![RowEnd::Ok, RowEnd::Ok]));
    assert_eq!(calls(1, 0), (0, 1, vec![RowEnd::Failed]), "a declined write is a failure of KTX's");
    assert_eq!(calls(1, 1), (0, 1, vec![RowEnd::Ok, RowEnd::Failed]));
    assert_eq!(state.lost.malformed, 0);
    assert_eq!(state.now.0, 5_009);
}

#[test]
fn any_moment_of_them_can_be_read_again() {
    for name in ["replay.memory-flow.v1.json", "replay.bare.json", "transcript.jsonl"] {
        let mut timeline = folded(opened(name));
        let whole = timeline.story().state.clone();
        timeline.seek(3).unwrap();
        assert_eq!(timeline.story().state.entries, 3);
        timeline.seek(u64::MAX).unwrap();
        assert_eq!(timeline.story().state, whole, "{name}");
    }
}

proptest! {
    #[test]
    fn whatever_stands_in_a_replay_is_read(
        kind in "work_unit_[a-z]{0,9}|work_unit_started|work_unit_finished|rate_limit_wait|stage_progress|saved|\\PC{0,5}",
        unit in "\\PC{0,8}",
        value in prop_oneof![Just("null".to_owned()), Just("-1".to_owned()), Just("1e400".to_owned()), Just("[{}]".to_owned()), Just("\"x\"".to_owned())],
    ) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let (kind, unit) = (serde_json::to_string(&kind).unwrap(), serde_json::to_string(&unit).unwrap());
        let value = if value == "1e400" { "12345678901234567890".to_owned() } else { value };
        let event = format!(r#"{{"type":{kind},"unitKey":{unit},"reason":{value},"percent":{value},"remainingMs":{value},"emittedAt":{value}}}"#);
        let text = format!(r#"{{"memoryFlowReplaySchemaVersion":1,"replay":{{"runId":{value},"events":[{event},{event},{value}],"plannedWorkUnits":[{value},{event}],"errors":{value},"details":{value}}}}}"#);
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        let source = FileSource::open(file.path()).unwrap();
        prop_assert_eq!(source.format(), Format::MemoryFlow);
        let timeline = folded(source);
        prop_assert_eq!(timeline.story().state.lost, Default::default());
    }

    #[test]
    fn whatever_stands_in_a_transcript_is_read(
        lines in prop::collection::vec(prop_oneof![
            Just(r#"{"ts":"2026-06-20T09:00:10.000Z","wuKey":"u","toolName":"t","durationMs":1e300}"#.to_owned()),
            Just(r#"{"ts":"never","wuKey":"u","toolName":"t","durationMs":-5,"input":[1],"output":{}}"#.to_owned()),
            Just(r#"{"ts":1,"wuKey":2,"toolName":3}"#.to_owned()),
            Just(r#"{"ts":"9999-12-31T23:59:59.999Z","wuKey":"","toolName":"t"}"#.to_owned()),
            Just(r#"{"ts":"2026-06-20T09:00:10.000Z","wuKey":"v","attempt":0,"toolName":"t","error":{}}"#.to_owned()),
            "\\PC{0,20}",
        ], 0..12),
    ) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let first = r#"{"ts":"2026-06-20T09:00:00.000Z","wuKey":"u","toolName":"t"}"#;
        std::io::Write::write_all(&mut file, format!("{first}\n{}", lines.join("\n")).as_bytes()).unwrap();
        let source = FileSource::open(file.path()).unwrap();
        prop_assert_eq!(source.format(), Format::KtxTranscript);
        let timeline = folded(source);
        prop_assert_eq!(timeline.story().state.lost.torn, 0);
        prop_assert!(timeline.story().state.units.iter().any(|unit| unit.key.as_str() == "u"));
    }
}
