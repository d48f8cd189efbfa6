//! Converts the entries of a tape to KTX's ingest trace, with KTX's schema and event names. Pure.
//!
//! It reads notes, the lines that begin and end turns, and usage windows, and skips everything else without decoding
//! it.

mod steps;
mod throttling;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};

use self::throttling::LimitTracker;
use super::{
    attempt_reducer::AttemptReducer,
    state::{RECONCILE_KEY, TokenCounts},
};
use crate::{
    actions::{LineRole, TurnTracker},
    decode::{self, LineBody, LineKind},
    tape::{
        EntryBody, Header, Millis, Note, TapeEntry, UnitKey,
        note::{
            AttemptEnded, AttemptOutcome, PatchWritten, PlannedUnit, RunEnded, RunPlanned,
            SourcesProjected, VerdictCause,
            attempt_output::{ArtifactTarget, MemoryAction},
        },
    },
};

/// KTX's directory for traces, relative to the project.
pub const TRACES_DIR: &str = ".ktx/ingest-traces";

/// The path of a job's trace, relative to the project.
pub fn trace_path(job: &str) -> String {
    format!("{TRACES_DIR}/{job}/trace.jsonl")
}

/// The detail level of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TraceLevel {
    Error,
    /// Also events of the run.
    Info,
    /// Also events of its units.
    Debug,
    Trace,
}

impl TraceLevel {
    /// Parses KTX's setting. An unknown value selects KTX's default.
    pub fn parse(text: &str) -> Self {
        let all = [Self::Error, Self::Info, Self::Debug, Self::Trace];
        all.into_iter()
            .find(|level| level.as_str() == text)
            .unwrap_or(Self::Debug)
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// Converts entries to trace lines.
#[derive(Debug)]
pub struct TraceWriter {
    header: Header,
    level: TraceLevel,
    plan: Arc<RunPlanned>,
    /// Positions in the plan.
    units: HashMap<UnitKey, usize>,
    sources: Vec<TraceOrigin>,
    open_attempts: HashMap<(UnitKey, u32), OpenAttempt>,
    limits: LimitTracker,
    /// End of the last step between the units and the commit, which is the start of the next step.
    last_step_end: Option<Millis>,
    /// The reconcile step ran since the last commit.
    reconciled: bool,
    /// Hash of the last commit that the run saved.
    commit: Option<String>,
    /// Units whose last attempt failed, or whose patch was rejected.
    failed: BTreeSet<UnitKey>,
}

/// A source that the run read.
#[derive(Debug)]
struct TraceOrigin {
    connection: String,
    adapter: String,
    /// The reconcile step concerns this source.
    is_in_reconcile_step: bool,
}

/// The recorded facts of an attempt that has not ended.
#[derive(Debug)]
struct OpenAttempt {
    started: Millis,
    /// Time of its last result line.
    result: Option<Millis>,
    steps: Option<u64>,
    /// Receives the lines that begin and end turns, so its only tokens are those of the results.
    reducer: AttemptReducer,
    /// Its patch, which is traced after its end.
    patch: Option<PatchWritten>,
    published: Option<Vec<String>>,
}

impl Default for OpenAttempt {
    fn default() -> Self {
        let reducer = AttemptReducer::new(TurnTracker::for_one_prompt());
        Self {
            started: Millis::default(),
            result: None,
            steps: None,
            reducer,
            patch: None,
            published: None,
        }
    }
}

/// An event, before its connections are determined.
struct TraceEvent<'a> {
    level: TraceLevel,
    phase: &'static str,
    name: &'a str,
    took: Option<Millis>,
    data: Value,
    error: Option<(&'a str, &'a str)>,
}

impl<'a> TraceEvent<'a> {
    fn new(level: TraceLevel, phase: &'static str, name: &'a str, data: Value) -> Self {
        Self {
            level,
            phase,
            name,
            took: None,
            data,
            error: None,
        }
    }
}

impl TraceWriter {
    /// Creates the trace of the run with this tape header.
    pub fn new(header: Header, level: TraceLevel) -> Self {
        Self {
            header,
            level,
            plan: Arc::default(),
            units: HashMap::new(),
            sources: Vec::new(),
            open_attempts: HashMap::new(),
            limits: LimitTracker::default(),
            last_step_end: None,
            reconciled: false,
            commit: None,
            failed: BTreeSet::new(),
        }
    }

    /// The job id, once the plan has been read. A run without a job has no trace.
    pub fn job(&self) -> Option<&str> {
        Some(self.plan.job.as_str()).filter(|job| !job.is_empty())
    }

    /// Appends the trace lines of an entry to `out`.
    pub fn write_entry(&mut self, entry: &TapeEntry<'_>, out: &mut Vec<u8>) {
        let attempt_key = entry
            .attempt
            .as_ref()
            .map(|(unit, attempt)| (UnitKey::from(unit.as_ref()), *attempt));
        match (&entry.body, &attempt_key) {
            (EntryBody::Note(json), _) => {
                self.note(entry.at, attempt_key.as_ref(), &Note::parse(json), out)
            }
            (EntryBody::Stdout(line), Some(attempt_key)) => {
                self.line(entry.at, attempt_key, line, out)
            }
            (
                EntryBody::Stdout(_)
                | EntryBody::StdoutRaw(_)
                | EntryBody::Stdin(_)
                | EntryBody::Stderr(_),
                _,
            ) => {}
        }
    }

    fn line(&mut self, at: Millis, attempt_key: &(UnitKey, u32), line: &[u8], out: &mut Vec<u8>) {
        match decode::guess_kind(line) {
            Some(LineKind::Init | LineKind::System | LineKind::Result) => {
                let line = decode::decode_line(line);
                let open_attempt = self.open_attempts.entry(attempt_key.clone()).or_default();
                if let (LineRole::Result, LineBody::Result(result)) =
                    (open_attempt.reducer.push(&line).role, &line.body)
                {
                    open_attempt.result = Some(at);
                    open_attempt.steps = result.num_turns.or(open_attempt.steps);
                }
            }
            Some(LineKind::RateLimit) => {
                let LineBody::RateLimit(limit) = decode::decode_line(line).body else {
                    return;
                };
                let data = json!({
                    "unitKey": self.key(&attempt_key.0), "provider": "claude-subscription", "status": limit.status,
                    "rateLimitType": limit.limit, "utilization": limit.utilization,
                    "resetAtMs": limit.resets_at.map(|at| at.saturating_mul(1000)),
                });
                let event =
                    TraceEvent::new(TraceLevel::Debug, "rate_limit", "rate_limit_observed", data);
                self.write_unit_event(at, &attempt_key.0, &event, out);
            }
            _ => {}
        }
    }

    fn note(
        &mut self,
        at: Millis,
        attempt_key: Option<&(UnitKey, u32)>,
        note: &Note,
        out: &mut Vec<u8>,
    ) {
        match (note, attempt_key) {
            (Note::RunPlanned(planned), _) => self.planned(at, planned, out),
            (Note::SourceRead(read), _) => self.source_read(at, read, out),
            (Note::SourcesProjected(projected), _) => self.projected(at, projected, out),
            (Note::RunEnded(ended), _) => self.ended(at, ended, out),
            (
                Note::LimitPaused { .. }
                | Note::LimitLifted
                | Note::Throttled { .. }
                | Note::ConcurrencyChanged { .. },
                _,
            ) => {
                for event in self.limits.events_for(at, note, &self.header) {
                    self.write_run_event(at, &event, out);
                }
            }
            (Note::AttemptStarted(_), Some((unit, attempt))) => {
                self.open_attempts.insert(
                    (unit.clone(), *attempt),
                    OpenAttempt {
                        started: at,
                        ..OpenAttempt::default()
                    },
                );
                if is_reconcile_step(unit) {
                    return;
                }
                let data = json!({"unitKey": self.key(unit), "unitIndex": self.units.get(unit), "attempt": attempt});
                self.write_unit_event(
                    at,
                    unit,
                    &work_event(TraceLevel::Debug, "work_unit_child_created", data),
                    out,
                );
            }
            (Note::AttemptEnded(ended), Some((unit, attempt))) => {
                self.attempt_ended(at, unit, *attempt, ended, out)
            }
            (
                Note::RetryScheduled {
                    next,
                    delay_ms,
                    cause,
                },
                Some((unit, _)),
            ) => {
                let data = json!({"unitKey": self.key(unit), "attempt": next, "delayMs": delay_ms, "cause": cause.label()});
                self.write_unit_event(
                    at,
                    unit,
                    &work_event(TraceLevel::Info, "work_unit_retry_scheduled", data),
                    out,
                );
            }
            // Both notes precede the end of their attempt on the tape, and follow it in KTX's traces.
            (Note::Published { paths }, Some(attempt_key)) => {
                self.open_attempts
                    .entry(attempt_key.clone())
                    .or_default()
                    .published = Some(paths.clone());
            }
            (Note::PatchWritten(patch), Some(attempt_key)) => {
                self.open_attempts
                    .entry(attempt_key.clone())
                    .or_default()
                    .patch = Some(patch.clone());
            }
            (Note::IntegrationStarted(integrating), _) => {
                self.last_step_end = Some(at);
                // The patch of the reconcile step is applied on top of the integrated patches.
                if matches!(&*integrating.units, [unit] if is_reconcile_step(unit)) {
                    return;
                }
                let data = json!({"workUnitCount": integrating.units.len(), "ingestionBaseSha": integrating.onto});
                self.write_run_event(
                    at,
                    &TraceEvent::new(TraceLevel::Info, "routing", "isolated_diff_enabled", data),
                    out,
                );
            }
            (Note::PatchIntegrated(integrated), Some((unit, _))) => {
                self.integrated(at, unit, integrated, out)
            }
            (Note::RunSaved(saved), _) => self.saved(at, saved, out),
            (Note::SlRefsRepaired(repaired), _) => {
                let data =
                    json!({"repairCount": repaired.repairs.len(), "repairs": repaired.repairs});
                let event = TraceEvent::new(
                    TraceLevel::Debug,
                    "wiki_sl_ref_repair",
                    "wiki_sl_refs_repaired",
                    data,
                );
                self.write_run_event(at, &event, out);
            }
            (Note::SaveFailed(failed), _) => {
                let mut event =
                    TraceEvent::new(TraceLevel::Error, "squash", "squash_failed", Value::Null);
                event.error = Some(("Error", &failed.reason));
                self.write_run_event(at, &event, out);
            }
            (
                Note::ToolFailed {
                    tool,
                    tool_use_id,
                    message,
                },
                Some((unit, _)),
            ) => {
                let data =
                    json!({"unitKey": self.key(unit), "toolName": tool, "toolCallId": tool_use_id});
                let mut event = work_event(TraceLevel::Trace, "tool_call_failed", data);
                event.error = Some(("ToolError", message));
                self.write_unit_event(at, unit, &event, out);
            }
            (
                Note::ToolDeclined {
                    tool,
                    tool_use_id,
                    message,
                },
                Some((unit, _)),
            ) => {
                let data = json!({"unitKey": self.key(unit), "toolName": tool, "toolCallId": tool_use_id, "message": message});
                self.write_unit_event(
                    at,
                    unit,
                    &work_event(TraceLevel::Trace, "tool_call_declined", data),
                    out,
                );
            }
            _ => {}
        }
    }

    fn planned(&mut self, at: Millis, planned: &RunPlanned, out: &mut Vec<u8>) {
        self.units = planned
            .units
            .iter()
            .enumerate()
            .map(|(at, unit)| (unit.unit.clone(), at))
            .collect();
        self.plan = Arc::new(planned.clone());
        self.limits = LimitTracker::new(planned);
        self.write_run_event(at, &started(), out);
    }

    fn projected(&self, at: Millis, projected: &SourcesProjected, out: &mut Vec<u8>) {
        for (connection, adapter) in self.connections() {
            if let Some(reason) = projected
                .reason
                .as_deref()
                .filter(|_| projected.is_of(Some(&connection)))
            {
                let data = json!({"sourceKey": adapter});
                let event = TraceEvent::new(
                    TraceLevel::Error,
                    "projection",
                    "deterministic_projection_failed",
                    data,
                );
                self.write(
                    at,
                    &connection,
                    &adapter,
                    &TraceEvent {
                        error: Some(("Error", reason)),
                        ..event
                    },
                    out,
                );
            }
            let own = projected
                .actions
                .iter()
                .filter(|action| projected.connection_of(action) == Some(&*connection));
            let (pages, sources): (Vec<&MemoryAction>, Vec<&MemoryAction>) =
                own.partition(|action| action.target == ArtifactTarget::Wiki);
            if pages.is_empty() && sources.is_empty() {
                continue;
            }
            let touched: Vec<Value> = sources
                .iter()
                .map(|action| {
                    json!({"connectionId": action.target_connection_id, "sourceName": action.key})
                })
                .collect();
            let pages: Vec<&String> = pages.iter().map(|action| &action.key).collect();
            let data = json!({
                "projectionSha": projected.commit, "touchedSources": touched, "changedWikiPageKeys": pages,
                "warnings": projected.left_out,
            });
            let event = TraceEvent::new(
                TraceLevel::Debug,
                "projection",
                "deterministic_projection_committed",
                data,
            );
            self.write(at, &connection, &adapter, &event, out);
        }
    }

    fn ended(&mut self, at: Millis, ended: &RunEnded, out: &mut Vec<u8>) {
        let RunEnded {
            outcome,
            succeeded,
            budget,
            failed,
            stopped,
            not_run,
            unsaved,
            reused,
        } = ended;
        // `unusable` is reported as an error, too.
        let (level, name, status) = if matches!(outcome.as_str(), "error" | "unusable") {
            (TraceLevel::Error, "ingest_failed", "failed")
        } else {
            (TraceLevel::Info, "ingest_finished", "completed")
        };
        let read = self
            .sources
            .iter()
            .map(|source| (source.connection.clone(), source.adapter.clone()));
        let mut all = self.connections();
        let mut begun: BTreeSet<(String, String)> = all.iter().cloned().collect();
        all.extend(read.filter(|of| begun.insert(of.clone())));
        for (connection, adapter) in all {
            let is_of = |unit: &&UnitKey| {
                self.planned_unit(unit)
                    .is_some_and(|unit| unit.connection == connection)
            };
            let failed_units: Vec<&UnitKey> = self
                .failed
                .iter()
                .filter(is_of)
                .map(|unit| self.key(unit))
                .collect();
            let data = json!({
                "status": status, "commitSha": self.commit, "failedWorkUnits": failed_units, "outcome": outcome,
                "succeeded": succeeded, "budget": budget, "failed": failed, "stopped": stopped, "notRun": not_run,
                "unsaved": unsaved, "reused": reused,
            });
            self.write(
                at,
                &connection,
                &adapter,
                &TraceEvent::new(level, "run", name, data),
                out,
            );
        }
    }

    fn attempt_ended(
        &mut self,
        at: Millis,
        unit: &UnitKey,
        attempt: u32,
        ended: &AttemptEnded,
        out: &mut Vec<u8>,
    ) {
        let open_attempt = self.open_attempts.remove(&(unit.clone(), attempt));
        let verdict = &ended.verdict;
        let good = verdict.outcome == AttemptOutcome::Succeeded;
        if open_attempt.is_none() && verdict.cause == VerdictCause::Internal {
            let mut event = work_event(
                TraceLevel::Error,
                "work_unit_child_failed",
                json!({"unitKey": self.key(unit), "attempt": attempt}),
            );
            event.error = Some(("Error", &verdict.reason));
            self.write_unit_event(at, unit, &event, out);
        }
        let took = open_attempt
            .as_ref()
            .map(|open_attempt| at.since(open_attempt.started));
        let figures = attempt_metrics(open_attempt.as_ref(), took);
        if is_reconcile_step(unit) {
            return self.reconcile_ended(at, ended, took, figures, out);
        }
        if good {
            self.failed.remove(unit)
        } else {
            self.failed.insert(unit.clone())
        };
        let mut data = Map::new();
        data.insert("unitKey".into(), json!(self.key(unit)));
        data.insert("unitIndex".into(), json!(self.units.get(unit)));
        data.insert(
            "status".into(),
            if good { "success" } else { "failed" }.into(),
        );
        data.extend(figures);
        data.insert("attempt".into(), attempt.into());
        data.insert("stopReason".into(), json!(verdict.stop));
        data.insert("errorCount".into(), ended.tool_failures.into());
        let executed = work_event(TraceLevel::Debug, "work_unit_executed", Value::Object(data));
        self.write_unit_event(at, unit, &TraceEvent { took, ..executed }, out);
        if !good {
            let data =
                json!({"unitKey": self.key(unit), "reason": verdict.reason, "attempt": attempt});
            self.write_unit_event(
                at,
                unit,
                &work_event(TraceLevel::Error, "work_unit_failed_before_patch", data),
                out,
            );
        }
        let (patch, published) = open_attempt
            .map(|open_attempt| (open_attempt.patch, open_attempt.published))
            .unwrap_or_default();
        if let Some(patch) = patch.filter(|_| good) {
            let data = json!({"unitKey": self.key(unit), "patchPath": patch.path, "touchedPaths": patch.paths});
            self.write_unit_event(
                at,
                unit,
                &work_event(TraceLevel::Debug, "work_unit_patch_collected", data),
                out,
            );
        }
        if let Some(paths) = published.filter(|_| good) {
            let data = json!({"unitKey": self.key(unit), "commitSha": null, "touchedPaths": paths});
            self.write_unit_event(
                at,
                unit,
                &TraceEvent::new(TraceLevel::Debug, "integration", "patch_accepted", data),
                out,
            );
        }
        let data = json!({"unitKey": self.key(unit), "outcome": "success", "attempt": attempt});
        self.write_unit_event(
            at,
            unit,
            &work_event(TraceLevel::Trace, "work_unit_child_cleanup", data),
            out,
        );
    }

    /// Connections and adapters of the plan, and those that only the reconcile step concerns. KTX has one job for each;
    /// events of the run belong to all of them.
    fn connections(&self) -> Vec<(String, String)> {
        let of_units = self
            .plan
            .units
            .iter()
            .map(|unit| (&unit.connection, &unit.adapter));
        let of_step = self
            .sources
            .iter()
            .filter(|source| source.is_in_reconcile_step);
        let all = of_units.chain(of_step.map(|source| (&source.connection, &source.adapter)));
        let mut seen = HashSet::new();
        all.filter(|of| seen.insert(*of))
            .map(|(connection, adapter)| (connection.clone(), adapter.clone()))
            .collect()
    }

    /// Writes an event of the run for each connection. Its duration is written only once, because KTX's profile sums
    /// the durations.
    fn write_run_event(&self, at: Millis, event: &TraceEvent<'_>, out: &mut Vec<u8>) {
        for (index, (connection, adapter)) in self.connections().into_iter().enumerate() {
            let took = event.took.filter(|_| index == 0);
            self.write(
                at,
                &connection,
                &adapter,
                &TraceEvent {
                    took,
                    data: event.data.clone(),
                    ..*event
                },
                out,
            );
        }
    }

    /// KTX's key of a unit.
    fn key<'a>(&'a self, unit: &'a UnitKey) -> &'a UnitKey {
        self.planned_unit(unit).map_or(unit, PlannedUnit::ktx_key)
    }

    fn write_unit_event(
        &self,
        at: Millis,
        unit: &UnitKey,
        event: &TraceEvent<'_>,
        out: &mut Vec<u8>,
    ) {
        if is_reconcile_step(unit) {
            // KTX treats every event with a unit key as a work unit.
            let mut data = event.data.clone();
            if let Some(data) = data.as_object_mut() {
                data.shift_remove("unitKey");
            }
            return self.write_run_event(
                at,
                &TraceEvent {
                    phase: "reconciliation",
                    data,
                    ..*event
                },
                out,
            );
        }
        let (connection, adapter) = self
            .planned_unit(unit)
            .map_or(("?", "?"), |unit| (&unit.connection, &unit.adapter));
        self.write(at, connection, adapter, event, out);
    }

    fn planned_unit(&self, unit: &UnitKey) -> Option<&PlannedUnit> {
        self.units.get(unit).and_then(|at| self.plan.units.get(*at))
    }

    fn sync(&self) -> String {
        let date = self
            .header
            .started_at
            .to_zoned(TimeZone::UTC)
            .strftime("%Y-%m-%d-%H%M%S");
        format!("{date}-{}", self.plan.job)
    }

    fn write(
        &self,
        at: Millis,
        connection: &str,
        adapter: &str,
        event: &TraceEvent<'_>,
        out: &mut Vec<u8>,
    ) {
        if event.level > self.level || self.job().is_none() {
            return;
        }
        let started = self.header.started_at;
        let time = at.to_timestamp(started).unwrap_or(started);
        let mut line = json!({
            "schemaVersion": 1, "at": format!("{time:.3}"), "level": event.level.as_str(), "jobId": self.plan.job,
            "connectionId": connection, "sourceKey": adapter, "runId": self.header.run,
            "syncId": self.sync(), "phase": event.phase, "event": event.name,
        });
        if let Some(took) = event.took {
            line["durationMs"] = took.0.into();
        }
        if !event.data.is_null() {
            line["data"] = event.data.clone();
        }
        if let Some((name, message)) = event.error {
            line["error"] = json!({"name": name, "message": message});
        }
        // Writing into a Vec cannot fail.
        let _ = serde_json::to_writer(&mut *out, &line);
        out.push(b'\n');
    }
}

/// True for the reconcile step, which no plan names.
fn is_reconcile_step(unit: &UnitKey) -> bool {
    unit.as_str() == RECONCILE_KEY
}

/// Values of an attempt for KTX's profile. The agent loop ends with its last result.
fn attempt_metrics(open_attempt: Option<&OpenAttempt>, took: Option<Millis>) -> Map<String, Value> {
    let mut figures = Map::new();
    let Some(open_attempt) = open_attempt else {
        return figures;
    };
    if let Some(looped) = open_attempt
        .result
        .map(|result| result.since(open_attempt.started))
        .or(took)
    {
        figures.insert("agentLoopMs".into(), looped.0.into());
    }
    if let Some(steps) = open_attempt.steps {
        figures.insert("stepCount".into(), steps.into());
    }
    let tokens = open_attempt.reducer.counts().tokens;
    if tokens != TokenCounts::default() {
        figures.insert("inputTokens".into(), tokens.input.into());
        figures.insert("outputTokens".into(), tokens.output.into());
        figures.insert("cacheReadTokens".into(), tokens.cache_read.into());
        figures.insert("cacheWriteTokens".into(), tokens.cache_write.into());
        figures.insert("totalTokens".into(), tokens.total().into());
    }
    figures
}

fn started() -> TraceEvent<'static> {
    let data = json!({"trigger": "manual_resync", "bundleRefKind": "upload"});
    TraceEvent::new(TraceLevel::Info, "run", "ingest_started", data)
}

fn work_event(level: TraceLevel, name: &'static str, data: Value) -> TraceEvent<'static> {
    TraceEvent::new(level, "work_unit", name, data)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traced(level: TraceLevel) -> Vec<Value> {
        let tape = include_str!("../../../tests/fixtures/tapes/demo.jsonl");
        let mut lines = tape.lines();
        let mut trace = TraceWriter::new(
            Header::parse(lines.next().unwrap().as_bytes()).unwrap(),
            level,
        );
        let mut out = Vec::new();
        for line in lines {
            trace.write_entry(&TapeEntry::parse(line.as_bytes()).unwrap(), &mut out);
        }
        String::from_utf8(out)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn trace_lines_match_the_ktx_schema() {
        let lines = traced(TraceLevel::Trace);
        let mut last = String::new();
        for line in &lines {
            assert_eq!(line["schemaVersion"], 1);
            for key in [
                "at",
                "jobId",
                "connectionId",
                "sourceKey",
                "runId",
                "syncId",
                "phase",
                "event",
            ] {
                assert!(
                    line[key].as_str().is_some_and(|text| !text.is_empty()),
                    "{key} of {line}"
                );
            }
            assert!(["error", "info", "debug", "trace"].contains(&line["level"].as_str().unwrap()));
            assert!(line["durationMs"].is_null() || line["durationMs"].is_u64());
            assert!(line["error"].is_null() || line["error"]["message"].is_string());
            let at = line["at"].as_str().unwrap().to_owned();
            assert!(at >= last, "times do not decrease");
            last = at;
        }
        let of = |event: &str| {
            lines
                .iter()
                .filter(|line| line["event"] == event)
                .collect::<Vec<_>>()
        };
        assert_eq!(of("ingest_started").len(), 2, "one of each connection");
        let executed = of("work_unit_executed");
        assert_eq!(
            (executed.len(), of("work_unit_child_created").len()),
            (9, 9)
        );
        assert_eq!(of("work_unit_failed_before_patch").len(), 1);
        assert!(
            executed
                .iter()
                .all(|line| line["data"]["stepCount"].is_u64() && line["durationMs"].is_u64())
        );
        assert_eq!(of("patch_accepted").len(), 8);
    }

    #[test]
    fn limit_events_match_those_of_the_ktx_governor() {
        let header = include_str!("../../../tests/fixtures/tapes/demo.jsonl")
            .lines()
            .next()
            .unwrap();
        let header = Header::parse(header.as_bytes()).unwrap();
        let began = header.started_at.as_millisecond();
        let mut trace = TraceWriter::new(header, TraceLevel::Trace);
        let unit = crate::tape::note::PlannedUnit {
            connection: "docs".into(),
            ..Default::default()
        };
        let planned = RunPlanned {
            job: "j".into(),
            units: vec![unit],
            concurrency: 4,
            ..RunPlanned::default()
        };
        let throttled = |slots| Note::Throttled {
            slots,
            limit: "five_hour".into(),
        };
        let paused = |until, wait_ms| Note::LimitPaused {
            until,
            limit: "five_hour".into(),
            wait_ms,
        };
        let notes = [
            Note::RunPlanned(Box::new(planned)),
            throttled(Some(1)),
            Note::ConcurrencyChanged {
                slots: 3,
                old: None,
            },
            throttled(None),
            Note::ConcurrencyChanged {
                slots: 2,
                old: None,
            },
            throttled(Some(1)),
            paused(None, Some(5_000)),
            Note::LimitLifted,
            paused(None, None),
            Note::RunEnded(RunEnded {
                outcome: "unusable".into(),
                ..RunEnded::default()
            }),
        ];
        let mut out = Vec::new();
        for (at, note) in (0..).zip(&notes) {
            let json = note.to_json();
            let (seq, at) = (crate::tape::Seq(at), Millis(at * 1_000));
            trace.write_entry(
                &TapeEntry {
                    seq,
                    at,
                    attempt: None,
                    body: EntryBody::Note(&json),
                },
                &mut out,
            );
        }
        let lines: Vec<Value> = String::from_utf8(out)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let of = |event: &str| -> Vec<Value> {
            lines
                .iter()
                .filter(|line| line["event"] == event)
                .map(|line| line["data"].clone())
                .collect()
        };
        let adjusted = |from, to, reason: &str| json!({"from": from, "to": to, "reason": reason});
        assert_eq!(
            of("concurrency_adjusted"),
            [
                adjusted(4, 1, "five_hour"),
                adjusted(1, 3, "five_hour"),
                adjusted(3, 2, "asked for"),
                adjusted(2, 1, "five_hour"),
                adjusted(1, 2, "the wait for a limit is over"),
            ]
        );
        let wait = |resume: Option<i64>, remaining: Option<u64>| json!({"provider": "claude-subscription", "rateLimitType": "five_hour", "resumeAtMs": resume, "remainingMs": remaining});
        assert_eq!(
            of("wait_started"),
            [wait(Some(began + 11_000), Some(5_000)), wait(None, None)]
        );
        assert_eq!(
            of("wait_finished"),
            [wait(Some(began + 11_000), Some(4_000))],
            "a waiting unit has no wait_finished"
        );
        let last = lines.last().unwrap();
        assert_eq!(
            (&last["event"], &last["level"]),
            (&json!("ingest_failed"), &json!("error"))
        );
    }

    #[test]
    fn trace_level_omits_lower_levels() {
        let words = |level| {
            traced(level)
                .iter()
                .map(|line| line["level"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert!(words(TraceLevel::Error).iter().all(|word| word == "error"));
        assert!(
            words(TraceLevel::Info)
                .iter()
                .all(|word| word != "debug" && word != "trace")
        );
        assert!(words(TraceLevel::Debug).iter().any(|word| word == "debug"));
        assert_eq!(TraceLevel::parse("warn"), TraceLevel::Debug);
        assert_eq!(TraceLevel::parse("error"), TraceLevel::Error);
    }
}
