//! Requests of a person to the agent of a session, and its answers as messages on the tape.

use serde_json::Value;

use super::{AttemptEffect, AttemptMachine, AttemptPhase, warning_note};
use crate::control::ControlRequest;
use ingestdeck_core::{
    control::AgentRequest,
    diagnostic::{Diagnostic as _, Problem},
    tape::{Note, note::Severity},
    text,
};

/// Maximum length of a text of the agent in a message, in characters.
const MAX_TEXT_CHARS: usize = 300;
/// Maximum number of usage windows in a message.
const MAX_WINDOWS: usize = 10;

impl AttemptMachine {
    /// Passes a request on, while the agent can answer it.
    pub(super) fn handle_request(&mut self, request: AgentRequest) -> Vec<AttemptEffect> {
        let is_open = self.phase == AttemptPhase::Working && self.escalation.is_none();
        let Some(session) = self.session.as_mut().filter(|_| is_open && self.is_two_way) else {
            let subject = request.subject();
            let text =
                format!("the agent takes no requests now, so {subject} is unchanged and unknown");
            return vec![warning_note(&text)];
        };
        if let AgentRequest::PermissionMode(mode) = &request {
            session.expect_mode(mode);
        }
        let frame = self
            .control
            .start_request(ControlRequest::OfPerson(request));
        vec![AttemptEffect::WriteFrame(frame)]
    }

    /// Records the answer to a request, and remembers what the next turn has to repeat.
    pub(super) fn handle_answer(
        &mut self,
        request: AgentRequest,
        answer: Result<Value, Problem>,
    ) -> Vec<AttemptEffect> {
        let answer = match answer {
            Ok(answer) => answer,
            Err(problem) => {
                let why = text::one_row(&problem.to_line(), MAX_TEXT_CHARS);
                let text = match request {
                    AgentRequest::Context | AgentRequest::Usage => {
                        format!("cannot read {}: {why}", request.subject())
                    }
                    AgentRequest::StopTask(task) => format!("cannot stop task {task}: {why}"),
                    // Its own sentence.
                    AgentRequest::PermissionMode(_) if why.starts_with("Cannot set ") => {
                        why.replacen('C', "c", 1)
                    }
                    _ => format!("cannot set {}: {why}", request.subject()),
                };
                return vec![warning_note(&text)];
            }
        };
        let text = match &request {
            AgentRequest::Model(model) => {
                let resolved = answer.get("model").and_then(Value::as_str).unwrap_or(model);
                format!(
                    "the model is now {}",
                    text::one_row(resolved, MAX_TEXT_CHARS)
                )
            }
            AgentRequest::PermissionMode(mode) => {
                let mode = answer.get("mode").and_then(Value::as_str).unwrap_or(mode);
                format!(
                    "the permission mode is now {}",
                    text::one_row(mode, MAX_TEXT_CHARS)
                )
            }
            AgentRequest::Context => context_text(&answer),
            AgentRequest::Usage => usage_text(&answer),
            AgentRequest::StopTask(task) => format!("task {task} was asked to stop"),
        };
        if let Some(session) = &mut self.session {
            session.record_change(request);
        }
        vec![AttemptEffect::RecordNote(Note::Message {
            level: Severity::Info,
            text,
        })]
    }
}

fn context_text(answer: &Value) -> String {
    let number = |key: &str| answer.get(key).and_then(Value::as_u64);
    let (Some(used), Some(most)) = (number("totalTokens"), number("maxTokens")) else {
        return "the agent did not report the size of its context".to_owned();
    };
    let share = match most {
        0 => String::new(),
        most => format!(" ({} %)", used.saturating_mul(100) / most),
    };
    format!(
        "context: {} of {} tokens{share}",
        text::count(used),
        text::count(most)
    )
}

/// The usage windows with their shares. The names of windows are not fixed.
fn usage_text(answer: &Value) -> String {
    let windows = answer.get("rate_limits").and_then(Value::as_object);
    let share = |window: &Value| {
        let share = window.get("utilization").and_then(Value::as_f64)?;
        share.is_finite().then_some(share)
    };
    let known = windows.into_iter().flatten().filter_map(|(name, window)| {
        let name = name.replace('_', " ");
        let name = text::printable(&name, 40);
        let resets = window.get("resets_at").and_then(Value::as_str);
        let resets = resets.map_or_else(String::new, |at| {
            format!(", resets {}", text::one_row(at, 40))
        });
        Some(format!("{name} {:.0} %{resets}", share(window)?))
    });
    let known: Vec<String> = known.take(MAX_WINDOWS).collect();
    if known.is_empty() {
        return "usage: the account has no usage windows".to_owned();
    }
    format!("usage: {}", known.join("; "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn context_is_reported_with_its_share() {
        let answer = json!({"totalTokens": 24_310, "maxTokens": 200_000, "percentage": 12});
        assert!(
            context_text(&answer).ends_with("tokens (12 %)"),
            "{}",
            context_text(&answer)
        );
        for odd in [
            json!({}),
            json!(null),
            json!({"totalTokens": -1, "maxTokens": "x"}),
        ] {
            assert_eq!(
                context_text(&odd),
                "the agent did not report the size of its context"
            );
        }
        assert!(!context_text(&json!({"totalTokens": 1, "maxTokens": 0})).contains('%'));
    }

    #[test]
    fn usage_windows_are_listed_with_their_resets() {
        let answer = json!({"rate_limits": {
            "five_hour": {"utilization": 42.4, "resets_at": "2026-11-30T05:00:00Z"},
            "seven_day": {"utilization": 95},
            "odd\u{1b}[2J": {"utilization": 1},
            "none": null,
        }});
        assert_eq!(
            usage_text(&answer),
            "usage: five hour 42 %, resets 2026-11-30T05:00:00Z; seven day 95 %; odd\\e[2J 1 %"
        );
        let none = "usage: the account has no usage windows";
        assert_eq!(usage_text(&json!({"rate_limits": null})), none);
    }
}
