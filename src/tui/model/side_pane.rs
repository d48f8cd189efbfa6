//! The pane that shows what is selected in the list beside it.

use ratatui::layout::Rect;

use super::{OverlayView, Pane, ScreenModel};
use crate::run::state::{AttemptId, RunView};

/// A pane, and what it is to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SidePane {
    /// The list beside it: the actions of that lane, or the table of units.
    pub list: Option<AttemptId>,
    /// Index of what is selected there.
    pub selected: usize,
    /// Where the pane is.
    pub area: Rect,
}

impl SidePane {
    /// True if nothing but the selection is different.
    pub fn is_selection_move_from(&self, before: &Self) -> bool {
        (self.list, self.area) == (before.list, before.area) && self.selected != before.selected
    }
}

impl ScreenModel {
    /// The pane beside the list that the keys move in, if there is one and nothing lies over it.
    pub fn side_pane(&self, story: &RunView) -> Option<SidePane> {
        let covered = self.question.is_some() || self.editor.is_some() || self.amend_form.is_some();
        if covered || !self.toasts.is_empty() {
            return None;
        }
        let plan = self.layout(story);
        match self.views.last() {
            None if self.units_view.focus == Pane::Units => {
                plan.units?;
                Some(SidePane { list: None, selected: self.units_view.unit, area: plan.stream? })
            }
            // What follows the end moves by itself, and perhaps never rests.
            Some(OverlayView::Inspect(view)) if view.is_list() && !view.actions.follow => {
                let areas = view.areas(plan.body);
                areas.actions?;
                Some(SidePane { list: view.lane(story), selected: view.actions.selected, area: areas.detail? })
            }
            _ => None,
        }
    }
}
