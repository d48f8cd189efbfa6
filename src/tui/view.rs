//! Renders the screen as a pure function of its state. One file for each part.
//!
//! Views read and paint. They change no state and know no clock and no terminal; their cost depends on the visible
//! content, not on the size of the run. All text goes through [`RowWriter`], the only way to write to a cell, which
//! escapes it.

pub(crate) mod amend;
pub(crate) mod answer;
pub(crate) mod dialog;
pub(crate) mod footer;
pub(crate) mod header;
mod search_marks;
pub(crate) mod timeline_bar;

use ratatui::{buffer::Buffer, layout::Rect, style::Style};

pub use crate::wide_cells::{WideRows, close_wide_cells};
use crate::widgets::{RowWriter, key_names};

use super::{
    actions::screen, layout::ScreenLayout, model::InputPurpose, page::DrawContext, theme::StyleRole,
};
use ingestdeck_core::text;

pub(crate) fn draw(scene: &DrawContext<'_>, buf: &mut Buffer) {
    let plan = scene.model.layout();
    let area = plan.area.intersection(buf.area);
    if area.is_empty() {
        return;
    }
    let style = scene.theme.style(StyleRole::Text);
    if style != Style::default() {
        for cell in &mut buf.content {
            cell.set_style(style);
        }
    }
    paint(scene, area, &plan, buf);
    close_wide_cells(buf, scene.wide_rows.take());
}

fn paint(scene: &DrawContext<'_>, area: Rect, plan: &ScreenLayout, buf: &mut Buffer) {
    if plan.is_too_small() {
        too_small_notice(scene, area, plan, buf);
        return;
    }
    if !scene.model.lowest().draw_header(scene, plan.header, buf) {
        header::draw(scene, plan.header, buf);
    }
    scene.model.page().draw(scene, plan, buf);
    search_marks::draw(scene, plan, buf);
    timeline_bar::draw(scene, plan.bar, buf);
    footer::draw(scene, plan.footer, buf);
    if let Some(typed) = scene
        .model
        .dialogs
        .line_input
        .as_ref()
        .filter(|typed| typed.purpose == InputPurpose::Command)
    {
        dialog::commands(scene, &typed.text, plan.body, buf);
    }
    if !scene.model.pending.is_empty() {
        dialog::continuations(scene, plan.body, buf);
    }
    dialog::message(scene, plan, buf);
    if let Some(editor) = &scene.model.dialogs.editor {
        dialog::editor(scene, editor, plan.body, buf);
    }
    if let Some(form) = &scene.model.dialogs.answer_form {
        answer::draw(scene, form, plan.body, buf);
    }
    if let Some(form) = &scene.model.dialogs.amend_form {
        amend::draw(scene, form, plan.body, buf);
    }
    if let Some(question) = &scene.model.dialogs.question {
        dialog::question(scene, question, plan.body, buf);
    }
}

/// Paints which size is missing, and the keys that work without it: as much of that as fits.
fn too_small_notice(scene: &DrawContext<'_>, area: Rect, plan: &ScreenLayout, buf: &mut Buffer) {
    let ((width, height), (least_width, least_height)) = (scene.model.size, plan.least);
    let keymap = &scene.model.keymap;
    let keys: Vec<String> = screen::unseen_hints(scene.model, scene.run_view)
        .into_iter()
        .filter_map(|(action, effect)| {
            Some(format!(
                "{} {effect}",
                key_names(scene, &keymap.first(action)?)
            ))
        })
        .collect();
    let first = keys.first().map_or("", String::as_str);
    let notices = [
        format!(
            "terminal too small: {width}×{height}, least {least_width}×{least_height}; {}",
            keys.join("; ")
        ),
        format!("too small; {}", keys.join("; ")),
        format!("too small; {first}"),
        first.split(';').next().unwrap_or_default().to_owned(),
    ];
    let wrapped = |notice: &String| text::wrap(notice, usize::from(area.width));
    let fits = |rows: &Vec<_>| rows.len() <= usize::from(area.height);
    let rows = notices
        .iter()
        .map(wrapped)
        .find(fits)
        .or_else(|| notices.last().map(wrapped));
    for (y, row) in (area.y..area.bottom()).zip(rows.unwrap_or_default()) {
        RowWriter::row(
            scene,
            buf,
            Rect {
                y,
                height: 1,
                ..area
            },
        )
        .put(StyleRole::Warning, &row);
    }
}
