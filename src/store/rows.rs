//! What the index holds of one run: rows, gathered by folding its tape once. Knows no database.

use std::collections::HashMap;

use serde_json::Value;

use crate::{
    run::{
        EntrySource, EntrySourceError, FoldEvent, OutcomeDetail, PollStatus, Timeline,
        event::{ActionDetail, ActionEvent, ActionPhase, AgentAction, AgentEvent, ToolDetail},
        state::{RunState, UnitStatus},
    },
    tape::{EntryBody, Header, Millis, Note, Seq, note::Verdict},
};

mod artifacts;
mod files;

pub use artifacts::ArtifactRow;
pub use files::{FileRow, FileState};

/// Bytes folded at a time.
const SLICE: usize = 1 << 20;

/// Characters of an input or output that the index keeps. The whole is on the tape, at `seq`.
const MAX_PAYLOAD_CHARS: usize = 4 << 10;

/// Characters of an error that the index keeps.
const MAX_ERROR_CHARS: usize = 2 << 10;

/// Everything the index holds of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRows {
    /// The run.
    pub run: RunRow,
    /// Its units, in the order of the plan.
    pub units: Vec<UnitRow>,
    /// Their attempts.
    pub attempts: Vec<AttemptRow>,
    /// Their tool calls, in order of appearance.
    pub calls: Vec<CallRow>,
    /// Files that it read.
    pub files: Vec<FileRow>,
    /// What its units wrote from them.
    pub artifacts: Vec<ArtifactRow>,
}

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRow {
    /// Header of its tape.
    pub header: Header,
    /// Length of the tape when the rows were made. What was written since is not in them.
    pub tape_bytes: u64,
    /// Entries.
    pub entries: u64,
    /// Time of the last entry.
    pub duration: Millis,
    /// Outcome, if the run ended in order.
    pub outcome: Option<String>,
    /// Units.
    pub units: u64,
    /// Units whose last attempt succeeded.
    pub succeeded: u64,
    /// Units whose last attempt spent its budget.
    pub budget: u64,
    /// Units whose last attempt failed.
    pub failed: u64,
    /// Cost of all attempts, once one of them said it.
    pub cost_usd: Option<f64>,
    /// Lines that could not be read.
    pub lost: u64,
}

/// A unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitRow {
    /// Key, unique in the run.
    pub unit: String,
    /// KTX's key, unique in the connection.
    pub unit_key: String,
    /// Connection, if planned.
    pub connection: Option<String>,
    /// Adapter, if planned.
    pub adapter: Option<String>,
    /// [`UnitStatus::as_str`].
    pub status: String,
    /// Number of attempts.
    pub attempts: u64,
    /// It succeeded, and what it wrote never reached the project.
    pub unsaved: bool,
    /// Why it is not done, where it ran out of turns.
    pub detail: Option<String>,
}

/// An attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptRow {
    /// Unit.
    pub unit: String,
    /// 1 for the first.
    pub attempt: u32,
    /// Session id.
    pub session: Option<String>,
    /// Model.
    pub model: Option<String>,
    /// Since the run started.
    pub started: Millis,
    /// Since the run started.
    pub ended: Option<Millis>,
    /// Verdict.
    pub verdict: Option<Verdict>,
    /// Turns.
    pub turns: u32,
    /// Calls.
    pub calls: u32,
    /// Failed calls.
    pub failures: u32,
    /// Denied calls.
    pub denials: u32,
    /// Cost.
    pub cost_usd: Option<f64>,
    /// Input, output, cache read, cache write.
    pub tokens: [u64; 4],
}

/// A tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRow {
    /// Unit.
    pub unit: String,
    /// Attempt.
    pub attempt: u32,
    /// 1 for the first call of the attempt.
    pub turn_number: u32,
    /// Id.
    pub tool_use_id: String,
    /// Tool, as the model wrote it.
    pub tool: String,
    /// How it stands.
    pub status: CallStatus,
    /// Entry that holds the call.
    pub seq: Seq,
    /// Entry that holds its result.
    pub result_seq: Option<Seq>,
    /// When it was made.
    pub started: Millis,
    /// How long it took.
    pub duration: Option<Millis>,
    /// Arguments, JSON, cut.
    pub input: Option<String>,
    /// Result, JSON, cut.
    pub output: Option<String>,
    /// Length of the result before it was cut.
    pub output_bytes: Option<u64>,
    /// First text of a failed result, cut.
    pub error: Option<String>,
}

/// How a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallStatus {
    /// No result yet.
    Open,
    /// It succeeded.
    Complete,
    /// It failed.
    Error,
    /// It was refused.
    Denied,
}

impl CallStatus {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Complete => "complete",
            Self::Error => "error",
            Self::Denied => "denied",
        }
    }
}

/// A run cannot be indexed.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// Its tape cannot be read.
    #[error(transparent)]
    Source(#[from] EntrySourceError),
    /// The source is no tape, so there is no run to index.
    #[error("{0} is not a tape; only recorded runs are indexed")]
    NotATape(String),
}

impl RunRows {
    /// Folds `source` as far as it goes now. Its file was `tape_bytes` long before it was opened.
    pub fn from_source(source: Box<dyn EntrySource>, tape_bytes: u64) -> Result<Self, RowsError> {
        let origin = source.info();
        let header = origin.header.clone().ok_or_else(|| RowsError::NotATape(origin.name.clone()))?;
        let mut timeline = Timeline::new_forward_only(source);
        let mut calls = CallRowBuilder::default();
        while timeline.advance(SLICE, &mut |emitted| calls.observe(&emitted))? == PollStatus::More {}
        calls.apply_edited_inputs(&mut timeline)?;
        let state = &timeline.view().state;
        Ok(Self {
            run: run_row(header, tape_bytes, state),
            units: state.units.iter().map(|unit| unit_row(state, unit)).collect(),
            attempts: state.units.iter().flat_map(attempt_rows).collect(),
            calls: calls.rows,
            files: files::file_rows(state),
            artifacts: artifacts::artifact_rows(state),
        })
    }
}

fn run_row(header: Header, tape_bytes: u64, state: &RunState) -> RunRow {
    let count = |wanted: &[UnitStatus]| state.units.iter().filter(|unit| wanted.contains(&unit.status)).count() as u64;
    let costs = state.units.iter().flat_map(|unit| &unit.attempts).filter_map(|attempt| attempt.cost_usd);
    let lost = state.loss_counts;
    RunRow {
        header,
        tape_bytes,
        entries: state.entries,
        duration: state.last_entry_at,
        outcome: state.ended.as_ref().map(|ended| ended.outcome.clone()),
        units: state.units.len() as u64,
        succeeded: count(&[UnitStatus::Succeeded]),
        budget: count(&[UnitStatus::BudgetExhausted]),
        failed: count(&[UnitStatus::Failed]),
        cost_usd: costs.reduce(|sum, cost| sum + cost),
        lost: lost.malformed + lost.unknown + lost.unknown_notes + lost.corrupt_entries,
    }
}

fn unit_row(state: &RunState, unit: &crate::run::state::UnitState) -> UnitRow {
    UnitRow {
        unit: unit.key.as_str().to_owned(),
        unit_key: unit.planned.as_ref().map_or(&unit.key, |planned| planned.ktx_key()).as_str().to_owned(),
        connection: unit.planned.as_ref().map(|planned| planned.connection.clone()),
        adapter: unit.planned.as_ref().map(|planned| planned.adapter.clone()),
        status: unit.status.as_str().to_owned(),
        attempts: unit.attempts.len() as u64,
        unsaved: state.is_unsaved(unit),
        detail: unit
            .latest()
            .filter(|_| unit.status == UnitStatus::BudgetExhausted)
            .map(|attempt| attempt.turn_budget().to_string()),
    }
}

fn attempt_rows(unit: &crate::run::state::UnitState) -> impl Iterator<Item = AttemptRow> {
    unit.attempts.iter().map(|attempt| AttemptRow {
        unit: unit.key.as_str().to_owned(),
        attempt: attempt.number,
        session: attempt.session.as_deref().map(str::to_owned),
        model: attempt.model.as_deref().map(str::to_owned),
        started: attempt.started_at,
        ended: attempt.ended_at,
        verdict: attempt.verdict.clone(),
        turns: attempt.turns,
        calls: attempt.calls,
        failures: attempt.failures,
        denials: attempt.denials,
        cost_usd: attempt.cost_usd,
        tokens: [attempt.tokens.input, attempt.tokens.output, attempt.tokens.cache_read, attempt.tokens.cache_write],
    })
}

/// Pairs calls with their results.
#[derive(Debug, Default)]
struct CallRowBuilder {
    rows: Vec<CallRow>,
    /// Row of each call, by unit, attempt and id.
    row_by_call: HashMap<(String, u32, String), usize>,
    call_counts: HashMap<(String, u32), u32>,
}

impl CallRowBuilder {
    fn observe(&mut self, emitted: &FoldEvent<'_>) {
        let FoldEvent::Event { entry, at, unit, attempt, event: AgentEvent::Action(event), aside } = emitted else {
            return;
        };
        match &event.action.detail {
            ActionDetail::Tool(detail) => {
                let row = self.row(unit, *attempt, *entry, *at, &event.action, detail);
                if event.phase == ActionPhase::Completed && *aside != Some(OutcomeDetail::Aborted) {
                    complete_row(row, *entry, *at, event, detail);
                }
            }
            ActionDetail::Denial { tool_use_id: Some(id), .. } => {
                let known = self.row_by_call.get(&((*unit).to_owned(), *attempt, id.clone().into_owned()));
                if let Some(row) = known.and_then(|position| self.rows.get_mut(*position)) {
                    row.status = CallStatus::Denied;
                }
            }
            ActionDetail::Empty
            | ActionDetail::Thinking { .. }
            | ActionDetail::Denial { tool_use_id: None, .. }
            | ActionDetail::MalformedLine(_) => {}
        }
    }

    /// Calls whose arguments a person replaced ran with those of the person.
    fn apply_edited_inputs(&mut self, timeline: &mut Timeline) -> Result<(), RowsError> {
        for (call, note) in timeline.view().all_argument_edits() {
            let mut decided = None;
            timeline.read(note, &mut |arrived| {
                if let EntryBody::Note(json) = arrived.body
                    && let Note::CallDecided { tool_use_id: Some(id), input: Some(input), .. } = Note::parse(json)
                {
                    decided = Some((id, input.to_string()));
                }
            })?;
            let Some((id, input)) = decided else { continue };
            if let Some(row) = self.rows.iter_mut().find(|row| row.seq == call && row.tool_use_id == id) {
                row.input = Some(truncate_chars(&input, MAX_PAYLOAD_CHARS));
            }
        }
        Ok(())
    }

    fn row(
        &mut self,
        unit: &str,
        attempt: u32,
        seq: Seq,
        at: Millis,
        action: &AgentAction<'_>,
        detail: &ToolDetail<'_>,
    ) -> &mut CallRow {
        let id = action.id.clone().into_owned();
        let position = *self.row_by_call.entry((unit.to_owned(), attempt, id)).or_insert_with_key(|(_, _, id)| {
            let number = self.call_counts.entry((unit.to_owned(), attempt)).or_default();
            *number += 1;
            self.rows.push(CallRow {
                unit: unit.to_owned(),
                attempt,
                turn_number: *number,
                tool_use_id: id.clone(),
                tool: detail.tool_name.as_deref().unwrap_or("?").to_owned(),
                status: CallStatus::Open,
                seq,
                result_seq: None,
                started: at,
                duration: None,
                input: detail.tool_input.as_ref().map(|input| truncate_chars(input.raw().0, MAX_PAYLOAD_CHARS)),
                output: None,
                output_bytes: None,
                error: None,
            });
            self.rows.len() - 1
        });
        &mut self.rows[position]
    }
}

/// The first end of a call stays.
fn complete_row(row: &mut CallRow, entry: Seq, at: Millis, event: &ActionEvent<'_>, detail: &ToolDetail<'_>) {
    if row.duration.is_some() {
        return;
    }
    row.duration = Some(at.since(row.started));
    let failed = event.ok == Some(false);
    if row.status == CallStatus::Open {
        row.status = if failed { CallStatus::Error } else { CallStatus::Complete };
    }
    let Some(result) = &detail.result else {
        row.error = event.message.as_deref().filter(|_| failed).map(|message| truncate_chars(message, MAX_ERROR_CHARS));
        return;
    };
    row.result_seq = Some(entry);
    row.output_bytes = Some(result.result_len as u64);
    row.output = result.content.map(|content| truncate_chars(content.0, MAX_PAYLOAD_CHARS));
    if failed {
        row.error = result.content.map(|content| truncate_chars(&first_text(&content.value()), MAX_ERROR_CHARS));
    }
}

fn first_text(content: &Value) -> String {
    let text = |value: &Value| value.as_str().or_else(|| value.get("text")?.as_str()).map(str::to_owned);
    match content {
        Value::Array(blocks) => blocks.iter().find_map(text).unwrap_or_default(),
        other => text(other).unwrap_or_else(|| other.to_string()),
    }
}

fn truncate_chars(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}
