//! The form for the answer to a held call.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    widgets::{Clear, Widget as _},
};

use crate::page::DrawContext;
use crate::widgets::{RowWriter, pane};
use crate::{actions::answer, model::AnswerForm, theme::StyleRole};
use ingestdeck_core::{
    actions::input_form::{InputField, InputOption},
    text,
};

/// Maximum rows of the question, and of the description of an option.
const MAX_PROMPT_ROWS: usize = 6;
const MAX_DESCRIPTION_ROWS: usize = 3;
/// Rows of a text that is being typed.
const TEXT_ROWS: u16 = 3;
/// Maximum columns of a label next to its description.
const LABEL_WIDTH: usize = 28;

pub(crate) fn draw(scene: &DrawContext<'_>, form: &AnswerForm, body: Rect, buf: &mut Buffer) {
    let Some(field) = form.current() else {
        return;
    };
    let width = body.width.saturating_sub(4).min(96).max(body.width.min(30));
    let columns = usize::from(width.saturating_sub(2)).max(1);
    let mut prompt = Vec::new();
    let asked = [&form.form.message, &field.prompt];
    for part in asked.into_iter().filter(|part| !part.is_empty()) {
        let most = MAX_PROMPT_ROWS.saturating_sub(prompt.len());
        prompt.extend(text::wrap_at_most(part, columns, most));
    }
    let problem = answer::problem(scene.run_view, form);
    let problem = problem.map_or_else(Vec::new, |problem| text::wrap_at_most(&problem, columns, 2));
    let description = field.options.get(form.row);
    let description = description.filter(|option| !option.description.is_empty());
    let description = description.map_or_else(Vec::new, |option| {
        text::wrap_at_most(&option.description, columns, MAX_DESCRIPTION_ROWS)
    });
    let text_rows = match (field.text, form.is_typing()) {
        (None, _) => 0,
        (Some(_), true) => TEXT_ROWS + 1,
        (Some(_), false) => 1,
    };
    let rows_of = |lines: &[String]| u16::try_from(lines.len()).unwrap_or(u16::MAX);
    // The keys of the form take the last row.
    let fixed = rows_of(&prompt) + text_rows + rows_of(&description) + rows_of(&problem) + 2;
    let options = u16::try_from(field.options.len()).unwrap_or(u16::MAX);
    let height = fixed
        .saturating_add(options)
        .saturating_add(2)
        .min(body.height.saturating_sub(2).max(body.height.min(9)));
    let area = Rect {
        x: body.x + (body.width - width) / 2,
        y: body.y + (body.height - height) / 2,
        width,
        height,
    };
    Clear.render(area, buf);
    let title = title(form, field);
    let inside = pane(scene, area, true, &[(StyleRole::Strong, &title)], &[], buf);
    let line = |y: u16| {
        Rect {
            y,
            height: 1,
            ..inside
        }
        .intersection(inside)
    };
    let mut y = inside.y;
    for row in &prompt {
        RowWriter::row(scene, buf, line(y)).put(StyleRole::Strong, row);
        y += 1;
    }
    let room = inside.height.saturating_sub(fixed).min(options);
    draw_options(
        scene,
        form,
        field,
        Rect {
            y,
            height: room,
            ..inside
        },
        buf,
    );
    y = y.saturating_add(room);
    y = draw_text(scene, form, field, (y, text_rows), inside, buf);
    y = y.saturating_add(1);
    for row in &description {
        RowWriter::row(scene, buf, line(y)).put(StyleRole::Dim, row);
        y += 1;
    }
    for row in &problem {
        RowWriter::row(scene, buf, line(y)).put(StyleRole::Failed, row);
        y += 1;
    }
    let keys = line(inside.bottom().saturating_sub(1));
    RowWriter::row(scene, buf, keys).put(StyleRole::Dim, &key_line(form, field));
}

fn title(form: &AnswerForm, field: &InputField) -> String {
    let who = match &form.form.server {
        Some(server) => format!("`{}` asks", text::printable(server, 30)),
        None => "the model asks".to_owned(),
    };
    let place = match form.form.fields.len() {
        1 => String::new(),
        count => format!(" ({} of {count})", form.field + 1),
    };
    let header = match field.header.is_empty() {
        true => String::new(),
        false => format!(": {}", text::one_row(&field.header, 40)),
    };
    let optional = if field.is_required { "" } else { ", optional" };
    format!("{who}{place}{header}{optional}")
}

/// The keys of this form, in addition to those of every form.
fn key_line(form: &AnswerForm, field: &InputField) -> String {
    let enter = if form.field + 1 < form.form.fields.len() {
        "Enter next"
    } else {
        "Enter send"
    };
    if form.is_typing() {
        let back = if field.options.is_empty() {
            ""
        } else {
            "↑ options · "
        };
        return format!("{back}{enter}");
    }
    let choose = match field.options.len() {
        0 | 1 => "1 choose".to_owned(),
        count => format!("1–{} choose", count.min(9)),
    };
    let own = if field.text.is_some() {
        " · o own words"
    } else {
        ""
    };
    format!("{choose}{own} · {enter} · d decline · j/k move · Space pick")
}

fn draw_options(
    scene: &DrawContext<'_>,
    form: &AnswerForm,
    field: &InputField,
    area: Rect,
    buf: &mut Buffer,
) {
    let shown = usize::from(area.height);
    let first = (form.row + 1)
        .min(field.options.len())
        .saturating_sub(shown);
    let rows = field.options.iter().enumerate().skip(first);
    for (y, (number, option)) in (area.y..area.bottom()).zip(rows) {
        let line = Rect {
            y,
            height: 1,
            ..area
        };
        let mut pen = RowWriter::row(scene, buf, line);
        put_number(&mut pen, number);
        let mark = match (field.is_multiple, form.is_chosen(number)) {
            (false, true) => "(x) ",
            (false, false) => "( ) ",
            (true, true) => "[x] ",
            (true, false) => "[ ] ",
        };
        put_option(&mut pen, mark, option);
        if number == form.row {
            buf.set_style(line, scene.theme.style(StyleRole::Selected));
        }
    }
}

fn put_number(pen: &mut RowWriter<'_>, number: usize) {
    let digit = match number {
        0..=8 => format!("{} ", number + 1),
        _ => "  ".to_owned(),
    };
    pen.put(StyleRole::Key, &digit);
}

fn put_option(pen: &mut RowWriter<'_>, mark: &str, option: &InputOption) {
    pen.put(StyleRole::Text, mark);
    let label = text::one_row(&option.label, pen.room());
    if option.description.is_empty() {
        pen.put(StyleRole::Text, &label);
        return;
    }
    pen.put(
        StyleRole::Text,
        &text::printable(&label, LABEL_WIDTH.min(pen.room())),
    );
    pen.skip(2);
    let room = pen.room();
    pen.put(StyleRole::Dim, &text::one_row(&option.description, room));
}

/// Draws the text below the options. Returns the row after it.
fn draw_text(
    scene: &DrawContext<'_>,
    form: &AnswerForm,
    field: &InputField,
    (y, rows): (u16, u16),
    inside: Rect,
    buf: &mut Buffer,
) -> u16 {
    let Some(area) = form.text().filter(|_| rows > 0) else {
        return y;
    };
    let line = Rect {
        y,
        height: 1,
        ..inside
    }
    .intersection(inside);
    let mut pen = RowWriter::row(scene, buf, line);
    put_number(&mut pen, field.options.len());
    let name = if field.options.is_empty() {
        "answer"
    } else {
        "own words"
    };
    if form.is_typing() {
        pen.put(StyleRole::Key, name);
        let rest = Rect {
            x: inside.x + inside.width.min(2),
            y: y.saturating_add(1),
            width: inside.width.saturating_sub(2),
            height: rows - 1,
        }
        .intersection(inside);
        if !rest.is_empty() {
            area.render(rest, buf);
            scene.wide_rows.add_area(rest);
            // The editor ignores the theme; its reversed cursor is kept.
            buf.set_style(rest, scene.theme.style(StyleRole::Text));
        }
    } else {
        pen.put(StyleRole::Dim, name);
        let typed = area.lines().join(" ");
        if !typed.trim().is_empty() {
            pen.put(StyleRole::Dim, ": ");
            let room = pen.room();
            pen.put(StyleRole::Text, &text::one_row(&typed, room));
        }
    }
    y.saturating_add(rows)
}
