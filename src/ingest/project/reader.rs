//! Checks of single values of a YAML tree, and the errors about them.
//!
//! It must not know the meaning of any key of `ktx.yaml`. [`keys`](super::key_schema) checks which keys exist.

use crate::yaml::{YamlEntry, YamlNode, YamlValue};
use ingestdeck_core::diagnostic::Problem;

/// The section for what KTX has no place for, such as connections with drivers that it refuses. KTX ignores it.
pub(super) const LOCAL_SECTION: &str = "ingestdeck";

/// Checks that the key of a connection is a valid id.
pub(super) fn check_connection_id(entry: &YamlEntry) -> Result<(), Problem> {
    let key = entry.key.as_str();
    let is_id_char = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !key.is_empty() && !key.starts_with(['-', '_']) && key.chars().all(is_id_char) {
        return Ok(());
    }
    let (line, key) = (entry.line, excerpt(key));
    let problem = Problem::new(format!("line {line}: invalid connection id `{key}`"));
    Err(problem.with_help("use letters, digits, `-` and `_`, starting with a letter or digit"))
}

/// The error for a value that is not `expected`.
pub(super) fn wrong_type(path: &str, node: &YamlNode, expected: &str) -> Problem {
    let named = if path.is_empty() { "the file" } else { path };
    let found = match &node.value {
        YamlValue::Text(text) if text.trim().is_empty() => "empty".to_owned(),
        other if may_be_secret(path) => other.kind().to_owned(),
        YamlValue::Text(text) => format!("`{}`", excerpt(text)),
        YamlValue::Int(number) => number.to_string(),
        YamlValue::Float(number) => number.to_string(),
        other => other.kind().to_owned(),
    };
    let line = node.line;
    format!("line {line}: {named} must be {expected}, not {found}").into()
}

/// Connections and credentials may contain passwords under any key, so messages never quote their values.
fn may_be_secret(path: &str) -> bool {
    const SECRET_WORDS: [&str; 6] = ["key", "token", "secret", "password", "url", "ref"];
    let last = path.rsplit('.').next().unwrap_or(path).to_lowercase();
    is_connection(path)
        || path.starts_with("llm.provider") && path != "llm.provider.backend"
        || SECRET_WORDS.iter().any(|word| last.contains(word))
}

/// Whether `path` is in one of the sections with connections, or is one.
pub(super) fn is_connection(path: &str) -> bool {
    path.starts_with("connections") || path.starts_with(LOCAL_SECTION)
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
