//! Where bookmarks are kept: next to the tape of a recorded run, and in the user's directory for state for any other
//! file, because `ingestdeck` writes nothing next to files that it did not create.

#![expect(
    clippy::disallowed_methods,
    reason = "creates the user's directory for state"
)]

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use sha2::{Digest as _, Sha256};

use super::RunStore;
use ingestdeck_core::{
    diagnostic::Problem,
    run::bookmark::{self, Bookmark, BookmarkChange, BookmarkStore},
    tape::RunId,
};
use ingestdeck_os::scoped_dir::{self, FileKind, PRIVATE_MODE, ScopedDir};

/// Name of the file in the directory of a run.
const RUN_FILE: &str = "bookmarks.jsonl";
/// Directory in the user's directory for state.
const DIRECTORY: &str = "bookmarks";
/// Maximum size of a file, in bytes.
const MAX_BYTES: u64 = 2 << 20;
/// Maximum number of files in the user's directory for state; the oldest ones are removed.
const MAX_FILES: usize = 200;

/// The file with the bookmarks of one record.
#[derive(Clone, Debug)]
pub enum BookmarkFile {
    /// In the directory of a recorded run.
    Run { store: RunStore, run: RunId },
    /// In the user's directory for state.
    State { state: PathBuf, name: String },
}

impl BookmarkFile {
    pub fn of_run(store: &RunStore, run: RunId) -> Self {
        Self::Run {
            store: store.clone(),
            run,
        }
    }

    /// The file for a record that is not a run of a store. `path` identifies it; it must be absolute, without links.
    pub fn of_path(state: &Path, path: &Path) -> Self {
        use std::os::unix::ffi::OsStrExt as _;
        let digest = Sha256::digest(path.as_os_str().as_bytes());
        let name: String = digest
            .iter()
            .take(16)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Self::State {
            state: state.to_owned(),
            name: format!("{name}.jsonl"),
        }
    }

    /// The directory of the file, and its name. With `make`, creates the directory in the user's directory for state.
    fn open(&self, make: bool) -> io::Result<Option<(ScopedDir, &str)>> {
        match self {
            Self::Run { store, run } => {
                let runs = store.state_subdir("runs")?;
                let dir = runs.map_or(Ok(None), |runs| runs.dir_if_exists(&run.to_string()))?;
                Ok(dir.map(|dir| (dir, RUN_FILE)))
            }
            Self::State { state, name } => {
                if make {
                    fs::create_dir_all(state)?;
                    return Ok(Some((
                        ScopedDir::open(state)?.dir(DIRECTORY, Some(PRIVATE_MODE))?,
                        name,
                    )));
                }
                match ScopedDir::open(state) {
                    Ok(state) => Ok(state
                        .dir_if_exists(DIRECTORY)?
                        .map(|dir| (dir, name.as_str()))),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// The bookmarks, and the number of lines that are not bookmarks.
    ///
    /// # Errors
    /// If the file exists and cannot be read, or is not a regular file.
    pub fn load(&self) -> io::Result<(Vec<Bookmark>, usize)> {
        let Some((dir, name)) = self.open(false)? else {
            return Ok((Vec::new(), 0));
        };
        let bytes = dir.read_if_exists(name, MAX_BYTES)?;
        Ok(bytes.map_or_else(|| (Vec::new(), 0), |bytes| bookmark::parse(&bytes)))
    }

    fn write(&self, change: &BookmarkChange) -> io::Result<()> {
        let (dir, name) = self.open(true)?.ok_or(io::ErrorKind::NotFound)?;
        let bytes = dir.read_if_exists(name, MAX_BYTES)?.unwrap_or_default();
        let (mut bookmarks, _) = bookmark::parse(&bytes);
        change.apply(&mut bookmarks);
        // A later version may have written them.
        let is_unknown =
            |line: &&[u8]| !line.trim_ascii().is_empty() && bookmark::parse(line).0.is_empty();
        let unknown: Vec<&[u8]> = bytes
            .split(|byte| *byte == b'\n')
            .filter(is_unknown)
            .collect();
        if bookmarks.is_empty() && unknown.is_empty() {
            return dir.remove(name).map(drop);
        }
        if let Self::State { .. } = self
            && dir.kind(name)?.is_none()
        {
            remove_oldest(&dir)?;
        }
        let mut lines = bookmark::to_lines(&bookmarks).into_bytes();
        for line in unknown {
            lines.extend_from_slice(line);
            lines.push(b'\n');
        }
        dir.write_unsynced(name, &lines, PRIVATE_MODE, 0o600)
    }
}

impl BookmarkStore for BookmarkFile {
    fn change(&self, change: &BookmarkChange) -> Result<(), Problem> {
        self.write(change).map_err(|error| {
            let problem = Problem::new(format!(
                "cannot save bookmarks, they are lost when you quit: {error}"
            ));
            match scoped_dir::remedy(&error) {
                Some(remedy) => problem.with_help(remedy),
                None => problem,
            }
        })
    }
}

/// Makes room for one more file.
fn remove_oldest(dir: &ScopedDir) -> io::Result<()> {
    let mut files = Vec::new();
    for (name, kind) in dir.entries()? {
        let Some(name) = name
            .to_str()
            .filter(|name| kind == FileKind::File && name.ends_with(".jsonl"))
        else {
            continue;
        };
        let changed = dir
            .open_entry(name)
            .and_then(|(file, _)| file.metadata()?.modified());
        files.push((changed.unwrap_or(SystemTime::UNIX_EPOCH), name.to_owned()));
    }
    files.sort();
    let excess = (files.len() + 1).saturating_sub(MAX_FILES);
    files
        .iter()
        .take(excess)
        .try_for_each(|(_, name)| dir.remove(name).map(drop))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use ingestdeck_core::tape::{Millis, Seq};

    fn set(entry: u64, note: &str) -> BookmarkChange {
        BookmarkChange::Set(bookmark(entry, note))
    }

    fn bookmark(entry: u64, note: &str) -> Bookmark {
        Bookmark {
            entry: Seq(entry),
            at: Millis(entry),
            unit: None,
            attempt: None,
            note: note.into(),
        }
    }

    fn run_in(project: &Path) -> (BookmarkFile, PathBuf) {
        let run = RunId(uuid::Uuid::now_v7());
        let store = RunStore::new(project);
        let dir = store.root().join("runs").join(run.to_string());
        fs::create_dir_all(&dir).unwrap();
        (BookmarkFile::of_run(&store, run), dir.join(RUN_FILE))
    }

    #[test]
    fn bookmarks_of_a_run_are_in_its_directory() {
        let project = tempfile::tempdir().unwrap();
        let (file, path) = run_in(project.path());
        assert_eq!(file.load().unwrap(), (Vec::new(), 0));
        file.change(&set(7, "late")).unwrap();
        file.change(&set(3, "early")).unwrap();
        assert_eq!(
            file.load().unwrap().0,
            [bookmark(3, "early"), bookmark(7, "late")]
        );
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        // Another screen of the same run keeps what this one wrote.
        file.clone()
            .change(&BookmarkChange::Remove(bookmark(3, "")))
            .unwrap();
        assert_eq!(file.load().unwrap().0, [bookmark(7, "late")]);
        file.change(&BookmarkChange::Remove(bookmark(7, "")))
            .unwrap();
        assert!(!path.exists(), "an empty list leaves no file");
    }

    #[test]
    fn links_are_neither_read_nor_written() {
        let (project, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let target = outside.path().join("target");
        fs::write(&target, bookmark::to_lines(&[bookmark(1, "")])).unwrap();
        let (file, path) = run_in(project.path());
        symlink(&target, &path).unwrap();
        assert!(file.load().is_err());
        let refused = file.change(&set(2, "")).unwrap_err();
        assert!(refused.to_string().contains("symbolic link"), "{refused}");
        assert_eq!(
            fs::read_to_string(&target).unwrap(),
            bookmark::to_lines(&[bookmark(1, "")])
        );
        let (file, path) = run_in(project.path());
        fs::remove_dir(path.parent().unwrap()).unwrap();
        symlink(outside.path(), path.parent().unwrap()).unwrap();
        assert!(file.change(&set(2, "")).is_err() && !outside.path().join(RUN_FILE).exists());
    }

    #[test]
    fn bookmarks_of_other_files_are_in_the_state_directory() {
        let home = tempfile::tempdir().unwrap();
        let state = home.path().join("state/ingestdeck");
        let file = BookmarkFile::of_path(&state, Path::new("/captures/a.jsonl"));
        assert_eq!(file.load().unwrap(), (Vec::new(), 0));
        assert!(!state.exists(), "reading creates nothing");
        file.change(&set(1, "note")).unwrap();
        assert_eq!(file.load().unwrap().0, [bookmark(1, "note")]);
        let other = BookmarkFile::of_path(&state, Path::new("/captures/b.jsonl"));
        assert!(other.load().unwrap().0.is_empty());
        let mode = fs::metadata(state.join(DIRECTORY))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn number_of_files_is_limited() {
        let home = tempfile::tempdir().unwrap();
        for file in 0..MAX_FILES + 3 {
            let path = format!("/captures/{file}.jsonl");
            BookmarkFile::of_path(home.path(), Path::new(&path))
                .change(&set(1, ""))
                .unwrap();
        }
        assert_eq!(
            fs::read_dir(home.path().join(DIRECTORY)).unwrap().count(),
            MAX_FILES
        );
    }

    #[test]
    fn oversized_or_unreadable_files_are_an_error() {
        let project = tempfile::tempdir().unwrap();
        let (file, path) = run_in(project.path());
        fs::write(&path, "\n".repeat(usize::try_from(MAX_BYTES).unwrap() + 1)).unwrap();
        assert!(file.load().is_err() && file.change(&set(1, "")).is_err());
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(file.load().is_err() && file.change(&set(1, "")).is_err());
    }
}
