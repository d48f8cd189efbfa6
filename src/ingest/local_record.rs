//! Records that make a run change or remove things: journals of unfinished work, the ledger of worktrees, and the marks
//! of the runs that this installation recorded.
//!
//! Such a file is only trusted where it was written. A clone, an archive or a copy can contain a file at the same path,
//! so every record is bound to the user's installation and to the directory of the project. The installation has a
//! random id in the user's state directory, which is stable, unlike the names of machines and containers. The device
//! number is not included because it may change after a restart, which is when records are needed. This module must not
//! know the content of records.

#[cfg(any(test, feature = "test-projects"))]
use std::sync::atomic::{AtomicBool, Ordering};
use std::{
    io,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::slug::hex;
use ingestdeck_core::{diagnostic::Diagnostic, tape::RunId};
use ingestdeck_os::{
    scoped_dir::{PRIVATE_MODE, STATE_DIR, ScopedDir},
    user_dirs::UserDirs,
};

/// Version of the format. Version 1 was not bound to anything.
const RECORD_VERSION: u32 = 2;

/// File with the id of the installation, in the user's state directory.
const INSTALLATION_ID: &str = "installation-id";
/// Lock that is held while the id is created.
const INSTALLATION_LOCK: &str = "installation-id.lock";

/// The mark of a run, in the directory of its tape.
const RUN_MARK_FILE: &str = "written-here";
/// The mark of a directory, in the directory itself.
const DIRECTORY_MARK_FILE: &str = "created-here";
/// Largest mark that is read, in bytes.
const MAX_MARK_BYTES: u64 = 128;

/// A record as it is stored.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredRecord<T> {
    version: u32,
    /// Identity of the installation and project in which the record is valid.
    project: String,
    content: T,
}

/// Why a record is not trusted.
#[derive(Debug, thiserror::Error)]
pub enum UntrustedRecord {
    /// The record has no version or another one.
    #[error("this version did not write it; an earlier one did, or it came with the project")]
    UnknownVersion,
    /// The record is bound to another installation or directory.
    #[error("it was written by another user, on another machine or in another copy of the project")]
    OtherLocation,
    /// The record names a path that the program never changes.
    #[error("it names `{}`, which a run never writes", .0.escape_debug())]
    ForbiddenPath(String),
    /// The commits of the record are missing.
    #[error("its commits cannot be compared ({0})")]
    MissingCommits(String),
}

/// A journal that is not trusted, with a remedy.
#[derive(Debug, thiserror::Error)]
#[error("`{path}` is not trusted: {reason}")]
pub struct RejectedJournal {
    /// Relative to the project.
    pub(super) path: String,
    pub(super) reason: UntrustedRecord,
    /// Advice for the step before deleting it.
    pub(super) remedy: &'static str,
}

impl Diagnostic for RejectedJournal {
    fn help(&self) -> Option<String> {
        Some(format!("{}, then delete it", self.remedy))
    }
}

/// Encodes `content` as a record of the project in `project`.
pub(super) fn encode<T: Serialize>(project: &ScopedDir, content: T) -> io::Result<Vec<u8>> {
    let stored = StoredRecord {
        version: RECORD_VERSION,
        project: identity(project)?,
        content,
    };
    Ok(serde_json::to_vec(&stored)?)
}

/// Decodes a record of the project in `project`.
pub(super) fn decode<T: DeserializeOwned>(
    project: &ScopedDir,
    bytes: &[u8],
) -> Result<T, UntrustedRecord> {
    let stored: StoredRecord<T> =
        serde_json::from_slice(bytes).map_err(|_| UntrustedRecord::UnknownVersion)?;
    if stored.version != RECORD_VERSION {
        return Err(UntrustedRecord::UnknownVersion);
    }
    match identity(project) {
        Ok(identity) if identity == stored.project => Ok(stored.content),
        _ => Err(UntrustedRecord::OtherLocation),
    }
}

/// Identity of this installation and directory, which differs for every other directory and machine. Hashed so that it
/// does not disclose the machine's id.
fn identity(project: &ScopedDir) -> io::Result<String> {
    mark(project, b"ingestdeck project\0", b"")
}

/// Marks the tape of `run` as written by this installation, in the project at `root`.
///
/// # Errors
/// When the directory of the run is missing or cannot be written to.
pub fn mark_run(root: &Path, run: RunId) -> io::Result<()> {
    let project = ScopedDir::open(root)?;
    let mark = run_mark(&project, run)?;
    project
        .dir(&run_dir(run), None)?
        .write(RUN_MARK_FILE, mark.as_bytes(), PRIVATE_MODE, 0o600)
}

/// Whether this installation wrote the tape of `run` in the project at `root`. A tape from a clone, an archive or a
/// copy has no mark, or one that is valid elsewhere.
pub fn is_run_marked(root: &Path, run: RunId) -> bool {
    let is_marked = || {
        let project = ScopedDir::open(root)?;
        let found = project.read(&format!("{}/{RUN_MARK_FILE}", run_dir(run)), MAX_MARK_BYTES)?;
        Ok::<_, io::Error>(found == run_mark(&project, run)?.as_bytes())
    };
    is_marked().unwrap_or(false)
}

/// Marks the directory `dir` of `project` as created by this installation.
pub(super) fn mark_directory(project: &ScopedDir, dir: &str) -> io::Result<()> {
    let mark = directory_mark(project, dir)?;
    project
        .dir(dir, None)?
        .write(DIRECTORY_MARK_FILE, mark.as_bytes(), PRIVATE_MODE, 0o600)
}

/// Whether this installation created the directory `dir` of `project`.
pub(super) fn is_directory_marked(project: &ScopedDir, dir: &str) -> bool {
    let found = project.read(&format!("{dir}/{DIRECTORY_MARK_FILE}"), MAX_MARK_BYTES);
    found.is_ok_and(|found| directory_mark(project, dir).is_ok_and(|mark| found == mark.as_bytes()))
}

fn directory_mark(project: &ScopedDir, dir: &str) -> io::Result<String> {
    mark(project, b"ingestdeck directory\0", dir.as_bytes())
}

/// The mark differs for each run, so that it cannot be copied to another tape.
fn run_mark(project: &ScopedDir, run: RunId) -> io::Result<String> {
    mark(project, b"ingestdeck run\0", run.0.as_bytes())
}

fn mark(project: &ScopedDir, kind: &[u8], id: &[u8]) -> io::Result<String> {
    let mut hash = Sha256::new();
    hash.update(kind);
    hash.update(installation());
    hash.update(project.inode()?.to_be_bytes());
    hash.update(id);
    Ok(hex(&hash.finalize()))
}

fn run_dir(run: RunId) -> String {
    format!("{STATE_DIR}/runs/{run}")
}

/// Set in the processes of tests, which must not change the user's home.
#[cfg(any(test, feature = "test-projects"))]
pub(crate) static IGNORES_HOME: AtomicBool = AtomicBool::new(cfg!(test));

/// Id of the user's installation, looked up once; falls back to the id of the machine.
fn installation() -> &'static [u8] {
    static ID: OnceLock<Vec<u8>> = OnceLock::new();
    let state = || {
        #[cfg(any(test, feature = "test-projects"))]
        if IGNORES_HOME.load(Ordering::Relaxed) {
            return None;
        }
        UserDirs::from_environment().state
    };
    ID.get_or_init(|| installation_key_in(state()))
}

fn installation_key_in(state: Option<PathBuf>) -> Vec<u8> {
    let id = state
        .ok_or_else(|| io::ErrorKind::NotFound.into())
        .and_then(|state| installation_id(&state));
    id.map_or_else(
        |error| {
            tracing::debug!(%error, "no installation id; records are bound to the machine instead");
            machine()
        },
        |id| id.into_bytes().to_vec(),
    )
}

/// Reads the id that is stored in `state`; creates a new one if there is no valid one.
fn installation_id(state: &Path) -> io::Result<Uuid> {
    let dir = make(state)?;
    if let Some(id) = stored_id(&dir)? {
        return Ok(id);
    }
    let _lock = dir.lock(INSTALLATION_LOCK)?;
    // Another process may have created it meanwhile.
    if let Some(id) = stored_id(&dir)? {
        return Ok(id);
    }
    let id = Uuid::new_v4();
    dir.write(
        INSTALLATION_ID,
        format!("{id}\n").as_bytes(),
        PRIVATE_MODE,
        0o600,
    )?;
    Ok(id)
}

fn stored_id(dir: &ScopedDir) -> io::Result<Option<Uuid>> {
    match dir.read_if_exists(INSTALLATION_ID, 4096) {
        Ok(bytes) => Ok(bytes.and_then(|bytes| Uuid::try_parse_ascii(bytes.trim_ascii()).ok())),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens the directory `path`. Creates missing directories, accessible to the user only.
fn make(path: &Path) -> io::Result<ScopedDir> {
    match (
        ScopedDir::open(path),
        path.parent(),
        path.file_name().and_then(|name| name.to_str()),
    ) {
        (Err(error), Some(parent), Some(name)) if error.kind() == io::ErrorKind::NotFound => {
            make(parent)?.dir(name, Some(PRIVATE_MODE))
        }
        (opened, ..) => opened,
    }
}

/// The machine's id where available (Linux), else its host name.
fn machine() -> Vec<u8> {
    let id = ScopedDir::open(Path::new("/etc"))
        .and_then(|etc| etc.read("machine-id", 4096))
        .unwrap_or_default();
    if id.trim_ascii().is_empty() {
        nix::unistd::gethostname()
            .map(|name| name.into_encoded_bytes())
            .unwrap_or_default()
    } else {
        id
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct SampleContent {
        branch: String,
    }

    fn project() -> (tempfile::TempDir, ScopedDir) {
        let dir = tempfile::tempdir().unwrap();
        let project = ScopedDir::open(dir.path()).unwrap();
        (dir, project)
    }

    fn content() -> SampleContent {
        SampleContent {
            branch: "main".into(),
        }
    }

    #[test]
    fn records_are_read_where_they_were_written() {
        let (_dir, project) = project();
        let bytes = encode(&project, content()).unwrap();
        assert_eq!(
            decode::<SampleContent>(&project, &bytes).unwrap(),
            content()
        );
    }

    #[test]
    fn installation_id_is_created_once_for_the_user_alone() {
        let home = tempfile::tempdir().unwrap();
        let state = home.path().join(".local/state/ingestdeck");
        let id = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| installation_id(&state).unwrap()))
                .collect();
            let ids: std::collections::BTreeSet<_> = threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect();
            assert_eq!(ids.len(), 1);
            ids.into_iter().next().unwrap()
        });
        assert_eq!(installation_key_in(Some(state.clone())), id.as_bytes());
        let mode = fs::metadata(state.join(INSTALLATION_ID))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!((mode & 0o777, id.get_version_num()), (0o600, 4));
    }

    #[test]
    fn malformed_installation_id_is_replaced() {
        for garbage in [&b""[..], b"x", b"\xff\xfe", &[b'a'; 5000]] {
            let state = tempfile::tempdir().unwrap();
            fs::write(state.path().join(INSTALLATION_ID), garbage).unwrap();
            let id = installation_id(state.path()).unwrap();
            assert_eq!(installation_id(state.path()).unwrap(), id);
        }
    }

    #[test]
    fn installation_key_without_state_dir_is_machine_id() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        assert_eq!(installation_key_in(None), machine());
        assert_eq!(
            installation_key_in(Some(dir.path().join("file/ingestdeck"))),
            machine()
        );
        fs::create_dir(dir.path().join(INSTALLATION_ID)).unwrap();
        assert_eq!(installation_key_in(Some(dir.path().into())), machine());
    }

    #[test]
    fn records_of_a_project_copy_are_untrusted() {
        let ((_dir, project), (_other, copy)) = (project(), project());
        let bytes = encode(&project, content()).unwrap();
        assert!(matches!(
            decode::<SampleContent>(&copy, &bytes),
            Err(UntrustedRecord::OtherLocation)
        ));
    }

    #[test]
    fn run_is_marked_for_its_own_directory_only() {
        let ((dir, _), (other, _)) = (project(), project());
        let [run, next] = [1, 2].map(|id| RunId(Uuid::from_u128(id)));
        assert_eq!(
            mark_run(dir.path(), run).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        for (root, run) in [(&dir, run), (&dir, next), (&other, run)] {
            fs::create_dir_all(root.path().join(run_dir(run))).unwrap();
        }
        mark_run(dir.path(), run).unwrap();
        assert!(is_run_marked(dir.path(), run));
        let mark = dir.path().join(run_dir(run)).join(RUN_MARK_FILE);
        for (root, run) in [(&dir, next), (&other, run)] {
            assert!(!is_run_marked(root.path(), run));
            fs::copy(&mark, root.path().join(run_dir(run)).join(RUN_MARK_FILE)).unwrap();
            assert!(!is_run_marked(root.path(), run), "a copied mark");
        }
    }

    #[test]
    fn malformed_record_is_untrusted() {
        let (_dir, project) = project();
        let good = String::from_utf8(encode(&project, content()).unwrap()).unwrap();
        for bad in [
            String::new(),
            r#"{"version":1,"branch":"main"}"#.into(),
            good.replace("\"version\":2", "\"version\":3"),
            good.replace("\"branch\"", "\"more\":1,\"branch\""),
            good.replacen('{', "{\"more\":1,", 1),
            good.replace("\"main\"", "1"),
        ] {
            assert!(
                matches!(
                    decode::<SampleContent>(&project, bad.as_bytes()),
                    Err(UntrustedRecord::UnknownVersion)
                ),
                "{bad}"
            );
        }
    }
}
