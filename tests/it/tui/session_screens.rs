//! Sessions of Claude Code on the screen: their units, what people wrote, and the list of a directory.

use std::path::{Path, PathBuf};

use ingestdeck_core::{
    run::Timeline,
    tape::{Note, note::AttemptStarted},
};
use ingestdeck_records::replay::FileSource;

use super::{
    pty_session::PtySession,
    screens::{SIZES, shown},
    scripted_host::{ScriptedHost, options, play},
    tape::TapeFixture,
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sessions/-home-dev-project")
}

fn timeline() -> Timeline {
    let path = folder().join("5e551011-4a4a-4b4b-8c8c-0123456789ab.jsonl");
    Timeline::new(Box::new(FileSource::open(&path).unwrap()))
}

#[test]
fn session_is_rendered_at_every_size() {
    for size in SIZES {
        let name = |view: &str| format!("session_{view}_{}x{}", size.0, size.1);
        insta::assert_snapshot!(name("units"), shown(timeline(), "", size));
        insta::assert_snapshot!(name("prompt"), shown(timeline(), "<tab>gg<enter>", size));
    }
    insta::assert_snapshot!("session_attempts", shown(timeline(), "G", (120, 36)));
    insta::assert_snapshot!("session_panes", shown(timeline(), "v", (120, 36)));
    insta::assert_snapshot!("session_lines", shown(timeline(), "i6", (120, 36)));
}

#[test]
fn session_out_of_turns_is_not_done() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/captures/max_turns.jsonl");
    let text = shown(
        Timeline::new(Box::new(FileSource::open(&path).unwrap())),
        "",
        (120, 36),
    );
    let header = text.lines().next().unwrap();
    assert!(
        header.contains("out of budget") && !header.contains("done"),
        "{text}"
    );
}

#[test]
fn session_steps_back_to_an_earlier_turn() {
    let text = shown(timeline(), "(((((((", (120, 36));
    assert!(
        text.contains("PAUSED")
            && text.contains("~$0.0093")
            && text.contains("❯ Run the failed part again"),
        "{text}"
    );
    assert!(!text.contains("And a long one"), "{text}");
}

#[test]
fn prompt_of_a_live_session_is_exported() {
    let started = AttemptStarted {
        prompt: "where are refunds".into(),
        ..AttemptStarted::default()
    };
    let mut tape = TapeFixture::new("orbit", false);
    tape.note(
        Some(("session", 1)),
        &Note::AttemptStarted(Box::new(started)),
    );
    let script = play(
        tape.timeline(),
        None,
        options(),
        ScriptedHost::new("<tab>ggPjP", (120, 36)),
    )
    .0;
    let exports: Vec<_> = script
        .handouts
        .iter()
        .map(|export| String::from_utf8_lossy(&export.bytes))
        .collect();
    assert!(
        exports
            .iter()
            .any(|text| text.contains("user") && text.contains("where are refunds")),
        "{exports:?}"
    );
    assert!(
        !exports.iter().any(|text| text.contains("not a block")),
        "{exports:?}"
    );
}

#[test]
fn session_is_chosen_from_its_directory() {
    let mut session = PtySession::open(&["replay", folder().to_str().unwrap()]);
    session.shows("1 Claude Code session");
    session.shows("$1.98");
    session.press("\r");
    session.shows("read the refund rules");
    session.press("q");
    session.shows("Claude Code sessions, newest first");
    session.press("q");
    assert_eq!(session.end(), 0);
}
