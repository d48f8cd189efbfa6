//! The list of breakpoints and whether they are enabled.

use ratatui::{buffer::Buffer, layout::Rect};

use crate::page::DrawContext;
use crate::widgets::{RowWriter, pane};
use crate::{model::ScrollList, theme::StyleRole};
use ingestdeck_core::text;

pub(crate) fn draw(scene: &DrawContext<'_>, list: &ScrollList, area: Rect, buf: &mut Buffer) {
    let breakpoints = &scene.model.playhead.breakpoints;
    let place = format!(" {} ", breakpoints.len());
    let inside = pane(
        scene,
        area,
        true,
        &[(StyleRole::Strong, "breakpoints")],
        &[(StyleRole::Dim, &place)],
        buf,
    );
    if breakpoints.is_empty() {
        let lines = [
            "none yet; type one of these:",
            "  :break failure",
            "  :break tool wiki_*",
            "  :break path *.yml",
            "  :break cost $0.50",
            "  :break silence 30s",
            "playing and stepping stop there; :until runs to a condition once",
        ];
        let rows = lines
            .iter()
            .flat_map(|line| text::wrap(line, usize::from(inside.width)));
        for (y, row) in (inside.y..inside.bottom()).zip(rows) {
            RowWriter::row(
                scene,
                buf,
                Rect {
                    y,
                    height: 1,
                    ..inside
                },
            )
            .put(StyleRole::Dim, &row);
        }
    }
    for (y, (index, breakpoint)) in
        (inside.y..inside.bottom()).zip(breakpoints.iter().enumerate().skip(list.offset))
    {
        let line = Rect {
            y,
            height: 1,
            ..inside
        };
        let mut pen = RowWriter::row(scene, buf, line);
        pen.cell_right(StyleRole::Dim, &(index + 1).to_string(), 3);
        pen.skip(1);
        let (role, sign, word) = if breakpoint.is_enabled {
            (StyleRole::Key, scene.theme.glyphs.breakpoint, "on")
        } else {
            (StyleRole::Dim, scene.theme.glyphs.dot, "off")
        };
        pen.put(role, sign);
        pen.skip(1);
        pen.cell(role, word, 4);
        pen.put(
            StyleRole::Text,
            &text::one_row(&breakpoint.condition.to_string(), 300),
        );
        if index == list.selected {
            buf.set_style(line, scene.theme.style(StyleRole::Selected));
        }
    }
}
