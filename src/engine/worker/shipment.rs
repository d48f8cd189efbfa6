//! What the attempts of a run need on a worker: their base, raw files and instructions, each named by its digest.
//!
//! Files are read when a worker asks for them; only their digests are kept. This module must not know workers.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};
use sha2::{Digest as _, Sha256};

use super::protocol::{AttemptShipment, ShippedBase, ShippedConnection, ShippedFile};
use crate::local_attempt::AttemptTask;
use ingestdeck_core::diagnostic::Diagnostic;
use ingestdeck_ingest::{
    connection_scope,
    git::{CommitId, GitError},
    instructions,
    project::{Connection, Project},
    repository::Repository,
    shipped_base,
    source::fingerprint::MAX_FILE_BYTES,
};
use ingestdeck_os::scoped_dir::ScopedDir;

/// Directory of a worker that takes the place of the project.
pub(super) const PROJECT_DIR: &str = "project";
/// Directory of a worker with one directory for each directory of raw files.
pub(super) const SOURCES_DIR: &str = "sources";
/// Digits of a digest in the name of a directory.
const DIR_NAME_DIGITS: usize = 16;

/// What an attempt needs cannot be collected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShipmentError {
    #[error("cannot pack the base for a worker: {0}")]
    Base(#[from] GitError),
    #[error("cannot read {path} for a worker: {cause}")]
    File { path: String, cause: io::Error },
}

impl Diagnostic for ShipmentError {
    fn help(&self) -> Option<String> {
        match self {
            Self::Base(error) => error.help(),
            Self::File { .. } => None,
        }
    }
}

/// The files that workers may ask for.
#[derive(Debug)]
pub(crate) struct ShipmentStore {
    project: Arc<Project>,
    repository: Repository,
    state: Mutex<StoreState>,
}

#[derive(Debug, Default)]
struct StoreState {
    /// Where to find the content with a digest.
    contents: HashMap<String, FileContent>,
    bases: BTreeMap<CommitId, ShippedBase>,
    /// Digests of raw files, which do not change during a run.
    raw_files: HashMap<(PathBuf, String), (String, u64)>,
    instructions: Option<Vec<ShippedFile>>,
}

/// Where the content of a file is.
#[derive(Clone, Debug)]
enum FileContent {
    InMemory(Arc<[u8]>),
    /// Path of a file below a directory.
    Below(PathBuf, String),
}

impl ShipmentStore {
    pub(crate) fn new(project: Arc<Project>, repository: Repository) -> Self {
        Self {
            project,
            repository,
            state: Mutex::default(),
        }
    }

    /// The connections of a project, without credentials.
    pub(crate) fn connections_of(project: &Project) -> Vec<ShippedConnection> {
        let shipped = |connection: &Connection| {
            let database =
                connection_scope::resolve_database(project, connection).and_then(Result::ok);
            ShippedConnection {
                id: connection.id.clone(),
                driver: connection.driver.clone(),
                database,
            }
        };
        project.settings.connections.iter().map(shipped).collect()
    }

    /// Collects what an attempt that starts from `base` needs. Blocks on files and git.
    pub(crate) fn shipment(
        &self,
        task: AttemptTask,
        base: &CommitId,
    ) -> Result<AttemptShipment, ShipmentError> {
        let base = self.base(base)?;
        let mut files = self.instructions()?;
        let mut source_dirs = BTreeMap::new();
        for (root, path) in raw_files(&task) {
            let dir = source_dirs
                .entry(root.clone())
                .or_insert_with(|| source_dir(&root));
            let path_there = format!("{dir}/{path}");
            // The agent reports files that cannot be read.
            if let Ok((digest, bytes)) = self.raw_file(root, path) {
                files.push(ShippedFile {
                    path: path_there,
                    digest,
                    bytes,
                });
            }
        }
        Ok(AttemptShipment {
            task,
            base,
            files,
            source_dirs,
        })
    }

    /// The content with this digest. Blocks on files.
    ///
    /// # Errors
    /// If no attempt needs such a file, or it cannot be read.
    pub(crate) fn read(&self, digest: &str) -> io::Result<Arc<[u8]>> {
        let content = self.state().contents.get(digest).cloned();
        match content {
            Some(FileContent::InMemory(bytes)) => Ok(bytes),
            Some(FileContent::Below(root, path)) => {
                Ok(ScopedDir::open(&root)?.read(&path, MAX_FILE_BYTES)?.into())
            }
            None => Err(io::Error::new(
                io::ErrorKind::NotFound,
                "no attempt needs such a file",
            )),
        }
    }

    fn base(&self, commit: &CommitId) -> Result<ShippedBase, ShipmentError> {
        if let Some(base) = self.state().bases.get(commit) {
            return Ok(base.clone());
        }
        let (packed, bytes) = shipped_base::pack(&self.repository, commit)?;
        let pack = digest(&bytes);
        let base = ShippedBase {
            commit: packed,
            pack: pack.clone(),
        };
        let mut state = self.state();
        state
            .contents
            .insert(pack, FileContent::InMemory(bytes.into()));
        // Two attempts that pack the same commit use one of the two results.
        Ok(state.bases.entry(commit.clone()).or_insert(base).clone())
    }

    /// The instructions of the project as they were when the first attempt was shipped.
    fn instructions(&self) -> Result<Vec<ShippedFile>, ShipmentError> {
        if let Some(files) = &self.state().instructions {
            return Ok(files.clone());
        }
        let mut files = Vec::new();
        for path in self
            .project
            .instructions
            .overrides
            .iter()
            .map(|of| &of.path)
        {
            let failed = |cause| ShipmentError::File {
                path: path.clone(),
                cause,
            };
            let root = ScopedDir::open(&self.project.root).map_err(failed)?;
            let bytes = root
                .read(path, instructions::MAX_FILE_BYTES)
                .map_err(failed)?;
            files.push(self.keep(format!("{PROJECT_DIR}/{path}"), bytes));
        }
        self.state().instructions = Some(files.clone());
        Ok(files)
    }

    /// Keeps the content of a file in memory.
    fn keep(&self, path: String, content: Vec<u8>) -> ShippedFile {
        let (digest, bytes) = (digest(&content), content.len() as u64);
        self.state()
            .contents
            .insert(digest.clone(), FileContent::InMemory(content.into()));
        ShippedFile {
            path,
            digest,
            bytes,
        }
    }

    fn raw_file(&self, root: PathBuf, path: String) -> io::Result<(String, u64)> {
        let key = (root, path);
        if let Some(known) = self.state().raw_files.get(&key) {
            return Ok(known.clone());
        }
        let content = ScopedDir::open(&key.0)?.read(&key.1, MAX_FILE_BYTES)?;
        let found = (digest(&content), content.len() as u64);
        let mut state = self.state();
        state.contents.insert(
            found.0.clone(),
            FileContent::Below(key.0.clone(), key.1.clone()),
        );
        state.raw_files.insert(key, found.clone());
        Ok(found)
    }

    fn state(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock()
    }
}

/// The raw files that an attempt may read: their directory, and their path in it.
fn raw_files(task: &AttemptTask) -> Vec<(PathBuf, String)> {
    let unit = &task.work_unit;
    if let Some(stage) = &unit.stage_index {
        let files = unit
            .planned
            .raw_files
            .iter()
            .filter_map(|path| stage.resolve_raw_path(path));
        return files
            .map(|(root, path)| (root.to_path_buf(), path.to_owned()))
            .collect();
    }
    if unit.is_text() {
        return Vec::new();
    }
    let files = unit
        .planned
        .raw_files
        .iter()
        .chain(&unit.planned.dependency_paths);
    files
        .map(|path| (unit.source_root.clone(), path.clone()))
        .collect()
}

/// The directory on a worker for a directory of raw files here.
fn source_dir(root: &Path) -> String {
    let name: String = digest(root.as_os_str().as_encoded_bytes())
        .chars()
        .take(DIR_NAME_DIGITS)
        .collect();
    format!("{SOURCES_DIR}/{name}")
}

/// SHA-256 in hexadecimal digits.
pub(super) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
