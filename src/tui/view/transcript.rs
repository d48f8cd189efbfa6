//! The transcript: all lines of an attempt in both directions, one row each, with attempts as tabs.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{DrawContext, RowWriter, pane};
use crate::{
    run::state::UnitState,
    tape::{Seq, note::StopReason},
    text::{self, clock},
    tui::{
        model::TranscriptView,
        theme::{StyleRole, status_role},
    },
};

pub(crate) fn draw(scene: &DrawContext<'_>, view: &TranscriptView, area: Rect, buf: &mut Buffer) {
    let unit = scene.run_view.state.units.iter().find(|unit| unit.key == view.unit);
    let attempt_id = view.attempt_id(scene.run_view);
    let entries = attempt_id.map_or(&[][..], |attempt_id| scene.run_view.entries(attempt_id));
    let key = text::printable(&view.unit, 60);
    let new_rows = view.list.new_rows(entries.len());
    let right = match (view.list.follow, new_rows) {
        (true, _) => format!(" {} lines ", entries.len()),
        (false, 0) => format!(" {}/{} ", view.list.selected + 1, entries.len()),
        (false, new_rows) => format!(" {}/{} · PAUSED, {new_rows} new ", view.list.selected + 1, entries.len()),
    };
    let role = unit.map_or(StyleRole::Text, |unit| status_role(unit.status));
    let sign = unit.map_or("", |unit| scene.theme.glyphs.unit(unit));
    let title =
        [(role, sign), (StyleRole::Text, " "), (StyleRole::Strong, key.as_ref()), (StyleRole::Dim, " transcript")];
    let inside = pane(scene, area, true, &title, &[(StyleRole::Dim, &right)], buf);
    if let Some(unit) = unit {
        let shown = view.attempt(scene.run_view).map(|(index, _)| index);
        tabs(scene, unit, shown, Rect { height: inside.height.min(1), ..inside }, buf);
    }
    let rows = Rect { y: inside.y + 1, height: inside.height.saturating_sub(1), ..inside };
    if entries.is_empty() {
        RowWriter::row(scene, buf, rows).put(StyleRole::Dim, "no lines yet");
    }
    let digits = entries.last().map_or(1, |last| last.to_string().len()).max(3);
    for (y, (index, seq)) in (rows.y..rows.bottom()).zip(entries.iter().enumerate().skip(view.list.offset)) {
        let line = Rect { y, height: 1, ..rows };
        row(scene, Seq(u64::from(*seq)), digits, line, buf);
        if index == view.list.selected {
            buf.set_style(line, scene.theme.style(StyleRole::Selected));
        }
    }
}

/// Paints the attempts of a unit as tabs, and the session of the shown attempt.
pub(super) fn tabs(scene: &DrawContext<'_>, unit: &UnitState, shown: Option<usize>, area: Rect, buf: &mut Buffer) {
    let mut pen = RowWriter::row(scene, buf, area);
    for (index, attempt) in unit.attempts.iter().enumerate() {
        let here = Some(index) == shown;
        let word = match (&attempt.verdict, attempt.ended_at) {
            (Some(verdict), _) if verdict.stop == StopReason::Budget => "budget".to_owned(),
            (Some(verdict), _) => format!("{:?}", verdict.outcome).to_lowercase(),
            (None, Some(_)) if attempt.reported_ok == Some(false) => "failed".to_owned(),
            (None, Some(_)) => "completed".to_owned(),
            (None, None) => "open".to_owned(),
        };
        let text = format!(" try {} {word} ", attempt.number);
        pen.put(if here { StyleRole::Badge } else { StyleRole::Dim }, &text);
        pen.skip(1);
    }
    let session = shown.and_then(|index| unit.attempts.get(index)).and_then(|attempt| attempt.setup.session.as_deref());
    if let Some(session) = session {
        let session = text::printable(session, 40);
        pen.end_with(&[(StyleRole::Dim, "session "), (StyleRole::Dim, &session)]);
    }
}

fn row(scene: &DrawContext<'_>, seq: Seq, digits: usize, area: Rect, buf: &mut Buffer) {
    let mut pen = RowWriter::row(scene, buf, area);
    pen.cell_right(StyleRole::Dim, &seq.to_string(), digits);
    pen.skip(1);
    let Some(line) = scene.cache.entry(seq) else { return };
    if scene.source.origin.has_times {
        let at = if line.stream == "?" { String::new() } else { clock(line.at) };
        pen.cell_right(StyleRole::Dim, &at, 7);
        pen.skip(1);
    }
    let stream = if line.stream == "err" || line.stream == "raw" { StyleRole::Warning } else { StyleRole::Dim };
    pen.cell(stream, line.stream, 5);
    let kind = if area.width < 60 { 9 } else { 17 };
    pen.cell(line.role, &line.kind, kind);
    pen.skip(1);
    if area.width >= 70 {
        pen.end_with(&[(StyleRole::Dim, &format!(" {:>9}", text::size(line.size)))]);
    }
    pen.put(StyleRole::Text, &line.text);
}
