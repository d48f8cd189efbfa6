//! The sentence of a `system` line for people: in a row of the screen, and as a message in lines and JSON.

use crate::{
    decode::line::{SystemLine, WorkflowItem},
    text::{count, one_row, pluralize},
};

/// The text of a `system` line in one row; `None` if it is not shown.
pub fn system_notice(system: &SystemLine<'_>) -> Option<String> {
    let or = |text: &Option<std::borrow::Cow<'_, str>>, other: &str| {
        text.as_deref()
            .map_or_else(|| other.to_owned(), |text| one_row(text, 300))
    };
    Some(match system {
        SystemLine::PermissionDenied {
            tool_name, message, ..
        } => {
            format!("permission denied: {tool_name} {}", or(message, ""))
        }
        SystemLine::ApiRetry {
            attempt,
            max_retries,
            status,
            error,
            ..
        } => {
            let number = |number: &Option<u64>| {
                number.map_or_else(|| "?".to_owned(), |number| number.to_string())
            };
            let error = if error.as_deref() == Some("unknown") {
                &Some("an unknown error".into())
            } else {
                error
            };
            let cause =
                status.map_or_else(|| or(error, "network"), |status| format!("HTTP {status}"));
            format!(
                "API retry {} of {} after {cause}",
                number(attempt),
                number(max_retries)
            )
        }
        SystemLine::Compacted {
            trigger,
            pre_tokens,
        } => {
            let before = pre_tokens
                .map(|tokens| format!(" at {tokens} tokens"))
                .unwrap_or_default();
            format!(
                "context compacted ({}){before}",
                or(trigger, "unknown trigger")
            )
        }
        SystemLine::ModelFallback {
            from,
            to,
            refused: false,
        } => {
            format!("model {} replaced by {}", or(from, "?"), or(to, "?"))
        }
        SystemLine::ModelFallback {
            from,
            to,
            refused: true,
        } => {
            format!(
                "model {} refused to answer; {} answered instead",
                or(from, "?"),
                or(to, "?")
            )
        }
        SystemLine::WritesLost { code, lost } => {
            let what: Vec<_> = lost
                .iter()
                .map(|what| match &**what {
                    "transcript" => {
                        "lines of its session, which a resumed session will miss".to_owned()
                    }
                    "global_config" => "changes to its settings".to_owned(),
                    other => one_row(other, 40),
                })
                .collect();
            format!(
                "Claude Code could not save {} ({})",
                what.join(" and "),
                or(code, "no reason given")
            )
        }
        SystemLine::AuthStatus { error } => {
            format!("signing in failed: {}", or(error, "no reason given"))
        }
        SystemLine::ConversationReset { session } => {
            format!(
                "the conversation was reset; the session is now {}",
                or(session, "?")
            )
        }
        SystemLine::Task(task) => {
            let what = if task.status.is_some() {
                &task.status
            } else {
                &task.summary
            };
            format!("{} {}", task.subtype.replace('_', " "), or(what, ""))
        }
        SystemLine::Notice { text, .. } => one_row(text, 300),
        SystemLine::Status { .. } | SystemLine::Other(_) | SystemLine::Unknown(_) => return None,
    })
}

/// What came of a task, without the name of the task that Claude Code writes before it: `Background command "Count" failed`.
pub fn task_end(summary: &str) -> &str {
    let named = summary
        .strip_prefix("Background command \"")
        .or_else(|| summary.strip_prefix("Dynamic workflow \""))
        .or_else(|| summary.strip_prefix("Agent \""));
    let end = named.and_then(|rest| rest.split_once("\" "));
    end.map_or(summary, |(_, end)| end)
}

/// The name of an agent of a workflow with its phase, and how it ended.
pub fn workflow_agent(agent: &WorkflowItem<'_>) -> String {
    match workflow_agent_outcome(agent) {
        outcome if outcome.is_empty() => workflow_item(agent),
        outcome => format!("{} · {outcome}", workflow_item(agent)),
    }
}

/// The name of a phase, or of an agent with its phase.
pub fn workflow_item(item: &WorkflowItem<'_>) -> String {
    let name = one_row(&item.name, 200);
    match &item.phase {
        _ if !item.is_agent => format!("phase {name}"),
        Some(phase) => format!("{}: {name}", one_row(phase, 80)),
        None => name,
    }
}

/// The error of an agent of a workflow, or what it used; empty while it runs.
pub fn workflow_agent_outcome(agent: &WorkflowItem<'_>) -> String {
    match agent.outcome() {
        None => String::new(),
        Some(false) => agent
            .error
            .as_deref()
            .map_or_else(|| "failed".to_owned(), |error| one_row(error, 300)),
        Some(true) => {
            let calls = |calls| pluralize(usize::try_from(calls).unwrap_or(usize::MAX), "call");
            let tokens = |tokens| match tokens {
                1 => "1 token".to_owned(),
                tokens => format!("{} tokens", count(tokens)),
            };
            let used = [agent.tokens.map(tokens), agent.tool_calls.map(calls)];
            used.into_iter().flatten().collect::<Vec<_>>().join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_a_task_is_shown_without_its_name() {
        for (summary, end) in [
            (
                r#"Background command "Count" completed (exit code 0)"#,
                "completed (exit code 0)",
            ),
            (r#"Dynamic workflow "two look" completed"#, "completed"),
            (
                r#"Background command "Count" failed with "x" y"#,
                r#"failed with "x" y"#,
            ),
            ("The bark is rough.", "The bark is rough."),
            (
                r#"Background command "Count""#,
                r#"Background command "Count""#,
            ),
        ] {
            assert_eq!(task_end(summary), end);
        }
    }
}
