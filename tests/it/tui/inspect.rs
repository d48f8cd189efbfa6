//! The inspector through the real loop: every panel, with tapes, captures and session files.

use std::path::Path;

use ingestdeck_core::{
    run::Timeline,
    tape::{
        EntryBody, Note,
        note::{
            AttemptEnded, AttemptOutcome, AttemptStarted, IsolationChecked, StopReason, Verdict,
            VerdictCause,
        },
    },
};
use ingestdeck_records::replay::FileSource;
use ingestdeck_tui::{Options, host::HostInput};
use proptest::prelude::*;
use serde_json::json;

use super::{
    screens::SIZES,
    scripted_host::{ScriptedHost, options, play},
    tape::{self, TapeFixture},
};

const UNIT: &str = "notion-revenue-policy";

fn shown(timeline: Timeline, keys: &str, size: (u16, u16)) -> ScriptedHost {
    play(timeline, None, options(), ScriptedHost::new(keys, size)).0
}

fn fixture(name: &str) -> Timeline {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/captures")
        .join(name);
    Timeline::new(Box::new(FileSource::open(&path).unwrap()))
}

/// A unit that failed, received feedback, and succeeded: two attempts that use every panel.
pub(super) fn twice() -> TapeFixture {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&[UNIT]);
    let text = "# Revenue policy\n\nRevenue is recognised **monthly**.\n";
    for attempt in [1, 2] {
        let feedback = if attempt == 1 {
            ""
        } else {
            "\n\n## Feedback\nGive the page a title."
        };
        let started = AttemptStarted {
            argv: [
                "claude",
                "-p",
                "--tools=",
                "--model",
                "sonnet",
                "--allowedTools",
                "mcp__ktx__read_raw_file",
            ]
            .map(String::from)
            .to_vec(),
            cwd: "/home/dev/orbit".into(),
            env_set: vec!["DISABLE_TELEMETRY".into(), "TMPDIR".into()],
            env_stripped: vec!["ANTHROPIC_API_KEY".into()],
            env_inherited: vec!["HOME".into(), "PATH".into()],
            model: Some("sonnet".into()),
            step_budget: 40,
            system_prompt: "<role>\nYou turn raw files into pages.\n</role>".into(),
            prompt: format!("# Wiki Index\n(empty)\n\n## WorkUnit: {UNIT}\n- policy.md{feedback}"),
            tools: vec![
                "mcp__ktx__read_raw_file".into(),
                "mcp__ktx__wiki_read".into(),
                "mcp__ktx__wiki_write".into(),
            ],
            pid: Some(4242),
            ..AttemptStarted::default()
        };
        tape.note(
            Some((UNIT, attempt)),
            &Note::AttemptStarted(Box::new(started)),
        );
        tape.stdout_line(
            UNIT,
            attempt,
            &json!({"type": "system", "subtype": "init", "session_id": format!("5e55-{attempt}"), "model": "claude-sonnet-5-5",
                "cwd": "/home/dev/orbit", "tools": ["mcp__ktx__read_raw_file", "mcp__ktx__wiki_read", "mcp__ktx__wiki_write"],
                "mcp_servers": [{"name": "ktx", "status": "connected"}], "permissionMode": "dontAsk",
                "claude_code_version": "2.1.330", "plugins": [], "skills": [], "agents": []}),
        );
        let check = IsolationChecked {
            breach: None,
            settings_sources: (attempt == 1).then(Vec::new),
        };
        tape.note(Some((UNIT, attempt)), &Note::IsolationChecked(check))
            .wait(900);
        let id = |call: &str| format!("{call}{attempt}");
        tape.say(
            UNIT,
            attempt,
            "I read the **policy** first.\n\n1. the file\n2. the page",
        )
        .wait(200);
        tape.call(
            UNIT,
            attempt,
            &id("r"),
            "read_raw_file",
            &json!({"path": "policy.md"}),
        )
        .wait(100);
        tape.result(UNIT, attempt, &id("r"), text, false).wait(700);
        tape.entry(
            Some((UNIT, attempt)),
            EntryBody::Stderr("(node:1) warning: \u{1b}[31mred\u{1b}[0m".into()),
        );
        tape.call(
            UNIT,
            attempt,
            &id("p"),
            "wiki_read",
            &json!({"key": "revenue"}),
        )
        .wait(10);
        let old = "---\nsummary: Revenue\n---\n\n# Revenue\n\nRevenue is booked daily.\n\nOwner: finance\n";
        tape.result(UNIT, attempt, &id("p"), old, false).wait(900);
        if attempt == 1 {
            let bad = json!({"key": "revenue", "content": "# Revenue"});
            tape.call(UNIT, attempt, &id("w"), "wiki_write", &bad)
                .wait(50);
            tape.result(
                UNIT,
                attempt,
                &id("w"),
                "wiki_write rejected: summary is missing",
                true,
            )
            .wait(500);
            tape.end(UNIT, attempt, 1).wait(1000);
            tape.note(
                Some((UNIT, 2)),
                &Note::RetryRequested {
                    next: 2,
                    amendment: None,
                },
            )
            .wait(200);
        } else {
            let good = json!({"key": "revenue", "summary": "Revenue",
                "content": "# Revenue\n\nRevenue is recognised monthly.\n\nOwner: finance"});
            tape.call(UNIT, attempt, &id("w"), "wiki_write", &good)
                .wait(50);
            tape.result(
                UNIT,
                attempt,
                &id("w"),
                "Wiki page `revenue` updated.",
                false,
            )
            .wait(500);
            let published = Note::Published {
                paths: vec!["wiki/global/revenue.md".into()],
            };
            tape.note(Some((UNIT, attempt)), &published);
            tape.end(UNIT, attempt, 0);
        }
    }
    tape
}

macro_rules! at_every_size {
    ($name:literal, $timeline:expr, $keys:literal) => {
        for size in SIZES {
            let script = shown($timeline, $keys, size);
            insta::assert_snapshot!(format!("{}_{}x{}", $name, size.0, size.1), script.text());
        }
    };
}

#[test]
fn inspector_shows_all_details_of_an_action() {
    // The second attempt is opened at its first action; the write is the last call.
    at_every_size!("write", twice().timeline(), "i/wiki_write<enter><enter>");
    at_every_size!("failed", twice().timeline(), "ih]");
}

#[test]
fn inspector_shows_prompt_and_environment() {
    at_every_size!("prompt", twice().timeline(), "i2");
    at_every_size!("isolation", twice().timeline(), "i3");
}

#[test]
fn inspector_shows_verdict() {
    at_every_size!("stderr", twice().timeline(), "i4");
    at_every_size!("verdict", twice().timeline(), "ih5");
}

#[test]
fn inspector_shows_a_running_unit() {
    at_every_size!("running", tape::running().timeline(), "i");
}

#[test]
fn capture_inspector_names_missing_data() {
    let isolation = shown(fixture("permission_denied_dontask.jsonl"), "i3", (120, 60)).text();
    assert!(
        isolation.contains("not on this record: offered and allowed tools"),
        "{isolation}"
    );
    assert!(
        isolation.contains("neither offered nor allowed") || isolation.contains("offered, used"),
        "{isolation}"
    );
    let prompt = shown(fixture("permission_denied_dontask.jsonl"), "i2", (120, 36)).text();
    assert!(prompt.contains("not on this record"), "{prompt}");
    let stderr = shown(fixture("permission_denied_dontask.jsonl"), "i4", (120, 36)).text();
    assert!(stderr.contains("not on this record"), "{stderr}");
}

#[test]
fn session_file_and_two_way_transcript_show_the_prompt() {
    let prompt = shown(fixture("ondisk_session.jsonl"), "i2", (120, 36)).text();
    assert!(
        !prompt.contains("prompt\n│not on this record") && prompt.contains("characters"),
        "{prompt}"
    );
    let prompt = shown(
        fixture("control_protocol.transcript.jsonl"),
        "i2",
        (120, 36),
    )
    .text();
    assert!(prompt.contains("characters"), "{prompt}");
}

#[test]
fn images_are_listed_by_type() {
    let picture = shown(fixture("image_result.jsonl"), "i", (120, 60)).text();
    assert!(picture.contains("picture: image/png, "), "{picture}");
}

#[test]
fn row_of_the_start_opens_all_entries_it_covers() {
    let text = |keys: &str| shown(twice().timeline(), keys, (240, 100)).text();
    let start = text("iagg");
    let (start, shown) = (
        start.lines().any(|line| line.contains("isolation holds")),
        start,
    );
    assert!(start, "{shown}");
    for entry in ["attempt_started", "\"init\"", "isolation_checked"] {
        assert!(shown.contains(entry), "{entry}:\n{shown}");
    }
    // The search finds the row by the content of any of them, and the wire still has a line for each.
    assert!(
        text("ia/mcp_servers<enter>").contains(" 1/"),
        "{}",
        text("ia/mcp_servers<enter>")
    );
    let wire = text("i6");
    assert!(
        wire.contains(" init ") && wire.contains("isolation checked"),
        "{wire}"
    );
}

#[test]
fn reset_of_a_limit_is_in_the_zone_of_the_screen() {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&[UNIT]).start(UNIT, 1).wait(10);
    let verdict = Verdict {
        outcome: AttemptOutcome::Failed,
        stop: StopReason::Error,
        cause: VerdictCause::UsageLimit {
            resets_at: Some(1_795_356_000),
        },
        reason: "the limit is reached".into(),
        remedy: Some(
            "wait for the reset at 2026-11-22T14:00:00Z, or sign in with another account".into(),
        ),
    };
    let ended = AttemptEnded {
        verdict,
        tool_failures: 0,
        failed_call: None,
        exit_code: Some(1),
        signal: None,
        stderr_tail: Vec::new(),
        wrote: Vec::new(),
        work: Default::default(),
        extra: Default::default(),
    };
    tape.note(Some((UNIT, 1)), &Note::AttemptEnded(Box::new(ended)));
    let zone = jiff::tz::TimeZone::fixed(jiff::tz::offset(2));
    let (script, _) = play(
        tape.timeline(),
        None,
        Options { zone, ..options() },
        ScriptedHost::new("i5", (120, 36)),
    );
    let text = script.text();
    assert!(
        text.contains("a usage limit until 2026-11-22 16:00 +02"),
        "{text}"
    );
    assert!(
        text.contains("wait for the reset at 2026-11-22 16:00 +02, or"),
        "{text}"
    );
}

#[test]
fn panels_and_attempts_keep_their_position() {
    let text = |keys: &str| shown(twice().timeline(), keys, (120, 36)).text();
    assert!(text("i3jjj21").contains("1 actions"));
    assert!(text("i3jjj23").contains("line 4/"), "{}", text("i3jjj23"));
    assert!(
        text("ia]A").contains("2/"),
        "the other attempt has its own position"
    );
    // Back from the detail to the actions, then out of the inspector.
    assert!(text("i<enter><esc>").contains(" inspector "));
    assert!(!text("i<enter><esc><esc>").contains(" inspector "));
    assert!(!text("ii").contains(" inspector "));
    // A line of the wire and an opened entry lead to the same action.
    assert!(text("i6gg/revenue` updated<enter>i").contains("wiki_write · w2"));
    assert!(text("i6gg/revenue` updated<enter><enter>i").contains("wiki_write · w2"));
}

#[test]
fn copied_text_is_unescaped() {
    let copied = |keys: &str| shown(twice().timeline(), keys, (120, 36)).copied;
    assert_eq!(copied("iA]Y"), ["revenue"]);
    assert_eq!(copied("i2Y"), ["claude --resume 5e55-2"]);
    assert_eq!(
        copied("iA]<tab>y"),
        ["wiki_write rejected: summary is missing"]
    );
    assert_eq!(
        copied("iA]<tab>%%y"),
        [r##"{"key":"revenue","content":"# Revenue"}"##]
    );
    let prompt = copied("i2y").concat();
    assert!(
        prompt.starts_with("# Wiki Index\n(empty)\n") && prompt.ends_with("Give the page a title."),
        "{prompt}"
    );
    assert_eq!(
        copied("i4y"),
        ["(node:1) warning: \u{1b}[31mred\u{1b}[0m"],
        "the bytes, not their escaped form"
    );
    let script = shown(twice().timeline(), "i3%%%%y", (120, 36));
    assert!(script.text().contains("copied "), "{}", script.text());
}

#[test]
fn call_and_result_link_to_each_other() {
    let text = |keys: &str| shown(tape::running().timeline(), keys, (120, 36)).text();
    let call = text("gg<enter>6ggjj");
    let there = text("gg<enter>6ggjj%");
    let back = text("gg<enter>6ggjj%%");
    assert_ne!(call, there, "{call}");
    assert_eq!(call, back);
    assert!(text("gg<enter>6gg%").contains("no counterpart"));
}

#[test]
fn json_folds_and_unfolds() {
    let folded = shown(
        twice().timeline(),
        "iA]<tab>/message<enter><enter>",
        (120, 60),
    )
    .text();
    let unfolded = shown(
        twice().timeline(),
        "iA]<tab>/message<enter><enter><enter>",
        (120, 60),
    )
    .text();
    assert!(folded.contains(r#""message": { … "#), "{folded}");
    assert!(!unfolded.contains(r#""message": { … "#), "{unfolded}");
}

#[test]
fn written_file_is_opened_as_a_copy_of_its_text() {
    let script = shown(twice().timeline(), "i/wiki_write<enter>gf", (120, 36));
    let export = script
        .handouts
        .first()
        .unwrap_or_else(|| panic!("{}", script.text()));
    assert_eq!(export.extension, ".md");
    assert!(
        String::from_utf8_lossy(&export.bytes).starts_with("# Revenue"),
        "{export:?}"
    );
    assert!(
        export
            .written
            .as_ref()
            .is_some_and(|written| written.project.is_none()),
        "{export:?}"
    );
    let script = shown(twice().timeline(), "i/wiki_read<enter>gf", (120, 36));
    assert!(
        script.handouts.is_empty() && script.text().contains("wrote no file"),
        "{}",
        script.text()
    );
}

#[test]
fn search_in_the_detail_scrolls_to_the_match() {
    let script = shown(twice().timeline(), "i3/inherited<enter>", (120, 24));
    assert!(
        script.text().contains("inherited        HOME, PATH"),
        "{}",
        script.text()
    );
}

#[test]
fn ten_thousand_calls_are_counted() {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["big"]).start("big", 1);
    for call in 0..10_000 {
        let id = format!("t{call}");
        tape.call(
            "big",
            1,
            &id,
            "read_raw_file",
            &json!({"path": format!("file-{}.md", call % 700)}),
        );
        tape.result("big", 1, &id, "text", call % 1000 == 999);
    }
    tape.end("big", 1, 10);
    let script = shown(tape.timeline(), "i3", (120, 40));
    assert!(
        script.text().contains("used 10000 times, 10 failed"),
        "{}",
        script.text()
    );
    assert!(script.text().contains("touched · 700"), "{}", script.text());
}

#[test]
fn large_result_is_shown_immediately_and_completely() {
    let mut tape = TapeFixture::new("orbit", false);
    let text: String = (0..40_000)
        .map(|line| format!("line {line} of a result that is long\n"))
        .collect();
    tape.plan(&["big"]).start("big", 1);
    tape.call("big", 1, "t", "read_raw_file", &json!({"path": "a"}))
        .wait(10)
        .result("big", 1, "t", &text, false);
    tape.end("big", 1, 0);
    let script = shown(tape.timeline(), "i<tab>", (120, 36));
    assert!(
        script.text().contains("line 0 of a result"),
        "{}",
        script.text()
    );
    let script = shown(tape.timeline(), "i<tab>/39999 of<enter>", (120, 36));
    assert!(
        script.text().contains("line 39999 of a result"),
        "{}",
        script.text()
    );
}

fn any_key() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "i",
        "=",
        "1",
        "2",
        "3",
        "4",
        "5",
        "9",
        "%",
        "j",
        "k",
        "gg",
        "G",
        "h",
        "l",
        "<tab>",
        "<enter>",
        "<esc>",
        "z",
        "]",
        "[",
        "/r<enter>",
        "/zzz<enter>",
        "n",
        "N",
        "y",
        "Y",
        "0",
        ",",
        ".",
        "$",
        "<c-d>",
        "<pageup>",
        "L",
        "?",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_keys_do_not_panic(
        keys in prop::collection::vec(any_key(), 0..40),
        width in 30..140_u16,
        height in 8..50_u16,
        clicks in prop::collection::vec((0..140_u16, 0..50_u16, any::<bool>()), 0..4),
        first in prop::sample::select(vec!["i", "="]),
    ) {
        let tape = twice();
        let mut script = ScriptedHost::new(&(first.to_owned() + &keys.concat()), (width, height));
        for (x, y, down) in clicks {
            script = script.input(HostInput::Click(x, y)).input(HostInput::Wheel(x, y, down)).input(HostInput::Resize(y + 40, x + 12));
        }
        let exit = play(tape.timeline(), None, options(), script).1;
        prop_assert!(exit.timeline.view().state.entries <= tape.entries());
    }
}
