//! Plans and runs units: continues prior runs, performs the effects of the schedule, runs attempts, holds calls,
//! integrates results and traces.
//!
//! Owns everything between the pure schedule and the agents that does not need a terminal. It must not depend on the
//! screen or the command line: both are clients. Start reading at [`driver`] and [`execute`].

pub(crate) mod approval;
pub(crate) mod attached_clients;
pub(crate) mod attempt_limits;
pub(crate) mod attempt_order;
pub(crate) mod continued_runs;
pub(crate) mod control_socket;
pub(crate) mod controller;
pub(crate) mod descriptors;
pub(crate) mod driver;
pub(crate) mod execute;
pub(crate) mod fail_fast_recorder;
mod http_post;
pub(crate) mod launch;
pub(crate) mod local_attempt;
pub(crate) mod notifier;
pub(crate) mod prepare;
pub(crate) mod prior_results;
pub(crate) mod provenance;
pub(crate) mod reconcile_policy;
pub(crate) mod recorded_tapes;
pub(crate) mod resume;
mod review;
pub(crate) mod run_meter;
pub(crate) mod session_run;
pub(crate) mod span_exporter;
pub(crate) mod trace;
pub(crate) mod unsaved_run;
pub(crate) mod worker;

use crate::{agent::private_dir, diagnostic::Problem, group_guard};

/// Receives each warning when it is known: the engine never prints.
pub(crate) type WarningSink<'a> = &'a dyn Fn(&Problem);

fn warn_all(warn: WarningSink<'_>, sentences: &[String]) {
    sentences
        .iter()
        .for_each(|sentence| warn(&Problem::new(sentence)));
}

/// Prepares a process that runs attempts for another one: its agents end with it, and what killed ones left is removed.
pub(crate) fn prepare_worker_process() {
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
