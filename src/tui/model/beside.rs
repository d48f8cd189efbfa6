//! The pane that shows what is selected in the list beside it.

use ratatui::layout::Rect;

use super::{Model, Pane, View};
use crate::run::state::{LaneId, Story};

/// A pane, and what it is to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    /// The list beside it: the actions of that lane, or the table of units.
    pub list: Option<LaneId>,
    /// Index of what is selected there.
    pub selected: usize,
    /// Where the pane is.
    pub area: Rect,
}

impl Beside {
    /// True if nothing but the selection is different.
    pub fn is_move_from(&self, before: &Self) -> bool {
        (self.list, self.area) == (before.list, before.area) && self.selected != before.selected
    }
}

impl Model {
    /// The pane beside the list that the keys move in, if there is one and nothing lies over it.
    pub fn beside(&self, story: &Story) -> Option<Beside> {
        let covered = self.question.is_some() || self.editor.is_some() || self.amending.is_some();
        if covered || !self.toasts.is_empty() {
            return None;
        }
        let plan = self.plan(story);
        match self.views.last() {
            None if self.deck.focus == Pane::Units => {
                plan.units?;
                Some(Beside { list: None, selected: self.deck.unit, area: plan.stream? })
            }
            // What follows the end moves by itself, and perhaps never rests.
            Some(View::Inspect(view)) if view.is_list() && !view.actions.follow => {
                let areas = view.areas(plan.body);
                areas.actions?;
                Some(Beside { list: view.lane(story), selected: view.actions.selected, area: areas.detail? })
            }
            _ => None,
        }
    }
}
