//! Reduces the stream of an attempt to the facts that a verdict needs. Pure: lines in, facts out.
//!
//! The module must not judge: `units` decides which failures count and what a result means.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use ingestdeck_core::{
    actions::{LineRole, TurnTracker, label::strip_error_tags},
    decode::{AgentLine, LineBody, MessageBlock},
    run::attempt_reducer::{AttemptReducer, CallChange, CallOutcome, ReducedLine},
    tape::{Note, note::Severity},
    units::{
        call_effect::CallEffect,
        limits,
        verdict::{AttemptFacts, WorkFacts},
    },
};

/// Number of stderr lines that are kept.
const STDERR_TAIL_LINES: usize = 20;
const STDERR_TAIL_LINE_CHARS: usize = 2_000;
/// Maximum length of stored arguments of a failed call, in bytes. Longer ones are truncated and stored as text.
const MAX_INPUT_BYTES: usize = 64 * 1024;

/// Collects the facts of one attempt.
#[derive(Debug)]
pub struct AttemptFactsCollector {
    /// Facts so far, without those that [`AttemptFactsCollector::into_facts`] adds.
    pub facts: AttemptFacts,
    reducer: AttemptReducer,
    /// Tool of each call, by call id.
    tool_names: HashMap<String, String>,
    /// Arguments of the calls that have not succeeded, as JSON, by call id.
    pending_inputs: BTreeMap<String, String>,
    /// Maximum number of turns, if there is a limit.
    max_turns: Option<u32>,
}

impl AttemptFactsCollector {
    /// Starts with the facts from before the process start.
    pub fn new(facts: AttemptFacts) -> Self {
        Self {
            facts,
            reducer: AttemptReducer::new(TurnTracker::for_one_prompt()),
            tool_names: HashMap::new(),
            pending_inputs: BTreeMap::new(),
            max_turns: None,
        }
    }

    /// Warns once when the attempt approaches this number of turns.
    pub(crate) fn with_turn_limit(self, max_turns: Option<u32>) -> Self {
        Self { max_turns, ..self }
    }

    /// The accounting of the lines so far.
    pub(crate) fn reducer(&self) -> &AttemptReducer {
        &self.reducer
    }

    /// The attempt continues a session whose earlier attempts cost `paid` US dollars; `None` if that is unknown.
    pub(crate) fn resume_session(&mut self, paid: Option<f64>) {
        self.reducer.resume_session(paid);
    }

    /// True if no further request to the model is allowed.
    pub(crate) fn is_at_turn_limit(&self) -> bool {
        self.max_turns
            .is_some_and(|limit| self.reducer.turn_count() >= limit)
    }

    /// True if the limit allows this number of further requests to the model.
    pub(crate) fn has_turns_left(&self, turns: u32) -> bool {
        self.max_turns
            .is_none_or(|limit| self.reducer.turn_count().saturating_add(turns) <= limit)
    }

    /// True once the last turn has its result.
    pub(crate) fn has_result(&self) -> bool {
        self.reducer.result_facts().is_some()
    }

    /// True once no more lines belong to the attempt.
    pub(crate) fn is_complete(&self) -> bool {
        self.reducer.stream().turns().is_closed()
    }

    pub fn into_facts(mut self) -> AttemptFacts {
        let tally = &self.facts.work.tally;
        let ids = tally
            .calls()
            .iter()
            .chain(tally.refusals())
            .filter_map(|call| call.tool_use_id.as_deref());
        let inputs = ids
            .filter_map(|id| Some((id.to_owned(), parse_input(self.pending_inputs.remove(id)?))))
            .collect();
        let work = WorkFacts {
            failed_inputs: inputs,
            ..self.facts.work
        };
        AttemptFacts {
            reported: self.reducer.reported_facts(),
            work,
            ..self.facts
        }
    }

    /// Marks the attempt as ended by us: calls that fail from now on were interrupted.
    pub(crate) fn mark_interrupted(&mut self) {
        self.reducer.mark_interrupted();
    }

    /// Records a failure that the agent reports outside its lines.
    pub(crate) fn record_failure(&mut self, tool: &str, tool_use_id: Option<&str>, message: &str) {
        let calls = self.reducer.calls();
        let was_aborted = tool_use_id.map_or(calls.is_interrupted(), |id| calls.was_aborted(id));
        if !was_aborted {
            self.reducer.record_failure(tool_use_id);
            self.facts
                .work
                .tally
                .record_failure(tool, tool_use_id, message);
        }
    }

    /// Records that a person refused a call.
    pub(crate) fn record_refusal(&mut self, tool: &str, tool_use_id: Option<&str>, reason: &str) {
        self.reducer.record_refusal(tool_use_id);
        self.facts
            .work
            .tally
            .record_refusal(tool, tool_use_id, reason);
    }

    /// Records that a rule denied a call. The agent reports it as failed.
    pub(crate) fn record_denial(&mut self, tool_use_id: Option<&str>) {
        self.reducer.record_denial(tool_use_id);
    }

    /// Records the end of a call of our tool server. Returns false for a failure that is already counted.
    pub(crate) fn record_tool_reply(
        &mut self,
        tool: &str,
        tool_use_id: Option<&str>,
        effect: &CallEffect,
        failure: Option<&str>,
    ) -> bool {
        if failure.is_some() {
            self.reducer.record_failure(tool_use_id);
        }
        self.facts
            .work
            .tally
            .record_tool_reply(tool, tool_use_id, effect, failure)
    }

    /// Handles a line of stdout. Lines after the last result do not belong to the attempt. Returns the warning that the
    /// line causes.
    pub fn push_line(&mut self, line: &AgentLine<'_>) -> Option<Note> {
        let earlier = self.reducer.turn_count();
        let ReducedLine { role, calls } = self.reducer.push(line);
        if let (LineRole::InTurn, LineBody::Assistant(chat)) = (role, &line.body) {
            for block in &chat.blocks {
                let MessageBlock::ToolUse(call) = block else {
                    continue;
                };
                self.tool_names
                    .insert(call.id.to_string(), call.name.to_string());
                if let Some(input) = call.input {
                    self.pending_inputs
                        .insert(call.id.to_string(), truncate_json(input.0).to_owned());
                }
            }
        }
        for change in calls {
            match change {
                CallChange::Ended {
                    result, tool, end, ..
                } => {
                    let id = result.tool_use_id.as_ref();
                    let tool = tool
                        .as_deref()
                        .or_else(|| self.tool_names.get(id).map(String::as_str))
                        .unwrap_or("?");
                    match end {
                        CallOutcome::Failed | CallOutcome::Denied => {
                            self.facts.work.tally.record_failure(
                                tool,
                                Some(id),
                                strip_error_tags(&result.text()),
                            );
                        }
                        CallOutcome::Ok | CallOutcome::Declined => {
                            self.pending_inputs.remove(id);
                            self.facts.work.tally.record_success(tool, Some(id));
                        }
                        CallOutcome::Aborted => {}
                    }
                }
                CallChange::Denied {
                    id, tool, message, ..
                } => {
                    let known = id
                        .and_then(|id| self.tool_names.get(id))
                        .map(String::as_str);
                    let tool = tool.as_deref().or(known).unwrap_or("?");
                    self.facts.work.tally.record_failure(
                        tool,
                        id,
                        message.unwrap_or("permission denied"),
                    );
                }
                CallChange::Cut { .. } => {}
            }
        }
        let turn = Some(self.reducer.turn_count()).filter(|turn| *turn > earlier)?;
        let text = limits::turn_limit_warning(turn, self.max_turns?)?;
        Some(Note::Message {
            level: Severity::Warning,
            text,
        })
    }

    pub(crate) fn push_stderr_line(&mut self, line: &str) {
        let tail = &mut self.facts.process.stderr_tail;
        if tail.len() == STDERR_TAIL_LINES {
            tail.remove(0);
        }
        tail.push(line.chars().take(STDERR_TAIL_LINE_CHARS).collect());
    }
}

/// Truncates JSON that is too long.
fn truncate_json(json: &str) -> &str {
    if json.len() <= MAX_INPUT_BYTES {
        return json;
    }
    let end = (0..=MAX_INPUT_BYTES)
        .rev()
        .find(|at| json.is_char_boundary(*at))
        .unwrap_or(0);
    json.get(..end).unwrap_or_default()
}

/// Parses arguments. Truncated ones become text.
fn parse_input(json: String) -> Value {
    serde_json::from_str(&json).unwrap_or(Value::String(json))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingestdeck_core::{
        decode::{
            ChatLine, MessageBlocks, RawJson, ResultLine, ToolResult, ToolUse,
            line::{PermissionDenial, SystemLine},
        },
        units::failure_tally::FailureRecovery,
    };

    fn call(id: &'static str, name: &'static str) -> LineBody<'static> {
        let block = MessageBlock::ToolUse(ToolUse {
            id: id.into(),
            name: name.into(),
            input: None,
        });
        LineBody::Assistant(ChatLine {
            blocks: MessageBlocks::One([block]),
            ..ChatLine::default()
        })
    }

    fn result(
        id: &'static str,
        content: &'static str,
        is_error: bool,
        refused: bool,
    ) -> LineBody<'static> {
        let block = ToolResult {
            tool_use_id: id.into(),
            content: Some(RawJson(content)),
            content_len: content.len(),
            is_error: Some(is_error),
        };
        let refused = if refused { vec![id.into()] } else { Vec::new() };
        LineBody::User(ChatLine {
            blocks: MessageBlocks::One([MessageBlock::ToolResult(block)]),
            refused,
            ..ChatLine::default()
        })
    }

    fn take(stats: &mut AttemptFactsCollector, body: LineBody<'_>) {
        stats.push_line(&AgentLine {
            body,
            ..ingestdeck_core::decode::decode_line(b"")
        });
    }

    fn failures(stats: &AttemptFactsCollector) -> Vec<(&str, &str, bool)> {
        stats
            .facts
            .work
            .tally
            .calls()
            .iter()
            .map(|call| {
                (
                    call.tool.as_str(),
                    call.message.as_str(),
                    call.recovery > FailureRecovery::None,
                )
            })
            .collect()
    }

    #[test]
    fn failed_refused_and_recovered_calls() {
        let mut stats = AttemptFactsCollector::new(AttemptFacts::default());
        for line in [
            call("a", "mcp__ktx__wiki_write"),
            result("a", r#""no such page""#, true, false),
            call("b", "mcp__ktx__wiki_write"),
            result("b", r#"[{"type":"text","text":"written"}]"#, false, false),
            call("c", "Bash"),
            result(
                "c",
                r#"[{"type":"text","text":"one"},{"type":"text","text":"two"}]"#,
                false,
                true,
            ),
            result("never announced", "null", true, false),
        ] {
            take(&mut stats, line);
        }
        assert_eq!(
            failures(&stats),
            [
                ("wiki_write", "no such page", true),
                ("Bash", "one\ntwo", false),
                ("?", "null", false)
            ]
        );
    }

    #[test]
    fn failed_calls_keep_their_arguments() {
        let mut stats = AttemptFactsCollector::new(AttemptFacts::default());
        let long = format!(r#"{{"content":"{}"}}"#, "é".repeat(MAX_INPUT_BYTES));
        let announced = |id: &'static str, name: &'static str, input| {
            let block = MessageBlock::ToolUse(ToolUse {
                id: id.into(),
                name: name.into(),
                input: Some(RawJson(input)),
            });
            LineBody::Assistant(ChatLine {
                blocks: MessageBlocks::One([block]),
                ..ChatLine::default()
            })
        };
        let broken = r#"{"__unparsedToolInput":{"raw":"{\"path\": ","len":9}}"#;
        for line in [
            announced("a", "Bash", r#"{"command":"ls"}"#),
            result(
                "a",
                r#""<tool_use_error>No such tool available: Bash</tool_use_error>""#,
                true,
                false,
            ),
            announced("b", "mcp__ktx__read_raw_span", broken),
            result("b", r#""not JSON""#, true, false),
            announced("c", "mcp__ktx__wiki_read", r#"{"key":"a"}"#),
            result("c", r#""text""#, false, false),
        ] {
            take(&mut stats, line);
        }
        take(
            &mut stats,
            announced(
                "d",
                "mcp__ktx__wiki_write",
                Box::leak(long.into_boxed_str()),
            ),
        );
        stats
            .facts
            .work
            .tally
            .record_refusal("wiki_write", Some("d"), "not this page");
        let facts = stats.into_facts();
        assert_eq!(
            facts.work.tally.calls()[0].message,
            "No such tool available: Bash"
        );
        let inputs: Vec<_> = facts.work.failed_inputs.into_iter().collect();
        assert_eq!(
            inputs[0],
            ("a".into(), serde_json::json!({"command": "ls"}))
        );
        assert_eq!(
            inputs[1],
            ("b".into(), serde_json::from_str(broken).unwrap())
        );
        assert!(
            matches!(&inputs[2], (id, Value::String(text)) if id == "d" && text.len() <= MAX_INPUT_BYTES)
        );
        assert_eq!(inputs.len(), 3);
    }

    #[test]
    fn repeated_denial_counts_once() {
        let mut stats = AttemptFactsCollector::new(AttemptFacts::default());
        take(&mut stats, call("a", "Bash"));
        take(
            &mut stats,
            LineBody::System(SystemLine::PermissionDenied {
                tool_name: "Bash".into(),
                tool_use_id: "a".into(),
                message: Some("not allowed".into()),
            }),
        );
        take(&mut stats, result("a", r#""not allowed""#, true, true));
        let denial = PermissionDenial {
            tool_name: Some("Bash".into()),
            tool_use_id: Some("a".into()),
            tool_input: None,
        };
        take(
            &mut stats,
            LineBody::Result(Box::new(ResultLine {
                denials: vec![denial],
                ..ResultLine::default()
            })),
        );
        assert_eq!(failures(&stats), [("Bash", "not allowed", false)]);
    }

    #[test]
    fn interrupted_call_is_not_counted_as_failure() {
        let mut stats = AttemptFactsCollector::new(AttemptFacts::default());
        for line in [
            call("a", "Bash"),
            result("a", r#""no""#, true, true),
            call("b", "mcp__ktx__wiki_read"),
        ] {
            take(&mut stats, line);
        }
        stats.mark_interrupted();
        take(
            &mut stats,
            result("b", r#""The user doesn't want to proceed""#, true, true),
        );
        stats.record_failure("mcp__ktx__wiki_read", Some("c"), "interrupted");
        let denied = |id: &'static str| PermissionDenial {
            tool_name: Some("wiki_read".into()),
            tool_use_id: Some(id.into()),
            tool_input: None,
        };
        let denials = vec![denied("b"), denied("c")];
        take(
            &mut stats,
            LineBody::Result(Box::new(ResultLine {
                denials,
                ..ResultLine::default()
            })),
        );
        assert_eq!(failures(&stats), [("Bash", "no", false)]);
    }

    #[test]
    fn the_tail_of_stderr_is_bounded() {
        let mut stats = AttemptFactsCollector::new(AttemptFacts::default());
        for line in 0..50 {
            stats.push_stderr_line(&format!("{line} {}", "é".repeat(5_000)));
        }
        assert_eq!(stats.facts.process.stderr_tail.len(), STDERR_TAIL_LINES);
        assert!(stats.facts.process.stderr_tail[0].starts_with("30 "));
        assert!(
            stats
                .facts
                .process
                .stderr_tail
                .iter()
                .all(|line| line.chars().count() == STDERR_TAIL_LINE_CHARS)
        );
    }
}
