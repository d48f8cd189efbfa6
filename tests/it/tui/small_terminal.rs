//! A terminal with too little room: what the notice names works, and no other key changes anything.

use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::{
    hold, review,
    scripted_host::{ScriptedHost, live_handle, options, play},
    tape::{self, TapeFixture},
};
use ingestdeck_core::control::{DisconnectAction, RunCommand};
use ingestdeck_tui::{ExitReason, host::HostInput};

const SMALL: (u16, u16) = (24, 8);

/// The screen of a live run, the commands that it sent, and how it ended.
fn live(
    tape: &TapeFixture,
    script: ScriptedHost,
    leave_action: Option<DisconnectAction>,
) -> (ScriptedHost, Vec<RunCommand>, ExitReason) {
    let growing = tape.growing();
    let (commands, mut orders) = mpsc::channel(200);
    let (_grows, changed) = watch::channel(0);
    let mut handle = live_handle(commands, changed);
    handle.engine.as_mut().unwrap().leave_action = leave_action;
    let (script, exit) = play(
        growing.timeline,
        Some(handle),
        options(),
        script.after(Duration::from_secs(20)),
    );
    (
        script,
        std::iter::from_fn(|| orders.try_recv().ok()).collect(),
        exit.reason,
    )
}

/// The notice without its line breaks.
fn notice(host: &ScriptedHost) -> String {
    host.text().split_whitespace().collect::<Vec<_>>().join(" ")
}

const DETACHABLE: Option<DisconnectAction> = Some(DisconnectAction::Continue);

#[test]
fn unseen_keys_change_nothing() {
    for tape in [
        tape::running(),
        hold::held(),
        review::waiting(review::three_files()),
    ] {
        for size in [SMALL, (39, 12), (200, 4), (10, 3)] {
            for keys in [
                "Y",
                "y",
                "x<enter>",
                "R",
                "Ry",
                "xy",
                "r",
                "<space>",
                "d",
                "s",
                "p",
                "+",
                "S",
                "gy",
                "msay<enter>",
            ] {
                let (host, sent, exit) = live(&tape, ScriptedHost::new(keys, size), DETACHABLE);
                assert_eq!(sent, [], "{keys} at {size:?}");
                assert_eq!(exit, ExitReason::Closed, "{keys} at {size:?}");
                assert!(notice(&host).contains("q leaves"), "{}", host.text());
            }
        }
    }
}

#[test]
fn low_terminal_shows_what_it_cannot_decide() {
    for (tape, keys) in [
        (hold::held(), ["s", "d", "e", "<space>"].as_slice()),
        (
            review::waiting(review::three_files()),
            &["y", "X", "Y", "g", "m"],
        ),
    ] {
        for size in [(40, 10), (40, 5), (120, 11)] {
            for key in keys {
                let (host, sent, _) = live(&tape, ScriptedHost::new(key, size), DETACHABLE);
                assert!(
                    sent.is_empty() && !host.text().contains("too small"),
                    "{key} at {size:?}: {sent:?}\n{}",
                    host.text()
                );
            }
        }
    }
    let (host, ..) = live(&hold::held(), ScriptedHost::new("s", (120, 11)), DETACHABLE);
    assert!(
        notice(&host).contains("12 rows are needed, the terminal has 11"),
        "{}",
        host.text()
    );
}

#[test]
fn low_terminal_shows_a_question_that_fits() {
    for size in [(80, 10), (120, 11)] {
        let (host, ..) = live(&tape::running(), ScriptedHost::new("q", size), DETACHABLE);
        let text = host.text();
        assert!(!text.contains("too small"), "{text}");
        for answer in [
            "leave; the run continues",
            "stop all and quit",
            "Esc",
            "stay",
        ] {
            assert!(text.contains(answer), "{answer}: {text}");
        }
    }
    let (host, ..) = live(
        &tape::running(),
        ScriptedHost::new("q", (40, 6)),
        DETACHABLE,
    );
    assert!(notice(&host).contains("too small"), "{}", host.text());
}

#[test]
fn notice_of_a_small_terminal_leads_out() {
    let run = |keys: &str, leave| live(&tape::running(), ScriptedHost::new(keys, SMALL), leave);
    let (host, ..) = run("", DETACHABLE);
    insta::assert_snapshot!("small_live_24x8", host.text());
    let (_, sent, exit) = run("q", DETACHABLE);
    assert_eq!((sent, exit), (vec![], ExitReason::Detached));
    // A run that ends with its screen is stopped by Ctrl-C only, step by step.
    let (host, sent, exit) = run("q", None);
    assert_eq!((sent, exit), (vec![], ExitReason::Closed));
    insta::assert_snapshot!("small_own_24x8", host.text());
    let (host, sent, _) = run("<c-c>", None);
    assert_eq!(sent, [RunCommand::Drain]);
    assert!(notice(&host).contains("stops all"), "{}", host.text());
    // A run without work, and a record, are left.
    let mut over = tape::running();
    over.end("dbt-all", 1, 0).run_ended(2, 1);
    let (_, sent, exit) = live(&over, ScriptedHost::new("q", SMALL), DETACHABLE);
    assert_eq!((sent, exit), (vec![], ExitReason::Quit));
    let exit = play(
        tape::running().timeline(),
        None,
        options(),
        ScriptedHost::new("q", SMALL),
    )
    .1;
    assert_eq!(exit.reason, ExitReason::Quit);
    let waiting = review::waiting(review::three_files());
    let (_, sent, exit) = live(&waiting, ScriptedHost::new("q", SMALL), DETACHABLE);
    assert_eq!((sent, exit), (vec![], ExitReason::Detached));
}

#[test]
fn typed_text_survives_a_small_terminal() {
    let wide = (120, 36);
    let typing = || ScriptedHost::new("mplease", wide).resize(SMALL);
    let script = typing()
        .keys("q<enter>x")
        .input(HostInput::Paste("more".into()))
        .resize(wide);
    let (host, sent, exit) = live(&hold::running(), script, DETACHABLE);
    assert_eq!((sent, exit), (vec![], ExitReason::Closed));
    assert!(
        host.text().contains("message to the agent: please▏"),
        "{}",
        host.text()
    );
    let (_, sent, _) = live(
        &hold::running(),
        typing().keys("q").resize(wide).keys("<space>go<enter>"),
        DETACHABLE,
    );
    assert_eq!(
        sent,
        [RunCommand::Say {
            unit: "dbt-all".into(),
            text: "please go".into()
        }]
    );
    // The notice names the key that discards it; then the screen can be left.
    let (host, ..) = live(&hold::running(), typing(), DETACHABLE);
    assert!(
        notice(&host).contains("Esc discards the text"),
        "{}",
        host.text()
    );
    assert_eq!(
        live(&hold::running(), typing().keys("<esc>q"), DETACHABLE).2,
        ExitReason::Detached
    );
    // An open question is still open afterwards, and q leaves without an answer.
    let asking = || ScriptedHost::new("x", wide).resize(SMALL).keys("y");
    let (host, sent, _) = live(&hold::running(), asking().resize(wide), DETACHABLE);
    assert!(
        sent.is_empty() && host.text().contains("Stop dbt-all?"),
        "{}",
        host.text()
    );
    assert_eq!(
        live(&hold::running(), asking().keys("q"), DETACHABLE).2,
        ExitReason::Detached
    );
}

#[test]
fn few_rows_show_the_header_and_the_table() {
    let live_at = |size, keys: &str| {
        let (host, ..) = live(&hold::running(), ScriptedHost::new(keys, size), DETACHABLE);
        host.text()
    };
    for size in [(40, 5), (80, 8), (120, 11)] {
        let (width, height) = size;
        insta::assert_snapshot!(format!("few_rows_{width}x{height}"), live_at(size, ""));
    }
    let question = live_at((80, 8), "x");
    assert!(question.contains("least 40×12"), "{question}");
    assert!(!live_at((80, 8), "x<esc>").contains("least"));
}
