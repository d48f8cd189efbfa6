//! The user's directories. Creates and reads no files.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf};

/// Name of the program's directories.
const PROGRAM: &str = "ingestdeck";

/// The user's directories. `None` if neither the variable nor `HOME` is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserDirs {
    /// Directory of the settings.
    pub config: Option<PathBuf>,
    /// Directory of persistent state: session locks and history.
    pub state: Option<PathBuf>,
    /// Directory of data that can be recreated.
    pub cache: Option<PathBuf>,
}

impl UserDirs {
    /// Follows the XDG specification, which requires that relative values are ignored.
    pub fn from_vars(vars: &BTreeMap<String, OsString>) -> Self {
        let absolute = |name: &str| {
            vars.get(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let home = absolute("HOME");
        let dir = |name, below_home| {
            let base = absolute(name).or_else(|| home.as_ref().map(|home| home.join(below_home)));
            base.map(|base| base.join(PROGRAM))
        };
        Self {
            config: dir("XDG_CONFIG_HOME", ".config"),
            state: dir("XDG_STATE_HOME", ".local/state"),
            cache: dir("XDG_CACHE_HOME", ".cache"),
        }
    }

    /// Reads the variables of this process.
    pub fn from_environment() -> Self {
        let vars =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        Self::from_vars(&vars.collect())
    }

    /// Session locks, which belong to the user and not to a project.
    pub fn locks(&self) -> Option<PathBuf> {
        self.state.as_ref().map(|dir| dir.join("locks"))
    }

    /// The directory of the last demo.
    pub fn demo(&self) -> Option<PathBuf> {
        self.state.as_ref().map(|dir| dir.join("demo"))
    }

    /// The directory for worktrees of sessions.
    pub fn worktrees(&self) -> Option<PathBuf> {
        self.state.as_ref().map(|dir| dir.join("worktrees"))
    }

    /// Path of the settings file.
    pub fn config_file(&self) -> Option<PathBuf> {
        self.config.as_ref().map(|dir| dir.join("config.toml"))
    }
}

/// The directory of Claude Code; `None` without a home.
pub fn claude_dir() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".claude"));
    std::env::var_os("CLAUDE_CONFIG_DIR")
        .map(PathBuf::from)
        .or(home)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vars(pairs: &[(&str, &str)]) -> BTreeMap<String, OsString> {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).into()))
            .collect()
    }

    #[test]
    fn user_directories_follow_xdg() {
        let table = [
            (
                vec![("HOME", "/home/a")],
                Some("/home/a/.config/ingestdeck/config.toml"),
            ),
            (
                vec![("HOME", "/home/a"), ("XDG_CONFIG_HOME", "/etc/a")],
                Some("/etc/a/ingestdeck/config.toml"),
            ),
            (
                vec![("XDG_CONFIG_HOME", "/etc/a")],
                Some("/etc/a/ingestdeck/config.toml"),
            ),
            (
                vec![("HOME", "/home/a"), ("XDG_CONFIG_HOME", "a/b")],
                Some("/home/a/.config/ingestdeck/config.toml"),
            ),
            (
                vec![("HOME", "/home/a"), ("XDG_CONFIG_HOME", "")],
                Some("/home/a/.config/ingestdeck/config.toml"),
            ),
            (vec![("HOME", "")], None),
            (vec![], None),
        ];
        for (pairs, expected) in table {
            let dirs = UserDirs::from_vars(&vars(&pairs));
            assert_eq!(dirs.config_file(), expected.map(PathBuf::from), "{pairs:?}");
        }
        let dirs = UserDirs::from_vars(&vars(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/c")]));
        assert_eq!(dirs.state, Some("/h/.local/state/ingestdeck".into()));
        assert_eq!(
            dirs.locks(),
            Some("/h/.local/state/ingestdeck/locks".into())
        );
        assert_eq!(dirs.cache, Some("/c/ingestdeck".into()));
    }
}
