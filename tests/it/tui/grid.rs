//! Panes of several units: which units are shown, keys, the mouse, and moments of a record.

use std::time::Duration;

use ingestdeck_core::control::{RunCommand, UserDecision};
use ingestdeck_tui::host::HostInput;
use serde_json::json;
use tokio::sync::{mpsc, watch};

use super::{
    hold,
    screens::SIZES,
    scripted_host::{ScriptedHost, live_handle, options, play},
    tape::{self, TapeFixture},
};

const SIZE: (u16, u16) = (120, 36);

/// Seven units: one failed, one done, three running, two queued.
fn several() -> TapeFixture {
    let mut tape = TapeFixture::new("orbit", false);
    let units: Vec<String> = (0..7).map(|unit| format!("page-{unit}")).collect();
    tape.plan(&units);
    for unit in &units[..3] {
        tape.start(unit, 1).wait(100);
    }
    tape.call("page-1", 1, "t", "wiki_write", &json!({"key": "arr"}))
        .wait(40);
    tape.result("page-1", 1, "t", "page \"arr\" has no title", true)
        .wait(10)
        .end("page-1", 1, 1);
    tape.start("page-3", 1)
        .wait(200)
        .end("page-0", 1, 0)
        .start("page-4", 1)
        .wait(300);
    for number in 0..40 {
        tape.say("page-2", 1, &format!("sentence {number}"))
            .wait(20);
    }
    tape.call(
        "page-3",
        1,
        "u",
        "read_raw_file",
        &json!({"path": "models/\u{202e}schema.yml"}),
    )
    .wait(900);
    tape.delta("page-4", 1, "The glossary has 漢字 in it, ");
    tape
}

fn live(tape: &TapeFixture, script: ScriptedHost) -> (ScriptedHost, Vec<RunCommand>) {
    let growing = tape.growing();
    let (commands, mut orders) = mpsc::channel(8);
    let (_grows, changed) = watch::channel(0);
    let script = script.after(Duration::from_secs(4));
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

fn shown(keys: &str) -> String {
    live(&several(), ScriptedHost::new(keys, SIZE)).0.text()
}

/// Unit keys of the panes in their order.
fn panes(text: &str) -> Vec<String> {
    let titles = text.lines().flat_map(|line| line.split('┌').skip(1));
    titles
        .filter_map(|title| title.split_whitespace().nth(2).map(str::to_owned))
        .collect()
}

#[test]
fn grid_renders_at_every_size() {
    for (width, height) in SIZES {
        let script = live(&several(), ScriptedHost::new("v", (width, height))).0;
        insta::assert_snapshot!(format!("grid_{width}x{height}"), script.text());
        let script = live(&several(), ScriptedHost::new("v3z", (width, height))).0;
        insta::assert_snapshot!(format!("grid_zoom_{width}x{height}"), script.text());
        let script = live(
            &TapeFixture::new("orbit", false),
            ScriptedHost::new("v", (width, height)),
        )
        .0;
        assert!(script.text().contains("no unit yet"), "{}", script.text());
    }
}

#[test]
fn running_panes_come_first_and_failures_keep_their_place() {
    // Four panes: three units run, one failed.
    let text = live(&several(), ScriptedHost::new("v", (80, 24))).0.text();
    let mut units = panes(&text);
    units.sort_unstable();
    assert_eq!(units, ["page-1", "page-2", "page-3", "page-4"], "{text}");
    assert!(text.contains(" new ┐"), "{text}");
    let text = shown("v");
    assert_eq!(panes(&text).len(), 7, "{text}");
}

#[test]
fn focus_keys_select_the_pane_that_commands_apply_to() {
    let copied = |keys: &str| {
        live(&several(), ScriptedHost::new(&format!("v{keys}Y"), SIZE))
            .0
            .copied
    };
    let order = panes(&shown("v"));
    assert_eq!(copied(""), ["page-2"], "the selected unit");
    assert_eq!(copied("1"), [order[0].clone()]);
    assert_eq!(copied("4"), [order[3].clone()]);
    assert_eq!(copied("19"), [order[0].clone()], "there is no ninth pane");
    assert_eq!(copied("1<tab><tab>"), [order[2].clone()]);
    assert_eq!(copied("1<s-tab>"), [order[6].clone()]);
    assert_eq!(copied("1<right>"), [order[1].clone()]);
    assert_eq!(copied("]"), ["page-1"]);
    let orders = |keys: &str| live(&several(), ScriptedHost::new(keys, SIZE)).1;
    assert_eq!(
        orders("v]ry"),
        [RunCommand::Retry {
            unit: "page-1".into(),
            amendment: None
        }]
    );
    let running = order.iter().position(|unit| unit == "page-3").unwrap() + 1;
    assert_eq!(
        orders(&format!("v{running}xy")),
        [RunCommand::Stop {
            unit: "page-3".into()
        }]
    );
}

#[test]
fn esc_returns_to_the_deck_at_the_opened_unit() {
    assert!(
        shown("v]<enter>").contains("page-1"),
        "{}",
        shown("v]<enter>")
    );
    assert!(panes(&shown("v]<enter><esc>")).len() == 7);
    assert!(
        shown("v]z<esc>").contains(" page-3 "),
        "the first Esc leaves the zoom"
    );
    assert!(shown("v]<esc>").contains("┌ units"));
    assert_eq!(
        live(&several(), ScriptedHost::new("v]<esc>Y", SIZE))
            .0
            .copied,
        ["page-1"]
    );
    assert!(shown("vv").contains("┌ units"));
    // A failure that was shown in a pane is no longer marked as new.
    assert!(shown("v").contains(" new ┐"));
    assert!(!shown("v]").contains(" new ┐"), "{}", shown("v]"));
}

#[test]
fn panes_scroll_and_follow_again() {
    let order = panes(&shown("v"));
    let talker = order.iter().position(|unit| unit == "page-2").unwrap() + 1;
    assert!(shown(&format!("v{talker}")).contains("sentence 39"));
    let up = shown(&format!("v{talker}<pageup><pageup>"));
    assert!(
        up.contains(" SCROLLED ") && !up.contains("sentence 39"),
        "{up}"
    );
    let top = shown(&format!("v{talker}gg"));
    assert!(
        top.contains("sentence 0") && top.contains(" SCROLLED "),
        "{top}"
    );
    let end = shown(&format!("v{talker}ggG"));
    assert!(
        end.contains("sentence 39") && !end.contains(" SCROLLED "),
        "{end}"
    );
}

#[test]
fn mouse_focuses_and_scrolls_the_pane_under_it() {
    let order = panes(&shown("v"));
    let script = ScriptedHost::new("v", SIZE)
        .input(HostInput::Click(118, 4))
        .keys("Y");
    let copied = live(&several(), script).0.copied;
    assert!(
        order.contains(&copied[0]) && copied[0] != order[0],
        "{copied:?}"
    );
    let alone = ScriptedHost::new("v1", (80, 24))
        .keys("z")
        .input(HostInput::Wheel(5, 9, false));
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["a", "b"]).start("a", 1);
    for number in 0..80 {
        tape.say("a", 1, &format!("sentence {number}"));
    }
    let text = live(&tape, alone).0.text();
    assert!(
        text.contains("SCROLLED") && !text.contains("sentence 79"),
        "{text}"
    );
}

#[test]
fn panes_keep_their_order_and_show_any_moment() {
    let at = |keys: &str| {
        play(
            several().timeline(),
            None,
            options(),
            ScriptedHost::new(keys, SIZE),
        )
        .0
        .text()
    };
    let end = panes(&at("v"));
    // Going from the end to the beginning and back moves no pane.
    assert!(at("v0").contains("no unit yet"));
    assert_eq!(panes(&at("v0.")), end);
    assert_eq!(panes(&at("v0$")), end);
    // The same from the beginning, whichever unit ran first.
    assert_eq!(panes(&at("0.v$")), end);
    let begun = at("v0........");
    assert!(
        begun.contains("▶") && !begun.contains("sentence"),
        "{begun}"
    );
}

#[test]
fn pending_approval_is_decided_in_its_pane() {
    let growing = hold::held().growing();
    let (commands, mut orders) = mpsc::channel(8);
    let (_grows, changed) = watch::channel(0);
    let script = ScriptedHost::new("vs", SIZE).after(Duration::from_secs(4));
    let (script, _) = play(
        growing.timeline,
        Some(live_handle(commands, changed)),
        options(),
        script,
    );
    assert!(
        script.text().contains("wiki_write waits for you"),
        "{}",
        script.text()
    );
    assert!(matches!(
        orders.try_recv(),
        Ok(RunCommand::Decide {
            decision: UserDecision::Allow,
            ..
        })
    ));
}

#[test]
fn table_filter_hides_no_pane() {
    let text = play(
        tape::running().timeline(),
        None,
        options(),
        ScriptedHost::new("ffffv", SIZE),
    )
    .0
    .text();
    assert_eq!(panes(&text).len(), 4, "{text}");
}

#[test]
fn selected_unit_has_the_focus_among_the_panes() {
    for size in [(80, 24), (120, 36), (250, 70)] {
        for down in 0..7 {
            let keys = "gg".to_owned() + &"j".repeat(down);
            let copied = |more: &str| {
                live(
                    &several(),
                    ScriptedHost::new(&format!("{keys}{more}"), size),
                )
                .0
                .copied
            };
            let selected = copied("Y");
            assert_eq!(copied("vY"), selected, "{keys} at {size:?}");
            assert_eq!(copied("v<esc>Y"), selected, "{keys} at {size:?}");
            let text = live(&several(), ScriptedHost::new(&format!("{keys}v"), size))
                .0
                .text();
            assert!(
                selected.iter().all(|unit| panes(&text).contains(unit)),
                "{selected:?} {text}"
            );
        }
    }
    // Esc returns to the unit that has the focus then.
    let copied = |keys: &str| live(&several(), ScriptedHost::new(keys, (80, 24))).0.copied;
    assert_eq!(copied("ggv<tab>Y"), copied("ggv<tab><esc>Y"));
}
