//! A workspace that outlasts its process: what is written is found again, removals included.
//!
//! Files lie where they would lie in the project; what was removed stands in a list beside them. It must not know who
//! writes.

use std::{
    collections::BTreeMap,
    io,
    path::{Component, Path},
};

use super::{Change, WRITABLE, is_writable, print_at};
use crate::scoped_dir::{self, FileKind, FileLock, PRIVATE, ScopedDir};

/// The list of removed files, one path a line.
const REMOVED: &str = ".removed";
/// Held by the one process that uses the directory.
const LOCK: &str = ".lock";
/// Most files that are taken over.
const MOST: usize = 100_000;

/// Opens `dir`, made if it is missing: the directory, its lock, and what was changed there.
pub(super) fn open(project: &Path, dir: &Path) -> io::Result<(ScopedDir, FileLock, BTreeMap<String, Change>)> {
    let tree = open_or_create(project, dir)?;
    let (real, real_project) = (dir.canonicalize()?, project.canonicalize()?);
    let is_mirrored = WRITABLE.iter().any(|folder| real.starts_with(real_project.join(folder)));
    if real == real_project || is_mirrored {
        return Err(refused("it is a part of the project; name a directory of its own"));
    }
    let lock = tree.try_lock(LOCK)?;
    let lock = lock.ok_or_else(|| refused("another process writes there; end it or name another directory"))?;
    let changes = found(&ScopedDir::open(project)?, &tree)?;
    Ok((tree, lock, changes))
}

/// Opens `dir`. Links below the project are not followed: a clone may have brought them. What is missing is made for the
/// owner alone.
fn open_or_create(project: &Path, dir: &Path) -> io::Result<ScopedDir> {
    let (dir, project) = (std::path::absolute(dir)?, std::path::absolute(project)?);
    let is_plain = |below: &Path| below.components().all(|part| matches!(part, Component::Normal(_)));
    let (above, opened) = match dir.strip_prefix(&project) {
        Ok(below) if is_plain(below) => (project.as_path(), ScopedDir::open(&project)?),
        _ => nearest(&dir)?,
    };
    let rest = dir.strip_prefix(above).ok().and_then(Path::to_str);
    opened.dir(rest.ok_or_else(|| refused("its name is not UTF-8"))?, Some(PRIVATE))
}

/// The nearest of `dir` and the directories above it that exists.
fn nearest(dir: &Path) -> io::Result<(&Path, ScopedDir)> {
    for above in dir.ancestors() {
        match ScopedDir::open(above) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened.map(|opened| (above, opened)),
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// What earlier processes left in `tree`.
fn found(project: &ScopedDir, tree: &ScopedDir) -> io::Result<BTreeMap<String, Change>> {
    let mut changes = BTreeMap::new();
    let mut folders: Vec<String> = WRITABLE.iter().map(|folder| folder.trim_end_matches('/').to_owned()).collect();
    while let Some(folder) = folders.pop() {
        let Some(listed) = tree.dir_if_there(&folder)? else { continue };
        for (name, kind) in listed.entries()? {
            let Ok(name) = name.into_string() else { continue };
            let path = format!("{folder}/{name}");
            if kind == FileKind::Directory {
                folders.push(path);
            } else if kind == FileKind::File && !name.starts_with('.') {
                let change = Change { base: print_at(project, &path)?, now: print_at(tree, &path)? };
                changes.insert(path, change);
            }
            if changes.len() + folders.len() > MOST {
                return Err(refused("it holds too many files to be a workspace; name a directory of its own"));
            }
        }
    }
    let removed = tree.read_if_there(REMOVED, super::LARGEST)?.unwrap_or_default();
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
pub(super) fn note(tree: &ScopedDir, changes: &BTreeMap<String, Change>) -> io::Result<()> {
    let removed = changes.iter().filter(|(_, change)| change.now.is_none()).map(|(path, _)| format!("{path}\n"));
    tree.write(REMOVED, removed.collect::<String>().as_bytes(), PRIVATE, 0o600)
}

fn refused(why: &str) -> io::Error {
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
    fn what_was_written_and_removed_is_found_again() {
        let (_dir, project, work) = project();
        let first = Workspace::persistent(&project, &work).unwrap();
        first.write(NEW, b"new").unwrap();
        first.read(OLD).unwrap();
        first.remove(OLD).unwrap();
        drop(first);
        assert_eq!(fs::read(work.join(NEW)).unwrap(), b"new");
        let second = Workspace::persistent(&project, &work).unwrap();
        assert_eq!((second.read(NEW).unwrap().unwrap(), second.read(OLD).unwrap()), (b"new".to_vec(), None));
        assert_eq!(second.names("wiki/global", ".md").unwrap(), [] as [&str; 0]);
        second.write(OLD, b"again").unwrap();
        second.revert(NEW).unwrap();
        drop(second);
        let third = Workspace::persistent(&project, &work).unwrap();
        assert_eq!((third.read(NEW).unwrap(), third.read(OLD).unwrap().unwrap()), (None, b"again".to_vec()));
        assert_eq!(fs::read(project.join(OLD)).unwrap(), b"old");
    }

    #[test]
    fn two_at_once_and_the_project_itself_are_refused() {
        let (_dir, project, work) = project();
        let _first = Workspace::persistent(&project, &work).unwrap();
        let refusal = |dir: &Path| Workspace::persistent(&project, dir).unwrap_err().to_string();
        assert_eq!(refusal(&work), "another process writes there; end it or name another directory");
        for dir in
            [project.clone(), project.join("wiki"), project.join("wiki/global/x"), project.join("semantic-layer")]
        {
            assert!(refusal(&dir).starts_with("it is a part of the project"), "{}", dir.display());
        }
        assert!(Workspace::persistent(&project, &project.join(OLD)).is_err(), "a file");
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
        let space = Workspace::persistent(&project, &work).unwrap();
        let changed: Vec<_> = space.changes().into_keys().collect();
        assert_eq!(changed, [OLD]);
        assert!(space.write("wiki/global/x.md", b"x").is_err());
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    }

    #[test]
    fn a_link_of_the_project_is_no_workspace() {
        let (dir, project, _) = project();
        let outside = dir.path().join("outside");
        fs::create_dir_all(&outside).unwrap();
        std::os::unix::fs::symlink(&outside, project.join("tools")).unwrap();
        for dir in ["tools", "tools/deep"] {
            let error = Workspace::persistent(&project, &project.join(dir)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotADirectory, "{dir}: {error}");
        }
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        // One that the user named is followed.
        std::os::unix::fs::symlink(&outside, dir.path().join("named")).unwrap();
        Workspace::persistent(&project, &dir.path().join("named/deep")).unwrap();
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
