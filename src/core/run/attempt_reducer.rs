//! The one accounting of an attempt: reduces decoded lines to its turns, calls, tokens, cost, errors, limits and result.
//! Pure.
//!
//! The attempt machine of a running agent, the fold of a tape and the reports read this state, so that the verdict of
//! a live attempt and that of a recorded one cannot differ. It must not judge: [`verdict`](crate::units::verdict) decides
//! what a result means, [`failure_tally`](crate::units::failure_tally) which failures count.

mod call_ledger;
mod message_usage;
mod reported_result;

pub use self::call_ledger::{CallLedger, CallOutcome};
use self::{call_ledger::CallCounts, message_usage::MessageUsage, reported_result::ReportedValues};
use super::{
    spending::{AttemptCost, round_cost},
    state::{AttemptCounts, ContextUsage, ModelSpending, TokenCounts},
};
use crate::{
    actions::{LineRole, StreamState, TurnTracker},
    decode::{
        AgentLine, ChatLine, LineBody, MessageBlock, ResultLine, ToolResult, Usage,
        line::{SessionFileLine, StreamDelta, SystemLine},
    },
    units::verdict::{ReportedFacts, ResultFacts},
};

/// State of one attempt's stream.
#[derive(Clone, Debug, Default)]
pub struct AttemptReducer {
    stream: StreamState,
    reported: Box<ReportedValues>,
    usage: MessageUsage,
    /// Messages of sub-agents, for their costs.
    nested_usage: Option<Box<MessageUsage>>,
    cost: AttemptCost,
    calls: CallLedger,
}

/// What one line changed.
#[derive(Debug)]
pub struct ReducedLine<'l> {
    pub role: LineRole,
    /// Changes of calls, in the order of the line.
    pub calls: Vec<CallChange<'l>>,
}

/// A change of a call that is not its start.
#[derive(Debug)]
pub enum CallChange<'l> {
    /// The call has a result.
    Ended {
        result: &'l ToolResult<'l>,
        /// Name of the tool, if the call was seen.
        tool: Option<Box<str>>,
        end: CallOutcome,
    },
    /// A denial without a result of the call.
    Denied {
        /// Id of the call; `None` if the agent does not report it.
        id: Option<&'l str>,
        /// Name of the tool, if it is known.
        tool: Option<String>,
        message: Option<&'l str>,
        /// The call has a row or was already reported as denied.
        is_known: bool,
    },
    /// The turn ended before the result of the call arrived.
    Cut { id: Box<str>, end: CallOutcome },
}

impl AttemptReducer {
    pub fn new(turns: TurnTracker) -> Self {
        Self {
            stream: StreamState::new(turns),
            ..Self::default()
        }
    }

    /// Adds a line. Lines after the last result change nothing but the reset time of a usage limit, also if they repeat
    /// the result.
    pub fn push<'l>(&mut self, line: &'l AgentLine<'l>) -> ReducedLine<'l> {
        let role = self.stream.push(line);
        let mut calls = Vec::new();
        self.reported.push(line, role);
        match (role, &line.body) {
            (LineRole::Trailing, _) => {}
            (_, LineBody::Init(init)) => self.cost.set_release(init.version.as_deref()),
            (_, LineBody::Assistant(chat)) => {
                self.assistant(chat, line.parent_tool_use_id.is_some())
            }
            (_, LineBody::User(chat)) => {
                self.results(chat, &mut calls);
                if line.parent_tool_use_id.is_none() && !calls.is_empty() {
                    self.usage.add_answer();
                }
            }
            (_, LineBody::StreamEvent(StreamDelta::Usage { message_id, usage }))
                if line.parent_tool_use_id.is_none() =>
            {
                self.usage.add_final_counts(message_id.as_deref(), *usage);
            }
            (
                _,
                LineBody::System(SystemLine::PermissionDenied {
                    tool_name,
                    tool_use_id,
                    message,
                }),
            ) => {
                let name = (!tool_name.is_empty()).then(|| tool_name.to_string());
                let id = Some(tool_use_id.as_ref()).filter(|id| !id.is_empty());
                calls.push(self.denied(id, name, message.as_deref()));
            }
            (
                _,
                LineBody::System(
                    SystemLine::Compacted { .. } | SystemLine::ConversationReset { .. },
                ),
            ) => self.usage.forget_context(),
            (_, LineBody::Result(result)) => self.result(result, &mut calls),
            (
                _,
                LineBody::SessionFile(SessionFileLine::Cost {
                    total_usd,
                    is_incomplete,
                    ..
                }),
            ) => {
                self.update_cost(|cost| cost.set_session_total(*total_usd, *is_incomplete));
            }
            _ => {}
        }
        ReducedLine { role, calls }
    }

    /// The attempt continues a session whose earlier attempts cost `paid` US dollars; `None` if that is unknown.
    pub fn resume_session(&mut self, paid: Option<f64>) {
        self.cost.resume(paid);
    }

    /// Turns and last text.
    pub fn stream(&self) -> &StreamState {
        &self.stream
    }

    /// The decisive result, unless another turn follows.
    pub fn result_facts(&self) -> Option<&ResultFacts> {
        self.reported.result()
    }

    /// Turns of the model: distinct messages of the main loop.
    pub fn turn_count(&self) -> u32 {
        self.usage.turns()
    }

    /// Cost so far in US dollars, as the agent reports it: known from the first result on, or in old session files from
    /// the messages.
    pub fn cost_usd(&self) -> Option<f64> {
        let nested = self.nested_usage.as_deref().map(MessageUsage::costs);
        let of_messages = || {
            self.usage
                .costs()
                .plus(nested.unwrap_or_default())
                .reported()
        };
        self.cost.cost().or_else(of_messages)
    }

    /// True if the agent reported a total, and not only the costs of messages.
    pub(in crate::run) fn has_total(&self) -> bool {
        self.cost.cost().is_some()
    }

    /// The reported cost and an estimate of the messages since then; `None` if there are none, or if the price of one is
    /// unknown.
    fn estimated_usd(&self) -> Option<f64> {
        let nested = self.nested_usage.as_deref().map(MessageUsage::open_costs);
        let open = self.usage.open_costs().plus(nested.unwrap_or_default());
        let estimate = open.estimate()? + self.cost.cost().unwrap_or_default();
        Some(round_cost(estimate))
    }

    /// Handles a report of the cost. One that does not raise it, such as that of a failed request, covers none of
    /// the messages before it.
    fn update_cost<T>(&mut self, update: impl FnOnce(&mut AttemptCost) -> T) -> T {
        let before = self.cost.cost().unwrap_or_default();
        let updated = update(&mut self.cost);
        if self.cost.cost().is_some_and(|cost| cost > before) {
            self.usage.close_costs();
            if let Some(nested) = &mut self.nested_usage {
                nested.close_costs();
            }
        }
        updated
    }

    /// Cost and tokens for each model so far, known from the first result on.
    pub(crate) fn model_spending(&self) -> Vec<ModelSpending> {
        self.reported.models.models(self.cost.has_own_totals())
    }

    /// The accounting so far, without messages, which are notes. Tokens are those of the result, or else the highest report of each message.
    pub(crate) fn counts(&self) -> AttemptCounts {
        let CallCounts {
            calls,
            failures,
            denials,
            refused_by_person,
            declined,
        } = self.calls.counts;
        AttemptCounts {
            turns: self.usage.turns(),
            calls,
            open_calls: u32::try_from(self.calls.open_count()).unwrap_or(u32::MAX),
            failures,
            denials,
            refused_by_person,
            declined,
            messages_sent: 0,
            cost_usd: self.cost_usd(),
            estimated_usd: self.estimated_usd(),
            tokens: self.usage.tokens(),
            context: ContextUsage {
                used: self.usage.context_tokens(),
                window: self.reported.context_window(),
            },
        }
    }

    pub fn calls(&self) -> &CallLedger {
        &self.calls
    }

    /// Records a failed call that no line reports, or not yet.
    pub fn record_failure(&mut self, id: Option<&str>) {
        self.calls.count_failure(id);
    }

    /// Records that a person denied a call. The agent's error about it does not count as a failure.
    pub fn record_refusal(&mut self, id: Option<&str>) {
        self.calls.count_refusal(id);
    }

    /// Records that a rule denied a call, which counts as failed.
    pub fn record_denial(&mut self, id: Option<&str>) {
        self.calls.count_denial(id);
    }

    /// Records that a tool declined a call.
    pub(crate) fn record_decline(&mut self, id: Option<&str>) {
        self.calls.count_decline(id);
    }

    /// Records the number of failures that was counted with the verdict.
    pub(crate) fn record_failure_count(&mut self, failures: u32) {
        self.calls.counts.failures = self.calls.counts.failures.max(failures);
    }

    /// Marks the attempt as being ended: calls that end badly from now on were cut short.
    pub fn mark_interrupted(&mut self) {
        self.calls.mark_interrupted();
    }

    /// Closes all open calls, and returns how they end.
    pub(crate) fn close_calls(&mut self) -> Vec<(Box<str>, CallOutcome)> {
        self.calls.close_where(|_| true)
    }

    /// The values that the lines report about the end of the attempt.
    pub fn reported_facts(&self) -> ReportedFacts {
        ReportedFacts {
            turns: self.usage.turns(),
            tokens: self.usage.tokens().total(),
            cost_usd: self.cost_usd(),
            ..self.reported.facts(&self.stream.last_text())
        }
    }

    fn assistant(&mut self, chat: &ChatLine<'_>, is_nested: bool) {
        if !chat.is_synthetic() {
            if !is_nested {
                self.reported.set_model(chat.model.as_deref());
            }
            let usage = match is_nested {
                true => self.nested_usage.get_or_insert_default(),
                false => &mut self.usage,
            };
            usage.add_message(chat);
        }
        for block in &chat.blocks {
            if let MessageBlock::ToolUse(call) = block {
                self.calls.open(&call.id, &call.name, is_nested);
            }
        }
    }

    fn results<'l>(&mut self, chat: &'l ChatLine<'l>, changes: &mut Vec<CallChange<'l>>) {
        for block in &chat.blocks {
            let MessageBlock::ToolResult(result) = block else {
                continue;
            };
            let id = result.tool_use_id.as_ref();
            let end = self.calls.result_end(
                id,
                chat.refused.contains(&result.tool_use_id),
                result.is_error,
            );
            match end {
                CallOutcome::Failed => self.calls.count_failure(Some(id)),
                CallOutcome::Denied => self.calls.count_denial(Some(id)),
                CallOutcome::Ok | CallOutcome::Declined | CallOutcome::Aborted => {}
            }
            let tool = self.calls.close(id).map(|call| call.tool);
            changes.push(CallChange::Ended { result, tool, end });
        }
    }

    fn denied<'l>(
        &mut self,
        id: Option<&'l str>,
        tool: Option<String>,
        message: Option<&'l str>,
    ) -> CallChange<'l> {
        let call = id.and_then(|id| self.calls.get(id));
        let is_known = call.is_some() || id.is_some_and(|id| self.calls.is_denied(id));
        let tool = tool.or_else(|| call.map(|call| call.tool.to_string()));
        self.calls.count_denial(id);
        CallChange::Denied {
            id,
            tool,
            message,
            is_known,
        }
    }

    fn result<'l>(&mut self, result: &'l ResultLine<'l>, changes: &mut Vec<CallChange<'l>>) {
        self.reported.set_context_window(result);
        let were_totals_own = self.cost.has_own_totals();
        let is_new_process = self.update_cost(|cost| cost.add_result(result));
        self.reported
            .models
            .add_result(result, is_new_process, were_totals_own);
        if let Some(totals) = result
            .usage
            .map(|usage| TokenCounts::from(Usage::from_raw(usage)))
        {
            self.usage.set_totals(totals);
        }
        let mut unnamed = 0;
        for denial in &result.denials {
            let id = denial.tool_use_id.as_deref().filter(|id| !id.is_empty());
            let is_new = match id {
                // The agent also lists calls that our interrupt ended.
                Some(id) => !self.calls.was_aborted(id),
                // Without an id, it may be any call that has already failed, or one of an earlier result.
                None => {
                    unnamed += 1;
                    !self.calls.is_interrupted() && self.calls.count_unnamed_denial(unnamed)
                }
            };
            if is_new {
                changes.push(self.denied(id, denial.tool_name.as_deref().map(str::to_owned), None));
            }
        }
        // Background agents continue between turns.
        let ended = self.calls.close_where(|call| !call.is_nested);
        changes.extend(
            ended
                .into_iter()
                .map(|(id, end)| CallChange::Cut { id, end }),
        );
    }
}

#[cfg(test)]
mod tests;
