//! Two attempts at one unit, call by call: what both did, where they parted, and what came of it.
//!
//! Pure. Calls are the same when tool and most telling argument are; whether arguments, outcome and result are the same
//! too is told beside it. Texts are not compared: a model never says the same thing twice.

use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};

use crate::run::state::RowEnd;

/// After this the alignment takes what it has, which is still right but may not be the shortest.
const ALIGN_TIMEOUT: Duration = Duration::from_millis(60);

/// A call, as far as it is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlignedCall {
    /// Its row.
    pub row: usize,
    /// Its tool.
    pub tool: u64,
    /// Tool and most telling argument.
    pub action: u64,
    /// All arguments.
    pub input: u64,
    /// How it ended.
    pub end: RowEnd,
    /// Its result, if it has one yet.
    pub result: Option<u64>,
}

/// Two calls that stand side by side, or one that stands alone. Rows of left and right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallPair {
    /// Row of the older attempt.
    pub left: Option<usize>,
    /// Row of the newer one.
    pub right: Option<usize>,
    /// How they compare.
    pub difference: CallDifference,
}

/// How two calls compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallDifference {
    /// Nothing differs.
    Same,
    /// The same call brought another result.
    Result,
    /// The same call ended otherwise.
    Outcome,
    /// The same tool with other arguments.
    Arguments,
    /// Only the older attempt made it.
    OnlyLeft,
    /// Only the newer one did.
    OnlyRight,
}

/// Every call of both, in order.
pub fn align(left: &[AlignedCall], right: &[AlignedCall]) -> Vec<CallPair> {
    let actions = |calls: &[AlignedCall]| calls.iter().map(|call| call.action).collect::<Vec<_>>();
    let until = Instant::now().checked_add(ALIGN_TIMEOUT);
    let ops = capture_diff_slices_deadline(Algorithm::Myers, &actions(left), &actions(right), until);
    let mut pairs = Vec::with_capacity(left.len().max(right.len()));
    for op in ops {
        let (olds, news) = (&left[op.old_range()], &right[op.new_range()]);
        match op {
            DiffOp::Equal { .. } => pairs.extend(olds.iter().zip(news).map(|(old, new)| paired(old, new))),
            DiffOp::Delete { .. } | DiffOp::Insert { .. } | DiffOp::Replace { .. } => replaced(&mut pairs, olds, news),
        }
    }
    pairs
}

/// Calls that differ: those of one tool are set side by side as long as the order of both stays.
fn replaced(pairs: &mut Vec<CallPair>, olds: &[AlignedCall], mut news: &[AlignedCall]) {
    for old in olds {
        match news.iter().position(|new| new.tool == old.tool) {
            Some(place) => {
                pairs.extend(news[..place].iter().map(right_only));
                pairs.push(paired(old, &news[place]));
                news = &news[place + 1..];
            }
            None => pairs.push(CallPair { left: Some(old.row), right: None, difference: CallDifference::OnlyLeft }),
        }
    }
    pairs.extend(news.iter().map(right_only));
}

fn right_only(call: &AlignedCall) -> CallPair {
    CallPair { left: None, right: Some(call.row), difference: CallDifference::OnlyRight }
}

fn paired(old: &AlignedCall, new: &AlignedCall) -> CallPair {
    let how = if (old.action, old.input) != (new.action, new.input) {
        CallDifference::Arguments
    } else if old.end != new.end {
        CallDifference::Outcome
    } else if old.result != new.result {
        CallDifference::Result
    } else {
        CallDifference::Same
    };
    CallPair { left: Some(old.row), right: Some(new.row), difference: how }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Calls by letters: `a` a call, `A` the same call with other arguments, `x` a call of the tool of `y`.
    fn calls(text: &str) -> Vec<AlignedCall> {
        let call = |(row, char): (usize, char)| {
            let action = u64::from(char.to_ascii_lowercase());
            let tool = if matches!(char, 'x' | 'y') { 0 } else { action };
            AlignedCall { row, tool, action, input: u64::from(char), end: RowEnd::Ok, result: Some(1) }
        };
        text.chars().enumerate().map(call).collect()
    }

    fn shown(left: &str, right: &str) -> String {
        let sign = |pair: &CallPair| match pair.difference {
            CallDifference::Same => '=',
            CallDifference::Result => '~',
            CallDifference::Outcome => '!',
            CallDifference::Arguments => '/',
            CallDifference::OnlyLeft => '<',
            CallDifference::OnlyRight => '>',
        };
        align(&calls(left), &calls(right)).iter().map(sign).collect()
    }

    #[test]
    fn attempts_are_set_side_by_side() {
        assert_eq!(shown("abc", "abc"), "===");
        assert_eq!(shown("abc", "aBc"), "=/=");
        assert_eq!(shown("abc", "ac"), "=<=");
        assert_eq!(shown("ac", "abc"), "=>=");
        assert_eq!(shown("axc", "ayc"), "=/=", "one tool, another argument");
        assert_eq!(shown("abc", "adc"), "=<>=", "another tool");
        assert_eq!(shown("", "ab"), ">>");
        assert_eq!(shown("", ""), "");
    }

    #[test]
    fn outcome_and_result_are_told_apart() {
        let (left, mut right) = (calls("ab"), calls("ab"));
        right[0].result = Some(2);
        right[1].end = RowEnd::Failed;
        let hows: Vec<_> = align(&left, &right).iter().map(|pair| pair.difference).collect();
        assert_eq!(hows, [CallDifference::Result, CallDifference::Outcome]);
    }

    proptest! {
        #[test]
        fn alignment_keeps_every_call_once_and_in_order(left in "[abcdxyAB]{0,30}", right in "[abcdxyAB]{0,30}") {
            let pairs = align(&calls(&left), &calls(&right));
            let lefts: Vec<_> = pairs.iter().filter_map(|pair| pair.left).collect();
            let rights: Vec<_> = pairs.iter().filter_map(|pair| pair.right).collect();
            prop_assert_eq!(lefts, (0..left.len()).collect::<Vec<_>>());
            prop_assert_eq!(rights, (0..right.len()).collect::<Vec<_>>());
            prop_assert!(pairs.iter().all(|pair| pair.left.is_some() || pair.right.is_some()));
        }
    }
}
