//! Private keys of several lines: PEM, OpenPGP, SSH and PuTTY, also as base64 of such a block. Pure.
//!
//! The lines of a block may be separate texts: a block without an end in one text continues in the next one.

use std::{ops::Range, sync::LazyLock};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD as BASE64};
use memchr::memmem::Finder;
use regex::bytes::{Regex, RegexBuilder};

/// A block whose end was not read yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenBlock {
    /// Lines that are read before the block is abandoned.
    lines: u32,
    is_base64: bool,
}

/// Lines of the longest block. A key of 16,384 bits has about 200.
const LINES: u32 = 400;

/// Bytes of the longest block.
const LONGEST: usize = 64 << 10;

/// Characters of base64 in a line of a block that has other text as well, such as a time.
const LONG_RUN: usize = 40;

/// Characters of the widest lines of base64, with the indentation.
const WIDEST: usize = 80;

/// The beginning of base64 of `-----BEGIN`.
const BASE64_BEGIN: &str = "LS0tLS1CRUdJTi";

/// Parts of the texts with blocks.
static MARKS: LazyLock<[Finder<'static>; 4]> =
    LazyLock::new(|| ["BEGIN ", "PuTTY-User", "PRIVATE KEY-", BASE64_BEGIN].map(Finder::new));

fn regex(pattern: &str) -> Option<Regex> {
    RegexBuilder::new(pattern).unicode(false).build().ok()
}

static BEGIN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    regex(
        "-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}|PuTTY-User-Key-File-[0-9]: [^\\n]*",
    )
});
static END: LazyLock<Option<Regex>> =
    LazyLock::new(|| regex("-{4,5} ?END [A-Z0-9 ]{0,60}-{4,5}|Private-MAC: ?[0-9a-f]*"));
/// A line of a block, with the quotes, line numbers and marks that other programs add.
static BODY: LazyLock<Option<Regex>> = LazyLock::new(|| {
    regex(
        r#"^[>|#+"', \t-]*(?:[0-9]+(?:\t|:|\||\xe2\x86\x92) *)?["']?([A-Za-z0-9+/=]+|[A-Z][A-Za-z-]{2,24}: [^\n]*)[\\nr"', \t]*$"#,
    )
});

/// Adds the ranges of blocks in `text`, which continues `open`.
pub(super) fn find(text: &str, open: &mut Option<OpenBlock>, spans: &mut Vec<Range<usize>>) {
    let mut from = 0;
    if open.is_some() {
        // The beginning of a block ends the previous one.
        let next = BEGIN
            .as_ref()
            .and_then(|begin| begin.find(text.as_bytes()))
            .map_or(text.len(), |next| next.start());
        from = continued(&text[..next], open, spans);
    }
    let [pem, putty, key, code] = &*MARKS;
    if pem.find(text.as_bytes()).is_some() || putty.find(text.as_bytes()).is_some() {
        blocks(text, from, open, spans);
    }
    if key.find(text.as_bytes()).is_some() {
        find_blocks_without_begin(text, spans);
    }
    if let Some(at) = code.find(text.as_bytes()) {
        encoded(text, at, open, spans);
    }
}

/// Adds blocks that begin in the text.
fn blocks(
    text: &str,
    mut from: usize,
    open: &mut Option<OpenBlock>,
    spans: &mut Vec<Range<usize>>,
) {
    let (Some(begin), Some(end)) = (&*BEGIN, &*END) else {
        return;
    };
    while let Some(found) = begin.find_at(text.as_bytes(), from) {
        let mut near = text.len().min(found.end() + LONGEST);
        while !text.is_char_boundary(near) {
            near -= 1;
        }
        let near = &text[..near];
        let next = begin
            .find_at(near.as_bytes(), found.end())
            .map_or(near.len(), |next| next.start());
        if let Some(end) = end.find_at(&near.as_bytes()[..next], found.end()) {
            spans.push(found.start()..end.end());
            from = end.end();
            continue;
        }
        // A block without an end has all following lines that look like a key.
        let mut block_end = found.end();
        let mut is_open = true;
        for (line, range) in lines(near, found.end()) {
            if !line.trim().is_empty() && !is_body(line) {
                is_open = false;
                break;
            }
            block_end = if line.trim().is_empty() {
                block_end
            } else {
                range.end
            };
        }
        spans.push(found.start()..block_end);
        *open = is_open.then_some(OpenBlock {
            lines: LINES,
            is_base64: false,
        });
        from = block_end;
    }
}

/// Adds blocks whose beginning is missing.
fn find_blocks_without_begin(text: &str, spans: &mut Vec<Range<usize>>) {
    let Some(end) = &*END else { return };
    for found in end
        .find_iter(text.as_bytes())
        .filter(|found| found.as_bytes().ends_with(b"PRIVATE KEY-----"))
    {
        if spans.iter().any(|span| span.contains(&found.start())) {
            continue;
        }
        let mut start = found.start();
        for number in 0..LINES {
            let before = text[..start].trim_end_matches([' ', '\t']);
            let Some(before) = before
                .strip_suffix('\n')
                .or_else(|| before.strip_suffix("\\n"))
            else {
                break;
            };
            let before = before.strip_suffix('\r').unwrap_or(before);
            let length = before
                .bytes()
                .rev()
                .take(WIDEST)
                .take_while(|byte| is_base64(*byte))
                .count();
            let line = &before[before.len() - length..];
            // An escaped line end.
            let line = if before[..before.len() - length].ends_with('\\') {
                line.get(1..).unwrap_or("")
            } else {
                line
            };
            // Only the last line is shorter than the others.
            if line.is_empty() || number > 0 && line.len() < LONG_RUN {
                break;
            }
            start = before.len() - line.len();
        }
        let has_key = text[start..found.start()]
            .split(['\n', '\\'])
            .any(|line| line.trim().len() >= LONG_RUN);
        if has_key {
            spans.push(start..found.end());
        }
    }
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/=".contains(&byte)
}

/// Adds the lines of a block that began before the text. Returns the end of the block.
fn continued(text: &str, open: &mut Option<OpenBlock>, spans: &mut Vec<Range<usize>>) -> usize {
    let end = END.as_ref().and_then(|end| end.find(text.as_bytes()));
    for (line, range) in lines(text, 0) {
        let Some(block) = open else {
            return range.start;
        };
        if let Some(end) = end.filter(|end| range.contains(&end.start())) {
            spans.push(range.start..end.end());
            *open = None;
            return end.end();
        }
        let start = range.end - line.trim_start().len();
        if is_body(line) {
            spans.push(start..range.end);
            if block.is_base64 && line.trim().len() < LONG_RUN {
                *open = None;
                continue;
            }
        } else if block.is_base64 && !line.trim().is_empty() {
            *open = None;
            continue;
        } else {
            let runs = line.split(|char: char| !char.is_ascii() || !is_base64(char as u8));
            for run in runs.filter(|run| run.len() >= LONG_RUN) {
                let at = range.start + (run.as_ptr() as usize - line.as_ptr() as usize);
                spans.push(at..at + run.len());
            }
        }
        block.lines -= 1;
        if block.lines == 0 {
            *open = None;
        }
    }
    text.len()
}

/// Adds base64 of blocks from `at` on.
fn encoded(text: &str, at: usize, open: &mut Option<OpenBlock>, spans: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    let is_code = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=_-".contains(byte);
    let mut from = at;
    while let Some(found) = memchr::memmem::find(&bytes[from..], BASE64_BEGIN.as_bytes()) {
        let start = from + found;
        let mut end = start;
        loop {
            end += bytes[end..].iter().take_while(|byte| is_code(byte)).count();
            // Base64 in lines continues after blanks if the next word is long enough.
            let blanks = bytes[end..]
                .iter()
                .take_while(|byte| byte.is_ascii_whitespace())
                .count();
            let more = bytes[end + blanks..]
                .iter()
                .take_while(|byte| is_code(byte))
                .count();
            let line = bytes[start..end]
                .iter()
                .rev()
                .take_while(|byte| is_code(byte))
                .count();
            let is_last = line >= LONG_RUN
                && text[end + blanks + more..]
                    .chars()
                    .next()
                    .is_none_or(|next| next == '\n');
            let escape = if bytes[end..].starts_with(b"\\n") {
                2
            } else {
                0
            };
            if escape > 0 {
                end += escape;
            } else if blanks > 0 && more > 0 && (more >= LONG_RUN / 2 || is_last) {
                end += blanks;
            } else {
                break;
            }
        }
        from = end;
        let head: Vec<u8> = bytes[start..end]
            .iter()
            .copied()
            .filter(u8::is_ascii_alphanumeric)
            .take(60)
            .collect();
        let head = BASE64.decode(head).unwrap_or_default();
        if !["CERTIFICATE", "PUBLIC KEY"]
            .iter()
            .any(|word| memchr::memmem::find(&head, word.as_bytes()).is_some())
        {
            spans.push(start..end);
            let line = bytes[end.saturating_sub(2 * WIDEST)..end]
                .rsplit(|byte| *byte == b'\n')
                .next()
                .unwrap_or_default()
                .len();
            if text[end..].trim().is_empty() && (60..=WIDEST).contains(&line) {
                *open = Some(OpenBlock {
                    lines: LINES,
                    is_base64: true,
                });
            }
        }
    }
}

fn is_body(line: &str) -> bool {
    BODY.as_ref()
        .is_some_and(|body| body.is_match(line.as_bytes()))
}

/// The lines from `from` on, without their ends, which may also be written as escapes.
fn lines(text: &str, from: usize) -> impl Iterator<Item = (&str, Range<usize>)> {
    let mut start = from;
    std::iter::from_fn(move || {
        let rest = text.get(start..).filter(|rest| !rest.is_empty())?;
        let real = memchr::memchr(b'\n', rest.as_bytes()).map(|at| (at, 1));
        let escaped = memchr::memmem::find(rest.as_bytes(), b"\\n").map(|at| (at, 2));
        let (end, length) = [real, escaped]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or((rest.len(), 0));
        let range = start..start + end;
        start = range.end + length;
        Some((&text[range.clone()], range))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block of that kind, its lines at the end of `before`.
    fn block(kind: &str, before: &str) -> String {
        let body = "MIIEpAIBAAKCAQEAx7Jq".repeat(3);
        format!(
            "-----BEGIN {kind}-----\n{before}{body}\n{before}{body}\n{before}c2hvcnQ=\n{before}-----END {kind}-----"
        )
    }

    fn masked(text: &str, open: &mut Option<OpenBlock>) -> String {
        let mut spans = Vec::new();
        find(text, open, &mut spans);
        spans
            .into_iter()
            .rev()
            .fold(text.to_owned(), |mut text, span| {
                text.replace_range(span, "#");
                text
            })
    }

    #[test]
    fn blocks_are_masked_whatever_is_around_them() {
        for kind in [
            "PRIVATE KEY",
            "RSA PRIVATE KEY",
            "OPENSSH PRIVATE KEY",
            "PGP PRIVATE KEY BLOCK",
            "EC PRIVATE KEY",
        ] {
            for before in ["", "    ", "> ", "  12\t"] {
                let text = format!("key: |\n{}\nnext", block(kind, before));
                assert_eq!(masked(&text, &mut None), "key: |\n#\nnext");
            }
            let one_line = block(kind, "").replace('\n', "\\n");
            assert_eq!(masked(&format!("\"{one_line}\""), &mut None), "\"#\"");
        }
        let encrypted = block("RSA PRIVATE KEY", "").replacen(
            '\n',
            "\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A\n\n",
            1,
        );
        assert_eq!(masked(&encrypted, &mut None), "#");
    }

    #[test]
    fn blocks_that_come_line_by_line_are_masked_to_their_end() {
        for text in [
            block("RSA PRIVATE KEY", ""),
            block("PGP PRIVATE KEY BLOCK", "  "),
        ] {
            let mut open = None;
            let (first, rest) = text.split_once('\n').unwrap();
            assert_eq!(masked(first, &mut open), "#");
            let left: Vec<String> = rest
                .lines()
                .map(|line| masked(line, &mut open).trim().to_owned())
                .collect();
            assert!(left.iter().all(|line| line == "#"), "{left:?}");
            assert_eq!(open, None);
            assert_eq!(masked("done", &mut open), "done");
        }
    }

    #[test]
    fn other_lines_within_an_open_block_stay() {
        let mut open = None;
        masked("-----BEGIN PRIVATE KEY-----", &mut open);
        assert_eq!(
            masked("a warning of something else", &mut open),
            "a warning of something else"
        );
        let dated = format!("12:00:01 INFO {}", "MIIE".repeat(16));
        assert_eq!(masked(&dated, &mut open), "12:00:01 INFO #");
        for _ in 0..LINES {
            masked("two words", &mut open);
        }
        assert_eq!(open, None, "given up");
    }

    #[test]
    fn base64_of_a_block_is_masked() {
        let code = BASE64.encode(block("PRIVATE KEY", ""));
        assert_eq!(
            masked(&format!("tls.key: {code}\nnext: 1"), &mut None),
            "tls.key: #\nnext: 1"
        );
        let broken: Vec<&str> = (0..code.len())
            .step_by(76)
            .map(|at| &code[at..code.len().min(at + 76)])
            .collect();
        assert_eq!(masked(&broken.join("\n  "), &mut None), "#");
        let mut open = None;
        assert!(broken.iter().all(|line| masked(line, &mut open) == "#"));
        let public = BASE64.encode("-----BEGIN CERTIFICATE-----\nMIIB");
        assert_eq!(masked(&public, &mut None), public);
    }

    #[test]
    fn blocks_without_a_beginning_are_masked() {
        let body = "MIIEpAIBAAKCAQEAx7Jq".repeat(3);
        for newline in ["\n", "\r\n", "\\n", "\n  "] {
            let text = [
                "so:",
                &body,
                &body,
                "c2g=",
                "-----END RSA PRIVATE KEY-----",
                "x",
            ]
            .join(newline);
            assert_eq!(masked(&text, &mut None), format!("so:{newline}#{newline}x"));
        }
        let text = "a line\n-----END PRIVATE KEY-----";
        assert_eq!(masked(text, &mut None), text);
    }

    #[test]
    fn words_about_keys_stay() {
        for text in [
            "a file that begins with -----BEGIN CERTIFICATE-----\nMIIB",
            "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
            "BEGIN TRANSACTION; END",
        ] {
            assert_eq!(masked(text, &mut None), text);
        }
    }
}
