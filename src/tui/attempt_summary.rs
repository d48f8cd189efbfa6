//! Summary of an attempt: the tools that it used, the paths that it accessed, and hashes for comparing its calls.
//!
//! Plain data; [`super::load`] reads it. Rows are only ever appended, so a summary stays valid; views of a moment in the
//! past must skip later rows.

use ingestdeck_core::{run::state::StreamRow, tape::Seq};

/// Largest number of rows that are read of one attempt.
pub(crate) const MAX_ROWS: usize = 200_000;

/// The part of an attempt that was read so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct AttemptSummary {
    /// Number of rows that were read.
    pub rows: usize,
    /// Incremented when the summary changes.
    pub version: u64,
    /// Calls, in the order of their rows.
    pub calls: Vec<SummarizedCall>,
    /// Rows of stderr, and of stdout that is not JSON.
    pub stray_output: Vec<NonProtocolOutput>,
    /// Entries with the proof of isolation.
    pub isolation_entries: Vec<Seq>,
    /// Names of tools, by [`SummarizedCall::tool`].
    pub tools: Vec<String>,
    /// Indexes of calls that had no result when they were read.
    pub open: Vec<usize>,
}

/// A call of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SummarizedCall {
    /// Index of its row.
    pub row: usize,
    /// Index of its tool in [`AttemptSummary::tools`].
    pub tool: usize,
    /// Hash of the tool and its most specific argument.
    pub action: u64,
    /// Hash of all arguments.
    pub input: u64,
    /// Hash of the result, once there is one.
    pub result: Option<u64>,
    /// Kind of access and the accessed object.
    pub access: Option<(CallAccessKind, String)>,
}

/// The kind of access of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum CallAccessKind {
    Read,
    Write,
    /// Depends on the command.
    Run,
}

/// A line of output outside of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NonProtocolOutput {
    pub seq: Seq,
    /// True for stdout that is not JSON.
    pub stdout: bool,
}

impl AttemptSummary {
    /// True when every row up to `rows` was read.
    pub(crate) fn is_complete(&self, rows: &[StreamRow], entries: u64) -> bool {
        self.rows >= rows.len().min(MAX_ROWS) && self.next_open(rows, entries).is_none()
    }

    /// True when there are more rows than are read.
    pub(crate) fn is_truncated(&self, rows: usize) -> bool {
        rows > MAX_ROWS
    }

    /// The name of the tool of a call.
    pub(crate) fn tool(&self, call: &SummarizedCall) -> &str {
        self.tools.get(call.tool).map_or("?", String::as_str)
    }

    /// Index in `open` of a call that has its result by now.
    pub(crate) fn next_open(&self, rows: &[StreamRow], entries: u64) -> Option<usize> {
        self.open.iter().position(|call| {
            let row = self.calls.get(*call).and_then(|call| rows.get(call.row));
            row.is_some_and(|row| row.last(entries).is_some())
        })
    }
}
