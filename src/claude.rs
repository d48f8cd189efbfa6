//! placeholder

pub mod scripted;
