//! The reports in an attempt's lines that determine its verdict.

use crate::{
    actions::{LineRole, error_text},
    decode::{
        AgentLine, ChatLine, LineBody, MessageBlock, RawJson, ResultLine, line::RateLimitEvent,
    },
    run::model_spending::ModelLedger,
    units::verdict::{ReportedFacts, ResultFacts, StartFailure},
};

/// The values that an attempt has reported so far.
#[derive(Clone, Debug, Default)]
pub(super) struct ReportedValues {
    /// `last_text` is only the text of error lines.
    facts: ReportedFacts,
    pub(super) models: ModelLedger,
    /// The model of the last message of the main loop, and the size of its context in tokens; 0 if it is unknown.
    context_model: (Box<str>, u32),
}

impl ReportedValues {
    pub(super) fn push(&mut self, line: &AgentLine<'_>, role: LineRole) {
        match (role, &line.body) {
            (_, LineBody::RateLimit(limit)) => self.limit(limit),
            (LineRole::InTurn, LineBody::Init(_)) => {
                // Another turn begins, so the values of the previous turn do not apply to it.
                let limit_resets_at = self.facts.limit_resets_at;
                self.facts = ReportedFacts {
                    limit_resets_at,
                    ..ReportedFacts::default()
                };
            }
            (LineRole::InTurn, LineBody::Assistant(chat)) => self.assistant(chat),
            (LineRole::Result, LineBody::Result(result)) => {
                self.facts.result = Some(result_facts(result))
            }
            _ => {}
        }
    }

    pub(super) fn context_window(&self) -> u32 {
        self.context_model.1
    }

    /// The model of a message of the main loop. The context of another model may have another size.
    pub(super) fn set_model(&mut self, model: Option<&str>) {
        if let Some(model) = model.filter(|model| *self.context_model.0 != **model) {
            self.context_model = (model.into(), 0);
        }
    }

    /// Reads the size of the context from a result. Its name of a model may end with a variant, as in `[1m]`.
    pub(super) fn set_context_window(&mut self, result: &ResultLine<'_>) {
        let (model, window) = &mut self.context_model;
        let usage = result.model_usage.map(RawJson::value).unwrap_or_default();
        let mut models = usage.as_object().into_iter().flatten();
        let found = models.find(|(name, _)| {
            let rest = name.strip_prefix(&**model).filter(|_| !model.is_empty());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('['))
        });
        let tokens = found.and_then(|(_, usage)| usage["contextWindow"].as_u64());
        *window = tokens
            .and_then(|tokens| u32::try_from(tokens).ok())
            .unwrap_or(*window);
    }

    /// The decisive result, unless another turn follows.
    pub(super) fn result(&self) -> Option<&ResultFacts> {
        self.facts.result.as_ref()
    }

    /// The reported values. `last_text` is the last text of the model.
    pub(super) fn facts(&self, last_text: &str) -> ReportedFacts {
        let mut facts = self.facts.clone();
        facts.last_text = facts
            .last_text
            .or_else(|| (!last_text.is_empty()).then(|| last_text.to_owned()));
        facts
    }

    fn assistant(&mut self, chat: &ChatLine<'_>) {
        let failed = chat.error.is_some() || chat.api_error.is_some();
        if failed {
            self.facts.error_class = chat.error.as_deref().map(str::to_owned);
            self.facts.api_error = chat.api_error.as_deref().map(str::to_owned);
            self.facts.api_status = chat.api_error_status;
        }
        if failed || chat.is_synthetic() {
            let text = chat.blocks.iter().rev().find_map(|block| match block {
                MessageBlock::Text(text) => Some(text.text().into_owned()),
                _ => None,
            });
            self.facts.last_text = text.or_else(|| self.facts.last_text.take());
        }
    }

    fn limit(&mut self, limit: &RateLimitEvent<'_>) {
        if limit.status == "rejected" {
            self.facts.limit_resets_at = limit.resets_at;
        }
    }
}

/// Extracts the facts of a result line.
pub(crate) fn result_facts(result: &ResultLine<'_>) -> ResultFacts {
    let owned = |text: &Option<std::borrow::Cow<'_, str>>| text.as_deref().map(str::to_owned);
    let has_errors = result
        .error
        .as_deref()
        .is_some_and(|error| !error.is_empty())
        || !result.errors.is_empty();
    ResultFacts {
        failed: result.failed(),
        subtype: owned(&result.subtype),
        terminal_reason: owned(&result.terminal_reason),
        stop_reason: owned(&result.stop_reason),
        text: owned(&result.result),
        errors: has_errors.then(|| error_text(result)),
        api_status: result.api_error_status,
        start_failure: result
            .startup_failure
            .as_deref()
            .map(|reason| StartFailure {
                reason: reason.to_owned(),
                config_file: result.invalid_config.as_ref().map(|file| {
                    (
                        file.path.clone().into_owned(),
                        file.backup.as_deref().map(str::to_owned),
                    )
                }),
            }),
    }
}
