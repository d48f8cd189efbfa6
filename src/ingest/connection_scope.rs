//! The connections that an attempt may read, write and query.
//!
//! It must not open any of them.

#![expect(
    clippy::disallowed_methods,
    reason = "resolves the path of a database to decide whether it may be opened"
)]

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;

use super::{
    database::{self, Database, SqlWorkers},
    facts::{AvailableFacts, ConnectionFacts, FactFileStamps, FactFiles, KnownTables},
    project::{Connection, PathRefusal, Project},
    source, warehouse_access,
};
use ingestdeck_core::diagnostic::Problem;

/// The connections of a project, as seen from one of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionScope {
    /// In the order of `ktx.yaml`.
    pub(crate) connections: Vec<ConnectionAccess>,
    /// Workers that query the databases.
    pub(crate) sql_workers: SqlWorkers,
    /// The time that the ages of facts refer to; `None` for the current time, if the scope may outlive the files.
    pub(crate) fixed_now: Option<Timestamp>,
    /// Age from which the scan of a database no longer proves that a table is missing.
    pub(crate) max_scan_age: Duration,
}

#[derive(Clone, Debug)]
pub(crate) struct ConnectionAccess {
    pub(crate) id: String,
    /// Driver name for display.
    pub(crate) driver: Option<String>,
    /// Whether sources may be written for this connection.
    pub(crate) is_target: bool,
    /// What can be queried: a SQLite file, or a warehouse that the user's settings allow.
    pub(crate) database: Option<Database>,
    /// What files contain about its tables.
    pub(crate) facts: Arc<ConnectionFacts>,
}

impl ConnectionAccess {
    /// Whether files or a database can answer questions about its tables.
    pub(crate) fn knows_tables(&self) -> bool {
        self.database.is_some() || self.facts.exist()
    }
}

impl ConnectionScope {
    /// The scope of an attempt at a unit of connection `own`. Sources may be written for databases and for the unit's
    /// own connection; without `own`, for any connection.
    pub(crate) fn new(project: &Project, own: Option<&str>) -> Self {
        let scoped = |connection: &Connection| ConnectionAccess {
            id: connection.id.clone(),
            driver: connection.driver.clone(),
            is_target: is_target(connection, own),
            database: queryable_database(project, connection),
            facts: facts(project, connection),
        };
        let connections = project.settings.connections.iter().map(scoped).collect();
        Self {
            connections,
            sql_workers: project.sql_workers.for_attempt(),
            fixed_now: Some(Timestamp::now()),
            max_scan_age: project.warehouse.max_scan_age,
        }
    }

    /// Connections that sources may be written for, in the order of `ktx.yaml`.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &ConnectionAccess> {
        self.connections
            .iter()
            .filter(|connection| connection.is_target)
    }

    /// Ids of the connections whose sources pages may refer to, sorted.
    pub(crate) fn target_ids(&self) -> Vec<String> {
        let mut ids: Vec<String> = self
            .targets()
            .map(|connection| connection.id.clone())
            .collect();
        ids.sort_unstable();
        ids
    }

    /// The time that the ages of facts refer to.
    pub(crate) fn now(&self) -> Timestamp {
        self.fixed_now.unwrap_or_else(Timestamp::now)
    }

    /// The known tables of connection `id`, for checks of its sources.
    pub(crate) fn known_tables(&self, id: &str) -> Option<KnownTables> {
        let connection = self.get(id)?;
        let facts = &connection.facts;
        Some(KnownTables::new(facts, self.now(), self.max_scan_age))
    }

    /// The state of the files with facts, for each connection.
    pub(crate) fn fact_stamps(&self) -> Vec<FactFileStamps> {
        let connections = self.connections.iter();
        connections
            .map(|connection| connection.facts.stamps())
            .collect()
    }

    pub(crate) fn get(&self, id: &str) -> Option<&ConnectionAccess> {
        self.connections
            .iter()
            .find(|connection| connection.id == id)
    }
}

/// The facts in files about the tables of `connection`.
fn facts(project: &Project, connection: &Connection) -> Arc<ConnectionFacts> {
    project
        .facts
        .of(&connection.id, || fact_files(project, connection))
}

/// Where files with facts about the tables of `connection` may be.
fn fact_files(project: &Project, connection: &Connection) -> FactFiles {
    /// The setting of a source that names the database of its tables.
    const TARGET_KEY: &str = "/metricflow/targetConnection";
    /// Drivers of sources that dbt builds.
    const DBT_DRIVERS: [&str; 2] = ["dbt", "metricflow"];
    let all = &project.settings.connections;
    let is_database = |of: &&Connection| {
        of.driver
            .as_deref()
            .is_some_and(|driver| !source::is_context_driver(driver))
    };
    let databases: Vec<&str> = all
        .iter()
        .filter(is_database)
        .map(|of| of.id.as_str())
        .collect();
    let target = |of: &'_ Connection| match (of.text(TARGET_KEY), &databases[..]) {
        (Some(named), _) if databases.contains(&named) => named.to_owned(),
        (None, [only]) => (*only).to_owned(),
        _ => of.id.clone(),
    };
    let is_dbt = |of: &&Connection| {
        of.driver
            .as_deref()
            .is_some_and(|driver| DBT_DRIVERS.contains(&driver))
    };
    let serving = all
        .iter()
        .filter(is_dbt)
        .filter(|of| target(of) == connection.id);
    let mut dirs: Vec<PathBuf> = serving
        .filter_map(|of| source::source_dir(project.connection(of)).ok())
        .collect();
    dirs.sort_unstable();
    dirs.dedup();
    let enabled = connection
        .keys
        .0
        .get("enabled_tables")
        .and_then(|list| list.as_array());
    FactFiles {
        project: project.root.clone(),
        connection: connection.id.clone(),
        dbt_sources: dirs,
        database: database::database_name(connection.text("/url"), connection.text("/database")),
        has_enabled_tables: enabled.is_some_and(|tables| !tables.is_empty()),
    }
}

impl Project {
    /// Ids of the connections that a unit of connection `own` may write sources for, sorted; without `own`, all of
    /// them.
    pub fn target_ids(&self, own: Option<&str>) -> Vec<String> {
        let targets = self
            .settings
            .connections
            .iter()
            .filter(|connection| is_target(connection, own));
        let mut ids: Vec<String> = targets.map(|connection| connection.id.clone()).collect();
        ids.sort_unstable();
        ids
    }

    /// What the tables of `connection` can be checked against; `None` if it is not a database. Opens no connection.
    pub fn available_facts(&self, connection: &Connection) -> Option<AvailableFacts> {
        if !is_database(connection) {
            return None;
        }
        let mut available = facts(self, connection).available();
        let resolved = match resolve_database(self, connection) {
            Some(path) => Some(
                path.map(|_| "SQLite")
                    .map_err(|why| Problem::from_error(&why)),
            ),
            None => warehouse_access::resolve(self, connection)
                .map(|found| found.map(|warehouse| warehouse.driver.dialect())),
        };
        match resolved {
            Some(Ok(dialect)) => available.dialect = Some(dialect),
            Some(Err(refusal)) => available.refusal = Some(refusal),
            None => {}
        }
        Some(available)
    }

    /// A warning about each database that cannot be checked against anything, or only against an old scan.
    pub fn fact_warnings(&self, now: Timestamp) -> Vec<Problem> {
        let max_age = self.warehouse.max_scan_age;
        let warning = |connection: &Connection| {
            let (id, facts) = (&connection.id, self.available_facts(connection)?);
            let outdated = || facts.scan?.outdated_problem(id, max_age, now);
            facts.unchecked_problem(id).or_else(outdated)
        };
        let connections = self.settings.connections.iter();
        connections.filter_map(warning).collect()
    }
}

/// Whether `connection` is a database.
pub fn is_database(connection: &Connection) -> bool {
    connection
        .driver
        .as_deref()
        .is_some_and(source::is_database_driver)
}

fn is_target(connection: &Connection, own: Option<&str>) -> bool {
    let is_own = own.is_none_or(|own| own == connection.id);
    is_own
        || connection
            .driver
            .as_deref()
            .is_some_and(|driver| !source::is_context_driver(driver))
}

/// Path of the database file of `connection`; `None` if the connection does not name a file. The file may not exist.
pub(crate) fn database_path(project: &Path, connection: &Connection) -> Option<PathBuf> {
    if connection.driver.as_deref() != Some(database::DRIVER) {
        return None;
    }
    let named = connection.subdir.as_deref().or(connection.url.as_deref())?;
    // `sqlite:///srv/x.db`, `sqlite:x.db`, `file:x.db` and plain paths name the same kind of file.
    let path = ["sqlite://", "sqlite:", "file://", "file:"]
        .iter()
        .find_map(|prefix| named.strip_prefix(prefix));
    let path = path.unwrap_or(named);
    (!path.is_empty()).then(|| project.join(path))
}

/// The database of `connection` if it may be queried now.
pub(crate) fn queryable_database(project: &Project, connection: &Connection) -> Option<Database> {
    match resolve_database(project, connection) {
        Some(path) => path.ok().map(Database::Sqlite),
        None => warehouse_access::resolve(project, connection)?
            .ok()
            .map(Database::Warehouse),
    }
}

/// The SQLite file of `connection`, absolute and without links, or why it must not be queried. `None` if there is none.
pub fn resolve_database(
    project: &Project,
    connection: &Connection,
) -> Option<Result<PathBuf, PathRefusal>> {
    let path = database_path(&project.root, connection)?
        .canonicalize()
        .ok()?;
    match project.path_policy.check(&project.root, &path) {
        Ok(()) => path.is_file().then_some(Ok(path)),
        Err(refusal) => Some(Err(refusal)),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::project::UserPermissions;

    #[test]
    fn targets_are_databases_and_the_own_connection() {
        let dir = tempfile::tempdir().unwrap();
        let settings = "connections:\n  wh: {driver: postgres}\n  pages: {driver: confluence}\n  bi: {driver: looker}\n  \
                        orbit: {driver: dbt, source_dir: .}\n  flow: {driver: metricflow, source_dir: .}\n  other: {}\n";
        fs::write(dir.path().join("ktx.yaml"), settings).unwrap();
        let project = Project::open(dir.path()).unwrap();
        let targets = |own| {
            ConnectionScope::new(&project, own)
                .targets()
                .map(|target| target.id.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(targets(Some("orbit")), ["wh", "orbit"]);
        assert_eq!(targets(Some("flow")), ["wh", "flow"]);
        assert_eq!(targets(None).len(), 6);
    }

    #[test]
    fn dbt_serves_the_only_or_the_named_database() {
        let dir = tempfile::tempdir().unwrap();
        for (folder, file) in [("one", "catalog.json"), ("two", "manifest.json")] {
            fs::create_dir_all(dir.path().join(folder).join("target")).unwrap();
            fs::write(dir.path().join(folder).join("dbt_project.yml"), "name: x").unwrap();
            fs::write(dir.path().join(folder).join("target").join(file), "{}").unwrap();
        }
        let informed = |settings: &str| {
            fs::write(dir.path().join("ktx.yaml"), settings).unwrap();
            let project = Project::open(dir.path()).unwrap();
            let scope = ConnectionScope::new(&project, None).connections.into_iter();
            let known = scope.filter(ConnectionAccess::knows_tables);
            known.map(|known| known.id).collect::<Vec<_>>().join(" ")
        };
        let one = "connections:\n  orbit: {driver: dbt, source_dir: one}\n";
        let named =
            "  flow: {driver: metricflow, source_dir: two, metricflow: {targetConnection: b}}\n";
        let [a, b] = ["a", "b"].map(|id| format!("  {id}: {{driver: snowflake}}\n"));
        assert_eq!(informed(one), "orbit");
        assert_eq!(informed(&format!("{one}{a}")), "a");
        assert_eq!(informed(&format!("{one}{a}{b}")), "orbit");
        assert_eq!(informed(&format!("{one}{named}{a}{b}")), "orbit b");
    }

    #[test]
    fn available_facts_are_those_that_are_read() {
        let available = |settings: &str, files: &[(&str, &str)]| {
            let dir = tempfile::tempdir().unwrap();
            let settings =
                format!("connections:\n  wh: {{driver: sqlite, path: shop.db}}\n{settings}");
            for (path, text) in [("ktx.yaml", &*settings)].iter().chain(files) {
                crate::test_projects::write(dir.path(), path, text);
            }
            let project = Project::open(dir.path()).unwrap();
            let connection = &project.settings.connections[0];
            let found = project.available_facts(connection).unwrap();
            let access = ConnectionScope::new(&project, None).connections.remove(0);
            assert_eq!(access.knows_tables(), !found.is_empty());
            let line = found.prompt_line();
            let known = line.strip_prefix("Its tables and columns can be checked against ");
            known.unwrap_or("nothing").to_owned()
        };
        let dbt = "  dbt: {driver: dbt, source_dir: dbt}\n";
        let other = "  other: {driver: postgres}\n";
        let built = ("dbt/dbt_project.yml", "target-path: built\n");
        let plain = ("dbt/dbt_project.yml", "name: x\n");
        let catalog = ("dbt/target/catalog.json", "{}");
        let manifest = ("dbt/target/manifest.json", "{}");
        assert_eq!(available("", &[]), "nothing");
        assert_eq!(available("", &[("shop.db", "")]), "queries in SQLite SQL.");
        assert_eq!(available(dbt, &[plain, catalog]), "the catalogue of dbt.");
        assert_eq!(available(dbt, &[plain, manifest]), "the manifest of dbt.");
        assert_eq!(available(dbt, &[built, catalog]), "nothing");
        assert_eq!(
            available(dbt, &[built, ("dbt/built/catalog.json", "{}")]),
            "the catalogue of dbt."
        );
        let two = format!("{dbt}{other}");
        assert_eq!(available(&two, &[plain, catalog]), "nothing");
        let schema = ("semantic-layer/wh/_schema/public.yaml", "tables: {}\n");
        assert_eq!(available("", &[schema]), "a scan.");
        let scan = |day: &str| format!("raw-sources/wh/live-database/{day}/connection.json");
        let properties = "{\"extractedAt\": \"2026-03-01T23:00:00-05:00\"}";
        let scans = [
            (&*scan("2026-01-01-000000-a"), "{}"),
            (&*scan("2026-03-01-000000-b"), properties),
            (
                "raw-sources/wh/live-database/2026-03-02-000000-c/other.json",
                "{}",
            ),
        ];
        assert_eq!(available("", &scans), "a scan of 2026-03-02.");
    }

    #[test]
    fn databases_outside_are_reached_only_if_allowed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("project")).unwrap();
        for path in ["cookies.db", "project/own.db", "project/.hidden.db"] {
            fs::write(root.join(path), "").unwrap();
        }
        symlink(root.join("cookies.db"), root.join("project/link.db")).unwrap();
        let settings = "connections:\n  out: {driver: sqlite, path: ../cookies.db}\n  link: {driver: sqlite, path: link.db}\n  \
                        own: {driver: sqlite, path: own.db}\n  hid: {driver: sqlite, path: .hidden.db}\n";
        fs::write(root.join("project/ktx.yaml"), settings).unwrap();
        let project = Project::open(&root.join("project")).unwrap();
        let scoped = |project: &Project| {
            let scope = ConnectionScope::new(project, None).connections.into_iter();
            scope
                .filter(|scoped| scoped.database.is_some())
                .map(|scoped| scoped.id)
                .collect::<Vec<_>>()
        };
        assert_eq!(scoped(&project), ["own"]);
        assert_eq!(
            scoped(&project.with_permissions(UserPermissions {
                paths: vec![root.join("cookies.db")],
                ..UserPermissions::default()
            })),
            ["out", "link", "own"]
        );
    }

    #[test]
    fn paths_and_urls_name_files() {
        let connection = |driver: &str, path: Option<&str>, url: Option<&str>| Connection {
            id: "c".into(),
            driver: Some(driver.into()),
            subdir: path.map(str::to_owned),
            url: url.map(str::to_owned),
            ..Connection::default()
        };
        let at = |path, url| database_path(Path::new("/p"), &connection("sqlite", path, url));
        assert_eq!(at(Some("data/x.db"), None), Some("/p/data/x.db".into()));
        assert_eq!(
            at(None, Some("sqlite:///srv/x.db")),
            Some("/srv/x.db".into())
        );
        assert_eq!(at(None, Some("sqlite:x.db")), Some("/p/x.db".into()));
        assert_eq!(at(None, Some("file:x.db")), Some("/p/x.db".into()));
        assert_eq!((at(None, None), at(Some(""), None)), (None, None));
        assert_eq!(
            database_path(Path::new("/p"), &connection("postgres", Some("x"), None)),
            None
        );
    }
}
