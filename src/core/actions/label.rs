//! Display values of an action that are not in the contract: a kind that distinguishes more tools, and a one-line
//! label.
//!
//! Plain text: one line, not cut, not escaped. It must not depend on widths, colours or widgets.

use std::{borrow::Cow, fmt};

use super::{
    call_title,
    event::{ActionDetail, ActionKind, AgentAction, JsonText},
    sql_query::SqlQuery,
};
use crate::{
    decode::{RawJson, content_text},
    text::size,
};

/// Arguments that distinguish calls of the same tool, the most specific first.
const IDENTIFYING_ARGUMENTS: [&str; 14] = [
    "path",
    "file_path",
    "rawPath",
    "key",
    "query",
    "sourceName",
    "sql",
    "name",
    "source",
    "pattern",
    "url",
    "summary",
    "text",
    "connectionId",
];

/// A one-line label of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionLabel {
    /// Kind that selects the glyph.
    pub kind: ActionKind,
    /// The line, with white space collapsed.
    pub text: String,
}

impl fmt::Display for ActionLabel {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.pad(&self.text)
    }
}

pub fn action_label(action: &AgentAction<'_>) -> ActionLabel {
    match &action.detail {
        ActionDetail::Tool(tool) => match tool.tool_name.as_deref() {
            Some(name) => call_label(name, tool.tool_input.as_ref().map(JsonText::raw), None),
            None => ActionLabel {
                kind: action.kind,
                text: fold_whitespace(&action.title),
            },
        },
        ActionDetail::Empty
        | ActionDetail::Thinking { .. }
        | ActionDetail::Prompt(_)
        | ActionDetail::Denial { .. }
        | ActionDetail::MalformedLine(_) => ActionLabel {
            kind: action.kind,
            text: fold_whitespace(&action.title),
        },
    }
}

/// The label of a tool call. Names are case-insensitive; the prefix `cwd` is removed from paths and commands.
pub fn call_label(name: &str, input: Option<RawJson<'_>>, cwd: Option<&str>) -> ActionLabel {
    let text = |keys: [&'static str; 1]| call_title::first_text_argument(input, keys);
    let relative = |path: Cow<'_, str>| match cwd {
        Some(cwd) => path
            .strip_prefix(cwd.trim_end_matches('/'))
            .and_then(|path| path.strip_prefix('/'))
            .map_or_else(|| path.to_string(), str::to_owned),
        None => path.into_owned(),
    };
    let path = || call_title::path_argument(input).map(relative);
    let (kind, text) = match name.to_ascii_lowercase().as_str() {
        "bash" | "shell" | "killshell" => (
            ActionKind::Command,
            text(["command"]).map(|command| strip_cwd(&command, cwd)),
        ),
        "edit" | "write" | "multiedit" | "notebookedit" => (ActionKind::FileChange, path()),
        "read" => (ActionKind::Tool, Some(verb_with_argument("read", path()))),
        "ls" => (ActionKind::Tool, Some(verb_with_argument("ls", path()))),
        "glob" => (
            ActionKind::Tool,
            Some(verb_with_argument(
                "glob",
                text(["pattern"]).map(Cow::into_owned),
            )),
        ),
        searches @ ("grep" | "find") => (
            ActionKind::Tool,
            text(["pattern"]).map(|pattern| format!("{searches}: {pattern}")),
        ),
        "websearch" | "web_search" => (
            ActionKind::WebSearch,
            Some(text(["query"]).map_or("search".into(), Cow::into_owned)),
        ),
        "webfetch" | "web_fetch" => (
            ActionKind::WebSearch,
            Some(text(["url"]).map_or("fetch".into(), Cow::into_owned)),
        ),
        "todowrite" => (ActionKind::Note, Some("update todos".into())),
        "todoread" => (ActionKind::Note, Some("read todos".into())),
        "askuserquestion" => (
            ActionKind::Note,
            Some(asked_question(input).map_or("ask user".into(), |it| format!("ask user: {it}"))),
        ),
        "workflow" => (
            ActionKind::Tool,
            workflow_name(input).map(|name| format!("workflow {name}")),
        ),
        "task" | "agent" => (
            ActionKind::Subagent,
            call_title::first_text_argument(input, ["description", "prompt"]).map(Cow::into_owned),
        ),
        _ => (
            ActionKind::Tool,
            Some(label_with_argument(short_name(name), input)),
        ),
    };
    ActionLabel {
        kind,
        text: fold_whitespace(&text.unwrap_or_else(|| name.to_owned())),
    }
}

/// `mcp__ktx__read_raw_file` → `read_raw_file`; other names are unchanged.
pub fn short_name(name: &str) -> &str {
    let server_and_tool = name
        .strip_prefix("mcp__")
        .and_then(|rest| rest.split_once("__"));
    match server_and_tool {
        Some((_, tool)) if !tool.is_empty() => tool,
        _ => name,
    }
}

/// Summarizes a result: the number of lines if it is small, the size if it is large, the number of images, or `empty`.
pub fn result_summary(content: Option<RawJson<'_>>) -> String {
    let Some(content) = content else {
        return "empty".into();
    };
    let text = content_text(content);
    let images = content
        .items()
        .iter()
        .filter(|part| is_image(**part))
        .count();
    match (images, text.len(), text.lines().count()) {
        (1, ..) => "1 image".into(),
        (2.., ..) => format!("{images} images"),
        (0, 0, _) => "empty".into(),
        (0, 1024.., _) => size(text.len() as u64),
        (0, _, 2..) => format!("{} lines", text.lines().count()),
        (0, bytes, _) => format!("{bytes} B"),
    }
}

fn is_image(part: RawJson<'_>) -> bool {
    part.get("type").and_then(RawJson::as_str).as_deref() == Some("image")
}

fn label_with_argument(name: &str, input: Option<RawJson<'_>>) -> String {
    if let Some(query) = input.and_then(|input| SqlQuery::parse(name, input.0)) {
        return format!("{name} {}: {}", query.connection, query.sql);
    }
    let found = input
        .map(|input| input.pick(IDENTIFYING_ARGUMENTS))
        .unwrap_or_default();
    let argument = IDENTIFYING_ARGUMENTS
        .iter()
        .zip(found)
        .find_map(|(key, value)| {
            let value = value?;
            match value.as_str() {
                Some(text) if text.trim().is_empty() => None,
                Some(text) if *key == "query" => Some(format!("\"{text}\"")),
                Some(text) => Some(text.into_owned()),
                None => value
                    .0
                    .starts_with(|first: char| first == '-' || first.is_ascii_digit())
                    .then(|| value.0.to_owned()),
            }
        });
    match argument {
        Some(argument) => format!("{name} {argument}"),
        None => name.to_owned(),
    }
}

fn verb_with_argument(verb: &str, argument: Option<String>) -> String {
    match argument {
        Some(argument) => format!("{verb}: `{argument}`"),
        None => verb.to_owned(),
    }
}

/// The first question of a call that asks the user.
fn asked_question(input: Option<RawJson<'_>>) -> Option<String> {
    let questions = input?.get("questions")?.items();
    let question = questions.first()?.get("question")?.as_str()?;
    let more = match questions.len() {
        0 | 1 => String::new(),
        count => format!(" (and {} more)", count - 1),
    };
    Some(format!("{question}{more}"))
}

/// The name of the workflow that a call starts: its argument, or the first name in its script.
fn workflow_name(input: Option<RawJson<'_>>) -> Option<String> {
    if let Some(name) = call_title::first_text_argument(input, ["name"]) {
        return Some(name.into_owned());
    }
    let script = call_title::first_text_argument(input, ["script"])?;
    let (_, rest) = script.split_once("name:")?;
    let mut name = rest.trim_start().chars();
    let quote = name
        .next()
        .filter(|char| matches!(char, '\'' | '"' | '`'))?;
    let (name, _) = name.as_str().split_once(quote)?;
    (!name.trim().is_empty()).then(|| name.to_owned())
}

/// Removes the working directory from the paths in a command.
fn strip_cwd(command: &str, cwd: Option<&str>) -> String {
    match cwd
        .map(|cwd| cwd.trim_end_matches('/'))
        .filter(|cwd| !cwd.is_empty())
    {
        Some(cwd) => command.replace(&format!("{cwd}/"), ""),
        None => command.to_owned(),
    }
}

fn fold_whitespace(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    line
}
/// Makes an error of a session readable. Text about the agent's internal loop, written after an interrupt, is removed;
/// the verdict contains the reason.
pub fn readable_error(text: &str) -> &str {
    match text.strip_prefix("[ede_diagnostic]") {
        Some(inside) if inside.contains("last_content_type=none") => {
            "the API answered without content"
        }
        Some(_) => "cut short before it was done",
        None => text,
    }
}

/// The error of a tool without the tags and the hook name that the agent adds.
pub fn tool_error_reason(text: &str) -> Cow<'_, str> {
    let text = text.trim();
    if let Some(rest) = text.strip_prefix("The user doesn't want to proceed with this tool use.") {
        // What follows is a correction, or the words of the user after a line break.
        let reason = rest.split_once(" you how to proceed");
        let reason = reason.and_then(|(_, rest)| {
            let words = || Some(rest.split_once('\n')?.1);
            rest.strip_prefix('.').or_else(words)
        });
        return match reason.map(str::trim) {
            Some(reason) if !reason.is_empty() => format!("rejected by the user: {reason}").into(),
            _ => "rejected by the user".into(),
        };
    }
    let refused = text
        .strip_prefix("PreToolUse:")
        .and_then(|rest| rest.split_once(" hook error: "));
    if let Some((tool, reason)) = refused
        && !tool.contains(char::is_whitespace)
    {
        return Cow::Owned(format!("denied: {reason}"));
    }
    let refused = text
        .strip_prefix("Permission to use ")
        .and_then(|rest| rest.split_once(" has been denied"));
    if let Some((tool, reason)) = refused
        && !tool.contains(char::is_whitespace)
    {
        return match reason.strip_prefix(" because ") {
            Some(reason) => Cow::Owned(format!("denied: {reason}")),
            None => Cow::Owned(format!("denied{reason}")),
        };
    }
    Cow::Borrowed(strip_error_tags(text))
}

/// The error of a tool without the tags that the agent adds.
pub fn strip_error_tags(text: &str) -> &str {
    let inside = text.strip_prefix("<tool_use_error>");
    inside.map_or(text, |rest| {
        rest.strip_suffix("</tool_use_error>").unwrap_or(rest)
    })
}
