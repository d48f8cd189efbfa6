//! The SQLite file of a connection.

use std::path::{Path, PathBuf};

use super::project::Connection;

/// The driver of connections that are a SQLite file.
pub(crate) const DRIVER: &str = "sqlite";

/// Where the file of `connection` should be; `None` if it is none.
pub(crate) fn path(project: &Path, connection: &Connection) -> Option<PathBuf> {
    if connection.driver.as_deref() != Some(DRIVER) {
        return None;
    }
    let named = connection.subdir.as_deref().or(connection.url.as_deref())?;
    // `sqlite:///srv/x.db`, `sqlite:x.db`, `file:x.db` and plain paths name the same kind of file.
    let path = ["sqlite://", "sqlite:", "file://", "file:"].iter().find_map(|prefix| named.strip_prefix(prefix));
    let path = path.unwrap_or(named);
    (!path.is_empty()).then(|| project.join(path))
}
