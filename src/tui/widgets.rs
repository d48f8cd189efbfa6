//! What several pages and the frame around them draw with: rows of text, borders, action streams and documents.
//!
//! All text goes through [`RowWriter`], the only way to write to a cell, which escapes it.

pub(crate) mod document_view;
mod match_marks;
mod pane;
mod row_writer;
pub(crate) mod stream;

pub(crate) use match_marks::mark_matches;
pub(crate) use pane::{pane, progress, titled_rule};
pub(crate) use row_writer::{RowWriter, key_names};
