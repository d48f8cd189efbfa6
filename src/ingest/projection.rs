//! Sources of the semantic layer that follow from raw files alone, written before any unit runs, so that units build on
//! them. KTX calls it deterministic projection.
//!
//! They pass the checks of what units write; what does not is left to the units. In a repository they are a commit of
//! their own. This module must not know how sources are made of files.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    sync::Arc,
};

use super::{
    attempt::{Job, Place},
    check,
    git::GitError,
    integrate::{IntegrateError, Integrated, Integration, Patch},
    layer::{self, Doc, FindError, Layer, Sources},
    plan::Planned,
    repository::PATCHES,
    source::ProjectedSource,
    workspace::{PublishError, Workspace, WriteError},
    worktree::{WorktreeError, Worktrees, safe_name},
};
use crate::{
    scoped_dir::{PRIVATE, ScopedDir},
    tape::{
        UnitKey,
        note::{
            Projected,
            work::{Change, MemoryAction, Target},
        },
    },
};

/// What the patch is called, in place of a unit.
const NAME: &str = "projection";

/// What is to be written for one connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DueProjection {
    /// The connection, which is that of the sources too.
    pub connection: String,
    /// Adapter of the connection.
    pub adapter: String,
    /// Sources to be written, in the order of their files.
    pub sources: Vec<ProjectedSource>,
    /// What cannot become a source, one sentence each.
    pub left_out: Vec<String>,
}

/// Why a projection was not written. The project is as it was.
#[derive(Debug, thiserror::Error)]
pub enum ProjectionError {
    /// A file of the semantic layer cannot be read or written.
    #[error("the semantic layer cannot be read or written: {0}")]
    Io(#[from] io::Error),
    /// A file cannot be read.
    #[error("cannot read `{path}`: {cause}")]
    Read {
        /// Relative to the project.
        path: String,
        /// Error of the system call.
        cause: io::Error,
    },
    /// The worktree cannot be made.
    #[error(transparent)]
    Worktree(#[from] WorktreeError),
    /// A call of git failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// They did not reach the project.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// They did not get onto the branch.
    #[error(transparent)]
    Integrate(#[from] IntegrateError),
    /// They may not be written, or what is in the project does not go with them.
    #[error("{0}")]
    Refused(String),
}

impl Planned {
    /// What is to be written before the units that are not `done` run: the sources of the files that these are made of or
    /// build upon. What else was projected once may have been edited since.
    pub fn due_projections(&self, done: impl Fn(&UnitKey) -> bool) -> Vec<DueProjection> {
        let due = self.sources.iter().map(|source| {
            let units = self.units.iter().map(|unit| &unit.planned);
            let to_run = units.filter(|unit| unit.connection == source.connection && !done(&unit.unit));
            let files = to_run.flat_map(|unit| unit.raw_files.iter().chain(&unit.dependency_paths));
            let files: BTreeSet<&String> = files.collect();
            let projection = &source.projection;
            let left_out = projection.left_out.iter().filter(|(path, _)| files.contains(path));
            DueProjection {
                connection: source.connection.clone(),
                adapter: source.adapter.clone(),
                sources: projection.sources.iter().filter(|source| files.contains(&source.path)).cloned().collect(),
                left_out: left_out.map(|(_, why)| why.clone()).collect(),
            }
        });
        due.filter(|due| !due.sources.is_empty()).collect()
    }
}

/// Writes what is `due` into the project below `root`, wholly or not at all. In a repository, attempts start from it then.
/// `targets` are the ids of the connections whose sources pages may speak of, sorted.
///
/// # Errors
/// When it cannot be written; the project is as it was.
pub fn project(
    root: &Path,
    place: &Place,
    job: &Job,
    due: &[DueProjection],
    targets: &[String],
) -> Result<Projected, ProjectionError> {
    let workspace = match place {
        Place::Overlay(dir) => Workspace::create(root, dir)?,
        Place::Worktree { trees, .. } => {
            let base = trees.base();
            Workspace::worktree(trees.open(Some(NAME), &base)?, base)
        }
    };
    let written = write(&workspace, due, targets).and_then(|written| match place {
        Place::Overlay(_) => Ok(Projected { paths: workspace.publish()?, ..written }),
        Place::Worktree { trees, .. } => commit(root, &workspace, trees, (job, due), targets, written),
    });
    workspace.discard();
    written
}

/// Writes the sources that hold, and checks what comes of them.
fn write(workspace: &Workspace, due: &[DueProjection], targets: &[String]) -> Result<Projected, ProjectionError> {
    let mut written = Projected::default();
    for due in due {
        written.left_out.extend(due.left_out.iter().cloned());
        let docs = sound(due, &Layer(workspace).sources(&due.connection)?, &mut written.left_out);
        for source in &due.sources {
            let Some(doc) = docs.get(source.name.as_str()) else { continue };
            match write_source(workspace, &due.connection, &source.name, doc)? {
                Ok(None) => {}
                Ok(Some(change)) => written.actions.push(MemoryAction {
                    target: Target::Sl,
                    change,
                    key: source.name.clone(),
                    detail: String::new(),
                    target_connection_id: Some(due.connection.clone()),
                    raw_paths: Some(vec![source.path.clone()]),
                }),
                Err(why) => written.left_out.push(format!("source {} is not written: {why}", source.name)),
            }
        }
        written.left_out_of.resize(written.left_out.len(), due.connection.clone());
    }
    let checked = check::check(workspace, targets);
    match checked.dangling.into_iter().chain(checked.invalid).next() {
        Some(finding) => Err(ProjectionError::Refused(finding)),
        None => Ok(written),
    }
}

/// The sources that hold among those that the connection has already.
fn sound<'a>(due: &'a DueProjection, known: &Sources, left_out: &mut Vec<String>) -> BTreeMap<&'a str, Doc> {
    let fitted = |source: &'a ProjectedSource| {
        let mut doc = source.doc.clone();
        if known.scanned.contains_key(&source.name) {
            // The scan knows the table better: its columns stay, and the rest is laid over it.
            doc.retain(|key, _| !matches!(key.as_str(), "table" | "grain" | "columns"));
        }
        (source.name.as_str(), doc)
    };
    let mut docs: BTreeMap<&str, Doc> = due.sources.iter().map(fitted).collect();
    loop {
        let mut sources = known.clone();
        docs.iter().for_each(|(name, doc)| sources.put(name, doc.clone()));
        for doc in docs.values_mut() {
            if let Some(joins) = doc.get_mut("joins").and_then(|joins| joins.as_array_mut()) {
                joins.retain(|join| join["to"].as_str().is_some_and(|to| sources.all.contains_key(to)));
            }
        }
        let refused = docs.iter().filter_map(|(name, doc)| {
            let why = layer::judge(name, doc, &sources).errors.into_iter().next()?;
            Some((*name, why))
        });
        let refused: Vec<(&str, String)> = refused.collect();
        if refused.is_empty() {
            return docs;
        }
        for (name, why) in refused {
            docs.remove(name);
            left_out.push(format!("source {why}"));
        }
    }
}

/// Writes one source. `None` where it is there already; the inner error is why it has no file.
fn write_source(
    workspace: &Workspace,
    connection: &str,
    name: &str,
    doc: &Doc,
) -> Result<Result<Option<Change>, String>, ProjectionError> {
    let file = match Layer(workspace).find(connection, name) {
        Err(FindError::Io(error)) => return Err(error.into()),
        Err(error @ FindError::Several(_)) => return Ok(Err(error.to_string())),
        Ok(file) => file.map(|file| file.path),
    };
    let (is_there, path) = (file.is_some(), file.unwrap_or_else(|| layer::path_of(connection, name)));
    let before = workspace.read(&path).map_err(|cause| ProjectionError::Read { path: path.clone(), cause })?;
    if before.is_some() && !is_there {
        return Ok(Err(format!("{path} holds another source")));
    }
    let text = match layer::render(doc) {
        Ok(text) if before.as_deref() == Some(text.as_bytes()) => return Ok(Ok(None)),
        Ok(text) => text,
        Err(why) => return Ok(Err(why)),
    };
    match workspace.write(&path, text.as_bytes()) {
        Ok(()) => Ok(Ok(Some(if is_there { Change::Updated } else { Change::Created }))),
        Err(error @ (WriteError::Binary(_) | WriteError::TooLarge { .. })) => Ok(Err(error.to_string())),
        Err(error) => Err(ProjectionError::Refused(error.to_string())),
    }
}

/// Puts what is in the worktree on the branch, as KTX names it.
fn commit(
    root: &Path,
    workspace: &Workspace,
    trees: &Arc<Worktrees>,
    (job, due): (&Job, &[DueProjection]),
    targets: &[String],
    written: Projected,
) -> Result<Projected, ProjectionError> {
    let Some(difference) = workspace.patch()?.filter(|difference| !difference.patch.is_empty()) else {
        return Ok(written);
    };
    let path = format!("{PATCHES}/{}/{NAME}.patch", safe_name(&job.id));
    ScopedDir::open(root)?.write(&path, &difference.patch, PRIVATE, 0o600)?;
    let patch =
        Patch { unit: NAME.into(), file: Some(root.join(path)), semantic_layer: true, targets: targets.to_vec() };
    let mut integration = Integration::begin(trees, targets.to_vec())?;
    let mut refused = None;
    integration.integrate(&[patch], |_, integrated| {
        refused = match integrated {
            Integrated::Accepted { .. } | Integrated::Noop { .. } => None,
            Integrated::TextualConflict { paths, .. } => Some(format!("{} changed meanwhile", paths.join(", "))),
            Integrated::SemanticConflict { findings, .. } => Some(findings.join("; ")),
            Integrated::Policy { why } | Integrated::Lost { why } => Some(format!("the patch {why}")),
        };
    })?;
    if let Some(why) = refused {
        return Err(ProjectionError::Refused(why));
    }
    let adapters: BTreeSet<&str> = due.iter().map(|due| due.adapter.as_str()).collect();
    let adapters = adapters.into_iter().collect::<Vec<_>>().join(",");
    let message = format!("ingest({adapters}): deterministic projection syncId={}", job.sync_id);
    let saved = integration.save(&message, &[])?;
    let (mut left_out, mut left_out_of) = (written.left_out, written.left_out_of);
    left_out.extend(saved.repairs.iter().map(ToString::to_string));
    left_out_of.resize(left_out.len(), String::new());
    Ok(Projected { commit: saved.commit, paths: saved.paths, left_out, left_out_of, ..written })
}
