//! Reads records that are packed with zstd like unpacked ones.
//!
//! A few bytes can unpack to more than any disk can store, so the size is limited. This module must not depend on the
//! meaning of the bytes.

use std::{
    io::{self, BufReader, Read},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use zstd::stream::read::Decoder;

/// Magic number at the start of a packed record.
pub(super) const ZSTD_MAGIC: &[u8] = b"\x28\xb5\x2f\xfd";

/// Unpacked size that any record may have, and maximum compression ratio of larger ones. Real records stay below a
/// ratio of one hundred.
const BASE_LIMIT: u64 = 1 << 30;
const MAX_RATIO: u64 = 200;

/// Maximum window of a frame as a power of two: the default limit of the `zstd` tool.
const WINDOW: u32 = 27;

/// Reads the unpacked bytes of a packed stream.
pub(super) struct ZstdReader<R: Read> {
    decoder: Decoder<'static, BufReader<CountingReader<R>>>,
    packed: Arc<AtomicU64>,
    unpacked: u64,
    /// Unpacked size that is allowed for a packed stream of any size.
    base_limit: u64,
}

impl<R: Read> ZstdReader<R> {
    pub(super) fn new(packed: R) -> io::Result<Self> {
        Self::with_limit(packed, BASE_LIMIT)
    }

    fn with_limit(packed: R, always: u64) -> io::Result<Self> {
        let count = Arc::new(AtomicU64::new(0));
        let mut decoder = Decoder::new(CountingReader {
            from: packed,
            count: Arc::clone(&count),
        })?;
        decoder.window_log_max(WINDOW)?;
        Ok(Self {
            decoder,
            packed: count,
            unpacked: 0,
            base_limit: always,
        })
    }
}

impl<R: Read> Read for ZstdReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = match self.decoder.read(buffer) {
            // Like a truncated last line: the available entries are shown, and the record counts as interrupted.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && self.unpacked > 0 => 0,
            result => result?,
        };
        self.unpacked += count as u64;
        let bound = self
            .packed
            .load(Ordering::Relaxed)
            .saturating_mul(MAX_RATIO)
            .max(self.base_limit);
        if self.unpacked > bound {
            return Err(io::Error::other(format!(
                "it unpacks to more than {MAX_RATIO} times its size; unpack it with zstd, if you trust it"
            )));
        }
        Ok(count)
    }
}

/// Counts the bytes that were read.
struct CountingReader<R> {
    from: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        self.count.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_frames_are_one_record() {
        let packed = [&b"one\n"[..], b"two\n"]
            .map(|text| zstd::encode_all(text, 3).unwrap())
            .concat();
        assert!(packed.starts_with(ZSTD_MAGIC));
        let mut text = String::new();
        ZstdReader::new(packed.as_slice())
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "one\ntwo\n");
    }

    #[test]
    fn truncated_archive_gives_its_readable_part() {
        let text = (0..100_000)
            .map(|number| format!("{number}\n"))
            .collect::<String>();
        let packed = zstd::encode_all(text.as_bytes(), 3).unwrap();
        let mut found = Vec::new();
        ZstdReader::new(&packed[..packed.len() / 2])
            .unwrap()
            .read_to_end(&mut found)
            .unwrap();
        assert!(
            !found.is_empty() && found.len() < text.len() && text.as_bytes().starts_with(&found)
        );
    }

    #[test]
    fn decompression_bomb_is_rejected() {
        let packed = zstd::encode_all(io::repeat(0).take(32 << 20), 3).unwrap();
        let mut unpacked = ZstdReader::with_limit(packed.as_slice(), 1 << 20).unwrap();
        let error = io::copy(&mut unpacked, &mut io::sink()).unwrap_err();
        assert!(
            error.to_string().contains("more than 200 times its size"),
            "{error}"
        );
    }
}
