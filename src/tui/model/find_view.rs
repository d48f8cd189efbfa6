//! State of the page that lists where a text occurs in the whole run.

use super::scroll_list::ScrollList;
use ingestdeck_core::run::state::AttemptId;

/// The page of occurrences of a text, up to the moment that is shown. It grows while the search is running.
#[derive(Clone, Debug, Default)]
pub(crate) struct FindView {
    pub query: String,
    pub list: ScrollList,
    /// Attempts with matching actions, in the order of their units.
    pub hits: Vec<AttemptHits>,
    /// Number of attempts that were searched, and of all; `None` before the first result.
    pub searched: Option<(usize, usize)>,
    /// Why the search ended early.
    pub failure: Option<String>,
}

/// The actions of an attempt that match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptHits {
    /// Index of the unit in the state.
    pub unit: usize,
    /// Index of the attempt in its unit.
    pub attempt: usize,
    pub attempt_id: AttemptId,
    /// Index of the first matching row.
    pub first: usize,
    /// Number of matching rows.
    pub rows: usize,
}

impl FindView {
    pub(crate) fn new(query: String) -> Self {
        Self {
            query,
            ..Self::default()
        }
    }

    /// True once all attempts were searched.
    pub(crate) fn is_complete(&self) -> bool {
        self.searched.is_some_and(|(searched, all)| searched >= all)
    }

    pub(crate) fn selected(&self) -> Option<&AttemptHits> {
        self.hits.get(self.list.selected)
    }
}
