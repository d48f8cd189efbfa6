//! Whether the warehouse of a connection may be used.
//!
//! `ktx.yaml` comes with the project, perhaps from another author. It could send a secret of the user to a host of that
//! author, so only the user's own settings allow a connection, together with the secrets that it names. A file of DuckDB
//! follows the rules for paths.

#![expect(
    clippy::disallowed_methods,
    reason = "resolves the path of a database to decide whether it may be opened"
)]

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use serde_json::Value;

use super::{
    connection::{Connection, without_login},
    database::{Warehouse, WarehouseDriver},
    project::Project,
};
use ingestdeck_core::{diagnostic::Problem, text::percent_decoded};

/// The warehouse of `connection`, or why it must not be used. `None` if it is none that this program can reach.
pub(crate) fn resolve(
    project: &Project,
    connection: &Connection,
) -> Option<Result<Arc<Warehouse>, Problem>> {
    let driver = WarehouseDriver::parse(connection.driver.as_deref()?)?;
    let settings = &project.warehouse;
    let warehouse = |file: Option<PathBuf>, keys: EffectiveKeys| {
        let keys = keys.into_iter();
        Arc::new(Warehouse {
            id: connection.id.clone(),
            driver,
            keys: keys.map(|(key, value)| (key.to_owned(), value)).collect(),
            file,
            drivers: settings.drivers.clone(),
            query_timeout: settings.query_timeout,
            max_connections: settings.max_connections,
        })
    };
    if let Some(file) = duckdb_file(driver, connection) {
        let path = project.root.join(&file).canonicalize();
        return Some(match path {
            Err(error) => Err(Problem::new(format!("{file}: {error}"))
                .with_help("correct `path` in ktx.yaml, or build the database first")),
            Ok(path) => match project.path_policy.check(&project.root, &path) {
                Ok(()) => Ok(warehouse(Some(path), EffectiveKeys::new())),
                Err(refusal) => Err(Problem::from_error(&refusal)),
            },
        });
    }
    let keys = match effective_keys(driver, connection) {
        Ok(keys) => keys,
        Err(problem) => return Some(Err(problem)),
    };
    let permission = permission(driver, &keys);
    Some(if settings.allow.contains(&permission) {
        Ok(warehouse(None, keys))
    } else {
        let why = format!("your settings do not allow `{permission}` yet");
        let remedy = project
            .path_policy
            .warehouse_remedy(&settings.allow, &permission);
        Err(Problem::new(why).with_help(remedy))
    })
}

/// The file of a DuckDB connection, as `ktx.yaml` names it. MotherDuck is none.
fn duckdb_file(driver: WarehouseDriver, connection: &Connection) -> Option<String> {
    if driver != WarehouseDriver::DuckDb {
        return None;
    }
    let named = connection.subdir.as_deref().or(connection.url.as_deref())?;
    let path = ["duckdb://", "duckdb:", "file://", "file:"]
        .iter()
        .find_map(|prefix| named.strip_prefix(prefix));
    let path = path.unwrap_or(named);
    let is_file = !path.is_empty() && !named.starts_with("md:") && !named.starts_with("env:");
    is_file.then(|| percent_decoded(path))
}

/// Effective keys of a connection: their canonical names, and their values as text. Secrets may be references.
pub(crate) type EffectiveKeys = BTreeMap<&'static str, String>;

/// A key that reaches a warehouse.
struct KnownKey {
    /// Its name for the child process and in `warehouse.allow`.
    name: &'static str,
    /// Other spellings, the most important first.
    others: &'static [&'static str],
    kind: KeyKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyKind {
    /// Part of the permission.
    Plain,
    /// As [`Self::Plain`], but its literal value is not shown.
    Secret,
    /// As [`Self::Secret`], and a literal value is refused.
    Reference,
    /// What is read, not where: names, separated by commas. Not part of the permission.
    Names,
}

const fn key(name: &'static str, others: &'static [&'static str], kind: KeyKind) -> KnownKey {
    KnownKey { name, others, kind }
}

const SERVER_KEYS: [KnownKey; 10] = [
    key("url", &[], KeyKind::Plain),
    key("host", &[], KeyKind::Plain),
    key("port", &[], KeyKind::Plain),
    key("database", &[], KeyKind::Plain),
    key("username", &["user"], KeyKind::Plain),
    key("password", &[], KeyKind::Secret),
    key("sslmode", &["sslMode"], KeyKind::Plain),
    key("ssl", &[], KeyKind::Plain),
    key("trustServerCertificate", &[], KeyKind::Plain),
    key("schemas", &["schema"], KeyKind::Names),
];
const SNOWFLAKE_KEYS: [KnownKey; 10] = [
    key("url", &[], KeyKind::Reference),
    key("account", &[], KeyKind::Plain),
    key("database", &[], KeyKind::Plain),
    key("warehouse", &[], KeyKind::Plain),
    key("role", &[], KeyKind::Plain),
    key("username", &["user"], KeyKind::Plain),
    key("password", &[], KeyKind::Secret),
    key("privateKey", &["private_key"], KeyKind::Secret),
    key("passphrase", &[], KeyKind::Secret),
    key(
        "schemas",
        &["schema_names", "schema_name", "schema"],
        KeyKind::Names,
    ),
];
const BIGQUERY_KEYS: [KnownKey; 4] = [
    key("project_id", &["project"], KeyKind::Plain),
    key("credentials_json", &[], KeyKind::Reference),
    key("location", &[], KeyKind::Plain),
    key("dataset_ids", &["dataset_id", "dataset"], KeyKind::Names),
];
const DATABRICKS_KEYS: [KnownKey; 5] = [
    key("host", &["server_hostname"], KeyKind::Plain),
    key("http_path", &["httpPath"], KeyKind::Plain),
    key("token", &["access_token"], KeyKind::Secret),
    key("catalog", &["database"], KeyKind::Plain),
    key("schemas", &["schema"], KeyKind::Names),
];

fn known_keys(driver: WarehouseDriver) -> &'static [KnownKey] {
    match driver {
        WarehouseDriver::Postgres
        | WarehouseDriver::Redshift
        | WarehouseDriver::MySql
        | WarehouseDriver::SqlServer => &SERVER_KEYS,
        WarehouseDriver::Snowflake => &SNOWFLAKE_KEYS,
        WarehouseDriver::BigQuery => &BIGQUERY_KEYS,
        WarehouseDriver::Databricks => &DATABRICKS_KEYS,
        WarehouseDriver::DuckDb => &[],
    }
}

/// The keys of `connection` that have an effect; the child process gets no others.
fn effective_keys(
    driver: WarehouseDriver,
    connection: &Connection,
) -> Result<EffectiveKeys, Problem> {
    let mut effective = EffectiveKeys::new();
    for known in known_keys(driver) {
        let names = [known.name].into_iter().chain(known.others.iter().copied());
        let mut found = names.filter_map(|name| Some((name, connection.keys.0.get(name)?)));
        let Some((name, value)) = found.find(|(_, value)| !value.is_null()) else {
            continue;
        };
        let invalid = |why: &str| {
            Problem::new(format!("its `{name}` cannot be used: {why}"))
                .with_help("correct the connection in ktx.yaml")
        };
        let text = match (value, known.kind) {
            (Value::String(text), _) => text.trim().to_owned(),
            (Value::Number(number), KeyKind::Plain) => number.to_string(),
            (Value::Bool(flag), KeyKind::Plain) => flag.to_string(),
            (Value::Array(list), KeyKind::Names) => {
                let names: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
                names.join(",")
            }
            _ => return Err(invalid("it is not a text")),
        };
        if known.kind == KeyKind::Reference && !is_reference(&text) {
            return Err(invalid("only `env:NAME` and `file:PATH` are accepted"));
        }
        if known.name == "url" && !is_reference(&text) && !is_single_login(&text) {
            return Err(invalid("it is not the URL of one server"));
        }
        effective.insert(known.name, text);
    }
    Ok(effective)
}

/// Whether `url` names one server, and has at most one `@`, so that every program cuts off the same login.
fn is_single_login(url: &str) -> bool {
    let Some((_, rest)) = url.split_once("://") else {
        return false;
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    !authority.contains(',') && authority.matches('@').count() <= 1 && !path.contains('@')
}

/// What `warehouse.allow` must contain for a connection with these keys: everything that decides where it leads and which
/// secrets it sends.
fn permission(driver: WarehouseDriver, keys: &EffectiveKeys) -> String {
    let shown = known_keys(driver).iter().filter_map(|known| {
        let value = keys.get(known.name)?;
        let value = match known.kind {
            KeyKind::Names => return None,
            KeyKind::Secret if !is_reference(value) => "(in ktx.yaml)",
            _ => value,
        };
        let value = without_login(value);
        let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\');
        Some(
            match value.chars().all(is_plain) || value == "(in ktx.yaml)" {
                true => format!("{}={value}", known.name),
                false => format!("{}={value:?}", known.name),
            },
        )
    });
    let parts: Vec<String> = [driver.name().to_owned()]
        .into_iter()
        .chain(shown)
        .collect();
    parts.join(" ")
}

fn is_reference(text: &str) -> bool {
    text.starts_with("env:") || text.starts_with("file:")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        connection::ConnectionKeys, database::WarehouseSettings, path_policy::UserPermissions,
    };

    fn connection(driver: &str, keys: Value) -> Connection {
        let text = |key: &str| Some(keys.get(key)?.as_str()?.to_owned());
        Connection {
            id: "wh".into(),
            driver: Some(driver.into()),
            url: text("url"),
            subdir: text("path"),
            keys: ConnectionKeys(keys),
            ..Connection::default()
        }
    }

    fn entry(driver: &str, keys: Value) -> Result<String, String> {
        let driver = WarehouseDriver::parse(driver).unwrap();
        effective_keys(driver, &connection(driver.name(), keys))
            .map(|keys| permission(driver, &keys))
            .map_err(|problem| problem.to_string())
    }

    #[test]
    fn permission_has_every_place_and_every_secret() {
        for (driver, keys, expected) in [
            (
                "postgres",
                json!({"url": "env:DATABASE_URL"}),
                "postgres url=env:DATABASE_URL",
            ),
            (
                "postgres",
                json!({"url": "postgres://me:secret@db:5432/shop?sslmode=disable"}),
                "postgres url=postgres://db:5432/shop?sslmode=disable",
            ),
            (
                "mariadb",
                json!({"host": "db", "port": 5432, "database": "my shop", "user": "me", "password": "env:PW", "x": "env:Y"}),
                "mysql host=db port=5432 database=\"my shop\" username=me password=env:PW",
            ),
            (
                "postgres",
                json!({"host": "db", "password": "secret", "ssl": false, "schemas": ["a", "b"]}),
                "postgres host=db password=(in ktx.yaml) ssl=false",
            ),
            (
                "snowflake",
                json!({"account": "ab", "database": "S", "private_key": "file:~/k"}),
                "snowflake account=ab database=S privateKey=file:~/k",
            ),
            (
                "bigquery",
                json!({"credentials_json": "env:GCP"}),
                "bigquery credentials_json=env:GCP",
            ),
            (
                "databricks",
                json!({"server_hostname": "evil", "http_path": "/sql/1", "token": "env:T"}),
                "databricks host=evil http_path=/sql/1 token=env:T",
            ),
        ] {
            assert_eq!(entry(driver, keys).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn keys_that_programs_read_differently_are_refused() {
        for (driver, keys) in [
            ("postgres", json!({"host": [2_130_706_433_u32]})),
            ("postgres", json!({"host": {"a": "b"}})),
            ("postgres", json!({"url": "postgres://a@evil:1,x@db/shop"})),
            ("postgres", json!({"url": "postgres://a@b@db/shop"})),
            (
                "postgres",
                json!({"url": "postgres://me:top/secret@db/shop"}),
            ),
            ("postgres", json!({"url": "host=db password=secret"})),
            ("snowflake", json!({"url": "me:secret@ab/S"})),
            (
                "bigquery",
                json!({"credentials_json": "{\"type\": \"external_account\"}"}),
            ),
        ] {
            let refused = entry(driver, keys).unwrap_err();
            assert!(!refused.contains("secret"), "{refused}");
        }
    }

    #[test]
    fn only_the_exact_entry_of_the_user_allows_a_warehouse() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ktx.yaml"), "connections: {}\n").unwrap();
        let keys = json!({"host": "db", "database": "shop", "password": "env:PW"});
        let allowed = |entry: &str| {
            let project = Project::open(dir.path()).unwrap();
            let project = project.with_permissions(UserPermissions {
                warehouse: WarehouseSettings {
                    allow: vec![entry.into()],
                    ..WarehouseSettings::default()
                },
                settings_file: "~/settings.toml".into(),
                ..UserPermissions::default()
            });
            resolve(&project, &connection("postgres", keys.clone())).unwrap()
        };
        let exact = "postgres host=db database=shop password=env:PW";
        let found = allowed(exact).unwrap();
        assert_eq!(found.keys.len(), 3);
        for entry in [
            "postgres host=db database=shop",
            "postgres host=db database=shop password=env:OTHER",
            "postgres",
            "*",
            "",
        ] {
            let refused = allowed(entry).unwrap_err();
            let help = ingestdeck_core::diagnostic::Diagnostic::help(&refused).unwrap();
            assert!(help.contains(&format!("\"{exact}\"]")), "{help}");
            assert!(
                help.contains("below `[warehouse]` in your settings (~/settings.toml)"),
                "{help}"
            );
        }
    }
}
