//! The comparison of two attempts at a unit. Plain data; [`super::load`] makes it.

use align::{CallDifference, CallPair};
use ingestdeck_core::run::state::AttemptId;

pub(crate) mod align;

/// Key of a comparison: for both attempts the id, the number of rows and the version of the summary.
pub(crate) type CompareKey = [(AttemptId, usize, u64); 2];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    /// The calls of both attempts, aligned.
    pub pairs: Vec<CallPair>,
    /// Numbers of lines that only the newer prompt and only the older prompt has; `None` if a prompt is unknown.
    pub prompt: Option<(usize, usize)>,
    /// The pair of the failed call because of which an attempt failed, the older attempt before the newer one.
    pub decisive: Option<usize>,
    /// True if the attempts ran on different releases of the agent's program.
    pub has_other_release: bool,
    /// The paths that each attempt wrote.
    pub written: [Vec<String>; 2],
}

impl Comparison {
    /// The pair to begin with: that of the failed call because of which an attempt failed, or the first that differs.
    pub(crate) fn start(&self) -> Option<usize> {
        self.decisive.or_else(|| self.first())
    }

    /// The first pair that differs.
    pub(crate) fn first(&self) -> Option<usize> {
        self.pairs
            .iter()
            .position(|pair| pair.difference != CallDifference::Same)
    }
}
