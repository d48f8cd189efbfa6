//! What a run looks like at one moment: the one thing that every screen, line, report and summary shows.
//!
//! [`RunState`] holds counts and facts and is cheap to clone for checkpoints. [`RunView`] adds the rows of every
//! attempt, which only ever grow; a moment in the past is the same rows seen up to a cutoff. Bodies stay where they
//! are: a row holds positions, and whoever shows it reads the line again.

use std::{collections::BTreeMap, sync::Arc};

use super::activity_index::{ActivityMark, ActivityMarks};
use crate::{
    tape::{
        Millis, Seq, UnitKey,
        note::{
            Amendment, AttemptOutput, ContentDigests, FilesEvicted, PatchResult, PatchWritten, PlannedUnit,
            PriorUnitSummary, RunEnded, RunPlanned, RunSaved, Severity, SharedWrite, SlRefRepair, SourceRead,
            SourcesProjected, Verdict,
        },
    },
    units::reuse::SpentBudget,
};

/// A moment of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunState {
    /// The plan, if the source has one.
    pub planned: Option<Arc<RunPlanned>>,
    /// What the run read, connection by connection.
    pub sources: Vec<Arc<SourceRead>>,
    /// Files that are gone and dealt with.
    pub evicted: Vec<Arc<FilesEvicted>>,
    /// Sources that were written before any unit ran.
    pub projected: Vec<Arc<SourcesProjected>>,
    /// Units: in plan order, then in order of appearance.
    pub units: Vec<UnitState>,
    /// Entries folded so far. The state shows everything before this position.
    pub entries: u64,
    /// Time of the last entry folded.
    pub last_entry_at: Millis,
    /// The moment itself: that of the last entry, or a later one that no entry has come since.
    pub clock: Millis,
    /// Units that are silent.
    pub silent: u32,
    /// What could not be used.
    pub loss_counts: LossCounts,
    /// Cost of all attempts that said one, in US dollars.
    pub spent_usd: f64,
    /// Variables that reached an agent only because a setting passed them on, sorted.
    pub env_passed: Arc<[Arc<str>]>,
    /// The usage window that the service last spoke of.
    pub usage_window: Option<UsageWindow>,
    /// Set while the whole run waits for a limit.
    pub pause: Option<RunPause>,
    /// Slots that the run does without, because a limit is near.
    pub throttling: Option<Throttling>,
    /// Set once somebody asked to drain or stop the run.
    pub is_stopping: bool,
    /// Set while the patches of the units are put together and on the branch.
    pub is_integrating: bool,
    /// What was put on the project's branch last.
    pub saved: Option<Arc<RunSaved>>,
    /// Why what was taken last is not on the branch.
    pub save_error: Option<Arc<str>>,
    /// Units whose changes are on the branch although the pass that was to look at them has not.
    pub unreconciled: Arc<[UnitKey]>,
    /// What pages lost that spoke of sources that are gone.
    pub sl_ref_repairs: Vec<Arc<SlRefRepair>>,
    /// What became of patches that an earlier run left.
    pub prior_patches: BTreeMap<UnitKey, PriorPatch>,
    /// The end, if it is on the tape.
    pub ended: Option<RunEnded>,
}

/// The patch of a unit that an earlier run did.
#[derive(Clone, Debug, PartialEq)]
pub struct PriorPatch {
    /// What became of it.
    pub result: PatchResult,
    /// The verdict that holds for the unit from then on, if it was not taken.
    pub verdict: Option<Arc<Verdict>>,
    /// It is on the branch.
    pub saved: bool,
    /// What of it units before it wrote too.
    pub shared: Arc<[SharedWrite]>,
}

/// What tells two states of one record apart: entries, units, and silent units.
pub type StateVersion = (u64, usize, u32);

impl RunState {
    /// Which state of its record it is.
    pub fn version(&self) -> StateVersion {
        (self.entries, self.units.len(), self.silent)
    }

    /// What earlier runs did about a unit.
    pub fn prior_unit_summary(&self, unit: &UnitKey) -> Option<&PriorUnitSummary> {
        self.planned.as_ref()?.continues.as_ref()?.units.get(unit)
    }
}

/// What a run lost or could not read. All zero in a healthy run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossCounts {
    /// Stdout lines that are not JSON objects with a type.
    pub malformed: u64,
    /// Lines of a type that we do not know.
    pub unknown: u64,
    /// Notes of a kind that we do not know.
    pub unknown_notes: u64,
    /// Lines of the tape that are not entries.
    pub corrupt_entries: u64,
}

/// A usage window.
#[derive(Clone, Debug, PartialEq)]
pub struct UsageWindow {
    /// `five_hour`, …
    pub name: String,
    /// `allowed`, `allowed_warning`, `rejected`.
    pub status: String,
    /// 0 to 1, if said.
    pub utilization: Option<f64>,
    /// Unix seconds, if said.
    pub resets_at: Option<i64>,
}

/// A pause of the whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPause {
    /// Until when, if known.
    pub until: Option<Millis>,
    /// Why, in the service's words.
    pub reason: String,
}

/// Fewer units at once than were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Throttling {
    /// Units at once.
    pub concurrency: u32,
    /// Why, in the service's words.
    pub reason: String,
}

/// A unit at that moment.
#[derive(Clone, Debug, PartialEq)]
pub struct UnitState {
    /// Key.
    pub key: UnitKey,
    /// Its plan, unless it only appeared in a capture.
    pub planned: Option<Arc<PlannedUnit>>,
    /// Where it stands.
    pub status: UnitStatus,
    /// Every attempt, oldest first. Never overwritten.
    pub attempts: Vec<AttemptState>,
    /// When the next attempt starts by itself.
    pub retry_at: Option<Millis>,
    /// What a person wants of its tool calls.
    pub hold_mode: HoldMode,
}

/// What a person wants of the tool calls of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HoldMode {
    /// They pass.
    #[default]
    Off,
    /// Each waits.
    EachCall,
    /// They pass until one meets this condition.
    Until(Arc<str>),
}

impl UnitState {
    /// The newest attempt.
    pub fn latest(&self) -> Option<&AttemptState> {
        self.attempts.last()
    }

    /// True when each of its tool calls waits for a person.
    pub fn is_held(&self) -> bool {
        self.hold_mode == HoldMode::EachCall
    }

    /// True if it failed because its patch was not taken.
    pub fn has_conflict(&self) -> bool {
        self.status == UnitStatus::Failed
            && self.latest().and_then(|attempt| attempt.integration).is_some_and(|patch| !patch.keeps_success())
    }

    /// Where it stands, in a word: that of its status, or of its patch once that says more.
    pub fn status_text(&self) -> &'static str {
        match (self.status, self.latest().and_then(|attempt| attempt.integration)) {
            (UnitStatus::Succeeded, Some(patch @ PatchResult::Accepted)) => patch.label(),
            (UnitStatus::Failed, Some(patch)) if !patch.keeps_success() => patch.label(),
            (status, _) => status.as_str(),
        }
    }

    /// The call that has waited longest for a person.
    pub fn oldest_held_call(&self) -> Option<&HeldCallState> {
        self.latest()?.held_calls.first()
    }
}

/// Where a unit stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnitStatus {
    /// Planned, not started.
    Queued,
    /// Planned, and its run ended or was cut off before its turn came: nothing happens until a person asks.
    NotStarted,
    /// An attempt runs.
    Running,
    /// An attempt runs, and its agent has written nothing for a while although it does not wait for us.
    Silent,
    /// An attempt runs, and a tool call of it waits for a person.
    Held,
    /// An attempt failed and another one will start by itself.
    Waiting,
    /// Its last attempt succeeded.
    Succeeded,
    /// Succeeded, but its turn or cost budget ran out.
    BudgetExhausted,
    /// Its last attempt failed.
    Failed,
    /// A person stopped it.
    Stopped,
    /// Its attempt was running when the record breaks off.
    Interrupted,
    /// An earlier run did it, and nothing that it is made of has changed.
    Reused,
}

impl UnitStatus {
    /// The word for it, on screens and in JSON.
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

    /// True when nothing more happens by itself.
    pub fn is_finished(self) -> bool {
        !(self.is_in_flight() || matches!(self, Self::Queued | Self::Waiting))
    }

    /// True when it ended without being done: another attempt may help.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::Failed | Self::Interrupted | Self::BudgetExhausted | Self::Stopped)
    }

    /// True while an attempt runs.
    pub fn is_in_flight(self) -> bool {
        matches!(self, Self::Running | Self::Silent | Self::Held)
    }
}

/// One attempt at that moment. A number that is not known is `None`, never 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttemptState {
    /// 1 for the first.
    pub number: u32,
    /// Where its rows are, see [`RunView::attempt_rows`].
    pub id: AttemptId,
    /// First entry.
    pub started_at: Millis,
    /// Last entry so far.
    pub last_at: Millis,
    /// Since when the agent has written nothing although it does not wait for us; `None` while it does, and where there is
    /// no process of ours.
    pub silent_since: Option<Millis>,
    /// Set with the verdict, or with `completed` in captures.
    pub ended_at: Option<Millis>,
    /// Session id.
    pub session: Option<Arc<str>>,
    /// Resolved model.
    pub model: Option<Arc<str>>,
    /// Model that was asked for.
    pub requested_model: Option<Arc<str>>,
    /// What a person wanted otherwise than planned.
    pub amendment: Option<Arc<Amendment>>,
    /// What the unit was made of, if that is on record.
    pub content: Option<Arc<ContentDigests>>,
    /// Turns allowed.
    pub step_budget: Option<u32>,
    /// API messages of the main loop, by distinct id.
    pub turns: u32,
    /// Tool calls seen.
    pub calls: u32,
    /// Calls without a result yet.
    pub open_calls: u32,
    /// Failed calls, each once.
    pub failures: u32,
    /// Denied calls, each once.
    pub denials: u32,
    /// Those of them that a person refused, which are no failures.
    pub refused_by_person: u32,
    /// Calls that their tool did not carry out although they did not fail, each once.
    pub declined: u32,
    /// The call that failed first and its error, `tool: error`.
    pub first_failure: Option<Arc<str>>,
    /// Cost, once the agent said it.
    pub cost_usd: Option<f64>,
    /// Tokens.
    pub tokens: TokenCounts,
    /// Takopi's `completed.ok`, once there is one.
    pub completed: Option<bool>,
    /// The verdict, once there is one.
    pub verdict: Option<Verdict>,
    /// The isolation breach, if there was one.
    pub breach: Option<Arc<str>>,
    /// True when the isolation proof held.
    pub isolation_proven: bool,
    /// The `attempt_started` note, if there is one.
    pub start_note: Option<Seq>,
    /// True when a scripted agent plays the model.
    pub is_scripted: bool,
    /// Process id while it runs.
    pub pid: Option<u32>,
    /// Tail of the text that the model is writing just now (partial messages), at most 2 KiB.
    pub live_text: String,
    /// Tail of what it is thinking just now, likewise.
    pub live_thinking: String,
    /// What it wrote and got into the project.
    pub published: Vec<String>,
    /// The patch that it left, where attempts leave patches.
    pub patch: Option<Arc<PatchWritten>>,
    /// What became of the patch.
    pub integration: Option<PatchResult>,
    /// What of the patch units before it wrote too.
    pub shared: Arc<[SharedWrite]>,
    /// True once everything in the patch is in the project.
    pub saved: bool,
    /// What it left on record with its verdict.
    pub work: Option<Arc<AttemptOutput>>,
    /// Calls that wait for a person, oldest first.
    pub held_calls: Vec<HeldCallState>,
}

impl AttemptState {
    /// Its turns, and those that it was allowed.
    pub fn turn_budget(&self) -> SpentBudget {
        SpentBudget { turns: self.turns, allowed: self.step_budget }
    }

    /// True when it left a patch that nobody has put into the project.
    pub fn is_unsaved(&self) -> bool {
        !self.saved && self.patch.as_ref().is_some_and(|patch| patch.path.is_some())
    }

    /// What was being written is complete, or never will be.
    pub(super) fn clear_live_text(&mut self) {
        self.live_text.clear();
        self.live_thinking.clear();
    }
}

/// A tool call that waits for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldCallState {
    /// Since when.
    pub since: Millis,
    /// Tool without its server prefix.
    pub tool: Arc<str>,
    /// Id of the call, where known.
    pub tool_use_id: Option<Arc<str>>,
    /// Its arguments as JSON on one line.
    pub input: Arc<str>,
    /// The condition that it met, if the unit ran until one.
    pub reached: Option<Arc<str>>,
}

/// Tokens of an attempt: highest value per message while it runs, the result's totals afterwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCounts {
    /// Fresh input.
    pub input: u64,
    /// Output.
    pub output: u64,
    /// Read from the cache.
    pub cache_read: u64,
    /// Written to the cache.
    pub cache_write: u64,
}

impl TokenCounts {
    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
        }
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        [self.output, self.cache_read, self.cache_write].into_iter().fold(self.input, u64::saturating_add)
    }
}

/// Index of an attempt's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AttemptId(pub u32);

/// One row of an attempt: something that was said or done, paired with its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRow {
    /// Entry that began it.
    first: u32,
    /// Entry that ended it; `u32::MAX` while it is open.
    last: u32,
    /// Index of the block inside the line of `first`; of a session's end, 1 where [`StreamRow::is_redundant`].
    pub block: u8,
    /// What it is.
    pub kind: RowKind,
    /// How it ended.
    end: RowEnd,
    /// 1 for rows of a sub-agent.
    pub depth: u8,
}

const OPEN_ENTRY: u32 = u32::MAX;

impl StreamRow {
    /// A row that is over with its first entry, unless it is a call.
    pub fn new(first: Seq, block: u8, kind: RowKind, end: RowEnd, depth: u8) -> Self {
        let first = u32::try_from(first.0).unwrap_or(OPEN_ENTRY - 1);
        let last = if end == RowEnd::Open { OPEN_ENTRY } else { first };
        Self { first, last, block, kind, end, depth }
    }

    /// True for the end of a session that has nothing to say beyond what the rows above it said.
    pub fn is_redundant(&self) -> bool {
        self.kind == RowKind::Completed && self.block > 0
    }

    /// True for the end of a session whose failure a row above it is marked with already.
    pub fn is_already_marked(&self) -> bool {
        self.kind == RowKind::Completed && self.block > 1
    }

    /// The entry that began it.
    pub fn first(&self) -> Seq {
        Seq(u64::from(self.first))
    }

    /// The entry that ended it, seen from a moment after `entries` entries.
    pub fn last(&self, entries: u64) -> Option<Seq> {
        (self.last != OPEN_ENTRY && u64::from(self.last) < entries).then(|| Seq(u64::from(self.last)))
    }

    /// How it stands, seen from a moment after `entries` entries.
    pub fn end(&self, entries: u64) -> RowEnd {
        if u64::from(self.last) < entries { self.end } else { RowEnd::Open }
    }

    /// Ends an open row. The first end stays.
    pub fn close(&mut self, last: Seq, end: RowEnd) {
        if self.last == OPEN_ENTRY {
            self.last = u32::try_from(last.0).unwrap_or(OPEN_ENTRY - 1);
            self.end = end;
        }
    }
}

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowKind {
    /// A tool call with its result.
    Tool,
    /// Text of the model.
    Text,
    /// Thinking of the model.
    Thinking,
    /// A permission denial.
    Denial,
    /// A line that is not JSON, an unknown line, stderr.
    Warning,
    /// An API retry, a fallback, a compaction, a notice, a usage window.
    Notice,
    /// The session began.
    Started,
    /// The session completed.
    Completed,
    /// A note of ours.
    Note,
}

/// How a row ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowEnd {
    /// It has not.
    Open,
    /// Well, or nothing can fail about it.
    Ok,
    /// Badly.
    Failed,
    /// It was refused, by a rule or a person.
    Denied,
    /// Its tool did not do what it asks for, which is no failure.
    Declined,
    /// We ended the attempt before it had a result of its own, its budget was spent, or the record breaks off.
    Aborted,
}

/// Adds to a list of which there may be very many: no more than a quarter of it is spare.
pub(super) fn push_compact<T>(list: &mut Vec<T>, item: T) {
    if list.len() == list.capacity() {
        list.reserve_exact((list.len() / 4).max(1));
    }
    list.push(item);
}

/// Rows and entries of one attempt. Grows only.
#[derive(Clone, Debug, Default)]
pub struct AttemptRows {
    /// Rows in order of their first entry.
    pub rows: Vec<StreamRow>,
    /// Every entry of the attempt, for the raw transcript.
    pub entries: Vec<u32>,
}

impl AttemptRows {
    /// Rows that have begun at a moment after `entries` entries.
    pub fn rows_at(&self, entries: u64) -> &[StreamRow] {
        let end = self.rows.partition_point(|row| u64::from(row.first) < entries);
        &self.rows[..end]
    }

    /// Entries of the attempt at that moment.
    pub fn entries_at(&self, entries: u64) -> &[u32] {
        let end = self.entries.partition_point(|seq| u64::from(*seq) < entries);
        &self.entries[..end]
    }
}

/// A remark for the run's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogMessage {
    /// Entry that it comes from.
    pub seq: Seq,
    /// When.
    pub at: Millis,
    /// Severity.
    pub level: Severity,
    /// Whose.
    pub unit: Option<UnitKey>,
    /// One sentence.
    pub text: String,
}

/// What an entry did that people look for in a long record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastChange {
    /// Attempt that it belongs to; `None` for entries of the run itself.
    pub attempt: Option<AttemptId>,
    /// How long that attempt had said nothing.
    pub silence: Millis,
    /// True when a row began.
    pub row_began: bool,
    /// What it is marked with.
    pub marks: ActivityMarks,
}

impl LastChange {
    /// A row began or ended so.
    pub(crate) fn add_row_end(&mut self, end: RowEnd) {
        match end {
            RowEnd::Failed => self.marks.add(ActivityMark::Failure),
            RowEnd::Denied => self.marks.add(ActivityMark::Denial),
            RowEnd::Open | RowEnd::Ok | RowEnd::Declined | RowEnd::Aborted => {}
        }
    }
}

/// The state at a moment, and the rows that led to it.
#[derive(Clone, Debug, Default)]
pub struct RunView {
    /// The moment.
    pub state: RunState,
    /// What the entry that was folded last did.
    pub last_change: LastChange,
    /// Rows by [`AttemptId`].
    pub(crate) attempts: Vec<AttemptRows>,
    /// The run's log. Grows only.
    pub(crate) messages: Vec<LogMessage>,
    /// Calls that ran with arguments of a person, by the place of the call: the entry that has the arguments. Grows only.
    pub(crate) argument_edits: BTreeMap<(u32, u8), u32>,
}

impl RunView {
    /// A story told by hand: for measurements and pictures.
    pub fn new(state: RunState, lanes: Vec<AttemptRows>, remarks: Vec<LogMessage>) -> Self {
        Self { state, attempts: lanes, messages: remarks, ..Self::default() }
    }

    /// The entry with the arguments that a person put in place of those of the model, for the call in block `block` of the entry
    /// `first`.
    pub fn edited_arguments_entry(&self, first: Seq, block: u8) -> Option<Seq> {
        let note = self.argument_edits.get(&(u32::try_from(first.0).ok()?, block))?;
        Some(Seq(u64::from(*note))).filter(|note| note.0 < self.state.entries)
    }

    /// The entries of all calls that ran with arguments of a person, each with the entry that has them.
    pub fn all_argument_edits(&self) -> Vec<(Seq, Seq)> {
        self.argument_edits.iter().map(|((first, _), note)| (Seq(u64::from(*first)), Seq(u64::from(*note)))).collect()
    }

    /// The rows of an attempt.
    pub fn attempt_rows(&self, id: AttemptId) -> &AttemptRows {
        const EMPTY: &AttemptRows = &AttemptRows { rows: Vec::new(), entries: Vec::new() };
        self.attempts.get(id.0 as usize).unwrap_or(EMPTY)
    }

    /// The rows of an attempt at the moment of `state`.
    pub fn rows(&self, id: AttemptId) -> &[StreamRow] {
        self.attempt_rows(id).rows_at(self.state.entries)
    }

    /// The entries of an attempt at the moment of `state`.
    pub fn entries(&self, id: AttemptId) -> &[u32] {
        self.attempt_rows(id).entries_at(self.state.entries)
    }

    /// The log at the moment of `state`.
    pub fn messages(&self) -> &[LogMessage] {
        let end = self.messages.partition_point(|remark| remark.seq.0 < self.state.entries);
        let mut remarks = &self.messages[..end];
        // A silence begins between two entries.
        while let [earlier @ .., last] = remarks
            && last.at > self.state.clock
        {
            remarks = earlier;
        }
        remarks
    }
}
