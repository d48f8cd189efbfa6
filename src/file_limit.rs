//! The limit of open files that this program was started with, for the programs that it starts.
//!
//! This program raises its own limit. An agent, an editor or a pager gets the limit of the user's shell: some close
//! every possible descriptor, and `select` fails beyond 1,024. This module must not know which programs there are.

use std::{io, os::unix::process::CommandExt as _, process::Command, sync::OnceLock};

use nix::sys::resource::{Resource, rlim_t, setrlimit};

/// Soft and hard limit that this program was started with, if it has another one now.
static ORIGINAL: OnceLock<(rlim_t, rlim_t)> = OnceLock::new();

/// Remembers the limit that [`restore_in`] gives to children. The first one is that of the user's shell.
pub fn remember(soft: rlim_t, hard: rlim_t) {
    let _ = ORIGINAL.set((soft, hard));
}

/// Starts `command` with the remembered limit, if there is one.
pub fn restore_in(command: &mut Command) {
    set_in(command, ORIGINAL.get().copied());
}

fn set_in(command: &mut Command, limit: Option<(rlim_t, rlim_t)>) {
    let Some((soft, hard)) = limit else { return };
    let before_exec = move || {
        // A hard limit that was lowered meanwhile must not prevent the start.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft, hard);
        Ok::<_, io::Error>(())
    };
    #[expect(unsafe_code, reason = "only setrlimit runs between fork and exec, which is a plain system call")]
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
        assert_eq!(String::from_utf8_lossy(&command.output().unwrap().stdout).trim(), "77");
    }
}
