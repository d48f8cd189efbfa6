//! The run's remarks, oldest first.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{Pen, Scene, clock, pane};
use crate::{
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
    for (y, (index, remark)) in (inside.y..inside.bottom()).zip(remarks.iter().enumerate().skip(list.offset)) {
        let line = Rect { y, height: 1, ..inside };
        let mut pen = Pen::row(scene, buf, line);
        let (role, word) = match remark.level {
            Level::Debug => (Role::Dim, "debug"),
            Level::Info => (Role::Text, "info"),
            Level::Warning => (Role::Warning, "warning"),
            Level::Error => (Role::Failed, "error"),
        };
        pen.cell_right(Role::Dim, &clock(remark.at), 7);
        pen.skip(1);
        pen.cell(role, word, 8);
        if let Some(unit) = &remark.unit {
            let width = text::width(unit).min(usize::from(inside.width) / 4);
            pen.cell(Role::Dim, unit, width);
            pen.skip(1);
        }
        pen.put(role, &text::one_row(&remark.text, 600));
        if index == list.selected {
            buf.set_style(line, scene.theme.style(Role::Selected));
        }
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
