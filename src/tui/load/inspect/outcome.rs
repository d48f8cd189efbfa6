//! How an attempt ended and why, and what its process said beside the protocol.

use super::{ABSENT, SHOWN, read, read_head, reading};
use crate::{
    decode,
    run::{
        Timeline, decisions,
        state::{Attempt, Row, RowEnd, RowKind, Unit},
    },
    tape::{
        Body, Millis, Note, Seq,
        note::{AttemptEnded, Cause, Outcome, StopReason},
    },
    tui::{
        cache::{Cache, RowId},
        document::Piece,
        load::{self, gather::Touch},
        text,
        theme::{Role, status_role},
        view::{clock, count, dollars, units::state_text},
    },
};

/// Failures that are listed, and lines of stderr that are shown.
const LISTED: usize = 200;
const LINES: usize = 5000;
/// Longest decision, in columns.
const DECISION: usize = 2500;
/// Last rows among which the end is looked for.
const END: usize = 64;

/// What the process said on stderr, and on stdout beside the protocol.
pub(super) fn stderr(timeline: &mut Timeline, cache: &Cache, attempt: &Attempt) -> Vec<Piece> {
    let (entries, rows) = (timeline.story().state.entries, timeline.story().rows(attempt.lane).len());
    let noise: Vec<_> = cache.gathered(attempt.lane).map_or_else(Vec::new, |gathered| {
        gathered.noise.iter().filter(|noise| noise.seq.0 < entries).copied().collect()
    });
    let mut pieces = Vec::new();
    for (stdout, what) in [(false, "stderr"), (true, "stdout that is not JSON")] {
        let of_it: Vec<Seq> = noise.iter().filter(|noise| noise.stdout == stdout).map(|noise| noise.seq).collect();
        if stdout && of_it.is_empty() {
            continue;
        }
        let left_out = of_it.len().saturating_sub(LINES);
        let mut lines = Vec::new();
        for seq in &of_it[left_out..] {
            let line = read_head(timeline, *seq, SHOWN, |arrived, _| {
                (arrived.at, String::from_utf8_lossy(super::bytes(&arrived.body)).into_owned())
            });
            lines.extend(line);
        }
        let all: Vec<&str> = lines.iter().map(|(_, line)| line.as_str()).collect();
        if !pieces.is_empty() {
            pieces.push(Piece::Gap);
        }
        let facts =
            vec![(Role::Dim, if of_it.len() == 1 { "1 line".to_owned() } else { format!("{} lines", of_it.len()) })];
        pieces.push(Piece::titled(what, what.to_owned(), facts, (!all.is_empty()).then(|| all.join("\n").into())));
        if left_out > 0 {
            pieces.push(Piece::line(Role::Warning, format!("the first {left_out} lines are left out")));
        }
        for (at, line) in &lines {
            let role = if stdout { Role::Warning } else { Role::Text };
            let at = format!("+{} ", clock(*at));
            pieces.push(Piece::Runs { indent: 0, hang: at.len(), runs: vec![(Role::Dim, at), (role, line.clone())] });
        }
    }
    let complete = cache.gathered(attempt.lane).is_some_and(|gathered| gathered.rows >= rows);
    if noise.is_empty() && complete {
        let tail = end_note(timeline, attempt).map(|(_, ended)| ended.stderr_tail).unwrap_or_default();
        match (tail.is_empty(), attempt.start_note.is_some()) {
            (false, _) => pieces.extend(tail.into_iter().map(|line| Piece::line(Role::Text, line))),
            (true, true) => pieces.push(Piece::line(Role::Dim, "the process said nothing on stderr")),
            (true, false) => pieces.push(Piece::line(Role::Dim, ABSENT)),
        }
    }
    reading(&mut pieces, cache, attempt, rows);
    pieces
}

/// How it ended, why, what it cost, what it wrote, and what failed on the way.
pub(super) fn verdict(timeline: &mut Timeline, cache: &Cache, unit: &Unit, attempt: &Attempt) -> Vec<Piece> {
    let ended = end_note(timeline, attempt);
    let mut pieces = judged(unit, attempt, timeline.story().state.passed);
    pieces.push(Piece::Gap);
    pieces.extend(end(timeline, attempt, ended.as_ref()));
    pieces.push(Piece::Gap);
    pieces.extend(figures(timeline, attempt));
    pieces.push(Piece::Gap);
    pieces.extend(wrote(timeline, cache, attempt, ended.as_ref().map(|(_, ended)| ended)));
    pieces.push(Piece::Gap);
    pieces.extend(decided(attempt));
    pieces.extend(failures(timeline, attempt));
    pieces
}

fn judged(unit: &Unit, attempt: &Attempt, now: Millis) -> Vec<Piece> {
    let Some(verdict) = &attempt.verdict else {
        let (role, words) = match attempt.ended_at {
            None => (status_role(unit.status), format!("none yet: the unit is {}", state_text(unit, now))),
            Some(_) => (Role::Dim, ABSENT.to_owned()),
        };
        return vec![Piece::section("verdict", None), Piece::fact("outcome", role, words)];
    };
    let (role, outcome) = match (verdict.outcome, verdict.stop) {
        (Outcome::Succeeded, StopReason::Budget) => {
            (Role::Budget, "budget: what it wrote counts, but its budget ran out")
        }
        (Outcome::Succeeded, _) => (Role::Succeeded, "succeeded"),
        (Outcome::Failed, _) => (Role::Failed, "failed"),
        (Outcome::Stopped, _) if verdict.cause == Cause::Cancelled => (Role::Stopped, "stopped by a person"),
        (Outcome::Stopped, _) => (Role::Stopped, "stopped before it was done"),
    };
    let stop = match verdict.stop {
        StopReason::Natural => "natural: the model was done",
        StopReason::Budget => "budget: turns or cost ran out",
        StopReason::Error => "error",
    };
    let mut pieces = vec![
        Piece::section("verdict", Some(verdict.reason.as_str().into())),
        Piece::fact("outcome", role, outcome),
        Piece::fact("cause", role, cause(&verdict.cause)),
        Piece::fact("reason", Role::Text, &verdict.reason),
    ];
    if let Some(remedy) = &verdict.remedy {
        pieces.push(Piece::fact("remedy", Role::Strong, remedy));
    }
    pieces.push(Piece::fact("stop", Role::Text, stop));
    pieces
}

fn cause(cause: &Cause) -> String {
    match cause {
        Cause::Completed => "the model was done".to_owned(),
        Cause::Budget => "its turn or cost budget ran out".to_owned(),
        Cause::PromptTooLarge => "the prompt is too large; nothing was started".to_owned(),
        Cause::Isolation => "it was offered more or less than it may use".to_owned(),
        Cause::Cancelled => "somebody stopped it".to_owned(),
        Cause::ContextOverflow => "the context of the model was full".to_owned(),
        Cause::UsageLimit { resets_at: None } => "a usage limit; when it resets was not said".to_owned(),
        Cause::UsageLimit { resets_at: Some(at) } => match jiff::Timestamp::from_second(*at) {
            Ok(at) => format!("a usage limit until {}", at.strftime("%Y-%m-%d %H:%M UTC")),
            Err(_) => "a usage limit".to_owned(),
        },
        Cause::RateLimited => "too many requests in a short time".to_owned(),
        Cause::Transient => "overload or an error of the service".to_owned(),
        Cause::Network => "the network".to_owned(),
        Cause::SilenceTimeout => "it wrote nothing for longer than the silence timeout".to_owned(),
        Cause::UnitTimeout => "it took longer than the unit timeout".to_owned(),
        Cause::Auth => "not logged in, or the key is bad".to_owned(),
        Cause::Credit => "no credit".to_owned(),
        Cause::Model => "the model does not exist or may not be used".to_owned(),
        Cause::OpenFiles => "there were too many open files to start it".to_owned(),
        Cause::ProgramMissing => "the agent's program is missing or cannot be executed".to_owned(),
        Cause::Crashed => "the agent died without a result".to_owned(),
        Cause::ToolFailures => "tool calls failed".to_owned(),
        Cause::DanglingReferences => "a page refers to one that does not exist".to_owned(),
        Cause::Validation => "what it wrote does not hold".to_owned(),
        Cause::Conflict => "it does not go with what other units wrote".to_owned(),
        Cause::Policy => "it wrote what a unit may not write".to_owned(),
        Cause::OversizedLine => "it wrote a line that exceeds the limit".to_owned(),
        Cause::LoopError => "the loop of the agent failed".to_owned(),
        Cause::Internal => "ingestdeck itself could not go on".to_owned(),
        Cause::Other(other) => other.replace('_', " "),
    }
}

/// What the agent and its process said at the end.
fn end(timeline: &mut Timeline, attempt: &Attempt, ended: Option<&(Seq, AttemptEnded)>) -> Vec<Piece> {
    let result = end_rows(timeline, attempt, RowKind::Completed).into_iter().find_map(|seq| {
        read(timeline, seq, |arrived| match &decode::line(super::bytes(&arrived.body)).body {
            decode::Body::Result(result) => Some(vec![
                ("subtype", result.subtype.as_deref().map(str::to_owned)),
                ("terminal reason", result.terminal_reason.as_deref().map(str::to_owned)),
                ("stop reason", result.stop_reason.as_deref().map(str::to_owned)),
                ("is error", result.is_error.map(|is_error| is_error.to_string())),
                ("API status", result.api_error_status.map(|status| status.to_string())),
                ("error", result.error.as_deref().map(str::to_owned)),
                ("errors", (!result.errors.is_empty()).then(|| result.errors.join("; "))),
                ("denials", (!result.denials.is_empty()).then(|| result.denials.len().to_string())),
                ("API time", result.duration_api_ms.map(|ms| Millis(ms).to_string())),
            ]),
            _ => None,
        })
        .ok()
        .flatten()
    });
    let mut pieces = vec![Piece::section("end", None)];
    match result {
        Some(facts) => {
            pieces.extend(facts.into_iter().filter_map(|(name, value)| Some(Piece::fact(name, Role::Text, value?))))
        }
        None if attempt.ended_at.is_none() => pieces.push(Piece::fact("result line", Role::Dim, "none yet")),
        None => pieces.push(Piece::fact("result line", Role::Warning, "none: the session ended without one")),
    }
    let process = ended.map(|(_, ended)| match (ended.exit_code, ended.signal) {
        (_, Some(signal)) => (Role::Warning, format!("ended by signal {signal}")),
        (Some(0), None) => (Role::Text, "ended with code 0".to_owned()),
        (Some(code), None) => (Role::Warning, format!("ended with code {code}")),
        (None, None) => (Role::Dim, "none ran".to_owned()),
    });
    let running = attempt.pid.map(|pid| (Role::Text, format!("running, pid {pid}")));
    let (role, words) = process.or(running).unwrap_or_else(|| (Role::Dim, ABSENT.to_owned()));
    pieces.push(Piece::fact("process", role, words));
    if let Some((_, ended)) = ended {
        pieces.extend(ended.stderr_tail.iter().map(|line| Piece::fact("stderr", Role::Text, line)));
    }
    pieces
}

fn figures(timeline: &Timeline, attempt: &Attempt) -> Vec<Piece> {
    let timed = timeline.source().origin().has_times;
    let runs = attempt.pid.is_some();
    let until = if runs { timeline.story().state.passed } else { attempt.last_at };
    let took = attempt.ended_at.unwrap_or(until).since(attempt.started_at);
    let budget = attempt.step_budget.map_or_else(String::new, |budget| format!(" of {budget}"));
    let tokens = attempt.tokens;
    vec![
        Piece::section("figures", None),
        Piece::fact("time", Role::Text, if timed { took.to_string() } else { "?".to_owned() }),
        Piece::fact("cost", Role::Text, dollars(attempt.cost_usd)),
        Piece::fact("turns", Role::Text, format!("{}{budget}", attempt.turns)),
        Piece::fact(
            "calls",
            Role::Text,
            format!("{}, {} failed, {} denied", attempt.calls, attempt.failures, attempt.denials),
        ),
        Piece::fact(
            "tokens",
            Role::Text,
            format!(
                "{} in, {} out, {} from the cache, {} into it",
                count(tokens.input),
                count(tokens.output),
                count(tokens.cache_read),
                count(tokens.cache_write)
            ),
        ),
    ]
}

fn wrote(timeline: &Timeline, cache: &Cache, attempt: &Attempt, ended: Option<&AttemptEnded>) -> Vec<Piece> {
    let (entries, rows) = (timeline.story().state.entries, timeline.story().rows(attempt.lane));
    let by_calls: std::collections::BTreeSet<&str> = cache
        .gathered(attempt.lane)
        .into_iter()
        .flat_map(|gathered| &gathered.calls)
        .filter(|call| rows.get(call.row).is_some_and(|row| row.end(entries) == RowEnd::Ok))
        .filter_map(|call| call.touches.as_ref().filter(|(touch, _)| *touch == Touch::Writes))
        .map(|(_, path)| path.as_str())
        .collect();
    let ended = ended.map(|ended| ended.wrote.as_slice()).unwrap_or_default();
    let published = if attempt.published.is_empty() { ended } else { &attempt.published };
    let text = if published.is_empty() {
        by_calls.iter().copied().collect::<Vec<_>>().join("\n")
    } else {
        published.join("\n")
    };
    let mut pieces = vec![Piece::section("written", (!text.is_empty()).then(|| text.into()))];
    pieces.extend(published.iter().map(|path| Piece::fact("in the project", Role::Succeeded, path)));
    if published.is_empty() {
        let fate = match attempt.verdict.as_ref().map(|verdict| verdict.outcome) {
            Some(Outcome::Failed | Outcome::Stopped) => "dropped",
            Some(Outcome::Succeeded) | None => "written",
        };
        pieces.extend(by_calls.iter().map(|path| Piece::fact(fate, Role::Text, *path)));
    }
    if let Some(path) = attempt.patch.as_ref().and_then(|patch| patch.path.as_deref()) {
        pieces.push(Piece::fact("patch", Role::Text, path));
    }
    pieces.extend(attempt.shared.iter().map(|shared| {
        let role = if shared.merged { Role::Warning } else { Role::Text };
        Piece::fact("shared", role, shared.to_string())
    }));
    if pieces.len() == 1 {
        pieces.push(Piece::line(Role::Dim, "  nothing"));
    }
    pieces
}

/// What it put on record beside its changes; nothing where there is nothing.
fn decided(attempt: &Attempt) -> Vec<Piece> {
    let all = attempt.work.as_deref().map(decisions::decisions).unwrap_or_default();
    if all.is_empty() {
        return Vec::new();
    }
    let text = all.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    let mut pieces = vec![Piece::section("decisions", Some(text.into()))];
    pieces.extend(all.iter().map(|decision| {
        let role = if decision.is_flagged { Role::Warning } else { Role::Text };
        Piece::fact(decision.kind.word(), role, text::one_row(&decision.to_string(), DECISION))
    }));
    pieces.push(Piece::Gap);
    pieces
}

fn failures(timeline: &mut Timeline, attempt: &Attempt) -> Vec<Piece> {
    let (entries, rows) = (timeline.story().state.entries, timeline.story().rows(attempt.lane));
    // A denial has a row of its own where no call tells of it, and a note only repeats what is said above.
    let is_bad = |row: &Row| match row.kind {
        RowKind::Note => false,
        _ => matches!(row.end(entries), RowEnd::Failed | RowEnd::Denied),
    };
    let bad: Vec<(usize, Row)> =
        rows.iter().enumerate().filter(|(_, row)| is_bad(row)).map(|(index, row)| (index, *row)).collect();
    let facts = vec![(Role::Dim, bad.len().to_string())];
    let mut pieces = vec![Piece::titled("failures", "failures".to_owned(), facts, None)];
    for (index, row) in bad.iter().take(LISTED) {
        let line = load::row_line(timeline, row, RowId::of(row, timeline.story()));
        let word = if row.end(entries) == RowEnd::Denied { "denied" } else { "failed" };
        let role = if row.end(entries) == RowEnd::Denied { Role::Denied } else { Role::Failed };
        let fact = if line.fact.is_empty() { String::new() } else { format!(": {}", text::one_row(&line.fact, 300)) };
        pieces.push(Piece::Runs {
            indent: 2,
            hang: 4,
            runs: vec![
                (role, format!("{word} ")),
                (Role::Dim, format!("action {} +{} ", index + 1, clock(line.at))),
                (Role::Text, text::one_row(&line.label, 200)),
                (role, fact),
            ],
        });
    }
    if bad.len() > LISTED {
        pieces.push(Piece::line(Role::Dim, format!("  and {} more", bad.len() - LISTED)));
    }
    if bad.is_empty() {
        pieces.push(Piece::line(Role::Dim, "  none"));
    }
    pieces
}

/// The last rows of a kind, the last one first.
fn end_rows(timeline: &Timeline, attempt: &Attempt, kind: RowKind) -> Vec<Seq> {
    let rows = timeline.story().rows(attempt.lane).iter().rev().take(END);
    rows.filter(|row| row.kind == kind).map(Row::first).collect()
}

fn end_note(timeline: &mut Timeline, attempt: &Attempt) -> Option<(Seq, AttemptEnded)> {
    end_rows(timeline, attempt, RowKind::Note).into_iter().find_map(|seq| {
        let read = read(timeline, seq, |arrived| match arrived.body {
            Body::Note(json) => match Note::parse(json) {
                Note::AttemptEnded(ended) => Some((seq, *ended)),
                _ => None,
            },
            _ => None,
        });
        read.ok().flatten()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::tape::note::Work;

    #[test]
    fn flagged_decisions_stand_out() {
        let conflict = |flagged| json!({"artifactKey": "k", "detail": "two\nsizes", "flaggedForHuman": flagged});
        let work = Work { conflicts: vec![conflict(false), conflict(true)], ..Work::default() };
        let pieces = decided(&Attempt { work: Some(Arc::new(work)), ..Attempt::default() });
        let shown = |piece: &Piece| match piece {
            Piece::Runs { runs, .. } => runs.get(1).map(|(role, text)| (*role == Role::Warning, text.clone())),
            _ => None,
        };
        let facts: Vec<(bool, String)> = pieces.iter().filter_map(shown).collect();
        assert!(facts[0].0 && facts[0].1.ends_with("two ⏎ sizes [flagged for a person]"), "{facts:?}");
        assert!(!facts[1].0 && facts.len() == 2, "{facts:?}");
        assert!(decided(&Attempt::default()).is_empty());
    }
}
