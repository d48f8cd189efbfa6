//! Limits: turns of one attempt, and the usage windows of the whole run.
//!
//! Both only count and answer. Waits are given as data; nothing here knows what time it is.

use std::collections::{BTreeSet, HashSet};

use crate::tape::Millis;

/// Share of the turns, or of a usage window, from which a run is careful.
pub const CAREFUL: f64 = 0.8;

/// Slots while a usage window is nearly spent.
pub const SLOTS_UNDER_PRESSURE: u32 = 1;

/// Wait for a rejected window that names no reset.
pub const BLIND_WAIT_MS: u64 = 60_000;

/// Most names of usage windows that are kept; there are a handful.
const WINDOWS: usize = 16;

/// Counts the turns of an attempt: distinct ids of top-level messages of the model.
#[derive(Clone, Debug)]
pub struct TurnLimiter {
    max: u32,
    turns: u32,
    seen: HashSet<Box<str>>,
}

/// What a turn led to. Each is told once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnEvent {
    /// Four fifths are spent.
    Approaching {
        /// Turns so far.
        turn: u32,
        /// Turns allowed.
        max: u32,
    },
    /// All are spent.
    Reached {
        /// Turns so far.
        turn: u32,
    },
}

impl std::fmt::Display for TurnEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Approaching { turn, max } => write!(f, "Approaching turn limit: {turn}/{max}"),
            Self::Reached { turn } => write!(f, "Turn limit reached ({turn})"),
        }
    }
}

impl TurnLimiter {
    /// A limiter for `max` turns.
    pub fn new(max: u32) -> Self {
        Self { max, turns: 0, seen: HashSet::new() }
    }

    /// Takes note of an assistant line of the main loop. Lines with one id are one turn; a line without is its own.
    pub fn saw(&mut self, message_id: Option<&str>) -> Option<TurnEvent> {
        if let Some(id) = message_id
            && !self.seen.insert(id.into())
        {
            return None;
        }
        self.turns = self.turns.saturating_add(1);
        // floor(0.8 · max) without floats.
        let careful = u64::from(self.max) * 4 / 5;
        if self.turns == self.max {
            Some(TurnEvent::Reached { turn: self.turns })
        } else if u64::from(self.turns) == careful {
            Some(TurnEvent::Approaching { turn: self.turns, max: self.max })
        } else {
            None
        }
    }

    /// Turns so far.
    pub fn turns(&self) -> u32 {
        self.turns
    }

    /// Turns left.
    pub fn remaining(&self) -> u32 {
        self.max.saturating_sub(self.turns)
    }
}

/// What the service said about a usage window.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// When we heard it.
    pub at: Millis,
    /// Name of the window (`five_hour`, …).
    pub name: String,
    /// How it stands.
    pub status: LimitStatus,
    /// 0 to 1, if said.
    pub utilization: Option<f64>,
    /// Time until it resets, if said.
    pub resets_in_ms: Option<u64>,
}

/// How a usage window stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitStatus {
    /// Open.
    Allowed,
    /// Nearly spent.
    Warning,
    /// Spent.
    Rejected,
}

impl LimitStatus {
    /// Reads the service's word. `None` for a word of a later release.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "allowed" => Some(Self::Allowed),
            "allowed_warning" => Some(Self::Warning),
            "rejected" => Some(Self::Rejected),
            _ => None,
        }
    }
}

/// Time from `now_ms` until `resets_at` (unix seconds), both on the wall clock; zero if it has passed.
pub fn resets_in_ms(resets_at: i64, now_ms: i64) -> u64 {
    u64::try_from(resets_at.saturating_mul(1_000).saturating_sub(now_ms)).unwrap_or(0)
}

/// Slows a run down while a usage window is nearly spent, and holds it while one is spent.
#[derive(Clone, Debug, Default)]
pub struct Governor {
    /// Windows under pressure.
    pressed: BTreeSet<String>,
    /// Run-relative end of the pause, if there is a pause; `None` inside if unknown.
    pause: Option<Option<Millis>>,
    /// Pauses since the last success, for the floor of the next one.
    pauses: u32,
    /// Time of the last observation.
    heard_at: Millis,
}

/// What an observation changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    Same,
    /// One unit at a time from now on, because of the named window.
    Throttled,
    /// Full speed again.
    Restored,
    /// Nothing starts until the wait is over. Replaces an earlier wait.
    Paused {
        /// The wait from now.
        wait_ms: u64,
        /// Its end on the run's clock, if the service named one.
        until: Option<Millis>,
    },
}

impl Governor {
    /// Takes an observation.
    pub fn observe(&mut self, seen: &Observed) -> Change {
        self.heard_at = self.heard_at.max(seen.at);
        if seen.status == LimitStatus::Rejected {
            return self.reject(seen.resets_in_ms, seen.at);
        }
        let before = self.pressed.is_empty();
        let careful = seen.status == LimitStatus::Warning || seen.utilization.is_some_and(|share| share >= CAREFUL);
        if !careful {
            self.pressed.remove(&seen.name);
        } else if self.pressed.len() < WINDOWS {
            self.pressed.insert(seen.name.clone());
        }
        match (before, self.pressed.is_empty()) {
            (true, false) => Change::Throttled,
            (false, true) => Change::Restored,
            (true, true) | (false, false) => Change::Same,
        }
    }

    /// An attempt ended at a limit that no observation told of: a wait of its own.
    pub fn hit_unseen(&mut self) -> Change {
        if self.is_paused() { Change::Same } else { self.pause(BLIND_WAIT_MS, None) }
    }

    /// The wait is over. The windows start afresh.
    pub fn lift(&mut self) {
        self.pause = None;
        self.pressed.clear();
    }

    /// An attempt got through: the next pause is a first one again.
    pub fn passed(&mut self) {
        self.pauses = 0;
    }

    /// True while nothing may start.
    pub fn is_paused(&self) -> bool {
        self.pause.is_some()
    }

    /// What is left of the pause, counted from the last observation.
    pub fn remaining_ms(&self) -> u64 {
        match self.pause {
            Some(Some(until)) => until.since(self.heard_at).0,
            Some(None) => BLIND_WAIT_MS,
            None => 0,
        }
    }

    /// Slots out of `slots` that may be used.
    pub fn slots(&self, slots: u32) -> u32 {
        if self.pressed.is_empty() { slots } else { slots.min(SLOTS_UNDER_PRESSURE) }
    }

    fn reject(&mut self, resets_in_ms: Option<u64>, at: Millis) -> Change {
        // The reset may already have passed on our clock, and the next attempt may be rejected again:
        // the floor grows, so that this never becomes a hot loop.
        let known = resets_in_ms.map(|wait| wait.max(self.floor_ms()));
        let until = known.map(|wait| Millis(at.0.saturating_add(wait)));
        let later = match (&self.pause, until) {
            (None | Some(None), _) => true,
            (Some(Some(current)), Some(until)) => until > *current,
            (Some(Some(_)), None) => false,
        };
        let blind_again = self.pause == Some(None) && until.is_none();
        if later && !blind_again { self.pause(known.unwrap_or(BLIND_WAIT_MS), until) } else { Change::Same }
    }

    fn pause(&mut self, wait_ms: u64, until: Option<Millis>) -> Change {
        if self.pause.is_none() {
            self.pauses = self.pauses.saturating_add(1);
        }
        self.pause = Some(until);
        Change::Paused { wait_ms, until }
    }

    /// 1 s, 2 s, 4 s, … 60 s.
    fn floor_ms(&self) -> u64 {
        (1_000 << self.pauses.min(6)).min(BLIND_WAIT_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(max: u32, ids: impl Iterator<Item = Option<String>>) -> Vec<String> {
        let mut limiter = TurnLimiter::new(max);
        ids.filter_map(|id| limiter.saw(id.as_deref())).map(|event| event.to_string()).collect()
    }

    #[test]
    fn turns_warn_once_at_four_fifths() {
        let thrice = (0..60).flat_map(|n| std::iter::repeat_n(Some(format!("m{n}")), 3));
        assert_eq!(warnings(50, thrice), ["Approaching turn limit: 40/50", "Turn limit reached (50)"]);
        assert_eq!(
            warnings(3, std::iter::repeat_n(None, 5)),
            ["Approaching turn limit: 2/3", "Turn limit reached (3)"]
        );
        assert_eq!(warnings(1, std::iter::repeat_n(None, 3)), ["Turn limit reached (1)"]);
        assert_eq!(warnings(0, std::iter::repeat_n(None, 3)), [] as [&str; 0]);
    }

    #[test]
    fn turns_left_never_go_below_zero() {
        let mut limiter = TurnLimiter::new(1);
        limiter.saw(None);
        limiter.saw(None);
        assert_eq!((limiter.turns(), limiter.remaining()), (2, 0));
    }

    fn seen(name: &str, status: LimitStatus, utilization: Option<f64>, resets_in_ms: Option<u64>) -> Observed {
        Observed { at: Millis(5_000), name: name.into(), status, utilization, resets_in_ms }
    }

    #[test]
    fn pressure_of_any_window_throttles_until_all_are_well() {
        use LimitStatus::{Allowed, Warning};
        let mut governor = Governor::default();
        assert_eq!(governor.observe(&seen("five_hour", Allowed, Some(0.79), None)), Change::Same);
        assert_eq!(governor.observe(&seen("five_hour", Allowed, Some(0.8), None)), Change::Throttled);
        assert_eq!(governor.slots(4), 1);
        assert_eq!(governor.observe(&seen("seven_day", Warning, None, None)), Change::Same);
        assert_eq!(governor.observe(&seen("five_hour", Allowed, Some(0.1), None)), Change::Same);
        assert_eq!(governor.observe(&seen("seven_day", Allowed, Some(f64::NAN), None)), Change::Restored);
        assert_eq!(governor.slots(4), 4);
    }

    #[test]
    fn a_spent_window_pauses_until_its_reset_and_only_a_later_one_prolongs() {
        use LimitStatus::Rejected;
        let mut governor = Governor::default();
        let paused = |wait_ms| Change::Paused { wait_ms, until: Some(Millis(5_000 + wait_ms)) };
        assert_eq!(governor.observe(&seen("five_hour", Rejected, None, Some(90_000))), paused(90_000));
        assert_eq!(governor.observe(&seen("five_hour", Rejected, None, Some(80_000))), Change::Same);
        assert_eq!(governor.observe(&seen("five_hour", Rejected, None, None)), Change::Same);
        assert_eq!(governor.observe(&seen("seven_day", Rejected, None, Some(95_000))), paused(95_000));
        assert_eq!(governor.hit_unseen(), Change::Same);
        governor.lift();
        assert!(!governor.is_paused());
    }

    #[test]
    fn a_limit_without_a_reset_waits_a_minute() {
        let mut governor = Governor::default();
        assert_eq!(governor.hit_unseen(), Change::Paused { wait_ms: 60_000, until: None });
        assert_eq!(governor.observe(&seen("five_hour", LimitStatus::Rejected, None, None)), Change::Same);
        let known = governor.observe(&seen("five_hour", LimitStatus::Rejected, None, Some(70_000)));
        assert_eq!(known, Change::Paused { wait_ms: 70_000, until: Some(Millis(75_000)) });
    }

    #[test]
    fn resets_in_the_past_wait_longer_each_time_until_something_passes() {
        let mut governor = Governor::default();
        let mut wait = || {
            let Change::Paused { wait_ms, .. } = governor.observe(&seen("x", LimitStatus::Rejected, None, Some(0)))
            else {
                unreachable!()
            };
            governor.lift();
            wait_ms
        };
        let waits: Vec<u64> = (0..8).map(|_| wait()).collect();
        assert_eq!(waits, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
        governor.passed();
        assert_eq!(governor.floor_ms(), 1_000);
    }

    #[test]
    fn hostile_names_are_bounded_and_unknown_words_are_not_guessed() {
        let mut governor = Governor::default();
        for n in 0..1_000 {
            governor.observe(&seen(&n.to_string(), LimitStatus::Warning, None, None));
        }
        assert_eq!(governor.pressed.len(), WINDOWS);
        assert_eq!(LimitStatus::parse("allowed_warning"), Some(LimitStatus::Warning));
        assert_eq!(LimitStatus::parse("perhaps"), None);
    }

    #[test]
    fn waits_until_a_reset_do_not_overflow() {
        assert_eq!(resets_in_ms(10, 4_000), 6_000);
        assert_eq!(resets_in_ms(10, 40_000), 0);
        assert_eq!(resets_in_ms(i64::MIN, i64::MAX), 0);
        assert!(resets_in_ms(i64::MAX, 0) > 0);
    }
}
