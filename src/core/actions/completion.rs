//! How a run of the agent ends: with a result, without one, or with the end of a session file.
//!
//! Owns the texts of failures. It must not depend on events.

use std::{borrow::Cow, sync::Arc};

use super::stream_state::StreamState;
use crate::decode::{ChatLine, MessageBlock, ResultLine, line::TextAuthor, user_text::UserText};

/// The stored end of an agent run.
#[derive(Clone, Debug)]
pub(super) struct CompletionResult {
    pub(super) ok: bool,
    pub(super) answer: String,
    pub(super) error: Option<String>,
    pub(super) usage: Option<Arc<str>>,
}

/// Session files have no result line; the last message determines how the run ended.
#[derive(Clone, Debug, Default)]
pub(super) enum SessionFileState {
    /// The lines are a stream.
    #[default]
    NotASessionFile,
    /// No line has begun a turn: there are only commands and bookkeeping.
    NoTurn,
    /// The last message answers.
    Answered,
    /// The last message of the model neither answers nor calls. The end of the turn may still be recorded.
    Silent,
    /// The agent has not answered yet.
    InProgress,
    /// A person interrupted the agent.
    Interrupted,
    /// The answer ended early.
    CutShort(EarlyEnd),
    /// The last message reports a failure.
    Failed,
}

/// How a message of the model ends, in a session file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageEnd {
    /// A call or another part of the message follows.
    Continues,
    /// It neither answers nor calls, and old releases do not record more about it.
    Silent,
    /// Old releases do not record that a text is the answer. It is one unless a call follows.
    PresumablyAnswered,
    /// It is the answer.
    Answered,
    /// The answer ended early.
    CutShort(EarlyEnd),
    Failed,
}

/// Why an answer ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EarlyEnd {
    OutputLimit,
    Refusal,
    ContextLimit,
}

impl EarlyEnd {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::OutputLimit => "the answer reached the limit of output tokens",
            Self::Refusal => "the model refused to answer",
            Self::ContextLimit => "the answer reached the limit of the context window",
        }
    }
}

impl MessageEnd {
    pub(crate) fn of(chat: &ChatLine<'_>) -> Self {
        if chat.error.is_some() || chat.aborted {
            return Self::Failed;
        }
        let (mut calls, mut writes) = (false, false);
        for block in &chat.blocks {
            calls |= matches!(block, MessageBlock::ToolUse(_));
            writes |= matches!(block, MessageBlock::Text(text) if !text.is_blank());
        }
        match chat.stop_reason.as_deref() {
            Some("end_turn" | "stop_sequence") => Self::Answered,
            Some("max_tokens") => Self::CutShort(EarlyEnd::OutputLimit),
            Some("refusal") => Self::CutShort(EarlyEnd::Refusal),
            Some("model_context_window_exceeded") => Self::CutShort(EarlyEnd::ContextLimit),
            Some(_) => Self::Continues,
            None if calls => Self::Continues,
            None if writes => Self::PresumablyAnswered,
            None => Self::Silent,
        }
    }
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
    /// Converts a result line. The last message is the answer if the result has none, or only its beginning.
    pub(super) fn from_result(result: &ResultLine<'_>, stream: &StreamState) -> Self {
        let ok = !result.failed();
        let answer = match result.result.as_deref().filter(|text| !text.is_empty()) {
            None => stream.last_text().into_owned(),
            Some(text) if ok => stream.whole_answer(text).unwrap_or_else(|| text.to_owned()),
            Some(text) => text.to_owned(),
        };
        Self {
            ok,
            answer,
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
            (true, SessionFileState::NoTurn) => "the session file contains no prompt",
            (true, SessionFileState::Answered) => {
                return Self {
                    ok: true,
                    answer: text.to_owned(),
                    error: None,
                    usage: None,
                };
            }
            (true, SessionFileState::Failed) if !text.is_empty() => text,
            (true, SessionFileState::CutShort(end)) => end.reason(),
            (true, SessionFileState::Interrupted) => "a person interrupted the agent",
            (
                true,
                SessionFileState::InProgress | SessionFileState::Silent | SessionFileState::Failed,
            ) => "the session file ends before the agent has answered",
        };
        Self::failure(error.to_owned(), text)
    }
}

impl SessionFileState {
    /// The state after a message of the model in a session file.
    pub(super) fn after_answer(chat: &ChatLine<'_>) -> Self {
        match MessageEnd::of(chat) {
            MessageEnd::Continues => Self::InProgress,
            MessageEnd::Silent => Self::Silent,
            MessageEnd::PresumablyAnswered | MessageEnd::Answered => Self::Answered,
            MessageEnd::CutShort(end) => Self::CutShort(end),
            MessageEnd::Failed => Self::Failed,
        }
    }

    /// Adds a `user` line of a session file. Commands and their output do not begin a turn.
    pub(super) fn push_user(&mut self, chat: &ChatLine<'_>) {
        for block in &chat.blocks {
            match block {
                MessageBlock::Text(text) if !text.is_blank() => {
                    let (text, _) = text.prefix(MAX_MARKUP_BYTES);
                    if is_interrupt_marker(&text) {
                        *self = Self::Interrupted;
                    } else if !chat.synthetic && begins_turn(chat.author, &text) {
                        *self = Self::InProgress;
                    }
                }
                MessageBlock::ToolResult(_) if !matches!(self, Self::Interrupted) => {
                    *self = Self::InProgress;
                }
                _ => {}
            }
        }
    }

    /// True for a session file in which nothing was asked.
    pub(super) fn has_no_turn(&self) -> bool {
        matches!(self, Self::NoTurn)
    }

    /// A line of a session file was read.
    pub(super) fn begin(&mut self) {
        if matches!(self, Self::NotASessionFile) {
            *self = Self::NoTurn;
        }
    }

    /// The agent recorded the end of a turn.
    pub(super) fn end_turn(&mut self) {
        if matches!(self, Self::Silent) {
            *self = Self::Answered;
        }
    }
}

/// Bytes of a text that determine who wrote it.
const MAX_MARKUP_BYTES: usize = 4096;

/// True for the text with which Claude Code records that a person interrupted the agent.
pub(crate) fn is_interrupt_marker(text: &str) -> bool {
    text.trim_start()
        .starts_with("[Request interrupted by user")
}

/// True for a text that the agent answers.
pub(crate) fn begins_turn(author: TextAuthor, text: &str) -> bool {
    match UserText::parse(author, text) {
        UserText::Prompt(_) => true,
        // If the model answers a command, its answer begins the turn.
        UserText::Command(_) => false,
        UserText::Report(_) => author == TextAuthor::BackgroundTask,
    }
}

/// True for the subtype of a `system` line that only the end of a turn causes.
pub(crate) fn is_turn_end(subtype: &str) -> bool {
    matches!(subtype, "stop_hook_summary" | "turn_duration")
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
