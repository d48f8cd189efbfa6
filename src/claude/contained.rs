//! Work that may panic without harm: its answer says so, and everything around it goes on.
//!
//! The hook of a panic runs before anybody can catch it, and ends every agent of the program. It asks here first
//! whether it has to. It must not know what the work is.

use std::cell::Cell;

use tokio::task::{self, JoinError};

thread_local! {
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Does `work`, whose panic the caller catches.
pub fn contained<T>(work: impl FnOnce() -> T) -> T {
    let _mark = Mark(CONTAINED.replace(true));
    work()
}

/// Does `work` in a thread where it may block. An error is its panic, or the end of the runtime.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
    task::spawn_blocking(move || contained(work)).await
}

/// True in a thread that does such work, while it panics as well.
pub fn is_contained() -> bool {
    // A thread that is ending does none.
    CONTAINED.try_with(Cell::get).unwrap_or(false)
}

/// Ends the mark however the work ends: threads are used again. Holds what was before.
struct Mark(bool);

impl Drop for Mark {
    fn drop(&mut self) {
        CONTAINED.set(self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn the_mark_lasts_as_long_as_the_work() {
        assert!(!is_contained());
        contained(|| {
            assert!(is_contained());
            contained(|| ());
            assert!(is_contained(), "the outer work goes on");
            assert!(!std::thread::spawn(is_contained).join().unwrap(), "another thread is not part of it");
        });
        assert!(!is_contained());
        assert!(catch_unwind(|| contained(|| panic!("on purpose"))).is_err());
        assert!(!is_contained());
    }

    #[tokio::test]
    async fn the_panic_of_a_thread_is_an_answer() {
        assert!(blocking(is_contained).await.unwrap());
        assert!(blocking(|| panic!("on purpose")).await.unwrap_err().is_panic());
    }
}
