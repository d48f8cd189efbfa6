//! Runs git with a test identity and without the configuration of the machine.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, LazyLock},
};

use ingestdeck_core::run::commit_trailers::CommitMessage;
use ingestdeck_ingest::{repository::Repository, worktree::Worktrees};
use ingestdeck_os::program_path;

use super::program;

/// Starts the guard of this process, without which each git call begins with a copy of the process.
pub(crate) fn start_group_guard() {
    ingestdeck_ingest::test_projects::ignore_home();
    // Without the guard, the calls only take longer.
    let _ = ingestdeck_os::group_guard::start(Path::new(program()));
}

/// A commit message without a note.
pub(crate) fn message(text: &str) -> CommitMessage {
    CommitMessage {
        text: text.to_owned(),
        note: None,
    }
}

/// Argument that names the private repository of a project without git.
pub(crate) const PRIVATE_GIT_DIR: &str = "--git-dir=.ktx/ingestdeck/repository.git";

/// The worktrees of a run in the project at `root`, which is not a git repository.
pub(crate) fn private_worktrees(root: &Path) -> Arc<Worktrees> {
    start_group_guard();
    let (repository, _) = Repository::open_private(root).unwrap();
    repository.ignore_state_dirs().unwrap();
    let head = repository.check_ready(&[], false).unwrap();
    Worktrees::new(repository, "local-1", &head.commit)
}

/// Environment of git without the 15 sample files of a new repository and the maintenance process after each commit, to
/// save time.
pub(crate) const FAST_GIT_ENV: [(&str, &str); 4] = [
    ("GIT_TEMPLATE_DIR", ""),
    ("GIT_CONFIG_COUNT", "1"),
    ("GIT_CONFIG_KEY_0", "maintenance.auto"),
    ("GIT_CONFIG_VALUE_0", "false"),
];

/// Path of git. A command without a path that gets another `PATH` starts with a copy of the test process, which is slow.
pub(crate) fn git_program() -> &'static Path {
    static PROGRAM: LazyLock<PathBuf> =
        LazyLock::new(|| program_path::find("git").expect("git is not installed"));
    &PROGRAM
}

/// Stdout of `git ARGS` in `dir`. Panics if git fails.
pub(crate) fn git(dir: &Path, args: &[&str]) -> String {
    let output = Command::new(git_program())
        .args([
            "-c",
            "user.name=me",
            "-c",
            "user.email=me@example.com",
            "-c",
            "protocol.file.allow=always",
        ])
        .args(args)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", super::missing("home"))
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .envs(FAST_GIT_ENV)
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
