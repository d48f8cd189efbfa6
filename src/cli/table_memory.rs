//! How the user last arranged the table of units, per project. A file that is missing or broken means the defaults, and
//! a file that cannot be written is not an error: nothing but an arrangement is lost.

#![expect(clippy::disallowed_methods, reason = "the user's directory for state")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use ingestdeck_core::run::Timeline;
use ingestdeck_os::{scoped_dir::ScopedDir, user_dirs::UserDirs};
use ingestdeck_tui::{self as tui, LiveHandle, TableSettings};

const FILE: &str = "table.json";
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
    let memory = TableMemory {
        dir: UserDirs::from_environment().state.filter(|_| !is_new),
    };
    options.table = memory.load(&project);
    let before = options.table.clone();
    let left = tui::run(timeline, live, options).await?;
    if left.table != before {
        memory.save(&project, left.table.clone());
    }
    Ok(left)
}

/// The arrangements in the user's directory for state; `None` without one.
struct TableMemory {
    dir: Option<PathBuf>,
}

impl TableMemory {
    fn read(dir: &Path) -> BTreeMap<String, TableSettings> {
        let bytes = ScopedDir::open(dir)
            .and_then(|dir| dir.read_if_exists(FILE, MAX_BYTES))
            .ok()
            .flatten();
        bytes
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default()
    }

    fn load(&self, project: &str) -> TableSettings {
        self.dir
            .as_deref()
            .and_then(|dir| Self::read(dir).remove(project))
            .unwrap_or_default()
    }

    fn save(&self, project: &str, settings: TableSettings) {
        let Some(dir) = self.dir.as_deref() else {
            return;
        };
        let mut known = Self::read(dir);
        known.remove(project);
        while known.len() >= MAX_PROJECTS {
            known.pop_first();
        }
        if settings != TableSettings::default() {
            known.insert(project.to_owned(), settings);
        }
        let written = serde_json::to_vec_pretty(&known)
            .map_err(std::io::Error::from)
            .and_then(|bytes| {
                fs::create_dir_all(dir)?;
                ScopedDir::open(dir)?.write_unsynced(FILE, &bytes, 0o700, 0o600)
            });
        if let Err(error) = written {
            tracing::debug!(%error, "the arrangement of the table is not kept");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(json: &str) -> TableSettings {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn arrangement_is_kept_per_project() {
        let home = tempfile::tempdir().unwrap();
        let memory = TableMemory {
            dir: Some(home.path().join("state")),
        };
        assert_eq!(memory.load("orbit"), TableSettings::default());
        let by_cost = settings(r#"{"sort": "cost", "is_reversed": true, "grouping": "flat"}"#);
        memory.save("orbit", by_cost.clone());
        memory.save(
            "lantern",
            settings(r#"{"filter": "needs_you", "toggled": [{"need": "done"}]}"#),
        );
        assert_eq!(memory.load("orbit"), by_cost);
        assert_ne!(memory.load("lantern"), by_cost);
        assert_eq!(memory.load("harbor"), TableSettings::default());
        // The defaults are not stored.
        memory.save("orbit", TableSettings::default());
        let file = fs::read_to_string(home.path().join("state").join(FILE)).unwrap();
        assert!(
            !file.contains("orbit") && file.contains("lantern"),
            "{file}"
        );
    }

    #[test]
    fn broken_or_missing_file_means_the_defaults() {
        let home = tempfile::tempdir().unwrap();
        let memory = TableMemory {
            dir: Some(home.path().to_owned()),
        };
        for broken in [
            "",
            "{",
            "[]",
            r#"{"orbit": {"sort": "by luck"}}"#,
            r#"{"orbit": 7}"#,
        ] {
            fs::write(home.path().join(FILE), broken).unwrap();
            assert_eq!(memory.load("orbit"), TableSettings::default(), "{broken}");
        }
        fs::write(
            home.path().join(FILE),
            " ".repeat(usize::try_from(MAX_BYTES).unwrap() + 1),
        )
        .unwrap();
        assert_eq!(memory.load("orbit"), TableSettings::default());
        memory.save("orbit", settings(r#"{"sort": "key"}"#));
        assert_eq!(memory.load("orbit"), settings(r#"{"sort": "key"}"#));
        let nowhere = TableMemory { dir: None };
        nowhere.save("orbit", settings(r#"{"sort": "key"}"#));
        assert_eq!(nowhere.load("orbit"), TableSettings::default());
    }

    #[test]
    fn number_of_projects_is_limited() {
        let home = tempfile::tempdir().unwrap();
        let memory = TableMemory {
            dir: Some(home.path().to_owned()),
        };
        for project in 0..MAX_PROJECTS + 3 {
            memory.save(
                &format!("project-{project:04}"),
                settings(r#"{"sort": "key"}"#),
            );
        }
        assert_eq!(TableMemory::read(home.path()).len(), MAX_PROJECTS);
        assert_eq!(
            memory.load(&format!("project-{:04}", MAX_PROJECTS + 2)),
            settings(r#"{"sort": "key"}"#)
        );
    }
}
