//! Tests of session files that are shown before all of them is read.

use std::path::PathBuf;

use super::*;
use ingestdeck_core::run::{
    EntrySource as _, PollStatus, Timeline,
    entry_search::{EntryBatch, TextMatcher},
    entry_source::EntryScope,
};

fn transcript(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures/transcripts")
        .join(name)
}

/// A session file that is read alone, however small it is.
fn alone(path: &Path) -> FileSource {
    let (_, file) = open_file(path).unwrap();
    let source = FileSource::from_file(path, file).unwrap();
    let session = session_tape::read_alone(path, &source.core.file, source.length()).unwrap();
    source.merged(session).0
}

/// Number, unit and content of an entry.
type SessionEntry = (u64, String, Vec<u8>);

fn read_all(source: &mut FileSource, max_bytes: usize) -> Vec<SessionEntry> {
    let mut found = Vec::new();
    while source
        .poll(max_bytes, &mut |entry| {
            let unit = match entry.scope {
                EntryScope::Attempt(unit, 1) => unit.to_owned(),
                _ => String::new(),
            };
            found.push((entry.seq.0, unit, entry.body.bytes().to_vec()));
        })
        .unwrap()
        != PollStatus::End
    {}
    found
}

#[test]
fn lines_that_do_not_count_are_the_same_without_a_tape() {
    for name in [
        "session-compaction-replays-history.jsonl",
        "session-rewound-branch.jsonl",
    ] {
        let path = transcript(name);
        let (mut merged, mut single) = (FileSource::open(&path).unwrap(), alone(&path));
        let (merged, found) = (read_all(&mut merged, 1), read_all(&mut single, 1));
        let bodies = |entries: &[SessionEntry]| -> Vec<Vec<u8>> {
            entries.iter().map(|(.., body)| body.clone()).collect()
        };
        assert_eq!(bodies(&found), bodies(&merged), "{name}");
        for (position, (seq, _, body)) in found.iter().enumerate() {
            assert_eq!(*seq, position as u64);
            // Each entry can be read again, and reading can continue at each.
            let mut again = Vec::new();
            assert!(
                single
                    .read(Seq(*seq), &mut |entry| {
                        assert_eq!(entry.seq.0, *seq);
                        again = entry.body.bytes().to_vec();
                    })
                    .unwrap()
            );
            assert_eq!(again, *body);
            single.rewind(Seq(*seq)).unwrap();
            assert_eq!(read_all(&mut single, 1 << 20), found[position..]);
        }
        assert_eq!(single.known_entries(), Some(found.len() as u64));
        // The state is that of the merged session, too, whose unit has the name of the file.
        let state = |source| {
            let mut timeline = Timeline::new(Box::new(source));
            timeline.seek(u64::MAX).unwrap();
            let view = timeline.view();
            let attempt = view.state.units[0].latest().unwrap();
            (
                view.state.units.len(),
                attempt.counts,
                view.rows(attempt.id).len(),
            )
        };
        assert_eq!(
            state(alone(&path)),
            state(FileSource::open(&path).unwrap()),
            "{name}"
        );
    }
}

/// A session was resumed under another id, and once more under its own; then a person took a turn back.
#[test]
fn a_session_whose_id_changes_and_returns_is_one_unit() {
    let line = |number: usize, session: &str, kind: &str| {
        let parent = number.saturating_sub(if number == 9 { 3 } else { 1 });
        let content = match kind {
            "user" => serde_json::json!(format!("request {number}")),
            _ => serde_json::json!([{"type": "text", "text": format!("answer {number}")}]),
        };
        serde_json::json!({
            "type": kind, "sessionId": session, "uuid": format!("u{number}"),
            "parentUuid": (number > 1).then(|| format!("u{parent}")),
            "timestamp": format!("2026-01-01T00:00:{number:02}.000Z"),
            "message": {"role": kind, "id": format!("m{number}"), "content": content,
                "stop_reason": (kind == "assistant").then_some("end_turn")},
        })
        .to_string()
    };
    let lines: Vec<String> = (1..=10)
        .map(|number| {
            let session = if (3..=4).contains(&number) { "b" } else { "a" };
            line(
                number,
                session,
                if number % 2 == 1 { "user" } else { "assistant" },
            )
        })
        .collect();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.jsonl");
    std::fs::write(&path, lines.join("\n")).unwrap();
    let state = |source| {
        let mut timeline = Timeline::new(Box::new(source));
        timeline.seek(u64::MAX).unwrap();
        let view = timeline.view();
        let attempts: Vec<_> = view
            .state
            .units
            .iter()
            .map(|unit| {
                let attempt = unit.latest().unwrap();
                (
                    unit.key.clone(),
                    unit.attempts.len(),
                    attempt.counts,
                    view.rows(attempt.id).len(),
                )
            })
            .collect();
        attempts
    };
    let mut single = alone(&path);
    let found = read_all(&mut single, 1);
    assert!(found.iter().all(|(_, unit, _)| unit == "a"), "{found:?}");
    for (position, (seq, ..)) in found.iter().enumerate() {
        single.rewind(Seq(*seq)).unwrap();
        assert_eq!(read_all(&mut single, 1 << 20), found[position..]);
    }
    let merged = state(FileSource::open(&path).unwrap());
    assert_eq!(merged.len(), 1);
    assert_eq!(state(alone(&path)), merged);
}

#[test]
fn notes_between_the_lines_are_searched() {
    let mut source = alone(&transcript("session-compaction-replays-history.jsonl"));
    let found = read_all(&mut source, 1 << 20);
    for query in ["repeated after", "document the berths", "continue"] {
        let matcher = TextMatcher::new(query).unwrap();
        let seqs: Vec<Seq> = found.iter().map(|(seq, ..)| Seq(*seq)).collect();
        let mut batch = EntryBatch::new(seqs);
        while !batch.is_complete() {
            source.search(&matcher, &mut batch, 1).unwrap();
        }
        let expected: Vec<bool> = found.iter().map(|(.., body)| matcher.is_in(body)).collect();
        assert!(expected.contains(&true), "{query}");
        let matches: Vec<bool> = found
            .iter()
            .map(|(seq, ..)| batch.is_match(Seq(*seq)))
            .collect();
        assert_eq!(matches, expected, "{query}");
    }
}
