//! `session` as a command, with a stub instead of Claude Code: what it retries, which processes it leaves, and which
//! releases it accepts.

use std::fs;

use nix::sys::signal::Signal;

use super::test_dir::{CommandOutput, TestDir};

const INIT: &str = r#"{"type":"system","subtype":"init","session_id":"s1","model":"m","permissionMode":"default"}"#;
const CALL: &str = r#"{"type":"assistant","session_id":"s1","message":{"id":"m1","role":"assistant","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"pay"}}]}}"#;
const ANSWER: &str = r#"{"type":"user","session_id":"s1","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"paid"}]}}"#;
const BUSY: &str = r#"{"type":"result","subtype":"success","is_error":true,"terminal_reason":"api_error","api_error_status":500,"result":"API Error: 500","session_id":"s1"}"#;
const DONE: &str =
    r#"{"type":"result","subtype":"success","is_error":false,"result":"done","session_id":"s1"}"#;

fn printed(lines: &[&str]) -> String {
    lines
        .iter()
        .map(|line| format!("echo '{line}'\n"))
        .collect()
}

/// Runs a session with `first` as its first process and `second` as each later one. Also returns their arguments, one
/// line each.
fn session(
    place: &TestDir,
    first: &str,
    second: &str,
    vars: &[(&str, &str)],
) -> (CommandOutput, Vec<String>) {
    let calls = place.path("calls");
    let body = format!(
        "echo \"$*\" >> '{0}'\nif [ $(wc -l < '{0}') = 1 ]; then\n{first}\nelse\n{second}\nfi",
        calls.display()
    );
    let claude = place.claude(&body);
    let mut command = place.command(&[
        "session",
        "--claude-bin",
        claude.to_str().unwrap(),
        "--",
        "charge",
        "once",
    ]);
    command
        .env("INGESTDECK_RETRY_INITIAL_DELAY_MS", "1")
        .envs(vars.iter().copied());
    let ran = place.ran(command);
    let calls = fs::read_to_string(calls).unwrap_or_default();
    (ran, calls.lines().map(str::to_owned).collect())
}

#[test]
fn retry_after_a_tool_ran_continues_the_session() {
    let place = TestDir::new();
    let ledger = place.path("ledger.txt");
    let pays = printed(&[INIT, CALL])
        + &format!("echo PAID >> '{}'\n", ledger.display())
        + &printed(&[ANSWER, BUSY]);
    let (ran, calls) = session(&place, &pays, &printed(&[INIT, DONE]), &[]);
    assert!(ran.expect_success().contains("done"), "{ran:?}");
    assert_eq!(fs::read_to_string(ledger).unwrap(), "PAID\n");
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert!(
        calls[0].ends_with("-- charge once") && !calls[0].contains("--resume"),
        "{calls:?}"
    );
    assert!(
        calls[1].contains("--resume s1 ") && calls[1].ends_with("-- Continue with the task"),
        "{calls:?}"
    );
    assert_eq!(ran.stdout.lines().last(), Some("`claude --resume s1`"));
}

#[test]
fn retry_without_a_tool_call_repeats_the_prompt() {
    let place = TestDir::new();
    let (ran, calls) = session(
        &place,
        &printed(&[INIT, BUSY]),
        &printed(&[INIT, DONE]),
        &[],
    );
    ran.expect_success();
    assert!(
        calls.len() == 2 && calls[1].ends_with("-- charge once") && !calls[1].contains("--resume"),
        "{calls:?}"
    );
}

#[test]
fn session_waits_for_a_program_that_is_being_updated() {
    let place = TestDir::new();
    let (away, calls) = (place.path("away"), place.path("calls"));
    // The first call removes the program and meets a busy service.
    let first = format!("mv \"$0\" '{}'\n{}", away.display(), printed(&[INIT, BUSY]));
    let second = printed(&[INIT, DONE]);
    let body = format!(
        "echo \"$*\" >> '{0}'\nif [ $(wc -l < '{0}') = 1 ]; then\n{first}\nelse\n{second}\nfi",
        calls.display()
    );
    let claude = place.claude(&body);
    let words = [
        "session",
        "--ui",
        "lines",
        "--claude-bin",
        claude.to_str().unwrap(),
        "--",
        "hello",
    ];
    let mut command = place.command(&words);
    command
        .env("INGESTDECK_RETRY_INITIAL_DELAY_MS", "1")
        .env("INGESTDECK_RETRY_MAX_RETRIES", "1");
    let mut running = place.start(command);
    running.wait_for("stdout", "the agent's program is missing");
    fs::rename(&away, &claude).unwrap();
    let ran = running.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stdout.contains("the agent's program is back"),
        "{ran:?}"
    );
}

#[test]
fn session_honours_the_retry_settings() {
    let place = TestDir::new();
    let busy = printed(&[INIT, BUSY]);
    let (ran, calls) = session(
        &place,
        &busy,
        &busy,
        &[("INGESTDECK_RETRY_MAX_RETRIES", "0")],
    );
    assert_eq!((ran.code, calls.len()), (Some(100), 1), "{ran:?}");
    let place = TestDir::new();
    let (ran, calls) = session(
        &place,
        &busy,
        &busy,
        &[("INGESTDECK_RETRY_MAX_RETRIES", "2")],
    );
    assert_eq!((ran.code, calls.len()), (Some(100), 3), "{ran:?}");
}

#[test]
fn session_without_an_id_is_not_retried_after_a_tool_call() {
    let place = TestDir::new();
    let nameless = [CALL, BUSY].map(|line| line.replace(r#","session_id":"s1""#, ""));
    let (ran, calls) = session(
        &place,
        &printed(&nameless.each_ref().map(String::as_str)),
        &printed(&[DONE]),
        &[],
    );
    assert_eq!((ran.code, calls.len()), (Some(100), 1), "{ran:?}");
    let text = "session is not retried: its tools have run, and its session id is unknown";
    assert!(
        ran.stdout.contains(text) && !ran.stdout.contains("claude --resume"),
        "{ran:?}"
    );
}

#[test]
fn unknown_session_id_has_no_resume_line() {
    let place = TestDir::new();
    let unknown = r#"{"type":"result","subtype":"error_during_execution","is_error":true,"session_id":"made-up","errors":["No conversation found with session ID: gone"]}"#;
    let claude = place.claude(&printed(&[unknown]));
    let ran = place.run(&[
        "session",
        "--resume",
        "gone",
        "--claude-bin",
        claude.to_str().unwrap(),
        "--",
        "hello",
    ]);
    assert_eq!(ran.code, Some(100), "{ran:?}");
    assert!(
        ran.stdout
            .contains("No conversation found with session ID: gone"),
        "{ran:?}"
    );
    assert!(
        ran.stdout
            .contains("check the session id, or leave out --resume"),
        "{ran:?}"
    );
    assert!(!ran.stdout.contains("`claude --resume"), "{ran:?}");
}

#[test]
fn resume_line_does_not_name_a_foreign_session() {
    let place = TestDir::new();
    let claude = place.claude(&printed(&[INIT, DONE]));
    let ran = place.run(&[
        "session",
        "--resume",
        "mine",
        "--claude-bin",
        claude.to_str().unwrap(),
        "--",
        "hello",
    ]);
    assert_eq!(ran.code, Some(100), "{ran:?}");
    assert!(
        ran.stdout
            .contains("claude emitted session id s1 but expected mine"),
        "{ran:?}"
    );
    assert_eq!(
        ran.stdout.lines().last(),
        Some("`claude --resume mine`"),
        "{ran:?}"
    );
}

#[test]
fn session_warns_before_its_turn_limit() {
    let place = TestDir::new();
    place.write(
        "../home/.config/ingestdeck/config.toml",
        "[agent]\nmax_turns = 5\n",
    );
    let text = |id: &str, fields: &str| {
        format!(
            r#"{{"type":"assistant","session_id":"s1",{fields}"message":{{"id":"{id}","role":"assistant","content":[{{"type":"text","text":"so"}}]}}}}"#
        )
    };
    // Two lines of one message are one turn, and messages of sub-agents are none.
    let mut lines = vec![INIT.to_owned(), text("n1", r#""parent_tool_use_id":"t0","#)];
    lines.extend(["m1", "m1", "m2", "m3", "m4", "m4", "m5"].map(|id| text(id, "")));
    lines.push(DONE.to_owned());
    let claude = place.claude(&printed(
        &lines.iter().map(String::as_str).collect::<Vec<_>>(),
    ));
    let claude = claude.to_str().unwrap();
    let ran = place.run(&[
        "session",
        "--profile",
        "agent",
        "--claude-bin",
        claude,
        "--",
        "hello",
    ]);
    assert_eq!(
        ran.expect_success()
            .matches("Approaching turn limit: 4/5")
            .count(),
        1,
        "{ran:?}"
    );
}

#[test]
fn session_needs_a_release_that_can_be_trusted() {
    let place = TestDir::new();
    for (version, sentence) in [
        ("2.1.159 (Claude Code)", "claude 2.1.159 is too old"),
        (
            "something else",
            "printed no release of Claude Code: something else",
        ),
    ] {
        let claude = place.script(
            "old",
            &format!("[ \"$1\" = --version ] && {{ echo '{version}'; exit 0; }}\ntouch started"),
        );
        let ran = place.run(&[
            "session",
            "--claude-bin",
            claude.to_str().unwrap(),
            "--",
            "hello",
        ]);
        assert!(ran.expect_refusal(96).contains(sentence), "{ran:?}");
    }
    assert!(!place.path("started").exists());
}

#[test]
fn session_in_a_wider_permission_mode_ends_before_a_tool_runs() {
    let place = TestDir::new();
    let init = INIT.replace(
        r#""permissionMode":"default""#,
        r#""permissionMode":"auto""#,
    );
    let claude = place.claude(&format!(
        "echo '{init}'\nsleep 30 & wait\ntouch ran\n{}",
        printed(&[DONE])
    ));
    let ran = place.run(&[
        "session",
        "--claude-bin",
        claude.to_str().unwrap(),
        "--",
        "hello",
    ]);
    assert_eq!(ran.code, Some(100), "{ran:?}");
    let sentence = "Claude Code runs in permission mode `auto` instead of `default`";
    assert!(
        ran.stdout.contains(sentence)
            && ran
                .stdout
                .contains("find out what sets its permission mode"),
        "{ran:?}"
    );
    assert!(!place.path("ran").exists());
}

/// A call starts a process in its own session, as shell commands of Claude Code do, and ignores all signals that can be
/// ignored.
#[cfg(target_os = "linux")]
#[test]
fn processes_of_a_session_end_with_it() {
    let endings: [&[Signal]; 6] = [
        &[Signal::SIGTERM],
        &[Signal::SIGHUP],
        &[Signal::SIGQUIT],
        &[Signal::SIGKILL],
        &[Signal::SIGINT; 2],
        // The agent exits without a signal.
        &[],
    ];
    let running = endings.map(|signals| {
        let place = TestDir::new();
        let command = place.script(
            "detached",
            "trap '' HUP INT TERM\nwhile :; do sleep 1; done",
        );
        let starts = format!("( setsid '{}' >/dev/null 2>&1 & )\n", command.display());
        let ends = if signals.is_empty() {
            printed(&[DONE])
        } else {
            "sleep 50 & wait".to_owned()
        };
        let claude = place.claude(&(starts + "trap '' INT\n" + &printed(&[INIT, CALL]) + &ends));
        let mut running = place.start(place.command(&[
            "session",
            "--claude-bin",
            claude.to_str().unwrap(),
            "--",
            "go",
        ]));
        running.wait_for("stdout", "session s1");
        if !signals.is_empty() {
            assert!(
                place
                    .processes(0)
                    .iter()
                    .any(|words| words.contains("detached")),
                "{:?}",
                place.processes(0)
            );
        }
        signals.iter().for_each(|signal| running.signal(*signal));
        (signals, place, running)
    });
    for (signals, place, running) in running {
        let ran = running.end();
        if !signals.contains(&Signal::SIGKILL) {
            assert_eq!(
                place.processes(0),
                Vec::<String>::new(),
                "{signals:?}: {ran:?}"
            );
        }
        place.wait_until_no_process_left();
    }
}

#[test]
fn session_works_in_a_new_worktree() {
    let place = TestDir::new();
    place.write("tracked.txt", "one\n");
    for words in [
        &["init", "--quiet"][..],
        &["add", "tracked.txt"],
        &[
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@localhost",
            "commit",
            "--quiet",
            "-m",
            "one",
        ],
    ] {
        let mut git = std::process::Command::new("git");
        assert!(
            git.arg("-C")
                .arg(place.path(""))
                .args(words)
                .status()
                .unwrap()
                .success(),
            "{words:?}"
        );
    }
    let claude = place.claude(&format!(
        "pwd > '{}'\n{}",
        place.path("cwd").display(),
        printed(&[INIT, DONE])
    ));
    let words = [
        "session",
        "--worktree",
        "--claude-bin",
        claude.to_str().unwrap(),
        "--",
        "hello",
    ];
    let ran = place.run(&words);
    ran.expect_success();
    let cwd = fs::read_to_string(place.path("cwd")).unwrap();
    assert!(cwd.contains("/ingestdeck/worktrees/"), "{cwd}");
    assert!(
        std::path::Path::new(cwd.trim())
            .join("tracked.txt")
            .exists()
    );
    assert!(
        ran.stderr
            .contains(&format!("git worktree remove {}", cwd.trim())),
        "{ran:?}"
    );
}

#[test]
fn rules_that_a_session_cannot_apply_stop_it() {
    let place = TestDir::new();
    let claude = place.claude(&printed(&[INIT, DONE]));
    place.write("ingestdeck.toml", "[policy]\ndeny = [\"Bash\"]\n");
    let words = [
        "session",
        "--claude-bin",
        claude.to_str().unwrap(),
        "--",
        "hello",
    ];
    let refused = place.run(&words);
    assert!(
        refused
            .expect_refusal(2)
            .contains("the rules of [policy] cannot be applied"),
        "{refused:?}"
    );
    place.write("ingestdeck.toml", "[policy\n");
    let refused = place.run(&words);
    assert!(
        refused.expect_refusal(2).contains("not valid TOML"),
        "{refused:?}"
    );
}

/// No person can see that the agent is silent.
#[test]
fn silent_session_without_a_screen_ends() {
    let place = TestDir::new();
    let silent = printed(&[INIT]) + "exec sleep 600\n";
    let limits = [
        ("INGESTDECK_INGEST_SILENCE_TIMEOUT", "1s"),
        ("INGESTDECK_RETRY_MAX_RETRIES", "0"),
    ];
    let (ran, calls) = session(&place, &silent, &silent, &limits);
    assert!(ran.code != Some(0) && calls.len() == 1, "{ran:?}");
    assert!(
        format!("{}{}", ran.stdout, ran.stderr).contains("silence timeout"),
        "{ran:?}"
    );
}
