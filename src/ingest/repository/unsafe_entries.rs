//! Detects unsafe entries in places that git opens by itself, in a repository and in its working tree: a link, which
//! git would follow, and a named pipe or device, on which it would block.
//!
//! Other entries are allowed: `.git/lfs` may be a link, and a monitor may have a socket next to the index. This module
//! must not know the content of the files.

use std::io;

use ingestdeck_os::scoped_dir::{FileKind, ScopedDir};

/// Directories of `.git` in which git opens files, with the depth to which they are checked.
const CHECKED_GIT_DIRS: &[(&str, usize)] = &[
    ("refs", 32),
    ("logs", 32),
    ("worktrees", 32),
    ("reftable", 1),
    ("info", 1),
    ("objects", 2),
];

/// Other entries of `.git` that git or a run opens.
const OPENED_BY_GIT: &[&str] = &[
    "index",
    "packed-refs",
    "config",
    "config.worktree",
    "shallow",
    "commondir",
    "modules",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
    "ingestdeck",
];

/// Prefixes of further file names that git opens.
const OPENED_PREFIXES: &[&str] = &[
    "sharedindex.",
    "MERGE_",
    "AUTO_MERGE",
    "BISECT_",
    "SQUASH_MSG",
    "COMMIT_EDITMSG",
];

/// Files of a working tree that git opens in every directory that it visits.
const OPENED_EVERYWHERE: &[&str] = &[".gitattributes", ".gitignore", ".gitmodules"];

/// Files that git opens at the top of a working tree.
const OPENED_AT_TOP: &[&str] = &[".mailmap"];

/// Directories of the project in which these files are checked, with the depth of the check.
const CHECKED_PROJECT_DIRS: &[(&str, usize)] = &[
    ("", 0),
    ("wiki", 32),
    ("semantic-layer", 32),
    ("raw-sources", 4),
];

/// An entry that must not exist.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UnsafeEntry {
    /// A symbolic link, which git would follow.
    SymbolicLink {
        /// Relative to the project.
        path: String,
    },
    /// A named pipe or device, on which git would block.
    NamedPipe {
        /// Relative to the project.
        path: String,
    },
}

impl UnsafeEntry {
    fn new(path: String, kind: FileKind) -> Option<Self> {
        match kind {
            FileKind::Symlink => Some(Self::SymbolicLink { path }),
            FileKind::Special => Some(Self::NamedPipe { path }),
            // A socket cannot be opened, and git continues without it.
            FileKind::File | FileKind::Directory | FileKind::Socket => None,
        }
    }
}

/// The first unsafe entry of the project `top`, whose repository is in its directory `git_dir`.
pub(super) fn find_unsafe_entry(top: &ScopedDir, git_dir: &str) -> io::Result<Option<UnsafeEntry>> {
    match find_in_git_dir(top, git_dir)? {
        None => find_in_working_tree(top),
        found => Ok(found),
    }
}

fn find_in_git_dir(top: &ScopedDir, git_dir: &str) -> io::Result<Option<UnsafeEntry>> {
    let git = top.dir(git_dir, None)?;
    for (name, kind) in git.entries()? {
        let name = name.to_string_lossy();
        if let Some(refused) =
            UnsafeEntry::new(format!("{git_dir}/{name}"), kind).filter(|_| is_opened(&name))
        {
            return Ok(Some(refused));
        }
    }
    let mut open: Vec<(String, ScopedDir, usize)> = Vec::new();
    for (name, depth) in CHECKED_GIT_DIRS {
        open.extend(
            git.dir_if_exists(name)?
                .map(|dir| (format!("{git_dir}/{name}"), dir, *depth)),
        );
    }
    while let Some((path, dir, depth)) = open.pop() {
        for (name, kind) in dir.entries()? {
            if matches!(kind, FileKind::Symlink | FileKind::Special) {
                return Ok(UnsafeEntry::new(
                    format!("{path}/{}", name.to_string_lossy()),
                    kind,
                ));
            }
            if let Some(name) = name
                .to_str()
                .filter(|_| kind == FileKind::Directory && depth > 0)
            {
                // An entry may be removed during the check.
                open.extend(
                    dir.dir_if_exists(name)?
                        .map(|inner| (format!("{path}/{name}"), inner, depth - 1)),
                );
            }
        }
    }
    Ok(None)
}

/// Whether git opens the entry `name` of `.git`. Some file systems do not distinguish case.
fn is_opened(name: &str) -> bool {
    let begins = |beginning: &&str| {
        name.get(..beginning.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(beginning))
    };
    let is_head = name
        .len()
        .checked_sub("HEAD".len())
        .and_then(|at| name.get(at..));
    let mut names = OPENED_BY_GIT
        .iter()
        .copied()
        .chain(CHECKED_GIT_DIRS.iter().map(|(name, _)| *name));
    is_head.is_some_and(|end| end.eq_ignore_ascii_case("HEAD"))
        || names.any(|opened| opened.eq_ignore_ascii_case(name))
        || OPENED_PREFIXES.iter().any(begins)
}

/// Finds a named pipe or device in place of a file that git opens in the working tree below `top`.
fn find_in_working_tree(top: &ScopedDir) -> io::Result<Option<UnsafeEntry>> {
    let mut open: Vec<(String, usize)> = CHECKED_PROJECT_DIRS
        .iter()
        .map(|(path, depth)| ((*path).to_owned(), *depth))
        .collect();
    while let Some((path, depth)) = open.pop() {
        // A path that is not a directory is reported by the code that reads or writes it.
        let Ok(Some(dir)) = top.dir_if_exists(&path) else {
            continue;
        };
        for (name, kind) in dir.entries()? {
            let Some(name) = name.to_str() else { continue };
            let is_read = OPENED_EVERYWHERE.contains(&name)
                || path.is_empty() && OPENED_AT_TOP.contains(&name);
            let path = if path.is_empty() {
                name.to_owned()
            } else {
                format!("{path}/{name}")
            };
            match kind {
                FileKind::Special if is_read => {
                    return Ok(Some(UnsafeEntry::NamedPipe { path }));
                }
                FileKind::Directory if depth > 0 => open.push((path, depth - 1)),
                _ => {}
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::{fs::symlink, net::UnixListener},
        path::Path,
    };

    use super::*;
    use crate::test_projects::project;

    fn found(root: &Path) -> Option<UnsafeEntry> {
        find_unsafe_entry(&ScopedDir::open(root).unwrap(), ".git").unwrap()
    }

    fn pipe(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(path);
        nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    }

    #[test]
    fn entries_that_git_does_not_open_are_accepted() {
        let (_dir, root) = project(&[]);
        let git = root.join(".git");
        let _ = fs::remove_dir_all(git.join("hooks"));
        for name in ["lfs", "annex", "hooks", "svn", "description", "mine"] {
            let _ = fs::remove_file(git.join(name));
            symlink("nowhere", git.join(name)).unwrap();
        }
        fs::create_dir_all(git.join("worktrees/x")).unwrap();
        let _sockets = ["worktrees/x/fsmonitor--daemon.ipc", "fsmonitor--daemon.ipc"]
            .map(|name| UnixListener::bind(git.join(name)).unwrap());
        pipe(&git.join("mine.pipe"));
        assert_eq!(found(&root), None);
    }

    #[test]
    fn links_that_git_follows_are_refused_by_name() {
        let names = [
            "HEAD",
            "index",
            "refs/heads/main",
            "logs/HEAD",
            "info",
            "objects/pack",
            "MERGE_MSG",
            "sharedindex.0",
        ];
        for name in names {
            let (_dir, root) = project(&[]);
            let path = root.join(".git").join(name);
            let _ = fs::remove_file(&path);
            let _ = fs::remove_dir_all(&path);
            symlink("nowhere", &path).unwrap();
            assert_eq!(
                found(&root),
                Some(UnsafeEntry::SymbolicLink {
                    path: format!(".git/{name}")
                })
            );
        }
    }

    #[test]
    fn named_pipes_that_git_waits_for_are_refused_by_name() {
        let names = [
            ".git/index",
            ".git/ORIG_HEAD",
            ".git/objects/aa/bb",
            ".git/objects/info/commit-graphs/chain",
            ".git/worktrees/x/index",
            ".git/reftable/tables.list",
            "wiki/deep/.gitattributes",
            ".mailmap",
        ];
        for name in names {
            let (_dir, root) = project(&[]);
            pipe(&root.join(name));
            assert_eq!(
                found(&root),
                Some(UnsafeEntry::NamedPipe { path: name.into() })
            );
        }
    }
}
