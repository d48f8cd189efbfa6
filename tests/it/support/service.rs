//! Tests of the scripted Messages API against the real CLI.

use std::{process::Command, time::Duration};

use serde_json::{Value, json};

use super::{
    api::*,
    cli::{TestHome, claude_bin},
};

/// Runs the real CLI one-shot against `api` and returns its stdout lines.
fn claude(api: &FakeApi, home: &TestHome, env: &[(&str, &str)]) -> Option<Vec<Value>> {
    let output = Command::new(claude_bin()?)
        .args([
            "-p",
            "--output-format",
            "stream-json",
            "--verbose",
            "--setting-sources=",
            "--tools=",
        ])
        .args(["--model", "sonnet", "--permission-mode", "dontAsk"])
        .args(["--", "go"])
        .env_clear()
        .envs(home.env(api))
        .envs(env.iter().copied())
        .current_dir(home.project())
        .stdin(std::process::Stdio::null())
        .output()
        .expect("the CLI starts");
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(
        lines
            .lines()
            .map(|line| serde_json::from_str(line).expect("a JSON line"))
            .collect(),
    )
}

fn result(lines: &[Value]) -> &Value {
    lines
        .iter()
        .rfind(|line| line["type"] == "result")
        .expect("a result line")
}

#[test]
fn the_cli_reads_streamed_blocks_and_the_request_is_on_record() {
    let turn = ApiTurn::blocks([
        thinking("let me see"),
        text("a text that is longer than one delta"),
    ]);
    let api = FakeApi::start([ApiRoute::any([
        turn.usage(json!({"input_tokens": 7, "output_tokens": 9}))
    ])]);
    let Some(lines) = claude(&api, &TestHome::new(), &[]) else {
        return;
    };
    assert_eq!(
        result(&lines)["result"],
        "a text that is longer than one delta"
    );
    assert_eq!(result(&lines)["usage"]["output_tokens"], 9);
    let requests = api.requests();
    assert_eq!(requests.len(), 1, "{requests:?}");
    assert!(requests[0].body.contains("go") && requests[0].tool_names().is_empty());
    assert_eq!(requests[0].header("x-api-key"), Some("test-key"));
}

#[test]
fn routes_count_their_turns_and_calls_come_through() {
    let call = tool("mcp__none__x", json!({"n": 1}));
    let api = FakeApi::start([
        ApiRoute::on("No such tool", [ApiTurn::answer("gave up")]),
        ApiRoute::any([ApiTurn::blocks([call]), ApiTurn::answer("never reached")]),
    ]);
    let Some(lines) = claude(&api, &TestHome::new(), &[]) else {
        return;
    };
    assert_eq!(result(&lines)["result"], "gave up");
    assert_eq!(api.wait_for_requests(2, Duration::from_secs(5)).len(), 2);
}

#[test]
fn errors_carry_their_headers() {
    let api = FakeApi::start([ApiRoute::any([
        ApiTurn::rate_limited(1),
        ApiTurn::answer("recovered"),
    ])]);
    let Some(lines) = claude(&api, &TestHome::new(), &[]) else {
        return;
    };
    let retry = lines
        .iter()
        .find(|line| line["subtype"] == "api_retry")
        .expect("a retry line");
    assert_eq!(retry["error_status"], 429);
    assert_eq!(result(&lines)["result"], "recovered");

    let api = FakeApi::start([ApiRoute::any([ApiTurn::unauthorized()])]);
    let lines = claude(&api, &TestHome::new(), &[]).unwrap_or_default();
    assert_eq!(result(&lines)["api_error_status"], 401);
}

#[test]
fn the_cli_recovers_from_every_broken_answer() {
    let long = "word ".repeat(40);
    for fault in [
        ApiFault::Close,
        ApiFault::Truncate,
        ApiFault::ErrorEvent,
        ApiFault::Empty,
        ApiFault::Garbage,
    ] {
        let broken = ApiTurn::answer(&long).fault(fault);
        let api = FakeApi::start([ApiRoute::any([broken, ApiTurn::answer("second try")])]);
        let Some(lines) = claude(&api, &TestHome::new(), &[]) else {
            return;
        };
        assert_eq!(result(&lines)["result"], "second try", "{fault:?}");
    }
    let api = FakeApi::start([ApiRoute::any([ApiTurn::answer("").fault(ApiFault::Html)])]);
    let lines = claude(&api, &TestHome::new(), &[]).unwrap_or_default();
    assert_eq!(result(&lines)["is_error"], true);
}

#[test]
fn cli_times_out_on_late_and_missing_answers() {
    let late = ApiTurn::answer("in the end")
        .delay(Duration::from_millis(50))
        .stop_reason("pause_turn");
    let api = FakeApi::start([ApiRoute::any([
        ApiTurn::answer("").fault(ApiFault::Stall),
        late,
    ])]);
    let Some(lines) = claude(&api, &TestHome::new(), &[("API_TIMEOUT_MS", "1500")]) else {
        return;
    };
    assert_eq!(
        (&result(&lines)["result"], &result(&lines)["stop_reason"]),
        (&json!("in the end"), &json!("pause_turn"))
    );
    assert_eq!(api.requests().len(), 2);
}

#[test]
fn usage_limit_error_carries_its_reset() {
    let Some(program) = claude_bin() else { return };
    let before = jiff::Timestamp::now().as_second();
    let api = FakeApi::start([ApiRoute::any([ApiTurn::usage_limit(3_600)])]);
    let home = TestHome::new();
    let output = Command::new(program)
        .args([
            "-p",
            "--output-format",
            "stream-json",
            "--verbose",
            "--setting-sources=",
            "--tools=",
            "--",
            "go",
        ])
        .env_clear()
        .envs(home.env(&api))
        .env_remove("ANTHROPIC_API_KEY")
        .env("CLAUDE_CODE_OAUTH_TOKEN", "test-token")
        .current_dir(home.project())
        .stdin(std::process::Stdio::null())
        .output()
        .expect("the CLI starts");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let resets_at = stdout.lines().find_map(|line| {
        let line: Value = serde_json::from_str(line).ok()?;
        (line["type"] == "rate_limit_event")
            .then(|| line["rate_limit_info"]["resetsAt"].as_i64())?
    });
    let resets_in = resets_at.map(|at| at - before);
    assert!(
        resets_in.is_some_and(|seconds| seconds >= 3_600),
        "{stdout}"
    );
    assert!(stdout.contains("usage_limit_reached"), "{stdout}");
}
