//! Which units run a second time and which do not: plans after recorded runs, through the whole program.

use std::{
    fs,
    path::{Path, PathBuf},
};

use ingestdeck_core::units::verdict::MAX_PROMPT_CHARS;
use ingestdeck_ingest::{
    Project, UnitSelection, attempt::UnitAttempt, job::IngestJob, plan, prompt::PromptAmendment,
};
use jiff::Timestamp;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::{
    commands::test_dir::{CommandOutput, TestDir},
    support::git::{git, private_worktrees},
};

/// A script that reads the file and succeeds; `docs-bad` calls an unknown tool.
const SCRIPT: &str = r#"
[[part]]
unit = "docs-bad"
steps = [{ deny = { tool = "Bash", with = { command = "ls" } } }, { say = "no" }]
[[part]]
steps = [{ say = "read" }]
"#;

fn run(place: &TestDir, script: &str, more: &[&str]) -> CommandOutput {
    let claude = place.scripted_claude(script);
    place.run(
        &[
            &[
                "run",
                "--claude-bin",
                claude.to_str().unwrap(),
                "--ui",
                "none",
            ],
            more,
        ]
        .concat(),
    )
}

/// Keys and reasons of the planned units.
fn planned(place: &TestDir, more: &[&str]) -> Vec<(String, String)> {
    let ran = place.run(&[&["plan", "--ui", "json"], more].concat());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let objects = ran
        .expect_success()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    objects
        .filter(|object| !object["unit"].is_null())
        .map(|object| (text(&object["unit"]), text(&object["why"])))
        .collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(key, why)| ((*key).to_owned(), (*why).to_owned()))
        .collect()
}

#[test]
fn units_that_are_cut_anew_are_not_planned_again() {
    const READ: &str = "[[part]]\nsteps = [{ say = \"read\" }]";
    const SECOND_FAILS: &str = r#"
[[part]]
unit = "docs-long-lines-KEY"
steps = [{ deny = { tool = "Bash", with = { command = "ls" } } }, { say = "no" }]
[[part]]
steps = [{ say = "read" }]
"#;
    let place = TestDir::new();
    place.notes(&["small"]);
    let section = |n: usize| format!("## Section {n}\n{}\n", "word ".repeat(100));
    let long: String = (0..40).map(section).collect();
    place.write("notes/long.md", &long);
    let narrow = place.write("narrow.toml", "[ingest]\nmax_unit_share = 1\n");
    let narrow = ["--config", narrow.to_str().unwrap()];
    let found = planned(&place, &narrow);
    let is_part = |(key, _): &&(String, String)| key.starts_with("docs-long-lines-");
    let parts = |why: &str| -> Vec<(String, String)> {
        let keys = found.iter().filter(is_part).map(|(key, _)| key.clone());
        keys.map(|key| (key, why.to_owned())).collect()
    };
    assert_eq!(parts("").len(), 3);
    let all = [parts("new"), pairs(&[("docs-small", "new")])].concat();
    assert_eq!(found, all);

    assert_eq!(run(&place, READ, &[]).code, Some(0));
    assert_eq!(planned(&place, &narrow), [], "the whole file was ingested");

    place.write("notes/long.md", long.replace("Section 39", "Section 40"));
    assert_eq!(planned(&place, &narrow), parts("1 file modified"));
    let fails = SECOND_FAILS.replace("docs-long-lines-KEY", &parts("")[1].0);
    assert_eq!(run(&place, &fails, &narrow).code, Some(100));
    let whole = pairs(&[("docs-long", "1 file modified")]);
    assert_eq!(planned(&place, &[]), whole, "a part is not ingested");
    assert_eq!(run(&place, READ, &narrow).code, Some(0));
    assert_eq!(planned(&place, &[]), [], "all parts were ingested");
}

#[test]
fn unchanged_successes_are_not_planned_again() {
    let place = TestDir::new();
    place.notes(&["good", "bad", "other"]);
    let new = pairs(&[
        ("docs-bad", "new"),
        ("docs-good", "new"),
        ("docs-other", "new"),
    ]);
    assert_eq!(planned(&place, &[]), new);
    assert_eq!(planned(&place, &[]), new, "planning changes nothing");
    assert!(!place.path(".ktx").exists(), "planning creates no files");

    assert_eq!(run(&place, SCRIPT, &[]).code, Some(100));
    assert_eq!(
        planned(&place, &[]),
        pairs(&[("docs-bad", "failed last time")])
    );

    place.write("notes/good.md", "# good, and more\n");
    place.write("notes/late.md", "# late\n");
    fs::remove_file(place.path("notes/other.md")).unwrap();
    let changed = pairs(&[
        ("docs-bad", "failed last time"),
        ("docs-good", "1 file modified"),
        ("docs-late", "new"),
    ]);
    assert_eq!(planned(&place, &[]), changed);
    let table = place.run(&["plan"]);
    let forecast =
        regex_lite::Regex::new(r"\$[0-9.]+(–\$[0-9.]+)?, ([0-9ms ]+–)?[0-9ms ]*s\b").unwrap();
    let table = forecast.replace_all(table.expect_success(), "<forecast>");
    // The prompt has texts that change.
    let tokens = regex_lite::Regex::new(" B +[0-9.]+k?  ").unwrap();
    let table = tokens.replace_all(&table, " B <tokens>  ");
    let padding = regex_lite::Regex::new("<forecast> +").unwrap();
    insta::assert_snapshot!("changes", padding.replace_all(&table, "<forecast>  "));

    // The index can be deleted, because it is rebuilt from the tapes.
    fs::remove_file(place.path(".ktx/ingestdeck/db.sqlite")).unwrap();
    place.run(&["runs", "reindex"]).expect_success();
    assert_eq!(planned(&place, &[]), changed);

    assert_eq!(
        run(&place, "[[part]]\nsteps = [{ say = \"read\" }]", &[]).code,
        Some(0)
    );
    assert_eq!(planned(&place, &[]), []);
    let table = place.run(&["plan"]);
    insta::assert_snapshot!("nothing_to_do", table.expect_success());
    let nothing = run(&place, SCRIPT, &[]);
    assert_eq!((nothing.code, nothing.stdout.as_str()), (Some(0), ""));
    assert!(
        nothing
            .stderr
            .contains("all 3 units are unchanged since they last succeeded; --full"),
        "{nothing:?}"
    );
    assert_eq!(
        fs::read_dir(place.path(".ktx/ingestdeck/runs"))
            .unwrap()
            .count(),
        2,
        "nothing to run creates no run"
    );
}

#[test]
fn unit_selected_by_name_is_planned_again() {
    let place = TestDir::new();
    place.notes(&["good", "other"]);
    run(&place, SCRIPT, &[]).expect_success();
    assert_eq!(
        planned(&place, &["--only", "docs-good"]),
        pairs(&[("docs-good", "unchanged, asked for by name")])
    );
    assert_eq!(
        planned(&place, &["--only", "docs-*"]),
        [],
        "a pattern is not a name"
    );
    assert_eq!(planned(&place, &["--full", "--only", "*-other"]).len(), 1);
    assert_eq!(
        planned(&place, &["--full"]),
        pairs(&[
            ("docs-good", "unchanged, everything was asked for"),
            ("docs-other", "unchanged, everything was asked for")
        ])
    );
    assert_eq!(place.run(&["plan", "--only", "docs-none"]).code, Some(4));
    run(&place, SCRIPT, &["--only", "docs-good"]).expect_success();
    assert_eq!(planned(&place, &[]), []);
}

#[test]
fn failure_replans_files_that_had_succeeded() {
    let place = TestDir::new();
    place.notes(&["bad"]);
    run(&place, "[[part]]\nsteps = [{ say = \"read\" }]", &[]).expect_success();
    assert_eq!(planned(&place, &[]), []);
    assert_eq!(run(&place, SCRIPT, &["--full"]).code, Some(100));
    assert_eq!(
        planned(&place, &[]),
        pairs(&[("docs-bad", "failed last time")])
    );
}

#[test]
fn partial_run_leaves_the_rest_planned() {
    let place = TestDir::new();
    place.write(
        "ktx.yaml",
        "connections:\n  d: {driver: dbt, source_dir: d}\n",
    );
    place.write("d/dbt_project.yml", "name: x\n");
    for n in 0..30 {
        place.write(
            &format!("d/models/m{n:02}.yml"),
            format!("models: [{{name: m{n}}}]\n"),
        );
    }
    let script = "[[part]]\nsteps = [{ say = \"read\" }]";
    run(
        &place,
        script,
        &["--only", "dbt-models-m0*", "--concurrency", "4"],
    )
    .expect_success();
    let rest = planned(&place, &[]);
    assert!(
        rest.len() == 21 && rest.iter().all(|(_, why)| why == "new"),
        "{rest:?}"
    );
    run(&place, script, &["--concurrency", "4"]).expect_success();
    assert_eq!(planned(&place, &[]), []);
    place.write("d/dbt_project.yml", "name: y\n");
    assert_eq!(
        planned(&place, &[]),
        pairs(&[("dbt-project", "1 file modified")]),
        "no other unit refers to it"
    );
    let all = planned(&place, &["--neighbours"]);
    assert_eq!(
        (all.len(), all[0].1.as_str()),
        (31, "1 file around it changed")
    );
}

#[test]
fn failed_unit_does_not_plan_neighbours_that_succeeded() {
    let place = TestDir::new();
    place.write(
        "ktx.yaml",
        "connections:\n  d: {driver: dbt, source_dir: d}\n",
    );
    place.write("d/dbt_project.yml", "name: x\n");
    for n in 0..30 {
        place.write(
            &format!("d/models/m{n:02}.yml"),
            format!("models: [{{name: m{n}}}]\n"),
        );
    }
    let fails = SCRIPT.replace("docs-bad", "dbt-models-m07");
    assert_eq!(run(&place, &fails, &["--concurrency", "4"]).code, Some(100));
    assert_eq!(
        planned(&place, &[]),
        pairs(&[("dbt-models-m07", "failed last time")])
    );
    place.write("d/models/m03.yml", "models: [{name: other}]\n");
    let changed = [
        ("dbt-models-m03", "1 file modified"),
        ("dbt-models-m07", "failed last time"),
    ];
    assert_eq!(planned(&place, &[]), pairs(&changed));
    let all = planned(&place, &["--neighbours"]);
    assert_eq!(
        (all.len(), all[3].1.as_str(), all[7].1.as_str()),
        (31, "1 file modified", "failed last time")
    );
    assert_eq!(
        all[0].1, "1 file around it changed",
        "the file of the failed unit did not change"
    );
    assert_eq!(
        run(&place, &fails, &["--neighbours", "--concurrency", "4"]).code,
        Some(100)
    );
    assert_eq!(
        planned(&place, &[]),
        pairs(&[("dbt-models-m07", "failed last time")])
    );
    run(&place, READS, &[]).expect_success();
    assert_eq!(planned(&place, &[]), []);
}

#[test]
fn model_of_another_connection_is_in_plan_and_report() {
    let place = TestDir::new();
    let settings =
        "{driver: lookml, source_dir: looks, mappings: {expectedLookerConnectionName: db}}";
    place.write("ktx.yaml", format!("connections:\n  looks: {settings}\n"));
    place.write(
        "looks/there.model.lkml",
        "connection: \"snow\"\nexplore: orders {}\n",
    );
    let sentence =
        "model there declares connection `snow`, not the expected `db`: its unit writes no sources";
    let plan = place.run(&["plan"]);
    assert!(
        plan.expect_success().contains("lookml-there") && plan.stderr.contains(sentence),
        "{plan:?}"
    );
    run(&place, READS, &[]).expect_success();
    let report = place.run(&["report", "--format", "md"]);
    assert!(
        report.expect_success().replace('\\', "").contains(sentence),
        "{report:?}"
    );
}

const READS: &str = "[[part]]\nsteps = [{ say = \"read\" }]";

fn keys(planned: &[(String, String)]) -> Vec<&str> {
    planned.iter().map(|(key, _)| key.as_str()).collect()
}

/// The lines about the connections: `CONNECTION +ADDED/~MODIFIED/-DELETED/=UNCHANGED`, and how many units run why.
fn counts(place: &TestDir) -> String {
    let ran = place.run(&["plan"]);
    let lines = ran
        .expect_success()
        .lines()
        .filter(|line| line.contains(" +") && line.contains("/~"));
    lines.map(str::to_owned).collect::<Vec<_>>().join("\n")
}

#[test]
fn files_of_a_failed_unit_are_no_changes() {
    let place = TestDir::new();
    place.notes(&["good", "bad", "other"]);
    assert_eq!(counts(&place), "notes +3/~0/-0/=0");
    assert_eq!(run(&place, SCRIPT, &["--only", "docs-bad"]).code, Some(100));
    assert_eq!(
        counts(&place),
        "notes +2/~0/-0/=1, 2 units changed, 1 unit runs again",
        "others never ran"
    );
    run(&place, SCRIPT, &[]);
    assert_eq!(
        counts(&place),
        "notes +0/~0/-0/=3, 1 unit runs again, 2 units unchanged"
    );
    place.write("notes/bad.md", "# bad, revised\n");
    let changed = counts(&place);
    assert!(
        changed.contains("+1/~0/-0/=2") || changed.contains("+0/~1/-0/=2"),
        "{changed}"
    );
}

/// Files of a MetricFlow project of which no unit reads the models of dbt.
#[test]
fn files_in_no_unit_are_named_and_never_counted() {
    let place = TestDir::new();
    place.write(
        "ktx.yaml",
        "connections:\n  mf:\n    driver: metricflow\n    source_dir: mf\n",
    );
    let model = "semantic_models:\n  - name: orders\n    model: ref('orders')\n    measures:\n      - name: total\n        agg: sum\n";
    place.write("mf/orders.yml", model);
    let dbt = |about: &str| format!("models:\n  - name: metrics\n    description: {about}\n");
    place.write("mf/dbt.yml", dbt("one"));
    assert_eq!(counts(&place), "mf +1/~0/-0/=0");
    let named = "YAML without semantic models, metrics with a known type, saved queries and time spines is in no unit: dbt.yml";
    let warned = place.run(&["plan"]).stderr;
    assert_eq!(warned.matches(named).count(), 1, "{warned}");
    place.write("mf/dbt.yml", dbt("two"));
    assert_eq!(counts(&place), "mf +1/~0/-0/=0");

    for n in 1..8 {
        place.write(&format!("mf/ci{n}.yml"), "x: 1\n");
    }
    let warned = place.run(&["plan", "--ui", "json"]);
    assert!(warned.stderr.contains("and 3 more"), "{warned:?}");
    let all = warned.stdout.lines().last().unwrap_or_default();
    let all: Value = serde_json::from_str(all).unwrap();
    assert_eq!(all["files"].as_array().map(Vec::len), Some(8), "{all}");
    // What a unit of another connection reads is not missed.
    let both = "connections:\n  mf: {driver: metricflow, source_dir: mf}\n  d: {driver: dbt, source_dir: mf}\n";
    place.write("ktx.yaml", both);
    place.write("mf/dbt_project.yml", "name: x\n");
    let warned = place.run(&["plan", "--ui", "json"]);
    let all = warned
        .stdout
        .lines()
        .filter(|line| line.contains("\"files\""));
    let all: Vec<&str> = all.collect();
    assert_eq!(all.len(), 2, "{warned:?}");
    assert!(!all.concat().contains("dbt.yml"), "{all:?}");
}

/// Files that older versions read and this one does not are neither changes nor deleted.
#[test]
fn excluded_folder_is_no_deletion() {
    let place = TestDir::new();
    place.write(
        "ktx.yaml",
        "connections:\n  d: {driver: dbt, source_dir: d}\n",
    );
    place.write("d/dbt_project.yml", "name: x\nmodel-paths: [models, lib]\n");
    place.write(
        "d/models/a.yml",
        "models: [{name: a, description: \"{{ doc('lib') }}\"}]\n",
    );
    place.write("d/lib/b.yml", "models: [{name: lib}]\n");
    run(&place, READS, &[]).expect_success();
    place.write("d/dbt_project.yml", "name: x\npackages-install-path: lib\n");
    assert_eq!(counts(&place), "d +0/~1/-0/=1");
    fs::remove_file(place.path("d/lib/b.yml")).unwrap();
    assert_eq!(counts(&place), "d +0/~1/-1/=1");
}

#[test]
fn units_sharing_a_file_with_a_single_run_stay_planned() {
    let place = TestDir::new();
    place.write(
        "ktx.yaml",
        "connections:\n  m: {driver: manifest, path: m/units.jsonl}\n",
    );
    place.write("m/a.md", "# a\n");
    place.write("m/b.md", "# b\n");
    // The third unit has its own raw file and depends on the shared one.
    let units = r#"{"unitKey":"x","rawFiles":["a.md"]}
{"unitKey":"y","rawFiles":["a.md"]}
{"unitKey":"z","rawFiles":["b.md"],"dependencyPaths":["a.md"]}
"#;
    place.write("m/units.jsonl", units);
    run(&place, READS, &["--only", "x"]).expect_success();
    let left = planned(&place, &[]);
    assert!(
        keys(&left).contains(&"y") && keys(&left).contains(&"z"),
        "{left:?}"
    );
    run(&place, READS, &[]).expect_success();
    assert_eq!(planned(&place, &[]), []);
    // The same with a file that is not new.
    place.write("m/a.md", "# a, and more\n");
    let [x, y, z] = [
        ("x", "1 file modified"),
        ("y", "1 file modified"),
        ("z", "refers to a change: a.md"),
    ];
    assert_eq!(planned(&place, &[]), pairs(&[x, y, z]));
    run(&place, READS, &["--only", "x"]).expect_success();
    assert_eq!(planned(&place, &[]), pairs(&[y, z]));
    run(&place, READS, &["--only", "y"]).expect_success();
    assert_eq!(
        planned(&place, &[]),
        pairs(&[z]),
        "both units of the file succeeded, each in another run"
    );
    run(&place, READS, &[]).expect_success();
    assert_eq!(planned(&place, &[]), []);
    // The index can be deleted, because it is rebuilt from the tapes.
    fs::remove_file(place.path(".ktx/ingestdeck/db.sqlite")).unwrap();
    place.run(&["runs", "reindex"]).expect_success();
    assert_eq!(planned(&place, &[]), []);
}

#[test]
fn page_parts_stay_planned_until_all_succeed() {
    let place = TestDir::new();
    place.write(
        "ktx.yaml",
        "connections:\n  n: {driver: notion, source_dir: n}\n",
    );
    place.write("n/pages/long/metadata.json", r#"{"title":"Long"}"#);
    let section = |n: usize| {
        format!(
            "# Part {n}\n\n{}\n\n",
            "A sentence that fills the page. ".repeat(400)
        )
    };
    place.write(
        "n/pages/long/page.md",
        (0..8).map(section).collect::<String>(),
    );
    let all = planned(&place, &[]);
    assert!(all.len() > 1, "{all:?}");
    run(&place, READS, &["--only", &all[0].0]).expect_success();
    let left = planned(&place, &[]);
    assert!(
        keys(&all[1..]).iter().all(|key| keys(&left).contains(key)),
        "{left:?}"
    );
}

#[test]
fn repaired_failure_is_not_planned_again() {
    let place = TestDir::new();
    place.write(
        "ktx.yaml",
        "connections:\n  d: {driver: dbt, source_dir: d}\n",
    );
    place.write("d/dbt_project.yml", "name: x\n");
    for n in 0..30 {
        place.write(
            &format!("d/models/m{n:02}.yml"),
            format!("models: [{{name: m{n}}}]\n"),
        );
    }
    let bad = "[[part]]\nunit = \"dbt-models-m07*\"\nsteps = [{ deny = { tool = \"Bash\", with = { command = \"ls\" } } }]\n";
    let bad = bad.to_owned() + READS;
    assert_eq!(run(&place, &bad, &["--concurrency", "4"]).code, Some(100));
    // A third run that fails: the successes of the first run still count.
    assert_eq!(run(&place, &bad, &["--failed"]).code, Some(100));
    run(&place, READS, &["--failed"]).expect_success();
    assert_eq!(planned(&place, &[]), []);

    // A success does not count where other files changed since.
    assert_eq!(
        run(&place, &bad, &["--full", "--concurrency", "4"]).code,
        Some(100)
    );
    place.write(
        "d/models/m01.yml",
        "models: [{name: m1, description: new}]\n",
    );
    run(&place, READS, &["--failed"]).expect_success();
    assert!(
        keys(&planned(&place, &[])).contains(&"dbt-models-m01"),
        "{:?}",
        planned(&place, &[])
    );
}

#[test]
fn units_read_the_files_as_they_were_when_the_run_began() {
    let place = TestDir::new();
    place.notes(&["good"]);
    let source = place.path("notes/good.md");
    let script = r#"[[part]]
steps = [{ call = { tool = "read_raw_file", with = { path = "good.md" } } }, { say = "read" }]"#;
    // The agent's program changes the source before the agent starts.
    let claude = place.scripted_claude(script);
    let text = fs::read_to_string(&claude).unwrap();
    let meddling = text.replacen(
        "exec ",
        &format!("echo meddled > '{}'\nexec ", source.display()),
        1,
    );
    fs::write(&claude, meddling).unwrap();
    let ran = place.run(&[
        "run",
        "--claude-bin",
        claude.to_str().unwrap(),
        "--ui",
        "none",
    ]);
    ran.expect_success();
    assert_eq!(fs::read_to_string(&source).unwrap(), "meddled\n");
    let tape = fs::read_dir(place.path(".ktx/ingestdeck/runs"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let tape = fs::read_to_string(tape.join("tape.jsonl")).unwrap();
    assert!(
        tape.contains("# good") && !tape.contains("meddled"),
        "the unit read the planned content"
    );
    assert_eq!(
        planned(&place, &[]),
        pairs(&[("docs-good", "1 file modified")])
    );

    let entries: Vec<Value> = tape
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let read = &entries
        .iter()
        .find(|entry| entry["note"]["kind"] == "source_read")
        .unwrap()["note"];
    assert_eq!(
        read["files"][0]["sha256"],
        "0aac26aac5954c003aafda0c973840f2a4970fbca8101369094138e1e47ce9d8"
    );
    let staged = place.path(read["staged"].as_str().unwrap());
    assert_eq!(
        fs::read_to_string(staged.join("good.md")).unwrap(),
        "# good\n"
    );
    assert_eq!(
        fs::read_to_string(place.path(".ktx/cache/local-ingest/.gitignore")).unwrap(),
        "*\n"
    );
}

#[test]
fn stale_run_copies_are_removed_and_foreign_ones_kept() {
    let place = TestDir::new();
    place.notes(&["good"]);
    let foreign = place.write(".ktx/cache/local-ingest/local-theirs/upload/x", "x");
    for _ in 0..6 {
        run(&place, SCRIPT, &["--full"]).expect_success();
    }
    let copies = fs::read_dir(place.path(".ktx/cache/local-ingest")).unwrap();
    let copies = copies
        .filter(|entry| entry.as_ref().unwrap().path().is_dir())
        .count();
    assert_eq!(
        copies,
        1 + 3 + 1,
        "the foreign one, the last three, and the newest"
    );
    assert!(foreign.exists());
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn units_wider_than_their_turns_are_warned_about() {
    let place = TestDir::new();
    let settings =
        "connections:\n  f: {driver: fake, source_dir: f}\ningest: {workUnits: {stepBudget: 3}}\n";
    place.write("ktx.yaml", settings);
    for n in 0..5 {
        place.write(&format!("f/many/{n}.txt"), "text\n");
    }
    place.write("f/long/a.txt", "line of text\n".repeat(12_000));
    place.write("f/short/a.txt", "text\n");
    let many = "unit fake-many might need more than 3 turns: reading its 5 files (25 B) takes 5 calls; raise \
                ingest.workUnits.stepBudget in ktx.yaml";
    let table = place.run(&["plan"]);
    table.expect_success();
    assert!(
        table.stderr.contains(&format!("warning: {many}\n")),
        "{table:?}"
    );
    assert!(
        table
            .stderr
            .contains("unit fake-long might need more than 3 turns: reading its 1 file ("),
        "{table:?}"
    );
    assert!(!table.stderr.contains("fake-short"), "{table:?}");
    let json = place.run(&["plan", "--ui", "json"]);
    let objects: Vec<Value> = json
        .expect_success()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let warnings = |unit: &str| {
        &objects
            .iter()
            .find(|object| object["unit"] == unit)
            .unwrap()["warnings"]
    };
    assert_eq!(warnings("fake-many"), &json!([many]));
    assert_eq!(warnings("fake-short"), &Value::Null);
    place.write(
        "ktx.yaml",
        settings.replace("stepBudget: 3", "stepBudget: 5"),
    );
    let enough = place.run(&["plan"]);
    enough.expect_success();
    assert!(!enough.stderr.contains("may not be done"), "{enough:?}");
}

#[test]
fn many_wide_units_are_warned_about_in_part() {
    let place = TestDir::new();
    let settings =
        "connections:\n  f: {driver: fake, source_dir: f}\ningest: {workUnits: {stepBudget: 1}}\n";
    place.write("ktx.yaml", settings);
    for n in 0..12 {
        place.write(&format!("f/d{n:02}/a.txt"), "text\n");
        place.write(&format!("f/d{n:02}/b.txt"), "text\n");
    }
    let ran = place.run(&["plan"]);
    ran.expect_success();
    assert_eq!(
        ran.stderr.matches("might need more than 1 turn: ").count(),
        10,
        "{ran:?}"
    );
    assert!(
        ran.stderr
            .contains("warning: 2 more warnings about the size of units\n"),
        "{ran:?}"
    );
}

#[test]
fn unit_that_fills_a_context_is_warned_about() {
    let place = TestDir::new();
    place.write(
        "ktx.yaml",
        "connections:\n  f: {driver: fake, source_dir: f}\n",
    );
    place.write("f/large/a.txt", "text text ".repeat(50_000));
    place.write("f/small/a.txt", "text text\n".repeat(5_000));
    let ran = place.run(&["plan"]);
    ran.expect_success();
    let warnings: Vec<&str> = ran
        .stderr
        .lines()
        .filter(|line| line.contains(" tokens, more than ingest.max_unit_share"))
        .collect();
    assert_eq!(warnings.len(), 1, "{ran:?}");
    assert!(
        warnings[0].contains("fake-large has 488.3 KB of files, about 125.0k tokens"),
        "{ran:?}"
    );
}

#[test]
fn index_larger_than_a_prompt_is_warned_about_once() {
    let place = TestDir::new();
    place.notes(&["a", "b", "c"]);
    let page = |n: usize| {
        format!(
            "---\nsummary: {}\n---\n\nText.\n",
            format!("page {n} ").repeat(20)
        )
    };
    for n in 0..200 {
        place.write(&format!("wiki/global/page-{n:04}.md"), page(n));
    }
    assert!(
        !place.run(&["plan"]).stderr.contains("the wiki has"),
        "all of them fit"
    );
    for n in 200..1_300 {
        place.write(&format!("wiki/global/page-{n:04}.md"), page(n));
    }
    let warning = "warning: the wiki has 1300 pages, more than a prompt can list: each unit sees a part of them \
                   and finds the others with wiki_search\n";
    for ui in ["lines", "json"] {
        let ran = place.run(&["plan", "--ui", ui]);
        ran.expect_success();
        assert_eq!(ran.stderr.matches(warning).count(), 1, "{ran:?}");
    }
    // The unit is small nevertheless.
    let project = Project::open(&place.path("")).unwrap();
    let unit = plan(&project, &UnitSelection::default())
        .unwrap()
        .units
        .remove(0);
    let (job, worktrees) = (
        IngestJob::new(Timestamp::UNIX_EPOCH),
        private_worktrees(&project.root),
    );
    let attempt = UnitAttempt::open(
        &project,
        (0, &unit),
        &job,
        1,
        PromptAmendment::Unchanged,
        &worktrees,
    )
    .unwrap();
    let chars = attempt.prompt().system.chars().count() + attempt.prompt().user.chars().count();
    assert!(chars < MAX_PROMPT_CHARS / 2, "{chars}");
}

#[test]
fn every_adapter_cuts_its_source() {
    let dir = tempfile::tempdir().unwrap();
    copy(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/projects/vineyard"),
        dir.path(),
    );
    let project = Project::open(dir.path()).unwrap();
    assert_eq!(project.warnings, []);
    let planned = plan(&project, &UnitSelection::default()).unwrap();
    let units: Vec<Value> = planned
        .units
        .iter()
        .map(|unit| json!({"planned": unit.planned, "notes": unit.notes, "peers": unit.peer_file_index}))
        .collect();
    let plan = json!({"units": units, "skipped": planned.skipped.iter().map(plan::UnplannedConnection::to_note).collect::<Vec<_>>(), "warnings": ingestdeck_core::diagnostic::to_lines(&planned.warnings)});
    insta::assert_snapshot!(
        "every_adapter",
        serde_json::to_string_pretty(&plan).unwrap()
    );
    let roots: Vec<PathBuf> = planned
        .units
        .iter()
        .map(|unit| unit.source_root.clone())
        .collect();
    for (unit, root) in planned.units.iter().zip(roots) {
        for path in unit
            .planned
            .raw_files
            .iter()
            .chain(&unit.planned.dependency_paths)
        {
            assert!(root.join(path).is_file(), "{path}");
        }
    }
}

/// Steps that write the page `key` and end.
fn writes(unit: &str, key: &str) -> String {
    format!(
        r#"
[[part]]
unit = "{unit}"
steps = [
  {{ call = {{ tool = "record_verification_ledger", with = {{ summary = "Read it." }} }} }},
  {{ call = {{ tool = "wiki_write", with = {{ key = "{key}", summary = "By {unit}", content = "Text of {unit}." }} }} }},
  {{ say = "Done." }},
]
"#
    )
}

fn repository(names: &[&str]) -> TestDir {
    let place = TestDir::new();
    place.notes(names);
    git(&place.path(""), &["init", "-q", "-b", "main"]);
    git(&place.path(""), &["add", "ktx.yaml", "notes"]);
    git(&place.path(""), &["commit", "-q", "-m", "sources"]);
    place
}

#[test]
fn ingest_commit_contains_its_raw_files() {
    let place = repository(&["good", "other"]);
    run(
        &place,
        &(writes("docs-good", "good") + &writes("docs-other", "other")),
        &["--no-reconcile"],
    )
    .expect_success();
    let subject = git(&place.path(""), &["log", "-1", "--format=%s"]);
    assert!(
        subject.trim_end().ends_with(" diff=+2/~0/-0/=0"),
        "{subject}"
    );
    let message = git(&place.path(""), &["log", "-1", "--format=%b"]);
    let sync = message
        .lines()
        .find_map(|line| line.strip_prefix("syncId="))
        .unwrap();
    let kept = |name: &str| format!("raw-sources/notes/docs/{sync}/{name}.md");
    let files = git(&place.path(""), &["diff", "--name-only", "HEAD^", "HEAD"]);
    assert_eq!(
        files.lines().collect::<Vec<_>>(),
        [
            kept("good").as_str(),
            &kept("other"),
            "wiki/global/good.md",
            "wiki/global/other.md"
        ]
    );
    assert_eq!(
        fs::read_to_string(place.path(&kept("good"))).unwrap(),
        "# good\n"
    );
    assert_eq!(
        git(
            &place.path(""),
            &["status", "--porcelain", "--untracked-files=no"]
        ),
        ""
    );

    place.write("notes/good.md", "# good, and more\n");
    place.write("notes/late.md", "# late\n");
    // The raw file of a unit that did not run is not in the commit.
    let only = ["--no-reconcile", "--only", "docs-good"];
    run(&place, &writes("docs-good", "more"), &only).expect_success();
    let subject = git(&place.path(""), &["log", "-1", "--format=%s"]);
    assert!(
        subject.trim_end().ends_with(" diff=+0/~1/-0/=1"),
        "{subject}"
    );
    let files = git(&place.path(""), &["diff", "--name-only", "HEAD^", "HEAD"]);
    assert_eq!(files.lines().count(), 2, "only changed files: {files}");
}

#[test]
fn unsaved_success_is_planned_again() {
    let place = repository(&["a", "b"]);
    // Two units that write the same page differently, so the second patch conflicts.
    let ran = run(
        &place,
        &(writes("docs-a", "same") + &writes("docs-b", "same")),
        &["--concurrency", "2"],
    );
    assert_eq!(ran.code, Some(100), "{ran:?}");
    assert_eq!(
        planned(&place, &[]),
        pairs(&[("docs-b", "failed last time")])
    );

    let place = repository(&["a", "b"]);
    let script = writes("docs-a", "page")
        + "[[part]]\nunit = \"docs-b\"\nsteps = [{ say = \"now\" }, \"hang\"]\n";
    let claude = place.scripted_claude(&script);
    let mut running = place.start(place.command(&[
        "run",
        "--ui",
        "lines",
        "--claude-bin",
        claude.to_str().unwrap(),
    ]));
    running.wait_for("stdout", "docs-a#1                 ✓ succeeded");
    running.wait_for("stdout", "docs-b#1                 ● session");
    running.signal(Signal::SIGKILL);
    assert_eq!(running.end().code, None);
    assert_eq!(
        planned(&place, &[]),
        pairs(&[
            ("docs-a", "what it wrote last time was not saved"),
            ("docs-b", "not finished last time")
        ])
    );
}
