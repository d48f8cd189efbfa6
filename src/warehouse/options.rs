//! The options of ADBC drivers for the keys of a connection, and the secrets that the keys name.
//!
//! The keys are those of KTX. A value may be a reference, `env:NAME` or `file:PATH`, which only this process resolves.

#![expect(
    clippy::disallowed_methods,
    reason = "reads the secrets that the user's settings allow for this connection"
)]

use std::{env, fs::File, io::Read as _, path::PathBuf, time::Duration};

use serde_json::Value;

use ingestdeck_core::text::{percent_decoded, percent_encoded};
use ingestdeck_ingest::{QueryError, Warehouse, WarehouseDriver};

/// Largest file with a secret, in bytes.
const MAX_SECRET_BYTES: u64 = 1024 * 1024;
/// Shorter values are not masked, because they occur in everyday words.
const MIN_MASKED_CHARS: usize = 4;
/// Memory that DuckDB may use.
const DUCKDB_MEMORY: &str = "1GB";
/// Seconds in which a server must answer.
const CONNECT_SECONDS: &str = "10";

/// Parameters of a literal URL that change neither the server nor the login. They are part of what the user allows.
const ALLOWED_URL_KEYS: [&str; 9] = [
    "sslmode",
    "ssl",
    "application_name",
    "connect_timeout",
    "schema",
    "encrypt",
    "TrustServerCertificate",
    "tls",
    "catalog",
];

/// The values of references. They are not shown.
#[derive(Default)]
pub(crate) struct Secrets(Vec<String>);

impl Secrets {
    /// The value of `text`, which may be a reference.
    fn resolve(&mut self, text: &str) -> Result<String, QueryError> {
        let (found, place) = if let Some(name) = text.strip_prefix("env:") {
            let name = name.trim();
            (env::var(name).ok(), format!("the variable {name}"))
        } else if let Some(path) = text.strip_prefix("file:") {
            let path = path.trim().trim_start_matches("//");
            (read_file(path), format!("the file {path}"))
        } else {
            return Ok(text.to_owned());
        };
        let value = found
            .map(|value| value.trim().to_owned())
            .unwrap_or_default();
        if value.is_empty() {
            return Err(QueryError::MissingSecret(place));
        }
        self.add(&value);
        Ok(value)
    }

    fn add(&mut self, value: &str) {
        for form in [value.to_owned(), encoded(value)] {
            if form.chars().count() >= MIN_MASKED_CHARS && !self.0.contains(&form) {
                self.0.push(form);
            }
        }
        // A secret may contain another one.
        self.0.sort_by_key(|form| std::cmp::Reverse(form.len()));
    }

    /// `text` without the secrets.
    pub(crate) fn mask(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| {
            text.replace(secret.as_str(), "•••")
        })
    }
}

fn read_file(path: &str) -> Option<String> {
    let home = env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let path = path
        .strip_prefix("~/")
        .map_or_else(|| PathBuf::from(path), |rest| home.join(rest));
    let mut text = String::new();
    // A named pipe would block.
    let file = path.is_file().then(|| File::open(&path).ok()).flatten()?;
    file.take(MAX_SECRET_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Options of a driver, as names and values.
type Options = Vec<(String, String)>;

/// The options with which the driver of `warehouse` opens its database.
///
/// # Errors
/// If a secret cannot be read, or a key is missing or not allowed.
pub(crate) fn database_options(
    warehouse: &Warehouse,
    secrets: &mut Secrets,
) -> Result<Options, QueryError> {
    let mut keys = ResolvedKeys { warehouse, secrets };
    match warehouse.driver {
        WarehouseDriver::Postgres | WarehouseDriver::Redshift => keys.postgres(),
        WarehouseDriver::DuckDb => keys.duckdb(),
        WarehouseDriver::Snowflake => keys.snowflake(),
        WarehouseDriver::BigQuery => keys.bigquery(),
        WarehouseDriver::Databricks => keys.databricks(),
        WarehouseDriver::MySql => keys.mysql(),
        WarehouseDriver::SqlServer => keys.sql_server(),
    }
}

struct ResolvedKeys<'a> {
    warehouse: &'a Warehouse,
    secrets: &'a mut Secrets,
}

impl ResolvedKeys<'_> {
    /// The value of the key `name`, if the connection has it.
    fn get(&mut self, name: &str) -> Result<Option<String>, QueryError> {
        let text = self.warehouse.keys.get(name);
        text.map(|text| self.secrets.resolve(text)).transpose()
    }

    fn need(&mut self, name: &str) -> Result<String, QueryError> {
        self.get(name)?
            .ok_or_else(|| QueryError::MissingKey(name.to_owned()))
    }

    /// The value of a key that is a secret even if `ktx.yaml` contains it.
    fn secret(&mut self, name: &str) -> Result<Option<String>, QueryError> {
        let value = self.get(name)?;
        if let Some(value) = &value {
            self.secrets.add(value);
        }
        Ok(value)
    }

    fn names(&self, name: &str) -> Vec<&str> {
        let list = self.warehouse.keys.get(name).map(String::as_str);
        let names = list.unwrap_or_default().split(',').map(str::trim);
        names.filter(|name| !name.is_empty()).collect()
    }

    /// `url`, checked if `ktx.yaml` contains it; else a URL of the keys.
    fn url(&mut self, scheme: &str) -> Result<ServerUrl, QueryError> {
        if let Some(text) = self.get("url")? {
            let is_literal = self.warehouse.keys.get("url") == Some(&text);
            let url = ServerUrl::parse(&text)
                .ok_or_else(|| QueryError::InvalidKey("url".into(), "it is not a URL".into()))?;
            if let Some((login, _)) = url.authority.rsplit_once('@') {
                self.secrets.add(login);
                let password = login.split_once(':').map(|(_, password)| password);
                self.secrets
                    .add(&percent_decoded(password.unwrap_or_default()));
            }
            let refused = url
                .query
                .iter()
                .map(|(key, _)| key)
                .find(|key| !ALLOWED_URL_KEYS.contains(&key.as_str()));
            return match refused.filter(|_| is_literal) {
                Some(key) => Err(QueryError::InvalidKey(
                    "url".into(),
                    format!("its parameter `{key}` is not allowed"),
                )),
                None => Ok(ServerUrl {
                    scheme: scheme.to_owned(),
                    ..url
                }),
            };
        }
        let host = self.need("host")?;
        let host = match self.get("port")? {
            Some(port) => format!("{host}:{port}"),
            None => host,
        };
        if host.contains(['/', '?', '#', '@', ' ', ',', '[', '%']) {
            let why = "it is not the name of a host".to_owned();
            return Err(QueryError::InvalidKey("host".into(), why));
        }
        let login = match (self.get("username")?, self.secret("password")?) {
            (None, None) => String::new(),
            (user, None) => format!("{}@", encoded(&user.unwrap_or_default())),
            (user, Some(password)) => format!(
                "{}:{}@",
                encoded(&user.unwrap_or_default()),
                encoded(&password)
            ),
        };
        let database = self.get("database")?.unwrap_or_default();
        Ok(ServerUrl {
            scheme: scheme.to_owned(),
            authority: format!("{login}{host}"),
            path: encoded(&database),
            query: Vec::new(),
        })
    }

    fn is_on(&self, name: &str) -> bool {
        self.warehouse
            .keys
            .get(name)
            .is_some_and(|value| value == "true")
    }

    fn postgres(&mut self) -> Result<Options, QueryError> {
        let mut url = self.url("postgresql")?;
        if let Some(mode) = self.get("sslmode")? {
            url.set("sslmode", mode);
        } else if self.is_on("ssl") {
            url.set("sslmode", "require".into());
        }
        if url.get("connect_timeout").is_none() {
            url.set("connect_timeout", CONNECT_SECONDS.into());
        }
        if url.get("application_name").is_none() {
            url.set("application_name", "ingestdeck".into());
        }
        // Redshift does not know these settings; its transactions are read-only.
        if self.warehouse.driver == WarehouseDriver::Postgres {
            let mut settings = url.get("options").unwrap_or_default().to_owned();
            let schemas = self.names("schemas").join(",").replace([' ', '\\'], "");
            if !schemas.is_empty() {
                settings.push_str(&format!(" -c search_path={schemas}"));
            }
            let limit = self.warehouse.query_timeout.as_millis();
            settings.push_str(&format!(
                " -c default_transaction_read_only=on -c standard_conforming_strings=on -c statement_timeout={limit} -c client_connection_check_interval=2000"
            ));
            url.set("options", settings.trim().to_owned());
        }
        Ok(vec![("uri".into(), url.to_text())])
    }

    fn duckdb(&mut self) -> Result<Options, QueryError> {
        let options = |path: String| {
            [
                ("path", path.as_str()),
                ("access_mode", "READ_ONLY"),
                ("memory_limit", DUCKDB_MEMORY),
                ("threads", "2"),
                ("temp_directory", ""),
                ("autoinstall_known_extensions", "false"),
                ("autoload_known_extensions", "false"),
                ("allow_community_extensions", "false"),
                ("enable_external_access", "false"),
                ("lock_configuration", "true"),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .to_vec()
        };
        match &self.warehouse.file {
            Some(file) => match file.to_str() {
                Some(path) => Ok(options(path.to_owned())),
                None => Err(QueryError::Unreadable(
                    "its name is not UTF-8 text; rename it".into(),
                )),
            },
            // MotherDuck is an extension of DuckDB that loads itself from the network.
            None => Err(QueryError::InvalidKey(
                "url".into(),
                "only files of DuckDB can be read".into(),
            )),
        }
    }

    fn snowflake(&mut self) -> Result<Options, QueryError> {
        let mut options: Options = Vec::new();
        let mut add = |key: &str, value: Option<String>| {
            options.extend(value.map(|value| (key.to_owned(), value)));
        };
        if let Some(url) = self.secret("url")? {
            add("uri", Some(url));
        } else {
            add("adbc.snowflake.sql.account", Some(self.need("account")?));
            add("username", self.get("username")?);
        }
        add("password", self.secret("password")?);
        add("adbc.snowflake.sql.db", self.get("database")?);
        add("adbc.snowflake.sql.warehouse", self.get("warehouse")?);
        add("adbc.snowflake.sql.role", self.get("role")?);
        add(
            "adbc.snowflake.sql.schema",
            self.names("schemas").first().map(|name| (*name).to_owned()),
        );
        if let Some(key) = self.secret("privateKey")? {
            add("adbc.snowflake.sql.auth_type", Some("auth_jwt".into()));
            add(
                "adbc.snowflake.sql.client_option.jwt_private_key_pkcs8_value",
                Some(key),
            );
            let passphrase = self.secret("passphrase")?;
            add(
                "adbc.snowflake.sql.client_option.jwt_private_key_pkcs8_password",
                passphrase,
            );
        }
        add(
            "adbc.snowflake.sql.client_option.login_timeout",
            Some(format!("{CONNECT_SECONDS}s")),
        );
        add(
            "adbc.snowflake.sql.client_option.app_name",
            Some("ingestdeck".into()),
        );
        // Otherwise credentials would be stored in files.
        add(
            "adbc.snowflake.sql.client_option.store_temp_creds",
            Some("false".into()),
        );
        Ok(options)
    }

    fn bigquery(&mut self) -> Result<Options, QueryError> {
        let prefix = "adbc.bigquery.sql";
        let mut options: Options = Vec::new();
        let credentials = self.secret("credentials_json")?;
        let project = match self.get("project_id")? {
            Some(project) => Some(project),
            None => credentials.as_deref().and_then(|text| {
                let json: Value = serde_json::from_str(text).ok()?;
                Some(json.get("project_id")?.as_str()?.to_owned())
            }),
        };
        let project = project.ok_or_else(|| QueryError::MissingKey("project_id".into()))?;
        options.push((format!("{prefix}.project_id"), project));
        if let Some(dataset) = self.names("dataset_ids").first() {
            options.push((format!("{prefix}.dataset_id"), (*dataset).to_owned()));
        }
        if let Some(location) = self.get("location")? {
            options.push((format!("{prefix}.location"), location));
        }
        let kind = format!("{prefix}.auth_type");
        match credentials {
            Some(credentials) => {
                options.push((kind.clone(), format!("{kind}.json_credential_string")));
                options.push((format!("{prefix}.auth_credentials"), credentials));
            }
            None => options.push((kind.clone(), format!("{kind}.app_default_credentials"))),
        }
        Ok(options)
    }

    fn databricks(&mut self) -> Result<Options, QueryError> {
        let host = self.need("host")?;
        let path = self.need("http_path")?;
        let token = self.secret("token")?;
        let token = token.ok_or_else(|| QueryError::MissingKey("token".into()))?;
        let token = encoded(&token);
        let mut url = ServerUrl {
            scheme: "databricks".into(),
            authority: format!("token:{token}@{host}:443"),
            path: path.trim_start_matches('/').to_owned(),
            query: Vec::new(),
        };
        if let Some(catalog) = self.get("catalog")? {
            url.set("catalog", catalog);
        }
        if let Some(schema) = self.names("schemas").first() {
            let schema = (*schema).to_owned();
            url.set("schema", schema);
        }
        Ok(vec![("uri".into(), url.to_text())])
    }

    fn mysql(&mut self) -> Result<Options, QueryError> {
        let url = self.url("mysql")?;
        Ok(vec![("uri".into(), url.to_text())])
    }

    fn sql_server(&mut self) -> Result<Options, QueryError> {
        let mut url = self.url("sqlserver")?;
        if !url.path.is_empty() && url.get("database").is_none() {
            let database = percent_decoded(&url.path);
            url.set("database", database);
            url.path.clear();
        }
        if self.is_on("trustServerCertificate") {
            url.set("TrustServerCertificate", "true".into());
        }
        Ok(vec![("uri".into(), url.to_text())])
    }
}

/// `text` as a part of a URL.
fn encoded(text: &str) -> String {
    percent_encoded(text.as_bytes()).replace('/', "%2F")
}

/// The parts of a URL of a server.
#[derive(Debug, PartialEq, Eq)]
struct ServerUrl {
    scheme: String,
    /// Login, host and port, encoded.
    authority: String,
    /// Without the slash in front, encoded.
    path: String,
    /// Names and values, decoded.
    query: Vec<(String, String)>,
}

impl ServerUrl {
    fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.trim().split_once("://")?;
        let rest = rest.split('#').next()?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (percent_decoded(key), percent_decoded(value))
        };
        let pairs = query.split('&').filter(|part| !part.is_empty());
        Some(Self {
            scheme: scheme.to_owned(),
            authority: authority.to_owned(),
            path: path.to_owned(),
            query: pairs.map(pair).collect(),
        })
    }

    fn get(&self, key: &str) -> Option<&str> {
        let found = self.query.iter().rev().find(|(known, _)| known == key);
        found.map(|(_, value)| value.as_str())
    }

    fn set(&mut self, key: &str, value: String) {
        self.query.retain(|(known, _)| known != key);
        self.query.push((key.to_owned(), value));
    }

    fn to_text(&self) -> String {
        let Self {
            scheme,
            authority,
            path,
            query,
        } = self;
        let encoded = |text: &str| percent_encoded(text.as_bytes());
        let pairs: Vec<String> = query
            .iter()
            .map(|(key, value)| format!("{}={}", encoded(key), encoded(value)))
            .collect();
        let mark = if pairs.is_empty() { "" } else { "?" };
        format!("{scheme}://{authority}/{path}{mark}{}", pairs.join("&"))
    }
}

/// Statements that prepare a new connection.
pub(crate) fn session_statements(warehouse: &Warehouse) -> Vec<String> {
    let seconds = warehouse.query_timeout.as_secs().max(1);
    match warehouse.driver {
        WarehouseDriver::Redshift => vec![format!(
            "SET statement_timeout TO {}",
            warehouse.query_timeout.as_millis()
        )],
        WarehouseDriver::Snowflake => vec![format!(
            "ALTER SESSION SET STATEMENT_TIMEOUT_IN_SECONDS = {seconds}"
        )],
        WarehouseDriver::MySql => vec![
            // The check reads texts and quotes as they are read without these modes.
            "SET SESSION sql_mode = ''".into(),
            format!(
                "SET SESSION MAX_EXECUTION_TIME = {}",
                warehouse.query_timeout.as_millis()
            ),
        ],
        WarehouseDriver::Databricks => vec![format!("SET STATEMENT_TIMEOUT = {seconds}")],
        WarehouseDriver::Postgres
        | WarehouseDriver::DuckDb
        | WarehouseDriver::BigQuery
        | WarehouseDriver::SqlServer => Vec::new(),
    }
}

/// How a read-only transaction begins and ends, where the warehouse has such transactions.
pub(crate) fn read_only_transaction(
    driver: WarehouseDriver,
) -> Option<(&'static str, &'static str)> {
    match driver {
        WarehouseDriver::Postgres | WarehouseDriver::Redshift => {
            Some(("BEGIN READ ONLY", "ROLLBACK"))
        }
        WarehouseDriver::MySql => Some(("START TRANSACTION READ ONLY", "ROLLBACK")),
        // The whole database is opened read-only.
        WarehouseDriver::DuckDb => None,
        WarehouseDriver::Snowflake
        | WarehouseDriver::BigQuery
        | WarehouseDriver::Databricks
        | WarehouseDriver::SqlServer => None,
    }
}

/// Options of one statement with this time limit.
pub(crate) fn statement_options(
    driver: WarehouseDriver,
    time_limit: Duration,
) -> Vec<(&'static str, String)> {
    match driver {
        // Small batches, because most results are cut after a few rows.
        WarehouseDriver::Postgres | WarehouseDriver::Redshift => {
            vec![("adbc.postgresql.batch_size_hint_bytes", "262144".into())]
        }
        WarehouseDriver::BigQuery => vec![(
            "adbc.bigquery.sql.query.job_timeout",
            format!("{}ms", time_limit.as_millis()),
        )],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn warehouse(driver: WarehouseDriver, keys: Value) -> Warehouse {
        Warehouse {
            id: "wh".into(),
            driver,
            keys: keys
                .as_object()
                .unwrap()
                .iter()
                .map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned()))
                .collect(),
            file: None,
            drivers: Vec::new(),
            query_timeout: Duration::from_secs(30),
            max_connections: 4,
        }
    }

    fn options(driver: WarehouseDriver, keys: Value) -> Vec<String> {
        let found = database_options(&warehouse(driver, keys), &mut Secrets::default()).unwrap();
        let lines = found
            .into_iter()
            .map(|(key, value)| format!("{key}={value}"));
        lines.collect()
    }

    fn refused(driver: WarehouseDriver, keys: Value) -> QueryError {
        database_options(&warehouse(driver, keys), &mut Secrets::default()).unwrap_err()
    }

    #[test]
    fn postgres_sessions_are_read_only() {
        let keys = json!({"url": "postgres://me:p%40ss@db.example.com:5433/shop?sslmode=require"});
        let uri = options(WarehouseDriver::Postgres, keys).join("\n");
        assert!(
            uri.starts_with("uri=postgresql://me:p%40ss@db.example.com:5433/shop?sslmode=require&"),
            "{uri}"
        );
        let settings = percent_decoded(uri.split_once("&options=").unwrap().1);
        assert_eq!(
            settings,
            "-c default_transaction_read_only=on -c standard_conforming_strings=on -c statement_timeout=30000 \
             -c client_connection_check_interval=2000"
        );
        let keys = json!({"host": "db", "port": "5433", "database": "my shop", "username": "a b", "password": "p/@:", "schemas": "mart,raw"});
        let uri = options(WarehouseDriver::Postgres, keys).join("\n");
        assert!(
            uri.starts_with("uri=postgresql://a%20b:p%2F%40%3A@db:5433/my%20shop?"),
            "{uri}"
        );
        assert!(
            percent_decoded(&uri).contains("-c search_path=mart,raw"),
            "{uri}"
        );
    }

    #[test]
    fn url_of_a_project_cannot_name_another_host_or_file() {
        for query in [
            "host=evil",
            "hostaddr=1.2.3.4",
            "service=x",
            "passfile=/x",
            "sslkey=/x",
            "dbname=x",
            "options=-c%20standard_conforming_strings%3Doff",
            "sslrootcert=/x",
            "port=1",
        ] {
            let keys = json!({"url": format!("postgres://db/shop?{query}")});
            let error = refused(WarehouseDriver::Postgres, keys);
            assert!(
                matches!(error, QueryError::InvalidKey(..)),
                "{query}: {error}"
            );
        }
        for host in ["db/x", "me@evil", "db?host=evil", "db#x"] {
            let error = refused(WarehouseDriver::Postgres, json!({"host": host}));
            assert!(
                matches!(error, QueryError::InvalidKey(..)),
                "{host}: {error}"
            );
        }
        assert_eq!(
            refused(WarehouseDriver::Postgres, json!({})),
            QueryError::MissingKey("host".into())
        );
    }

    #[test]
    fn drivers_get_the_options_of_their_documentation() {
        let keys = json!({"account": "ab-12", "username": "ME", "password": "secret", "database": "SHOP", "warehouse": "XS", "role": "READER", "schemas": "MART"});
        let snowflake = options(WarehouseDriver::Snowflake, keys);
        for expected in [
            "adbc.snowflake.sql.account=ab-12",
            "username=ME",
            "password=secret",
            "adbc.snowflake.sql.db=SHOP",
            "adbc.snowflake.sql.warehouse=XS",
            "adbc.snowflake.sql.role=READER",
            "adbc.snowflake.sql.schema=MART",
        ] {
            assert!(
                snowflake.contains(&expected.to_owned()),
                "{expected}: {snowflake:?}"
            );
        }
        let keys = json!({"credentials_json": "{\"project_id\": \"shop-1\"}", "dataset_ids": "mart", "location": "EU"});
        assert_eq!(
            options(WarehouseDriver::BigQuery, keys),
            [
                "adbc.bigquery.sql.project_id=shop-1",
                "adbc.bigquery.sql.dataset_id=mart",
                "adbc.bigquery.sql.location=EU",
                "adbc.bigquery.sql.auth_type=adbc.bigquery.sql.auth_type.json_credential_string",
                "adbc.bigquery.sql.auth_credentials={\"project_id\": \"shop-1\"}",
            ]
        );
        let keys = json!({"host": "x.cloud.example.com", "http_path": "/sql/1.0/warehouses/1", "token": "dapi/1", "catalog": "main"});
        assert_eq!(
            options(WarehouseDriver::Databricks, keys),
            [
                "uri=databricks://token:dapi%2F1@x.cloud.example.com:443/sql/1.0/warehouses/1?catalog=main"
            ]
        );
        let keys = json!({"host": "db", "port": "3306", "database": "shop", "username": "me", "password": "x"});
        assert_eq!(
            options(WarehouseDriver::MySql, keys),
            ["uri=mysql://me:x@db:3306/shop"]
        );
        let keys = json!({"host": "db", "database": "shop", "username": "me", "password": "x", "trustServerCertificate": "true"});
        assert_eq!(
            options(WarehouseDriver::SqlServer, keys),
            ["uri=sqlserver://me:x@db/?database=shop&TrustServerCertificate=true"]
        );
        let error = refused(WarehouseDriver::DuckDb, json!({"url": "md:shop"}));
        assert!(matches!(error, QueryError::InvalidKey(..)), "{error}");
    }

    #[test]
    fn secrets_come_from_files_and_are_masked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        std::fs::write(&path, "opensesame\n").unwrap();
        let mut secrets = Secrets::default();
        let keys =
            json!({"host": "db", "username": "me", "password": format!("file:{}", path.display())});
        let options =
            database_options(&warehouse(WarehouseDriver::MySql, keys), &mut secrets).unwrap();
        assert_eq!(options[0].1, "mysql://me:opensesame@db/");
        assert_eq!(
            secrets.mask("login me/opensesame failed"),
            "login me/••• failed"
        );
        let keys = json!({"host": "db", "password": "file:/nowhere"});
        assert_eq!(
            refused(WarehouseDriver::MySql, keys),
            QueryError::MissingSecret("the file /nowhere".into())
        );
    }
}
