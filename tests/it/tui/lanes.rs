//! The page of lanes: attempts over time with their waits.

use std::time::Duration;

use ingestdeck_core::tape::{
    Note,
    note::{CallDecision, VerdictCause},
};
use serde_json::json;
use tokio::sync::{mpsc, watch};

use super::{
    scripted_host::{ScriptedHost, live_handle, options, play},
    tape::{self, TapeFixture},
};

const SIZES: [(u16, u16); 5] = [(40, 12), (60, 20), (80, 24), (120, 36), (200, 60)];

/// Six units on two slots, with a retry, a hold and a limit; the last unit still runs at the end.
fn waits() -> TapeFixture {
    let units = [
        "dbt-staging",
        "dbt-marts",
        "docs-glossary",
        "docs-pricing",
        "lookml-orders",
        "notion-refunds",
    ];
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&units)
        .note(
            None,
            &Note::ConcurrencyChanged {
                slots: 2,
                old: None,
            },
        )
        .wait(1000);
    let works = |tape: &mut TapeFixture, unit: &str, attempt, ms| {
        tape.say(unit, attempt, "Reading.").wait(ms);
    };
    tape.start("dbt-staging", 1)
        .start("dbt-marts", 1)
        .wait(4000);
    works(&mut tape, "dbt-marts", 1, 0);
    works(&mut tape, "dbt-staging", 1, 20_000);
    tape.end("dbt-marts", 1, 1);
    let cause = VerdictCause::Network;
    tape.note(
        Some(("dbt-marts", 1)),
        &Note::RetryScheduled {
            next: 2,
            delay_ms: 30_000,
            cause,
        },
    );
    tape.start("docs-glossary", 1).wait(3000);
    works(&mut tape, "docs-glossary", 1, 9000);
    let lane = Some(("docs-glossary", 1));
    let (tool, id) = ("wiki_write".to_owned(), Some("t1".to_owned()));
    tape.note(
        lane,
        &Note::CallHeld {
            needs_decision: false,
            tool,
            tool_use_id: id.clone(),
            input: json!({}),
            reached: None,
        },
    )
    .wait(25_000);
    let decision = CallDecision::Allowed;
    tape.note(
        lane,
        &Note::CallDecided {
            rule: None,
            tool_use_id: id,
            decision,
            input: None,
            reason: None,
        },
    );
    tape.end("dbt-staging", 1, 0)
        .start("dbt-marts", 2)
        .wait(8000);
    works(&mut tape, "dbt-marts", 2, 14_000);
    tape.end("docs-glossary", 1, 0);
    tape.note(
        None,
        &Note::LimitPaused {
            until: None,
            limit: "five_hour".into(),
            wait_ms: Some(30_000),
        },
    )
    .wait(12_000);
    tape.end("dbt-marts", 2, 0)
        .wait(18_000)
        .note(None, &Note::LimitLifted);
    tape.start("docs-pricing", 1)
        .start("lookml-orders", 1)
        .wait(2000);
    works(&mut tape, "docs-pricing", 1, 0);
    works(&mut tape, "lookml-orders", 1, 15_000);
    tape.end("lookml-orders", 1, 0)
        .start("notion-refunds", 1)
        .wait(5000);
    works(&mut tape, "notion-refunds", 1, 10_000);
    tape.end("docs-pricing", 1, 0).wait(6000);
    works(&mut tape, "notion-refunds", 1, 0);
    tape
}

fn shown(tape: &TapeFixture, keys: &str, size: (u16, u16)) -> String {
    play(
        tape.timeline(),
        None,
        options(),
        ScriptedHost::new(keys, size),
    )
    .0
    .text()
}

#[test]
fn lanes_are_rendered() {
    let mut ended = waits();
    ended.end("notion-refunds", 1, 0).wait(3000).run_ended(6, 0);
    for size in SIZES {
        let (width, height) = size;
        insta::assert_snapshot!(format!("lanes_{width}x{height}"), shown(&ended, "gl", size));
    }
    insta::assert_snapshot!("lanes_selected_120x36", shown(&ended, "glgglk", (120, 36)));
    for size in [(80, 24), (120, 36), (200, 60)] {
        let (width, height) = size;
        let name = format!("lanes_zoomed_{width}x{height}");
        insta::assert_snapshot!(name, shown(&ended, "glgglz", size));
    }
    // Esc shows the whole run again, and then leaves.
    let size = (120, 36);
    assert_eq!(
        shown(&ended, "glgglz<esc>", size),
        shown(&ended, "glggl", size)
    );
}

#[test]
fn lanes_of_a_live_run_follow_its_clock() {
    let tape = waits();
    let growing = tape.growing();
    let (commands, _orders) = mpsc::channel(8);
    let (_grows, changed) = watch::channel(0);
    let script = ScriptedHost::new("gl", (120, 36)).after(Duration::from_secs(200));
    let text = play(
        growing.timeline,
        Some(live_handle(commands, changed)),
        options(),
        script,
    )
    .0
    .text();
    assert!(
        text.contains("lanes · 7 attempts · 2 lanes · 3m 20s"),
        "{text}"
    );
    assert!(
        text.contains("notion-refunds, running, 02:11 to 03:20"),
        "{text}"
    );
}

#[test]
fn lanes_show_the_moment_in_the_past() {
    let text = shown(&waits(), "gl:30s<enter>", (120, 36));
    assert!(text.contains("lanes · 3 attempts · 2 lanes"), "{text}");
}

#[test]
fn selected_attempt_opens_in_the_inspector() {
    let text = shown(&waits(), "glgg<enter>", (120, 36));
    assert!(text.contains("dbt-staging succeeded inspector"), "{text}");
    // The search and the problem keys select attempts, too.
    let text = shown(&waits(), "glgg/marts<enter>", (120, 36));
    assert!(text.contains("selected: dbt-marts, failed"), "{text}");
    assert!(shown(&waits(), "glG]", (120, 36)).contains("selected: dbt-marts, failed"));
}

#[test]
fn tape_without_attempts_has_no_lanes() {
    assert!(
        shown(&TapeFixture::new("orbit", false), "gl", (80, 24)).contains("no attempt has started")
    );
    assert!(shown(&tape::running(), ":lanes<enter>", (80, 24)).contains("critical path: "));
}
