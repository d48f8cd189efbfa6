//! A line of many megabytes in the views: its head and its size are shown, and it is never laid out as a whole.

use serde_json::json;

use super::{
    scripted_host::{ScriptedHost, options, play},
    tape::TapeFixture,
};

/// Size of the result in bytes: more than any view shows.
const HUGE: usize = 6 << 20;

fn shown(keys: &str) -> String {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["dbt-all"]).start("dbt-all", 1).wait(100);
    tape.call(
        "dbt-all",
        1,
        "d1",
        "read_raw_file",
        &json!({"path": "models/schema.yml"}),
    )
    .wait(100);
    tape.result("dbt-all", 1, "d1", &"all work ".repeat(HUGE / 9), false)
        .wait(100);
    tape.say("dbt-all", 1, "Read.");
    let (script, _) = play(
        tape.timeline(),
        None,
        options(),
        ScriptedHost::new(keys, (120, 36)),
    );
    assert!(script.copied.is_empty(), "a huge line is not copied");
    script.text()
}

#[test]
fn huge_line_shows_its_size() {
    assert!(shown("").contains("6.0 MB"), "{}", shown(""));
    assert!(
        shown("<enter>6").contains("user (line of 6.0 MB)"),
        "{}",
        shown("<enter>6")
    );
}

#[test]
fn huge_line_opens_at_its_head() {
    let text = shown("<enter>6/all work<enter><enter>");
    assert!(
        text.contains("all work all work") && text.contains("6.0 MB"),
        "{text}"
    );
    let end = shown("<enter>6/all work<enter><enter>G");
    assert!(end.contains("more of this line are not shown"), "{end}");
    let inspected = shown("i");
    assert!(inspected.contains("6.0 MB"), "{inspected}");
}

#[test]
fn huge_line_is_not_copied_partially() {
    let text = shown("<enter>6/all work<enter>y");
    assert!(
        text.contains("too large for the clipboard: 6.0 MB"),
        "{text}"
    );
}
