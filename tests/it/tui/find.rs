//! `:find`: where a text occurs in the whole run, through the real loop.

use serde_json::json;

use ingestdeck_core::tape::{
    Note,
    note::{AttemptStarted, Severity},
};

use super::{
    screens::SIZES,
    scripted_host::{ScriptedHost, options, play},
    tape::TapeFixture,
};

const SIZE: (u16, u16) = (120, 36);

/// Two units whose prompts have a word. One has it in one of two parallel calls, and in a text.
fn refunds() -> TapeFixture {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["docs-refunds", "docs-orders"]);
    for unit in ["docs-refunds", "docs-orders"] {
        let started = AttemptStarted {
            prompt: "## WorkUnit\n- orders.md\n- refund-policy.md".into(),
            tools: vec!["mcp__ktx__wiki_write".into()],
            system_prompt: "You write pages.".into(),
            ..AttemptStarted::default()
        };
        let note = Note::AttemptStarted(Box::new(started));
        tape.note(Some((unit, 1)), &note).wait(500);
    }
    let write = |id: &str, key: &str, content: &str| json!({"type": "tool_use", "id": id, "name": "mcp__ktx__wiki_write", "input": {"key": key, "content": content}});
    let pages = [
        write("a", "orders", "# Orders\n\nOne row per order."),
        write(
            "b",
            "net-revenue",
            "# Net revenue\n\nBooked on the day of the Refund, not of the order.",
        ),
    ];
    let line = json!({"type": "assistant", "session_id": "s", "uuid": "refund-0", "message": {
        "id": "m1", "role": "assistant", "content": pages}});
    tape.stdout_line("docs-refunds", 1, &line).wait(100);
    let results = ["a", "b"].map(
        |id| json!({"type": "tool_result", "tool_use_id": id, "content": "Wiki page created."}),
    );
    let line =
        json!({"type": "user", "session_id": "s", "message": {"role": "user", "content": results}});
    tape.stdout_line("docs-refunds", 1, &line).wait(100);
    tape.say("docs-refunds", 1, "A refund is booked late.")
        .stdout_line("docs-orders", 1, &json!({"type": "assistant", "session_id": "s", "uuid": "refund-1",
            "message": {"id": "m2", "role": "assistant", "content": [{"type": "text", "text": "Nothing to write."}]}}));
    tape.message(None, Severity::Info, "the last entry of the run");
    tape
}

fn shown(keys: &str, size: (u16, u16)) -> String {
    let script = ScriptedHost::new(keys, size);
    play(refunds().timeline(), None, options(), script).0.text()
}

#[test]
fn each_match_is_listed_with_its_line() {
    for size in SIZES {
        let text = shown(":find<space>refund<enter>", size);
        insta::assert_snapshot!(format!("matches_{}x{}", size.0, size.1), text);
    }
    let text = shown(":find<space>refund<enter>", SIZE);
    assert!(
        text.contains("find refund 2 actions in 1 attempt"),
        "{text}"
    );
    assert!(!text.contains("attempt 1 started"), "{text}");
}

#[test]
fn matches_in_prompts_are_apart_and_fold() {
    let unfolded = shown(":find<space>refund<enter>jj<enter>", SIZE);
    assert!(
        unfolded.contains("in prompts: 2 ") && unfolded.contains("- refund-policy.md"),
        "{unfolded}"
    );
    assert_eq!(unfolded, shown(":find<space>refund<enter>jjl", SIZE));
    let folded = shown(":find<space>refund<enter>jj<enter>h", SIZE);
    assert!(folded.contains("in prompts: 2, folded"), "{folded}");
    let prompt = shown(":find<space>refund<enter>jj<enter>j<enter>", SIZE);
    assert!(
        prompt.contains("[2 prompt]") && prompt.contains("refund-policy.md"),
        "{prompt}"
    );
}

#[test]
fn hidden_parts_of_lines_are_apart() {
    let text = shown(":find<space>refund<enter>jjj<enter>", SIZE);
    let line = text.lines().find(|line| line.contains("refund-1"));
    assert!(
        text.contains("in hidden parts of recorded lines: 1 "),
        "{text}"
    );
    assert!(
        line.is_some_and(|line| line.contains("docs-orders")),
        "{text}"
    );
    assert!(!text.contains("refund-0"), "its text is shown:\n{text}");
}

#[test]
fn match_opens_at_its_call() {
    let text = shown(":find<space>refund<enter><enter>", SIZE);
    assert!(
        text.contains("docs-refunds interrupted inspector") && text.contains("+ # Net revenue"),
        "{text}"
    );
}

#[test]
fn search_in_a_pane_leads_to_all_actions() {
    let typed = shown("/late", SIZE);
    assert!(
        typed.contains("/late▏ no match") && typed.contains("Tab in all actions"),
        "{typed}"
    );
    let found = shown("/late<tab>", SIZE);
    assert!(found.contains("find late 1 action in 1 attempt"), "{found}");
    let accepted = shown("/late<enter>", SIZE);
    assert!(
        accepted.contains("not found: late in unit names; :find searches all actions"),
        "{accepted}"
    );
    let empty = shown("/<tab>", SIZE);
    assert!(!empty.contains("find "), "{empty}");
}
