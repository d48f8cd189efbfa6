//! Two attempts side by side: their calls aligned, where they part, and what came of each.

use std::collections::BTreeSet;

use ratatui::{buffer::Buffer, layout::Rect};

use super::{Pen, Scene, count, dollars, latency, pane, stream};
use crate::{
    run::state::Attempt,
    tape::note::{Outcome, StopReason},
    tui::{
        layout,
        load::{
            align::{How, Pair},
            compare::Comparison,
        },
        model::Compare,
        text,
        theme::{Role, status_role},
    },
};

/// Columns between the two sides.
const MIDDLE: u16 = 14;
/// Columns of the names of the summary.
const NAMES: usize = 9;

/// Paints the comparison.
pub fn draw(scene: &Scene<'_>, view: &Compare, area: Rect, buf: &mut Buffer) {
    let unit = view.unit(scene.story);
    let key = text::safe(&view.unit, 60);
    let role = unit.map_or(Role::Text, |unit| status_role(unit.status));
    let sign = unit.map_or("", |unit| scene.theme.glyphs.unit(unit));
    let title = [(role, sign), (Role::Text, " "), (Role::Strong, key.as_ref()), (Role::Dim, " attempts compared")];
    let place = if view.known() > 0 { format!(" {}/{} ", view.list.selected + 1, view.known()) } else { String::new() };
    let inside = pane(scene, area, true, &title, &[(Role::Dim, &place)], buf);
    let Some(attempts) = view.attempts(scene.story) else {
        Pen::row(scene, buf, inside).put(Role::Dim, "at this moment there were not two attempts");
        return;
    };
    let areas = view.areas(area);
    heads(scene, view, attempts, areas.attempts, buf);
    let comparison = scene.cache.comparison().filter(|_| view.pairs.is_some());
    notice(scene, comparison, attempts, areas.notice, buf);
    let Some(comparison) = comparison else { return };
    let pairs = comparison.pairs.iter().enumerate().skip(view.list.offset);
    for (y, (index, pair)) in (areas.calls.y..areas.calls.bottom()).zip(pairs) {
        let line = Rect { y, height: 1, ..areas.calls };
        self::pair(scene, pair, attempts, line, buf);
        if index == view.list.selected {
            buf.set_style(line, scene.theme.style(Role::Selected));
        }
    }
    summary(scene, comparison, attempts, areas.summary, buf);
}

/// The two halves of a row; below [`layout::WIDE`] there is one, and the sign stands before it.
fn halves(area: Rect) -> [Rect; 2] {
    let half = area.width.saturating_sub(MIDDLE) / 2;
    let right = area.x + half + MIDDLE;
    [Rect { width: half, ..area }, Rect { x: right, width: area.right().saturating_sub(right), ..area }]
}

fn heads(scene: &Scene<'_>, view: &Compare, attempts: [&Attempt; 2], area: Rect, buf: &mut Buffer) {
    let wide = area.width + 2 >= layout::WIDE;
    let halves = halves(area);
    let mut narrow = Pen::row(scene, buf, area);
    let mut texts = Vec::new();
    for (side, attempt) in attempts.into_iter().enumerate() {
        let (_, outcome) = outcome(attempt);
        let text = format!(" try {} {outcome} ", attempt.number);
        let role = if view.side == side { Role::Badge } else { Role::Dim };
        if !wide {
            narrow.put(role, &text);
            narrow.put(Role::Dim, if side == 0 { " and " } else { "" });
        }
        texts.push((role, text));
    }
    if wide {
        for (half, (role, text)) in halves.into_iter().zip(texts) {
            Pen::row(scene, buf, half).put(role, &text);
        }
    }
}

/// How an attempt ended, in a word.
fn outcome(attempt: &Attempt) -> (Role, &'static str) {
    match attempt.verdict.as_ref().map(|verdict| (verdict.outcome, verdict.stop)) {
        Some((Outcome::Succeeded, StopReason::Budget)) => (Role::Budget, "budget"),
        Some((Outcome::Succeeded, _)) => (Role::Succeeded, "succeeded"),
        Some((Outcome::Failed, _)) => (Role::Failed, "failed"),
        Some((Outcome::Stopped, _)) => (Role::Stopped, "stopped"),
        None if attempt.ended_at.is_some() => (Role::Interrupted, "ended"),
        None => (Role::Running, "running"),
    }
}

fn notice(scene: &Scene<'_>, comparison: Option<&Comparison>, attempts: [&Attempt; 2], area: Rect, buf: &mut Buffer) {
    let mut pen = Pen::row(scene, buf, area);
    let Some(comparison) = comparison else {
        let read = |attempt: &Attempt| scene.cache.gathered(attempt.lane).map_or(0, |gathered| gathered.rows);
        let all: usize = attempts.iter().map(|attempt| scene.story.rows(attempt.lane).len()).sum();
        let percent = attempts.iter().map(|attempt| read(attempt)).sum::<usize>() * 100 / all.max(1);
        pen.put(Role::Dim, &format!("reading, {percent} % …"));
        return;
    };
    let differ = comparison.pairs.iter().filter(|pair| pair.how != How::Same).count();
    let of = comparison.pairs.len();
    match comparison.first() {
        _ if of == 0 => pen.put(Role::Dim, "neither attempt made a call"),
        None => pen.put(Role::Succeeded, &format!("all {of} calls are the same, with the same results")),
        Some(first) => {
            let how = comparison.pairs.get(first).map_or("", |pair| about(pair.how));
            pen.put(Role::Warning, &format!("they part at call {}: {how}", first + 1));
            pen.put(Role::Dim, &format!(" · {differ} of {of} differ"));
        }
    }
}

fn about(how: How) -> &'static str {
    match how {
        How::Same => "nothing differs",
        How::Result => "the same call brought another result",
        How::Outcome => "the same call ended otherwise",
        How::Arguments => "the same tool was called with other arguments",
        How::Left => "only the older attempt makes this call",
        How::Right => "only the newer attempt makes this call",
    }
}

/// Sign, word and colour.
fn mark(how: How) -> (Role, &'static str, &'static str) {
    match how {
        How::Same => (Role::Dim, "=", "same"),
        How::Result => (Role::Warning, "~", "result"),
        How::Outcome => (Role::Failed, "!", "outcome"),
        How::Arguments => (Role::Warning, "/", "arguments"),
        How::Left => (Role::Focus, "<", "only left"),
        How::Right => (Role::Focus, ">", "only right"),
    }
}

fn pair(scene: &Scene<'_>, pair: &Pair, attempts: [&Attempt; 2], area: Rect, buf: &mut Buffer) {
    let (role, sign, word) = mark(pair.how);
    let rows = [pair.left, pair.right];
    let row = |side: usize| rows[side].and_then(|row| scene.story.rows(attempts[side].lane).get(row));
    if area.width + 2 >= layout::WIDE {
        for (side, half) in halves(area).into_iter().enumerate() {
            if let Some(row) = row(side) {
                stream::row(scene, row, half, buf);
            }
        }
        let left = halves(area)[0];
        let mut pen = Pen::row(scene, buf, Rect { x: left.right() + 1, width: MIDDLE - 1, ..area });
        pen.put(role, &format!("{sign} {word}"));
        return;
    }
    let mut pen = Pen::row(scene, buf, area);
    let wide = if area.width >= 60 { 13 } else { 2 };
    pen.cell(role, &if wide > 2 { format!("{sign} {word}") } else { sign.to_owned() }, wide);
    let wide = u16::try_from(wide).unwrap_or(0).min(area.width);
    let rest = Rect { x: area.x + wide, width: area.width - wide, ..area };
    if let Some(row) = row(1).or_else(|| row(0)) {
        stream::row(scene, row, rest, buf);
    }
}

/// What came of each, line by line; what differs stands out.
fn summary(scene: &Scene<'_>, comparison: &Comparison, attempts: [&Attempt; 2], area: Rect, buf: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    let [.., flat] = scene.theme.glyphs.frame;
    Pen::row(scene, buf, area).put(Role::Border, &flat.repeat(usize::from(area.width)));
    let each = |of: &dyn Fn(&Attempt) -> String| attempts.map(of);
    let timed = scene.source.origin.has_times;
    let time = |attempt: &Attempt| match (timed, attempt.ended_at) {
        (false, _) => "?".to_owned(),
        (true, ended) => latency(ended.unwrap_or(scene.model.time).since(attempt.started_at)),
    };
    let reason = |attempt: &Attempt| {
        let (_, word) = outcome(attempt);
        let reason = attempt.verdict.as_ref().map(|verdict| text::one_row(&verdict.reason, 200));
        reason
            .filter(|reason| reason != "completed")
            .map_or_else(|| word.to_owned(), |reason| format!("{word}: {reason}"))
    };
    let [left, right] =
        comparison.written.each_ref().map(|paths| paths.iter().map(String::as_str).collect::<BTreeSet<_>>());
    let only = |own: &BTreeSet<&str>, other: &BTreeSet<&str>| match own.len() {
        0 => "nothing".to_owned(),
        _ => {
            let marked =
                own.iter().map(|path| if other.contains(path) { format!("={path}") } else { (*path).to_owned() });
            marked.collect::<Vec<_>>().join(", ")
        }
    };
    let prompt = match comparison.prompt {
        None => ["?".to_owned(), "?".to_owned()],
        Some((0, 0)) => ["same".to_owned(), "same".to_owned()],
        Some((added, removed)) => [String::new(), format!("+{added} -{removed} lines")],
    };
    let lines: [(&str, [String; 2]); 8] = [
        ("outcome", each(&reason)),
        ("cost", each(&|attempt| dollars(attempt.cost_usd))),
        ("time", each(&time)),
        ("written", [only(&left, &right), only(&right, &left)]),
        ("calls", each(&|attempt| format!("{}, {} failed", attempt.calls, attempt.failures))),
        ("turns", each(&|attempt| attempt.turns.to_string())),
        ("tokens", each(&|attempt| count(attempt.tokens.input + attempt.tokens.output))),
        ("prompt", prompt),
    ];
    for (y, (name, values)) in (area.y + 1..area.bottom()).zip(lines) {
        let line = Rect { y, height: 1, ..area };
        let mut pen = Pen::row(scene, buf, line);
        pen.cell(Role::Dim, name, NAMES);
        let role = if values[0] == values[1] { Role::Dim } else { Role::Text };
        let start = if area.width + 2 >= layout::WIDE {
            // The right value stands below the calls of the right attempt.
            usize::from(halves(line)[1].x - line.x)
        } else {
            NAMES + (usize::from(area.width) - NAMES.min(usize::from(area.width))) / 2
        };
        pen.cell(role, &values[0], start.saturating_sub(NAMES + 1));
        pen.skip(1);
        pen.put(role, &values[1]);
    }
}
