//! The child processes of warehouses: one connection each, started when a statement needs it and kept for the next one.
//!
//! A child runs one statement at a time, in a transaction that leaves nothing behind, so it can serve another attempt
//! afterwards. The number of children of a warehouse is the number of its connections.

use std::{
    collections::HashMap,
    env,
    ffi::OsString,
    fmt,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::{
    QueryError, StatementAnswer, Warehouse, WarehouseDriver, WarehouseStatement,
    catalog::CatalogCache,
};
use crate::database::process::{LineProcess, LineReply, WorkerCommand};

/// Longest wait for a connection that others use, and for tables that others read.
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

/// The statements of one attempt that run or wait now.
#[derive(Default)]
pub(in crate::database) struct RunningStatements(Mutex<RunningState>);

#[derive(Default)]
struct RunningState {
    is_stopped: bool,
    last: u64,
    stops: Vec<(u64, StopAction)>,
}

/// Ends one statement, or its wait.
type StopAction = Box<dyn FnOnce() + Send>;

impl fmt::Debug for RunningStatements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningStatements").finish_non_exhaustive()
    }
}

impl RunningStatements {
    /// Ends what runs and waits; no other statement starts.
    pub(in crate::database) fn stop(&self) {
        let stops = {
            let mut state = self.0.lock();
            state.is_stopped = true;
            std::mem::take(&mut state.stops)
        };
        // Without the lock, which those that wait need to see why they were woken.
        for (_, stop) in stops {
            stop();
        }
    }

    fn is_stopped(&self) -> bool {
        self.0.lock().is_stopped
    }

    fn add(&self, stop: StopAction) -> Result<RunningStatement<'_>, QueryError> {
        let mut state = self.0.lock();
        if state.is_stopped {
            return Err(QueryError::Stopped);
        }
        state.last += 1;
        let id = state.last;
        state.stops.push((id, stop));
        Ok(RunningStatement(self, id))
    }
}

/// A statement that [`RunningStatements::stop`] ends.
struct RunningStatement<'a>(&'a RunningStatements, u64);

impl Drop for RunningStatement<'_> {
    fn drop(&mut self) {
        self.0.0.lock().stops.retain(|(id, _)| *id != self.1);
    }
}

/// A value that several attempts share and wait for.
#[derive(Debug, Default)]
pub(super) struct AwaitedState<T> {
    value: Mutex<T>,
    changed: Condvar,
}

impl<T: Send + 'static> AwaitedState<T> {
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let result = change(&mut self.value.lock());
        self.changed.notify_all();
        result
    }

    /// Waits until `is_ready`, which gets the locked state, returns true.
    ///
    /// # Errors
    /// If the attempt of `running` ends first, or [`MAX_QUEUE_WAIT`].
    pub(super) fn wait(
        self: &Arc<Self>,
        running: &RunningStatements,
        mut is_ready: impl FnMut(&mut T) -> bool,
    ) -> Result<MutexGuard<'_, T>, QueryError> {
        let state = Arc::clone(self);
        let _running = running.add(Box::new(move || state.change(|_| ())))?;
        let deadline = Instant::now() + MAX_QUEUE_WAIT;
        let mut value = self.value.lock();
        while !is_ready(&mut value) {
            if running.is_stopped() {
                return Err(QueryError::Stopped);
            }
            if Instant::now() >= deadline {
                return Err(QueryError::QueueFull);
            }
            self.changed.wait_until(&mut value, deadline);
        }
        Ok(value)
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
    children: Arc<AwaitedState<ChildrenState>>,
    pub(super) cache: Arc<AwaitedState<CatalogCache>>,
}

/// Its idle children end with it.
impl Drop for WarehousePool {
    fn drop(&mut self) {
        let idle = self
            .children
            .change(|state| std::mem::take(&mut state.idle));
        drop(idle);
    }
}

#[derive(Debug, Default)]
struct ChildrenState {
    /// Children that wait for a statement, and until when; the one that was used last is the last.
    idle: Vec<(LineProcess, Instant)>,
    busy: u32,
    /// Whether a thread ends the children that are not used.
    has_reaper: bool,
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
        let idle = pool.acquire(warehouse.max_connections, running)?;
        let slot = BusySlot(&pool);
        let request = serde_json::to_vec(statement)
            .map_err(|error| QueryError::WorkerFailed(format!("cannot be asked: {error}")))?;
        let ask = |child: &mut LineProcess, more_time| {
            let stop = child.stop();
            // Without a receiver, the statement has ended by itself.
            let stop = move || drop(stop.send(LineReply::Stopped));
            let _running = running.add(Box::new(stop))?;
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
            pool.keep(child, Instant::now() + IDLE_TIME);
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
    fn acquire(
        &self,
        most: u32,
        running: &RunningStatements,
    ) -> Result<Option<LineProcess>, QueryError> {
        let mut state = self.children.wait(running, |state| state.busy < most)?;
        state.busy += 1;
        let unused = state.take_unused(Instant::now());
        let child = state.idle.pop().map(|(child, _)| child);
        drop(state);
        drop(unused);
        Ok(child)
    }

    /// Keeps an idle child until `end`, when a thread ends it. One thread serves all children, while there are any.
    fn keep(&self, child: LineProcess, end: Instant) {
        let needs_reaper = self.children.change(|state| {
            state.idle.push((child, end));
            !std::mem::replace(&mut state.has_reaper, true)
        });
        if needs_reaper {
            let children = Arc::clone(&self.children);
            let reaper = thread::Builder::new().name("warehouse-idle".into());
            if reaper.spawn(move || end_unused(&children)).is_err() {
                // The next statement ends the children instead.
                self.children.change(|state| state.has_reaper = false);
            }
        }
    }
}

impl ChildrenState {
    /// Removes the idle children that have ended, or shall end by `now`.
    fn take_unused(&mut self, now: Instant) -> Vec<LineProcess> {
        let is_unused =
            |(child, end): &mut (LineProcess, Instant)| *end <= now || !child.is_waiting();
        let unused = self.idle.extract_if(.., is_unused);
        unused.map(|(child, _)| child).collect()
    }
}

/// Ends idle children at their time, until there are none.
fn end_unused(children: &AwaitedState<ChildrenState>) {
    let mut state = children.value.lock();
    loop {
        let unused = state.take_unused(Instant::now());
        if !unused.is_empty() {
            MutexGuard::unlocked(&mut state, || drop(unused));
            children.changed.notify_all();
            continue;
        }
        let Some(next) = state.idle.iter().map(|(_, end)| *end).min() else {
            break;
        };
        children.changed.wait_until(&mut state, next);
    }
    state.has_reaper = false;
    children.changed.notify_all();
}

/// Permission to use a child.
struct BusySlot<'a>(&'a WarehousePool);

impl Drop for BusySlot<'_> {
    fn drop(&mut self) {
        self.0.children.change(|state| state.busy -= 1);
    }
}

#[cfg(test)]
mod tests;
