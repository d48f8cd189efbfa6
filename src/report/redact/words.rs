//! Long words: tokens that were broken over several lines, and base64 of a text. Pure.

use std::ops::Range;

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

use super::normalize::AssembledText;

/// Fewer characters of base64 hold no secret that has a shape.
const SHORTEST_CODE: usize = 24;

/// Characters at the beginning of a base64 word whose bytes show whether it is a text.
const PROBE: usize = 24;

/// The shortest part of a broken token on the lines after the first one.
const SHORTEST_PART: usize = 8;

/// The longest part of a token on one line.
const LONGEST_PART: usize = 512;

/// The widest indentation of a line that continues a token.
const WIDEST_INDENT: usize = 40;

/// Decodes with and without padding, also if the last character has bits that belong to no byte.
const CONFIG: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, CONFIG);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, CONFIG);

/// Letters and digits, and other characters of base64 or of tokens.
const CODE: [bool; 256] = class(b"+/_-");
const TOKEN: [bool; 256] = class(b"+/_-.=~");

const fn class(others: &[u8]) -> [bool; 256] {
    let mut class = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        class[byte as usize] = byte.is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < others.len() {
        class[others[at] as usize] = true;
        at += 1;
    }
    class
}

fn is_code(byte: u8) -> bool {
    CODE[usize::from(byte)]
}

fn is_token(byte: u8) -> bool {
    TOKEN[usize::from(byte)]
}

/// The text that `code` is base64 of; `None` if it decodes to something else.
pub(super) fn decoded(code: &str) -> Option<String> {
    // These begin with a byte that begins no character of UTF-8.
    if matches!(
        code.as_bytes().first(),
        None | Some(b'g'..=b'v' | b'+' | b'/' | b'-' | b'_')
    ) {
        return None;
    }
    let engine = if code.contains(['-', '_']) {
        URL_SAFE
    } else {
        STANDARD
    };
    let mut probe = [0; PROBE / 4 * 3];
    let length = engine.decode_slice(code.get(..PROBE)?, &mut probe).ok()?;
    if !is_text(&probe[..length]) {
        return None;
    }
    // A word may be followed by characters that are not a part of it: a whole group at most is left out.
    let code = code.trim_end_matches('=');
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

/// True for bytes that are the beginning of a text.
fn is_text(bytes: &[u8]) -> bool {
    let is_readable = match std::str::from_utf8(bytes) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    };
    is_readable
        && !bytes
            .iter()
            .any(|byte| *byte < b' ' && !b"\0\t\n\r\x1b".contains(byte) || *byte == 0x7f)
}

/// The words of `text` that are long enough to be base64 of a secret.
pub(super) fn long(text: &str) -> impl Iterator<Item = Range<usize>> {
    let bytes = text.as_bytes();
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            // Every word of that length has a character at one of these places.
            let probe = from + SHORTEST_CODE - 1;
            let before = bytes
                .get(from..=probe)?
                .iter()
                .rev()
                .take_while(|byte| is_code(**byte))
                .count();
            if before < SHORTEST_CODE {
                from = probe + 1 - before;
                continue;
            }
            let length = bytes[from..]
                .iter()
                .take_while(|byte| is_code(**byte))
                .count();
            let range = from..from + length;
            from = range.end + 1;
            return Some(range);
        }
    })
}

/// The parts of a word that may be base64 by themselves: addresses and paths join it to others.
pub(super) fn candidates(text: &str, word: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let is_escaped = word.start > 0 && text.as_bytes()[word.start - 1] == b'\\';
    let after_escape = is_escaped.then(|| word.start + 1..word.end);
    let parts = text[word.clone()]
        .split('/')
        .filter(|part| part.len() >= SHORTEST_CODE);
    let start = text.as_ptr() as usize;
    let parts = parts.map(move |part| {
        let at = part.as_ptr() as usize - start;
        at..at + part.len()
    });
    let has_parts = text[word.clone()].contains('/');
    std::iter::once(word)
        .chain(after_escape)
        .chain(parts.filter(move |_| has_parts))
}

/// Words that continue at the beginning of the next line, without the line ends.
pub(super) fn broken(text: &str) -> impl Iterator<Item = AssembledText> {
    let bytes = text.as_bytes();
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let newline = from + memchr::memchr(b'\n', bytes.get(from..)?)?;
            from = newline + 1;
            let Some(mut next) = continuation(bytes, newline) else {
                continue;
            };
            let end = newline - usize::from(bytes[..newline].ends_with(b"\r"));
            let length = bytes[..end]
                .iter()
                .rev()
                .take(LONGEST_PART)
                .take_while(|byte| is_token(**byte))
                .count();
            let before = text[..end - length]
                .chars()
                .next_back()
                .map_or(0, char::len_utf8);
            let mut word = AssembledText::default();
            word.copy(text, end - length - before..end);
            loop {
                word.copy(text, next.clone());
                from = next.end;
                let newline = next.end + usize::from(bytes[next.end..].starts_with(b"\r"));
                match continuation(bytes, newline).filter(|_| bytes.get(newline) == Some(&b'\n')) {
                    Some(following) => next = following,
                    None => return Some(word),
                }
            }
        }
    })
}

/// The range of a broken word that may be base64.
pub(super) fn code(word: &str) -> Range<usize> {
    let end = word.trim_end_matches('=').len();
    let start = word[..end].rfind(|char: char| !char.is_ascii() || !is_code(char as u8));
    start.map_or(0, |start| {
        start + word[start..].chars().next().map_or(0, char::len_utf8)
    })..end
}

/// The part of a token at the beginning of the line after `newline`.
fn continuation(bytes: &[u8], newline: usize) -> Option<Range<usize>> {
    let before = bytes[..newline].iter().rev().find(|byte| **byte != b'\r')?;
    if !is_token(*before) {
        return None;
    }
    let line = bytes.get(newline + 1..)?;
    let indent = line
        .iter()
        .take(WIDEST_INDENT)
        .take_while(|byte| b" \t".contains(byte))
        .count();
    let part = &line[indent..];
    let length = part
        .iter()
        .take(LONGEST_PART)
        .take_while(|byte| is_token(**byte))
        .count();
    let part = &part[..length];
    let has = |is: fn(&u8) -> bool| part.iter().any(is);
    let is_mixed = has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic)
        || part.len() >= 2 * SHORTEST_PART
            && has(u8::is_ascii_uppercase)
            && has(u8::is_ascii_lowercase);
    let start = newline + 1 + indent;
    (length >= SHORTEST_PART && is_mixed).then_some(start..start + length)
}

/// True if what a token continues with looks so random that it is a part of it, although the part before is a token by
/// itself.
pub(super) fn is_random(part: &str) -> bool {
    let has = |is: fn(&u8) -> bool| part.as_bytes().iter().any(is);
    part.len() >= 12
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_words_are_found_at_every_place() {
        for length in [23, 24, 25, 47, 48, 100] {
            for before in 0..60 {
                let text = format!("{}{} end", "a ".repeat(before), "x".repeat(length));
                let found: Vec<_> = long(&text).collect();
                let expected = before * 2..before * 2 + length;
                assert_eq!(
                    found,
                    if length >= SHORTEST_CODE {
                        vec![expected]
                    } else {
                        vec![]
                    },
                    "{length} {before}"
                );
            }
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

    #[test]
    fn broken_words_are_joined() {
        let joined = |text: &str| broken(text).map(|word| word.text).collect::<Vec<_>>();
        assert_eq!(
            joined("key ghp_abcdEFGH\n  1234ijkl5678\r\nMNOP1234 and\nmore"),
            [" ghp_abcdEFGH1234ijkl5678MNOP1234"]
        );
        assert_eq!(
            joined("a word\nanother word\nand 12345678\nversion"),
            [""; 0]
        );
    }
}
