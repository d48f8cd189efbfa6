//! Quitting a run whose agents do not end, with and without a screen.

use nix::sys::signal::Signal;

use super::pty_session::PtySession;
use crate::commands::test_dir::{TestDir, tape};

#[test]
fn quit_offers_to_kill_a_stubborn_agent() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let claude = place.scripted_claude(
        "[[part]]\nsteps = [{ ignore = [\"sigint\", \"sigterm\", \"interrupt\", \"eof\"] }, { say = \"deaf by now\" }, \"hang\"]",
    );
    let project = place.path("");
    let args = [
        "run",
        "--project-dir",
        project.to_str().unwrap(),
        "--claude-bin",
        claude.to_str().unwrap(),
    ];
    let mut session = PtySession::open(&args);
    // From here on, the agent ignores signals.
    session.shows("deaf by now");
    session.press("q");
    session.shows("stop all and quit");
    session.press("S");
    session.until("shell", |screen| {
        !screen.alternate_screen()
            && screen
                .contents()
                .contains("stopping 1 unit; Ctrl-C kills running units")
    });
    session.press("\u{3}");
    session.shows("killing running units; Ctrl-C again exits immediately");
    assert_eq!(session.end(), 130);
    #[cfg(target_os = "linux")]
    place.wait_until_no_process_left();
}

#[test]
fn second_sigint_kills_immediately() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let call = "{ tool = \"read_raw_file\", with = { path = \"one.md\" } }";
    let calls = vec![call; 300].join(", ");
    let claude = place.scripted_claude(&format!(
        "[[part]]\nsteps = [{{ calls = [{calls}] }}, {{ say = \"all read\" }}, \"hang\"]"
    ));
    // The output is larger than the pipe can hold, and is not read.
    let (_unread, stdout) = std::io::pipe().unwrap();
    let command = place.command(&[
        "run",
        "--ui",
        "json",
        "--claude-bin",
        claude.to_str().unwrap(),
    ]);
    let mut running = place.start_into(command, stdout.into());
    let runs = place.path(".ktx/ingestdeck/runs");
    let begun = || {
        runs.read_dir()
            .is_ok_and(|mut runs| runs.any(|run| run.unwrap().path().join("tape.jsonl").is_file()))
    };
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !begun()
        || !std::fs::read_to_string(tape(&place.path("")))
            .unwrap()
            .contains("\"all read\"")
    {
        assert!(
            std::time::Instant::now() < deadline,
            "the agent does not reach this point"
        );
        crate::support::pause_before_check();
    }
    running.signal(Signal::SIGTERM);
    running.wait_for("stderr", "killing running units");
    running.signal(Signal::SIGTERM);
    let ran = running.end();
    assert_eq!(ran.code, Some(143), "{ran:?}");
    assert!(
        ran.stderr
            .contains("exited before all running units had ended"),
        "{ran:?}"
    );
    #[cfg(target_os = "linux")]
    place.wait_until_no_process_left();
}
