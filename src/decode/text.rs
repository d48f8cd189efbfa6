//! The inside of JSON strings → text, and back to strict JSON. Repairs instead of failing.

use std::borrow::Cow;

use memchr::memchr;

/// Text of a string, given what stands between its quotes. Borrowed when nothing is escaped. What is no text (broken
/// UTF-8, lone surrogates, unknown escapes) becomes U+FFFD.
pub(super) fn unescape(inside: &[u8]) -> Cow<'_, str> {
    let plain = plain(inside);
    match memchr(b'\\', plain.as_bytes()) {
        None => plain,
        Some(first) => Cow::Owned(unescape_from(&plain, first)),
    }
}

/// Text of a string without escapes.
pub(super) fn plain(inside: &[u8]) -> Cow<'_, str> {
    match simdutf8::basic::from_utf8(inside) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(inside),
    }
}

fn unescape_from(plain: &str, first: usize) -> String {
    let mut out = String::with_capacity(plain.len());
    let (mut done, mut next) = (0, Some(first));
    while let Some(at) = next {
        out.push_str(&plain[done..at]);
        let rest = &plain[at + 1..];
        let (decoded, used) = escape(rest);
        out.push(decoded);
        done = at + 1 + used;
        next = memchr(b'\\', &plain.as_bytes()[done..]).map(|offset| done + offset);
    }
    out.push_str(&plain[done..]);
    out
}

/// The character of an escape, and its length after the backslash.
fn escape(rest: &str) -> (char, usize) {
    let Some(letter) = rest.chars().next() else { return (char::REPLACEMENT_CHARACTER, 0) };
    let decoded = match letter {
        '"' | '\\' | '/' => letter,
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'u' => return unicode(&rest[1..]),
        _ => char::REPLACEMENT_CHARACTER,
    };
    (decoded, letter.len_utf8())
}

/// The character of `\u`, which may take the next escape as its second half.
fn unicode(rest: &str) -> (char, usize) {
    let Some(first) = hex(rest) else { return (char::REPLACEMENT_CHARACTER, 1) };
    if let Some(character) = char::from_u32(first) {
        return (character, 5);
    }
    let second = rest.get(4..6).filter(|mark| *mark == "\\u").and_then(|_| hex(&rest[6..]));
    match second {
        Some(low @ 0xDC00..=0xDFFF) if first < 0xDC00 => {
            let pair = 0x1_0000 + ((first - 0xD800) << 10) + (low - 0xDC00);
            (char::from_u32(pair).unwrap_or(char::REPLACEMENT_CHARACTER), 11)
        }
        _ => (char::REPLACEMENT_CHARACTER, 5),
    }
}

fn hex(rest: &str) -> Option<u32> {
    let digits = rest.get(..4).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u32::from_str_radix(digits, 16).ok()
}

/// A JSON text with its lone surrogates replaced, for parsers that refuse them.
pub(super) fn mend(json: &str) -> String {
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
