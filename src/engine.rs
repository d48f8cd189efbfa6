//! Runs a plan: performs the effects of the schedule, runs attempts, holds calls, integrates results and traces.
//!
//! Owns everything between the pure schedule and the agents that does not need a terminal. It must not depend on the
//! screen or the command line: both are clients. Start reading at [`driver`] and [`execute`].

pub mod approval;
pub mod descriptors;
pub mod driver;
pub mod execute;
pub mod fail_fast_recorder;
pub mod run_meter;
pub mod trace;
