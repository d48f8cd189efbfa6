//! A run that ends because its tape cannot be written. The tape has no record of the failure, so the screen must show
//! it.

use std::time::Duration;

use ingestdeck_core::tape::note::Severity;
use ingestdeck_tui::{LiveHandle, host::HostInput};
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    screens::SIZES,
    scripted_host::{ScriptedHost, live_handle, options, play},
    tape::{self, TapeFixture},
};

const WHY: &str = "No space left on device (os error 28): cannot write /p/.ktx/ingestdeck/runs/7f3a/tape.jsonl; what ran was ended. Free some space or mend the permissions, then run what is left again";

fn broken(keys: &str, size: (u16, u16), wait: u64) -> (ScriptedHost, bool) {
    play_broken(&tape::running(), ScriptedHost::new(keys, size), wait)
}

fn play_broken(tape: &TapeFixture, script: ScriptedHost, wait: u64) -> (ScriptedHost, bool) {
    let growing = tape.growing();
    growing.finish.finish();
    let (commands, mut orders) = mpsc::channel(8);
    let (_grows, changed) = watch::channel(0);
    let (tell, broken) = oneshot::channel();
    tell.send(WHY.to_owned()).unwrap();
    let live = LiveHandle {
        failed: Some(broken),
        ..live_handle(commands, changed)
    };
    let script = script
        .after(Duration::from_secs(20))
        .keep_open_for(Duration::from_secs(wait));
    let (script, _) = play(growing.timeline, Some(live), options(), script);
    (script, orders.try_recv().is_ok())
}

#[test]
fn broken_run_shows_cause_and_remedy() {
    for size in SIZES {
        insta::assert_snapshot!(
            format!("broken_{}x{}", size.0, size.1),
            broken("", size, 8).0.text()
        );
        insta::assert_snapshot!(
            format!("broken_log_{}x{}", size.0, size.1),
            broken("L", size, 8).0.text()
        );
    }
}

#[test]
fn broken_run_ignores_commands_and_quits_without_asking() {
    let (script, ordered) = broken("ggr+", (120, 36), 1);
    assert!(
        !ordered && script.text().contains("this is a recorded run"),
        "{}",
        script.text()
    );
    let (script, ordered) = broken("q", (120, 36), 1);
    assert!(
        !ordered && !script.text().contains("stop all and quit"),
        "{}",
        script.text()
    );
}

#[test]
fn messages_below_the_reason_are_clickable() {
    let mut tape = tape::running();
    for remark in ["one", "two", "three"] {
        tape.message(None, Severity::Info, remark);
    }
    let (script, _) = play_broken(&tape, ScriptedHost::new("L", (80, 24)), 8);
    let row = script
        .text()
        .lines()
        .position(|line| line.trim_end().ends_with("two │") || line.contains(" two "))
        .unwrap();
    assert!(row > 5, "the reason takes several rows:\n{}", script.text());
    let script = ScriptedHost::new("L", (80, 24))
        .input(HostInput::Click(10, u16::try_from(row).unwrap()))
        .keys("y");
    assert_eq!(play_broken(&tape, script, 1).0.copied, ["two"]);
}
