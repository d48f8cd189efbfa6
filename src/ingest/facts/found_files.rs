//! Which files with facts a connection has. Everything that is asked about the existence of facts is decided here.

use std::path::PathBuf;

use super::{
    FactFileStamps, FactFiles, dbt,
    scan::{self, PROFILE_FILE, PROPERTIES_FILE, TABLES_DIR},
    schema_files,
    table_set::FactOrigin,
};
use ingestdeck_os::scoped_dir::{FileKind, ScopedDir};

/// The files with facts about a connection, as they were listed.
#[derive(Debug, Default)]
pub(super) struct FoundFactFiles {
    /// Path of the newest snapshot, relative to the project.
    pub(super) snapshot: Option<String>,
    /// Paths of the YAML files of the scan, relative to the project, sorted.
    pub(super) schema_files: Vec<String>,
    /// In the order of their sources.
    pub(super) dbt: Vec<DbtFile>,
}

/// A file that dbt wrote.
#[derive(Debug)]
pub(super) struct DbtFile {
    /// Directory of the dbt source.
    pub(super) source: PathBuf,
    /// Relative to the source.
    pub(super) path: String,
    pub(super) origin: FactOrigin,
    /// What is at the path; only a regular file is read.
    pub(super) kind: FileKind,
}

/// What changes when a file is written: its inode, its size in bytes, and its times in seconds and nanoseconds. `None` for
/// a file that cannot be examined.
pub(crate) type FactFileStamp = Option<[i128; 6]>;

impl FoundFactFiles {
    /// Lists the files of a connection.
    pub(super) fn list(files: &FactFiles) -> Self {
        let mut found = Self::default();
        if let (Some(dirs), Ok(root)) = (files.scan_dirs(), ScopedDir::open(&files.project)) {
            found.snapshot = scan::latest(&root, &dirs);
            found.schema_files = schema_files::list(&root, &dirs).unwrap_or_default();
        }
        found.dbt = files
            .dbt_sources
            .iter()
            .flat_map(|dir| dbt::list(dir))
            .collect();
        found
    }

    pub(super) fn has_scan(&self) -> bool {
        self.snapshot.is_some() || !self.schema_files.is_empty()
    }

    /// Whether there is a file of dbt of this origin.
    pub(super) fn has_dbt(&self, origin: FactOrigin) -> bool {
        let mut files = self.dbt.iter();
        files.any(|file| file.origin == origin && file.kind == FileKind::File)
    }

    pub(super) fn has_any(&self) -> bool {
        self.has_scan()
            || self.has_dbt(FactOrigin::DbtCatalog)
            || self.has_dbt(FactOrigin::DbtManifest)
    }

    /// The paths of the files with their stamps. Every program that writes a snapshot adds, removes or renames files in its
    /// folder of tables, so its tables are not examined one by one.
    pub(super) fn stamps(&self, files: &FactFiles) -> FactFileStamps {
        let root = ScopedDir::open(&files.project).ok();
        let snapshot = self.snapshot.iter().flat_map(|folder| {
            [PROPERTIES_FILE, TABLES_DIR, PROFILE_FILE].map(|file| format!("{folder}/{file}"))
        });
        let of_scan = snapshot.chain(self.schema_files.iter().cloned());
        let mut stamps: FactFileStamps = of_scan
            .map(|path| {
                let stamp = root.as_ref().and_then(|root| stamp(root, &path));
                (PathBuf::from(path), stamp)
            })
            .collect();
        stamps.extend(self.dbt.iter().map(|file| {
            let source = ScopedDir::open(&file.source).ok();
            let stamp = source.and_then(|source| stamp(&source, &file.path));
            (file.source.join(&file.path), stamp)
        }));
        stamps
    }
}

fn stamp(root: &ScopedDir, path: &str) -> FactFileStamp {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let stat = root.dir(folder, None).ok()?.entry_stat(name).ok()?;
    Some([
        stat.st_ino.into(),
        stat.st_size.into(),
        stat.st_mtime.into(),
        stat.st_mtime_nsec.into(),
        stat.st_ctime.into(),
        stat.st_ctime_nsec.into(),
    ])
}
