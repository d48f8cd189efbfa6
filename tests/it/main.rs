//! One integration binary.

mod scripted;
mod support;
