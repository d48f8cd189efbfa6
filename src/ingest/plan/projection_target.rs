//! The connection that projected sources are written for: the database that has their tables. It must not read databases.

use std::{collections::BTreeSet, io};

use crate::{
    connection::Connection,
    project::Project,
    semantic_layer::SemanticLayer,
    source::{self, SourceProjection},
    untrusted_text::excerpt,
    workspace::Workspace,
};
use ingestdeck_core::diagnostic::Problem;

/// The setting of a connection that names the target.
const TARGET_KEY: &str = "/metricflow/targetConnection";

/// Chooses the target of the sources of `connection`: the database that its setting names, the only database, or the only
/// one whose scan has one of the tables. `None` for the connection itself, which keeps the sources that an earlier run
/// wrote for it; the problem is a warning about that.
pub(super) fn choose_target(
    project: &Project,
    connection: &Connection,
    projection: &SourceProjection,
) -> (Option<String>, Option<Problem>) {
    if projection.sources.is_empty() {
        return (None, None);
    }
    find_target(project, connection, projection).unwrap_or_else(|error| {
        let what = format!("the semantic layer cannot be read: {error}");
        (None, Some(Problem::new(what)))
    })
}

fn find_target(
    project: &Project,
    connection: &Connection,
    projection: &SourceProjection,
) -> io::Result<(Option<String>, Option<Problem>)> {
    let id = connection.id.as_str();
    let others = project.settings.connections.iter().filter(|of| of.id != id);
    let is_database = |of: &&Connection| {
        let driver = of.driver.as_deref();
        driver.is_some_and(source::is_database_driver)
    };
    let databases: Vec<&str> = others
        .filter(is_database)
        .map(|of| of.id.as_str())
        .collect();
    let help = format!("set connections.{id}.metricflow.targetConnection in ktx.yaml");
    match connection.text(TARGET_KEY) {
        Some(named) if named == id => return Ok((None, None)),
        Some(named) if databases.contains(&named) => return Ok((Some(named.to_owned()), None)),
        Some(named) => {
            let what = format!(
                "the target `{}` of the semantic models of {id} is not a database of ktx.yaml",
                excerpt(named)
            );
            let choice = format!("use one of: {}", databases.join(", "));
            return Ok((None, Some(Problem::new(what).with_help(choice))));
        }
        None => {}
    }
    if databases.is_empty() {
        return Ok((None, None));
    }
    let workspace = Workspace::read_only(&project.root);
    let layer = SemanticLayer(&workspace);
    let names: BTreeSet<&str> = projection
        .sources
        .iter()
        .map(|source| source.name.as_str())
        .collect();
    let own = layer.files(id)?;
    if own.iter().any(|file| names.contains(file.name.as_str())) {
        let what = format!(
            "the sources of the semantic models of {id} stay in semantic-layer/{id}, where an earlier run wrote them"
        );
        let help = format!("remove them to have them written for the database, or {help}");
        return Ok((None, Some(Problem::new(what).with_help(help))));
    }
    if let [only] = databases[..] {
        return Ok((Some(only.to_owned()), None));
    }
    let mut scanned = Vec::new();
    for database in &databases {
        let sources = layer.sources(database)?;
        if names
            .iter()
            .any(|name| sources.scanned_table(name).is_some())
        {
            scanned.push(*database);
        }
    }
    if let [only] = scanned[..] {
        return Ok((Some(only.to_owned()), None));
    }
    let what = format!(
        "the tables of the semantic models of {id} may be in {}; its sources are written for {id}",
        databases.join(", ")
    );
    Ok((None, Some(Problem::new(what).with_help(help))))
}
