//! The last minutes: for each row its time, its unit, and the action as in the stream of the unit.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{RecentPage, RecentRow, state::ActionPlace};
use crate::{
    action::UserAction,
    cache::{RowId, RowLine},
    page::DrawContext,
    theme::StyleRole,
    widgets::{RowWriter, pane, stream},
};
use ingestdeck_core::{
    run::state::{LogMessage, RowKind, RowOutcome},
    tape::note::Severity,
    text::{self, pluralize},
};

/// What takes the place of a unit on messages of the run.
const RUN: &str = "run";

pub(super) fn draw(scene: &DrawContext<'_>, page: &RecentPage, area: Rect, buf: &mut Buffer) {
    let title = title(scene, page);
    let title: Vec<_> = title
        .iter()
        .map(|(role, text)| (*role, text.as_str()))
        .collect();
    let place = match page.rows.len() {
        0 => String::new(),
        len => format!(" {}/{len} ", page.list.selected + 1),
    };
    let inside = pane(scene, area, true, &title, &[(StyleRole::Dim, &place)], buf);
    if page.rows.is_empty() {
        RowWriter::row(scene, buf, inside).put(StyleRole::Dim, &empty_text(scene));
    }
    let longest = scene.model.units_view.listing.longest();
    // The number of a later attempt follows the name.
    let number = if scene.model.totals.has_retries { 2 } else { 0 };
    let unit_width = (longest + number).min(usize::from(inside.width) / 4);
    for (y, (index, row)) in
        (inside.y..inside.bottom()).zip(page.rows.iter().enumerate().skip(page.list.offset))
    {
        let line = Rect {
            y,
            height: 1,
            ..inside
        };
        match row {
            RecentRow::Action(place) => action(scene, place, unit_width, line, buf),
            RecentRow::Message(index) => {
                if let Some(message) = scene.run_view.messages().get(*index) {
                    self::message(scene, message, unit_width, line, buf);
                }
            }
        }
        if index == page.list.selected {
            buf.set_style(line, scene.theme.style(StyleRole::Selected));
        }
    }
}

fn title(scene: &DrawContext<'_>, page: &RecentPage) -> Vec<(StyleRole, String)> {
    let (playhead, listing) = (&scene.model.playhead, &scene.model.units_view.listing);
    let since = playhead.moment(playhead.time.since(page.time));
    let dot = scene.theme.glyphs.dot;
    let length = page.time.to_string();
    // `5m 00s` is `5m`.
    let length = length.split(" 00").next().unwrap_or_default();
    let mut title = vec![
        (StyleRole::Strong, format!("last {length}")),
        (
            StyleRole::Dim,
            format!(
                ", since {since} {dot} {}",
                pluralize(page.rows.len(), "row")
            ),
        ),
    ];
    if page.left_out > 0 {
        title.push((
            StyleRole::Warning,
            format!(", {} earlier left out", page.left_out),
        ));
    }
    title.push((StyleRole::Paused, listing.filter_words()));
    title
}

fn empty_text(scene: &DrawContext<'_>) -> String {
    let keymap = &scene.model.keymap;
    let longer = keymap.first(UserAction::Left).unwrap_or_default();
    match scene.model.units_view.listing.is_filtered() {
        true => {
            format!("none of these units did anything in this time; {longer} shows a longer one")
        }
        false => format!("nothing happened in this time; {longer} shows a longer one"),
    }
}

fn action(
    scene: &DrawContext<'_>,
    place: &ActionPlace,
    unit_width: usize,
    area: Rect,
    buf: &mut Buffer,
) {
    let Some((unit, attempt, row)) = place.find(scene.run_view) else {
        return;
    };
    let unread = RowLine::default();
    let line = scene.cache.row(RowId::new(row, scene.run_view));
    let line = line.unwrap_or(&unread);
    let playhead = &scene.model.playhead;
    let mut pen = RowWriter::row(scene, buf, area);
    let at = playhead.moment(line.at);
    pen.cell(StyleRole::Dim, &at, playhead.moment_columns());
    let name = match attempt.number {
        0 | 1 => unit.key.to_string(),
        number => format!("{}#{number}", unit.key),
    };
    let name = text::fit_middle(&name, unit_width, scene.theme.glyphs.cut);
    pen.cell(StyleRole::Text, &name, unit_width);
    pen.skip(1);
    stream::action(scene, row, line, false, &mut pen);
}

fn message(
    scene: &DrawContext<'_>,
    message: &LogMessage,
    unit_width: usize,
    area: Rect,
    buf: &mut Buffer,
) {
    let (role, kind) = match message.level {
        Severity::Debug | Severity::Info => (StyleRole::Text, RowKind::Note),
        Severity::Warning => (StyleRole::Warning, RowKind::Warning),
        Severity::Error => (StyleRole::Failed, RowKind::Warning),
    };
    let playhead = &scene.model.playhead;
    let mut pen = RowWriter::row(scene, buf, area);
    let at = playhead.moment(message.at);
    pen.cell(StyleRole::Dim, &at, playhead.moment_columns());
    pen.cell(StyleRole::Strong, RUN, unit_width);
    pen.skip(1);
    pen.cell(role, scene.theme.glyphs.row(kind, RowOutcome::Ok), 2);
    pen.put(role, &text::one_row(&message.text, 600));
}
