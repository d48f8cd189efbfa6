//! Entries → state. One entry at a time, in order; never fails.
//!
//! Folding the same entries again over a story that already has their rows is harmless: rows are found by number and
//! the first end of a row stays. That is what makes going back a matter of folding from a checkpoint.

mod attempt;
mod ends;
mod fates;
mod notes;
mod patches;
mod silence;
mod usage;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

pub use self::silence::SILENCE_AFTER;
use self::{attempt::LaneFold, silence::Silences};
use super::{
    Arrived, Lane as Address,
    state::{Attempt, Holding, Lane, LaneId, Remark, Story, Touch, Unit, UnitStatus, push_compact},
};
use crate::{
    actions::{Ended, Event, Turns},
    decode::{self, Line},
    tape::{
        Body, Millis, Note, Seq, UnitKey,
        note::{Integration, Level, RunEnded, RunPlanned, Saved, Shared},
    },
};

/// Attempts of a record that are folded, all units together. Each takes some two KiB however short its lines are.
const MOST_ATTEMPTS: usize = 100_000;

/// The fold and what it must remember between entries.
#[derive(Clone, Debug)]
pub struct Fold {
    fallback: UnitKey,
    /// Shared with checkpoints: what an attempt did not touch since the last one is not copied for the next.
    lanes: Vec<Arc<LaneFold>>,
    /// Lanes by unit and attempt: an untrusted record may hold any number of either.
    by_unit: HashMap<UnitKey, BTreeMap<u32, LaneId>>,
    /// Positions of the units in the state: a stranger's file may name a million of them.
    units: HashMap<UnitKey, usize>,
    remarks: usize,
    silences: Silences,
    /// Lane of the last entry: most entries follow one of their own.
    recent: Option<LaneId>,
    /// There were more than [`MOST_ATTEMPTS`].
    overfull: bool,
}

/// What one entry led to, for sinks that print a stream rather than a state.
#[derive(Clone, Debug, PartialEq)]
pub enum Emitted<'a> {
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
        event: Event<'a>,
        /// What we know of a finished call, or of the end, that the event cannot say.
        aside: Option<Aside>,
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
        result: Integration,
        /// Why it was not taken.
        reason: Option<&'a str>,
        /// What units before it wrote too.
        shared: &'a [Shared],
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
        level: Level,
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
pub enum Aside {
    /// Its tool did not do what it asks for, and the result is no error.
    Declined,
    /// We ended the attempt before it had a result of its own, or the record breaks off.
    Cut,
    /// Its turns or its money were spent, which is no failure.
    Spent,
}

impl Aside {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Declined => "declined",
            Self::Cut => "cut short",
            Self::Spent => "budget",
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
    Saved(&'a Saved),
    /// What was taken is not on the branch, and why.
    SaveFailed(&'a str),
    /// A remark.
    Said {
        /// Severity.
        level: Level,
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
        Self { fallback, lanes: Vec::new(), by_unit, units, remarks: 0, silences, recent: None, overfull: false }
    }

    /// Folds one entry into `story`.
    pub fn apply(&mut self, story: &mut Story, arrived: &Arrived<'_>, emit: &mut dyn FnMut(Emitted<'_>)) {
        self.pass_time(story, arrived.at, emit);
        story.touch = Touch::default();
        story.state.entries = arrived.seq.0 + 1;
        story.state.now = story.state.now.max(arrived.at);
        story.state.passed = story.state.now;
        if !arrived.intact {
            story.state.lost.torn += 1;
            return;
        }
        match &arrived.body {
            Body::Out(bytes) => self.line(story, arrived, bytes, emit),
            Body::Raw(bytes) => self.line(story, arrived, bytes, emit),
            Body::Note(json) => self.note(story, arrived, &Note::parse(json), emit),
            Body::Err(_) => {
                let Some(lane) = self.address(story, arrived, None, emit) else { return };
                self.enter(story, lane, arrived);
                self.break_silence(story, lane, arrived, emit);
                self.record_output(story, lane, arrived, None);
                self.lane(lane).stderr(story, arrived.seq);
            }
            Body::In(bytes) => {
                let Some(lane) = self.address(story, arrived, None, emit) else { return };
                self.enter(story, lane, arrived);
                self.record_input(story, lane, arrived.at, bytes);
                if is_interrupt(bytes) {
                    self.lane(lane).cut_short();
                }
            }
        }
    }

    /// The source has ended and will not grow: closes what is open, and calls what was running interrupted.
    pub fn finish(&mut self, story: &mut Story, emit: &mut dyn FnMut(Emitted<'_>)) {
        let last = Seq(story.state.entries.saturating_sub(1));
        for lane in 0..self.lanes.len() {
            let lane = LaneId(u32::try_from(lane).unwrap_or(u32::MAX));
            let fold = self.lane(lane);
            if fold.nameless && fold.announce(story) {
                fold.tell(story.state.now, UnitStatus::Running, None, emit);
            }
            if fold.is_at_rest() {
                fold.conclude(story, emit);
            } else if fold.attempt(story).verdict.is_none() {
                if fold.attempt(story).start_note.is_some() {
                    // What its open calls came to, nobody recorded.
                    fold.cut_short();
                }
                fold.end(story, last, &Ended::default(), emit);
                self.interrupt(story, lane, emit);
            }
        }
        self.broken_off(story, emit);
    }

    /// An attempt without a verdict when its record breaks off. Session files hold no result, so there the
    /// translator's judgement counts; on a tape only a verdict does.
    fn interrupt(&self, story: &mut Story, lane: LaneId, emit: &mut dyn FnMut(Emitted<'_>)) {
        let (now, fold) = (story.state.now, &self.lanes[lane.0 as usize]);
        let attempt = fold.attempt(story);
        attempt.pid = None;
        attempt.held.clear();
        let ended_well = attempt.completed == Some(true) && attempt.start_note.is_none();
        if ended_well {
            attempt.ended_at = Some(now);
        }
        let status = if ended_well { UnitStatus::Succeeded } else { UnitStatus::Interrupted };
        let unit = fold.unit(story);
        if unit.status.is_in_flight() && unit.latest().is_some_and(|latest| latest.lane == lane) {
            unit.status = status;
            fold.tell(now, status, None, emit);
        }
    }

    fn lane(&mut self, lane: LaneId) -> &mut LaneFold {
        Arc::make_mut(&mut self.lanes[lane.0 as usize])
    }

    fn line(&mut self, story: &mut Story, arrived: &Arrived<'_>, bytes: &[u8], emit: &mut dyn FnMut(Emitted<'_>)) {
        let decoded;
        let line = match arrived.line {
            Some(line) => line,
            None => {
                decoded = decode::line(bytes);
                &decoded
            }
        };
        let Some(lane) = self.address(story, arrived, Some(line), emit) else { return };
        self.enter(story, lane, arrived);
        self.break_silence(story, lane, arrived, emit);
        let by_session = arrived.lane == Address::BySession;
        self.lane(lane).line(story, arrived, line, bytes, by_session, emit);
        self.record_output(story, lane, arrived, Some(line));
    }

    /// Files the entry under its lane.
    fn enter(&mut self, story: &mut Story, lane: LaneId, arrived: &Arrived<'_>) {
        let at = arrived.at;
        let fold = self.lane(lane);
        let entries = &mut story.lanes[lane.0 as usize].entries;
        if fold.entries == entries.len() {
            push_compact(entries, u32::try_from(arrived.seq.0).unwrap_or(u32::MAX));
        }
        fold.entries += 1;
        let attempt = fold.attempt(story);
        let silence = at.since(attempt.last_at);
        attempt.last_at = attempt.last_at.max(at);
        (story.touch.lane, story.touch.silence) = (Some(lane), silence);
    }

    /// The lane of an entry, made if it is new. `None` for entries of the run itself.
    fn address(
        &mut self,
        story: &mut Story,
        arrived: &Arrived<'_>,
        line: Option<&Line<'_>>,
        emit: &mut dyn FnMut(Emitted<'_>),
    ) -> Option<LaneId> {
        match arrived.lane {
            Address::Run => None,
            Address::Attempt(unit, number) => {
                if let Some(recent) = self.recent {
                    let known = &self.lanes[recent.0 as usize];
                    if known.number == number && known.key.as_str() == unit {
                        return Some(recent);
                    }
                }
                let known = self.by_unit.get(unit).and_then(|lanes| lanes.get(&number)).copied();
                let lane = match known {
                    Some(lane) => lane,
                    None => self.open_bounded(story, arrived, UnitKey::from(unit), number, emit)?,
                };
                self.recent = Some(lane);
                Some(lane)
            }
            Address::BySession => self.by_session(story, arrived, line, emit),
        }
    }

    fn by_session(
        &mut self,
        story: &mut Story,
        arrived: &Arrived<'_>,
        line: Option<&Line<'_>>,
        emit: &mut dyn FnMut(Emitted<'_>),
    ) -> Option<LaneId> {
        let session = line.and_then(|line| line.session_id.as_deref()).filter(|id| !id.is_empty());
        let lane = match (session, self.recent) {
            (None, Some(recent)) => recent,
            (None, None) => {
                let fallback = self.fallback.clone();
                self.open(story, fallback, 1, arrived)
            }
            (Some(id), Some(recent)) if self.is_lane_of(recent, id, line) => recent,
            (Some(id), recent) => {
                let newest = self.by_unit.get(id).and_then(|lanes| lanes.values().next_back()).copied();
                if let Some(found) = newest.filter(|newest| self.is_lane_of(*newest, id, line)) {
                    found
                } else if let Some(newest) = newest {
                    // The session was resumed after others had begun: a further attempt of it.
                    let number = self.lanes[newest.0 as usize].number.saturating_add(1);
                    let lane = self.open_bounded(story, arrived, UnitKey::from(id), number, emit)?;
                    let fold = self.lane(lane);
                    fold.resume(story, id);
                    fold.unit(story).status = UnitStatus::Running;
                    fold.tell(arrived.at, UnitStatus::Running, None, emit);
                    lane
                } else if self.lanes.len() == 1 && self.lanes[0].nameless {
                    // Frames before the first session id belong to the session that follows.
                    let position = self.units.remove(&self.lanes[0].key).unwrap_or(0);
                    self.units.insert(UnitKey::from(id), position);
                    self.lane(LaneId(0)).adopt(story, UnitKey::from(id));
                    self.by_unit = HashMap::from([(UnitKey::from(id), BTreeMap::from([(1, LaneId(0))]))]);
                    LaneId(0)
                } else {
                    // One record after the other: the session before this one is over.
                    if let Some(recent) = recent.filter(|recent| self.lanes[recent.0 as usize].is_at_rest()) {
                        self.lane(recent).conclude(story, emit);
                    }
                    self.open_bounded(story, arrived, UnitKey::from(id), 1, emit)?
                }
            }
        };
        let fold = self.lane(lane);
        if session.is_some() {
            fold.nameless = false;
        } else if fold.entries == 0 {
            fold.nameless = true;
        }
        self.recent = Some(lane);
        let fold = self.lane(lane);
        if !fold.nameless && fold.announce(story) {
            fold.tell(arrived.at, UnitStatus::Running, None, emit);
        }
        Some(lane)
    }

    /// True for the lane of session `id`, unless `line` begins a turn after the lane was concluded.
    fn is_lane_of(&self, lane: LaneId, id: &str, line: Option<&Line<'_>>) -> bool {
        let fold = &self.lanes[lane.0 as usize];
        let begins = || line.is_some_and(|line| matches!(line.body, decode::Body::Init(_)));
        fold.key.as_str() == id && !(fold.is_complete() && begins())
    }

    /// As [`open`](Self::open), unless there are too many lanes already: then the entry is lost, which is said once.
    fn open_bounded(
        &mut self,
        story: &mut Story,
        arrived: &Arrived<'_>,
        key: UnitKey,
        number: u32,
        emit: &mut dyn FnMut(Emitted<'_>),
    ) -> Option<LaneId> {
        if self.lanes.len() < MOST_ATTEMPTS {
            return Some(self.open(story, key, number, arrived));
        }
        story.state.lost.unknown += 1;
        if !std::mem::replace(&mut self.overfull, true) {
            let text = format!("the record has more than {MOST_ATTEMPTS} attempts; the others are not shown");
            emit(Emitted::Run { at: arrived.at, change: RunChange::Said { level: Level::Warning, text: &text } });
            self.remark(story, arrived, Level::Warning, text);
        }
        None
    }

    /// Makes the lane, and the unit if it was not planned.
    fn open(&mut self, story: &mut Story, key: UnitKey, number: u32, arrived: &Arrived<'_>) -> LaneId {
        let lane = LaneId(u32::try_from(self.lanes.len()).unwrap_or(u32::MAX));
        let unit = self.unit_index(story, &key);
        self.by_unit.entry(key.clone()).or_default().insert(number, lane);
        // Our own attempts are given one prompt; what a capture is of, nobody knows.
        let turns = if arrived.lane == Address::BySession { Turns::default() } else { Turns::of_one_prompt() };
        let attempt = story.state.units[unit].attempts.len();
        self.lanes.push(Arc::new(LaneFold::new(key, number, turns, unit, attempt, lane)));
        let at = arrived.at;
        let attempt = Attempt { number, lane, started_at: at, last_at: at, ..Attempt::default() };
        push_compact(&mut story.state.units[unit].attempts, attempt);
        if story.lanes.len() < self.lanes.len() {
            story.lanes.push(Lane::default());
        }
        lane
    }

    fn remark(&mut self, story: &mut Story, arrived: &Arrived<'_>, level: Level, text: String) {
        let unit = match arrived.lane {
            Address::Attempt(unit, _) => Some(UnitKey::from(unit)),
            Address::Run | Address::BySession => None,
        };
        self.push_remark(story, Remark { seq: arrived.seq, at: arrived.at, level, unit, text });
    }

    fn push_remark(&mut self, story: &mut Story, remark: Remark) {
        if self.remarks == story.remarks.len() {
            story.remarks.push(remark);
        }
        self.remarks += 1;
    }

    /// The unit of that key, made if it is new.
    fn unit_index(&mut self, story: &mut Story, key: &UnitKey) -> usize {
        if let Some(known) = self.units.get(key) {
            return *known;
        }
        let units = &mut story.state.units;
        units.push(Unit {
            key: key.clone(),
            planned: None,
            status: UnitStatus::Queued,
            attempts: Vec::new(),
            retry_at: None,
            holding: Holding::No,
        });
        self.units.insert(key.clone(), units.len() - 1);
        units.len() - 1
    }
}

/// True for our request that the agent end its turn.
fn is_interrupt(written: &[u8]) -> bool {
    /// It says nothing else; results of tools are longer, and not worth a look.
    const LONGEST: usize = 512;
    let control = || decode::line(written).body;
    written.len() < LONGEST
        && matches!(control(), decode::Body::Control { kind, payload: Some(payload), .. }
            if kind == "control_request" && payload.value()["subtype"] == "interrupt")
}

#[cfg(test)]
mod tests;
