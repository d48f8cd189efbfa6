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
    /// True if the attempts ran on different releases of the agent's program.
    pub has_other_release: bool,
    /// The paths that each attempt wrote.
    pub written: [Vec<String>; 2],
}

impl Comparison {
    /// The first pair that differs.
    pub(crate) fn first(&self) -> Option<usize> {
        self.pairs
            .iter()
            .position(|pair| pair.difference != CallDifference::Same)
    }
}
