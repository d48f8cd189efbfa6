//! What the stream of an attempt shows around its rows: the verdict above them, and a pending approval or the text that
//! is being written below.
//!
//! Pure. It must not know how lines are painted; [`super::view`] paints them, and [`super::layout`] counts them.

use super::{
    document::{LaidOutDocument, LayoutWriter},
    theme::{StyleRole, status_role},
};
use crate::{
    run::{
        note_sentence::with_outcome,
        state::{AttemptState, HeldCallState, UnitStatus},
    },
    tape::note::{AttemptOutcome, VerdictCause},
    text,
};

/// Lines above the rows: why the attempt ended without success or seems to hang, and what a person can do. At most `most`
/// lines. The view completes the line of a silent attempt, which depends on the time.
pub(crate) fn verdict_lines(attempt: &AttemptState, width: u16, most: u16) -> Vec<(StyleRole, String)> {
    if attempt.live.is_silent && most > 0 {
        return vec![(status_role(UnitStatus::Silent), "silent".to_owned())];
    }
    let (Some(reason), Some(verdict)) = (attempt.failure_reason(), &attempt.verdict) else { return Vec::new() };
    let columns = usize::from(width).saturating_sub(2);
    if columns == 0 || most == 0 {
        return Vec::new();
    }
    let (role, word) = match (verdict.outcome, verdict.stop) {
        (AttemptOutcome::Succeeded, _) => (StyleRole::Budget, "budget"),
        (AttemptOutcome::Failed, _) => (StyleRole::Failed, "failed"),
        (AttemptOutcome::Stopped, _) => (StyleRole::Stopped, "stopped"),
    };
    let calls = match attempt.counts.failures {
        failures if verdict.cause == VerdictCause::ToolFailures && failures > 1 => {
            format!(" ({failures} of {} calls failed)", attempt.counts.calls.max(failures))
        }
        _ => String::new(),
    };
    let reason = with_outcome(word, &format!("{}{calls}", text::one_row(&reason, 600)));
    let mut lines: Vec<_> = text::wrap_at_most(&reason, columns, 4).into_iter().map(|row| (role, row)).collect();
    if let Some(remedy) = &verdict.remedy {
        let remedy = text::one_row(remedy, 300);
        lines.extend(text::wrap_at_most(&remedy, columns, 2).into_iter().map(|row| (StyleRole::Text, row)));
    }
    lines.truncate(usize::from(most));
    lines
}

/// Lines below the rows: the text that is being written.
pub(crate) fn live_lines(attempt: &AttemptState, width: u16, most: u16) -> Vec<(StyleRole, String)> {
    let Some((role, live, most)) = live_text(attempt, most) else { return Vec::new() };
    let rows = text::wrap(live, live_columns(width));
    let from = rows.len().saturating_sub(most);
    rows.into_iter().skip(from).map(|row| (role, row)).collect()
}

/// The end of the text that is being written, and the number of its last rows to show, at most `most`.
fn live_text(attempt: &AttemptState, most: u16) -> Option<(StyleRole, &str, usize)> {
    let most = usize::from(most).min(3);
    // Text follows thinking, so if there is text, it is the newer output.
    let is_text = !attempt.live.text.is_empty();
    let (role, live) =
        if is_text { (StyleRole::Said, &attempt.live.text) } else { (StyleRole::Thinking, &attempt.live.thinking) };
    if most == 0 || attempt.ended_at.is_some() || live.is_empty() {
        return None;
    }
    let live = live.trim_end();
    // A line takes at least one row, so the last `most` lines are enough.
    let from = live.rmatch_indices('\n').nth(most - 1).map_or(0, |(at, _)| at + 1);
    Some((role, &live[from..], most))
}

/// Columns of the text that is being written, next to its sign.
fn live_columns(width: u16) -> usize {
    usize::from(width).saturating_sub(2)
}

/// Number of lines below the rows.
pub(crate) fn footer_height(attempt: &AttemptState, width: u16, most: u16) -> usize {
    match (attempt.held_calls.first(), live_text(attempt, most)) {
        (Some(call), _) => held_call(call, attempt.held_calls.len(), width, most).lines.len(),
        (None, Some((_, live, most))) => text::wrap_at_most(live, live_columns(width), most).len(),
        (None, None) => 0,
    }
}

/// Lays out a pending approval in at most `most` lines.
pub(crate) fn held_call(call: &HeldCallState, waiting: usize, width: u16, most: u16) -> LaidOutDocument {
    let mut writer = LayoutWriter::new(width);
    let more = if waiting > 1 { format!(", {} more waiting", waiting - 1) } else { String::new() };
    let reached = match &call.reached {
        Some(condition) => format!(" · {}", text::one_row(condition, 80)),
        None => String::new(),
    };
    writer.line(StyleRole::Paused, &format!("{} waits for you{more}{reached}", text::one_row(&call.tool, 80)));
    // Avoid the layout of text that cannot be visible.
    let room = usize::from(most) * usize::from(width) * 4;
    let end = (0..=room.min(call.input.len())).rev().find(|end| call.input.is_char_boundary(*end)).unwrap_or(0);
    writer.json(&call.input[..end]);
    let mut document = writer.finish();
    let most = usize::from(most);
    if document.lines.len() > most || end < call.input.len() {
        document.lines.truncate(most.saturating_sub(1));
        let all = text::size(call.input.len() as u64);
        document.lines.push(vec![(StyleRole::Warning, format!("… {all} in total; open the row above to read it"))]);
        document.lines.truncate(most);
    }
    document
}
