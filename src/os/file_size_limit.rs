//! A limit on the size of every file that a child process writes.
//!
//! This module must not know which programs are started.

use std::{io, os::unix::process::CommandExt as _, process::Command};

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

/// Makes the system end `command` and its children when one of them writes a file of more than `bytes`, or of more than this
/// process may allow.
pub fn limit_file_size_in(command: &mut Command, bytes: u64) {
    // A process without privileges cannot raise its own limit.
    let highest = getrlimit(Resource::RLIMIT_FSIZE).map_or(rlim_t::MAX, |(_, hard)| hard);
    let limit = rlim_t::try_from(bytes).unwrap_or(rlim_t::MAX).min(highest);
    let before_exec =
        move || setrlimit(Resource::RLIMIT_FSIZE, limit, limit).map_err(io::Error::from);
    #[expect(
        unsafe_code,
        reason = "only setrlimit runs between fork and exec, which is a plain system call"
    )]
    // SAFETY: as above; the closure neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(before_exec);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_cannot_write_a_larger_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.current_dir(dir.path()).args([
            "-c",
            "trap '' XFSZ; printf 12345678 > small; printf 123456789 > large",
        ]);
        limit_file_size_in(&mut command, 8);
        command.output().unwrap();
        let length = |name| std::fs::metadata(dir.path().join(name)).unwrap().len();
        assert_eq!((length("small"), length("large")), (8, 8));
    }
}
