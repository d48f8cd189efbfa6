//! Streams as files: stdin, pipes and packed files are copied to an unnamed temporary file, so that they can be read
//! again.
//!
//! The system deletes the file when the process ends, however it ends. This module must not depend on the meaning of
//! the bytes.

use std::{
    fs::File,
    io::{self, Read, Write as _},
    os::unix::fs::FileExt as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use nix::sys::statvfs::fstatvfs;
use parking_lot::Mutex;

use super::{
    detect::{self, DetectedInput, DetectionExtent},
    error::OpenError,
    index::FileGrowth,
    line_repair,
    zstd_reader::{self, ZstdReader},
};

/// Size of a read: the capacity of a pipe is 64 KiB, so larger reads are not faster.
const CHUNK: usize = 64 << 10;

/// Length of the text without a line of JSON after which a stream counts as a capture.
const MAX_PRECEDING_TEXT: usize = 64 << 10;

/// Maximum size of a document over several lines.
const MAX_DOCUMENT_BYTES: usize = 16 << 20;

/// Bytes after which the free space is checked again.
const SPACE_CHECK_INTERVAL: u64 = 16 << 20;

/// Minimum free space of the file system in bytes, or a twentieth of a small file system.
const RESERVED_BYTES: u64 = 256 << 20;

/// The error that ended the stream, if there was one.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamError(Arc<Mutex<Option<String>>>);

impl StreamError {
    pub(super) fn cause(&self) -> Option<String> {
        self.0.lock().clone()
    }

    pub(super) fn set(&self, error: &io::Error) {
        *self.0.lock() = Some(error.to_string());
    }
}

/// A stream in a file. Another thread copies the rest of the stream while the file is read.
#[derive(Debug)]
pub(super) struct SpooledStream {
    pub(super) file: Arc<File>,
    pub(super) detected: DetectedInput,
    pub(super) growth: FileGrowth,
    pub(super) error: StreamError,
    /// Number of records that were recovered from damaged lines.
    pub(super) recovered: u64,
}

/// Copies a stream. Waits for its first line, to detect the format, and for its end if the format is converted.
pub(super) fn spool(
    name: &str,
    input: impl Read + Send + 'static,
) -> Result<SpooledStream, OpenError> {
    let failed = |error: io::Error| OpenError::from_io(name, &error);
    let mut input = decompress_if_packed(input).map_err(failed)?;
    let mut spooled = tempfile::tempfile().map_err(failed)?;
    let finished = Arc::new(AtomicBool::new(false));
    let error = StreamError::default();
    let mut head = Vec::new();
    let mut chunk = vec![0; CHUNK];
    // A document over several lines can only be detected when it is complete. Text may precede the first line of JSON.
    let is_open = |head: &[u8]| match head.len() {
        0..MAX_PRECEDING_TEXT => !detect::has_json_line(head) || detect::may_be_document(head),
        MAX_PRECEDING_TEXT..MAX_DOCUMENT_BYTES => {
            memchr::memchr(b'\n', head).is_none() || detect::may_be_document(head)
        }
        _ => false,
    };
    while is_open(&head) {
        let count = read(&mut input, &mut chunk).map_err(failed)?;
        if count == 0 {
            finished.store(true, Ordering::Release);
            break;
        }
        head.extend_from_slice(&chunk[..count]);
    }
    let ended = finished.load(Ordering::Acquire);
    let extent = if ended {
        DetectionExtent::Whole
    } else {
        DetectionExtent::Growing
    };
    let detected = detect::detect(&head, extent);
    if ended
        && detect::may_be_repaired(&detected)
        && let Some(repaired) = line_repair::repair_bytes(&head).map_err(failed)?
        && let Ok(detected) = detect::detect(&repaired.content().map_err(failed)?, extent)
    {
        return Ok(SpooledStream {
            file: Arc::new(repaired.file),
            detected,
            growth: FileGrowth::Fixed(repaired.length),
            error,
            recovered: repaired.recovered,
        });
    }
    let detected = detected.map_err(|refusal| OpenError::Unsupported {
        name: name.to_owned(),
        refusal,
    })?;
    spooled.write_all(&head).map_err(failed)?;
    if detected.format.is_rewritten() {
        // The whole stream is needed, because calls are sorted by their start times.
        if !ended {
            copy_all(&mut input, &spooled, head.len() as u64, &mut chunk).map_err(failed)?;
        }
        let growth = FileGrowth::Fixed(spooled.metadata().map_err(failed)?.len());
        return Ok(SpooledStream {
            file: Arc::new(spooled),
            detected,
            growth,
            error,
            recovered: 0,
        });
    }
    let file = Arc::new(spooled);
    let growth = FileGrowth::Until(Arc::clone(&finished));
    let stream = SpooledStream {
        file: Arc::clone(&file),
        detected,
        growth,
        error: error.clone(),
        recovered: 0,
    };
    if !ended {
        let start = head.len() as u64;
        let copy = move || {
            if let Err(cause) = copy_all(&mut input, &file, start, &mut chunk) {
                error.set(&cause);
            }
            finished.store(true, Ordering::Release);
        };
        thread::Builder::new()
            .name("spool".into())
            .spawn(copy)
            .map_err(failed)?;
    }
    Ok(stream)
}

/// Returns the unpacked content of the stream.
fn decompress_if_packed(mut input: impl Read + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
    let mut head = Vec::with_capacity(zstd_reader::ZSTD_MAGIC.len());
    input
        .by_ref()
        .take(zstd_reader::ZSTD_MAGIC.len() as u64)
        .read_to_end(&mut head)?;
    let is_packed = head == zstd_reader::ZSTD_MAGIC;
    let all = io::Cursor::new(head).chain(input);
    Ok(if is_packed {
        Box::new(ZstdReader::new(all))
    } else {
        Box::new(all)
    })
}

fn copy_all(
    input: &mut impl Read,
    file: &File,
    mut offset: u64,
    chunk: &mut [u8],
) -> io::Result<()> {
    let mut checked = offset;
    loop {
        if offset - checked >= SPACE_CHECK_INTERVAL {
            checked = offset;
            check_space(file)?;
        }
        let count = read(input, chunk)?;
        if count == 0 {
            return Ok(());
        }
        file.write_all_at(&chunk[..count], offset)?;
        offset += count as u64;
    }
}

/// Fails before the file system of temporary files is full: it may be in memory, and other programs need it.
#[allow(
    clippy::useless_conversion,
    reason = "the widths of these numbers differ between systems"
)]
pub(super) fn check_space(file: &File) -> io::Result<()> {
    let system = fstatvfs(file)?;
    let fragment: u64 = system.fragment_size().into();
    let bytes = |fragments: u64| fragments.saturating_mul(fragment);
    if has_enough_space(
        bytes(system.blocks_available().into()),
        bytes(system.blocks().into()),
    ) {
        return Ok(());
    }
    let why =
        "not enough space for temporary files; free some, or set TMPDIR to a larger directory";
    Err(io::Error::new(io::ErrorKind::StorageFull, why))
}

fn has_enough_space(available: u64, total: u64) -> bool {
    available >= RESERVED_BYTES.min(total / 20)
}

fn read(input: &mut impl Read, chunk: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::detect::InputFormat;

    #[test]
    fn text_before_json_is_skipped_for_detection() {
        let is_capture = |text: String| {
            spool("stdin", io::Cursor::new(text))
                .map(|stream| stream.detected.format == InputFormat::Capture)
        };
        let line = r#"{"type":"system","session_id":"s"}"#;
        assert!(is_capture(format!("warning\nanother\n{line}\n")).unwrap());
        let text = "text\n".repeat(MAX_PRECEDING_TEXT / 5 + 1);
        assert!(
            is_capture(format!("{text}{line}\n")).unwrap(),
            "a stream is not collected without end"
        );
        let error = is_capture("hello\nworld\n".to_owned()).unwrap_err();
        assert!(matches!(error, OpenError::Unsupported { .. }), "{error}");
    }

    #[test]
    fn spool_keeps_reserved_space_free() {
        assert!(has_enough_space(1 << 40, 1 << 40) && has_enough_space(RESERVED_BYTES, 1 << 40));
        assert!(!has_enough_space(RESERVED_BYTES - 1, 1 << 40) && !has_enough_space(0, 1 << 30));
        assert!(
            has_enough_space(2 << 20, 32 << 20),
            "a twentieth of a small file system is enough"
        );
    }
}
