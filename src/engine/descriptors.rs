//! File descriptors of this process: the limit, and whether enough are free for another attempt.

#![expect(
    clippy::disallowed_methods,
    reason = "counts the process's own descriptors"
)]

use std::{fs, io};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use ingestdeck_os::{open_file_limit, scoped_dir};

/// Highest limit that is requested: a larger one slows down programs that close every possible descriptor.
const MAX_DESCRIPTORS: u64 = if cfg!(target_os = "macos") {
    10_240
} else {
    1 << 20
};

/// Upper bound on the descriptors of an attempt: its pipes, lock, transcript and worktree, git, and tool calls.
const DESCRIPTORS_PER_ATTEMPT: usize = 24;

/// Raises the soft limit to the hard limit, up to `MAX_DESCRIPTORS`. Agents, editors, pagers and notification
/// commands run with the original limit. A limit that cannot be raised is kept.
pub fn raise_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard.min(MAX_DESCRIPTORS)
        && setrlimit(Resource::RLIMIT_NOFILE, hard.min(MAX_DESCRIPTORS), hard).is_ok()
    {
        open_file_limit::record_original_limit(soft, hard);
    }
}

/// True if enough descriptors are free for another attempt.
pub(crate) fn has_room_for_attempt() -> bool {
    let Ok((limit, _)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return true;
    };
    match open_descriptors() {
        Ok(open) => {
            u64::try_from(open + DESCRIPTORS_PER_ATTEMPT).is_ok_and(|needed| needed <= limit)
        }
        // If they cannot be counted, the attempt reports the error itself.
        Err(error) => !scoped_dir::is_out_of_files(&error),
    }
}

/// Number of open descriptors, including the one that is used for counting.
fn open_descriptors() -> io::Result<usize> {
    Ok(fs::read_dir("/dev/fd")?.count())
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn open_descriptors_are_counted() {
        let held: Vec<File> = (0..40).map(|_| File::open("/dev/null").unwrap()).collect();
        assert!(open_descriptors().unwrap() > held.len());
    }
}
