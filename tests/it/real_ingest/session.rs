//! `session` as a command.

use super::deck::{Deck, Played};
use crate::support::api::{Route, Turn};

/// The id in the resume line, which is the last line of stdout.
fn resume_id(played: &Played) -> String {
    let last = played.stdout.lines().last().unwrap_or_default();
    let id = last.strip_prefix("`claude --resume ").and_then(|rest| rest.strip_suffix('`'));
    id.unwrap_or_else(|| panic!("no resume line: {played:#?}")).to_owned()
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn a_session_is_resumed_under_its_own_id() {
    let deck = Deck::new([
        Route::on("second question", [Turn::says("second answer")]),
        Route::on("first question", [Turn::says("first answer")]),
    ]);
    let first = deck.play(&["session", "--", "first question"]);
    assert_eq!(first.code, Some(0), "{first:#?}");
    assert!(first.stdout.contains("first answer"), "{first:#?}");
    let id = resume_id(&first);

    let second = deck.play(&["session", "--resume", &id, "--", "second question"]);
    assert_eq!(second.code, Some(0), "{second:#?}");
    assert_eq!(resume_id(&second), id);
    let last = deck.api.requests().pop().unwrap();
    assert!(["first question", "first answer", "second question"].iter().all(|part| last.body.contains(part)));

    let json = deck.play(&["session", "--ui", "json", "--resume", &id, "--", "second question"]);
    let mut events = json.events().into_iter().map(|mut event| event["event"].take());
    let completed = events.rfind(|event| event["type"] == "completed").unwrap();
    assert_eq!((&completed["ok"], &completed["answer"]), (&true.into(), &"second answer".into()));
    assert_eq!(completed["resume"]["value"], id.as_str());
    assert_eq!(deck.tapes().len(), 3);
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn an_unknown_session_fails_in_the_words_of_the_agent() {
    let deck = Deck::new([Route::any([Turn::says("never asked")])]);
    let id = "00000000-0000-4000-8000-000000000000";
    let played = deck.play(&["session", "--resume", id, "--", "hello"]);
    assert_eq!(played.code, Some(100), "{played:#?}");
    let sentence = format!("No conversation found with session ID: {id}");
    assert!((played.stdout.clone() + &played.stderr).contains(&sentence), "{played:#?}");
    assert!(deck.api.requests().is_empty());
}
