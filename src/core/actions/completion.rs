//! How a run of the agent ends: with a result, without one, or with the end of a session file.
//!
//! Owns the texts of failures. It must not depend on events.

use std::{borrow::Cow, sync::Arc};

use crate::decode::{ChatLine, ResultLine};

/// The stored end of an agent run.
#[derive(Clone, Debug)]
pub(super) struct CompletionResult {
    pub(super) ok: bool,
    pub(super) answer: String,
    pub(super) error: Option<String>,
    pub(super) usage: Option<Arc<str>>,
}

/// Session files have no result line; the stop reason of their last message determines how the run ended.
#[derive(Clone, Debug, Default)]
pub(super) enum SessionFileState {
    /// The lines are a stream.
    #[default]
    NotASessionFile,
    /// The last message stopped by itself.
    Stopped,
    /// The agent has not answered yet.
    InProgress,
    /// The last message reports a failure.
    Failed,
}

/// The end of the stream as far as the caller knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamEnd {
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub stderr: Option<String>,
    /// The error, if no process was started.
    pub not_started: Option<String>,
}

impl CompletionResult {
    /// Converts a result line. `text` is the answer if the result has none.
    pub(super) fn from_result(result: &ResultLine<'_>, text: &str) -> Self {
        let ok = !result.failed();
        let answer = result
            .result
            .as_deref()
            .filter(|answer| !answer.is_empty())
            .unwrap_or(text);
        Self {
            ok,
            answer: answer.to_owned(),
            error: (!ok).then(|| error_text(result)),
            usage: result.usage.map(|usage| usage.0.into()),
        }
    }

    /// A failure that is not reported by a result.
    pub(super) fn failure(error: String, text: &str) -> Self {
        Self {
            ok: false,
            answer: text.to_owned(),
            error: Some(error),
            usage: None,
        }
    }

    /// Interprets the end of a stream without a result.
    pub(super) fn without_result(identified: bool, file: &SessionFileState, text: &str) -> Self {
        let error = match (identified, file) {
            (false, _) => "claude finished but no session_id was captured",
            (true, SessionFileState::NotASessionFile) => "claude finished without a result event",
            (true, SessionFileState::Stopped) => {
                return Self {
                    ok: true,
                    answer: text.to_owned(),
                    error: None,
                    usage: None,
                };
            }
            (true, SessionFileState::Failed) if !text.is_empty() => text,
            (true, SessionFileState::InProgress | SessionFileState::Failed) => {
                "the session file ends before the agent has answered"
            }
        };
        Self::failure(error.to_owned(), text)
    }
}

impl SessionFileState {
    /// The state after a message of a session file.
    pub(super) fn after_message(chat: &ChatLine<'_>, of_model: bool) -> Self {
        match (
            of_model,
            chat.error.is_some() || chat.aborted,
            chat.stop_reason.as_deref(),
        ) {
            (true, true, _) => Self::Failed,
            (true, false, Some("end_turn" | "stop_sequence")) => Self::Stopped,
            _ => Self::InProgress,
        }
    }
}

impl StreamEnd {
    /// Describes a failed process in one sentence.
    pub(super) fn failure_message(&self) -> Option<String> {
        let how = match (self.signal, self.exit_code) {
            (Some(signal), _) => format!("killed by signal {signal}"),
            (None, Some(code)) if code != 0 => format!("rc={code}"),
            (None, _) => return None,
        };
        let stderr = self
            .stderr
            .as_deref()
            .map(str::trim)
            .filter(|stderr| !stderr.is_empty());
        Some(match stderr {
            Some(stderr) => format!("claude failed ({how}). {stderr}"),
            None => format!("claude failed ({how})."),
        })
    }
}

/// The reason of a failed result: its error, its errors, its text, or else its subtype.
pub(crate) fn error_text(result: &ResultLine<'_>) -> String {
    let text = |text: &Option<Cow<'_, str>>| {
        text.as_deref()
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    let errors = || (!result.errors.is_empty()).then(|| result.errors.join("; "));
    text(&result.error)
        .or_else(errors)
        .or_else(|| text(&result.result))
        .unwrap_or_else(|| match &result.subtype {
            Some(subtype) => format!("claude run failed ({subtype})"),
            None => "claude run failed".to_owned(),
        })
}
