//! Units that need a person although nothing failed: silent ones, and those that ran out of turns or were stopped.

use std::time::Duration;

use ingestdeck_core::{
    control::RunCommand,
    tape::{
        Note,
        note::{
            AttemptEnded, AttemptOutcome, AttemptStarted, PlannedUnit, RunPlanned, StopMode,
            StopReason, Verdict, VerdictCause,
        },
    },
};
use ingestdeck_tui::{ColorLevel, Theme};
use tokio::sync::{mpsc, watch};

use super::{
    scripted_host::{ScriptedHost, live_handle, options, play},
    tape::TapeFixture,
};

const SIZE: (u16, u16) = (120, 36);
const SIZES: [(u16, u16); 3] = [(80, 24), SIZE, (200, 60)];

/// Four of five units are done after 20 s; `docs-analyst-onboarding` has written nothing since then.
fn hanging() -> TapeFixture {
    let mut tape = TapeFixture::new("orbit", false);
    let units = [
        "docs-glossary",
        "docs-revenue",
        "docs-churn",
        "docs-analyst-onboarding",
        "docs-pricing",
    ];
    tape.plan(&units);
    for unit in &units[..3] {
        tape.start(unit, 1)
            .wait(5000)
            .say(unit, 1, "Reading.")
            .wait(1000)
            .end(unit, 1, 0);
    }
    tape.start(units[3], 1).wait(1000);
    tape.call(
        units[3],
        1,
        "t",
        "read_raw_file",
        &serde_json::json!({"path": "onboarding.md"}),
    )
    .wait(10);
    tape.result(units[3], 1, "t", "# Onboarding", false)
        .wait(990);
    tape.start(units[4], 1).wait(2000).end(units[4], 1, 0);
    tape
}

/// A live run, seen that many seconds after its start, and the commands that it received.
fn live(tape: &TapeFixture, seconds: u64, script: ScriptedHost) -> (ScriptedHost, Vec<RunCommand>) {
    let growing = tape.growing();
    let (commands, mut orders) = mpsc::channel(8);
    let (_grows, changed) = watch::channel(0);
    let script = script.after(Duration::from_secs(seconds));
    let (script, _) = play(
        growing.timeline,
        Some(live_handle(commands, changed)),
        options(),
        script,
    );
    (
        script,
        std::iter::from_fn(|| orders.try_recv().ok()).collect(),
    )
}

fn shown(seconds: u64, keys: &str) -> String {
    live(&hanging(), seconds, ScriptedHost::new(keys, SIZE))
        .0
        .text()
}

#[test]
fn silent_unit_is_shown_at_every_size() {
    for size in SIZES {
        let text = live(&hanging(), 20 + 154, ScriptedHost::new("", size))
            .0
            .text();
        insta::assert_snapshot!(format!("silent_{}x{}", size.0, size.1), text);
    }
    let mut ascii = options();
    ascii.theme = Theme::new("dark", ColorLevel::Full, true).unwrap();
    let (commands, _orders) = mpsc::channel(8);
    let (_grows, changed) = watch::channel(0);
    let script = ScriptedHost::new("", (80, 24)).after(Duration::from_secs(174));
    let handle = live_handle(commands, changed);
    let text = play(hanging().growing().timeline, Some(handle), ascii, script)
        .0
        .text();
    assert!(
        text.contains("z docs-analyst-onboarding silent 2m 34s"),
        "{text}"
    );
}

#[test]
fn silence_begins_by_itself_and_is_counted() {
    let before = shown(20 + 58, "");
    assert!(
        before.contains("▶ 1 running") && !before.contains("silent"),
        "{before}"
    );
    let script = ScriptedHost::new("", SIZE).keep_open_for(Duration::from_secs(10));
    let after = live(&hanging(), 20 + 58, script).0.text();
    assert!(
        after.contains("! 1 silent") && after.contains("silent 1m 07s"),
        "{after}"
    );
    assert!(
        shown(20 + 70, "L").contains("silent: no output for 1m 00s"),
        "{}",
        shown(90, "L")
    );
}

#[test]
fn hold_does_not_hide_a_silence() {
    let mut tape = hanging();
    tape.wait(150_000)
        .note(Some(("docs-analyst-onboarding", 1)), &Note::HoldRequested);
    let text = live(&tape, 20 + 200, ScriptedHost::new("", SIZE)).0.text();
    assert!(text.contains("silent 3m 20s"), "{text}");
}

#[test]
fn bar_shows_the_key_for_a_silent_unit() {
    let text = shown(174, "");
    let bar = text.trim_end().lines().last().unwrap();
    assert!(bar.trim_start().starts_with("x stop"), "{bar}");
    let (_, orders) = live(&hanging(), 174, ScriptedHost::new("xy", SIZE));
    assert_eq!(
        orders,
        [RunCommand::Stop {
            unit: "docs-analyst-onboarding".into()
        }]
    );
}

#[test]
fn filter_and_problem_keys_find_a_silent_unit() {
    let text = shown(174, "f");
    assert!(
        text.contains("units needs you only") && text.contains("1/1 of 5"),
        "{text}"
    );
    assert!(shown(174, "G]").contains("1/5"), "{}", shown(174, "G]"));
}

#[test]
fn replay_shows_silence_at_its_time() {
    let mut tape = hanging();
    tape.wait(156_000)
        .say("docs-analyst-onboarding", 1, "At last.")
        .end("docs-analyst-onboarding", 1, 0)
        .run_ended(5, 0);
    let record = |keys: &str| {
        play(
            tape.timeline(),
            None,
            options(),
            ScriptedHost::new(keys, SIZE),
        )
        .0
        .text()
    };
    let log = record("L");
    assert!(
        log.contains("silent: no output for 1m 00s") && log.contains("output again after 2m 3"),
        "{log}"
    );
    // From one entry before the end, playing advances to the moment when the silence reaches two minutes.
    let mut paused = options();
    paused.paused_after = Some(0);
    let script = ScriptedHost::new("I<space>", SIZE).keep_open_for(Duration::from_secs(24 + 119));
    let text = play(tape.timeline(), None, paused, script).0.text();
    assert!(
        text.contains("! 1 silent") && text.contains("silent 2m 0"),
        "{text}"
    );
}

#[test]
fn idle_screen_draws_nothing_once_nothing_runs() {
    let mut tape = hanging();
    tape.end("docs-analyst-onboarding", 1, 0).run_ended(5, 0);
    let drawn = |seconds| {
        let script = ScriptedHost::new("", SIZE).keep_open_for(Duration::from_secs(seconds));
        live(&tape, 60, script).0.frames
    };
    assert_eq!(drawn(1), drawn(600));
}

#[test]
fn verdict_of_a_running_unit_has_its_time_and_process() {
    let text = shown(174, "i5");
    assert!(
        text.contains("none yet: the unit is silent 2m 34s"),
        "{text}"
    );
    assert!(
        text.contains("running, pid 4242") && text.contains("2m 36s"),
        "{text}"
    );
}

#[test]
fn overdue_work_is_not_forecast_to_end_now() {
    let header = |seconds| shown(seconds, "").lines().next().unwrap().to_owned();
    assert!(
        header(174).contains("left ?, overdue  ~$0.16 of ~$0.21"),
        "{}",
        header(174)
    );
    assert!(
        !header(22).contains("overdue") && !header(22).contains("left 0s"),
        "{}",
        header(22)
    );
    let causes = shown(174, "C");
    assert!(causes.contains("done in ?, overdue"), "{causes}");
}

/// An outcome that is neither a failure nor a success.
fn ended(
    tape: &mut TapeFixture,
    unit: &str,
    outcome: AttemptOutcome,
    stop: StopReason,
    cause: VerdictCause,
) {
    let verdict = Verdict {
        outcome,
        stop,
        cause,
        reason: "the reason".into(),
        remedy: Some("do it again".into()),
    };
    let ended = AttemptEnded {
        verdict,
        tool_failures: 0,
        failed_call: None,
        exit_code: Some(0),
        signal: None,
        stderr_tail: Vec::new(),
        wrote: Vec::new(),
        work: Default::default(),
        extra: serde_json::Map::default(),
    };
    tape.note(Some((unit, 1)), &Note::AttemptEnded(Box::new(ended)));
}

/// One unit done, one out of turns, one stopped.
fn unfinished() -> TapeFixture {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["a", "b", "c"]);
    tape.start("a", 1)
        .wait(1000)
        .end("a", 1, 0)
        .start("b", 1)
        .start("c", 1)
        .wait(1000);
    for _ in 0..40 {
        tape.say("b", 1, "And one more.");
    }
    ended(
        &mut tape,
        "b",
        AttemptOutcome::Succeeded,
        StopReason::Budget,
        VerdictCause::Budget,
    );
    tape.note(
        Some(("c", 1)),
        &Note::StopRequested {
            how: StopMode::Stop,
        },
    );
    ended(
        &mut tape,
        "c",
        AttemptOutcome::Stopped,
        StopReason::Error,
        VerdictCause::Cancelled,
    );
    tape.run_ended(1, 0);
    tape
}

#[test]
fn units_that_are_not_done_can_be_found_and_retried() {
    let text = |keys: &str| {
        live(&unfinished(), 5, ScriptedHost::new(keys, SIZE))
            .0
            .text()
    };
    assert!(text("f").contains("1/2 of 3"), "{}", text("f"));
    assert!(
        text("gg]").contains("2/3") && text("gg]]").contains("3/3"),
        "{}",
        text("gg]")
    );
    let question = text("R");
    assert!(question.contains("Retry 2 unfinished units?"), "{question}");
    let causes = text("C");
    assert!(
        causes.contains("2 units need you, for 2 reasons"),
        "{causes}"
    );
    assert!(
        causes.contains("◆ budget · 1 unit  ran out of turns (40/40)"),
        "{causes}"
    );
    assert!(
        causes.contains("■ cancelled · 1 unit  the reason"),
        "{causes}"
    );
    let (_, orders) = live(&unfinished(), 5, ScriptedHost::new("Ry", SIZE));
    assert_eq!(orders, [RunCommand::RetryUnsuccessful]);
}

#[test]
fn one_unit_of_another_kind_does_not_hide_the_forecast() {
    let mut tape = TapeFixture::new("orbit", false);
    let unit = |unit: &str, adapter: &str| PlannedUnit {
        unit: unit.into(),
        adapter: adapter.into(),
        ..PlannedUnit::default()
    };
    let units = ["a", "b", "c", "d", "e"]
        .map(|key| unit(key, "manifest"))
        .into_iter()
        .chain([unit("reconcile", "")]);
    let plan = RunPlanned {
        units: units.collect(),
        concurrency: 1,
        ..RunPlanned::default()
    };
    tape.note(None, &Note::RunPlanned(Box::new(plan)));
    for key in ["a", "b", "c", "d", "e"] {
        tape.start(key, 1)
            .wait(9000)
            .end(key, 1, u32::from(matches!(key, "d" | "e")));
    }
    tape.start("reconcile", 1)
        .wait(1000)
        .crash("reconcile", 1)
        .run_ended(3, 3);
    let text = live(&tape, 60, ScriptedHost::new("R", SIZE)).0.text();
    assert!(
        text.contains("Forecast: $0.08 for 2; 18s for 2; reconcile unknown."),
        "{text}"
    );
    // The header shows it while the units are retried.
    for key in ["d", "e", "reconcile"] {
        tape.note(
            Some((key, 2)),
            &Note::RetryRequested {
                next: 2,
                amendment: None,
            },
        );
    }
    let text = live(&tape, 60, ScriptedHost::new("", SIZE)).0.text();
    assert!(text.contains("left 18s+?  $0.21+ of ~$0.29+?"), "{text}");
}

#[test]
fn badge_shows_passed_events() {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["a"]);
    let started = AttemptStarted {
        env_passed: vec!["ANTHROPIC_BASE_URL".into(), "ANTHROPIC_API_KEY".into()],
        ..AttemptStarted::default()
    };
    tape.note(Some(("a", 1)), &Note::AttemptStarted(Box::new(started)));
    let text = play(
        tape.timeline(),
        None,
        options(),
        ScriptedHost::new("", SIZE),
    )
    .0
    .text();
    assert!(
        text.contains(" passes ANTHROPIC_API_KEY ANTHROPIC_BASE_URL"),
        "{text}"
    );
    let text = play(
        hanging().timeline(),
        None,
        options(),
        ScriptedHost::new("", SIZE),
    )
    .0
    .text();
    assert!(!text.contains("passes"), "{text}");
}
