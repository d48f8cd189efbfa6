//! Holding a unit on the screen: keys, orders and pictures.

use std::time::Duration;

use ingestdeck::{
    tape::{Note, note::CallDecision},
    tui::{Command, LiveHandle, Options},
};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use super::{
    script::{Script, options, play},
    tape::Tape,
};

const SIZE: (u16, u16) = (120, 36);

pub(crate) fn running() -> Tape {
    let mut tape = Tape::new("orbit", false);
    tape.plan(&["dbt-all", "docs-juice"]).start("dbt-all", 1).wait(1000);
    tape.call("dbt-all", 1, "t1", "read_raw_file", &json!({"path": "models/schema.yml"})).wait(500);
    tape.result("dbt-all", 1, "t1", "version: 2", false).wait(200);
    tape
}

/// As `running`, with a call that waits.
pub(crate) fn held() -> Tape {
    let input = json!({"key": "revenue", "content": "# Revenue\n\nPer day.\u{202e}", "tags": ["dbt"]});
    let mut tape = running();
    tape.note(Some(("dbt-all", 1)), &Note::HoldRequested).wait(800);
    tape.call("dbt-all", 1, "t2", "wiki_write", &input);
    tape.note(
        Some(("dbt-all", 1)),
        &Note::CallHeld { tool: "wiki_write".into(), tool_use_id: Some("t2".into()), input },
    );
    tape
}

fn decided(decision: CallDecision, input: Option<Value>, reason: Option<&str>) -> Tape {
    let mut tape = held();
    let reason = reason.map(str::to_owned);
    let note = Note::CallDecided { tool_use_id: Some("t2".into()), decision, input, reason };
    tape.wait(9000).note(Some(("dbt-all", 1)), &note);
    tape
}

fn live(tape: &Tape, options: Options, script: Script) -> (Script, Vec<Command>) {
    let growing = tape.growing();
    let (commands, mut orders) = mpsc::channel(8);
    let (_grows, changed) = watch::channel(0);
    let script = script.after(Duration::from_secs(14));
    let (script, _) = play(growing.timeline, Some(LiveHandle::new(commands, changed)), options, script);
    (script, std::iter::from_fn(|| orders.try_recv().ok()).collect())
}

fn orders(tape: &Tape, keys: &str) -> Vec<Command> {
    live(tape, options(), Script::new(keys, SIZE)).1
}

fn screen(tape: &Tape, keys: &str, size: (u16, u16)) -> String {
    live(tape, options(), Script::new(keys, size)).0.text()
}

#[test]
fn space_holds_a_running_unit_and_lets_a_held_one_go() {
    let unit = "dbt-all".into();
    assert_eq!(orders(&running(), "<space>"), [Command::Hold { unit }]);
    let unit = "docs-juice".into();
    assert_eq!(orders(&running(), "j<space>"), [Command::Hold { unit }], "one that waits for its turn, too");
    let unit = "dbt-all".into();
    assert_eq!(orders(&held(), "<space>"), [Command::LetGo { unit }]);
}

#[test]
fn space_plays_and_pauses_where_nothing_can_be_held() {
    let (script, _) = play(held().timeline(), None, options(), Script::new("<space>", SIZE));
    assert!(script.text().contains("×1"), "a record plays:\n{}", script.text());
    let (script, given) = live(&held(), Options { can_hold: false, ..options() }, Script::new("<space>s", SIZE));
    assert!(given.is_empty() && script.text().contains("PAUSED"), "{}", script.text());
    let (script, given) = live(&held(), options(), Script::new(",<space>", SIZE));
    assert!(given.is_empty() && script.text().contains("LIVE"), "from the past it leads back:\n{}", script.text());
    let mut over = running();
    over.end("dbt-all", 1, 0);
    assert_eq!(orders(&over, "gg<space>"), []);
}

#[test]
fn a_call_is_allowed_once() {
    let call = Some("t2".into());
    assert_eq!(orders(&held(), "s"), [Command::Step { unit: "dbt-all".into(), call }]);
    assert_eq!(orders(&running(), "sde"), [], "nothing waits");
    let decided = decided(CallDecision::Allowed, None, None);
    assert_eq!(orders(&decided, "s"), [], "it waits no longer");
}

#[test]
fn a_denial_needs_a_reason() {
    let (script, given) = live(&held(), options(), Script::new("d<enter>", SIZE));
    assert!(given.is_empty() && script.text().contains("deny because: "), "{}", script.text());
    assert_eq!(orders(&held(), "dno<esc>"), []);
    let denied = Command::Deny { unit: "dbt-all".into(), call: Some("t2".into()), reason: "not yet".into() };
    assert_eq!(orders(&held(), "dnot<space>yet<enter>"), [denied]);
}

#[test]
fn arguments_are_edited_and_checked() {
    let replaced = |text: &str| format!("e<c-a><c-k>{}", text);
    let (script, given) = live(&held(), options(), Script::new("e<c-s>", SIZE));
    let Some(Command::Edit { unit, call, input }) = given.first() else { panic!("{}", script.text()) };
    assert_eq!((unit.as_str(), call.as_deref()), ("dbt-all", Some("t2")));
    assert_eq!(input["content"], "# Revenue\n\nPer day.\u{202e}", "as it was");
    // The first line is the opening brace.
    let given = orders(&held(), &replaced("{<enter>\"dry\":<space>true,<a-enter>"));
    assert!(matches!(&given[..], [Command::Edit { input, .. }] if input["dry"] == true && input["key"] == "revenue"));
    let (script, given) = live(&held(), options(), Script::new(&replaced("[<c-s>"), SIZE));
    assert!(given.is_empty() && script.text().contains("not a JSON object"), "{}", script.text());
    let (script, given) = live(&held(), options(), Script::new("exx<esc>", SIZE));
    assert!(given.is_empty() && !script.text().contains("arguments of"), "{}", script.text());
}

#[test]
fn ctrl_c_works_in_the_editor() {
    assert_eq!(orders(&held(), "e<c-c>"), [Command::Drain]);
}

#[test]
fn what_waits_is_shown_in_full() {
    for size in [(40, 12), (80, 24), (120, 36)] {
        insta::assert_snapshot!(format!("held_{}x{}", size.0, size.1), screen(&held(), "", size));
    }
    insta::assert_snapshot!("held_edited_80x24", screen(&held(), "e", (80, 24)));
    insta::assert_snapshot!("held_invalid_80x24", screen(&held(), "e<c-k><c-s>", (80, 24)));
    insta::assert_snapshot!("held_denied_80x24", screen(&held(), "dnot<space>yet", (80, 24)));
}

#[test]
fn a_long_call_leaves_room_and_says_how_long_it_is() {
    let mut tape = running();
    let input = json!({"content": "line\n".repeat(50_000)});
    tape.note(Some(("dbt-all", 1)), &Note::HoldRequested);
    tape.note(Some(("dbt-all", 1)), &Note::CallHeld { tool: "wiki_write".into(), tool_use_id: None, input });
    let text = screen(&tape, "", (80, 24));
    assert!(text.contains("in all; open the row above to read it"), "{text}");
    assert_eq!(orders(&tape, "s"), [Command::Step { unit: "dbt-all".into(), call: None }]);
}

#[test]
fn a_replay_tells_what_was_decided() {
    let told = |decision, input: Option<Value>, reason| {
        let tape = decided(decision, input, reason);
        play(tape.timeline(), None, options(), Script::new("$", SIZE)).0.text()
    };
    for (text, words) in [
        (told(CallDecision::Allowed, None, None), "allowed once"),
        (told(CallDecision::Released, None, None), "let go"),
        (told(CallDecision::Denied, None, Some("not\u{1b}[31m yet")), "▲ denied: not"),
        (told(CallDecision::Edited, Some(json!({"key": "b"})), None), "allowed with other arguments: {\"key\":\"b\"}"),
        (told(CallDecision::Withdrawn, None, None), "nobody waits for the call any more"),
    ] {
        assert!(text.contains(words) && !text.contains("waits for you"), "{words}:\n{text}");
    }
    let (script, _) = play(held().timeline(), None, options(), Script::new(",", SIZE));
    assert!(!script.text().contains("wiki_write waits for you"), "{}", script.text());
    let (script, _) =
        play(decided(CallDecision::Allowed, None, None).timeline(), None, options(), Script::new(",", SIZE));
    assert!(script.text().contains("wiki_write waits for you"), "{}", script.text());
    assert!(script.text().contains("‖ dbt-all held"), "{}", script.text());
}
