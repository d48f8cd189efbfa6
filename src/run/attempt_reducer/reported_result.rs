//! The reports in an attempt's lines that determine its verdict.

use crate::{
    actions::{LineRole, error_text},
    decode::{AgentLine, ChatLine, LineBody, MessageBlock, ResultLine, line::RateLimitEvent},
    units::verdict::{AttemptFacts, ResultFacts},
};

/// The values that an attempt has reported so far.
#[derive(Clone, Debug, Default)]
pub(super) struct ReportedValues {
    /// The decisive result, unless another turn follows.
    pub(super) result: Option<ResultFacts>,
    error_class: Option<String>,
    api_error: Option<String>,
    api_status: Option<u64>,
    error_text: Option<String>,
    resets_at: Option<i64>,
}

impl ReportedValues {
    pub(super) fn push(&mut self, line: &AgentLine<'_>, role: LineRole) {
        match (role, &line.body) {
            (_, LineBody::RateLimit(limit)) => self.limit(limit),
            (LineRole::InTurn, LineBody::Init(_)) => {
                // Another turn begins, so the values of the previous turn do not apply to it.
                *self = Self { resets_at: self.resets_at, ..Self::default() };
            }
            (LineRole::InTurn, LineBody::Assistant(chat)) => self.assistant(chat),
            (LineRole::Result, LineBody::Result(result)) => self.result = Some(result_facts(result)),
            _ => {}
        }
    }

    /// Adds the reported values to `facts`. `last_text` is the last text of the model.
    pub(super) fn fill_facts(&self, facts: AttemptFacts, last_text: &str) -> AttemptFacts {
        let values = self.clone();
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
            self.error_class = chat.error.as_deref().map(str::to_owned);
            self.api_error = chat.api_error.as_deref().map(str::to_owned);
            self.api_status = chat.api_error_status;
        }
        if failed || chat.is_synthetic() {
            let text = chat.blocks.iter().rev().find_map(|block| match block {
                MessageBlock::Text(text) => Some(text.text().into_owned()),
                _ => None,
            });
            self.error_text = text.or_else(|| self.error_text.take());
        }
    }

    fn limit(&mut self, limit: &RateLimitEvent<'_>) {
        if limit.status == "rejected" {
            self.resets_at = limit.resets_at;
        }
    }
}

/// Extracts the facts of a result line.
pub(crate) fn result_facts(result: &ResultLine<'_>) -> ResultFacts {
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
