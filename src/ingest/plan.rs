//! The plan: which units a run has, and which connections it leaves out.
//!
//! Reads the sources and decides nothing about running. It must not write anything.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use globset::{Glob, GlobSet, GlobSetBuilder};

use super::{
    database,
    project::{Connection, Project},
    source::{
        self, Adapter, Chunk, Origin, Tree,
        print::{self, Known},
        slug,
    },
};
use crate::tape::{
    UnitKey,
    note::{PlannedUnit, Skipped},
};

/// What was asked for. Empty lists mean everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Connection ids.
    pub connections: Vec<String>,
    /// `--only` globs over unit keys; a unit that matches one of them is in.
    pub only: Vec<String>,
}

/// Units in plan order, and everything that is worth saying about what is not among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Planned {
    /// The units, by connection in the order of `ktx.yaml`, then by path.
    pub units: Vec<WorkUnit>,
    /// Connections that give no units. Each sentence names connection and reason.
    pub skipped: Vec<Skipped>,
    /// Files that were left out, one sentence each.
    pub warnings: Vec<String>,
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
}

/// There is nothing to plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
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

/// One connection, cut.
struct Cut<'a> {
    connection: &'a Connection,
    adapter: &'static dyn Adapter,
    tree: Tree,
    chunks: Vec<Chunk>,
    warnings: Vec<String>,
}

/// Plans a run over `project`.
pub fn plan(project: &Project, selection: &Selection) -> Result<Planned, PlanError> {
    let connections = &project.settings.connections;
    for name in &selection.connections {
        if !connections.iter().any(|connection| connection.id == *name) {
            let known = listed(connections.iter().map(|connection| connection.id.as_str()));
            return Err(PlanError::NoSuchConnection(name.clone(), known));
        }
    }
    let only = globs(&selection.only)?;
    let is_wanted = |id: &str| selection.connections.is_empty() || selection.connections.iter().any(|name| name == id);

    // Every connection is cut, also those that were not asked for: a key must not depend on what runs beside it.
    let mut planned = Planned::default();
    let mut cuts = Vec::new();
    for connection in connections {
        match cut(project, connection) {
            Ok(cut) => cuts.push(cut),
            Err(_) if !is_wanted(&connection.id) => {}
            Err(why) if !selection.connections.is_empty() => return Err(PlanError::Unusable(why)),
            Err(why) => planned.skipped.push(Skipped { connection: connection.id.clone(), why }),
        }
    }
    tell_apart(&mut cuts);
    for cut in cuts.into_iter().filter(|cut| is_wanted(&cut.connection.id)) {
        let id = &cut.connection.id;
        planned.warnings.extend(cut.warnings.iter().map(|warning| format!("connection {id}: {warning}")));
        let (tree, adapter) = (&cut.tree, cut.adapter);
        planned.units.extend(cut.chunks.into_iter().map(|chunk| work_unit(chunk, id, adapter, tree)));
    }
    if let Some(only) = only {
        let keys = listed(planned.units.iter().map(|unit| unit.planned.unit.as_str()));
        planned.units.retain(|unit| only.is_match(unit.planned.unit.as_str()));
        if planned.units.is_empty() {
            return Err(PlanError::NoSuchUnit { patterns: selection.only.join(", "), units: keys });
        }
    }
    Ok(planned)
}

fn work_unit(chunk: Chunk, connection: &str, adapter: &dyn Adapter, tree: &Tree) -> WorkUnit {
    let sizes = chunk.raw_files.iter().map(|path| tree.get(path).map(|file| file.bytes));
    WorkUnit {
        planned: PlannedUnit {
            unit: UnitKey::new(chunk.key),
            connection: connection.to_owned(),
            adapter: adapter.name().to_owned(),
            label: chunk.label,
            bytes: sizes.sum(),
            raw_files: chunk.raw_files,
            dependency_paths: chunk.dependency_paths,
            why: "every run takes all files of its sources".into(),
            sl_disallowed: chunk.sl_disallowed,
        },
        peer_file_index: chunk.peer_file_index,
        notes: chunk.notes,
        source_root: tree.root.clone(),
    }
}

/// Cuts one connection, or says in a sentence of its own why it cannot.
fn cut<'a>(project: &Project, connection: &'a Connection) -> Result<Cut<'a>, String> {
    let id = &connection.id;
    let skip = |why: String| format!("connection {id} is skipped: {why}");
    let Some(driver) = &connection.driver else {
        return Err(skip("it names no driver; give it one".into()));
    };
    if let Some(path) = database::path(&project.root, connection) {
        return Err(skip(if path.is_file() {
            "it is a database; there are no files to cut into units, but units may query it".into()
        } else {
            format!("its database {} does not exist; correct its path in ktx.yaml", path.display())
        }));
    }
    let Some(adapter) = source::adapter(driver) else {
        let driver: String = driver.chars().take(60).collect();
        let known = listed(source::names());
        return Err(skip(format!("there is no adapter for driver `{}` yet, only {known}", driver.escape_debug())));
    };
    if let Some(allowed) = &project.settings.adapters
        && !allowed.contains(driver)
    {
        return Err(skip(format!("adapter `{driver}` is not in ingest.adapters; add it there")));
    }
    let origin = Origin { project: &project.root, connection };
    let mut tree = adapter.gather(origin).map_err(skip)?;
    let root = tree.root.display().to_string();
    adapter.detect(&tree).map_err(|why| skip(format!("{root} {why}")))?;
    print::read(&mut tree, &Known::new());
    let chunks = adapter.chunk(&tree, origin).map_err(skip)?;
    let warnings = tree.warnings.iter().cloned().chain(chunks.warnings).collect();
    Ok(Cut { connection, adapter, tree, chunks: chunks.units, warnings })
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
