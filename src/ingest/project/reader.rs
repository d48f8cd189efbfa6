//! Checks of single values of a YAML tree, and the errors about them.
//!
//! It must not know the meaning of any key of `ktx.yaml`. [`keys`](super::key_schema) checks which keys exist.

use std::sync::LazyLock;

use regex_lite::Regex;

use crate::yaml::{YamlEntry, YamlNode, YamlValue};
use ingestdeck_core::diagnostic::Problem;

/// An error in `ktx.yaml` that prevents its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProjectSettingsFault {
    pub(super) line: u64,
    pub(super) problem: Problem,
}

/// Checks that the key of a connection is a valid id.
pub(super) fn check_connection_id(entry: &YamlEntry) -> Result<(), ProjectSettingsFault> {
    static ID: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new("^[a-zA-Z0-9][a-zA-Z0-9_-]*$").ok());
    if ID.as_ref().is_some_and(|regex| regex.is_match(&entry.key)) {
        return Ok(());
    }
    let problem = Problem::new(format!("invalid connection id `{}`", excerpt(&entry.key)))
        .with_help("use letters, digits, `-` and `_`, starting with a letter or digit");
    Err(ProjectSettingsFault {
        line: entry.line,
        problem,
    })
}

/// The error for a value that is not `expected`.
pub(super) fn wrong_type(path: &str, node: &YamlNode, expected: &str) -> ProjectSettingsFault {
    let named = if path.is_empty() { "the file" } else { path };
    let found = match &node.value {
        YamlValue::Text(text) if text.trim().is_empty() => "empty".to_owned(),
        other if may_be_secret(path) => other.kind().to_owned(),
        YamlValue::Text(text) => format!("`{}`", excerpt(text)),
        YamlValue::Int(number) => number.to_string(),
        YamlValue::Float(number) => number.to_string(),
        other => other.kind().to_owned(),
    };
    ProjectSettingsFault {
        line: node.line,
        problem: Problem::new(format!("{named} must be {expected}, not {found}")),
    }
}

/// Connections and credentials may contain passwords under any key, so messages never quote their values.
fn may_be_secret(path: &str) -> bool {
    const SECRET_WORDS: [&str; 6] = ["key", "token", "secret", "password", "url", "ref"];
    let last = path.rsplit('.').next().unwrap_or(path).to_lowercase();
    ["connections", "llm.provider"]
        .iter()
        .any(|place| path.starts_with(place) && path != "llm.provider.backend")
        || SECRET_WORDS.iter().any(|word| last.contains(word))
}

/// Untrusted text, shortened and on one line.
pub(super) fn excerpt(text: &str) -> String {
    let short: String = text.chars().take(60).collect();
    short.escape_debug().to_string()
}

pub(super) fn join_key(path: &str, key: &str) -> String {
    let key = excerpt(key);
    if path.is_empty() {
        key
    } else {
        format!("{path}.{key}")
    }
}
