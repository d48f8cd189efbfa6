//! Sources of the semantic layer that follow from raw files alone, written before any unit runs, so that units build on
//! them. KTX calls it deterministic projection.
//!
//! They pass the checks of what units write; what does not is left to the units. In a repository they are a commit of
//! their own. This module must not know how sources are made of files.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    path::Path,
    sync::Arc,
};

use super::{
    attempt::{Job, Place},
    check,
    git::GitError,
    integrate::{IntegrateError, Integrated, Integration, Patch},
    layer::{self, Doc, FindError, Layer, SourceFile, Sources},
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
    /// What is to be written before the units that are not `done` run: the sources that the raw files of these units
    /// define. KTX writes all sources of the connection each time. A source that no raw file of a unit defines was
    /// projected by an earlier run, and may have been edited since, also where a unit depends on its file.
    pub fn due_projections(&self, done: impl Fn(&UnitKey) -> bool) -> Vec<DueProjection> {
        let due = self.sources.iter().map(|source| {
            let units = self.units.iter().map(|unit| &unit.planned);
            let to_run = units.filter(|unit| unit.connection == source.connection && !done(&unit.unit));
            let files: BTreeSet<&String> = to_run.flat_map(|unit| &unit.raw_files).collect();
            let projection = &source.projection;
            let left_out = projection.left_out.iter().filter(|(path, _)| files.contains(path));
            let is_due = |source: &&ProjectedSource| source.files.iter().any(|path| files.contains(path));
            DueProjection {
                connection: source.connection.clone(),
                adapter: source.adapter.clone(),
                sources: projection.sources.iter().filter(is_due).cloned().collect(),
                left_out: left_out.map(|(_, why)| why.clone()).collect(),
            }
        });
        due.filter(|due| !due.sources.is_empty()).collect()
    }
}

/// Writes what is `due` of one connection into the project below `root`, wholly or not at all. In a repository, attempts
/// start from it then. `targets` are the ids of the connections whose sources pages may speak of, sorted.
///
/// # Errors
/// When it cannot be written; the project is as it was.
pub fn project(
    root: &Path,
    place: &Place,
    job: &Job,
    due: &DueProjection,
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
fn write(workspace: &Workspace, due: &DueProjection, targets: &[String]) -> Result<Projected, ProjectionError> {
    let connection = Some(due.connection.clone());
    let mut written =
        Projected { connection: connection.clone(), left_out: due.left_out.clone(), ..Projected::default() };
    let known = Layer(workspace).sources(&due.connection)?;
    let docs = sound(due, &known, &mut written.left_out);
    let mut files: HashMap<&str, Vec<&str>> = HashMap::new();
    for SourceFile { name, path, .. } in &known.files {
        files.entry(name.as_str()).or_default().push(path.as_str());
    }
    for source in &due.sources {
        let Some(doc) = docs.get(source.name.as_str()) else { continue };
        let paths = files.get(source.name.as_str()).map(Vec::as_slice).unwrap_or_default();
        match write_source(workspace, &due.connection, &source.name, doc, paths)? {
            Ok(None) => {}
            Ok(Some(change)) => written.actions.push(MemoryAction {
                target: Target::Sl,
                change,
                key: source.name.clone(),
                detail: String::new(),
                target_connection_id: connection.clone(),
                raw_paths: Some(source.files.clone()),
            }),
            Err(why) => written.left_out.push(format!("source {} is not written: {why}", source.name)),
        }
    }
    workspace.commit_staged(&format!("Write the sources of {}", due.connection))?;
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

/// Writes one source, which is in the file at `paths` if it is there. `None` where that is the same already; the inner
/// error is why it is not written.
fn write_source(
    workspace: &Workspace,
    connection: &str,
    name: &str,
    doc: &Doc,
    paths: &[&str],
) -> Result<Result<Option<Change>, String>, ProjectionError> {
    let (is_there, path) = match paths {
        [] => (false, layer::path_of(connection, name)),
        [path] => (true, (*path).to_owned()),
        paths => {
            let paths = paths.iter().map(|path| (*path).to_owned()).collect();
            return Ok(Err(FindError::Several(paths).to_string()));
        }
    };
    let before = workspace.read(&path).map_err(|cause| ProjectionError::Read { path: path.clone(), cause })?;
    if before.is_some() && !is_there {
        return Ok(Err(format!("{path} holds another source")));
    }
    let text = match layer::render(doc) {
        Ok(text) if before.as_deref() == Some(text.as_bytes()) => return Ok(Ok(None)),
        Ok(text) => text,
        Err(why) => return Ok(Err(why)),
    };
    match workspace.stage(&path, text.as_bytes()) {
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
    (job, due): (&Job, &DueProjection),
    targets: &[String],
    written: Projected,
) -> Result<Projected, ProjectionError> {
    let Some(difference) = workspace.patch()?.filter(|difference| !difference.patch.is_empty()) else {
        return Ok(written);
    };
    let path = format!("{PATCHES}/{}/{NAME}-{}.patch", safe_name(&job.id), safe_name(&due.connection));
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
    let message = format!("ingest({}): deterministic projection syncId={}", due.adapter, job.sync_id);
    let saved = integration.save(&message, &[])?;
    let mut left_out = written.left_out;
    left_out.extend(saved.repairs.iter().map(ToString::to_string));
    Ok(Projected { commit: saved.commit, paths: saved.paths, left_out, ..written })
}
