//! Bytes that come in blocks, cut into lines. Pure.

/// Cuts lines. Every byte is looked at once and copied once at most, in however many blocks its line comes.
#[derive(Debug)]
pub(super) struct LineSplitter {
    /// The beginning of a line that is not complete yet.
    rest: Vec<u8>,
    /// Most bytes of a line that are kept for it.
    max_line: usize,
    /// The line that goes on is longer: it is left out.
    is_skipping: bool,
}

impl LineSplitter {
    /// Leaves out lines that are longer than about `most` bytes.
    pub(super) fn new(most: usize) -> Self {
        Self { rest: Vec::new(), max_line: most, is_skipping: false }
    }

    /// Takes the next block, and hands over the lines that it completes, without their newlines.
    pub(super) fn feed(&mut self, mut block: &[u8], line: &mut dyn FnMut(&[u8])) {
        while let Some(end) = memchr::memchr(b'\n', block) {
            let (piece, more) = (&block[..end], &block[end + 1..]);
            if std::mem::take(&mut self.is_skipping) {
                // Its beginning is gone already.
            } else if self.rest.is_empty() {
                line(piece);
            } else {
                self.rest.extend_from_slice(piece);
                // Lines as long as this are rare, and their room is large.
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
        blocks.iter().for_each(|block| cutter.feed(block, &mut |line| lines.push(line.to_vec())));
        lines
    }

    #[test]
    fn overlong_line_is_skipped_alone() {
        assert_eq!(cut(4, &[b"ab", b"cd", b"e", b"fgh", b"\nij\n", b"k"]), [b"ij"]);
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
