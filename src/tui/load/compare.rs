//! Comparison of two attempts at a unit, made from the summary of each.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::{
    MAX_SHOWN_BYTES, blocks, bytes, call_as_run, edited,
    entry_blocks::result_of,
    file_change,
    inspect::{self, started},
    read_head,
};
use crate::{
    attempt_summary::{AttemptSummary, CallAccessKind},
    cache::ScreenCache,
    comparison::{
        CompareKey, Comparison,
        align::{AlignedCall, CallDifference, CallPair, align},
    },
    document::{DocumentBlock, text_diff},
    theme::StyleRole,
};
use ingestdeck_core::{
    decode::{self, MessageBlock},
    run::{
        Timeline,
        state::{AttemptId, AttemptState, RowOutcome, StreamRow},
    },
    tape::note::{AttemptOutcome, VerdictCause},
};

/// Compares two attempts. `None` until both are read completely.
pub(super) fn compare(
    timeline: &mut Timeline,
    cache: &ScreenCache,
    sides: &CompareKey,
) -> Option<Comparison> {
    let attempts = attempts(timeline, sides)?;
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
    let pairs = align(&calls[0], &calls[1]);
    Some(Comparison {
        has_other_release,
        decisive: decisive(&attempts, &calls, &pairs),
        pairs,
        prompt,
        written,
    })
}

/// The pair of the last failed call of an attempt that failed because of its calls; of a call that failed in both only if
/// there is no other.
fn decisive(
    attempts: &[AttemptState; 2],
    calls: &[Vec<AlignedCall>; 2],
    pairs: &[CallPair],
) -> Option<usize> {
    let failed_by_calls = |side: &usize| {
        let verdict = attempts[*side].verdict.as_ref();
        verdict.is_some_and(|verdict| {
            verdict.outcome == AttemptOutcome::Failed && verdict.cause == VerdictCause::ToolFailures
        })
    };
    let has_failed = |side: usize, pair: &CallPair| {
        let row = [pair.left, pair.right][side];
        let mut calls = calls[side].iter();
        calls.any(|call| Some(call.row) == row && call.end == RowOutcome::Failed)
    };
    let of_side = |side: usize| {
        let differs = |pair: &&CallPair| pair.difference != CallDifference::Same;
        let last = |is_wanted: &dyn Fn(&&CallPair) -> bool| {
            pairs
                .iter()
                .rposition(|pair| is_wanted(&pair) && has_failed(side, pair))
        };
        last(&differs).or_else(|| last(&|_| true))
    };
    [0, 1].into_iter().filter(failed_by_calls).find_map(of_side)
}

fn attempts(timeline: &Timeline, sides: &CompareKey) -> Option<[AttemptState; 2]> {
    let units = &timeline.view().state.units;
    let attempt = |attempt_id: AttemptId| {
        units
            .iter()
            .flat_map(|unit| &unit.attempts)
            .find(|attempt| attempt.id == attempt_id)
            .cloned()
    };
    Some([attempt(sides[0].0)?, attempt(sides[1].0)?])
}

/// What differs between the arguments and the results of two calls, or a call that only one attempt made; and what
/// differs between the prompts of the attempts.
pub(super) fn difference_blocks(
    timeline: &mut Timeline,
    sides: &CompareKey,
    pair: Option<CallPair>,
) -> Vec<DocumentBlock> {
    let mut parts = Vec::new();
    let rows = pair.map_or([None, None], |pair| [pair.left, pair.right]);
    let calls: Vec<_> = sides
        .iter()
        .zip(rows)
        .filter_map(|((attempt_id, ..), index)| {
            let index = index?;
            let row = *timeline.view().rows(*attempt_id).get(index)?;
            Some((*attempt_id, index, row))
        })
        .collect();
    match calls[..] {
        [(.., old), (.., new)] => {
            let [old, new] = [old, new].map(|row| call_texts(timeline, &row));
            if old.0 != new.0 {
                parts.push(file_change::arguments(&old.0, &new.0));
            }
            if old.1 != new.1 {
                let mut part = vec![DocumentBlock::section("result", None)];
                part.extend(text_diff::diff_blocks(&old.1, &new.1));
                parts.push(part);
            }
        }
        [(attempt_id, index, row)] => {
            parts.push(inspect::call(timeline, attempt_id, index, &row).joined());
        }
        _ => {}
    }
    let prompts = attempts(timeline, sides)
        .map(|attempts| attempts.map(|attempt| started(timeline, &attempt)));
    if let Some([Some(old), Some(new)]) = prompts {
        let texts = [
            ("prompt", &old.prompt, &new.prompt),
            ("system prompt", &old.system_prompt, &new.system_prompt),
        ];
        for (what, old, new) in texts.into_iter().filter(|(_, old, new)| old != new) {
            let (added, removed) = text_diff::count(old, new);
            let facts = vec![
                (StyleRole::Succeeded, format!("+{added}")),
                (StyleRole::Failed, format!("-{removed}")),
            ];
            let mut part = vec![DocumentBlock::titled(what, what.to_owned(), facts, None)];
            part.extend(text_diff::diff_blocks(old, new));
            parts.push(part);
        }
    }
    let mut blocks = Vec::new();
    for part in parts {
        if !blocks.is_empty() {
            blocks.push(DocumentBlock::BlankLine);
        }
        blocks.extend(part);
    }
    blocks
}

/// The arguments of a call as it ran, and its result; empty where they are not on the record.
fn call_texts(timeline: &mut Timeline, row: &StreamRow) -> (String, String) {
    let edited = edited(timeline, row.first(), row.block);
    let call = read_head(timeline, row.first(), MAX_SHOWN_BYTES, |arrived, _| {
        let line = decode::decode_line(bytes(&arrived.body));
        match blocks(&line).get(usize::from(row.block)) {
            Some(MessageBlock::ToolUse(call)) => {
                let input = call_as_run(call, edited.as_deref()).input;
                let input = input.map_or("{}", |input| input.0).to_owned();
                Some((call.id.to_string(), input))
            }
            _ => None,
        }
    });
    let Ok(Some((id, input))) = call else {
        return Default::default();
    };
    let last = timeline.view().background_result(row);
    let last = last.or_else(|| row.last(timeline.view().state.entries));
    let result = last.map(|last| {
        read_head(timeline, last, MAX_SHOWN_BYTES, |arrived, _| {
            let line = decode::decode_line(bytes(&arrived.body));
            result_of(&line, Some(&id)).map(|result| result.text().into_owned())
        })
    });
    let result = result.and_then(|read| read.ok().flatten());
    (input, result.unwrap_or_default())
}

fn calls(
    timeline: &Timeline,
    attempt_id: AttemptId,
    gathered: &AttemptSummary,
) -> Vec<AlignedCall> {
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
        Some(AlignedCall {
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
