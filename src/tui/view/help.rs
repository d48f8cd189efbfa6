//! The help: the keys, derived from their table, and the legend.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{DrawContext, RowWriter, key_names, pane};
use crate::tui::{
    action::help_size,
    keymap::Keymap,
    legend,
    model::ScrollList,
    theme::{GlyphSet, StyleRole, row_role, status_role},
};

enum HelpLine {
    Empty,
    Heading(&'static str),
    Sign(StyleRole, &'static str, &'static str),
    Key(String, &'static str),
}

/// What the signs and columns mean.
fn legend(glyphs: &GlyphSet) -> impl Iterator<Item = HelpLine> {
    let section = |title| [HelpLine::Empty, HelpLine::Heading(title)].into_iter();
    let units =
        legend::UNITS.iter().map(|(status, about)| HelpLine::Sign(status_role(*status), glyphs.status(*status), about));
    let actions = legend::ACTIONS
        .iter()
        .map(|(kind, end, about)| HelpLine::Sign(row_role(*kind, *end), glyphs.row(*kind, *end), about));
    let columns = legend::COLUMNS.iter().map(|(name, about)| HelpLine::Sign(StyleRole::Dim, name, about));
    section("Units").chain(units).chain(section("Actions")).chain(actions).chain(section("Columns")).chain(columns)
}

fn all(keymap: &Keymap, glyphs: &GlyphSet) -> Vec<HelpLine> {
    let groups = keymap.help().enumerate().flat_map(|(index, (group, rows))| {
        let heading = (index > 0).then_some(HelpLine::Empty).into_iter().chain([HelpLine::Heading(group.title())]);
        heading.chain(rows.into_iter().map(|(keys, about)| HelpLine::Key(keys, about)))
    });
    groups.chain(legend(glyphs)).collect()
}

pub(crate) fn draw(scene: &DrawContext<'_>, list: &ScrollList, area: Rect, buf: &mut Buffer) {
    let lines = all(&scene.model.keymap, scene.theme.glyphs);
    let (columns, rows) = help_size(area.width);
    let height = usize::from(area.height.saturating_sub(2));
    let place = if rows > height { format!(" {}/{rows} ", (list.offset + height).min(rows)) } else { String::new() };
    let inside = pane(scene, area, true, &[(StyleRole::Strong, "keys and signs")], &[(StyleRole::Dim, &place)], buf);
    for (column, lines) in (0..columns).zip(lines.chunks(rows.max(1))) {
        let width = inside.width / columns;
        let part = Rect { x: inside.x + column * width, width, ..inside };
        for (y, line) in (part.y..part.bottom()).zip(lines.iter().skip(list.offset)) {
            let mut pen = RowWriter::row(scene, buf, Rect { y, height: 1, ..part });
            match line {
                HelpLine::Empty => {}
                HelpLine::Heading(title) => pen.put(StyleRole::Strong, title),
                HelpLine::Sign(role, sign, about) => {
                    pen.skip(2);
                    pen.cell(*role, sign, 15);
                    pen.skip(1);
                    pen.put(StyleRole::Text, about);
                }
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
