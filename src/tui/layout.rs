//! The screen layout: one function from size to rectangles, used for drawing, scrolling and the mouse.

use ratatui::layout::Rect;

use super::stream_frame::{HeldChanges, footer_height, verdict_lines};
use ingestdeck_core::run::state::AttemptState;

/// Smallest number of columns that is supported.
const MIN_COLUMNS: u16 = 40;
/// Smallest number of rows: for the header and the first lines of the table, and for questions and forms.
const MIN_ROWS: u16 = 5;
pub(crate) const MIN_DIALOG_ROWS: u16 = 12;
/// Rows from which the table has a border, and headings.
pub(crate) const MIN_FRAMED_ROWS: u16 = 6;
/// Minimum width for two halves of a page side by side.
pub(crate) const MIN_WIDE_COLUMNS: u16 = 100;
/// Rows of the border and the headings of the table.
const TABLE_FRAME_ROWS: u16 = 3;
/// Rows of a stream from which some are kept free for a result while a call waits.
const MIN_RESULT_ROOM: u16 = 16;
/// Minimum height for a timeline bar with its labels, and for one with its marks on a separate line.
const MIN_TALL_ROWS: u16 = 20;
const MIN_MARK_ROWS: u16 = 30;

/// A pane of the units view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pane {
    /// The table of units.
    #[default]
    Units,
    /// The action stream of the selected unit.
    Stream,
}

/// Properties of the units view that determine its panes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UnitsPanes {
    pub focus: Pane,
    /// True when only the focused pane is shown.
    pub zoom: bool,
    /// Number of lines of the table.
    pub lines: usize,
    /// True while a question or a form is open.
    pub has_dialog: bool,
}

/// The rectangles of a screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScreenLayout {
    pub area: Rect,
    /// Header with run, state and counts.
    pub header: Rect,
    /// Everything between header and footer.
    pub body: Rect,
    /// Unit table with its border, if it is shown.
    pub units: Option<Rect>,
    /// Stream with its border, if it is shown.
    pub stream: Option<Rect>,
    /// Timeline bar; empty if it is not shown.
    pub bar: Rect,
    /// Footer with hints and position.
    pub footer: Rect,
    /// Smallest size (columns, rows) for what is on the screen.
    pub least: (u16, u16),
}

/// Computes the layout for a size; `walked` is true if the timeline bar is shown.
pub(crate) fn screen_layout(
    (width, height): (u16, u16),
    panes: UnitsPanes,
    walked: bool,
) -> ScreenLayout {
    let area = Rect::new(0, 0, width, height);
    let header_rows = if height < MIN_DIALOG_ROWS { 1 } else { 2 }.min(height);
    let footer_rows = 1.min(height - header_rows);
    let header = Rect {
        height: header_rows,
        ..area
    };
    let footer = Rect {
        y: height - footer_rows,
        height: footer_rows,
        ..area
    };
    let bar_rows = match height {
        _ if !walked => 0,
        0..8 => 0,
        8..MIN_TALL_ROWS => 1,
        MIN_TALL_ROWS..MIN_MARK_ROWS => 2,
        MIN_MARK_ROWS.. => 3,
    };
    let bar_rows = bar_rows.min(height - header_rows - footer_rows);
    let bar = Rect {
        y: footer.y - bar_rows,
        height: bar_rows,
        ..area
    };
    let body = Rect {
        y: header_rows,
        height: bar.y - header_rows,
        ..area
    };
    let (units, stream) = match panes.focus {
        Pane::Units if panes.zoom || body.height < 12 => (Some(body), None),
        Pane::Stream if panes.zoom || body.height < 12 => (None, Some(body)),
        // The table is above the stream at every width, so that all its columns have room.
        _ => {
            let wanted = u16::try_from(panes.lines.max(1))
                .unwrap_or(u16::MAX)
                .saturating_add(TABLE_FRAME_ROWS);
            split(body, wanted.min(most_table_rows(body)))
        }
    };
    ScreenLayout {
        area,
        header,
        body,
        units,
        stream,
        bar,
        footer,
        least: match panes.has_dialog {
            true => (MIN_COLUMNS, MIN_DIALOG_ROWS),
            false => (MIN_COLUMNS, MIN_ROWS),
        },
    }
}

/// Most rows of the table above a stream, with its border and headings.
fn most_table_rows(body: Rect) -> u16 {
    body.height * 3 / 5
}

fn split(body: Rect, at: u16) -> (Option<Rect>, Option<Rect>) {
    let at = at.min(body.height);
    let units = Rect { height: at, ..body };
    let stream = Rect {
        y: body.y + at,
        height: body.height - at,
        ..body
    };
    (Some(units), Some(stream))
}

/// The area inside a border.
pub(crate) fn inner(area: Rect) -> Rect {
    Rect {
        x: area.x.saturating_add(1),
        y: area.y.saturating_add(1),
        width: area.width.saturating_sub(2),
        height: area.height.saturating_sub(2),
    }
}

/// The part of an area below its first rows.
pub(crate) fn below(area: Rect, rows: usize) -> Rect {
    let rows = u16::try_from(rows).unwrap_or(area.height).min(area.height);
    Rect {
        y: area.y + rows,
        height: area.height - rows,
        ..area
    }
}

impl ScreenLayout {
    /// True if there is only room for a notice.
    pub(crate) fn is_too_small(&self) -> bool {
        self.area.width < self.least.0 || self.area.height < self.least.1
    }

    /// True if the table has a border and headings.
    pub(crate) fn has_table_frame(&self) -> bool {
        self.body.height >= MIN_FRAMED_ROWS
    }

    /// Area of the unit rows inside their pane, without the headings; `None` if the table is not shown.
    pub(crate) fn unit_list(&self) -> Option<Rect> {
        let pane = self.units?;
        Some(match self.has_table_frame() {
            true => below(inner(pane), 1),
            false => pane,
        })
    }

    /// Rows of the unit table without its headings.
    pub(crate) fn unit_rows(&self) -> usize {
        self.unit_list().map_or(1, |area| usize::from(area.height))
    }

    /// Rows of the unit table without its headings, if it has as many lines as can be shown.
    pub(crate) fn most_unit_rows(&self) -> usize {
        match (self.units, self.stream) {
            (Some(_), Some(_)) => {
                usize::from(most_table_rows(self.body).saturating_sub(TABLE_FRAME_ROWS))
            }
            (Some(_), None) => self.unit_rows(),
            (None, _) => usize::MAX,
        }
    }

    /// Rows of the stream without the verdict above and the live text below them.
    pub(crate) fn stream_rows(&self, attempt: Option<&AttemptState>, held: &HeldChanges) -> usize {
        self.stream.map_or(1, |area| {
            usize::from(stream_areas(area, attempt, held).rows.height)
        })
    }

    /// Rows inside a page that fills the body.
    pub(crate) fn body_rows(&self) -> u16 {
        inner(self.body).height
    }
}

/// The inspector in the body of the screen: the row of attempts, the row of panels, and the rest.
pub(crate) fn inspector_areas(body: Rect) -> [Rect; 3] {
    /// Rows inside the border from which attempts and panels are named.
    const MIN_NAMED_ROWS: u16 = 5;
    let inside = inner(body);
    let named = u16::from(inside.height >= MIN_NAMED_ROWS);
    let attempts = Rect {
        height: named,
        ..inside
    };
    let panels = Rect {
        y: inside.y + attempts.height,
        height: named,
        ..inside
    };
    let top = attempts.height + panels.height;
    [
        attempts,
        panels,
        Rect {
            y: inside.y + top,
            height: inside.height - top,
            ..inside
        },
    ]
}

/// Areas of a stream inside its pane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamAreas {
    /// Why the attempt ended without success; empty otherwise.
    pub verdict: Rect,
    pub rows: Rect,
    /// Rows that are kept free for what the last call returned while another one waits.
    pub result: Rect,
    /// A pending approval, or the text that is being written.
    pub below: Rect,
}

/// Splits the pane of a stream.
pub(crate) fn stream_areas(
    pane: Rect,
    attempt: Option<&AttemptState>,
    held: &HeldChanges,
) -> StreamAreas {
    let inside = inner(pane);
    let (third, half) = ((inside.height / 3).min(6), (inside.height / 2).min(6));
    let held_calls = attempt.map_or(0, |attempt| attempt.held_calls.len());
    let has_result = attempt.is_some_and(|attempt| attempt.counts.calls as usize > held_calls);
    let result = match held_calls > 0 && has_result && inside.height >= MIN_RESULT_ROOM {
        true => (inside.height / 5).min(8),
        false => 0,
    };
    let most = match held_calls {
        0 => third,
        // A decision needs the whole call and a few rows of context.
        _ => (inside.height - result).saturating_sub(3),
    };
    let above = attempt.map_or(0, |attempt| {
        verdict_lines(attempt, inside.width, half).len()
    });
    let above = u16::try_from(above).unwrap_or(half).min(inside.height);
    let below = attempt.map_or(0, |attempt| {
        footer_height(attempt, held, (inside.width, most))
    });
    let below = u16::try_from(below)
        .unwrap_or(most)
        .min(inside.height - above);
    let verdict = Rect {
        height: above,
        ..inside
    };
    let rows = Rect {
        y: verdict.bottom(),
        height: (inside.height - above - below).saturating_sub(result),
        ..inside
    };
    let below = Rect {
        y: inside.bottom() - below,
        height: below,
        ..inside
    };
    StreamAreas {
        verdict,
        rows,
        result: Rect {
            y: rows.bottom(),
            height: below.y - rows.bottom(),
            ..inside
        },
        below,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn panes_stay_on_the_screen_and_apart(
            width in 0..400_u16, height in 0..200_u16, zoom in any::<bool>(), stream in any::<bool>(), units in 0..20_usize,
            walked in any::<bool>(),
        ) {
            let focus = if stream { Pane::Stream } else { Pane::Units };
            let plan = screen_layout((width, height), UnitsPanes { focus, zoom, lines: units, has_dialog: false }, walked);
            for area in [Some(plan.header), Some(plan.body), Some(plan.bar), Some(plan.footer), plan.units, plan.stream].into_iter().flatten() {
                prop_assert_eq!(area.intersection(plan.area).area(), area.area());
            }
            prop_assert_eq!(plan.header.height + plan.body.height + plan.bar.height + plan.footer.height, height);
            if let Some((rows, pane)) = plan.unit_list().zip(plan.units) {
                prop_assert!(rows.is_empty() || rows.intersection(pane) == rows);
            }
            if let (Some(units), Some(stream)) = (plan.units, plan.stream) {
                prop_assert!(units.intersection(stream).is_empty());
            }
        }
    }

    #[test]
    fn table_is_above_the_stream_at_every_width() {
        for (width, height) in
            (40..=300).flat_map(|width| [24, 36, 60].map(|height| (width, height)))
        {
            for lines in [4, 500] {
                let panes = UnitsPanes {
                    lines,
                    ..UnitsPanes::default()
                };
                let plan = screen_layout((width, height), panes, false);
                let (units, stream) = (plan.units.unwrap(), plan.stream.unwrap());
                assert_eq!((units.width, stream.width), (width, width));
                assert_eq!(units.height + stream.height, plan.body.height);
                assert!(plan.unit_rows() <= plan.most_unit_rows() && stream.height >= 8);
            }
        }
    }
}
