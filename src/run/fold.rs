//! Entries → state. One entry at a time, in order; never fails.

use super::{
    Arrived,
    state::{Story, UnitStatus},
};
use crate::{
    actions::Event,
    tape::{Millis, Seq},
};

/// The fold and what it must remember between entries.
#[derive(Clone, Debug, Default)]
pub struct Fold {
    _private: (),
}

/// What one entry led to, for sinks that print a stream rather than a state.
#[derive(Clone, Debug, PartialEq)]
pub enum Emitted<'a> {
    /// An event of an attempt.
    Event {
        /// Entry it comes from.
        entry: Seq,
        /// When.
        at: Millis,
        /// Whose.
        unit: &'a str,
        /// Which attempt.
        attempt: u32,
        /// What.
        event: Event<'a>,
    },
    /// A unit changed its status.
    Unit {
        /// When.
        at: Millis,
        /// Whose.
        unit: &'a str,
        /// Which attempt it is at; 0 before the first.
        attempt: u32,
        /// To what.
        status: UnitStatus,
    },
}

impl Fold {
    /// Folds one entry into `story`.
    pub fn apply(&mut self, _story: &mut Story, _arrived: &Arrived<'_>, _emit: &mut dyn FnMut(Emitted<'_>)) {}
}
