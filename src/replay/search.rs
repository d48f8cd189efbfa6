//! Full text search over the raw bytes of a file. It decodes nothing; its results are entry numbers.

use memchr::memmem::Finder;

use super::{file_lines::read_at, index::LineIndex};
use crate::{
    run::entry_source::{EntrySourceError, PollStatus},
    tape::Seq,
};

/// Bytes that are searched per block.
const BLOCK: u64 = 1 << 20;

/// The direction of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

/// A search text in every form in which JSON may escape it.
#[derive(Clone, Debug)]
pub(crate) struct EscapedNeedle {
    forms: Vec<Finder<'static>>,
    longest_form: u64,
}

impl EscapedNeedle {
    /// Returns `None` for an empty text. The search is literal and case-sensitive.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let escaped = serde_json::to_string(text).ok()?;
        let escaped = escaped[1..escaped.len() - 1].to_owned();
        let mut forms = vec![text.to_owned(), ascii(&escaped), escaped];
        forms.sort();
        forms.dedup();
        forms.retain(|form| !form.is_empty());
        let longest = forms.iter().map(String::len).max()? as u64;
        let forms = forms.iter().map(|form| Finder::new(form).into_owned()).collect();
        Some(Self { forms, longest_form: longest })
    }

    fn first(&self, bytes: &[u8]) -> Option<usize> {
        self.forms.iter().filter_map(|form| form.find(bytes)).min()
    }

    fn last(&self, bytes: &[u8]) -> Option<usize> {
        self.forms.iter().filter_map(|form| form.find_iter(bytes).last()).max()
    }
}

/// The form of writers that escape all non-ASCII characters.
fn ascii(escaped: &str) -> String {
    let mut units = [0; 2];
    let mut text = String::with_capacity(escaped.len());
    for char in escaped.chars() {
        if char.is_ascii() {
            text.push(char);
        } else {
            text.extend(char.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    text
}

impl LineIndex {
    /// Finds the nearest entry at or after `from` (backward: before `from`) that contains `needle`. `should_continue` is called
    /// between blocks; if it returns false, the result is `None`.
    pub(crate) fn find(
        &self,
        needle: &EscapedNeedle,
        from: Seq,
        direction: Direction,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<Option<Seq>, EntrySourceError> {
        let (end, _) = self.file.readable_end()?;
        let Some(from) = self.offset_of(from)? else {
            return match direction {
                Direction::Forward => Ok(None),
                Direction::Backward => self.backward(needle, end, should_continue),
            };
        };
        match direction {
            Direction::Forward => self.forward(needle, from, end, should_continue),
            Direction::Backward => self.backward(needle, from, should_continue),
        }
    }

    fn forward(
        &self,
        needle: &EscapedNeedle,
        mut from: u64,
        end: u64,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<Option<Seq>, EntrySourceError> {
        let mut buffer = Vec::new();
        while from < end && should_continue() {
            let bytes = self.block(&mut buffer, from, (from + BLOCK + needle.longest_form).min(end))?;
            if let Some(hit) = needle.first(bytes) {
                return self.entry_of(from + hit as u64);
            }
            from += BLOCK;
        }
        Ok(None)
    }

    fn backward(
        &self,
        needle: &EscapedNeedle,
        mut end: u64,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<Option<Seq>, EntrySourceError> {
        let first = self.file.first_entry;
        // A match may start in one block and end in the next, but never crosses the start of the search.
        let limit = end;
        let mut buffer = Vec::new();
        while end > first && should_continue() {
            let start = end.saturating_sub(BLOCK).max(first);
            let bytes = self.block(&mut buffer, start, (end + needle.longest_form).min(limit))?;
            if let Some(hit) = needle.last(bytes) {
                return self.entry_of(start + hit as u64);
            }
            end = start;
        }
        Ok(None)
    }

    /// Reads the bytes from `start` to `end` into a buffer that every block of a search shares.
    fn block<'b>(&self, buffer: &'b mut Vec<u8>, start: u64, end: u64) -> Result<&'b [u8], EntrySourceError> {
        buffer.resize(usize::try_from(end - start).unwrap_or(usize::MAX), 0);
        let count = read_at(&self.file.file, start, buffer).map_err(|error| self.file.error(&error))?;
        Ok(&buffer[..count])
    }

    /// Returns the start of `seq`; scans ahead as far as needed. `None` if there is no such entry.
    fn offset_of(&self, seq: Seq) -> Result<Option<u64>, EntrySourceError> {
        self.scan_until(|index| index.file.line_span(seq).map(|(start, _)| start))
    }

    fn entry_of(&self, offset: u64) -> Result<Option<Seq>, EntrySourceError> {
        self.scan_until(|index| index.file.entry_at(offset))
    }

    fn scan_until<T>(&self, known: impl Fn(&Self) -> Option<T>) -> Result<Option<T>, EntrySourceError> {
        loop {
            if let Some(known) = known(self) {
                return Ok(Some(known));
            }
            if self.advance(4 * BLOCK as usize)? != PollStatus::More {
                return Ok(known(self));
            }
        }
    }
}
