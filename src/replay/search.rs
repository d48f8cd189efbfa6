//! Full text search over the raw bytes of a file. Decodes nothing; a hit is an entry.

use memchr::memmem::Finder;

use super::{file_lines::read_at, index::LineIndex};
use crate::{
    run::entry_source::{EntrySourceError, PollStatus},
    tape::Seq,
};

/// Bytes searched at once.
const BLOCK: u64 = 1 << 20;

/// Which way to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Towards the end.
    Forward,
    /// Towards the beginning.
    Backward,
}

/// A text to search for, in every form that JSON gives it.
#[derive(Clone, Debug)]
pub struct EscapedNeedle {
    forms: Vec<Finder<'static>>,
    longest_form: u64,
}

impl EscapedNeedle {
    /// `None` for an empty text. The text is matched as it is written, with its case.
    pub fn new(text: &str) -> Option<Self> {
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

/// As writers put it that escape everything beyond ASCII.
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
    /// The nearest entry at or after `from` (backward: before `from`) that holds `needle`. `go_on` is asked between
    /// blocks; when it says no, the answer is `None`.
    pub fn find(
        &self,
        needle: &EscapedNeedle,
        from: Seq,
        direction: Direction,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<Seq>, EntrySourceError> {
        let (end, _) = self.file.readable_end()?;
        let Some(from) = self.offset_of(from)? else {
            return match direction {
                Direction::Forward => Ok(None),
                Direction::Backward => self.backward(needle, end, go_on),
            };
        };
        match direction {
            Direction::Forward => self.forward(needle, from, end, go_on),
            Direction::Backward => self.backward(needle, from, go_on),
        }
    }

    fn forward(
        &self,
        needle: &EscapedNeedle,
        mut from: u64,
        end: u64,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<Seq>, EntrySourceError> {
        let mut buffer = Vec::new();
        while from < end && go_on() {
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
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<Seq>, EntrySourceError> {
        let first = self.file.first_entry;
        // A match may start in one block and end in the next, but never reaches beyond where the search began.
        let limit = end;
        let mut buffer = Vec::new();
        while end > first && go_on() {
            let start = end.saturating_sub(BLOCK).max(first);
            let bytes = self.block(&mut buffer, start, (end + needle.longest_form).min(limit))?;
            if let Some(hit) = needle.last(bytes) {
                return self.entry_of(start + hit as u64);
            }
            end = start;
        }
        Ok(None)
    }

    /// Bytes from `start` to `end`, in a buffer that every block of a search shares.
    fn block<'b>(&self, buffer: &'b mut Vec<u8>, start: u64, end: u64) -> Result<&'b [u8], EntrySourceError> {
        buffer.resize(usize::try_from(end - start).unwrap_or(usize::MAX), 0);
        let count = read_at(&self.file.file, start, buffer).map_err(|error| self.file.error(&error))?;
        Ok(&buffer[..count])
    }

    /// Where `seq` starts; looks ahead as far as needed. `None` if there is no such entry.
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
