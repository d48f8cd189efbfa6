//! Reads lines from a pipe without losing bytes, for any chunk sizes.
//!
//! A line above the limit is returned in pieces, so memory is bounded by the limit and not by the child. The module
//! must not depend on the meaning of a line: it only looks for newlines, and checks whether a line is JSON.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

use ingestdeck_core::{
    decode,
    tape::{EntryBody, entry::stdout_body},
};

/// Bytes requested per read.
const READ_SIZE: usize = 64 * 1024;
/// A buffer that grew beyond this size is freed once its line is consumed, in bytes.
const MAX_RETAINED_BUFFER: usize = 1024 * 1024;
/// Maximum length of a line that is kept whole, in bytes. The longest lines of a working agent have tens of MB.
pub const MAX_LINE_BYTES: usize = 64 * 1024 * 1024;
/// Number of pieces for a line of the maximum length.
const PIECES_PER_LINE: usize = 8;
/// Minimum length of a piece, in bytes; it must fit one character.
const MIN_PIECE_BYTES: usize = 16;

/// Splits a stream into lines. The buffer grows with the longest line, up to the limit.
#[derive(Debug)]
pub struct LineReader<R> {
    source: R,
    buffer: Vec<u8>,
    /// Maximum length of a line that is returned whole, in bytes.
    max_line: usize,
    /// The next bytes continue a line of which a piece was returned.
    in_pieces: bool,
    /// Bytes at the front of the buffer that were returned already.
    consumed: usize,
    /// Bytes from the front that were searched for newlines.
    scanned: usize,
    /// End of the last complete line.
    complete_end: usize,
    at_eof: bool,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// Reads from `from`. A line longer than `longest` bytes (plus up to one read) is returned in pieces.
    pub fn with_limit(from: R, longest: usize) -> Self {
        let (buffer, in_pieces) = (Vec::new(), false);
        Self {
            source: from,
            buffer,
            max_line: longest,
            in_pieces,
            consumed: 0,
            scanned: 0,
            complete_end: 0,
            at_eof: false,
        }
    }

    pub(crate) fn source(&mut self) -> &mut R {
        &mut self.source
    }

    /// True once the stream has ended and every line was taken.
    pub fn is_finished(&self) -> bool {
        self.at_eof && self.consumed == self.buffer.len()
    }

    /// Waits until a line or piece is available, or the stream ends. Cancel-safe: no byte is lost. An error ends the
    /// stream; the data before it can still be taken.
    pub async fn fill(&mut self) -> io::Result<()> {
        self.compact();
        while self.complete_end <= self.consumed && !self.has_piece() && !self.at_eof {
            self.grow();
            match self.source.read_buf(&mut self.buffer).await {
                Ok(0) => self.mark_eof(),
                Ok(_) => self.scan(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.mark_eof();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Takes every complete line in the buffer, without newlines; after the end of the stream also an unterminated last
    /// line. Takes one piece of a line above the limit.
    pub fn take_lines(&mut self) -> LineBatch<'_> {
        let from = self.consumed;
        if self.in_pieces || (self.complete_end <= from && self.has_piece()) {
            let end = self.take_piece();
            return LineBatch {
                bytes: &self.buffer[from..end],
                is_piece: true,
            };
        }
        self.consumed = self.complete_end.max(from);
        LineBatch {
            bytes: &self.buffer[from..self.consumed],
            is_piece: false,
        }
    }

    /// True if a piece of an incomplete line has to be returned.
    fn has_piece(&self) -> bool {
        let limit = if self.in_pieces {
            self.piece_size()
        } else {
            self.max_line
        };
        self.buffer.len() - self.consumed > limit
    }

    fn piece_size(&self) -> usize {
        (self.max_line / PIECES_PER_LINE).max(MIN_PIECE_BYTES)
    }

    /// Takes a piece, with its newline if it is the last one. Returns its end.
    fn take_piece(&mut self) -> usize {
        let rest = &self.buffer[self.consumed..];
        let piece = &rest[..rest.len().min(self.piece_size())];
        let (end, next) = match memchr::memchr(b'\n', piece) {
            Some(at) => (at, at + 1),
            None if piece.len() == rest.len() && self.at_eof => (piece.len(), piece.len()),
            None => {
                let end = complete_chars_len(piece);
                (end, end)
            }
        };
        self.in_pieces = next == end && !(self.at_eof && next == rest.len());
        let end = self.consumed + end;
        self.consumed += next;
        end
    }

    /// Makes room for one read: doubles the buffer, up to the size that a line of the maximum length needs.
    fn grow(&mut self) {
        let used = self.buffer.len();
        if self.buffer.capacity() - used < READ_SIZE {
            let needed = self.max_line.saturating_sub(used).max(READ_SIZE);
            self.buffer.reserve_exact(used.clamp(READ_SIZE, needed));
        }
    }

    fn scan(&mut self) {
        if let Some(at) = memchr::memrchr(b'\n', &self.buffer[self.scanned..]) {
            self.complete_end = self.scanned + at + 1;
        }
        self.scanned = self.buffer.len();
    }

    fn mark_eof(&mut self) {
        self.at_eof = true;
        self.complete_end = self.buffer.len();
    }

    fn compact(&mut self) {
        if self.consumed == 0 {
            return;
        }
        self.buffer.drain(..self.consumed);
        self.scanned = self.buffer.len();
        self.complete_end = self.complete_end.saturating_sub(self.consumed);
        self.consumed = 0;
        if self.at_eof {
            self.complete_end = self.buffer.len();
        } else if self.buffer.capacity() > MAX_RETAINED_BUFFER {
            self.buffer.shrink_to(READ_SIZE);
        }
    }
}

/// Length of `bytes` without an incomplete character at the end.
fn complete_chars_len(bytes: &[u8]) -> usize {
    let last = bytes.len().saturating_sub(3);
    for (at, byte) in bytes.iter().enumerate().skip(last).rev() {
        let width = match byte {
            0x80..=0xBF => continue,
            0xC0..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF7 => 4,
            _ => 1,
        };
        return if at > 0 && at + width > bytes.len() {
            at
        } else {
            bytes.len()
        };
    }
    bytes.len()
}

/// Lines that arrived together, or a piece of one line.
#[derive(Clone, Copy, Debug)]
pub struct LineBatch<'a> {
    bytes: &'a [u8],
    is_piece: bool,
}

impl<'a> LineBatch<'a> {
    /// Bytes of all lines.
    pub(crate) fn size(self) -> usize {
        self.bytes.len()
    }

    /// True for a piece of a line above the limit.
    pub(crate) fn is_piece(self) -> bool {
        self.is_piece
    }

    /// The lines as entry bodies for the tape.
    pub fn bodies(self) -> impl Iterator<Item = EntryBody<'a>> {
        self.lines()
            .map(move |line| stdout_body(line, !self.is_piece && decode::is_json(line)))
    }

    /// The lines, in order.
    pub fn lines(self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.bytes;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
            let line = &rest[..end];
            rest = rest.get(end + 1..).unwrap_or_default();
            Some(line)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::Pin,
        task::{Context, Poll},
    };

    use proptest::prelude::*;
    use tokio::io::ReadBuf;

    use super::*;

    /// Returns `chunks` one read at a time, and is pending once before each.
    struct ChunkedReader {
        chunks: std::vec::IntoIter<Vec<u8>>,
        rest: Vec<u8>,
        pause: bool,
    }

    impl ChunkedReader {
        fn new(chunks: Vec<Vec<u8>>) -> Self {
            Self {
                chunks: chunks.into_iter(),
                rest: Vec::new(),
                pause: true,
            }
        }
    }

    impl AsyncRead for ChunkedReader {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            out: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.pause = !self.pause;
            if !self.pause {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            while self.rest.is_empty() {
                match self.chunks.next() {
                    Some(chunk) => self.rest = chunk,
                    None => return Poll::Ready(Ok(())),
                }
            }
            let size = self.rest.len().min(out.remaining());
            out.put_slice(&self.rest.drain(..size).collect::<Vec<_>>());
            Poll::Ready(Ok(()))
        }
    }

    /// All lines; each wait is cancelled once before it completes.
    fn lines_of(chunks: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut reader = LineReader::with_limit(ChunkedReader::new(chunks), MAX_LINE_BYTES);
            let mut lines = Vec::new();
            while !reader.is_finished() {
                let given_up = futures_util::FutureExt::now_or_never(reader.fill());
                if given_up.is_none() {
                    reader.fill().await.unwrap();
                }
                lines.extend(reader.take_lines().lines().map(<[u8]>::to_vec));
            }
            lines
        })
    }

    fn expected(text: &[u8]) -> Vec<Vec<u8>> {
        let mut lines: Vec<Vec<u8>> = text
            .split(|byte| *byte == b'\n')
            .map(<[u8]>::to_vec)
            .collect();
        if lines.last().is_some_and(Vec::is_empty) {
            lines.pop();
        }
        lines
    }

    #[test]
    fn a_last_line_needs_no_newline() {
        assert_eq!(
            lines_of(vec![b"one\ntw".to_vec(), b"o".to_vec()]),
            [b"one".to_vec(), b"two".to_vec()]
        );
        assert_eq!(lines_of(vec![]), Vec::<Vec<u8>>::new());
        assert_eq!(
            lines_of(vec![b"\n\n".to_vec()]),
            [b"".to_vec(), b"".to_vec()]
        );
    }

    #[test]
    fn ten_megabyte_line_is_read_whole_and_its_memory_freed() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let mut text = vec![b'x'; 10 * 1024 * 1024];
        text.extend_from_slice(b"\nshort\n");
        runtime.block_on(async {
            let mut reader = LineReader::with_limit(&text[..], MAX_LINE_BYTES);
            reader.fill().await.unwrap();
            assert_eq!(
                reader.take_lines().lines().next().map(<[u8]>::len),
                Some(10 * 1024 * 1024)
            );
            reader.fill().await.unwrap();
            while !reader.is_finished() {
                reader.fill().await.unwrap();
                reader.take_lines();
            }
            assert!(
                reader.buffer.capacity() <= MAX_RETAINED_BUFFER,
                "{}",
                reader.buffer.capacity()
            );
        });
    }

    /// Bytes of every batch, whether it was a piece, and the maximum buffer size.
    fn batches(text: &[u8], longest: usize) -> (Vec<(Vec<u8>, bool)>, usize) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut reader = LineReader::with_limit(text, longest);
            let (mut batches, mut most) = (Vec::new(), 0);
            while !reader.is_finished() {
                reader.fill().await.unwrap();
                most = most.max(reader.buffer.capacity());
                let batch = reader.take_lines();
                batches.extend(batch.lines().map(|line| (line.to_vec(), batch.is_piece())));
            }
            (batches, most)
        })
    }

    #[test]
    fn line_beyond_the_limit_comes_in_pieces() {
        const LIMIT: usize = 256 * 1024;
        let long = "é".repeat(4 * LIMIT / 2 + 7);
        let text = format!("first\n{long}\nsecond\n{}", &long[..LIMIT * 3]);
        let (batches, most) = batches(text.as_bytes(), LIMIT);
        assert!(most <= LIMIT + 2 * READ_SIZE, "{most}");
        assert_eq!((&*batches[0].0, batches[0].1), (&b"first"[..], false));
        let pieces = batches.iter().filter(|(_, is_piece)| *is_piece);
        assert!(
            pieces
                .clone()
                .all(|(piece, _)| piece.len() <= LIMIT / PIECES_PER_LINE
                    && std::str::from_utf8(piece).is_ok())
        );
        assert_eq!(
            pieces.map(|(piece, _)| piece.len()).sum::<usize>(),
            long.len() + LIMIT * 3
        );
        let second = batches
            .iter()
            .position(|(line, _)| line == b"second")
            .unwrap();
        assert!(!batches[second].1);
        assert_eq!(
            batches[1..second]
                .iter()
                .flat_map(|(piece, _)| piece.clone())
                .collect::<Vec<_>>(),
            long.as_bytes()
        );
    }

    #[test]
    fn pieces_end_between_characters() {
        for (text, whole) in [("ab", 2), ("aé", 3), ("a€", 4), ("a🦊", 5)] {
            assert_eq!(complete_chars_len(text.as_bytes()), whole);
            let cut = &text.as_bytes()[..text.len() - 1];
            assert_eq!(complete_chars_len(cut), 1, "{text}");
        }
        assert_eq!(complete_chars_len(&[0xFF, 0x80, 0x80, 0x80]), 4);
        assert_eq!(
            complete_chars_len(&[0xE2, 0x82]),
            2,
            "there is always something to take"
        );
    }

    proptest! {
        #[test]
        fn any_limit_keeps_every_byte(
            lines in prop::collection::vec(prop::collection::vec(any::<u8>().prop_filter("", |byte| *byte != b'\n'), 1..200), 1..8),
            longest in 1..300_usize,
        ) {
            let text = lines.join(&b'\n');
            let (batches, _) = batches(&text, longest);
            let all: Vec<u8> = batches.into_iter().flat_map(|(bytes, _)| bytes).collect();
            prop_assert_eq!(all, lines.concat());
        }

        #[test]
        fn chunk_boundaries_do_not_change_the_lines(
            pieces in prop::collection::vec(prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..20), 0..20),
        ) {
            let text = pieces.concat();
            prop_assert_eq!(lines_of(pieces), expected(&text));
        }
    }
}
