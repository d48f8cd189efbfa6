//! Finds other programs on the `PATH`, without the entries that depend on the current directory.
//!
//! An empty entry, `.` and every other relative entry name a directory of the current project, so a cloned project
//! could choose which program runs. Neither the lookup nor a child process uses them. This module must not know which
//! programs exist.

#![expect(clippy::disallowed_methods, reason = "programs in the PATH")]

use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

/// Used if the environment's `PATH` has no usable entry. POSIX reads an empty `PATH` as the current directory.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Maximum number of entries that a sentence names.
const MAX_NAMED: usize = 3;

/// The `PATH` for child processes: the absolute entries of this process's `PATH`.
pub fn search_path() -> OsString {
    absolute_entries(&env::var_os("PATH").unwrap_or_default())
}

/// The absolute entries of `path`, or a default if there are none.
pub fn absolute_entries(path: &OsStr) -> OsString {
    let entries = env::split_paths(path).filter(|entry| entry.is_absolute());
    match env::join_paths(entries) {
        Ok(joined) if !joined.is_empty() => joined,
        _ => DEFAULT_PATH.into(),
    }
}

/// One sentence about the entries of `PATH` that are not searched, with the remedy; `None` if there are none.
pub fn skipped_entries() -> Option<String> {
    skipped_in(&env::var_os("PATH")?)
}

fn skipped_in(path: &OsStr) -> Option<String> {
    let mut skipped: Vec<String> = Vec::new();
    for entry in env::split_paths(path).filter(|entry| !entry.is_absolute()) {
        let name = match entry.to_string_lossy() {
            name if name.is_empty() => "an empty one".to_owned(),
            name => format!("`{}`", name.escape_debug()),
        };
        if !skipped.contains(&name) {
            skipped.push(name);
        }
    }
    let more = match skipped.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    skipped.truncate(MAX_NAMED);
    (!skipped.is_empty()).then(|| {
        format!(
            "entries of PATH that are not absolute are not searched, as a project could put programs there: {}{more}; \
             write them as absolute paths",
            skipped.join(", ")
        )
    })
}

/// The sentence of [`skipped_entries`] as the end of another sentence.
pub fn skipped_note() -> String {
    skipped_entries()
        .map(|sentence| format!(" ({sentence})"))
        .unwrap_or_default()
}

/// Absolute path of the program `name`; `None` if no entry of the [`search_path`] contains it.
pub fn find(name: &str) -> Option<PathBuf> {
    env::split_paths(&search_path())
        .map(|directory| directory.join(name))
        .find(|candidate| is_program(candidate))
}

/// `claude` where its installers put it below the home directory: a shell without a login does not have these directories
/// on its `PATH`.
pub fn find_installed_claude() -> Option<PathBuf> {
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .filter(|home| home.is_absolute())?;
    [".local/bin/claude", ".claude/local/claude"]
        .map(|path| home.join(path))
        .into_iter()
        .find(|path| is_program(path))
}

/// True if `path` is an executable file.
pub fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_entries_are_dropped() {
        let cases = [
            ("/usr/bin:/bin", "/usr/bin:/bin"),
            (":/usr/bin:", "/usr/bin"),
            (".:/usr/bin:bin:../x:/bin", "/usr/bin:/bin"),
            ("/opt/a b:./node_modules/.bin", "/opt/a b"),
            ("", DEFAULT_PATH),
            (".", DEFAULT_PATH),
        ];
        for (path, expected) in cases {
            assert_eq!(
                absolute_entries(OsStr::new(path)),
                OsStr::new(expected),
                "{path}"
            );
        }
    }

    #[test]
    fn skipped_entries_are_named_with_the_remedy() {
        assert_eq!(skipped_in(OsStr::new("/usr/bin:/bin")), None);
        let sentence = skipped_in(OsStr::new(":.:/bin:./node_modules/.bin::a\x1b:b")).unwrap();
        let named =
            "an empty one, `.`, `./node_modules/.bin` and 2 more; write them as absolute paths";
        assert!(sentence.ends_with(named), "{sentence}");
    }

    #[test]
    fn found_programs_are_absolute() {
        assert!(find("sh").is_some_and(|path| path.is_absolute()));
        assert_eq!(find("no-such-program-anywhere"), None);
    }
}
