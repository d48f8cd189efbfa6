//! A run that has begun: its id, and where the executor of its attempts records and asks.

use std::sync::Arc;

use super::{approval::ApprovalQueue, review::RunReview};
use ingestdeck_core::{
    run::{Recorder, otlp::RunTrace},
    tape::RunId,
};

/// What the executor of a run receives from the run, and the controller shares with it.
#[derive(Clone, Debug)]
pub(crate) struct StartedRun {
    pub id: RunId,
    pub recorder: Arc<dyn Recorder>,
    /// Where the decisions of clients about calls arrive.
    pub approvals: Arc<ApprovalQueue>,
    /// Where the decisions of clients about changes arrive.
    pub review: Arc<RunReview>,
    /// The trace that agents continue, if anything records it.
    pub trace: Option<RunTrace>,
}
