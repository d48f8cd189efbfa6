//! Builds the index rows of one run by folding its tape once. It must not know the database.

use ingestdeck_core::{
    run::{
        EntrySource, EntrySourceError, PollStatus, Timeline,
        continuation::RunContinuation,
        spending::{UnitSpending, run_cost},
        state::{ModelSpending, RunState, UnitStatus},
    },
    tape::{Header, Millis, RunId, note::Verdict},
};

mod artifacts;
mod calls;
mod files;

pub use artifacts::ArtifactIndexRow;
pub use calls::{CallIndexRow, MIN_CUT_CHARS};
pub use files::{FileIndexRow, FileState, UnitFileResult};

/// Bytes folded per slice.
const SLICE: usize = 1 << 20;

/// All index rows of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunIndexRows {
    pub run: RunIndexRow,
    /// Units in plan order.
    pub units: Vec<UnitIndexRow>,
    pub attempts: Vec<AttemptIndexRow>,
    /// Tool calls in order of appearance.
    pub calls: Vec<CallIndexRow>,
    /// Files that the run read.
    pub files: Vec<FileIndexRow>,
    /// Artifacts that its units wrote from the files.
    pub artifacts: Vec<ArtifactIndexRow>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RunIndexRow {
    /// Header of the tape.
    pub header: Header,
    /// Length of the tape in bytes when the rows were built. Later entries are not included.
    pub tape_bytes: u64,
    pub entries: u64,
    /// Time of the last entry.
    pub duration: Millis,
    /// Outcome, if the run ended in order.
    pub outcome: Option<String>,
    pub units: u64,
    /// Units whose last attempt succeeded.
    pub succeeded: u64,
    /// Units whose last attempt spent its budget.
    pub budget: u64,
    /// Units whose last attempt failed.
    pub failed: u64,
    /// Cost of all attempts; `None` until an attempt reports its cost.
    pub cost_usd: Option<f64>,
    /// True if the cost of an attempt is unknown.
    pub is_cost_partial: bool,
    /// Number of unreadable lines.
    pub lost: u64,
    /// True if the changes of its last review are in no commit.
    pub has_unsaved_review: bool,
    pub continuation: RunContinuation,
    /// True if the run continues after these entries.
    pub is_active: bool,
}

/// Status of a unit of an earlier run whose commits a run reviews, and that did not work again.
pub(crate) const REVIEWED_STATUS: &str = "reviewed";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitIndexRow {
    /// Key, unique in the run.
    pub unit: String,
    /// KTX's key, unique in the connection.
    pub unit_key: String,
    /// Connection of a planned unit.
    pub connection: Option<String>,
    /// Adapter of a planned unit.
    pub adapter: Option<String>,
    /// Status as text, from [`UnitStatus::as_str`], or [`REVIEWED_STATUS`].
    pub status: String,
    pub attempts: u64,
    /// True if the unit succeeded but its artifacts never reached the project.
    pub unsaved: bool,
    /// Why a unit that spent its turn budget is not done.
    pub detail: Option<String>,
    /// What a reviewer did not accept of its changes: empty if nothing, `None` without a review.
    pub review_remarks: Option<String>,
    /// The run whose files the result rests on; `None` unless the unit is done and saved.
    pub read_in: Option<RunId>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct AttemptIndexRow {
    pub unit: String,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    pub session: Option<String>,
    pub model: Option<String>,
    /// Time since the start of the run.
    pub started: Millis,
    /// Time since the start of the run.
    pub ended: Option<Millis>,
    pub verdict: Option<Verdict>,
    pub turns: u32,
    pub calls: u32,
    pub failures: u32,
    pub denials: u32,
    pub cost_usd: Option<f64>,
    /// Tokens: input, output, cache read, cache write.
    pub tokens: [u64; 4],
    /// Cost and tokens for each model.
    pub models: Vec<ModelSpending>,
}

/// Why a run cannot be indexed.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    #[error(transparent)]
    Source(#[from] EntrySourceError),
    /// The source is not a tape, so it contains no run to index.
    #[error("{0} is not a tape, and only recorded runs are indexed")]
    NotATape(String),
}

impl RunIndexRows {
    /// Folds `source` to its current end. `tape_bytes` is the length of its file before it was opened; the run continues
    /// after it if it `is_active`.
    pub fn from_source(
        source: Box<dyn EntrySource>,
        tape_bytes: u64,
        is_active: bool,
    ) -> Result<Self, RowsError> {
        let origin = source.info();
        let header = origin
            .header
            .clone()
            .ok_or_else(|| RowsError::NotATape(origin.name.clone()))?;
        let mut timeline = Timeline::new_forward_only(source).with_open_end(is_active);
        let mut calls = calls::CallIndexRowBuilder::default();
        while timeline.advance(SLICE, &mut |emitted| calls.observe(&emitted))? == PollStatus::More {
        }
        let calls = calls.finish(&mut timeline)?;
        let state = &timeline.view().state;
        let is_active = is_active && state.ended.is_none();
        let rows = Self::from_state(header, tape_bytes, state);
        Ok(Self {
            run: RunIndexRow {
                is_active,
                ..rows.run
            },
            calls,
            ..rows
        })
    }

    /// The rows of a run that is not active, without its calls.
    pub fn from_state(header: Header, tape_bytes: u64, state: &RunState) -> Self {
        let run = header.run;
        Self {
            run: run_row(header, tape_bytes, state),
            units: state
                .units
                .iter()
                .map(|unit| unit_row(run, state, unit))
                .collect(),
            attempts: state.units.iter().flat_map(attempt_rows).collect(),
            calls: Vec::new(),
            files: files::file_rows(run, state),
            artifacts: artifacts::artifact_rows(state),
        }
    }
}

fn run_row(header: Header, tape_bytes: u64, state: &RunState) -> RunIndexRow {
    let count = |wanted: &[UnitStatus]| {
        state
            .units
            .iter()
            .filter(|unit| wanted.contains(&unit.status))
            .count() as u64
    };
    let (run, lost) = (header.run, state.loss_counts);
    RunIndexRow {
        header,
        tape_bytes,
        entries: state.entries,
        duration: state.last_entry_at,
        outcome: state
            .ended
            .as_ref()
            .map(|ended| ended.outcome.as_str().to_owned()),
        units: state.units.len() as u64,
        succeeded: count(&[UnitStatus::Succeeded]),
        budget: count(&[UnitStatus::BudgetExhausted]),
        failed: count(&[UnitStatus::Failed]),
        cost_usd: run_cost(state),
        is_cost_partial: state
            .units
            .iter()
            .any(|unit| UnitSpending::new(unit, state.last_entry_at).partial),
        lost: lost.malformed + lost.unknown + lost.unknown_notes + lost.corrupt_entries,
        has_unsaved_review: state.publication.unsaved_review().is_some(),
        continuation: RunContinuation::from_state(run, state),
        is_active: false,
    }
}

fn unit_row(
    run: RunId,
    state: &RunState,
    unit: &ingestdeck_core::run::state::UnitState,
) -> UnitIndexRow {
    let review = state.publication.review.as_deref();
    let reviewed = review.filter(|review| {
        review
            .request
            .files
            .iter()
            .any(|file| file.units.contains(&unit.key))
    });
    UnitIndexRow {
        unit: unit.key.as_str().to_owned(),
        unit_key: unit
            .planned
            .as_ref()
            .map_or(&unit.key, |planned| planned.ktx_key())
            .as_str()
            .to_owned(),
        connection: unit
            .planned
            .as_ref()
            .map(|planned| planned.connection.clone())
            .filter(|name| !name.is_empty()),
        adapter: unit.planned.as_ref().map(|planned| planned.adapter.clone()),
        status: match files::is_reviewed_only(state)(unit) {
            true => REVIEWED_STATUS.to_owned(),
            false => unit.status.as_str().to_owned(),
        },
        attempts: unit.attempts.len() as u64,
        unsaved: state.is_unsaved(unit),
        detail: unit
            .latest()
            .filter(|_| unit.status == UnitStatus::BudgetExhausted)
            .map(|attempt| attempt.budget_exhaustion().to_string()),
        review_remarks: reviewed.map(|review| review.remarks(&unit.key).unwrap_or_default()),
        read_in: files::read_in(run, state, unit),
    }
}

fn attempt_rows(
    unit: &ingestdeck_core::run::state::UnitState,
) -> impl Iterator<Item = AttemptIndexRow> {
    unit.attempts.iter().map(|attempt| AttemptIndexRow {
        unit: unit.key.as_str().to_owned(),
        attempt: attempt.number,
        session: attempt.setup.session.as_deref().map(str::to_owned),
        model: attempt.setup.model.as_deref().map(str::to_owned),
        started: attempt.started_at,
        ended: attempt.ended_at,
        verdict: attempt.verdict.clone(),
        turns: attempt.counts.turns,
        calls: attempt.counts.calls,
        failures: attempt.counts.failures,
        denials: attempt.counts.denials,
        cost_usd: attempt.counts.cost_usd,
        tokens: [
            attempt.counts.tokens.input,
            attempt.counts.tokens.output,
            attempt.counts.tokens.cache_read,
            attempt.counts.tokens.cache_write,
        ],
        models: attempt.setup.models().to_vec(),
    })
}
