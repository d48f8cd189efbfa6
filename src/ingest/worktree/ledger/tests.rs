//! Removal of leftovers: what is removed, and what must be kept.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{super::Worktrees, *};
use crate::test_projects::{project, write};

/// A repository, and a directory outside of it that must not be changed.
struct LedgerFixture {
    _dir: tempfile::TempDir,
    root: PathBuf,
    victim: PathBuf,
    repository: Repository,
    trees: Arc<Worktrees>,
    head: CommitId,
}

impl LedgerFixture {
    fn new() -> Self {
        let (dir, root) = project(&[("wiki/global/a.md", "a\n")]);
        let repository = Repository::find(&root).unwrap().unwrap();
        repository.ignore_state_dirs().unwrap();
        let head = repository.head().unwrap();
        let trees = Worktrees::new(repository.clone(), "local-1", &head);
        let victim = root.join("../victim");
        write(&victim, "session-local-x/thesis.txt", "t");
        write(&victim, "local-x", "t");
        write(&victim, ".bashrc", "t");
        Self {
            _dir: dir,
            root,
            victim,
            repository,
            trees,
            head,
        }
    }

    /// A worktree of a killed run, with one commit.
    fn killed(&self, unit: &str) -> String {
        let tree = self.trees.open(Some(unit), &self.head).unwrap();
        write(tree.dir(), "wiki/global/b.md", unit);
        tree.stage(&["wiki/global/b.md"]).unwrap();
        tree.commit_staged("Write").unwrap();
        let name = tree.name.clone();
        std::mem::forget(tree);
        name
    }

    fn git(&self, args: &[&str]) -> String {
        String::from_utf8(self.repository.git.run(args).unwrap()).unwrap()
    }

    fn sweep(&self) -> SweepReport {
        let swept = remove_leftovers(&self.repository).unwrap();
        for (path, text) in [
            ("session-local-x/thesis.txt", "t"),
            ("local-x", "t"),
            (".bashrc", "t"),
        ] {
            assert_eq!(fs::read_to_string(self.victim.join(path)).unwrap(), text);
        }
        swept
    }

    fn branches(&self) -> String {
        self.git(&["branch", "--format=%(refname:short)"])
    }

    fn put(&self, path: &str, bytes: impl AsRef<[u8]>) {
        fs::create_dir_all(self.root.join(path).parent().unwrap()).unwrap();
        fs::write(self.root.join(path), bytes).unwrap();
    }
}

#[test]
fn recorded_worktree_is_removed() {
    let scene = LedgerFixture::new();
    let (whole, half) = (scene.killed("a"), scene.killed("b"));
    fs::remove_file(scene.root.join(worktree_dir(&half)).join(".git")).unwrap();
    // The first run was killed between entry and worktree, the second between the directory and git's registration.
    let project = ScopedDir::open(&scene.root).unwrap();
    record_worktree(&scene.repository, &project, "local-1-c", &scene.head).unwrap();
    record_worktree(&scene.repository, &project, "local-1-d", &scene.head).unwrap();
    fs::create_dir(scene.root.join(worktree_dir("local-1-d"))).unwrap();
    scene.put(&entry_path(&scene.repository, ".draft-1-1"), "");
    let swept = scene.sweep();
    assert!(
        swept.removed_worktrees == 4 && swept.skipped.is_empty(),
        "{swept:?}"
    );
    assert_eq!(scene.branches(), "main\n");
    assert!(
        !scene.root.join(worktree_dir(&whole)).exists()
            && !scene.root.join(worktree_dir(&half)).exists()
    );
    assert_eq!(
        fs::read_dir(scene.root.join(".git").join(LEDGER_DIR))
            .unwrap()
            .count(),
        0
    );
    assert_eq!(scene.sweep().removed_worktrees, 0);
}

#[test]
fn foreign_ledger_entries_remove_nothing() {
    let (scene, other) = (LedgerFixture::new(), LedgerFixture::new());
    scene.git(&["branch", "--quiet", "session/local-x"]);
    write(
        &scene.root,
        ".ktx/worktrees/session-local-x/mine.md",
        "mine",
    );
    let copy = ScopedDir::open(&other.root).unwrap();
    let own = ScopedDir::open(&scene.root).unwrap();
    let entry = |project: &ScopedDir, branch: &str| {
        local_record::encode(
            project,
            WorktreeEntry {
                branch: branch.into(),
                base: scene.head.clone(),
            },
        )
        .unwrap()
    };
    scene.put(&entry_path(&scene.repository, "local-x"), "");
    scene.put(
        &entry_path(&scene.repository, "local-y"),
        entry(&copy, "session/local-y"),
    );
    scene.put(
        &entry_path(&scene.repository, "local-z"),
        entry(&own, "session/local-x"),
    );
    scene.put(
        &entry_path(&scene.repository, "mine"),
        entry(&own, "session/mine"),
    );
    scene.put(
        &entry_path(&scene.repository, "local-..x"),
        entry(&own, "session/local-..x"),
    );
    fs::create_dir(scene.root.join(entry_path(&scene.repository, ".draft-dir"))).unwrap();
    let swept = scene.sweep();
    assert_eq!(
        (swept.removed_worktrees, swept.skipped.len()),
        (0, 6),
        "{swept:?}"
    );
    assert!(
        swept
            .skipped
            .iter()
            .all(|left| matches!(left, SkippedLeftover::Entry { .. })),
        "{swept:?}"
    );
    let messages: Vec<String> = swept
        .skipped
        .iter()
        .map(SkippedLeftover::to_string)
        .collect();
    let commands = "run `git worktree remove --force .ktx/worktrees/session-local-y` and `git branch -D \
                    session/local-y`, then delete it";
    assert!(
        messages.iter().any(|message| message.ends_with(commands)),
        "{messages:?}"
    );
    assert_eq!(
        messages
            .iter()
            .filter(|message| message.contains("git branch"))
            .count(),
        3,
        "{messages:?}"
    );
    assert_eq!(scene.branches(), "main\nsession/local-x\n");
    assert!(
        scene
            .root
            .join(".ktx/worktrees/session-local-x/mine.md")
            .exists()
    );
}

#[test]
fn a_ledger_in_the_project_removes_nothing() {
    let scene = LedgerFixture::new();
    scene.git(&["branch", "--quiet", "session/local-x"]);
    write(
        &scene.root,
        ".ktx/worktrees/session-local-x/mine.md",
        "mine",
    );
    let own = ScopedDir::open(&scene.root).unwrap();
    let entry = WorktreeEntry {
        branch: "session/local-x".into(),
        base: scene.head.clone(),
    };
    scene.put(
        ".ktx/ingestdeck/worktrees/local-x",
        local_record::encode(&own, entry).unwrap(),
    );
    assert!(scene.sweep().removed_worktrees == 0 && scene.sweep().skipped.is_empty());
    assert!(
        scene
            .root
            .join(".ktx/worktrees/session-local-x/mine.md")
            .exists()
    );
    assert_eq!(scene.branches(), "main\nsession/local-x\n");
}

#[test]
fn links_in_worktree_paths_are_not_followed() {
    let scene = LedgerFixture::new();
    let project = ScopedDir::open(&scene.root).unwrap();
    record_worktree(&scene.repository, &project, "local-x", &scene.head).unwrap();
    fs::remove_dir_all(scene.root.join(WORKTREES_DIR)).unwrap();
    symlink(&scene.victim, scene.root.join(WORKTREES_DIR)).unwrap();
    assert!(matches!(
        scene.sweep().skipped[..],
        [SkippedLeftover::Failed { .. }]
    ));
    fs::remove_file(scene.root.join(WORKTREES_DIR)).unwrap();
    fs::create_dir(scene.root.join(WORKTREES_DIR)).unwrap();
    symlink(
        scene.victim.join("session-local-x"),
        scene.root.join(worktree_dir("local-x")),
    )
    .unwrap();
    assert!(matches!(
        scene.sweep().skipped[..],
        [SkippedLeftover::Directory { .. }]
    ));
    fs::remove_dir_all(scene.root.join(".git").join(LEDGER_DIR)).unwrap();
    symlink(&scene.victim, scene.root.join(".git").join(LEDGER_DIR)).unwrap();
    assert!(matches!(
        remove_leftovers(&scene.repository),
        Err(WorktreeError::Ledger { .. })
    ));
    assert!(scene.victim.join("local-x").exists());
}

#[test]
fn unregistered_directories_are_kept() {
    let scene = LedgerFixture::new();
    record_worktree(
        &scene.repository,
        &ScopedDir::open(&scene.root).unwrap(),
        "local-x",
        &scene.head,
    )
    .unwrap();
    write(
        &scene.root,
        ".ktx/worktrees/session-local-x/mine.md",
        "mine",
    );
    let swept = scene.sweep();
    assert!(
        matches!(swept.skipped[..], [SkippedLeftover::Directory { .. }]),
        "{swept:?}"
    );
    assert!(
        scene
            .root
            .join(".ktx/worktrees/session-local-x/mine.md")
            .exists()
    );
    // Reported once: from then on the user is responsible for it.
    assert!(scene.sweep().skipped.is_empty());
}

#[test]
fn branches_with_foreign_commits_are_kept() {
    let scene = LedgerFixture::new();
    let name = scene.killed("a");
    let dir = scene.root.join(worktree_dir(&name));
    let commit = |dir: &Path| {
        let args = [
            "-c",
            "user.name=me",
            "-c",
            "user.email=me@example.com",
            "commit",
            "--quiet",
            "--allow-empty",
            "-m",
        ];
        let done = std::process::Command::new("git")
            .current_dir(dir)
            .args(args)
            .arg("by hand")
            .status()
            .unwrap();
        assert!(done.success());
    };
    commit(&dir);
    assert!(matches!(
        scene.sweep().skipped[..],
        [SkippedLeftover::Branch { .. }]
    ));
    assert_eq!(scene.branches(), format!("main\nsession/{name}\n"));
    assert!(!dir.exists());
    // A worktree of the user that has the name of a run's worktree by chance.
    commit(&scene.root);
    scene.git(&["branch", "--quiet", "session/local-x"]);
    record_worktree(
        &scene.repository,
        &ScopedDir::open(&scene.root).unwrap(),
        "local-x",
        &scene.head,
    )
    .unwrap();
    assert!(matches!(
        scene.sweep().skipped[..],
        [SkippedLeftover::Branch { .. }]
    ));
}

#[test]
fn worktree_does_not_reuse_an_existing_branch() {
    let scene = LedgerFixture::new();
    scene.git(&["branch", "--quiet", "session/local-1-a"]);
    scene.git(&["pack-refs", "--all"]);
    let tree = scene.trees.open(Some("a"), &scene.head).unwrap();
    assert_ne!(tree.name, "local-1-a");
    drop(tree);
    assert_eq!(scene.branches(), "main\nsession/local-1-a\n");
}

#[test]
fn missing_user_worktrees_stay_registered() {
    let scene = LedgerFixture::new();
    scene.killed("a");
    scene.git(&["worktree", "add", "--quiet", "-b", "own", "--", "../own"]);
    fs::rename(scene.root.join("../own"), scene.root.join("../unplugged")).unwrap();
    assert_eq!(scene.sweep().removed_worktrees, 1);
    fs::rename(scene.root.join("../unplugged"), scene.root.join("../own")).unwrap();
    assert!(scene.git(&["worktree", "list"]).contains("/own "));
}

#[test]
fn worktrees_of_a_moved_repository_are_reported() {
    let scene = LedgerFixture::new();
    let name = scene.killed("a");
    let moved = scene.root.with_extension("moved");
    fs::rename(&scene.root, &moved).unwrap();
    let repository = Repository::find(&moved).unwrap().unwrap();
    let swept = remove_leftovers(&repository).unwrap();
    assert_eq!(
        (swept.removed_worktrees, swept.skipped.len()),
        (0, 1),
        "{swept:?}"
    );
    let message = swept.skipped[0].to_string();
    for part in [
        &format!("`{}`", worktree_dir(&name)),
        "git worktree prune",
        &format!("git branch -D {}", worktree_branch(&name)),
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(
        moved
            .join(worktree_dir(&name))
            .join("wiki/global/b.md")
            .is_file()
    );
    assert!(
        moved
            .join(".git/refs/heads")
            .join(worktree_branch(&name))
            .is_file()
    );
}
