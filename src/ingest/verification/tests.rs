//! What is verified, unverified and contradicted in sources, pages and the ledger.

use serde_json::json;

use super::*;
use crate::{
    connection_scope::ConnectionAccess,
    database::Database,
    facts::{FactFiles, ProjectFacts},
};
use ingestdeck_core::tape::note::verification::MAX_CHECKED;

struct VerifiedProject {
    workspace: Workspace,
    scope: ConnectionScope,
    facts: CatalogFacts,
    _dir: tempfile::TempDir,
}

fn access(id: &str, driver: &str, database: Option<Database>) -> ConnectionAccess {
    ConnectionAccess {
        id: id.into(),
        driver: Some(driver.into()),
        is_target: true,
        database,
        facts: Default::default(),
    }
}

/// A project with a warehouse that was asked about `public.orders`, a SQLite file, and a connection without a database.
fn project() -> VerifiedProject {
    let dir = tempfile::tempdir().unwrap();
    let workspace = Workspace::open_persistent(dir.path(), &dir.path().join("work")).unwrap();
    let file = Database::Sqlite(dir.path().join("lite.db"));
    let scope = ConnectionScope {
        connections: vec![
            access("wh", "postgres", None),
            access("lite", "sqlite", Some(file)),
            access("bi", "looker", None),
        ],
        ..ConnectionScope::default()
    };
    let column = |name: &str, kind: &str| json!({"name": name, "nativeType": kind});
    let table = |connection: &str, db: Option<&str>| {
        json!({
            "connectionId": connection, "catalog": null, "db": db, "name": "orders", "display": "orders", "kind": "table",
            "columns": [column("id", "bigint"), column("status", "text"), column("day", "text")], "origin": "connection",
        })
    };
    let mut facts = CatalogFacts::default();
    for (connection, db) in [("wh", Some("public")), ("lite", None)] {
        let answer = json!({
            "resolved": [table(connection, db)], "missing": [{"target": "refunds", "candidates": [], "proven": true}],
            "scanAvailable": true,
        });
        facts.add_answer(
            "entity_details",
            &json!({"connectionId": connection}),
            &answer,
        );
    }
    VerifiedProject {
        workspace,
        scope,
        facts,
        _dir: dir,
    }
}

impl VerifiedProject {
    fn verify(&self, artifacts: &[(&str, &str)], stated: &[&str]) -> VerificationRecord {
        let verifier = Verifier {
            workspace: &self.workspace,
            scope: &self.scope,
            facts: &self.facts,
        };
        let (artifacts, stated) = (artifacts.iter().copied(), stated.iter().copied());
        verifier.verify(artifacts, stated).unwrap()
    }

    /// The only artifact in the record.
    fn states(&self, path: &str, text: &str) -> (Vec<String>, Vec<String>, Vec<String>) {
        let record = self.verify(&[(path, text)], &[]);
        let [artifact] = record.artifacts.as_slice() else {
            panic!("{record:?}")
        };
        let contradicted = artifact.contradicted.iter();
        let contradicted = contradicted.map(|it| format!("{}: {}", it.name, it.found));
        (
            artifact.verified.clone(),
            artifact.unverified.clone(),
            contradicted.collect(),
        )
    }
}

const COLUMNS: &str = "columns:\n  - {name: ID, type: number}\n  - {name: status, type: number}\n  - {name: day, type: time}\n  \
                       - {name: net, type: number, expr: total - tax}\n  - {name: total, type: number}\n";

#[test]
fn source_is_compared_with_its_table() {
    let project = project();
    let text = format!("name: orders\ntable: '\"Public\".orders'\ngrain: [id]\n{COLUMNS}");
    let (verified, unverified, contradicted) =
        project.states("semantic-layer/wh/orders.yaml", &text);
    assert_eq!(verified, ["\"Public\".orders", "\"Public\".orders.ID"]);
    assert!(unverified.is_empty());
    assert_eq!(
        contradicted,
        [
            "\"Public\".orders.day: its type is `text`, not time",
            "\"Public\".orders.status: its type is `text`, not number",
            "\"Public\".orders.total: the table has no such column",
        ]
    );
}

#[test]
fn name_with_the_database_of_the_connection_is_checked() {
    let mut project = project();
    let text =
        |table: &str| format!("name: x\ntable: '{table}'\ncolumns: [{{name: id, type: number}}]\n");
    let path = "semantic-layer/wh/x.yaml";
    let own = text("\"Shop\".\"public\".\"orders\"");
    assert_eq!(
        project.states(path, &own).0.len(),
        0,
        "its database is not known"
    );
    project.scope.connections[0].facts = ProjectFacts::default().of("wh", || FactFiles {
        database: Some("shop".into()),
        ..FactFiles::default()
    });
    let (verified, ..) = project.states(path, &own);
    let name = "\"Shop\".\"public\".\"orders\"";
    assert_eq!(verified, [name.to_owned(), format!("{name}.id")]);
    let (verified, unverified, contradicted) = project.states(path, &text("other.public.orders"));
    assert_eq!((verified.len(), contradicted.len()), (0, 0));
    assert_eq!(
        unverified,
        ["other.public.orders", "other.public.orders.id"]
    );
    let record = project.verify(&[], &["shop.public.orders.id", "other.public.orders"]);
    assert_eq!(record.unproven, ["other.public.orders"]);
}

#[test]
fn sqlite_columns_accept_every_type() {
    let text = format!("name: orders\ntable: orders\n{COLUMNS}");
    let (verified, _, contradicted) = project().states("semantic-layer/lite/orders.yaml", &text);
    assert_eq!(
        verified,
        ["orders", "orders.ID", "orders.day", "orders.status"]
    );
    assert_eq!(contradicted, ["orders.total: the table has no such column"]);
}

#[test]
fn table_that_was_not_looked_up_is_unverified() {
    let project = project();
    let text =
        |table: &str| format!("name: x\ntable: {table}\ncolumns: [{{name: id, type: number}}]\n");
    let (verified, unverified, contradicted) =
        project.states("semantic-layer/wh/x.yaml", &text("sales.orders"));
    assert_eq!((verified.len(), contradicted.len()), (0, 0));
    assert_eq!(unverified, ["sales.orders", "sales.orders.id"]);
    let (_, unverified, contradicted) =
        project.states("semantic-layer/wh/x.yaml", &text("refunds"));
    assert_eq!(unverified, ["refunds.id"]);
    assert_eq!(contradicted, ["refunds: there is no such table in `wh`"]);
}

#[test]
fn overlay_is_compared_with_its_scanned_table() {
    let project = project();
    let scan = "tables:\n  orders: {table: public.orders, columns: [{name: id, type: number}]}\n";
    project
        .workspace
        .write("semantic-layer/wh/_schema/public.yaml", scan.as_bytes())
        .unwrap();
    let text =
        "name: orders\ncolumn_overrides: [{name: status}, {name: gone}]\nexclude_columns: [id]\n";
    let (verified, _, contradicted) = project.states("semantic-layer/wh/orders.yaml", text);
    assert_eq!(
        verified,
        ["public.orders", "public.orders.id", "public.orders.status"]
    );
    assert_eq!(
        contradicted,
        ["public.orders.gone: the table has no such column"]
    );
    let sql = "name: o\nsql: select 1\ncolumns: [{name: made_up, type: number}]\n";
    let record = project.verify(&[("semantic-layer/wh/o.yaml", sql)], &[]);
    assert_eq!(record, VerificationRecord::default());
}

#[test]
fn page_is_compared_by_tables_and_sources() {
    let project = project();
    let source = "name: sales\ntable: public.orders\ncolumns: [{name: status, type: string}, {name: gone, type: string}]\n\
                  measures: [{name: revenue, expr: sum(total)}]\n";
    project
        .workspace
        .write("semantic-layer/wh/sales.yaml", source.as_bytes())
        .unwrap();
    let page = "---\nsummary: s\ntables: [wh/public.orders, orders, refunds, wh/refunds]\n\
                sl_refs: [sales, wh/sales.status, sales.revenue, sales.gone, nothing]\n---\n\nText about `made_up`.\n";
    let (verified, unverified, contradicted) = project.states("wiki/global/orders.md", page);
    assert_eq!(
        verified,
        [
            "sales",
            "sales.revenue",
            "wh/public.orders",
            "wh/sales.status"
        ]
    );
    assert_eq!(
        unverified,
        ["orders", "refunds"],
        "both connections have `orders`"
    );
    assert_eq!(
        contradicted,
        [
            "sales.gone: the table has no such column",
            "wh/refunds: there is no such table in `wh`"
        ]
    );
}

#[test]
fn ledger_names_that_no_answer_has_are_unproven() {
    let stated = [
        "wh/orders",
        "lite/orders.status",
        "public.orders.id",
        "orders",
        "gone",
        "GONE",
        "orders.gone",
        "read all files",
    ];
    let record = project().verify(&[], &stated);
    assert_eq!(record.unproven, ["orders", "gone", "orders.gone"]);
}

#[test]
fn connection_without_database_is_named_and_not_compared() {
    let mut project = project();
    let source = "name: x\ntable: t\n";
    let record = project.verify(
        &[
            ("semantic-layer/bi/x.yaml", source),
            ("wiki/global/a.md", "Text."),
        ],
        &["t"],
    );
    assert_eq!(
        (record.unchecked.as_slice(), record.artifacts.len()),
        (&["bi".to_owned()][..], 0)
    );
    project.facts = CatalogFacts::default();
    project
        .scope
        .connections
        .retain(|access| access.database.is_none());
    let page = "---\nsummary: s\ntables: [orders]\n---\n\nText.\n";
    let record = project.verify(&[("wiki/global/a.md", page)], &["orders"]);
    assert_eq!(record, VerificationRecord::default());
}

#[test]
fn identifiers_are_bounded_contradicted_ones_first() {
    let columns: String = (0..MAX_CHECKED + 5)
        .map(|index| format!("  - {{name: c{index}, type: number}}\n"))
        .collect();
    let columns = format!("columns:\n{columns}");
    let wide = format!("name: w\ntable: sales.wide\n{columns}");
    let wrong = "name: r\ntable: refunds\n";
    let paths = ["semantic-layer/wh/w.yaml", "semantic-layer/wh/z.yaml"];
    let record = project().verify(&[(paths[0], &wide), (paths[1], wrong)], &[]);
    let counts: Vec<usize> = record
        .artifacts
        .iter()
        .map(ArtifactVerification::len)
        .collect();
    assert_eq!(counts, [MAX_CHECKED - 1, 1]);
    let long = format!("name: l\ntable: {}\n", "x".repeat(500));
    let record = project().verify(&[(paths[0], &long)], &[]);
    assert_eq!(record.artifacts[0].unverified[0].len(), MAX_NAME_CHARS);
}

#[test]
fn connection_precedes_a_slash() {
    assert_eq!(
        split_connection("wh/public.orders"),
        (Some("wh"), "public.orders")
    );
    assert_eq!(split_connection("/orders"), (None, "orders"));
    assert_eq!(split_connection("\"a/b\""), (None, "\"a/b\""));
}
