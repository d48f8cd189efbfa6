//! Output outside of the screen: title, progress, notifications, and files for an editor or a pager.

use std::time::Duration;

use ingestdeck_tui::{
    ExitReason,
    effect::ExportTool,
    export::Export,
    host::{HostInput, ToolExit},
    notification::{Notification, TerminalProgress},
};
use tokio::sync::{mpsc, watch};

use super::{
    hold,
    scripted_host::{ScriptedHost, live_handle, options, play},
    tape::{self, TapeFixture},
};

const SIZE: (u16, u16) = (120, 36);

/// A live run while `script` plays; the record grows by `after` once the screen has started.
fn live(tape: &TapeFixture, script: ScriptedHost) -> ScriptedHost {
    let growing = tape.growing();
    let (commands, _orders) = mpsc::channel(8);
    let (_grows, changed) = watch::channel(0);
    play(
        growing.timeline,
        Some(live_handle(commands, changed)),
        options(),
        script,
    )
    .0
}

/// Like [`live`], but the screen starts with `before` and the rest of `tape` arrives afterwards.
fn growing(before: &TapeFixture, tape: &TapeFixture, script: ScriptedHost) -> ScriptedHost {
    let growing = before.growing();
    let (commands, _orders) = mpsc::channel(8);
    let (grows, changed) = watch::channel(0);
    let script = script.grows(growing.more(before, tape), grows);
    play(
        growing.timeline,
        Some(live_handle(commands, changed)),
        options(),
        script,
    )
    .0
}

fn texts(news: &[Notification]) -> Vec<&str> {
    news.iter().map(|news| news.text.as_str()).collect()
}

/// A run with only its start.
fn started_run() -> TapeFixture {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["a", "b"]).start("a", 1);
    tape
}

fn failed() -> TapeFixture {
    let mut tape = started_run();
    tape.wait(10)
        .end("a", 1, 2)
        .start("b", 1)
        .wait(10)
        .end("b", 1, 3);
    tape
}

fn ended() -> TapeFixture {
    let mut tape = failed();
    tape.run_ended(0, 2);
    tape
}

/// Another window has the focus.
fn unfocused_script() -> ScriptedHost {
    ScriptedHost::new("", SIZE).input(HostInput::Focus(false))
}

#[test]
fn unfocused_user_is_notified_of_first_failure_and_end() {
    let script = growing(
        &started_run(),
        &ended(),
        unfocused_script().keep_open_for(Duration::from_secs(600)),
    );
    assert_eq!(
        texts(&script.news),
        [
            "a failed: 2 tool calls failed",
            "partial after 0s: 2 of 2 units failed"
        ]
    );
    assert_eq!(script.news[0].title, "ingestdeck orbit");
}

#[test]
fn focused_user_is_not_notified() {
    let script = growing(
        &started_run(),
        &ended(),
        ScriptedHost::new("", SIZE).input(HostInput::Focus(true)),
    );
    assert_eq!(script.news, []);
    // The terminal has not reported the focus, but a key was pressed recently.
    let script = growing(&started_run(), &ended(), ScriptedHost::new("j", SIZE));
    assert_eq!(script.news, []);
}

#[test]
fn events_before_startup_are_not_notified() {
    let script = live(
        &ended(),
        unfocused_script().keep_open_for(Duration::from_secs(600)),
    );
    assert_eq!(script.news, []);
}

#[test]
fn replay_sends_no_notifications_or_progress() {
    let (script, _) = play(ended().timeline(), None, options(), unfocused_script());
    assert_eq!(
        (script.news.as_slice(), script.gauges.as_slice()),
        (&[][..], &[][..])
    );
}

#[test]
fn silent_unit_and_held_call_are_notified_once() {
    let script = live(
        &started_run(),
        unfocused_script().keep_open_for(Duration::from_secs(300)),
    );
    assert_eq!(texts(&script.news), ["a has been silent for 1m 00s"]);
    let script = growing(
        &hold::running(),
        &hold::held(),
        unfocused_script().keep_open_for(Duration::from_secs(300)),
    );
    assert_eq!(texts(&script.news), ["dbt-all waits for you: wiki_write"]);
}

#[test]
fn progress_follows_the_run_and_failure_is_marked() {
    let share = |percent, failed| TerminalProgress::Percent { percent, failed };
    assert_eq!(
        live(&started_run(), unfocused_script()).gauges,
        [share(0, false)]
    );
    assert_eq!(
        live(&failed(), unfocused_script()).gauges,
        [share(100, true)]
    );
    let mut fine = TapeFixture::new("orbit", false);
    fine.plan(&["a"])
        .start("a", 1)
        .end("a", 1, 0)
        .run_ended(1, 0);
    assert_eq!(live(&fine, unfocused_script()).gauges, []);
    // The progress is sent again after the terminal was suspended.
    let again = live(&started_run(), ScriptedHost::new("<c-z>", SIZE));
    assert_eq!((again.gauges.len(), again.titles.len()), (2, 2));
}

#[test]
fn hostile_names_are_escaped_in_titles_and_notifications() {
    let mut before = TapeFixture::new("o\u{1b}]0;pwned\u{7}rbit\u{202e}", false);
    let unit = "\u{1b}]52;c;aGk=\u{7}\u{9c}a\n;b";
    before.plan(&[unit]).start(unit, 1);
    let mut tape = TapeFixture::new("o\u{1b}]0;pwned\u{7}rbit\u{202e}", false);
    tape.plan(&[unit]).start(unit, 1).end(unit, 1, 1);
    let script = growing(&before, &tape, unfocused_script());
    assert_eq!(script.news.len(), 1);
    let texts = script.titles.iter().chain(
        script
            .news
            .iter()
            .flat_map(|news| [&news.title, &news.text]),
    );
    for text in texts {
        assert!(
            !text.chars().any(ingestdeck_core::text::is_hidden),
            "{text:?}"
        );
    }
}

fn handed(keys: &str) -> Export {
    let (mut script, _) = play(
        tape::running().timeline(),
        None,
        options(),
        ScriptedHost::new(keys, SIZE),
    );
    assert_eq!(script.handouts.len(), 1, "{}", script.text());
    script.handouts.remove(0)
}

#[test]
fn editor_gets_the_recorded_bytes_and_the_line() {
    let whole = handed("E");
    let lines: Vec<_> = std::str::from_utf8(&whole.bytes).unwrap().lines().collect();
    assert_eq!(
        (whole.tool, whole.extension, whole.line, lines.len()),
        (ExportTool::Editor, ".jsonl", None, 8)
    );
    for line in &lines {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
    let transcript = handed("<enter>6ggjjE");
    assert_eq!(
        (transcript.line, transcript.bytes == whole.bytes),
        (Some(3), true)
    );
    // A call consists of its two lines, both from the stream and from its own view.
    for keys in ["<tab>gg<down><down>E", "<tab>gg<down><down><enter>E"] {
        let call = handed(keys);
        let text = String::from_utf8(call.bytes).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.starts_with("{\"type\":\"assistant\"") && text.contains("tool_result"));
    }
}

#[test]
fn pager_gets_the_readable_text() {
    let text = String::from_utf8(handed("P").bytes).unwrap();
    assert!(
        text.contains("call · mcp__ktx__wiki_write")
            && text.contains("front matter is missing a title"),
        "{text}"
    );
    assert!(!text.contains("tool_use_id"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100));
    assert!(
        String::from_utf8(handed("?P").bytes)
            .unwrap()
            .contains("| `P` |")
    );
}

#[test]
fn position_is_kept_and_missing_program_is_reported() {
    let keys = "<tab>gg<down><down><enter>";
    let before = play(
        tape::running().timeline(),
        None,
        options(),
        ScriptedHost::new(keys, SIZE),
    )
    .0;
    let after = play(
        tape::running().timeline(),
        None,
        options(),
        ScriptedHost::new(&format!("{keys}E"), SIZE),
    )
    .0;
    assert_eq!(before.text(), after.text());
    let mut script = ScriptedHost::new("E", SIZE);
    script.opened = Err(
        ingestdeck_core::diagnostic::Problem::new("there is no program `ed`")
            .with_help("set VISUAL or EDITOR to one that is installed"),
    );
    let (script, _) = play(tape::running().timeline(), None, options(), script);
    assert!(
        script.text().contains("there is no program `ed`"),
        "{}",
        script.text()
    );
}

#[test]
fn signal_during_an_external_program_is_handled() {
    let mut script = ScriptedHost::new("E", SIZE).keys("j");
    script.opened = Ok(ToolExit {
        signal: Some(HostInput::Signal(15)),
        edited: None,
    });
    let (_, exit) = play(tape::running().timeline(), None, options(), script);
    assert_eq!(exit.reason, ExitReason::Signal(15));
}

#[test]
fn unit_without_transcript_shows_a_notice() {
    let (script, _) = play(
        tape::running().timeline(),
        None,
        options(),
        ScriptedHost::new("GkE", SIZE),
    );
    assert!(
        script
            .text()
            .contains("lookml-dashboard-exec has no transcript yet"),
        "{}",
        script.text()
    );
}
