//! Reviews of runs that later runs continued: what is left is offered once, and what was replaced never comes back.

use std::fs;

use serde_json::Value;

use super::{
    reviews::{NAMES, listed, newest_run, pages, part, place, review, run},
    test_dir::{CommandOutput, TestDir},
};

/// The paths that a review lists.
fn listed_pages(output: &CommandOutput) -> Vec<String> {
    let (changes, _) = listed(output);
    let mut paths: Vec<String> = changes
        .iter()
        .map(|change| {
            change["path"]
                .as_str()
                .unwrap()
                .trim_start_matches("wiki/global/")
                .to_owned()
        })
        .collect();
    paths.sort();
    paths
}

/// Resumes `before` with another model, so that all of its units work again.
fn resume_again(place: &TestDir, claude: &str, before: &str, more: &[&str]) -> CommandOutput {
    let resume = [
        "run",
        "--resume-run",
        before,
        "--model",
        "other",
        "--no-reconcile",
        "--ui",
        "none",
    ];
    place.run(&[&resume[..], &["--claude-bin", claude], more].concat())
}

#[test]
fn replaced_result_does_not_come_back() {
    let (place, claude) = place();
    run(&place, &claude);
    let first = newest_run(&place);
    let again = resume_again(&place, &claude, &first, &["--only", "docs-two"]);
    assert_eq!(again.code, Some(103), "{again:?}");
    assert_eq!(review(&place, &claude, &["--reject", "*"]).code, Some(0));
    assert_eq!(
        listed_pages(&review(&place, &claude, &["--list"])),
        ["one.md", "three.md"]
    );
    let refused = review(&place, &claude, &["--accept", "*", "--reject", "*/two.md"]);
    assert!(
        refused.expect_refusal(4).contains("*/two.md"),
        "{refused:?}"
    );
    assert_eq!(review(&place, &claude, &["--accept", "*"]).code, Some(0));
    assert_eq!(pages(&place), ["one.md", "three.md"]);
    review(&place, &claude, &["--list"]).expect_refusal(4);
}

#[test]
fn result_stays_if_its_unit_failed_in_a_later_run() {
    let (place, claude) = place();
    run(&place, &claude);
    let first = newest_run(&place);
    place.scripted_claude(&part("one"));
    resume_again(&place, &claude, &first, &[]);
    assert_eq!(review(&place, &claude, &["--accept", "*"]).code, Some(0));
    assert_eq!(pages(&place), ["one.md"]);
    assert_eq!(
        listed_pages(&review(&place, &claude, &["--list"])),
        ["three.md", "two.md"]
    );
    assert_eq!(review(&place, &claude, &["--accept", "*"]).code, Some(0));
    assert_eq!(pages(&place).len(), 3);
}

#[test]
fn unit_that_is_gone_is_left_out_for_good() {
    let (place, claude) = place();
    run(&place, &claude);
    fs::remove_file(place.path("notes/two.md")).unwrap();
    let first = newest_run(&place);
    let reviewed = review(&place, &claude, &["--accept", "*"]);
    assert_eq!(reviewed.code, Some(0));
    assert!(
        reviewed.stderr.contains("does not contain them: docs-two"),
        "{reviewed:?}"
    );
    assert_eq!(pages(&place), ["one.md", "three.md"]);
    let over = review(&place, &claude, &["--list"]);
    assert!(over.expect_refusal(4).contains("no run"), "{over:?}");
    let over = review(&place, &claude, &[&first, "--list"]);
    assert!(
        over.expect_refusal(4)
            .contains(&format!("--resume-run {}", &first[first.len() - 6..])),
        "{over:?}"
    );
}

/// Two reviews of the same changes would decide independently of each other.
#[test]
fn review_that_another_run_continues_is_refused() {
    let (place, claude) = place();
    run(&place, &claude);
    let first = newest_run(&place);
    assert_eq!(
        review(&place, &claude, &[&first, "--accept", "*/one.md"]).code,
        Some(103)
    );
    let second = newest_run(&place);
    let refused = review(&place, &claude, &[&first, "--accept", "*/two.md"]);
    let expected = format!("ingestdeck review {}", &second[second.len() - 6..]);
    assert!(
        refused.expect_refusal(2).contains(&expected),
        "{expected}: {refused:?}"
    );
    assert_eq!(review(&place, &claude, &["--accept", "*"]).code, Some(0));
    assert_eq!(pages(&place).len(), 3);
    review(&place, &claude, &["--list"]).expect_refusal(4);
}

#[test]
fn lists_and_reports_name_the_run_that_finished_a_review() {
    let (place, claude) = place();
    run(&place, &claude);
    let first = newest_run(&place);
    let listed = |run: &str| {
        let listed = place.run(&["runs", "list", "--ui", "json"]).stdout;
        let mut runs = listed
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        runs.find(|found| found["run"] == run).unwrap()["index"]["reviewed_by"].clone()
    };
    let outcome = || {
        let report = place.run(&["report", &first, "--format", "json"]).stdout;
        serde_json::from_str::<Value>(&report).unwrap()["body"]["ingestdeck"]["runOutcome"].clone()
    };
    assert_eq!(
        (listed(&first), outcome()),
        (Value::Null, "waiting_approval".into())
    );
    assert_eq!(review(&place, &claude, &["--accept", "*"]).code, Some(0));
    let second = newest_run(&place);
    assert_eq!(
        (listed(&first), outcome()),
        (second.as_str().into(), "reviewed".into())
    );
    assert_eq!(
        (listed(&second), NAMES.len()),
        (Value::Null, pages(&place).len())
    );
    let shown = place.run(&["runs", "show", &first, "--ui", "json"]).stdout;
    assert_eq!(
        serde_json::from_str::<Value>(&shown).unwrap()["reviewed_by"],
        second.as_str()
    );
    let texts = [
        &["runs", "list"][..],
        &["runs", "show", &first],
        &["report", &first],
    ];
    let texts = texts.map(|args| place.run(args).stdout);
    assert!(
        texts.iter().all(|text| !text.contains("ingestdeck review")),
        "{texts:?}"
    );
    assert!(
        texts[0].contains("  reviewed ") && !texts[1].contains("not saved"),
        "{texts:?}"
    );
}

#[test]
fn pruning_keeps_the_runs_that_settled_a_result() {
    let (place, claude) = place();
    run(&place, &claude);
    let first = newest_run(&place);
    resume_again(&place, &claude, &first, &["--only", "docs-two"]);
    assert_eq!(review(&place, &claude, &["--reject", "*"]).code, Some(0));
    let again = [
        "run",
        "--full",
        "--only",
        "docs-two",
        "--no-reconcile",
        "--ui",
        "none",
        "--claude-bin",
        &claude,
    ];
    assert_eq!(place.run(&again).code, Some(0));
    let before = listed_pages(&review(&place, &claude, &["--list"]));
    place
        .run(&["runs", "prune", "--keep", "0"])
        .expect_success();
    assert_eq!(listed_pages(&review(&place, &claude, &["--list"])), before);
    assert_eq!(before, ["one.md", "three.md"]);
}

/// Two nights whose changes waited: the second run made the same units again, and its changes are accepted.
#[test]
fn review_of_results_that_a_later_run_saved_is_over() {
    let (place, claude) = place();
    run(&place, &claude);
    let first = newest_run(&place);
    run(&place, &claude);
    assert_eq!(review(&place, &claude, &["--accept", "*"]).code, Some(0));
    let list = review(&place, &claude, &["--list"]);
    assert!(
        list.expect_refusal(4)
            .contains("no run of this project waits for a review"),
        "{list:?}"
    );
    let named = review(&place, &claude, &[first.as_str(), "--accept", "*"]);
    assert!(
        named.expect_refusal(4).contains(" was finished by run "),
        "{named:?}"
    );
    let runs = place.run(&["runs", "list"]);
    assert!(!runs.expect_success().contains("waiting"), "{runs:?}");
    let plan = place.run(&["plan"]);
    assert!(plan.expect_success().contains("nothing to do"), "{plan:?}");
}
