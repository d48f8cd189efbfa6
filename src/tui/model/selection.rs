//! Selecting units, lines of the table and moments, and the filters of the table.

use super::{GroupKey, SharedModel, StatusFilter, TableLine, UnitFilter, UnitListing};
use crate::{effect::ScreenEffect, layout::Pane, playback::Playback};
use ingestdeck_core::run::state::RunView;

impl SharedModel {
    /// Selects a unit of the table.
    pub(crate) fn select_unit(&mut self, unit: usize) {
        let view = &mut self.units_view;
        (view.follows_work, view.heading) = (false, None);
        if unit != view.unit {
            (view.unit, view.attempt) = (unit, None);
        }
    }

    /// Selects a unit by its rank among the listed ones.
    pub(crate) fn select_rank(&mut self, rank: usize) {
        if let Some(unit) = self.units_view.listing.unit(rank) {
            self.select_unit(unit);
        }
    }

    /// Selects a line of the table, or the nearest one that can be selected: a unit or a heading.
    pub(crate) fn select_line(&mut self, line: usize, forward: bool) {
        let listing = &self.units_view.listing;
        let line = line.min(listing.line_count().saturating_sub(1));
        let selectable =
            |line: &usize| !matches!(listing.at(*line), None | Some(TableLine::Connection(_)));
        let after = || (line..listing.line_count()).find(selectable);
        let before = || (0..=line).rev().find(selectable);
        let found = if forward {
            after().or_else(before)
        } else {
            before().or_else(after)
        };
        match found.and_then(|line| listing.at(line)) {
            Some(TableLine::Unit(unit)) => self.select_unit(unit),
            Some(TableLine::Group(group)) => {
                let key: GroupKey = group.key.clone();
                (self.units_view.heading, self.units_view.follows_work) = (Some(key), false);
            }
            Some(TableLine::Connection(_)) | None => {}
        }
    }

    /// Folds or unfolds the selected group; `None` changes it. Returns false if that changes nothing.
    pub(crate) fn fold(&mut self, folded: Option<bool>) -> bool {
        let Some(key) = self.heading().map(|group| group.key.clone()) else {
            return false;
        };
        self.units_view.listing.set_folded(&key, folded)
    }

    /// Pauses and seeks to another moment.
    pub(crate) fn pause_and_seek(&mut self, effect: ScreenEffect) -> Vec<ScreenEffect> {
        self.playhead.playback = Playback::Paused;
        self.units_view.follows_work = false;
        vec![ScreenEffect::SetPlayback(Playback::Paused), effect]
    }

    /// Changes filter or order.
    pub(crate) fn change_listing(
        &mut self,
        run_view: &RunView,
        change: impl FnOnce(&mut UnitListing),
    ) {
        change(&mut self.units_view.listing);
        self.units_view.focus = Pane::Units;
        self.search.matches = None;
        self.units_view.listing.refresh(&run_view.state);
    }

    /// Clears all filters. Returns false if there were none.
    pub(crate) fn clear_filter(&mut self, run_view: &RunView) -> bool {
        let listing = &mut self.units_view.listing;
        let filtered = listing.is_filtered();
        if filtered {
            listing.filter = StatusFilter::All;
            listing.text = UnitFilter::default();
            listing.refresh(&run_view.state);
        }
        filtered
    }
}
