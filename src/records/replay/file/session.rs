//! Opens session files of Claude Code: with the transcripts of their sub-agents, while they grow, and before they have
//! been read.

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        mpsc::{self, TryRecvError},
    },
    thread,
};

use super::{
    super::{
        claude_sessions,
        detect::{DetectedInput, InputFormat},
        error::OpenError,
        index::FileGrowth,
        inserted_notes::InsertedNotes,
        session_tape::{self, EARLY_BYTES, MergedSession, SessionFollower, SessionTape},
        spool::StreamError,
    },
    FileSource, open_file,
};
use ingestdeck_core::tape::Seq;

impl FileSource {
    /// Opens a finished file. Data that is appended later is ignored. A pipe is read like stdin, and a session file
    /// together with the transcripts of its sub-agents.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Self::open_unless(path, |_| false)
    }

    /// Like [`open`](Self::open), but does not wait until a large session file has been read. Meanwhile the source
    /// consists of the lines at the beginning of that file, and is provisional.
    pub fn open_early(path: &Path) -> Result<Self, OpenError> {
        Self::open_unless(path, |length| length > EARLY_BYTES)
    }

    /// Opens a file, and reads a session file as a whole unless its length `is_large`.
    fn open_unless(path: &Path, is_large: fn(u64) -> bool) -> Result<Self, OpenError> {
        let (name, file) = open_file(path)?;
        let failed = |error: io::Error| OpenError::from_io(&name, &error);
        let source = Self::from_file(path, file)?;
        if !source.is_complete_session() {
            return Ok(source);
        }
        let source = source.with_session_title();
        let source = source.with_nested_sidechains().map_err(failed)?;
        let (file, epoch) = (Arc::clone(&source.core.file), source.parser.epoch);
        let (path, length) = (path.to_owned(), source.length());
        let read = move || session_tape::merge(&path, &file, length, epoch);
        if !is_large(length) {
            return Ok(source.merged(read().map_err(failed)?).0);
        }
        let (sender, pending) = mpsc::channel();
        thread::Builder::new()
            .name("session".into())
            // The receiver is gone if the source was dropped.
            .spawn(move || drop(sender.send(read())))
            .map_err(failed)?;
        let growth = FileGrowth::Head {
            shown: EARLY_BYTES,
            length,
        };
        Ok(Self {
            pending: Some(pending),
            ..source.reopened(growth)
        })
    }

    /// Opens a session file that is still being written, with the transcripts of its sub-agents, and follows it. `None`
    /// for other files and for a session that is too large to be merged.
    pub fn follow_session(path: &Path) -> Result<Option<(Self, SessionFollower)>, OpenError> {
        let (name, file) = open_file(path)?;
        // A repaired copy would not grow.
        let source = Self::from_regular_file(path, file, false)?;
        if !source.is_complete_session() {
            return Ok(None);
        }
        let source = source.with_session_title();
        match session_tape::follow(path, &source.core.file, source.parser.epoch) {
            Ok((tape, follower)) => Ok(Some((source.with_session_tape(tape), follower))),
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Ok(None),
            Err(error) => Err(OpenError::from_io(&name, &error)),
        }
    }

    /// The whole session, once it has been read, and the new numbers of the entries so far.
    pub(super) fn settled(&self) -> Option<(Self, Vec<Seq>)> {
        let merged = match self.pending.as_ref()?.try_recv() {
            Ok(merged) => merged,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Err(io::Error::other("the reading thread stopped")),
        };
        let merged = merged.map(|merged| self.merged(merged));
        Some(merged.unwrap_or_else(|cause| {
            let (mut whole, numbers) = self.merged(MergedSession::Alone {
                set_aside: Vec::new(),
                only_unit: None,
            });
            let error = StreamError::default();
            error.set(&cause);
            whole.stream_error = Some(error);
            (whole, numbers)
        }))
    }

    /// The source of the whole session, and the numbers of the entries with the lines that this source has passed on.
    fn merged(&self, merged: MergedSession) -> (Self, Vec<Seq>) {
        let (source, numbers) = match merged {
            MergedSession::Tape(tape, head) => (self.with_session_tape(tape), head),
            MergedSession::Alone {
                set_aside,
                only_unit,
            } => {
                let notes = InsertedNotes::new(set_aside, self.origin.fallback_unit.clone())
                    .with_only_unit(only_unit);
                let numbers = (0..self.index().len())
                    .map(|line| notes.entry_of(line))
                    .collect();
                let source = Self {
                    notes,
                    ..self.reopened(FileGrowth::Fixed(self.length()))
                };
                (source, numbers)
            }
        };
        match self.lines.is_shortening() {
            true => (source.with_shortened_lines(), numbers),
            false => (source, numbers),
        }
    }

    /// True for a session in a regular file. A stream is still being copied, and has no directory of sub-agents.
    fn is_complete_session(&self) -> bool {
        self.parser.format == InputFormat::SessionFile
            && matches!(self.core.growth, FileGrowth::Fixed(_))
    }

    /// Length of the file when it was opened; 0 for one that grows.
    fn length(&self) -> u64 {
        match self.core.growth {
            FileGrowth::Fixed(length) | FileGrowth::Head { length, .. } => length,
            FileGrowth::Until(_) => 0,
        }
    }

    fn with_session_title(mut self) -> Self {
        self.origin.title = claude_sessions::session_title(&self.core.file);
        self
    }

    /// Shows the lines of sub-agents in the session file within the session, unless all lines are those of one.
    fn with_nested_sidechains(mut self) -> io::Result<Self> {
        self.parser.nests_sidechains = !session_tape::is_transcript_of_agent(&self.core.file)?;
        Ok(self)
    }

    /// A source of the same lines, at their beginning.
    fn reopened(&self, growth: FileGrowth) -> Self {
        let detected = DetectedInput {
            format: self.parser.format,
            header: None,
            first_entry: self.first_entry,
            first_time: self.parser.epoch,
            session: None,
        };
        let (file, name) = (Arc::clone(&self.core.file), self.core.name.clone());
        Self {
            origin: self.origin.clone(),
            parser: self.parser,
            ..Self::new(file, name, "", detected, growth)
        }
    }

    /// Reads `tape` instead of the session file from which it was made.
    fn with_session_tape(&self, tape: SessionTape) -> Self {
        let converted = DetectedInput {
            format: InputFormat::Tape,
            header: None,
            first_entry: 0,
            first_time: None,
            session: None,
        };
        let name = self.origin.name.clone();
        let source = Self::new(Arc::new(tape.file), name, "", converted, tape.growth);
        Self {
            origin: self.origin.clone(),
            stream_error: Some(tape.error),
            ..source
        }
    }
}

#[cfg(test)]
mod tests;
