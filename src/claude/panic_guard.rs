//! Work that may panic without harm: its answer says so, and everything around it goes on.
//!
//! The hook of a panic runs before anybody can catch it, and ends every agent of the program. It asks here first
//! whether it has to. It must not know what the work is.

use std::cell::Cell;

use tokio::task::{self, JoinError};

thread_local! {
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Does `work`, whose panic the caller catches.
pub fn with_panic_guard<T>(work: impl FnOnce() -> T) -> T {
    let _mark = GuardScope(IS_GUARDED.replace(true));
    work()
}

/// Does `work` in a thread where it may block. An error is its panic, or the end of the runtime.
pub async fn spawn_blocking_guarded<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    task::spawn_blocking(move || with_panic_guard(work)).await
}

/// True in a thread that does such work, while it panics as well.
pub fn is_panic_guarded() -> bool {
    // A thread that is ending does none.
    IS_GUARDED.try_with(Cell::get).unwrap_or(false)
}

/// Ends the mark however the work ends: threads are used again. Holds what was before.
struct GuardScope(bool);

impl Drop for GuardScope {
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
        assert!(!is_panic_guarded());
        with_panic_guard(|| {
            assert!(is_panic_guarded());
            with_panic_guard(|| ());
            assert!(is_panic_guarded(), "the outer work goes on");
            assert!(!std::thread::spawn(is_panic_guarded).join().unwrap(), "another thread is not part of it");
        });
        assert!(!is_panic_guarded());
        assert!(catch_unwind(|| with_panic_guard(|| panic!("on purpose"))).is_err());
        assert!(!is_panic_guarded());
    }

    #[tokio::test]
    async fn panic_in_blocking_thread_is_returned_as_error() {
        assert!(spawn_blocking_guarded(is_panic_guarded).await.unwrap());
        assert!(spawn_blocking_guarded(|| panic!("on purpose")).await.unwrap_err().is_panic());
    }
}
