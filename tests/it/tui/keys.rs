//! Effects of keys, the mouse and time.

use std::{io::Write as _, path::Path, time::Duration};

use crossterm::event::KeyCode;
use ingestdeck_core::{
    control::RunCommand,
    run::Timeline,
    tape::{
        Note,
        note::{PatchWritten, RunEnded, SaveFailed, Severity, StopMode},
    },
};
use ingestdeck_records::replay::FileSource;
use ingestdeck_tui::{
    ExitCondition, ExitReason, KeyOverrides, Keymap, TuiError, TuiExit,
    actions::ALL,
    host::HostInput,
    key::{self, KeyPress},
    theme::StyleRole,
};
use nix::libc;
use proptest::prelude::*;
use serde_json::json;
use tokio::sync::{mpsc, watch};

use super::{
    hold,
    scripted_host::{ScriptedHost, live_handle, options, play, try_play},
    tape::{self, TapeFixture},
};

const SIZE: (u16, u16) = (120, 36);

fn record(keys: &str) -> ScriptedHost {
    play(
        tape::running().timeline(),
        None,
        options(),
        ScriptedHost::new(keys, SIZE),
    )
    .0
}

#[test]
fn failed_frame_on_a_closed_terminal_is_a_hangup() {
    for is_closed in [true, false] {
        let mut script = ScriptedHost::new("jk", SIZE);
        script.failure = Some((1, is_closed));
        let (script, exit) = try_play(tape::running().timeline(), None, options(), script);
        assert_eq!(script.frames, 1);
        match exit {
            Ok(exit) => assert_eq!((is_closed, exit.reason), (true, ExitReason::Closed)),
            Err(TuiError::Terminal(cause)) => {
                assert_eq!((is_closed, cause.raw_os_error()), (false, Some(libc::EIO)))
            }
        }
    }
}

/// The commands that keys send to a run.
fn orders(tape: &TapeFixture, keys: &str) -> (ScriptedHost, TuiExit, Vec<RunCommand>) {
    let growing = tape.growing();
    let (commands, mut orders) = mpsc::channel(8);
    let (_grows, changed) = watch::channel(0);
    let script = ScriptedHost::new(keys, SIZE).after(Duration::from_secs(20));
    let (script, exit) = play(
        growing.timeline,
        Some(live_handle(commands, changed)),
        options(),
        script,
    );
    let orders = std::iter::from_fn(|| orders.try_recv().ok()).collect();
    (script, exit, orders)
}

/// The help, the breakpoints and the bookmarks are not about the unit that is selected below them.
#[test]
fn pages_about_other_things_command_no_unit() {
    for page in ["?", "B", "'"] {
        for keys in [format!("k{page}ry"), format!("{page}xy")] {
            let (_, _, commands) = orders(&tape::running(), &keys);
            assert_eq!(commands, [], "{keys}");
        }
    }
    for keys in ["kry", "xy"] {
        let (_, _, commands) = orders(&tape::running(), keys);
        assert_eq!(commands.len(), 1, "{keys}");
    }
}

/// The log commands the unit of the selected message, not the one that is selected below it.
#[test]
fn log_commands_the_unit_of_its_message() {
    let mut tape = over();
    tape.message(Some("b"), Severity::Warning, "about b");
    let units = |keys: &str| -> Vec<String> {
        let (_, _, commands) = orders(&tape, keys);
        commands
            .into_iter()
            .map(|command| match command {
                RunCommand::Retry { unit, .. } => unit.to_string(),
                other => panic!("{other:?}"),
            })
            .collect()
    };
    assert_eq!(units("ry"), ["a"]);
    assert_eq!(units("Lry"), ["b"]);
}

/// Like `running`, but no unit runs or is queued.
fn over() -> TapeFixture {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["a", "b"])
        .start("a", 1)
        .wait(10)
        .end("a", 1, 2)
        .start("b", 1)
        .wait(10)
        .end("b", 1, 0)
        .run_ended(1, 1);
    tape
}

#[test]
fn retry_key_retries_the_selected_unit() {
    let (_, _, orders) = orders(&tape::running(), "kry");
    assert_eq!(
        orders,
        [RunCommand::Retry {
            unit: "notion-revenue-policy".into(),
            amendment: None
        }]
    );
    let (script, _, given) = self::orders(&tape::running(), "kr");
    assert!(
        given.is_empty()
            && script
                .text()
                .contains("New attempt at notion-revenue-policy?"),
        "{}",
        script.text()
    );
}

#[test]
fn unretryable_unit_explains_why() {
    let (script, _, given) = orders(&tape::running(), "r");
    assert!(given.is_empty());
    assert!(
        script.text().contains("dbt-all is running; stop it first"),
        "{}",
        script.text()
    );
    let (script, _, given) = orders(&tape::running(), "Gkr");
    assert!(given.is_empty());
    assert!(
        script.text().contains("lookml-dashboard-exec is queued"),
        "{}",
        script.text()
    );
    assert!(record("r").text().contains("is of another project"));
}

#[test]
fn retrying_all_asks_and_names_the_count() {
    let (script, _, given) = orders(&tape::running(), "R");
    assert!(given.is_empty());
    assert!(script.text().contains("Retry 1 failed unit?"));
    let hints = script.text().lines().last().unwrap_or_default().to_owned();
    assert!(
        hints.contains("y yes") && hints.contains("Esc/Enter no") && !hints.contains("retry"),
        "{hints}"
    );
    assert!(
        script
            .text()
            .contains("Forecast: $?, since fewer than three"),
        "{}",
        script.text()
    );
    let mut unknown = TapeFixture::new("orbit", false);
    unknown.plan(&["a"]).start("a", 1).wait(10).crash("a", 1);
    let text = orders(&unknown, "R").0.text();
    assert!(
        text.contains("Forecast: $?, since fewer than three"),
        "{text}"
    );
    let (_, _, given) = orders(&tape::running(), "Rn");
    assert!(given.is_empty());
    let (_, _, given) = orders(&tape::running(), "Ry");
    assert_eq!(given, [RunCommand::RetryUnsuccessful]);
}

/// A run that ended with `outcome` before `c` and `d` were started.
fn cut_short(outcome: &str, failures: u32) -> TapeFixture {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["a", "b", "c", "d"])
        .start("a", 1)
        .wait(10)
        .end("a", 1, 0)
        .start("b", 1)
        .wait(10)
        .end("b", 1, failures);
    tape.note(
        None,
        &Note::RunEnded(RunEnded {
            outcome: outcome.into(),
            not_run: 2,
            ..RunEnded::default()
        }),
    );
    tape
}

#[test]
fn never_started_units_can_run_after_the_end() {
    let tape = cut_short("stopped", 0);
    let (script, _, given) = orders(&tape, "ggjry");
    assert_eq!(
        given,
        [RunCommand::Retry {
            unit: "d".into(),
            amendment: None
        }],
        "{}",
        script.text()
    );
    let (script, ..) = orders(&tape, "R");
    assert!(
        script.text().contains("Run 2 untried units?"),
        "{}",
        script.text()
    );
    assert_eq!(orders(&tape, "Ry").2, [RunCommand::RetryUnsuccessful]);
    // Like the scheduler: a unit that a person stopped is not continued unless requested.
    let text = orders(&cut_short("stopped", 1), "R").0.text();
    assert!(text.contains("Retry 1 failed unit?"), "{text}");
    let text = orders(&cut_short("limit", 1), "R").0.text();
    assert!(
        text.contains("Retry 1 failed unit, and run 2 untried units?"),
        "{text}"
    );
    // No unit runs and none will start.
    assert_eq!(orders(&tape, "q").1.reason, ExitReason::Quit);
    let (_, exit, given) = orders(&tape, "<c-c>");
    assert_eq!((exit.reason, given.len()), (ExitReason::Quit, 0));
    // A retry of one unit was requested; the other one is still not started.
    let mut tape = tape;
    tape.note(
        Some(("c", 0)),
        &Note::RetryRequested {
            next: 1,
            amendment: None,
        },
    );
    assert_eq!(orders(&tape, "ggjry").2.len(), 1);
    tape.note(
        None,
        &Note::StopRequested {
            how: StopMode::Drain,
        },
    );
    let text = orders(&tape, "ggr").0.text();
    assert!(
        text.contains("the run is ending; retry it afterwards"),
        "{text}"
    );
}

#[test]
fn retry_key_saves_unsaved_work() {
    let mut tape = TapeFixture::new("orbit", false);
    let patch = PatchWritten {
        path: Some("0000-a.patch".into()),
        ..PatchWritten::default()
    };
    tape.plan(&["a"])
        .start("a", 1)
        .wait(10)
        .note(Some(("a", 1)), &Note::PatchWritten(patch))
        .end("a", 1, 0);
    let reason = "ktx.yaml was changed meanwhile; commit or stash it, then try again".to_owned();
    tape.note(
        None,
        &Note::SaveFailed(SaveFailed {
            reason,
            ..SaveFailed::default()
        }),
    );
    tape.note(
        None,
        &Note::RunEnded(RunEnded {
            outcome: "error".into(),
            unsaved: 1,
            ..RunEnded::default()
        }),
    );
    assert!(orders(&tape, "").0.text().contains("R save again"));
    let text = orders(&tape, "R").0.text();
    assert!(
        text.contains("Save the results of 1 unit?") && text.contains("commit or stash it"),
        "{text}"
    );
    assert_eq!(orders(&tape, "Ry").2, [RunCommand::RetryUnsuccessful]);
    let text = orders(&over(), "jR").0.text();
    assert!(text.contains("Retry 1 failed unit?"), "{text}");
}

#[test]
fn limit_wait_can_be_overridden() {
    let mut tape = tape::running();
    assert!(
        orders(&tape, "u")
            .0
            .text()
            .contains("is not waiting for a limit")
    );
    tape.note(
        None,
        &Note::LimitPaused {
            until: None,
            limit: "5h".into(),
            wait_ms: Some(60_000),
        },
    );
    let (script, _, given) = orders(&tape, "uy");
    assert_eq!(given, [RunCommand::LiftLimit], "{}", script.text());
    assert!(orders(&tape, "").0.text().contains("u resume"));
    let (script, _) = play(
        tape.timeline(),
        None,
        options(),
        ScriptedHost::new("u", SIZE),
    );
    assert!(
        script
            .text()
            .contains("this is a recorded run; nothing waits"),
        "{}",
        script.text()
    );
}

#[test]
fn wait_for_workers_is_shown_while_it_lasts() {
    let mut tape = tape::running();
    tape.note(None, &Note::WorkersAwaited { wait_ms: 7_200_000 });
    for size in [SIZE, (80, 24)] {
        let (script, _) = play(
            tape.timeline(),
            None,
            options(),
            ScriptedHost::new("", size),
        );
        assert!(
            script.text().contains("WAITING for workers"),
            "{}",
            script.text()
        );
    }
    tape.note(None, &Note::WorkerWaitEnded);
    assert!(!orders(&tape, "").0.text().contains("WAITING"));
}

#[test]
fn concurrency_changes_while_units_run() {
    let (script, _, given) = orders(&tape::running(), "++-");
    assert_eq!(
        given,
        [1, 1, -1].map(|by| RunCommand::AdjustConcurrency { by })
    );
    assert!(script.text().contains("concurrency 4"), "{}", script.text());
    let mut changed = tape::running();
    changed.note(
        None,
        &Note::ConcurrencyChanged {
            slots: 1,
            old: None,
        },
    );
    let (script, _, given) = orders(&changed, "-");
    assert!(
        given.is_empty() && script.text().contains("the minimum concurrency is 1"),
        "{}",
        script.text()
    );
    assert!(
        orders(&changed, "L")
            .0
            .text()
            .contains("concurrency is now 1")
    );
    changed.note(
        None,
        &Note::ConcurrencyChanged {
            slots: 64,
            old: None,
        },
    );
    assert!(orders(&changed, "+").2.is_empty());
    let replayed = play(
        changed.timeline(),
        None,
        options(),
        ScriptedHost::new("+", SIZE),
    )
    .0
    .text();
    assert!(
        replayed.contains("this is a recorded run; its concurrency cannot change"),
        "{replayed}"
    );
}

#[test]
fn interrupt_is_recorded_as_user_stop() {
    let (_, exit, _) = orders(&tape::running(), "<c-c>");
    assert!(exit.interrupted);
    let (_, exit, _) = orders(&tape::running(), "j");
    assert!(!exit.interrupted);
}

#[test]
fn stopping_a_unit_asks() {
    let (script, _, given) = orders(&tape::running(), "x");
    assert!(given.is_empty() && script.text().contains("Stop dbt-all?"));
    assert_eq!(
        orders(&tape::running(), "x<enter>").2,
        [],
        "Enter is harmless"
    );
    let (_, _, given) = orders(&tape::running(), "xy");
    assert_eq!(
        given,
        [RunCommand::Stop {
            unit: "dbt-all".into()
        }]
    );
}

#[test]
fn esc_never_quits_and_q_asks_only_while_units_run() {
    let (_, exit, given) = orders(&tape::running(), "<esc><esc><esc>");
    assert_eq!((exit.reason, given.len()), (ExitReason::Closed, 0));
    let (script, exit, _) = orders(&tape::running(), "q");
    assert_eq!(exit.reason, ExitReason::Closed);
    assert!(script.text().contains("1 unit runs, 1 wait"));
    let (_, exit, given) = orders(&tape::running(), "qS");
    assert_eq!(
        (exit.reason, given),
        (ExitReason::Quit, vec![RunCommand::StopAll])
    );
    let (_, exit, given) = orders(&over(), "q");
    assert_eq!((exit.reason, given.len()), (ExitReason::Quit, 0));
    let (_, exit) = play(
        tape::running().timeline(),
        None,
        options(),
        ScriptedHost::new("q", SIZE),
    );
    assert_eq!(exit.reason, ExitReason::Quit);
}

#[test]
fn ctrl_c_drains_then_stops_then_kills() {
    let (script, _, given) = orders(&tape::running(), "<c-c>");
    assert_eq!(given, [RunCommand::Drain]);
    assert!(
        script.text().contains("nothing new starts"),
        "{}",
        script.text()
    );
    let (_, _, given) = orders(&tape::running(), "<c-c><c-c>");
    assert_eq!(given, [RunCommand::Drain, RunCommand::StopAll]);
    let (_, exit, given) = orders(&tape::running(), "<c-c>j<c-c><c-c>");
    assert_eq!(
        (exit.reason, given),
        (
            ExitReason::Quit,
            vec![RunCommand::Drain, RunCommand::StopAll, RunCommand::KillAll]
        )
    );
    let (_, exit, given) = orders(&over(), "<c-c>");
    assert_eq!((exit.reason, given.len()), (ExitReason::Quit, 0));
}

#[test]
fn ctrl_c_works_in_questions_and_forms() {
    for keys in ["R<c-c>", "/abc<c-c>", "?<c-c>"] {
        let (_, _, given) = orders(&tape::running(), keys);
        assert_eq!(given, [RunCommand::Drain], "{keys}");
    }
}

#[test]
fn signal_exits_and_is_reported() {
    let script = ScriptedHost::new("j", SIZE)
        .input(HostInput::Signal(15))
        .keys("j");
    let (_, exit) = play(tape::running().timeline(), None, options(), script);
    assert_eq!(exit.reason, ExitReason::Signal(15));
}

#[test]
fn enter_inspects_and_esc_goes_back_one_level() {
    let inspector = |keys: &str| {
        let text = record(keys).text();
        text.contains("notion-revenue-policy failed inspector")
            .then_some(text)
    };
    assert!(
        inspector("<enter>").is_some_and(|text| text.contains("verdict")),
        "{}",
        record("<enter>").text()
    );
    assert!(
        inspector("<enter>6")
            .is_some_and(|text| text.contains("[6 wire]") && text.contains(" 8 lines ")),
        "{}",
        record("<enter>6").text()
    );
    assert!(
        record("<enter>6<enter>")
            .text()
            .contains("notion-revenue-policy line 8/8")
    );
    assert!(inspector("<enter>6<enter><esc>").is_some_and(|text| text.contains("[6 wire]")));
    assert!(
        record("<enter>6<enter><esc><esc>")
            .text()
            .contains("┌ units")
    );
    assert!(
        inspector("<tab><enter>").is_some_and(|text| text.contains("5/5")),
        "the selected action"
    );
    assert!(inspector("<tab>gg<down><enter>").is_some_and(|text| text.contains("2/5")));
}

#[test]
fn moving_off_the_end_pauses_and_g_follows_again() {
    let mut tape = tape::running();
    for text in 0..80 {
        tape.say("dbt-all", 1, &format!("sentence {text}"));
    }
    let (script, ..) = orders(&tape, "<tab><c-u>");
    assert!(script.text().contains(" SCROLLED "), "{}", script.text());
    assert!(!script.text().contains("sentence 79") || script.text().contains("sentence 60"));
    // The row of the unit shows the last text, wherever its stream is.
    let stream = |keys: &str| {
        let text = orders(&tape, keys).0.text();
        let mut lines = text.lines().skip_while(|line| !line.starts_with('└'));
        lines.by_ref().collect::<Vec<_>>().join("\n")
    };
    assert!(
        stream("<tab>gg").contains("attempt 1 started")
            && !stream("<tab>gg").contains("sentence 79")
    );
    let (script, ..) = orders(&tape, "<tab>ggG");
    assert!(script.text().contains("sentence 79") && !script.text().contains(" SCROLLED "));
}

#[test]
fn search_finds_units_rows_lines_and_text() {
    assert!(
        record("/ORPH<enter>")
            .text()
            .contains("not found: ORPH in unit names; :find searches all actions")
    );
    assert!(
        record("/orph<enter>")
            .text()
            .contains("✓ lookml-orphans succeeded")
    );
    assert!(record("gg/lookml<enter>n").text().contains("4/4"));
    assert!(record("gg/lookml<enter>nn").text().contains("3/4"));
    // In the stream, the search uses the bytes of a row, not only its visible text.
    assert!(
        record("j<tab>/mart_arr_daily<enter><enter>")
            .text()
            .contains(" 3/9 "),
        "{}",
        record("j<tab>/mart_arr_daily<enter><enter>").text()
    );
    assert!(
        record("j<enter>6gg/ledger<enter><enter>")
            .text()
            .contains("daily mart is built from the ledger")
    );
    let document = record("<enter>6<enter>/recoverable<enter>");
    assert!(
        document.text().contains("tool_failures = \"recoverable\""),
        "{}",
        document.text()
    );
    assert!(
        record("/lookml<enter><esc>")
            .text()
            .contains("Enter inspect")
    );
    assert!(record("n").text().contains("no search yet; / searches"));
}

#[test]
fn typing_a_search_moves_to_the_first_match() {
    let typing = record("gg/lookml");
    assert!(
        typing.text().contains("/lookml▏ 1/2  Enter accept"),
        "{}",
        typing.text()
    );
    assert!(
        typing.text().contains("┌ ○ lookml-dashboard-exec untried"),
        "{}",
        typing.text()
    );
    let shown = |keys: &str| record(keys).text();
    assert!(shown("gg/lookmx").contains("/lookmx▏ no match"));
    for discarded in [
        "gg/lookml<esc>",
        "gg/lookml<c-u><backspace>",
        "gg/lookmx<esc>",
    ] {
        let text = shown(discarded);
        assert!(
            text.contains("1/4") && text.contains("┌ ✗ notion-revenue-policy"),
            "{discarded}: {text}"
        );
        assert!(
            !text.contains("lookmx") && !text.contains("/lookml"),
            "{discarded}: {text}"
        );
    }
    // The former search remains when another one is discarded.
    let text = shown("gg/lookml<enter>n/dbt<esc>");
    assert!(text.contains("/lookml 2/2"), "{text}");
    let text = shown("j<tab>gg/wiki<enter>j/policy<esc>");
    assert!(text.contains("/wiki 2/2"), "{text}");
}

#[test]
fn search_counts_matches_of_the_pane() {
    let text = record("gg/lookml<enter>nN").text();
    assert!(text.contains("/lookml 1/2"), "{text}");
    // The pattern is shown only in the pane that was searched, but can be repeated elsewhere.
    let text = record("gg/lookml<enter><tab>").text();
    assert!(!text.contains("/lookml"), "{text}");
    assert!(
        record("gg/lookml<enter>L").text().contains("log")
            && !record("gg/lookml<enter>L").text().contains("/look")
    );
    let text = record("gg/lookml<enter><tab><s-tab>").text();
    assert!(text.contains("/lookml 1/2"), "{text}");
    let document = record("<enter>6<enter>/verdict<enter>").text();
    assert!(document.contains("/verdict 1/1"), "{document}");
    let rows = record("j<tab>gg/wiki<enter>").text();
    assert!(rows.contains("/wiki 1/"), "{rows}");
}

#[test]
fn matches_are_highlighted_in_visible_rows() {
    let script = record("gg<tab>gg/policy<enter>");
    let style = options().theme.style(StyleRole::Match);
    assert_eq!(
        script.style_of("policy.md").fg,
        style.fg,
        "{}",
        script.text()
    );
    // The match is in the part of the entry that the row does not show.
    let script = record("gg<tab>gg/session_id<enter>");
    assert!(
        script
            .text()
            .lines()
            .any(|line| line.starts_with('/') && line.contains("attempt 1 started")),
        "{}",
        script.text()
    );
}

#[test]
fn units_are_filtered_while_conditions_are_typed() {
    let prompt = "only units with: ▏ name, cost>0.50, duration>5m, cause:…, file:…, state:…";
    assert!(record("F").text().contains(prompt));
    let text = record("Fcause:<space>title<space>state:failed").text();
    assert!(text.contains("notion-revenue-policy"), "{text}");
    assert!(!text.contains("lookml-orphans"), "{text}");
    let text = record("Ffile:nowhere").text();
    assert!(
        text.contains("no unit fulfils \"file:nowhere\"; Esc shows all"),
        "{text}"
    );
    assert!(
        record("Ffile:nowhere<esc>")
            .text()
            .contains("lookml-orphans")
    );
}

#[test]
fn invalid_condition_keeps_the_typed_line_open() {
    let typed = record("Fstate:failed<space>luck:7");
    assert!(typed.text().contains("`luck:7` is not a condition"));
    assert!(!typed.text().contains("lookml-orphans"), "the others apply");
    let accepted = record("Fstate:failed<space>luck:7<enter>").text();
    assert!(
        accepted.contains("only units with: state:failed luck:7▏"),
        "{accepted}"
    );
    assert!(accepted.contains("expected cost>0.50"), "{accepted}");
    let corrected = "Fstate:failed<space>luck:7<enter><backspace><backspace><backspace><backspace><backspace><backspace><enter>";
    let corrected = record(corrected).text();
    assert!(!corrected.contains("only units with"), "{corrected}");
}

#[test]
fn help_begins_with_the_keys_of_the_view() {
    let help = |keys: &str| record(keys).text();
    assert!(help("?").contains("Keys of the units"), "{}", help("?"));
    assert!(help("<tab>?").contains("Keys of the actions"));
    let text = help("i?");
    assert!(
        text.contains("Keys of the inspector")
            && text.contains("from a call to its result and back"),
        "{text}"
    );
    assert!(
        help("L?").contains("Keys of the log") && help("v?").contains("Keys of the live panes")
    );
}

#[test]
fn failure_key_jumps_to_failures() {
    assert!(record("gg]").text().contains("2/4"));
    assert!(
        record("j<tab>gg]<enter>").text().contains(" 6/9 "),
        "{}",
        record("j<tab>gg]<enter>").text()
    );
    assert!(
        record("kk<enter>6gg]").text().contains(" 6/8 "),
        "{}",
        record("kk<enter>6gg]").text()
    );
    assert!(record("jj<tab>]").text().contains("no failure here"));
}

#[test]
fn filter_is_always_visible_and_esc_clears_it() {
    let script = record("f");
    assert!(
        script.text().contains("units needs you only "),
        "{}",
        script.text()
    );
    assert!(!script.text().contains("lookml-orphans"));
    assert!(
        record("fff")
            .text()
            .contains("no unit under `running`; Esc shows all")
    );
    assert!(record("f<esc>").text().contains("lookml-orphans"));
}

#[test]
fn time_steps_forward_and_back() {
    let entries = tape::running().entries();
    let at = |keys: &str| {
        let text = record(keys).text();
        let bar = text.lines().rev().nth(1).unwrap().to_owned();
        bar.split_whitespace()
            .find_map(|word| word.split_once('/')?.0.parse::<u64>().ok())
            .unwrap_or_else(|| panic!("{bar}"))
    };
    assert_eq!(at(""), entries);
    assert_eq!(at(","), entries - 1);
    assert_eq!(at(",,."), entries - 1);
    assert_eq!(at("0"), 0);
    assert_eq!(at("0."), 1);
    assert_eq!(at("0,"), 0);
    assert_eq!(at("0$"), entries);
    assert!(record("0").text().contains("PAUSED"));
    // The unit's second turn begins with its second call.
    assert_eq!(at("0....}"), 6);
}

#[test]
fn past_position_shows_state_of_that_time() {
    let script = record("0....");
    assert!(script.text().contains("▶ 1 running"), "{}", script.text());
    assert!(script.text().contains("○ 3 queued"));
    assert!(
        script.text().contains("▸ read_raw_file policy.md"),
        "{}",
        script.text()
    );
}

#[test]
fn turn_keys_move_in_both_directions() {
    let turns = |keys: &str| {
        let text = record(keys).text();
        let row = text
            .lines()
            .find(|line| line.contains("notion-revenue-policy"))
            .unwrap()
            .to_owned();
        row.contains("▶") as u8
            + 2 * u8::from(text.contains("1/40 turns"))
            + 4 * u8::from(text.contains("2/40 turns"))
    };
    assert_eq!(turns("0}"), 1 + 2);
    assert_eq!(turns("0}}"), 1 + 4);
    assert_eq!(turns("0}}{"), 1 + 2);
    assert_eq!(turns("0}}.{"), 1 + 4);
}

#[test]
fn record_plays_at_its_recorded_times() {
    let mut slow = options();
    slow.speed = Some(1.0);
    slow.exit_when = Some(ExitCondition::End);
    let started = std::time::Instant::now();
    let mut script = ScriptedHost::new("", SIZE);
    // No key is pressed before the end.
    script = script.input(HostInput::Ignored);
    let (script, exit) = play(tape::running().timeline(), None, slow.clone(), script);
    // The script closes the screen much earlier: 13 s of the run have not passed.
    assert_eq!(exit.reason, ExitReason::Closed);
    assert!(script.text().contains("▶ ×1"), "{}", script.text());
    assert!(exit.timeline.view().state.entries < 5);
    let (script, exit) = play(
        tape::running().timeline(),
        None,
        slow,
        ScriptedHost::new("", SIZE).until_exit(),
    );
    assert_eq!(exit.reason, ExitReason::ConditionMet);
    assert_eq!(
        exit.timeline.view().state.entries,
        tape::running().entries()
    );
    assert!(script.frames > 10, "{} frames", script.frames);
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn unchanged_screen_draws_no_frame() {
    let (script, _) = play(
        tape::running().timeline(),
        None,
        options(),
        ScriptedHost::new("", SIZE).keep_open_for(Duration::from_secs(600)),
    );
    assert!(script.frames <= 2, "{} frames", script.frames);
    // A live run causes one tick per second, and no more.
    let growing = tape::running().growing();
    let (commands, _orders) = mpsc::channel(8);
    let (_grows, changed) = watch::channel(0);
    let script = ScriptedHost::new("", SIZE)
        .after(Duration::from_secs(20))
        .keep_open_for(Duration::from_secs(60));
    let (script, _) = play(
        growing.timeline,
        Some(live_handle(commands, changed)),
        options(),
        script,
    );
    assert!(
        (58..=64).contains(&script.frames),
        "{} frames",
        script.frames
    );
}

#[test]
fn clock_waits_for_the_frames_of_entries() {
    let before = hold::running();
    let frames = |ms| {
        let growing = before.growing();
        let (commands, _orders) = mpsc::channel(8);
        let (grows, changed) = watch::channel(0);
        // The tape grows after 50 ms.
        let more = growing.more(&before, &hold::held());
        let script = ScriptedHost::new("", SIZE)
            .after(Duration::from_secs(20))
            .grows(more, grows);
        let script = script.keep_open_for(Duration::from_millis(ms));
        play(
            growing.timeline,
            Some(live_handle(commands, changed)),
            options(),
            script,
        )
        .0
        .frames
    };
    // The first second is shown 300 ms late, because another entry could have shown it; the next ones are not.
    assert_eq!(
        [200, 1_200, 1_400, 1_900, 2_100].map(frames),
        [2, 2, 3, 3, 4]
    );
}

#[test]
fn measurement_run_exits_when_done() {
    for until in [
        ExitCondition::FirstFrame,
        ExitCondition::Indexed,
        ExitCondition::End,
    ] {
        let mut options = options();
        options.exit_when = Some(until);
        let (script, exit) = play(
            tape::running().timeline(),
            None,
            options,
            ScriptedHost::new("", SIZE).until_exit(),
        );
        assert_eq!(exit.reason, ExitReason::ConditionMet, "{until:?}");
        assert!(script.text().contains("notion-revenue-policy"));
    }
}

#[test]
fn end_of_a_recording_is_shown_immediately() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let text = "x".repeat(1000);
    for _ in 0..2_000 {
        writeln!(
            file,
            r#"{{"type":"assistant","session_id":"s","message":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#
        )
        .unwrap();
    }
    for (until, speed) in [
        (ExitCondition::Indexed, None),
        (ExitCondition::End, None),
        (ExitCondition::End, Some(f64::INFINITY)),
    ] {
        let mut options = options();
        (options.exit_when, options.speed) = (Some(until), speed);
        let timeline = Timeline::new(Box::new(FileSource::open(file.path()).unwrap()));
        let (script, exit) = play(
            timeline,
            None,
            options,
            ScriptedHost::new("", SIZE).until_exit(),
        );
        assert_eq!(exit.reason, ExitReason::ConditionMet, "{until:?} {speed:?}");
        // The frame limit would delay the last frame by 33 ms.
        assert!(
            script.frames > 1 && script.painted_at < Duration::from_millis(33),
            "{until:?} {:?}",
            script.painted_at
        );
    }
    // The same applies to what an active run has recorded when a screen attaches to it.
    let mut options = options();
    options.exit_when = Some(ExitCondition::End);
    let (source, _finish) = FileSource::follow(file.path()).unwrap();
    let (commands, _orders) = mpsc::channel(8);
    let (_grows, changed) = watch::channel(0);
    let (timeline, live) = (
        Timeline::new(Box::new(source)),
        live_handle(commands, changed),
    );
    let (script, exit) = play(
        timeline,
        Some(live),
        options,
        ScriptedHost::new("", SIZE).until_exit(),
    );
    assert_eq!(exit.reason, ExitReason::ConditionMet);
    assert!(
        script.frames > 1 && script.painted_at < Duration::from_millis(33),
        "{:?}",
        script.painted_at
    );
}

#[test]
fn playback_obeys_the_frame_limit() {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["a"]).start("a", 1);
    for _ in 0..3_000 {
        tape.wait(1).delta("a", 1, "word ");
    }
    let mut options = options();
    (options.exit_when, options.speed) = (Some(ExitCondition::End), Some(1.0));
    let (script, exit) = play(
        tape.timeline(),
        None,
        options,
        ScriptedHost::new("", SIZE).until_exit(),
    );
    assert_eq!(exit.reason, ExitReason::ConditionMet);
    // 30 frames per second, and a few for other reasons.
    assert!(
        (60..=120).contains(&script.frames),
        "{} frames",
        script.frames
    );
}

#[test]
fn copied_text_is_the_recorded_bytes() {
    let script = record("<tab>gg<down><down>y");
    let lines: Vec<_> = script.copied[0].lines().collect();
    assert_eq!(lines.len(), 2, "{:?}", script.copied);
    assert!(lines[0].starts_with("{\"type\":\"assistant\"") && lines[1].contains("tool_result"));
    assert!(
        script.text().contains("copied call and result, "),
        "{}",
        script.text()
    );
    assert_eq!(record("ggY").copied, ["notion-revenue-policy"]);
    assert_eq!(
        record("gg<enter>6Y").copied,
        ["claude --resume 5e55-notion-revenue-policy-1"]
    );
}

#[test]
fn log_entry_opens_its_unit() {
    let mut tape = tape::running();
    tape.message(Some("dbt-all"), Severity::Warning, "slow");
    let (script, _) = play(
        tape.timeline(),
        None,
        options(),
        ScriptedHost::new("LG<enter>", SIZE),
    );
    assert!(
        script.text().contains("◌ dbt-all interrupted"),
        "{}",
        script.text()
    );
}

#[test]
fn mouse_selects_and_scrolls_the_view_under_it() {
    let growing = tape::running().growing();
    let (commands, _orders) = mpsc::channel(8);
    let (_grows, changed) = watch::channel(0);
    let script = ScriptedHost::new("", SIZE)
        .input(HostInput::Click(5, 7))
        .input(HostInput::Wheel(90, 20, false));
    let (script, _) = play(
        growing.timeline,
        Some(live_handle(commands, changed)),
        options(),
        script,
    );
    assert!(
        script.text().contains("✓ lookml-orphans succeeded"),
        "{}",
        script.text()
    );
}

#[test]
fn suspend_restores_the_terminal() {
    let script = record("<c-z>j");
    assert_eq!(script.suspended, 1);
    assert!(script.text().contains("┌ units"));
}

#[test]
fn title_shows_run_state() {
    assert_eq!(record("").titles, ["ingestdeck orbit: 3/4 done, 2 failed"]);
}

#[test]
fn shrinking_or_broken_tape_is_reported_without_panic() {
    let mut tape = tape::running();
    tape.entry(None, ingestdeck_core::tape::EntryBody::Stdout(b"{\"torn\""));
    tape.stdout_line("dbt-all", 1, &json!({"type": "from_the_future"}));
    let (script, _) = play(
        tape.timeline(),
        None,
        options(),
        ScriptedHost::new("", SIZE),
    );
    assert!(script.text().contains("lines: "), "{}", script.text());
}

/// Each key of the table with the same probability, and some without a binding or for typed text.
fn any_keys() -> impl Strategy<Value = Vec<KeyPress>> {
    let keymap = Keymap::new(&KeyOverrides::new()).unwrap();
    let chords = ALL
        .iter()
        .flat_map(|spec| keymap.chords(spec.action).map(<[KeyPress]>::to_vec));
    let chords: Vec<Vec<KeyPress>> = chords.collect();
    let other = prop_oneof![
        any::<char>().prop_map(|char| KeyPress::plain(KeyCode::Char(char))),
        prop::sample::select(vec!["漢", "<c-x>", "<a-q>", "<f24>", "<del>", "<s-up>"])
            .prop_map(|name| key::parse(name).unwrap()[0]),
    ];
    let chord =
        prop_oneof![6 => prop::sample::select(chords), 1 => other.prop_map(|key| vec![key])];
    prop::collection::vec(chord, 0..40).prop_map(|chords| chords.concat())
}

fn pressed(keys: Vec<KeyPress>, size: (u16, u16)) -> ScriptedHost {
    keys.into_iter()
        .fold(ScriptedHost::new("", size), |script, key| {
            script.input(HostInput::Key(key))
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_keys_at_any_size_do_not_panic(
        keys in any_keys(),
        width in 0..140_u16,
        height in 0..50_u16,
        clicks in prop::collection::vec((0..140_u16, 0..50_u16, any::<bool>()), 0..4),
        live in any::<bool>(),
        held in any::<bool>(),
        speed in prop_oneof![Just(None), Just(Some(64.0))],
    ) {
        let tape = if held { hold::held() } else { tape::running() };
        let mut script = pressed(keys, (width, height));
        for (x, y, down) in clicks {
            script = script.input(HostInput::Click(x, y)).input(HostInput::Wheel(x, y, down)).input(HostInput::Resize(y, x));
        }
        let mut options = options();
        options.speed = speed;
        let exit = if live {
            let growing = tape.growing();
            let (commands, _orders) = mpsc::channel(1);
            let (_grows, changed) = watch::channel(0);
            play(growing.timeline, Some(live_handle(commands, changed)), options, script).1
        } else {
            play(tape.timeline(), None, options, script).1
        };
        prop_assert!(exit.timeline.view().state.entries <= tape.entries());
        prop_assert!(exit.timeline.known_entries() <= tape.entries());
    }

    /// Any keys on any record: no panic, and the record is unchanged.
    #[test]
    fn random_keys_do_not_change_a_record(
        keys in any_keys(),
        record in prop::sample::select(vec![
            "tapes/demo.jsonl",
            "tapes/real.jsonl",
            "captures/success_tools.jsonl",
            "captures/subagent_foreground.jsonl",
            "captures/ondisk_session.jsonl",
            "captures/partial_messages.jsonl",
        ]),
        size in prop::sample::select(vec![(40, 12), (80, 24), (120, 36)]),
    ) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(record);
        let before = std::fs::read(&path).unwrap();
        let timeline = Timeline::new(Box::new(FileSource::open(&path).unwrap()));
        let (_, exit) = play(timeline, None, options(), pressed(keys, size));
        let state = &exit.timeline.view().state;
        prop_assert!(state.entries as usize <= memchr::memchr_iter(b'\n', &before).count() + 1);
        prop_assert!(std::fs::read(&path).unwrap() == before);
    }
}

#[test]
fn text_is_found_in_the_whole_run() {
    let found = |keys: &str| record(keys).text();
    let text = found(":find<space>schema.yml<enter>");
    assert!(
        text.contains("find schema.yml 1 action in 1 attempt"),
        "{text}"
    );
    assert!(text.contains("dbt-all") && text.contains("1/1"), "{text}");
    let text = found(":find<space>front<space>matter<enter>");
    assert!(
        text.contains("find front matter 1 action in 1 attempt"),
        "{text}"
    );
    // Opens the first match, and `n` continues in this attempt.
    let opened = found(":find<space>arr<enter>j<enter>");
    assert!(
        opened.contains("dbt-all interrupted inspector") && opened.contains("/arr "),
        "{opened}"
    );
    assert!(found(":find<space>arr<enter><enter><esc>").contains("find arr"));
    assert!(found(":find<space>nowhere<enter>").contains("no action of any unit contains it"));
    let past = found("0:find<space>arr<enter>");
    assert!(
        past.contains("no action of any unit contains it") && past.contains("up to this moment"),
        "{past}"
    );
    assert!(found(":find<enter>").contains("`find` needs an argument: a text"));
    assert_eq!(record(":find<space>schema.yml<enter>Y").copied, ["dbt-all"]);
}

#[test]
fn commands_are_listed_with_descriptions() {
    let text = record(":").text();
    assert!(
        text.contains("commands") && text.contains("where a text occurs in the whole run"),
        "{text}"
    );
    assert!(text.contains(" more "), "{text}");
    let text = record(":un").text();
    assert!(
        text.contains("until  play or run until a condition is met")
            && !text.contains("where a text"),
        "{text}"
    );
    assert!(
        record(":until<space>")
            .text()
            .contains("a call names a path")
    );
    assert!(!record(":xyz").text().contains("Tab completes"));
}

#[test]
fn help_explains_signs_and_columns() {
    let text = ["??G<c-u>", "??G"].map(|keys| record(keys).text()).concat();
    assert!(
        text.contains("a call waits for your decision")
            && text.contains("tool call that was denied"),
        "{text}"
    );
    assert!(text.contains("time since the last output"), "{text}");
}
