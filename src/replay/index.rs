//! Where the lines of a file start and of what kind they are: eight bytes a line, shared between the reader that
//! folds and one that only looks ahead. Owns the pass over the file that builds it. Decodes nothing.

use std::{
    fs::File,
    sync::{
        Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use super::file_lines::{EntrySplit, FileLines, NextLine};
use crate::{
    decode::{self, LineKind},
    run::entry_source::{EntrySourceError, PollStatus},
    tape::Seq,
};

/// Bytes to look ahead for which a second thread is worth its while.
const MIN_SECOND_THREAD_BYTES: u64 = 32 << 20;

/// Bytes that the second thread looks at before it tells what it found.
const SCAN_CHUNK: u64 = 1 << 20;

/// How long a look ahead waits for the second thread.
const SCAN_WAIT: Duration = Duration::from_millis(1);

/// The line index of one open file. Clones share it and may be used from any thread.
#[derive(Clone, Debug)]
pub struct LineIndex {
    pub(super) file: Arc<IndexedFile>,
}

/// An open file and what is known about its lines.
#[derive(Debug)]
pub(super) struct IndexedFile {
    pub(super) file: Arc<File>,
    /// For error texts.
    pub(super) name: String,
    pub(super) split: EntrySplit,
    /// True if lines carry a tape's stamp before the line itself.
    pub(super) stamped: bool,
    /// Offset of the first entry.
    pub(super) first_entry: u64,
    pub(super) growth: FileGrowth,
    table: RwLock<LineTable>,
    scan_passes: Mutex<ScanPasses>,
}

/// How far a file reaches.
#[derive(Debug)]
pub(super) enum FileGrowth {
    /// It ended here when it was opened.
    Fixed(u64),
    /// It grows until the flag is set.
    Until(Arc<AtomicBool>),
}

/// Line starts in order.
#[derive(Debug, Default)]
struct LineTable {
    marks: Vec<LineMark>,
    /// Every line that starts before this offset is in `marks`.
    scanned_to: u64,
}

/// Start, kind and one flag of a line in eight bytes: offset in the low 56 bits, then the kind, then the flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineMark(u64);

const OFFSET_BITS: u32 = 56;
const TIMED: u64 = 1 << 63;

const KINDS: [LineKind; 11] = [
    LineKind::Init,
    LineKind::System,
    LineKind::Assistant,
    LineKind::User,
    LineKind::StreamEvent,
    LineKind::ToolProgress,
    LineKind::RateLimit,
    LineKind::Control,
    LineKind::Result,
    LineKind::Other,
    LineKind::Malformed,
];

impl LineMark {
    pub(super) fn new(offset: u64, kind: LineKind, timed: bool) -> Self {
        let flag = if timed { TIMED } else { 0 };
        Self(offset & ((1 << OFFSET_BITS) - 1) | (kind as u64) << OFFSET_BITS | flag)
    }

    fn offset(self) -> u64 {
        self.0 & ((1 << OFFSET_BITS) - 1)
    }

    fn kind(self) -> LineKind {
        let code = (self.0 & !TIMED) >> OFFSET_BITS;
        KINDS.get(code as usize).copied().unwrap_or(LineKind::Malformed)
    }

    fn is_timed(self) -> bool {
        self.0 & TIMED != 0
    }
}

/// Lines for whoever needs no more of a giant one than tells its kind.
fn scanning_lines(file: &Arc<File>, split: EntrySplit, offset: u64) -> FileLines {
    let mut lines = FileLines::new(Arc::clone(file), split, offset);
    lines.enable_shortening();
    lines
}

impl IndexedFile {
    pub(super) fn new(
        file: Arc<File>,
        name: String,
        split: EntrySplit,
        stamped: bool,
        first: u64,
        growth: FileGrowth,
    ) -> Self {
        let ahead = Mutex::new(ScanPasses {
            first_half: scanning_lines(&file, split, first),
            second_half: SecondHalfScan::NotStarted,
        });
        let table = RwLock::new(LineTable { marks: Vec::new(), scanned_to: first });
        Self { file, name, split, stamped, first_entry: first, growth, table, scan_passes: ahead }
    }

    /// Offset up to which lines may be read now, and whether that is final.
    pub(super) fn readable_end(&self) -> Result<(u64, bool), EntrySourceError> {
        match &self.growth {
            FileGrowth::Fixed(length) => Ok((*length, true)),
            FileGrowth::Until(finished) => {
                // The flag first: what was written before it was set is then inside the length.
                let finished = finished.load(Ordering::Acquire);
                let length = self.file.metadata().map_err(|error| self.error(&error))?.len();
                Ok((length, finished))
            }
        }
    }

    pub(super) fn error(&self, cause: &dyn ToString) -> EntrySourceError {
        EntrySourceError { name: self.name.clone(), cause: cause.to_string() }
    }

    pub(super) fn shrunk(&self) -> EntrySourceError {
        self.error(&"it became shorter while it was open; open it again")
    }

    /// Kind of a line, guessed from its beginning.
    pub(super) fn kind(&self, line: &[u8]) -> LineKind {
        kind(line, self.stamped)
    }

    /// Adds `marks`, of which the first belongs to entry `first`, and which reach to offset `covered`.
    pub(super) fn merge(&self, first: u64, marks: &[LineMark], covered: u64) {
        let mut table = self.write();
        let known = usize::try_from(first).map_or(0, |first| table.marks.len().saturating_sub(first));
        let known = known.min(marks.len());
        let (old, new) = marks.split_at(known);
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        for (position, mark) in old.iter().enumerate() {
            // The pass that looks ahead does not look for times.
            table.marks[first + position].0 |= mark.0 & TIMED;
        }
        // As for all that grows with the lines, no more than a quarter is spare.
        if table.marks.capacity() - table.marks.len() < new.len() {
            let spare = (table.marks.len() / 4).max(new.len());
            table.marks.reserve_exact(spare);
        }
        table.marks.extend_from_slice(new);
        table.scanned_to = table.scanned_to.max(covered);
    }

    /// Where entry `seq` starts, and at most how long its line is.
    pub(super) fn line_span(&self, seq: Seq) -> Option<(u64, Option<u64>)> {
        let table = self.read();
        let position = usize::try_from(seq.0).ok()?;
        let start = table.marks.get(position)?.offset();
        let end = table.marks.get(position + 1).map_or(table.scanned_to, |next| next.offset());
        Some((start, end.checked_sub(start).filter(|length| *length > 0)))
    }

    /// Where entry `seq` will start once it is there, if it is the first that is not known.
    pub(super) fn next_offset(&self, seq: Seq) -> Option<u64> {
        let table = self.read();
        (seq.0 == table.marks.len() as u64).then_some(table.scanned_to)
    }

    /// The newest entry at or before `seq` that has a time of its own.
    pub(super) fn timed_before(&self, seq: Seq) -> Option<Seq> {
        let table = self.read();
        let end = usize::try_from(seq.0).map_or(table.marks.len(), |seq| table.marks.len().min(seq.saturating_add(1)));
        table.marks[..end].iter().rposition(|mark| mark.is_timed()).map(|position| Seq(position as u64))
    }

    /// The entry whose line holds `offset`, if the index reaches so far.
    pub(super) fn entry_at(&self, offset: u64) -> Option<Seq> {
        let table = self.read();
        let after = table.marks.partition_point(|mark| mark.offset() <= offset);
        (offset < table.scanned_to && after > 0).then(|| Seq(after as u64 - 1))
    }

    fn read(&self) -> RwLockReadGuard<'_, LineTable> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, LineTable> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LineIndex {
    /// Entries known so far.
    pub fn len(&self) -> u64 {
        self.file.read().marks.len() as u64
    }

    /// True while no entry is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the file whose lines are known.
    pub fn scanned_bytes(&self) -> u64 {
        self.file.read().scanned_to
    }

    /// Kind of an entry, as its beginning tells. Exact for the lines of every known release.
    pub fn kind(&self, seq: Seq) -> Option<LineKind> {
        self.file.read().marks.get(usize::try_from(seq.0).ok()?).map(|mark| mark.kind())
    }

    /// Looks ahead over about `max_bytes` more of the file. Independent of what has been folded, and fast enough to
    /// run before anybody notices: it searches newlines and reads the first bytes of each line. Of a large file a
    /// second thread looks at the second half meanwhile.
    pub fn advance(&self, max_bytes: usize) -> Result<PollStatus, EntrySourceError> {
        let core = &*self.file;
        let mut passes = core.scan_passes.lock().unwrap_or_else(PoisonError::into_inner);
        let ScanPasses { first_half: near, second_half: far } = &mut *passes;
        let (limit, finished) = core.readable_end()?;
        let (first, covered) = {
            let table = core.read();
            (table.marks.len() as u64, table.scanned_to)
        };
        if near.offset() != covered {
            near.seek(covered);
        }
        if matches!(far, SecondHalfScan::NotStarted) {
            *far = core.start_second_scan(covered, limit);
        }
        let mut stop = covered.saturating_add(max_bytes.max(1) as u64);
        if let SecondHalfScan::Running(middle, found) = far {
            stop = stop.min(*middle);
            if covered >= *middle {
                match found.recv_timeout(SCAN_WAIT) {
                    Ok((marks, reached)) => {
                        // The fold may have passed here already.
                        let known = marks.partition_point(|mark| mark.offset() < covered);
                        core.merge(first, &marks[known..], reached);
                        return Ok(if reached >= limit { PollStatus::End } else { PollStatus::More });
                    }
                    Err(RecvTimeoutError::Timeout) => return Ok(PollStatus::More),
                    // It is through, or it failed: what is left is looked at here, and whatever is wrong found again.
                    Err(RecvTimeoutError::Disconnected) => *far = SecondHalfScan::Done,
                }
                stop = covered.saturating_add(max_bytes.max(1) as u64);
            }
        }
        let (marks, ended) = scan(near, stop, limit, finished, core.stamped).map_err(|error| core.error(&error))?;
        core.merge(first, &marks, near.offset());
        match ended {
            ScanEnd::Stopped => Ok(PollStatus::More),
            ScanEnd::Ended if finished => Ok(PollStatus::End),
            ScanEnd::Ended => Ok(PollStatus::Waiting),
            ScanEnd::Shrunk => Err(core.shrunk()),
        }
    }
}

/// Passes over the lines that nobody has folded yet.
#[derive(Debug)]
struct ScanPasses {
    first_half: FileLines,
    second_half: SecondHalfScan,
}

/// The pass over the second half of a large file.
#[derive(Debug)]
enum SecondHalfScan {
    NotStarted,
    /// From the first line behind this offset; what it found, piece by piece, each with the offset behind it.
    Running(u64, Receiver<(Vec<LineMark>, u64)>),
    /// There is none.
    Done,
}

impl IndexedFile {
    /// Starts a second thread in the middle between `covered` and the end, if that is worth its while.
    fn start_second_scan(&self, covered: u64, limit: u64) -> SecondHalfScan {
        let is_fixed = matches!(self.growth, FileGrowth::Fixed(_)) && self.split == EntrySplit::Lines;
        if !is_fixed || limit.saturating_sub(covered) < MIN_SECOND_THREAD_BYTES {
            return SecondHalfScan::Done;
        }
        let middle = covered + (limit - covered) / 2;
        let (found, finding) = mpsc::channel();
        let (mut lines, stamped) = (scanning_lines(&self.file, self.split, middle - 1), self.stamped);
        let look = move || {
            // The line that crosses the middle belongs to the first half.
            if !matches!(lines.next(limit, true), Ok(NextLine::Line(..))) {
                return;
            }
            loop {
                let stop = lines.offset().saturating_add(SCAN_CHUNK);
                let Ok((marks, ended)) = scan(&mut lines, stop, limit, true, stamped) else { return };
                let is_on = ended == ScanEnd::Stopped && lines.offset() < limit;
                if ended == ScanEnd::Shrunk || found.send((marks, lines.offset())).is_err() || !is_on {
                    return;
                }
            }
        };
        match thread::Builder::new().name("index".into()).spawn(look) {
            Ok(_) => SecondHalfScan::Running(middle, finding),
            Err(_) => SecondHalfScan::Done,
        }
    }
}

/// How a scan came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanEnd {
    /// At the offset where it was to stop.
    Stopped,
    /// Behind the last line.
    Ended,
    /// The file is shorter than it was.
    Shrunk,
}

/// Marks of the lines from where `lines` stands up to the first that starts at or behind `stop`.
fn scan(
    lines: &mut FileLines,
    stop: u64,
    limit: u64,
    finished: bool,
    stamped: bool,
) -> std::io::Result<(Vec<LineMark>, ScanEnd)> {
    let mut marks = Vec::new();
    while lines.offset() < stop {
        match lines.next(limit, finished)? {
            NextLine::Line(_, line) if is_blank(line) => {}
            NextLine::Line(offset, line) => marks.push(LineMark::new(offset, kind(line, stamped), false)),
            NextLine::Pending => return Ok((marks, ScanEnd::Ended)),
            NextLine::Shrunk => return Ok((marks, ScanEnd::Shrunk)),
        }
    }
    Ok((marks, ScanEnd::Stopped))
}

/// Kind of a line, guessed from its beginning. A `stamped` one carries a tape's stamp before the line itself.
fn kind(line: &[u8], stamped: bool) -> LineKind {
    let guess = |line| decode::guess_kind(line).unwrap_or(LineKind::Malformed);
    if !stamped {
        return guess(line);
    }
    // The stamp is short and its keys stand in order, so the body starts near.
    let near = &line[..line.len().min(512)];
    memchr::memmem::find(near, b",\"out\":{").map_or(LineKind::Other, |at| guess(&line[at + 7..]))
}

/// Blank lines are not entries. Almost every line is told by its first byte.
pub(super) fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_step_finds_the_same_lines() {
        let mut content = Vec::new();
        for number in 0..9000_usize {
            let kind = ["user", "assistant", "result"][number % 3];
            let size = if number % 700 == 500 { 3_000_000 } else { number % 700 };
            content.extend_from_slice(format!("{{\"type\":\"{kind}\",\"x\":\"{}\"}}\n", "y".repeat(size)).as_bytes());
            content.extend_from_slice(if number % 5 == 0 { b"\n \n" } else { b"" });
        }
        content.pop();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, &content).unwrap();
        let marks = |max_bytes| {
            let index = super::super::FileSource::open(file.path()).unwrap().index();
            while index.advance(max_bytes).unwrap() == PollStatus::More {}
            assert_eq!(index.scanned_bytes(), content.len() as u64);
            index.file.read().marks.clone()
        };
        let mut offset = 0;
        let lines = content.split_inclusive(|byte| *byte == b'\n').map(|line| {
            offset += line.len() as u64;
            (offset - line.len() as u64, line)
        });
        let lines = lines.filter(|(_, line)| !is_blank(line));
        let expected: Vec<LineMark> =
            lines.map(|(offset, line)| LineMark::new(offset, kind(line, false), false)).collect();
        assert!(content.len() as u64 > MIN_SECOND_THREAD_BYTES);
        assert_eq!(expected.len(), 9000);
        for max_bytes in [65_537, 1_234_567, 4 << 20, usize::MAX] {
            assert_eq!(marks(max_bytes), expected, "{max_bytes}");
        }
    }

    #[test]
    fn a_mark_holds_offset_kind_and_flag() {
        for (position, kind) in KINDS.into_iter().enumerate() {
            let mark = LineMark::new((1 << 56) - 1 - position as u64, kind, position % 2 == 0);
            assert_eq!(mark.offset(), (1 << 56) - 1 - position as u64);
            assert_eq!((mark.kind(), mark.is_timed()), (kind, position % 2 == 0));
        }
        assert_eq!(size_of::<LineMark>(), 8);
    }
}
