//! Reads values from a YAML tree, and formulates errors about them.
//!
//! It must not know the meaning of any key of `ktx.yaml`. [`keys`](super::key_schema) checks which keys exist.

use std::{borrow::Cow, sync::LazyLock};

use regex_lite::Regex;

use crate::{
    diagnostic::Problem,
    ingest::yaml::{YamlEntry, YamlNode, YamlValue},
};

/// An error in `ktx.yaml` that prevents its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProjectSettingsFault {
    pub(super) line: u64,
    pub(super) problem: Problem,
}

/// A map of the document. Types were checked before: a value of another type counts as absent.
#[derive(Clone, Copy, Debug)]
pub(super) struct YamlSection<'a>(&'a [YamlEntry]);

impl<'a> YamlSection<'a> {
    /// `node` as a map.
    pub(super) fn from_node(node: &'a YamlNode) -> Self {
        match &node.value {
            YamlValue::Map(entries) => Self(entries),
            _ => Self(&[]),
        }
    }

    /// Every key and its value.
    pub(super) fn entries(self) -> impl Iterator<Item = &'a YamlEntry> + use<'a> {
        self.0.iter()
    }

    /// The value of `key`; an empty value counts as absent.
    pub(super) fn get(self, key: &str) -> Option<&'a YamlNode> {
        let entry = self.0.iter().find(|entry| entry.key == key)?;
        (entry.value.value != YamlValue::Null).then_some(&entry.value)
    }

    /// The map at `key`; empty if absent.
    pub(super) fn section(self, key: &str) -> Self {
        self.get(key).map_or(Self(&[]), Self::from_node)
    }

    /// The text at `key`, with its line.
    pub(super) fn text(self, key: &str) -> Option<(&'a str, u64)> {
        let node = self.get(key)?;
        match &node.value {
            YamlValue::Text(text) => Some((text, node.line)),
            _ => None,
        }
    }

    /// The boolean at `key`.
    pub(super) fn boolean(self, key: &str) -> Option<bool> {
        match self.get(key)?.value {
            YamlValue::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// The whole number at `key`.
    pub(super) fn integer(self, key: &str) -> Option<u32> {
        match self.get(key)?.value {
            YamlValue::Int(value) => u32::try_from(value).ok(),
            _ => None,
        }
    }

    /// The number at `key`.
    pub(super) fn number(self, key: &str) -> Option<f64> {
        match self.get(key)?.value {
            YamlValue::Int(value) => Some(value as f64),
            YamlValue::Float(value) => Some(value),
            _ => None,
        }
    }

    /// The texts at `key`, each with its line.
    pub(super) fn texts(self, key: &str) -> Option<Vec<(&'a str, u64)>> {
        let YamlValue::List(nodes) = &self.get(key)?.value else { return None };
        let texts = nodes.iter().filter_map(|node| match &node.value {
            YamlValue::Text(text) => Some((text.as_str(), node.line)),
            _ => None,
        });
        Some(texts.collect())
    }
}

/// Checks that the key of a connection is a valid id.
pub(super) fn check_connection_id(entry: &YamlEntry) -> Result<(), ProjectSettingsFault> {
    static ID: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new("^[a-zA-Z0-9][a-zA-Z0-9_-]*$").ok());
    if ID.as_ref().is_some_and(|regex| regex.is_match(&entry.key)) {
        return Ok(());
    }
    let problem = Problem::new(format!("invalid connection id `{}`", excerpt(&entry.key)))
        .with_help("use letters, digits, `-` and `_`, starting with a letter or digit");
    Err(ProjectSettingsFault { line: entry.line, problem })
}

/// The known name that `name` most likely misspells.
pub(crate) fn nearest_name<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    // Names come from untrusted files, and comparing two names costs the product of their lengths. The total work is
    // limited to a fraction of a second; names after that are not suggested.
    const MAX_NAME_BYTES: usize = 200;
    const MAX_COMPARISON_STEPS: usize = 16_000_000;
    if name.len() > MAX_NAME_BYTES {
        return None;
    }
    let plain = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_lowercase();
    let wanted = plain(name);
    let length = wanted.chars().count();
    let mut steps = MAX_COMPARISON_STEPS;
    let mut best: Option<(usize, &'k str)> = None;
    for candidate in known.iter().copied().filter(|candidate| candidate.len() <= MAX_NAME_BYTES) {
        let other = plain(candidate);
        let (others, farthest) = (other.chars().count(), length.min(candidate.chars().count()) / 3);
        // A distance is at least the difference of the lengths.
        let is_possible = length.abs_diff(others) <= farthest;
        let cost = candidate.len() + if is_possible { length * others } else { 0 };
        match steps.checked_sub(cost + 1) {
            Some(left) => steps = left,
            None => break,
        }
        let distance = if is_possible { strsim::osa_distance(&wanted, &other) } else { usize::MAX };
        if distance <= farthest && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
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
    ProjectSettingsFault { line: node.line, problem: Problem::new(format!("{named} must be {expected}, not {found}")) }
}

/// Connections and credentials may contain passwords under any key, so messages never quote their values.
fn may_be_secret(path: &str) -> bool {
    const SECRET_WORDS: [&str; 6] = ["key", "token", "secret", "password", "url", "ref"];
    let last = path.rsplit('.').next().unwrap_or(path).to_lowercase();
    ["connections", "llm.provider"].iter().any(|place| path.starts_with(place) && path != "llm.provider.backend")
        || SECRET_WORDS.iter().any(|word| last.contains(word))
}

/// `url` without the user name and password.
pub(crate) fn without_login(url: &str) -> Cow<'_, str> {
    let parts = url.split_once("://").and_then(|(scheme, rest)| {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at_checked(end)?;
        Some(format!("{scheme}://{}{path}", authority.rsplit_once('@')?.1))
    });
    parts.map_or(Cow::Borrowed(url), Cow::Owned)
}

/// Untrusted text, shortened and on one line.
pub(super) fn excerpt(text: &str) -> String {
    let short: String = text.chars().take(60).collect();
    short.escape_debug().to_string()
}

pub(super) fn join_key(path: &str, key: &str) -> String {
    let key = excerpt(key);
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_finds_a_misspelling_among_few_names() {
        assert_eq!(nearest_name("ordrs", &["users", "orders", "order_items"]), Some("orders"));
        assert_eq!(nearest_name("orders", &["a", "", "customers"]), None);
    }

    #[test]
    fn nearest_stops_after_a_bounded_number_of_steps() {
        let names: Vec<String> = (0..100_000).map(|n| format!("{n:0>200}")).collect();
        let mut known: Vec<&str> = names.iter().map(String::as_str).collect();
        let wanted = "x".repeat(200);
        known.push(&wanted);
        assert_eq!(nearest_name(&wanted, &known), None, "names beyond the limit are ignored");
        known.rotate_right(1);
        assert_eq!(nearest_name(&wanted, &known), Some(wanted.as_str()));
        // A table of an ordinary database is found at any position.
        let names: Vec<String> = (0..100_000).map(|n| format!("stg_{n}")).collect();
        let mut known: Vec<&str> = names.iter().map(String::as_str).collect();
        known.push("customers");
        assert_eq!(nearest_name("custmers", &known), Some("customers"));
    }

    #[test]
    fn addresses_lose_their_logins() {
        let cases = [
            ("https://u:p@h.example/x@y", "https://h.example/x@y"),
            ("https://token@h", "https://h"),
            ("ssh://git@h/x?a=b@c", "ssh://h/x?a=b@c"),
            ("https://h/x@y", "https://h/x@y"),
            ("git@h:x.git", "git@h:x.git"),
            ("file:x", "file:x"),
        ];
        for (url, expected) in cases {
            assert_eq!(without_login(url), expected);
        }
    }
}
