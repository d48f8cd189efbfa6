//! One integration binary.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod captures;
mod demo;
mod replay;
mod scripted;
mod store;
mod support;
mod unit_protocol;
