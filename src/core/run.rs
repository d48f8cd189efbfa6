//! Reads runs: a source of entries, a timeline over it, and a fold to the state that every screen and report shows.
//!
//! Pure: sources do their I/O behind a trait. Nothing in this module distinguishes a live run from a recorded one.
//! Start reading at `timeline` and `fold`.

pub mod activity_index;
pub(crate) mod activity_mark;
pub mod alerts;
pub mod artifacts;
pub mod attempt_reducer;
pub mod bookmark;
pub mod breakpoint;
pub mod commit_trailers;
pub mod continuation;
pub mod coverage;
pub mod diff;
mod effective_result;
pub mod entry_search;
pub mod entry_source;
pub mod failure_groups;
pub(crate) mod fold;
pub mod line_owners;
mod model_spending;
pub mod note_sentence;
pub mod options;
pub mod otlp;
pub mod outcome;
pub mod prior_run;
pub mod provenance;
pub mod quality;
pub mod recorded_decisions;
pub mod report;
pub mod review;
pub mod run_forecast;
pub mod saved_commits;
pub mod savings;
pub(crate) mod schedule_change;
pub mod shared_files;
pub mod slot_lanes;
pub mod spending;
pub(crate) mod start_rows;
pub mod state;
pub mod timeline;
pub mod trace;
pub mod verification;

/// The event types that [`SinkEvent`] carries, for layers that use runs and must not depend on `actions`.
pub use crate::actions::event;
pub use activity_index::ActivityIndex;
pub use activity_mark::ActivityMark;
pub use effective_result::plain_reason;
pub use entry_source::{
    EntryRef, EntryScope, EntrySource, EntrySourceError, NewEntry, PollStatus, Recorder, SourceInfo,
};
pub use fold::{Fold, OutcomeDetail, RunEvent, SinkEvent, TaskChange};
pub use options::RunOptions;
pub use outcome::RunOutcome;
pub use report::RunReport;
pub use state::RunState;
pub use timeline::{SeekTarget, Timeline};
