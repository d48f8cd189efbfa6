//! Highlights a text in painted rows.

use ratatui::{buffer::Buffer, layout::Rect};

use crate::{model::matching_cells, page::DrawContext, theme::StyleRole};

/// Highlights the occurrences of `query` in a painted row. False if there are none.
pub(crate) fn mark_matches(
    scene: &DrawContext<'_>,
    query: &str,
    row: Rect,
    buf: &mut Buffer,
) -> bool {
    let cells: Vec<&str> = (row.x..row.right())
        .map(|x| buf[(x, row.y)].symbol())
        .collect();
    let visible = matching_cells(&cells, query);
    for range in &visible {
        let (x, width) = (row.x + range.start as u16, range.len() as u16);
        buf.set_style(
            Rect { x, width, ..row },
            scene.theme.style(StyleRole::Match),
        );
    }
    !visible.is_empty()
}
