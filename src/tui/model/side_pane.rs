//! The pane that shows the item selected in the adjacent list.

use ratatui::layout::Rect;

use super::{InputPurpose, SharedModel};
use ingestdeck_core::run::state::AttemptId;

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

impl SharedModel {
    /// True while something lies on the page.
    pub(crate) fn is_covered(&self) -> bool {
        let has_offers = self
            .dialogs
            .line_input
            .as_ref()
            .is_some_and(|typed| typed.purpose == InputPurpose::Command);
        let has_list = has_offers || !self.pending.is_empty();
        self.dialogs.covers_view() || has_list || !self.toasts.list.is_empty()
    }
}
