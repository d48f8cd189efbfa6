//! A copy of a text without what hides a token from the patterns: escapes, entities, percent encoding, invisible
//! characters, terminal colours and lines that a backslash continues. Pure.

use std::ops::Range;

/// A text that was assembled from parts of another text, with the source of each part.
#[derive(Debug, Default)]
pub(super) struct AssembledText {
    pub(super) text: String,
    parts: Vec<AssembledPart>,
}

#[derive(Debug)]
struct AssembledPart {
    /// Where the part begins in the derived text.
    at: usize,
    source: Range<usize>,
}

impl AssembledText {
    /// Appends `range` of `source` as it is.
    pub(super) fn copy(&mut self, source: &str, range: Range<usize>) {
        if !range.is_empty() {
            self.parts.push(AssembledPart {
                at: self.text.len(),
                source: range.clone(),
            });
            self.text.push_str(&source[range]);
        }
    }

    /// Appends the ASCII character that `range` of the source encodes.
    fn decode(&mut self, char: char, range: Range<usize>) {
        self.parts.push(AssembledPart {
            at: self.text.len(),
            source: range,
        });
        self.text.push(char);
    }

    /// The range of the source that `range` of the derived text comes from, with everything between its parts.
    pub(super) fn source(&self, range: &Range<usize>) -> Range<usize> {
        let parts: Vec<Range<usize>> = self.sources(range).collect();
        parts.first().map_or(0, |part| part.start)..parts.last().map_or(0, |part| part.end)
    }

    /// The ranges of the source that `range` of the derived text comes from, one for each part.
    pub(super) fn sources(&self, range: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let first = self
            .parts
            .partition_point(|part| part.at <= range.start)
            .saturating_sub(1);
        let last = self.parts.partition_point(|part| part.at < range.end);
        (first..last).map(move |index| {
            let part = &self.parts[index];
            let end = self
                .parts
                .get(index + 1)
                .map_or(self.text.len(), |next| next.at);
            if end - part.at != part.source.len() {
                return part.source.clone();
            }
            let start = range.start.max(part.at) - part.at;
            part.source.start + start..part.source.start + (range.end.min(end) - part.at)
        })
    }
}

/// Bytes that may begin something that [`hidden`] replaces, in groups that one search finds.
const STARTS: [[u8; 3]; 3] = [[b'\\', b'&', b'%'], [0, 0x1b, 0xef], [0xe2, 0xc2, 0xc2]];

/// Entities that encode a character of a token, or an invisible one.
const ENTITIES: &[(&str, Option<char>)] = &[
    ("amp;", Some('&')),
    ("lt;", Some('<')),
    ("gt;", Some('>')),
    ("quot;", Some('"')),
    ("apos;", Some('\'')),
    ("lowbar;", Some('_')),
    ("hyphen;", Some('-')),
    ("period;", Some('.')),
    ("shy;", None),
    ("zwnj;", None),
    ("zwj;", None),
    ("ZeroWidthSpace;", None),
    ("NoBreak;", None),
];

/// How an escape character is written in source code.
const WRITTEN_ESC: &[&str] = &["\\u001b", "\\u001B", "\\x1b", "\\x1B", "\\033", "\\e"];

/// `text` without what hides tokens; `None` if nothing does.
pub(super) fn normalized(text: &str) -> Option<AssembledText> {
    let bytes = text.as_bytes();
    let find = |[a, b, c]: [u8; 3], from: usize| {
        memchr::memchr3(a, b, c, &bytes[from..]).map_or(bytes.len(), |found| from + found)
    };
    let mut next = STARTS.map(|start| find(start, 0));
    let (mut derived, mut done) = (AssembledText::default(), 0);
    loop {
        let at = next.into_iter().min().filter(|at| *at < bytes.len());
        let Some(at) = at else { break };
        let mut end = at + 1;
        if let Some((length, char)) = hidden(text, at) {
            end = at + length;
            derived.copy(text, done..at);
            if let Some(char) = char {
                derived.decode(char, at..end);
            }
            done = end;
        }
        for (next, start) in next.iter_mut().zip(STARTS).filter(|(next, _)| **next < end) {
            *next = find(start, end);
        }
    }
    if done == 0 {
        return None;
    }
    derived.copy(text, done..text.len());
    Some(derived)
}

/// How many bytes at `at` hide or encode a character, and the character, if it is a visible one.
fn hidden(text: &str, at: usize) -> Option<(usize, Option<char>)> {
    let rest = text.get(at..)?;
    let hex =
        |from: usize, length: usize| u32::from_str_radix(rest.get(from..from + length)?, 16).ok();
    let length_and = |length: usize| move |char: Option<char>| (length, char);
    match rest.as_bytes().first()? {
        0 => Some((1, None)),
        0x1b => Some((1 + colour(&rest[1..])?, None)),
        b'%' => replaced(hex(1, 2)?).map(length_and(3)),
        b'&' => entity(&rest[1..]).map(|(length, char)| (1 + length, char)),
        b'\\' => match rest.as_bytes().get(1)? {
            b'u' | b'x' | b'0' | b'e' if written_colour(rest).is_some() => {
                Some((written_colour(rest)?, None))
            }
            b'u' => replaced(hex(2, 4)?).map(length_and(6)),
            b'x' => replaced(hex(2, 2)?).map(length_and(4)),
            b'_' => Some((2, Some('_'))),
            b'-' => Some((2, Some('-'))),
            b'\n' => continued_line(text, at, 2),
            b'\r' if rest.as_bytes().get(2) == Some(&b'\n') => continued_line(text, at, 3),
            _ => None,
        },
        _ => {
            let char = rest.chars().next()?;
            is_invisible(char).then_some((char.len_utf8(), None))
        }
    }
}

/// The replacement of a decoded code point; `None` if it is not decoded.
fn replaced(code: u32) -> Option<Option<char>> {
    let char = char::from_u32(code)?;
    match char {
        ' '..='~' => Some(Some(char)),
        char if is_invisible(char) => Some(None),
        _ => None,
    }
}

fn is_invisible(char: char) -> bool {
    matches!(char, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
}

/// The length of a terminal sequence after its escape character, if it selects a colour or erases a line.
fn colour(rest: &str) -> Option<usize> {
    let parameters = rest.strip_prefix('[')?;
    let length = parameters
        .bytes()
        .take_while(|byte| byte.is_ascii_digit() || b";:".contains(byte))
        .count();
    matches!(parameters.as_bytes().get(length), Some(b'm' | b'K')).then_some(length + 2)
}

/// The length of a terminal sequence whose escape character is written as in source code.
fn written_colour(rest: &str) -> Option<usize> {
    WRITTEN_ESC
        .iter()
        .find_map(|esc| Some(esc.len() + colour(rest.strip_prefix(esc)?)?))
}

/// The length of an entity after its `&`, and its character.
fn entity(rest: &str) -> Option<(usize, Option<char>)> {
    let Some(number) = rest.strip_prefix('#') else {
        return ENTITIES
            .iter()
            .find(|(name, _)| rest.starts_with(name))
            .map(|(name, char)| (name.len(), *char));
    };
    let (digits, radix) = number
        .strip_prefix(['x', 'X'])
        .map_or((number, 10), |digits| (digits, 16));
    let length = digits
        .bytes()
        .take(8)
        .take_while(u8::is_ascii_hexdigit)
        .count();
    let is_closed = digits.as_bytes().get(length) == Some(&b';');
    let char = replaced(u32::from_str_radix(&digits[..length], radix).ok()?)?;
    is_closed.then_some((rest.len() - digits.len() + length + 1, char))
}

/// A backslash at the end of a line, if a word continues after it.
fn continued_line(text: &str, at: usize, length: usize) -> Option<(usize, Option<char>)> {
    let is_word =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_graphic() && *byte != b'\\');
    let bytes = text.as_bytes();
    (at > 0 && is_word(bytes.get(at - 1)) && is_word(bytes.get(at + length)))
        .then_some((length, None))
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
    }

    #[test]
    fn other_text_is_not_normalized() {
        for text in [
            "",
            "plain",
            "100% of \u{2014} é & more \\n",
            "{% if x %}",
            "a \\\n b",
            "\u{1b}]8;;",
            "&nbsp;",
            "%e4",
        ] {
            assert!(normalized(text).is_none(), "{text}");
        }
    }
}
