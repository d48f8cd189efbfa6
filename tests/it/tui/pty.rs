//! The program on a real terminal: it starts, draws, follows a resize, and gives the terminal back.

use std::{
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use serde_json::Value;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// The program in a terminal of its own.
struct Session {
    master: Box<dyn MasterPty + Send>,
    child: Box<dyn Child + Send + Sync>,
    screen: Arc<Mutex<vt100::Parser>>,
    /// Everything the program wrote.
    written: Arc<Mutex<Vec<u8>>>,
    keys: Box<dyn std::io::Write + Send>,
    _home: tempfile::TempDir,
}

impl Session {
    fn replay(capture: &str) -> Self {
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/captures").join(capture);
        Self::open(&["replay", file.to_str().unwrap()])
    }

    fn open(args: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let size = PtySize { rows: 30, cols: 100, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_ingestdeck"));
        command.args(args);
        command.env_clear();
        for (name, value) in [("TERM", "xterm-256color"), ("LANG", "C.UTF-8"), ("PATH", "/usr/bin:/bin")] {
            command.env(name, value);
        }
        command.env("HOME", home.path());
        command.cwd(home.path());
        let child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let screen = Arc::new(Mutex::new(vt100::Parser::new(cells(30), cells(100), 0)));
        let written = Arc::new(Mutex::new(Vec::new()));
        let (mut output, shown) = (pair.master.try_clone_reader().unwrap(), Arc::clone(&screen));
        let kept = Arc::clone(&written);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                kept.lock().unwrap().extend_from_slice(&bytes[..read]);
                shown.lock().unwrap().process(&bytes[..read]);
            }
        });
        let keys = pair.master.take_writer().unwrap();
        Self { master: pair.master, child, screen, written, keys, _home: home }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Waits until the screen is as wanted.
    fn until(&self, what: &str, wanted: impl Fn(&vt100::Screen) -> bool) {
        let begun = Instant::now();
        while !wanted(self.screen.lock().unwrap().screen()) {
            assert!(begun.elapsed() < PATIENCE, "no {what}:\n{}", self.text());
            std::thread::yield_now();
        }
    }

    fn shows(&self, text: &str) {
        self.until(text, |screen| screen.contents().contains(text));
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.process_id().unwrap()).unwrap()), signal).unwrap();
    }

    /// The exit code; the terminal is as it was.
    fn end(mut self) -> u32 {
        let code = self.child.wait().unwrap().exit_code();
        self.until("terminal given back", is_given_back);
        code
    }
}

fn cells(number: u16) -> std::num::NonZero<u16> {
    std::num::NonZero::new(number).unwrap()
}

fn is_given_back(screen: &vt100::Screen) -> bool {
    !screen.alternate_screen()
        && !screen.hide_cursor()
        && !screen.bracketed_paste()
        && screen.mouse_protocol_mode() == vt100::MouseProtocolMode::None
}

#[test]
fn it_starts_draws_and_gives_the_terminal_back() {
    let mut session = Session::replay("success_tools.jsonl");
    session.shows("read_raw_span orders.yml");
    session.until("alternate screen", |screen| screen.alternate_screen() && screen.bracketed_paste());
    session.press("?");
    session.shows("half a page down");
    session.press("q");
    assert_eq!(session.end(), 0);
}

#[test]
fn a_resize_is_followed() {
    let session = Session::replay("success_tools.jsonl");
    session.shows("read_raw_span orders.yml");
    session.screen.lock().unwrap().screen_mut().set_size(cells(12), cells(40));
    session.master.resize(PtySize { rows: 12, cols: 40, pixel_width: 0, pixel_height: 0 }).unwrap();
    session.until("narrow screen", |screen| screen.rows(0, 40).nth(2).is_some_and(|row| row.ends_with("1/1 ┐")));
    session.signal(Signal::SIGTERM);
    assert_ne!(session.end(), 0);
}

#[test]
fn signals_give_the_terminal_back() {
    for signal in [Signal::SIGTERM, Signal::SIGHUP] {
        let session = Session::replay("success_tools.jsonl");
        session.shows("read_raw_span orders.yml");
        session.signal(signal);
        assert_ne!(session.end(), 0, "{signal}");
    }
}

#[test]
fn suspending_where_no_shell_could_bring_it_back_just_goes_on() {
    // The program leads a session of its own here, so the kernel does not stop it.
    let mut session = Session::replay("success_tools.jsonl");
    session.shows("read_raw_span orders.yml");
    session.press("\u{1a}");
    let written = Arc::clone(&session.written);
    // It gives the terminal back and takes it again.
    session.until("second beginning", |_| {
        memchr::memmem::find_iter(&written.lock().unwrap(), "\u{1b}[?1049h").count() == 2
    });
    session.shows("read_raw_span orders.yml");
    session.press("?");
    session.shows("half a page down");
    session.press("q");
    assert_eq!(session.end(), 0);
}

/// Notes of the only run of a project that are about holding, in words.
fn decisions(project: &Path) -> Vec<String> {
    let runs = std::fs::read_dir(project.join(".ktx/ingestdeck/runs")).unwrap();
    let tape = runs.map(|run| run.unwrap().path().join("tape.jsonl")).find(|tape| tape.is_file()).unwrap();
    let text = std::fs::read_to_string(tape).unwrap();
    let notes = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let words = notes.filter_map(|entry| {
        let note = &entry["note"];
        match note["kind"].as_str()? {
            "hold_requested" => Some("hold".to_owned()),
            "hold_released" => Some("let go".to_owned()),
            "call_decided" => Some(note["decision"].as_str()?.to_owned()),
            _ => None,
        }
    });
    words.collect()
}

/// Calls as the tools of `dbt-all` saw them so far.
fn transcript(project: &Path) -> String {
    let jobs = std::fs::read_dir(project.join(".ktx/ingest-transcripts")).into_iter().flatten();
    jobs.filter_map(|job| std::fs::read_to_string(job.ok()?.path().join("dbt-all.jsonl")).ok()).collect()
}

#[test]
fn a_unit_of_the_demo_is_stepped() {
    let kept = tempfile::tempdir().unwrap();
    let project = kept.path().join("demo");
    let mut session = Session::open(&["demo", "--keep", project.to_str().unwrap()]);
    session.shows("▶ dbt-all");
    session.press(" ");
    session.shows("read_raw_file waits for you");
    session.shows("‖ dbt-all");
    session.press("s");
    session.until("allowed call", |_| decisions(&project).ends_with(&["allowed".into()]));
    session.shows("models/staging/sources.yml\"");
    session.press("e");
    session.shows("arguments of read_raw_file");
    // Everything goes, line by line.
    session.press(&"\u{b}".repeat(8));
    session.press("[]\u{13}");
    session.shows("not a JSON object");
    session.press("\u{8}\u{8}{\"path\": \"dbt_project.yml\", \"startLine\": 1, \"endLine\": 1}\u{13}");
    session.until("edited call", |_| decisions(&project).ends_with(&["edited".into()]));
    session.shows("models/marts/schema.yml\"");
    session.press("dmarts are taboo\r");
    session.until("denied call", |_| decisions(&project).ends_with(&["denied".into()]));
    session.shows("wiki_list_tags waits for you");
    session.press(" ");
    session.until("released unit", |_| decisions(&project).ends_with(&["released".into()]));
    session.shows("▶ dbt-all");
    assert_eq!(decisions(&project), ["hold", "allowed", "edited", "denied", "let go", "released"]);
    session.until("edited call at the tool", |_| transcript(&project).contains("\"endLine\":1"));
    session.press("q");
    session.shows("Stop and leave?");
    session.press("y");
    session.end();

    // The same again, from the record.
    let mut replay = Session::open(&["replay", "latest", "--project-dir", project.to_str().unwrap(), "--ui", "lines"]);
    let written = Arc::clone(&replay.written);
    for words in ["held: read_raw_file", "marts are taboo"] {
        replay.until(words, |_| memchr::memmem::find(&written.lock().unwrap(), words.as_bytes()).is_some());
    }
    assert_eq!(replay.child.wait().unwrap().exit_code(), 0);
}

#[test]
fn stopping_a_held_unit_drops_the_wait() {
    let kept = tempfile::tempdir().unwrap();
    let project = kept.path().join("demo");
    let mut session = Session::open(&["demo", "--keep", project.to_str().unwrap()]);
    session.shows("▶ dbt-all");
    session.press(" ");
    session.shows("read_raw_file waits for you");
    session.press("x");
    session.shows("Stop dbt-all?");
    session.press("y");
    session.shows("■ dbt-all");
    let decisions = decisions(&project);
    assert!(decisions.starts_with(&["hold".into(), "withdrawn".into()]), "{decisions:?}");
    session.signal(Signal::SIGTERM);
    assert_ne!(session.end(), 0);
}

#[test]
fn a_unit_is_not_stepped_without_a_screen() {
    let mut session = Session::open(&["step", "dbt-all", "--ui", "lines"]);
    session.shows("stepping needs the screen");
    assert_eq!(session.child.wait().unwrap().exit_code(), 2);
}
