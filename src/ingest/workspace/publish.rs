//! Moving an attempt's files into the project, whole or not at all, also when the machine dies in between.
//!
//! Everything is staged and backed up below `.ktx/ingestdeck/publish/<id>/` first, then a journal is written, then the
//! files are moved. As long as the journal stands, the publication has not happened: whoever finds it puts the old
//! files back. One publication at a time, across threads and processes. It must not know what the files mean.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{Change, Hex, LARGEST, print_at};
use crate::scoped_dir::{self, PRIVATE, SHARED, ScopedDir};

const JOURNAL: &str = "journal.json";

/// An attempt's files did not reach the project. The project is as it was, unless the error says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// Another unit or a person changed the same files meanwhile. A new attempt sees their version.
    #[error("{} changed in the project while this attempt was at work; run the unit again", paths.join(", "))]
    Conflict {
        /// Project-relative paths.
        paths: Vec<String>,
    },
    /// The system refuses.
    #[error("cannot publish into {}: {cause}", path.display())]
    Io {
        /// What was being written.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// It failed half-way and so did putting things back; the next start tries again.
    #[error("publishing failed ({cause}) and could not be undone ({undo}); the next run will undo it from {}", journal.display())]
    Stuck {
        /// The journal.
        journal: PathBuf,
        /// Why it failed.
        cause: io::Error,
        /// Why it could not be undone.
        undo: io::Error,
    },
}

/// A publication that was found half done and undone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Paths that were put back.
    pub restored: Vec<String>,
    /// Paths that somebody changed since, and that were left as they are.
    pub kept: Vec<String>,
}

/// What a journal holds.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Journal {
    version: u32,
    files: Vec<Line>,
}

/// One file of it. Prints are hexadecimal, `-` for no file.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    path: String,
    base: String,
    now: String,
}

/// What is about to happen; tests stop there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Stage,
    Journal,
    Move,
    Forget,
}

/// Publishes `changes`, whose files are below `tree`, into `project`.
pub(super) fn publish(project: &Path, tree: &Path, changes: &BTreeMap<String, Change>) -> Result<(), PublishError> {
    if changes.is_empty() {
        return Ok(());
    }
    let site = Site::lock(project).map_err(|cause| io_error(project, cause))?;
    // A journal that another process left behind would later undo what is written now.
    site.recover().map_err(|cause| io_error(&site.dir, cause))?;
    match site.run(tree, changes, &mut |_| Ok(())) {
        Ok(()) => Ok(()),
        Err(Failed::Conflict(paths)) => Err(PublishError::Conflict { paths }),
        Err(Failed::Io(cause)) => match site.recover() {
            Ok(_) => Err(io_error(project, cause)),
            Err(undo) => Err(PublishError::Stuck { journal: site.dir.join(JOURNAL), cause, undo }),
        },
    }
}

/// Undoes what a crash left half done in `project`. To be called when a run starts; harmless at any time.
pub fn recover(project: &Path) -> io::Result<Recovered> {
    if !project.join(DIR).join("current").exists() {
        return Ok(Recovered::default());
    }
    Site::lock(project)?.recover()
}

/// Where publications are prepared.
const DIR: &str = ".ktx/ingestdeck/publish";

#[derive(Debug)]
enum Failed {
    Conflict(Vec<String>),
    Io(io::Error),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The one place of a project where files are staged, held by one publication at a time.
struct Site {
    project: PathBuf,
    dir: PathBuf,
    /// Released when it is closed.
    _lock: File,
}

impl Site {
    fn lock(project: &Path) -> io::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        let parent = project.join(DIR);
        scoped_dir::make_private(project, &parent)?;
        let lock = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .custom_flags(nix::fcntl::OFlag::O_NOFOLLOW.bits())
            .open(parent.join("lock"))?;
        lock.lock()?;
        Ok(Self { project: project.to_path_buf(), dir: parent.join("current"), _lock: lock })
    }

    fn run(
        &self,
        tree: &Path,
        changes: &BTreeMap<String, Change>,
        before: &mut dyn FnMut(Step) -> io::Result<()>,
    ) -> Result<(), Failed> {
        let mut moved = Vec::new();
        for (path, change) in changes {
            if print_at(&self.project, path)? != change.base {
                moved.push(path.clone());
            }
        }
        if !moved.is_empty() {
            return Err(Failed::Conflict(moved));
        }
        scoped_dir::make_private(&self.project, &self.dir)?;
        let (site, tree, project) =
            (ScopedDir::open(&self.dir)?, ScopedDir::open(tree)?, ScopedDir::open(&self.project)?);
        for (path, change) in changes {
            before(Step::Stage)?;
            if change.now.is_some() {
                site.write(&format!("new/{path}"), &tree.read(path, LARGEST)?, PRIVATE, 0o666)?;
            }
            if change.base.is_some() {
                site.write(&format!("old/{path}"), &project.read(path, LARGEST)?, PRIVATE, 0o666)?;
            }
        }
        before(Step::Journal)?;
        let files = changes.iter().map(|(path, change)| Line {
            path: path.clone(),
            base: Hex(change.base).to_string(),
            now: Hex(change.now).to_string(),
        });
        let journal = Journal { version: 1, files: files.collect() };
        site.write(JOURNAL, &serde_json::to_vec(&journal).map_err(io::Error::from)?, PRIVATE, 0o600)?;
        for (path, change) in changes {
            before(Step::Move)?;
            match change.now {
                Some(_) => site.rename(&format!("new/{path}"), &project, path, SHARED)?,
                None => {
                    project.remove(path)?;
                }
            }
        }
        before(Step::Forget)?;
        // From here on it has happened; what is left of the staging folder is swept up by the next publication.
        site.remove(JOURNAL)?;
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            tracing::warn!(dir = %self.dir.display(), %error, "cannot remove the staging folder of a publication");
        }
        Ok(())
    }

    /// Puts back what an unfinished publication replaced, unless somebody changed it since.
    fn recover(&self) -> io::Result<Recovered> {
        let mut recovered = Recovered::default();
        if !self.dir.exists() {
            return Ok(recovered);
        }
        let site = ScopedDir::open(&self.dir)?;
        if let Some(bytes) = site.read_if_there(JOURNAL, 16 * LARGEST)? {
            let journal: Journal = serde_json::from_slice(&bytes)?;
            let project = ScopedDir::open(&self.project)?;
            for Line { path, base, now } in journal.files {
                let held = Hex(print_at(&self.project, &path)?).to_string();
                if held == base {
                    continue;
                }
                if held != now {
                    recovered.kept.push(path);
                    continue;
                }
                if base == "-" {
                    project.remove(&path)?;
                } else {
                    project.write(&path, &site.read(&format!("old/{path}"), LARGEST)?, SHARED, 0o666)?;
                }
                recovered.restored.push(path);
            }
            site.remove(JOURNAL)?;
        }
        fs::remove_dir_all(&self.dir)?;
        Ok(recovered)
    }
}

fn io_error(path: &Path, cause: io::Error) -> PublishError {
    PublishError::Io { path: path.to_path_buf(), cause }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ingest::workspace::print_of;

    /// Files of a project before, and what an attempt made of them (`None` = removed).
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

    /// Sets the case up and publishes it, failing before step `stop`.
    fn play(case: &Case) -> (tempfile::TempDir, Result<(), Failed>) {
        let dir = tempfile::tempdir().unwrap();
        let (project, tree) = (dir.path().join("project"), dir.path().join("tree"));
        fs::create_dir_all(&project).unwrap();
        fs::create_dir_all(&tree).unwrap();
        let (into, work) = (ScopedDir::open(&project).unwrap(), ScopedDir::open(&tree).unwrap());
        for (path, text) in &case.before {
            into.write(path, text.as_bytes(), SHARED, 0o666).unwrap();
        }
        let mut changes = BTreeMap::new();
        for (path, text) in &case.after {
            let base = case.before.get(path).map(|text| print_of(text.as_bytes()));
            if let Some(text) = text {
                work.write(path, text.as_bytes(), PRIVATE, 0o600).unwrap();
            }
            changes.insert(path.clone(), Change { base, now: text.as_ref().map(|text| print_of(text.as_bytes())) });
        }
        let mut left = case.stop;
        let site = Site::lock(&project).unwrap();
        let done = site.run(&tree, &changes, &mut |_| match left.checked_sub(1) {
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
            recover(&project).unwrap();
            let mut whole = case.before.clone();
            for (path, text) in &case.after {
                match text {
                    Some(text) => whole.insert(path.clone(), text.clone()),
                    None => whole.remove(path),
                };
            }
            prop_assert_eq!(snapshot(&project), if done.is_ok() { whole } else { case.before });
            prop_assert!(!project.join(DIR).join("current").exists());
            prop_assert_eq!(recover(&project).unwrap(), Recovered::default(), "once is enough");
        }
    }

    #[test]
    fn recovery_does_not_touch_what_people_changed_since() {
        let text = |text: &str| Some(text.to_owned());
        let case = Case {
            before: [("wiki/c.md".into(), "old".into())].into(),
            after: [("wiki/c.md".into(), text("new")), ("wiki/global/a.md".into(), text("new"))].into(),
            // Two stages, the journal and both moves pass; it dies before the journal is removed.
            stop: 5,
            crash: true,
        };
        let (dir, _) = play(&case);
        let project = dir.path().join("project");
        fs::write(project.join("wiki/c.md"), "by hand").unwrap();
        let recovered = recover(&project).unwrap();
        assert_eq!(recovered.kept, ["wiki/c.md"]);
        assert_eq!(recovered.restored, ["wiki/global/a.md"]);
        assert_eq!(snapshot(&project), [("wiki/c.md".to_owned(), "by hand".to_owned())].into());
    }

    #[test]
    fn a_destination_that_cannot_be_replaced_undoes_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let (project, tree) = (dir.path().join("project"), dir.path().join("tree"));
        fs::create_dir_all(project.join("wiki/global")).unwrap();
        fs::create_dir_all(&tree).unwrap();
        let work = ScopedDir::open(&tree).unwrap();
        let mut changes = BTreeMap::new();
        for path in ["wiki/global/a.md", "wiki/global/b.md"] {
            work.write(path, b"new", PRIVATE, 0o600).unwrap();
            changes.insert(path.to_owned(), Change { base: None, now: Some(print_of(b"new")) });
        }
        fs::create_dir(project.join("wiki/global/b.md")).unwrap();
        assert!(matches!(publish(&project, &tree, &changes), Err(PublishError::Io { .. })));
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
                    ScopedDir::open(&tree).unwrap().write(&path, b"x", PRIVATE, 0o600).unwrap();
                    let change = Change { base: None, now: Some(print_of(b"x")) };
                    publish(&project, &tree, &BTreeMap::from([(path, change)])).unwrap();
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
        ScopedDir::open(&tree).unwrap().write("wiki/a.md", b"x", PRIVATE, 0o600).unwrap();
        let change = Change { base: None, now: Some(print_of(b"x")) };
        publish(&project, &tree, &BTreeMap::from([("wiki/a.md".to_owned(), change)])).unwrap();
        let mode = |path: &str| fs::metadata(project.join(path)).unwrap().permissions().mode() & 0o700;
        assert_eq!(mode("wiki/a.md"), 0o600);
        assert_eq!(fs::metadata(project.join(".ktx")).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
