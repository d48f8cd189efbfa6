//! Commands that end together with this process, also if it is killed while it starts them.

use std::{collections::BTreeSet, process::Command, thread};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use uuid::Uuid;

use super::{
    AGENT_MARK_VAR,
    members::{EMPTY_SCANS, MIN_CONFIRM_INTERVAL},
    process_table::ProcScanner,
    send_line, unwatch,
};

/// Makes the guard end a command together with this process, until the value is dropped.
///
/// The guard hears of the command before it starts and finds it by the mark in its environment: this process may be
/// killed before it knows the process id.
#[derive(Debug)]
pub(crate) struct CommandGuard {
    mark: String,
    leader: Option<Pid>,
}

impl CommandGuard {
    /// Announces `command`, which must lead a process group and is started next.
    pub(crate) fn announce(command: &mut Command) -> Self {
        let mark = Uuid::new_v4().to_string();
        command.env(AGENT_MARK_VAR, &mark);
        send_line(&format!("?{mark}\n"));
        Self { mark, leader: None }
    }

    /// Watches the process group of the command, which has started with this process id.
    pub(crate) fn started(&mut self, id: u32) {
        self.leader = i32::try_from(id).ok().map(Pid::from_raw);
        if let Some(leader) = self.leader {
            send_line(&format!("~{leader}\n!{}\n", self.mark));
        }
    }
}

impl Drop for CommandGuard {
    fn drop(&mut self) {
        match self.leader {
            Some(leader) => unwatch(leader),
            None => send_line(&format!("!{}\n", self.mark)),
        }
    }
}

/// Sends SIGTERM to all processes with these marks, also to those that are just being started. Only on Linux.
pub(super) fn terminate_marked(marks: &BTreeSet<String>) {
    let mut scanner = ProcScanner::new();
    let mut terminated = BTreeSet::new();
    for _ in 0..EMPTY_SCANS {
        let Some(table) = scanner.scan(0) else { return };
        for pid in marks.iter().flat_map(|mark| table.marked(mark)) {
            if terminated.insert(*pid) {
                // The process may be gone already.
                let _ = kill(*pid, Signal::SIGTERM);
            }
        }
        thread::sleep(MIN_CONFIRM_INTERVAL);
    }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn announced_command_is_found_by_its_mark() {
        let mut command = Command::new("sleep");
        let guard = CommandGuard::announce(command.arg("600"));
        let mut child = command.spawn().unwrap();
        terminate_marked(&BTreeSet::from([guard.mark.clone()]));
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::SIGTERM as i32));
    }
}
