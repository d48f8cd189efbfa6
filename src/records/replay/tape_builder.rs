//! Writes a tape without a header to a temporary file, for records in other formats.

use std::{
    fs::File,
    io::{self, BufWriter, Write as _},
};

use ingestdeck_core::tape::{EntryBody, Millis, Note, Seq, TapeEntry, note::Severity};

/// A tape that is being written.
#[derive(Debug)]
pub(super) struct TapeBuilder {
    out: BufWriter<File>,
    next: Seq,
    written: u64,
    line: Vec<u8>,
}

impl TapeBuilder {
    pub(super) fn new(file: File) -> Self {
        Self {
            out: BufWriter::new(file),
            next: Seq(0),
            written: 0,
            line: Vec::new(),
        }
    }

    pub(super) fn entry(
        &mut self,
        at: Millis,
        attempt_key: Option<(&str, u32)>,
        body: EntryBody<'_>,
    ) -> io::Result<()> {
        self.line.clear();
        let attempt_key = attempt_key.map(|(unit, attempt)| (unit.into(), attempt));
        TapeEntry {
            seq: self.next,
            at,
            attempt: attempt_key,
            body,
        }
        .write(&mut self.line);
        self.next.0 += 1;
        self.written += self.line.len() as u64;
        self.out.write_all(&self.line)
    }

    pub(super) fn note(
        &mut self,
        at: Millis,
        attempt_key: Option<(&str, u32)>,
        note: &Note,
    ) -> io::Result<()> {
        self.entry(at, attempt_key, EntryBody::Note(&note.to_json()))
    }

    pub(super) fn message(
        &mut self,
        at: Millis,
        attempt_key: Option<(&str, u32)>,
        level: Severity,
        text: String,
    ) -> io::Result<()> {
        self.note(at, attempt_key, &Note::Message { level, text })
    }

    /// Number of bytes of the entries so far.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Number of entries so far.
    pub(super) fn next_seq(&self) -> Seq {
        self.next
    }

    /// The file that is written.
    pub(super) fn file(&self) -> &File {
        self.out.get_ref()
    }

    /// Passes the entries so far to the file.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// The file and its length in bytes.
    pub(super) fn end(self) -> io::Result<(File, u64)> {
        let file = self
            .out
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        Ok((file, self.written))
    }
}
