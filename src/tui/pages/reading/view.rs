//! The reading page: times at the left side, signs, texts, and the first lines of results and changes.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{
    ReadingPage,
    state::{INDENT, PageRow, ReadingLine, SIGN},
};
use crate::{
    cache::{ReadingLines, RowId, RowLine},
    page::DrawContext,
    theme::{StyleRole, row_role},
    widgets::{
        RowWriter, pane,
        stream::{self, bookmarked_rows},
    },
};
use ingestdeck_core::{
    run::state::{AttemptId, AttemptState, RunView, UnitState},
    text::{self, pluralize},
};

pub(super) fn draw(scene: &DrawContext<'_>, page: &ReadingPage, area: Rect, buf: &mut Buffer) {
    let run_view = scene.run_view;
    let cut = scene.theme.glyphs.cut;
    let position = match page.order.len() {
        0 => String::new(),
        rows => format!(" {}/{rows} ", page.cursor.place + 1),
    };
    let prompt = page.first_prompt(run_view);
    let prompt = prompt.and_then(|row| scene.cache.row(RowId::new(row, run_view)));
    let kind = match scene.source.origin.header {
        Some(_) => "unit",
        None => "session",
    };
    let unit = format!("{kind} {}", page.unit.as_str());
    let title = match (prompt, &scene.source.origin.title) {
        (Some(line), _) => line.label.as_str(),
        (None, Some(title)) => title,
        (None, None) => &unit,
    };
    let room = usize::from(area.width).saturating_sub(text::width(&position) + 4);
    let title = text::fit(title, room, cut);
    let inside = pane(
        scene,
        area,
        true,
        &[(StyleRole::Strong, &title)],
        &[(StyleRole::Dim, &position)],
        buf,
    );
    if page.order.len() == 0 {
        RowWriter::row(scene, buf, inside).put(StyleRole::Dim, "no output yet");
    }
    let mut bookmarks: (Option<AttemptId>, Vec<usize>) = (None, Vec::new());
    let mut y = inside.y;
    let (rows, mut above) = page.visible();
    for place in rows {
        if y >= inside.bottom() {
            break;
        }
        let Some(row) = page.page_row(run_view, place) else {
            break;
        };
        if bookmarks.0 != Some(row.address.attempt_id) {
            let marked = attempt(run_view, row.address.attempt_id)
                .map(|(_, attempt)| bookmarked_rows(scene, attempt));
            bookmarks = (Some(row.address.attempt_id), marked.unwrap_or_default());
        }
        let texts = scene.cache.reading(&page.key(run_view, &row));
        let height = row.height(texts.map_or(0, Vec::len));
        for line in above..height {
            if y >= inside.bottom() {
                break;
            }
            let area = Rect {
                y,
                height: 1,
                ..inside
            };
            let is_bookmarked = bookmarks.1.contains(&row.address.row);
            let pen = RowWriter::row(scene, buf, area);
            draw_line(scene, page, (&row, texts), line, is_bookmarked, pen);
            let at = page.cursor;
            if (at.place, at.line) == (place, line) {
                buf.set_style(area, scene.theme.style(StyleRole::Selected));
            }
            y += 1;
        }
        above = 0;
    }
}

fn draw_line(
    scene: &DrawContext<'_>,
    page: &ReadingPage,
    (row, texts): (&PageRow<'_>, Option<&ReadingLines>),
    line: usize,
    is_bookmarked: bool,
    mut pen: RowWriter<'_>,
) {
    let run_view = scene.run_view;
    let shown = row.line(line);
    let unread = RowLine::default();
    let read = scene.cache.row(RowId::new(row.row, run_view));
    let times = scene.model.playhead.moment_columns();
    let is_first = match shown {
        ReadingLine::Text(0) => row.is_message(),
        ReadingLine::Text(_) | ReadingLine::Blank => false,
        ReadingLine::SubAgent | ReadingLine::Action => true,
    };
    let at = match read.filter(|_| is_first && times > 0) {
        Some(read) => scene.model.playhead.moment(read.at),
        None => String::new(),
    };
    pen.cell(StyleRole::Dim, &at, times);
    let end = row.row.end(run_view.state.entries);
    match shown {
        ReadingLine::Blank => {}
        ReadingLine::SubAgent => draw_heading(scene, page, row, &mut pen),
        ReadingLine::Action => {
            // The row of a capture has its own indent.
            if row.is_sub_agent && row.row.depth == 0 {
                pen.skip(usize::from(INDENT));
            }
            let line = read.unwrap_or(&unread);
            stream::action(scene, row.row, line, is_bookmarked, &mut pen);
        }
        ReadingLine::Text(text) => {
            if row.is_sub_agent {
                pen.skip(usize::from(INDENT));
            }
            let sign = match (text, is_bookmarked) {
                (0, true) if row.is_message() => (StyleRole::Key, scene.theme.glyphs.bookmark()),
                (0, false) if row.is_message() => (
                    row_role(row.row.kind, end),
                    scene.theme.glyphs.row(row.row.kind, end),
                ),
                _ => (StyleRole::Text, ""),
            };
            pen.cell(sign.0, sign.1, usize::from(SIGN));
            for (role, text) in texts
                .and_then(|texts| texts.get(text))
                .into_iter()
                .flatten()
            {
                pen.put(*role, text);
            }
        }
    }
}

/// Paints what the rows below belong to, and how many they are.
fn draw_heading(
    scene: &DrawContext<'_>,
    page: &ReadingPage,
    row: &PageRow<'_>,
    pen: &mut RowWriter<'_>,
) {
    let sign = if row.is_folded_away() { "▸" } else { "▾" };
    pen.cell(StyleRole::Focus, sign, usize::from(SIGN));
    let found = attempt(scene.run_view, row.address.attempt_id);
    let found = found.filter(|(unit, _)| unit.key != page.unit);
    // An agent without a description has this name already.
    let is_named_so = found.is_some_and(|(unit, _)| unit.key.starts_with("sub-agent "));
    if !is_named_so {
        pen.put(StyleRole::Focus, "sub-agent");
    }
    if let Some((unit, attempt)) = found {
        pen.skip(usize::from(!is_named_so));
        pen.put(StyleRole::Strong, &text::printable(&unit.key, 80));
        if unit.attempts.len() > 1 {
            pen.put(StyleRole::Dim, &format!(" · try {}", attempt.number));
        }
    }
    let actions = pluralize(page.agent_rows(row.address), "action");
    pen.put(StyleRole::Dim, &format!(" · {actions}"));
}

/// An attempt with its unit.
fn attempt(run_view: &RunView, id: AttemptId) -> Option<(&UnitState, &AttemptState)> {
    run_view.state.units.iter().find_map(|unit| {
        let attempt = unit.attempts.iter().find(|attempt| attempt.id == id)?;
        Some((unit, attempt))
    })
}
