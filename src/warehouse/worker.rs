//! The process: its limits, its lines, and its end when its parent closes stdin.

#![expect(clippy::disallowed_methods, reason = "the process's own descriptors")]

use std::{
    io::{self, BufRead as _, Write as _},
    process::ExitCode,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::Duration,
};

use super::session::{Cancellation, WarehouseSession};
use ingestdeck_ingest::{
    QueryError, StatementAnswer, Warehouse, WarehouseStatement, confine_process,
};

/// Memory that the process may write to, in bytes. The runtime of Go reserves far more address space than it uses.
const DATA_BYTES: u64 = 3 << 30;
/// Processor time in seconds, in case the parent cannot end the process.
const CPU_SECONDS: u64 = 60 * 60;
const MAX_OPEN_FILES: u64 = 512;
/// Time in which a statement ends after it was cancelled.
const CANCEL_GRACE: Duration = Duration::from_secs(2);

/// Runs the child process until its stdin closes or its connection breaks.
pub fn run() -> ExitCode {
    let confined = confine_process(CPU_SECONDS, MAX_OPEN_FILES, None, Some(DATA_BYTES))
        .map_err(|why| QueryError::WorkerFailed(format!("cannot limit itself: {why}")));
    let cancellation = Cancellation::default();
    let lines = read_lines(Arc::clone(&cancellation));
    match confined {
        Ok(()) => serve(&lines, &cancellation),
        // The first line is the warehouse, which has no answer.
        Err(error) => {
            answer(&Err(error));
            ExitCode::FAILURE
        }
    }
}

fn serve(lines: &Receiver<Vec<u8>>, cancellation: &Cancellation) -> ExitCode {
    let invalid = |error: serde_json::Error| {
        QueryError::WorkerFailed(format!("cannot read its request: {error}"))
    };
    let Ok(first) = lines.recv() else {
        return ExitCode::FAILURE;
    };
    let warehouse = serde_json::from_slice::<Warehouse>(&first).map_err(invalid);
    let mut session = None;
    for line in lines {
        let statement = serde_json::from_slice::<WarehouseStatement>(&line).map_err(invalid);
        let result = statement.and_then(|statement| {
            let warehouse = warehouse.as_ref().map_err(Clone::clone)?;
            if session.is_none() {
                session = Some(WarehouseSession::open(warehouse)?);
            }
            let session = session
                .as_mut()
                .ok_or_else(|| QueryError::WorkerFailed("has no session".into()))?;
            session.run(&statement, cancellation)
        });
        let is_over = session.as_ref().is_none_or(WarehouseSession::is_broken);
        if !answer(&result) || is_over {
            break;
        }
    }
    // A driver may crash while it is unloaded, so nothing is dropped.
    std::process::exit(0)
}

/// Writes `result` as a line; false if the parent is gone.
fn answer(result: &Result<StatementAnswer, QueryError>) -> bool {
    let mut line = serde_json::to_vec(result).unwrap_or_default();
    line.push(b'\n');
    let mut output = io::stdout();
    output
        .write_all(&line)
        .and_then(|()| output.flush())
        .is_ok()
}

/// The lines of stdin. When it closes, the running statement is cancelled, and the process ends soon after.
fn read_lines(cancellation: Cancellation) -> Receiver<Vec<u8>> {
    let (sender, lines): (Sender<Vec<u8>>, _) = mpsc::channel();
    let read = move || {
        for line in io::stdin().lock().split(b'\n') {
            let Ok(line) = line else { break };
            if sender.send(line).is_err() {
                break;
            }
        }
        drop(sender);
        let running = cancellation.lock().take();
        // A thread, because a server that does not answer blocks the cancellation, too.
        let cancel = move || running.map(|running| running.try_cancel());
        let _ = thread::Builder::new().name("cancel".into()).spawn(cancel);
        thread::park_timeout(CANCEL_GRACE);
        std::process::exit(1);
    };
    // Without the thread there are no lines, and the process ends.
    let _ = thread::Builder::new().name("stdin".into()).spawn(read);
    lines
}
