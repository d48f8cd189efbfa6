//! Marks the matches of a search in the painted rows: the text where it is visible, otherwise the row at its border.

use ratatui::{buffer::Buffer, layout::Rect};

use crate::page::DrawContext;
use crate::widgets::{RowWriter, mark_matches};
use crate::{layout::ScreenLayout, theme::StyleRole};

/// Marks a row that matches in a part that is not visible.
const HIDDEN_MATCH: &str = "/";

pub(crate) fn draw(scene: &DrawContext<'_>, plan: &ScreenLayout, buf: &mut Buffer) {
    let Some(query) = scene.model.shown_query(scene.run_view) else {
        return;
    };
    let Some((rows, first)) = scene
        .model
        .page()
        .searched_rows(scene.model, scene.run_view, plan)
    else {
        return;
    };
    let rows = rows.intersection(buf.area);
    for y in rows.y..rows.bottom() {
        let row = Rect {
            y,
            height: 1,
            ..rows
        };
        let is_visible = mark_matches(scene, query, row, buf);
        let place = first.map(|first| first + usize::from(y - rows.y));
        let is_match = |place| {
            scene
                .model
                .search
                .matches
                .as_ref()
                .is_some_and(|matches| matches.contains(place))
        };
        if !is_visible && rows.x > 0 && place.is_some_and(is_match) {
            let border = Rect {
                x: rows.x - 1,
                y,
                width: 1,
                height: 1,
            };
            RowWriter::row(scene, buf, border).put(StyleRole::Match, HIDDEN_MATCH);
        }
    }
}
