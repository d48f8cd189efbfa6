//! The composition root: commands, sinks and exit codes. The only layer that knows all the others.

pub mod args;
pub mod exit;
pub mod summary;
