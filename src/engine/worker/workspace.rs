//! The directory of a worker: what the engine shipped, in the places where attempts expect it.
//!
//! It takes the place of the project and is deleted with the worker. Files are stored by their digest and checked against
//! it. This module must not know how they arrive.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;

use super::{
    protocol::{AttemptShipment, ShippedBase, ShippedConnection},
    shipment::{self, PROJECT_DIR, SOURCES_DIR},
    uplink::lock,
};
use crate::local_attempt::AttemptTask;
use ingestdeck_agent::private_dir::{PrivateDir, WORKER_PREFIX};
use ingestdeck_core::diagnostic::Problem;
use ingestdeck_ingest::{
    ProjectFacts, SqlWorkers, WarehouseSettings, connection_scope,
    instructions::Instructions,
    project::{Connection, PathPolicy, Project, ProjectSettings, UserPermissions},
    shipped_base,
    worktree::Worktrees,
};
use ingestdeck_os::scoped_dir::{self, PRIVATE_MODE, ScopedDir};

/// A directory that does not exist, in place of one that the engine did not ship.
const NO_SOURCE_DIR: &str = "sources/none";

/// What only the machine of a worker knows.
#[derive(Clone, Debug, Default)]
pub struct WorkerMachine {
    /// What its user allows connections to read.
    pub permissions: UserPermissions,
    /// Worker processes that read databases.
    pub sql_workers: SqlWorkers,
}

/// The directory of a worker for one run.
#[derive(Debug)]
pub(crate) struct WorkerDir {
    dir: PrivateDir,
    job: String,
    /// The content of each digest that has arrived and is not in its place yet. Locked after `placed`, and briefly: a
    /// worker that cannot receive counts as lost.
    arrived: Mutex<HashMap<String, Vec<u8>>>,
    /// Locked while files are written and a base is unpacked, which may take minutes.
    placed: Mutex<PlacedFiles>,
}

/// What is in its place.
#[derive(Debug, Default)]
struct PlacedFiles {
    /// The digest of each file in its place.
    digests: HashMap<String, String>,
    packs: HashSet<String>,
    worktrees: Option<Arc<Worktrees>>,
}

impl PlacedFiles {
    fn contains(&self, path: &str, digest: &str) -> bool {
        self.digests.get(path).is_some_and(|known| known == digest)
    }
}

impl WorkerDir {
    pub(crate) fn new(job: &str) -> io::Result<Self> {
        let dir = PrivateDir::new(WORKER_PREFIX)?;
        ScopedDir::open(dir.path())?.dir(PROJECT_DIR, Some(PRIVATE_MODE))?;
        Ok(Self {
            dir,
            job: job.to_owned(),
            arrived: Mutex::default(),
            placed: Mutex::default(),
        })
    }

    /// The directory that takes the place of the project.
    pub(crate) fn project_dir(&self) -> PathBuf {
        self.dir.path().join(PROJECT_DIR)
    }

    /// The digests of the files that have not arrived yet. Blocks while another attempt's files are placed.
    pub(crate) fn missing(&self, shipment: &AttemptShipment) -> Vec<String> {
        self.missing_from(&lock(&self.placed), shipment)
    }

    fn missing_from(&self, placed: &PlacedFiles, shipment: &AttemptShipment) -> Vec<String> {
        let AttemptShipment { base, files, .. } = shipment;
        let files = files
            .iter()
            .filter(|file| !placed.contains(&file.path, &file.digest))
            .map(|file| &file.digest);
        let pack = Some(&base.pack).filter(|pack| !placed.packs.contains(*pack));
        let arrived = lock(&self.arrived);
        let mut missing: Vec<String> = files
            .chain(pack)
            .filter(|digest| !arrived.contains_key(*digest))
            .cloned()
            .collect();
        missing.sort_unstable();
        missing.dedup();
        missing
    }

    /// Keeps the content of a file. Returns false if it does not have this digest.
    pub(crate) fn receive(&self, digest: &str, content: Vec<u8>) -> bool {
        let is_valid = shipment::digest(&content) == digest;
        if is_valid {
            lock(&self.arrived).insert(digest.to_owned(), content);
        }
        is_valid
    }

    /// Puts everything that an attempt needs in its place; `None` if a part has not arrived. Blocks on files and git.
    ///
    /// # Errors
    /// If a file cannot be written, or the base cannot be unpacked.
    pub(crate) fn place(
        &self,
        shipment: &AttemptShipment,
    ) -> Result<Option<Arc<Worktrees>>, Problem> {
        let mut placed = lock(&self.placed);
        if !self.missing_from(&placed, shipment).is_empty() {
            return Ok(None);
        }
        if let Some(file) = shipment.files.iter().find(|file| !is_own_path(&file.path)) {
            return Err(Problem::new(format!(
                "the engine sent a file for {}",
                file.path.escape_debug()
            )));
        }
        // Another attempt that needs the same content in another place asks for it again.
        let digests: BTreeSet<&String> = shipment
            .files
            .iter()
            .map(|file| &file.digest)
            .chain([&shipment.base.pack])
            .collect();
        let arrived: HashMap<&String, Vec<u8>> = {
            let mut arrived = lock(&self.arrived);
            digests
                .into_iter()
                .filter_map(|digest| Some((digest, arrived.remove(digest)?)))
                .collect()
        };
        let root = ScopedDir::open(self.dir.path()).map_err(|error| error.to_string())?;
        for file in &shipment.files {
            if placed.contains(&file.path, &file.digest) {
                continue;
            }
            let Some(content) = arrived.get(&file.digest) else {
                return Err(format!("{} has not arrived", file.path).into());
            };
            let written = root.write_unsynced(&file.path, content, PRIVATE_MODE, 0o600);
            written.map_err(|error| format!("cannot write {}: {error}", file.path))?;
            placed
                .digests
                .insert(file.path.clone(), file.digest.clone());
        }
        self.unpack(
            &mut placed,
            &shipment.base,
            arrived.get(&shipment.base.pack),
        )
        .map(Some)
    }

    fn unpack(
        &self,
        placed: &mut PlacedFiles,
        base: &ShippedBase,
        pack: Option<&Vec<u8>>,
    ) -> Result<Arc<Worktrees>, Problem> {
        if !placed.packs.contains(&base.pack) {
            let Some(pack) = pack else {
                return Err(Problem::new("the base has not arrived"));
            };
            let repository = shipped_base::unpack(&self.project_dir(), pack, &base.commit);
            let repository = repository.map_err(|error| Problem::from_error(&error))?;
            placed.packs.insert(base.pack.clone());
            if placed.worktrees.is_none() {
                placed.worktrees = Some(Worktrees::new(repository, &self.job, &base.commit));
            }
        }
        let worktrees = placed
            .worktrees
            .as_ref()
            .ok_or_else(|| Problem::new("the worker has no repository"))?;
        Ok(worktrees.with_base(&base.commit))
    }

    /// The project that attempts see.
    pub(crate) fn project(
        &self,
        connections: &[ShippedConnection],
        machine: &WorkerMachine,
    ) -> Result<Project, Problem> {
        let root = self.project_dir();
        let (instructions, _) =
            Instructions::load(&root).map_err(|error| Problem::from_error(&error))?;
        Ok(Project {
            instructions: Arc::new(instructions),
            ..machine.project(&root, connections)
        })
    }

    /// Changes the directories of raw files to those of this worker.
    pub(crate) fn localize(&self, task: &mut AttemptTask, source_dirs: &BTreeMap<PathBuf, String>) {
        // Other directories of this machine are none of the engine's business.
        let local = |root: &mut PathBuf| {
            let dir = source_dirs.get(root).filter(|dir| is_own_path(dir));
            *root = self
                .dir
                .path()
                .join(dir.map_or(NO_SOURCE_DIR, String::as_str));
        };
        local(&mut task.work_unit.source_root);
        if let Some(stage) = &mut task.work_unit.stage_index {
            Arc::make_mut(stage)
                .source_dirs
                .values_mut()
                .for_each(local);
        }
    }
}

/// True for a path in one of the two directories that the engine fills.
fn is_own_path(path: &str) -> bool {
    let is_inside = [PROJECT_DIR, SOURCES_DIR].iter().any(|dir| {
        path.strip_prefix(dir)
            .is_some_and(|rest| rest.starts_with('/'))
    });
    is_inside && scoped_dir::validate_relative_path(path).is_ok()
}

impl WorkerMachine {
    /// A project with these connections and without instructions.
    fn project(&self, root: &Path, connections: &[ShippedConnection]) -> Project {
        let connection = |of: &ShippedConnection| Connection {
            id: of.id.clone(),
            driver: of.driver.clone(),
            subdir: of
                .database
                .as_ref()
                .map(|path| path.to_string_lossy().into_owned()),
            ..Connection::default()
        };
        let settings = ProjectSettings {
            connections: connections.iter().map(connection).collect(),
            ..ProjectSettings::default()
        };
        let project = Project {
            root: root.to_path_buf(),
            settings,
            path_policy: PathPolicy::default(),
            instructions: Arc::default(),
            warnings: Vec::new(),
            sql_workers: self.sql_workers.clone(),
            warehouse: WarehouseSettings::default(),
            facts: ProjectFacts::default(),
            // A worker cuts no units.
            unit_bytes: u64::MAX,
        };
        project.with_permissions(self.permissions.clone())
    }

    /// Ids of the connections whose databases this machine can read.
    pub(crate) fn reachable(&self, root: &Path, connections: &[ShippedConnection]) -> Vec<String> {
        let project = self.project(root, connections);
        let is_readable = |of: &&Connection| {
            of.subdir.is_some()
                && connection_scope::resolve_database(&project, of)
                    .is_some_and(|found| found.is_ok())
        };
        project
            .settings
            .connections
            .iter()
            .filter(is_readable)
            .map(|of| of.id.clone())
            .collect()
    }
}
