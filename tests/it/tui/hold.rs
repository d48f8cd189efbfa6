//! Holding a unit on the screen: keys, commands and snapshots.

use std::time::Duration;

use ingestdeck_core::{
    control::{RunCommand, UserDecision},
    tape::{Note, UnitKey, note::CallDecision},
};
use ingestdeck_tui::{Options, host::ToolExit};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use super::{
    screens::SIZES,
    scripted_host::{ScriptedHost, live_handle, options, play},
    tape::TapeFixture,
};

const SIZE: (u16, u16) = (120, 36);

pub(crate) fn running() -> TapeFixture {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["dbt-all", "docs-juice"])
        .start("dbt-all", 1)
        .wait(1000);
    tape.call(
        "dbt-all",
        1,
        "t1",
        "read_raw_file",
        &json!({"path": "models/schema.yml"}),
    )
    .wait(500);
    tape.result("dbt-all", 1, "t1", "version: 2", false)
        .wait(200);
    tape
}

/// Like `running`, with a call that waits for approval.
pub(crate) fn held() -> TapeFixture {
    let input =
        json!({"key": "revenue", "content": "# Revenue\n\nPer day.\u{202e}", "tags": ["dbt"]});
    let mut tape = running();
    tape.note(Some(("dbt-all", 1)), &Note::HoldRequested)
        .wait(800);
    tape.call("dbt-all", 1, "t2", "wiki_write", &input);
    tape.note(
        Some(("dbt-all", 1)),
        &Note::CallHeld {
            needs_decision: false,
            tool: "wiki_write".into(),
            tool_use_id: Some("t2".into()),
            input,
            reached: None,
        },
    );
    tape
}

fn decided(decision: CallDecision, input: Option<Value>, reason: Option<&str>) -> TapeFixture {
    let mut tape = held();
    let reason = reason.map(str::to_owned);
    let note = Note::CallDecided {
        rule: None,
        tool_use_id: Some("t2".into()),
        decision,
        input,
        reason,
    };
    tape.wait(9000).note(Some(("dbt-all", 1)), &note);
    tape
}

fn live(
    tape: &TapeFixture,
    options: Options,
    script: ScriptedHost,
) -> (ScriptedHost, Vec<RunCommand>) {
    let growing = tape.growing();
    let (commands, mut orders) = mpsc::channel(8);
    let (_grows, changed) = watch::channel(0);
    let script = script.after(Duration::from_secs(14));
    let (script, _) = play(
        growing.timeline,
        Some(live_handle(commands, changed)),
        options,
        script,
    );
    (
        script,
        std::iter::from_fn(|| orders.try_recv().ok()).collect(),
    )
}

pub(super) fn orders(tape: &TapeFixture, keys: &str) -> Vec<RunCommand> {
    live(tape, options(), ScriptedHost::new(keys, SIZE)).1
}

pub(super) fn screen(tape: &TapeFixture, keys: &str, size: (u16, u16)) -> String {
    live(tape, options(), ScriptedHost::new(keys, size))
        .0
        .text()
}

#[test]
fn space_holds_and_releases_a_unit() {
    let unit = "dbt-all".into();
    assert_eq!(orders(&running(), "<space>"), [RunCommand::Hold { unit }]);
    let unit = "docs-juice".into();
    assert_eq!(
        orders(&running(), "j<space>"),
        [RunCommand::Hold { unit }],
        "a queued unit, too"
    );
    let unit = "dbt-all".into();
    assert_eq!(orders(&held(), "<space>y"), [RunCommand::Release { unit }]);
    let text = screen(&held(), "<space>", SIZE);
    assert!(
        text.contains("Release dbt-all?") && text.contains("wiki_write {\"key\":\"revenue\""),
        "{text}"
    );
}

#[test]
fn space_plays_a_record_and_leads_back_from_the_past() {
    let (script, _) = play(
        held().timeline(),
        None,
        options(),
        ScriptedHost::new("<space>", SIZE),
    );
    assert!(
        script.text().contains("×1"),
        "a record plays:\n{}",
        script.text()
    );
    let (script, given) = live(&held(), options(), ScriptedHost::new(",<space>", SIZE));
    assert!(
        given.is_empty() && script.text().contains("LIVE"),
        "from the past it leads back:\n{}",
        script.text()
    );
    let mut over = running();
    over.end("dbt-all", 1, 0);
    assert_eq!(orders(&over, "G<space>"), []);
}

#[test]
fn message_to_an_idle_session_is_its_next_turn() {
    let mut over = TapeFixture::new("session", false);
    over.plan(&["session"])
        .start("session", 1)
        .wait(1000)
        .end("session", 1, 0);
    let session = || Options {
        is_session: true,
        ..options()
    };
    let (script, _) = live(&over, session(), ScriptedHost::new("", SIZE));
    assert!(script.text().contains("m message"), "{}", script.text());
    let (_, given) = live(
        &over,
        session(),
        ScriptedHost::new("mAnd<space>now?<enter>", SIZE),
    );
    assert_eq!(
        given,
        [RunCommand::Say {
            unit: "session".into(),
            text: "And now?".into()
        }]
    );
    let (script, given) = live(&over, options(), ScriptedHost::new("mAnd", SIZE));
    assert!(
        given.is_empty() && !script.text().contains("message to the agent"),
        "{}",
        script.text()
    );
}

#[test]
fn held_call_of_a_unit_that_is_not_held_can_be_decided() {
    let mut tape = running();
    let id = Some("t9".to_owned());
    let held = Note::CallHeld {
        needs_decision: false,
        tool: "Bash".into(),
        tool_use_id: id,
        input: json!({"command": "rm -rf build"}),
        reached: Some("dangerous command rm -rf".into()),
    };
    tape.call(
        "dbt-all",
        1,
        "t9",
        "Bash",
        &json!({"command": "rm -rf build"}),
    );
    tape.note(Some(("dbt-all", 1)), &held);
    let text = screen(&tape, "", SIZE);
    assert!(
        text.contains("dangerous command rm -rf") && text.contains("s allow once"),
        "{text}"
    );
    let given = orders(&tape, "s");
    assert!(
        matches!(
            given[..],
            [RunCommand::Decide {
                decision: UserDecision::Allow,
                ..
            }]
        ),
        "{given:?}"
    );
}

#[test]
fn session_stop_question_does_not_promise_to_drop_files() {
    let session = Options {
        is_session: true,
        ..options()
    };
    let (script, _) = live(&running(), session, ScriptedHost::new("x", SIZE));
    let text = script.text();
    assert!(
        text.contains("Changed files are kept") && !text.contains("discarded"),
        "{text}"
    );
    let (script, _) = live(&running(), options(), ScriptedHost::new("x", SIZE));
    assert!(
        script
            .text()
            .contains("The attempt's changes are discarded"),
        "{}",
        script.text()
    );
}

#[test]
fn call_is_allowed_only_once() {
    let call = Some("t2".into());
    assert_eq!(
        orders(&held(), "s"),
        [RunCommand::Decide {
            unit: "dbt-all".into(),
            call,
            decision: UserDecision::Allow
        }]
    );
    assert_eq!(orders(&running(), "sde"), [], "nothing waits");
    let decided = decided(CallDecision::Allowed, None, None);
    assert_eq!(orders(&decided, "s"), [], "it no longer waits");
}

/// The unit of the command, the call that it waits at and the condition that it runs to.
fn runs_to(orders: &[RunCommand]) -> (&str, Option<&str>, String) {
    let [
        RunCommand::RunUntil {
            unit,
            call,
            conditions,
        },
    ] = orders
    else {
        panic!("{orders:?}")
    };
    let words: Vec<_> = conditions.iter().map(ToString::to_string).collect();
    (unit, call.as_deref(), words.join(", "))
}

#[test]
fn unit_runs_until_failure_breakpoint_or_typed_condition() {
    let given = orders(&held(), "w");
    assert_eq!(runs_to(&given), ("dbt-all", Some("t2"), "failure".into()));
    let given = orders(
        &held(),
        ":break<space>tool<space>sl_*<enter>:break<space>silence<space>9s<enter>w",
    );
    assert_eq!(
        runs_to(&given),
        ("dbt-all", Some("t2"), "failure, tool sl_*".into())
    );
    let (script, given) = live(
        &held(),
        options(),
        ScriptedHost::new(":until<space>path<space>*.yml<enter>", SIZE),
    );
    assert_eq!(
        runs_to(&given),
        ("dbt-all", Some("t2"), "path *.yml".into())
    );
    assert!(
        script.text().contains("dbt-all runs until path *.yml"),
        "{}",
        script.text()
    );
    // A unit that runs or is queued need not be held first.
    let given = orders(&running(), ":until<space>cost<space>$0.5<enter>");
    assert_eq!(runs_to(&given), ("dbt-all", None, "cost $0.5".into()));
    assert_eq!(
        runs_to(&orders(&running(), "j:until<space>failure<enter>")).0,
        "docs-juice"
    );
    let (script, given) = live(
        &held(),
        options(),
        ScriptedHost::new(":until<space>silence<space>9s<enter>", SIZE),
    );
    assert!(
        given.is_empty() && script.text().contains("not at a silence"),
        "{}",
        script.text()
    );
}

/// Like `held`, then run until a condition.
fn until(condition: &str) -> TapeFixture {
    let mut tape = held();
    let allowed = CallDecision::Allowed;
    let lane = Some(("dbt-all", 1));
    tape.note(
        lane,
        &Note::RunUntil {
            condition: condition.into(),
        },
    );
    tape.note(
        lane,
        &Note::CallDecided {
            rule: None,
            tool_use_id: Some("t2".into()),
            decision: allowed,
            input: None,
            reason: None,
        },
    );
    tape
}

#[test]
fn run_until_call_is_shown_and_can_be_held() {
    for size in SIZES {
        insta::assert_snapshot!(
            format!("until_{}x{}", size.0, size.1),
            screen(&until("tool sl_*"), "", size)
        );
    }
    let unit = "dbt-all".into();
    assert_eq!(
        orders(&until("failure"), "<space>"),
        [RunCommand::Hold { unit }]
    );
    assert_eq!(orders(&until("failure"), "sd"), [], "nothing waits");
    // Several conditions are counted. A condition comes from an untrusted tape.
    let mut both = until("tool \u{1b}[2J");
    both.note(
        Some(("docs-juice", 0)),
        &Note::RunUntil {
            condition: "failure".into(),
        },
    );
    assert!(
        screen(&both, "", SIZE).contains("◉ 2 run until a call"),
        "{}",
        screen(&both, "", SIZE)
    );
    // The mode ends with the call that meets the condition.
    let mut reached = until("tool sl_*");
    let (tool, tool_use_id, input) = (
        "sl_edit_source".to_owned(),
        Some("t3".to_owned()),
        json!({}),
    );
    let reached_at = Some("tool sl_*".to_owned());
    reached.note(
        Some(("dbt-all", 1)),
        &Note::CallHeld {
            needs_decision: false,
            tool,
            tool_use_id,
            input,
            reached: reached_at,
        },
    );
    let text = screen(&reached, "", SIZE);
    assert!(
        text.contains("sl_edit_source waits for you · tool sl_*") && !text.contains("◉"),
        "{text}"
    );
    let replayed = play(
        reached.timeline(),
        None,
        options(),
        ScriptedHost::new("", SIZE),
    )
    .0
    .text();
    assert!(
        replayed.contains("runs until tool sl_*") && replayed.contains("held at tool sl_*: "),
        "{replayed}"
    );
}

#[test]
fn denial_requires_a_reason() {
    let (script, given) = live(&held(), options(), ScriptedHost::new("d<enter>", SIZE));
    assert!(
        given.is_empty() && script.text().contains("deny because: "),
        "{}",
        script.text()
    );
    assert_eq!(orders(&held(), "dno<esc>"), []);
    let decision = UserDecision::Deny("not yet".into());
    let denied = RunCommand::Decide {
        unit: "dbt-all".into(),
        call: Some("t2".into()),
        decision,
    };
    assert_eq!(orders(&held(), "dnot<space>yet<enter>"), [denied]);
}

#[test]
fn arguments_are_edited_and_checked() {
    let replaced = |text: &str| format!("e<up><c-a><c-k>{}", text);
    let added = "e<c-a>\"dry\":true,<c-s>";
    let (script, given) = live(&held(), options(), ScriptedHost::new(added, SIZE));
    let Some(RunCommand::Decide {
        unit,
        call,
        decision: UserDecision::Edit(input),
    }) = given.first()
    else {
        panic!("{}", script.text())
    };
    assert_eq!((unit.as_str(), call.as_deref()), ("dbt-all", Some("t2")));
    assert_eq!(
        input["content"], "# Revenue\n\nPer day.\u{202e}",
        "unchanged"
    );
    // The first line is the opening brace.
    let given = orders(&held(), &replaced("{<enter>\"dry\":<space>true,<a-enter>"));
    assert!(
        matches!(&given[..], [RunCommand::Decide { decision: UserDecision::Edit(input), .. }] if input["dry"] == true && input["key"] == "revenue")
    );
    let (script, given) = live(
        &held(),
        options(),
        ScriptedHost::new(&replaced("[<c-s>"), SIZE),
    );
    assert!(
        given.is_empty() && script.text().contains("not a JSON object"),
        "{}",
        script.text()
    );
    let (script, given) = live(&held(), options(), ScriptedHost::new("exx<esc>", SIZE));
    assert!(
        given.is_empty() && !script.text().contains("arguments of"),
        "{}",
        script.text()
    );
}

#[test]
fn ctrl_c_works_in_the_editor() {
    assert_eq!(orders(&held(), "e<c-c>"), [RunCommand::Drain]);
}

#[test]
fn pending_approval_is_shown_in_full() {
    for size in SIZES {
        insta::assert_snapshot!(
            format!("held_{}x{}", size.0, size.1),
            screen(&held(), "", size)
        );
    }
    insta::assert_snapshot!("held_edited_80x24", screen(&held(), "e", (80, 24)));
    insta::assert_snapshot!(
        "held_invalid_80x24",
        screen(&held(), "e<up><c-a><c-k><c-s>", (80, 24))
    );
    insta::assert_snapshot!(
        "held_denied_80x24",
        screen(&held(), "dnot<space>yet", (80, 24))
    );
}

#[test]
fn long_call_is_truncated_with_its_length() {
    let mut tape = running();
    let input = json!({"content": "line\n".repeat(50_000)});
    tape.note(Some(("dbt-all", 1)), &Note::HoldRequested);
    tape.note(
        Some(("dbt-all", 1)),
        &Note::CallHeld {
            needs_decision: false,
            tool: "wiki_write".into(),
            tool_use_id: None,
            input,
            reached: None,
        },
    );
    let text = screen(&tape, "", (80, 24));
    assert!(
        text.contains("in total; open the row above to read it"),
        "{text}"
    );
    assert_eq!(
        orders(&tape, "s"),
        [RunCommand::Decide {
            unit: "dbt-all".into(),
            call: None,
            decision: UserDecision::Allow
        }]
    );
}

#[test]
fn replay_shows_approval_decisions() {
    let decision_text = |decision, input: Option<Value>, reason| {
        let mut tape = decided(decision, input, reason);
        match decision {
            CallDecision::Released => _ = tape.note(Some(("dbt-all", 1)), &Note::HoldReleased),
            CallDecision::Denied => {
                let why = format!(
                    "PreToolUse:mcp__ktx__wiki_write hook error: {}",
                    reason.unwrap_or_default()
                );
                tape.result("dbt-all", 1, "t2", &why, true);
            }
            CallDecision::Allowed
            | CallDecision::Edited
            | CallDecision::Answered
            | CallDecision::Cancelled
            | CallDecision::Withdrawn => {}
        }
        play(
            tape.timeline(),
            None,
            options(),
            ScriptedHost::new("$", SIZE),
        )
        .0
        .text()
    };
    for (text, words) in [
        (
            decision_text(
                CallDecision::Answered,
                Some(json!({"Which?": "Table"})),
                None,
            ),
            "answered: Table",
        ),
        (
            decision_text(CallDecision::Allowed, None, None),
            "allowed once: wiki_write revenue",
        ),
        (
            decision_text(CallDecision::Released, None, None),
            "released",
        ),
        (
            decision_text(CallDecision::Denied, None, Some("not\u{1b}[31m yet")),
            "denied: not\\e[31m yet",
        ),
        (
            decision_text(CallDecision::Edited, Some(json!({"key": "b"})), None),
            "allowed with other arguments: wiki_write revenue · {\"key\":\"b\"}",
        ),
        (
            decision_text(CallDecision::Withdrawn, None, None),
            "withdrawn: wiki_write revenue · the call no longer waits",
        ),
    ] {
        assert!(
            text.contains(words) && !text.contains("waits for you"),
            "{words}:\n{text}"
        );
    }
    let (script, _) = play(
        held().timeline(),
        None,
        options(),
        ScriptedHost::new(",", SIZE),
    );
    assert!(
        !script.text().contains("wiki_write waits for you"),
        "{}",
        script.text()
    );
    let (script, _) = play(
        decided(CallDecision::Allowed, None, None).timeline(),
        None,
        options(),
        ScriptedHost::new(",", SIZE),
    );
    assert!(
        script.text().contains("wiki_write waits for you"),
        "{}",
        script.text()
    );
    assert!(
        script.text().contains("‖ dbt-all held"),
        "{}",
        script.text()
    );
}

#[test]
fn unit_keys_without_listed_units_do_nothing() {
    for key in [
        "<space>", "w", "<enter>", "i", "=", "r", "e", "x", "y", "Y", "E", "P", ")", "(", "}", "{",
    ] {
        let (script, given) = live(
            &running(),
            options(),
            ScriptedHost::new(&format!("Fzzz<enter>{key}"), SIZE),
        );
        let text = script.text();
        assert!(
            given.is_empty() && text.contains("no unit is selected") && text.contains("● LIVE"),
            "{key}:\n{text}"
        );
        assert!(script.copied.is_empty(), "{key}");
    }
}

#[test]
fn later_hold_command_replaces_the_earlier_one() {
    let text = screen(&running(), "<space>:until<space>failure<enter>", SIZE);
    assert!(
        text.contains("dbt-all runs until failure") && !text.contains("will wait"),
        "{text}"
    );
}

/// Like `held`, then allowed with edited arguments, and done.
fn edited() -> TapeFixture {
    let input =
        json!({"key": "revenue-policy", "content": "# Revenue\n\nPer order.", "tags": ["dbt"]});
    let mut tape = decided(CallDecision::Edited, Some(input), None);
    tape.wait(100).result(
        "dbt-all",
        1,
        "t2",
        "Wiki page revenue-policy created.",
        false,
    );
    tape.wait(100).call(
        "dbt-all",
        1,
        "t3",
        "wiki_write",
        &json!({"key": "revenue-policy", "content": "# Revenue\n\nPer month."}),
    );
    tape.wait(10).result(
        "dbt-all",
        1,
        "t3",
        "Wiki page revenue-policy updated.",
        false,
    );
    tape
}

#[test]
fn inspector_shows_the_arguments_that_ran_after_an_edit() {
    let keys = "iggjjj";
    let live = screen(&edited(), keys, (160, 60));
    let replay = play(
        edited().timeline(),
        None,
        options(),
        ScriptedHost::new(keys, (160, 60)),
    )
    .0
    .text();
    for text in [&live, &replay] {
        let (changed, rest) = text.split_once("decisions").expect(text);
        let (_, changed) = changed.split_once("changed · ").expect(text);
        assert!(
            changed.contains("revenue-policy") && changed.contains("+ Per order."),
            "{text}"
        );
        assert!(!changed.contains("Per day."), "{text}");
        assert!(
            text.contains("wiki_write revenue-policy"),
            "the row names what ran:\n{text}"
        );
        let (decision, call) = rest.split_once("call · ").expect(text);
        assert!(
            decision.contains("- Per day.") && decision.contains("+ Per order."),
            "{text}"
        );
        assert!(
            !decision.contains("tags") && !decision.contains("\"content\""),
            "{text}"
        );
        let (call, _) = call.split_once("waited for you").expect(text);
        assert!(
            call.contains("Per order.") && !call.contains("Per day."),
            "{text}"
        );
    }
    let next = play(
        edited().timeline(),
        None,
        options(),
        ScriptedHost::new("iggjjjjj", (160, 60)),
    )
    .0
    .text();
    assert!(
        next.contains("- Per order.") && next.contains("+ Per month."),
        "a later write starts from it:\n{next}"
    );
}

/// Two parallel calls; one was allowed after some seconds, the other one waits.
fn parallel() -> TapeFixture {
    let mut tape = running();
    tape.note(Some(("dbt-all", 1)), &Note::HoldRequested);
    let read = json!({"key": "revenue"});
    let write = json!({"key": "revenue", "summary": "Revenue",
        "content": "# Revenue\n\nPer order.\n\nOwner: finance"});
    for (id, tool, input) in [("t2", "wiki_read", &read), ("t3", "wiki_write", &write)] {
        tape.call("dbt-all", 1, id, tool, input);
        tape.note(
            Some(("dbt-all", 1)),
            &Note::CallHeld {
                needs_decision: false,
                tool: tool.into(),
                tool_use_id: Some(id.into()),
                input: input.clone(),
                reached: None,
            },
        );
    }
    let allowed = Note::CallDecided {
        rule: None,
        tool_use_id: Some("t2".into()),
        decision: CallDecision::Allowed,
        input: None,
        reason: None,
    };
    tape.wait(3400).note(Some(("dbt-all", 1)), &allowed).wait(8);
    let page = "---\nsummary: Revenue\n---\n\n# Revenue\n\nPer day.\n\nOwner: finance\n";
    tape.result("dbt-all", 1, "t2", page, false);
    tape
}

#[test]
fn step_shows_results_and_what_a_write_changes() {
    for size in [(80, 24), (120, 36), (200, 60)] {
        let text = screen(&parallel(), "", size);
        insta::assert_snapshot!(format!("step_{}x{}", size.0, size.1), text);
    }
    let text = screen(&parallel(), "", SIZE);
    for shown in [
        "you 3.4s · ",
        "allowed once: wiki_read revenue",
        "── wiki_read revenue ─",
        "- Per day.",
        "+ Per order.",
        r#"{"key":"revenue","summary":"Revenue"}"#,
    ] {
        assert!(text.contains(shown), "{shown}:\n{text}");
    }
    let opened = screen(&parallel(), "iggjjj", (160, 60));
    assert!(opened.contains("waited for you   3.4s"), "{opened}");
}

#[test]
fn change_that_hides_arguments_is_not_shown() {
    let mut tape = running();
    let input = json!({"key": "revenue", "replacements": [
        {"oldText": "a", "newText": "b"}, {"oldText": "c", "newText": "d", "all": true}]});
    tape.call("dbt-all", 1, "t2", "wiki_write", &input).note(
        Some(("dbt-all", 1)),
        &Note::CallHeld {
            needs_decision: false,
            tool: "wiki_write".into(),
            tool_use_id: Some("t2".into()),
            input,
            reached: None,
        },
    );
    let text = screen(&tape, "", SIZE);
    assert!(text.contains(r#""all": true"#), "{text}");
}

/// Units that are held at calls with the same id.
fn held_alike(calls: &[(&str, Value)]) -> TapeFixture {
    let mut tape = running();
    for (unit, input) in calls {
        if *unit != "dbt-all" {
            tape.start(unit, 1);
        }
        tape.call(unit, 1, "t2", "wiki_write", input).note(
            Some((unit, 1)),
            &Note::CallHeld {
                needs_decision: false,
                tool: "wiki_write".into(),
                tool_use_id: Some("t2".into()),
                input: input.clone(),
                reached: None,
            },
        );
    }
    tape
}

#[test]
fn pending_change_shows_every_other_argument() {
    let input = json!({"key": "revenue", "content": "# Revenue", "source": "a hidden note"});
    let text = screen(&held_alike(&[("dbt-all", input)]), "", SIZE);
    assert!(text.contains("+ # Revenue"), "{text}");
    assert!(text.contains("a hidden note"), "{text}");
    let huge = json!({"key": "revenue", "content": "ab ".repeat(400_000)});
    let text = screen(&held_alike(&[("dbt-all", huge)]), "", SIZE);
    assert!(text.contains("ab ab"), "{text}");
    assert!(text.contains("in total; open the row above"), "{text}");
}

#[test]
fn calls_of_two_units_with_one_id_show_their_own_change() {
    let write = |text: &str| json!({"key": "revenue", "content": text});
    let tape = held_alike(&[
        ("dbt-all", write("a harmless text")),
        ("docs-juice", write("another text")),
    ]);
    let texts = ["gg", "ggj"].map(|keys| screen(&tape, keys, SIZE));
    assert!(texts[0].contains("+ a harmless text"), "{}", texts[0]);
    assert!(texts[1].contains("+ another text"), "{}", texts[1]);
    assert!(!texts[1].contains("a harmless text"), "{}", texts[1]);
}

#[test]
fn inspector_before_decision_shows_original_arguments() {
    let text = screen(&held(), "iG", (160, 60));
    assert!(
        text.contains("Per day.") && !text.contains("Per order."),
        "{text}"
    );
}

#[test]
fn question_about_a_release_ends_when_other_calls_wait() {
    let (held, decided) = (held(), decided(CallDecision::Allowed, None, None));
    let growing = held.growing();
    let (commands, mut orders) = mpsc::channel(8);
    let (grows, changed) = watch::channel(0);
    let more = growing.more(&held, &decided);
    let script = ScriptedHost::new("<space>", SIZE)
        .after(Duration::from_secs(20))
        .grows(more, grows);
    let (script, _) = play(
        growing.timeline,
        Some(live_handle(commands, changed)),
        options(),
        script,
    );
    assert!(
        script
            .text()
            .contains("No longer possible: its waiting calls have changed."),
        "{}",
        script.text()
    );
    assert!(orders.try_recv().is_err());
}

#[test]
fn arguments_are_edited_in_another_program() {
    let edited = |text: &str, keys: &str| {
        let mut script = ScriptedHost::new(keys, SIZE);
        script.opened = Ok(ToolExit {
            signal: None,
            edited: Some(Ok(text.to_owned())),
        });
        live(&held(), options(), script)
    };
    let (_, given) = edited("{\"key\": \"churn\"}\n", "e<c-o><c-s>");
    let input = json!({"key": "churn"}).as_object().cloned();
    assert!(
        matches!(&given[..], [RunCommand::Decide { decision: UserDecision::Edit(given), .. }] if Some(given) == input.as_ref()),
        "{given:?}"
    );
    let (script, given) = edited("[1]", "e<c-o><c-s>");
    assert!(
        given.is_empty() && script.text().contains("not a JSON object"),
        "{}",
        script.text()
    );
}

#[test]
fn long_argument_is_edited_as_plain_text() {
    let input = json!({"key": "revenue", "summary": "s", "content": "# Revenue\n\nPer day.", "tags": ["dbt"]});
    let mut tape = running();
    tape.note(Some(("dbt-all", 1)), &Note::HoldRequested)
        .wait(800);
    tape.call("dbt-all", 1, "t2", "wiki_write", &input);
    let held = Note::CallHeld {
        needs_decision: false,
        tool: "wiki_write".into(),
        tool_use_id: Some("t2".into()),
        input,
        reached: None,
    };
    tape.note(Some(("dbt-all", 1)), &held);
    let play = |keys: &str| {
        let mut script = ScriptedHost::new(keys, SIZE);
        script.opened = Ok(ToolExit {
            signal: None,
            edited: Some(Ok("# Revenue\n\nPer \"order\".\n".to_owned())),
        });
        live(
            &tape,
            Options {
                check_arguments: Some(ingestdeck_ingest::tool::argument_problems),
                ..options()
            },
            script,
        )
    };
    let (script, _) = play("e");
    assert!(
        script
            .text()
            .contains("arguments of wiki_write Tab edits content as plain text"),
        "{}",
        script.text()
    );
    let (script, _) = play("e<tab>");
    insta::assert_snapshot!("plain_text_120x36", script.text());
    let (script, given) = play("e<tab><c-o><c-s>");
    assert_eq!(script.handouts[0].bytes, b"# Revenue\n\nPer day.\n");
    let content = match &given[..] {
        [
            RunCommand::Decide {
                decision: UserDecision::Edit(input),
                ..
            },
        ] => input["content"].clone(),
        _ => panic!("{given:?}\n{}", script.text()),
    };
    assert_eq!(content, "# Revenue\n\nPer \"order\".");
    // An argument that the tool does not have is reported before the call.
    let (script, given) = play("e<c-a><right><right><right>x<c-s>");
    assert!(
        given.is_empty() && script.text().contains("is not a field"),
        "{}",
        script.text()
    );
}

/// The screen of a run that grows from `before` to `after` between the keys, and the commands that it sent.
fn grown(
    before: &TapeFixture,
    after: &TapeFixture,
    keys: (&str, &str),
    size: (u16, u16),
) -> (String, Vec<RunCommand>) {
    let growing = before.growing();
    let (commands, mut orders) = mpsc::channel(8);
    let (grows, changed) = watch::channel(0);
    let script = ScriptedHost::new(keys.0, size)
        .after(Duration::from_secs(14))
        .grows(growing.more(before, after), grows)
        .keys_after_growth(keys.1);
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

#[test]
fn message_to_an_ended_unit_is_kept_for_its_retry() {
    let mut ended = running();
    ended.end("dbt-all", 1, 1);
    for (width, height) in SIZES {
        let (text, _) = grown(
            &running(),
            &ended,
            ("muse the glossary", ""),
            (width, height),
        );
        assert!(
            text.contains("dbt-all no longer runs"),
            "the open prompt shows it:\n{text}"
        );
    }
    let (text, sent) = grown(&running(), &ended, ("muse the glossary", "<enter>"), SIZE);
    assert_eq!(sent, []);
    assert!(
        text.contains("dbt-all does not run, so it gets no message") && !text.contains("receives"),
        "{text}"
    );
    let (text, sent) = grown(&running(), &ended, ("muse the glossary", "<enter>e"), SIZE);
    assert!(
        text.contains("new attempt at dbt-all") && text.contains("use the glossary"),
        "{sent:?} {text}"
    );
}

#[test]
fn message_counts_as_received_once_it_is_recorded() {
    let say = [RunCommand::Say {
        unit: "dbt-all".into(),
        text: "hurry".into(),
    }];
    let (text, sent) = grown(&running(), &running(), ("mhurry<enter>", ""), SIZE);
    assert_eq!(sent, say);
    assert!(
        text.contains("the message to dbt-all waits") && !text.contains("receives"),
        "{text}"
    );
    let mut received = running();
    received.note(
        Some(("dbt-all", 1)),
        &Note::MessageSent {
            text: "hurry".into(),
        },
    );
    let (text, _) = grown(&running(), &received, ("mhurry<enter>", ""), SIZE);
    assert!(text.contains("dbt-all receives the message"), "{text}");
    // An earlier message of another client is not this one.
    let (text, _) = grown(&received, &received, ("mhurry<enter>", ""), SIZE);
    assert!(!text.contains("receives"), "{text}");
    // The unit ended before its agent asked for anything more.
    let mut ended = running();
    ended.end("dbt-all", 1, 1);
    let (text, sent) = grown(&running(), &ended, ("mhurry<enter>", "e"), SIZE);
    assert_eq!(sent, say);
    assert!(
        text.contains("new attempt at dbt-all") && text.contains("hurry"),
        "{text}"
    );
    let (text, _) = grown(&running(), &ended, ("mhurry<enter>", ""), SIZE);
    assert!(
        text.contains("dbt-all ended before the message reached it"),
        "{text}"
    );
}

#[test]
fn prompt_about_a_withdrawn_call_says_so() {
    let mut over = held();
    let note = Note::CallDecided {
        rule: None,
        tool_use_id: Some("t2".into()),
        decision: CallDecision::Allowed,
        input: None,
        reason: None,
    };
    over.note(Some(("dbt-all", 1)), &note);
    for keys in ["dnot now", "e"] {
        let (text, sent) = grown(&held(), &over, (keys, ""), (80, 24));
        assert_eq!(sent, []);
        assert!(
            text.contains("that call is no longer waiting"),
            "{keys}: {text}"
        );
    }
    let mut started = running();
    started.end("dbt-all", 1, 1);
    let mut again = running();
    again.end("dbt-all", 1, 1).start("dbt-all", 2);
    let (text, _) = grown(&started, &again, ("ename the owner", ""), (80, 24));
    assert!(text.contains("dbt-all is running; stop it first"), "{text}");
}

#[test]
fn arguments_sent_without_a_change_allow_the_call() {
    let call = || (UnitKey::from("dbt-all"), Some("t2".into()));
    for keys in ["e<c-s>", "ex<backspace><c-s>", "e<tab><c-s>"] {
        let (unit, call) = call();
        assert_eq!(
            orders(&held(), keys),
            [RunCommand::Decide {
                unit,
                call,
                decision: UserDecision::Allow
            }],
            "{keys}"
        );
    }
}

/// A unit that is held, and whose next call has not come.
fn held_early() -> TapeFixture {
    let mut tape = running();
    tape.note(Some(("dbt-all", 1)), &Note::HoldRequested)
        .wait(800);
    tape
}

#[test]
fn reason_typed_before_a_call_waits_reaches_no_key() {
    let nothing = "no call of dbt-all is held yet";
    let (script, given) = live(
        &held_early(),
        options(),
        ScriptedHost::new("dnot<space>this<enter>", SIZE),
    );
    let text = script.text();
    assert!(
        given.is_empty() && text.contains("the next call of dbt-all will be denied"),
        "{given:?}\n{text}"
    );
    let again = screen(&held_early(), "dnot<space>this<enter>d", SIZE);
    assert!(
        again.contains("deny the next call because: not this"),
        "{again}"
    );
    for keys in ["s", "e"] {
        let text = screen(&held_early(), keys, SIZE);
        assert!(text.contains(nothing), "{keys}\n{text}");
    }
    let denied = || RunCommand::Decide {
        unit: "dbt-all".into(),
        call: Some("t2".into()),
        decision: UserDecision::Deny("not this".into()),
    };
    for keys in [
        ("dnot<space>this", "<enter>"),
        ("dnot<space>this<enter>", ""),
    ] {
        let (_, given) = grown(&held_early(), &held(), keys, SIZE);
        assert_eq!(given, [denied()], "{keys:?}");
    }
    // Leaving the line gives the reason up.
    let (_, given) = grown(
        &held_early(),
        &held(),
        ("dnot<space>this<enter>d<esc>", ""),
        SIZE,
    );
    assert_eq!(given, []);
    let mut over = held_early();
    over.end("dbt-all", 1, 1);
    let (text, given) = grown(&held_early(), &over, ("dnot<enter>", ""), SIZE);
    assert!(
        given.is_empty() && text.contains("dbt-all ended before its next call; nothing was denied"),
        "{text}"
    );
}

#[test]
fn denial_directly_after_a_hold_is_not_lost() {
    let (_, given) = grown(
        &running(),
        &held(),
        ("<space>dnot<space>this<enter>", ""),
        SIZE,
    );
    let unit = || "dbt-all".into();
    let denied = RunCommand::Decide {
        unit: unit(),
        call: Some("t2".into()),
        decision: UserDecision::Deny("not this".into()),
    };
    assert_eq!(given, [RunCommand::Hold { unit: unit() }, denied]);
    // The second press takes the first one back.
    let (_, given) = grown(&running(), &running(), ("<space><space>", ""), SIZE);
    assert_eq!(
        given,
        [
            RunCommand::Hold { unit: unit() },
            RunCommand::Release { unit: unit() }
        ]
    );
}

#[test]
fn following_selection_stays_on_the_allowed_call() {
    let result = "Wiki page `revenue` created.";
    let mut after = decided(CallDecision::Allowed, None, None);
    after.wait(100).result("dbt-all", 1, "t2", result, false);
    let (text, _) = grown(&held(), &after, ("i", ""), SIZE);
    assert!(
        text.contains(result) && !text.contains("call_decided"),
        "{text}"
    );
}
