//! Exports of recorded runs.

use std::path::Path;

use serde_json::Value;

use super::*;
use ingestdeck_core::tape::{
    EntryBody, Header, Millis, Note, Seq, TapeEntry,
    note::{
        AttemptOutcome, AttemptOutput, AttemptStarted, ContentDigests, DiffCounts, PlannedUnit,
        RunEnded, RunPlanned, RunSaved, SourceRead, StopReason, Verdict, VerdictCause,
        attempt_output::UnmappedFile,
    },
};
use ingestdeck_records::replay::FileSource;

const TAPE: &str = include_str!("../../../tests/fixtures/tapes/demo.jsonl");

fn replays(name: &str) -> Vec<Value> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .join("tests/fixtures")
        .join(name);
    memory_flows(FileSource::open(&path).unwrap(), false).unwrap()
}

/// The exported lines of a tape.
fn exported(tape: &[u8]) -> (Vec<u8>, usize) {
    let mut redactor = Redactor::default();
    let mut out = Vec::new();
    let failed = |error: io::Error| error;
    mask_lines(&mut redactor, || Ok(tape), failed, &mut |line| {
        out.extend_from_slice(line);
        out.push(b'\n');
        Ok(())
    })
    .unwrap();
    (out, redactor.masked)
}

#[test]
fn tape_without_secrets_is_exported_as_it_is() {
    for tape in [
        TAPE,
        include_str!("../../../tests/fixtures/tapes/real.jsonl"),
    ] {
        let (out, masked) = exported(tape.as_bytes());
        assert_eq!(masked, 0);
        assert!(out == tape.as_bytes(), "the bytes differ");
    }
}

#[test]
fn secret_in_undecodable_bytes_is_masked() {
    let mut line = Vec::new();
    for bytes in [
        &b"\xff password=hunter22"[..],
        b"\xff\xfep\0a\0s\0s\0w\0o\0r\0d\0=\0h\0u\0n\0t\0e\0r\x002\x002\0",
        b"\xff kept",
    ] {
        TapeEntry {
            seq: Seq(1),
            at: Millis(2),
            attempt: None,
            body: EntryBody::StdoutRaw(bytes.into()),
        }
        .write(&mut line);
    }
    let (out, masked) = exported(&line);
    assert_eq!(masked, 2);
    let bodies: Vec<Vec<u8>> = out
        .split(|byte| *byte == b'\n')
        .filter_map(|line| match TapeEntry::parse(line).ok()?.body {
            EntryBody::StdoutRaw(bytes) => Some(bytes.into_owned()),
            _ => None,
        })
        .collect();
    assert_eq!(bodies[0], "\u{fffd} password=[masked]".as_bytes());
    assert_eq!(
        bodies[1],
        "\u{fffd}\u{fffd}p\0a\0s\0s\0w\0o\0r\0d\0=\0[masked]\0".as_bytes()
    );
    assert_eq!(bodies[2], b"\xff kept");
}

#[test]
fn memory_flow_replay_has_ktx_shape() {
    let replays = replays("tapes/demo.jsonl");
    assert_eq!(replays.len(), 2, "one a connection");
    for wrapper in &replays {
        assert_eq!(wrapper["memoryFlowReplaySchemaVersion"], 1);
        let replay = &wrapper["replay"];
        for key in ["runId", "connectionId", "adapter", "syncId"] {
            assert!(
                replay[key].as_str().is_some_and(|text| !text.is_empty()),
                "{key}"
            );
        }
        assert_eq!(replay["status"], "done");
        assert!(
            replay["events"]
                .as_array()
                .unwrap()
                .iter()
                .all(|event| event["emittedAt"].is_string())
        );
        assert!(replay["details"]["transcripts"].is_array());
    }
    let handbook = &replays[1]["replay"];
    let of = |kind: &str| {
        handbook["events"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|event| event["type"] == kind)
            .count()
    };
    assert_eq!(
        (of("work_unit_started"), of("work_unit_finished")),
        (8, 8),
        "seven units, one of them twice"
    );
    let failed = handbook["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["status"] == "failed")
        .count();
    assert_eq!((failed, of("candidate_action"), of("saved")), (1, 7, 1));
    assert!(of("work_unit_step") > 30);
}

/// The replays of a tape with these notes, a second apart.
fn replays_of(notes: &[(Option<(&str, u32)>, Note)]) -> Vec<Value> {
    let directory = tempfile::tempdir().unwrap();
    let mut bytes = Header::parse(TAPE.lines().next().unwrap().as_bytes())
        .unwrap()
        .to_line();
    for (at, (attempt, note)) in (0..).zip(notes) {
        let (json, attempt) = (
            note.to_json(),
            attempt.map(|(unit, attempt)| (unit.into(), attempt)),
        );
        TapeEntry {
            seq: Seq(at),
            at: Millis(at * 1_000),
            attempt,
            body: EntryBody::Note(&json),
        }
        .write(&mut bytes);
    }
    let path = directory.path().join("tape.jsonl");
    std::fs::write(&path, bytes).unwrap();
    replays(path.to_str().unwrap())
}

fn planned() -> (Option<(&'static str, u32)>, Note) {
    let unit = |key: &str| PlannedUnit {
        unit: key.into(),
        connection: "docs".into(),
        ..PlannedUnit::default()
    };
    (
        None,
        Note::RunPlanned(Box::new(RunPlanned {
            units: vec![unit("a"), unit("b")],
            ..RunPlanned::default()
        })),
    )
}

fn started() -> Note {
    Note::AttemptStarted(Box::default())
}

fn over(outcome: AttemptOutcome, reason: &str, work: AttemptOutput) -> Note {
    let verdict = Verdict {
        outcome,
        stop: StopReason::Natural,
        cause: VerdictCause::Completed,
        reason: reason.into(),
        remedy: None,
    };
    let json = serde_json::json!({"kind": "attempt_ended", "verdict": verdict, "work": work});
    Note::parse(json.to_string().as_bytes())
}

fn events(replay: &Value, kinds: &[&str]) -> Vec<Value> {
    let all = replay["replay"]["events"].as_array().unwrap().iter();
    all.filter(|event| kinds.contains(&event["type"].as_str().unwrap()))
        .cloned()
        .collect()
}

#[test]
fn waits_and_reconcile_decisions_are_in_a_replay() {
    let paused = |wait_ms| Note::LimitPaused {
        until: None,
        limit: "five_hour".into(),
        wait_ms,
    };
    let unmapped = UnmappedFile {
        raw_path: "x".into(),
        reason: "parse_error".into(),
        detail: None,
        fallback: "flagged".into(),
    };
    let conflict = |unit: &str| serde_json::json!({"unitKey": unit, "kind": "near_duplicate"});
    let conflicts = vec![conflict("a"), conflict("unit-of-an-earlier-run")];
    let settled = AttemptOutput {
        unmapped: vec![unmapped],
        conflicts,
        ..AttemptOutput::default()
    };
    let all = replays_of(&[
        planned(),
        (None, paused(Some(5_000))),
        (None, paused(None)),
        (None, Note::LimitLifted),
        (Some(("reconcile", 1)), started()),
        (
            Some(("reconcile", 1)),
            over(AttemptOutcome::Failed, "no luck", AttemptOutput::default()),
        ),
        (Some(("reconcile", 2)), started()),
        (
            Some(("reconcile", 2)),
            over(AttemptOutcome::Succeeded, "completed", settled),
        ),
    ]);
    assert_eq!(all.len(), 1, "the reconcile step has no replay");
    let waits = events(&all[0], &["rate_limit_wait"]);
    assert_eq!(
        (waits.len(), &waits[0]["remainingMs"]),
        (1, &5_000.into()),
        "KTX knows no wait without an end"
    );
    assert!(waits[0]["resumeAtMs"].as_i64().unwrap() > 1_700_000_000_000);
    let reconciled = events(&all[0], &["reconciliation_finished"]);
    assert_eq!(reconciled.len(), 1);
    assert_eq!(
        (
            &reconciled[0]["conflictCount"],
            &reconciled[0]["fallbackCount"]
        ),
        (&2.into(), &1.into())
    );
}

/// KTX counts what the reconcile step changed and merged, and each replay has the part of its connection.
#[test]
fn provenance_of_the_reconcile_step_is_counted() {
    let unit = |key: &str, connection: &str, file: &str| PlannedUnit {
        unit: key.into(),
        connection: connection.into(),
        adapter: "docs".into(),
        raw_files: vec![file.into()],
        ..PlannedUnit::default()
    };
    let units = vec![unit("a", "docs", "a.md"), unit("b", "shop", "b.md")];
    let removed = serde_json::json!({"target": "wiki", "type": "removed", "key": "p", "rawPaths": ["docs/gone.md"]});
    let merged = serde_json::json!({"rawPath": "docs/a.md", "artifactKind": "wiki", "artifactKey": "p", "actionType": "merged", "reason": "r"});
    let settled = AttemptOutput {
        actions: vec![serde_json::from_value(removed).unwrap()],
        resolutions: vec![merged],
        ..AttemptOutput::default()
    };
    let all = replays_of(&[
        (
            None,
            Note::RunPlanned(Box::new(RunPlanned {
                job: "j".into(),
                units,
                ..RunPlanned::default()
            })),
        ),
        (Some(("a", 1)), started()),
        (
            Some(("a", 1)),
            over(
                AttemptOutcome::Succeeded,
                "completed",
                AttemptOutput::default(),
            ),
        ),
        (Some(("b", 1)), started()),
        (
            Some(("b", 1)),
            over(
                AttemptOutcome::Succeeded,
                "completed",
                AttemptOutput::default(),
            ),
        ),
        (Some(("reconcile", 1)), started()),
        (
            Some(("reconcile", 1)),
            over(AttemptOutcome::Succeeded, "completed", settled),
        ),
        (
            None,
            Note::RunSaved(RunSaved {
                commit: Some("c0ffee".into()),
                ..RunSaved::default()
            }),
        ),
        (
            None,
            Note::RunEnded(RunEnded {
                outcome: "done".into(),
                ..RunEnded::default()
            }),
        ),
    ]);
    let counts: Vec<_> = all
        .iter()
        .map(|replay| {
            let of = |kind: &str, key: &str| events(replay, &[kind])[0][key].as_u64().unwrap();
            (
                of("provenance_recorded", "rowCount"),
                of("saved", "wikiCount"),
            )
        })
        .collect();
    assert_eq!(
        counts,
        [(2, 1), (1, 0)],
        "removal and merge; a file without output"
    );
}

#[test]
fn replay_has_each_attempt_once_and_no_invented_commit() {
    let again = |next| Note::RetryRequested {
        next,
        amendment: None,
    };
    let busy = Note::RetryScheduled {
        next: 2,
        delay_ms: 1,
        cause: VerdictCause::Transient,
    };
    let all = replays_of(&[
        planned(),
        (Some(("a", 1)), started()),
        (
            Some(("a", 1)),
            over(
                AttemptOutcome::Succeeded,
                "completed",
                AttemptOutput::default(),
            ),
        ),
        (Some(("a", 1)), again(2)),
        (Some(("a", 2)), started()),
        (
            Some(("a", 2)),
            over(AttemptOutcome::Failed, "no luck", AttemptOutput::default()),
        ),
        // A unit that was never started ends, too.
        (
            Some(("b", 1)),
            over(
                AttemptOutcome::Failed,
                "too large",
                AttemptOutput::default(),
            ),
        ),
        (Some(("b", 1)), busy),
        (
            None,
            Note::RunEnded(RunEnded {
                outcome: "error".into(),
                ..RunEnded::default()
            }),
        ),
    ]);
    let ends = events(&all[0], &["work_unit_finished", "saved"]);
    let found: Vec<_> = ends
        .iter()
        .map(|end| {
            (
                end["unitKey"].as_str(),
                end["status"].as_str(),
                end["reason"].as_str(),
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            (Some("a"), Some("success"), None),
            (Some("a"), Some("failed"), Some("no luck")),
            (Some("b"), Some("failed"), Some("too large")),
        ]
    );
}

#[test]
fn memory_flow_includes_source_skills_and_provenance() {
    let unit = PlannedUnit {
        unit: "a".into(),
        connection: "docs".into(),
        adapter: "docs".into(),
        raw_files: vec!["a.md".into()],
        peer_files: Some(3),
        ..PlannedUnit::default()
    };
    let plan = RunPlanned {
        job: "j".into(),
        units: vec![unit],
        ..RunPlanned::default()
    };
    let diff = DiffCounts {
        added: 4,
        unchanged: 2,
        ..DiffCounts::default()
    };
    let read = SourceRead {
        connection: "docs".into(),
        adapter: "docs".into(),
        diff,
        ..SourceRead::default()
    };
    let content = ContentDigests {
        skills: vec!["docs_ingest".into()],
        ..ContentDigests::default()
    };
    let begun = AttemptStarted {
        content: Some(content),
        ..AttemptStarted::default()
    };
    let all = replays_of(&[
        (None, Note::RunPlanned(Box::new(plan))),
        (None, Note::SourceRead(Box::new(read))),
        (Some(("a", 1)), Note::AttemptStarted(Box::new(begun))),
        (
            Some(("a", 1)),
            over(
                AttemptOutcome::Succeeded,
                "completed",
                AttemptOutput::default(),
            ),
        ),
        (
            None,
            Note::RunSaved(RunSaved {
                commit: Some("c0ffee".into()),
                ..RunSaved::default()
            }),
        ),
        (
            None,
            Note::RunEnded(RunEnded {
                outcome: "done".into(),
                ..RunEnded::default()
            }),
        ),
    ]);
    assert_eq!(all[0]["replay"]["plannedWorkUnits"][0]["peerFileCount"], 3);
    let found: Vec<String> = all[0]["replay"]["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| {
            let facts = ["fileCount", "rawFileCount", "skills", "rowCount"]
                .iter()
                .filter_map(|key| event.get(*key));
            format!(
                "{} {}",
                event["type"].as_str().unwrap(),
                facts.map(Value::to_string).collect::<String>()
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            "source_acquired 6",
            "scope_detected ",
            "raw_snapshot_written 6",
            "diff_computed ",
            "chunks_planned ",
            "work_unit_started [\"docs_ingest\"]",
            "work_unit_finished ",
            "saved ",
            "provenance_recorded 1",
            "report_created ",
        ]
    );
}
