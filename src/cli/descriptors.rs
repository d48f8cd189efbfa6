//! File descriptors of this process: how many it may have, and whether there are enough for one more attempt.

use std::fs::File;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::scoped_dir;

/// Most descriptors that are asked for: more only makes programs slow that close all of them.
const MOST: u64 = if cfg!(target_os = "macos") { 10_240 } else { 1 << 20 };

/// Descriptors that an attempt needs at most: its pipes, lock, transcript and worktree, git, and calls of its tools.
const OF_AN_ATTEMPT: usize = 24;

/// Raises the soft limit to the hard one, as far as that is reasonable. Children inherit it, which those that look at it
/// raise by themselves anyway. A limit that cannot be raised stays.
pub fn raise_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard.min(MOST)
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard.min(MOST), hard);
    }
}

/// True if one more attempt would find the descriptors that it needs.
pub fn has_room() -> bool {
    let opened: Result<Vec<File>, _> = (0..OF_AN_ATTEMPT).map(|_| File::open("/dev/null")).collect();
    opened.err().is_none_or(|error| !scoped_dir::is_out_of_files(&error))
}
