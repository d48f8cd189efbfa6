//! An unparsed JSON value: its text, borrowed from the line.

use std::borrow::Cow;

use serde_json::{Value, value::RawValue};

use super::{
    json_scanner::{JsonScanner, RawJson},
    text,
};

impl<'a> RawJson<'a> {
    /// Parses the value. Lone surrogates become replacement characters. Returns `Null` if it nests deeper than 128
    /// levels.
    pub fn value(self) -> Value {
        serde_json::from_str(self.0)
            .or_else(|_| serde_json::from_str(&text::replace_lone_surrogates(self.0)))
            .unwrap_or(Value::Null)
    }

    /// Returns the text of a string, `None` for any other type.
    pub fn as_str(self) -> Option<Cow<'a, str>> {
        JsonScanner::from_text(self.0).text().ok().flatten()
    }

    /// Returns the values of the named fields of an object, in one scan; `None` for absent ones and nulls. If a name
    /// occurs several times, the last value counts.
    pub fn pick<const N: usize>(self, names: [&str; N]) -> [Option<Self>; N] {
        let mut found = [None; N];
        let mut scan = JsonScanner::from_text(self.0);
        let walked = scan.object(|scan, key| {
            match names.iter().position(|name| name.as_bytes() == key) {
                Some(index) => found[index] = scan.raw()?,
                None => scan.skip()?,
            }
            Ok(())
        });
        // A valid value is always scanned to its end.
        if walked.is_ok() { found } else { [None; N] }
    }

    /// Returns the value of one field of an object.
    pub fn get(self, name: &str) -> Option<Self> {
        let [found] = self.pick([name]);
        found
    }

    /// Returns the elements of an array without nulls; none for any other type.
    pub fn items(self) -> Vec<Self> {
        let mut items = Vec::new();
        let walked = JsonScanner::from_text(self.0).array(|scan| {
            items.extend(scan.raw()?);
            Ok(())
        });
        if walked.is_ok() { items } else { Vec::new() }
    }

    /// Length of the JSON text in bytes.
    pub(crate) fn len(self) -> usize {
        self.0.len()
    }
}

impl<'a> From<&'a RawValue> for RawJson<'a> {
    fn from(value: &'a RawValue) -> Self {
        Self(value.get())
    }
}
