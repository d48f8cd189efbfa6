//! Branch updates that are killed at every step, refused or rolled back.

use std::{fs, path::Path};

use super::*;
use crate::test_projects::{
    died_half_way, died_half_way_in, stage_in, with_git, without_git, write, write_journal,
};

/// Creates projects of both kinds.
const KINDS: [fn() -> (tempfile::TempDir, Repository); 2] = [with_git, without_git];

/// A project with git as [`stage_in`] describes.
fn stage() -> (tempfile::TempDir, Repository, CommitId, CommitId) {
    stage_in(with_git)
}

fn files(root: &Path) -> Vec<Option<String>> {
    ["a.md", "b.md", "deep/c.md"]
        .map(|name| fs::read_to_string(root.join("wiki/global").join(name)).ok())
        .into()
}

/// Asserts that the project is completely at `commit` and that `git status` is clean.
fn assert_whole(repository: &Repository, commit: &CommitId, files_there: &[Option<String>]) {
    assert_eq!(&repository.head().unwrap(), commit);
    assert_eq!(
        repository
            .git
            .run_for_line(&["status", "--porcelain", "--", "wiki"])
            .unwrap(),
        ""
    );
    assert_eq!(files(repository.root()), files_there);
    assert_eq!(
        recover(repository).unwrap(),
        RecoveredUpdate::default(),
        "once is enough"
    );
}

/// A later process finishes an interrupted update.
#[test]
fn journal_of_an_update_is_as_published() {
    let [old, new] = ["0a", "0b"].map(|digits| CommitId::parse(&digits.repeat(20)).unwrap());
    let expected = format!(r#"{{"old":"{old}","new":"{new}"}}"#);
    assert_eq!(
        serde_json::to_string(&BranchUpdateJournal { old, new }).unwrap(),
        expected
    );
    let (_dir, repository) = with_git();
    assert_eq!(
        repository.git_path(UPDATE_JOURNAL_FILE),
        ".git/ingestdeck/branch-update.json"
    );
}

#[test]
fn crash_at_any_step_leaves_old_or_new_state() {
    let torn = |root: &Path| write(root, "wiki/global/a.md", "a n");
    let missing = |root: &Path| fs::remove_file(root.join("wiki/global/a.md")).unwrap();
    // Steps: journal; files and index; branch.
    let steps = KINDS
        .into_iter()
        .flat_map(|kind| (1..=3).map(move |steps_done| (kind, steps_done)));
    for (kind, steps_done) in steps {
        for damage in [None, Some(&torn as &dyn Fn(&Path)), Some(&missing)] {
            let (_dir, repository, old, new) = stage_in(kind);
            let (before, git) = (files(repository.root()), &repository.git);
            let journal = BranchUpdateJournal {
                old: old.clone(),
                new: new.clone(),
            };
            write_journal(&repository, &journal);
            let mut end = (&old, before);
            if steps_done >= 2 {
                git.run(&["read-tree", "-m", "-u", old.as_str(), new.as_str()])
                    .unwrap();
            }
            if steps_done >= 3 {
                git.run(&["update-ref", "HEAD", new.as_str(), old.as_str()])
                    .unwrap();
                end = (&new, files(repository.root()));
            }
            if let Some(damage) = damage {
                damage(repository.root());
            }
            let settled = recover(&repository).unwrap();
            assert_eq!(
                settled,
                RecoveredUpdate {
                    commit: Some(end.0.clone()),
                    kept_paths: Vec::new()
                },
                "{steps_done}"
            );
            assert_whole(&repository, end.0, &end.1);
        }
    }
}

#[test]
fn rejected_private_journal_has_its_own_remedy() {
    for (kind, remedy) in KINDS
        .into_iter()
        .zip([JOURNAL_REMEDY, PRIVATE_JOURNAL_REMEDY])
    {
        let (_dir, repository) = died_half_way_in(kind);
        write(
            repository.root(),
            &repository.git_path(UPDATE_JOURNAL_FILE),
            "from elsewhere",
        );
        let help = recover(&repository).unwrap_err().help().unwrap();
        assert!(help.starts_with(remedy), "{help}");
    }
}

#[test]
fn interrupted_update_paths_are_listed_until_recovery() {
    let (_dir, repository) = died_half_way();
    let paths = ["a.md", "b.md", "deep/c.md"].map(|name| format!("wiki/global/{name}"));
    assert_eq!(unrecovered_paths(&repository), paths);
    recover(&repository).unwrap();
    assert_eq!(unrecovered_paths(&repository), Vec::<String>::new());
    write(
        repository.root(),
        &repository.git_path(UPDATE_JOURNAL_FILE),
        "from elsewhere",
    );
    assert_eq!(
        unrecovered_paths(&repository),
        Vec::<String>::new(),
        "the journal is not trusted"
    );
}

#[test]
fn recovery_keeps_files_changed_since_the_crash() {
    for kind in KINDS {
        let (_dir, repository, old, new) = stage_in(kind);
        write_journal(
            &repository,
            &BranchUpdateJournal {
                old: old.clone(),
                new: new.clone(),
            },
        );
        repository
            .git
            .run(&["read-tree", "-m", "-u", old.as_str(), new.as_str()])
            .unwrap();
        write(repository.root(), "wiki/global/a.md", "by hand");
        assert_eq!(
            recover(&repository).unwrap(),
            RecoveredUpdate {
                commit: Some(old),
                kept_paths: vec!["wiki/global/a.md".into()]
            }
        );
        assert_eq!(
            files(repository.root()),
            [Some("by hand".into()), Some("b\n".into()), None]
        );
    }
}

#[test]
fn update_of_a_moved_branch_changes_nothing() {
    let (_dir, repository, old, new) = stage();
    update_branch(&repository, &old, &new, "new").unwrap();
    let after = files(repository.root());
    assert_whole(&repository, &new, &after);
    assert!(matches!(
        update_branch(&repository, &old, &new, "new"),
        Err(BranchUpdateError::BranchMoved | BranchUpdateError::WouldOverwrite { .. })
    ));
    assert_whole(&repository, &new, &after);
    // The process was killed, and another commit was made before the recovery.
    write_journal(&repository, &BranchUpdateJournal { old, new });
    repository
        .git
        .run(&["commit", "--quiet", "--allow-empty", "-m", "by hand"])
        .unwrap();
    let head = repository.head().unwrap();
    assert_eq!(
        recover(&repository).unwrap(),
        RecoveredUpdate {
            commit: Some(head.clone()),
            kept_paths: Vec::new()
        }
    );
    assert_whole(&repository, &head, &after);
}

/// Applies an uncommitted edit by the user during a run.
fn edit(root: &Path, edit: &str) {
    match edit {
        "the end is cut off" => write(root, "wiki/global/a.md", "a o"),
        "emptied" => write(root, "wiki/global/a.md", ""),
        "deleted" => fs::remove_file(root.join("wiki/global/a.md")).unwrap(),
        "another page is written" => write(root, "wiki/global/deep/c.md", "c"),
        "a page that goes is changed" => write(root, "wiki/global/b.md", "b"),
        other => panic!("{other}"),
    }
}

/// `git read-tree` replaces ignored files without a word.
#[test]
fn ignored_files_are_not_replaced() {
    for kind in KINDS {
        let (_dir, repository, old, new) = stage_in(kind);
        let root = repository.root();
        write(root, "wiki/.gitignore", "*\n");
        write(root, "wiki/global/deep/c.md", "by hand\n");
        let error = update_branch(&repository, &old, &new, "x").unwrap_err();
        assert!(
            matches!(error, BranchUpdateError::WouldOverwrite { .. }),
            "{error}"
        );
        assert_eq!(
            fs::read_to_string(root.join("wiki/global/deep/c.md")).unwrap(),
            "by hand\n"
        );
        assert_eq!(repository.head().unwrap(), old);
        write(root, "wiki/global/deep/c.md", "c\n");
        update_branch(&repository, &old, &new, "x").unwrap();
    }
}

#[test]
fn update_over_local_changes_changes_nothing() {
    let edits = [
        "the end is cut off",
        "emptied",
        "deleted",
        "another page is written",
        "a page that goes is changed",
    ];
    let cases = edits
        .iter()
        .flat_map(|what| [(*what, false), (*what, true)]);
    for (kind, (what, is_staged)) in KINDS
        .into_iter()
        .flat_map(|kind| cases.clone().map(move |case| (kind, case)))
    {
        let (_dir, repository, old, new) = stage_in(kind);
        edit(repository.root(), what);
        if is_staged {
            repository.git.run(&["add", "--all", "--", "wiki"]).unwrap();
        }
        let status = || {
            repository
                .git
                .run(&["status", "--porcelain=v2", "--untracked-files=all"])
                .unwrap()
        };
        let (files_before, status_before) = (files(repository.root()), status());
        let error = update_branch(&repository, &old, &new, "new").unwrap_err();
        assert!(
            matches!(error, BranchUpdateError::WouldOverwrite { .. }),
            "{what}, staged: {is_staged}: {error}"
        );
        assert_eq!(
            files(repository.root()),
            files_before,
            "{what}, staged: {is_staged}"
        );
        assert_eq!(status(), status_before, "{what}, staged: {is_staged}");
        assert_eq!(repository.head().unwrap(), old);
        assert_eq!(
            recover(&repository).unwrap(),
            RecoveredUpdate::default(),
            "no recovery is pending"
        );
    }
}

#[test]
fn unwritable_branch_is_not_reported_as_moved() {
    let (_dir, repository, old, new) = stage();
    let before = files(repository.root());
    let lock = format!(
        ".git/refs/heads/{}.lock",
        repository.branch().unwrap().unwrap()
    );
    write(repository.root(), &lock, "");
    let error = update_branch(&repository, &old, &new, "new").unwrap_err();
    assert!(
        matches!(&error, BranchUpdateError::Git(GitError::Failed { stderr, .. }) if stderr.contains(".lock")),
        "{error}"
    );
    assert_whole(&repository, &old, &before);
}

#[test]
fn locked_index_is_not_reported_as_local_changes() {
    let lock = "fatal: Unable to create '/p/.git/index.lock': File exists.; Another git process seems to be running";
    assert!(!is_overwrite_refusal(lock));
    assert!(!is_overwrite_refusal(
        "error: unable to write file wiki/global/a.md: No space left on device"
    ));
    assert!(is_overwrite_refusal(
        "error: Entry 'wiki/global/a.md' not uptodate. Cannot merge."
    ));
}

#[test]
fn partially_written_files_are_restored_after_full_disk() {
    let (_dir, repository, old, new) = stage();
    let root = repository.root();
    // Another page is edited by hand, and its content could be a file that git did not finish writing.
    write(root, "wiki/global/b.md", "");
    let changes = changes(
        &repository,
        &BranchUpdateJournal {
            old: old.clone(),
            new,
        },
    )
    .unwrap();
    let before = hashes(&repository, &changes).unwrap();
    write(root, "wiki/global/a.md", "a new a");
    write(root, "wiki/global/deep/c.md", "");
    assert_eq!(
        restore_to_head(&repository, changes, &UpdateUndoScope::FilesOnly(before)).unwrap(),
        [""; 0]
    );
    assert_eq!(
        files(root),
        [Some("a old\n".into()), Some(String::new()), None]
    );
    assert_eq!(repository.head().unwrap(), old);
}

#[test]
fn update_waits_for_index_lock() {
    let (_dir, repository, old, new) = stage();
    let lock = repository.root().join(".git/index.lock");
    fs::write(&lock, "").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| fs::remove_file(&lock).unwrap());
        update_branch(&repository, &old, &new, "new").unwrap();
    });
    assert_eq!(repository.head().unwrap(), new);
}

fn refusal(repository: &Repository) -> RejectedJournal {
    match recover(repository) {
        Err(BranchUpdateError::RejectedJournal(refused)) => refused,
        other => panic!("{other:?}"),
    }
}

/// Writes `bytes` to the journal file.
fn plant(repository: &Repository, bytes: impl AsRef<[u8]>) {
    fs::create_dir_all(
        repository
            .root()
            .join(repository.git_path(UPDATE_JOURNAL_FILE))
            .parent()
            .unwrap(),
    )
    .unwrap();
    fs::write(
        repository
            .root()
            .join(repository.git_path(UPDATE_JOURNAL_FILE)),
        bytes,
    )
    .unwrap();
}

#[test]
fn journal_of_other_version_or_place_is_rejected() {
    let (_dir, repository, old, new) = stage();
    let ((_other, copy, ..), before) = (stage(), files(repository.root()));
    let of_a_copy = local_record::encode(
        &open_project(&copy).unwrap(),
        BranchUpdateJournal {
            old: old.clone(),
            new: new.clone(),
        },
    );
    plant(&repository, of_a_copy.unwrap());
    assert!(matches!(
        refusal(&repository).reason,
        UntrustedRecord::OtherLocation
    ));
    plant(
        &repository,
        format!(r#"{{"version":1,"old":"{old}","new":"{new}"}}"#),
    );
    assert!(matches!(
        refusal(&repository).reason,
        UntrustedRecord::UnknownVersion
    ));
    // The remedy in the message works.
    assert!(refusal(&repository).to_line().ends_with("then delete it"));
    fs::remove_file(
        repository
            .root()
            .join(repository.git_path(UPDATE_JOURNAL_FILE)),
    )
    .unwrap();
    assert_whole(&repository, &old, &before);
}

#[test]
fn journal_with_non_commit_ids_is_rejected() {
    let (dir, repository, old, new) = stage();
    let good = local_record::encode(
        &open_project(&repository).unwrap(),
        BranchUpdateJournal {
            old: old.clone(),
            new: new.clone(),
        },
    );
    let good = String::from_utf8(good.unwrap()).unwrap();
    let target = dir.path().join("profile");
    let option = format!("--output={}", target.display());
    for (from, to) in [
        (old.as_str(), &*option),
        (new.as_str(), &option),
        (new.as_str(), "HEAD"),
        (new.as_str(), ""),
    ] {
        plant(&repository, good.replace(from, to));
        assert!(
            matches!(refusal(&repository).reason, UntrustedRecord::UnknownVersion),
            "{to}"
        );
    }
    assert!(!target.exists());
    plant(
        &repository,
        good.replace(new.as_str(), &"01234567".repeat(5)),
    );
    assert!(matches!(
        refusal(&repository).reason,
        UntrustedRecord::MissingCommits(_)
    ));
}

#[test]
fn journal_with_forbidden_paths_changes_nothing() {
    let (_dir, repository, old, _) = stage();
    let (root, git) = (repository.root(), &repository.git);
    for path in [".gitignore", "ktx.yaml", "wikis/a.md", "raw-source/a.md"] {
        write(root, path, "other\n");
        git.run(&["add", "--force", "--", path]).unwrap();
        let tree = git.run_for_line(&["write-tree"]).unwrap();
        let new = git
            .run_for_commit(&["commit-tree", &tree, "-p", old.as_str(), "-m", "new"])
            .unwrap();
        git.run(&["reset", "--quiet", "--hard", old.as_str()])
            .unwrap();
        assert!(
            matches!(update_branch(&repository, &old, &new, "new"), Err(BranchUpdateError::ForbiddenPath { path: of }) if of == path)
        );
        write_journal(
            &repository,
            &BranchUpdateJournal {
                old: old.clone(),
                new,
            },
        );
        assert!(
            matches!(refusal(&repository).reason, UntrustedRecord::ForbiddenPath(of) if of == path)
        );
        fs::remove_file(root.join(repository.git_path(UPDATE_JOURNAL_FILE))).unwrap();
    }
}
