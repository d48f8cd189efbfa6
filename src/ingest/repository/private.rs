//! The private repository of a project without git: `.ktx/ingestdeck/repository.git`, whose working tree is the project.
//!
//! It makes such a project work like one with git: attempts have worktrees, patches are integrated, and a branch update
//! that is safe against crashes brings the result into the project. The user does not see it: it is not `.git`, and
//! every call names it explicitly. It contains only `wiki/` and `semantic-layer/`; at the start of a run and before each
//! integration, the user's own changes of these directories are committed.
//!
//! A clone, an archive or a copy of the project may contain one. This module replaces every repository that this
//! installation did not create in this project, and it rewrites the configuration, so that nothing in it can name a
//! program. If the project gets its own repository later, that one is used, and the private one is ignored. This module
//! must not know what runs commit.

use std::{collections::BTreeSet, io, path::Path};

use super::{super::git::Git, CommitId, GitError, UPDATE_JOURNAL_FILE};
use crate::local_record::{self, UntrustedRecord};
use ingestdeck_os::scoped_dir::{FileKind, PRIVATE_MODE, ScopedDir};

/// Directory of the repository, relative to the project.
pub const DIR: &str = ".ktx/ingestdeck/repository.git";
/// Arguments that make git use it.
pub(super) const GIT_LOCATION: &[&str] =
    &["--git-dir=.ktx/ingestdeck/repository.git", "--work-tree=."];
/// The beginning of a command line for the user.
pub(super) const GIT_COMMAND: &str = "git --git-dir=.ktx/ingestdeck/repository.git";

/// The directories of the project that are recorded. Attempts read and write nothing else in their worktrees.
const RECORDED_DIRS: [&str; 2] = ["wiki", "semantic-layer"];

/// Id of the tree without files, which git knows in every repository.
const EMPTY_TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

/// The only branch, which HEAD points to.
const BRANCH: &str = "refs/heads/main";

const DIRECTORIES: [&str; 2] = ["objects", "refs/heads"];

/// Files with constant content. The attributes have precedence over those in the project, so that git stores all files
/// unchanged and starts no driver.
const FILES: [(&str, &str); 3] = [
    ("HEAD", "ref: refs/heads/main\n"),
    (
        "info/attributes",
        "* -text -ident -filter !eol !working-tree-encoding !diff !merge !whitespace\n",
    ),
    (
        "config",
        "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfileMode = false\n\tlogAllRefUpdates = false\n",
    ),
];

/// Locks that a killed git leaves behind. No other process uses the repository while the project is locked.
const STALE_LOCKS: [&str; 4] = [
    "index.lock",
    "HEAD.lock",
    "packed-refs.lock",
    "refs/heads/main.lock",
];

/// Directory of the branches of worktrees, whose locks may be left behind as well.
const WORKTREE_BRANCHES: &str = "refs/heads/session";

/// Largest file of [`FILES`] that is read, in bytes.
const MAX_FILE_BYTES: u64 = 4096;

/// Number of loose objects from which they are packed, as in git itself.
pub(super) const MAX_LOOSE_OBJECTS: u64 = 6700;

/// Why the repository in `project` can be neither used nor replaced: this installation did not create it, and it contains
/// the only information about an interrupted update of the project.
pub(super) fn refusal(project: &ScopedDir) -> Option<UntrustedRecord> {
    let is_foreign = has_journal(project) && !local_record::is_directory_marked(project, DIR);
    is_foreign.then_some(UntrustedRecord::OtherLocation)
}

/// True if this installation created the repository.
pub(super) fn is_own(project: &ScopedDir) -> bool {
    local_record::is_directory_marked(project, DIR)
}

/// True if this installation created the repository and an update of the project was interrupted.
pub(super) fn has_own_journal(project: &ScopedDir) -> bool {
    has_journal(project) && is_own(project)
}

fn has_journal(project: &ScopedDir) -> bool {
    project
        .kind(&format!("{DIR}/{UPDATE_JOURNAL_FILE}"))
        .is_ok_and(|kind| kind.is_some())
}

/// Creates the repository in `project`, and replaces one that this installation did not create. Returns true if one was
/// replaced by an empty repository.
pub(super) fn create_or_replace(project: &ScopedDir) -> io::Result<bool> {
    let is_ours = local_record::is_directory_marked(project, DIR);
    let is_replaced = !is_ours && project.remove_dir_all(DIR)?;
    let dir = project.dir(DIR, Some(PRIVATE_MODE))?;
    for name in DIRECTORIES {
        dir.dir(name, Some(PRIVATE_MODE))?;
    }
    for (name, text) in FILES {
        if !dir
            .read(name, MAX_FILE_BYTES)
            .is_ok_and(|found| found == text.as_bytes())
        {
            dir.write(name, text.as_bytes(), PRIVATE_MODE, 0o600)?;
        }
    }
    for name in STALE_LOCKS {
        dir.remove(name)?;
    }
    if let Some(branches) = dir.dir_if_exists(WORKTREE_BRANCHES)? {
        for (name, _) in branches.entries()? {
            if let Some(name) = name.to_str().filter(|name| name.ends_with(".lock")) {
                branches.remove(name)?;
            }
        }
    }
    if !is_ours {
        // The mark is last: a repository that is not complete is replaced.
        local_record::mark_directory(project, DIR)?;
    }
    Ok(is_replaced)
}

/// The files and links of the recorded directories below `root`, sorted. Links are not followed. Names that are not
/// UTF-8 are skipped, which a run never reads or writes.
pub(super) fn list_files(root: &Path) -> io::Result<BTreeSet<String>> {
    let (project, mut files) = (ScopedDir::open(root)?, BTreeSet::new());
    let mut folders: Vec<String> = RECORDED_DIRS.map(str::to_owned).into();
    while let Some(folder) = folders.pop() {
        let Some(dir) = project.dir_if_exists(&folder)? else {
            continue;
        };
        for (name, kind) in dir.entries()? {
            let Ok(name) = name.into_string() else {
                continue;
            };
            let path = format!("{folder}/{name}");
            match kind {
                // git accepts no such path, and a nested repository may be large.
                _ if name.eq_ignore_ascii_case(".git") => {}
                FileKind::Directory => folders.push(path),
                FileKind::File | FileKind::Symlink => drop(files.insert(path)),
                FileKind::Socket | FileKind::Special => {}
            }
        }
    }
    Ok(files)
}

/// Commits the current content of `files`, which are all files to record, and returns the head of the branch. Does not
/// commit if nothing changed. `has_index` is false in a new repository.
pub(super) fn record_state(
    git: &Git,
    files: &BTreeSet<String>,
    has_index: bool,
) -> Result<CommitId, GitError> {
    let tree = if files.is_empty() && !has_index {
        EMPTY_TREE.to_owned()
    } else {
        write_tree(git, files)?
    };
    let head = git.run_for_line(&["for-each-ref", "--format=%(objectname) %(tree)", BRANCH])?;
    let (head, recorded) = head.split_once(' ').unwrap_or_default();
    if recorded == tree {
        return CommitId::parse(head).map_err(|cause| GitError::NotACommitId {
            subcommand: "for-each-ref".to_owned(),
            cause,
        });
    }
    let parent: &[&str] = if head.is_empty() { &[] } else { &["-p", head] };
    let commit = [
        &["commit-tree", "-m", "Record the state of the project"],
        parent,
        &["--end-of-options", &tree],
    ];
    let commit = git.run_for_commit(&commit.concat())?;
    git.run(&[
        "update-ref",
        "--end-of-options",
        BRANCH,
        commit.as_str(),
        head,
    ])?;
    Ok(commit)
}

/// Records `files` in the index and returns the id of their tree.
fn write_tree(git: &Git, files: &BTreeSet<String>) -> Result<String, GitError> {
    let known = git.run(&["ls-files", "-z"])?;
    let known = String::from_utf8_lossy(&known);
    let gone = known
        .split_terminator('\0')
        .filter(|path| !files.contains(*path));
    // Remove first, so that a directory can replace a file.
    update_index(git, &["--force-remove"], gone)?;
    // git skips paths that it does not accept. Ignored files and files of nested repositories are included.
    update_index(
        git,
        &["--add", "--remove"],
        files.iter().map(String::as_str),
    )?;
    git.run_for_line(&["write-tree"])
}

fn update_index<'a>(
    git: &Git,
    options: &[&str],
    paths: impl Iterator<Item = &'a str>,
) -> Result<(), GitError> {
    let paths: Vec<u8> = paths
        .flat_map(|path| [path.as_bytes(), b"\0"].concat())
        .collect();
    if !paths.is_empty() {
        git.run_with_input(
            &[&["update-index"], options, &["-z", "--stdin"]].concat(),
            &paths,
        )?;
    }
    Ok(())
}

/// Packs the objects if at least `limit` are loose, and deletes those of past attempts. Patches of unsaved work need only
/// commits of the branch.
pub(super) fn collect_garbage(git: &Git, limit: u64) -> Result<(), GitError> {
    let count = git.run_for_line(&["count-objects"])?;
    let count = count
        .split(' ')
        .next()
        .and_then(|count| count.parse().ok())
        .unwrap_or(0);
    if count < limit {
        return Ok(());
    }
    git.run(&["gc", "--quiet", "--prune=now"]).map(drop)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt as _, symlink},
        path::PathBuf,
    };

    use super::super::{Repository, RepositoryError};
    use super::*;
    use crate::test_projects::write;

    fn project() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        write(&root, "ktx.yaml", "connections: {}\n");
        write(&root, "raw-sources/x/big.txt", "raw\n");
        write(&root, "wiki/global/a.md", "a\r\n");
        (dir, root)
    }

    fn open(root: &Path) -> Repository {
        Repository::open_private(root).unwrap().0
    }

    fn recorded(repository: &Repository) -> Vec<String> {
        let commit = repository.current_state().unwrap();
        let listed = repository
            .git
            .run(&["ls-tree", "-r", "-z", "--name-only", commit.as_str()])
            .unwrap();
        String::from_utf8(listed)
            .unwrap()
            .split_terminator('\0')
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn only_wiki_and_semantic_layer_are_recorded() {
        let (_dir, root) = project();
        let repository = open(&root);
        assert_eq!(recorded(&repository), ["wiki/global/a.md"]);
        let first = repository.head().unwrap();
        assert_eq!(
            repository.current_state().unwrap(),
            first,
            "nothing changed"
        );
        write(&root, "semantic-layer/shop/orders.yaml", "name: orders\n");
        fs::remove_file(root.join("wiki/global/a.md")).unwrap();
        write(
            &root,
            "wiki/global/a.md/b c\n.md",
            "a directory in place of a file",
        );
        assert_eq!(
            recorded(&repository),
            [
                "semantic-layer/shop/orders.yaml",
                "wiki/global/a.md/b c\n.md"
            ]
        );
        assert_eq!(
            fs::metadata(root.join(DIR)).unwrap().permissions().mode() & 0o777,
            0o700
        );
        assert!(!root.join(".git").exists() && Repository::find(&root).unwrap().is_none());
    }

    #[test]
    fn ignored_nested_and_converted_files_are_recorded_unchanged() {
        let (_dir, root) = project();
        write(&root, ".gitignore", "*\n");
        write(&root, ".gitattributes", "* text=auto eol=crlf filter=lfs\n");
        write(
            &root,
            "wiki/.gitattributes",
            "*.md text filter=x working-tree-encoding=UTF-16\n",
        );
        for nested in ["wiki", "wiki/deep"] {
            write(
                &root,
                &format!("{nested}/.git/HEAD"),
                "ref: refs/heads/main\n",
            );
            fs::create_dir_all(root.join(nested).join(".git/objects")).unwrap();
            fs::create_dir_all(root.join(nested).join(".git/refs")).unwrap();
        }
        write(&root, "wiki/deep/c.md", "c\n");
        symlink("/etc/passwd", root.join("wiki/link.md")).unwrap();
        symlink("/etc", root.join("wiki/folder")).unwrap();
        nix::unistd::mkfifo(&root.join("wiki/pipe.md"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let repository = open(&root);
        let paths = [
            "wiki/.gitattributes",
            "wiki/deep/c.md",
            "wiki/folder",
            "wiki/global/a.md",
            "wiki/link.md",
        ];
        assert_eq!(recorded(&repository), paths);
        let page = repository
            .git
            .run(&["cat-file", "blob", "HEAD:wiki/global/a.md"])
            .unwrap();
        assert_eq!(page, b"a\r\n");
        assert_eq!(
            repository
                .git
                .run(&["cat-file", "blob", "HEAD:wiki/folder"])
                .unwrap(),
            b"/etc"
        );
        assert!(
            super::super::first_converted(&repository.git, b"wiki/global/a.md\0wiki/x.md\0")
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn repository_of_another_place_is_replaced() {
        let (_dir, root) = project();
        let (_other, copy) = project();
        let head = open(&root).current_state().unwrap();
        assert_eq!(
            (
                open(&root).head().unwrap(),
                Repository::open_private(&root).unwrap().1
            ),
            (head.clone(), false)
        );
        fs::create_dir_all(copy.join(".ktx/ingestdeck")).unwrap();
        let (foreign, here) = (root.join(DIR), copy.join(DIR));
        assert!(
            std::process::Command::new("cp")
                .arg("-R")
                .args([foreign, here])
                .status()
                .unwrap()
                .success()
        );
        write(
            &copy,
            &format!("{DIR}/hooks/post-index-change"),
            "#!/bin/sh\n",
        );
        let (repository, is_replaced) = Repository::open_private(&copy).unwrap();
        assert!(
            is_replaced && repository.head().is_err() && !copy.join(DIR).join("hooks").exists()
        );
        assert!(
            !Repository::open_private(&copy).unwrap().1,
            "once is enough"
        );
    }

    #[test]
    fn locks_of_a_killed_git_are_removed() {
        let (_dir, root) = project();
        open(&root).current_state().unwrap();
        let locks =
            ["index.lock", "refs/heads/session/local-a.lock"].map(|name| root.join(DIR).join(name));
        fs::create_dir_all(root.join(DIR).join(WORKTREE_BRANCHES)).unwrap();
        locks.iter().for_each(|lock| fs::write(lock, "").unwrap());
        open(&root);
        assert!(locks.iter().all(|lock| !lock.exists()));
    }

    #[test]
    fn foreign_journal_is_refused_and_kept() {
        let (_dir, root) = project();
        let journal = format!("{DIR}/{UPDATE_JOURNAL_FILE}");
        write(&root, &journal, "{}");
        let error = Repository::open_private(&root).unwrap_err();
        assert!(
            matches!(error, RepositoryError::UntrustedPrivate { .. }),
            "{error}"
        );
        assert!(root.join(journal).exists());
        fs::remove_dir_all(root.join(DIR)).unwrap();
        assert_eq!(
            recorded(&open(&root)),
            ["wiki/global/a.md"],
            "the remedy works"
        );
    }

    #[test]
    fn links_are_neither_followed_nor_used() {
        let outside = tempfile::tempdir().unwrap();
        write(outside.path(), "HEAD", "mine");
        let (_dir, root) = project();
        fs::create_dir_all(root.join(".ktx/ingestdeck")).unwrap();
        symlink(outside.path(), root.join(DIR)).unwrap();
        assert!(Repository::open_private(&root).unwrap().1);
        assert!(fs::symlink_metadata(root.join(DIR)).unwrap().is_dir());
        fs::remove_dir_all(root.join("wiki")).unwrap();
        symlink(outside.path(), root.join("wiki")).unwrap();
        let error = open(&root).current_state().unwrap_err().to_string();
        assert!(
            error.ends_with("`wiki` is a symbolic link; replace it with a real directory"),
            "{error}"
        );
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn changed_configuration_and_stale_locks_are_undone() {
        let (dir, root) = project();
        let head = open(&root).current_state().unwrap();
        let proof = dir.path().join("proof");
        let program = format!("touch {}", proof.display());
        let config = format!(
            "[core]\n\tfsmonitor = {program}\n\tworktree = /\n[filter \"x\"]\n\tclean = {program}\n"
        );
        write(&root, &format!("{DIR}/config"), &config);
        write(&root, &format!("{DIR}/HEAD"), "ref: refs/heads/other\n");
        STALE_LOCKS
            .iter()
            .for_each(|lock| write(&root, &format!("{DIR}/{lock}"), ""));
        let repository = open(&root);
        assert_eq!(repository.head().unwrap(), head);
        write(&root, "wiki/global/b.md", "b\n");
        assert_eq!(
            recorded(&repository),
            ["wiki/global/a.md", "wiki/global/b.md"]
        );
        assert!(!proof.exists());
    }

    #[test]
    fn garbage_is_collected_without_losing_the_branch() {
        let (_dir, root) = project();
        let repository = open(&root);
        let (git, head) = (&repository.git, repository.current_state().unwrap());
        let unused = git
            .run_with_input(&["hash-object", "-w", "--stdin"], b"of a past attempt")
            .unwrap();
        let unused = String::from_utf8(unused).unwrap();
        let is_there = || {
            git.try_run(&["cat-file", "-e", unused.trim()])
                .unwrap()
                .success
        };
        collect_garbage(git, 1_000).unwrap();
        assert!(is_there());
        collect_garbage(git, 1).unwrap();
        assert!(!is_there());
        assert_eq!(
            (repository.current_state().unwrap(), recorded(&repository)),
            (head, vec!["wiki/global/a.md".into()])
        );
    }
}
