//! The fault table: which fault is injected into a run, how the run must end, and which data must survive.
//!
//! After every fault, entries that were on a tape are still there, nothing outside the project changes, the exit code
//! is a documented one, a sentence explains it, and without the fault the next run finishes the work.

#[cfg(target_os = "linux")]
mod processes;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use ingestdeck_core::{
    run::{EntrySource as _, PollStatus},
    tape::{EntryBody, TapeEntry},
};
use ingestdeck_records::replay::FileSource;
use nix::{sys::signal::Signal, sys::stat::Mode, unistd::mkfifo};

use crate::{
    commands::test_dir::{CommandOutput, TestDir},
    support::git::{PRIVATE_GIT_DIR, git},
};

const STATE: &str = ".ktx/ingestdeck";

/// A script in which each unit writes a page named after it.
fn script() -> String {
    let part = |unit: &str| {
        format!(
            r#"
[[part]]
unit = "docs-{unit}"
steps = [
  {{ call = {{ tool = "record_verification_ledger", with = {{ summary = "read", verifiedIdentifiers = [], unverifiedIdentifiers = [] }} }} }},
  {{ call = {{ tool = "wiki_write", with = {{ key = "{unit}", summary = "s", content = "text" }} }} }},
  {{ say = "done" }},
]
"#
        )
    };
    ["old", "one", "two", "three"].map(part).concat()
        + "[[part]]\nsteps = [{ say = \"nothing to do\" }]\n"
}

/// A project with one finished run and three more units to run.
struct FaultProject {
    place: TestDir,
    claude: String,
    outside: BTreeMap<PathBuf, Vec<u8>>,
    tapes: BTreeMap<PathBuf, Vec<u8>>,
    /// Arguments that make git use the repository of the project.
    git_args: &'static [&'static str],
}

impl FaultProject {
    fn new() -> Self {
        Self::with_git(true)
    }

    /// A project with or without git.
    fn with_git(has_git: bool) -> Self {
        let place = TestDir::new();
        let claude = place
            .scripted_claude(&script())
            .to_str()
            .unwrap()
            .to_owned();
        fs::rename(place.path("script.toml"), place.path("../bin/script.toml")).unwrap();
        let stub = fs::read_to_string(&claude)
            .unwrap()
            .replace("work/script.toml", "bin/script.toml");
        fs::write(&claude, stub).unwrap();
        place.notes(&["old"]);
        let init = [
            &["init", "--quiet", "--initial-branch=main"][..],
            &["add", "--all"],
            &["commit", "--quiet", "-m", "first"],
        ];
        for args in init.into_iter().filter(|_| has_git) {
            git(&place.path(""), args);
        }
        assert_eq!(place.run(&["run", "--claude-bin", &claude]).code, Some(0));
        // The first command that reads the index creates it.
        assert_eq!(place.run(&["runs", "list"]).code, Some(0));
        place.notes(&["one", "two", "three"]);
        fs::create_dir_all(place.path("../outside")).unwrap();
        fs::write(place.path("../outside/thesis.txt"), "precious").unwrap();
        let git_args: &[&str] = if has_git {
            &[]
        } else {
            &[PRIVATE_GIT_DIR, "--work-tree=."]
        };
        let mut bench = Self {
            place,
            claude,
            outside: BTreeMap::new(),
            tapes: BTreeMap::new(),
            git_args,
        };
        bench.outside = files(&bench.place.path("../outside"));
        bench.tapes = bench.tapes_now();
        assert_eq!(bench.tapes.len(), 1);
        bench
    }

    /// Stdout of git for the repository of the project.
    fn git(&self, args: &[&str]) -> String {
        git(&self.place.path(""), &[self.git_args, args].concat())
    }

    fn state(&self, name: &str) -> PathBuf {
        self.place.path(&format!("{STATE}/{name}"))
    }

    fn tapes_now(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let all = files(&self.state("runs"));
        all.into_iter()
            .filter(|(path, _)| path.ends_with("tape.jsonl"))
            .collect()
    }

    fn command(&self) -> Command {
        self.place
            .command(&["run", "--claude-bin", &self.claude, "--concurrency", "4"])
    }

    /// The same from a shell, after `prelude`. `$RUN` is the command line.
    fn shell(&self, prelude: &str) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("{prelude}\nexec sh -c \"$RUN\"")])
            .env_clear();
        let (exe, root) = (crate::support::program(), self.place.path(".."));
        command
            .current_dir(self.place.path(""))
            .env("HOME", root.join("home"))
            .env("TMPDIR", root.join("tmp"));
        command.env(
            "RUN",
            format!("'{exe}' run --claude-bin '{}' --concurrency 4", self.claude),
        );
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }

    /// Makes `claude` execute `line` before it starts to work; `$P` is the project.
    fn run_before_agent(&self, line: &str) {
        let stub = fs::read_to_string(&self.claude).unwrap();
        let project = self.place.path("");
        let stub = stub.replace(
            "\nesac\n",
            &format!("\nesac\nP='{}'; {line}\n", project.display()),
        );
        fs::write(&self.claude, stub).unwrap();
    }

    fn restore_agent(&self) {
        let stub = fs::read_to_string(&self.claude).unwrap();
        let lines: Vec<&str> = stub
            .lines()
            .filter(|line| !line.starts_with("P='"))
            .collect();
        fs::write(&self.claude, lines.join("\n") + "\n").unwrap();
    }

    /// Asserts what must hold after any fault.
    fn assert_kept(&self, fault: &str, ran: &CommandOutput) {
        assert!(!ran.stderr.contains("panicked"), "{fault}: {ran:?}");
        assert_eq!(
            files(&self.place.path("../outside")),
            self.outside,
            "{fault}"
        );
        let now = self.tapes_now();
        for (path, before) in &self.tapes {
            assert!(
                now.get(path).is_some_and(|after| after.starts_with(before)),
                "{fault}: {} lost entries",
                path.display()
            );
        }
        for (path, bytes) in now {
            let whole = bytes
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |at| at + 1);
            let entries = bytes[..whole.saturating_sub(1)]
                .split(|byte| *byte == b'\n')
                .skip(1)
                .map(|line| TapeEntry::parse(line).unwrap());
            for (seq, entry) in entries.enumerate() {
                assert_eq!(
                    entry.seq.0,
                    seq as u64,
                    "{fault}: {} has a gap",
                    path.display()
                );
            }
        }
    }

    /// Asserts that without the fault the work gets done, and that the runs can be listed and indexed.
    fn assert_recovers(&self, fault: &str) {
        self.restore_agent();
        let mut ran = self.place.ran(self.command());
        if ran.code != Some(0) || !self.is_done() {
            ran = self.place.run(&[
                "run",
                "--resume-run",
                "latest",
                "--claude-bin",
                &self.claude,
            ]);
        }
        assert!(
            self.is_done(),
            "{fault}: the next run did not finish: {ran:?}"
        );
        assert_eq!(
            self.git(&["status", "--porcelain", "--", "wiki"]),
            "",
            "{fault}"
        );
        assert_eq!(
            self.git(&["worktree", "list"]).lines().count(),
            1,
            "{fault}"
        );
        assert_eq!(self.place.run(&["runs", "list"]).code, Some(0), "{fault}");
        assert_eq!(
            self.place.run(&["runs", "reindex"]).code,
            Some(0),
            "{fault}"
        );
    }

    fn is_done(&self) -> bool {
        let listed = self.git(&["ls-tree", "-r", "--name-only", "HEAD", "wiki"]);
        ["one", "two", "three"]
            .iter()
            .all(|unit| listed.contains(&format!("wiki/global/{unit}.md")))
    }
}

fn files(below: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut open, mut found) = (vec![below.to_path_buf()], BTreeMap::new());
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.is_file() {
                found.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// Injects `fault` and runs. Expects one of the exit codes `codes`, and `words` in the output of a failed run. Then
/// `mend`s the fault and runs again.
fn inject_fault(
    fault: &str,
    arrange: impl FnOnce(&FaultProject),
    command: impl FnOnce(&FaultProject) -> Command,
    codes: &[i32],
    words: &str,
    mend: impl FnOnce(&FaultProject),
) {
    let bench = FaultProject::new();
    arrange(&bench);
    let ran = bench.place.ran(command(&bench));
    let code = ran
        .code
        .unwrap_or_else(|| panic!("{fault}: killed by a signal: {ran:?}"));
    assert!(codes.contains(&code), "{fault}: exit {code}: {ran:?}");
    let output = format!("{}{}", ran.stdout, ran.stderr);
    assert!(
        output.contains(words),
        "{fault}: does not print {words:?}: {ran:?}"
    );
    mend(&bench);
    bench.assert_kept(fault, &ran);
    bench.assert_recovers(fault);
}

fn nothing(_: &FaultProject) {}

fn remove(name: &'static str) -> impl FnOnce(&FaultProject) {
    move |bench| {
        let path = bench.state(name);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap()
        } else {
            fs::remove_file(path).unwrap()
        }
    }
}

/// Replaces the index with `bytes`.
fn index_of(bytes: impl FnOnce(Vec<u8>) -> Vec<u8>) -> impl FnOnce(&FaultProject) {
    |bench| {
        let path = bench.state("db.sqlite");
        let now = fs::read(&path).unwrap();
        for suffix in ["-wal", "-shm", "-journal"] {
            let _ = fs::remove_file(bench.state(&format!("db.sqlite{suffix}")));
        }
        fs::write(path, bytes(now)).unwrap();
    }
}

#[test]
fn damaged_index_is_built_again() {
    let flip = |mut bytes: Vec<u8>| {
        bytes
            .iter_mut()
            .skip(100)
            .step_by(97)
            .for_each(|byte| *byte ^= 0x55);
        bytes
    };
    inject_fault(
        "garbage",
        index_of(|_| b"no database ".repeat(900)),
        FaultProject::command,
        &[0],
        "",
        nothing,
    );
    inject_fault(
        "cut",
        index_of(|bytes| bytes[..bytes.len() / 2].to_vec()),
        FaultProject::command,
        &[0],
        "",
        nothing,
    );
    inject_fault(
        "bits flipped",
        index_of(flip),
        FaultProject::command,
        &[0],
        "",
        nothing,
    );
    inject_fault(
        "empty",
        index_of(|_| Vec::new()),
        FaultProject::command,
        &[0],
        "",
        nothing,
    );
    let delete =
        |bench: &FaultProject| bench.run_before_agent(&format!("rm -f \"$P/{STATE}/db.sqlite\"*"));
    inject_fault(
        "deleted while running",
        delete,
        FaultProject::command,
        &[0],
        "",
        nothing,
    );
}

#[test]
fn index_that_is_no_database_file_is_refused() {
    let directory = |bench: &FaultProject| {
        fs::remove_file(bench.state("db.sqlite")).unwrap();
        fs::create_dir(bench.state("db.sqlite")).unwrap();
    };
    inject_fault(
        "directory",
        directory,
        FaultProject::command,
        &[1],
        "db.sqlite",
        remove("db.sqlite"),
    );
    let pipe = |bench: &FaultProject| {
        fs::remove_file(bench.state("db.sqlite")).unwrap();
        mkfifo(&bench.state("db.sqlite"), Mode::S_IRWXU).unwrap();
    };
    inject_fault(
        "named pipe",
        pipe,
        FaultProject::command,
        &[1],
        "db.sqlite",
        remove("db.sqlite"),
    );
    let foreign = |bench: &FaultProject| {
        fs::remove_file(bench.state("db.sqlite")).unwrap();
        let connection = rusqlite::Connection::open(bench.state("db.sqlite")).unwrap();
        connection.execute_batch("CREATE TABLE photos (x)").unwrap();
    };
    inject_fault(
        "foreign",
        foreign,
        FaultProject::command,
        &[1],
        "photos",
        remove("db.sqlite"),
    );
}

#[test]
fn locked_index_is_reported() {
    let bench = FaultProject::new();
    let holder = rusqlite::Connection::open(bench.state("db.sqlite")).unwrap();
    holder
        .execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE")
        .unwrap();
    let ran = bench.place.ran(bench.command());
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.stderr.contains("busy") && ran.stderr.contains("try again"),
        "{ran:?}"
    );
    drop(holder);
    bench.assert_kept("locked", &ran);
    bench.assert_recovers("locked");
}

#[test]
fn pipes_and_files_in_the_state_directory_are_reported() {
    let locks = |bench: &FaultProject| {
        let runs = fs::read_dir(bench.state("runs")).unwrap();
        for run in runs {
            mkfifo(
                &bench.state("locks").join(run.unwrap().file_name()),
                Mode::S_IRWXU,
            )
            .unwrap();
        }
    };
    let clear = |bench: &FaultProject| fs::remove_dir_all(bench.state("locks")).unwrap();
    inject_fault(
        "lock is a pipe",
        locks,
        FaultProject::command,
        &[0, 1],
        "",
        clear,
    );
    let project_lock = |bench: &FaultProject| {
        fs::remove_file(bench.state("ingest.lock")).unwrap();
        mkfifo(&bench.state("ingest.lock"), Mode::S_IRWXU).unwrap();
    };
    inject_fault(
        "project lock is a pipe",
        project_lock,
        FaultProject::command,
        &[1],
        "ingest.lock",
        remove("ingest.lock"),
    );
    let file = |bench: &FaultProject| {
        fs::remove_dir_all(bench.place.path(".ktx/worktrees")).unwrap();
        fs::write(bench.place.path(".ktx/worktrees"), "x").unwrap();
    };
    let clear = |bench: &FaultProject| fs::remove_file(bench.place.path(".ktx/worktrees")).unwrap();
    inject_fault(
        "worktrees is a file",
        file,
        FaultProject::command,
        &[1, 100],
        "worktrees",
        clear,
    );
}

#[test]
fn missing_descriptors_lose_no_work() {
    for limit in [8, 16, 24, 40] {
        let command = |bench: &FaultProject| bench.shell(&format!("ulimit -n {limit}"));
        inject_fault(
            &format!("{limit} descriptors"),
            nothing,
            command,
            &[0, 1, 2, 96, 100],
            "",
            nothing,
        );
    }
}

#[test]
fn file_size_limit_ends_the_run_with_a_message() {
    let command = |bench: &FaultProject| bench.shell("ulimit -f 8");
    inject_fault(
        "files of 4 KiB",
        nothing,
        command,
        &[1, 100],
        "ulimit -f",
        nothing,
    );
}

#[test]
fn files_deleted_during_a_run_are_reported() {
    let tape = |bench: &FaultProject| {
        let keep = bench
            .tapes
            .keys()
            .next()
            .unwrap()
            .parent()
            .unwrap()
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        bench.run_before_agent(&format!(
            "find \"$P/{STATE}/runs\" -name tape.jsonl -not -path '*{keep}*' -delete"
        ));
    };
    inject_fault(
        "tape deleted",
        tape,
        FaultProject::command,
        &[1],
        "the file was deleted",
        nothing,
    );
    let trees =
        |bench: &FaultProject| bench.run_before_agent("rm -rf \"$P/.ktx/worktrees\"/session-*");
    inject_fault(
        "worktrees deleted",
        trees,
        FaultProject::command,
        &[1, 100],
        "",
        nothing,
    );
    let patches =
        |bench: &FaultProject| bench.run_before_agent("rm -rf \"$P/.ktx/ingest-patches\"/*");
    inject_fault(
        "patches deleted",
        patches,
        FaultProject::command,
        &[0, 1, 100],
        "",
        nothing,
    );
}

#[test]
fn killed_run_is_finished_by_the_next_one() {
    let bench = FaultProject::new();
    bench.run_before_agent("exec sleep 600");
    let mut running = bench.place.start(bench.command());
    running.wait_for("stdout", "running");
    running.signal(Signal::SIGKILL);
    let ran = running.end();
    bench.assert_kept("killed", &ran);
    bench.assert_recovers("killed");
}

#[test]
fn killed_agent_fails_only_its_attempt() {
    let kill = |bench: &FaultProject| bench.run_before_agent("kill -9 $$");
    inject_fault(
        "agent killed",
        kill,
        FaultProject::command,
        &[100],
        "",
        nothing,
    );
}

#[test]
fn locked_git_index_is_waited_for_and_reported() {
    let hold = |bench: &FaultProject| bench.run_before_agent("touch \"$P/.git/index.lock\"");
    let clear =
        |bench: &FaultProject| fs::remove_file(bench.place.path(".git/index.lock")).unwrap();
    inject_fault(
        "index.lock",
        hold,
        FaultProject::command,
        &[100],
        "index.lock",
        clear,
    );
}

/// True if this process may mount a file system.
fn can_mount() -> bool {
    let tried = Command::new("unshare")
        .args(["-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"])
        .output();
    tried.is_ok_and(|output| output.status.success())
}

#[test]
#[ignore = "needs the right to mount file systems (root)"]
fn full_disk_and_read_only_project_lose_nothing() {
    if !can_mount() {
        eprintln!("not tested: this process may not mount a file system");
        return;
    }
    // The state directory is on a small file system during the run, and is moved back afterwards.
    let on_small = |bench: &FaultProject, size: &str| {
        let inner = "cp -a ../kept/. .ktx/ && { sh -c \"$RUN\"; code=$?; rm -rf .ktx/fill ../kept; cp -a .ktx ../kept; exit $code; }";
        let mount = format!("mount -t tmpfs -o size={size} tmpfs .ktx");
        bench.shell(&format!(
            "cp -a .ktx ../kept && exec unshare -m sh -c '{mount} && {inner}'"
        ))
    };
    let back = |bench: &FaultProject| {
        fs::remove_dir_all(bench.place.path(".ktx")).unwrap();
        fs::rename(bench.place.path("../kept"), bench.place.path(".ktx")).unwrap();
    };
    inject_fault(
        "disk full at start",
        nothing,
        |bench| on_small(bench, "320k"),
        &[1, 100],
        "",
        back,
    );
    let fill = |bench: &FaultProject| {
        bench.run_before_agent("head -c 100000000 /dev/zero > \"$P/.ktx/fill\" 2>/dev/null")
    };
    inject_fault(
        "disk full while running",
        fill,
        |bench| on_small(bench, "4m"),
        &[1, 100],
        "",
        back,
    );
    let read_only = |bench: &FaultProject| {
        let mount = "mount --bind . . && mount -o remount,ro,bind \"$PWD\" && cd \"$PWD\"";
        bench.shell(&format!(
            "exec unshare -m sh -c '{mount} && exec sh -c \"$RUN\"'"
        ))
    };
    inject_fault("read-only project", nothing, read_only, &[1], "", nothing);
}

#[test]
fn tape_torn_at_any_byte_keeps_its_whole_lines() {
    let tape = include_bytes!("../fixtures/tapes/demo.jsonl");
    let lines: Vec<usize> = tape
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'\n')
        .map(|(at, _)| at + 1)
        .take(40)
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tape.jsonl");
    // The first lines at every byte, later ones at their ends.
    let later = lines[10..].iter().flat_map(|end| end - 12..=*end);
    for cut in (lines[0]..=lines[9]).chain(later) {
        fs::write(&path, &tape[..cut]).unwrap();
        let mut source = FileSource::open(&path).unwrap();
        let (mut entries, mut raw) = (0, 0);
        while source
            .poll(1 << 20, &mut |entry| {
                if matches!(entry.body, EntryBody::StdoutRaw(_)) {
                    raw += 1
                } else {
                    entries += 1
                }
            })
            .unwrap()
            != PollStatus::End
        {}
        let whole = lines.iter().filter(|end| **end <= cut).count() - 1;
        assert!(
            entries >= whole && entries + raw <= whole + 1,
            "cut at {cut}: {entries} and {raw} of {whole}"
        );
    }
}
