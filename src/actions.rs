//! Decoded lines → Takopi's three events: `started`, `action`, one `completed`.
//!
//! Owns the event contract and the per-attempt translation state. Pure. It must not know tapes, units or screens;
//! what a screen wants beyond the contract (display kind, label) is derived beside it, in [`label`].

pub mod event;
pub mod identity;
pub mod label;
pub mod translate;
pub mod turns;

mod calls;
mod json;
mod outcome;
mod title;

pub use event::{Action, ActionKind, Completed, Event, EventLevel, Phase, Started};
pub use identity::{Identity, Sighting};
pub use outcome::{Ended, error_text};
pub use translate::Translator;
pub use turns::{Part, Turns};

#[cfg(test)]
mod tests;
