//! As many lines as one answer holds, and how to get the rest.

use serde_json::Value;

use super::LONGEST;

/// Most characters of a page; the rest of an answer is for what is said about it.
const ROOM: usize = LONGEST - 600;

/// Some lines of a text.
pub(super) struct Page {
    /// The lines, each ended.
    pub(super) text: String,
    /// The last one that is shown, counted from 1.
    pub(super) last: usize,
    /// Length of the first line, if not even that one fits as a whole.
    cut: Option<usize>,
}

/// Lines `start` to `end` of `lines` (from 1, included), as many as fit.
pub(super) fn of(lines: &[&str], start: usize, end: usize) -> Page {
    let mut page = Page { text: String::new(), last: start - 1, cut: None };
    let mut used = 0;
    for line in lines.get(start - 1..end).unwrap_or_default() {
        let length = line.chars().count() + 1;
        if used + length > ROOM {
            if page.last < start {
                // Not even one line fits: show what does, or nobody would ever get past it.
                page.text.extend(line.chars().take(ROOM));
                page.text.push('\n');
                page.last += 1;
                page.cut = Some(length - 1);
            }
            break;
        }
        page.text.push_str(line);
        page.text.push('\n');
        used += length;
        page.last += 1;
    }
    page
}

impl Page {
    /// What to know about a page of lines `start` to `end` out of `total`; `tool` called with `next` goes on.
    pub(super) fn note(
        &self,
        start: usize,
        end: usize,
        total: usize,
        tool: &str,
        next: impl FnOnce(usize) -> Value,
    ) -> Option<String> {
        let mut notes = Vec::new();
        if let Some(length) = self.cut {
            notes.push(format!("line {start} has {length} characters; the first {ROOM} are shown"));
        }
        if self.last < end {
            let last = self.last;
            notes.push(format!("lines {start}-{last} of {total} are shown; go on with {tool} {}", next(last + 1)));
        }
        (!notes.is_empty()).then(|| notes.join("; "))
    }
}
