//! Detects settings that an organization installs for all users of a machine. They apply to every agent regardless of
//! its flags, so a unit cannot prove its isolation with them. This check runs before anything starts; the proof of each
//! attempt does not depend on it.

#![expect(
    clippy::disallowed_methods,
    reason = "settings of the machine, which may be links that its administrator made"
)]

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
};

use serde_json::Value;

use ingestdeck_core::diagnostic::Problem;

/// Directory in which Claude Code looks for them. Only an administrator can write there, and a project cannot change
/// the path.
pub const MANAGED_SETTINGS_DIR: &str = if cfg!(target_os = "macos") {
    "/Library/Application Support/ClaudeCode"
} else {
    "/etc/claude-code"
};

/// Maximum number of bytes read of a file.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// The problem if settings in `directory` prevent units from running.
pub fn managed_settings_problem(directory: &Path) -> Option<Problem> {
    let files = find_managed_files(directory);
    let named: Vec<String> = files
        .iter()
        .map(|path| format!("`{}`", path.display()))
        .collect();
    (!files.is_empty()).then(|| {
        Problem::new(format!(
            "organisation-managed settings of Claude Code apply to every agent on this machine, so no unit can be \
             isolated: {}",
            named.join(", ")
        ))
        .with_help(
            "ask the administrator to remove them for this machine, or run units in a container or on a machine \
             without them (`ingestdeck session` works with them)",
        )
    })
}

/// Files in `directory` that change agents, as observed with release 2.1.330. A file that cannot be read counts as
/// missing.
fn find_managed_files(directory: &Path) -> Vec<PathBuf> {
    let mut drop_ins: Vec<PathBuf> = fs::read_dir(directory.join("managed-settings.d"))
        .map(|entries| {
            entries
                .filter_map(|entry| Some(entry.ok()?.path()))
                .collect()
        })
        .unwrap_or_default();
    drop_ins.retain(|path| {
        let is_hidden = path
            .file_name()
            .is_none_or(|name| name.as_encoded_bytes().first() == Some(&b'.'));
        !is_hidden && path.extension() == Some(OsStr::new("json"))
    });
    drop_ins.sort();
    let settings = [directory.join("managed-settings.json")]
        .into_iter()
        .chain(drop_ins)
        .filter(|path| has_settings(path));
    settings
        .chain(
            [directory.join("managed-mcp.json")]
                .into_iter()
                .filter(|path| has_mcp_servers(path)),
        )
        .collect()
}

/// True if the file has settings, or prevents Claude Code from starting because it is not an object.
fn has_settings(path: &Path) -> bool {
    let Some(text) = read_bounded_file(path).filter(|text| !text.trim_ascii().is_empty()) else {
        return false;
    };
    !matches!(serde_json::from_slice(&text), Ok(Value::Object(fields)) if fields.is_empty())
}

/// True if the file makes Claude Code refuse `--strict-mcp-config`, which even a file without servers does.
fn has_mcp_servers(path: &Path) -> bool {
    let parsed =
        read_bounded_file(path).and_then(|text| serde_json::from_slice::<Value>(&text).ok());
    parsed.is_some_and(|parsed| parsed.get("mcpServers").is_some_and(Value::is_object))
}

fn read_bounded_file(path: &Path) -> Option<Vec<u8>> {
    let is_file = path.metadata().is_ok_and(|metadata| metadata.is_file());
    let mut text = Vec::new();
    File::open(path)
        .ok()
        .filter(|_| is_file)?
        .take(MAX_FILE_BYTES)
        .read_to_end(&mut text)
        .ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingestdeck_core::diagnostic::Diagnostic as _;

    fn named(files: &[(&str, &str)]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("managed-settings.d")).unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let relative =
            |path: &PathBuf| path.strip_prefix(dir.path()).unwrap().display().to_string();
        find_managed_files(dir.path())
            .iter()
            .map(relative)
            .collect()
    }

    #[test]
    fn managed_settings_are_named_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(managed_settings_problem(dir.path()), None);
        assert_eq!(managed_settings_problem(&dir.path().join("missing")), None);
        let path = dir.path().join("managed-settings.json");
        fs::write(&path, r#"{"model":"opus"}"#).unwrap();
        let sentence = managed_settings_problem(dir.path()).unwrap().to_line();
        assert!(
            sentence.contains(&format!("`{}`; ask the administrator", path.display())),
            "{sentence}"
        );
    }

    #[test]
    fn every_kind_of_managed_file_counts() {
        let files = [
            ("managed-mcp.json", r#"{"mcpServers":{}}"#),
            ("managed-settings.d/b.json", r#"{"env":{}}"#),
            ("managed-settings.d/a.json", "not JSON"),
            ("managed-settings.json", r#"{"model":"opus"}"#),
        ];
        let expected = [
            "managed-settings.json",
            "managed-settings.d/a.json",
            "managed-settings.d/b.json",
            "managed-mcp.json",
        ];
        assert_eq!(named(&files), expected);
    }

    #[test]
    fn files_without_settings_do_not_count() {
        let files = [
            ("managed-settings.json", "\n"),
            ("managed-settings.d/a.json", "{}"),
            ("managed-settings.d/.b.json", r#"{"a":1}"#),
            ("managed-settings.d/c.json~", r#"{"a":1}"#),
            ("managed-mcp.json", "{}"),
        ];
        assert_eq!(named(&files), [""; 0]);
        assert_eq!(
            named(&[
                ("managed-settings.json", "{}"),
                ("managed-mcp.json", "not JSON")
            ]),
            [""; 0]
        );
    }
}
