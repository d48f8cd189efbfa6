//! Marks the matches of a search in the painted rows: the text where it is visible, otherwise the row at its border.

use ratatui::{buffer::Buffer, layout::Rect};

use crate::page::DrawContext;
use crate::widgets::RowWriter;
use crate::{layout::ScreenLayout, model::matching_cells, theme::StyleRole};

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
    let style = scene.theme.style(StyleRole::Match);
    for y in rows.y..rows.bottom() {
        let cells: Vec<&str> = (rows.x..rows.right())
            .map(|x| buf[(x, y)].symbol())
            .collect();
        let visible = matching_cells(&cells, query);
        for range in &visible {
            let (x, width) = (rows.x + range.start as u16, range.len() as u16);
            buf.set_style(
                Rect {
                    x,
                    y,
                    width,
                    height: 1,
                },
                style,
            );
        }
        let place = first.map(|first| first + usize::from(y - rows.y));
        let is_match = |place| {
            scene
                .model
                .search
                .matches
                .as_ref()
                .is_some_and(|matches| matches.contains(place))
        };
        if visible.is_empty() && rows.x > 0 && place.is_some_and(is_match) {
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
