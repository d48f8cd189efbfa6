//! A structural scanner over the bytes of one JSON text.
//!
//! It scans a line once and skips values that the caller does not request: strings are skipped from quote to quote, and
//! nesting takes one bit per level, so depth uses no stack. It depends on JSON only and not on Claude's shapes.
//!
//! Grammar is checked everywhere; the content of a string only if its text is returned.

use std::borrow::Cow;

use super::{
    LazyText,
    byte_masks::{BLOCK, ByteMasks},
    text,
};

/// The text of one valid JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawJson<'a>(pub &'a str);

impl RawJson<'_> {
    /// Replaces a value with invalid string contents: control characters, bad UTF-8 or bad escapes.
    pub(crate) const UNREADABLE: Self = Self("\"[unreadable: not valid JSON text]\"");
}

/// The bytes are not one JSON text, so the whole line is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InvalidJson;

/// Maximum length of a line whose UTF-8 is checked before it is read.
const MAX_EAGER_UTF8_CHECK: usize = 4096;

pub(super) type ScanResult<T> = Result<T, InvalidJson>;

#[derive(Clone, Debug)]
pub(super) struct JsonScanner<'a> {
    bytes: &'a [u8],
    /// The same bytes, if they are known to be UTF-8. Then parts of them need no further check.
    text: Option<&'a str>,
    at: usize,
}

impl<'a> JsonScanner<'a> {
    /// For bytes that are mostly skipped: strings are checked one by one.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes: bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes),
            text: None,
            at: 0,
        }
    }

    /// For a line that is read completely. Checking a short line as a whole is faster than checking each string; most
    /// of a long line is a copy that needs no check.
    pub(super) fn with_text_check(bytes: &'a [u8]) -> Self {
        let scan = Self::new(bytes);
        let text = if bytes.len() <= MAX_EAGER_UTF8_CHECK {
            simdutf8::basic::from_utf8(scan.bytes).ok()
        } else {
            None
        };
        Self { text, ..scan }
    }

    pub(super) fn from_text(text: &'a str) -> Self {
        Self {
            bytes: text.as_bytes(),
            text: Some(text),
            at: 0,
        }
    }

    /// Returns the next byte that is not white space, without consuming it.
    #[inline(always)]
    pub(super) fn peek(&mut self) -> ScanResult<u8> {
        loop {
            match self.bytes.get(self.at) {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                Some(&byte) => return Ok(byte),
                None => return Err(InvalidJson),
            }
        }
    }

    /// True if the remaining bytes are one value whose strings are all valid.
    pub(super) fn is_whole_json(&mut self) -> bool {
        let start = self.at;
        self.skip_value::<true>() == Ok(true)
            && self.end().is_ok()
            && (self.text.is_some() || simdutf8::basic::from_utf8(&self.bytes[start..]).is_ok())
    }

    /// Skips the next value. Returns the offset after it; `None` if it is not whole.
    pub(super) fn skipped_length(mut self) -> Option<usize> {
        self.skip().ok().map(|()| self.at)
    }

    /// Checks that only white space remains.
    pub(super) fn end(&mut self) -> ScanResult<()> {
        match self.peek() {
            Err(InvalidJson) => Ok(()),
            Ok(_) => Err(InvalidJson),
        }
    }

    /// Passes every field of the next value to `field`, which must consume the field's value. A value that is not an
    /// object is skipped, and the result is false.
    pub(super) fn object(
        &mut self,
        mut field: impl FnMut(&mut Self, &[u8]) -> ScanResult<()>,
    ) -> ScanResult<bool> {
        if self.peek()? != b'{' {
            self.skip()?;
            return Ok(false);
        }
        self.at += 1;
        if self.peek()? == b'}' {
            self.at += 1;
            return Ok(true);
        }
        loop {
            let key = self.key()?;
            field(self, &key)?;
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return Ok(true);
                }
                _ => return Err(InvalidJson),
            }
        }
    }

    /// Calls `item` at every element of the next value; `item` must consume the element. A value that is not an array
    /// is skipped.
    pub(super) fn array(
        &mut self,
        mut item: impl FnMut(&mut Self) -> ScanResult<()>,
    ) -> ScanResult<()> {
        if self.peek()? != b'[' {
            return self.skip();
        }
        self.at += 1;
        if self.peek()? == b']' {
            self.at += 1;
            return Ok(());
        }
        loop {
            item(self)?;
            match self.peek()? {
                b',' => self.at += 1,
                b']' => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(InvalidJson),
            }
        }
    }

    /// Moves to the value of the first field `name` of the object that starts here. Returns false if there is none.
    pub(super) fn seek(&mut self, name: &[u8]) -> ScanResult<bool> {
        if self.peek()? != b'{' {
            return Ok(false);
        }
        self.at += 1;
        if self.peek()? == b'}' {
            return Ok(false);
        }
        loop {
            if *self.key()? == *name {
                return Ok(true);
            }
            self.skip()?;
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => return Ok(false),
                _ => return Err(InvalidJson),
            }
        }
    }

    /// Reads the next value as text; `None` for any other type.
    pub(super) fn text(&mut self) -> ScanResult<Option<Cow<'a, str>>> {
        if self.peek()? != b'"' {
            self.skip()?;
            return Ok(None);
        }
        let inside = self.string::<false>()?;
        Ok(Some(self.unescape(inside)))
    }

    /// Reads the next value as text without unescaping it; `None` for any other type.
    pub(super) fn read_lazy_text(&mut self) -> ScanResult<Option<LazyText<'a>>> {
        if self.peek()? != b'"' {
            self.skip()?;
            return Ok(None);
        }
        let inside = self.string::<false>()?;
        Ok(Some(LazyText::new(
            self.escaped_text(inside),
            inside.is_escaped,
        )))
    }

    /// Reads the next value as text; `None` for an empty text and for any other type.
    pub(super) fn non_empty_text(&mut self) -> ScanResult<Option<Cow<'a, str>>> {
        Ok(self.text()?.filter(|text| !text.is_empty()))
    }

    /// Reads the next value as a boolean; `None` for any other type.
    pub(super) fn boolean(&mut self) -> ScanResult<Option<bool>> {
        let first = self.peek()?;
        self.skip()?;
        Ok(match first {
            b't' => Some(true),
            b'f' => Some(false),
            _ => None,
        })
    }

    /// Reads the next value as a number; `None` for any other type.
    pub(super) fn float(&mut self) -> ScanResult<Option<f64>> {
        if !matches!(self.peek()?, b'-' | b'0'..=b'9') {
            self.skip()?;
            return Ok(None);
        }
        let digits = std::str::from_utf8(self.number()?).unwrap_or_default();
        Ok(digits
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite()))
    }

    /// Reads the next value as a count. Fractions are cut; negative numbers and other types yield `None`.
    pub(super) fn count(&mut self) -> ScanResult<Option<u64>> {
        if !matches!(self.peek()?, b'-' | b'0'..=b'9') {
            self.skip()?;
            return Ok(None);
        }
        let number = self.number()?;
        if number.len() < 19 && number.iter().all(u8::is_ascii_digit) {
            return Ok(Some(
                number
                    .iter()
                    .fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')),
            ));
        }
        let digits = std::str::from_utf8(number).unwrap_or_default();
        let whole = digits.parse::<u64>().ok();
        Ok(whole.or_else(|| {
            digits
                .parse::<f64>()
                .ok()
                .filter(|number| (0.0..1e18).contains(number))
                .map(|n| n as u64)
        }))
    }

    /// Reads the next value as raw JSON, completely checked; `None` for null. A value with valid structure but invalid
    /// string contents yields [`RawJson::UNREADABLE`].
    pub(super) fn raw(&mut self) -> ScanResult<Option<RawJson<'a>>> {
        self.peek()?;
        let start = self.at;
        let clean = self.skip_value::<true>()?;
        let span = &self.bytes[start..self.at];
        if span == b"null" {
            return Ok(None);
        }
        let text = match self.text {
            Some(text) => text.get(start..self.at),
            None => simdutf8::basic::from_utf8(span).ok(),
        };
        Ok(Some(
            text.filter(|_| clean).map_or(RawJson::UNREADABLE, RawJson),
        ))
    }

    pub(super) fn skip(&mut self) -> ScanResult<()> {
        self.skip_value::<false>().map(drop)
    }

    /// Skips the next value. With `CHECK`, returns whether the contents of all its strings are valid, too.
    fn skip_value<const CHECK: bool>(&mut self) -> ScanResult<bool> {
        let mut clean = true;
        let mut nest = NestingStack::default();
        loop {
            match self.peek()? {
                b'"' => {
                    clean &= self.string::<CHECK>()?.is_valid;
                }
                b'{' => {
                    self.at += 1;
                    if self.peek()? != b'}' {
                        clean &= self.skip_key::<CHECK>()?;
                        nest.push(true);
                        continue;
                    }
                    self.at += 1;
                }
                b'[' => {
                    self.at += 1;
                    if self.peek()? != b']' {
                        nest.push(false);
                        continue;
                    }
                    self.at += 1;
                }
                b't' => self.literal(b"true")?,
                b'f' => self.literal(b"false")?,
                b'n' => self.literal(b"null")?,
                b'-' | b'0'..=b'9' => drop(self.number()?),
                _ => return Err(InvalidJson),
            }
            loop {
                let Some(in_object) = nest.top() else {
                    return Ok(clean);
                };
                match (self.peek()?, in_object) {
                    (b',', true) => {
                        self.at += 1;
                        clean &= self.skip_key::<CHECK>()?;
                        break;
                    }
                    (b',', false) => {
                        self.at += 1;
                        break;
                    }
                    (b'}', true) | (b']', false) => {
                        self.at += 1;
                        nest.pop();
                    }
                    _ => return Err(InvalidJson),
                }
            }
        }
    }

    /// Reads a key and its colon.
    #[inline(always)]
    fn key(&mut self) -> ScanResult<Cow<'a, [u8]>> {
        if self.peek()? != b'"' {
            return Err(InvalidJson);
        }
        let inside = self.string::<false>()?;
        self.colon()?;
        Ok(if inside.is_escaped {
            Cow::Owned(self.unescape(inside).into_owned().into_bytes())
        } else {
            Cow::Borrowed(inside.bytes)
        })
    }

    fn skip_key<const CHECK: bool>(&mut self) -> ScanResult<bool> {
        if self.peek()? != b'"' {
            return Err(InvalidJson);
        }
        let inside = self.string::<CHECK>()?;
        self.colon()?;
        Ok(inside.is_valid)
    }

    #[inline]
    fn colon(&mut self) -> ScanResult<()> {
        if self.peek()? != b':' {
            return Err(InvalidJson);
        }
        self.at += 1;
        Ok(())
    }

    /// Returns the text of a string.
    #[inline]
    fn unescape(&self, inside: StringContent<'a>) -> Cow<'a, str> {
        let plain = self.escaped_text(inside);
        if inside.is_escaped {
            text::unescape(plain)
        } else {
            plain
        }
    }

    /// Returns the text between the quotes, still escaped.
    #[inline]
    fn escaped_text(&self, inside: StringContent<'a>) -> Cow<'a, str> {
        match self
            .text
            .and_then(|text| text.get(inside.start..inside.start + inside.bytes.len()))
        {
            Some(text) => Cow::Borrowed(text),
            None => text::decode_utf8_lossy(inside.bytes),
        }
    }

    /// Reads the string whose quote is at the current position. With `CHECK`, its content is checked, too.
    #[inline(always)]
    fn string<const CHECK: bool>(&mut self) -> ScanResult<StringContent<'a>> {
        let start = self.at + 1;
        if let Some(lane) = self.bytes.get(start..).and_then(|rest| rest.first_chunk()) {
            let bits = ByteMasks::from_lane(lane);
            if bits.quotes != 0 && bits.backslashes == 0 {
                let length = bits.quotes.trailing_zeros();
                let clean = !CHECK || bits.controls & ((1 << length) - 1) == 0;
                let end = start + length as usize;
                self.at = end + 1;
                return Ok(StringContent {
                    bytes: &self.bytes[start..end],
                    start,
                    is_escaped: false,
                    is_valid: clean,
                });
            }
        }
        self.long_string::<CHECK>(start)
    }

    #[inline(never)]
    fn long_string<const CHECK: bool>(&mut self, start: usize) -> ScanResult<StringContent<'a>> {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            #[expect(
                unsafe_code,
                reason = "a call of a function with a target feature; AVX2 was detected"
            )]
            // SAFETY: the processor has AVX2.
            return unsafe { self.long_string_avx2::<CHECK>(start) };
        }
        self.scan_string::<CHECK>(start, ByteMasks::from_bytes_at)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn long_string_avx2<const CHECK: bool>(
        &mut self,
        start: usize,
    ) -> ScanResult<StringContent<'a>> {
        self.scan_string::<CHECK>(start, |bytes, at| ByteMasks::from_bytes_at_avx2(bytes, at))
    }

    /// Reads the string that begins at `start`, block by block.
    #[inline(always)]
    fn scan_string<const CHECK: bool>(
        &mut self,
        start: usize,
        masks_at: impl Fn(&[u8], usize) -> ByteMasks,
    ) -> ScanResult<StringContent<'a>> {
        let (mut at, mut carry, mut is_escaped, mut clean) = (start, false, false, true);
        while at < self.bytes.len() {
            let bits = masks_at(self.bytes, at);
            let escaped = bits.escaped(&mut carry);
            is_escaped |= bits.backslashes != 0;
            let quotes = bits.quotes & !escaped;
            // All bits below the closing quote; all bits without one.
            let inside = (quotes & quotes.wrapping_neg()).wrapping_sub(1);
            if CHECK {
                clean = clean
                    && bits.controls & inside == 0
                    && self.are_escapes(at, escaped & inside & !bits.common_escapes());
            }
            if quotes != 0 {
                let end = at + quotes.trailing_zeros() as usize;
                self.at = end + 1;
                return Ok(StringContent {
                    bytes: &self.bytes[start..end],
                    start,
                    is_escaped,
                    is_valid: clean,
                });
            }
            at += BLOCK;
        }
        Err(InvalidJson)
    }

    /// Whether the characters at these bits of the block, each after a backslash, are valid JSON escapes.
    #[inline]
    fn are_escapes(&self, block: usize, mut escaped: u64) -> bool {
        let mut valid = true;
        while escaped != 0 {
            let at = block + escaped.trailing_zeros() as usize;
            let letter = self.bytes.get(at).copied().unwrap_or_default();
            valid &= SIMPLE_ESCAPES[usize::from(letter)] || self.is_unicode_escape(at);
            escaped &= escaped - 1;
        }
        valid
    }

    fn is_unicode_escape(&self, at: usize) -> bool {
        let digits = self
            .bytes
            .get(at..at + 5)
            .and_then(|escape| escape.strip_prefix(b"u"));
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    }

    /// Skips the next value, which is most likely a copy of `twin`. Comparing is much faster than scanning.
    pub(super) fn skip_expecting(&mut self, twin: Option<RawJson<'_>>) -> ScanResult<()> {
        self.peek()?;
        match twin {
            // A number could continue after the copy; values with closing delimiters cannot.
            Some(RawJson(twin))
                if twin.starts_with(['"', '[', '{'])
                    && self.bytes[self.at..].starts_with(twin.as_bytes()) =>
            {
                self.at += twin.len();
                Ok(())
            }
            _ => self.skip(),
        }
    }

    fn literal(&mut self, word: &[u8]) -> ScanResult<()> {
        if !self.bytes[self.at..].starts_with(word) {
            return Err(InvalidJson);
        }
        self.at += word.len();
        Ok(())
    }

    /// Reads a number by JSON's grammar.
    fn number(&mut self) -> ScanResult<&'a [u8]> {
        let start = self.at;
        self.consume_any(b"-");
        if !self.consume_any(b"0") && self.digits() == 0 {
            return Err(InvalidJson);
        }
        if self.consume_any(b".") && self.digits() == 0 {
            return Err(InvalidJson);
        }
        if self.consume_any(b"eE") {
            self.consume_any(b"+-");
            if self.digits() == 0 {
                return Err(InvalidJson);
            }
        }
        Ok(&self.bytes[start..self.at])
    }

    fn consume_any(&mut self, any: &[u8]) -> bool {
        let found = self
            .bytes
            .get(self.at)
            .is_some_and(|byte| any.contains(byte));
        self.at += usize::from(found);
        found
    }

    fn digits(&mut self) -> usize {
        let count = self.bytes[self.at..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        self.at += count;
        count
    }
}

/// Letters that form a complete escape with a backslash.
const SIMPLE_ESCAPES: [bool; 256] = {
    let (letters, mut table, mut index) = (b"\"\\/bfnrt", [false; 256], 0);
    while index < letters.len() {
        table[letters[index] as usize] = true;
        index += 1;
    }
    table
};

/// The containers that enclose a position: one bit per level, set for objects. The innermost 64 levels need no
/// allocation.
#[derive(Debug, Default)]
struct NestingStack {
    depth: usize,
    bits: u64,
    outer: Vec<u64>,
}

impl NestingStack {
    fn push(&mut self, object: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.outer.push(self.bits);
        }
        self.bits = self.bits << 1 | u64::from(object);
        self.depth += 1;
    }

    fn top(&self) -> Option<bool> {
        (self.depth > 0).then_some(self.bits & 1 == 1)
    }

    fn pop(&mut self) {
        self.depth -= 1;
        self.bits >>= 1;
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.bits = self.outer.pop().unwrap_or_default();
        }
    }
}

/// The content between the quotes of a string.
#[derive(Clone, Copy, Debug)]
struct StringContent<'a> {
    bytes: &'a [u8],
    /// Offset of the first byte.
    start: usize,
    /// True if it may contain escapes.
    is_escaped: bool,
    /// True without control characters and unknown escapes, if that was checked. UTF-8 is checked elsewhere.
    is_valid: bool,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn strings_are_the_same_with_and_without_avx2(inside in r#"([a-zé\t]{0,70}|\\\\|\\"|\\n|\\u00e9|\\q){0,9}"?"#) {
            let json = format!("{inside}\",");
            let scan = JsonScanner::new(json.as_bytes());
            let (mut fast, mut portable) = (scan.clone(), scan);
            let found = fast.long_string::<true>(0).map(|found| (found.bytes, found.is_escaped, found.is_valid));
            let expected = portable.scan_string::<true>(0, ByteMasks::from_bytes_at);
            prop_assert_eq!(found, expected.map(|found| (found.bytes, found.is_escaped, found.is_valid)));
            prop_assert_eq!(fast.at, portable.at);
        }
    }
}
