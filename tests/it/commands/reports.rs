//! `report`, on what a user may name.

use std::{fs, path::Path};

use serde_json::Value;

use super::place::Place;

fn fixture(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(path).to_str().unwrap().to_owned()
}

/// A place with one recorded run.
fn recorded() -> Place {
    let place = Place::new();
    let tape = fs::read_to_string(fixture("tapes/real.jsonl")).unwrap();
    let run: Value = serde_json::from_str(tape.lines().next().unwrap()).unwrap();
    place.write(&format!(".ktx/ingestdeck/runs/{}/tape.jsonl", run["run"].as_str().unwrap()), tape);
    place
}

#[test]
fn a_run_is_reported_by_any_of_its_names() {
    let place = recorded();
    let latest = place.run(&["report"]);
    assert!(latest.done().starts_with("## Ingest partial: orchard · run 811a8c"), "{latest:?}");
    assert_eq!(place.run(&["report", "811a8c"]).done(), latest.stdout);
    assert_eq!(place.run(&["report", &fixture("tapes/real.jsonl")]).done(), latest.stdout);
    let json = place.run(&["report", "--ui", "json"]);
    assert_eq!(json.done(), place.run(&["report", "--format", "json"]).done());
    let connections: Vec<Value> = json.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ids: Vec<&str> = connections.iter().map(|report| report["connectionId"].as_str().unwrap()).collect();
    assert_eq!(ids, ["orchard-dbt", "orchard-handbook"]);
    let one = place.run(&["report", "--format", "json", "--connection", "orchard-dbt"]);
    assert_eq!(one.done().lines().count(), 1);
}

#[test]
fn a_report_goes_into_a_file() {
    let place = recorded();
    let out = place.path("report.xml");
    let ran = place.run(&["report", "--format", "junit", "--out", out.to_str().unwrap()]);
    assert_eq!((ran.done(), ran.stderr.as_str()), ("", ""));
    assert!(fs::read_to_string(&out).unwrap().contains("<testsuites name=\"orchard · run 811a8c\" tests=\"8\""));
    let nowhere = place.path("no/such/folder/report.xml");
    let said = place.run(&["report", "--out", nowhere.to_str().unwrap()]);
    assert!(said.refused(1).contains("name another file with --out"));
}

#[test]
fn what_cannot_be_reported() {
    let place = recorded();
    assert!(place.run(&["report", "ffffff"]).refused(4).contains("no run matches"));
    assert!(place.run(&["report", "missing.jsonl"]).refused(4).contains("there is no file missing.jsonl"));
    let ran = place.run(&["report", "--connection", "nowhere"]);
    assert!(ran.refused(4).ends_with("its connections are: orchard-dbt, orchard-handbook"));
    assert!(Place::new().run(&["report"]).refused(4).contains("no run is recorded in this project yet"));
}
