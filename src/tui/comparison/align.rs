//! Alignment of the calls of two attempts at one unit: common calls, the first difference, and different outcomes.
//!
//! Pure. Two calls match when their tool and their most specific argument are equal; differences in other arguments,
//! outcome and result are reported for the pair. Messages are not compared, because a model never repeats them exactly.

use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};

use ingestdeck_core::run::state::RowOutcome;

/// Time limit of the alignment. After it, the result is correct but may not be minimal.
const ALIGN_TIMEOUT: Duration = Duration::from_millis(60);

/// The properties of a call that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AlignedCall {
    /// Index of its row.
    pub row: usize,
    /// Hash of the tool's name.
    pub tool: u64,
    /// Hash of the tool and its most specific argument.
    pub action: u64,
    /// Hash of all arguments.
    pub input: u64,
    pub end: RowOutcome,
    /// Hash of the result, once there is one.
    pub result: Option<u64>,
}

/// Two matching calls, or a call that only one attempt made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallPair {
    /// Row of the older attempt.
    pub left: Option<usize>,
    /// Row of the newer attempt.
    pub right: Option<usize>,
    pub difference: CallDifference,
}

/// The difference between two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CallDifference {
    Same,
    /// The same call had another result.
    Result,
    /// The same call had another outcome.
    Outcome,
    /// The same tool was called with other arguments.
    Arguments,
    /// Only the older attempt made the call.
    OnlyLeft,
    /// Only the newer attempt made the call.
    OnlyRight,
}

/// Pairs all calls of both attempts, in order.
pub(crate) fn align(left: &[AlignedCall], right: &[AlignedCall]) -> Vec<CallPair> {
    let actions = |calls: &[AlignedCall]| calls.iter().map(|call| call.action).collect::<Vec<_>>();
    let until = Instant::now().checked_add(ALIGN_TIMEOUT);
    let ops =
        capture_diff_slices_deadline(Algorithm::Myers, &actions(left), &actions(right), until);
    let mut pairs = Vec::with_capacity(left.len().max(right.len()));
    for op in ops {
        let (olds, news) = (&left[op.old_range()], &right[op.new_range()]);
        match op {
            DiffOp::Equal { .. } => {
                pairs.extend(olds.iter().zip(news).map(|(old, new)| paired(old, new)))
            }
            DiffOp::Delete { .. } | DiffOp::Insert { .. } | DiffOp::Replace { .. } => {
                replaced(&mut pairs, olds, news)
            }
        }
    }
    pairs
}

/// Pairs calls of the same tool while both keep their order.
fn replaced(pairs: &mut Vec<CallPair>, olds: &[AlignedCall], mut news: &[AlignedCall]) {
    for old in olds {
        match news.iter().position(|new| new.tool == old.tool) {
            Some(place) => {
                pairs.extend(news[..place].iter().map(right_only));
                pairs.push(paired(old, &news[place]));
                news = &news[place + 1..];
            }
            None => pairs.push(CallPair {
                left: Some(old.row),
                right: None,
                difference: CallDifference::OnlyLeft,
            }),
        }
    }
    pairs.extend(news.iter().map(right_only));
}

fn right_only(call: &AlignedCall) -> CallPair {
    CallPair {
        left: None,
        right: Some(call.row),
        difference: CallDifference::OnlyRight,
    }
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
    CallPair {
        left: Some(old.row),
        right: Some(new.row),
        difference: how,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Calls by letters: `a` is a call, `A` the same call with other arguments; `x` and `y` are calls of one tool.
    fn calls(text: &str) -> Vec<AlignedCall> {
        let call = |(row, char): (usize, char)| {
            let action = u64::from(char.to_ascii_lowercase());
            let tool = if matches!(char, 'x' | 'y') { 0 } else { action };
            AlignedCall {
                row,
                tool,
                action,
                input: u64::from(char),
                end: RowOutcome::Ok,
                result: Some(1),
            }
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
        align(&calls(left), &calls(right))
            .iter()
            .map(sign)
            .collect()
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
        right[1].end = RowOutcome::Failed;
        let hows: Vec<_> = align(&left, &right)
            .iter()
            .map(|pair| pair.difference)
            .collect();
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
