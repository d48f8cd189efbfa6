//! A warehouse, and what its child process needs to reach it.
//!
//! This module must not read a secret: the child process does ([`child`]). Who may use a warehouse is decided in
//! the module `warehouse_access`.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use super::QueryError;
use ingestdeck_core::text::percent_decoded;

mod catalog;
mod child;
mod pool;

pub(super) use catalog::{CATALOG_TIMEOUT, CatalogReader};
pub use catalog::{CatalogProgress, ServerInfo};
pub use child::{
    SUBCOMMAND as WAREHOUSE_WORKER, StatementAnswer, StatementKind, WarehouseStatement,
};
pub(super) use pool::{RunningStatements, WarehousePools};

/// What the user's settings contain about warehouses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarehouseSettings {
    /// Connections that may be used: `warehouse.allow`.
    pub allow: Vec<String>,
    /// Files and directories with driver libraries: `warehouse.drivers`.
    pub drivers: Vec<PathBuf>,
    /// Time limit of a statement of an agent.
    pub query_timeout: Duration,
    /// Most connections to one warehouse that are open concurrently.
    pub max_connections: u32,
    /// Age from which the scan of a database no longer proves that a table is missing.
    pub max_scan_age: Duration,
}

/// A warehouse that may be used.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warehouse {
    /// Its key in the `connections` of `ktx.yaml`.
    pub id: String,
    /// Its `driver` in `ktx.yaml`.
    pub driver: WarehouseDriver,
    /// The keys that have an effect, by their canonical names. Secrets may be references, such as `env:PASSWORD`.
    pub keys: BTreeMap<String, String>,
    /// The file of a DuckDB database; absolute, without links.
    pub file: Option<PathBuf>,
    /// Files and directories with driver libraries.
    pub drivers: Vec<PathBuf>,
    /// Time limit of a statement of an agent.
    pub query_timeout: Duration,
    /// Most connections that are open concurrently.
    pub max_connections: u32,
}

/// Its keys may be passwords, so they are not shown.
impl fmt::Debug for Warehouse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Warehouse")
            .field("id", &self.id)
            .field("driver", &self.driver)
            .finish_non_exhaustive()
    }
}

impl Warehouse {
    /// The name of its database; `None` if it is not known without connecting.
    fn database(&self) -> Option<String> {
        let key = |name| self.keys.get(name).map(String::as_str);
        database_name(key("url"), key("database"))
    }
}

/// The database that the keys `url` and `database` of a connection name; `None` if they do not, or only in a secret.
pub(crate) fn database_name(url: Option<&str>, database: Option<&str>) -> Option<String> {
    let Some(url) = url else {
        let is_reference = |name: &&str| name.starts_with("env:") || name.starts_with("file:");
        let named = database.map(str::trim).filter(|name| !name.is_empty());
        return named.filter(|name| !is_reference(name)).map(str::to_owned);
    };
    let (scheme, rest) = url.trim().split_once("://")?;
    // The path of other URLs is not the name of a database, and a parameter has priority over the path.
    let has_path = ["postgres", "postgresql", "redshift"].contains(&scheme);
    if !has_path || rest.contains("dbname=") {
        return None;
    }
    let (_, path) = rest.split_once('/')?;
    let name = path.split(['/', '?', '#']).next().unwrap_or_default();
    (!name.is_empty()).then(|| percent_decoded(name))
}

/// A kind of warehouse that has an ADBC driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WarehouseDriver {
    Postgres,
    Redshift,
    DuckDb,
    Snowflake,
    BigQuery,
    Databricks,
    MySql,
    SqlServer,
}

impl WarehouseDriver {
    /// The driver with this name in `ktx.yaml`.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "postgres" | "postgresql" => Self::Postgres,
            "redshift" => Self::Redshift,
            "duckdb" => Self::DuckDb,
            "snowflake" => Self::Snowflake,
            "bigquery" => Self::BigQuery,
            "databricks" => Self::Databricks,
            "mysql" | "mariadb" => Self::MySql,
            "sqlserver" | "mssql" => Self::SqlServer,
            _ => return None,
        })
    }

    /// Its name in `ktx.yaml`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Redshift => "redshift",
            Self::DuckDb => "duckdb",
            Self::Snowflake => "snowflake",
            Self::BigQuery => "bigquery",
            Self::Databricks => "databricks",
            Self::MySql => "mysql",
            Self::SqlServer => "sqlserver",
        }
    }

    /// How agents write its SQL.
    pub fn dialect(self) -> &'static str {
        match self {
            Self::Postgres => "PostgreSQL",
            Self::Redshift => "Redshift",
            Self::DuckDb => "DuckDB",
            Self::Snowflake => "Snowflake",
            Self::BigQuery => "BigQuery",
            Self::Databricks => "Databricks",
            Self::MySql => "MySQL",
            Self::SqlServer => "SQL Server (T-SQL)",
        }
    }
}

impl Default for WarehouseSettings {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            drivers: Vec::new(),
            query_timeout: Duration::from_secs(30),
            max_connections: 4,
            max_scan_age: Duration::from_secs(7 * 24 * 60 * 60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_is_named_by_its_url_or_its_key() {
        for (url, key, expected) in [
            (
                Some("postgres://me:p@db:5433/my%20shop?sslmode=require"),
                None,
                Some("my shop"),
            ),
            (Some("postgresql://db/shop"), Some("other"), Some("shop")),
            (Some("postgres://db/shop?dbname=other"), None, None),
            (Some("postgres://db"), None, None),
            (Some("postgres://db/"), None, None),
            (Some("sqlserver://db/instance"), None, None),
            (Some("env:DATABASE_URL"), Some("shop"), None),
            (None, Some(" shop "), Some("shop")),
            (None, Some("env:PGDATABASE"), None),
            (None, Some(""), None),
            (None, None, None),
        ] {
            let name = database_name(url, key);
            assert_eq!(name.as_deref(), expected, "{url:?} {key:?}");
        }
    }

    #[test]
    fn debug_output_shows_no_keys() {
        let warehouse = Warehouse {
            id: "wh".into(),
            driver: WarehouseDriver::Postgres,
            keys: [("password".to_owned(), "opensesame".to_owned())].into(),
            file: None,
            drivers: Vec::new(),
            query_timeout: Duration::from_secs(1),
            max_connections: 1,
        };
        assert!(!format!("{warehouse:?}").contains("opensesame"));
    }
}
