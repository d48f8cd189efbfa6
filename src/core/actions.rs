//! Translates decoded lines to Takopi's three events: `started`, `action`, one `completed`.
//!
//! Owns the event contract and the translation state of an attempt. Pure. It must not depend on tapes, units or
//! screens; values for screens that are not in the contract (display kind, label) are derived in [`label`] and
//! [`sql_query`].

pub mod event;
pub mod input_form;
pub mod label;
pub(crate) mod session_identity;
pub mod sql_query;
pub(crate) mod stream_state;
pub mod system_notice;
pub(crate) mod translate;
pub(crate) mod turn_tracker;

mod call_history;
mod call_title;
mod completion;
mod event_json;

pub(crate) use call_history::CallMap;
pub use completion::StreamEnd;
pub(crate) use completion::{
    MessageEnd, begins_turn, error_text, is_interrupt_marker, is_turn_end,
};
pub use event::{ActionPhase, AgentEvent};
pub use session_identity::{SessionCheck, SessionIdentity};
pub use stream_state::StreamState;
pub use translate::EventTranslator;
pub use turn_tracker::{LineRole, TurnTracker};

#[cfg(test)]
mod tests;
