//! Reads runs: a source of entries, a timeline over it, and a fold to the state that every screen and report shows.
//!
//! Pure: sources do their I/O behind a trait. Nothing in this module distinguishes a live run from a recorded one.
//! Start reading at `timeline` and `fold`.

pub mod activity_index;
pub mod attempt_reducer;
pub mod breakpoint;
pub mod decisions;
pub mod diff;
mod effective_result;
pub mod entry_source;
pub mod failure_groups;
pub mod fold;
pub mod outcome;
pub mod prior_run;
pub mod report;
pub mod run_forecast;
pub mod shared_files;
pub mod spending;
pub mod state;
pub mod timeline;
pub mod trace;

/// The event types that [`FoldEvent`] carries, for layers that use runs and must not depend on `actions`.
pub use crate::actions::event;
pub use activity_index::{ActivityIndex, ActivityMark};
pub use entry_source::{
    EntryRef, EntryScope, EntrySource, EntrySourceError, NewEntry, PollStatus, Recorder, SourceInfo,
};
pub use fold::{Fold, FoldEvent, OutcomeDetail, RunEvent};
pub use outcome::RunOutcome;
pub use report::RunReport;
pub use state::RunState;
pub use timeline::{SeekTarget, Timeline};
