//! The part of a recorded run that explains the lines of one file: patches, writes and calls of its attempts.
//!
//! Reads only this tape, and decodes only the attempts that are asked for. It must not know git.

use std::collections::{HashMap, HashSet, VecDeque};

use jiff::{SignedDuration, Timestamp};

use crate::recorded_tapes;
use ingestdeck_core::{
    diagnostic::{Diagnostic, Problem},
    run::{
        EntryRef, EntryScope, EntrySource as _, EntrySourceError, Fold, PollStatus, SinkEvent,
        artifacts, commit_trailers::trailer_key, provenance::ProvenanceCalls, state::RunView,
    },
    tape::{
        EntryBody, Millis, Note, RunId, Seq, UnitKey,
        note::{AttemptOutput, PatchWritten, ReviewDecided, ReviewDecision},
    },
};
use ingestdeck_records::{replay::FileSource, store::RunStore};

/// Bytes of a tape that are read at a time. Below the size from which entries are decoded ahead.
const SLICE: usize = 256 << 10;

/// The beginnings of the notes that are needed, as every version writes them.
const PATCH_WRITTEN: &[u8] = br#"{"kind":"patch_written""#;
const ATTEMPT_ENDED: &[u8] = br#"{"kind":"attempt_ended""#;
const PROJECTED: &[u8] = br#"{"kind":"projected""#;
const REVIEW_REQUESTED: &[u8] = br#"{"kind":"review_requested""#;
const REVIEW_DECIDED: &[u8] = br#"{"kind":"review_decided""#;

/// Most decisions about the file that are kept.
const MAX_DECISIONS: usize = 20;

/// An attempt: its unit in the form of [`trailer_key`], and its number.
pub(super) type AttemptKey = (String, u32);

/// An attempt that changed the file.
#[derive(Clone, Debug)]
pub(super) struct RecordedAttempt {
    pub unit: UnitKey,
    pub patch: PatchWritten,
    /// Its output; `None` if the tape ends before it.
    pub output: Option<AttemptOutput>,
}

/// The calls of an attempt.
#[derive(Debug)]
pub(super) struct AttemptCallRecord {
    pub calls: ProvenanceCalls,
    /// True if it continued a session, whose earlier reads belong to another attempt.
    pub is_resumed: bool,
}

/// A recorded run, as far as it concerns one file.
#[derive(Debug)]
pub(super) struct RunRecord {
    source: FileSource,
    started_at: Option<Timestamp>,
    /// The attempts whose patches change the file.
    pub attempts: HashMap<AttemptKey, RecordedAttempt>,
    /// The attempts whose patches change only other files.
    others: HashSet<AttemptKey>,
    /// The last decisions of reviewers about the file, oldest first.
    pub decisions: VecDeque<ReviewDecided>,
    /// The document that the file is, with its connection, if the run kept it verbatim.
    pub document: Option<(Option<String>, String)>,
    /// True while the run is active, so that its tape still grows.
    pub is_active: bool,
}

impl RunRecord {
    /// Reads the notes of a run about `path`.
    ///
    /// # Errors
    /// If the run is not recorded or its tape cannot be read: the sentence about it.
    pub(super) fn open(runs: &RunStore, run: RunId, path: &str) -> Result<Self, Problem> {
        let found = runs.recorded_run(run);
        let tape = match runs.open_tape(&found) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(format!("run {run} is not recorded in this project").into());
            }
            _ => recorded_tapes::open_source(runs, &found),
        };
        let unreadable = |cause: String| {
            Problem::new(format!("the record of run {run} cannot be read: {cause}"))
        };
        let source = tape
            .map_err(|error| unreadable(error.to_line()))?
            .with_shortened_lines();
        let header = source.info().header.as_ref();
        if header.is_none_or(|header| header.run != run) {
            return Err(unreadable("it is the record of another run".to_owned()));
        }
        let started_at = header.map(|header| header.started_at);
        let is_active = runs.is_alive(run).unwrap_or(false);
        let (attempts, others, decisions) = Default::default();
        let mut record = Self {
            source,
            started_at,
            attempts,
            others,
            decisions,
            document: None,
            is_active,
        };
        record
            .read_notes(path)
            .map_err(|error| unreadable(error.cause))?;
        Ok(record)
    }

    /// The wall clock time of a moment.
    pub(super) fn wall_time(&self, at: Millis) -> Option<Timestamp> {
        let passed = SignedDuration::from_millis(i64::try_from(at.0).ok()?);
        self.started_at?.checked_add(passed).ok()
    }

    /// An attempt; `None` if its patch does not change the file.
    ///
    /// # Errors
    /// If the tape does not contain its patch: the sentence about it.
    pub(super) fn attempt(&self, key: &AttemptKey) -> Result<Option<RecordedAttempt>, Problem> {
        match self.attempts.get(key) {
            None if !self.others.contains(key) => Err(Problem::new(
                "the record does not name the patch of the attempt",
            )),
            recorded => Ok(recorded.cloned()),
        }
    }

    fn read_notes(&mut self, path: &str) -> Result<(), EntrySourceError> {
        let (attempts, others, decisions) =
            (&mut self.attempts, &mut self.others, &mut self.decisions);
        let document = &mut self.document;
        for_each_entry(&mut self.source, &mut |entry| {
            let EntryBody::Note(json) = &entry.body else {
                return;
            };
            if json.starts_with(REVIEW_REQUESTED) || json.starts_with(REVIEW_DECIDED) {
                let decided = match Note::parse(json) {
                    Note::ReviewRequested(request) => request.decided.clone(),
                    Note::ReviewDecided(decided) => vec![*decided],
                    _ => Vec::new(),
                };
                let is_kept = |note: &ReviewDecided| {
                    note.path == path && note.decision != ReviewDecision::Open
                };
                decisions.extend(decided.into_iter().filter(is_kept));
                decisions.drain(..decisions.len().saturating_sub(MAX_DECISIONS));
            }
            if json.starts_with(PROJECTED)
                && let Note::SourcesProjected(note) = Note::parse(json)
                && note.paths.iter().any(|changed| changed == path)
            {
                let page = artifacts::action_at(path).map(|action| action.key);
                let mut documents = note.documents.iter();
                let kept = documents.find(|it| page.as_deref() == Some(&*it.page));
                *document = kept.map(|it| (note.connection.clone(), it.path.clone()));
            }
            let EntryScope::Attempt(unit, number) = entry.scope else {
                return;
            };
            if json.starts_with(PATCH_WRITTEN) {
                if let Note::PatchWritten(patch) = Note::parse(json) {
                    let unit = UnitKey::from(unit);
                    let key = (trailer_key(&unit), number);
                    if patch.paths.iter().any(|changed| changed == path) {
                        attempts.insert(
                            key,
                            RecordedAttempt {
                                unit,
                                patch,
                                output: None,
                            },
                        );
                    } else {
                        others.insert(key);
                    }
                }
            } else if json.starts_with(ATTEMPT_ENDED) {
                let key = (trailer_key(&UnitKey::from(unit)), number);
                if let Some(attempt) = attempts.get_mut(&key)
                    && let Note::AttemptEnded(ended) = Note::parse(json)
                {
                    attempt.output = Some(ended.work);
                }
            }
        })
    }

    /// The calls of an attempt. Only its lines are decoded.
    ///
    /// # Errors
    /// If the tape cannot be read.
    pub(super) fn read_calls(
        &mut self,
        unit: &UnitKey,
        number: u32,
    ) -> Result<AttemptCallRecord, EntrySourceError> {
        let (mut fold, mut view) = (Fold::new(unit.clone()), RunView::default());
        let mut record = AttemptCallRecord {
            calls: ProvenanceCalls::default(),
            is_resumed: false,
        };
        self.source.rewind(Seq(0))?;
        for_each_entry(&mut self.source, &mut |entry| {
            if entry.scope != EntryScope::Attempt(unit, number) {
                return;
            }
            fold.apply(&mut view, &entry, &mut |emitted| {
                if let SinkEvent::Note {
                    note: Note::AttemptStarted(started),
                    ..
                } = &emitted
                {
                    record.is_resumed = started
                        .amendment
                        .as_ref()
                        .is_some_and(|amendment| amendment.resume.is_some());
                }
                record.calls.observe(&emitted);
            });
        })?;
        Ok(record)
    }
}

fn for_each_entry(
    source: &mut FileSource,
    sink: &mut dyn FnMut(EntryRef<'_>),
) -> Result<(), EntrySourceError> {
    while source.poll(SLICE, sink)? == PollStatus::More {}
    Ok(())
}
