//! Units that are incomplete although nothing failed: out of turns, stopped, or silent for too long.

use std::fs;

use serde_json::Value;

use super::test_dir::{CommandOutput, TestDir};
use crate::support::git::git;

const WRITES: &str = r#"
  { call = { tool = "record_verification_ledger", with = { summary = "Read it." } } },
  { call = { tool = "wiki_write", with = { key = "PAGE", summary = "s", content = "Text." } } },
"#;

/// A git project with two units.
fn place() -> TestDir {
    let place = TestDir::new();
    place.notes(&["one", "two"]);
    for args in [
        &["init", "--quiet", "--initial-branch=main"][..],
        &["add", "--all"],
        &["commit", "--quiet", "-m", "a"],
    ] {
        git(&place.path(""), args);
    }
    place
}

fn part(unit: &str, steps: &str) -> String {
    format!(
        "[[part]]\nunit = \"docs-{unit}\"\nsteps = [{}]\n",
        steps.replace("PAGE", unit)
    )
}

/// Reads the document of a part.
const READ: &str = "{ call = { tool = \"read_raw_file\", with = { path = \"PAGE.md\" } } },";

/// A `claude` in which `docs-two` writes a page and needs more turns than it has.
fn out_of_turns(place: &TestDir) -> String {
    let more = "{ say = \"a\" }, { call = { tool = \"wiki_list_tags\" } }, ".repeat(4);
    let parts = [
        part("one", &format!("{READ} {WRITES} {{ say = \"Done.\" }}")),
        part("two", &format!("{WRITES} {more}")),
    ];
    let rest = "[[part]]\nsteps = [{ say = \"nothing to do\" }]\n".to_owned();
    player(place, &[parts.concat(), rest].concat())
}

/// Writes the script outside the project.
fn player(place: &TestDir, script: &str) -> String {
    let claude = place.scripted_claude(script);
    fs::rename(place.path("script.toml"), place.path("../bin/script.toml")).unwrap();
    let stub = fs::read_to_string(&claude)
        .unwrap()
        .replace("work/script.toml", "bin/script.toml");
    fs::write(&claude, stub).unwrap();
    claude.display().to_string()
}

fn run(place: &TestDir, claude: &str, more: &[&str]) -> CommandOutput {
    place.run(
        &[
            &[
                "run",
                "--no-reconcile",
                "--ui",
                "lines",
                "--claude-bin",
                claude,
            ],
            more,
        ]
        .concat(),
    )
}

/// Unit and reason of each planned unit, without the id of the run.
fn planned(place: &TestDir, more: &[&str]) -> Vec<(String, String)> {
    let plan = place.run(&[&["plan", "--ui", "json"], more].concat());
    let units = plan
        .expect_success()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let text = |unit: &Value, name: &str| unit[name].as_str().unwrap().to_owned();
    let why = |why: String| {
        why.split_once(" in run ")
            .map_or(why.clone(), |(why, _)| format!("{why} in run"))
    };
    units
        .map(|unit| (text(&unit, "unit"), why(text(&unit, "why"))))
        .collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(unit, why)| ((*unit).to_owned(), (*why).to_owned()))
        .collect()
}

#[test]
fn unit_out_of_turns_is_planned_again() {
    let place = place();
    let claude = out_of_turns(&place);
    let first = run(&place, &claude, &["--step-budget", "4"]);
    assert_eq!(first.code, Some(0), "{first:?}");
    assert!(first.stdout.contains("1 succeeded, 1 budget"), "{first:?}");
    assert!(
        first.stdout.contains("ingestdeck run --resume-run"),
        "it can be resumed: {first:?}"
    );
    assert!(
        git(&place.path(""), &["ls-files", "wiki"]).contains("two.md"),
        "what it wrote is integrated"
    );
    let again = pairs(&[("docs-two", "ran out of turns (4/4) in run")]);
    assert_eq!(planned(&place, &[]), again);
    assert_eq!(planned(&place, &["--failed"]), again);
    let resumed = planned(&place, &["--resume-run", "latest"]);
    assert_eq!(resumed[1], again[0], "{resumed:?}");
    assert!(resumed[0].1.starts_with("succeeded"), "{resumed:?}");
    // With enough turns, the unit succeeds and the plan is empty.
    let second = run(&place, &claude, &["--failed", "--step-budget", "30"]);
    assert!(
        second.expect_success().contains("1 unit: 1 succeeded"),
        "{second:?}"
    );
    assert_eq!(planned(&place, &[]), []);
}

#[test]
fn unit_out_of_turns_is_planned_again_after_a_success() {
    let place = place();
    let good = player(
        &place,
        &part("two", &format!("{WRITES} {{ say = \"Done.\" }}")),
    );
    assert_eq!(run(&place, &good, &["--only", "docs-two"]).code, Some(0));
    let claude = out_of_turns(&place);
    assert_eq!(
        run(
            &place,
            &claude,
            &["--only", "docs-two", "--step-budget", "4"]
        )
        .code,
        Some(0)
    );
    let found = planned(&place, &[]);
    assert!(
        found.contains(&pairs(&[("docs-two", "ran out of turns (4/4) in run")])[0]),
        "{found:?}"
    );
}

#[test]
fn stopped_unit_is_planned_again() {
    let place = place();
    let claude = player(
        &place,
        &[
            part("one", WRITES),
            part("two", "{ say = \"now\" }, \"hang\""),
        ]
        .concat(),
    );
    let args = [
        "run",
        "--no-reconcile",
        "--ui",
        "lines",
        "--claude-bin",
        &claude,
    ];
    let mut running = place.start(place.command(&args));
    running.wait_for("stdout", "docs-one#1               ✓ succeeded");
    running.wait_for("stdout", "docs-two#1               ● session");
    running.signal(nix::sys::signal::Signal::SIGTERM);
    let ended = running.end();
    assert!(ended.stdout.contains("1 stopped"), "{ended:?}");
    let again = pairs(&[("docs-two", "was stopped in run")]);
    assert_eq!(planned(&place, &["--failed"]), again);
    assert!(planned(&place, &[]).contains(&again[0]));
}

/// A `claude` that hangs after these steps on its first call, and succeeds on later ones.
fn hangs_once(place: &TestDir, steps: &str) -> String {
    let first = part("two", &format!("{steps} \"hang\"")).replace("steps", "attempt = 1\nsteps");
    let claude = player(
        place,
        &[
            first,
            part("two", &format!("{WRITES} {{ say = \"Done.\" }}")),
        ]
        .concat(),
    );
    let mark = place.path("../bin/hung");
    let which = format!(
        "if mkdir '{}' 2>/dev/null; then A=1; else A=2; fi",
        mark.display()
    );
    let stub = fs::read_to_string(&claude).unwrap();
    let stub = stub
        .replacen("\nexec", &format!("\n{which}\nexec"), 1)
        .replace("--script", "--attempt $A --script");
    fs::write(&claude, stub).unwrap();
    claude
}

#[test]
fn silent_attempt_ends_and_is_retried() {
    let ways = [
        ("before its first token", ""),
        (
            "between tools",
            "{ call = { tool = \"wiki_write\", with = { key = \"junk\", summary = \"s\", content = \"x\" } } },",
        ),
    ];
    for (when, steps) in ways {
        let place = place();
        let claude = hangs_once(&place, steps);
        let ran = run(
            &place,
            &claude,
            &["--only", "docs-two", "--silence-timeout", "2s"],
        );
        assert_eq!(ran.code, Some(0), "{when}: {ran:?}");
        let why =
            "docs-two#1               ✗ failed: Claude Code wrote nothing for 2s (silence timeout)";
        assert!(ran.stdout.contains(why), "{when}: {ran:?}");
        assert!(
            ran.stdout.contains("docs-two#2               ✓ succeeded"),
            "{when}: {ran:?}"
        );
        let pages = git(&place.path(""), &["ls-files", "wiki"]);
        assert!(
            pages.contains("two.md") && !pages.contains("junk"),
            "in a clean workspace: {pages}"
        );
    }
}

#[test]
fn attempt_that_takes_too_long_ends_and_fails() {
    let place = place();
    let claude = player(&place, &part("two", "\"hang\""));
    place.write(
        "../home/.config/ingestdeck/config.toml",
        "[retry]\nmax_retries = 0\n[ingest]\nunit_timeout = \"2s\"\n",
    );
    let ran = run(&place, &claude, &["--only", "docs-two"]);
    assert_eq!(ran.code, Some(100), "{ran:?}");
    assert!(
        ran.stdout
            .contains("the attempt took longer than 2s (unit timeout)"),
        "{ran:?}"
    );
    assert!(
        ran.stdout.contains(
            "raise --unit-timeout or `unit_timeout` in [ingest] (`none` lifts it), then retry"
        ),
        "{ran:?}"
    );
}

#[test]
fn silence_is_an_event_of_the_stream() {
    let place = place();
    let claude = hangs_once(&place, "");
    place.write(
        "../home/.config/ingestdeck/config.toml",
        "[ingest]\nsilence_after = \"1s\"\n",
    );
    let args = [
        "run",
        "--ui",
        "json",
        "--only",
        "docs-two",
        "--silence-timeout",
        "4s",
        "--claude-bin",
        &claude,
    ];
    let ran = place.run(&[&args[..], &["--no-reconcile"]].concat());
    let live = states(ran.expect_success());
    assert!(
        live.iter().any(|state| state == "silent: no output for 1s"),
        "{live:?}"
    );
    let replayed = place.run(&["replay", "latest", "--ui", "json"]);
    assert_eq!(states(replayed.expect_success()), live);
}

/// States of `docs-two`, with the reason for a silence.
fn states(stream: &str) -> Vec<String> {
    let events = stream
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_unit =
        events.filter(|event| event["unit"] == "docs-two" && event["event"]["type"] == "unit");
    of_unit
        .map(|event| {
            match (
                event["event"]["state"].as_str().unwrap(),
                event["event"]["reason"].as_str(),
            ) {
                ("silent", Some(reason)) => format!("silent: {reason}"),
                (state, _) => state.to_owned(),
            }
        })
        .collect()
}
