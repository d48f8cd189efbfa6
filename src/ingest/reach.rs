//! Which connections an attempt may read, write and query.
//!
//! It must not open any of them.

use std::path::{Path, PathBuf};

use super::{
    database,
    project::{Connection, Project},
    source,
};

/// The connections of a project, from the point of view of one of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reach {
    /// In the order of `ktx.yaml`.
    pub(crate) connections: Vec<Reached>,
}

/// One connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    /// Its id.
    pub(crate) id: String,
    /// Its driver, for people.
    pub(crate) driver: Option<String>,
    /// Sources may be written for it.
    pub(crate) is_target: bool,
    /// The SQLite file that it is, where there is one.
    pub(crate) database: Option<PathBuf>,
}

impl Reach {
    /// What an attempt at a unit of connection `own` reaches. Sources belong to a database or to the connection that
    /// the unit comes from; without one, to any.
    pub(crate) fn of(project: &Project, own: Option<&str>) -> Self {
        let reached = |connection: &Connection| {
            let is_own = own.is_none_or(|own| own == connection.id);
            let driver = connection.driver.as_deref();
            Reached {
                id: connection.id.clone(),
                driver: connection.driver.clone(),
                is_target: is_own || driver.is_some_and(|driver| !source::is_context(driver)),
                database: database_of(&project.root, connection),
            }
        };
        Self { connections: project.settings.connections.iter().map(reached).collect() }
    }

    /// The connection `id`.
    pub(crate) fn get(&self, id: &str) -> Option<&Reached> {
        self.connections.iter().find(|connection| connection.id == id)
    }
}

fn database_of(root: &Path, connection: &Connection) -> Option<PathBuf> {
    let path = database::path(root, connection)?;
    path.canonicalize().ok().filter(|path| path.is_file())
}
