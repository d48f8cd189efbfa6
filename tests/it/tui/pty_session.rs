//! A terminal with its own session that the program runs in.

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

/// The program in a new pseudo-terminal.
pub(crate) struct PtySession {
    pub(crate) master: Box<dyn MasterPty + Send>,
    pub(crate) child: Box<dyn Child + Send + Sync>,
    pub(crate) screen: Arc<Mutex<vt100::Parser>>,
    /// All bytes that the program wrote.
    pub(crate) written: Arc<Mutex<Vec<u8>>>,
    pub(crate) keys: Box<dyn std::io::Write + Send>,
    /// The home directory, which is also the working directory.
    pub(crate) home: tempfile::TempDir,
}

impl PtySession {
    pub(crate) fn replay(capture: &str) -> Self {
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures/captures")
            .join(capture);
        Self::open(&["replay", file.to_str().unwrap()])
    }

    pub(crate) fn open(args: &[&str]) -> Self {
        Self::with(args, &[])
    }

    /// With more variables than a bare terminal has.
    pub(crate) fn with(args: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::run(crate::support::program(), args, variables)
    }

    /// An interactive shell with job control.
    pub(crate) fn shell(variables: &[(&str, &str)]) -> Self {
        let shell = Self::run("/bin/bash", &["--norc", "--noprofile", "-i"], variables);
        shell.has_prompt();
        shell
    }

    pub(crate) fn run(program: &str, args: &[&str], variables: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let size = PtySize {
            rows: 30,
            cols: 100,
            pixel_width: 0,
            pixel_height: 0,
        };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(program);
        command.args(args);
        command.env_clear();
        // A test that fails must not leave a run behind.
        let usual = [
            ("TERM", "xterm-256color"),
            ("LANG", "C.UTF-8"),
            ("PATH", "/usr/bin:/bin"),
            ("PS1", "$ "),
            ("INGESTDECK_UI_ON_DISCONNECT", "stop"),
        ];
        for (name, value) in usual.iter().chain(variables) {
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
        Self {
            master: pair.master,
            child,
            screen,
            written,
            keys,
            home,
        }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    pub(crate) fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Waits until the screen meets the condition.
    pub(crate) fn until(&self, what: &str, wanted: impl Fn(&vt100::Screen) -> bool) {
        let begun = Instant::now();
        while !wanted(self.screen.lock().unwrap().screen()) {
            assert!(begun.elapsed() < PATIENCE, "no {what}:\n{}", self.text());
            crate::support::pause_before_check();
        }
    }

    pub(crate) fn shows(&self, text: &str) {
        self.until(text, |screen| screen.contents().contains(text));
    }

    /// Waits until these bytes have been written.
    pub(crate) fn wrote(&self, bytes: &str) {
        self.until(&format!("{bytes:?}"), |_| {
            memchr::memmem::find(&self.written.lock().unwrap(), bytes.as_bytes()).is_some()
        });
    }

    /// Waits until a shell is ready for a command.
    pub(crate) fn has_prompt(&self) {
        let shell = self
            .child
            .process_id()
            .and_then(|pid| i32::try_from(pid).ok());
        self.until("prompt", |screen| {
            self.master.process_group_leader() == shell
                && screen
                    .contents()
                    .trim_end()
                    .lines()
                    .last()
                    .is_some_and(|line| line == "$")
        });
    }

    /// The process group in the foreground of the terminal.
    pub(crate) fn foreground(&self) -> Pid {
        Pid::from_raw(self.master.process_group_leader().unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(
            Pid::from_raw(i32::try_from(self.child.process_id().unwrap()).unwrap()),
            signal,
        )
        .unwrap();
    }

    /// The exit code. Expects that the terminal is restored.
    pub(crate) fn end(mut self) -> u32 {
        let begun = Instant::now();
        let code = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.exit_code();
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "it does not end:\n{}",
                self.text()
            );
            crate::support::pause_before_check();
        };
        self.until("terminal given back", is_given_back);
        code
    }
}

impl Drop for PtySession {
    fn drop(&mut self) {
        // Cleans up after a failed test. A shell is never asked to exit.
        let _ = self.child.kill();
    }
}

pub(crate) fn cells(number: u16) -> std::num::NonZero<u16> {
    std::num::NonZero::new(number).unwrap()
}

pub(crate) fn is_given_back(screen: &vt100::Screen) -> bool {
    !screen.alternate_screen()
        && !screen.hide_cursor()
        && !screen.bracketed_paste()
        && screen.mouse_protocol_mode() == vt100::MouseProtocolMode::None
}
