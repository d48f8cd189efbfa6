//! Patches made in worktrees like those of attempts, integrated and saved.

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt as _};

use super::*;
use crate::{
    branch_update,
    repository::Repository,
    test_projects::{project, write},
    workspace::WorktreePatch,
    worktree,
};

mod ahead;
mod committed;
mod refused;

/// A run over a project with two pages.
struct IntegrationFixture {
    _dir: tempfile::TempDir,
    root: PathBuf,
    trees: Arc<Worktrees>,
}

/// A commit message without a note.
fn message(text: &str) -> CommitMessage {
    CommitMessage {
        text: text.to_owned(),
        note: None,
    }
}

fn page(body: &str, refs: &[&str]) -> String {
    format!(
        "---\nsummary: s\nrefs: [{}]\n---\n\n{body}\n",
        refs.join(", ")
    )
}

impl IntegrationFixture {
    fn new() -> Self {
        Self::with(&[])
    }

    /// A fixture with more files.
    fn with(more: &[(&str, &str)]) -> Self {
        let old = page("old\n\nsecond\n\nthird\n\nfourth", &[]);
        let fan = page("fan", &["old"]);
        let pages: [(&str, &str); 3] = [
            ("wiki/global/old.md", &old),
            ("wiki/global/fan.md", &fan),
            ("raw-sources/x/big.txt", "raw\n"),
        ];
        let (dir, root) = project(&[&pages, more].concat());
        let repository = Repository::find(&root).unwrap().unwrap();
        repository.ignore_state_dirs().unwrap();
        // Not `check_ready`, which refuses the filters that some tests configure.
        let head = repository.head().unwrap();
        let trees = Worktrees::new(repository, "local-1", &head);
        Self {
            _dir: dir,
            root,
            trees,
        }
    }

    fn git(&self, args: &[&str]) -> String {
        String::from_utf8(self.trees.repository.git.run(args).unwrap()).unwrap()
    }

    /// The patch of an attempt at `unit` that writes these files; without text it removes them.
    fn patch(&self, unit: &str, files: &[(&str, Option<&str>)]) -> UnitPatch {
        let base = self.trees.base();
        let space = Workspace::from_worktree(self.trees.open(Some(unit), &base).unwrap(), base);
        for (path, text) in files {
            space.read(path).unwrap();
            match text {
                Some(text) => space.write(path, text.as_bytes()).unwrap(),
                None => assert!(space.remove(path).unwrap()),
            }
        }
        let WorktreePatch { patch, paths, .. } = space.create_patch().unwrap().unwrap();
        assert_eq!(
            paths,
            files
                .iter()
                .map(|(path, _)| *path)
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect::<Vec<_>>()
        );
        self.raw_patch(unit, &patch)
    }

    fn raw_patch(&self, unit: &str, patch: &[u8]) -> UnitPatch {
        let file = self.root.join(format!(".ktx/ingest-patches/{unit}.patch"));
        fs::write(&file, patch).unwrap();
        let connections = vec!["w".into()];
        UnitPatch {
            unit: unit.into(),
            file: Some(file),
            source_connections: connections.clone(),
            targets: connections,
        }
    }

    fn integrate(&self, patches: &[UnitPatch]) -> (PatchIntegrator, Vec<PatchOutcome>) {
        let mut integration = PatchIntegrator::open(&self.trees, vec!["w".into()]).unwrap();
        let mut results = Vec::new();
        integration
            .integrate_all(patches, |_, integrated| results.push(integrated.clone()))
            .unwrap();
        (integration, results)
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok()
    }

    /// Asserts that no internal files are left in the working tree.
    fn assert_tidy(&self) {
        assert_eq!(self.git(&["status", "--porcelain"]), "");
        assert_eq!(self.git(&["worktree", "list"]).lines().count(), 1);
        assert_eq!(
            self.git(&["branch", "--format=%(refname)"]),
            "refs/heads/main\n"
        );
        let swept = worktree::remove_leftovers(&self.trees.repository).unwrap();
        assert!(
            swept.removed_worktrees == 0 && swept.skipped.is_empty(),
            "{swept:?}"
        );
    }
}

#[test]
fn integration_without_changes_needs_no_worktree() {
    let run = IntegrationFixture::new();
    let unchanged = UnitPatch {
        unit: "a".into(),
        file: None,
        source_connections: Vec::new(),
        targets: Vec::new(),
    };
    let (mut integration, results) = run.integrate(&[unchanged]);
    assert_eq!(
        results,
        [PatchOutcome::Noop {
            shared_writes: Vec::new()
        }]
    );
    assert_eq!(integration.head().unwrap(), run.trees.base());
    run.assert_tidy();
    // Later attempts start from a commit that was made meanwhile.
    run.git(&["commit", "--quiet", "--allow-empty", "-m", "later"]);
    assert_eq!(
        integration.save(&message("subject"), &[]).unwrap().commit,
        None
    );
    assert_eq!(
        run.trees.base().to_string(),
        run.git(&["rev-parse", "HEAD"]).trim()
    );
}

#[test]
fn unit_patches_become_one_commit() {
    let run = IntegrationFixture::new();
    let (new, gone) = (page("new", &["old"]), page("fan", &[]));
    let patches = [
        run.patch(
            "a",
            &[
                ("wiki/global/new.md", Some(&new)),
                ("semantic-layer/w/x.yaml", Some("name: x\n")),
            ],
        ),
        UnitPatch {
            unit: "b".into(),
            file: None,
            source_connections: Vec::new(),
            targets: Vec::new(),
        },
        run.patch("c", &[("wiki/global/fan.md", Some(&gone))]),
    ];
    run.assert_tidy();
    let (mut integration, results) = run.integrate(&patches);
    let words: Vec<_> = results
        .iter()
        .map(|result| matches!(result, PatchOutcome::Accepted { .. }))
        .collect();
    // The source is invalid, which fails only its own unit.
    assert_eq!(words, [false, false, true], "{results:?}");
    assert!(matches!(results[0], PatchOutcome::SemanticConflict { .. }));
    assert_eq!(
        results[1],
        PatchOutcome::Noop {
            shared_writes: Vec::new()
        }
    );
    let before = run.git(&["rev-parse", "HEAD"]);
    let elsewhere = tempfile::tempdir().unwrap();
    let raw = elsewhere.path().join("staged.md");
    fs::write(&raw, "raw\r\n").unwrap();
    let copy = |from: &Path, to: &str| RawCopy {
        source: from.to_path_buf(),
        source_root: from.parent().unwrap().to_path_buf(),
        destination: to.to_owned(),
    };
    let to = "raw-sources/notes/docs/2026-01-01-000000-local-1/a.md";
    let copies = [
        copy(&raw, to),
        copy(
            &elsewhere.path().join("gone.md"),
            "raw-sources/notes/docs/x/gone.md",
        ),
    ];
    let saved = integration
        .save(&message("ingest(docs): local-1\n\nbody"), &copies)
        .unwrap();
    drop(integration);
    assert_eq!(
        run.read(to).as_deref(),
        Some("raw\r\n"),
        "with the bytes that it has"
    );
    assert_eq!(saved.paths, ["wiki/global/fan.md"]);
    assert_eq!(saved.branch.as_deref(), Some("main"));
    assert_eq!(run.git(&["rev-parse", "HEAD^"]), before, "one commit");
    assert_eq!(
        run.git(&["log", "-1", "--format=%s"]),
        "ingest(docs): local-1\n"
    );
    assert_eq!(run.read("wiki/global/fan.md"), Some(gone));
    assert_eq!(run.trees.base().as_str(), saved.commit.unwrap());
    run.assert_tidy();
}

#[test]
fn note_of_a_message_is_attached_to_the_commit() {
    let run = IntegrationFixture::new();
    let (mut integration, _) =
        run.integrate(&[run.patch("a", &[("wiki/global/new.md", Some(&page("new", &[])))])]);
    let message = CommitMessage {
        note: Some("Ingest-Run: x\n".into()),
        ..message("ingest")
    };
    let before = run.trees.base();
    let saved = integration.save(&message, &[]).unwrap();
    drop(integration);
    assert_eq!(saved.note_error, None);
    let repository = &run.trees.repository;
    let commit = CommitId::parse(&saved.commit.unwrap()).unwrap();
    assert_eq!(
        repository.note(&commit).unwrap().as_deref(),
        Some("Ingest-Run: x\n")
    );
    assert_eq!(repository.note(&before).unwrap(), None);
    run.assert_tidy();
}

#[test]
fn ignored_raw_files_do_not_reach_the_commit() {
    let run = IntegrationFixture::new();
    let (mut integration, _) =
        run.integrate(&[run.patch("a", &[("wiki/global/new.md", Some(&page("new", &[])))])]);
    for (path, text) in [
        (".gitignore", "/docs/private.md\n/vendor/\n/notes/*.txt\n"),
        ("docs/private.md", "secret\n"),
        ("notes/all.txt", "secret\n"),
        ("docs/a.md", "a\n"),
        ("vendor/b.md", "b\n"),
    ] {
        fs::create_dir_all(run.root.join(path).parent().unwrap()).unwrap();
        fs::write(run.root.join(path), text).unwrap();
    }
    let copy = |root: &str, name: &str| RawCopy {
        source: run.root.join(root).join(name),
        source_root: run.root.join(root),
        destination: format!("raw-sources/{name}"),
    };
    let names = [
        ("docs", "private.md"),
        ("docs", "a.md"),
        ("vendor", "b.md"),
        ("notes", "all.txt"),
    ];
    let copies = names.map(|(root, name)| copy(root, name));
    let saved = integration.save(&message("one"), &copies).unwrap();
    drop(integration);
    let skipped = ["raw-sources/private.md", "raw-sources/all.txt"];
    assert_eq!(
        saved.skipped_raw_files, skipped,
        "a connection may be in an ignored directory"
    );
    let tree = run.git(&["ls-tree", "-r", "--name-only", "HEAD", "raw-sources"]);
    assert!(
        !tree.contains("private")
            && !tree.contains("all.txt")
            && tree.contains("a.md")
            && tree.contains("b.md"),
        "{tree}"
    );
}

#[test]
fn unstageable_raw_files_do_not_fail_the_commit() {
    let run = IntegrationFixture::new();
    let (mut integration, _) =
        run.integrate(&[run.patch("a", &[("wiki/global/new.md", Some(&page("new", &[])))])]);
    let elsewhere = tempfile::tempdir().unwrap();
    // Names are passed to git as text, so git does not find the second one.
    let raw = [&b"raw"[..], b"r\xffw"].map(|name| elsewhere.path().join(OsStr::from_bytes(name)));
    raw.iter().for_each(|raw| fs::write(raw, "raw\n").unwrap());
    let copy = |raw: &PathBuf, to: &str| RawCopy {
        source: raw.clone(),
        source_root: raw.parent().unwrap().to_path_buf(),
        destination: format!("raw-sources/{to}"),
    };
    // The last one is already on the branch.
    let names = [
        "m/.git/config",
        "m/a.md",
        "m/git~1/x",
        "m/b/c.md",
        "m/b/.GIT/x",
        "m/d.md",
        "x/big.txt",
    ];
    let mut copies: Vec<RawCopy> = names.iter().map(|name| copy(&raw[0], name)).collect();
    copies.insert(3, copy(&raw[1], "m/odd.md"));
    let saved = integration.save(&message("one"), &copies).unwrap();
    drop(integration);
    let refused = ["m/.git/config", "m/git~1/x", "m/odd.md", "m/b/.GIT/x"]
        .map(|name| format!("raw-sources/{name}"));
    assert_eq!(saved.skipped_raw_files, refused);
    let files = run.git(&["show", "--format=", "--name-only", "HEAD"]);
    assert_eq!(
        files,
        "raw-sources/m/a.md\nraw-sources/m/b/c.md\nraw-sources/m/d.md\nwiki/global/new.md\n"
    );
    run.assert_tidy();
    // Only such files: the search for them terminates.
    let (mut integration, _) =
        run.integrate(&[run.patch("b", &[("wiki/global/two.md", Some(&page("two", &[])))])]);
    let many: Vec<RawCopy> = (0..1000)
        .map(|n| copy(&raw[1], &format!("m/{n}")))
        .collect();
    assert_eq!(
        integration
            .save(&message("two"), &many)
            .unwrap()
            .skipped_raw_files
            .len(),
        1000
    );
    drop(integration);
    run.assert_tidy();
}

#[test]
fn only_overlapping_lines_conflict() {
    let run = IntegrationFixture::new();
    let old = run.read("wiki/global/old.md").unwrap();
    let path = "wiki/global/old.md";
    let patches = [
        run.patch("a", &[(path, Some(&old.replace("second", "second by a")))]),
        run.patch(
            "b",
            &[
                (path, Some(&old.replace("second", "second by b"))),
                ("wiki/global/b.md", Some(&page("b", &[]))),
            ],
        ),
        run.patch("c", &[(path, Some(&old.replace("fourth", "fourth by c")))]),
        run.patch("d", &[(path, Some(&old.replace("second", "second by a")))]),
    ];
    let (mut integration, results) = run.integrate(&patches);
    assert!(matches!(results[0], PatchOutcome::Accepted { .. }));
    assert_eq!(
        results[1],
        PatchOutcome::TextualConflict {
            paths: vec![path.into()],
            others: vec!["a".into()]
        }
    );
    assert!(
        matches!(results[2], PatchOutcome::Accepted { .. }),
        "{results:?}"
    );
    let shared = |merged, units: &[&str]| {
        vec![SharedWrite {
            path: path.into(),
            earlier_writers: units.iter().map(|unit| (*unit).into()).collect(),
            was_merged: merged,
        }]
    };
    assert!(
        matches!(&results[2], PatchOutcome::Accepted { shared_writes: of, .. } if *of == shared(true, &["a"])),
        "{results:?}"
    );
    let same = PatchOutcome::Noop {
        shared_writes: shared(false, &["a", "c"]),
    };
    assert_eq!(results[3], same, "the result is the same");
    integration.save(&message("m"), &[]).unwrap();
    assert_eq!(
        run.read(path),
        Some(
            old.replace("second", "second by a")
                .replace("fourth", "fourth by c")
        )
    );
    assert_eq!(
        run.read("wiki/global/b.md"),
        None,
        "a unit is integrated completely or not at all"
    );
    drop(integration);
    run.assert_tidy();
}

/// `lines` lines of some kilobytes each below the frontmatter of a page.
fn long(lines: usize, word: &str) -> String {
    (0..lines)
        .map(|n| format!("{word} {n} {}\n", "x".repeat(1000)))
        .collect()
}

#[test]
fn unreadable_file_fails_only_its_unit() {
    let huge = page(&long(1100, "by hand"), &[]);
    let run = IntegrationFixture::with(&[("wiki/global/huge.md", &huge)]);
    let (old, path) = (
        run.read("wiki/global/old.md").unwrap(),
        "wiki/global/old.md",
    );
    let gone = run.patch("gone", &[("wiki/global/gone.md", Some(&page("gone", &[])))]);
    fs::remove_file(gone.file.as_ref().unwrap()).unwrap();
    let edit = "diff --git a/wiki/global/huge.md b/wiki/global/huge.md\n--- a/wiki/global/huge.md\n\
        +++ b/wiki/global/huge.md\n@@ -1,4 +1,5 @@\n ---\n summary: s\n refs: []\n+tags: []\n ---\n";
    let patches = [
        gone,
        run.raw_patch("huge", edit.as_bytes()),
        // Each alone is within the size limit, both together are not.
        run.patch(
            "half",
            &[(
                path,
                Some(&old.replace("second\n", &format!("second\n{}", long(600, "half")))),
            )],
        ),
        run.patch(
            "rest",
            &[(
                path,
                Some(&old.replace("fourth\n", &format!("fourth\n{}", long(600, "rest")))),
            )],
        ),
        run.patch("good", &[("wiki/global/good.md", Some(&page("good", &[])))]),
    ];
    let (mut integration, results) = run.integrate(&patches);
    assert!(
        matches!(&results[0], PatchOutcome::Unreadable { reason: why } if why.contains("gone.patch")),
        "{results:?}"
    );
    let found = |result: &PatchOutcome, what: &str| match result {
        PatchOutcome::SemanticConflict { findings, others } if findings[0].contains(what) => {
            others.len()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(
        found(&results[1], "wiki/global/huge.md cannot be read: it has "),
        0
    );
    assert!(
        matches!(results[2], PatchOutcome::Accepted { .. }),
        "{results:?}"
    );
    assert_eq!(
        found(&results[3], "wiki/global/old.md cannot be read: it has "),
        1,
        "the other half is named"
    );
    assert_eq!(
        integration.save(&message("m"), &[]).unwrap().paths,
        ["wiki/global/good.md", path]
    );
    assert_eq!(run.read("wiki/global/huge.md"), Some(huge));
    drop(integration);
    run.assert_tidy();
}

#[test]
fn clean_patch_with_invalid_result_is_a_conflict() {
    let run = IntegrationFixture::new();
    let patches = [
        run.patch(
            "remover",
            &[
                ("wiki/global/old.md", None),
                ("wiki/global/fan.md", Some(&page("fan", &[]))),
            ],
        ),
        run.patch(
            "referrer",
            &[("wiki/global/new.md", Some(&page("new", &["old"])))],
        ),
    ];
    let (_integration, results) = run.integrate(&patches);
    assert!(
        matches!(results[0], PatchOutcome::Accepted { .. }),
        "{results:?}"
    );
    let PatchOutcome::SemanticConflict { findings, .. } = &results[1] else {
        panic!("{results:?}")
    };
    assert_eq!(
        findings,
        &["wiki references target missing page(s): new -> old"]
    );
}

#[test]
fn moved_branch_is_rebased_onto_or_reported() {
    let run = IntegrationFixture::new();
    let old = run.read("wiki/global/old.md").unwrap();
    let patches = [run.patch(
        "a",
        &[(
            "wiki/global/old.md",
            Some(&old.replace("second", "second by a")),
        )],
    )];
    let (mut integration, _) = run.integrate(&patches);
    write(
        &run.root,
        "wiki/global/old.md",
        &old.replace("fourth", "fourth by hand"),
    );
    run.git(&["commit", "--quiet", "-am", "by hand"]);
    let head = run.git(&["rev-parse", "HEAD"]);
    integration.save(&message("m"), &[]).unwrap();
    assert_eq!(run.git(&["rev-parse", "HEAD^"]), head);
    let both = old
        .replace("second", "second by a")
        .replace("fourth", "fourth by hand");
    assert_eq!(run.read("wiki/global/old.md"), Some(both.clone()));
    drop(integration);
    run.assert_tidy();

    let patches = [run.patch(
        "b",
        &[(
            "wiki/global/old.md",
            Some(&both.replace("third", "third by b")),
        )],
    )];
    let (mut integration, _) = run.integrate(&patches);
    write(
        &run.root,
        "wiki/global/old.md",
        &both.replace("third", "third by hand"),
    );
    run.git(&["commit", "--quiet", "-am", "by hand again"]);
    let error = integration.save(&message("m"), &[]).unwrap_err();
    assert!(
        matches!(error, IntegrationError::ConflictsWithBranch { .. }),
        "{error}"
    );
    assert!(patches[0].file.as_ref().unwrap().exists());
    drop(integration);
    run.assert_tidy();
}

#[test]
fn concurrent_user_edit_is_not_lost() {
    let run = IntegrationFixture::new();
    let old = run.read("wiki/global/old.md").unwrap();
    let patches = [run.patch(
        "a",
        &[(
            "wiki/global/old.md",
            Some(&old.replace("second", "second by a")),
        )],
    )];
    let (mut integration, _) = run.integrate(&patches);
    write(&run.root, "wiki/global/old.md", "by hand, not committed");
    let head = run.git(&["rev-parse", "HEAD"]);
    let error = integration.save(&message("m"), &[]).unwrap_err();
    assert!(error.to_line().contains("commit or stash them"), "{error}");
    assert_eq!(
        run.read("wiki/global/old.md").as_deref(),
        Some("by hand, not committed")
    );
    assert_eq!(run.git(&["rev-parse", "HEAD"]), head);
    assert_eq!(
        branch_update::recover(&run.trees.repository).unwrap(),
        branch_update::RecoveredUpdate::default()
    );
    run.git(&["checkout", "--", "wiki"]);
    integration.save(&message("m"), &[]).unwrap();
    drop(integration);
    run.assert_tidy();
}

#[test]
fn a_worktree_that_cannot_be_filled_leaves_nothing() {
    let run = IntegrationFixture::new();
    assert!(
        run.trees
            .open(Some("a"), &CommitId::parse(&"01234567".repeat(5)).unwrap())
            .is_err()
    );
    run.assert_tidy();
    run.trees.open(Some("a"), &run.trees.base()).unwrap();
}

#[test]
fn worktrees_of_a_killed_run_are_removed() {
    let run = IntegrationFixture::new();
    let base = run.trees.base();
    for unit in ["a", "b"] {
        std::mem::forget(run.trees.open(Some(unit), &base).unwrap());
    }
    // Partially deleted.
    fs::remove_dir_all(run.root.join(".ktx/worktrees/session-local-1-b")).unwrap();
    // A worktree of another run.
    let other = run.root.join(".ktx/worktrees/session-other");
    run.git(&[
        "worktree",
        "add",
        "--quiet",
        "-b",
        "session/other",
        other.to_str().unwrap(),
    ]);
    let swept = worktree::remove_leftovers(&run.trees.repository).unwrap();
    assert!(
        swept.removed_worktrees == 2 && swept.skipped.is_empty(),
        "{swept:?}"
    );
    assert!(other.exists());
    run.git(&["worktree", "remove", other.to_str().unwrap()]);
    run.git(&["branch", "--quiet", "-D", "session/other"]);
    run.assert_tidy();
}

#[test]
fn patches_are_only_read_from_their_own_directory() {
    let run = IntegrationFixture::new();
    let mut patch = run.patch("a", &[("wiki/global/new.md", Some(&page("new", &[])))]);
    let (file, outside) = (
        patch.file.clone().unwrap(),
        run.root.join("../outside.patch"),
    );
    fs::rename(&file, &outside).unwrap();
    std::os::unix::fs::symlink(&outside, &file).unwrap();
    for file in [
        file,
        outside,
        run.root.join(".ktx/ingest-patches/../../../outside.patch"),
        run.root.join("ktx.yaml"),
    ] {
        patch.file = Some(file);
        let (_, results) = run.integrate(&[patch.clone()]);
        assert!(
            matches!(results[0], PatchOutcome::Unreadable { .. }),
            "{results:?}"
        );
    }
}

#[test]
fn pages_that_differ_only_in_case_are_a_conflict() {
    let run = IntegrationFixture::new();
    let upper = run.patch("one", &[("wiki/global/Page.md", Some(&page("one", &[])))]);
    let lower = run.patch("two", &[("wiki/global/page.md", Some(&page("two", &[])))]);
    let known = run.patch(
        "three",
        &[("wiki/global/OLD.md", Some(&page("three", &[])))],
    );
    let (mut integration, results) = run.integrate(&[upper, lower, known]);
    assert!(
        matches!(results[0], PatchOutcome::Accepted { .. }),
        "{results:?}"
    );
    for (result, names) in [
        (&results[1], ["global/page.md", "global/Page.md"]),
        (&results[2], ["OLD.md", "old.md"]),
    ] {
        let PatchOutcome::SemanticConflict { findings, .. } = result else {
            panic!("{result:?}")
        };
        assert!(
            names.iter().all(|name| findings[0].contains(name)),
            "{findings:?}"
        );
    }
    integration.save(&message("all"), &[]).unwrap();
    assert!(run.read("wiki/global/Page.md").is_some() && run.read("wiki/global/page.md").is_none());
}

#[test]
fn file_with_git_filter_is_not_committed() {
    let run = IntegrationFixture::with(&[(".gitattributes", "wiki/global/big-*.md filter=lfs\n")]);
    let patch = run.patch(
        "one",
        &[("wiki/global/big-page.md", Some(&page("one", &[])))],
    );
    let before = run.git(&["rev-parse", "HEAD"]);
    let (mut integration, _) = run.integrate(&[patch]);
    let error = integration.save(&message("all"), &[]).unwrap_err();
    assert!(
        matches!(error, IntegrationError::ConvertedFile(_)),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("`wiki/global/big-page.md` goes through the git filter `lfs`"),
        "{error}"
    );
    assert_eq!(run.git(&["rev-parse", "HEAD"]), before);
}

/// The user's files change after their state was recorded.
#[test]
fn private_repository_merges_edits_and_keeps_other_files() {
    const OLD: &str = "wiki/global/old.md";
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let text =
        |first: &str, last: &str| page(&format!("{first}\n\nsecond\n\nthird\n\n{last}"), &[]);
    write(&root, OLD, &text("old", "fourth"));
    let (repository, _) = Repository::open_private(&root).unwrap();
    repository.ignore_state_dirs().unwrap();
    let head = repository.current_state().unwrap();
    let run = IntegrationFixture {
        _dir: dir,
        trees: Worktrees::new(repository, "local-1", &head),
        root,
    };
    let files = [
        (OLD, Some(&*text("new", "fourth"))),
        ("wiki/global/new.md", Some(&*page("new", &[]))),
    ];
    let (mut integration, results) = run.integrate(&[run.patch("a", &files)]);
    assert!(
        matches!(results[0], PatchOutcome::Accepted { .. }),
        "{results:?}"
    );
    write(&run.root, OLD, &text("old", "mine"));
    // It cannot be recorded.
    let pipe = run.root.join("wiki/global/new.md");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let error = integration
        .save(&message("ingest"), &[])
        .unwrap_err()
        .to_line();
    assert!(
        error.starts_with("files in the project block")
            && error.ends_with("move them away, then try again"),
        "{error}"
    );
    assert_eq!(run.read(OLD).unwrap(), text("old", "mine"));
    fs::remove_file(pipe).unwrap();
    let raw = RawCopy {
        source: run.root.join(OLD),
        source_root: run.root.clone(),
        destination: "raw-sources/a.md".into(),
    };
    let saved = integration.save(&message("ingest"), &[raw]).unwrap();
    assert_eq!(
        (saved.branch, saved.paths),
        (None, vec!["wiki/global/new.md".to_owned(), OLD.to_owned()])
    );
    assert_eq!(
        (run.read(OLD).unwrap(), run.read("raw-sources/a.md")),
        (text("new", "mine"), None)
    );
}
