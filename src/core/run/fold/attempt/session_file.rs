//! The lines of a session file that streams do not have: what people wrote, and turns that end without a result line.

use super::{AttemptFold, status_for_verdict};
use crate::{
    decode::{
        AgentLine, ChatLine, LazyText, LineBody, MessageBlock,
        line::{SessionFileLine, TextAuthor},
        user_text::UserText,
    },
    run::{
        EntryRef, EntryScope,
        state::{RowKind, RowOutcome, RunView, StreamRow},
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
    /// Adds what a line of a session file adds to the rows and turns of a stream.
    pub(super) fn session_file_line(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        line: &AgentLine<'_>,
        depth: u8,
    ) {
        if line.is_sidechain && entry.scope != EntryScope::BySession {
            self.attempt(view).setup.is_cost_included = true;
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
                self.end_turn_of_message(view, entry, chat);
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
        // If the model answers a command, its answer begins the turn.
        let (kind, begins_turn) = match UserText::parse(author, &text.prefix(MAX_MARKUP_BYTES).0) {
            UserText::Prompt(_) => (RowKind::Prompt, true),
            UserText::Command(_) => (RowKind::Prompt, false),
            UserText::Report(_) => (RowKind::Notice, author == TextAuthor::BackgroundTask),
        };
        if depth == 0 && begins_turn {
            self.begin_turn(view);
        }
        self.push_row(
            view,
            StreamRow::new(seq, block, kind, RowOutcome::Ok, depth),
        );
    }

    /// A session file has no result line. The stop reason of a message ends the turn, until another turn begins.
    fn end_turn_of_message(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        chat: &ChatLine<'_>,
    ) {
        let failed = chat.error.is_some();
        if chat.aborted
            || !(failed
                || matches!(
                    chat.stop_reason.as_deref(),
                    Some("end_turn" | "stop_sequence")
                ))
        {
            return;
        }
        let result = ResultFacts {
            failed,
            subtype: Some("success".to_owned()),
            terminal_reason: Some(if failed { "api_error" } else { "completed" }.to_owned()),
            stop_reason: chat.stop_reason.as_deref().map(str::to_owned),
            text: Some(self.reducer.stream().last_text().into_owned()),
            errors: None,
            api_status: chat.api_error_status,
            start_failure: None,
        };
        // Errors of earlier turns do not apply to this one.
        let reported = if failed {
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
        self.turn_ended = Some(Box::new((entry.seq, entry.at)));
    }
}
