//! Draws the visible lines of a document with the selected line and the match.

use ratatui::{buffer::Buffer, layout::Rect};

use super::RowWriter;
use crate::page::DrawContext;
use crate::{document::LaidOutDocument, theme::StyleRole};

/// Paints the lines of `document` from `offset` on.
pub(crate) fn draw(
    scene: &DrawContext<'_>,
    document: &LaidOutDocument,
    offset: usize,
    selected: Option<usize>,
    hit: Option<usize>,
    area: Rect,
    buf: &mut Buffer,
) {
    for (y, (index, line)) in
        (area.y..area.bottom()).zip(document.lines.iter().enumerate().skip(offset))
    {
        let row = Rect {
            y,
            height: 1,
            ..area
        };
        let mut pen = RowWriter::row(scene, buf, row);
        for (role, text) in line {
            pen.put(*role, text);
        }
        if selected == Some(index) {
            buf.set_style(row, scene.theme.style(StyleRole::Selected));
        }
        if hit == Some(index) {
            buf.set_style(row, scene.theme.style(StyleRole::Match));
        }
    }
}
