//! A service that is busy, or whose usage limit is reached.

use serde_json::json;

use super::test_project::{TestProject, asked_by, good_turns, ktx};
use crate::support::api::{ApiFault, ApiTurn};
use ingestdeck_core::tape::{Note, note::ContinuedWork};

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn busy_service_is_retried_within_the_attempt() {
    let turns = [ApiTurn::rate_limited(1)]
        .into_iter()
        .chain(good_turns("docs-crates", "crates.md"));
    let deck = TestProject::new([asked_by("docs-crates", turns)]);
    let run = deck.run("docs-crates", &[]);
    assert_eq!(run.code, Some(0), "{run:#?}");
    assert_eq!(deck.started().len(), 1, "the agent retries by itself");
    assert!(
        deck.entries()
            .iter()
            .any(|entry| entry["out"]["subtype"] == "api_retry")
    );
    // The event stream is the agent's, which has no event for a busy service. The screen shows it; see `screen`.
    assert_eq!(
        run.states("docs-crates"),
        ["queued", "running", "succeeded", "integrated"]
    );
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn used_up_window_pauses_the_run_without_a_retry() {
    let turns = [ApiTurn::usage_limit(5)]
        .into_iter()
        .chain(good_turns("docs-crates", "crates.md"));
    let deck = TestProject::new([
        asked_by("docs-crates", turns),
        asked_by("docs-juice", good_turns("docs-juice", "juice.md")),
    ])
    .subscribed()
    .set("[retry]\nmax_retries = 0\n");
    let run = deck.run("docs-{crates,juice}", &["--concurrency", "1"]);
    assert_eq!(run.code, Some(0), "{run:#?}");
    assert_eq!(
        run.run_states(),
        [
            "planned",
            "paused",
            "resumed",
            "integrating",
            "saved",
            "ended",
            "summary"
        ]
    );
    assert_eq!(run.summary()["units"], json!({"succeeded": 2}));
    let notes = deck
        .entries()
        .into_iter()
        .map(|mut entry| entry["note"].take());
    let kinds: Vec<String> = notes
        .filter_map(|note| Some(note["kind"].as_str()?.to_owned()))
        .collect();
    assert_eq!(
        kinds
            .iter()
            .filter(|kind| *kind == "attempt_started")
            .count(),
        3,
        "{kinds:?}"
    );
    let lifted = kinds
        .iter()
        .position(|kind| kind == "limit_lifted")
        .unwrap();
    let before = kinds[..lifted]
        .iter()
        .filter(|kind| *kind == "attempt_started")
        .count();
    assert_eq!(before, 1, "nothing starts during the pause: {kinds:?}");
    assert_eq!(deck.names("wiki/global").len(), 2);
    assert_eq!(
        deck.play(&["replay", "latest", "--ui", "json"]).stdout,
        run.stdout
    );
}

/// Like [`good_turns`], but `cut` comes after the changes.
fn turns_with(cut: ApiTurn) -> Vec<ApiTurn> {
    let mut turns = good_turns("docs-crates", "crates.md").to_vec();
    turns.insert(3, cut);
    turns
}

/// The `continued` notes of the newest tape.
fn continued(deck: &TestProject) -> Vec<ContinuedWork> {
    let notes = deck.notes().into_iter();
    notes
        .filter_map(|note| match note {
            Note::WorkContinued(work) => Some(work),
            _ => None,
        })
        .collect()
}

/// The requests whose newest message is `text`.
fn asked(deck: &TestProject, text: &str) -> usize {
    let requests = deck.api.requests();
    let asks = requests.iter().filter(|request| {
        let body = request.json();
        let last = body["messages"].as_array().and_then(|all| all.last());
        last.is_some_and(|last| last["role"] == "user" && last.to_string().contains(text))
    });
    asks.count()
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn limited_unit_continues_in_its_session_at_the_reset() {
    let deck = TestProject::new([asked_by("docs-crates", turns_with(ApiTurn::usage_limit(5)))])
        .subscribed()
        .set("[retry]\nmax_retries = 0\n");
    let run = deck.run("docs-crates", &["--step-budget", "9"]);
    assert_eq!(run.code, Some(0), "{run:#?}");
    assert_eq!(run.summary()["units"], json!({"succeeded": 1}));
    let [first, second] = &deck.started()[..] else {
        panic!("two attempts: {run:#?}")
    };
    let session = first.argv.last().unwrap().strip_prefix("--session-id=");
    assert_eq!(
        second.argv.last().unwrap().strip_prefix("--resume="),
        session
    );
    assert_eq!((first.step_budget, second.step_budget), (9, 6));
    assert_eq!(second.prompt, "Continue with the task");
    let work = continued(&deck);
    assert_eq!((work.len(), work[0].attempt, work[0].turns), (1, 1, 3));
    assert!(work[0].tokens > 0 && work[0].run.is_none(), "{work:?}");
    let checks = deck.entries();
    let checks = checks
        .iter()
        .filter(|entry| entry["note"]["kind"] == "isolation_checked");
    let held = checks.filter(|entry| entry["note"].get("breach") == Some(&json!(null)));
    assert_eq!(held.count(), 2, "the isolation is proved again");
    assert_eq!(asked(&deck, "Continue with the task"), 1);
    assert_eq!(deck.names("wiki/global"), ["page-docs-crates.md"]);
    let saved = &run.summary()["continued"];
    assert_eq!(
        (&saved["units"], &saved["tokens"]),
        (&json!(1), &json!(work[0].tokens))
    );
    let lines = deck.play(&["replay", "latest", "--ui", "lines"]);
    assert!(
        (lines.stdout.clone() + &lines.stderr).contains("continues attempt 1: saved about "),
        "{lines:#?}"
    );
    assert_eq!(
        deck.play(&["replay", "latest", "--ui", "json"]).stdout,
        run.stdout
    );
    // Every turn is paid once.
    let reported: f64 = deck
        .entries()
        .iter()
        .filter_map(|entry| entry["out"]["total_cost_usd"].as_f64())
        .fold(0.0, f64::max);
    let cost = run.summary()["cost_usd"].as_f64().unwrap();
    assert!((cost - reported).abs() < 1e-9, "{cost} is not {reported}");
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn unit_of_a_killed_engine_continues_in_its_session() {
    let cut = ApiTurn::answer("").fault(ApiFault::Stall);
    let deck = TestProject::new([asked_by("docs-crates", turns_with(cut))]);
    let mut running = deck
        .command(["run", "--ui", "none", "--only", "docs-crates"])
        .spawn()
        .unwrap();
    deck.api.wait_for_requests(4, super::test_project::LIMIT);
    running.kill().unwrap();
    running.wait().unwrap();
    let started = deck.started();
    super::all_gone(&deck, &[started[0].pid.unwrap()]);
    let session = started[0].argv.last().unwrap().replace("--session-id", "");

    let plan = deck.play(&["plan", "--ui", "json", "--resume-run", "latest"]);
    assert!(
        plan.stdout.contains("; continues in its session"),
        "{plan:#?}"
    );
    let run = deck.play(&["run", "--ui", "json", "--resume-run", "latest"]);
    assert_eq!(run.code, Some(0), "{run:#?}");
    assert_eq!(run.summary()["units"], json!({"succeeded": 1}));
    let started = deck.started();
    assert_eq!(
        started[0].argv.last().unwrap(),
        &format!("--resume{session}")
    );
    let work = continued(&deck);
    assert_eq!((work.len(), work[0].attempt, work[0].turns), (1, 1, 3));
    assert!(work[0].run.is_some(), "{work:?}");
    let summary = run.summary();
    assert!(
        summary["cost_partial"] == false && summary["cost_usd"].as_f64() > Some(0.0),
        "{summary}"
    );
    assert_eq!(asked(&deck, "Continue with the task"), 1);
    assert_eq!(deck.names("wiki/global"), ["page-docs-crates.md"]);

    // Its session has moved on, so the first run is continued from the start.
    let first = deck.tapes()[0].clone();
    let first = first
        .parent()
        .unwrap()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let plan = deck.play(&["plan", "--ui", "json", "--full", "--resume-run", &first]);
    assert!(
        !plan.stdout.contains("continues in its session"),
        "{plan:#?}"
    );
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn unit_with_a_failed_call_does_not_continue() {
    let turns = [
        ApiTurn::blocks([ktx("wiki_list_tags", json!({"path": 1}))]),
        ApiTurn::usage_limit(5),
    ];
    let turns = turns
        .into_iter()
        .chain(good_turns("docs-crates", "crates.md"));
    let deck = TestProject::new([asked_by("docs-crates", turns)]).subscribed();
    let run = deck.run("docs-crates", &[]);
    assert_eq!(run.code, Some(0), "{run:#?}");
    assert_eq!((deck.started().len(), continued(&deck).len()), (2, 0));
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn setting_never_begins_limited_units_from_the_start() {
    let mut turns = turns_with(ApiTurn::usage_limit(5));
    turns.truncate(4);
    turns.extend(good_turns("docs-crates", "crates.md"));
    let deck = TestProject::new([asked_by("docs-crates", turns)])
        .subscribed()
        .set("[ingest]\ncontinue = \"never\"\n");
    let run = deck.run("docs-crates", &[]);
    assert_eq!(run.code, Some(0), "{run:#?}");
    assert_eq!((deck.started().len(), continued(&deck).len()), (2, 0));
    assert_eq!(run.summary().get("continued"), None);
}

/// What becomes of the session file of a killed engine before the run is continued.
#[derive(Clone, Copy, Debug)]
enum SessionFileFault {
    Empty,
    Garbage,
    OtherSession,
    CutOff,
}

impl SessionFileFault {
    fn apply(self, path: &std::path::Path) {
        let text = std::fs::read_to_string(path).unwrap();
        let changed = match self {
            Self::Empty => String::new(),
            Self::Garbage => "\u{0}not a session\n".repeat(50),
            Self::OtherSession => {
                let own = path.file_stem().unwrap().to_str().unwrap();
                text.replace(own, "11111111-2222-4333-8444-555555555555")
            }
            Self::CutOff => text[..text.len() / 2].to_owned(),
        };
        std::fs::write(path, changed).unwrap();
    }
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn damaged_session_file_costs_no_unit() {
    for fault in [
        SessionFileFault::Empty,
        SessionFileFault::Garbage,
        SessionFileFault::OtherSession,
        SessionFileFault::CutOff,
    ] {
        let cut = ApiTurn::answer("").fault(ApiFault::Stall);
        let mut turns = turns_with(cut);
        turns.truncate(4);
        turns.extend(good_turns("docs-crates", "crates.md"));
        let deck = TestProject::new([asked_by("docs-crates", turns)]);
        let mut running = deck
            .command(["run", "--ui", "none", "--only", "docs-crates"])
            .spawn()
            .unwrap();
        deck.api.wait_for_requests(4, super::test_project::LIMIT);
        running.kill().unwrap();
        running.wait().unwrap();
        let started = deck.started();
        super::all_gone(&deck, &[started[0].pid.unwrap()]);
        let session = started[0].argv.last().unwrap();
        let session = session.strip_prefix("--session-id=").unwrap().to_owned();
        let mut folders = std::fs::read_dir(deck.home.path().join(".claude/projects")).unwrap();
        let file = folders.find_map(|folder| {
            let file = folder.unwrap().path().join(format!("{session}.jsonl"));
            file.is_file().then_some(file)
        });
        fault.apply(&file.unwrap());
        let run = deck.play(&["run", "--ui", "json", "--resume-run", "latest"]);
        assert_eq!(
            run.summary()["units"],
            json!({"succeeded": 1}),
            "{fault:?}: {run:#?}"
        );
        // Without a conversation in the file, the unit begins from the start, and nothing is saved.
        let is_lost = matches!(fault, SessionFileFault::Empty | SessionFileFault::Garbage);
        let attempts = deck.started();
        assert_eq!(attempts.len(), if is_lost { 2 } else { 1 }, "{fault:?}");
        assert_eq!(
            run.summary().get("continued").is_some(),
            !is_lost,
            "{fault:?}"
        );
        let lost = "docs-crates begins from the start: its session cannot be read";
        assert_eq!(run.stdout.contains(lost), is_lost, "{fault:?}");
    }
}
