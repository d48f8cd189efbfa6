//! Reads and decodes the complete lines of a file ahead of the fold: block by block, on separate threads, returned in
//! order. The thread of the fold decodes a block itself instead of waiting for one.
//!
//! Owns the threads and a fixed number of blocks. It must not depend on the meaning of a line.

use std::{
    collections::BTreeMap,
    mem,
    num::NonZero,
    ops::Range,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread,
};

use parking_lot::{Mutex, MutexGuard};

use self_cell::self_cell;

use super::{
    file_lines::read_at,
    index::{IndexedFile, LineMark, is_blank},
    line_parser::{LineParser, ParsedLine},
    line_shortener::{GIANT, Shortener},
};
use ingestdeck_core::run::entry_source::EntrySourceError;

/// Size of a block: small enough to remain in the cache between the thread that writes it and the thread that reads it.
const BLOCK: usize = 128 << 10;

/// Blocks per thread, including the thread of the fold. Some take far longer than others, because lines differ much.
const BLOCKS_PER_THREAD: usize = 3;

/// A block that grew beyond this size for a giant line releases its memory.
const MAX_RETAINED_BLOCK: usize = 2 << 20;

/// More threads would only wait for the fold.
const MAX_THREADS: usize = 3;

type NumberedBlock = (u64, Result<ParsedBlock, EntrySourceError>);

/// A parsed line of a block.
#[derive(Debug)]
pub(super) struct PrefetchedLine<'b> {
    pub(super) mark: LineMark,
    pub(super) parsed: ParsedLine<'b>,
    /// Offset after the line.
    end: u64,
}

type PrefetchedLines<'b> = Vec<PrefetchedLine<'b>>;

self_cell!(
    /// A block and its parsed lines.
    struct ParsedBlock {
        owner: FileBlock,
        #[covariant]
        dependent: PrefetchedLines,
    }
);

/// A part of the file that consists of whole lines.
#[derive(Debug, Default)]
struct FileBlock {
    bytes: Vec<u8>,
    /// Number of valid bytes.
    filled: usize,
    /// Offset of the first byte.
    start: u64,
    /// Offset after the last byte.
    end: u64,
    /// The bytes are the shortened form of one giant line.
    is_shortened: bool,
}

/// The lines that the threads read ahead.
pub(super) struct LinePrefetcher {
    /// `None` after a panic of a thread.
    ready: Receiver<Option<NumberedBlock>>,
    /// For the thread of the fold.
    worker: ParseWorker,
    /// Blocks that arrived out of order, by number.
    out_of_order: BTreeMap<u64, Result<ParsedBlock, EntrySourceError>>,
    /// Returns blocks for reuse. The threads end when it is dropped.
    recycled: Sender<RecycledBlock>,
    /// The current block, and how many of its lines were returned.
    current: Option<(ParsedBlock, usize)>,
    /// Number of the block after it.
    next: u64,
    limit: u64,
}

/// A block that may be filled again.
enum RecycledBlock {
    Unused,
    Used(ParsedBlock),
}

impl std::fmt::Debug for LinePrefetcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinePrefetcher")
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl LinePrefetcher {
    /// Starts to read the lines at these byte offsets, which must not change; `shortens` giant lines. `None` if no thread
    /// can be started.
    pub(super) fn new(
        core: &Arc<IndexedFile>,
        reading: LineParser,
        lines: Range<u64>,
        shortens: bool,
    ) -> Option<Self> {
        // One core is for the fold.
        let threads = thread::available_parallelism()
            .map_or(1, NonZero::get)
            .saturating_sub(1)
            .clamp(1, MAX_THREADS);
        let (spent, blocks) = mpsc::channel();
        let (done, ready) = mpsc::channel();
        let Range {
            start: offset,
            end: limit,
        } = lines;
        let reader = BlockReader {
            offset,
            limit,
            number: 0,
            shorten_giant_lines: shortens,
            failed: false,
        };
        let worker = ParseWorker {
            core: Arc::clone(core),
            reading,
            blocks: Arc::new(Mutex::new(blocks)),
            reader: Arc::new(Mutex::new(reader)),
        };
        for _ in 0..(threads + 1) * BLOCKS_PER_THREAD {
            // The receiver still exists.
            let _ = spent.send(RecycledBlock::Unused);
        }
        let mut started = 0;
        for _ in 0..threads {
            let (worker, done) = (worker.clone(), done.clone());
            started += usize::from(
                thread::Builder::new()
                    .name("decode".into())
                    .spawn(move || worker.work(&done))
                    .is_ok(),
            );
        }
        (started > 0).then(|| Self {
            ready,
            worker,
            out_of_order: BTreeMap::new(),
            recycled: spent,
            current: None,
            next: 0,
            limit,
        })
    }

    /// Offset after the last line.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Passes on the lines of one block that start before `stop`. Returns the offset after the last of them, or `None`
    /// after the last line.
    pub(super) fn lines(
        &mut self,
        stop: u64,
        each: &mut dyn FnMut(&PrefetchedLine<'_>),
    ) -> Result<Option<u64>, EntrySourceError> {
        let (batch, from) = match self.current.take() {
            Some(current) => current,
            None => match self.receive() {
                Some(batch) => (batch?, 0),
                None => return Ok(None),
            },
        };
        let (upto, reached) = batch.with_dependent(|block, lines| {
            let mut upto = from;
            for line in &lines[from..] {
                each(line);
                upto += 1;
                if line.end >= stop && upto < lines.len() {
                    return (upto, line.end);
                }
            }
            (upto, block.end)
        });
        if upto < batch.borrow_dependent().len() {
            self.current = Some((batch, upto));
        } else {
            // `worker` has the receiver.
            let _ = self.recycled.send(RecycledBlock::Used(batch));
        }
        Ok(Some(reached))
    }

    /// Returns the next block in order, or `None` after the last one and after a panic of a thread.
    fn receive(&mut self) -> Option<Result<ParsedBlock, EntrySourceError>> {
        let found = loop {
            if let Some(found) = self.out_of_order.remove(&self.next) {
                break found;
            }
            let (number, batch) = match self.ready.try_recv() {
                Ok(arrived) => arrived?,
                Err(_) => self
                    .worker
                    .try_parse()
                    .or_else(|| self.ready.recv().ok()?)?,
            };
            self.out_of_order.insert(number, batch);
        };
        self.next += 1;
        Some(found)
    }
}

/// The position of the threads in the file.
#[derive(Debug)]
struct BlockReader {
    offset: u64,
    limit: u64,
    /// Number of the next block.
    number: u64,
    /// True if giant lines are shortened.
    shorten_giant_lines: bool,
    failed: bool,
}

impl BlockReader {
    fn is_at_end(&self) -> bool {
        self.failed || self.offset >= self.limit
    }

    /// Fills `block` with the next whole lines and returns its number, or `None` at the end.
    fn fill(
        &mut self,
        core: &IndexedFile,
        block: &mut FileBlock,
    ) -> Option<(u64, Result<(), EntrySourceError>)> {
        if self.is_at_end() {
            return None;
        }
        let number = self.number;
        self.number += 1;
        let result = self.read(core, block);
        self.failed = result.is_err();
        Some((number, result))
    }

    fn read(&mut self, core: &IndexedFile, block: &mut FileBlock) -> Result<(), EntrySourceError> {
        (block.start, block.filled, block.is_shortened) = (self.offset, 0, false);
        loop {
            if self.shorten_giant_lines && block.filled >= GIANT {
                return self.read_giant(core, block);
            }
            if block.bytes.len() < block.filled + BLOCK {
                block.bytes.resize((block.filled * 2).max(BLOCK), 0);
            }
            let at = self.offset + block.filled as u64;
            let spare = &mut block.bytes[block.filled..];
            let wanted =
                usize::try_from(self.limit - at).map_or(spare.len(), |left| left.min(spare.len()));
            let count = read_at(&core.file, at, &mut spare[..wanted])
                .map_err(|error| core.error(&error))?;
            if count < wanted {
                return Err(core.shrunk());
            }
            let fresh = block.filled;
            block.filled += count;
            if at + count as u64 == self.limit {
                break;
            }
            // The bytes after the last newline are read again with the next block, which is cheaper than keeping them.
            if let Some(newline) = memchr::memrchr(b'\n', &block.bytes[fresh..block.filled]) {
                block.filled = fresh + newline + 1;
                break;
            }
        }
        self.offset += block.filled as u64;
        block.end = self.offset;
        Ok(())
    }

    /// Continues the line that begins in `block`, and replaces the content of `block` by the shortened line.
    fn read_giant(
        &mut self,
        core: &IndexedFile,
        block: &mut FileBlock,
    ) -> Result<(), EntrySourceError> {
        let mut shortener = Shortener::default();
        shortener.push(&block.bytes[..block.filled]);
        block.end = self.offset + block.filled as u64;
        block.bytes = vec![0; BLOCK];
        while block.end < self.limit {
            let room =
                usize::try_from(self.limit - block.end).map_or(BLOCK, |left| left.min(BLOCK));
            let count = read_at(&core.file, block.end, &mut block.bytes[..room])
                .map_err(|error| core.error(&error))?;
            if count == 0 {
                return Err(core.shrunk());
            }
            let newline = shortener.push(&block.bytes[..count]);
            block.end += newline.map_or(count, |at| at + 1) as u64;
            if newline.is_some() {
                break;
            }
        }
        block.bytes = shortener.end();
        (block.filled, block.is_shortened) = (block.bytes.len(), true);
        self.offset = block.end;
        Ok(())
    }
}

/// Reports a panic of its thread. The fold would otherwise wait for the block of that thread, and the other threads
/// would wait for a free block.
struct PanicNotice<'a>(&'a Sender<Option<NumberedBlock>>);

impl Drop for PanicNotice<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            // The receiver is gone after the fold has ended.
            let _ = self.0.send(None);
        }
    }
}

/// What a thread needs to fill and parse blocks.
#[derive(Clone)]
struct ParseWorker {
    core: Arc<IndexedFile>,
    reading: LineParser,
    blocks: Arc<Mutex<Receiver<RecycledBlock>>>,
    reader: Arc<Mutex<BlockReader>>,
}

impl ParseWorker {
    /// Parses blocks until the file ends or the prefetcher is dropped.
    fn work(self, done: &Sender<Option<NumberedBlock>>) {
        let _notice = PanicNotice(done);
        loop {
            let spent = self.blocks.lock().recv();
            let Some(parsed) = spent.ok().and_then(|spent| self.parse(spent)) else {
                return;
            };
            if done.send(Some(parsed)).is_err() {
                return;
            }
        }
    }

    /// Parses the next block, unless the file has ended or no block is free.
    fn try_parse(&self) -> Option<NumberedBlock> {
        // At the end, the other threads need the free blocks in order to notice it.
        if self.reader().is_at_end() {
            return None;
        }
        // A thread that waits for a free block keeps the lock.
        let spent = self.blocks.try_lock()?.try_recv().ok()?;
        self.parse(spent)
    }

    /// Fills `spent` with the next lines and parses them. `None` at the end of the file.
    fn parse(&self, spent: RecycledBlock) -> Option<NumberedBlock> {
        let (mut block, lines) = match spent {
            RecycledBlock::Unused => (FileBlock::default(), Vec::new()),
            RecycledBlock::Used(mut batch) => {
                let lines = batch.with_dependent_mut(|_, lines| recycle_lines(mem::take(lines)));
                (batch.into_owner(), lines)
            }
        };
        if block.bytes.len() > MAX_RETAINED_BLOCK {
            block = FileBlock::default();
        }
        let (number, result) = self.reader().fill(&self.core, &mut block)?;
        Some((
            number,
            result
                .map(|()| ParsedBlock::new(block, |block| self.lines(block, recycle_lines(lines)))),
        ))
    }

    fn reader(&self) -> MutexGuard<'_, BlockReader> {
        self.reader.lock()
    }

    /// Parses the lines of `block` into `lines`, which is empty.
    fn lines<'b>(
        &self,
        block: &'b FileBlock,
        mut lines: PrefetchedLines<'b>,
    ) -> PrefetchedLines<'b> {
        let (mut rest, mut offset) = (&block.bytes[..block.filled], block.start);
        while !rest.is_empty() {
            let length = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
            let (line, after) = rest.split_at(length);
            let end = if block.is_shortened {
                block.end
            } else {
                offset + (length + after.len().min(1)) as u64
            };
            rest = after.get(1..).unwrap_or_default();
            if !is_blank(line) {
                let mut parsed = self.reading.parse(line);
                parsed.decode();
                let mark = LineMark::parsed(offset, parsed.at.is_some(), parsed.is_encoded());
                lines.push(PrefetchedLine { mark, parsed, end });
            }
            offset = end;
        }
        lines
    }
}

/// Reuses the memory of processed lines for the lines of another block.
fn recycle_lines<'b>(lines: PrefetchedLines<'_>) -> PrefetchedLines<'b> {
    // The standard library collects in place because the layout is the same.
    lines.into_iter().map_while(|_| None).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::{
        super::{detect::InputFormat, file::FileSource},
        *,
    };
    use ingestdeck_core::{
        run::{EntrySource as _, PollStatus, entry_source::EntryRef},
        tape::EntryBody,
    };

    /// Number, time and bytes of an entry, and whether it is decoded as expected.
    type FoundEntry = (u64, u64, Vec<u8>, bool);

    fn entry_of(entry: &EntryRef<'_>) -> FoundEntry {
        let (EntryBody::Stdout(bytes) | EntryBody::Stdin(bytes) | EntryBody::Note(bytes)) =
            &entry.body
        else {
            panic!("{:?}", entry.body);
        };
        let same = entry
            .decoded
            .is_none_or(|line| *line == ingestdeck_core::decode::decode_line(bytes));
        (entry.seq.0, entry.at.0, bytes.to_vec(), same)
    }

    /// Returns all entries of a source up to its present end, polled with this number of bytes at a time.
    fn all(source: &mut FileSource, max_bytes: usize) -> Vec<FoundEntry> {
        let mut found = Vec::new();
        loop {
            let progress = source.poll(max_bytes, &mut |entry| found.push(entry_of(&entry)));
            if progress.unwrap() != PollStatus::More {
                return found;
            }
        }
    }

    /// A file that needs several threads, with blank lines, giant lines, and no newline at the end.
    fn file() -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for number in 0..9000 {
            let text = "x".repeat(if number % 2000 == 999 {
                2_500_000
            } else {
                number % 1500
            });
            let blank = if number % 7 == 0 { "\n  \n" } else { "" };
            let minute = number % 60;
            write!(
                file,
                "{{\"type\":\"user\",\"session_id\":\"s\",\"timestamp\":\"2026-01-01T00:{minute:02}:00Z\",\
                 \"message\":{{\"content\":\"{text}\"}}}}\n{blank}"
            )
            .unwrap();
        }
        write!(file, "{{\"type\":\"user\",\"session_id\":\"s\"}}").unwrap();
        file
    }

    #[test]
    fn prefetching_keeps_entries_and_their_order() {
        let file = file();
        let mut serial = FileSource::open(file.path()).unwrap();
        let expected = all(&mut serial, 100_000);
        assert_eq!(expected.len(), 9001);
        for max_bytes in [super::BLOCK, 700_001, 1 << 24] {
            let mut bulk = FileSource::open(file.path()).unwrap();
            assert!(
                bulk.poll(max_bytes, &mut |_| {})
                    .is_ok_and(|progress| progress == PollStatus::More)
            );
            bulk.rewind(ingestdeck_core::tape::Seq(0)).unwrap();
            assert!(all(&mut bulk, max_bytes) == expected, "{max_bytes}");
            assert_eq!(bulk.position().0, file.path().metadata().unwrap().len());
            // Every line can be read again, and bulk reading can be repeated after a rewind.
            bulk.rewind(ingestdeck_core::tape::Seq(8000)).unwrap();
            assert!(all(&mut bulk, 1) == expected[8000..]);
        }
    }

    #[test]
    fn giant_lines_are_shortened_on_every_path() {
        const LENGTH: usize = 6 << 20;
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let line = |text: &str| {
            let result = format!(
                r#"{{"type":"tool_result","tool_use_id":"t","content":"{text}","is_error":true}}"#
            );
            format!(
                r#"{{"type":"user","message":{{"content":[{result}]}},"session_id":"s","n":{}}}"#,
                text.len()
            )
        };
        let giant = "lorem \\n ".repeat(LENGTH / 9);
        let small = "small ".repeat(10_000);
        for text in [&small, &giant, "two", &giant] {
            writeln!(file, "{}", line(text)).unwrap();
        }
        file.write_all(line(&giant).as_bytes()).unwrap();
        let length = file.path().metadata().unwrap().len();
        let mut whole = FileSource::open(file.path()).unwrap();
        let whole = all(&mut whole, 1);
        for max_bytes in [1, 1 << 20, 1 << 30] {
            let mut source = FileSource::open(file.path())
                .unwrap()
                .with_shortened_lines();
            let short = all(&mut source, max_bytes);
            assert_eq!(
                (short.len(), source.position().0),
                (5, length),
                "{max_bytes}"
            );
            for (short, whole) in short.iter().zip(&whole) {
                if whole.2.len() < LENGTH {
                    assert_eq!(short, whole);
                    continue;
                }
                assert!(
                    short.2.len() < 100 << 10 && short.3,
                    "{} bytes",
                    short.2.len()
                );
                let [short, whole] = [&short.2, &whole.2]
                    .map(|line| serde_json::from_slice::<serde_json::Value>(line));
                let (short, whole) = (short.unwrap(), whole.unwrap());
                assert_eq!(
                    (&short["session_id"], &short["n"]),
                    (&whole["session_id"], &whole["n"])
                );
                assert_eq!(short["message"]["content"][0]["is_error"], true);
            }
            let mut again = Vec::new();
            assert!(
                source
                    .read(ingestdeck_core::tape::Seq(1), &mut |entry| again =
                        entry.body.bytes().to_vec())
                    .unwrap()
            );
            assert_eq!(again, whole[1].2, "the whole line is returned on request");
            source.rewind(ingestdeck_core::tape::Seq(2)).unwrap();
            assert_eq!(all(&mut source, max_bytes), short[2..]);
        }
    }

    #[test]
    fn growing_file_has_the_same_entries() {
        let whole = file();
        let expected = all(&mut FileSource::open(whole.path()).unwrap(), 1);
        let content = std::fs::read(whole.path()).unwrap();
        let mut growing = tempfile::NamedTempFile::new().unwrap();
        growing.write_all(&content[..1000]).unwrap();
        let (mut source, finish) = FileSource::follow(growing.path()).unwrap();
        let mut found = all(&mut source, 1 << 20);
        let cut = memchr::memrchr(b'\n', &content[..content.len() / 2]).unwrap() + 100;
        // Both parts end inside of a line.
        for part in [&content[1000..cut], &content[cut..]] {
            growing.write_all(part).unwrap();
            assert!(
                source
                    .poll(1 << 20, &mut |entry| found.push(entry_of(&entry)))
                    .is_ok()
            );
            assert!(source.is_prefetching());
            found.extend(all(&mut source, 1 << 20));
            assert!(!source.is_prefetching());
        }
        assert_eq!(
            found.len(),
            expected.len() - 1,
            "the last line has no newline"
        );
        finish.finish();
        found.extend(all(&mut source, 1 << 20));
        assert!(found == expected);
    }

    #[test]
    fn panic_of_a_thread_ends_the_reading() {
        let file = file();
        let (done, ready) = mpsc::channel();
        let panicking = done.clone();
        let ended = thread::spawn(move || {
            let _notice = PanicNotice(&panicking);
            panic!("on purpose");
        });
        assert!(ended.join().is_err());
        let core = FileSource::open(file.path()).unwrap().index().file;
        let reading = LineParser {
            format: InputFormat::Capture,
            epoch: None,
            is_decodable: true,
            nests_sidechains: false,
        };
        let mut prefetcher = LinePrefetcher::new(
            &core,
            reading,
            0..file.path().metadata().unwrap().len(),
            false,
        )
        .unwrap();
        // `done` stays open, as that of a thread that waits for a free block.
        prefetcher.ready = ready;
        assert!(prefetcher.receive().is_none());
        drop(done);
    }

    #[test]
    fn a_file_that_shrinks_meanwhile_is_an_error() {
        let file = file();
        let mut source = FileSource::open(file.path()).unwrap();
        file.as_file().set_len(3_000_000).unwrap();
        let failed = (0..100)
            .map(|_| source.poll(1 << 20, &mut |_| {}))
            .find_map(Result::err);
        assert!(failed.unwrap().to_string().contains("shrank"));
    }
}
