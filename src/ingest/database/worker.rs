//! The child process that reads a SQLite file: limits itself, reads one request from stdin, answers on stdout, exits.
//!
//! Request and answer are one line of JSON each. SQLite can be interrupted only between its steps, and a single step
//! may take hours, so the kernel and the parent process limit time and memory.

#![expect(clippy::disallowed_methods, reason = "the process's own descriptors")]

use std::{
    ffi::OsString,
    fs,
    io::{self, BufRead, Write as _},
    path::Path,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use nix::sys::{
    resource::{Resource, getrlimit, setrlimit},
    signal::{SigSet, Signal},
};
use serde::{Deserialize, Serialize};

use super::{
    LookupTarget, QueryError, RowLimits, catalog,
    ktx_history::tables::{self, PageLimits},
    read_only_connection::{self, SQLITE_MEMORY_MIB},
};

/// First argument that starts the program as a worker. Not a command for users.
pub const SUBCOMMAND: &str = "sql-worker";

/// Largest request in bytes.
const MAX_REQUEST_BYTES: u64 = 4 << 20;
/// Largest answer in bytes.
pub(super) const MAX_REPLY_BYTES: u64 = 16 << 20;

/// Address space of the whole process in bytes, in case [`SQLITE_MEMORY_MIB`] does not hold.
const ADDRESS_SPACE_BYTES: u64 = 1 << 30;
/// Processor time in seconds, in case the parent cannot kill the worker. Longer than every time limit.
const CPU_SECONDS: u64 = 20;
const IS_LINUX: bool = cfg!(target_os = "linux");
/// Most open files: pipes, the database and its log files, time zone.
const MAX_OPEN_FILES: u64 = 24;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WorkerRequest {
    /// Absolute path without symbolic links.
    pub(super) database: OsString,
    /// SQLite is interrupted after this time, where it can be.
    pub(super) time_limit: Duration,
    pub(super) operation: WorkerOperation,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum WorkerOperation {
    /// Runs one statement; answers a [`super::StatementAnswer`].
    Query { sql: String, limits: RowLimits },
    /// Looks up tables and columns; answers one [`catalog::TableLookup`] per target.
    LookUp { targets: Vec<LookupTarget> },
    /// Finds tables and columns by words; answers [`catalog::NameMatches`].
    Search { words: Vec<String>, limit: usize },
    /// Describes tables from a position of the sorted list on; answers a list of [`catalog::TableInfo`].
    Describe { first: usize, limit: usize },
    /// Reads completed runs of KTX from a row downwards; answers an optional [`tables::KtxHistoryPage`].
    KtxRuns { from: i64, limits: PageLimits },
    /// Reads KTX's provenance from a row downwards; answers a [`tables::KtxHistoryPage`].
    KtxProvenance { from: i64, limits: PageLimits },
}

/// Runs the worker: limits the process, answers one request on stdin, and exits early when stdin closes.
pub fn run() -> ExitCode {
    let confined = confine_process(CPU_SECONDS, MAX_OPEN_FILES, Some(ADDRESS_SPACE_BYTES), None)
        .and_then(|()| limit_sqlite())
        .map_err(|why| QueryError::WorkerFailed(format!("cannot limit itself: {why}")));
    let request = confined.and_then(|()| read_request(io::stdin().lock()));
    if request.is_ok() {
        exit_when_stdin_closes();
    }
    let mut output = io::stdout();
    match output
        .write_all(&reply(request))
        .and_then(|()| output.flush())
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

pub(super) fn read_request(input: impl BufRead) -> Result<WorkerRequest, QueryError> {
    let mut line = Vec::new();
    let read = input.take(MAX_REQUEST_BYTES).read_until(b'\n', &mut line);
    let request = read.and_then(|_| Ok(serde_json::from_slice(&line)?));
    request.map_err(|error| QueryError::WorkerFailed(format!("cannot read its request: {error}")))
}

/// The line that answers `request`.
pub(super) fn reply(request: Result<WorkerRequest, QueryError>) -> Vec<u8> {
    let opened = request.and_then(
        |WorkerRequest {
             database,
             time_limit,
             operation,
         }| {
            Ok((
                read_only_connection::open(Path::new(&database), Instant::now() + time_limit)?,
                operation,
            ))
        },
    );
    match opened {
        Err(error) => line(&Err::<(), _>(error)),
        Ok((database, WorkerOperation::Query { sql, limits })) => line(
            &read_only_connection::query_with_tables(database, &sql, limits),
        ),
        Ok((database, WorkerOperation::LookUp { targets })) => {
            line(&catalog::look_up(&database, &targets))
        }
        Ok((database, WorkerOperation::Search { words, limit })) => {
            line(&catalog::search(&database, &words, limit))
        }
        Ok((database, WorkerOperation::Describe { first, limit })) => {
            line(&catalog::describe_page(&database, first, limit))
        }
        Ok((database, WorkerOperation::KtxRuns { from, limits })) => {
            line(&tables::runs(&database, from, limits))
        }
        Ok((database, WorkerOperation::KtxProvenance { from, limits })) => {
            line(&tables::provenance(&database, from, limits))
        }
    }
}

fn line<T: Serialize>(result: &Result<T, QueryError>) -> Vec<u8> {
    let mut line = serde_json::to_vec(result).unwrap_or_default();
    if line.len() as u64 >= MAX_REPLY_BYTES {
        line = serde_json::to_vec(&Err::<(), _>(QueryError::AnswerTooLarge(MAX_REPLY_BYTES)))
            .unwrap_or_default();
    }
    line.push(b'\n');
    line
}

/// Drops every right that reading a database does not need, before anything is opened: limits of the processor time in
/// seconds, of open files, and of address space or writable memory in bytes, which only Linux has.
///
/// # Errors
/// Names the limit that the system refuses.
pub fn confine_process(
    cpu_seconds: u64,
    open_files: u64,
    address_space: Option<u64>,
    data: Option<u64>,
) -> Result<(), String> {
    close_inherited_files();
    // With the signal blocked, a write beyond the limit fails instead of ending the process.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGXFSZ);
    signals
        .thread_block()
        .map_err(|error| format!("signal mask: {error}"))?;
    let limits = [
        (Resource::RLIMIT_CORE, Some(0)),
        (Resource::RLIMIT_FSIZE, Some(0)),
        (Resource::RLIMIT_CPU, Some(cpu_seconds)),
        (Resource::RLIMIT_NOFILE, Some(open_files)),
        // Other systems count memory that they map themselves.
        (Resource::RLIMIT_AS, address_space.filter(|_| IS_LINUX)),
        (Resource::RLIMIT_DATA, data.filter(|_| IS_LINUX)),
    ];
    for (resource, limit) in limits {
        let Some(limit) = limit else { continue };
        // Keeps a lower limit that the user has set.
        let lowered = getrlimit(resource).and_then(|(_, highest)| {
            let limit = limit.min(highest);
            setrlimit(resource, limit, limit)
        });
        lowered.map_err(|error| format!("{resource:?}: {error}"))?;
    }
    Ok(())
}

fn limit_sqlite() -> Result<(), String> {
    // The limit applies to the process, so any connection can set it.
    let connection =
        rusqlite::Connection::open_in_memory().map_err(|error| format!("memory: {error}"))?;
    let limit = i64::try_from(SQLITE_MEMORY_MIB << 20).map_err(|error| error.to_string())?;
    let set: Result<i64, _> =
        connection.query_row(&format!("PRAGMA hard_heap_limit = {limit}"), [], |row| {
            row.get(0)
        });
    match set {
        Ok(set) if set == limit => Ok(()),
        Ok(set) => Err(format!(
            "memory: the limit is {set} instead of {limit} bytes"
        )),
        Err(error) => Err(format!("memory: {error}")),
    }
}

/// Closes file descriptors that this process inherited from the program that started its parent.
fn close_inherited_files() {
    let listed = fs::read_dir("/dev/fd").into_iter().flatten();
    let open: Vec<i32> = listed
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for file in open.into_iter().filter(|file| *file > 2) {
        // The descriptor of the directory listing is included, and already closed.
        let _ = nix::unistd::close(file);
    }
}

/// Exits the process when stdin closes, which happens when the parent ends.
fn exit_when_stdin_closes() {
    let watch = || {
        // The parent sends nothing after the request; this returns at the end of stdin.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(1);
    };
    // If the thread cannot start, the time limits still apply.
    let _ = thread::Builder::new().name("stdin".into()).spawn(watch);
}
