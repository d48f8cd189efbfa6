//! The turns of a stream and the last text of its model: the state that the translator and the reducer of an attempt
//! share. It must not interpret results.

use std::{borrow::Cow, sync::Arc};

use super::turn_tracker::{LineRole, TurnTracker};
use crate::decode::{AgentLine, LazyText, LineBody, MessageBlock};

/// State of one stream. Cheap to clone: the texts are shared.
#[derive(Clone, Debug, Default)]
pub struct StreamState {
    turns: TurnTracker,
    main_text: Arc<LazyText<'static>>,
    nested_text: Arc<LazyText<'static>>,
}

impl StreamState {
    pub fn new(turns: TurnTracker) -> Self {
        Self {
            turns,
            ..Self::default()
        }
    }

    /// Adds a line and returns its role.
    pub fn push(&mut self, line: &AgentLine<'_>) -> LineRole {
        let role = self.turns.push(line);
        if let (LineRole::InTurn, LineBody::Assistant(chat)) = (role, &line.body) {
            let mut texts = chat.blocks.iter().filter_map(|block| match block {
                MessageBlock::Text(text) if !text.is_blank() => Some(text),
                _ => None,
            });
            if let Some(text) = texts.next_back() {
                let is_nested = line.parent_tool_use_id.is_some();
                let last = if is_nested {
                    &mut self.nested_text
                } else {
                    &mut self.main_text
                };
                Arc::make_mut(last).assign(text);
            }
        }
        role
    }

    pub fn turns(&self) -> &TurnTracker {
        &self.turns
    }

    /// Last text of the model, of the main loop if there is any; empty before the first.
    pub(crate) fn last_text(&self) -> Cow<'_, str> {
        if self.main_text.is_empty() {
            self.nested_text.text()
        } else {
            self.main_text.text()
        }
    }
}
