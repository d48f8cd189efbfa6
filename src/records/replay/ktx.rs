//! KTX's own records as sources: tool transcripts and memory-flow replays, converted to a tape.
//!
//! They are converted once, when they are opened, to an unnamed temporary file; from there on they are read, searched
//! and stepped through like any other tape. Facts that KTX does not record are not invented.

use std::{fs::File, io};

use jiff::Timestamp;

use super::{
    detect::{InputFormat, UnsupportedInput},
    error::OpenError,
    tape_builder::TapeBuilder,
};

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
pub(super) fn convert(
    file: &File,
    length: u64,
    name: &str,
    format: InputFormat,
) -> Result<ConvertedRecord, OpenError> {
    let failed = |error: io::Error| OpenError::from_io(name, &error);
    let mut tape = TapeBuilder::new(tempfile::tempfile().map_err(failed)?);
    let began = match format {
        InputFormat::KtxTranscript => {
            transcript::rewrite(file, length, &mut tape).map_err(failed)?
        }
        _ if length > LARGEST => {
            let refusal = UnsupportedInput::TooLarge {
                what: format.description(),
                most: LARGEST >> 20,
            };
            return Err(OpenError::Unsupported {
                name: name.to_owned(),
                refusal,
            });
        }
        _ => memory_flow::rewrite(file, length, &mut tape).map_err(failed)?,
    };
    Ok(ConvertedRecord {
        tape: tape.end().map_err(failed)?,
        began,
    })
}

#[cfg(test)]
mod tests;
