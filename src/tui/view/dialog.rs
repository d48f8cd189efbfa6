//! Questions in the middle of the screen, and messages that disappear automatically.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    widgets::{Clear, Widget as _},
};

use super::{footer, header};
use crate::page::DrawContext;
use crate::widgets::{RowWriter, pane};
use crate::{
    action::UserAction,
    actions::{command_line, hold},
    key::display_chord,
    layout::{self, ScreenLayout},
    model::{ArgumentsEditor, ConfirmQuestion},
    theme::StyleRole,
};
use ingestdeck_core::text;

/// Maximum lines of a message.
const MAX_MESSAGE_LINES: u16 = 4;
/// Maximum number of listed commands, and the columns of their list.
const MAX_COMMANDS: u16 = 14;
const COMMANDS_WIDTH: u16 = 78;

pub(crate) fn question(
    scene: &DrawContext<'_>,
    question: &ConfirmQuestion,
    body: Rect,
    buf: &mut Buffer,
) {
    let answers = answer_rows(scene, question);
    let key_width = answers
        .iter()
        .map(|(keys, _)| text::width(keys))
        .max()
        .unwrap_or(0)
        + 2;
    // A confirmation and its refusal are short.
    let is_one_row = answers.iter().all(|(_, label)| label.len() <= 5);
    let row_width = |(keys, label): &(String, String)| match is_one_row {
        true => text::width(keys) + text::width(label) + 4,
        false => key_width + text::width(label),
    };
    let answers_width = match is_one_row {
        true => answers.iter().map(row_width).sum(),
        false => answers.iter().map(row_width).max().unwrap_or(0),
    };
    let lines = [&question.text].into_iter().chain(&question.details);
    let longest = lines
        .map(|line| text::width(line))
        .max()
        .unwrap_or(0)
        .max(answers_width);
    let width = u16::try_from(longest)
        .unwrap_or(u16::MAX)
        .saturating_add(4)
        .clamp(30, 76)
        .min(body.width);
    let inside = usize::from(width.saturating_sub(4)).max(1);
    let rows = |role: StyleRole, line: &str| {
        text::wrap(line, inside)
            .into_iter()
            .map(move |row| (role, row))
            .collect::<Vec<_>>()
    };
    let mut lines = rows(StyleRole::Strong, &question.text);
    for detail in &question.details {
        lines.extend(rows(StyleRole::Text, detail));
    }
    let label_width = inside.saturating_sub(key_width).max(1);
    let mut labels: Vec<Vec<String>> = answers
        .iter()
        .map(|(_, label)| text::wrap(label, label_width))
        .collect();
    let most = usize::from(body.height.saturating_sub(2));
    // The answers come first where rows are few: each keeps its first row, and the question one of its rows.
    if labels.iter().map(Vec::len).sum::<usize>() + 1 > most {
        labels.iter_mut().for_each(|rows| rows.truncate(1));
    }
    let needed = if is_one_row {
        1
    } else {
        labels.iter().map(Vec::len).sum()
    };
    let gap = usize::from(lines.len() + needed < most);
    let height = u16::try_from((lines.len() + gap + needed).min(most) + 2).unwrap_or(u16::MAX);
    let area = Rect {
        x: body.x + (body.width - width) / 2,
        y: body.y + (body.height - height) / 2,
        width,
        height,
    };
    Clear.render(area, buf);
    let inside = pane(scene, area, true, &[], &[], buf);
    let inside = Rect {
        x: inside.x + 1,
        width: inside.width.saturating_sub(2),
        ..inside
    };
    let first = inside
        .bottom()
        .saturating_sub(u16::try_from(needed).unwrap_or(u16::MAX))
        .max(inside.y);
    for (y, (role, row)) in (inside.y..first).zip(lines) {
        RowWriter::row(
            scene,
            buf,
            Rect {
                y,
                height: 1,
                ..inside
            },
        )
        .put(role, &row);
    }
    if is_one_row {
        let mut pen = RowWriter::row(
            scene,
            buf,
            Rect {
                y: first,
                height: 1,
                ..inside
            },
        );
        for (keys, label) in &answers {
            pen.put(StyleRole::Key, keys);
            pen.put(StyleRole::Text, &format!(" {label}   "));
        }
        return;
    }
    let mut y = first;
    for ((keys, _), label) in answers.iter().zip(&labels) {
        for (index, row) in label.iter().enumerate() {
            if y >= inside.bottom() {
                return;
            }
            let mut pen = RowWriter::row(
                scene,
                buf,
                Rect {
                    y,
                    height: 1,
                    ..inside
                },
            );
            pen.cell(
                StyleRole::Key,
                if index == 0 { keys } else { "" },
                key_width,
            );
            pen.put(StyleRole::Text, row);
            y += 1;
        }
    }
}

/// The keys and the label of each answer, with that of Enter.
fn answer_rows(scene: &DrawContext<'_>, question: &ConfirmQuestion) -> Vec<(String, String)> {
    let labels = question
        .answers
        .iter()
        .map(|answer| answer.label.as_str())
        .chain([question.cancel_word()]);
    let keys = question
        .actions()
        .into_iter()
        .map(|action| footer::answer_keys(scene, question, action));
    keys.zip(labels.map(str::to_owned)).collect()
}

/// Paints the editor for the arguments of a call.
pub(crate) fn editor(
    scene: &DrawContext<'_>,
    editor: &ArgumentsEditor,
    body: Rect,
    buf: &mut Buffer,
) {
    let width = body
        .width
        .saturating_sub(4)
        .min(100)
        .max(body.width.min(30));
    let height = body.height.saturating_sub(2).max(body.height.min(5));
    let area = Rect {
        x: body.x + (body.width - width) / 2,
        y: body.y + (body.height - height) / 2,
        width,
        height,
    };
    Clear.render(area, buf);
    let tool = text::printable(&editor.tool, 40);
    let (title, other) = match editor.field_name() {
        Some(name) => (
            format!("{} of {tool}", text::printable(&name, 30)),
            " as plain text".to_owned(),
        ),
        None => {
            let fields = editor.text_fields().join(", ");
            let key = scene
                .model
                .keymap
                .first(UserAction::NextField)
                .unwrap_or_default();
            let other = if fields.is_empty() {
                String::new()
            } else {
                format!(" {key} edits {fields} as plain text")
            };
            (
                format!("arguments of {tool}"),
                text::printable(&other, 60).into_owned(),
            )
        }
    };
    let inside = pane(
        scene,
        area,
        true,
        &[(StyleRole::Strong, &title), (StyleRole::Dim, &other)],
        &[],
        buf,
    );
    let problem = hold::editor_problem(scene.run_view, editor);
    let problem = problem
        .as_deref()
        .map(|problem| text::wrap(problem, usize::from(inside.width)));
    let problem: Vec<_> = problem.into_iter().flatten().take(3).collect();
    let taken = u16::try_from(problem.len()).unwrap_or(u16::MAX);
    let rows = Rect {
        height: inside.height.saturating_sub(taken),
        ..inside
    };
    editor.area.render(rows, buf);
    scene.wide_rows.add_area(rows);
    // The editor ignores the theme; its reversed cursor is kept.
    buf.set_style(rows, scene.theme.style(StyleRole::Text));
    for (y, row) in (rows.bottom()..inside.bottom()).zip(&problem) {
        RowWriter::row(
            scene,
            buf,
            Rect {
                y,
                height: 1,
                ..inside
            },
        )
        .put(StyleRole::Failed, row);
    }
}

/// Paints the words that can be typed next, with their descriptions, at the bottom of the body.
pub(crate) fn commands(scene: &DrawContext<'_>, typed: &str, body: Rect, buf: &mut Buffer) {
    let offers: Vec<_> = command_line::offers(typed)
        .into_iter()
        .map(|(name, about)| (name.to_owned(), about))
        .collect();
    let title = [
        (StyleRole::Strong, "commands"),
        (StyleRole::Dim, " Tab completes"),
    ];
    choices(scene, &title, &offers, body, buf);
}

/// Paints what the keys that were typed can become.
pub(crate) fn continuations(scene: &DrawContext<'_>, body: Rect, buf: &mut Buffer) {
    let model = scene.model;
    let mut choices: Vec<_> = model
        .keymap
        .continuations(&model.pending)
        .filter(|binding| binding.action.spec().is_available(model, scene.run_view))
        .map(|binding| {
            (
                display_chord(&binding.keys),
                binding.action.spec().description,
            )
        })
        .collect();
    choices.sort();
    let typed = display_chord(&model.pending);
    let title = [
        (StyleRole::Key, typed.as_str()),
        (StyleRole::Dim, " and another key"),
    ];
    self::choices(scene, &title, &choices, body, buf);
}

/// Paints a list of keys or commands at the bottom of the body.
fn choices(
    scene: &DrawContext<'_>,
    title: &[(StyleRole, &str)],
    offers: &[(String, &str)],
    body: Rect,
    buf: &mut Buffer,
) {
    let names = offers
        .iter()
        .map(|(name, _)| text::width(name))
        .max()
        .unwrap_or_default();
    let most = body.height.saturating_sub(5).min(MAX_COMMANDS);
    let shown = u16::try_from(offers.len()).unwrap_or(most).min(most);
    if shown == 0 {
        return;
    }
    let body = layout::inner(body);
    let area = Rect {
        y: body.bottom() - shown - 2,
        height: shown + 2,
        width: body.width.min(COMMANDS_WIDTH),
        ..body
    };
    Clear.render(area, buf);
    let more = offers.len() - usize::from(shown);
    let more = if more > 0 {
        format!(" {more} more ")
    } else {
        String::new()
    };
    let inside = pane(scene, area, true, title, &[(StyleRole::Dim, &more)], buf);
    for (y, (name, description)) in (inside.y..inside.bottom()).zip(offers) {
        let mut pen = RowWriter::row(
            scene,
            buf,
            Rect {
                y,
                height: 1,
                ..inside
            },
        );
        pen.cell(StyleRole::Key, name, names + 2);
        pen.put(StyleRole::Text, description);
    }
}

/// Paints a message of several lines at the bottom of the body, above its border.
fn multiline_message(scene: &DrawContext<'_>, message: &str, body: Rect, buf: &mut Buffer) {
    // Without a frame, the whole row is the message.
    let margin = u16::from(body.height >= layout::MIN_FRAMED_ROWS);
    let width = body.width.saturating_sub(2 * margin);
    let mut lines = text::wrap(message, usize::from(width.saturating_sub(2)).max(1));
    let most = usize::from((body.height / 2).clamp(1, MAX_MESSAGE_LINES));
    if lines.len() > most {
        let rest = lines.split_off(most - 1);
        lines.push(rest.join(" "));
    }
    let rows = u16::try_from(lines.len())
        .unwrap_or(MAX_MESSAGE_LINES)
        .min(body.height);
    // A single row covers the lower border instead of a row of the page.
    let (covered, width) = match lines.as_slice() {
        [line] => (
            0,
            u16::try_from(text::width(line) + 2)
                .unwrap_or(width)
                .min(width),
        ),
        _ => (margin, width),
    };
    let area = Rect {
        x: body.x + margin,
        y: body.bottom().saturating_sub(rows + covered).max(body.y),
        width,
        height: rows,
    };
    Clear.render(area, buf);
    for (y, line) in (area.y..area.bottom()).zip(&lines) {
        let mut pen = RowWriter::row(
            scene,
            buf,
            Rect {
                y,
                height: 1,
                ..area
            },
        );
        pen.put(StyleRole::Badge, " ");
        pen.cell(StyleRole::Badge, line, usize::from(width.saturating_sub(2)));
        pen.put(StyleRole::Badge, " ");
    }
}

/// Paints the newest message: in the header, or over the end of the body if it does not fit there.
pub(crate) fn message(scene: &DrawContext<'_>, plan: &ScreenLayout, buf: &mut Buffer) {
    match header::message_place(scene, plan.header) {
        Some((area, text)) => {
            let mut pen = RowWriter::row(scene, buf, area);
            pen.put(StyleRole::Badge, " ");
            pen.put(StyleRole::Badge, &text);
            pen.put(StyleRole::Badge, " ");
        }
        None => {
            let newest = scene.model.toasts.list.last();
            // An announcement would cover much of the page.
            let is_low = plan.area.height < layout::MIN_DIALOG_ROWS;
            if let Some(toast) = newest.filter(|toast| !is_low || !toast.is_announcement()) {
                multiline_message(scene, &text::one_row(&toast.text, 400), plan.body, buf);
            }
        }
    }
}
