//! What the stream of an attempt shows around its rows: the verdict above them, and a pending approval or the text that
//! is being written below.
//!
//! Pure. It must not know how lines are painted; [`super::view`] paints them, and [`super::layout`] counts them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    document::{
        DocumentBlock, DocumentLayout, JsonFormatter, LaidOutDocument, query::query_blocks,
    },
    theme::{StyleRole, status_role},
};
use ingestdeck_core::{
    actions::{
        input_form::{InputForm, plan_text},
        sql_query::SqlQuery,
    },
    run::{
        note_sentence::with_outcome,
        state::{AttemptState, HeldCallState, UnitStatus},
    },
    tape::note::{AttemptOutcome, VerdictCause},
    text,
};

/// What the calls that wait for a decision would change, by index of the attempt and arguments, because agents choose the
/// ids of calls; `None` for calls that do not write.
pub(crate) type HeldChanges = BTreeMap<(u32, Arc<str>), Option<HeldChange>>;

/// What a call that waits for a decision would change.
#[derive(Clone, Debug)]
pub(crate) struct HeldChange {
    /// The target, and how much changes.
    pub facts: Vec<(StyleRole, String)>,
    /// The changed lines, and the other arguments.
    pub lines: Vec<DocumentBlock>,
}

/// Lines above the rows: why the attempt ended without success or seems to hang, and what a person can do. At most `most`
/// lines. The view completes the line of a silent attempt, which depends on the time.
pub(crate) fn verdict_lines(
    attempt: &AttemptState,
    width: u16,
    most: u16,
) -> Vec<(StyleRole, String)> {
    if attempt.live.is_silent && most > 0 {
        return vec![(status_role(UnitStatus::Silent), "silent".to_owned())];
    }
    let (Some(reason), Some(verdict)) = (attempt.failure_reason(), &attempt.verdict) else {
        return Vec::new();
    };
    let (columns, most) = (usize::from(width).saturating_sub(2), usize::from(most));
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
            format!(
                " ({failures} of {} calls failed)",
                attempt.counts.calls.max(failures)
            )
        }
        _ => String::new(),
    };
    let reason = with_outcome(word, &format!("{}{calls}", text::one_row(&reason, 600)));
    let remedy = match (attempt.requested_retry(), &verdict.remedy) {
        (Some(next), _) => next,
        (None, Some(remedy)) => text::one_row(remedy, 300),
        (None, None) => String::new(),
    };
    let wrapped_remedy = |most| {
        if remedy.is_empty() {
            Vec::new()
        } else {
            wrap_with_ellipsis(&remedy, columns, most)
        }
    };
    let (mut reason_rows, mut remedy_rows) =
        (wrap_with_ellipsis(&reason, columns, 4), wrapped_remedy(2));
    if reason_rows.len() + remedy_rows.len() > most {
        // Parts of both are worth more than one of them.
        remedy_rows = wrapped_remedy((most / 2).min(2));
        reason_rows = wrap_with_ellipsis(&reason, columns, (most - remedy_rows.len()).min(4));
    }
    let reason_rows = reason_rows.into_iter().map(|row| (role, row));
    reason_rows
        .chain(remedy_rows.into_iter().map(|row| (StyleRole::Text, row)))
        .collect()
}

/// At most `most` rows of `text`; the last one ends in `…` if the text continues.
pub(crate) fn wrap_with_ellipsis(text: &str, columns: usize, most: usize) -> Vec<String> {
    let mut rows = text::wrap_at_most(text, columns, most + 1);
    if rows.len() > most {
        rows.truncate(most);
        if let Some(last) = rows.last_mut() {
            *last = text::printable(&format!("{last}…"), columns).into_owned();
        }
    }
    rows
}

/// Lines below the rows: the text that is being written.
pub(crate) fn live_lines(
    attempt: &AttemptState,
    width: u16,
    most: u16,
) -> Vec<(StyleRole, String)> {
    let Some((role, live, most)) = live_text(attempt, most) else {
        return Vec::new();
    };
    let rows = text::wrap(live, live_columns(width));
    let from = rows.len().saturating_sub(most);
    rows.into_iter().skip(from).map(|row| (role, row)).collect()
}

/// The end of the text that is being written, and the number of its last rows to show, at most `most`.
fn live_text(attempt: &AttemptState, most: u16) -> Option<(StyleRole, &str, usize)> {
    let most = usize::from(most).min(3);
    // Text follows thinking, so if there is text, it is the newer output.
    let is_text = !attempt.live.text.is_empty();
    let (role, live) = if is_text {
        (StyleRole::Said, &attempt.live.text)
    } else {
        (StyleRole::Thinking, &attempt.live.thinking)
    };
    if most == 0 || attempt.ended_at.is_some() || live.is_empty() {
        return None;
    }
    let live = live.trim_end();
    // A line takes at least one row, so the last `most` lines are enough.
    let from = live
        .rmatch_indices('\n')
        .nth(most - 1)
        .map_or(0, |(at, _)| at + 1);
    Some((role, &live[from..], most))
}

/// Columns of the text that is being written, next to its sign.
fn live_columns(width: u16) -> usize {
    usize::from(width).saturating_sub(2)
}

/// Number of lines below the rows.
pub(crate) fn footer_height(
    attempt: &AttemptState,
    held: &HeldChanges,
    (width, most): (u16, u16),
) -> usize {
    match (attempt.held_calls.first(), live_text(attempt, most)) {
        (Some(call), _) => held_call(attempt, call, held, (width, most)).lines.len(),
        (None, Some((_, live, most))) => text::wrap_at_most(live, live_columns(width), most).len(),
        (None, None) => 0,
    }
}

/// Lays out a pending approval in at most `most` lines.
pub(crate) fn held_call(
    attempt: &AttemptState,
    call: &HeldCallState,
    held: &HeldChanges,
    (width, most): (u16, u16),
) -> LaidOutDocument {
    let waiting = attempt.held_calls.len();
    let more = if waiting > 1 {
        format!(", {} more waiting", waiting - 1)
    } else {
        String::new()
    };
    let reached = match &call.reached {
        Some(condition) => format!(" · {}", text::one_row(condition, 80)),
        None => String::new(),
    };
    let tool = text::one_row(&call.tool, 80);
    let form = InputForm::of_call(&call.tool, &call.input);
    let plan = plan_text(&call.tool, &call.input);
    let title = match (&form, &plan) {
        (
            Some(InputForm {
                server: Some(server),
                ..
            }),
            _,
        ) => format!(
            "the tool server `{}` asks you{more}",
            text::one_row(server, 40)
        ),
        (Some(_), _) => format!("the model asks you{more}"),
        (None, Some(_)) => format!("a plan waits for your approval{more}"),
        (None, None) => format!("{tool} waits for you{more}{reached}"),
    };
    let change = held.get(&(attempt.id.0, Arc::clone(&call.input)));
    let change = change.and_then(Option::as_ref);
    let mut runs = vec![(StyleRole::Paused, title)];
    for (role, fact) in change.into_iter().flat_map(|change| &change.facts) {
        runs.push((StyleRole::Dim, " · ".to_owned()));
        runs.push((*role, text::one_row(fact, 80)));
    }
    let mut blocks = vec![DocumentBlock::Spans {
        indent: 0,
        hang: 0,
        runs,
    }];
    // Avoid the layout of text that cannot be visible.
    let room = usize::from(most) * usize::from(width) * 4;
    let length = match SqlQuery::parse(&call.tool, &call.input) {
        _ if change.is_some() => {
            let lines = change.into_iter().flat_map(|change| &change.lines);
            blocks.extend(lines.take(usize::from(most) + 1).cloned());
            0
        }
        None if form.is_some() => {
            blocks.extend(form.iter().flat_map(|form| form_blocks(form, room)));
            0
        }
        None if plan.is_some() => {
            let plan = plan.as_deref().unwrap_or_default();
            let text: String = plan.chars().take(room).collect();
            blocks.push(DocumentBlock::Markdown { text: text.into() });
            plan.len()
        }
        Some(query) => {
            blocks.extend(query_blocks(&query, room));
            query.sql.len()
        }
        None => {
            let end = (0..=room.min(call.input.len()))
                .rev()
                .find(|end| call.input.is_char_boundary(*end))
                .unwrap_or(0);
            let input = JsonFormatter::unfolded(&call.input[..end]);
            blocks.push(DocumentBlock::Json(input));
            call.input.len()
        }
    };
    let mut layout = DocumentLayout::new(blocks, BTreeSet::new(), width);
    layout.step(usize::MAX);
    let mut document = layout.into_document();
    let most = usize::from(most);
    if document.lines.len() > most || length > room {
        document.lines.truncate(most.saturating_sub(1));
        let all = text::size(call.input.len() as u64);
        let rest = match form.is_some() {
            true => "… the form for the answer shows the rest".to_owned(),
            false => format!("… {all} in total; open the row above to read it"),
        };
        document.lines.push(vec![(StyleRole::Warning, rest)]);
        document.lines.truncate(most);
    }
    document
}

/// The questions of a form with their options, numbered as their keys; about as much as fits into `room` bytes.
fn form_blocks(form: &InputForm, room: usize) -> Vec<DocumentBlock> {
    let mut blocks = Vec::new();
    let spans = |indent: usize, runs| DocumentBlock::Spans {
        indent,
        hang: indent + 2,
        runs,
    };
    let row = |text: &str| text::one_row(text, room.clamp(1, 2000));
    if !form.message.is_empty() {
        blocks.push(spans(0, vec![(StyleRole::Strong, row(&form.message))]));
    }
    for field in &form.fields {
        let mut runs = Vec::new();
        if !field.header.is_empty() {
            runs.push((StyleRole::Key, format!("{}  ", row(&field.header))));
        }
        let several = if field.is_multiple { " (several)" } else { "" };
        runs.push((
            StyleRole::Strong,
            format!("{}{several}", row(&field.prompt)),
        ));
        blocks.push(spans(0, runs));
        for (number, option) in field.options.iter().enumerate() {
            let key = match number {
                0..=8 => format!("{} ", number + 1),
                _ => "  ".to_owned(),
            };
            let mut runs = vec![(StyleRole::Key, key), (StyleRole::Text, row(&option.label))];
            if !option.description.is_empty() {
                runs.push((StyleRole::Dim, format!("  {}", row(&option.description))));
            }
            blocks.push(spans(2, runs));
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingestdeck_core::tape::note::{StopReason, Verdict};

    fn failed(reason: &str, remedy: &str) -> AttemptState {
        let verdict = Verdict {
            outcome: AttemptOutcome::Failed,
            stop: StopReason::Error,
            cause: VerdictCause::Isolation,
            reason: reason.to_owned(),
            remedy: Some(remedy.to_owned()),
        };
        AttemptState {
            verdict: Some(verdict),
            ..AttemptState::default()
        }
    }

    #[test]
    fn cut_reason_leaves_room_for_the_remedy() {
        let attempt = failed(&"reason ".repeat(60), &"remedy ".repeat(30));
        for (most, reasons, remedies) in [
            (0, 0, 0),
            (1, 1, 0),
            (2, 1, 1),
            (3, 2, 1),
            (4, 2, 2),
            (6, 4, 2),
            (20, 4, 2),
        ] {
            let lines = verdict_lines(&attempt, 40, most);
            let of = |wanted: StyleRole| {
                lines
                    .iter()
                    .filter(|(role, _)| *role == wanted)
                    .collect::<Vec<_>>()
            };
            let (reason, remedy) = (of(StyleRole::Failed), of(StyleRole::Text));
            assert_eq!(
                (reason.len(), remedy.len()),
                (reasons, remedies),
                "{most}: {lines:?}"
            );
            for last in [reason.last(), remedy.last()].into_iter().flatten() {
                assert!(
                    last.1.ends_with('…') && text::width(&last.1) <= 38,
                    "{lines:?}"
                );
            }
        }
        let attempt = failed("short", "retry");
        for most in 2..9 {
            let lines = verdict_lines(&attempt, 40, most);
            assert_eq!(
                lines,
                [
                    (StyleRole::Failed, "failed: short".into()),
                    (StyleRole::Text, "retry".into())
                ]
            );
        }
    }

    #[test]
    fn lines_are_the_same_in_the_room_that_they_take() {
        for (reason, remedy) in [(1, 1), (1, 20), (20, 1), (9, 20), (60, 30)] {
            let attempt = failed(&"reason ".repeat(reason), &"remedy ".repeat(remedy));
            for most in 0..9 {
                let lines = verdict_lines(&attempt, 40, most);
                let room = u16::try_from(lines.len()).unwrap();
                assert_eq!(
                    verdict_lines(&attempt, 40, room),
                    lines,
                    "{reason}, {remedy}, {most}"
                );
            }
        }
    }
}
