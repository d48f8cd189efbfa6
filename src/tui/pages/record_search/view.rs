//! The page that lists where a text occurs in all runs and sessions.

use ratatui::{buffer::Buffer, layout::Rect};

use super::RecordSearchPage;
use crate::{
    model::around_match,
    page::DrawContext,
    record_matches::RecordMatch,
    theme::StyleRole,
    widgets::{RowWriter, mark_matches, pane},
};
use ingestdeck_core::text;

/// Width from which rows have a column for the tool.
const WIDE: u16 = 100;
/// Width from which rows have a column for the unit.
const MEDIUM: u16 = 56;
/// Columns of the age and the kind, and most columns of the short id.
const AGE: usize = 8;
const KIND: usize = 7;
const MAX_SHORT: usize = 11;
/// Most columns of units and tools.
const MAX_NAME: usize = 36;
/// Maximum number of rows about what is not searched.
const MAX_NOTES: usize = 3;

/// What is shown before a text is typed.
const HELP: &[&str] = &[
    "Finds prompts, answers, calls, results, stderr lines and notes of all runs and sessions.",
    "All words must be in an entry; the last one may be a beginning. \"no such table\" is one text.",
    "",
    "tool:wiki_*   calls and results of these tools",
    "failed        results of failed calls",
    "unit:docs-*   entries of these units",
    "run:latest    entries of one run",
    "since:7d      not older than a week; or since a date",
    "until:12h     older than 12 hours; or before a date",
    "no-sessions   only runs",
];

/// The rows of the list: the area in the pane without the notes below.
pub(super) fn rows_area(page: &RecordSearchPage, inside: Rect) -> Rect {
    let notes = notes(page).len() as u16;
    Rect {
        height: inside.height.saturating_sub(notes),
        ..inside
    }
}

/// What is not searched, if there is something to show above it.
fn notes(page: &RecordSearchPage) -> &[String] {
    let left_out = &page.found.left_out;
    match page.query.is_empty() || !page.found.problem.is_empty() {
        true => &[],
        false => &left_out[..left_out.len().min(MAX_NOTES)],
    }
}

pub(crate) fn draw(scene: &DrawContext<'_>, page: &RecordSearchPage, area: Rect, buf: &mut Buffer) {
    let found = &page.found;
    let query = text::printable(&page.query, 60);
    let is_unknown = page.is_outdated() || page.query.is_empty() || !found.problem.is_empty();
    let count = match (is_unknown, found.has_more) {
        (true, _) => String::new(),
        (false, true) => format!(" the newest {}", found.rows.len()),
        (false, false) if found.rows.len() == 1 => " 1 entry".to_owned(),
        (false, false) => format!(" {} entries", found.rows.len()),
    };
    let progress = match found.progress.as_str() {
        "" => String::new(),
        progress => format!(" · {progress}"),
    };
    let title = [
        (StyleRole::Strong, "find "),
        (StyleRole::Match, query.as_ref()),
        (StyleRole::Dim, count.as_str()),
        (StyleRole::Dim, progress.as_str()),
    ];
    let place = match found.rows.len() {
        0 => String::new(),
        rows => format!(" {}/{rows} ", page.list.selected + 1),
    };
    let inside = pane(scene, area, true, &title, &[(StyleRole::Dim, &place)], buf);
    let rows = rows_area(page, inside);
    for (y, note) in (rows.bottom()..).zip(notes(page)) {
        let row = Rect {
            y,
            height: 1,
            ..inside
        };
        RowWriter::row(scene, buf, row).put(StyleRole::Warning, &text::one_row(note, 300));
    }
    if found.rows.is_empty() || page.query.is_empty() || !found.problem.is_empty() {
        explain(scene, page, rows, buf);
        return;
    }
    let shown = || {
        let visible = found.rows.iter().enumerate().skip(page.list.offset);
        visible.take(usize::from(rows.height))
    };
    let widest = |name: fn(&RecordMatch) -> &str, most: usize| {
        let widths = shown().map(|(_, row)| text::width(name(row)));
        widths.max().unwrap_or_default().min(most)
    };
    let most = (usize::from(inside.width) / 4).min(MAX_NAME);
    let short = widest(|row| &row.short, MAX_SHORT);
    let units = match area.width >= MEDIUM {
        true => widest(|row| &row.unit, most),
        false => 0,
    };
    let tools = match area.width >= WIDE {
        true => widest(|row| &row.tool, most),
        false => 0,
    };
    for (y, (index, row)) in (rows.y..rows.bottom()).zip(shown()) {
        let line = Rect {
            y,
            height: 1,
            ..rows
        };
        draw_row(scene, (page, row), (short, units, tools), line, buf);
        if index == page.list.selected {
            buf.set_style(line, scene.theme.style(StyleRole::Selected));
        }
    }
}

/// Paints why there are no rows, and what helps.
fn explain(scene: &DrawContext<'_>, page: &RecordSearchPage, area: Rect, buf: &mut Buffer) {
    let found = &page.found;
    let lines: Vec<String> = if !found.problem.is_empty() {
        vec![found.problem.clone()]
    } else if page.query.trim().is_empty() {
        HELP.iter().copied().map(str::to_owned).collect()
    } else if page.is_outdated() || !found.progress.is_empty() {
        vec!["searching".to_owned()]
    } else {
        vec![
            "nothing contains it".to_owned(),
            "Fewer or other words may be found; a text begins and ends at words of letters, digits and _.".to_owned(),
            "Words such as failed and tool:query are filters; between quotes, they are texts.".to_owned(),
        ]
    };
    let width = usize::from(area.width);
    let wrapped = lines.into_iter().flat_map(|line| match line.is_empty() {
        true => vec![line],
        false => text::wrap(&line, width),
    });
    for (y, line) in (area.y..area.bottom()).zip(wrapped) {
        let row = Rect {
            y,
            height: 1,
            ..area
        };
        RowWriter::row(scene, buf, row).put(StyleRole::Dim, &line);
    }
}

fn draw_row(
    scene: &DrawContext<'_>,
    (page, row): (&RecordSearchPage, &RecordMatch),
    (short, units, tools): (usize, usize, usize),
    area: Rect,
    buf: &mut Buffer,
) {
    let cut = scene.theme.glyphs.cut;
    let mut pen = RowWriter::row(scene, buf, area);
    pen.cell_right(StyleRole::Dim, &row.age, AGE);
    pen.skip(1);
    let role = match row.is_of_session() {
        true => StyleRole::Focus,
        false => StyleRole::Text,
    };
    pen.cell(role, &text::fit_middle(&row.short, short, cut), short);
    pen.skip(1);
    if units > 0 {
        pen.cell(
            StyleRole::Text,
            &text::fit_middle(&row.unit, units, cut),
            units,
        );
        pen.skip(1);
    }
    let role = match row.has_failed {
        true => StyleRole::Failed,
        false => StyleRole::Dim,
    };
    pen.cell(role, &row.kind, KIND);
    pen.skip(1);
    if tools > 0 {
        pen.cell(role, &text::fit_middle(&row.tool, tools, cut), tools);
        pen.skip(1);
    }
    let start = pen.next_column();
    let first = page.found.texts.first().map_or("", String::as_str);
    let room = pen.room();
    pen.put(StyleRole::Text, &around_match(&row.text, first, room));
    let marked = Rect {
        x: start,
        width: area.right().saturating_sub(start),
        ..area
    };
    for text in &page.found.texts {
        mark_matches(scene, text, marked, buf);
    }
}
