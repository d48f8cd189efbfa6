//! The screen.
pub mod text;
