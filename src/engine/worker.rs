//! Workers: processes, on this machine or another one, that execute attempts for an engine.
//!
//! [`protocol`] is what both sides exchange. On the side of the engine,
//! [`host`] is the way in: [`pool`] knows the workers and their slots, [`connection`] serves one of them,
//! [`remote_attempt`] follows one attempt, [`prior_attempts`] finds those of an earlier run, and [`shipment`] holds what attempts need. On the side of the worker, [`service`] runs attempts and [`workspace`] receives what they need. The
//! transport [`nats`] moves messages and knows nothing about them; [`ssh`] starts workers, which meet the run at its
//! [`own_server`]. The schedule, the tape and the screen must not depend on where an attempt runs.

pub mod connection;
pub mod host;
mod names;
pub mod nats;
pub mod own_server;
pub(crate) mod pool;
pub(crate) mod prior_attempts;
pub mod protocol;
pub(crate) mod remote_attempt;
pub mod service;
pub(crate) mod shipment;
mod shipped_attempts;
pub mod ssh;
mod uplink;
pub mod workspace;

#[cfg(test)]
mod tests;
