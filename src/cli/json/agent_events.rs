//! `--events agent`: the events of attempts with the names and fields of an agent SDK integration, such as
//! `tool:start` and `stream:token`.
//!
//! They are derived from the same events and lines as the default vocabulary. It must not count or judge anything.

use std::collections::HashMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use ingestdeck_core::{
    actions::{
        ActionPhase, AgentEvent,
        event::{ActionDetail, ActionEvent, JsonText},
    },
    decode::{
        LineBody, MessageBlock,
        line::{AgentLine, StreamDelta},
    },
    run::{SinkEvent, SourceInfo, state::UnitStatus},
    tape::{Millis, Note},
};

/// Longest `accumulated` text in bytes; of a longer one, the end is printed.
const MAX_ACCUMULATED_BYTES: usize = 64 << 10;

/// Translates the events of one source.
#[derive(Debug)]
pub(super) struct AgentEventTranslator {
    /// Wall-clock time of `at` 0, if the source has times.
    started_at: Option<Timestamp>,
    attempts: HashMap<String, HashMap<u32, AttemptVocabulary>>,
}

/// What later events of an attempt repeat from earlier ones.
#[derive(Debug, Default)]
struct AttemptVocabulary {
    session: Option<String>,
    /// Text of the message that is being written.
    accumulated: String,
    turns: u32,
    /// Calls without a result: time, tool and arguments.
    calls: HashMap<String, (Millis, Value, Value)>,
}

/// An event of an attempt.
#[derive(Debug)]
pub(super) struct TranslatedEvent<'a> {
    pub at: Millis,
    pub unit: &'a str,
    pub attempt: u32,
    pub json: Value,
    /// The call that the event belongs to, where its own fields do not name it.
    pub tool_use_id: Option<String>,
}

impl AgentEventTranslator {
    pub(super) fn new(origin: &SourceInfo) -> Self {
        Self {
            started_at: origin.started_at.filter(|_| origin.has_times),
            attempts: HashMap::new(),
        }
    }

    /// Translates an event; `None` for one that both vocabularies share.
    pub(super) fn translate<'a>(
        &mut self,
        emitted: &SinkEvent<'a>,
    ) -> Option<Vec<TranslatedEvent<'a>>> {
        let (at, unit, attempt) = match *emitted {
            SinkEvent::Agent {
                at, unit, attempt, ..
            }
            | SinkEvent::Line {
                at, unit, attempt, ..
            }
            | SinkEvent::Unit {
                at, unit, attempt, ..
            } => (at, unit, attempt),
            SinkEvent::Note {
                at,
                attempt: Some((unit, attempt)),
                ..
            } => (at, unit, attempt),
            SinkEvent::Note { attempt: None, .. } => return Some(Vec::new()),
            SinkEvent::Run { .. }
            | SinkEvent::Task { .. }
            | SinkEvent::Message { .. }
            | SinkEvent::Patch { .. } => return None,
        };
        let timestamp = self
            .started_at
            .map(|start| start.as_millisecond().saturating_add_unsigned(at.0));
        let state = self
            .attempts
            .entry(unit.to_owned())
            .or_default()
            .entry(attempt)
            .or_default();
        let events = match emitted {
            SinkEvent::Agent { event, .. } => state.agent_event(at, event),
            SinkEvent::Line { line, turns, .. } => state.line(line, *turns),
            SinkEvent::Unit { status, reason, .. } => {
                vec![(state_update(unit, *status, *reason), None)]
            }
            SinkEvent::Note { note, .. } => {
                state.note(note);
                Vec::new()
            }
            SinkEvent::Run { .. }
            | SinkEvent::Task { .. }
            | SinkEvent::Message { .. }
            | SinkEvent::Patch { .. } => Vec::new(),
        };
        let session = json!(state.session);
        let complete = |(mut json, tool_use_id): (Value, Option<String>)| {
            json["sessionId"] = session.clone();
            json["timestamp"] = json!(timestamp);
            TranslatedEvent {
                at,
                unit,
                attempt,
                json,
                tool_use_id,
            }
        };
        Some(events.into_iter().map(complete).collect())
    }
}

impl AttemptVocabulary {
    fn agent_event(&mut self, at: Millis, event: &AgentEvent<'_>) -> Vec<(Value, Option<String>)> {
        match event {
            AgentEvent::Started(started) => {
                self.session = Some(started.resume.clone().into_owned());
                Vec::new()
            }
            AgentEvent::Action(action) => self.action(at, action),
            AgentEvent::Completed(completed) => {
                if let Some(session) = &completed.resume {
                    self.session = Some(session.clone().into_owned());
                }
                self.calls.clear();
                let mut json = json!({"type": "agent:complete", "result": completed.answer, "turns": self.turns});
                if let Some(error) = &completed.error {
                    json["error"] = json!(error);
                }
                vec![(json, None)]
            }
        }
    }

    fn action(&mut self, at: Millis, event: &ActionEvent<'_>) -> Vec<(Value, Option<String>)> {
        let ActionDetail::Tool(detail) = &event.action.detail else {
            return Vec::new();
        };
        let id = event.action.id.clone().into_owned();
        let raw_input = || {
            detail
                .tool_input
                .as_ref()
                .map(JsonText::raw)
                .map_or(Value::Null, |raw| raw.value())
        };
        match event.phase {
            ActionPhase::Started => {
                let (tool, input) = (json!(detail.tool_name), raw_input());
                let invoke =
                    json!({"type": "tool:invoke", "toolId": id, "tool": tool, "input": input});
                let start = json!({"type": "tool:start", "tool": tool, "input": input});
                self.calls.insert(id.clone(), (at, tool, input));
                vec![(invoke, None), (start, Some(id))]
            }
            ActionPhase::Updated => Vec::new(),
            ActionPhase::Completed => {
                let known = self.calls.remove(&id);
                let duration = known.as_ref().map(|(started, ..)| at.since(*started).0);
                let (_, tool, input) =
                    known.unwrap_or_else(|| (at, json!(detail.tool_name), raw_input()));
                let mut output =
                    json!({"content": event.message, "is_error": event.ok == Some(false)});
                if let Some(result) = &detail.result {
                    output["content"] = result
                        .content
                        .map_or(Value::Null, |content| content.value());
                    if result.truncated {
                        output["truncated"] = json!(true);
                    }
                }
                let json = json!({
                    "type": "tool:result", "tool": tool, "input": input, "output": output, "duration": duration,
                });
                vec![(json, Some(id))]
            }
        }
    }

    fn line(&mut self, line: &AgentLine<'_>, turns: u32) -> Vec<(Value, Option<String>)> {
        if self.session.is_none() {
            self.session = line
                .session_id
                .as_deref()
                .filter(|id| !id.is_empty())
                .map(str::to_owned);
        }
        // The text of a sub-agent is a part of the call that started it.
        if line.parent_tool_use_id.is_some() {
            return Vec::new();
        }
        match &line.body {
            LineBody::StreamEvent(StreamDelta::Text(text)) => {
                self.accumulated.push_str(text);
                let mut cut = self.accumulated.len().saturating_sub(MAX_ACCUMULATED_BYTES);
                while !self.accumulated.is_char_boundary(cut) {
                    cut += 1;
                }
                self.accumulated.drain(..cut);
                vec![(
                    json!({"type": "stream:token", "text": text, "accumulated": self.accumulated}),
                    None,
                )]
            }
            LineBody::Assistant(chat) => {
                self.accumulated.clear();
                let texts = chat.blocks.iter().filter_map(|block| match block {
                    MessageBlock::Text(text) if !text.is_blank() => {
                        Some(json!({"type": "text", "text": text.text()}))
                    }
                    _ => None,
                });
                let content: Vec<Value> = texts.collect();
                // Each block of a message has its own line.
                let is_new_turn = std::mem::replace(&mut self.turns, turns) != turns;
                if !is_new_turn && content.is_empty() {
                    return Vec::new();
                }
                vec![(
                    json!({"type": "agent:turn", "turn": turns, "content": content}),
                    None,
                )]
            }
            _ => Vec::new(),
        }
    }

    fn note(&mut self, note: &Note) {
        if let Note::CallDecided {
            tool_use_id: Some(id),
            input: Some(edited),
            ..
        } = note
            && let Some((_, _, input)) = self.calls.get_mut(id)
        {
            input.clone_from(edited);
        }
    }
}

fn state_update(unit: &str, status: UnitStatus, reason: Option<&str>) -> Value {
    let word = match status {
        UnitStatus::Queued | UnitStatus::NotStarted => "idle",
        UnitStatus::Running | UnitStatus::Silent => "running",
        UnitStatus::Held
        | UnitStatus::Waiting
        | UnitStatus::Stopped
        | UnitStatus::BudgetExhausted => "paused",
        UnitStatus::Succeeded | UnitStatus::Reused => "completed",
        UnitStatus::Failed | UnitStatus::Interrupted => "error",
    };
    let mut json = json!({"type": "state:update", "status": word, "taskId": unit});
    let key = if word == "error" { "error" } else { "message" };
    if let Some(reason) = reason {
        json[key] = json!(reason);
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accumulated_text_is_bounded_and_reset_by_a_message() {
        let mut state = AttemptVocabulary::default();
        let delta = |text: &str| {
            let event = json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}});
            json!({"type": "stream_event", "session_id": "s", "event": event}).to_string()
        };
        let mut push = |line: &str, turns| {
            let decoded = ingestdeck_core::decode::decode_line(line.as_bytes());
            state
                .line(&decoded, turns)
                .pop()
                .map(|(json, _)| json)
                .unwrap_or_default()
        };
        assert_eq!(push(&delta("a"), 0)["accumulated"], "a");
        assert_eq!(push(&delta("b"), 0)["accumulated"], "ab");
        let long = push(&delta(&"é".repeat(MAX_ACCUMULATED_BYTES)), 0);
        assert!(long["accumulated"].as_str().unwrap().len() <= MAX_ACCUMULATED_BYTES);
        let text = r#"{"type":"assistant","session_id":"s","message":{"id":"m1","content":[{"type":"text","text":"ab"}]}}"#;
        assert_eq!(
            push(text, 1),
            json!({"type": "agent:turn", "turn": 1, "content": [{"type": "text", "text": "ab"}]})
        );
        assert_eq!(push(&delta("c"), 1)["accumulated"], "c");
        let call = r#"{"type":"assistant","session_id":"s","message":{"id":"m1","content":[{"type":"tool_use","id":"t","name":"x"}]}}"#;
        assert_eq!(push(call, 1), Value::Null, "another block of the same turn");
        assert_eq!(push(call, 2)["content"], json!([]));
    }
}
