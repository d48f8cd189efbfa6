//! `bench`: runs in temporary clones, scores, gates, limits, and its end by signals.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _, pipe},
    path::PathBuf,
    sync::mpsc,
    thread,
};

use nix::{sys::signal::Signal, sys::stat::Mode, unistd::mkfifo};
use serde_json::Value;

use super::test_dir::{CommandOutput, DEADLINE, RunningCommand, TestDir};
use crate::support::git::git;

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

/// Prices, and the part of the reconcile step, which changes nothing.
const COMMON: &str = r##"
[usd_per_million]
input = 1000.0
output = 1000.0
[[part]]
prompt = "# Stage Index"
steps = [{ say = "Nothing to change." }]
"##;

/// A committed project of `notes`, and a `claude` that plays `hasty` for the model of this name, and else `careful`.
/// `before` runs first in the process of each agent of the former; `TMP` in it is the directory with the clones.
fn project(notes: &[&str], careful: &str, hasty: &str, before: &str) -> (TestDir, String) {
    let place = TestDir::new();
    place.notes(notes);
    let exe = crate::support::program();
    let careful = place.write("../careful.toml", format!("{COMMON}{careful}"));
    let hasty = place.write("../hasty.toml", format!("{COMMON}{hasty}"));
    let script = format!(
        "TMP='{}'; script='{}'\ncase \"$*\" in *--model?hasty*) script='{}'; {before}\nesac\n\
         exec '{exe}' scripted-agent --script \"$script\" -- \"$@\"",
        place.temporary().display(),
        careful.display(),
        hasty.display()
    );
    let claude = place.claude(&script);
    git(
        &place.path(""),
        &["init", "--quiet", "--initial-branch=main"],
    );
    git(&place.path(""), &["add", "--all"]);
    git(&place.path(""), &["commit", "--quiet", "-m", "first"]);
    (place, claude.to_str().unwrap().to_owned())
}

/// Two units, of which the hasty model fails one with a dangling reference.
fn two_models() -> (TestDir, String) {
    let good = part("a", "a", "About a.", "") + &part("b", "b", "About b.", "");
    let bad = part("a", "a", "About a, or so.", "")
        + &part("b", "b", "About b.", ", refs = [\"nowhere\"]");
    project(&["a", "b"], &good, &bad, "")
}

/// A bench of the unit `docs-a` with the hasty model, whose agents run `before` first.
fn hasty_bench(before: &str, args: &[&str]) -> (TestDir, CommandOutput) {
    let page = part("a", "a", "About a.", "");
    let (place, claude) = project(&["a"], &page, &page, before);
    let ran = bench(
        &place,
        &claude,
        &[&["--model", "hasty", "--ui", "json"], args].concat(),
    );
    (place, ran)
}

fn bench(place: &TestDir, claude: &str, args: &[&str]) -> CommandOutput {
    place.run(&[&["bench", "--claude-bin", claude], args].concat())
}

fn clones(place: &TestDir) -> usize {
    let names = fs::read_dir(place.temporary())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
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
    serde_json::from_str(&fs::read_to_string(bench_dir(place).join("result.json")).unwrap())
        .unwrap()
}

fn assert_project_unchanged(place: &TestDir) {
    assert_eq!(git(&place.path(""), &["status", "--porcelain"]), "");
    assert_eq!(
        git(&place.path(""), &["rev-list", "--count", "--all"]),
        "1\n"
    );
    assert!(!place.path("wiki").exists() && !place.path(".ktx/ingestdeck/runs").exists());
    assert_eq!(clones(place), 0);
}

#[test]
fn bench_scores_models_over_repeats() {
    let (place, claude) = two_models();
    let models = [
        "--model", "careful", "--model", "hasty", "--repeat", "2", "--ui", "json",
    ];
    let gates = [
        "--gate",
        "coverage>=0.9",
        "--gate",
        "success >= 0.5",
        "--gate",
        "cost<=0.000001",
    ];
    let ran = bench(&place, &claude, &[&models[..], &gates].concat());
    assert_eq!(ran.code, Some(104), "{ran:?}");
    let lines: Vec<Value> = ran
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let kinds: Vec<&str> = lines
        .iter()
        .map(|line| line["type"].as_str().unwrap())
        .collect();
    let expected = [
        &["plan"][..],
        &["run"; 4],
        &["cell"; 2],
        &["gate"; 6],
        &["bench"],
    ]
    .concat();
    assert_eq!(kinds, expected, "{ran:?}");
    let order: Vec<(u64, u64)> = lines[1..5]
        .iter()
        .map(|run| {
            (
                run["cell"].as_u64().unwrap(),
                run["repeat"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(order, [(1, 1), (2, 1), (1, 2), (2, 2)]);
    let score = |cell: usize, figure: &str| lines[4 + cell]["score"][figure]["mean"].as_f64();
    for cell in [1, 2] {
        assert_eq!(score(cell, "reconciled"), Some(1.0), "{ran:?}");
    }
    let figures = |cell| {
        [
            "success",
            "coverage",
            "unsourced",
            "dangling",
            "created",
            "churn",
            "agreement",
        ]
        .map(|it| score(cell, it))
    };
    assert_eq!(
        figures(1)[..5],
        [Some(1.0), Some(1.0), Some(0.0), Some(0.0), Some(2.0)],
        "{ran:?}"
    );
    assert_eq!(
        figures(2)[..5],
        [Some(0.5), Some(0.5), Some(0.0), Some(1.0), Some(1.0)],
        "{ran:?}"
    );
    assert_eq!(
        (figures(1)[6], figures(2)[6]),
        (Some(1.0), Some(1.0)),
        "a script repeats itself: {ran:?}"
    );
    assert!(
        score(1, "cost_usd").unwrap() > 0.0 && score(1, "cost_per_artifact_usd").unwrap() > 0.0,
        "{ran:?}"
    );
    assert!(
        lines[5]["score"]["seconds"]["low"].is_number()
            && lines[5]["score"]["agreement"]["low"].is_null()
    );
    let met: Vec<bool> = lines[7..13]
        .iter()
        .map(|gate| gate["met"].as_bool().unwrap())
        .collect();
    assert_eq!(met, [true, true, false, false, true, false], "{ran:?}");
    assert_project_unchanged(&place);

    let kept = result(&place);
    assert_eq!(
        (&kept["outcome"], kept["runs"].as_array().unwrap().len()),
        (&"complete".into(), 4)
    );
    assert_eq!(
        kept["commit"].as_str().unwrap(),
        git(&place.path(""), &["rev-parse", "HEAD"]).trim()
    );
    let tape = |name: &str| bench_dir(&place).join(name).to_str().unwrap().to_owned();
    let report = place.run(&["report", &tape("2-1.jsonl")]);
    assert!(
        report
            .expect_success()
            .contains("* `dangling references`: 1\n"),
        "{report:?}"
    );
    let diff = place.run(&["diff", &tape("1-1.jsonl"), &tape("2-1.jsonl")]);
    assert!(
        diff.expect_success()
            .contains("dangling references    0 → 1\n"),
        "{diff:?}"
    );
    assert!(
        diff.stdout
            .contains("~ changed wiki/global/b.md  created → ? · saved → discarded"),
        "{diff:?}"
    );
}

#[test]
fn bench_of_an_ingested_project_leaves_its_outputs_out() {
    let (place, claude) = two_models();
    let root = place.path("");
    let ingested = place.run(&["run", "--ui", "none", "--claude-bin", &claude]);
    ingested.expect_success();
    place.write("wiki/global/own.md", "Written by a person.\n");
    git(&root, &["add", "wiki"]);
    git(&root, &["commit", "--quiet", "-m", "a page of a person"]);
    let args = [
        "--model", "careful", "--repeat", "1", "--ui", "json", "--keep",
    ];
    let ran = bench(&place, &claude, &args);
    let lines: Vec<Value> = ran
        .expect_success()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["left_out"], 2, "{ran:?}");
    assert_eq!(
        lines[0]["commit"].as_str().unwrap(),
        git(&root, &["rev-parse", "HEAD"]).trim()
    );
    let figures = &lines[1]["figures"];
    assert_eq!(
        (&figures["created"], &figures["coverage"]),
        (&2.0.into(), &1.0.into()),
        "{ran:?}"
    );
    let clone = PathBuf::from(lines[1]["clone"].as_str().unwrap());
    assert!(clone.join("wiki/global/own.md").exists(), "{ran:?}");
    fs::remove_dir_all(clone.parent().unwrap()).unwrap();

    let head = git(&root, &["rev-parse", "HEAD"]);
    place.write(".git/shallow", head);
    let ran = bench(&place, &claude, &args);
    assert!(
        ran.expect_refusal(2).contains("git fetch --unshallow"),
        "{ran:?}"
    );
}

#[test]
fn earlier_result_is_a_gate() {
    let (place, claude) = two_models();
    bench(&place, &claude, &["--model", "careful", "--repeat", "1"]).expect_success();
    let before = bench_dir(&place).join("result.json");
    let worse = fs::read_to_string(&before)
        .unwrap()
        .replace("careful", "hasty");
    let worse = place.write("../earlier.json", worse);
    let unusable = [
        (
            "../cut.json",
            "\"outcome\": \"complete\"",
            "\"outcome\": \"limit\"",
            "not complete: its outcome is \"limit\"",
        ),
        (
            "../empty.json",
            "\"mean\": ",
            "\"mean\": null, \"was\": ",
            "has no known figure of careful",
        ),
    ];
    for (file, from, to, expected) in unusable {
        let text = fs::read_to_string(&before).unwrap();
        assert!(text.contains(from), "{text}");
        let file = place.write(file, text.replace(from, to));
        let refused = bench(
            &place,
            &claude,
            &[
                "--model",
                "careful",
                "--gate-against",
                file.to_str().unwrap(),
            ],
        );
        assert!(refused.expect_refusal(2).contains(expected), "{refused:?}");
    }
    for (file, model, code) in [
        (&before, "careful", 0),
        (&worse, "hasty", 104),
        (&before, "hasty", 2),
    ] {
        let file = file.to_str().unwrap();
        let ran = bench(
            &place,
            &claude,
            &["--model", model, "--repeat", "1", "--gate-against", file],
        );
        assert_eq!(ran.code, Some(code), "{ran:?}");
        match code {
            0 => {
                assert!(
                    ran.stdout
                        .contains("✓ gate coverage>=1: in cell 1, coverage is 1\n"),
                    "{ran:?}"
                );
                assert!(ran.stdout.contains("compared with bench "), "{ran:?}");
                assert!(!ran.stderr.contains("had other units"), "{ran:?}");
            }
            104 => assert!(
                ran.stdout
                    .contains("✗ gate dangling<=0: in cell 1, dangling is 1\n"),
                "{ran:?}"
            ),
            _ => assert!(
                ran.stderr.contains("has no model and prompt of this bench"),
                "{ran:?}"
            ),
        }
    }
}

#[test]
fn bench_prints_plan_and_scores_for_people() {
    let (place, claude) = two_models();
    place.write("notes/c.md", "# c\n");
    let ran = bench(
        &place,
        &claude,
        &["docs-a", "--repeat", "1", "--gate", "unsourced<=0"],
    );
    assert!(
        ran.stderr
            .contains("1 file not committed, so the bench does not include them: notes/c.md"),
        "{ran:?}"
    );
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
    let ran = bench(
        &place,
        &claude,
        &[
            "docs-a", "--repeat", "1", "--prompt", prompt, "--keep", "--ui", "json",
        ],
    );
    let lines: Vec<Value> = ran
        .expect_success()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["cells"][0]["prompt"], prompt);
    let clone = PathBuf::from(lines[1]["clone"].as_str().unwrap());
    assert_eq!(
        fs::read_to_string(clone.join(".ktx/prompts/work_unit.md")).unwrap(),
        "Be terse.\n"
    );
    assert!(
        clone.join("wiki/global/a.md").exists(),
        "the result of the run is kept"
    );
    let tape = fs::read_to_string(bench_dir(&place).join("1-1.jsonl")).unwrap();
    assert!(
        tape.contains("prompt work_unit from .ktx/prompts/work_unit.md"),
        "{tape}"
    );
}

#[test]
fn cost_limit_ends_a_bench() {
    let (place, claude) = two_models();
    let ran = bench(
        &place,
        &claude,
        &[
            "--repeat",
            "3",
            "--max-cost",
            "0.0001",
            "--gate",
            "success>=1",
        ],
    );
    assert_eq!(ran.code, Some(102), "{ran:?}");
    let kept = result(&place);
    assert_eq!(
        (&kept["outcome"], kept["runs"].as_array().unwrap().len()),
        (&"limit".into(), 1),
        "{ran:?}"
    );
    assert_project_unchanged(&place);
}

#[test]
fn run_that_is_not_saved_does_not_count() {
    let lock = "for git in \"$TMP\"/ingestdeck-bench-*/*/.git; do : > \"$git/index.lock\"; done";
    let (place, ran) = hasty_bench(
        lock,
        &[
            "--repeat",
            "2",
            "--gate",
            "success>=0",
            "--gate",
            "created>=0",
        ],
    );
    assert_eq!(ran.code, Some(100), "{ran:?}");
    assert!(
        ran.stderr
            .contains("error: cell 1 (hasty) has no complete run, so no score"),
        "{ran:?}"
    );
    let kept = result(&place);
    assert_eq!(
        (&kept["outcome"], kept["runs"].as_array().unwrap().len()),
        (&"failed".into(), 2),
        "{kept}"
    );
    for run in kept["runs"].as_array().unwrap() {
        assert_eq!(
            (&run["complete"], &run["figures"]["created"]),
            (&false.into(), &0.0.into()),
            "{run}"
        );
        assert!(
            run["reason"].as_str().unwrap().starts_with("not saved: "),
            "{run}"
        );
    }
    assert!(
        kept["gates"]
            .as_array()
            .unwrap()
            .iter()
            .all(|gate| gate["met"] == false),
        "{kept}"
    );
    assert_project_unchanged(&place);
}

#[test]
fn killed_run_ends_the_bench_and_is_kept() {
    let (place, ran) = hasty_bench("kill -9 $PPID; exec sleep 60", &["--repeat", "2"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.stderr
            .contains("run 1 of cell 1 (hasty) failed: SIGKILL ended its process; see whether"),
        "{ran:?}"
    );
    let last: Value = serde_json::from_str(ran.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["type"], &last["outcome"], &last["runs"]),
        (&"bench".into(), &"failed".into(), &1.into())
    );
    assert!(
        last["error"].as_str().unwrap().contains("SIGKILL"),
        "{last}"
    );
    let kept = result(&place);
    assert_eq!(
        (&kept["runs"][0]["complete"], &kept["error"]),
        (&false.into(), &last["error"]),
        "{kept}"
    );
    assert!(
        bench_dir(&place).join("1-1.jsonl").exists(),
        "its tape is kept"
    );
    place.wait_until_no_process_left();
    assert_project_unchanged(&place);
}

#[test]
fn agent_without_sign_in_ends_the_bench() {
    let (good, refused) = (
        part("a", "a", "About a.", ""),
        "[[part]]\nsteps = [{ api_error = { status = 401, error = \"authentication_failed\", text = \"no key\" } }]",
    );
    let (place, claude) = project(&["a"], &good, refused, "");
    let ran = bench(
        &place,
        &claude,
        &["--model", "careful", "--model", "hasty", "--repeat", "2"],
    );
    assert_eq!(ran.code, Some(96), "{ran:?}");
    assert!(
        ran.stderr
            .contains("error: run 1 of cell 2 (hasty) failed: "),
        "{ran:?}"
    );
    assert!(
        ran.stderr
            .contains("Claude Code query failed (api_error): no key; run `claude` and sign in"),
        "cause and help: {ran:?}"
    );
    let kept = result(&place);
    let complete: Vec<bool> = kept["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["complete"] == true)
        .collect();
    assert_eq!(
        (complete, &kept["outcome"]),
        (vec![true, false], &"failed".into()),
        "{kept}"
    );
    assert!(
        ran.stdout.contains("succeeded units"),
        "the scores so far are printed: {ran:?}"
    );
    assert_project_unchanged(&place);
}

#[test]
fn rules_of_the_project_hold_in_clones() {
    let (place, claude) = two_models();
    place.write("ingestdeck.toml", "[policy]\ndeny = [\"wiki_write\"]\n");
    let args = [
        "docs-a",
        "--model",
        "careful",
        "--repeat",
        "1",
        "--ui",
        "json",
        "--gate",
        "created<=0",
    ];
    let ran = bench(&place, &claude, &args);
    ran.expect_success();
    assert_eq!(
        ran.stderr, "",
        "no warning about the file, which the clones have"
    );
    place.write("ingestdeck.toml", "[policy]\nallow = [\"wiki_write\"]\n");
    let ran = bench(&place, &claude, &args);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.stderr
            .contains("policy.allow cannot be set by a project; "),
        "{ran:?}"
    );
}

#[test]
fn output_without_reader_does_not_lose_a_run() {
    let page = part("a", "a", "About a.", "");
    let (place, claude) = project(&["a"], &page, &page, "read line < \"$HOME/gate\"");
    let mut gate = gate(&place, "gate");
    let args = [
        "bench",
        "--claude-bin",
        &claude,
        "--model",
        "hasty",
        "--repeat",
        "2",
        "--ui",
        "json",
    ];
    let (reader, writer) = pipe().unwrap();
    let running = place.start_into(place.command(&args), writer.into());
    let mut plan = String::new();
    BufReader::new(reader).read_line(&mut plan).unwrap();
    assert!(plan.contains(r#""type":"plan""#), "{plan}");
    // The reader is gone before the run ends.
    gate.write_all(&b"go\n".repeat(9)).unwrap();
    let ran = running.end();
    assert_ne!(ran.code, Some(0), "{ran:?}");
    let kept = result(&place);
    assert_eq!(
        (&kept["outcome"], kept["runs"].as_array().unwrap().len()),
        (&"failed".into(), 1),
        "{kept}"
    );
    assert_eq!(kept["runs"][0]["complete"], true, "{kept}");
    place.wait_until_no_process_left();
    assert_project_unchanged(&place);
}

/// A pipe in the home directory that neither end of has to wait for the other.
fn gate(place: &TestDir, name: &str) -> fs::File {
    let path = place.path("../home").join(name);
    mkfifo(&path, Mode::from_bits_truncate(0o600)).unwrap();
    fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
}

#[test]
fn drained_bench_starts_no_further_run() {
    let page = part("a", "a", "About a.", "");
    let wait = "echo started > \"$HOME/started\"; read line < \"$HOME/gate\"";
    let (place, claude) = project(&["a"], &page, &page, wait);
    let (started, mut gate) = (gate(&place, "started"), gate(&place, "gate"));
    let args = [
        "bench",
        "--claude-bin",
        &claude,
        "--model",
        "hasty",
        "--repeat",
        "3",
    ];
    let mut running = place.start(place.command(&args));
    BufReader::new(started)
        .read_line(&mut String::new())
        .unwrap();
    running.signal(Signal::SIGINT);
    running.wait_for("stderr", "draining: ");
    gate.write_all(&b"go\n".repeat(9)).unwrap();
    let ran = running.end();
    assert_eq!(ran.code, Some(130), "{ran:?}");
    let kept = result(&place);
    assert_eq!(
        (&kept["outcome"], kept["runs"].as_array().unwrap().len()),
        (&"interrupted".into(), 1),
        "{kept}"
    );
    assert_project_unchanged(&place);
}

#[test]
fn invalid_arguments_are_refused_before_a_run() {
    let (place, claude) = two_models();
    place.write("../binary", [0xff, 0xfe]);
    for (args, code, expected) in [
        (
            &["--gate", "beauty>=1"][..],
            2,
            "invalid --gate `beauty>=1`: expected one of the figures success",
        ),
        (&["--gate", "coverage"], 2, "such as `coverage>=0.8`"),
        (&["--max-cost=-1"], 2, "invalid --max-cost `-1`"),
        (&["--model", " "], 2, "--model names no model"),
        (
            &["--model", "a", "--model", "b", "--model", "a"],
            2,
            "--model a is given twice",
        ),
        (
            &["--prompt", "notes/a.md", "--prompt", "./notes/a.md"],
            2,
            "notes/a.md is given twice",
        ),
        (
            &["--prompt", "missing.md"],
            2,
            "cannot read the prompt missing.md",
        ),
        (&["--prompt", "../binary"], 2, "it is not UTF-8 text"),
        (
            &["--prompt", "/dev/zero"],
            2,
            "cannot read the prompt /dev/zero",
        ),
        (
            &["--gate-against", "missing.json"],
            2,
            "cannot read the result missing.json",
        ),
        (
            &["--gate-against", "../binary"],
            2,
            "name the `result.json` of an earlier bench",
        ),
        (&["nothing-like-it"], 4, "nothing-like-it"),
        (&["["], 2, "`[`"),
    ] {
        let ran = bench(&place, &claude, args);
        assert!(
            ran.expect_refusal(code).contains(expected),
            "{args:?}: {ran:?}"
        );
    }
    assert!(
        !place.path(".ktx/ingestdeck/bench").exists(),
        "nothing was started"
    );
    assert_project_unchanged(&place);
}

#[test]
fn project_without_commit_is_refused() {
    let place = TestDir::new();
    place.notes(&["a"]);
    let claude = place.scripted_claude("[[part]]\nsteps = [{ say = \"read\" }]");
    let claude = claude.to_str().unwrap();
    let refused = bench(&place, claude, &[]);
    assert!(
        refused
            .expect_refusal(2)
            .contains("is not a git repository"),
        "{refused:?}"
    );
    git(&place.path(""), &["init", "--quiet"]);
    assert!(
        bench(&place, claude, &[])
            .expect_refusal(2)
            .contains("has no commit yet")
    );
}

#[test]
fn run_that_cannot_start_ends_the_bench() {
    let (place, _) = two_models();
    let outdated = place.script("claude-old", "echo '1.0.0 (Claude Code)'");
    let ran = bench(&place, outdated.to_str().unwrap(), &["--repeat", "1"]);
    assert_eq!(ran.code, Some(96), "{ran:?}");
    assert!(
        ran.stderr
            .contains("error: run 1 of cell 1 (default model) failed: "),
        "{ran:?}"
    );
    assert_eq!(result(&place)["outcome"], "failed");
    assert_project_unchanged(&place);
}

/// A bench whose second run hangs, once the agent of that run has started.
fn hanging() -> (TestDir, RunningCommand) {
    let hang = "[[part]]\nsteps = [{ say = \"now\" }, \"hang\"]";
    let (place, claude) = project(
        &["a"],
        &part("a", "a", "About a.", ""),
        hang,
        "echo started > \"$HOME/gate\"",
    );
    mkfifo(&place.path("../home/gate"), Mode::from_bits_truncate(0o600)).unwrap();
    let args = [
        "bench",
        "--claude-bin",
        &claude,
        "--model",
        "careful",
        "--model",
        "hasty",
        "--repeat",
        "1",
    ];
    let running = place.start(place.command(&args));
    let (tell, started) = mpsc::channel();
    let gate = place.path("../home/gate");
    thread::spawn(move || tell.send(fs::read_to_string(gate).unwrap()));
    assert_eq!(
        started.recv_timeout(DEADLINE).expect("the agent starts"),
        "started\n"
    );
    (place, running)
}

#[test]
fn run_that_another_client_stops_does_not_count() {
    let (place, running) = hanging();
    let entries = fs::read_dir(place.temporary())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let clones = entries
        .filter_map(|dir| fs::read_dir(dir).ok())
        .flatten()
        .map(|entry| entry.unwrap().path());
    let clone = clones
        .into_iter()
        .find(|path| path.join(".ktx/ingestdeck/runs").is_dir())
        .expect("a clone with a run");
    place
        .run(&[
            "ctl",
            "--project-dir",
            clone.to_str().unwrap(),
            "stop",
            "docs-a",
        ])
        .expect_success();
    let ran = running.end();
    assert_eq!(ran.code, Some(100), "{ran:?}");
    let kept = result(&place);
    let complete: Vec<bool> = kept["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["complete"] == true)
        .collect();
    assert_eq!(
        (complete, &kept["cells"][1]["score"]["success"]["mean"]),
        (vec![true, false], &Value::Null),
        "{kept}"
    );
    assert!(
        ran.stderr
            .contains("error: cell 2 (hasty) has no complete run"),
        "{ran:?}"
    );
    place.wait_until_no_process_left();
    assert_project_unchanged(&place);
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
    let complete: Vec<bool> = kept["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["complete"] == true)
        .collect();
    assert_eq!(complete, [true, false], "{kept}");
    assert!(
        ran.stdout.contains("interrupted: 2 of 2 runs recorded"),
        "{ran:?}"
    );
    place.wait_until_no_process_left();
    assert_project_unchanged(&place);
}

#[test]
fn killed_bench_leaves_nothing_after_prune() {
    let (place, running) = hanging();
    running.signal(Signal::SIGKILL);
    assert_eq!(running.end().code, None);
    place.wait_until_no_process_left();
    // The clone of the run, and the one that it is a clone of.
    assert_eq!(clones(&place), 2);
    let kept = result(&place);
    assert_eq!(
        (&kept["outcome"], kept["runs"].as_array().unwrap().len()),
        (&"running".into(), 1),
        "{kept}"
    );
    place.run(&["runs", "prune"]).expect_success();
    assert_project_unchanged(&place);
}
