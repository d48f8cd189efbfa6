//! Whether the process of a session still runs, from the files that Claude Code keeps for its processes.

#![expect(
    clippy::disallowed_methods,
    reason = "the session file that the command line names"
)]

use std::{
    fs,
    path::{Path, PathBuf},
};

use nix::{sys::signal, unistd::Pid};
use serde::Deserialize;

use ingestdeck_os::scoped_dir::{FileKind, ScopedDir};

/// Maximum number and size of the files about processes.
const MAX_PROCESSES: usize = 1000;
const MAX_FILE_BYTES: u64 = 64 << 10;

/// The process that writes a session file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionProcess {
    /// The directory of Claude Code.
    claude_dir: PathBuf,
    session: String,
}

/// A file in `sessions`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProcessFile {
    pid: i32,
    session_id: String,
    /// When the process started, on Linux in clock ticks since the boot.
    #[serde(default)]
    proc_start: serde_json::Value,
}

impl SessionProcess {
    /// The process of the session in `path`, which is `projects/<project>/<session>.jsonl` in the directory of Claude
    /// Code. `None` for a file elsewhere.
    pub fn of_file(path: &Path) -> Option<Self> {
        let path = path.canonicalize().ok()?;
        let projects = path
            .ancestors()
            .nth(2)
            .filter(|dir| dir.file_name().is_some_and(|name| name == "projects"))?;
        let session = path.file_stem()?.to_str()?.to_owned();
        Some(Self {
            claude_dir: projects.parent()?.to_owned(),
            session,
        })
    }

    /// True while the process runs.
    pub fn is_alive(&self) -> bool {
        running_sessions(&self.claude_dir).contains(&self.session)
    }
}

/// Ids of the sessions whose processes run now.
pub(super) fn running_sessions(claude_dir: &Path) -> Vec<String> {
    let opened = ScopedDir::open(claude_dir).and_then(|root| root.dir_if_exists("sessions"));
    let Ok(Some(dir)) = opened else {
        return Vec::new();
    };
    let names = dir
        .entries()
        .unwrap_or_default()
        .into_iter()
        .filter(|(_, kind)| *kind == FileKind::File);
    let names = names
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|name| name.ends_with(".json"));
    let files = names.take(MAX_PROCESSES).filter_map(|name| {
        let json = dir.read(&name, MAX_FILE_BYTES).ok()?;
        serde_json::from_slice::<ProcessFile>(&json).ok()
    });
    files
        .filter(ProcessFile::is_running)
        .map(|file| file.session_id)
        .collect()
}

impl ProcessFile {
    /// A process of another user, or one that started later under the same number, is not the one of the session.
    fn is_running(&self) -> bool {
        if self.pid <= 0 || signal::kill(Pid::from_raw(self.pid), None).is_err() {
            return false;
        }
        let recorded = self
            .proc_start
            .as_str()
            .and_then(|ticks| ticks.parse::<u64>().ok());
        match (recorded, start_ticks(self.pid)) {
            (Some(recorded), Some(actual)) => recorded == actual,
            _ => true,
        }
    }
}

/// When a process started, in clock ticks since the boot; `None` where the system does not have `/proc`.
fn start_ticks(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program precedes in parentheses, and may contain anything.
    stat.rsplit_once(')')?
        .1
        .split_ascii_whitespace()
        .nth(19)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sessions_of_live_processes_run() {
        let home = tempfile::tempdir().unwrap();
        let (project, sessions) = (
            home.path().join("projects/-p"),
            home.path().join("sessions"),
        );
        fs::create_dir_all(&project).unwrap();
        fs::create_dir_all(&sessions).unwrap();
        let write = |name: &str, text: String| fs::write(sessions.join(name), text).unwrap();
        let file = |pid: i64, session: &str| {
            format!(r#"{{"pid":{pid},"sessionId":"{session}","more":1}}"#)
        };
        write("1.json", file(std::process::id().into(), "live"));
        write("2.json", file(i32::MAX.into(), "dead"));
        write("3.json", file(-1, "group"));
        write("4.json", file(1 << 40, "huge"));
        write("5.json", "{".to_owned());
        let reused = format!(
            r#"{{"pid":{},"sessionId":"reused","procStart":"1"}}"#,
            std::process::id()
        );
        if let Some(ticks) = start_ticks(std::process::id().cast_signed()) {
            write("7.json", reused.clone());
            write(
                "1.json",
                reused
                    .replace("reused", "live")
                    .replace("\"1\"", &format!("\"{ticks}\"")),
            );
        }
        write("6.key", file(std::process::id().into(), "other"));
        assert_eq!(running_sessions(home.path()), ["live"]);
        for (session, alive) in [("live", true), ("dead", false)] {
            let path = project.join(format!("{session}.jsonl"));
            fs::write(&path, "").unwrap();
            assert_eq!(
                SessionProcess::of_file(&path).unwrap().is_alive(),
                alive,
                "{session}"
            );
        }
        fs::write(home.path().join("live.jsonl"), "").unwrap();
        assert_eq!(
            SessionProcess::of_file(&home.path().join("live.jsonl")),
            None
        );
        assert!(running_sessions(&home.path().join("missing")).is_empty());
    }
}
