//! Background sessions of Claude Code: in lists, watched, and stopped by Claude Code itself.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

const ID: &str = "d69b0163";
const SESSION: &str = "d69b0163-583d-49fa-9b66-78c18c666a4d";

/// A directory of Claude Code with one background session, whose process is `cat`.
struct BackgroundSession {
    dir: tempfile::TempDir,
    folder: PathBuf,
    process: Child,
}

impl BackgroundSession {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().canonicalize().unwrap().join("orbit");
        let slug = project
            .to_str()
            .unwrap()
            .replace(|char: char| !char.is_ascii_alphanumeric(), "-");
        let (claude, folder) = (
            dir.path().join("claude"),
            dir.path().join("claude/projects").join(slug),
        );
        for made in [
            &project,
            &folder,
            &claude.join("sessions"),
            &claude.join("jobs").join(ID),
        ] {
            fs::create_dir_all(made).unwrap();
        }
        let process = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let file = json!({
            "pid": process.id(), "sessionId": SESSION, "cwd": project, "kind": "bg", "jobId": ID,
            "status": "waiting", "waitingFor": "input needed",
        });
        fs::write(claude.join("sessions/1.json"), file.to_string()).unwrap();
        let state = json!({"tempo": "blocked", "needs": "answer: Which format?"});
        fs::write(
            claude.join("jobs").join(ID).join("state.json"),
            state.to_string(),
        )
        .unwrap();
        let capture = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures/captures/ondisk_session.jsonl");
        fs::copy(capture, folder.join(format!("{SESSION}.jsonl"))).unwrap();
        let program = dir.path().join("claude-program");
        fs::write(&program, "#!/bin/sh\necho \"claude $*\"\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Self {
            dir,
            folder,
            process,
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ingestdeck"));
        command
            .args(args)
            .current_dir(self.dir.path().join("orbit"))
            .env("CLAUDE_CONFIG_DIR", self.dir.path().join("claude"))
            .env(
                "INGESTDECK_CLAUDE_BIN",
                self.dir.path().join("claude-program"),
            );
        command
    }

    fn output(&self, args: &[&str]) -> (Option<i32>, String) {
        let output = self.command(args).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
        )
    }

    fn end(&mut self) {
        // The process may have ended before.
        let _ = self.process.kill();
        self.process.wait().unwrap();
    }
}

impl Drop for BackgroundSession {
    fn drop(&mut self) {
        self.end();
    }
}

#[test]
fn lists_show_what_a_background_session_waits_for() {
    let mut session = BackgroundSession::new();
    let folder = session.folder.to_str().unwrap().to_owned();
    let (_, lines) = session.output(&["replay", &folder, "--ui", "lines"]);
    assert!(lines.contains("needs you (background)"), "{lines}");
    let listed = |session: &BackgroundSession| -> Value {
        let (_, json) = session.output(&["replay", &folder, "--ui", "json"]);
        serde_json::from_str(&json).unwrap()
    };
    let active = listed(&session);
    assert_eq!(
        (
            &active["running"],
            &active["state"],
            &active["needs"],
            &active["background"]
        ),
        (
            &json!(true),
            &json!("waiting"),
            &json!("answer: Which format?"),
            &json!(ID)
        )
    );
    session.end();
    let ended = listed(&session);
    assert_eq!(
        (&ended["running"], ended.get("state")),
        (&json!(false), None)
    );
}

#[test]
fn background_session_is_stopped_by_claude() {
    let mut session = BackgroundSession::new();
    let stop = |session: &BackgroundSession, id| session.output(&["ctl", "--run", id, "stop-all"]);
    assert_eq!(stop(&session, ID), (Some(0), format!("claude stop {ID}\n")));
    assert_eq!(
        stop(&session, SESSION),
        (Some(0), format!("claude stop {ID}\n"))
    );
    assert_eq!(stop(&session, "d69b"), (Some(4), String::new()));
    assert_eq!(session.output(&["ctl", "--run", ID, "status"]).0, Some(4));
    session.end();
    assert_eq!(stop(&session, ID), (Some(4), String::new()));
}

#[test]
fn background_session_is_watched_until_its_process_ends() {
    let mut session = BackgroundSession::new();
    let mut watch = session
        .command(&["watch", ID, "--ui", "lines"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(watch.stdout.take().unwrap());
    let mut text = String::new();
    out.read_line(&mut text).unwrap();
    assert!(text.contains("running"), "{text}");
    session.end();
    out.read_to_string(&mut text).unwrap();
    assert!(watch.wait().unwrap().success());
    assert!(text.contains("completed: "), "{text}");
}
