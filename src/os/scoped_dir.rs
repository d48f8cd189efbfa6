//! Files below a directory, opened one path component at a time and never through a symbolic link.
//!
//! Everything in a cloned project is untrusted: any file, link, named pipe or directory may exist at a path that the
//! program uses. `ScopedDir` is the only access to the files of a project that the program owns (`.ktx`, `wiki`,
//! `semantic-layer`, `raw-sources`, staged copies), so that no link leads out of the directory, whether it was shipped
//! or created between a check and its use. The module must not know what the files mean. `cap-std` is not used: it
//! confines links to the directory instead of refusing them, but links within a project must be refused too.

use std::{
    ffi::{OsStr, OsString},
    fs::{File, TryLockError},
    io::{self, Read, Write},
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    },
    path::Path,
    thread,
    time::Duration,
};

use nix::{
    dir::{Dir, Type},
    errno::Errno,
    fcntl::{AtFlags, OFlag, openat, renameat},
    sys::stat::{FileStat, Mode, SFlag, fstat, fstatat, mkdirat},
    unistd::{AccessFlags, UnlinkatFlags, faccessat, unlinkat},
};
use uuid::Uuid;

/// Mode of directories below `.ktx`.
pub const PRIVATE_MODE: u32 = 0o700;
/// Mode of shared directories; the umask applies.
pub const SHARED_MODE: u32 = 0o777;

/// Directory of the program's own state, relative to the project.
pub const STATE_DIR: &str = ".ktx/ingestdeck";
/// Prefix of the names of unfinished files.
pub const TEMP_PREFIX: &str = ".draft-";
/// A `.gitignore` that ignores its whole directory.
const GITIGNORE_ALL: &[u8] = b"*\n";

/// How often a lock is tried that another process holds, and the time between two tries. A child process has a copy of
/// the locked descriptor until it executes its program, so a lock that was just released can appear to be held.
const LOCK_TRIES: usize = 5;
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Maximum depth of directories for [`ScopedDir::remove_dir_all`]; each level needs a file descriptor.
const MAX_REMOVAL_DEPTH: usize = 128;

/// The kind of a directory entry. Links are not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    Socket,
    /// A named pipe or a device.
    Special,
}

impl FileKind {
    fn from_stat(stat: &FileStat) -> Self {
        match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
            SFlag::S_IFREG => Self::File,
            SFlag::S_IFDIR => Self::Directory,
            SFlag::S_IFLNK => Self::Symlink,
            SFlag::S_IFSOCK => Self::Socket,
            _ => Self::Special,
        }
    }

    /// The kind in a directory listing, which not every file system provides.
    fn from_dirent(kind: Type) -> Self {
        match kind {
            Type::File => Self::File,
            Type::Directory => Self::Directory,
            Type::Symlink => Self::Symlink,
            Type::Socket => Self::Socket,
            Type::Fifo | Type::CharacterDevice | Type::BlockDevice => Self::Special,
        }
    }
}

#[derive(Debug)]
pub struct ScopedDir(OwnedFd);

/// A file that this process has locked until the value is dropped.
#[derive(Debug)]
pub struct FileLock(#[expect(dead_code, reason = "it holds the lock")] File);

impl ScopedDir {
    /// Opens `path` and follows links in it. Only for directories that the user named, such as the project itself; use
    /// [`dir`](Self::dir) for everything below.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(Self(nix::fcntl::open(path, flags, Mode::empty())?))
    }

    /// Opens the directory `name`, which must not be a link.
    fn child(&self, name: &str) -> io::Result<Self> {
        match openat(
            &self.0,
            name,
            OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC,
            Mode::empty(),
        ) {
            Ok(fd) => Ok(Self(fd)),
            // Linux reports a link as ENOTDIR, other systems as ELOOP.
            Err(nix::Error::ENOTDIR | nix::Error::ELOOP) => Err(self.not_a_directory(name)),
            Err(error) => Err(error.into()),
        }
    }

    fn not_a_directory(&self, name: &str) -> io::Error {
        let what = match self.entry_kind(OsStr::new(name)) {
            Ok(Some(FileKind::Symlink)) => "is a symbolic link; replace it with a real directory",
            _ => "is not a directory; move it out of the way",
        };
        io::Error::new(
            io::ErrorKind::NotADirectory,
            format!("`{}` {what}", name.escape_debug()),
        )
    }

    /// Opens the directory `name`, and creates it with `mode` if it is missing.
    fn child_or_create(&self, name: &str, mode: u32) -> io::Result<Self> {
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

    /// The directory that contains `relative`, and the last name. With `make`, creates missing directories.
    fn parent_of<'a>(&self, relative: &'a str, make: Option<u32>) -> io::Result<(Self, &'a str)> {
        validate_relative_path(relative)?;
        let (parents, name) = relative.rsplit_once('/').unwrap_or(("", relative));
        Ok((self.dir(parents, make)?, name))
    }

    /// Opens the directory `relative`; the empty path is this one. With `make`, creates missing directories with that
    /// mode.
    pub fn dir(&self, relative: &str, make: Option<u32>) -> io::Result<Self> {
        let mut dir = Self(self.0.try_clone()?);
        for part in relative.split('/').filter(|part| !part.is_empty()) {
            validate_relative_path(part)?;
            dir = match make {
                Some(mode) => dir.child_or_create(part, mode)?,
                None => dir.child(part)?,
            };
        }
        Ok(dir)
    }

    /// As [`dir`](Self::dir), but returns `None` if the directory does not exist.
    pub fn dir_if_exists(&self, relative: &str) -> io::Result<Option<Self>> {
        none_if_missing(self.dir(relative, None))
    }

    /// True if `relative` is a regular file that is reached without links.
    pub fn is_file(&self, relative: &str) -> bool {
        self.kind(relative)
            .is_ok_and(|kind| kind == Some(FileKind::File))
    }

    /// The kind of `relative`; `None` if it does not exist.
    pub fn kind(&self, relative: &str) -> io::Result<Option<FileKind>> {
        match self.parent_of(relative, None) {
            Ok((dir, name)) => dir.entry_kind(OsStr::new(name)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn entry_kind(&self, name: &OsStr) -> io::Result<Option<FileKind>> {
        match fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileKind::from_stat(&stat))),
            Err(nix::Error::ENOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Names and kinds of the entries of this directory, in no particular order. Callers whose result must not depend on
    /// the file system sort them.
    pub fn entries(&self) -> io::Result<Vec<(OsString, FileKind)>> {
        let mut listing = Dir::openat(
            &self.0,
            ".",
            OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )?;
        let mut entries = Vec::new();
        for entry in listing.iter() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                Some(kind) => Some(FileKind::from_dirent(kind)),
                // An entry may vanish between the listing and the query.
                None => self.entry_kind(name)?,
            };
            if let Some(kind) = kind {
                entries.push((name.to_owned(), kind));
            }
        }
        Ok(entries)
    }

    /// Size, times and identity of the entry `name` in this directory itself. Links are not followed.
    pub fn entry_stat(&self, name: &str) -> io::Result<FileStat> {
        Ok(fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW)?)
    }

    /// Bytes of the regular file `relative`; an error above `limit` bytes.
    pub fn read(&self, relative: &str, limit: u64) -> io::Result<Vec<u8>> {
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
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("it grew above {limit} bytes"),
            ));
        }
        Ok(bytes)
    }

    /// The regular file `relative`, open for reading, and its size in bytes.
    pub fn open_file(&self, relative: &str) -> io::Result<(File, u64)> {
        let (dir, name) = self.parent_of(relative, None)?;
        dir.open_entry(name)
    }

    /// As [`open_file`](Self::open_file), for the file `name` in this directory itself.
    pub fn open_entry(&self, name: &str) -> io::Result<(File, u64)> {
        self.open_regular(name, OFlag::O_RDONLY, 0)
    }

    /// The regular file `relative`, open for reading and writing, created with mode 0600 if it is missing. Missing
    /// directories are created with access for the owner only. For lock files.
    ///
    /// A file with another name is refused: a write would change a file of the user outside this directory.
    pub fn open_or_create(&self, relative: &str) -> io::Result<File> {
        let (dir, name) = self.parent_of(relative, Some(PRIVATE_MODE))?;
        let (file, _) = dir.open_regular(name, OFlag::O_RDWR | OFlag::O_CREAT, 0o600)?;
        refuse_hard_link(&file, name)?;
        Ok(file)
    }

    /// Checks whether [`open_or_create`](Self::open_or_create) would open or create the file `relative`. Changes
    /// nothing, so it does not detect a full disk.
    pub fn check_open_or_create(&self, relative: &str) -> io::Result<()> {
        validate_relative_path(relative)?;
        let (parents, name) = relative.rsplit_once('/').unwrap_or(("", relative));
        let mut dir = Self(self.0.try_clone()?);
        for part in parents.split('/').filter(|part| !part.is_empty()) {
            validate_relative_path(part)?;
            dir = match dir.child(part) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return dir.check_writable();
                }
                child => child?,
            };
        }
        match dir.open_regular(name, OFlag::O_RDWR, 0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => dir.check_writable(),
            opened => refuse_hard_link(&opened?.0, name),
        }
    }

    /// Checks whether entries can be created in this directory itself. For the superuser, only a read-only file system
    /// is an error.
    fn check_writable(&self) -> io::Result<()> {
        Ok(faccessat(
            &self.0,
            ".",
            AccessFlags::W_OK | AccessFlags::X_OK,
            AtFlags::AT_EACCESS,
        )?)
    }

    /// Locks the file `relative`, created as by [`open_or_create`](Self::open_or_create). Waits until no other process
    /// holds the lock.
    pub fn lock(&self, relative: &str) -> io::Result<FileLock> {
        let file = self.open_or_create(relative)?;
        file.lock()?;
        Ok(FileLock(file))
    }

    /// As [`lock`](Self::lock), but returns `None` while another process holds the lock.
    pub fn try_lock(&self, relative: &str) -> io::Result<Option<FileLock>> {
        try_hold(self.open_or_create(relative)?)
    }

    /// Locks this directory itself, which unlike a lock file cannot be deleted and recreated unnoticed. Returns `None`
    /// while another process holds the lock.
    pub fn try_lock_dir(&self) -> io::Result<Option<FileLock>> {
        try_hold(File::from(self.0.try_clone()?))
    }

    /// Creates the file `relative` with mode 0600, open for appending. Fails with `AlreadyExists` if it exists. Missing
    /// directories are created with access for the owner only.
    pub fn create_new(&self, relative: &str) -> io::Result<File> {
        let (dir, name) = self.parent_of(relative, Some(PRIVATE_MODE))?;
        let flags = OFlag::O_RDWR | OFlag::O_APPEND | OFlag::O_CREAT | OFlag::O_EXCL;
        Ok(dir.open_regular(name, flags, 0o600)?.0)
    }

    /// The regular file `relative`, open for appending, created with mode 0600 if it is missing. Missing directories
    /// are created with access for the owner only.
    pub fn append_to(&self, relative: &str) -> io::Result<File> {
        let (dir, name) = self.parent_of(relative, Some(PRIVATE_MODE))?;
        Ok(dir
            .open_regular(
                name,
                OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CREAT,
                0o600,
            )?
            .0)
    }

    fn open_regular(&self, name: &str, flags: OFlag, mode: u32) -> io::Result<(File, u64)> {
        // Without O_NONBLOCK a named pipe would block the caller forever.
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = match openat(&self.0, name, flags, Mode::from_bits_truncate(mode as _)) {
            Ok(fd) => File::from(fd),
            Err(nix::Error::ELOOP) => {
                return Err(not_regular(
                    "it is a symbolic link; replace it with the file itself",
                ));
            }
            Err(error) => return Err(error.into()),
        };
        let meta = file.metadata()?;
        if meta.is_file() {
            Ok((file, meta.len()))
        } else {
            Err(not_regular("it is not a regular file"))
        }
    }

    /// Creates the file `name` in this directory itself; it must not exist. The file is not synced to disk.
    pub fn create_entry(&self, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        File::from(openat(
            &self.0,
            name,
            flags,
            Mode::from_bits_truncate(mode as _),
        )?)
        .write_all(bytes)
    }

    /// As [`read`](Self::read), but returns `None` if the file does not exist.
    pub fn read_if_exists(&self, relative: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
        none_if_missing(self.read(relative, limit))
    }

    /// Replaces `relative` by `bytes` atomically: readers see the old file or the new one. Missing directories are
    /// created with mode `directories`, the file with `mode` (the umask applies).
    pub fn write(
        &self,
        relative: &str,
        bytes: &[u8],
        directories: u32,
        mode: u32,
    ) -> io::Result<()> {
        let dir = self.replace(relative, bytes, (directories, mode), File::sync_all)?;
        // A power failure may undo the rename on file systems that do not order it after the data.
        dir.sync()
    }

    /// As [`write`](Self::write), for a file that may be lost in a power failure.
    pub fn write_unsynced(
        &self,
        relative: &str,
        bytes: &[u8],
        directories: u32,
        mode: u32,
    ) -> io::Result<()> {
        self.replace(relative, bytes, (directories, mode), |_| Ok(()))
            .map(drop)
    }

    /// Replaces `relative` by a new file, after `sync` of its content. Returns the directory of the file.
    fn replace(
        &self,
        relative: &str,
        bytes: &[u8],
        (directories, mode): (u32, u32),
        sync: impl FnOnce(&File) -> io::Result<()>,
    ) -> io::Result<Self> {
        let (dir, name) = self.parent_of(relative, Some(directories))?;
        let (draft, mut file) = dir.create_temp_file(mode)?;
        let done = file
            .write_all(bytes)
            .and_then(|()| sync(&file))
            .and_then(|()| renameat(&dir.0, draft.as_str(), &dir.0, name).map_err(io::Error::from));
        if done.is_err() {
            // The unfinished file is useless; report the first error.
            let _ = unlinkat(&dir.0, draft.as_str(), UnlinkatFlags::NoRemoveDir);
        }
        done.map(|()| dir)
    }

    /// A new file in this directory itself, under a name that neither a crashed writer nor a clone can have used.
    fn create_temp_file(&self, mode: u32) -> io::Result<(String, File)> {
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        loop {
            let name = format!("{TEMP_PREFIX}{}", Uuid::new_v4().simple());
            match openat(
                &self.0,
                name.as_str(),
                flags,
                Mode::from_bits_truncate(mode as _),
            ) {
                Ok(fd) => return Ok((name, File::from(fd))),
                Err(Errno::EEXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Moves the file `from` of this directory to `to` below `target`, and replaces an existing file.
    pub fn rename(&self, from: &str, target: &Self, to: &str, directories: u32) -> io::Result<()> {
        let (source, from) = self.parent_of(from, None)?;
        let (target, to) = target.parent_of(to, Some(directories))?;
        renameat(&source.0, from, &target.0, to)?;
        target.sync()
    }

    /// Removes the file `relative`. Returns true if it existed.
    pub fn remove(&self, relative: &str) -> io::Result<bool> {
        Ok(self
            .unlink(relative)?
            .map(|dir| dir.sync())
            .transpose()?
            .is_some())
    }

    /// As [`remove`](Self::remove), for a file whose return after a power failure has no effect.
    pub fn remove_unsynced(&self, relative: &str) -> io::Result<bool> {
        Ok(self.unlink(relative)?.is_some())
    }

    /// Removes the file `relative`. Returns its directory if it existed.
    fn unlink(&self, relative: &str) -> io::Result<Option<Self>> {
        let Some((dir, name)) = none_if_missing(self.parent_of(relative, None))? else {
            return Ok(None);
        };
        match unlinkat(&dir.0, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) => Ok(Some(dir)),
            Err(nix::Error::ENOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes `relative`, with its contents if it is a directory. A link is removed, never followed. Returns true if
    /// it existed.
    pub fn remove_dir_all(&self, relative: &str) -> io::Result<bool> {
        let Some((dir, name)) = none_if_missing(self.parent_of(relative, None))? else {
            return Ok(false);
        };
        let was_there = dir.remove_tree(OsStr::new(name), MAX_REMOVAL_DEPTH)?;
        if was_there {
            dir.sync()?;
        }
        Ok(was_there)
    }

    fn remove_tree(&self, name: &OsStr, depth: usize) -> io::Result<bool> {
        match self.entry_kind(name)? {
            None => return Ok(false),
            Some(FileKind::Directory) => {}
            Some(_) => {
                unlinkat(&self.0, name, UnlinkatFlags::NoRemoveDir)?;
                return Ok(true);
            }
        }
        let Some(depth) = depth.checked_sub(1) else {
            return Err(io::Error::other(format!(
                "it is nested deeper than {MAX_REMOVAL_DEPTH} directories"
            )));
        };
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let inner = Self(openat(&self.0, name, flags, Mode::empty())?);
        for (name, _) in inner.entries()? {
            inner.remove_tree(&name, depth)?;
        }
        unlinkat(&self.0, name, UnlinkatFlags::RemoveDir)?;
        Ok(true)
    }

    /// The inode number of this directory. A copy has another one.
    pub fn inode(&self) -> io::Result<u64> {
        Ok(fstat(&self.0)?.st_ino)
    }

    /// The directory `relative`, created with access for the owner only, with a `.gitignore` that ignores everything in
    /// it.
    fn ignored_dir(&self, relative: &str) -> io::Result<Self> {
        let dir = self.dir(relative, Some(PRIVATE_MODE))?;
        let is_current = |found: &Vec<u8>| found == GITIGNORE_ALL;
        if !dir
            .read(".gitignore", GITIGNORE_ALL.len() as u64)
            .as_ref()
            .is_ok_and(is_current)
        {
            dir.write(".gitignore", GITIGNORE_ALL, PRIVATE_MODE, 0o644)?;
        }
        Ok(dir)
    }

    /// Makes the names in this directory durable.
    pub fn sync(&self) -> io::Result<()> {
        File::from(self.0.try_clone()?).sync_all()
    }
}

/// Locks `file`. Returns `false` while another process holds the lock.
pub fn try_lock_file(file: &File) -> io::Result<bool> {
    for attempt in 0..LOCK_TRIES {
        if attempt > 0 {
            thread::sleep(LOCK_RETRY_INTERVAL);
        }
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(false)
}

fn try_hold(file: File) -> io::Result<Option<FileLock>> {
    Ok(try_lock_file(&file)?.then_some(FileLock(file)))
}

fn none_if_missing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// An error if `file`, which was opened as `name`, has another name.
fn refuse_hard_link(file: &File, name: &str) -> io::Result<()> {
    if file.metadata()?.nlink() > 1 {
        let why = format!(
            "`{}` has another name, by a hard link; delete it",
            name.escape_debug()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(())
}

fn not_regular(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Creates `path`, which is below the directory `root`, and its missing parents, with access for the owner only.
/// Existing directories are not changed; a link among them is an error.
pub(crate) fn create_private_dir(root: &Path, path: &Path) -> io::Result<()> {
    let stray = || {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{} is not below {}", path.display(), root.display()),
        )
    };
    let relative = path
        .strip_prefix(root)
        .ok()
        .and_then(Path::to_str)
        .ok_or_else(stray)?;
    validate_relative_path(relative)?;
    ScopedDir::open(root)?
        .dir(relative, Some(PRIVATE_MODE))
        .map(drop)
}

/// As [`create_private_dir`], but also keeps the contents out of git: transcripts, traces and raw files contain
/// secrets, and a cloned project must not be able to have them committed.
pub fn create_ignored_dir(root: &Path, path: &Path) -> io::Result<()> {
    create_private_dir(root, path)?;
    let relative = path
        .strip_prefix(root)
        .ok()
        .and_then(Path::to_str)
        .unwrap_or_default();
    ScopedDir::open(root)?.ignored_dir(relative).map(drop)
}

/// Opens the directory with the program's own state in the project `root`, created with access for the owner only and
/// kept out of git.
pub fn state_dir(root: &Path) -> io::Result<ScopedDir> {
    ScopedDir::open(root)?.ignored_dir(STATE_DIR)
}

/// The remedy for an `error` of writing a file, if one is known.
pub fn remedy(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Some("make the directory writable")
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Some("free some disk space"),
        _ if is_out_of_files(error) => Some("raise `ulimit -n`"),
        _ => None,
    }
}

/// True if the process or the system has no file descriptors left, whatever the error message names.
pub fn is_out_of_files(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let cause = error.downcast_ref::<io::Error>();
        if let Some(Errno::EMFILE | Errno::ENFILE) =
            cause.and_then(io::Error::raw_os_error).map(Errno::from_raw)
        {
            return true;
        }
        // The source of an error that wraps another one is the source of the wrapped error.
        next = match cause.and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    false
}

/// Accepts only plain paths of names: not absolute, not empty, without `..` and NUL.
pub fn validate_relative_path(relative: &str) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn write_round_trips_and_leaves_no_temp_file() {
        let dir = tempfile::tempdir().unwrap();
        let folder = ScopedDir::open(dir.path()).unwrap();
        folder
            .write("a/b/c.md", b"one", PRIVATE_MODE, 0o600)
            .unwrap();
        folder
            .write("a/b/c.md", b"two", PRIVATE_MODE, 0o600)
            .unwrap();
        assert_eq!(folder.read("a/b/c.md", 10).unwrap(), b"two");
        assert_eq!(fs::read_dir(dir.path().join("a/b")).unwrap().count(), 1);
        assert_eq!(
            folder.read("a/b/c.md", 2).unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
        assert!(folder.remove("a/b/c.md").unwrap());
        assert!(!folder.remove("a/b/c.md").unwrap());
        assert!(!folder.remove("no/such").unwrap());
    }

    /// Process ids repeat, especially in containers, and a clone can contain files of any name.
    #[test]
    fn write_ignores_foreign_temp_files() {
        let dir = tempfile::tempdir().unwrap();
        let folder = ScopedDir::open(dir.path()).unwrap();
        for number in 0..10_000 {
            fs::write(
                dir.path()
                    .join(format!("{TEMP_PREFIX}{}-{number}", std::process::id())),
                "",
            )
            .unwrap();
        }
        folder.write("a.md", b"one", PRIVATE_MODE, 0o600).unwrap();
        assert_eq!(folder.read("a.md", 10).unwrap(), b"one");
        let (first, _) = folder.create_temp_file(0o600).unwrap();
        let (second, _) = folder.create_temp_file(0o600).unwrap();
        assert!(
            first != second && first.len() == TEMP_PREFIX.len() + 32,
            "{first} {second}"
        );
    }

    #[test]
    fn symlink_in_any_path_component_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "s").unwrap();
        symlink(outside.path(), dir.path().join("link")).unwrap();
        symlink(outside.path().join("secret"), dir.path().join("leaf")).unwrap();
        let folder = ScopedDir::open(dir.path()).unwrap();
        assert!(folder.read("link/secret", 10).is_err());
        assert!(folder.read("leaf", 10).is_err());
        assert!(folder.write("link/new", b"x", PRIVATE_MODE, 0o600).is_err());
        // A write to a link replaces the link, never its target.
        folder.write("leaf", b"mine", PRIVATE_MODE, 0o600).unwrap();
        assert_eq!(fs::read(outside.path().join("secret")).unwrap(), b"s");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn remove_dir_all_never_leaves_the_directory() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("keep"), "k").unwrap();
        fs::create_dir_all(dir.path().join("tree/deep")).unwrap();
        symlink(outside.path(), dir.path().join("tree/deep/link")).unwrap();
        symlink(outside.path(), dir.path().join("link")).unwrap();
        let scoped = ScopedDir::open(dir.path()).unwrap();
        assert!(scoped.remove_dir_all("link/keep").is_err());
        assert!(scoped.remove_dir_all("tree").unwrap());
        assert!(scoped.remove_dir_all("link").unwrap());
        assert!(!scoped.remove_dir_all("nothing/there").unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(outside.path().join("keep").is_file());
    }

    #[test]
    fn entries_report_kinds_without_following_links() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        fs::create_dir(dir.path().join("dir")).unwrap();
        symlink("file", dir.path().join("link")).unwrap();
        nix::unistd::mkfifo(&dir.path().join("pipe"), Mode::S_IRWXU).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
        let scoped = ScopedDir::open(dir.path()).unwrap();
        let mut entries = scoped.entries().unwrap();
        entries.sort();
        let expected = [
            ("dir", FileKind::Directory),
            ("file", FileKind::File),
            ("link", FileKind::Symlink),
            ("pipe", FileKind::Special),
            ("socket", FileKind::Socket),
        ];
        assert_eq!(entries, expected.map(|(name, kind)| (name.into(), kind)));
        for name in ["dir", "link", "pipe", "socket"] {
            assert!(scoped.open_or_create(name).is_err(), "{name}");
            assert!(scoped.create_new(name).is_err(), "{name}");
        }
        assert!(
            scoped
                .dir("link", None)
                .unwrap_err()
                .to_string()
                .contains("is a symbolic link")
        );
    }

    #[test]
    fn ignored_dir_always_has_gitignore_all() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let traces = dir.path().join(".ktx/ingest-traces");
        fs::create_dir_all(&traces).unwrap();
        fs::write(traces.join(".gitignore"), "!*\n").unwrap();
        create_ignored_dir(dir.path(), &traces).unwrap();
        assert_eq!(fs::read(traces.join(".gitignore")).unwrap(), GITIGNORE_ALL);
        let ignore = dir.path().join(STATE_DIR).join(".gitignore");
        state_dir(dir.path()).unwrap();
        assert_eq!(fs::read(&ignore).unwrap(), GITIGNORE_ALL);
        fs::write(&ignore, "!*\n").unwrap();
        state_dir(dir.path()).unwrap();
        assert_eq!(fs::read(&ignore).unwrap(), GITIGNORE_ALL);
        fs::write(outside.path().join("target"), "").unwrap();
        fs::remove_file(&ignore).unwrap();
        symlink(outside.path().join("target"), &ignore).unwrap();
        state_dir(dir.path()).unwrap();
        assert!(
            !ignore.is_symlink() && fs::read(outside.path().join("target")).unwrap().is_empty()
        );
    }

    #[test]
    fn missing_descriptors_are_found_below_other_errors() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] io::Error);
        let system = |errno: Errno| io::Error::from_raw_os_error(errno as i32);
        assert!(
            is_out_of_files(&system(Errno::EMFILE))
                && is_out_of_files(&Outer(system(Errno::ENFILE)))
        );
        assert!(is_out_of_files(&io::Error::other(Outer(system(
            Errno::EMFILE
        )))));
        assert!(
            !is_out_of_files(&Outer(system(Errno::EACCES)))
                && !is_out_of_files(&io::Error::other("EMFILE"))
        );
    }

    #[test]
    fn named_pipe_does_not_block_the_reader() {
        let dir = tempfile::tempdir().unwrap();
        nix::unistd::mkfifo(&dir.path().join("pipe"), Mode::S_IRWXU).unwrap();
        let error = ScopedDir::open(dir.path())
            .unwrap()
            .read("pipe", 10)
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn hostile_relative_path_never_escapes(
            parts in prop::collection::vec(prop::sample::select(vec!["..", ".", "", "inside", "/", "neighbour", "a\0b", "link"]), 1..6),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let inside = dir.path().join("inside");
            fs::create_dir(&inside).unwrap();
            fs::create_dir(dir.path().join("neighbour")).unwrap();
            symlink(dir.path().join("neighbour"), inside.join("link")).unwrap();
            let path = parts.join("/");
            let folder = ScopedDir::open(&inside).unwrap();
            let _ = folder.write(&path, b"x", PRIVATE_MODE, 0o600);
            let _ = folder.write(&format!("{path}/leaf"), b"x", PRIVATE_MODE, 0o600);
            prop_assert_eq!(fs::read_dir(dir.path().join("neighbour")).unwrap().count(), 0);
            prop_assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        }
    }
}
