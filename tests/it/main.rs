//! One integration binary.

mod support;
