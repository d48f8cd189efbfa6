//! KTX's own records as sources: tool transcripts and memory-flow replays, converted to a tape.
//!
//! They are converted once, when they are opened, to an unnamed temporary file; from there on they are read, searched
//! and stepped through like any other tape. Facts that KTX does not record are not invented.

use std::{
    fs::File,
    io::{self, BufWriter, Write as _},
    sync::Arc,
};

use jiff::Timestamp;

use super::{
    detect::{DetectedInput, InputFormat, UnsupportedInput},
    error::OpenError,
    file::FileSource,
    index::FileGrowth,
};
use crate::tape::{EntryBody, Millis, Note, Seq, TapeEntry, note::Severity};

mod memory_flow;
mod transcript;

pub(super) use memory_flow::is_replay;

/// Maximum size of a memory-flow replay; those of KTX have some kilobytes.
const LARGEST: u64 = 64 << 20;

/// Converts the KTX record in the first `length` bytes of `file`.
///
/// # Errors
///
/// If it cannot be read, or turns out not to be a KTX record.
pub(super) fn open(
    file: &File,
    length: u64,
    name: String,
    stem: &str,
    detected: &DetectedInput,
) -> Result<FileSource, OpenError> {
    let failed = |error: io::Error| OpenError::from_io(&name, &error);
    let mut tape = TapeBuilder::new(tempfile::tempfile().map_err(failed)?);
    let times = match detected.format {
        InputFormat::KtxTranscript => transcript::rewrite(file, length, &mut tape).map_err(failed)?,
        _ if length > LARGEST => {
            let refusal = UnsupportedInput::TooLarge { what: detected.format.description(), most: LARGEST >> 20 };
            return Err(OpenError::Unsupported { name, refusal });
        }
        _ => memory_flow::rewrite(file, length, &mut tape).map_err(failed)?,
    };
    let (file, length) = tape.end().map_err(failed)?;
    let rewritten = DetectedInput { format: InputFormat::Tape, header: None, first_entry: 0, first_time: None };
    let source = FileSource::new(Arc::new(file), name, stem, rewritten, FileGrowth::Fixed(length));
    Ok(source.with_rewritten_format(detected.format, times))
}

/// The times of a record's entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordStart {
    /// Wall-clock time of the first entry, if the record has times.
    pub(super) began: Option<Timestamp>,
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
