//! State of the page of lanes: the lanes at the moment that is shown, and the selected attempt.

use ratatui::layout::Rect;

use crate::layout;
use crate::model::scrolled;
use ingestdeck_core::{
    run::{
        slot_lanes::{LaneAttempt, SlotLanes},
        state::{AttemptId, RunView, StateVersion},
    },
    tape::Millis,
};

/// Number of attempts above which new entries alone do not cause a new computation.
const MANY_ATTEMPTS: usize = 1000;
/// Milliseconds after which elapsed time alone causes a new computation.
const REFRESH_INTERVAL_MS: u64 = 1000;
/// Most rows that are kept free for the texts below the lanes.
const MAX_TEXT_ROWS: u16 = 9;

/// When the attempts of each slot ran, as one lane per slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct LanesPage {
    pub lanes: SlotLanes,
    /// First lane on screen.
    pub offset: usize,
    /// True while only the time around the selected attempt is shown.
    pub is_zoomed: bool,
    /// The attempt that the user selected; `None` for the last one that began.
    chosen: Option<AttemptId>,
    /// Index of the selected attempt.
    selected: usize,
    seen: Option<(StateVersion, u64)>,
}

/// The part of the run that the bars cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeWindow {
    pub from: Millis,
    pub to: Millis,
}

impl TimeWindow {
    /// Length in milliseconds, at least 1.
    pub(crate) fn span(self) -> u64 {
        self.to.since(self.from).0.max(1)
    }

    /// True if a part of the attempt is in the window.
    pub(crate) fn contains(self, attempt: &LaneAttempt) -> bool {
        attempt.from <= self.to && attempt.to >= self.from
    }
}

impl LanesPage {
    /// The whole run, or the selected attempt with half of its time before and after it.
    pub(crate) fn window(&self) -> TimeWindow {
        let end = self.lanes.end;
        match self.selected().filter(|_| self.is_zoomed) {
            None => TimeWindow {
                from: Millis(0),
                to: end,
            },
            Some(attempt) => {
                let margin = attempt.to.since(attempt.from).0 / 2 + 500;
                TimeWindow {
                    from: Millis(attempt.from.0.saturating_sub(margin)),
                    to: Millis(attempt.to.0.saturating_add(margin)).min(end),
                }
            }
        }
    }

    /// Computes the lanes again if the run has changed.
    pub(super) fn update(&mut self, run_view: &RunView, body: Rect) {
        let (entries, units, silent, is_closed) = run_view.state.version();
        let entries = if self.lanes.attempts.len() > MANY_ATTEMPTS {
            0
        } else {
            entries
        };
        let seen = (
            (entries, units, silent, is_closed),
            run_view.state.clock.0 / REFRESH_INTERVAL_MS,
        );
        if self.seen != Some(seen) {
            self.seen = Some(seen);
            self.lanes = SlotLanes::new(run_view);
            let last = self.lanes.attempts.len().saturating_sub(1);
            self.selected = self
                .chosen
                .and_then(|id| self.lanes.position(id))
                .unwrap_or(last);
        }
        let [_, rows, _] = self.areas(layout::inner(body));
        let lane = self.selected().map_or(0, |attempt| attempt.lane);
        self.offset = scrolled(
            self.offset,
            lane,
            self.lanes.lanes,
            usize::from(rows.height),
        );
    }

    /// The time axis, the lanes, and the texts below them.
    pub(crate) fn areas(&self, inside: Rect) -> [Rect; 3] {
        let axis = u16::from(inside.height >= 5);
        let rest = inside.height - axis;
        let texts = (rest / 2).clamp(rest.min(3), MAX_TEXT_ROWS);
        let rows = u16::try_from(self.lanes.lanes)
            .unwrap_or(u16::MAX)
            .min(rest - texts);
        let below = Rect {
            y: inside.y + axis + rows,
            height: rest - rows,
            ..inside
        };
        [
            Rect {
                height: axis,
                ..inside
            },
            Rect {
                y: inside.y + axis,
                height: rows,
                ..inside
            },
            below,
        ]
    }

    pub(crate) fn selected(&self) -> Option<&LaneAttempt> {
        self.lanes.attempts.get(self.selected)
    }

    /// Index of the selected attempt in the order of the starts.
    pub(crate) fn selected_index(&self) -> usize {
        self.selected
    }

    /// Selects an attempt by its index.
    pub(crate) fn select(&mut self, index: usize) {
        self.selected = index.min(self.lanes.attempts.len().saturating_sub(1));
        // The last attempt is followed as others begin.
        let is_last = self.selected + 1 == self.lanes.attempts.len();
        self.chosen = self
            .selected()
            .filter(|_| !is_last)
            .map(|attempt| attempt.id);
    }

    /// Selects the attempt of another lane that is nearest in time.
    pub(super) fn step_lanes(&mut self, by: isize) {
        let Some(from) = self.selected() else { return };
        let lane = from
            .lane
            .saturating_add_signed(by)
            .min(self.lanes.lanes.saturating_sub(1));
        let middle = |attempt: &LaneAttempt| attempt.from.0 / 2 + attempt.to.0 / 2;
        let at = middle(from);
        let distance = |attempt: &LaneAttempt| match attempt {
            LaneAttempt { from, to, .. } if (from.0..=to.0).contains(&at) => 0,
            attempt => middle(attempt).abs_diff(at),
        };
        let in_lane = self
            .lanes
            .attempts
            .iter()
            .enumerate()
            .filter(|(_, attempt)| attempt.lane == lane);
        if let Some((nearest, _)) = in_lane.min_by_key(|(_, attempt)| distance(attempt)) {
            self.select(nearest);
        }
    }

    /// Selects the next or the previous attempt of the lane.
    pub(crate) fn step_in_lane(&mut self, right: bool) {
        let Some(lane) = self.selected().map(|attempt| attempt.lane) else {
            return;
        };
        let in_lane = |attempt: &LaneAttempt| attempt.lane == lane;
        let found = if right {
            let after = self
                .lanes
                .attempts
                .iter()
                .skip(self.selected + 1)
                .position(in_lane);
            after.map(|place| place + self.selected + 1)
        } else {
            self.lanes.attempts[..self.selected]
                .iter()
                .rposition(in_lane)
        };
        if let Some(found) = found {
            self.select(found);
        }
    }
}
