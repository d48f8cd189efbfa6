//! The reading page: one session as a page.

use std::{fs, path::Path};

use ingestdeck_core::run::Timeline;
use ingestdeck_records::replay::FileSource;
use ingestdeck_tui::FirstPage;
use serde_json::json;

use super::{
    pty_session::PtySession,
    scripted_host::{ScriptedHost, options, play},
    tape::TapeFixture,
};

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 36), (200, 60)];

fn fixture(name: &str) -> Timeline {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    Timeline::new(Box::new(FileSource::open(&fixtures.join(name)).unwrap()))
}

/// A session with sub-agents.
fn session() -> Timeline {
    fixture("sessions/-home-dev-project/5e551011-4a4a-4b4b-8c8c-0123456789ab.jsonl")
}

/// A unit with a prompt, texts, results, changes and a failure.
fn unit() -> TapeFixture {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["docs"]).start("docs", 1).wait(1500);
    let text = "I look at the **notes** first:\n\n* refunds\n* `mart_arr`, which has a very long description that takes more than one row on a narrow screen";
    tape.say("docs", 1, text);
    let lines: Vec<String> = (1..=40)
        .map(|line| format!("row {line} of the notes"))
        .collect();
    tape.call("docs", 1, "a", "Read", &json!({"file_path": "notes.md"}))
        .wait(20)
        .result("docs", 1, "a", &lines.join("\n"), false)
        .wait(65_000);
    let edit = json!({"file_path": "notes.md", "old_string": "row 2 of the notes", "new_string": "row two of the notes"});
    tape.call("docs", 1, "b", "Edit", &edit).wait(20).result(
        "docs",
        1,
        "b",
        "The file was updated.",
        false,
    );
    tape.call("docs", 1, "c", "Bash", &json!({"command": "cargo test"}))
        .wait(900)
        .result("docs", 1, "c", "error: no tests\nnote: add one", true);
    tape.say("docs", 1, "The test failed.");
    tape
}

/// The page that opens by itself, after some keys.
fn page(timeline: Timeline, keys: &str, size: (u16, u16)) -> String {
    let mut options = options();
    options.first_page = FirstPage::Session;
    play(timeline, None, options, ScriptedHost::new(keys, size))
        .0
        .text()
}

/// The unit as a page, after some more keys.
fn read(keys: &str, size: (u16, u16)) -> String {
    let script = ScriptedHost::new(&format!("gr{keys}"), size);
    play(unit().timeline(), None, options(), script).0.text()
}

fn body(screen: &str) -> Vec<String> {
    let lines = screen.lines().skip(3);
    lines
        .take_while(|line| line.starts_with('│'))
        .map(|line| line.trim_matches(['│', ' ']).to_owned())
        .collect()
}

#[test]
fn session_and_unit_are_rendered_as_pages() {
    for size in SIZES {
        let name = |view: &str| format!("reading_{view}_{}x{}", size.0, size.1);
        insta::assert_snapshot!(name("session"), page(session(), "", size));
        insta::assert_snapshot!(name("unit"), read("gg", size));
    }
    insta::assert_snapshot!("reading_unfolded", read("]<enter>", (80, 24)));
    let inline = fixture("captures/subagent_foreground.jsonl");
    insta::assert_snapshot!("reading_inline_sub_agent", page(inline, "", (80, 24)));
}

#[test]
fn escape_shows_the_units_and_a_key_returns() {
    let units = page(session(), "<esc>", (120, 36));
    assert!(
        units.contains("┌ units") && units.contains("gr read"),
        "{units}"
    );
    let again = page(session(), "<esc>gr", (120, 36));
    assert_eq!(body(&again), body(&page(session(), "", (120, 36))));
    assert!(page(session(), "<esc>", (120, 36)).contains("5/5"));
}

#[test]
fn records_of_several_sessions_open_with_the_units() {
    let dir = tempfile::tempdir().unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/captures");
    let text = |name: &str| fs::read_to_string(fixtures.join(name)).unwrap();
    let path = dir.path().join("two.jsonl");
    fs::write(
        &path,
        text("max_turns.jsonl") + &text("success_tools.jsonl"),
    )
    .unwrap();
    let open = || Timeline::new(Box::new(FileSource::open(&path).unwrap()));
    assert!(page(open(), "", (120, 36)).contains("┌ units"));
    // The second session may begin beyond what is read before the first frame.
    let padding = format!("{{\"type\":\"x\",\"y\":\"{}\"}}\n", "z".repeat(900_000));
    let long = text("max_turns.jsonl") + &padding + &text("success_tools.jsonl");
    fs::write(&path, long).unwrap();
    assert!(page(open(), "", (120, 36)).contains("┌ units"));
}

#[test]
fn sub_agent_folds_into_its_heading() {
    let folded = page(session(), "<tab>]hh", (120, 36));
    assert!(folded.contains("▸ sub-agent"), "{folded}");
    let plain = body(&page(session(), "", (120, 36)));
    let sub_agent = |lines: &[String]| {
        let heading = lines
            .iter()
            .position(|line| line.contains("sub-agent read"));
        lines[heading.unwrap() + 1].clone()
    };
    assert!(sub_agent(&plain).contains("SUBAGENT-FG"), "{plain:?}");
    let folded = body(&page(session(), "/subagent-fg<enter>nhh", (120, 36)));
    assert!(
        sub_agent(&folded).contains("check the cohorts"),
        "{folded:?}"
    );
    let unfolded = body(&page(session(), "/subagent-fg<enter>nhhl", (120, 36)));
    assert!(sub_agent(&unfolded).contains("SUBAGENT-FG"), "{unfolded:?}");
}

#[test]
fn search_unfolds_the_row_with_the_match() {
    let before = read("", (80, 24));
    assert!(
        !before.contains("row 33") && before.contains("more lines"),
        "{before}"
    );
    let found = read("/row<space>33<enter>", (80, 24));
    assert!(found.contains("row 33 of the notes"), "{found}");
    // A discarded text restores the page.
    assert_eq!(
        body(&read("gg/row<space>33<esc>", (80, 24))),
        body(&read("gg", (80, 24)))
    );
    let in_sub_agent = page(session(), "/orders<space>are<enter>", (80, 24));
    assert!(in_sub_agent.contains("orders are fine"), "{in_sub_agent}");
}

#[test]
fn each_line_is_reached_from_both_ends() {
    for size in [(40, 12), (80, 24)] {
        let mut seen = Vec::new();
        let rows = body(&read("gg", size)).len();
        for keys in 0..60 {
            let screen = body(&read(&format!("gg{}", "J".repeat(keys)), size));
            assert_eq!(screen.len(), rows);
            seen.push(screen);
        }
        let last = body(&read("G", size));
        assert_eq!(
            seen.last(),
            Some(&last),
            "scrolling ends with the last line"
        );
        for pair in seen.windows(2) {
            assert!(
                pair[0] == pair[1] || pair[0][1..] == pair[1][..rows - 1],
                "{pair:#?}"
            );
        }
        let back = body(&read(&format!("G{}", "K".repeat(60)), size));
        assert_eq!(seen.first(), Some(&back));
    }
}

#[test]
fn failure_prompt_and_inspector_are_one_key_away() {
    let failure = read("]i", (120, 36));
    assert!(
        failure.contains("inspector") && failure.contains("cargo test"),
        "{failure}"
    );
    let prompt = page(session(), "<tab><tab>", (80, 24));
    assert!(
        body(&prompt)[0].contains("❯ Run the failed part again"),
        "{prompt}"
    );
    let back = page(session(), "<tab><tab><s-tab>", (80, 24));
    assert!(
        body(&back)[0].contains("❯ Audit it with a workflow"),
        "{back}"
    );
}

#[test]
fn page_shows_the_moment_of_the_run() {
    let mut options = options();
    options.first_page = FirstPage::Session;
    options.paused_after = Some(61);
    let paused = |keys: &str| {
        let script = ScriptedHost::new(keys, (120, 36));
        play(session(), None, options.clone(), script).0.text()
    };
    let shown = paused("");
    assert!(
        shown.contains("PAUSED") && shown.contains("19/19"),
        "{shown}"
    );
    assert!(!shown.contains("orders are fine"), "{shown}");
    assert!(
        paused(":end<enter>").contains("41"),
        "{}",
        paused(":end<enter>")
    );
    let back = page(session(), "G:5s<enter>", (120, 36));
    assert!(
        back.contains("Refunds are booked daily.") && !back.contains("Audit it"),
        "{back}"
    );
}

#[test]
fn replay_opens_a_session_as_a_page() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(
        "tests/fixtures/sessions/-home-dev-project/5e551011-4a4a-4b4b-8c8c-0123456789ab.jsonl",
    );
    let mut session = PtySession::open(&["replay", path.to_str().unwrap()]);
    session.shows("Esc units");
    session.press("\u{1b}");
    session.shows("gr read");
    session.press("q");
    assert_eq!(session.end(), 0);
}
