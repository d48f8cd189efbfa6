//! Shortens a line that is too long for memory: its long strings are cut while it is read, and the rest of the line is
//! kept.
//!
//! It must not depend on the source of the bytes or the meaning of the line.

/// Minimum length in bytes of a line that is shortened.
pub(super) const GIANT: usize = 4 << 20;

/// Bytes that are kept of a string in such a line, and of a line that is not JSON.
const MAX_KEPT_STRING: usize = 64 << 10;

/// Bytes that are kept of such a line. Only a line with very many small values exceeds this, and its kept part is not
/// valid JSON.
const MAX_KEPT_LINE: usize = 64 << 20;

/// State of shortening one line.
#[derive(Debug)]
pub(super) struct Shortener {
    kept: Vec<u8>,
    state: ShortenerState,
    /// Bytes that are kept of a string.
    max_string: usize,
}

/// The position of the next byte.
#[derive(Clone, Copy, Debug)]
enum ShortenerState {
    /// Only blanks so far.
    Start,
    /// The line is not an object, so only its beginning is kept.
    Text,
    BetweenStrings,
    InString(StringState),
    Escaped(StringState),
}

/// A position in a string.
#[derive(Clone, Copy, Debug, Default)]
struct StringState {
    /// Bytes of the string that were kept.
    kept_bytes: usize,
    /// Bytes that must be kept because they belong to the last character.
    pending_bytes: usize,
    /// The rest of the string is dropped.
    is_truncated: bool,
}

impl Default for Shortener {
    fn default() -> Self {
        Self::with_limit(MAX_KEPT_STRING)
    }
}

impl Shortener {
    fn with_limit(most: usize) -> Self {
        Self {
            kept: Vec::new(),
            state: ShortenerState::Start,
            max_string: most,
        }
    }

    /// Continues with the next bytes of the line. Returns the position of the newline, if they contain the end of the
    /// line.
    pub(super) fn push(&mut self, all: &[u8]) -> Option<usize> {
        let mut bytes = all;
        while let Some(first) = bytes.first() {
            if *first == b'\n' {
                return Some(all.len() - bytes.len());
            }
            let used = match self.state {
                ShortenerState::Start if first.is_ascii_whitespace() => 1,
                ShortenerState::Start => {
                    self.state = if *first == b'{' {
                        ShortenerState::BetweenStrings
                    } else {
                        ShortenerState::Text
                    };
                    0
                }
                ShortenerState::Text => {
                    let length = memchr::memchr(b'\n', bytes).unwrap_or(bytes.len());
                    let room = self.max_string.saturating_sub(self.kept.len()).min(length);
                    self.keep(&bytes[..room]);
                    length
                }
                ShortenerState::BetweenStrings => match memchr::memchr2(b'"', b'\n', bytes) {
                    Some(quote) if bytes[quote] == b'"' => {
                        self.keep(&bytes[..=quote]);
                        self.state = ShortenerState::InString(StringState::default());
                        quote + 1
                    }
                    end => {
                        let length = end.unwrap_or(bytes.len());
                        self.keep(&bytes[..length]);
                        length
                    }
                },
                ShortenerState::InString(inside) => self.push_string(inside, bytes),
                ShortenerState::Escaped(mut inside) => {
                    if !inside.is_truncated {
                        self.keep(&bytes[..1]);
                        inside.kept_bytes += 1;
                        inside.pending_bytes = if *first == b'u' { 4 } else { 0 };
                    }
                    self.state = ShortenerState::InString(inside);
                    1
                }
            };
            bytes = &bytes[used..];
        }
        None
    }

    /// Continues a string to its next special byte and returns the number of consumed bytes.
    fn push_string(&mut self, mut inside: StringState, bytes: &[u8]) -> usize {
        let special = memchr::memchr3(b'"', b'\\', b'\n', bytes);
        let plain = &bytes[..special.unwrap_or(bytes.len())];
        if !inside.is_truncated {
            let least = self
                .max_string
                .saturating_sub(inside.kept_bytes)
                .max(inside.pending_bytes)
                .min(plain.len());
            // A character is always kept completely.
            let more = plain[least..]
                .iter()
                .take_while(|byte| matches!(byte, 0x80..=0xbf))
                .count();
            let (kept, rest) = plain.split_at(least + more);
            self.keep(kept);
            inside.kept_bytes += kept.len();
            inside.pending_bytes = inside.pending_bytes.saturating_sub(kept.len());
            inside.is_truncated = !rest.is_empty();
        }
        self.state = match special.map(|at| bytes[at]) {
            None => ShortenerState::InString(inside),
            Some(b'\n') => {
                self.state = ShortenerState::InString(inside);
                return plain.len();
            }
            Some(b'"') => {
                self.keep(b"\"");
                ShortenerState::BetweenStrings
            }
            Some(_) => {
                inside.is_truncated |=
                    inside.kept_bytes >= self.max_string && !self.ends_after_high_surrogate();
                if !inside.is_truncated {
                    self.keep(b"\\");
                    inside.kept_bytes += 1;
                }
                ShortenerState::Escaped(inside)
            }
        };
        special.map_or(bytes.len(), |at| at + 1)
    }

    /// True after the first of two escapes that form one character.
    fn ends_after_high_surrogate(&self) -> bool {
        let escape = self.kept.last_chunk::<6>();
        escape.is_some_and(|[slash, u, first, second, ..]| {
            (slash, u) == (&b'\\', &b'u')
                && matches!(first, b'd' | b'D')
                && matches!(second, b'8' | b'9' | b'a'..=b'b' | b'A'..=b'B')
        })
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = MAX_KEPT_LINE
            .saturating_sub(self.kept.len())
            .min(bytes.len());
        self.kept.extend_from_slice(&bytes[..room]);
    }

    /// Returns the shortened line.
    pub(super) fn end(self) -> Vec<u8> {
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn shortened(line: &[u8], most: usize, at_once: usize) -> Vec<u8> {
        let mut shortener = Shortener::with_limit(most);
        for (number, chunk) in line.chunks(at_once.max(1)).enumerate() {
            if let Some(end) = shortener.push(chunk) {
                let end = number * at_once.max(1) + end;
                assert_eq!(Some(end), line.iter().position(|byte| *byte == b'\n'));
                return shortener.end();
            }
        }
        assert!(!line.contains(&b'\n'), "its end was not seen");
        shortener.end()
    }

    /// True if `short` differs from `long` only in shortened strings, and no string exceeds the limit.
    fn is_shortened_form(short: &Value, long: &Value, most: usize) -> bool {
        match (short, long) {
            (Value::String(short), Value::String(long)) => {
                long.starts_with(short.as_str())
                    && (short == long || short.len() <= most + 8 && long.len() > short.len())
            }
            (Value::Array(short), Value::Array(long)) => {
                short.len() == long.len()
                    && short
                        .iter()
                        .zip(long)
                        .all(|(short, long)| is_shortened_form(short, long, most))
            }
            (Value::Object(short), Value::Object(long)) => {
                short.len() == long.len()
                    && short
                        .iter()
                        .zip(long)
                        .all(|((_, short), (_, long))| is_shortened_form(short, long, most))
            }
            _ => short == long,
        }
    }

    proptest! {
        #[test]
        fn shortened_line_has_the_same_structure(
            texts in prop::collection::vec("[a-c\"\\\\\n\u{7}é日😀]{0,60}", 0..6), most in 1..50_usize, at_once in 1..70_usize,
        ) {
            let line = json!({"type": "user", "content": texts, "n": [1, 2.5, null, true], "session_id": "s"});
            let line = json!({"first": line, "last": {"is_error": false}});
            let short = shortened(line.to_string().as_bytes(), most.max(12), at_once);
            let short: Value = serde_json::from_slice(&short).unwrap();
            prop_assert!(is_shortened_form(&short, &line, most.max(12)), "{short}\n{line}");
        }

        #[test]
        fn escapes_are_never_halved(text in "[a\u{7}\u{1}\"\\\\]{20,60}", most in 1..40_usize, at_once in 1..20_usize) {
            let line = serde_json::to_string(&json!({"t": text})).unwrap();
            let short: Value = serde_json::from_slice(&shortened(line.as_bytes(), most, at_once)).unwrap();
            prop_assert!(text.starts_with(short["t"].as_str().unwrap()));
        }

        #[test]
        fn surrogate_pairs_are_never_halved(text in "[a😀é]{5,30}", most in 1..40_usize, at_once in 1..20_usize) {
            let escaped: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
            let line = format!("{{\"t\":\"{escaped}\"}}");
            let short: Value = serde_json::from_slice(&shortened(line.as_bytes(), most, at_once)).unwrap();
            prop_assert!(text.starts_with(short["t"].as_str().unwrap()));
        }

        #[test]
        fn any_bytes_terminate(bytes in prop::collection::vec(any::<u8>(), 0..400), most in 0..20_usize, at_once in 1..50_usize) {
            prop_assert!(shortened(&bytes, most, at_once).len() <= bytes.len());
        }
    }

    #[test]
    fn non_json_line_keeps_its_beginning() {
        assert_eq!(shortened(b"  not \"JSON\" at all", 7, 3), b"not \"JS");
    }
}
