//! What a search covers on the page that is shown, and the positions to which a discarded search returns.

use std::any::Any;

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
            self.page_before_search = None;
        }
    }

    /// Keeps the position that the search has found.
    pub(crate) fn end_search(&mut self) {
        self.search.origin = None;
        self.page_before_search = None;
    }

    /// Returns to the positions before the text was typed.
    pub(crate) fn restore_positions(&mut self, origin: &SearchOrigin) {
        let listing = std::mem::take(&mut self.units_view.listing);
        self.units_view = UnitsView {
            listing,
            ..origin.units_view.clone()
        };
        // A page that opened meanwhile, such as a review that began, has not been searched.
        if let (Some(page), Some(before)) = (self.pages.last_mut(), &self.page_before_search)
            && (&**page as &dyn Any).type_id() == (&**before as &dyn Any).type_id()
        {
            page.restore(&**before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        key_table::KeyOverrides,
        keymap::Keymap,
        model::SharedModel,
        pages::{breakpoints::BreakpointsPage, log::LogPage, units::UnitsPage},
    };

    #[test]
    fn discarded_search_leaves_a_page_opened_meanwhile() {
        let keymap = Keymap::new(&KeyOverrides::new()).unwrap();
        let mut model = ScreenModel::new(SharedModel::new(keymap, false), UnitsPage);
        let is_following = |model: &ScreenModel| model.page().list().unwrap().follow;
        model.open(LogPage::new());
        assert!(is_following(&model));
        model.begin_search(&RunView::default());
        model.open(BreakpointsPage::default());
        model.discard_search();
        assert!(!is_following(&model), "it has the position of the log");
        assert!(model.page_before_search.is_none());
    }
}
