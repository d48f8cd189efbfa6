//! The sentence of a note, which the screen, lines and the log share. The sentence is not escaped.

use std::fmt;

use serde_json::Value;

use super::{effective_result::plain_reason, savings::continued_sentence};
use crate::{
    actions::{
        input_form::{InputForm, PLAN_TOOL, plan_text},
        sql_query::arguments_row,
    },
    tape::{
        Millis, Note,
        note::{
            Amendment, AttemptOutcome, CallDecision, CommandReceived, LimitChanged, Severity,
            StopMode, StopReason,
        },
    },
    text::{dollars, one_row, pluralize},
    units::limits::window_name,
};

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&sentence(self))
    }
}

/// The value of a limit with its unit.
fn limit_text(limit: &str, value: &Value) -> String {
    match (limit, value) {
        (_, Value::Null) => "no limit".to_owned(),
        (_, Value::String(text)) => text.clone(),
        ("run_budget", value) => dollars(value.as_f64()),
        ("silence_timeout", value) => Millis(value.as_u64().unwrap_or_default()).to_string(),
        (_, value) => value.to_string(),
    }
}

fn command_sentence(received: &CommandReceived) -> String {
    let CommandReceived {
        command,
        units,
        client,
        user,
        reason,
    } = received;
    let mut sentence = format!("command {}", command.replace('_', "-"));
    match units.as_slice() {
        [] => {}
        [unit] => sentence.push_str(&format!(" {unit}")),
        units => sentence.push_str(&format!(" {}", pluralize(units.len(), "unit"))),
    }
    let sender: Vec<&str> = [client, user]
        .into_iter()
        .flatten()
        .map(String::as_str)
        .collect();
    if !sender.is_empty() {
        sentence.push_str(&format!(" ({})", sender.join(", ")));
    }
    if let Some(reason) = reason {
        sentence.push_str(&format!(": {reason}"));
    }
    sentence
}

/// What a held call asks a person; `None` for a call that only waits.
fn asked(tool: &str, input: &str) -> Option<String> {
    if tool == PLAN_TOOL {
        let plan = plan_text(tool, input)?;
        let title = plan.lines().find(|line| !line.trim().is_empty())?;
        return Some(format!(
            "a plan waits for your approval: {}",
            title.trim_start_matches(['#', ' '])
        ));
    }
    let form = InputForm::of_call(tool, input)?;
    Some(match &form.server {
        Some(server) => format!("the tool server `{server}` asks you: {}", form.message),
        None => {
            let prompts = form.fields.iter().map(|field| field.prompt.as_str());
            format!(
                "the model asks you: {}",
                prompts.collect::<Vec<_>>().join(" · ")
            )
        }
    })
}

/// The values of an answer. Its keys are the questions, which are shown above.
fn answer_values(answer: &Value) -> String {
    let text = |value: &Value| match value.as_str() {
        Some(text) => text.to_owned(),
        None => value.to_string(),
    };
    match answer {
        Value::Object(answers) => {
            let values: Vec<_> = answers.values().map(text).collect();
            values.join(" · ")
        }
        other => text(other),
    }
}

fn sentence(note: &Note) -> String {
    match note {
        Note::RunPlanned(plan) => {
            format!(
                "planned {}, concurrency {}",
                pluralize(plan.units.len(), "unit"),
                plan.concurrency
            )
        }
        Note::SourceRead(read) => format!("read {}: {}", read.connection, read.diff),
        Note::FilesEvicted(evicted) => {
            format!(
                "handled {} of {}",
                pluralize(evicted.paths.len(), "deleted file"),
                evicted.connection
            )
        }
        Note::SourcesProjected(projected) => projected.to_string(),
        Note::CommandReceived(received) => command_sentence(received),
        Note::WorkContinued(work) => continued_sentence(work),
        Note::AttemptStarted(start) => {
            let model = start.model.as_deref().unwrap_or("default model");
            let pid = start
                .pid
                .map(|pid| format!(" · pid {pid}"))
                .unwrap_or_default();
            format!(
                "attempt started · {model} · {}{pid}",
                pluralize(start.tools.len(), "tool")
            )
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
            with_outcome(outcome, &plain_reason(&end.verdict.reason))
        }
        Note::RetryScheduled { next, delay_ms, .. } => {
            format!("attempt {next} starts in {}", Millis(*delay_ms))
        }
        Note::RetryRequested { next, amendment } => {
            format!(
                "retry requested: attempt {next}{}",
                amended(amendment.as_ref())
            )
        }
        Note::StopRequested { how } => match how {
            StopMode::Drain => "drain requested",
            StopMode::Stop => "stop requested",
            StopMode::Kill => "kill requested",
        }
        .to_owned(),
        Note::HoldRequested => "hold requested: tool calls wait for approval".to_owned(),
        Note::HoldReleased => "released: tool calls no longer wait for approval".to_owned(),
        Note::RunUntil { condition } => format!("runs until {}", one_row(condition, 300)),
        Note::CallHeld {
            tool,
            input,
            reached,
            ..
        } => {
            let reached = reached
                .as_ref()
                .map(|condition| format!(" at {}", one_row(condition, 80)))
                .unwrap_or_default();
            let input = input.to_string();
            match asked(tool, &input) {
                Some(asked) => one_row(&asked, 300),
                None => {
                    let input = arguments_row(tool, &input);
                    format!("held{reached}: {tool} {}", one_row(&input, 300))
                }
            }
        }
        Note::CallDecided {
            decision,
            input,
            reason,
            rule,
            ..
        } => match decision {
            CallDecision::Allowed => match rule {
                Some(rule) => format!("allowed by the policy: {}", one_row(rule, 80)),
                None => "allowed once".to_owned(),
            },
            CallDecision::Edited => {
                let input = input
                    .as_ref()
                    .map(|input| format!(": {}", one_row(&input.to_string(), 300)));
                format!("allowed with other arguments{}", input.unwrap_or_default())
            }
            CallDecision::Answered => {
                let answer = input
                    .as_ref()
                    .map(|answer| format!(": {}", one_row(&answer_values(answer), 300)));
                format!("answered{}", answer.unwrap_or_default())
            }
            CallDecision::Cancelled => "cancelled without an answer".to_owned(),
            CallDecision::Denied => format!(
                "denied: {}",
                one_row(reason.as_deref().unwrap_or_default(), 300)
            ),
            CallDecision::Released => "released".to_owned(),
            CallDecision::Withdrawn => {
                "withdrawn: the call no longer waits for a decision".to_owned()
            }
        },
        Note::LimitPaused { limit, wait_ms, .. } => {
            let wait = wait_ms
                .map(|wait| format!(" for {}", Millis(wait)))
                .unwrap_or_default();
            format!("paused{wait}: {} limit", window_name(limit))
        }
        Note::Throttled {
            slots: Some(slots),
            limit,
        } => {
            let limit = window_name(limit);
            format!("{limit} limit is nearly reached; concurrency reduced to {slots}")
        }
        Note::Throttled { slots: None, limit } => {
            let limit = window_name(limit);
            format!("{limit} limit recovered; back to full concurrency")
        }
        Note::LimitLifted => "limit lifted".to_owned(),
        Note::ConcurrencyChanged { slots, .. } => format!("concurrency is now {slots}"),
        Note::LimitChanged(LimitChanged { limit, old, new }) => {
            format!(
                "{} changed from {} to {}",
                limit.replace('_', " "),
                limit_text(limit, old),
                limit_text(limit, new)
            )
        }
        Note::MessageSent { text } => format!("message to the agent: {}", one_row(text, 300)),
        Note::DecisionAwaited { units } => {
            let names: Vec<&str> = units.iter().map(crate::tape::UnitKey::as_str).collect();
            let units = if names.len() == 1 { "unit" } else { "units" };
            let list = one_row(&names.join(", "), 200);
            format!(
                "waits for a decision: {units} out of turns: {list}; retry with more turns, or accept"
            )
        }
        Note::LinesSetAside { lines } => {
            format!(
                "not counted: the next {}",
                pluralize(*lines as usize, "line")
            )
        }
        Note::ResultAccepted => "the result is accepted as it is".to_owned(),
        Note::RunPaused => "paused: nothing starts, and tool calls wait".to_owned(),
        Note::RunResumed => "resumed".to_owned(),
        Note::Published { paths } => format!("published {}", paths.join(", ")),
        Note::PatchWritten(written) => match &written.path {
            Some(path) => format!("patch written: {path} ({})", written.paths.join(", ")),
            None => "no patch: the attempt changed nothing".to_owned(),
        },
        Note::IntegrationAdvanced(advanced) => advanced.to_string(),
        Note::IntegrationStarted(integrating) => {
            format!(
                "integrating {} on {}",
                pluralize(integrating.units.len(), "unit"),
                short_hash(&integrating.onto)
            )
        }
        Note::PatchIntegrated(integrated) => match &integrated.verdict {
            Some(verdict) => {
                let reason = plain_reason(&verdict.reason);
                format!("{}: {reason}", integrated.result.label())
            }
            None => {
                let shared = integrated.shared.iter().map(|shared| format!("; {shared}"));
                format!(
                    "{}{}",
                    integrated.result.label(),
                    shared.collect::<String>()
                )
            }
        },
        Note::ReviewRequested(request) => request.to_string(),
        Note::BranchSelected {
            branch: Some(branch),
        } => format!("commits go to branch {branch}"),
        Note::BranchSelected { branch: None } => "commits go to the current branch".to_owned(),
        Note::WorkerJoined(joined) => one_row(&joined.to_string(), 300),
        Note::PoolUse(pool) => one_row(&pool.to_string(), 300),
        Note::WorkersAwaited { wait_ms } => {
            format!("waiting for workers, at most {}", Millis(*wait_ms))
        }
        Note::WorkerWaitEnded => "no longer waiting for workers".to_owned(),
        Note::WorkerDrained(drained) => one_row(&drained.to_string(), 300),
        Note::WorkerLeft(left) => one_row(&left.to_string(), 300),
        Note::ReviewPlanned => "nothing is saved before a review".to_owned(),
        Note::CommittedReviewPlanned { run } => {
            format!("the commits of run {} are reviewed", run.short())
        }
        Note::ReviewFinished { sent_back } if sent_back.is_empty() => "review finished".to_owned(),
        Note::ReviewFinished { sent_back } => {
            format!(
                "review finished; {} sent back",
                pluralize(sent_back.len(), "unit")
            )
        }
        Note::ReviewDecided(decided) => one_row(&decided.to_string(), 300),
        Note::RunSaved(saved) => match saved.short_commit() {
            Some(commit) => format!("saved as commit {commit}: {}", saved.subject),
            None => "nothing to save".to_owned(),
        },
        Note::SlRefsRepaired(repaired) => repaired
            .repairs
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("; "),
        Note::SaveFailed(failed) => format!("not saved: {}", failed.reason),
        Note::ToolFailed { tool, message, .. } => {
            format!("{tool} failed: {}", one_row(message, 300))
        }
        Note::ToolDeclined { tool, message, .. } => {
            format!("{tool} declined: {}", one_row(message, 300))
        }
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

/// A reason after an outcome, which the reason may begin with.
pub fn with_outcome(outcome: &str, reason: &str) -> String {
    if reason.starts_with(outcome) {
        reason.to_owned()
    } else {
        format!("{outcome}: {reason}")
    }
}

fn amended(amendment: Option<&Amendment>) -> String {
    amendment
        .map(|amendment| format!(", {}", one_row(&amendment.to_string(), 300)))
        .unwrap_or_default()
}

fn short_hash(commit: &str) -> &str {
    commit.get(..8).unwrap_or(commit)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_that_ask_a_person_are_shown_without_their_arguments() {
        let held = |tool: &str, input: Value| {
            let note = json!({"kind": "call_held", "tool": tool, "tool_use_id": "t", "input": input,
                "reached": "permission request", "needs_decision": true});
            Note::parse(note.to_string().as_bytes()).to_string()
        };
        let question = |text: &str| json!({"question": text, "options": [{"label": "Table"}]});
        let questions = json!({"questions": [question("Which format?"), question("Where?")]});
        assert_eq!(
            held("AskUserQuestion", questions),
            "the model asks you: Which format? · Where?"
        );
        assert_eq!(
            held(
                "ExitPlanMode",
                json!({"plan": "\n## Move the reports\n- one"})
            ),
            "a plan waits for your approval: Move the reports"
        );
        let request = json!({"mcp_server_name": "booking", "message": "Complete it.",
            "requested_schema": {"properties": {"age": {"type": "integer"}}}});
        assert_eq!(
            held("elicitation", request),
            "the tool server `booking` asks you: Complete it."
        );
        // Arguments of another shape are shown as they are.
        assert_eq!(
            held("AskUserQuestion", json!({"questions": 1})),
            r#"held at permission request: AskUserQuestion {"questions":1}"#
        );
    }

    #[test]
    fn answer_is_shown_as_its_values() {
        let note = json!({"kind": "call_decided", "tool_use_id": "t", "decision": "answered",
            "input": {"Which format?": "Table, List", "age": 36}});
        assert_eq!(
            Note::parse(note.to_string().as_bytes()).to_string(),
            "answered: Table, List · 36"
        );
    }
}
