//! Replay sources with real files: every format, any chunk size, growth, damage.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use ingestdeck_core::{
    diagnostic::Diagnostic as _,
    run::{
        Timeline,
        entry_source::{EntryRef, EntryScope, EntrySource, PollStatus},
    },
    tape::{EntryBody, Seq},
};
use ingestdeck_records::replay::{
    self, FileSource, OpenError, detect::InputFormat, detect::UnsupportedInput,
};
use proptest::prelude::*;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::support::fuzz::fuzz;

/// A copy of an entry that outlives its source's buffer.
#[derive(Clone, Debug, PartialEq)]
struct OwnedEntry {
    seq: u64,
    at: u64,
    lane: String,
    body: String,
    intact: bool,
}

fn keep(arrived: &EntryRef<'_>) -> OwnedEntry {
    let lane = match arrived.scope {
        EntryScope::Run => "run".into(),
        EntryScope::Attempt(unit, number) => format!("{unit}#{number}"),
        EntryScope::BySession => "session".into(),
    };
    let body = match &arrived.body {
        EntryBody::Stdout(bytes) => format!("out {}", String::from_utf8_lossy(bytes)),
        EntryBody::Stdin(bytes) => format!("in {}", String::from_utf8_lossy(bytes)),
        EntryBody::Note(bytes) => format!("note {}", String::from_utf8_lossy(bytes)),
        EntryBody::StdoutRaw(bytes) => format!("raw {bytes:?}"),
        EntryBody::Stderr(text) => format!("err {text}"),
    };
    OwnedEntry {
        seq: arrived.seq.0,
        at: arrived.at.0,
        lane,
        body,
        intact: arrived.is_well_formed,
    }
}

/// Polls until nothing more is available, in steps of `step` bytes.
fn drain(source: &mut impl EntrySource, step: usize) -> (Vec<OwnedEntry>, PollStatus) {
    let mut kept = Vec::new();
    loop {
        match source
            .poll(step, &mut |arrived| kept.push(keep(&arrived)))
            .unwrap()
        {
            PollStatus::More => {}
            progress => return (kept, progress),
        }
    }
}

fn read(source: &mut impl EntrySource, seq: u64) -> Option<OwnedEntry> {
    let mut kept = None;
    let found = source
        .read(Seq(seq), &mut |arrived| kept = Some(keep(&arrived)))
        .unwrap();
    assert_eq!(found, kept.is_some());
    kept
}

struct ScratchDir {
    directory: tempfile::TempDir,
}

impl ScratchDir {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path
    }
}

const HEADER: &str = r#"{"tape":1,"program":"p","run":"00000000-0000-0000-0000-000000000007","started_at":"2026-01-01T00:00:00Z"}"#;

#[test]
fn tape_entries_have_lanes_and_times() {
    let scratch = ScratchDir::new();
    let text = format!(
        "{HEADER}\n\
         {{\"seq\":0,\"at\":5,\"note\":{{\"kind\":\"limit_lifted\"}}}}\n\
         {{\"seq\":1,\"at\":7,\"unit\":\"u\",\"try\":2,\"out\":{{\"type\":\"x\"}}}}\n\
         {{\"seq\":2,\"at\":9,\"unit\":\"u\",\"try\":2,\"err\":\"oh\"}}\n\
         {{\"seq\":3,\"at\":11,\"unit\":\"u\",\"tr"
    );
    let mut source = FileSource::open(&scratch.file("anything.bin", text)).unwrap();
    assert_eq!(source.info().format, InputFormat::Tape.description());
    assert!(source.info().has_times);
    assert_eq!(source.info().name, "00000000-0000-0000-0000-000000000007");
    let (kept, progress) = drain(&mut source, usize::MAX);
    assert_eq!(progress, PollStatus::End);
    let lines: Vec<String> = kept
        .iter()
        .map(|kept| format!("{} {} {}", kept.at, kept.lane, kept.body))
        .collect();
    assert_eq!(
        lines[..3],
        [
            "5 run note {\"kind\":\"limit_lifted\"}".to_owned(),
            "7 u#2 out {\"type\":\"x\"}".to_owned(),
            "9 u#2 err oh".to_owned(),
        ]
    );
    // The torn last line is an entry with a mark, and has the time of the line before it.
    assert_eq!((kept[3].intact, kept[3].at), (false, 9));
    assert_eq!(read(&mut source, 3), Some(kept[3].clone()));
    assert_eq!(read(&mut source, 4), None);
}

#[test]
fn capture_times_are_relative_to_the_first() {
    let scratch = ScratchDir::new();
    let text = concat!(
        "{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"s\"}\n",
        "{\"type\":\"user\",\"session_id\":\"s\",\"uuid\":\"u\",\"timestamp\":\"2026-01-01T00:00:01Z\"}\n",
        "\n",
        "{\"type\":\"x\",\"session_id\":\"s\"}\n",
        "{\"type\":\"user\",\"session_id\":\"s\",\"uuid\":\"u\",\"timestamp\":\"2026-01-01T00:00:03.250Z\"}\n",
        "{\"type\":\"user\",\"session_id\":\"s\",\"uuid\":\"u\",\"timestamp\":\"2025-01-01T00:00:00Z\"}\n",
    );
    let mut source = FileSource::open(&scratch.file("a", text)).unwrap();
    let (kept, _) = drain(&mut source, 1);
    assert_eq!(
        kept.iter().map(|kept| kept.at).collect::<Vec<_>>(),
        [0, 0, 0, 2250, 0]
    );
    assert_eq!(
        source.info().started_at.unwrap().to_string(),
        "2026-01-01T00:00:01Z"
    );
    for entry in kept.iter().rev() {
        assert_eq!(read(&mut source, entry.seq).as_ref(), Some(entry));
    }
}

#[test]
fn file_without_times_is_paced_with_a_notice() {
    let scratch = ScratchDir::new();
    let mut source = FileSource::open(&scratch.file("a", "{\"type\":\"x\"}\n".repeat(3))).unwrap();
    assert!(!source.info().has_times);
    let (kept, _) = drain(&mut source, 1);
    assert_eq!(
        kept.iter().map(|kept| kept.at).collect::<Vec<_>>(),
        [0, 100, 200]
    );
}

#[test]
fn pretty_printed_document_is_one_entry_on_one_line() {
    let scratch = ScratchDir::new();
    let mut source =
        FileSource::open(&scratch.file("a", "{\r\n \"type\":\n  \"result\",\"a\":\"b\\n\"\n}\n"))
            .unwrap();
    assert_eq!(source.info().format, InputFormat::Document.description());
    let (kept, progress) = drain(&mut source, 1);
    assert_eq!(progress, PollStatus::End);
    assert_eq!(kept.len(), 1);
    assert_eq!(
        kept[0].body,
        "out {   \"type\":   \"result\",\"a\":\"b\\n\" }"
    );
    assert_eq!(read(&mut source, 0).as_ref(), Some(&kept[0]));
}

#[test]
fn unsupported_files_are_refused_by_kind() {
    let scratch = ScratchDir::new();
    let open = |path: &Path| FileSource::open(path).unwrap_err();
    assert!(matches!(
        open(&scratch.path("missing")),
        OpenError::NotFound { .. }
    ));
    assert!(matches!(
        open(scratch.directory.path()),
        OpenError::Directory { .. }
    ));
    let newer = open(&scratch.file("newer", "{\"tape\":9}\n"));
    assert!(
        newer.to_line().ends_with(
            "tape format 9 is newer than this program reads (1); use a newer ingestdeck"
        )
    );
    let binary = open(&scratch.file(
        "image",
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\x00\xff\xfe",
    ));
    assert!(
        matches!(
            binary,
            OpenError::Unsupported {
                refusal: UnsupportedInput::Binary,
                ..
            }
        ),
        "{binary}"
    );
    let packed = open(&scratch.file("t.gz", b"\x1f\x8b\x08\x00"));
    assert!(packed.to_line().contains("zcat"), "{packed}");
    let torn = open(&scratch.file("t.zst", b"\x28\xb5\x2f\xfd\x04\x00"));
    assert!(torn.to_string().contains("t.zst"), "{torn}");
    let text = open(&scratch.file("notes", "just text\n"));
    assert!(text.to_string().contains("\"just text\""), "{text}");
}

/// The format is detected by content, not by name.
#[test]
fn compressed_tape_reads_like_plain_tape() {
    let scratch = ScratchDir::new();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let tape = fs::read(fixtures.join("tapes/demo.jsonl")).unwrap();
    let packed_tape = compress_to_vec(tape.as_slice(), CompressionLevel::Fastest);
    // By the `zstd` library: two frames with checksums and the largest window, and one to skip between them.
    let packed_capture = fs::read(fixtures.join("packed/success_tools.jsonl.zst")).unwrap();
    for (name, packed) in [
        ("tapes/demo.jsonl", packed_tape),
        ("captures/success_tools.jsonl", packed_capture),
    ] {
        let packed = scratch.file("record", packed);
        let (mut plain, mut unpacked) = (
            FileSource::open(&fixtures.join(name)).unwrap(),
            FileSource::open(&packed).unwrap(),
        );
        assert_eq!(unpacked.info().format, plain.info().format);
        let (expected, _) = drain(&mut plain, 1 << 20);
        let mut found = Vec::new();
        while found.len() < expected.len() {
            let (more, progress) = drain(&mut unpacked, 1 << 20);
            found.extend(more);
            assert!(progress != PollStatus::End || found.len() == expected.len());
        }
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn empty_file_opens_and_ends() {
    let scratch = ScratchDir::new();
    let mut source = FileSource::open(&scratch.file("empty.jsonl", "")).unwrap();
    assert_eq!(drain(&mut source, 1), (vec![], PollStatus::End));
    assert_eq!(
        (source.info().format, source.info().fallback_unit.as_str()),
        ("empty file", "empty")
    );
    source.rewind(Seq(0)).unwrap();
}

#[test]
fn pipe_is_read_like_a_file_and_can_be_read_again() {
    let scratch = ScratchDir::new();
    let path = scratch.path("pipe");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let writer = std::thread::spawn({
        let path = path.clone();
        move || {
            let mut pipe = File::options().write(true).open(path).unwrap();
            for number in 0..2000 {
                writeln!(
                    pipe,
                    "{{\"type\":\"x\",\"session_id\":\"s\",\"n\":{number}}}"
                )
                .unwrap();
            }
            write!(pipe, "{{\"torn").unwrap();
        }
    });
    let mut source = replay::FileSource::open(&path).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut kept = Vec::new();
    loop {
        let (more, progress) = drain(&mut source, 4096);
        kept.extend(more);
        if progress == PollStatus::End {
            break;
        }
        assert!(Instant::now() < deadline, "the pipe did not end in time");
        crate::support::pause_before_check();
    }
    writer.join().unwrap();
    assert_eq!(kept.len(), 2001);
    assert_eq!(kept[2000].body, "out {\"torn");
    assert_eq!(read(&mut source, 1234).as_ref(), Some(&kept[1234]));
}

/// A reader of a growing run seeks back from its very end; meanwhile, nothing new was written.
#[test]
fn growing_tape_continues_after_a_seek_back() {
    let scratch = ScratchDir::new();
    let tape = std::fs::read(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tapes/demo.jsonl"),
    )
    .unwrap();
    let half = memchr::memrchr(b'\n', &tape[..tape.len() / 2]).unwrap() + 1;
    let path = scratch.file("tape", &tape[..half]);
    let (source, finish) = FileSource::follow(&path).unwrap();
    let mut timeline = Timeline::new(Box::new(source));
    while timeline.advance(1 << 20, &mut |_| {}).unwrap() == PollStatus::More {}
    let entries = timeline.view().state.entries;
    timeline.seek(0).unwrap();
    timeline.advance(1, &mut |_| {}).unwrap();
    assert_eq!(
        timeline.prefetch(1 << 20).unwrap(),
        PollStatus::Waiting,
        "nothing was appended"
    );
    assert_eq!(timeline.known_entries(), entries);
    std::fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap()
        .write_all(&tape[half..])
        .unwrap();
    finish.finish();
    while timeline.prefetch(1 << 20).unwrap() != PollStatus::End {}
    let all = memchr::memchr_iter(b'\n', &tape).count() as u64 - 1;
    assert_eq!(timeline.known_entries(), all);
    timeline.seek(all).unwrap();
    assert_eq!(timeline.view().state.entries, all);
}

#[test]
fn followed_file_that_shrinks_is_reported() {
    let scratch = ScratchDir::new();
    let path = scratch.file("a", "{\"type\":\"x\"}\n{\"type\":\"y\"}\n");
    let (mut source, _finish) = FileSource::follow(&path).unwrap();
    assert_eq!(drain(&mut source, 1).1, PollStatus::Waiting);
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(3)
        .unwrap();
    let error = source.poll(1, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("it shrank"), "{error}");

    let path = scratch.file("b", "{\"type\":\"x\"}\n");
    let (mut source, _finish) = FileSource::follow(&path).unwrap();
    drain(&mut source, 1);
    fs::rename(scratch.file("c", "{\"type\":\"z\"}\n"), &path).unwrap();
    let error = source.poll(1, &mut |_| {}).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("it was replaced by another file"),
        "{error}"
    );
}

#[test]
fn shrinking_finished_file_is_an_error_without_panic() {
    let scratch = ScratchDir::new();
    let path = scratch.file("a", "{\"type\":\"x\"}\n".repeat(100_000));
    let mut source = FileSource::open(&path).unwrap();
    source.poll(100, &mut |_| {}).unwrap();
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(50)
        .unwrap();
    let error = loop {
        match source.poll(1 << 16, &mut |_| {}) {
            Ok(PollStatus::More) => {}
            Ok(progress) => unreachable!("{progress:?} on a file that was cut"),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("it shrank"), "{error}");
    assert!(source.read(Seq(6), &mut |_| {}).is_err());
}

/// Valid lines, and invalid ones.
fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => (0..100_u32).prop_map(|n| format!("{{\"type\":\"user\",\"session_id\":\"s\",\"n\":{n}}}")),
        2 => (10..60_u32).prop_map(|n| format!(
            "{{\"type\":\"user\",\"timestamp\":\"2026-01-01T00:00:{n}Z\",\"sessionId\":\"s\"}}"
        )),
        2 => (0..50_u32, 0..99_u32).prop_map(|(at, n)| format!(
            "{{\"seq\":{n},\"at\":{at},\"unit\":\"u\",\"try\":1,\"out\":{{\"type\":\"x\"}}}}"
        )),
        1 => (0..90_u32).prop_map(|n| format!("{{\"t\":{n}.5,\"dir\":\"->\",\"msg\":{{\"type\":\"x\"}}}}")),
        1 => Just(String::new()),
        1 => Just("  \r".to_owned()),
        1 => "[ -~é]{0,30}",
        1 => Just(format!("{{\"type\":\"user\",\"session_id\":\"s\",\"pad\":\"{}\"}}", "x".repeat(70_000))),
    ]
}

fn content() -> impl Strategy<Value = String> {
    (
        any::<bool>(),
        prop::collection::vec(line(), 0..30),
        any::<bool>(),
    )
        .prop_map(|(tape, lines, ended)| {
            let head = if tape {
                format!("{HEADER}\n")
            } else {
                String::new()
            };
            let end = if ended { "\n" } else { "" };
            head + &lines.join("\n") + end
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn entries_do_not_depend_on_chunks_rewinds_or_reads(
        content in content(),
        step in 1..5000_usize,
        looks in prop::collection::vec(any::<prop::sample::Index>(), 1..8),
        ahead in 0..100_000_usize,
    ) {
        let scratch = ScratchDir::new();
        let path = scratch.file("a", &content);
        let Ok(mut source) = FileSource::open(&path) else { return Ok(()) };
        let (whole, progress) = drain(&mut source, usize::MAX);
        prop_assert_eq!(progress, PollStatus::End);
        prop_assert!(whole.iter().enumerate().all(|(position, kept)| kept.seq == position as u64));

        let mut pieces = FileSource::open(&path).unwrap();
        pieces.index().advance(ahead).unwrap();
        prop_assert_eq!(&drain(&mut pieces, step).0, &whole);
        prop_assert_eq!(pieces.index().len(), whole.len() as u64);
        // Some files are read from a repaired copy, which may be shorter.
        prop_assert_eq!(pieces.position(), source.position());

        for look in looks {
            if whole.is_empty() {
                break;
            }
            let at = look.index(whole.len());
            let kept = read(&mut pieces, at as u64);
            prop_assert_eq!(kept.as_ref(), Some(&whole[at]));
            pieces.rewind(Seq(at as u64)).unwrap();
            prop_assert_eq!(&drain(&mut pieces, step).0, &whole[at..]);
        }
    }

    #[test]
    fn growing_file_ends_like_the_complete_file(content in content(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6)) {
        // A list over several lines is recognized only in a file that does not grow.
        prop_assume!(!content.lines().any(|line| line.trim_start().starts_with('[')));
        let scratch = ScratchDir::new();
        let Ok(mut source) = FileSource::open(&scratch.file("whole", &content)) else { return Ok(()) };
        let whole = drain(&mut source, usize::MAX).0;

        // The format of a growing file is known from its first line.
        let first = content.find('\n').map_or(content.len(), |end| end + 1);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(content.len() + 1).max(first)).collect();
        cuts.sort_unstable();
        cuts.push(content.len());
        let path = scratch.file("growing", &content[..first]);
        let (mut growing, finish) = FileSource::follow(&path).unwrap();
        prop_assume!(growing.info().format == source.info().format && growing.info().has_times == source.info().has_times);
        let mut file = File::options().append(true).open(&path).unwrap();
        let mut kept = Vec::new();
        let mut written = first;
        for cut in cuts {
            file.write_all(&content.as_bytes()[written..cut]).unwrap();
            written = cut;
            let (more, progress) = drain(&mut growing, 1000);
            prop_assert_eq!(progress, PollStatus::Waiting);
            kept.extend(more);
        }
        finish.finish();
        let (more, progress) = drain(&mut growing, 1000);
        prop_assert_eq!(progress, PollStatus::End);
        kept.extend(more);
        prop_assert_eq!(kept, whole);
    }
}

/// The format of a capture, by the file name that its recorder chose.
fn expected(name: &str, length: usize) -> InputFormat {
    if length == 0 {
        InputFormat::Empty
    } else if name.starts_with("ondisk_") {
        InputFormat::SessionFile
    } else if name.ends_with(".transcript.jsonl") || name.ends_with("_control.jsonl") {
        InputFormat::TwoWay
    } else {
        InputFormat::Capture
    }
}

#[test]
fn every_capture_opens_and_reads_in_both_directions() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/captures");
    let mut seen = 0;
    for folder in [root.clone(), root.join("versions")] {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if !name.contains(".json") {
                continue;
            }
            seen += 1;
            if name.starts_with("request_") || name.ends_with(".meta.json") {
                let error = FileSource::open(&path).unwrap_err();
                assert!(
                    error
                        .to_string()
                        .contains("none of its lines belongs to a transcript"),
                    "{error}"
                );
                continue;
            }
            let content = fs::read(&path).unwrap();
            let mut source = FileSource::open(&path).unwrap();
            let format = expected(&name, content.len());
            assert_eq!(source.info().format, format.description(), "{name}");
            let (kept, progress) = drain(&mut source, 700);
            assert_eq!(progress, PollStatus::End);
            let lines = content
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.is_empty())
                .count();
            assert_eq!(kept.len(), lines, "{name}");
            assert!(
                kept.iter()
                    .all(|entry| entry.intact && !entry.body.starts_with("raw")),
                "{name}"
            );
            if matches!(format, InputFormat::SessionFile | InputFormat::TwoWay) {
                assert!(
                    source.info().has_times && kept.iter().any(|entry| entry.at > 0),
                    "{name}"
                );
            }
            for entry in kept.iter().rev() {
                assert_eq!(read(&mut source, entry.seq).as_ref(), Some(entry), "{name}");
            }
        }
    }
    assert!(seen > 120, "{seen} captures");
}

#[test]
fn prefetch_counts_without_folding() {
    let scratch = ScratchDir::new();
    let path = scratch.file("a", "{\"type\":\"x\"}\n\n".repeat(5000));
    let mut source = FileSource::open(&path).unwrap();
    assert_eq!(source.known_entries(), Some(0));
    let before = source.position();
    while source.scan_ahead(1000).unwrap() == PollStatus::More {}
    assert_eq!(
        (source.known_entries(), source.position()),
        (Some(5000), before)
    );
    // Prefetched entries can be read before they are polled.
    assert_eq!(read(&mut source, 4999).map(|kept| kept.at), Some(499_900));
    assert_eq!(drain(&mut source, 1 << 20).0.len(), 5000);
}

#[test]
fn fuzzed_records_open_or_are_refused() {
    let records = [
        include_str!("../fixtures/tapes/demo.jsonl"),
        include_str!("../fixtures/captures/success_tools.jsonl"),
        include_str!("../fixtures/captures/ondisk_session.jsonl"),
    ];
    let corpus: Vec<Vec<u8>> = records
        .iter()
        .map(|text| text.bytes().take(20_000).collect())
        .collect();
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("record.jsonl");
    fuzz("records", &corpus, |bytes| {
        fs::write(&path, bytes).unwrap();
        let Ok(mut source) = FileSource::open(&path) else {
            return;
        };
        let (entries, _) = drain(&mut source, 1 << 20);
        for (seq, entry) in entries.iter().enumerate().step_by(7) {
            assert_eq!(read(&mut source, seq as u64).as_ref(), Some(entry));
        }
    });
}
