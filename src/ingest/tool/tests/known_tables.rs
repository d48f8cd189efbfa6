//! Lookups and checks of tables with facts from files.

use std::time::Duration;

use super::*;
use crate::{
    facts::{FactFiles, ProjectFacts},
    workspace_check,
};

const SCAN: &str = "raw-sources/warehouse/live-database/2026-11-26";

/// Writes the scan of connection `warehouse`: `orders` in two schemas, and `users`.
fn write_scan(root: &Path, extracted_at: &str) {
    let folder = root.join(SCAN);
    fs::create_dir_all(folder.join("tables")).unwrap();
    let properties = json!({"extractedAt": extracted_at, "scope": {"schemas": ["public", "stage"]}, "tableCount": 3});
    fs::write(folder.join("connection.json"), properties.to_string()).unwrap();
    let column = |name: &str, native: &str, key: bool| json!({"name": name, "nativeType": native, "nullable": !key, "primaryKey": key, "comment": null});
    let tables = [
        json!({"catalog": null, "db": "public", "name": "orders", "kind": "table", "comment": "What people\nbuy",
            "estimatedRows": 120, "columns": [column("id", "bigint", true), column("user_id", "varchar(20)", false)],
            "foreignKeys": [{"fromColumn": "user_id", "toTable": "users", "toColumn": "id"}]}),
        json!({"catalog": null, "db": "stage", "name": "orders", "kind": "view", "comment": null,
            "columns": [column("raw\u{1b}", "json", false)]}),
        json!({"catalog": null, "db": "public", "name": "users", "kind": "table", "comment": null,
            "columns": [column("id", "bigint", true), column("vip_since", "timestamptz", false)]}),
    ];
    for (index, table) in tables.iter().enumerate() {
        fs::write(
            folder.join(format!("tables/{index}.json")),
            table.to_string(),
        )
        .unwrap();
    }
}

/// Gives connection `warehouse` the facts in the files of the project.
fn add_facts(context: &mut ToolContext, root: &Path) {
    context.scope.fixed_now = "2026-11-29T12:00:00Z".parse().ok();
    context.scope.max_scan_age = Duration::from_secs(7 * 24 * 60 * 60);
    for connection in &mut context.scope.connections {
        let id = connection.id.clone();
        connection.facts = ProjectFacts::default().of(&id, || FactFiles {
            project: root.to_owned(),
            connection: id.clone(),
            ..FactFiles::default()
        });
    }
}

fn fixture_with(extracted_at: &str, prepare: impl FnOnce(&mut ToolContext, &Path)) -> ToolFixture {
    let (mut context, dir) = tool_context();
    write_scan(dir.path(), extracted_at);
    add_facts(&mut context, dir.path());
    prepare(&mut context, dir.path());
    let fixture = ToolFixture {
        tools: AttemptTools::new(Arc::new(context), None),
        dir,
    };
    fixture.text("record_verification_ledger", json!({"summary": "checked"}));
    fixture
}

fn fixture() -> ToolFixture {
    fixture_with("2026-11-26T10:00:00Z", |_, _| {})
}

fn look_up(fixture: &ToolFixture, targets: Value) -> ToolReply {
    let arguments = json!({"connectionId": "warehouse", "targets": targets});
    fixture.call("entity_details", arguments)
}

/// The call that writes a source over `table`.
fn source(table: &str, more: Value) -> Value {
    let mut source = json!({"name": "s", "table": table, "grain": ["id"], "columns": [{"name": "id", "type": "number"}]});
    source
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!({"connectionId": "warehouse", "sourceName": "s", "source": source})
}

#[test]
fn scanned_tables_are_described_without_a_database() {
    let fixture = fixture();
    let targets = json!([
        {"display": "\"Public\".\"Orders\""}, {"display": "users.VIP_SINCE"}, {"db": "stage", "name": "ORDERS"},
        {"display": "orders"}, {"display": "public.ordrs"}, {"display": "users.nam"}, {"display": "zebra"},
    ]);
    let reply = look_up(&fixture, targets);
    assert!(!reply.is_error && !reply.declined);
    insta::assert_snapshot!(reply.markdown);
    insta::assert_json_snapshot!(reply.structured.unwrap());
}

#[test]
fn connection_without_facts_is_a_normal_answer() {
    let fixture = fixture();
    let arguments = json!({"connectionId": "notes", "targets": [{"display": "x"}]});
    let reply = fixture.call("entity_details", arguments);
    assert!(!reply.is_error && !reply.declined);
    assert_eq!(
        reply.structured.unwrap(),
        json!({"resolved": [], "missing": [{"target": "x", "candidates": []}], "scanAvailable": false})
    );
    insta::assert_snapshot!(reply.markdown, @"Connection `notes` has neither a scan nor a database here, so its tables cannot be looked up; connections that can be: warehouse");
}

#[test]
fn database_answers_what_files_lack() {
    let fixture = fixture_with("2026-11-26T10:00:00Z", |context, root| {
        let path = root.canonicalize().unwrap().join("w.db");
        let connection = rusqlite::Connection::open(&path).unwrap();
        let tables = "CREATE TABLE users (id TEXT, nam TEXT); CREATE TABLE fresh (id INTEGER)";
        connection.execute_batch(tables).unwrap();
        let warehouse = context.scope.connections.first_mut().unwrap();
        warehouse.database = Some(crate::database::Database::Sqlite(path));
    });
    let origins = |display: &str| {
        let reply = look_up(&fixture, json!([{"display": display}]))
            .structured
            .unwrap();
        let table = &reply["resolved"][0];
        (
            table["origin"].as_str().map(str::to_owned),
            table["columns"][0]["nativeType"]
                .as_str()
                .map(str::to_owned),
        )
    };
    let from = |origin: &str, kind: &str| (Some(origin.to_owned()), Some(kind.to_owned()));
    assert_eq!(origins("users"), from("scan", "bigint"));
    assert_eq!(origins("users.nam"), from("connection", "TEXT"));
    assert_eq!(origins("fresh"), from("connection", "INTEGER"));
    // The scan lacks the table and the database has it.
    let text = fixture.text("sl_write_source", source("fresh", json!({})));
    assert!(!text.contains("warnings"), "{text}");
    let (reason, _) = fixture.decline("sl_write_source", source("frsh", json!({})));
    assert_eq!(reason, "validation_failed");
}

#[test]
fn discovery_finds_names_and_comments_in_scans() {
    let fixture = fixture();
    let text = fixture.text(
        "discover_data",
        json!({"query": "vip buy", "connectionId": "warehouse"}),
    );
    insta::assert_snapshot!(text);
    let reply = fixture.call(
        "discover_data",
        json!({"limit": 1, "connectionId": "warehouse"}),
    );
    assert_eq!(
        reply.structured.unwrap()["tables"],
        json!({"hits": [{"connectionId": "warehouse", "kind": "table", "display": "public.orders", "origin": "scan"}],
            "totalFound": 3})
    );
}

#[test]
fn source_over_a_table_that_a_scan_lacks_is_refused() {
    let recent = fixture();
    let reply = recent.call("sl_write_source", source("public.ordrs", json!({})));
    assert!(reply.is_error && reply.declined);
    insta::assert_snapshot!(reply.markdown);
    let columns =
        json!({"columns": [{"name": "id", "type": "number"}, {"name": "totl", "type": "number"}]});
    let old = fixture_with("2026-01-01T00:00:00Z", |_, _| {});
    let texts = [
        old.text("sl_write_source", source("public.ordrs", json!({}))),
        old.text("sl_write_source", source("elsewhere.ordrs", json!({}))),
        old.text("sl_write_source", source("public.orders", columns)),
    ];
    let warnings = texts.map(|text| text.split("\n\n**YAML**").next().unwrap().to_owned());
    insta::assert_snapshot!(warnings.join("\n----\n"));
}

#[test]
fn joins_of_different_kinds_are_a_warning() {
    let fixture = fixture();
    let users = json!({"name": "users", "table": "public.users", "grain": ["id"],
        "columns": [{"name": "id", "type": "number"}]});
    let arguments = json!({"connectionId": "warehouse", "sourceName": "users", "source": users});
    fixture.text("sl_write_source", arguments);
    let more = json!({
        "columns": [{"name": "id", "type": "number"}, {"name": "user_id", "type": "number"}],
        "joins": [{"to": "users", "on": "s.user_id = users.id", "relationship": "many_to_one"}],
    });
    let text = fixture.text("sl_write_source", source("public.orders", more));
    assert!(
        text.contains(
            "s: the join to `users` compares `user_id` (varchar(20)) with `id` (bigint), which are of different kinds; \
             cast one of them"
        ),
        "{text}"
    );
}

#[test]
fn earlier_source_over_a_missing_table_is_kept() {
    let path = "semantic-layer/warehouse/s.yaml";
    let old = "name: s\ntable: public.gone\ngrain: [id]\ncolumns:\n  - {name: id, type: number}\n";
    let fixture = fixture_with("2026-11-26T10:00:00Z", |context, root| {
        fs::create_dir_all(root.join("semantic-layer/warehouse")).unwrap();
        fs::write(root.join(path), old).unwrap();
        assert_eq!(
            context.workspace.read(path).unwrap().unwrap(),
            old.as_bytes()
        );
    });
    let edit = json!({"connectionId": "warehouse", "sourceName": "s",
        "yaml_edits": [{"oldText": "grain: [id]", "newText": "grain: [id]\ndescriptions: {user: x}"}]});
    let edited = fixture.text("sl_edit_source", edit);
    assert!(
        edited.contains("table `public.gone`: the scan of 3 days ago"),
        "{edited}"
    );
    let rewritten = fixture.text("sl_write_source", source("public.gone", json!({})));
    assert!(
        rewritten.contains("table `public.gone`: the scan of 3 days ago"),
        "{rewritten}"
    );
    let context = &fixture.tools.context;
    let check = || workspace_check::check_changes(&context.workspace, &[], &context.scope).invalid;
    assert!(check().is_empty(), "{:?}", check());
    let validated = fixture.text("sl_validate", json!({"connectionId": "warehouse"}));
    assert!(validated.contains("**Warnings** (1)"), "{validated}");
    // A table that no source named before is refused, without asking any database.
    let doc = "name: s\ntable: public.gne\ngrain: [id]\ncolumns:\n  - {name: id, type: number}\n";
    context.workspace.write(path, doc.as_bytes()).unwrap();
    assert_eq!(check().len(), 1, "{:?}", check());
}

#[test]
fn missing_columns_are_proven_by_young_scans_only() {
    for (extracted_at, expected) in [
        ("2026-11-26T10:00:00Z", true),
        ("2026-01-01T00:00:00Z", false),
    ] {
        let fixture = fixture_with(extracted_at, |_, _| {});
        let reply = look_up(
            &fixture,
            json!([{"display": "users.nam"}, {"display": "users"}]),
        );
        let found = reply.structured.unwrap();
        let proven = [
            &found["missing"][0]["proven"],
            &found["resolved"][0]["proven"],
        ];
        assert_eq!(
            proven,
            [&json!(expected), &json!(expected)],
            "{extracted_at}"
        );
    }
}

#[test]
fn kinds_of_schema_files_are_no_native_types() {
    let fixture = fixture_with("2026-11-26T10:00:00Z", |_, root| {
        fs::remove_dir_all(root.join("raw-sources")).unwrap();
        let folder = root.join("semantic-layer/warehouse/_schema");
        fs::create_dir_all(&folder).unwrap();
        let text = "tables:\n  orders:\n    columns: [{name: id, type: string}, {name: user_id, type: string}]\n  \
                    users:\n    columns: [{name: id, type: number}]\n";
        fs::write(folder.join("public.yaml"), text).unwrap();
    });
    let found = look_up(&fixture, json!([{"display": "orders"}]));
    let table = &found.structured.unwrap()["resolved"][0];
    assert_eq!(table["columns"][0]["nativeType"], Value::Null, "{table}");
    let users = json!({"name": "users", "table": "users", "grain": ["id"],
        "columns": [{"name": "id", "type": "number"}]});
    let arguments = json!({"connectionId": "warehouse", "sourceName": "users", "source": users});
    fixture.call("sl_write_source", arguments);
    let more = json!({
        "columns": [{"name": "id", "type": "number"}, {"name": "user_id", "type": "number"}],
        "joins": [{"to": "users", "on": "s.user_id = users.id", "relationship": "many_to_one"}],
    });
    let text = fixture.text("sl_write_source", source("orders", more));
    assert!(!text.contains("different kinds"), "{text}");
}
