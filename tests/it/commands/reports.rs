//! `report` with every kind of argument that a user may pass.

use std::{fs, path::Path};

use serde_json::Value;

use super::test_dir::TestDir;

fn fixture(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(path)
        .to_str()
        .unwrap()
        .to_owned()
}

/// A directory with one recorded run.
fn recorded() -> TestDir {
    let place = TestDir::new();
    let tape = fs::read_to_string(fixture("tapes/real.jsonl")).unwrap();
    let run: Value = serde_json::from_str(tape.lines().next().unwrap()).unwrap();
    place.write(
        &format!(
            ".ktx/ingestdeck/runs/{}/tape.jsonl",
            run["run"].as_str().unwrap()
        ),
        tape,
    );
    place
}

#[test]
fn report_accepts_every_name_of_a_run() {
    let place = recorded();
    let latest = place.run(&["report"]);
    assert!(
        latest
            .expect_success()
            .starts_with("## Ingest partial, 2 units failed: orchard · run 811a8c"),
        "{latest:?}"
    );
    assert_eq!(
        place.run(&["report", "811a8c"]).expect_success(),
        latest.stdout
    );
    assert_eq!(
        place
            .run(&["report", &fixture("tapes/real.jsonl")])
            .expect_success(),
        latest.stdout
    );
    let json = place.run(&["report", "--ui", "json"]);
    assert_eq!(
        json.expect_success(),
        place.run(&["report", "--format", "json"]).expect_success()
    );
    let connections: Vec<Value> = json
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let ids: Vec<&str> = connections
        .iter()
        .map(|report| report["connectionId"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["orchard-dbt", "orchard-handbook"]);
    let one = place.run(&["report", "--format", "json", "--connection", "orchard-dbt"]);
    assert_eq!(one.expect_success().lines().count(), 1);
}

#[test]
fn report_is_written_to_a_file() {
    let place = recorded();
    let out = place.path("report.xml");
    let ran = place.run(&[
        "report",
        "--format",
        "junit",
        "--out",
        out.to_str().unwrap(),
    ]);
    assert_eq!((ran.expect_success(), ran.stderr.as_str()), ("", ""));
    assert!(
        fs::read_to_string(&out)
            .unwrap()
            .contains("<testsuites name=\"orchard · run 811a8c\" tests=\"8\"")
    );
    let nowhere = place.path("no/such/folder/report.xml");
    let refused = place.run(&["report", "--out", nowhere.to_str().unwrap()]);
    assert!(
        refused
            .expect_refusal(1)
            .contains("name another file with --out")
    );
}

#[test]
fn report_of_an_unsupported_file_is_refused() {
    let place = recorded();
    assert!(
        place
            .run(&["report", "ffffff"])
            .expect_refusal(4)
            .contains("no run matches")
    );
    assert!(
        place
            .run(&["report", "missing.jsonl"])
            .expect_refusal(4)
            .contains("there is no file missing.jsonl")
    );
    let ran = place.run(&["report", "--connection", "nowhere"]);
    assert!(
        ran.expect_refusal(4)
            .ends_with("name one of its connections: orchard-dbt, orchard-handbook")
    );
    assert!(
        TestDir::new()
            .run(&["report"])
            .expect_refusal(4)
            .contains("no run is recorded in this project yet")
    );
}

#[test]
fn diff_compares_two_runs() {
    let place = recorded();
    let ran = place.run(&["diff", &fixture("tapes/demo.jsonl")]);
    let lines: Vec<&str> = ran.expect_success().lines().collect();
    assert!(
        lines[0].starts_with("lantern · run 9e05f5 → orchard · run 811a8c"),
        "{ran:?}"
    );
    assert!(
        lines
            .iter()
            .any(|line| line.contains("+ new         docs-crates")),
        "{ran:?}"
    );
    assert!(
        lines
            .iter()
            .any(|line| line.contains("- not planned docs-roast-batches")),
        "{ran:?}"
    );
    assert!(
        lines
            .iter()
            .any(|line| line.contains("~ changed     dbt-all")),
        "{ran:?}"
    );
    let json = place.run(&["diff", "latest", "latest", "--ui", "json"]);
    let last: Value = serde_json::from_str(json.expect_success().lines().last().unwrap()).unwrap();
    assert_eq!(
        last["units"],
        serde_json::json!({"new": 0, "gone": 0, "changed": 0, "same": 8})
    );
    assert!(
        place
            .run(&["diff", "ffffff"])
            .expect_refusal(4)
            .contains("no run matches")
    );
    assert!(
        place
            .run(&["diff", "latest"])
            .expect_refusal(4)
            .contains("there is only one run, 811a8c")
    );
}

#[test]
fn export_replays_like_its_run() {
    let place = recorded();
    for (format, opened) in [("tape", "tape.jsonl"), ("memory-flow", "replay.json")] {
        let out = place.path(opened);
        let ran = place.run(&[
            "runs",
            "export",
            "--format",
            format,
            "--out",
            out.to_str().unwrap(),
        ]);
        assert_eq!(ran.expect_success(), "");
        assert!(
            ran.stderr.contains("review it before you share it"),
            "{ran:?}"
        );
        let replayed = place.run(&["replay", out.to_str().unwrap()]);
        assert!(
            replayed
                .expect_success()
                .contains("8 units: 6 succeeded, 2 failed"),
            "{format}: {replayed:?}"
        );
    }
    let trace = place.run(&["runs", "export", "--format", "trace"]);
    assert!(
        trace
            .expect_success()
            .lines()
            .all(|line| serde_json::from_str::<Value>(line).unwrap()["schemaVersion"] == 1)
    );
    assert!(trace.stdout.contains("\"event\":\"work_unit_executed\""));
}

#[test]
fn ktx_records_are_replayed_and_reported() {
    let place = TestDir::new();
    for (name, expected) in [
        (
            "replay.memory-flow.v1.json",
            "1 succeeded, 1 failed, 1 untried",
        ),
        ("replay.bare.json", "units"),
        ("transcript.jsonl", "2 units"),
    ] {
        let file = fixture(&format!("ktx/{name}"));
        let ran = place.run(&["replay", &file]);
        assert!(ran.expect_success().contains(expected), "{ran:?}");
        assert!(
            !ran.stdout.contains('\u{1b}') && !ran.stdout.contains('\u{202e}'),
            "{ran:?}"
        );
        let mut piped = place.command(&["replay", "-"]);
        piped.stdin(fs::File::open(&file).unwrap());
        let piped = place.ran(piped);
        assert_eq!(
            piped.expect_success().lines().count(),
            ran.stdout.lines().count(),
            "{name} is read from stdin as well"
        );
        assert!(
            place
                .run(&["report", &file])
                .expect_success()
                .starts_with("## Ingest")
        );
    }
}

/// A project whose runs are recorded by the program itself.
#[test]
fn running_run_can_be_traced() {
    let place = TestDir::new();
    place.notes(&["a", "b"]);
    let claude = place.scripted_claude("[[part]]\nsteps = [{ say = \"nothing to do\" }]");
    let run = place.run(&[
        "run",
        "--claude-bin",
        claude.to_str().unwrap(),
        "--ui",
        "json",
    ]);
    let folder = fs::read_dir(place.path(".ktx/ingest-traces"))
        .unwrap_or_else(|error| panic!("{error}: {run:?}"));
    let job = folder
        .map(|entry| entry.unwrap().path())
        .find(|path| path.is_dir())
        .unwrap();
    let trace = fs::read_to_string(job.join("trace.jsonl")).unwrap();
    let events: Vec<Value> = trace
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let count = |name: &str| events.iter().filter(|event| event["event"] == name).count();
    assert_eq!(
        (count("ingest_started"), count("work_unit_executed")),
        (1, 2),
        "{trace}"
    );
    assert_eq!(
        count("ingest_finished") + count("ingest_failed"),
        1,
        "{trace}"
    );
    let report = place.run(&["report", "--format", "json"]);
    assert!(
        report
            .expect_success()
            .contains("\"tracePath\":\".ktx/ingest-traces/"),
        "{report:?}"
    );
}

#[test]
fn report_of_an_empty_record_says_empty() {
    let place = TestDir::new();
    place.write("empty", "");
    let ran = place.run(&["report", "empty"]);
    assert!(
        ran.expect_success()
            .starts_with("## Ingest empty: empty\n\n> Nothing is recorded in it.\n"),
        "{ran:?}"
    );
    assert!(ran.stdout.contains("* **0 units**\n"), "{ran:?}");
    assert!(
        place
            .run(&["report", "empty", "--format", "html"])
            .expect_success()
            .contains("Nothing is recorded in it.")
    );
}

/// The report needs the message, because its readers did not see the output of the run.
#[test]
fn skipped_raw_file_is_listed_in_the_report() {
    let place = TestDir::new();
    place.notes(&["one"]);
    place.write("notes/odd\u{202e}.md", "# Odd\n");
    let claude = place.scripted_claude("[[part]]\nsteps = [{ say = \"read\" }]");
    let ran = place.run(&["run", "--claude-bin", claude.to_str().unwrap()]);
    let sentence = r"odd\u{202e}.md is skipped: its name cannot be shown safely; rename it";
    assert!(
        ran.expect_success().contains(sentence) && !ran.stderr.contains(sentence),
        "reported once: {ran:?}"
    );
    let json = place.run(&[
        "run",
        "--full",
        "--ui",
        "json",
        "--claude-bin",
        claude.to_str().unwrap(),
    ]);
    assert!(json.stderr.contains(sentence), "{json:?}");
    for format in ["md", "html"] {
        let report = place.run(&["report", "latest", "--format", format]);
        assert!(
            report
                .expect_success()
                .contains("is skipped: its name cannot be shown safely"),
            "{format}: {report:?}"
        );
    }
}
