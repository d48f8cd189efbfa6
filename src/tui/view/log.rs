//! The run's remarks, oldest first.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    widgets::{Clear, Widget as _},
};

use super::{Pen, Scene, clock, pane};
use crate::{
    run::state::Remark,
    tape::note::Level,
    tui::{model::List, text, theme::Role},
};

/// Paints the log.
pub fn draw(scene: &Scene<'_>, list: &List, area: Rect, buf: &mut Buffer) {
    let remarks = scene.story.remarks();
    let place = format!(" {} ", remarks.len());
    let inside = pane(scene, area, true, &[(Role::Strong, "log")], &[(Role::Dim, &place)], buf);
    let inside = broken(scene, inside, buf);
    if remarks.is_empty() {
        Pen::row(scene, buf, inside).put(Role::Dim, "nothing to remark so far");
    }
    let mut selected = None;
    for (y, (index, remark)) in (inside.y..inside.bottom()).zip(remarks.iter().enumerate().skip(list.offset)) {
        let line = Rect { y, height: 1, ..inside };
        let mut pen = Pen::row(scene, buf, line);
        let (role, word) = role_of(remark.level);
        pen.cell_right(Role::Dim, &clock(remark.at), 7);
        pen.skip(1);
        pen.cell(role, word, 8);
        if let Some(unit) = &remark.unit {
            let width = text::width(unit).min(usize::from(inside.width) / 4);
            pen.cell(Role::Dim, unit, width);
            pen.skip(1);
        }
        let row = text::one_row(&remark.text, 600);
        let is_cut = remark.text.contains('\n') || text::width(&row) > pen.room();
        pen.put(role, &row);
        if index == list.selected {
            buf.set_style(line, scene.theme.style(Role::Selected));
            selected = is_cut.then_some((y, remark));
        }
    }
    if let Some((y, remark)) = selected {
        in_full(scene, remark, y, inside, buf);
    }
}

/// Lays a remark that does not fit into its row, the one at `y`, over rows that are as far away from it as can be.
fn in_full(scene: &Scene<'_>, remark: &Remark, y: u16, inside: Rect, buf: &mut Buffer) {
    let unit = remark.unit.as_ref().map(|unit| format!("{unit}: ")).unwrap_or_default();
    let mut lines = text::wrap(&format!("{unit}{}", remark.text), usize::from(inside.width));
    let (above, below) = (y - inside.y, inside.bottom() - y - 1);
    // A line between them, unless there is no row to spare.
    let most = usize::from(above.max(below).saturating_sub(1));
    if lines.len() > most {
        lines.truncate(most);
        lines.last_mut().into_iter().for_each(|line| line.push('…'));
    }
    let rows = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    if rows == 0 {
        return;
    }
    let (first, edge) =
        if below >= above { (inside.bottom() - rows, inside.bottom() - rows - 1) } else { (inside.y, inside.y + rows) };
    let rule = scene.theme.glyphs.frame[5].repeat(usize::from(inside.width));
    let role = role_of(remark.level).0;
    let rows = lines.iter().map(|line| (role, line.as_str()));
    for (y, (role, line)) in (first..).zip(rows).chain([(edge, (Role::Dim, rule.as_str()))]) {
        let line_area = Rect { y, height: 1, ..inside };
        Clear.render(line_area, buf);
        Pen::row(scene, buf, line_area).put(role, line);
    }
}

fn role_of(level: Level) -> (Role, &'static str) {
    match level {
        Level::Debug => (Role::Dim, "debug"),
        Level::Info => (Role::Text, "info"),
        Level::Warning => (Role::Warning, "warning"),
        Level::Error => (Role::Failed, "error"),
    }
}

/// What no record can hold: why there is no more of it.
fn why(broken: &str, inside: Rect) -> Vec<String> {
    let mut lines = text::wrap(&format!("broken: {}", text::one_row(broken, 600)), usize::from(inside.width));
    lines.truncate(usize::from(inside.height.saturating_sub(2)));
    lines
}

/// Rows above the remarks, inside of such a pane.
pub fn head(broken: Option<&str>, inside: Rect) -> u16 {
    broken.map_or(0, |broken| u16::try_from(why(broken, inside).len()).unwrap_or(u16::MAX))
}

/// Gives the room below.
fn broken(scene: &Scene<'_>, inside: Rect, buf: &mut Buffer) -> Rect {
    let Some(broken) = &scene.model.broken else { return inside };
    let why = why(broken, inside);
    let rows = head(Some(broken), inside);
    for (y, line) in (inside.y..inside.y + rows).zip(&why) {
        Pen::row(scene, buf, Rect { y, height: 1, ..inside }).put(Role::Failed, line);
    }
    Rect { y: inside.y + rows, height: inside.height - rows, ..inside }
}
