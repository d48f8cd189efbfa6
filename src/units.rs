//! Policy of work units: what to start, when to retry, what counts as a failure, how an attempt ended.
//!
//! Pure functions and state machines over plain data. They return effects, such as timers and processes, that their
//! callers perform. The module must not depend on streams, files or clocks.

pub(crate) mod call_effect;
pub(crate) mod call_policy;
pub(crate) mod error_groups;
pub(crate) mod failure_tally;
pub(crate) mod forecast;
pub(crate) mod governor;
pub(crate) mod limits;
pub(crate) mod retry;
pub(crate) mod reuse;
pub(crate) mod schedule;
pub(crate) mod toolset;
pub(crate) mod verdict;

pub(crate) use toolset::{ToolCall, ToolReply, ToolSpec, Toolset};
