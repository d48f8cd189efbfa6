//! Test doubles: a scripted Messages API, and a private home for the real CLI.
//!
//! This module must not know the product; assertions belong in the tests.

pub(crate) mod api;
pub(crate) mod cli;
pub(crate) mod files;
pub(crate) mod fuzz;
pub(crate) mod git;
pub(crate) mod hostile;
mod service;

use std::{fs::File, os::unix::fs::OpenOptionsExt as _, sync::LazyLock, thread, time::Duration};

use nix::{
    fcntl::OFlag,
    pty::{PtyMaster, grantpt, posix_openpt, ptsname_r, unlockpt},
};

/// A path that does not exist on any machine. An absolute path such as the home of a service user may exist.
pub(crate) fn missing(name: &str) -> String {
    format!("{}/tests/missing/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Time between two checks of a condition that another process or thread changes.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Path of the program. Cargo passes it to integration tests only; it builds the program for `tests/program.rs`, into
/// the parent directory of this test's.
pub(crate) fn program() -> &'static str {
    static PROGRAM: LazyLock<String> = LazyLock::new(|| {
        let test = std::env::current_exe().unwrap();
        let program = test.ancestors().nth(2).unwrap().join("ingestdeck");
        assert!(
            program.is_file(),
            "{program:?} is not built; run `cargo test` without `--lib`"
        );
        program.into_os_string().into_string().unwrap()
    });
    &PROGRAM
}

/// Waits before the next check of a condition that another process or thread changes, and leaves it the processor.
pub(crate) fn pause_before_check() {
    thread::park_timeout(POLL_INTERVAL);
}

/// [`pause_before_check`] for a task, which lets other tasks run meanwhile.
pub(crate) async fn pause_task_before_check() {
    // The limit is what ends it.
    let _ = tokio::time::timeout(POLL_INTERVAL, std::future::pending::<()>()).await;
}

/// Both ends of a new terminal. A process that another test starts does not inherit them, so dropping the first one
/// closes the terminal.
pub(crate) fn open_terminal() -> (PtyMaster, File) {
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
