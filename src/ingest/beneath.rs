//! Files below a directory, reached one name at a time and never through a symbolic link.
//!
//! Every read and write of the ingest stage goes through here, so that a hostile path, or a link made between a
//! check and its use, cannot lead out of the directory that was meant. It must not know what the files mean.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::OwnedFd,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use nix::{
    fcntl::{OFlag, openat, renameat},
    sys::stat::{Mode, mkdirat},
    unistd::{UnlinkatFlags, unlinkat},
};

/// Mode of directories below `.ktx`.
pub(crate) const PRIVATE: u32 = 0o700;
/// Mode of directories that people share; the umask applies.
pub(crate) const SHARED: u32 = 0o777;

/// An open directory.
#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

impl Folder {
    /// Opens `path`. Links on the way to it are followed: the caller vouches for it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(
            File::open(path)
                .and_then(|file| if file.metadata()?.is_dir() { Ok(file) } else { Err(not_a_directory()) })?
                .into(),
        ))
    }

    /// Opens the directory `name`, which must be a real one.
    fn child(&self, name: &str) -> io::Result<Self> {
        Ok(Self(openat(&self.0, name, OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())?))
    }

    /// Opens the directory `name`, made with `mode` if it is missing.
    fn child_or_new(&self, name: &str, mode: u32) -> io::Result<Self> {
        match self.child(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match mkdirat(&self.0, name, Mode::from_bits_truncate(mode as _)) {
                    Ok(()) | Err(nix::Error::EEXIST) => self.child(name),
                    Err(error) => Err(error.into()),
                }
            }
            other => other,
        }
    }

    /// The directory that holds `relative`, and its last name. With `make` missing directories are made.
    fn parent_of<'a>(&self, relative: &'a str, make: Option<u32>) -> io::Result<(Self, &'a str)> {
        check(relative)?;
        let (parents, name) = relative.rsplit_once('/').unwrap_or(("", relative));
        Ok((self.folder(parents, make)?, name))
    }

    /// The directory `relative`; the empty path is this one. With `make` missing directories are made.
    pub(crate) fn folder(&self, relative: &str, make: Option<u32>) -> io::Result<Self> {
        let mut folder = Self(self.0.try_clone()?);
        for part in relative.split('/').filter(|part| !part.is_empty()) {
            folder = match make {
                Some(mode) => folder.child_or_new(part, mode)?,
                None => folder.child(part)?,
            };
        }
        Ok(folder)
    }

    /// Bytes of the regular file `relative`; refused above `limit` bytes.
    pub(crate) fn read(&self, relative: &str, limit: u64) -> io::Result<Vec<u8>> {
        let (file, size) = self.open_file(relative)?;
        if size > limit {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("it has {size} bytes, the limit is {limit}"),
            ));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
        file.take(limit + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it grew above {limit} bytes")));
        }
        Ok(bytes)
    }

    /// The regular file `relative`, open for reading, and its size in bytes.
    pub(crate) fn open_file(&self, relative: &str) -> io::Result<(File, u64)> {
        let (folder, name) = self.parent_of(relative, None)?;
        folder.open_here(name)
    }

    /// As [`open_file`](Self::open_file), for the file `name` of this very directory.
    pub(crate) fn open_here(&self, name: &str) -> io::Result<(File, u64)> {
        // Without O_NONBLOCK a named pipe would hold the caller for ever.
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = File::from(openat(&self.0, name, flags, Mode::empty())?);
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        Ok((file, meta.len()))
    }

    /// Makes the file `name` of this very directory, which must not be there. It may be lost with the machine.
    pub(crate) fn create_here(&self, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        File::from(openat(&self.0, name, flags, Mode::from_bits_truncate(mode as _))?).write_all(bytes)
    }

    /// As [`read`](Self::read), with `None` where there is no such file.
    pub(crate) fn read_if_there(&self, relative: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
        match self.read(relative, limit) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces `relative` by `bytes` in one step; readers see the old file or the new one. Missing directories are
    /// made with `directories`, the file gets `mode` (the umask applies).
    pub(crate) fn write(&self, relative: &str, bytes: &[u8], directories: u32, mode: u32) -> io::Result<()> {
        let (folder, name) = self.parent_of(relative, Some(directories))?;
        let draft = draft_name();
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut file = File::from(openat(&folder.0, draft.as_str(), flags, Mode::from_bits_truncate(mode as _))?);
        let done = file
            .write_all(bytes)
            .and_then(|()| file.sync_all())
            .and_then(|()| renameat(&folder.0, draft.as_str(), &folder.0, name).map_err(io::Error::from));
        if done.is_err() {
            // The draft is of no use to anyone; the first error is the one to report.
            let _ = unlinkat(&folder.0, draft.as_str(), UnlinkatFlags::NoRemoveDir);
        }
        done
    }

    /// Moves the file `from` of this directory to `to` below `target`, replacing what is there.
    pub(crate) fn rename(&self, from: &str, target: &Self, to: &str, directories: u32) -> io::Result<()> {
        let (source, from) = self.parent_of(from, None)?;
        let (target, to) = target.parent_of(to, Some(directories))?;
        renameat(&source.0, from, &target.0, to)?;
        sync(&target.0)
    }

    /// Removes the file `relative`. True if there was one.
    pub(crate) fn remove(&self, relative: &str) -> io::Result<bool> {
        let (folder, name) = match self.parent_of(relative, None) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            other => other?,
        };
        match unlinkat(&folder.0, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) => sync(&folder.0).map(|()| true),
            Err(nix::Error::ENOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Makes `path`, which lies below the directory `root`, and its missing parents, for the owner alone. Existing
/// directories stay as they are; a link among them is an error.
pub(crate) fn make_private(root: &Path, path: &Path) -> io::Result<()> {
    let stray =
        || io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not below {}", path.display(), root.display()));
    let relative = path.strip_prefix(root).ok().and_then(Path::to_str).ok_or_else(stray)?;
    check(relative)?;
    Folder::open(root)?.folder(relative, Some(PRIVATE)).map(drop)
}

/// As [`make_private`], and keeps what is in it out of every repository. Whoever wants it in one says so in its
/// `.gitignore`, which stays.
pub(crate) fn make_hidden(root: &Path, path: &Path) -> io::Result<()> {
    make_private(root, path)?;
    match Folder::open(path)?.create_here(".gitignore", b"*\n", 0o644) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Refuses what is not a plain path of names: absolute, empty, climbing or with a NUL.
pub(crate) fn check(relative: &str) -> io::Result<()> {
    let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    if relative.split('/').all(plain) {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("`{}` is not a plain relative path", relative.escape_debug()),
        ))
    }
}

fn sync(folder: &OwnedFd) -> io::Result<()> {
    File::from(folder.try_clone()?).sync_all()
}

fn not_a_directory() -> io::Error {
    io::Error::new(io::ErrorKind::NotADirectory, "it is not a directory")
}

/// A name that no other writer of this machine uses.
fn draft_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!(".draft-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn writes_read_back_and_leave_no_draft() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        folder.write("a/b/c.md", b"one", PRIVATE, 0o600).unwrap();
        folder.write("a/b/c.md", b"two", PRIVATE, 0o600).unwrap();
        assert_eq!(folder.read("a/b/c.md", 10).unwrap(), b"two");
        assert_eq!(fs::read_dir(dir.path().join("a/b")).unwrap().count(), 1);
        assert_eq!(folder.read("a/b/c.md", 2).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert!(folder.remove("a/b/c.md").unwrap());
        assert!(!folder.remove("a/b/c.md").unwrap());
        assert!(!folder.remove("no/such").unwrap());
    }

    #[test]
    fn links_are_not_followed_wherever_they_stand() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "s").unwrap();
        symlink(outside.path(), dir.path().join("link")).unwrap();
        symlink(outside.path().join("secret"), dir.path().join("leaf")).unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        assert!(folder.read("link/secret", 10).is_err());
        assert!(folder.read("leaf", 10).is_err());
        assert!(folder.write("link/new", b"x", PRIVATE, 0o600).is_err());
        // A write over a link replaces the link, never its target.
        folder.write("leaf", b"mine", PRIVATE, 0o600).unwrap();
        assert_eq!(fs::read(outside.path().join("secret")).unwrap(), b"s");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn whatever_somebody_put_for_a_gitignore_stays() {
        let dir = tempfile::tempdir().unwrap();
        let hidden = |name: &str| {
            let path = dir.path().join(name);
            make_hidden(dir.path(), &path).map(|()| path.join(".gitignore")).map_err(|error| format!("{name}: {error}"))
        };
        assert_eq!(fs::read_to_string(hidden("none").unwrap()).unwrap(), "*\n");
        for name in ["long", "link", "nowhere", "directory"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("long/.gitignore"), "#".repeat(5000)).unwrap();
        symlink("../none/.gitignore", dir.path().join("link/.gitignore")).unwrap();
        symlink("nothing", dir.path().join("nowhere/.gitignore")).unwrap();
        fs::create_dir(dir.path().join("directory/.gitignore")).unwrap();
        assert_eq!(fs::metadata(hidden("long").unwrap()).unwrap().len(), 5000);
        assert!(hidden("link").unwrap().is_symlink());
        assert!(hidden("nowhere").unwrap().is_symlink() && !dir.path().join("nowhere/nothing").exists());
        assert!(hidden("directory").unwrap().is_dir());
    }

    #[test]
    fn a_named_pipe_does_not_hold_the_reader() {
        let dir = tempfile::tempdir().unwrap();
        nix::unistd::mkfifo(&dir.path().join("pipe"), Mode::S_IRWXU).unwrap();
        let error = Folder::open(dir.path()).unwrap().read("pipe", 10).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn hostile_paths_never_reach_a_neighbour(
            parts in prop::collection::vec(prop::sample::select(vec!["..", ".", "", "inside", "/", "neighbour", "a\0b", "link"]), 1..6),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let inside = dir.path().join("inside");
            fs::create_dir(&inside).unwrap();
            fs::create_dir(dir.path().join("neighbour")).unwrap();
            symlink(dir.path().join("neighbour"), inside.join("link")).unwrap();
            let path = parts.join("/");
            let folder = Folder::open(&inside).unwrap();
            let _ = folder.write(&path, b"x", PRIVATE, 0o600);
            let _ = folder.write(&format!("{path}/leaf"), b"x", PRIVATE, 0o600);
            prop_assert_eq!(fs::read_dir(dir.path().join("neighbour")).unwrap().count(), 0);
            prop_assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        }
    }
}
