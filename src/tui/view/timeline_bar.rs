//! The timeline bar: activity over time, marks and the current moment.
//!
//! Its cost depends on the number of columns, not on the length of the run.

use std::collections::BTreeMap;

use ratatui::{buffer::Buffer, layout::Rect};

use crate::page::DrawContext;
use crate::widgets::RowWriter;
use crate::{
    model::{ClickAction, wall_clock},
    playback::Playback,
    theme::{StyleRole, mark_role},
};
use ingestdeck_core::{
    run::{ActivityMark, SeekTarget, bookmark::Bookmark, state::UnitStatus},
    tape::Millis,
    text::{self, clock},
};

/// The marks of a kind are shown by their number if more than one cell in this many has one.
const MAX_MARKED_SHARE: usize = 3;
/// Minimum ratio of the highest number of a scale to its beginning.
const MIN_LEVEL_RATIO: f64 = 8.0;

/// Paints the bar: the strip; if there is room, a line with its labels, and a line with the marks above it.
pub(crate) fn draw(scene: &DrawContext<'_>, area: Rect, buf: &mut Buffer) {
    let has_mark_row = area.height > 2;
    let line = |row: u16| Rect {
        y: area.y + row,
        height: area.height.saturating_sub(row).min(1),
        ..area
    };
    let strip_row = u16::from(has_mark_row);
    strip(scene, has_mark_row.then(|| line(0)), line(strip_row), buf);
    if area.height > 1 {
        legend(scene, line(strip_row + 1), buf);
    }
}

/// Paints one cell for each bucket. Without a row for them, marks are in the strip: adjacent cells with the same mark
/// show it once, so that many marks do not hide the activity.
fn strip(scene: &DrawContext<'_>, marks: Option<Rect>, area: Rect, buf: &mut Buffer) {
    let (glyphs, activity) = (scene.theme.glyphs, scene.activity);
    let width = usize::from(area.width);
    let cells = activity.resample(width);
    let entries = LevelScale::new(cells.iter().map(|cell| cell.entries));
    let here = activity.cell_at(scene.model.playhead.time, width);
    let bookmarks = &scene.model.playhead.bookmarks.list;
    let cell_of = |bookmark: &Bookmark| (activity.cell_at(bookmark.at, width), bookmark.entry);
    let bookmarked: BTreeMap<_, _> = bookmarks.iter().map(cell_of).collect();
    let mark_row = marks.unwrap_or(area);
    for (place, cell) in cells.iter().enumerate() {
        // A click on a mark shows the moment after it.
        let target = match bookmarked.get(&place) {
            Some(entry) => SeekTarget::Entries(entry.0.saturating_add(1)),
            None if cell.marks.most_important().is_some() => {
                SeekTarget::Time(activity.cell_end(place, width))
            }
            None => continue,
        };
        let x = mark_row
            .x
            .saturating_add(u16::try_from(place).unwrap_or(u16::MAX));
        scene.targets.add(
            Rect {
                x,
                width: 1,
                ..mark_row
            },
            ClickAction::Seek(target),
        );
    }
    if let Some(row) = marks {
        let mut pen = RowWriter::row(scene, buf, row);
        let marked = LevelScale::new(cells.iter().map(|cell| cell.marked));
        let count = |mark| {
            let marks = cells.iter().map(|cell| cell.marks.most_important());
            marks.filter(|found| *found == Some(mark)).count()
        };
        // A row full of the same mark shows nothing; the number of marks does.
        let crowded = ActivityMark::ALL
            .into_iter()
            .find(|mark| count(*mark) * MAX_MARKED_SHARE > width);
        for (place, cell) in cells.iter().enumerate() {
            match cell.marks.most_important() {
                _ if bookmarked.contains_key(&place) => pen.put(StyleRole::Key, glyphs.bookmark()),
                Some(mark) if crowded == Some(mark) => {
                    pen.put(mark_role(mark), marked.level(glyphs.levels, cell.marked));
                }
                Some(mark) => pen.put(mark_role(mark), glyphs.mark(mark)),
                None => pen.skip(1),
            }
        }
    }
    let mut pen = RowWriter::row(scene, buf, area);
    let mut before = None;
    for (place, cell) in cells.iter().enumerate() {
        let mark = cell.marks.most_important().filter(|_| marks.is_none());
        let (role, glyph) = match mark {
            _ if place == here => (StyleRole::Key, glyphs.here),
            _ if marks.is_none() && bookmarked.contains_key(&place) => {
                (StyleRole::Key, glyphs.bookmark())
            }
            Some(mark) if before != Some(mark) => (mark_role(mark), glyphs.mark(mark)),
            Some(mark) => (mark_role(mark), entries.level(glyphs.levels, cell.entries)),
            None if cell.entries == 0 => (StyleRole::Dim, " "),
            None => (
                if place < here {
                    StyleRole::Focus
                } else {
                    StyleRole::Dim
                },
                entries.level(glyphs.levels, cell.entries),
            ),
        };
        pen.put(role, glyph);
        before = mark;
    }
}

/// Maps the numbers of the cells to levels, on a logarithmic scale, so that a peak does not flatten the rest. It begins
/// at the lowest number, so that a busy run is not one solid bar.
#[derive(Clone, Copy, Debug)]
struct LevelScale {
    lowest: f64,
    highest: f64,
}

impl LevelScale {
    fn new(numbers: impl Iterator<Item = u32>) -> Self {
        let numbers = numbers.filter(|number| *number > 0).map(f64::from);
        let (lowest, highest) = numbers.fold((f64::MAX, 1.0), |(lowest, highest), number| {
            (number.min(lowest), number.max(highest))
        });
        Self {
            // Small differences remain small.
            lowest: lowest.min(highest / MIN_LEVEL_RATIO),
            highest,
        }
    }

    /// The glyph of a number.
    fn level(self, levels: [&'static str; 8], number: u32) -> &'static str {
        let share = (f64::from(number).max(self.lowest) / self.lowest).ln()
            / (self.highest / self.lowest).ln();
        let place = (share * 7.0).round().clamp(0.0, 7.0);
        levels[place as usize]
    }
}

/// A part of the line with its rank; parts with a higher rank are dropped first when room is short.
type BarSegment = (u8, StyleRole, String);

fn legend(scene: &DrawContext<'_>, area: Rect, buf: &mut Buffer) {
    let room = usize::from(area.width).saturating_sub(2);
    let (mut left, mut right) = (position(scene), marks(scene));
    let width = |pieces: &[BarSegment]| {
        pieces
            .iter()
            .map(|(_, _, text)| text::width(text) + 2)
            .sum::<usize>()
    };
    while width(&left) + width(&right) > room {
        let last = |pieces: &[BarSegment]| {
            pieces
                .iter()
                .map(|(rank, ..)| *rank)
                .max()
                .unwrap_or_default()
        };
        let (from, rank) = if last(&right) >= last(&left) {
            (&mut right, 0)
        } else {
            (&mut left, 0)
        };
        let most = from.iter().map(|(rank, ..)| *rank).max().unwrap_or(rank);
        let Some(place) = from
            .iter()
            .rposition(|(rank, ..)| *rank == most && *rank > 0)
        else {
            break;
        };
        from.remove(place);
    }
    let mut pen = RowWriter::row(scene, buf, area);
    pen.skip(1);
    let mut end = Vec::new();
    for (_, role, text) in &right {
        end.extend([(*role, text.as_str()), (StyleRole::Text, "  ")]);
    }
    end.pop();
    end.push((StyleRole::Text, " "));
    if !right.is_empty() {
        pen.end_with(&end);
    }
    for (_, role, text) in &left {
        pen.put(*role, text);
        pen.skip(2);
    }
}

/// The moment that the screen shows.
fn position(scene: &DrawContext<'_>) -> Vec<BarSegment> {
    let (model, state) = (scene.model, &scene.run_view.state);
    let extent = &model.playhead.bounds;
    let mut pieces = vec![playback_label(scene)];
    if let (Playback::Speed(_), Millis(1..)) = (model.playhead.playback, model.playhead.skipped) {
        pieces.push((
            1,
            StyleRole::Dim,
            format!("skipped {} without entries", model.playhead.skipped),
        ));
    }
    if model.is_in_past() {
        let behind = clock(extent.now.since(model.playhead.time));
        pieces.push((0, StyleRole::Paused, format!("-{behind} behind live")));
        pieces.extend(live_difference(scene));
    }
    let known = extent.known_entries.max(state.entries);
    let more = if scene.source.at_end { "" } else { "+" };
    if extent.has_times {
        let tenths = if model.playhead.playback == Playback::Paused {
            format!(".{}", model.playhead.time.0 % 1000 / 100)
        } else {
            String::new()
        };
        let length = clock(extent.last_at);
        pieces.push((
            1,
            StyleRole::Text,
            format!("{}{tenths} of {length}{more}", clock(model.playhead.time)),
        ));
        if let Some(shown) = extent
            .started_at
            .and_then(|start| wall_clock(start, model.playhead.time, &extent.zone))
        {
            pieces.push((5, StyleRole::Dim, format!("@{shown}")));
        }
    } else {
        pieces.push((1, StyleRole::Dim, "no times: by entry".to_owned()));
    }
    pieces.push((
        2,
        StyleRole::Text,
        format!("{}/{known}{more}", state.entries),
    ));
    if extent.has_times && extent.last_at == Millis(0) && known > 1 {
        pieces.push((5, StyleRole::Dim, "all at one moment".to_owned()));
    }
    pieces
}

/// Differences between the present and the moment that is shown.
fn live_difference(scene: &DrawContext<'_>) -> Option<BarSegment> {
    let (shown, live) = (
        &scene.model.totals,
        &scene.model.playhead.bounds.present_totals,
    );
    let statuses = [
        UnitStatus::Held,
        UnitStatus::Silent,
        UnitStatus::Failed,
        UnitStatus::Stopped,
        UnitStatus::BudgetExhausted,
        UnitStatus::Succeeded,
    ];
    let more = statuses.into_iter().filter_map(|status| {
        let count = live.count(status).saturating_sub(shown.count(status));
        (count > 0).then(|| {
            format!(
                "{} {count} {}",
                scene.theme.glyphs.status(status),
                status.as_str()
            )
        })
    });
    let more: Vec<_> = more.collect();
    let new = |status| live.count(status) > shown.count(status);
    let role = match () {
        () if new(UnitStatus::Failed) => StyleRole::Failed,
        () if new(UnitStatus::Held) => StyleRole::Paused,
        () if new(UnitStatus::Silent) => StyleRole::Warning,
        () => StyleRole::Text,
    };
    (!more.is_empty()).then(|| (1, role, format!("LIVE: {}", more.join(", "))))
}

/// Label of the playback state.
fn playback_label(scene: &DrawContext<'_>) -> BarSegment {
    let (model, glyphs) = (scene.model, scene.theme.glyphs);
    if let Some(going) = &model.playhead.bounds.seeking_to {
        return (0, StyleRole::Live, format!("{} {going}", glyphs.playing));
    }
    match model.playhead.playback {
        Playback::Follow if model.connection.is_live => {
            (0, StyleRole::Live, format!("{} LIVE", glyphs.live))
        }
        Playback::Follow if model.connection.recording_failure.is_some() => (
            0,
            StyleRole::Failed,
            format!("{} BROKEN", glyphs.status(UnitStatus::Failed)),
        ),
        Playback::Follow => (0, StyleRole::Live, "REPLAY".to_owned()),
        Playback::Speed(speed) => (0, StyleRole::Live, format!("{} ×{speed}", glyphs.playing)),
        Playback::Unthrottled => (
            0,
            StyleRole::Live,
            format!("{} as fast as possible", glyphs.playing),
        ),
        Playback::Paused => (0, StyleRole::Paused, format!("{} PAUSED", glyphs.paused)),
    }
}

/// The number of marks of each kind, which is also the legend of the strip.
fn marks(scene: &DrawContext<'_>) -> Vec<BarSegment> {
    let glyphs = scene.theme.glyphs;
    let mut pieces: Vec<BarSegment> = ActivityMark::ALL
        .into_iter()
        .filter_map(|mark| {
            let count = scene.activity.count(mark);
            let word = if count == 1 {
                mark.labels().0
            } else {
                mark.labels().1
            };
            let rank = if mark == ActivityMark::Failure { 3 } else { 4 };
            (count > 0).then(|| {
                (
                    rank,
                    mark_role(mark),
                    format!("{} {count} {word}", glyphs.mark(mark)),
                )
            })
        })
        .collect();
    let bookmarks = scene.model.playhead.bookmarks.list.len();
    if bookmarks > 0 {
        pieces.push((
            3,
            StyleRole::Key,
            format!(
                "{} {}",
                glyphs.bookmark(),
                text::pluralize(bookmarks, "bookmark")
            ),
        ));
    }
    let on = scene
        .model
        .playhead
        .breakpoints
        .iter()
        .filter(|breakpoint| breakpoint.is_enabled)
        .count();
    if on > 0 {
        let word = if on == 1 { "breakpoint" } else { "breakpoints" };
        pieces.push((
            3,
            StyleRole::Key,
            format!("{} {on} {word}", glyphs.breakpoint),
        ));
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activity_level_is_monotonic() {
        let levels = ["1", "2", "3", "4", "5", "6", "7", "8"];
        for most in [1, 2, 7, 100, 65_000, u32::MAX] {
            let scale = LevelScale::new([0, 1, most].into_iter());
            let at = |entries| scale.level(levels, entries);
            assert_eq!(at(most), "8", "{most}");
            let shown: Vec<_> = (1..64)
                .map(|step| at((u64::from(most) * step / 63) as u32))
                .collect();
            assert!(shown.is_sorted(), "{most}: {shown:?}");
        }
    }

    #[test]
    fn busy_run_is_not_a_solid_bar() {
        let levels = ["1", "2", "3", "4", "5", "6", "7", "8"];
        let shown = |numbers: [u32; 4]| {
            let scale = LevelScale::new(numbers.into_iter());
            numbers.map(|number| scale.level(levels, number))
        };
        assert_eq!(shown([100, 300, 900, 1000]), ["1", "4", "8", "8"]);
        assert_eq!(shown([990, 1000, 995, 1000]), ["8"; 4], "it is even");
        assert_eq!(shown([1, 1, 0, 1]), ["8", "8", "1", "8"]);
    }
}
