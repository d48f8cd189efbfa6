//! Where the control socket of a run is: in a private directory of the user, under the id of the run.
//!
//! The path follows from the id, so a run directory that came with a clone cannot lead a client elsewhere.

#![expect(
    clippy::disallowed_methods,
    reason = "private directories of the user for sockets"
)]

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use nix::unistd::Uid;

use ingestdeck_core::tape::RunId;

/// Longest path of a socket, in bytes: 103 on macOS, 107 on Linux.
const MAX_SOCKET_PATH: usize = 103;

/// Directories that may hold sockets, most preferred first. The environment can differ between two logins, so clients
/// look at all of them.
fn candidate_dirs() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute());
    let temporary = [std::env::temp_dir(), PathBuf::from("/tmp")]
        .into_iter()
        .filter(|dir| dir.is_absolute());
    let of_user = temporary.map(|dir| dir.join(format!("ingestdeck-{}", Uid::current())));
    runtime
        .map(|dir| dir.join("ingestdeck"))
        .into_iter()
        .chain(of_user)
        .collect()
}

fn socket_in(dir: &Path, run: RunId) -> Option<PathBuf> {
    let path = dir.join(format!("{run}.sock"));
    (path.as_os_str().len() <= MAX_SOCKET_PATH).then_some(path)
}

/// The path for a new socket; its directory exists and is private.
///
/// # Errors
/// If no directory is usable.
pub(super) fn new_socket_path(run: RunId) -> io::Result<PathBuf> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no directory for sockets");
    for dir in candidate_dirs() {
        let Some(path) = socket_in(&dir, run) else {
            continue;
        };
        match create_private_dir(&dir) {
            Ok(()) => return Ok(path),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The paths at which the socket of a run may be, in private directories of the user.
pub(super) fn existing_socket_paths(run: RunId) -> Vec<PathBuf> {
    let dirs = candidate_dirs();
    dirs.iter()
        .filter(|dir| is_private_dir(dir).is_ok())
        .filter_map(|dir| socket_in(dir, run))
        .collect()
}

fn create_private_dir(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => is_private_dir(dir),
    }
}

/// Another user must not own the directory or write to it, and it must not be a link.
fn is_private_dir(dir: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(dir)?;
    let is_private = metadata.is_dir()
        && metadata.uid() == Uid::current().as_raw()
        && metadata.mode() & 0o077 == 0;
    let refusal = || {
        io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{} is not a private directory", dir.display()),
        )
    };
    is_private.then_some(()).ok_or_else(refusal)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn shared_or_linked_directories_are_refused() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("sockets");
        create_private_dir(&dir).unwrap();
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, 0o700);
        create_private_dir(&dir).unwrap();
        let link = parent.path().join("link");
        symlink(&dir, &link).unwrap();
        assert_eq!(
            create_private_dir(&link).unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o770)).unwrap();
        assert_eq!(
            create_private_dir(&dir).unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
    }

    #[test]
    fn long_directories_have_no_socket_path() {
        let run = RunId::parse("019abcde-0000-7000-8000-000000000001").unwrap();
        assert!(socket_in(Path::new("/run/user/1000/ingestdeck"), run).is_some());
        assert!(socket_in(&Path::new("/run").join("d".repeat(80)), run).is_none());
    }
}
