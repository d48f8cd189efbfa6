//! An agent that asks for tables that do not exist learns it from the warehouse and corrects its source.

use super::*;
use crate::{
    mcp::warehouse::{ADBC, DUCKDB, SHOP, duckdb_file, named},
    support::api::ApiRoute,
};
use ingestdeck_test_support::postgres::PostgresServer;

/// A source over `table` of the connection `wh`.
fn source(table: &str) -> Value {
    ktx(
        "sl_write_source",
        json!({"connectionId": "wh", "sourceName": "orders", "rawPaths": ["models/harvest.yml"], "source": {
            "name": "orders", "table": table, "grain": ["id"],
            "columns": [{"name": "id", "type": "number"}, {"name": "total", "type": "number"}],
            "measures": [{"name": "revenue", "expr": "sum(total)"}],
        }}),
    )
}

/// An agent that looks for refunds, and writes a source over a table that it has not seen.
fn curious(schema: &str) -> ApiRoute {
    let ledger = json!({
        "summary": "Asked the warehouse.", "verifiedIdentifiers": [format!("{schema}.orders")],
        "unverifiedIdentifiers": ["refunds"],
    });
    asked_by(
        "dbt-all",
        [
            ApiTurn::blocks([
                ktx("read_raw_file", json!({"path": "models/harvest.yml"})),
                ktx(
                    "sql_execution",
                    json!({"connectionId": "wh", "sql": "SELECT * FROM refunds"}),
                ),
                ktx(
                    "entity_details",
                    json!({"connectionId": "wh", "targets": [{"display": "orders"}, {"display": "ordrs"}]}),
                ),
            ]),
            ApiTurn::blocks([ktx("record_verification_ledger", ledger)]),
            ApiTurn::blocks([source(&format!("{schema}.ordrs"))]),
            ApiTurn::blocks([source(&format!("{schema}.orders"))]),
            ApiTurn::answer("The source names the table that is there."),
        ],
    )
}

fn with_connection(deck: &TestProject, connection: &str) {
    let path = deck.home.project().join("ktx.yaml");
    let yaml = std::fs::read_to_string(&path).unwrap();
    let yaml = yaml.replacen(
        "connections:\n",
        &format!("connections:\n  wh: {connection}\n"),
        1,
    );
    std::fs::write(path, yaml).unwrap();
}

/// Runs the curious agent; the warehouse reports a missing table as `reported`.
fn assert_agent_learns(deck: &TestProject, schema: &str, reported: &str) {
    let run = deck.run("dbt-all", &[]);
    assert_eq!(run.code, Some(0), "{run:#?}");
    let file = deck.read("semantic-layer/wh/orders.yaml");
    assert!(file.contains(&format!("table: {schema}.orders")), "{file}");
    let asked: String = deck
        .api
        .requests()
        .iter()
        .map(|request| request.body.clone())
        .collect();
    let nearest = format!("{schema}.orders");
    for expected in [
        reported,
        "Not found: ordrs",
        nearest.as_str(),
        "Closest matches: ",
    ] {
        assert!(asked.contains(expected), "{expected}: {asked}");
    }
    let verified = deck.play(&["artifacts", "--ui", "json"]);
    assert!(verified.stdout.contains("verified"), "{verified:#?}");
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE, INGESTDECK_TEST_POSTGRES and INGESTDECK_TEST_ADBC"]
fn agent_corrects_its_source_after_postgres_answers() {
    let server = PostgresServer::start().unwrap();
    server.sql(SHOP);
    let url = server.url();
    let allowed = format!(
        "postgres url=postgres://127.0.0.1:{}/postgres",
        server.port()
    );
    let deck = TestProject::new([curious("public")]).set(&format!(
        "[warehouse]\nallow = [{allowed:?}]\ndrivers = [{:?}]\n",
        named(ADBC).to_str().unwrap()
    ));
    with_connection(&deck, &format!("{{driver: postgres, url: '{url}'}}"));
    assert_agent_learns(&deck, "public", "relation \\\"refunds\\\" does not exist");

    // A scan has what the server has; a second one sees the change.
    let scan = deck.play(&["scan", "wh"]);
    assert_eq!(scan.code, Some(0), "{scan:#?}");
    assert!(
        deck.read("semantic-layer/wh/_schema/public.yaml")
            .contains("total")
    );
    server
        .sql("ALTER TABLE orders ADD COLUMN note text; DROP TABLE mart.\"Größe \"\"x\"\" ; 100%\"");
    let scan = deck.play(&["scan", "wh", "--json"]);
    let scan: Value = serde_json::from_str(scan.stdout.trim()).unwrap();
    assert_eq!(scan["changed"], json!(["public.orders"]), "{scan}");
    assert_eq!(
        scan["removed"],
        json!(["mart.Größe \"x\" ; 100%"]),
        "{scan}"
    );
    assert!(
        deck.read("semantic-layer/wh/_schema/public.yaml")
            .contains("note")
    );
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE and INGESTDECK_TEST_DUCKDB"]
fn agent_corrects_its_source_after_duckdb_answers() {
    let deck = TestProject::new([curious("main")]).set(&format!(
        "[warehouse]\ndrivers = [{:?}]\n",
        named(DUCKDB).to_str().unwrap()
    ));
    with_connection(&deck, "{driver: duckdb, path: shop.duckdb}");
    duckdb_file(
        &deck.home.project().join("shop.duckdb"),
        &["CREATE TABLE orders (id int PRIMARY KEY, total decimal(10, 2))"],
    );
    assert_agent_learns(&deck, "main", "Table with name refunds does not exist");
}
