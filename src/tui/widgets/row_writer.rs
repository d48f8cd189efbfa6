//! Writes escaped text into one row, from the left and from the right, never beyond its ends.

use std::borrow::Cow;

use ratatui::{
    buffer::{Buffer, Cell, CellWidth as _},
    layout::Rect,
    style::Style,
};

use crate::theme::{StyleRole, Theme};
use crate::{page::DrawContext, wide_cells::WideRows};
use ingestdeck_core::text;

/// Replaces glyphs of the screen by ASCII; external text is not changed.
fn ascii(text: &str) -> String {
    let sign = |char: char| match char {
        '·' => '-',
        '…' => '~',
        '⏎' | '½' => '/',
        '×' | '✗' => 'x',
        '▲' | '↑' => '^',
        '↓' => 'v',
        '←' => '<',
        '→' => '>',
        '▏' => '_',
        '▸' => '+',
        '▾' => '-',
        char => char,
    };
    text.chars().map(sign).collect()
}

/// Keys for display. In ASCII, arrows are written as names: their ASCII signs would look like other keys.
pub(crate) fn key_names<'a>(scene: &DrawContext<'_>, keys: &'a str) -> Cow<'a, str> {
    const ARROWS: [(&str, &str); 4] = [("↑", "Up"), ("↓", "Down"), ("←", "Left"), ("→", "Right")];
    if !scene.theme.glyphs.is_ascii() {
        return Cow::Borrowed(keys);
    }
    ARROWS
        .iter()
        .fold(Cow::Borrowed(keys), |keys, (sign, name)| {
            if keys.contains(sign) {
                Cow::Owned(keys.replace(sign, name))
            } else {
                keys
            }
        })
}

/// A write position in a row.
#[derive(Debug)]
pub(crate) struct RowWriter<'a> {
    buf: &'a mut Buffer,
    theme: &'a Theme,
    wide_rows: &'a WideRows,
    x: u16,
    end: u16,
    y: u16,
}

/// Splits a grapheme into pieces of at most two columns, as much as the cells of terminals hold.
fn pieces_of_two_columns(grapheme: &str) -> impl Iterator<Item = &str> {
    let mut rest = grapheme;
    std::iter::from_fn(move || {
        let fits =
            |end: &usize| text::is_simple_piece(&rest[..*end]) || rest[..*end].cell_width() <= 2;
        let ends = || rest.char_indices().map(|(at, char)| at + char.len_utf8());
        let end = if fits(&rest.len()) {
            rest.len()
        } else {
            ends().take_while(fits).last().unwrap_or(rest.len())
        };
        let (piece, after) = rest.split_at(end);
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

impl<'a> RowWriter<'a> {
    /// Starts at the beginning of the first row of `area`.
    pub(crate) fn row(scene: &DrawContext<'a>, buf: &'a mut Buffer, area: Rect) -> Self {
        let area = if area.height == 0 {
            Rect { width: 0, ..area }
        } else {
            area.intersection(buf.area)
        };
        Self {
            theme: scene.theme,
            wide_rows: scene.wide_rows,
            x: area.x,
            end: area.right(),
            y: area.y,
            buf,
        }
    }

    /// The area that was written since `start`, a former [`next_column`](Self::next_column).
    pub(crate) fn area_since(&self, start: u16) -> Rect {
        Rect {
            x: start,
            y: self.y,
            width: self.x.saturating_sub(start),
            height: 1,
        }
    }

    /// The column of the next character.
    pub(crate) fn next_column(&self) -> u16 {
        self.x
    }

    /// Number of columns that remain.
    pub(crate) fn room(&self) -> usize {
        usize::from(self.end.saturating_sub(self.x))
    }

    /// Writes `text`, cut to the remaining columns.
    pub(crate) fn put(&mut self, role: StyleRole, text: &str) {
        self.put_in(role, text, self.room());
    }

    /// Writes `text`, cut to `width` columns.
    pub(crate) fn put_in(&mut self, role: StyleRole, text: &str, width: usize) {
        let width = width.min(self.room());
        if width > 0 && !text.is_empty() {
            let plain = self.theme.glyphs.is_ascii().then(|| ascii(text));
            let shown = text::fit(
                plain.as_deref().unwrap_or(text),
                width,
                self.theme.glyphs.cut,
            );
            self.write(self.theme.style(role), &shown, width);
        }
    }

    /// Writes `glyph` `count` times, cut to the remaining columns. It is a sign of the theme that takes one column.
    pub(crate) fn repeat(&mut self, role: StyleRole, glyph: &str, count: usize) {
        let (style, count) = (self.theme.style(role), count.min(self.room()));
        if count > 0 {
            let first = self.buf.index_of(self.x, self.y);
            for cell in &mut self.buf.content[first..first + count] {
                cell.set_symbol(glyph).set_style(style);
            }
            self.skip(count);
        }
    }

    /// Like the buffer's own writer, for text that is already safe.
    fn write(&mut self, style: Style, safe: &str, width: usize) {
        let first = self.buf.index_of(self.x, self.y);
        let cells = &mut self.buf.content[first..first + width];
        if text::is_plain(safe) {
            for (cell, place) in cells.iter_mut().zip(0..safe.len()) {
                cell.set_symbol(&safe[place..=place]).set_style(style);
            }
            self.skip(safe.len());
            return;
        }
        if text::is_simple_text(safe) {
            let mut count = 0;
            for (cell, (place, char)) in cells.iter_mut().zip(safe.char_indices()) {
                cell.set_symbol(&safe[place..place + char.len_utf8()])
                    .set_style(style);
                count += 1;
            }
            self.skip(count);
            return;
        }
        let mut cells = cells.iter_mut();
        for piece in text::graphemes(safe).flat_map(pieces_of_two_columns) {
            let wide = if text::is_simple_piece(piece) {
                1
            } else {
                piece.cell_width()
            };
            if wide == 0 {
                continue;
            }
            if usize::from(wide) > cells.len() {
                return;
            }
            let mut covered = cells.by_ref().take(usize::from(wide));
            if let Some(first) = covered.next() {
                first.set_symbol(piece).set_style(style);
            }
            if wide > 1 {
                // The first column shows the whole character.
                covered.for_each(Cell::reset);
                self.wide_rows.add(self.y);
            }
            self.x += wide;
        }
    }

    /// Writes `text` into exactly `width` columns.
    pub(crate) fn cell(&mut self, role: StyleRole, text: &str, width: usize) {
        let to = self
            .x
            .saturating_add(u16::try_from(width).unwrap_or(u16::MAX))
            .min(self.end);
        self.put_in(role, text, width);
        self.x = to;
    }

    /// Writes `text` right-aligned in `width` columns.
    pub(crate) fn cell_right(&mut self, role: StyleRole, text: &str, width: usize) {
        let before = width - text::width_up_to(text, width);
        self.skip(before);
        self.cell(role, text, width - before);
    }

    pub(crate) fn skip(&mut self, width: usize) {
        self.x = self
            .x
            .saturating_add(u16::try_from(width).unwrap_or(u16::MAX))
            .min(self.end);
    }

    /// Writes text at the right end of the row, if enough room remains, and ends the writable row before it.
    pub(crate) fn end_with(&mut self, pieces: &[(StyleRole, &str)]) {
        let width: usize = pieces.iter().map(|(_, text)| text::width(text)).sum();
        if width == 0 || width + 1 > self.room() {
            return;
        }
        let end = self.end;
        let start = end - u16::try_from(width).unwrap_or(0);
        let left = std::mem::replace(&mut self.x, start);
        for (role, text) in pieces {
            self.put(*role, text);
        }
        self.x = left;
        self.end = start;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theme::ColorLevel;

    #[test]
    fn repeated_signs_end_with_the_row() {
        let theme = Theme::new("dark", ColorLevel::Full, false).unwrap();
        let mut buf = Buffer::empty(Rect::new(0, 0, 5, 1));
        let wide_rows = WideRows::default();
        let mut pen = RowWriter {
            buf: &mut buf,
            theme: &theme,
            wide_rows: &wide_rows,
            x: 1,
            end: 4,
            y: 0,
        };
        pen.repeat(StyleRole::Border, "─", 2);
        assert_eq!((pen.next_column(), pen.room()), (3, 1));
        pen.repeat(StyleRole::Border, "│", 9);
        pen.repeat(StyleRole::Border, "x", 1);
        assert_eq!(
            buf.content.iter().map(Cell::symbol).collect::<String>(),
            " ──│ "
        );
    }

    #[test]
    fn pieces_take_at_most_two_columns() {
        let pieces = |grapheme| pieces_of_two_columns(grapheme).collect::<Vec<_>>();
        assert_eq!(pieces("क्ष्म"), ["क्ष्", "म"]);
        for grapheme in ["", "a", "é", "日", "🇩🇪", "✓"] {
            assert_eq!(pieces(grapheme).concat(), grapheme);
            assert!(pieces(grapheme).len() <= 1, "{grapheme}");
        }
    }
}
