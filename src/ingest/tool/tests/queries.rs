//! Database tools as a model uses them. Tests of hostile statements and files are in [`crate::database`].

use super::*;
use crate::database::Database;

/// A context with an additional SQLite connection `shop`.
pub(super) fn with_shop() -> (ToolContext, tempfile::TempDir) {
    let (mut context, dir) = tool_context();
    let path = dir.path().canonicalize().unwrap().join("shop.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "PRAGMA synchronous = OFF;
             CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
             CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customers (id), total REAL);
             CREATE VIEW gone AS SELECT missing FROM nowhere;
             INSERT INTO customers VALUES (1, 'Ann'), (2, 'Bob | Co');
             INSERT INTO orders VALUES (1, 1, 9.5), (2, 2, NULL);
             WITH RECURSIVE n(i) AS (SELECT 3 UNION ALL SELECT i + 1 FROM n LIMIT 5000)
                 INSERT INTO orders SELECT i, 1, i FROM n;",
        )
        .unwrap();
    let shop = ConnectionAccess {
        database: Some(Database::Sqlite(path)),
        ..self::connection("shop", "sqlite", true)
    };
    context.scope.connections.push(shop);
    (context, dir)
}

fn fixture() -> ToolFixture {
    let (context, dir) = with_shop();
    let transcript = ToolTranscript::open(dir.path(), "local-x", &"docs-a".into(), 1).unwrap();
    ToolFixture {
        tools: AttemptTools::new(Arc::new(context), Some(Arc::new(transcript))),
        dir,
    }
}

fn sql(statement: &str) -> Value {
    json!({"connectionId": "shop", "sql": statement})
}

#[test]
fn sql_tools_are_offered_only_with_a_database() {
    let names = |fixture: &ToolFixture| {
        fixture
            .tools
            .specs()
            .into_iter()
            .map(|spec| spec.name)
            .collect::<Vec<_>>()
    };
    let (without, with) = (names(&ToolFixture::new()), names(&fixture()));
    assert_eq!(with.len(), without.len() + 2);
    assert!(with.contains(&"sql_execution") && with.contains(&"entity_details"));
    let reply = ToolFixture::new().call("sql_execution", sql("SELECT 1"));
    assert!(
        reply.is_error
            && reply
                .markdown
                .starts_with("there is no tool `sql_execution`"),
        "{}",
        reply.markdown
    );
}

#[test]
fn statement_returns_table_or_database_error() {
    let fixture = fixture();
    let texts = [
        fixture.text("sql_execution", sql("SELECT * FROM customers")),
        fixture.text(
            "sql_execution",
            sql("SELECT id, total AS \"a | b\" FROM orders WHERE id < 3;"),
        ),
        fixture.text("sql_execution", sql("SELECT * FROM customers WHERE 0")),
        fixture.text(
            "sql_execution",
            json!({"connectionId": "shop", "sql": "SELECT id FROM orders", "rowLimit": 2}),
        ),
        fixture.text("sql_execution", sql("SELECT nam FROM customers")),
        fixture.text("sql_execution", sql("DELETE FROM customers")),
        fixture.text("sql_execution", sql("SELECT 1; SELECT 2")),
        fixture.text(
            "sql_execution",
            json!({"connectionId": "warehouse", "sql": "SELECT 1"}),
        ),
        fixture.text(
            "sql_execution",
            json!({"connectionId": "shp", "sql": "SELECT 1"}),
        ),
    ];
    insta::assert_snapshot!(texts.join("\n----\n"));
    let reply = fixture.call("sql_execution", sql("SELECT * FROM customers"));
    assert_eq!(
        reply.structured.unwrap(),
        json!({"connectionId": "shop", "tables": ["customers"],
            "columns": [{"table": "customers", "column": "id"}, {"table": "customers", "column": "name"}], "headers": ["id", "name"], "rows": [[1, "Ann"], [2, "Bob | Co"]], "rowCount": 2, "truncated": false,
            "sql": "SELECT * FROM customers"})
    );
    for arguments in [
        json!({"connectionId": "shop", "sql": "SELECT 1", "rowLimit": 1001}),
        json!({"connectionId": "shop"}),
    ] {
        assert!(fixture.call("sql_execution", arguments).is_error);
    }
}

#[test]
fn long_answers_are_paged_without_loss() {
    let fixture = fixture();
    let mut seen = Vec::new();
    loop {
        let statement = format!(
            "SELECT id, hex(zeroblob(40)) FROM orders ORDER BY id LIMIT 5000 OFFSET {}",
            seen.len()
        );
        let arguments = json!({"connectionId": "shop", "sql": statement, "rowLimit": 1000});
        let reply = fixture.call("sql_execution", arguments);
        assert!(
            reply.markdown.chars().count() < MAX_ANSWER_CHARS,
            "{}",
            reply.markdown.len()
        );
        let structured = reply.structured.unwrap();
        let rows = structured["rows"].as_array().unwrap();
        seen.extend(rows.iter().map(|row| row[0].as_i64().unwrap()));
        if structured["truncated"] == false {
            break;
        }
        assert!(
            reply.markdown.ends_with(&format!("OFFSET {}]", rows.len())),
            "{}",
            reply.markdown
        );
    }
    assert_eq!(seen, (1..=5_002).collect::<Vec<i64>>());
}

#[test]
fn entity_lookup_accepts_sql_spellings() {
    let fixture = fixture();
    let details = |targets: Value| {
        fixture.text(
            "entity_details",
            json!({"connectionId": "shop", "targets": targets}),
        )
    };
    let texts = [
        details(
            json!([{"display": "orders"}, {"display": "main.CUSTOMERS.name"}, {"name": "orders", "column": "total"}]),
        ),
        details(
            json!([{"display": "order"}, {"display": "orders.totl"}, {"display": "zebra.x"}, {"display": "gone"}]),
        ),
        details(json!([{"catalog": null, "db": "main", "name": "customers", "column": null}])),
        details(json!([{"db": "main"}])),
    ];
    insta::assert_snapshot!(texts.join("\n----\n"));
    let reply = fixture.call(
        "entity_details",
        json!({"connectionId": "shop", "targets": [{"display": "orders"}, {"display": "x"}]}),
    );
    assert_eq!(
        reply.structured.unwrap(),
        json!({
            "resolved": [{
                "connectionId": "shop", "catalog": null, "db": null, "name": "orders", "display": "orders",
                "kind": "table", "comment": null, "rowCount": null,
                "columns": [
                    {"name": "id", "nativeType": "INTEGER", "nullable": false, "primaryKey": true, "comment": null,
                        "sampleValues": ["1", "2", "3"]},
                    {"name": "customer_id", "nativeType": "INTEGER", "nullable": true, "primaryKey": false,
                        "comment": null, "sampleValues": ["1", "2"]},
                    {"name": "total", "nativeType": "REAL", "nullable": true, "primaryKey": false, "comment": null,
                        "sampleValues": ["9.5", "3", "4"]},
                ],
                "origin": "connection", "proven": true,
            }],
            "missing": [{"target": "x", "candidates": [], "proven": true}],
            "scanAvailable": true,
        })
    );
    assert!(
        fixture
            .call(
                "entity_details",
                json!({"connectionId": "shop", "targets": []})
            )
            .is_error
    );
    assert!(
        fixture
            .text(
                "entity_details",
                json!({"connectionId": "notes", "targets": [{"display": "x"}]})
            )
            .ends_with("connections that can be: shop")
    );
}

#[test]
fn hostile_table_names_are_quoted() {
    let fixture = fixture();
    for name in [
        "x\"; DROP TABLE orders; --",
        "' OR 1=1",
        "../..",
        "",
        "\u{0}",
        &"y".repeat(5_000),
    ] {
        let text = fixture.text(
            "entity_details",
            json!({"connectionId": "shop", "targets": [{"display": name}]}),
        );
        assert!(text.starts_with("Not found: "), "{text}");
    }
}

#[test]
fn discover_finds_tables_and_columns() {
    let fixture = fixture();
    let text = fixture.text(
        "discover_data",
        json!({"query": "customer", "connectionId": "shop"}),
    );
    assert!(
        text.contains("- table: customers [connectionId=shop]\n- column: orders.customer_id [connectionId=shop]\n\n"),
        "{text}"
    );
    let some = fixture.text("discover_data", json!({"limit": 1}));
    assert!(
        some.contains("- table: customers [connectionId=shop]\n2 more match; raise limit or narrow the query.\n\n"),
        "{some}"
    );
    fs::write(fixture.root().join("shop.db"), "x".repeat(4_000)).unwrap();
    let broken = fixture.text("discover_data", json!({"query": "customer"}));
    assert!(
        broken.contains("connection `shop` cannot be searched: file is not a database"),
        "{broken}"
    );
}

#[test]
fn sources_are_checked_against_their_database() {
    let fixture = fixture();
    fixture.text("record_verification_ledger", json!({"summary": "x"}));
    let write = |more: Value| {
        let mut source = json!({"name": "s", "grain": ["id"], "columns": [{"name": "ID", "type": "number"}, {"name": "id", "type": "number"}]});
        source
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        fixture.text(
            "sl_write_source",
            json!({"connectionId": "shop", "sourceName": "s", "source": source}),
        )
    };
    let texts = [
        write(json!({"table": "orders"})),
        write(
            json!({"table": "main.orders", "columns": [{"name": "id", "type": "number"}, {"name": "totl", "type": "number"},
            {"name": "day", "type": "time", "expr": "date(at)"}]}),
        ),
        write(json!({"table": "nowhere"})),
        write(json!({"table": "orders\"; DROP TABLE orders; --"})),
        write(json!({"sql": "SELECT id FROM orders -- all of them"})),
        write(json!({"sql": "SELECT 1 AS id) ; DROP TABLE orders; SELECT (1"})),
        write(json!({"sql": "DELETE FROM orders"})),
    ];
    insta::assert_snapshot!(texts.join("\n----\n"));
    assert!(
        fixture
            .text("sql_execution", sql("SELECT count(*) FROM orders"))
            .contains("| 5002 |")
    );
}
