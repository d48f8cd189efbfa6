//! Writes YAML in the style of KTX's library: block style, two spaces per level, no line width.
//!
//! The output does not depend on the program that wrote the file before. This module owns the style of every string; it
//! must not know the meaning of keys. Unlike the library, it always escapes newlines inside double quotes (the library
//! folds long ones) and quotes `<<`.

use std::sync::LazyLock;

use regex_lite::Regex;
use serde_json::{Map, Number, Value};

/// Spaces per indentation level.
const INDENT: usize = 2;

/// Which strings are quoted, in addition to those that a parser would reject without quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuotingStyle {
    /// Strings that a YAML 1.2 parser reads as a number, a boolean or null. KTX writes wiki pages this way.
    Yaml12,
    /// Strings that a YAML 1.1 parser reads as another type, such as `on` or a date. KTX writes sources this way.
    Yaml11,
    /// All strings, in ASCII only.
    All,
}

impl QuotingStyle {
    fn is_ambiguous(self, text: &str) -> bool {
        static YAML_12: LazyLock<Option<Regex>> = LazyLock::new(|| {
            Regex::new(concat!(
                r"^(?:~|[Nn]ull|NULL|[Tt]rue|TRUE|[Ff]alse|FALSE|0o[0-7]+|[-+]?[0-9]+|0x[0-9a-fA-F]+",
                r"|[-+]?\.(?:inf|Inf|INF)|\.nan|\.NaN|\.NAN|[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)[eE][-+]?[0-9]+",
                r"|[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*))?$"
            ))
            .ok()
        });
        static YAML_11: LazyLock<Option<Regex>> = LazyLock::new(|| {
            Regex::new(concat!(
                r"^(?:~|[Nn]ull|NULL|Y|y|[Yy]es|YES|[Tt]rue|TRUE|[Oo]n|ON|N|n|[Nn]o|NO|[Ff]alse|FALSE|[Oo]ff|OFF|<<",
                r"|[-+]?0b[0-1_]+|[-+]?[0-9][0-9_]*|[-+]?0x[0-9a-fA-F_]+|[-+]?\.(?:inf|Inf|INF)|\.nan|\.NaN|\.NAN",
                r"|[-+]?(?:[0-9][0-9_]*)?(?:\.[0-9_]*)?[eE][-+]?[0-9]+|[-+]?(?:[0-9][0-9_]*)?\.[0-9_]*",
                r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?",
                r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:(?:t|T|[ \t]+)[0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]+)?",
                r"(?:[ \t]*(?:Z|[-+][012]?[0-9](?::[0-9]{2})?))?)?)?$"
            ))
            .ok()
        });
        let other = match self {
            Self::Yaml12 => &YAML_12,
            Self::Yaml11 => &YAML_11,
            Self::All => return true,
        };
        other.as_ref().is_none_or(|other| other.is_match(text))
    }
}

/// `value` as a YAML document that ends with a newline.
pub(crate) fn render(value: &Value, quoting: QuotingStyle) -> String {
    let mut writer = YamlEmitter {
        quoting,
        text: String::new(),
    };
    writer.node(value, 0);
    writer.text.push('\n');
    writer.text
}

struct YamlEmitter {
    quoting: QuotingStyle,
    text: String,
}

impl YamlEmitter {
    /// Writes a value at the current position; the lines after its first one are indented by `indent`.
    fn node(&mut self, value: &Value, indent: usize) {
        match value {
            Value::Null => self.text.push_str("null"),
            Value::Bool(value) => self.text.push_str(if *value { "true" } else { "false" }),
            Value::Number(value) => self.text.push_str(&number(value)),
            Value::String(text) => self.string(text, indent),
            Value::Array(items) if items.is_empty() => self.text.push_str("[]"),
            Value::Object(map) if map.is_empty() => self.text.push_str("{}"),
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.next_line(index, indent);
                    self.text.push_str("- ");
                    self.node(item, indent + INDENT);
                }
            }
            Value::Object(map) => self.map(map, indent),
        }
    }

    fn map(&mut self, map: &Map<String, Value>, indent: usize) {
        for (index, (key, value)) in map.iter().enumerate() {
            self.next_line(index, indent);
            let is_marker = indent == 0 && (key.starts_with("---") || key.starts_with("..."));
            if key.contains('\n') || is_marker {
                self.emit_double_quoted(key)
            } else {
                self.line(key)
            }
            self.text.push(':');
            match value {
                Value::Array(items) if !items.is_empty() => self.break_line(indent + INDENT),
                Value::Object(map) if !map.is_empty() => self.break_line(indent + INDENT),
                _ => self.text.push(' '),
            }
            self.node(value, indent + INDENT);
        }
    }

    fn next_line(&mut self, index: usize, indent: usize) {
        if index > 0 {
            self.break_line(indent);
        }
    }

    fn break_line(&mut self, indent: usize) {
        self.text.push('\n');
        self.text.extend(std::iter::repeat_n(' ', indent));
    }

    fn string(&mut self, text: &str, indent: usize) {
        let ends_blank =
            text.trim_end_matches([' ', '\t']).ends_with('\n') && !text.ends_with('\n');
        if !text.contains('\n') {
            self.line(text);
        } else if self.quoting == QuotingStyle::All || text.contains(is_control) || ends_blank {
            self.emit_double_quoted(text);
        } else {
            self.block(text, indent);
        }
    }

    /// Writes a string without newlines.
    fn line(&mut self, text: &str) {
        if self.quoting == QuotingStyle::All || text.contains(is_control) {
            self.emit_double_quoted(text);
        } else if !needs_quotes(text) && !self.quoting.is_ambiguous(text) {
            self.text.push_str(text);
        } else if text.contains('"') && !text.contains('\'') {
            self.text.push('\'');
            self.text.push_str(text);
            self.text.push('\'');
        } else {
            self.emit_double_quoted(text);
        }
    }

    fn emit_double_quoted(&mut self, text: &str) {
        self.text.push('"');
        for char in text.chars() {
            match char {
                '"' => self.text.push_str("\\\""),
                '\\' => self.text.push_str("\\\\"),
                '\0' => self.text.push_str("\\0"),
                '\x07' => self.text.push_str("\\a"),
                '\x08' => self.text.push_str("\\b"),
                '\t' => self.text.push_str("\\t"),
                '\n' => self.text.push_str("\\n"),
                '\x0b' => self.text.push_str("\\v"),
                '\x0c' => self.text.push_str("\\f"),
                '\r' => self.text.push_str("\\r"),
                '\x1b' => self.text.push_str("\\e"),
                _ if char.is_control() => {
                    self.text.push_str(&format!("\\x{:02x}", u32::from(char)))
                }
                _ if self.quoting == QuotingStyle::All && !char.is_ascii() => {
                    self.text.push_str(&format!("\\U{:08x}", u32::from(char)));
                }
                _ => self.text.push(char),
            }
        }
        self.text.push('"');
    }

    /// Writes a literal block of lines.
    fn block(&mut self, text: &str, indent: usize) {
        let body = text.trim_end_matches(['\n', '\t', ' ']);
        let end = text.get(body.len()..).unwrap_or_default();
        let chomping = match end.find('\n') {
            None => "-",
            Some(at) if body.is_empty() || at + 1 != end.len() => "+",
            Some(_) => "",
        };
        let starts_with_space = body.trim_start_matches('\n').starts_with(' ');
        self.text.push('|');
        self.text.push_str(if starts_with_space { "2" } else { "" });
        self.text.push_str(chomping);
        self.break_line(indent);
        let mut chars = text.strip_suffix('\n').unwrap_or(text).chars().peekable();
        while let Some(char) = chars.next() {
            let is_followed = chars.peek().is_some_and(|next| *next != '\n');
            if char == '\n' && is_followed {
                self.break_line(indent)
            } else {
                self.text.push(char)
            }
        }
    }
}

/// Whether the character cannot occur in an unquoted text.
fn is_control(char: char) -> bool {
    char.is_control() && !matches!(char, '\n' | '\t')
}

/// Whether a line without quotes would not be read as one string.
fn needs_quotes(text: &str) -> bool {
    let is_blank = |char: char| matches!(char, ' ' | '\t');
    let mut chars = text.chars();
    let (first, second) = (chars.next(), chars.next());
    let starts = first.is_some_and(|char| is_blank(char) || ",[]{}#&*!|>'\"%@`".contains(char));
    let is_indicator = matches!(first, Some('-' | '?')) && second.is_none_or(is_blank);
    let inside = [": ", ":\t", " #", "\t#"]
        .iter()
        .any(|sign| text.contains(sign));
    starts || is_indicator || inside || text.ends_with([' ', '\t', ':'])
}

/// A number as JavaScript prints it, without a fraction if it is zero.
fn number(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 1e21 => {
            format!("{float:.0}")
        }
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of `YAML.stringify` of `yaml` 2.9 for each value, with `{indent: 2, lineWidth: 0}` and, for sources,
    /// `version: '1.1'`.
    const STYLES: &str = include_str!("../../../tests/fixtures/ktx/yaml/styles.json");

    #[test]
    fn values_are_styled_as_by_ktx() {
        let cases: Vec<Value> = serde_json::from_str(STYLES).unwrap();
        assert!(cases.len() > 100);
        for case in &cases {
            for (quoting, version) in [(QuotingStyle::Yaml12, "1.2"), (QuotingStyle::Yaml11, "1.1")]
            {
                let found = render(&case["value"], quoting);
                assert_eq!(
                    found,
                    case[version].as_str().unwrap(),
                    "{} in YAML {version}",
                    case["value"]
                );
            }
        }
    }
}
