//! Commands that end together with this process, also if it is killed while it starts them.

use std::{collections::BTreeSet, process::Command, thread};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use uuid::Uuid;

use super::{
    COMMAND_MARK_VAR,
    members::{EMPTY_SCANS, MIN_CONFIRM_INTERVAL},
    process_table::{ProcScanner, ProcessTable},
    send_line, unwatch,
};

/// Most tables that are read, for about a second.
const MAX_SCANS: u32 = 50;

/// Makes the guard end a command together with this process, until the value is dropped.
///
/// The guard hears of the command before it starts and finds it by the mark in its environment: this process may be
/// killed before it knows the process id.
#[derive(Debug)]
pub struct CommandGuard {
    mark: String,
    leader: Option<Pid>,
}

impl CommandGuard {
    /// Announces `command`, which must lead a process group and is started next.
    pub fn announce(command: &mut Command) -> Self {
        let mark = Uuid::new_v4().to_string();
        command.env(COMMAND_MARK_VAR, &mark);
        send_line(&format!("?{mark}\n"));
        Self { mark, leader: None }
    }

    /// Watches the process group of the command, which has started with this process id.
    pub fn started(&mut self, id: u32) {
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
    terminate_marked_with(
        marks,
        || scanner.scan(0),
        |pid| {
            // The process may be gone already.
            let _ = kill(pid, Signal::SIGTERM);
        },
        || thread::sleep(MIN_CONFIRM_INTERVAL),
    );
}

/// Terminates the processes with these marks until no more appear in consecutive tables.
fn terminate_marked_with(
    marks: &BTreeSet<String>,
    mut scan: impl FnMut() -> Option<ProcessTable>,
    mut terminate: impl FnMut(Pid),
    mut pause: impl FnMut(),
) {
    let (mut terminated, mut quiet) = (BTreeSet::new(), 0);
    for _ in 0..MAX_SCANS {
        let Some(table) = scan() else { return };
        let marked = marks.iter().flat_map(|mark| table.marked(mark));
        let new: Vec<Pid> = marked
            .copied()
            .filter(|pid| terminated.insert(*pid))
            .collect();
        quiet = if new.is_empty() && !table.is_undecided(0) {
            quiet + 1
        } else {
            0
        };
        new.into_iter().for_each(&mut terminate);
        if quiet == EMPTY_SCANS {
            return;
        }
        pause();
    }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::{super::process_table::fake::FakeProc, *};

    #[test]
    fn commands_that_are_still_being_started_are_found() {
        // Above all possible ids (below 4,194,304).
        let (proc, marked) = (FakeProc::new(), format!("{COMMAND_MARK_VAR}=a\0"));
        proc.set(5_000_001, 9, 9, "");
        proc.set(5_000_009, 9, 9, "OTHER=a\0");
        let (mut scanner, mut scans, mut found) = (proc.scanner(), 0, Vec::new());
        let scan = || {
            scans += 1;
            match scans {
                // It executes its program.
                10 => proc.set(5_000_001, 9, 9, &marked),
                // It has started another process.
                12 => proc.set(5_000_002, 5_000_001, 9, &marked),
                _ => {}
            }
            scanner.scan(0)
        };
        terminate_marked_with(
            &BTreeSet::from(["a".to_owned()]),
            scan,
            |pid| found.push(pid.as_raw()),
            || {},
        );
        assert_eq!(found, [5_000_001, 5_000_002]);
        assert_eq!(scans, 15, "three tables without a new process end it");
    }

    #[test]
    fn announced_command_is_found_by_its_mark() {
        let mut command = Command::new("sleep");
        let guard = CommandGuard::announce(command.arg("600"));
        let mut child = command.spawn().unwrap();
        terminate_marked(&BTreeSet::from([guard.mark.clone()]));
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::SIGTERM as i32));
    }
}
