//! What two attempts at a unit have in common, made of what was gathered of each.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::{
    align::{self, CallDifference, CallPair, align},
    attempt_summary::{AccessKind, AttemptSummary},
    inspect::started,
};
use crate::{
    run::{
        Timeline,
        state::{AttemptId, AttemptState, RowEnd},
    },
    tui::{cache::Cache, document::text_diff},
};

/// Two attempts, as far as they are compared: lanes, rows and what was read of each.
pub type CompareKey = [(AttemptId, usize, u64); 2];

/// Two attempts compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Their calls side by side.
    pub pairs: Vec<CallPair>,
    /// Lines that the newer prompt has and the older one has not, and the other way round; `None` when not known.
    pub prompt: Option<(usize, usize)>,
    /// What each wrote.
    pub written: [Vec<String>; 2],
}

impl Comparison {
    /// The first pair that differs.
    pub fn first(&self) -> Option<usize> {
        self.pairs.iter().position(|pair| pair.difference != CallDifference::Same)
    }
}

/// Compares two attempts, once everything of both is read.
pub(super) fn compare(timeline: &mut Timeline, cache: &Cache, sides: &CompareKey) -> Option<Comparison> {
    let units = &timeline.view().state.units;
    let attempt =
        |lane: AttemptId| units.iter().flat_map(|unit| &unit.attempts).find(|attempt| attempt.id == lane).cloned();
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
    let prompts = [started(timeline, &attempts[0]), started(timeline, &attempts[1])];
    let prompt = match prompts {
        [Some(old), Some(new)] => {
            let (added, removed) = text_diff::count(&old.prompt, &new.prompt);
            let system = text_diff::count(&old.system_prompt, &new.system_prompt);
            Some((added + system.0, removed + system.1))
        }
        _ => None,
    };
    Some(Comparison { pairs: align(&calls[0], &calls[1]), prompt, written })
}

fn calls(timeline: &Timeline, lane: AttemptId, gathered: &AttemptSummary) -> Vec<align::AlignedCall> {
    let (rows, entries) = (timeline.view().rows(lane), timeline.view().state.entries);
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
        let result = call.result.filter(|_| end != RowEnd::Open);
        Some(align::AlignedCall { row: call.row, tool, action: call.action, input: call.input, end, result })
    });
    known.collect()
}

/// What got into the project, else what its calls wrote.
fn written(timeline: &Timeline, attempt: &AttemptState, gathered: &AttemptSummary) -> Vec<String> {
    if !attempt.published.is_empty() {
        return attempt.published.clone();
    }
    let (rows, entries) = (timeline.view().rows(attempt.id), timeline.view().state.entries);
    let mut paths: Vec<String> = gathered
        .calls
        .iter()
        .filter(|call| rows.get(call.row).is_some_and(|row| row.end(entries) == RowEnd::Ok))
        .filter_map(|call| call.access.as_ref().filter(|(touch, _)| *touch == AccessKind::Write))
        .map(|(_, path)| path.clone())
        .collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}
