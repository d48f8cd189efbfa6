//! Commands as a script meets them: what they print, where, and the number they end with.

use std::fs;

use serde_json::Value;

pub(crate) mod place;

mod agents;
mod broken;
mod records;
mod reports;
mod tools;

use self::place::Place;

#[test]
fn help_says_what_can_be_done() {
    let place = Place::new();
    for command in
        ["", "demo", "plan", "run", "replay", "session", "mcp", "report", "runs", "runs show", "doctor", "config"]
    {
        let mut words: Vec<&str> = command.split_whitespace().collect();
        words.push("-h");
        let help = place.run(&words);
        insta::assert_snapshot!(format!("help {command}").trim().replace(' ', "_"), help.done());
    }
}

#[test]
fn every_setting_has_a_default_and_says_so() {
    let place = Place::new();
    let shown = place.run(&["config", "show"]);
    insta::assert_snapshot!(shown.done());
    assert_eq!(shown.stderr, "");
}

#[test]
fn nonsense_is_answered_with_the_usage() {
    let place = Place::new();
    for words in [&[][..], &["bogus"], &["runs"], &["replay"], &["demo", "--speed", "fast"], &["plan", "--ui", "html"]]
    {
        let ran = place.run(words);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{words:?}: {ran:?}");
        assert!(ran.stderr.contains("Usage: ingestdeck") || ran.stderr.contains("try '--help'"), "{words:?}: {ran:?}");
    }
    for (words, sentence) in [
        (&["demo", "--speed", "0"][..], "--speed 0 is no pace; give a number above 0, such as 2"),
        (&["demo", "--speed", "NaN"], "--speed NaN is no pace; give a number above 0, such as 2"),
        (&["replay", "x.jsonl", "--speed", "inf"], "--speed inf is no pace; give a number above 0, such as 4"),
    ] {
        assert_eq!(place.run(words).refused(2), sentence);
    }
}

#[test]
fn a_plan_is_a_table_for_people_and_objects_for_programs() {
    let place = Place::new();
    place.notes(&["one", "two"]);
    let table = place.run(&["plan"]);
    insta::assert_snapshot!(table.done(), @r"
    docs-one    1 file   every run takes all files of its sources
    docs-two    1 file   every run takes all files of its sources
    2 units planned
    ");
    let objects = place.run(&["plan", "--ui", "json", "--only", "*-two"]);
    let object: Value = serde_json::from_str(objects.done()).expect("one object");
    assert_eq!(object["unit"], "docs-two");
    assert_eq!(object["rawFiles"], serde_json::json!(["two.md"]));
    let keys: Vec<&String> = object.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["unit", "connection", "adapter", "rawFiles", "dependencyPaths", "why"]);
    assert_eq!(place.run(&["plan", "--ui", "none"]).done(), "");
}

#[test]
fn a_project_is_found_from_below_and_by_name() {
    let place = Place::new();
    place.notes(&["one"]);
    fs::create_dir_all(place.path("deep/down")).unwrap();
    let mut below = place.command(&["plan"]);
    below.current_dir(place.path("deep/down"));
    assert!(place.ran(below).done().ends_with("1 unit planned\n"));
    let elsewhere = tempfile::tempdir().unwrap();
    let mut named = place.command(&["plan", "--project-dir"]);
    named.arg(place.path("")).current_dir(elsewhere.path());
    assert!(place.ran(named).done().ends_with("1 unit planned\n"));
    let mut variable = place.command(&["plan"]);
    variable.env("KTX_PROJECT_DIR", place.path("")).current_dir(elsewhere.path());
    assert!(place.ran(variable).done().ends_with("1 unit planned\n"));
}
