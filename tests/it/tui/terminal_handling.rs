//! Behaviour of the program on a terminal that it shares with shells, editors, pagers, other windows and signals.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use ingestdeck_agent::caught_panics;
use ingestdeck_tui::{NotifyMethod, ToolPrograms, TtyOptions, terminal::Terminal};
use nix::sys::signal::{Signal, killpg};
use portable_pty::PtySize;

use super::pty_session::PtySession;
use crate::support::program;

fn capture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/captures/success_tools.jsonl")
}

/// The part of the screen that identifies it.
const SHOWN: &str = "read_raw_span orders.yml";

/// The terminal's settings as `stty` prints them, once the shell has run this command.
fn stty(shell: &mut PtySession, name: &str) -> String {
    let file = shell.home.path().join(name);
    shell.has_prompt();
    shell.press(&format!("stty -a > {name}.part; mv {name}.part {name}\r"));
    shell.until("settings", |_| file.exists());
    fs::read_to_string(file).unwrap()
}

/// A program for `$EDITOR`: a shell script that gets the file as `$1`.
fn script(home: &Path, text: &str) -> String {
    let path = home.join("script.sh");
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn shell_has_the_terminal_while_the_program_is_suspended() {
    let mut shell = PtySession::shell(&[]);
    let before = stty(&mut shell, "before");
    shell.has_prompt();
    shell.press(&format!("{} replay {}\r", program(), capture().display()));
    shell.shows(SHOWN);
    shell.press("?");
    shell.shows("Keys of the session");
    shell.press("\u{1a}");
    shell.shows("Stopped");
    assert!(!shell.screen.lock().unwrap().screen().alternate_screen());
    assert_eq!(stty(&mut shell, "suspended"), before);
    shell.has_prompt();
    shell.press("fg\r");
    // The view is the same as before, and the first key is processed.
    shell.shows("Keys of the session");
    shell.press("\u{1b}");
    shell.shows(SHOWN);
    shell.press("q");
    shell.until("shell", |screen| !screen.alternate_screen());
    assert_eq!(stty(&mut shell, "after"), before);
}

#[test]
fn live_run_handles_keys_after_every_suspend() {
    let mut shell = PtySession::shell(&[]);
    shell.has_prompt();
    shell.press(&format!("{} demo --keep demo\r", program()));
    shell.shows("▶ dbt-all");
    for time in 1..=6 {
        shell.press("\u{1a}");
        shell.has_prompt();
        assert!(
            !shell.screen.lock().unwrap().screen().alternate_screen(),
            "{time}"
        );
        shell.press("fg\r");
        shell.shows("┌ units");
        // A terminal in canonical mode would keep the key until the end of the line.
        shell.press("?");
        shell.shows("Keys of the units");
        shell.press("\u{1b}");
        shell.shows("┌ units");
    }
    let program = shell.foreground();
    // The program cannot handle SIGSTOP, so it does not restore the terminal first.
    for _ in 0..2 {
        killpg(program, Signal::SIGSTOP).unwrap();
        shell.until("shell in the foreground", |_| shell.foreground() != program);
        shell.press("fg\r");
        shell.until("program in the foreground", |_| {
            shell.foreground() == program
        });
        shell.press("?");
        shell.shows("Keys of the units");
        shell.press("\u{1b}");
        shell.shows("┌ units");
    }
    killpg(program, Signal::SIGTERM).unwrap();
    shell.until("shell", |screen| !screen.alternate_screen());
}

#[test]
fn killed_program_restores_the_terminal() {
    for signal in [
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGABRT,
        Signal::SIGUSR1,
        Signal::SIGXCPU,
    ] {
        let mut shell = PtySession::shell(&[("INGESTDECK_UI_PROGRESS", "always")]);
        let before = stty(&mut shell, "before");
        shell.has_prompt();
        shell.press(&format!("{} replay {}\r", program(), capture().display()));
        shell.shows(SHOWN);
        killpg(shell.foreground(), signal).unwrap();
        shell.until("shell", |screen| {
            !screen.alternate_screen() && !screen.hide_cursor()
        });
        assert_eq!(stty(&mut shell, "after"), before, "{signal}");
        for mode in ["1000", "1004", "1006", "2004"] {
            shell.wrote(&format!("\u{1b}[?{mode}l"));
        }
    }
}

/// Set for the process that is to panic.
const PANICS: &str = "INGESTDECK_TEST_PANICS";

/// Not an independent test: [`panic_restores_the_terminal`] runs it on a separate terminal.
#[test]
#[ignore = "panics; run by another test"]
fn panics_on_its_terminal() {
    if std::env::var_os(PANICS).is_none() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let manners = TtyOptions {
            mouse: true,
            notify: NotifyMethod::Off,
            progress: true,
            tmux: false,
            programs: ToolPrograms::from_env(|_| None),
        };
        ingestdeck::install_panic_hooks(false);
        let _terminal = Terminal::enter(manners).unwrap();
        assert!(
            caught_panics::spawn_blocking_caught(|| panic!("but contained"))
                .await
                .is_err()
        );
        print!("still running");
        std::io::stdout().flush().unwrap();
        panic!("on purpose");
    });
}

#[test]
fn panic_restores_the_terminal() {
    let mut shell = PtySession::shell(&[]);
    let before = stty(&mut shell, "before");
    let this = std::env::current_exe().unwrap();
    let name = "tui::terminal_handling::panics_on_its_terminal";
    shell.has_prompt();
    shell.press(&format!(
        "{PANICS}=1 {} --ignored --exact --nocapture {name}\r",
        this.display()
    ));
    shell.wrote("\u{1b}[?1049h");
    shell.wrote("still running\u{1b}[?2026l");
    shell.wrote("\u{1b}[?1049l");
    // The panic message is readable afterwards.
    shell.shows("on purpose");
    // The shell enables bracketed paste as soon as it is back, so the screen does not show that the program disabled
    // it.
    shell.wrote("\u{1b}[?1004l\u{1b}[?2004l");
    shell.until("shell", |screen| !screen.alternate_screen());
    assert_eq!(stty(&mut shell, "after"), before);
}

#[test]
fn editor_gets_the_terminal_and_returns_it() {
    let home = tempfile::tempdir().unwrap();
    let (seen, path) = (home.path().join("seen"), home.path().join("path"));
    // The editor reads a line of the terminal, and is interrupted by a Ctrl-C that is not for the program.
    let editor = script(
        home.path(),
        &format!(
            "trap 'echo interrupted' INT\nstat -c %a \"$1\" > {0}; cat \"$1\" >> {0}; echo \"$1\" > {1}\n\
             echo 'editor here'; read line; echo \"you typed $line\"\n\
             while [ \"$line\" != done ]; do read line; done",
            seen.display(),
            path.display()
        ),
    );
    let mut session = PtySession::with(
        &["replay", capture().to_str().unwrap()],
        &[("VISUAL", &editor)],
    );
    session.shows(SHOWN);
    session.press("E");
    session.shows("editor here");
    assert!(!session.screen.lock().unwrap().screen().alternate_screen());
    session.press("jq?\r");
    session.shows("you typed jq?");
    session.press("\u{3}");
    session.shows("interrupted");
    session.press("done\r");
    // The view is the same as before. None of the editor's keys reached the program, and the first key for the program
    // is processed.
    session.shows(SHOWN);
    session.press("?");
    session.shows("Keys of the session");
    let seen = fs::read_to_string(seen).unwrap();
    let (mode, text) = seen.split_once('\n').unwrap();
    assert_eq!(mode, "600");
    for line in text.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
    let path = fs::read_to_string(path).unwrap();
    assert!(path.trim_end().ends_with(".jsonl") && !Path::new(path.trim_end()).exists());
    session.press("q");
    assert_eq!(session.end(), 0);
}

#[test]
fn pager_is_suspended_with_the_program() {
    let mut shell = PtySession::shell(&[]);
    let pager = script(
        shell.home.path(),
        "cat \"$1\"; echo 'pager here'; read line; echo \"read $line\"; read line",
    );
    let before = stty(&mut shell, "before");
    shell.has_prompt();
    shell.press(&format!(
        "PAGER={pager} {} replay {}\r",
        program(),
        capture().display()
    ));
    shell.shows(SHOWN);
    let program = shell.foreground();
    shell.press("P");
    shell.shows("pager here");
    shell.until("pager in the foreground", |_| shell.foreground() != program);
    let pager = shell.foreground();
    shell.press("\u{1a}");
    shell.shows("Stopped");
    assert_eq!(stty(&mut shell, "suspended"), before);
    shell.has_prompt();
    shell.press("fg\r");
    // Before that, the shell would read the line.
    shell.until("pager in the foreground again", |_| {
        shell.foreground() == pager
    });
    shell.press("on\r");
    shell.shows("read on");
    shell.press("\r");
    shell.shows(SHOWN);
    shell.press("q");
    shell.until("shell", |screen| !screen.alternate_screen());
    assert_eq!(stty(&mut shell, "after"), before);
}

#[test]
fn key_typed_while_a_pager_ends_is_processed() {
    let home = tempfile::tempdir().unwrap();
    let count = home.path().join("count");
    let pager = script(
        home.path(),
        &format!(
            "echo x >> {0}; echo pager $(wc -l < {0}); read line",
            count.display()
        ),
    );
    let mut session = PtySession::with(
        &["replay", capture().to_str().unwrap()],
        &[("PAGER", &pager)],
    );
    session.shows(SHOWN);
    for round in 1..=10 {
        session.press("P");
        session.shows(&format!("pager {round}"));
        session.press("\r?");
        session.shows("Keys of the session");
        session.press("\u{1b}");
        session.shows(SHOWN);
    }
    session.press("q");
    assert_eq!(session.end(), 0);
}

#[test]
fn pager_has_the_file_limit_of_the_shell() {
    let mut shell = PtySession::shell(&[]);
    let pager = script(
        shell.home.path(),
        "echo \"limit $(ulimit -S -n)\"; read line",
    );
    shell.has_prompt();
    shell.press(&format!(
        "ulimit -S -n 203; PAGER={pager} {} replay {}\r",
        program(),
        capture().display()
    ));
    shell.shows(SHOWN);
    shell.press("P");
    shell.shows("limit 203");
    shell.press("\r");
    shell.shows(SHOWN);
    shell.press("q");
    shell.until("shell", |screen| !screen.alternate_screen());
}

#[test]
fn missing_or_failing_programs_are_reported() {
    let capture = capture();
    let variables = [("EDITOR", "no-such-editor --wait"), ("PAGER", "false")];
    let mut session = PtySession::with(&["replay", capture.to_str().unwrap()], &variables);
    session.shows(SHOWN);
    session.press("E");
    session.shows("there is no program `no-such-editor`; set VISUAL or EDITOR");
    session.press("P");
    session.shows("`false` ended with code 1");
    session.press("q");
    assert_eq!(session.end(), 0);
}

#[test]
fn termination_signal_ends_the_editor() {
    let home = tempfile::tempdir().unwrap();
    let editor = script(home.path(), "echo 'editor here'; read line");
    let mut session = PtySession::with(
        &["replay", capture().to_str().unwrap()],
        &[("EDITOR", &editor)],
    );
    session.shows(SHOWN);
    session.press("E");
    session.shows("editor here");
    session.signal(Signal::SIGTERM);
    assert_ne!(session.end(), 0);
}

#[test]
fn run_continues_while_an_editor_is_open() {
    let home = tempfile::tempdir().unwrap();
    let editor = script(home.path(), "echo 'editor here'; read line");
    let project = home.path().join("demo");
    let mut session = PtySession::with(
        &["demo", "--speed", "10", "--keep", project.to_str().unwrap()],
        &[("EDITOR", &editor)],
    );
    session.shows("▶ dbt-all");
    session.press("E");
    session.shows("editor here");
    // The editor is open during the whole run, which has ended when it is closed.
    session.until("end of the run", |_| {
        let runs = fs::read_dir(project.join(".ktx/ingestdeck/runs"))
            .into_iter()
            .flatten()
            .flatten();
        runs.filter_map(|run| fs::read_to_string(run.path().join("tape.jsonl")).ok())
            .any(|tape| tape.contains("\"run_ended\""))
    });
    session.press("\r");
    session.shows("partial");
    session.press("q");
    session.end();
}

#[test]
fn unfocused_user_is_notified_and_progress_is_cleared() {
    let variables = [
        ("INGESTDECK_UI_NOTIFY", "osc9"),
        ("INGESTDECK_UI_PROGRESS", "always"),
    ];
    let mut session = PtySession::with(&["demo", "--speed", "20"], &variables);
    session.wrote("\u{1b}[?1004h");
    session.shows("▶ dbt-all");
    session.wrote("\u{1b}]9;4;1;0\u{1b}\\");
    // The terminal loses the focus.
    session.press("\u{1b}[O");
    session.wrote("\u{1b}]9;ingestdeck ");
    session.wrote("\u{1b}]9;4;2;");
    session.shows("partial");
    session.signal(Signal::SIGTERM);
    session.wrote("\u{1b}]9;4;0;\u{1b}\\");
    assert_ne!(session.end(), 0);
}

#[test]
fn notify_command_receives_the_event() {
    let home = tempfile::tempdir().unwrap();
    let events = home.path().join("events");
    let command = script(
        home.path(),
        &format!("echo \"$1|$2\" >> {}", events.display()),
    );
    let variables = [
        ("INGESTDECK_UI_NOTIFY", "command"),
        ("INGESTDECK_UI_NOTIFY_COMMAND", command.as_str()),
    ];
    let mut session = PtySession::with(&["demo", "--speed", "20"], &variables);
    session.shows("▶ dbt-all");
    session.press("\u{1b}[O");
    session.until("end of the run", |_| {
        fs::read_to_string(&events).is_ok_and(|text| text.contains("|partial after "))
    });
    let text = fs::read_to_string(&events).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(
        text.lines().all(|line| line.starts_with("ingestdeck ")),
        "{text}"
    );
    session.press("q");
    session.end();
}

#[test]
fn keys_are_read_from_the_terminal_when_stdin_is_a_pipe() {
    let mut shell = PtySession::shell(&[]);
    shell.press(&format!(
        "cat {} | {} replay -\r",
        capture().display(),
        program()
    ));
    shell.shows(SHOWN);
    shell.press("?");
    shell.shows("Keys of the session");
    shell.press("q");
    shell.until("shell", |screen| !screen.alternate_screen());
}

#[test]
fn pasted_text_triggers_no_keys() {
    let mut session = PtySession::replay("success_tools.jsonl");
    session.shows(SHOWN);
    session.press("/");
    session.press("\u{1b}[200~qq\rE\u{1b}[201~");
    session.shows("qqE");
    session.press("\u{1b}");
    // Esc and q in one read would be Alt-q.
    session.until("end of typing", |screen| !screen.contents().contains("qqE"));
    session.press("q");
    assert_eq!(session.end(), 0);
}

#[test]
fn no_color_disables_all_colours() {
    let mut session = PtySession::with(
        &["replay", capture().to_str().unwrap()],
        &[("NO_COLOR", "1")],
    );
    session.shows(SHOWN);
    session.press("q");
    let written = std::sync::Arc::clone(&session.written);
    assert_eq!(session.end(), 0);
    let written = String::from_utf8_lossy(&written.lock().unwrap()).into_owned();
    let sgr = written
        .split("\u{1b}[")
        .skip(1)
        .filter_map(|part| part.split_once('m').map(|(codes, _)| codes));
    let codes = sgr.filter(|codes| {
        codes
            .chars()
            .all(|char| char.is_ascii_digit() || char == ';')
    });
    for code in codes.flat_map(|codes| codes.split(';')) {
        let code = code.parse().unwrap_or(0);
        assert!(
            code < 30 || code == 39 || code == 49 || code == 59,
            "colour {code}"
        );
    }
}

#[test]
fn every_resize_redraws_the_screen() {
    let session = PtySession::replay("success_tools.jsonl");
    session.shows(SHOWN);
    for (rows, cols) in [
        (5, 20),
        (100, 300),
        (1, 1),
        (12, 40),
        (24, 80),
        (2, 300),
        (30, 100),
    ] {
        session.screen.lock().unwrap().screen_mut().set_size(
            super::pty_session::cells(rows),
            super::pty_session::cells(cols),
        );
        session
            .master
            .resize(PtySize {
                rows,
                cols,
                pixel_width: 0,
                pixel_height: 0,
            })
            .unwrap();
    }
    session.shows(SHOWN);
    session.signal(Signal::SIGTERM);
    assert_ne!(session.end(), 0);
}

#[test]
fn output_flood_does_not_delay_q() {
    let home = tempfile::tempdir().unwrap();
    // Writes lines as fast as the pipe accepts them, for ever.
    let line = r#"{"type":"assistant","session_id":"s","message":{"id":"m","role":"assistant","content":[{"type":"text","text":"flood"}]}}"#;
    let flood = script(
        home.path(),
        &format!(
            "[ \"$1\" = --version ] && {{ echo '2.1.330 (Claude Code)'; exit; }}\nexec yes '{line}'"
        ),
    );
    let mut session = PtySession::with(&["session", "--claude-bin", &flood, "--", "go"], &[]);
    session.shows("flood");
    let pressed = Instant::now();
    session.press("q");
    session.shows("stop all and quit");
    // The benchmark allows 200 ms; here other tests use the same cores.
    assert!(
        pressed.elapsed() < Duration::from_secs(3),
        "{:?}",
        pressed.elapsed()
    );
    session.press("S");
    session.end();
}
