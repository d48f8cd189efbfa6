//! Runs that continue an earlier one: killed, limited, failed, and resumed more than once.

use std::{fs, path::PathBuf};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::test_dir::{CommandOutput, TestDir, parse_json_events};
use crate::support::git::git;

/// Steps that write one page and end; the page of the unit `docs-x` is `x`.
pub(super) fn writes(unit: &str) -> String {
    let page = unit.trim_start_matches("docs-");
    format!(
        r#"
[[part]]
unit = "{unit}"
steps = [
  {{ call = {{ tool = "read_raw_file", with = {{ path = "{page}.md" }} }} }},
  {{ call = {{ tool = "record_verification_ledger", with = {{ summary = "Read it." }} }} }},
  {{ call = {{ tool = "wiki_write", with = {{ key = "{page}", summary = "About {page}", content = "Text." }} }} }},
  {{ say = "Done." }},
]
"#
    )
}

pub(super) fn part(unit: &str, steps: &str) -> String {
    format!("[[part]]\nunit = \"{unit}\"\nsteps = [{steps}]\n")
}

/// A project of three units, with a `claude` that plays the given scripts.
pub(super) fn place() -> TestDir {
    let place = TestDir::new();
    place.notes(&["one", "two", "three"]);
    place
}

pub(super) fn claude(place: &TestDir, parts: &[String]) -> String {
    place
        .scripted_claude(&format!(
            "[usd_per_million]\ninput = 1000.0\noutput = 1000.0\n{}",
            parts.concat()
        ))
        .display()
        .to_string()
}

pub(super) fn run(place: &TestDir, claude: &str, more: &[&str]) -> CommandOutput {
    place.run(
        &[
            &[
                "run",
                "--no-reconcile",
                "--ui",
                "json",
                "--claude-bin",
                claude,
            ],
            more,
        ]
        .concat(),
    )
}

/// A run that is killed while `docs-three` hangs. `docs-one` has succeeded before that.
fn killed(place: &TestDir) {
    let claude = claude(
        place,
        &[
            writes("docs-one"),
            part("docs-*", "{ say = \"now\" }, \"hang\""),
        ],
    );
    let mut running =
        place.start(place.command(&["run", "--ui", "lines", "--claude-bin", &claude]));
    running.wait_for("stdout", "docs-one#1               ✓ succeeded");
    running.wait_for("stdout", "docs-three#1             ● session");
    running.signal(Signal::SIGKILL);
    assert_eq!(running.end().code, None);
    #[cfg(target_os = "linux")]
    place.wait_until_no_process_left();
}

/// States of each unit in order of time, by key.
fn states(lines: &[Value], unit: &str) -> Vec<String> {
    let of_unit = lines
        .iter()
        .filter(|line| line["unit"] == unit && line["event"]["type"] == "unit");
    of_unit
        .map(|line| line["event"]["state"].as_str().unwrap().to_owned())
        .collect()
}

fn summary(lines: &[Value]) -> &Value {
    &lines.last().unwrap()["event"]
}

/// Paths of the tapes, oldest first.
fn tapes(place: &TestDir) -> Vec<PathBuf> {
    let runs = fs::read_dir(place.path(".ktx/ingestdeck/runs")).unwrap();
    let mut tapes: Vec<PathBuf> = runs
        .map(|run| run.unwrap().path().join("tape.jsonl"))
        .collect();
    tapes.sort();
    tapes
}

fn notes(tape: &PathBuf, kind: &str) -> Vec<Value> {
    let text = fs::read_to_string(tape).unwrap();
    let entries = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    entries
        .filter(|entry| entry["note"]["kind"] == kind)
        .collect()
}

fn run_reasons(place: &TestDir, more: &[&str]) -> Vec<(String, String)> {
    let plan = place.run(&[&["plan", "--ui", "json"], more].concat());
    let units = plan
        .expect_success()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let text = |unit: &Value, name: &str| unit[name].as_str().unwrap().to_owned();
    units
        .map(|unit| (text(&unit, "unit"), text(&unit, "why")))
        .collect()
}

#[test]
fn killed_run_is_resumed() {
    let place = place();
    killed(&place);
    let first = &tapes(&place)[0];
    let run_id = first
        .parent()
        .unwrap()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let short = &run_id[run_id.len() - 6..];
    assert_eq!(
        run_reasons(&place, &["--resume-run", "latest"]),
        [
            (
                "docs-one".to_owned(),
                format!("succeeded in run {short} with the same content")
            ),
            (
                "docs-three".to_owned(),
                format!("was interrupted in run {short}")
            ),
            (
                "docs-two".to_owned(),
                format!("did not start in run {short}")
            ),
        ]
    );
    let table = place.run(&["plan", "--resume-run", &run_id]);
    assert!(
        table
            .expect_success()
            .contains("3 units planned, 1 of them reused"),
        "{table:?}"
    );

    let good = claude(
        &place,
        &["one", "two", "three"].map(|name| writes(&format!("docs-{name}"))),
    );
    let ran = run(&place, &good, &["--resume-run", short]);
    let lines = parse_json_events(ran.expect_success());
    assert_eq!(
        summary(&lines)["units"],
        json!({"succeeded": 2, "reused": 1})
    );
    assert_eq!(lines[0]["event"]["continues"], run_id.as_str());
    assert_eq!(
        states(&lines, "docs-one"),
        ["reused", "integrated"],
        "it is never shown as run here"
    );
    assert_eq!(
        states(&lines, "docs-three"),
        ["queued", "running", "succeeded", "integrated"]
    );
    assert!(
        place.path("wiki/global/one.md").is_file() && place.path("wiki/global/three.md").is_file()
    );
    let second = &tapes(&place)[1];
    let started = notes(second, "attempt_started");
    assert!(
        started.len() == 2 && started.iter().all(|entry| entry["try"] == 1),
        "{started:?}"
    );
    let earlier = &notes(second, "run_planned")[0]["note"]["continues"];
    assert_eq!(earlier["units"]["docs-one"]["attempts"], 1);
    assert_eq!(earlier["units"]["docs-three"]["attempts"], 1);
    assert!(
        earlier["units"].get("docs-two").is_none(),
        "it was never tried: {earlier}"
    );
    let before = earlier["cost_usd"].as_f64().unwrap();
    assert!(before > 0.0, "{earlier}");
    let text = fs::read_to_string(second).unwrap();
    let entries = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let costs: f64 = entries
        .filter_map(|entry| entry["out"]["total_cost_usd"].as_f64())
        .sum();
    let total = summary(&lines)["cost_usd"].as_f64().unwrap();
    assert!(
        (total - costs).abs() < 1e-9 && total > 0.0,
        "{total} is not {costs}: the cost of the earlier run is not part of it"
    );
    assert_eq!(notes(second, "run_ended")[0]["note"]["reused"], 1);

    // A replay shows the same, and the list of runs marks it.
    assert_eq!(
        place
            .run(&["replay", "latest", "--ui", "json"])
            .expect_success(),
        ran.stdout
    );
    let shown = place.run(&["runs", "show"]);
    assert!(
        shown
            .expect_success()
            .contains("3 units: 1 reused, 2 succeeded"),
        "{shown:?}"
    );
    assert!(
        !shown.stdout.contains("--resume-run"),
        "nothing is left: {shown:?}"
    );
    let listed = place.run(&["runs", "list"]);
    assert!(
        listed
            .expect_success()
            .contains("3 units: 2 succeeded, 1 reused"),
        "{listed:?}"
    );

    // A run that reused results can be resumed itself.
    let again = run(&place, &good, &["--resume-run", "latest"]);
    assert_eq!(
        (again.expect_success(), tapes(&place).len()),
        ("", 2),
        "no run for nothing"
    );
    assert!(
        again.stderr.contains("are reused: there is nothing to run"),
        "{again:?}"
    );
    place.write("notes/two.md", "# two, revised\n");
    let again = run(&place, &good, &["--resume-run", "latest"]);
    let lines = parse_json_events(again.expect_success());
    assert_eq!(
        summary(&lines)["units"],
        json!({"succeeded": 1, "reused": 2})
    );
    let why = lines
        .iter()
        .find(|line| line["unit"] == "docs-one")
        .unwrap()["event"]["reason"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        why,
        format!("succeeded in run {short} with the same content"),
        "the run that executed it"
    );
    let why = lines
        .iter()
        .find(|line| line["unit"] == "docs-two")
        .unwrap()["event"]["reason"]
        .as_str()
        .unwrap();
    assert!(why.ends_with(", but its raw files changed"), "{why}");
}

#[test]
fn unit_content_decides_reuse_and_plan_gives_reason() {
    let place = place();
    let good = claude(
        &place,
        &["one", "two", "three"].map(|name| writes(&format!("docs-{name}"))),
    );
    parse_json_events(
        run(&place, &good, &["--only", "docs-one", "--model", "opus"]).expect_success(),
    );
    let why = |model: &str| {
        let ran = run(&place, &good, &["--resume-run", "latest", "--model", model]);
        let lines = parse_json_events(ran.expect_success());
        lines
            .iter()
            .find(|line| line["unit"] == "docs-one")
            .unwrap()["event"]["reason"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(why("haiku").ends_with("but its model changed from opus to haiku"));
    let started = notes(tapes(&place).last().unwrap(), "attempt_started");
    let content = &started[0]["note"]["content"];
    assert!(
        content["key"].as_str().unwrap().len() == 64 && content["model"] == "haiku",
        "{content}"
    );
    // The other units were not selected.
    let plan = place.run(&["plan", "--resume-run", "latest"]);
    assert!(
        plan.expect_success().contains("1 unit planned") && !plan.stderr.contains("left out"),
        "{plan:?}"
    );
    // A unit that was added later is not selected either, even where all units were.
    place.write("notes/four.md", "# four\n");
    let other = run(
        &place,
        &good,
        &["--resume-run", "latest", "--only", "docs-two"],
    );
    assert!(
        other
            .expect_refusal(4)
            .contains("no unit matches `docs-two`; name one of the units: docs-one"),
        "{other:?}"
    );
    fs::remove_file(place.path("notes/one.md")).unwrap();
    let gone = run(&place, &good, &["--resume-run", "latest"]);
    assert!(
        gone.expect_refusal(4).contains("is left in the plan"),
        "{gone:?}"
    );
}

#[test]
fn only_failed_units_run_again() {
    let place = place();
    let bad = part(
        "docs-t*",
        "{ call = { tool = \"wiki_list_tags\", with = { path = 1 } } }, { say = \"tried\" }",
    );
    let ran = run(&place, &claude(&place, &[writes("docs-one"), bad]), &[]);
    assert_eq!(ran.code, Some(100), "{ran:?}");
    let whys = run_reasons(&place, &["--failed"]);
    assert_eq!(
        whys.iter()
            .map(|(unit, _)| unit.as_str())
            .collect::<Vec<_>>(),
        ["docs-three", "docs-two"]
    );
    assert!(
        whys[0].1.starts_with("failed in run ")
            && whys[0].1.ends_with("during WorkUnit docs-three"),
        "{whys:?}"
    );

    let good = claude(
        &place,
        &["one", "two", "three"].map(|name| writes(&format!("docs-{name}"))),
    );
    let lines =
        parse_json_events(run(&place, &good, &["--failed", "--only", "*-two"]).expect_success());
    assert_eq!(summary(&lines)["units"], json!({"succeeded": 1}));
    let none = run(&place, &good, &["--failed"]);
    assert!(
        none.expect_success().is_empty() && none.stderr.contains("no unit failed in run "),
        "{none:?}"
    );
    let first = tapes(&place)[0]
        .parent()
        .unwrap()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let lines = parse_json_events(
        run(
            &place,
            &good,
            &[&format!("--failed={first}"), "--only", "*-three"],
        )
        .expect_success(),
    );
    assert_eq!(summary(&lines)["units"], json!({"succeeded": 1}));
    let both = run(&place, &good, &["--failed", "--resume-run", "latest"]);
    assert_eq!(both.code, Some(2), "{both:?}");
}

#[test]
fn failed_units_of_a_record_run_on_another_machine() {
    let there = place();
    let bad = part(
        "docs-t*",
        "{ call = { tool = \"wiki_list_tags\", with = { path = 1 } } }, { say = \"tried\" }",
    );
    let ran = run(&there, &claude(&there, &[writes("docs-one"), bad]), &[]);
    assert_eq!(ran.code, Some(100), "{ran:?}");

    let here = place();
    let record = here.path("night run.jsonl");
    fs::copy(&tapes(&there)[0], &record).unwrap();
    let record = record.to_str().unwrap();
    let planned = |more: &[&str]| -> Vec<String> {
        let reasons = run_reasons(&here, more).into_iter();
        reasons.map(|(unit, _)| unit).collect()
    };
    assert_eq!(
        planned(&["--failed-from", record]),
        ["docs-three", "docs-two"]
    );
    let good = claude(
        &here,
        &["one", "two", "three"].map(|name| writes(&format!("docs-{name}"))),
    );
    let lines = parse_json_events(run(&here, &good, &["--failed-from", record]).expect_success());
    assert_eq!(summary(&lines)["units"], json!({"succeeded": 2}));
    let own = tapes(&here)[0].to_str().unwrap().to_owned();
    let none = run(&here, &good, &["--failed-from", &own]);
    assert!(
        none.expect_success().is_empty() && none.stderr.contains("needs another attempt"),
        "{none:?}"
    );
    assert_eq!(tapes(&here).len(), 1, "no run began");

    fs::remove_file(here.path("notes/two.md")).unwrap();
    let gone = here.run(&["plan", "--ui", "json", "--failed-from", record]);
    assert!(
        gone.stderr.contains("lacks 1 unit of the run in") && gone.stderr.contains("docs-two"),
        "{gone:?}"
    );
    for (more, code) in [
        (vec!["--failed-from", "missing.jsonl"], 4),
        (vec!["--failed-from", record, "--failed"], 2),
        (vec!["--failed-from", record, "--only", "docs-one"], 2),
    ] {
        let refused = run(&here, &good, &more);
        assert_eq!(refused.code, Some(code), "{more:?}: {refused:?}");
    }
}

/// The first run, which meets a limit halfway, with these flags; and the run that its message names.
fn limited_and_resumed(place: &TestDir, more: &[&str]) -> Vec<Value> {
    let settings = fs::read_to_string(place.path("ktx.yaml")).unwrap();
    place.write(
        "ktx.yaml",
        settings + "ingest:\n  rateLimit:\n    maxWaitMs: 5000\n",
    );
    let limited = run(
        place,
        &claude(place, &[writes("docs-one"), SPENT.to_owned()]),
        more,
    );
    assert_eq!(limited.code, Some(102), "{limited:?}");
    let run_id = parse_json_events(&limited.stdout)[0]["run"]
        .as_str()
        .unwrap()
        .to_owned();
    let good = claude(
        place,
        &["one", "two", "three"].map(|name| writes(&format!("docs-{name}"))),
    );
    parse_json_events(run(place, &good, &["--resume-run", &run_id]).expect_success())
}

pub(super) const SPENT: &str = r#"
[[part]]
unit = "docs-t*"
steps = [
  { rate_limit = { status = "rejected", resets_in_s = 7200 } },
  { api_error = { status = 429, error = "rate_limit", text = "You've hit your session limit", api_error = "usage_limit_reached" } },
]
"#;

#[test]
fn run_of_unchanged_units_can_be_resumed() {
    let place = place();
    let good = claude(
        &place,
        &["one", "two", "three"].map(|name| writes(&format!("docs-{name}"))),
    );
    parse_json_events(run(&place, &good, &[]).expect_success());
    let lines = limited_and_resumed(&place, &["--full"]);
    assert_eq!(
        summary(&lines)["units"],
        json!({"succeeded": 2, "reused": 1})
    );
    let last = tapes(&place).pop().unwrap();
    assert_eq!(
        notes(&last, "run_planned")[0]["note"]["selection"],
        json!({"full": true})
    );

    // The same with a unit that is selected by name.
    let bad = claude(&place, &[BAD.to_owned()]);
    assert_eq!(run(&place, &bad, &["--only", "docs-two"]).code, Some(100));
    let good = claude(
        &place,
        &["one", "two", "three"].map(|name| writes(&format!("docs-{name}"))),
    );
    let lines = parse_json_events(run(&place, &good, &["--failed"]).expect_success());
    assert_eq!(summary(&lines)["units"], json!({"succeeded": 1}));
}

#[test]
fn resume_without_recorded_args_uses_current_args() {
    let place = place();
    let bad = claude(&place, &[writes("docs-one"), BAD.to_owned()]);
    assert_eq!(run(&place, &bad, &[]).code, Some(100));
    let tape = &tapes(&place)[0];
    let text = fs::read_to_string(tape).unwrap();
    let older = text.replace(r#","selection":{}"#, "");
    assert_ne!(older, text);
    fs::write(tape, older).unwrap();
    let keys = |more: &[&str]| {
        run_reasons(&place, more)
            .into_iter()
            .map(|(key, _)| key)
            .collect::<Vec<_>>()
    };
    assert_eq!(keys(&["--failed", "--only", "docs-two"]), ["docs-two"]);
    assert_eq!(keys(&["--resume-run", "latest"]).len(), 3);
}

const BAD: &str = r#"
[[part]]
unit = "docs-t*"
steps = [{ call = { tool = "wiki_list_tags", with = { path = 1 } } }, { say = "tried" }]
"#;

#[test]
fn failed_units_are_read_from_the_tape_not_the_plan() {
    let place = place();
    let good = claude(
        &place,
        &["one", "two", "three"].map(|name| writes(&format!("docs-{name}"))),
    );
    parse_json_events(run(&place, &good, &[]).expect_success());
    let bad = claude(&place, &[writes("docs-one"), BAD.to_owned()]);
    assert_eq!(run(&place, &bad, &["--full"]).code, Some(100));
    let keys: Vec<String> = run_reasons(&place, &["--failed"])
        .into_iter()
        .map(|(key, _)| key)
        .collect();
    assert_eq!(keys, ["docs-three", "docs-two"]);
    let other = run(&place, &bad, &["--failed", "--only", "docs-one"]);
    assert!(
        other
            .expect_refusal(4)
            .contains("is left in the plan: docs-three, docs-two"),
        "{other:?}"
    );
    let good = claude(
        &place,
        &["one", "two", "three"].map(|name| writes(&format!("docs-{name}"))),
    );
    let lines = parse_json_events(run(&place, &good, &["--failed"]).expect_success());
    assert_eq!(summary(&lines)["units"], json!({"succeeded": 2}));
    let none = run(&place, &good, &["--failed"]);
    assert!(
        none.expect_success().is_empty() && none.stderr.contains("no unit failed in run "),
        "{none:?}"
    );
    // All failed units are gone, so the selection is no longer the same.
    let bad = claude(&place, &[writes("docs-one"), BAD.to_owned()]);
    assert_eq!(run(&place, &bad, &["--full"]).code, Some(100));
    fs::remove_file(place.path("notes/two.md")).unwrap();
    fs::remove_file(place.path("notes/three.md")).unwrap();
    assert!(
        run(&place, &bad, &["--failed"])
            .expect_refusal(4)
            .contains("is left in the plan")
    );
}

#[test]
fn running_session_does_not_block_resume() {
    let place = place();
    let bad = claude(&place, &[writes("docs-one"), BAD.to_owned()]);
    assert_eq!(run(&place, &bad, &[]).code, Some(100));
    let session = place.claude("echo '{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"3f1c2f8e-0d1b-4f7e-9f0a-1a2b3c4d5e6f\"}'; exec sleep 50");
    let mut chat = place.start(place.command(&[
        "session",
        "--ui",
        "json",
        "--claude-bin",
        session.to_str().unwrap(),
        "--",
        "hello",
    ]));
    chat.wait_for("stdout", "started");
    let plan = place.run(&["plan", "--failed", "--ui", "json"]);
    assert_eq!(plan.expect_success().lines().count(), 2, "{plan:?}");
    chat.signal(Signal::SIGKILL);
    chat.end();
}

#[test]
fn patches_saved_by_another_run_are_not_saved_again() {
    let place = place();
    git(
        &place.path(""),
        &["init", "--quiet", "--initial-branch=main"],
    );
    git(&place.path(""), &["add", "--all"]);
    git(&place.path(""), &["commit", "--quiet", "-m", "first"]);
    killed(&place);
    let first = tapes(&place)[0]
        .parent()
        .unwrap()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let good = claude(
        &place,
        &["one", "two", "three"].map(|name| writes(&format!("docs-{name}"))),
    );
    let again = run(&place, &good, &["--resume-run", &first]);
    parse_json_events(again.expect_success());
    assert!(place.path("wiki/global/one.md").is_file());
    // The user removes the page.
    git(&place.path(""), &["rm", "--quiet", "wiki/global/one.md"]);
    git(
        &place.path(""),
        &["commit", "--quiet", "-m", "away with it"],
    );
    let refused = run(&place, &good, &["--resume-run", &first]);
    let later = tapes(&place)[1]
        .parent()
        .unwrap()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let later = &later[later.len() - 6..];
    assert!(
        refused
            .expect_refusal(2)
            .contains(&format!("resume the later run with `--resume-run {later}`")),
        "{refused:?}"
    );
    assert!(!place.path("wiki/global/one.md").exists());
    let done = run(&place, &good, &["--resume-run", later]);
    assert!(
        done.expect_success().is_empty()
            && done.stderr.contains("are reused: there is nothing to run"),
        "{done:?}"
    );
    let deleted_page = "docs-one (wiki/global/one.md is gone since)";
    assert!(
        done.stderr.contains(deleted_page),
        "the patch of the first run was put on the branch by the second: {done:?}"
    );
}

#[test]
fn limited_run_prints_the_resume_command() {
    let place = place();
    let settings = fs::read_to_string(place.path("ktx.yaml")).unwrap();
    place.write(
        "ktx.yaml",
        settings + "ingest:\n  rateLimit:\n    maxWaitMs: 5000\n",
    );
    let spent = part(
        "docs-t*",
        r#"{ rate_limit = { status = "rejected", resets_in_s = 7200 } }, { api_error = { status = 429, error = "rate_limit", text = "You've hit your session limit", api_error = "usage_limit_reached" } }"#,
    );
    let limited = run(&place, &claude(&place, &[writes("docs-one"), spent]), &[]);
    assert_eq!(limited.code, Some(102), "{limited:?}");
    let run_id = parse_json_events(&limited.stdout)[0]["run"]
        .as_str()
        .unwrap()
        .to_owned();
    let way = format!(
        "ingestdeck run --resume-run {}",
        &run_id[run_id.len() - 6..]
    );
    assert!(limited.stderr.contains(&way), "{limited:?}");
    let shown = place.run(&["runs", "show"]);
    assert!(
        shown.expect_success().trim_end().ends_with(&way),
        "{shown:?}"
    );

    let good = claude(
        &place,
        &["one", "two", "three"].map(|name| writes(&format!("docs-{name}"))),
    );
    let words: Vec<&str> = way.split(' ').skip(2).collect();
    let lines = parse_json_events(run(&place, &good, &words).expect_success());
    assert_eq!(
        summary(&lines)["units"],
        json!({"succeeded": 2, "reused": 1})
    );
}

#[test]
fn running_run_cannot_be_resumed() {
    let place = place();
    let claude = claude(&place, &[part("docs-*", "{ say = \"now\" }, \"hang\"")]);
    let mut running =
        place.start(place.command(&["run", "--ui", "lines", "--claude-bin", &claude]));
    running.wait_for("stdout", "docs-one#1               ● session");
    let refused = run(&place, &claude, &["--resume-run", "latest"]);
    let holder = format!("is still running in process {}", running.id());
    assert!(refused.expect_refusal(2).contains(&holder), "{refused:?}");
    assert!(
        run(&place, &claude, &["--failed"])
            .expect_refusal(2)
            .contains(&holder)
    );
    running.signal(Signal::SIGKILL);
    running.end();
}

#[test]
fn resume_without_a_prior_run_is_refused() {
    let place = place();
    let claude = claude(&place, &[writes("docs-one")]);
    assert!(
        run(&place, &claude, &["--resume-run", "latest"])
            .expect_refusal(4)
            .contains("no run that can be resumed is recorded")
    );
    assert!(
        run(&place, &claude, &["--resume-run", "abc"])
            .expect_refusal(4)
            .contains("no run matches")
    );
    // A script played the run of a demo, so it cannot be resumed.
    place
        .run(&["demo", "--speed", "40", "--ui", "none", "--keep", "kept"])
        .expect_success();
    let demo = place.run(&[
        "run",
        "--resume-run",
        "latest",
        "--project-dir",
        "kept",
        "--claude-bin",
        &claude,
    ]);
    assert!(
        demo.expect_refusal(4)
            .contains("no run that can be resumed"),
        "{demo:?}"
    );
}

#[test]
fn reused_unit_reports_its_deleted_page() {
    let place = place();
    let bad = claude(&place, &[writes("docs-one"), BAD.to_owned()]);
    assert_eq!(run(&place, &bad, &[]).code, Some(100));
    let plan = |what: &[&str]| place.run(&[&["plan"], what].concat());
    assert!(
        !plan(&["--resume-run", "latest"])
            .expect_success()
            .contains("gone since")
    );
    fs::remove_file(place.path("wiki/global/one.md")).unwrap();
    let planned = plan(&["--resume-run", "latest"]);
    assert!(
        planned
            .expect_success()
            .contains("with the same content, but wiki/global/one.md is gone since"),
        "{planned:?}"
    );
    let claude = claude(&place, &["docs-one", "docs-two", "docs-three"].map(writes));
    let resumed = run(&place, &claude, &["--resume-run", "latest"]);
    let sentence = "files of reused units were deleted: docs-one (wiki/global/one.md is gone since); \
        write them again with `run --full --only UNIT`";
    assert!(resumed.stderr.contains(sentence), "{resumed:?}");
    assert_eq!(
        states(&parse_json_events(resumed.expect_success()), "docs-one"),
        ["reused"],
        "the deletion may be intended"
    );
    // The resumed run has no attempt of the unit, but the run before it has.
    let planned = plan(&["--resume-run", "latest"]);
    assert!(
        planned
            .expect_success()
            .contains("with the same content, but wiki/global/one.md is gone since"),
        "{planned:?}"
    );
    assert!(planned.stderr.contains(sentence), "{planned:?}");
    parse_json_events(run(&place, &claude, &["--full", "--only", "docs-one"]).expect_success());
    assert!(place.path("wiki/global/one.md").exists());
}

/// Renames a tape so that its run started that many milliseconds later.
fn postpone(tape: &std::path::Path, by_ms: u64) -> String {
    let directory = tape.parent().unwrap();
    let id = directory.file_name().unwrap().to_str().unwrap();
    let began = u64::from_str_radix(&id.replace('-', "")[..12], 16).unwrap() + by_ms;
    let began = format!("{began:012x}");
    let later = format!("{}-{}{}", &began[..8], &began[8..], &id[13..]);
    fs::rename(directory, directory.with_file_name(&later)).unwrap();
    later
}

#[test]
fn latest_run_is_the_last_one_after_a_clock_change() {
    const HOUR: u64 = 3_600_000;
    let place = place();
    let claude = claude(
        &place,
        &[part(
            "docs-*",
            "{ call = { tool = \"wiki_write\", with = {} } }",
        )],
    );
    run(&place, &claude, &["--only", "docs-one"]);
    let first = postpone(&tapes(&place)[0], 3 * HOUR);
    run(&place, &claude, &["--only", "docs-two"]);
    let all = tapes(&place);
    assert_eq!(all.len(), 2);
    assert!(
        all[0].to_str().unwrap().contains(&first),
        "the second run comes after the first: {all:?}"
    );
    let latest = place
        .run(&["runs", "show", "latest"])
        .expect_success()
        .to_owned();
    assert!(
        latest.contains("docs-two") && !latest.contains("docs-one"),
        "{latest}"
    );
    let planned = place.run(&["plan", "--failed"]).expect_success().to_owned();
    assert!(
        planned.contains("docs-two") && !planned.contains("docs-one"),
        "{planned}"
    );

    // A tape that came with the project does not move later ids into the future.
    let foreign = postpone(&all[0], 1000 * 24 * HOUR);
    run(&place, &claude, &["--only", "docs-one"]);
    assert!(
        tapes(&place)[2].to_str().unwrap().contains(&foreign),
        "{:?}",
        tapes(&place)
    );
}
