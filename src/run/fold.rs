//! Entries → state. One entry at a time, in order; never fails.
//!
//! Folding the same entries again over a story that already has their rows is harmless: rows are found by number and
//! the first end of a row stays. That is what makes going back a matter of folding from a checkpoint.

mod attempt;
mod call_outcomes;
mod notes;
mod patches;
mod run_endings;
mod silence;
mod token_math;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

pub use self::silence::DEFAULT_SILENCE_AFTER;
use self::{attempt::AttemptFold, silence::SilenceTracker};
use super::{
    EntryRef, EntryScope as Address,
    state::{
        AttemptId, AttemptRows, AttemptState, HoldMode, LastChange, LogMessage, RunView, UnitState, UnitStatus,
        push_compact,
    },
};
use crate::{
    actions::{AgentEvent, StreamEnd, TurnTracker},
    decode::{self, AgentLine},
    tape::{
        EntryBody, Millis, Note, Seq, UnitKey,
        note::{PatchResult, RunEnded, RunPlanned, RunSaved, Severity, SharedWrite},
    },
};

/// Attempts of a record that are folded, all units together. Each takes some two KiB however short its lines are.
const MAX_ATTEMPTS: usize = 100_000;

/// The fold and what it must remember between entries.
#[derive(Clone, Debug)]
pub struct Fold {
    fallback_unit: UnitKey,
    /// Shared with checkpoints: what an attempt did not touch since the last one is not copied for the next.
    attempts: Vec<Arc<AttemptFold>>,
    /// Lanes by unit and attempt: an untrusted record may hold any number of either.
    attempts_by_unit: HashMap<UnitKey, BTreeMap<u32, AttemptId>>,
    /// Positions of the units in the state: a stranger's file may name a million of them.
    units: HashMap<UnitKey, usize>,
    message_count: usize,
    silence_tracker: SilenceTracker,
    /// Lane of the last entry: most entries follow one of their own.
    last_attempt: Option<AttemptId>,
    /// There were more than [`MAX_ATTEMPTS`].
    attempts_overflowed: bool,
}

/// What one entry led to, for sinks that print a stream rather than a state.
#[derive(Clone, Debug, PartialEq)]
pub enum FoldEvent<'a> {
    /// An event of an attempt.
    Event {
        /// Entry it comes from.
        entry: Seq,
        /// When.
        at: Millis,
        /// Whose.
        unit: &'a str,
        /// Which attempt.
        attempt: u32,
        /// What.
        event: AgentEvent<'a>,
        /// What we know of a finished call, or of the end, that the event cannot say.
        aside: Option<OutcomeDetail>,
    },
    /// A unit changed its status.
    Unit {
        /// When.
        at: Millis,
        /// Whose.
        unit: &'a str,
        /// Which attempt it is at; 0 before the first.
        attempt: u32,
        /// To what.
        status: UnitStatus,
        /// The verdict's sentence, or the reason of a wait.
        reason: Option<&'a str>,
    },
    /// The patch of an attempt was taken, or not.
    Patch {
        /// When.
        at: Millis,
        /// Whose.
        unit: &'a str,
        /// Which attempt.
        attempt: u32,
        /// What became of it.
        result: PatchResult,
        /// Why it was not taken.
        reason: Option<&'a str>,
        /// What units before it wrote too.
        shared: &'a [SharedWrite],
    },
    /// A message about a unit or an attempt of it.
    Message {
        /// When.
        at: Millis,
        /// Whose.
        unit: &'a str,
        /// Which attempt it is about; 0 before the first.
        attempt: u32,
        /// Severity.
        level: Severity,
        /// One sentence.
        text: &'a str,
    },
    /// The run changed its state.
    Run {
        /// When.
        at: Millis,
        /// How.
        change: RunChange<'a>,
    },
}

/// What a call or an attempt came to, where its event tells people less, or something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutcomeDetail {
    /// Its tool did not do what it asks for, and the result is no error.
    Declined,
    /// We ended the attempt before it had a result of its own, or the record breaks off.
    Aborted,
    /// Its turns or its money were spent, which is no failure.
    BudgetExhausted,
}

impl OutcomeDetail {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Declined => "declined",
            Self::Aborted => "cut short",
            Self::BudgetExhausted => "budget",
        }
    }
}

/// A change of the run as a whole.
#[derive(Clone, Debug, PartialEq)]
pub enum RunChange<'a> {
    /// The plan is known.
    Planned(&'a RunPlanned),
    /// The whole run waits for a limit.
    Paused {
        /// Until when, if known.
        until: Option<Millis>,
        /// In the service's words.
        limit: &'a str,
    },
    /// The wait is over.
    Resumed,
    /// The patches of that many units are being put together.
    Integrating(usize),
    /// What was taken is on the project's branch.
    Saved(&'a RunSaved),
    /// What was taken is not on the branch, and why.
    SaveFailed(&'a str),
    /// A remark.
    Message {
        /// Severity.
        level: Severity,
        /// One sentence.
        text: &'a str,
    },
    /// It ended in order.
    Ended(&'a RunEnded),
}

impl Fold {
    /// A fold over nothing yet. Lines that name no session belong to `fallback`.
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

    /// Folds one entry into `story`.
    pub fn apply(&mut self, story: &mut RunView, arrived: &EntryRef<'_>, emit: &mut dyn FnMut(FoldEvent<'_>)) {
        self.advance_clock(story, arrived.at, emit);
        story.last_change = LastChange::default();
        story.state.entries = arrived.seq.0 + 1;
        story.state.last_entry_at = story.state.last_entry_at.max(arrived.at);
        story.state.clock = story.state.last_entry_at;
        if !arrived.is_well_formed {
            story.state.loss_counts.corrupt_entries += 1;
            return;
        }
        match &arrived.body {
            EntryBody::Out(bytes) => self.line(story, arrived, bytes, emit),
            EntryBody::Raw(bytes) => self.line(story, arrived, bytes, emit),
            EntryBody::Note(json) => self.note(story, arrived, &Note::parse(json), emit),
            EntryBody::Err(_) => {
                let Some(lane) = self.resolve_attempt(story, arrived, None, emit) else { return };
                self.enter(story, lane, arrived);
                self.break_silence(story, lane, arrived, emit);
                self.record_output(story, lane, arrived, None);
                self.attempt_fold(lane).stderr(story, arrived.seq);
            }
            EntryBody::In(bytes) => {
                let Some(lane) = self.resolve_attempt(story, arrived, None, emit) else { return };
                self.enter(story, lane, arrived);
                self.record_input(story, lane, arrived.at, bytes);
                if is_interrupt(bytes) {
                    self.attempt_fold(lane).abort_open_calls();
                }
            }
        }
    }

    /// The source has ended and will not grow: closes what is open, and calls what was running interrupted.
    pub fn finish(&mut self, story: &mut RunView, emit: &mut dyn FnMut(FoldEvent<'_>)) {
        let last = Seq(story.state.entries.saturating_sub(1));
        for lane in 0..self.attempts.len() {
            let lane = AttemptId(u32::try_from(lane).unwrap_or(u32::MAX));
            let fold = self.attempt_fold(lane);
            if fold.is_unidentified && fold.mark_running(story) {
                fold.emit_status(story.state.last_entry_at, UnitStatus::Running, None, emit);
            }
            if fold.is_between_turns() {
                fold.conclude_capture(story, emit);
            } else if fold.attempt(story).verdict.is_none() {
                if fold.attempt(story).start_note.is_some() {
                    // What its open calls came to, nobody recorded.
                    fold.abort_open_calls();
                }
                fold.end(story, last, &StreamEnd::default(), emit);
                self.interrupt(story, lane, emit);
            }
        }
        self.interrupt_waiting_units(story, emit);
    }

    /// An attempt without a verdict when its record breaks off. Session files hold no result, so there the
    /// translator's judgement counts; on a tape only a verdict does.
    fn interrupt(&self, story: &mut RunView, lane: AttemptId, emit: &mut dyn FnMut(FoldEvent<'_>)) {
        let (now, fold) = (story.state.last_entry_at, &self.attempts[lane.0 as usize]);
        let attempt = fold.attempt(story);
        attempt.pid = None;
        attempt.held_calls.clear();
        let ended_well = attempt.completed == Some(true) && attempt.start_note.is_none();
        if ended_well {
            attempt.ended_at = Some(now);
        }
        let status = if ended_well { UnitStatus::Succeeded } else { UnitStatus::Interrupted };
        let unit = fold.unit(story);
        if unit.status.is_in_flight() && unit.latest().is_some_and(|latest| latest.id == lane) {
            unit.status = status;
            fold.emit_status(now, status, None, emit);
        }
    }

    fn attempt_fold(&mut self, lane: AttemptId) -> &mut AttemptFold {
        Arc::make_mut(&mut self.attempts[lane.0 as usize])
    }

    fn line(&mut self, story: &mut RunView, arrived: &EntryRef<'_>, bytes: &[u8], emit: &mut dyn FnMut(FoldEvent<'_>)) {
        let decoded;
        let line = match arrived.decoded {
            Some(line) => line,
            None => {
                decoded = decode::decode_line(bytes);
                &decoded
            }
        };
        let Some(lane) = self.resolve_attempt(story, arrived, Some(line), emit) else { return };
        self.enter(story, lane, arrived);
        self.break_silence(story, lane, arrived, emit);
        let by_session = arrived.scope == Address::BySession;
        self.attempt_fold(lane).line(story, arrived, line, bytes, by_session, emit);
        self.record_output(story, lane, arrived, Some(line));
    }

    /// Files the entry under its lane.
    fn enter(&mut self, story: &mut RunView, lane: AttemptId, arrived: &EntryRef<'_>) {
        let at = arrived.at;
        let fold = self.attempt_fold(lane);
        let entries = &mut story.attempts[lane.0 as usize].entries;
        if fold.entries == entries.len() {
            push_compact(entries, u32::try_from(arrived.seq.0).unwrap_or(u32::MAX));
        }
        fold.entries += 1;
        let attempt = fold.attempt(story);
        let silence = at.since(attempt.last_at);
        attempt.last_at = attempt.last_at.max(at);
        (story.last_change.attempt, story.last_change.silence) = (Some(lane), silence);
    }

    /// The lane of an entry, made if it is new. `None` for entries of the run itself.
    fn resolve_attempt(
        &mut self,
        story: &mut RunView,
        arrived: &EntryRef<'_>,
        line: Option<&AgentLine<'_>>,
        emit: &mut dyn FnMut(FoldEvent<'_>),
    ) -> Option<AttemptId> {
        match arrived.scope {
            Address::Run => None,
            Address::Attempt(unit, number) => {
                if let Some(recent) = self.last_attempt {
                    let known = &self.attempts[recent.0 as usize];
                    if known.number == number && known.key.as_str() == unit {
                        return Some(recent);
                    }
                }
                let known = self.attempts_by_unit.get(unit).and_then(|lanes| lanes.get(&number)).copied();
                let lane = match known {
                    Some(lane) => lane,
                    None => self.open_attempt_within_limit(story, arrived, UnitKey::from(unit), number, emit)?,
                };
                self.last_attempt = Some(lane);
                Some(lane)
            }
            Address::BySession => self.by_session(story, arrived, line, emit),
        }
    }

    fn by_session(
        &mut self,
        story: &mut RunView,
        arrived: &EntryRef<'_>,
        line: Option<&AgentLine<'_>>,
        emit: &mut dyn FnMut(FoldEvent<'_>),
    ) -> Option<AttemptId> {
        let session = line.and_then(|line| line.session_id.as_deref()).filter(|id| !id.is_empty());
        let lane = match (session, self.last_attempt) {
            (None, Some(recent)) => recent,
            (None, None) => {
                let fallback = self.fallback_unit.clone();
                self.open(story, fallback, 1, arrived)
            }
            (Some(id), Some(recent)) if self.is_attempt_of_session(recent, id, line) => recent,
            (Some(id), recent) => {
                let newest = self.attempts_by_unit.get(id).and_then(|lanes| lanes.values().next_back()).copied();
                if let Some(found) = newest.filter(|newest| self.is_attempt_of_session(*newest, id, line)) {
                    found
                } else if let Some(newest) = newest {
                    // The session was resumed after others had begun: a further attempt of it.
                    let number = self.attempts[newest.0 as usize].number.saturating_add(1);
                    let lane = self.open_attempt_within_limit(story, arrived, UnitKey::from(id), number, emit)?;
                    let fold = self.attempt_fold(lane);
                    fold.resume(story, id);
                    fold.unit(story).status = UnitStatus::Running;
                    fold.emit_status(arrived.at, UnitStatus::Running, None, emit);
                    lane
                } else if self.attempts.len() == 1 && self.attempts[0].is_unidentified {
                    // Frames before the first session id belong to the session that follows.
                    let position = self.units.remove(&self.attempts[0].key).unwrap_or(0);
                    self.units.insert(UnitKey::from(id), position);
                    self.attempt_fold(AttemptId(0)).adopt_session_key(story, UnitKey::from(id));
                    self.attempts_by_unit = HashMap::from([(UnitKey::from(id), BTreeMap::from([(1, AttemptId(0))]))]);
                    AttemptId(0)
                } else {
                    // One record after the other: the session before this one is over.
                    if let Some(recent) = recent.filter(|recent| self.attempts[recent.0 as usize].is_between_turns()) {
                        self.attempt_fold(recent).conclude_capture(story, emit);
                    }
                    self.open_attempt_within_limit(story, arrived, UnitKey::from(id), 1, emit)?
                }
            }
        };
        let fold = self.attempt_fold(lane);
        if session.is_some() {
            fold.is_unidentified = false;
        } else if fold.entries == 0 {
            fold.is_unidentified = true;
        }
        self.last_attempt = Some(lane);
        let fold = self.attempt_fold(lane);
        if !fold.is_unidentified && fold.mark_running(story) {
            fold.emit_status(arrived.at, UnitStatus::Running, None, emit);
        }
        Some(lane)
    }

    /// True for the lane of session `id`, unless `line` begins a turn after the lane was concluded.
    fn is_attempt_of_session(&self, lane: AttemptId, id: &str, line: Option<&AgentLine<'_>>) -> bool {
        let fold = &self.attempts[lane.0 as usize];
        let begins = || line.is_some_and(|line| matches!(line.body, decode::LineBody::Init(_)));
        fold.key.as_str() == id && !(fold.is_complete() && begins())
    }

    /// As [`open`](Self::open), unless there are too many lanes already: then the entry is lost, which is said once.
    fn open_attempt_within_limit(
        &mut self,
        story: &mut RunView,
        arrived: &EntryRef<'_>,
        key: UnitKey,
        number: u32,
        emit: &mut dyn FnMut(FoldEvent<'_>),
    ) -> Option<AttemptId> {
        if self.attempts.len() < MAX_ATTEMPTS {
            return Some(self.open(story, key, number, arrived));
        }
        story.state.loss_counts.unknown += 1;
        if !std::mem::replace(&mut self.attempts_overflowed, true) {
            let text = format!("the record has more than {MAX_ATTEMPTS} attempts; the others are not shown");
            emit(FoldEvent::Run {
                at: arrived.at,
                change: RunChange::Message { level: Severity::Warning, text: &text },
            });
            self.report_message(story, arrived, Severity::Warning, text);
        }
        None
    }

    /// Makes the lane, and the unit if it was not planned.
    fn open(&mut self, story: &mut RunView, key: UnitKey, number: u32, arrived: &EntryRef<'_>) -> AttemptId {
        let lane = AttemptId(u32::try_from(self.attempts.len()).unwrap_or(u32::MAX));
        let unit = self.unit_index(story, &key);
        self.attempts_by_unit.entry(key.clone()).or_default().insert(number, lane);
        // Our own attempts are given one prompt; what a capture is of, nobody knows.
        let turns =
            if arrived.scope == Address::BySession { TurnTracker::default() } else { TurnTracker::for_one_prompt() };
        let attempt = story.state.units[unit].attempts.len();
        self.attempts.push(Arc::new(AttemptFold::new(key, number, turns, unit, attempt, lane)));
        let at = arrived.at;
        let attempt = AttemptState { number, id: lane, started_at: at, last_at: at, ..AttemptState::default() };
        push_compact(&mut story.state.units[unit].attempts, attempt);
        if story.attempts.len() < self.attempts.len() {
            story.attempts.push(AttemptRows::default());
        }
        lane
    }

    fn report_message(&mut self, story: &mut RunView, arrived: &EntryRef<'_>, level: Severity, text: String) {
        let unit = match arrived.scope {
            Address::Attempt(unit, _) => Some(UnitKey::from(unit)),
            Address::Run | Address::BySession => None,
        };
        self.push_message(story, LogMessage { seq: arrived.seq, at: arrived.at, level, unit, text });
    }

    fn push_message(&mut self, story: &mut RunView, remark: LogMessage) {
        if self.message_count == story.messages.len() {
            story.messages.push(remark);
        }
        self.message_count += 1;
    }

    /// The unit of that key, made if it is new.
    fn unit_index(&mut self, story: &mut RunView, key: &UnitKey) -> usize {
        if let Some(known) = self.units.get(key) {
            return *known;
        }
        let units = &mut story.state.units;
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

/// True for our request that the agent end its turn.
fn is_interrupt(written: &[u8]) -> bool {
    /// It says nothing else; results of tools are longer, and not worth a look.
    const LONGEST: usize = 512;
    let control = || decode::decode_line(written).body;
    written.len() < LONGEST
        && matches!(control(), decode::LineBody::Control { kind, payload: Some(payload), .. }
            if kind == "control_request" && payload.value()["subtype"] == "interrupt")
}

#[cfg(test)]
mod tests;
