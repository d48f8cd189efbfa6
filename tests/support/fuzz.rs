//! Mutation fuzzing with a fixed seed and a fixed number of inputs; `INGESTDECK_FUZZ_SECONDS` lets each suite run for
//! that long with new seeds instead. If an input breaks a suite, it is printed; add a test for it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Number of inputs of a suite without a time limit.
const INPUTS: u32 = 1_000;
/// Longest input, in bytes.
const LONGEST: usize = 1 << 16;

/// Tokens that often break parsers.
const TOKENS: [&[u8]; 32] = [
    b"\0",
    b"\n",
    b"\r\n",
    b"\t",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\\ud800",
    b"\\u0000",
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"null",
    b"true",
    b"-0",
    b"1e999",
    b"18446744073709551616",
    b"-9223372036854775809",
    b"{}",
    b"[[[[[[[[",
    b"- - - -",
    b"&a [*a]",
    b"!!binary",
    b"|\n  ",
    b"\x1b]52;c;UFdO\x07",
    b"\xe2\x80\xae",
    b"../../..",
];

struct FuzzRng(u64);

impl FuzzRng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which must not be 0.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let at = self.below(bytes.len() + 1);
        let end = (at + self.below(32)).min(bytes.len());
        match self.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            1 => drop(bytes.drain(at..end)),
            2 => bytes.truncate(at),
            3 => {
                let piece = bytes[at..end].repeat(1 + self.below(8));
                bytes.splice(at..at, piece);
            }
            4 if !other.is_empty() => {
                let from = self.below(other.len());
                let to = (from + self.below(256)).min(other.len());
                bytes.splice(at..end, other[from..to].iter().copied());
            }
            5 => {
                let depth = 1 + self.below(300);
                let token = TOKENS[self.below(TOKENS.len())];
                bytes.splice(
                    at..at,
                    token.repeat(if self.below(8) == 0 { depth } else { 1 }),
                );
            }
            _ => drop(bytes.splice(at..end, TOKENS[self.below(TOKENS.len())].iter().copied())),
        }
        bytes.truncate(LONGEST);
    }
}

/// Calls `check` with mutations of `corpus`. If it panics, the test fails and reports the input.
pub fn fuzz(suite: &str, corpus: &[Vec<u8>], check: impl Fn(&[u8])) {
    let seconds = std::env::var("INGESTDECK_FUZZ_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let deadline = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let seed = seconds
        .and_then(|_| SystemTime::now().duration_since(UNIX_EPOCH).ok())
        .map_or(1, |now| now.as_nanos() as u64);
    let mut random = FuzzRng(seed);
    let mut inputs = 0_u32;
    while deadline.map_or(inputs < INPUTS, |deadline| Instant::now() < deadline) {
        let mut input = corpus[random.below(corpus.len())].clone();
        for _ in 0..random.below(6) {
            let other = &corpus[random.below(corpus.len())];
            random.mutate(&mut input, other);
        }
        if catch_unwind(AssertUnwindSafe(|| check(&input))).is_err() {
            panic!(
                "{suite}: input {inputs} of seed {seed}: b\"{}\"",
                input.escape_ascii()
            );
        }
        inputs += 1;
    }
    assert!(inputs > 0, "{suite}: no time for any input");
}
