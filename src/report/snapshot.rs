//! A report in KTX's format, one snapshot per connection, as its validator accepts it. Pure.
//!
//! Facts without a field in KTX's format are under `body.ingestdeck`, which its reader passes through. Unknown values
//! are absent or null; unknown names that the format requires are `?`.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use ingestdeck_core::{
    run::{
        RunOutcome, RunReport,
        quality::{QualityFigure, RunQuality},
        report::{AttemptReport, FailedCallReport, ToolCallCounts, UnitReport},
        saved_commits::{commits_json, saved_commits},
        spending::{CostFigure, sum_costs},
        state::{TokenCounts, UnitStatus},
        trace::trace_path,
    },
    tape::note::{
        DiffCounts, PatchResult, SlRefRepair, SourceRead,
        attempt_output::{ArtifactChange, ArtifactTarget, MemoryAction, UnmappedFile},
    },
};

/// Reasons that KTX's validator accepts. Two reasons that KTX's tool offers are missing and would invalidate the
/// whole report.
pub(super) const VALID_REASONS: [&str; 8] = [
    "no_connection_mapping",
    "looker_template_unresolved",
    "derived_table_not_supported",
    "no_physical_table",
    "multiple_table_references",
    "unsupported_dialect",
    "parse_error",
    "missing_target_table",
];

/// One snapshot for each connection of the run, in plan order.
pub(super) fn snapshots(report: &RunReport, traced: bool) -> Vec<Value> {
    let of = |(connection, adapter)| {
        let is_step = |unit: &UnitReport| {
            report
                .reconcile_unit()
                .is_some_and(|step| step.key == unit.key)
        };
        let is_of = |unit: &&UnitReport| {
            (unit.connection(), unit.adapter()) == (connection, adapter) && !is_step(unit)
        };
        let units: Vec<&UnitReport> = report.units.iter().filter(is_of).collect();
        snapshot(report, connection, adapter, &units, traced)
    };
    report.affected_connections().into_iter().map(of).collect()
}

/// KTX's rule for the outcome of a report.
pub(super) fn outcome(units: &[&UnitReport], failed: bool) -> &'static str {
    if failed {
        "error"
    } else if units
        .iter()
        .all(|unit| unit.is_successful() && !unit.is_unsaved)
    {
        "done"
    } else if units.iter().any(|unit| !unit.actions().is_empty()) {
        "partial"
    } else {
        "error"
    }
}

fn snapshot(
    report: &RunReport,
    connection: Option<&str>,
    adapter: Option<&str>,
    units: &[&UnitReport],
    traced: bool,
) -> Value {
    let job = report.job();
    let aborted = report.outcome == RunOutcome::Error
        && report
            .planned
            .as_ref()
            .is_some_and(|planned| planned.failure_mode == "abort");
    let failure = failure(report, units, aborted);
    let mut body = Map::new();
    let status = match report.outcome {
        _ if failure.is_some() => Some("failed"),
        RunOutcome::Done | RunOutcome::Partial | RunOutcome::Error => Some("completed"),
        RunOutcome::Running
        | RunOutcome::AgentUnusable
        | RunOutcome::Limit
        | RunOutcome::Stopped
        | RunOutcome::WaitingApproval
        | RunOutcome::Reviewed(_)
        | RunOutcome::Interrupted => None,
    };
    if let Some(status) = status {
        body.insert("status".into(), status.into());
    }
    body.insert(
        "syncId".into(),
        report.sync_id().unwrap_or_else(|| "?".into()).into(),
    );
    let source = report.source(connection, adapter);
    body.insert("diffSummary".into(), diff(source, units));
    body.insert(
        "commitSha".into(),
        json!(
            report
                .publication
                .saved
                .as_ref()
                .and_then(|saved| saved.commit.as_deref())
        ),
    );
    let commits = saved_commits(&report.inputs, &report.publication);
    if !commits.is_empty() {
        body.insert("commits".into(), commits_json(&commits));
    }
    if let (Some(job), true) = (job, traced) {
        body.insert("tracePath".into(), trace_path(job).into());
    }
    let is_failed = failure.is_some();
    if let Some((phase, message)) = failure {
        body.insert(
            "failure".into(),
            json!({"phase": phase, "message": message}),
        );
    }
    let projected = report
        .inputs
        .projected
        .iter()
        .find(|projected| projected.is_of(connection));
    let wrote = projected.filter(|projected| !projected.actions.is_empty());
    let projection = wrote.and_then(|projected| projected.commit.as_deref());
    if let Some(isolated) = isolated_diff(units, projection) {
        body.insert("isolatedDiff".into(), isolated);
    }
    body.insert(
        "workUnits".into(),
        units.iter().map(|unit| work_unit(unit)).collect(),
    );
    let failed = units
        .iter()
        .filter(|unit| !unit.is_successful())
        .map(|unit| Value::from(unit.ktx_key().as_str()));
    body.insert("failedWorkUnits".into(), failed.collect());
    let step = report.reconcile_step_of(connection);
    let step = step.as_ref();
    body.insert("reconciliationSkipped".into(), step.is_none().into());
    let reconciled = step.map(|step| step.actions().iter().map(action).collect::<Vec<_>>());
    body.insert(
        "reconciliationActions".into(),
        json!(reconciled.unwrap_or_default()),
    );
    let decided = step.and_then(UnitReport::work);
    let conflicts = decided.into_iter().flat_map(|work| &work.conflicts);
    body.insert(
        "conflictsResolved".into(),
        conflicts
            .map(|conflict| with_ktx_key(conflict, report))
            .collect(),
    );
    let evictions = decided
        .map(|work| in_connection(&work.evictions, connection))
        .unwrap_or_default();
    // KTX lists only evictions that removed something; `evictionDecisions` has all of them.
    let removed: Vec<&Value> = evictions
        .iter()
        .filter(|decision| decision["action"] == "removed")
        .collect();
    body.insert("evictionsApplied".into(), json!(removed));
    body.insert("evictionDecisions".into(), json!(evictions));
    let resolutions = decided.map(|work| in_connection(&work.resolutions, connection));
    body.insert(
        "artifactResolutions".into(),
        json!(resolutions.unwrap_or_default()),
    );
    let by_step = decided
        .map(|work| unmapped_in_connection(&work.unmapped, connection))
        .unwrap_or_default();
    let unmapped: Vec<&UnmappedFile> = units
        .iter()
        .flat_map(|unit| unit.unmapped())
        .chain(&by_step)
        .collect();
    let valid = unmapped
        .iter()
        .filter(|file| VALID_REASONS.contains(&file.reason.as_str()));
    body.insert(
        "unmappedFallbacks".into(),
        valid.map(|file| json!(file)).collect(),
    );
    body.insert(
        "evictionInputs".into(),
        json!(
            source
                .map(|source| source.deleted.as_slice())
                .unwrap_or_default()
        ),
    );
    body.insert("unresolvedCards".into(), json!([]));
    for unknown in ["supersededBy", "overrideOf"] {
        body.insert(unknown.into(), Value::Null);
    }
    body.insert(
        "provenanceRows".into(),
        provenance(units, step, connection).into(),
    );
    body.insert(
        "toolTranscripts".into(),
        units
            .iter()
            .copied()
            .chain(step)
            .filter_map(transcript)
            .collect(),
    );
    let repairs = report.sl_ref_repairs_of(connection);
    let (repairs, warnings): (Vec<Value>, Vec<String>) = repairs
        .iter()
        .map(|repair| (sl_ref_repair(repair), repair.to_string()))
        .unzip();
    body.insert("wikiSlRefRepairs".into(), repairs.into());
    body.insert("wikiSlRefRepairWarnings".into(), warnings.into());
    let is_step_open = units.is_empty() && step.is_some_and(|step| !step.is_successful());
    let mut extras = extras(
        report,
        units,
        &unmapped,
        outcome(units, is_failed || is_step_open),
    );
    let own = connection.and_then(|connection| report.clone().into_connection(connection).ok());
    extras["quality"] = quality_json(&RunQuality::new(own.as_ref().unwrap_or(report)));
    if let Some(projected) = projected {
        extras["projection"] = json!({
            "actions": projected.actions.iter().map(action).collect::<Vec<_>>(), "leftOut": projected.left_out,
            "reason": projected.reason,
        });
    }
    body.insert("ingestdeck".into(), extras);
    json!({
        "id": format!("{}/{}", report.origin.name, connection.unwrap_or("?")),
        "runId": report.origin.name,
        "jobId": job.unwrap_or("?"),
        "connectionId": connection.unwrap_or("?"),
        "sourceKey": adapter.unwrap_or("?"),
        "createdAt": created(report),
        "body": body,
    })
}

/// Why the job as a whole failed, and in which phase.
fn failure<'a>(
    report: &'a RunReport,
    units: &[&'a UnitReport],
    aborted: bool,
) -> Option<(&'static str, &'a str)> {
    if let Some(unsaved) = &report.publication.save_error {
        return Some(("squash", unsaved));
    }
    let failed = |unit: &&UnitReport| unit.status == UnitStatus::Failed;
    if let Some(pass) = report
        .reconcile_unit()
        .filter(|pass| units.is_empty() && failed(pass))
    {
        return Some((
            "reconciliation",
            pass.reason.as_deref().unwrap_or("no reason is on record"),
        ));
    }
    aborted.then(|| {
        let own = units
            .iter()
            .copied()
            .find(failed)
            .map(|unit| ("work_units", unit.reason.as_deref()));
        let is_pass = |unit: &UnitReport| {
            report
                .reconcile_unit()
                .is_some_and(|pass| pass.key == unit.key)
        };
        let of_others = || {
            report
                .units
                .iter()
                .filter(|unit| !is_pass(unit))
                .any(|unit| failed(&unit))
        };
        let pass = || {
            report
                .reconcile_unit()
                .filter(failed)
                .filter(|_| !of_others())
        };
        let (phase, reason) = own
            .or_else(|| pass().map(|pass| ("reconciliation", pass.reason.as_deref())))
            .unwrap_or((
                "work_units",
                Some("a unit of another connection failed, and the failure mode is abort"),
            ));
        (phase, reason.unwrap_or("no reason is on record"))
    })
}

/// The results of the patches, if attempts produce patches.
fn isolated_diff(units: &[&UnitReport], projection: Option<&str>) -> Option<Value> {
    let patches = || {
        units
            .iter()
            .filter_map(|unit| unit.latest()?.state.delivery.patch.as_deref())
    };
    let has_patch = |unit: &&UnitReport| unit.prior_work.is_some() || unit.integration.is_some();
    if patches().next().is_none() && !units.iter().any(has_patch) && projection.is_none() {
        return None;
    }
    let count = |wanted: &[PatchResult]| {
        units
            .iter()
            .filter(|unit| {
                unit.integration
                    .is_some_and(|found| wanted.contains(&found))
            })
            .count()
    };
    let mut isolated = json!({
        "enabled": true,
        "acceptedPatches": count(&[PatchResult::Accepted, PatchResult::Noop]),
        "textualConflicts": count(&[PatchResult::TextualConflict, PatchResult::ForbiddenPaths, PatchResult::PatchUnreadable]),
        "semanticConflicts": count(&[PatchResult::SemanticConflict]),
        "resolverAttempts": 0, "resolverRepairs": 0, "resolverFailures": 0,
    });
    if let Some(commit) = projection {
        isolated["projectionSha"] = commit.into();
    }
    // Patches of a prior run have the base of that run.
    if let Some(patch) = patches().next() {
        isolated["ingestionBaseSha"] = patch.base.as_str().into();
    }
    Some(isolated)
}

/// The time of the last entry, so that the same record gives the same report.
fn created(report: &RunReport) -> String {
    report
        .wall_clock(report.duration)
        .or(report.origin.started_at)
        .map_or_else(|| "?".into(), |at| format!("{at:.3}"))
}

/// The comparison of the files with prior runs. Runs of older versions did not compare: all files were new to them.
fn diff(source: Option<&SourceRead>, units: &[&UnitReport]) -> Value {
    if let Some(source) = source {
        let DiffCounts {
            added,
            modified,
            deleted,
            unchanged,
        } = source.diff;
        return json!({"added": added, "modified": modified, "deleted": deleted, "unchanged": unchanged});
    }
    let planned = units.iter().filter_map(|unit| unit.planned.as_ref());
    let files: BTreeSet<&String> = planned.flat_map(|planned| &planned.raw_files).collect();
    json!({"added": files.len(), "modified": 0, "deleted": 0, "unchanged": 0})
}

fn work_unit(unit: &UnitReport) -> Value {
    let actions = unit.actions();
    let own = unit.connection().unwrap_or("?");
    let mut touched: Vec<(&str, &str)> = Vec::new();
    for action in actions
        .iter()
        .filter(|action| action.target == ArtifactTarget::SemanticLayer && !action.key.is_empty())
    {
        let source = (
            action.target_connection_id.as_deref().unwrap_or(own),
            action.key.as_str(),
        );
        if !touched.contains(&source) {
            touched.push(source);
        }
    }
    let mut value = json!({
        "unitKey": unit.ktx_key(),
        "rawFiles": unit.planned.as_ref().map(|planned| planned.raw_files.as_slice()).unwrap_or_default(),
        "status": if unit.is_successful() { "success" } else { "failed" },
    });
    if !unit.is_successful() {
        value["reason"] = reason(unit).into();
    }
    if let Some(why) = unit
        .planned
        .as_ref()
        .and_then(|planned| planned.sl_disallowed.as_deref())
    {
        value["slDisallowed"] = true.into();
        // The only reason that KTX's validator accepts.
        if why == "lookml_connection_mismatch" {
            value["slDisallowedReason"] = why.into();
        }
    }
    value["actions"] = actions.iter().map(action).collect();
    value["touchedSlSources"] = touched
        .into_iter()
        .map(|(connection, source)| json!({"connectionId": connection, "sourceName": source}))
        .collect();
    value
}

/// A conflict with KTX's key of its unit, which may belong to a prior run.
fn with_ktx_key(conflict: &Value, report: &RunReport) -> Value {
    let mut conflict = conflict.clone();
    let mut planned = report.planned.iter().flat_map(|plan| &plan.units);
    let named = conflict["unitKey"]
        .as_str()
        .and_then(|named| planned.find(|unit| unit.unit.as_str() == named));
    if let Some(unit) = named {
        conflict["unitKey"] = json!(unit.ktx_key());
    }
    conflict
}

/// The path of `connection/path`, if it belongs to that connection.
fn path_in<'a>(path: &'a str, connection: Option<&str>) -> Option<&'a str> {
    path.strip_prefix(connection?)?.strip_prefix('/')
}

/// Decisions of the reconcile step, with the paths that KTX uses in the report of one connection.
fn in_connection(decisions: &[Value], connection: Option<&str>) -> Vec<Value> {
    let shortened = |decision: &Value| {
        let mut decision = decision.clone();
        if let Some(path) = decision["rawPath"]
            .as_str()
            .and_then(|path| path_in(path, connection))
        {
            decision["rawPath"] = path.to_owned().into();
        }
        decision
    };
    decisions.iter().map(shortened).collect()
}

fn action(action: &MemoryAction) -> Value {
    let mut value = json!(action);
    value["targetConnectionId"] = json!(action.target_connection_id);
    value
}

fn sl_ref_repair(repair: &SlRefRepair) -> Value {
    let mut value = json!(repair);
    value["scope"] = if repair.scope_id.is_some() {
        "USER"
    } else {
        "GLOBAL"
    }
    .into();
    value
}

/// KTX has success and failure only, so the reason states that a unit is not finished.
fn reason(unit: &UnitReport) -> String {
    match (&unit.reason, unit.status) {
        (Some(reason), _) => reason.clone(),
        (None, UnitStatus::Queued | UnitStatus::NotStarted) => "it was not run".into(),
        (
            None,
            UnitStatus::Running | UnitStatus::Silent | UnitStatus::Held | UnitStatus::Waiting,
        ) => "it is still running".into(),
        (None, status) => status.as_str().into(),
    }
}

/// As [`in_connection`], for raw files that the reconcile step could not map.
fn unmapped_in_connection(files: &[UnmappedFile], connection: Option<&str>) -> Vec<UnmappedFile> {
    let shortened = |file: &UnmappedFile| {
        let raw_path = path_in(&file.raw_path, connection)
            .unwrap_or(&file.raw_path)
            .to_owned();
        UnmappedFile {
            raw_path,
            ..file.clone()
        }
    };
    files.iter().map(shortened).collect()
}

/// The provenance of a connection, as KTX records it: the results of its units' raw files, the changes and merges of
/// the reconcile step, and files of successful units without results.
pub(super) fn provenance(
    units: &[&UnitReport],
    step: Option<&UnitReport>,
    connection: Option<&str>,
) -> Vec<Value> {
    // Prior runs have separate reports, and unpublished results belong to no report.
    let is_own = |unit: &UnitReport| {
        unit.is_successful()
            && !unit.is_unsaved
            && (unit.status != UnitStatus::Reused || unit.prior_work.is_some())
    };
    let own = units.iter().filter(|unit| is_own(unit));
    let planned: Vec<_> = own
        .filter_map(|unit| Some((unit, &unit.planned.as_ref()?.raw_files)))
        .collect();
    let mut rows = Vec::new();
    for (unit, raw_files) in &planned {
        for action in unit.actions() {
            let named = action.raw_paths.as_ref().filter(|paths| !paths.is_empty());
            let paths: BTreeSet<&String> = named.unwrap_or(raw_files).iter().collect();
            rows.extend(
                paths
                    .into_iter()
                    .map(|path| action_row(path, &action, connection)),
            );
        }
    }
    for action in step.map(UnitReport::actions).unwrap_or_default() {
        let paths: BTreeSet<&str> = action
            .raw_paths
            .iter()
            .flatten()
            .filter_map(|path| path_in(path, connection))
            .collect();
        rows.extend(
            paths
                .into_iter()
                .map(|path| action_row(path, &action, connection)),
        );
    }
    let merged = step.filter(|step| is_own(step)).and_then(UnitReport::work);
    let merged = merged.into_iter().flat_map(|work| &work.resolutions);
    rows.extend(merged.filter_map(|resolution| resolution_row(resolution, connection)));
    let used: BTreeSet<String> = rows
        .iter()
        .filter_map(|row| Some(row["rawPath"].as_str()?.to_owned()))
        .collect();
    let unused = planned
        .iter()
        .flat_map(|(_, raw_files)| *raw_files)
        .filter(|path| !used.contains(*path));
    rows.extend(unused.map(|path| {
        json!({"rawPath": path, "artifactKind": null, "artifactKey": null, "targetConnectionId": null, "actionType": "skipped"})
    }));
    rows
}

/// KTX has no action for removals and records them as changes.
fn action_row(path: &str, action: &MemoryAction, connection: Option<&str>) -> Value {
    let (kind, target) = match (action.target, action.change) {
        (ArtifactTarget::Wiki, _) => ("wiki_written", None),
        (ArtifactTarget::SemanticLayer, ArtifactChange::Created) => (
            "source_created",
            action.target_connection_id.as_deref().or(connection),
        ),
        (ArtifactTarget::SemanticLayer, _) => (
            "measure_added",
            action.target_connection_id.as_deref().or(connection),
        ),
    };
    json!({
        "rawPath": path, "artifactKind": action.target, "artifactKey": action.key, "targetConnectionId": target,
        "actionType": kind,
    })
}

/// The row of a page or source that was merged into another one or replaced by it.
fn resolution_row(resolution: &Value, connection: Option<&str>) -> Option<Value> {
    let path = path_in(resolution["rawPath"].as_str()?, connection)?;
    let kind = resolution["actionType"]
        .as_str()
        .filter(|kind| ["merged", "subsumed"].contains(kind))?;
    Some(json!({
        "rawPath": path, "artifactKind": resolution["artifactKind"], "artifactKey": resolution["artifactKey"],
        "targetConnectionId": null, "actionType": kind,
    }))
}

fn transcript(unit: &UnitReport) -> Option<Value> {
    let path = unit
        .attempts
        .iter()
        .rev()
        .find_map(|attempt| attempt.transcript())?;
    let sum = |count: fn(&AttemptReport) -> u32| {
        unit.attempts
            .iter()
            .map(|attempt| u64::from(count(attempt)))
            .sum()
    };
    let (calls, errors): (u64, u64) = (
        sum(|attempt| attempt.state.counts.calls),
        sum(|attempt| attempt.state.counts.failures),
    );
    let names: BTreeSet<&String> = unit
        .attempts
        .iter()
        .flat_map(|attempt| attempt.tools.keys())
        .collect();
    let fatal: Option<u64> = unit
        .attempts
        .iter()
        .map(|attempt| attempt.output()?.fatal_failures.map(u64::from))
        .sum();
    Some(json!({
        "unitKey": unit.ktx_key(), "path": path, "toolCallCount": calls, "errorCount": errors,
        "fatalErrorCount": fatal, "toolNames": names,
    }))
}

/// Facts without a field in KTX's format.
fn extras(
    report: &RunReport,
    units: &[&UnitReport],
    unmapped: &[&UnmappedFile],
    outcome: &str,
) -> Value {
    let header = report.origin.header.as_ref();
    let mut extras = json!({
        "v": 1,
        "program": header.map(|header| header.program.as_str()),
        "project": header.and_then(|header| header.project.as_deref()),
        "scripted": report.is_scripted(),
        "outcome": outcome,
        "runOutcome": report.outcome.as_str(),
        "startedAt": report.origin.started_at.map(|at| format!("{at:.3}")),
        "durationMs": report.duration.0,
        "toolFailures": report.planned.as_ref().map(|planned| planned.tool_failures.as_str()),
        "failureMode": report.planned.as_ref().map(|planned| planned.failure_mode.as_str()),
        "costUsd": sum_costs(units.iter().filter_map(|unit| unit.spending.cost)),
        "costPartial": units.iter().any(|unit| unit.spending.partial),
        "units": units.iter().map(|unit| unit_extras(report, unit)).collect::<Vec<_>>(),
        "unmapped": unmapped,
        "sharedFiles": report.shared_files.iter()
            .map(|file| json!({"path": file.path, "units": file.units, "merged": file.was_merged})).collect::<Vec<_>>(),
        "remarks": report.log.messages.iter().map(|(at, text)| json!({"at": at.0, "text": text})).collect::<Vec<_>>(),
        "lost": {
            "malformed": report.lost.malformed, "unknown": report.lost.unknown,
            "unknownNotes": report.lost.unknown_notes, "torn": report.lost.corrupt_entries,
        },
    });
    let attempts = units.iter().flat_map(|unit| &unit.attempts);
    let cost = CostFigure::of(attempts.map(|attempt| &attempt.state));
    put_estimate(&mut extras, cost);
    if let Some(step) = report.reconcile_unit() {
        extras["reconcile"] = unit_extras(report, step);
    }
    extras
}

/// Adds the estimate of a cost, if there is one.
fn put_estimate(extras: &mut Value, cost: CostFigure) {
    if let Some(estimate) = cost.estimate() {
        extras["costEstimateUsd"] = json!(estimate);
    }
}

/// The figures of a run; null if they are unknown.
pub(super) fn quality_json(quality: &RunQuality) -> Value {
    QualityFigure::ALL
        .iter()
        .map(|figure| (figure.key().to_owned(), number(quality.value(*figure))))
        .collect()
}

/// A number without a fraction is an integer.
fn number(value: Option<f64>) -> Value {
    match value {
        #[expect(clippy::cast_possible_truncation, reason = "counts are far below 2^52")]
        Some(whole) if whole.fract() == 0.0 => (whole as i64).into(),
        value => json!(value),
    }
}

/// One unit in reports and comparisons for programs.
pub(super) fn unit_extras(report: &RunReport, unit: &UnitReport) -> Value {
    let mut extras = json!({
        "unitKey": unit.ktx_key(),
        "state": unit.status.as_str(),
        "cause": unit.cause,
        "reason": unit.reason,
        "remedy": unit.remedy,
        "workedMs": unit.spending.active_time.0,
        "costUsd": unit.spending.cost,
        "attempts": unit.attempts.iter().map(|attempt| attempt_extras(report, attempt)).collect::<Vec<_>>(),
    });
    put_estimate(&mut extras, unit.spending.shown);
    // Other connections of the run may have the same key; `sharedFiles` uses the keys of the run.
    if unit.ktx_key() != &unit.key {
        extras["unit"] = json!(unit.key);
    }
    extras
}

fn attempt_extras(report: &RunReport, attempt: &AttemptReport) -> Value {
    let verdict = attempt.state.verdict.as_ref();
    let tools: Map<String, Value> = attempt
        .tools
        .iter()
        .map(|(tool, calls)| (tool.clone(), tool_use(*calls, "cutShort")))
        .collect();
    let failed_call = |call: &FailedCallReport| json!({"atMs": call.at.0, "toolCallId": call.id, "tool": call.tool, "error": call.error});
    let mut extras = json!({
        "attempt": attempt.state.number,
        "outcome": verdict.map(|verdict| verdict.outcome),
        "stopReason": verdict.map(|verdict| verdict.stop),
        "cause": verdict.map(|verdict| &verdict.cause),
        "reason": verdict.map(|verdict| verdict.reason.as_str()),
        "sessionId": attempt.state.setup.session,
        "model": attempt.state.setup.model_name(),
        "release": attempt.state.setup.release,
        "amendment": attempt.state.setup.amendment().map(ToString::to_string),
        "startedAt": report.wall_clock(attempt.state.started_at).map(|at| format!("{at:.3}")),
        "atMs": attempt.state.started_at.0,
        "durationMs": attempt.duration.0,
        "stepBudget": attempt.state.setup.step_budget,
        "turns": attempt.state.counts.turns,
        "costUsd": attempt.state.counts.cost_usd,
        "tokens": tokens(attempt.state.counts.tokens),
        "toolCallCount": attempt.state.counts.calls,
        "errorCount": attempt.state.counts.failures,
        "fatalErrorCount": attempt.output().and_then(|output| output.fatal_failures),
        "unread": attempt.output().map(|output| &output.unread),
        "nothingWritten": attempt.output().map(|output| output.nothing_written),
        "deniedCount": attempt.state.counts.denials,
        "declinedCount": attempt.state.counts.declined,
        "tools": tools,
        "failedCalls": attempt.failed_calls.iter().map(failed_call).collect::<Vec<_>>(),
        "published": attempt.state.delivery.published,
        "transcriptPath": attempt.transcript(),
        "patchPath": attempt.state.delivery.patch_path(),
        "integration": attempt.state.delivery.integration,
        "unsaved": attempt.state.delivery.is_unsaved(),
    });
    put_estimate(&mut extras, CostFigure::of_attempt(&attempt.state));
    if let Some(record) = attempt.output().and_then(|it| it.verification.as_ref()) {
        extras["verification"] = json!(record);
    }
    if let Some(work) = attempt.state.setup.continued() {
        extras["continued"] = json!(work);
    }
    extras
}

/// Counts of zero are omitted, except failures. `cut_short` is the key of calls without a result.
pub(super) fn tool_use(calls: ToolCallCounts, cut_short: &str) -> Value {
    let mut value = json!({"calls": calls.total, "failed": calls.failed});
    for (key, count) in [("declined", calls.declined), (cut_short, calls.aborted)] {
        if count > 0 {
            value[key] = count.into();
        }
    }
    value
}

/// Null if no tokens were counted.
fn tokens(tokens: TokenCounts) -> Value {
    if tokens == TokenCounts::default() {
        return Value::Null;
    }
    let TokenCounts {
        input,
        output,
        cache_read,
        cache_write,
    } = tokens;
    json!({"input": input, "output": output, "cacheRead": cache_read, "cacheWrite": cache_write, "total": tokens.total()})
}
