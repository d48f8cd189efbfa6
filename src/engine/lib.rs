//! Plans and runs units: continues prior runs, performs the effects of the schedule, runs attempts, holds calls,
//! integrates results and traces.
//!
//! Owns everything between the pure schedule and the agents that does not need a terminal. It must not depend on the
//! screen or the command line: both are clients. Start reading at [`driver`] and [`execute`].

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the documentation is for developers and includes private items"
)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests prepare files")
)]

pub(crate) mod approval;
pub(crate) mod attached_clients;
pub(crate) mod attempt_limits;
pub(crate) mod attempt_order;
pub mod continued_runs;
pub mod control_socket;
pub mod controller;
pub(crate) mod cut_sessions;
pub mod descriptors;
pub(crate) mod driver;
pub mod execute;
pub(crate) mod fail_fast_recorder;
mod http_post;
pub mod launch;
pub(crate) mod local_attempt;
pub mod notifier;
pub mod prepare;
pub mod prior_results;
pub mod provenance;
pub mod reconcile_policy;
pub mod recorded_tapes;
pub mod resume;
mod review;
pub(crate) mod run_meter;
pub mod session_run;
mod sink_failures;
pub mod span_exporter;
pub(crate) mod started_run;
mod tape_follower;
mod trace;
pub(crate) mod unsaved_run;
pub mod worker;

use ingestdeck_agent::private_dir;
use ingestdeck_core::diagnostic::Problem;
use ingestdeck_os::group_guard;

/// Receives each warning when it is known: the engine never prints.
pub(crate) type WarningSink<'a> = &'a dyn Fn(&Problem);

fn warn_all(warn: WarningSink<'_>, sentences: &[String]) {
    sentences
        .iter()
        .for_each(|sentence| warn(&Problem::new(sentence)));
}

/// Prepares a process that runs attempts for another one: its agents end with it, and what killed ones left is removed.
pub fn prepare_worker_process() {
    private_dir::remove_abandoned_dirs();
    guard_children();
}

/// Makes child processes end with this process, even if it is killed.
fn guard_children() {
    let guarded = std::env::current_exe().and_then(|exe| group_guard::start(&exe));
    if let Err(error) = guarded {
        tracing::warn!(%error, "child processes of agents and git will not be ended if this process is killed");
    }
}
