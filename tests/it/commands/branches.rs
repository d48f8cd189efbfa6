//! `--branch`: the commits of a run go to another branch, and the project stays as it is.

use std::fs;

use serde_json::Value;

use super::{
    reviews::{NAMES, pages, part, place, review, subjects},
    test_dir::{CommandOutput, TestDir},
};
use crate::support::git::git;

fn run_on(place: &TestDir, claude: &str, branch: &str, more: &[&str]) -> CommandOutput {
    let args = [
        "run",
        "--no-reconcile",
        "--ui",
        "json",
        "--claude-bin",
        claude,
        "--branch",
        branch,
    ];
    place.run(&[&args[..], more].concat())
}

/// Changed pages of each commit of the branch that the current branch lacks, newest first.
fn ahead(place: &TestDir, branch: &str) -> Vec<String> {
    let range = format!("HEAD..refs/heads/{branch}");
    let log = git(
        &place.path(""),
        &["log", "--format=%%", "--name-only", &range, "--", "wiki"],
    );
    log.split('%')
        .skip(1)
        .map(|commit| commit.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

/// Asserts that neither the current branch nor the files are changed.
fn assert_untouched(place: &TestDir) {
    assert_eq!((pages(place), subjects(place)), (Vec::new(), 1));
    // The script of the agent is not committed.
    assert_eq!(
        git(&place.path(""), &["status", "--porcelain"]),
        "?? script.toml\n"
    );
}

fn body(place: &TestDir) -> Option<String> {
    let runs = fs::read_dir(place.path(".ktx/ingestdeck/runs")).unwrap();
    let newest = runs.map(|run| run.unwrap().path()).max().unwrap();
    fs::read_to_string(newest.join("pull-request.md")).ok()
}

#[test]
fn run_commits_to_a_branch_of_its_own() {
    let (place, claude) = place();
    let output = run_on(&place, &claude, "ingest/docs", &[]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_untouched(&place);
    let [commit] = &ahead(&place, "ingest/docs")[..] else {
        panic!("one commit")
    };
    assert!(
        NAMES
            .iter()
            .all(|name| commit.contains(&format!("wiki/global/{name}.md"))),
        "{commit}"
    );
    let saved = output
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let saved = saved
        .map(|line| line["event"].clone())
        .find(|event| event["state"] == "saved")
        .unwrap();
    assert_eq!(saved["branch"], "ingest/docs");
    assert!(
        body(&place).unwrap().contains(" on ingest/docs"),
        "{:?}",
        body(&place)
    );
    let again = run_on(&place, &claude, "ingest/docs", &["--full"]);
    assert_eq!(
        again.code,
        Some(0),
        "a branch that contains the current commit is continued: {again:?}"
    );
    assert_untouched(&place);
}

#[test]
fn run_on_a_branch_ignores_uncommitted_pages() {
    let (place, claude) = place();
    let page = place.write("wiki/global/one.md", "Mine.");
    assert_eq!(run_on(&place, &claude, "ingest/docs", &[]).code, Some(0));
    assert_eq!(fs::read_to_string(page).unwrap(), "Mine.");
    assert_eq!(
        (ahead(&place, "ingest/docs").len(), subjects(&place)),
        (1, 1)
    );
}

#[test]
fn lines_name_the_commands_of_a_pull_request() {
    let (place, claude) = place();
    let args = [
        "run",
        "--no-reconcile",
        "--ui",
        "lines",
        "--claude-bin",
        &claude,
        "--branch",
        "ingest/docs",
    ];
    let output = place.run(&args);
    assert!(
        output.stdout.contains("git push -u origin ingest/docs"),
        "{output:?}"
    );
    let named = output
        .stdout
        .lines()
        .find_map(|line| line.split_once("--body-file "))
        .unwrap()
        .1;
    assert!(fs::exists(named.trim_matches('\'')).unwrap(), "{named}");
}

#[test]
fn review_commits_to_the_branch_that_it_names() {
    let (place, claude) = place();
    let args = [
        "run",
        "--review",
        "--no-reconcile",
        "--ui",
        "json",
        "--claude-bin",
        &claude,
    ];
    assert_eq!(place.run(&args).code, Some(103));
    let output = review(
        &place,
        &claude,
        &[
            "--accept",
            "*",
            "--reject",
            "*/two.md",
            "--branch",
            "ingest/docs",
        ],
    );
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_untouched(&place);
    assert_eq!(
        ahead(&place, "ingest/docs"),
        ["wiki/global/one.md wiki/global/three.md"]
    );
    assert!(body(&place).is_some());
}

#[test]
fn review_of_a_run_keeps_its_branch() {
    let (place, claude) = place();
    assert_eq!(
        run_on(&place, &claude, "ingest/docs", &["--review"]).code,
        Some(103)
    );
    assert!(body(&place).is_none(), "nothing is committed");
    assert_eq!(review(&place, &claude, &["--accept", "*"]).code, Some(0));
    assert_untouched(&place);
    assert_eq!(ahead(&place, "ingest/docs").len(), 1);
}

#[test]
fn taken_branch_leaves_the_review_open() {
    let (place, claude) = place();
    let root = place.path("");
    git(&root, &["branch", "old"]);
    fs::write(place.path("README.md"), "More.").unwrap();
    git(&root, &["add", "README.md"]);
    git(&root, &["commit", "--quiet", "--amend", "--no-edit"]);
    let args = [
        "run",
        "--review",
        "--no-reconcile",
        "--detach",
        "--ui",
        "json",
        "--claude-bin",
        &claude,
    ];
    place.run(&args).expect_success();
    while review(&place, &claude, &["--list"]).code != Some(103) {}
    for name in ["old", "+main", "a\u{1b}[31m"] {
        let refused = review(
            &place,
            &claude,
            &["--accept", "*", &format!("--branch={name}")],
        );
        assert_eq!(refused.code, Some(4), "{refused:?}");
        assert!(refused.stderr.contains("branch"), "{refused:?}");
    }
    assert!(
        review(&place, &claude, &["--list"])
            .stdout
            .contains(r#""open":0,"accepted":3"#),
        "decisions are kept"
    );
    let output = review(&place, &claude, &["--accept", "*", "--branch", "new"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stdout.contains(r#""branch":"new""#), "{output:?}");
    #[cfg(target_os = "linux")]
    place.wait_until_no_process_left();
    assert_untouched(&place);
    assert_eq!(ahead(&place, "new").len(), 1);
}

#[test]
fn branch_that_cannot_be_used_is_refused_first() {
    let (place, claude) = place();
    let root = place.path("");
    let current = git(&root, &["symbolic-ref", "--short", "HEAD"])
        .trim()
        .to_owned();
    git(&root, &["branch", "taken/below"]);
    git(
        &root,
        &[
            "symbolic-ref",
            "refs/heads/alias",
            &format!("refs/heads/{current}"),
        ],
    );
    git(&root, &["checkout", "--quiet", "--orphan", "other"]);
    git(
        &root,
        &["commit", "--quiet", "--allow-empty", "-m", "elsewhere"],
    );
    git(&root, &["checkout", "--quiet", &current]);
    git(
        &root,
        &[
            "worktree",
            "add",
            "--quiet",
            "-b",
            "busy",
            place.path("../busy").to_str().unwrap(),
        ],
    );
    let before = git(&root, &["for-each-ref"]);
    let cases = [
        ("busy", "is checked out in another worktree"),
        ("+main", "not a name"),
        ("HEAD", "not a name"),
        ("refs/heads/x", "not a name"),
        ("a\u{202e}b", "not a name"),
        ("taken", "cannot be created"),
        ("alias", "another name of a branch"),
        ("other", "does not contain the current commit"),
        ("-x", "not a name"),
        ("a..b", "not a name"),
        ("a b", "not a name"),
        ("", "not a name"),
        (&"x".repeat(300), "not a name"),
    ];
    for (name, expected) in cases {
        let named = format!("--branch={name}");
        let output = place.run(&[
            "run",
            "--no-reconcile",
            "--ui",
            "json",
            "--claude-bin",
            &claude,
            &named,
        ]);
        assert!(
            output.expect_refusal(2).contains(expected),
            "{name:?}: {output:?}"
        );
    }
    assert_eq!(git(&root, &["for-each-ref"]), before);
    assert_untouched(&place);
}

#[test]
fn project_without_git_has_no_branches() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let claude = place
        .scripted_claude("[[part]]\nsteps = [{ say = \"Done.\" }]\n")
        .display()
        .to_string();
    let output = run_on(&place, &claude, "ingest/docs", &[]);
    assert!(
        output.expect_refusal(2).contains("no git repository"),
        "{output:?}"
    );
}

#[test]
fn resumed_run_keeps_its_branch() {
    let (place, _) = place();
    let broken = r#"{ call = { tool = "wiki_write", with = { no = 1 } } }"#;
    let idle = "[[part]]\nsteps = [{ say = \"Done.\" }]\n";
    let script = format!(
        "[[part]]\nunit = \"docs-three\"\nsteps = [{broken}, {{ say = \"Done.\" }}]\n{idle}"
    );
    let claude = place.scripted_claude(&script).display().to_string();
    assert_eq!(run_on(&place, &claude, "ingest/docs", &[]).code, Some(100));
    let claude = place.scripted_claude(&part("three")).display().to_string();
    let args = [
        "run",
        "--no-reconcile",
        "--ui",
        "json",
        "--claude-bin",
        &claude,
        "--resume-run",
        "latest",
    ];
    let output = place.run(&args);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_untouched(&place);
    assert_eq!(ahead(&place, "ingest/docs"), ["wiki/global/three.md"]);
}

/// A run in the background that waits for its review.
fn waiting() -> (TestDir, String) {
    let (place, claude) = place();
    let args = [
        "run",
        "--review",
        "--no-reconcile",
        "--detach",
        "--ui",
        "json",
        "--claude-bin",
        &claude,
    ];
    place.run(&args).expect_success();
    while review(&place, &claude, &["--list"]).code != Some(103) {}
    (place, claude)
}

#[test]
fn branch_is_kept_when_changes_are_sent_back() {
    let (place, claude) = waiting();
    let back = [
        "--send-back",
        "*/two.md",
        "--feedback",
        "Make it longer.",
        "--accept",
        "*",
        "--branch",
        "ingest/docs",
    ];
    review(&place, &claude, &back);
    while review(&place, &claude, &["--list"]).code != Some(103) {}
    let output = review(&place, &claude, &["--accept", "*"]);
    assert!(
        output.stdout.contains(r#""branch":"ingest/docs""#),
        "{output:?}"
    );
    #[cfg(target_os = "linux")]
    place.wait_until_no_process_left();
    assert_untouched(&place);
    assert_eq!(ahead(&place, "ingest/docs").len(), 1);
    assert!(body(&place).is_some());
}

#[test]
fn name_of_the_current_branch_means_that_branch() {
    let (place, claude) = waiting();
    let current = git(&place.path(""), &["symbolic-ref", "--short", "HEAD"])
        .trim()
        .to_owned();
    let output = review(&place, &claude, &["--accept", "*", "--branch", &current]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!((pages(&place).len(), subjects(&place)), (3, 2));
    assert_eq!(
        git(&place.path(""), &["status", "--porcelain"]),
        "?? script.toml\n"
    );
}

#[test]
fn branch_checked_out_meanwhile_is_updated_with_files() {
    let (place, claude) = place();
    assert_eq!(
        run_on(&place, &claude, "ingest/docs", &["--review"]).code,
        Some(103)
    );
    git(
        &place.path(""),
        &["checkout", "--quiet", "-b", "ingest/docs"],
    );
    let output = review(&place, &claude, &["--accept", "*"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!((pages(&place).len(), subjects(&place)), (3, 2));
    assert_eq!(
        git(&place.path(""), &["status", "--porcelain"]),
        "?? script.toml\n"
    );
}

/// A run whose last unit failed, with the commit of the others on the branch `x`.
fn partly_saved() -> (TestDir, String) {
    let (place, _) = place();
    let broken = r#"{ call = { tool = "wiki_write", with = { no = 1 } } }"#;
    let script =
        format!("[[part]]\nunit = \"docs-three\"\nsteps = [{broken}, {{ say = \"Done.\" }}]\n");
    let claude = place
        .scripted_claude(&(script + &NAMES.map(part).concat()))
        .display()
        .to_string();
    assert_eq!(run_on(&place, &claude, "x", &[]).code, Some(100));
    let claude = place
        .scripted_claude(&NAMES.map(part).concat())
        .display()
        .to_string();
    (place, claude)
}

fn resume(place: &TestDir, claude: &str, more: &[&str]) -> CommandOutput {
    let args = [
        "run",
        "--no-reconcile",
        "--ui",
        "json",
        "--claude-bin",
        claude,
        "--resume-run",
        "latest",
    ];
    place.run(&[&args[..], more].concat())
}

#[test]
fn resumed_run_continues_a_branch_that_lacks_new_commits() {
    let (place, claude) = partly_saved();
    git(
        &place.path(""),
        &["commit", "--quiet", "--allow-empty", "-m", "moved"],
    );
    let elsewhere = resume(&place, &claude, &["--branch", "y"]);
    assert!(
        elsewhere
            .expect_refusal(2)
            .contains("has commits on branch `x` already"),
        "{elsewhere:?}"
    );
    let output = resume(&place, &claude, &[]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(!output.stderr.contains("were deleted"), "{output:?}");
    let pages = git(
        &place.path(""),
        &["ls-tree", "--name-only", "x", "wiki/global/"],
    );
    assert_eq!(
        pages,
        "wiki/global/one.md\nwiki/global/three.md\nwiki/global/two.md\n"
    );
}

#[test]
fn branch_without_its_commits_is_not_continued() {
    let (place, claude) = partly_saved();
    git(&place.path(""), &["branch", "--quiet", "-D", "x"]);
    let output = resume(&place, &claude, &[]);
    assert!(
        output
            .expect_refusal(2)
            .contains("branch `x` no longer contains commit"),
        "{output:?}"
    );
}

/// A run that was to be reviewed and ended before stays so.
#[test]
fn resumed_run_keeps_its_review() {
    let (place, _) = place();
    let broken = r#"[[part]]
steps = [{ call = { tool = "wiki_write", with = { no = 1 } } }, { say = "Done." }]
"#;
    let claude = place.scripted_claude(broken).display().to_string();
    assert_eq!(run_on(&place, &claude, "x", &["--review"]).code, Some(100));
    let claude = place
        .scripted_claude(&NAMES.map(part).concat())
        .display()
        .to_string();
    let output = resume(&place, &claude, &[]);
    assert_eq!(output.code, Some(103), "{output:?}");
    assert_untouched(&place);
}
