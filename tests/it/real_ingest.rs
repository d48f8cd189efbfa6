//! The whole program with the real CLI: a project as input, a scripted API as the service.

mod background;
mod conversation;
mod end_to_end;
mod limits;
mod rehearsal;
mod releases;
mod review;
mod run_ends;
mod screen;
mod service;
mod session;
mod session_files;
mod test_project;
mod texts;
mod tools;
mod warehouse;
mod workers;

use serde_json::{Value, json};

use self::test_project::{TestProject, UNITS, all_good, asked_by, gone, good_turns, ktx};
use crate::support::{
    api::{ApiTurn, tool},
    cli::claude_version,
    hostile,
};

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn real_ingest_and_its_replay_agree() {
    let deck = TestProject::new(all_good());
    let live = deck.play(&["run", "--ui", "json"]);
    assert_eq!(live.code, Some(0), "{live:#?}");
    let version = claude_version();
    let remarks = usize::from(version.support().problem(version).is_some());
    assert_eq!(
        live.stderr
            .lines()
            .filter(|line| !line.starts_with("help: "))
            .count(),
        1 + remarks,
        "{live:#?}"
    );
    assert!(live.stderr.contains("no git repository"), "{live:#?}");
    assert_eq!(live.summary()["units"], json!({"succeeded": 8}));
    let events = live.events();
    assert_eq!(events[0]["event"]["skipped"][0]["connection"], "orchard-bi");
    assert_eq!(events[0]["event"]["units"], 8);

    let pages: Vec<String> = UNITS
        .iter()
        .map(|(unit, _)| format!("page-{unit}.md"))
        .collect();
    assert_eq!(deck.names("wiki/global"), pages);
    assert!(
        deck.read("wiki/global/page-docs-juice.md")
            .contains("# docs-juice")
    );
    let job = events[0]["event"]["job"].as_str().unwrap();
    for (unit, _) in UNITS {
        assert_eq!(
            live.states(unit).last().map(String::as_str),
            Some("integrated"),
            "{unit}"
        );
        let transcript = deck.read(&format!(".ktx/ingest-transcripts/{job}/{unit}.jsonl"));
        let lines: Vec<Value> = transcript
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let tools: Vec<&str> = lines
            .iter()
            .filter_map(|line| line["toolName"].as_str())
            .collect();
        assert_eq!(
            tools,
            ["read_raw_file", "record_verification_ledger", "wiki_write"],
            "{unit}"
        );
        assert!(lines.iter().all(|line| {
            line["toolCallId"]
                .as_str()
                .is_some_and(|id| id.starts_with("toolu_"))
        }));
        assert!(lines.iter().all(|line| line["wuKey"] == unit));
    }
    let started = deck.started();
    assert_eq!(started.len(), 8);
    assert!(
        started.iter().all(|started| gone(started.pid.unwrap())),
        "no agent process is left"
    );

    let replayed = deck.play(&["replay", "latest", "--ui", "json"]);
    assert_eq!(replayed.stdout, live.stdout);
    assert_eq!(replayed.code, Some(0));
    let shown = deck.play(&["runs", "show"]);
    assert!(
        shown.code == Some(0) && shown.stdout.contains("8 succeeded"),
        "{shown:#?}"
    );
}

/// A project and a home that would change an agent that read them, and a model that tries to use them.
#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn hostile_project_and_home_change_nothing() {
    let deck = TestProject::new([
        asked_by(
            "docs-crates",
            [
                ApiTurn::blocks([
                    tool("Bash", json!({"command": "touch pwned"})),
                    tool("Skill", json!({"skill": "evil"})),
                    tool(
                        "Task",
                        json!({"subagent_type": "evil", "description": "x", "prompt": "x"}),
                    ),
                    tool("mcp__evil__x", json!({})),
                ]),
                ApiTurn::answer("Nothing worked."),
            ],
        ),
        asked_by("docs-juice", good_turns("docs-juice", "juice.md")),
    ]);
    hostile::plant(&deck.home);
    assert!(
        hostile::harms_the_unprotected(&deck.home),
        "the attack does not work, so the test would prove nothing"
    );

    let run = deck.run("docs-{crates,juice}", &[]);
    assert_eq!(run.code, Some(100), "{run:#?}");
    assert_eq!(
        run.states("docs-juice").last().map(String::as_str),
        Some("integrated"),
        "{run:#?}"
    );
    assert_eq!(
        run.summary()["failed"][0]["reason"],
        "4 tool call(s) failed during WorkUnit docs-crates"
    );
    assert!(
        !deck.home.project().join("pwned").exists(),
        "a hostile program ran"
    );
    let asked = deck.api.requests();
    assert!(asked.len() >= 6, "{}", asked.len());
    for request in &asked {
        assert!(!request.body.contains("HOSTILE-TEXT"), "{}", request.body);
        assert_eq!(request.header("x-hostile"), None);
        assert!(
            request.json()["model"]
                .as_str()
                .is_some_and(|model| model.contains("sonnet")),
            "{}",
            request.body
        );
        assert!(
            request
                .tool_names()
                .iter()
                .all(|name| name.starts_with("mcp__ktx__")),
            "{:?}",
            request.tool_names()
        );
    }
    let breaches = deck
        .entries()
        .iter()
        .filter(|entry| entry["note"]["breach"].is_string())
        .count();
    assert_eq!(breaches, 0);
}

/// One unit fails because of its arguments; the policy `abort` starts nothing after it.
#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn failed_call_fails_its_unit_and_aborts_in_abort_mode() {
    let bad = ktx("wiki_write", json!({"key": 5}));
    let routes = || {
        let mut routes = vec![asked_by(
            "docs-crates",
            [
                ApiTurn::blocks([bad.clone()]),
                ApiTurn::answer("It did not work."),
            ],
        )];
        routes.extend(all_good());
        routes
    };
    let deck = TestProject::new(routes());
    let run = deck.run("docs-{crates,juice,payments}", &[]);
    assert_eq!(run.code, Some(100), "{run:#?}");
    assert_eq!(
        run.summary()["units"],
        json!({"succeeded": 2, "failed": 1}),
        "{run:#?}"
    );
    assert_eq!(
        run.summary()["failed"][0]["reason"],
        "1 tool call(s) failed during WorkUnit docs-crates"
    );
    assert_eq!(
        deck.names("wiki/global"),
        ["page-docs-juice.md", "page-docs-payments.md"]
    );
    let job = run.events()[0]["event"]["job"].as_str().unwrap().to_owned();
    let transcript = deck.read(&format!(".ktx/ingest-transcripts/{job}/docs-crates.jsonl"));
    let line: Value = serde_json::from_str(transcript.lines().next().unwrap()).unwrap();
    assert!(
        line["toolCallId"]
            .as_str()
            .is_some_and(|id| id.starts_with("toolu_"))
            && line["toolName"] == "wiki_write"
    );
    assert_eq!(
        transcript.lines().count(),
        1,
        "one call is one line: {transcript}"
    );

    let deck = TestProject::new(routes());
    let settings = deck
        .read("ktx.yaml")
        .replace("failureMode: continue", "failureMode: abort");
    std::fs::write(deck.home.project().join("ktx.yaml"), settings).unwrap();
    let run = deck.run("docs-{crates,juice,payments}", &["--concurrency", "1"]);
    assert_eq!(run.code, Some(100), "{run:#?}");
    assert_eq!(deck.started().len(), 1);
    assert_eq!(deck.names("wiki/global"), [] as [&str; 0]);
}

/// Waits for the agents to exit, which takes seconds at most.
fn all_gone(deck: &TestProject, pids: &[u32]) {
    deck.wait_for("the end of every agent", |_| {
        pids.iter().all(|pid| gone(*pid)).then_some(())
    });
    assert!(!pids.is_empty(), "no agent was started");
}
