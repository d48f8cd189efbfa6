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

/// A line of a message, of the sub-agent that `parent` started.
fn message(id: &str, block: &serde_json::Value, parent: Option<&str>) -> String {
    json!({"type": "assistant", "session_id": "s", "parent_tool_use_id": parent,
        "message": {"id": id, "role": "assistant", "content": [block]}})
    .to_string()
}

fn call(id: &str, name: &str, input: &serde_json::Value) -> serde_json::Value {
    json!({"type": "tool_use", "id": id, "name": name, "input": input})
}

fn result(id: &str, parent: Option<&str>) -> serde_json::Value {
    json!({"type": "user", "session_id": "s", "parent_tool_use_id": parent,
        "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "done"}]}})
}

fn texts(page: &str, wanted: &[&str]) -> Vec<String> {
    let lines = body(page).into_iter();
    let shown = lines.filter_map(|line| {
        let found = wanted.iter().find(|text| line.contains(**text))?;
        Some((*found).to_owned())
    });
    shown.collect()
}

#[test]
fn sub_agents_follow_the_calls_that_started_them() {
    let agent =
        |id: &str, what: &str| call(id, "Agent", &json!({"description": what, "prompt": what}));
    let text = |text: &str| json!({"type": "text", "text": text});
    let lines = [
        message("1", &agent("a", "look at bark"), None),
        message("1", &agent("b", "look at leaves"), None),
        message("2", &text("leaf one"), Some("b")),
        message("3", &text("bark one"), Some("a")),
        message("4", &text("leaf two"), Some("b")),
        message(
            "5",
            &call("c", "Bash", &json!({"command": "bark two"})),
            Some("a"),
        ),
        result("c", Some("a")).to_string(),
        result("b", None).to_string(),
        result("a", None).to_string(),
        message("6", &text("both looked"), None),
    ];
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("two.jsonl");
    fs::write(&path, lines.join("\n")).unwrap();
    let source = FileSource::open(&path).unwrap();
    let shown = page(Timeline::new(Box::new(source)), "gg", (120, 36));
    let wanted = [
        "look at bark",
        "bark one",
        "bark two",
        "look at leaves",
        "leaf one",
        "leaf two",
        "both looked",
    ];
    assert_eq!(texts(&shown, &wanted), wanted, "{shown}");
}

#[test]
fn sub_agents_of_session_files_follow_their_calls() {
    let dir = tempfile::tempdir().unwrap();
    let agents = dir.path().join("s/subagents");
    fs::create_dir_all(&agents).unwrap();
    let at = |line: String, second: u32, agent: Option<&str>| {
        let mut line: serde_json::Value = serde_json::from_str(&line).unwrap();
        // Session files have other names for these.
        for key in ["session_id", "parent_tool_use_id"] {
            line.as_object_mut().unwrap().remove(key);
        }
        line["sessionId"] = "s".into();
        line["uuid"] = format!("u{second}").into();
        line["timestamp"] = format!("2026-11-30T09:00:{second:02}.000Z").into();
        if let Some(agent) = agent {
            (line["agentId"], line["isSidechain"]) = (agent.into(), true.into());
        }
        line
    };
    let agent = |id: &str, what: &str| {
        message(
            id,
            &call(id, "Agent", &json!({"description": what, "prompt": what})),
            None,
        )
    };
    let ended = |id: &str, agent: &str, second| {
        let mut line = at(result(id, None).to_string(), second, None);
        line["toolUseResult"] = json!({"status": "completed", "agentId": agent});
        line
    };
    let text = |id: &str, text: &str| message(id, &json!({"type": "text", "text": text}), None);
    let main = [
        at(agent("a", "look at bark"), 1, None),
        at(agent("b", "look at leaves"), 2, None),
        ended("b", "two", 8),
        ended("a", "one", 9),
        at(text("c", "both looked"), 10, None),
    ];
    let write = |path: &Path, lines: &[serde_json::Value]| {
        let lines: Vec<_> = lines.iter().map(ToString::to_string).collect();
        fs::write(path, lines.join("\n") + "\n").unwrap();
    };
    let path = dir.path().join("s.jsonl");
    write(&path, &main);
    let one = [at(text("d", "bark one"), 5, Some("one"))];
    let two = [at(text("e", "leaf one"), 4, Some("two"))];
    write(&agents.join("agent-one.jsonl"), &one);
    write(&agents.join("agent-two.jsonl"), &two);
    let source = FileSource::open(&path).unwrap();
    let shown = page(Timeline::new(Box::new(source)), "gg", (120, 36));
    let wanted = [
        "look at bark",
        "bark one",
        "look at leaves",
        "leaf one",
        "both looked",
    ];
    assert_eq!(texts(&shown, &wanted), wanted, "{shown}");
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

#[test]
fn enter_on_a_whole_message_reports_that() {
    let whole = page(session(), "gg<enter>", (120, 36));
    assert!(whole.contains("all of it is shown"), "{whole}");
}

#[test]
fn failed_session_opens_at_its_end_with_the_remedy() {
    let screen = page(fixture("captures/api_401.jsonl"), "", (120, 36));
    insta::assert_snapshot!("failed_session_120x36", screen);
}

#[test]
fn denied_call_shows_the_reason_without_the_hook() {
    let control = page(
        fixture("captures/versions/2.1.300_control_stdout.jsonl"),
        "gg",
        (120, 50),
    );
    assert!(control.contains("denied: hook"), "{control}");
    assert!(control.contains("rejected by the user"), "{control}");
    assert!(!control.contains("PreToolUse"), "{control}");
    assert!(!control.contains("error_during"), "{control}");
}
