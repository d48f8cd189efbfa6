//! One integration binary.

mod captures;
mod support;
