//! git itself: what it is told, and what a hostile repository cannot make it do.

use std::{fs, os::unix::fs::PermissionsExt as _};

use super::*;

/// A project with a repository of its own and one commit of `files`.
pub(crate) fn project(files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap().join("project");
    write(&root, "ktx.yaml", "connections: {}\n");
    for (path, text) in files {
        write(&root, path, text);
    }
    let git = Git::open(&root).unwrap();
    git.run(&["init", "--quiet", "--initial-branch=main"]).unwrap();
    git.run(&["add", "--all"]).unwrap();
    git.run(&["commit", "--quiet", "-m", "first"]).unwrap();
    (dir, root)
}

/// Writes a file with its folders.
pub(crate) fn write(root: &Path, path: &str, text: &str) {
    fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
    fs::write(root.join(path), text).unwrap();
}

#[test]
fn nothing_that_a_repository_names_is_run() {
    let (dir, root) =
        project(&[("wiki/global/a.md", "a\n"), (".gitattributes", "*.md filter=evil diff=evil merge=evil\n")]);
    let (proof, trap) = (dir.path().join("proof"), dir.path().join("trap"));
    fs::write(&trap, format!("#!/bin/sh\necho \"$0 $@\" >> '{}'\ncat\n", proof.display())).unwrap();
    fs::set_permissions(&trap, fs::Permissions::from_mode(0o755)).unwrap();
    let hooks = root.join(".git/hooks");
    fs::create_dir_all(&hooks).unwrap();
    for hook in ["pre-commit", "post-checkout", "post-commit", "reference-transaction", "post-index-change"] {
        fs::copy(&trap, hooks.join(hook)).unwrap();
    }
    let plain = Git::open(&root).unwrap();
    let trap = trap.to_str().unwrap();
    let keys = [
        "filter.evil.clean",
        "filter.evil.smudge",
        "filter.evil.process",
        "diff.evil.textconv",
        "diff.evil.command",
        "merge.evil.driver",
        "core.fsmonitor",
        "core.pager",
        "core.editor",
        "core.sshCommand",
        "diff.external",
        "gpg.program",
    ];
    for key in keys {
        plain.run(&["config", key, trap]).unwrap();
    }
    for (key, value) in [("filter.evil.required", "true"), ("commit.gpgsign", "true"), ("gc.auto", "1")] {
        plain.run(&["config", key, value]).unwrap();
    }
    let git = Git::open(&root).unwrap();
    write(&root, "wiki/global/a.md", "b\n");
    git.run(&["add", "--all"]).unwrap();
    git.run(&["commit", "--quiet", "-m", "second"]).unwrap();
    git.run(&["diff", "--no-ext-diff", "--no-textconv", "HEAD~1", "HEAD"]).unwrap();
    git.run(&["checkout", "--quiet", "HEAD~1", "--", "wiki"]).unwrap();
    git.run(&["status", "--porcelain"]).unwrap();
    assert!(!proof.exists(), "{}", fs::read_to_string(&proof).unwrap());
    assert_eq!(fs::read_to_string(root.join("wiki/global/a.md")).unwrap(), "a\n");
    let author = git.line(&["log", "-1", "--format=%an <%ae> %cn <%ce>"]).unwrap();
    assert_eq!(author, "ktx Local <local@ktx.local> ktx Local <local@ktx.local>");
}

#[test]
fn a_call_that_fails_says_why_and_one_that_hangs_is_ended() {
    let (_dir, root) = project(&[]);
    let git = Git::open(&root).unwrap();
    let error = git.run(&["rev-parse", "--verify", "no-such-branch"]).unwrap_err();
    assert_eq!(error.to_string(), "git rev-parse failed: fatal: Needed a single revision");
    let git = Git { limit: Duration::from_millis(50), ..git };
    // It waits for the end of a pipe that nobody closes.
    git.run(&["config", "alias.hang", "!cat /dev/zero"]).unwrap();
    let error = git.run(&["hang"]).unwrap_err();
    assert!(matches!(error, GitError::TimedOut { .. }), "{error}");
}

#[test]
fn drivers_are_told_from_other_settings() {
    for key in ["filter.lfs.clean", "diff.a.b.textconv", "merge.x.driver", "filter.x=y.process", "filter.x.required"] {
        assert!(is_driver(key), "{key}");
    }
    for key in ["diff.external", "merge.tool", "filter.clean", "core.editor", "merge.x.name"] {
        assert!(!is_driver(key), "{key}");
    }
}
