//! The answers of `why` on whole runs, compared with an oracle that knows nothing of tapes: the files are copied from the
//! worktree of an attempt after each of its calls, committed one by one to another repository, merged as in the run, and
//! `git blame` names the commit of each line.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use rusqlite::Connection;
use serde_json::Value;

use super::super::{end_to_end::newest_tape, test_dir::TestDir};
use crate::it::support::git::git;

/// Directories that attempts change.
const WRITTEN: [&str; 2] = ["wiki", "semantic-layer"];

/// A `claude` that plays `script` and copies the worktree before each answer of a tool reaches the agent, as
/// `snaps/<process>/<number of the line>`.
fn copying_claude(place: &TestDir, script: &str) -> String {
    let script = place.write("../script.toml", script);
    let snaps = place.path("../snaps");
    fs::create_dir(&snaps).unwrap();
    let body = format!(
        r#"d='{snaps}'/$$; mkdir "$d"; n=0
while IFS= read -r line; do
  n=$((n+1))
  case "$line" in *mcp_response*) cp -r .ktx/worktrees "$d/$n";; esac
  printf '%s\n' "$line"
done | '{exe}' scripted-agent --speed 200 --script '{script}' -- "$@""#,
        snaps = snaps.display(),
        exe = crate::it::support::program(),
        script = script.display(),
    );
    place.claude(&body).display().to_string()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let from = entry.unwrap().path();
        let to = to.join(from.file_name().unwrap());
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(&from, &to).unwrap();
        }
    }
}

/// The lines to and from the agent of each unit, from the tape: `in`, and the call that each request of a tool is for.
fn calls_by_input(tape: &str, unit: &str) -> BTreeMap<usize, String> {
    let (mut requests, mut inputs, mut calls) = (BTreeMap::new(), 0, BTreeMap::new());
    for line in tape.lines().skip(1) {
        let entry: Value = serde_json::from_str(line).unwrap();
        if entry["unit"] != unit {
            continue;
        }
        if let Some(call) = entry["out"]["request"]["message"]["params"]["_meta"]["claudecode/toolUseId"].as_str() {
            requests.insert(entry["out"]["request_id"].as_str().unwrap().to_owned(), call.to_owned());
        }
        if let Some(input) = entry.get("in") {
            inputs += 1;
            if let Some(call) = input["response"]["request_id"].as_str().and_then(|id| requests.get(id)) {
                calls.insert(inputs, call.clone());
            }
        }
    }
    calls
}

/// Makes the repository of the oracle: every changing call is a commit `unit call`, on the commit before the run.
fn build_oracle(place: &TestDir, attempts: &[String]) -> PathBuf {
    let (project, oracle, snaps) = (place.path(""), place.path("../oracle"), place.path("../snaps"));
    let tape = newest_tape(place);
    git(&place.path(".."), &["clone", "--quiet", project.to_str().unwrap(), "oracle"]);
    git(&oracle, &["reset", "--quiet", "--hard", "HEAD~1"]);
    let processes: Vec<PathBuf> = fs::read_dir(snaps).unwrap().map(|entry| entry.unwrap().path()).collect();
    let is_of = |name: &str, unit: &str| name.starts_with("session-local-") && name.ends_with(&format!("-{unit}"));
    for unit in attempts {
        git(&oracle, &["checkout", "--quiet", "-b", unit, if unit == "reconcile" { "main" } else { "start" }]);
        for (number, call) in calls_by_input(&tape, unit) {
            let states = processes.iter().filter_map(|process| fs::read_dir(process.join(number.to_string())).ok());
            let mut states = states.flatten().map(|tree| tree.unwrap().path());
            let Some(state) = states.find(|tree| is_of(tree.file_name().unwrap().to_str().unwrap(), unit)) else {
                continue;
            };
            for name in WRITTEN {
                let _ = fs::remove_dir_all(oracle.join(name));
                if state.join(name).is_dir() {
                    copy(&state.join(name), &oracle.join(name));
                }
            }
            git(&oracle, &["add", "--all"]);
            git(&oracle, &["commit", "--quiet", "--allow-empty", "-m", &format!("{unit} {call}")]);
        }
        git(&oracle, &["checkout", "--quiet", "main"]);
        git(&oracle, &["merge", "--quiet", "--no-ff", "-m", "merge", unit]);
    }
    oracle
}

/// The expected unit and call of each line; `None` for a line that was there before the run.
fn expected(oracle: &Path, file: &str) -> Vec<Option<(String, String)>> {
    let blamed = git(oracle, &["blame", "--line-porcelain", "main", "--", file]);
    let summaries = blamed.lines().filter_map(|line| line.strip_prefix("summary "));
    let call =
        |summary: &str| summary.split_once(" toolu_").map(|(unit, call)| (unit.to_owned(), format!("toolu_{call}")));
    summaries.map(call).collect()
}

/// The same of the answers of `why`.
fn answered(place: &TestDir, file: &str) -> Vec<Option<(String, String)>> {
    let ran = place.run(&["why", file, "--ui", "json"]);
    let mut lines = Vec::new();
    for line in ran.expect_success().lines() {
        let group: Value = serde_json::from_str(line).unwrap();
        assert_eq!(group["first_line"].as_u64().unwrap() as usize, lines.len() + 1, "{group}");
        let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
        let answer = match group["origin"].as_str() {
            Some("commit") => None,
            _ => Some((text(&group["attempt"]["unit"]), text(&group["call"]["id"]))),
        };
        lines.resize(group["last_line"].as_u64().unwrap() as usize, answer);
    }
    lines
}

/// Runs the project, and returns the lines with a right and with any answer.
fn compare(place: &TestDir, script: &str) -> (usize, usize) {
    git(&place.path(""), &["init", "--quiet", "--initial-branch=main"]);
    git(&place.path(""), &["add", "--all"]);
    git(&place.path(""), &["commit", "--quiet", "-m", "start"]);
    git(&place.path(""), &["tag", "start"]);
    let claude = copying_claude(place, script);
    let ran = place.run(&["run", "--ui", "none", "--concurrency", "1", "--claude-bin", &claude]);
    assert!(matches!(ran.code, Some(0 | 100)), "{ran:?}");
    let message = git(&place.path(""), &["log", "-1", "--format=%B"]);
    let attempts: Vec<String> =
        message.lines().filter_map(|line| line.strip_prefix("Ingest-Unit: ")).map(str::to_owned).collect();
    assert!(attempts.len() > 1, "{message}");
    let oracle = build_oracle(place, &attempts);
    let (mut right, mut all) = (0, 0);
    for file in git(&oracle, &["ls-files", "--", "wiki", "semantic-layer"]).lines() {
        let committed = fs::read_to_string(place.path(file)).unwrap();
        assert_eq!(fs::read_to_string(oracle.join(file)).unwrap(), committed, "the oracle has another text of {file}");
        let (expected, answered) = (expected(&oracle, file), answered(place, file));
        assert_eq!(expected.len(), answered.len(), "{file}");
        all += expected.len();
        for (line, (expected, answered)) in expected.iter().zip(&answered).enumerate() {
            right += usize::from(expected == answered);
            if expected != answered {
                eprintln!("{file}:{}: expected {expected:?}, but got {answered:?}", line + 1);
            }
        }
    }
    (right, all)
}

fn assert_almost_all_right((right, all): (usize, usize), least: usize) {
    eprintln!("{right} of {all} lines have the right attempt and call");
    assert!(all >= least, "only {all} lines were compared");
    assert!(right * 100 >= all * 98, "{right} of {all} lines are right");
}

#[test]
fn why_agrees_with_blame_on_the_demo_project() {
    let place = TestDir::new();
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/demo");
    copy(&demo.join("project"), &place.path(""));
    place.write(".gitignore", ".ktx/\n");
    let script = fs::read_to_string(demo.join("script.toml")).unwrap();
    assert_almost_all_right(compare(&place, &script), 150);
}

/// Units that write their files several times, change the same page and source, and remove and create a page again, and
/// a reconcile step that changes their lines.
#[test]
fn why_agrees_with_blame_on_merged_writes() {
    let place = TestDir::new();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/projects/orchard/sources/handbook");
    for file in ["crates.md", "growers.md", "juice.md", "payments.md"] {
        place.write(&format!("handbook/{file}"), fs::read(fixture.join(file)).unwrap());
    }
    let settings = "connections:\n  shop:\n    driver: sqlite\n    url: sqlite:shop.db\n  orchard:\n    driver: docs\n    source_dir: handbook\nllm:\n  provider:\n    backend: claude-code\n";
    place.write("ktx.yaml", settings);
    place.write(".gitignore", ".ktx/\nshop.db\n");
    let database = Connection::open(place.path("shop.db")).unwrap();
    database.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY, total INTEGER, crates INTEGER)").unwrap();
    let shared: String = (1..=40).map(|number| format!("Line {number} of the handbook.\n")).collect();
    let front = "---\nsummary: Shared\nusage_mode: auto\nsort_order: 0\n---\n\n";
    place.write("wiki/global/shared.md", format!("{front}{shared}"));
    let least = shared.lines().count() + 80;
    assert_almost_all_right(compare(&place, include_str!("script.toml")), least);
}
