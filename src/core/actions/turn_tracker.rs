//! Decides which result of an attempt counts, and which lines belong to the attempt.
//!
//! One process may have several turns: a background task starts another one when it reports back, and a conversation
//! has one for each message. Every turn begins with `system/init` and ends with a result; the last result counts. This
//! module must not interpret the result.

use std::{collections::HashSet, sync::Arc};

use crate::decode::{AgentLine, LineBody, line::SystemLine};

/// The role of a line in its attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineRole {
    /// It belongs to a turn.
    InTurn,
    /// A result, which counts unless another turn follows.
    Result,
    /// It follows a result and does not begin a turn: the contract ignores it.
    Trailing,
}

/// The turns of one attempt. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct TurnTracker {
    /// The process has one prompt: another turn follows a result only after a background task.
    one_prompt: bool,
    /// A task was started that may outlive its turn.
    has_background_task: bool,
    /// No other turn follows.
    is_closed: bool,
    /// A turn has begun since the last result.
    in_turn: bool,
    inits: u32,
    results: u32,
    /// Ids of tasks that have not reported back.
    tasks: Arc<HashSet<Box<str>>>,
}

impl TurnTracker {
    /// The turns of a process that receives exactly one prompt.
    pub fn for_one_prompt() -> Self {
        Self {
            one_prompt: true,
            ..Self::default()
        }
    }

    /// Processes the next line.
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
            LineBody::System(SystemLine::Task(task)) => {
                self.record_task(&task.subtype, task.task_id.as_deref(), task.backgrounded);
                LineRole::InTurn
            }
            // Background agents continue between turns.
            _ if self.is_settled() && line.parent_tool_use_id.is_none() => LineRole::Trailing,
            _ => LineRole::InTurn,
        }
    }

    /// True if no line can follow the result.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// True while a turn runs: earlier results do not apply to it.
    pub(crate) fn is_in_turn(&self) -> bool {
        self.in_turn
    }

    /// True after a result, if no remaining task could start another turn.
    pub fn is_complete(&self) -> bool {
        self.results > 0 && !self.in_turn && self.tasks.is_empty()
    }

    /// True if every turn has its result, and no known task could start another turn.
    fn is_settled(&self) -> bool {
        self.results > 0 && self.results >= self.inits && !self.has_background_task
    }

    fn record_task(&mut self, subtype: &str, id: Option<&str>, backgrounded: Option<bool>) {
        match subtype {
            // Releases without this field also start tasks in the background.
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
