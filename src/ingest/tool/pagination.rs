//! As many lines as one answer holds, and how to get the rest.

use serde_json::Value;

use super::MAX_ANSWER_CHARS;

/// Most characters of a page; the rest of an answer is for what is said about it.
const MAX_PAGE_CHARS: usize = MAX_ANSWER_CHARS - 600;

/// Some lines of a text.
pub(super) struct LinePage {
    /// The lines, each ended.
    pub(super) text: String,
    /// The last one that is shown, counted from 1.
    pub(super) last_line: usize,
    /// Length of the first line, if not even that one fits as a whole.
    first_line_chars: Option<usize>,
}

/// Lines `start` to `end` of `lines` (from 1, included), as many as fit.
pub(super) fn paginate(lines: &[&str], start: usize, end: usize) -> LinePage {
    let mut page = LinePage { text: String::new(), last_line: start - 1, first_line_chars: None };
    let mut used = 0;
    for line in lines.get(start - 1..end).unwrap_or_default() {
        let length = line.chars().count() + 1;
        if used + length > MAX_PAGE_CHARS {
            if page.last_line < start {
                // Not even one line fits: show what does, or nobody would ever get past it.
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
    /// What to know about a page of lines `start` to `end` out of `total`; `tool` called with `next` goes on.
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
            notes.push(format!("line {start} has {length} characters; the first {MAX_PAGE_CHARS} are shown"));
        }
        if self.last_line < end {
            let last = self.last_line;
            notes.push(format!("lines {start}-{last} of {total} are shown; go on with {tool} {}", next(last + 1)));
        }
        (!notes.is_empty()).then(|| notes.join("; "))
    }
}
