//! Which files the connections of a project may read: files of the project, and paths that are explicitly allowed.
//!
//! `ktx.yaml` comes with the project, perhaps from another author, so it cannot allow paths outside the project. Only
//! the user's own settings can. This module must not open files; callers resolve links before the check.

#![expect(
    clippy::disallowed_methods,
    reason = "resolves a path to decide whether it may be opened"
)]

use std::{
    ffi::OsStr,
    path::{Component, Path, PathBuf},
};

use crate::connection::PROJECT_FILE;
use crate::database::WarehouseSettings;
use crate::untrusted_text::{escape_unpresentable, is_presentable, visible_path};
use ingestdeck_core::diagnostic::Diagnostic;

/// Directories of git and KTX. Files below them are never a source.
const INTERNAL_DIRS: [&str; 2] = [".git", ".ktx"];

/// The paths that the user's settings and `ktx.yaml` allow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathPolicy {
    /// `ingest.allow_paths` of the user's settings; absolute paths without symbolic links.
    allowed_paths: Vec<PathBuf>,
    /// The settings file, for messages; empty if there is none.
    settings_file: String,
    /// `ingest.allowHidden` of `ktx.yaml`, relative to the project.
    allowed_hidden: Vec<PathBuf>,
    /// `ingest.allow_git` of the user's settings.
    allowed_repositories: Vec<String>,
}

/// What the user's own settings allow the connections of projects to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserPermissions {
    /// Paths outside of projects: `ingest.allow_paths`.
    pub paths: Vec<PathBuf>,
    /// Repositories that git may fetch: `ingest.allow_git`.
    pub repositories: Vec<String>,
    /// What the section `[warehouse]` contains.
    pub warehouse: WarehouseSettings,
    /// The settings file, with `~` for the home directory; empty if its path is unknown.
    pub settings_file: String,
}

/// Why a connection may not read a path. Continues a sentence about the connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathRefusal {
    /// A file of git, of KTX or of this program.
    #[error("`{}` belongs to git or KTX, so it is never read as a source", display(.0))]
    Internal(PathBuf),
    /// The path is not below the project.
    #[error("`{}` is outside the project", display(path))]
    Outside {
        /// The path without symbolic links.
        path: PathBuf,
        /// How to allow the path.
        remedy: String,
    },
    /// A component of the path begins with a dot.
    #[error("`{}` is hidden", display(path))]
    Hidden {
        /// The path, relative to the project if it is inside.
        path: PathBuf,
        /// How to allow the path.
        remedy: String,
    },
    /// A path in a clone leads out of it.
    #[error("`{}` is outside its repository", display(.0))]
    OutsideClone(PathBuf),
}

impl Diagnostic for PathRefusal {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::Internal(_) => "name other files".into(),
            Self::OutsideClone(_) => "correct `path` in ktx.yaml".into(),
            Self::Outside { remedy, .. } | Self::Hidden { remedy, .. } => {
                format!("to allow it, {remedy}")
            }
        })
    }
}

impl PathPolicy {
    /// The policy of `ktx.yaml`. Entries that are not plain paths inside the project have no effect.
    pub(super) fn from_project(hidden: &[String]) -> Self {
        Self {
            allowed_hidden: hidden
                .iter()
                .filter_map(|entry| normal_path(entry))
                .collect(),
            ..Self::default()
        }
    }

    /// Adds what the user allows. Relative paths, and paths that a symbolic link in the project at `root` redirects, are
    /// ignored.
    pub(super) fn allow(&mut self, root: &Path, permissions: UserPermissions) {
        let UserPermissions {
            paths,
            repositories,
            settings_file,
            warehouse: _,
        } = permissions;
        self.settings_file = settings_file;
        self.allowed_repositories = repositories;
        let leads_out = |path: &Path, real: &Path| {
            !real.starts_with(root)
                && path
                    .ancestors()
                    .any(|above| above.canonicalize().is_ok_and(|real| real == root))
        };
        for path in paths.into_iter().filter(|path| path.is_absolute()) {
            let real = path.canonicalize().unwrap_or_else(|_| path.clone());
            if !leads_out(&path, &real) {
                self.allowed_paths.push(real);
            }
        }
    }

    /// Whether `path`, absolute and without links, may be read for the project at `root`.
    ///
    /// # Errors
    /// Fails if neither the project nor the settings allow the path.
    pub(crate) fn check(&self, root: &Path, path: &Path) -> Result<(), PathRefusal> {
        let inside = path.strip_prefix(root).ok();
        if inside.is_some_and(is_internal) {
            return Err(PathRefusal::Internal(path.to_path_buf()));
        }
        let allowed = self
            .allowed_paths
            .iter()
            .map(PathBuf::as_path)
            .filter(|allowed| path.starts_with(allowed));
        let nearest = allowed
            .chain(inside.map(|_| root))
            .max_by_key(|base| base.components().count());
        let Some(below) = nearest.and_then(|base| path.strip_prefix(base).ok()) else {
            return Err(PathRefusal::Outside {
                path: path.to_path_buf(),
                remedy: self.settings_remedy(path),
            });
        };
        if is_internal(below) {
            return Err(PathRefusal::Internal(path.to_path_buf()));
        }
        let Some(hidden) = hidden_prefix(below) else {
            return Ok(());
        };
        let shown = inside.unwrap_or(path).to_path_buf();
        // Hidden files often hold secrets that are not part of the repository, so `ktx.yaml` allows directories only.
        let directory = inside.filter(|_| below != hidden || path.is_dir());
        let Some(inside) = directory else {
            return Err(PathRefusal::Hidden {
                path: shown,
                remedy: self.settings_remedy(path),
            });
        };
        if self.allowed_hidden.iter().any(|entry| {
            inside
                .strip_prefix(entry)
                .is_ok_and(|rest| hidden_prefix(rest).is_none())
        }) {
            return Ok(());
        }
        let entry = hidden_prefix(inside).unwrap_or(inside);
        let remedy = format!(
            "write `allowHidden: {}` below `ingest` in ktx.yaml",
            list(&self.allowed_hidden, entry)
        );
        Err(PathRefusal::Hidden {
            path: shown,
            remedy,
        })
    }

    /// Whether `path`, absolute and without links, may be read in the clone at `root`, which is in KTX's cache. Everything in
    /// a clone is part of its repository, so hidden files are as secret as the others.
    ///
    /// # Errors
    /// Fails for a path outside of it, and for files of git and KTX in it.
    pub(crate) fn check_clone(root: &Path, path: &Path) -> Result<(), PathRefusal> {
        match path.strip_prefix(root) {
            Ok(below) if is_internal(below) => Err(PathRefusal::Internal(path.to_path_buf())),
            Ok(_) => Ok(()),
            Err(_) => Err(PathRefusal::OutsideClone(path.to_path_buf())),
        }
    }

    /// Whether the user's settings allow git to fetch `repository`.
    pub(crate) fn allows_repository(&self, repository: &str) -> bool {
        self.allowed_repositories
            .iter()
            .any(|allowed| allowed == repository)
    }

    /// How to allow git to fetch `repository`.
    pub(crate) fn repository_remedy(&self, repository: &str) -> String {
        let known = self.allowed_repositories.iter().map(String::as_str);
        let list: Vec<String> = known.chain([repository]).map(quoted).collect();
        format!(
            "to allow it, write `allow_git = [{}]` below `[ingest]` {}",
            list.join(", "),
            self.settings_place()
        )
    }

    /// How to allow a connection to a warehouse.
    pub(crate) fn warehouse_remedy(&self, allowed: &[String], connection: &str) -> String {
        let known = allowed.iter().map(String::as_str);
        let list: Vec<String> = known.chain([connection]).map(quoted).collect();
        format!(
            "to allow it, write `allow = [{}]` below `[warehouse]` {}",
            list.join(", "),
            self.settings_place()
        )
    }

    fn settings_remedy(&self, path: &Path) -> String {
        format!(
            "write `allow_paths = {}` below `[ingest]` {}",
            list(&self.allowed_paths, path),
            self.settings_place()
        )
    }

    fn settings_place(&self) -> String {
        match self.settings_file.as_str() {
            "" => "in a file of settings that you name with --config".to_owned(),
            file => format!("in your settings ({})", escape_unpresentable(file)),
        }
    }
}

/// `entry` as a relative path without `.` and `..`.
fn normal_path(entry: &str) -> Option<PathBuf> {
    let parts = Path::new(entry)
        .components()
        .filter(|part| *part != Component::CurDir);
    let names: Option<PathBuf> = parts
        .map(|part| {
            if let Component::Normal(name) = part {
                Some(name)
            } else {
                None
            }
        })
        .collect();
    names.filter(|names| names.components().next().is_some())
}

/// Whether the relative `path` is a file of git or KTX.
fn is_internal(path: &Path) -> bool {
    let is = |name: &OsStr, known: &str| name.eq_ignore_ascii_case(known);
    path.file_name().is_some_and(|name| is(name, PROJECT_FILE))
        || path.components().any(|part| {
            INTERNAL_DIRS
                .iter()
                .any(|known| is(part.as_os_str(), known))
        })
}

/// The relative `path` up to its last component that begins with a dot.
fn hidden_prefix(path: &Path) -> Option<&Path> {
    let is_hidden = |name: &OsStr| name.as_encoded_bytes().first() == Some(&b'.');
    path.ancestors()
        .find(|part| part.file_name().is_some_and(is_hidden))
}

/// The allowed paths and one more, as a list that is valid TOML and YAML.
fn list(known: &[PathBuf], more: &Path) -> String {
    let entries = known
        .iter()
        .map(PathBuf::as_path)
        .chain([more])
        .map(|path| quoted(&path.to_string_lossy()));
    format!("[{}]", entries.collect::<Vec<_>>().join(", "))
}

fn quoted(text: &str) -> String {
    let escape = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        c if is_presentable(c.encode_utf8(&mut [0; 4])) => c.to_string(),
        c => format!("\\U{:08X}", u32::from(c)),
    };
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}

fn display(path: &Path) -> String {
    visible_path(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn check(policy: &PathPolicy, path: &str) -> Result<(), String> {
        policy
            .check(Path::new("/p"), Path::new(path))
            .map_err(|refusal| refusal.to_line())
    }

    fn policy(allowed: &[&str], hidden: &[&str]) -> PathPolicy {
        let mut policy = PathPolicy::from_project(
            &hidden
                .iter()
                .map(|path| (*path).to_owned())
                .collect::<Vec<_>>(),
        );
        let permissions = UserPermissions {
            paths: allowed.iter().map(PathBuf::from).collect(),
            settings_file: "~/settings.toml".into(),
            ..UserPermissions::default()
        };
        policy.allow(Path::new("/p"), permissions);
        policy
    }

    #[test]
    fn paths_inside_need_no_permission() {
        for path in ["/p", "/p/docs", "/p/docs/a..b", "/p/wiki"] {
            assert_eq!(check(&PathPolicy::default(), path), Ok(()), "{path}");
        }
    }

    #[test]
    fn outside_paths_need_the_settings_of_the_user() {
        assert_eq!(
            check(&policy(&[], &[]), "/q/dbt").unwrap_err(),
            "`/q/dbt` is outside the project; to allow it, write `allow_paths = [\"/q/dbt\"]` below `[ingest]` in your \
             settings (~/settings.toml)"
        );
        assert!(
            check(&PathPolicy::default(), "/q/dbt")
                .unwrap_err()
                .ends_with("that you name with --config")
        );
        let policy = policy(&["/q/dbt", "relative", "~/x"], &["../q", "/q", "q"]);
        assert_eq!(check(&policy, "/q/dbt/models"), Ok(()));
        let refused = check(&policy, "/q/dbt2").unwrap_err();
        assert!(
            refused.contains("write `allow_paths = [\"/q/dbt\", \"/q/dbt2\"]`"),
            "{refused}"
        );
        assert!(check(&policy, "/q").is_err());
    }

    #[test]
    fn hidden_paths_are_allowed_by_name_only() {
        assert_eq!(
            check(&PathPolicy::default(), "/p/.github/docs").unwrap_err(),
            "`.github/docs` is hidden; to allow it, write `allowHidden: [\".github\"]` below `ingest` in ktx.yaml"
        );
        let project = policy(&[], &["./.github/"]);
        assert_eq!(check(&project, "/p/.github/docs"), Ok(()));
        assert!(
            check(&project, "/p/.github/.cache/x").is_err()
                && check(&project, "/p/a/.github/x").is_err()
        );
        let user = policy(&["/home/me", "/home/me/.local/dbt"], &["/home/me/.ssh"]);
        assert_eq!(check(&user, "/home/me/.local/dbt/x"), Ok(()));
        let refused = check(&user, "/home/me/.ssh").unwrap_err();
        assert!(
            refused.starts_with("`/home/me/.ssh` is hidden; to allow it, write `allow_paths = "),
            "{refused}"
        );
    }

    #[test]
    fn hidden_files_are_not_allowed_by_ktx_yaml() {
        let refused = check(&policy(&[], &[".env", "a/.npmrc"]), "/p/.env").unwrap_err();
        assert!(
            refused.contains("write `allow_paths = [\"/p/.env\"]`"),
            "{refused}"
        );
        assert!(check(&policy(&[], &[".env", "a/.npmrc"]), "/p/a/.npmrc").is_err());
        assert_eq!(check(&policy(&["/p/.env"], &[]), "/p/.env"), Ok(()));
    }

    #[test]
    fn files_of_git_and_ktx_are_never_allowed() {
        let all = policy(
            &["/p", "/p/.git", "/q", "/p/ktx.yaml"],
            &[".git", ".ktx", "ktx.yaml"],
        );
        for path in [
            "/p/.git",
            "/p/.GIT/config",
            "/p/sub/.ktx/db.sqlite",
            "/p/ktx.yaml",
            "/p/sub/KTX.yaml",
            "/q/.git/config",
        ] {
            let refused = check(&all, path).unwrap_err();
            assert!(
                refused.contains("belongs to git or KTX"),
                "{path}: {refused}"
            );
        }
    }

    #[test]
    fn names_in_a_refusal_are_escaped() {
        let refused = check(&PathPolicy::default(), "/q/\u{1b}]52;\"\u{202e}").unwrap_err();
        assert!(!refused.contains(['\u{1b}', '\u{202e}']), "{refused:?}");
        assert!(
            refused.contains("[\"/q/\\U0000001B]52;\\\"\\U0000202E\"]"),
            "{refused}"
        );
    }

    #[test]
    fn a_link_of_the_project_allows_nothing_outside() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        for name in ["project", "secret", "data"] {
            fs::create_dir(base.join(name)).unwrap();
        }
        symlink(base.join("secret"), base.join("project/data")).unwrap();
        symlink(base.join("data"), base.join("alias")).unwrap();
        let mut policy = PathPolicy::default();
        let permissions = UserPermissions {
            paths: vec![base.join("project/data"), base.join("alias")],
            ..UserPermissions::default()
        };
        policy.allow(&base.join("project"), permissions);
        assert!(
            policy
                .check(&base.join("project"), &base.join("secret"))
                .is_err()
        );
        assert_eq!(
            policy.check(&base.join("project"), &base.join("data")),
            Ok(())
        );
    }
}
