//! Which result of an attempt decides, and which lines belong to the attempt.
//!
//! One process may take several turns: a task in the background starts another one when it reports back, and a
//! conversation has one for each message. Every turn begins with `system/init` and ends with a result; the last result
//! decides. It must not judge what a result means.

use std::{collections::HashSet, sync::Arc};

use crate::decode::{AgentLine, LineBody, line::SystemLine};

/// What a line is to its attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineRole {
    /// It belongs to a turn.
    InTurn,
    /// A result, which decides unless another turn follows.
    Result,
    /// It follows a result and begins no turn: the contract ignores it.
    Trailing,
}

/// The turns of one attempt. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct TurnTracker {
    /// The process was given one prompt: only a background task lets another turn follow a result.
    one_prompt: bool,
    /// A task was started that may outlive its turn.
    has_background_task: bool,
    /// No turn follows any more.
    is_closed: bool,
    /// A turn has begun since the last result.
    in_turn: bool,
    inits: u32,
    results: u32,
    /// Tasks that have not reported back.
    tasks: Arc<HashSet<Box<str>>>,
}

impl TurnTracker {
    /// The turns of a process that is given one prompt and nothing more.
    pub fn for_one_prompt() -> Self {
        Self { one_prompt: true, ..Self::default() }
    }

    /// Takes in the next line.
    pub fn push(&mut self, line: &AgentLine<'_>) -> LineRole {
        if self.is_closed {
            return LineRole::Trailing;
        }
        match &line.body {
            LineBody::Init(_) => {
                // A stream whose beginning is missing has more results than turns.
                self.inits = self.inits.max(self.results) + 1;
                self.in_turn = true;
                LineRole::InTurn
            }
            LineBody::Result(_) if self.is_settled() => LineRole::Trailing,
            LineBody::Result(_) => {
                self.results += 1;
                self.in_turn = false;
                self.is_closed = self.one_prompt && self.is_settled();
                LineRole::Result
            }
            LineBody::System(SystemLine::Task { subtype, task_id, backgrounded, .. }) => {
                self.record_task(subtype, task_id.as_deref(), *backgrounded);
                LineRole::InTurn
            }
            // Agents in the background go on between turns.
            _ if self.is_settled() && line.parent_tool_use_id.is_none() => LineRole::Trailing,
            _ => LineRole::InTurn,
        }
    }

    /// True once nothing can follow the result any more.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// True while a turn runs: the results so far say nothing about it.
    pub fn is_in_turn(&self) -> bool {
        self.in_turn
    }

    /// True after a result, while no task is left that would start another turn.
    pub fn is_complete(&self) -> bool {
        self.results > 0 && !self.in_turn && self.tasks.is_empty()
    }

    /// Every turn has its result, and no task is known that could start another.
    fn is_settled(&self) -> bool {
        self.results > 0 && self.results >= self.inits && !self.has_background_task
    }

    fn record_task(&mut self, subtype: &str, id: Option<&str>, backgrounded: Option<bool>) {
        match subtype {
            // Releases that do not say so start them in the background, too.
            "task_started" if backgrounded != Some(false) => {
                self.has_background_task = true;
                if let Some(id) = id {
                    Arc::make_mut(&mut self.tasks).insert(id.into());
                }
            }
            "task_notification" => {
                if let Some(id) = id.filter(|id| self.tasks.contains(*id)) {
                    Arc::make_mut(&mut self.tasks).remove(id);
                }
            }
            _ => {}
        }
    }
}
