//! KTX's records, converted and folded like every other record.

use std::path::Path;

use proptest::prelude::*;

use crate::replay::{FileSource, detect::InputFormat};
use ingestdeck_core::{
    run::{
        EntrySource as _, PollStatus, RunOutcome, Timeline,
        state::{RowKind, RowOutcome, UnitStatus},
    },
    tape::note::attempt_output::{ArtifactChange, ArtifactTarget},
};

fn opened(name: &str) -> FileSource {
    FileSource::open(
        &Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
            .join("tests/fixtures/ktx")
            .join(name),
    )
    .unwrap()
}

fn folded(source: FileSource) -> Timeline {
    let mut timeline = Timeline::new(Box::new(source));
    while timeline.advance(1 << 20, &mut |_| {}).unwrap() == PollStatus::More {}
    timeline
}

#[test]
fn ktx_replay_shows_units_attempts_and_saved_work() {
    let source = opened("replay.memory-flow.v1.json");
    assert_eq!(source.info().format, "KTX memory-flow replay");
    assert_eq!(
        source.info().started_at.unwrap().to_string(),
        "2026-06-20T09:00:00Z"
    );
    let timeline = folded(source);
    let state = &timeline.view().state;
    let units: Vec<_> = state
        .units
        .iter()
        .map(|unit| (unit.key.as_str(), unit.status))
        .collect();
    assert_eq!(
        units,
        [
            ("lookml-harvest", UnitStatus::Succeeded),
            ("lookml-orphans", UnitStatus::Failed),
            ("lookml-dashboard-yield", UnitStatus::NotStarted)
        ]
    );
    assert_eq!(RunOutcome::from_state(state, false), RunOutcome::Partial);
    let harvest = state.units[0].latest().unwrap();
    assert_eq!(
        (harvest.started_at.0, harvest.ended_at.unwrap().0),
        (3_000, 70_000)
    );
    let actions: Vec<_> = harvest
        .delivery
        .output
        .as_ref()
        .unwrap()
        .actions
        .iter()
        .map(|a| (a.target, a.change, &*a.key))
        .collect();
    assert_eq!(
        actions,
        [
            (
                ArtifactTarget::Wiki,
                ArtifactChange::Created,
                "harvest-yield"
            ),
            (
                ArtifactTarget::SemanticLayer,
                ArtifactChange::Updated,
                "harvests"
            )
        ]
    );
    let verdict = state.units[1].latest().unwrap().verdict.clone().unwrap();
    assert_eq!(
        (verdict.cause.label(), verdict.reason.as_str()),
        (
            "tool failures",
            "2 tool call(s) failed during WorkUnit lookml-orphans"
        )
    );
    assert_eq!(state.loss_counts, Default::default());
    let log: Vec<_> = timeline
        .view()
        .messages()
        .iter()
        .map(|message| message.text.as_str())
        .collect();
    for expected in [
        "files: +5 ~0 -0 =0",
        "saved: 1 wiki pages, 1 sources, commit 0f3c2a91d7",
        "paused: 5h limit",
        "from the future",
    ] {
        assert!(log.contains(&expected), "{expected} in {log:?}");
    }
    assert!(
        !log.iter().any(|text| text.contains("still at it")),
        "transient progress is not kept"
    );
    assert_eq!(
        log.iter().filter(|text| text.starts_with("paused")).count(),
        1,
        "repeated reports of one wait count once"
    );
    assert_eq!(state.limits.pause, None);
}

#[test]
fn bare_replay_without_times_has_no_times() {
    let source = opened("replay.bare.json");
    assert_eq!(
        (source.info().format, source.info().has_times),
        (InputFormat::MemoryFlow.description(), false)
    );
    let timeline = folded(source);
    let state = &timeline.view().state;
    assert_eq!(
        (state.units.len(), state.ended.as_ref()),
        (3, None),
        "its run is still running"
    );
    assert!(state.last_entry_at.0 > 0);
}

#[test]
fn ktx_transcript_orders_calls_by_start_time() {
    let source = opened("transcript.jsonl");
    assert_eq!(
        (source.info().format, source.info().has_times),
        (InputFormat::KtxTranscript.description(), true)
    );
    let timeline = folded(source);
    let state = &timeline.view().state;
    let units: Vec<_> = state
        .units
        .iter()
        .map(|unit| (unit.key.as_str(), unit.attempts.len()))
        .collect();
    assert_eq!(units, [("lookml-harvest", 1), ("lookml-orphans", 2)]);
    let calls = |unit: usize, attempt: usize| {
        let attempt = &state.units[unit].attempts[attempt];
        let rows = timeline
            .view()
            .rows(attempt.id)
            .iter()
            .filter(|row| row.kind == RowKind::Tool);
        (
            attempt.counts.turns,
            attempt.counts.failures,
            rows.map(|row| row.end(u64::MAX)).collect::<Vec<_>>(),
        )
    };
    assert_eq!(calls(0, 0), (0, 0, vec![RowOutcome::Ok, RowOutcome::Ok]));
    assert_eq!(
        calls(1, 0),
        (0, 1, vec![RowOutcome::Failed]),
        "a declined write is a failure of KTX's"
    );
    assert_eq!(
        calls(1, 1),
        (0, 1, vec![RowOutcome::Ok, RowOutcome::Failed])
    );
    assert_eq!(state.loss_counts.malformed, 0);
    assert_eq!(state.last_entry_at.0, 5_009);
}

#[test]
fn rewritten_entries_can_be_read_again() {
    for name in [
        "replay.memory-flow.v1.json",
        "replay.bare.json",
        "transcript.jsonl",
    ] {
        let mut timeline = folded(opened(name));
        let whole = timeline.view().state.clone();
        timeline.seek(3).unwrap();
        assert_eq!(timeline.view().state.entries, 3);
        timeline.seek(u64::MAX).unwrap();
        assert_eq!(timeline.view().state, whole, "{name}");
    }
}

proptest! {
    #[test]
    fn any_replay_content_is_accepted(
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
        prop_assert_eq!(source.info().format, InputFormat::MemoryFlow.description());
        let timeline = folded(source);
        prop_assert_eq!(timeline.view().state.loss_counts, Default::default());
    }

    #[test]
    fn any_transcript_content_is_accepted(
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
        prop_assert_eq!(source.info().format, InputFormat::KtxTranscript.description());
        let timeline = folded(source);
        prop_assert_eq!(timeline.view().state.loss_counts.corrupt_entries, 0);
        prop_assert!(timeline.view().state.units.iter().any(|unit| unit.key.as_str() == "u"));
    }
}
