//! The session of `ssh` that starts a worker: the login that it brings, and its end.

use std::{
    io::{self, BufRead as _, Read as _},
    thread,
    time::Duration,
};

use tokio::sync::watch;

use super::{
    exit::{CliError, Exit},
    playback_output,
};
use ingestdeck_agent::session_lock::{SessionLock, SessionLocks, TryLockOutcome};
use ingestdeck_engine::worker::nats::WorkerSession;

/// Reads the login that a session begins with. The second part becomes true at the end of the session.
pub(super) fn begin() -> Result<(String, WorkerSession), CliError> {
    /// Longer than the seed of any key.
    const MAX_SEED_BYTES: u64 = 1 << 10;
    let mut seed = String::new();
    let read = io::stdin().lock().take(MAX_SEED_BYTES).read_line(&mut seed);
    read.map_err(CliError::internal)?;
    let (ended, session) = watch::channel(false);
    thread::Builder::new()
        .name("session".to_owned())
        .spawn(move || {
            // An engine sends nothing more.
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            ended.send_replace(true);
        })
        .map_err(CliError::internal)?;
    Ok((seed.trim().to_owned(), session))
}

/// Waits until no other process serves under this name: that of an earlier session, for which this one is a connection.
/// `None` if the session ends before.
pub(super) fn wait_for_turn(
    locks: &SessionLocks,
    name: &str,
    session: &WorkerSession,
) -> Result<Option<SessionLock>, CliError> {
    /// How often the other process is looked for.
    const CHECK: Duration = Duration::from_millis(500);
    let mut is_known = false;
    loop {
        let outcome = locks.try_lock(name);
        let outcome = outcome.map_err(|error| CliError::from_error(Exit::Setup, &error))?;
        match outcome {
            TryLockOutcome::Acquired(lock) => return Ok(Some(lock)),
            TryLockOutcome::HeldByOther(_) if *session.borrow() => return Ok(None),
            TryLockOutcome::HeldByOther(_) => {
                if !std::mem::replace(&mut is_known, true) {
                    playback_output::print_stderr(
                        "ingestdeck: the worker of an earlier session works on through this one",
                    );
                }
                thread::sleep(CHECK);
            }
        }
    }
}
