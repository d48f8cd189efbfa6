//! `review RUN` for a run whose changes are in commits already: what is not accepted is taken back in one more commit.

use std::fs;

use serde_json::Value;

use super::{
    reviews::{NAMES, pages, part, place, review, subjects},
    test_dir::{CommandOutput, TestDir},
};
use crate::support::git::git;
use ingestdeck_engine::recorded_tapes;
use ingestdeck_records::store::RunStore;

/// [`place`] after a run that committed a page for each of [`NAMES`].
fn committed() -> (TestDir, String) {
    let (place, claude) = place();
    run(&place, &claude);
    (place, claude)
}

fn run(place: &TestDir, claude: &str) {
    place
        .run(&[
            "run",
            "--no-reconcile",
            "--ui",
            "none",
            "--claude-bin",
            claude,
        ])
        .expect_success();
}

fn changes(listed: &CommandOutput) -> Vec<String> {
    let lines = listed
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let changes = lines.filter(|line| line["type"] == "change");
    let word = |line: &Value, key: &str| line[key].as_str().unwrap().to_owned();
    changes
        .map(|line| {
            ["path", "change", "decision"]
                .map(|key| word(&line, key))
                .join(" ")
        })
        .collect()
}

/// Pages that exist according to the index.
fn indexed_pages(place: &TestDir) -> Vec<String> {
    let (db, _) = recorded_tapes::open_updated_index(&RunStore::new(&place.path(""))).unwrap();
    let artifacts = db.prior_artifacts(None).unwrap().into_values().flatten();
    let mut pages: Vec<String> = artifacts
        .filter(|artifact| artifact.row.change != "removed")
        .map(|artifact| artifact.row.key)
        .collect();
    pages.sort();
    pages
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
    assert!(
        review(&place, &claude, &[])
            .expect_refusal(4)
            .contains("`ingestdeck review latest`")
    );
    let expected =
        ["one", "three", "two"].map(|name| format!("wiki/global/{name}.md created open"));
    assert_eq!(changes(&listed), expected);
    let output = review(
        &place,
        &claude,
        &["latest", "--accept", "*", "--reject", "*/two.md"],
    );
    output.expect_success();
    assert_eq!(
        (pages(&place), subjects(&place)),
        (vec!["one.md".to_owned(), "three.md".into()], 3)
    );
    let changed = git(
        &place.path(""),
        &["diff", "--name-status", "HEAD~2", "HEAD", "--", "wiki"],
    );
    assert_eq!(changed, "A\twiki/global/one.md\nA\twiki/global/three.md\n");
    assert!(show(&place, "HEAD").contains("review of run "));
    assert_eq!(git(&place.path(""), &["status", "--porcelain", "-uno"]), "");
    assert_eq!(indexed_pages(&place), ["one", "three"]);
    // The take-back is a commit that can be taken back, too.
    let again = review(&place, &claude, &["latest", "--list"]);
    assert_eq!(
        changes(&again),
        ["wiki/global/two.md removed open"],
        "{again:?}"
    );
    let artifacts = place.run(&["artifacts", "latest", "--ui", "json"]);
    let lines = artifacts
        .expect_success()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let listed: Vec<Value> = lines.filter(|line| line["type"] == "artifact").collect();
    assert_eq!(
        (listed.len(), &listed[0]["path"], &listed[0]["state"]),
        (1, &"wiki/global/two.md".into(), &"rejected".into())
    );
    review(&place, &claude, &["latest", "--reject", "*"]).expect_success();
    assert_eq!(pages(&place).len(), 3, "the page is there again");
    assert_eq!(indexed_pages(&place), ["one", "three", "two"]);
    let why = place.run(&["why", "wiki/global/two.md:6", "--ui", "json"]);
    let why: Value = serde_json::from_str(why.expect_success()).unwrap();
    assert_eq!(why["origin"], "reviewer", "{why}");
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
    let ledger =
        r#"{ call = { tool = "record_verification_ledger", with = { summary = "Read it." } } },"#;
    let writes = [write("two", "Text."), write("one", "See [[two]].")].concat();
    let script =
        format!("[[part]]\nunit = \"docs-one\"\nsteps = [{ledger}{writes}{{ say = \"Done.\" }}]\n");
    let claude = place.scripted_claude(&script).display().to_string();
    run(&place, &claude);
    let output = review(
        &place,
        &claude,
        &["latest", "--accept", "*/one.md", "--reject", "*/two.md"],
    );
    assert_eq!(output.code, Some(100), "{output:?}");
    assert!(
        output.stdout.contains("not valid without the others"),
        "{output:?}"
    );
    assert_eq!(
        pages(&place),
        ["one.md", "two.md"],
        "in a project without git, too"
    );
    review(&place, &claude, &["--reject", "*"]).expect_success();
    assert_eq!(pages(&place), [""; 0]);
}

#[test]
fn review_of_a_commit_keeps_its_decisions_and_continues() {
    let (place, claude) = committed();
    let output = review(&place, &claude, &["latest", "--reject", "*/two.md"]);
    assert_eq!(
        (output.code, subjects(&place)),
        (Some(103), 2),
        "{output:?}"
    );
    let listed = review(&place, &claude, &["--list"]);
    assert_eq!(listed.code, Some(103), "{listed:?}");
    let expected = [
        "one.md created open",
        "three.md created open",
        "two.md created rejected",
    ];
    assert_eq!(
        changes(&listed),
        expected.map(|change| format!("wiki/global/{change}"))
    );
    let artifacts = place.run(&["artifacts", "latest", "--ui", "json"]);
    assert!(
        artifacts
            .expect_success()
            .contains(r#""raw_files":[{"connection":"notes","path":"two.md"}]"#),
        "{artifacts:?}"
    );
    let picture = place.path("../review.svg");
    place
        .run(&[
            "screenshot",
            "latest",
            "--keys",
            "V",
            "--out",
            picture.to_str().unwrap(),
        ])
        .expect_success();
    // A clone may contain a link to another file of the user.
    std::os::unix::fs::symlink(&picture, place.path("link.svg")).unwrap();
    let refused = place.run(&["screenshot", "latest", "--out", "link.svg"]);
    assert!(
        refused.code != Some(0) && refused.stderr.contains("symbolic link"),
        "{refused:?}"
    );
    let picture = fs::read_to_string(picture).unwrap();
    assert!(
        picture.contains("rests on"),
        "the page names the raw files: {picture}"
    );
    let resumed = place.run(&[
        "run",
        "--resume-run",
        "latest",
        "--ui",
        "none",
        "--claude-bin",
        &claude,
    ]);
    assert_eq!(
        resumed.code,
        Some(103),
        "a resumed run waits, too: {resumed:?}"
    );
    review(
        &place,
        &claude,
        &["--accept", "*/one.md", "--accept", "*/three.md"],
    )
    .expect_success();
    assert_eq!(
        (pages(&place), subjects(&place)),
        (vec!["one.md".to_owned(), "three.md".into()], 3)
    );
    let again = review(&place, &claude, &["--list"]);
    assert!(
        again
            .expect_refusal(4)
            .starts_with("no run of this project waits"),
        "{again:?}"
    );
    let mut runs = run_ids(&place);
    let over = review(&place, &claude, &[&runs.remove(1), "--reject", "*"]);
    assert!(
        over.expect_refusal(4).contains("was finished by run"),
        "{over:?}"
    );
    let first = review(&place, &claude, &[&runs.remove(0), "--list"]);
    assert_eq!(
        changes(&first).len(),
        2,
        "what is left of the first run: {first:?}"
    );
}

#[test]
fn review_that_accepts_everything_is_over() {
    let (place, claude) = committed();
    assert_eq!(
        review(&place, &claude, &["latest", "--accept", "*/two.md"]).code,
        Some(103)
    );
    review(&place, &claude, &["--accept", "*"]).expect_success();
    assert_eq!((pages(&place).len(), subjects(&place)), (3, 2));
    assert!(
        review(&place, &claude, &["--list"])
            .expect_refusal(4)
            .starts_with("no run of this project waits")
    );
    review(&place, &claude, &[&run_ids(&place)[0], "--list"]).expect_success();
}

#[test]
fn waiting_review_needs_the_branch_of_its_commits() {
    let (place, claude) = place();
    let args = [
        "run",
        "--no-reconcile",
        "--branch",
        "bot",
        "--ui",
        "none",
        "--claude-bin",
        &claude,
    ];
    place.run(&args).expect_success();
    assert_eq!(
        review(&place, &claude, &["latest", "--reject", "*/two.md"]).code,
        Some(103)
    );
    git(&place.path(""), &["branch", "--quiet", "-D", "bot"]);
    let refused = review(&place, &claude, &["--accept", "*"]);
    assert!(
        refused
            .expect_refusal(2)
            .contains("the branch bot, which the review is about, is gone"),
        "{refused:?}"
    );
    assert_eq!(
        changes(&review(&place, &claude, &["--list"])).len(),
        3,
        "no decision is lost"
    );
}

#[test]
fn committed_page_that_is_sent_back_is_written_again() {
    let (place, claude) = committed();
    let accept = ["latest", "--accept", "*/one.md", "--accept", "*/three.md"];
    let send = [
        &accept[..],
        &["--send-back", "*/two.md", "--feedback", "Make it longer"],
    ]
    .concat();
    let output = review(&place, &claude, &send);
    assert_eq!(
        (output.code, subjects(&place)),
        (Some(103), 2),
        "{output:?}"
    );
    let listed = review(&place, &claude, &["--list", "--diff"]);
    let expected = [
        "one.md created accepted",
        "three.md created accepted",
        "two.md created open",
    ];
    assert_eq!(
        changes(&listed),
        expected.map(|change| format!("wiki/global/{change}")),
        "{listed:?}"
    );
    assert!(
        listed.stdout.contains("+Second text."),
        "the difference from before the run: {listed:?}"
    );
    review(&place, &claude, &["--accept", "*/two.md"]).expect_success();
    let page = |name: &str| fs::read_to_string(place.path("wiki/global").join(name)).unwrap();
    assert!(page("two.md").contains("Second text.") && page("one.md").contains("First text."));
    let changed = git(
        &place.path(""),
        &["diff", "--name-only", "HEAD^", "HEAD", "--", "wiki"],
    );
    assert_eq!(
        (changed.as_str(), subjects(&place)),
        ("wiki/global/two.md\n", 3)
    );
    assert!(
        show(&place, "HEAD").contains("Ingest-Unit: docs-two"),
        "{}",
        show(&place, "HEAD")
    );
    let plan = place.run(&["plan"]);
    assert!(
        plan.expect_success().contains("3 units unchanged") && plan.stderr.is_empty(),
        "{plan:?}"
    );
    let artifacts = place.run(&["artifacts", "latest"]);
    assert!(
        artifacts
            .expect_success()
            .contains("wiki/global/two.md  saved"),
        "{artifacts:?}"
    );
}

#[test]
fn files_that_changed_after_the_run_are_left_out() {
    let (place, claude) = committed();
    place.write("wiki/global/one.md", "---\nsummary: mine\n---\n\nMine.\n");
    fs::remove_file(place.path("wiki/global/two.md")).unwrap();
    git(&place.path(""), &["commit", "--quiet", "-am", "by hand"]);
    let listed = review(&place, &claude, &["latest", "--list"]);
    assert_eq!(changes(&listed), ["wiki/global/three.md created open"]);
    assert!(listed.stderr.contains(
        "not reviewed, because they changed after the run: wiki/global/one.md, wiki/global/two.md"
    ));
    let run_id = newest_run(&place);
    review(&place, &claude, &["latest", "--reject", "*"]).expect_success();
    assert_eq!(pages(&place), ["one.md"]);
    assert!(
        fs::read_to_string(place.path("wiki/global/one.md"))
            .unwrap()
            .contains("Mine.")
    );
    let refused = review(&place, &claude, &[&run_id, "--reject", "*"]);
    assert!(
        refused
            .expect_refusal(4)
            .contains("no changes left to review"),
        "{refused:?}"
    );
}

/// All runs, oldest first.
fn run_ids(place: &TestDir) -> Vec<String> {
    let runs = fs::read_dir(place.path(".ktx/ingestdeck/runs")).unwrap();
    let mut ids: Vec<String> = runs
        .map(|run| run.unwrap().file_name().into_string().unwrap())
        .collect();
    ids.sort();
    ids
}

fn newest_run(place: &TestDir) -> String {
    run_ids(place).pop().unwrap()
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
        assert!(
            refused
                .expect_refusal(4)
                .contains("cannot be reviewed: this installation did not record it"),
            "{refused:?}"
        );
    }
    assert_eq!((pages(&place).len(), subjects(&place)), (3, 2));
}

#[test]
fn later_run_learns_what_was_taken_back() {
    let (place, claude) = committed();
    review(
        &place,
        &claude,
        &["latest", "--accept", "*", "--reject", "*/two.md"],
    )
    .expect_success();
    place.write("notes/two.md", "Changed.");
    git(&place.path(""), &["commit", "--quiet", "-am", "changed"]);
    place.scripted_claude(&NAMES.map(part).concat());
    run(&place, &claude);
    let tape = place
        .path(".ktx/ingestdeck/runs")
        .join(newest_run(&place))
        .join("tape.jsonl");
    let tape = fs::read_to_string(tape).unwrap();
    let started = tape
        .lines()
        .find(|line| line.contains("\"attempt_started\""))
        .unwrap();
    assert!(
        started.contains("wiki/global/two.md, rejected"),
        "{started}"
    );
}

#[test]
fn file_that_changed_since_counts_as_changed() {
    let (place, claude) = committed();
    place.write("notes/one.md", "Changed.");
    git(&place.path(""), &["commit", "--quiet", "-am", "changed"]);
    let planned = || place.run(&["plan"]).expect_success().contains("docs-one");
    assert!(planned());
    assert_eq!(
        review(&place, &claude, &["latest", "--reject", "*/two.md"]).code,
        Some(103)
    );
    assert!(planned(), "the review has begun");
    review(&place, &claude, &["--accept", "*"]).expect_success();
    assert!(planned(), "the review is over");
}

#[test]
fn commits_of_a_merged_branch_are_taken_back() {
    let (place, claude) = place();
    let root = place.path("");
    let args = [
        "run",
        "--no-reconcile",
        "--branch",
        "bot",
        "--ui",
        "none",
        "--claude-bin",
        &claude,
    ];
    place.run(&args).expect_success();
    let listed = review(&place, &claude, &["latest", "--list"]);
    assert_eq!(changes(&listed).len(), 3, "on its branch: {listed:?}");
    let branch = git(&root, &["branch", "--show-current"]);
    git(&root, &["merge", "--quiet", "--no-ff", "--no-edit", "bot"]);
    git(&root, &["branch", "--quiet", "-d", "bot"]);
    review(
        &place,
        &claude,
        &["latest", "--accept", "*", "--reject", "*/two.md"],
    )
    .expect_success();
    assert_eq!(git(&root, &["branch", "--show-current"]), branch);
    assert_eq!(pages(&place), ["one.md", "three.md"]);
}

#[test]
fn second_review_of_the_same_commits_is_refused() {
    let (place, claude) = committed();
    let run_id = newest_run(&place);
    assert_eq!(
        review(&place, &claude, &["latest", "--reject", "*/two.md"]).code,
        Some(103)
    );
    for more in [&["--list"][..], &["--accept", "*"]] {
        let refused = review(&place, &claude, &[&[run_id.as_str()], more].concat());
        assert!(
            refused
                .expect_refusal(2)
                .contains("which waits for decisions; continue with"),
            "{refused:?}"
        );
    }
    // Without the record of the commits, nothing is decided.
    fs::remove_dir_all(place.path(".ktx/ingestdeck/runs").join(&run_id)).unwrap();
    let refused = review(&place, &claude, &["--accept", "*"]);
    assert!(refused.expect_refusal(2).contains("is gone"), "{refused:?}");
    assert_eq!((pages(&place).len(), subjects(&place)), (3, 2));
}

#[test]
fn page_without_a_unit_is_not_sent_back() {
    let (place, claude) = committed();
    fs::remove_file(place.path("notes/two.md")).unwrap();
    git(&place.path(""), &["commit", "--quiet", "-am", "gone"]);
    let mistaken = review(
        &place,
        &claude,
        &["latest", "--accept", "*", "--reject", "wiki/other/*"],
    );
    assert!(
        mistaken
            .expect_refusal(4)
            .contains("no change matches --reject `wiki/other/*`"),
        "{mistaken:?}"
    );
    assert_eq!(run_ids(&place).len(), 1, "no review has begun");
    let refused = review(
        &place,
        &claude,
        &["latest", "--send-back", "*/two.md", "--feedback", "Longer."],
    );
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(
        refused
            .stderr
            .contains("no unit of the plan changed wiki/global/two.md"),
        "{refused:?}"
    );
    assert_eq!((pages(&place).len(), subjects(&place)), (3, 3));
}

#[test]
fn project_without_git_lists_its_files_as_they_are() {
    let place = TestDir::new();
    place.notes(&NAMES);
    let claude = place
        .scripted_claude(&NAMES.map(part).concat())
        .display()
        .to_string();
    run(&place, &claude);
    place.write("wiki/global/two.md", "---\nsummary: mine\n---\n\nMine.\n");
    let listed = review(&place, &claude, &["latest", "--list"]);
    assert_eq!(
        changes(&listed),
        ["one", "three"].map(|name| format!("wiki/global/{name}.md created open"))
    );
    assert!(
        listed
            .stderr
            .contains("they changed after the run: wiki/global/two.md"),
        "{listed:?}"
    );
    review(
        &place,
        &claude,
        &["latest", "--accept", "*", "--reject", "*/one.md"],
    )
    .expect_success();
    assert_eq!(pages(&place), ["three.md", "two.md"]);
}
