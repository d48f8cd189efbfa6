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
    theme::{StyleRole, row_role, status_role},
};
use ingestdeck_core::{
    run::state::{RowKind, RowOutcome, UnitStatus},
    text,
};

/// Columns of the keys and signs, and those before a description.
const LEFT: usize = 15;
const INDENT: usize = 2 + LEFT + 1;

#[derive(Clone)]
pub(super) enum HelpLine {
    Empty,
    Heading(Cow<'static, str>),
    Described(LeftCell, String),
}

/// What a description is about.
#[derive(Clone)]
pub(super) enum LeftCell {
    /// Nothing: the description of the line above continues.
    Nothing,
    Keys(String),
    Unit(UnitStatus),
    Action(RowKind, RowOutcome),
    Bookmark,
    Column(&'static str),
}

/// What the signs and columns mean.
fn legend() -> impl Iterator<Item = (LeftCell, &'static str)> {
    let actions = legend::ACTIONS.iter();
    let actions = actions.map(|(kind, end, about)| (LeftCell::Action(*kind, *end), *about));
    actions.chain([(LeftCell::Bookmark, legend::BOOKMARK)])
}

/// The lines at a width: the keys of the page from which the help was opened, and all keys and signs if they are wanted.
/// Descriptions are wrapped.
pub(super) fn lines(view: &HelpPage, keymap: &Keymap, width: u16) -> Vec<HelpLine> {
    let width = usize::from(width).saturating_sub(INDENT).max(8);
    let mut lines = vec![HelpLine::Heading(Cow::Owned(format!(
        "Keys of {}",
        view.about
    )))];
    let add = |lines: &mut Vec<HelpLine>, cell: LeftCell, about: &str| {
        let mut rows = text::wrap(about, width).into_iter();
        lines.push(HelpLine::Described(cell, rows.next().unwrap_or_default()));
        lines.extend(rows.map(|row| HelpLine::Described(LeftCell::Nothing, row)));
    };
    // On a short screen, the end of the list is not visible.
    if !view.is_complete {
        let keys = LeftCell::Keys(keymap.all(UserAction::Help));
        add(&mut lines, keys, "again: all keys and signs");
    }
    for (action, about) in &view.actions {
        add(&mut lines, LeftCell::Keys(keymap.all(*action)), about);
    }
    if !view.is_complete {
        return lines;
    }
    lines.push(HelpLine::Empty);
    for (index, (group, rows)) in keymap.help().enumerate() {
        lines.extend((index > 0).then_some(HelpLine::Empty));
        lines.push(HelpLine::Heading(Cow::Borrowed(group.title())));
        for (keys, about) in rows {
            add(&mut lines, LeftCell::Keys(keys), about);
        }
    }
    let units = legend::UNITS.iter();
    let units = units.map(|(status, about)| (LeftCell::Unit(*status), *about));
    let columns = legend::COLUMNS.iter();
    let columns = columns.map(|(name, about)| (LeftCell::Column(name), *about));
    let sections: [(_, Vec<_>); 3] = [
        ("Units", units.collect()),
        ("Actions", legend().collect()),
        ("Columns", columns.collect()),
    ];
    for (title, rows) in sections {
        lines.extend([HelpLine::Empty, HelpLine::Heading(Cow::Borrowed(title))]);
        for (cell, about) in rows {
            add(&mut lines, cell, about);
        }
    }
    lines
}

pub(crate) fn draw(scene: &DrawContext<'_>, view: &HelpPage, area: Rect, buf: &mut Buffer) {
    let columns = view.columns(area.width);
    let width = crate::layout::inner(area).width / columns;
    let lines = self::lines(view, &scene.model.keymap, width);
    let rows = lines.len().div_ceil(usize::from(columns));
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
                HelpLine::Described(cell, about) => {
                    pen.skip(2);
                    let (role, sign) = left(scene, cell);
                    pen.cell(role, &sign, LEFT);
                    pen.skip(1);
                    pen.put(StyleRole::Text, about);
                }
            }
        }
    }
}

fn left<'a>(scene: &DrawContext<'_>, cell: &'a LeftCell) -> (StyleRole, Cow<'a, str>) {
    let glyphs = scene.theme.glyphs;
    match cell {
        LeftCell::Nothing => (StyleRole::Text, Cow::Borrowed("")),
        LeftCell::Keys(keys) => (StyleRole::Key, key_names(scene, keys)),
        LeftCell::Unit(status) => (status_role(*status), glyphs.status(*status).into()),
        LeftCell::Action(kind, end) => (row_role(*kind, *end), glyphs.row(*kind, *end).into()),
        LeftCell::Bookmark => (StyleRole::Key, glyphs.bookmark().into()),
        LeftCell::Column(name) => (StyleRole::Dim, Cow::Borrowed(name)),
    }
}
