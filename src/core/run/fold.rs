//! Folds entries into a run view, one entry at a time and in order. It never fails.
//!
//! Folding the same entries again into a view that already has their rows changes nothing: rows are found by number,
//! and the first end of a row is kept. Seeking back therefore only folds again from a checkpoint.

mod attempt;
mod notes;
mod patches;
mod run_endings;
mod silence;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

pub(crate) use self::silence::DEFAULT_SILENCE_AFTER;
use self::{attempt::AttemptFold, silence::SilenceTracker};
use super::{
    EntryRef, EntryScope,
    review::ReviewState,
    state::{
        AgentTask, AttemptId, AttemptRows, AttemptState, HoldMode, LastEntryEffects, LogMessage,
        RunView, UnitState, UnitStatus, push_compact,
    },
};
use crate::{
    actions::{AgentEvent, StreamEnd, TurnTracker},
    decode::{self, AgentLine, line::WorkflowItem},
    tape::{
        EntryBody, Millis, Note, Seq, UnitKey,
        note::{
            IntegrationAdvanced, PatchResult, RunEnded, RunPlanned, RunSaved, Severity, SharedWrite,
        },
    },
};

/// Maximum number of attempts that are folded, over all units. Each takes about two KiB however short its lines are.
const MAX_ATTEMPTS: usize = 100_000;

/// The fold and the state that it keeps between entries.
#[derive(Clone, Debug)]
pub struct Fold {
    fallback_unit: UnitKey,
    /// Shared with checkpoints: attempts that did not change since the last checkpoint are not copied for the next one.
    attempts: Vec<Arc<AttemptFold>>,
    /// Attempts by unit key and attempt number: an untrusted file may have any number of either.
    attempts_by_unit: HashMap<UnitKey, BTreeMap<u32, AttemptId>>,
    /// Positions of the units in the state: an untrusted file may name a million of them.
    units: HashMap<UnitKey, usize>,
    message_count: usize,
    silence_tracker: SilenceTracker,
    /// Attempt of the last entry. Most entries belong to the same attempt as the entry before them.
    last_attempt: Option<AttemptId>,
    /// The source has more than [`MAX_ATTEMPTS`] attempts.
    attempts_overflowed: bool,
}

/// An effect of one entry, for sinks that print a stream of events instead of a state.
#[derive(Clone, Debug, PartialEq)]
pub enum SinkEvent<'a> {
    /// An event of an attempt.
    Agent {
        /// Number of the entry that caused it.
        entry: Seq,
        at: Millis,
        unit: &'a str,
        attempt: u32,
        event: AgentEvent<'a>,
        /// Detail about a finished call or the end that the event lacks.
        outcome_detail: Option<OutcomeDetail>,
    },
    /// A unit changed its status.
    Unit {
        at: Millis,
        unit: &'a str,
        /// Current attempt; 0 before the first.
        attempt: u32,
        status: UnitStatus,
        /// The reason in the verdict, or the reason of a wait.
        reason: Option<&'a str>,
        /// The cause that decided, where the verdict only counts: its failed call.
        cause: Option<&'a str>,
    },
    /// The patch of an attempt was integrated or rejected.
    Patch {
        at: Millis,
        unit: &'a str,
        attempt: u32,
        result: PatchResult,
        /// Why it was rejected.
        reason: Option<&'a str>,
        /// Files of it that units integrated before it also wrote.
        shared: &'a [SharedWrite],
    },
    /// A task in the background started or ended, or an agent of a workflow ended.
    Task {
        at: Millis,
        unit: &'a str,
        attempt: u32,
        task: &'a AgentTask,
        change: TaskChange<'a>,
    },
    Message {
        at: Millis,
        unit: &'a str,
        /// The attempt that it concerns; 0 before the first.
        attempt: u32,
        level: Severity,
        text: &'a str,
    },
    Run {
        at: Millis,
        change: RunEvent<'a>,
    },
    /// A line of an agent that belongs to a turn, before the events that it causes. For sinks with another vocabulary.
    Line {
        at: Millis,
        unit: &'a str,
        attempt: u32,
        line: &'a AgentLine<'a>,
        /// Turns of the model so far, including this line.
        turns: u32,
    },
    /// A note, before its effects. For sinks that need who decided what.
    Note {
        at: Millis,
        /// Unit and attempt; `None` for a note about the whole run.
        attempt: Option<(&'a str, u32)>,
        note: &'a Note,
    },
}

/// What happened to a task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TaskChange<'a> {
    Started,
    Ended,
    /// An agent of the workflow ended.
    AgentEnded(&'a WorkflowItem<'a>),
}

/// Refines the outcome of a call or an attempt where its event lacks it or differs from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutcomeDetail {
    /// The tool did not carry out the request, and the result is not an error.
    Declined,
    /// The attempt was ended before the result arrived, or the tape ends before it.
    Aborted,
    /// The turn or cost budget ran out, which is not a failure.
    BudgetExhausted,
    /// The call started a task that runs on in the background.
    Background,
}

impl OutcomeDetail {
    /// Its text in lines, and in JSON unless it has a field there.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Declined => "declined",
            Self::Aborted => "cut short",
            Self::BudgetExhausted => "budget",
            Self::Background => "in the background",
        }
    }
}

/// A change of the run as a whole.
#[derive(Clone, Debug, PartialEq)]
pub enum RunEvent<'a> {
    Planned(&'a RunPlanned),
    /// The whole run waits for a limit.
    Paused {
        /// End of the wait, if known.
        until: Option<Millis>,
        /// Name of the limit as the service reports it.
        limit: &'a str,
    },
    /// The whole run waits for workers.
    WorkersAwaited {
        /// When the run ends without them.
        until: Millis,
    },
    Resumed,
    /// Patches were integrated while units run.
    IntegrationAdvanced(IntegrationAdvanced),
    /// The patches of this number of units are being integrated.
    Integrating(usize),
    /// The integrated changes wait for a review.
    ReviewRequested(&'a ReviewState),
    /// The integrated changes are on the project's branch.
    Saved(&'a RunSaved),
    /// The integrated changes could not be put on the branch, with the reason.
    SaveFailed(&'a str),
    Message {
        level: Severity,
        text: &'a str,
    },
    /// The run ended regularly.
    Ended(&'a RunEnded),
}

impl Fold {
    /// Creates a fold without entries. Lines that name no session belong to `fallback`.
    pub fn new(fallback: UnitKey) -> Self {
        let (by_unit, units, silences) = Default::default();
        Self {
            fallback_unit: fallback,
            attempts: Vec::new(),
            attempts_by_unit: by_unit,
            units,
            message_count: 0,
            silence_tracker: silences,
            last_attempt: None,
            attempts_overflowed: false,
        }
    }

    /// Folds one entry into `view`.
    pub fn apply(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        self.advance_clock(view, entry.at, emit);
        view.last_change = LastEntryEffects::default();
        view.state.entries = entry.seq.0 + 1;
        view.state.last_entry_at = view.state.last_entry_at.max(entry.at);
        view.state.clock = view.state.last_entry_at;
        if !entry.is_well_formed {
            view.state.loss_counts.corrupt_entries += 1;
            return;
        }
        match &entry.body {
            EntryBody::Stdout(bytes) => self.line(view, entry, bytes, emit),
            EntryBody::StdoutRaw(bytes) => self.line(view, entry, bytes, emit),
            EntryBody::Note(json) => self.note(view, entry, &Note::parse(json), emit),
            EntryBody::Stderr(_) => {
                let Some(attempt_id) = self.resolve_attempt(view, entry, None, emit) else {
                    return;
                };
                self.enter(view, attempt_id, entry);
                self.break_silence(view, attempt_id, entry, emit);
                self.record_output(view, attempt_id, entry, None);
                self.attempt_fold(attempt_id).stderr(view, entry.seq);
            }
            EntryBody::Stdin(bytes) => {
                let Some(attempt_id) = self.resolve_attempt(view, entry, None, emit) else {
                    return;
                };
                self.enter(view, attempt_id, entry);
                self.record_input(view, attempt_id, entry.at, bytes);
                if is_interrupt(bytes) {
                    self.attempt_fold(attempt_id).mark_interrupted();
                }
            }
        }
    }

    /// Handles the end of a source that does not grow: closes what is open and marks running attempts as interrupted.
    pub(crate) fn finish(&mut self, view: &mut RunView, emit: &mut dyn FnMut(SinkEvent<'_>)) {
        let last = Seq(view.state.entries.saturating_sub(1));
        for attempt_id in 0..self.attempts.len() {
            let attempt_id = AttemptId(u32::try_from(attempt_id).unwrap_or(u32::MAX));
            let fold = self.attempt_fold(attempt_id);
            if fold.is_unidentified && fold.mark_running(view) {
                fold.emit_status(view.state.last_entry_at, UnitStatus::Running, None, emit);
            }
            if fold.is_between_turns() {
                fold.conclude_capture(view, emit);
            } else if fold.attempt(view).verdict.is_none() {
                if fold.attempt(view).setup.start_note.is_some() {
                    // The outcome of its open calls was not recorded.
                    fold.mark_interrupted();
                }
                fold.end(view, last, &StreamEnd::default(), emit);
                self.interrupt(view, attempt_id, emit);
            }
        }
        self.interrupt_waiting_units(view, emit);
        view.state.is_closed = true;
    }

    /// Ends an attempt that has no verdict when its tape or capture ends. Session files contain no result, so the
    /// translator's judgement counts there; on a tape only a verdict counts.
    fn interrupt(
        &self,
        view: &mut RunView,
        attempt_id: AttemptId,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        let (now, fold) = (
            view.state.last_entry_at,
            &self.attempts[attempt_id.0 as usize],
        );
        let attempt = fold.attempt(view);
        attempt.pid = None;
        attempt.held_calls.clear();
        let ended_well = attempt.reported_ok == Some(true) && attempt.setup.start_note.is_none();
        if ended_well {
            attempt.ended_at = Some(now);
        }
        let status = if ended_well {
            UnitStatus::Succeeded
        } else if fold.has_no_turn() {
            UnitStatus::NotStarted
        } else {
            UnitStatus::Interrupted
        };
        let unit = fold.unit(view);
        if unit.status.is_in_flight() && unit.latest().is_some_and(|latest| latest.id == attempt_id)
        {
            unit.status = status;
            fold.emit_status(now, status, None, emit);
        }
    }

    fn attempt_fold(&mut self, attempt_id: AttemptId) -> &mut AttemptFold {
        Arc::make_mut(&mut self.attempts[attempt_id.0 as usize])
    }

    fn line(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        bytes: &[u8],
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        let decoded;
        let line = match entry.decoded {
            Some(line) => line,
            None => {
                decoded = decode::decode_line(bytes);
                &decoded
            }
        };
        let attempts = self.attempts.len();
        let Some(attempt_id) = self.resolve_attempt(view, entry, Some(line), emit) else {
            return;
        };
        if line.is_session_file && entry.scope != EntryScope::BySession {
            self.start_without_note(
                view,
                attempt_id,
                entry.at,
                self.attempts.len() > attempts,
                emit,
            );
        }
        self.enter(view, attempt_id, entry);
        let fold = self.attempt_fold(attempt_id);
        if let Some(remaining) = fold.transcript.lines_set_aside.checked_sub(1) {
            fold.transcript.lines_set_aside = remaining;
            return;
        }
        self.break_silence(view, attempt_id, entry, emit);
        let by_session = entry.scope == EntryScope::BySession;
        self.attempt_fold(attempt_id)
            .line(view, entry, line, bytes, by_session, emit);
        self.record_output(view, attempt_id, entry, Some(line));
    }

    /// A session file has no notes: the first line of an attempt starts it.
    fn start_without_note(
        &mut self,
        view: &mut RunView,
        attempt_id: AttemptId,
        at: Millis,
        is_new: bool,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        let fold = &self.attempts[attempt_id.0 as usize];
        if is_new && fold.number > 1 {
            fold.unit(view).status = UnitStatus::Queued;
        }
        if fold.mark_running(view) {
            fold.emit_status(at, UnitStatus::Running, None, emit);
        }
    }

    /// Adds the entry to the entries of its attempt.
    fn enter(&mut self, view: &mut RunView, attempt_id: AttemptId, entry: &EntryRef<'_>) {
        let at = entry.at;
        let fold = self.attempt_fold(attempt_id);
        let entries = &mut view.attempts[attempt_id.0 as usize].entries;
        if fold.entries == entries.len() {
            push_compact(entries, u32::try_from(entry.seq.0).unwrap_or(u32::MAX));
        }
        fold.entries += 1;
        let attempt = fold.attempt(view);
        let silence = at.since(attempt.last_at);
        attempt.last_at = attempt.last_at.max(at);
        (view.last_change.attempt, view.last_change.silence) = (Some(attempt_id), silence);
    }

    /// Returns the attempt of an entry and creates it if it is new. `None` for entries of the run itself.
    fn resolve_attempt(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        line: Option<&AgentLine<'_>>,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) -> Option<AttemptId> {
        match entry.scope {
            EntryScope::Run => None,
            EntryScope::Attempt(unit, number) => {
                if let Some(recent) = self.last_attempt {
                    let known = &self.attempts[recent.0 as usize];
                    if known.number == number && known.key.as_str() == unit {
                        return Some(recent);
                    }
                }
                let known = self
                    .attempts_by_unit
                    .get(unit)
                    .and_then(|attempts| attempts.get(&number))
                    .copied();
                let attempt_id = match known {
                    Some(attempt_id) => attempt_id,
                    None => self.open_attempt_within_limit(
                        view,
                        entry,
                        UnitKey::from(unit),
                        number,
                        emit,
                    )?,
                };
                self.last_attempt = Some(attempt_id);
                Some(attempt_id)
            }
            EntryScope::BySession => self.by_session(view, entry, line, emit),
        }
    }

    fn by_session(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        line: Option<&AgentLine<'_>>,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) -> Option<AttemptId> {
        let session = line
            .and_then(|line| line.session_id.as_deref())
            .filter(|id| !id.is_empty());
        let attempt_id = match (session, self.last_attempt) {
            (None, Some(recent)) => recent,
            (None, None) => {
                let fallback = self.fallback_unit.clone();
                self.open(view, fallback, 1, entry)
            }
            (Some(id), Some(recent)) if self.is_attempt_of_session(recent, id, line) => recent,
            (Some(id), recent) => {
                let newest = self
                    .attempts_by_unit
                    .get(id)
                    .and_then(|attempts| attempts.values().next_back())
                    .copied();
                if let Some(found) =
                    newest.filter(|newest| self.is_attempt_of_session(*newest, id, line))
                {
                    found
                } else if let Some(newest) = newest {
                    // The session was resumed after others had begun, so this is a further attempt of it.
                    let number = self.attempts[newest.0 as usize].number.saturating_add(1);
                    let attempt_id = self.open_attempt_within_limit(
                        view,
                        entry,
                        UnitKey::from(id),
                        number,
                        emit,
                    )?;
                    let fold = self.attempt_fold(attempt_id);
                    fold.resume(view, id);
                    fold.unit(view).status = UnitStatus::Running;
                    fold.emit_status(entry.at, UnitStatus::Running, None, emit);
                    attempt_id
                } else if self.attempts.len() == 1 && self.attempts[0].is_unidentified {
                    // Frames before the first session id belong to the session that follows.
                    let position = self.units.remove(&self.attempts[0].key).unwrap_or(0);
                    self.units.insert(UnitKey::from(id), position);
                    self.attempt_fold(AttemptId(0))
                        .adopt_session_key(view, UnitKey::from(id));
                    self.attempts_by_unit =
                        HashMap::from([(UnitKey::from(id), BTreeMap::from([(1, AttemptId(0))]))]);
                    AttemptId(0)
                } else {
                    // The file contains several sessions one after the other, so the session before this one is over.
                    if let Some(recent) =
                        recent.filter(|recent| self.attempts[recent.0 as usize].is_between_turns())
                    {
                        self.attempt_fold(recent).conclude_capture(view, emit);
                    }
                    self.open_attempt_within_limit(view, entry, UnitKey::from(id), 1, emit)?
                }
            }
        };
        self.last_attempt = Some(attempt_id);
        let fold = &self.attempts[attempt_id.0 as usize];
        let is_unidentified = session.is_none() && (fold.is_unidentified || fold.entries == 0);
        if is_unidentified != fold.is_unidentified {
            self.attempt_fold(attempt_id).is_unidentified = is_unidentified;
        }
        let fold = &self.attempts[attempt_id.0 as usize];
        if !is_unidentified && fold.mark_running(view) {
            fold.emit_status(entry.at, UnitStatus::Running, None, emit);
        }
        Some(attempt_id)
    }

    /// True for the attempt of session `id`, unless `line` begins a turn after the attempt was concluded.
    fn is_attempt_of_session(
        &self,
        attempt_id: AttemptId,
        id: &str,
        line: Option<&AgentLine<'_>>,
    ) -> bool {
        let fold = &self.attempts[attempt_id.0 as usize];
        let begins = || line.is_some_and(|line| matches!(line.body, decode::LineBody::Init(_)));
        fold.key.as_str() == id && !(fold.is_complete() && begins())
    }

    /// Like [`open`](Self::open), unless the maximum number of attempts is reached. Then the entry is dropped, and one
    /// message reports this.
    fn open_attempt_within_limit(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        key: UnitKey,
        number: u32,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) -> Option<AttemptId> {
        if self.attempts.len() < MAX_ATTEMPTS {
            return Some(self.open(view, key, number, entry));
        }
        view.state.loss_counts.unknown += 1;
        if !std::mem::replace(&mut self.attempts_overflowed, true) {
            let text = format!("too many attempts: only the first {MAX_ATTEMPTS} are shown");
            emit(SinkEvent::Run {
                at: entry.at,
                change: RunEvent::Message {
                    level: Severity::Warning,
                    text: &text,
                },
            });
            self.report_message(view, entry, Severity::Warning, text);
        }
        None
    }

    /// Creates the attempt, and the unit if it was not planned.
    fn open(
        &mut self,
        view: &mut RunView,
        key: UnitKey,
        number: u32,
        entry: &EntryRef<'_>,
    ) -> AttemptId {
        let attempt_id = AttemptId(u32::try_from(self.attempts.len()).unwrap_or(u32::MAX));
        let unit = self.unit_index(view, &key);
        self.attempts_by_unit
            .entry(key.clone())
            .or_default()
            .insert(number, attempt_id);
        // A recorded attempt receives exactly one prompt; the number of prompts in a capture is unknown.
        let turns = if entry.scope == EntryScope::BySession {
            TurnTracker::default()
        } else {
            TurnTracker::for_one_prompt()
        };
        let attempt = u32::try_from(view.state.units[unit].attempts.len()).unwrap_or(u32::MAX);
        self.attempts.push(Arc::new(AttemptFold::new(
            key, number, turns, unit, attempt, attempt_id,
        )));
        let at = entry.at;
        let attempt = AttemptState {
            number,
            id: attempt_id,
            started_at: at,
            last_at: at,
            ..AttemptState::default()
        };
        push_compact(&mut view.state.units[unit].attempts, attempt);
        if view.attempts.len() < self.attempts.len() {
            view.attempts.push(AttemptRows::default());
        }
        attempt_id
    }

    fn report_message(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        level: Severity,
        text: String,
    ) {
        let unit = match entry.scope {
            EntryScope::Attempt(unit, _) => Some(UnitKey::from(unit)),
            EntryScope::Run | EntryScope::BySession => None,
        };
        self.push_message(
            view,
            LogMessage {
                seq: entry.seq,
                at: entry.at,
                level,
                unit,
                text,
            },
        );
    }

    /// Reports a note as a message of the run, on the screen and to event sinks.
    fn report_run_change(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        note: &Note,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        let is_lost = matches!(note, Note::WorkerLeft(left) if left.is_lost);
        let level = if is_lost {
            Severity::Warning
        } else {
            Severity::Info
        };
        let text = note.to_string();
        emit(SinkEvent::Run {
            at: entry.at,
            change: RunEvent::Message { level, text: &text },
        });
        self.report_message(view, entry, level, text);
    }

    fn push_message(&mut self, view: &mut RunView, message: LogMessage) {
        if self.message_count == view.messages.len() {
            view.messages.push(message);
        }
        self.message_count += 1;
    }

    /// Returns the index of the unit with this key and creates the unit if it is new.
    fn unit_index(&mut self, view: &mut RunView, key: &UnitKey) -> usize {
        if let Some(known) = self.units.get(key) {
            return *known;
        }
        let units = &mut view.state.units;
        units.push(UnitState {
            key: key.clone(),
            planned: None,
            status: UnitStatus::Queued,
            attempts: Vec::new(),
            retry_at: None,
            hold_mode: HoldMode::Off,
        });
        self.units.insert(key.clone(), units.len() - 1);
        units.len() - 1
    }
}

/// True for an `interrupt` control request that was written to the agent.
fn is_interrupt(written: &[u8]) -> bool {
    /// An interrupt is short. Tool results are longer and are skipped without parsing.
    const LONGEST: usize = 512;
    let control = || decode::decode_line(written).body;
    written.len() < LONGEST
        && matches!(control(), decode::LineBody::Control { kind, payload: Some(payload), .. }
            if kind == "control_request" && payload.value()["subtype"] == "interrupt")
}

#[cfg(test)]
mod tests;
