//! What a person wrote to the agent, which only session files contain, as notes.

use std::{borrow::Cow, sync::Arc};

use super::{EmitEvent, EventTranslator, action_event};
use crate::{
    actions::event::{ActionDetail, ActionKind, ActionPhase, AgentAction},
    decode::{LazyText, line::TextAuthor, user_text::UserText},
};

/// Maximum number of prompts that wait for the start of the session.
const MAX_WAITING_PROMPTS: usize = 16;
/// What is emitted in place of the prompts above that number.
const OMITTED_PROMPTS: &str = "… more prompts before the first answer are left out";
/// Bytes of a prompt that an event contains.
const MAX_PROMPT_BYTES: usize = 64 << 10;

impl EventTranslator {
    /// Emits a prompt. A session file begins with one, before the model is known, so it may have to wait for `started`.
    pub(super) fn prompt(&mut self, author: TextAuthor, text: &LazyText<'_>, emit: EmitEvent<'_>) {
        let (text, _) = text.prefix(MAX_PROMPT_BYTES);
        let (UserText::Prompt(prompt) | UserText::Command(prompt)) = UserText::parse(author, &text)
        else {
            return;
        };
        if prompt.trim().is_empty() {
            return;
        }
        if self.started {
            self.emit_prompt(&prompt, emit);
        } else if self.waiting_prompts.len() < MAX_WAITING_PROMPTS {
            Arc::make_mut(&mut self.waiting_prompts).push(prompt.as_ref().into());
        } else if self.waiting_prompts.len() == MAX_WAITING_PROMPTS {
            Arc::make_mut(&mut self.waiting_prompts).push(OMITTED_PROMPTS.into());
        }
    }

    /// Emits the prompts that waited for `started`.
    pub(super) fn emit_waiting_prompts(&mut self, emit: EmitEvent<'_>) {
        for prompt in std::mem::take(&mut self.waiting_prompts).iter() {
            self.emit_prompt(prompt, emit);
        }
    }

    fn emit_prompt(&mut self, prompt: &str, emit: EmitEvent<'_>) {
        self.note_count += 1;
        let first = prompt
            .lines()
            .map(str::trim)
            .find(|line| !line.is_empty())
            .unwrap_or_default();
        let title = format!(
            "prompt: {}",
            first
                .chars()
                .take(super::MAX_THOUGHT_TITLE_CHARS)
                .collect::<String>()
        );
        let action = AgentAction {
            id: Cow::Owned(format!("claude.note.{}", self.note_count)),
            kind: ActionKind::Note,
            title: Cow::Owned(title),
            detail: ActionDetail::Prompt(Cow::Borrowed(prompt)),
        };
        emit(action_event(
            action,
            ActionPhase::Completed,
            Some(true),
            None,
        ));
    }
}
