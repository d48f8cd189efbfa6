//! `--ui json`: one object per line. The contract with programs; `assets/guide/formats.md` describes the objects.

mod agent_events;

use std::io::{self, Write};

use serde_json::{Value, json};

use self::agent_events::{AgentEventTranslator, TranslatedEvent};
use crate::cli::{args::EventVocabulary, output, summary::RunSummary};
use ingestdeck_core::{
    actions::AgentEvent,
    run::{
        OutcomeDetail, RunEvent, RunState, SinkEvent, SourceInfo, TaskChange,
        state::{AgentTask, TaskState},
    },
    tape::Millis,
};

/// Bytes that are buffered before they are written, unless the source has no more entries at the moment.
const BUFFER_BYTES: usize = 256 << 10;

/// Writes events as JSON lines.
#[derive(Debug)]
pub(crate) struct JsonWriter<W> {
    out: W,
    buffer: Vec<u8>,
    run: Vec<u8>,
    /// The attempt of the last event, with its serialized form.
    attempt_stamp: (String, u32, Vec<u8>),
    seq: u64,
    /// Set if events of attempts have the names of agent SDKs.
    translator: Option<AgentEventTranslator>,
    result: io::Result<()>,
}

impl<W: Write> JsonWriter<W> {
    /// A writer for one source.
    pub(crate) fn new(out: W, origin: &SourceInfo, vocabulary: EventVocabulary) -> Self {
        let run = origin
            .header
            .as_ref()
            .map_or_else(|| "null".into(), |header| format!("\"{}\"", header.run));
        let buffer = Vec::with_capacity(BUFFER_BYTES * 2);
        let translator =
            (vocabulary == EventVocabulary::Agent).then(|| AgentEventTranslator::new(origin));
        let (run, attempt_stamp, seq, result) = (run.into_bytes(), Default::default(), 0, Ok(()));
        Self {
            out,
            buffer,
            run,
            attempt_stamp,
            seq,
            translator,
            result,
        }
    }

    /// Writes the events of one entry.
    pub(crate) fn write_event(&mut self, emitted: &SinkEvent<'_>) {
        if let Some(events) = self
            .translator
            .as_mut()
            .and_then(|translator| translator.translate(emitted))
        {
            for TranslatedEvent {
                at,
                unit,
                attempt,
                json,
                tool_use_id,
            } in events
            {
                self.stamp(at, Some((unit, attempt)));
                self.value(&json);
                if let Some(id) = tool_use_id {
                    self.buffer.extend_from_slice(b",\"tool_use_id\":");
                    self.value(&id.into());
                }
                self.end_line();
            }
            return;
        }
        match emitted {
            SinkEvent::Line { .. } | SinkEvent::Note { .. } => return,
            SinkEvent::Agent {
                at,
                unit,
                attempt,
                event,
                outcome_detail,
                ..
            } => {
                self.stamp(*at, Some((unit, *attempt)));
                event.write_json(&mut self.buffer);
                let detail = match (outcome_detail, event) {
                    (Some(OutcomeDetail::Background), AgentEvent::Action(_)) => {
                        r#","background":true"#.to_owned()
                    }
                    (Some(detail), AgentEvent::Action(_)) => {
                        format!(r#","call":"{}""#, detail.as_str())
                    }
                    _ => String::new(),
                };
                self.buffer.extend_from_slice(detail.as_bytes());
            }
            SinkEvent::Unit {
                at,
                unit,
                attempt,
                status,
                reason,
                ..
            } => {
                self.stamp(*at, Some((unit, *attempt)));
                let mut event = json!({"type": "unit", "state": status.as_str()});
                if let Some(reason) = reason {
                    event["reason"] = Value::from(*reason);
                }
                self.value(&event);
            }
            SinkEvent::Patch {
                at,
                unit,
                attempt,
                result,
                reason,
                shared,
            } => {
                self.stamp(*at, Some((unit, *attempt)));
                let mut event =
                    json!({"type": "unit", "state": result.label(), "integration": result});
                if let Some(reason) = reason {
                    event["reason"] = Value::from(*reason);
                }
                if !shared.is_empty() {
                    event["shared"] = json!(shared);
                }
                self.value(&event);
            }
            SinkEvent::Task {
                at,
                unit,
                attempt,
                task,
                change,
            } => {
                self.stamp(*at, Some((unit, *attempt)));
                self.value(&task_json(task, *change));
            }
            SinkEvent::Message {
                at,
                unit,
                attempt,
                level,
                text,
            } => {
                self.stamp(*at, Some((unit, *attempt)));
                self.value(&json!({"type": "message", "level": level, "text": text}));
            }
            SinkEvent::Run { at, change } => {
                self.stamp(*at, None);
                self.value(&change_json(change));
            }
        }
        self.end_line();
    }

    fn end_line(&mut self) {
        self.buffer.extend_from_slice(b"}\n");
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush();
        }
    }

    /// Passes all buffered bytes to the system.
    pub(crate) fn flush(&mut self) {
        if self.result.is_ok() && !self.buffer.is_empty() {
            self.result = self
                .out
                .write_all(&output::escape_json(&self.buffer))
                .and_then(|()| self.out.flush());
        }
        self.buffer.clear();
    }

    /// True once the reader closed the pipe; further output is pointless.
    pub(crate) fn is_closed(&self) -> bool {
        self.result.is_err()
    }

    /// Writes the summary, which is always the last line.
    pub(crate) fn finish(mut self, state: &RunState, summary: &RunSummary) -> io::Result<()> {
        self.stamp(state.last_entry_at, None);
        self.value(&summary.to_json());
        self.buffer.extend_from_slice(b"}\n");
        self.flush();
        self.result
    }

    fn stamp(&mut self, at: Millis, attempt_stamp: Option<(&str, u32)>) {
        let mut number = itoa::Buffer::new();
        self.buffer.extend_from_slice(b"{\"v\":1,\"seq\":");
        self.buffer
            .extend_from_slice(number.format(self.seq).as_bytes());
        self.buffer.extend_from_slice(b",\"at\":");
        self.buffer
            .extend_from_slice(number.format(at.0).as_bytes());
        self.buffer.extend_from_slice(b",\"run\":");
        self.buffer.extend_from_slice(&self.run);
        if let Some((unit, attempt)) = attempt_stamp {
            let (last_unit, last_attempt, written) = &mut self.attempt_stamp;
            // Consecutive events mostly belong to the same attempt.
            if written.is_empty() || *last_attempt != attempt || last_unit != unit {
                (*last_unit, *last_attempt) = (unit.to_owned(), attempt);
                written.clear();
                written.extend_from_slice(b",\"unit\":");
                // Writing to a `Vec` cannot fail.
                let _ = serde_json::to_writer(&mut *written, unit);
                let _ = write!(written, ",\"try\":{attempt}");
            }
            self.buffer.extend_from_slice(written);
        }
        self.buffer.extend_from_slice(b",\"event\":");
        self.seq += 1;
    }

    fn value(&mut self, value: &Value) {
        let _ = serde_json::to_writer(&mut self.buffer, value);
    }
}

fn task_json(task: &AgentTask, change: TaskChange<'_>) -> Value {
    let mut event = json!({
        "type": "task", "task": task.id, "kind": task.kind, "title": task.title, "tool_use_id": task.call,
    });
    match change {
        TaskChange::Started => event["phase"] = json!("started"),
        TaskChange::Ended => {
            event["phase"] = json!("completed");
            event["ok"] = json!(task.state == TaskState::Completed);
            event["state"] = json!(task.state.as_str());
            event["summary"] = json!(task.summary);
            event["tokens"] = json!(task.tokens);
        }
        TaskChange::AgentEnded(agent) => {
            event["phase"] = json!("updated");
            event["agent"] = json!({
                "name": agent.name, "workflow_phase": agent.phase, "ok": agent.outcome() == Some(true),
                "error": agent.error, "tokens": agent.tokens, "tool_calls": agent.tool_calls,
            });
        }
    }
    event
}

fn change_json(change: &RunEvent<'_>) -> Value {
    match change {
        RunEvent::Planned(planned) => json!({
            "type": "run", "state": "planned", "job": planned.job, "units": planned.units.len(),
            "skipped": planned.skipped, "concurrency": planned.concurrency, "step_budget": planned.step_budget,
            "failure_mode": planned.failure_mode, "tool_failures": planned.tool_failures,
            "model": planned.model, "scripted": planned.scripted,
            "continues": planned.continues.as_ref().map(|before| before.run),
        }),
        RunEvent::Paused { until, limit } => {
            json!({"type": "run", "state": "paused", "until": until.map(|until| until.0), "limit": limit})
        }
        RunEvent::IntegrationAdvanced(advanced) => json!({
            "type": "run", "state": "integrating_ahead", "patches": advanced.patches, "refused": advanced.refused,
        }),
        RunEvent::Integrating(units) => {
            json!({"type": "run", "state": "integrating", "units": units})
        }
        RunEvent::ReviewRequested(review) => json!({
            "type": "run", "state": "waiting_approval", "open": review.counts().open,
            "paths": review.request.files.iter().map(|file| &file.path).collect::<Vec<_>>(),
        }),
        RunEvent::Saved(saved) => json!({
            "type": "run", "state": "saved", "commit": saved.commit, "branch": saved.branch, "subject": saved.subject,
            "paths": saved.paths,
        }),
        RunEvent::SaveFailed(reason) => {
            json!({"type": "run", "state": "not saved", "reason": reason})
        }
        RunEvent::WorkersAwaited { until } => {
            json!({"type": "run", "state": "waiting_for_workers", "until": until.0})
        }
        RunEvent::Resumed => json!({"type": "run", "state": "resumed"}),
        RunEvent::Message { level, text } => {
            json!({"type": "run", "state": "remark", "level": level, "text": text})
        }
        RunEvent::Ended(ended) => json!({
            "type": "run", "state": "ended", "outcome": ended.outcome, "succeeded": ended.succeeded,
            "budget": ended.budget, "failed": ended.failed, "stopped": ended.stopped, "not_run": ended.not_run,
            "reused": ended.reused,
        }),
    }
}
