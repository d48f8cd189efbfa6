//! The events, decisions and views of a run, without input or output: no task, file, process or clock.
//!
//! Everything else is built on this crate. [`tape`] is the record of a run; [`decode`] reads the lines of the agent and
//! [`actions`] makes events of them; [`units`] decides what runs next and what an attempt is worth; [`run`] folds a
//! tape into what a screen shows. [`config`], [`control`], [`diagnostic`] and [`text`] are the settings, commands,
//! messages and text functions that all crates share, and [`token_prices`] the prices of models.
//!
//! # Invariants
//!
//! * Decoding is total: [`decode::decode_line()`] has no error type; unreadable input is a variant of its result.
//! * Lines of `claude` are written to the tape before they are interpreted ([`run::entry_source::Recorder`]).
//! * The tape contains received data and our own decisions, never interpretations of the data.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the documentation is for developers and includes private items"
)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests prepare files"
    )
)]

pub mod actions;
pub mod conditions;
pub mod config;
pub mod control;
pub mod decode;
pub mod diagnostic;
pub mod exit;
pub mod run;
pub mod tape;
pub mod text;
pub mod token_prices;
pub mod units;
