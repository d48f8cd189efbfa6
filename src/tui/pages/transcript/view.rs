//! The wire: all lines of an attempt in both directions, one row each.

use ratatui::{buffer::Buffer, layout::Rect};

use super::TranscriptPage;
use crate::page::DrawContext;
use crate::pages::inspect::view as inspect;
use crate::widgets::RowWriter;
use crate::{layout, theme::StyleRole};
use ingestdeck_core::{
    tape::Seq,
    text::{self, clock},
};

pub(crate) fn draw(scene: &DrawContext<'_>, view: &TranscriptPage, area: Rect, buf: &mut Buffer) {
    let attempt_id = view.attempt_id(scene.run_view);
    let entries = attempt_id.map_or(&[][..], |attempt_id| scene.run_view.entries(attempt_id));
    let new_rows = view.list.new_rows(entries.len());
    let right = match (view.list.follow, new_rows) {
        (true, _) => format!(" {} lines ", entries.len()),
        (false, 0) => format!(" {}/{} ", view.list.selected + 1, entries.len()),
        (false, new_rows) => format!(
            " {}/{} · SCROLLED, {new_rows} new ",
            view.list.selected + 1,
            entries.len()
        ),
    };
    let shown = view.shown(scene.run_view).map(|(index, _)| index);
    inspect::frame(scene, &view.unit, shown, None, &right, area, buf);
    let [.., rows] = layout::inspector_areas(area);
    if entries.is_empty() {
        RowWriter::row(scene, buf, rows).put(StyleRole::Dim, "no lines yet");
    }
    let digits = entries
        .last()
        .map_or(1, |last| last.to_string().len())
        .max(3);
    for (y, (index, seq)) in
        (rows.y..rows.bottom()).zip(entries.iter().enumerate().skip(view.list.offset))
    {
        let line = Rect {
            y,
            height: 1,
            ..rows
        };
        row(scene, Seq(u64::from(*seq)), digits, line, buf);
        if index == view.list.selected {
            buf.set_style(line, scene.theme.style(StyleRole::Selected));
        }
    }
}

fn row(scene: &DrawContext<'_>, seq: Seq, digits: usize, area: Rect, buf: &mut Buffer) {
    let mut pen = RowWriter::row(scene, buf, area);
    pen.cell_right(StyleRole::Dim, &seq.to_string(), digits);
    pen.skip(1);
    let Some(line) = scene.cache.entry(seq) else {
        return;
    };
    if scene.source.origin.has_times {
        let at = if line.stream == "?" {
            String::new()
        } else {
            clock(line.at)
        };
        pen.cell_right(StyleRole::Dim, &at, 7);
        pen.skip(1);
    }
    let stream = if line.stream == "err" || line.stream == "raw" {
        StyleRole::Warning
    } else {
        StyleRole::Dim
    };
    pen.cell(stream, line.stream, 5);
    let kind = if area.width < 60 { 9 } else { 17 };
    pen.cell(line.role, &line.kind, kind);
    pen.skip(1);
    if area.width >= 70 {
        pen.end_with(&[(StyleRole::Dim, &format!(" {:>9}", text::size(line.size)))]);
    }
    pen.put(StyleRole::Text, &line.text);
}
