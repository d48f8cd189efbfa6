//! The program on a real terminal: it starts, draws, follows a resize, and gives the terminal back.

use std::{path::Path, sync::Arc};

use nix::sys::signal::Signal;
use portable_pty::PtySize;
use serde_json::Value;

use super::session::{Session, cells};

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
