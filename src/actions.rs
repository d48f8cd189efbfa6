//! Translates decoded lines to Takopi's three events: `started`, `action`, one `completed`.
//!
//! Owns the event contract and the translation state of an attempt. Pure. It must not depend on tapes, units or
//! screens; values for screens that are not in the contract (display kind, label) are derived in [`label`].

pub(crate) mod event;
pub(crate) mod label;
pub(crate) mod session_identity;
pub(crate) mod stream_state;
pub(crate) mod translate;
pub(crate) mod turn_tracker;

mod call_history;
mod call_title;
mod completion;
mod event_json;

pub(crate) use call_history::CallMap;
pub(crate) use completion::{StreamEnd, error_text};
pub(crate) use event::{ActionPhase, AgentEvent};
pub(crate) use session_identity::{SessionCheck, SessionIdentity};
pub(crate) use stream_state::StreamState;
pub(crate) use translate::EventTranslator;
pub(crate) use turn_tracker::{LineRole, TurnTracker};

#[cfg(test)]
mod tests;
