//! The reconcile step in git projects: deleted raw files, an earlier run without its reconcile step, and patches that
//! cannot be integrated.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::json;

use super::{
    end_to_end::{
        gated, git, is_clean, newest_tape, open_gate, orchard_project, parts, pass, run, states,
        subjects, summary, wiki, writes,
    },
    test_dir::{TestDir, parse_json_events},
};

/// Steps that list the evictions and remove the page of the deleted file.
const EVICTS: &str = r#"
  { call = { tool = "eviction_list" } },
  { call = { tool = "wiki_read", with = { key = "growers" } } },
  { call = { tool = "record_verification_ledger", with = { summary = "Nothing else supports it." } } },
  { call = { tool = "wiki_remove", with = { key = "growers", rawPaths = ["orchard/growers.md"] } } },
  { call = { tool = "emit_eviction_decision", with = { rawPath = "orchard/growers.md", artifactKind = "wiki", artifactKey = "growers", action = "removed", reason = "its file is gone" } } },
  { say = "Removed." },"#;

/// Steps that compare the artifacts of both units and change nothing.
const LOOKS: &str = r#"
  { call = { tool = "stage_list" } },
  { call = { tool = "stage_diff", with = { unitKeyA = "docs-crates", unitKeyB = "docs-growers" } } },
  { say = "All is well." },"#;

/// A project of two units.
fn two_unit_project() -> TestDir {
    let place = orchard_project();
    for file in ["juice.md", "payments.md"] {
        fs::remove_file(place.path(&format!("handbook/{file}"))).unwrap();
    }
    git(
        &place,
        &["commit", "--quiet", "--all", "--message=Sell no juice"],
    );
    place
}

/// A script for the two units and the reconcile step.
fn player(place: &TestDir, steps: &str) -> String {
    place
        .scripted_claude(&[parts()[..2].concat(), pass(steps)].concat())
        .display()
        .to_string()
}

/// Results of the tools that the reconcile step called.
fn reconcile_tool_replies(place: &TestDir, job: &str) -> String {
    fs::read_to_string(place.path(&format!(".ktx/ingest-transcripts/{job}/reconcile.jsonl")))
        .unwrap()
}

#[test]
fn removed_raw_files_are_reconciled_once() {
    let place = two_unit_project();
    let text = fs::read(place.path("handbook/growers.md")).unwrap();
    parse_json_events(run(&place, &player(&place, LOOKS), &["--no-reconcile"]).expect_success());
    fs::remove_file(place.path("handbook/growers.md")).unwrap();
    git(
        &place,
        &["commit", "--quiet", "--all", "--message=Grow no more"],
    );

    let plan = place.run(&["plan"]);
    assert!(
        plan.expect_success()
            .contains("1 file is gone: the reconcile step reviews the artifacts"),
        "{plan:?}"
    );
    assert!(
        !plan.stdout.contains("nothing to do")
            && plan
                .stdout
                .contains("0 units planned, and the reconcile step"),
        "{plan:?}"
    );
    let claude = player(&place, EVICTS);
    // A run without the reconcile step, or with `--only`, leaves the evictions to a later run.
    for flags in [["--no-reconcile", "--model=haiku"], ["--only", "docs-c*"]] {
        let ran = run(&place, &claude, &flags);
        assert!(
            ran.expect_success().is_empty() && ran.stderr.contains("nothing to do: "),
            "{ran:?}"
        );
    }
    let bad = player(
        &place,
        "{ call = { tool = \"stage_diff\", with = { unitKeyA = 1 } } }, { say = \"Done.\" },",
    );
    let failed = run(&place, &bad, &[]);
    assert_eq!(failed.code, Some(100), "{failed:?}");
    assert_eq!(wiki(&place), ["crates.md", "growers.md"]);
    assert!(
        place
            .run(&["plan"])
            .expect_success()
            .contains("gone: growers.md")
    );

    let ran = run(&place, &player(&place, EVICTS), &["--resume-run", "latest"]);
    let lines = parse_json_events(ran.expect_success());
    assert_eq!(summary(&lines)["units"], json!({"succeeded": 1}), "{ran:?}");
    assert_eq!(
        states(&lines, "reconcile"),
        ["running", "succeeded", "integrated"]
    );
    assert_eq!(wiki(&place), ["crates.md"]);
    let subject = subjects(&place).remove(0);
    assert!(
        subject.starts_with("ingest(docs): local-") && subject.ends_with("diff=+0/~0/-1/=1"),
        "{subject}"
    );
    is_clean(&place);
    assert_eq!(
        place.run(&["replay", "latest", "--ui", "json"]).stdout,
        ran.stdout
    );

    let plan = place.run(&["plan"]);
    assert!(
        plan.expect_success().contains("nothing to do: ") && !plan.stdout.contains("gone"),
        "{plan:?}"
    );
    for flags in [&[][..], &["--resume-run", "latest"]] {
        let ran = run(&place, &claude, flags);
        assert!(
            ran.expect_success().is_empty() && ran.stderr.contains("nothing to "),
            "{ran:?}"
        );
    }
    // A file that is restored counts as new, whatever it contained before.
    fs::write(place.path("handbook/growers.md"), text).unwrap();
    let plan = place.run(&["plan", "--ui", "json"]);
    assert!(
        plan.expect_success().contains("\"unit\":\"docs-growers\"")
            && plan.stdout.lines().count() == 1,
        "{plan:?}"
    );
}

#[test]
fn removed_artifact_supports_no_raw_file() {
    let place = two_unit_project();
    let removes = EVICTS
        .lines()
        .filter(|line| !line.contains("evict"))
        .collect::<Vec<_>>()
        .join("\n");
    let removes = removes.replace(", rawPaths = [\"orchard/growers.md\"]", "");
    run(&place, &player(&place, &removes), &[]).expect_success();
    assert_eq!(wiki(&place), ["crates.md"]);
    let text = fs::read_to_string(place.path("handbook/crates.md")).unwrap();
    place.write("handbook/crates.md", text + "\nMore.\n");
    git(&place, &["commit", "--quiet", "--all", "--message=More"]);
    run(&place, &player(&place, LOOKS), &["--no-reconcile"]).expect_success();
    let coverage = place.run(&["artifacts", "--coverage"]);
    let growers = coverage
        .expect_success()
        .lines()
        .find(|line| line.contains("growers.md"));
    assert!(
        growers.is_some_and(|line| line.contains("uncovered")),
        "{coverage:?}"
    );
    fs::remove_file(place.path("handbook/growers.md")).unwrap();
    git(
        &place,
        &["commit", "--quiet", "--all", "--message=Grow no more"],
    );
    let plan = place.run(&["plan"]);
    assert!(!plan.expect_success().contains("wiki growers"), "{plan:?}");
}

/// The decisions of the reconcile step count once a review has accepted its changes, also if the run had ended before.
#[test]
fn reviewed_evictions_are_settled_once() {
    let place = two_unit_project();
    run(&place, &player(&place, LOOKS), &["--no-reconcile"]).expect_success();
    fs::remove_file(place.path("handbook/growers.md")).unwrap();
    git(
        &place,
        &["commit", "--quiet", "--all", "--message=Grow no more"],
    );
    let waiting = run(&place, &player(&place, EVICTS), &["--review"]);
    assert_eq!(waiting.code, Some(103), "{waiting:?}");
    assert!(
        place
            .run(&["plan"])
            .expect_success()
            .contains("1 file is gone"),
        "nothing is saved yet"
    );
    let partial = place.run(&["review", "--reject", "wiki/other/*", "--ui", "json"]);
    assert_eq!(partial.code, Some(4), "{partial:?}");
    let saved = place.run(&["review", "--accept", "*", "--ui", "json"]);
    assert_eq!(saved.code, Some(0), "{saved:?}");
    assert_eq!(wiki(&place), ["crates.md"]);
    let plan = place.run(&["plan"]);
    assert!(
        plan.expect_success().contains("nothing to do: ") && !plan.stdout.contains("gone"),
        "{plan:?}"
    );
}

/// One unit writes two pages and a source from its file. The file is deleted, and the reconcile step processes the
/// eviction.
#[test]
fn eviction_lists_all_artifacts_of_the_file() {
    let place = two_unit_project();
    let settings = fs::read_to_string(place.path("ktx.yaml")).unwrap();
    place.write(
        "ktx.yaml",
        settings.replace(
            "connections:\n",
            "connections:\n  shop:\n    driver: postgres\n",
        ),
    );
    let writes_three = r#"
[[part]]
unit = "docs-growers"
steps = [
  { call = { tool = "record_verification_ledger", with = { summary = "Read it.", unverifiedIdentifiers = ["growers", "id"] } } },
  { call = { tool = "wiki_write", with = { key = "b", summary = "About b", content = "B.", rawPaths = ["growers.md"] } } },
  { call = { tool = "wiki_write", with = { key = "shared-b", summary = "About all", content = "All." } } },
  { call = { tool = "sl_write_source", with = { connectionId = "shop", sourceName = "growers", source = { name = "growers", table = "growers", grain = ["id"], columns = [{ name = "id", type = "number" }] } } } },
  { say = "Done." },
]
"#;
    let player = |steps: &str| {
        place.scripted_claude(&[parts()[0].clone(), writes_three.to_owned(), pass(steps)].concat())
    };
    let begun = run(&place, player(LOOKS).to_str().unwrap(), &["--no-reconcile"]);
    parse_json_events(begun.expect_success());
    assert_eq!(wiki(&place), ["b.md", "crates.md", "shared-b.md"]);
    fs::remove_file(place.path("handbook/growers.md")).unwrap();
    git(
        &place,
        &["commit", "--quiet", "--all", "--message=Grow no more"],
    );

    let evicts = r#"
  { call = { tool = "eviction_list" } },
  { call = { tool = "record_verification_ledger", with = { summary = "Nothing else supports them." } } },
  { call = { tool = "wiki_remove", with = { key = "b", rawPaths = ["orchard/growers.md"] } } },
  { call = { tool = "wiki_remove", with = { key = "shared-b", rawPaths = ["orchard/growers.md"] } } },
  { call = { tool = "sl_write_source", with = { connectionId = "shop", sourceName = "growers", delete = true } } },
  { say = "Removed." },"#;
    let ran = run(&place, player(evicts).to_str().unwrap(), &[]);
    let lines = parse_json_events(ran.expect_success());
    let replies = reconcile_tool_replies(&place, lines[0]["event"]["job"].as_str().unwrap());
    for listed in [
        "wiki b (created in run ",
        "wiki shared-b (created in run ",
        "sl shop/growers (created in run ",
    ] {
        assert!(replies.contains(listed), "{listed}: {replies}");
    }
    let tape = newest_tape(&place);
    assert!(
        tape.contains("- orchard/growers.md\\n  - "),
        "the prompt lists them, too"
    );
    assert_eq!(wiki(&place), ["crates.md"]);
    assert!(!place.path("semantic-layer/shop/growers.yaml").exists());
    is_clean(&place);
    assert!(
        place
            .run(&["plan"])
            .expect_success()
            .contains("nothing to do: ")
    );
}

/// Two runs decide about one page each. The second one is not asked about the first page again, and settles the file.
#[test]
fn eviction_is_settled_by_decisions_of_several_runs() {
    let place = two_unit_project();
    let writes_two = r#"
[[part]]
unit = "docs-growers"
steps = [
  { call = { tool = "record_verification_ledger", with = { summary = "Read it." } } },
  { call = { tool = "wiki_write", with = { key = "b", summary = "About b", content = "B.", rawPaths = ["growers.md"] } } },
  { call = { tool = "wiki_write", with = { key = "c", summary = "About c", content = "C.", rawPaths = ["growers.md"] } } },
  { say = "Done." },
]
"#;
    let player = |steps: &str| {
        place.scripted_claude(&[parts()[0].clone(), writes_two.to_owned(), pass(steps)].concat())
    };
    parse_json_events(
        run(&place, player(LOOKS).to_str().unwrap(), &["--no-reconcile"]).expect_success(),
    );
    let text = fs::read(place.path("handbook/growers.md")).unwrap();
    let delete = || {
        fs::remove_file(place.path("handbook/growers.md")).unwrap();
        git(
            &place,
            &["commit", "--quiet", "--all", "--message=Grow no more"],
        );
    };
    delete();
    let keep = |key: &str| {
        format!(
            r#"
  {{ call = {{ tool = "eviction_list" }} }},
  {{ call = {{ tool = "emit_eviction_decision", with = {{ rawPath = "orchard/growers.md", artifactKind = "wiki", artifactKey = "{key}", action = "kept", reason = "still true" }} }} }},
  {{ say = "Kept." }},"#
        )
    };
    let ran = run(&place, player(&keep("b")).to_str().unwrap(), &[]);
    assert!(
        ran.expect_success().contains("orchard/growers.md: wiki c)"),
        "{ran:?}"
    );
    let plan = place.run(&["plan"]);
    assert!(
        plan.expect_success()
            .contains("gone: growers.md (it supports wiki c)"),
        "{plan:?}"
    );
    let ran = run(&place, player(&keep("c")).to_str().unwrap(), &[]);
    let lines = parse_json_events(ran.expect_success());
    let replies = reconcile_tool_replies(&place, lines[0]["event"]["job"].as_str().unwrap());
    assert!(
        replies.contains("wiki c (created in run ") && !replies.contains("wiki b (created"),
        "{replies}"
    );
    assert!(
        !place.run(&["plan"]).expect_success().contains("gone"),
        "the eviction is settled"
    );
    // Decisions about an earlier deletion do not count.
    fs::write(place.path("handbook/growers.md"), text).unwrap();
    git(&place, &["add", "--all"]);
    git(&place, &["commit", "--quiet", "--message=Grow again"]);
    run(&place, player(LOOKS).to_str().unwrap(), &["--no-reconcile"]).expect_success();
    delete();
    let plan = place.run(&["plan"]);
    assert!(
        plan.expect_success()
            .contains("gone: growers.md (it supports wiki b, wiki c)"),
        "{plan:?}"
    );
}

/// The reconcile step alone evicts a page and leaves one decision to a person.
#[test]
fn decisions_of_a_reconcile_only_run_are_reported_everywhere() {
    let place = with_a_file_gone();
    let conflicts = r#"
  { call = { tool = "emit_conflict_resolution", with = { kind = "definitional_contradiction", contestedKey = "crate", artifactKey = "crates", detail = "two sizes are named", flaggedForHuman = true } } },
  { call = { tool = "emit_conflict_resolution", with = { kind = "near_duplicate", artifactKey = "pallets", detail = "kept apart", flaggedForHuman = true } } },"#;
    let claude = player(&place, &format!("{conflicts}{EVICTS}"));
    let ran = place.run(&["run", "--ui", "lines", "--claude-bin", &claude]);
    let sentence = "2 conflicts are flagged for a person: crates, pallets";
    assert!(
        ran.expect_success().contains(&format!("▲ {sentence}")),
        "at exit: {ran:?}"
    );
    assert!(
        ran.stdout.matches(sentence).count() >= 2,
        "and in the log: {ran:?}"
    );

    let shown = place.run(&["runs", "show"]);
    let decision = "conflict: crates – definitional contradiction about crate: two sizes are named [flagged for a person]";
    let eviction = "eviction: wiki growers – removed, because orchard/growers.md was deleted: its file is gone";
    for line in [sentence, decision, eviction] {
        assert!(shown.expect_success().contains(line), "{line}: {shown:?}");
    }
    let shown = place.run(&["runs", "show", "--ui", "json"]);
    assert!(
        shown
            .expect_success()
            .contains("\"flagged\":[{\"artifact\":\"crates\""),
        "{shown:?}"
    );

    let report = |format: &str| {
        place
            .run(&["report", "--format", format])
            .expect_success()
            .to_owned()
    };
    let markdown = report("md");
    assert!(
        markdown.contains("### Decisions (3)")
            && markdown.contains("▲ flagged for a person: `crates`"),
        "{markdown}"
    );
    let html = report("html");
    assert!(
        html.contains("<h2>Decisions (3)</h2>")
            && html.contains("because orchard/growers.md was deleted"),
        "{html}"
    );
    let junit = report("junit");
    assert!(
        junit.contains("<testcase name=\"reconcile\"") && junit.contains(eviction),
        "{junit}"
    );
    assert!(
        junit.contains("<property name=\"adapter\" value=\"reconcile\"/>"),
        "{junit}"
    );

    let json = report("json");
    assert_eq!(json.lines().count(), 1, "{json}");
    let snapshot: serde_json::Value = serde_json::from_str(&json).unwrap();
    let body = &snapshot["body"];
    assert_eq!(
        (&snapshot["connectionId"], &snapshot["sourceKey"]),
        (&json!("orchard"), &json!("docs"))
    );
    assert_eq!(
        (&body["status"], &body["reconciliationSkipped"]),
        (&json!("completed"), &json!(false))
    );
    assert_eq!(
        (&body["workUnits"], &body["evictionInputs"]),
        (&json!([]), &json!(["growers.md"]))
    );
    assert_eq!(body["evictionsApplied"][0]["rawPath"], "growers.md");
    assert_eq!(body["evictionDecisions"][0]["action"], "removed");
    assert_eq!(body["conflictsResolved"].as_array().map(Vec::len), Some(2));
    assert_eq!(body["reconciliationActions"][0]["type"], "removed");
    assert_eq!(body["toolTranscripts"][0]["unitKey"], "reconcile");
    assert_eq!(body["ingestdeck"]["reconcile"]["state"], "succeeded");
    assert!(
        body["commitSha"].is_string() && body["diffSummary"]["deleted"] == 1,
        "{body}"
    );
    assert_eq!(
        place
            .run(&["report", "--format", "json", "--connection", "orchard"])
            .expect_success(),
        json
    );
}

/// A project in which only the reconcile step has to run.
fn with_a_file_gone() -> TestDir {
    let place = two_unit_project();
    parse_json_events(run(&place, &player(&place, LOOKS), &["--no-reconcile"]).expect_success());
    fs::remove_file(place.path("handbook/growers.md")).unwrap();
    git(
        &place,
        &["commit", "--quiet", "--all", "--message=Grow no more"],
    );
    place
}

fn parsed(lines: &str) -> Vec<serde_json::Value> {
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn reconcile_only_run_is_exported_from_begin_to_end() {
    let place = with_a_file_gone();
    run(&place, &player(&place, EVICTS), &[]).expect_success();
    let trace = parsed(
        place
            .run(&["runs", "export", "--format", "trace"])
            .expect_success(),
    );
    assert!(
        trace
            .iter()
            .all(|event| event["connectionId"] == "orchard" && event["sourceKey"] == "docs")
    );
    let names: Vec<&str> = trace
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    assert_eq!(
        (names[0], names[names.len() - 1]),
        ("ingest_started", "ingest_finished"),
        "{names:?}"
    );
    for step in [
        "isolated_diff_enabled",
        "reconciliation_executed",
        "reconciliation_finished",
        "squash_finished",
    ] {
        assert_eq!(
            names.iter().filter(|name| **name == step).count(),
            1,
            "{step}: {names:?}"
        );
    }
    let finished = trace
        .iter()
        .find(|event| event["event"] == "reconciliation_finished")
        .unwrap();
    assert_eq!(finished["data"]["actionCount"], 1);

    let flow = parsed(
        place
            .run(&["runs", "export", "--format", "memory-flow"])
            .expect_success(),
    );
    let replay = &flow[0]["replay"];
    assert_eq!(
        (flow.len(), &replay["connectionId"], &replay["status"]),
        (1, &json!("orchard"), &json!("done"))
    );
    assert_eq!(
        (&replay["plannedWorkUnits"], &replay["errors"]),
        (&json!([]), &json!([]))
    );
    let events: Vec<&str> = replay["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    let last = [
        "chunks_planned",
        "reconciliation_finished",
        "saved",
        "provenance_recorded",
        "report_created",
    ];
    assert!(events.ends_with(&last), "{events:?}");
    let saved = replay["events"]
        .as_array()
        .unwrap()
        .iter()
        .find(|event| event["type"] == "saved")
        .unwrap();
    assert_eq!(saved["wikiCount"], 1, "the page that the step removed");
    let out = place.path("../tmp/replay.json");
    place
        .run(&[
            "runs",
            "export",
            "--format",
            "memory-flow",
            "--out",
            out.to_str().unwrap(),
        ])
        .expect_success();
    place
        .run(&["replay", out.to_str().unwrap()])
        .expect_success();

    let report = place.run(&["report", "--format", "junit"]);
    let junit = report.expect_success();
    assert!(
        junit.contains(" tests=\"1\" failures=\"0\" errors=\"0\" skipped=\"0\" "),
        "{junit}"
    );
    for (open, close) in [
        ("<testsuite ", "</testsuite>"),
        ("<testcase name=\"reconcile\"", "</testcase>"),
    ] {
        assert_eq!(
            (junit.matches(open).count(), junit.matches(close).count()),
            (1, 1),
            "{junit}"
        );
    }
}

/// The interrupt arrives before the step starts, or while it runs.
#[test]
fn reconcile_only_run_that_is_stopped_is_not_done() {
    for has_begun in [false, true] {
        let place = with_a_file_gone();
        let hangs = place
            .scripted_claude(&pass("\"hang\""))
            .display()
            .to_string();
        let args = ["run", "--ui", "lines", "--claude-bin", &hangs];
        let (state, ran) = if has_begun {
            let mut running = place.start(place.command(&args));
            running.wait_for("stdout", "● session ");
            running.signal(Signal::SIGINT);
            running.wait_for("stderr", "draining: ");
            running.signal(Signal::SIGINT);
            ("stopped", running.end())
        } else {
            // The first call about the branch after the plan.
            let tapes = place.path(".ktx/ingestdeck/runs");
            let unless_planned = format!(
                "$(grep -qs run_planned '{}'/*/tape.jsonl || echo x)",
                tapes.display()
            );
            let mut running = gated(&place, &format!("*' HEAD'{unless_planned}"), &args);
            running.signal(Signal::SIGINT);
            running.wait_for("stderr", "draining: ");
            open_gate(&place);
            ("untried", running.end())
        };
        assert_eq!(ran.code, Some(130), "{ran:?}");
        let units = format!("1 unit: 1 {state}");
        assert!(
            ran.stdout.contains(&units) && ran.stdout.contains("run --resume-run "),
            "{ran:?}"
        );
        assert_eq!(wiki(&place), ["crates.md", "growers.md"]);
        is_clean(&place);

        let shown = place.run(&["runs", "show"]);
        assert!(
            shown.stdout.contains(" · stopped after ") && shown.stdout.contains(&units),
            "{shown:?}"
        );
        let list = parsed(
            place
                .run(&["runs", "list", "--ui", "json"])
                .expect_success(),
        );
        assert_eq!(list[0]["index"]["outcome"], "stopped", "{list:?}");
        let snapshots = parsed(place.run(&["report", "--format", "json"]).expect_success());
        let (snapshot, body) = (&snapshots[0], &snapshots[0]["body"]);
        assert_eq!(
            (&snapshot["connectionId"], &body["evictionInputs"]),
            (&json!("orchard"), &json!(["growers.md"]))
        );
        assert_eq!(
            (&body["ingestdeck"]["outcome"], &body["commitSha"]),
            (&json!("error"), &json!(null))
        );
        assert_eq!(
            (&body["ingestdeck"]["runOutcome"], &body["status"]),
            (&json!("stopped"), &json!(null))
        );
        assert_eq!(body["ingestdeck"]["reconcile"]["state"], state);
        let junit = place.run(&["report", "--format", "junit"]);
        assert!(
            junit
                .expect_success()
                .contains(" tests=\"1\" failures=\"0\" errors=\"0\" skipped=\"1\" "),
            "{junit:?}"
        );
        let trace = parsed(
            place
                .run(&["runs", "export", "--format", "trace"])
                .expect_success(),
        );
        assert_eq!(trace.last().unwrap()["data"]["outcome"], "stopped");

        let resumed = run(&place, &player(&place, EVICTS), &["--resume-run", "latest"]);
        assert_eq!(
            summary(&parse_json_events(resumed.expect_success()))["units"],
            json!({"succeeded": 1})
        );
        assert_eq!(wiki(&place), ["crates.md"]);
    }
}

#[test]
fn removed_files_are_reviewed_without_git() {
    let place = TestDir::new();
    place.notes(&["one", "two"]);
    let claude = place
        .scripted_claude("[[part]]\nsteps = [{ say = \"read\" }]")
        .display()
        .to_string();
    run(&place, &claude, &[]).expect_success();
    fs::remove_file(place.path("notes/two.md")).unwrap();
    let sentence = "1 file is gone: the reconcile step reviews the artifacts that came from there";
    assert!(place.run(&["plan"]).expect_success().contains(sentence));
    let ran = run(&place, &claude, &[]);
    assert_eq!(
        summary(&parse_json_events(ran.expect_success()))["units"],
        json!({"succeeded": 1}),
        "{ran:?}"
    );
    assert!(
        place
            .run(&["plan"])
            .expect_success()
            .contains("nothing to do"),
        "the deletion is settled"
    );
}

/// The units are saved, but the reconcile step met a limit, failed, or never started.
#[test]
fn resume_runs_the_missing_reconcile_step() {
    let limit = "{ rate_limit = { status = \"rejected\", resets_in_s = 7200 } }, { api_error = { status = 429, error = \"rate_limit\", text = \"You've hit your session limit\", api_error = \"usage_limit_reached\" } },";
    let bad = "{ call = { tool = \"stage_diff\", with = { unitKeyA = 1 } } }, { say = \"Done.\" },";
    for (steps, code) in [(limit, 102), (bad, 100)] {
        let place = two_unit_project();
        let settings = fs::read_to_string(place.path("ktx.yaml")).unwrap();
        place.write(
            "ktx.yaml",
            settings + "ingest:\n  rateLimit:\n    maxWaitMs: 5000\n",
        );
        git(
            &place,
            &["commit", "--quiet", "--all", "--message=Wait less"],
        );
        let cut = run(&place, &player(&place, steps), &[]);
        assert_eq!(cut.code, Some(code), "{cut:?}");
        let commits = subjects(&place).len();
        assert_eq!(
            wiki(&place),
            ["crates.md", "growers.md"],
            "what the units wrote is saved"
        );
        let shown = place.run(&["runs", "show"]);
        assert!(
            shown
                .stdout
                .trim_end()
                .lines()
                .last()
                .unwrap()
                .contains("run --resume-run "),
            "{shown:?}"
        );
        let plan = place.run(&["plan", "--resume-run", "latest"]);
        assert!(
            plan.expect_success()
                .contains("2 patches were saved without a reconcile step: this run reviews them"),
            "{plan:?}"
        );

        let left_out = run(
            &place,
            &player(&place, LOOKS),
            &["--resume-run", "latest", "--no-reconcile"],
        );
        assert!(
            left_out.expect_success().is_empty()
                && left_out.stderr.contains("there is nothing to run"),
            "{left_out:?}"
        );
        let resumed = run(&place, &player(&place, LOOKS), &["--resume-run", "latest"]);
        let lines = parse_json_events(resumed.expect_success());
        assert_eq!(
            summary(&lines)["units"],
            json!({"reused": 2, "succeeded": 1}),
            "{resumed:?}"
        );
        let replies = reconcile_tool_replies(&place, lines[0]["event"]["job"].as_str().unwrap());
        assert!(
            replies.contains("## docs-growers (success)")
                && replies.contains("wiki crates created"),
            "{replies}"
        );
        assert_eq!(subjects(&place).len(), commits, "it changed nothing");
        is_clean(&place);
        let first = parse_json_events(&cut.stdout)[0]["run"]
            .as_str()
            .unwrap()
            .to_owned();
        for run_id in ["latest", &first] {
            let again = run(&place, &player(&place, LOOKS), &["--resume-run", run_id]);
            assert!(
                again.expect_success().is_empty()
                    && again.stderr.contains("there is nothing to run"),
                "{again:?}"
            );
        }
    }
}

#[test]
fn failed_reconcile_step_is_listed_as_failed() {
    let place = two_unit_project();
    let bad = "{ call = { tool = \"stage_diff\", with = { unitKeyA = 1 } } }, { say = \"Done.\" },";
    assert_eq!(run(&place, &player(&place, bad), &[]).code, Some(100));
    let lines =
        parse_json_events(run(&place, &player(&place, LOOKS), &["--failed"]).expect_success());
    assert_eq!(summary(&lines)["units"], json!({"succeeded": 1}));
    assert!(
        reconcile_tool_replies(&place, lines[0]["event"]["job"].as_str().unwrap())
            .contains("wiki growers created")
    );
    let none = run(&place, &player(&place, LOOKS), &["--failed"]);
    assert!(
        none.expect_success().is_empty() && none.stderr.contains("no unit failed in run "),
        "{none:?}"
    );
    let plan = place.run(&["plan", "--failed"]);
    assert!(
        plan.expect_success().contains("no unit failed in run ")
            && !plan.stdout.contains("orchard +"),
        "{plan:?}"
    );
}

/// An agent for four units and a reconcile step, which runs `mischief` in the project first.
fn after(place: &TestDir, mischief: &str) -> String {
    let script = [
        parts()[..3].concat(),
        writes("docs-payments", "payments.md", "payments", "Pay."),
        pass(LOOKS),
    ];
    let script = place
        .write("script.toml", script.concat())
        .display()
        .to_string();
    let (exe, root) = (
        crate::support::program(),
        place.path("").display().to_string(),
    );
    let claude = format!(
        "cd '{root}'; {mischief}\nexec '{exe}' scripted-agent --script '{script}' -- \"$@\""
    );
    place.claude(&claude).display().to_string()
}

/// The patch of the second unit is deleted.
#[test]
fn missing_patch_fails_only_its_unit() {
    let place = orchard_project();
    let thief = after(
        &place,
        "rm -f .ktx/ingest-patches/*/0001-docs-growers.patch",
    );
    let ran = run(&place, &thief, &[]);
    assert_eq!(ran.code, Some(100), "{ran:?}");
    let lines = parse_json_events(&ran.stdout);
    assert_eq!(
        summary(&lines)["units"],
        json!({"succeeded": 4, "failed": 1}),
        "{ran:?}"
    );
    let failed = &summary(&lines)["failed"][0];
    let reason = failed["reason"].as_str().unwrap();
    assert!(
        failed["unit"] == "docs-growers" && reason.starts_with("its patch cannot be read: "),
        "{ran:?}"
    );
    assert_eq!(
        states(&lines, "docs-growers"),
        ["queued", "running", "succeeded", "lost"]
    );
    assert_eq!(
        wiki(&place),
        ["crates.md", "payments.md", "terms.md"],
        "the others are saved"
    );
    is_clean(&place);
    let lines = parse_json_events(run(&place, &after(&place, ":"), &["--failed"]).expect_success());
    assert_eq!(summary(&lines)["units"], json!({"succeeded": 2}));
    assert_eq!(
        wiki(&place),
        ["crates.md", "growers.md", "payments.md", "terms.md"]
    );
}

/// The branch is deleted while the units run.
#[test]
fn failed_integration_is_neither_reconciled_nor_saved() {
    let place = orchard_project();
    let thief = after(
        &place,
        "[ -e .git/kept ] || mv .git/refs/heads/main .git/kept",
    );
    let broken = run(&place, &thief, &[]);
    fs::rename(place.path(".git/kept"), place.path(".git/refs/heads/main")).unwrap();
    assert_eq!(broken.code, Some(100), "{broken:?}");
    let lines = parse_json_events(&broken.stdout);
    assert_eq!(
        summary(&lines)["units"],
        json!({"succeeded": 4}),
        "no reconcile step without an integrated result: {broken:?}"
    );
    assert!(
        summary(&lines)["not_saved"]
            .as_str()
            .unwrap()
            .contains("git rev-parse failed"),
        "{broken:?}"
    );
    assert_eq!(
        (subjects(&place).len(), wiki(&place).len()),
        (1, 0),
        "nothing is half applied"
    );
    is_clean(&place);
    let plan = place.run(&["plan", "--ui", "json"]);
    assert_eq!(
        plan.expect_success()
            .matches("what it wrote last time was not saved")
            .count(),
        4,
        "{plan:?}"
    );

    let resumed = run(&place, &after(&place, ":"), &["--resume-run", "latest"]);
    let lines = parse_json_events(resumed.expect_success());
    assert_eq!(
        summary(&lines)["units"],
        json!({"reused": 4, "succeeded": 1}),
        "{resumed:?}"
    );
    assert_eq!(
        wiki(&place),
        ["crates.md", "growers.md", "payments.md", "terms.md"]
    );
    is_clean(&place);
}

/// The reconcile step succeeds without a decision. The next plan lists the file again, and a decision settles it.
#[test]
fn undecided_eviction_stays_open_for_the_next_run() {
    let place = two_unit_project();
    run(&place, &player(&place, LOOKS), &["--no-reconcile"]).expect_success();
    fs::remove_file(place.path("handbook/growers.md")).unwrap();
    git(
        &place,
        &["commit", "--quiet", "--all", "--message=Grow no more"],
    );
    let looks = "{ call = { tool = \"eviction_list\" } }, { say = \"It may stay.\" },";
    let ran = run(&place, &player(&place, looks), &[]);
    let sentence = "reconcile left 1 gone file open, without a decision on each page and source (orchard/growers.md: wiki \
                    growers); the next run asks again";
    assert!(ran.expect_success().contains(sentence), "{ran:?}");
    assert!(
        place
            .run(&["report", "--format", "md"])
            .expect_success()
            .contains("(orchard/growers.md: wiki growers)")
    );
    assert_eq!(wiki(&place), ["crates.md", "growers.md"]);
    let plan = place.run(&["plan"]);
    assert!(
        plan.expect_success()
            .contains("gone: growers.md (it supports wiki growers)"),
        "{plan:?}"
    );
    let nonsense = r#"
  { call = { tool = "emit_eviction_decision", with = { rawPath = "orchard/growers.md", artifactKind = "wiki", artifactKey = "nonsense", action = "removed", reason = "gone" } } },
  { say = "Done." },"#;
    let ran = run(&place, &player(&place, nonsense), &[]);
    assert!(ran.expect_success().contains(sentence), "{ran:?}");
    run(&place, &player(&place, EVICTS), &[]).expect_success();
    assert_eq!(wiki(&place), ["crates.md"]);
    assert!(
        !place.run(&["plan"]).expect_success().contains("gone"),
        "the eviction is settled"
    );
}

/// The interrupt arrives while the last unit runs. That unit may finish, and nothing starts after it.
#[test]
fn run_drained_before_reconcile_is_incomplete() {
    let place = two_unit_project();
    nix::unistd::mkfifo(&place.path(".git/gate"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let script = place
        .write("script.toml", [parts()[..2].concat(), pass(LOOKS)].concat())
        .display()
        .to_string();
    let (exe, root) = (
        crate::support::program(),
        place.path("").display().to_string(),
    );
    let plays = format!("exec '{exe}' scripted-agent --script '{script}' -- \"$@\"");
    let waits = place.claude(&format!(
        "cd '{root}'; if [ -e .git/began ]; then read x < .git/gate; fi; : > .git/began\n{plays}"
    ));
    let command = place.command(&[
        "run",
        "--claude-bin",
        waits.to_str().unwrap(),
        "--concurrency",
        "1",
    ]);
    let mut running = place.start(command);
    running.wait_for("stdout", "docs-growers#1           ▸ running");
    running.signal(Signal::SIGINT);
    running.wait_for("stderr", "draining: ");
    fs::write(place.path(".git/gate"), "go\n").unwrap();
    let ran = running.end();
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(
        ran.stdout.contains("2 units: 2 succeeded") && ran.stdout.contains("run --resume-run "),
        "{ran:?}"
    );
    assert!(!ran.stdout.contains("reconcile#"), "{ran:?}");
    assert_eq!(
        wiki(&place),
        ["crates.md", "growers.md"],
        "what the units wrote is saved"
    );
    is_clean(&place);
    let resumed = run(&place, &player(&place, LOOKS), &["--resume-run", "latest"]);
    assert_eq!(
        summary(&parse_json_events(resumed.expect_success()))["units"],
        json!({"reused": 2, "succeeded": 1}),
        "{resumed:?}"
    );
}
