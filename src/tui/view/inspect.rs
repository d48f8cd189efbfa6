//! The inspector: attempts and panels as tabs, and actions next to the details of the selected one.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{DrawContext, RowWriter, document_view, pane, stream, transcript};
use crate::{
    text,
    tui::{
        model::{InspectPanel, InspectSide, InspectView},
        theme::{StyleRole, status_role},
    },
};

pub(crate) fn draw(scene: &DrawContext<'_>, view: &InspectView, area: Rect, buf: &mut Buffer) {
    let unit = view.unit(scene.run_view);
    let rows = view.attempt_id(scene.run_view).map_or(&[][..], |attempt_id| scene.run_view.rows(attempt_id));
    let key = text::printable(&view.unit, 60);
    let role = unit.map_or(StyleRole::Text, |unit| status_role(unit.status));
    let sign = unit.map_or("", |unit| scene.theme.glyphs.unit(unit));
    let word = unit.map_or("", |unit| unit.status_text());
    let title = [
        (role, sign),
        (StyleRole::Text, " "),
        (StyleRole::Strong, key.as_ref()),
        (StyleRole::Text, " "),
        (role, word),
        (StyleRole::Dim, " inspector"),
    ];
    let place = place(view, rows.len());
    pane(scene, area, true, &title, &[(StyleRole::Dim, &place)], buf);
    let areas = view.areas(area);
    if let Some(unit) = unit {
        let shown = view.attempt(scene.run_view).map(|(index, _)| index);
        transcript::tabs(scene, unit, shown, areas.attempts, buf);
    }
    panels(scene, view, areas.panels, buf);
    if let Some(list) = areas.actions {
        actions(scene, view, list, buf);
    }
    if let Some(rule) = areas.rule {
        let [.., side, flat] = scene.theme.glyphs.frame;
        for y in rule.y..rule.bottom() {
            let sign = if rule.width == 1 { side.to_owned() } else { flat.repeat(usize::from(rule.width)) };
            RowWriter::row(scene, buf, Rect { y, height: 1, ..rule }).put(StyleRole::Border, &sign);
        }
    }
    if let Some(detail) = areas.detail {
        let focus = !view.is_list();
        match scene.cache.document().filter(|_| view.document.lines > 0) {
            Some(document) => {
                let selected = focus.then_some(view.lines.selected);
                document_view::draw(scene, document, view.lines.offset, selected, view.match_line, detail, buf);
            }
            None if rows.is_empty() => RowWriter::row(scene, buf, detail).put(StyleRole::Dim, "no output yet"),
            None => {}
        }
    }
}

/// Position in the actions or in the lines.
fn place(view: &InspectView, rows: usize) -> String {
    let more = if view.document.complete { "" } else { "+" };
    let lines = format!("line {}/{}{more}", (view.lines.selected + 1).min(view.document.lines), view.document.lines);
    match (view.panel, view.side) {
        (InspectPanel::Actions, _) if rows == 0 => String::new(),
        (InspectPanel::Actions, InspectSide::Detail) => format!(" {}/{rows} · {lines} ", view.actions.selected + 1),
        (InspectPanel::Actions, InspectSide::Actions) => match view.actions.new_rows(rows) {
            0 => format!(" {}/{rows} ", view.actions.selected + 1),
            new_rows => format!(" {}/{rows} · {new_rows} new ", view.actions.selected + 1),
        },
        (InspectPanel::Prompt | InspectPanel::Isolation | InspectPanel::Stderr | InspectPanel::Verdict, _) => {
            format!(" {lines} ")
        }
    }
}

fn panels(scene: &DrawContext<'_>, view: &InspectView, area: Rect, buf: &mut Buffer) {
    let mut pen = RowWriter::row(scene, buf, area);
    // With little room, only the keys and the name of the current panel are shown.
    let short = InspectPanel::ALL.iter().map(|panel| panel.label().len() + 5).sum::<usize>() > usize::from(area.width);
    for (number, panel) in (1..).zip(InspectPanel::ALL) {
        let here = panel == view.panel;
        let text = if short && !here { format!(" {number} ") } else { format!(" {number} {} ", panel.label()) };
        pen.put(if here { StyleRole::Badge } else { StyleRole::Dim }, &text);
        pen.skip(1);
    }
}

fn actions(scene: &DrawContext<'_>, view: &InspectView, area: Rect, buf: &mut Buffer) {
    let rows = view.attempt_id(scene.run_view).map_or(&[][..], |attempt_id| scene.run_view.rows(attempt_id));
    if rows.is_empty() {
        RowWriter::row(scene, buf, area).put(StyleRole::Dim, "no output yet");
    }
    for (y, (index, row)) in (area.y..area.bottom()).zip(rows.iter().enumerate().skip(view.actions.offset)) {
        let line = Rect { y, height: 1, ..area };
        stream::row(scene, row, line, buf);
        if index == view.actions.selected {
            let role = if view.is_list() { StyleRole::Selected } else { StyleRole::Resting };
            buf.set_style(line, scene.theme.style(role));
        }
    }
}
