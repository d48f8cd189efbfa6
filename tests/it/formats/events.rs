//! JSON that programs read about a run: events, lists, comparisons, reports and exports, all of committed tapes. The
//! tapes contain everything that these outputs can show, with fixed times and ids, so that only sentences have to be
//! replaced.

use std::{fs, path::PathBuf};

use ingestdeck_core::{
    actions::{ActionPhase, event::ActionKind},
    tape::{EntryBody, Note, TapeEntry},
};
use serde_json::Value;

use super::golden::{
    assert_published, is_message, json_lines, lines_without, path, pretty_without, read,
};
use crate::commands::test_dir::{TestDir, parse_json_events};

/// Ids and tapes of three runs: one with every kind of success and some failures, one that ended before anything was
/// saved, and one that failed in a project without git.
pub(super) const RUNS: [(&str, &str); 3] = [
    ("01a20000-0000-7000-8000-0000000000aa", "run.jsonl"),
    ("01a20000-0001-7000-8000-0000000000cc", "run-unsaved.jsonl"),
    ("01a20000-0002-7000-8000-0000000000dd", "run-failed.jsonl"),
];

/// Id of a run that recorded nothing.
const EMPTY: &str = "01a20000-0003-7000-8000-0000000000ee";

/// A directory in which all of these runs are recorded.
pub(super) fn recorded() -> TestDir {
    let place = TestDir::new();
    for (run, tape) in RUNS {
        place.write(
            &format!(".ktx/ingestdeck/runs/{run}/tape.jsonl"),
            read(tape),
        );
    }
    place
}

fn tape(name: &str) -> String {
    path(name).to_str().unwrap().to_owned()
}

/// The objects that a command prints, without the path of the test directory.
fn objects(place: &TestDir, args: &[&str]) -> Vec<Value> {
    let ran = place.run(args);
    let root = place.path("").canonicalize().unwrap();
    json_lines(
        &ran.expect_success()
            .replace(root.to_str().unwrap().trim_end_matches('/'), "<project>"),
    )
}

/// The same for every recorded run, whose id replaces `RUN`.
fn objects_of_all(place: &TestDir, args: &[&str]) -> Vec<Value> {
    let of = |run: &str| {
        let args: Vec<&str> = args
            .iter()
            .map(|arg| if *arg == "RUN" { run } else { *arg })
            .collect();
        objects(place, &args)
    };
    RUNS.iter().flat_map(|(run, _)| of(run)).collect()
}

fn assert_objects(name: &str, objects: Vec<Value>) {
    let text: String = objects
        .into_iter()
        .map(|object| pretty_without(object, &is_message))
        .collect();
    assert_published(name, &text);
}

fn assert_lines(name: &str, objects: Vec<Value>) {
    assert_published(name, &lines_without(objects, &is_message));
}

#[test]
fn tapes_of_the_outputs_are_as_the_writer_writes_them() {
    for (_, name) in RUNS {
        for line in read(name).lines().skip(1) {
            let entry = TapeEntry::parse(line.as_bytes()).unwrap();
            let mut again = Vec::new();
            entry.write(&mut again);
            assert_eq!(String::from_utf8(again).unwrap().trim_end(), line);
            if let EntryBody::Note(json) = entry.body {
                assert_eq!(
                    String::from_utf8(Note::parse(json).to_json()).unwrap(),
                    String::from_utf8_lossy(json)
                );
            }
        }
    }
}

#[test]
fn events_of_every_kind_are_as_published() {
    let place = TestDir::new();
    let mut lines = Vec::new();
    for (_, name) in RUNS {
        let ran = place.run(&["replay", &tape(name), "--ui", "json"]);
        parse_json_events(ran.expect_success());
        lines.extend(json_lines(&ran.stdout));
    }
    let any = |key: &str, word: &str| {
        let found = |line: &Value| {
            line["event"][key] == word || line["event"]["action"][key] == word || line[key] == word
        };
        assert!(lines.iter().any(found), "no event whose {key} is {word}");
    };
    for kind in ["started", "action", "completed", "run", "unit", "message"] {
        any("type", kind);
    }
    let kinds = [
        ActionKind::Command,
        ActionKind::Tool,
        ActionKind::FileChange,
        ActionKind::WebSearch,
        ActionKind::Note,
        ActionKind::Warning,
    ];
    kinds.iter().for_each(|kind| any("kind", kind.as_str()));
    [
        ActionPhase::Started,
        ActionPhase::Updated,
        ActionPhase::Completed,
    ]
    .iter()
    .for_each(|phase| any("phase", phase.as_str()));
    any("level", "warning");
    for state in [
        "planned",
        "paused",
        "resumed",
        "integrating",
        "saved",
        "not saved",
        "remark",
        "ended",
        "summary",
    ] {
        any("state", state);
    }
    for state in [
        "queued",
        "running",
        "silent",
        "held",
        "waiting",
        "succeeded",
        "budget",
        "failed",
        "stopped",
        "reused",
    ] {
        any("state", state);
    }
    for state in [
        "integrated",
        "unchanged",
        "conflict",
        "untried",
        "interrupted",
    ] {
        any("state", state);
    }
    ["declined", "cut short"]
        .iter()
        .for_each(|word| any("call", word));
    assert_lines("events.jsonl", lines);
}

#[test]
fn lists_of_runs_are_as_published() {
    let place = recorded();
    assert_lines(
        "runs-list.jsonl",
        objects(&place, &["runs", "list", "--ui", "json"]),
    );
    assert_lines(
        "runs-show.jsonl",
        objects_of_all(&place, &["runs", "show", "RUN", "--ui", "json"]),
    );
    // Incremental planning needs all of these runs, except the one that recorded nothing.
    let (known, tape) = RUNS[2];
    let header = read(tape).lines().next().unwrap().replace(known, EMPTY);
    place.write(
        &format!(".ktx/ingestdeck/runs/{EMPTY}/tape.jsonl"),
        header + "\n",
    );
    let prune = |more: &[&str]| {
        objects(
            &place,
            &[&["runs", "prune", "--keep", "0", "--ui", "json"], more].concat(),
        )
    };
    assert_lines(
        "runs-prune.jsonl",
        [prune(&["--dry-run"]), prune(&[])].concat(),
    );
}

/// A session of the real CLI, shortened, and one about which nothing is known.
#[test]
fn sessions_and_their_prompts_are_as_published() {
    let place = TestDir::new();
    let folder =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sessions/-home-dev-project");
    let name = "5e551011-4a4a-4b4b-8c8c-0123456789ab.jsonl";
    let known = place.write(
        &format!("sessions/{name}"),
        fs::read(folder.join(name)).unwrap(),
    );
    place.write(
        "sessions/empty.jsonl",
        "{\"type\":\"mode\",\"mode\":\"normal\",\"sessionId\":\"empty\"}\n",
    );
    let mut listed = objects(&place, &["replay", "sessions", "--ui", "json"]);
    listed.sort_by_key(|session| session["bytes"].as_u64());
    let is_volatile = |key: &str| matches!(key, "path" | "modified_at");
    assert_published("sessions.jsonl", &lines_without(listed, &is_volatile));
    let events = objects(&place, &["replay", known.to_str().unwrap(), "--ui", "json"]);
    let prompts = events
        .into_iter()
        .filter(|line| line["event"]["action"]["detail"].get("prompt").is_some());
    assert_lines("session-prompts.jsonl", prompts.collect());
}

#[test]
fn comparison_of_runs_is_as_published() {
    let place = TestDir::new();
    let args = [
        "diff",
        &tape("run.jsonl"),
        &tape("run-unsaved.jsonl"),
        "--all",
        "--ui",
        "json",
    ];
    assert_lines("diff.jsonl", objects(&place, &args));
}

#[test]
fn report_snapshots_are_as_published() {
    let place = recorded();
    place.write(".ktx/ingest-traces/local-formats1/trace.jsonl", "");
    assert_objects(
        "report.json",
        objects_of_all(&place, &["report", "RUN", "--format", "json"]),
    );
}

#[test]
fn exported_traces_are_as_published() {
    let place = recorded();
    assert_lines(
        "trace.jsonl",
        objects_of_all(&place, &["runs", "export", "RUN", "--format", "trace"]),
    );
}

#[test]
fn exported_memory_flows_are_as_published() {
    let place = recorded();
    assert_objects(
        "memory-flow.json",
        objects_of_all(
            &place,
            &["runs", "export", "RUN", "--format", "memory-flow"],
        ),
    );
}
