//! A JSON value that nobody has looked into yet: its text, borrowed from the line.

use serde::{Serialize, Serializer};
use serde_json::{Value, value::RawValue};

/// Text of one valid JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw<'a>(pub &'a str);

impl<'a> Raw<'a> {
    /// Parses it. Lone surrogates and other oddities become replacement characters; anything worse is `Null`.
    pub fn value(self) -> Value {
        serde_json::from_str(self.0).unwrap_or(Value::Null)
    }

    /// Length of the text in bytes.
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// True for the JSON value `null`.
    pub fn is_null(self) -> bool {
        self.0 == "null"
    }

    /// True when there is no text at all, which no valid value has.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> From<&'a RawValue> for Raw<'a> {
    fn from(value: &'a RawValue) -> Self {
        Self(value.get())
    }
}

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match serde_json::from_str::<&RawValue>(self.0) {
            Ok(raw) => raw.serialize(serializer),
            Err(_) => serializer.serialize_none(),
        }
    }
}
