//! The help: the keys of one page and of all pages, derived from their table, and the legend.

use std::borrow::Cow;

use ratatui::{buffer::Buffer, layout::Rect};

use super::HelpPage;
use crate::page::DrawContext;
use crate::widgets::{RowWriter, key_names, pane};
use crate::{
    action::UserAction,
    keymap::Keymap,
    legend,
    theme::{GlyphSet, StyleRole, row_role, status_role},
};

enum HelpLine {
    Empty,
    Heading(Cow<'static, str>),
    Sign(StyleRole, &'static str, &'static str),
    Key(String, &'static str),
}

/// What the signs and columns mean.
fn legend(glyphs: &GlyphSet) -> impl Iterator<Item = HelpLine> {
    let section = |title| [HelpLine::Empty, HelpLine::Heading(Cow::Borrowed(title))].into_iter();
    let units = legend::UNITS
        .iter()
        .map(|(status, about)| HelpLine::Sign(status_role(*status), glyphs.status(*status), about));
    let actions = legend::ACTIONS.iter().map(|(kind, end, about)| {
        HelpLine::Sign(row_role(*kind, *end), glyphs.row(*kind, *end), about)
    });
    let actions = actions.chain([HelpLine::Sign(
        StyleRole::Key,
        glyphs.bookmark(),
        legend::BOOKMARK,
    )]);
    let columns = legend::COLUMNS
        .iter()
        .map(|(name, about)| HelpLine::Sign(StyleRole::Dim, name, about));
    section("Units")
        .chain(units)
        .chain(section("Actions"))
        .chain(actions)
        .chain(section("Columns"))
        .chain(columns)
}

/// The keys of the page from which the help was opened, and all keys and signs if they are wanted.
fn all(view: &HelpPage, keymap: &Keymap, glyphs: &GlyphSet) -> Vec<HelpLine> {
    let heading = HelpLine::Heading(Cow::Owned(format!("Keys of {}", view.about)));
    let here = view
        .actions
        .iter()
        .map(|(action, about)| HelpLine::Key(keymap.all(*action), about));
    let here = [heading].into_iter().chain(here).chain([HelpLine::Empty]);
    if !view.is_complete {
        let more = HelpLine::Key(keymap.all(UserAction::Help), "again: all keys and signs");
        return here.chain([more]).collect();
    }
    let groups = keymap
        .help()
        .enumerate()
        .flat_map(|(index, (group, rows))| {
            let heading = (index > 0)
                .then_some(HelpLine::Empty)
                .into_iter()
                .chain([HelpLine::Heading(Cow::Borrowed(group.title()))]);
            heading.chain(
                rows.into_iter()
                    .map(|(keys, about)| HelpLine::Key(keys, about)),
            )
        });
    here.chain(groups).chain(legend(glyphs)).collect()
}

pub(crate) fn draw(scene: &DrawContext<'_>, view: &HelpPage, area: Rect, buf: &mut Buffer) {
    let lines = all(view, &scene.model.keymap, scene.theme.glyphs);
    let (columns, rows) = view.size(area.width);
    let height = usize::from(area.height.saturating_sub(2));
    let place = if rows > height {
        format!(" {}/{rows} ", (view.offset + height).min(rows))
    } else {
        String::new()
    };
    let inside = pane(
        scene,
        area,
        true,
        &[(StyleRole::Strong, "keys and signs")],
        &[(StyleRole::Dim, &place)],
        buf,
    );
    for (column, lines) in (0..columns).zip(lines.chunks(rows.max(1))) {
        let width = inside.width / columns;
        let part = Rect {
            x: inside.x + column * width,
            width,
            ..inside
        };
        for (y, line) in (part.y..part.bottom()).zip(lines.iter().skip(view.offset)) {
            let mut pen = RowWriter::row(
                scene,
                buf,
                Rect {
                    y,
                    height: 1,
                    ..part
                },
            );
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
