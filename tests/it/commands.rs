//! Command-line behaviour: output on stdout and stderr, and exit codes.

use std::fs;

use serde_json::Value;

pub(crate) mod test_dir;

mod agents;
mod artifacts;
mod audit;
mod background_sessions;
mod bench;
mod branches;
mod broken;
mod committed_reviews;
mod continued_reviews;
mod continued_sessions;
mod ctl;
mod doctor;
mod end_to_end;
mod escapes;
mod evidence;
mod exports;
mod file_descriptors;
mod find;
mod gh_artifacts;
mod git_projects;
mod integration_ahead;
mod keys;
mod ktx_history;
mod messages;
mod nats_workers;
mod notifications;
mod projection;
mod prune;
mod reconcile;
mod records;
mod refused_starts;
mod reports;
mod resume;
mod reviews;
mod rules;
mod run_documents;
mod run_lists;
mod scheduled_runs;
mod sessions;
mod ssh_workers;
mod texts;
mod tools;
mod tracing;
mod unfinished;
mod unsaved_work;
pub(crate) mod verbatim;
mod verdicts;
mod watch;
pub(crate) mod why;
mod workers;

use self::test_dir::TestDir;

#[cfg(target_os = "linux")]
#[test]
fn help_that_cannot_be_written_is_an_error() {
    let place = TestDir::new();
    for words in [
        &["--help"][..],
        &["--version"],
        &["help"],
        &["run", "--help"],
    ] {
        let full = fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let ended = place.command(words).stdout(full).output().unwrap();
        assert_eq!(
            (ended.status.code(), ended.stderr.is_empty()),
            (Some(1), false),
            "{words:?}"
        );
    }
}

#[test]
fn help_lists_every_command() {
    let place = TestDir::new();
    for command in [
        "",
        "demo",
        "init",
        "plan",
        "run",
        "watch",
        "ctl",
        "replay",
        "session",
        "mcp",
        "report",
        "diff",
        "bench",
        "runs export",
        "runs",
        "runs show",
        "runs prune",
        "doctor",
        "config",
    ] {
        let mut words: Vec<&str> = command.split_whitespace().collect();
        words.push("-h");
        let help = place.run(&words);
        insta::assert_snapshot!(
            format!("help {command}").trim().replace(' ', "_"),
            help.expect_success()
        );
    }
}

#[test]
fn completions_and_man_pages_cover_every_command() {
    let place = TestDir::new();
    let commands = [
        "demo", "plan", "run", "step", "replay", "session", "mcp", "runs", "doctor", "config",
    ];
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = place.run(&["completions", shell]);
        let script = script.expect_success();
        assert!(
            commands.iter().all(|command| script.contains(command)),
            "{shell}"
        );
    }
    let page = place.run(&["man"]);
    let page = page.expect_success();
    assert!(
        page.contains(".TH ingestdeck 1") && commands.iter().all(|command| page.contains(command)),
        "{page}"
    );
    place.run(&["man", "--out", "pages"]).expect_success();
    let show = fs::read_to_string(place.path("pages/ingestdeck-runs-show.1")).unwrap();
    assert!(show.contains("ingestdeck runs show"), "{show}");
    let shown = |name: &str| place.path("pages").join(name).exists();
    assert!(
        shown("ingestdeck.1") && !shown("ingestdeck-screenshot.1") && !shown("ingestdeck-help.1")
    );
    fs::write(place.path("file"), "").unwrap();
    let refused = place.run(&["man", "--out", "file/pages"]);
    assert_eq!(
        (refused.code, refused.stdout.as_str()),
        (Some(1), ""),
        "{refused:?}"
    );
}

#[test]
fn init_names_one_unit_in_the_singular() {
    let place = TestDir::new();
    place.write("notes/one.md", "# A page\n");
    let made = place.run(&["init"]);
    assert!(
        made.expect_success()
            .ends_with("1 unit; `ingestdeck plan` lists it, `ingestdeck run` runs it\n"),
        "{made:?}"
    );
    assert!(
        !made.stdout.contains("warehouse"),
        "pages need none: {made:?}"
    );
}

#[test]
fn init_detects_sources_in_the_directory() {
    let place = TestDir::new();
    let refused = place.run(&["init", "."]);
    assert!(
        refused.expect_refusal(2).contains("holds no dbt project"),
        "{refused:?}"
    );
    place.write("warehouse/dbt_project.yml", "name: w\n");
    let program = place.path("missing/claude").display().to_string();
    let unusable = place.run(&["--claude-bin", &program, "init", "--probe"]);
    assert!(
        unusable
            .stderr
            .contains(&format!("there is no program {program}")),
        "{unusable:?}"
    );
    place.write("warehouse/models/schema.yml", "version: 2\n");
    place.write("bi/views/orders.view.lkml", "view: orders {}\n");
    place.write(
        "bi/dashboards/sales.dashboard.lookml",
        "- dashboard: sales\n",
    );
    for name in ["one", "two: \"#"] {
        place.write(&format!("notes: \"/{name}.md"), "# A page\n");
    }
    let made = place.run(&["init"]);
    insta::assert_snapshot!(made.expect_success().replace(&*place.path("").to_string_lossy(), "HERE/"), @r#"
    wrote HERE/ktx.yaml
      warehouse  dbt     warehouse
      bi         lookml  bi
      notes      docs    notes: "
    5 units; `ingestdeck plan` lists them, `ingestdeck run` runs them
    sources of the semantic layer need a connection to the warehouse; add it to connections in ktx.yaml, for example `db: {driver: postgres, url: "env:DATABASE_URL"}`
    "#);
    insta::assert_snapshot!(fs::read_to_string(place.path("ktx.yaml")).unwrap(), @r#"
    connections:
      warehouse:
        driver: dbt
        source_dir: "warehouse"
      bi:
        driver: lookml
        repoUrl: "file:bi"
    # KTX ignores this section with a warning: it refuses the drivers of these connections.
    ingestdeck:
      connections:
        notes:
          driver: docs
          source_dir: "notes: \""
          include:
            - "**/*.md"
            - "**/*.markdown"
            - "**/*.mdx"
            - "**/*.rst"
          exclude:
            - "**/{AGENTS,CLAUDE,SKILL}.md"
            - "**/{CHANGELOG[-.],CHANGES.}*"
            - "**/LICEN[CS]E[-.]*"
            - "**/dbt_packages/**"
            - "**/site-packages/**"
            - "**/third_party/**"
    llm:
      provider:
        backend: claude-code
      models:
        default: sonnet
    ingest:
      workUnits:
        stepBudget: 40
        maxConcurrency: 2
        failureMode: continue
    "#);
    let plan = place.run(&["plan", "--ui", "json"]);
    assert_eq!(plan.expect_success().lines().count(), 5, "{plan:?}");
    let again = place.run(&["init"]);
    assert!(
        again.expect_refusal(2).contains("already exists"),
        "{again:?}"
    );
    // Pages may be in the project directory itself. Pages that runs write do not become a source.
    let pages = TestDir::new();
    pages.write("pricing.md", "# Pricing\n");
    pages.write("README.md", "# About\n");
    let made = pages.run(&["init"]);
    assert!(
        made.expect_success()
            .contains("\n  docs  docs  .\n2 units; "),
        "{made:?}"
    );
    for path in [
        "wiki/global/pricing.md",
        "raw-sources/docs/docs/2026-11-22-100000-x/pricing.md",
    ] {
        pages.write(path, "# Pricing\n");
    }
    pages.write("more/deep.md", "# Deep\n");
    let plan = pages.run(&["plan"]);
    assert!(
        plan.expect_success().contains("docs-more-deep") && plan.stdout.contains("3 units planned"),
        "{plan:?}"
    );
    let nowhere = place.run(&["init", "no-such-directory"]);
    assert!(
        nowhere
            .expect_refusal(2)
            .contains("cannot read no-such-directory"),
        "{nowhere:?}"
    );
}

#[test]
fn init_makes_one_connection_of_a_looker_repository() {
    let block = TestDir::new();
    block.write(
        "block.model.lkml",
        "connection: \"x\"\ninclude: \"/views/**/*.view\"\nexplore: orders {}\n",
    );
    block.write("manifest.lkml", "project_name: \"block\"\n");
    block.write("views/core/orders.view.lkml", "view: orders {}\n");
    block.write("views/customers.view.lkml", "view: customers {}\n");
    block.write("dashboards/sales.dashboard.lookml", "- dashboard: sales\n");
    let made = block.run(&["init"]);
    assert!(
        made.expect_success()
            .contains("\n  lookml  lookml  .\n3 units; "),
        "{made:?}"
    );
    let standard = TestDir::new();
    standard.write(
        "models/shop.model.lkml",
        "connection: \"x\"\ninclude: \"/views/*.view\"\nexplore: orders {}\n",
    );
    standard.write("views/orders.view.lkml", "view: orders {}\n");
    standard.write("views/users.view.lkml", "view: users {}\n");
    let made = standard.run(&["init"]);
    assert!(
        made.expect_success()
            .contains("\n  lookml  lookml  .\n1 unit; "),
        "{made:?}"
    );
    let plan = standard.run(&["plan", "--ui", "json"]);
    let unit: Value = serde_json::from_str(plan.expect_success().trim()).unwrap();
    assert_eq!(
        (&unit["unit"], unit["rawFiles"].as_array().map(Vec::len)),
        (&"lookml-shop".into(), Some(3))
    );
}

#[test]
fn config_shows_every_default() {
    let place = TestDir::new();
    let shown = place.run(&["config", "show"]);
    insta::assert_snapshot!(shown.expect_success());
    assert_eq!(shown.stderr, "");
}

#[test]
fn config_shows_project_settings_with_their_lines() {
    let place = TestDir::new();
    place.write(
        "ktx.yaml",
        "llm:\n  models:\n    default: haiku\n    reconcile: opus\ningest: {rateLimit: {maxWaitMs: 5}}\n",
    );
    let shown = place.run(&["config", "show"]);
    let root = place.path("").canonicalize().unwrap();
    let lines: Vec<_> = shown
        .expect_success()
        .lines()
        .filter(|line| line.contains("llm.") || line.contains("Limit"))
        .collect();
    insta::assert_snapshot!(
        lines
            .join("\n")
            .replace(root.to_str().unwrap().trim_end_matches('/'), "PROJECT")
    );
}

#[test]
fn invalid_arguments_print_the_usage() {
    let place = TestDir::new();
    for words in [
        &[][..],
        &["bogus"],
        &["runs"],
        &["replay"],
        &["demo", "--speed", "fast"],
        &["plan", "--ui", "html"],
    ] {
        let ran = place.run(words);
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (Some(2), ""),
            "{words:?}: {ran:?}"
        );
        assert!(
            ran.stderr.contains("Usage: ingestdeck") || ran.stderr.contains("try '--help'"),
            "{words:?}: {ran:?}"
        );
    }
    for (words, sentence) in [
        (
            &["demo", "--speed", "0"][..],
            "invalid --speed `0`; expected a number above 0, such as 2",
        ),
        (
            &["demo", "--speed", "NaN"],
            "invalid --speed `NaN`; expected a number above 0, such as 2",
        ),
        (
            &["replay", "x.jsonl", "--speed", "inf"],
            "invalid --speed `inf`; expected a number above 0, such as 4, or max",
        ),
    ] {
        assert_eq!(place.run(words).expect_refusal(2), sentence);
    }
}

#[test]
fn plan_is_printed_as_table_and_as_json() {
    let place = TestDir::new();
    place.notes(&["one", "two"]);
    let table = place.run(&["plan"]);
    // The prompt has texts that change.
    let figures =
        regex_lite::Regex::new(r"[0-9]{4}  ~\$\S+ +|[0-9.]+k.* input tokens, ~\S+").unwrap();
    let table = figures.replace_all(table.expect_success(), "<figures> ");
    insta::assert_snapshot!(table, @r"
    unit          files      size   tokens  forecast                 why
    docs-one    1 file        6 B     <figures> new
    docs-two    1 file        6 B     <figures> new
    notes +2/~0/-0/=0
    no model is set (Claude Code's own choice)
    forecast: <figures>  at list prices from claude-sonnet-5-5 to claude-opus-5-5; from sizes, with a guess of the output
    no git repository: the changes of a run go through a private one and reach the project together
    2 units planned
    ");
    let objects = place.run(&["plan", "--ui", "json", "--only", "*-two"]);
    let object: Value = serde_json::from_str(objects.expect_success()).expect("one object");
    assert_eq!(object["unit"], "docs-two");
    assert_eq!(object["rawFiles"], serde_json::json!(["two.md"]));
    let keys: Vec<&String> = object.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "unit",
            "connection",
            "adapter",
            "rawFiles",
            "dependencyPaths",
            "why",
            "model",
            "bytes",
            "forecast",
            "changedFiles",
            "estimate"
        ]
    );
    assert_eq!(place.run(&["plan", "--ui", "none"]).expect_success(), "");
}

#[test]
fn project_is_found_from_subdirectory_and_by_name() {
    let place = TestDir::new();
    place.notes(&["one"]);
    fs::create_dir_all(place.path("deep/down")).unwrap();
    let mut below = place.command(&["plan"]);
    below.current_dir(place.path("deep/down"));
    assert!(
        place
            .ran(below)
            .expect_success()
            .ends_with("1 unit planned\n")
    );
    let elsewhere = tempfile::tempdir().unwrap();
    let mut named = place.command(&["plan", "--project-dir"]);
    named.arg(place.path("")).current_dir(elsewhere.path());
    assert!(
        place
            .ran(named)
            .expect_success()
            .ends_with("1 unit planned\n")
    );
    let mut variable = place.command(&["plan"]);
    variable
        .env("KTX_PROJECT_DIR", place.path(""))
        .current_dir(elsewhere.path());
    assert!(
        place
            .ran(variable)
            .expect_success()
            .ends_with("1 unit planned\n")
    );
}

#[test]
fn project_instructions_are_shown_and_invalid_ones_are_fatal() {
    let place = TestDir::new();
    place.notes(&["one"]);
    place.write(".ktx/prompts/work_unit.md", "Be brief.\n");
    place.write(
        ".ktx/canonical-pins.yaml",
        "arr: annual-recurring-revenue\n",
    );
    let brought = "prompt work_unit from .ktx/prompts/work_unit.md instead of the program's";
    assert!(place.run(&["plan"]).expect_success().contains(brought));
    assert!(
        place
            .run(&["config", "show"])
            .expect_success()
            .contains(&format!("# {brought}\n# 1 canonical pin from "))
    );
    let claude = place.scripted_claude("[[part]]\nsteps = [{ say = \"done\" }]");
    let claude = claude.to_str().unwrap();
    assert_eq!(place.run(&["run", "--claude-bin", claude]).code, Some(0));
    let run = place
        .path(".ktx/ingestdeck/runs")
        .read_dir()
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let tape = fs::read_to_string(run.join("tape.jsonl")).unwrap();
    assert!(
        tape.contains("Be brief.\\n<pre_write_verification>"),
        "the prompt that was sent"
    );
    assert!(
        tape.contains("- arr -> annual-recurring-revenue"),
        "the pins"
    );
    assert!(
        tape.contains(&format!("\"instructions\":[\"{brought}\",")),
        "{tape}"
    );

    place.write(".ktx/skills/house/SKILL.md", "no frontmatter");
    for command in [
        &["plan"][..],
        &["run", "--claude-bin", claude],
        &["config", "show"],
    ] {
        let sentence = place.run(command).expect_refusal(2).to_owned();
        assert!(
            sentence.starts_with(".ktx/skills/house/SKILL.md does not start with frontmatter"),
            "{sentence}"
        );
    }
}
