//! Search in the entries of a file: reads blocks of lines, searches their bytes, and parses only the lines in which the
//! text occurs. Its results must be those of parsing every line.

use std::borrow::Cow;

use super::{
    super::{
        detect::InputFormat,
        file_lines::{EntrySplit, read_at},
        index::LineSpan,
        inserted_notes::LineOrNote,
    },
    FileSource, HugeLineEnds, collapse_to_line,
};
use ingestdeck_core::{
    run::{
        EntrySourceError,
        entry_search::{EntryBatch, TextMatcher},
    },
    tape::Seq,
};

/// Maximum bytes per read. Longer lines are searched in pieces of this size.
const BLOCK: u64 = 256 << 10;

/// Maximum number of lines per read between the notes of a session file.
const MAX_LINES: usize = 256;

/// Bytes between two entries up to which one read is faster than two.
const MAX_GAP: u64 = 16 << 10;

/// Size of the head of a long line in which its content begins.
const HEAD_BYTES: usize = 4096;

impl FileSource {
    /// Searches the next entries of `batch`, about `max_bytes` of them, and returns the number of bytes.
    pub(super) fn search_batch(
        &self,
        text: &TextMatcher,
        batch: &mut EntryBatch,
        max_bytes: usize,
    ) -> Result<usize, EntrySourceError> {
        let (mut buffer, mut bytes) = (Vec::new(), 0);
        while bytes < max_bytes
            && let Some(seq) = batch.remaining().first()
        {
            let seq = match self.notes.locate(*seq) {
                LineOrNote::Line(line) => Seq(line),
                LineOrNote::Note { line, number } => {
                    let content = self.notes.content(line, number);
                    batch.record(text.is_in(&content));
                    bytes += content.len();
                    continue;
                }
            };
            let entries = self.lines_of(batch.remaining());
            bytes += match self
                .core
                .adjacent_spans(&entries, BLOCK, MAX_GAP)
                .as_slice()
            {
                [] => {
                    // No such entry.
                    batch.record(false);
                    1
                }
                [long] if long.end - long.start > BLOCK => {
                    self.search_long_line(text, seq, long, batch, &mut buffer)?
                }
                spans => self.search_block(text, spans, batch, &mut buffer)?,
            };
        }
        Ok(bytes)
    }

    /// The lines of the first of these entries, up to a note.
    fn lines_of<'a>(&self, entries: &'a [Seq]) -> Cow<'a, [Seq]> {
        if self.notes.has_no_notes() {
            return Cow::Borrowed(entries);
        }
        let lines = entries
            .iter()
            .take(MAX_LINES)
            .map(|seq| self.notes.locate(*seq));
        let lines = lines.map_while(|located| match located {
            LineOrNote::Line(line) => Some(Seq(line)),
            LineOrNote::Note { .. } => None,
        });
        Cow::Owned(lines.collect())
    }

    /// Searches lines that are close to each other. Returns the number of bytes.
    fn search_block(
        &self,
        text: &TextMatcher,
        spans: &[LineSpan],
        batch: &mut EntryBatch,
        buffer: &mut Vec<u8>,
    ) -> Result<usize, EntrySourceError> {
        let (Some(first), Some(last)) = (spans.first(), spans.last()) else {
            return Ok(0);
        };
        let start = first.start;
        self.fill(buffer, start, last.end)?;
        let mut occurrence = text.find_from(buffer, 0);
        for span in spans {
            let (from, to) = ((span.start - start) as usize, (span.end - start) as usize);
            if occurrence.is_some_and(|at| at < from) {
                occurrence = text.find_from(buffer, from);
            }
            let may_match = span.is_encoded || occurrence.is_some_and(|at| at < to);
            batch.record(may_match && self.is_in_line(text, &buffer[from..to]));
        }
        Ok(buffer.len())
    }

    /// Searches the next piece of a line that is longer than a block. Returns the number of bytes.
    fn search_long_line(
        &self,
        text: &TextMatcher,
        seq: Seq,
        span: &LineSpan,
        batch: &mut EntryBatch,
        buffer: &mut Vec<u8>,
    ) -> Result<usize, EntrySourceError> {
        let Some((start, end)) = self.long_content(seq, span)? else {
            self.fill(buffer, span.start, span.end)?;
            batch.record(self.is_in_line(text, buffer));
            return Ok(buffer.len());
        };
        let from = start + batch.skip();
        // An occurrence may begin in this piece and end in the next.
        let to = end.min(from + BLOCK + text.longest_form() as u64);
        self.fill(buffer, from, to)?;
        if text.is_in(buffer) {
            batch.record(true);
        } else if to == end {
            batch.record(false);
        } else {
            batch.set_skip(batch.skip() + BLOCK);
        }
        Ok(buffer.len())
    }

    /// Offsets between which a long line contains its content. `None` if only the whole line shows this.
    fn long_content(
        &self,
        seq: Seq,
        span: &LineSpan,
    ) -> Result<Option<(u64, u64)>, EntrySourceError> {
        if span.is_encoded {
            return Ok(None);
        }
        let Some(HugeLineEnds { head, tail, length }) = self.line_ends(seq, HEAD_BYTES)? else {
            return Ok(None);
        };
        let Some(content) = self.parser.long_content(&head, &tail, length) else {
            return Ok(None);
        };
        Ok(Some((span.start + content.start, span.start + content.end)))
    }

    /// Searches the content of one line, which may be followed by blank lines.
    fn is_in_line(&self, text: &TextMatcher, line: &[u8]) -> bool {
        let flat = (self.parser.format == InputFormat::Document).then(|| collapse_to_line(line));
        let end = match self.core.split {
            EntrySplit::Lines => memchr::memchr(b'\n', line).unwrap_or(line.len()),
            EntrySplit::Whole => line.len(),
        };
        text.is_in(
            self.parser
                .parse(flat.as_deref().unwrap_or(&line[..end]))
                .content(),
        )
    }

    /// Reads the bytes from `start` to `end` into `buffer`.
    fn fill(&self, buffer: &mut Vec<u8>, start: u64, end: u64) -> Result<(), EntrySourceError> {
        let length = usize::try_from(end - start).map_err(|error| self.core.error(&error))?;
        buffer.resize(length, 0);
        let filled =
            read_at(&self.core.file, start, buffer).map_err(|error| self.core.error(&error))?;
        if filled < length {
            Err(self.core.shrunk())
        } else {
            Ok(())
        }
    }
}
