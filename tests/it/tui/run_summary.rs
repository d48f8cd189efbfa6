//! The summary below the table when a finished run of the project is opened.

use std::path::Path;

use ingestdeck_tui::{ExitReason, HomeChoice, Options};

use super::{
    artifacts::artifacts,
    screens::{SIZES, shown},
    scripted_host::{ScriptedHost, options, play},
    tape::{self, TapeFixture},
};

/// The screen of a record of the project after some keys, and how it was left.
fn opened(tape: &TapeFixture, keys: &str, size: (u16, u16)) -> (String, ExitReason) {
    let options = Options {
        project: Some(Path::new("/nowhere").to_owned()),
        ..options()
    };
    let (host, exit) = play(
        tape.timeline(),
        None,
        options,
        ScriptedHost::new(keys, size),
    );
    (host.text(), exit.reason)
}

#[test]
fn summary_of_a_finished_run_is_rendered() {
    for size in SIZES {
        let name = format!("summary_{}x{}", size.0, size.1);
        insta::assert_snapshot!(name, opened(&artifacts(), "", size).0);
    }
}

#[test]
fn selecting_a_unit_shows_its_actions_and_esc_the_summary() {
    let screen = |keys| opened(&artifacts(), keys, (120, 36)).0;
    let is_summary = |text: &str| text.contains("┌ run 7f3a2b summary ");
    assert!(is_summary(&screen("")));
    for keys in ["j", "k", "J", "<tab>", "]", ","] {
        assert!(!is_summary(&screen(keys)), "{keys}");
    }
    for keys in ["j<esc>", "<tab><esc>", "L<esc>", "C<esc>"] {
        assert!(is_summary(&screen(keys)), "{keys}");
    }
}

#[test]
fn keys_of_the_summary_ask_for_a_new_run() {
    let leave = |keys| opened(&artifacts(), keys, (120, 36)).1;
    let resumed = leave("Ry");
    assert!(
        matches!(&resumed, ExitReason::Chosen(HomeChoice::Resume(_))),
        "{resumed:?}"
    );
    let retried = leave("ry");
    assert!(
        matches!(&retried, ExitReason::Chosen(HomeChoice::RunUnits { .. })),
        "{retried:?}"
    );
}

#[test]
fn other_records_open_without_a_summary() {
    let other = shown(artifacts().timeline(), "", (120, 36));
    assert!(!other.contains("summary"), "{other}");
    // The record of a killed run has no end.
    let killed = opened(&tape::running(), "", (120, 36)).0;
    assert!(
        killed.contains("interrupted, Sun 22 Nov 10:00 · "),
        "{killed}"
    );
}

#[test]
fn first_problem_of_the_summary_is_the_first_one() {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["a", "b", "c"]);
    for (unit, failures) in [("a", 1), ("b", 1), ("c", 0)] {
        tape.start(unit, 1).wait(500).end(unit, 1, failures);
    }
    tape.run_ended(1, 2);
    for (keys, place) in [("]", "1/3"), ("]]", "2/3"), ("[", "2/3")] {
        let text = opened(&tape, keys, (120, 36)).0;
        assert!(text.contains(&format!("· {place} ")), "{keys}\n{text}");
    }
}
