//! What the stream of an attempt shows below its rows: a pending approval, the text that is being written, or the
//! result and the next steps.
//!
//! Pure. It must not know how the lines are painted; [`super::view`] paints them, and [`super::layout`] needs their
//! number.

use super::{
    document::{LaidOutDocument, LayoutWriter},
    theme::StyleRole,
};
use crate::{
    run::state::{AttemptState, HeldCallState},
    tape::note::AttemptOutcome,
    text,
};

/// Lines below the rows: the text that is being written, or the result and the next steps.
pub(crate) fn footer_lines(attempt: &AttemptState, width: u16, most: u16) -> Vec<(StyleRole, String)> {
    let (width, most) = (usize::from(width).saturating_sub(2), usize::from(most));
    if width == 0 || most == 0 {
        return Vec::new();
    }
    let mut lines = Vec::new();
    if let Some(verdict) = &attempt.verdict {
        let role = match verdict.outcome {
            AttemptOutcome::Succeeded => return lines,
            AttemptOutcome::Failed => StyleRole::Failed,
            AttemptOutcome::Stopped => StyleRole::Stopped,
        };
        let reason = text::one_row(&verdict.reason, 600);
        lines.extend(text::wrap(&reason, width).into_iter().take(3).map(|row| (role, row)));
        if let Some(remedy) = &verdict.remedy {
            let remedy = text::one_row(remedy, 300);
            lines.extend(text::wrap(&remedy, width).into_iter().take(2).map(|row| (StyleRole::Text, row)));
        }
        lines.truncate(most);
    } else if attempt.ended_at.is_none() {
        // Text follows thinking, so if there is text, it is the newer output.
        let is_text = !attempt.live.text.is_empty();
        let (role, live) =
            if is_text { (StyleRole::Said, &attempt.live.text) } else { (StyleRole::Thinking, &attempt.live.thinking) };
        if !live.is_empty() {
            let (live, most) = (live.trim_end(), most.min(3));
            // A line takes at least one row, so the last `most` lines are enough.
            let from = live.rmatch_indices('\n').nth(most - 1).map_or(0, |(at, _)| at + 1);
            let rows = text::wrap(&live[from..], width);
            let from = rows.len().saturating_sub(most);
            lines.extend(rows.into_iter().skip(from).map(|row| (role, row)));
        }
    }
    lines
}

/// Number of lines below the rows.
pub(crate) fn footer_height(attempt: &AttemptState, width: u16, most: u16) -> usize {
    match attempt.held_calls.first() {
        Some(call) => held_call(call, attempt.held_calls.len(), width, most).lines.len(),
        None => footer_lines(attempt, width, most).len(),
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
