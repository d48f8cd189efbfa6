//! One writer per session: a lock on `claude:<id>`, within this program and across its processes.
//!
//! Two concurrent resumes would split the history of a session without an error. The kernel holds the lock on a file in
//! the locks directory, so a crash releases it. The file is deleted with the lock, because there are many sessions. The
//! module must not depend on what a session does.

#![expect(
    clippy::disallowed_methods,
    reason = "creates the user's own directory of locks"
)]

use std::{
    fs::{self, File, Metadata, TryLockError},
    io::{self, Seek as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::PathBuf,
    time::Duration,
};

use sha2::{Digest as _, Sha256};

use ingestdeck_core::diagnostic::Diagnostic;
use ingestdeck_os::scoped_dir::{self, PRIVATE_MODE, STATE_DIR, ScopedDir};

/// Interval between attempts to lock a session that is in use.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum length of the readable part of a file name, in characters.
const MAX_READABLE_CHARS: usize = 40;
/// Maximum size of a lock file that is read, in bytes: a process id.
const MAX_PID_BYTES: u64 = 20;

#[derive(Clone, Debug)]
pub struct SessionLocks {
    /// A directory of the user.
    base_dir: PathBuf,
    /// Directory below `base_dir`, never reached through a link; empty for `base_dir` itself.
    subdir: String,
}

/// A session that is locked until this value is dropped.
#[derive(Debug)]
pub struct SessionLock {
    dir: ScopedDir,
    name: String,
    _file: File,
}

impl Drop for SessionLock {
    fn drop(&mut self) {
        // Removed while the lock is held. A file that remains is harmless.
        let _ = self.dir.remove_unsynced(&self.name);
    }
}

/// Why a session cannot be locked.
#[derive(Debug, thiserror::Error)]
#[error("cannot lock a session: {}: {cause}", path.display())]
pub struct SessionLockError {
    path: PathBuf,
    #[source]
    cause: io::Error,
}

impl Diagnostic for SessionLockError {
    fn help(&self) -> Option<String> {
        scoped_dir::remedy(&self.cause).map(str::to_owned)
    }
}

/// Result of one attempt to lock.
#[derive(Debug)]
pub enum TryLockOutcome {
    Acquired(SessionLock),
    /// Another holder has the lock; its process id, if recorded.
    HeldByOther(Option<u32>),
}

impl SessionLocks {
    /// Stores locks in the user's directory `dir`, which is created when needed.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            base_dir: dir.into(),
            subdir: String::new(),
        }
    }

    /// Stores locks among the program's files in the project `root`.
    pub fn in_project(root: impl Into<PathBuf>) -> Self {
        Self {
            base_dir: root.into(),
            subdir: format!("{STATE_DIR}/locks"),
        }
    }

    fn open_dir(&self) -> io::Result<ScopedDir> {
        if self.subdir.is_empty() {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(PRIVATE_MODE)
                .create(&self.base_dir)?;
        }
        ScopedDir::open(&self.base_dir)?.dir(&self.subdir, Some(PRIVATE_MODE))
    }

    /// Acquires the lock if it is free.
    pub fn try_lock(&self, session: &str) -> Result<TryLockOutcome, SessionLockError> {
        let place = self.base_dir.join(&self.subdir);
        let dir = self.open_dir().map_err(|cause| SessionLockError {
            path: place.clone(),
            cause,
        })?;
        let name = lock_file_name(session);
        let failed = |cause| SessionLockError {
            path: place.join(&name),
            cause,
        };
        loop {
            let mut file = dir.open_or_create(&name).map_err(failed)?;
            match file.try_lock() {
                // The previous holder removed the file after we had opened it, so other processes would not find our
                // lock.
                Ok(()) if !is_same_file(&file, &dir, &name) => {}
                Ok(()) => {
                    // For the message of a process that waits; the lock is valid without it.
                    let _ = write_pid(&mut file);
                    return Ok(TryLockOutcome::Acquired(SessionLock {
                        dir,
                        name,
                        _file: file,
                    }));
                }
                Err(TryLockError::WouldBlock) => {
                    return Ok(TryLockOutcome::HeldByOther(read_holder_pid(&dir, &name)));
                }
                Err(TryLockError::Error(cause)) => return Err(failed(cause)),
            }
        }
    }

    /// Waits for the lock. `waits` is called once, with the holder, if the session is in use.
    pub(crate) async fn lock(
        &self,
        session: &str,
        waits: impl FnOnce(Option<u32>),
    ) -> Result<SessionLock, SessionLockError> {
        let mut waits = Some(waits);
        loop {
            match self.try_lock(session)? {
                TryLockOutcome::Acquired(lock) => return Ok(lock),
                TryLockOutcome::HeldByOther(holder) => {
                    if let Some(waits) = waits.take() {
                        waits(holder);
                    }
                }
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }
}

fn is_same_file(file: &File, dir: &ScopedDir, name: &str) -> bool {
    let identity = |metadata: Metadata| (metadata.dev(), metadata.ino());
    let ours = file.metadata().map(identity);
    let there = dir
        .open_entry(name)
        .and_then(|(there, _)| there.metadata())
        .map(identity);
    ours.is_ok_and(|ours| there.is_ok_and(|there| ours == there))
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    write!(file, "{}", std::process::id())
}

fn read_holder_pid(dir: &ScopedDir, name: &str) -> Option<u32> {
    let text = dir.read(name, MAX_PID_BYTES).ok()?;
    std::str::from_utf8(&text).ok()?.trim().parse().ok()
}

/// Ids are opaque: they may contain slashes, exceed the length of a file name, or differ in case only. The hash makes
/// names unique, the rest makes them readable.
fn lock_file_name(session: &str) -> String {
    let readable: String = session
        .chars()
        .take(MAX_READABLE_CHARS)
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '-' {
                c
            } else {
                '_'
            }
        })
        .collect();
    let hash = Sha256::digest(format!("claude:{session}"));
    let hash: String = hash
        .iter()
        .take(12)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("claude-{readable}-{hash}.lock")
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read as _,
        os::unix::fs::{PermissionsExt as _, symlink},
        path::Path,
    };

    use proptest::prelude::*;

    use super::*;

    fn locks() -> (tempfile::TempDir, SessionLocks) {
        let dir = tempfile::tempdir().unwrap();
        let locks = SessionLocks::new(dir.path().join("deep/locks"));
        (dir, locks)
    }

    fn ours(locks: &SessionLocks, session: &str) -> Option<SessionLock> {
        match locks.try_lock(session).unwrap() {
            TryLockOutcome::Acquired(lock) => Some(lock),
            TryLockOutcome::HeldByOther(holder) => {
                assert_eq!(holder, Some(std::process::id()));
                None
            }
        }
    }

    #[test]
    fn one_session_has_one_holder_and_others_are_free() {
        let (_dir, locks) = locks();
        let first = ours(&locks, "a");
        assert!(first.is_some() && ours(&locks, "a").is_none() && ours(&locks, "b").is_some());
        drop(first);
        assert!(ours(&locks, "a").is_some());
    }

    #[test]
    fn lock_file_is_removed_on_drop() {
        let (_dir, locks) = locks();
        drop(ours(&locks, "a"));
        assert_eq!(fs::read_dir(&locks.base_dir).unwrap().count(), 0);
    }

    #[test]
    fn concurrent_lockers_never_share_the_lock() {
        let (_dir, locks) = locks();
        let holders = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let TryLockOutcome::Acquired(lock) = locks.try_lock("a").unwrap() else {
                            continue;
                        };
                        assert_eq!(
                            holders.fetch_add(1, std::sync::atomic::Ordering::SeqCst),
                            0,
                            "two have it"
                        );
                        std::thread::yield_now();
                        holders.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        drop(lock);
                    }
                });
            }
        });
    }

    #[tokio::test]
    async fn waiting_locker_reports_once_and_then_acquires() {
        let (_dir, locks) = locks();
        let first = ours(&locks, "a");
        let (notify, notified) = tokio::sync::oneshot::channel();
        let waiting = tokio::spawn({
            let locks = locks.clone();
            async move {
                locks
                    .lock("a", |holder| notify.send(holder).unwrap())
                    .await
                    .is_ok()
            }
        });
        assert_eq!(notified.await, Ok(Some(std::process::id())));
        drop(first);
        assert!(waiting.await.unwrap());
    }

    #[test]
    fn lock_is_released_when_its_process_dies() {
        let (_dir, locks) = locks();
        drop(ours(&locks, "a"));
        let path = locks.base_dir.join(lock_file_name("a"));
        let script = "exec 9>>\"$1\"; flock -x 9 || exit 1; echo locked; read line";
        let mut child = std::process::Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(&path)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut word = [0; 6];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut word)
            .unwrap();
        assert!(matches!(
            locks.try_lock("a").unwrap(),
            TryLockOutcome::HeldByOther(_)
        ));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(
            locks.try_lock("a").unwrap(),
            TryLockOutcome::Acquired(_)
        ));
    }

    #[test]
    fn lock_files_are_private_and_bad_directory_is_an_error() {
        let (dir, locks) = locks();
        let _held = ours(&locks, "../../etc/passwd");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&locks.base_dir), 0o700);
        assert_eq!(
            mode(&locks.base_dir.join(lock_file_name("../../etc/passwd"))),
            0o600
        );
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let error = SessionLocks::new(&file)
            .try_lock("a")
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("cannot lock a session: ") && error.contains("file"),
            "{error}"
        );
    }

    #[test]
    fn link_in_a_project_is_not_followed() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let locks = SessionLocks::in_project(root.path());
        drop(ours(&locks, "a"));
        let dir = root.path().join(STATE_DIR).join("locks");
        symlink(outside.path().join("target"), dir.join(lock_file_name("a"))).unwrap();
        nix::unistd::mkfifo(
            &dir.join(lock_file_name("b")),
            nix::sys::stat::Mode::S_IRWXU,
        )
        .unwrap();
        for session in ["a", "b"] {
            assert!(locks.try_lock(session).is_err(), "{session}");
        }
        fs::rename(&dir, root.path().join("aside")).unwrap();
        symlink(outside.path(), &dir).unwrap();
        assert!(locks.try_lock("c").is_err());
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    proptest! {
        #[test]
        fn every_id_is_a_file_name_and_no_two_share_one(a in "\\PC{0,300}", b in "\\PC{0,300}") {
            let name = lock_file_name(&a);
            prop_assert!(name.len() < 100 && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)));
            prop_assert_eq!(name == lock_file_name(&b), a == b);
        }
    }
}
