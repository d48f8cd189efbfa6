//! Where a text occurs in the whole run: in what agents did, and apart from it in prompts and in parts of recorded lines
//! that no row shows.

use ratatui::buffer::Buffer;

use super::inspect::{InspectPage, InspectPanel};
use crate::{
    action::{Availability, UserAction, require},
    cache::CacheRequest,
    effect::ScreenEffect,
    layout::ScreenLayout,
    model::{ScrollList, SearchState, SharedModel},
    page::{ContentContext, DrawContext, Page, PageKey, ScreenModel, SearchPlace, rows_to_search},
    search_match::{FoundRow, MatchPlace, matches},
};
use ingestdeck_core::run::state::{AttemptId, RowKind, RunView, StreamRow, UnitState};

mod view;

/// Number of matches of a group that are listed; the others are counted.
const MAX_LISTED: usize = 10_000;

/// The occurrences of a text up to the moment that is shown. It grows while the search is running.
#[derive(Clone, Debug)]
pub(crate) struct FindPage {
    query: String,
    list: ScrollList,
    /// In the order of the page.
    groups: [FoundGroup; 3],
    /// Number of attempts that were searched, and of all; `None` before the first result.
    searched: Option<(usize, usize)>,
    /// Why the search ended early.
    failure: Option<String>,
}

/// The matches of one kind, in the order of their units.
#[derive(Clone, Debug)]
struct FoundGroup {
    place: MatchPlace,
    /// The heading; empty for the first group.
    title: &'static str,
    rows: Vec<FoundRow>,
    /// Number of all matches, and of the attempts with one.
    counts: (usize, usize),
    last_attempt: Option<AttemptId>,
    is_folded: bool,
}

/// A line of the list.
#[derive(Clone, Copy, Debug)]
enum FoundLine<'a> {
    Match(&'a FoundRow),
    Heading(&'a FoundGroup),
}

impl FoundGroup {
    fn new(place: MatchPlace, title: &'static str) -> Self {
        Self {
            place,
            title,
            rows: Vec::new(),
            counts: (0, 0),
            last_attempt: None,
            is_folded: !title.is_empty(),
        }
    }

    fn has_heading(&self) -> bool {
        !self.title.is_empty() && !self.rows.is_empty()
    }

    /// Number of its lines in the list.
    fn lines(&self) -> usize {
        let rows = if self.is_folded { 0 } else { self.rows.len() };
        usize::from(self.has_heading()) + rows
    }

    fn add(&mut self, row: FoundRow) {
        let last = self.last_attempt.replace(row.attempt_id);
        self.counts.0 += 1;
        self.counts.1 += usize::from(last != Some(row.attempt_id));
        if self.rows.len() < MAX_LISTED {
            self.rows.push(row);
        }
    }
}

impl FindPage {
    fn new(query: String) -> Self {
        use MatchPlace::{Action, HiddenLine, Prompt};
        Self {
            query,
            list: ScrollList::default(),
            groups: [
                FoundGroup::new(Action, ""),
                FoundGroup::new(Prompt, "in prompts"),
                FoundGroup::new(HiddenLine, "in hidden parts of recorded lines"),
            ],
            searched: None,
            failure: None,
        }
    }

    /// True once all attempts were searched.
    fn is_complete(&self) -> bool {
        self.searched.is_some_and(|(searched, all)| searched >= all)
    }

    fn lines(&self) -> usize {
        self.groups.iter().map(FoundGroup::lines).sum()
    }

    /// Adds a match. The selection stays on its line.
    fn add(&mut self, row: FoundRow) {
        let Some(place) = self
            .groups
            .iter()
            .position(|group| group.place == row.place)
        else {
            return;
        };
        let lines = |groups: &[FoundGroup]| groups.iter().map(FoundGroup::lines).sum::<usize>();
        let (before, all) = (lines(&self.groups[..=place]), self.lines());
        self.groups[place].add(row);
        if (before..all).contains(&self.list.selected) {
            let more = self.lines() - all;
            self.list.selected += more;
            self.list.offset += more;
        }
    }

    fn line(&self, mut index: usize) -> Option<FoundLine<'_>> {
        for group in &self.groups {
            let lines = group.lines();
            if index < lines {
                return match index.checked_sub(usize::from(group.has_heading())) {
                    None => Some(FoundLine::Heading(group)),
                    Some(row) => group.rows.get(row).map(FoundLine::Match),
                };
            }
            index -= lines;
        }
        None
    }

    /// The lines that are visible, with their indexes.
    fn visible(&self, height: u16) -> impl Iterator<Item = (usize, FoundLine<'_>)> {
        let first = self.list.offset;
        (first..first + usize::from(height)).map_while(|index| Some((index, self.line(index)?)))
    }

    fn selected(&self) -> Option<FoundLine<'_>> {
        self.line(self.list.selected)
    }

    /// Folds or unfolds the selected heading. False if a match is selected.
    fn fold(&mut self, is_folded: impl Fn(bool) -> bool) -> bool {
        let Some(FoundLine::Heading(FoundGroup { place, .. })) = self.selected() else {
            return false;
        };
        let place = *place;
        for group in self.groups.iter_mut().filter(|group| group.place == place) {
            group.is_folded = is_folded(group.is_folded);
        }
        true
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
            PageKey::new(UserAction::Open, "open", open_line).when(has_lines),
            PageKey::new(UserAction::Inspect, "inspect", open_line),
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
        self.lines()
    }

    fn sideways(&mut self, _: &mut SharedModel, _: &RunView, right: bool) {
        self.fold(|_| !right);
    }

    fn unit<'a>(&self, _: &SharedModel, run_view: &'a RunView) -> Option<&'a UnitState> {
        match self.selected()? {
            FoundLine::Match(found) => run_view.state.units.get(found.unit),
            FoundLine::Heading(_) => None,
        }
    }

    fn search(&self, model: &SharedModel, run_view: &RunView) -> Option<SearchPlace> {
        rows_to_search(self, model, run_view)
    }

    fn is_match(&self, _: &SharedModel, run_view: &RunView, place: usize, query: &str) -> bool {
        let Some(FoundLine::Match(found)) = self.line(place) else {
            return false;
        };
        let unit = run_view.state.units.get(found.unit);
        matches(&found.line, query) || unit.is_some_and(|unit| matches(&unit.key, query))
    }

    fn add_content(&self, scene: &ContentContext<'_>, wants: &mut CacheRequest) {
        let shown = self.visible(scene.plan.body_rows());
        let rows = shown.filter_map(|(_, line)| match line {
            FoundLine::Match(found) => shown_row(scene.run_view, found),
            FoundLine::Heading(_) => None,
        });
        wants.rows.extend(rows);
    }

    fn draw(&self, scene: &DrawContext<'_>, plan: &ScreenLayout, buf: &mut Buffer) {
        view::draw(scene, self, plan.body, buf);
    }
}

/// The row of a match; `None` at a moment before it.
fn shown_row<'a>(run_view: &'a RunView, found: &FoundRow) -> Option<&'a StreamRow> {
    run_view.rows(found.attempt_id).get(found.row)
}

/// Lists where a text occurs in the whole run.
pub(crate) fn find_in_run(model: &mut ScreenModel, query: String) -> Vec<ScreenEffect> {
    model.close_every::<FindPage>();
    model.open(FindPage::new(query.clone()));
    vec![ScreenEffect::FindInRun(query)]
}

/// Adds what a search of the whole run found meanwhile.
pub(crate) fn add_found(model: &mut ScreenModel, rows: Vec<FoundRow>, searched: (usize, usize)) {
    let Some(page) = model.find_mut::<FindPage>() else {
        return;
    };
    rows.into_iter().for_each(|row| page.add(row));
    page.searched = Some(searched);
}

/// Searches again for what the open page shows.
pub(crate) fn search_again(model: &mut ScreenModel) -> Option<ScreenEffect> {
    let page = model.find_mut::<FindPage>()?;
    for group in &mut page.groups {
        group.rows.clear();
        (group.counts, group.last_attempt) = ((0, 0), None);
    }
    (page.searched, page.failure) = (None, None);
    Some(ScreenEffect::FindInRun(page.query.clone()))
}

/// The search of the whole run ended early.
pub(crate) fn search_of_run_failed(model: &mut ScreenModel, why: &str) {
    if let Some(page) = model.find_mut::<FindPage>() {
        page.failure = Some(why.to_owned());
    }
}

fn has_lines(model: &ScreenModel, _: &RunView) -> Availability {
    let page = model.top::<FindPage>();
    require(page.is_some_and(|page| page.lines() > 0))
}

/// Inspects the selected match, and the keys of the search continue from there; folds or unfolds a heading.
fn open_line(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let Some(page) = model.top_mut::<FindPage>() else {
        return Vec::new();
    };
    if page.fold(|is_folded| !is_folded) {
        return Vec::new();
    }
    let Some(FoundLine::Match(found)) = page.selected() else {
        return Vec::new();
    };
    let (found, query) = (found.clone(), page.query.clone());
    let Some(unit) = run_view.state.units.get(found.unit) else {
        return Vec::new();
    };
    model.search = SearchState {
        query: Some(query),
        ..SearchState::default()
    };
    let mut page = InspectPage::new(unit.key.clone(), found.attempt, Some(found.row));
    // The row of a start has no details; its prompts are a panel.
    let kind = shown_row(run_view, &found).map(|row| row.kind);
    if found.place == MatchPlace::Prompt && kind == Some(RowKind::Note) {
        page.show_panel(found.attempt, InspectPanel::Prompt);
    }
    model.open(page);
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selection_stays_on_its_line_while_matches_are_added() {
        let mut page = FindPage::new("a".into());
        let row = |attempt, place| FoundRow {
            unit: 0,
            attempt: 0,
            attempt_id: AttemptId(attempt),
            row: 0,
            place,
            line: String::new(),
        };
        page.add(row(0, MatchPlace::Action));
        page.add(row(0, MatchPlace::Prompt));
        page.list.selected = 1;
        for attempt in [0, 1, 1] {
            page.add(row(attempt, MatchPlace::Action));
        }
        page.add(row(2, MatchPlace::HiddenLine));
        assert!(
            matches!(page.selected(), Some(FoundLine::Heading(group)) if group.place == MatchPlace::Prompt)
        );
        assert_eq!((page.list.selected, page.groups[0].counts), (4, (4, 2)));
        page.list.selected = 0;
        page.add(row(3, MatchPlace::Action));
        assert_eq!(page.list.selected, 0);
    }
}
