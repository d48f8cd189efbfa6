//! Repairs wide characters in a complete frame, since panes and dialogs may have covered one half of them.

use ratatui::buffer::{Buffer, CellWidth as _};

use crate::text;

/// Repairs all wide characters of a frame: if the right half is covered by other text or outside the frame, the
/// character becomes a blank. The cell of a right half becomes a blank in the style of the left half, which the
/// writer of the terminal relies on.
pub(crate) fn close_wide_cells(buffer: &mut Buffer) {
    let width = usize::from(buffer.area.width);
    for row in buffer.content.chunks_mut(width.max(1)) {
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
}
