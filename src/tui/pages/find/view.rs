//! The page that lists where a text occurs in the whole run.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{FindPage, FoundGroup, FoundLine, shown_row};
use crate::page::DrawContext;
use crate::{
    action::UserAction,
    cache::RowId,
    model::around_match,
    search_match::FoundRow,
    theme::{StyleRole, row_role, status_role},
    widgets::{RowWriter, mark_matches, pane},
};
use ingestdeck_core::{
    run::state::{RowKind, StreamRow, UnitState},
    text::{self, pluralize},
};

/// Columns of the names of units.
const MAX_NAME: usize = 36;

pub(crate) fn draw(scene: &DrawContext<'_>, view: &FindPage, area: Rect, buf: &mut Buffer) {
    let [FoundGroup { counts, rows, .. }, ..] = &view.groups;
    let unlisted = match counts.0 - rows.len() {
        0 => String::new(),
        more => format!(", {more} not listed"),
    };
    let found = format!(
        " {} in {}{unlisted}",
        pluralize(counts.0, "action"),
        pluralize(counts.1, "attempt")
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
    let place = match view.lines() {
        0 => String::new(),
        lines => format!(" {}/{lines} ", view.list.selected + 1),
    };
    let inside = pane(scene, area, true, &title, &[(StyleRole::Dim, &place)], buf);
    if view.lines() == 0 {
        let text = match &view.failure {
            Some(why) => text::one_row(why, 300),
            None if view.is_complete() => "no action of any unit contains it".to_owned(),
            None => "searching".to_owned(),
        };
        RowWriter::row(scene, buf, inside).put(StyleRole::Dim, &text);
    }
    let units = &scene.run_view.state.units;
    let names = view
        .visible(inside.height)
        .filter_map(|(_, line)| match line {
            FoundLine::Match(found) => units.get(found.unit).map(|unit| name(unit, found)),
            FoundLine::Heading(_) => None,
        });
    let longest = names.map(|name| text::width(&name)).max();
    let most = (usize::from(inside.width) / 3).min(MAX_NAME);
    let columns = longest.unwrap_or_default().min(most);
    let mut above = None;
    for (y, (index, line)) in (inside.y..inside.bottom()).zip(view.visible(inside.height)) {
        let area = Rect {
            y,
            height: 1,
            ..inside
        };
        above = match line {
            FoundLine::Heading(group) => {
                heading(scene, group, area, buf);
                None
            }
            FoundLine::Match(found) => {
                let is_named = above != Some(found.attempt_id);
                self::found(scene, found, (&view.query, columns, is_named), area, buf);
                Some(found.attempt_id)
            }
        };
        if index == view.list.selected {
            buf.set_style(area, scene.theme.style(StyleRole::Selected));
        }
    }
}

/// The name of the unit of a match, with its attempt if there are several.
fn name(unit: &UnitState, found: &FoundRow) -> String {
    match unit.attempts.len() {
        0 | 1 => unit.key.to_string(),
        _ => format!("{} try {}", unit.key, found.attempt + 1),
    }
}

/// Paints how many matches a group has, and the key that unfolds it.
fn heading(scene: &DrawContext<'_>, group: &FoundGroup, area: Rect, buf: &mut Buffer) {
    let mut pen = RowWriter::row(scene, buf, area);
    pen.put(StyleRole::Strong, group.title);
    pen.put(StyleRole::Dim, &format!(": {}", group.counts.0));
    if group.is_folded {
        let key = scene.model.keymap.first(UserAction::Open);
        let key = key.unwrap_or_default();
        pen.put(StyleRole::Dim, &format!(", folded ({key} unfolds)"));
    }
}

/// Paints a match: its unit, unless the row above has the same, the call, and the line with the text.
fn found(
    scene: &DrawContext<'_>,
    found: &FoundRow,
    (query, names, is_named): (&str, usize, bool),
    area: Rect,
    buf: &mut Buffer,
) {
    let glyphs = scene.theme.glyphs;
    let unit = scene.run_view.state.units.get(found.unit);
    let mut pen = RowWriter::row(scene, buf, area);
    match unit.filter(|_| is_named) {
        Some(unit) => {
            pen.cell(status_role(unit.status), glyphs.unit(unit), 2);
            let name = name(unit, found);
            pen.cell(
                StyleRole::Text,
                &text::fit_middle(&name, names, glyphs.cut),
                names,
            );
        }
        None => pen.skip(names + 2),
    }
    pen.skip(2);
    let start = pen.next_column();
    if let Some(row) = shown_row(scene.run_view, found) {
        let (kind, end) = (row.kind, row.end(scene.run_view.state.entries));
        pen.cell(row_role(kind, end), glyphs.row(kind, end), 2);
        match label(scene, row) {
            Some(label) if label.contains(&found.line) => pen.put(StyleRole::Text, label),
            label => {
                if let Some(label) = label {
                    let width = text::width_up_to(label, pen.room() * 2 / 5);
                    pen.cell(StyleRole::Text, label, width);
                    pen.skip(2);
                }
                let line = around_match(&found.line, query, pen.room());
                pen.put(StyleRole::Dim, &line);
            }
        }
    }
    let marked = Rect {
        x: start,
        width: area.right().saturating_sub(start),
        ..area
    };
    mark_matches(scene, query, marked, buf);
}

/// The text of a call, which the matching line does not name.
fn label<'a>(scene: &DrawContext<'a>, row: &StreamRow) -> Option<&'a str> {
    let is_call = matches!(row.kind, RowKind::Tool | RowKind::Task);
    let line = scene.cache.row(RowId::new(row, scene.run_view))?;
    is_call.then_some(line.label.as_str())
}
