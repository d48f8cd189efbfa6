//! `session` as a command, with the real CLI.

use std::{fs, time::Instant};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;

use super::test_project::{LIMIT, PlayedCommand, TestProject};
use crate::support::api::{ApiRoute, ApiTurn, tool};

/// The id in the resume line, which is the last line of stdout.
fn resume_id(played: &PlayedCommand) -> String {
    let last = played.stdout.lines().last().unwrap_or_default();
    let id = last
        .strip_prefix("`claude --resume ")
        .and_then(|rest| rest.strip_suffix('`'));
    id.unwrap_or_else(|| panic!("no resume line: {played:#?}"))
        .to_owned()
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn session_is_resumed_under_its_own_id() {
    let deck = TestProject::new([
        ApiRoute::on("second question", [ApiTurn::answer("second answer")]),
        ApiRoute::on("first question", [ApiTurn::answer("first answer")]),
    ]);
    let first = deck.play(&["session", "--", "first question"]);
    assert_eq!(first.code, Some(0), "{first:#?}");
    assert!(first.stdout.contains("first answer"), "{first:#?}");
    let id = resume_id(&first);

    let second = deck.play(&["session", "--resume", &id, "--", "second question"]);
    assert_eq!(second.code, Some(0), "{second:#?}");
    assert_eq!(resume_id(&second), id);
    let last = deck.api.requests().pop().unwrap();
    assert!(
        ["first question", "first answer", "second question"]
            .iter()
            .all(|part| last.body.contains(part))
    );

    let json = deck.play(&[
        "session",
        "--ui",
        "json",
        "--resume",
        &id,
        "--",
        "second question",
    ]);
    let mut events = json
        .events()
        .into_iter()
        .map(|mut event| event["event"].take());
    let completed = events.rfind(|event| event["type"] == "completed").unwrap();
    assert_eq!(
        (&completed["ok"], &completed["answer"]),
        (&true.into(), &"second answer".into())
    );
    assert_eq!(completed["resume"]["value"], id.as_str());
    assert_eq!(deck.tapes().len(), 3);
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn resumed_session_sends_the_prompt_of_its_own_settings() {
    let deck = TestProject::new([ApiRoute::any(["one", "two", "three"].map(ApiTurn::answer))]);
    let ask = |prompt: &str, words: &[&str]| {
        let mut command = deck.command([&["session"], words, &["--", "a question"]].concat());
        let output = command
            .env("INGESTDECK_AGENT_SYSTEM_PROMPT", prompt)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let first = ask("You are ALPHA.", &["--profile", "agent"]);
    let id = first
        .lines()
        .last()
        .and_then(|line| line.strip_prefix("`claude --resume ")?.strip_suffix('`'))
        .unwrap();
    ask("You are BETA.", &["--profile", "agent", "--resume", id]);
    // A plain session has the prompt of Claude Code again.
    ask("You are BETA.", &["--resume", id]);
    let prompts = deck
        .api
        .requests()
        .into_iter()
        .map(|request| request.system());
    let sent: Vec<_> = prompts
        .map(|sent| {
            (
                sent.contains("You are ALPHA."),
                sent.contains("You are BETA."),
            )
        })
        .collect();
    assert_eq!(sent, [(true, false), (false, true), (false, false)]);
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn session_without_an_answer_is_a_limit() {
    let call = || bash("true");
    let deck = TestProject::new([ApiRoute::any([call(), call(), call()])])
        .set("[agent]\nmax_turns = 1\nallowed_tools = [\"Bash\"]\n");
    let played = deck.play(&["session", "--profile", "agent", "--", "run true"]);
    assert_eq!(played.code, Some(102), "{played:#?}");
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn unknown_session_fails_with_the_agent_error() {
    let deck = TestProject::new([ApiRoute::any([ApiTurn::answer("never asked")])]);
    let id = "00000000-0000-4000-8000-000000000000";
    let played = deck.play(&["session", "--resume", id, "--", "hello"]);
    assert_eq!(played.code, Some(100), "{played:#?}");
    let sentence = format!("No conversation found with session ID: {id}");
    assert!(
        (played.stdout.clone() + &played.stderr).contains(&sentence),
        "{played:#?}"
    );
    assert!(!played.stdout.contains("`claude --resume"), "{played:#?}");
    assert!(deck.api.requests().is_empty());
}

fn bash(command: &str) -> ApiTurn {
    ApiTurn::blocks([tool(
        "Bash",
        json!({"command": command, "description": "As asked"}),
    )])
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn side_effects_happen_once_despite_service_failures() {
    let busy = || ApiTurn::error(500, "api_error", "Internal server error");
    let pays = || bash("echo PAID >> ledger.txt");
    let deck = TestProject::new([
        ApiRoute::on("Continue with the task", [ApiTurn::answer("all paid")]),
        ApiRoute::any([
            pays(),
            busy(),
            busy(),
            pays(),
            ApiTurn::answer("paid again"),
        ]),
    ])
    .set("allowed_tools = [\"Bash\"]\n[retry]\ninitial_delay_ms = 100\n");
    let played = deck.play(&["session", "--", "charge the customer once"]);
    assert_eq!(played.code, Some(0), "{played:#?}");
    assert!(played.stdout.contains("all paid"), "{played:#?}");
    assert_eq!(
        fs::read_to_string(deck.home.project().join("ledger.txt")).unwrap(),
        "PAID\n"
    );
    resume_id(&played);
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn session_continues_after_a_usage_limit_without_a_retry() {
    let pays = || bash("echo PAID >> ledger.txt");
    let deck = TestProject::new([
        ApiRoute::on("Continue with the task", [ApiTurn::answer("all paid")]),
        ApiRoute::any([
            pays(),
            ApiTurn::usage_limit(5),
            pays(),
            ApiTurn::answer("paid again"),
        ]),
    ])
    .subscribed()
    .set("allowed_tools = [\"Bash\"]\n[retry]\nmax_retries = 0\n");
    let played = deck.play(&["session", "--", "charge the customer once"]);
    assert_eq!(played.code, Some(0), "{played:#?}");
    assert!(played.stdout.contains("all paid"), "{played:#?}");
    assert_eq!(
        fs::read_to_string(deck.home.project().join("ledger.txt")).unwrap(),
        "PAID\n"
    );
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn tool_that_is_not_allowed_does_not_run() {
    let deck = TestProject::new([ApiRoute::any([
        bash("echo RAN > ran.txt"),
        ApiTurn::answer("done"),
    ])])
    .set("allowed_tools = [\"Read\"]\n");
    let settings = deck.home.path().join(".claude");
    fs::create_dir_all(&settings).unwrap();
    fs::write(
        settings.join("settings.json"),
        r#"{"permissions": {"defaultMode": "acceptEdits"}}"#,
    )
    .unwrap();
    let played = deck.play(&["session", "--", "run it"]);
    assert_eq!(played.code, Some(0), "{played:#?}");
    assert!(!deck.home.project().join("ran.txt").exists(), "{played:#?}");
    assert!(!played.stderr.contains("permission mode"), "{played:#?}");
}

/// Processes whose working directory is the project.
#[cfg(target_os = "linux")]
fn workers(deck: &TestProject) -> Vec<String> {
    let (project, entries) = (deck.home.project(), fs::read_dir("/proc").unwrap());
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    pids.filter(|pid| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == project))
        .map(|pid| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default())
        .filter(|words| !words.is_empty())
        .collect()
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn shell_command_of_a_session_ends_with_it() {
    for signal in [
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGKILL,
    ] {
        let deck = TestProject::new([ApiRoute::any([
            bash("echo started > started.txt; tail -f /dev/null"),
            ApiTurn::answer("done"),
        ])])
        .set("allowed_tools = [\"Bash\"]\n");
        let mut running = deck.command(["session", "--", "wait"]).spawn().unwrap();
        let deadline = Instant::now() + LIMIT;
        while !deck.home.project().join("started.txt").exists() {
            assert!(Instant::now() < deadline, "the command does not start");
            crate::support::pause_before_check();
        }
        assert!(
            workers(&deck).iter().any(|words| words.contains("tail")),
            "{:?}",
            workers(&deck)
        );
        kill(Pid::from_raw(i32::try_from(running.id()).unwrap()), signal).unwrap();
        running.wait().unwrap();
        while !workers(&deck).is_empty() {
            assert!(Instant::now() < deadline, "{signal}: {:?}", workers(&deck));
            crate::support::pause_before_check();
        }
    }
}
