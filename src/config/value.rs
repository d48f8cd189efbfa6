//! Values of settings and the types that they must fit. Knows no key.

use std::time::Duration;

/// A value, of whatever origin.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Not set, and that is fine.
    Unset,
    /// True or false.
    Switch(bool),
    /// Text.
    Text(String),
    /// A whole number.
    Whole(i64),
    /// A number.
    Number(f64),
    /// Texts.
    List(Vec<String>),
    /// Something that fits no key, in words.
    Other(&'static str),
}

/// What a key takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// True or false, literally.
    Switch,
    /// Text that is not empty.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A whole number in this range, ends included.
    Whole(i64, i64),
    /// A number in this range, ends included.
    Number(f64, f64),
    /// A time: `90s`, `10m`, `1h 30m`.
    Duration,
    /// Texts. A single text is taken as a list of one.
    List,
    /// Names of environment variables, or `PREFIX_*` for all that begin so.
    Names,
    /// Absolute paths, and paths below `~/`.
    Paths,
}

impl Value {
    /// As TOML on one line; `None` if there is nothing to write.
    pub fn to_toml(&self) -> Option<String> {
        Some(match self {
            Self::Unset | Self::Other(_) => return None,
            Self::Switch(value) => value.to_string(),
            Self::Text(text) => toml_text(text),
            Self::Whole(number) => number.to_string(),
            Self::Number(number) => toml::Value::Float(*number).to_string(),
            Self::List(texts) => {
                format!("[{}]", texts.iter().map(|text| toml_text(text)).collect::<Vec<_>>().join(", "))
            }
        })
    }

    /// What it is, in words.
    fn found(&self) -> String {
        match self {
            Self::Unset => "nothing".to_owned(),
            Self::Text(text) if text.is_empty() => "an empty text".to_owned(),
            Self::Text(text) => quote(text),
            Self::Switch(value) => value.to_string(),
            Self::Whole(number) => number.to_string(),
            Self::Number(number) => number.to_string(),
            Self::List(texts) => {
                let first: Vec<String> = texts.iter().take(3).map(|text| quote(text)).collect();
                format!("[{}{}]", first.join(", "), if texts.len() > 3 { ", …" } else { "" })
            }
            Self::Other(what) => (*what).to_owned(),
        }
    }
}

impl Kind {
    /// What is expected, in words that follow "must be".
    pub fn expected(self) -> String {
        match self {
            Self::Switch => "true or false".to_owned(),
            Self::Text => "a text in quotes".to_owned(),
            Self::Word(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
                words.join(" or ")
            }
            Self::Whole(min, max) => format!("a whole number from {min} to {max}"),
            Self::Number(min, max) => format!("a number from {min} to {max}"),
            Self::Duration => format!("a {DURATION}, in quotes"),
            Self::List => "a list of texts".to_owned(),
            Self::Names => "a list of names or prefixes (`AWS_*`) of environment variables".to_owned(),
            Self::Paths => "a list of absolute paths, or of paths that begin with ~/".to_owned(),
        }
    }

    /// The value if it fits, else what it is, in words.
    pub fn admit(self, value: Value) -> Result<Value, String> {
        let found = value.found();
        let admitted = match (self, value) {
            (Self::Switch, value @ Value::Switch(_)) => Some(value),
            (Self::Text, Value::Text(text)) => Some(Value::Text(text)).filter(|_| !found.starts_with("an empty")),
            (Self::Word(words), Value::Text(text)) => words.contains(&text.as_str()).then_some(Value::Text(text)),
            (Self::Whole(min, max), Value::Whole(number)) => {
                (min..=max).contains(&number).then_some(Value::Whole(number))
            }
            (Self::Number(min, max), Value::Number(number)) => {
                (min..=max).contains(&number).then_some(Value::Number(number))
            }
            #[expect(clippy::cast_precision_loss, reason = "ranges of numbers end far below 2^53")]
            (Self::Number(min, max), Value::Whole(number)) => {
                let number = number as f64;
                (min..=max).contains(&number).then_some(Value::Number(number))
            }
            (Self::Duration, Value::Text(text)) => duration(&text).is_some().then_some(Value::Text(text)),
            (Self::List | Self::Names | Self::Paths, Value::Text(text)) if !text.is_empty() => self.list(vec![text]),
            (Self::List | Self::Names | Self::Paths, Value::List(texts)) => self.list(texts),
            _ => None,
        };
        admitted.ok_or(found)
    }

    /// Reads a variable's text. `None` if it cannot be of this kind; [`admit`](Self::admit) checks the rest.
    pub fn read(self, text: &str) -> Option<Value> {
        match self {
            Self::Switch => text.parse().ok().map(Value::Switch),
            Self::Text | Self::Word(_) | Self::Duration => Some(Value::Text(text.to_owned())),
            Self::Whole(..) => text.parse().ok().map(Value::Whole),
            Self::Number(..) => text.parse().ok().map(Value::Number),
            Self::List | Self::Names | Self::Paths => {
                let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
                Some(Value::List(parts.map(str::to_owned).collect()))
            }
        }
    }

    fn list(self, texts: Vec<String>) -> Option<Value> {
        let fits = texts.iter().all(|text| match self {
            Self::Names => is_variable_name(text.strip_suffix('*').unwrap_or(text)),
            Self::Paths => text.starts_with('/') || text.starts_with("~/"),
            _ => true,
        });
        fits.then_some(Value::List(texts))
    }
}

fn is_variable_name(text: &str) -> bool {
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts_well && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A type that a value can be taken as.
pub trait FromValue: Default {
    /// `None` if the value is of another kind.
    fn from_value(value: &Value) -> Option<Self>;
}

impl FromValue for bool {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Switch(value) = value { Some(*value) } else { None }
    }
}

impl FromValue for String {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Text(text) = value { Some(text.clone()) } else { None }
    }
}

impl FromValue for Duration {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Text(text) = value { duration(text) } else { None }
    }
}

impl FromValue for Vec<String> {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::List(texts) = value { Some(texts.clone()) } else { None }
    }
}

impl FromValue for u32 {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Whole(number) = value { (*number).try_into().ok() } else { None }
    }
}

impl FromValue for u64 {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Whole(number) = value { (*number).try_into().ok() } else { None }
    }
}

impl FromValue for f64 {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Number(number) = value { Some(*number) } else { None }
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: &Value) -> Option<Self> {
        if *value == Value::Unset { Some(None) } else { T::from_value(value).map(Some) }
    }
}

/// What a duration is, in words.
pub const DURATION: &str = "time of at least one second, as in 90s, 10m or \"1h 30m\"";

/// Reads a duration of a second or more, and of a year or less.
pub fn duration(text: &str) -> Option<Duration> {
    const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
    let time = Duration::try_from(text.parse::<jiff::SignedDuration>().ok()?).ok()?;
    (Duration::from_secs(1)..=LONGEST).contains(&time).then_some(time)
}

/// Foreign text for a message: bounded, and nothing in it obeyed.
pub fn shown(text: &str) -> String {
    const CAP: usize = 60;
    let mut shown: String = text.chars().take(CAP).flat_map(char::escape_debug).collect();
    if text.chars().nth(CAP).is_some() {
        shown.push('…');
    }
    shown
}

/// As [`shown`], in quotes.
pub fn quote(text: &str) -> String {
    format!("\"{}\"", shown(text))
}

/// Text in TOML's basic quotes, where the `toml` crate might choose several lines. JSON's quotes differ in one character.
fn toml_text(text: &str) -> String {
    serde_json::Value::String(text.to_owned()).to_string().replace('\u{7f}', "\\u007f")
}

/// A key as TOML writes it: bare where it can be.
pub fn toml_key(key: &str) -> String {
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if bare { key.to_owned() } else { toml_text(key) }
}
