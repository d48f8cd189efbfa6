//! The keys, derived from the key table.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{Pen, Scene, pane};
use crate::tui::{action::Group, keymap::Keymap, model::List, theme::Role};

/// Lines of the help.
pub fn lines(keymap: &Keymap) -> usize {
    keymap.help().map(|(_, rows)| rows.len() + 2).sum::<usize>().saturating_sub(1)
}

/// Paints the help.
pub fn draw(scene: &Scene<'_>, list: &List, area: Rect, buf: &mut Buffer) {
    let all = lines(&scene.model.keymap);
    let rows = usize::from(area.height.saturating_sub(2));
    let place = if all > rows { format!(" {}/{all} ", (list.offset + rows).min(all)) } else { String::new() };
    let inside = pane(scene, area, true, &[(Role::Strong, "keys")], &[(Role::Dim, &place)], buf);
    let groups = scene.model.keymap.help().enumerate().flat_map(|(index, (group, rows))| {
        let heading = (index > 0).then_some(Line::Empty).into_iter().chain([Line::Heading(group)]);
        heading.chain(rows.into_iter().map(|(keys, about)| Line::Key(keys, about)))
    });
    for (y, line) in (inside.y..inside.bottom()).zip(groups.skip(list.offset)) {
        let mut pen = Pen::row(scene, buf, Rect { y, height: 1, ..inside });
        match line {
            Line::Empty => {}
            Line::Heading(group) => pen.put(Role::Strong, group.title()),
            Line::Key(keys, about) => {
                pen.skip(2);
                pen.cell(Role::Key, &keys, 18);
                pen.put(Role::Text, about);
            }
        }
    }
}

enum Line {
    Empty,
    Heading(Group),
    Key(String, &'static str),
}
