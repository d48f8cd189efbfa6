//! Heads of huge lines: equal to the start of the line, with its time, and read without the rest.

use std::{fs, io::Write as _};

use ingestdeck_core::{
    run::{EntrySource, PollStatus},
    tape::{EntryBody, FORMAT_VERSION, Header, Millis, RunId, Seq, TapeEntry},
};
use ingestdeck_records::replay::FileSource;
use serde_json::json;

/// Size of a huge text in bytes.
const HUGE: usize = 6 << 20;
/// Size of the requested heads in bytes.
const MOST: usize = 100_000;

/// Number of bytes that this thread has read from files so far.
fn bytes_read() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/io").unwrap();
    text.lines()
        .find_map(|line| line.strip_prefix("rchar: ")?.parse().ok())
        .unwrap()
}

fn source(bytes: &[u8]) -> FileSource {
    let mut file = tempfile::Builder::new()
        .suffix(".jsonl")
        .tempfile()
        .unwrap();
    file.write_all(bytes).unwrap();
    let mut source = FileSource::open(file.path()).unwrap();
    while source.poll(64 << 10, &mut |_| {}).unwrap() == PollStatus::More {}
    source
}

/// Compares the head of every entry with the complete entry. `escaped` entries are larger on the tape than in memory.
fn compare(source: &mut FileSource, entries: u64, escaped: bool) {
    for seq in 0..entries {
        let mut whole = None;
        source
            .read(Seq(seq), &mut |arrived| {
                whole = Some((arrived.at, arrived.body.bytes().to_vec()))
            })
            .unwrap();
        let (at, whole) = whole.unwrap();
        let (before, mut is_checked) = (bytes_read(), false);
        let found = source.read_head(Seq(seq), MOST, &mut |arrived, size| {
            let head = arrived.body.bytes();
            assert_eq!(arrived.at, at, "entry {seq}");
            assert!(
                whole.starts_with(head) && head.len() >= MOST.min(whole.len()) / 2,
                "entry {seq}"
            );
            assert!(
                head.len() <= MOST + 8192,
                "entry {seq} has a head of {} bytes",
                head.len()
            );
            assert!(
                size == whole.len() as u64 || (escaped && size > whole.len() as u64),
                "entry {seq}: {size}"
            );
            is_checked = true;
        });
        assert!(found.unwrap() && is_checked);
        let read = bytes_read() - before;
        assert!(
            read < 4 * MOST as u64,
            "{read} bytes were read for a head of entry {seq}"
        );
    }
    assert!(
        !source
            .read_head(Seq(entries), MOST, &mut |_, _| {})
            .unwrap()
    );
}

#[test]
fn heads_of_a_tape_match_full_entries() {
    let header = Header {
        tape: FORMAT_VERSION,
        program: "ingestdeck test".into(),
        run: RunId(uuid::Uuid::nil()),
        started_at: "2026-01-01T00:00:00Z".parse().unwrap(),
        project: None,
        scripted: false,
        agent: None,
    };
    let text = "all work and no \"play\" ".repeat(HUGE / 23);
    let line =
        json!({"type": "user", "message": {"content": [{"type": "tool_result", "content": text}]}})
            .to_string();
    let bodies = [
        EntryBody::Stdout(br#"{"type":"x"}"#),
        EntryBody::Stdout(line.as_bytes()),
        EntryBody::Stdin(line.as_bytes()),
        EntryBody::Note(line.as_bytes()),
        EntryBody::Stdout(br#"{"type":"y"}"#),
    ];
    let texts = [
        EntryBody::Stderr(text.as_str().into()),
        EntryBody::StdoutRaw(text.as_bytes().into()),
    ];
    for (bodies, escaped) in [(&bodies[..], false), (&texts[..], true)] {
        let mut bytes = header.to_line();
        for (seq, body) in (0..).zip(bodies) {
            let lane = Some(("dbt-all".into(), 1));
            TapeEntry {
                seq: Seq(seq),
                at: Millis(seq * 1000),
                attempt: lane,
                body: body.clone(),
            }
            .write(&mut bytes);
        }
        compare(&mut source(&bytes), bodies.len() as u64, escaped);
    }
}

#[test]
fn heads_of_captures_match_full_entries() {
    let text = "all work and no \"play\" ".repeat(HUGE / 23);
    for id in ["session_id", "sessionId"] {
        let mut bytes = Vec::new();
        for (second, text) in ["a", &text, "b"].into_iter().enumerate() {
            // The time comes after the huge value, as in real captures.
            let line = json!({"type": "user", "message": {"role": "user", "content": text}, id: "s-1", "uuid": format!("u-{second}"),
                "timestamp": format!("2026-01-31T10:00:{second:02}.250Z")});
            writeln!(bytes, "{line}\r\n").unwrap();
        }
        compare(&mut source(&bytes), 3, false);
    }
}
