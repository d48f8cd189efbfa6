//! The file of `--out`, which only its owner may read.

#![expect(
    clippy::disallowed_methods,
    reason = "the file that --out names, which is checked there"
)]

use std::{
    fs::{File, OpenOptions, Permissions},
    io,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf, absolute},
};

use nix::errno::Errno;

use crate::cli::exit;
use ingestdeck_core::diagnostic::Problem;

const PRIVATE_MODE: u32 = 0o600;

/// The path of `--out`; `None` for stdout, which is also written as `-`.
pub(in crate::cli) fn target_path(out: Option<&Path>) -> Option<&Path> {
    out.filter(|path| path.as_os_str() != "-")
}

/// Opens `path` for writing, empty and with mode 0600 regardless of the umask. An existing file is made private before
/// anything is written to it. If its mode cannot be changed, because another user owns it, the function prints a
/// warning. A symbolic link within `project` is refused, also in the middle of `path`, because a clone may contain it.
/// A pipe or a device is written to as it is.
pub(in crate::cli) fn create(path: &Path, project: Option<&Path>) -> io::Result<File> {
    if let Some(link) = project.and_then(|project| link_within(path, project)) {
        let why = format!("{} is a symbolic link within the project", link.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(PRIVATE_MODE)
        .open(path)?;
    if file.metadata()?.is_file() {
        match file.set_permissions(Permissions::from_mode(PRIVATE_MODE)) {
            // A file of another user, or a file system without modes.
            Err(error) if error.raw_os_error() == Some(Errno::EPERM as i32) => {
                if let Some(warning) =
                    exposed_mode_warning(path, file.metadata()?.permissions().mode())
                {
                    exit::print_warning(&warning);
                }
            }
            done => done?,
        }
        file.set_len(0)?;
    }
    Ok(file)
}

/// The warning about a file that keeps `mode`; `None` if only its owner has access.
fn exposed_mode_warning(path: &Path, mode: u32) -> Option<Problem> {
    let (path, mode) = (path.display(), mode & 0o777);
    (mode & 0o077 != 0).then(|| {
        Problem::new(format!(
            "{path} keeps its mode {mode:03o}, so other users can access it"
        ))
        .with_help("name a file that you own")
    })
}

/// The first component of `path` that is a symbolic link in a directory of `project`.
fn link_within(path: &Path, project: &Path) -> Option<PathBuf> {
    let (path, project) = (absolute(path).ok()?, project.canonicalize().ok()?);
    let mut prefixes: Vec<&Path> = path.ancestors().collect();
    prefixes.reverse();
    let is_shipped_link = |prefix: &&&Path| {
        prefix
            .symlink_metadata()
            .is_ok_and(|meta| meta.is_symlink())
            && prefix
                .parent()
                .and_then(|parent| parent.canonicalize().ok())
                .is_some_and(|real| real.starts_with(&project))
    };
    prefixes
        .iter()
        .find(is_shipped_link)
        .map(|link| link.to_path_buf())
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write as _, os::unix::fs::symlink};

    use super::*;
    use ingestdeck_core::diagnostic::Diagnostic as _;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn created_file_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        create(&path, None)
            .unwrap()
            .write_all(b"long text")
            .unwrap();
        assert_eq!(
            (mode(&path), fs::read(&path).unwrap()),
            (0o600, b"long text".to_vec())
        );
        fs::set_permissions(&path, Permissions::from_mode(0o664)).unwrap();
        create(&path, Some(dir.path()))
            .unwrap()
            .write_all(b"new")
            .unwrap();
        assert_eq!(
            (mode(&path), fs::read(&path).unwrap()),
            (0o600, b"new".to_vec()),
            "an existing file is made private"
        );
    }

    #[test]
    fn link_is_followed_outside_the_project_only() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let target = outside.path().join("target");
        fs::write(&target, "kept").unwrap();
        let link = dir.path().join("link");
        symlink(&target, &link).unwrap();
        let error = create(&link, Some(dir.path())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(fs::read(&target).unwrap(), b"kept");
        // The link to the project's directory leads to the same file.
        let way = outside.path().join("way");
        symlink(dir.path(), &way).unwrap();
        assert!(create(&way.join("link"), Some(dir.path())).is_err());
        // A linked directory on the path.
        symlink(outside.path(), dir.path().join("reports")).unwrap();
        for path in ["reports/out", "./reports/../reports/out"] {
            let error = create(&dir.path().join(path), Some(dir.path())).unwrap_err();
            assert!(
                error
                    .to_string()
                    .contains("reports is a symbolic link within the project"),
                "{error}"
            );
        }
        assert!(!outside.path().join("out").exists());
        create(&dir.path().join("out"), Some(dir.path())).unwrap();
        create(&link, Some(outside.path())).unwrap();
        assert_eq!(
            (mode(&target), fs::read(&target).unwrap()),
            (0o600, Vec::new())
        );
    }

    #[test]
    fn world_readable_mode_is_reported() {
        let warning = exposed_mode_warning(Path::new("out"), 0o100_644).unwrap();
        assert_eq!(
            warning.to_line(),
            "out keeps its mode 644, so other users can access it; name a file that you own"
        );
        assert_eq!(exposed_mode_warning(Path::new("out"), 0o100_700), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn file_whose_mode_cannot_change_is_written_to() {
        // The kernel determines its mode, also for root.
        let path = Path::new("/proc/thread-self/comm");
        let refused = fs::set_permissions(path, Permissions::from_mode(PRIVATE_MODE)).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::EPERM as i32));
        create(path, None).unwrap();
        assert_eq!(mode(path), 0o644);
    }

    #[test]
    fn device_is_written_to_as_it_is() {
        let before = mode(Path::new("/dev/null"));
        create(Path::new("/dev/null"), None)
            .unwrap()
            .write_all(b"x")
            .unwrap();
        assert_eq!(mode(Path::new("/dev/null")), before);
    }
}
