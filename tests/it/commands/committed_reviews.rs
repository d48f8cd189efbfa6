//! `review RUN` for a run whose changes are in commits already: what is not accepted is taken back in one more commit.

use std::fs;

use serde_json::Value;

use super::{
    reviews::{NAMES, pages, part, place, review, subjects},
    test_dir::{CommandOutput, TestDir},
};
use crate::it::support::git::git;

/// [`place`] after a run that committed a page for each of [`NAMES`].
fn committed() -> (TestDir, String) {
    let (place, claude) = place();
    run(&place, &claude);
    (place, claude)
}

fn run(place: &TestDir, claude: &str) {
    place.run(&["run", "--no-reconcile", "--ui", "none", "--claude-bin", claude]).expect_success();
}

fn changes(listed: &CommandOutput) -> Vec<String> {
    let lines = listed.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let changes = lines.filter(|line| line["type"] == "change");
    let word = |line: &Value, key: &str| line[key].as_str().unwrap().to_owned();
    changes.map(|line| ["path", "change", "decision"].map(|key| word(&line, key)).join(" ")).collect()
}

fn show(place: &TestDir, what: &str) -> String {
    git(&place.path(""), &["show", what])
}

#[test]
fn rejected_changes_of_a_commit_are_taken_back() {
    let (place, claude) = committed();
    let listed = review(&place, &claude, &["latest", "--list"]);
    listed.expect_success();
    // Without a name, only changes that wait are reviewed.
    assert!(review(&place, &claude, &[]).expect_refusal(4).contains("`ingestdeck review latest`"));
    let expected = ["one", "three", "two"].map(|name| format!("wiki/global/{name}.md created open"));
    assert_eq!(changes(&listed), expected);
    let output = review(&place, &claude, &["latest", "--accept", "*", "--reject", "*/two.md"]);
    output.expect_success();
    assert_eq!((pages(&place), subjects(&place)), (vec!["one.md".to_owned(), "three.md".into()], 3));
    let changed = git(&place.path(""), &["diff", "--name-status", "HEAD~2", "HEAD", "--", "wiki"]);
    assert_eq!(changed, "A\twiki/global/one.md\nA\twiki/global/three.md\n");
    assert!(show(&place, "HEAD").contains("review of run "));
    assert_eq!(git(&place.path(""), &["status", "--porcelain", "-uno"]), "");
    assert!(review(&place, &claude, &["latest"]).expect_refusal(4).contains("it reviewed run"));
}

#[test]
fn part_that_leaves_broken_links_is_not_taken_back() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let write = |key: &str, content: &str| {
        format!(
            r#"{{ call = {{ tool = "wiki_write", with = {{ key = "{key}", summary = "s", content = "{content}" }} }} }},"#
        )
    };
    let ledger = r#"{ call = { tool = "record_verification_ledger", with = { summary = "Read it." } } },"#;
    let writes = [write("two", "Text."), write("one", "See [[two]].")].concat();
    let script = format!("[[part]]\nunit = \"docs-one\"\nsteps = [{ledger}{writes}{{ say = \"Done.\" }}]\n");
    let claude = place.scripted_claude(&script).display().to_string();
    run(&place, &claude);
    let output = review(&place, &claude, &["latest", "--accept", "*/one.md", "--reject", "*/two.md"]);
    assert_eq!(output.code, Some(100), "{output:?}");
    assert!(output.stdout.contains("not valid without the others"), "{output:?}");
    assert_eq!(pages(&place), ["one.md", "two.md"], "in a project without git, too");
    review(&place, &claude, &["--reject", "*"]).expect_success();
    assert_eq!(pages(&place), [""; 0]);
}

#[test]
fn review_of_a_commit_keeps_its_decisions_and_continues() {
    let (place, claude) = committed();
    let output = review(&place, &claude, &["latest", "--reject", "*/two.md"]);
    assert_eq!((output.code, subjects(&place)), (Some(103), 2), "{output:?}");
    let listed = review(&place, &claude, &["--list"]);
    assert_eq!(listed.code, Some(103), "{listed:?}");
    let expected = ["one.md created open", "three.md created open", "two.md created rejected"];
    assert_eq!(changes(&listed), expected.map(|change| format!("wiki/global/{change}")));
    let artifacts = place.run(&["artifacts", "latest", "--ui", "json"]);
    assert!(
        artifacts.expect_success().contains(r#""raw_files":[{"connection":"notes","path":"two.md"}]"#),
        "{artifacts:?}"
    );
    let resumed = place.run(&["run", "--resume-run", "latest", "--ui", "none", "--claude-bin", &claude]);
    assert_eq!(resumed.code, Some(103), "a resumed run waits, too: {resumed:?}");
    review(&place, &claude, &["--accept", "*/one.md", "--accept", "*/three.md"]).expect_success();
    assert_eq!((pages(&place), subjects(&place)), (vec!["one.md".to_owned(), "three.md".into()], 3));
    let again = review(&place, &claude, &["--list"]);
    assert!(again.expect_refusal(4).starts_with("no run of this project waits"), "{again:?}");
}

#[test]
fn committed_page_that_is_sent_back_is_written_again() {
    let (place, claude) = committed();
    let accept = ["latest", "--accept", "*/one.md", "--accept", "*/three.md"];
    let send = [&accept[..], &["--send-back", "*/two.md", "--feedback", "Make it longer"]].concat();
    let output = review(&place, &claude, &send);
    assert_eq!((output.code, subjects(&place)), (Some(103), 2), "{output:?}");
    let listed = review(&place, &claude, &["--list", "--diff"]);
    let expected = ["one.md created accepted", "three.md created accepted", "two.md created open"];
    assert_eq!(changes(&listed), expected.map(|change| format!("wiki/global/{change}")), "{listed:?}");
    assert!(listed.stdout.contains("+Second text."), "the difference from before the run: {listed:?}");
    review(&place, &claude, &["--accept", "*/two.md"]).expect_success();
    let page = |name: &str| fs::read_to_string(place.path("wiki/global").join(name)).unwrap();
    assert!(page("two.md").contains("Second text.") && page("one.md").contains("First text."));
    let changed = git(&place.path(""), &["diff", "--name-only", "HEAD^", "HEAD", "--", "wiki"]);
    assert_eq!((changed.as_str(), subjects(&place)), ("wiki/global/two.md\n", 3));
    assert!(show(&place, "HEAD").contains("Ingest-Unit: docs-two"), "{}", show(&place, "HEAD"));
}

#[test]
fn files_that_changed_after_the_run_are_left_out() {
    let (place, claude) = committed();
    place.write("wiki/global/one.md", "---\nsummary: mine\n---\n\nMine.\n");
    fs::remove_file(place.path("wiki/global/two.md")).unwrap();
    git(&place.path(""), &["commit", "--quiet", "-am", "by hand"]);
    let listed = review(&place, &claude, &["latest", "--list"]);
    assert_eq!(changes(&listed), ["wiki/global/three.md created open"]);
    assert!(
        listed
            .stderr
            .contains("files that changed after the run are not reviewed: wiki/global/one.md, wiki/global/two.md")
    );
    let run_id = newest_run(&place);
    review(&place, &claude, &["latest", "--reject", "*"]).expect_success();
    assert_eq!(pages(&place), ["one.md"]);
    assert!(fs::read_to_string(place.path("wiki/global/one.md")).unwrap().contains("Mine."));
    let refused = review(&place, &claude, &[&run_id, "--reject", "*"]);
    assert!(refused.expect_refusal(4).contains("no changes left to review"), "{refused:?}");
}

fn newest_run(place: &TestDir) -> String {
    let runs = fs::read_dir(place.path(".ktx/ingestdeck/runs")).unwrap();
    runs.map(|run| run.unwrap().file_name().into_string().unwrap()).max().unwrap()
}

#[test]
fn commits_that_a_copied_record_names_are_not_reviewed() {
    let (place, claude) = committed();
    let run_id = newest_run(&place);
    let run = place.path(".ktx/ingestdeck/runs").join(&run_id);
    let tape = fs::read(run.join("tape.jsonl")).unwrap();
    fs::remove_dir_all(&run).unwrap();
    fs::create_dir(&run).unwrap();
    fs::write(run.join("tape.jsonl"), tape).unwrap();
    for more in [&["--list"][..], &["--reject", "*"]] {
        let refused = review(&place, &claude, &[&[run_id.as_str()], more].concat());
        assert!(refused.expect_refusal(4).contains("cannot be reviewed, because it is a copy"), "{refused:?}");
    }
    assert_eq!((pages(&place).len(), subjects(&place)), (3, 2));
}

#[test]
fn later_run_learns_what_was_taken_back() {
    let (place, claude) = committed();
    review(&place, &claude, &["latest", "--accept", "*", "--reject", "*/two.md"]).expect_success();
    place.write("notes/two.md", "Changed.");
    git(&place.path(""), &["commit", "--quiet", "-am", "changed"]);
    place.scripted_claude(&NAMES.map(part).concat());
    run(&place, &claude);
    let tape = place.path(".ktx/ingestdeck/runs").join(newest_run(&place)).join("tape.jsonl");
    let tape = fs::read_to_string(tape).unwrap();
    let started = tape.lines().find(|line| line.contains("\"attempt_started\"")).unwrap();
    assert!(started.contains("wiki/global/two.md, rejected"), "{started}");
}
