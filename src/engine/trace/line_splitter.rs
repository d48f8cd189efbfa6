//! Splits blocks of bytes into lines. Pure.

/// Splits lines. Scans every byte once and copies it at most once, regardless of the number of blocks.
#[derive(Debug)]
pub(super) struct LineSplitter {
    /// The beginning of an incomplete line.
    rest: Vec<u8>,
    /// Maximum number of bytes that are kept of a line.
    max_line: usize,
    /// True while the rest of an oversized line is skipped.
    is_skipping: bool,
}

impl LineSplitter {
    /// Skips lines that are longer than about `most` bytes.
    pub(super) fn new(most: usize) -> Self {
        Self {
            rest: Vec::new(),
            max_line: most,
            is_skipping: false,
        }
    }

    /// Adds the next block, and passes the completed lines without their newlines.
    pub(super) fn feed(&mut self, mut block: &[u8], line: &mut dyn FnMut(&[u8])) {
        while let Some(end) = memchr::memchr(b'\n', block) {
            let (piece, more) = (&block[..end], &block[end + 1..]);
            if std::mem::take(&mut self.is_skipping) {
                // The beginning of this line was skipped.
            } else if self.rest.is_empty() {
                line(piece);
            } else {
                self.rest.extend_from_slice(piece);
                // Lines of this size are rare, so their memory is released.
                line(&std::mem::take(&mut self.rest));
            }
            block = more;
        }
        self.is_skipping |= self.rest.len() + block.len() > self.max_line;
        if self.is_skipping {
            self.rest = Vec::new();
        } else {
            self.rest.extend_from_slice(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(most: usize, blocks: &[&[u8]]) -> Vec<Vec<u8>> {
        let (mut cutter, mut lines) = (LineSplitter::new(most), Vec::new());
        blocks
            .iter()
            .for_each(|block| cutter.feed(block, &mut |line| lines.push(line.to_vec())));
        lines
    }

    #[test]
    fn overlong_line_is_skipped_alone() {
        assert_eq!(
            cut(4, &[b"ab", b"cd", b"e", b"fgh", b"\nij\n", b"k"]),
            [b"ij"]
        );
        assert_eq!(cut(4, &[b"ab", b"cd", b"\n"]), [b"abcd"]);
    }

    proptest! {
        #[test]
        fn lines_are_independent_of_block_size(bytes in prop::collection::vec(prop::sample::select(b"ab\n".to_vec()), 0..40), size in 1..9_usize) {
            let blocks: Vec<&[u8]> = bytes.chunks(size).collect();
            let mut whole: Vec<Vec<u8>> = bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            whole.pop();
            prop_assert_eq!(cut(usize::MAX, &blocks), whole);
        }
    }
}
