//! The child processes of warehouses: one connection each, started when a statement needs it and kept for the next one.
//!
//! A child runs one statement at a time, in a transaction that leaves nothing behind, so it can serve another attempt
//! afterwards. The number of children of a warehouse is the number of its connections.

use std::{
    collections::HashMap,
    env,
    ffi::OsString,
    sync::{Arc, mpsc::Sender},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

use super::{
    QueryError, StatementAnswer, Warehouse, WarehouseDriver, WarehouseStatement,
    catalog::CatalogCache,
};
use crate::database::process::{LineProcess, LineReply, WorkerCommand};

/// Longest wait for a connection that others use.
const MAX_QUEUE_WAIT: Duration = Duration::from_secs(600);
/// Time in which a new child connects, in addition to the time limit of its statement.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Time between the time limit and the end of a child, in which it can answer.
const ANSWER_GRACE: Duration = Duration::from_secs(2);
/// Time after which an unused child is ended.
const IDLE_TIME: Duration = Duration::from_secs(120);

/// Variables of the user that drivers need.
const DRIVER_VARIABLES: [&str; 8] = [
    "HOME",
    "XDG_CONFIG_HOME",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTPS_PROXY",
    "NO_PROXY",
    "TZDIR",
];

/// The statements of one attempt that run now.
#[derive(Debug, Default)]
pub(in crate::database) struct RunningStatements {
    state: Mutex<RunningState>,
}

#[derive(Debug, Default)]
struct RunningState {
    is_stopped: bool,
    last: u64,
    stops: Vec<(u64, Sender<LineReply>)>,
}

impl RunningStatements {
    /// Ends what runs; no other statement starts.
    pub(in crate::database) fn stop(&self) {
        let mut state = self.state.lock();
        state.is_stopped = true;
        for (_, stop) in state.stops.drain(..) {
            // The statement has ended by itself.
            let _ = stop.send(LineReply::Stopped);
        }
    }

    fn add(&self, child: &LineProcess) -> Result<RunningStatement<'_>, QueryError> {
        let mut state = self.state.lock();
        if state.is_stopped {
            return Err(QueryError::Stopped);
        }
        state.last += 1;
        let id = state.last;
        state.stops.push((id, child.stop()));
        Ok(RunningStatement(self, id))
    }
}

/// A statement that [`RunningStatements::stop`] ends.
struct RunningStatement<'a>(&'a RunningStatements, u64);

impl Drop for RunningStatement<'_> {
    fn drop(&mut self) {
        self.0.state.lock().stops.retain(|(id, _)| *id != self.1);
    }
}

/// The child processes of every warehouse.
#[derive(Debug, Default)]
pub(in crate::database) struct WarehousePools {
    /// `None`: no program is configured, so every statement fails.
    command: Option<WorkerCommand>,
    pools: Mutex<HashMap<String, Arc<WarehousePool>>>,
}

#[derive(Debug, Default)]
pub(super) struct WarehousePool {
    state: Mutex<ChildrenState>,
    child_freed: Condvar,
    pub(super) cache: Mutex<CatalogCache>,
}

#[derive(Debug, Default)]
struct ChildrenState {
    /// Children that wait for a statement, and since when; the one that was used last is the last.
    idle: Vec<(LineProcess, Instant)>,
    busy: u32,
}

impl WarehousePools {
    pub(in crate::database) fn new(command: WorkerCommand) -> Self {
        Self {
            command: Some(command),
            pools: Mutex::default(),
        }
    }

    /// Runs `statement` in a child process of `warehouse`. Blocks.
    pub(in crate::database) fn run(
        &self,
        warehouse: &Warehouse,
        statement: &WarehouseStatement,
        running: &RunningStatements,
    ) -> Result<StatementAnswer, QueryError> {
        let pool = self.pool(warehouse);
        let idle = pool.acquire(warehouse.max_connections)?;
        let slot = BusySlot(&pool);
        let request = serde_json::to_vec(statement)
            .map_err(|error| QueryError::WorkerFailed(format!("cannot be asked: {error}")))?;
        let ask = |child: &mut LineProcess, more_time| {
            let _running = running.add(child)?;
            child.send(&request)?;
            child.receive(statement.time_limit + ANSWER_GRACE + more_time)
        };
        // A connection may have ended while it was idle.
        let reused = idle.and_then(|mut child| match ask(&mut child, Duration::ZERO) {
            Err(QueryError::WorkerFailed(_)) => None,
            answered => Some((child, answered)),
        });
        let (child, line) = match reused {
            Some(answered) => answered,
            None => {
                let mut child = self.start(warehouse)?;
                let answered = ask(&mut child, CONNECT_TIMEOUT);
                (child, answered)
            }
        };
        let line = line.map_err(|error| with_seconds(error, statement.time_limit))?;
        // Another text came from the driver, and the answer may follow it; the child is not used again.
        let result =
            serde_json::from_slice::<Result<StatementAnswer, QueryError>>(&line).map_err(|_| {
                QueryError::WorkerFailed("sent an invalid answer; send the statement again".into())
            })?;
        // DuckDB locks its file while it is open.
        if warehouse.driver != WarehouseDriver::DuckDb {
            pool.state.lock().idle.push((child, Instant::now()));
        }
        drop(slot);
        result.map_err(|error| with_seconds(error, statement.time_limit))
    }

    /// The children of `warehouse`.
    pub(super) fn pool(&self, warehouse: &Warehouse) -> Arc<WarehousePool> {
        // Two projects may give the same id to different warehouses.
        let key = serde_json::to_string(warehouse).unwrap_or_else(|_| warehouse.id.clone());
        Arc::clone(self.pools.lock().entry(key).or_default())
    }

    fn start(&self, warehouse: &Warehouse) -> Result<LineProcess, QueryError> {
        let command = self.command.as_ref().ok_or_else(|| {
            QueryError::WorkerFailed("cannot start: no program was given for it".into())
        })?;
        let mut child = command.start_with(&variables(warehouse))?;
        let line = serde_json::to_vec(warehouse)
            .map_err(|error| QueryError::WorkerFailed(format!("cannot be asked: {error}")))?;
        child.send(&line)?;
        Ok(child)
    }
}

fn with_seconds(error: QueryError, time_limit: Duration) -> QueryError {
    match error {
        QueryError::TimedOut(_) => QueryError::TimedOut(time_limit.as_secs().max(1)),
        other => other,
    }
}

/// The variables of this process that the driver and the secrets of `warehouse` need.
fn variables(warehouse: &Warehouse) -> Vec<(String, OsString)> {
    let of_secrets = warehouse.keys.values().filter_map(|value| {
        let name = value.strip_prefix("env:")?.trim();
        (!name.is_empty() && !name.contains(['=', '\0'])).then(|| name.to_owned())
    });
    let names = DRIVER_VARIABLES
        .into_iter()
        .map(str::to_owned)
        .chain(of_secrets);
    names
        .filter_map(|name| Some((name.clone(), env::var_os(name)?)))
        .collect()
}

impl WarehousePool {
    /// Waits until a child may run; returns one that is idle.
    fn acquire(&self, most: u32) -> Result<Option<LineProcess>, QueryError> {
        let mut state = self.state.lock();
        let is_full = |state: &mut ChildrenState| state.busy >= most;
        self.child_freed
            .wait_while_for(&mut state, is_full, MAX_QUEUE_WAIT);
        if is_full(&mut state) {
            return Err(QueryError::QueueFull);
        }
        state.busy += 1;
        state
            .idle
            .retain_mut(|(child, since)| since.elapsed() < IDLE_TIME && child.is_waiting());
        Ok(state.idle.pop().map(|(child, _)| child))
    }
}

/// Permission to use a child.
struct BusySlot<'a>(&'a WarehousePool);

impl Drop for BusySlot<'_> {
    fn drop(&mut self) {
        self.0.state.lock().busy -= 1;
        self.0.child_freed.notify_one();
    }
}
