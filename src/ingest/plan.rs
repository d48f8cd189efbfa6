//! The plan: which units a run has, why each of them runs, and which connections it leaves out.
//!
//! Reads the sources and does not start runs. It writes nothing except caches that make the next plan faster.

mod chunking;
mod neighbours;
mod partial_plan;
mod projection_target;
mod texts;
mod unit_names;
mod unit_selector;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    path::{Path, PathBuf},
    time::Duration,
};

use self::{
    chunking::{chunk_connection, drop_files_read_elsewhere, is_target},
    neighbours::Neighbourhood,
    projection_target::choose_target,
    unit_names::RunUnitKeys,
    unit_selector::UnitSelector,
};
pub use self::{partial_plan::PlannedDiff, texts::plan_texts};
use super::{
    baseline::{Baseline, FileOwners, RecordOrigin, RecordTime},
    database::KTX_DATABASE,
    git_source::{CloneState, SourceVersion},
    line_budget::first_names,
    project::{PROJECT_FILE, Project},
    reconcile::EvictionCandidate,
    source::{
        ChunkedConnection, Fingerprint, SourceAdapter, SourceProjection, SourceTree, UnitChunk,
        VerbatimDocument, add_dependencies, tree,
    },
    source_diff::{ForceReason, SourceDiff, UnitChanges, run_reason},
    untrusted_text::visible_path,
    verbatim,
    work_unit::WorkUnit,
};
pub use ingestdeck_core::tape::note::UnitSelection;
use ingestdeck_core::{
    diagnostic::{Diagnostic, Problem},
    tape::{
        UnitKey,
        note::{
            DiffCounts, FetchedRepository, FileRead, PlannedUnit, SkippedConnection, SourceRead,
            attempt_output::UnreadFile,
        },
    },
};

/// Units in plan order, and the reasons why other units and files are not included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IngestPlan {
    /// The units, by connection in the order of `ktx.yaml`, then by path.
    pub units: Vec<WorkUnit>,
    /// Connections that are left out, with their problems.
    pub skipped: Vec<UnplannedConnection>,
    /// Connections to databases that KTX reads and that have no files. Units write sources for them.
    pub targets: Vec<UnplannedConnection>,
    /// Skipped files, and units that are skipped because of a record of unknown origin; one sentence each.
    pub warnings: Vec<Problem>,
    /// Skipped symbolic links, each with a warning: connection and path in its source.
    pub skipped_links: Vec<(String, String)>,
    /// True if the units capture texts that the user gave to the run.
    pub is_of_texts: bool,
    /// Texts that the user gave to the run to become pages unchanged.
    pub documents: Vec<VerbatimDocument>,
    /// The connections that were cut into units.
    pub sources: Vec<SourcePlan>,
    /// The selection that the plan was made for.
    pub selection: UnitSelection,
}

/// A connection and its changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourcePlan {
    /// Connection id in `ktx.yaml`.
    pub connection: String,
    /// Name of the adapter that cuts it into units.
    pub adapter: String,
    /// Directory of its files, if it is outside the project.
    pub external_dir: Option<PathBuf>,
    /// The commit of its files.
    pub version: SourceVersion,
    /// Differences between its files and the baseline.
    pub diff: SourceDiff,
    /// New and changed files and all files of planned units, with their fingerprint and size in bytes.
    pub files: BTreeMap<String, (Fingerprint, u64)>,
    /// Requested units that are not planned.
    pub unchanged: UnchangedUnits,
    /// Every unit that the changes affect is planned, or succeeded in a prior run.
    pub is_complete: bool,
    /// At least one unit that the changes affect is not planned.
    pub is_partial: bool,
    /// New and changed files whose unit is not planned.
    pub pending_files: BTreeSet<String>,
    /// The copies that the units read; `None` if they read the files themselves.
    pub staging: Option<StagedFiles>,
    /// Sources that follow from its files without an agent.
    pub projection: SourceProjection,
    /// Settled raw files that their unit left unread and that are in no planned unit, with the key of the unit in the run.
    pub unread: Vec<(UnitKey, UnreadFile)>,
    /// Names that files define, by path, as far as they are known.
    pub definitions: BTreeMap<String, Vec<String>>,
    /// Artifacts that depend on deleted files, by the path of the file.
    pub eviction_candidates: BTreeMap<String, Vec<EvictionCandidate>>,
}

/// Requested units of a connection that are not planned because they are unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnchangedUnits {
    pub count: usize,
    /// How many of them are unchanged only according to a record of another installation.
    pub by_foreign_records: usize,
    /// Keys of those that are unchanged only according to KTX's record.
    pub only_by_ktx: Vec<String>,
}

/// Copies of the files of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedFiles {
    /// Directory of the copies, relative to the project.
    pub dir: String,
    /// Duration of the copying in milliseconds.
    pub copy_ms: Option<u64>,
}

/// Most links that one warning names.
const MAX_LISTED_LINKS: usize = 3;

impl IngestPlan {
    /// The repositories that git fetched the files of connections from.
    pub fn repositories(&self) -> Vec<(String, FetchedRepository)> {
        let named = self.sources.iter().filter_map(|source| {
            let clone = source.version.clone.as_ref()?;
            Some((source.connection.clone(), clone.to_note()))
        });
        named.collect()
    }

    /// True if documents become pages unchanged.
    pub fn has_documents(&self) -> bool {
        !self.documents.is_empty()
            || self
                .sources
                .iter()
                .any(|of| !of.projection.documents.is_empty())
    }

    /// The warnings, with all links of a connection folded into one.
    pub fn folded_warnings(&self) -> Vec<Problem> {
        let mut links: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (connection, path) in &self.skipped_links {
            links.entry(connection).or_default().push(path);
        }
        links.retain(|_, paths| paths.len() > 1);
        let folded: BTreeSet<Problem> = links
            .iter()
            .flat_map(|(id, paths)| {
                paths
                    .iter()
                    .map(|path| prefix_connection(id, tree::skipped_link_warning(path)))
            })
            .collect();
        let others = self
            .warnings
            .iter()
            .filter(|warning| !folded.contains(*warning))
            .cloned();
        let links = links.iter().map(|(id, paths)| {
            let named: Vec<String> = paths.iter().map(|path| visible_path(path)).collect();
            let (count, named) = (paths.len(), first_names(&named, MAX_LISTED_LINKS));
            let why = "only files inside the source are read";
            prefix_connection(
                id,
                format!("{count} symbolic links are skipped: {named}; {why}").into(),
            )
        });
        links.chain(others).collect()
    }
}

fn prefix_connection(id: &str, warning: Problem) -> Problem {
    warning.prefixed(format_args!("connection {id}: "))
}

impl SourcePlan {
    /// Uses the fingerprints of the staged copies instead of the original files.
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
        self.staging = Some(StagedFiles {
            dir: staged,
            copy_ms: u64::try_from(took.as_millis()).ok(),
        });
    }

    /// Number of files by kind of change.
    pub(crate) fn diff_counts(&self) -> DiffCounts {
        let [added, modified, deleted, unchanged] = [
            &self.diff.added,
            &self.diff.modified,
            &self.diff.deleted,
            &self.diff.unchanged,
        ]
        .map(|paths| paths.len() as u64);
        DiffCounts {
            added,
            modified,
            deleted,
            unchanged,
        }
    }

    /// The entry for the tape.
    pub fn to_note(&self) -> SourceRead {
        SourceRead {
            connection: self.connection.clone(),
            adapter: self.adapter.clone(),
            staged: self.staging.as_ref().map(|staging| staging.dir.clone()),
            stage_ms: self.staging.as_ref().and_then(|staging| staging.copy_ms),
            diff: self.diff_counts(),
            files: self
                .files
                .iter()
                .map(|(path, (print, bytes))| FileRead {
                    path: path.clone(),
                    sha256: print.to_string(),
                    bytes: *bytes,
                    defines: self.definitions.get(path).cloned(),
                })
                .collect(),
            deleted: self.diff.deleted.clone(),
            repository: self.version.clone.as_ref().map(CloneState::to_note),
            left_for_later_runs: self.pending_files.iter().cloned().collect(),
            is_complete: self.is_complete,
        }
    }
}

/// A connection that gives no units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnplannedConnection {
    pub connection: String,
    /// Names the connection and the reason.
    pub problem: Problem,
    /// True for a configuration error, false for an expected reason.
    pub fault: bool,
}

impl UnplannedConnection {
    /// The entry for the tape.
    pub fn to_note(&self) -> SkippedConnection {
        let Self {
            connection,
            problem,
            fault,
        } = self;
        SkippedConnection {
            connection: connection.clone(),
            why: problem.to_line(),
            fault: *fault,
        }
    }
}

/// Why nothing can be planned.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The project has no sources.
    #[error("{} names no connections, so there is nothing to ingest", .0.display())]
    NoConnections(PathBuf),
    /// `ktx.yaml` has no connection of the given name.
    #[error("ktx.yaml has no connection `{0}`")]
    NoSuchConnection(String, String),
    /// The selected connection cannot be ingested.
    #[error(transparent)]
    UnusableConnection(Problem),
    /// A glob pattern is invalid.
    #[error("`{0}` is not a valid pattern: {1}")]
    InvalidPattern(String, String),
    /// A text cannot become a page.
    #[error(transparent)]
    UnusableText(Problem),
    /// No unit matches the patterns.
    #[error("no unit matches `{patterns}`")]
    NoSuchUnit {
        /// The patterns, separated by commas.
        patterns: String,
        /// Some existing unit keys.
        units: String,
    },
}

impl Diagnostic for PlanError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::NoConnections(_) => {
                "add one, as in `ingestdeck: {connections: {notes: {driver: docs, source_dir: PATH}}}`".into()
            }
            Self::NoSuchConnection(_, known) => format!("name one of its connections: {known}"),
            Self::NoSuchUnit { units, .. } => format!("name one of the units: {units}"),
            Self::UnusableConnection(problem) | Self::UnusableText(problem) => {
                return problem.help();
            }
            Self::InvalidPattern(..) => return None,
        })
    }
}

impl PlanError {
    /// True if a named connection or unit does not exist (exit code 4). Other errors concern the configuration (2).
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NoSuchUnit { .. } | Self::NoSuchConnection(..))
    }
}

/// Plans a run over `project` with an empty baseline.
pub fn plan(project: &Project, selection: &UnitSelection) -> Result<IngestPlan, PlanError> {
    plan_against(project, selection, &Baseline::default())
}

/// Plans a run over `project` for the changes against `baseline`.
pub fn plan_against(
    project: &Project,
    selection: &UnitSelection,
    baseline: &Baseline,
) -> Result<IngestPlan, PlanError> {
    let connections = &project.settings.connections;
    if connections.is_empty() {
        return Err(PlanError::NoConnections(project.root.join(PROJECT_FILE)));
    }
    check_connections_exist(project, &selection.connections)?;
    let wanted = UnitSelector::from_selection(selection)?;
    let is_wanted = |id: &str| {
        selection.connections.is_empty() || selection.connections.iter().any(|name| name == id)
    };

    let mut planned = IngestPlan {
        selection: selection.clone(),
        ..IngestPlan::default()
    };
    let mut cuts = Vec::new();
    for connection in connections
        .iter()
        .filter(|connection| is_wanted(&connection.id))
    {
        match chunk_connection(project, connection) {
            Ok(cut) => cuts.push(cut),
            Err(skipped) if !selection.connections.is_empty() => {
                return Err(PlanError::UnusableConnection(skipped.problem));
            }
            Err(target) if is_target(connection) => planned.targets.push(target),
            Err(skipped) => planned.skipped.push(skipped),
        }
    }
    drop_files_read_elsewhere(&mut cuts);
    let all: Vec<RunUnitKeys> = RunUnitKeys::assign(&cuts);
    if !selection.only.is_empty() {
        let of_each = || cuts.iter().zip(&all);
        let units = || {
            of_each().flat_map(|(cut, keys)| {
                cut.chunks
                    .iter()
                    .map(|chunk| (&*chunk.key, keys.run_key(&chunk.key)))
            })
        };
        if !units().any(|unit| wanted.selects(unit)) {
            let units = known_names(units().map(|(_, in_run)| in_run));
            return Err(PlanError::NoSuchUnit {
                patterns: selection.only.join(", "),
                units,
            });
        }
    }
    for (cut, keys) in cuts.into_iter().zip(&all) {
        let id = &cut.connection.id;
        planned.warnings.extend(
            cut.warnings
                .iter()
                .map(|warning| prefix_connection(id, warning.clone())),
        );
        planned.skipped_links.extend(
            cut.tree
                .skipped_links
                .iter()
                .map(|path| (id.clone(), path.clone())),
        );
        let connection = cut.connection;
        select_units(cut, keys, &wanted, baseline, &project.root, &mut planned);
        if let Some(source) = planned.sources.last_mut() {
            let (target, warning) = choose_target(project, connection, &source.projection);
            source.projection.target = target;
            planned.warnings.extend(warning);
        }
    }
    planned
        .warnings
        .extend(weak_record_warnings(&planned.sources));
    Ok(planned)
}

/// The warnings about units that are skipped because of a record that others can write.
///
/// Anyone who can write the project can write KTX's database. Records of other installations count, because a project
/// may be copied, restored or mounted elsewhere (CI restores `.ktx` on a new machine), and running every unit again costs
/// money. But a clone may contain such a record to hide changed files, so the plan names it. Sharing through git is not
/// affected: copies in `raw-sources/` are never read as a baseline, only the records below `.ktx/ingestdeck` are.
fn weak_record_warnings(sources: &[SourcePlan]) -> impl Iterator<Item = Problem> {
    const MAX_NAMED: usize = 5;
    let ktx: Vec<&String> = sources
        .iter()
        .flat_map(|source| &source.unchanged.only_by_ktx)
        .collect();
    let foreign: usize = sources
        .iter()
        .map(|source| source.unchanged.by_foreign_records)
        .sum();
    let record = "according to a record that this installation did not write (a copied, restored or older one)";
    let named = first_names(&ktx, MAX_NAMED);
    let by_ktx = format!("since KTX ingested the files, according to {KTX_DATABASE}: {named}");
    let warning = |(units, reason): (usize, String)| {
        let subject = if units == 1 {
            "1 unit is".to_owned()
        } else {
            format!("{units} units are")
        };
        let problem = Problem::new(format!("{subject} unchanged {reason}"));
        (units > 0).then(|| {
            problem.with_help("run all units with `ingestdeck run --full`, which ends this warning")
        })
    };
    [(foreign, record.to_owned()), (ktx.len(), by_ktx)]
        .into_iter()
        .filter_map(warning)
}

fn check_connections_exist(project: &Project, connections: &[String]) -> Result<(), PlanError> {
    let known = || {
        project
            .settings
            .connections
            .iter()
            .map(|connection| connection.id.as_str())
    };
    match connections
        .iter()
        .find(|name| !known().any(|id| id == *name))
    {
        Some(unknown) => Err(PlanError::NoSuchConnection(
            unknown.clone(),
            known_names(known()),
        )),
        None => Ok(()),
    }
}

/// Selects the units of one connection that run and adds them to `planned`.
fn select_units(
    cut: ChunkedConnection<'_>,
    keys: &RunUnitKeys,
    wanted: &UnitSelector<'_>,
    baseline: &Baseline,
    project: &Path,
    planned: &mut IngestPlan,
) {
    let ChunkedConnection {
        connection,
        adapter,
        tree,
        chunks,
        version,
        ..
    } = cut;
    let (id, name) = (connection.id.as_str(), adapter.name());
    let prior = baseline.source_files(id, name);
    let mut owners: HashMap<&str, FileOwners<'_>> = HashMap::new();
    for chunk in &chunks {
        for path in &chunk.raw_files {
            let owners = owners.entry(path).or_default();
            owners.units.insert(&chunk.key);
            let lines = chunk.assigned_lines.as_ref();
            owners.are_shared |= adapter.shares_files() || lines.is_some_and(|of| of.path == *path);
        }
    }
    let no_owners = FileOwners::default();
    let last_success = |key: &str| baseline.last_success(id, key);
    let settled_at = |unit: Option<&str>, path: &str| {
        let (known, now) = (prior?.get(path)?, tree.get(path)?.fingerprint?);
        known.settled_at(
            unit,
            now,
            owners.get(path).unwrap_or(&no_owners),
            last_success,
        )
    };
    let mut diff = SourceDiff::from_tree(&tree, prior, |path| match owners.get(path) {
        Some(owners) => owners
            .units
            .iter()
            .all(|unit| settled_at(Some(unit), path).is_some()),
        None => settled_at(None, path).is_some(),
    });
    let origin = |path: &str| baseline.origin(id, name, path);
    diff.deleted.retain(|path| !adapter.is_reading_aid(path));
    neighbours::retain_deleted(
        &mut diff,
        &tree,
        |path| adapter.accepts_file(path),
        |path| matches!(origin(path), Some(RecordOrigin::Ktx { .. })),
    );
    let diff = diff;
    let takes = |chunk: &UnitChunk| wanted.selects((&*chunk.key, keys.run_key(&chunk.key)));
    let names = |chunk: &UnitChunk| wanted.selects_by_name((&*chunk.key, keys.run_key(&chunk.key)));
    let asked_for = chunks.iter().filter(|chunk| takes(chunk)).count();
    // Older tapes identify a unit with a shared key only by its key in the run.
    let standing = |key: &str| {
        baseline
            .unit_outcome(id, key)
            .or_else(|| baseline.unit_outcome(id, &unit_names::qualified_key(key, id)))
    };
    // The content is that of the last run, and units that were planned with the file are tried again.
    let is_seen = |path: &str| {
        let seen = prior.and_then(|prior| prior.get(path)?.last_content());
        let is_due = |unit: &&str| settled_at(Some(unit), path).is_none();
        seen.is_some()
            && seen == tree.get(path).and_then(|file| file.fingerprint)
            && owners.get(path).is_some_and(|of| {
                of.units
                    .iter()
                    .filter(|it| is_due(it))
                    .all(|it| standing(it).is_some())
            })
    };
    let keeps_documents = adapter.keeps_documents();
    let shown = diff.count_shown(|path| keeps_documents || owners.contains_key(path), is_seen);
    let forced = |chunk: &UnitChunk| match names(chunk) {
        true => Some(ForceReason::ByName),
        false => wanted.is_full.then_some(ForceReason::FullRun),
    };
    let deleted = prior
        .map(|prior| neighbours::deleted_files(prior, &tree, &diff, adapter))
        .unwrap_or_default();
    let mut neighbourhood =
        prior.map(|prior| Neighbourhood::new(connection, adapter, &tree, prior, &deleted));
    let unread_by = |chunk: &UnitChunk, path: &str| {
        let (known, now) = (prior?.get(path)?, tree.get(path)?.fingerprint?);
        known.unread_by(&chunk.key, now, owners.get(path).unwrap_or(&no_owners))
    };
    let mut unread_files: Vec<(String, UnreadFile)> = Vec::new();
    let mut due: HashMap<String, DueUnit> = HashMap::new();
    for (place, chunk) in chunks.iter().enumerate() {
        // What the unit knows of the files around a changed one is from its last success.
        let latest = last_success(&chunk.key).unwrap_or(RecordTime::LATEST);
        let settled = |path: &str| settled_at(Some(&chunk.key), path);
        let files: Vec<(&str, RecordTime)> = chunk
            .raw_files
            .iter()
            .map(|path| (path.as_str(), settled(path).unwrap_or(latest)))
            .collect();
        let own = chunk
            .raw_files
            .iter()
            .filter(|path| settled(path).is_none())
            .cloned()
            .collect();
        let left = chunk
            .raw_files
            .iter()
            .filter(|path| settled(path).is_some())
            .filter_map(|path| unread_by(chunk, path));
        let mut changes = UnitChanges {
            own,
            ..UnitChanges::default()
        };
        changes.is_repeated =
            !changes.own.is_empty() && changes.own.iter().all(|path| is_seen(path));
        match wanted.unread {
            true => changes.unread = left.cloned().collect(),
            false if takes(chunk) => {
                unread_files.extend(left.map(|file| (chunk.key.clone(), file.clone())))
            }
            false => {}
        }
        if let Some(neighbourhood) = neighbourhood
            .as_mut()
            .filter(|_| changes.own.is_empty() || takes(chunk))
        {
            (changes.referred, changes.is_uncertain) = neighbourhood.referred(chunk, &files);
            if wanted.neighbours {
                let since = files
                    .iter()
                    .map(|(_, time)| *time)
                    .min()
                    .unwrap_or_default();
                changes.around = neighbourhood.around(chunk, since, &changes.referred);
            }
        }
        let why = run_reason(
            chunk.raw_files.len(),
            &changes,
            &diff,
            standing(&chunk.key),
            forced(chunk),
        );
        due.insert(
            chunk.key.clone(),
            DueUnit {
                place,
                why,
                changes,
            },
        );
    }
    let relying_on = |is_such: &dyn Fn(&UnitChunk, RecordOrigin) -> bool| -> BTreeSet<String> {
        let relies = |chunk: &UnitChunk| {
            let mut paths = chunk.raw_files.iter().chain(&chunk.dependency_paths);
            paths.any(|path| origin(path).is_some_and(|origin| is_such(chunk, origin)))
        };
        chunks
            .iter()
            .filter(|chunk| takes(chunk) && relies(chunk))
            .map(|chunk| chunk.key.clone())
            .collect()
    };
    let mut foreign = relying_on(&|_, origin| origin == RecordOrigin::Foreign);
    // A unit that succeeded after KTX ingested a file does not rest on KTX's record alone. Older tapes name a unit with a
    // shared key only by its key in the run.
    let succeeded_after = |key: &str, ms: u64| {
        let qualified = unit_names::qualified_key(key, id);
        [key, &*qualified]
            .iter()
            .any(|key| baseline.succeeded_after(id, key, ms))
    };
    let mut ktx = relying_on(&|chunk, origin| match origin {
        RecordOrigin::Ktx { completed_ms } => !succeeded_after(&chunk.key, completed_ms),
        RecordOrigin::Own | RecordOrigin::Foreign => false,
    });
    // Without a baseline every unit is new and is not narrowed.
    let by_name: Vec<UnitChunk> = chunks
        .iter()
        .filter(|chunk| names(chunk))
        .cloned()
        .collect();
    let everything = wanted.is_full.then(|| chunks.clone());
    let changed = match prior {
        Some(_) => narrow_units(adapter, chunks, &due, &tree),
        None => chunks,
    };
    let mut source = SourcePlan {
        connection: id.to_owned(),
        adapter: name.to_owned(),
        external_dir: (!tree.root.starts_with(project)).then(|| tree.root.clone()),
        version,
        is_complete: true,
        ..SourcePlan::default()
    };
    for chunk in changed.iter().filter(|chunk| !takes(chunk)) {
        source.exclude_files(&diff, &chunk.raw_files);
    }
    let chosen = everything.unwrap_or(changed).into_iter();
    let mut units: Vec<UnitChunk> = chosen.filter(takes).collect();
    let mut unchanged_units = asked_for.saturating_sub(units.len());
    let mut chosen_keys: HashSet<String> = units.iter().map(|unit| unit.key.clone()).collect();
    for chunk in by_name {
        if chosen_keys.insert(chunk.key.clone()) {
            units.push(chunk);
            unchanged_units = unchanged_units.saturating_sub(1);
        }
    }
    for relying in [&mut foreign, &mut ktx] {
        relying.retain(|key| !chosen_keys.contains(key));
    }
    units.sort_by_key(|chunk| due.get(&chunk.key).map_or(usize::MAX, |due| due.place));
    let mut files: BTreeSet<&str> = diff.changed_paths().collect();
    files.extend(
        units
            .iter()
            .flat_map(|unit| &unit.raw_files)
            .map(String::as_str),
    );
    let held = |path: &str| {
        tree.get(path)
            .and_then(|file| Some((file.fingerprint?, file.bytes)))
    };
    let files = files
        .into_iter()
        .filter_map(|path| Some((path.to_owned(), held(path)?)))
        .collect();
    let documents = match keeps_documents {
        false => Vec::new(),
        // Documents have no names that a pattern could select.
        true if !planned.selection.only.is_empty() => {
            let changed: Vec<String> = diff.changed_paths().map(str::to_owned).collect();
            source.exclude_files(&diff, &changed);
            Vec::new()
        }
        true if wanted.is_full => {
            let all = tree.files.iter().map(|file| file.path.as_str());
            verbatim::documents(id, &tree, all)
        }
        true => verbatim::documents(id, &tree, diff.changed_paths()),
    };
    let is_outside = source.external_dir.is_some();
    let projection = if units.is_empty() {
        SourceProjection::default()
    } else {
        adapter.project_sources(&tree)
    };
    let unchanged = UnchangedUnits {
        count: unchanged_units,
        by_foreign_records: foreign.len(),
        only_by_ktx: ktx.into_iter().collect(),
    };
    let is_planned = |key: &str, path: &String| {
        units
            .iter()
            .any(|unit| unit.key == key && unit.raw_files.contains(path))
    };
    unread_files.retain(|(key, file)| !is_planned(key, &file.path));
    let unread = unread_files
        .into_iter()
        .map(|(key, file)| (keys.run_key(&key).into(), file))
        .collect();
    planned.sources.push(SourcePlan {
        files,
        unchanged,
        diff: SourceDiff { shown, ..diff },
        projection: SourceProjection {
            documents,
            ..projection
        },
        unread,
        ..source
    });
    planned.units.extend(units.into_iter().map(|chunk| {
        let known = due.remove(&chunk.key);
        let (why, changes) = known.map_or_else(
            || ("its files changed".into(), UnitChanges::default()),
            |due| (due.why, due.changes),
        );
        let in_run = keys.run_key(&chunk.key).into();
        WorkUnit {
            is_external: is_outside,
            changes,
            ..work_unit(chunk, in_run, id, name, &tree, why)
        }
    }));
}

/// A unit of a source, with its changes.
struct DueUnit {
    /// Position in the order of the adapter.
    place: usize,
    why: String,
    changes: UnitChanges,
}

/// The units with changes, narrowed to them. Their agents may read the changed files around them, too.
fn narrow_units(
    adapter: &dyn SourceAdapter,
    chunks: Vec<UnitChunk>,
    due: &HashMap<String, DueUnit>,
    tree: &SourceTree,
) -> Vec<UnitChunk> {
    let mut keys = HashSet::new();
    let mut units = Vec::new();
    for chunk in chunks {
        let Some(due) = due.get(&chunk.key).filter(|due| !due.changes.is_empty()) else {
            continue;
        };
        let mut unit = adapter.narrow_unit(chunk, &due.changes.due_files().collect());
        let around = due
            .changes
            .around_it()
            .filter(|path| tree.get(path).is_some());
        add_dependencies(&mut unit, around.cloned());
        if keys.insert(unit.key.clone()) {
            units.push(unit);
        }
    }
    units
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
    let sizes = chunk
        .raw_files
        .iter()
        .map(|path| match &chunk.assigned_lines {
            Some(lines) if lines.path == *path && lines.bytes > 0 => Some(lines.bytes),
            _ => tree.get(path).map(|file| file.bytes),
        });
    let more = chunk.dependency_paths.iter();
    let more = more.filter_map(|path| Some(tree.get(path)?.bytes));
    WorkUnit {
        dependency_bytes: more.sum(),
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
            text: None,
        },
        peer_file_index: chunk.peer_file_index,
        notes: chunk.notes,
        assigned_lines: chunk.assigned_lines,
        source_root: tree.root.clone(),
        is_external: false,
        prior_provenance: Vec::new(),
        review_remarks: None,
        stage_index: None,
        changes: UnitChanges::default(),
    }
}

/// Some of the names that a user could have meant.
fn known_names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const MAX_LISTED_NAMES: usize = 12;
    first_names(&names.collect::<Vec<_>>(), MAX_LISTED_NAMES)
}

#[cfg(test)]
mod tests;
