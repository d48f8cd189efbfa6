//! Complete ingests of a project that is a git repository: conflicts, limits, kills and resumes, up to the commit.

use std::{fs, path::Path, process::Command, time::Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::test_dir::{CommandOutput, DEADLINE, RunningCommand, TestDir, parse_json_events};
use crate::support::git::{FAST_GIT_ENV, git_program};

/// Units of the project in plan order, and the file of each unit.
const UNITS: [(&str, &str); 4] = [
    ("docs-crates", "crates.md"),
    ("docs-growers", "growers.md"),
    ("docs-juice", "juice.md"),
    ("docs-payments", "payments.md"),
];

/// A script part that reads its file and writes one page.
pub(super) fn writes(unit: &str, file: &str, page: &str, content: &str) -> String {
    format!(
        r#"
[[part]]
unit = "{unit}"
steps = [
  {{ call = {{ tool = "read_raw_file", with = {{ path = "{file}" }} }} }},
  {{ call = {{ tool = "record_verification_ledger", with = {{ summary = "Read it." }} }} }},
  {{ call = {{ tool = "wiki_write", with = {{ key = "{page}", summary = "About {page}", content = "{content}" }} }} }},
  {{ say = "Done." }},
]
"#
    )
}

/// Every unit writes a separate page, except that the last two write the same one.
pub(super) fn parts() -> Vec<String> {
    let page = |unit: &str| match unit {
        "docs-juice" | "docs-payments" => "terms".to_owned(),
        _ => unit.trim_start_matches("docs-").to_owned(),
    };
    UNITS
        .iter()
        .map(|(unit, file)| writes(unit, file, &page(unit), &format!("As {unit} has it.")))
        .collect()
}

pub(super) fn git(place: &TestDir, args: &[&str]) -> String {
    let mut command = Command::new(git_program());
    command
        .args(args)
        .current_dir(place.path(""))
        .env_clear()
        .env("PATH", "/usr/bin:/bin");
    command
        .env("HOME", place.path(""))
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .envs(FAST_GIT_ENV);
    for (name, value) in [("NAME", "Somebody"), ("EMAIL", "somebody@example.com")] {
        command
            .env(format!("GIT_AUTHOR_{name}"), value)
            .env(format!("GIT_COMMITTER_{name}"), value);
    }
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// A copy of the orchard project as a new repository, with the handbook as its only source.
pub(super) fn orchard_project() -> TestDir {
    let place = TestDir::new();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/projects/orchard/sources/handbook");
    for (_, file) in UNITS {
        place.write(
            &format!("handbook/{file}"),
            fs::read(fixture.join(file)).unwrap(),
        );
    }
    let settings = "connections:\n  orchard:\n    driver: docs\n    source_dir: handbook\nllm:\n  provider:\n    backend: claude-code\n";
    place.write("ktx.yaml", settings);
    place.write(".gitignore", "script.toml\n");
    git(&place, &["init", "--quiet", "--initial-branch=main"]);
    git(&place, &["add", "--all"]);
    git(&place, &["commit", "--quiet", "--message=Begin"]);
    place
}

pub(super) fn run(place: &TestDir, claude: &str, more: &[&str]) -> CommandOutput {
    place.run(&[&["run", "--ui", "json", "--claude-bin", claude], more].concat())
}

pub(super) fn states(lines: &[Value], unit: &str) -> Vec<String> {
    let of_unit = lines
        .iter()
        .filter(|line| line["unit"] == unit && line["event"]["type"] == "unit");
    of_unit
        .map(|line| line["event"]["state"].as_str().unwrap().to_owned())
        .collect()
}

pub(super) fn summary(lines: &[Value]) -> &Value {
    &lines.last().unwrap()["event"]
}

pub(super) fn subjects(place: &TestDir) -> Vec<String> {
    git(place, &["log", "--format=%s"])
        .lines()
        .map(str::to_owned)
        .collect()
}

pub(super) fn wiki(place: &TestDir) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(place.path("wiki/global"))
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Content of the tape of the newest run.
pub(super) fn newest_tape(place: &TestDir) -> String {
    let runs = fs::read_dir(place.path(".ktx/ingestdeck/runs")).unwrap();
    fs::read_to_string(
        runs.map(|run| run.unwrap().path().join("tape.jsonl"))
            .max()
            .unwrap(),
    )
    .unwrap()
}

/// Asserts that the run left no changes, worktrees or branches.
pub(super) fn is_clean(place: &TestDir) {
    assert_eq!(git(place, &["status", "--porcelain"]), "");
    assert_eq!(git(place, &["worktree", "list"]).lines().count(), 1);
    assert_eq!(git(place, &["branch", "--list"]).lines().count(), 1);
}

/// Starts the program with `args`. Its git blocks before any call that matches the shell pattern `calls`.
pub(super) fn gated(place: &TestDir, calls: &str, args: &[&str]) -> RunningCommand {
    nix::unistd::mkfifo(&place.path(".git/gate"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let folder = place.path(".git").display().to_string();
    let waits =
        format!("[ -e '{folder}/open' ] || {{ : > '{folder}/began'; read x < '{folder}/gate'; }}");
    let git = place.script(
        "git",
        &format!("case \"$*\" in {calls}) {waits};; esac\nexec /usr/bin/git \"$@\""),
    );
    let mut command = place.command(args);
    command.env(
        "PATH",
        format!("{}:/usr/bin:/bin", git.parent().unwrap().display()),
    );
    let running = place.start(command);
    let deadline = Instant::now() + DEADLINE;
    while !place.path(".git/began").exists() {
        assert!(Instant::now() < deadline, "git is not called: {running:?}");
        crate::support::pause_before_check();
    }
    running
}

pub(super) fn open_gate(place: &TestDir) {
    fs::write(place.path(".git/open"), "").unwrap();
    fs::write(place.path(".git/gate"), "go\n").unwrap();
}

/// Covers a limit that resets soon, a kill before the end, and a resume that integrates the patches of both runs.
#[test]
fn run_with_limit_kill_and_resume_ends_in_one_commit() {
    let place = orchard_project();
    // The first process hits the limit, whichever unit it runs; the unit of the last one hangs.
    let limit = "[[part]]\nsteps = [{ rate_limit = { status = \"rejected\", resets_in_s = 1 } }, { api_error = { status = 429, error = \"rate_limit\", text = \"You've hit your session limit\", api_error = \"usage_limit_reached\" } }]\n";
    let hangs = [
        parts()[..3].concat(),
        "[[part]]\nsteps = [{ say = \"now\" }, \"hang\"]\n".to_owned(),
    ]
    .concat();
    place.write("limit.toml", limit);
    place.write("hangs.toml", hangs);
    let exe = crate::support::program();
    let claude = place.claude(&format!(
        "cd '{0}'; script=hangs; [ -e met ] || {{ touch met; script=limit; }}\nexec '{exe}' scripted-agent --script \"$script.toml\" -- \"$@\"",
        place.path("").display()
    ));
    let mut running = place.start(place.command(&[
        "run",
        "--ui",
        "lines",
        "--claude-bin",
        claude.to_str().unwrap(),
    ]));
    running.wait_for("stdout", "docs-payments#1          ● session");
    running.signal(Signal::SIGKILL);
    let killed = running.end();
    assert!(
        killed.stdout.contains("▲ paused for ") && killed.stdout.contains("● the wait is over"),
        "{killed:?}"
    );
    assert!(
        killed
            .stdout
            .contains("docs-crates#2            ✓ succeeded"),
        "the limit cost an attempt, no failure: {killed:?}"
    );
    #[cfg(target_os = "linux")]
    place.wait_until_no_process_left();
    for file in ["limit.toml", "hangs.toml", "met"] {
        fs::remove_file(place.path(file)).unwrap();
    }
    assert_eq!(
        (subjects(&place), wiki(&place).len()),
        (vec!["Begin".to_owned()], 0),
        "nothing is half applied"
    );

    let good = place
        .scripted_claude(&parts().concat())
        .display()
        .to_string();
    let resumed = run(&place, &good, &["--resume-run", "latest", "--no-reconcile"]);
    assert_eq!(
        resumed.code,
        Some(100),
        "the last unit wrote what another one wrote: {resumed:?}"
    );
    let lines = parse_json_events(&resumed.stdout);
    assert_eq!(summary(&lines)["units"], json!({"reused": 3, "failed": 1}));
    assert_eq!(
        states(&lines, "docs-juice"),
        ["reused", "integrated"],
        "its patch is of the run before"
    );
    assert_eq!(states(&lines, "docs-payments").last().unwrap(), "conflict");
    let reason = summary(&lines)["failed"][0]["reason"].as_str().unwrap();
    assert!(
        reason.contains("wiki/global/terms.md with docs-juice"),
        "{reason}"
    );
    assert_eq!(wiki(&place), ["crates.md", "growers.md", "terms.md"]);
    assert!(
        fs::read_to_string(place.path("wiki/global/terms.md"))
            .unwrap()
            .contains("As docs-juice has it.")
    );
    let subjects = self::subjects(&place);
    assert!(
        subjects[0].starts_with("ingest(docs): local-") && subjects.len() == 2,
        "{subjects:?}"
    );
    assert!(subjects[0].ends_with(", 1 failed"), "{subjects:?}");
    is_clean(&place);
    assert_eq!(
        place.run(&["replay", "latest", "--ui", "json"]).stdout,
        resumed.stdout
    );
    let report: Value = serde_json::from_str(
        place
            .run(&["report", "latest", "--format", "json"])
            .expect_success(),
    )
    .unwrap();
    let body = &report["body"];
    assert!(
        body["commitSha"].is_string() && body["ingestdeck"]["outcome"] == "partial",
        "{report:#}"
    );
    let patches = &body["isolatedDiff"];
    assert_eq!(
        (&patches["acceptedPatches"], &patches["textualConflicts"]),
        (&json!(3), &json!(1))
    );
    let actions = body["workUnits"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|unit| unit["actions"].as_array().unwrap());
    assert_eq!(
        actions.count(),
        3,
        "what the killed run wrote got into the project here"
    );

    // Integrated patches are not integrated again, and the unit with the conflict reads the accepted version.
    let again = writes("docs-payments", "payments.md", "terms", "As both have it.");
    let claude = place.scripted_claude(&again).display().to_string();
    let lines = parse_json_events(
        run(
            &place,
            &claude,
            &["--resume-run", "latest", "--no-reconcile"],
        )
        .expect_success(),
    );
    assert_eq!(
        summary(&lines)["units"],
        json!({"reused": 3, "succeeded": 1})
    );
    assert_eq!(states(&lines, "docs-juice"), ["reused"]);
    assert!(
        fs::read_to_string(place.path("wiki/global/terms.md"))
            .unwrap()
            .contains("As both have it.")
    );
    assert_eq!(self::subjects(&place).len(), 3);
    is_clean(&place);
    let done = run(&place, &claude, &["--resume-run", "latest"]);
    assert!(
        done.expect_success().is_empty() && done.stderr.contains("there is nothing to run"),
        "{done:?}"
    );
}

/// If all units had finished before the kill, the resume needs no agent.
#[test]
fn resume_with_only_patches_integrates_them() {
    let place = orchard_project();
    let quick = [
        parts()[..3].concat(),
        "[[part]]\nsteps = [{ say = \"now\" }, \"hang\"]\n".to_owned(),
    ]
    .concat();
    let claude = place.scripted_claude(&quick).display().to_string();
    let mut running =
        place.start(place.command(&["run", "--ui", "lines", "--claude-bin", &claude]));
    running.wait_for("stdout", "docs-payments#1          ● session");
    running.signal(Signal::SIGKILL);
    running.end();
    #[cfg(target_os = "linux")]
    place.wait_until_no_process_left();
    fs::remove_file(place.path("handbook/payments.md")).unwrap();
    git(
        &place,
        &["commit", "--quiet", "--all", "--message=Pay no more"],
    );
    let ran = run(
        &place,
        &claude,
        &["--resume-run", "latest", "--no-reconcile"],
    );
    let lines = parse_json_events(ran.expect_success());
    assert_eq!(summary(&lines)["units"], json!({"reused": 3}));
    assert_eq!(wiki(&place), ["crates.md", "growers.md", "terms.md"]);
    assert_eq!(subjects(&place).len(), 3);
    is_clean(&place);

    // A missing patch cannot be integrated, so its unit runs again.
    git(&place, &["reset", "--quiet", "--hard", "HEAD~1"]);
    let runs = place.path(".ktx/ingestdeck/runs");
    let mut ids: Vec<_> = fs::read_dir(&runs)
        .unwrap()
        .map(|run| run.unwrap().file_name().into_string().unwrap())
        .collect();
    ids.sort();
    fs::remove_dir_all(place.path(".ktx/ingest-patches")).unwrap();
    let plan = place.run(&["plan", "--ui", "json", "--resume-run", &ids[0]]);
    assert_eq!(
        plan.expect_success()
            .matches("but its patch is gone")
            .count(),
        3,
        "{plan:?}"
    );
}

/// A script part for the reconcile step. Its calls succeed only with the expected material.
pub(super) fn pass(steps: &str) -> String {
    format!("[[part]]\nprompt = \"# Stage Index\"\nsteps = [{steps}]\n")
}

const CALLS: &str = r#"
  { call = { tool = "stage_list" } },
  { call = { tool = "stage_diff", with = { unitKeyA = "docs-crates", unitKeyB = "docs-growers" } } },
  { call = { tool = "read_raw_span", with = { path = "orchard/crates.md", startLine = 1, endLine = 1 } } },
  { call = { tool = "wiki_read", with = { key = "crates" } } },
  { call = { tool = "record_verification_ledger", with = { summary = "Compared both." } } },
  { call = { tool = "wiki_write", with = { key = "crates", summary = "About crates", content = "Merged." } } },
  { call = { tool = "emit_conflict_resolution", with = { unitKey = "docs-crates", kind = "near_duplicate", artifactKey = "crates", detail = "merged", flaggedForHuman = false } } },
  { say = "Merged." },"#;

#[test]
fn patches_are_integrated_before_the_commit() {
    let place = orchard_project();
    // The prompt contains the summary of each page.
    let pass = pass(CALLS).replace("# Stage Index", "  - wiki crates created: About crates\\n");
    let claude = place
        .scripted_claude(&[parts()[..2].concat(), pass].concat())
        .display()
        .to_string();
    let ran = run(&place, &claude, &["--only", "docs-{crates,growers}"]);
    let lines = parse_json_events(ran.expect_success());
    assert_eq!(summary(&lines)["units"], json!({"succeeded": 3}), "{ran:?}");
    assert_eq!(
        states(&lines, "reconcile"),
        ["running", "succeeded", "integrated"]
    );
    let of_run = lines.iter().filter(|line| line["event"]["type"] == "run");
    let of_run: Vec<&str> = of_run
        .map(|line| line["event"]["state"].as_str().unwrap())
        .collect();
    assert_eq!(
        of_run,
        [
            "planned",
            "integrating",
            "integrating",
            "saved",
            "ended",
            "summary"
        ]
    );
    assert!(
        fs::read_to_string(place.path("wiki/global/crates.md"))
            .unwrap()
            .contains("Merged.")
    );
    assert!(
        fs::read_to_string(place.path("wiki/global/growers.md"))
            .unwrap()
            .contains("As docs-growers has it.")
    );
    assert_eq!(subjects(&place).len(), 2, "one commit holds it all");
    is_clean(&place);
    let job = lines[0]["event"]["job"].as_str().unwrap();
    let transcript =
        fs::read_to_string(place.path(&format!(".ktx/ingest-transcripts/{job}/reconcile.jsonl")))
            .unwrap();
    assert_eq!(transcript.lines().count(), 7, "{transcript}");
    assert!(
        transcript.contains("## docs-crates (success)")
            && transcript.contains("wiki crates created"),
        "{transcript}"
    );
    assert!(!transcript.contains("\"success\":false"), "{transcript}");
    assert_eq!(
        place.run(&["replay", "latest", "--ui", "json"]).stdout,
        ran.stdout
    );
}

#[test]
fn failed_reconcile_step_loses_only_its_own_changes() {
    let place = orchard_project();
    let bad = r#"
  { call = { tool = "record_verification_ledger", with = { summary = "Read nothing." } } },
  { call = { tool = "wiki_write", with = { key = "crates", summary = "x", content = "Spoilt." } } },
  { call = { tool = "stage_diff", with = { unitKeyA = 1 } } },
  { say = "Done." },"#;
    let claude = place
        .scripted_claude(&[parts()[..2].concat(), pass(bad)].concat())
        .display()
        .to_string();
    let ran = run(&place, &claude, &["--only", "docs-{crates,growers}"]);
    assert_eq!(ran.code, Some(100), "{ran:?}");
    let lines = parse_json_events(&ran.stdout);
    assert_eq!(
        summary(&lines)["units"],
        json!({"succeeded": 2, "failed": 1})
    );
    assert_eq!(summary(&lines)["failed"][0]["unit"], "reconcile");
    assert!(
        fs::read_to_string(place.path("wiki/global/crates.md"))
            .unwrap()
            .contains("As docs-crates has it.")
    );
    let subjects = subjects(&place);
    assert!(
        subjects.len() == 2 && !subjects[0].contains("failed"),
        "{subjects:?}"
    );
    is_clean(&place);
}

#[test]
fn reconcile_step_is_optional_and_needs_changes() {
    let place = orchard_project();
    let script = [
        parts()[..1].concat(),
        "[[part]]\nsteps = [{ say = \"Nothing to write.\" }]\n".to_owned(),
    ]
    .concat();
    let claude = place.scripted_claude(&script).display().to_string();
    let idle =
        parse_json_events(run(&place, &claude, &["--only", "docs-growers"]).expect_success());
    assert_eq!(summary(&idle)["units"], json!({"succeeded": 1}));
    let texts = idle
        .iter()
        .filter_map(|line| line["event"]["text"].as_str());
    let texts: Vec<&str> = texts
        .filter(|text| !text.starts_with("asked the agent"))
        .collect();
    assert_eq!(
        texts,
        ["not reconciled: no unit wrote anything, and no raw file was deleted"]
    );
    let left_out = parse_json_events(
        run(
            &place,
            &claude,
            &["--only", "docs-crates", "--no-reconcile"],
        )
        .expect_success(),
    );
    assert_eq!(summary(&left_out)["units"], json!({"succeeded": 1}));
    assert_eq!(subjects(&place).len(), 2);
}
