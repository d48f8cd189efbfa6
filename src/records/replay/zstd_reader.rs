//! Reads records that are packed with zstd like unpacked ones.
//!
//! A few bytes can unpack to more than any disk can store, so the size is limited. This module must not depend on the
//! meaning of the bytes.

use std::io::{self, BufRead as _, BufReader, Read};

use ruzstd::decoding::{
    BlockDecodingStrategy, FrameDecoder,
    errors::{FrameDecoderError, ReadFrameHeaderError},
};

/// Magic number at the start of a packed record.
pub(super) const ZSTD_MAGIC: &[u8] = b"\x28\xb5\x2f\xfd";

/// Unpacked size that any record may have, and maximum compression ratio of larger ones. Real records stay below a
/// ratio of one hundred.
const BASE_LIMIT: u64 = 1 << 30;
const MAX_RATIO: u64 = 200;

/// Maximum window of a frame in bytes: the default limit of the `zstd` tool.
const MAX_WINDOW: u64 = 1 << 27;

/// An empty last block and a checksum. The decoder keeps the last window of a frame until the frame ends, so this makes
/// the last bytes of a truncated one available.
const LAST_BLOCK: &[u8] = &[1, 0, 0, 0, 0, 0, 0];

/// Reads the unpacked bytes of a packed stream.
pub(super) struct ZstdReader<R: Read> {
    packed: BufReader<CountingReader<R>>,
    decoder: FrameDecoder,
    unpacked: u64,
    /// Unpacked size that is allowed for a packed stream of any size.
    base_limit: u64,
}

impl<R: Read> ZstdReader<R> {
    pub(super) fn new(packed: R) -> Self {
        Self::with_limit(packed, BASE_LIMIT)
    }

    fn with_limit(packed: R, always: u64) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(MAX_WINDOW);
        Self {
            packed: BufReader::new(CountingReader {
                from: packed,
                count: 0,
                has_ended: false,
            }),
            decoder,
            unpacked: 0,
            base_limit: always,
        }
    }

    /// Unpacks until some bytes are available. Returns false at the end of the stream.
    fn unpack(&mut self) -> io::Result<bool> {
        while self.decoder.can_collect() == 0 {
            if !self.decoder.is_finished() {
                self.unpack_block()?;
            } else if self
                .decoder
                .get_checksum_from_data()
                .is_some_and(|sum| Some(sum) != self.decoder.get_calculated_checksum())
            {
                return Err(io::Error::other("its checksum is wrong"));
            } else if self.packed.fill_buf()?.is_empty() {
                return Ok(false);
            } else {
                self.open_frame()?;
            }
        }
        Ok(true)
    }

    fn unpack_block(&mut self) -> io::Result<()> {
        let one = || BlockDecodingStrategy::UptoBlocks(1);
        let Err(error) = self.decoder.decode_blocks(&mut self.packed, one()) else {
            return Ok(());
        };
        if self.packed.get_ref().has_ended
            && self.decoder.decode_blocks(LAST_BLOCK, one()).is_ok()
            && self.decoder.can_collect() > 0
        {
            return Ok(());
        }
        Err(io::Error::other(error))
    }

    fn open_frame(&mut self) -> io::Result<()> {
        match self.decoder.reset(&mut self.packed) {
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length,
                ..
            })) => {
                let mut skipped = self.packed.by_ref().take(length.into());
                io::copy(&mut skipped, &mut io::sink()).map(drop)
            }
            opened => opened.map_err(io::Error::other),
        }
    }
}

impl<R: Read> Read for ZstdReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.unpack() {
            // Like a truncated last line: the available entries are shown, and the record counts as interrupted.
            Err(_) if self.packed.get_ref().has_ended && self.unpacked > 0 => return Ok(0),
            Ok(false) => return Ok(0),
            unpacked => unpacked?,
        };
        let count = self.decoder.read(buffer)?;
        self.unpacked += count as u64;
        let bound = self
            .packed
            .get_ref()
            .count
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

/// Counts the bytes that were read, and notes the end.
struct CountingReader<R> {
    from: R,
    count: u64,
    has_ended: bool,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        self.count += count as u64;
        self.has_ended |= count == 0;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    #[test]
    fn several_frames_are_one_record() {
        let packed = [&b"one\n"[..], b"two\n"]
            .map(|text| compress_to_vec(text, CompressionLevel::Fastest))
            .concat();
        assert!(packed.starts_with(ZSTD_MAGIC));
        let mut text = String::new();
        ZstdReader::new(packed.as_slice())
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "one\ntwo\n");
    }

    #[test]
    fn truncated_archive_gives_its_readable_part() {
        let text = (0..100_000)
            .map(|number| format!("{number}\n"))
            .collect::<String>();
        let packed = compress_to_vec(text.as_bytes(), CompressionLevel::Fastest);
        let mut found = Vec::new();
        ZstdReader::new(&packed[..packed.len() / 2])
            .read_to_end(&mut found)
            .unwrap();
        assert!(
            !found.is_empty() && found.len() < text.len() && text.as_bytes().starts_with(&found)
        );
    }

    #[test]
    fn damaged_content_is_an_error() {
        let mut packed = compress_to_vec(&b"one\n"[..], CompressionLevel::Uncompressed);
        let content = packed.len() - 5;
        packed[content] ^= 1;
        let error = io::read_to_string(ZstdReader::new(packed.as_slice())).unwrap_err();
        assert_eq!(error.to_string(), "its checksum is wrong");
    }

    #[test]
    fn decompression_bomb_is_rejected() {
        let packed = compress_to_vec(io::repeat(0).take(8 << 20), CompressionLevel::Fastest);
        let mut unpacked = ZstdReader::with_limit(packed.as_slice(), 1 << 20);
        let error = io::copy(&mut unpacked, &mut io::sink()).unwrap_err();
        assert!(
            error.to_string().contains("more than 200 times its size"),
            "{error}"
        );
    }
}
