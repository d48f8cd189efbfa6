//! Everything of one entry, or of a call and its result, laid out for reading.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{Scene, pane, reader};
use crate::tui::{
    model::{EntryView, Subject},
    text,
    theme::Role,
};

/// Paints the document of an entry.
pub fn draw(scene: &Scene<'_>, view: &EntryView, area: Rect, buf: &mut Buffer) {
    let (what, index, of) = match view.subject {
        Subject::Row(index) => ("action", index, scene.story.rows(view.lane).len()),
        Subject::Entry(index) => ("line", index, scene.story.entries(view.lane).len()),
    };
    let key = text::safe(&view.unit, 60);
    let place = format!(" {what} {}/{of}", index + 1);
    let Some(document) = scene.cache.document() else {
        pane(scene, area, true, &[(Role::Strong, &key), (Role::Dim, &place)], &[], buf);
        return;
    };
    let lines = document.lines.len();
    let rows = usize::from(area.height.saturating_sub(2));
    let shown = if lines > rows {
        let percent = (view.scroll + rows).min(lines) * 100 / lines;
        format!(" {}-{}/{lines} {percent} % ", view.scroll + 1, (view.scroll + rows).min(lines))
    } else {
        format!(" {lines} lines ")
    };
    let inside = pane(scene, area, true, &[(Role::Strong, &key), (Role::Dim, &place)], &[(Role::Dim, &shown)], buf);
    reader::draw(scene, document, view.scroll, None, view.hit, inside, buf);
}
