//! Policy of work units: what to start, when to retry, what counts as a failure, how an attempt ended.
//!
//! Pure functions and state machines over plain data. They return effects, such as timers and processes, that their
//! callers perform. The module must not depend on streams, files or clocks.

pub mod call_effect;
pub mod call_policy;
pub(crate) mod error_groups;
pub mod failure_tally;
pub mod forecast;
pub mod governor;
pub mod limits;
pub mod retry;
pub mod reuse;
pub mod schedule;
pub mod token_estimate;
pub(crate) mod toolset;
pub mod verdict;

pub use toolset::{ToolCall, ToolReply, ToolSpec, Toolset};
