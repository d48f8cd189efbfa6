//! Two attempts side by side, through the real loop.

use ingestdeck_core::tape::{Note, note::ContinuedWork};
use serde_json::json;

use super::{
    inspect::twice,
    screens::SIZES,
    scripted_host::{ScriptedHost, options, play},
    tape::{self, TapeFixture},
};

fn shown(tape: &TapeFixture, keys: &str, size: (u16, u16)) -> ScriptedHost {
    play(
        tape.timeline(),
        None,
        options(),
        ScriptedHost::new(keys, size),
    )
    .0
}

/// Three attempts of one unit: the second differs from its second call on, the third equals the first.
fn thrice() -> TapeFixture {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["u"]);
    for (attempt, calls) in [(1, "abc"), (2, "axbd"), (3, "abc")] {
        tape.start("u", attempt).wait(500);
        for call in calls.chars() {
            let id = format!("{call}{attempt}");
            tape.call(
                "u",
                attempt,
                &id,
                "read_raw_file",
                &json!({"path": format!("{call}.md")}),
            )
            .wait(100);
            tape.result("u", attempt, &id, "text", call == 'd').wait(10);
        }
        tape.end("u", attempt, u32::from(attempt == 2)).wait(100);
    }
    tape
}

#[test]
fn compare_shows_where_attempts_diverge() {
    for size in SIZES {
        let text = shown(&twice(), "=", size).text();
        insta::assert_snapshot!(format!("twice_{}x{}", size.0, size.1), text);
        let text = shown(&thrice(), "=<tab>h", size).text();
        insta::assert_snapshot!(format!("thrice_{}x{}", size.0, size.1), text);
    }
}

#[test]
fn difference_of_the_selected_calls_is_shown() {
    let text = |keys: &str| shown(&twice(), keys, (120, 36)).text();
    let arguments = text("=");
    assert!(
        arguments.contains("call 3 (action 6): same tool with other arguments"),
        "{arguments}"
    );
    for line in [
        "summary (added)",
        "+ Revenue",
        "- wiki_write rejected: summary is missing",
        "+ Wiki page `revenue` updated.",
    ] {
        assert!(arguments.contains(line), "{line}:\n{arguments}");
    }
    assert!(text("=JJJJJJJJJJJJJJJJJJJJ").contains("+ Give the page a title."));
    let same = text("=k");
    assert!(
        same.contains("call 2 (action 5): nothing differs") && same.contains("prompt · +3 · -0"),
        "{same}"
    );
    let only = shown(&thrice(), "=j", (120, 36)).text();
    assert!(only.contains("call only in the"), "{only}");
}

/// The attempt failed because of its last call, which comes after the first difference.
#[test]
fn comparison_begins_at_the_call_that_failed() {
    let text = shown(&thrice(), "=", (120, 36)).text();
    assert!(
        text.contains("call 4 (action") && text.contains("first difference at call 2 (action 3)"),
        "{text}"
    );
    let two = shown(&twice(), "=", (120, 36)).text();
    assert!(
        text.contains("h older attempt") && !two.contains("older attempt"),
        "{text}\n{two}"
    );
}

#[test]
fn any_two_attempts_can_be_compared() {
    let text = |keys: &str| shown(&thrice(), keys, (120, 36)).text();
    assert!(
        text("=").contains("first difference at call 2"),
        "{}",
        text("=")
    );
    assert!(
        text("=h").contains("try 1 failed") || text("=h").contains("try 1 succeeded"),
        "{}",
        text("=h")
    );
    assert!(
        text("=<tab>h").contains("all 3 calls are the same, with the same results"),
        "{}",
        text("=<tab>h")
    );
    assert!(text("=l").contains("there is no newer attempt"));
}

/// The program is replaced between the attempts.
#[test]
fn releases_are_compared_only_if_they_differ() {
    let text = |releases: [&str; 2]| {
        let mut tape = TapeFixture::new("orbit", false);
        tape.plan(&["u"]);
        for (attempt, release) in (1..).zip(releases) {
            tape.start("u", attempt);
            let init = json!({"type": "system", "subtype": "init", "session_id": format!("5e55-u-{attempt}"),
                "claude_code_version": release, "tools": [], "mcp_servers": []});
            tape.stdout_line("u", attempt, &init)
                .wait(500)
                .end("u", attempt, 1)
                .wait(100);
        }
        shown(&tape, "=", (120, 36)).text()
    };
    let other = text(["2.1.330", "2.1.332"]);
    let line = other
        .lines()
        .find(|line| line.contains("release"))
        .unwrap_or_else(|| panic!("{other}"));
    assert!(
        line.contains("2.1.330") && line.contains("2.1.332") && other.contains("prompt"),
        "{other}"
    );
    assert!(!text(["2.1.332", "2.1.332"]).contains("release"));
}

#[test]
fn continued_attempt_shows_what_was_saved() {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["u"]);
    tape.start("u", 1).wait(500).end("u", 1, 1);
    let work = ContinuedWork {
        attempt: 1,
        turns: 3,
        tokens: 34_200,
        active_ms: 185_000,
        ..ContinuedWork::default()
    };
    tape.note(Some(("u", 2)), &Note::WorkContinued(work));
    tape.start("u", 2).wait(500).end("u", 2, 0);
    let text = shown(&tape, "=", (120, 36)).text();
    assert!(
        text.contains("continued: saved about 34.2k tokens, 3m 05s"),
        "{text}"
    );
}

#[test]
fn call_opens_in_the_inspector_and_esc_returns() {
    let text = |keys: &str| shown(&twice(), keys, (120, 36)).text();
    let opened = text("=<enter>");
    assert!(
        opened.contains(" inspector ") && opened.contains("wiki_write · w2"),
        "{opened}"
    );
    assert!(text("=<tab><enter>").contains("wiki_write · w1"));
    assert!(text("=<enter><esc>").contains("attempts compared"));
    assert!(!text("==").contains("attempts compared"));
    assert!(!text("=<esc>").contains("attempts compared"));
    let copied = shown(&twice(), "=y", (120, 36)).copied.concat();
    assert!(
        copied.contains(r#""id":"w2""#) && copied.contains("Wiki page `revenue` updated."),
        "{copied}"
    );
}

#[test]
fn difference_navigation_wraps_around() {
    let text = |keys: &str| shown(&thrice(), keys, (120, 36)).text();
    for (keys, place) in [
        ("=gg", "1/4"),
        ("=gg]", "2/4"),
        ("=gg]]", "4/4"),
        ("=gg]]]", "2/4"),
        ("=gg[", "4/4"),
    ] {
        assert!(
            text(keys).contains(&format!(" {place} ")),
            "{keys}: {}",
            text(keys)
        );
    }
}

#[test]
fn single_attempt_is_not_compared() {
    let text = |keys: &str| shown(&tape::running(), keys, (120, 36)).text();
    assert!(
        text("gg=").contains("has one attempt; there is nothing to compare it with"),
        "{}",
        text("gg=")
    );
    assert!(text("Gk=").contains("has not run yet"));
}

#[test]
fn compare_before_the_second_attempt_shows_a_notice() {
    let text = shown(&twice(), "=0", (120, 36)).text();
    assert!(
        text.contains("fewer than two attempts at this moment"),
        "{text}"
    );
}
