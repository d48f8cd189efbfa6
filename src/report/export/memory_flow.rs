//! A run as KTX's memory-flow replays, one per connection. Pure.
//!
//! Times are those of the record. Stages of KTX that this program does not have are omitted.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::snapshot::provenance;
use ingestdeck_core::{
    run::{
        RunEvent, RunOutcome, RunReport, SinkEvent,
        event::{ActionDetail, ActionPhase, AgentEvent},
        report::{AttemptReport, UnitReport},
        state::UnitStatus,
    },
    tape::{
        Millis, UnitKey,
        note::{
            AttemptOutcome, DiffCounts,
            attempt_output::{ArtifactTarget, MemoryAction},
        },
    },
};

/// The steps of units, in order.
#[derive(Debug, Default)]
pub(super) struct ReplaySteps(Vec<(Millis, ReplayStep)>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum ReplayStep {
    /// A step of a unit.
    Unit(UnitKey, UnitStep),
    /// All units wait for a limit until this time.
    Wait { until: Millis, limit: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnitStep {
    Started,
    Call,
    /// The attempt is over.
    AttemptFinished(u32),
}

impl ReplaySteps {
    /// Processes the event of an entry.
    pub(super) fn observe(&mut self, emitted: &SinkEvent<'_>) {
        let of_unit = |unit: &str, step| ReplayStep::Unit(UnitKey::from(unit), step);
        let step = match emitted {
            SinkEvent::Unit {
                at,
                unit,
                attempt: attempt @ 1..,
                status,
                ..
            } => match status {
                UnitStatus::Running => (*at, of_unit(unit, UnitStep::Started)),
                status if status.is_finished() => {
                    (*at, of_unit(unit, UnitStep::AttemptFinished(*attempt)))
                }
                _ => return,
            },
            SinkEvent::Agent {
                at,
                unit,
                event: AgentEvent::Action(event),
                ..
            } if event.phase == ActionPhase::Started
                && matches!(event.action.detail, ActionDetail::Tool(_)) =>
            {
                (*at, of_unit(unit, UnitStep::Call))
            }
            // KTX has no wait without an end.
            SinkEvent::Run {
                at,
                change:
                    RunEvent::Paused {
                        until: Some(until),
                        limit,
                    },
            } => (
                *at,
                ReplayStep::Wait {
                    until: *until,
                    limit: (*limit).to_owned(),
                },
            ),
            SinkEvent::Unit { .. }
            | SinkEvent::Agent { .. }
            | SinkEvent::Patch { .. }
            | SinkEvent::Task { .. }
            | SinkEvent::Message { .. }
            | SinkEvent::Run { .. }
            | SinkEvent::Line { .. }
            | SinkEvent::Note { .. } => return,
        };
        // A held call resumes the same attempt; it does not start again.
        self.0.push(step);
    }
}

/// The replays, in KTX's wrapper.
pub(super) fn replays(report: &RunReport, steps: &ReplaySteps) -> Vec<Value> {
    let of = |(connection, adapter)| {
        let is_of =
            |unit: &&UnitReport| (unit.connection(), unit.adapter()) == (connection, adapter);
        let units: Vec<&UnitReport> = report.units.iter().filter(is_of).collect();
        json!({"memoryFlowReplaySchemaVersion": 1, "replay": replay(report, connection, adapter, &units, steps)})
    };
    report.affected_connections().into_iter().map(of).collect()
}

fn replay(
    report: &RunReport,
    connection: Option<&str>,
    adapter: Option<&str>,
    units: &[&UnitReport],
    steps: &ReplaySteps,
) -> Value {
    let status = match report.outcome {
        RunOutcome::Running => "running",
        RunOutcome::Done | RunOutcome::Partial => "done",
        RunOutcome::Error
        | RunOutcome::AgentUnusable
        | RunOutcome::Limit
        | RunOutcome::Stopped
        | RunOutcome::WaitingApproval
        | RunOutcome::Reviewed(_)
        | RunOutcome::Interrupted => "error",
    };
    let errors = units
        .iter()
        .copied()
        .chain(step(report, units))
        .filter(|unit| !unit.is_successful())
        .filter_map(|unit| {
            let reason = unit.reason.as_deref()?;
            Some(format!("{}: {reason}", unit.ktx_key()))
        });
    json!({
        "metadata": {
            "schemaVersion": 1, "mode": "replay", "origin": "captured",
            "timing": if report.origin.has_times { "captured" } else { "not-captured" },
            "capturedAt": report.origin.started_at.map(|at| format!("{at:.3}")),
            "sourceReportId": null, "sourceReportPath": null, "fallbackReason": null,
        },
        "runId": report.origin.name,
        "connectionId": connection.unwrap_or("?"),
        "adapter": adapter.unwrap_or("?"),
        "status": status,
        "sourceDir": null,
        "syncId": report.sync_id().unwrap_or_else(|| "?".into()),
        "errors": errors.collect::<Vec<_>>(),
        "events": events(report, connection, adapter, units, steps),
        "plannedWorkUnits": units.iter().map(|unit| planned(unit)).collect::<Vec<_>>(),
        "details": {
            "actions": units.iter().flat_map(|unit| actions(unit)).collect::<Vec<_>>(),
            "provenance": [],
            "transcripts": units.iter().filter_map(|unit| transcript(unit)).collect::<Vec<_>>(),
        },
    })
}

fn planned(unit: &UnitReport) -> Value {
    let planned = unit.planned.as_ref();
    json!({
        "unitKey": unit.ktx_key(),
        "rawFiles": planned.map(|planned| planned.raw_files.as_slice()).unwrap_or_default(),
        "peerFileCount": planned.and_then(|planned| planned.peer_files).unwrap_or_default(),
        "dependencyCount": planned.map_or(0, |planned| planned.dependency_paths.len()),
    })
}

fn events(
    report: &RunReport,
    connection: Option<&str>,
    adapter: Option<&str>,
    units: &[&UnitReport],
    steps: &ReplaySteps,
) -> Vec<Value> {
    let mut events = Vec::new();
    let mut push = |at: Millis, mut event: Value| {
        if let Some(time) = report.wall_clock(at) {
            event["emittedAt"] = format!("{time:.3}").into();
        }
        events.push(event);
    };
    if report.planned.is_some() {
        push_source_events(report, connection, adapter.unwrap_or("?"), units, &mut push);
    }
    let places: HashMap<&UnitKey, usize> = units
        .iter()
        .enumerate()
        .map(|(place, unit)| (&unit.key, place))
        .collect();
    let mut calls = vec![0_u64; units.len()];
    let mut running = vec![false; units.len()];
    // Later changes of a unit do not finish its attempt again.
    let mut ended = vec![0; units.len()];
    for (at, step) in &steps.0 {
        let (key, step) = match step {
            ReplayStep::Unit(key, step) => (key, step),
            ReplayStep::Wait { until, limit } => {
                push_wait(report, *at, *until, limit, &mut push);
                continue;
            }
        };
        let Some(place) = places.get(key).copied() else {
            push_reconciliation(report, *at, key, *step, connection, &mut push);
            continue;
        };
        match step {
            UnitStep::Started if running[place] => {}
            UnitStep::Started => {
                (running[place], calls[place]) = (true, 0);
                let mut skills = units[place]
                    .attempts
                    .iter()
                    .rev()
                    .map(AttemptReport::skills);
                let skills = skills.find(|skills| !skills.is_empty()).unwrap_or_default();
                let key = units[place].ktx_key();
                push(
                    *at,
                    json!({"type": "work_unit_started", "unitKey": key, "skills": skills}),
                );
            }
            UnitStep::Call => {
                calls[place] += 1;
                let key = units[place].ktx_key();
                push(
                    *at,
                    json!({"type": "work_unit_step", "unitKey": key, "toolCalls": calls[place]}),
                );
            }
            UnitStep::AttemptFinished(attempt) if ended[place] >= *attempt => {}
            UnitStep::AttemptFinished(attempt) => {
                (running[place], ended[place]) = (false, *attempt);
                push_unit_finished(*at, units[place], *attempt, &mut push);
            }
        }
    }
    let step = report.reconcile_step_of(connection);
    let step = step.as_ref().filter(|step| !places.contains_key(&step.key));
    let saved: Vec<MemoryAction> = units
        .iter()
        .copied()
        .chain(step)
        .flat_map(UnitReport::actions)
        .collect();
    if report.outcome != RunOutcome::Running
        && (report.publication.saved.is_some() || !saved.is_empty())
    {
        let count = |target| {
            saved
                .iter()
                .filter(|action| action.target == target)
                .count()
        };
        let commit = report
            .publication
            .saved
            .as_ref()
            .and_then(|saved| saved.commit.as_deref());
        let (wiki, sl) = (
            count(ArtifactTarget::Wiki),
            count(ArtifactTarget::SemanticLayer),
        );
        push(
            report.duration,
            json!({"type": "saved", "commitSha": commit, "wikiCount": wiki, "slCount": sl}),
        );
        let rows = provenance(units, step, connection).len();
        push(
            report.duration,
            json!({"type": "provenance_recorded", "rowCount": rows}),
        );
    }
    if report.planned.is_some() && report.outcome != RunOutcome::Running {
        push(
            report.duration,
            json!({"type": "report_created", "runId": report.origin.name}),
        );
    }
    events
}

/// The reconcile step, unless it is one of `units`.
fn step<'a>(report: &'a RunReport, units: &[&UnitReport]) -> Option<&'a UnitReport> {
    report
        .reconcile_unit()
        .filter(|step| units.iter().all(|unit| unit.key != step.key))
}

/// KTX's events about a source before its units run.
fn push_source_events(
    report: &RunReport,
    connection: Option<&str>,
    adapter: &str,
    units: &[&UnitReport],
    push: &mut impl FnMut(Millis, Value),
) {
    let source = report.source(connection, Some(adapter));
    let planned = units.iter().filter_map(|unit| unit.planned.as_ref());
    let of_units: u64 = planned.map(|unit| unit.raw_files.len() as u64).sum();
    let files = source.map_or(of_units, |source| {
        let DiffCounts {
            added,
            modified,
            deleted: _,
            unchanged,
        } = source.diff;
        added.saturating_add(modified).saturating_add(unchanged)
    });
    let mut events = vec![
        json!({"type": "source_acquired", "adapter": adapter, "trigger": "manual_resync", "fileCount": files}),
        json!({"type": "scope_detected", "fingerprint": null}),
    ];
    if let Some(source) = source {
        let sync = report.sync_id().unwrap_or_else(|| "?".into());
        let DiffCounts {
            added,
            modified,
            deleted,
            unchanged,
        } = source.diff;
        events.push(json!({"type": "raw_snapshot_written", "syncId": sync, "rawFileCount": files}));
        events.push(json!({
            "type": "diff_computed", "added": added, "modified": modified, "deleted": deleted, "unchanged": unchanged,
        }));
    }
    let (count, evictions) = (units.len(), source.map_or(0, |source| source.deleted.len()));
    events.push(
        json!({"type": "chunks_planned", "chunkCount": count, "workUnitCount": count, "evictionCount": evictions}),
    );
    events.into_iter().for_each(|event| push(Millis(0), event));
}

/// The wait of the whole run, if the record has times for KTX's countdown.
fn push_wait(
    report: &RunReport,
    at: Millis,
    until: Millis,
    limit: &str,
    push: &mut impl FnMut(Millis, Value),
) {
    let Some(resume) = report.wall_clock(until) else {
        return;
    };
    let wait = json!({
        "type": "rate_limit_wait", "provider": "claude-subscription", "rateLimitType": limit,
        "resumeAtMs": resume.as_millisecond(), "remainingMs": until.since(at).0,
    });
    push(at, wait);
}

/// The end of the last reconcile attempt: its changes in the connection.
fn push_reconciliation(
    report: &RunReport,
    at: Millis,
    key: &UnitKey,
    event: UnitStep,
    connection: Option<&str>,
    push: &mut impl FnMut(Millis, Value),
) {
    let Some(step) = report.reconcile_unit().filter(|step| step.key == *key) else {
        return;
    };
    if step
        .latest()
        .is_none_or(|last| event != UnitStep::AttemptFinished(last.state.number))
    {
        return;
    }
    let Some(step) = report.reconcile_step_of(connection) else {
        return;
    };
    let (conflicts, fallbacks) = step
        .work()
        .map_or((0, 0), |work| (work.conflicts.len(), work.unmapped.len()));
    push(
        at,
        json!({"type": "reconciliation_finished", "conflictCount": conflicts, "fallbackCount": fallbacks}),
    );
}

/// The end of an attempt at a unit. The actions of the unit follow its last attempt.
fn push_unit_finished(
    at: Millis,
    unit: &UnitReport,
    attempt: u32,
    push: &mut impl FnMut(Millis, Value),
) {
    let is_last = unit
        .latest()
        .is_some_and(|latest| latest.state.number == attempt);
    let attempt = unit
        .attempts
        .iter()
        .find(|known| known.state.number == attempt);
    let verdict = attempt.and_then(|attempt| attempt.state.verdict.as_ref());
    let counted = verdict.is_some_and(|verdict| verdict.outcome == AttemptOutcome::Succeeded);
    if is_last && unit.is_successful() {
        for action in unit.actions() {
            let action = json!({
                "type": "candidate_action", "unitKey": unit.ktx_key(), "target": action.target, "action": action.change,
                "key": action.key,
            });
            push(at, action);
        }
    }
    if counted || (is_last && unit.is_successful()) {
        return push(
            at,
            json!({"type": "work_unit_finished", "unitKey": unit.ktx_key(), "status": "success"}),
        );
    }
    let reason = verdict
        .map(|verdict| verdict.reason.as_str())
        .or(unit.reason.as_deref())
        .unwrap_or("?");
    push(
        at,
        json!({"type": "work_unit_finished", "unitKey": unit.ktx_key(), "status": "failed", "reason": reason}),
    );
}

fn actions(unit: &UnitReport) -> Vec<Value> {
    let raw_files = unit
        .planned
        .as_ref()
        .map(|planned| planned.raw_files.clone())
        .unwrap_or_default();
    let action = |action: MemoryAction| {
        json!({
            "unitKey": unit.ktx_key(), "target": action.target, "action": action.change, "key": action.key,
            "summary": action.detail, "rawFiles": action.raw_paths.as_ref().unwrap_or(&raw_files), "status": "success",
        })
    };
    unit.actions().into_iter().map(action).collect()
}

fn transcript(unit: &UnitReport) -> Option<Value> {
    let path = unit
        .attempts
        .iter()
        .rev()
        .find_map(|attempt| attempt.transcript())?;
    let calls: u64 = unit
        .attempts
        .iter()
        .map(|attempt| u64::from(attempt.state.counts.calls))
        .sum();
    let errors: u64 = unit
        .attempts
        .iter()
        .map(|attempt| u64::from(attempt.state.counts.failures))
        .sum();
    let mut names: Vec<&String> = unit
        .attempts
        .iter()
        .flat_map(|attempt| attempt.tools.keys())
        .collect();
    names.sort_unstable();
    names.dedup();
    Some(
        json!({"unitKey": unit.ktx_key(), "path": path, "toolCallCount": calls, "errorCount": errors, "toolNames": names}),
    )
}
