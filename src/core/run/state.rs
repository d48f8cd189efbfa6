//! The state of a run at one moment, from which every screen, line, report and summary is made.
//!
//! [`RunState`] contains counts and facts and is cheap to clone for checkpoints. [`RunView`] adds the rows of every
//! attempt, which only grow; an earlier moment shows the same rows up to a cutoff. Bodies are not copied: a row
//! contains positions, and the caller reads the entry again to display it.

mod isolation;
mod publication;
mod sub_agents;
mod tasks;
mod token_counts;
mod workers;

use std::{collections::BTreeMap, num::NonZeroU32, sync::Arc};

use serde::{Deserialize, Serialize};

pub use isolation::RecordedIsolation;
pub use publication::{PriorPatchIntegration, Publication};
pub use sub_agents::SubAgentCalls;
pub use tasks::{AgentTask, MAX_WORKFLOW_ROWS, TaskState, WorkflowAgent};
pub use token_counts::{ContextUsage, ModelSpending, TokenCounts};
pub use workers::{RunWorkers, WorkerNumber, WorkerState, WorkerWait};

use super::{
    activity_mark::{ActivityMark, ActivityMarks},
    schedule_change::RecordedChange,
    start_rows::StartRows,
};
pub use crate::tape::RECONCILE_KEY;
use crate::{
    tape::{
        Millis, Seq, UnitKey,
        note::{
            Amendment, AttemptOutput, ContentDigests, ContinuedWork, FilesEvicted, PatchResult,
            PatchWritten, PlannedUnit, PriorUnitSummary, RunEnded, RunPlanned, Severity,
            SharedWrite, SourceRead, SourcesProjected, Verdict,
        },
    },
    units::reuse::{BudgetExhaustion, SpentBudget},
};

/// The counts and facts of a run at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunState {
    /// The plan, if the source has one.
    pub planned: Option<Arc<RunPlanned>>,
    pub inputs: RunInputs,
    /// In plan order, then in order of appearance.
    pub units: Vec<UnitState>,
    /// Number of folded entries. The state shows everything before this position.
    pub entries: u64,
    /// Time of the last folded entry.
    pub last_entry_at: Millis,
    /// The displayed moment: the time of the last entry, or a later time without new entries.
    pub clock: Millis,
    /// Number of silent units.
    pub silent: u32,
    /// Counts of entries and lines that could not be used.
    pub loss_counts: LossCounts,
    /// US dollars, over all attempts that reported a cost.
    pub spent_usd: f64,
    pub limits: LimitState,
    pub workers: RunWorkers,
    /// True once the source has ended and its open rows are closed.
    pub is_closed: bool,
    pub publication: Publication,
    /// The end of the run, if the tape contains it.
    pub ended: Option<RunEnded>,
    /// Time between ends of the run and the requests that reopened it.
    pub time_ended: Millis,
}

/// What a run read, and what it did before any unit ran.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunInputs {
    /// The sources as they were when the run read them, one per connection.
    pub sources: Vec<Arc<SourceRead>>,
    /// Deleted files that the run has handled.
    pub evicted: Vec<Arc<FilesEvicted>>,
    /// Semantic-layer sources that were projected before any unit ran.
    pub projected: Vec<Arc<SourcesProjected>>,
    /// Environment variables that reached an agent only because a setting passes them on, sorted.
    pub env_passed: Arc<[Arc<str>]>,
}

/// What limits and people do to a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LimitState {
    /// True after a request to drain or stop the run.
    pub is_stopping: bool,
    /// Who requested that last, such as `root (ctl)`, if it is known.
    pub stopped_by: Option<Box<str>>,
    /// True while a person pauses the run.
    pub is_paused: bool,
    /// Time at which the pause began.
    pub paused_since: Option<Millis>,
    /// The usage window that the service reported last.
    pub usage_window: Option<UsageWindow>,
    /// Set while the whole run waits for a limit.
    pub pause: Option<RunPause>,
    /// Set while the concurrency is lower because a limit is near.
    pub throttling: Option<Throttling>,
}

/// Distinguishes two states of one source: numbers of entries, units, and silent units, and whether its rows are closed.
pub type StateVersion = (u64, usize, u32, bool);

impl RunState {
    /// The unit with this key, if the run has it.
    pub fn unit(&self, key: &UnitKey) -> Option<&UnitState> {
        self.units.iter().find(|unit| unit.key == *key)
    }

    /// The connection of a planned unit.
    pub fn connection_of(&self, unit: &UnitKey) -> Option<&str> {
        let unit = self.units.iter().find(|known| known.key == *unit)?;
        unit.planned
            .as_ref()
            .map(|planned| planned.connection.as_str())
    }

    pub fn version(&self) -> StateVersion {
        (self.entries, self.units.len(), self.silent, self.is_closed)
    }

    /// Results of prior runs for a unit.
    pub fn prior_unit_summary(&self, unit: &UnitKey) -> Option<&PriorUnitSummary> {
        self.planned.as_ref()?.continues.as_ref()?.units.get(unit)
    }
}

/// Counts of lost or unreadable data. All are zero in a healthy run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossCounts {
    /// Stdout lines that are not JSON objects with a type.
    pub malformed: u64,
    /// Lines of an unknown type.
    pub unknown: u64,
    /// Notes of an unknown kind.
    pub unknown_notes: u64,
    /// Lines of the tape that are not entries.
    pub corrupt_entries: u64,
}

/// A usage window as the service reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct UsageWindow {
    /// Name of the window: `five_hour`, …
    pub name: String,
    /// `allowed`, `allowed_warning` or `rejected`.
    pub status: String,
    /// From 0 to 1, if reported.
    pub utilization: Option<f64>,
    /// Unix seconds, if reported.
    pub resets_at: Option<i64>,
    /// The account of the worker whose attempt reported it; `None` for the engine's own machine.
    pub account: Option<Arc<str>>,
}

/// A pause of the whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPause {
    /// End of the pause, if known.
    pub until: Option<Millis>,
    /// Name of the limit as the service reports it.
    pub reason: String,
}

/// A lower concurrency than requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Throttling {
    /// Maximum number of units that run at the same time.
    pub concurrency: u32,
    /// Name of the limit as the service reports it.
    pub reason: String,
}

/// A unit at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct UnitState {
    pub key: UnitKey,
    /// Its part of the plan; `None` for a unit that only appears in a capture.
    pub planned: Option<Arc<PlannedUnit>>,
    pub status: UnitStatus,
    /// Every attempt, oldest first. Attempts are never removed.
    pub attempts: Vec<AttemptState>,
    /// Time of the next automatic attempt.
    pub retry_at: Option<Millis>,
    pub hold_mode: HoldMode,
}

/// Which tool calls of a unit wait for an approval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HoldMode {
    #[default]
    Off,
    EachCall,
    /// Calls run until one meets this condition.
    Until(Arc<str>),
}

impl UnitState {
    pub fn latest(&self) -> Option<&AttemptState> {
        self.attempts.last()
    }

    /// True if each of its tool calls waits for an approval.
    pub fn is_held(&self) -> bool {
        self.hold_mode == HoldMode::EachCall
    }

    /// True if it failed because its patch was rejected.
    pub fn has_conflict(&self) -> bool {
        self.status == UnitStatus::Failed
            && self
                .latest()
                .and_then(|attempt| attempt.delivery.integration)
                .is_some_and(|patch| !patch.keeps_success())
    }

    /// The text of its status, or of its patch if that was rejected.
    pub fn status_text(&self) -> &'static str {
        match (
            self.status,
            self.latest()
                .and_then(|attempt| attempt.delivery.integration),
        ) {
            (UnitStatus::Failed, Some(patch)) if !patch.keeps_success() => patch.label(),
            (status, _) => status.as_str(),
        }
    }

    /// The call that has waited longest for an approval.
    pub fn oldest_held_call(&self) -> Option<&HeldCallState> {
        self.latest()?.held_calls.first()
    }
}

/// What a unit needs next, in the order in which a person should look at units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnitNeed {
    /// It waits for a decision, is silent, or ended without success: nothing happens without a person.
    Person,
    /// An attempt runs, or another one will start automatically.
    Running,
    /// It has not started.
    Next,
    Done,
}

impl UnitNeed {
    /// Its text on the screen.
    pub fn label(self) -> &'static str {
        match self {
            Self::Person => "needs you",
            Self::Running => "running",
            Self::Next => "next",
            Self::Done => "done",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnitStatus {
    Queued,
    /// Planned, but the run ended before the unit started. It starts only on request.
    NotStarted,
    Running,
    /// An attempt runs, and its agent has written nothing for a while although it does not wait for `ingestdeck`.
    Silent,
    /// An attempt runs, and one of its tool calls waits for an approval.
    Held,
    /// An attempt failed, and another one will start automatically.
    Waiting,
    Succeeded,
    /// Succeeded, but its turn or cost budget ran out.
    BudgetExhausted,
    Failed,
    /// A person stopped it.
    Stopped,
    /// Its attempt was running when the tape ended.
    Interrupted,
    /// It succeeded in a prior run with the same inputs.
    Reused,
}

impl UnitStatus {
    /// The texts of all states.
    pub const TEXTS: [&str; 12] = [
        "failed",
        "queued",
        "untried",
        "running",
        "silent",
        "held",
        "waiting",
        "succeeded",
        "budget",
        "stopped",
        "interrupted",
        "reused",
    ];

    /// Its text on screens and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::NotStarted => "untried",
            Self::Running => "running",
            Self::Silent => "silent",
            Self::Held => "held",
            Self::Waiting => "waiting",
            Self::Succeeded => "succeeded",
            Self::BudgetExhausted => "budget",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
            Self::Interrupted => "interrupted",
            Self::Reused => "reused",
        }
    }

    /// The glyph of a status, as on the screen; the status word follows it.
    pub fn glyph(self) -> char {
        match self {
            Self::Queued | Self::NotStarted => '○',
            Self::Running => '▸',
            Self::Silent => '!',
            Self::Held => '‖',
            Self::Waiting => '◐',
            Self::Succeeded => '✓',
            Self::BudgetExhausted => '◆',
            Self::Stopped => '■',
            Self::Interrupted => '◌',
            Self::Failed => '✗',
            Self::Reused => '≡',
        }
    }

    /// True if nothing more happens automatically.
    pub fn is_finished(self) -> bool {
        !(self.is_in_flight() || matches!(self, Self::Queued | Self::Waiting))
    }

    /// True for a unit that should be tried again.
    pub fn needs_retry(self) -> bool {
        !matches!(self, Self::Succeeded | Self::Reused)
    }

    /// True if it ended without success, so that another attempt may help.
    pub fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::Failed | Self::Interrupted | Self::BudgetExhausted | Self::Stopped
        )
    }

    /// What a unit with this status needs next.
    pub fn need(self) -> UnitNeed {
        match self {
            Self::Held
            | Self::Silent
            | Self::Failed
            | Self::Interrupted
            | Self::BudgetExhausted
            | Self::Stopped => UnitNeed::Person,
            Self::Running | Self::Waiting => UnitNeed::Running,
            Self::Queued | Self::NotStarted => UnitNeed::Next,
            Self::Succeeded | Self::Reused => UnitNeed::Done,
        }
    }

    /// Position among the statuses of the same need. Units that occupy a slot until a person acts are first.
    pub fn urgency(self) -> u8 {
        match self {
            Self::Held | Self::Running | Self::Queued | Self::Succeeded | Self::Reused => 0,
            Self::Silent | Self::Waiting | Self::NotStarted => 1,
            Self::Failed | Self::Interrupted => 2,
            Self::BudgetExhausted => 3,
            Self::Stopped => 4,
        }
    }

    /// True while an attempt runs.
    pub fn is_in_flight(self) -> bool {
        matches!(self, Self::Running | Self::Silent | Self::Held)
    }
}

/// One attempt at one moment. An unknown number is `None`, never 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttemptState {
    pub number: u32,
    /// Index of its rows, see [`RunView::attempt_rows`].
    pub id: AttemptId,
    /// Time of the first entry.
    pub started_at: Millis,
    /// Time of the last entry so far.
    pub last_at: Millis,
    /// Time since which the agent has written nothing although it does not wait for `ingestdeck`. `None` while it
    /// waits, and without a child process.
    pub silent_since: Option<Millis>,
    /// Set with the verdict, or with `completed` in captures.
    pub ended_at: Option<Millis>,
    pub setup: AttemptSetup,
    pub counts: AttemptCounts,
    /// `tool: error` of the failed call that decides the verdict, or of the first one while there is no verdict.
    pub deciding_failure: Option<Arc<str>>,
    /// Calls that wait for an approval, oldest first.
    pub held_calls: Vec<HeldCallState>,
    pub live: LiveActivity,
    /// Process id while it runs.
    pub pid: Option<u32>,
    /// Takopi's `completed.ok`, once there is one.
    pub reported_ok: Option<bool>,
    pub verdict: Option<Verdict>,
    pub delivery: AttemptDelivery,
}

/// How an attempt was started, and what its agent reports about itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttemptSetup {
    pub session: Option<Arc<str>>,
    pub model: Option<Arc<str>>,
    /// Release of the agent's program, as the agent announces it.
    pub release: Option<Arc<str>>,
    pub requested_model: Option<Arc<str>>,
    /// How it differs from the planned one, if it does.
    pub basis: Option<Arc<AttemptBasis>>,
    /// Digests of the unit's inputs, if they are recorded.
    pub content: Option<Arc<ContentDigests>>,
    /// The worker that runs it; `None` for the engine's own machine.
    pub worker: Option<WorkerNumber>,
    /// Maximum number of turns.
    pub step_budget: Option<u32>,
    /// The budget that its last result reports as spent.
    pub spent_budget: Option<SpentBudget>,
    pub isolation: RecordedIsolation,
    /// Entry of the `attempt_started` note, if there is one.
    pub start_note: Option<Seq>,
    /// True if a script plays the model.
    pub is_scripted: bool,
    /// Cost and tokens for each model, as the results report them.
    pub model_usage: Option<Arc<Vec<ModelSpending>>>,
    pub cost_report: CostReport,
    /// Milliseconds from the start to the first text, thinking or call of the model; at least 1.
    pub first_output_ms: Option<NonZeroU32>,
}

/// How an attempt differs from the planned one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttemptBasis {
    /// How a person changed it, or the session that it resumes.
    pub amendment: Option<Amendment>,
    /// The effort that it continues.
    pub continued: Option<ContinuedWork>,
}

/// Whose reports contain the cost of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CostReport {
    /// Those of its agent.
    #[default]
    Own,
    /// It is the work of a sub-agent: the next ones of its session.
    Session,
    /// It is the work of a sub-agent, which began before the session reported its total.
    ReportedSession,
}

impl AttemptSetup {
    /// True for a sub-agent of a session: its cost is a part of the session's.
    pub fn is_cost_included(&self) -> bool {
        self.cost_report != CostReport::Own
    }

    /// Cost and tokens for each model; empty until a result reports them.
    pub fn models(&self) -> &[ModelSpending] {
        self.model_usage.as_deref().map_or(&[], Vec::as_slice)
    }

    /// How a person changed it, or the session that it resumes.
    pub fn amendment(&self) -> Option<&Amendment> {
        self.basis.as_ref()?.amendment.as_ref()
    }

    /// The effort of earlier attempts that it continues.
    pub fn continued(&self) -> Option<&ContinuedWork> {
        self.basis.as_ref()?.continued.as_ref()
    }

    /// The model that answered, else the requested model.
    pub fn model_name(&self) -> Option<&str> {
        self.model.as_deref().or(self.requested_model.as_deref())
    }
}

/// The accounting of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AttemptCounts {
    /// API messages of the main loop, by distinct id.
    pub turns: u32,
    pub calls: u32,
    /// Calls without a result so far.
    pub open_calls: u32,
    /// Failed calls, each counted once.
    pub failures: u32,
    /// Denied calls, each counted once.
    pub denials: u32,
    /// Calls among `denials` that a person denied; these are not failures.
    pub refused_by_person: u32,
    /// Calls that their tool declined without an error, each counted once.
    pub declined: u32,
    /// Messages of a person that the agent received.
    pub messages_sent: u32,
    /// US dollars, once the agent reported the cost.
    pub cost_usd: Option<f64>,
    /// `cost_usd` with an estimate of the messages that no report covers; `None` if there are none, or if the price of
    /// one is unknown.
    pub estimated_usd: Option<f64>,
    pub tokens: TokenCounts,
    pub context: ContextUsage,
}

/// What the agent does at the moment: what the model is writing (partial messages) or that nothing is written, and the
/// tasks that it has started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveActivity {
    /// The end of its text, at most 2 KiB.
    pub text: String,
    /// The end of its thinking, at most 2 KiB.
    pub thinking: String,
    /// True while the attempt is silent.
    pub is_silent: bool,
    /// Every task so far, in the order in which they started.
    pub tasks: Option<Arc<Vec<AgentTask>>>,
}

impl LiveActivity {
    /// The tasks in the background, in the order in which they started.
    pub fn background_tasks(&self) -> impl Iterator<Item = &AgentTask> {
        let tasks = self.tasks.iter().flat_map(|tasks| tasks.iter());
        tasks.filter(|task| task.is_in_background())
    }
}

/// An attempt that a person requested and that has not started: the one after the attempt that this belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedAttempt {
    Plain,
    /// The model receives feedback.
    WithFeedback,
}

/// What an attempt produced, whether it reached the project, and the attempt that follows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttemptDelivery {
    /// Files that it published to the project.
    pub published: Vec<String>,
    pub patch: Option<Arc<PatchWritten>>,
    /// Result of integrating the patch.
    pub integration: Option<PatchResult>,
    /// Files of the patch that units integrated before it also wrote.
    pub shared_writes: Arc<[SharedWrite]>,
    /// True once the whole patch is in the project.
    pub is_saved: bool,
    /// The output that was recorded with its verdict.
    pub output: Option<Arc<AttemptOutput>>,
    /// The next attempt, from its request until its start.
    pub next: Option<RequestedAttempt>,
}

impl AttemptState {
    /// The budget that it spent, by its result and its plan.
    pub fn budget_exhaustion(&self) -> BudgetExhaustion {
        let AttemptSetup {
            step_budget,
            spent_budget,
            ..
        } = self.setup;
        BudgetExhaustion {
            turns: self.counts.turns,
            allowed: step_budget,
            reported: spent_budget,
        }
    }

    /// The text of the retry that waits, for example `retry 2 waits, with feedback`; `None` if none was requested.
    pub fn requested_retry(&self) -> Option<String> {
        let feedback = match self.delivery.next? {
            RequestedAttempt::Plain => "",
            RequestedAttempt::WithFeedback => ", with feedback",
        };
        let number = self.number.saturating_add(1);
        Some(format!("retry {number} waits{feedback}"))
    }

    /// Clears the partial text: the message is complete, or will not be completed.
    pub(super) fn clear_live_text(&mut self) {
        self.live.text.clear();
        self.live.thinking.clear();
    }
}

impl AttemptDelivery {
    /// True if the patch is not in the project.
    pub fn is_unsaved(&self) -> bool {
        !self.is_saved && self.patch_path().is_some()
    }

    /// True if what the attempt wrote is as it was before.
    pub fn is_unchanged(&self) -> bool {
        self.patch
            .as_ref()
            .is_some_and(|patch| patch.path.is_none())
            || self.integration == Some(PatchResult::Noop)
    }

    /// Path of the patch file; `None` also if the attempt changed nothing.
    pub fn patch_path(&self) -> Option<&str> {
        self.patch.as_ref()?.path.as_deref()
    }
}

/// A tool call that waits for an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldCallState {
    /// Time at which the wait began.
    pub since: Millis,
    /// Tool name without the prefix of its server.
    pub tool: Arc<str>,
    /// Id of the call, if known.
    pub tool_use_id: Option<Arc<str>>,
    /// Its arguments as JSON on one line.
    pub input: Arc<str>,
    /// The condition that it met, if the unit ran until one.
    pub reached: Option<Arc<str>>,
}

/// Index of an attempt's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AttemptId(pub u32);

/// One visible line of an attempt: a message or an action together with its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRow {
    /// Entry with which the row begins.
    first: u32,
    /// Entry with which the row ends; `u32::MAX` while it is open.
    last: u32,
    /// Index of the block in the line of `first`. For the end of a session, 1 where [`StreamRow::is_redundant`].
    pub block: u8,
    pub kind: RowKind,
    end: RowOutcome,
    /// 1 for rows of a sub-agent, else 0.
    pub depth: u8,
}

const OPEN_ENTRY: u32 = u32::MAX;

impl StreamRow {
    /// Creates a row that ends with its first entry, unless it is a call.
    pub fn new(first: Seq, block: u8, kind: RowKind, end: RowOutcome, depth: u8) -> Self {
        let first = u32::try_from(first.0).unwrap_or(OPEN_ENTRY - 1);
        let last = if end == RowOutcome::Open {
            OPEN_ENTRY
        } else {
            first
        };
        Self {
            first,
            last,
            block,
            kind,
            end,
            depth,
        }
    }

    /// True for the end of a session that contains nothing beyond the rows above it.
    pub fn is_redundant(&self) -> bool {
        self.kind == RowKind::Completed && self.block > 0
    }

    /// True for the end of a session whose failure is already marked on a row above it.
    pub fn is_already_marked(&self) -> bool {
        self.kind == RowKind::Completed && self.block > 1
    }

    /// The entry with which it begins.
    pub fn first(&self) -> Seq {
        Seq(u64::from(self.first))
    }

    /// The entry with which it ended, at the moment after `entries` entries.
    pub fn last(&self, entries: u64) -> Option<Seq> {
        (self.last != OPEN_ENTRY && u64::from(self.last) < entries)
            .then(|| Seq(u64::from(self.last)))
    }

    /// How it ended, at the moment after `entries` entries.
    pub fn end(&self, entries: u64) -> RowOutcome {
        if u64::from(self.last) < entries {
            self.end
        } else {
            RowOutcome::Open
        }
    }

    /// Ends an open row. An existing end is kept.
    pub fn close(&mut self, last: Seq, end: RowOutcome) {
        if self.last == OPEN_ENTRY {
            self.last = u32::try_from(last.0).unwrap_or(OPEN_ENTRY - 1);
            self.end = end;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowKind {
    /// A tool call with its result.
    Tool,
    /// Text of the model.
    Text,
    /// Thinking of the model.
    Thinking,
    /// What a person wrote to the agent, or the agent that started this one.
    Prompt,
    Denial,
    /// A task in the background without a call, or an agent of a workflow.
    Task,
    /// A line that is not JSON, an unknown line, or stderr output.
    Warning,
    /// An API retry, a fallback, a compaction, a report of a background task, a notice, or a usage window.
    Notice,
    Started,
    Completed,
    Note,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowOutcome {
    Open,
    /// It succeeded, or it cannot fail.
    Ok,
    Failed,
    /// A rule or a person denied it.
    Denied,
    /// The tool declined the call, which is not a failure.
    Declined,
    /// The attempt was ended before the result, the budget ran out, or the tape ends.
    Aborted,
}

/// Appends to a list that may become very long, and limits its spare capacity to a quarter.
pub(super) fn push_compact<T>(list: &mut Vec<T>, item: T) {
    if list.len() == list.capacity() {
        list.reserve_exact((list.len() / 4).max(1));
    }
    list.push(item);
}

/// Rows and entries of one attempt. Both only grow.
#[derive(Clone, Debug, Default)]
pub struct AttemptRows {
    /// In the order of their first entries.
    pub rows: Vec<StreamRow>,
    /// Every entry of the attempt, for the raw transcript.
    pub entries: Vec<u32>,
}

impl AttemptRows {
    /// Rows that began before the moment after `entries` entries.
    pub(crate) fn rows_at(&self, entries: u64) -> &[StreamRow] {
        let is_before = |row: &StreamRow| u64::from(row.first) < entries;
        // Usually these are all rows, which the last one shows.
        if self.rows.last().is_none_or(is_before) {
            return &self.rows;
        }
        &self.rows[..self.rows.partition_point(is_before)]
    }

    /// Entries of the attempt at the moment after `entries` entries.
    pub(crate) fn entries_at(&self, entries: u64) -> &[u32] {
        let end = self
            .entries
            .partition_point(|seq| u64::from(*seq) < entries);
        &self.entries[..end]
    }
}

/// A message in the run's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogMessage {
    /// Entry that it comes from.
    pub seq: Seq,
    pub at: Millis,
    pub level: Severity,
    pub unit: Option<UnitKey>,
    pub text: String,
}

/// The effects of the last folded entry that the activity index records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastEntryEffects {
    /// Attempt that it belongs to; `None` for entries of the run itself.
    pub attempt: Option<AttemptId>,
    /// Time for which that attempt had written nothing.
    pub silence: Millis,
    /// True if a row began.
    pub row_began: bool,
    pub marks: ActivityMarks,
}

impl LastEntryEffects {
    /// Adds the mark for the end of a row.
    pub(crate) fn add_row_end(&mut self, end: RowOutcome) {
        match end {
            RowOutcome::Failed => self.marks.add(ActivityMark::Failure),
            RowOutcome::Denied => self.marks.add(ActivityMark::Denial),
            RowOutcome::Open | RowOutcome::Ok | RowOutcome::Declined | RowOutcome::Aborted => {}
        }
    }
}

/// The state at a moment, and the rows up to it.
#[derive(Clone, Debug, Default)]
pub struct RunView {
    pub state: RunState,
    pub last_change: LastEntryEffects,
    pub attempts: Vec<AttemptRows>,
    /// The run's log. It only grows.
    pub messages: Vec<LogMessage>,
    /// Calls that ran with arguments edited by a person: entry and block of the call, mapped to the entry with the
    /// arguments. It only grows.
    pub argument_edits: BTreeMap<(u32, u8), u32>,
    /// Decisions about calls: entry and block of the call, mapped to the entry of the decision and the time that the call
    /// waited for it; `None` if a rule decided. It only grows.
    pub decided_calls: BTreeMap<(u32, u8), (u32, Option<Millis>)>,
    /// Results of calls whose tasks run on in the background: entry and block of the call, mapped to the entry of the
    /// result. It only grows.
    pub background_results: BTreeMap<(u32, u8), u32>,
    /// The calls that started sub-agents.
    pub sub_agents: SubAgentCalls,
    /// What the rows of starts cover.
    pub start_rows: StartRows,
    /// Changes that decide when attempts start. It only grows.
    pub schedule_changes: Vec<RecordedChange>,
}

impl RunView {
    /// Returns the entry with the edited arguments of the call in block `block` of the entry `first`.
    pub fn edited_arguments_entry(&self, first: Seq, block: u8) -> Option<Seq> {
        let note = self
            .argument_edits
            .get(&(u32::try_from(first.0).ok()?, block))?;
        Some(Seq(u64::from(*note))).filter(|note| note.0 < self.state.entries)
    }

    /// Returns how long the call in block `block` of the entry `first` waited for a person.
    pub fn waited_for_person(&self, first: Seq, block: u8) -> Option<Millis> {
        let call = (u32::try_from(first.0).ok()?, block);
        let (decision, waited) = self.decided_calls.get(&call)?;
        waited.filter(|_| u64::from(*decision) < self.state.entries)
    }

    /// Returns the entry and block of the call that the entry `decision` decides.
    pub fn decided_call(&self, decision: Seq) -> Option<(Seq, u8)> {
        let mut calls = self.decided_calls.iter();
        let decided = calls.find(|(_, (seq, _))| u64::from(*seq) == decision.0);
        decided.map(|((first, block), _)| (Seq(u64::from(*first)), *block))
    }

    /// Returns the entry with the result of a call whose task runs, or ran, in the background.
    pub fn background_result(&self, row: &StreamRow) -> Option<Seq> {
        let result = self.background_results.get(&(row.first, row.block))?;
        Some(Seq(u64::from(*result)))
            .filter(|result| row.kind == RowKind::Tool && result.0 < self.state.entries)
    }

    /// Returns the entries of all calls that ran with edited arguments, each with the entry of the arguments.
    pub fn all_argument_edits(&self) -> Vec<(Seq, Seq)> {
        self.argument_edits
            .iter()
            .map(|((first, _), note)| (Seq(u64::from(*first)), Seq(u64::from(*note))))
            .collect()
    }

    /// All rows of an attempt.
    pub(crate) fn attempt_rows(&self, id: AttemptId) -> &AttemptRows {
        const EMPTY: &AttemptRows = &AttemptRows {
            rows: Vec::new(),
            entries: Vec::new(),
        };
        self.attempts.get(id.0 as usize).unwrap_or(EMPTY)
    }

    /// The rows of an attempt at the moment of `state`.
    pub fn rows(&self, id: AttemptId) -> &[StreamRow] {
        self.attempt_rows(id).rows_at(self.state.entries)
    }

    /// The entries of a row at the moment of `state`: the first, the last if it is another one, all entries of the start
    /// of an attempt, and the result of a call whose task runs in the background.
    pub fn row_entries(&self, row: &StreamRow) -> [Option<Seq>; 3] {
        let entries = self.state.entries;
        let [announcement, proof] = match (row.kind, row.block) {
            (RowKind::Note, 0) => self.start_rows.covered(row.first(), entries),
            _ => [self.background_result(row), None],
        };
        let last = row.last(entries).filter(|last| *last != row.first());
        [Some(row.first()), announcement, proof.or(last)]
    }

    /// The entries of an attempt at the moment of `state`.
    pub fn entries(&self, id: AttemptId) -> &[u32] {
        self.attempt_rows(id).entries_at(self.state.entries)
    }

    /// The changes of the schedule up to the moment of `state`.
    pub(crate) fn schedule_changes(&self) -> &[RecordedChange] {
        let end = self
            .schedule_changes
            .partition_point(|change| u64::from(change.seq) < self.state.entries);
        &self.schedule_changes[..end]
    }

    /// The log at the moment of `state`.
    pub fn messages(&self) -> &[LogMessage] {
        let end = self
            .messages
            .partition_point(|message| message.seq.0 < self.state.entries);
        let mut messages = &self.messages[..end];
        // A silence may begin between two entries, so the time decides as well.
        while let [earlier @ .., last] = messages
            && last.at > self.state.clock
        {
            messages = earlier;
        }
        messages
    }
}
