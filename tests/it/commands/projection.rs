//! Sources of semantic models: written and committed before any unit runs, in the plan, on the record and in reports.

use std::fs;

use serde_json::{Value, json};

use super::{
    place::{Place, Ran},
    whole::{git, is_clean, subjects},
};

const READS: &str = "[[part]]\nsteps = [{ say = \"read\" }]\n";

const ORDERS: &str = "semantic_models:
  - name: orders
    model: ref('fct_orders')
    entities: [{name: order_id, type: primary}, {name: customer, type: foreign, expr: customer_id}]
    dimensions:
      - {name: ordered_at, type: time}
      - {name: month, type: time, expr: \"date_trunc('month', o.ordered_at)\"}
    measures: [{name: revenue, agg: sum, expr: amount}]
metrics:
  - {name: running, type: cumulative, type_params: {measure: revenue}}
";

const CUSTOMERS: &str = "semantic_models:
  - name: customers
    model: ref('customers')
    entities: [{name: customer, type: primary, expr: customer_id}]
    dimensions: [{name: region, type: categorical}]
";

/// Has no dimension, which leaves its source without a grain.
const BARE: &str =
    "semantic_models:\n  - {name: bare, model: ref('bare'), entities: [{name: customer, type: foreign}]}\n";

fn flow() -> Place {
    let place = Place::new();
    place.write("ktx.yaml", "connections:\n  flow: {driver: metricflow, source_dir: flow}\n");
    for (name, text) in [("orders", ORDERS), ("customers", CUSTOMERS), ("bare", BARE)] {
        place.write(&format!("flow/{name}.yml"), text);
    }
    place
}

fn begin(place: &Place) {
    place.write(".gitignore", "script.toml\n");
    git(place, &["init", "--quiet", "--initial-branch=main"]);
    commit(place);
}

fn commit(place: &Place) {
    git(place, &["add", "--all"]);
    git(place, &["commit", "--quiet", "--message=By hand"]);
}

fn run(place: &Place, more: &[&str]) -> Ran {
    let claude = place.player(READS);
    place.run(&[&["run", "--claude-bin", claude.to_str().unwrap(), "--ui", "lines"], more].concat())
}

/// The newest tape.
fn tape(place: &Place) -> String {
    let runs = fs::read_dir(place.path(".ktx/ingestdeck/runs")).unwrap();
    let newest = runs.map(|entry| entry.unwrap().path()).max().unwrap();
    fs::read_to_string(newest.join("tape.jsonl")).unwrap()
}

fn projected(tape: &str) -> Option<Value> {
    let notes = tape.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["note"].take());
    notes.into_iter().find(|note| note["kind"] == "projected")
}

fn source(place: &Place, name: &str) -> String {
    fs::read_to_string(place.path(&format!("semantic-layer/flow/{name}.yaml"))).unwrap_or_default()
}

#[test]
fn sources_of_semantic_models_are_committed_first() {
    let place = flow();
    begin(&place);
    let plan = place.run(&["plan"]);
    let line = "flow: up to 3 sources written from semantic models before the units run: bare, customers, fct_orders\n";
    assert!(plan.done().contains(line), "{plan:?}");
    assert!(plan.stdout.contains("  left to the units: cumulative metric running has no counterpart\n"), "{plan:?}");
    let plan = place.run(&["plan", "--ui", "json"]);
    let object: Value = serde_json::from_str(plan.done().lines().last().unwrap()).unwrap();
    assert_eq!((&object["connection"], &object["projected"][2]), (&json!("flow"), &json!("fct_orders")));

    let ran = run(&place, &[]);
    let line = "2 sources of semantic models written before the units: customers, fct_orders, commit ";
    assert!(ran.done().contains(line), "{ran:?}");
    let subjects = subjects(&place);
    assert_eq!(subjects.len(), 2, "the units wrote nothing: {subjects:?}");
    assert!(subjects[0].starts_with("ingest(metricflow): deterministic projection syncId=20"), "{subjects:?}");
    let files = git(&place, &["show", "--name-only", "--format=", "HEAD"]);
    assert_eq!(files, "semantic-layer/flow/customers.yaml\nsemantic-layer/flow/fct_orders.yaml\n");
    is_clean(&place);
    insta::assert_snapshot!(source(&place, "fct_orders"));

    let tape = tape(&place);
    let note = projected(&tape).unwrap();
    let head = git(&place, &["rev-parse", "HEAD"]);
    assert_eq!(note["commit"], head.trim());
    assert_eq!(note["actions"][1]["rawPaths"], json!(["orders.yml"]));
    assert!(note["left_out"].to_string().contains("source bare: it has no grain"), "{note}");
    assert!(tape.contains("## flow\\\\n") || tape.contains("## flow"), "units are told of them");
    let report = place.run(&["report", "--format", "json"]);
    let report: Value = serde_json::from_str(report.done()).unwrap();
    assert_eq!(report["body"]["isolatedDiff"]["projectionSha"], head.trim());
    assert_eq!(report["body"]["ingestdeck"]["projection"]["actions"][0]["key"], "customers");
    let report = place.run(&["report"]);
    assert!(report.done().contains("* 2 sources of semantic models written before the units"), "{report:?}");
    let trace = place.run(&["runs", "export", "--format", "trace"]);
    assert!(trace.done().contains("deterministic_projection_committed"), "{trace:?}");
}

#[test]
fn edited_sources_of_unchanged_models_stay() {
    let place = flow();
    begin(&place);
    run(&place, &[]).done();
    let edited = source(&place, "fct_orders").replace("sum(amount)", "sum(amount) - sum(refunds)");
    place.write("semantic-layer/flow/fct_orders.yaml", &edited);
    place.write("flow/customers.yml", CUSTOMERS.replace("region", "country"));
    commit(&place);
    run(&place, &[]).done();
    assert!(source(&place, "customers").contains("country") && source(&place, "fct_orders") == edited);
    let changes = git(&place, &["show", "--name-only", "--format=", "HEAD"]);
    assert_eq!(changes, "semantic-layer/flow/customers.yaml\n");
    assert_eq!(projected(&tape(&place)).unwrap()["actions"][0]["type"], "updated");
    // Once they are as they should be, nothing is written and nothing is said.
    run(&place, &["--only", "metricflow-customers"]).done();
    assert_eq!((subjects(&place).len(), projected(&tape(&place))), (4, None));
}

#[test]
fn sources_are_written_without_history_too() {
    let place = flow();
    run(&place, &["--only", "metricflow-orders"]).done();
    assert!(source(&place, "fct_orders").contains("table: fct_orders"));
    assert_eq!(source(&place, "customers"), "", "its unit was not asked for");
    let note = projected(&tape(&place)).unwrap();
    assert_eq!((&note["paths"], note.get("commit")), (&json!(["semantic-layer/flow/fct_orders.yaml"]), None));
    assert!(!source(&place, "fct_orders").contains("to: customers"), "a join needs its target");
}

#[test]
fn units_run_although_sources_cannot_be_written() {
    let place = flow();
    place.write("wiki/global/page.md", "---\nsummary: A page\n---\n\nText.\n");
    place.write("semantic-layer/flow/fct_orders.yaml/file", "in the way\n");
    run(&place, &[]).done();
    let tape = tape(&place);
    let note = projected(&tape).unwrap();
    assert!(note["reason"].as_str().is_some_and(|why| why.contains("fct_orders.yaml")), "{note}");
    assert_eq!(source(&place, "customers"), "");
    let report = place.run(&["report"]);
    assert!(report.done().contains("the sources of semantic models are not written"), "{report:?}");
}
