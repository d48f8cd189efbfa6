//! The plan: which units a run has, why each of them runs, and which connections it leaves out.
//!
//! Reads the sources and decides nothing about running. It writes nothing but what helps it to read less the next time.

mod chunking;
mod partial_plan;
mod unit_names;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use globset::{Glob, GlobSet, GlobSetBuilder};

use self::{
    chunking::{ChunkedConnection, chunk_connection, is_target},
    unit_names::RunUnitKeys,
};
use super::{
    database::KTX_DATABASE,
    diff::{Baseline, DiffSet, ForceReason, LastUnitOutcome, RecordOrigin, is_up_to_date, run_reason},
    project::{PROJECT_FILE, Project},
    reconcile::{EvictionCandidate, StageIndex},
    source::{Fingerprint, Projection, SourceTree, UnitChunk, tree},
    tool,
};
pub use crate::tape::note::Selection;
use crate::{
    scoped_dir::ScopedDir,
    tape::{
        UnitKey,
        note::{DiffCounts, FileRead, PlannedUnit, SkippedConnection, SourceRead},
    },
};

/// Units in plan order, and everything that is worth saying about what is not among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IngestPlan {
    /// The units, by connection in the order of `ktx.yaml`, then by path.
    pub units: Vec<WorkUnit>,
    /// Connections that give no units. Each sentence names connection and reason.
    pub skipped: Vec<SkippedConnection>,
    /// Connections to databases that KTX reads and that have no files: units write sources for them.
    pub targets: Vec<SkippedConnection>,
    /// Files that were left out, and units that are skipped because of a record of unknown origin; one sentence each.
    pub warnings: Vec<String>,
    /// Symbolic links that were left out, each with a warning: connection and path in its source.
    pub skipped_links: Vec<(String, String)>,
    /// The connections that were cut into units.
    pub sources: Vec<SourcePlan>,
    /// What they were chosen by.
    pub selection: Selection,
}

/// A unit with all that an attempt at it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkUnit {
    /// What the tape keeps of it.
    pub planned: PlannedUnit,
    /// Names it is told but may not read.
    pub peer_file_index: Vec<Arc<str>>,
    /// What the adapter wants the agent to know.
    pub notes: Option<String>,
    /// Directory that the paths are relative to, absolute.
    pub source_root: PathBuf,
    /// The paths are outside the project, so its repository keeps no copies of the files.
    pub is_external: bool,
    /// What earlier runs wrote from its raw files.
    pub prior_provenance: Vec<PriorProvenance>,
    /// What the other units wrote, where putting that together is what this one is for.
    pub stage_index: Option<Arc<StageIndex>>,
}

impl WorkUnit {
    /// Calls that it takes to read its raw files once: one each, and one for every further answer that a long one fills.
    pub fn min_read_calls(&self) -> u64 {
        let further = self.planned.bytes.unwrap_or_default() / tool::MAX_ANSWER_CHARS as u64;
        self.planned.raw_files.len() as u64 + further
    }

    /// Its raw files, and where the commit of the sync `sync` has copies of them, in KTX's place; none of what is outside
    /// the project: a push would publish it.
    pub fn raw_copies(&self, sync: &str) -> impl Iterator<Item = (&str, String)> {
        let PlannedUnit { connection, adapter, raw_files, .. } = &self.planned;
        let place = format!("raw-sources/{connection}/{adapter}/{sync}");
        let committed = raw_files.iter().filter(|_| !self.is_external);
        committed.map(move |file| (file.as_str(), format!("{place}/{file}")))
    }
}

/// What an earlier run wrote from a raw file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriorProvenance {
    /// Raw file.
    pub path: String,
    /// Short id of the run.
    pub run: String,
    /// `wiki` or `sl`.
    pub kind: String,
    /// Page key, or connection and name of a source.
    pub key: String,
    /// `created`, `updated` or `removed`.
    pub action: String,
}

/// A connection as the plan found it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourcePlan {
    /// Its id.
    pub connection: String,
    /// What cuts it.
    pub adapter: String,
    /// The directory of its files, where that is outside the project.
    pub external_dir: Option<PathBuf>,
    /// Why its files may not be those of the branch that `ktx.yaml` names, as a sentence about it.
    pub branch_mismatch: Option<String>,
    /// Its files against what earlier runs processed.
    pub diff: DiffSet,
    /// Files that are new or changed, or that a planned unit is made of: what they hold, and their size in bytes.
    pub files: BTreeMap<String, (Fingerprint, u64)>,
    /// Units that were asked for and are not planned, as nothing of them changed.
    pub unchanged_units: usize,
    /// Those of them that are unchanged only according to a record that another installation wrote.
    pub foreign_units: usize,
    /// Those of them that are unchanged only according to KTX's record.
    pub ktx_units: usize,
    /// Every unit that the changes call for is planned, or was done before.
    pub is_complete: bool,
    /// Some unit that the changes call for is not planned.
    pub is_partial: bool,
    /// Files that are new or changed and call for a unit that is not planned.
    pub pending_files: BTreeSet<String>,
    /// Where the copies are that the units read, relative to the project.
    pub staging_dir: Option<String>,
    /// How long copying took, in milliseconds.
    pub staging_ms: Option<u64>,
    /// The sources that its files give without any unit.
    pub projection: Projection,
    /// What rests on files that are gone, by their paths.
    pub eviction_candidates: BTreeMap<String, Vec<EvictionCandidate>>,
}

/// Most links that a sentence names.
const MAX_LISTED_LINKS: usize = 3;

impl IngestPlan {
    /// The warnings, with one for all links of a connection.
    pub fn folded_warnings(&self) -> Vec<String> {
        let mut links: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (connection, path) in &self.skipped_links {
            links.entry(connection).or_default().push(path);
        }
        links.retain(|_, paths| paths.len() > 1);
        let folded: BTreeSet<String> = links
            .iter()
            .flat_map(|(id, paths)| paths.iter().map(|path| prefix_connection(id, &tree::skipped_link_warning(path))))
            .collect();
        let others = self.warnings.iter().filter(|warning| !folded.contains(*warning)).cloned();
        let links = links.iter().map(|(id, paths)| {
            let named: Vec<String> = paths.iter().take(MAX_LISTED_LINKS).map(|path| tree::visible_path(path)).collect();
            let more = match paths.len().saturating_sub(MAX_LISTED_LINKS) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let (count, named) = (paths.len(), named.join(", "));
            let why = "only files inside the source are read";
            prefix_connection(id, &format!("{count} symbolic links are skipped: {named}{more}; {why}"))
        });
        links.chain(others).collect()
    }
}

fn prefix_connection(id: &str, warning: &str) -> String {
    format!("connection {id}: {warning}")
}

impl SourcePlan {
    /// Takes the copies of its files for the truth.
    pub(super) fn use_staged_copies(
        &mut self,
        prints: &BTreeMap<String, (Fingerprint, u64)>,
        staged: String,
        took: Duration,
    ) {
        for (path, held) in &mut self.files {
            if let Some(copied) = prints.get(path) {
                *held = *copied;
            }
        }
        self.staging_dir = Some(staged);
        self.staging_ms = u64::try_from(took.as_millis()).ok();
    }

    /// What changed, in numbers.
    pub fn diff_counts(&self) -> DiffCounts {
        let [added, modified, deleted, unchanged] =
            [&self.diff.added, &self.diff.modified, &self.diff.deleted, &self.diff.unchanged]
                .map(|paths| paths.len() as u64);
        DiffCounts { added, modified, deleted, unchanged }
    }

    /// What the tape keeps of it.
    pub fn to_note(&self) -> SourceRead {
        SourceRead {
            connection: self.connection.clone(),
            adapter: self.adapter.clone(),
            staged: self.staging_dir.clone(),
            stage_ms: self.staging_ms,
            diff: self.diff_counts(),
            files: self
                .files
                .iter()
                .map(|(path, (print, bytes))| FileRead { path: path.clone(), sha256: print.to_string(), bytes: *bytes })
                .collect(),
            deleted: self.diff.deleted.clone(),
            open: self.pending_files.iter().cloned().collect(),
            complete: self.is_complete,
        }
    }
}

/// There is nothing to plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The project has no sources.
    #[error(
        "{} names no connections, so there is nothing to ingest; add one, as in `connections: {{notes: {{driver: docs, source_dir: PATH}}}}`",
        .0.display()
    )]
    NoConnections(PathBuf),
    /// A connection was named that does not exist.
    #[error("ktx.yaml has no connection `{0}`; it has {1}")]
    NoSuchConnection(String, String),
    /// A connection was named that cannot be ingested.
    #[error("{0}")]
    UnusableConnection(String),
    /// A glob cannot be read.
    #[error("`{0}` is not a valid pattern: {1}")]
    InvalidPattern(String, String),
    /// No unit matches.
    #[error("no unit matches `{patterns}`; the units are {units}")]
    NoSuchUnit {
        /// The globs.
        patterns: String,
        /// Some keys that exist.
        units: String,
    },
}

impl PlanError {
    /// True if something named does not exist (exit code 4); otherwise it is a matter of configuration (2).
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NoSuchUnit { .. } | Self::NoSuchConnection(..))
    }
}

/// Plans a run over `project` in which nothing was processed before.
pub fn plan(project: &Project, selection: &Selection) -> Result<IngestPlan, PlanError> {
    plan_against(project, selection, &Baseline::default())
}

/// Plans a run over `project` for what changed against `baseline`.
pub fn plan_against(project: &Project, selection: &Selection, baseline: &Baseline) -> Result<IngestPlan, PlanError> {
    let connections = &project.settings.connections;
    if connections.is_empty() {
        return Err(PlanError::NoConnections(project.root.join(PROJECT_FILE)));
    }
    check_connections_exist(project, &selection.connections)?;
    let wanted = UnitSelector::from_selection(selection)?;
    let is_wanted = |id: &str| selection.connections.is_empty() || selection.connections.iter().any(|name| name == id);

    let mut planned = IngestPlan { selection: selection.clone(), ..IngestPlan::default() };
    let mut cuts = Vec::new();
    for connection in connections.iter().filter(|connection| is_wanted(&connection.id)) {
        match chunk_connection(project, connection) {
            Ok(cut) => cuts.push(cut),
            Err(skipped) if !selection.connections.is_empty() => {
                return Err(PlanError::UnusableConnection(skipped.why));
            }
            Err(target) if is_target(connection) => planned.targets.push(target),
            Err(skipped) => planned.skipped.push(skipped),
        }
    }
    let all: Vec<RunUnitKeys> = RunUnitKeys::assign(&cuts);
    if !selection.only.is_empty() {
        let of_each = || cuts.iter().zip(&all);
        let units =
            || of_each().flat_map(|(cut, keys)| cut.chunks.iter().map(|chunk| (&*chunk.key, keys.run_key(&chunk.key))));
        if !units().any(|unit| wanted.selects(unit)) {
            let units = abbreviated_list(units().map(|(_, in_run)| in_run));
            return Err(PlanError::NoSuchUnit { patterns: selection.only.join(", "), units });
        }
    }
    for (cut, keys) in cuts.into_iter().zip(&all) {
        let id = &cut.connection.id;
        planned.warnings.extend(cut.warnings.iter().map(|warning| prefix_connection(id, warning)));
        planned.skipped_links.extend(cut.tree.skipped_links.iter().map(|path| (id.clone(), path.clone())));
        select_units(cut, keys, &wanted, baseline, &project.root, &mut planned);
    }
    let foreign = planned.sources.iter().map(|source| source.foreign_units).sum();
    planned.warnings.extend(skipped_by_foreign_records(foreign));
    let ktx = planned.sources.iter().map(|source| source.ktx_units).sum();
    planned.warnings.extend(skipped_by_ktx_records(ktx));
    Ok(planned)
}

/// KTX's database is a file of the project like any other, so the plan says when it relies on it.
fn skipped_by_ktx_records(units: usize) -> Option<String> {
    let (units, are) = match units {
        0 => return None,
        1 => ("1 unit".to_owned(), "is"),
        count => (format!("{count} units"), "are"),
    };
    Some(format!(
        "{units} {are} unchanged since KTX ingested the files, according to {KTX_DATABASE}; `ingestdeck run --full` runs \
         all units and ends this warning"
    ))
}

/// Records of other installations count, because a project may be copied, restored or mounted elsewhere (CI restores
/// `.ktx` into a fresh machine), and running every unit again costs money. A clone can ship such a record to have changed
/// files skipped, though, so the plan says when it relies on one. What a team shares through git is not affected: the
/// copies in `raw-sources/` are never read as a baseline, only the records below `.ktx/ingestdeck` are.
fn skipped_by_foreign_records(units: usize) -> Option<String> {
    let (units, are) = match units {
        0 => return None,
        1 => ("1 unit".to_owned(), "is"),
        count => (format!("{count} units"), "are"),
    };
    Some(format!(
        "{units} {are} unchanged according to a record that this installation did not write (a copied, restored or \
         older one); `ingestdeck run --full` runs all units and ends this warning"
    ))
}

fn check_connections_exist(project: &Project, connections: &[String]) -> Result<(), PlanError> {
    let known = || project.settings.connections.iter().map(|connection| connection.id.as_str());
    match connections.iter().find(|name| !known().any(|id| id == *name)) {
        Some(unknown) => Err(PlanError::NoSuchConnection(unknown.clone(), abbreviated_list(known()))),
        None => Ok(()),
    }
}

/// Adds the units of one connection that run to `planned`.
fn select_units(
    cut: ChunkedConnection<'_>,
    keys: &RunUnitKeys,
    wanted: &UnitSelector<'_>,
    baseline: &Baseline,
    project: &Path,
    planned: &mut IngestPlan,
) {
    let ChunkedConnection { connection, adapter, tree, chunks, branch_mismatch: other_branch, .. } = cut;
    let (id, name) = (connection.id.as_str(), adapter.name());
    let prior = baseline.source_files(id, name);
    let mut diff = DiffSet::from_tree(&tree, prior);
    let origin = |path: &str| baseline.origin(id, name, path);
    retain_deleted(&mut diff, &tree, |path| adapter.accepts_file(path), |path| origin(path) == Some(RecordOrigin::Ktx));
    let diff = diff;
    let takes = |chunk: &UnitChunk| wanted.selects((&*chunk.key, keys.run_key(&chunk.key)));
    let names = |chunk: &UnitChunk| wanted.selects_by_name((&*chunk.key, keys.run_key(&chunk.key)));
    let asked_for = chunks.iter().filter(|chunk| takes(chunk)).count();
    // Tapes of older programs know a unit that shares its key by its name in the run alone.
    let standing = |key: &str| {
        baseline.unit_outcome(id, key).or_else(|| baseline.unit_outcome(id, &unit_names::qualified_key(key, id)))
    };
    let forced = |chunk: &UnitChunk| match names(chunk) {
        true => Some(ForceReason::ByName),
        false => wanted.is_full.then_some(ForceReason::FullRun),
    };
    let has_read = |chunk: &UnitChunk, path: &str| {
        let now = tree.get(path).and_then(|file| file.fingerprint);
        now.is_some_and(|now| baseline.has_read((id, name, &chunk.key), path, now))
    };
    let reason =
        |chunk: &UnitChunk| run_reason(chunk, &diff, standing(&chunk.key), forced(chunk), |path| has_read(chunk, path));
    let up_to_date =
        |chunk: &UnitChunk| is_up_to_date(chunk, &diff, standing(&chunk.key), |path| has_read(chunk, path));
    let up_to_date: HashSet<String> =
        chunks.iter().filter(|chunk| up_to_date(chunk)).map(|chunk| chunk.key.clone()).collect();
    let reasons: HashMap<String, (usize, String)> =
        chunks.iter().enumerate().map(|(place, chunk)| (chunk.key.clone(), (place, reason(chunk)))).collect();
    let relying_on = |record: RecordOrigin| -> BTreeSet<String> {
        let relies = |path: &String| origin(path) == Some(record);
        chunks
            .iter()
            .filter(|chunk| takes(chunk))
            .filter(|chunk| chunk.raw_files.iter().chain(&chunk.dependency_paths).any(relies))
            .map(|chunk| chunk.key.clone())
            .collect()
    };
    let (mut foreign, mut ktx) = (relying_on(RecordOrigin::Foreign), relying_on(RecordOrigin::Ktx));
    // It read files of KTX's record itself.
    ktx.retain(|key| standing(key) != Some(&LastUnitOutcome::Succeeded));
    // Where nothing was processed before, everything is as new as it can be.
    let by_name: Vec<UnitChunk> = chunks.iter().filter(|chunk| names(chunk)).cloned().collect();
    let everything = wanted.is_full.then(|| chunks.clone());
    let mut changed = match prior {
        Some(_) => adapter.narrow_units(chunks, &diff.changed_paths()),
        None => chunks,
    };
    changed.retain(|chunk| !up_to_date.contains(&chunk.key));
    let mut source = SourcePlan {
        connection: id.to_owned(),
        adapter: name.to_owned(),
        external_dir: (!tree.root.starts_with(project)).then(|| tree.root.clone()),
        branch_mismatch: other_branch,
        is_complete: true,
        ..SourcePlan::default()
    };
    for chunk in changed.iter().filter(|chunk| !takes(chunk)) {
        source.exclude_files(&diff, &chunk.raw_files, &chunk.dependency_paths, &chunk.peer_file_index);
    }
    let chosen = everything.unwrap_or(changed).into_iter();
    let mut units: Vec<UnitChunk> = chosen.filter(takes).collect();
    let mut unchanged_units = asked_for.saturating_sub(units.len());
    for chunk in by_name {
        if !units.iter().any(|unit| unit.key == chunk.key) {
            units.push(chunk);
            unchanged_units = unchanged_units.saturating_sub(1);
        }
    }
    for relying in [&mut foreign, &mut ktx] {
        relying.retain(|key| !units.iter().any(|unit| unit.key == *key));
    }
    units.sort_by_key(|chunk| reasons.get(&chunk.key).map_or(usize::MAX, |(place, _)| *place));
    let mut files: BTreeSet<&str> = diff.changed_paths();
    files.extend(units.iter().flat_map(|unit| &unit.raw_files).map(String::as_str));
    let held = |path: &str| tree.get(path).and_then(|file| Some((file.fingerprint?, file.bytes)));
    let files = files.into_iter().filter_map(|path| Some((path.to_owned(), held(path)?))).collect();
    let is_outside = source.external_dir.is_some();
    let projection = if units.is_empty() { Projection::default() } else { adapter.project_sources(&tree) };
    let (foreign_units, ktx_units) = (foreign.len(), ktx.len());
    planned.sources.push(SourcePlan { files, unchanged_units, foreign_units, ktx_units, diff, projection, ..source });
    planned.units.extend(units.into_iter().map(|chunk| {
        let why = reasons.get(&chunk.key).map_or_else(|| "its files changed".into(), |(_, why)| why.clone());
        let in_run = keys.run_key(&chunk.key).into();
        WorkUnit { is_external: is_outside, ..work_unit(chunk, in_run, id, name, &tree, why) }
    }));
}

/// Takes files off that only KTX knows and that are not gone: those that the adapter does not read, and those that are
/// still there. Where none of KTX's files is there, its paths are relative to another directory, and nothing is gone.
fn retain_deleted(
    diff: &mut DiffSet,
    tree: &SourceTree,
    takes: impl Fn(&str) -> bool,
    is_of_ktx: impl Fn(&str) -> bool,
) {
    if !diff.deleted.iter().any(|path| is_of_ktx(path)) {
        return;
    }
    let any_there = diff.modified.iter().chain(&diff.unchanged).any(|path| is_of_ktx(path));
    let root = ScopedDir::open(&tree.root);
    let is_missing = |path: &str| root.as_ref().is_ok_and(|root| root.kind(path).is_ok_and(|kind| kind.is_none()));
    diff.deleted.retain(|path| !is_of_ktx(path) || (any_there && takes(path) && is_missing(path)));
}

fn work_unit(
    chunk: UnitChunk,
    in_run: UnitKey,
    connection: &str,
    adapter: &str,
    tree: &SourceTree,
    why: String,
) -> WorkUnit {
    let key = UnitKey::new(chunk.key);
    let sizes = chunk.raw_files.iter().map(|path| tree.get(path).map(|file| file.bytes));
    WorkUnit {
        planned: PlannedUnit {
            ktx_key: (key != in_run).then_some(key),
            unit: in_run,
            connection: connection.to_owned(),
            adapter: adapter.to_owned(),
            label: chunk.label,
            bytes: sizes.sum(),
            raw_files: chunk.raw_files,
            dependency_paths: chunk.dependency_paths,
            why,
            sl_disallowed: chunk.sl_disallowed,
            peer_files: Some(chunk.peer_file_index.len() as u64),
        },
        peer_file_index: chunk.peer_file_index,
        notes: chunk.notes,
        source_root: tree.root.clone(),
        is_external: false,
        prior_provenance: Vec::new(),
        stage_index: None,
    }
}

/// Which units are asked for, by their keys.
struct UnitSelector<'a> {
    only: Option<GlobSet>,
    patterns: &'a [String],
    is_full: bool,
}

impl<'a> UnitSelector<'a> {
    fn from_selection(selection: &'a Selection) -> Result<Self, PlanError> {
        Ok(Self { only: globs(&selection.only)?, patterns: &selection.only, is_full: selection.full })
    }

    /// Whether a unit is asked for, by KTX's key or by that of the run.
    fn selects(&self, (key, in_run): (&str, &str)) -> bool {
        self.only.as_ref().is_none_or(|only| only.is_match(key) || only.is_match(in_run))
    }

    /// True if a key was given in full, which selects that unit also if it has not changed.
    fn selects_by_name(&self, (key, in_run): (&str, &str)) -> bool {
        let is = |pattern: &String, key: &str| pattern == key || *pattern == globset::escape(key);
        self.patterns.iter().any(|pattern| is(pattern, key) || is(pattern, in_run))
    }
}

fn globs(patterns: &[String]) -> Result<Option<GlobSet>, PlanError> {
    if patterns.is_empty() {
        return Ok(None);
    }
    let bad =
        |pattern: &str, error: &globset::Error| PlanError::InvalidPattern(pattern.to_owned(), error.kind().to_string());
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(Glob::new(pattern).map_err(|error| bad(pattern, &error))?);
    }
    set.build().map(Some).map_err(|error| bad(&patterns.join(", "), &error))
}

/// The first few names, and how many more there are.
fn abbreviated_list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const MAX_LISTED_NAMES: usize = 12;
    let names: Vec<_> = names.collect();
    match names.len() {
        0 => "none".into(),
        count if count <= MAX_LISTED_NAMES => names.join(", "),
        count => format!(
            "{} and {} more",
            names.get(..MAX_LISTED_NAMES).unwrap_or_default().join(", "),
            count - MAX_LISTED_NAMES
        ),
    }
}

#[cfg(test)]
mod tests;
