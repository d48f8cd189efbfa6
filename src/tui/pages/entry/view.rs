//! One entry, laid out for reading.

use ratatui::{buffer::Buffer, layout::Rect};

use super::EntryPage;
use crate::page::DrawContext;
use crate::theme::StyleRole;
use crate::widgets::{document_view, pane};
use ingestdeck_core::text;

pub(crate) fn draw(scene: &DrawContext<'_>, view: &EntryPage, area: Rect, buf: &mut Buffer) {
    let of = scene.run_view.entries(view.attempt_id).len();
    let key = text::printable(&view.unit, 60);
    let place = format!(" line {}/{of}", view.entry + 1);
    let Some(document) = scene.cache.document() else {
        pane(
            scene,
            area,
            true,
            &[(StyleRole::Strong, &key), (StyleRole::Dim, &place)],
            &[],
            buf,
        );
        return;
    };
    let lines = document.lines.len();
    let rows = usize::from(area.height.saturating_sub(2));
    let shown = if lines > rows {
        let percent = (view.scroll + rows).min(lines) * 100 / lines;
        format!(
            " {}-{}/{lines} {percent} % ",
            view.scroll + 1,
            (view.scroll + rows).min(lines)
        )
    } else {
        format!(" {lines} lines ")
    };
    let inside = pane(
        scene,
        area,
        true,
        &[(StyleRole::Strong, &key), (StyleRole::Dim, &place)],
        &[(StyleRole::Dim, &shown)],
        buf,
    );
    document_view::draw(
        scene,
        document,
        view.scroll,
        None,
        view.match_line,
        inside,
        buf,
    );
}
