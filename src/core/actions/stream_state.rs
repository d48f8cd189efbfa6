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
    /// The message of the last text.
    message: Option<Arc<MessageTexts>>,
}

/// A message with several texts.
#[derive(Clone, Debug, Default)]
struct MessageTexts {
    id: Box<str>,
    /// Its texts before the last one.
    earlier: String,
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
            let is_nested = line.parent_tool_use_id.is_some();
            let (text, earlier) = (texts.next_back(), texts);
            if let Some(text) = text {
                if !is_nested {
                    self.continue_message(chat.message_id.as_deref());
                    for text in earlier {
                        if let Some(message) = &mut self.message {
                            Arc::make_mut(message).earlier.push_str(&text.text());
                        }
                    }
                }
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

    /// Another text of the main loop follows, which belongs to the message `id`.
    fn continue_message(&mut self, id: Option<&str>) {
        if let (Some(message), Some(id)) = (&mut self.message, id)
            && *message.id == *id
        {
            let before = self.main_text.text();
            Arc::make_mut(message).earlier.push_str(&before);
            return;
        }
        self.message = id.map(|id| {
            Arc::new(MessageTexts {
                id: id.into(),
                earlier: String::new(),
            })
        });
    }

    pub fn turns(&self) -> &TurnTracker {
        &self.turns
    }

    /// The texts of the last message, if `text` is only their beginning.
    pub(super) fn whole_answer(&self, text: &str) -> Option<String> {
        let earlier = self.message.as_ref().map_or("", |message| &message.earlier);
        let whole = format!("{earlier}{}", self.main_text.text());
        (whole.len() > text.len() && whole.starts_with(text)).then_some(whole)
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
