//! Makes lines of a transcript that others have re-written or damaged: lists and values that are laid out over several
//! lines, UTF-16, records that share a line, and records after zero bytes or within a damaged one.
//!
//! A record that is whole is never changed except for the line breaks of its layout; what cannot be read remains as a
//! separate line. It must not interpret records.

use std::{
    fs::File,
    io::{self, Write as _},
};

use ingestdeck_core::decode::line_fields::{line_fields, value_length};

use super::file_lines::read_range;

/// Size of a file up to which its lines are checked.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// How often the bytes of a damaged line may be read in search of a record.
const MAX_SEARCHES: usize = 64;

/// A file of whole lines that replaces another one.
#[derive(Debug)]
pub(super) struct RepairedFile {
    pub(super) file: File,
    pub(super) length: u64,
    /// Number of records that would have been lost.
    pub(super) recovered: u64,
}

impl RepairedFile {
    /// The content of the file.
    pub(super) fn content(&self) -> io::Result<Vec<u8>> {
        read_range(
            &self.file,
            0,
            usize::try_from(self.length).unwrap_or(usize::MAX),
        )
    }
}

/// The lines of a text.
#[derive(Debug, Default, PartialEq, Eq)]
struct RepairedText {
    text: Vec<u8>,
    recovered: u64,
}

/// Repairs a file that does not grow; `None` if all of its lines are whole, or it is too large.
pub(super) fn repair_file(file: &File, length: u64) -> io::Result<Option<RepairedFile>> {
    if length > MAX_FILE_BYTES {
        return Ok(None);
    }
    repair_bytes(&read_range(
        file,
        0,
        usize::try_from(length).unwrap_or(usize::MAX),
    )?)
}

/// Like [`repair_file`], for the content of a file.
pub(super) fn repair_bytes(bytes: &[u8]) -> io::Result<Option<RepairedFile>> {
    let decoded = decode_utf16(bytes);
    let repaired = match (repair(decoded.as_deref().unwrap_or(bytes)), decoded) {
        (Some(repaired), _) => repaired,
        (None, Some(text)) => RepairedText { text, recovered: 0 },
        (None, None) => return Ok(None),
    };
    let mut file = tempfile::tempfile()?;
    file.write_all(&repaired.text)?;
    Ok(Some(RepairedFile {
        file,
        length: repaired.text.len() as u64,
        recovered: repaired.recovered,
    }))
}

/// Converts UTF-16, which begins with a byte order mark or with an ASCII character; `None` for other text.
fn decode_utf16(bytes: &[u8]) -> Option<Vec<u8>> {
    let (is_little, start) = match bytes {
        [0xFF, 0xFE, ..] => (true, 2),
        [0xFE, 0xFF, ..] => (false, 2),
        [1..0x80, 0, 1..0x80, 0, ..] => (true, 0),
        [0, 1..0x80, 0, 1..0x80, ..] => (false, 0),
        _ => return None,
    };
    let units = bytes[start..].chunks_exact(2).map(|pair| match pair {
        [first, second] if is_little => u16::from_le_bytes([*first, *second]),
        [first, second] => u16::from_be_bytes([*first, *second]),
        _ => 0,
    });
    let chars = char::decode_utf16(units);
    let text: String = chars
        .map(|char| char.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect();
    Some(text.into_bytes())
}

/// The text with one record a line; `None` if it has that form.
fn repair(text: &[u8]) -> Option<RepairedText> {
    let mut repair = LineRepair {
        text,
        at: 0,
        out: None,
        recovered: 0,
        is_list: false,
    };
    while repair.at < text.len() {
        repair.next_line();
    }
    Some(RepairedText {
        text: repair.out?,
        recovered: repair.recovered,
    })
}

/// The position in a text that is repaired.
struct LineRepair<'a> {
    text: &'a [u8],
    at: usize,
    /// The lines so far, once they differ from the text.
    out: Option<Vec<u8>>,
    recovered: u64,
    /// The records are elements of a list.
    is_list: bool,
}

impl LineRepair<'_> {
    fn next_line(&mut self) {
        let (start, end) = (self.at, line_end(self.text, self.at));
        let line = &self.text[start..end];
        let after = (end + 1).min(self.text.len());
        let trimmed = line.trim_ascii();
        let is_list = trimmed.first() == Some(&b'[');
        if trimmed.is_empty() && self.out.is_some() {
            self.at = after;
            return;
        }
        if trimmed.is_empty() || !self.is_list && !is_list && is_value(trimmed) {
            self.keep(start, after);
            return;
        }
        if trimmed.iter().all(|byte| *byte == 0) {
            self.keep(start, after);
            return;
        }
        self.records(end);
    }

    /// Copies lines that need no repair.
    fn keep(&mut self, start: usize, end: usize) {
        if let Some(out) = &mut self.out {
            out.extend_from_slice(&self.text[start..end]);
        }
        self.at = end;
    }

    /// Reads what is on the line that ends at `end`: records, parts of records, or text.
    fn records(&mut self, end: usize) {
        let line_start = self.at;
        let mut begun = self.at;
        let mut is_first = true;
        loop {
            let start = self.skip_separators(begun, is_first);
            if start >= end.min(self.text.len()) {
                // Only separators remain.
                self.at = start.max(end + 1).min(self.text.len());
                self.change(line_start);
                return;
            }
            let skipped = &self.text[begun..start];
            if !is_first || self.is_list || !skipped.trim_ascii().is_empty() {
                self.change(line_start);
            }
            let rest = &self.text[start..];
            if !self.is_list && rest[0] == b'[' && is_list_of_objects(rest) {
                self.change(line_start);
                self.is_list = true;
                begun = start + 1;
                is_first = true;
                if begun >= end {
                    self.at = begun.max((end + 1).min(self.text.len()));
                    return;
                }
                continue;
            }
            let whole = matches!(rest[0], b'{' | b'[')
                .then(|| value_length(rest))
                .flatten()
                .filter(|length| start + length <= end || has_layout(rest, *length));
            match whole {
                Some(length) => {
                    self.change(line_start);
                    self.record(&self.text[start..start + length]);
                    // Records after the first, and after zero bytes, would be lost.
                    let is_damaged =
                        !self.is_list && (!is_first || self.text[begun..start].contains(&0));
                    self.recovered += u64::from(is_damaged);
                    begun = start + length;
                    is_first = false;
                    if begun > end {
                        self.at = begun;
                        return;
                    }
                }
                None => match find_record(&self.text[start..end]) {
                    Some(found) => {
                        self.change(line_start);
                        self.record(self.text[start..start + found].trim_ascii());
                        begun = start + found;
                        is_first = false;
                    }
                    None => {
                        if self.out.is_some() {
                            self.record(self.text[start..end].trim_ascii());
                        }
                        self.at = (end + 1).min(self.text.len());
                        return;
                    }
                },
            }
        }
    }

    /// The text differs from its repaired form from the line that begins at `line_start`.
    fn change(&mut self, line_start: usize) {
        if self.out.is_none() {
            self.out = Some(self.text[..line_start].to_vec());
        }
    }

    /// Adds a record as a separate line.
    fn record(&mut self, record: &[u8]) {
        let Some(out) = &mut self.out else { return };
        if out.last().is_some_and(|last| *last != b'\n') {
            out.push(b'\n');
        }
        // The strings of JSON contain no line breaks.
        out.extend(record.iter().map(|byte| match byte {
            b'\n' | b'\r' => b' ',
            byte => *byte,
        }));
        out.push(b'\n');
    }

    /// Where the next record may begin: after blanks, zero bytes, byte order marks, and the commas and brackets of a list.
    fn skip_separators(&self, mut at: usize, is_first: bool) -> usize {
        while let Some(byte) = self.text.get(at) {
            at += match byte {
                b' ' | b'\t' | b'\r' | 0 | 0x1E => 1,
                b'\n' if self.is_list => 1,
                b',' if self.is_list || !is_first => 1,
                b']' if self.is_list => 1,
                0xEF if self.text[at..].starts_with(b"\xEF\xBB\xBF") => 3,
                _ => return at,
            };
        }
        at
    }
}

fn line_end(text: &[u8], start: usize) -> usize {
    memchr::memchr(b'\n', &text[start..]).map_or(text.len(), |length| start + length)
}

/// True for text that is one JSON value and nothing else.
fn is_value(text: &[u8]) -> bool {
    value_length(text).is_some_and(|length| {
        let mark = if text.starts_with(b"\xEF\xBB\xBF") {
            3
        } else {
            0
        };
        mark + length == text.len()
    })
}

/// True for the beginning of a list whose first element is an object.
fn is_list_of_objects(text: &[u8]) -> bool {
    text[1..].trim_ascii_start().first() == Some(&b'{')
}

/// True for a value over several lines that is laid out, and not two halves of lines that happen to match.
fn has_layout(text: &[u8], length: usize) -> bool {
    let inner = text[..length].split(|byte| *byte == b'\n').skip(1);
    inner
        .filter_map(|line| line.trim_ascii_start().first())
        .all(|first| {
            matches!(
                first,
                b'"' | b'{' | b'}' | b'[' | b']' | b't' | b'f' | b'n' | b'-' | b'0'
                    ..=b'9' | b',' | b':'
            )
        })
}

/// Where a whole record begins within a damaged line.
fn find_record(line: &[u8]) -> Option<usize> {
    let mut budget = line.len().saturating_mul(MAX_SEARCHES);
    let mut at = 1;
    while let Some(found) = memchr::memchr(b'{', line.get(at..)?) {
        at += found;
        let rest = &line[at..];
        let length = (rest[1..].trim_ascii_start().first() == Some(&b'"'))
            .then(|| value_length(rest))
            .flatten();
        budget = budget.checked_sub(length.unwrap_or(rest.len()))?;
        if let Some(length) = length {
            let fields = line_fields(&rest[..length]);
            // Blocks of a message have a type, too.
            let is_linked = fields.is_stream || fields.is_session_file || fields.uuid.is_some();
            if fields.kind.is_some() && is_linked {
                return Some(at);
            }
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str =
        r#"{"type":"user","uuid":"1","message":{"content":[{"type":"text","text":"a{b"}]}}"#;
    const TWO: &str = r#"{"uuid":"2","type":"assistant"}"#;

    fn lines(text: &str) -> Option<(Vec<String>, u64)> {
        let RepairedText { text, recovered } = repair(text.as_bytes())?;
        let text = String::from_utf8(text).unwrap();
        Some((text.lines().map(str::to_owned).collect(), recovered))
    }

    #[test]
    fn whole_lines_are_not_changed() {
        for text in [
            String::new(),
            format!("{ONE}\n{TWO}\n"),
            format!("\u{feff}{ONE}\r\n\r\n{TWO}"),
            format!("npm warn\n[info] started\n{ONE}\nnull\n\"text\"\n"),
            format!("{ONE}\n\0\0\0\n{TWO}\n"),
            format!("{ONE}\n{{\"type\":\"assis"),
        ] {
            assert_eq!(lines(&text), None, "{text:?}");
        }
    }

    #[test]
    fn records_of_damaged_lines_are_recovered() {
        let both = |recovered| Some((vec![ONE.to_owned(), TWO.to_owned()], recovered));
        assert_eq!(lines(&format!("{ONE}{TWO}\n")), both(1));
        assert_eq!(lines(&format!("{ONE}\r{TWO}")), both(1));
        assert_eq!(lines(&format!("{ONE}\n\0\0\0{TWO}\n")), both(1));
        assert_eq!(lines(&format!("{ONE}\0\0\n{TWO}\n")), both(0));
        let cut = &ONE[..ONE.len() - 20];
        assert_eq!(
            lines(&format!("{TWO}\n{cut}{TWO}\n")),
            Some((vec![TWO.to_owned(), cut.to_owned(), TWO.to_owned()], 1))
        );
        assert_eq!(
            lines(&format!("{ONE} trailing\n")),
            Some((vec![ONE.to_owned(), "trailing".to_owned()], 0))
        );
    }

    #[test]
    fn lists_and_layouts_become_lines() {
        let both = Some((vec![ONE.to_owned(), TWO.to_owned()], 0));
        assert_eq!(lines(&format!("[{ONE},{TWO}]")), both);
        assert_eq!(lines(&format!("[\n{ONE},\n{TWO}\n]\n")), both);
        assert_eq!(
            lines(&format!("[\n{ONE},\n{TWO}\n")),
            both,
            "the end is missing"
        );
        let pretty = |line: &str| {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            serde_json::to_string_pretty(&value).unwrap()
        };
        for text in [
            format!("[\n{},\n{}\n]", pretty(ONE), pretty(TWO)),
            format!("banner\n[{},{}]", pretty(ONE), pretty(TWO)),
            format!("{}\n{}\n", pretty(ONE), pretty(TWO)),
        ] {
            let (mut lines, _) = lines(&text).unwrap();
            lines.retain(|line| line != "banner");
            let read = |line: &String| serde_json::from_str::<serde_json::Value>(line).unwrap();
            let expected: Vec<_> = [ONE, TWO].map(|line| read(&line.to_owned())).into();
            assert_eq!(
                lines.iter().map(read).collect::<Vec<_>>(),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn both_orders_of_utf_16_are_read() {
        let text = "{\"type\":\"user\",\"x\":\"é😀\"}\r\n";
        for mark in ["\u{feff}", ""] {
            let units: Vec<u16> = format!("{mark}{text}").encode_utf16().collect();
            let little: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
            let big: Vec<u8> = units.iter().flat_map(|unit| unit.to_be_bytes()).collect();
            for bytes in [little, big] {
                assert_eq!(decode_utf16(&bytes).as_deref(), Some(text.as_bytes()));
            }
        }
        assert_eq!(decode_utf16(text.as_bytes()), None);
        assert_eq!(decode_utf16(b""), None);
    }

    proptest::proptest! {
        #[test]
        fn repair_loses_no_record(pieces in proptest::collection::vec(
            proptest::sample::select(vec!["{", "}", "[", "]", ",", "\n", "\"", "\0", " ", "x", ONE, TWO, "{\"type\":"]), 0..12)
        ) {
            // Every record of the text is still in it.
            let text = pieces.concat();
            let repaired = repair(text.as_bytes()).map_or(text.clone().into_bytes(), |it| it.text);
            let count = |text: &[u8]| memchr::memmem::find_iter(text, "\"uuid\"").count();
            proptest::prop_assert_eq!(count(&repaired), count(text.as_bytes()));
        }
    }
}
