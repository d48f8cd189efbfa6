//! One JSON document about a whole run, with everything that a dashboard shows. Pure.
//!
//! `assets/run-report.schema.json` describes it. Unknown values are null; a unit has only facts that the tape contains. KTX's
//! report, one object per connection, is in `snapshot`.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{
    ReportContext,
    snapshot::{quality_json, tool_use},
};
use ingestdeck_core::{
    run::{
        RunOutcome, RunReport,
        artifacts::{ArtifactWriter, RunArtifact},
        quality::RunQuality,
        report::{AttemptReport, FailedCallReport, UnitReport},
        saved_commits::{commits_json, saved_commits},
        spending::CostFigure,
        state::TokenCounts,
        trace::trace_path,
    },
    tape::{Millis, UnitKey, note::RunPlanned},
};

/// Version of the document.
const VERSION: u64 = 1;

/// The document about a run.
pub(super) fn document(report: &RunReport, context: &ReportContext) -> Value {
    let header = report.origin.header.as_ref();
    let planned = report.planned.as_deref();
    let has_ended = !matches!(
        report.outcome,
        RunOutcome::Running | RunOutcome::Interrupted
    );
    let reviewed_by = match report.outcome {
        RunOutcome::Reviewed(by) => Some(by),
        _ => None,
    };
    json!({
        "v": VERSION,
        "type": "run_report",
        "run": header.map(|header| header.run),
        "project": header.and_then(|header| header.project.as_deref()),
        "program": header.map(|header| header.program.as_str()),
        "scripted": report.is_scripted(),
        "job": report.job(),
        "started_at": report.origin.started_at.map(|at| format!("{at:.3}")),
        "ended_at": wall_clock(report, report.duration).filter(|_| has_ended),
        "duration_ms": report.duration.0,
        "outcome": report.outcome.as_str(),
        "exit_code": context.exit.filter(|_| has_ended).map(|exit| exit.code()),
        "started_by": planned.map(|planned| json!({
            "user": planned.starter.user, "job_url": planned.starter.job_url,
            "traceparent": planned.starter.traceparent,
        })),
        "continues": planned.and_then(|planned| planned.continues.as_ref()).map(|prior| prior.run),
        "reviewed_by": reviewed_by,
        "settings": planned.map(|planned| settings(report, planned)),
        "totals": totals(report),
        "quality": quality_json(&RunQuality::new(report)),
        "failures": report.failure_groups.iter().map(|group| json!({
            "cause": group.cause, "reason": group.reason, "remedy": group.remedy, "units": group.units.len(),
        })).collect::<Vec<_>>(),
        "limits": {
            "count": report.log.limit_count,
            "waits": report.log.limits.iter().map(|wait| json!({
                "at_ms": wait.at.0, "limit": wait.limit, "until": wait.until.and_then(|until| wall_clock(report, until)),
            })).collect::<Vec<_>>(),
        },
        "publication": publication(report),
        "units": report.units.iter().map(|unit| unit_json(report, unit)).collect::<Vec<_>>(),
        "artifacts": report.artifacts.list.iter().map(artifact).collect::<Vec<_>>(),
        "skipped": planned.map(|planned| planned.skipped.iter().map(|left| json!({
            "connection": left.connection, "reason": left.why, "fault": left.fault,
        })).collect::<Vec<_>>()).unwrap_or_default(),
        "warnings": messages(&report.log.messages),
        "more_warnings": report.log.more_messages,
        "lost": {
            "malformed": report.lost.malformed, "unknown": report.lost.unknown,
            "unknown_notes": report.lost.unknown_notes, "torn": report.lost.corrupt_entries,
        },
        "links": {
            "tape": context.tape,
            "trace": report.job().filter(|_| context.is_traced).map(trace_path),
            "branch": report.publication.target_branch,
        },
    })
}

fn wall_clock(report: &RunReport, at: Millis) -> Option<String> {
    report.wall_clock(at).map(|at| format!("{at:.3}"))
}

fn messages(messages: &[(Millis, String)]) -> Vec<Value> {
    messages
        .iter()
        .map(|(at, text)| json!({"at_ms": at.0, "text": text}))
        .collect()
}

fn settings(report: &RunReport, planned: &RunPlanned) -> Value {
    json!({
        "model": planned.model,
        "concurrency": planned.concurrency,
        "step_budget": planned.step_budget,
        "run_budget_usd": planned.run_budget_usd,
        "failure_mode": planned.failure_mode,
        "tool_failures": planned.tool_failures,
        "silence_after_ms": planned.silence_after_ms,
        "review": report.publication.is_reviewed,
        "instructions": planned.instructions,
        "connections": planned.selection.as_ref().map(|selection| &selection.connections),
        "only": planned.selection.as_ref().map(|selection| &selection.only),
        "full": planned.selection.as_ref().map(|selection| selection.full),
    })
}

fn totals(report: &RunReport) -> Value {
    let totals = &report.totals;
    let states: Map<String, Value> = totals
        .statuses
        .iter()
        .map(|(status, count)| (status.as_str().to_owned(), (*count).into()))
        .collect();
    let worked = report.units.iter().map(|unit| unit.spending.active_time.0);
    json!({
        "units": report.units.len(), "states": states, "nothing_written": totals.nothing_written,
        "attempts": totals.attempts, "retries": totals.retries, "turns": totals.turns,
        "tool_calls": totals.calls, "failed_calls": totals.failures, "denied_calls": totals.denials,
        "worked_ms": worked.fold(0, u64::saturating_add),
        "cost_usd": totals.cost, "cost_partial": totals.is_cost_partial,
        "cost_estimate_usd": totals.shown_cost.estimate(),
        "tokens": tokens(totals.tokens),
    })
}

/// How the changes reached the branch, or what keeps them from it.
fn publication(report: &RunReport) -> Value {
    let publication = &report.publication;
    let patches = report.units.iter().flat_map(|unit| &unit.attempts);
    let base = patches
        .filter_map(|attempt| attempt.state.delivery.patch.as_deref())
        .map(|patch| patch.base.as_str())
        .chain(publication.review.iter().map(|it| it.request.base.as_str()))
        .find(|base| !base.is_empty());
    let saved = publication.saved.as_deref();
    let review = publication.review.as_deref().map(|review| {
        let counts = review.counts();
        json!({
            "state": match (review.is_waiting, review.is_saved) {
                (true, _) => "waiting",
                (false, true) => "saved",
                (false, false) => "finished",
            },
            "files": review.files.len(), "open": counts.open, "accepted": counts.accepted, "rejected": counts.rejected,
            "edited": counts.edited, "sent_back": counts.sent_back,
        })
    });
    let blocked = publication.blocked.iter();
    json!({
        "commit_before": base,
        "commit_after": saved.and_then(|saved| saved.commit.as_deref()),
        "branch": saved.and_then(|saved| saved.branch.as_deref()),
        "subject": saved.map(|saved| saved.subject.as_str()),
        "paths": saved.map(|saved| saved.paths.as_slice()).unwrap_or_default(),
        "commits": commits_json(&saved_commits(&report.inputs, publication)),
        "save_error": publication.save_error,
        "blocked": blocked.map(|file| json!({"path": file.path, "reason": file.reason})).collect::<Vec<_>>(),
        "unreconciled": publication.unreconciled,
        "shared_files": report.shared_files.iter()
            .map(|file| json!({"path": file.path, "units": file.units, "merged": file.was_merged})).collect::<Vec<_>>(),
        "review": review,
    })
}

fn unit_json(report: &RunReport, unit: &UnitReport) -> Value {
    let planned = unit.planned.as_deref();
    let output = unit.latest().and_then(AttemptReport::output);
    let is_step = report.reconcile_unit().is_some_and(|it| it.key == unit.key);
    json!({
        "unit": unit.key,
        "kind": if is_step { "reconcile" } else { "unit" },
        "connection": unit.connection(),
        "adapter": unit.adapter(),
        "label": planned.and_then(|planned| planned.label.as_deref()),
        "why": planned.map(|planned| planned.why.as_str()),
        "raw_files": planned.map(|planned| planned.raw_files.as_slice()).unwrap_or_default(),
        "state": unit.status.as_str(),
        "cause": unit.cause,
        "reason": unit.reason,
        "remedy": unit.remedy,
        "saved": unit.is_successful().then_some(!unit.is_unsaved),
        "integration": unit.integration,
        "worked_ms": unit.spending.active_time.0,
        "cost_usd": unit.spending.cost,
        "cost_partial": unit.spending.partial,
        "cost_estimate_usd": unit.spending.shown.estimate(),
        "attempts": unit.attempts.iter().map(|it| attempt(report, it)).collect::<Vec<_>>(),
        "artifacts": unit_artifacts(report, &unit.key),
        "unread": output.map(|output| output.unread.as_slice()).unwrap_or_default(),
        "unmapped": unit.unmapped().iter()
            .map(|file| json!({"path": file.raw_path, "reason": file.reason, "fallback": file.fallback})).collect::<Vec<_>>(),
        "unsourced": output.and_then(|output| output.unsourced.as_ref()).map(Vec::len),
        "dangling": output.and_then(|output| output.dangling.as_ref()).map(Vec::len),
        "nothing_written": unit.has_written_nothing(),
        "warnings": messages(&unit.warnings),
    })
}

fn attempt(report: &RunReport, attempt: &AttemptReport) -> Value {
    let (state, counts) = (&attempt.state, &attempt.state.counts);
    let verdict = state.verdict.as_ref();
    let failed_call = |call: &FailedCallReport| json!({"at_ms": call.at.0, "tool_call_id": call.id, "tool": call.tool, "error": call.error});
    let tools: Map<String, Value> = attempt
        .tools
        .iter()
        .map(|(tool, calls)| (tool.clone(), tool_use(*calls, "cut_short")))
        .collect();
    let (worker, account) = match &attempt.worker {
        Some((name, account)) => (Some(name), account.as_deref()),
        None => (None, None),
    };
    json!({
        "attempt": state.number,
        "outcome": verdict.map(|verdict| verdict.outcome),
        "cause": verdict.map(|verdict| verdict.cause.label()),
        "reason": verdict.map(|verdict| verdict.reason.as_str()),
        "started_at": wall_clock(report, state.started_at),
        "at_ms": state.started_at.0,
        "duration_ms": attempt.duration.0,
        "model": state.setup.model_name(),
        "release": state.setup.release,
        "session": state.setup.session,
        "worker": worker,
        "account": account,
        "continued": state.setup.continued(),
        "turns": counts.turns,
        "cost_usd": counts.cost_usd,
        "cost_estimate_usd": CostFigure::of_attempt(state).estimate(),
        "tokens": tokens(counts.tokens),
        "tool_calls": counts.calls,
        "failed_calls": attempt.failed_calls.iter().map(failed_call).collect::<Vec<_>>(),
        "failed_call_count": counts.failures,
        "denied_call_count": counts.denials,
        "tools": tools,
        "patch": state.delivery.patch_path(),
        "transcript": attempt.transcript(),
    })
}

/// Null if no tokens were counted.
fn tokens(counts: TokenCounts) -> Value {
    if counts == TokenCounts::default() {
        return Value::Null;
    }
    json!({
        "input": counts.input, "output": counts.output, "cache_read": counts.cache_read,
        "cache_write": counts.cache_write, "total": counts.total(),
    })
}

/// The pages and sources that the unit wrote, each with the fate of its last change.
fn unit_artifacts(report: &RunReport, unit: &UnitKey) -> Vec<Value> {
    let written = report.artifacts.list.iter().filter_map(|artifact| {
        let mut writers = artifact.writers.iter().rev();
        Some((artifact, writers.find(|writer| writer.unit == *unit)?))
    });
    let json = |(artifact, writer): (&RunArtifact, &ArtifactWriter)| {
        json!({
            "path": artifact.path, "kind": artifact.target, "change": writer.change, "state": writer.state.label(),
            "reason": writer.reason, "attempt": writer.attempt,
        })
    };
    written.map(json).collect()
}

fn artifact(artifact: &RunArtifact) -> Value {
    let lines = artifact.lines();
    json!({
        "path": artifact.path, "kind": artifact.target, "change": artifact.change, "state": artifact.state.label(),
        "commit": artifact.commit, "review": artifact.review,
        "lines": lines.map(|lines| json!({"added": lines.added, "removed": lines.removed})),
        "unsourced": artifact.unsourced().count(),
        "units": artifact.writers.iter().map(|writer| &writer.unit).collect::<BTreeSet<_>>(),
    })
}
