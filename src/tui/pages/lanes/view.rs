//! The page of lanes: attempts as bars over time, what they waited for, and the critical path.

use std::collections::HashSet;

use ratatui::{buffer::Buffer, layout::Rect};

use super::{LanesPage, state::TimeWindow};
use crate::page::DrawContext;
use crate::theme::{StyleRole, status_role};
use crate::widgets::{RowWriter, pane};
use ingestdeck_core::{
    run::{
        slot_lanes::{LaneAttempt, TimeUse, TimeUses},
        state::UnitNeed,
    },
    tape::Millis,
    text::{self, clock, pluralize},
};

/// Steps of the time axis in seconds.
const AXIS_STEPS: [u64; 15] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600,
];
/// Minimum columns between two labels of the axis.
const AXIS_COLUMNS: u64 = 12;
/// Fewest and most columns of a unit's name in a text.
const NAME_COLUMNS: (usize, usize) = (10, 28);
/// Minimum columns of work in a bar for the name of its unit.
const MIN_NAME_COLUMNS: usize = 4;

pub(crate) fn draw(scene: &DrawContext<'_>, view: &LanesPage, area: Rect, buf: &mut Buffer) {
    let (lanes, glyphs) = (&view.lanes, scene.theme.glyphs);
    let window = view.window();
    let found = format!(
        " {} {} {} {} {} {}",
        glyphs.dot,
        pluralize(lanes.attempts.len(), "attempt"),
        glyphs.dot,
        pluralize(lanes.lanes, "lane"),
        glyphs.dot,
        match view.is_zoomed {
            true => format!("{} to {}", clock(window.from), clock(window.to)),
            false => lanes.end.to_string(),
        }
    );
    let place = match lanes.attempts.len() {
        0 => String::new(),
        attempts => format!(" {}/{attempts} ", view.selected_index() + 1),
    };
    let title = [
        (StyleRole::Strong, "lanes"),
        (StyleRole::Dim, found.as_str()),
    ];
    let inside = pane(scene, area, true, &title, &[(StyleRole::Dim, &place)], buf);
    if lanes.attempts.is_empty() || !scene.source.origin.has_times {
        let text = if lanes.attempts.is_empty() {
            "no attempt has started"
        } else {
            "this tape has no times"
        };
        RowWriter::row(scene, buf, inside).put(StyleRole::Dim, text);
        return;
    }
    let [axis, rows, below] = view.areas(inside);
    let numbers = u16::try_from(lanes.lanes.to_string().len() + 1).unwrap_or(2);
    let bars = |row: Rect| Rect {
        x: row.x + numbers.min(row.width),
        width: row.width.saturating_sub(numbers),
        ..row
    };
    if axis.height > 0 {
        self::axis(scene, window, bars(axis), buf);
    }
    let selected = view.selected().map_or(0, |attempt| attempt.lane);
    let shown = view.offset..view.offset + usize::from(rows.height);
    for (y, lane) in (rows.y..rows.bottom()).zip(shown.clone()) {
        let line = Rect {
            y,
            height: 1,
            ..rows
        };
        let role = if lane == selected {
            StyleRole::Strong
        } else {
            StyleRole::Dim
        };
        RowWriter::row(scene, buf, line).cell_right(
            role,
            &(lane + 1).to_string(),
            usize::from(numbers) - 1,
        );
        pauses(scene, &lanes.pauses, window, bars(line), buf);
    }
    let visible = lanes
        .attempts
        .iter()
        .enumerate()
        .filter(|(_, attempt)| shown.contains(&attempt.lane) && window.contains(attempt));
    // Where several attempts share a cell, problems and the selection are painted last.
    let is_problem = |attempt: &LaneAttempt| attempt.status.need() == UnitNeed::Person;
    let (problems, others): (Vec<_>, Vec<_>) =
        visible.partition(|(_, attempt)| is_problem(attempt));
    let (selected, rest): (Vec<_>, Vec<_>) = others
        .into_iter()
        .chain(problems)
        .partition(|(index, _)| *index == view.selected_index());
    // Of several attempts that begin in the same cell, only the first is painted, so that the cost of a frame does not
    // depend on their number.
    let mut painted = HashSet::new();
    for (index, attempt) in rest.into_iter().chain(selected) {
        let y = rows.y + u16::try_from(attempt.lane - view.offset).unwrap_or_default();
        let cells = cells(
            attempt,
            window,
            bars(Rect {
                y,
                height: 1,
                ..rows
            }),
        );
        let is_first = painted.insert((cells.x, y, is_problem(attempt)));
        if !is_first && cells.width == 1 && index != view.selected_index() {
            continue;
        }
        bar(scene, attempt, window, bars(rows), cells, buf);
        if index == view.selected_index() {
            buf.set_style(cells, scene.theme.style(StyleRole::Selected));
        }
    }
    texts(scene, view, below, buf);
}

/// Column of a time in an area that covers the window.
fn column(at: Millis, window: TimeWindow, area: Rect) -> u16 {
    let after = at.min(window.to).since(window.from);
    let column = u128::from(after.0) * u128::from(area.width) / u128::from(window.span());
    area.x + u16::try_from(column).unwrap_or(u16::MAX).min(area.width)
}

/// Cells of an attempt; at least one.
fn cells(attempt: &LaneAttempt, window: TimeWindow, area: Rect) -> Rect {
    let from = column(attempt.from, window, area).min(area.right().saturating_sub(1));
    let to = column(attempt.to, window, area).max(from + 1);
    Rect {
        x: from,
        width: to - from,
        ..area
    }
}

fn axis(scene: &DrawContext<'_>, window: TimeWindow, area: Rect, buf: &mut Buffer) {
    let labels = u64::from(area.width) / AXIS_COLUMNS;
    let is_wide = |step: &&u64| window.span() / (**step * 1000) <= labels;
    let step = AXIS_STEPS
        .iter()
        .find(is_wide)
        .copied()
        .unwrap_or(window.span() / 1000 / labels.max(1) + 1)
        * 1000;
    let ticks = window.from.0.div_ceil(step)..=window.to.0 / step;
    let ticks = ticks.map(|tick| Millis(tick * step));
    for at in ticks {
        let x = column(at, window, area);
        let label = clock(at);
        if usize::from(area.right() - x) >= label.len() {
            let rest = Rect {
                x,
                width: area.right() - x,
                ..area
            };
            RowWriter::row(scene, buf, rest).put(StyleRole::Dim, &label);
        }
    }
}

/// Paints the times in which the run waited for a limit; bars cover them.
fn pauses(
    scene: &DrawContext<'_>,
    pauses: &[(Millis, Millis)],
    window: TimeWindow,
    area: Rect,
    buf: &mut Buffer,
) {
    let [.., limit] = scene.theme.glyphs.progress;
    for (from, to) in pauses {
        let (x, right) = (column(*from, window, area), column(*to, window, area));
        let mut pen = RowWriter::row(
            scene,
            buf,
            Rect {
                x,
                width: right - x,
                ..area
            },
        );
        pen.repeat(StyleRole::Budget, limit, usize::from(right - x));
    }
}

/// Paints the bar of an attempt: the sign of its status, its parts, and its name where it fits.
fn bar(
    scene: &DrawContext<'_>,
    attempt: &LaneAttempt,
    window: TimeWindow,
    area: Rect,
    cells: Rect,
    buf: &mut Buffer,
) {
    let Some(unit) = scene.run_view.state.units.get(attempt.unit) else {
        return;
    };
    let glyphs = scene.theme.glyphs;
    let [critical, start_up, work, hold, _] = glyphs.progress;
    let role = status_role(attempt.status);
    let mut pen = RowWriter::row(scene, buf, cells);
    pen.put(role, glyphs.status(attempt.status));
    let use_at = |x: u16| {
        let after = u128::from(x - area.x) * u128::from(window.span());
        let after = after / u128::from(area.width.max(1));
        let after = u64::try_from(after).unwrap_or(u64::MAX);
        let at = Millis(window.from.0.saturating_add(after));
        let held = attempt.holds.partition_point(|(from, _)| *from <= at);
        match held
            .checked_sub(1)
            .and_then(|place| attempt.holds.get(place))
        {
            _ if at < attempt.ready_at => TimeUse::StartUp,
            Some((_, to)) if at < *to => TimeUse::Hold,
            _ => TimeUse::Work,
        }
    };
    let uses: Vec<TimeUse> = (cells.x + 1..cells.right()).map(use_at).collect();
    let mut is_named = false;
    for run in uses.chunk_by(|one, other| one == other) {
        let (role, glyph) = match run[0] {
            TimeUse::StartUp => (StyleRole::Dim, start_up),
            TimeUse::Hold => (StyleRole::Paused, hold),
            _ if attempt.is_on_critical_path => (role, critical),
            _ => (role, work),
        };
        let mut width = run.len();
        if run[0] == TimeUse::Work && !is_named && width >= MIN_NAME_COLUMNS {
            is_named = true;
            let number = if attempt.attempt > 0 {
                format!(" {}", attempt.attempt + 1)
            } else {
                String::new()
            };
            let name = text::fit_middle(
                &unit.key,
                width - 1 - number.len().min(width - 2),
                glyphs.cut,
            );
            let name = format!("{name}{number}");
            pen.put_in(StyleRole::Text, &name, width - 1);
            width -= text::width(&name).min(width - 1);
        }
        pen.repeat(role, glyph, width);
    }
}

/// A text below the lanes, with its heading.
type LaneText = (&'static str, String);

/// Paints the texts, as many as there is room for: each gets a row, then the rows that remain go to longer ones.
fn texts(scene: &DrawContext<'_>, view: &LanesPage, area: Rect, buf: &mut Buffer) {
    let width = usize::from(area.width);
    let path = critical_path(
        scene,
        view,
        width * usize::from(area.height.saturating_sub(4).clamp(1, 4)),
    );
    let texts: [LaneText; 4] = [
        ("selected", selected(scene, view)),
        ("critical path", path),
        (
            "all attempts",
            uses_text(scene, &view.lanes.totals, view.lanes.attempts.len()),
        ),
        ("signs", legend(scene)),
    ];
    let wrapped =
        texts.map(|(heading, text)| (heading, text::wrap(&format!("{heading}: {text}"), width)));
    let mut rows = wrapped.each_ref().map(|_| 0);
    let mut left = usize::from(area.height);
    for most in 1..=4 {
        for (place, (_, lines)) in wrapped.iter().enumerate() {
            if left > 0 && rows[place] < most.min(lines.len()) {
                rows[place] += 1;
                left -= 1;
            }
        }
    }
    // An empty row between the texts, if there is room for all of them.
    let gap = usize::from(left >= wrapped.len());
    let mut y = area.y + u16::try_from(gap).unwrap_or_default();
    for ((heading, lines), rows) in wrapped.iter().zip(rows) {
        for (index, line) in lines.iter().take(rows).enumerate() {
            let mut pen = RowWriter::row(
                scene,
                buf,
                Rect {
                    y,
                    height: 1,
                    ..area
                },
            );
            let is_cut = index + 1 == rows && rows < lines.len();
            let more = if is_cut {
                lines[rows..].join(" ")
            } else {
                String::new()
            };
            let line = if is_cut {
                format!("{line} {more}")
            } else {
                line.clone()
            };
            match line.strip_prefix(heading).filter(|_| index == 0) {
                Some(rest) => {
                    pen.put(StyleRole::Strong, heading);
                    pen.put(StyleRole::Text, rest);
                }
                None => pen.put(StyleRole::Text, &line),
            }
            y += 1;
        }
        y += u16::try_from(gap).unwrap_or_default();
    }
}

fn attempt_name(scene: &DrawContext<'_>, attempt: &LaneAttempt) -> String {
    let width = (usize::from(scene.model.size.0) / 4).clamp(NAME_COLUMNS.0, NAME_COLUMNS.1);
    let key = scene
        .run_view
        .state
        .units
        .get(attempt.unit)
        .map(|unit| unit.key.as_str())
        .unwrap_or_default();
    let name = text::fit_middle(key, width, scene.theme.glyphs.cut);
    if attempt.attempt > 0 {
        format!("{name} try {}", attempt.attempt + 1)
    } else {
        name.into_owned()
    }
}

/// The parts of the time of `attempts`: the sums of those while they ran, then the average of their waits, which are at
/// the same time.
fn uses_text(scene: &DrawContext<'_>, uses: &TimeUses, attempts: usize) -> String {
    let dot = format!(" {} ", scene.theme.glyphs.dot);
    let list = |is_before: bool| {
        let parts = TimeUse::ALL
            .into_iter()
            .filter(|time_use| time_use.is_before_start() == is_before);
        let count = if is_before { attempts.max(1) as u64 } else { 1 };
        let parts = parts.map(|time_use| (time_use, Millis(uses.get(time_use).0 / count)));
        let parts = parts.filter(|(_, span)| span.0 >= 100);
        let scale = DurationScale::new(Millis(0));
        let text = |(time_use, span): (TimeUse, Millis)| {
            format!("{} {}", time_use.label(), scale.text(scale.units(span)))
        };
        parts.map(text).collect::<Vec<_>>().join(&dot)
    };
    let waited = if attempts > 1 {
        "waited on average"
    } else {
        "waited"
    };
    match (list(false), list(true)) {
        (inside, before) if before.is_empty() => inside,
        (inside, before) if inside.is_empty() => format!("{waited}: {before}"),
        (inside, before) => format!("{inside}; {waited}: {before}"),
    }
}

fn selected(scene: &DrawContext<'_>, view: &LanesPage) -> String {
    let Some(attempt) = view.selected() else {
        return String::new();
    };
    let (name, status) = (attempt_name(scene, attempt), attempt.status.as_str());
    let (from, to) = (clock(attempt.from), clock(attempt.to));
    format!(
        "{name}, {status}, {from} to {to}; {}",
        uses_text(scene, &attempt.uses, 1)
    )
}

/// The path, from its end back as far as `columns` allow.
fn critical_path(scene: &DrawContext<'_>, view: &LanesPage, columns: usize) -> String {
    let path = &view.lanes.critical_path;
    if path.is_empty() {
        return "?, the tape has no plan".to_owned();
    }
    let arrow = format!(" {} ", scene.theme.glyphs.arrow);
    let mut scale = DurationScale::new(view.lanes.end);
    let total = format!("{} = ", scale.text(scale.units(view.lanes.end)));
    let mut steps: Vec<(String, u64)> = Vec::new();
    for step in path {
        match step
            .attempt
            .and_then(|index| view.lanes.attempts.get(index))
        {
            Some(attempt) => {
                steps.push((attempt_name(scene, attempt), scale.next(step.uses.total())))
            }
            None => {
                let uses = TimeUse::ALL
                    .into_iter()
                    .filter(|time_use| step.uses.get(*time_use) > Millis(0));
                steps.extend(uses.map(|time_use| {
                    (
                        time_use.label().to_owned(),
                        scale.next(step.uses.get(time_use)),
                    )
                }));
            }
        }
    }
    // What is shorter than a unit of the scale is a part of the next step.
    steps.retain(|(_, units)| *units > 0);
    let mut room = columns.saturating_sub(total.len() + "critical path: ".len() + 16);
    let mut parts: Vec<String> = Vec::new();
    while let Some((name, units)) = steps.pop() {
        let text = format!("{name} {}", scale.text(units));
        let width = text::width(&text) + 3;
        if width > room && !parts.is_empty() {
            let earlier = steps
                .iter()
                .fold(units, |sum, (_, units)| sum.saturating_add(*units));
            parts.push(format!(
                "{} {}",
                scene.theme.glyphs.cut,
                scale.text(earlier)
            ));
            break;
        }
        room = room.saturating_sub(width);
        parts.push(text);
    }
    parts.reverse();
    format!("{total}{}", parts.join(&arrow))
}

/// Rounds consecutive parts of a duration so that they add up to the whole as it is shown.
struct DurationScale {
    /// Milliseconds of a unit.
    unit_ms: u64,
    /// End of the parts so far.
    at: Millis,
}

impl DurationScale {
    /// Tenths of a second up to ten minutes, then seconds.
    fn new(whole: Millis) -> Self {
        Self {
            unit_ms: if whole.0 < 600_000 { 100 } else { 1000 },
            at: Millis(0),
        }
    }

    fn units(&self, span: Millis) -> u64 {
        span.0 / self.unit_ms
    }

    /// The units of the next part.
    fn next(&mut self, part: Millis) -> u64 {
        let before = self.units(self.at);
        self.at.0 = self.at.0.saturating_add(part.0);
        self.units(self.at) - before
    }

    /// Formats a duration: `3.4s`, `12s`, `1m 03.4s`, `1h 02m 03s`.
    fn text(&self, units: u64) -> String {
        let seconds = units / (1000 / self.unit_ms);
        let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let tenths = match units % 10 {
            1.. if self.unit_ms < 1000 => format!(".{}", units % 10),
            _ => String::new(),
        };
        match (hours, minutes) {
            (0, 0) => format!("{rest}{tenths}s"),
            (0, _) => format!("{minutes}m {rest:02}{tenths}s"),
            _ => format!("{hours}h {minutes:02}m {rest:02}s"),
        }
    }
}

fn legend(scene: &DrawContext<'_>) -> String {
    let [critical, start_up, work, hold, limit] = scene.theme.glyphs.progress;
    format!(
        "{critical}{critical} critical path, {work}{work} work, {start_up}{start_up} start-up, {hold}{hold} hold, \
         {limit}{limit} limit"
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parts_of_a_duration_add_up_as_shown(parts in prop::collection::vec(0..90_000_u64, 1..60)) {
            let whole = Millis(parts.iter().sum());
            let mut scale = DurationScale::new(whole);
            let shown: u64 = parts.iter().map(|part| scale.next(Millis(*part))).sum();
            prop_assert_eq!(shown, scale.units(whole));
        }
    }

    #[test]
    fn durations_are_shown_with_their_unit() {
        let short = DurationScale::new(Millis(599_999));
        assert_eq!(
            [3, 120, 634, 5_999].map(|units| short.text(units)),
            ["0.3s", "12s", "1m 03.4s", "9m 59.9s"]
        );
        let long = DurationScale::new(Millis(600_000));
        assert_eq!(
            [3, 600, 3_723].map(|units| long.text(units)),
            ["3s", "10m 00s", "1h 02m 03s"]
        );
    }
}
