//! Sources of semantic models: written and committed before any unit runs, and named in the plan, on the tape and in
//! reports.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{
    end_to_end::{gated, git, is_clean, open_gate, pass, subjects},
    test_dir::{CommandOutput, TestDir},
};
use crate::support::git::PRIVATE_GIT_DIR;

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

const COUNTS: &str = "    measures: [{name: customer_count, agg: count, expr: customer_id}]\n";

/// Puts both semantic models into one unit.
const METRICS: &str = "metrics:
  - {name: gross, type: simple, type_params: {measure: revenue}, filter: \"{{ Dimension('order_id__ordered_at') }} is not null\"}
  - {name: heads, type: simple, type_params: {measure: customer_count}}
";

/// A model without a dimension, so its source has no grain.
const BARE: &str = "semantic_models:\n  - {name: bare, model: ref('bare'), entities: [{name: customer, type: foreign}]}\n";

fn metricflow_project() -> TestDir {
    let place = TestDir::new();
    place.write(
        "ktx.yaml",
        "connections:\n  flow: {driver: metricflow, source_dir: flow}\n",
    );
    for (name, text) in [("orders", ORDERS), ("customers", CUSTOMERS), ("bare", BARE)] {
        place.write(&format!("flow/{name}.yml"), text);
    }
    place
}

fn begin(place: &TestDir) {
    place.write(".gitignore", "script.toml\n");
    git(place, &["init", "--quiet", "--initial-branch=main"]);
    commit(place);
}

fn commit(place: &TestDir) {
    git(place, &["add", "--all"]);
    git(place, &["commit", "--quiet", "--message=By hand"]);
}

fn run(place: &TestDir, more: &[&str]) -> CommandOutput {
    let claude = place.scripted_claude(READS);
    place.run(
        &[
            &[
                "run",
                "--claude-bin",
                claude.to_str().unwrap(),
                "--ui",
                "lines",
            ],
            more,
        ]
        .concat(),
    )
}

/// Text of the newest tape.
fn tape(place: &TestDir) -> String {
    let runs = fs::read_dir(place.path(".ktx/ingestdeck/runs")).unwrap();
    let newest = runs.map(|entry| entry.unwrap().path()).max().unwrap();
    fs::read_to_string(newest.join("tape.jsonl")).unwrap()
}

fn projected(tape: &str) -> Option<Value> {
    notes(tape, "projected").into_iter().next()
}

fn notes(tape: &str, kind: &str) -> Vec<Value> {
    let notes = tape
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["note"].take());
    notes.filter(|note| note["kind"] == kind).collect()
}

/// All strings inside `value`.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(list) => list.iter().flat_map(texts).collect(),
        Value::Object(map) => map.values().flat_map(texts).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

fn source(place: &TestDir, name: &str) -> String {
    fs::read_to_string(place.path(&format!("semantic-layer/flow/{name}.yaml"))).unwrap_or_default()
}

#[test]
fn sources_of_semantic_models_are_committed_first() {
    let place = metricflow_project();
    begin(&place);
    let plan = place.run(&["plan"]);
    let line = "flow: up to 3 sources written from semantic models before the units run: bare, customers, fct_orders\n";
    assert!(plan.expect_success().contains(line), "{plan:?}");
    assert!(
        plan.stdout.contains(
            "  left to the units: orders.yml: cumulative metric running has no counterpart\n"
        ),
        "{plan:?}"
    );
    let plan = place.run(&["plan", "--ui", "json"]);
    let object: Value =
        serde_json::from_str(plan.expect_success().lines().last().unwrap()).unwrap();
    assert_eq!(
        (&object["connection"], &object["projected"][2]),
        (&json!("flow"), &json!("fct_orders"))
    );

    let ran = run(&place, &[]);
    let line =
        "2 sources of semantic models written before the units: customers, fct_orders, commit ";
    assert!(ran.expect_success().contains(line), "{ran:?}");
    let subjects = subjects(&place);
    assert_eq!(subjects.len(), 2, "the units wrote nothing: {subjects:?}");
    assert_eq!(subjects[0], "ingest(metricflow): deterministic projection");
    let trailers = git(&place, &["log", "-1", "--format=%(trailers:only)"]);
    assert!(
        trailers.starts_with("Ingest-Run: ") && trailers.trim().lines().count() == 1,
        "{trailers}"
    );
    let why = place.run(&["why", "semantic-layer/flow/customers.yaml"]);
    assert!(
        why.expect_success()
            .contains("no attempt wrote it: the run"),
        "{why:?}"
    );
    let files = git(&place, &["show", "--name-only", "--format=", "HEAD"]);
    assert_eq!(
        files,
        "semantic-layer/flow/customers.yaml\nsemantic-layer/flow/fct_orders.yaml\n"
    );
    is_clean(&place);
    insta::assert_snapshot!(source(&place, "fct_orders"));

    let tape = tape(&place);
    let note = projected(&tape).unwrap();
    let head = git(&place, &["rev-parse", "HEAD"]);
    assert_eq!(note["commit"], head.trim());
    assert_eq!(note["actions"][1]["rawPaths"], json!(["orders.yml"]));
    assert!(
        note["left_out"]
            .to_string()
            .contains("source bare: it has no grain"),
        "{note}"
    );
    // Units with the same system prompt share the record of it.
    let mut entries = tape
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let index = "# Semantic Layer Sources\n## flow\n- customers\n- fct_orders\n";
    assert!(
        entries.any(|entry| texts(&entry).iter().any(|text| text.contains(index))),
        "the prompt lists the projected sources"
    );
    let report = place.run(&["report", "--format", "json"]);
    let report: Value = serde_json::from_str(report.expect_success()).unwrap();
    assert_eq!(report["body"]["isolatedDiff"]["projectionSha"], head.trim());
    assert_eq!(
        report["body"]["ingestdeck"]["projection"]["actions"][0]["key"],
        "customers"
    );
    let report = place.run(&["report"]);
    assert!(
        report
            .expect_success()
            .contains("* 2 sources of semantic models written before the units"),
        "{report:?}"
    );
    let trace = place.run(&["runs", "export", "--format", "trace"]);
    assert!(
        trace
            .expect_success()
            .contains("deterministic_projection_committed"),
        "{trace:?}"
    );
}

#[test]
fn edited_sources_of_unchanged_models_are_kept() {
    let place = metricflow_project();
    begin(&place);
    run(&place, &[]).expect_success();
    let edited = source(&place, "fct_orders").replace("sum(amount)", "sum(amount) - sum(refunds)");
    place.write("semantic-layer/flow/fct_orders.yaml", &edited);
    place.write("flow/customers.yml", CUSTOMERS.replace("region", "country"));
    commit(&place);
    run(&place, &[]).expect_success();
    assert!(
        source(&place, "customers").contains("country") && source(&place, "fct_orders") == edited
    );
    let changes = git(&place, &["show", "--name-only", "--format=", "HEAD"]);
    assert_eq!(changes, "semantic-layer/flow/customers.yaml\n");
    assert_eq!(
        projected(&tape(&place)).unwrap()["actions"][0]["type"],
        "updated"
    );
    // Up-to-date sources cause no write and no message.
    run(&place, &["--only", "metricflow-customers"]).expect_success();
    assert_eq!(
        (subjects(&place).len(), projected(&tape(&place))),
        (4, None)
    );
}

/// A project with the databases of `more`, and the two models that become sources.
fn project_with_databases(more: &str) -> TestDir {
    let place = metricflow_project();
    fs::remove_file(place.path("flow/bare.yml")).unwrap();
    let flow = "connections:\n  flow: {driver: metricflow, source_dir: flow}\n";
    place.write("ktx.yaml", format!("{flow}{more}"));
    place
}

fn source_of(place: &TestDir, connection: &str, name: &str) -> String {
    let path = format!("semantic-layer/{connection}/{name}.yaml");
    fs::read_to_string(place.path(&path)).unwrap_or_default()
}

#[test]
fn sources_are_written_for_the_only_database() {
    let place = project_with_databases("  wh: {driver: postgres}\n");
    let by_agent = "name: people\ntable: analytics.Customers\ngrain: [customer_id]\ncolumns:\n  - {name: customer_id, type: string}\njoins: []\nmeasures: []\n";
    place.write("semantic-layer/wh/people.yaml", by_agent);
    begin(&place);
    let plan = place.run(&["plan"]);
    let line = "flow: up to 2 sources written for wh from semantic models before the units run: customers, fct_orders\n";
    assert!(plan.expect_success().contains(line), "{plan:?}");
    run(&place, &[]).expect_success();
    let orders = source_of(&place, "wh", "fct_orders");
    assert!(
        orders.contains("grain:\n  - order_id\n") && orders.contains("name: amount"),
        "{orders}"
    );
    assert_eq!(source(&place, "fct_orders"), "");
    assert_eq!(source_of(&place, "wh", "customers"), "");
    let tape = tape(&place);
    let note = projected(&tape).unwrap();
    assert_eq!(
        (
            &note["connection"],
            &note["actions"][0]["targetConnectionId"]
        ),
        (&json!("flow"), &json!("wh"))
    );
    assert!(
        note["left_out"].to_string().contains(
            "source customers is not written: semantic-layer/wh/people.yaml is about the same table"
        ),
        "{note}"
    );
    let sql = "SELECT connection, raw_file, target_connection FROM artifacts";
    let rows = place.run(&["runs", "query", sql, "--format", "csv"]);
    assert!(
        rows.expect_success().contains("flow,orders.yml,wh"),
        "{rows:?}"
    );
    let trace = place.run(&["runs", "export", "--format", "trace"]);
    assert!(
        trace
            .expect_success()
            .contains("deterministic_projection_committed"),
        "{trace:?}"
    );
}

#[test]
fn one_of_several_databases_is_found_by_scan_or_named() {
    let databases = "  wh: {driver: postgres}\n  lake: {driver: duckdb}\n";
    let place = project_with_databases(databases);
    begin(&place);
    let plan = place.run(&["plan"]);
    let warning = "the tables of the semantic models of flow may be in wh, lake; its sources are written for flow";
    assert!(plan.stderr.contains(warning), "{plan:?}");
    let scan = "tables:\n  customers:\n    table: public.customers\n    columns:\n      - {name: customer_id, type: string}\n";
    place.write("semantic-layer/lake/_schema/public.yaml", scan);
    let plan = place.run(&["plan"]);
    assert!(
        plan.expect_success().contains("written for lake from"),
        "{plan:?}"
    );
    let flow = "connections:\n  flow: {driver: metricflow, source_dir: flow, metricflow: {targetConnection: wh}}\n";
    place.write("ktx.yaml", format!("{flow}{databases}"));
    let plan = place.run(&["plan"]);
    assert!(
        plan.expect_success().contains("written for wh from"),
        "{plan:?}"
    );
}

#[test]
fn sources_of_earlier_runs_stay_where_they_are() {
    let place = metricflow_project();
    begin(&place);
    run(&place, &[]).expect_success();
    place.write(
        "ktx.yaml",
        "connections:\n  flow: {driver: metricflow, source_dir: flow}\n  wh: {driver: postgres}\n",
    );
    place.write("flow/customers.yml", CUSTOMERS.replace("region", "country"));
    let edited = source(&place, "fct_orders").replace("sum(amount)", "sum(amount) - sum(refunds)");
    place.write("semantic-layer/flow/fct_orders.yaml", &edited);
    place.write("flow/orders.yml", ORDERS.replace("ordered_at", "placed_at"));
    commit(&place);
    let output = run(&place, &[]);
    assert!(
        output.stdout.contains("stay in semantic-layer/flow"),
        "{output:?}"
    );
    assert!(source(&place, "customers").contains("country"));
    assert_eq!(source(&place, "fct_orders"), edited);
    assert_eq!(source_of(&place, "wh", "customers"), "");
    let note = projected(&tape(&place)).unwrap();
    assert!(
        note["left_out"]
            .to_string()
            .contains("semantic-layer/flow/fct_orders.yaml was last changed by a unit or by hand"),
        "{note}"
    );
}

#[test]
fn sources_are_written_without_git() {
    let place = metricflow_project();
    run(&place, &["--only", "metricflow-orders"]).expect_success();
    assert!(source(&place, "fct_orders").contains("table: fct_orders"));
    assert_eq!(source(&place, "customers"), "", "its unit was not selected");
    let note = projected(&tape(&place)).unwrap();
    assert_eq!(
        note["paths"],
        json!(["semantic-layer/flow/fct_orders.yaml"])
    );
    let changed = git(
        &place,
        &[
            PRIVATE_GIT_DIR,
            "show",
            "--name-only",
            "--format=",
            note["commit"].as_str().unwrap(),
        ],
    );
    assert_eq!(changed, "semantic-layer/flow/fct_orders.yaml\n");
    assert!(
        !source(&place, "fct_orders").contains("to: customers"),
        "a join needs its target"
    );
}

#[test]
fn units_run_although_sources_cannot_be_written() {
    let place = metricflow_project();
    place.write(
        "wiki/global/page.md",
        "---\nsummary: A page\n---\n\nText.\n",
    );
    place.write("semantic-layer/flow/fct_orders.yaml/file", "in the way\n");
    run(&place, &[]).expect_success();
    let tape = tape(&place);
    let note = projected(&tape).unwrap();
    assert!(
        note["reason"]
            .as_str()
            .is_some_and(|why| why.contains("fct_orders.yaml")),
        "{note}"
    );
    assert_eq!(source(&place, "customers"), "");
    let report = place.run(&["report"]);
    assert!(
        report
            .expect_success()
            .contains("the sources of semantic models are not written"),
        "{report:?}"
    );
}

#[test]
fn refused_connection_does_not_affect_others() {
    for has_history in [false, true] {
        let place = TestDir::new();
        let connection =
            |name: &str| format!("  {name}: {{driver: metricflow, source_dir: {name}}}\n");
        place.write(
            "ktx.yaml",
            format!(
                "connections:\n{}{}{}",
                connection("a"),
                connection("b"),
                connection("c")
            ),
        );
        for name in ["a", "b", "c"] {
            place.write(&format!("{name}/customers.yml"), CUSTOMERS);
        }
        place.write("semantic-layer/b/customers.yaml/file", "in the way\n");
        if has_history {
            begin(&place);
        }
        run(&place, &[]).expect_success();
        let written = |of: &str| {
            place
                .path(&format!("semantic-layer/{of}/customers.yaml"))
                .is_file()
        };
        assert_eq!(["a", "b", "c"].map(written), [true, false, true]);
        let notes = notes(&tape(&place), "projected");
        let connections: Vec<&str> = notes
            .iter()
            .map(|note| note["connection"].as_str().unwrap())
            .collect();
        assert_eq!(connections, ["a", "b", "c"]);
        let sentence = "the sources of semantic models are not written for b: ";
        let report = place.run(&["report"]);
        assert!(report.expect_success().contains(sentence), "{report:?}");
        assert_eq!(
            report
                .stdout
                .matches("* 1 source of semantic models written before the units")
                .count(),
            2
        );
        let report = place.run(&["report", "--format", "json"]);
        let snapshots = report
            .expect_success()
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let (mut written, mut commits) = (Vec::new(), Vec::new());
        for snapshot in snapshots {
            let projection = &snapshot["body"]["ingestdeck"]["projection"];
            written.push((
                snapshot["connectionId"].clone(),
                projection["actions"].as_array().map_or(0, Vec::len),
            ));
            assert_eq!(
                snapshot["connectionId"] == "b",
                projection["reason"].is_string(),
                "{projection}"
            );
            commits.extend(
                snapshot["body"]["isolatedDiff"]["projectionSha"]
                    .as_str()
                    .map(str::to_owned),
            );
        }
        assert_eq!(written, [(json!("a"), 1), (json!("b"), 0), (json!("c"), 1)]);
        let only = place.run(&["report", "--connection", "a"]);
        assert_eq!(
            only.expect_success()
                .matches("* 1 source of semantic models")
                .count(),
            1,
            "keys of the other connections are left out"
        );
        let trace = place.run(&["runs", "export", "--format", "trace"]);
        let events = trace
            .expect_success()
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let failed: Vec<Value> = events
            .filter(|event| event["event"] == "deterministic_projection_failed")
            .collect();
        assert_eq!((failed.len(), &failed[0]["connectionId"]), (1, &json!("b")));
        if has_history {
            let log = git(&place, &["log", "--format=%H", "--max-count=2"]);
            assert_eq!(
                log.lines().rev().collect::<Vec<_>>(),
                commits,
                "one commit for each"
            );
            is_clean(&place);
        }
    }
}

#[test]
fn sources_without_a_defining_raw_file_are_kept() {
    let place = metricflow_project();
    let customers = [CUSTOMERS, COUNTS].concat();
    place.write("flow/customers.yml", &customers);
    place.write("flow/metrics.yml", METRICS);
    begin(&place);
    run(&place, &[]).expect_success();
    let edited = source(&place, "fct_orders").replace("sum(amount)", "sum(amount) - sum(refunds)");
    place.write("semantic-layer/flow/fct_orders.yaml", &edited);
    place.write("flow/customers.yml", customers.replace("region", "country"));
    commit(&place);
    run(&place, &[]).expect_success();
    let units = notes(&tape(&place), "run_planned")[0]["units"].take();
    let whys: Vec<_> = units
        .as_array()
        .unwrap()
        .iter()
        .map(|unit| (&unit["unit"], &unit["why"]))
        .collect();
    let bare = (
        &json!("metricflow-bare"),
        &json!("refers to a change: customers.yml"),
    );
    assert_eq!(
        whys,
        [
            bare,
            (&json!("metricflow-customers"), &json!("1 file modified"))
        ],
        "{units}"
    );
    assert!(
        units[1]["dependencyPaths"]
            .to_string()
            .contains("orders.yml"),
        "{units}"
    );
    assert!(source(&place, "customers").contains("country"));
    assert_eq!(
        source(&place, "fct_orders"),
        edited,
        "its unit only reads that semantic model"
    );
    // The source that has a metric as a measure is defined by that metric, too.
    place.write(
        "flow/metrics.yml",
        METRICS.replace("is not null", "is null"),
    );
    commit(&place);
    run(&place, &[]).expect_success();
    assert_eq!(source(&place, "fct_orders"), edited);
    let note = projected(&tape(&place)).unwrap();
    let why = "semantic-layer/flow/fct_orders.yaml was last changed by a unit or by hand";
    assert!(
        note["actions"] == json!([]) && note["left_out"].to_string().contains(why),
        "{note}"
    );
    // Without the edit, the source that has a metric as a measure is defined by that metric, too.
    fs::remove_file(place.path("semantic-layer/flow/fct_orders.yaml")).unwrap();
    place.write("flow/metrics.yml", METRICS);
    commit(&place);
    run(&place, &[]).expect_success();
    let actions = projected(&tape(&place)).unwrap()["actions"].take();
    assert_eq!(
        (&actions[0]["key"], &actions[1]),
        (&json!("fct_orders"), &Value::Null),
        "{actions}"
    );
    assert_eq!(actions[0]["rawPaths"], json!(["orders.yml", "metrics.yml"]));
}

/// Projected sources count as artifacts of their raw files, as if a unit had written them.
#[test]
fn eviction_names_projected_sources() {
    let place = metricflow_project();
    place.write("flow/metrics.yml", METRICS);
    begin(&place);
    run(&place, &[]).expect_success();
    let shown = place.run(&["runs", "show"]);
    assert!(
        shown
            .expect_success()
            .contains("  projected   2 sources of semantic models written before the units: "),
        "{shown:?}"
    );
    let shown: Value = serde_json::from_str(
        place
            .run(&["runs", "show", "--ui", "json"])
            .expect_success(),
    )
    .unwrap();
    assert_eq!(shown["projected"][0]["actions"][0]["key"], "customers");
    fs::remove_file(place.path("flow/customers.yml")).unwrap();
    fs::remove_file(place.path("flow/metrics.yml")).unwrap();
    commit(&place);
    let steps = pass("{ call = { tool = \"eviction_list\" } }, { say = \"It may stay.\" },");
    let claude = place.scripted_claude(&[&steps, READS].concat());
    place
        .run(&[
            "run",
            "--claude-bin",
            claude.to_str().unwrap(),
            "--ui",
            "lines",
        ])
        .expect_success();
    let job = notes(&tape(&place), "run_planned")[0]["job"].take();
    let transcript = place.path(&format!(
        ".ktx/ingest-transcripts/{}/reconcile.jsonl",
        job.as_str().unwrap()
    ));
    let transcript = fs::read_to_string(transcript).unwrap();
    for listed in [
        "flow/customers.yml",
        "sl flow/customers (created in run ",
        "sl flow/fct_orders (created in run ",
    ] {
        assert!(transcript.contains(listed), "{listed}: {transcript}");
    }
}

/// git blocks while the worktree of the projection is created.
#[test]
fn interrupt_while_sources_are_projected_drains_the_run() {
    let place = metricflow_project();
    begin(&place);
    let claude = place.scripted_claude(READS);
    let args = [
        "run",
        "--claude-bin",
        claude.to_str().unwrap(),
        "--ui",
        "lines",
    ];
    let mut running = gated(&place, "*'worktree add'*-projection*", &args);
    running.signal(Signal::SIGINT);
    running.wait_for("stderr", "draining: ");
    open_gate(&place);
    let ran = running.end();
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(
        ran.stdout.contains("3 units: 3 untried"),
        "no unit is started: {ran:?}"
    );
    assert!(
        source(&place, "customers").contains("table: customers"),
        "the projection was completed"
    );
    is_clean(&place);
}

fn reviewed_run(place: &TestDir, script: &str) -> CommandOutput {
    let claude = place.scripted_claude(script);
    place.run(&[
        "run",
        "--review",
        "--claude-bin",
        claude.to_str().unwrap(),
        "--ui",
        "json",
        "--no-reconcile",
    ])
}

fn review(place: &TestDir, more: &[&str]) -> CommandOutput {
    place.run(&[&["review", "--ui", "json"], more].concat())
}

#[test]
fn projected_sources_wait_for_the_review() {
    let place = metricflow_project();
    begin(&place);
    let output = reviewed_run(&place, READS);
    assert_eq!(output.code, Some(103), "{output:?}");
    assert_eq!(subjects(&place).len(), 1, "nothing is committed");
    is_clean(&place);
    let note = projected(&tape(&place)).unwrap();
    assert!(
        note["commit"].is_null()
            && note["patch"]
                .as_str()
                .unwrap()
                .ends_with("projection-flow.patch"),
        "{note}"
    );
    let listed = review(&place, &["--list"]);
    let changes: Vec<Value> = listed
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let paths: Vec<_> = changes
        .iter()
        .filter_map(|change| change["path"].as_str())
        .collect();
    assert_eq!(
        paths,
        [
            "semantic-layer/flow/customers.yaml",
            "semantic-layer/flow/fct_orders.yaml"
        ]
    );
    assert_eq!(changes[0]["units"], json!(["projection"]));
    let artifacts = place.run(&["artifacts"]);
    assert!(
        artifacts.expect_success().contains("pending"),
        "{artifacts:?}"
    );
    let plan = place.run(&["plan"]);
    assert!(
        plan.stderr
            .contains("wait for a review; decide with `ingestdeck review"),
        "{plan:?}"
    );
    let claude = place.scripted_claude(READS);
    let claude = claude.to_str().unwrap();
    let back = review(
        &place,
        &[
            "--send-back",
            "*",
            "--feedback",
            "Again.",
            "--claude-bin",
            claude,
        ],
    );
    assert!(
        back.stderr
            .contains("no unit of the plan changed semantic-layer/flow/customers.yaml"),
        "{back:?}"
    );
    let output = review(&place, &["--accept", "*", "--reject", "*/fct_orders.yaml"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let files = git(&place, &["show", "--name-only", "--format=", "HEAD"]);
    assert_eq!(
        (files.as_str(), subjects(&place).len()),
        ("semantic-layer/flow/customers.yaml\n", 2)
    );
    is_clean(&place);
    let artifacts = place.run(&["artifacts"]).stdout;
    assert!(
        artifacts.contains("rejected") && artifacts.contains("saved"),
        "{artifacts}"
    );
    let report = place.run(&["report", "latest"]);
    let written = "1 source of semantic models written before the units: customers";
    assert!(report.expect_success().contains(written), "{report:?}");
    let plan = place.run(&["plan"]);
    assert!(!plan.stderr.contains("wait for a review"), "{plan:?}");
}

#[test]
fn rejected_projections_are_not_reported_as_written() {
    let place = metricflow_project();
    begin(&place);
    reviewed_run(&place, READS);
    let output = review(&place, &["--reject", "*"]);
    assert_eq!(
        (output.code, subjects(&place).len()),
        (Some(0), 1),
        "{output:?}"
    );
    let report = place.run(&["report", "latest"]);
    assert!(
        !report.expect_success().contains("written before the units"),
        "{report:?}"
    );
    let sql = "SELECT count(*) FROM artifacts";
    let count = place.run(&["runs", "query", sql, "--format", "csv"]);
    assert_eq!(
        count.expect_success().lines().last(),
        Some("0"),
        "{count:?}"
    );
}

#[test]
fn committed_projections_are_taken_back() {
    let place = metricflow_project();
    begin(&place);
    run(&place, &[]).expect_success();
    let listed = review(&place, &["latest", "--list"]);
    let change: Value =
        serde_json::from_str(listed.expect_success().lines().next().unwrap()).unwrap();
    assert_eq!(
        (&change["path"], &change["units"]),
        (
            &json!("semantic-layer/flow/customers.yaml"),
            &json!(["projection"])
        )
    );
    let output = review(
        &place,
        &["latest", "--accept", "*", "--reject", "*/fct_orders.yaml"],
    );
    assert_eq!(output.code, Some(0), "{output:?}");
    let files = git(&place, &["show", "--name-status", "--format=", "HEAD"]);
    assert_eq!(
        (files.as_str(), subjects(&place).len()),
        ("D\tsemantic-layer/flow/fct_orders.yaml\n", 3)
    );
    is_clean(&place);
    run(&place, &[]).expect_success();
    assert_eq!(
        subjects(&place).len(),
        3,
        "nothing has changed since, so nothing is derived again"
    );
}

/// A unit edits a source that was projected before it ran; both changes are reviewed together.
#[test]
fn unit_builds_on_a_source_that_waits_for_the_review() {
    let place = metricflow_project();
    begin(&place);
    let script = r#"
[[part]]
unit = "metricflow-orders"
steps = [
  { call = { tool = "sl_read_source", with = { connectionId = "flow", sourceName = "customers" } } },
  { call = { tool = "record_verification_ledger", with = { summary = "Read it." } } },
  { call = { tool = "sl_edit_source", with = { connectionId = "flow", sourceName = "customers", yaml_edits = [ { oldText = "dbt: customers", newText = "dbt: People who order" } ] } } },
  { say = "Done." },
]
[[part]]
steps = [{ say = "read" }]
"#;
    let output = reviewed_run(&place, script);
    assert_eq!(output.code, Some(103), "{output:?}");
    let listed = review(&place, &["--list", "--diff"]);
    assert!(
        listed.stdout.contains("+  dbt: People who order"),
        "{listed:?}"
    );
    assert!(
        listed
            .stdout
            .contains(r#""units":["projection","metricflow-orders"]"#),
        "{listed:?}"
    );
    assert_eq!(review(&place, &["--accept", "*"]).code, Some(0));
    assert!(source(&place, "customers").contains("dbt: People who order"));
    assert_eq!(
        subjects(&place).len(),
        2,
        "one commit for the projection and the unit"
    );
}

#[test]
fn rejected_projections_stay_rejected() {
    let place = metricflow_project();
    begin(&place);
    assert_eq!(reviewed_run(&place, READS).code, Some(103));
    let output = review(&place, &["--reject", "*"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    run(&place, &["--resume-run", "latest"]);
    assert_eq!(
        (subjects(&place).len(), source(&place, "customers")),
        (1, String::new())
    );
}

#[test]
fn sources_that_a_later_run_rejected_stay_rejected() {
    let place = metricflow_project();
    begin(&place);
    let plan = place.run(&["plan", "--ui", "json"]);
    let planned: Value = serde_json::from_str(plan.stdout.lines().next().unwrap()).unwrap();
    let page = format!(
        r#"
[[part]]
unit = {}
steps = [
  {{ call = {{ tool = "record_verification_ledger", with = {{ summary = "Read it." }} }} }},
  {{ call = {{ tool = "wiki_write", with = {{ key = "page", summary = "A page", content = "Text." }} }} }},
  {{ say = "Done." }},
]
[[part]]
steps = [{{ call = {{ tool = "wiki_write", with = {{ no = 1 }} }} }}, {{ say = "Done." }}]
"#,
        planned["unit"]
    );
    assert_eq!(reviewed_run(&place, &page).code, Some(103));
    assert_eq!(
        run(&place, &["--failed=latest", "--no-reconcile"]).code,
        Some(103)
    );
    assert_eq!(review(&place, &["--reject", "*"]).code, Some(0));
    let listed = review(&place, &["--list"]);
    let paths: Vec<&str> = listed
        .stdout
        .lines()
        .filter(|line| line.contains("\"change\""))
        .collect();
    assert!(
        paths.len() == 1 && paths[0].contains("wiki/global/page.md"),
        "{listed:?}"
    );
    assert_eq!(review(&place, &["--accept", "*"]).code, Some(0));
    assert_eq!(
        (source(&place, "customers"), subjects(&place).len()),
        (String::new(), 2)
    );
}

#[test]
fn projections_are_reviewed_although_every_unit_failed() {
    let place = metricflow_project();
    begin(&place);
    let script = "[[part]]\nsteps = [{ call = { tool = \"wiki_write\", with = { no = 1 } } }, { say = \"Done.\" }]\n";
    assert_eq!(reviewed_run(&place, script).code, Some(103));
    let output = run(&place, &["--resume-run", "latest"]);
    assert_eq!(
        output.code,
        Some(103),
        "the next run waits for the review, too: {output:?}"
    );
    assert_eq!(review(&place, &["--accept", "*"]).code, Some(0));
    assert!(source(&place, "customers").contains("name: customers"));
    assert_eq!(subjects(&place).len(), 2);
}

#[test]
fn projection_that_no_longer_fits_is_reported_once() {
    let place = metricflow_project();
    begin(&place);
    assert_eq!(reviewed_run(&place, READS).code, Some(103));
    place.write(
        "semantic-layer/flow/customers.yaml",
        "name: customers\ntable: customers\ngrain: [id]\ncolumns: []\njoins: []\nmeasures: []\n",
    );
    commit(&place);
    let output = review(&place, &["--accept", "*"]);
    assert!(output.stdout.contains("no longer fit"), "{output:?}");
    assert_eq!(
        subjects(&place).len(),
        2,
        "the commit by hand is the last one"
    );
    is_clean(&place);
    assert!(source(&place, "customers").contains("grain: [id]"));
}

#[test]
fn projection_of_a_changed_file_is_left_out() {
    let place = metricflow_project();
    begin(&place);
    assert_eq!(reviewed_run(&place, READS).code, Some(103));
    fs::remove_file(place.path("flow/customers.yml")).unwrap();
    commit(&place);
    let output = review(&place, &["--accept", "*"]);
    assert!(output.stderr.contains("their files changed"), "{output:?}");
    assert_eq!(
        (subjects(&place).len(), source(&place, "customers")),
        (2, String::new())
    );
}
