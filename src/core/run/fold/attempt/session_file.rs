//! The lines of a session file that streams do not have: what people wrote, and turns that end without a result line.

use super::{AttemptFold, CallChange, status_for_verdict};
use crate::{
    actions::{MessageEnd, begins_turn, is_turn_end},
    decode::{
        AgentLine, ChatLine, LazyText, LineBody, MessageBlock, RawJson,
        line::{SessionFileLine, SystemLine, TextAuthor},
        user_text::UserText,
    },
    run::{
        EntryRef, EntryScope,
        state::{CostReport, RowKind, RowOutcome, RunView, StreamRow},
    },
    tape::Seq,
    units::{
        failure_tally::FailureRule,
        verdict::{self, AttemptFacts, ReportedFacts, ResultFacts},
    },
};

/// Bytes of a text that determine who wrote it.
const MAX_MARKUP_BYTES: usize = 4096;

impl AttemptFold {
    /// Results of calls that started sub-agents name these agents.
    pub(super) fn link_agents(
        &self,
        view: &mut RunView,
        seq: Seq,
        calls: &[CallChange<'_>],
        line: &[u8],
    ) {
        let mut ended = calls.iter().filter_map(|change| match change {
            CallChange::Ended {
                result,
                tool: Some(tool),
                ..
            } if matches!(&**tool, "Agent" | "Task") => Some(result),
            _ => None,
        });
        // The line names one agent, so of several calls it is not known which one started it.
        if let (Some(result), None) = (ended.next(), ended.next())
            && let Some(row) = self.call_rows.get(result.tool_use_id.as_ref())
            && let Ok(line) = std::str::from_utf8(line)
            && let Some(agent) = RawJson(line)
                .get("toolUseResult")
                .and_then(|result| result.get("agentId")?.as_str())
        {
            view.sub_agents.add_result(&agent, (self.id, *row), seq);
        }
    }

    /// Adds what a line of a session file adds to the rows and turns of a stream.
    pub(super) fn session_file_line(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        line: &AgentLine<'_>,
        depth: u8,
    ) {
        // A line that is nested in its session belongs to no attempt of a sub-agent.
        let is_nested = line.parent_tool_use_id.is_some();
        if line.is_sidechain && entry.scope != EntryScope::BySession && !is_nested {
            let setup = &mut self.attempt(view).setup;
            let is_first = !setup.is_cost_included();
            if is_first {
                setup.cost_report = CostReport::Session;
            }
            view.sub_agents.has_attempts = true;
            if let Some(agent) = line.agent_id.as_deref().filter(|_| is_first) {
                view.sub_agents.add_agent(self.id, agent);
            }
        }
        match &line.body {
            LineBody::User(chat) if !chat.synthetic => {
                for (index, block) in chat.blocks.iter().enumerate() {
                    let index = u8::try_from(index).unwrap_or(u8::MAX);
                    if let MessageBlock::Text(text) = block {
                        self.user_row(view, entry.seq, index, (chat.author, text), depth);
                    }
                }
            }
            LineBody::SessionFile(SessionFileLine::QueuedText(author, text)) => {
                self.user_row(view, entry.seq, 0, (*author, text), depth);
            }
            LineBody::Assistant(chat) if depth == 0 => {
                if !chat.is_synthetic()
                    && let Some(model) = chat.model.as_deref()
                    && self.attempt(view).setup.model.as_deref() != Some(model)
                {
                    self.attempt(view).setup.model = Some(model.into());
                }
                // The text that it answers may not be recognized.
                self.begin_turn(view);
                self.transcript.last_end = MessageEnd::of(chat);
                match self.transcript.last_end {
                    MessageEnd::Answered => self.end_turn_of_message(view, entry, chat, None),
                    MessageEnd::CutShort(end) => {
                        self.end_turn_of_message(view, entry, chat, Some(end.reason()));
                    }
                    MessageEnd::Failed if !chat.aborted => {
                        self.end_turn_of_message(view, entry, chat, None);
                    }
                    _ => {}
                }
            }
            LineBody::System(SystemLine::Other(subtype)) if depth == 0 && is_turn_end(subtype) => {
                let is_open = self.transcript.turn_ended.is_none();
                let ends = matches!(
                    self.transcript.last_end,
                    MessageEnd::PresumablyAnswered | MessageEnd::Silent
                );
                if is_open && ends {
                    self.end_turn_of_message(view, entry, &ChatLine::default(), None);
                }
            }
            _ => {}
        }
    }

    /// Adds a row for a text that the agent received. A prompt begins another turn.
    fn user_row(
        &mut self,
        view: &mut RunView,
        seq: Seq,
        block: u8,
        (author, text): (TextAuthor, &LazyText<'_>),
        depth: u8,
    ) {
        if text.is_blank() {
            return;
        }
        let (text, _) = text.prefix(MAX_MARKUP_BYTES);
        let kind = match UserText::parse(author, &text) {
            UserText::Prompt(_) | UserText::Command(_) => RowKind::Prompt,
            UserText::Report(_) => RowKind::Notice,
        };
        if depth == 0 && begins_turn(author, &text) {
            self.begin_turn(view);
            self.transcript.last_end = MessageEnd::Continues;
        }
        self.push_row(
            view,
            StreamRow::new(seq, block, kind, RowOutcome::Ok, depth),
        );
    }

    /// A session file has no result line. The last message ends the turn, until another turn begins. `cut_short` is the
    /// reason of an answer that ended early.
    fn end_turn_of_message(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        chat: &ChatLine<'_>,
        cut_short: Option<&str>,
    ) {
        let failed = chat.error.is_some() || cut_short.is_some();
        let result = ResultFacts {
            failed,
            subtype: Some("success".to_owned()),
            terminal_reason: match (cut_short, failed) {
                (Some(_), _) => None,
                (None, true) => Some("api_error".to_owned()),
                (None, false) => Some("completed".to_owned()),
            },
            stop_reason: chat.stop_reason.as_deref().map(str::to_owned),
            text: Some(self.reducer.stream().last_text().into_owned()),
            errors: cut_short.map(str::to_owned),
            api_status: chat.api_error_status,
            start_failure: None,
        };
        // Errors of earlier turns do not apply to this one.
        let reported = if chat.error.is_some() {
            self.reducer.reported_facts()
        } else {
            ReportedFacts::default()
        };
        let facts = AttemptFacts {
            reported: ReportedFacts {
                result: Some(result),
                ..reported
            },
            ..AttemptFacts::default()
        };
        let verdict = verdict::judge_attempt(&self.key, &facts, FailureRule::Strict);
        let status = status_for_verdict(&verdict);
        let attempt = self.attempt(view);
        attempt.ended_at = Some(entry.at);
        attempt.reported_ok = Some(!failed);
        attempt.verdict = Some(verdict);
        self.unit(view).status = status;
        self.transcript.turn_ended = Some(Box::new((entry.seq, entry.at)));
    }
}
