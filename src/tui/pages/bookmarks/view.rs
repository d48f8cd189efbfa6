//! The list of bookmarks.

use ratatui::{buffer::Buffer, layout::Rect};

use crate::page::DrawContext;
use crate::widgets::{RowWriter, pane};
use crate::{action::UserAction, model::ScrollList, theme::StyleRole};
use ingestdeck_core::text;

/// Columns of the time, and fewest and most columns of the units.
const TIME_WIDTH: usize = 9;
const MIN_UNIT_WIDTH: usize = 10;
const MAX_UNIT_WIDTH: usize = 32;

pub(crate) fn draw(scene: &DrawContext<'_>, list: &ScrollList, area: Rect, buf: &mut Buffer) {
    let bookmarks = &scene.model.playhead.bookmarks.list;
    let count = format!(" {} ", bookmarks.len());
    let inside = pane(
        scene,
        area,
        true,
        &[(StyleRole::Strong, "bookmarks")],
        &[(StyleRole::Dim, &count)],
        buf,
    );
    if bookmarks.is_empty() {
        let key = scene
            .model
            .keymap
            .first(UserAction::Bookmark)
            .unwrap_or_default();
        let line =
            format!("none yet; {key} bookmarks the selected action, or the moment that is shown");
        for (y, row) in
            (inside.y..inside.bottom()).zip(text::wrap(&line, usize::from(inside.width)))
        {
            RowWriter::row(
                scene,
                buf,
                Rect {
                    y,
                    height: 1,
                    ..inside
                },
            )
            .put(StyleRole::Dim, &row);
        }
    }
    let unit = |key: Option<&str>, attempt: Option<u32>| match (key, attempt) {
        (Some(key), Some(number @ 2..)) => format!("{key} try {number}"),
        (Some(key), _) => key.to_owned(),
        (None, _) => String::new(),
    };
    let shown = bookmarks
        .iter()
        .enumerate()
        .skip(list.offset)
        .take(usize::from(inside.height));
    let shown: Vec<_> = shown
        .map(|(index, bookmark)| {
            (
                index,
                bookmark,
                unit(bookmark.unit.as_deref(), bookmark.attempt),
            )
        })
        .collect();
    // The notes have priority over the end of long names.
    let notes = shown
        .iter()
        .map(|(_, bookmark, _)| text::width(&bookmark.note))
        .max()
        .unwrap_or_default();
    let room = usize::from(inside.width).saturating_sub(TIME_WIDTH + 4 + notes);
    let units = shown
        .iter()
        .map(|(_, _, unit)| text::width(unit))
        .max()
        .unwrap_or_default();
    let units = units.min(room.clamp(MIN_UNIT_WIDTH, MAX_UNIT_WIDTH));
    for (y, (index, bookmark, unit)) in (inside.y..inside.bottom()).zip(shown) {
        let line = Rect {
            y,
            height: 1,
            ..inside
        };
        let mut pen = RowWriter::row(scene, buf, line);
        pen.cell(StyleRole::Key, scene.theme.glyphs.bookmark(), 2);
        let at = match scene.source.origin.has_times {
            true => scene.model.playhead.moment(bookmark.at),
            false => format!("#{}", bookmark.entry.0.saturating_add(1)),
        };
        pen.cell(StyleRole::Dim, &at, TIME_WIDTH);
        if units > 0 {
            pen.cell(
                StyleRole::Strong,
                &text::fit_middle(&unit, units, scene.theme.glyphs.cut),
                units,
            );
            pen.skip(2);
        }
        match bookmark.note.as_str() {
            "" => pen.put(StyleRole::Dim, "no note"),
            note => pen.put(StyleRole::Text, &text::one_row(note, 300)),
        }
        if index == list.selected {
            buf.set_style(line, scene.theme.style(StyleRole::Selected));
        }
    }
}
