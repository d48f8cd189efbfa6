//! KTX's own records as sources: tool transcripts and memory-flow replays, converted to a tape.
//!
//! They are converted once, when they are opened, to an unnamed temporary file; from there on they are read, searched
//! and stepped through like any other tape. Facts that KTX does not record are not invented.

use std::{
    fs::File,
    io::{self, BufWriter, Write as _},
};

use jiff::Timestamp;

use super::{
    detect::{InputFormat, UnsupportedInput},
    error::OpenError,
};
use crate::tape::{EntryBody, Millis, Note, Seq, TapeEntry, note::Severity};

mod memory_flow;
mod transcript;

/// Maximum size of a memory-flow replay; those of KTX have some kilobytes.
const LARGEST: u64 = 64 << 20;

/// A record of KTX as a tape.
#[derive(Debug)]
pub(super) struct ConvertedRecord {
    /// The tape, with its length in bytes.
    pub(super) tape: (File, u64),
    /// Wall-clock time of the first entry, if the record has times.
    pub(super) began: Option<Timestamp>,
}

/// Converts the KTX record in the first `length` bytes of `file`.
///
/// # Errors
///
/// If it cannot be read, or turns out not to be a KTX record.
pub(super) fn convert(file: &File, length: u64, name: &str, format: InputFormat) -> Result<ConvertedRecord, OpenError> {
    let failed = |error: io::Error| OpenError::from_io(name, &error);
    let mut tape = TapeBuilder::new(tempfile::tempfile().map_err(failed)?);
    let began = match format {
        InputFormat::KtxTranscript => transcript::rewrite(file, length, &mut tape).map_err(failed)?,
        _ if length > LARGEST => {
            let refusal = UnsupportedInput::TooLarge { what: format.description(), most: LARGEST >> 20 };
            return Err(OpenError::Unsupported { name: name.to_owned(), refusal });
        }
        _ => memory_flow::rewrite(file, length, &mut tape).map_err(failed)?,
    };
    Ok(ConvertedRecord { tape: tape.end().map_err(failed)?, began })
}

#[derive(Debug)]
struct TapeBuilder {
    out: BufWriter<File>,
    next: Seq,
    written: u64,
    line: Vec<u8>,
}

impl TapeBuilder {
    fn new(file: File) -> Self {
        Self { out: BufWriter::new(file), next: Seq(0), written: 0, line: Vec::new() }
    }

    fn entry(&mut self, at: Millis, attempt_key: Option<(&str, u32)>, body: EntryBody<'_>) -> io::Result<()> {
        self.line.clear();
        let attempt_key = attempt_key.map(|(unit, attempt)| (unit.into(), attempt));
        TapeEntry { seq: self.next, at, attempt: attempt_key, body }.write(&mut self.line);
        self.next.0 += 1;
        self.written += self.line.len() as u64;
        self.out.write_all(&self.line)
    }

    fn note(&mut self, at: Millis, attempt_key: Option<(&str, u32)>, note: &Note) -> io::Result<()> {
        self.entry(at, attempt_key, EntryBody::Note(&note.to_json()))
    }

    fn message(
        &mut self,
        at: Millis,
        attempt_key: Option<(&str, u32)>,
        level: Severity,
        text: String,
    ) -> io::Result<()> {
        self.note(at, attempt_key, &Note::Message { level, text })
    }

    fn end(self) -> io::Result<(File, u64)> {
        let file = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok((file, self.written))
    }
}

#[cfg(test)]
mod tests;
