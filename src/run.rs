//! The one path: a source of entries, a timeline over it, a fold to the state that everything shows.
//!
//! Pure: sources do their I/O behind a trait. Nothing here can tell a live run from a recorded one.

pub mod causes;
pub mod chronicle;
pub mod decisions;
pub mod diff;
pub mod earlier;
pub mod fold;
pub mod outcome;
pub mod outlook;
pub mod report;
pub mod reported;
pub mod shared;
pub mod source;
pub mod spent;
mod standing;
pub mod state;
pub mod timeline;
pub mod trace;

/// What [`Emitted`] carries, for layers that know the run and not how its events come about.
pub use crate::actions::event;
pub use chronicle::{Chronicle, Mark};
pub use fold::{Aside, Emitted, Fold, RunChange};
pub use outcome::RunOutcome;
pub use report::Report;
pub use source::{Arrived, Item, Lane, Origin, Progress, Recorder, Source, SourceError};
pub use state::RunState;
pub use timeline::{Moment, Timeline};
