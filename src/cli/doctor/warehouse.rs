//! The checks of `doctor` that concern databases: whether they answer, what their user may do, and what their tables can be
//! checked against.

use std::{
    thread,
    time::{Duration, Instant},
};

use jiff::Timestamp;

use super::{CheckResult, DoctorCheck, DoctorFinding};
use ingestdeck_core::{
    diagnostic::Diagnostic as _,
    tape::Millis,
    text::{self, pluralize},
};
use ingestdeck_ingest::{
    AvailableFacts, Database, ServerInfo,
    project::{Connection, Project},
    scan,
};

/// The findings about each database of the project, in the order of `ktx.yaml`. All databases are asked concurrently.
pub(super) fn check_databases(project: &Project) -> Vec<DoctorFinding> {
    let databases: Vec<(&Connection, AvailableFacts)> = project
        .settings
        .connections
        .iter()
        .filter_map(|connection| Some((connection, project.available_facts(connection)?)))
        .collect();
    let mut findings = Vec::new();
    thread::scope(|scope| {
        let asked: Vec<_> = databases
            .iter()
            .map(|(connection, facts)| scope.spawn(move || connect(project, connection, facts)))
            .collect();
        for ((connection, facts), asked) in databases.iter().zip(asked) {
            findings.extend(asked.join().unwrap_or_else(|_| {
                let text = format!("connection {}: its check ended early", connection.id);
                vec![finding(CheckResult::Fail, text)]
            }));
            findings.extend(check_facts(project, connection, facts));
        }
    });
    findings
}

fn finding(result: CheckResult, text: String) -> DoctorFinding {
    DoctorFinding {
        check: DoctorCheck::Connection,
        result,
        text,
    }
}

/// Connects to the database, if that is allowed.
fn connect(
    project: &Project,
    connection: &Connection,
    facts: &AvailableFacts,
) -> Vec<DoctorFinding> {
    let id = &connection.id;
    let database = match scan::database_of(project, connection) {
        Ok(database) => database,
        // Without the permission, the facts of a scan are enough for most units.
        Err(error) => {
            let result = match facts.is_empty() {
                true => CheckResult::Warn,
                false => CheckResult::Note,
            };
            return vec![finding(result, error.to_line())];
        }
    };
    let started = Instant::now();
    match database {
        Database::Sqlite(path) => {
            let tables = project.sql_workers.sqlite_tables(&path, &mut |_| {});
            vec![match tables {
                Ok(tables) => {
                    let (tables, took) = (pluralize(tables.len(), "table"), took(started));
                    finding(
                        CheckResult::Ok,
                        format!("connection {id}: SQLite, {tables}, read in {took}"),
                    )
                }
                Err(error) => {
                    let text = format!("connection {id}: {}", error.to_line());
                    finding(CheckResult::Fail, text)
                }
            }]
        }
        Database::Warehouse(warehouse) => match project.sql_workers.server(&warehouse) {
            Ok(server) => server_findings(id, &server, &took(started)),
            Err(error) => {
                let driver = warehouse.driver.name();
                let text = format!("connection {id} ({driver}): {}", error.to_line());
                vec![finding(CheckResult::Fail, text)]
            }
        },
    }
}

fn took(started: Instant) -> String {
    let ms = started.elapsed().as_millis();
    text::latency(Millis(u64::try_from(ms).unwrap_or(u64::MAX)))
}

fn server_findings(id: &str, server: &ServerInfo, took: &str) -> Vec<DoctorFinding> {
    let user = match server.user.as_str() {
        "" => String::new(),
        user => format!(", user {user}"),
    };
    let schemas = pluralize(server.schemas.len(), "schema");
    let text = format!(
        "connection {id}: {}{user}, {schemas}, answered in {took}",
        server.version
    );
    let mut findings = vec![finding(CheckResult::Ok, text)];
    if !server.write_rights.is_empty() {
        let text = format!(
            "connection {id}: the user may write ({}); statements are limited to reading here, but use a user that may only read",
            text::list_some(&server.write_rights)
        );
        findings.push(finding(CheckResult::Warn, text));
    }
    findings
}

/// What the tables of the connection can be checked against, and how old it is.
fn check_facts(
    project: &Project,
    connection: &Connection,
    facts: &AvailableFacts,
) -> Option<DoctorFinding> {
    if let Some(problem) = facts.unchecked_problem(&connection.id) {
        return Some(finding(CheckResult::Warn, problem.to_line()));
    }
    let scan = facts.scan?;
    let max_age = project.warehouse.max_scan_age;
    Some(
        match scan.outdated_problem(&connection.id, max_age, Timestamp::now()) {
            Some(problem) => finding(CheckResult::Warn, problem.to_line()),
            None => {
                let age = scan.age(Timestamp::now()).unwrap_or(Duration::ZERO);
                let age = super::super::git_sources::age_text(age.as_secs());
                let text = format!("connection {}: scanned {age}", connection.id);
                finding(CheckResult::Ok, text)
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_who_may_write_is_a_warning() {
        let mut server = ServerInfo {
            version: "PostgreSQL 15.4".into(),
            user: "reader".into(),
            schemas: vec!["public".into()],
            write_rights: Vec::new(),
        };
        let texts = |server: &ServerInfo| {
            let findings = server_findings("wh", server, "12 ms").into_iter();
            findings
                .map(|finding| format!("{:?} {}", finding.result, finding.text))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            texts(&server),
            ["Ok connection wh: PostgreSQL 15.4, user reader, 1 schema, answered in 12 ms"]
        );
        server.write_rights = vec!["create tables in public".into()];
        assert_eq!(
            texts(&server)[1],
            "Warn connection wh: the user may write (create tables in public); statements are limited to reading here, but use a \
             user that may only read"
        );
    }
}
