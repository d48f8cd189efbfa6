//! Panes for several units: which units have a pane, and the scroll position of each.
//!
//! Units do not move between panes. Units that wait for the user come first, then running ones; a failed unit keeps its
//! pane until the user has viewed the failure.

use std::collections::HashSet;

use ratatui::layout::Rect;

use super::{is_failure, scroll_list::ScrollList};
use crate::{layout, stream_frame::HeldChanges};
use ingestdeck_core::{
    run::state::{AttemptId, AttemptState, RunState, RunView, StateVersion, UnitState, UnitStatus},
    tape::Millis,
};

/// Largest number of panes.
const MAX_PANES: usize = 9;
/// Smallest columns and rows of a pane.
const MIN_PANE: (u16, u16) = (36, 8);
/// Preferred ratio of columns to rows: a cell is twice as high as wide, and lines are long.
const PANE_ASPECT: f64 = 4.0;

#[derive(Clone, Debug, Default)]
pub(crate) struct Grid {
    /// Index of the focused pane.
    pub focus: usize,
    /// True when only the focused pane is shown.
    pub zoom: bool,
    /// True while the grid is shown: its unit is selected whatever the table hides.
    pub is_shown: bool,
    pub panes: Vec<GridPane>,
    /// The last unit of each place. Units that are missing at a moment in the past return to their places.
    pane_history: Vec<GridPane>,
    /// True once the user selected a pane. It then keeps its unit, whatever else runs.
    chosen: bool,
    /// The unit that gets a pane and the focus with the next assignment.
    wanted_unit: Option<usize>,
    /// Attempts whose failure the user has viewed.
    seen: HashSet<AttemptId>,
    /// Inputs of the last assignment: version of the run view, number of units, number of places.
    version: Option<(StateVersion, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GridPane {
    /// Index of the unit.
    pub unit: usize,
    /// Scroll position in the rows of its newest attempt.
    pub list: ScrollList,
    /// The attempt that `list` refers to.
    attempt_id: Option<AttemptId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PaneDirection {
    Left,
    Right,
    Up,
    Down,
}

impl GridPane {
    fn new(unit: usize) -> Self {
        Self {
            unit,
            list: ScrollList::following(),
            attempt_id: None,
        }
    }

    /// The unit and its newest attempt.
    pub(crate) fn subject<'a>(
        &self,
        run_view: &'a RunView,
    ) -> Option<(&'a UnitState, Option<&'a AttemptState>)> {
        let unit = run_view.state.units.get(self.unit)?;
        Some((unit, unit.latest()))
    }

    /// Number of rows of that attempt.
    pub(crate) fn len(&self, run_view: &RunView) -> usize {
        self.attempt_id
            .map_or(0, |attempt_id| run_view.rows(attempt_id).len())
    }
}

impl Grid {
    /// The unit of the focused pane.
    pub(crate) fn unit(&self) -> Option<usize> {
        self.panes.get(self.focus).map(|slot| slot.unit)
    }

    /// Shows `unit` and focuses it. If the user selected it, its pane keeps it.
    pub(crate) fn show(&mut self, unit: usize, is_chosen: bool) {
        (self.wanted_unit, self.chosen, self.version) = (Some(unit), is_chosen, None);
    }

    /// Focuses the pane at `slot`, if there is one.
    pub(crate) fn choose(&mut self, slot: usize) {
        if slot < self.panes.len() {
            self.focus = slot;
            self.chosen = true;
        }
    }

    /// Focuses the next or the previous pane.
    pub(crate) fn step(&mut self, forward: bool) {
        let len = self.panes.len().max(1);
        self.choose(if forward {
            (self.focus + 1) % len
        } else {
            (self.focus + len - 1) % len
        });
    }

    /// Focuses the nearest pane in a direction.
    pub(crate) fn go(&mut self, towards: PaneDirection, body: Rect) {
        if self.panes(body).len() < 2 {
            return self.step(matches!(
                towards,
                PaneDirection::Right | PaneDirection::Down
            ));
        }
        let middle = |area: Rect| {
            (
                i32::from(area.x) + i32::from(area.width) / 2,
                (i32::from(area.y) + i32::from(area.height) / 2) * 2,
            )
        };
        let panes = self.panes(body);
        let Some((_, here)) = panes.iter().find(|(slot, _)| *slot == self.focus) else {
            return;
        };
        let (x, y) = middle(*here);
        let away = |area: Rect| {
            let (dx, dy) = (middle(area).0 - x, middle(area).1 - y);
            let (along, across) = match towards {
                PaneDirection::Left => (-dx, dy),
                PaneDirection::Right => (dx, dy),
                PaneDirection::Up => (-dy, dx),
                PaneDirection::Down => (dy, dx),
            };
            (along > 0 && across.abs() <= along * 4).then_some(along + across.abs())
        };
        let nearest = panes
            .iter()
            .filter_map(|(slot, area)| Some((away(*area)?, *slot)))
            .min();
        if let Some((_, slot)) = nearest {
            self.choose(slot);
        }
    }

    /// True when `unit` failed and the user has not viewed the failure yet.
    pub(crate) fn has_unseen_failure(&self, unit: &UnitState) -> bool {
        is_failure(unit.status)
            && unit
                .latest()
                .is_some_and(|attempt| !self.seen.contains(&attempt.id))
    }

    /// The visible panes with their areas.
    pub(crate) fn panes(&self, body: Rect) -> Vec<(usize, Rect)> {
        if self.panes.is_empty() {
            return Vec::new();
        }
        if self.zoom || capacity(body) < 2 {
            return vec![(self.focus, body)];
        }
        arrange(self.panes.len(), body)
            .into_iter()
            .enumerate()
            .collect()
    }

    /// Assigns places to units when the run view or the size has changed, and brings every pane into range.
    pub(crate) fn refresh(&mut self, run_view: &RunView, held: &HeldChanges, body: Rect) {
        let places = capacity(body)
            .clamp(2, MAX_PANES)
            .min(run_view.state.units.len());
        let moment = (run_view.state.version(), places);
        if let Some(unit) = self
            .unit()
            .filter(|_| self.chosen && self.wanted_unit.is_none())
        {
            self.mark_seen(run_view.state.units.get(unit));
        }
        if self.version != Some(moment) {
            self.version = Some(moment);
            self.fill(&run_view.state, places);
        }
        if let Some(wanted) = self.wanted_unit.take()
            && let Some(place) = self.panes.iter().position(|pane| pane.unit == wanted)
        {
            self.focus = place;
        }
        self.focus = self.focus.min(self.panes.len().saturating_sub(1));
        let panes = self.panes(body);
        for (place, slot) in self.panes.iter_mut().enumerate() {
            let attempt = run_view
                .state
                .units
                .get(slot.unit)
                .and_then(UnitState::latest);
            let attempt_id = attempt.map(|attempt| attempt.id);
            if slot.attempt_id != attempt_id {
                (slot.attempt_id, slot.list) = (attempt_id, ScrollList::following());
            }
            let area = panes
                .iter()
                .find(|(shown, _)| *shown == place)
                .map(|(_, area)| *area);
            let height = area.map_or(1, |area| {
                usize::from(layout::stream_areas(area, attempt, held).rows.height)
            });
            let len = slot.len(run_view);
            slot.list.clamp(len, height);
        }
    }

    /// Records that the user has viewed a unit, so that its failure no longer reserves a pane.
    pub(crate) fn mark_seen(&mut self, unit: Option<&UnitState>) {
        if let Some(attempt) = unit
            .filter(|unit| is_failure(unit.status))
            .and_then(UnitState::latest)
        {
            self.seen.insert(attempt.id);
        }
    }

    fn fill(&mut self, state: &RunState, places: usize) {
        let wanted = self.ranked_units(state, places);
        for (place, slot) in self.pane_history.iter_mut().zip(&self.panes) {
            *place = *slot;
        }
        let mut slots: Vec<Option<GridPane>> = vec![None; places];
        for (place, slot) in slots.iter_mut().zip(&self.pane_history) {
            *place = wanted.contains(&slot.unit).then_some(*slot);
        }
        let placed = |slots: &[Option<GridPane>], unit: usize| {
            slots.iter().flatten().any(|slot| slot.unit == unit)
        };
        // Units that become eligible at the same time are placed in plan order.
        let mut unplaced: Vec<usize> = wanted
            .into_iter()
            .filter(|unit| !placed(&slots, *unit))
            .collect();
        unplaced.sort_unstable();
        for unit in unplaced {
            if let Some(free) = slots.iter_mut().find(|slot| slot.is_none()) {
                let before = self
                    .pane_history
                    .iter()
                    .find(|slot| slot.unit == unit)
                    .copied();
                *free = Some(before.unwrap_or_else(|| GridPane::new(unit)));
            }
        }
        self.panes = slots.into_iter().flatten().collect();
        let kept = self
            .pane_history
            .split_off(self.panes.len().min(self.pane_history.len()));
        self.pane_history.clone_from(&self.panes);
        self.pane_history.extend(
            kept.into_iter()
                .filter(|slot| !self.panes.iter().any(|now| now.unit == slot.unit)),
        );
    }

    /// The units that deserve a pane, most important first.
    fn ranked_units(&self, state: &RunState, places: usize) -> Vec<usize> {
        let has_place = |unit: usize| self.pane_history.iter().any(|slot| slot.unit == unit);
        let mut ranks: [Vec<(bool, Millis, usize)>; 5] = Default::default();
        let [held, running, failed, waiting, ended] = &mut ranks;
        let mut queued = Vec::new();
        for (index, unit) in state.units.iter().enumerate() {
            let is_unplaced = !has_place(index);
            let Some(attempt) = unit.latest() else {
                // Of the queued units, those that already have a pane and the first `places` others suffice.
                if queued.len() < places || !is_unplaced {
                    queued.push((is_unplaced, Millis(0), index));
                }
                continue;
            };
            // Newest first: the user is most likely to look at the last unit that ended.
            let age = Millis(u64::MAX - attempt.ended_at.unwrap_or(attempt.last_at).0);
            match unit.status {
                UnitStatus::Held => held.push((is_unplaced, attempt.started_at, index)),
                UnitStatus::Running | UnitStatus::Silent => {
                    running.push((is_unplaced, attempt.started_at, index))
                }
                UnitStatus::Waiting | UnitStatus::Queued => waiting.push((is_unplaced, age, index)),
                _ if self.has_unseen_failure(unit) => {
                    failed.push((unit.status == UnitStatus::Interrupted, age, index))
                }
                _ => ended.push((is_unplaced, age, index)),
            }
        }
        for rank in ranks.iter_mut().chain([&mut queued]) {
            if rank.len() > places {
                rank.select_nth_unstable(places);
                rank.truncate(places);
            }
            rank.sort_unstable();
        }
        let [held, running, failed, waiting, ended] = ranks;
        let pinned = self
            .wanted_unit
            .or_else(|| self.unit().filter(|_| self.chosen));
        let pinned = pinned.filter(|unit| *unit < state.units.len());
        // Failed units keep at most half of the places, so that running units stay visible.
        let free = places - held.len();
        let kept = failed.len().min(free / 2);
        let first_runs = running.len().min(free - kept);
        // A unit that waits for the user comes first.
        let order = held
            .iter()
            .chain(&running[..first_runs])
            .chain(&failed)
            .chain(&running[first_runs..]);
        let rest = waiting.iter().chain(&ended).chain(&queued);
        let mut wanted = Vec::with_capacity(places);
        for unit in pinned
            .into_iter()
            .chain(order.chain(rest).map(|(.., unit)| *unit))
        {
            if wanted.len() == places {
                break;
            }
            if !wanted.contains(&unit) {
                wanted.push(unit);
            }
        }
        wanted
    }
}

/// Number of panes that fit into `body`.
fn capacity(body: Rect) -> usize {
    (usize::from(body.width / MIN_PANE.0) * usize::from(body.height / MIN_PANE.1)).min(MAX_PANES)
}

/// Areas of `count` panes: rows of equal height, panes of equal width in each row.
fn arrange(count: usize, body: Rect) -> Vec<Rect> {
    let most = usize::from(body.width / MIN_PANE.0).max(1);
    let fits =
        |columns: &usize| count.div_ceil(*columns) <= usize::from(body.height / MIN_PANE.1).max(1);
    let misshapen = |columns: usize| {
        let (columns, rows) = (columns, count.div_ceil(columns));
        let width = f64::from(body.width) / f64::from(u16::try_from(columns).unwrap_or(1));
        let height = f64::from(body.height) / f64::from(u16::try_from(rows).unwrap_or(1));
        let gaps = columns * rows - count;
        (width / height.max(1.0) / PANE_ASPECT).ln().abs()
            + f64::from(u16::try_from(gaps).unwrap_or(1)) * 0.2
    };
    let columns = (1..=most.min(count))
        .filter(fits)
        .min_by(|a, b| misshapen(*a).total_cmp(&misshapen(*b)));
    let columns = columns.unwrap_or(1);
    let rows = count.div_ceil(columns);
    let mut areas = Vec::with_capacity(count);
    for row in 0..rows {
        let here = columns.min(count - row * columns);
        let (y, height) = share(body.y, body.height, row, rows);
        areas.extend((0..here).map(|column| {
            let (x, width) = share(body.x, body.width, column, here);
            Rect {
                x,
                y,
                width,
                height,
            }
        }));
    }
    areas
}

/// Start and length of one of `parts` equal parts of `length`.
fn share(from: u16, length: u16, part: usize, parts: usize) -> (u16, u16) {
    let at =
        |part: usize| u16::try_from(usize::from(length) * part / parts.max(1)).unwrap_or(length);
    (from + at(part), at(part + 1) - at(part))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BODY: Rect = Rect {
        x: 0,
        y: 2,
        width: 120,
        height: 33,
    };

    fn unit(attempt_id: u32, status: UnitStatus, at: u64) -> UnitState {
        let attempt = AttemptState {
            id: AttemptId(attempt_id),
            started_at: Millis(at),
            last_at: Millis(at + 5),
            ended_at: status.is_finished().then_some(Millis(at + 5)),
            ..AttemptState::default()
        };
        let attempts = if status == UnitStatus::Queued {
            Vec::new()
        } else {
            vec![attempt]
        };
        UnitState {
            key: format!("u{attempt_id}").as_str().into(),
            planned: None,
            status,
            attempts,
            retry_at: None,
            hold_mode: Default::default(),
        }
    }

    fn run_view(entries: u64, statuses: &[UnitStatus]) -> RunView {
        let units = statuses.iter().enumerate();
        let units = units
            .map(|(attempt_id, status)| {
                unit(
                    u32::try_from(attempt_id).unwrap(),
                    *status,
                    10 * attempt_id as u64,
                )
            })
            .collect();
        RunView {
            state: RunState {
                units,
                entries,
                ..RunState::default()
            },
            ..RunView::default()
        }
    }

    fn units(grid: &Grid) -> Vec<usize> {
        grid.panes.iter().map(|slot| slot.unit).collect()
    }

    use UnitStatus::{Failed as F, Held as H, Queued as Q, Running as R, Succeeded as S};

    #[test]
    fn panes_keep_their_places_as_units_end_and_begin() {
        let small = Rect {
            x: 0,
            y: 0,
            width: 80,
            height: 21,
        };
        let mut grid = Grid::default();
        grid.refresh(
            &run_view(1, &[R, R, Q, Q, Q, Q]),
            &HeldChanges::new(),
            small,
        );
        assert_eq!(units(&grid), [0, 1, 2, 3]);
        grid.refresh(
            &run_view(2, &[S, R, R, Q, Q, Q]),
            &HeldChanges::new(),
            small,
        );
        assert_eq!(
            units(&grid),
            [0, 1, 2, 3],
            "what ended stays while there is room"
        );
        grid.refresh(
            &run_view(3, &[S, S, S, R, R, Q]),
            &HeldChanges::new(),
            small,
        );
        assert_eq!(units(&grid), [4, 1, 2, 3], "what ended first makes room");
    }

    #[test]
    fn held_unit_gets_a_pane_before_running_ones() {
        let small = Rect {
            x: 0,
            y: 0,
            width: 80,
            height: 21,
        };
        let mut grid = Grid::default();
        let first = run_view(1, &[R, R, F, R, R, R]);
        grid.refresh(&first, &HeldChanges::new(), small);
        assert_eq!(units(&grid), [0, 1, 2, 3]);
        let held = run_view(2, &[R, R, F, R, H, R]);
        grid.refresh(&held, &HeldChanges::new(), small);
        assert!(units(&grid).contains(&4), "{:?}", units(&grid));
        assert!(units(&grid).contains(&2), "{:?}", units(&grid));
    }

    #[test]
    fn failed_unit_keeps_its_pane_until_seen() {
        let small = Rect {
            x: 0,
            y: 0,
            width: 80,
            height: 21,
        };
        let mut grid = Grid::default();
        grid.refresh(
            &run_view(1, &[R, R, R, R, Q, Q, Q, Q]),
            &HeldChanges::new(),
            small,
        );
        grid.refresh(
            &run_view(2, &[S, F, R, R, R, R, R, R]),
            &HeldChanges::new(),
            small,
        );
        assert_eq!(units(&grid), [4, 1, 2, 3]);
        assert!(grid.has_unseen_failure(&unit(1, F, 10)));
        grid.choose(1);
        let after = run_view(3, &[S, F, R, R, R, R, R, R]);
        grid.refresh(&after, &HeldChanges::new(), small);
        assert!(
            !grid.has_unseen_failure(&after.state.units[1]),
            "it has the focus"
        );
        assert_eq!(units(&grid)[1], 1, "what has the focus is not pulled away");
        grid.choose(0);
        grid.refresh(
            &run_view(4, &[S, F, R, R, R, R, R, R]),
            &HeldChanges::new(),
            small,
        );
        assert_eq!(units(&grid), [4, 5, 2, 3], "then it makes room");
    }

    #[test]
    fn failures_take_at_most_half_of_the_panes() {
        let small = Rect {
            x: 0,
            y: 0,
            width: 80,
            height: 21,
        };
        let mut grid = Grid::default();
        grid.refresh(
            &run_view(1, &[F, F, F, F, R, R, R]),
            &HeldChanges::new(),
            small,
        );
        let shown = units(&grid);
        assert_eq!(shown.iter().filter(|unit| **unit < 4).count(), 2);
        assert!(
            shown.contains(&3) && shown.contains(&2),
            "the newest: {shown:?}"
        );
    }

    #[test]
    fn arrows_go_to_the_pane_that_is_there() {
        let mut grid = Grid::default();
        grid.refresh(&run_view(1, &[R; 9]), &HeldChanges::new(), BODY);
        assert_eq!(grid.panes(BODY).len(), 9);
        for (towards, there) in [
            (PaneDirection::Right, 1),
            (PaneDirection::Down, 4),
            (PaneDirection::Left, 3),
            (PaneDirection::Up, 0),
            (PaneDirection::Up, 0),
            (PaneDirection::Left, 0),
        ] {
            grid.go(towards, BODY);
            assert_eq!(grid.focus, there, "{towards:?}");
        }
        grid.zoom = true;
        grid.go(PaneDirection::Right, BODY);
        assert_eq!(grid.panes(BODY), [(1, BODY)]);
    }

    proptest! {
        #[test]
        fn panes_fill_the_body_and_never_overlap(
            count in 1..=9_usize, width in 36..300_u16, height in 8..100_u16,
        ) {
            let body = Rect { x: 3, y: 2, width, height };
            prop_assume!(count <= capacity(body));
            let areas = arrange(count, body);
            prop_assert_eq!(areas.len(), count);
            prop_assert_eq!(areas.iter().map(|area| area.area()).sum::<u32>(), body.area());
            for (index, area) in areas.iter().enumerate() {
                prop_assert!(area.width >= MIN_PANE.0 && area.height >= MIN_PANE.1, "{area:?}");
                prop_assert!(areas[index + 1..].iter().all(|other| area.intersection(*other).is_empty()));
            }
        }

        #[test]
        fn grid_never_duplicates_or_needlessly_moves_a_unit(
            moments in prop::collection::vec(prop::collection::vec(0..5_u8, 0..14), 1..12),
            keys in prop::collection::vec(0..12_usize, 12),
        ) {
            let statuses = [Q, R, S, F, UnitStatus::Waiting];
            let mut grid = Grid::default();
            for (entries, (moment, key)) in moments.iter().zip(keys).enumerate() {
                let before = units(&grid);
                let statuses: Vec<_> = moment.iter().map(|status| statuses[usize::from(*status)]).collect();
                grid.refresh(&run_view(entries as u64, &statuses), &HeldChanges::new(), BODY);
                let after = units(&grid);
                prop_assert_eq!(after.len(), statuses.len().min(MAX_PANES));
                for (place, unit) in after.iter().enumerate() {
                    prop_assert!(*unit < statuses.len());
                    prop_assert_eq!(after.iter().position(|other| other == unit), Some(place));
                    if let Some(was) = before.iter().position(|other| other == unit) {
                        prop_assert!(was == place || was >= after.len(), "{before:?} {after:?}");
                    }
                }
                prop_assert!(after.is_empty() || grid.focus < after.len());
                grid.choose(key);
            }
        }
    }
}
