//! Search for text in recorded runs: the search in blocks of a file finds what reading every entry finds, in every
//! format, direction and case.

use std::{fs, io::Write as _, path::Path};

use ingestdeck_core::{
    run::{
        EntryRef, EntrySource, EntrySourceError, PollStatus, SeekTarget, SourceInfo, Timeline,
        entry_search::{EntryBatch, TextMatcher},
        state::AttemptId,
    },
    tape::{EntryBody, FORMAT_VERSION, Header, Millis, RunId, Seq, TapeEntry},
};
use ingestdeck_records::replay::FileSource;
use ingestdeck_tui::{
    cache::ScreenCache,
    effect::{SearchRequest, SearchScope},
    text_search::{SearchProgress, TextSearch},
};
use proptest::prelude::*;
use serde_json::json;

/// A file whose entries can only be searched one by one.
struct UnindexedSource(FileSource);

impl EntrySource for UnindexedSource {
    fn info(&self) -> &SourceInfo {
        self.0.info()
    }

    fn poll(
        &mut self,
        max_bytes: usize,
        sink: &mut dyn FnMut(EntryRef<'_>),
    ) -> Result<PollStatus, EntrySourceError> {
        self.0.poll(max_bytes, sink)
    }

    fn rewind(&mut self, seq: Seq) -> Result<(), EntrySourceError> {
        self.0.rewind(seq)
    }

    fn read(
        &mut self,
        seq: Seq,
        sink: &mut dyn FnMut(EntryRef<'_>),
    ) -> Result<bool, EntrySourceError> {
        self.0.read(seq, sink)
    }

    fn position(&self) -> (u64, Option<u64>) {
        self.0.position()
    }
}

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new()
        .suffix(".jsonl")
        .tempfile()
        .unwrap();
    file.write_all(bytes).unwrap();
    file
}

/// Polls the whole source. Returns the number of entries.
fn read_all(source: &mut impl EntrySource) -> u64 {
    let mut entries = 0;
    while source.poll(1 << 20, &mut |_| entries += 1).unwrap() == PollStatus::More {}
    entries
}

/// Entries of `seqs` that match, with as many calls as `max_bytes` per call requires.
fn matches(source: &mut impl EntrySource, query: &str, seqs: &[u64], max_bytes: usize) -> Vec<u64> {
    let text = TextMatcher::new(query).unwrap();
    let mut batch = EntryBatch::new(seqs.iter().copied().map(Seq).collect());
    while !batch.is_complete() {
        assert!(source.search(&text, &mut batch, max_bytes).unwrap() > 0 || batch.is_complete());
    }
    seqs.iter()
        .copied()
        .filter(|seq| batch.is_match(Seq(*seq)))
        .collect()
}

/// Searches these entries in blocks and one by one. Returns what both find.
fn matches_both_ways(bytes: &[u8], query: &str, seqs: &[u64], max_bytes: usize) -> Vec<u64> {
    SourcePair::new(bytes).matches(query, seqs, max_bytes)
}

/// A file that is searched in both ways.
struct SourcePair {
    indexed: FileSource,
    unindexed: UnindexedSource,
    _file: tempfile::NamedTempFile,
}

impl SourcePair {
    fn new(bytes: &[u8]) -> Self {
        let file = file(bytes);
        let mut indexed = FileSource::open(file.path()).unwrap();
        let mut unindexed = UnindexedSource(FileSource::open(file.path()).unwrap());
        assert_eq!(read_all(&mut indexed), read_all(&mut unindexed));
        Self {
            indexed,
            unindexed,
            _file: file,
        }
    }

    fn matches(&mut self, query: &str, seqs: &[u64], max_bytes: usize) -> Vec<u64> {
        let found = matches(&mut self.indexed, query, seqs, max_bytes);
        assert_eq!(
            found,
            matches(&mut self.unindexed, query, seqs, max_bytes),
            "{query:?}"
        );
        found
    }
}

fn header() -> Vec<u8> {
    let header = Header {
        tape: FORMAT_VERSION,
        program: "ingestdeck test".into(),
        run: RunId(uuid::Uuid::nil()),
        started_at: "2026-01-01T00:00:00Z".parse().unwrap(),
        project: None,
        scripted: false,
        agent: None,
    };
    header.to_line()
}

/// A stdout line: text, a call, a result, a fragment of a message, or the end of a session.
fn stdout_line(kind: u8, text: &str, call: u8) -> String {
    let id = format!("t{call}");
    let message = |content| json!({"type": "assistant", "session_id": "s", "message": {"content": [content]}});
    let line = match kind {
        0 => message(json!({"type": "text", "text": text})),
        1 => message(
            json!({"type": "tool_use", "id": id, "name": "Bash", "input": {"command": text}}),
        ),
        2 => json!({"type": "user", "session_id": "s", "message": {"content": [
            {"type": "tool_result", "tool_use_id": id, "content": text}]}}),
        3 => {
            json!({"type": "stream_event", "session_id": "s", "event": {"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": text}}})
        }
        _ => {
            json!({"type": "result", "session_id": "s", "subtype": "success", "result": text, "is_error": false})
        }
    };
    line.to_string()
}

/// The line as a writer that escapes all non-ASCII characters writes it.
fn in_ascii(line: &str) -> String {
    line.chars()
        .map(|char| {
            if char.is_ascii() {
                char.to_string()
            } else {
                format!("\\u{:04x}", char as u32)
            }
        })
        .collect()
}

/// A short text; different letters make it likely that searches find something.
fn text() -> impl Strategy<Value = String> {
    "[aAbé\"\\\\ ]{0,6}"
}

/// Lines of stdout: some in ASCII, some not JSON.
fn line() -> impl Strategy<Value = String> {
    (0..6_u8, text(), 0..3_u8, any::<bool>()).prop_map(|(kind, text, call, ascii)| match kind {
        5 => format!("not JSON: {text}"),
        _ if ascii => in_ascii(&stdout_line(kind, &text, call)),
        _ => stdout_line(kind, &text, call),
    })
}

fn capture() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![9 => line(), 1 => Just(String::new()), 1 => Just("  ".to_owned())];
    prop::collection::vec(line, 1..40).prop_map(|lines| {
        format!("{}\n{}", stdout_line(0, "begin", 0), lines.join("\n")).into_bytes()
    })
}

fn tape() -> impl Strategy<Value = Vec<u8>> {
    let entry = (
        0..10_u8,
        prop_oneof![Just("ab"), Just("Ab")],
        line(),
        text(),
    );
    prop::collection::vec(entry, 1..60).prop_map(|entries| {
        let mut bytes = header();
        for (seq, (kind, unit, line, text)) in (0..).zip(&entries) {
            let body = match kind {
                0 => EntryBody::Stderr(text.into()),
                1 => EntryBody::StdoutRaw(text.as_bytes().into()),
                2 => EntryBody::StdoutRaw([b"\xff", text.as_bytes()].concat().into()),
                3 => EntryBody::Stdin(line.as_bytes()),
                4 => EntryBody::Note(b"{\"kind\":\"limit_lifted\"}"),
                _ if line.starts_with('{') => EntryBody::Stdout(line.as_bytes()),
                _ => EntryBody::StdoutRaw(line.as_bytes().into()),
            };
            let attempt = (*kind != 4).then_some(((*unit).into(), 1));
            TapeEntry {
                seq: Seq(seq),
                at: Millis(seq),
                attempt,
                body,
            }
            .write(&mut bytes);
        }
        bytes
    })
}

/// The place next to `from` of which an entry matches, read one by one.
fn place_by_reading(timeline: &mut Timeline, request: &SearchRequest) -> Option<usize> {
    let text = TextMatcher::new(&request.query).unwrap();
    let entries = timeline.view().state.entries;
    let places: Vec<Vec<Seq>> = match request.scope {
        SearchScope::Rows(attempt) => {
            let rows = timeline.view().rows(attempt).iter();
            rows.map(|row| {
                [Some(row.first()), row.last(entries)]
                    .into_iter()
                    .flatten()
                    .collect()
            })
            .collect()
        }
        SearchScope::Entries(attempt) => timeline
            .view()
            .entries(attempt)
            .iter()
            .map(|seq| vec![Seq(u64::from(*seq))])
            .collect(),
        _ => unreachable!("other content is not read"),
    };
    let mut is_match = |seq: &Seq| {
        let mut found = false;
        timeline
            .read(*seq, &mut |entry| found = text.is_in(entry.body.bytes()))
            .unwrap();
        found
    };
    let hits: Vec<bool> = places
        .iter()
        .map(|entries| entries.iter().any(&mut is_match))
        .collect();
    let last = hits.len().checked_sub(1)?;
    let from = request.from.min(last);
    // With wrap-around; the first place is the last to be searched.
    let forward = (from + 1..hits.len()).chain(0..=from);
    let backward = (0..from).rev().chain((from..hits.len()).rev());
    let order: Vec<usize> = if request.forward {
        forward.collect()
    } else {
        backward.collect()
    };
    order.into_iter().find(|place| hits[*place])
}

/// The place that the search on the screen finds.
fn place_by_search(timeline: &mut Timeline, request: &SearchRequest) -> Option<usize> {
    let mut search = TextSearch::new(request.clone()).unwrap();
    loop {
        match search.slice(timeline, &ScreenCache::default()).unwrap() {
            SearchProgress::Searching => {}
            SearchProgress::Found(place) => return Some(place),
            SearchProgress::Complete => return None,
        }
    }
}

fn assert_screen_search_agrees(bytes: &[u8], query: &str, from: usize, moment: u64) {
    let file = file(bytes);
    let indexed = Box::new(FileSource::open(file.path()).unwrap());
    let unindexed = Box::new(UnindexedSource(FileSource::open(file.path()).unwrap()));
    let mut timelines = [Timeline::new(indexed), Timeline::new(unindexed)];
    for timeline in &mut timelines {
        timeline.seek(u64::MAX).unwrap();
        let entries = timeline.view().state.entries;
        timeline
            .seek_to(SeekTarget::Entries(entries - moment.min(entries)))
            .unwrap();
    }
    let attempts = u32::try_from(timelines[0].view().attempts.len()).unwrap();
    for attempt in (0..attempts).map(AttemptId) {
        for scope in [SearchScope::Rows(attempt), SearchScope::Entries(attempt)] {
            for forward in [true, false] {
                let request = SearchRequest {
                    query: query.to_owned(),
                    scope,
                    from,
                    forward,
                };
                let expected = place_by_reading(&mut timelines[0], &request);
                for timeline in &mut timelines {
                    assert_eq!(place_by_search(timeline, &request), expected, "{request:?}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn blocks_match_what_single_entries_match(
        bytes in prop_oneof![capture(), tape()],
        query in "[aAbé\"\\\\ ]{1,3}|ab|out|unit|[Aa]b",
        seqs in prop::collection::btree_set(0..64_u64, 0..64),
        max_bytes in 1..2000_usize,
    ) {
        matches_both_ways(&bytes, &query, &seqs.into_iter().collect::<Vec<_>>(), max_bytes);
    }

    #[test]
    fn screen_search_finds_what_reading_finds(
        bytes in prop_oneof![capture(), tape()],
        query in "[aAbé\"\\\\ ]{1,3}|ab|[Aa]b",
        from in 0..50_usize,
        moment in prop_oneof![Just(0), 0..20_u64],
    ) {
        assert_screen_search_agrees(&bytes, &query, from, moment);
    }
}

#[test]
fn every_capture_is_searched_like_its_entries() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut searched = 0;
    for folder in ["captures", "tapes", "ktx"].map(|folder| root.join(folder)) {
        for path in fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
        {
            let Ok(mut indexed) = FileSource::open(&path) else {
                continue;
            };
            let mut unindexed = UnindexedSource(FileSource::open(&path).unwrap());
            let all: Vec<u64> = (0..read_all(&mut indexed)).collect();
            read_all(&mut unindexed);
            for query in [
                "orders",
                "tool",
                "Read",
                "\"type\"",
                "seq",
                "é",
                "\\",
                "not in any capture",
            ] {
                let found = matches(&mut indexed, query, &all, 10_000);
                assert_eq!(
                    found,
                    matches(&mut unindexed, query, &all, 10_000),
                    "{query} in {}",
                    path.display()
                );
                searched += found.len();
            }
        }
    }
    assert!(searched > 1000, "{searched} matches");
}

#[test]
fn rare_and_far_rows_are_found_in_both_directions() {
    let mut lines: Vec<String> = (0..5000)
        .map(|row| stdout_line(0, &format!("row {row}"), 0))
        .collect();
    lines[10] = stdout_line(1, "a call", 7);
    lines[4990] = stdout_line(2, "far result", 7);
    lines[4000] = stdout_line(0, "far text", 0);
    let bytes = lines.join("\n").into_bytes();
    let file = file(&bytes);
    let mut timeline = Timeline::new(Box::new(FileSource::open(file.path()).unwrap()));
    timeline.seek(u64::MAX).unwrap();
    let scope = SearchScope::Rows(AttemptId(0));
    let mut find = |query: &str, from, forward| {
        place_by_search(
            &mut timeline,
            &SearchRequest {
                query: query.into(),
                scope,
                from,
                forward,
            },
        )
    };
    let (call, text) = (
        find("a call", 0, true).unwrap(),
        find("far text", 0, true).unwrap(),
    );
    assert!(call < text);
    // The result belongs to the row of its call.
    assert_eq!(
        (find("far", call - 1, true), find("far", text + 1, false)),
        (Some(call), Some(text))
    );
    assert_eq!(
        (find("far", call, true), find("far", text, false)),
        (Some(text), Some(call))
    );
    assert_eq!(
        (find("far result", text, true), find("absent", 17, false)),
        (Some(call), None)
    );
}

#[test]
fn content_that_the_file_encodes_is_found() {
    let mut tape = String::from_utf8(header()).unwrap();
    let entries = [
        // Text with its own escapes, which the tape escapes again.
        r#""err":"print \\\"hi\\\"""#,
        r#""raw":"caf\\u00e9""#,
        // Escapes that other writers prefer.
        r#""err":"a \u003c b\u002e""#,
        r#""raw":"x","b64":"aGlkZGVu""#,
        r#""out":{"type":"x"}"#,
    ];
    for (seq, entry) in entries.iter().enumerate() {
        tape.push_str(&format!("{{\"seq\":{seq},\"at\":{seq},{entry}}}\n"));
    }
    for (query, found) in [("t \"hi", 0), ("café", 1), ("< b.", 2), ("hidden", 3)] {
        assert_eq!(
            matches_both_ways(tape.as_bytes(), query, &[0, 1, 2, 3, 4], 1 << 20),
            [found],
            "{query}"
        );
    }
    let document = "{\n  \"type\": \"user\",\n  \"session_id\": \"s\"\n}\n";
    assert_eq!(
        matches_both_ways(document.as_bytes(), "\"user\",   \"", &[0], 1 << 20),
        [0]
    );
}

/// Long lines are searched in pieces of this size.
const PIECE: usize = 256 << 10;

#[test]
fn text_at_the_border_of_pieces_is_found() {
    for shift in 0..40 {
        let pad = "x".repeat(2 * PIECE - 100 + shift);
        let line =
            json!({"type": "user", "session_id": "s", "message": {"content": format!("{pad}needle \"é\" {pad}")}})
                .to_string();
        let small = stdout_line(0, "small", 0);
        let capture = format!("{small}\n{line}\r\n\n{small}\n");
        let mut tape = header();
        let bodies = [
            EntryBody::Stdout(line.as_bytes()),
            EntryBody::StdoutRaw(format!("{pad}\\needle \"é\" {pad}").into_bytes().into()),
            EntryBody::Stdout(small.as_bytes()),
        ];
        for (seq, body) in (0..).zip(bodies) {
            TapeEntry {
                seq: Seq(seq),
                at: Millis(seq),
                attempt: Some(("stamp".into(), 1)),
                body,
            }
            .write(&mut tape);
        }
        let (mut capture, mut tape) = (SourcePair::new(capture.as_bytes()), SourcePair::new(&tape));
        for (query, in_capture, in_tape) in [
            ("needle", &[1][..], &[0, 1][..]),
            ("NEEDLE", &[], &[]),
            ("needle \"é\" xx", &[1], &[0, 1]),
            ("\\needle", &[], &[1]),
            ("stamp", &[], &[]),
        ] {
            for max_bytes in [1, 1 << 20] {
                assert_eq!(
                    capture.matches(query, &[0, 1, 2], max_bytes),
                    in_capture,
                    "{shift}"
                );
                assert_eq!(
                    tape.matches(query, &[0, 1, 2], max_bytes),
                    in_tape,
                    "{shift}"
                );
            }
        }
    }
}

#[test]
fn long_line_is_searched_in_bounded_steps() {
    let line = stdout_line(0, &"x".repeat(40 * PIECE), 0);
    let file = file(format!("{line}\n{line}\n").as_bytes());
    let mut source = FileSource::open(file.path()).unwrap();
    read_all(&mut source);
    let text = TextMatcher::new("absent").unwrap();
    let mut batch = EntryBatch::new(vec![Seq(0), Seq(1)]);
    let mut steps = 0;
    while !batch.is_complete() {
        steps += 1;
        assert!(source.search(&text, &mut batch, 1).unwrap() < PIECE + 1000);
    }
    assert!((80..90).contains(&steps), "{steps}");
}

#[test]
fn search_in_a_file_that_shrank_is_an_error() {
    let file = file(
        format!("{}\n", stdout_line(0, "text", 0))
            .repeat(1000)
            .as_bytes(),
    );
    let mut source = FileSource::open(file.path()).unwrap();
    let entries = read_all(&mut source);
    file.as_file().set_len(100).unwrap();
    let mut batch = EntryBatch::new((0..entries).map(Seq).collect());
    let error = source
        .search(&TextMatcher::new("absent").unwrap(), &mut batch, 1 << 20)
        .unwrap_err();
    assert!(error.to_string().contains("it shrank"), "{error}");
}
