//! A recorded run that is rehearsed with other rules: the recorded answers play the model.

use serde_json::{Value, json};

use super::test_project::{TestProject, asked_by, good_turns, ktx};
use crate::{
    formats::schemas::RehearsalLine,
    support::{api::ApiTurn, git::git},
};

const STRICT: &str = "[policy]\ndeny = [\"wiki_write arg:page-docs-seasons\"]\n";

/// A night of three units: one is good, one has a failed call, and a rule denies a call of the third.
fn recorded() -> TestProject {
    let calls = [json!({"path": 1}), json!({})].into_iter();
    let recovered = calls
        .map(|arguments| ApiTurn::blocks([ktx("wiki_list_tags", arguments)]))
        .chain(good_turns("docs-juice", "juice.md"));
    let deck = TestProject::new([
        asked_by("docs-crates", good_turns("docs-crates", "crates.md")),
        asked_by("docs-juice", recovered),
        asked_by("docs-seasons", good_turns("docs-seasons", "seasons.md")),
    ])
    .set(STRICT);
    let project = deck.home.project();
    for args in [
        &["init", "--quiet", "--initial-branch=main"][..],
        &["add", "--all"],
        &["commit", "--quiet", "-m", "start"],
    ] {
        git(&project, args);
    }
    let run = deck.run("docs-{crates,juice,seasons}", &[]);
    assert_eq!(run.code, Some(100), "{run:#?}");
    assert_eq!(
        run.summary()["units"],
        json!({"succeeded": 1, "failed": 2}),
        "{:#?}",
        run.summary()
    );
    deck
}

/// The rows of a rehearsal, by unit.
fn rehearse(deck: &TestProject, more: &[&str]) -> Vec<Value> {
    let args = ["run", "--rehearse", "latest", "--ui", "json"];
    let played = deck.play(&[&args[..], more].concat());
    assert_eq!(played.code, Some(0), "{played:#?}");
    let rows = played.stdout.lines();
    let mut rows: Vec<Value> = rows.map(|row| serde_json::from_str(row).unwrap()).collect();
    for row in &rows {
        let line: RehearsalLine = serde_json::from_value(row.clone()).expect("as published");
        assert_eq!(serde_json::to_value(line).unwrap(), *row);
    }
    rows.sort_by_key(|row| row["unit"].to_string());
    rows
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn rehearsal_shows_what_other_rules_would_change() {
    let deck = recorded();
    let head = git(&deck.home.project(), &["rev-parse", "HEAD"]);
    let requests = deck.api.requests().len();
    let results = |rows: &[Value]| -> Vec<String> {
        let result = |row: &Value| row["result"].as_str().unwrap().to_owned();
        rows.iter().map(result).collect()
    };
    let same = rehearse(&deck, &[]);
    assert_eq!(results(&same), ["same", "same", "same"], "{same:#?}");
    assert!(same.iter().all(|row| row["request"].is_null()), "{same:#?}");

    let deck = {
        let path = deck.home.path().join(".config/ingestdeck/config.toml");
        let settings = std::fs::read_to_string(&path).unwrap().replace(STRICT, "");
        std::fs::write(&path, settings).unwrap();
        deck.set("[ingest]\ntool_failures = \"recoverable\"\n")
    };
    let other = rehearse(&deck, &[]);
    assert_eq!(
        results(&other),
        ["same", "changes", "record ends"],
        "{other:#?}"
    );
    let (juice, seasons) = (&other[1], &other[2]);
    assert!(
        juice["then"].to_string().contains("failed")
            && juice["now"].to_string().contains("completed"),
        "{juice}"
    );
    assert_eq!(
        (&seasons["call"], &seasons["now"]),
        (&json!(3), &Value::Null),
        "{seasons}"
    );
    assert!(
        seasons["tool"].to_string().contains("wiki_write"),
        "{seasons}"
    );
    let one = rehearse(&deck, &["docs-j*"]);
    assert_eq!(results(&one), ["changes"]);
    assert_eq!(deck.api.requests().len(), requests, "no model was asked");
    assert_eq!(git(&deck.home.project(), &["rev-parse", "HEAD"]), head);
    assert_eq!(deck.tapes().len(), 1);
}
