//! Bytes that come in blocks, cut into lines. Pure.

/// Cuts lines. Every byte is looked at once and copied once at most, in however many blocks its line comes.
#[derive(Debug)]
pub(super) struct Cutter {
    /// The beginning of a line that is not complete yet.
    rest: Vec<u8>,
    /// Most bytes of a line that are kept for it.
    most: usize,
    /// The line that goes on is longer: it is left out.
    skips: bool,
}

impl Cutter {
    /// Leaves out lines that are longer than about `most` bytes.
    pub(super) fn new(most: usize) -> Self {
        Self { rest: Vec::new(), most, skips: false }
    }

    /// Takes the next block, and hands over the lines that it completes, without their newlines.
    pub(super) fn take(&mut self, mut block: &[u8], line: &mut dyn FnMut(&[u8])) {
        while let Some(end) = memchr::memchr(b'\n', block) {
            let (piece, more) = (&block[..end], &block[end + 1..]);
            if std::mem::take(&mut self.skips) {
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
        self.skips |= self.rest.len() + block.len() > self.most;
        if self.skips {
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
        let (mut cutter, mut lines) = (Cutter::new(most), Vec::new());
        blocks.iter().for_each(|block| cutter.take(block, &mut |line| lines.push(line.to_vec())));
        lines
    }

    #[test]
    fn a_line_that_is_too_long_costs_no_other() {
        assert_eq!(cut(4, &[b"ab", b"cd", b"e", b"fgh", b"\nij\n", b"k"]), [b"ij"]);
        assert_eq!(cut(4, &[b"ab", b"cd", b"\n"]), [b"abcd"]);
    }

    proptest! {
        #[test]
        fn blocks_do_not_matter(bytes in prop::collection::vec(prop::sample::select(b"ab\n".to_vec()), 0..40), size in 1..9_usize) {
            let blocks: Vec<&[u8]> = bytes.chunks(size).collect();
            let mut whole: Vec<Vec<u8>> = bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            whole.pop();
            prop_assert_eq!(cut(usize::MAX, &blocks), whole);
        }
    }
}
