//! The help, derived from the key table.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{DrawContext, RowWriter, key_names, pane};
use crate::tui::{
    action::{HelpGroup, help_size},
    keymap::Keymap,
    model::ScrollList,
    theme::StyleRole,
};

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

pub(crate) fn draw(scene: &DrawContext<'_>, list: &ScrollList, area: Rect, buf: &mut Buffer) {
    let lines = all(&scene.model.keymap);
    let (columns, rows) = help_size(area.width);
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
