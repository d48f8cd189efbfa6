//! JSON output of `plan` and `doctor`. `init`, `config` and `completions` have no output for programs.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::golden::{assert_published, json_lines, lines_without, pretty_without};
use crate::{
    commands::{test_dir::TestDir, verbatim},
    support::git::git,
};

/// Copies a directory of fixtures recursively.
fn copy(from: &Path, place: &TestDir, to: &str) {
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = format!("{to}{}", path.file_name().unwrap().to_str().unwrap());
        if path.is_dir() {
            copy(&path, place, &format!("{to}/"));
        } else {
            place.write(&to, fs::read(&path).unwrap());
        }
    }
}

fn objects(place: &TestDir, args: &[&str]) -> Vec<Value> {
    json_lines(place.run(args).expect_success())
}

/// Part of a script: a unit that writes one page.
fn part(unit: &str) -> String {
    format!(
        r#"
[[part]]
unit = "docs-{unit}"
steps = [
  {{ call = {{ tool = "record_verification_ledger", with = {{ summary = "Read it." }} }} }},
  {{ call = {{ tool = "wiki_write", with = {{ key = "{unit}", summary = "s", content = "Text." }} }} }},
]"#
    )
}

/// New units of every adapter, also outside the project, and units of a project that ran before.
#[test]
fn plan_objects_are_as_published() {
    let every = TestDir::new();
    copy(
        &PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/projects/vineyard"),
        &every,
        "",
    );
    let settings = fs::read_to_string(every.path("ktx.yaml")).unwrap();
    let outside = "connections:\n  far:\n    driver: docs\n    source_dir: ../far\n  twin:\n    driver: docs\n    source_dir: twin\n";
    let settings = settings.replace("connections:\n", outside) + "  models:\n    default: sonnet\n";
    every.write(
        "ktx.yaml",
        settings + "ingest:\n  workUnits:\n    stepBudget: 1\n",
    );
    every.write("../far/cellar.md", "# Cellar\n");
    every.write("twin/cellar.md", "# Cellar\n");
    every.write(
        "flow/semantic.yml",
        "semantic_models:\n  - name: casks\n    model: ref('casks')\n    entities: [{name: cask, type: primary}]\n",
    );
    let allowed = format!(
        "[ingest]\nallow_paths = [\"{}\"]\n",
        every.path("..").canonicalize().unwrap().display()
    );
    let allowed = every
        .write("../settings.toml", allowed)
        .display()
        .to_string();
    let root = every
        .path("..")
        .canonicalize()
        .unwrap()
        .display()
        .to_string();
    let planned = every.run(&["plan", "--ui", "json", "--config", &allowed]);
    let new = json_lines(&planned.expect_success().replace(&root, "<outside>"));

    let place = TestDir::new();
    place.notes(&["a", "b", "c", "bad"]);
    let bad = "[usd_per_million]\ninput = 1000.0\noutput = 1000.0\n[[part]]\nunit = \"docs-bad\"\n\
               steps = [{ call = { tool = \"wiki_write\", with = { key = \"../x\", summary = \"s\", content = \"c\" } } }]\n";
    place.write("notes/b.md", "# b\n\nText.\n");
    let span = "{ call = { tool = \"read_raw_span\", with = { path = \"b.md\", startLine = 1, endLine = 2 } } },";
    let partial = part("b").replace("steps = [", &format!("steps = [ {span}"))
        + "\nif_asked = [{ say = \"Enough.\" }]";
    let claude = place.scripted_claude(&[bad.to_owned(), part("a"), partial, part("c")].concat());
    let ran = place.run(&[
        "run",
        "--ui",
        "none",
        "--claude-bin",
        claude.to_str().unwrap(),
    ]);
    assert_eq!(ran.code, Some(100), "{ran:?}");
    let resumed = objects(&place, &["plan", "--ui", "json", "--resume-run", "latest"]);
    fs::remove_file(place.path("notes/c.md")).unwrap();
    let evicting = objects(&place, &["plan", "--ui", "json"]);
    let unread = objects(
        &place,
        &["plan", "--ui", "json", "--unread", "--only", "docs-b"],
    );
    let documents = verbatim::handbook();
    documents.write("handbook/open.md", "---\n");
    let documents = documents.run(&["plan", "--ui", "json"]);
    let documents = json_lines(documents.expect_success());
    let all = [new, resumed, evicting, unread, documents].concat();
    for key in [
        "unitKey",
        "outsideProject",
        "reused",
        "slDisallowedReason",
        "warnings",
        "projected",
        "evicted",
        "unread",
        "documents",
    ] {
        assert!(
            all.iter().any(|object| object.get(key).is_some()),
            "no object has {key}"
        );
    }
    assert!(
        all.iter()
            .any(|object| object["forecast"]["seconds"]["p90"].is_number()),
        "{all:?}"
    );
    // Estimates differ between machines and with the texts of prompts, and reasons are for people.
    let is_volatile = |key: &str| {
        matches!(
            key,
            "p50" | "p90" | "low" | "high" | "contextTokens" | "why"
        )
    };
    assert_published("plan.jsonl", &lines_without(all, &is_volatile));
}

/// A bench of one unit, once with success and once with a rule that is not met.
#[test]
fn bench_objects_are_as_published() {
    let place = TestDir::new();
    place.notes(&["a"]);
    let prices = "[usd_per_million]\ninput = 1000.0\noutput = 1000.0\n";
    let reconcile =
        "[[part]]\nprompt = \"# Stage Index\"\nsteps = [{ say = \"Nothing to do.\" }]\n";
    let claude = place.scripted_claude(&format!("{prices}{reconcile}{}", part("a")));
    git(
        &place.path(""),
        &["init", "--quiet", "--initial-branch=main"],
    );
    git(&place.path(""), &["add", "--all"]);
    git(&place.path(""), &["commit", "--quiet", "-m", "first"]);
    let args = [
        "bench",
        "--repeat",
        "2",
        "--ui",
        "json",
        "--model",
        "m",
        "--gate",
        "success>=1",
        "--gate",
        "updated>0",
    ];
    let ran = place.run(&[&args[..], &["--claude-bin", claude.to_str().unwrap()]].concat());
    assert_eq!(ran.code, Some(104), "{ran:?}");
    let lines = json_lines(&ran.stdout);
    let result =
        fs::read_to_string(place.path(lines.last().unwrap()["result"].as_str().unwrap())).unwrap();
    // Tokens, and so the cost, depend on the size of the prompt.
    let is_volatile = |key: &str| {
        matches!(
            key,
            "bench" | "run" | "commit" | "result" | "program" | "started_at" | "seconds"
        ) || key.starts_with("cost")
    };
    assert_published("bench.jsonl", &lines_without(lines, &is_volatile));
    assert_published(
        "bench-result.json",
        &pretty_without(serde_json::from_str(&result).unwrap(), &is_volatile),
    );
}

/// Each check with each result that occurs here. Its sentence is for people.
#[test]
fn doctor_findings_are_as_published() {
    let mut found = Vec::new();
    let mut look = |place: &TestDir, claude: &str, code: i32| {
        let mut command =
            place.command(&["doctor", "--probe", "--ui", "json", "--claude-bin", claude]);
        command.env("AWS_PROFILE", "x");
        let ran = place.ran(command);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        found.extend(json_lines(&ran.stdout));
    };
    let good = TestDir::new();
    good.notes(&["one"]);
    git(
        &good.path(""),
        &["init", "--quiet", "--initial-branch=main"],
    );
    git(&good.path(""), &["add", "--all"]);
    git(&good.path(""), &["commit", "--quiet", "-m", "first"]);
    let claude = good.scripted_claude("[[part]]\nsteps = [{ say = \"yes\" }]");
    look(&good, claude.to_str().unwrap(), 0);

    let bad = TestDir::new();
    bad.write(
        "ktx.yaml",
        "connections:\n  notes: {driver: docs, source_dir: nowhere}\n",
    );
    bad.write(".ktx/ingestdeck/runs", "");
    let claude = bad.script("claude-old", "echo '1.0.0 (Claude Code)'");
    look(&bad, claude.to_str().unwrap(), 96);
    look(&bad, "no-such-program", 96);
    let checks = [
        "git",
        "project",
        "connection",
        "repository",
        "runs",
        "environment",
        "program",
        "release",
        "login",
        "request",
    ];
    for check in checks {
        assert!(
            found.iter().any(|finding| finding["check"] == check),
            "no finding of {check}"
        );
    }
    for result in ["ok", "note", "fail"] {
        assert!(
            found.iter().any(|finding| finding["result"] == result),
            "no finding is {result}"
        );
    }
    let mut shapes: Vec<String> = found
        .into_iter()
        .map(|finding| lines_without(vec![finding], &|key| key == "text"))
        .collect();
    shapes.sort_unstable();
    shapes.dedup();
    assert_published("doctor.jsonl", &shapes.concat());
}
