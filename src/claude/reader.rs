//! Lines out of a pipe: any length, nothing lost, whatever the sizes in which the bytes arrive.
//!
//! It must not know what a line means: it looks for newlines, and whether a line is JSON.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::{
    decode,
    tape::{Body, entry::stdout_body},
};

/// Asked of the pipe in one read.
const CHUNK: usize = 64 * 1024;
/// A buffer that a huge line has grown beyond this is given back once the line is gone.
const KEEP: usize = 1024 * 1024;

/// Splits a stream into lines. The buffer grows with the longest line.
#[derive(Debug)]
pub struct LineReader<R> {
    from: R,
    buffer: Vec<u8>,
    /// Bytes at the front that were handed out already.
    taken: usize,
    /// Bytes from the front in which every newline is known.
    scanned: usize,
    /// End of the last whole line.
    whole: usize,
    ended: bool,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// Reads from `from`.
    pub fn new(from: R) -> Self {
        Self { from, buffer: Vec::new(), taken: 0, scanned: 0, whole: 0, ended: false }
    }

    /// Where the bytes come from.
    pub fn source(&mut self) -> &mut R {
        &mut self.from
    }

    /// True once the stream is over and every line was taken.
    pub fn is_over(&self) -> bool {
        self.ended && self.taken == self.buffer.len()
    }

    /// Waits until there is at least one line to take, or the stream is over. May be dropped and called again
    /// without losing a byte. An error ends the stream; what came before it can still be taken.
    pub async fn fill(&mut self) -> io::Result<()> {
        self.compact();
        while self.whole <= self.taken && !self.ended {
            self.buffer.reserve(CHUNK);
            match self.from.read_buf(&mut self.buffer).await {
                Ok(0) => self.end(),
                Ok(_) => self.scan(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.end();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Takes every whole line that is there, without newlines; after the end of the stream also a last line that
    /// has none.
    pub fn take(&mut self) -> Batch<'_> {
        let from = self.taken;
        self.taken = self.whole.max(from);
        Batch { bytes: &self.buffer[from..self.taken] }
    }

    fn scan(&mut self) {
        if let Some(at) = memchr::memrchr(b'\n', &self.buffer[self.scanned..]) {
            self.whole = self.scanned + at + 1;
        }
        self.scanned = self.buffer.len();
    }

    fn end(&mut self) {
        self.ended = true;
        self.whole = self.buffer.len();
    }

    fn compact(&mut self) {
        if self.taken == 0 {
            return;
        }
        self.buffer.drain(..self.taken);
        self.scanned = self.buffer.len();
        self.whole = 0;
        self.taken = 0;
        if self.ended {
            self.whole = self.buffer.len();
        } else if self.buffer.capacity() > KEEP {
            self.buffer.shrink_to(CHUNK);
        }
    }
}

/// Lines that arrived together.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    bytes: &'a [u8],
}

impl<'a> Batch<'a> {
    /// Bytes of all of them.
    pub fn size(self) -> usize {
        self.bytes.len()
    }

    /// The lines as a tape takes them.
    pub fn bodies(self) -> impl Iterator<Item = Body<'a>> {
        self.lines().map(|line| stdout_body(line, decode::is_json(line)))
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

    /// Gives out `chunks` one read at a time, being pending once before each.
    struct Chunks {
        chunks: std::vec::IntoIter<Vec<u8>>,
        rest: Vec<u8>,
        pause: bool,
    }

    impl Chunks {
        fn new(chunks: Vec<Vec<u8>>) -> Self {
            Self { chunks: chunks.into_iter(), rest: Vec::new(), pause: true }
        }
    }

    impl AsyncRead for Chunks {
        fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
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

    /// Every line, with each wait given up once before it is finished.
    fn lines_of(chunks: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut reader = LineReader::new(Chunks::new(chunks));
            let mut lines = Vec::new();
            while !reader.is_over() {
                let given_up = futures_util::FutureExt::now_or_never(reader.fill());
                if given_up.is_none() {
                    reader.fill().await.unwrap();
                }
                lines.extend(reader.take().lines().map(<[u8]>::to_vec));
            }
            lines
        })
    }

    fn expected(text: &[u8]) -> Vec<Vec<u8>> {
        let mut lines: Vec<Vec<u8>> = text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        if lines.last().is_some_and(Vec::is_empty) {
            lines.pop();
        }
        lines
    }

    #[test]
    fn a_last_line_needs_no_newline() {
        assert_eq!(lines_of(vec![b"one\ntw".to_vec(), b"o".to_vec()]), [b"one".to_vec(), b"two".to_vec()]);
        assert_eq!(lines_of(vec![]), Vec::<Vec<u8>>::new());
        assert_eq!(lines_of(vec![b"\n\n".to_vec()]), [b"".to_vec(), b"".to_vec()]);
    }

    #[test]
    fn a_line_of_ten_megabytes_is_one_line_and_its_memory_is_given_back() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut text = vec![b'x'; 10 * 1024 * 1024];
        text.extend_from_slice(b"\nshort\n");
        runtime.block_on(async {
            let mut reader = LineReader::new(&text[..]);
            reader.fill().await.unwrap();
            assert_eq!(reader.take().lines().next().map(<[u8]>::len), Some(10 * 1024 * 1024));
            reader.fill().await.unwrap();
            while !reader.is_over() {
                reader.fill().await.unwrap();
                reader.take();
            }
            assert!(reader.buffer.capacity() <= KEEP, "{}", reader.buffer.capacity());
        });
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_lines(
            pieces in prop::collection::vec(prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..20), 0..20),
        ) {
            let text = pieces.concat();
            prop_assert_eq!(lines_of(pieces), expected(&text));
        }
    }
}
