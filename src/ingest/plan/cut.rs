//! One connection of a plan: cut into units, or left out with the reason.
//!
//! Tells what somebody should mend from what is as it should be. It must not know what was asked for.

use crate::{
    ingest::{
        database,
        project::{Connection, Project, nearest},
        reach,
        source::{self, Adapter, Chunk, Origin, SourceError, Tree, memo, print, tree::shown},
    },
    tape::note::Skipped,
};

/// One connection, cut.
pub(super) struct Cut<'a> {
    pub(super) connection: &'a Connection,
    pub(super) adapter: &'static dyn Adapter,
    pub(super) tree: Tree,
    pub(super) chunks: Vec<Chunk>,
    pub(super) warnings: Vec<String>,
    /// Why its files may not be those of its branch.
    pub(super) other_branch: Option<String>,
}

/// Cuts one connection, or says in a sentence of its own why it cannot.
pub(super) fn cut<'a>(project: &Project, connection: &'a Connection) -> Result<Cut<'a>, Skipped> {
    let id = &connection.id;
    let skip = |why: String, fault| Skipped {
        connection: id.clone(),
        why: format!("connection {id} is skipped: {why}"),
        fault,
    };
    let (faulty, fine) = (|why| skip(why, true), |why| skip(why, false));
    let Some(driver) = &connection.driver else {
        return Err(faulty(format!("it names no driver; give it one of {}", names())));
    };
    if let Some(path) = database::path(&project.root, connection) {
        return Err(match reach::database_of(project, connection) {
            Some(Ok(path)) => {
                let place = if path.starts_with(&project.root) {
                    String::new()
                } else {
                    format!(" outside the project, `{}`", shown(&path.to_string_lossy()))
                };
                fine(format!("it is a database{place}; there are no files to cut into units, but units may query it"))
            }
            Some(Err(refusal)) => faulty(refusal.to_string()),
            None => {
                let path = shown(&path.to_string_lossy());
                faulty(format!("its database {path} does not exist; correct its path in ktx.yaml"))
            }
        });
    }
    if driver == database::DRIVER {
        return Err(faulty("it is a database and names no file; give it a path".into()));
    }
    if is_target(connection) {
        let why = format!(
            "connection {id} is a database (driver `{driver}`): units write sources for it, and it has no files of its own"
        );
        return Err(Skipped { connection: id.clone(), why, fault: false });
    }
    let Some(adapter) = source::adapter(driver) else { return Err(no_adapter(driver, faulty, fine)) };
    if let Some(allowed) = &project.settings.adapters
        && !allowed.contains(driver)
    {
        return Err(fine(format!("adapter `{driver}` is not in ingest.adapters; add it there")));
    }
    // What KTX fetches by itself is in order there.
    let origin = Origin::new(project, connection);
    match source::directory(origin) {
        Err(error @ SourceError::Remote(_)) => return Err(fine(error.to_string())),
        Err(SourceError::Nowhere) if driver == "notion" => {
            return Err(fine("pages are not fetched here; stage them, and name their folder as source_dir".into()));
        }
        _ => {}
    }
    let mut tree = adapter.gather(origin).map_err(faulty)?;
    let root = shown(&tree.root.to_string_lossy());
    adapter.detect(&tree).map_err(|why| faulty(format!("{root} {why}")))?;
    let known = memo::recall(&project.root, id);
    print::read(&mut tree, &known);
    memo::keep(&project.root, id, &tree, &known);
    let chunks = adapter.chunk(&tree, origin).map_err(faulty)?;
    let other_branch = source::other_branch(origin);
    let warnings = other_branch.iter().chain(&tree.warnings).cloned().chain(chunks.warnings).collect();
    Ok(Cut { connection, adapter, tree, chunks: chunks.units, warnings, other_branch })
}

/// True for a database that only KTX can read.
pub(super) fn is_target(connection: &Connection) -> bool {
    let is_foreign = |driver: &str| driver != database::DRIVER && source::FOREIGN.contains(&driver);
    connection.driver.as_deref().is_some_and(|driver| is_foreign(driver) && !source::is_context(driver))
}

/// A driver of KTX that has no adapter is as it should be; one that is written like a known one is not.
fn no_adapter(driver: &str, faulty: impl Fn(String) -> Skipped, fine: impl Fn(String) -> Skipped) -> Skipped {
    let shown: String = driver.chars().take(60).collect();
    let shown = shown.escape_debug();
    let known: Vec<&str> = source::names().chain(source::FOREIGN.iter().copied()).collect();
    match nearest(driver, &known).filter(|_| !known.contains(&driver)) {
        Some(meant) => faulty(format!("nobody knows driver `{shown}`; did you mean `{meant}`?")),
        None => fine(format!("there is no adapter for driver `{shown}` yet, only {}", names())),
    }
}

fn names() -> String {
    source::names().collect::<Vec<_>>().join(", ")
}
