//! A workspace that outlasts its process: what is written is found again, removals included.
//!
//! Files lie where they would lie in the project; what was removed stands in a list beside them. It must not know who
//! writes.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
};

use super::{Change, WRITABLE, is_writable, print_at};
use crate::scoped_dir::{self, PRIVATE, ScopedDir};

/// The list of removed files, one path a line.
const REMOVED: &str = ".removed";
/// Held by the one process that uses the directory.
const LOCK: &str = ".lock";
/// Most files that are taken over.
const MOST: usize = 100_000;

/// Opens `dir`, made if it is missing: its path without links, its lock, and what was changed there.
pub(super) fn open(project: &Path, dir: &Path) -> io::Result<(PathBuf, File, BTreeMap<String, Change>)> {
    use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
    fs::DirBuilder::new().recursive(true).mode(PRIVATE).create(dir)?;
    let tree = dir.canonicalize()?;
    let project = project.canonicalize()?;
    let is_mirrored = WRITABLE.iter().any(|folder| tree.starts_with(project.join(folder)));
    if tree == project || is_mirrored {
        return Err(refused("it is a part of the project; name a directory of its own"));
    }
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(nix::fcntl::OFlag::O_NOFOLLOW.bits())
        .open(tree.join(LOCK))?;
    lock.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => refused("another process writes there; end it or name another directory"),
        TryLockError::Error(error) => error,
    })?;
    let changes = found(&project, &tree)?;
    Ok((tree, lock, changes))
}

/// What earlier processes left in `tree`.
fn found(project: &Path, tree: &Path) -> io::Result<BTreeMap<String, Change>> {
    let mut changes = BTreeMap::new();
    let mut folders: Vec<String> = WRITABLE.iter().map(|folder| folder.trim_end_matches('/').to_owned()).collect();
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(tree.join(&folder)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        for entry in entries {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = format!("{folder}/{name}");
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && !name.starts_with('.') {
                let change = Change { base: print_at(project, &path)?, now: print_at(tree, &path)? };
                changes.insert(path, change);
            }
            if changes.len() + folders.len() > MOST {
                return Err(refused("it holds too many files to be a workspace; name a directory of its own"));
            }
        }
    }
    let removed = ScopedDir::open(tree)?.read_if_there(REMOVED, super::LARGEST)?.unwrap_or_default();
    for path in String::from_utf8_lossy(&removed).lines().filter(|path| is_writable(path)) {
        if scoped_dir::check(path).is_ok() && !changes.contains_key(path) {
            let base = print_at(project, path)?;
            if base.is_some() {
                changes.insert(path.to_owned(), Change { base, now: None });
            }
        }
    }
    Ok(changes)
}

/// Writes the list of what `changes` removed.
pub(super) fn note(tree: &Path, changes: &BTreeMap<String, Change>) -> io::Result<()> {
    let removed = changes.iter().filter(|(_, change)| change.now.is_none()).map(|(path, _)| format!("{path}\n"));
    ScopedDir::open(tree)?.write(REMOVED, removed.collect::<String>().as_bytes(), PRIVATE, 0o600)
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
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
    fn what_was_written_and_removed_is_found_again() {
        let (_dir, project, work) = project();
        let first = Workspace::lasting(&project, &work).unwrap();
        first.write(NEW, b"new").unwrap();
        first.read(OLD).unwrap();
        first.remove(OLD).unwrap();
        drop(first);
        assert_eq!(fs::read(work.join(NEW)).unwrap(), b"new");
        let second = Workspace::lasting(&project, &work).unwrap();
        assert_eq!((second.read(NEW).unwrap().unwrap(), second.read(OLD).unwrap()), (b"new".to_vec(), None));
        assert_eq!(second.names("wiki/global", ".md").unwrap(), [] as [&str; 0]);
        second.write(OLD, b"again").unwrap();
        second.revert(NEW).unwrap();
        drop(second);
        let third = Workspace::lasting(&project, &work).unwrap();
        assert_eq!((third.read(NEW).unwrap(), third.read(OLD).unwrap().unwrap()), (None, b"again".to_vec()));
        assert_eq!(fs::read(project.join(OLD)).unwrap(), b"old");
    }

    #[test]
    fn two_at_once_and_the_project_itself_are_refused() {
        let (_dir, project, work) = project();
        let _first = Workspace::lasting(&project, &work).unwrap();
        let refusal = |dir: &Path| Workspace::lasting(&project, dir).unwrap_err().to_string();
        assert_eq!(refusal(&work), "another process writes there; end it or name another directory");
        for dir in
            [project.clone(), project.join("wiki"), project.join("wiki/global/x"), project.join("semantic-layer")]
        {
            assert!(refusal(&dir).starts_with("it is a part of the project"), "{}", dir.display());
        }
        assert!(Workspace::lasting(&project, &project.join(OLD)).is_err(), "a file");
    }

    #[test]
    fn links_and_a_hostile_list_lead_nowhere() {
        let (dir, project, work) = project();
        let outside = dir.path().join("outside");
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("s.md"), "secret").unwrap();
        fs::create_dir_all(work.join("wiki")).unwrap();
        std::os::unix::fs::symlink(&outside, work.join("wiki/global")).unwrap();
        fs::write(
            work.join(REMOVED),
            "../outside/s.md\nwiki/../../outside/s.md\n/etc/passwd\nktx.yaml\nwiki/global/old.md\n",
        )
        .unwrap();
        let space = Workspace::lasting(&project, &work).unwrap();
        let changed: Vec<_> = space.changes().into_keys().collect();
        assert_eq!(changed, [OLD]);
        assert!(space.write("wiki/global/x.md", b"x").is_err());
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
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
