//! What is told outside of the screen: title, progress, news, and what goes to an editor or a pager.

use std::time::Duration;

use ingestdeck::tui::{
    Left, LiveHandle,
    handout::{Handout, Tool},
    outside::{Gauge, News},
    world::Input,
};
use tokio::sync::{mpsc, watch};

use super::{
    hold,
    script::{Script, options, play},
    tape::{self, Tape},
};

const SIZE: (u16, u16) = (120, 36);

/// A run that goes on while `script` plays; the record has `after` more once the screen is up.
fn live(tape: &Tape, script: Script) -> Script {
    let growing = tape.growing();
    let (commands, _orders) = mpsc::channel(8);
    let (_grows, changed) = watch::channel(0);
    play(growing.timeline, Some(LiveHandle::new(commands, changed)), options(), script).0
}

/// As [`live`], but the screen comes up on `before` and the rest of `tape` arrives afterwards.
fn growing(before: &Tape, tape: &Tape, script: Script) -> Script {
    let growing = before.growing();
    let (commands, _orders) = mpsc::channel(8);
    let (grows, changed) = watch::channel(0);
    let script = script.grows(growing.more(before, tape), grows);
    play(growing.timeline, Some(LiveHandle::new(commands, changed)), options(), script).0
}

fn texts(news: &[News]) -> Vec<&str> {
    news.iter().map(|news| news.text.as_str()).collect()
}

/// A run with nothing but a start.
fn begun() -> Tape {
    let mut tape = Tape::new("orbit", false);
    tape.plan(&["a", "b"]).start("a", 1);
    tape
}

fn failed() -> Tape {
    let mut tape = begun();
    tape.wait(10).end("a", 1, 2).start("b", 1).wait(10).end("b", 1, 3);
    tape
}

fn ended() -> Tape {
    let mut tape = failed();
    tape.run_ended(0, 2);
    tape
}

/// Somebody looks at another window.
fn elsewhere() -> Script {
    Script::new("", SIZE).input(Input::Focus(false))
}

#[test]
fn the_first_failure_and_the_end_are_told_once_to_who_looks_elsewhere() {
    let script = growing(&begun(), &ended(), elsewhere().waiting(Duration::from_secs(600)));
    assert_eq!(
        texts(&script.news),
        ["a failed: 2 tool call(s) failed during WorkUnit a", "partial after 0s: 2 of 2 units failed"]
    );
    assert_eq!(script.news[0].title, "ingestdeck orbit");
}

#[test]
fn who_looks_at_the_screen_is_not_told() {
    let script = growing(&begun(), &ended(), Script::new("", SIZE).input(Input::Focus(true)));
    assert_eq!(script.news, []);
    // Nobody said where the focus is, but a key was pressed just now.
    let script = growing(&begun(), &ended(), Script::new("j", SIZE));
    assert_eq!(script.news, []);
}

#[test]
fn what_was_so_before_the_screen_came_up_is_no_news() {
    let script = live(&ended(), elsewhere().waiting(Duration::from_secs(600)));
    assert_eq!(script.news, []);
}

#[test]
fn a_record_has_no_news_and_no_progress() {
    let (script, _) = play(ended().timeline(), None, options(), elsewhere());
    assert_eq!((script.news.as_slice(), script.gauges.as_slice()), (&[][..], &[][..]));
}

#[test]
fn a_silent_unit_and_a_held_call_are_told_once() {
    let script = live(&begun(), elsewhere().waiting(Duration::from_secs(300)));
    assert_eq!(texts(&script.news), ["a has been silent for 1m 00s"]);
    let script = growing(&hold::running(), &hold::held(), elsewhere().waiting(Duration::from_secs(300)));
    assert_eq!(texts(&script.news), ["dbt-all waits for you: wiki_write"]);
}

#[test]
fn progress_follows_the_run_and_failure_is_marked() {
    let share = |percent, failed| Gauge::Share { percent, failed };
    assert_eq!(live(&begun(), elsewhere()).gauges, [share(0, false)]);
    assert_eq!(live(&failed(), elsewhere()).gauges, [share(100, true)]);
    let mut fine = Tape::new("orbit", false);
    fine.plan(&["a"]).start("a", 1).end("a", 1, 0).run_ended(1, 0);
    assert_eq!(live(&fine, elsewhere()).gauges, []);
    // After the terminal was away, it is told again.
    let again = live(&begun(), Script::new("<c-z>", SIZE));
    assert_eq!((again.gauges.len(), again.titles.len()), (2, 2));
}

#[test]
fn hostile_names_stay_inside_of_titles_and_news() {
    let mut before = Tape::new("o\u{1b}]0;pwned\u{7}rbit\u{202e}", false);
    let unit = "\u{1b}]52;c;aGk=\u{7}\u{9c}a\n;b";
    before.plan(&[unit]).start(unit, 1);
    let mut tape = Tape::new("o\u{1b}]0;pwned\u{7}rbit\u{202e}", false);
    tape.plan(&[unit]).start(unit, 1).end(unit, 1, 1);
    let script = growing(&before, &tape, elsewhere());
    assert_eq!(script.news.len(), 1);
    let told = script.titles.iter().chain(script.news.iter().flat_map(|news| [&news.title, &news.text]));
    for text in told {
        assert!(!text.chars().any(ingestdeck::tui::text::is_hidden), "{text:?}");
    }
}

fn handed(keys: &str) -> Handout {
    let (mut script, _) = play(tape::running().timeline(), None, options(), Script::new(keys, SIZE));
    assert_eq!(script.handouts.len(), 1, "{}", script.text());
    script.handouts.remove(0)
}

#[test]
fn an_editor_gets_the_true_bytes_and_the_place() {
    let whole = handed("E");
    let lines: Vec<_> = std::str::from_utf8(&whole.bytes).unwrap().lines().collect();
    assert_eq!((whole.tool, whole.extension, whole.line, lines.len()), (Tool::Editor, ".jsonl", None, 8));
    for line in &lines {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
    let transcript = handed("<enter>ggjjE");
    assert_eq!((transcript.line, transcript.bytes == whole.bytes), (Some(3), true));
    // A call is its two lines, from the stream as from its own view.
    for keys in ["<tab>gg<down><down>E", "<tab>gg<down><down><enter>E"] {
        let call = handed(keys);
        let text = String::from_utf8(call.bytes).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.starts_with("{\"type\":\"assistant\"") && text.contains("tool_result"));
    }
}

#[test]
fn a_pager_gets_the_text_as_people_read_it() {
    let text = String::from_utf8(handed("P").bytes).unwrap();
    assert!(text.contains("call · mcp__ktx__wiki_write") && text.contains("front matter is missing a title"), "{text}");
    assert!(!text.contains("tool_use_id"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100));
    assert!(String::from_utf8(handed("?P").bytes).unwrap().contains("| `P` |"));
}

#[test]
fn the_place_is_the_same_afterwards_and_a_missing_program_is_told() {
    let keys = "<tab>gg<down><down><enter>";
    let before = play(tape::running().timeline(), None, options(), Script::new(keys, SIZE)).0;
    let after = play(tape::running().timeline(), None, options(), Script::new(&format!("{keys}E"), SIZE)).0;
    assert_eq!(before.text(), after.text());
    let mut script = Script::new("E", SIZE);
    script.opened = Err("there is no program `ed`; set VISUAL or EDITOR to one that is installed".into());
    let (script, _) = play(tape::running().timeline(), None, options(), script);
    assert!(script.text().contains("there is no program `ed`"), "{}", script.text());
}

#[test]
fn a_signal_that_comes_meanwhile_is_obeyed() {
    let mut script = Script::new("E", SIZE).keys("j");
    script.opened = Ok(Some(Input::Signal(15)));
    let (_, exit) = play(tape::running().timeline(), None, options(), script);
    assert_eq!(exit.how, Left::Signal(15));
}

#[test]
fn units_without_a_transcript_say_so() {
    let (script, _) = play(tape::running().timeline(), None, options(), Script::new("GE", SIZE));
    assert!(script.text().contains("lookml-dashboard-exec has no transcript yet"), "{}", script.text());
}
