//! Text for people that screen, lines and reports share: figures, untrusted text and commands. It must not know where
//! the text is shown.

pub mod commands;
mod figures;
pub mod file_patch;
mod line_edits;
mod percent;
mod untrusted;

pub use self::{
    figures::{
        clock, count, dollars, dollars_of_sum, latency, list_some, pluralize, seconds, size,
    },
    line_edits::{LineChange, line_changes, lines},
    percent::{percent_decoded, percent_encoded},
    untrusted::{
        classified_chars, column_count, fit, fit_middle, graphemes, is_hidden, is_plain,
        is_simple_piece, is_simple_text, one_row, printable, printable_pieces, width, width_up_to,
        wrap, wrap_at_most,
    },
};
