//! The help, derived from the key table.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{DrawContext, RowWriter, key_names, pane};
use crate::tui::{action::HelpGroup, keymap::Keymap, model::ScrollList, theme::StyleRole};

/// Preferred columns of a line of the help.
const COLUMN: u16 = 58;

enum HelpLine {
    Empty,
    Heading(HelpGroup),
    Key(String, &'static str),
}

fn all(keymap: &Keymap) -> Vec<HelpLine> {
    let groups = keymap.help().enumerate().flat_map(|(index, (group, rows))| {
        let heading = (index > 0).then_some(HelpLine::Empty).into_iter().chain([HelpLine::Heading(group)]);
        heading.chain(rows.into_iter().map(|(keys, about)| HelpLine::Key(keys, about)))
    });
    groups.collect()
}

fn columns(width: u16) -> u16 {
    (width / COLUMN).clamp(1, 3)
}

/// Rows of the help at this width.
pub(crate) fn rows(keymap: &Keymap, width: u16) -> usize {
    all(keymap).len().div_ceil(usize::from(columns(width)))
}

pub(crate) fn draw(scene: &DrawContext<'_>, list: &ScrollList, area: Rect, buf: &mut Buffer) {
    let lines = all(&scene.model.keymap);
    let columns = columns(area.width);
    let rows = lines.len().div_ceil(usize::from(columns));
    let height = usize::from(area.height.saturating_sub(2));
    let place = if rows > height { format!(" {}/{rows} ", (list.offset + height).min(rows)) } else { String::new() };
    let inside = pane(scene, area, true, &[(StyleRole::Strong, "keys")], &[(StyleRole::Dim, &place)], buf);
    for (column, lines) in (0..columns).zip(lines.chunks(rows.max(1))) {
        let width = inside.width / columns;
        let part = Rect { x: inside.x + column * width, width, ..inside };
        for (y, line) in (part.y..part.bottom()).zip(lines.iter().skip(list.offset)) {
            let mut pen = RowWriter::row(scene, buf, Rect { y, height: 1, ..part });
            match line {
                HelpLine::Empty => {}
                HelpLine::Heading(group) => pen.put(StyleRole::Strong, group.title()),
                HelpLine::Key(keys, about) => {
                    pen.skip(2);
                    pen.cell(StyleRole::Key, &key_names(scene, keys), 15);
                    pen.skip(1);
                    pen.put(StyleRole::Text, about);
                }
            }
        }
    }
}
