//! Repairs wide characters in a complete frame, since panes and dialogs may have covered one half of them.

use std::{cell::RefCell, collections::BTreeSet};

use ratatui::{
    buffer::{Buffer, Cell, CellWidth as _},
    layout::Rect,
};

use ingestdeck_core::text;

/// The rows of a frame that may have wide characters. Most frames have none.
#[derive(Debug, Default)]
pub struct WideRows(RefCell<BTreeSet<u16>>);

impl WideRows {
    pub(super) fn add(&self, y: u16) {
        self.0.borrow_mut().insert(y);
    }

    /// Adds all rows of an area whose text is not written by a [`RowWriter`](crate::widgets::RowWriter).
    pub(super) fn add_area(&self, area: Rect) {
        self.0.borrow_mut().extend(area.y..area.bottom());
    }

    pub(super) fn take(&self) -> BTreeSet<u16> {
        self.0.take()
    }
}

/// Repairs the wide characters in these rows of a frame: if the right half is covered by other text or outside the
/// frame, the character becomes a blank. The cell of a right half becomes a blank in the style of the left half, which
/// the writer of the terminal relies on.
pub fn close_wide_cells(buffer: &mut Buffer, rows: impl IntoIterator<Item = u16>) {
    let (width, top) = (usize::from(buffer.area.width), buffer.area.y);
    for y in rows {
        let first = usize::from(y.saturating_sub(top)) * width;
        if let Some(row) = buffer.content.get_mut(first..first + width) {
            close_row(row);
        }
    }
}

fn close_row(row: &mut [Cell]) {
    let mut x = 0;
    while x < row.len() {
        // A wide character has at least three bytes in UTF-8.
        let symbol = row[x].symbol();
        if symbol.len() < 3 || text::is_simple_piece(symbol) || row[x].cell_width() < 2 {
            x += 1;
            continue;
        }
        let left = row[x].clone();
        match row.get_mut(x + 1) {
            Some(right) if right.symbol() == " " => {
                (right.fg, right.bg, right.modifier) = (left.fg, left.bg, left.modifier);
                x += 2;
            }
            Some(_) | None => {
                row[x].set_symbol(" ");
                x += 1;
            }
        }
    }
}
