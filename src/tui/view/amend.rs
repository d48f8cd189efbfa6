//! The form for a retry with changed parameters.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    widgets::{Clear, Widget as _},
};
use tui_textarea::TextArea;

use crate::page::DrawContext;
use crate::widgets::{RowWriter, pane};
use crate::{
    actions::amend,
    model::{AmendField, AmendForm},
    stream_frame::wrap_with_ellipsis,
    theme::StyleRole,
};
use ingestdeck_core::text;

/// Columns of the field labels.
const NAMES: u16 = 9;

pub(crate) fn draw(scene: &DrawContext<'_>, form: &AmendForm, body: Rect, buf: &mut Buffer) {
    let width = body.width.saturating_sub(4).min(88).max(body.width.min(30));
    let height = body
        .height
        .saturating_sub(2)
        .min(18)
        .max(body.height.min(9));
    let area = Rect {
        x: body.x + (body.width - width) / 2,
        y: body.y + (body.height - height) / 2,
        width,
        height,
    };
    Clear.render(area, buf);
    let title = match form.units.as_slice() {
        [unit] => format!("new attempt at {}", text::printable(unit, 40)),
        units => format!("new attempts at {}", text::pluralize(units.len(), "unit")),
    };
    let inside = pane(scene, area, true, &[(StyleRole::Strong, &title)], &[], buf);
    let problem = amend::problem(scene.model, scene.run_view, form);
    let problem = problem
        .as_deref()
        .map(|problem| text::wrap(problem, usize::from(inside.width)));
    let problem: Vec<_> = problem.into_iter().flatten().take(2).collect();
    let taken = u16::try_from(problem.len()).unwrap_or(u16::MAX);
    let below = 3 + taken;
    let row = |y: u16| {
        Rect {
            y,
            height: 1,
            ..inside
        }
        .intersection(inside)
    };

    // The feedback has at least two rows.
    let room = inside.height.saturating_sub(below + 3).min(2);
    let reason = amend::reason(&scene.run_view.state, form).map(|(role, reason)| {
        let columns = usize::from(inside.width);
        (
            role,
            wrap_with_ellipsis(&reason, columns, usize::from(room)),
        )
    });
    let mut top = inside.y;
    for (role, lines) in reason.into_iter().filter(|_| room > 0) {
        for line in lines {
            RowWriter::row(scene, buf, row(top)).put(role, &line);
            top = top.saturating_add(1);
        }
    }
    name(
        scene,
        form,
        AmendField::Feedback,
        "feedback: text for the model",
        row(top),
        buf,
    );
    let words = Rect {
        y: top.saturating_add(1),
        height: inside
            .bottom()
            .saturating_sub(below)
            .saturating_sub(top.saturating_add(1)),
        ..inside
    };
    field(scene, &form.feedback, words.intersection(inside), buf);

    let first = inside.bottom().saturating_sub(below);
    for (y, field_of, label, content) in [
        (first, AmendField::Model, "model", &form.model),
        (
            first.saturating_add(1),
            AmendField::Budget,
            "turns",
            &form.budget,
        ),
    ] {
        let line = row(y);
        name(scene, form, field_of, label, line, buf);
        let rest = Rect {
            x: line.x + NAMES.min(line.width),
            width: line.width.saturating_sub(NAMES),
            ..line
        };
        if content.is_empty() && form.field != field_of {
            RowWriter::row(scene, buf, rest).put(StyleRole::Dim, "as planned");
        } else {
            field(scene, content, rest, buf);
        }
    }
    session(scene, form, row(first.saturating_add(2)), buf);
    for (y, line) in (inside.bottom().saturating_sub(taken)..inside.bottom()).zip(&problem) {
        RowWriter::row(scene, buf, row(y)).put(StyleRole::Failed, line);
    }
}

fn name(
    scene: &DrawContext<'_>,
    form: &AmendForm,
    field: AmendField,
    name: &str,
    line: Rect,
    buf: &mut Buffer,
) {
    let role = if form.field == field {
        StyleRole::Key
    } else {
        StyleRole::Dim
    };
    RowWriter::row(scene, buf, line).put(role, name);
}

fn field(scene: &DrawContext<'_>, content: &TextArea<'_>, area: Rect, buf: &mut Buffer) {
    if area.is_empty() {
        return;
    }
    content.render(area, buf);
    scene.wide_rows.add_area(area);
    // The editor ignores the theme; its reversed cursor is kept.
    buf.set_style(area, scene.theme.style(StyleRole::Text));
}

fn session(scene: &DrawContext<'_>, form: &AmendForm, line: Rect, buf: &mut Buffer) {
    name(scene, form, AmendField::Session, "session", line, buf);
    let mut pen = RowWriter::row(scene, buf, line);
    pen.skip(usize::from(NAMES));
    let Some(session) = &form.session else {
        pen.put(
            StyleRole::Dim,
            match form.units.len() {
                1 if scene.model.connection.is_live => {
                    "a new one; the last attempt's session is unknown"
                }
                1 => "a new one",
                _ => "a new one for each",
            },
        );
        return;
    };
    let short: String = session.chars().take(8).collect();
    for (chosen, word) in [
        (!form.resume, "a new one".to_owned()),
        (form.resume, format!("resume {short}")),
    ] {
        let role = match (chosen, form.field == AmendField::Session) {
            (true, true) => StyleRole::Selected,
            (true, false) => StyleRole::Strong,
            (false, _) => StyleRole::Dim,
        };
        // The choice is marked by a sign, not by colour alone.
        pen.put(role, if chosen { "(x) " } else { "( ) " });
        pen.put(role, &text::printable(&word, 24));
        pen.skip(2);
    }
}
