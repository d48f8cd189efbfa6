//! The program on a real terminal: it starts, draws, follows a resize, and restores the terminal.

use std::{
    fs::File,
    io::Read as _,
    path::Path,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use portable_pty::PtySize;
use serde_json::Value;

use super::pty_session::{PtySession, cells};
use crate::support::open_terminal;

#[test]
fn tui_starts_draws_and_restores_the_terminal() {
    let mut session = PtySession::replay("success_tools.jsonl");
    session.shows("read_raw_span orders.yml");
    session.until("alternate screen", |screen| {
        screen.alternate_screen() && screen.bracketed_paste()
    });
    session.press("?");
    session.shows("Keys of the session");
    session.press("q");
    // The output remains in the scrollback.
    session.until("summary", |screen| {
        !screen.alternate_screen() && screen.contents().contains("1 unit: 1 succeeded")
    });
    assert_eq!(session.end(), 0);
}

#[test]
fn resize_redraws_the_screen() {
    let session = PtySession::replay("success_tools.jsonl");
    session.shows("read_raw_span orders.yml");
    session
        .screen
        .lock()
        .unwrap()
        .screen_mut()
        .set_size(cells(12), cells(40));
    session
        .master
        .resize(PtySize {
            rows: 12,
            cols: 40,
            pixel_width: 0,
            pixel_height: 0,
        })
        .unwrap();
    session.until("narrow screen", |screen| {
        screen
            .rows(0, 40)
            .nth(2)
            .is_some_and(|row| row.ends_with(" 1/8 ┐"))
    });
    session.signal(Signal::SIGTERM);
    assert_ne!(session.end(), 0);
}

#[test]
fn signals_restore_the_terminal() {
    for signal in [
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGUSR2,
        Signal::SIGALRM,
    ] {
        let session = PtySession::replay("success_tools.jsonl");
        session.shows("read_raw_span orders.yml");
        session.signal(signal);
        assert_ne!(session.end(), 0, "{signal}");
    }
}

#[test]
fn suspend_without_a_job_control_shell_continues() {
    // The program is the session leader here, so the kernel does not stop it.
    let mut session = PtySession::replay("success_tools.jsonl");
    session.shows("read_raw_span orders.yml");
    session.press("\u{1a}");
    let written = Arc::clone(&session.written);
    // It restores the terminal and takes it over again.
    session.until("second beginning", |_| {
        memchr::memmem::find_iter(&written.lock().unwrap(), "\u{1b}[?1049h").count() == 2
    });
    session.shows("read_raw_span orders.yml");
    session.press("?");
    session.shows("Keys of the session");
    session.press("q");
    assert_eq!(session.end(), 0);
}

/// Notes about holding in the only run of a project, as text.
fn decisions(project: &Path) -> Vec<String> {
    let runs = std::fs::read_dir(project.join(".ktx/ingestdeck/runs")).unwrap();
    let tape = runs
        .map(|run| run.unwrap().path().join("tape.jsonl"))
        .find(|tape| tape.is_file())
        .unwrap();
    let text = std::fs::read_to_string(tape).unwrap();
    let notes = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let words = notes.filter_map(|entry| {
        let note = &entry["note"];
        match note["kind"].as_str()? {
            "hold_requested" => Some("hold".to_owned()),
            "hold_released" => Some("let go".to_owned()),
            "run_until" => Some(format!("until {}", note["condition"].as_str()?)),
            "call_decided" => Some(note["decision"].as_str()?.to_owned()),
            _ => None,
        }
    });
    words.collect()
}

/// Calls that the tools of `dbt-all` received so far.
fn transcript(project: &Path) -> String {
    let jobs = std::fs::read_dir(project.join(".ktx/ingest-transcripts"))
        .into_iter()
        .flatten();
    jobs.filter_map(|job| std::fs::read_to_string(job.ok()?.path().join("dbt-all.jsonl")).ok())
        .collect()
}

#[test]
fn demo_unit_can_be_stepped() {
    let kept = tempfile::tempdir().unwrap();
    let project = kept.path().join("demo");
    let mut session = PtySession::open(&["demo", "--keep", project.to_str().unwrap()]);
    session.shows("▶ dbt-all");
    session.press(" ");
    session.shows("read_raw_file waits for you");
    session.shows("‖ dbt-all");
    session.press("s");
    session.until("allowed call", |_| {
        decisions(&project).ends_with(&["allowed".into()])
    });
    session.shows("models/staging/sources.yml\"");
    session.press("e");
    session.shows("arguments of read_raw_file");
    // Deletes all text: what is before the cursor, then the rest, line by line.
    session.press(&"\u{15}".repeat(4));
    session.press(&"\u{b}".repeat(8));
    session.press("[]\u{13}");
    session.shows("not a JSON object");
    session.press("\u{8}\u{8}{\"path\": \"edited.yml\"}\u{13}");
    session.until("edited call", |_| {
        decisions(&project).ends_with(&["edited".into()])
    });
    session.shows("models/marts/schema.yml\"");
    session.press("dmarts are taboo\r");
    session.until("denied call", |_| {
        decisions(&project).ends_with(&["denied".into()])
    });
    session.shows("wiki_list_tags waits for you");
    session.press(" y");
    session.until("released unit", |_| {
        decisions(&project).ends_with(&["released".into()])
    });
    session.shows("▶ dbt-all");
    assert_eq!(
        decisions(&project),
        ["hold", "allowed", "edited", "denied", "let go", "released"]
    );
    session.until("edited call at the tool", |_| {
        transcript(&project).contains("edited.yml")
    });
    session.press("q");
    session.shows("stop all and quit");
    session.press("S");
    session.end();

    // The same from the record.
    let mut replay = PtySession::open(&[
        "replay",
        "latest",
        "--project-dir",
        project.to_str().unwrap(),
        "--ui",
        "lines",
    ]);
    let written = Arc::clone(&replay.written);
    for words in ["held: read_raw_file", "marts are taboo"] {
        replay.until(words, |_| {
            memchr::memmem::find(&written.lock().unwrap(), words.as_bytes()).is_some()
        });
    }
    assert_eq!(replay.child.wait().unwrap().exit_code(), 0);
}

#[test]
fn demo_unit_runs_until_the_requested_call() {
    let kept = tempfile::tempdir().unwrap();
    let project = kept.path().join("demo");
    let mut session =
        PtySession::open(&["demo", "--keep", project.to_str().unwrap(), "--speed", "4"]);
    session.shows("▶ dbt-all");
    session.press(" ");
    session.shows("read_raw_file waits for you");
    session.press(":until tool wiki_write\r");
    session.shows("until tool wiki_write");
    session.shows("wiki_write waits for you · tool wiki_write");
    // No later call of the unit fails, so it runs to its end unless it is held again.
    session.press("w");
    session.shows("✓ dbt-all");
    // Several calls of one turn wait concurrently, and are released together.
    let mut decisions = decisions(&project);
    decisions.dedup();
    assert_eq!(
        decisions,
        [
            "hold",
            "until tool wiki_write",
            "allowed",
            "released",
            "until failure",
            "allowed"
        ]
    );
    session.press("q");
    session.shows("stop all and quit");
    session.press("S");
    session.end();
}

#[test]
fn failure_is_found_and_fixed_in_under_ten_keys() {
    let kept = tempfile::tempdir().unwrap();
    let mut session = PtySession::open(&[
        "demo",
        "--keep",
        kept.path().join("demo").to_str().unwrap(),
        "--speed",
        "20",
    ]);
    session.shows("ENDED");
    // The failure, which the user has not selected yet, the unit that ran out of turns, and past the end the first one again.
    session.press("]");
    session.shows("✗ docs-bean-contracts failed");
    session.press("]");
    session.shows("◆ docs-metric-changelog budget");
    session.press("]");
    session.shows("✗ docs-bean-contracts failed");
    session.press("i");
    session.shows("inspector");
    session.press("[[");
    session.shows("call · mcp__ktx__wiki_write");
    session.press("e");
    session.shows("new attempt at docs-bean-contracts");
    // The text is the person's own; one key sends it.
    session.press("One page, please.");
    session.press("\u{13}");
    session.shows("✓ docs-bean-contracts");
    session.press("q");
    assert_eq!(session.end(), 0);
}

#[test]
fn demo_failure_resumes_its_session_with_feedback() {
    let kept = tempfile::tempdir().unwrap();
    let project = kept.path().join("demo");
    let mut session =
        PtySession::open(&["demo", "--keep", project.to_str().unwrap(), "--speed", "20"]);
    session.shows("✗ docs-bean-contracts");
    session.shows("ENDED");
    session.press("e");
    session.shows("new attempt at docs-bean-contracts");
    // Feedback, then past the model to the budget, then the session.
    session.press("One page, please.\t\t\u{1}\u{b}15\t \u{13}");
    session.shows("✓ docs-bean-contracts");
    session.shows("continues the session · requested: 15 turns");
    session.press("q");
    assert_eq!(session.end(), 0);

    let runs = std::fs::read_dir(project.join(".ktx/ingestdeck/runs")).unwrap();
    let tape = runs
        .map(|run| run.unwrap().path().join("tape.jsonl"))
        .find(|tape| tape.is_file())
        .unwrap();
    let entries: Vec<Value> = std::fs::read_to_string(tape)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |attempt: u64| {
        let entry = entries.iter().find(|entry| {
            entry["unit"] == "docs-bean-contracts"
                && entry["try"] == attempt
                && entry["note"]["kind"] == "attempt_started"
        });
        entry.unwrap()["note"].clone()
    };
    let word = |note: &Value, flag: &str| {
        let words = note["argv"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str);
        words
            .filter_map(|word| word.strip_prefix(flag))
            .map(str::to_owned)
            .next()
    };
    let (first, second) = (of(1), of(2));
    assert_eq!(
        word(&first, "--session-id="),
        word(&second, "--resume="),
        "the same session"
    );
    assert_eq!(second["step_budget"], 15);
    let prompt = second["prompt"].as_str().unwrap();
    assert!(
        prompt.starts_with("Continue with the following feedback: One page, please.\n\n"),
        "{prompt}"
    );
    assert!(
        project.join("wiki/global/landed-cost.md").is_file(),
        "its page is in the project"
    );
}

#[test]
fn tape_write_error_breaks_the_run_and_is_shown() {
    let kept = tempfile::tempdir().unwrap();
    let project = kept.path().join("demo");
    // Files are limited to 100 KiB, as if the disk were full.
    let limited = "trap '' XFSZ; ulimit -f 200; exec \"$0\" \"$@\"";
    let demo = ["demo", "--keep", project.to_str().unwrap(), "--speed", "4"];
    let args = [&["-c", limited, crate::support::program()][..], &demo[..]].concat();
    let mut session = PtySession::run("/bin/sh", &args, &[]);
    session.shows("✗ broken");
    session.shows("✗ BROKEN");
    session.shows("interrupted");
    assert!(!session.text().contains("▶"), "{}", session.text());
    session.press("L");
    session.shows("broken: File too large");
    session.shows("(`ulimit -f`)");
    let tape = std::fs::read_dir(project.join(".ktx/ingestdeck/runs"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let text = std::fs::read_to_string(tape.path().join("tape.jsonl")).unwrap();
    let pids = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok()?["note"]["pid"].as_i64());
    let alive = |pid: &i64| {
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z "))
    };
    let pids: Vec<i64> = pids.collect();
    assert!(!pids.is_empty());
    session.until("the end of every agent", |_| !pids.iter().any(alive));
    session.press("q");
    assert_eq!(session.end(), 1);
}

#[test]
fn stopping_a_held_unit_drops_the_wait() {
    let kept = tempfile::tempdir().unwrap();
    let project = kept.path().join("demo");
    let mut session = PtySession::open(&["demo", "--keep", project.to_str().unwrap()]);
    session.shows("▶ dbt-all");
    session.press(" ");
    session.shows("read_raw_file waits for you");
    session.press("x");
    session.shows("Stop dbt-all?");
    session.press("y");
    session.shows("■ dbt-all");
    let decisions = decisions(&project);
    assert!(
        decisions.starts_with(&["hold".into(), "withdrawn".into()]),
        "{decisions:?}"
    );
    session.signal(Signal::SIGTERM);
    assert_ne!(session.end(), 0);
}

#[test]
fn stepping_without_a_screen_is_refused() {
    let mut session = PtySession::open(&["step", "dbt-all", "--ui", "lines"]);
    session.shows("stepping needs the screen");
    assert_eq!(session.child.wait().unwrap().exit_code(), 2);
}

#[test]
fn lost_terminal_ends_the_program_without_a_signal() {
    // The terminal is not the controlling terminal of the program, so the kernel sends no SIGHUP.
    let (mut master, slave) = open_terminal();
    let capture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/captures/success_tools.jsonl");
    let mut child = Command::new(crate::support::program())
        .args(["replay", "--ui", "tui"])
        .arg(capture)
        .env("TERM", "xterm-256color")
        .stdin(slave.try_clone().unwrap())
        .stderr(slave.try_clone().unwrap())
        .stdout(slave)
        .spawn()
        .unwrap();
    let mut seen = Vec::new();
    while memchr::memmem::find(&seen, b"\x1b[?2026l").is_none() {
        let mut buffer = [0; 4096];
        let count = master.read(&mut buffer).unwrap();
        seen.extend_from_slice(&buffer[..count]);
    }
    drop(master);
    let deadline = Instant::now() + Duration::from_secs(30);
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if Instant::now() < deadline => crate::support::pause_before_check(),
            None => {
                child.kill().unwrap();
                panic!("it still runs without a terminal");
            }
        }
    };
    assert_eq!(status.code(), Some(129), "{status}");
}

#[test]
fn blocked_terminal_does_not_block_agents() {
    let kept = tempfile::tempdir().unwrap();
    let project = kept.path().join("demo");
    // The output is not read, and soon exceeds the buffer of the terminal.
    let size = nix::pty::Winsize {
        ws_row: 60,
        ws_col: 200,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pty = nix::pty::openpty(Some(&size), None).unwrap();
    let slave = File::from(pty.slave);
    let mut child = Command::new(crate::support::program())
        .args(["demo", "--ui", "tui", "--speed", "4", "--keep"])
        .arg(&project)
        .env("TERM", "xterm-256color")
        .stdin(slave.try_clone().unwrap())
        .stderr(slave.try_clone().unwrap())
        .stdout(slave)
        .spawn()
        .unwrap();
    let runs = project.join(".ktx/ingestdeck/runs");
    let ended = || {
        let tapes = runs
            .read_dir()
            .ok()?
            .filter_map(|run| std::fs::read_to_string(run.ok()?.path().join("tape.jsonl")).ok());
        tapes
            .last()
            .filter(|tape| tape.contains(r#""kind":"run_ended""#))
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while ended().is_none() {
        assert!(Instant::now() < deadline, "the run does not continue");
        crate::support::pause_before_check();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    drop(pty.master);
}

#[test]
fn bookmarks_survive_a_killed_screen() {
    let state = tempfile::tempdir().unwrap();
    let tape = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tapes/harbor.jsonl");
    let variables = [("XDG_STATE_HOME", state.path().to_str().unwrap())];
    let open = || PtySession::with(&["replay", tape.to_str().unwrap()], &variables);
    let mut session = open();
    session.shows("needs you · ");
    session.press("bhalf\r");
    session.shows("bookmark added");
    session.signal(Signal::SIGKILL);
    let mut session = open();
    session.shows("★ 1 bookmark");
    session.press("'");
    session.shows("  half");
    session.press("q");
    session.end();
}

#[test]
fn arrangement_of_the_table_is_kept() {
    let state = tempfile::tempdir().unwrap();
    let tape = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tapes/harbor.jsonl");
    let variables = [("XDG_STATE_HOME", state.path().to_str().unwrap())];
    let open = || PtySession::with(&["replay", tape.to_str().unwrap()], &variables);
    let mut session = open();
    session.shows("needs you · ");
    session.press("ot");
    session.shows("by cost");
    session.press("q");
    session.end();
    let mut session = open();
    session.shows("units by cost by connection");
    session.press("ooootttq");
    session.end();
}
