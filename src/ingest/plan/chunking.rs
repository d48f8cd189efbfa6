//! Cutting one connection into units, or the reason why it is skipped.
//!
//! Separates configuration errors from expected reasons. It must not know the selection.

use std::collections::HashSet;

use super::UnplannedConnection;
use crate::{
    connection_scope, database,
    project::{Connection, Project},
    source::{self, ChunkedConnection},
    spelling::nearest_name,
    untrusted_text::visible_path,
};
use ingestdeck_core::diagnostic::Problem;

/// Cuts one connection into units. The error is the reason why it is skipped.
pub(super) fn chunk_connection<'a>(
    project: &'a Project,
    connection: &'a Connection,
) -> Result<ChunkedConnection<'a>, UnplannedConnection> {
    let id = &connection.id;
    let skip = |why: Problem, fault| UnplannedConnection {
        connection: id.clone(),
        problem: why.prefixed(format_args!("connection {id} is skipped: ")),
        fault,
    };
    let (faulty, fine) = (|why| skip(why, true), |why| skip(why, false));
    let Some(driver) = &connection.driver else {
        return Err(faulty(
            Problem::new("it names no driver")
                .with_help(format!("give it one of {}", adapter_names())),
        ));
    };
    if let Some(path) = connection_scope::database_path(&project.root, connection) {
        return Err(
            match connection_scope::resolve_database(project, connection) {
                Some(Ok(path)) => {
                    let place = if path.starts_with(&project.root) {
                        String::new()
                    } else {
                        format!(
                            " outside the project, `{}`",
                            visible_path(&path.to_string_lossy())
                        )
                    };
                    fine(Problem::new(format!(
                        "it is a database{place}; there are no files to cut into units, but units may query it"
                    )))
                }
                Some(Err(refusal)) => faulty(Problem::from_error(&refusal)),
                None => {
                    let path = visible_path(&path.to_string_lossy());
                    faulty(
                        Problem::new(format!("its database {path} does not exist"))
                            .with_help("correct its path in ktx.yaml"),
                    )
                }
            },
        );
    }
    if driver == database::DRIVER {
        return Err(faulty(
            Problem::new("it is a database and names no file").with_help("give it a path"),
        ));
    }
    if is_target(connection) {
        let problem = Problem::new(format!(
            "connection {id} is a database (driver `{driver}`) without files; units write sources for it"
        ));
        return Err(UnplannedConnection {
            connection: id.clone(),
            problem,
            fault: false,
        });
    }
    let Some(adapter) = source::find_adapter(driver) else {
        return Err(skip_without_adapter(driver, faulty, fine));
    };
    if let Some(allowed) = &project.settings.adapters
        && !allowed.contains(driver)
    {
        return Err(fine(
            Problem::new(format!("adapter `{driver}` is not in ingest.adapters"))
                .with_help("add it there"),
        ));
    }
    let adapter = adapter.for_connection(connection).unwrap_or(adapter);
    source::cut_connection(project.connection(connection), adapter)
        .map_err(|skipped| skip(skipped.problem, skipped.is_fault))
}

/// Removes files from the warnings of a connection that units of another one read.
pub(super) fn drop_files_read_elsewhere(cuts: &mut [ChunkedConnection<'_>]) {
    let place = |cut: &ChunkedConnection<'_>, path: &str| {
        visible_path(&cut.tree.root.join(path).to_string_lossy())
    };
    let is_about_files = |cut: &ChunkedConnection<'_>| {
        let mut warnings = cut.warnings.iter();
        warnings.any(|warning| !warning.files().is_empty())
    };
    if cuts.len() < 2 || !cuts.iter().any(is_about_files) {
        return;
    }
    let read: HashSet<String> = cuts
        .iter()
        .flat_map(|cut| {
            let raw = cut.chunks.iter().flat_map(|chunk| &chunk.raw_files);
            raw.map(|path| place(cut, path))
        })
        .collect();
    for cut in cuts {
        let warnings = std::mem::take(&mut cut.warnings).into_iter();
        let warnings = warnings
            .filter_map(|warning| warning.retain_files(|file| !read.contains(&place(cut, file))));
        cut.warnings = warnings.collect();
    }
}

/// True for a database that only KTX can read.
pub(super) fn is_target(connection: &Connection) -> bool {
    connection
        .driver
        .as_deref()
        .is_some_and(|driver| driver != database::DRIVER && source::is_database_driver(driver))
}

/// A driver of KTX without an adapter is expected; a driver that resembles a known one is probably misspelled.
fn skip_without_adapter(
    driver: &str,
    faulty: impl Fn(Problem) -> UnplannedConnection,
    fine: impl Fn(Problem) -> UnplannedConnection,
) -> UnplannedConnection {
    let shown: String = driver.chars().take(60).collect();
    let shown = shown.escape_debug();
    let known: Vec<&str> = source::known_drivers().collect();
    match nearest_name(driver, &known).filter(|_| !known.contains(&driver)) {
        Some(meant) => faulty(
            Problem::new(format!("unknown driver `{shown}`"))
                .with_help(format!("did you mean `{meant}`?")),
        ),
        None => fine(Problem::new(format!(
            "there is no adapter for driver `{shown}` yet, only {}",
            adapter_names()
        ))),
    }
}

fn adapter_names() -> String {
    source::adapter_names().collect::<Vec<_>>().join(", ")
}
