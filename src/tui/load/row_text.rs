//! Text of decoded lines and notes in one row. The text is not escaped; the drawing code makes it safe.

use std::borrow::Cow;

use serde_json::Value;

use ingestdeck_core::{
    actions::{
        label,
        system_notice::{system_notice, task_end, workflow_agent_outcome, workflow_item},
    },
    decode::{
        self, LazyText, LineBody, LineKind, MessageBlock, RawJson, ResultLine, ToolResult,
        line::{SessionFileLine, SystemLine, TaskLine, TextAuthor, WorkflowItem},
        user_text::UserText,
    },
    run::state::{MAX_WORKFLOW_ROWS, RowKind, StreamRow},
    tape::{
        EntryBody, Millis, Note,
        note::{Amendment, AttemptOutcome},
    },
    text::{self, dollars, latency, one_row, size},
    units::limits::window_name,
};

pub(super) fn call(name: &str, input: Option<RawJson<'_>>) -> String {
    label::call_label(name, input, None).text
}

/// A block that is not a call.
pub(super) fn block(block: &MessageBlock<'_>, most: usize) -> String {
    match block {
        MessageBlock::Text(text) => one_row(&text.text(), most),
        MessageBlock::Thinking(text) if text.is_empty() => "thinking (withheld)".to_owned(),
        MessageBlock::Thinking(text) => one_row(&text.text(), most),
        MessageBlock::ToolUse(tool) => call(&tool.name, tool.input),
        MessageBlock::ToolResult(tool) => {
            format!("result of a call that was not seen: {}", result(tool, most))
        }
        MessageBlock::Image(media) => {
            format!("image ({})", media.as_deref().unwrap_or("unknown type"))
        }
        MessageBlock::Unknown(kind) => format!("block of unknown type {kind}"),
    }
}

/// The size of a result.
pub(super) fn result_size(result: &ToolResult<'_>) -> String {
    label::result_summary(result.content)
}

/// A result: the error if it failed, otherwise its size.
pub(super) fn result(result: &ToolResult<'_>, most: usize) -> String {
    if result.is_error == Some(true) {
        one_row(&label::tool_error_reason(&result.text()), most)
    } else {
        label::result_summary(result.content)
    }
}

/// The end of a session whose last message has its own row: outcome, cost and duration.
pub(super) fn end(result: &ResultLine<'_>) -> String {
    let cost = cost(result);
    let took = result
        .duration_ms
        .map(|took| format!(" · {}", latency(Millis(took))))
        .unwrap_or_default();
    format!("{}{cost}{took}", outcome(result))
}

/// The cost of a turn, otherwise the cost of its process.
fn cost(result: &ResultLine<'_>) -> String {
    let cost = result.cost_since_last_result.or(result.total_cost_usd);
    cost.map(|cost| format!(" · {}", dollars(Some(cost))))
        .unwrap_or_default()
}

/// The outcome of a session. Some failures have the subtype of a success.
fn outcome(result: &ResultLine<'_>) -> Cow<'static, str> {
    match result.subtype.as_deref() {
        Some(subtype) if subtype.starts_with("error") => subtype.replace('_', " ").into(),
        _ if result.failed() => "failed".into(),
        None => "completed".into(),
        // The verdict decides whether the unit succeeded.
        Some("success") => "the agent ended its turn".into(),
        Some(subtype) => subtype.replace('_', " ").into(),
    }
}

/// The reason with which a tool declined a call.
pub(super) fn declined(result: &ToolResult<'_>, most: usize) -> String {
    let text = result.text();
    one_row(
        &format!(
            "declined: {}",
            text.strip_prefix("Error: ").unwrap_or(&text)
        ),
        most,
    )
}

pub(super) fn line(body: &LineBody<'_>, json: &[u8], most: usize) -> String {
    let raw = || one_row(&super::head(json, most), most);
    match body {
        LineBody::Init(init) => {
            let model = init.model.as_deref().unwrap_or("an unknown model");
            let servers: Vec<_> = init
                .mcp_servers
                .iter()
                .map(|(name, status)| format!("{name} {status}"))
                .collect();
            let servers = if servers.is_empty() {
                String::new()
            } else {
                format!(" · {}", servers.join(", "))
            };
            format!(
                "session with {model} · {}{servers}",
                counted(init.tools.len(), "tool")
            )
        }
        LineBody::System(system) => system_notice(system).unwrap_or_else(raw),
        LineBody::Assistant(chat) | LineBody::User(chat) => match &*chat.blocks {
            [] => raw(),
            blocks => blocks
                .iter()
                .map(|each| match each {
                    MessageBlock::ToolResult(tool) => format!("result: {}", result(tool, most)),
                    each => block(each, most),
                })
                .collect::<Vec<_>>()
                .join(" | "),
        },
        LineBody::StreamEvent(
            ingestdeck_core::decode::line::StreamDelta::Text(text)
            | ingestdeck_core::decode::line::StreamDelta::Thinking(text),
        ) => one_row(text, most),
        LineBody::StreamEvent(ingestdeck_core::decode::line::StreamDelta::Usage { .. }) => {
            "message_delta".to_owned()
        }
        LineBody::StreamEvent(ingestdeck_core::decode::line::StreamDelta::Other(kind)) => {
            kind.clone().into_owned()
        }
        LineBody::ToolProgress {
            elapsed_seconds, ..
        } => format!("a call has been running for {elapsed_seconds:.0} s"),
        LineBody::RateLimit(limit) => {
            let used = limit
                .utilization
                .map(|used| format!(" · {:.0} % used", used * 100.0))
                .unwrap_or_default();
            let others = limit
                .windows
                .iter()
                .filter(|window| limit.limit.as_deref() != Some(window.name.as_ref()));
            let others: String = others
                .filter_map(|window| {
                    Some(format!(
                        " · {} {:.0} % used",
                        window_name(&window.name),
                        window.utilization? * 100.0
                    ))
                })
                .collect();
            format!(
                "limit {} {}{used}{others}",
                limit
                    .limit
                    .as_deref()
                    .map_or_else(|| "(unnamed)".to_owned(), window_name),
                limit.status.replace('_', " ")
            )
        }
        LineBody::Result(result) => {
            let word = outcome(result);
            let cost = cost(result);
            let error = result
                .error
                .as_deref()
                .or_else(|| result.errors.first().map(AsRef::as_ref));
            let text = error
                .map(label::readable_error)
                .or(result.result.as_deref())
                .map(|text| format!(" · {}", one_row(text, most)));
            format!("{word}{cost}{}", text.unwrap_or_default())
        }
        LineBody::SessionFile(line) => session_file(line, most).unwrap_or_else(raw),
        LineBody::Control { .. } | LineBody::Other(_) | LineBody::Malformed => raw(),
    }
}

/// True for the row of the elements of a workflow without a row.
fn is_of_further_items(row: &StreamRow) -> bool {
    row.kind == RowKind::Task && row.depth > 0 && row.block == MAX_WORKFLOW_ROWS
}

/// The agents of a workflow without a row.
fn further_agents<'a>(task: &TaskLine<'a>) -> impl Iterator<Item = WorkflowItem<'a>> + use<'a> {
    let items = task.workflow_items().collect::<Vec<_>>().into_iter();
    let further = items.skip(usize::from(MAX_WORKFLOW_ROWS)).flatten();
    further.filter(|item| item.is_agent)
}

/// The task of a row, or the phase or agent of a workflow.
pub(super) fn task(task: &TaskLine<'_>, row: &StreamRow) -> String {
    if is_of_further_items(row) {
        let agents = further_agents(task).count();
        let agents = text::pluralize(agents, "more agent");
        return format!("{agents}, counted by `:tasks`");
    }
    let item = task.workflow_items().nth(usize::from(row.block)).flatten();
    match item {
        Some(item) => workflow_item(&item),
        None => one_row(task.description.as_deref().unwrap_or("task"), 300),
    }
}

/// How the task of a row ended, or the agent with this label.
pub(super) fn task_outcome(task: &TaskLine<'_>, row: &StreamRow, label: &str) -> String {
    if is_of_further_items(row) {
        let of_outcome = |is_ok| {
            let agents = further_agents(task);
            agents
                .filter(|agent| agent.outcome() == Some(is_ok))
                .count()
        };
        return match (of_outcome(true), of_outcome(false)) {
            (done, 0) => format!("{done} done"),
            (done, failed) => format!("{done} done, {failed} failed"),
        };
    }
    let is_agent = row.kind == RowKind::Task && row.depth > 0;
    let mut items = task.workflow_items().flatten().filter(|_| is_agent);
    match items.find(|item| item.is_agent && workflow_item(item) == label) {
        Some(agent) => workflow_agent_outcome(&agent),
        None if is_agent => "the workflow ended first".to_owned(),
        None => {
            // The summary of a stopped task is its description.
            let summary = task.summary.as_deref().map(task_end);
            let summary = summary.filter(|_| task.status.as_deref() != Some("stopped"));
            one_row(summary.or(task.status.as_deref()).unwrap_or("ended"), 300)
        }
    }
}

/// A text that the agent received, without the markup of Claude Code.
pub(super) fn user(author: TextAuthor, text: &LazyText<'_>, most: usize) -> String {
    one_row(
        UserText::parse(author, &text.prefix(most.saturating_mul(8)).0).text(),
        most,
    )
}

fn session_file(line: &SessionFileLine<'_>, most: usize) -> Option<String> {
    Some(match line {
        SessionFileLine::Cost { total_usd, .. } => format!("cost so far {}", dollars(*total_usd)),
        SessionFileLine::Title(_, title) => one_row(title, most),
        SessionFileLine::QueuedText(author, text) => user(*author, text, most),
        SessionFileLine::Bookkeeping(_) => return None,
    })
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 {
        format!("1 {what}")
    } else {
        format!("{count} {what}s")
    }
}

/// The kind of a line in the transcript.
pub(super) fn kind(body: &LineBody<'_>) -> String {
    match body {
        LineBody::System(system) => match system {
            SystemLine::PermissionDenied { .. } => "denied",
            SystemLine::ApiRetry { .. } => "api retry",
            SystemLine::Status { .. } => "status",
            SystemLine::Compacted { .. } => "compacted",
            SystemLine::ModelFallback { .. } => "fallback",
            SystemLine::Task(_) => "task",
            SystemLine::Notice { .. } => "notice",
            SystemLine::WritesLost { .. } => "writes lost",
            SystemLine::AuthStatus { .. } => "auth status",
            SystemLine::ConversationReset { .. } => "reset",
            SystemLine::Other(subtype) | SystemLine::Unknown(subtype) => {
                return one_row(subtype, 24);
            }
        }
        .to_owned(),
        LineBody::Control { subtype, .. } => one_row(subtype, 24),
        LineBody::SessionFile(line) => match line {
            SessionFileLine::Cost { .. } => "cost".to_owned(),
            SessionFileLine::Title(..) => "title".to_owned(),
            SessionFileLine::QueuedText(TextAuthor::Sender, _) => "prompt".to_owned(),
            SessionFileLine::QueuedText(..) => "report".to_owned(),
            SessionFileLine::Bookkeeping(kind) => one_row(kind, 24),
        },
        // What a person wrote is not the result of a call.
        LineBody::User(chat) if !chat.synthetic => match chat.blocks.first() {
            Some(MessageBlock::Text(text)) => {
                match UserText::parse(chat.author, &text.prefix(4096).0) {
                    UserText::Prompt(_) | UserText::Command(_) => "prompt".to_owned(),
                    UserText::Report(_) => "report".to_owned(),
                }
            }
            _ => "user".to_owned(),
        },
        LineBody::Other(kind) => one_row(kind, 24),
        body => match body.kind() {
            LineKind::Init => "init",
            LineKind::Assistant => "assistant",
            LineKind::User => "user",
            LineKind::StreamEvent => "delta",
            LineKind::ToolProgress => "progress",
            LineKind::RateLimit => "limit",
            LineKind::Result => "result",
            LineKind::System | LineKind::Control | LineKind::Other => "other",
            LineKind::Malformed => "malformed",
        }
        .to_owned(),
    }
}

/// The type of a line of which only the beginning is read.
pub(super) fn type_of(head: &str) -> String {
    let found = head
        .split_once("\"type\":\"")
        .and_then(|(_, rest)| rest.split_once('"'));
    found.map_or_else(|| "huge".to_owned(), |(kind, _)| one_row(kind, 24))
}

/// A line that is too long to be decoded for a row.
pub(super) fn oversized_line(head: &str, len: u64) -> String {
    let name = head
        .split_once("\"name\":\"")
        .and_then(|(_, rest)| rest.split_once('"'));
    let what = name.map_or_else(
        || type_of(head),
        |(name, _)| label::short_name(name).to_owned(),
    );
    format!("{what} (line of {})", size(len))
}

/// The kind of a note in the transcript.
pub(super) fn note_kind(json: &[u8]) -> String {
    let value: Value = serde_json::from_slice(json).unwrap_or_default();
    value["kind"].as_str().map_or_else(
        || "note".to_owned(),
        |kind| one_row(&kind.replace('_', " "), 24),
    )
}

/// A note as a row of a stream. The full reason of a failure is shown below the rows.
pub(super) fn note_row(note: &Note) -> String {
    match note {
        Note::AttemptEnded(end) if end.verdict.outcome == AttemptOutcome::Failed => {
            format!("failed: {}", end.verdict.cause.label())
        }
        note => note.to_string(),
    }
}

/// What the entries at the start of an attempt state.
#[derive(Debug, Default)]
pub(super) struct StartFacts {
    model: Option<String>,
    worker: Option<String>,
    tools: usize,
    is_isolated: bool,
}

impl StartFacts {
    /// Adds an entry. What the agent announced has priority over what was requested.
    pub(super) fn read(&mut self, body: &EntryBody<'_>, size: u64) {
        match body {
            _ if super::is_huge(size) => {}
            EntryBody::Note(json) => match Note::parse(json) {
                Note::AttemptStarted(start) => {
                    (self.model, self.tools, self.worker) =
                        (start.model, start.tools.len(), start.worker);
                }
                Note::IsolationChecked(check) => self.is_isolated = check.breach.is_none(),
                _ => {}
            },
            EntryBody::Stdout(json) => {
                if let LineBody::Init(init) = &decode::decode_line(json).body {
                    self.tools = init.tools.len();
                    self.model = init
                        .model
                        .as_deref()
                        .map(str::to_owned)
                        .or(self.model.take());
                }
            }
            EntryBody::Stdin(_) | EntryBody::StdoutRaw(_) | EntryBody::Stderr(_) => {}
        }
    }

    /// The text of the row of the start of the attempt `number`.
    pub(super) fn label(&self, number: u32) -> String {
        let model = self.model.as_deref().unwrap_or("default model");
        let worker = self
            .worker
            .as_ref()
            .map(|worker| format!(" on {}", one_row(worker, 40)))
            .unwrap_or_default();
        let isolation = if self.is_isolated {
            " · isolation holds"
        } else {
            ""
        };
        format!(
            "attempt {number} started{worker} · {model} · {}{isolation}",
            counted(self.tools, "tool")
        )
    }
}

/// The amendment in the note that begins an attempt. Automatic retries resume a session without an amendment by the
/// user.
pub(super) fn amendment(note: &Note) -> Option<String> {
    let Note::AttemptStarted(start) = note else {
        return None;
    };
    let amendment = start.amendment.as_ref()?;
    let asked = Amendment {
        resume: None,
        ..amendment.clone()
    };
    let asked =
        (!asked.is_empty()).then(|| format!("requested: {}", one_row(&asked.to_string(), 600)));
    let continues = amendment
        .resume
        .as_ref()
        .map(|_| "continues the session".to_owned());
    Some(
        [continues, asked]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" · "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingestdeck_core::tape::note::AttemptStarted;

    #[test]
    fn retry_that_continues_a_session_was_not_asked_for() {
        let words = |asked: Amendment| {
            let started = AttemptStarted {
                amendment: Some(asked),
                ..AttemptStarted::default()
            };
            amendment(&Note::AttemptStarted(Box::new(started)))
        };
        let retry = Amendment {
            resume: Some("s".into()),
            ..Amendment::default()
        };
        assert_eq!(
            words(retry.clone()).as_deref(),
            Some("continues the session")
        );
        let amended = Amendment {
            model: Some("opus".into()),
            ..retry
        };
        assert_eq!(
            words(amended).as_deref(),
            Some("continues the session · requested: model opus")
        );
    }
}
