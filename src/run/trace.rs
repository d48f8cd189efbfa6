//! A run as KTX's ingest trace: entries of a tape in, trace lines out, with KTX's schema and event names. Pure.
//!
//! Reads notes, results and usage windows; everything else it passes over without decoding it.

mod pace;

use std::{collections::HashMap, sync::Arc};

use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};

use self::pace::Pace;
use super::state::Tokens;
use crate::{
    decode::{self, Kind, Usage},
    tape::{
        Body, Entry, Header, Millis, Note, UnitKey,
        note::{AttemptEnded, Cause, DiffCounts, Integration, Outcome, PatchIntegrated, RunEnded, RunPlanned},
    },
};

/// How much a trace tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TraceLevel {
    /// What went wrong.
    Error,
    /// And what the run as a whole did.
    Info,
    /// And what its units did.
    Debug,
    /// And everything else.
    Trace,
}

impl TraceLevel {
    /// Reads KTX's setting. Anything else is its default.
    pub fn parse(text: &str) -> Self {
        let all = [Self::Error, Self::Info, Self::Debug, Self::Trace];
        all.into_iter().find(|level| level.word() == text).unwrap_or(Self::Debug)
    }

    fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// Makes trace lines from entries.
#[derive(Debug)]
pub struct Trace {
    header: Header,
    level: TraceLevel,
    plan: Arc<RunPlanned>,
    /// Positions in the plan.
    units: HashMap<UnitKey, usize>,
    going: HashMap<(UnitKey, u32), Going>,
    pace: Pace,
}

/// What is known of an attempt that has not ended.
#[derive(Debug, Default)]
struct Going {
    started: Millis,
    steps: Option<u64>,
    tokens: Option<Tokens>,
}

/// One event, before it is known of which connections it is.
struct Event<'a> {
    level: TraceLevel,
    phase: &'static str,
    name: &'a str,
    took: Option<Millis>,
    data: Value,
    error: Option<(&'a str, &'a str)>,
}

impl<'a> Event<'a> {
    fn new(level: TraceLevel, phase: &'static str, name: &'a str, data: Value) -> Self {
        Self { level, phase, name, took: None, data, error: None }
    }
}

impl Trace {
    /// The trace of the run that `header` begins.
    pub fn new(header: Header, level: TraceLevel) -> Self {
        let (plan, units, going) = Default::default();
        Self { header, level, plan, units, going, pace: Pace::default() }
    }

    /// The job, once the plan was seen. A run without one has no trace.
    pub fn job(&self) -> Option<&str> {
        Some(self.plan.job.as_str()).filter(|job| !job.is_empty())
    }

    /// Appends the lines of an entry to `out`.
    pub fn take(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) {
        let lane = entry.lane.as_ref().map(|(unit, attempt)| (UnitKey::from(unit.as_ref()), *attempt));
        match (&entry.body, &lane) {
            (Body::Note(json), _) => self.note(entry.at, lane.as_ref(), &Note::parse(json), out),
            (Body::Out(line), Some(lane)) => self.line(entry.at, lane, line, out),
            (Body::Out(_) | Body::Raw(_) | Body::In(_) | Body::Err(_), _) => {}
        }
    }

    fn line(&mut self, at: Millis, lane: &(UnitKey, u32), line: &[u8], out: &mut Vec<u8>) {
        match decode::kind(line) {
            Some(Kind::Result) => {
                let decode::Body::Result(result) = decode::line(line).body else { return };
                let going = self.going.entry(lane.clone()).or_default();
                going.steps = result.num_turns.or(going.steps);
                going.tokens = result.usage.map(|usage| tokens(Usage::of(usage))).or(going.tokens);
            }
            Some(Kind::RateLimit) => {
                let decode::Body::RateLimit(limit) = decode::line(line).body else { return };
                let data = json!({
                    "unitKey": lane.0, "provider": "claude-subscription", "status": limit.status,
                    "rateLimitType": limit.limit, "utilization": limit.utilization,
                    "resetAtMs": limit.resets_at.map(|at| at.saturating_mul(1000)),
                });
                let event = Event::new(TraceLevel::Debug, "rate_limit", "rate_limit_observed", data);
                self.of_unit(at, &lane.0, &event, out);
            }
            _ => {}
        }
    }

    fn note(&mut self, at: Millis, lane: Option<&(UnitKey, u32)>, note: &Note, out: &mut Vec<u8>) {
        match (note, lane) {
            (Note::RunPlanned(planned), _) => self.planned(at, planned, out),
            (Note::SourceRead(read), _) => {
                let DiffCounts { added, modified, deleted, unchanged } = read.diff;
                let diff = json!({"added": added, "modified": modified, "deleted": deleted, "unchanged": unchanged});
                let count = added.saturating_add(modified).saturating_add(unchanged);
                let data = json!({"stagedDir": read.staged, "rawFileCount": count, "diffSummary": diff});
                let event = Event::new(TraceLevel::Debug, "snapshot", "input_snapshot", data);
                self.write(at, &read.connection, &read.adapter, &event, out);
            }
            (Note::RunEnded(ended), _) => self.ended(at, ended, out),
            (
                Note::LimitPaused { .. } | Note::LimitLifted | Note::Throttled { .. } | Note::ConcurrencyChanged { .. },
                _,
            ) => {
                for event in self.pace.take(at, note, &self.header) {
                    self.of_run(at, &event, out);
                }
            }
            (Note::AttemptStarted(_), Some((unit, attempt))) => {
                self.going.insert((unit.clone(), *attempt), Going { started: at, ..Going::default() });
                let data = json!({"unitKey": unit, "unitIndex": self.units.get(unit), "attempt": attempt});
                self.of_unit(at, unit, &work(TraceLevel::Debug, "work_unit_child_created", data), out);
            }
            (Note::AttemptEnded(ended), Some((unit, attempt))) => self.attempt_ended(at, unit, *attempt, ended, out),
            (Note::RetryScheduled { next, delay_ms, cause }, Some((unit, _))) => {
                let data = json!({"unitKey": unit, "attempt": next, "delayMs": delay_ms, "cause": cause.word()});
                self.of_unit(at, unit, &work(TraceLevel::Info, "work_unit_retry_scheduled", data), out);
            }
            (Note::Published { paths }, Some((unit, _))) => {
                let data = json!({"unitKey": unit, "commitSha": null, "touchedPaths": paths});
                let event = Event::new(TraceLevel::Debug, "integration", "patch_accepted", data);
                self.of_unit(at, unit, &event, out);
            }
            (Note::PatchWritten(patch), Some((unit, _))) => {
                let data = json!({"unitKey": unit, "patchPath": patch.path, "touchedPaths": patch.paths});
                self.of_unit(at, unit, &work(TraceLevel::Debug, "work_unit_patch_collected", data), out);
            }
            (Note::Integrating(integrating), _) => {
                let data = json!({"ingestionBaseSha": integrating.onto, "patchCount": integrating.units.len()});
                self.of_run(at, &Event::new(TraceLevel::Debug, "integration", "integration_started", data), out);
            }
            (Note::PatchIntegrated(integrated), Some((unit, _))) => self.integrated(at, unit, integrated, out),
            (Note::Saved(saved), _) => {
                let data = json!({"commitSha": saved.commit, "branch": saved.branch, "touchedPaths": saved.paths});
                self.of_run(at, &Event::new(TraceLevel::Info, "squash", "squash_finished", data), out);
            }
            (Note::SaveFailed(failed), _) => {
                let mut event = Event::new(TraceLevel::Error, "squash", "squash_failed", Value::Null);
                event.error = Some(("Error", &failed.reason));
                self.of_run(at, &event, out);
            }
            (Note::ToolFailed { tool, tool_use_id, message }, Some((unit, _))) => {
                let data = json!({"unitKey": unit, "toolName": tool, "toolCallId": tool_use_id});
                let mut event = work(TraceLevel::Trace, "tool_call_failed", data);
                event.error = Some(("ToolError", message));
                self.of_unit(at, unit, &event, out);
            }
            (Note::ToolDeclined { tool, tool_use_id, message }, Some((unit, _))) => {
                let data = json!({"unitKey": unit, "toolName": tool, "toolCallId": tool_use_id, "message": message});
                self.of_unit(at, unit, &work(TraceLevel::Trace, "tool_call_declined", data), out);
            }
            _ => {}
        }
    }

    fn planned(&mut self, at: Millis, planned: &RunPlanned, out: &mut Vec<u8>) {
        self.units = planned.units.iter().enumerate().map(|(at, unit)| (unit.unit.clone(), at)).collect();
        self.plan = Arc::new(planned.clone());
        self.pace = Pace::new(planned);
        self.of_run(
            at,
            &Event::new(TraceLevel::Info, "run", "ingest_started", json!({"trigger": "manual_resync"})),
            out,
        );
        for (connection, adapter) in self.connections() {
            let units = planned.units.iter().filter(|unit| unit.connection == connection && unit.adapter == adapter);
            let data = json!({"workUnitCount": units.count()});
            let event = Event::new(TraceLevel::Debug, "planning", "work_units_planned", data);
            self.write(at, &connection, &adapter, &event, out);
        }
    }

    fn ended(&mut self, at: Millis, ended: &RunEnded, out: &mut Vec<u8>) {
        let RunEnded { outcome, succeeded, budget, failed, stopped, not_run, unsaved, reused } = ended;
        let data = json!({
            "outcome": outcome, "succeeded": succeeded, "budget": budget, "failed": failed, "stopped": stopped,
            "notRun": not_run, "unsaved": unsaved, "reused": reused,
        });
        // Nothing but Claude Code itself in the way is no better.
        let (level, name) = if matches!(outcome.as_str(), "error" | "unusable") {
            (TraceLevel::Error, "ingest_failed")
        } else {
            (TraceLevel::Info, "ingest_finished")
        };
        let event = Event { took: Some(at), ..Event::new(level, "run", name, data) };
        self.of_run(at, &event, out);
    }

    fn attempt_ended(&mut self, at: Millis, unit: &UnitKey, attempt: u32, ended: &AttemptEnded, out: &mut Vec<u8>) {
        let going = self.going.remove(&(unit.clone(), attempt));
        let verdict = &ended.verdict;
        let good = verdict.outcome == Outcome::Succeeded;
        if going.is_none() && verdict.cause == Cause::Internal {
            let mut event =
                work(TraceLevel::Error, "work_unit_child_failed", json!({"unitKey": unit, "attempt": attempt}));
            event.error = Some(("Error", &verdict.reason));
            self.of_unit(at, unit, &event, out);
        }
        let mut data = Map::new();
        data.insert("unitKey".into(), json!(unit));
        data.insert("unitIndex".into(), json!(self.units.get(unit)));
        data.insert("status".into(), if good { "success" } else { "failed" }.into());
        let took = going.as_ref().map(|going| at.since(going.started));
        if let Some(took) = took {
            data.insert("agentLoopMs".into(), took.0.into());
        }
        if let Some(steps) = going.as_ref().and_then(|going| going.steps) {
            data.insert("stepCount".into(), steps.into());
        }
        if let Some(tokens) = going.as_ref().and_then(|going| going.tokens) {
            data.insert("inputTokens".into(), tokens.input.into());
            data.insert("outputTokens".into(), tokens.output.into());
            data.insert("cacheReadTokens".into(), tokens.cache_read.into());
            data.insert("cacheWriteTokens".into(), tokens.cache_write.into());
            data.insert("totalTokens".into(), tokens.all().into());
        }
        data.insert("attempt".into(), attempt.into());
        data.insert("stopReason".into(), json!(verdict.stop));
        data.insert("errorCount".into(), ended.tool_failures.into());
        let executed = work(TraceLevel::Debug, "work_unit_executed", Value::Object(data));
        self.of_unit(at, unit, &Event { took, ..executed }, out);
        if !good {
            let data = json!({"unitKey": unit, "reason": verdict.reason, "attempt": attempt});
            self.of_unit(at, unit, &work(TraceLevel::Error, "work_unit_failed_before_patch", data), out);
        }
        let data = json!({"unitKey": unit, "outcome": "success", "attempt": attempt});
        self.of_unit(at, unit, &work(TraceLevel::Trace, "work_unit_child_cleanup", data), out);
    }

    fn integrated(&self, at: Millis, unit: &UnitKey, integrated: &PatchIntegrated, out: &mut Vec<u8>) {
        let (level, name) = match integrated.result {
            Integration::Accepted => (TraceLevel::Debug, "patch_accepted"),
            Integration::Noop => (TraceLevel::Debug, "patch_noop_accepted"),
            Integration::TextualConflict => (TraceLevel::Error, "patch_textual_conflict"),
            Integration::SemanticConflict => (TraceLevel::Error, "patch_semantic_conflict"),
            Integration::Policy => (TraceLevel::Error, "patch_policy_rejected"),
            Integration::Lost => (TraceLevel::Error, "patch_apply_failed"),
        };
        let mut data = json!({"unitKey": unit, "touchedPaths": integrated.paths});
        match &integrated.verdict {
            Some(verdict) => data["reason"] = verdict.reason.as_str().into(),
            None => {
                data["commitSha"] = json!(integrated.commit);
                if !integrated.shared.is_empty() {
                    data["sharedPaths"] = json!(integrated.shared);
                }
            }
        }
        self.of_unit(at, unit, &Event::new(level, "integration", name, data), out);
    }

    /// Connections and adapters of the plan. KTX has a job for each; what is of the run is of all of them.
    fn connections(&self) -> Vec<(String, String)> {
        let mut found: Vec<(String, String)> = Vec::new();
        for unit in &self.plan.units {
            if !found.iter().any(|(connection, adapter)| *connection == unit.connection && *adapter == unit.adapter) {
                found.push((unit.connection.clone(), unit.adapter.clone()));
            }
        }
        found
    }

    fn of_run(&self, at: Millis, event: &Event<'_>, out: &mut Vec<u8>) {
        for (connection, adapter) in self.connections() {
            self.write(at, &connection, &adapter, event, out);
        }
    }

    fn of_unit(&self, at: Millis, unit: &UnitKey, event: &Event<'_>, out: &mut Vec<u8>) {
        let planned = self.units.get(unit).and_then(|at| self.plan.units.get(*at));
        let (connection, adapter) = planned.map_or(("?", "?"), |unit| (&unit.connection, &unit.adapter));
        self.write(at, connection, adapter, event, out);
    }

    fn write(&self, at: Millis, connection: &str, adapter: &str, event: &Event<'_>, out: &mut Vec<u8>) {
        if event.level > self.level || self.job().is_none() {
            return;
        }
        let started = self.header.started_at;
        let time = at.after(started).unwrap_or(started);
        let date = started.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d-%H%M%S");
        let mut line = json!({
            "schemaVersion": 1, "at": format!("{time:.3}"), "level": event.level.word(), "jobId": self.plan.job,
            "connectionId": connection, "sourceKey": adapter, "runId": self.header.run,
            "syncId": format!("{date}-{}", self.plan.job), "phase": event.phase, "event": event.name,
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

fn work(level: TraceLevel, name: &'static str, data: Value) -> Event<'static> {
    Event::new(level, "work_unit", name, data)
}

fn tokens(usage: Usage) -> Tokens {
    let Usage { input, output, cache_read, cache_write } = usage;
    Tokens { input, output, cache_read, cache_write }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traced(level: TraceLevel) -> Vec<Value> {
        let tape = include_str!("../../tests/fixtures/tapes/demo.jsonl");
        let mut lines = tape.lines();
        let mut trace = Trace::new(Header::parse(lines.next().unwrap().as_bytes()).unwrap(), level);
        let mut out = Vec::new();
        for line in lines {
            trace.take(&Entry::parse(line.as_bytes()).unwrap(), &mut out);
        }
        String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn every_line_is_as_ktx_has_it() {
        let lines = traced(TraceLevel::Trace);
        let mut last = String::new();
        for line in &lines {
            assert_eq!(line["schemaVersion"], 1);
            for key in ["at", "jobId", "connectionId", "sourceKey", "runId", "syncId", "phase", "event"] {
                assert!(line[key].as_str().is_some_and(|text| !text.is_empty()), "{key} of {line}");
            }
            assert!(["error", "info", "debug", "trace"].contains(&line["level"].as_str().unwrap()));
            assert!(line["durationMs"].is_null() || line["durationMs"].is_u64());
            assert!(line["error"].is_null() || line["error"]["message"].is_string());
            let at = line["at"].as_str().unwrap().to_owned();
            assert!(at >= last, "times go on");
            last = at;
        }
        let of = |event: &str| lines.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
        assert_eq!(of("ingest_started").len(), 2, "one of each connection");
        let executed = of("work_unit_executed");
        assert_eq!((executed.len(), of("work_unit_child_created").len()), (9, 9));
        assert_eq!(of("work_unit_failed_before_patch").len(), 1);
        assert!(executed.iter().all(|line| line["data"]["stepCount"].is_u64() && line["durationMs"].is_u64()));
        assert_eq!(of("patch_accepted").len(), 8);
    }

    #[test]
    fn limits_are_told_as_the_governor_of_ktx_tells_them() {
        let header = include_str!("../../tests/fixtures/tapes/demo.jsonl").lines().next().unwrap();
        let header = Header::parse(header.as_bytes()).unwrap();
        let began = header.started_at.as_millisecond();
        let mut trace = Trace::new(header, TraceLevel::Trace);
        let unit = crate::tape::note::PlannedUnit { connection: "docs".into(), ..Default::default() };
        let planned = RunPlanned { job: "j".into(), units: vec![unit], concurrency: 4, ..RunPlanned::default() };
        let throttled = |slots| Note::Throttled { slots, limit: "five_hour".into() };
        let paused = |until, wait_ms| Note::LimitPaused { until, limit: "five_hour".into(), wait_ms };
        let notes = [
            Note::RunPlanned(Box::new(planned)),
            throttled(Some(1)),
            Note::ConcurrencyChanged { slots: 3 },
            throttled(None),
            Note::ConcurrencyChanged { slots: 2 },
            throttled(Some(1)),
            paused(None, Some(5_000)),
            Note::LimitLifted,
            paused(None, None),
            Note::RunEnded(RunEnded { outcome: "unusable".into(), ..RunEnded::default() }),
        ];
        let mut out = Vec::new();
        for (at, note) in (0..).zip(&notes) {
            let json = note.to_json();
            let (seq, at) = (crate::tape::Seq(at), Millis(at * 1_000));
            trace.take(&Entry { seq, at, lane: None, body: Body::Note(&json) }, &mut out);
        }
        let lines: Vec<Value> =
            String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of = |event: &str| -> Vec<Value> {
            lines.iter().filter(|line| line["event"] == event).map(|line| line["data"].clone()).collect()
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
        assert_eq!(of("wait_started"), [wait(Some(began + 11_000), Some(5_000)), wait(None, None)]);
        assert_eq!(of("wait_finished"), [wait(Some(began + 11_000), Some(4_000))], "somebody did not wait");
        let last = lines.last().unwrap();
        assert_eq!((&last["event"], &last["level"]), (&json!("ingest_failed"), &json!("error")));
    }

    #[test]
    fn a_level_leaves_out_what_is_below_it() {
        let words =
            |level| traced(level).iter().map(|line| line["level"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
        assert!(words(TraceLevel::Error).iter().all(|word| word == "error"));
        assert!(words(TraceLevel::Info).iter().all(|word| word != "debug" && word != "trace"));
        assert!(words(TraceLevel::Debug).iter().any(|word| word == "debug"));
        assert_eq!(TraceLevel::parse("warn"), TraceLevel::Debug);
        assert_eq!(TraceLevel::parse("error"), TraceLevel::Error);
    }
}
