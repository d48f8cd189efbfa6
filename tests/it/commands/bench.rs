//! `bench`: runs in temporary clones, scores, gates, limits, and its end by signals.

use std::{fs, path::PathBuf, sync::mpsc, thread};

use nix::{sys::signal::Signal, sys::stat::Mode, unistd::mkfifo};
use serde_json::Value;

use super::test_dir::{CommandOutput, DEADLINE, RunningCommand, TestDir};
use crate::it::support::git::git;

/// A script part in which a unit writes the page `key` with further arguments `more`.
fn part(unit: &str, key: &str, text: &str, more: &str) -> String {
    format!(
        r#"
[[part]]
unit = "docs-{unit}"
steps = [
  {{ call = {{ tool = "record_verification_ledger", with = {{ summary = "Read it." }} }} }},
  {{ call = {{ tool = "wiki_write", with = {{ key = "{key}", summary = "s", content = "{text}"{more} }} }} }},
  {{ say = "Done." }},
]"#
    )
}

const PRICES: &str = "[usd_per_million]\ninput = 1000.0\noutput = 1000.0\n";

/// A committed project of `notes`, and a `claude` that plays `hasty` for the model of this name, and else `careful`.
/// `before` runs first in the process of each agent.
fn project(notes: &[&str], careful: &str, hasty: &str, before: &str) -> (TestDir, String) {
    let place = TestDir::new();
    place.notes(notes);
    let exe = crate::it::support::program();
    let careful = place.write("../careful.toml", format!("{PRICES}{careful}"));
    let hasty = place.write("../hasty.toml", format!("{PRICES}{hasty}"));
    let script = format!(
        "script='{}'\ncase \"$*\" in *--model?hasty*) script='{}'; {before}\nesac\n\
         exec '{exe}' scripted-agent --script \"$script\" -- \"$@\"",
        careful.display(),
        hasty.display()
    );
    let claude = place.claude(&script);
    git(&place.path(""), &["init", "--quiet", "--initial-branch=main"]);
    git(&place.path(""), &["add", "--all"]);
    git(&place.path(""), &["commit", "--quiet", "-m", "first"]);
    (place, claude.to_str().unwrap().to_owned())
}

/// Two units, of which the hasty model fails one with a dangling reference.
fn two_models() -> (TestDir, String) {
    let good = part("a", "a", "About a.", "") + &part("b", "b", "About b.", "");
    let bad = part("a", "a", "About a, or so.", "") + &part("b", "b", "About b.", ", refs = [\"nowhere\"]");
    project(&["a", "b"], &good, &bad, "")
}

fn bench(place: &TestDir, claude: &str, args: &[&str]) -> CommandOutput {
    place.run(&[&["bench", "--claude-bin", claude], args].concat())
}

fn clones(place: &TestDir) -> usize {
    let names = fs::read_dir(place.temporary()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("ingestdeck-")).count()
}

/// The directory of the only bench.
fn bench_dir(place: &TestDir) -> PathBuf {
    let mut found = fs::read_dir(place.path(".ktx/ingestdeck/bench")).unwrap();
    let dir = found.next().expect("a bench").unwrap().path();
    assert!(found.next().is_none(), "one bench");
    dir
}

fn result(place: &TestDir) -> Value {
    serde_json::from_str(&fs::read_to_string(bench_dir(place).join("result.json")).unwrap()).unwrap()
}

fn assert_project_unchanged(place: &TestDir) {
    assert_eq!(git(&place.path(""), &["status", "--porcelain"]), "");
    assert_eq!(git(&place.path(""), &["rev-list", "--count", "--all"]), "1\n");
    assert!(!place.path("wiki").exists() && !place.path(".ktx/ingestdeck/runs").exists());
    assert_eq!(clones(place), 0);
}

#[test]
fn bench_scores_models_over_repeats() {
    let (place, claude) = two_models();
    let models = ["--model", "careful", "--model", "hasty", "--repeat", "2", "--ui", "json"];
    let gates = ["--gate", "coverage>=0.9", "--gate", "success >= 0.5", "--gate", "cost<=0.000001"];
    let ran = bench(&place, &claude, &[&models[..], &gates].concat());
    assert_eq!(ran.code, Some(104), "{ran:?}");
    let lines: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    let expected = [&["plan"][..], &["run"; 4], &["cell"; 2], &["gate"; 6], &["bench"]].concat();
    assert_eq!(kinds, expected, "{ran:?}");
    let order: Vec<(u64, u64)> =
        lines[1..5].iter().map(|run| (run["cell"].as_u64().unwrap(), run["repeat"].as_u64().unwrap())).collect();
    assert_eq!(order, [(1, 1), (2, 1), (1, 2), (2, 2)]);
    let score = |cell: usize, figure: &str| lines[4 + cell]["score"][figure]["mean"].as_f64();
    let figures = |cell| {
        ["success", "coverage", "unsourced", "dangling", "created", "churn", "agreement"].map(|it| score(cell, it))
    };
    assert_eq!(figures(1)[..5], [Some(1.0), Some(1.0), Some(0.0), Some(0.0), Some(2.0)], "{ran:?}");
    assert_eq!(figures(2)[..5], [Some(0.5), Some(0.5), Some(0.0), Some(1.0), Some(1.0)], "{ran:?}");
    assert_eq!((figures(1)[6], figures(2)[6]), (Some(1.0), Some(1.0)), "a script repeats itself: {ran:?}");
    assert!(score(1, "cost_usd").unwrap() > 0.0 && score(1, "cost_per_artifact_usd").unwrap() > 0.0, "{ran:?}");
    assert!(lines[5]["score"]["seconds"]["low"].is_number() && lines[5]["score"]["agreement"]["low"].is_null());
    let met: Vec<bool> = lines[7..13].iter().map(|gate| gate["met"].as_bool().unwrap()).collect();
    assert_eq!(met, [true, true, false, false, true, false], "{ran:?}");
    assert_project_unchanged(&place);

    let kept = result(&place);
    assert_eq!((&kept["outcome"], kept["runs"].as_array().unwrap().len()), (&"complete".into(), 4));
    assert_eq!(kept["commit"].as_str().unwrap(), git(&place.path(""), &["rev-parse", "HEAD"]).trim());
    let tape = |name: &str| bench_dir(&place).join(name).to_str().unwrap().to_owned();
    let report = place.run(&["report", &tape("2-1.jsonl")]);
    assert!(report.expect_success().contains("* `dangling references`: 1\n"), "{report:?}");
    let diff = place.run(&["diff", &tape("1-1.jsonl"), &tape("2-1.jsonl")]);
    assert!(diff.expect_success().contains("dangling references    0 → 1\n"), "{diff:?}");
    assert!(diff.stdout.contains("~ changed wiki/global/b.md  created → ? · saved → discarded"), "{diff:?}");
}

#[test]
fn earlier_result_is_a_gate() {
    let (place, claude) = two_models();
    bench(&place, &claude, &["--model", "careful", "--repeat", "1"]).expect_success();
    let before = bench_dir(&place).join("result.json");
    let worse = fs::read_to_string(&before).unwrap().replace("careful", "hasty");
    let worse = place.write("../earlier.json", worse);
    for (file, model, code) in [(&before, "careful", 0), (&worse, "hasty", 104), (&before, "hasty", 2)] {
        let file = file.to_str().unwrap();
        let ran = bench(&place, &claude, &["--model", model, "--repeat", "1", "--gate-against", file]);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        match code {
            0 => assert!(ran.stdout.contains("✓ gate coverage>=1: in cell 1, coverage is 1\n"), "{ran:?}"),
            104 => assert!(ran.stdout.contains("✗ gate dangling<=0: in cell 1, dangling is 1\n"), "{ran:?}"),
            _ => assert!(ran.stderr.contains("has no model and prompt of this bench"), "{ran:?}"),
        }
    }
}

#[test]
fn bench_prints_plan_and_scores_for_people() {
    let (place, claude) = two_models();
    place.write("notes/c.md", "# c\n");
    let ran = bench(&place, &claude, &["docs-a", "--repeat", "1", "--gate", "unsourced<=0"]);
    assert!(ran.stderr.contains("1 changed file not committed, so the bench does not include them"), "{ran:?}");
    let text = ran.expect_success();
    for part in [
        "1 unit: docs-a\ncell 1: default model\n1 cell × 1 repeat = 1 run\n",
        "run 1 of 1: cell 1, repeat 1 · 1 of 1 unit succeeded · $",
        "agreement of lines",
        "✓ gate unsourced<=0: in cell 1, unsourced is 0\n",
        "/result.json; `ingestdeck diff`",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(place.path("notes/c.md").exists());
}

#[test]
fn prompt_file_replaces_the_project_prompt() {
    let (place, claude) = two_models();
    let prompt = place.write("../terse.md", "Be terse.\n");
    let prompt = prompt.to_str().unwrap();
    let ran = bench(&place, &claude, &["docs-a", "--repeat", "1", "--prompt", prompt, "--keep", "--ui", "json"]);
    let lines: Vec<Value> = ran.expect_success().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["cells"][0]["prompt"], prompt);
    let clone = PathBuf::from(lines[1]["clone"].as_str().unwrap());
    assert_eq!(fs::read_to_string(clone.join(".ktx/prompts/work_unit.md")).unwrap(), "Be terse.\n");
    assert!(clone.join("wiki/global/a.md").exists(), "the result of the run is kept");
    let tape = fs::read_to_string(bench_dir(&place).join("1-1.jsonl")).unwrap();
    assert!(tape.contains("prompt work_unit from .ktx/prompts/work_unit.md"), "{tape}");
}

#[test]
fn cost_limit_ends_a_bench() {
    let (place, claude) = two_models();
    let ran = bench(&place, &claude, &["--repeat", "3", "--max-cost", "0.0001", "--gate", "success>=1"]);
    assert_eq!(ran.code, Some(102), "{ran:?}");
    let kept = result(&place);
    assert_eq!((&kept["outcome"], kept["runs"].as_array().unwrap().len()), (&"limit".into(), 1), "{ran:?}");
    assert_project_unchanged(&place);
}

#[test]
fn invalid_arguments_are_refused_before_a_run() {
    let (place, claude) = two_models();
    place.write("../binary", [0xff, 0xfe]);
    for (args, code, expected) in [
        (&["--gate", "beauty>=1"][..], 2, "invalid --gate `beauty>=1`: expected one of the figures success"),
        (&["--gate", "coverage"], 2, "such as `coverage>=0.8`"),
        (&["--max-cost=-1"], 2, "invalid --max-cost `-1`"),
        (&["--model", " "], 2, "--model names no model"),
        (&["--prompt", "missing.md"], 2, "cannot read the prompt missing.md"),
        (&["--prompt", "../binary"], 2, "it is not UTF-8 text"),
        (&["--prompt", "/dev/zero"], 2, "cannot read the prompt /dev/zero"),
        (&["--gate-against", "missing.json"], 2, "cannot read the result missing.json"),
        (&["--gate-against", "../binary"], 2, "name the `result.json` of an earlier bench"),
        (&["nothing-like-it"], 4, "nothing-like-it"),
        (&["["], 2, "`[`"),
    ] {
        let ran = bench(&place, &claude, args);
        assert!(ran.expect_refusal(code).contains(expected), "{args:?}: {ran:?}");
    }
    assert!(!place.path(".ktx/ingestdeck/bench").exists(), "nothing was started");
    assert_project_unchanged(&place);
}

#[test]
fn project_without_commit_is_refused() {
    let place = TestDir::new();
    place.notes(&["a"]);
    let claude = place.scripted_claude("[[part]]\nsteps = [{ say = \"read\" }]");
    let claude = claude.to_str().unwrap();
    let refused = bench(&place, claude, &[]);
    assert!(refused.expect_refusal(2).contains("is not a git repository"), "{refused:?}");
    git(&place.path(""), &["init", "--quiet"]);
    assert!(bench(&place, claude, &[]).expect_refusal(2).contains("has no commit yet"));
}

#[test]
fn run_that_cannot_start_ends_the_bench() {
    let (place, _) = two_models();
    let outdated = place.script("claude-old", "echo '1.0.0 (Claude Code)'");
    let ran = bench(&place, outdated.to_str().unwrap(), &["--repeat", "1"]);
    assert_eq!(ran.code, Some(96), "{ran:?}");
    assert!(ran.stderr.contains("error: run 1 of cell 1 (default model) failed: "), "{ran:?}");
    assert_eq!(result(&place)["outcome"], "failed");
    assert_project_unchanged(&place);
}

/// A bench whose second run hangs, once the agent of that run has started.
fn hanging() -> (TestDir, RunningCommand) {
    let hang = "[[part]]\nsteps = [{ say = \"now\" }, \"hang\"]";
    let (place, claude) = project(&["a"], &part("a", "a", "About a.", ""), hang, "echo started > \"$HOME/gate\"");
    mkfifo(&place.path("../home/gate"), Mode::from_bits_truncate(0o600)).unwrap();
    let args = ["bench", "--claude-bin", &claude, "--model", "careful", "--model", "hasty", "--repeat", "1"];
    let running = place.start(place.command(&args));
    let (tell, started) = mpsc::channel();
    let gate = place.path("../home/gate");
    thread::spawn(move || tell.send(fs::read_to_string(gate).unwrap()));
    assert_eq!(started.recv_timeout(DEADLINE).expect("the agent starts"), "started\n");
    (place, running)
}

#[test]
fn ctrl_c_keeps_results_and_removes_clones() {
    let (place, mut running) = hanging();
    running.signal(Signal::SIGINT);
    running.wait_for("stderr", "draining: ");
    running.signal(Signal::SIGINT);
    let ran = running.end();
    assert_eq!(ran.code, Some(130), "{ran:?}");
    let kept = result(&place);
    assert_eq!(kept["outcome"], "interrupted", "{ran:?}");
    let complete: Vec<bool> = kept["runs"].as_array().unwrap().iter().map(|run| run["complete"] == true).collect();
    assert_eq!(complete, [true, false], "{kept}");
    assert!(ran.stdout.contains("interrupted: 2 of 2 runs ended"), "{ran:?}");
    place.wait_until_no_process_left();
    assert_project_unchanged(&place);
}

#[test]
fn killed_bench_leaves_nothing_after_prune() {
    let (place, running) = hanging();
    running.signal(Signal::SIGKILL);
    assert_eq!(running.end().code, None);
    place.wait_until_no_process_left();
    assert_eq!(clones(&place), 1);
    let kept = result(&place);
    assert_eq!((&kept["outcome"], kept["runs"].as_array().unwrap().len()), (&"running".into(), 1), "{kept}");
    place.run(&["runs", "prune"]).expect_success();
    assert_project_unchanged(&place);
}
