//! A review with the real CLI: a change that is sent back is made again in its session.

use serde_json::{Value, json};

use super::test_project::{TestProject, asked_by, good_turns, ktx};
use crate::{
    it::support::api::ApiTurn,
    tape::{Note, note::ReviewDecision},
};

const OWNER: &str = "The orchard team owns it.";

/// The lines of `review --list`, once the run waits for a review.
fn listed(deck: &TestProject) -> Vec<Value> {
    loop {
        let shown = deck.play(&["review", "--list", "--ui", "json"]);
        if shown.code == Some(103) {
            return shown.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        }
        assert_eq!(shown.code, Some(4), "{shown:#?}");
    }
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn page_sent_back_is_written_again_in_its_session() {
    let ledger = json!({"summary": "Read it.", "verifiedIdentifiers": [], "unverifiedIdentifiers": []});
    let page = json!({
        "key": "page-docs-juice", "summary": "Juice", "content": format!("# Juice\n\n{OWNER}\n"), "rawPaths": ["juice.md"],
    });
    let again = [
        ApiTurn::blocks([ktx("record_verification_ledger", ledger)]),
        ApiTurn::blocks([ktx("wiki_write", page)]),
        ApiTurn::answer("It names the owner now."),
    ];
    let juice = good_turns("docs-juice", "juice.md").into_iter().chain(again);
    let routes = [asked_by("docs-juice", juice), asked_by("docs-crates", good_turns("docs-crates", "crates.md"))];
    let deck = TestProject::new(routes);
    let args = ["run", "--review", "--detach", "--ui", "json", "--only", "docs-juice", "--only", "docs-crates"];
    let launched = deck.play(&args);
    assert_eq!(launched.code, Some(0), "{launched:#?}");
    assert_eq!(listed(&deck).len(), 3, "two changes and their counts");
    let back = ["review", "--send-back", "unit:docs-juice", "--feedback", "Name the owner.", "--accept", "*"];
    let sent = deck.play(&back);
    // The new attempt may have ended already, so that the run waits again.
    assert!(matches!(sent.code, Some(0 | 103)), "{sent:#?}");
    assert_eq!(deck.names("wiki/global"), Vec::<String>::new(), "nothing is committed yet");
    let lines = listed(&deck);
    let decision = |path: &str| lines.iter().find(|line| line["path"] == path).unwrap()["decision"].clone();
    assert_eq!(decision("wiki/global/page-docs-crates.md"), "accepted");
    assert_eq!(decision("wiki/global/page-docs-juice.md"), "open");
    let saved = deck.play(&["review", "--accept", "*/page-docs-juice.md"]);
    assert_eq!(saved.code, Some(0), "{saved:#?}");
    assert!(deck.read("wiki/global/page-docs-juice.md").contains(OWNER));
    assert_eq!(deck.names("wiki/global").len(), 2);

    let started = deck.started();
    let of_juice: Vec<_> =
        started.iter().filter(|started| started.argv.iter().any(|arg| arg.starts_with("--resume="))).collect();
    assert_eq!((started.len(), of_juice.len()), (3, 1), "the second attempt resumed the session");
    let notes = deck.notes();
    let saved = notes.iter().filter(|note| matches!(note, Note::RunSaved(saved) if saved.commit.is_some()));
    assert_eq!(saved.count(), 1, "one commit");
    let sent_back =
        |note: &&Note| matches!(note, Note::ReviewDecided(decided) if decided.decision == ReviewDecision::SentBack);
    assert_eq!(notes.iter().filter(sent_back).count(), 1);
    let requests = deck.api.requests();
    assert!(requests.iter().any(|request| request.json().to_string().contains("Name the owner.")));
}
