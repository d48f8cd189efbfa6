//! Offsets of the lines of a file: eight bytes per line, shared between the reader that folds and one that only scans
//! ahead. Owns the scan that builds it. It decodes nothing.

use std::{
    fs::File,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::file_lines::{EntrySplit, FileLines, NextLine};
use ingestdeck_core::{
    run::entry_source::{EntrySourceError, PollStatus},
    tape::Seq,
};

/// Minimum number of bytes for which a second scanning thread is started.
const MIN_SECOND_THREAD_BYTES: u64 = 32 << 20;

/// Bytes after which the second thread reports its results.
const SCAN_CHUNK: u64 = 1 << 20;

/// Maximum time for which a scan waits for the second thread.
const SCAN_WAIT: Duration = Duration::from_millis(1);

/// The line index of one open file. Clones share it and may be used from any thread.
#[derive(Clone, Debug)]
pub struct LineIndex {
    pub(super) file: Arc<IndexedFile>,
}

/// An open file and the known facts about its lines.
#[derive(Debug)]
pub(super) struct IndexedFile {
    pub(super) file: Arc<File>,
    /// File name for error messages.
    pub(super) name: String,
    pub(super) split: EntrySplit,
    pub(super) growth: FileGrowth,
    table: RwLock<LineTable>,
    scan_passes: Mutex<ScanPasses>,
}

/// The end of a file.
#[derive(Debug)]
pub(super) enum FileGrowth {
    /// Fixed at this offset when the file was opened.
    Fixed(u64),
    /// The file grows until the flag is set.
    Until(Arc<AtomicBool>),
    /// Of a file of this length, only the lines up to an offset are shown yet.
    Head { shown: u64, length: u64 },
}

/// Line starts in order.
#[derive(Debug, Default)]
struct LineTable {
    marks: Vec<LineMark>,
    /// Every line that starts before this offset is in `marks`.
    scanned_to: u64,
}

/// The line of an entry in its file, up to the next entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineSpan {
    pub(super) start: u64,
    pub(super) end: u64,
    /// True if the content of the line is encoded, so that it is not a part of its bytes.
    pub(super) is_encoded: bool,
}

/// A line in eight bytes: its offset, and two flags in the highest bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineMark(u64);

/// Set for lines with their own time.
const TIMED: u64 = 1 << 63;
/// Set for lines whose content is encoded, so that it is not a part of their bytes.
const ENCODED: u64 = 1 << 62;
const FLAGS: u64 = TIMED | ENCODED;

impl LineMark {
    /// The mark of a line of which only the offset is known.
    fn new(offset: u64) -> Self {
        Self(offset & !FLAGS)
    }

    /// The mark of a line that was parsed.
    pub(super) fn parsed(offset: u64, is_timed: bool, is_encoded: bool) -> Self {
        let flags = if is_timed { TIMED } else { 0 } | if is_encoded { ENCODED } else { 0 };
        Self(offset & !FLAGS | flags)
    }

    fn offset(self) -> u64 {
        self.0 & !FLAGS
    }

    fn is_timed(self) -> bool {
        self.0 & TIMED != 0
    }

    fn is_encoded(self) -> bool {
        self.0 & ENCODED != 0
    }
}

/// A line reader for scans, which need only the beginning of a giant line.
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
        first: u64,
        growth: FileGrowth,
    ) -> Self {
        let ahead = Mutex::new(ScanPasses {
            first_half: scanning_lines(&file, split, first),
            second_half: SecondHalfScan::NotStarted,
        });
        let table = RwLock::new(LineTable {
            marks: Vec::new(),
            scanned_to: first,
        });
        Self {
            file,
            name,
            split,
            growth,
            table,
            scan_passes: ahead,
        }
    }

    /// Returns the offset up to which lines may be read now, and whether it is final.
    pub(super) fn readable_end(&self) -> Result<(u64, bool), EntrySourceError> {
        match &self.growth {
            FileGrowth::Fixed(length) => Ok((*length, true)),
            FileGrowth::Head { shown, .. } => Ok((*shown, false)),
            FileGrowth::Until(finished) => {
                // The flag is read first, so that the length includes everything that was written before it was set.
                let finished = finished.load(Ordering::Acquire);
                let length = self
                    .file
                    .metadata()
                    .map_err(|error| self.error(&error))?
                    .len();
                Ok((length, finished))
            }
        }
    }

    pub(super) fn error(&self, cause: &dyn ToString) -> EntrySourceError {
        EntrySourceError {
            name: self.name.clone(),
            cause: cause.to_string(),
        }
    }

    pub(super) fn shrunk(&self) -> EntrySourceError {
        self.error(&"it shrank while it was open; open it again")
    }

    /// Adds `marks`; the first belongs to entry `first`, and they cover the file up to offset `covered`.
    pub(super) fn merge(&self, first: u64, marks: &[LineMark], covered: u64) {
        let mut table = self.write();
        let known =
            usize::try_from(first).map_or(0, |first| table.marks.len().saturating_sub(first));
        let known = known.min(marks.len());
        let (old, new) = marks.split_at(known);
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        for (position, mark) in old.iter().enumerate() {
            // The scan ahead does not parse lines.
            table.marks[first + position].0 |= mark.0 & FLAGS;
        }
        // Like all data that grows with the lines, its spare capacity is at most a quarter.
        if table.marks.capacity() - table.marks.len() < new.len() {
            let spare = (table.marks.len() / 4).max(new.len());
            table.marks.reserve_exact(spare);
        }
        table.marks.extend_from_slice(new);
        table.scanned_to = table.scanned_to.max(covered);
    }

    /// Returns the start of entry `seq`, and the maximum length of its line.
    pub(super) fn line_span(&self, seq: Seq) -> Option<(u64, Option<u64>)> {
        let table = self.read();
        let position = usize::try_from(seq.0).ok()?;
        let start = table.marks.get(position)?.offset();
        let end = table
            .marks
            .get(position + 1)
            .map_or(table.scanned_to, |next| next.offset());
        Some((start, end.checked_sub(start).filter(|length| *length > 0)))
    }

    /// Returns the future start of entry `seq`, if it is the first unknown entry.
    pub(super) fn next_offset(&self, seq: Seq) -> Option<u64> {
        let table = self.read();
        (seq.0 == table.marks.len() as u64).then_some(table.scanned_to)
    }

    /// Returns the newest entry at or before `seq` that has its own time.
    pub(super) fn timed_before(&self, seq: Seq) -> Option<Seq> {
        let table = self.read();
        let end = usize::try_from(seq.0).map_or(table.marks.len(), |seq| {
            table.marks.len().min(seq.saturating_add(1))
        });
        table.marks[..end]
            .iter()
            .rposition(|mark| mark.is_timed())
            .map(|position| Seq(position as u64))
    }

    /// Returns the lines of the first of these entries, as far as the gaps between them are at most `gap` bytes and they
    /// end within `most` bytes; always that of the first entry, if it exists. `entries` is in ascending order.
    pub(super) fn adjacent_spans(&self, entries: &[Seq], most: u64, gap: u64) -> Vec<LineSpan> {
        let table = self.read();
        let mut spans: Vec<LineSpan> = Vec::new();
        for seq in entries {
            let Some(position) = usize::try_from(seq.0).ok() else {
                break;
            };
            let Some(mark) = table.marks.get(position) else {
                break;
            };
            let end = table
                .marks
                .get(position + 1)
                .map_or(table.scanned_to, |next| next.offset());
            let span = LineSpan {
                start: mark.offset(),
                end: end.max(mark.offset()),
                is_encoded: mark.is_encoded(),
            };
            if let (Some(first), Some(last)) = (spans.first(), spans.last())
                && (span.start > last.end + gap || span.end - first.start > most)
            {
                break;
            }
            spans.push(span);
        }
        spans
    }

    fn read(&self) -> RwLockReadGuard<'_, LineTable> {
        self.table.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, LineTable> {
        self.table.write()
    }
}

impl LineIndex {
    /// Number of entries known so far.
    pub fn len(&self) -> u64 {
        self.file.read().marks.len() as u64
    }

    /// Scans about `max_bytes` more of the file. It is independent of the fold and fast, because it only searches
    /// newlines. In a large file, a second thread scans the second half concurrently.
    pub fn advance(&self, max_bytes: usize) -> Result<PollStatus, EntrySourceError> {
        let core = &*self.file;
        let mut passes = core.scan_passes.lock();
        let ScanPasses {
            first_half: near,
            second_half: far,
        } = &mut *passes;
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
                        // The fold may already have passed this position.
                        let known = marks.partition_point(|mark| mark.offset() < covered);
                        core.merge(first, &marks[known..], reached);
                        return Ok(if reached >= limit {
                            PollStatus::End
                        } else {
                            PollStatus::More
                        });
                    }
                    Err(RecvTimeoutError::Timeout) => return Ok(PollStatus::More),
                    // The second thread has finished or failed: the rest is scanned here, and an error will occur
                    // again.
                    Err(RecvTimeoutError::Disconnected) => *far = SecondHalfScan::Done,
                }
                stop = covered.saturating_add(max_bytes.max(1) as u64);
            }
        }
        let (marks, ended) =
            scan(near, stop, limit, finished).map_err(|error| core.error(&error))?;
        core.merge(first, &marks, near.offset());
        match ended {
            ScanEnd::Stopped => Ok(PollStatus::More),
            ScanEnd::Ended if finished => Ok(PollStatus::End),
            ScanEnd::Ended => Ok(PollStatus::Waiting),
            ScanEnd::Shrunk => Err(core.shrunk()),
        }
    }
}

/// Scans the lines that have not been folded yet.
#[derive(Debug)]
struct ScanPasses {
    first_half: FileLines,
    second_half: SecondHalfScan,
}

/// The scan of the second half of a large file.
#[derive(Debug)]
enum SecondHalfScan {
    NotStarted,
    /// Starts at the first line after this offset; receives its results in chunks, each with the offset after it.
    Running(u64, Receiver<(Vec<LineMark>, u64)>),
    Done,
}

impl IndexedFile {
    /// Starts a second thread in the middle between `covered` and the end, if the rest is large enough.
    fn start_second_scan(&self, covered: u64, limit: u64) -> SecondHalfScan {
        let is_fixed =
            matches!(self.growth, FileGrowth::Fixed(_)) && self.split == EntrySplit::Lines;
        if !is_fixed || limit.saturating_sub(covered) < MIN_SECOND_THREAD_BYTES {
            return SecondHalfScan::Done;
        }
        let middle = covered + (limit - covered) / 2;
        let (found, finding) = mpsc::channel();
        let mut lines = scanning_lines(&self.file, self.split, middle - 1);
        let look = move || {
            // The line that crosses the middle belongs to the first half.
            if !matches!(lines.next(limit, true), Ok(NextLine::Line(..))) {
                return;
            }
            loop {
                let stop = lines.offset().saturating_add(SCAN_CHUNK);
                let Ok((marks, ended)) = scan(&mut lines, stop, limit, true) else {
                    return;
                };
                let is_on = ended == ScanEnd::Stopped && lines.offset() < limit;
                if ended == ScanEnd::Shrunk
                    || found.send((marks, lines.offset())).is_err()
                    || !is_on
                {
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

/// Why a scan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanEnd {
    /// At the requested offset.
    Stopped,
    /// After the last line.
    Ended,
    /// The file is shorter than before.
    Shrunk,
}

/// Marks the lines from the position of `lines` up to the first that starts at or after `stop`.
fn scan(
    lines: &mut FileLines,
    stop: u64,
    limit: u64,
    finished: bool,
) -> std::io::Result<(Vec<LineMark>, ScanEnd)> {
    let mut marks = Vec::new();
    while lines.offset() < stop {
        match lines.next(limit, finished)? {
            NextLine::Line(_, line) if is_blank(line) => {}
            NextLine::Line(offset, _) => marks.push(LineMark::new(offset)),
            NextLine::Pending => return Ok((marks, ScanEnd::Ended)),
            NextLine::Shrunk => return Ok((marks, ScanEnd::Shrunk)),
        }
    }
    Ok((marks, ScanEnd::Stopped))
}

/// Blank lines are not entries. The first byte decides for almost every line.
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
            let size = if number % 700 == 500 {
                3_000_000
            } else {
                number % 700
            };
            content.extend_from_slice(
                format!("{{\"type\":\"user\",\"x\":\"{}\"}}\n", "y".repeat(size)).as_bytes(),
            );
            content.extend_from_slice(if number % 5 == 0 { b"\n \n" } else { b"" });
        }
        content.pop();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, &content).unwrap();
        let marks = |max_bytes| {
            let index = super::super::FileSource::open(file.path()).unwrap().index();
            while index.advance(max_bytes).unwrap() == PollStatus::More {}
            let table = index.file.read();
            assert_eq!(table.scanned_to, content.len() as u64);
            table.marks.clone()
        };
        let mut offset = 0;
        let lines = content.split_inclusive(|byte| *byte == b'\n').map(|line| {
            offset += line.len() as u64;
            (offset - line.len() as u64, line)
        });
        let lines = lines.filter(|(_, line)| !is_blank(line));
        let expected: Vec<LineMark> = lines.map(|(offset, _)| LineMark::new(offset)).collect();
        assert!(content.len() as u64 > MIN_SECOND_THREAD_BYTES);
        assert_eq!(expected.len(), 9000);
        for max_bytes in [65_537, 1_234_567, 4 << 20, usize::MAX] {
            assert_eq!(marks(max_bytes), expected, "{max_bytes}");
        }
    }

    #[test]
    fn a_mark_holds_offset_and_flags() {
        for offset in [0, 7, (1 << 62) - 1] {
            for (timed, encoded) in [(false, false), (true, false), (false, true), (true, true)] {
                let mark = LineMark::parsed(offset, timed, encoded);
                assert_eq!(
                    (mark.offset(), mark.is_timed(), mark.is_encoded()),
                    (offset, timed, encoded)
                );
            }
        }
        assert_eq!(size_of::<LineMark>(), 8);
    }
}
