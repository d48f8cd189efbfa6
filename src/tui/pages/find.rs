//! Where a text occurs in the whole run.

use ratatui::buffer::Buffer;

use super::inspect::InspectPage;
use crate::{
    action::{Availability, UserAction, require},
    cache::CacheRequest,
    effect::ScreenEffect,
    layout::ScreenLayout,
    model::{ScrollList, SearchState, SharedModel},
    page::{ContentContext, DrawContext, Page, PageKey, ScreenModel, SearchPlace, rows_to_search},
    search_match::matches,
    text_search::AttemptHits,
};
use ingestdeck_core::run::state::{RunView, UnitState};

mod view;

/// The occurrences of a text up to the moment that is shown. It grows while the search is running.
#[derive(Clone, Debug, Default)]
pub(crate) struct FindPage {
    query: String,
    list: ScrollList,
    /// Attempts with matching actions, in the order of their units.
    hits: Vec<AttemptHits>,
    /// Number of attempts that were searched, and of all; `None` before the first result.
    searched: Option<(usize, usize)>,
    /// Why the search ended early.
    failure: Option<String>,
}

impl FindPage {
    /// True once all attempts were searched.
    fn is_complete(&self) -> bool {
        self.searched.is_some_and(|(searched, all)| searched >= all)
    }

    fn selected(&self) -> Option<&AttemptHits> {
        self.hits.get(self.list.selected)
    }
}

impl Page for FindPage {
    fn name(&self) -> &'static str {
        "the search of the run"
    }

    fn hints(&self, _: &SharedModel, _: &RunView) -> &'static [UserAction] {
        use UserAction::*;
        &[Back, Open, Search]
    }

    fn help(&self, _: &SharedModel) -> (&'static str, &'static [UserAction]) {
        use UserAction::*;
        (self.name(), &[Inspect, NextMatch])
    }

    fn keys(&self) -> &'static [PageKey] {
        const KEYS: &[PageKey] = &[
            PageKey::new(UserAction::Open, "open", open_hits).when(has_hits),
            PageKey::new(UserAction::Inspect, "inspect", open_hits),
        ];
        KEYS
    }

    fn offers(&self, action: UserAction) -> bool {
        use UserAction::*;
        !matches!(action, NextFailure | PreviousFailure)
    }

    fn list(&self) -> Option<&ScrollList> {
        Some(&self.list)
    }

    fn list_mut(&mut self) -> Option<&mut ScrollList> {
        Some(&mut self.list)
    }

    fn len(&self, _: &SharedModel, _: &RunView) -> usize {
        self.hits.len()
    }

    fn unit<'a>(&self, _: &SharedModel, run_view: &'a RunView) -> Option<&'a UnitState> {
        run_view.state.units.get(self.selected()?.unit)
    }

    fn search(&self, model: &SharedModel, run_view: &RunView) -> Option<SearchPlace> {
        rows_to_search(self, model, run_view)
    }

    fn is_match(&self, _: &SharedModel, run_view: &RunView, place: usize, query: &str) -> bool {
        let hits = self.hits.get(place);
        hits.and_then(|hits| run_view.state.units.get(hits.unit))
            .is_some_and(|unit| matches(&unit.key, query))
    }

    fn add_content(&self, scene: &ContentContext<'_>, wants: &mut CacheRequest) {
        let body = usize::from(scene.plan.body_rows());
        let hits = self.hits.iter().skip(self.list.offset).take(body);
        let first = hits.filter_map(|hits| scene.run_view.rows(hits.attempt_id).get(hits.first));
        wants.entries = first.map(|row| row.first()).collect();
    }

    fn draw(&self, scene: &DrawContext<'_>, plan: &ScreenLayout, buf: &mut Buffer) {
        view::draw(scene, self, plan.body, buf);
    }
}

/// Lists where a text occurs in the whole run.
pub(crate) fn find_in_run(model: &mut ScreenModel, query: String) -> Vec<ScreenEffect> {
    model.close_every::<FindPage>();
    model.open(FindPage {
        query: query.clone(),
        ..FindPage::default()
    });
    vec![ScreenEffect::FindInRun(query)]
}

/// Adds what a search of the whole run found meanwhile.
pub(crate) fn add_hits(model: &mut ScreenModel, hits: Vec<AttemptHits>, searched: (usize, usize)) {
    if let Some(page) = model.find_mut::<FindPage>() {
        page.hits.extend(hits);
        page.searched = Some(searched);
    }
}

/// Searches again for what the open page shows.
pub(crate) fn search_again(model: &mut ScreenModel) -> Option<ScreenEffect> {
    let page = model.find_mut::<FindPage>()?;
    page.hits.clear();
    (page.searched, page.failure) = (None, None);
    Some(ScreenEffect::FindInRun(page.query.clone()))
}

/// The search of the whole run ended early.
pub(crate) fn search_of_run_failed(model: &mut ScreenModel, why: &str) {
    if let Some(page) = model.find_mut::<FindPage>() {
        page.failure = Some(why.to_owned());
    }
}

fn has_hits(model: &ScreenModel, _: &RunView) -> Availability {
    let page = model.top::<FindPage>();
    require(page.is_some_and(|page| !page.hits.is_empty()))
}

/// Inspects the first match of the selected attempt; the keys of the search continue from there.
fn open_hits(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let selected = model.top::<FindPage>().and_then(|page| {
        let hits = *page.selected()?;
        Some((page.query.clone(), hits))
    });
    let Some((query, hits)) = selected else {
        return Vec::new();
    };
    if let Some(unit) = run_view.state.units.get(hits.unit) {
        model.search = SearchState {
            query: Some(query),
            ..SearchState::default()
        };
        let unit = unit.key.clone();
        model.open(InspectPage::new(unit, hits.attempt, Some(hits.first)));
    }
    Vec::new()
}
