//! The process table of Linux, read from `/proc` once for any number of agents.
//!
//! There is no table if `/proc` is missing or belongs to another PID namespace, where process ids name other processes.

#![expect(clippy::disallowed_methods, reason = "the process table in /proc")]

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs,
    io::{self, Read as _},
    os::unix::fs::{DirEntryExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    unistd::{Pid, geteuid, getpid},
};

use super::{AGENT_MARK_VAR, COMMAND_MARK_VAR};

/// Start time of a process, in the kernel's ticks. Together with the process id it identifies a process uniquely.
pub(super) type StartTime = u64;

/// The inode numbers of the entries of processes, and their start times.
type StartTimes = HashMap<Pid, (u64, StartTime)>;

/// How often an environment is read again if it is empty or incomplete. A process that executes a program looks like
/// one that was started with an empty environment.
const MAX_ENVIRONMENT_READS: u8 = 25;
/// How long the start time of a process counts as that of its id, if the entry of the id keeps its inode number: Linux
/// gives the entry of another process another number. A `/proc` that does not is read again after this time.
const START_TIME_VALIDITY: Duration = Duration::from_secs(10);
/// Flag of kernel threads, which have no environment.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// A process as described by its `stat`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ProcessStat {
    pub(super) pid: Pid,
    parent: Pid,
    group: Pid,
    pub(super) started: StartTime,
    is_zombie: bool,
    is_kernel_thread: bool,
    /// Size of its environment in bytes; 0 while it executes a program, or if this user has no access.
    environment_size: usize,
}

/// All processes at one moment.
#[derive(Debug, Default)]
pub(super) struct ProcessTable {
    processes: HashMap<Pid, ProcessStat>,
    /// Running processes, by their parent, their group and the marks in their environment.
    children: HashMap<Pid, Vec<Pid>>,
    groups: HashMap<Pid, Vec<Pid>>,
    marked: HashMap<String, Vec<Pid>>,
    /// Start time of the youngest process whose environment could not be read yet.
    undecided: Option<StartTime>,
}

impl ProcessTable {
    /// A process or a zombie.
    pub(super) fn find(&self, pid: Pid) -> Option<&ProcessStat> {
        self.processes.get(&pid)
    }

    pub(super) fn is_running(&self, pid: Pid, started: StartTime) -> bool {
        self.find(pid)
            .is_some_and(|process| process.started == started && !process.is_zombie)
    }

    pub(super) fn children(&self, parent: Pid) -> &[Pid] {
        self.children.get(&parent).map_or(&[], Vec::as_slice)
    }

    pub(super) fn group(&self, leader: Pid) -> &[Pid] {
        self.groups.get(&leader).map_or(&[], Vec::as_slice)
    }

    pub(super) fn marked(&self, mark: &str) -> &[Pid] {
        self.marked.get(mark).map_or(&[], Vec::as_slice)
    }

    /// True if a process that started at or after `since` may carry an unknown mark.
    pub(super) fn is_undecided(&self, since: StartTime) -> bool {
        self.undecided >= Some(since)
    }

    fn add(&mut self, process: ProcessStat, marks: &[String]) {
        if !process.is_zombie {
            self.children
                .entry(process.parent)
                .or_default()
                .push(process.pid);
            self.groups
                .entry(process.group)
                .or_default()
                .push(process.pid);
            for mark in marks {
                self.marked
                    .entry(mark.clone())
                    .or_default()
                    .push(process.pid);
            }
        }
        self.processes.insert(process.pid, process);
    }
}

/// The state of reading a process's environment.
#[derive(Clone, Debug)]
enum ProcessEnvironment {
    /// The marks that the environment contained.
    Read(Vec<String>),
    /// The environment could not be read this number of times.
    Undecided(u8),
}

/// Reads process tables. Reads the environment of each process once.
#[derive(Debug)]
pub(super) struct ProcScanner {
    root: PathBuf,
    own_pid: Pid,
    environments: HashMap<Pid, (StartTime, ProcessEnvironment)>,
    /// Start times of all processes with the inode numbers of their entries, and the moment when their reading began.
    start_times: Option<(Instant, StartTimes)>,
}

impl ProcScanner {
    pub(super) fn new() -> Self {
        Self::from_root("/proc".into(), getpid())
    }

    /// Reads `root` instead of `/proc`; this process has the id `us` in it.
    pub(super) fn from_root(root: PathBuf, us: Pid) -> Self {
        Self {
            root,
            own_pid: us,
            environments: HashMap::new(),
            start_times: None,
        }
    }

    /// Start time of a process or a zombie; 0 if it is gone.
    pub(super) fn start_time(&self, pid: Pid) -> StartTime {
        if !self.is_own_namespace() {
            return 0;
        }
        self.stat(pid).map_or(0, |process| process.started)
    }

    /// All processes except this one that started at or after `since`, with their marks. `None` if there is no table.
    pub(super) fn scan(&mut self, since: StartTime) -> Option<ProcessTable> {
        self.scan_at(since, Instant::now())
    }

    fn scan_at(&mut self, since: StartTime, now: Instant) -> Option<ProcessTable> {
        if !self.is_own_namespace() {
            return None;
        }
        let entries = fs::read_dir(&self.root).ok()?.flatten();
        let mut table = ProcessTable::default();
        let mut environments = HashMap::new();
        let recent = self
            .start_times
            .take()
            .filter(|(read, _)| now.duration_since(*read) < START_TIME_VALIDITY);
        let (read, recent) = recent.unwrap_or_else(|| (now, HashMap::new()));
        let mut start_times = HashMap::with_capacity(recent.len());
        let entries =
            entries.filter_map(|entry| Some((parse_pid(&entry.file_name())?, entry.ino())));
        for (pid, inode) in entries.filter(|(pid, _)| *pid != self.own_pid) {
            // Most processes are older; reading them all takes milliseconds.
            if let Some(known) = recent
                .get(&pid)
                .filter(|(of, started)| *of == inode && *started < since)
            {
                start_times.insert(pid, *known);
                continue;
            }
            let Some(process) = self.stat(pid) else {
                continue;
            };
            start_times.insert(pid, (inode, process.started));
            if process.started < since {
                continue;
            }
            let known = self
                .environments
                .get(&pid)
                .filter(|(started, _)| *started == process.started);
            let mut known = known.map(|(_, environment)| environment.clone());
            if !process.is_zombie && !matches!(known, Some(ProcessEnvironment::Read(_))) {
                known = self.environment(&process, known.as_ref());
                // The process is gone.
                if known.is_none() {
                    continue;
                }
            }
            let marks = match &known {
                Some(ProcessEnvironment::Read(marks)) => marks.as_slice(),
                Some(ProcessEnvironment::Undecided(_)) if !process.is_zombie => {
                    table.undecided = table.undecided.max(Some(process.started));
                    &[]
                }
                _ => &[],
            };
            let (started, is_new_child) = (
                process.started,
                process.parent == self.own_pid && marks.is_empty(),
            );
            table.add(process, marks);
            // Until a child of this process executes its program, it has the environment of this process.
            if let Some(known) = known.filter(|_| !is_new_child) {
                environments.insert(pid, (started, known));
            }
        }
        self.environments = environments;
        self.start_times = Some((read, start_times));
        Some(table)
    }

    /// True if `root` describes the PID namespace of this process.
    fn is_own_namespace(&self) -> bool {
        fs::read_link(self.root.join("self"))
            .is_ok_and(|link| parse_pid(link.as_os_str()) == Some(self.own_pid))
    }

    fn stat(&self, pid: Pid) -> Option<ProcessStat> {
        let mut file = fs::File::open(self.path(pid, "stat")).ok()?;
        // The kernel writes the line in one piece, and it is shorter than the buffer.
        let mut buffer = [0; 4096];
        let length = file.read(&mut buffer).ok()?;
        parse_stat(&String::from_utf8_lossy(buffer.get(..length)?))
    }

    /// The environment of a process at its start; `None` if it is gone.
    fn environment(
        &self,
        process: &ProcessStat,
        known: Option<&ProcessEnvironment>,
    ) -> Option<ProcessEnvironment> {
        let nothing = ProcessEnvironment::Read(Vec::new());
        match fs::read(self.path(process.pid, "environ")) {
            // A process that executes a program meanwhile can truncate the result.
            Ok(bytes) if !bytes.is_empty() && bytes.len() == process.environment_size => {
                return Some(ProcessEnvironment::Read(parse_marks(&bytes)));
            }
            Ok(_) if process.is_kernel_thread => return Some(nothing),
            Err(error) if is_gone(&error) => return None,
            _ => {}
        }
        let owner = fs::metadata(self.path(process.pid, "")).ok()?.uid();
        let looks = if let Some(ProcessEnvironment::Undecided(looks)) = known {
            *looks + 1
        } else {
            1
        };
        let is_undecided = owner == geteuid().as_raw() && looks < MAX_ENVIRONMENT_READS;
        Some(if is_undecided {
            ProcessEnvironment::Undecided(looks)
        } else {
            nothing
        })
    }

    fn path(&self, pid: Pid, file: &str) -> PathBuf {
        self.root.join(pid.to_string()).join(Path::new(file))
    }
}

fn parse_pid(name: &OsStr) -> Option<Pid> {
    name.to_str()?.parse().ok().map(Pid::from_raw)
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::ESRCH as i32)
}

/// Values of [`AGENT_MARK_VAR`] and [`COMMAND_MARK_VAR`] in an environment.
fn parse_marks(environment: &[u8]) -> Vec<String> {
    let value = |entry: &[u8], name: &str| {
        let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        String::from_utf8(value.to_vec()).ok()
    };
    let mark = |entry| value(entry, AGENT_MARK_VAR).or_else(|| value(entry, COMMAND_MARK_VAR));
    environment
        .split(|byte| *byte == 0)
        .filter_map(mark)
        .collect()
}

/// Parses a `stat` line: `pid (name) state parent group …`. The name may contain anything, also parentheses.
fn parse_stat(stat: &str) -> Option<ProcessStat> {
    let (head, tail) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = tail.split_whitespace().collect();
    let id = |text: &str| text.parse().ok().map(Pid::from_raw);
    let number = |index: usize| {
        fields
            .get(index)
            .and_then(|field| field.parse::<u64>().ok())
    };
    Some(ProcessStat {
        pid: id(head.split_once(' ')?.0)?,
        parent: id(fields.get(1)?)?,
        group: id(fields.get(2)?)?,
        started: number(19)?,
        is_zombie: matches!(*fields.first()?, "Z" | "X" | "x"),
        is_kernel_thread: number(6)? & KERNEL_THREAD != 0,
        environment_size: usize::try_from(number(48)?.saturating_sub(number(47)?)).ok()?,
    })
}

/// A directory like `/proc`, in which this process has the id 1.
#[cfg(test)]
pub(super) mod fake {
    use super::*;

    #[derive(Debug)]
    pub(crate) struct FakeProc(tempfile::TempDir);

    impl FakeProc {
        pub(crate) fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            std::os::unix::fs::symlink("1", dir.path().join("self")).unwrap();
            Self(dir)
        }

        pub(crate) fn scanner(&self) -> ProcScanner {
            ProcScanner::from_root(self.0.path().to_owned(), Pid::from_raw(1))
        }

        pub(crate) fn root(&self) -> &Path {
            self.0.path()
        }

        /// Adds or changes a process with start time 1000.
        pub(crate) fn set(&self, pid: i32, parent: i32, group: i32, environment: &str) {
            let dir = self.root().join(pid.to_string());
            fs::create_dir_all(&dir).unwrap();
            fs::write(
                dir.join("stat"),
                stat_line(pid, b"sh", 'S', parent, group, environment.len()),
            )
            .unwrap();
            fs::write(dir.join("environ"), environment).unwrap();
        }

        pub(crate) fn remove(&self, pid: i32) {
            fs::remove_dir_all(self.root().join(pid.to_string())).unwrap();
        }
    }

    pub(super) fn stat_line(
        pid: i32,
        name: &[u8],
        state: char,
        parent: i32,
        group: i32,
        environment: usize,
    ) -> Vec<u8> {
        // Fields 23 to 49, then the beginning and end of the environment.
        let zeros = "0 ".repeat(27);
        let end = 77 + environment;
        let tail = format!(
            ") {state} {parent} {group} {group} 0 -1 0 0 0 0 0 1 2 3 4 20 0 1 0 1000 {zeros}77 {end} 0\n"
        );
        [format!("{pid} (").as_bytes(), name, tail.as_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        fake::{FakeProc, stat_line},
        *,
    };

    fn id(pid: i32) -> Pid {
        Pid::from_raw(pid)
    }

    #[test]
    fn stat_lines_with_any_process_name_are_parsed() {
        let process = ProcessStat {
            pid: id(10),
            parent: id(7),
            group: id(8),
            started: 1000,
            is_zombie: false,
            is_kernel_thread: false,
            environment_size: 0,
        };
        for name in [
            b"sh".as_slice(),
            b"a b) Z 1 (",
            b") R 1 1",
            b"",
            b"\xff\xfe",
        ] {
            let line = stat_line(10, name, 'S', 7, 8, 0);
            assert_eq!(
                parse_stat(&String::from_utf8_lossy(&line)).as_ref(),
                Some(&process),
                "{name:?}"
            );
        }
        let zombie = parse_stat(&String::from_utf8_lossy(&stat_line(
            10, b"sh", 'Z', 7, 8, 0,
        )));
        assert_eq!(
            zombie,
            Some(ProcessStat {
                is_zombie: true,
                ..process
            })
        );
        for odd in ["", "10", "10 (sh", "10 (sh) S 7", "x (sh) S 7 8"] {
            assert_eq!(parse_stat(odd), None, "{odd}");
        }
    }

    #[test]
    fn process_with_a_name_that_is_not_utf8_is_found() {
        let proc = FakeProc::new();
        let environment = format!("{AGENT_MARK_VAR}=a\0");
        proc.set(5_000_001, 9, 9, &environment);
        let line = stat_line(5_000_001, b"\xff", 'S', 9, 9, environment.len());
        fs::write(proc.root().join("5000001/stat"), line).unwrap();
        assert_eq!(proc.scanner().scan(0).unwrap().marked("a"), [id(5_000_001)]);
    }

    #[test]
    fn proc_of_another_namespace_is_not_used() {
        let proc = FakeProc::new();
        proc.set(5_000_001, 1, 1, "");
        let scanner = |us| ProcScanner::from_root(proc.root().to_owned(), id(us));
        assert!(scanner(1).scan(0).is_some());
        assert_eq!(scanner(1).start_time(id(5_000_001)), 1000);
        assert!(scanner(2).scan(0).is_none());
        assert_eq!(scanner(2).start_time(id(5_000_001)), 0);
        fs::remove_file(proc.root().join("self")).unwrap();
        assert!(scanner(1).scan(0).is_none(), "without the link");
    }

    #[test]
    fn environment_is_read_once_per_process() {
        let proc = FakeProc::new();
        let mut scanner = proc.scanner();
        proc.set(5_000_001, 9, 9, &format!("A=1\0{AGENT_MARK_VAR}=a\0"));
        proc.set(5_000_002, 9, 9, "A=1\0");
        assert_eq!(scanner.scan(0).unwrap().marked("a"), [id(5_000_001)]);
        fs::remove_file(proc.root().join("5000001/environ")).unwrap();
        proc.set(5_000_002, 9, 9, &format!("{AGENT_MARK_VAR}=a\0"));
        assert_eq!(scanner.scan(0).unwrap().marked("a"), [id(5_000_001)]);
        // The same id with another start time is another process.
        let line = String::from_utf8(stat_line(
            5_000_002,
            b"sh",
            'S',
            9,
            9,
            AGENT_MARK_VAR.len() + 3,
        ))
        .unwrap();
        fs::write(
            proc.root().join("5000002/stat"),
            line.replace(" 1000 ", " 1001 "),
        )
        .unwrap();
        assert!(
            scanner
                .scan(0)
                .unwrap()
                .marked("a")
                .contains(&id(5_000_002))
        );
    }

    #[test]
    fn environment_of_a_child_before_its_exec_is_not_kept() {
        let proc = FakeProc::new();
        let mut scanner = proc.scanner();
        proc.set(5_000_001, 1, 9, "OURS=1\0");
        assert!(scanner.scan(0).unwrap().marked("a").is_empty());
        proc.set(5_000_001, 1, 9, &format!("{AGENT_MARK_VAR}=a\0"));
        assert_eq!(scanner.scan(0).unwrap().marked("a"), [id(5_000_001)]);
    }

    #[test]
    fn empty_environment_is_undecided_for_a_limited_time() {
        let proc = FakeProc::new();
        let mut scanner = proc.scanner();
        proc.set(5_000_001, 9, 9, "");
        let table = scanner.scan(0).unwrap();
        assert!(table.is_undecided(1000) && !table.is_undecided(1001));
        let looks = (0..100)
            .take_while(|_| scanner.scan(0).unwrap().is_undecided(0))
            .count();
        assert_eq!(looks + 2, usize::from(MAX_ENVIRONMENT_READS));
    }

    #[test]
    fn environment_that_is_cut_off_is_read_again() {
        let proc = FakeProc::new();
        let mut scanner = proc.scanner();
        let whole = format!("PATH=/bin\0{AGENT_MARK_VAR}=a\0");
        proc.set(5_000_001, 9, 9, &whole);
        for part in ["", "PATH=/bin\0", &whole[..whole.len() - 1]] {
            fs::write(proc.root().join("5000001/environ"), part).unwrap();
            let table = scanner.scan(0).unwrap();
            assert!(
                table.is_undecided(0) && table.marked("a").is_empty(),
                "{part:?}"
            );
        }
        proc.set(5_000_001, 9, 9, &whole);
        let table = scanner.scan(0).unwrap();
        assert!(!table.is_undecided(0));
        assert_eq!(table.marked("a"), [id(5_000_001)]);
    }

    #[test]
    fn older_processes_are_read_rarely() {
        let proc = FakeProc::new();
        let (mut scanner, now) = (proc.scanner(), Instant::now());
        proc.set(5_000_001, 9, 9, "");
        let mut is_found = |since, now| {
            scanner
                .scan_at(since, now)
                .unwrap()
                .find(id(5_000_001))
                .is_some()
        };
        assert!(!is_found(1001, now) && is_found(1000, now));
        let line = String::from_utf8(stat_line(5_000_001, b"sh", 'S', 9, 9, 0)).unwrap();
        fs::write(
            proc.root().join("5000001/stat"),
            line.replace(" 1000 ", " 1001 "),
        )
        .unwrap();
        // Its recent start time counts, but not for a scan that includes it.
        assert!(!is_found(1001, now) && is_found(1000, now) && is_found(1001, now));
        fs::write(
            proc.root().join("5000001/stat"),
            line.replace(" 1000 ", " 1002 "),
        )
        .unwrap();
        assert!(!is_found(1002, now) && is_found(1002, now + START_TIME_VALIDITY));
        // Another process with the same id has another entry.
        fs::rename(proc.root().join("5000001"), proc.root().join("gone")).unwrap();
        proc.set(5_000_001, 9, 9, "");
        fs::write(
            proc.root().join("5000001/stat"),
            line.replace(" 1000 ", " 1003 "),
        )
        .unwrap();
        assert!(is_found(1003, now + START_TIME_VALIDITY));
    }

    #[test]
    fn threads_of_the_kernel_have_no_environment() {
        let proc = FakeProc::new();
        proc.set(5_000_001, 9, 9, "");
        let line = String::from_utf8(stat_line(5_000_001, b"kworker", 'I', 9, 9, 0)).unwrap();
        let line = line.replacen(" -1 0 ", &format!(" -1 {KERNEL_THREAD} "), 1);
        fs::write(proc.root().join("5000001/stat"), line).unwrap();
        assert!(!proc.scanner().scan(0).unwrap().is_undecided(0));
    }
}
