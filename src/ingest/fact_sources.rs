//! What the tables and columns of a connection can be checked against: a scan, dbt's catalogue, or live queries.
//!
//! It must not open a database.

use jiff::Timestamp;

use super::{
    database::DRIVER,
    project::{Connection, Project},
    scan::{self, StoredScanDate},
    source, warehouse_access,
};
use ingestdeck_core::diagnostic::Problem;
use ingestdeck_os::scoped_dir::ScopedDir;

/// The file in which `dbt docs generate` stores the columns of the warehouse, below the dbt project.
const DBT_CATALOG: &str = "target/catalog.json";
/// The driver of connections that are dbt projects.
const DBT: &str = "dbt";

/// What the tables and columns of a connection can be checked against.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FactSources {
    pub scan: Option<StoredScanDate>,
    /// Connections to dbt projects with a catalogue, in the order of `ktx.yaml`.
    pub dbt_catalogs: Vec<String>,
    /// SQL dialect of live queries; `None` if the database cannot be queried.
    pub dialect: Option<&'static str>,
    /// Why the database cannot be queried, if a person can change that.
    pub refusal: Option<Problem>,
}

impl FactSources {
    /// Whether there is nothing at all.
    pub fn is_empty(&self) -> bool {
        self.scan.is_none() && self.dbt_catalogs.is_empty() && self.dialect.is_none()
    }

    /// The sentence about it in a prompt. It has dates instead of ages, so that a prompt is the same on another day.
    pub(crate) fn prompt_line(&self) -> String {
        let scan = self.scan.map(|scan| match scan.day() {
            Some(day) => format!("a scan of {day}"),
            None => "a scan".to_owned(),
        });
        let catalog = (!self.dbt_catalogs.is_empty()).then(|| "the catalogue of dbt".to_owned());
        let queries = self
            .dialect
            .map(|dialect| format!("queries in {dialect} SQL"));
        let parts: Vec<String> = [scan, catalog, queries].into_iter().flatten().collect();
        match parts.is_empty() {
            true => "Nothing can be checked against this database: its tables and columns are unverified unless a raw file \
                     contains them."
                .to_owned(),
            false => format!("Its tables and columns can be checked against {}.", parts.join(", ")),
        }
    }

    /// The problem that there is nothing to check `connection` against.
    pub fn unchecked_problem(&self, connection: &str) -> Option<Problem> {
        self.is_empty().then(|| {
            Problem::new(format!(
                "nothing can be checked against `{connection}`: it has no scan, no catalogue of dbt, and no connection that may be \
                 used"
            ))
            .with_help(format!(
                "run `ingestdeck scan {connection}`, or `dbt docs generate`, or allow the connection in `warehouse.allow` of your \
                 settings (`ingestdeck doctor` prints the entry)"
            ))
        })
    }
}

/// A warning about each database of the project that cannot be checked against anything, or only against an old scan.
pub fn warnings(project: &Project, now: Timestamp) -> Vec<Problem> {
    let max_age = project.warehouse.max_scan_age;
    let connections = project.settings.connections.iter();
    let warning = |connection: &Connection| {
        let (id, facts) = (&connection.id, find(project, connection)?);
        let outdated = || facts.scan?.outdated_problem(id, max_age, now);
        facts.unchecked_problem(id).or_else(outdated)
    };
    connections.filter_map(warning).collect()
}

/// Whether `connection` is a database.
pub fn is_database(connection: &Connection) -> bool {
    connection
        .driver
        .as_deref()
        .is_some_and(source::is_database_driver)
}

/// The facts about `connection`; `None` if it is not a database.
pub fn find(project: &Project, connection: &Connection) -> Option<FactSources> {
    if !is_database(connection) {
        return None;
    }
    let (dialect, refusal) = match connection.driver.as_deref()? {
        DRIVER => match super::connection_scope::resolve_database(project, connection) {
            Some(Ok(_)) => (Some("SQLite"), None),
            Some(Err(refusal)) => (None, Some(Problem::from_error(&refusal))),
            None => (None, None),
        },
        _ => match warehouse_access::resolve(project, connection) {
            Some(Ok(warehouse)) => (Some(warehouse.driver.dialect()), None),
            Some(Err(refusal)) => (None, Some(refusal)),
            None => (None, None),
        },
    };
    let catalogs = project.settings.connections.iter().filter(|other| {
        other.driver.as_deref() == Some(DBT)
            && source::source_dir(project.connection(other))
                .map(|dir| ScopedDir::open(&dir).is_ok_and(|dir| dir.is_file(DBT_CATALOG)))
                .unwrap_or(false)
    });
    Some(FactSources {
        scan: scan::stored_date(&project.root, &connection.id),
        dbt_catalogs: catalogs.map(|other| other.id.clone()).collect(),
        dialect,
        refusal,
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use super::*;

    fn facts(files: &[(&str, &str)]) -> Option<FactSources> {
        let dir = tempfile::tempdir().unwrap();
        let settings = "connections:\n  shop: {driver: sqlite, path: shop.db}\n  dbt: {driver: dbt, source_dir: dbt}\n";
        for (path, text) in [("ktx.yaml", settings)].iter().chain(files) {
            crate::test_projects::write(dir.path(), path, text);
        }
        fs::create_dir_all(dir.path().join("dbt")).unwrap();
        let project = Project::open(dir.path()).unwrap();
        find(&project, &project.settings.connections[0])
    }

    #[test]
    fn each_source_of_facts_is_found() {
        assert!(facts(&[]).unwrap().is_empty());
        let live = facts(&[("shop.db", "")]).unwrap();
        assert_eq!((live.dialect, live.scan), (Some("SQLite"), None));
        let dbt = facts(&[("dbt/target/catalog.json", "{}")]).unwrap();
        assert_eq!(dbt.dbt_catalogs, ["dbt"]);
        let undated =
            facts(&[("semantic-layer/shop/_schema/public.yaml", "tables: {}\n")]).unwrap();
        assert_eq!(undated.scan, Some(StoredScanDate(None)));
        let settings = "{\"extractedAt\": \"2026-03-01T23:00:00-05:00\"}";
        let newest = facts(&[
            (
                "raw-sources/shop/live-database/2026-01-01-000000-a/connection.json",
                "{}",
            ),
            (
                "raw-sources/shop/live-database/2026-03-01-000000-b/connection.json",
                settings,
            ),
            (
                "raw-sources/shop/live-database/2026-03-02-000000-c/other.json",
                "{}",
            ),
        ]);
        let day = newest.unwrap().scan.and_then(StoredScanDate::day).unwrap();
        assert_eq!(day.to_string(), "2026-03-02");
    }

    #[test]
    fn prompt_states_dates_and_what_cannot_be_checked() {
        let scanned = FactSources {
            scan: Some(StoredScanDate("2026-03-01T15:30:00Z".parse().ok())),
            dbt_catalogs: vec!["dbt".into()],
            dialect: Some("PostgreSQL"),
            refusal: None,
        };
        assert_eq!(
            scanned.prompt_line(),
            "Its tables and columns can be checked against a scan of 2026-03-01, the catalogue of dbt, queries in PostgreSQL SQL."
        );
        assert_eq!(
            FactSources::default().prompt_line(),
            "Nothing can be checked against this database: its tables and columns are unverified unless a raw file contains them."
        );
    }

    #[test]
    fn only_a_young_scan_is_no_problem() {
        let now: Timestamp = "2026-03-10T00:00:00Z".parse().unwrap();
        let problem = |scan: Option<&str>| {
            let scan = StoredScanDate(scan.map(|date| date.parse().unwrap()));
            let week = Duration::from_secs(7 * 24 * 60 * 60);
            scan.outdated_problem("wh", week, now)
                .map(|problem| problem.to_string())
        };
        assert_eq!(problem(Some("2026-03-03T00:00:00Z")), None);
        assert_eq!(problem(Some("2026-03-12T00:00:00Z")), None);
        assert_eq!(
            problem(Some("2026-03-02T23:59:59Z")).unwrap(),
            "the scan of wh is from 2026-03-02, so a table that it lacks may exist (warehouse.max_scan_age)"
        );
        assert!(problem(None).unwrap().contains("of an unknown date"));
    }
}
