//! One integration binary.
mod captures;
