//! The pane that shows the item selected in the adjacent list.

use ratatui::layout::Rect;

use super::{InputPurpose, OverlayView, Pane, ScreenModel};
use ingestdeck_core::run::state::{AttemptId, RunView};

/// A pane and the item that it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SidePane {
    /// The adjacent list: the actions of this attempt, or `None` for the table of units.
    pub list: Option<AttemptId>,
    /// Index of the selected item in that list.
    pub selected: usize,
    /// The selection moves without a key, and may never settle.
    pub moves_by_itself: bool,
    pub area: Rect,
}

impl SidePane {
    /// True if the user moved the selection, and nothing else differs.
    pub(crate) fn is_selection_move_from(&self, before: &Self) -> bool {
        !self.moves_by_itself
            && (self.list, self.area) == (before.list, before.area)
            && self.selected != before.selected
    }
}

impl ScreenModel {
    /// The pane next to the focused list, if there is one and nothing covers it.
    pub(crate) fn side_pane(&self, run_view: &RunView) -> Option<SidePane> {
        let has_offers = self
            .dialogs
            .line_input
            .as_ref()
            .is_some_and(|typed| typed.purpose == InputPurpose::Command);
        if self.dialogs.covers_view() || has_offers || !self.toasts.list.is_empty() {
            return None;
        }
        let plan = self.layout();
        if plan.is_too_small() {
            return None;
        }
        match self.views.last() {
            None if self.units_view.focus == Pane::Units => {
                let (area, view) = (plan.units.and(plan.stream)?, &self.units_view);
                Some(SidePane {
                    list: None,
                    selected: view.unit,
                    moves_by_itself: view.follows_work,
                    area,
                })
            }
            Some(OverlayView::Inspect(view)) if view.is_list() => {
                let (areas, list) = (view.areas(plan.body), view.attempt_id(run_view));
                let (area, actions) = (areas.actions.and(areas.detail)?, &view.actions);
                Some(SidePane {
                    list,
                    selected: actions.selected,
                    moves_by_itself: actions.follow,
                    area,
                })
            }
            _ => None,
        }
    }
}
