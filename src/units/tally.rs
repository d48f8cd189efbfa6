//! Failure counting (seed rule): every tool call that failed counts once, whoever reports it.

/// Failed calls of one attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    failed: Vec<FailedCall>,
}

/// One failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedCall {
    /// Tool without its server prefix.
    pub tool: String,
    /// Id of the call, where known.
    pub tool_use_id: Option<String>,
    /// Error text.
    pub message: String,
    /// A later call of the same kind on the same subject succeeded.
    pub recovered: bool,
}

impl Tally {
    /// Reports a failure. True if it was not counted yet; without an id it always counts.
    pub fn failed(&mut self, _tool: &str, _tool_use_id: Option<&str>, _message: &str) -> bool {
        true
    }

    /// Reports a success, which recovers earlier failures of the same tool.
    pub fn succeeded(&mut self, _tool: &str, _tool_use_id: Option<&str>) {}

    /// Every failed call.
    pub fn calls(&self) -> &[FailedCall] {
        &self.failed
    }
}
