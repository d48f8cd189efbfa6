//! A scripted agent that calls the tools of the semantic layer and of databases, through the whole program.

use std::fs;

use super::place::Place;

#[test]
fn a_unit_reads_a_database_and_leaves_a_source() {
    let place = Place::new();
    place.notes(&["one"]);
    let settings = fs::read_to_string(place.path("ktx.yaml")).unwrap();
    let more = "connections:\n  shop:\n    driver: sqlite\n    url: sqlite:shop.db\n";
    place.write("ktx.yaml", settings.replace("connections:\n", more));
    let database = rusqlite::Connection::open(place.path("shop.db")).unwrap();
    database.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY, total REAL)").unwrap();
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
    { oldText = "grain:", newText = "measures:\n  - name: revenue\n    expr: sum(total)\ngrain:" },
  ] } } },
  { call = { tool = "sl_validate", with = { connectionId = "shop" } } },
  { say = "Orders are a source now." },
]
"#;
    let claude = place.player(script);
    let ran = place.run(&["run", "--claude-bin", claude.to_str().unwrap()]);
    assert!(ran.done().contains("1 succeeded"), "{ran:?}");
    insta::assert_snapshot!(fs::read_to_string(place.path("semantic-layer/shop/orders.yaml")).unwrap());
}

#[test]
fn a_source_that_does_not_hold_fails_its_unit_and_is_not_published() {
    let place = Place::new();
    place.notes(&["one"]);
    let script = r#"
[[part]]
steps = [
  { call = { tool = "record_verification_ledger", with = { summary = "Read it." } } },
  { call = { tool = "sl_write_source", with = { connectionId = "notes", sourceName = "orders", source = { name = "orders" } } } },
  { say = "That did not work." },
]
"#;
    let claude = place.player(script);
    let ran = place.run(&["run", "--claude-bin", claude.to_str().unwrap()]);
    assert_eq!(ran.code, Some(100), "{ran:?}");
    assert!(ran.stdout.contains("1 tool call(s) failed during WorkUnit docs-one"), "{ran:?}");
    assert!(!place.path("semantic-layer").exists());
}
