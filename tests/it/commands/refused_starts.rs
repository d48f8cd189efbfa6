//! Agents that refuse to start: one fault of the run, which burns no unit.

use serde_json::json;

use super::{
    end_to_end::newest_tape,
    test_dir::{TestDir, parse_json_events},
};

const RESULT: &str = r#"{"type":"result","subtype":"error_during_execution","is_error":true,"num_turns":0,"session_id":"11111111-2222-4333-8444-555555555555","total_cost_usd":0"#;

/// What the program does instead of starting, and the reason and the remedy that a person reads.
fn refusals() -> Vec<(String, &'static str, &'static str)> {
    let damaged = r#","errors":["Config file is not valid JSON"],"startup_failure_reason":"config_file_invalid","invalid_config_file":{"path":"/h/.claude.json","backup_path":"/h/a b.json"}}"#;
    let later = r#","errors":["The clock is wrong"],"startup_failure_reason":"clock_skew"}"#;
    let no_errors = r#","startup_failure_reason":"proxy_invalid"}"#;
    let prints = |rest: &str| format!("echo '{RESULT}{rest}'; exit 1");
    let terminal = "run `claude` in a terminal";
    vec![
        (
            prints(damaged),
            "/h/.claude.json is not valid JSON",
            "`cp '/h/a b.json' /h/.claude.json`",
        ),
        (prints(later), "The clock is wrong", terminal),
        (prints(no_errors), "proxy_invalid", "HTTPS_PROXY"),
        (
            "echo 'Configuration error in /h/.claude.json: Unexpected EOF' >&2; exit 1".into(),
            "/h/.claude.json is not valid JSON",
            "move /h/.claude.json away",
        ),
        (
            "echo 'Error: no space left on device' >&2; echo '  at x' >&2; exit 1".into(),
            "no space left",
            terminal,
        ),
        (
            "echo 'not JSON'; echo 'license expired' >&2; exit 3".into(),
            "(exit code 3): license expired",
            terminal,
        ),
        (
            "exit 1".into(),
            "it ended with exit code 1 without a message",
            terminal,
        ),
        (
            "exit 0".into(),
            "it ended with exit code 0 without a message",
            terminal,
        ),
    ]
}

#[test]
fn refused_start_is_one_fault_of_the_run() {
    let place = TestDir::new();
    place.notes(&["one", "two", "three"]);
    for (refusal, reason, remedy) in refusals() {
        let claude = place.claude(&refusal).display().to_string();
        let output = place.run(&[
            "run",
            "--full",
            "--concurrency",
            "2",
            "--ui",
            "json",
            "--claude-bin",
            &claude,
        ]);
        assert_eq!(output.code, Some(96), "{refusal}: {output:?}");
        let events = parse_json_events(&output.stdout);
        let summary = &events.last().unwrap()["event"];
        assert_eq!(
            (&summary["units"], &summary["failed"]),
            (&json!({"untried": 3}), &json!([])),
            "{refusal}"
        );
        let messages: Vec<_> = events
            .iter()
            .filter_map(|event| event["event"]["text"].as_str())
            .collect();
        let stopped = messages
            .iter()
            .filter(|text| text.starts_with("stopped starting units"));
        let stopped: Vec<_> = stopped.collect();
        assert_eq!(stopped.len(), 1, "{refusal}: {messages:?}");
        assert!(
            stopped[0].contains(reason) && stopped[0].contains(remedy),
            "{refusal}: {stopped:?}"
        );
        let tape = newest_tape(&place);
        let waits = tape
            .matches(r#""kind":"retry_scheduled","next":2,"delay_ms":1000,"cause":"start_failed""#)
            .count();
        assert!(
            (1..=2).contains(&waits),
            "one trial, and the unit that started with it: {tape}"
        );
        assert!(!tape.contains(r#""next":3"#), "{tape}");
        assert!(tape.contains(
            r#""outcome":"unusable","succeeded":0,"budget":0,"failed":0,"stopped":0,"not_run":3"#
        ));
    }
    let plan = place.run(&["plan"]);
    assert!(
        plan.expect_success().contains("3 units planned"),
        "{plan:?}"
    );
    let text = place.run(&["replay", "latest", "--ui", "lines"]);
    assert!(
        text.stderr.contains("3 untried") || text.stdout.contains("3 untried"),
        "{text:?}"
    );
}

#[test]
fn session_that_does_not_start_has_the_exit_code_of_the_setup() {
    let place = TestDir::new();
    let claude = place
        .claude("echo 'license expired' >&2; exit 3")
        .display()
        .to_string();
    let output = place.run(&["session", "--claude-bin", &claude, "--", "hello"]);
    assert_eq!(output.code, Some(96), "{output:?}");
    assert!(
        output
            .stdout
            .contains("Claude Code did not start (exit code 3): license expired"),
        "{output:?}"
    );
}
