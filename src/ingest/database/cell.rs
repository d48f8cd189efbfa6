//! One value of a row, shortened for display.

use std::fmt;

use rusqlite::types::ValueRef;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Longest text of a cell in characters.
const MAX_CELL_CHARS: usize = 2_000;
/// Fewest characters of a cell, so that it stays readable in a wide row.
const MIN_CELL_CHARS: usize = 16;
/// Bytes of a blob that are shown.
const BLOB_HEAD_BYTES: usize = 16;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SqlCell {
    Null,
    Int(i64),
    Real(#[serde(with = "real_bits")] f64),
    /// Text. Invalid UTF-8 is replaced.
    Text {
        /// The part that is shown.
        head: String,
        /// Length of the whole text in characters, if it is truncated.
        full_chars: Option<usize>,
    },
    Blob {
        /// The first [`BLOB_HEAD_BYTES`] bytes.
        head: Vec<u8>,
        /// Length of the whole blob in bytes.
        full_bytes: usize,
    },
}

impl SqlCell {
    /// Most characters per cell when a row of `columns` has to fit into `chars`.
    pub fn max_chars(chars: usize, columns: usize) -> usize {
        (chars / 2 / columns.max(1)).clamp(MIN_CELL_CHARS, MAX_CELL_CHARS)
    }

    /// `text`, truncated after `widest` characters.
    pub fn text(text: &str, widest: usize) -> Self {
        let cut = text.char_indices().nth(widest);
        Self::Text {
            head: cut
                .and_then(|(end, _)| text.get(..end))
                .unwrap_or(text)
                .to_owned(),
            full_chars: cut.map(|_| text.chars().count()),
        }
    }

    /// The first of `bytes`.
    pub fn blob(bytes: &[u8]) -> Self {
        Self::Blob {
            head: bytes.get(..BLOB_HEAD_BYTES).unwrap_or(bytes).to_vec(),
            full_bytes: bytes.len(),
        }
    }

    /// The value, truncated after `widest` characters.
    pub(super) fn from_value(value: ValueRef<'_>, widest: usize) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(number) => Self::Int(number),
            ValueRef::Real(number) => Self::Real(number),
            ValueRef::Text(bytes) => Self::text(&String::from_utf8_lossy(bytes), widest),
            ValueRef::Blob(bytes) => Self::blob(bytes),
        }
    }

    /// Width in a table, in characters.
    pub fn width(&self) -> usize {
        self.to_string().chars().count() + 3
    }

    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Int(number) => (*number).into(),
            Self::Real(number) => (*number).into(),
            Self::Text {
                head,
                full_chars: None,
            } => head.as_str().into(),
            Self::Text { .. } | Self::Blob { .. } => self.to_string().into(),
        }
    }
}

/// Formats the value for a Markdown table: on one line, with `|` escaped.
impl fmt::Display for SqlCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Real(number) => write!(f, "{number}"),
            Self::Text {
                head,
                full_chars: cut,
            } => {
                for c in head.chars() {
                    match c {
                        '|' => f.write_str("\\|")?,
                        c if c.is_control() => write!(f, "{}", c.escape_default())?,
                        c => write!(f, "{c}")?,
                    }
                }
                cut.map_or(Ok(()), |all| write!(f, "… [{all} characters]"))
            }
            Self::Blob {
                head,
                full_bytes: len,
            } => {
                write!(f, "<blob of {len} bytes")?;
                if !head.is_empty() {
                    f.write_str(": ")?;
                }
                head.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                if head.len() < *len {
                    f.write_str("…>")
                } else {
                    f.write_str(">")
                }
            }
        }
    }
}

/// Stores the bits of a float: JSON has no infinity, and decimal numbers do not round-trip exactly.
mod real_bits {
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(number.to_bits())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        u64::deserialize(deserializer).map(f64::from_bits)
    }
}
