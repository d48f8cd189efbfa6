//! Which result of an attempt decides, and which lines belong to the attempt.
//!
//! One process may take several turns: a task in the background starts another one when it reports back, and a
//! conversation has one for each message. Every turn begins with `system/init` and ends with a result; the last result
//! decides. It must not judge what a result means.

use std::{collections::HashSet, sync::Arc};

use crate::decode::{Body, Line, line::System};

/// What a line is to its attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It belongs to a turn.
    Content,
    /// A result, which decides unless another turn follows.
    Result,
    /// It follows a result and begins no turn: the contract ignores it.
    Trailing,
}

/// The turns of one attempt. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    /// The process was given one prompt: only a background task lets another turn follow a result.
    one_prompt: bool,
    /// A task was started that may outlive its turn.
    background: bool,
    /// No turn follows any more.
    closed: bool,
    /// A turn has begun since the last result.
    underway: bool,
    inits: u32,
    results: u32,
    /// Tasks that have not reported back.
    tasks: Arc<HashSet<Box<str>>>,
}

impl Turns {
    /// The turns of a process that is given one prompt and nothing more.
    pub fn of_one_prompt() -> Self {
        Self { one_prompt: true, ..Self::default() }
    }

    /// Takes in the next line.
    pub fn push(&mut self, line: &Line<'_>) -> Part {
        if self.closed {
            return Part::Trailing;
        }
        match &line.body {
            Body::Init(_) => {
                // A stream whose beginning is missing has more results than turns.
                self.inits = self.inits.max(self.results) + 1;
                self.underway = true;
                Part::Content
            }
            Body::Result(_) if self.is_at_rest() => Part::Trailing,
            Body::Result(_) => {
                self.results += 1;
                self.underway = false;
                self.closed = self.one_prompt && self.is_at_rest();
                Part::Result
            }
            Body::System(System::Task { subtype, task_id, backgrounded, .. }) => {
                self.task(subtype, task_id.as_deref(), *backgrounded);
                Part::Content
            }
            // Agents in the background go on between turns.
            _ if self.is_at_rest() && line.parent_tool_use_id.is_none() => Part::Trailing,
            _ => Part::Content,
        }
    }

    /// True once nothing can follow the result any more.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// True while a turn runs: the results so far say nothing about it.
    pub fn is_underway(&self) -> bool {
        self.underway
    }

    /// True after a result, while no task is left that would start another turn.
    pub fn is_complete(&self) -> bool {
        self.results > 0 && !self.underway && self.tasks.is_empty()
    }

    /// Every turn has its result, and no task is known that could start another.
    fn is_at_rest(&self) -> bool {
        self.results > 0 && self.results >= self.inits && !self.background
    }

    fn task(&mut self, subtype: &str, id: Option<&str>, backgrounded: Option<bool>) {
        match subtype {
            // Releases that do not say so start them in the background, too.
            "task_started" if backgrounded != Some(false) => {
                self.background = true;
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
