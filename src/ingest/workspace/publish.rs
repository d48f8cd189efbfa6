//! Moves an attempt's files into the project, completely or not at all, even across a crash.
//!
//! All files are first staged and backed up below `.ktx/ingestdeck/publish/current/`; then a journal is written; then
//! the files are moved. While the journal exists, the publication is not complete: the next run restores the old files.
//! Only one publication runs at a time, across threads and processes. This module must not know the content of the
//! files.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{HexHash, MAX_FILE_BYTES, WorkspaceChange, hash_file, is_writable};
use crate::{
    diagnostic::Diagnostic,
    ingest::local_record::{self, RejectedJournal, UntrustedRecord},
    scoped_dir::{self, FileLock, PRIVATE_MODE, SHARED_MODE, ScopedDir},
};

/// Lock of a publication. This and the following paths are relative to the project.
const LOCK_FILE: &str = ".ktx/ingestdeck/publish/lock";
const CURRENT_DIR: &str = ".ktx/ingestdeck/publish/current";
/// The journal. It is untrusted, because it may come from a clone.
pub(crate) const JOURNAL_FILE: &str = ".ktx/ingestdeck/publish/current/journal.json";
/// Advice for a journal that is not trusted.
const JOURNAL_REMEDY: &str = "if pages are missing or half written, restore them from the directory `old` next to it";

/// Publishing failed. The project is unchanged unless the message states otherwise.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PublishError {
    /// Another unit or the user changed the same files since the attempt started. A new attempt reads their version.
    #[error("{} changed in the project while this attempt was at work", paths.join(", "))]
    Conflict {
        /// Relative to the project.
        paths: Vec<String>,
    },
    /// A system call failed.
    #[error("cannot publish into {}: {cause}", path.display())]
    Io {
        /// Path of the failed operation.
        path: PathBuf,
        cause: io::Error,
    },
    /// A journal exists that cannot be trusted.
    #[error(transparent)]
    RejectedJournal(#[from] RejectedJournal),
    /// Publishing failed half-way and the rollback failed too; the next start tries it again.
    #[error("publishing failed ({cause}) and could not be undone ({rollback_error})")]
    RollbackFailed {
        cause: io::Error,
        /// Why the rollback failed.
        rollback_error: Box<Self>,
    },
}

impl Diagnostic for PublishError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::Conflict { .. } => "run the unit again".into(),
            Self::RejectedJournal(rejected) => return rejected.help(),
            Self::RollbackFailed { .. } => format!("the next run will undo it from `{JOURNAL_FILE}`"),
            Self::Io { .. } => return None,
        })
    }
}

impl PublishError {
    /// The error for a journal that git tracks.
    pub(crate) fn journal_tracked_by_git() -> Self {
        rejected_journal(UntrustedRecord::TrackedByGit).into()
    }
}

fn rejected_journal(why: UntrustedRecord) -> RejectedJournal {
    RejectedJournal { path: JOURNAL_FILE, reason: why, remedy: JOURNAL_REMEDY }
}

/// Result of rolling back an interrupted publication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecoveredPublication {
    /// Paths that were restored.
    pub restored_paths: Vec<String>,
    /// Paths that changed since the publication and were therefore kept.
    pub kept_paths: Vec<String>,
}

/// Content of a journal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishJournal {
    files: Vec<PublishJournalEntry>,
}

/// One file of a journal. Hashes are hexadecimal, `-` for a missing file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishJournalEntry {
    path: String,
    base: String,
    now: String,
}

/// The next step of a publication. Tests inject failures before a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PublishStep {
    Stage,
    Journal,
    Move,
    RemoveJournal,
}

/// Publishes `changes`, whose files are below `tree`, into `project`.
pub(super) fn publish_changes(
    project: &Path,
    tree: &ScopedDir,
    changes: &BTreeMap<String, WorkspaceChange>,
) -> Result<(), PublishError> {
    if changes.is_empty() {
        return Ok(());
    }
    let site = PublishDir::lock(project).map_err(|cause| io_error(project, cause))?;
    // Recover first: a journal of another process would later roll back the files written now.
    site.recover()?;
    match site.run(tree, changes, &mut |_| Ok(())) {
        Ok(()) => Ok(()),
        Err(PublishFailure::Conflict(paths)) => Err(PublishError::Conflict { paths }),
        Err(PublishFailure::Io(cause)) => match site.recover() {
            Ok(_) => Err(io_error(project, cause)),
            Err(undo) => Err(PublishError::RollbackFailed { cause, rollback_error: Box::new(undo) }),
        },
    }
}

/// Rolls back an interrupted publication in `project`. Call it when a run starts; it is harmless at any other time.
///
/// # Errors
/// Among others, when there is a journal that this version did not write in this project. Nothing is changed then.
pub(crate) fn recover_publication(project: &Path) -> Result<RecoveredPublication, PublishError> {
    match ScopedDir::open(project).and_then(|project| project.kind(CURRENT_DIR)) {
        Ok(None) => return Ok(RecoveredPublication::default()),
        Ok(Some(_)) => {}
        Err(cause) => return Err(io_error(&project.join(CURRENT_DIR), cause)),
    }
    PublishDir::lock(project).map_err(|cause| io_error(project, cause))?.recover()
}

#[derive(Debug)]
enum PublishFailure {
    Conflict(Vec<String>),
    Io(io::Error),
}

impl From<io::Error> for PublishFailure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The staging directory of a project, held by one publication at a time.
struct PublishDir {
    root: PathBuf,
    project: ScopedDir,
    _lock: FileLock,
}

impl PublishDir {
    fn lock(root: &Path) -> io::Result<Self> {
        let project = ScopedDir::open(root)?;
        let lock = project.lock(LOCK_FILE)?;
        Ok(Self { root: root.to_path_buf(), project, _lock: lock })
    }

    fn run(
        &self,
        tree: &ScopedDir,
        changes: &BTreeMap<String, WorkspaceChange>,
        before: &mut dyn FnMut(PublishStep) -> io::Result<()>,
    ) -> Result<(), PublishFailure> {
        let mut moved = Vec::new();
        for (path, change) in changes {
            if hash_file(&self.project, path)? != change.base_hash {
                moved.push(path.clone());
            }
        }
        if !moved.is_empty() {
            return Err(PublishFailure::Conflict(moved));
        }
        let (project, site) = (&self.project, self.project.dir(CURRENT_DIR, Some(PRIVATE_MODE))?);
        for (path, change) in changes {
            before(PublishStep::Stage)?;
            if change.new_hash.is_some() {
                site.write(&format!("new/{path}"), &tree.read(path, MAX_FILE_BYTES)?, PRIVATE_MODE, 0o666)?;
            }
            if change.base_hash.is_some() {
                site.write(&format!("old/{path}"), &project.read(path, MAX_FILE_BYTES)?, PRIVATE_MODE, 0o666)?;
            }
        }
        before(PublishStep::Journal)?;
        let files = changes.iter().map(|(path, change)| PublishJournalEntry {
            path: path.clone(),
            base: HexHash(change.base_hash).to_string(),
            now: HexHash(change.new_hash).to_string(),
        });
        let journal = local_record::encode(project, PublishJournal { files: files.collect() })?;
        project.write(JOURNAL_FILE, &journal, PRIVATE_MODE, 0o600)?;
        for (path, change) in changes {
            before(PublishStep::Move)?;
            match change.new_hash {
                Some(_) => site.rename(&format!("new/{path}"), project, path, SHARED_MODE)?,
                None => {
                    project.remove(path)?;
                }
            }
        }
        before(PublishStep::RemoveJournal)?;
        // Removing the journal completes the publication. The next one deletes the rest of the staging directory.
        project.remove(JOURNAL_FILE)?;
        if let Err(error) = project.remove_dir_all(CURRENT_DIR) {
            tracing::warn!(dir = CURRENT_DIR, %error, "cannot remove the staging directory of a publication");
        }
        Ok(())
    }

    /// Restores the files that an interrupted publication replaced, except those that changed since.
    fn recover(&self) -> Result<RecoveredPublication, PublishError> {
        let (project, failed) = (&self.project, |cause| io_error(&self.root, cause));
        let mut recovered = RecoveredPublication::default();
        let Some(site) = project.dir_if_exists(CURRENT_DIR).map_err(failed)? else { return Ok(recovered) };
        if let Some(journal) = self.journal()? {
            for line in journal.files {
                self.restore_file(&site, line, &mut recovered).map_err(failed)?;
            }
            project.remove(JOURNAL_FILE).map_err(failed)?;
        }
        project.remove_dir_all(CURRENT_DIR).map_err(failed)?;
        Ok(recovered)
    }

    /// The journal; `None` if there is none. Fails if it cannot be trusted.
    fn journal(&self) -> Result<Option<PublishJournal>, PublishError> {
        let bytes = self
            .project
            .read_if_exists(JOURNAL_FILE, 16 * MAX_FILE_BYTES)
            .map_err(|cause| io_error(&self.root, cause))?;
        let Some(bytes) = bytes else { return Ok(None) };
        let journal: PublishJournal = local_record::decode(&self.project, &bytes).map_err(rejected_journal)?;
        let may_be = |path: &str| scoped_dir::validate_relative_path(path).is_ok() && is_writable(path);
        match journal.files.iter().find(|line| !may_be(&line.path)) {
            Some(line) => Err(rejected_journal(UntrustedRecord::ForbiddenPath(line.path.clone())).into()),
            None => Ok(Some(journal)),
        }
    }

    fn restore_file(
        &self,
        site: &ScopedDir,
        PublishJournalEntry { path, base, now }: PublishJournalEntry,
        recovered: &mut RecoveredPublication,
    ) -> io::Result<()> {
        let held = HexHash(hash_file(&self.project, &path)?).to_string();
        if held == base {
            return Ok(());
        }
        if held != now {
            recovered.kept_paths.push(path);
            return Ok(());
        }
        if base == "-" {
            self.project.remove(&path)?;
        } else {
            self.project.write(&path, &site.read(&format!("old/{path}"), MAX_FILE_BYTES)?, SHARED_MODE, 0o666)?;
        }
        recovered.restored_paths.push(path);
        Ok(())
    }
}

fn io_error(path: &Path, cause: io::Error) -> PublishError {
    PublishError::Io { path: path.to_path_buf(), cause }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;
    use crate::ingest::workspace::hash_bytes;

    /// A later process rolls back an interrupted publication.
    #[test]
    fn journal_of_a_publication_is_as_published() {
        let line = PublishJournalEntry { path: "wiki/global/a.md".into(), base: "-".into(), now: "0a".into() };
        let expected = r#"{"files":[{"path":"wiki/global/a.md","base":"-","now":"0a"}]}"#;
        assert_eq!(serde_json::to_string(&PublishJournal { files: vec![line] }).unwrap(), expected);
        assert_eq!(JOURNAL_FILE, ".ktx/ingestdeck/publish/current/journal.json");
        assert_eq!(LOCK_FILE, ".ktx/ingestdeck/publish/lock");
    }

    /// Files of a project, and the changes of an attempt (`None` = removed).
    #[derive(Clone, Debug)]
    struct Case {
        before: BTreeMap<String, String>,
        after: BTreeMap<String, Option<String>>,
        stop: usize,
        crash: bool,
    }

    fn case() -> impl Strategy<Value = Case> {
        let path =
            prop::sample::select(vec!["wiki/global/a.md", "wiki/global/b.md", "wiki/c.md", "semantic-layer/w/d.yaml"]);
        let path = path.prop_map(str::to_owned).boxed();
        (
            prop::collection::btree_map(path.clone(), "[a-c]{0,2}", 0..4),
            prop::collection::btree_map(path, prop::option::of("[a-c]{0,2}"), 1..4),
            0_usize..12,
            any::<bool>(),
        )
            .prop_map(|(before, after, stop, crash)| Case { before, after, stop, crash })
    }

    fn snapshot(project: &Path) -> BTreeMap<String, String> {
        let paths = ["wiki/global/a.md", "wiki/global/b.md", "wiki/c.md", "semantic-layer/w/d.yaml"];
        let read = |path: &&str| Some(((*path).to_owned(), fs::read_to_string(project.join(path)).ok()?));
        paths.iter().filter_map(read).collect()
    }

    /// Sets up the case and publishes it, failing before step `stop`.
    fn play(case: &Case) -> (tempfile::TempDir, Result<(), PublishFailure>) {
        let dir = tempfile::tempdir().unwrap();
        let (project, tree) = (dir.path().join("project"), dir.path().join("tree"));
        fs::create_dir_all(&project).unwrap();
        fs::create_dir_all(&tree).unwrap();
        let (into, work) = (ScopedDir::open(&project).unwrap(), ScopedDir::open(&tree).unwrap());
        for (path, text) in &case.before {
            into.write(path, text.as_bytes(), SHARED_MODE, 0o666).unwrap();
        }
        let mut changes = BTreeMap::new();
        for (path, text) in &case.after {
            let base = case.before.get(path).map(|text| hash_bytes(text.as_bytes()));
            if let Some(text) = text {
                work.write(path, text.as_bytes(), PRIVATE_MODE, 0o600).unwrap();
            }
            changes.insert(
                path.clone(),
                WorkspaceChange { base_hash: base, new_hash: text.as_ref().map(|text| hash_bytes(text.as_bytes())) },
            );
        }
        let mut left = case.stop;
        let site = PublishDir::lock(&project).unwrap();
        let done = site.run(&work, &changes, &mut |_| match left.checked_sub(1) {
            Some(rest) => {
                left = rest;
                Ok(())
            }
            None => Err(io::Error::other("injected")),
        });
        if done.is_err() && !case.crash {
            site.recover().unwrap();
        }
        drop(site);
        (dir, done)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn it_is_whole_or_not_at_all_wherever_it_stops(case in case()) {
            let (dir, done) = play(&case);
            let project = dir.path().join("project");
            recover_publication(&project).unwrap();
            let mut whole = case.before.clone();
            for (path, text) in &case.after {
                match text {
                    Some(text) => whole.insert(path.clone(), text.clone()),
                    None => whole.remove(path),
                };
            }
            prop_assert_eq!(snapshot(&project), if done.is_ok() { whole } else { case.before });
            prop_assert!(!project.join(CURRENT_DIR).exists());
            prop_assert_eq!(recover_publication(&project).unwrap(), RecoveredPublication::default(), "once is enough");
        }
    }

    #[test]
    fn recovery_keeps_files_changed_since_the_crash() {
        let text = |text: &str| Some(text.to_owned());
        let case = Case {
            before: [("wiki/c.md".into(), "old".into())].into(),
            after: [("wiki/c.md".into(), text("new")), ("wiki/global/a.md".into(), text("new"))].into(),
            // The two staging steps, the journal and both moves succeed; the failure comes before the journal is
            // removed.
            stop: 5,
            crash: true,
        };
        let (dir, _) = play(&case);
        let project = dir.path().join("project");
        fs::write(project.join("wiki/c.md"), "by hand").unwrap();
        let recovered = recover_publication(&project).unwrap();
        assert_eq!(recovered.kept_paths, ["wiki/c.md"]);
        assert_eq!(recovered.restored_paths, ["wiki/global/a.md"]);
        assert_eq!(snapshot(&project), [("wiki/c.md".to_owned(), "by hand".to_owned())].into());
    }

    #[test]
    fn failed_move_rolls_back_the_publication() {
        let dir = tempfile::tempdir().unwrap();
        let (project, tree) = (dir.path().join("project"), dir.path().join("tree"));
        fs::create_dir_all(project.join("wiki/global")).unwrap();
        fs::create_dir_all(&tree).unwrap();
        let work = ScopedDir::open(&tree).unwrap();
        let mut changes = BTreeMap::new();
        for path in ["wiki/global/a.md", "wiki/global/b.md"] {
            work.write(path, b"new", PRIVATE_MODE, 0o600).unwrap();
            changes.insert(path.to_owned(), WorkspaceChange { base_hash: None, new_hash: Some(hash_bytes(b"new")) });
        }
        fs::create_dir(project.join("wiki/global/b.md")).unwrap();
        assert!(matches!(publish_changes(&project, &work, &changes), Err(PublishError::Io { .. })));
        assert!(!project.join("wiki/global/a.md").exists());
        assert!(project.join("wiki/global/b.md").is_dir());
    }

    #[test]
    fn publications_from_many_threads_take_turns() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join("project");
        fs::create_dir_all(&project).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (project, tree) = (project.clone(), dir.path().join(format!("tree{thread}")));
                scope.spawn(move || {
                    fs::create_dir_all(&tree).unwrap();
                    let path = format!("wiki/global/p{thread}.md");
                    let work = ScopedDir::open(&tree).unwrap();
                    work.write(&path, b"x", PRIVATE_MODE, 0o600).unwrap();
                    let change = WorkspaceChange { base_hash: None, new_hash: Some(hash_bytes(b"x")) };
                    publish_changes(&project, &work, &BTreeMap::from([(path, change)])).unwrap();
                });
            }
        });
        assert_eq!(fs::read_dir(project.join("wiki/global")).unwrap().count(), 8);
    }

    #[test]
    fn published_files_have_ordinary_modes() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let (project, tree) = (dir.path().join("project"), dir.path().join("tree"));
        fs::create_dir_all(&project).unwrap();
        fs::create_dir_all(&tree).unwrap();
        let work = ScopedDir::open(&tree).unwrap();
        work.write("wiki/a.md", b"x", PRIVATE_MODE, 0o600).unwrap();
        let change = WorkspaceChange { base_hash: None, new_hash: Some(hash_bytes(b"x")) };
        publish_changes(&project, &work, &BTreeMap::from([("wiki/a.md".to_owned(), change)])).unwrap();
        let mode = |path: &str| fs::metadata(project.join(path)).unwrap().permissions().mode() & 0o700;
        assert_eq!(mode("wiki/a.md"), 0o600);
        assert_eq!(fs::metadata(project.join(".ktx")).unwrap().permissions().mode() & 0o777, 0o700);
    }

    /// A journal that removes and writes arbitrary paths, with the current hashes of these files.
    fn journal(project: &Path, path: &str, base: Option<&[u8]>) -> PublishJournal {
        let now = HexHash(fs::read(project.join(path)).ok().as_deref().map(hash_bytes)).to_string();
        PublishJournal {
            files: vec![PublishJournalEntry {
                path: path.into(),
                base: HexHash(base.map(hash_bytes)).to_string(),
                now,
            }],
        }
    }

    fn plant(project: &Path, bytes: &[u8]) {
        fs::create_dir_all(project.join(CURRENT_DIR).join("old/.git")).unwrap();
        fs::write(project.join(CURRENT_DIR).join("old/.git/new"), "planted").unwrap();
        fs::write(project.join(JOURNAL_FILE), bytes).unwrap();
    }

    fn refusal(project: &Path) -> UntrustedRecord {
        match recover_publication(project) {
            Err(PublishError::RejectedJournal(rejected_journal)) => rejected_journal.reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn journal_with_other_paths_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path();
        fs::create_dir_all(project.join(".git")).unwrap();
        fs::write(project.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        for (path, base) in [
            (".git/HEAD", None),
            (".git/new", Some(&b"planted"[..])),
            ("ktx.yaml", None),
            ("wiki/../.git/HEAD", None),
            ("/etc/passwd", None),
            ("wikis/a.md", None),
        ] {
            let scoped = ScopedDir::open(project).unwrap();
            plant(project, &local_record::encode(&scoped, journal(project, path, base)).unwrap());
            assert!(matches!(refusal(project), UntrustedRecord::ForbiddenPath(of) if of == path), "{path}");
        }
        assert!(project.join(".git/HEAD").exists() && !project.join(".git/new").exists());
    }

    #[test]
    fn journal_of_other_place_or_version_is_rejected() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let project = dir.path();
        fs::create_dir_all(project.join("wiki")).unwrap();
        fs::write(project.join("wiki/a.md"), "mine").unwrap();
        let content = || journal(project, "wiki/a.md", None);
        let of_a_copy = local_record::encode(&ScopedDir::open(other.path()).unwrap(), content()).unwrap();
        plant(project, &of_a_copy);
        assert!(matches!(refusal(project), UntrustedRecord::OtherLocation));
        let of_before = format!("{{\"version\":1,\"files\":{}}}", serde_json::to_string(&content().files).unwrap());
        plant(project, of_before.as_bytes());
        assert!(matches!(refusal(project), UntrustedRecord::UnknownVersion));
        assert_eq!(fs::read(project.join("wiki/a.md")).unwrap(), b"mine");
        // Publishing is refused while a rollback may be pending, and the remedy in the message works.
        let work = ScopedDir::open(other.path()).unwrap();
        work.write("wiki/b.md", b"x", PRIVATE_MODE, 0o600).unwrap();
        let changes = BTreeMap::from([(
            "wiki/b.md".into(),
            WorkspaceChange { base_hash: None, new_hash: Some(hash_bytes(b"x")) },
        )]);
        let error = publish_changes(project, &work, &changes).unwrap_err();
        assert!(error.to_line().ends_with("then delete it"), "{error}");
        fs::remove_file(project.join(JOURNAL_FILE)).unwrap();
        publish_changes(project, &work, &changes).unwrap();
    }

    #[test]
    fn a_linked_journal_is_not_read() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let project = dir.path();
        fs::create_dir_all(project.join("wiki")).unwrap();
        fs::write(project.join("wiki/a.md"), "mine").unwrap();
        let bytes = local_record::encode(&ScopedDir::open(project).unwrap(), journal(project, "wiki/a.md", None));
        fs::write(outside.path().join("journal.json"), bytes.unwrap()).unwrap();
        fs::create_dir_all(project.join(".ktx/ingestdeck/publish")).unwrap();
        std::os::unix::fs::symlink(outside.path(), project.join(CURRENT_DIR)).unwrap();
        assert!(matches!(recover_publication(project), Err(PublishError::Io { .. })));
        assert!(project.join("wiki/a.md").exists() && outside.path().join("journal.json").exists());
    }
}
