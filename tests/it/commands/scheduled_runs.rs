//! Runs that a timer starts: what has changed, within the budget of a day, after another ingest has ended.

use serde_json::Value;

use super::{
    end_to_end::writes,
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
