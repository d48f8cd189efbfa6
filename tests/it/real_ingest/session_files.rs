//! Session files that the real CLI writes: what a replay shows equals what the CLI reports about itself.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

use super::test_project::TestProject;
use crate::support::{
    api::{ApiRoute, ApiTurn, tool},
    cli::claude_bin,
};

const SESSION: &str = "0c0ffee0-1111-4111-8111-000000000001";

/// A session with a sub-agent. The quotes distinguish the prompt of the sub-agent from the call that contains it.
fn routes(last: ApiTurn) -> [ApiRoute; 2] {
    let agent = json!({
        "description": "read the rules", "subagent_type": "general-purpose", "prompt": "look into refunds",
        "run_in_background": false,
    });
    let echo = |word: &str| {
        tool(
            "Bash",
            json!({"command": format!("echo {word}"), "description": "As asked"}),
        )
    };
    [
        ApiRoute::on(
            "\"text\":\"look into refunds\"",
            [
                ApiTurn::blocks([echo("nested")]),
                ApiTurn::answer("refunds are daily"),
            ],
        ),
        ApiRoute::any([
            ApiTurn::blocks([tool("Agent", agent)]),
            ApiTurn::blocks([echo("main")]),
            ApiTurn::answer("first answer"),
            last,
        ]),
    ]
}

/// The CLI itself, not below `ingestdeck`.
fn claude(deck: &TestProject, args: &[&str]) -> Command {
    let mut command = Command::new(claude_bin().expect("INGESTDECK_TEST_CLAUDE names the CLI"));
    let options = [
        "-p",
        "--output-format",
        "stream-json",
        "--verbose",
        "--model",
        "claude-sonnet-5-5",
    ];
    command
        .args(options)
        .args(["--allowedTools", "Bash", "Agent"])
        .args(args);
    command
        .env_clear()
        .envs(deck.home.env(&deck.api))
        .current_dir(deck.home.project())
        .stdin(Stdio::null());
    command
}

/// The last result that the CLI reports.
fn result(deck: &TestProject, args: &[&str]) -> Value {
    let output = claude(deck, args).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    let mut lines = stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.rfind(|line| line["type"] == "result").unwrap()
}

fn session_file(deck: &TestProject) -> PathBuf {
    let projects = deck.home.path().join(".claude/projects");
    let folders = fs::read_dir(projects)
        .unwrap()
        .map(|folder| folder.unwrap().path());
    folders
        .map(|folder| folder.join(SESSION).with_extension("jsonl"))
        .find(|file| file.exists())
        .unwrap()
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn replayed_session_equals_the_reports_of_the_cli() {
    let deck = TestProject::new(routes(ApiTurn::answer("second answer")));
    result(
        &deck,
        &[
            "--session-id",
            SESSION,
            "--name",
            "Refund rules",
            "--",
            "where are refunds",
        ],
    );
    let reported = result(&deck, &["--resume", SESSION, "--", "and now"]);
    let file = session_file(&deck);
    let played = deck.play(&["replay", "--ui", "json", file.to_str().unwrap()]);
    assert_eq!(played.code, Some(0), "{played:#?}");
    let events = played.events();
    let summary = &events.last().unwrap()["event"];
    // The same number, not only the same cents.
    assert!(reported["total_cost_usd"].as_f64().unwrap() > 0.0);
    assert_eq!(summary["cost_usd"], reported["total_cost_usd"]);
    assert_eq!(summary["units"], json!({"succeeded": 2}), "{summary}");
    assert_eq!(
        summary["lost"],
        json!({"malformed": 0, "unknown": 0, "unknown_notes": 0, "torn": 0})
    );
    let titles = |unit: &str| -> Vec<&str> {
        let of_unit = events
            .iter()
            .filter(|event| event["unit"] == unit && event["event"]["phase"] == "completed");
        of_unit
            .map(|event| event["event"]["action"]["title"].as_str().unwrap())
            .collect()
    };
    assert_eq!(
        titles(SESSION),
        [
            "prompt: where are refunds",
            "Agent",
            "echo main",
            "prompt: and now"
        ]
    );
    assert_eq!(
        titles("read the rules"),
        ["prompt: look into refunds", "echo nested"]
    );
    let answers = events
        .iter()
        .filter(|event| event["event"]["type"] == "completed");
    let answers: Vec<_> = answers
        .map(|event| event["event"]["answer"].as_str().unwrap())
        .collect();
    assert_eq!(answers, ["second answer", "refunds are daily"]);

    let listed = deck.play(&[
        "replay",
        "--ui",
        "json",
        file.parent().unwrap().to_str().unwrap(),
    ]);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(
        (&listed["title"], &listed["running"]),
        (&json!("Refund rules"), &json!(false))
    );
    assert_eq!(listed["cost_usd"], reported["total_cost_usd"]);
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn running_session_is_followed_to_its_end() {
    let slow =
        ApiTurn::answer("a second answer that takes its time").slowly(Duration::from_millis(700));
    let deck = TestProject::new(routes(slow));
    result(&deck, &["--session-id", SESSION, "--", "where are refunds"]);
    let file = session_file(&deck);
    let name = file.to_str().unwrap();
    let idle = deck.play(&["watch", "--ui", "json", name]);
    assert_eq!(idle.code, Some(2), "{idle:#?}");
    assert!(
        idle.stderr
            .contains("is not a session file of a running Claude Code process"),
        "{idle:#?}"
    );

    let mut child = claude(&deck, &["--resume", SESSION, "--", "and now"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // The prompt is in the file before the model answers.
    while !fs::read_to_string(&file).unwrap().contains("and now") {
        crate::support::pause_before_check();
    }
    let followed = deck.play(&["watch", "--ui", "json", name]);
    assert!(child.wait().unwrap().success());
    assert_eq!(followed.code, Some(0), "{followed:#?}");
    let replayed = deck.play(&["replay", "--ui", "json", name]);
    let last = |text: &str| text.lines().last().unwrap().to_owned();
    assert_eq!(last(&followed.stdout), last(&replayed.stdout));
    assert!(
        followed
            .stdout
            .contains("a second answer that takes its time"),
        "{followed:#?}"
    );
}

/// Usage with every kind of tokens that has its own price.
fn usage(scale: u64) -> Value {
    json!({
        "input_tokens": 1_007 * scale, "output_tokens": 203 * scale, "cache_read_input_tokens": 5_021 * scale,
        "cache_creation_input_tokens": 713 * scale,
        "cache_creation": {"ephemeral_5m_input_tokens": 413 * scale, "ephemeral_1h_input_tokens": 300 * scale},
        "server_tool_use": {"web_search_requests": scale, "web_fetch_requests": 0},
    })
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn estimated_cost_is_the_total_of_the_cli() {
    let models = [
        "claude-opus-5-5",
        "claude-sonnet-5-5",
        "claude-haiku-5-5",
        "claude-haiku-4-5-20251001",
        "claude-fable-5-2",
    ];
    for model in models {
        let [nested, main] = routes(ApiTurn::answer("second answer"));
        let deck = TestProject::new([
            nested.with_usage(&[usage(1), usage(2)]),
            main.with_usage(&[usage(3), usage(4), usage(5), usage(6)]),
        ]);
        let args = ["--model", model, "--session-id", SESSION];
        let reported = result(&deck, &[&args[..], &["--", "where are refunds"]].concat());
        let total = reported["total_cost_usd"].as_f64().unwrap();
        let file = session_file(&deck);
        // As after a kill, and as releases write it that record no total.
        let text = fs::read_to_string(&file).unwrap();
        let kept: String = text
            .lines()
            .filter(|line| !line.contains(r#""type":"cost-state""#))
            .map(|line| format!("{line}\n"))
            .collect();
        fs::write(&file, kept).unwrap();
        let played = deck.play(&["replay", "--ui", "json", file.to_str().unwrap()]);
        let summary = &played.events().pop().unwrap()["event"];
        let estimate = summary["cost_estimate_usd"].as_f64();
        assert_eq!(summary["cost_usd"], Value::Null, "{model}: {summary}");
        assert!(
            estimate.is_some_and(|estimate| (estimate / total - 1.0).abs() < 0.01),
            "{model}: {estimate:?} instead of {total}"
        );
        let lines = deck.play(&["replay", "--ui", "lines", file.to_str().unwrap()]);
        assert!(lines.stdout.contains("· ~$"), "{lines:#?}");
    }
}
