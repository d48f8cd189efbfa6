//! What an agent runs apart from the turn of its model: commands in the background, sub-agents and workflows.

use std::sync::Arc;

use crate::tape::{Millis, Seq};

/// A task of an agent, as its `task_*` lines report it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentTask {
    pub id: Arc<str>,
    /// The call that started it.
    pub call: Option<Arc<str>>,
    /// `command`, `subagent`, `workflow`, or the agent's own name of another kind.
    pub kind: Arc<str>,
    pub title: Arc<str>,
    pub state: TaskState,
    pub started_at: Millis,
    pub ended_at: Option<Millis>,
    /// What came of it.
    pub summary: Option<Arc<str>>,
    pub tokens: Option<u64>,
    /// Whether its call does not wait for it; `None` while that is unknown.
    pub is_background: Option<bool>,
    /// Row of its call, or its own.
    pub row: Option<usize>,
    /// The agents of a workflow, in the order in which they appeared.
    pub agents: Vec<WorkflowAgent>,
    /// Numbers of the phases of a workflow that have a row.
    pub(in crate::run) phases: Vec<u64>,
    /// The row of the further elements of a workflow, and the last entry that lists them.
    pub(in crate::run) further: Option<(usize, Seq)>,
}

/// Elements of a workflow that have a row each. Rows name their element by its index in the line, and the row of the
/// further elements has this number.
pub const MAX_WORKFLOW_ROWS: u8 = u8::MAX;

/// State of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    Running,
    Completed,
    Failed,
    /// A person, the model or the end of the session stopped it.
    Stopped,
}

/// An agent of a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkflowAgent {
    pub(in crate::run) index: u64,
    pub(in crate::run) row: Option<usize>,
    pub is_over: bool,
}

impl TaskState {
    /// The end that a line reports with this word; `None` for a task that continues.
    pub(in crate::run) fn from_end(status: &str) -> Option<Self> {
        Some(match status {
            "completed" => Self::Completed,
            "failed" => Self::Failed,
            "stopped" | "killed" => Self::Stopped,
            _ => return None,
        })
    }

    /// Its text on the screen and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        }
    }
}

impl AgentTask {
    /// True if it runs apart from its call.
    pub(crate) fn is_in_background(&self) -> bool {
        self.is_background == Some(true)
    }

    /// Its agents that have ended, and all of them, if it is a workflow with agents: `3/12 agents`.
    pub fn agent_counts(&self) -> Option<String> {
        let ended = self.agents.iter().filter(|agent| agent.is_over).count();
        (!self.agents.is_empty()).then(|| format!("{ended}/{} agents", self.agents.len()))
    }
}
