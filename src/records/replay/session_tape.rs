//! A session file of Claude Code together with the transcripts of its sub-agents, as one tape: the session and each
//! sub-agent are units, and the lines are ordered by their times.
//!
//! The lines are copied unchanged to an unnamed temporary file; from there on they are read, searched and stepped
//! through like any other tape. A session that still runs is followed: another thread adds new lines and new
//! transcripts. Must not interpret lines beyond their time and their agent.

#![expect(
    clippy::disallowed_methods,
    reason = "whether that session file was replaced"
)]

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use serde::Deserialize;

use super::{
    agent_files::{AgentFile, AgentFiles, MAX_AGENTS},
    conversation_tree::{ConversationTree, SetAside},
    file_lines::{EntrySplit, FileLines, NextLine, read_range},
    index::{FileGrowth, is_blank},
    line_time,
    spool::{StreamError, check_space},
    tape_builder::TapeBuilder,
};
use ingestdeck_core::{
    decode::{self, LineBody, line_fields::line_fields},
    tape::{Millis, Note, Seq, UnitKey, entry, note::Severity},
};

/// Total size of the files of a session up to which they are merged. A larger session file is read alone and not followed.
const MAX_MERGED_BYTES: u64 = 512 << 20;
/// Bytes at the beginning of a session file that are shown before the rest of it has been read.
pub(super) const EARLY_BYTES: u64 = 4 << 20;
/// Maximum length of a line in a session that is merged.
const MAX_LINE_BYTES: u64 = 128 << 20;
/// Bytes of a transcript that are searched for its first time.
const HEAD_BYTES: usize = 64 << 10;
/// Bytes after which the free space is checked again.
const SPACE_CHECK_INTERVAL: u64 = 16 << 20;
/// Maximum number of lines of sub-agents without an id whose successors are recognized.
const MAX_INLINE_LINES: usize = 100_000;
/// Time between two looks at the files of a running session.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Number of looks at the files after which the directory is searched for new transcripts.
const POLLS_PER_SEARCH: u32 = 5;
/// Time between the entries of a session without times.
const SYNTHETIC_INTERVAL: u64 = 100;

/// A session as a tape.
#[derive(Debug)]
pub(super) struct SessionTape {
    pub(super) file: File,
    pub(super) growth: FileGrowth,
    /// Why it ends before the session does.
    pub(super) error: StreamError,
}

/// Follows a running session from another thread until it is stopped.
#[derive(Clone, Debug)]
pub struct SessionFollower {
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
}

impl SessionFollower {
    /// A number that changes whenever the tape has grown or its follower has failed.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Declares the session complete: what its files contain now is still added.
    pub fn finish(&self) {
        self.stop.store(true, Ordering::Release);
    }
}

/// A session that does not grow.
#[derive(Debug)]
pub(super) enum MergedSession {
    /// The session and its sub-agents, and the numbers of the entries with the lines at the beginning of the session file.
    Tape(SessionTape, Vec<Seq>),
    /// It has no sub-agents, or is too large: the file is read alone.
    Alone {
        /// The lines of it that do not count.
        set_aside: Vec<SetAside>,
        /// The unit of all lines, if they name several sessions that continue each other.
        only_unit: Option<UnitKey>,
    },
}

/// Merges the finished session in `main`, the file at `path`, which has `length` bytes.
pub(super) fn merge(
    path: &Path,
    main: &File,
    length: u64,
    epoch: Option<i64>,
) -> io::Result<MergedSession> {
    let is_agent = is_transcript_of_agent(main)?;
    if length > MAX_MERGED_BYTES {
        return read_alone(path, main, length);
    }
    let mut merger = SessionMerger::new(path, main.try_clone()?, is_agent, epoch, true)?;
    merger.find_agents(true)?;
    if let ([stream], 0) = (&*merger.streams, merger.problems)
        && stream.tree.counts_every_line()
        && (!stream.tree.has_sidechains || is_agent)
        && !stream.tree.has_earlier_ids
    {
        return Ok(MergedSession::Alone {
            set_aside: Vec::new(),
            only_unit: None,
        });
    }
    match merger.merge(true) {
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            return read_alone(path, main, length);
        }
        merged => merged?,
    }
    let (file, length) = merger.tape.end()?;
    let tape = SessionTape {
        file,
        growth: FileGrowth::Fixed(length),
        error: StreamError::default(),
    };
    Ok(MergedSession::Tape(tape, merger.head))
}

/// Reads which lines of the session file in `main` count.
pub(super) fn read_alone(path: &Path, main: &File, length: u64) -> io::Result<MergedSession> {
    let tree = ConversationTree::read(&Arc::new(main.try_clone()?), length, true)?;
    Ok(MergedSession::Alone {
        only_unit: tree.has_earlier_ids.then(|| UnitKey::new(stem(path))),
        set_aside: tree.into_set_aside(),
    })
}

/// Merges a session that still runs, and starts to follow it.
///
/// # Errors
/// `FileTooLarge` for a session that is too large.
pub(super) fn follow(
    path: &Path,
    main: &File,
    epoch: Option<i64>,
) -> io::Result<(SessionTape, SessionFollower)> {
    let is_agent = is_transcript_of_agent(main)?;
    let mut merger = SessionMerger::new(path, main.try_clone()?, is_agent, epoch, false)?;
    let file = merger.tape.file().try_clone()?;
    merger.find_agents(false)?;
    merger.merge(false)?;
    let error = StreamError::default();
    let failure = error.clone();
    let finished = Arc::new(AtomicBool::new(false));
    let follower = SessionFollower {
        stop: Arc::default(),
        written: Arc::new(AtomicU64::new(merger.tape.written())),
    };
    let (handle, done) = (follower.clone(), Arc::clone(&finished));
    let following = move || {
        let mut polls = 0_u32;
        loop {
            // Read first, so that the last look includes everything that was written before.
            // The other handle is gone when the reader has closed the session.
            let is_last = handle.stop.load(Ordering::Acquire) || Arc::strong_count(&done) == 1;
            polls = polls.wrapping_add(1);
            let searches = is_last || polls.is_multiple_of(POLLS_PER_SEARCH);
            let searched = if searches {
                merger
                    .find_agents(is_last)
                    .and_then(|()| merger.check_replaced())
            } else {
                Ok(())
            };
            let merged = searched.and_then(|()| merger.merge(is_last));
            let failed = merged.inspect_err(|cause| failure.set(cause)).is_err();
            handle
                .written
                .store(merger.tape.written() + u64::from(failed), Ordering::Release);
            if is_last || failed {
                done.store(true, Ordering::Release);
                return;
            }
            thread::sleep(POLL_INTERVAL);
        }
    };
    thread::Builder::new()
        .name("session".into())
        .spawn(following)?;
    Ok((
        SessionTape {
            file,
            growth: FileGrowth::Until(finished),
            error,
        },
        follower,
    ))
}

/// True for a file in which all messages are those of a sub-agent.
pub(super) fn is_transcript_of_agent(file: &File) -> io::Result<bool> {
    let head = read_range(file, 0, HEAD_BYTES)?;
    let sides: Vec<bool> = head
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line_fields(line).is_sidechain)
        .collect();
    Ok(!sides.is_empty() && !sides.contains(&false))
}

/// The id of a session, which is the name of its file.
fn stem(path: &Path) -> String {
    path.file_stem()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

fn too_large(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, why)
}

/// One file that is merged.
#[derive(Debug)]
struct MergedFile {
    file: Arc<File>,
    lines: FileLines,
    unit: String,
    attempt: u32,
    /// True if its lines may belong to sub-agents.
    is_main: bool,
    /// Length of the file at the beginning of the merge. A merge ends, although its files may grow.
    length: u64,
    /// Time of its last line in milliseconds since 1970. Times never run backwards within a file.
    time: i64,
    /// The next line, which was read but not written.
    next: Option<PendingLine>,
    /// The lines that were in the file when it was opened, and those that were added.
    tree: ConversationTree,
    /// Number of lines that were read.
    line_count: u64,
    /// True after the file shrank or could not be read.
    is_lost: bool,
}

/// A line that waits for earlier lines of other files.
#[derive(Debug)]
struct PendingLine {
    bytes: Vec<u8>,
    is_json: bool,
    /// True for a line of a sub-agent, and the id of the agent.
    is_sidechain: bool,
    agent: Option<String>,
    /// The first of lines that do not count.
    set_aside: Option<SetAside>,
    /// It starts within the first bytes of its file.
    is_in_head: bool,
}

impl PendingLine {
    /// Copies a line; also returns its time in milliseconds since 1970.
    fn new(line: &[u8]) -> (Self, Option<i64>) {
        let line = line
            .strip_prefix(b"\xef\xbb\xbf")
            .unwrap_or(line)
            .trim_ascii();
        let decoded = decode::decode_line(line);
        let time = decoded
            .timestamp
            .as_deref()
            .and_then(line_time::parse_timestamp);
        let pending = Self {
            bytes: line.to_owned(),
            is_json: decoded.body != LineBody::Malformed,
            is_sidechain: decoded.is_sidechain,
            agent: decoded.agent_id.map(Into::into),
            set_aside: None,
            is_in_head: false,
        };
        (pending, time)
    }
}

#[derive(Debug)]
struct SessionMerger {
    agents: Option<AgentFiles>,
    streams: Vec<MergedFile>,
    tape: TapeBuilder,
    /// The entries with the lines that start within the first [`EARLY_BYTES`] of the session file.
    head: Vec<Seq>,
    /// Time 0 in milliseconds since 1970; `None` if the session has no times.
    epoch: Option<i64>,
    last_at: Millis,
    /// Bytes of the tape when the free space was checked last.
    checked: u64,
    /// Units of sub-agents whose lines are in the session file, by the `uuid` of a line.
    inline_units: HashMap<String, String>,
    inline_count: usize,
    /// Number of problems that were reported.
    problems: usize,
    /// The session does not grow.
    is_finished: bool,
    /// Path of the session file, until it names another file.
    path: Option<PathBuf>,
}

impl SessionMerger {
    fn new(
        path: &Path,
        main: File,
        is_agent: bool,
        epoch: Option<i64>,
        is_finished: bool,
    ) -> io::Result<Self> {
        let session = stem(path);
        let mut merger = Self {
            agents: AgentFiles::new(path).filter(|_| !is_agent),
            streams: Vec::new(),
            tape: TapeBuilder::new(tempfile::tempfile()?),
            head: Vec::new(),
            epoch,
            last_at: Millis(0),
            checked: 0,
            inline_units: HashMap::new(),
            inline_count: 0,
            problems: 0,
            is_finished,
            path: Some(path.to_owned()),
        };
        let unit = merger
            .agents
            .as_mut()
            .map(|agents| agents.unique_unit("", &session))
            .unwrap_or(session);
        merger.add_stream(main, unit, 1, !is_agent)?;
        Ok(merger)
    }

    fn add_stream(
        &mut self,
        file: File,
        unit: String,
        attempt: u32,
        is_main: bool,
    ) -> io::Result<()> {
        let head = read_range(&file, 0, HEAD_BYTES)?;
        let first = head
            .split(|byte| *byte == b'\n')
            .find_map(line_time::line_timestamp);
        let length = file.metadata()?.len().min(MAX_MERGED_BYTES);
        let file = Arc::new(file);
        let tree = ConversationTree::read(&file, length, self.is_finished)?;
        let lines = FileLines::new(Arc::clone(&file), EntrySplit::Lines, 0);
        let time = first.or(self.epoch).unwrap_or(i64::MIN);
        self.streams.push(MergedFile {
            file,
            lines,
            unit,
            attempt,
            is_main,
            length: 0,
            time,
            next: None,
            tree,
            line_count: 0,
            is_lost: false,
        });
        Ok(())
    }

    /// Adds the transcripts that appeared since the last call.
    fn find_agents(&mut self, is_last: bool) -> io::Result<()> {
        let Some(agents) = &mut self.agents else {
            return Ok(());
        };
        let found = agents.find_new(is_last);
        for AgentFile {
            file,
            agent,
            unit,
            attempt,
        } in found.files
        {
            self.inline_units.insert(agent, unit.clone());
            self.add_stream(file, unit, attempt, false)?;
        }
        for problem in found.problems {
            self.report(problem)?;
        }
        Ok(())
    }

    /// Reports that the path of the session file now names another file.
    fn check_replaced(&mut self) -> io::Result<()> {
        let ours = self.streams[0].file.metadata()?;
        let named = self.path.as_ref().and_then(|path| fs::metadata(path).ok());
        if named.is_none_or(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino())) {
            return Ok(());
        }
        self.path = None;
        self.report(
            "the session file was replaced by another file; open the session again".to_owned(),
        )
    }

    fn report(&mut self, problem: String) -> io::Result<()> {
        self.problems += 1;
        self.tape
            .message(self.last_at, None, Severity::Warning, problem)
    }

    /// Determines how much of each file the next merge reads.
    fn measure(&mut self) -> io::Result<()> {
        let mut total = 0_u64;
        for stream in &mut self.streams {
            stream.length = stream.file.metadata().map_or(0, |metadata| metadata.len());
            total = total.saturating_add(stream.length);
        }
        if total > MAX_MERGED_BYTES {
            return Err(too_large(&format!(
                "its files exceed {} MiB",
                MAX_MERGED_BYTES >> 20
            )));
        }
        Ok(())
    }

    /// Writes all lines that are complete, ordered by time. The rest of a file counts as a line if it is `finished`.
    fn merge(&mut self, finished: bool) -> io::Result<()> {
        self.measure()?;
        let mut queue = BinaryHeap::new();
        for index in 0..self.streams.len() {
            self.read_next(index, finished)?;
            if self.streams[index].next.is_some() {
                queue.push(Reverse((self.streams[index].time, index)));
            }
        }
        while let Some(Reverse((_, index))) = queue.pop() {
            if let Some(line) = self.streams[index].next.take() {
                self.write(index, &line)?;
            }
            self.read_next(index, finished)?;
            if self.streams[index].next.is_some() {
                queue.push(Reverse((self.streams[index].time, index)));
            }
            if self.tape.written() - self.checked > SPACE_CHECK_INTERVAL {
                self.checked = self.tape.written();
                check_space(self.tape.file())?;
            }
        }
        self.tape.flush()
    }

    /// Reads the next line of a file, unless one waits.
    fn read_next(&mut self, index: usize, finished: bool) -> io::Result<()> {
        let stream = &mut self.streams[index];
        while stream.next.is_none() && !stream.is_lost {
            let is_short = stream.length < stream.lines.offset();
            let limit = stream
                .length
                .min(stream.lines.offset().saturating_add(MAX_LINE_BYTES));
            let is_cut = limit < stream.length;
            match stream.lines.next(limit, finished && !is_cut) {
                Ok(NextLine::Line(offset, line)) if !is_short => {
                    if !is_blank(line) {
                        let (mut line, time) = PendingLine::new(line);
                        line.is_in_head = offset < EARLY_BYTES;
                        line.set_aside = stream.tree.set_aside(stream.line_count, &line.bytes);
                        stream.line_count += 1;
                        stream.time = stream.time.max(time.unwrap_or(i64::MIN));
                        stream.next = Some(line);
                    }
                }
                Ok(NextLine::Pending) if is_cut => {
                    return Err(too_large(&format!(
                        "a line exceeds {} MiB",
                        MAX_LINE_BYTES >> 20
                    )));
                }
                Ok(NextLine::Pending) if !is_short => return Ok(()),
                Ok(_) => {
                    stream.is_lost = true;
                    let problem = format!(
                        "the file of `{}` shrank while it was open; open the session again",
                        stream.unit
                    );
                    return self.report(problem);
                }
                Err(error) => {
                    stream.is_lost = true;
                    let problem = format!("cannot read the file of `{}`: {error}", stream.unit);
                    return self.report(problem);
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, index: usize, line: &PendingLine) -> io::Result<()> {
        let stream = &self.streams[index];
        // The beginning of the file may contain no time.
        self.epoch = self
            .epoch
            .or(Some(stream.time).filter(|time| *time != i64::MIN));
        let at = match self.epoch {
            Some(epoch) => Millis(u64::try_from(stream.time.saturating_sub(epoch)).unwrap_or(0)),
            None => Millis(self.tape.next_seq().0.saturating_mul(SYNTHETIC_INTERVAL)),
        };
        self.last_at = self.last_at.max(at);
        let inline = (stream.is_main && line.is_sidechain).then(|| self.inline_unit(line));
        let stream = &self.streams[index];
        let key = inline
            .as_deref()
            .map_or((stream.unit.as_str(), stream.attempt), |unit| (unit, 1));
        if let Some(set_aside) = &line.set_aside {
            if let Some(text) = set_aside.text() {
                self.tape
                    .message(self.last_at, Some(key), Severity::Info, text)?;
            }
            let lines = set_aside.lines;
            self.tape
                .note(self.last_at, Some(key), &Note::LinesSetAside { lines })?;
        }
        if index == 0 && line.is_in_head {
            self.head.push(self.tape.next_seq());
        }
        self.tape.entry(
            self.last_at,
            Some(key),
            entry::stdout_body(&line.bytes, line.is_json),
        )
    }

    /// The unit of a sub-agent's line in the session file. Without the id of the agent, the line before it decides; only
    /// one step is followed, so that a cycle does no harm.
    fn inline_unit(&mut self, line: &PendingLine) -> String {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct LineLinks {
            uuid: Option<String>,
            parent_uuid: Option<String>,
        }
        let links: LineLinks = match line.agent {
            Some(_) => LineLinks::default(),
            None => serde_json::from_slice(&line.bytes).unwrap_or_default(),
        };
        // A repeated line belongs to the unit of the first one.
        let known = [&line.agent, &links.parent_uuid, &links.uuid]
            .into_iter()
            .flatten()
            .find_map(|id| self.inline_units.get(id).cloned());
        let unit = known.unwrap_or_else(|| {
            let number = (self.inline_count + 1).to_string();
            let name = if self.inline_count < MAX_AGENTS {
                self.inline_count += 1;
                format!("sub-agent {}", line.agent.as_deref().unwrap_or(&number))
            } else {
                "more sub-agents".to_owned()
            };
            let key = format!("inline/{name}");
            self.agents
                .as_mut()
                .map_or_else(|| name.clone(), |agents| agents.unique_unit(&key, &name))
        });
        let key = line.agent.as_deref().map(str::to_owned).or(links.uuid);
        if let Some(key) = key.filter(|_| self.inline_units.len() < MAX_INLINE_LINES) {
            self.inline_units.insert(key, unit.clone());
        }
        unit
    }
}
