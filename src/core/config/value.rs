//! Values of settings, and the types that they must fit. Knows no key.

use std::time::Duration;

use serde_json::{Value, json};

use super::time_limit::TimeLimitSetting;

/// A value from any layer.
#[derive(Clone, Debug, PartialEq)]
pub enum SettingValue {
    /// Not set, which is valid.
    Unset,
    Bool(bool),
    Text(String),
    Integer(i64),
    Float(f64),
    List(Vec<String>),
    /// A description of a value that fits no key.
    Other(&'static str),
}

/// The type of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SettingKind {
    Bool,
    /// Text that is not empty.
    Text,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A whole number in this inclusive range.
    Integer(i64, i64),
    /// A number in this inclusive range.
    Float(f64, f64),
    /// A duration, such as `90s`, `10m` or `1h 30m`.
    Duration,
    /// A duration, or `none`. The text describes what applies if it is not set.
    TimeLimit(&'static str),
    /// A list of texts. A single text becomes a list of one.
    List,
    /// Names of environment variables, or `PREFIX_*` for all names with this prefix.
    EnvVarNames,
    /// Absolute paths, and paths below `~/`.
    Paths,
}

impl SettingValue {
    /// Formats the value as TOML on one line; `None` if there is no value.
    pub fn to_toml(&self) -> Option<String> {
        Some(match self {
            Self::Unset | Self::Other(_) => return None,
            Self::Bool(value) => value.to_string(),
            Self::Text(text) => toml_text(text),
            Self::Integer(number) => number.to_string(),
            Self::Float(number) => toml::Value::Float(*number).to_string(),
            Self::List(texts) => {
                format!(
                    "[{}]",
                    texts
                        .iter()
                        .map(|text| toml_text(text))
                        .collect::<Vec<_>>()
                        .join(", ")
                )
            }
        })
    }

    /// Describes the value for a message.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Unset => "nothing".to_owned(),
            Self::Text(text) if text.is_empty() => "an empty text".to_owned(),
            Self::Text(text) => quote(text),
            Self::Bool(value) => value.to_string(),
            Self::Integer(number) => number.to_string(),
            Self::Float(number) => number.to_string(),
            Self::List(texts) => {
                let first: Vec<String> = texts.iter().take(3).map(|text| quote(text)).collect();
                format!(
                    "[{}{}]",
                    first.join(", "),
                    if texts.len() > 3 { ", …" } else { "" }
                )
            }
            Self::Other(what) => (*what).to_owned(),
        }
    }
}

impl SettingKind {
    /// Describes valid values; the text follows "must be".
    pub(crate) fn expected(self) -> String {
        match self {
            Self::Bool => "true or false".to_owned(),
            Self::Text => "a text in quotes".to_owned(),
            Self::OneOf(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
                words.join(" or ")
            }
            Self::Integer(min, max) => format!("a whole number from {min} to {max}"),
            Self::Float(min, max) => format!("a number from {min} to {max}"),
            Self::Duration => format!("a {DURATION_SYNTAX}, in quotes"),
            Self::TimeLimit(_) => format!("a {DURATION_SYNTAX}, or none, in quotes"),
            Self::List => "a list of texts".to_owned(),
            Self::EnvVarNames => {
                "a list of names or prefixes (`AWS_*`) of environment variables".to_owned()
            }
            Self::Paths => "a list of absolute paths, or of paths that begin with ~/".to_owned(),
        }
    }

    /// Returns the value if it is valid.
    pub(crate) fn validate(self, value: SettingValue) -> Option<SettingValue> {
        match (self, value) {
            (Self::Bool, value @ SettingValue::Bool(_)) => Some(value),
            (Self::Text, SettingValue::Text(text)) => {
                (!text.is_empty()).then_some(SettingValue::Text(text))
            }
            (Self::OneOf(words), SettingValue::Text(text)) => words
                .contains(&text.as_str())
                .then_some(SettingValue::Text(text)),
            (Self::Integer(min, max), SettingValue::Integer(number)) => (min..=max)
                .contains(&number)
                .then_some(SettingValue::Integer(number)),
            (Self::Float(min, max), SettingValue::Float(number)) => (min..=max)
                .contains(&number)
                .then_some(SettingValue::Float(number)),
            #[expect(
                clippy::cast_precision_loss,
                reason = "ranges of numbers end far below 2^53"
            )]
            (Self::Float(min, max), SettingValue::Integer(number)) => {
                let number = number as f64;
                (min..=max)
                    .contains(&number)
                    .then_some(SettingValue::Float(number))
            }
            (Self::Duration, SettingValue::Text(text)) => parse_duration(&text)
                .is_some()
                .then_some(SettingValue::Text(text)),
            (Self::TimeLimit(_), SettingValue::Text(text)) => parse_time_limit(&text)
                .is_some()
                .then_some(SettingValue::Text(text)),
            (Self::List | Self::EnvVarNames | Self::Paths, SettingValue::Text(text))
                if !text.is_empty() =>
            {
                self.validate_list(vec![text])
            }
            (Self::List | Self::EnvVarNames | Self::Paths, SettingValue::List(texts)) => {
                self.validate_list(texts)
            }
            _ => None,
        }
    }

    /// Parses the text of a variable. Returns `None` if the text does not fit the type; [`validate`](Self::validate)
    /// checks the rest.
    pub(crate) fn parse(self, text: &str) -> Option<SettingValue> {
        match self {
            Self::Bool => text.parse().ok().map(SettingValue::Bool),
            Self::Text | Self::OneOf(_) | Self::Duration | Self::TimeLimit(_) => {
                Some(SettingValue::Text(text.to_owned()))
            }
            Self::Integer(..) => text.parse().ok().map(SettingValue::Integer),
            Self::Float(..) => text.parse().ok().map(SettingValue::Float),
            Self::List | Self::EnvVarNames | Self::Paths => {
                let parts = text
                    .split(',')
                    .map(str::trim)
                    .filter(|part| !part.is_empty());
                Some(SettingValue::List(parts.map(str::to_owned).collect()))
            }
        }
    }

    /// A valid value of this type as JSON, for deserialization.
    pub(super) fn to_json(self, value: &SettingValue) -> Value {
        match value {
            SettingValue::Unset if matches!(self, Self::TimeLimit(_)) => {
                json!(TimeLimitSetting::Unset)
            }
            SettingValue::Text(text) if matches!(self, Self::TimeLimit(_)) => {
                json!(parse_time_limit(text))
            }
            SettingValue::Text(text) if self == Self::Duration => json!(parse_duration(text)),
            SettingValue::Unset | SettingValue::Other(_) => Value::Null,
            SettingValue::Bool(value) => json!(value),
            SettingValue::Text(text) => json!(text),
            SettingValue::Integer(number) => json!(number),
            SettingValue::Float(number) => json!(number),
            SettingValue::List(texts) => json!(texts),
        }
    }

    fn validate_list(self, texts: Vec<String>) -> Option<SettingValue> {
        let fits = texts.iter().all(|text| match self {
            Self::EnvVarNames => is_variable_name(text.strip_suffix('*').unwrap_or(text)),
            Self::Paths => text.starts_with('/') || text.starts_with("~/"),
            _ => true,
        });
        fits.then_some(SettingValue::List(texts))
    }
}

fn is_variable_name(text: &str) -> bool {
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts_well && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The description of valid durations.
pub const DURATION_SYNTAX: &str = "time of at least one second, as in 90s, 10m or \"1h 30m\"";

/// Parses a duration between one second and one year.
pub fn parse_duration(text: &str) -> Option<Duration> {
    const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
    let time = Duration::try_from(text.parse::<jiff::SignedDuration>().ok()?).ok()?;
    (Duration::from_secs(1)..=LONGEST)
        .contains(&time)
        .then_some(time)
}

/// Parses a duration, or `none` for no limit.
pub fn parse_time_limit(text: &str) -> Option<TimeLimitSetting> {
    match text {
        "none" | "off" => Some(TimeLimitSetting::Unlimited),
        text => parse_duration(text).map(TimeLimitSetting::After),
    }
}

/// Untrusted text for a message: shortened and escaped.
pub(crate) fn escape_excerpt(text: &str) -> String {
    const CAP: usize = 60;
    let mut shown: String = text
        .chars()
        .take(CAP)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(CAP).is_some() {
        shown.push('…');
    }
    shown
}

/// As [`escape_excerpt`], in quotes.
pub(crate) fn quote(text: &str) -> String {
    format!("\"{}\"", escape_excerpt(text))
}

/// Text in TOML's basic quotes; the `toml` crate might use several lines. JSON escapes differ in one character.
fn toml_text(text: &str) -> String {
    Value::String(text.to_owned())
        .to_string()
        .replace('\u{7f}', "\\u007f")
}

/// A key in TOML: without quotes if possible.
pub(crate) fn toml_key(key: &str) -> String {
    let bare = !key.is_empty()
        && key
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if bare { key.to_owned() } else { toml_text(key) }
}
