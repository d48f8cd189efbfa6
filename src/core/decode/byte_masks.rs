//! Bit masks of the bytes in a 64-byte block that are special in JSON strings.
//!
//! The only module that calls vector instructions. It must not depend on how strings are used.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m128i, __m256i, _mm_cmpeq_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_set_epi64x,
    _mm_set1_epi8, _mm256_cmpeq_epi8, _mm256_min_epu8, _mm256_movemask_epi8, _mm256_set_epi64x,
    _mm256_set1_epi8,
};

pub(crate) const BLOCK: usize = 64;

/// Number of bytes that one vector instruction processes.
pub(crate) const LANE: usize = 16;

/// Masks of one block: bit `n` describes byte `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ByteMasks {
    pub(crate) quotes: u64,
    pub(crate) backslashes: u64,
    pub(crate) controls: u64,
    newlines: u64,
}

impl ByteMasks {
    /// Masks of the block that starts at `at`. Bits beyond the end of `bytes` are zero.
    #[inline(always)]
    pub(crate) fn from_bytes_at(bytes: &[u8], at: usize) -> Self {
        let rest = bytes.get(at..).unwrap_or_default();
        match rest.first_chunk() {
            Some(block) => Self::from_block(block),
            None => Self::from_partial_block(rest),
        }
    }

    /// [`from_bytes_at`](Self::from_bytes_at) for processors with AVX2: takes half the instructions.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    #[inline]
    pub(crate) fn from_bytes_at_avx2(bytes: &[u8], at: usize) -> Self {
        let rest = bytes.get(at..).unwrap_or_default();
        match rest.first_chunk() {
            Some(block) => Self::from_block_avx2(block),
            None => Self::from_partial_block(rest),
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    #[inline]
    fn from_block_avx2(block: &[u8; BLOCK]) -> Self {
        let (words, _) = block.as_chunks();
        let word = |index: usize| words.get(index).map_or(0, |word| i64::from_le_bytes(*word));
        // The compiler makes one load of the four words.
        let half = |first: usize| {
            _mm256_set_epi64x(
                word(first + 3),
                word(first + 2),
                word(first + 1),
                word(first),
            )
        };
        let (low, high) = (half(0), half(4));
        let mask = |is_found: &dyn Fn(__m256i) -> __m256i| {
            let bits = |half| u64::from(_mm256_movemask_epi8(is_found(half)).cast_unsigned());
            bits(low) | bits(high) << 32
        };
        let equal =
            |byte: u8| mask(&|half| _mm256_cmpeq_epi8(half, _mm256_set1_epi8(byte.cast_signed())));
        Self {
            quotes: equal(b'"'),
            backslashes: equal(b'\\'),
            controls: mask(&|half| {
                _mm256_cmpeq_epi8(_mm256_min_epu8(half, _mm256_set1_epi8(0x1F)), half)
            }),
            newlines: equal(b'n'),
        }
    }

    /// Masks of a block with fewer than [`BLOCK`] bytes.
    #[inline(never)]
    fn from_partial_block(rest: &[u8]) -> Self {
        let mut block = [b' '; BLOCK];
        block[..rest.len()].copy_from_slice(rest);
        Self::from_block(&block)
    }

    #[inline(always)]
    fn from_block(block: &[u8; BLOCK]) -> Self {
        let mut bits = Self::default();
        let (lanes, _) = block.as_chunks::<LANE>();
        for (index, lane) in lanes.iter().enumerate() {
            let lane = Self::from_lane(lane);
            bits.quotes |= lane.quotes << (index * LANE);
            bits.backslashes |= lane.backslashes << (index * LANE);
            bits.controls |= lane.controls << (index * LANE);
            bits.newlines |= lane.newlines << (index * LANE);
        }
        bits
    }

    /// Masks of 16 bytes: enough for most keys and values.
    #[inline(always)]
    pub(crate) fn from_lane(lane: &[u8; LANE]) -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            #[expect(unsafe_code, reason = "a call of a function with a target feature")]
            // SAFETY: every x86-64 processor has SSE2.
            unsafe {
                Self::from_lane_sse2(lane)
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        Self::from_lane_words(lane)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "sse2")]
    #[inline]
    fn from_lane_sse2(lane: &[u8; LANE]) -> Self {
        let (words, _) = lane.as_chunks();
        let word = |index: usize| words.get(index).map_or(0, |word| i64::from_le_bytes(*word));
        let lane = _mm_set_epi64x(word(1), word(0));
        let mask = |found: __m128i| u64::from(_mm_movemask_epi8(found).cast_unsigned());
        let equal = |byte: u8| mask(_mm_cmpeq_epi8(lane, _mm_set1_epi8(byte.cast_signed())));
        Self {
            quotes: equal(b'"'),
            backslashes: equal(b'\\'),
            controls: mask(_mm_cmpeq_epi8(
                _mm_min_epu8(lane, _mm_set1_epi8(0x1F)),
                lane,
            )),
            newlines: equal(b'n'),
        }
    }

    /// Without vector instructions: eight bytes are one word.
    #[cfg(any(test, not(target_arch = "x86_64")))]
    #[inline(always)]
    fn from_lane_words(lane: &[u8; LANE]) -> Self {
        const ONES: u64 = 0x0101_0101_0101_0101;
        let (words, _) = lane.as_chunks();
        let mask = |kept: u8, byte: u8| {
            words.iter().rev().fold(0, |mask, word| {
                let other = (u64::from_le_bytes(*word) & (ONES * u64::from(kept)))
                    ^ (ONES * u64::from(byte));
                // The high bit of each byte that is not zero, then one bit for each byte that is.
                let different = ((other & (ONES * 0x7F)) + ONES * 0x7F) | other;
                let equal = !different >> 7 & ONES;
                mask << 8 | equal.wrapping_mul(0x0102_0408_1020_4080) >> 56
            })
        };
        Self {
            quotes: mask(0xFF, b'"'),
            backslashes: mask(0xFF, b'\\'),
            controls: mask(0xE0, 0),
            newlines: mask(0xFF, b'n'),
        }
    }

    /// The bytes that backslashes escape most often: quotes, backslashes and the `n` of a newline.
    #[inline]
    pub(crate) fn common_escapes(self) -> u64 {
        self.quotes | self.backslashes | self.newlines
    }

    /// The bytes that a backslash escapes. `carry` is true if the previous block ended in an open escape; it is set for
    /// the next block.
    #[inline]
    pub(crate) fn escaped(self, carry: &mut bool) -> u64 {
        const EVEN: u64 = 0x5555_5555_5555_5555;
        let first = u64::from(*carry);
        if self.backslashes == 0 {
            *carry = false;
            return first;
        }
        // A run of backslashes escapes the byte after it if its length is odd. Adding the runs that start at odd
        // positions to themselves carries a bit out of the end of each; comparing that with even positions yields the
        // parity.
        let backslashes = self.backslashes & !first;
        let follows = backslashes << 1 | first;
        let odd_starts = backslashes & !EVEN & !follows;
        let (even_runs, overflow) = odd_starts.overflowing_add(backslashes);
        *carry = overflow;
        (EVEN ^ (even_runs << 1)) & follows
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_byte_has_the_same_masks_without_vectors() {
        for byte in 0..=u8::MAX {
            for at in 0..LANE {
                let mut lane = [b'x'; LANE];
                lane[at] = byte;
                let masks = ByteMasks::from_lane(&lane);
                assert_eq!(ByteMasks::from_lane_words(&lane), masks, "{byte} at {at}");
                assert_eq!(masks.controls, u64::from(byte < 0x20) << at);
            }
        }
    }

    proptest! {
        #[test]
        fn masks_are_the_same_without_vectors(lane in any::<[u8; LANE]>()) {
            prop_assert_eq!(ByteMasks::from_lane_words(&lane), ByteMasks::from_lane(&lane));
        }

        #[test]
        fn masks_are_the_same_with_avx2(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0_usize..210) {
            if is_x86_feature_detected!("avx2") {
                #[expect(unsafe_code, reason = "AVX2 was detected")]
                // SAFETY: the processor has AVX2.
                let masks = unsafe { ByteMasks::from_bytes_at_avx2(&bytes, at) };
                prop_assert_eq!(masks, ByteMasks::from_bytes_at(&bytes, at));
            }
        }
    }
}
