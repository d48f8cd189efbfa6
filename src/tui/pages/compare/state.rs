//! The comparison of two attempts at a unit: which two, and the scroll position.

use ratatui::layout::Rect;

use crate::{
    comparison::{Comparison, align::CallPair},
    layout,
    model::ScrollList,
};
use ingestdeck_core::{
    run::state::{AttemptState, RunView},
    tape::UnitKey,
};

/// Rows of the summary.
pub(crate) const SUMMARY: u16 = 9;
/// Rows of the difference of the selected calls, with its title.
const MIN_DIFFERENCE: u16 = 3;
/// Rows of calls and their difference from which the difference has half of them, however many calls there are.
const MIN_SHARED: u16 = 14;

/// A view of two attempts at a unit side by side.
#[derive(Clone, Debug)]
pub(crate) struct ComparePage {
    pub unit: UnitKey,
    /// Indexes of the left and the right attempt.
    pub sides: [usize; 2],
    /// The side that keys change and open.
    pub side: usize,
    /// Scroll position in the pairs of calls.
    pub list: ScrollList,
    /// Scroll position in the difference of the selected pair.
    pub difference: ShownDifference,
    /// Pairs of calls; `None` until the shell has compared the attempts.
    pub pairs: Option<Vec<CallPair>>,
    /// True if the attempts ran on different releases of the agent's program, which the summary then shows.
    pub has_other_release: bool,
    /// True until the page has scrolled to the pair that it begins with.
    pub jumps_to_start: bool,
}

/// The difference of the selected pair that is on screen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShownDifference {
    pair: usize,
    /// First line on screen.
    pub scroll: usize,
    pub lines: usize,
}

/// The parts of the page, from top to bottom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CompareAreas {
    /// Titles of the two attempts.
    pub attempts: Rect,
    /// Notice of the first difference.
    pub notice: Rect,
    /// The calls of both attempts.
    pub calls: Rect,
    /// What differs between the selected calls, with its title; may be empty.
    pub difference: Rect,
    /// Outcome, cost, time and files.
    pub summary: Rect,
}

impl ComparePage {
    /// A comparison of the last two of `attempts` attempts.
    pub(crate) fn new(unit: UnitKey, attempts: usize) -> Self {
        let last = attempts.saturating_sub(1);
        let sides = [last.saturating_sub(1), last];
        Self {
            unit,
            sides,
            side: 1,
            list: ScrollList::default(),
            difference: ShownDifference::default(),
            pairs: None,
            has_other_release: false,
            jumps_to_start: true,
        }
    }

    /// Both attempts. `None` at a moment in the past that has fewer.
    pub(crate) fn attempts<'a>(&self, run_view: &'a RunView) -> Option<[&'a AttemptState; 2]> {
        let unit = run_view.state.unit(&self.unit)?;
        Some([
            unit.attempts.get(self.sides[0])?,
            unit.attempts.get(self.sides[1])?,
        ])
    }

    /// Shows the next or the previous attempt on the focused side. False if there is none.
    pub(crate) fn change_attempt(&mut self, run_view: &RunView, forward: bool) -> bool {
        let count = run_view
            .state
            .unit(&self.unit)
            .map_or(0, |unit| unit.attempts.len());
        let other = self.sides[1 - self.side];
        let next = |index: usize| {
            if forward {
                index.checked_add(1)
            } else {
                index.checked_sub(1)
            }
        };
        let mut index = next(self.sides[self.side]);
        if index == Some(other) {
            index = next(other);
        }
        let Some(index) = index.filter(|index| *index < count) else {
            return false;
        };
        self.sides[self.side] = index;
        // The older attempt is always on the left.
        if self.sides[0] > self.sides[1] {
            self.sides.swap(0, 1);
            self.side = 1 - self.side;
        }
        (self.pairs, self.list, self.jumps_to_start) = (None, ScrollList::default(), true);
        self.difference = ShownDifference::default();
        true
    }

    /// Copies the result of the comparison from the shell.
    pub(crate) fn set_comparison(&mut self, comparison: Option<&Comparison>) {
        let Some(comparison) = comparison else { return };
        self.has_other_release = comparison.has_other_release;
        if self.jumps_to_start {
            self.jumps_to_start = false;
            self.list = ScrollList {
                selected: comparison.start().unwrap_or(0),
                ..ScrollList::default()
            };
        }
        if self.pairs.as_ref() != Some(&comparison.pairs) {
            self.pairs = Some(comparison.pairs.clone());
        }
    }

    /// Copies the number of lines of the difference from the shell. That of another pair begins at its top.
    pub(super) fn set_difference(&mut self, lines: usize) {
        if self.difference.pair != self.list.selected {
            self.difference = ShownDifference {
                pair: self.list.selected,
                ..ShownDifference::default()
            };
        }
        self.difference.lines = lines;
    }

    /// Scrolls in the lines of the difference.
    pub(super) fn scroll_difference(&mut self, by: isize, height: u16) {
        let last = self.difference.lines.saturating_sub(usize::from(height));
        // A higher area may show more than before.
        let scroll = self.difference.scroll.min(last).saturating_add_signed(by);
        self.difference.scroll = scroll.min(last);
    }

    /// The pair of calls that is selected.
    pub(super) fn selected_pair(&self) -> Option<CallPair> {
        self.pairs.as_ref()?.get(self.list.selected).copied()
    }

    /// Number of known pairs.
    pub(crate) fn pair_count(&self) -> usize {
        self.pairs.as_ref().map_or(0, Vec::len)
    }

    /// Side and row of the selected pair, on the focused side if it has a row there, otherwise on the other side.
    pub(super) fn selected_row(&self) -> Option<(usize, usize)> {
        let pair = self.pairs.as_ref()?.get(self.list.selected)?;
        let rows = [pair.left, pair.right];
        [self.side, 1 - self.side]
            .into_iter()
            .find_map(|side| Some((side, rows[side]?)))
    }

    /// Areas of the page inside the body of the screen.
    pub(crate) fn areas(&self, body: Rect) -> CompareAreas {
        let inside = layout::inner(body);
        let attempts = Rect {
            height: inside.height.min(1),
            ..inside
        };
        let notice = Rect {
            y: inside.y + attempts.height,
            height: inside.height.saturating_sub(1).min(1),
            ..inside
        };
        let top = attempts.height + notice.height;
        let rest = inside.height - top;
        // Calls have priority; the summary uses the rows that remain.
        let summary = (SUMMARY + u16::from(self.has_other_release))
            .min(rest.saturating_sub(3))
            .min(if rest < 20 { rest / 3 } else { rest / 2 });
        let room = rest - summary;
        let least = if room < MIN_SHARED { 0 } else { room / 2 };
        let wanted = match self.pair_count() {
            0 => room,
            pairs => u16::try_from(pairs).unwrap_or(room),
        };
        let calls = wanted.min(room - least);
        let calls = Rect {
            y: inside.y + top,
            height: if room - calls < MIN_DIFFERENCE {
                room
            } else {
                calls
            },
            ..inside
        };
        CompareAreas {
            attempts,
            notice,
            calls,
            difference: Rect {
                y: calls.bottom(),
                height: room - calls.height,
                ..inside
            },
            summary: Rect {
                y: calls.y + room,
                height: summary,
                ..inside
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::comparison::align::CallDifference;
    use ingestdeck_core::run::state::{HoldMode, RunState, UnitState, UnitStatus};

    fn run_view(attempts: usize) -> RunView {
        let unit = UnitState {
            key: "u".into(),
            planned: None,
            status: UnitStatus::Failed,
            attempts: vec![AttemptState::default(); attempts],
            retry_at: None,
            hold_mode: HoldMode::Off,
        };
        RunView {
            state: RunState {
                units: vec![unit],
                ..RunState::default()
            },
            ..RunView::default()
        }
    }

    #[test]
    fn compare_accepts_any_pair_and_puts_the_older_left() {
        let run_view = run_view(4);
        let mut compare = ComparePage::new("u".into(), 4);
        assert_eq!((compare.sides, compare.side), ([2, 3], 1));
        assert!(
            !compare.change_attempt(&run_view, true),
            "there is no newer one"
        );
        assert!(compare.change_attempt(&run_view, false));
        assert_eq!(
            (compare.sides, compare.side),
            ([1, 2], 0),
            "it passes the other one"
        );
        assert!(compare.change_attempt(&run_view, false));
        assert!(!compare.change_attempt(&run_view, false));
        assert_eq!(compare.sides, [0, 2]);
        assert!(!ComparePage::new("u".into(), 2).change_attempt(&self::run_view(2), false));
    }

    proptest! {
        #[test]
        fn the_parts_stay_inside_and_apart(width in 0..300_u16, height in 0..100_u16, pairs in 0..90_usize) {
            let body = Rect::new(0, 2, width, height);
            let mut compare = ComparePage::new("u".into(), 2);
            let pair = CallPair { left: Some(0), right: None, difference: CallDifference::OnlyLeft };
            compare.pairs = Some(vec![pair; pairs]);
            let areas = compare.areas(body);
            let all = [areas.attempts, areas.notice, areas.calls, areas.difference, areas.summary];
            for (index, area) in all.iter().enumerate() {
                prop_assert!(area.is_empty() || area.intersection(body) == *area);
                prop_assert!(all[index + 1..].iter().all(|other| area.intersection(*other).is_empty()));
            }
        }
    }
}
