//! Agents that misbehave, tested through the whole program: verdict, exit code and output.

use nix::sys::signal::Signal;

use super::test_dir::{CommandOutput, TestDir, parse_json_events};

fn run(place: &TestDir, script: &str, more: &[&str]) -> CommandOutput {
    let claude = place.scripted_claude(script);
    place.run(&[&["run", "--claude-bin", claude.to_str().unwrap()], more].concat())
}

#[test]
fn agent_exit_without_result_is_reported() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let ran = run(
        &place,
        "[[part]]\nsteps = [{ say = \"hm\" }, { stderr = \"out of luck\" }, { exit = 3 }]",
        &[],
    );
    assert_eq!(ran.code, Some(100), "{ran:?}");
    assert!(
        ran.stdout.contains("failed: out of luck (exit code 3)"),
        "{ran:?}"
    );
    assert!(
        ran.stdout
            .contains("`ingestdeck doctor` checks the installation"),
        "{ran:?}"
    );
    assert!(
        ran.stdout
            .trim_end()
            .contains("\n  ingestdeck run --resume-run "),
        "{ran:?}"
    );
    assert!(!place.path("wiki").exists());
}

#[test]
fn malformed_output_is_ignored_and_not_printed() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let script = r#"
[[part]]
steps = [
  { line = "not json \u001b[31m" },
  { bytes = "AAH/Cg==" },
  { stderr = "\u001b]0;owned\u0007" },
  { call = { tool = "read_raw_file", with = { path = "one.md" } } },
  { say = "done \u001b]0;owned\u0007 \u202e" },
]"#;
    let ran = run(&place, script, &[]);
    assert!(ran.expect_success().contains("1 succeeded"), "{ran:?}");
    assert!(
        ran.stdout.contains("not understood: 2 malformed, "),
        "{ran:?}"
    );
    let obeyed = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!ran.stdout.chars().any(obeyed), "{ran:?}");
    parse_json_events(
        place
            .run(&["replay", "latest", "--ui", "json"])
            .expect_success(),
    );
}

#[test]
fn refused_login_is_reported_once_and_escaped() {
    let place = TestDir::new();
    place.notes(&["one", "two", "three"]);
    let script = "[[part]]\nsteps = [{ api_error = { status = 401, error = \"authentication_failed\", text = \"no \\u001b[2J key\" } }]";
    let ran = run(&place, script, &[]);
    assert_eq!(ran.code, Some(96), "{ran:?}");
    assert!(!ran.stdout.contains('\u{1b}'), "{ran:?}");
    assert!(
        ran.stdout
            .contains("stopped starting units: login; run `claude` and sign in with /login"),
        "{ran:?}"
    );
    assert_eq!(ran.stdout.matches("▸ running").count(), 1, "{ran:?}");
    assert!(
        ran.stdout.contains("unusable after") && ran.stdout.contains("1 failed"),
        "{ran:?}"
    );
}

#[test]
fn run_wide_failure_has_its_own_exit_code() {
    let cases = [
        (
            "status = 400, error = \"billing_error\", text = \"Credit balance is too low\"",
            96,
        ),
        (
            "status = 404, error = \"model_not_found\", text = \"no such model\"",
            2,
        ),
        (
            "status = 429, error = \"rate_limit\", text = \"slow down\"",
            102,
        ),
    ];
    for (error, code) in cases {
        let place = TestDir::new();
        place.notes(&["one", "two"]);
        let yaml = std::fs::read_to_string(place.path("ktx.yaml")).unwrap();
        let limits = "ingest: {rateLimit: {retry: {maxAttempts: 2, baseDelayMs: 1}}}\n";
        place.write("ktx.yaml", format!("{yaml}{limits}"));
        let ran = run(
            &place,
            &format!("[[part]]\nsteps = [{{ api_error = {{ {error} }} }}]"),
            &[],
        );
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(
            !ran.stdout.contains("docs-two#1"),
            "only the first unit was tried: {ran:?}"
        );
    }
}

#[test]
fn failed_unit_does_not_affect_other_units() {
    let place = TestDir::new();
    place.notes(&["one", "two"]);
    let script = "
[[part]]
unit = \"docs-one\"
steps = [{ call = { tool = \"read_raw_file\", with = { path = \"../../../../etc/passwd\" } } }, { call = { tool = \"wiki_list_tags\", with = { path = 1 } } }, { say = \"tried\" }]
[[part]]
steps = [{ call = { tool = \"read_raw_file\", with = { path = \"two.md\" } } }, { say = \"read\" }]";
    let ran = run(&place, script, &["--ui", "json"]);
    assert_eq!(ran.code, Some(100), "{ran:?}");
    let lines = parse_json_events(&ran.stdout);
    let summary = &lines.last().unwrap()["event"];
    assert_eq!(
        summary["units"],
        serde_json::json!({"failed": 1, "succeeded": 1})
    );
    assert_eq!(
        summary["failed"][0]["reason"],
        "1 tool call(s) failed during WorkUnit docs-one"
    );
    assert!(
        !ran.stdout.contains("root:"),
        "nothing outside of the unit is read"
    );
}

#[test]
fn rejected_calls_keep_their_input_and_id() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let script = r#"
[[part]]
steps = [
  { call = { tool = "Bash", with = { command = "ls" } } },
  { call = { tool = "wiki_read", garbled = "{\"key\": " } },
  { say = "tried" },
]
if_asked = []"#;
    let ran = run(&place, script, &[]);
    assert_eq!(ran.code, Some(100), "{ran:?}");
    let report: serde_json::Value = serde_json::from_str(
        place
            .run(&["report", "--format", "json"])
            .expect_success()
            .trim(),
    )
    .unwrap();
    let failed = &report["body"]["ingestdeck"]["units"][0]["attempts"][0]["failedCalls"];
    let transcript = report["body"]["toolTranscripts"][0]["path"]
        .as_str()
        .unwrap();
    let transcript = std::fs::read_to_string(place.path(transcript)).unwrap();
    let lines: Vec<serde_json::Value> = transcript
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["input"], serde_json::json!({"command": "ls"}));
    assert_eq!(
        lines[0]["error"]["message"],
        "Error: No such tool available: Bash"
    );
    assert_eq!(
        lines[1]["input"]["__unparsedToolInput"]["raw"],
        "{\"key\": "
    );
    assert!(
        lines[1]["error"]["message"]
            .as_str()
            .unwrap()
            .starts_with("InputValidationError: "),
        "{transcript}"
    );
    for (index, line) in lines.iter().enumerate() {
        assert!(line["toolCallId"].is_string(), "{transcript}");
        assert_eq!(failed[index]["toolCallId"], line["toolCallId"]);
        assert!(
            !failed[index]["error"]
                .as_str()
                .unwrap()
                .contains("tool_use_error"),
            "{failed}"
        );
    }
}

#[test]
fn settled_refusals_do_not_fail_the_unit() {
    let place = TestDir::new();
    place.notes(&["one"]);
    // Rejected because the ledger is missing, the key is not flat, or there is no summary. Each error message explains
    // the fix.
    let script = r#"
[[part]]
steps = [
  { call = { tool = "wiki_write", with = { key = "one", summary = "One", content = "One." } } },
  { call = { tool = "record_verification_ledger", with = { summary = "Read it." } } },
  { call = { tool = "wiki_write", with = { key = "one", summary = "One", content = "One." } } },
  { call = { tool = "wiki_write", with = { key = "a/two", summary = "Two", content = "Two." } } },
  { call = { tool = "wiki_write", with = { key = "a-two", summary = "Two", content = "Two." } } },
  { call = { tool = "wiki_write", with = { key = "three", content = "Three." } } },
  { call = { tool = "wiki_write", with = { key = "three", summary = "Three", content = "Three." } } },
  { say = "written" },
]"#;
    let ran = run(&place, script, &["--ui", "json", "--no-reconcile"]);
    let lines = parse_json_events(ran.expect_success());
    assert_eq!(
        lines.last().unwrap()["event"]["units"],
        serde_json::json!({"succeeded": 1}),
        "{ran:?}"
    );
    assert!(
        ["one", "a-two", "three"]
            .iter()
            .all(|page| place.path(&format!("wiki/global/{page}.md")).exists())
    );
}

#[test]
fn settled_refusal_is_not_named_as_the_failure() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let script = r#"
[[part]]
steps = [
  { call = { tool = "wiki_write", with = { key = "one", summary = "One", content = "One." } } },
  { call = { tool = "record_verification_ledger", with = { summary = "Read it." } } },
  { call = { tool = "wiki_write", with = { key = "one", summary = "One", content = "One." } } },
  { call = { tool = "wiki_write", with = { key = "two", content = "Two." } } },
  { say = "written" },
]"#;
    let ran = run(&place, script, &[]);
    assert_eq!(ran.code, Some(100), "{ran:?}");
    let report = place.run(&["report"]);
    assert!(
        report.expect_success().contains("summary"),
        "the field that the last call lacks: {report:?}"
    );
    assert!(
        !report
            .stdout
            .contains("call record_verification_ledger first"),
        "{report:?}"
    );
}

#[test]
fn hanging_agent_is_stopped_and_stubborn_one_killed() {
    for (steps, interrupts) in [
        ("\"hang\"", 2),
        (
            "{ ignore = [\"sigint\", \"sigterm\", \"interrupt\", \"eof\"] }, \"hang\"",
            3,
        ),
    ] {
        let place = TestDir::new();
        place.notes(&["one"]);
        let claude =
            place.scripted_claude(&format!("[[part]]\nsteps = [{{ say = \"now\" }}, {steps}]"));
        let mut running =
            place.start(place.command(&["run", "--claude-bin", claude.to_str().unwrap()]));
        running.wait_for("stdout", "session ");
        for answer in [
            "draining: ",
            "stopping running units",
            "killing running units",
        ]
        .iter()
        .take(interrupts)
        {
            running.signal(Signal::SIGINT);
            running.wait_for("stderr", answer);
        }
        let ran = running.end();
        assert_eq!(ran.code, Some(130), "{ran:?}");
        assert!(ran.stdout.contains("1 stopped"), "{ran:?}");
        #[cfg(target_os = "linux")]
        place.wait_until_no_process_left();
    }
}

/// A `claude` that answers a probe with an error of the service.
fn failing(place: &TestDir, class: &str, more: &str, text: &str) -> std::path::PathBuf {
    let line = format!(
        r#"{{"type":"assistant","message":{{"model":"<synthetic>","content":[{{"type":"text","text":"{text}"}}]}},"error":"{class}"{more}}}"#
    );
    let result = format!(
        r#"{{"type":"result","subtype":"success","is_error":true,"terminal_reason":"api_error","result":"{text}"}}"#
    );
    place.claude(&format!("cat <<'END'\n{line}\n{result}\nEND\nexit 1"))
}

#[test]
fn probe_reports_problems_before_the_run() {
    let cases = [
        (
            "authentication_failed",
            "",
            "OAuth token has expired",
            96,
            "authentication is not usable",
            "sign in with /login",
        ),
        (
            "billing_error",
            "",
            "Credit balance is too low",
            96,
            "no credit",
            "add credit",
        ),
        (
            "rate_limit",
            r#","api_error":"usage_limit_reached""#,
            "resets 1:39am",
            102,
            "usage limit is reached",
            "wait",
        ),
        (
            "model_not_found",
            "",
            "no such model",
            2,
            "may not use this model",
            "llm.models",
        ),
        (
            "server_error",
            r#","api_error":"connection_failed""#,
            "Connection error.",
            96,
            "cannot reach",
            "connection and proxy",
        ),
    ];
    for (class, more, text, code, problem, remedy) in cases {
        let place = TestDir::new();
        place.notes(&["one", "two"]);
        let claude = failing(&place, class, more, text);
        let ran = place.run(&["run", "--probe", "--claude-bin", claude.to_str().unwrap()]);
        let sentence = ran.expect_refusal(code);
        assert!(
            [problem, text, remedy]
                .iter()
                .all(|part| sentence.contains(part)),
            "{sentence}"
        );
        assert!(
            !place.path(".ktx/ingestdeck/runs").exists(),
            "nothing was started"
        );
    }
}

#[test]
fn a_probe_is_asked_for_by_the_flag_or_the_setting() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let claude = failing(&place, "authentication_failed", "", "expired");
    let claude = claude.to_str().unwrap();
    let mut set = place.command(&["run", "--claude-bin", claude]);
    set.env("INGESTDECK_INGEST_PROBE", "true");
    assert!(
        place
            .ran(set)
            .expect_refusal(96)
            .contains("authentication is not usable")
    );
    assert!(!place.path(".ktx/ingestdeck/runs").exists());
    let asked = place.run(&["doctor", "--probe", "--claude-bin", claude]);
    assert!(
        asked.code == Some(96)
            && asked
                .stdout
                .contains("FAIL  Claude Code authentication is not usable: expired")
    );
    let ran = place.run(&["run", "--claude-bin", claude]);
    assert!(
        ran.stdout.contains("docs-one#1"),
        "no probe was requested: {ran:?}"
    );
}

#[test]
fn unit_prompt_lists_artifacts_written_from_its_files() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let script = r#"
[[part]]
steps = [
  { call = { tool = "record_verification_ledger", with = { summary = "checked" } } },
  { call = { tool = "wiki_write", with = { key = "one-page", summary = "About one", content = "Text.", rawPaths = ["one.md"] } } },
  { say = "done" },
]"#;
    assert_eq!(run(&place, script, &["--no-reconcile"]).code, Some(0));
    place.write("notes/one.md", "# one, changed\n");
    assert_eq!(run(&place, script, &["--no-reconcile"]).code, Some(0));
    let mut tapes: Vec<_> = place
        .path(".ktx/ingestdeck/runs")
        .read_dir()
        .unwrap()
        .map(|run| std::fs::read_to_string(run.unwrap().path().join("tape.jsonl")).unwrap())
        .collect();
    tapes.sort_by_key(|tape| tape.contains("wiki one-page (created in run "));
    assert!(
        tapes[0].contains("### priorProvenance\\n(none)"),
        "the first prompt lists no artifacts"
    );
    assert!(
        tapes[1].contains("### priorProvenance\\n- one.md: wiki one-page (created in run "),
        "the second prompt lists the artifact"
    );
}

#[test]
fn unit_session_is_locked_only_while_it_runs() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let claude = place.scripted_claude("[[part]]\nsteps = [{ say = \"now\" }, \"hang\"]");
    let mut running =
        place.start(place.command(&["run", "--claude-bin", claude.to_str().unwrap()]));
    running.wait_for("stdout", "session ");
    let locks = place.path("../home/.local/state/ingestdeck/locks");
    let held: Vec<_> = std::fs::read_dir(&locks)
        .unwrap()
        .map(|lock| lock.unwrap().path())
        .collect();
    assert_eq!(held.len(), 1, "{held:?}");
    assert_eq!(
        std::fs::read_to_string(&held[0]).unwrap(),
        running.id().to_string()
    );
    running.signal(Signal::SIGTERM);
    assert_eq!(running.end().code, Some(143));
    assert_eq!(
        std::fs::read_dir(&locks).unwrap().count(),
        0,
        "no lock file is left"
    );
}

#[test]
fn foreign_tool_that_ran_fails_the_unit_and_publishes_nothing() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let script = r#"
[[part]]
steps = [
  { call = { tool = "wiki_write", with = { key = "one", content = "One.", summary = "One." } } },
  { line = '{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t9","name":"Bash","input":{}}]}}' },
  { line = '{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t9","content":"done"}]}}' },
  { say = "done" },
]"#;
    let ran = run(&place, script, &[]);
    assert_eq!(ran.code, Some(100), "{ran:?}");
    assert!(
        ran.stdout
            .contains("it ran `Bash`, which it was not given (isolation failed)"),
        "{ran:?}"
    );
    assert!(!place.path("wiki/global/one.md").exists());
}

#[test]
fn environment_of_agents_is_an_allow_list() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let body = r#"[ "$1" = --version ] && { echo "2.1.330 (Claude Code)"; exit 0; }
[ "$1" = auth ] && { echo '{"loggedIn":true,"authMethod":"api_key"}'; exit 0; }
env >&2; exit 3"#;
    let claude = place.script("claude-env", body);
    let command = |words: &[&str], pass: &str| {
        let mut command =
            place.command(&[words, &["--claude-bin", claude.to_str().unwrap()]].concat());
        for name in [
            "ANTHROPIC_CUSTOM_HEADERS",
            "AWS_PROFILE",
            "GITHUB_TOKEN",
            "ANTHROPIC_API_KEY",
        ] {
            command.env(name, "s3cret-value");
        }
        command
            .env("https_proxy", "http://proxy.test")
            .env("INGESTDECK_CLAUDE_PASS_ENV", pass);
        command
            .env("INGESTDECK_RETRY_MAX_RETRIES", "0")
            .env_remove("XDG_RUNTIME_DIR");
        command
    };
    let doctor = place.ran(command(&["doctor"], ""));
    assert!(
        doctor
            .stdout
            .contains("ok    agents of units inherit HOME, PATH, https_proxy; "),
        "{doctor:?}"
    );
    let withheld = "note  withheld from agents of units: ANTHROPIC_API_KEY, ANTHROPIC_CUSTOM_HEADERS, AWS_PROFILE; ";
    assert!(
        doctor.stdout.contains(withheld) && !doctor.stdout.contains("s3cret"),
        "{doctor:?}"
    );
    let tape = |pass: &str| {
        place.ran(command(&["run"], pass));
        place.run(&["runs", "export", "latest"]).stdout
    };
    let closed = tape("");
    assert!(
        closed.contains("https_proxy=http://proxy.test") && !closed.contains("s3cret"),
        "{closed}"
    );
    let open = tape("AWS_*,GITHUB_TOKEN");
    assert!(
        open.contains("AWS_PROFILE=")
            && open.contains("GITHUB_TOKEN=")
            && !open.contains("CUSTOM_HEADERS="),
        "{open}"
    );
    let mut billed = command(&["run"], "");
    billed.env("INGESTDECK_CLAUDE_USE_API_BILLING", "true");
    place.ran(billed);
    let unbilled = place.run(&["runs", "export", "latest"]).stdout;
    assert!(
        unbilled.contains("HOME=") && !unbilled.contains("ANTHROPIC_API_KEY="),
        "that is a setting of sessions"
    );
}

#[test]
fn temporary_directories_of_killed_runs_are_removed() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let claude = place.scripted_claude("[[part]]\nsteps = [{ say = \"now\" }, \"hang\"]");
    let claude = claude.to_str().unwrap();
    let left = || std::fs::read_dir(place.path("../tmp")).unwrap().count();
    let sockets = || std::fs::read_dir(place.sockets()).unwrap().count();
    let mut running = place.start(place.command(&["run", "--claude-bin", claude]));
    running.wait_for("stdout", "session ");
    running.signal(Signal::SIGKILL);
    assert_eq!((running.end().code, left(), sockets()), (None, 1, 1));
    let mut next = place.start(place.command(&["run", "--claude-bin", claude]));
    next.wait_for("stdout", "session ");
    assert_eq!((left(), sockets()), (1, 1), "its own");
    next.signal(Signal::SIGQUIT);
    assert_eq!((next.end().code, left(), sockets()), (Some(131), 0, 0));
    #[cfg(target_os = "linux")]
    place.wait_until_no_process_left();
}

#[test]
fn file_size_limit_is_an_error_with_a_remedy() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let claude = place.scripted_claude("[[part]]\nsteps = [{ say = \"now\" }, \"hang\"]");
    let command = place.command(&[
        "run",
        "--ui",
        "lines",
        "--claude-bin",
        claude.to_str().unwrap(),
    ]);
    let mut limited = std::process::Command::new("/bin/sh");
    limited
        .args(["-c", "ulimit -f 8; exec \"$0\" \"$@\""])
        .arg(command.get_program())
        .args(command.get_args());
    limited.env_clear().envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    limited.current_dir(command.get_current_dir().unwrap());
    let ran = place.ran(limited);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("File too large"), "{ran:?}");
}

#[test]
fn units_wait_for_a_program_that_is_being_updated() {
    let place = TestDir::new();
    place.notes(&["one", "two", "three"]);
    let yaml = std::fs::read_to_string(place.path("ktx.yaml")).unwrap();
    place.write(
        "ktx.yaml",
        format!("{yaml}ingest: {{workUnits: {{maxConcurrency: 1}}}}\n"),
    );
    let script = "[[part]]\nsteps = [{ say = \"done\" }]";
    // The first process moves the program away before it runs.
    let claude = place.scripted_claude(script);
    let away = claude.with_extension("away");
    let text = std::fs::read_to_string(&claude).unwrap();
    let mark = place.path("updated");
    let takes = format!(
        "if [ ! -e '{mark}' ]; then touch '{mark}'; mv '{claude}' '{away}'; fi\nexec ",
        mark = mark.display(),
        claude = claude.display(),
        away = away.display()
    );
    std::fs::write(&claude, text.replacen("exec ", &takes, 1)).unwrap();
    let words = [
        "run",
        "--ui",
        "lines",
        "--no-reconcile",
        "--claude-bin",
        claude.to_str().unwrap(),
    ];
    let mut running = place.start(place.command(&words));
    running.wait_for("stdout", "the agent's program is missing");
    std::fs::rename(&away, &claude).unwrap();
    let ran = running.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stdout.contains("the agent's program is back"),
        "{ran:?}"
    );
    assert!(ran.stdout.contains("3 succeeded"), "{ran:?}");
}
