//! Copies of raw files, so that units read a fixed state even if the source changes during the run.
//!
//! Owns `.ktx/cache/local-ingest/<job>`, which KTX uses for the same purpose, and deletes old copies; copies made by
//! KTX itself are left unchanged. This module must not decide which units run.

use ingestdeck_core::diagnostic::Diagnostic;
use ingestdeck_os::scoped_dir::{self, PRIVATE_MODE, ScopedDir};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::{Instant, SystemTime},
};

use super::{
    connection::Connection,
    job::IngestJob,
    plan::{IngestPlan, SourcePlan},
    source::{
        Fingerprint, SourceTree, find_adapter,
        fingerprint::{self, MAX_FILE_BYTES},
    },
};

/// KTX's staging directory, relative to the project.
const STAGING_DIR: &str = ".ktx/cache/local-ingest";
/// The file that marks a directory as created by this program; locked while its run is active.
const MARK_FILE: &str = ".ingestdeck";
/// Number of copies of ended runs to keep.
const KEPT_COPIES: usize = 3;

/// The copies of one run. They are not deleted on drop, but a later run may delete them from then on.
#[derive(Debug)]
pub struct StagedCopies {
    lock: File,
}

impl Drop for StagedCopies {
    fn drop(&mut self) {
        // Closing is not enough: a child process that has not executed its program yet has a copy of the descriptor.
        // If it fails, the copies are deleted later.
        let _ = self.lock.unlock();
    }
}

/// The raw files cannot be copied. No unit has started.
#[derive(Debug, thiserror::Error)]
pub enum StagingError {
    /// The directory for copies cannot be created.
    #[error("cannot make {path} for copies of the raw files: {cause}")]
    Directory { path: PathBuf, cause: io::Error },
    /// A file cannot be copied.
    #[error("cannot copy {path} of connection {connection}: {cause}")]
    File {
        /// Relative to the source.
        path: String,
        /// Id of the connection.
        connection: String,
        cause: String,
        remedy: String,
    },
}

impl Diagnostic for StagingError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::Directory { cause, .. } => return scoped_dir::remedy(cause).map(str::to_owned),
            Self::File { remedy, .. } => remedy.clone(),
        })
    }
}

impl StagingError {
    fn copying(path: &str, connection: &str, error: &io::Error) -> Self {
        let remedy = scoped_dir::remedy(error).map_or_else(
            || "run again".into(),
            |first| format!("{first}, then run again"),
        );
        Self::File {
            path: path.to_owned(),
            connection: connection.to_owned(),
            cause: error.to_string(),
            remedy,
        }
    }
}

/// Copies every file that a unit of `planned` may read, and redirects the units to the copies. Updates the plan to the
/// content of the copies.
pub fn stage_raw_files(
    project: &Path,
    job: &IngestJob,
    planned: &mut IngestPlan,
) -> Result<StagedCopies, StagingError> {
    let failed = |cause| StagingError::Directory {
        path: project.join(STAGING_DIR).join(&job.id),
        cause,
    };
    let jobs = open(project).map_err(failed)?;
    let staged = mark(&jobs, &job.id).map_err(failed)?;
    remove_old_copies(&jobs, &job.id);
    let copied = copy_all(project, job, planned);
    if copied.is_err() {
        // Report the first error, not one of the cleanup.
        let _ = jobs.remove_dir_all(&job.id);
    }
    copied.map(|()| staged)
}

/// Opens the directory that contains one directory for each job.
fn open(project: &Path) -> io::Result<ScopedDir> {
    scoped_dir::create_ignored_dir(project, &project.join(STAGING_DIR))?;
    ScopedDir::open(project)?.dir(STAGING_DIR, None)
}

fn mark(jobs: &ScopedDir, job: &str) -> io::Result<StagedCopies> {
    jobs.dir(&format!("{job}/upload"), Some(PRIVATE_MODE))?;
    let lock = jobs.create_new(&format!("{job}/{MARK_FILE}"))?;
    lock.lock()?;
    Ok(StagedCopies { lock })
}

fn copy_all(project: &Path, job: &IngestJob, planned: &mut IngestPlan) -> Result<(), StagingError> {
    let mut wanted: BTreeMap<String, (PathBuf, BTreeSet<String>)> = BTreeMap::new();
    for unit in planned.units.iter().filter(|unit| !unit.is_text()) {
        let entry = wanted.entry(unit.planned.connection.clone());
        let (_, paths) = entry.or_insert_with(|| (unit.source_root.clone(), BTreeSet::new()));
        paths.extend(
            unit.planned
                .raw_files
                .iter()
                .chain(&unit.planned.dependency_paths)
                .cloned(),
        );
    }
    let mut roots: BTreeMap<String, PathBuf> = BTreeMap::new();
    for (connection, (root, paths)) in wanted {
        let relative = format!("{STAGING_DIR}/{}/upload/{connection}", job.id);
        let began = Instant::now();
        let prints = copy(project, &connection, &root, &relative, &paths)?;
        if let Some(source) = planned
            .sources
            .iter_mut()
            .find(|source| source.connection == connection)
        {
            source.use_staged_copies(&prints, relative.clone(), began.elapsed());
            source.definitions = definitions(source, &project.join(&relative), &root);
        }
        roots.insert(connection, project.join(relative));
    }
    for unit in planned.units.iter_mut().filter(|unit| !unit.is_text()) {
        if let Some(root) = roots.get(&unit.planned.connection) {
            unit.source_root.clone_from(root);
        }
    }
    Ok(())
}

/// The names that the files of `source` define, so that a later plan knows them when the files have changed. Files without
/// a copy are read in `root`.
fn definitions(source: &SourcePlan, copies: &Path, root: &Path) -> BTreeMap<String, Vec<String>> {
    let [copies, root] = [copies, root].map(|root| SourceTree {
        root: root.to_path_buf(),
        ..SourceTree::default()
    });
    let connection = Connection::default();
    let adapter = find_adapter(&source.adapter).filter(|adapter| {
        adapter
            .reference_reader(&connection, &copies, &[])
            .is_some()
    });
    let Some(adapter) = adapter else {
        return BTreeMap::new();
    };
    let defined = |path: &String| {
        let text = copies
            .read_text(path)
            .or_else(|_| root.read_text(path))
            .ok()?;
        Some((
            path.clone(),
            adapter.defined_names(path, &text)?.into_iter().collect(),
        ))
    };
    source.files.keys().filter_map(defined).collect()
}

/// Copies `paths` from `root` to `relative`, and returns digests of the copies.
fn copy(
    project: &Path,
    connection: &str,
    root: &Path,
    relative: &str,
    paths: &BTreeSet<String>,
) -> Result<BTreeMap<String, (Fingerprint, u64)>, StagingError> {
    let target = project.join(relative);
    let to = ScopedDir::open(project).and_then(|project| project.dir(relative, Some(PRIVATE_MODE)));
    let opened = to.and_then(|to| Ok((ScopedDir::open(root)?, to)));
    let (from, to) = opened.map_err(|cause| StagingError::Directory {
        path: target.clone(),
        cause,
    })?;
    let mut buffer = Vec::new();
    let mut open: Option<(&str, ScopedDir, ScopedDir)> = None;
    let mut prints = BTreeMap::new();
    for path in paths {
        let failed = |error: io::Error| StagingError::copying(path, connection, &error);
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        if open.as_ref().is_none_or(|(at, _, _)| *at != parent) {
            let folders = from
                .dir(parent, None)
                .and_then(|from| Ok((from, to.dir(parent, Some(PRIVATE_MODE))?)));
            let (from, to) = folders.map_err(failed)?;
            open = Some((parent, from, to));
        }
        if let Some((_, from, to)) = &open {
            let copied = copy_one(from, to, name, &mut buffer).map_err(failed)?;
            if let Some(why) = fingerprint::unsuitable_reason(&buffer) {
                let cause = format!("{why} since it was planned");
                return Err(failed(io::Error::other(cause)));
            }
            prints.insert(path.clone(), copied);
        }
    }
    Ok(prints)
}

fn copy_one(
    from: &ScopedDir,
    to: &ScopedDir,
    name: &str,
    buffer: &mut Vec<u8>,
) -> io::Result<(Fingerprint, u64)> {
    buffer.clear();
    let (file, _) = from.open_entry(name)?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(buffer)?;
    let bytes = buffer.len() as u64;
    if bytes > MAX_FILE_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it grew above {MAX_FILE_BYTES} bytes"),
        ));
    }
    to.create_entry(name, buffer, 0o600)?;
    Ok((Fingerprint::from_bytes(buffer), bytes))
}

/// Deletes copies of ended runs except the newest. Errors are ignored because the next run tries again.
fn remove_old_copies(jobs: &ScopedDir, current: &str) {
    let marked = |name: OsString| {
        let name = name.into_string().ok().filter(|name| name != current)?;
        let (mark, _) = jobs.open_file(&format!("{name}/{MARK_FILE}")).ok()?;
        Some((mark.metadata().ok()?.modified().ok()?, name))
    };
    let entries = jobs.entries().unwrap_or_default();
    let mut ended: Vec<(SystemTime, String)> = entries
        .into_iter()
        .filter_map(|(name, _)| marked(name))
        .collect();
    ended.sort();
    ended.reverse();
    for (_, name) in ended.into_iter().skip(KEPT_COPIES) {
        // An active run holds this lock, in this or another process.
        let mark = jobs.open_file(&format!("{name}/{MARK_FILE}"));
        if mark.is_ok_and(|(mark, _)| mark.try_lock().is_ok()) {
            let _ = jobs.remove_dir_all(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::{plan::UnitSelection, project::Project};

    struct StagingFixture {
        dir: tempfile::TempDir,
        project: Project,
    }

    impl StagingFixture {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir_all(dir.path().join("notes/deep")).unwrap();
            fs::write(
                dir.path().join("ktx.yaml"),
                "connections:\n  n: {driver: docs, source_dir: notes}\n",
            )
            .unwrap();
            fs::write(dir.path().join("notes/a.md"), "one").unwrap();
            fs::write(dir.path().join("notes/deep/b.md"), "two").unwrap();
            let project = Project::open(dir.path()).unwrap();
            Self { dir, project }
        }

        fn planned(&self) -> IngestPlan {
            crate::plan::plan(&self.project, &UnitSelection::default()).unwrap()
        }

        fn stage(&self, job: &str, planned: &mut IngestPlan) -> Result<StagedCopies, StagingError> {
            stage_raw_files(
                &self.project.root,
                &IngestJob {
                    id: job.into(),
                    sync_id: String::new(),
                },
                planned,
            )
        }

        fn jobs(&self) -> Vec<String> {
            let entries = fs::read_dir(self.dir.path().join(STAGING_DIR)).unwrap();
            let entries = entries
                .map(|entry| entry.unwrap())
                .filter(|entry| entry.path().is_dir());
            let mut jobs: Vec<String> = entries
                .map(|entry| entry.file_name().into_string().unwrap())
                .collect();
            jobs.sort();
            jobs
        }
    }

    #[test]
    fn full_disk_asks_for_space_before_the_next_run() {
        let error = StagingError::copying("a.md", "n", &io::ErrorKind::StorageFull.into());
        assert!(
            error
                .to_line()
                .ends_with("; free some disk space, then run again"),
            "{error}"
        );
        let error = StagingError::copying("a.md", "n", &io::Error::other("it grew"));
        assert_eq!(
            error.to_line(),
            "cannot copy a.md of connection n: it grew; run again"
        );
    }

    #[test]
    fn units_read_copies_and_copies_are_fingerprinted() {
        let desk = StagingFixture::new();
        let mut planned = desk.planned();
        fs::write(desk.dir.path().join("notes/a.md"), "changed since").unwrap();
        let _staged = desk.stage("local-1", &mut planned).unwrap();
        let root = desk.project.root.join(STAGING_DIR).join("local-1/upload/n");
        assert!(planned.units.iter().all(|unit| unit.source_root == root));
        assert_eq!(fs::read_to_string(root.join("deep/b.md")).unwrap(), "two");
        let note = planned.sources[0].to_note();
        assert_eq!(
            note.files[0].sha256,
            Fingerprint::from_bytes(b"changed since").to_string()
        );
        assert_eq!(
            (note.files[0].bytes, note.files[1].sha256.as_str()),
            (13, &*Fingerprint::from_bytes(b"two").to_string())
        );
        assert_eq!(
            note.staged.as_deref(),
            Some(".ktx/cache/local-ingest/local-1/upload/n")
        );
        assert!(note.is_complete);
    }

    #[test]
    fn files_replaced_since_the_plan_are_not_copied() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("b.md"), "secret").unwrap();
        type Way<'a> = (&'a str, &'a dyn Fn(&Path));
        let ways: [Way<'_>; 5] = [
            ("link", &|at| {
                fs::remove_file(at.join("notes/a.md")).unwrap();
                symlink(outside.path().join("b.md"), at.join("notes/a.md")).unwrap();
            }),
            ("folder", &|at| {
                fs::remove_dir_all(at.join("notes/deep")).unwrap();
                symlink(outside.path(), at.join("notes/deep")).unwrap();
            }),
            ("gone", &|at| {
                fs::remove_file(at.join("notes/a.md")).unwrap()
            }),
            ("binary", &|at| {
                fs::write(at.join("notes/a.md"), [0, 1]).unwrap()
            }),
            ("place", &|at| {
                fs::create_dir_all(at.join(".ktx")).unwrap();
                symlink(outside.path(), at.join(".ktx/cache")).unwrap();
            }),
        ];
        for (way, meddle) in ways {
            let desk = StagingFixture::new();
            let mut planned = desk.planned();
            meddle(desk.dir.path());
            let error = desk.stage("local-1", &mut planned).unwrap_err().to_string();
            assert!(error.starts_with("cannot "), "{way}: {error}");
            assert!(
                !desk.dir.path().join(STAGING_DIR).join("local-1").exists(),
                "{way} leaves nothing"
            );
            assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1, "{way}");
        }
    }

    #[test]
    fn copies_of_a_live_run_are_kept() {
        let desk = StagingFixture::new();
        let alive = desk.stage("local-0", &mut desk.planned()).unwrap();
        for job in 1..=6 {
            drop(
                desk.stage(&format!("local-{job}"), &mut desk.planned())
                    .unwrap(),
            );
        }
        assert_eq!(desk.jobs().len(), 1 + KEPT_COPIES + 1, "{:?}", desk.jobs());
        assert_eq!(desk.jobs()[0], "local-0");
        // As the descriptor of a child process between its fork and its program.
        let inherited = alive.lock.try_clone().unwrap();
        drop(alive);
        drop(desk.stage("local-7", &mut desk.planned()).unwrap());
        drop(inherited);
        assert_eq!(desk.jobs().len(), KEPT_COPIES + 1);
        assert!(!desk.jobs().contains(&"local-0".to_owned()));
    }
}
