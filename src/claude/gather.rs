//! What the stream says about an attempt, boiled down to the facts that a verdict needs. Pure: lines in, facts out.
//!
//! It must not judge: which failure counts and what a result means is decided in `units`.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use crate::{
    actions::{Part, Turns, label::untagged},
    decode::{Block, Body, Chat, Line, Prose, Raw, ResultLine, line::System},
    run::reported::Reported,
    units::verdict::Facts,
};

/// Lines of stderr that a verdict keeps.
const TAIL_LINES: usize = 20;
/// Characters of each.
const TAIL_CHARS: usize = 2_000;
/// Longest arguments of a failed call that are kept as they are, in bytes. Of longer ones the beginning is kept, as text.
const INPUT_CAP: usize = 64 * 1024;

/// Collects the facts of one attempt.
#[derive(Debug)]
pub struct Gather {
    /// What is known so far, but for what [`Gather::finish`] adds.
    pub facts: Facts,
    reported: Reported,
    /// What the model said last.
    last_text: Prose<'static>,
    /// Tool of each call, by its id.
    tools: HashMap<String, String>,
    /// Arguments of the calls that have not succeeded, as JSON, by id.
    inputs: BTreeMap<String, String>,
    /// We have ended it: what its open calls come to says nothing about them.
    cut: bool,
    /// Calls that this cut short.
    cut_calls: HashSet<String>,
}

impl Gather {
    /// Goes on from what is known before the start.
    pub fn new(facts: Facts) -> Self {
        Self {
            facts,
            reported: Reported::new(Turns::of_one_prompt()),
            last_text: Prose::default(),
            tools: HashMap::new(),
            inputs: BTreeMap::new(),
            cut: false,
            cut_calls: HashSet::new(),
        }
    }

    /// True once the turn that ran last has its result.
    pub fn has_result(&self) -> bool {
        self.reported.result().is_some()
    }

    /// True once nothing that comes belongs to the attempt.
    pub fn is_over(&self) -> bool {
        self.reported.turns().is_closed()
    }

    /// Everything that is known.
    pub fn finish(mut self) -> Facts {
        let tally = &self.facts.tally;
        let ids = tally.calls().iter().chain(tally.refusals()).filter_map(|call| call.tool_use_id.as_deref());
        let inputs = ids.filter_map(|id| Some((id.to_owned(), input_of(self.inputs.remove(id)?)))).collect();
        let facts = Facts { failed_inputs: inputs, ..self.facts };
        self.reported.complete(facts, &self.last_text.read())
    }

    /// We end the attempt: a call that fails from now on was cut short.
    pub fn cut_short(&mut self) {
        self.cut = true;
    }

    /// The agent says that a call failed.
    pub fn failed(&mut self, tool: &str, tool_use_id: Option<&str>, message: &str) {
        if !self.cut {
            self.facts.tally.failed(tool, tool_use_id, message);
        } else if let Some(id) = tool_use_id {
            self.cut_calls.insert(id.to_owned());
        }
    }

    /// Takes in a line of stdout. What follows the last result is no part of the attempt.
    pub fn line(&mut self, line: &Line<'_>) {
        if self.reported.push(line) == Part::Trailing {
            return;
        }
        match &line.body {
            Body::Assistant(chat) => self.assistant(chat),
            Body::User(chat) => self.results(chat),
            Body::System(System::PermissionDenied { tool_name, tool_use_id, message }) => {
                let message = message.as_deref().unwrap_or("permission denied");
                self.facts.tally.failed(tool_name, Some(tool_use_id), message);
            }
            Body::Result(result) => self.denials(result),
            _ => {}
        }
    }

    /// Takes in a line of stderr.
    pub fn stderr(&mut self, line: &str) {
        let tail = &mut self.facts.stderr_tail;
        if tail.len() == TAIL_LINES {
            tail.remove(0);
        }
        tail.push(line.chars().take(TAIL_CHARS).collect());
    }

    fn assistant(&mut self, chat: &Chat<'_>) {
        for block in &chat.blocks {
            match block {
                Block::ToolUse(call) => {
                    self.tools.insert(call.id.to_string(), call.name.to_string());
                    if let Some(input) = call.input {
                        self.inputs.insert(call.id.to_string(), cut(input.0).to_owned());
                    }
                }
                Block::Text(text) => self.last_text.keep(text),
                Block::Thinking(_) | Block::ToolResult(_) | Block::Image(_) | Block::Unknown(_) => {}
            }
        }
    }

    fn results(&mut self, chat: &Chat<'_>) {
        for block in &chat.blocks {
            let Block::ToolResult(result) = block else { continue };
            let tool = self.tools.get(result.tool_use_id.as_ref()).map_or("?", String::as_str);
            let refused = chat.refused.contains(&result.tool_use_id);
            if refused || result.is_error == Some(true) {
                let message = result.content.map(text_of).unwrap_or_default();
                let tool = tool.to_owned();
                self.failed(&tool, Some(&result.tool_use_id), untagged(&message));
            } else {
                self.inputs.remove(result.tool_use_id.as_ref());
                self.facts.tally.succeeded(tool, Some(&result.tool_use_id));
            }
        }
    }

    fn denials(&mut self, line: &ResultLine<'_>) {
        for denial in &line.denials {
            let id = denial.tool_use_id.as_deref();
            if id.is_some_and(|id| self.cut_calls.contains(id)) {
                continue;
            }
            let known = id.and_then(|id| self.tools.get(id)).map(String::as_str);
            let tool = denial.tool_name.as_deref().or(known).unwrap_or("?");
            self.facts.tally.failed(tool, id, "permission denied");
        }
    }
}

/// The beginning of some JSON, whole where it is not too long.
fn cut(json: &str) -> &str {
    if json.len() <= INPUT_CAP {
        return json;
    }
    let end = (0..=INPUT_CAP).rev().find(|at| json.is_char_boundary(*at)).unwrap_or(0);
    json.get(..end).unwrap_or_default()
}

/// Arguments from their JSON, or their beginning as text.
fn input_of(json: String) -> Value {
    serde_json::from_str(&json).unwrap_or(Value::String(json))
}

/// The text of a tool result: the string, or the texts of its blocks, or the JSON as it is.
fn text_of(content: Raw<'_>) -> String {
    match content.value() {
        Value::String(text) => text,
        Value::Array(blocks) => {
            let texts: Vec<&str> = blocks.iter().filter_map(|block| block.get("text")?.as_str()).collect();
            texts.join("\n")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        decode::{ToolResult, ToolUse, line::Denial},
        units::tally::Recovery,
    };

    fn call(id: &'static str, name: &'static str) -> Body<'static> {
        let block = Block::ToolUse(ToolUse { id: id.into(), name: name.into(), input: None });
        Body::Assistant(Chat { blocks: vec![block], ..Chat::default() })
    }

    fn result(id: &'static str, content: &'static str, is_error: bool, refused: bool) -> Body<'static> {
        let block = ToolResult { tool_use_id: id.into(), content: Some(Raw(content)), is_error: Some(is_error) };
        let refused = if refused { vec![id.into()] } else { Vec::new() };
        Body::User(Chat { blocks: vec![Block::ToolResult(block)], refused, ..Chat::default() })
    }

    fn take(gather: &mut Gather, body: Body<'_>) {
        let (session_id, parent_tool_use_id, timestamp) = (None, None, None);
        gather.line(&Line { session_id, parent_tool_use_id, timestamp, on_disk: false, body });
    }

    fn failures(gather: &Gather) -> Vec<(&str, &str, bool)> {
        gather
            .facts
            .tally
            .calls()
            .iter()
            .map(|call| (call.tool.as_str(), call.message.as_str(), call.recovery > Recovery::None))
            .collect()
    }

    #[test]
    fn failed_refused_and_recovered_calls() {
        let mut gather = Gather::new(Facts::default());
        for line in [
            call("a", "mcp__ktx__wiki_write"),
            result("a", r#""no such page""#, true, false),
            call("b", "mcp__ktx__wiki_write"),
            result("b", r#"[{"type":"text","text":"written"}]"#, false, false),
            call("c", "Bash"),
            result("c", r#"[{"type":"text","text":"one"},{"type":"text","text":"two"}]"#, false, true),
            result("never announced", "null", true, false),
        ] {
            take(&mut gather, line);
        }
        assert_eq!(
            failures(&gather),
            [("wiki_write", "no such page", true), ("Bash", "one\ntwo", false), ("?", "null", false)]
        );
    }

    #[test]
    fn failed_calls_keep_their_arguments() {
        let mut gather = Gather::new(Facts::default());
        let long = format!(r#"{{"content":"{}"}}"#, "é".repeat(INPUT_CAP));
        let announced = |id: &'static str, name: &'static str, input| {
            let block = Block::ToolUse(ToolUse { id: id.into(), name: name.into(), input: Some(Raw(input)) });
            Body::Assistant(Chat { blocks: vec![block], ..Chat::default() })
        };
        let broken = r#"{"__unparsedToolInput":{"raw":"{\"path\": ","len":9}}"#;
        for line in [
            announced("a", "Bash", r#"{"command":"ls"}"#),
            result("a", r#""<tool_use_error>No such tool available: Bash</tool_use_error>""#, true, false),
            announced("b", "mcp__ktx__read_raw_span", broken),
            result("b", r#""not JSON""#, true, false),
            announced("c", "mcp__ktx__wiki_read", r#"{"key":"a"}"#),
            result("c", r#""text""#, false, false),
        ] {
            take(&mut gather, line);
        }
        take(&mut gather, announced("d", "mcp__ktx__wiki_write", Box::leak(long.into_boxed_str())));
        gather.facts.tally.refused("wiki_write", Some("d"), "not this page");
        let facts = gather.finish();
        assert_eq!(facts.tally.calls()[0].message, "No such tool available: Bash");
        let inputs: Vec<_> = facts.failed_inputs.into_iter().collect();
        assert_eq!(inputs[0], ("a".into(), serde_json::json!({"command": "ls"})));
        assert_eq!(inputs[1], ("b".into(), serde_json::from_str(broken).unwrap()));
        assert!(matches!(&inputs[2], (id, Value::String(text)) if id == "d" && text.len() <= INPUT_CAP));
        assert_eq!(inputs.len(), 3);
    }

    #[test]
    fn a_denial_counts_once_however_often_it_is_reported() {
        let mut gather = Gather::new(Facts::default());
        take(&mut gather, call("a", "Bash"));
        take(
            &mut gather,
            Body::System(System::PermissionDenied {
                tool_name: "Bash".into(),
                tool_use_id: "a".into(),
                message: Some("not allowed".into()),
            }),
        );
        take(&mut gather, result("a", r#""not allowed""#, true, true));
        let denial = Denial { tool_name: Some("Bash".into()), tool_use_id: Some("a".into()), tool_input: None };
        take(&mut gather, Body::Result(Box::new(ResultLine { denials: vec![denial], ..ResultLine::default() })));
        assert_eq!(failures(&gather), [("Bash", "not allowed", false)]);
    }

    #[test]
    fn what_our_interrupt_cuts_short_has_not_failed() {
        let mut gather = Gather::new(Facts::default());
        for line in [call("a", "Bash"), result("a", r#""no""#, true, true), call("b", "mcp__ktx__wiki_read")] {
            take(&mut gather, line);
        }
        gather.cut_short();
        take(&mut gather, result("b", r#""The user doesn't want to proceed""#, true, true));
        gather.failed("mcp__ktx__wiki_read", Some("c"), "interrupted");
        let denied = |id: &'static str| Denial {
            tool_name: Some("wiki_read".into()),
            tool_use_id: Some(id.into()),
            tool_input: None,
        };
        let denials = vec![denied("b"), denied("c")];
        take(&mut gather, Body::Result(Box::new(ResultLine { denials, ..ResultLine::default() })));
        assert_eq!(failures(&gather), [("Bash", "no", false)]);
    }

    #[test]
    fn the_tail_of_stderr_is_bounded() {
        let mut gather = Gather::new(Facts::default());
        for line in 0..50 {
            gather.stderr(&format!("{line} {}", "é".repeat(5_000)));
        }
        assert_eq!(gather.facts.stderr_tail.len(), TAIL_LINES);
        assert!(gather.facts.stderr_tail[0].starts_with("30 "));
        assert!(gather.facts.stderr_tail.iter().all(|line| line.chars().count() == TAIL_CHARS));
    }
}
