//! Which call started the rows of a sub-agent: in the stream of a session by the call that its lines name, in a session
//! file by the agent that the result of the call names.

use std::{collections::BTreeMap, sync::Arc};

use super::{AttemptId, StreamRow};
use crate::tape::Seq;

/// Maximum number of agents of session files whose calls are kept.
const MAX_AGENTS: usize = 10_000;

/// The calls that started sub-agents. It only grows.
#[derive(Clone, Debug, Default)]
pub struct SubAgentCalls {
    /// Entries with rows of a sub-agent, mapped to the index of the row of its call in the same attempt.
    entries: BTreeMap<u32, u32>,
    /// By agent: the attempt and row of its call, and the entry of the result.
    results: BTreeMap<Arc<str>, (AttemptId, usize, Seq)>,
    /// The agents of attempts.
    agents: BTreeMap<u32, Arc<str>>,
    /// True if some attempt is the work of a sub-agent.
    pub(in crate::run) has_attempts: bool,
}

impl SubAgentCalls {
    /// The rows of an entry belong to a sub-agent that the call in this row started.
    pub(in crate::run) fn add_entry(&mut self, entry: Seq, call_row: usize) {
        if let (Ok(entry), Ok(row)) = (u32::try_from(entry.0), u32::try_from(call_row)) {
            self.entries.insert(entry, row);
        }
    }

    /// The result of a call names the agent that it started.
    pub(in crate::run) fn add_result(
        &mut self,
        agent: &str,
        (attempt, call_row): (AttemptId, usize),
        result: Seq,
    ) {
        if self.results.len() < MAX_AGENTS && !self.results.contains_key(agent) {
            self.results
                .insert(agent.into(), (attempt, call_row, result));
        }
    }

    /// An attempt is the work of this agent.
    pub(in crate::run) fn add_agent(&mut self, attempt: AttemptId, agent: &str) {
        if self.agents.len() < MAX_AGENTS {
            self.agents.insert(attempt.0, agent.into());
        }
    }

    /// The index of the row of the call, for a row of a sub-agent in the stream of a session.
    pub fn call_of_row(&self, row: &StreamRow) -> Option<usize> {
        if row.depth == 0 || self.entries.is_empty() {
            return None;
        }
        let entry = u32::try_from(row.first().0).ok()?;
        let call = *self.entries.get(&entry)?;
        usize::try_from(call).ok()
    }

    /// The attempt and the row of the call that started the agent of an attempt, at the moment after `entries` entries.
    pub fn call_of_attempt(&self, attempt: AttemptId, entries: u64) -> Option<(AttemptId, usize)> {
        let (caller, row, result) = self.results.get(self.agents.get(&attempt.0)?)?;
        (result.0 < entries).then_some((*caller, *row))
    }
}
