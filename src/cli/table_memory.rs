//! How the user last arranged the table of units, and the saved views of the list of runs, per project. A file that is
//! missing or broken means the defaults. A table that cannot be kept is not an error: nothing but an arrangement is lost.

#![expect(clippy::disallowed_methods, reason = "the user's directory for state")]

use std::{
    collections::BTreeMap,
    fs, io,
    marker::PhantomData,
    path::{Path, PathBuf},
};

use serde::{Serialize, de::DeserializeOwned};

use ingestdeck_core::run::Timeline;
use ingestdeck_os::{scoped_dir::ScopedDir, user_dirs::UserDirs};
use ingestdeck_tui::{self as tui, LiveHandle};

/// The file with the arrangements of the table of units.
const TABLE_FILE: &str = "table.json";
/// Maximum size of the file, in bytes, and number of projects in it.
const MAX_BYTES: u64 = 256 * 1024;
const MAX_PROJECTS: usize = 200;

/// Runs the screen with the arrangement of the project's table, and keeps the one that the user leaves.
///
/// # Errors
/// If the terminal cannot be used.
pub(crate) async fn run(
    timeline: Timeline,
    live: Option<LiveHandle>,
    mut options: tui::Options,
) -> Result<tui::TuiExit, tui::TuiError> {
    let header = timeline.source().info().header.as_ref();
    let project = header
        .and_then(|header| header.project.clone())
        .unwrap_or_default();
    // A measurement shows the same for everyone, and so does the demo.
    let is_demo = live.is_some() && header.is_some_and(|header| header.scripted);
    let is_new = options.exit_when.is_some() || is_demo;
    let memory = ProjectMemory {
        dir: UserDirs::from_environment().state.filter(|_| !is_new),
        ..ProjectMemory::open(TABLE_FILE)
    };
    options.table = memory.load(&project);
    let before = options.table.clone();
    let left = tui::run(timeline, live, options).await?;
    if left.table != before
        && let Err(error) = memory.save(&project, left.table.clone())
    {
        tracing::debug!(%error, "the arrangement of the table is not kept");
    }
    Ok(left)
}

/// A file in the user's directory for state with a value for each project.
pub(crate) struct ProjectMemory<T> {
    /// The directory; `None` without one.
    dir: Option<PathBuf>,
    file: &'static str,
    values: PhantomData<T>,
}

impl<T: Serialize + DeserializeOwned + Default + PartialEq> ProjectMemory<T> {
    /// The values in `file`.
    pub(crate) fn open(file: &'static str) -> Self {
        Self {
            dir: UserDirs::from_environment().state,
            file,
            values: PhantomData,
        }
    }

    fn read(&self, dir: &Path) -> io::Result<BTreeMap<String, T>> {
        let opened = match ScopedDir::open(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            opened => opened?,
        };
        match opened.read_if_exists(self.file, MAX_BYTES)? {
            Some(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other),
            None => Ok(BTreeMap::new()),
        }
    }

    pub(crate) fn load(&self, project: &str) -> T {
        self.dir
            .as_deref()
            .and_then(|dir| self.read(dir).ok()?.remove(project))
            .unwrap_or_default()
    }

    /// Replaces the value of a project. The default is not stored.
    ///
    /// # Errors
    /// If the file cannot be written, or would be too large. One that cannot be read is kept under another name.
    pub(crate) fn save(&self, project: &str, value: T) -> io::Result<()> {
        let Some(dir) = self.dir.as_deref() else {
            return Err(io::Error::other(
                "there is no directory for state; set HOME",
            ));
        };
        let in_file = |error: io::Error| {
            io::Error::new(
                error.kind(),
                format!("{}: {error}", dir.join(self.file).display()),
            )
        };
        let mut known = match self.read(dir) {
            Ok(known) => known,
            Err(error) => {
                // What is in it may be wanted, such as that of a newer release.
                let place = ScopedDir::open(dir)?;
                let kept = format!("{}.unreadable", self.file);
                place
                    .rename(self.file, &place, &kept, 0o700)
                    .map_err(|_| in_file(error))?;
                BTreeMap::new()
            }
        };
        known.remove(project);
        if value != T::default() {
            while known.len() >= MAX_PROJECTS {
                known.pop_first();
            }
            known.insert(project.to_owned(), value);
        }
        let bytes = serde_json::to_vec_pretty(&known)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(in_file(io::Error::other("it would be too large")));
        }
        fs::create_dir_all(dir)?;
        ScopedDir::open(dir)?.write_unsynced(self.file, &bytes, 0o700, 0o600)
    }
}

#[cfg(test)]
impl<T> ProjectMemory<T> {
    /// A file in another directory.
    pub(crate) fn in_directory(dir: &Path, file: &'static str) -> Self {
        Self {
            dir: Some(dir.to_owned()),
            file,
            values: PhantomData,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingestdeck_tui::TableSettings;

    fn settings(json: &str) -> TableSettings {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn arrangement_is_kept_per_project() {
        let home = tempfile::tempdir().unwrap();
        let memory = ProjectMemory::in_directory(&home.path().join("state"), TABLE_FILE);
        assert_eq!(memory.load("orbit"), TableSettings::default());
        let by_cost = settings(r#"{"sort": "cost", "is_reversed": true, "grouping": "flat"}"#);
        memory.save("orbit", by_cost.clone()).unwrap();
        memory
            .save(
                "lantern",
                settings(r#"{"filter": "needs_you", "toggled": [{"need": "done"}]}"#),
            )
            .unwrap();
        assert_eq!(memory.load("orbit"), by_cost);
        assert_ne!(memory.load("lantern"), by_cost);
        assert_eq!(memory.load("harbor"), TableSettings::default());
        // The defaults are not stored.
        memory.save("orbit", TableSettings::default()).unwrap();
        let file = fs::read_to_string(home.path().join("state").join(TABLE_FILE)).unwrap();
        assert!(
            !file.contains("orbit") && file.contains("lantern"),
            "{file}"
        );
    }

    #[test]
    fn broken_or_missing_file_means_the_defaults() {
        let home = tempfile::tempdir().unwrap();
        let memory = ProjectMemory::in_directory(home.path(), TABLE_FILE);
        for broken in [
            "",
            "{",
            "[]",
            r#"{"orbit": {"sort": "by luck"}}"#,
            r#"{"orbit": 7}"#,
        ] {
            fs::write(home.path().join(TABLE_FILE), broken).unwrap();
            assert_eq!(memory.load("orbit"), TableSettings::default(), "{broken}");
        }
        fs::write(
            home.path().join(TABLE_FILE),
            " ".repeat(usize::try_from(MAX_BYTES).unwrap() + 1),
        )
        .unwrap();
        assert_eq!(memory.load("orbit"), TableSettings::default());
        memory
            .save("orbit", settings(r#"{"sort": "key"}"#))
            .unwrap();
        assert_eq!(memory.load("orbit"), settings(r#"{"sort": "key"}"#));
        let kept = home.path().join(format!("{TABLE_FILE}.unreadable"));
        assert_eq!(fs::metadata(kept).unwrap().len(), MAX_BYTES + 1);
        let nowhere = ProjectMemory {
            dir: None,
            file: TABLE_FILE,
            values: PhantomData,
        };
        assert!(
            nowhere
                .save("orbit", settings(r#"{"sort": "key"}"#))
                .is_err()
        );
        assert_eq!(nowhere.load("orbit"), TableSettings::default());
    }

    #[test]
    fn number_of_projects_is_limited() {
        let home = tempfile::tempdir().unwrap();
        let memory = ProjectMemory::in_directory(home.path(), TABLE_FILE);
        for project in 0..MAX_PROJECTS + 3 {
            memory
                .save(
                    &format!("project-{project:04}"),
                    settings(r#"{"sort": "key"}"#),
                )
                .unwrap();
        }
        assert_eq!(memory.read(home.path()).unwrap().len(), MAX_PROJECTS);
        assert_eq!(
            memory.load(&format!("project-{:04}", MAX_PROJECTS + 2)),
            settings(r#"{"sort": "key"}"#)
        );
    }
}
