//! The outcome of an attempt with its cause, and the output of its process outside of the protocol.

use jiff::{Timestamp, tz::TimeZone};

use super::{ABSENT, MAX_SHOWN_BYTES, read, read_head, read_progress};
use crate::{
    attempt_summary::CallAccessKind,
    cache::{RowId, ScreenCache},
    document::DocumentBlock,
    load,
    theme::{StyleRole, status_role},
    unit_row::state_text,
};
use ingestdeck_core::{
    decode,
    run::{
        Timeline, plain_reason, recorded_decisions,
        spending::CostFigure,
        state::{AttemptState, RowKind, RowOutcome, StreamRow, UnitState},
    },
    tape::{
        EntryBody, Millis, Note, Seq,
        note::{
            AttemptEnded, AttemptOutcome, StopReason, VerdictCause,
            verification::ArtifactVerification,
        },
    },
    text::{self, clock, count, dollars},
};

/// Largest number of listed failures.
const MAX_LISTED: usize = 200;
/// Largest number of shown lines of one stream.
const LINES: usize = 5000;
/// Width of a decision in columns.
const DECISION: usize = 2500;
/// Number of last rows that are searched for the end of the session.
const END: usize = 64;

/// Output of the process on stderr, and on stdout outside of the protocol.
pub(super) fn stderr(
    timeline: &mut Timeline,
    cache: &ScreenCache,
    attempt: &AttemptState,
) -> Vec<DocumentBlock> {
    let (entries, rows) = (
        timeline.view().state.entries,
        timeline.view().rows(attempt.id).len(),
    );
    let noise: Vec<_> = cache.summary(attempt.id).map_or_else(Vec::new, |gathered| {
        gathered
            .stray_output
            .iter()
            .filter(|noise| noise.seq.0 < entries)
            .copied()
            .collect()
    });
    let mut pieces = Vec::new();
    for (stdout, what) in [(false, "stderr"), (true, "stdout that is not JSON")] {
        let of_it: Vec<Seq> = noise
            .iter()
            .filter(|noise| noise.stdout == stdout)
            .map(|noise| noise.seq)
            .collect();
        if stdout && of_it.is_empty() {
            continue;
        }
        let left_out = of_it.len().saturating_sub(LINES);
        let mut lines = Vec::new();
        for seq in &of_it[left_out..] {
            let line = read_head(timeline, *seq, MAX_SHOWN_BYTES, |arrived, _| {
                (
                    arrived.at,
                    String::from_utf8_lossy(super::bytes(&arrived.body)).into_owned(),
                )
            });
            lines.extend(line);
        }
        let all: Vec<&str> = lines.iter().map(|(_, line)| line.as_str()).collect();
        if !pieces.is_empty() {
            pieces.push(DocumentBlock::BlankLine);
        }
        let facts = vec![(
            StyleRole::Dim,
            if of_it.len() == 1 {
                "1 line".to_owned()
            } else {
                format!("{} lines", of_it.len())
            },
        )];
        pieces.push(DocumentBlock::titled(
            what,
            what.to_owned(),
            facts,
            (!all.is_empty()).then(|| all.join("\n").into()),
        ));
        if left_out > 0 {
            pieces.push(DocumentBlock::line(
                StyleRole::Warning,
                format!("the first {left_out} lines are not shown"),
            ));
        }
        for (at, line) in &lines {
            let role = if stdout {
                StyleRole::Warning
            } else {
                StyleRole::Text
            };
            let at = format!("+{} ", clock(*at));
            pieces.push(DocumentBlock::Spans {
                indent: 0,
                hang: at.len(),
                runs: vec![(StyleRole::Dim, at), (role, line.clone())],
            });
        }
    }
    let complete = cache
        .summary(attempt.id)
        .is_some_and(|gathered| gathered.rows >= rows);
    if noise.is_empty() && complete {
        let tail = end_note(timeline, attempt)
            .map(|(_, ended)| ended.stderr_tail)
            .unwrap_or_default();
        match (tail.is_empty(), attempt.setup.start_note.is_some()) {
            (false, _) => pieces.extend(
                tail.into_iter()
                    .map(|line| DocumentBlock::line(StyleRole::Text, line)),
            ),
            (true, true) => pieces.push(DocumentBlock::line(
                StyleRole::Dim,
                "the process wrote nothing to stderr",
            )),
            (true, false) => pieces.push(DocumentBlock::line(StyleRole::Dim, ABSENT)),
        }
    }
    read_progress(&mut pieces, cache, attempt, rows);
    pieces
}

/// The outcome, cause, cost, written files and failures of an attempt.
pub(super) fn verdict(
    timeline: &mut Timeline,
    cache: &ScreenCache,
    unit: &UnitState,
    attempt: &AttemptState,
) -> Vec<DocumentBlock> {
    let ended = end_note(timeline, attempt);
    let mut pieces = verdict_blocks(unit, attempt, timeline.view().state.clock, &cache.zone());
    pieces.push(DocumentBlock::BlankLine);
    pieces.extend(end(timeline, attempt, ended.as_ref()));
    pieces.push(DocumentBlock::BlankLine);
    pieces.extend(figures(timeline, attempt));
    pieces.push(DocumentBlock::BlankLine);
    pieces.extend(written_blocks(
        timeline,
        cache,
        attempt,
        ended.as_ref().map(|(_, ended)| ended),
    ));
    pieces.push(DocumentBlock::BlankLine);
    pieces.extend(decision_blocks(attempt));
    pieces.extend(failures(timeline, attempt));
    pieces
}

fn verdict_blocks(
    unit: &UnitState,
    attempt: &AttemptState,
    now: Millis,
    zone: &TimeZone,
) -> Vec<DocumentBlock> {
    let Some(verdict) = &attempt.verdict else {
        let (role, words) = match attempt.ended_at {
            None => (
                status_role(unit.status),
                format!("none yet: the unit is {}", state_text(unit, now)),
            ),
            Some(_) => (StyleRole::Dim, ABSENT.to_owned()),
        };
        return vec![
            DocumentBlock::section("verdict", None),
            DocumentBlock::fact("outcome", role, words),
        ];
    };
    let (role, outcome) = match (verdict.outcome, verdict.stop) {
        (AttemptOutcome::Succeeded, StopReason::Budget) => (
            StyleRole::Budget,
            "budget: its output counts, but its budget ran out",
        ),
        (AttemptOutcome::Succeeded, _) => (StyleRole::Succeeded, "succeeded"),
        (AttemptOutcome::Failed, _) => (StyleRole::Failed, "failed"),
        (AttemptOutcome::Stopped, _) if verdict.cause == VerdictCause::Cancelled => {
            (StyleRole::Stopped, "stopped by a person")
        }
        (AttemptOutcome::Stopped, _) => (StyleRole::Stopped, "stopped before it was done"),
    };
    let stop = match verdict.stop {
        StopReason::Natural => "natural: the model was done",
        StopReason::Budget => "budget: turns or cost ran out",
        StopReason::Error => "error",
    };
    let reason = plain_reason(&verdict.reason);
    let mut pieces = vec![
        DocumentBlock::section("verdict", Some((*reason).into())),
        DocumentBlock::fact("outcome", role, outcome),
        DocumentBlock::fact("cause", role, cause(&verdict.cause, zone)),
        DocumentBlock::fact("reason", StyleRole::Text, &*reason),
    ];
    if let Some(remedy) = &verdict.remedy {
        // The tape has the time of a reset in UTC.
        let reset = match &verdict.cause {
            VerdictCause::UsageLimit {
                resets_at: Some(at),
            } => Timestamp::from_second(*at).ok(),
            _ => None,
        };
        let remedy = reset.map_or(remedy.clone(), |at| {
            remedy.replace(&at.to_string(), &wall_clock(at, zone))
        });
        pieces.push(DocumentBlock::fact("remedy", StyleRole::Strong, remedy));
    }
    pieces.push(DocumentBlock::fact("stop", StyleRole::Text, stop));
    pieces
}

/// A time in a zone, with the name of the zone.
fn wall_clock(at: Timestamp, zone: &TimeZone) -> String {
    at.to_zoned(zone.clone())
        .strftime("%Y-%m-%d %H:%M %Z")
        .to_string()
}

fn cause(cause: &VerdictCause, zone: &TimeZone) -> String {
    match cause {
        VerdictCause::Completed => "the model was done".to_owned(),
        VerdictCause::Budget => "its turn or cost budget ran out".to_owned(),
        VerdictCause::PromptTooLarge => "the prompt is too large; nothing was started".to_owned(),
        VerdictCause::Isolation => "its tools or settings differ from the allowed ones".to_owned(),
        VerdictCause::Cancelled => "the attempt was stopped".to_owned(),
        VerdictCause::ContextOverflow => "the context of the model was full".to_owned(),
        VerdictCause::UsageLimit { resets_at: None } => {
            "a usage limit; its reset time is unknown".to_owned()
        }
        VerdictCause::UsageLimit {
            resets_at: Some(at),
        } => match Timestamp::from_second(*at) {
            Ok(at) => format!("a usage limit until {}", wall_clock(at, zone)),
            Err(_) => "a usage limit".to_owned(),
        },
        VerdictCause::RateLimited => "too many requests in a short time".to_owned(),
        VerdictCause::Transient => "overload or an error of the service".to_owned(),
        VerdictCause::Network => "the network".to_owned(),
        VerdictCause::SilenceTimeout => {
            "it wrote nothing for longer than the silence timeout".to_owned()
        }
        VerdictCause::UnitTimeout => "it took longer than the unit timeout".to_owned(),
        VerdictCause::StartFailed => "Claude Code refused to start".to_owned(),
        VerdictCause::ApprovalTimeout => {
            "its call waited for a decision for longer than the approval timeout".to_owned()
        }
        VerdictCause::Auth => "not logged in, or the API key is invalid".to_owned(),
        VerdictCause::Credit => "no credit".to_owned(),
        VerdictCause::Model => "the model does not exist or may not be used".to_owned(),
        VerdictCause::WorkerLost => "its worker was lost".to_owned(),
        VerdictCause::OpenFiles => "there were too many open files to start it".to_owned(),
        VerdictCause::ProgramMissing => {
            "the agent's program is missing or cannot be executed".to_owned()
        }
        VerdictCause::Crashed => "the agent died without a result".to_owned(),
        VerdictCause::ToolFailures => "tool calls failed".to_owned(),
        VerdictCause::NothingDone => "the agent did nothing for its unit".to_owned(),
        VerdictCause::UnreadFiles => "it left raw files unread".to_owned(),
        VerdictCause::DanglingReferences => "a page refers to one that does not exist".to_owned(),
        VerdictCause::Validation => "its output is invalid".to_owned(),
        VerdictCause::Conflict => "its output conflicts with that of other units".to_owned(),
        VerdictCause::Policy => "it wrote files that a unit may not write".to_owned(),
        VerdictCause::OversizedLine => "it wrote a line that exceeds the limit".to_owned(),
        VerdictCause::LoopError => "the loop of the agent failed".to_owned(),
        VerdictCause::Internal => "ingestdeck itself failed".to_owned(),
        VerdictCause::Other(other) => other.replace('_', " "),
    }
}

/// The last reports of the agent and of its process.
fn end(
    timeline: &mut Timeline,
    attempt: &AttemptState,
    ended: Option<&(Seq, AttemptEnded)>,
) -> Vec<DocumentBlock> {
    let result = end_rows(timeline, attempt, RowKind::Completed)
        .into_iter()
        .find_map(|seq| {
            read(timeline, seq, |arrived| {
                match &decode::decode_line(super::bytes(&arrived.body)).body {
                    decode::LineBody::Result(result) => Some(vec![
                        ("subtype", result.subtype.as_deref().map(str::to_owned)),
                        (
                            "terminal reason",
                            result.terminal_reason.as_deref().map(str::to_owned),
                        ),
                        (
                            "stop reason",
                            result.stop_reason.as_deref().map(str::to_owned),
                        ),
                        (
                            "is error",
                            result.is_error.map(|is_error| is_error.to_string()),
                        ),
                        (
                            "API status",
                            result.api_error_status.map(|status| status.to_string()),
                        ),
                        ("error", result.error.as_deref().map(str::to_owned)),
                        (
                            "errors",
                            (!result.errors.is_empty()).then(|| result.errors.join("; ")),
                        ),
                        (
                            "denials",
                            (!result.denials.is_empty()).then(|| result.denials.len().to_string()),
                        ),
                        (
                            "API time",
                            result.duration_api_ms.map(|ms| Millis(ms).to_string()),
                        ),
                    ]),
                    _ => None,
                }
            })
            .ok()
            .flatten()
        });
    let mut pieces = vec![DocumentBlock::section("end", None)];
    match result {
        Some(facts) => {
            pieces.extend(facts.into_iter().filter_map(|(name, value)| {
                Some(DocumentBlock::fact(name, StyleRole::Text, value?))
            }))
        }
        None if attempt.ended_at.is_none() => pieces.push(DocumentBlock::fact(
            "result line",
            StyleRole::Dim,
            "none yet",
        )),
        None => pieces.push(DocumentBlock::fact(
            "result line",
            StyleRole::Warning,
            "none: the session ended without one",
        )),
    }
    let process = ended.map(|(_, ended)| match (ended.exit_code, ended.signal) {
        (_, Some(signal)) => (StyleRole::Warning, format!("ended by signal {signal}")),
        (Some(0), None) => (StyleRole::Text, "ended with code 0".to_owned()),
        (Some(code), None) => (StyleRole::Warning, format!("ended with code {code}")),
        (None, None) => (StyleRole::Dim, "none was started".to_owned()),
    });
    let running = attempt
        .pid
        .map(|pid| (StyleRole::Text, format!("running, pid {pid}")));
    let (role, words) = process
        .or(running)
        .unwrap_or_else(|| (StyleRole::Dim, ABSENT.to_owned()));
    pieces.push(DocumentBlock::fact("process", role, words));
    if let Some(worker) = attempt
        .setup
        .worker
        .and_then(|worker| timeline.view().state.workers.name(worker))
    {
        pieces.push(DocumentBlock::fact("worker", StyleRole::Text, worker));
    }
    if let Some((_, ended)) = ended {
        pieces.extend(
            ended
                .stderr_tail
                .iter()
                .map(|line| DocumentBlock::fact("stderr", StyleRole::Text, line)),
        );
    }
    pieces
}

/// The cost, with its parts if several models share it.
fn cost_text(attempt: &AttemptState) -> String {
    let models: Vec<String> = match attempt.setup.models() {
        [] | [_] => Vec::new(),
        several => several
            .iter()
            .map(|model| format!("{} {}", model.model, dollars(model.cost_usd)))
            .collect(),
    };
    let parts = if models.is_empty() {
        String::new()
    } else {
        format!(" ({})", models.join(", "))
    };
    let cost = CostFigure::of_attempt(attempt).dollars();
    format!("{cost}{parts}")
}

fn figures(timeline: &Timeline, attempt: &AttemptState) -> Vec<DocumentBlock> {
    let timed = timeline.source().info().has_times;
    let runs = attempt.pid.is_some();
    let until = if runs {
        timeline.view().state.clock
    } else {
        attempt.last_at
    };
    let took = attempt.ended_at.unwrap_or(until).since(attempt.started_at);
    let budget = attempt
        .setup
        .step_budget
        .map_or_else(String::new, |budget| format!(" of {budget}"));
    let tokens = attempt.counts.tokens;
    vec![
        DocumentBlock::section("figures", None),
        DocumentBlock::fact(
            "time",
            StyleRole::Text,
            if timed {
                took.to_string()
            } else {
                "?".to_owned()
            },
        ),
        DocumentBlock::fact("cost", StyleRole::Text, cost_text(attempt)),
        DocumentBlock::fact(
            "turns",
            StyleRole::Text,
            format!("{}{budget}", attempt.counts.turns),
        ),
        DocumentBlock::fact(
            "calls",
            StyleRole::Text,
            format!(
                "{}, {} failed, {} denied",
                attempt.counts.calls, attempt.counts.failures, attempt.counts.denials
            ),
        ),
        DocumentBlock::fact(
            "tokens",
            StyleRole::Text,
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

fn written_blocks(
    timeline: &Timeline,
    cache: &ScreenCache,
    attempt: &AttemptState,
    ended: Option<&AttemptEnded>,
) -> Vec<DocumentBlock> {
    let (entries, rows) = (
        timeline.view().state.entries,
        timeline.view().rows(attempt.id),
    );
    let by_calls: std::collections::BTreeSet<&str> = cache
        .summary(attempt.id)
        .into_iter()
        .flat_map(|gathered| &gathered.calls)
        .filter(|call| {
            rows.get(call.row)
                .is_some_and(|row| row.end(entries) == RowOutcome::Ok)
        })
        .filter_map(|call| {
            call.access
                .as_ref()
                .filter(|(touch, _)| *touch == CallAccessKind::Write)
        })
        .map(|(_, path)| path.as_str())
        .collect();
    let ended = ended
        .map(|ended| ended.wrote.as_slice())
        .unwrap_or_default();
    let published = if attempt.delivery.published.is_empty() {
        ended
    } else {
        &attempt.delivery.published
    };
    let text = if published.is_empty() {
        by_calls.iter().copied().collect::<Vec<_>>().join("\n")
    } else {
        published.join("\n")
    };
    let mut pieces = vec![DocumentBlock::section(
        "written",
        (!text.is_empty()).then(|| text.into()),
    )];
    pieces.extend(
        published
            .iter()
            .map(|path| DocumentBlock::fact("in the project", StyleRole::Succeeded, path)),
    );
    if published.is_empty() {
        let fate = match attempt.verdict.as_ref().map(|verdict| verdict.outcome) {
            Some(AttemptOutcome::Failed | AttemptOutcome::Stopped) => "dropped",
            Some(AttemptOutcome::Succeeded) | None => "written",
        };
        pieces.extend(
            by_calls
                .iter()
                .map(|path| DocumentBlock::fact(fate, StyleRole::Text, *path)),
        );
    }
    if let Some(path) = attempt
        .delivery
        .patch
        .as_ref()
        .and_then(|patch| patch.path.as_deref())
    {
        pieces.push(DocumentBlock::fact("patch", StyleRole::Text, path));
    }
    pieces.extend(attempt.delivery.shared_writes.iter().map(|shared| {
        let role = if shared.was_merged {
            StyleRole::Warning
        } else {
            StyleRole::Text
        };
        DocumentBlock::fact("shared", role, shared.to_string())
    }));
    let output = attempt.delivery.output.as_deref();
    let unsourced = output
        .and_then(|output| output.unsourced.as_deref())
        .unwrap_or_default();
    pieces.extend(
        unsourced
            .iter()
            .map(|flag| DocumentBlock::fact("unsourced", StyleRole::Warning, flag.to_string())),
    );
    let record = output.and_then(|output| output.verification.as_ref());
    let artifacts = record.into_iter().flat_map(|record| &record.artifacts);
    let findings = artifacts.flat_map(ArtifactVerification::findings);
    pieces.extend(findings.map(|it| DocumentBlock::fact("contradicted", StyleRole::Warning, it)));
    if pieces.len() == 1 {
        pieces.push(DocumentBlock::line(StyleRole::Dim, "  nothing"));
    }
    pieces
}

/// Decisions that the attempt recorded in addition to its changes; empty if there are none.
fn decision_blocks(attempt: &AttemptState) -> Vec<DocumentBlock> {
    let all = attempt
        .delivery
        .output
        .as_deref()
        .map(recorded_decisions::recorded_decisions)
        .unwrap_or_default();
    if all.is_empty() {
        return Vec::new();
    }
    let text = all
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n");
    let mut pieces = vec![DocumentBlock::section("decisions", Some(text.into()))];
    pieces.extend(all.iter().map(|decision| {
        let role = if decision.is_flagged {
            StyleRole::Warning
        } else {
            StyleRole::Text
        };
        DocumentBlock::fact(
            decision.kind.label(),
            role,
            text::one_row(&decision.to_string(), DECISION),
        )
    }));
    pieces.push(DocumentBlock::BlankLine);
    pieces
}

fn failures(timeline: &mut Timeline, attempt: &AttemptState) -> Vec<DocumentBlock> {
    let (entries, rows) = (
        timeline.view().state.entries,
        timeline.view().rows(attempt.id),
    );
    // A denial has its own row if its call has none, and the text of a note is already shown above.
    let is_bad = |row: &StreamRow| match row.kind {
        RowKind::Note => false,
        _ => matches!(row.end(entries), RowOutcome::Failed | RowOutcome::Denied),
    };
    let bad: Vec<(usize, StreamRow)> = rows
        .iter()
        .enumerate()
        .filter(|(_, row)| is_bad(row))
        .map(|(index, row)| (index, *row))
        .collect();
    let facts = vec![(StyleRole::Dim, bad.len().to_string())];
    let mut pieces = vec![DocumentBlock::titled(
        "failures",
        "failures".to_owned(),
        facts,
        None,
    )];
    for (index, row) in bad.iter().take(MAX_LISTED) {
        let line = load::row_line(timeline, row, RowId::new(row, timeline.view()));
        let word = if row.end(entries) == RowOutcome::Denied {
            "denied"
        } else {
            "failed"
        };
        let role = if row.end(entries) == RowOutcome::Denied {
            StyleRole::Denied
        } else {
            StyleRole::Failed
        };
        let fact = if line.outcome.is_empty() {
            String::new()
        } else {
            format!(": {}", text::one_row(&line.outcome, 300))
        };
        pieces.push(DocumentBlock::Spans {
            indent: 2,
            hang: 4,
            runs: vec![
                (role, format!("{word} ")),
                (
                    StyleRole::Dim,
                    format!("action {} +{} ", index + 1, clock(line.at)),
                ),
                (StyleRole::Text, text::one_row(&line.label, 200)),
                (role, fact),
            ],
        });
    }
    if bad.len() > MAX_LISTED {
        pieces.push(DocumentBlock::line(
            StyleRole::Dim,
            format!("  and {} more", bad.len() - MAX_LISTED),
        ));
    }
    if bad.is_empty() {
        pieces.push(DocumentBlock::line(StyleRole::Dim, "  none"));
    }
    pieces
}

/// The last rows of a kind, newest first.
fn end_rows(timeline: &Timeline, attempt: &AttemptState, kind: RowKind) -> Vec<Seq> {
    let rows = timeline.view().rows(attempt.id).iter().rev().take(END);
    rows.filter(|row| row.kind == kind)
        .map(StreamRow::first)
        .collect()
}

fn end_note(timeline: &mut Timeline, attempt: &AttemptState) -> Option<(Seq, AttemptEnded)> {
    end_rows(timeline, attempt, RowKind::Note)
        .into_iter()
        .find_map(|seq| {
            let read = read(timeline, seq, |arrived| match arrived.body {
                EntryBody::Note(json) => match Note::parse(json) {
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
    use ingestdeck_core::{run::state::AttemptDelivery, tape::note::AttemptOutput};

    #[test]
    fn flagged_decisions_stand_out() {
        let conflict = |flagged| json!({"artifactKey": "k", "detail": "two\nsizes", "flaggedForHuman": flagged});
        let work = AttemptOutput {
            conflicts: vec![conflict(false), conflict(true)],
            ..AttemptOutput::default()
        };
        let pieces = decision_blocks(&AttemptState {
            delivery: AttemptDelivery {
                output: Some(Arc::new(work)),
                ..AttemptDelivery::default()
            },
            ..AttemptState::default()
        });
        let shown = |piece: &DocumentBlock| match piece {
            DocumentBlock::Spans { runs, .. } => runs
                .get(1)
                .map(|(role, text)| (*role == StyleRole::Warning, text.clone())),
            _ => None,
        };
        let facts: Vec<(bool, String)> = pieces.iter().filter_map(shown).collect();
        assert!(
            facts[0].0 && facts[0].1.ends_with("two ⏎ sizes [flagged for a person]"),
            "{facts:?}"
        );
        assert!(!facts[1].0 && facts.len() == 2, "{facts:?}");
        assert!(decision_blocks(&AttemptState::default()).is_empty());
    }
}
