//! Messages of the screen after a key: shown when the action has happened, removed when they no longer apply, and no
//! action without a visible effect.

use std::time::Duration;

use ingestdeck_core::{
    control::{RefusalReason, RunCommand},
    tape::{Note, note::RunEnded},
};
use ingestdeck_tui::{
    EngineChannel, LiveHandle, Options,
    theme::{ColorLevel, Theme},
};
use serde_json::json;
use tokio::sync::{mpsc, watch};

use super::{
    hold,
    scripted_host::{ScriptedHost, live_handle, options, play},
    tape::{self, TapeFixture},
};

const SIZE: (u16, u16) = (120, 36);

/// A live run that is `before` while keys are pressed, and `whole` afterwards.
fn grown(
    before: &TapeFixture,
    whole: &TapeFixture,
    keys: &str,
    size: (u16, u16),
) -> (String, Vec<RunCommand>) {
    let growing = before.growing();
    let (commands, mut orders) = mpsc::channel(8);
    let (grows, changed) = watch::channel(0);
    let more = growing.more(before, whole);
    let script = ScriptedHost::new(keys, size)
        .after(Duration::from_secs(20))
        .grows(more, grows);
    let (script, _) = play(
        growing.timeline,
        Some(live_handle(commands, changed)),
        options(),
        script,
    );
    (
        script.text(),
        std::iter::from_fn(|| orders.try_recv().ok()).collect(),
    )
}

fn live(keys: &str) -> (String, Vec<RunCommand>) {
    grown(&tape::running(), &tape::running(), keys, SIZE)
}

#[test]
fn queued_unit_shows_no_repeated_wait() {
    let before = hold::running();
    let (text, _) = grown(&before, &before, "<space>", SIZE);
    assert!(
        text.contains("dbt-all will wait at its next tool call"),
        "{text}"
    );
    let (text, _) = grown(&before, &hold::held(), "<space>", (80, 24));
    assert!(!text.contains("will wait at its next"), "{text}");
    assert!(
        text.lines()
            .last()
            .is_some_and(|footer| footer.contains("s allow once")),
        "{text}"
    );
}

#[test]
fn long_message_leaves_the_border_visible() {
    for size in [(40, 12), (60, 20), (80, 24)] {
        let options = Options {
            startup_messages: vec!["the record is damaged ".repeat(12)],
            ..options()
        };
        let (script, _) = play(
            tape::running().timeline(),
            None,
            options,
            ScriptedHost::new("", size),
        );
        let text = script.text();
        assert!(text.contains("the record is damaged"), "{text}");
        let corners = |left: char, right: char| {
            text.lines()
                .filter(|line| line.starts_with(left) && line.ends_with(right))
                .count()
        };
        assert_eq!(corners('┌', '┐'), corners('└', '┘'), "{text}");
    }
}

#[test]
fn clock_excludes_the_time_before_a_retry() {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["a", "b"])
        .start("a", 1)
        .wait(20_000)
        .end("a", 1, 1)
        .run_ended(0, 1);
    tape.wait(95_000).note(
        Some(("a", 1)),
        &Note::RetryRequested {
            next: 2,
            amendment: None,
        },
    );
    tape.start("a", 2).wait(4000).say("a", 2, "Again.");
    let (script, _) = play(
        tape.timeline(),
        None,
        options(),
        ScriptedHost::new("", (120, 36)),
    );
    assert!(
        script.text().lines().next().unwrap().contains(" 00:24 "),
        "{}",
        script.text()
    );
    // The timeline shows when it happened.
    assert!(
        script.text().contains("01:59 of 01:59"),
        "{}",
        script.text()
    );
}

#[test]
fn stop_message_is_shown_until_the_run_ends() {
    let (text, _) = live("<c-c><c-c>");
    assert!(
        text.contains("stopping all; again to kill and quit")
            && !text.contains("nothing new starts"),
        "{text}"
    );
    let mut ended = tape::running();
    ended.note(
        None,
        &Note::RunEnded(RunEnded {
            outcome: "stopped".into(),
            ..RunEnded::default()
        }),
    );
    for keys in ["<c-c>", "<c-c><c-c>"] {
        let (text, _) = grown(&tape::running(), &ended, keys, SIZE);
        assert!(text.contains("ENDED"), "{text}");
        assert!(
            !text.contains("nothing new starts") && !text.contains("again to kill"),
            "{text}"
        );
    }
}

#[test]
fn seek_beyond_the_end_keeps_the_position() {
    for moment in ["99h", "#99999", "+99h"] {
        let (text, _) = live(&format!(":{moment}<enter>"));
        assert!(
            text.contains("that moment is in the future"),
            "{moment}: {text}"
        );
        assert!(
            !text.contains("PAUSED") && !text.contains("PAST"),
            "{moment}: {text}"
        );
        let (text, _) = live(&format!(":2s<enter>:{moment}<enter>"));
        assert!(text.contains("PAST -00:18"), "{moment}: {text}");
    }
    let (text, _) = live(":1:02:99<enter>");
    assert!(text.contains("invalid time `1:02:99`"), "{text}");
    // No entry was recorded for a while, but that moment is in the past.
    let (text, _) = live(":19s<enter>");
    assert!(
        text.contains("PAST -00:06") && !text.contains("in the future"),
        "{text}"
    );
}

#[test]
fn hidden_units_are_not_affected_by_keys() {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["dbt-all"]).start("dbt-all", 1).wait(1200);
    tape.call(
        "dbt-all",
        1,
        "t1",
        "read_raw_file",
        &json!({"path": "policy.md"}),
    );
    for keys in ["fxy", "fry", "f<enter>", "Fnobody<enter>xy", "f<space>"] {
        let (text, given) = grown(&tape, &tape, keys, SIZE);
        assert!(given.is_empty(), "{keys}: {given:?}");
        assert!(text.contains("no unit "), "{keys}: {text}");
        assert!(!text.contains("dbt-all"), "{keys}: {text}");
    }
    let (text, _) = grown(&tape, &tape, "f<esc>x", SIZE);
    assert!(text.contains("Stop dbt-all?"), "{text}");
}

#[test]
fn concurrency_change_is_shown_on_a_narrow_screen() {
    let before = tape::running();
    let mut after = tape::running();
    after.note(
        None,
        &Note::ConcurrencyChanged {
            slots: 5,
            old: None,
        },
    );
    let (text, given) = grown(&before, &after, "+", (80, 24));
    assert_eq!(given, [RunCommand::AdjustConcurrency { by: 1 }]);
    assert!(
        text.lines()
            .nth(1)
            .is_some_and(|header| header.contains("concurrency 5")),
        "{text}"
    );
    after.note(
        None,
        &Note::ConcurrencyChanged {
            slots: 6,
            old: None,
        },
    );
    let (text, _) = grown(&before, &after, "++", (80, 24));
    assert!(
        text.lines()
            .nth(1)
            .is_some_and(|header| header.contains("concurrency 6")),
        "{text}"
    );
    assert!(!text.contains("concurrency 5"), "{text}");
}

#[test]
fn arrows_have_names_on_ascii_screens() {
    let ascii = Options {
        theme: Theme::new("dark", ColorLevel::Attributes, true).unwrap(),
        ..options()
    };
    let shown = |keys: &str| {
        let script = ScriptedHost::new(keys, SIZE);
        let (script, _) = play(tape::running().timeline(), None, ascii.clone(), script);
        script.text()
    };
    let text = ["??", "??<c-d>", "??<c-d><c-d>"].map(shown).concat();
    for keys in ["j  Down", "k  Up", "l  Right", "h  Left"] {
        assert!(text.contains(keys), "{keys}: {text}");
    }
    assert!(text.is_ascii(), "{text}");
}

#[test]
fn footer_in_the_past_lists_available_keys() {
    for size in [SIZE, (80, 24)] {
        let (text, _) = grown(&tape::running(), &tape::running(), ":2s<enter>", size);
        let footer = text.lines().last().unwrap();
        for hint in ["$ live", "Space play", ". step"] {
            assert!(footer.contains(hint), "{hint}: {footer}");
        }
        for hint in ["x stop", "r retry", "+ more"] {
            assert!(!footer.contains(hint), "{hint}: {footer}");
        }
    }
    let (text, given) = live(":2s<enter>+");
    assert!(
        given.is_empty() && text.contains("this is the past, 00:18 behind live"),
        "{text}"
    );
}

#[test]
fn initial_hint_is_shown_and_disappears() {
    let message = "run a1b2c3 was cut off with 2 units done that are not saved; `ingestdeck run --resume-run a1b2c3` resumes it";
    let text = |keys, size, last| {
        let options = Options {
            startup_messages: vec![message.into()],
            ..options()
        };
        play(
            tape::running().timeline(),
            None,
            options,
            ScriptedHost::new(keys, size).keep_open_for(last),
        )
        .0
        .text()
    };
    assert!(text("", (160, 36), Duration::from_secs(15)).contains(message));
    let narrow = text("", (80, 24), Duration::from_secs(1));
    assert!(
        narrow.contains("run a1b2c3 was cut off with 2 units done")
            && narrow.contains("resumes it"),
        "{narrow}"
    );
    assert!(!text("", (160, 36), Duration::from_secs(25)).contains("not saved"));
    assert!(
        text("j", (160, 36), Duration::from_secs(1)).contains("not saved"),
        "a key does not hide it"
    );
}

#[test]
fn refused_command_shows_the_reason() {
    let growing = hold::held().growing();
    let (commands, _orders) = mpsc::channel(8);
    let (answer, outcomes) = mpsc::unbounded_channel();
    let (_grows, changed) = watch::channel(0);
    answer
        .send(Err(RefusalReason::CallNotWaiting {
            unit: "dbt-all".into(),
        }))
        .unwrap();
    drop(answer);
    let live = LiveHandle {
        engine: Some(EngineChannel {
            commands,
            outcomes,
            leave_action: None,
        }),
        changed,
        failed: None,
    };
    let script = ScriptedHost::new("", (80, 24)).keep_open_for(Duration::from_secs(2));
    let (script, _) = play(growing.timeline, Some(live), options(), script);
    assert!(
        script
            .text()
            .contains("dbt-all: the call no longer waits for a decision"),
        "{}",
        script.text()
    );
}

#[test]
fn inspector_follows_a_requested_attempt() {
    const UNIT: &str = "notion-revenue-policy";
    let mut after = tape::running();
    after
        .note(
            Some((UNIT, 1)),
            &Note::RetryRequested {
                next: 2,
                amendment: None,
            },
        )
        .start(UNIT, 2);
    after.say(UNIT, 2, "Once more.");
    for (keys, shown) in [
        ("gg<enter>ry", "[▶ try 2]"),
        ("gg<enter>", "[✗ try 1]"),
        ("gg<enter>6ry", "[▶ try 2]"),
    ] {
        let (text, given) = grown(&tape::running(), &after, keys, SIZE);
        assert_eq!(given.len(), usize::from(keys.ends_with('y')), "{keys}");
        assert!(text.contains(shown), "{keys}:\n{text}");
    }
}
