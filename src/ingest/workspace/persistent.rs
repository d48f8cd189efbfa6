//! A persistent workspace, which restores earlier changes, including removals, when it is opened again.
//!
//! Its files have the same relative paths as in the project; removed files are listed in an additional file. This
//! module must not know the writer.

#![expect(
    clippy::disallowed_methods,
    reason = "the directory that --workspace names"
)]

use std::{
    collections::BTreeMap,
    io,
    path::{Component, Path},
};

use super::{WRITABLE_DIRS, WorkspaceChange, hash_file, is_writable};
use ingestdeck_os::scoped_dir::{self, FileKind, FileLock, PRIVATE_MODE, ScopedDir};

/// The list of removed files, one path per line.
const REMOVED_FILE: &str = ".removed";
/// Lock of the process that uses the directory.
const LOCK_FILE: &str = ".lock";
/// Most existing files that are restored as changes.
const MAX_FILES: usize = 100_000;

/// Opens `dir`, creating it if it is missing. Returns the directory, its lock, and the earlier changes in it.
pub(super) fn open(
    project: &Path,
    dir: &Path,
) -> io::Result<(ScopedDir, FileLock, BTreeMap<String, WorkspaceChange>)> {
    let tree = open_or_create(project, dir)?;
    let (real, real_project) = (dir.canonicalize()?, project.canonicalize()?);
    let is_mirrored = WRITABLE_DIRS
        .iter()
        .any(|folder| real.starts_with(real_project.join(folder)));
    if real == real_project || is_mirrored {
        return Err(invalid_dir(
            "it is a part of the project; choose a separate directory",
        ));
    }
    let lock = tree.try_lock(LOCK_FILE)?;
    let lock = lock.ok_or_else(|| {
        invalid_dir("another process writes there; stop it or choose another directory")
    })?;
    let changes = scan_changes(&ScopedDir::open(project)?, &tree)?;
    Ok((tree, lock, changes))
}

/// Opens `dir`. Links below the project are not followed because they may come from a clone. Missing directories are
/// created accessible to the owner only.
fn open_or_create(project: &Path, dir: &Path) -> io::Result<ScopedDir> {
    let (dir, project) = (std::path::absolute(dir)?, std::path::absolute(project)?);
    let is_plain = |below: &Path| {
        below
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
    };
    let (above, opened) = match dir.strip_prefix(&project) {
        Ok(below) if is_plain(below) => (project.as_path(), ScopedDir::open(&project)?),
        _ => nearest(&dir)?,
    };
    let rest = dir.strip_prefix(above).ok().and_then(Path::to_str);
    opened.dir(
        rest.ok_or_else(|| invalid_dir("its name is not UTF-8"))?,
        Some(PRIVATE_MODE),
    )
}

/// The nearest existing directory among `dir` and its ancestors.
fn nearest(dir: &Path) -> io::Result<(&Path, ScopedDir)> {
    for above in dir.ancestors() {
        match ScopedDir::open(above) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened.map(|opened| (above, opened)),
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// Changes that earlier processes made in `tree`.
fn scan_changes(
    project: &ScopedDir,
    tree: &ScopedDir,
) -> io::Result<BTreeMap<String, WorkspaceChange>> {
    let mut changes = BTreeMap::new();
    let mut folders: Vec<String> = WRITABLE_DIRS
        .iter()
        .map(|folder| folder.trim_end_matches('/').to_owned())
        .collect();
    while let Some(folder) = folders.pop() {
        let Some(listed) = tree.dir_if_exists(&folder)? else {
            continue;
        };
        for (name, kind) in listed.entries()? {
            let Ok(name) = name.into_string() else {
                continue;
            };
            let path = format!("{folder}/{name}");
            if kind == FileKind::Directory {
                folders.push(path);
            } else if kind == FileKind::File && !name.starts_with('.') {
                let change = WorkspaceChange {
                    base_hash: hash_file(project, &path)?,
                    new_hash: hash_file(tree, &path)?,
                };
                changes.insert(path, change);
            }
            if changes.len() + folders.len() > MAX_FILES {
                return Err(invalid_dir(
                    "it contains too many files for a workspace; choose a separate directory",
                ));
            }
        }
    }
    let removed = tree
        .read_if_exists(REMOVED_FILE, super::MAX_FILE_BYTES)?
        .unwrap_or_default();
    for path in String::from_utf8_lossy(&removed)
        .lines()
        .filter(|path| is_writable(path))
    {
        if scoped_dir::validate_relative_path(path).is_ok() && !changes.contains_key(path) {
            let base = hash_file(project, path)?;
            if base.is_some() {
                changes.insert(
                    path.to_owned(),
                    WorkspaceChange {
                        base_hash: base,
                        new_hash: None,
                    },
                );
            }
        }
    }
    Ok(changes)
}

/// Writes the list of files that `changes` removed.
pub(super) fn write_removals(
    tree: &ScopedDir,
    changes: &BTreeMap<String, WorkspaceChange>,
) -> io::Result<()> {
    let removed = changes
        .iter()
        .filter(|(_, change)| change.new_hash.is_none())
        .map(|(path, _)| format!("{path}\n"));
    tree.write(
        REMOVED_FILE,
        removed.collect::<String>().as_bytes(),
        PRIVATE_MODE,
        0o600,
    )
}

fn invalid_dir(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use super::super::{Workspace, WriteError};
    use super::*;

    const OLD: &str = "wiki/global/old.md";
    const NEW: &str = "semantic-layer/shop/new.yaml";

    fn project() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let (project, work) = (dir.path().join("project"), dir.path().join("deep/work"));
        fs::create_dir_all(project.join("wiki/global")).unwrap();
        fs::create_dir_all(project.join("semantic-layer")).unwrap();
        fs::write(project.join(OLD), "old").unwrap();
        (dir, project, work)
    }

    #[test]
    fn reopened_workspace_keeps_writes_and_removals() {
        let (_dir, project, work) = project();
        let first = Workspace::open_persistent(&project, &work).unwrap();
        first.write(NEW, b"new").unwrap();
        first.read(OLD).unwrap();
        first.remove(OLD).unwrap();
        drop(first);
        assert_eq!(fs::read(work.join(NEW)).unwrap(), b"new");
        let second = Workspace::open_persistent(&project, &work).unwrap();
        assert_eq!(
            (
                second.read(NEW).unwrap().unwrap(),
                second.read(OLD).unwrap()
            ),
            (b"new".to_vec(), None)
        );
        assert_eq!(second.names("wiki/global", ".md").unwrap(), [] as [&str; 0]);
        second.write(OLD, b"again").unwrap();
        second.revert(NEW).unwrap();
        drop(second);
        let third = Workspace::open_persistent(&project, &work).unwrap();
        assert_eq!(
            (third.read(NEW).unwrap(), third.read(OLD).unwrap().unwrap()),
            (None, b"again".to_vec())
        );
        assert_eq!(fs::read(project.join(OLD)).unwrap(), b"old");
    }

    #[test]
    fn second_open_and_project_dir_are_rejected() {
        let (_dir, project, work) = project();
        let _first = Workspace::open_persistent(&project, &work).unwrap();
        let refusal = |dir: &Path| {
            Workspace::open_persistent(&project, dir)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            refusal(&work),
            "another process writes there; stop it or choose another directory"
        );
        for dir in [
            project.clone(),
            project.join("wiki"),
            project.join("wiki/global/x"),
            project.join("semantic-layer"),
        ] {
            assert!(
                refusal(&dir).starts_with("it is a part of the project"),
                "{}",
                dir.display()
            );
        }
        assert!(
            Workspace::open_persistent(&project, &project.join(OLD)).is_err(),
            "a file"
        );
    }

    #[test]
    fn links_and_hostile_removal_list_are_ignored() {
        let (dir, project, work) = project();
        let outside = dir.path().join("outside");
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("s.md"), "secret").unwrap();
        fs::create_dir_all(work.join("wiki")).unwrap();
        std::os::unix::fs::symlink(&outside, work.join("wiki/global")).unwrap();
        fs::write(
            work.join(REMOVED_FILE),
            "../outside/s.md\nwiki/../../outside/s.md\n/etc/passwd\nktx.yaml\nwiki/global/old.md\n",
        )
        .unwrap();
        let space = Workspace::open_persistent(&project, &work).unwrap();
        let changed: Vec<_> = space.changes().into_keys().collect();
        assert_eq!(changed, [OLD]);
        assert!(space.write("wiki/global/x.md", b"x").is_err());
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    }

    #[test]
    fn project_link_is_rejected_as_workspace() {
        let (dir, project, _) = project();
        let outside = dir.path().join("outside");
        fs::create_dir_all(&outside).unwrap();
        std::os::unix::fs::symlink(&outside, project.join("tools")).unwrap();
        for dir in ["tools", "tools/deep"] {
            let error = Workspace::open_persistent(&project, &project.join(dir)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotADirectory, "{dir}: {error}");
        }
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        // A link that the user named is followed.
        std::os::unix::fs::symlink(&outside, dir.path().join("named")).unwrap();
        Workspace::open_persistent(&project, &dir.path().join("named/deep")).unwrap();
        assert!(outside.join("deep/.lock").exists());
    }

    #[test]
    fn without_a_workspace_nothing_is_written() {
        let (_dir, project, _) = project();
        let space = Workspace::read_only(&project);
        assert_eq!(space.read(OLD).unwrap().unwrap(), b"old");
        assert!(matches!(space.write(OLD, b"x"), Err(WriteError::ReadOnly)));
        assert!(matches!(space.remove(OLD), Err(WriteError::ReadOnly)));
        drop(space);
        assert_eq!(fs::read(project.join(OLD)).unwrap(), b"old");
    }
}
