//! The pane that shows the item selected in the adjacent list.

use ratatui::layout::Rect;

use super::{OverlayView, Pane, ScreenModel};
use crate::run::state::{AttemptId, RunView};

/// A pane and the item that it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SidePane {
    /// The adjacent list: the actions of this attempt, or `None` for the table of units.
    pub list: Option<AttemptId>,
    /// Index of the selected item in that list.
    pub selected: usize,
    pub area: Rect,
}

impl SidePane {
    /// True if nothing but the selection differs.
    pub(crate) fn is_selection_move_from(&self, before: &Self) -> bool {
        (self.list, self.area) == (before.list, before.area) && self.selected != before.selected
    }
}

impl ScreenModel {
    /// The pane next to the focused list, if there is one and no view covers it.
    pub(crate) fn side_pane(&self, run_view: &RunView) -> Option<SidePane> {
        if self.dialogs.covers_view() || !self.toasts.list.is_empty() {
            return None;
        }
        let plan = self.layout();
        match self.views.last() {
            None if self.units_view.focus == Pane::Units => {
                plan.units?;
                Some(SidePane { list: None, selected: self.units_view.unit, area: plan.stream? })
            }
            // A list that follows its end moves by itself and may never be idle.
            Some(OverlayView::Inspect(view)) if view.is_list() && !view.actions.follow => {
                let areas = view.areas(plan.body);
                areas.actions?;
                Some(SidePane { list: view.attempt_id(run_view), selected: view.actions.selected, area: areas.detail? })
            }
            _ => None,
        }
    }
}
