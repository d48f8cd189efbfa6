//! File descriptors of this process: how many it may have, and whether there are enough for one more attempt.

use std::{fs, io};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::{file_limit, scoped_dir};

/// Most descriptors that are asked for: more only makes programs slow that close all of them.
const MAX_DESCRIPTORS: u64 = if cfg!(target_os = "macos") { 10_240 } else { 1 << 20 };

/// Descriptors that an attempt needs at most: its pipes, lock, transcript and worktree, git, and calls of its tools.
const DESCRIPTORS_PER_ATTEMPT: usize = 24;

/// Raises the soft limit to the hard one, as far as that is reasonable. Agents, editors, pagers
/// and notification commands run with the limit that was there before.
/// A limit that cannot be raised stays.
pub fn raise_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard.min(MAX_DESCRIPTORS)
        && setrlimit(Resource::RLIMIT_NOFILE, hard.min(MAX_DESCRIPTORS), hard).is_ok()
    {
        file_limit::remember(soft, hard);
    }
}

/// True if one more attempt would find the descriptors that it needs.
pub fn has_room_for_attempt() -> bool {
    let Ok((limit, _)) = getrlimit(Resource::RLIMIT_NOFILE) else { return true };
    match open_descriptors() {
        Ok(open) => u64::try_from(open + DESCRIPTORS_PER_ATTEMPT).is_ok_and(|needed| needed <= limit),
        // Where they cannot be counted, an attempt finds out by itself.
        Err(error) => !scoped_dir::is_out_of_files(&error),
    }
}

/// Descriptors that are open, and the one that counting them takes.
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
