//! KTX's own records as sources: tool transcripts and memory-flow replays, rewritten as a tape.
//!
//! They are rewritten once, when they are opened, into a file without a name that vanishes with the process; from there on
//! they are read, searched and stepped through like any other tape. What KTX does not record is not made up.

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

/// Largest memory-flow replay that is read; KTX's own have some kilobytes.
const LARGEST: u64 = 64 << 20;

/// Rewrites the KTX record in the first `length` bytes of `file`.
///
/// # Errors
/// When it cannot be read, or is none after all.
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

/// When the entries of a record happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RewrittenTimes {
    /// Wall-clock time of the first one, where the record has times.
    pub(super) began: Option<Timestamp>,
}

/// A tape that is being written.
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

    fn entry(&mut self, at: Millis, lane: Option<(&str, u32)>, body: EntryBody<'_>) -> io::Result<()> {
        self.line.clear();
        let lane = lane.map(|(unit, attempt)| (unit.into(), attempt));
        TapeEntry { seq: self.next, at, attempt: lane, body }.write(&mut self.line);
        self.next.0 += 1;
        self.written += self.line.len() as u64;
        self.out.write_all(&self.line)
    }

    fn note(&mut self, at: Millis, lane: Option<(&str, u32)>, note: &Note) -> io::Result<()> {
        self.entry(at, lane, EntryBody::Note(&note.to_json()))
    }

    fn message(&mut self, at: Millis, lane: Option<(&str, u32)>, level: Severity, text: String) -> io::Result<()> {
        self.note(at, lane, &Note::Message { level, text })
    }

    fn end(self) -> io::Result<(File, u64)> {
        let file = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok((file, self.written))
    }
}

#[cfg(test)]
mod tests;
