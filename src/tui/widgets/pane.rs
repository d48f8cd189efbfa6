//! Parts that several pages draw: borders and progress bars.

use ratatui::{buffer::Buffer, layout::Rect};

use super::row_writer::RowWriter;
use crate::{layout, page::DrawContext, theme::StyleRole};

/// Paints a progress bar of `width` columns. A part that is not empty is visible.
pub(crate) fn progress(
    scene: &DrawContext<'_>,
    done: usize,
    total: usize,
    width: usize,
    pen: &mut RowWriter<'_>,
) {
    let [full, rest, ..] = scene.theme.glyphs.progress;
    let filled = (width * done).checked_div(total).unwrap_or_default();
    let filled = filled
        .max(usize::from(done > 0))
        .min(width - usize::from(done < total).min(width));
    pen.repeat(StyleRole::Succeeded, full, filled);
    pen.repeat(StyleRole::Border, rest, width - filled);
}

/// Paints a border with a title at the left and one at the right end. Returns the area inside.
pub(crate) fn pane(
    scene: &DrawContext<'_>,
    area: Rect,
    focus: bool,
    title: &[(StyleRole, &str)],
    right: &[(StyleRole, &str)],
    buf: &mut Buffer,
) -> Rect {
    if area.width < 2 || area.height < 2 {
        return Rect {
            width: 0,
            height: 0,
            ..area
        };
    }
    let role = if focus {
        StyleRole::Focus
    } else {
        StyleRole::Border
    };
    let [top_left, top_right, bottom_left, bottom_right, side, flat] = scene.theme.glyphs.frame;
    let last = area.bottom() - 1;
    for (y, left, end) in [
        (area.y, top_left, top_right),
        (last, bottom_left, bottom_right),
    ] {
        let mut pen = RowWriter::row(
            scene,
            buf,
            Rect {
                y,
                height: 1,
                ..area
            },
        );
        pen.repeat(role, left, 1);
        pen.repeat(role, flat, usize::from(area.width) - 2);
        pen.repeat(role, end, 1);
    }
    for y in area.y + 1..last {
        let mut pen = RowWriter::row(
            scene,
            buf,
            Rect {
                y,
                height: 1,
                ..area
            },
        );
        pen.repeat(role, side, 1);
        pen.skip(usize::from(area.width) - 2);
        pen.repeat(role, side, 1);
    }
    let mut line = RowWriter::row(
        scene,
        buf,
        Rect {
            x: area.x + 1,
            width: area.width - 2,
            height: 1,
            y: area.y,
        },
    );
    line.end_with(right);
    if !title.is_empty() {
        line.put(role, " ");
        for (role, text) in title {
            line.put(*role, text);
        }
        line.put(role, " ");
    }
    layout::inner(area)
}

/// Paints a rule with a title at the left and one at the right end in the first row of `area`.
pub(crate) fn titled_rule(
    scene: &DrawContext<'_>,
    title: &str,
    right: &str,
    area: Rect,
    buf: &mut Buffer,
) {
    let [.., flat] = scene.theme.glyphs.frame;
    let mut pen = RowWriter::row(scene, buf, area);
    pen.end_with(&[(StyleRole::Dim, right)]);
    pen.repeat(StyleRole::Border, flat, 2);
    let room = pen.room().saturating_sub(2);
    pen.put_in(StyleRole::Dim, &format!(" {title} "), room);
    pen.repeat(StyleRole::Border, flat, pen.room());
}
