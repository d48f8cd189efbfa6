//! Comparison of two attempts at a unit, made from the summary of each.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::inspect::started;
use crate::{
    attempt_summary::{AttemptSummary, CallAccessKind},
    cache::ScreenCache,
    comparison::{
        CompareKey, Comparison,
        align::{self, align},
    },
    document::text_diff,
};
use ingestdeck_core::run::{
    Timeline,
    state::{AttemptId, AttemptState, RowOutcome},
};

/// Compares two attempts. `None` until both are read completely.
pub(super) fn compare(
    timeline: &mut Timeline,
    cache: &ScreenCache,
    sides: &CompareKey,
) -> Option<Comparison> {
    let units = &timeline.view().state.units;
    let attempt = |attempt_id: AttemptId| {
        units
            .iter()
            .flat_map(|unit| &unit.attempts)
            .find(|attempt| attempt.id == attempt_id)
            .cloned()
    };
    let attempts = [attempt(sides[0].0)?, attempt(sides[1].0)?];
    let mut calls = [Vec::new(), Vec::new()];
    let mut written = [Vec::new(), Vec::new()];
    for (side, attempt) in attempts.iter().enumerate() {
        let gathered = cache.summary(attempt.id)?;
        let rows = timeline.view().rows(attempt.id);
        if !gathered.is_complete(rows, timeline.view().state.entries) {
            return None;
        }
        calls[side] = self::calls(timeline, attempt.id, gathered);
        written[side] = self::written(timeline, attempt, gathered);
    }
    let prompts = [
        started(timeline, &attempts[0]),
        started(timeline, &attempts[1]),
    ];
    let prompt = match prompts {
        [Some(old), Some(new)] => {
            let (added, removed) = text_diff::count(&old.prompt, &new.prompt);
            let system = text_diff::count(&old.system_prompt, &new.system_prompt);
            Some((added + system.0, removed + system.1))
        }
        _ => None,
    };
    let has_other_release = attempts[0].setup.release != attempts[1].setup.release;
    Some(Comparison {
        has_other_release,
        pairs: align(&calls[0], &calls[1]),
        prompt,
        written,
    })
}

fn calls(
    timeline: &Timeline,
    attempt_id: AttemptId,
    gathered: &AttemptSummary,
) -> Vec<align::AlignedCall> {
    let (rows, entries) = (
        timeline.view().rows(attempt_id),
        timeline.view().state.entries,
    );
    let tools: Vec<u64> = gathered
        .tools
        .iter()
        .map(|name| {
            let mut hasher = DefaultHasher::new();
            name.hash(&mut hasher);
            hasher.finish()
        })
        .collect();
    let known = gathered.calls.iter().filter_map(|call| {
        let end = rows.get(call.row)?.end(entries);
        let tool = tools.get(call.tool).copied().unwrap_or_default();
        let result = call.result.filter(|_| end != RowOutcome::Open);
        Some(align::AlignedCall {
            row: call.row,
            tool,
            action: call.action,
            input: call.input,
            end,
            result,
        })
    });
    known.collect()
}

/// The published paths; if there are none, the paths that the calls wrote.
fn written(timeline: &Timeline, attempt: &AttemptState, gathered: &AttemptSummary) -> Vec<String> {
    if !attempt.delivery.published.is_empty() {
        return attempt.delivery.published.clone();
    }
    let (rows, entries) = (
        timeline.view().rows(attempt.id),
        timeline.view().state.entries,
    );
    let mut paths: Vec<String> = gathered
        .calls
        .iter()
        .filter(|call| {
            rows.get(call.row)
                .is_some_and(|row| row.end(entries) == RowOutcome::Ok)
        })
        .filter_map(|call| {
            call.access
                .as_ref()
                .filter(|(touch, _)| *touch == CallAccessKind::Write)
        })
        .map(|(_, path)| path.clone())
        .collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}
