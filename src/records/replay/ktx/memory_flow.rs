//! Converts a KTX memory-flow replay, with or without its wrapper: events of a run become notes of a tape.

use std::{collections::HashMap, fs::File, io};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::TapeBuilder;
use crate::replay::{file_lines::read_range, line_time};
use ingestdeck_core::tape::{
    EntryBody, Millis, Note,
    note::{
        AttemptEnded, AttemptOutcome, AttemptOutput, AttemptStarted, PlannedUnit, RunEndOutcome,
        RunEnded, RunPlanned, Severity, StopReason, Verdict, VerdictCause,
        attempt_output::{ArtifactChange, ArtifactTarget, MemoryAction},
    },
};

/// Time between events that have no times.
const SYNTHETIC_INTERVAL_MS: u64 = 100;

/// Converts the replays of a file: one document, or one per line.
pub(super) fn rewrite(
    file: &File,
    length: u64,
    tape: &mut TapeBuilder,
) -> io::Result<Option<Timestamp>> {
    let bytes = read_range(file, 0, usize::try_from(length).unwrap_or(0))?;
    let values = serde_json::Deserializer::from_slice(&bytes).into_iter::<Value>();
    // A truncated end does not affect the complete replays before it.
    let replays: Vec<Value> = values.map_while(Result::ok).map(unwrapped).collect();
    let all = || replays.iter().flat_map(|replay| list(replay, "events"));
    let began = all().filter_map(emitted_at).min();
    let mut rewriting = MemoryFlowRewriter::new(tape, began);
    rewriting.plan(&replays)?;
    for replay in &replays {
        rewriting.replay(replay)?;
    }
    rewriting.end(&replays)?;
    Ok(began.and_then(|began| Timestamp::from_millisecond(began).ok()))
}

fn unwrapped(mut value: Value) -> Value {
    match value.get_mut("replay") {
        Some(replay) => replay.take(),
        None => value,
    }
}

fn emitted_at(event: &Value) -> Option<i64> {
    line_time::parse_timestamp(event.get("emittedAt")?.as_str()?)
}

struct MemoryFlowRewriter<'a> {
    tape: &'a mut TapeBuilder,
    began: Option<i64>,
    now: Millis,
    /// Number of started attempts by unit, and whether the last one is running.
    units: HashMap<String, (u32, bool)>,
    /// Actions that the running attempts have saved so far.
    actions: HashMap<String, Vec<MemoryAction>>,
    waiting: bool,
}

impl<'a> MemoryFlowRewriter<'a> {
    fn new(tape: &'a mut TapeBuilder, began: Option<i64>) -> Self {
        let (now, waiting) = (Millis(0), false);
        Self {
            tape,
            began,
            now,
            units: HashMap::new(),
            actions: HashMap::new(),
            waiting,
        }
    }

    fn plan(&mut self, replays: &[Value]) -> io::Result<()> {
        let units = replays.iter().flat_map(|replay| {
            let (connection, adapter) = (text(replay, "connectionId"), text(replay, "adapter"));
            list(replay, "plannedWorkUnits").map(move |unit| PlannedUnit {
                unit: text(unit, "unitKey").into(),
                connection: connection.to_owned(),
                adapter: adapter.to_owned(),
                raw_files: list(unit, "rawFiles")
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect(),
                ..PlannedUnit::default()
            })
        });
        let planned = RunPlanned {
            units: units.collect(),
            concurrency: max_concurrency(replays),
            ..RunPlanned::default()
        };
        self.tape
            .note(self.now, None, &Note::RunPlanned(Box::new(planned)))
    }

    fn replay(&mut self, replay: &Value) -> io::Result<()> {
        for event in list(replay, "events") {
            self.now = match (self.began, emitted_at(event)) {
                (Some(began), Some(at)) => {
                    self.now.max(Millis(u64::try_from(at - began).unwrap_or(0)))
                }
                (Some(_), None) => self.now,
                (None, _) => Millis(self.now.0 + SYNTHETIC_INTERVAL_MS),
            };
            self.event(event)?;
        }
        for transcript in list(&replay["details"], "transcripts") {
            let names: Vec<&str> = list(transcript, "toolNames")
                .filter_map(Value::as_str)
                .collect();
            let (calls, errors) = (
                number(transcript, "toolCallCount"),
                number(transcript, "errorCount"),
            );
            let level = if errors > 0 {
                Severity::Warning
            } else {
                Severity::Info
            };
            let text = format!("{calls} tool calls, {errors} failed: {}", names.join(", "));
            self.unit_message(self::text(transcript, "unitKey"), level, text)?;
        }
        Ok(())
    }

    fn event(&mut self, event: &Value) -> io::Result<()> {
        let kind = text(event, "type");
        let unit = text(event, "unitKey");
        if self.waiting && kind != "rate_limit_wait" {
            self.waiting = false;
            self.tape.note(self.now, None, &Note::LimitLifted)?;
        }
        match kind {
            "work_unit_started" => self.started(unit, event),
            "work_unit_step" => {
                let text = match event.get("toolCalls").and_then(Value::as_u64) {
                    Some(calls) => format!("{calls} tool calls so far"),
                    None => format!("step {}", number(event, "stepIndex")),
                };
                self.unit_message(unit, Severity::Debug, text)
            }
            "candidate_action" => self.action(unit, event),
            "work_unit_finished" => self.finished(unit, event),
            "rate_limit_wait" => {
                if self.waiting {
                    return Ok(());
                }
                self.waiting = true;
                let until = Millis(self.now.0.saturating_add(number(event, "remainingMs")));
                let limit = event
                    .get("rateLimitType")
                    .and_then(Value::as_str)
                    .unwrap_or("rate limit")
                    .to_owned();
                self.tape.note(
                    self.now,
                    None,
                    &Note::LimitPaused {
                        until: Some(until),
                        limit,
                        wait_ms: None,
                    },
                )
            }
            "stage_progress" if event["transient"] == true => Ok(()),
            _ => {
                let message = sentence(kind, event);
                self.tape.message(self.now, None, Severity::Info, message)
            }
        }
    }

    fn started(&mut self, unit: &str, event: &Value) -> io::Result<()> {
        let (attempt, is_active) = self.units.entry(unit.to_owned()).or_default();
        *attempt += 1;
        *is_active = true;
        let budget = event
            .get("stepBudget")
            .and_then(Value::as_u64)
            .and_then(|budget| u32::try_from(budget).ok());
        let started = AttemptStarted {
            step_budget: budget.unwrap_or_default(),
            ..AttemptStarted::default()
        };
        let attempt_key = Some((unit, *attempt));
        self.tape.note(
            self.now,
            attempt_key,
            &Note::AttemptStarted(Box::new(started)),
        )
    }

    fn action(&mut self, unit: &str, event: &Value) -> io::Result<()> {
        let (target, change) = (text(event, "target"), text(event, "action"));
        let action = MemoryAction {
            target: if target == "sl" {
                ArtifactTarget::SemanticLayer
            } else {
                ArtifactTarget::Wiki
            },
            change: match change {
                "created" => ArtifactChange::Created,
                "removed" => ArtifactChange::Removed,
                _ => ArtifactChange::Updated,
            },
            key: text(event, "key").to_owned(),
            detail: String::new(),
            target_connection_id: None,
            raw_paths: None,
        };
        let message = format!("{target} {} {change}", action.key);
        self.actions
            .entry(unit.to_owned())
            .or_default()
            .push(action);
        self.unit_message(unit, Severity::Info, message)
    }

    fn finished(&mut self, unit: &str, event: &Value) -> io::Result<()> {
        let (attempt, is_active) = self.units.entry(unit.to_owned()).or_default();
        *attempt = (*attempt).max(1);
        *is_active = false;
        let attempt_key = Some((unit, *attempt));
        let actions = self.actions.remove(unit).unwrap_or_default();
        let reason = event.get("reason").and_then(Value::as_str);
        let success = text(event, "status") == "success";
        let verdict = verdict(success, reason);
        // A result line replaces the missing one of the agent, because the end of the attempt depends on it.
        let subtype = if success {
            "success"
        } else {
            "error_during_execution"
        };
        let last = json!({"type": "result", "subtype": subtype, "is_error": !success, "result": verdict.reason});
        self.tape.entry(
            self.now,
            attempt_key,
            EntryBody::Stdout(last.to_string().as_bytes()),
        )?;
        let ended = AttemptEnded {
            verdict,
            tool_failures: 0,
            failed_call: None,
            exit_code: None,
            signal: None,
            stderr_tail: Vec::new(),
            wrote: Vec::new(),
            work: AttemptOutput {
                actions,
                ..AttemptOutput::default()
            },
            extra: serde_json::Map::default(),
        };
        self.tape
            .note(self.now, attempt_key, &Note::AttemptEnded(Box::new(ended)))
    }

    /// Writes a message about a unit, for its last attempt if there is one.
    fn unit_message(&mut self, unit: &str, level: Severity, text: String) -> io::Result<()> {
        let attempt = self.units.get(unit).map_or(0, |(attempt, _)| *attempt);
        self.tape
            .message(self.now, Some((unit, attempt)), level, text)
    }

    fn end(&mut self, replays: &[Value]) -> io::Result<()> {
        for error in replays
            .iter()
            .flat_map(|replay| list(replay, "errors"))
            .filter_map(Value::as_str)
        {
            self.tape
                .message(self.now, None, Severity::Error, error.to_owned())?;
        }
        let is = |wanted: &str| {
            replays
                .iter()
                .any(|replay| text(replay, "status") == wanted)
        };
        if is("running") || replays.is_empty() {
            return Ok(());
        }
        let finished = replays.iter().flat_map(|replay| list(replay, "events"));
        // The last event of a unit counts.
        let last: HashMap<&str, bool> = finished
            .filter(|event| text(event, "type") == "work_unit_finished")
            .map(|event| (text(event, "unitKey"), text(event, "status") == "success"))
            .collect();
        let count = |wanted| {
            u32::try_from(last.values().filter(|good| **good == wanted).count()).unwrap_or(u32::MAX)
        };
        let (succeeded, failed) = (count(true), count(false));
        let planned = replays
            .iter()
            .flat_map(|replay| list(replay, "plannedWorkUnits"));
        let not_run = planned
            .filter(|unit| !last.contains_key(text(unit, "unitKey")))
            .count();
        let outcome = match (is("error"), failed) {
            (true, _) => RunEndOutcome::Error,
            (false, 0) => RunEndOutcome::Done,
            (false, _) => RunEndOutcome::Partial,
        };
        let ended = RunEnded {
            outcome,
            succeeded,
            failed,
            not_run: u32::try_from(not_run).unwrap_or(u32::MAX),
            ..RunEnded::default()
        };
        self.tape.note(self.now, None, &Note::RunEnded(ended))
    }
}

/// The verdict for KTX's status.
fn verdict(success: bool, reason: Option<&str>) -> Verdict {
    const REASONS: [(&str, VerdictCause); 4] = [
        (
            "tool call(s) failed during WorkUnit",
            VerdictCause::ToolFailures,
        ),
        (
            "wiki references target missing page",
            VerdictCause::DanglingReferences,
        ),
        ("sl_validate failed for", VerdictCause::Validation),
        (
            "prompt too large for WorkUnit",
            VerdictCause::PromptTooLarge,
        ),
    ];
    let known = reason.and_then(|reason| REASONS.iter().find(|(words, _)| reason.contains(words)));
    let (outcome, stop, cause) = match (success, known) {
        (true, _) => (
            AttemptOutcome::Succeeded,
            StopReason::Natural,
            VerdictCause::Completed,
        ),
        (false, Some((_, cause))) => (AttemptOutcome::Failed, StopReason::Natural, cause.clone()),
        (false, None) => (
            AttemptOutcome::Failed,
            StopReason::Error,
            VerdictCause::LoopError,
        ),
    };
    let otherwise = if success {
        "completed"
    } else {
        "KTX gave no reason"
    };
    Verdict {
        outcome,
        stop,
        cause,
        reason: reason.unwrap_or(otherwise).to_owned(),
        remedy: None,
    }
}

/// The maximum number of units that ran at the same time according to the events.
fn max_concurrency(replays: &[Value]) -> u32 {
    let (mut running, mut most) = (0_u32, 1);
    for event in replays.iter().flat_map(|replay| list(replay, "events")) {
        match text(event, "type") {
            "work_unit_started" => running += 1,
            "work_unit_finished" => running = running.saturating_sub(1),
            _ => {}
        }
        most = most.max(running);
    }
    most
}

/// Describes an event of the run in one sentence.
fn sentence(kind: &str, event: &Value) -> String {
    let number = |key| number(event, key);
    match kind {
        "source_acquired" => format!(
            "source acquired: {} files for {}",
            number("fileCount"),
            text(event, "adapter")
        ),
        "raw_snapshot_written" => format!("snapshot written: {} raw files", number("rawFileCount")),
        "diff_computed" => format!(
            "files: +{} ~{} -{} ={}",
            number("added"),
            number("modified"),
            number("deleted"),
            number("unchanged")
        ),
        "chunks_planned" => format!(
            "{} units planned, {} evictions",
            number("workUnitCount"),
            number("evictionCount")
        ),
        "stage_skipped" => format!(
            "{} skipped: {}",
            text(event, "stage"),
            text(event, "reason")
        ),
        "stage_progress" => format!(
            "{} {}%: {}",
            text(event, "stage"),
            event["percent"],
            text(event, "message")
        ),
        "reconciliation_finished" => {
            format!(
                "reconciled: {} conflicts, {} fallbacks",
                number("conflictCount"),
                number("fallbackCount")
            )
        }
        "saved" => {
            let commit = event["commitSha"]
                .as_str()
                .map(|sha| format!(", commit {sha}"))
                .unwrap_or_default();
            format!(
                "saved: {} wiki pages, {} sources{commit}",
                number("wikiCount"),
                number("slCount")
            )
        }
        "provenance_recorded" => format!("provenance recorded: {} rows", number("rowCount")),
        "" => "an event without a type".to_owned(),
        other => other.replace('_', " "),
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn number(value: &Value, key: &str) -> u64 {
    value.get(key).and_then(Value::as_u64).unwrap_or_default()
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value
        .get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}
