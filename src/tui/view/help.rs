//! The keys, derived from the key table.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{Pen, Scene, pane, pressed};
use crate::tui::{action::Group, keymap::Keymap, model::List, theme::Role};

/// Columns that a line of the help wants.
const COLUMN: u16 = 58;

enum Line {
    Empty,
    Heading(Group),
    Key(String, &'static str),
}

fn all(keymap: &Keymap) -> Vec<Line> {
    let groups = keymap.help().enumerate().flat_map(|(index, (group, rows))| {
        let heading = (index > 0).then_some(Line::Empty).into_iter().chain([Line::Heading(group)]);
        heading.chain(rows.into_iter().map(|(keys, about)| Line::Key(keys, about)))
    });
    groups.collect()
}

fn columns(width: u16) -> u16 {
    (width / COLUMN).clamp(1, 3)
}

/// Rows that the help takes at a width.
pub fn rows(keymap: &Keymap, width: u16) -> usize {
    all(keymap).len().div_ceil(usize::from(columns(width)))
}

/// Paints the help.
pub fn draw(scene: &Scene<'_>, list: &List, area: Rect, buf: &mut Buffer) {
    let lines = all(&scene.model.keymap);
    let columns = columns(area.width);
    let rows = lines.len().div_ceil(usize::from(columns));
    let height = usize::from(area.height.saturating_sub(2));
    let place = if rows > height { format!(" {}/{rows} ", (list.offset + height).min(rows)) } else { String::new() };
    let inside = pane(scene, area, true, &[(Role::Strong, "keys")], &[(Role::Dim, &place)], buf);
    for (column, lines) in (0..columns).zip(lines.chunks(rows.max(1))) {
        let width = inside.width / columns;
        let part = Rect { x: inside.x + column * width, width, ..inside };
        for (y, line) in (part.y..part.bottom()).zip(lines.iter().skip(list.offset)) {
            let mut pen = Pen::row(scene, buf, Rect { y, height: 1, ..part });
            match line {
                Line::Empty => {}
                Line::Heading(group) => pen.put(Role::Strong, group.title()),
                Line::Key(keys, about) => {
                    pen.skip(2);
                    pen.cell(Role::Key, &pressed(scene, keys), 15);
                    pen.skip(1);
                    pen.put(Role::Text, about);
                }
            }
        }
    }
}
