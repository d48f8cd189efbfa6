//! The limit of open files at the start of this program, for its child processes.
//!
//! This program raises its own limit. Agents, editors and pagers get the limit of the user's shell: some close every
//! possible descriptor, and `select` fails beyond 1,024. This module must not know which programs are started.

use std::{io, os::unix::process::CommandExt as _, process::Command, sync::OnceLock};

use nix::sys::resource::{Resource, rlim_t, setrlimit};

/// Original soft and hard limit, if this program changed it.
static ORIGINAL: OnceLock<(rlim_t, rlim_t)> = OnceLock::new();

/// Records the limit that [`restore_limit_in`] gives to children. Only the first call, with the limit of the user's shell,
/// counts.
pub fn record_original_limit(soft: rlim_t, hard: rlim_t) {
    let _ = ORIGINAL.set((soft, hard));
}

/// Makes `command` start with the recorded limit, if there is one.
pub fn restore_limit_in(command: &mut Command) {
    set_in(command, ORIGINAL.get().copied());
}

fn set_in(command: &mut Command, limit: Option<(rlim_t, rlim_t)>) {
    let Some((soft, hard)) = limit else { return };
    let before_exec = move || {
        // A hard limit that was lowered meanwhile must not prevent the start.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft, hard);
        Ok::<_, io::Error>(())
    };
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
    use nix::sys::resource::getrlimit;

    use super::*;

    #[test]
    fn child_gets_the_given_limit() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -S -n"]);
        set_in(&mut command, Some((77, hard)));
        assert_eq!(
            String::from_utf8_lossy(&command.output().unwrap().stdout).trim(),
            "77"
        );
    }
}
