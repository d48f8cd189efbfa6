//! Projects that are git repositories: files left by a run, refusals, and recovery after a kill.

use std::{fs, time::Instant};

use nix::sys::signal::Signal;

use super::test_dir::{CommandOutput, DEADLINE, TestDir, parse_json_events};
use crate::support::git::{PRIVATE_GIT_DIR, git};

/// A script part that calls `wiki_write` for `key` with `text`, after the required ledger.
fn part(unit: &str, key: &str, text: &str, then: &str) -> String {
    format!(
        r#"
[[part]]
unit = "{unit}"
steps = [
  {{ call = {{ tool = "record_verification_ledger", with = {{ summary = "read", verifiedIdentifiers = [], unverifiedIdentifiers = [] }} }} }},
  {{ call = {{ tool = "wiki_write", with = {{ key = "{key}", summary = "s", content = "{text}" }} }} }},
  {then}
]"#
    )
}

/// Three units: the first two write the same page, the third one writes another.
fn conflicting() -> String {
    [
        ("docs-one", "shared", "by one"),
        ("docs-two", "shared", "by two"),
        ("docs-three", "three", "by three"),
    ]
    .map(|(unit, key, text)| part(unit, key, text, ""))
    .concat()
}

/// A project with three notes and one commit, and the `claude` that plays `script` in it.
fn repository(script: &str) -> (TestDir, String) {
    let place = TestDir::new();
    place.notes(&["one", "three", "two"]);
    let claude = place.scripted_claude(script);
    git(
        &place.path(""),
        &["init", "--quiet", "--initial-branch=main"],
    );
    git(&place.path(""), &["add", "--all"]);
    git(&place.path(""), &["commit", "--quiet", "-m", "first"]);
    (place, claude.to_str().unwrap().to_owned())
}

fn assert_tidy(place: &TestDir) {
    assert_eq!(git(&place.path(""), &["status", "--porcelain"]), "");
    assert_eq!(
        git(&place.path(""), &["worktree", "list"]).lines().count(),
        1
    );
    assert_eq!(
        git(&place.path(""), &["branch", "--format=%(refname)"]),
        "refs/heads/main\n"
    );
    let left: Vec<_> = fs::read_dir(place.path(".ktx/worktrees"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, [".gitignore"]);
}

fn runs(ran: CommandOutput, code: i32) -> CommandOutput {
    assert_eq!(ran.code, Some(code), "{ran:?}");
    ran
}

#[test]
fn run_is_one_commit_and_conflict_fails_one_unit() {
    let (place, claude) = repository(&conflicting());
    let ran = runs(place.run(&["run", "--claude-bin", &claude]), 100);
    assert!(
        ran.stdout
            .contains("✗ conflict: textual conflict in wiki/global/shared.md with docs-one"),
        "{ran:?}"
    );
    assert!(
        ran.stdout
            .contains("retry it: it will see what the others wrote"),
        "{ran:?}"
    );
    let commit = git(&place.path(""), &["rev-parse", "--short=8", "HEAD"]);
    assert!(
        ran.stdout.contains(&format!(
            "commit {} on main · 2 files changed",
            commit.trim()
        )),
        "{ran:?}"
    );
    assert_eq!(
        git(&place.path(""), &["rev-list", "--count", "HEAD"]),
        "2\n"
    );
    let log = git(&place.path(""), &["log", "-1", "--format=%an <%ae>%n%B"]);
    let (author, message) = log.split_once('\n').unwrap();
    let (subject, body) = message.split_once('\n').unwrap();
    assert_eq!(author, "ktx Local <local@ktx.local>");
    assert!(
        subject.starts_with("ingest(docs): local-")
            && subject.ends_with(" diff=+3/~0/-0/=0, 1 failed"),
        "{subject}"
    );
    let sync = body
        .lines()
        .find_map(|line| line.strip_prefix("syncId="))
        .unwrap();
    assert!(body.contains("\nfailed WUs: docs-two\n"), "{body}");
    let raw = ["one", "three"]
        .map(|note| format!("raw-sources/notes/docs/{sync}/{note}.md\n"))
        .concat();
    let written = "wiki/global/shared.md\nwiki/global/three.md\n";
    assert_eq!(
        git(
            &place.path(""),
            &["show", "--format=", "--name-only", "HEAD"]
        ),
        format!("{raw}{written}")
    );
    assert!(
        fs::read_to_string(place.path("wiki/global/shared.md"))
            .unwrap()
            .contains("by one")
    );
    assert_tidy(&place);

    // The conflict is worth a retry: the unit can now read the accepted page.
    let failed = place.run(&["plan", "--failed"]);
    assert!(failed.expect_success().contains("docs-two"), "{failed:?}");
    let shown = place.run(&["runs", "show", "latest"]);
    assert!(shown.expect_success().contains(commit.trim()), "{shown:?}");
    let replayed = place.run(&["replay", "latest", "--ui", "json"]);
    parse_json_events(replayed.expect_success());
    for word in [
        "\"state\":\"integrating\"",
        "\"state\":\"integrated\"",
        "\"state\":\"conflict\"",
        "\"state\":\"saved\"",
    ] {
        assert!(
            replayed.stdout.contains(word),
            "{word} is missing: {replayed:?}"
        );
    }
    let patches = walk(&place, ".ktx/ingest-patches");
    assert_eq!(patches.len(), 3, "{patches:?}");
    assert!(patches[0].ends_with("/0000-docs-one.patch"), "{patches:?}");
}

/// Each unit changes another paragraph, and the third makes the same change as the first.
/// The indexes of worktrees have no checksum, by which a split index names its other part.
#[test]
fn split_index_of_the_user_keeps_all_files() {
    let (place, claude) = repository(&conflicting());
    let root = place.path("");
    git(&root, &["config", "core.splitIndex", "true"]);
    let before = git(&root, &["ls-tree", "-r", "--name-only", "HEAD"]);
    let only = ["--only", "docs-three"];
    let run = ["run", "--full", "--no-reconcile", "--claude-bin", &claude];
    runs(place.run(&[&run[..], &only].concat()), 0);
    let after = git(&root, &["ls-tree", "-r", "--name-only", "HEAD"]);
    let added: Vec<_> = after
        .lines()
        .filter(|line| !before.lines().any(|known| known == *line))
        .collect();
    assert!(added.contains(&"wiki/global/three.md"), "{after}");
    for line in before.lines() {
        assert!(after.lines().any(|found| found == line), "{line}: {after}");
    }
}

#[test]
fn overwriting_unit_is_named() {
    let (place, claude) = repository(&part(
        "docs-one",
        "shared",
        "one\\n\\nb\\n\\nc\\n\\nd\\n\\ntwo",
        "",
    ));
    runs(
        place.run(&[
            "run",
            "--claude-bin",
            &claude,
            "--no-reconcile",
            "--only",
            "docs-one",
        ]),
        0,
    );
    let again = |unit: &str, text: &str| {
        part(unit, "shared", text, "").replacen(
            "steps = [",
            "steps = [{ call = { tool = \"wiki_read\", with = { key = \"shared\" } } },",
            1,
        )
    };
    let (first, last) = (
        "ONE\\n\\nb\\n\\nc\\n\\nd\\n\\ntwo",
        "one\\n\\nb\\n\\nc\\n\\nd\\n\\nTWO",
    );
    place.scripted_claude(
        &[
            again("docs-one", first),
            again("docs-three", first),
            again("docs-two", last),
        ]
        .concat(),
    );
    for note in ["one", "three", "two"] {
        place.write(&format!("notes/{note}.md"), "# other\n");
    }
    git(
        &place.path(""),
        &["commit", "--quiet", "--all", "-m", "second"],
    );
    let ran = runs(
        place.run(&["run", "--claude-bin", &claude, "--no-reconcile"]),
        0,
    );
    for sentence in [
        "docs-three#1             · docs-one also wrote wiki/global/shared.md: the texts agree",
        "docs-two#1               ▲ docs-one, docs-three also wrote wiki/global/shared.md: git merged the texts; read the",
        "  ▲ wiki/global/shared.md: written by docs-one, docs-three, docs-two; git merged their versions, so review the result\n",
    ] {
        assert!(ran.stdout.contains(sentence), "{sentence}: {ran:?}");
    }
    assert!(
        fs::read_to_string(place.path("wiki/global/shared.md"))
            .unwrap()
            .contains("ONE\n\nb\n\nc\n\nd\n\nTWO")
    );
    let replayed = place.run(&["replay", "latest", "--ui", "json"]);
    assert!(
        parse_json_events(replayed.expect_success())
            .iter()
            .any(|line| line["event"]["shared"][0]["merged"] == true),
        "{replayed:?}"
    );
    let md = "### Written by several units (1)\n\n* `wiki/global/shared.md`: `docs-one`, `docs-three`, `docs-two` – git merged";
    for (format, words) in [
        ("md", md),
        ("html", "Written by several units (1)"),
        ("json", "\"merged\":true"),
    ] {
        let report = place.run(&["report", "latest", "--format", format]);
        assert!(
            report.expect_success().contains(words),
            "{format}: {report:?}"
        );
    }
}

fn walk(place: &TestDir, folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(place.path(folder)).unwrap() {
        let name = format!(
            "{folder}/{}",
            entry.unwrap().file_name().into_string().unwrap()
        );
        if place.path(&name).is_dir() {
            found.extend(walk(place, &name));
        } else if !name.ends_with(".gitignore") {
            found.push(name);
        }
    }
    found.sort();
    found
}

#[test]
fn a_run_that_writes_nothing_commits_nothing() {
    let (place, claude) = repository("[[part]]\nsteps = [{ say = \"nothing to do\" }]");
    let ran = place.run(&["run", "--claude-bin", &claude]);
    assert!(ran.expect_success().contains("nothing to save"), "{ran:?}");
    assert_eq!(
        git(&place.path(""), &["rev-list", "--count", "HEAD"]),
        "1\n"
    );
    assert_tidy(&place);
}

#[test]
fn unsuitable_repository_is_refused_before_the_run() {
    let (place, _) = repository("");
    let claude = place.claude("touch started; exit 1");
    let refused = |remedy: &str| {
        let ran = place.run(&["run", "--claude-bin", claude.to_str().unwrap()]);
        assert!(ran.expect_refusal(2).contains(remedy), "{remedy}: {ran:?}");
        assert!(!place.path("started").exists());
        let plan = place.run(&["plan"]);
        assert!(plan.stderr.contains(remedy), "{remedy}: {plan:?}");
        let doctor = place.run(&["doctor", "--claude-bin", claude.to_str().unwrap()]);
        assert!(
            doctor.stdout.contains("FAIL") && doctor.stdout.contains(remedy),
            "{remedy}: {doctor:?}"
        );
    };
    place.write("wiki/global/mine.md", "mine");
    refused("wiki/global/mine.md is not committed; commit or stash it");
    git(&place.path(""), &["add", "--all"]);
    refused("is not committed");
    git(&place.path(""), &["commit", "--quiet", "-m", "mine"]);
    place.write(".git/MERGE_HEAD", "0");
    refused("a merge is not finished");
    fs::remove_file(place.path(".git/MERGE_HEAD")).unwrap();
    git(
        &place.path(""),
        &["checkout", "--quiet", "--orphan", "empty"],
    );
    refused("has no commit yet");
    fs::rename(place.path(".git"), place.path("../.git")).unwrap();
    refused("is inside the git repository");
    place.write(".git", "gitdir: ../.git");
    refused("is a linked worktree or a submodule");
}

#[test]
fn project_without_git_explains_how_results_are_stored() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let sentence = "no git repository: the changes of a run go through a private one and reach the project together";
    assert!(place.run(&["plan"]).expect_success().contains(sentence));
    let claude = place.scripted_claude(&part("docs-one", "one", "x", ""));
    let ran = place.run(&[
        "run",
        "--no-reconcile",
        "--claude-bin",
        claude.to_str().unwrap(),
    ]);
    assert!(
        ran.stderr.contains(sentence) && ran.expect_success().contains("1 succeeded"),
        "{ran:?}"
    );
    assert!(place.path("wiki/global/one.md").exists());
    let private = |args: &[&str]| git(&place.path(""), &[&[PRIVATE_GIT_DIR], args].concat());
    assert!(!place.path(".git").exists());
    assert_eq!(private(&["worktree", "list"]).lines().count(), 1);
    assert_eq!(private(&["branch", "--format=%(refname:short)"]), "main\n");
    assert_eq!(
        private(&["ls-tree", "-r", "--name-only", "HEAD"]),
        "wiki/global/one.md\n"
    );
}

/// The user's own repository is used as soon as there is one, and the private one is left alone.
#[test]
fn own_repository_replaces_the_private_one() {
    let place = TestDir::new();
    place.notes(&["one", "two"]);
    let claude = place
        .scripted_claude(&(part("docs-one", "one", "x", "") + &part("docs-two", "two", "x", "")));
    let claude = claude.to_str().unwrap();
    let run = |unit: &str| {
        place.run(&[
            "run",
            "--no-reconcile",
            "--only",
            unit,
            "--claude-bin",
            claude,
        ])
    };
    run("docs-one").expect_success();
    let private = || git(&place.path(""), &[PRIVATE_GIT_DIR, "rev-parse", "HEAD"]);
    let before = private();
    for args in [
        &["init", "--quiet", "--initial-branch=main"][..],
        &["add", "--all"],
        &["commit", "--quiet", "-m", "x"],
    ] {
        git(&place.path(""), args);
    }
    run("docs-two").expect_success();
    let committed = git(
        &place.path(""),
        &["ls-tree", "-r", "--name-only", "HEAD", "wiki"],
    );
    assert_eq!(
        (committed.as_str(), private()),
        ("wiki/global/one.md\nwiki/global/two.md\n", before)
    );
    assert_eq!(git(&place.path(""), &["ls-files", ".ktx"]), "");
}

/// The user edits files before, during and between runs of a project without git.
#[test]
fn edits_during_a_run_without_git_are_kept() {
    let place = TestDir::new();
    place.notes(&["one", "two"]);
    place.write("wiki/global/mine.md", "---\nsummary: Mine\n---\n\nbefore\n");
    let edit = format!(
        "printf -- '---\\nsummary: Mine\\n---\\n\\nmeanwhile\\n' > '{0}/wiki/global/mine.md'; \
         printf -- '---\\nsummary: Two\\n---\\n\\nby hand\\n' > '{0}/wiki/global/two.md'",
        place.path("").display()
    );
    let script = part("docs-one", "one", "x", "") + &part("docs-two", "two", "y", "");
    let claude = place.scripted_claude(&script);
    let stub = fs::read_to_string(&claude)
        .unwrap()
        .replace("\nesac\n", &format!("\nesac\n{edit}\n"));
    fs::write(&claude, stub).unwrap();
    let ran = place.run(&[
        "run",
        "--no-reconcile",
        "--claude-bin",
        claude.to_str().unwrap(),
    ]);
    assert_eq!(ran.code, Some(100), "{ran:?}");
    assert!(
        ran.stdout.contains("docs-two: wiki/global/two.md"),
        "{ran:?}"
    );
    let page =
        |name: &str| fs::read_to_string(place.path(&format!("wiki/global/{name}.md"))).unwrap();
    assert!(
        page("mine").ends_with("meanwhile\n") && page("two").ends_with("by hand\n"),
        "{ran:?}"
    );
    assert!(place.path("wiki/global/one.md").exists(), "{ran:?}");
}

#[test]
fn killed_run_keeps_branch_and_next_run_cleans_up() {
    let script =
        part("docs-one", "one", "by one", "") + &part("docs-*", "rest", "rest", "\"hang\",");
    let (place, claude) = repository(&script);
    let mut running =
        place.start(place.command(&["run", "--claude-bin", &claude, "--concurrency", "1"]));
    running.wait_for("stdout", "docs-three#1");
    running.wait_for("stdout", "✓ wiki_write rest");
    let second = place.run(&["run", "--claude-bin", &claude]);
    let holder = format!("is being ingested by process {}", running.id());
    assert!(second.expect_refusal(2).contains(&holder), "{second:?}");
    let worktrees = || git(&place.path(""), &["worktree", "list"]).lines().count();
    let began = Instant::now();
    while worktrees() < 3 {
        assert!(began.elapsed() < DEADLINE, "nothing is integrated ahead");
        crate::support::pause_before_check();
    }
    running.signal(Signal::SIGKILL);
    running.end();
    place.wait_until_no_process_left();
    assert_eq!(git(&place.path(""), &["status", "--porcelain"]), "");
    assert_eq!(worktrees(), 3, "the one at work, and the integration");
    assert_eq!(
        git(&place.path(""), &["rev-list", "--count", "HEAD"]),
        "1\n"
    );
    let ran = place.run(&[
        "run",
        "--claude-bin",
        &claude,
        "--only",
        "docs-one",
        "--no-reconcile",
    ]);
    assert!(
        ran.stderr
            .contains("an earlier run was killed; removed 2 worktrees"),
        "{ran:?}"
    );
    assert!(ran.expect_success().contains("saved as commit"), "{ran:?}");
    assert_tidy(&place);
}

/// A `PATH` with a git that runs `body` first.
fn path_with_git(place: &TestDir, body: &str) -> String {
    format!(
        "{}:/usr/bin:/bin",
        place.script("git", body).parent().unwrap().display()
    )
}

#[test]
fn git_that_is_too_old_is_named_with_the_remedy() {
    let (place, claude) = repository("");
    let path = path_with_git(&place, "echo git version 2.25.1");
    let ran = |args: &[&str]| {
        let mut command = place.command(args);
        command.env("PATH", &path);
        place.ran(command)
    };
    let sentence = "git 2.31 or newer is needed, this is 2.25.1; update git";
    let run = ran(&["run", "--claude-bin", &claude]);
    assert!(run.expect_refusal(2).contains(sentence), "{run:?}");
    let plan = ran(&["plan"]);
    assert!(plan.stderr.contains(sentence), "{plan:?}");
    let doctor = ran(&["doctor", "--claude-bin", &claude]);
    let is_fault =
        |line: &str| line.contains("FAIL") && line.contains("git") && line.contains(sentence);
    assert!(
        doctor.code != Some(0) && doctor.stdout.lines().any(is_fault),
        "{doctor:?}"
    );
}

#[test]
fn git_that_ignores_safety_config_is_refused() {
    let (place, claude) = repository("");
    let mut command = place.command(&["run", "--claude-bin", &claude]);
    command.env(
        "PATH",
        path_with_git(&place, "unset GIT_CONFIG_COUNT; exec /usr/bin/git \"$@\""),
    );
    let ran = place.ran(command);
    assert!(
        ran.expect_refusal(2)
            .contains("git ignores settings in its environment (GIT_CONFIG_COUNT)"),
        "{ran:?}"
    );
}

#[test]
fn run_starts_few_git_processes() {
    let (place, claude) = repository(&part("docs-*", "page", "text", ""));
    let log = place.path("../starts");
    // The options before the subcommand are the same for all calls.
    let body = format!(
        "echo \"$*\" | sed 's/^--no-pager\\( -c [^ ]*\\)* *//' >> '{}'; exec /usr/bin/git \"$@\"",
        log.display()
    );
    let path = path_with_git(&place, &body);
    let mut command = place.command(&[
        "run",
        "--claude-bin",
        &claude,
        "--no-reconcile",
        "--only",
        "docs-one",
    ]);
    command.env("PATH", path);
    runs(place.ran(command), 0);
    let starts = fs::read_to_string(log).unwrap();
    let count = |word: &str| starts.lines().filter(|line| line.starts_with(word)).count();
    assert_eq!(count("--version"), 1, "{starts}");
    // Neither call is needed for a worktree that the same process creates and removes.
    assert_eq!((count("show-ref"), count("log ")), (0, 0), "{starts}");
    assert_eq!(
        count("worktree add"),
        count("update-ref --no-deref -d"),
        "{starts}"
    );
    assert_tidy(&place);
}
