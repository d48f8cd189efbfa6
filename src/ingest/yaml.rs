//! Parses untrusted YAML with size limits into a tree with the line of every value.
//!
//! Owns the limits and the messages of syntax errors. It must not know the meaning of keys.

mod diagnosis;
mod emitter;

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, Spanned};

pub(crate) use diagnosis::explain;
pub(crate) use emitter::{QuotingStyle, render};

/// Most values in a file of a scan: a column has about eight.
const MAX_SCAN_NODES: usize = 8_000_000;

/// A value and the line that it starts on (1 is the first).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct YamlNode {
    pub(crate) line: u64,
    pub(crate) value: YamlValue,
}

/// Value of a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum YamlValue {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<YamlNode>),
    Map(Vec<YamlEntry>),
}

/// One key of a map.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct YamlEntry {
    pub(crate) key: String,
    pub(crate) line: u64,
    pub(crate) value: YamlNode,
}

impl YamlValue {
    /// The value of `key`, if this is a map that has it.
    pub(crate) fn get(&self, key: &str) -> Option<&YamlNode> {
        match self {
            Self::Map(entries) => entries
                .iter()
                .rfind(|entry| entry.key == key)
                .map(|entry| &entry.value),
            _ => None,
        }
    }

    /// The members of the list at `key`; none if there is no list.
    pub(crate) fn list(&self, key: &str) -> impl Iterator<Item = &YamlNode> {
        match self.get(key).map(|node| &node.value) {
            Some(Self::List(nodes)) => nodes.iter(),
            _ => [].iter(),
        }
    }

    /// Type of the value for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "empty",
            Self::Bool(_) => "true or false",
            Self::Int(_) | Self::Float(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map of keys",
        }
    }
}

impl YamlNode {
    /// The value of `key`, if this is a map that has it.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.value.get(key)
    }

    /// The text at `key`, if this is a map that has one there.
    pub(crate) fn text_at(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_text()
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.value {
            YamlValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The values without their lines. Keys without a value are left out.
    pub(crate) fn to_json(&self) -> Value {
        match &self.value {
            YamlValue::Null => Value::Null,
            YamlValue::Bool(value) => (*value).into(),
            YamlValue::Int(number) => (*number).into(),
            YamlValue::Float(number) => (*number).into(),
            YamlValue::Text(text) => text.as_str().into(),
            YamlValue::List(nodes) => nodes.iter().map(Self::to_json).collect(),
            YamlValue::Map(entries) => {
                let given = entries
                    .iter()
                    .filter(|entry| entry.value.value != YamlValue::Null);
                given
                    .map(|entry| (entry.key.clone(), entry.value.to_json()))
                    .collect()
            }
        }
    }
}

/// Why a document could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", line.map_or_else(String::new, |line| format!("line {line}: ")))]
pub(crate) struct YamlError {
    /// Line from 1, if it is known.
    pub(crate) line: Option<u64>,
    /// Column from 1, if it is known.
    pub(crate) column: Option<u64>,
    /// The message of the parser.
    pub(crate) message: String,
}

/// Parses one document. An empty one is [`YamlValue::Null`].
pub(crate) fn parse_tree(text: &str) -> Result<YamlNode, YamlError> {
    parse_with(text, DuplicateKeyPolicy::Error)
}

/// Like [`parse_tree`]; of duplicate keys the last one counts, as in other programs that read files of sources.
pub(crate) fn parse_source_file(text: &str) -> Result<YamlNode, YamlError> {
    parse_with(text, DuplicateKeyPolicy::LastWins)
}

fn parse_with(text: &str, duplicate_keys: DuplicateKeyPolicy) -> Result<YamlNode, YamlError> {
    if text
        .lines()
        .all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
    {
        return Ok(YamlNode {
            line: 1,
            value: YamlValue::Null,
        });
    }
    let mut options = parser_options();
    options.duplicate_keys = duplicate_keys;
    from_str_with::<Spanned<YamlValue>>(text, options).map(YamlNode::from)
}

/// As [`parse_tree`], for a file of a scan, which lists every column of a database.
pub(crate) fn parse_scan(text: &str) -> Result<YamlNode, YamlError> {
    let mut options = parser_options();
    if let Some(budget) = &mut options.budget {
        budget.max_nodes = MAX_SCAN_NODES;
        budget.max_events = 4 * MAX_SCAN_NODES;
    }
    from_str_with::<Spanned<YamlValue>>(text, options).map(YamlNode::from)
}

/// Parses one document into `T`, with the same limits.
pub(crate) fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, YamlError> {
    from_str_with(text, parser_options())
}

/// As [`from_str`], for large files of which `T` keeps a known part.
pub(crate) fn from_large_str<T: DeserializeOwned>(text: &str) -> Result<T, YamlError> {
    let mut options = parser_options();
    if let Some(budget) = &mut options.budget {
        budget.max_nodes = 20_000_000;
        budget.max_events = 40_000_000;
    }
    from_str_with(text, options)
}

fn from_str_with<T: DeserializeOwned>(
    text: &str,
    options: serde_saphyr::Options,
) -> Result<T, YamlError> {
    serde_saphyr::from_str_with_options(text, options).map_err(|error| YamlError {
        line: error.location().map(|location| location.line()),
        column: error.location().map(|location| location.column()),
        message: first_line(&error.without_snippet().to_string()),
    })
}

/// Limits far above any real configuration, so that aliases cannot multiply a document beyond memory.
/// `on`, `no` and `y` are strings, as in YAML 1.2 and KTX.
fn parser_options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        strict_booleans: true,
        budget: serde_saphyr::budget! {
            max_depth: 40,
            max_nodes: 50_000,
            max_events: 200_000,
            max_aliases: 500,
            max_anchors: 500,
            max_documents: 1,
            max_inclusion_depth: 0,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 20_000,
            max_replay_stack_depth: 8,
        },
    }
}

/// The first line of the parser's message, without its position, which [`YamlError`] contains.
fn first_line(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default().trim();
    let cut = first.find(" at line ").unwrap_or(first.len());
    first
        .get(..cut)
        .unwrap_or(first)
        .trim_end_matches([':', '.'])
        .to_owned()
}

impl From<Spanned<YamlValue>> for YamlNode {
    fn from(spanned: Spanned<YamlValue>) -> Self {
        Self {
            line: spanned.referenced.line(),
            value: spanned.value,
        }
    }
}

impl<'de> Deserialize<'de> for YamlValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = YamlValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<YamlValue, E> {
        Ok(YamlValue::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<YamlValue, E> {
        Ok(YamlValue::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<YamlValue, E> {
        Ok(i64::try_from(value).map_or(YamlValue::Float(value as f64), YamlValue::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<YamlValue, E> {
        Ok(YamlValue::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<YamlValue, E> {
        Ok(YamlValue::Text(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<YamlValue, E> {
        Ok(YamlValue::Null)
    }

    fn visit_none<E>(self) -> Result<YamlValue, E> {
        Ok(YamlValue::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<YamlValue, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<YamlValue, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = list.next_element::<Spanned<YamlValue>>()? {
            nodes.push(node.into());
        }
        Ok(YamlValue::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<YamlValue, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let value = map.next_value::<Spanned<YamlValue>>()?.into();
            entries.push(YamlEntry {
                line: key.referenced.line(),
                key: key.value,
                value,
            });
        }
        Ok(YamlValue::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry<'a>(node: &'a YamlNode, key: &str) -> &'a YamlEntry {
        let YamlValue::Map(entries) = &node.value else {
            panic!("not a map: {node:?}")
        };
        entries.iter().find(|entry| entry.key == key).unwrap()
    }

    #[test]
    fn lines_are_known_at_every_depth() {
        let node = parse_tree("a: 1\nb:\n  c: [x, true]\n\n  d:\n").unwrap();
        assert_eq!(
            entry(&node, "a").value,
            YamlNode {
                line: 1,
                value: YamlValue::Int(1)
            }
        );
        let b = &entry(&node, "b").value;
        assert_eq!(entry(b, "c").line, 3);
        assert_eq!(entry(b, "d").line, 5);
        assert_eq!(entry(b, "d").value.value, YamlValue::Null);
    }

    #[test]
    fn empty_document_is_null() {
        assert_eq!(parse_tree("").unwrap().value, YamlValue::Null);
        assert_eq!(
            parse_tree("# only words\n\n").unwrap().value,
            YamlValue::Null
        );
    }

    #[test]
    fn syntax_errors_name_their_line() {
        let error = parse_tree("a: 1\nb: [1, 2\nc: 3\n").unwrap_err();
        assert!(
            error.line.is_some_and(|line| (2..=4).contains(&line)),
            "{error}"
        );
        assert!(!error.message.contains('\n'));
    }

    #[test]
    fn alias_bomb_is_rejected() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..9 {
            let alias = vec![format!("*a{}", level - 1); 10].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{alias}]\n"));
        }
        assert!(parse_tree(&text).is_err());
        assert!(parse_tree(&"[".repeat(5_000)).is_err());
        assert!(parse_tree("a: &a [*a]").is_err());
    }

    #[test]
    fn last_of_duplicate_keys_counts_in_files_of_sources() {
        let text = "a: 1\nb: 2\na: 3\n";
        assert!(parse_tree(text).is_err());
        let root = parse_source_file(text).unwrap();
        assert_eq!(
            root.value.get("a").map(|node| &node.value),
            Some(&YamlValue::Int(3))
        );
    }

    #[test]
    fn only_true_and_false_are_booleans() {
        for word in ["on", "no", "y", "Yes", "off"] {
            assert_eq!(
                parse_tree(word).unwrap().value,
                YamlValue::Text(word.into())
            );
        }
        assert_eq!(parse_tree("true").unwrap().value, YamlValue::Bool(true));
    }

    #[test]
    fn repeated_keys_are_refused() {
        assert!(parse_tree("a: 1\na: 2\n").is_err());
    }

    #[test]
    fn fuzzed_yaml_never_panics() {
        let corpus = [
            include_str!("../../tests/fixtures/projects/harbour/ktx.yaml"),
            include_str!("../../tests/fixtures/projects/orchard/ktx.yaml"),
            include_str!("../../tests/fixtures/projects/vineyard/ktx.yaml"),
            "a: &x [1, 2]\nb: *x\nc: {d: |\n  text\n}\n? complex\n: value\n--- \n!!binary aGk=\n",
        ];
        let corpus: Vec<Vec<u8>> = corpus.iter().map(|text| text.as_bytes().to_vec()).collect();
        ingestdeck_test_support::fuzz::fuzz("YAML", &corpus, |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else {
                return;
            };
            if let Err(error) = parse_tree(text) {
                assert!(!error.to_string().is_empty());
            }
            drop(from_str::<serde_json::Value>(text));
        });
    }
}
