//! The reports in an attempt's lines that determine its verdict. The attempt machine and the fold both use this module,
//! so that the verdict of a live attempt and that of a recorded one cannot differ.
//!
//! [`TurnTracker`] decides which result counts, [`verdict`](crate::units::verdict) what it means.

use crate::{
    actions::{LineRole, TurnTracker, error_text},
    decode::{AgentLine, ChatLine, LineBody, MessageBlock, ResultLine, line::RateLimitEvent},
    units::verdict::{AttemptFacts, ResultFacts},
};

/// Model name in lines that the agent writes without calling the model.
const SYNTHETIC_MODEL: &str = "<synthetic>";

/// The values that an attempt has reported so far.
#[derive(Clone, Debug, Default)]
pub struct AttemptSignals {
    turns: TurnTracker,
    values: Box<SignalValues>,
}

#[derive(Clone, Debug, Default)]
struct SignalValues {
    result: Option<ResultFacts>,
    error_class: Option<String>,
    api_error: Option<String>,
    api_status: Option<u64>,
    error_text: Option<String>,
    resets_at: Option<i64>,
}

impl AttemptSignals {
    pub fn new(turns: TurnTracker) -> Self {
        Self { turns, values: Box::default() }
    }

    /// Processes the next line and returns its role in the attempt.
    pub fn push(&mut self, line: &AgentLine<'_>) -> LineRole {
        let part = self.turns.push(line);
        match (part, &line.body) {
            (_, LineBody::RateLimit(limit)) => self.limit(limit),
            (LineRole::InTurn, LineBody::Init(_)) => {
                // Another turn begins, so the values of the previous turn do not apply to it.
                let resets_at = self.values.resets_at;
                *self.values = SignalValues { resets_at, ..SignalValues::default() };
            }
            (LineRole::InTurn, LineBody::Assistant(chat)) => self.assistant(chat),
            (LineRole::Result, LineBody::Result(result)) => self.values.result = Some(result_facts(result)),
            _ => {}
        }
        part
    }

    /// Returns the decisive result, unless another turn follows.
    pub fn result(&self) -> Option<&ResultFacts> {
        self.values.result.as_ref()
    }

    pub fn turns(&self) -> &TurnTracker {
        &self.turns
    }

    /// Adds the reported values to `facts`. `last_text` is the last text of the model.
    pub fn fill_facts(&self, facts: AttemptFacts, last_text: &str) -> AttemptFacts {
        let values = (*self.values).clone();
        let last_text = values.error_text.or_else(|| (!last_text.is_empty()).then(|| last_text.to_owned()));
        AttemptFacts {
            result: values.result,
            error_class: values.error_class,
            api_error: values.api_error,
            api_status: values.api_status,
            last_text,
            limit_resets_at: values.resets_at,
            ..facts
        }
    }

    fn assistant(&mut self, chat: &ChatLine<'_>) {
        let failed = chat.error.is_some() || chat.api_error.is_some();
        if failed {
            self.values.error_class = chat.error.as_deref().map(str::to_owned);
            self.values.api_error = chat.api_error.as_deref().map(str::to_owned);
            self.values.api_status = chat.api_error_status;
        }
        if failed || chat.model.as_deref() == Some(SYNTHETIC_MODEL) {
            let text = chat.blocks.iter().rev().find_map(|block| match block {
                MessageBlock::Text(text) => Some(text.text().into_owned()),
                _ => None,
            });
            self.values.error_text = text.or_else(|| self.values.error_text.take());
        }
    }

    fn limit(&mut self, limit: &RateLimitEvent<'_>) {
        if limit.status == "rejected" {
            self.values.resets_at = limit.resets_at;
        }
    }
}

/// Extracts the facts of a result line.
pub fn result_facts(result: &ResultLine<'_>) -> ResultFacts {
    let owned = |text: &Option<std::borrow::Cow<'_, str>>| text.as_deref().map(str::to_owned);
    let has_errors = result.error.as_deref().is_some_and(|error| !error.is_empty()) || !result.errors.is_empty();
    ResultFacts {
        failed: result.failed(),
        subtype: owned(&result.subtype),
        terminal_reason: owned(&result.terminal_reason),
        stop_reason: owned(&result.stop_reason),
        text: owned(&result.result),
        errors: has_errors.then(|| error_text(result)),
        api_status: result.api_error_status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode;

    fn reported(lines: &[&str]) -> AttemptFacts {
        let mut reported = AttemptSignals::new(TurnTracker::for_one_prompt());
        for line in lines {
            reported.push(&decode::decode_line(line.as_bytes()));
        }
        reported.fill_facts(AttemptFacts::default(), "the last text")
    }

    #[test]
    fn error_line_is_kept_against_later_text() {
        let limit = r#"{"type":"assistant","error":"rate_limit","api_error":"usage_limit_reached","api_error_status":429,"message":{"content":[{"type":"text","text":"You've hit your limit"}]}}"#;
        let later = r#"{"type":"assistant","message":{"content":[{"type":"text","text":"more"}]}}"#;
        assert_eq!(reported(&[later]).last_text.as_deref(), Some("the last text"));
        let facts = reported(&[later, limit, later]);
        assert_eq!(facts.last_text.as_deref(), Some("You've hit your limit"));
        assert_eq!(facts.error_class.as_deref(), Some("rate_limit"));
        assert_eq!(facts.api_error.as_deref(), Some("usage_limit_reached"));
        assert_eq!(facts.api_status, Some(429));
    }

    #[test]
    fn only_a_rejected_window_sets_the_reset_time() {
        let limit = |status: &str, at: i64| {
            format!(r#"{{"type":"rate_limit_event","rate_limit_info":{{"status":"{status}","resetsAt":{at}}}}}"#)
        };
        let (warned, rejected, allowed) = (
            limit("allowed_warning", 1_700_000_001),
            limit("rejected", 1_700_000_002),
            limit("allowed", 1_700_000_003),
        );
        assert_eq!(reported(&[&warned]).limit_resets_at, None);
        assert_eq!(reported(&[&warned, &rejected, &allowed]).limit_resets_at, Some(1_700_000_002));
    }

    #[test]
    fn result_of_an_earlier_turn_does_not_decide() {
        let init = r#"{"type":"system","subtype":"init"}"#;
        let task = r#"{"type":"system","subtype":"task_started","task_id":"t"}"#;
        let result = |text: &str| format!(r#"{{"type":"result","is_error":false,"result":"{text}"}}"#);
        let (first, second) = (result("first"), result("second"));
        let text = |lines: &[&str]| reported(lines).result.and_then(|result| result.text);
        assert_eq!(text(&[init, &first, &second]).as_deref(), Some("first"));
        assert_eq!(text(&[init, task, &first, init]), None);
        assert_eq!(text(&[init, task, &first, init, &second]).as_deref(), Some("second"));
    }

    #[test]
    fn result_errors_follow_the_stream_contract() {
        let errors = |fields: &str| {
            let line = format!(r#"{{"type":"result","is_error":true,{fields}}}"#);
            reported(&[&line]).result.and_then(|result| result.errors)
        };
        assert_eq!(errors(r#""errors":["f","g"],"result":"r""#).as_deref(), Some("f; g"));
        assert_eq!(errors(r#""error":"e","errors":["f"]"#).as_deref(), Some("e"));
        assert_eq!(errors(r#""errors":[],"result":"r""#), None);
    }
}
