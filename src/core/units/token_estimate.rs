//! Estimates the tokens of a unit before any unit like it has run, from the sizes of its prompt and files.
//!
//! An agent sends all that it has received again with each request. The low estimate is an agent that reads several files in
//! a turn and then writes; the high one reads them one by one and searches and checks before it writes. The range is at
//! most [`MAX_RATIO`] wide. Output tokens are a guess.

/// Bytes of English text or code for a token, roughly.
pub const BYTES_PER_TOKEN: u64 = 4;
/// Most files that an agent reads in one turn.
const FILES_PER_TURN: u64 = 8;
/// Turns after reading: few, and many.
const FURTHER_TURNS: (u64, u64) = (2, 8);
/// Tokens that each turn adds to the session, besides files: calls and their replies.
const TURN_TOKENS: (u64, u64) = (150, 700);
/// Largest ratio of the high to the low estimate.
pub const MAX_RATIO: u64 = 4;

/// The sizes of a unit in bytes, before it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitSize {
    /// System prompt and tools, which units of an adapter share.
    pub shared_prompt: u64,
    /// User prompt, with the names of the files.
    pub own_prompt: u64,
    pub raw_files: u64,
    /// Files that it may read in addition.
    pub dependencies: u64,
    /// Fewest calls that read its raw files.
    pub read_calls: u64,
}

/// A low and a high estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EstimateRange<T> {
    pub low: T,
    pub high: T,
}

/// Estimates for an attempt, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TokenEstimate {
    /// The context that the attempt needs to have read its prompt, tools and raw files.
    pub context: u64,
    /// Input tokens of all requests, cached ones included.
    pub input: EstimateRange<u64>,
    /// Input tokens that are sent for the first time; the cache has the others.
    pub new: EstimateRange<u64>,
    /// Output tokens of all requests.
    pub output: EstimateRange<u64>,
}

impl UnitSize {
    /// Estimates an attempt at a unit of this size.
    pub fn estimate(&self) -> TokenEstimate {
        let tokens = |bytes: u64| bytes.div_ceil(BYTES_PER_TOKEN);
        let [shared, own, files] =
            [self.shared_prompt, self.own_prompt, self.raw_files].map(tokens);
        let more = tokens(self.dependencies).min(files);
        let calls = self.read_calls.max(1);
        let low = SessionShape {
            prompt: shared + own,
            files,
            read_turns: calls.div_ceil(FILES_PER_TURN),
            further_turns: FURTHER_TURNS.0,
            turn_tokens: TURN_TOKENS.0,
        };
        let high = SessionShape {
            files: files + more,
            read_turns: calls,
            further_turns: FURTHER_TURNS.1,
            turn_tokens: TURN_TOKENS.1,
            ..low
        };
        let least = low.input_tokens();
        let input = EstimateRange {
            low: least,
            high: high.input_tokens().min(least * MAX_RATIO),
        };
        let output = EstimateRange {
            low: low.turns() * TURN_TOKENS.0 + files / 20,
            high: high.turns() * TURN_TOKENS.1 / 2 + files / 4,
        };
        // In the low estimate the cache still has the shared prompt from another unit.
        let new = EstimateRange {
            low: (own + files).min(input.low),
            high: (shared + own + files + more).min(input.high),
        };
        TokenEstimate {
            context: shared + own + files,
            input,
            new,
            output,
        }
    }
}

/// Turns of an attempt, and what they send.
#[derive(Clone, Copy)]
struct SessionShape {
    prompt: u64,
    files: u64,
    read_turns: u64,
    further_turns: u64,
    turn_tokens: u64,
}

impl SessionShape {
    fn turns(&self) -> u64 {
        self.read_turns + self.further_turns
    }

    /// Each turn sends the prompt, the files that were read before it, and the earlier turns.
    fn input_tokens(&self) -> u64 {
        let turns = self.turns();
        self.prompt * turns
            + self.files * (self.read_turns - 1) / 2
            + self.files * self.further_turns
            + self.turn_tokens * turns * (turns - 1) / 2
    }
}

/// The sum of `estimates`, with the largest context.
pub fn sum_estimates(estimates: impl Iterator<Item = TokenEstimate>) -> TokenEstimate {
    estimates.fold(TokenEstimate::default(), |sum, of| TokenEstimate {
        context: sum.context.max(of.context),
        input: EstimateRange {
            low: sum.input.low + of.input.low,
            high: sum.input.high + of.input.high,
        },
        output: EstimateRange {
            low: sum.output.low + of.output.low,
            high: sum.output.high + of.output.high,
        },
        new: EstimateRange {
            low: sum.new.low + of.new.low,
            high: sum.new.high + of.new.high,
        },
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn range_holds_usual_sessions() {
        let size = |files: u64, bytes: u64| UnitSize {
            shared_prompt: 40_000,
            own_prompt: 2_000,
            raw_files: bytes,
            dependencies: 0,
            read_calls: files,
        };
        // Prompt and files in each of so many turns, of which the first ones read.
        let session = |files: u64, bytes: u64, reads: u64, more: u64| {
            let before = |turn: u64| bytes / 4 * turn.min(reads) / reads + turn * 300;
            let total = (0..reads + more)
                .map(|turn| 10_500 + before(turn))
                .sum::<u64>();
            let EstimateRange { low, high } = size(files, bytes).estimate().input;
            (low..=high).contains(&total)
        };
        assert!(session(1, 8_000, 1, 2) && session(1, 8_000, 1, 8));
        assert!(session(3, 30_000, 1, 3) && session(3, 30_000, 3, 7));
        assert!(session(12, 100_000, 2, 4) && session(12, 100_000, 4, 5));
        assert!(!session(1, 8_000, 1, 40));
    }

    proptest! {
        #[test]
        fn estimates_are_in_order_and_at_most_four_times_apart(
            shared in 0..400_000_u64, own in 1..60_000_u64, files in 0..4_000_000_u64, more in 0..4_000_000_u64,
            calls in 0..400_u64,
        ) {
            let size = UnitSize {
                shared_prompt: shared, own_prompt: own, raw_files: files, dependencies: more, read_calls: calls,
            };
            let of = size.estimate();
            prop_assert!(of.context <= of.input.low && of.input.low <= of.input.high);
            prop_assert!(of.input.high <= MAX_RATIO * of.input.low);
            prop_assert!(of.output.low <= of.output.high);
            prop_assert!(of.new.low <= of.new.high && of.new.low <= of.input.low && of.new.high <= of.input.high);
            let double = sum_estimates([of, of].into_iter());
            prop_assert_eq!((double.input.low, double.context), (2 * of.input.low, of.context));
        }
    }
}
