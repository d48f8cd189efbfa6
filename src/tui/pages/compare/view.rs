//! Two attempts side by side: aligned calls, their differences and both results.

use std::collections::BTreeSet;

use ratatui::{buffer::Buffer, layout::Rect};

use super::ComparePage;
use crate::page::DrawContext;
use crate::widgets::{RowWriter, document_view, pane, stream, titled_rule};
use crate::{
    comparison::{
        Comparison,
        align::{CallDifference, CallPair},
    },
    layout,
    theme::{StyleRole, status_role},
    unit_row,
};
use ingestdeck_core::{
    run::{plain_reason, savings::savings, state::AttemptState},
    tape::note::{AttemptOutcome, StopReason},
    text::{self, count, latency},
};

/// Columns between the two sides.
const MIDDLE: u16 = 14;
/// Columns of the labels of the summary.
const NAMES: usize = 9;

pub(crate) fn draw(scene: &DrawContext<'_>, view: &ComparePage, area: Rect, buf: &mut Buffer) {
    let unit = scene.run_view.state.unit(&view.unit);
    let key = text::printable(&view.unit, 60);
    let role = unit.map_or(StyleRole::Text, |unit| status_role(unit.status));
    let sign = unit.map_or("", |unit| scene.theme.glyphs.unit(unit));
    let title = [
        (role, sign),
        (StyleRole::Text, " "),
        (StyleRole::Strong, key.as_ref()),
        (StyleRole::Dim, " attempts compared"),
    ];
    let place = if view.pair_count() > 0 {
        format!(" {}/{} ", view.list.selected + 1, view.pair_count())
    } else {
        String::new()
    };
    let inside = pane(scene, area, true, &title, &[(StyleRole::Dim, &place)], buf);
    let Some(attempts) = view.attempts(scene.run_view) else {
        RowWriter::row(scene, buf, inside)
            .put(StyleRole::Dim, "fewer than two attempts at this moment");
        return;
    };
    let areas = view.areas(area);
    attempt_headers(scene, view, attempts, areas.attempts, buf);
    let comparison = scene.cache.comparison().filter(|_| view.pairs.is_some());
    notice(scene, comparison, attempts, areas.notice, buf);
    let Some(comparison) = comparison else { return };
    let pairs = comparison.pairs.iter().enumerate().skip(view.list.offset);
    for (y, (index, pair)) in (areas.calls.y..areas.calls.bottom()).zip(pairs) {
        let line = Rect {
            y,
            height: 1,
            ..areas.calls
        };
        self::pair(scene, pair, attempts, line, buf);
        if index == view.list.selected {
            buf.set_style(line, scene.theme.style(StyleRole::Selected));
        }
    }
    difference(scene, view, areas.difference, buf);
    summary(scene, comparison, attempts, areas.summary, buf);
}

/// Paints what differs between the selected calls, below its title.
fn difference(scene: &DrawContext<'_>, view: &ComparePage, area: Rect, buf: &mut Buffer) {
    let shown = view.difference;
    let document = scene.cache.document().filter(|_| shown.lines > 0);
    let Some(document) = document.filter(|_| area.height > 0) else {
        return;
    };
    let rows = layout::below(area, 1);
    let height = usize::from(rows.height);
    let scroll = shown.scroll.min(shown.lines.saturating_sub(height));
    let last = (scroll + height).min(shown.lines);
    let place = if height < shown.lines {
        format!(" line {}-{last}/{} ", scroll + 1, shown.lines)
    } else {
        String::new()
    };
    let how = view.selected_pair().map(|pair| pair.difference);
    let title = format!(
        "call {}{}: {}",
        view.list.selected + 1,
        view.selected_pair()
            .map(|pair| place_text(&pair))
            .unwrap_or_default(),
        how.map_or("", difference_text)
    );
    titled_rule(scene, &title, &place, area, buf);
    document_view::draw(scene, document, scroll, None, None, rows, buf);
}

/// The two halves of a row. Below [`layout::MIN_WIDE_COLUMNS`], there is one half with the sign before it.
fn halves(area: Rect) -> [Rect; 2] {
    let half = area.width.saturating_sub(MIDDLE) / 2;
    let right = area.x + half + MIDDLE;
    [
        Rect {
            width: half,
            ..area
        },
        Rect {
            x: right,
            width: area.right().saturating_sub(right),
            ..area
        },
    ]
}

fn attempt_headers(
    scene: &DrawContext<'_>,
    view: &ComparePage,
    attempts: [&AttemptState; 2],
    area: Rect,
    buf: &mut Buffer,
) {
    let wide = area.width + 2 >= layout::MIN_WIDE_COLUMNS;
    let halves = halves(area);
    let mut narrow = RowWriter::row(scene, buf, area);
    let mut texts = Vec::new();
    for (side, attempt) in attempts.into_iter().enumerate() {
        let (_, outcome) = outcome(attempt);
        let text = format!(" try {} {outcome} ", attempt.number);
        let role = if view.side == side {
            StyleRole::Badge
        } else {
            StyleRole::Dim
        };
        if !wide {
            narrow.put(role, &text);
            narrow.put(StyleRole::Dim, if side == 0 { " and " } else { "" });
        }
        texts.push((role, text));
    }
    if wide {
        for (half, (role, text)) in halves.into_iter().zip(texts) {
            RowWriter::row(scene, buf, half).put(role, &text);
        }
    }
}

/// Short description of how an attempt ended.
fn outcome(attempt: &AttemptState) -> (StyleRole, &'static str) {
    match attempt
        .verdict
        .as_ref()
        .map(|verdict| (verdict.outcome, verdict.stop))
    {
        Some((AttemptOutcome::Succeeded, StopReason::Budget)) => (StyleRole::Budget, "budget"),
        Some((AttemptOutcome::Succeeded, _)) => (StyleRole::Succeeded, "succeeded"),
        Some((AttemptOutcome::Failed, _)) => (StyleRole::Failed, "failed"),
        Some((AttemptOutcome::Stopped, _)) => (StyleRole::Stopped, "stopped"),
        None if attempt.ended_at.is_some() => (StyleRole::Interrupted, "ended"),
        None => (StyleRole::Running, "running"),
    }
}

fn notice(
    scene: &DrawContext<'_>,
    comparison: Option<&Comparison>,
    attempts: [&AttemptState; 2],
    area: Rect,
    buf: &mut Buffer,
) {
    let mut pen = RowWriter::row(scene, buf, area);
    let Some(comparison) = comparison else {
        let read = |attempt: &AttemptState| {
            scene
                .cache
                .summary(attempt.id)
                .map_or(0, |gathered| gathered.rows)
        };
        let all: usize = attempts
            .iter()
            .map(|attempt| scene.run_view.rows(attempt.id).len())
            .sum();
        let percent =
            attempts.iter().map(|attempt| read(attempt)).sum::<usize>() * 100 / all.max(1);
        pen.put(StyleRole::Dim, &format!("reading, {percent} % …"));
        return;
    };
    let differ = comparison
        .pairs
        .iter()
        .filter(|pair| pair.difference != CallDifference::Same)
        .count();
    let of = comparison.pairs.len();
    // Its calls follow those of the other attempt.
    if let Some(continued) = attempts[1].setup.continued() {
        let savings = savings(continued.tokens, continued.active_ms);
        let text = format!("continued: {savings}");
        pen.put(StyleRole::Succeeded, &text);
        pen.put(StyleRole::Dim, " · ");
    }
    match comparison.first() {
        _ if of == 0 => pen.put(StyleRole::Dim, "neither attempt made a call"),
        None => pen.put(
            StyleRole::Succeeded,
            &format!("all {of} calls are the same, with the same results"),
        ),
        Some(first) => {
            let pair = comparison.pairs.get(first);
            let how = pair.map_or("", |pair| difference_text(pair.difference));
            let place = pair.map(place_text).unwrap_or_default();
            pen.put(
                StyleRole::Warning,
                &format!("first difference at call {}{place}: {how}", first + 1),
            );
            pen.put(StyleRole::Dim, &format!(" · {differ} of {of} differ"));
        }
    }
}

/// Where the inspector has the calls of a pair, as its place in the list of actions shows it.
fn place_text(pair: &CallPair) -> String {
    match (pair.left, pair.right) {
        (Some(left), Some(right)) if left != right => {
            format!(" (actions {} and {})", left + 1, right + 1)
        }
        (Some(row), _) | (None, Some(row)) => format!(" (action {})", row + 1),
        (None, None) => String::new(),
    }
}

fn difference_text(how: CallDifference) -> &'static str {
    match how {
        CallDifference::Same => "nothing differs",
        CallDifference::Result => "the same call had another result",
        CallDifference::Outcome => "the same call ended differently",
        CallDifference::Arguments => "same tool with other arguments",
        CallDifference::OnlyLeft => "call only in the older attempt",
        CallDifference::OnlyRight => "call only in the newer attempt",
    }
}

/// Colour, sign and label of a difference.
fn difference_mark(how: CallDifference) -> (StyleRole, &'static str, &'static str) {
    match how {
        CallDifference::Same => (StyleRole::Dim, "=", "same"),
        CallDifference::Result => (StyleRole::Warning, "~", "result"),
        CallDifference::Outcome => (StyleRole::Failed, "!", "outcome"),
        CallDifference::Arguments => (StyleRole::Warning, "/", "arguments"),
        CallDifference::OnlyLeft => (StyleRole::Focus, "<", "only left"),
        CallDifference::OnlyRight => (StyleRole::Focus, ">", "only right"),
    }
}

fn pair(
    scene: &DrawContext<'_>,
    pair: &CallPair,
    attempts: [&AttemptState; 2],
    area: Rect,
    buf: &mut Buffer,
) {
    let (role, sign, word) = difference_mark(pair.difference);
    let rows = [pair.left, pair.right];
    let row =
        |side: usize| rows[side].and_then(|row| scene.run_view.rows(attempts[side].id).get(row));
    if area.width + 2 >= layout::MIN_WIDE_COLUMNS {
        for (side, half) in halves(area).into_iter().enumerate() {
            if let Some(row) = row(side) {
                stream::row(scene, row, false, half, buf);
            }
        }
        let left = halves(area)[0];
        let mut pen = RowWriter::row(
            scene,
            buf,
            Rect {
                x: left.right() + 1,
                width: MIDDLE - 1,
                ..area
            },
        );
        pen.put(role, &format!("{sign} {word}"));
        return;
    }
    let mut pen = RowWriter::row(scene, buf, area);
    let wide = if area.width >= 60 { 13 } else { 2 };
    pen.cell(
        role,
        &if wide > 2 {
            format!("{sign} {word}")
        } else {
            sign.to_owned()
        },
        wide,
    );
    let wide = u16::try_from(wide).unwrap_or(0).min(area.width);
    let rest = Rect {
        x: area.x + wide,
        width: area.width - wide,
        ..area
    };
    if let Some(row) = row(1).or_else(|| row(0)) {
        stream::row(scene, row, false, rest, buf);
    }
}

/// Results of both attempts, line by line; differences are highlighted.
fn summary(
    scene: &DrawContext<'_>,
    comparison: &Comparison,
    attempts: [&AttemptState; 2],
    area: Rect,
    buf: &mut Buffer,
) {
    if area.height == 0 {
        return;
    }
    let [.., flat] = scene.theme.glyphs.frame;
    RowWriter::row(scene, buf, area).repeat(StyleRole::Border, flat, usize::from(area.width));
    let each = |of: &dyn Fn(&AttemptState) -> String| attempts.map(of);
    let timed = scene.source.origin.has_times;
    let time = |attempt: &AttemptState| match (timed, attempt.ended_at) {
        (false, _) => "?".to_owned(),
        (true, ended) => latency(
            ended
                .unwrap_or(scene.model.playhead.time)
                .since(attempt.started_at),
        ),
    };
    let reason = |attempt: &AttemptState| {
        let (_, word) = outcome(attempt);
        let reason = attempt
            .verdict
            .as_ref()
            .map(|verdict| text::one_row(&plain_reason(&verdict.reason), 200));
        reason
            .filter(|reason| reason != "completed")
            .map_or_else(|| word.to_owned(), |reason| format!("{word}: {reason}"))
    };
    let [left, right] = comparison
        .written
        .each_ref()
        .map(|paths| paths.iter().map(String::as_str).collect::<BTreeSet<_>>());
    let only = |own: &BTreeSet<&str>, other: &BTreeSet<&str>| match own.len() {
        0 => "nothing".to_owned(),
        _ => {
            let marked = own.iter().map(|path| {
                if other.contains(path) {
                    format!("={path}")
                } else {
                    (*path).to_owned()
                }
            });
            marked.collect::<Vec<_>>().join(", ")
        }
    };
    let prompt = match comparison.prompt {
        None => ["?".to_owned(), "?".to_owned()],
        Some((0, 0)) => ["same".to_owned(), "same".to_owned()],
        Some((added, removed)) => [String::new(), format!("+{added} -{removed} lines")],
    };
    let releases = each(&|attempt| attempt.setup.release.as_deref().unwrap_or("?").to_owned());
    let mut lines = vec![
        ("outcome", each(&reason)),
        ("cost", each(&|attempt| unit_row::attempt_cost(attempt))),
        ("time", each(&time)),
        ("written", [only(&left, &right), only(&right, &left)]),
        (
            "calls",
            each(&|attempt| {
                format!(
                    "{}, {} failed",
                    attempt.counts.calls, attempt.counts.failures
                )
            }),
        ),
        ("turns", each(&|attempt| attempt.counts.turns.to_string())),
        (
            "tokens",
            each(&|attempt| count(attempt.counts.tokens.input + attempt.counts.tokens.output)),
        ),
        ("prompt", prompt),
    ];
    if comparison.has_other_release {
        lines.insert(1, ("release", releases));
    }
    for (y, (name, values)) in (area.y + 1..area.bottom()).zip(lines) {
        let line = Rect {
            y,
            height: 1,
            ..area
        };
        let mut pen = RowWriter::row(scene, buf, line);
        pen.cell(StyleRole::Dim, name, NAMES);
        let role = if values[0] == values[1] {
            StyleRole::Dim
        } else {
            StyleRole::Text
        };
        let start = if area.width + 2 >= layout::MIN_WIDE_COLUMNS {
            // Align the right value with the calls of the right attempt.
            usize::from(halves(line)[1].x - line.x)
        } else {
            NAMES + (usize::from(area.width) - NAMES.min(usize::from(area.width))) / 2
        };
        pen.cell(role, &values[0], start.saturating_sub(NAMES + 1));
        pen.skip(1);
        pen.put(role, &values[1]);
    }
}
