//! Runs work that may panic without ending the program: the caller gets the panic as an error.
//!
//! The panic hook runs before the panic can be caught, and ends all agents of the program. It checks here first whether
//! it has to. The module must not depend on the kind of work.

use std::cell::Cell;

use tokio::task::{self, JoinError};

thread_local! {
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`; the caller catches its panic.
pub(crate) fn with_caught_panics<T>(work: impl FnOnce() -> T) -> T {
    let _mark = PanicFlagReset(IS_GUARDED.replace(true));
    work()
}

/// Runs `work` on a thread where it may block. The error is its panic, or the end of the runtime.
pub async fn spawn_blocking_caught<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    task::spawn_blocking(move || with_caught_panics(work)).await
}

/// True on a thread that runs such work, also while it panics.
pub fn is_panic_caught() -> bool {
    // A thread that is exiting runs no such work.
    IS_GUARDED.try_with(Cell::get).unwrap_or(false)
}

/// Restores the previous mark when the work ends, because threads are reused.
struct PanicFlagReset(bool);

impl Drop for PanicFlagReset {
    fn drop(&mut self) {
        IS_GUARDED.set(self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn guard_is_set_only_during_the_work() {
        assert!(!is_panic_caught());
        with_caught_panics(|| {
            assert!(is_panic_caught());
            with_caught_panics(|| ());
            assert!(is_panic_caught(), "the outer work is still guarded");
            assert!(
                !std::thread::spawn(is_panic_caught).join().unwrap(),
                "another thread is not part of it"
            );
        });
        assert!(!is_panic_caught());
        assert!(catch_unwind(|| with_caught_panics(|| panic!("on purpose"))).is_err());
        assert!(!is_panic_caught());
    }

    #[tokio::test]
    async fn panic_in_blocking_thread_is_returned_as_error() {
        assert!(spawn_blocking_caught(is_panic_caught).await.unwrap());
        assert!(
            spawn_blocking_caught(|| panic!("on purpose"))
                .await
                .unwrap_err()
                .is_panic()
        );
    }
}
