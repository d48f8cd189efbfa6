//! What the tests of several crates share: fuzzing, waiting and terminals.
//!
//! It does not know the product; assertions belong in the tests.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that cannot continue should report the line"
)]

pub mod fuzz;
pub mod postgres;

use std::{fs::File, os::unix::fs::OpenOptionsExt as _, thread, time::Duration};

use nix::{
    fcntl::OFlag,
    pty::{PtyMaster, grantpt, posix_openpt, ptsname_r, unlockpt},
};

/// A path that does not exist on any machine. An absolute path such as the home of a service user may exist.
pub fn missing(name: &str) -> String {
    format!("{}/missing/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Time between two checks of a condition that another process or thread changes.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Waits before the next check of a condition that another process or thread changes, and leaves it the processor.
pub fn pause_before_check() {
    thread::park_timeout(POLL_INTERVAL);
}

/// [`pause_before_check`] for a task, which lets other tasks run meanwhile.
pub async fn pause_task_before_check() {
    // The limit is what ends it.
    let _ = tokio::time::timeout(POLL_INTERVAL, std::future::pending::<()>()).await;
}

/// Both ends of a new terminal. A process that another test starts does not inherit them, so dropping the first one
/// closes the terminal.
pub fn open_terminal() -> (PtyMaster, File) {
    let master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let mut options = File::options();
    let slave = options
        .read(true)
        .write(true)
        .custom_flags(OFlag::O_NOCTTY.bits());
    let slave = slave.open(ptsname_r(&master).unwrap()).unwrap();
    (master, slave)
}
