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

    /// Length of the value in bytes when it is written as short as possible: without spaces, and with escapes only where
    /// JSON requires them.
    pub(crate) fn compact_len(self) -> usize {
        let bytes = self.0.as_bytes();
        // An escape that may be longer than necessary. Agents write few of them.
        let is_found = |escape| memchr::memmem::find(bytes, escape).is_some();
        let has_long_escapes = is_found(b"\\u") || is_found(b"\\/");
        if !has_long_escapes && let [b'"', .., b'"'] = bytes {
            return bytes.len();
        }
        let (mut length, mut at) = (bytes.len(), 0);
        while at < bytes.len() {
            match bytes[at] {
                b'"' if !has_long_escapes => at = string_end(bytes, at + 1),
                b'"' => {
                    at += 1;
                    while let Some(found) = memchr::memchr2(b'"', b'\\', &bytes[at..]) {
                        at += found;
                        if bytes[at] == b'"' {
                            break;
                        }
                        if !matches!(bytes.get(at + 1), Some(b'u' | b'/')) {
                            at = (at + 2).min(bytes.len());
                            continue;
                        }
                        let (written, needed) = escape_lengths(&self.0[at..]);
                        length -= written - needed;
                        at += written;
                    }
                    at += 1;
                }
                b' ' | b'\t' | b'\n' | b'\r' => {
                    length -= 1;
                    at += 1;
                }
                _ => at += 1,
            }
        }
        length
    }
}

/// The index after the quote that ends a string, which begins at `start`.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while let Some(found) = memchr::memchr(b'"', &bytes[at..]) {
        let quote = at + found;
        let escapes = bytes[start..quote].iter().rev();
        let is_escaped = escapes.take_while(|byte| **byte == b'\\').count() % 2 == 1;
        at = quote + 1;
        if !is_escaped {
            return at;
        }
    }
    bytes.len()
}

/// Length of the escape with which the text begins, and of the shortest spelling of its character.
fn escape_lengths(escape: &str) -> (usize, usize) {
    let unit = |text: &str| {
        let digits = text.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(digits, 16).ok()
    };
    let Some(first) = unit(escape) else {
        let needed = if escape.as_bytes().get(1) == Some(&b'/') {
            1
        } else {
            2
        };
        return (escape.len().min(2), needed.min(escape.len()));
    };
    let second = escape.get(6..).and_then(unit);
    if (0xD800..0xDC00).contains(&first)
        && second.is_some_and(|low| (0xDC00..0xE000).contains(&low))
    {
        return (12, 4);
    }
    let needed = match first {
        0x08 | 0x09 | 0x0A | 0x0C | 0x0D | 0x22 | 0x5C => 2,
        0..0x20 | 0xD800..0xE000 => 6,
        0x20..0x80 => 1,
        0x80..0x800 => 2,
        _ => 3,
    };
    (6, needed)
}

impl<'a> From<&'a RawValue> for RawJson<'a> {
    fn from(value: &'a RawValue) -> Self {
        Self(value.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compact_length_does_not_depend_on_the_spelling() {
        for (spelling, compact) in [
            (r#""x""#, r#""x""#),
            (r#" [ {"a" : "b c" } , 1 ] "#, r#"[{"a":"b c"},1]"#),
            (r#""\u00e9\u20ac\ud83d\ude00\/""#, "\"é€😀/\""),
            (r#""\u0041\u000a\u0022\u0001""#, r#""A\n\"\u0001""#),
            (r#""\ud83d \\ \" ""#, r#""\ud83d \\ \" ""#),
            (
                r#"[ "a\\", "b \"c\"\\\" d" ]"#,
                r#"["a\\","b \"c\"\\\" d"]"#,
            ),
            (r#"[ "a\\u" ]"#, r#"["a\\u"]"#),
            ("{}", "{}"),
        ] {
            assert_eq!(RawJson(spelling).compact_len(), compact.len(), "{spelling}");
            assert_eq!(RawJson(compact).compact_len(), compact.len(), "{compact}");
        }
    }
}
