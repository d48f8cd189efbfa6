//! No process of a worker remains, however it ends.

use nix::{errno::Errno, sys::signal::kill};

use super::*;

fn shell(script: &str) -> WorkerCommand {
    WorkerCommand::new("/bin/sh".into(), vec!["-c".into(), script.into()])
}

/// True if the process neither runs nor waits to be reaped.
fn is_gone(pid: Pid) -> bool {
    kill(pid, None) == Err(Errno::ESRCH)
}

#[test]
fn worker_over_its_time_limit_is_stopped() {
    let hangs = shell("trap '' TERM INT HUP; while :; do :; done");
    assert_eq!(
        hangs.exchange(b"x".to_vec(), Duration::from_millis(50)),
        Err(QueryError::TimedOut(0))
    );
    // More than a pipe buffer holds, and the child never reads it.
    assert_eq!(
        hangs.exchange(vec![b'x'; 1 << 20], Duration::from_millis(50)),
        Err(QueryError::TimedOut(0))
    );
}

#[test]
fn worker_that_ends_is_killed_and_reaped() {
    for script in ["while :; do :; done", "read line; echo hi", "exec cat"] {
        let mut process = WorkerProcess::start(&shell(script), &[]).unwrap();
        let pid = Pid::from_raw(i32::try_from(process.child.id()).unwrap());
        assert!(!is_gone(pid));
        process.end().unwrap();
        assert!(is_gone(pid), "{script}");
        assert!(process.group.state().leader.is_none());
    }
    let process = WorkerProcess::start(&shell("while :; do :; done"), &[]).unwrap();
    let pid = Pid::from_raw(i32::try_from(process.child.id()).unwrap());
    drop(process);
    assert!(is_gone(pid));
}

#[test]
fn worker_has_minimal_environment_and_neutral_directory() {
    let reply =
        shell("/usr/bin/env | /usr/bin/cut -d= -f1 | /usr/bin/sort | /usr/bin/tr '\\n' ' '; pwd")
            .exchange(Vec::new(), Duration::from_secs(20))
            .unwrap();
    let reply = String::from_utf8(reply).unwrap();
    let words: Vec<&str> = reply
        .split_whitespace()
        .filter(|word| !["_", "SHLVL", "TZ"].contains(word))
        .collect();
    // The shell sets `PWD` itself.
    assert_eq!(words, ["INGESTDECK_AGENT", "PWD", "/"]);
}
