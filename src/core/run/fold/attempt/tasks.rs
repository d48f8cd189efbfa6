//! The tasks of an attempt: which run in the background, their rows, and their ends.
//!
//! The call that starts a task ends with its own result, which only names the task. Its row stays open until the task
//! ends. The agents of a workflow have rows below it. This module must not count tasks as calls.

use std::sync::Arc;

use super::{AttemptFold, CallChange, CallOutcome};
use crate::{
    decode::line::{TaskLine, WorkflowItem},
    run::{
        EntryRef,
        fold::{SinkEvent, TaskChange},
        state::{
            AgentTask, MAX_WORKFLOW_ROWS, RowKind, RowOutcome, RunView, StreamRow, TaskState,
            WorkflowAgent,
        },
    },
    tape::{Millis, Seq},
    text::one_row,
};

/// Maximum number of tasks of an attempt, and of agents of a workflow, that are kept.
const MAX_TASKS: usize = 1_000;
/// Maximum length of a name or title in characters, and of the text about its end.
const MAX_TITLE_CHARS: usize = 200;
const MAX_SUMMARY_CHARS: usize = 1_000;

impl AttemptFold {
    /// Reads a line about a task.
    pub(super) fn task(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        line: &TaskLine<'_>,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        let Some(id) = line.task_id.as_deref().filter(|_| !line.ambient) else {
            return;
        };
        if line.subtype == "task_started" {
            return self.start_task(view, entry, id, line, emit);
        }
        let Some(place) = self.running_task(view, id) else {
            return;
        };
        self.workflow_items(view, entry, place, line, emit);
        let task = self.task_mut(view, place);
        task.tokens = line.tokens.or(task.tokens);
        if line.backgrounded == Some(true) && !task.is_in_background() {
            self.detach(view, entry, place, emit);
        }
        // Another line with the summary follows a changed status.
        if line.subtype == "task_notification" {
            let status = line.status.as_deref().and_then(TaskState::from_end);
            let summary = line.summary.as_deref();
            self.end_task(
                view,
                entry,
                place,
                (status.unwrap_or(TaskState::Completed), summary),
                emit,
            );
        }
    }

    /// Calls have results. A task that still runs then runs in the background, also if its release does not report that.
    pub(super) fn detach_tasks(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        calls: &[CallChange<'_>],
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        for change in calls {
            if let CallChange::Ended {
                result,
                end: CallOutcome::Ok,
                ..
            } = change
                && let Some(place) = self.task_of_call(view, &result.tool_use_id)
            {
                let task = self.task_mut(view, place);
                if task.state == TaskState::Running && task.is_background.is_none() {
                    self.detach(view, entry, place, emit);
                }
            }
        }
    }

    /// The call whose row is removed has a result. Closes its row, unless its task runs on in the background.
    pub(super) fn close_row_of_call(
        &self,
        view: &mut RunView,
        (row, seq): (usize, Seq),
        call: &str,
        end: CallOutcome,
    ) {
        let place = self.task_of_call(view, call);
        let state = place
            .map(|place| self.task_mut(view, place))
            .filter(|task| task.is_in_background() && end == CallOutcome::Ok)
            .map(|task| task.state);
        let end = match state {
            Some(TaskState::Running) => {
                let rows = &view.attempts[self.id.0 as usize].rows;
                if let (Some(row), Ok(seq)) = (rows.get(row), u32::try_from(seq.0))
                    && let Ok(first) = u32::try_from(row.first().0)
                {
                    view.background_results.insert((first, row.block), seq);
                }
                return;
            }
            Some(state) => row_end(state),
            None => end.into(),
        };
        self.close_row(view, row, seq, end);
    }

    /// Closes the rows of the tasks that still run when the attempt ends.
    pub(super) fn abandon_tasks(&mut self, view: &mut RunView, seq: Seq) {
        let count = self
            .attempt(view)
            .live
            .tasks
            .as_ref()
            .map_or(0, |tasks| tasks.len());
        for place in 0..count {
            if self.task_mut(view, place).state == TaskState::Running {
                self.task_mut(view, place).ended_at = Some(view.state.last_entry_at);
                self.close_task(view, seq, place, TaskState::Stopped);
            }
        }
    }

    /// The rows of an entry belong to a sub-agent that this call started.
    pub(super) fn link_to_call(&self, view: &mut RunView, entry: Seq, call: &str) {
        let row = self.call_rows.get(call).copied();
        // The call of a sub-agent in the background has its result already.
        let task = || {
            let place = self.task_of_call(view, call)?;
            self.task_mut(view, place).row
        };
        if let Some(row) = row.or_else(task) {
            view.sub_agents.add_entry(entry, row);
        }
    }

    /// The newest task that the call started.
    fn task_of_call(&self, view: &mut RunView, call: &str) -> Option<usize> {
        let tasks = self.attempt(view).live.tasks.as_deref()?;
        tasks
            .iter()
            .rposition(|task| task.call.as_deref() == Some(call))
    }

    fn running_task(&self, view: &mut RunView, id: &str) -> Option<usize> {
        let tasks = self.attempt(view).live.tasks.as_deref()?;
        tasks
            .iter()
            .rposition(|task| *task.id == *id && task.state == TaskState::Running)
    }

    fn task_mut<'v>(&self, view: &'v mut RunView, place: usize) -> &'v mut AgentTask {
        let tasks = self.attempt(view).live.tasks.get_or_insert_default();
        &mut Arc::make_mut(tasks)[place]
    }

    fn start_task(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        id: &str,
        line: &TaskLine<'_>,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        let known = self
            .attempt(view)
            .live
            .tasks
            .as_ref()
            .map_or(0, |tasks| tasks.len());
        if known >= MAX_TASKS || self.running_task(view, id).is_some() {
            return;
        }
        let short = |text: &str| Arc::<str>::from(one_row(text, MAX_TITLE_CHARS));
        let kind = match line.task_type.as_deref() {
            Some("local_bash") => "command",
            Some("local_agent") | None => "subagent",
            Some("local_workflow") => "workflow",
            Some(other) => other,
        };
        let is_background = line.backgrounded.or((kind == "workflow").then_some(true));
        let call_row = line
            .tool_use_id
            .as_deref()
            .and_then(|call| self.call_rows.get(call).copied());
        let row = match call_row {
            Some(row) => Some(row),
            None if is_background == Some(false) => None,
            None => Some(self.push_row(
                view,
                StreamRow::new(entry.seq, 0, RowKind::Task, RowOutcome::Open, 0),
            )),
        };
        let title = line.workflow_name.as_ref().or(line.description.as_ref());
        let task = AgentTask {
            id: short(id),
            call: line.tool_use_id.as_deref().map(Arc::from),
            kind: short(kind),
            title: short(title.map_or(id, AsRef::as_ref)),
            state: TaskState::Running,
            started_at: entry.at,
            ended_at: None,
            summary: None,
            tokens: None,
            is_background: is_background.filter(|is_background| !is_background),
            row,
            agents: Vec::new(),
            phases: Vec::new(),
            further: None,
        };
        let tasks = self.attempt(view).live.tasks.get_or_insert_default();
        Arc::make_mut(tasks).push(task);
        if is_background == Some(true) {
            self.detach(view, entry, known, emit);
        }
    }

    /// Reports that a task runs in the background.
    fn detach(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        place: usize,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        self.task_mut(view, place).is_background = Some(true);
        self.emit_task(view, entry, place, TaskChange::Started, emit);
    }

    fn end_task(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        place: usize,
        (state, summary): (TaskState, Option<&str>),
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        let task = self.task_mut(view, place);
        task.ended_at = Some(entry.at);
        task.summary = summary.map(|summary| one_row(summary, MAX_SUMMARY_CHARS).into());
        let is_in_background = task.is_in_background();
        self.close_task(view, entry.seq, place, state);
        if is_in_background {
            self.emit_task(view, entry, place, TaskChange::Ended, emit);
        }
    }

    /// Closes the rows of a task, unless the result of its call closes them.
    fn close_task(&mut self, view: &mut RunView, seq: Seq, place: usize, state: TaskState) {
        let task = self.task_mut(view, place);
        task.state = state;
        let call = task.call.clone();
        let row = task.row.filter(|_| task.is_in_background());
        let mut open = Vec::new();
        for agent in task.agents.iter_mut().filter(|agent| !agent.is_over) {
            agent.is_over = true;
            open.extend(agent.row);
        }
        let further = task.further;
        for row in open {
            self.close_row(view, row, seq, RowOutcome::Aborted);
        }
        if let Some((row, last)) = further {
            self.close_row(view, row, last, row_end(state));
        }
        let waits_for_result = call.is_some_and(|call| self.call_rows.contains_key(&*call));
        if let Some(row) = row.filter(|_| !waits_for_result) {
            self.close_row(view, row, seq, row_end(state));
        }
    }

    /// Reads the phases and agents of a workflow. A line repeats all of them.
    fn workflow_items(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        place: usize,
        line: &TaskLine<'_>,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        if let Some(row) = self.task_mut(view, place).row {
            view.sub_agents.add_entry(entry.seq, row);
        }
        for (index, item) in line.workflow_items().enumerate().take(2 * MAX_TASKS) {
            let Some(item) = item else {
                continue;
            };
            let block = u8::try_from(index).ok();
            let block = block.filter(|block| *block < MAX_WORKFLOW_ROWS);
            if block.is_none() {
                self.further_items(view, entry.seq, place);
            }
            if item.is_agent {
                self.workflow_agent(view, entry, place, (&item, block), emit);
            } else if !self.task_mut(view, place).phases.contains(&item.index) {
                self.task_mut(view, place).phases.push(item.index);
                if let Some(block) = block {
                    let row = StreamRow::new(entry.seq, block, RowKind::Notice, RowOutcome::Ok, 1);
                    self.push_row(view, row);
                }
            }
        }
    }

    /// A line lists elements without a row.
    fn further_items(&mut self, view: &mut RunView, seq: Seq, place: usize) {
        let row = match self.task_mut(view, place).further {
            Some((row, _)) => row,
            None => self.push_row(
                view,
                StreamRow::new(seq, MAX_WORKFLOW_ROWS, RowKind::Task, RowOutcome::Open, 2),
            ),
        };
        self.task_mut(view, place).further = Some((row, seq));
    }

    fn workflow_agent(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        place: usize,
        (item, block): (&WorkflowItem<'_>, Option<u8>),
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        let outcome = item.outcome();
        let agents = &self.task_mut(view, place).agents;
        let known = agents.iter().rposition(|agent| agent.index == item.index);
        let place_of_agent = match known {
            // An agent that failed may be started again.
            Some(known) if !agents[known].is_over || outcome.is_some() => known,
            _ if agents.len() >= MAX_TASKS => return,
            _ => {
                let row = block.map(|block| {
                    self.push_row(
                        view,
                        StreamRow::new(entry.seq, block, RowKind::Task, RowOutcome::Open, 2),
                    )
                });
                let agents = &mut self.task_mut(view, place).agents;
                agents.push(WorkflowAgent {
                    index: item.index,
                    row,
                    is_over: false,
                });
                agents.len() - 1
            }
        };
        let agent = &mut self.task_mut(view, place).agents[place_of_agent];
        let (Some(is_ok), false) = (outcome, agent.is_over) else {
            return;
        };
        agent.is_over = true;
        if let Some(row) = agent.row {
            let end = if is_ok {
                RowOutcome::Ok
            } else {
                RowOutcome::Failed
            };
            self.close_row(view, row, entry.seq, end);
        }
        self.emit_task(view, entry, place, TaskChange::AgentEnded(item), emit);
    }

    fn emit_task(
        &self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        place: usize,
        change: TaskChange<'_>,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        if !self.translator.is_complete() && !self.is_unidentified {
            emit(SinkEvent::Task {
                at: entry.at,
                unit: &self.key,
                attempt: self.number,
                task: self.task_mut(view, place),
                change,
            });
        }
    }
}

/// Reports the tasks that still run in the background when the session ends.
pub(super) fn emit_abandoned(
    tasks: Option<&Vec<AgentTask>>,
    (at, unit, attempt): (Millis, &str, u32),
    emit: &mut dyn FnMut(SinkEvent<'_>),
) {
    let running = |task: &&AgentTask| task.state == TaskState::Running && task.is_in_background();
    for task in tasks.into_iter().flatten().filter(running) {
        let task = AgentTask {
            state: TaskState::Stopped,
            ended_at: Some(at),
            summary: Some("the session ended first".into()),
            ..task.clone()
        };
        emit(SinkEvent::Task {
            at,
            unit,
            attempt,
            task: &task,
            change: TaskChange::Ended,
        });
    }
}

fn row_end(state: TaskState) -> RowOutcome {
    match state {
        TaskState::Running | TaskState::Completed => RowOutcome::Ok,
        TaskState::Failed => RowOutcome::Failed,
        TaskState::Stopped => RowOutcome::Aborted,
    }
}
