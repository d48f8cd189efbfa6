//! Splits long texts into pages that fit into one answer, with a hint for the next page.

use serde_json::Value;

use super::MAX_ANSWER_CHARS;

/// Longest page in characters. The rest of the answer is for notes about the page.
const MAX_PAGE_CHARS: usize = MAX_ANSWER_CHARS - 600;

/// One page of a text.
pub(super) struct LinePage {
    /// The lines, each with a line break.
    pub(super) text: String,
    /// Number of the last line shown, counted from 1.
    pub(super) last_line: usize,
    /// Length of the first line in characters, if it does not fit and is truncated.
    first_line_chars: Option<usize>,
}

/// Lines `start` to `end` of `lines` (from 1, inclusive), up to the limit.
pub(super) fn paginate(lines: &[&str], start: usize, end: usize) -> LinePage {
    let mut page = LinePage {
        text: String::new(),
        last_line: start - 1,
        first_line_chars: None,
    };
    let mut used = 0;
    for line in lines.get(start - 1..end).unwrap_or_default() {
        let length = line.chars().count() + 1;
        if used + length > MAX_PAGE_CHARS {
            if page.last_line < start {
                // Not even one line fits: show its beginning, because otherwise the reader could not continue.
                page.text.extend(line.chars().take(MAX_PAGE_CHARS));
                page.text.push('\n');
                page.last_line += 1;
                page.first_line_chars = Some(length - 1);
            }
            break;
        }
        page.text.push_str(line);
        page.text.push('\n');
        used += length;
        page.last_line += 1;
    }
    page
}

impl LinePage {
    /// A note about a page of lines `start` to `end` out of `total`. The next page is read by calling `tool` with
    /// `next`.
    pub(super) fn continuation_note(
        &self,
        start: usize,
        end: usize,
        total: usize,
        tool: &str,
        next: impl FnOnce(usize) -> Value,
    ) -> Option<String> {
        let mut notes = Vec::new();
        if let Some(length) = self.first_line_chars {
            notes.push(format!(
                "line {start} has {length} characters; the first {MAX_PAGE_CHARS} are shown"
            ));
        }
        if self.last_line < end {
            let last = self.last_line;
            notes.push(format!(
                "lines {start}-{last} of {total} are shown; continue with {tool} {}",
                next(last + 1)
            ));
        }
        (!notes.is_empty()).then(|| notes.join("; "))
    }
}
