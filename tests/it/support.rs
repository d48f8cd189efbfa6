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

use std::{sync::LazyLock, thread, time::Duration};

/// Time between two checks of a condition that another process or thread changes.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Path of the program. Cargo passes it to integration tests only; it builds the program for `tests/program.rs`, into
/// the parent directory of this test's.
pub(crate) fn program() -> &'static str {
    static PROGRAM: LazyLock<String> = LazyLock::new(|| {
        let test = std::env::current_exe().unwrap();
        let program = test.ancestors().nth(2).unwrap().join("ingestdeck");
        assert!(program.is_file(), "{program:?} is not built; run `cargo test` without `--lib`");
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
