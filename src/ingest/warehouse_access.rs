//! Whether the warehouse of a connection may be used.
//!
//! `ktx.yaml` comes with the project, perhaps from another author. It could send a secret of the user to a host of that
//! author, so only the user's own settings allow a connection, together with the secrets that it names. A file of DuckDB
//! follows the rules for paths.

#![expect(
    clippy::disallowed_methods,
    reason = "resolves the path of a database to decide whether it may be opened"
)]

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

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
    let warehouse = |file| {
        Arc::new(Warehouse {
            id: connection.id.clone(),
            driver,
            keys: connection.keys.0.clone(),
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
                Ok(()) => Ok(warehouse(Some(path))),
                Err(refusal) => Err(Problem::from_error(&refusal)),
            },
        });
    }
    let permission = permission(driver, connection);
    Some(if settings.allow.contains(&permission) {
        Ok(warehouse(None))
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

/// What `warehouse.allow` must contain for this connection: driver, address without login, and the secrets that it names.
fn permission(driver: WarehouseDriver, connection: &Connection) -> String {
    /// Keys that name a place, in this order.
    const PLACE: [&str; 7] = [
        "account",
        "host",
        "port",
        "project",
        "project_id",
        "http_path",
        "database",
    ];
    let mut references = BTreeSet::new();
    collect_references(&connection.keys.0, &mut references);
    let text = |key: &str| match connection.keys.0.get(key)? {
        Value::String(text) if !is_reference(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let url = text("url").map(|url| {
        let url = without_login(&url).into_owned();
        url.split(['?', '#']).next().unwrap_or_default().to_owned()
    });
    let place: Vec<String> = PLACE.iter().filter_map(|key| text(key)).collect();
    let mut parts = vec![match (url, place.is_empty()) {
        (Some(url), _) => url,
        (None, true) => driver.name().to_owned(),
        (None, false) => format!("{}://{}", driver.name(), place.join("/")),
    }];
    parts.extend(references);
    parts.join(" ")
}

fn is_reference(text: &str) -> bool {
    text.starts_with("env:") || text.starts_with("file:")
}

/// Adds the references to secrets that `value` contains.
fn collect_references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::String(text) if is_reference(text) => {
            found.insert(text.trim().to_owned());
        }
        Value::Array(list) => list.iter().for_each(|item| collect_references(item, found)),
        Value::Object(map) => map
            .values()
            .for_each(|item| collect_references(item, found)),
        _ => {}
    }
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

    #[test]
    fn permission_has_the_address_and_every_secret() {
        for (driver, keys, expected) in [
            (
                "postgres",
                json!({"url": "env:DATABASE_URL"}),
                "postgres env:DATABASE_URL",
            ),
            (
                "postgres",
                json!({"url": "postgres://me:secret@db:5432/shop?sslmode=require"}),
                "postgres://db:5432/shop",
            ),
            (
                "postgres",
                json!({"host": "db", "port": 5432, "database": "shop", "password": "env:PW", "ssl": {"key": "file:/k"}}),
                "postgres://db/5432/shop env:PW file:/k",
            ),
            (
                "snowflake",
                json!({"account": "ab", "database": "S", "privateKey": "file:~/k"}),
                "snowflake://ab/S file:~/k",
            ),
            (
                "bigquery",
                json!({"credentials_json": "env:GCP"}),
                "bigquery env:GCP",
            ),
        ] {
            let driver = WarehouseDriver::parse(driver).unwrap();
            assert_eq!(
                permission(driver, &connection(driver.name(), keys)),
                expected
            );
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
        assert!(allowed("postgres://db/shop env:PW").is_ok());
        for entry in [
            "postgres://db/shop",
            "postgres://db/shop env:OTHER",
            "postgres://db",
            "*",
            "",
        ] {
            let refused = allowed(entry).unwrap_err();
            let help = ingestdeck_core::diagnostic::Diagnostic::help(&refused).unwrap();
            assert!(help.contains("\"postgres://db/shop env:PW\"]"), "{help}");
            assert!(
                help.contains("below `[warehouse]` in your settings (~/settings.toml)"),
                "{help}"
            );
        }
    }
}
