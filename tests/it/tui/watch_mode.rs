//! A run of another process, and a resumed run: how they are shown, and that keys which act on the run do nothing.

use std::{collections::BTreeMap, time::Duration};

use ingestdeck_core::tape::{
    Note, RunId,
    note::{
        ContentDigests, ContinuedRun, PlannedUnit, PriorUnitSummary, ReusedSuccess, RunPlanned,
    },
};
use ingestdeck_tui::LiveHandle;
use tokio::sync::{oneshot, watch};

use super::{
    screens::SIZES,
    scripted_host::{ScriptedHost, options, play},
    tape::{self, TapeFixture},
};

/// State of the writer process of the watched record.
enum WriterState {
    Running,
    Exited,
    Died,
}

fn watched(keys: &str, size: (u16, u16), writer: &WriterState) -> ScriptedHost {
    let growing = tape::running().growing();
    let (_grows, changed) = watch::channel(0);
    let (gone, broken) = oneshot::channel();
    let kept = match writer {
        WriterState::Running => Some(gone),
        WriterState::Exited => {
            growing.finish.finish();
            drop(gone);
            None
        }
        WriterState::Died => {
            growing.finish.finish();
            gone.send("writer gone: the process of this run has ended".into())
                .unwrap();
            None
        }
    };
    let script = ScriptedHost::new(keys, size)
        .after(Duration::from_secs(20))
        .keep_open_for(Duration::from_secs(1));
    let (script, _) = play(
        growing.timeline,
        Some(LiveHandle::watching(changed, broken)),
        options(),
        script,
    );
    drop(kept);
    script
}

#[test]
fn watch_mode_is_shown() {
    for size in SIZES {
        insta::assert_snapshot!(
            format!("watched_{}x{}", size.0, size.1),
            watched("", size, &WriterState::Running).text()
        );
    }
}

#[test]
fn action_keys_in_watch_mode_explain_why_not() {
    for key in ["r", "R", "x", "+", "-", "e"] {
        let text = watched(&format!("gg{key}"), (120, 36), &WriterState::Running).text();
        assert!(
            text.contains("this run belongs to another process"),
            "{key}: {text}"
        );
        assert!(
            !text.contains('?') || !text.contains("Stop notion"),
            "nothing is asked: {text}"
        );
    }
    let text = watched(" ", (120, 36), &WriterState::Running).text();
    assert!(!text.contains("will wait at its next tool call"), "{text}");
    let text = watched("q", (120, 36), &WriterState::Running).text();
    assert!(!text.contains("stop all and quit"), "{text}");
}

#[test]
fn exited_and_dead_writers_are_distinguished() {
    let left = watched("", (120, 36), &WriterState::Exited).text();
    assert!(
        left.contains("REPLAY") && !left.contains("read only") && !left.contains("writer gone"),
        "{left}"
    );
    insta::assert_snapshot!(
        "writer_gone",
        watched("", (120, 36), &WriterState::Died).text()
    );
}

/// Four units of a run that resumes a limited one: two are reused, one runs again, one is queued.
fn continued() -> TapeFixture {
    let before = RunId(uuid::Uuid::from_u128(0xa1_b2c3));
    let mut tape = TapeFixture::new("orbit", false);
    let unit = |key: &str, why: &str| PlannedUnit {
        unit: key.into(),
        connection: "notion".into(),
        adapter: "docs".into(),
        raw_files: vec![format!("{key}.md")],
        why: why.into(),
        ..PlannedUnit::default()
    };
    let same = "succeeded in run a1b2c3 with the same content";
    let units = vec![
        unit("notion-a", same),
        unit("notion-b", same),
        unit(
            "notion-c",
            "failed in run a1b2c3: You've hit your session limit",
        ),
        unit("notion-d", "had no turn in run a1b2c3"),
    ];
    let reused = ReusedSuccess {
        attempt: 1,
        is_budget_exhausted: false,
        content: ContentDigests::default(),
        pending_patch: None,
        output: Default::default(),
    };
    let earlier = |cost_usd, reused| PriorUnitSummary {
        run: before,
        attempts: 2,
        cost_usd,
        reused,
    };
    let earlier = BTreeMap::from([
        ("notion-a".into(), earlier(Some(0.25), Some(reused.clone()))),
        ("notion-b".into(), earlier(None, Some(reused))),
        ("notion-c".into(), earlier(Some(0.25), None)),
    ]);
    let (outcome, unreconciled) = (Some("limit".into()), Default::default());
    let continues = ContinuedRun {
        run: before,
        outcome,
        cost_usd: Some(0.5),
        units: earlier,
        unreconciled,
    };
    let plan = RunPlanned {
        job: "job-2".into(),
        units,
        concurrency: 1,
        step_budget: 40,
        continues: Some(continues),
        ..RunPlanned::default()
    };
    tape.note(None, &Note::RunPlanned(Box::new(plan)))
        .start("notion-c", 1)
        .wait(200);
    tape
}

#[test]
fn reused_units_are_marked() {
    for size in SIZES {
        let (script, _) = play(
            continued().timeline(),
            None,
            options(),
            ScriptedHost::new("gg", size),
        );
        insta::assert_snapshot!(format!("continued_{}x{}", size.0, size.1), script.text());
    }
    let (script, _) = play(
        continued().timeline(),
        None,
        options(),
        ScriptedHost::new("ggL", (120, 36)),
    );
    let text = script.text();
    assert!(
        text.contains("continues run a1b2c3 (limit, $0.50), 2 of its units are reused"),
        "{text}"
    );
}

/// The record grows right after a frame, when the screen is idle; after that, only the clock wakes it.
#[test]
fn entries_after_the_end_are_shown_immediately() {
    let mut before = TapeFixture::new("orbit", false);
    before.plan(&["a"]).start("a", 1).say("a", 1, "One.");
    let mut after = TapeFixture::new("orbit", false);
    after
        .plan(&["a"])
        .start("a", 1)
        .say("a", 1, "One.")
        .say("a", 1, "Two two two.");
    let growing = before.growing();
    let (grows, changed) = watch::channel(0);
    let (_gone, broken) = oneshot::channel();
    // A little longer than until the record grows: a selection that a person moved would not have been shown yet.
    let script = ScriptedHost::new("i", (120, 36)).keep_open_for(Duration::from_millis(90));
    let script = script.grows(growing.more(&before, &after), grows);
    let handle = LiveHandle::watching(changed, broken);
    let (script, _) = play(growing.timeline, Some(handle), options(), script);
    let text = script.text();
    let right: String = text
        .lines()
        .flat_map(|line| line.chars().skip(41))
        .collect();
    assert!(right.contains("Two two two."), "{text}");
}

#[test]
fn entries_arriving_while_idle_are_shown() {
    let mut before = TapeFixture::new("orbit", false);
    before.plan(&["a", "b"]).start("a", 1);
    let mut after = TapeFixture::new("orbit", false);
    after.plan(&["a", "b"]).start("a", 1).start("b", 1);
    let growing = before.growing();
    let (grows, changed) = watch::channel(0);
    let (_gone, broken) = oneshot::channel();
    let script = ScriptedHost::new("", (120, 36))
        .after(Duration::from_secs(20))
        .keep_open_for(Duration::from_secs(4));
    let script = script.grows(growing.more(&before, &after), grows);
    let handle = LiveHandle::watching(changed, broken);
    let (script, _) = play(growing.timeline, Some(handle), options(), script);
    assert!(script.text().contains("▶ 2 running"), "{}", script.text());
}
