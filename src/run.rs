//! Reads runs: a source of entries, a timeline over it, and a fold to the state that every screen and report shows.
//!
//! Pure: sources do their I/O behind a trait. Nothing in this module distinguishes a live run from a recorded one.
//! Start reading at `timeline` and `fold`.

pub(crate) mod activity_index;
pub(crate) mod activity_mark;
pub(crate) mod alerts;
pub(crate) mod artifacts;
pub(crate) mod attempt_reducer;
pub(crate) mod bench;
pub(crate) mod bookmark;
pub(crate) mod breakpoint;
pub(crate) mod commit_trailers;
pub(crate) mod continuation;
pub(crate) mod coverage;
pub(crate) mod diff;
mod effective_result;
pub(crate) mod entry_search;
pub(crate) mod entry_source;
pub(crate) mod failure_groups;
pub(crate) mod fold;
pub(crate) mod line_owners;
mod model_spending;
pub(crate) mod note_sentence;
pub(crate) mod otlp;
pub(crate) mod outcome;
pub(crate) mod prior_run;
pub(crate) mod provenance;
pub(crate) mod quality;
pub(crate) mod recorded_decisions;
pub(crate) mod report;
pub(crate) mod review;
pub(crate) mod run_forecast;
pub(crate) mod saved_commits;
pub(crate) mod schedule_change;
pub(crate) mod shared_files;
pub(crate) mod slot_lanes;
pub(crate) mod spending;
pub(crate) mod start_rows;
pub(crate) mod state;
pub(crate) mod timeline;
pub(crate) mod trace;

/// The event types that [`SinkEvent`] carries, for layers that use runs and must not depend on `actions`.
pub(crate) use crate::actions::event;
pub(crate) use activity_index::ActivityIndex;
pub(crate) use activity_mark::ActivityMark;
pub(crate) use entry_source::{
    EntryRef, EntryScope, EntrySource, EntrySourceError, NewEntry, PollStatus, Recorder, SourceInfo,
};
pub(crate) use fold::{Fold, OutcomeDetail, RunEvent, SinkEvent};
pub(crate) use outcome::RunOutcome;
pub(crate) use report::RunReport;
pub(crate) use state::RunState;
pub(crate) use timeline::{SeekTarget, Timeline};
