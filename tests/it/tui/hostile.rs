//! Untrusted text: in every view, text of a record is escaped and does not change the layout.

use std::io::Write as _;

use ingestdeck_core::{
    run::Timeline,
    tape::{EntryBody, Note, note::Severity},
    text,
};
use ingestdeck_records::replay::FileSource;
use ingestdeck_tui::host::HostInput;
use proptest::prelude::*;
use ratatui::{
    backend::{Backend as _, CrosstermBackend},
    buffer::Buffer,
};
use serde_json::json;
use tokio::sync::{mpsc, watch};

use super::{
    scripted_host::{ScriptedHost, live_handle, options, play},
    tape::TapeFixture,
};

const SIZES: [(u16, u16); 3] = [(40, 12), (80, 24), (120, 36)];

/// Keys that open every view.
const VIEWS: &[&str] = &[
    "",
    "z",
    "<tab>",
    "<tab>z",
    "<enter>",
    "<enter>gg",
    "<enter><enter>",
    "<tab>gg<enter>",
    "<tab>gg<enter>ll",
    "<tab>G<enter>",
    "i",
    "i2",
    "i3",
    "i4",
    "i5",
    "L",
    "/",
    "f",
    "t",
    "?",
    "G=",
    "G=<enter>",
    "G=l",
    "v",
    "vz",
    "C",
    "Cj",
    ":break tool x*<enter>B",
];

/// A run in which every text is `text`.
fn tape(text: &str) -> TapeFixture {
    // Unit keys must be unique.
    let (first, second) = (format!("{text}1"), format!("{text}2"));
    let mut tape = TapeFixture::new(text, false);
    tape.plan(&[&first, &second]).start(&first, 1).wait(10);
    tape.think(&first, 1, text).say(&first, 1, text).wait(10);
    tape.call(
        &first,
        1,
        "t1",
        text,
        &json!({text: text, "path": text, "content": format!("{text}\n{text}")}),
    );
    tape.result(&first, 1, "t1", text, true).wait(10);
    tape.call(&first, 1, "t2", "wiki_write", &json!({"key": text}));
    tape.entry(Some((&first, 1)), EntryBody::Stderr(text.into()));
    tape.entry(
        Some((&first, 1)),
        EntryBody::StdoutRaw(text.as_bytes().into()),
    );
    tape.stdout_line(
        &first,
        1,
        &json!({"type": text, "subtype": text, "message": text}),
    );
    tape.stdout_line(
        &first,
        1,
        &json!({"type": "rate_limit_event", "rate_limit_info": {"status": text, "rateLimitType": text}}),
    );
    tape.stdout_line(&first, 1, &json!({"type": "system", "subtype": "permission_denied", "tool_name": text, "tool_use_id": "t9", "message": text}));
    tape.message(Some(&first), Severity::Error, text)
        .message(None, Severity::Warning, text)
        .delta(&first, 1, text);
    tape.end(&second, 1, 1).start(&second, 2).wait(10);
    tape.call(&second, 2, "u1", text, &json!({text: text, "path": text}));
    tape.result(&second, 2, "u1", text, true).end(&second, 2, 1);
    tape
}

/// The forms that edit text, over a run in which every text is `text`: a retry, and the arguments of a call.
fn form(text: &str, held: bool, size: (u16, u16)) -> ScriptedHost {
    let mut tape = tape(text);
    let (first, second) = (format!("{text}1"), format!("{text}2"));
    if held {
        let (tool, tool_use_id, reached) = (
            text.to_owned(),
            Some("t2".to_owned()),
            Some(text.to_owned()),
        );
        tape.note(
            Some((&first, 1)),
            &Note::RunUntil {
                condition: text.into(),
            },
        );
        tape.note(
            Some((&first, 1)),
            &Note::CallHeld {
                needs_decision: false,
                tool,
                tool_use_id,
                input: json!({text: text}),
                reached,
            },
        );
    } else {
        tape.end(&first, 1, 1).note(
            Some((&second, 2)),
            &Note::RunUntil {
                condition: text.into(),
            },
        );
    }
    let growing = tape.growing();
    let (commands, _orders) = mpsc::channel(8);
    let (_grows, changed) = watch::channel(0);
    let script = ScriptedHost::new("gge", size).input(HostInput::Paste(text.to_owned()));
    play(
        growing.timeline,
        Some(live_handle(commands, changed)),
        options(),
        script,
    )
    .0
}

/// The bytes that a terminal receives for these cells, without the sequences for style and position.
fn text_of(buffer: &Buffer) -> String {
    let mut bytes = Vec::new();
    let width = buffer.area.width.max(1);
    let cells = buffer.content().iter().enumerate().map(|(at, cell)| {
        let at = u16::try_from(at).unwrap();
        (at % width, at / width, cell)
    });
    CrosstermBackend::new(&mut bytes).draw(cells).unwrap();
    let written = String::from_utf8(bytes).unwrap();
    let mut pieces = written.split("\u{1b}[");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let end = piece.find(|char: char| char.is_ascii_alphabetic()).unwrap();
        assert!(
            piece[..end]
                .chars()
                .all(|char| char.is_ascii_digit() || char == ';'),
            "{piece:?}"
        );
        assert!(matches!(piece.as_bytes()[end], b'm' | b'H'), "{piece:?}");
        text.push_str(&piece[end + 1..]);
    }
    text
}

fn shown(text: &str, keys: &str, size: (u16, u16)) -> ScriptedHost {
    play(
        tape(text).timeline(),
        None,
        options(),
        ScriptedHost::new(keys, size),
    )
    .0
}

/// Cells with the frame of a screen of harmless text.
fn frame(script: &ScriptedHost) -> Vec<(usize, String)> {
    let cells = script
        .terminal
        .backend()
        .buffer()
        .content()
        .iter()
        .enumerate();
    cells
        .filter(|(_, cell)| matches!(cell.symbol(), "┌" | "┐" | "└" | "┘" | "│"))
        .map(|(at, cell)| (at, cell.symbol().to_owned()))
        .collect()
}

/// Parts that terminals obey, that have a width of zero or two, or that look like a frame.
fn piece() -> impl Strategy<Value = String> {
    let known = [
        "\u{1b}[2J",
        "\u{1b}]0;pwned\u{7}",
        "\u{1b}]52;c;aGk=\u{1b}\\",
        "\u{1b}P+q\u{1b}\\",
        "\u{1b}c",
        "\u{9b}5A",
        "\u{8}",
        "\r",
        "\n",
        "\t",
        "\0",
        "\u{7f}",
        "\u{202e}",
        "\u{2066}",
        "\u{200b}",
        "\u{200d}",
        "\u{fe0f}",
        "\u{e0041}",
        "\u{301}\u{302}\u{303}\u{304}\u{305}\u{306}\u{307}",
        "漢字",
        "👩‍🚀",
        "🏴󠁧󠁢󠁥󠁮󠁧󠁿",
        "👨‍👩‍👧‍👦",
        "ﷺ",
        "က္က",
        "│",
        "┐",
        "\u{fffd}",
        "word ",
    ];
    prop_oneof![4 => prop::sample::select(known.map(String::from).to_vec()), 1 => any::<String>()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn control_sequences_are_escaped_in_every_view(
        pieces in prop::collection::vec(piece(), 1..12),
        keys in prop::sample::select(VIEWS),
        size in prop::sample::select(SIZES.to_vec()),
    ) {
        let text = pieces.concat();
        let script = shown(&text, keys, size);
        let written = text_of(script.terminal.backend().buffer());
        prop_assert!(!written.chars().any(text::is_hidden), "{written:?}");
        for title in &script.titles {
            prop_assert!(!title.chars().any(text::is_hidden), "{title:?}");
        }
    }

    #[test]
    fn control_sequences_are_escaped_in_forms(
        pieces in prop::collection::vec(piece(), 1..12),
        held in any::<bool>(),
        size in prop::sample::select(SIZES.to_vec()),
    ) {
        let script = form(&pieces.concat(), held, size);
        let written = text_of(script.terminal.backend().buffer());
        prop_assert!(!written.chars().any(text::is_hidden), "{written:?}");
    }

    #[test]
    fn hostile_text_breaks_no_frame(
        pieces in prop::collection::vec(piece(), 1..12),
        keys in prop::sample::select(&["", "<enter>", "<enter><enter>", "<tab>gg<enter>", "L", "i3", "G=", "v", "vz"][..]),
        size in prop::sample::select(SIZES.to_vec()),
    ) {
        let text = pieces.concat();
        let hostile = shown(&text, keys, size);
        let buffer = hostile.terminal.backend().buffer();
        prop_assert!(frame(&hostile).len() > 10);
        let inner = 1..usize::from(size.0) - 1;
        for (at, symbol) in frame(&shown("word", keys, size)) {
            // The list of the inspector is as wide as its calls.
            if keys.contains("<enter>") && symbol == "│" && inner.contains(&(at % usize::from(size.0))) {
                continue;
            }
            prop_assert_eq!(buffer.content()[at].symbol(), &symbol, "cell {}:\n{}", at, hostile.text());
        }
    }
}

#[test]
fn line_of_100000_columns_is_a_normal_row() {
    for text in [
        "x".repeat(100_000),
        "漢".repeat(50_000),
        "\u{1b}[2J".repeat(25_000),
    ] {
        for keys in ["", "<enter>", "<tab>gg<enter>ll", "i2"] {
            let script = shown(&text, keys, (80, 24));
            assert!(
                !text_of(script.terminal.backend().buffer())
                    .chars()
                    .any(text::is_hidden),
                "{keys}"
            );
        }
    }
}

#[test]
fn copied_and_exported_text_is_unescaped() {
    let text = "\u{1b}[31mred\u{202e}\u{200b}漢\0";
    let tape = tape(text);
    let (script, _) = play(
        tape.timeline(),
        None,
        options(),
        ScriptedHost::new("gg<tab>/t1<enter>gg<down><down>y", (120, 36)),
    );
    let lines: Vec<serde_json::Value> = script.copied[0]
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 1, "{:?}", script.copied);
    assert_eq!(lines[0]["message"]["content"][0]["text"], text);
    // A capture that is not valid UTF-8.
    let mut file = tempfile::Builder::new()
        .suffix(".jsonl")
        .tempfile()
        .unwrap();
    let lines: [&[u8]; 3] = [
        br#"{"type":"system","subtype":"init","session_id":"s","tools":[],"model":"m","cwd":"/p"}"#,
        b"{\"type\":\"assistant\",\"session_id\":\"s\",\"message\":{\"id\":\"m\",\"content\":[{\"type\":\"text\",\"text\":\"\xff\xfe\x1b\"}]}}",
        b"\x80\x1b]0;pwned\x07",
    ];
    let bytes = lines.join(&b'\n');
    file.write_all(&bytes).unwrap();
    let timeline = || Timeline::new(Box::new(FileSource::open(file.path()).unwrap()));
    let (script, _) = play(
        timeline(),
        None,
        options(),
        ScriptedHost::new("E", (120, 36)),
    );
    assert_eq!(script.handouts[0].bytes.strip_suffix(b"\n").unwrap(), bytes);
    assert!(
        !text_of(script.terminal.backend().buffer())
            .chars()
            .any(text::is_hidden)
    );
    let (script, _) = play(
        timeline(),
        None,
        options(),
        ScriptedHost::new("P", (120, 36)),
    );
    let read = String::from_utf8(script.handouts[0].bytes.clone()).unwrap();
    assert!(
        read.lines().all(|line| !line.chars().any(text::is_hidden)),
        "{read:?}"
    );
}
