//! Runs that a timer starts: what has changed, within the budget of a day, after another ingest has ended.

use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::{
    end_to_end::{git, writes},
    test_dir::{CommandOutput, TestDir},
};

/// A project of two units and the `claude` that plays them, for one dollar per thousand tokens.
fn project() -> (TestDir, String) {
    let place = TestDir::new();
    place.notes(&["one", "two"]);
    let script = format!(
        "[usd_per_million]\ninput = 1000.0\noutput = 1000.0\n{}{}",
        writes("docs-one", "one.md", "one", "As it is."),
        writes("docs-two", "two.md", "two", "As it is.")
    );
    let claude = place.scripted_claude(&script).to_str().unwrap().to_owned();
    (place, claude)
}

fn run(place: &TestDir, claude: &str, options: &[&str]) -> CommandOutput {
    let always = [
        "run",
        "--ui",
        "none",
        "--no-reconcile",
        "--concurrency",
        "1",
        "--claude-bin",
        claude,
    ];
    place.run(&[always.as_slice(), options].concat())
}

/// The number of units of each recorded run, newest first.
fn recorded(place: &TestDir) -> Vec<u64> {
    let list = place.run(&["runs", "list", "--ui", "json"]);
    let runs = list
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    runs.map(|run| run["index"]["units"].as_u64().unwrap())
        .collect()
}

#[test]
fn timer_runs_only_what_has_changed() {
    let (place, claude) = project();
    let start = || {
        run(
            &place,
            &claude,
            &["--max-day-budget-usd", "1000", "--lock-timeout", "1h"],
        )
    };
    assert_eq!((start().code, recorded(&place)), (Some(0), vec![2]));
    let idle = start();
    assert!(idle.stderr.contains("nothing to do"), "{idle:?}");
    assert_eq!((idle.code, recorded(&place)), (Some(0), vec![2]));
    place.write("notes/one.md", "# one\n\nMore.\n");
    assert_eq!((start().code, recorded(&place)), (Some(0), vec![1, 2]));
    assert_eq!((start().code, recorded(&place)), (Some(0), vec![1, 2]));
}

#[test]
fn day_budget_limits_all_runs_together() {
    let (place, claude) = project();
    let limited = |usd| run(&place, &claude, &["--max-day-budget-usd", usd]);
    // It is reached by the first unit.
    let first = limited("0.000001");
    assert_eq!(
        (first.code, recorded(&place)),
        (Some(102), vec![2]),
        "{first:?}"
    );
    let second = limited("0.000001");
    assert!(
        second
            .stderr
            .contains("the budget of the day, $0.0000, is used up: today's attempts cost $"),
        "{second:?}"
    );
    assert_eq!((second.code, recorded(&place)), (Some(102), vec![2]));
    // The lower of two limits applies.
    let both = run(
        &place,
        &claude,
        &[
            "--max-day-budget-usd",
            "1000",
            "--max-run-budget-usd",
            "0.000001",
        ],
    );
    assert_eq!(recorded(&place).len(), 2, "{both:?}");
    let third = limited("1000");
    assert_eq!(third.code, Some(0), "{third:?}");
    for wrong in ["0", "-1", "nan"] {
        let option = format!("--max-day-budget-usd={wrong}");
        let refused = run(&place, &claude, &[&option]);
        assert_eq!(refused.code, Some(2), "{wrong}: {refused:?}");
    }
}

/// The page of the guide with the units of systemd.
const GUIDE: &str = include_str!("../../../assets/guide/automate.md");

/// The text of the file `name` in the guide.
fn file_in_guide(name: &str) -> &'static str {
    let (_, after) = GUIDE.split_once(name).unwrap();
    let (_, block) = after.split_once("```ini\n").unwrap();
    block.split_once("```").unwrap().0
}

#[test]
fn command_of_the_timer_in_the_guide_runs_changes_once() {
    let (place, claude) = project();
    for args in [
        &["init", "-q", "."][..],
        &["add", "-A"],
        &["commit", "-qm", "first"],
    ] {
        git(&place, args);
    }
    let service = file_in_guide("ingest.service`");
    let line = service
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="));
    let (_, options) = line.unwrap().split_once(" run ").unwrap();
    let options: Vec<&str> = options
        .replace("usd 5", "usd 500")
        .leak()
        .split(' ')
        .collect();
    let start = || {
        let given = ["run", "--no-reconcile", "--claude-bin", &claude];
        place.run(&[&given[..], &options].concat())
    };
    assert_eq!((start().code, recorded(&place)), (Some(0), vec![2]));
    for text in ["# one\n\nMore.\n", "# one\n\nMore.\n"] {
        place.write("notes/one.md", text);
        let ran = start();
        assert_eq!(
            (ran.code, recorded(&place)),
            (Some(0), vec![1, 2]),
            "{ran:?}"
        );
    }
    assert!(start().stderr.contains("nothing to do"));
}

#[test]
#[cfg(target_os = "linux")]
fn units_of_systemd_in_the_guide_are_valid() {
    let place = TestDir::new();
    let service = file_in_guide("ingest.service`").replace(
        "ExecStart=%h/.local/bin/ingestdeck",
        &format!("ExecStart={}", crate::support::program()),
    );
    let service = place.write("ingest.service", service);
    let timer = place.write("ingest.timer", file_in_guide("ingest.timer`"));
    // A container may be without systemd.
    let Ok(verified) = Command::new("systemd-analyze")
        .arg("verify")
        .args([service, timer])
        .output()
    else {
        return;
    };
    assert!(
        verified.status.success() && verified.stderr.is_empty(),
        "{verified:?}"
    );
}

#[test]
fn wait_for_another_ingest_has_a_limit() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let hanging = place.scripted_claude("[[part]]\nunit = \"docs-one\"\nsteps = [\"hang\"]\n");
    let hanging = hanging.to_str().unwrap();
    let given = [
        "run",
        "--ui",
        "lines",
        "--no-reconcile",
        "--claude-bin",
        hanging,
    ];
    let mut first = place.start(place.command(&given));
    first.wait_for("stdout", "(scripted)");
    let waits = "is being ingested by process";
    let limited = place.run(&[&given[..], &["--lock-timeout", "1s"]].concat());
    assert_eq!(limited.code, Some(2), "{limited:?}");
    assert!(
        limited.stderr.contains(waits) && limited.stderr.contains("waited 1"),
        "{limited:?}"
    );
    let mut patient = place.start(place.command(&[&given[..], &["--lock-timeout", "1h"]].concat()));
    patient.wait_for("stderr", "waits for its end");
    let done = writes("docs-one", "one.md", "one", "As it is.");
    place.scripted_claude(&done);
    first.signal(Signal::SIGKILL);
    assert_eq!(first.end().code, None);
    let ended = patient.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
}
