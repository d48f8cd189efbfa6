//! The page that lists where a text occurs in the whole run.

use ratatui::{buffer::Buffer, layout::Rect};

use super::FindPage;
use crate::page::DrawContext;
use crate::text_search::AttemptHits;
use crate::theme::{StyleRole, status_role};
use crate::widgets::{RowWriter, pane};
use ingestdeck_core::text::{self, pluralize};

pub(crate) fn draw(scene: &DrawContext<'_>, view: &FindPage, area: Rect, buf: &mut Buffer) {
    let rows: usize = view.hits.iter().map(|hits| hits.rows).sum();
    let found = format!(
        " {} in {}",
        pluralize(rows, "action"),
        pluralize(view.hits.len(), "attempt")
    );
    let model = scene.model;
    let is_at_end = if model.connection.is_live {
        !model.is_in_past()
    } else {
        model.playhead.at_end
    };
    let progress = match (&view.failure, view.searched) {
        (Some(_), _) | (None, None) => String::new(),
        (None, Some((searched, all))) if searched < all => {
            format!(" · searched {searched}/{all} attempts")
        }
        (None, Some(_)) if !is_at_end => " · up to this moment".to_owned(),
        (None, Some(_)) => String::new(),
    };
    let query = text::printable(&view.query, 60);
    let title = [
        (StyleRole::Strong, "find "),
        (StyleRole::Match, query.as_ref()),
        (StyleRole::Dim, found.as_str()),
        (StyleRole::Dim, progress.as_str()),
    ];
    let place = if view.hits.is_empty() {
        String::new()
    } else {
        format!(" {}/{} ", view.list.selected + 1, view.hits.len())
    };
    let inside = pane(scene, area, true, &title, &[(StyleRole::Dim, &place)], buf);
    if view.hits.is_empty() {
        let text = match &view.failure {
            Some(why) => text::one_row(why, 300),
            None if view.is_complete() => "no action of any unit contains it".to_owned(),
            None => "searching".to_owned(),
        };
        RowWriter::row(scene, buf, inside).put(StyleRole::Dim, &text);
    }
    for (y, (index, hits)) in
        (inside.y..inside.bottom()).zip(view.hits.iter().enumerate().skip(view.list.offset))
    {
        let line = Rect {
            y,
            height: 1,
            ..inside
        };
        row(scene, hits, line, buf);
        if index == view.list.selected {
            buf.set_style(line, scene.theme.style(StyleRole::Selected));
        }
    }
}

fn row(scene: &DrawContext<'_>, hits: &AttemptHits, area: Rect, buf: &mut Buffer) {
    let Some(unit) = scene.run_view.state.units.get(hits.unit) else {
        return;
    };
    let mut pen = RowWriter::row(scene, buf, area);
    pen.cell(status_role(unit.status), scene.theme.glyphs.unit(unit), 2);
    let width = (usize::from(area.width) / 2).min(48);
    pen.cell(
        StyleRole::Text,
        &text::fit_middle(&unit.key, width, scene.theme.glyphs.cut),
        width,
    );
    pen.skip(1);
    pen.cell(StyleRole::Dim, &format!("try {}", hits.attempt + 1), 8);
    pen.cell_right(StyleRole::Strong, &pluralize(hits.rows, "action"), 12);
    pen.skip(2);
    let first = scene
        .run_view
        .rows(hits.attempt_id)
        .get(hits.first)
        .map(|row| row.first());
    if let Some(line) = first.and_then(|seq| scene.cache.entry(seq)) {
        pen.put(StyleRole::Dim, &line.text);
    }
}
