//! Values of settings, and the types that they must fit. Knows no key.

use std::{ops::RangeInclusive, str::FromStr, time::Duration};

use serde_json::Value;

use super::{Setting, SettingOrigin, time_limit::TimeLimitSetting};
use crate::token_prices::{ENTRY_SYNTAX, PricedModel};

/// A value from any layer.
#[derive(Clone, Debug, PartialEq)]
pub enum SettingValue {
    Bool(bool),
    Text(String),
    Integer(i64),
    Float(f64),
    List(Vec<String>),
    /// A description of a value that fits no key.
    Other(&'static str),
}

impl SettingValue {
    /// Describes the value for a message.
    pub(super) fn describe(&self) -> String {
        match self {
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

    /// The text of a variable as `value`, or else as a text, which fits no key that expects another type.
    fn parse<T: FromStr>(text: &str, value: fn(T) -> Self) -> Self {
        text.parse()
            .map_or_else(|_| Self::Text(text.to_owned()), value)
    }
}

/// The type of a setting: which values are valid, and how they are written.
pub(crate) trait SettingType: Sized {
    /// What restricts valid values beyond the type.
    type Limits;

    /// Describes valid values; the text follows "must be".
    fn expected(limits: Self::Limits) -> String;

    /// The value, if it is valid.
    fn read(value: SettingValue, limits: Self::Limits) -> Option<Self>;

    /// The value as TOML on one line. If it is not set, the error describes what applies; empty if nothing does.
    fn to_toml(&self, limits: Self::Limits) -> Result<String, &'static str>;

    /// Sets a value, unless its origin is weaker than that of the present one. Returns false if the value is invalid.
    fn set(
        setting: &mut Setting<Self>,
        value: SettingValue,
        origin: SettingOrigin,
        limits: Self::Limits,
    ) -> bool {
        let Some(value) = Self::read(value, limits) else {
            return false;
        };
        if setting.origin <= origin {
            *setting = Setting { value, origin };
        }
        true
    }

    /// The text of a variable, for [`read`](Self::read).
    fn parse(text: &str) -> SettingValue {
        SettingValue::Text(text.to_owned())
    }
}

impl SettingType for bool {
    type Limits = ();

    fn expected((): ()) -> String {
        "true or false".to_owned()
    }

    fn read(value: SettingValue, (): ()) -> Option<Self> {
        match value {
            SettingValue::Bool(value) => Some(value),
            _ => None,
        }
    }

    fn to_toml(&self, (): ()) -> Result<String, &'static str> {
        Ok(self.to_string())
    }

    fn parse(text: &str) -> SettingValue {
        SettingValue::parse(text, SettingValue::Bool)
    }
}

/// Whole numbers of these types, in an inclusive range.
macro_rules! whole_numbers {
    ($($number:ty)*) => {$(
        impl SettingType for $number {
            type Limits = RangeInclusive<Self>;

            fn expected(range: Self::Limits) -> String {
                format!("a whole number from {} to {}", range.start(), range.end())
            }

            fn read(value: SettingValue, range: Self::Limits) -> Option<Self> {
                match value {
                    SettingValue::Integer(number) => {
                        Self::try_from(number).ok().filter(|number| range.contains(number))
                    }
                    _ => None,
                }
            }

            fn to_toml(&self, _: Self::Limits) -> Result<String, &'static str> {
                Ok(self.to_string())
            }

            fn parse(text: &str) -> SettingValue {
                SettingValue::parse(text, SettingValue::Integer)
            }
        }
    )*};
}

whole_numbers!(u32 u64);

impl SettingType for f64 {
    type Limits = RangeInclusive<Self>;

    fn expected(range: Self::Limits) -> String {
        format!("a number from {} to {}", range.start(), range.end())
    }

    fn read(value: SettingValue, range: Self::Limits) -> Option<Self> {
        let number = match value {
            SettingValue::Float(number) => number,
            #[expect(
                clippy::cast_precision_loss,
                reason = "ranges of numbers end far below 2^53"
            )]
            SettingValue::Integer(number) => number as Self,
            _ => return None,
        };
        range.contains(&number).then_some(number)
    }

    fn to_toml(&self, _: Self::Limits) -> Result<String, &'static str> {
        Ok(toml::Value::Float(*self).to_string())
    }

    fn parse(text: &str) -> SettingValue {
        SettingValue::parse(text, SettingValue::Float)
    }
}

/// Text that is not empty.
impl SettingType for String {
    type Limits = ();

    fn expected((): ()) -> String {
        "a text in quotes".to_owned()
    }

    fn read(value: SettingValue, (): ()) -> Option<Self> {
        match value {
            SettingValue::Text(text) => Some(text).filter(|text| !text.is_empty()),
            _ => None,
        }
    }

    fn to_toml(&self, (): ()) -> Result<String, &'static str> {
        Ok(toml_text(self))
    }
}

/// A value that may be absent. It cannot be removed by a stronger layer.
impl<T: SettingType> SettingType for Option<T> {
    type Limits = T::Limits;

    fn expected(limits: T::Limits) -> String {
        T::expected(limits)
    }

    fn read(value: SettingValue, limits: T::Limits) -> Option<Self> {
        T::read(value, limits).map(Some)
    }

    fn to_toml(&self, limits: T::Limits) -> Result<String, &'static str> {
        self.as_ref().ok_or("")?.to_toml(limits)
    }

    fn parse(text: &str) -> SettingValue {
        T::parse(text)
    }
}

/// What the texts of a list must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListItems {
    #[default]
    Any,
    /// Names of environment variables, or `PREFIX_*` for all names with this prefix.
    Variables,
    /// Absolute paths, and paths below `~/`.
    Paths,
    /// Prices of a model, see [`ENTRY_SYNTAX`].
    Prices,
}

/// A list of texts. A single text becomes a list of one.
impl SettingType for Vec<String> {
    type Limits = ListItems;

    fn expected(items: ListItems) -> String {
        let expected = match items {
            ListItems::Any => "a list of texts",
            ListItems::Prices => return format!("a list of prices: {ENTRY_SYNTAX}"),
            ListItems::Variables => {
                "a list of names or prefixes (`AWS_*`) of environment variables"
            }
            ListItems::Paths => "a list of absolute paths, or of paths that begin with ~/",
        };
        expected.to_owned()
    }

    fn read(value: SettingValue, items: ListItems) -> Option<Self> {
        let texts = match value {
            SettingValue::Text(text) if !text.is_empty() => vec![text],
            SettingValue::List(texts) => texts,
            _ => return None,
        };
        let fits = texts.iter().all(|text| match items {
            ListItems::Any => true,
            ListItems::Variables => is_variable_name(text.strip_suffix('*').unwrap_or(text)),
            ListItems::Prices => PricedModel::parse(text).is_some(),
            ListItems::Paths => text.starts_with('/') || text.starts_with("~/"),
        });
        fits.then_some(texts)
    }

    fn to_toml(&self, _: ListItems) -> Result<String, &'static str> {
        Ok(toml_list(self))
    }

    fn parse(text: &str) -> SettingValue {
        let parts = text.split(',').map(str::trim);
        let parts = parts.filter(|part| !part.is_empty());
        SettingValue::List(parts.map(str::to_owned).collect())
    }
}

impl SettingType for Duration {
    type Limits = ();

    fn expected((): ()) -> String {
        format!("a {DURATION_SYNTAX}, in quotes")
    }

    fn read(value: SettingValue, (): ()) -> Option<Self> {
        match value {
            SettingValue::Text(text) => parse_duration(&text),
            _ => None,
        }
    }

    fn to_toml(&self, (): ()) -> Result<String, &'static str> {
        let text = match jiff::SignedDuration::try_from(*self) {
            Ok(time) if time.as_secs() >= 120 || time.subsec_nanos() > 0 => format!("{time:#}"),
            _ => format!("{}s", self.as_secs()),
        };
        Ok(toml_text(&text))
    }
}

/// The limits describe what applies if it is not set.
impl SettingType for TimeLimitSetting {
    type Limits = &'static str;

    fn expected(_: &'static str) -> String {
        format!("a {DURATION_SYNTAX}, or none, in quotes")
    }

    fn read(value: SettingValue, _: &'static str) -> Option<Self> {
        match value {
            SettingValue::Text(text) => parse_time_limit(&text),
            _ => None,
        }
    }

    fn to_toml(&self, unset: &'static str) -> Result<String, &'static str> {
        match self {
            Self::Unset => Err(unset),
            Self::Unlimited => Ok(toml_text("none")),
            Self::After(limit) => limit.to_toml(()),
        }
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
pub(super) fn toml_text(text: &str) -> String {
    Value::String(text.to_owned())
        .to_string()
        .replace('\u{7f}', "\\u007f")
}

pub(super) fn toml_list(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| toml_text(text)).collect();
    format!("[{}]", texts.join(", "))
}

/// A key in TOML: without quotes if possible.
pub(crate) fn toml_key(key: &str) -> String {
    let bare = !key.is_empty()
        && key
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if bare { key.to_owned() } else { toml_text(key) }
}
