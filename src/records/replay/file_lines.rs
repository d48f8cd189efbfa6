//! Reads the lines of a file in order through one reusable buffer. It depends on offsets and newlines only.

use std::{fs::File, io, os::unix::fs::FileExt as _, sync::Arc};

use super::line_shortener::{GIANT, Shortener};

/// Bytes per read: large enough that the cost of the system call does not matter, small enough for the cache.
const BLOCK: usize = 256 << 10;

/// How a file is split into entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntrySplit {
    Lines,
    /// The whole file is one entry.
    Whole,
}

/// The result of reading the next line.
#[derive(Debug)]
pub(super) enum NextLine<'a> {
    /// A line without its newline, and the offset where it starts.
    Line(u64, &'a [u8]),
    /// No complete line before the limit.
    Pending,
    /// The file is shorter than before.
    Shrunk,
}

#[derive(Debug)]
pub(super) struct FileLines {
    file: Arc<File>,
    split: EntrySplit,
    buffer: Vec<u8>,
    /// File offset of `buffer[0]`.
    start: u64,
    /// Number of valid bytes in `buffer`.
    filled: usize,
    /// Position of the next line in `buffer`.
    next: usize,
    /// No newline occurs between `next` and this position.
    searched: usize,
    /// True if giant lines are shortened.
    shorten_giant_lines: bool,
    /// The giant line that is being read: its offset and the kept part. `start` is the offset up to which it was read.
    giant: Option<(u64, Shortener)>,
    /// The most recent shortened line.
    shortened_line: Vec<u8>,
}

impl FileLines {
    pub(super) fn new(file: Arc<File>, split: EntrySplit, offset: u64) -> Self {
        Self {
            file,
            split,
            buffer: Vec::new(),
            start: offset,
            filled: 0,
            next: 0,
            searched: 0,
            shorten_giant_lines: false,
            giant: None,
            shortened_line: Vec::new(),
        }
    }

    /// From now on, the long strings of giant lines are cut, and such lines are never in memory as a whole.
    pub(super) fn enable_shortening(&mut self) {
        self.shorten_giant_lines = self.split == EntrySplit::Lines;
    }

    /// True if giant lines are shortened.
    pub(super) fn is_shortening(&self) -> bool {
        self.shorten_giant_lines
    }

    /// Offset of the next line.
    pub(super) fn offset(&self) -> u64 {
        self.giant
            .as_ref()
            .map_or(self.start + self.next as u64, |(begun, _)| *begun)
    }

    /// Continues at `offset`, where a line must start.
    pub(super) fn seek(&mut self, offset: u64) {
        self.giant = None;
        let inside = offset
            .checked_sub(self.start)
            .and_then(|at| usize::try_from(at).ok());
        if let Some(next) = inside.filter(|next| *next <= self.filled) {
            self.next = next;
        } else {
            (self.start, self.filled, self.next) = (offset, 0, 0);
        }
        self.searched = self.next;
    }

    /// Returns the next line that ends before `limit`. The rest before `limit` counts as a line if the file is
    /// `finished`.
    pub(super) fn next(&mut self, limit: u64, finished: bool) -> io::Result<NextLine<'_>> {
        self.shortened_line = Vec::new();
        loop {
            if self.giant.is_some() {
                return self.next_giant_line(limit, finished);
            }
            let ready = self.start + self.filled as u64;
            if let Some(end) = self.newline() {
                return Ok(self.consume_line(end, end + 1));
            }
            if ready >= limit {
                if finished && self.next < self.filled {
                    return Ok(self.consume_line(self.filled, self.filled));
                }
                self.release_memory(0);
                return Ok(NextLine::Pending);
            }
            if self.shorten_giant_lines && self.filled - self.next >= GIANT {
                let mut shortener = Shortener::default();
                shortener.push(&self.buffer[self.next..self.filled]);
                self.giant = Some((self.start + self.next as u64, shortener));
                self.reset_to(ready);
                continue;
            }
            if self.fill(limit - ready)? == 0 {
                return Ok(NextLine::Shrunk);
            }
        }
    }

    /// Continues reading a giant line.
    fn next_giant_line(&mut self, limit: u64, finished: bool) -> io::Result<NextLine<'_>> {
        let Some((begun, mut shortener)) = self.giant.take() else {
            return Ok(NextLine::Pending);
        };
        let mut block = vec![0; BLOCK];
        let ended = loop {
            let room = usize::try_from(limit.saturating_sub(self.start))
                .map_or(BLOCK, |left| left.min(BLOCK));
            if room == 0 {
                break finished;
            }
            let count = read_at(&self.file, self.start, &mut block[..room])
                .inspect_err(|_| self.reset_to(begun))?;
            if count == 0 {
                self.reset_to(begun);
                return Ok(NextLine::Shrunk);
            }
            let newline = shortener.push(&block[..count]);
            self.reset_to(self.start + newline.map_or(count, |at| at + 1) as u64);
            if newline.is_some() {
                break true;
            }
        };
        if ended {
            self.shortened_line = shortener.end();
            return Ok(NextLine::Line(begun, &self.shortened_line));
        }
        self.giant = Some((begun, shortener));
        Ok(NextLine::Pending)
    }

    /// Continues at `offset` with an empty buffer.
    fn reset_to(&mut self, offset: u64) {
        self.start = offset;
        (self.filled, self.next, self.searched) = (0, 0, 0);
        self.buffer = Vec::new();
    }

    fn newline(&mut self) -> Option<usize> {
        if self.split == EntrySplit::Whole {
            return None;
        }
        let found = memchr::memchr(b'\n', &self.buffer[self.searched..self.filled]);
        let end = found.map(|distance| self.searched + distance);
        self.searched = end.unwrap_or(self.filled);
        end
    }

    fn consume_line(&mut self, end: usize, after: usize) -> NextLine<'_> {
        let line = self.next..end;
        (self.next, self.searched) = (after, after);
        NextLine::Line(self.start + line.start as u64, &self.buffer[line])
    }

    /// Releases the memory of a giant line once the line has been processed, and all of it if nothing more can be read.
    fn release_memory(&mut self, kept: usize) {
        if self.next == self.filled && self.buffer.len() > kept {
            self.reset_to(self.start + self.filled as u64);
        }
    }

    /// Reads more data after the buffered bytes; moves an unfinished line to the front first.
    fn fill(&mut self, wanted: u64) -> io::Result<usize> {
        self.buffer.copy_within(self.next..self.filled, 0);
        self.start += self.next as u64;
        self.filled -= self.next;
        self.searched -= self.next;
        self.next = 0;
        self.release_memory(BLOCK);
        if self.buffer.len() - self.filled < BLOCK / 2 {
            // A tape that is followed grows by little, and zeroing a block costs more than reading that.
            let needed = usize::try_from(wanted)
                .map_or(usize::MAX, |wanted| self.filled.saturating_add(wanted));
            let size = (self.filled * 2).max(BLOCK).min(needed);
            self.buffer.resize(size.max(self.buffer.len()), 0);
        }
        let mut room = self.buffer.len() - self.filled;
        if self.shorten_giant_lines {
            // Otherwise the preceding lines would influence whether a line counts as giant.
            room = room.min(GIANT.saturating_sub(self.filled).max(1));
        }
        let room = usize::try_from(wanted).map_or(room, |wanted| wanted.min(room));
        let spare = &mut self.buffer[self.filled..self.filled + room];
        let count = loop {
            match self.file.read_at(spare, self.start + self.filled as u64) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        self.filled += count;
        Ok(count)
    }
}

/// Fills `buffer` from offset `start`, up to the end of the file.
pub(super) fn read_at(file: &File, start: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], start + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Reads up to `length` bytes from offset `start`.
pub(super) fn read_range(file: &File, start: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let filled = read_at(file, start, &mut bytes)?;
    bytes.truncate(filled);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    fn all(lines: &mut FileLines, limit: u64, finished: bool) -> Vec<(u64, Vec<u8>)> {
        let mut found = Vec::new();
        while let NextLine::Line(offset, line) = lines.next(limit, finished).unwrap() {
            found.push((offset, line.to_vec()));
        }
        found
    }

    fn file(content: &[u8]) -> Arc<File> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        Arc::new(file)
    }

    #[test]
    fn line_longer_than_the_buffer_is_whole_and_frees_memory() {
        let long = vec![b'x'; BLOCK * 3 + 17];
        let content = [b"a\n", &long[..], b"\nb\n", &vec![b'y'; BLOCK], b"\nz"].concat();
        let mut lines = FileLines::new(file(&content), EntrySplit::Lines, 0);
        let found = all(&mut lines, content.len() as u64, true);
        let sizes: Vec<usize> = found.iter().map(|(_, line)| line.len()).collect();
        assert_eq!(sizes, [1, long.len(), 1, BLOCK, 1]);
        assert!(lines.buffer.len() <= BLOCK, "{}", lines.buffer.len());
        lines.seek(0);
        assert!(matches!(lines.next(2, true), Ok(NextLine::Line(0, b"a"))));
        assert!(lines.buffer.len() <= 2 * BLOCK, "{}", lines.buffer.len());
    }

    #[test]
    fn a_giant_line_may_grow_while_it_is_read() {
        let giant = format!(
            "{{\"text\":\"{}\",\"last\":1}}",
            "x".repeat(GIANT + 2 * BLOCK)
        );
        let content = format!("one\n{giant}\ntwo\n");
        let mut growing = tempfile::tempfile().unwrap();
        let mut lines =
            FileLines::new(Arc::new(growing.try_clone().unwrap()), EntrySplit::Lines, 0);
        lines.enable_shortening();
        let mut found = Vec::new();
        let mut length = 0;
        for piece in content.as_bytes().chunks(content.len() / 40 + 1) {
            growing.write_all(piece).unwrap();
            length += piece.len() as u64;
            found.extend(all(&mut lines, length, false));
            assert_eq!(
                lines.offset(),
                if length == content.len() as u64 {
                    length
                } else {
                    4
                }
            );
            assert!(
                lines.buffer.len() <= 2 * (GIANT + BLOCK),
                "{}",
                lines.buffer.len()
            );
        }
        assert_eq!(found.len(), 3);
        assert_eq!(
            (found[0].0, found[1].0, found[2].0),
            (0, 4, (giant.len() + 5) as u64)
        );
        let short = String::from_utf8(found[1].1.clone()).unwrap();
        assert!(
            short.len() < 100 << 10 && short.ends_with("xx\",\"last\":1}"),
            "{} bytes",
            short.len()
        );
        lines.seek(4);
        assert_eq!(all(&mut lines, length, true), &found[1..]);
    }

    #[test]
    fn shrunk_file_is_reported() {
        let file = file(b"one\ntwo\n");
        let mut lines = FileLines::new(Arc::clone(&file), EntrySplit::Lines, 0);
        file.set_len(2).unwrap();
        assert!(matches!(lines.next(8, true), Ok(NextLine::Shrunk)));
    }

    proptest! {
        #[test]
        fn growth_in_pieces_gives_the_same_lines(
            pieces in prop::collection::vec("[ab\n]{0,9}", 0..12),
            rewind in any::<prop::sample::Index>(),
        ) {
            let content = pieces.concat();
            let expected: Vec<Vec<u8>> = content.lines().map(|line| line.as_bytes().to_vec()).collect();
            let mut growing = tempfile::tempfile().unwrap();
            let mut lines = FileLines::new(Arc::new(growing.try_clone().unwrap()), EntrySplit::Lines, 0);
            let mut found = Vec::new();
            let mut length = 0;
            for piece in &pieces {
                growing.write_all(piece.as_bytes()).unwrap();
                length += piece.len() as u64;
                found.extend(all(&mut lines, length, false));
            }
            found.extend(all(&mut lines, length, true));
            prop_assert_eq!(found.iter().map(|(_, line)| line.clone()).collect::<Vec<_>>(), expected);
            if !found.is_empty() {
                let from = rewind.index(found.len());
                lines.seek(found[from].0);
                prop_assert_eq!(all(&mut lines, length, true), &found[from..]);
            }
        }
    }
}
