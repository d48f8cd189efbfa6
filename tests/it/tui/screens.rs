//! Snapshots of every view at five sizes, in common states.

use std::{path::Path, time::Duration};

use ingestdeck_core::{
    run::Timeline,
    tape::{Note, note::Severity},
};
use ingestdeck_records::replay::FileSource;
use ingestdeck_tui::{ColorLevel, Theme};
use ratatui::style::{Color, Modifier};
use tokio::sync::{mpsc, watch};

use super::{
    scripted_host::{ScriptedHost, live_handle, options, play},
    tape::{self, TapeFixture},
};

pub(super) const SIZES: [(u16, u16); 5] = [(40, 12), (60, 20), (80, 24), (120, 36), (200, 60)];

/// The screen of a record after some keys.
pub(super) fn shown(timeline: Timeline, keys: &str, size: (u16, u16)) -> String {
    play(timeline, None, options(), ScriptedHost::new(keys, size))
        .0
        .text()
}

/// A live run, seen 20 s after its start.
pub(super) fn live(tape: &TapeFixture, keys: &str, size: (u16, u16)) -> ScriptedHost {
    let growing = tape.growing();
    let (commands, _orders) = mpsc::channel(8);
    let (_grows, changed) = watch::channel(0);
    let script = ScriptedHost::new(keys, size).after(Duration::from_secs(20));
    play(
        growing.timeline,
        Some(live_handle(commands, changed)),
        options(),
        script,
    )
    .0
}

macro_rules! at_every_size {
    ($name:literal, $draw:expr) => {
        for size in SIZES {
            let text: String = $draw(size);
            insta::assert_snapshot!(format!("{}_{}x{}", $name, size.0, size.1), text);
        }
    };
}

#[test]
fn empty_run_is_rendered() {
    at_every_size!("empty", |size| shown(
        TapeFixture::new("orbit", false).timeline(),
        "",
        size
    ));
}

#[test]
fn single_running_unit_is_rendered() {
    let mut tape = TapeFixture::new("orbit", true);
    tape.plan(&["dbt-all"]).start("dbt-all", 1).wait(2000);
    tape.call(
        "dbt-all",
        1,
        "t",
        "read_raw_file",
        &serde_json::json!({"path": "models/schema.yml"}),
    );
    at_every_size!("one_running", |size| live(&tape, "", size).text());
}

#[test]
fn partly_done_run_is_rendered() {
    at_every_size!("running", |size| live(&tape::running(), "", size).text());
}

#[test]
fn partly_done_run_on_a_wide_screen_is_rendered() {
    insta::assert_snapshot!(live(&tape::running(), "", (200, 60)).text());
}

#[test]
fn failure_is_rendered() {
    at_every_size!("failed", |size| shown(
        tape::running().timeline(),
        "<tab>",
        size
    ));
}

#[test]
fn transcript_is_rendered() {
    at_every_size!("transcript", |size| shown(
        tape::running().timeline(),
        "<enter>k",
        size
    ));
}

#[test]
fn call_with_its_result_is_rendered() {
    // Opens the failed call of the stream.
    at_every_size!("call", |size| shown(
        tape::running().timeline(),
        "<tab>[<enter>",
        size
    ));
}

#[test]
fn help_and_log_are_rendered() {
    at_every_size!("help", |size| shown(tape::running().timeline(), "?", size));
    at_every_size!("help_all", |size| shown(
        tape::running().timeline(),
        "??",
        size
    ));
    let mut tape = tape::running();
    tape.message(
        None,
        Severity::Warning,
        "ktx.yaml: unknown key `llm.modell`",
    );
    tape.message(
        Some("dbt-all"),
        Severity::Error,
        "the disk is full\nsecond line",
    );
    at_every_size!("log", |size| shown(tape.timeline(), "L", size));
    let long = "the disk of the project is full, so nothing more can be recorded; ";
    tape.message(
        Some("dbt-all"),
        Severity::Error,
        &format!("{}\u{1b}[31mfree some space and resume", long.repeat(3)),
    );
    at_every_size!("log_of_a_long_remark", |size| shown(
        tape.timeline(),
        "LG",
        size
    ));
    for size in [(20, 5), (20, 6), (25, 8), (40, 7)] {
        for keys in ["LG", "Lgg", "LGk"] {
            let _ = shown(tape.timeline(), keys, size);
        }
    }
}

#[test]
fn question_is_rendered() {
    at_every_size!("question", |size| live(&tape::running(), "R", size).text());
    at_every_size!("leaving", |size| live(&tape::running(), "q", size).text());
}

#[test]
fn find_and_breakpoints_are_rendered() {
    at_every_size!("find", |size| shown(
        tape::running().timeline(),
        ":find<space>arr<enter>",
        size
    ));
    let keys = ":break<space>failure<enter>:break<space>tool<space>wiki_*<enter>B";
    at_every_size!("breakpoints", |size| shown(
        tape::running().timeline(),
        keys,
        size
    ));
}

#[test]
fn paused_run_is_rendered() {
    let mut tape = tape::running();
    tape.note(None, &Note::RunPaused);
    at_every_size!("paused", |size| live(&tape, "", size).text());
}

#[test]
fn ten_thousand_units_are_rendered() {
    let units: Vec<String> = (0..10_000)
        .map(|unit| format!("docs-page-{unit}"))
        .collect();
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&units);
    for (index, unit) in units.iter().enumerate().take(900) {
        tape.start(unit, 1)
            .wait(10)
            .end(unit, 1, u32::from(index % 100 == 99));
    }
    at_every_size!("many", |size| shown(tape.timeline(), "G", size));
    at_every_size!("many_failed", |size| shown(tape.timeline(), "f]", size));
}

/// Hostile content in every part of a transcript.
fn hostile() -> TapeFixture {
    let mut tape = TapeFixture::new("o\u{1b}]0;pwned\u{7}rbit", false);
    let unit = "漢字-👩‍🚀-\u{202e}gnp.exe\u{200b}\u{1b}[2J";
    tape.plan(&[
        unit,
        "Zalgo\u{301}\u{302}\u{303}\u{304}\u{305}\u{306}\u{307}\u{308}",
    ])
    .start(unit, 1);
    tape.say(
        unit,
        1,
        "\u{1b}[31mred\u{1b}[0m \u{9b}5A \u{202e}backwards\u{202c} \u{e0041}\u{e0042} tab\there \r\n next",
    );
    tape.say(unit, 1, &"広い".repeat(200));
    tape.call(
        unit,
        1,
        "t1",
        "read\u{7}_raw_file",
        &serde_json::json!({"path": "../\u{1b}]52;c;aGk=\u{7}etc"}),
    );
    tape.result(
        unit,
        1,
        "t1",
        "\u{1b}P1;1|\u{1b}\\ \u{0} \u{7f} 👨‍👩‍👧‍👦 🏴󠁧󠁢󠁥󠁮󠁧󠁿 é e\u{301}",
        true,
    );
    tape.delta(unit, 1, "\u{1b}[?1049l leaving");
    tape
}

#[test]
fn hostile_text_is_escaped() {
    at_every_size!("hostile", |size| live(&hostile(), "", size).text());
    at_every_size!("hostile_call", |size| shown(
        hostile().timeline(),
        "<tab>]<enter>",
        size
    ));
    let script = live(&hostile(), "", (120, 36));
    for cell in script.terminal.backend().buffer().content() {
        assert!(
            !cell.symbol().chars().any(|char| char.is_control()),
            "{:?}",
            cell.symbol()
        );
    }
    assert!(
        script
            .titles
            .iter()
            .all(|title| !title.chars().any(char::is_control)),
        "{:?}",
        script.titles
    );
}

#[test]
fn too_small_terminal_shows_a_notice() {
    for size in [(39, 12), (20, 5), (10, 3)] {
        let (width, height) = size;
        insta::assert_snapshot!(
            format!("too_small_{width}x{height}"),
            shown(tape::running().timeline(), "", size)
        );
    }
}

#[test]
fn any_small_size_draws_without_panic() {
    for size in [(1, 1), (2, 2), (3, 1), (1, 30), (300, 1), (300, 100)] {
        for keys in ["", "<tab>", "<enter>", "?", "L", "R", "/x"] {
            let _ = live(&tape::running(), keys, size);
        }
    }
}

#[test]
fn states_have_distinct_colours() {
    let script = live(&tape::running(), "", (120, 36));
    assert_eq!(script.style_of("✗ 1 failed").fg, Some(Color::LightRed));
    assert!(
        script
            .style_of("✗ 1 failed")
            .add_modifier
            .contains(Modifier::BOLD)
    );
    assert_eq!(script.style_of("▶ 1 running").fg, Some(Color::LightCyan));
    assert_eq!(script.style_of("✓ 1 succeeded").fg, Some(Color::Green));
    assert_eq!(script.style_of("○ 1 queued").fg, Some(Color::DarkGray));
    assert_eq!(script.style_of("● LIVE").fg, Some(Color::Green));
}

#[test]
fn plain_ascii_screen_shows_everything() {
    let mut options = options();
    options.theme = Theme::new("dark", ColorLevel::Attributes, true).unwrap();
    let (script, _) = play(
        tape::running().timeline(),
        None,
        options,
        ScriptedHost::new("", (80, 24)),
    );
    insta::assert_snapshot!(script.text());
    assert!(script.text().is_ascii(), "{}", script.text());
    for cell in script.terminal.backend().buffer().content() {
        assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset));
    }
    assert!(
        script
            .style_of("notion")
            .add_modifier
            .contains(Modifier::REVERSED)
    );
}

#[test]
fn every_capture_has_a_screen_at_every_size() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/captures");
    let mut seen = 0;
    for folder in [folder.clone(), folder.join("versions")] {
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            if path
                .extension()
                .is_none_or(|extension| extension != "jsonl")
            {
                continue;
            }
            for size in SIZES {
                let Ok(source) = FileSource::open(&path) else {
                    continue;
                };
                let text = shown(
                    Timeline::new(Box::new(source)),
                    "<tab>gg<enter>lllG<esc><esc><enter>G<enter>",
                    size,
                );
                assert!(!text.trim().is_empty(), "{}", path.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 150, "only {seen} screens");
}
