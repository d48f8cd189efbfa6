//! The plan: which units a run has, why each of them runs, and which connections it leaves out.
//!
//! Reads the sources and decides nothing about running. It writes nothing but what helps it to read less the next time.

mod cut;
mod part;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
    sync::Arc,
};

use globset::{Glob, GlobSet, GlobSetBuilder};

use self::cut::{Cut, cut};
use super::{
    diff::{Baseline, DiffSet, Forced, why},
    project::{FILE, Project},
    reconcile::Stage,
    source::{Chunk, Fingerprint, Tree, slug, tree},
};
pub use crate::tape::note::Selection;
use crate::tape::{
    UnitKey,
    note::{DiffCounts, FileRead, PlannedUnit, Skipped, SourceRead},
};

/// Units in plan order, and everything that is worth saying about what is not among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Planned {
    /// The units, by connection in the order of `ktx.yaml`, then by path.
    pub units: Vec<WorkUnit>,
    /// Connections that give no units. Each sentence names connection and reason.
    pub skipped: Vec<Skipped>,
    /// Files that were left out, and units that are skipped because of a record of unknown origin; one sentence each.
    pub warnings: Vec<String>,
    /// Symbolic links that were left out, each with a warning: connection and path in its source.
    pub links: Vec<(String, String)>,
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
    pub outside: bool,
    /// What earlier runs wrote from its raw files.
    pub prior: Vec<Prior>,
    /// What the other units wrote, where putting that together is what this one is for.
    pub stage: Option<Arc<Stage>>,
}

impl WorkUnit {
    /// Its raw files, and where the commit of the sync `sync` has copies of them, in KTX's place; none of what is outside
    /// the project: a push would publish it.
    pub fn raw_copies(&self, sync: &str) -> impl Iterator<Item = (&str, String)> {
        let PlannedUnit { connection, adapter, raw_files, .. } = &self.planned;
        let place = format!("raw-sources/{connection}/{adapter}/{sync}");
        let committed = raw_files.iter().filter(|_| !self.outside);
        committed.map(move |file| (file.as_str(), format!("{place}/{file}")))
    }
}

/// What an earlier run wrote from a raw file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prior {
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
    pub outside: Option<PathBuf>,
    /// Its files against what earlier runs processed.
    pub diff: DiffSet,
    /// Files that are new or changed, or that a planned unit is made of: what they hold, and their size in bytes.
    pub files: BTreeMap<String, (Fingerprint, u64)>,
    /// Units that were asked for and are not planned, as nothing of them changed.
    pub unchanged_units: usize,
    /// Those of them that are unchanged only according to a record that this installation did not write.
    pub foreign_units: usize,
    /// Every unit that the changes call for is planned, or was done before.
    pub complete: bool,
    /// Some unit that the changes call for is not planned.
    pub partial: bool,
    /// Files that are new or changed and call for a unit that is not planned.
    pub open: BTreeSet<String>,
    /// Where the copies are that the units read, relative to the project.
    pub staged: Option<String>,
}

/// Most links that a sentence names.
const NAMED_LINKS: usize = 3;

impl Planned {
    /// The warnings, with one for all links of a connection.
    pub fn folded_warnings(&self) -> Vec<String> {
        let mut links: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (connection, path) in &self.links {
            links.entry(connection).or_default().push(path);
        }
        links.retain(|_, paths| paths.len() > 1);
        let folded: BTreeSet<String> = links
            .iter()
            .flat_map(|(id, paths)| paths.iter().map(|path| of_connection(id, &tree::skipped_link(path))))
            .collect();
        let others = self.warnings.iter().filter(|warning| !folded.contains(*warning)).cloned();
        let links = links.iter().map(|(id, paths)| {
            let named: Vec<String> = paths.iter().take(NAMED_LINKS).map(|path| tree::shown(path)).collect();
            let more = match paths.len().saturating_sub(NAMED_LINKS) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let (count, named) = (paths.len(), named.join(", "));
            let why = "only files inside the source are read";
            of_connection(id, &format!("{count} symbolic links are skipped: {named}{more}; {why}"))
        });
        links.chain(others).collect()
    }
}

fn of_connection(id: &str, warning: &str) -> String {
    format!("connection {id}: {warning}")
}

impl SourcePlan {
    /// Takes the copies of its files for the truth.
    pub(super) fn settle(&mut self, prints: &BTreeMap<String, (Fingerprint, u64)>, staged: String) {
        for (path, held) in &mut self.files {
            if let Some(copied) = prints.get(path) {
                *held = *copied;
            }
        }
        self.staged = Some(staged);
    }

    /// What changed, in numbers.
    pub fn counts(&self) -> DiffCounts {
        let [added, modified, deleted, unchanged] =
            [&self.diff.added, &self.diff.modified, &self.diff.deleted, &self.diff.unchanged]
                .map(|paths| paths.len() as u64);
        DiffCounts { added, modified, deleted, unchanged }
    }

    /// What the tape keeps of it.
    pub fn note(&self) -> SourceRead {
        SourceRead {
            connection: self.connection.clone(),
            adapter: self.adapter.clone(),
            staged: self.staged.clone(),
            diff: self.counts(),
            files: self
                .files
                .iter()
                .map(|(path, (print, bytes))| FileRead { path: path.clone(), sha256: print.to_string(), bytes: *bytes })
                .collect(),
            deleted: self.diff.deleted.clone(),
            open: self.open.iter().cloned().collect(),
            complete: self.complete,
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
    Unusable(String),
    /// A glob cannot be read.
    #[error("`{0}` is not a valid pattern: {1}")]
    Pattern(String, String),
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
pub fn plan(project: &Project, selection: &Selection) -> Result<Planned, PlanError> {
    plan_against(project, selection, &Baseline::default())
}

/// Plans a run over `project` for what changed against `baseline`.
pub fn plan_against(project: &Project, selection: &Selection, baseline: &Baseline) -> Result<Planned, PlanError> {
    let connections = &project.settings.connections;
    if connections.is_empty() {
        return Err(PlanError::NoConnections(project.root.join(FILE)));
    }
    exist(project, &selection.connections)?;
    let wanted = Wanted::of(selection)?;
    let is_wanted = |id: &str| selection.connections.is_empty() || selection.connections.iter().any(|name| name == id);

    // Every connection is cut, also those that were not asked for: a key must not depend on what runs beside it.
    let mut planned = Planned { selection: selection.clone(), ..Planned::default() };
    let mut cuts = Vec::new();
    for connection in connections {
        match cut(project, connection) {
            Ok(cut) => cuts.push(cut),
            Err(_) if !is_wanted(&connection.id) => {}
            Err(skipped) if !selection.connections.is_empty() => return Err(PlanError::Unusable(skipped.why)),
            Err(skipped) => planned.skipped.push(skipped),
        }
    }
    tell_apart(&mut cuts);
    cuts.retain(|cut| is_wanted(&cut.connection.id));
    let keys = || cuts.iter().flat_map(|cut| &cut.chunks).map(|chunk| chunk.key.as_str());
    if !keys().any(|key| wanted.takes(key)) && !selection.only.is_empty() {
        return Err(PlanError::NoSuchUnit { patterns: selection.only.join(", "), units: listed(keys()) });
    }
    for cut in cuts {
        let id = &cut.connection.id;
        planned.warnings.extend(cut.warnings.iter().map(|warning| of_connection(id, warning)));
        planned.links.extend(cut.tree.links.iter().map(|path| (id.clone(), path.clone())));
        choose(cut, &wanted, baseline, &project.root, &mut planned);
    }
    let foreign = planned.sources.iter().map(|source| source.foreign_units).sum();
    planned.warnings.extend(skipped_by_foreign_records(foreign));
    Ok(planned)
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

fn exist(project: &Project, connections: &[String]) -> Result<(), PlanError> {
    let known = || project.settings.connections.iter().map(|connection| connection.id.as_str());
    match connections.iter().find(|name| !known().any(|id| id == *name)) {
        Some(unknown) => Err(PlanError::NoSuchConnection(unknown.clone(), listed(known()))),
        None => Ok(()),
    }
}

/// Adds the units of one connection that run to `planned`.
fn choose(cut: Cut<'_>, wanted: &Wanted<'_>, baseline: &Baseline, project: &Path, planned: &mut Planned) {
    let Cut { connection, adapter, tree, chunks, .. } = cut;
    let (id, name) = (connection.id.as_str(), adapter.name());
    let prior = baseline.source(id, name);
    let diff = DiffSet::of(&tree, prior);
    let asked_for = chunks.iter().filter(|chunk| wanted.takes(&chunk.key)).count();
    let standing = |key: &str| baseline.unit(id, key);
    let reason = |chunk: &Chunk| why(chunk, &diff, standing(&chunk.key), wanted.forces(&chunk.key));
    let reasons: HashMap<String, (usize, String)> =
        chunks.iter().enumerate().map(|(place, chunk)| (chunk.key.clone(), (place, reason(chunk)))).collect();
    let is_foreign = |path: &String| baseline.is_foreign(id, name, path);
    let mut foreign: BTreeSet<String> = chunks
        .iter()
        .filter(|chunk| wanted.takes(&chunk.key))
        .filter(|chunk| chunk.raw_files.iter().chain(&chunk.dependency_paths).any(is_foreign))
        .map(|chunk| chunk.key.clone())
        .collect();
    // Where nothing was processed before, everything is as new as it can be.
    let named: Vec<Chunk> = chunks.iter().filter(|chunk| wanted.names(&chunk.key)).cloned().collect();
    let everything = wanted.full.then(|| chunks.clone());
    let changed = match prior {
        Some(_) => adapter.resync(chunks, &diff.touched()),
        None => chunks,
    };
    let mut source = SourcePlan {
        connection: id.to_owned(),
        adapter: name.to_owned(),
        outside: (!tree.root.starts_with(project)).then(|| tree.root.clone()),
        complete: true,
        ..SourcePlan::default()
    };
    for chunk in changed.iter().filter(|chunk| !wanted.takes(&chunk.key)) {
        source.leave_out(&diff, &chunk.raw_files, &chunk.dependency_paths, &chunk.peer_file_index);
    }
    let chosen = everything.unwrap_or(changed).into_iter();
    let mut units: Vec<Chunk> = chosen.filter(|chunk| wanted.takes(&chunk.key)).collect();
    let mut unchanged_units = asked_for.saturating_sub(units.len());
    for chunk in named {
        if !units.iter().any(|unit| unit.key == chunk.key) {
            units.push(chunk);
            unchanged_units = unchanged_units.saturating_sub(1);
        }
    }
    foreign.retain(|key| !units.iter().any(|unit| unit.key == *key));
    units.sort_by_key(|chunk| reasons.get(&chunk.key).map_or(usize::MAX, |(place, _)| *place));
    let mut files: BTreeSet<&str> = diff.touched();
    files.extend(units.iter().flat_map(|unit| &unit.raw_files).map(String::as_str));
    let held = |path: &str| tree.get(path).and_then(|file| Some((file.print?, file.bytes)));
    let files = files.into_iter().filter_map(|path| Some((path.to_owned(), held(path)?))).collect();
    let is_outside = source.outside.is_some();
    planned.sources.push(SourcePlan { files, unchanged_units, foreign_units: foreign.len(), diff, ..source });
    planned.units.extend(units.into_iter().map(|chunk| {
        let why = reasons.get(&chunk.key).map_or_else(|| "its files changed".into(), |(_, why)| why.clone());
        WorkUnit { outside: is_outside, ..work_unit(chunk, id, name, &tree, why) }
    }));
}

fn work_unit(chunk: Chunk, connection: &str, adapter: &str, tree: &Tree, why: String) -> WorkUnit {
    let sizes = chunk.raw_files.iter().map(|path| tree.get(path).map(|file| file.bytes));
    WorkUnit {
        planned: PlannedUnit {
            unit: UnitKey::new(chunk.key),
            connection: connection.to_owned(),
            adapter: adapter.to_owned(),
            label: chunk.label,
            bytes: sizes.sum(),
            raw_files: chunk.raw_files,
            dependency_paths: chunk.dependency_paths,
            why,
            sl_disallowed: chunk.sl_disallowed,
        },
        peer_file_index: chunk.peer_file_index,
        notes: chunk.notes,
        source_root: tree.root.clone(),
        outside: false,
        prior: Vec::new(),
        stage: None,
    }
}

/// Which units are asked for, by their keys.
struct Wanted<'a> {
    only: Option<GlobSet>,
    patterns: &'a [String],
    full: bool,
}

impl<'a> Wanted<'a> {
    fn of(selection: &'a Selection) -> Result<Self, PlanError> {
        Ok(Self { only: globs(&selection.only)?, patterns: &selection.only, full: selection.full })
    }

    fn takes(&self, key: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.is_match(key))
    }

    /// True if `key` was given in full: whoever does that wants that unit, changed or not.
    fn names(&self, key: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern == key || *pattern == globset::escape(key))
    }

    fn forces(&self, key: &str) -> Option<Forced> {
        if self.names(key) { Some(Forced::ByName) } else { self.full.then_some(Forced::Full) }
    }
}

/// Gives units that share a key across connections the name of their connection, so that keys are unique in the run.
fn tell_apart(cuts: &mut [Cut<'_>]) {
    let mut bearers: BTreeMap<String, usize> = BTreeMap::new();
    for chunk in cuts.iter().flat_map(|cut| &cut.chunks) {
        *bearers.entry(chunk.key.clone()).or_default() += 1;
    }
    let mut taken: BTreeSet<String> =
        bearers.iter().filter(|(_, count)| **count == 1).map(|(key, _)| key.clone()).collect();
    for cut in cuts {
        for chunk in cut.chunks.iter_mut().filter(|chunk| bearers.get(&chunk.key).is_some_and(|count| *count > 1)) {
            let plain = format!("{}-{}", chunk.key, slug::slug(&cut.connection.id));
            let mut key = plain.clone();
            let mut length = 6;
            while taken.contains(&key) {
                key = format!("{plain}-{}", slug::hash(&cut.connection.id, length));
                length += 2;
            }
            taken.insert(key.clone());
            chunk.key = key;
        }
    }
}

fn globs(patterns: &[String]) -> Result<Option<GlobSet>, PlanError> {
    if patterns.is_empty() {
        return Ok(None);
    }
    let bad = |pattern: &str, error: &globset::Error| PlanError::Pattern(pattern.to_owned(), error.kind().to_string());
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(Glob::new(pattern).map_err(|error| bad(pattern, &error))?);
    }
    set.build().map(Some).map_err(|error| bad(&patterns.join(", "), &error))
}

/// The first few names, and how many more there are.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const FEW: usize = 12;
    let names: Vec<_> = names.collect();
    match names.len() {
        0 => "none".into(),
        count if count <= FEW => names.join(", "),
        count => format!("{} and {} more", names.get(..FEW).unwrap_or_default().join(", "), count - FEW),
    }
}

#[cfg(test)]
mod tests;
