//! A service that is busy, or whose usage limit is reached.

use serde_json::json;

use super::test_project::{TestProject, asked_by, good_turns};
use crate::support::api::ApiTurn;

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
