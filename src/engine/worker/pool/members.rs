//! The workers of a pool: who joins, leaves, rests, or may start nothing more.

use std::collections::HashMap;

use tokio::{sync::watch, time::Instant};

use super::{PoolWorker, REFUSAL_REST, SlotPool};
use crate::worker::{
    connection::WorkerConnection,
    names::{free_name, plain_name},
    protocol::{EngineMessage, WorkerJoin, WorkerLoad},
};
use ingestdeck_core::tape::{
    Note,
    note::{Severity, WorkerDrained, WorkerJoined, WorkerLeft},
};

impl SlotPool {
    /// Stops a worker for good. If the user named its machine, this stops all workers of it, and none of them joins again; a
    /// name that a worker gave to its machine may be that of another.
    pub(in crate::worker) fn ban(&self, worker: &str, reason: &str) {
        let mut state = self.state();
        let named = state
            .workers
            .get(worker)
            .filter(|of| of.is_named_by_user)
            .map(|of| of.machine.clone());
        let is_banned = |name: &String, of: &PoolWorker| match &named {
            Some(machine) => of.is_named_by_user && of.machine == *machine,
            None => name == worker,
        };
        let of_machine = state
            .workers
            .iter()
            .filter(|(name, of)| is_banned(name, of));
        let names: Vec<String> = of_machine.map(|(name, _)| name.clone()).collect();
        state.banned.extend(named);
        drop(state);
        for name in names {
            self.stop(&name, reason);
        }
    }

    /// Whether the worker with this login is present, and whether it has ever joined.
    pub(in crate::worker) fn presence(&self, login: &str) -> (bool, bool) {
        let state = self.state();
        let is_here = |of: &PoolWorker| of.login.as_deref() == Some(login);
        (
            state.workers.values().any(is_here),
            state.joined_logins.contains(login),
        )
    }

    /// True if the workers of a machine may not join.
    pub(in crate::worker) fn is_banned(&self, machine: &str) -> bool {
        self.state().banned.contains(machine)
    }

    /// A name for a worker of `machine` that no other worker has, until it is released; `None` if `most` names are in
    /// use.
    pub(in crate::worker) fn reserve_name(&self, machine: &str, most: usize) -> Option<String> {
        let names = &mut self.state().names;
        if names.len() >= most {
            return None;
        }
        let name = free_name(machine, |name| names.contains(name));
        names.insert(name.clone());
        Some(name)
    }

    pub(in crate::worker) fn release_name(&self, name: &str) {
        self.state().names.remove(name);
    }

    /// Adds a worker of `machine`; its host is a reserved name.
    pub(in crate::worker) fn add_worker(
        &self,
        machine: String,
        join: WorkerJoin,
        connections: Vec<String>,
        WorkerConnection {
            name: given,
            login,
            outgoing,
            returns,
            ..
        }: &WorkerConnection,
    ) -> String {
        let name = join.host.clone();
        let join = WorkerJoin {
            account: plain_name(&join.account),
            ..join
        };
        let mut state = self.state();
        let note = Note::WorkerJoined(WorkerJoined {
            worker: name.clone(),
            slots: join.slots,
            account: join.account.clone(),
            agent_release: join.agent_release.clone(),
            clock_ms: join.clock_ms,
        });
        let attempts = HashMap::new();
        let worker = PoolWorker {
            machine,
            is_named_by_user: given.is_some(),
            login: login.clone(),
            join,
            connections,
            is_draining: false,
            outgoing: outgoing.clone(),
            returns: *returns,
            is_adopted: false,
            load: WorkerLoad::default(),
            away: watch::channel(false).0,
            attempts,
            refusal_rest: None,
            limit_rest: None,
        };
        if *returns {
            state.pending_transports -= 1;
        }
        let unreadable = (!worker.reaches(&state.databases)).then(|| state.databases.join(" and "));
        let was_spent = !state.has_unspent_place();
        state.joined_logins.extend(login.clone());
        state.workers.insert(name.clone(), worker);
        self.send_slots(&state);
        let ends_wait = was_spent && state.has_unspent_place();
        drop(state);
        self.record(&note);
        if ends_wait {
            self.override_limit();
        }
        if let Some(databases) = unreadable {
            let text = format!(
                "worker {name} cannot read the database of {databases}, so it gets no units: copy it there and name it in ingest.allow_paths"
            );
            self.warn(Severity::Warning, text);
        }
        name
    }

    /// Removes a worker that has left or was lost. Its attempts end as lost.
    pub(in crate::worker) fn remove_worker(&self, name: &str, reason: &str, is_lost: bool) {
        let mut state = self.state();
        state.names.remove(name);
        let Some(worker) = state.workers.remove(name) else {
            return;
        };
        if worker.returns {
            state.pending_transports += 1;
        }
        let lost: Vec<String> = state
            .sessions
            .iter()
            .filter(|(_, of)| *of == name)
            .map(|(session, _)| session.clone())
            .collect();
        for session in lost {
            state.sessions.remove(&session);
            state.lost_sessions.insert(session, name.to_owned());
        }
        self.send_slots(&state);
        drop(state);
        if worker.is_adopted {
            return;
        }
        let attempts = u32::try_from(worker.attempts.len()).unwrap_or(u32::MAX);
        let reason = reason.to_owned();
        self.record(&Note::WorkerLeft(WorkerLeft {
            worker: name.to_owned(),
            reason,
            is_lost,
            attempts,
        }));
    }

    /// Starts nothing new on a worker. Returns false if there is no such worker.
    pub(crate) fn drain(&self, name: &str, reason: &str) -> bool {
        let mut state = self.state();
        let Some(worker) = state.workers.get_mut(name) else {
            return false;
        };
        let is_new = !std::mem::replace(&mut worker.is_draining, true);
        self.send_slots(&state);
        drop(state);
        if is_new {
            self.record(&Note::WorkerDrained(WorkerDrained {
                worker: name.to_owned(),
                reason: reason.to_owned(),
                is_undone: false,
            }));
        }
        true
    }

    /// Starts units on a drained worker again. Returns false if there is no such worker.
    pub(crate) fn undrain(&self, name: &str) -> bool {
        let mut state = self.state();
        let worker = state.workers.get_mut(name).filter(|of| !of.is_adopted);
        let Some(worker) = worker else {
            return false;
        };
        let was_draining = std::mem::take(&mut worker.is_draining);
        worker.refusal_rest = None;
        self.send_slots(&state);
        drop(state);
        if was_draining {
            self.record(&Note::WorkerDrained(WorkerDrained {
                worker: name.to_owned(),
                reason: String::new(),
                is_undone: true,
            }));
        }
        true
    }

    /// The agent of a worker refused to start an attempt that began at `began`. The worker rests for a moment. Returns
    /// false if it has refused after a rest as well: the fault remains.
    pub(in crate::worker) fn record_refusal(&self, name: &str, began: Instant) -> bool {
        let mut state = self.state();
        let Some(worker) = state.workers.get_mut(name) else {
            return true;
        };
        let is_same = worker.refusal_rest.is_some_and(|until| began >= until);
        worker
            .refusal_rest
            .get_or_insert_with(|| Instant::now() + REFUSAL_REST);
        !is_same
    }

    /// The agent of a worker did not refuse an attempt.
    pub(in crate::worker) fn clear_refusal(&self, name: &str) {
        if let Some(worker) = self.state().workers.get_mut(name) {
            worker.refusal_rest = None;
        }
    }

    /// Starts nothing new on a worker, and repeats its attempts elsewhere. Returns false if there is no such worker.
    pub(crate) fn stop(&self, name: &str, reason: &str) -> bool {
        let is_known = self.drain(name, reason);
        let mut state = self.state();
        let Some(worker) = state.workers.get_mut(name) else {
            return is_known;
        };
        for (lease, _) in worker.attempts.drain() {
            // A worker that does not receive it is informed when it sends something about the attempt.
            let _ = worker.outgoing.try_send(EngineMessage::Revoked { lease });
        }
        is_known
    }
}
