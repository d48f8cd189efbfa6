//! Reads databases in child processes. For SQLite files, this module limits how many run concurrently and decodes their
//! answers; for warehouses, [`super::warehouse`] does.
//!
//! Each read of a SQLite file runs in a separate child process ([`super::process`]), so no state of one statement reaches
//! the next.

use std::{
    num::NonZero,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use serde::de::DeserializeOwned;

use super::{
    Database, LookupTarget, QueryError, RowLimits, ServerInfo, TableInfo, TableLookup, Warehouse,
    catalog::NameMatches,
    ktx_history::{self, KtxHistory},
    process::WorkerCommand,
    warehouse::{
        CATALOG_TIMEOUT, CatalogProgress, CatalogReader, RunningStatements, StatementAnswer,
        StatementKind, WarehousePools, WarehouseStatement,
    },
    worker::{self, WorkerOperation, WorkerRequest},
};

/// Time limit of one statement of the agent.
pub(crate) const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between the time limit and the kill, in which a child process can answer with the rows it has so far.
const KILL_GRACE: Duration = Duration::from_secs(1);

/// Lower and upper bound of concurrent child processes; between them, one per processor.
const CONCURRENCY_RANGE: (usize, usize) = (2, 4);
/// Most reads that wait for a worker. Far above what concurrent agents send; the limit stops a hostile one.
const MAX_QUEUED: usize = 1_024;
/// Longest wait for a worker, equal to an agent's tool timeout. It does not count as run time.
const MAX_QUEUE_WAIT: Duration = Duration::from_secs(600);

/// Reads databases in child processes. Clones share their limits.
#[derive(Clone, Debug, Default)]
pub struct SqlWorkers(Arc<WorkerPool>, Arc<RunningStatements>);

#[derive(Debug, Default)]
struct WorkerPool {
    launcher: WorkerLauncher,
    queue: WorkerQueue,
    warehouses: WarehousePools,
}

/// How a worker is started.
#[derive(Debug, Default)]
enum WorkerLauncher {
    /// As a child process.
    Program(WorkerCommand),
    /// No program is configured, so every read fails.
    #[cfg(not(test))]
    #[default]
    Missing,
    /// On a thread of the test process.
    #[cfg(test)]
    #[default]
    InProcess,
}

impl SqlWorkers {
    /// Starts `program` for every read. It must call [`super::run_sql_worker`] when its first argument is
    /// [`super::SQL_WORKER`].
    pub fn new(program: PathBuf) -> Self {
        Self::with_command(WorkerCommand::new(program, vec![worker::SUBCOMMAND.into()]))
    }

    pub(super) fn with_command(command: WorkerCommand) -> Self {
        let warehouses = WarehousePools::new(command.with_subcommand(super::WAREHOUSE_WORKER));
        Self(
            Arc::new(WorkerPool {
                launcher: WorkerLauncher::Program(command),
                queue: WorkerQueue::default(),
                warehouses,
            }),
            Arc::default(),
        )
    }

    /// The same workers for one attempt, whose statements [`Self::stop`] ends.
    pub(crate) fn for_attempt(&self) -> Self {
        Self(Arc::clone(&self.0), Arc::default())
    }

    /// Ends the statements on warehouses that run or wait now, also those of the catalogue. Those on files end at their
    /// time limit.
    pub(crate) fn stop(&self) {
        self.1.stop();
    }

    /// Runs `sql`, which must be one read-only statement, and returns its rows. Blocks.
    pub(crate) fn query(
        &self,
        database: &Database,
        time_limit: Duration,
        sql: &str,
        limits: RowLimits,
    ) -> Result<StatementAnswer, QueryError> {
        let sql = sql.to_owned();
        match database {
            Database::Sqlite(path) => {
                self.read(path, time_limit, WorkerOperation::Query { sql, limits })
            }
            Database::Warehouse(warehouse) => self.0.warehouses.run(
                warehouse,
                &WarehouseStatement {
                    sql,
                    limits,
                    time_limit,
                    kind: StatementKind::Agent,
                },
                &self.1,
            ),
        }
    }

    /// Looks up tables and columns and returns one answer per target. `time_limit` is that of a file; each query of a
    /// warehouse has that of its settings. Blocks.
    pub(crate) fn look_up(
        &self,
        database: &Database,
        time_limit: Duration,
        targets: Vec<LookupTarget>,
    ) -> Result<Vec<TableLookup>, QueryError> {
        match database {
            Database::Sqlite(path) => {
                self.read(path, time_limit, WorkerOperation::LookUp { targets })
            }
            Database::Warehouse(warehouse) => {
                let reader = self.catalog_reader(warehouse, warehouse.query_timeout);
                self.0.warehouses.look_up(reader, &targets)
            }
        }
    }

    /// The first `limit` tables and columns whose names contain one of `words` (lower case); all tables if `words` is
    /// empty. `time_limit` is as for [`Self::look_up`]. Blocks.
    pub(crate) fn search(
        &self,
        database: &Database,
        time_limit: Duration,
        words: &[String],
        limit: usize,
    ) -> Result<NameMatches, QueryError> {
        match database {
            Database::Sqlite(path) => self.read(
                path,
                time_limit,
                WorkerOperation::Search {
                    words: words.to_vec(),
                    limit,
                },
            ),
            Database::Warehouse(warehouse) => {
                let reader = self.catalog_reader(warehouse, warehouse.query_timeout);
                self.0.warehouses.search(reader, words, limit)
            }
        }
    }

    /// Every table of a warehouse, with its columns and keys. Blocks.
    pub fn tables(
        &self,
        warehouse: &Warehouse,
        progress: &mut dyn FnMut(CatalogProgress),
    ) -> Result<Vec<TableInfo>, QueryError> {
        let reader = self.catalog_reader(warehouse, CATALOG_TIMEOUT);
        self.0.warehouses.tables(reader, progress)
    }

    fn catalog_reader<'a>(
        &'a self,
        warehouse: &'a Warehouse,
        time_limit: Duration,
    ) -> CatalogReader<'a> {
        CatalogReader {
            warehouse,
            running: &self.1,
            time_limit,
        }
    }

    /// Every table of a SQLite file, with its columns and keys. Blocks.
    pub fn sqlite_tables(
        &self,
        database: &Path,
        progress: &mut dyn FnMut(CatalogProgress),
    ) -> Result<Vec<TableInfo>, QueryError> {
        const TABLES_PER_READ: usize = 200;
        let mut tables: Vec<TableInfo> = Vec::new();
        let mut columns = 0;
        loop {
            let operation = WorkerOperation::Describe {
                first: tables.len(),
                limit: TABLES_PER_READ,
            };
            let page: Vec<TableInfo> = self.read(database, STATEMENT_TIMEOUT, operation)?;
            let is_last = page.len() < TABLES_PER_READ;
            columns += page.iter().map(|table| table.columns.len()).sum::<usize>();
            tables.extend(page);
            progress(CatalogProgress {
                tables: tables.len(),
                columns,
            });
            if is_last {
                return Ok(tables);
            }
        }
    }

    /// Connects to a warehouse and asks what it is. Blocks.
    pub fn server(&self, warehouse: &Warehouse) -> Result<ServerInfo, QueryError> {
        let reader = self.catalog_reader(warehouse, CATALOG_TIMEOUT);
        self.0.warehouses.server(reader)
    }

    /// Reads KTX's history from its database; `None` if KTX never ingested anything. Each piece is read in a new
    /// process, all of them within `time_limit`. Blocks.
    pub fn ktx_history(
        &self,
        database: &Path,
        time_limit: Duration,
    ) -> Result<Option<KtxHistory>, QueryError> {
        let deadline = Instant::now() + time_limit;
        let remaining = || match deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(QueryError::TimedOut(time_limit.as_secs())),
            remaining => Ok(remaining.min(STATEMENT_TIMEOUT)),
        };
        let limits = ktx_history::LIMITS.piece;
        let history = ktx_history::load(
            |from| {
                self.read(
                    database,
                    remaining()?,
                    WorkerOperation::KtxRuns { from, limits },
                )
            },
            |from| {
                self.read(
                    database,
                    remaining()?,
                    WorkerOperation::KtxProvenance { from, limits },
                )
            },
            ktx_history::LIMITS,
        );
        history.map_err(|error| match error {
            QueryError::TimedOut(_) => QueryError::TimedOut(time_limit.as_secs()),
            other => other,
        })
    }

    fn read<T: DeserializeOwned>(
        &self,
        database: &Path,
        time_limit: Duration,
        operation: WorkerOperation,
    ) -> Result<T, QueryError> {
        let request = WorkerRequest {
            database: database.as_os_str().to_owned(),
            time_limit,
            operation,
        };
        let request = serde_json::to_vec(&request)
            .map_err(|error| QueryError::WorkerFailed(format!("cannot be asked: {error}")))?;
        let _slot = self.0.queue.acquire(MAX_QUEUE_WAIT)?;
        let reply = match &self.0.launcher {
            WorkerLauncher::Program(command) => command.exchange(request, time_limit + KILL_GRACE),
            #[cfg(not(test))]
            WorkerLauncher::Missing => Err(QueryError::WorkerFailed(
                "cannot start: no program was given for it".into(),
            )),
            #[cfg(test)]
            WorkerLauncher::InProcess => super::process::exchange_in_process(&request),
        };
        let result = reply.and_then(|reply| {
            serde_json::from_slice::<Result<T, QueryError>>(&reply).unwrap_or_else(|_| {
                Err(QueryError::WorkerFailed(
                    "sent an invalid answer; send the statement again".into(),
                ))
            })
        });
        match result {
            Err(QueryError::TimedOut(_)) => Err(QueryError::TimedOut(time_limit.as_secs().max(1))),
            other => other,
        }
    }
}

/// Limits the number of concurrent reads. Reads of the same file do not need to exclude each other.
#[derive(Debug)]
struct WorkerQueue {
    max_running: usize,
    state: Mutex<WorkerQueueState>,
    slot_freed: Condvar,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct WorkerQueueState {
    running: usize,
    waiting: usize,
}

impl Default for WorkerQueue {
    fn default() -> Self {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        Self::new(processors.clamp(CONCURRENCY_RANGE.0, CONCURRENCY_RANGE.1))
    }
}

impl WorkerQueue {
    fn new(concurrent: usize) -> Self {
        Self {
            max_running: concurrent,
            state: Mutex::default(),
            slot_freed: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, WorkerQueueState> {
        self.state.lock()
    }

    /// Waits until a worker may start.
    fn acquire(&self, longest_wait: Duration) -> Result<WorkerSlot<'_>, QueryError> {
        let mut state = self.state();
        if state.running >= self.max_running && state.waiting >= MAX_QUEUED {
            return Err(QueryError::QueueFull);
        }
        state.waiting += 1;
        let is_full = |state: &mut WorkerQueueState| state.running >= self.max_running;
        self.slot_freed
            .wait_while_for(&mut state, is_full, longest_wait);
        state.waiting -= 1;
        if is_full(&mut state) {
            return Err(QueryError::QueueFull);
        }
        state.running += 1;
        Ok(WorkerSlot(self))
    }
}

/// Permission to run one read.
#[derive(Debug)]
struct WorkerSlot<'a>(&'a WorkerQueue);

impl Drop for WorkerSlot<'_> {
    fn drop(&mut self) {
        self.0.state().running -= 1;
        self.0.slot_freed.notify_one();
    }
}

#[cfg(test)]
mod tests;
