//! Policy of work units: what to start, when to retry, what counts as failure, how an attempt ended.
//!
//! Pure functions and state machines over plain data; timers and processes are orders that others carry out.
//! It must not know streams, files or clocks.

pub mod cluster;
pub mod effect;
pub mod forecast;
pub mod governor;
pub mod limits;
pub mod retry;
pub mod reuse;
pub mod schedule;
pub mod tally;
pub mod tool;
pub mod verdict;

pub use effect::Effect;
pub use retry::RetryPolicy;
pub use schedule::Schedule;
pub use tally::{FailureRule, Tally};
pub use tool::{ToolCall, ToolReply, ToolSpec, Toolset};
