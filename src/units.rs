//! Policy of work units: what to start, when to retry, what counts as failure, how an attempt ended.
//!
//! Pure functions and state machines over plain data; timers and processes are orders that others carry out.
//! It must not know streams, files or clocks.

pub mod call_effect;
pub mod error_groups;
pub mod failure_tally;
pub mod forecast;
pub mod governor;
pub mod limits;
pub mod retry;
pub mod reuse;
pub mod schedule;
pub mod tool;
pub mod verdict;

pub use call_effect::CallEffect;
pub use failure_tally::{FailureRule, FailureTally};
pub use retry::RetryPolicy;
pub use schedule::Schedule;
pub use tool::{ToolCall, ToolReply, ToolSpec, Toolset};
