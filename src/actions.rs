//! Decoded lines → Takopi's three events: `started`, `action`, one `completed`.
//!
//! Owns the event contract and the per-attempt translation state. Pure. It must not know tapes, units or screens;
//! what a screen wants beyond the contract (display kind, label) is derived beside it, in [`label`].

pub mod event;
pub mod label;
pub mod translate;

mod calls;
mod json;
mod outcome;
mod title;

pub use event::{Action, ActionKind, Completed, Event, EventLevel, Phase, Started};
pub use outcome::Ended;
pub use translate::Translator;

#[cfg(test)]
mod tests;
