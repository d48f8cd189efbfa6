//! Which answers prove tables and columns.

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// A table in the answer of `entity_details`.
fn details(connection: &str, name: &[&str], columns: &[&str], origin: &str) -> Value {
    let part = |back: usize| name.len().checked_sub(back).map(|index| name[index]);
    let columns: Vec<Value> = columns
        .iter()
        .map(|name| json!({"name": name, "nativeType": "TEXT"}))
        .collect();
    json!({
        "resolved": [{
            "connectionId": connection, "catalog": part(3), "db": part(2), "name": part(1), "display": name.join("."),
            "kind": "table", "columns": columns, "origin": origin, "proven": true,
        }],
        "missing": [], "scanAvailable": true,
    })
}

fn missing(target: &str, proven: bool) -> Value {
    json!({"target": target, "candidates": [], "proven": proven})
}

fn parts(name: &str) -> Vec<String> {
    name_parts(name).unwrap()
}

impl CatalogFacts {
    /// Adds an answer about connection `wh`.
    fn with(mut self, tool: &str, structured: &Value) -> Self {
        self.add_answer(tool, &json!({"connectionId": "wh"}), structured);
        self
    }

    fn state(&self, name: &str) -> &'static str {
        match self.table(Some("wh"), &parts(name)) {
            TableProof::Exists(_) => "exists",
            TableProof::Unknown => "unknown",
            TableProof::Missing => "missing",
        }
    }

    fn column_state(&self, table: &str, column: &str) -> &'static str {
        let table_parts = parts(table);
        let TableProof::Exists(found) = self.table(Some("wh"), &table_parts) else {
            panic!("{table} does not exist")
        };
        match self.column("wh", (&table_parts, &found), column) {
            ColumnProof::Exists(_) => "exists",
            ColumnProof::Unknown => "unknown",
            ColumnProof::Missing => "missing",
        }
    }
}

#[test]
fn spellings_of_a_proven_table_are_one_name() {
    let answer = details(
        "wh",
        &["Shop", "public", "Orders"],
        &["Id", "status"],
        "scan",
    );
    let facts = CatalogFacts::default().with("entity_details", &answer);
    for name in [
        "orders",
        "PUBLIC.orders",
        "shop.\"public\".orders",
        "`Shop.Public.Orders`",
    ] {
        assert_eq!(facts.state(name), "exists", "{name}");
        assert_eq!(facts.column_state(name, "ID"), "exists");
        assert_eq!(facts.column_state(name, "total"), "missing");
    }
    for name in [
        "other.public.orders",
        "order",
        "orders.id",
        "archive.orders",
    ] {
        assert_eq!(facts.state(name), "unknown", "{name}");
    }
    assert_eq!(
        facts.table(Some("other"), &parts("orders")),
        TableProof::Unknown
    );
}

#[test]
fn columns_are_missing_only_from_current_tables() {
    let state = |origin: &str, proven: Value| {
        let mut answer = details("wh", &["orders"], &["id", "status"], origin);
        answer["resolved"][0]["proven"] = proven;
        let facts = CatalogFacts::default().with("entity_details", &answer);
        facts.column_state("orders", "total")
    };
    assert_eq!(state("scan", json!(true)), "missing");
    assert_eq!(state("scan", json!(false)), "unknown");
    assert_eq!(state("scan", json!(null)), "unknown");
    assert_eq!(state("connection", json!(null)), "missing");
}

#[test]
fn ambiguous_name_is_not_proven() {
    let facts = CatalogFacts::default()
        .with(
            "entity_details",
            &details("wh", &["sales", "orders"], &["id", "a"], "connection"),
        )
        .with(
            "entity_details",
            &details("wh", &["archive", "orders"], &["id", "b"], "connection"),
        );
    assert_eq!(facts.state("orders"), "unknown");
    assert_eq!(facts.state("sales.orders"), "exists");
    assert!(facts.has_name(None, &parts("a")) && !facts.has_name(None, &parts("id")));
    let queried =
        json!({"connectionId": "wh", "headers": ["id"], "rows": [], "tables": ["orders"]});
    let facts = facts.with("sql_execution", &queried);
    assert_eq!(facts.state("orders"), "exists");
    assert_eq!(facts.column_state("orders", "a"), "unknown");
}

#[test]
fn declared_models_and_unknown_origins_prove_nothing() {
    for origin in ["dbt-manifest", "rumour"] {
        let answer = details("wh", &["public", "orders"], &["id", "status"], origin);
        let facts = CatalogFacts::default().with("entity_details", &answer);
        assert_eq!(facts, CatalogFacts::default(), "{origin}");
    }
    for origin in ["scan", "dbt-catalog", "connection"] {
        let answer = details("wh", &["public", "orders"], &["id", "status"], origin);
        assert_eq!(
            CatalogFacts::default()
                .with("entity_details", &answer)
                .state("orders"),
            "exists"
        );
    }
}

#[test]
fn queries_prove_the_tables_and_columns_they_list() {
    let mut answer = json!({
        "connectionId": "wh", "headers": ["id", "state"], "rows": [["orders_v2", "fake.table"]], "rowCount": 1,
        "truncated": false, "sql": "SELECT id, status AS state FROM public.orders -- refunds",
        "tables": ["public.orders"], "columns": [{"table": "public.orders", "column": "id"}],
    });
    let facts = CatalogFacts::default().with("sql_execution", &answer);
    assert_eq!(facts.column_state("orders", "id"), "exists");
    assert_eq!(facts.column_state("orders", "state"), "unknown");
    for name in ["orders_v2", "fake.table", "refunds"] {
        assert_eq!(facts.state(name), "unknown", "{name}");
    }
    answer["error"] = json!("no such table: public.orders");
    assert_eq!(
        CatalogFacts::default().with("sql_execution", &answer),
        CatalogFacts::default()
    );
}

#[test]
fn search_proves_the_tables_and_columns_it_finds() {
    let hits = json!([
        {"connectionId": "wh", "kind": "table", "display": "orders"},
        {"connectionId": "wh", "kind": "column", "display": "orders.total"},
        {"connectionId": "wh", "kind": "column", "display": "total"},
        {"connectionId": "wh", "kind": "table", "display": "planned", "origin": "dbt-manifest"},
    ]);
    let answer = json!({
        "wiki": null, "sl": {"sources": ["made_up"]}, "raw": {"hits": [{"path": "a.sql", "text": "from made_up"}]},
        "tables": {"hits": hits, "totalFound": 4},
    });
    let facts = CatalogFacts::default().with("discover_data", &answer);
    assert_eq!(facts.column_state("orders", "total"), "exists");
    assert_eq!(facts.column_state("orders", "id"), "unknown");
    assert_eq!(
        (facts.state("made_up"), facts.state("planned")),
        ("unknown", "unknown")
    );
}

#[test]
fn missing_targets_disprove_what_was_asked_for() {
    let mut answer = details("wh", &["orders"], &["id"], "scan");
    answer["missing"] = json!([
        missing("Orders_v2", true), missing("orders.total", true), missing("two words", true),
        missing("ambiguous", false), {"target": "older", "candidates": []},
    ]);
    let facts = CatalogFacts::default().with("entity_details", &answer);
    assert_eq!(
        (facts.state("orders_v2"), facts.state("x.orders_v2")),
        ("missing", "unknown")
    );
    assert_eq!(
        (facts.state("ambiguous"), facts.state("older")),
        ("unknown", "unknown")
    );
    assert_eq!(facts.column_state("orders", "total"), "missing");
    assert_eq!(
        facts.column_state("orders", "other"),
        "unknown",
        "only `id` was looked up"
    );
    assert_eq!(facts.table(None, &parts("orders_v2")), TableProof::Unknown);
    // A table that appears later exists.
    let created = details("wh", &["orders_v2"], &["id"], "connection");
    assert_eq!(
        facts.with("entity_details", &created).state("orders_v2"),
        "exists"
    );
}

#[test]
fn answers_of_other_forms_prove_nothing() {
    for structured in [
        json!(null),
        json!({"resolved": ["orders"], "missing": [], "scanAvailable": true}),
        json!({"tables": ["orders"]}),
        json!({"tables": {"hits": [{"display": "orders"}]}}),
        json!({"connectionId": "wh", "headers": [], "rows": []}),
    ] {
        for tool in [
            "entity_details",
            "sql_execution",
            "discover_data",
            "read_raw_file",
        ] {
            assert_eq!(
                CatalogFacts::default().with(tool, &structured),
                CatalogFacts::default(),
                "{tool} {structured}"
            );
        }
    }
}

#[test]
fn facts_are_bounded() {
    let mut facts = CatalogFacts {
        count: MAX_FACTS - 2,
        ..CatalogFacts::default()
    };
    for name in ["t0", "t1"] {
        facts = facts.with("entity_details", &details("wh", &[name], &["id"], "scan"));
    }
    assert!(facts.is_full());
    assert_eq!(
        (facts.state("t0"), facts.state("t1")),
        ("exists", "unknown")
    );
}

/// The ways to write the parts of a name.
fn spelled(parts: &[String], style: u8) -> String {
    let part = |part: &String| match style {
        0 => part.clone(),
        1 => format!("\"{}\"", part.to_uppercase()),
        2 => format!("`{part}`"),
        _ => part.to_uppercase(),
    };
    parts.iter().map(part).collect::<Vec<_>>().join(".")
}

proptest! {
    #[test]
    fn identifier_is_verified_only_if_an_answer_has_it(
        answers in prop::collection::vec(
            ("wh|bi", prop::collection::vec("[ab]", 1..4), prop::collection::vec("[xy]", 0..3), 0_u8..4), 0..6,
        ),
        name in prop::collection::vec("[ab]", 1..4), column in "[xy]", style in 0_u8..4,
    ) {
        let mut facts = CatalogFacts::default();
        let mut proven: Vec<(Vec<String>, Vec<String>)> = Vec::new();
        for (connection, path, columns, kind) in &answers {
            let names: Vec<&str> = path.iter().map(String::as_str).collect();
            let listed: Vec<&str> = columns.iter().map(String::as_str).collect();
            let (tool, structured, proves) = match kind {
                0 => ("entity_details", details(connection, &names, &listed, "scan"), true),
                1 => ("entity_details", details(connection, &names, &listed, "dbt-manifest"), false),
                kind => {
                    let table = path.join(".");
                    let columns: Vec<Value> = columns.iter().map(|it| json!({"table": table, "column": it})).collect();
                    let mut structured = json!({"connectionId": connection, "tables": [table], "columns": columns});
                    if *kind == 3 {
                        structured["error"] = json!("failed");
                    }
                    ("sql_execution", structured, *kind == 2)
                }
            };
            facts.add_answer(tool, &json!({"connectionId": connection}), &structured);
            if proves && connection == "wh" {
                proven.push((path.clone(), columns.clone()));
            }
        }
        let parts = name_parts(&spelled(&name, style)).unwrap();
        let has_table = proven.iter().any(|(path, _)| path.ends_with(&name));
        let has_column = proven.iter().any(|(path, columns)| path.ends_with(&name) && columns.contains(&column));
        let exact = proven.iter().any(|(path, _)| *path == name);
        let state = facts.table(Some("wh"), &parts);
        let exists = matches!(state, TableProof::Exists(_));
        prop_assert!(has_table || !exists);
        prop_assert!(exists || !exact, "a name that an answer has exactly is verified");
        if let TableProof::Exists(table) = &state {
            let found = facts.column("wh", (&parts, table), &column);
            prop_assert!(has_column || !matches!(found, ColumnProof::Exists(_)));
        }
    }
}
