//! Semantic-layer sources and wiki pages that follow from raw files without an agent. They are written before any unit
//! runs, so that units can use them. KTX calls this deterministic projection.
//!
//! The sources pass the same checks as those that units write; invalid ones are left to the units. They become a separate
//! commit. Pages are documents that are kept verbatim. This module must not know how adapters derive sources from files.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    path::Path,
    sync::Arc,
};

use super::{
    connection_scope::ConnectionScope,
    git::{CommitId, Git, GitError},
    integrate::{IntegrationError, PatchIntegrator, PatchOutcome, UnitPatch},
    job::IngestJob,
    plan::IngestPlan,
    repository::PATCHES_DIR,
    semantic_layer::{
        self, FindSourceError, SemanticLayer, SemanticSources, SourceDoc, SourceFile,
    },
    source::{ProjectedSource, VerbatimDocument},
    text_input::TEXT_ADAPTER,
    untrusted_text::visible_path,
    verbatim::{self, PageState},
    wiki::{self, Wiki},
    workspace::{Workspace, WriteError},
    workspace_check,
    worktree::{BasePatch, WorktreeError, Worktrees, safe_name},
};
use ingestdeck_core::{
    diagnostic::Diagnostic,
    run::commit_trailers::RunTrailers,
    tape::{
        PROJECTION_KEY, RunId, UnitKey,
        note::{
            KeptDocument, ProjectionCause, SourcesProjected,
            attempt_output::{ArtifactChange, ArtifactTarget, MemoryAction},
        },
    },
};
use ingestdeck_os::scoped_dir::{PRIVATE_MODE, ScopedDir};

/// The projection of one connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingProjection {
    /// Id of the connection.
    pub connection: String,
    /// Id of the connection that the sources are written for: a database, or the connection itself.
    pub target: String,
    /// Adapter of the connection.
    pub adapter: String,
    /// Sources to write, in the order of their files.
    pub sources: Vec<ProjectedSource>,
    /// Definitions that cannot become a source, one sentence each.
    pub skipped: Vec<String>,
    /// Documents that become pages unchanged.
    pub documents: Vec<VerbatimDocument>,
}

impl PendingProjection {
    pub fn cause(&self) -> ProjectionCause {
        match self.documents.is_empty() {
            true => ProjectionCause::SemanticModel,
            false => ProjectionCause::Verbatim,
        }
    }

    /// What a note about it begins with.
    pub fn to_note(&self) -> SourcesProjected {
        SourcesProjected {
            connection: (!self.connection.is_empty()).then(|| self.connection.clone()),
            cause: self.cause(),
            ..SourcesProjected::default()
        }
    }
}

/// Why a projection was not written. The project is unchanged.
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
    /// The worktree cannot be created.
    #[error(transparent)]
    Worktree(#[from] WorktreeError),
    /// A git command failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The sources could not be integrated into the branch.
    #[error(transparent)]
    Integrate(#[from] IntegrationError),
    /// The sources must not be written, or they conflict with the project.
    #[error("{0}")]
    Rejected(String),
}

impl Diagnostic for ProjectionError {
    fn help(&self) -> Option<String> {
        match self {
            Self::Worktree(error) => error.help(),
            Self::Git(error) => error.help(),
            Self::Integrate(error) => error.help(),
            Self::Io(_) | Self::Read { .. } | Self::Rejected(_) => None,
        }
    }
}

impl IngestPlan {
    /// The sources to write before the units that are not `done` run: those that the raw files of these units define.
    /// KTX writes all sources of the connection each time. Other sources were projected by an earlier run and may have
    /// been edited since, even if a unit depends on their file, or runs because another file changed.
    pub fn pending_projections(&self, done: impl Fn(&UnitKey) -> bool) -> Vec<PendingProjection> {
        let due = self.sources.iter().map(|source| {
            let units = self
                .units
                .iter()
                .filter(|unit| !unit.changes.has_settled_files_only())
                .map(|unit| &unit.planned);
            let to_run =
                units.filter(|unit| unit.connection == source.connection && !done(&unit.unit));
            let files: BTreeSet<&String> = to_run.flat_map(|unit| &unit.raw_files).collect();
            let projection = &source.projection;
            let left_out = projection
                .skipped
                .iter()
                .filter(|(path, _)| files.contains(path));
            let mut skipped: Vec<String> = Vec::new();
            for (path, why) in left_out {
                let sentence = format!("{}: {why}", visible_path(path));
                if !skipped.contains(&sentence) {
                    skipped.push(sentence);
                }
            }
            let is_due =
                |source: &&ProjectedSource| source.files.iter().any(|path| files.contains(path));
            PendingProjection {
                connection: source.connection.clone(),
                target: projection
                    .target
                    .clone()
                    .unwrap_or_else(|| source.connection.clone()),
                adapter: source.adapter.clone(),
                sources: projection.sources.iter().filter(is_due).cloned().collect(),
                skipped,
                documents: Vec::new(),
            }
        });
        let due = due.filter(|due| !due.sources.is_empty());
        // They are in the commit of the run, which follows that of the sources.
        let documents = self.sources.iter().map(|source| PendingProjection {
            connection: source.connection.clone(),
            adapter: source.adapter.clone(),
            documents: source.projection.documents.clone(),
            ..PendingProjection::default()
        });
        let texts = PendingProjection {
            adapter: TEXT_ADAPTER.to_owned(),
            documents: self.documents.clone(),
            ..PendingProjection::default()
        };
        let documents = documents.chain([texts]);
        due.chain(documents.filter(|due| !due.documents.is_empty()))
            .collect()
    }
}

/// Writes the sources or pages of `due` into the project below `root`, either all of them or none. Attempts then start
/// from this state. Pages, and sources if the run `is_reviewed`, become a part of the commit of the run. `targets` are the sorted ids of the connections whose sources pages may reference.
///
/// # Errors
/// Fails when the sources cannot be written; the project is unchanged then.
pub fn write_projections(
    root: &Path,
    worktrees: &Arc<Worktrees>,
    (run, job, is_reviewed): (RunId, &IngestJob, bool),
    due: &PendingProjection,
    targets: &[String],
) -> Result<SourcesProjected, ProjectionError> {
    let base = worktrees.base();
    let history = ProjectionHistory {
        git: &worktrees.repository().git,
        base: &base,
        adapter: &due.adapter,
    };
    let tree = worktrees.open(Some(PROJECTION_KEY), &base)?;
    let workspace = Workspace::from_worktree(tree, base.clone());
    let written = write(&workspace, &history, due, targets).and_then(|written| {
        commit(
            root,
            &workspace,
            worktrees,
            (run, job, due, is_reviewed),
            targets,
            written,
        )
    });
    workspace.discard();
    written
}

/// The commits that contain earlier projections.
struct ProjectionHistory<'a> {
    git: &'a Git,
    base: &'a CommitId,
    adapter: &'a str,
}

impl ProjectionHistory<'_> {
    /// True if the last change of the file was a projection. Saved with the units after a review, a
    /// projection looks like an edit.
    fn is_unedited(&self, path: &str) -> Result<bool, GitError> {
        let log = [
            "--literal-pathspecs",
            "log",
            "-1",
            "--format=%s",
            "--end-of-options",
        ];
        let subject = self
            .git
            .run_for_line(&[&log[..], &[self.base.as_str(), "--", path]].concat())?;
        Ok(subject == commit_subject(self.adapter))
    }
}

/// Writes the valid sources and checks the result.
fn write(
    workspace: &Workspace,
    history: &ProjectionHistory<'_>,
    due: &PendingProjection,
    targets: &[String],
) -> Result<SourcesProjected, ProjectionError> {
    let mut written = SourcesProjected {
        left_out: due.skipped.clone(),
        ..due.to_note()
    };
    let mut keys = match due.documents.is_empty() {
        true => HashMap::new(),
        false => Wiki(workspace).keys_by_lower_case()?,
    };
    for document in &due.documents {
        let (change, refused) = match write_document(workspace, due, document, &mut keys)? {
            Ok(change) => (change, None),
            Err(why) => (None, Some(why)),
        };
        let is_text = due.connection.is_empty();
        written.actions.extend(change.map(|change| MemoryAction {
            target: ArtifactTarget::Wiki,
            change,
            key: document.page.clone(),
            detail: if is_text {
                document.path.clone()
            } else {
                String::new()
            },
            target_connection_id: None,
            raw_paths: (!is_text).then(|| vec![document.path.clone()]),
        }));
        written.documents.push(KeptDocument {
            path: document.path.clone(),
            page: document.page.clone(),
            refused,
        });
    }
    if due.sources.is_empty() {
        return Ok(written);
    }
    let known = SemanticLayer(workspace).sources(&due.target)?;
    let docs = valid_sources(due, &known, &mut written.left_out);
    let mut files: HashMap<&str, Vec<&str>> = HashMap::new();
    for SourceFile { name, path, .. } in &known.files {
        files.entry(name.as_str()).or_default().push(path.as_str());
    }
    for source in &due.sources {
        let Some(doc) = docs.get(source.name.as_str()) else {
            continue;
        };
        let paths = files
            .get(source.name.as_str())
            .map(Vec::as_slice)
            .unwrap_or_default();
        let about = (due.target.as_str(), source.name.as_str());
        match write_source(workspace, history, about, doc, paths)? {
            Ok(None) => {}
            Ok(Some(change)) => written.actions.push(MemoryAction {
                target: ArtifactTarget::SemanticLayer,
                change,
                key: source.name.clone(),
                detail: String::new(),
                target_connection_id: Some(due.target.clone()),
                raw_paths: Some(source.files.clone()),
            }),
            Err(why) => written
                .left_out
                .push(format!("source {} is not written: {why}", source.name)),
        }
    }
    let checked = workspace_check::check_changes(workspace, targets, &ConnectionScope::default());
    match checked
        .dangling_links
        .into_iter()
        .chain(checked.invalid)
        .next()
    {
        Some(finding) => Err(ProjectionError::Rejected(finding)),
        None => Ok(written),
    }
}

/// Writes the page of a document. `keys` are those of all pages by their lower-case form. Returns `None` if the page holds
/// the document already; the inner error is the reason why it is not written.
fn write_document(
    workspace: &Workspace,
    due: &PendingProjection,
    document: &VerbatimDocument,
    keys: &mut HashMap<String, String>,
) -> Result<Result<Option<ArtifactChange>, String>, ProjectionError> {
    let (page, path) = (&document.page, wiki::page_path(&document.page));
    let refused = |why: &str| Ok(Err(format!("page {page}: {why}")));
    let text = match &document.text {
        Ok(text) => text,
        Err(why) => return Ok(Err(why.clone())),
    };
    let before = workspace
        .read(&path)
        .map_err(|cause| ProjectionError::Read {
            path: path.clone(),
            cause,
        })?;
    let change = match before {
        None => match wiki::conflict_with_keys(page, keys) {
            Some(why) => return refused(&why),
            None => ArtifactChange::Created,
        },
        Some(before) => {
            let name = (!due.connection.is_empty()).then(|| document.name(&due.connection));
            match verbatim::page_state(&before, text, name.as_deref()) {
                PageState::Current => return Ok(Ok(None)),
                PageState::Outdated => ArtifactChange::Updated,
                PageState::Other(why) => return refused(&why),
            }
        }
    };
    match workspace.write(&path, text.as_bytes()) {
        Ok(()) => {
            keys.insert(page.to_ascii_lowercase(), page.clone());
            Ok(Ok(Some(change)))
        }
        Err(error @ (WriteError::Binary(_) | WriteError::TooLarge { .. })) => {
            refused(&error.to_string())
        }
        Err(error) => Err(ProjectionError::Rejected(error.to_string())),
    }
}

/// The file of another source about the table of `doc`, if `name` is new.
fn other_source<'a>(name: &str, doc: &SourceDoc, known: &'a SemanticSources) -> Option<&'a str> {
    let last_part = |doc: &SourceDoc| {
        let table = doc.get("table")?.as_str()?;
        Some(table.rsplit('.').next()?.to_lowercase())
    };
    let table = last_part(doc)?;
    if known.files.iter().any(|file| file.name == name) {
        return None;
    }
    let found = known.files.iter().find(|file| {
        let of = file.doc.as_ref().ok().and_then(last_part);
        of.is_some_and(|of| of == table)
    });
    found.map(|file| file.path.as_str())
}

/// The valid sources, given the existing sources of the connection.
fn valid_sources<'a>(
    due: &'a PendingProjection,
    known: &SemanticSources,
    left_out: &mut Vec<String>,
) -> BTreeMap<&'a str, SourceDoc> {
    let fitted = |source: &'a ProjectedSource| {
        let mut doc = source.doc.clone();
        if known.scanned_tables.named(&source.name).is_some() {
            // The scan is more accurate for the table: its columns remain, and the other fields become an overlay.
            doc.retain(|key, _| !matches!(key.as_str(), "table" | "grain" | "columns"));
        }
        (source.name.as_str(), doc)
    };
    let mut docs: BTreeMap<&str, SourceDoc> = due.sources.iter().map(fitted).collect();
    docs.retain(|name, doc| {
        let other = other_source(name, doc, known);
        left_out.extend(
            other.map(|other| {
                format!("source {name} is not written: {other} is about the same table")
            }),
        );
        other.is_none()
    });
    loop {
        let mut sources = known.clone();
        docs.iter()
            .for_each(|(name, doc)| sources.insert(name, doc.clone()));
        for doc in docs.values_mut() {
            if let Some(joins) = doc.get_mut("joins").and_then(|joins| joins.as_array_mut()) {
                joins.retain(|join| {
                    join["to"]
                        .as_str()
                        .is_some_and(|to| sources.by_name.contains_key(to))
                });
            }
        }
        let refused = docs.iter().filter_map(|(name, doc)| {
            let why = semantic_layer::validate_source(name, doc, &sources)
                .errors
                .into_iter()
                .next()?;
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

/// Writes one source to its file at `paths`, or to a new file. Returns `None` if the file has the same content already;
/// the inner error is the reason why the source is not written. A file that something else than a projection changed last
/// is left alone.
fn write_source(
    workspace: &Workspace,
    history: &ProjectionHistory<'_>,
    (connection, name): (&str, &str),
    doc: &SourceDoc,
    paths: &[&str],
) -> Result<Result<Option<ArtifactChange>, String>, ProjectionError> {
    let (is_there, path) = match paths {
        [] => (false, semantic_layer::new_source_path(connection, name)),
        [path] => (true, (*path).to_owned()),
        paths => {
            let paths = paths.iter().map(|path| (*path).to_owned()).collect();
            return Ok(Err(FindSourceError::Ambiguous(paths).to_string()));
        }
    };
    let before = workspace
        .read(&path)
        .map_err(|cause| ProjectionError::Read {
            path: path.clone(),
            cause,
        })?;
    if before.is_some() && !is_there {
        return Ok(Err(format!("{path} holds another source")));
    }
    let text = match semantic_layer::render_source(doc) {
        Ok(text) if before.as_deref() == Some(text.as_bytes()) => return Ok(Ok(None)),
        Ok(text) => text,
        Err(why) => return Ok(Err(why.to_string())),
    };
    if is_there && !history.is_unedited(&path)? {
        return Ok(Err(format!("{path} was last changed by a unit or by hand")));
    }
    match workspace.write(&path, text.as_bytes()) {
        Ok(()) => Ok(Ok(Some(if is_there {
            ArtifactChange::Updated
        } else {
            ArtifactChange::Created
        }))),
        Err(error @ (WriteError::Binary(_) | WriteError::TooLarge { .. })) => {
            Ok(Err(error.to_string()))
        }
        Err(error) => Err(ProjectionError::Rejected(error.to_string())),
    }
}

/// Lets attempts start from the patches of a prior run that are in no commit.
///
/// # Errors
/// If they no longer fit the branch. Attempts start from the branch then.
pub fn restore_base_patches(
    trees: &Arc<Worktrees>,
    targets: Vec<String>,
) -> Result<(), IntegrationError> {
    let integration = PatchIntegrator::open(trees, targets)?;
    trees.set_base(&integration.head()?);
    Ok(())
}

fn commit_subject(adapter: &str) -> String {
    format!("ingest({adapter}): deterministic projection")
}

/// Commits the content of the worktree to the branch, with KTX's message and the trailer of the run. In a run with a
/// review, attempts start from it, and the commit of the run contains it.
fn commit(
    root: &Path,
    workspace: &Workspace,
    trees: &Arc<Worktrees>,
    (run, job, due, is_reviewed): (RunId, &IngestJob, &PendingProjection, bool),
    targets: &[String],
    written: SourcesProjected,
) -> Result<SourcesProjected, ProjectionError> {
    let Some(difference) = workspace
        .create_patch()?
        .filter(|difference| !difference.patch.is_empty())
    else {
        return Ok(written);
    };
    let writer = written.writer();
    let path = format!(
        "{PATCHES_DIR}/{}/{writer}-{}.patch",
        safe_name(&job.id),
        safe_name(match due.connection.as_str() {
            "" => &due.adapter,
            connection => connection,
        })
    );
    ScopedDir::open(root)?.write(&path, &difference.patch, PRIVATE_MODE, 0o600)?;
    let patch = UnitPatch {
        unit: writer.into(),
        file: Some(root.join(&path)),
        source_connections: targets.to_vec(),
        targets: targets.to_vec(),
    };
    let mut integration = PatchIntegrator::open(trees, targets.to_vec())?;
    let mut refused = None;
    integration.integrate_all(&[patch], |_, integrated| {
        refused = match integrated {
            PatchOutcome::Accepted { .. } | PatchOutcome::Noop { .. } => None,
            refused => Some(refused.to_string()),
        };
    })?;
    if let Some(why) = refused {
        return Err(ProjectionError::Rejected(why));
    }
    if is_reviewed || due.cause() == ProjectionCause::Verbatim {
        let targets = targets.to_vec();
        trees.set_base(&integration.head()?);
        trees.add_base_patch(BasePatch {
            unit: writer.into(),
            file: root.join(&path),
            targets,
        });
        return Ok(SourcesProjected {
            patch: Some(path),
            paths: difference.paths,
            ..written
        });
    }
    let message = format!("{}\n\nsyncId={}", commit_subject(&due.adapter), job.sync_id);
    let trailers = RunTrailers {
        run,
        attempts: Vec::new(),
        noted: None,
    };
    let saved = integration.save(&trailers.append_to(&message), &[])?;
    let mut left_out = written.left_out;
    left_out.extend(saved.sl_ref_repairs.iter().map(ToString::to_string));
    Ok(SourcesProjected {
        commit: saved.commit,
        paths: saved.paths,
        left_out,
        ..written
    })
}
