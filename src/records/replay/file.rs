//! A file as an [`EntrySource`]: finished or growing, of any [`InputFormat`].
//!
//! Owns opening, the cursor and the times of entries. It must not depend on the meaning of lines.

#![expect(
    clippy::disallowed_methods,
    reason = "the record that was named or resolved"
)]

mod search;
mod session;

use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::Receiver,
    },
};

use jiff::Timestamp;

use super::{
    detect::{self, DetectedInput, DetectionExtent, InputFormat},
    error::OpenError,
    file_lines::{EntrySplit, FileLines, NextLine, read_range},
    index::{FileGrowth, IndexedFile, LineIndex, LineMark, is_blank},
    inserted_notes::{InsertedNotes, LineOrNote},
    ktx,
    line_parser::{LineParser, ParsedLine},
    line_repair,
    prefetch::LinePrefetcher,
    session_tape::{self, MergedSession},
    spool::{self, SpooledStream, StreamError},
    zstd_reader,
};
use ingestdeck_core::{
    run::{
        entry_search::{EntryBatch, TextMatcher},
        entry_source::{EntryRef, EntrySource, EntrySourceError, PollStatus, SourceInfo},
    },
    tape::{Millis, Seq, UnitKey},
};

/// Bytes of the file that are read to detect its format.
const HEAD_BYTES: usize = 64 << 10;

/// Maximum length of a first line that is read in full although it exceeds the head.
const MAX_FIRST_LINE: usize = 16 << 20;

/// Time between the entries of a file that has no times.
const SYNTHETIC_INTERVAL: Millis = Millis(100);

/// A poll of at least this many bytes uses the prefetcher.
const BULK_POLL_BYTES: usize = 512 << 10;

/// Minimum number of remaining bytes for which starting threads is faster.
const MIN_PREFETCH_BYTES: u64 = 4 << 20;

/// Bytes at the end of a growing file that are searched for the start of its last line.
const LAST_LINE_BYTES: usize = 64 << 10;

/// Maximum size of the stamp before an entry's body, and of the end of a long line that is searched for its time.
const MAX_STAMP_BYTES: usize = 1024;
const TAIL_BYTES: usize = 4096;

/// Number of line starts that a poll collects before it adds them to the shared index.
const MARK_BATCH: usize = 1024;

#[derive(Debug)]
pub struct FileSource {
    core: Arc<IndexedFile>,
    origin: SourceInfo,
    parser: LineParser,
    lines: FileLines,
    /// Reads on other threads while a file is read in bulk; then `lines` only contains the position.
    prefetcher: Option<LinePrefetcher>,
    cursor: FileCursor,
    /// Path of a followed file, to detect that it was replaced.
    followed: Option<PathBuf>,
    /// The error of the thread that reads the stream.
    stream_error: Option<StreamError>,
    /// Offset of the first line.
    first_entry: u64,
    /// Which lines of a session file do not count.
    notes: InsertedNotes,
    /// The whole session, while only the beginning of its file is shown.
    pending: Option<Receiver<io::Result<MergedSession>>>,
}

/// The position of polls.
#[derive(Debug)]
struct FileCursor {
    /// The entry that the next poll starts with.
    next: Seq,
    /// Time of the entry before it.
    at: Millis,
    has_times: bool,
}

/// The first and last bytes of a huge line.
struct HugeLineEnds {
    head: Vec<u8>,
    tail: Vec<u8>,
    /// Length of the line in bytes.
    length: u64,
}

impl FileCursor {
    /// Emits the next entry.
    fn emit_next(&mut self, parsed: &ParsedLine<'_>, sink: &mut dyn FnMut(EntryRef<'_>)) {
        self.at = if self.has_times {
            parsed.at.unwrap_or(self.at)
        } else {
            synthetic_time(self.next)
        };
        parsed.emit(self.next, self.at, sink);
        self.next.0 += 1;
    }
}

/// Ends the growth of a followed file.
#[derive(Clone, Debug)]
pub struct FollowHandle(Arc<AtomicBool>);

impl FollowHandle {
    /// Declares the current content of the file complete.
    pub fn finish(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl FileSource {
    /// Like [`open`](Self::open), for a file that the caller has opened. `path` is only used as its name.
    pub fn from_file(path: &Path, file: File) -> Result<Self, OpenError> {
        Self::from_regular_file(path, file, true)
    }

    fn from_regular_file(path: &Path, file: File, repairs: bool) -> Result<Self, OpenError> {
        let name = path.display().to_string();
        let failed = |error: std::io::Error| OpenError::from_io(&name, &error);
        let metadata = file.metadata().map_err(failed)?;
        let kind = metadata.file_type();
        if kind.is_fifo() || kind.is_char_device() || kind.is_socket() {
            return Self::from_stream(name, &stem(path), file);
        }
        if read_range(&file, 0, zstd_reader::ZSTD_MAGIC.len()).map_err(failed)?
            == zstd_reader::ZSTD_MAGIC
        {
            return Self::from_stream(name, &stem(Path::new(&stem(path))), file);
        }
        let length = metadata.len();
        let mut detected = detect_file(&file, length).map_err(failed)?;
        if repairs
            && detect::may_be_repaired(&detected)
            && let Some(repaired) = line_repair::repair_file(&file, length).map_err(failed)?
        {
            match detect_file(&repaired.file, repaired.length).map_err(failed)? {
                Ok(detected) => {
                    let mut source = Self::from_detected(
                        Arc::new(repaired.file),
                        name,
                        &stem(path),
                        detected,
                        FileGrowth::Fixed(repaired.length),
                    )?;
                    source.origin.recovered = repaired.recovered;
                    return Ok(source);
                }
                // Converting a list that contains no messages does not help.
                Err(refusal) if detected == Err(detect::UnsupportedInput::MessageList) => {
                    detected = Err(refusal);
                }
                Err(_) => {}
            }
        }
        let detected = detected.map_err(|refusal| OpenError::Unsupported {
            name: name.clone(),
            refusal,
        })?;
        Self::from_detected(
            Arc::new(file),
            name,
            &stem(path),
            detected,
            FileGrowth::Fixed(length),
        )
    }

    /// Opens stdin as a growing source. Waits for the first line, to detect the format.
    pub fn from_stdin() -> Result<Self, OpenError> {
        Self::from_stream("stdin".into(), "stdin", io::stdin())
    }

    fn from_stream(
        name: String,
        stem: &str,
        input: impl Read + Send + 'static,
    ) -> Result<Self, OpenError> {
        let SpooledStream {
            file,
            detected,
            growth,
            error,
            recovered,
        } = spool::spool(&name, input)?;
        let mut source = Self::from_detected(file, name, stem, detected, growth)?;
        source.origin.recovered = recovered;
        if source.parser.format == InputFormat::SessionFile {
            source.parser.nests_sidechains =
                session_tape::is_transcript_of_agent(&source.core.file).is_ok_and(|is| !is);
        }
        Ok(Self {
            stream_error: Some(error),
            ..source
        })
    }

    /// Opens a file whose format is known; converts it first if it is a record of KTX.
    fn from_detected(
        file: Arc<File>,
        name: String,
        stem: &str,
        detected: DetectedInput,
        growth: FileGrowth,
    ) -> Result<Self, OpenError> {
        let FileGrowth::Fixed(length) = growth else {
            return Ok(Self::new(file, name, stem, detected, growth));
        };
        if !detected.format.is_rewritten() {
            return Ok(Self::new(file, name, stem, detected, growth));
        }
        let ktx::ConvertedRecord {
            tape: (tape, length),
            began,
        } = ktx::convert(&file, length, &name, detected.format)?;
        let converted = DetectedInput {
            format: InputFormat::Tape,
            header: None,
            first_entry: 0,
            first_time: None,
            session: None,
        };
        let mut source = Self::new(
            Arc::new(tape),
            name,
            stem,
            converted,
            FileGrowth::Fixed(length),
        );
        source.origin.format = detected.format.description();
        source.origin.started_at = began;
        source.origin.has_times = began.is_some();
        Ok(source)
    }

    /// Opens a file that is still being written. It ends when [`FollowHandle::finish`] is called.
    pub fn follow(path: &Path) -> Result<(Self, FollowHandle), OpenError> {
        let (_, file) = open_file(path)?;
        Self::follow_file(path, file)
    }

    /// Like [`follow`](Self::follow), for a file that the caller has opened. `path` is only used to detect that the
    /// file was replaced.
    pub fn follow_file(path: &Path, file: File) -> Result<(Self, FollowHandle), OpenError> {
        let name = path.display().to_string();
        let failed = |error: std::io::Error| OpenError::from_io(&name, &error);
        let head = read_range(&file, 0, HEAD_BYTES).map_err(failed)?;
        let detected = detect::detect(&head, DetectionExtent::Growing);
        let detected = detected.map_err(|refusal| OpenError::Unsupported {
            name: name.clone(),
            refusal,
        })?;
        let finish = FollowHandle(Arc::default());
        let growth = FileGrowth::Until(Arc::clone(&finish.0));
        let mut source = Self::new(Arc::new(file), name, &stem(path), detected, growth);
        source.followed = Some(path.to_owned());
        Ok((source, finish))
    }

    fn new(
        file: Arc<File>,
        name: String,
        stem: &str,
        detected: DetectedInput,
        growth: FileGrowth,
    ) -> Self {
        let DetectedInput {
            format,
            header,
            first_entry,
            first_time,
            session,
        } = detected;
        let split = if format == InputFormat::Document {
            EntrySplit::Whole
        } else {
            EntrySplit::Lines
        };
        let is_decodable = header
            .as_ref()
            .is_none_or(|header| header.agent_problem().is_none());
        let reading = LineParser {
            format,
            epoch: first_time,
            is_decodable,
            nests_sidechains: false,
        };
        let started_at = header.as_ref().map(|header| header.started_at);
        let started_at = started_at.or_else(|| Timestamp::from_millisecond(first_time?).ok());
        let origin = SourceInfo {
            name: header
                .as_ref()
                .map_or_else(|| name.clone(), |header| header.run.to_string()),
            format: format.description(),
            started_at,
            has_times: reading.has_times(),
            // Lines before the first id belong to the session that follows.
            fallback_unit: UnitKey::from(session.as_deref().unwrap_or(stem)),
            title: None,
            header,
            recovered: 0,
        };
        let lines = FileLines::new(Arc::clone(&file), split, first_entry);
        let cursor = FileCursor {
            next: Seq(0),
            at: Millis(0),
            has_times: reading.has_times(),
        };
        let core = Arc::new(IndexedFile::new(file, name, split, first_entry, growth));
        Self {
            core,
            origin,
            parser: reading,
            lines,
            prefetcher: None,
            cursor,
            followed: None,
            stream_error: None,
            first_entry,
            notes: InsertedNotes::default(),
            pending: None,
        }
    }

    /// For callers that only display entries: entries of giant lines contain the line with shortened strings, so that
    /// giant lines are never in memory as a whole. Reading one again still returns the whole line.
    #[must_use]
    pub fn with_shortened_lines(mut self) -> Self {
        self.lines.enable_shortening();
        self
    }

    /// True for a session file of Claude Code, alone or with the transcripts of its sub-agents.
    pub fn is_session_file(&self) -> bool {
        self.origin.format == InputFormat::SessionFile.description()
    }

    /// The index of its lines, for scanning ahead of the fold and for searching.
    pub fn index(&self) -> LineIndex {
        LineIndex {
            file: Arc::clone(&self.core),
        }
    }

    /// True while other threads read.
    #[cfg(test)]
    pub(super) fn is_prefetching(&self) -> bool {
        self.prefetcher.is_some()
    }

    /// The end of the complete lines in a file that has `length` bytes now. `None` if too few of them are unread to start
    /// threads, and if the last line is so long that its start is not found.
    fn prefetch_limit(&self, length: u64) -> Result<Option<u64>, EntrySourceError> {
        if self.core.split == EntrySplit::Whole
            || length.saturating_sub(self.lines.offset()) < MIN_PREFETCH_BYTES
        {
            return Ok(None);
        }
        if matches!(self.core.growth, FileGrowth::Fixed(_)) {
            return Ok(Some(length));
        }
        // The last line may still be written.
        let tail = length.saturating_sub(LAST_LINE_BYTES as u64);
        let bytes = read_range(&self.core.file, tail, LAST_LINE_BYTES)
            .map_err(|error| self.core.error(&error))?;
        Ok(memchr::memrchr(b'\n', &bytes).map(|newline| tail + newline as u64 + 1))
    }

    /// [`EntrySource::poll`] from lines that other threads have read and decoded.
    fn poll_prefetched(
        &mut self,
        max_bytes: usize,
        sink: &mut dyn FnMut(EntryRef<'_>),
    ) -> Result<PollStatus, EntrySourceError> {
        let Some(mut ahead) = self.prefetcher.take() else {
            return Ok(PollStatus::More);
        };
        let stop = self.lines.offset().saturating_add(max_bytes.max(1) as u64);
        while self.lines.offset() < stop {
            let first = self.cursor.next;
            let mut marks = Vec::with_capacity(MARK_BATCH);
            let reached = ahead.lines(stop, &mut |line| {
                marks.push(line.mark);
                self.cursor.emit_next(&line.parsed, sink);
            })?;
            let Some(reached) = reached else {
                if self.lines.offset() < ahead.limit() {
                    return Err(self.core.error(&"the reading thread stopped"));
                }
                return Ok(match self.core.growth {
                    FileGrowth::Fixed(_) => PollStatus::End,
                    FileGrowth::Until(_) | FileGrowth::Head { .. } => PollStatus::More,
                });
            };
            self.core.merge(first.0, &marks, reached);
            self.lines.seek(reached);
        }
        self.prefetcher = Some(ahead);
        Ok(PollStatus::More)
    }

    /// Time of an entry without a time: that of the entry before it.
    fn time_before(&self, seq: Seq) -> Result<Millis, EntrySourceError> {
        if !self.parser.has_times() {
            return Ok(synthetic_time(seq));
        }
        let Some(before) = seq
            .0
            .checked_sub(1)
            .and_then(|before| self.core.timed_before(Seq(before)))
        else {
            return Ok(Millis(0));
        };
        if let Some(HugeLineEnds { head, tail, length }) = self.line_ends(before, TAIL_BYTES)?
            && let Some((parsed, _)) = self.parser.parse_head(&head, &tail, length)
            && let Some(at) = parsed.at
        {
            return Ok(at);
        }
        let line = self.line(before)?;
        Ok(line
            .and_then(|line| self.parser.parse(&line).at)
            .unwrap_or_default())
    }

    fn line(&self, seq: Seq) -> Result<Option<Vec<u8>>, EntrySourceError> {
        let Some((start, length)) = self.core.line_span(seq) else {
            return Ok(None);
        };
        let Some(length) = length.and_then(|length| usize::try_from(length).ok()) else {
            return Ok(None);
        };
        let mut bytes =
            read_range(&self.core.file, start, length).map_err(|error| self.core.error(&error))?;
        if bytes.len() < length {
            return Err(self.core.shrunk());
        }
        if self.core.split == EntrySplit::Lines {
            // Blank lines may follow before the next entry.
            bytes.truncate(memchr::memchr(b'\n', &bytes).unwrap_or(length));
        }
        Ok(Some(bytes))
    }

    /// Reads both ends of an entry's line; `None` if it is hardly longer than `most` bytes.
    fn line_ends(&self, seq: Seq, most: usize) -> Result<Option<HugeLineEnds>, EntrySourceError> {
        let Some((start, Some(length))) = self.core.line_span(seq) else {
            return Ok(None);
        };
        let most = most.saturating_add(MAX_STAMP_BYTES);
        if length <= (most + TAIL_BYTES) as u64 || self.core.split == EntrySplit::Whole {
            return Ok(None);
        }
        let range = |from, length| {
            read_range(&self.core.file, from, length).map_err(|error| self.core.error(&error))
        };
        let (head, tail) = (
            range(start, most)?,
            range(start + length - TAIL_BYTES as u64, TAIL_BYTES)?,
        );
        if head.len() < most || tail.len() < TAIL_BYTES {
            return Err(self.core.shrunk());
        }
        // Most of the length may be blank lines.
        Ok(memchr::memchr(b'\n', &head)
            .is_none()
            .then_some(HugeLineEnds { head, tail, length }))
    }

    /// Detects that the path of a followed file now names another file.
    fn check_followed(&self, limit: u64) -> Result<(), EntrySourceError> {
        if limit < self.lines.offset() {
            return Err(self.core.shrunk());
        }
        let Some(path) = &self.followed else {
            return Ok(());
        };
        let ours = self
            .core
            .file
            .metadata()
            .map_err(|error| self.core.error(&error))?;
        match fs::metadata(path) {
            Ok(theirs) if (theirs.dev(), theirs.ino()) == (ours.dev(), ours.ino()) => Ok(()),
            Ok(_) => Err(self
                .core
                .error(&"it was replaced by another file; open it again")),
            Err(error) => Err(self.core.error(&error)),
        }
    }
}

impl EntrySource for FileSource {
    fn info(&self) -> &SourceInfo {
        &self.origin
    }

    fn poll(
        &mut self,
        max_bytes: usize,
        sink: &mut dyn FnMut(EntryRef<'_>),
    ) -> Result<PollStatus, EntrySourceError> {
        let polled = if self.notes.is_empty() {
            self.poll_lines(max_bytes, sink)
        } else {
            let (mut notes, mut at) = (std::mem::take(&mut self.notes), self.cursor.at);
            let polled = self.poll_lines(max_bytes, &mut |entry| {
                let before = std::mem::replace(&mut at, entry.at);
                notes.emit(entry, before, sink);
            });
            self.notes = notes;
            polled
        };
        let cause = match polled {
            Ok(PollStatus::End) => self.stream_error.as_ref().and_then(StreamError::cause),
            _ => None,
        };
        match cause {
            Some(cause) => Err(self.core.error(&cause)),
            None => polled,
        }
    }

    fn rewind(&mut self, seq: Seq) -> Result<(), EntrySourceError> {
        let line = self.notes.rewind(seq);
        self.rewind_lines(line)
    }

    fn read(
        &mut self,
        seq: Seq,
        sink: &mut dyn FnMut(EntryRef<'_>),
    ) -> Result<bool, EntrySourceError> {
        match self.notes.locate(seq) {
            LineOrNote::Line(line) => {
                self.read_line(Seq(line), &mut |entry| sink(self.notes.assign(entry, seq)))
            }
            LineOrNote::Note { line, number } => {
                let at = self.time_before(Seq(line))?;
                self.read_line(Seq(line), &mut |entry| {
                    self.notes.emit_note(&entry, number, at, sink);
                })
            }
        }
    }

    fn read_head(
        &mut self,
        seq: Seq,
        most: usize,
        sink: &mut dyn FnMut(EntryRef<'_>, u64),
    ) -> Result<bool, EntrySourceError> {
        match self.notes.locate(seq) {
            LineOrNote::Line(line) => self.read_line_head(Seq(line), most, &mut |entry, size| {
                sink(self.notes.assign(entry, seq), size);
            }),
            LineOrNote::Note { .. } => self.read(seq, &mut |entry| {
                let size = entry.body.bytes().len() as u64;
                sink(entry, size);
            }),
        }
    }

    fn search(
        &mut self,
        text: &TextMatcher,
        batch: &mut EntryBatch,
        max_bytes: usize,
    ) -> Result<usize, EntrySourceError> {
        self.search_batch(text, batch, max_bytes)
    }

    fn position(&self) -> (u64, Option<u64>) {
        let total = match &self.core.growth {
            FileGrowth::Fixed(length) | FileGrowth::Head { length, .. } => Some(*length),
            FileGrowth::Until(_) => self
                .core
                .file
                .metadata()
                .ok()
                .map(|metadata| metadata.len()),
        };
        (self.lines.offset(), total)
    }

    fn scan_ahead(&mut self, max_bytes: usize) -> Result<PollStatus, EntrySourceError> {
        self.index().advance(max_bytes)
    }

    fn known_entries(&self) -> Option<u64> {
        Some(self.notes.entry_count(self.index().len()))
    }

    fn is_provisional(&self) -> bool {
        self.pending.is_some()
    }

    fn settle(&mut self) -> Option<Vec<Seq>> {
        let (settled, numbers) = self.settled()?;
        *self = settled;
        Some(numbers)
    }
}

/// The entries of the lines, without the notes between them.
impl FileSource {
    fn poll_lines(
        &mut self,
        max_bytes: usize,
        sink: &mut dyn FnMut(EntryRef<'_>),
    ) -> Result<PollStatus, EntrySourceError> {
        let (limit, finished) = self.core.readable_end()?;
        if self.prefetcher.is_none()
            && max_bytes >= BULK_POLL_BYTES
            && let Some(end) = self.prefetch_limit(limit)?
        {
            let lines = self.lines.offset()..end;
            self.prefetcher =
                LinePrefetcher::new(&self.core, self.parser, lines, self.lines.is_shortening());
        }
        if self.prefetcher.is_some() {
            return self.poll_prefetched(max_bytes, sink);
        }
        let stop = self.lines.offset().saturating_add(max_bytes.max(1) as u64);
        let begun = self.cursor.next;
        let mut first = begun;
        let mut marks = Vec::new();
        let result = loop {
            let (offset, line) = match self.lines.next(limit, finished) {
                Ok(NextLine::Line(offset, line)) => (offset, line),
                Ok(NextLine::Pending) => {
                    break Ok(if finished {
                        PollStatus::End
                    } else {
                        PollStatus::Waiting
                    });
                }
                Ok(NextLine::Shrunk) => break Err(self.core.shrunk()),
                Err(error) => break Err(self.core.error(&error)),
            };
            if !is_blank(line) {
                let flat =
                    (self.parser.format == InputFormat::Document).then(|| collapse_to_line(line));
                let parsed = self.parser.parse(flat.as_deref().unwrap_or(line));
                let is_encoded = flat.is_some() || parsed.is_encoded();
                marks.push(LineMark::parsed(offset, parsed.at.is_some(), is_encoded));
                self.cursor.emit_next(&parsed, sink);
            }
            if marks.len() == MARK_BATCH {
                self.core.merge(first.0, &marks, self.lines.offset());
                first = self.cursor.next;
                marks.clear();
            }
            if self.lines.offset() >= stop {
                break Ok(PollStatus::More);
            }
        };
        self.core.merge(first.0, &marks, self.lines.offset());
        match result {
            // A file that has just grown is the current one.
            Ok(PollStatus::Waiting) if self.cursor.next > begun => Ok(PollStatus::Waiting),
            Ok(PollStatus::Waiting) => self.check_followed(limit).map(|()| PollStatus::Waiting),
            other => other,
        }
    }

    fn rewind_lines(&mut self, seq: Seq) -> Result<(), EntrySourceError> {
        let offset = match self.core.line_span(seq) {
            Some((start, _)) => start,
            None if seq == self.cursor.next => return Ok(()),
            None => self
                .core
                .next_offset(seq)
                .ok_or_else(|| self.core.error(&format!("entry {seq} was never read")))?,
        };
        self.cursor.at = self.time_before(seq)?;
        self.prefetcher = None;
        self.lines.seek(offset);
        self.cursor.next = seq;
        Ok(())
    }

    fn read_line(
        &self,
        seq: Seq,
        sink: &mut dyn FnMut(EntryRef<'_>),
    ) -> Result<bool, EntrySourceError> {
        let Some(mut line) = self.line(seq)? else {
            return Ok(false);
        };
        if self.parser.format == InputFormat::Document {
            line = collapse_to_line(&line);
        }
        let parsed = self.parser.parse(&line);
        let at = if self.parser.has_times() {
            parsed.at.map_or_else(|| self.time_before(seq), Ok)?
        } else {
            synthetic_time(seq)
        };
        parsed.emit(seq, at, sink);
        Ok(true)
    }

    fn read_line_head(
        &self,
        seq: Seq,
        most: usize,
        sink: &mut dyn FnMut(EntryRef<'_>, u64),
    ) -> Result<bool, EntrySourceError> {
        if let Some(HugeLineEnds { head, tail, length }) = self.line_ends(seq, most)?
            && let Some((parsed, size)) = self.parser.parse_head(&head, &tail, length)
        {
            let at = match parsed.at {
                Some(at) if self.parser.has_times() => at,
                _ => self.time_before(seq)?,
            };
            parsed.emit(seq, at, &mut |entry| sink(entry, size));
            return Ok(true);
        }
        self.read_line(seq, &mut |entry| {
            let size = entry.body.bytes().len() as u64;
            sink(entry, size);
        })
    }
}

fn synthetic_time(seq: Seq) -> Millis {
    Millis(seq.0.saturating_mul(SYNTHETIC_INTERVAL.0))
}

/// Puts a JSON document on one line. JSON strings contain no newlines, so all newlines are layout.
fn collapse_to_line(document: &[u8]) -> Vec<u8> {
    document
        .iter()
        .map(|byte| {
            if matches!(byte, b'\n' | b'\r') {
                b' '
            } else {
                *byte
            }
        })
        .collect()
}

fn open_file(path: &Path) -> Result<(String, File), OpenError> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| OpenError::from_io(&name, &error))?;
    let metadata = file
        .metadata()
        .map_err(|error| OpenError::from_io(&name, &error))?;
    if metadata.is_dir() {
        Err(OpenError::Directory { name })
    } else {
        Ok((name, file))
    }
}

fn stem(path: &Path) -> String {
    path.file_stem()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

/// Reads the part of the head that is needed to detect the format of a finished file.
fn detect_file(
    file: &File,
    length: u64,
) -> std::io::Result<Result<DetectedInput, detect::UnsupportedInput>> {
    let head = read_range(file, 0, HEAD_BYTES)?;
    let is_cut = |head: &[u8]| (head.len() as u64) < length;
    let extent = |head: &[u8]| {
        if is_cut(head) {
            DetectionExtent::Head
        } else {
            DetectionExtent::Whole
        }
    };
    let first_line_is_cut = memchr::memchr(b'\n', &head).is_none();
    if is_cut(&head) && (first_line_is_cut || detect::may_be_document(&head)) {
        let longer = read_range(file, 0, MAX_FIRST_LINE)?;
        if is_cut(&longer) && memchr::memchr(b'\n', &longer).is_none() {
            return Ok(detect::detect(
                &shortened_first_line(file, length)?,
                DetectionExtent::Head,
            ));
        }
        return Ok(detect::detect(&longer, extent(&longer)));
    }
    Ok(detect::detect(&head, extent(&head)))
}

/// The first line with its long strings cut, which keeps all of its fields.
fn shortened_first_line(file: &File, length: u64) -> io::Result<Vec<u8>> {
    const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
    let mark = if read_range(file, 0, BYTE_ORDER_MARK.len())? == BYTE_ORDER_MARK {
        BYTE_ORDER_MARK
    } else {
        b""
    };
    let mut lines = FileLines::new(
        Arc::new(file.try_clone()?),
        EntrySplit::Lines,
        mark.len() as u64,
    );
    lines.enable_shortening();
    Ok(match lines.next(length, true)? {
        NextLine::Line(_, line) => [mark, line, b"\n"].concat(),
        NextLine::Pending | NextLine::Shrunk => Vec::new(),
    })
}
