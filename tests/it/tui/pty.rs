//! The program on a real terminal: it starts, draws, follows a resize, and gives the terminal back.

use std::{
    io::{Read as _, Write as _},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

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
        let home = tempfile::tempdir().unwrap();
        let size = PtySize { rows: 30, cols: 100, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).unwrap();
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/captures").join(capture);
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_ingestdeck"));
        command.args(["replay".into(), file.into_os_string()]);
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
