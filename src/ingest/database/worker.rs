//! The child process that reads a SQLite file: limits itself, reads one request from stdin, answers it on stdout, ends.
//!
//! Both are one line of JSON. SQLite can be interrupted only between its steps, and a single step may take hours, so
//! time and memory are limited by the kernel and by the parent process.

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
    ktx_history::tables::{self, PieceLimits},
    read_only_connection,
};

/// First argument of the program that makes it a worker. Not a command for people.
pub const SUBCOMMAND: &str = "sql-worker";

/// Largest request in bytes.
const MAX_REQUEST_BYTES: u64 = 4 << 20;
/// Largest answer in bytes.
pub(super) const MAX_REPLY_BYTES: u64 = 16 << 20;

/// Memory of SQLite in MiB. Temporary tables and sorts count, because they are kept in memory.
pub(super) const SQLITE_MEMORY_MIB: u64 = 256;
/// Address space of the whole process in bytes: the second lock behind [`SQLITE_MEMORY_MIB`].
#[cfg(target_os = "linux")]
const ADDRESS_SPACE_BYTES: u64 = 1 << 30;
/// Processor time in seconds, in case the parent cannot kill it. Above every time limit.
const CPU_SECONDS: u64 = 20;
/// Open files: pipes, the database, what belongs to it, time zone.
const MAX_OPEN_FILES: u64 = 24;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WorkerRequest {
    /// Absolute path without symbolic links.
    pub(super) database: OsString,
    /// SQLite is interrupted after this time, if it can be.
    pub(super) time_limit: Duration,
    pub(super) operation: WorkerOperation,
}

/// How to read it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum WorkerOperation {
    /// Runs one statement; answers [`read_only_connection::Rows`].
    Query { sql: String, limits: RowLimits },
    /// Looks up tables and columns; answers a [`catalog::TableLookup`] for each.
    LookUp { targets: Vec<LookupTarget> },
    /// Finds tables and columns by words; answers [`catalog::NameMatches`].
    Search { words: Vec<String>, limit: usize },
    /// Reads completed runs of KTX from a row downwards; answers an optional [`tables::Piece`].
    KtxRuns { from: i64, limits: PieceLimits },
    /// Reads KTX's provenance from a row downwards; answers a [`tables::Piece`].
    KtxProvenance { from: i64, limits: PieceLimits },
}

/// The whole process: limits itself, answers one request on stdin, and ends early when stdin closes.
pub fn run() -> ExitCode {
    let confined = limit_process().map_err(|why| QueryError::WorkerFailed(format!("cannot limit itself: {why}")));
    let request = confined.and_then(|()| read_request(io::stdin().lock()));
    if request.is_ok() {
        exit_when_stdin_closes();
    }
    let mut output = io::stdout();
    match output.write_all(&reply(request)).and_then(|()| output.flush()) {
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
    let opened = request.and_then(|WorkerRequest { database, time_limit, operation }| {
        Ok((read_only_connection::open(Path::new(&database), Instant::now() + time_limit)?, operation))
    });
    match opened {
        Err(error) => line(&Err::<(), _>(error)),
        Ok((database, WorkerOperation::Query { sql, limits })) => {
            line(&read_only_connection::query(&database, &sql, limits))
        }
        Ok((database, WorkerOperation::LookUp { targets })) => line(&catalog::look_up(&database, &targets)),
        Ok((database, WorkerOperation::Search { words, limit })) => line(&catalog::search(&database, &words, limit)),
        Ok((database, WorkerOperation::KtxRuns { from, limits })) => line(&tables::runs(&database, from, limits)),
        Ok((database, WorkerOperation::KtxProvenance { from, limits })) => {
            line(&tables::provenance(&database, from, limits))
        }
    }
}

fn line<T: Serialize>(result: &Result<T, QueryError>) -> Vec<u8> {
    let mut line = serde_json::to_vec(result).unwrap_or_default();
    if line.len() as u64 >= MAX_REPLY_BYTES {
        line = serde_json::to_vec(&Err::<(), _>(QueryError::AnswerTooLarge(MAX_REPLY_BYTES))).unwrap_or_default();
    }
    line.push(b'\n');
    line
}

/// Gives up everything that reading one file does not need, before anything is opened.
fn limit_process() -> Result<(), String> {
    close_inherited_files();
    // Instead of the signal that ends the process, a write gets an error.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGXFSZ);
    signals.thread_block().map_err(|error| format!("signal mask: {error}"))?;
    for (resource, limit) in [
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_FSIZE, 0),
        (Resource::RLIMIT_CPU, CPU_SECONDS),
        (Resource::RLIMIT_NOFILE, MAX_OPEN_FILES),
        // Other systems count what they map themselves.
        #[cfg(target_os = "linux")]
        (Resource::RLIMIT_AS, ADDRESS_SPACE_BYTES),
    ] {
        // A lower limit of the user stays.
        let lowered = getrlimit(resource).and_then(|(_, highest)| {
            let limit = limit.min(highest);
            setrlimit(resource, limit, limit)
        });
        lowered.map_err(|error| format!("{resource:?}: {error}"))?;
    }
    // The limit is one of the process, so any connection can set it.
    let connection = rusqlite::Connection::open_in_memory().map_err(|error| format!("memory: {error}"))?;
    let limit = i64::try_from(SQLITE_MEMORY_MIB << 20).map_err(|error| error.to_string())?;
    let set: Result<i64, _> = connection.query_row(&format!("PRAGMA hard_heap_limit = {limit}"), [], |row| row.get(0));
    match set {
        Ok(set) if set == limit => Ok(()),
        Ok(set) => Err(format!("memory: the limit is {set} instead of {limit} bytes")),
        Err(error) => Err(format!("memory: {error}")),
    }
}

/// Closes what the program that started the starter of this process leaked to it.
fn close_inherited_files() {
    let listed = fs::read_dir("/dev/fd").into_iter().flatten();
    let open: Vec<i32> = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    for file in open.into_iter().filter(|file| *file > 2) {
        // The listing itself is among them, and closed already.
        let _ = nix::unistd::close(file);
    }
}

/// Ends the process when stdin closes, which it does when the process at its other end dies.
fn exit_when_stdin_closes() {
    let watch = || {
        // Nothing follows the request; this returns at the end of stdin.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(1);
    };
    // Without it the time limits still hold.
    let _ = thread::Builder::new().name("stdin".into()).spawn(watch);
}
