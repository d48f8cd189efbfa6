//! The spelling of JSON has no meaning: every capture and session file, written in another way, is the same run.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use ingestdeck_core::run::{PollStatus, SinkEvent, Timeline};
use ingestdeck_records::replay::{FileSource, claude_sessions};
use serde_json::Value;

/// A way to write the same JSON values.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Spelling {
    /// Spaces after colons and commas, as Python writes them.
    Spaced,
    /// Keys in alphabetical order.
    Sorted,
    /// Everything but ASCII is escaped, and `/` is too.
    Ascii,
    /// All letters of keys are escaped.
    EscapedKeys,
    /// Lines end with CR LF, and the file begins with a byte order mark.
    Windows,
}

const SPELLINGS: [Spelling; 5] = [
    Spelling::Spaced,
    Spelling::Sorted,
    Spelling::Ascii,
    Spelling::EscapedKeys,
    Spelling::Windows,
];

/// The end of the JSON string that begins at `start`, after its quote.
fn string_end(json: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while json[at] != b'"' {
        at += if json[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

fn escaped(text: &str, all: bool) -> String {
    let mut out = String::new();
    let mut rest = text.chars();
    while let Some(char) = rest.next() {
        match char {
            '\\' => {
                let second = rest.next().unwrap();
                write!(out, "\\{second}").unwrap();
            }
            '/' => out.push_str("\\/"),
            char if !char.is_ascii() || all && char.is_ascii_alphanumeric() => {
                for unit in char.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}").unwrap();
                }
            }
            char => out.push(char),
        }
    }
    out
}

impl Spelling {
    /// The line in this spelling; a line that is not JSON remains.
    fn line(self, line: &str) -> String {
        if serde_json::from_str::<Value>(line).is_err() {
            return line.to_owned();
        }
        if self == Self::Windows {
            return line.to_owned() + "\r";
        }
        if self == Self::Sorted {
            // A value of this library has its keys in order.
            return serde_json::from_str::<Value>(line).unwrap().to_string();
        }
        let bytes = line.as_bytes();
        let (mut out, mut at) = (String::new(), 0);
        while at < bytes.len() {
            match bytes[at] {
                b'"' => {
                    let end = string_end(bytes, at);
                    let text = &line[at + 1..end - 1];
                    let is_key = bytes.get(end) == Some(&b':');
                    let text = match self {
                        Self::Ascii => escaped(text, false),
                        Self::EscapedKeys if is_key => escaped(text, true),
                        _ => text.to_owned(),
                    };
                    write!(out, "\"{text}\"").unwrap();
                    at = end;
                    continue;
                }
                byte @ (b':' | b',') if self == Self::Spaced => {
                    out.push(char::from(byte));
                    out.push(' ');
                }
                byte => out.push(char::from(byte)),
            }
            at += 1;
        }
        out
    }

    fn file(self, text: &str) -> String {
        let mark = if self == Self::Windows {
            "\u{feff}"
        } else {
            ""
        };
        let lines = text.split_inclusive('\n').map(|line| {
            let end = if line.ends_with('\n') { "\n" } else { "" };
            self.line(line.strip_suffix('\n').unwrap_or(line)) + end
        });
        mark.to_owned() + &lines.collect::<String>()
    }

    /// Writes the file, and the directory of its sub-agents, in this spelling.
    fn copy(self, from: &Path, to: &Path) {
        if from.is_dir() {
            fs::create_dir_all(to).unwrap();
            for entry in fs::read_dir(from).unwrap() {
                let entry = entry.unwrap();
                self.copy(&entry.path(), &to.join(entry.file_name()));
            }
        } else if from
            .extension()
            .is_some_and(|extension| extension == "jsonl")
        {
            fs::write(to, self.file(&fs::read_to_string(from).unwrap())).unwrap();
        } else {
            fs::copy(from, to).unwrap();
        }
    }
}

/// Everything that a replay of the file shows. Embedded JSON is parsed, because its spelling is that of the file, and
/// costs are rounded, because the order of their sum is that of the keys.
fn events_of(path: &Path) -> Vec<Value> {
    let mut events = Vec::new();
    let mut timeline = Timeline::new(Box::new(FileSource::open(path).unwrap()));
    let mut emit = |event: SinkEvent<'_>| match event {
        SinkEvent::Agent {
            entry,
            at,
            unit,
            attempt,
            event,
            outcome_detail,
        } => {
            let mut json = Vec::new();
            event.write_json(&mut json);
            let event: Value = serde_json::from_slice(&json).unwrap();
            events.push(serde_json::json!([
                entry.0,
                at.0,
                unit,
                attempt,
                event,
                outcome_detail.map(|detail| detail.as_str())
            ]));
        }
        SinkEvent::Line { .. } => {}
        other => events.push(Value::String(format!("{other:.9?}"))),
    };
    while timeline.advance(1 << 20, &mut emit).unwrap() != PollStatus::End {}
    let (view, info) = (timeline.view(), timeline.source().info().clone());
    for unit in &view.state.units {
        for attempt in &unit.attempts {
            events.push(Value::String(format!(
                "{} {:?} {:.9?} {:?} {:?} {:?} {:?}",
                unit.key,
                unit.status,
                attempt.counts,
                attempt.started_at,
                attempt.last_at,
                attempt.setup.model,
                view.rows(attempt.id)
            )));
        }
    }
    events.push(Value::String(format!(
        "{:?} {:?} {:.9} {:?} {:?} {} {:?}",
        view.state.loss_counts,
        view.state.last_entry_at,
        view.state.spent_usd,
        info.started_at,
        info.title,
        info.format,
        view.messages()
    )));
    events
}

/// Every transcript of the fixtures: captures, and session files with their sub-agents.
fn transcripts() -> Vec<PathBuf> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut files: Vec<PathBuf> = Vec::new();
    let mut folders = vec![fixtures.join("captures"), fixtures.join("sessions")];
    files.push(fixtures.join("transcripts/session-compaction-replays-history.jsonl"));
    files.push(fixtures.join("transcripts/session-rewound-branch.jsonl"));
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "jsonl")
                && !path.ends_with("journal.jsonl")
                && !path.ends_with("timeline.jsonl")
            {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

#[test]
fn every_spelling_of_a_transcript_is_the_same_run() {
    let files = transcripts();
    assert!(files.len() > 150, "{}", files.len());
    let dir = tempfile::tempdir().unwrap();
    for path in &files {
        let Ok(source) = FileSource::open(path) else {
            continue;
        };
        let expected = events_of(path);
        let side = path.with_extension("");
        for spelling in SPELLINGS {
            let copy = dir.path().join(format!("{spelling:?}"));
            fs::create_dir_all(&copy).unwrap();
            let twin = copy.join(path.file_name().unwrap());
            spelling.copy(path, &twin);
            if side.is_dir() {
                spelling.copy(&side, &copy.join(side.file_name().unwrap()));
            }
            let found = events_of(&twin);
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found, expected, "{} {spelling:?}", path.display());
            }
            assert_eq!(
                found.len(),
                expected.len(),
                "{} {spelling:?}",
                path.display()
            );
            assert_eq!(
                FileSource::open(&twin).unwrap().is_session_file(),
                source.is_session_file()
            );
            fs::remove_dir_all(&copy).unwrap();
        }
    }
}

#[test]
fn list_of_sessions_does_not_depend_on_the_spelling() {
    let fixture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sessions/-home-dev-project");
    let listed = |folder: &Path| {
        let list = claude_sessions::records_in(folder, 99).unwrap();
        list.files
            .into_iter()
            .map(|file| (file.title, file.cost_usd))
            .collect::<Vec<_>>()
    };
    let expected = listed(&fixture);
    for spelling in SPELLINGS {
        let dir = tempfile::tempdir().unwrap();
        spelling.copy(&fixture, dir.path());
        assert_eq!(listed(dir.path()), expected, "{spelling:?}");
    }
}
