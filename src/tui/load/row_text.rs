//! Text of decoded lines and notes in one row. The text is not escaped; the drawing code makes it safe.

use serde_json::Value;

use crate::{
    actions::label,
    decode::{LineBody, LineKind, MessageBlock, RawJson, ResultLine, ToolResult, line::SystemLine},
    tape::{
        Millis, Note,
        note::{Amendment, AttemptOutcome, CallDecision, Severity, StopMode, StopReason},
    },
    text::{dollars, latency, one_row, size},
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
        MessageBlock::ToolResult(tool) => format!("result of a call that was not seen: {}", result(tool, most)),
        MessageBlock::Image(media) => format!("image ({})", media.as_deref().unwrap_or("unknown type")),
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
    let took = result.duration_ms.map(|took| format!(" · {}", latency(Millis(took)))).unwrap_or_default();
    format!("{}{cost}{took}", outcome(result))
}

/// The cost of a turn, otherwise the cost of its process.
fn cost(result: &ResultLine<'_>) -> String {
    let cost = result.cost_since_last_result.or(result.total_cost_usd);
    cost.map(|cost| format!(" · {}", dollars(Some(cost)))).unwrap_or_default()
}

/// The outcome of a session. Some failures have the subtype of a success.
fn outcome<'a>(result: &'a ResultLine<'_>) -> &'a str {
    match result.subtype.as_deref() {
        Some(subtype) if subtype.starts_with("error") => subtype,
        _ if result.failed() => "failed",
        None => "completed",
        Some(subtype) => subtype,
    }
}

/// The reason with which a tool declined a call.
pub(super) fn declined(result: &ToolResult<'_>, most: usize) -> String {
    let text = result.text();
    one_row(&format!("declined: {}", text.strip_prefix("Error: ").unwrap_or(&text)), most)
}

pub(super) fn line(body: &LineBody<'_>, json: &[u8], most: usize) -> String {
    let raw = || one_row(&super::head(json, most), most);
    match body {
        LineBody::Init(init) => {
            let model = init.model.as_deref().unwrap_or("an unknown model");
            let servers: Vec<_> = init.mcp_servers.iter().map(|(name, status)| format!("{name} {status}")).collect();
            let servers = if servers.is_empty() { String::new() } else { format!(" · {}", servers.join(", ")) };
            format!("session with {model} · {}{servers}", counted(init.tools.len(), "tool"))
        }
        LineBody::System(system) => self::system(system).unwrap_or_else(raw),
        LineBody::Assistant(chat) | LineBody::User(chat) => match chat.blocks.as_slice() {
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
            crate::decode::line::StreamDelta::Text(text) | crate::decode::line::StreamDelta::Thinking(text),
        ) => one_row(text, most),
        LineBody::StreamEvent(crate::decode::line::StreamDelta::Other(kind)) => kind.clone().into_owned(),
        LineBody::ToolProgress { elapsed_seconds, .. } => format!("a call has been running for {elapsed_seconds:.0} s"),
        LineBody::RateLimit(limit) => {
            let used = limit.utilization.map(|used| format!(" · {:.0} % used", used * 100.0)).unwrap_or_default();
            format!("limit {} {}{used}", limit.limit.as_deref().unwrap_or("(unnamed)"), limit.status)
        }
        LineBody::Result(result) => {
            let word = outcome(result);
            let cost = cost(result);
            let error = result.error.as_deref().or_else(|| result.errors.first().map(AsRef::as_ref));
            let text = error
                .map(label::readable_error)
                .or(result.result.as_deref())
                .map(|text| format!(" · {}", one_row(text, most)));
            format!("{word}{cost}{}", text.unwrap_or_default())
        }
        LineBody::Control { .. } | LineBody::Other(_) | LineBody::Malformed => raw(),
    }
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn system(system: &SystemLine<'_>) -> Option<String> {
    let or = |text: &Option<std::borrow::Cow<'_, str>>, other: &str| {
        text.as_deref().map_or_else(|| other.to_owned(), |text| one_row(text, 300))
    };
    Some(match system {
        SystemLine::PermissionDenied { tool_name, message, .. } => {
            format!("permission denied: {tool_name} {}", or(message, ""))
        }
        SystemLine::ApiRetry { attempt, max_retries, status, error, .. } => {
            let number = |number: &Option<u64>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
            let error = if error.as_deref() == Some("unknown") { &Some("an unknown error".into()) } else { error };
            let cause = status.map_or_else(|| or(error, "network"), |status| format!("HTTP {status}"));
            format!("API retry {} of {} after {cause}", number(attempt), number(max_retries))
        }
        SystemLine::Compacted { trigger, pre_tokens } => {
            let before = pre_tokens.map(|tokens| format!(" at {tokens} tokens")).unwrap_or_default();
            format!("context compacted ({}){before}", or(trigger, "unknown trigger"))
        }
        SystemLine::ModelFallback { from, to, refused: false } => {
            format!("model {} replaced by {}", or(from, "?"), or(to, "?"))
        }
        SystemLine::ModelFallback { from, to, refused: true } => {
            format!("model {} refused to answer; {} answered instead", or(from, "?"), or(to, "?"))
        }
        SystemLine::WritesLost { code, lost } => {
            let what: Vec<_> = lost
                .iter()
                .map(|what| match &**what {
                    "transcript" => "lines of its session, which a resumed session will miss".to_owned(),
                    "global_config" => "changes to its settings".to_owned(),
                    other => one_row(other, 40),
                })
                .collect();
            format!("Claude Code could not save {} ({})", what.join(" and "), or(code, "no reason given"))
        }
        SystemLine::AuthStatus { error } => format!("signing in failed: {}", or(error, "no reason given")),
        SystemLine::ConversationReset { session } => {
            format!("the conversation was reset; the session is now {}", or(session, "?"))
        }
        SystemLine::Task { subtype, status, .. } => format!("{} {}", subtype.replace('_', " "), or(status, "")),
        SystemLine::Notice { text, .. } => one_row(text, 300),
        SystemLine::Status { .. } | SystemLine::Other(_) | SystemLine::Unknown(_) => return None,
    })
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
            SystemLine::Task { .. } => "task",
            SystemLine::Notice { .. } => "notice",
            SystemLine::WritesLost { .. } => "writes lost",
            SystemLine::AuthStatus { .. } => "auth status",
            SystemLine::ConversationReset { .. } => "reset",
            SystemLine::Other(subtype) | SystemLine::Unknown(subtype) => return one_row(subtype, 24),
        }
        .to_owned(),
        LineBody::Control { subtype, .. } => one_row(subtype, 24),
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
    let found = head.split_once("\"type\":\"").and_then(|(_, rest)| rest.split_once('"'));
    found.map_or_else(|| "huge".to_owned(), |(kind, _)| one_row(kind, 24))
}

/// A line that is too long to be decoded for a row.
pub(super) fn oversized_line(head: &str, len: u64) -> String {
    let name = head.split_once("\"name\":\"").and_then(|(_, rest)| rest.split_once('"'));
    let what = name.map_or_else(|| type_of(head), |(name, _)| label::short_name(name).to_owned());
    format!("{what} (line of {})", size(len))
}

/// The kind of a note in the transcript.
pub(super) fn note_kind(json: &[u8]) -> String {
    let value: Value = serde_json::from_slice(json).unwrap_or_default();
    value["kind"].as_str().map_or_else(|| "note".to_owned(), |kind| one_row(&kind.replace('_', " "), 24))
}

/// A note as a row of a stream. The full reason of a failure is shown below the rows.
pub(super) fn note_row(note: &Note) -> String {
    match note {
        Note::AttemptEnded(end) if end.verdict.outcome == AttemptOutcome::Failed => {
            format!("failed: {}", end.verdict.cause.label())
        }
        note => self::note(note),
    }
}

/// The amendment in the note that begins an attempt. Automatic retries resume a session without an amendment by the
/// user.
pub(super) fn amendment(note: &Note) -> Option<String> {
    let Note::AttemptStarted(start) = note else { return None };
    let amendment = start.amendment.as_ref()?;
    let asked = Amendment { resume: None, ..amendment.clone() };
    let asked = (!asked.is_empty()).then(|| format!("requested: {}", one_row(&asked.to_string(), 600)));
    let continues = amendment.resume.as_ref().map(|_| "continues the session".to_owned());
    Some([continues, asked].into_iter().flatten().collect::<Vec<_>>().join(" · "))
}

fn amended(amendment: Option<&Amendment>) -> String {
    amendment.map(|amendment| format!(" · {}", one_row(&amendment.to_string(), 300))).unwrap_or_default()
}

fn short_hash(commit: &str) -> &str {
    commit.get(..8).unwrap_or(commit)
}

pub(super) fn note(note: &Note) -> String {
    match note {
        Note::RunPlanned(plan) => {
            format!("planned {}, concurrency {}", counted(plan.units.len(), "unit"), plan.concurrency)
        }
        Note::SourceRead(read) => format!("read {}: {}", read.connection, read.diff),
        Note::FilesEvicted(evicted) => {
            format!("processed {} of {}", counted(evicted.paths.len(), "deleted file"), evicted.connection)
        }
        Note::SourcesProjected(projected) => projected.to_string(),
        Note::AttemptStarted(start) => {
            let model = start.model.as_deref().unwrap_or("default model");
            let pid = start.pid.map(|pid| format!(" · pid {pid}")).unwrap_or_default();
            format!("attempt started · {model} · {}{pid}", counted(start.tools.len(), "tool"))
        }
        Note::IsolationChecked(check) => match &check.breach {
            None => "isolation holds".to_owned(),
            Some(breach) => format!("isolation breach: {breach}"),
        },
        Note::AttemptEnded(end) => {
            let outcome = match (end.verdict.outcome, end.verdict.stop) {
                (AttemptOutcome::Succeeded, StopReason::Budget) => "budget",
                (AttemptOutcome::Succeeded, _) => "succeeded",
                (AttemptOutcome::Failed, _) => "failed",
                (AttemptOutcome::Stopped, _) => "stopped",
            };
            format!("{outcome}: {}", end.verdict.reason)
        }
        Note::RetryScheduled { next, delay_ms, .. } => format!("attempt {next} starts in {} ms", delay_ms),
        Note::RetryRequested { next, amendment } => format!("attempt {next} requested{}", amended(amendment.as_ref())),
        Note::StopRequested { how } => match how {
            StopMode::Drain => "drain requested",
            StopMode::Stop => "stop requested",
            StopMode::Kill => "kill requested",
        }
        .to_owned(),
        Note::HoldRequested => "hold requested: tool calls wait for approval".to_owned(),
        Note::HoldReleased => "released: tool calls no longer wait for approval".to_owned(),
        Note::RunUntil { condition } => format!("runs until {}", one_row(condition, 300)),
        Note::CallHeld { tool, input, reached, .. } => {
            let reached =
                reached.as_ref().map(|condition| format!(" at {}", one_row(condition, 80))).unwrap_or_default();
            format!("held{reached}: {tool} {}", one_row(&input.to_string(), 300))
        }
        Note::CallDecided { decision, input, reason, .. } => match decision {
            CallDecision::Allowed => "allowed once".to_owned(),
            CallDecision::Edited => {
                let input = input.as_ref().map(|input| format!(": {}", one_row(&input.to_string(), 300)));
                format!("allowed with other arguments{}", input.unwrap_or_default())
            }
            CallDecision::Denied => format!("denied: {}", one_row(reason.as_deref().unwrap_or_default(), 300)),
            CallDecision::Released => "released".to_owned(),
            CallDecision::Withdrawn => "withdrawn: the call no longer waits for a decision".to_owned(),
        },
        Note::LimitPaused { limit, .. } => format!("paused for a limit: {limit}"),
        Note::Throttled { slots: Some(slots), limit } => format!("concurrency limited to {slots} because of {limit}"),
        Note::Throttled { slots: None, limit } => format!("back to full concurrency: {limit} recovered"),
        Note::LimitLifted => "limit lifted".to_owned(),
        Note::ConcurrencyChanged { slots } => format!("concurrency set to {slots}"),
        Note::Published { paths } => format!("published {}", paths.join(", ")),
        Note::PatchWritten(written) => match &written.path {
            Some(path) => format!("patch written: {path} ({})", written.paths.join(", ")),
            None => "no patch: the attempt changed nothing".to_owned(),
        },
        Note::IntegrationStarted(integrating) => {
            format!("integrating {} on {}", counted(integrating.units.len(), "unit"), short_hash(&integrating.onto))
        }
        Note::PatchIntegrated(integrated) => match &integrated.verdict {
            Some(verdict) => format!("{}: {}", integrated.result.label(), verdict.reason),
            None => {
                let shared = integrated.shared.iter().map(|shared| format!("; {shared}"));
                format!("{}{}", integrated.result.label(), shared.collect::<String>())
            }
        },
        Note::RunSaved(saved) => match saved.short_commit() {
            Some(commit) => format!("saved as commit {commit}: {}", saved.subject),
            None => "nothing to save".to_owned(),
        },
        Note::SlRefsRepaired(repaired) => {
            repaired.repairs.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        }
        Note::SaveFailed(failed) => format!("not saved: {}", failed.reason),
        Note::ToolFailed { tool, message, .. } => format!("{tool} failed: {}", one_row(message, 300)),
        Note::ToolDeclined { tool, message, .. } => format!("{tool} declined: {}", one_row(message, 300)),
        Note::Message { level, text } => match level {
            Severity::Debug | Severity::Info => text.clone(),
            Severity::Warning => format!("warning: {text}"),
            Severity::Error => format!("error: {text}"),
        },
        Note::RunEnded(end) => format!(
            "run ended {}: {} succeeded, {} failed, {} stopped, {} not run",
            end.outcome, end.succeeded, end.failed, end.stopped, end.not_run
        ),
        Note::Unknown { kind } => format!("note of unknown kind {kind}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::note::AttemptStarted;

    #[test]
    fn retry_that_continues_a_session_was_not_asked_for() {
        let words = |asked: Amendment| {
            let started = AttemptStarted { amendment: Some(asked), ..AttemptStarted::default() };
            amendment(&Note::AttemptStarted(Box::new(started)))
        };
        let retry = Amendment { resume: Some("s".into()), ..Amendment::default() };
        assert_eq!(words(retry.clone()).as_deref(), Some("continues the session"));
        let amended = Amendment { model: Some("opus".into()), ..retry };
        assert_eq!(words(amended).as_deref(), Some("continues the session · requested: model opus"));
    }
}
