//! Wide characters in a frame that is complete: panes and dialogs may have covered one half of them.

use ratatui::buffer::{Buffer, CellWidth as _};

/// Makes every wide character of a frame whole: one whose right half is covered by other text, or is outside the frame,
/// becomes a blank, and the cell of a right half is a blank in the style of the left half. The drawing library leaves right halves out
/// when it compares frames, so whoever writes to the terminal has to know what they hold.
pub fn close_wide_cells(buffer: &mut Buffer) {
    let width = usize::from(buffer.area.width);
    for row in buffer.content.chunks_mut(width.max(1)) {
        let mut x = 0;
        while x < row.len() {
            // A wide character has three bytes or more.
            if row[x].symbol().len() < 3 || row[x].cell_width() < 2 {
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
