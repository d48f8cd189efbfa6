//! Unescapes the content of JSON strings, and converts text to strict JSON. It repairs invalid text instead of failing.

use std::borrow::Cow;

use memchr::memchr;

use super::byte_masks::{BLOCK, ByteMasks};

/// Returns the text of a string, given the bytes between its quotes. Without escapes it is borrowed. Lone surrogates
/// and unknown escapes become U+FFFD.
pub(super) fn unescape(plain: Cow<'_, str>) -> Cow<'_, str> {
    let bytes = plain.as_bytes();
    let (mut out, mut done) = (String::new(), 0);
    for block in (0..bytes.len()).step_by(BLOCK) {
        let mut backslashes = ByteMasks::from_bytes_at(bytes, block).backslashes;
        while backslashes != 0 {
            let at = block + backslashes.trailing_zeros() as usize;
            backslashes &= backslashes - 1;
            // The second half of an escape is not an escape itself.
            if at < done {
                continue;
            }
            if done == 0 {
                out.reserve(bytes.len());
            }
            let letter = bytes.get(at + 1).copied().unwrap_or_default();
            let (decoded, length) = match SIMPLE_ESCAPE_BYTES[usize::from(letter)] {
                0 => escape(&plain[at + 1..]),
                byte => (char::from(byte), 1),
            };
            out.push_str(&plain[done..at]);
            out.push(decoded);
            done = at + 1 + length;
        }
    }
    if done == 0 {
        return plain;
    }
    out.push_str(&plain[done..]);
    Cow::Owned(out)
}

/// Returns a position near `most` bytes at which `inside` can be cut without splitting an escape.
pub(super) fn escape_boundary(inside: &str, most: usize) -> usize {
    let end = (0..=most.min(inside.len()))
        .rev()
        .find(|end| inside.is_char_boundary(*end))
        .unwrap_or(0);
    let mut at = 0;
    while let Some(offset) = inside
        .as_bytes()
        .get(at..end)
        .and_then(|rest| memchr(b'\\', rest))
    {
        let (_, used) = escape(&inside[at + offset + 1..]);
        at += offset + 1 + used;
    }
    at.max(end)
}

/// Converts bytes to text. Invalid UTF-8 becomes U+FFFD.
pub(super) fn decode_utf8_lossy(inside: &[u8]) -> Cow<'_, str> {
    match simdutf8::basic::from_utf8(inside) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(inside),
    }
}

/// The byte for each letter after a backslash; zero for letters that need further parsing.
const SIMPLE_ESCAPE_BYTES: [u8; 256] = {
    let (letters, meant, mut table, mut index) =
        (b"\"\\/bfnrt", b"\"\\/\x08\x0C\n\r\t", [0; 256], 0);
    while index < letters.len() {
        table[letters[index] as usize] = meant[index];
        index += 1;
    }
    table
};

/// Returns the character of an escape, and its length after the backslash.
fn escape(rest: &str) -> (char, usize) {
    match rest.as_bytes().first() {
        Some(b'u') => unicode(&rest[1..]),
        Some(letter) if SIMPLE_ESCAPE_BYTES[usize::from(*letter)] != 0 => {
            (char::from(SIMPLE_ESCAPE_BYTES[usize::from(*letter)]), 1)
        }
        _ => (
            char::REPLACEMENT_CHARACTER,
            rest.chars().next().map_or(0, char::len_utf8),
        ),
    }
}

/// Returns the character of `\u`, which may use the next escape as its second half.
fn unicode(rest: &str) -> (char, usize) {
    let Some(first) = hex(rest) else {
        return (char::REPLACEMENT_CHARACTER, 1);
    };
    if let Some(character) = char::from_u32(first) {
        return (character, 5);
    }
    let second = rest
        .get(4..6)
        .filter(|mark| *mark == "\\u")
        .and_then(|_| hex(&rest[6..]));
    match second {
        Some(low @ 0xDC00..=0xDFFF) if first < 0xDC00 => {
            let pair = 0x1_0000 + ((first - 0xD800) << 10) + (low - 0xDC00);
            (
                char::from_u32(pair).unwrap_or(char::REPLACEMENT_CHARACTER),
                11,
            )
        }
        _ => (char::REPLACEMENT_CHARACTER, 5),
    }
}

fn hex(rest: &str) -> Option<u32> {
    let digits = rest
        .get(..4)
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u32::from_str_radix(digits, 16).ok()
}

/// Replaces the lone surrogates in a JSON text, for parsers that reject them.
pub(super) fn replace_lone_surrogates(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut done = 0;
    while let Some(offset) = memchr(b'\\', &json.as_bytes()[done..]) {
        let at = done + offset;
        let (decoded, used) = escape(&json[at + 1..]);
        out.push_str(&json[done..at]);
        done = at + 1 + used;
        match decoded {
            char::REPLACEMENT_CHARACTER => out.push(decoded),
            _ => out.push_str(&json[at..done]),
        }
    }
    out.push_str(&json[done..]);
    out
}
