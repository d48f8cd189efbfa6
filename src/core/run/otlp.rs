//! OpenTelemetry spans of a run in the JSON encoding of OTLP: the run, its attempts and their tool calls. Pure.
//!
//! Attributes follow the semantic conventions for generative AI of OpenTelemetry, in the version [`SEMCONV`]. Ids are
//! derived from the run, so a live run and its tape have the same spans. It must not know where spans are sent.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    SinkEvent,
    event::{ActionDetail, ActionEvent, ActionPhase, AgentEvent, JsonText},
    spending::attempt_end,
    state::{AttemptState, RunState, UnitState, UnitStatus},
};
use crate::{
    tape::{AgentName, Header, Millis, Note, RunId, note::AttemptOutcome},
    units::failure_tally::bare_name,
};

/// Version of the semantic conventions.
const SEMCONV: &str = "1.41.0";

/// Maximum characters of arguments or a result in a span.
const MAX_CONTENT_CHARS: usize = 4 << 10;

/// Maximum characters of names and other short texts in a span.
const MAX_TEXT_CHARS: usize = 200;

/// Attributes with arguments and results.
const CONTENT_KEYS: [&str; 2] = ["gen_ai.tool.call.arguments", "gen_ai.tool.call.result"];

/// Name of the operation of a tool call.
const CALL_OPERATION: &str = "execute_tool";

/// Maximum number of calls without a result that are kept.
const MAX_OPEN_CALLS: usize = 100_000;

/// The trace of a run: its id, and the span that started the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunTrace {
    run: RunId,
    trace_id: String,
    parent: Option<String>,
}

impl RunTrace {
    /// The trace that `traceparent` names in the form of W3C Trace Context; a new one if it is absent or invalid.
    pub fn new(run: RunId, traceparent: Option<&str>) -> Self {
        match traceparent.and_then(parse_traceparent) {
            Some((trace_id, parent)) => Self {
                run,
                trace_id,
                parent: Some(parent),
            },
            None => Self {
                run,
                trace_id: run.0.simple().to_string(),
                parent: None,
            },
        }
    }

    /// The value of `TRACEPARENT` for the agent of an attempt.
    pub fn traceparent_of_attempt(&self, unit: &str, attempt: u32) -> String {
        format!(
            "00-{}-{}-01",
            self.trace_id,
            self.attempt_span(unit, attempt)
        )
    }

    fn run_span(&self) -> String {
        self.span_id(&[])
    }

    fn attempt_span(&self, unit: &str, attempt: u32) -> String {
        self.span_id(&[unit, &attempt.to_string()])
    }

    fn call_span(&self, unit: &str, attempt: u32, call: &str) -> String {
        self.span_id(&[unit, &attempt.to_string(), call])
    }

    fn span_id(&self, names: &[&str]) -> String {
        let mut hash = Sha256::new_with_prefix(self.run.0.as_bytes());
        for name in names {
            hash.update((name.len() as u64).to_be_bytes());
            hash.update(name);
        }
        hash.finalize()
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

/// Trace id and parent span id.
fn parse_traceparent(text: &str) -> Option<(String, String)> {
    let mut fields = text.trim().split('-');
    let (version, trace, span, flags) = (
        fields.next()?,
        fields.next()?,
        fields.next()?,
        fields.next()?,
    );
    let is_hex = |field: &str, length: usize| {
        field.len() == length
            && field
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_id = |field: &str, length: usize| {
        is_hex(field, length) && field.bytes().any(|byte| byte != b'0')
    };
    // Later versions may have more fields, version 00 has four.
    let is_version =
        is_hex(version, 2) && version != "ff" && (version != "00" || fields.next().is_none());
    (is_version && is_id(trace, 32) && is_id(span, 16) && is_hex(flags, 2))
        .then(|| (trace.to_owned(), span.to_owned()))
}

/// Builds the spans of one run from the events of its tape.
#[derive(Debug)]
pub struct SpanBuilder {
    header: Header,
    trace: RunTrace,
    has_content: bool,
    /// Calls without a result, by unit, attempt and id.
    open: HashMap<(String, u32, String), OpenSpan>,
    /// Attempts whose spans are complete.
    ended: HashSet<(String, u32)>,
    /// Complete spans that were not taken yet.
    done: Vec<Value>,
}

/// A call without a result.
#[derive(Debug)]
struct OpenSpan {
    at: Millis,
    tool: String,
    parent_call: Option<String>,
    input: Option<String>,
}

impl SpanBuilder {
    /// Builds the spans of the run of `header`; with `has_content`, also arguments and results of calls.
    pub fn new(header: Header, has_content: bool) -> Self {
        let trace = RunTrace::new(header.run, None);
        let (open, ended, done) = Default::default();
        Self {
            header,
            trace,
            has_content,
            open,
            ended,
            done,
        }
    }

    /// Adds an event of the fold.
    pub fn observe(&mut self, emitted: &SinkEvent<'_>) {
        match emitted {
            SinkEvent::Note {
                note: Note::RunPlanned(planned),
                ..
            } => {
                self.trace = RunTrace::new(self.header.run, planned.starter.traceparent.as_deref());
            }
            SinkEvent::Note {
                attempt: Some((unit, attempt)),
                note:
                    Note::CallDecided {
                        tool_use_id: Some(id),
                        input: Some(edited),
                        ..
                    },
                ..
            } if self.has_content => {
                if let Some(call) = self
                    .open
                    .get_mut(&((*unit).to_owned(), *attempt, id.clone()))
                {
                    call.input = Some(edited.to_string());
                }
            }
            SinkEvent::Agent {
                at,
                unit,
                attempt,
                event: AgentEvent::Action(event),
                ..
            } => {
                self.action(*at, unit, *attempt, event);
            }
            _ => {}
        }
    }

    /// Adds the attempts that have ended in `state`.
    pub fn add_ended_attempts(&mut self, state: &RunState) {
        for unit in &state.units {
            for attempt in unit
                .attempts
                .iter()
                .filter(|attempt| attempt.verdict.is_some())
            {
                self.add_attempt(state, unit, attempt);
            }
        }
    }

    /// Adds what is still open at the end of the tape, and the run.
    pub fn finish(&mut self, state: &RunState) {
        for ((unit, attempt, id), call) in std::mem::take(&mut self.open) {
            self.push_call(
                (&unit, attempt, &id),
                call,
                state.last_entry_at,
                Some("interrupted"),
                None,
            );
        }
        for unit in &state.units {
            unit.attempts
                .iter()
                .for_each(|attempt| self.add_attempt(state, unit, attempt));
        }
        self.add_run(state);
    }

    /// The spans that are complete since the last call.
    pub fn take(&mut self) -> Vec<Value> {
        let mut spans = self.take_complete();
        spans.iter_mut().for_each(shorten_texts);
        spans
    }

    /// The same with complete texts. Secrets must be masked in them, because a cut one is not recognized.
    pub fn take_complete(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.done)
    }

    fn action(&mut self, at: Millis, unit: &str, attempt: u32, event: &ActionEvent<'_>) {
        let ActionDetail::Tool(detail) = &event.action.detail else {
            return;
        };
        let id = event.action.id.as_ref();
        let key = (unit.to_owned(), attempt, id.to_owned());
        let new_call = || OpenSpan {
            at,
            tool: detail.tool_name.as_deref().unwrap_or("?").to_owned(),
            parent_call: detail.parent_tool_use_id.as_deref().map(str::to_owned),
            input: detail
                .tool_input
                .as_ref()
                .filter(|_| self.has_content)
                .map(|input| JsonText::raw(input).0.to_owned()),
        };
        match event.phase {
            ActionPhase::Started if self.open.len() < MAX_OPEN_CALLS => {
                let call = new_call();
                self.open.entry(key).or_insert(call);
            }
            ActionPhase::Started | ActionPhase::Updated => {}
            ActionPhase::Completed => {
                // A second result of the same call belongs to a span that is complete.
                let Some(call) = self.open.remove(&key) else {
                    return;
                };
                let result = detail.result.as_ref();
                let error = match (event.ok, result) {
                    (Some(false), Some(_)) => Some("tool_error"),
                    (Some(false), None) => Some("interrupted"),
                    _ => None,
                };
                let output = result
                    .and_then(|result| result.content)
                    .filter(|_| self.has_content);
                self.push_call(
                    (unit, attempt, id),
                    call,
                    at,
                    error,
                    output.map(|output| output.0),
                );
            }
        }
    }

    fn push_call(
        &mut self,
        (unit, attempt, id): (&str, u32, &str),
        call: OpenSpan,
        end: Millis,
        error: Option<&str>,
        output: Option<&str>,
    ) {
        let parent = match &call.parent_call {
            Some(parent) => self.trace.call_span(unit, attempt, parent),
            None => self.trace.attempt_span(unit, attempt),
        };
        let tool = bare_name(&call.tool);
        let mut attributes = vec![
            text("gen_ai.operation.name", CALL_OPERATION),
            text("gen_ai.tool.name", tool),
            text("gen_ai.tool.type", "function"),
            text("gen_ai.tool.call.id", id),
        ];
        let contents = CONTENT_KEYS
            .into_iter()
            .zip([call.input.as_deref(), output]);
        attributes.extend(contents.filter_map(|(key, content)| Some(text(key, content?))));
        let name = format!("{CALL_OPERATION} {tool}");
        let id = self.trace.call_span(unit, attempt, id);
        self.push(
            (&name, &id, Some(&parent)),
            (call.at, end),
            attributes,
            error,
        );
    }

    fn add_attempt(&mut self, state: &RunState, unit: &UnitState, attempt: &AttemptState) {
        let key = (unit.key.as_str().to_owned(), attempt.number);
        if !self.ended.insert(key) {
            return;
        }
        let agent = match &self.header.agent {
            Some(AgentName::Unknown(name)) => name.clone(),
            Some(AgentName::Scripted) => "scripted".to_owned(),
            _ if self.header.scripted => "scripted".to_owned(),
            Some(AgentName::ClaudeCode) | None => "claude".to_owned(),
        };
        let mut attributes = vec![
            text("gen_ai.operation.name", "invoke_agent"),
            text(
                "gen_ai.provider.name",
                if agent == "claude" {
                    "anthropic"
                } else {
                    "_OTHER"
                },
            ),
            text("gen_ai.agent.name", &agent),
        ];
        let setup = &attempt.setup;
        for (name, value) in [
            ("gen_ai.conversation.id", setup.session.as_deref()),
            ("gen_ai.request.model", setup.requested_model.as_deref()),
            ("gen_ai.response.model", setup.model.as_deref()),
            (
                "ingestdeck.connection",
                unit.planned
                    .as_ref()
                    .map(|planned| planned.connection.as_str()),
            ),
        ] {
            attributes.extend(
                value
                    .filter(|value| !value.is_empty())
                    .map(|value| text(name, value)),
            );
        }
        // Unlike the agent, the conventions count cached tokens as input.
        let tokens = attempt.counts.tokens;
        if tokens.total() > 0 {
            let input = tokens
                .input
                .saturating_add(tokens.cache_read)
                .saturating_add(tokens.cache_write);
            attributes.extend([
                integer("gen_ai.usage.input_tokens", input),
                integer("gen_ai.usage.output_tokens", tokens.output),
                integer("gen_ai.usage.cache_read.input_tokens", tokens.cache_read),
                integer(
                    "gen_ai.usage.cache_creation.input_tokens",
                    tokens.cache_write,
                ),
            ]);
        }
        attributes.extend([
            text("ingestdeck.unit", unit.key.as_str()),
            integer("ingestdeck.attempt", attempt.number.into()),
            integer("ingestdeck.turns", attempt.counts.turns.into()),
            integer("ingestdeck.tool_calls", attempt.counts.calls.into()),
            integer(
                "ingestdeck.failed_tool_calls",
                attempt.counts.failures.into(),
            ),
        ]);
        if let Some(worker) = attempt.setup.worker {
            let name = state.workers.name(worker);
            attributes.extend(name.map(|name| text("ingestdeck.worker", name)));
            let account = state.workers.account(worker);
            attributes.extend(account.map(|account| text("ingestdeck.account", &account)));
        }
        attributes.extend(
            attempt
                .counts
                .cost_usd
                .map(|cost| double("ingestdeck.cost_usd", cost)),
        );
        let error = match &attempt.verdict {
            None => Some("interrupted".to_owned()),
            Some(verdict) => {
                (verdict.outcome != AttemptOutcome::Succeeded).then(|| cause_name(&verdict.cause))
            }
        };
        let id = self.trace.attempt_span(unit.key.as_str(), attempt.number);
        let (name, parent) = (format!("invoke_agent {agent}"), self.trace.run_span());
        let end = attempt_end(unit, attempt, state.last_entry_at);
        self.push(
            (&name, &id, Some(&parent)),
            (attempt.started_at, end),
            attributes,
            error.as_deref(),
        );
    }

    fn add_run(&mut self, state: &RunState) {
        let workflow = self
            .header
            .project
            .clone()
            .unwrap_or_else(|| "ingest".to_owned());
        let count = |wanted: &[UnitStatus]| {
            state
                .units
                .iter()
                .filter(|unit| wanted.contains(&unit.status))
                .count() as u64
        };
        let failed = count(&[UnitStatus::Failed, UnitStatus::Interrupted]);
        let mut attributes = vec![
            text("gen_ai.operation.name", "invoke_workflow"),
            text("gen_ai.workflow.name", &workflow),
            text("ingestdeck.run", &self.header.run.to_string()),
            integer("ingestdeck.units", state.units.len() as u64),
            integer(
                "ingestdeck.succeeded_units",
                count(&[UnitStatus::Succeeded, UnitStatus::Reused]),
            ),
            integer("ingestdeck.failed_units", failed),
        ];
        attributes.extend(
            state
                .ended
                .as_ref()
                .map(|ended| text("ingestdeck.outcome", ended.outcome.as_str())),
        );
        let error = match &state.ended {
            None => Some("interrupted"),
            Some(_) if failed > 0 => Some("failed_units"),
            Some(_) => None,
        };
        let (name, id) = (format!("invoke_workflow {workflow}"), self.trace.run_span());
        let parent = self.trace.parent.clone();
        self.push(
            (&name, &id, parent.as_deref()),
            (Millis(0), state.last_entry_at),
            attributes,
            error,
        );
    }

    fn push(
        &mut self,
        (name, id, parent): (&str, &str, Option<&str>),
        (start, end): (Millis, Millis),
        mut attributes: Vec<Value>,
        error: Option<&str>,
    ) {
        let began = self.header.started_at.as_nanosecond();
        let nanoseconds = |at: Millis| {
            (began + i128::from(at.0) * 1_000_000)
                .clamp(0, u64::MAX.into())
                .to_string()
        };
        attributes.extend(error.map(|error| text("error.type", error)));
        let mut span = json!({
            "traceId": self.trace.trace_id,
            "spanId": id,
            "name": name,
            "kind": 1,
            "startTimeUnixNano": nanoseconds(start),
            "endTimeUnixNano": nanoseconds(end.max(start)),
            "attributes": attributes,
            "status": {"code": if error.is_some() { 2 } else { 0 }},
        });
        if let Some(parent) = parent {
            span["parentSpanId"] = json!(parent);
        }
        self.done.push(span);
    }
}

/// True for the span of a tool call.
pub fn is_call(span: &Value) -> bool {
    span["name"]
        .as_str()
        .is_some_and(|name| name.starts_with(CALL_OPERATION))
}

/// Shortens the texts of a span from [`SpanBuilder::take_complete`].
pub fn shorten_texts(span: &mut Value) {
    let shorten = |text: &mut Value, most: usize| {
        if let Value::String(text) = text
            && let Some((end, _)) = text.char_indices().nth(most)
        {
            text.truncate(end);
        }
    };
    shorten(&mut span["name"], MAX_TEXT_CHARS);
    for attribute in span["attributes"].as_array_mut().into_iter().flatten() {
        let is_content = attribute["key"]
            .as_str()
            .is_some_and(|key| CONTENT_KEYS.contains(&key));
        let most = if is_content {
            MAX_CONTENT_CHARS
        } else {
            MAX_TEXT_CHARS
        };
        if let Some(text) = attribute["value"].get_mut("stringValue") {
            shorten(text, most);
        }
    }
}

/// One request of OTLP with these spans, for a service of this name.
pub fn export_request(service: &str, spans: &[Value]) -> Value {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    json!({"resourceSpans": [{
        "resource": {"attributes": [text("service.name", service), text("service.version", VERSION)]},
        "scopeSpans": [{"scope": {"name": "ingestdeck", "version": VERSION}, "spans": spans}],
        "schemaUrl": format!("https://opentelemetry.io/schemas/{SEMCONV}"),
    }]})
}

/// The word of a cause on the tape.
fn cause_name(cause: &impl serde::Serialize) -> String {
    match serde_json::to_value(cause) {
        Ok(Value::String(name)) => name,
        Ok(Value::Object(fields)) => fields.keys().next().cloned().unwrap_or_default(),
        _ => "_OTHER".to_owned(),
    }
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

/// The encoding has 64-bit integers as text.
fn integer(key: &str, value: u64) -> Value {
    json!({"key": key, "value": {"intValue": i64::try_from(value).unwrap_or(i64::MAX).to_string()}})
}

fn double(key: &str, value: f64) -> Value {
    json!({"key": key, "value": {"doubleValue": value}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_shortened_and_calls_sorted_last() {
        let long = "x".repeat(MAX_CONTENT_CHARS + 1);
        let span = |name: &str| json!({"name": name, "attributes": [text("a", &long), text(CONTENT_KEYS[0], &long), integer("n", 1)]});
        let mut spans = [
            span("execute_tool a"),
            span("invoke_agent claude"),
            span("invoke_workflow w"),
        ];
        spans.iter_mut().for_each(shorten_texts);
        let length = |at: usize| {
            spans[0]["attributes"][at]["value"]["stringValue"]
                .as_str()
                .unwrap()
                .len()
        };
        assert_eq!((length(0), length(1)), (MAX_TEXT_CHARS, MAX_CONTENT_CHARS));
        spans.sort_by_key(is_call);
        assert_eq!(spans[2]["name"], "execute_tool a");
    }

    #[test]
    fn traceparent_is_parsed_strictly() {
        let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
        let run = RunId(uuid::Uuid::from_u128(7));
        let of = |text: &str| RunTrace::new(run, Some(text));
        let valid = of(&format!("00-{trace}-{span}-01"));
        assert_eq!(
            (valid.trace_id.as_str(), valid.parent.as_deref()),
            (trace, Some(span))
        );
        assert_eq!(
            of(&format!("01-{trace}-{span}-00-more")).trace_id,
            trace,
            "a later version may have more fields"
        );
        let zero = "0".repeat(32);
        for text in [
            "",
            "00",
            "garbage",
            &format!("00-{trace}-{span}"),
            &format!("00-{trace}-{span}-01-more"),
            &format!("ff-{trace}-{span}-01"),
            &format!("00-{zero}-{span}-01"),
            &format!("00-{trace}-{}-01", &zero[..16]),
            &format!("00-{}-{span}-01", trace.to_uppercase()),
            &format!("00-{trace}-{span}x-01"),
        ] {
            assert_eq!(of(text), RunTrace::new(run, None), "{text}");
        }
        let own = RunTrace::new(run, None);
        assert_eq!((own.trace_id.len(), own.parent.is_none()), (32, true));
        let agent = valid.traceparent_of_attempt("u", 1);
        assert_eq!(parse_traceparent(&agent).unwrap().0, trace);
        assert_ne!(agent, valid.traceparent_of_attempt("u", 2));
        assert_ne!(valid.call_span("a", 1, "bc"), valid.call_span("ab", 1, "c"));
    }
}
