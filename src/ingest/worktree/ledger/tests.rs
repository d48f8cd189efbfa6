//! What a sweep removes, and above all what it does not.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{super::Worktrees, *};
use crate::ingest::git::tests::{project, write};

/// A repository, and a directory beside it that nobody may touch.
struct Scene {
    _dir: tempfile::TempDir,
    root: PathBuf,
    victim: PathBuf,
    repository: Repository,
    trees: Arc<Worktrees>,
    head: CommitId,
}

impl Scene {
    fn new() -> Self {
        let (dir, root) = project(&[("wiki/global/a.md", "a\n")]);
        let repository = Repository::find(&root).unwrap().unwrap();
        repository.hide_ours().unwrap();
        let head = repository.head().unwrap();
        let trees = Worktrees::new(repository.clone(), "local-1", &head);
        let victim = root.join("../victim");
        write(&victim, "session-local-x/thesis.txt", "t");
        write(&victim, "local-x", "t");
        write(&victim, ".bashrc", "t");
        Self { _dir: dir, root, victim, repository, trees, head }
    }

    /// A worktree that a killed run left, with a commit of it.
    fn killed(&self, unit: &str) -> String {
        let tree = self.trees.open(Some(unit), &self.head).unwrap();
        write(tree.dir(), "wiki/global/b.md", unit);
        tree.commit("wiki/global/b.md", "Write").unwrap();
        let name = tree.name.clone();
        std::mem::forget(tree);
        name
    }

    fn git(&self, args: &[&str]) -> String {
        String::from_utf8(self.repository.git.run(args).unwrap()).unwrap()
    }

    fn sweep(&self) -> Swept {
        let swept = sweep(&self.repository).unwrap();
        for (path, text) in [("session-local-x/thesis.txt", "t"), ("local-x", "t"), (".bashrc", "t")] {
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
fn what_a_run_recorded_is_removed() {
    let scene = Scene::new();
    let (whole, half) = (scene.killed("a"), scene.killed("b"));
    fs::remove_file(scene.root.join(directory(&half)).join(".git")).unwrap();
    // Killed between the entry and the worktree, and between the directory and what git knows of it.
    let project = ScopedDir::open(&scene.root).unwrap();
    record(&project, "local-1-c", &scene.head).unwrap();
    record(&project, "local-1-d", &scene.head).unwrap();
    fs::create_dir(scene.root.join(directory("local-1-d"))).unwrap();
    scene.put(&entry_path(".draft-1-1"), "");
    let swept = scene.sweep();
    assert!(swept.removed == 4 && swept.left_alone.is_empty(), "{swept:?}");
    assert_eq!(scene.branches(), "main\n");
    assert!(!scene.root.join(directory(&whole)).exists() && !scene.root.join(directory(&half)).exists());
    assert_eq!(fs::read_dir(scene.root.join(LEDGER)).unwrap().count(), 0);
    assert_eq!(scene.sweep().removed, 0);
}

#[test]
fn entries_that_no_run_of_this_repository_wrote_remove_nothing() {
    let (scene, other) = (Scene::new(), Scene::new());
    scene.git(&["branch", "--quiet", "session/local-x"]);
    write(&scene.root, ".ktx/worktrees/session-local-x/mine.md", "mine");
    let copy = ScopedDir::open(&other.root).unwrap();
    let own = ScopedDir::open(&scene.root).unwrap();
    let entry = |project: &ScopedDir, branch: &str| {
        machine_record::encode(project, Entry { branch: branch.into(), base: scene.head.clone() }).unwrap()
    };
    scene.put(&entry_path("local-x"), "");
    scene.put(&entry_path("local-y"), entry(&copy, "session/local-y"));
    scene.put(&entry_path("local-z"), entry(&own, "session/local-x"));
    scene.put(&entry_path("mine"), entry(&own, "session/mine"));
    scene.put(&entry_path("local-..x"), entry(&own, "session/local-..x"));
    fs::create_dir(scene.root.join(entry_path(".draft-dir"))).unwrap();
    let swept = scene.sweep();
    assert_eq!((swept.removed, swept.left_alone.len()), (0, 6), "{swept:?}");
    assert!(swept.left_alone.iter().all(|left| matches!(left, LeftAlone::Entry { .. })), "{swept:?}");
    let messages: Vec<String> = swept.left_alone.iter().map(LeftAlone::to_string).collect();
    let commands = "run `git worktree remove --force .ktx/worktrees/session-local-y` and `git branch -D \
                    session/local-y`, then delete it";
    assert!(messages.iter().any(|message| message.ends_with(commands)), "{messages:?}");
    assert_eq!(messages.iter().filter(|message| message.contains("git branch")).count(), 3, "{messages:?}");
    assert_eq!(scene.branches(), "main\nsession/local-x\n");
    assert!(scene.root.join(".ktx/worktrees/session-local-x/mine.md").exists());
}

#[test]
fn a_ledger_in_the_project_removes_nothing() {
    let scene = Scene::new();
    scene.git(&["branch", "--quiet", "session/local-x"]);
    write(&scene.root, ".ktx/worktrees/session-local-x/mine.md", "mine");
    let own = ScopedDir::open(&scene.root).unwrap();
    let entry = Entry { branch: "session/local-x".into(), base: scene.head.clone() };
    scene.put(".ktx/ingestdeck/worktrees/local-x", machine_record::encode(&own, entry).unwrap());
    assert!(scene.sweep().removed == 0 && scene.sweep().left_alone.is_empty());
    assert!(scene.root.join(".ktx/worktrees/session-local-x/mine.md").exists());
    assert_eq!(scene.branches(), "main\nsession/local-x\n");
}

#[test]
fn links_on_the_way_lead_nowhere() {
    let scene = Scene::new();
    let project = ScopedDir::open(&scene.root).unwrap();
    record(&project, "local-x", &scene.head).unwrap();
    fs::remove_dir_all(scene.root.join(WORKTREES)).unwrap();
    symlink(&scene.victim, scene.root.join(WORKTREES)).unwrap();
    assert!(matches!(scene.sweep().left_alone[..], [LeftAlone::Failed { .. }]));
    fs::remove_file(scene.root.join(WORKTREES)).unwrap();
    fs::create_dir(scene.root.join(WORKTREES)).unwrap();
    symlink(scene.victim.join("session-local-x"), scene.root.join(directory("local-x"))).unwrap();
    assert!(matches!(scene.sweep().left_alone[..], [LeftAlone::Directory { .. }]));
    fs::remove_dir_all(scene.root.join(LEDGER)).unwrap();
    symlink(&scene.victim, scene.root.join(LEDGER)).unwrap();
    assert!(matches!(sweep(&scene.repository), Err(WorktreeError::Ledger { .. })));
    assert!(scene.victim.join("local-x").exists());
}

#[test]
fn directories_that_git_does_not_know_stay() {
    let scene = Scene::new();
    record(&ScopedDir::open(&scene.root).unwrap(), "local-x", &scene.head).unwrap();
    write(&scene.root, ".ktx/worktrees/session-local-x/mine.md", "mine");
    let swept = scene.sweep();
    assert!(matches!(swept.left_alone[..], [LeftAlone::Directory { .. }]), "{swept:?}");
    assert!(scene.root.join(".ktx/worktrees/session-local-x/mine.md").exists());
    // Said once: from then on it is the user's.
    assert!(scene.sweep().left_alone.is_empty());
}

#[test]
fn branches_with_commits_of_others_stay() {
    let scene = Scene::new();
    let name = scene.killed("a");
    let dir = scene.root.join(directory(&name));
    let commit = |dir: &Path| {
        let args =
            ["-c", "user.name=me", "-c", "user.email=me@example.com", "commit", "--quiet", "--allow-empty", "-m"];
        let done = std::process::Command::new("git").current_dir(dir).args(args).arg("by hand").status().unwrap();
        assert!(done.success());
    };
    commit(&dir);
    assert!(matches!(scene.sweep().left_alone[..], [LeftAlone::Branch { .. }]));
    assert_eq!(scene.branches(), format!("main\nsession/{name}\n"));
    assert!(!dir.exists());
    // One of the user that has the name of one of ours by chance.
    commit(&scene.root);
    scene.git(&["branch", "--quiet", "session/local-x"]);
    record(&ScopedDir::open(&scene.root).unwrap(), "local-x", &scene.head).unwrap();
    assert!(matches!(scene.sweep().left_alone[..], [LeftAlone::Branch { .. }]));
}

#[test]
fn a_worktree_never_takes_over_a_branch() {
    let scene = Scene::new();
    scene.git(&["branch", "--quiet", "session/local-1-a"]);
    scene.git(&["pack-refs", "--all"]);
    let tree = scene.trees.open(Some("a"), &scene.head).unwrap();
    assert_ne!(tree.name, "local-1-a");
    drop(tree);
    assert_eq!(scene.branches(), "main\nsession/local-1-a\n");
}

#[test]
fn worktrees_of_the_user_stay_even_where_they_are_missing() {
    let scene = Scene::new();
    scene.killed("a");
    scene.git(&["worktree", "add", "--quiet", "-b", "own", "--", "../own"]);
    fs::rename(scene.root.join("../own"), scene.root.join("../unplugged")).unwrap();
    assert_eq!(scene.sweep().removed, 1);
    fs::rename(scene.root.join("../unplugged"), scene.root.join("../own")).unwrap();
    assert!(scene.git(&["worktree", "list"]).contains("/own "));
}

#[test]
fn worktrees_of_a_moved_repository_are_named() {
    let scene = Scene::new();
    let name = scene.killed("a");
    let moved = scene.root.with_extension("moved");
    fs::rename(&scene.root, &moved).unwrap();
    let repository = Repository::find(&moved).unwrap().unwrap();
    let swept = sweep(&repository).unwrap();
    assert_eq!((swept.removed, swept.left_alone.len()), (0, 1), "{swept:?}");
    let message = swept.left_alone[0].to_string();
    for part in [&format!("`{}`", directory(&name)), "git worktree prune", &format!("git branch -D {}", branch(&name))]
    {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(moved.join(directory(&name)).join("wiki/global/b.md").is_file());
    assert!(moved.join(".git/refs/heads").join(branch(&name)).is_file());
}
