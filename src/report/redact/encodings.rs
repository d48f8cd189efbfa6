//! Undoes what hides a secret from the rules: escapes, entities, percent encoding, invisible characters, terminal colours,
//! line ends within a token, and base64. Pure.

use std::{ops::Range, sync::LazyLock};

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use regex::bytes::Regex;

use super::rules;

/// Fewer characters of base64 hold no secret that has a shape.
const SHORTEST_CODE: usize = 24;

/// The part of a token at the beginning of a line that continues it, in bytes.
const PART: std::ops::RangeInclusive<usize> = 8..=512;

/// Decodes with and without padding, also if the last character has bits that belong to no byte.
const CONFIG: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, CONFIG);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, CONFIG);

/// What hides or encodes a character: a colour of a terminal, also as source code, an entity, percent encoding, an
/// escape, a backslash at the end of a line, and invisible characters.
static HIDDEN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    rules::regex(
        r"(?:\x1b|\\u001[bB]|\\x1[bB]|\\033|\\e)\[[0-9;:]*[mK]|&#(?:[0-9]{1,6}|[xX][0-9A-Fa-f]{1,6});|&(?:amp|lt|gt|quot|apos|lowbar|hyphen|period|shy|zwnj|zwj|ZeroWidthSpace|NoBreak);|%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|\\[_-]|\\\r?\n|\x00|\xc2\xad|\xe2\x80[\x8b-\x8f]|\xe2\x81[\xa0-\xa4]|\xef\xbb\xbf",
    )
    .ok()
});

static LINE_ENDS: LazyLock<Option<Regex>> =
    LazyLock::new(|| rules::regex(r"\r?\n[ \t]{0,40}").ok());
static CODE: LazyLock<Option<Regex>> = LazyLock::new(|| rules::regex("[A-Za-z0-9+/_-]{24,}").ok());

/// A text that was assembled from another one, with the source of each part.
#[derive(Debug, Default)]
pub(super) struct AssembledText {
    pub(super) text: String,
    /// Where each part begins in the text, and its source. A part of another length than its source is one character.
    parts: Vec<(usize, Range<usize>)>,
}

impl AssembledText {
    /// Assembles `source` with some of its ranges replaced by a character, or left out; `None` if there are none.
    fn new(
        source: &str,
        replaced: impl Iterator<Item = (Range<usize>, Option<char>)>,
    ) -> Option<Self> {
        let (mut assembled, mut done) = (Self::default(), 0);
        for (range, char) in replaced {
            assembled.push(&source[done..range.start], done..range.start);
            let mut buffer = [0; 4];
            let char = char.map_or("", |char| char.encode_utf8(&mut buffer));
            done = range.end;
            assembled.push(char, range);
        }
        if done == 0 {
            return None;
        }
        assembled.push(&source[done..], done..source.len());
        Some(assembled)
    }

    fn push(&mut self, text: &str, source: Range<usize>) {
        if !text.is_empty() {
            self.parts.push((self.text.len(), source));
            self.text.push_str(text);
        }
    }

    /// The range of the source that `range` comes from.
    pub(super) fn source(&self, range: &Range<usize>) -> Range<usize> {
        let part = |at: usize| {
            let index = self.parts.partition_point(|(start, _)| *start <= at) - 1;
            let end = self
                .parts
                .get(index + 1)
                .map_or(self.text.len(), |(start, _)| *start);
            let (start, source) = &self.parts[index];
            match end - start == source.len() {
                true => source.start + at - start..source.start + at - start + 1,
                false => source.clone(),
            }
        };
        part(range.start).start..part(range.end - 1).end
    }
}

/// `text` without what hides its characters; `None` if nothing does.
pub(super) fn normalized(text: &str) -> Option<AssembledText> {
    let hidden = HIDDEN.as_ref()?.find_iter(text.as_bytes());
    AssembledText::new(
        text,
        hidden.filter_map(|found| Some((found.range(), shown(&text[found.range()])?))),
    )
}

/// The character that `hidden` encodes, if it is visible; `None` if it must be kept.
fn shown(hidden: &str) -> Option<Option<char>> {
    let code = match hidden.trim_end_matches(';') {
        "&amp" => Some('&'),
        "&lt" => Some('<'),
        "&gt" => Some('>'),
        "&quot" => Some('"'),
        "&apos" => Some('\''),
        "&lowbar" | "\\_" => Some('_'),
        "&hyphen" | "\\-" => Some('-'),
        "&period" => Some('.'),
        code => {
            let hex = ["&#x", "&#X", "%", "\\u", "\\x"]
                .iter()
                .find_map(|start| code.strip_prefix(start));
            let number = hex.map(|hex| u32::from_str_radix(hex, 16));
            let number = number.or_else(|| Some(code.strip_prefix("&#")?.parse()));
            let Some(Ok(number)) = number else {
                return Some(None);
            };
            char::from_u32(number)
        }
    };
    match code? {
        char @ ' '..='~' => Some(Some(char)),
        '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}' => Some(None),
        _ => None,
    }
}

/// `text` without the line ends after which a token may continue; `None` if it has none.
pub(super) fn joined_lines(text: &str) -> Option<AssembledText> {
    let bytes = text.as_bytes();
    let is_token = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+/_-.=~".contains(byte);
    let ends = LINE_ENDS.as_ref()?.find_iter(bytes).filter(|end| {
        let length = bytes[end.end()..]
            .iter()
            .take(*PART.end())
            .take_while(is_token)
            .count();
        let part = &bytes[end.end()..end.end() + length];
        let has = |is: fn(&u8) -> bool| part.iter().any(is);
        let is_mixed = has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic)
            || length >= 2 * PART.start()
                && has(u8::is_ascii_uppercase)
                && has(u8::is_ascii_lowercase);
        length >= *PART.start()
            && is_mixed
            && bytes[..end.start()]
                .last()
                .is_some_and(|byte| is_token(&byte))
    });
    AssembledText::new(text, ends.map(|end| (end.range(), None)))
}

/// The words of `text` that may be base64 of a text, and those texts. Addresses and paths join a word to others.
pub(super) fn decoded_words(text: &str) -> impl Iterator<Item = (Range<usize>, String)> {
    let words = CODE.iter().flat_map(|code| code.find_iter(text.as_bytes()));
    words.flat_map(move |word| {
        let (start, whole) = (word.start(), &text[word.range()]);
        let is_escaped = start > 0 && text.as_bytes()[start - 1] == b'\\';
        let after_escape = is_escaped.then(|| &whole[1..]);
        let parts = whole
            .split('/')
            .filter(|part| part.len() >= SHORTEST_CODE && part.len() < whole.len());
        [whole]
            .into_iter()
            .chain(after_escape)
            .chain(parts)
            .filter_map(move |code| {
                let from = code.as_ptr() as usize - text.as_ptr() as usize;
                let padding = text[from + code.len()..]
                    .bytes()
                    .take_while(|byte| *byte == b'=')
                    .count();
                Some((from..from + code.len() + padding, decoded(code)?))
            })
    })
}

/// The text that `code` is base64 of; `None` if it decodes to something else.
fn decoded(code: &str) -> Option<String> {
    let engine = if code.contains(['-', '_']) {
        URL_SAFE
    } else {
        STANDARD
    };
    // The first bytes show whether it is a text. These begin with a byte that begins no character of UTF-8.
    let is_text = |bytes: &[u8]| {
        std::str::from_utf8(bytes).map_or_else(|error| error.error_len().is_none(), |_| true)
            && !bytes
                .iter()
                .any(|byte| *byte < b' ' && !b"\0\t\n\r\x1b".contains(byte) || *byte == 0x7f)
    };
    let is_binary = matches!(
        code.as_bytes().first(),
        None | Some(b'g'..=b'v' | b'+' | b'/' | b'-' | b'_')
    );
    if is_binary || !is_text(&engine.decode(code.get(..SHORTEST_CODE)?).ok()?) {
        return None;
    }
    // A word may be followed by a character that is not a part of it.
    let code = if code.len() % 4 == 1 {
        &code[..code.len() - 1]
    } else {
        code
    };
    let mut bytes = engine.decode(code).ok()?;
    // UTF-16 of ASCII.
    bytes.retain(|byte| *byte != 0);
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_removed_or_decoded() {
        for (text, expected) in [
            (
                "a\u{200b}b\u{200c}c\u{200d}d\u{2060}e\u{feff}f\u{ad}g\0h",
                "abcdefgh",
            ),
            (
                "a\u{1b}[0mb\u{1b}[1;31mc\u{1b}[Kd\\u001b[0me\\x1b[mf\\033[1mg\\e[0mh",
                "abcdefgh",
            ),
            ("a&#45;b&#x2D;c&amp;d&lowbar;e&shy;f&#8203;g", "a-b-c&d_efg"),
            ("a%2Db%5fc\\u002dd\\x2de\\_f\\-g\\u200bh", "a-b_c-d-e_f-gh"),
            ("ab\\\ncd\\\r\nef", "abcdef"),
        ] {
            let derived = normalized(text).unwrap();
            assert_eq!(derived.text, expected);
            assert_eq!(derived.source(&(0..derived.text.len())), 0..text.len());
            for at in 0..derived.text.len() {
                let source = derived.source(&(at..at + 1));
                assert!(
                    text.get(source.clone())
                        .is_some_and(|part| !part.is_empty()),
                    "{text:?} {source:?}"
                );
            }
        }
        for text in [
            "",
            "plain",
            "100% of \u{2014} é & more \\n",
            "&nbsp;",
            "%e4",
        ] {
            assert!(normalized(text).is_none(), "{text}");
        }
    }

    #[test]
    fn base64_of_text_is_decoded() {
        let text = "some text?>>> with ~~~ more";
        for code in [
            STANDARD.encode(text),
            URL_SAFE.encode(text),
            STANDARD.encode(text).trim_end_matches('=').into(),
        ] {
            assert_eq!(decoded(&code).as_deref(), Some(text));
        }
        for other in [
            "src/cli/export/redact/tests",
            "2fd4e1c67a2d28fced849ee1bb76e7391b93eb12",
            "iVBORw0KGgoAAAANSUhEUgAAAAEA",
        ] {
            assert_eq!(decoded(other), None, "{other}");
        }
    }
}
