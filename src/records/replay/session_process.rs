//! Which sessions run and what they wait for, from the files that Claude Code keeps for its processes and its background
//! sessions.

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

/// A session whose process runs now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveSession {
    pub id: String,
    pub status: SessionStatus,
    /// What it waits for, in the words of Claude Code.
    pub needs: Option<String>,
    /// Id of a background session (`claude --bg`), by which `claude stop` and `claude attach` know it.
    pub background: Option<String>,
    /// The directory in which it runs.
    pub directory: PathBuf,
}

/// What a running session does. Releases that do not report it seem to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionStatus {
    Running,
    /// It has ended its turn.
    Idle,
    /// It waits for an answer or a permission.
    Waiting,
}

impl SessionStatus {
    /// Its text in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Idle => "idle",
            Self::Waiting => "waiting",
        }
    }

    /// Its text on the screen and in lists.
    pub fn label(self) -> &'static str {
        match self {
            Self::Waiting => "needs you",
            status => status.as_str(),
        }
    }
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
    /// `idle`, `busy` or `waiting`.
    #[serde(default)]
    status: serde_json::Value,
    #[serde(default)]
    waiting_for: serde_json::Value,
    #[serde(default)]
    job_id: serde_json::Value,
    #[serde(default)]
    cwd: serde_json::Value,
}

/// The part of `jobs/<id>/state.json` that is used.
#[derive(Debug, Deserialize)]
struct JobFile {
    needs: Option<String>,
    /// `blocked` while it cannot continue without a person, also where its process is idle.
    tempo: Option<String>,
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
        running_sessions(&self.claude_dir)
            .iter()
            .any(|session| session.id == self.session)
    }
}

/// The sessions whose processes run now.
pub fn running_sessions(claude_dir: &Path) -> Vec<ActiveSession> {
    let Ok(root) = ScopedDir::open(claude_dir) else {
        return Vec::new();
    };
    let Ok(Some(dir)) = root.dir_if_exists("sessions") else {
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
        .map(|file| file.into_session(&root))
        .collect()
}

impl ProcessFile {
    fn into_session(self, root: &ScopedDir) -> ActiveSession {
        let background = self.job_id.as_str().filter(|id| is_plain_id(id));
        let job = || read_job(root, background?);
        let (status, job) = match self.status.as_str() {
            Some("waiting") => (SessionStatus::Waiting, job()),
            Some("idle") => match job() {
                Some(job) if job.tempo.as_deref() == Some("blocked") => {
                    (SessionStatus::Waiting, Some(job))
                }
                _ => (SessionStatus::Idle, None),
            },
            _ => (SessionStatus::Running, None),
        };
        let needs = job.and_then(|job| job.needs);
        let waits_for = || self.waiting_for.as_str().map(str::to_owned);
        ActiveSession {
            status,
            needs: match status {
                SessionStatus::Waiting => needs.or_else(waits_for),
                SessionStatus::Running | SessionStatus::Idle => None,
            },
            background: background.map(str::to_owned),
            directory: self.cwd.as_str().unwrap_or_default().into(),
            id: self.session_id,
        }
    }

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

/// True for an id that is safe as the name of a directory and as an argument.
fn is_plain_id(id: &str) -> bool {
    (1..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// What Claude Code records about a background session.
fn read_job(root: &ScopedDir, id: &str) -> Option<JobFile> {
    let job = root.dir_if_exists(&format!("jobs/{id}")).ok()??;
    let json = job.read("state.json", MAX_FILE_BYTES).ok()?;
    serde_json::from_slice(&json).ok()
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
        let running = running_sessions(home.path());
        assert_eq!(running.len(), 1);
        assert_eq!(
            (running[0].id.as_str(), running[0].status),
            ("live", SessionStatus::Running)
        );
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

    #[test]
    fn state_of_a_session_is_what_its_process_reports() {
        let home = tempfile::tempdir().unwrap();
        let sessions = home.path().join("sessions");
        fs::create_dir_all(&sessions).unwrap();
        fs::create_dir_all(home.path().join("jobs/d69b0163")).unwrap();
        let state = home.path().join("jobs/d69b0163/state.json");
        fs::write(
            &state,
            r#"{"tempo":"blocked","needs":"answer: Which format?"}"#,
        )
        .unwrap();
        let state_of = |fields: &str| {
            let pid = std::process::id();
            let file = format!(r#"{{"pid":{pid},"sessionId":"s",{fields}}}"#);
            fs::write(sessions.join("1.json"), file).unwrap();
            let session = running_sessions(home.path()).remove(0);
            (session.status, session.needs, session.background)
        };
        let text = |text: &str| Some(text.to_owned());
        let job = text("d69b0163");
        assert_eq!(
            state_of(r#""jobId":"d69b0163","status":"waiting","waitingFor":"input needed""#),
            (
                SessionStatus::Waiting,
                text("answer: Which format?"),
                job.clone()
            )
        );
        // Its process is idle, but it cannot continue: it waits for a login.
        let idle = r#""jobId":"d69b0163","status":"idle""#;
        let login = r#"{"tempo":"blocked","needs":"login required"}"#;
        fs::write(&state, login).unwrap();
        assert_eq!(
            state_of(idle),
            (SessionStatus::Waiting, text("login required"), job.clone())
        );
        fs::write(&state, r#"{"tempo":"idle","needs":"login required"}"#).unwrap();
        assert_eq!(state_of(idle), (SessionStatus::Idle, None, job));
        assert_eq!(
            state_of(r#""status":"waiting","waitingFor":"permission""#),
            (SessionStatus::Waiting, text("permission"), None)
        );
        for odd in [
            "\"status\":7",
            "\"status\":\"busy\",\"jobId\":\"../x\"",
            "\"jobId\":\"-x\"",
        ] {
            assert_eq!(state_of(odd), (SessionStatus::Running, None, None), "{odd}");
        }
    }
}
