//! A scripted agent that calls the tools of the semantic layer and of databases, through the whole program.

use std::fs;

use super::test_dir::{TestDir, parse_json_events};

#[test]
fn unit_queries_a_database_and_writes_a_source() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let settings = fs::read_to_string(place.path("ktx.yaml")).unwrap();
    let more = "connections:\n  shop:\n    driver: sqlite\n    url: sqlite:shop.db\n";
    place.write("ktx.yaml", settings.replace("connections:\n", more));
    let database = rusqlite::Connection::open(place.path("shop.db")).unwrap();
    database
        .execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY, total REAL)")
        .unwrap();
    let script = r#"
[[part]]
steps = [
  { calls = [
    { tool = "discover_data", with = { query = "orders" } },
    { tool = "entity_details", with = { connectionId = "shop", targets = [{ display = "orders" }] } },
    { tool = "sql_execution", with = { connectionId = "shop", sql = "SELECT count(*) FROM orders" } },
  ] },
  { call = { tool = "record_verification_ledger", with = { summary = "Asked the database.", verifiedIdentifiers = ["orders"] } } },
  { call = { tool = "sl_write_source", with = { connectionId = "shop", sourceName = "orders", rawPaths = ["one.md"], source = {
    name = "orders", table = "orders", grain = ["id"], columns = [{ name = "id", type = "number" }, { name = "total", type = "number" }],
  } } } },
  { call = { tool = "sl_edit_source", with = { connectionId = "shop", sourceName = "orders", yaml_edits = [
    { oldText = "measures: []", newText = "measures:\n  - name: revenue\n    expr: sum(total)" },
  ] } } },
  { call = { tool = "sl_validate", with = { connectionId = "shop" } } },
  { say = "Orders are a source now." },
]
"#;
    let claude = place.scripted_claude(script);
    let ran = place.run(&[
        "run",
        "--no-reconcile",
        "--claude-bin",
        claude.to_str().unwrap(),
    ]);
    assert!(ran.expect_success().contains("1 succeeded"), "{ran:?}");
    insta::assert_snapshot!(
        fs::read_to_string(place.path("semantic-layer/shop/orders.yaml")).unwrap()
    );
}

#[test]
fn invalid_source_fails_its_unit_and_is_not_published() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let script = r#"
[[part]]
steps = [
  { call = { tool = "record_verification_ledger", with = { summary = "Read it." } } },
  { call = { tool = "sl_write_source", with = { connectionId = "notes", sourceName = "orders", source = { name = "orders" } } } },
  { say = "That did not work." },
]
"#;
    let claude = place.scripted_claude(script);
    let ran = place.run(&["run", "--claude-bin", claude.to_str().unwrap()]);
    assert_eq!(ran.code, Some(100), "{ran:?}");
    let failure = "  ✗ docs-one: without table and sql it is an overlay";
    assert!(ran.stdout.contains(failure), "{ran:?}");
    assert!(!place.path("semantic-layer").exists());
}

/// KTX does not count a refused edit, so `recoverable` accepts it.
#[test]
fn refused_edit_fails_its_unit_under_strict() {
    let place = TestDir::new();
    place.notes(&["one"]);
    place.write(
        "semantic-layer/notes/orders.yaml",
        "name: orders\ntable: t\ngrain: [id]\ncolumns: [{name: id, type: number}]\ntags: {dbt: finance}\n",
    );
    let script = r#"
[[part]]
steps = [
  { call = { tool = "record_verification_ledger", with = { summary = "Read it." } } },
  { call = { tool = "sl_edit_source", with = { connectionId = "notes", sourceName = "orders", yaml_edits = [{ oldText = "table: t", newText = "table: u" }] } } },
  { say = "That did not work." },
]
"#;
    let claude = place.scripted_claude(script).display().to_string();
    let plan = place.run(&["plan"]);
    let named = "KTX cannot load sources (semantic-layer/notes/orders.yaml: orders: `tags.dbt` must be a list, not text)";
    assert!(
        plan.expect_success().contains("1 unit planned") && plan.stderr.contains(named),
        "{plan:?}"
    );
    let doctor = place.run(&["doctor", "--claude-bin", &claude]);
    assert!(
        doctor.stdout.contains("KTX cannot load sources"),
        "{doctor:?}"
    );
    let ran = place.run(&["run", "--claude-bin", &claude]);
    assert_eq!(ran.code, Some(100), "{ran:?}");
    let failure = "  ✗ docs-one: `tags.dbt` must be a list, not text (sl_edit_source orders)";
    assert!(ran.stdout.contains(failure), "{ran:?}");
    place.write("config.toml", "[ingest]\ntool_failures = \"recoverable\"\n");
    place
        .run(&["run", "--claude-bin", &claude, "--config", "config.toml"])
        .expect_success();
}

/// KTX's tools answer such calls as plain text. The contract reports `ok`; the text for people explains that nothing
/// was done.
#[test]
fn declined_call_is_not_shown_as_success() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let script = r#"
[[part]]
steps = [
  { call = { tool = "read_raw_file", with = { path = "../ktx.yaml" } } },
  { call = { tool = "read_raw_file", with = { path = "one.md" } } },
  { call = { tool = "wiki_read", with = { key = "nowhere" } } },
  { call = { tool = "emit_unmapped_fallback", with = { rawPath = "one.md", reason = "parse_error", fallback = "flagged" } } },
  { say = "That did not work." },
]
"#;
    let claude = place.scripted_claude(script);
    let ran = place.run(&["run", "--claude-bin", claude.to_str().unwrap()]);
    let refused = |line: &str| {
        line.contains("△ read_raw_file ../ktx.yaml  ")
            && line.contains("  declined: `../ktx.yaml` is not available")
    };
    assert!(ran.expect_success().lines().any(refused), "{ran:?}");
    assert!(ran.stdout.contains("✓ read_raw_file one.md"), "{ran:?}");
    assert!(
        ran.stdout
            .contains("declined: there is no wiki page `nowhere`"),
        "{ran:?}"
    );
    assert!(
        ran.stdout
            .contains("declined: emit_unmapped_fallback is locked"),
        "{ran:?}"
    );
    let json = place.run(&["replay", "latest", "--ui", "json"]);
    let ends: Vec<_> = parse_json_events(json.expect_success())
        .into_iter()
        .filter(|line| {
            line["event"]["phase"] == "completed" && line["event"]["action"]["kind"] == "tool"
        })
        .map(|line| {
            (
                line["event"]["ok"].as_bool().unwrap(),
                line["call"].as_str().map(str::to_owned),
            )
        })
        .collect();
    let declined = || (true, Some("declined".to_owned()));
    assert_eq!(ends, [declined(), (true, None), declined(), declined()]);
    let report = place.run(&["report", "latest"]);
    assert!(
        report
            .expect_success()
            .contains("| `read_raw_file` | 2 | 0 | 1 | 0 |"),
        "{report:?}"
    );
}
