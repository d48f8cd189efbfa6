//! `find`: words of recorded runs, its filters, what it leaves out, and hostile databases.

use std::fs;

use serde_json::Value;

use super::{
    test_dir::{CommandOutput, TestDir},
    workers::{claude_of, project},
};

/// A project with a run in which every unit writes a page.
fn recorded() -> TestDir {
    let place = project();
    ingest(&place);
    place
}

fn ingest(place: &TestDir) {
    let claude = claude_of(place, "ann", "script.toml");
    let run = place.run(&[
        "run",
        "--full",
        "--no-reconcile",
        "--ui",
        "none",
        "--claude-bin",
        claude.to_str().unwrap(),
    ]);
    assert_eq!(run.code, Some(0), "{run:?}");
}

fn rows(found: &CommandOutput) -> Vec<Value> {
    assert_eq!(found.code, Some(0), "{found:?}");
    let lines = found.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn find(place: &TestDir, args: &[&str]) -> Vec<Value> {
    rows(&place.run(&[&["find", "--ui", "json"], args].concat()))
}

#[test]
fn entries_are_found_and_selected() {
    let place = recorded();
    let found = find(&place, &["growers.md"]);
    let kinds = |kind: &str| found.iter().filter(|row| row["kind"] == kind).count();
    assert!(kinds("call") > 0, "{found:#?}");
    for row in &found {
        assert!(row["text"].as_str().unwrap().contains("growers"), "{row}");
    }
    let calls = find(&place, &["growers.md", "--tool", "read_raw_file"]);
    assert!(!calls.is_empty());
    assert!(
        calls
            .iter()
            .all(|row| row["tool"] == "mcp__ktx__read_raw_file"),
        "{calls:#?}"
    );
    let of_unit = find(&place, &["mcp__ktx__wiki_write", "--unit", "docs-gr*"]);
    assert!(!of_unit.is_empty() && of_unit.iter().all(|row| row["unit"] == "docs-growers"));
    assert_eq!(
        find(&place, &["growers.md", "nosuchword"]),
        [Value::Null; 0]
    );
    assert_eq!(find(&place, &["growers.md", "--failed"]), [Value::Null; 0]);
    assert_eq!(
        find(&place, &["growers.md", "--until", "2020-01-01"]),
        [Value::Null; 0]
    );
    assert_eq!(find(&place, &["growers.md", "--limit", "1"]).len(), 1);
    let beginnings = find(&place, &["grow*"]);
    assert!(beginnings.len() >= found.len(), "{beginnings:#?}");
}

/// What SQLite would take for an operator is a text.
#[test]
fn texts_are_no_query_language() {
    let place = recorded();
    for text in ["growers OR nosuchword", "body:growers", "NOT growers"] {
        assert_eq!(find(&place, &[text]), [Value::Null; 0], "{text}");
    }
    let refused = place.run(&["find", "***"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
}

/// Every word of the tape is found in its run, as `rg --word-regexp` finds it.
#[test]
fn every_word_of_a_tape_is_found() {
    let place = recorded();
    let runs = fs::read_dir(place.path(".ktx/ingestdeck/runs")).unwrap();
    let tape = runs.last().unwrap().unwrap().path().join("tape.jsonl");
    let tape = fs::read_to_string(tape).unwrap();
    let entries = tape
        .lines()
        .skip(1)
        .filter(|line| !line.contains("\"stream_event\""));
    let mut words: Vec<&str> = entries
        .flat_map(|line| {
            let body = line.split_once(",\"out\":").map_or("", |(_, body)| body);
            body.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        })
        .filter(|word| word.len() > 4 && word.chars().all(|c| c.is_ascii_lowercase()))
        .collect();
    words.sort_unstable();
    words.dedup();
    assert!(words.len() > 30, "{words:?}");
    for word in words.iter().step_by(words.len() / 30) {
        assert!(!find(&place, &[word, "--limit", "1"]).is_empty(), "{word}");
    }
}

#[test]
fn words_of_pruned_runs_are_deleted() {
    let place = project();
    let file = "handbook/growers.md";
    let content = fs::read_to_string(place.path(file)).unwrap();
    place.write(file, format!("{content}\nGrowers in Zanzibar.\n"));
    ingest(&place);
    assert!(!find(&place, &["zanzibar"]).is_empty());
    let words = || fs::read(place.path(".ktx/ingestdeck/text.sqlite")).unwrap();
    let has_word = |file: &[u8]| file.windows(8).any(|part| part == b"zanzibar");
    assert!(has_word(&words()));
    // The newest run is needed.
    place.write(file, content);
    ingest(&place);
    place
        .run(&["runs", "prune", "--keep", "0"])
        .expect_success();
    assert_eq!(find(&place, &["zanzibar"]), [Value::Null; 0]);
    assert!(!find(&place, &["growers"]).is_empty());
    assert!(!has_word(&words()));
}

/// A clone may contain any file in the place of the database.
#[test]
fn foreign_databases_are_refused_or_replaced() {
    let place = recorded();
    let file = ".ktx/ingestdeck/text.sqlite";
    place.write(file, "not a database");
    assert!(!find(&place, &["growers.md"]).is_empty());
    fs::remove_file(place.path(file)).unwrap();
    let victim = place.write("victim", "mine");
    std::os::unix::fs::symlink(&victim, place.path(file)).unwrap();
    let refused = place.run(&["find", "growers.md"]);
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert_eq!(fs::read_to_string(victim).unwrap(), "mine");
}
