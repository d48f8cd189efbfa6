//! One writer per session: a lock on `claude:<id>`, within this program and across all of its processes.
//!
//! Two resumes of one session would split its history without a word. The lock is the kernel's, on a file in the locks
//! directory, so a crash frees it. The file goes with the lock: sessions are many. It must not know what a session does.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use sha2::{Digest as _, Sha256};

/// How often a session that is in use is tried again.
const PAUSE: Duration = Duration::from_millis(50);
/// Readable part of a file name, in characters.
const READABLE: usize = 40;

/// The locks directory.
#[derive(Clone, Debug)]
pub struct Locks {
    dir: PathBuf,
}

/// A session that is ours until this value is dropped.
#[derive(Debug)]
pub struct SessionLock {
    session: String,
    path: PathBuf,
    _file: File,
}

impl SessionLock {
    /// Its id.
    pub fn session(&self) -> &str {
        &self.session
    }
}

impl Drop for SessionLock {
    fn drop(&mut self) {
        // While it is still ours. A file that stays behind is in nobody's way.
        let _ = fs::remove_file(&self.path);
    }
}

/// Why a session cannot be locked.
#[derive(Debug, thiserror::Error)]
#[error("cannot lock a session: {}: {cause}; make the directory writable", path.display())]
pub struct LockError {
    path: PathBuf,
    #[source]
    cause: io::Error,
}

/// The answer of one try.
#[derive(Debug)]
pub enum Tried {
    /// It is ours.
    Ours(SessionLock),
    /// Somebody else has it: the process, if it says so.
    Taken(Option<u32>),
}

impl Locks {
    /// Locks live in `dir`, which is made when it is needed.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self, session: &str) -> Result<Tried, LockError> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)
            .map_err(|cause| LockError { path: self.dir.clone(), cause })?;
        let path = self.dir.join(file_name(session));
        let failed = |cause| LockError { path: path.clone(), cause };
        loop {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)
                .map_err(failed)?;
            match file.try_lock() {
                // The holder before us took the file away after we had opened it: nobody else would find our lock.
                Ok(()) if !is_at(&file, &path) => {}
                Ok(()) => {
                    // For people and for the message of whoever has to wait; the lock holds without it.
                    let _ = sign(&mut file);
                    return Ok(Tried::Ours(SessionLock { session: session.to_owned(), path, _file: file }));
                }
                Err(TryLockError::WouldBlock) => return Ok(Tried::Taken(holder(&path))),
                Err(TryLockError::Error(cause)) => return Err(failed(cause)),
            }
        }
    }

    /// Waits until the lock is ours. `waits` hears once, with the holder, that there is somebody to wait for.
    pub async fn lock(&self, session: &str, waits: impl FnOnce(Option<u32>)) -> Result<SessionLock, LockError> {
        let mut waits = Some(waits);
        loop {
            match self.try_lock(session)? {
                Tried::Ours(lock) => return Ok(lock),
                Tried::Taken(holder) => {
                    if let Some(waits) = waits.take() {
                        waits(holder);
                    }
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    file.metadata().is_ok_and(|ours| fs::metadata(path).is_ok_and(|there| identity(ours) == identity(there)))
}

fn sign(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    write!(file, "{}", std::process::id())
}

fn holder(path: &Path) -> Option<u32> {
    let mut text = String::new();
    File::open(path).ok()?.take(20).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Ids are opaque: they may hold slashes, be longer than a file name may be, or differ in case only. The hash tells
/// them apart, the rest is for people.
fn file_name(session: &str) -> String {
    let readable: String =
        session.chars().take(READABLE).map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
    let hash = Sha256::digest(format!("claude:{session}"));
    let hash: String = hash.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    format!("claude-{readable}-{hash}.lock")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use proptest::prelude::*;

    use super::*;

    fn locks() -> (tempfile::TempDir, Locks) {
        let dir = tempfile::tempdir().unwrap();
        let locks = Locks::new(dir.path().join("deep/locks"));
        (dir, locks)
    }

    fn ours(locks: &Locks, session: &str) -> Option<SessionLock> {
        match locks.try_lock(session).unwrap() {
            Tried::Ours(lock) => Some(lock),
            Tried::Taken(holder) => {
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
    fn nothing_is_left_behind() {
        let (_dir, locks) = locks();
        drop(ours(&locks, "a"));
        assert_eq!(fs::read_dir(&locks.dir).unwrap().count(), 0);
    }

    #[test]
    fn of_many_who_take_and_free_it_one_has_it() {
        let (_dir, locks) = locks();
        let holders = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let Tried::Ours(lock) = locks.try_lock("a").unwrap() else { continue };
                        assert_eq!(holders.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0, "two have it");
                        std::thread::yield_now();
                        holders.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        drop(lock);
                    }
                });
            }
        });
    }

    #[tokio::test]
    async fn who_waits_gets_it_in_the_end_and_says_so_once() {
        let (_dir, locks) = locks();
        let first = ours(&locks, "a");
        let (told, hears) = tokio::sync::oneshot::channel();
        let waiting = tokio::spawn({
            let locks = locks.clone();
            async move { locks.lock("a", |holder| told.send(holder).unwrap()).await.is_ok() }
        });
        assert_eq!(hears.await, Ok(Some(std::process::id())));
        drop(first);
        assert!(waiting.await.unwrap());
    }

    #[test]
    fn a_lock_dies_with_its_process() {
        let (_dir, locks) = locks();
        drop(ours(&locks, "a"));
        let path = locks.dir.join(file_name("a"));
        let script = "exec 9>>\"$1\"; flock -x 9 || exit 1; echo locked; read line";
        let mut child = std::process::Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(&path)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut word = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut word).unwrap();
        assert!(matches!(locks.try_lock("a").unwrap(), Tried::Taken(_)));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(locks.try_lock("a").unwrap(), Tried::Ours(_)));
    }

    #[test]
    fn files_are_private_and_a_useless_directory_is_told() {
        let (dir, locks) = locks();
        let _held = ours(&locks, "../../etc/passwd");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&locks.dir), 0o700);
        assert_eq!(mode(&locks.dir.join(file_name("../../etc/passwd"))), 0o600);
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Locks::new(&file).try_lock("a").unwrap_err().to_string();
        assert!(error.starts_with("cannot lock a session: ") && error.contains("file"), "{error}");
    }

    proptest! {
        #[test]
        fn every_id_is_a_file_name_and_no_two_share_one(a in "\\PC{0,300}", b in "\\PC{0,300}") {
            let name = file_name(&a);
            prop_assert!(name.len() < 100 && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)));
            prop_assert_eq!(name == file_name(&b), a == b);
        }
    }
}
