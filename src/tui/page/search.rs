//! What a search covers on the page that is shown, and the positions to which a discarded search returns.

use super::{ScreenModel, SearchPlace};
use crate::model::{SearchOrigin, UnitsView};
use ingestdeck_core::run::state::RunView;

impl ScreenModel {
    /// The content that a search covers; `None` if nothing can be searched.
    pub(crate) fn search_place(&self, run_view: &RunView) -> Option<SearchPlace> {
        self.page().search(self, run_view)
    }

    /// The pane that a search of this place covers.
    pub(crate) fn search_pane(&self, place: &SearchPlace) -> crate::model::SearchPane {
        place.pane(self.pages.len())
    }

    /// The text that was searched in the pane that has the focus.
    pub(crate) fn shown_query(&self, run_view: &RunView) -> Option<&str> {
        let pane = self.search.pane?;
        let shown = self.search_place(run_view)?;
        let is_it = self.search_pane(&shown) == pane;
        self.search.query.as_deref().filter(|_| is_it)
    }

    /// Which match is selected and how many the pane has, such as `3/17`. `?` while the number is unknown.
    pub(crate) fn match_summary(&self, run_view: &RunView) -> Option<String> {
        self.shown_query(run_view)?;
        let selected = self.search_place(run_view)?.selected;
        Some(match &self.search.matches {
            Some(matches) => matches.summary(selected),
            None => "?".to_owned(),
        })
    }

    /// Remembers the positions to which a discarded search returns.
    pub(crate) fn begin_search(&mut self, run_view: &RunView) {
        let listing = std::mem::take(&mut self.units_view.listing);
        let units_view = self.units_view.clone();
        self.units_view.listing = listing;
        let selected = self
            .search_place(run_view)
            .map_or(0, |place| place.selected);
        let before = std::mem::take(&mut self.search);
        self.page_before_search = self.pages.last().cloned();
        self.search.origin = Some(Box::new(SearchOrigin {
            selected,
            typed: String::new(),
            before,
            units_view,
        }));
    }

    /// Returns to the positions before the text was typed, and to the search before it.
    pub(crate) fn discard_search(&mut self) {
        if let Some(origin) = self.search.origin.take() {
            self.restore_positions(&origin);
            self.search = origin.before;
        }
    }

    /// Returns to the positions before the text was typed.
    pub(crate) fn restore_positions(&mut self, origin: &SearchOrigin) {
        let listing = std::mem::take(&mut self.units_view.listing);
        self.units_view = UnitsView {
            listing,
            ..origin.units_view.clone()
        };
        if let (Some(page), Some(before)) = (self.pages.last_mut(), &self.page_before_search) {
            page.restore(&**before);
        }
    }
}
