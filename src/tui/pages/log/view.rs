//! The messages of the run, oldest first.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    widgets::{Clear, Widget as _},
};

use super::recording_failure_lines;
use crate::page::DrawContext;
use crate::widgets::{RowWriter, pane};
use crate::{model::ScrollList, theme::StyleRole};
use ingestdeck_core::{run::state::LogMessage, tape::note::Severity, text};

pub(crate) fn draw(scene: &DrawContext<'_>, list: &ScrollList, area: Rect, buf: &mut Buffer) {
    let messages = scene.run_view.messages();
    let place = format!(" {} ", messages.len());
    let inside = pane(
        scene,
        area,
        true,
        &[(StyleRole::Strong, "log")],
        &[(StyleRole::Dim, &place)],
        buf,
    );
    let inside = draw_failure(scene, inside, buf);
    if messages.is_empty() {
        RowWriter::row(scene, buf, inside).put(StyleRole::Dim, "no messages yet");
    }
    let mut selected = None;
    for (y, (index, message)) in
        (inside.y..inside.bottom()).zip(messages.iter().enumerate().skip(list.offset))
    {
        let line = Rect {
            y,
            height: 1,
            ..inside
        };
        let mut pen = RowWriter::row(scene, buf, line);
        let (role, word) = role_of(message.level);
        let playhead = &scene.model.playhead;
        let columns = playhead.moment_columns();
        pen.cell(StyleRole::Dim, &playhead.moment(message.at), columns);
        pen.cell(role, word, 8);
        if let Some(unit) = &message.unit {
            let width = text::width(unit).min(usize::from(inside.width) / 4);
            pen.cell(StyleRole::Dim, unit, width);
            pen.skip(1);
        }
        let row = text::one_row(&message.text, 600);
        let is_cut = message.text.contains('\n') || text::width(&row) > pen.room();
        pen.put(role, &row);
        if index == list.selected {
            buf.set_style(line, scene.theme.style(StyleRole::Selected));
            selected = is_cut.then_some((y, message));
        }
    }
    if let Some((y, message)) = selected {
        expand_message(scene, message, y, inside, buf);
    }
}

/// Draws the full text of a message that does not fit into its row at `y`, over rows on the side with more room.
fn expand_message(
    scene: &DrawContext<'_>,
    message: &LogMessage,
    y: u16,
    inside: Rect,
    buf: &mut Buffer,
) {
    let unit = message
        .unit
        .as_ref()
        .map(|unit| format!("{unit}: "))
        .unwrap_or_default();
    let mut lines = text::wrap(
        &format!("{unit}{}", message.text),
        usize::from(inside.width),
    );
    let (above, below) = (y - inside.y, inside.bottom() - y - 1);
    // Keep one row between them, if there is one to spare.
    let most = usize::from(above.max(below).saturating_sub(1));
    if lines.len() > most {
        lines.truncate(most);
        lines.last_mut().into_iter().for_each(|line| line.push('…'));
    }
    let rows = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    if rows == 0 {
        return;
    }
    let (first, edge) = if below >= above {
        (inside.bottom() - rows, inside.bottom() - rows - 1)
    } else {
        (inside.y, inside.y + rows)
    };
    let rule = scene.theme.glyphs.frame[5].repeat(usize::from(inside.width));
    let role = role_of(message.level).0;
    let rows = lines.iter().map(|line| (role, line.as_str()));
    for (y, (role, line)) in (first..)
        .zip(rows)
        .chain([(edge, (StyleRole::Dim, rule.as_str()))])
    {
        let line_area = Rect {
            y,
            height: 1,
            ..inside
        };
        Clear.render(line_area, buf);
        RowWriter::row(scene, buf, line_area).put(role, line);
    }
}

fn role_of(level: Severity) -> (StyleRole, &'static str) {
    match level {
        Severity::Debug => (StyleRole::Dim, "debug"),
        Severity::Info => (StyleRole::Text, "info"),
        Severity::Warning => (StyleRole::Warning, "warning"),
        Severity::Error => (StyleRole::Failed, "error"),
    }
}

/// Draws why recording failed, and returns the area that is left for the messages.
fn draw_failure(scene: &DrawContext<'_>, inside: Rect, buf: &mut Buffer) -> Rect {
    let why = recording_failure_lines(scene.model, inside);
    let rows = u16::try_from(why.len())
        .unwrap_or(u16::MAX)
        .min(inside.height);
    for (y, line) in (inside.y..inside.y + rows).zip(&why) {
        RowWriter::row(
            scene,
            buf,
            Rect {
                y,
                height: 1,
                ..inside
            },
        )
        .put(StyleRole::Failed, line);
    }
    Rect {
        y: inside.y + rows,
        height: inside.height - rows,
        ..inside
    }
}
