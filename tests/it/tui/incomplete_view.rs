//! What the screen must not claim: figures of a run that is still being read, and progress of a run that waits.

use std::{path::Path, time::Duration};

use serde_json::json;
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    review,
    screens::SIZES,
    scripted_host::{ScriptedHost, live_handle, options, play},
    tape::{self, TapeFixture},
};
use ingestdeck_core::{
    control::DisconnectAction,
    tape::{
        Note,
        note::{ReviewDecision, RunEnded},
    },
};
use ingestdeck_tui::{ExitCondition, LiveHandle, Options};

/// A run with one failure and three finished units, whose last unit writes about 2 MB.
fn long() -> TapeFixture {
    let units = ["docs-a", "docs-b", "docs-c", "docs-d", "docs-e", "docs-f"];
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&units);
    for unit in &units[..4] {
        tape.start(unit, 1)
            .wait(2000)
            .end(unit, 1, u32::from(*unit == "docs-a"))
            .wait(10);
    }
    tape.start("docs-e", 1).wait(1000);
    let text = "lorem ipsum ".repeat(800);
    for number in 0..200 {
        tape.say("docs-e", 1, &format!("{number} {text}")).wait(20);
    }
    tape
}

fn live(
    tape: &TapeFixture,
    options: Options,
    script: ScriptedHost,
    leave: Option<DisconnectAction>,
) -> String {
    let growing = tape.growing();
    let (commands, _orders) = mpsc::channel(8);
    let (_grows, changed) = watch::channel(0);
    let mut handle = live_handle(commands, changed);
    handle.engine.as_mut().unwrap().leave_action = leave;
    play(growing.timeline, Some(handle), options, script)
        .0
        .text()
}

fn first_frame() -> Options {
    Options {
        exit_when: Some(ExitCondition::FirstFrame),
        ..options()
    }
}

#[test]
fn run_that_is_still_read_is_not_shown_as_live() {
    for (width, height) in SIZES {
        let script = || ScriptedHost::new("", (width, height)).after(Duration::from_secs(300));
        let text = live(&long(), first_frame(), script(), None);
        assert!(
            text.lines()
                .last()
                .is_some_and(|line| line.contains("reading 1")),
            "{text}"
        );
        for claim in ["LIVE", "left ", "overdue", " of ~", "units/min"] {
            assert!(!text.contains(claim), "{claim}: {text}");
        }
        let text = live(&long(), options(), script(), None);
        assert!(
            text.lines()
                .last()
                .is_some_and(|line| line.contains("LIVE")),
            "{text}"
        );
        assert!(!text.contains("reading"), "{text}");
    }
    insta::assert_snapshot!(
        "reading_120x36",
        live(
            &long(),
            first_frame(),
            ScriptedHost::new("", (120, 36)),
            None
        )
    );
    // The same for a run that is watched.
    let (_grows, changed) = watch::channel(0);
    let (_gone, broken) = oneshot::channel();
    let watching = LiveHandle::watching(changed, broken);
    let script = ScriptedHost::new("", (120, 36)).after(Duration::from_secs(300));
    let text = play(
        long().growing().timeline,
        Some(watching),
        first_frame(),
        script,
    )
    .0
    .text();
    assert!(
        text.contains("reading 1") && !text.contains("LIVE"),
        "{text}"
    );
}

#[test]
fn short_run_and_new_entries_are_not_read_visibly() {
    let text = live(
        &tape::running(),
        first_frame(),
        ScriptedHost::new("", (120, 36)),
        None,
    );
    assert!(text.contains("LIVE") && !text.contains("reading"), "{text}");
}

#[test]
fn questions_during_reading_mark_their_figures() {
    let note = "the figures are those of the part read so far";
    for keys in ["R", "ggr", "Cr"] {
        let early = || {
            ScriptedHost::new(keys, (120, 36))
                .after(Duration::from_secs(60))
                .without_delay()
        };
        let text = live(&long(), options(), early(), None);
        assert!(
            text.contains("Still reading (1") && text.contains(note),
            "{keys}: {text}"
        );
        let text = live(
            &long(),
            options(),
            ScriptedHost::new(keys, (120, 36)).after(Duration::from_secs(60)),
            None,
        );
        assert!(
            text.contains('?') && !text.contains("Still reading"),
            "{keys}: {text}"
        );
    }
    let mut ended = long();
    ended.note(
        None,
        &Note::RunEnded(RunEnded {
            outcome: "partial".into(),
            ..RunEnded::default()
        }),
    );
    for keys in ["R", "ggr", "gge<c-s>"] {
        for is_early in [true, false] {
            let project = Some(Path::new("/nowhere").to_owned());
            let script = ScriptedHost::new(keys, (120, 36));
            let script = if is_early {
                script.without_delay()
            } else {
                script
            };
            let text = play(
                ended.timeline(),
                None,
                Options {
                    project,
                    ..options()
                },
                script,
            )
            .0
            .text();
            assert!(
                text.contains("new run for") || text.contains("Resume run"),
                "{keys}: {text}"
            );
            assert_eq!(text.contains(note), is_early, "{keys}: {text}");
        }
    }
}

/// Three units took 2 s each; one runs, two are queued, and the run is paused.
fn paused() -> TapeFixture {
    let units = ["docs-a", "docs-b", "docs-c", "docs-d", "docs-e", "docs-f"];
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&units);
    for unit in &units[..3] {
        tape.start(unit, 1).wait(2000).end(unit, 1, 0).wait(10);
    }
    tape.start("docs-d", 1)
        .wait(500)
        .note(None, &Note::RunPaused);
    tape
}

#[test]
fn paused_run_names_the_key_that_resumes_it() {
    for (width, height) in SIZES {
        let script = ScriptedHost::new("", (width, height)).after(Duration::from_secs(8));
        let text = live(&paused(), options(), script, None);
        assert!(
            text.lines()
                .last()
                .is_some_and(|line| line.trim_start().starts_with("p resume")),
            "{text}"
        );
    }
}

#[test]
fn forecast_of_a_paused_run_does_not_move() {
    let shown = |seconds, keys| {
        let script = ScriptedHost::new(keys, (120, 36)).after(Duration::from_secs(seconds));
        live(&paused(), options(), script, None)
    };
    let left = |seconds| {
        let text = shown(seconds, "");
        let line = text.lines().next().unwrap_or_default().to_owned();
        line.split("left ")
            .nth(1)
            .and_then(|rest| rest.split("  ").next())
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(left(8), left(3600));
    assert!(
        left(8).ends_with("after the pause") && !left(8).contains("overdue"),
        "{}",
        left(8)
    );
    let text = shown(3600, "C");
    assert!(
        text.contains("after the pause") && !text.contains("overdue"),
        "{text}"
    );
    // After the pause it moves again.
    let mut resumed = paused();
    resumed.note(None, &Note::RunResumed);
    let script = ScriptedHost::new("", (120, 36)).after(Duration::from_secs(3600));
    let text = live(&resumed, options(), script, None);
    assert!(
        !text.contains("after the pause") && text.contains("overdue"),
        "{text}"
    );
}

#[test]
fn leaving_a_paused_run_leaves_it_paused() {
    let leave = Some(DisconnectAction::Continue);
    for (width, height) in SIZES {
        let script = |tape: &TapeFixture| {
            let script = ScriptedHost::new("q", (width, height)).after(Duration::from_secs(20));
            live(tape, options(), script, leave)
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                .replace("│ │ ", "")
        };
        let text = script(&paused());
        assert!(
            text.contains("the run stays paused") && !text.contains("the run continues"),
            "{text}"
        );
        assert!(script(&tape::running()).contains("the run continues"));
        assert!(script(&review::waiting(review::three_files())).contains("the run still waits"));
    }
}

#[test]
fn clock_and_rate_of_a_run_that_waits_for_review() {
    let mut tape = TapeFixture::new("orbit", false);
    let units: Vec<String> = (0..6).map(|unit| format!("docs-{unit}")).collect();
    tape.plan(&units);
    for unit in &units {
        tape.start(unit, 1).wait(1000).end(unit, 1, 0);
    }
    let request = ingestdeck_core::tape::note::ReviewRequested {
        base: "c0ffee".into(),
        files: review::three_files(),
        ..Default::default()
    };
    tape.wait(200)
        .note(None, &Note::ReviewRequested(std::sync::Arc::new(request)));
    let shown = |seconds| {
        let script = ScriptedHost::new("<esc>", (200, 60)).after(Duration::from_secs(seconds));
        live(&tape, options(), script, None)
    };
    assert!(
        shown(31).contains("waits for review 00:31"),
        "{}",
        shown(31)
    );
    assert!(
        shown(600).contains("waits for review 10:00"),
        "{}",
        shown(600)
    );
    assert!(
        shown(31).contains("60.0 units/min") && shown(600).contains("60.0 units/min"),
        "{}",
        shown(600)
    );
    // The clock moves without new entries.
    let script = ScriptedHost::new("<esc>", (120, 36))
        .after(Duration::from_secs(31))
        .keep_open_for(Duration::from_secs(5));
    assert!(live(&tape, options(), script, None).contains("waits for review 00:36"));
}

#[test]
fn waits_for_a_person_are_not_called_holds() {
    let tape = review::decided_as(ReviewDecision::Accepted);
    let text = play(
        tape.timeline(),
        None,
        options(),
        ScriptedHost::new("<esc>", (120, 36)),
    )
    .0
    .text();
    assert!(
        text.contains("‖ 1 wait for you") && !text.contains("hold"),
        "{text}"
    );
}

#[test]
fn earlier_attempt_is_headed_with_its_own_status() {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["docs-a"]).start("docs-a", 1).wait(900);
    tape.call("docs-a", 1, "t1", "wiki_write", &json!({"key": "a"}))
        .wait(50);
    tape.result("docs-a", 1, "t1", "page has no title", true)
        .wait(10)
        .end("docs-a", 1, 1)
        .wait(100);
    tape.start("docs-a", 2).wait(900).end("docs-a", 2, 0);
    let title = |keys: &str| {
        let text = play(
            tape.timeline(),
            None,
            options(),
            ScriptedHost::new(keys, (120, 36)),
        )
        .0
        .text();
        text.lines()
            .find(|line| line.contains("try ") && line.starts_with('┌'))
            .unwrap_or_default()
            .to_owned()
    };
    assert!(
        title("").contains("✓ docs-a succeeded") && title("").contains("try 2 of 2"),
        "{}",
        title("")
    );
    assert!(
        title("A").contains("✗ docs-a failed") && title("A").contains("try 1 of 2"),
        "{}",
        title("A")
    );
}
