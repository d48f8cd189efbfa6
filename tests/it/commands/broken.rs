//! Missing, invalid, unusual or hostile input: one sentence with the remedy, the documented exit code, and no panic.

use std::fs;

use serde_json::Value;

use super::test_dir::{CommandOutput, TestDir};

const NOTES: &str = "connections: {notes: {driver: docs, source_dir: notes}}\n";

#[test]
fn unusable_project_is_refused() {
    let place = TestDir::new();
    for command in ["plan", "run"] {
        let ran = place.run(&[command]);
        let sentence = ran.expect_refusal(2);
        assert!(
            sentence.ends_with(
                "has no ktx.yaml; go to your project, name it with --project-dir, or let `ingestdeck init` write one"
            ),
            "{sentence}"
        );
    }
    let mut empty = place.command(&["plan"]);
    empty.env("KTX_PROJECT_DIR", "");
    let ran = place.ran(empty);
    assert!(
        ran.expect_refusal(2)
            .starts_with("KTX_PROJECT_DIR is set but empty; unset it"),
        "{ran:?}"
    );
    for (yaml, line, remedy) in [
        (
            &b"connections: ["[..],
            "line 1 column 14, at `connections: …`",
            "close it with `]`",
        ),
        (b"a: b\nconnections: 3", "line 2", "must be a map"),
        (b"- a\n- b\n", "line 1", "map"),
        (b"\xff\xfe\x00", "line 1", "save it as UTF-8"),
    ] {
        place.write("ktx.yaml", yaml);
        for command in ["plan", "run"] {
            let ran = place.run(&[command]);
            let sentence = ran.expect_refusal(2);
            assert!(
                sentence.contains("ktx.yaml")
                    && sentence.contains(line)
                    && sentence.contains(remedy),
                "{sentence}"
            );
        }
        let doctor = place.run(&["doctor"]);
        assert_eq!(doctor.code, Some(96));
        assert!(
            doctor.stdout.contains("FAIL") && doctor.stdout.contains(remedy),
            "{doctor:?}"
        );
        let json = place.run(&["doctor", "--ui", "json"]);
        let checks: Vec<Value> = json
            .stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert!(
            checks
                .iter()
                .all(|check| check["v"] == 1 && check["check"].is_string()),
            "{checks:?}"
        );
        let failed = checks
            .iter()
            .find(|check| check["result"] == "fail")
            .expect("a failed check");
        assert!(
            failed["text"].as_str().unwrap().contains(remedy),
            "{failed}"
        );
        assert_eq!(json.code, Some(96));
    }
}

#[test]
fn invalid_keys_backends_and_connections_are_refused() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let yaml = fs::read_to_string(place.path("ktx.yaml")).unwrap();
    place.write("ktx.yaml", format!("{yaml}  modles: {{}}\n"));
    let ran = place.run(&["plan"]);
    assert!(ran.expect_success().ends_with("1 unit planned\n"));
    assert!(
        ran.stderr
            .contains("unknown key `llm.modles` is ignored; did you mean `models`?"),
        "{ran:?}"
    );

    let units = "ingest:\n  workUnits: {stepBudget: many, maxConcurrency: 0}\n";
    place.write("ktx.yaml", format!("{yaml}  modles: {{}}\n{units}"));
    let ran = place.run(&["plan"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    for part in [
        "warning: ktx.yaml line 8: unknown key `llm.modles` is ignored; did you mean `models`?\n",
        "stepBudget must be a whole number, 1 or more, not `many`; line 10: ingest.workUnits.maxConc",
    ] {
        assert!(ran.stderr.contains(part), "{part}: {ran:?}");
    }
    let found = examined(&place);
    let note = |(_, result, text): &(String, String, String)| {
        result == "note" && text.contains("unknown key `llm.modles`")
    };
    assert!(found.iter().any(note), "{found:?}");

    place.write(
        "ktx.yaml",
        format!("{NOTES}llm: {{provider: {{backend: anthropic}}}}\n"),
    );
    let ran = place.run(&["run"]);
    let sentence = ran.expect_refusal(2);
    assert!(
        sentence.contains("`anthropic`") && sentence.contains("set it to `claude-code`"),
        "{sentence}"
    );
    let plan = place.run(&["plan"]);
    assert!(
        plan.expect_success().ends_with("1 unit planned\n"),
        "{plan:?}"
    );
    assert!(
        plan.stderr.contains("warning: ") && plan.stderr.contains("set it to `claude-code`"),
        "{plan:?}"
    );

    place.write(
        "ktx.yaml",
        "connections: {gone: {driver: docs, source_dir: nowhere}, bi: {driver: metabase}}\n",
    );
    let ran = place.run(&["plan"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let fault = "nothing is planned:\n  connection gone is skipped: its directory ";
    assert!(
        ran.stderr.contains(fault) && ran.stderr.contains("correct source_dir in ktx.yaml"),
        "{ran:?}"
    );
    assert_eq!(ran.stdout, "0 units planned\n");
    assert!(
        ran.stderr
            .contains("\n  connection bi is skipped: there is no adapter for driver `metabase`"),
        "{ran:?}"
    );
    assert!(
        place
            .run(&["run", "--ui", "json"])
            .expect_refusal(2)
            .contains(fault)
    );
    assert!(
        place
            .run(&["plan", "--ui", "json"])
            .expect_refusal(2)
            .contains(fault)
    );

    // Settings that are valid for KTX are not an error, but produce no units either.
    let notion = "pages: {driver: notion, auth_token_ref: env:X}";
    let ours = format!(
        "connections: {{bi: {{driver: metabase}}, {notion}, far: {{driver: dbt, repo_url: https://h/x}}}}\n"
    );
    place.write("ktx.yaml", ours);
    let ran = place.run(&["plan"]);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (Some(2), "0 units planned\n"),
        "{ran:?}"
    );
    let found = examined(&place);
    let failed: Vec<_> = found
        .iter()
        .filter(|(_, result, _)| result == "fail")
        .map(|(.., text)| text)
        .collect();
    assert!(
        failed.len() == 2
            && failed[0].ends_with("3 connections, none of which has units")
            && failed[1].contains(
                "`https://h/x` is not on this machine yet; to allow it, write `allow_git ="
            ),
        "{found:?}"
    );
    place.write(
        "ktx.yaml",
        format!("connections: {{{notion}, notes: {{driver: docs, source_dir: notes}}}}\n"),
    );
    let ran = place.run(&["plan"]);
    assert!(
        ran.expect_success()
            .ends_with("stage them, and name their folder as source_dir\n"),
        "{ran:?}"
    );
    for (broken, remedy) in [
        (
            "driver: docs, source_dir: ~/notes",
            "does not exist; correct source_dir in ktx.yaml: `~` and variables are not expanded",
        ),
        (
            "driver: sqlite",
            "it is a database and names no file; give it a path",
        ),
        (
            "driver: lookml, source_dir: notes",
            "holds no .lkml or .lookml file; point source_dir at a folder that does",
        ),
    ] {
        place.write("ktx.yaml", format!("connections: {{x: {{{broken}}}}}\n"));
        let ran = place.run(&["run"]);
        assert!(ran.expect_refusal(2).ends_with(remedy), "{ran:?}");
    }
}

/// Checks of `doctor` about the project, which has no `claude`.
fn examined(place: &TestDir) -> Vec<(String, String, String)> {
    let ran = place.run(&["doctor", "--ui", "json"]);
    assert_eq!(ran.code, Some(96), "{ran:?}");
    let checks = ran
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let text = |check: &Value, key: &str| check[key].as_str().unwrap().to_owned();
    let of_project = |check: &Value| {
        matches!(
            text(check, "check").as_str(),
            "project" | "connection" | "runs"
        )
    };
    checks
        .filter(of_project)
        .map(|check| {
            (
                text(&check, "check"),
                text(&check, "result"),
                text(&check, "text"),
            )
        })
        .collect()
}

#[test]
fn broken_connection_does_not_stop_the_others() {
    let place = TestDir::new();
    place.write("notes/one.md", "# one\n");
    place.write(
        "ktx.yaml",
        "connections:\n  notes: {driver: docs, source_dir: notes}\n  typo: {driver: dtb, source_dir: notes}\n  gone: {driver: docs, source_dir: note}\n  bare: {source_dir: notes}\n  wh: {driver: postgres}\nlmm: {}\n",
    );
    let ran = place.run(&["plan", "--ui", "json"]);
    assert_eq!(ran.expect_success().lines().count(), 1, "{ran:?}");
    for warning in [
        "warning: connection typo is skipped: unknown driver `dtb`; did you mean `dbt`?",
        "warning: connection gone is skipped: its directory ",
        "warning: connection bare is skipped: it names no driver; give it one of dbt, lookml,",
    ] {
        assert!(ran.stderr.contains(warning), "{warning}: {ran:?}");
    }
    let found = examined(&place);
    let result_of = |text: &str| {
        let found = found.iter().find(|(.., found)| found.contains(text));
        found.map(|(check, result, _)| (check.as_str(), result.as_str()))
    };
    assert_eq!(
        result_of("unknown key `lmm` is ignored; did you mean `llm`?"),
        Some(("project", "note"))
    );
    assert_eq!(
        result_of("connection notes gives 1 unit"),
        Some(("connection", "ok"))
    );
    assert_eq!(
        result_of("did you mean `dbt`?"),
        Some(("connection", "fail"))
    );
    assert_eq!(
        result_of("correct source_dir in ktx.yaml"),
        Some(("connection", "fail"))
    );
    assert_eq!(
        result_of("connection bare is skipped"),
        Some(("connection", "fail"))
    );
    assert_eq!(
        result_of("connection wh: your settings do not allow `postgres` yet"),
        Some(("connection", "warn"))
    );
}

#[test]
fn database_without_adapter_is_a_target_and_not_skipped() {
    let place = TestDir::new();
    place.write("notes/one.md", "# one\n");
    let settings =
        "connections:\n  notes: {driver: docs, source_dir: notes}\n  wh: {driver: postgres}\n";
    place.write("ktx.yaml", settings);
    let plan = place.run(&["plan"]);
    let line = "connection wh is a database (driver `postgres`) without files; units write sources for it\n";
    let warning = "warning: nothing can be checked against `wh`: ";
    assert!(
        plan.expect_success().ends_with(line)
            && plan.stderr.starts_with(warning)
            && !plan.stderr.contains("skipped"),
        "{plan:?}"
    );
    let claude = place.scripted_claude("[[part]]\nsteps = [{ say = \"read\" }]");
    let ran = place.run(&[
        "run",
        "--claude-bin",
        claude.to_str().unwrap(),
        "--ui",
        "lines",
    ]);
    assert!(
        !ran.expect_success().contains("connection wh") && !ran.stderr.contains("connection wh"),
        "{ran:?}"
    );
    place.write("ktx.yaml", "connections:\n  wh: {driver: postgres}\n");
    let nothing = place.run(&["plan"]);
    assert_eq!(nothing.code, Some(2), "{nothing:?}");
    assert!(
        nothing
            .stderr
            .contains("nothing is planned: connection wh is a database"),
        "{nothing:?}"
    );
}

#[test]
fn project_without_connections_gets_a_hint() {
    let place = TestDir::new();
    for yaml in [
        "",
        "# later\n",
        "connections: {}\n",
        "llm: {provider: {backend: claude-code}}\n",
    ] {
        place.write("ktx.yaml", yaml);
        for command in ["plan", "run"] {
            let ran = place.run(&[command]);
            let sentence = ran.expect_refusal(2);
            let message = "ktx.yaml names no connections, so there is nothing to ingest; add one, as in `ingestdeck: {connections: {notes:";
            assert!(sentence.contains(message), "{sentence}");
        }
        assert!(
            examined(&place)
                .iter()
                .any(|(.., text)| text.contains("names no connections"))
        );
    }
    let nowhere = place.run(&["doctor", "--project-dir", "nowhere"]);
    assert!(
        nowhere.stdout.contains("FAIL") && nowhere.stdout.contains("nowhere has no ktx.yaml"),
        "{nowhere:?}"
    );
}

#[test]
fn selection_without_match_is_an_error() {
    let place = TestDir::new();
    place.notes(&["one"]);
    for command in ["plan", "run"] {
        let ran = place.run(&[command, "--only", "two*"]);
        assert_eq!(
            ran.expect_refusal(4),
            "no unit matches `two*`; name one of the units: docs-one"
        );
        let ran = place.run(&[command, "nosuch"]);
        assert_eq!(
            ran.expect_refusal(4),
            "ktx.yaml has no connection `nosuch`; name one of its connections: notes"
        );
        let ran = place.run(&[command, "--only", "["]);
        assert!(
            ran.expect_refusal(2)
                .starts_with("`[` is not a valid pattern"),
            "{ran:?}"
        );
    }
    let ran = place.run(&["run", "--model", " "]);
    assert_eq!(
        ran.expect_refusal(2),
        "--model names no model; give one, as in `--model sonnet`"
    );
    let ran = place.run(&["run", "--concurrency", "0"]);
    assert_eq!(
        ran.expect_refusal(2),
        "invalid --concurrency `0`; expected 1 or more; to run units on workers only, name them with --worker or --nats"
    );
}

#[test]
fn missing_old_and_logged_out_claude_are_refused() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let without = |programs: &[&str]| {
        let mut command = place.command(&["run"]);
        let bin = place.path(&format!("../bin-{}", programs.len()));
        fs::create_dir(&bin).unwrap();
        programs.iter().for_each(|name| {
            std::os::unix::fs::symlink(format!("/usr/bin/{name}"), bin.join(name)).unwrap()
        });
        command.env("PATH", bin);
        place.ran(command)
    };
    let ran = without(&[]);
    assert_eq!(
        ran.expect_refusal(2),
        "git is not on the PATH, and every run needs it; install git"
    );
    let ran = without(&["git"]);
    let sentence = ran.expect_refusal(96);
    assert!(
        sentence.contains("`npm install -g @anthropic-ai/claude-code`"),
        "{sentence}"
    );
    let run =
        |claude: &std::path::Path| place.run(&["run", "--claude-bin", claude.to_str().unwrap()]);
    let ran = run(&place.path("nowhere/claude"));
    assert!(ran.expect_refusal(96).contains("npm install"), "{ran:?}");
    assert!(
        run(&place.path("ktx.yaml"))
            .expect_refusal(96)
            .contains("/ktx.yaml cannot be executed; install it")
    );
    let ran = run(&place.script("old", "echo '2.1.100 (Claude Code)'"));
    assert!(
        ran.expect_refusal(96)
            .starts_with("claude 2.1.100 is too old"),
        "{ran:?}"
    );
    let ran = run(&place.script("odd", "echo 'I am not claude'; exit 1"));
    ran.expect_refusal(96);
    let logged_out = "case $1 in --version) echo '2.1.330 (Claude Code)';; *) echo '{\"loggedIn\":false}'; exit 1;; esac";
    let ran = run(&place.script("logged-out", logged_out));
    assert_eq!(
        ran.expect_refusal(96),
        "Claude Code is not logged in; run claude once and sign in"
    );
    assert!(
        !place.path(".ktx/ingestdeck/runs").exists(),
        "a run that never began leaves no record"
    );
}

#[test]
fn invalid_settings_are_refused() {
    let place = TestDir::new();
    place.write("huge.toml", " ".repeat(70_000));
    for (toml, sentence) in [
        ("x = [", "not valid TOML"),
        (
            "[claude]\nmodel = 3\n",
            "claude.model must be a text in quotes, not 3",
        ),
        (
            "[retry]\nfactor = -1\n",
            "retry.factor must be a number from 1 to 100, not -1",
        ),
        (
            "[ui]\ntheme = \"neon\"\n",
            "unknown theme `neon` (ui.theme, user config.toml:2); choose one of",
        ),
        (
            "[keys]\nquit = \"r\"\n",
            "key `r` is bound to both `retry` and `quit` (user config.toml:2); give one of them another key in [keys]",
        ),
        (
            "[keys]\nfly = \"r\"\n",
            "unknown action `fly` in [keys] (user config.toml:2); the help (`?`) lists the names",
        ),
        (
            "[ui]\ntheme = \"./none.toml\"\n",
            "cannot read the theme ./none.toml: No such file",
        ),
        (
            "[ui]\ntheme = \"config.toml\"\n",
            "theme `config.toml` is not valid: line 1: ",
        ),
        (
            "[ui]\ntheme = \"huge.toml\"\n",
            "cannot read the theme huge.toml: it is larger than 65536 bytes",
        ),
        (
            "[ui]\nnotify = \"command\"\n",
            "no command is set; name a program in ui.notify_command",
        ),
        (
            "[ui]\nnotify = \"loud\"\n",
            "ui.notify must be \"off\" or \"bell\"",
        ),
    ] {
        place.write("config.toml", toml);
        for command in [&["config", "show"][..], &["demo", "--ui", "none"]] {
            let ran = place.run(&[command, &["--config", "config.toml"]].concat());
            let message = ran.expect_refusal(2);
            assert!(message.contains(sentence), "{toml}: {message}");
        }
    }
    // A custom theme is loaded from the settings directory, regardless of the working directory.
    place.write(
        "own/mine.toml",
        include_str!("../../../assets/themes/light.toml")
            .replace("failed = \"160 bold\"", "failed = \"#ff00ff\""),
    );
    place.write("own/config.toml", "[ui]\ntheme = \"./mine.toml\"\n");
    place
        .run(&["config", "show", "--config", "own/config.toml"])
        .expect_success();
    let ran = place.run(&["config", "show", "--config", "none.toml"]);
    assert!(ran.expect_refusal(2).contains("none.toml"), "{ran:?}");
    place.write("config.toml", "[cluade]\nmodel = \"x\"\n");
    let ran = place.run(&["config", "show", "--config", "config.toml"]);
    ran.expect_success();
    assert!(
        ran.stderr
            .contains("unknown section cluade is ignored; did you mean [claude]?"),
        "{ran:?}"
    );
}

#[test]
fn prompt_that_is_too_large_starts_no_agent() {
    let place = TestDir::new();
    let names: Vec<String> = (0..1_500)
        .map(|file| format!("{file}-{}.md", "of-a-very-large-unit-".repeat(8)))
        .collect();
    for name in &names {
        place.write(&format!("notes/{name}"), "# Page\n");
    }
    place.write(
        "units.json",
        serde_json::json!([{"unitKey": "all", "rawFiles": names}]).to_string(),
    );
    place.write(
        "ktx.yaml",
        "connections: {notes: {driver: manifest, path: units.json, source_dir: notes}}\n",
    );
    let claude = place.claude("touch started; exit 1");
    let ran = place.run(&["run", "--claude-bin", claude.to_str().unwrap()]);
    assert_eq!(ran.code, Some(100), "{ran:?}");
    assert!(
        ran.stdout.contains("prompt too large for WorkUnit "),
        "{ran:?}"
    );
    assert!(
        ran.stdout.contains("exceeds 240000") && ran.stdout.contains("split its raw files"),
        "{ran:?}"
    );
    assert!(!place.path("started").exists());
}

#[test]
fn large_wiki_and_semantic_layer_do_not_stop_units() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let summary = "much of it ".repeat(18);
    for page in 0..3_000 {
        place.write(
            &format!("wiki/global/page-number-{page:04}-of-a-very-large-wiki.md"),
            format!("---\nsummary: {summary}\n---\n\n# Page\n"),
        );
    }
    for source in 0..1_000 {
        let name = format!("source_{source:04}_{}", "of_a_very_large_layer_".repeat(4));
        place.write(
            &format!("semantic-layer/notes/{name}.yaml"),
            format!("name: {name}\n"),
        );
    }
    let claude = place.scripted_claude("[[part]]\nsteps = [{ say = \"done\" }]");
    let ran = place.run(&["run", "--claude-bin", claude.to_str().unwrap()]);
    assert!(ran.expect_success().contains("1 succeeded"), "{ran:?}");
    let tape = place.run(&["runs", "export", "latest"]);
    assert!(
        tape.expect_success()
            .contains(" more pages; find them with wiki_search"),
        "the index is cut"
    );
    assert!(
        tape.stdout
            .contains(" more sources; find them with sl_discover"),
        "the index is cut"
    );
}

#[test]
fn closed_stdout_ends_the_command_quietly() {
    let place = TestDir::new();
    for words in [
        &["demo", "--speed", "20"][..],
        &["demo", "--speed", "20", "--ui", "json"],
        &["config", "show"],
        &["doctor"],
        &["demo", "--speed", "20", "--keep", "kept"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let CommandOutput { code, stderr, .. } =
            place.start_into(place.command(words), writer.into()).end();
        assert_eq!(code, Some(141), "{words:?}: {stderr}");
        // A run that continues has a record to open.
        let is_kept = words.contains(&"--keep");
        assert_eq!(
            stderr.contains("the record of the run, which continued"),
            is_kept,
            "{words:?}: {stderr}"
        );
        assert!(is_kept || stderr.is_empty(), "{words:?}: {stderr}");
    }
    // The run continued after its reader closed the pipe.
    let show = place.run(&["runs", "show", "--project-dir", "kept"]);
    assert!(
        show.expect_success()
            .contains("8 units: 6 succeeded, 1 failed, 1 budget"),
        "{show:?}"
    );
}

#[test]
fn missing_home_is_handled() {
    let place = TestDir::new();
    place.notes(&["one"]);
    for words in [
        &["config", "show"][..],
        &["plan"],
        &["demo", "--ui", "none", "--speed", "20"],
    ] {
        let mut command = place.command(words);
        command.env_remove("HOME");
        place.ran(command).expect_success();
    }
    let claude = place.claude("exit 1");
    let elsewhere = tempfile::tempdir().unwrap();
    let mut session = place.command(&[
        "session",
        "--claude-bin",
        claude.to_str().unwrap(),
        "--",
        "hello",
    ]);
    session.env_remove("HOME").current_dir(elsewhere.path());
    let ran = place.ran(session);
    assert!(
        ran.expect_refusal(2)
            .contains("no directory for records; set HOME"),
        "{ran:?}"
    );
}

#[test]
fn read_only_project_is_refused() {
    let place = TestDir::new();
    place.notes(&["one"]);
    // Not tested with permissions, because the superuser ignores them.
    place.write(".ktx", "a file where a directory should be");
    let claude = place.claude("touch started; exit 1");
    let ran = place.run(&["run", "--claude-bin", claude.to_str().unwrap()]);
    assert!(ran.expect_refusal(1).contains(".ktx"), "{ran:?}");
    assert!(!place.path("started").exists());
    let ran = place.run(&["demo", "--keep", "."]);
    assert_eq!(
        ran.expect_refusal(2),
        ". is not empty; name a new directory for the demo"
    );
    let ran = place.run(&["demo", "--keep", "ktx.yaml/inside"]);
    assert!(
        ran.expect_refusal(2).contains("name a new directory"),
        "{ran:?}"
    );
}

#[test]
fn program_that_is_not_claude_is_refused() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let other = place.script("claude-stub", "echo bash, I am");
    let ran = place.run(&["run", "--claude-bin", other.to_str().unwrap()]);
    let message = ran.expect_refusal(96);
    assert!(
        message.contains("claude-stub --version printed no release")
            && message.contains("--claude-bin"),
        "{message}"
    );
}
