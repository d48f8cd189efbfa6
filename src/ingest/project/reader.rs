//! Walks a YAML tree key by key: types are checked, unknown keys are remembered with the nearest known name.
//!
//! It must not know what any key of `ktx.yaml` means.

use crate::ingest::yaml::{Entry, Node, Value};

/// Something is wrong enough to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) line: u64,
    pub(super) problem: String,
}

/// Whether keys that nobody reads deserve a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// Every key is known.
    Closed,
    /// Others may stand there; only a likely misspelling is told.
    Open,
}

/// A map of the document.
#[derive(Debug)]
pub(super) struct Section<'a> {
    path: String,
    entries: &'a [Entry],
}

impl<'a> Section<'a> {
    /// Reads `node` as a map that should have the keys `known`, and adds what is odd about its keys to `warnings`.
    pub(super) fn new(
        path: &str,
        node: &'a Node,
        known: &[&str],
        keys: Keys,
        warnings: &mut Vec<String>,
    ) -> Result<Self, Fault> {
        let entries = match &node.value {
            Value::Map(entries) => entries.as_slice(),
            Value::Null => &[],
            other => return Err(wrong(path, node.line, "a map of keys", other)),
        };
        for entry in entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            let nearest = nearest(&entry.key, known);
            if keys == Keys::Open && nearest.is_none() {
                continue;
            }
            let hint = nearest.map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
            let name = join(path, &entry.key);
            warnings.push(format!("line {}: unknown key `{name}` is ignored{hint}", entry.line));
        }
        Ok(Self { path: path.to_owned(), entries })
    }

    /// Every key and its value.
    pub(super) fn entries(&self) -> impl Iterator<Item = &'a Entry> + use<'a> {
        self.entries.iter()
    }

    /// The value of `key`; an empty value counts as absent.
    pub(super) fn get(&self, key: &str) -> Option<&'a Node> {
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        (entry.value.value != Value::Null).then_some(&entry.value)
    }

    /// The map at `key`, empty if absent.
    pub(super) fn section(
        &self,
        key: &str,
        known: &[&str],
        keys: Keys,
        warnings: &mut Vec<String>,
    ) -> Result<Self, Fault> {
        let path = join(&self.path, key);
        match self.get(key) {
            Some(node) => Self::new(&path, node, known, keys, warnings),
            None => Ok(Self { path, entries: &[] }),
        }
    }

    /// The text at `key`, with its line.
    pub(super) fn text(&self, key: &str) -> Result<Option<(&'a str, u64)>, Fault> {
        self.typed(key, "text", |value| match value {
            Value::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// True or false at `key`.
    pub(super) fn boolean(&self, key: &str) -> Result<Option<bool>, Fault> {
        let found = self.typed(key, "true or false", |value| match value {
            Value::Bool(value) => Some(*value),
            _ => None,
        })?;
        Ok(found.map(|(value, _)| value))
    }

    /// The whole number at `key`, at least `least`.
    pub(super) fn whole(&self, key: &str, least: u32) -> Result<Option<u32>, Fault> {
        let expected = format!("a whole number, {least} or more");
        let found = self.typed(key, &expected, |value| match value {
            Value::Int(value) => u32::try_from(*value).ok().filter(|value| *value >= least),
            _ => None,
        })?;
        Ok(found.map(|(value, _)| value))
    }

    /// The share at `key`, between 0 and 1.
    pub(super) fn share(&self, key: &str) -> Result<Option<f64>, Fault> {
        let found = self.typed(key, "a number between 0 and 1", |value| {
            let number = match value {
                Value::Int(value) => *value as f64,
                Value::Float(value) => *value,
                _ => return None,
            };
            (0.0..=1.0).contains(&number).then_some(number)
        })?;
        Ok(found.map(|(value, _)| value))
    }

    /// The texts at `key`, each with its line.
    pub(super) fn texts(&self, key: &str) -> Result<Option<Vec<(&'a str, u64)>>, Fault> {
        let found = self.typed(key, "a list of names", |value| match value {
            Value::List(nodes) => nodes
                .iter()
                .map(|node| match &node.value {
                    Value::Text(text) => Some((text.as_str(), node.line)),
                    _ => None,
                })
                .collect(),
            _ => None,
        })?;
        Ok(found.map(|(value, _)| value))
    }

    /// One of `choices` at `key`.
    pub(super) fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Result<Option<(T, u64)>, Fault> {
        let Some((text, line)) = self.text(key)? else { return Ok(None) };
        if let Some((_, value)) = choices.iter().find(|(name, _)| *name == text) {
            return Ok(Some((*value, line)));
        }
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        Err(Fault {
            line,
            problem: format!("{} is `{}`; it must be one of {}", join(&self.path, key), shown(text), names.join(", ")),
        })
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        pick: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<(T, u64)>, Fault> {
        let Some(node) = self.get(key) else { return Ok(None) };
        match pick(&node.value) {
            Some(value) => Ok(Some((value, node.line))),
            None => Err(wrong(&join(&self.path, key), node.line, expected, &node.value)),
        }
    }
}

/// The known name that `name` was likely meant to be.
pub(crate) fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    // Names come from strangers, and comparing costs the product of the lengths.
    const LONGEST: usize = 200;
    if name.len() > LONGEST {
        return None;
    }
    let plain = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_lowercase();
    let wanted = plain(name);
    let distances = known.iter().map(|candidate| (strsim::osa_distance(&wanted, &plain(candidate)), *candidate));
    let (distance, candidate) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= wanted.chars().count().min(candidate.chars().count()) / 3).then_some(candidate)
}

fn wrong(path: &str, line: u64, expected: &str, found: &Value) -> Fault {
    let path = if path.is_empty() { "the file" } else { path };
    let found = match found {
        Value::Text(text) => format!("`{}`", shown(text)),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        other => other.kind().to_owned(),
    };
    Fault { line, problem: format!("{path} must be {expected}, not {found}") }
}

/// Foreign text, short and on one line.
pub(super) fn shown(text: &str) -> String {
    let short: String = text.chars().take(60).collect();
    short.escape_debug().to_string()
}

fn join(path: &str, key: &str) -> String {
    let key = shown(key);
    if path.is_empty() { key } else { format!("{path}.{key}") }
}
