//! State of the search in a pane: the text, its matches, and the position to which a discarded search returns.
//!
//! It must not search; [`crate::actions::find`] does.

use super::{InspectView, OverlayView, ScreenModel, UnitsView};
use crate::{
    effect::{SearchRequest, SearchScope},
    layout::Pane,
};
use ingestdeck_core::{run::state::RunView, text};

/// Number of matches after which counting ends.
pub(crate) const MAX_MATCHES: usize = 1000;

#[derive(Clone, Debug, Default)]
pub(crate) struct SearchState {
    /// The text that `n` searches again.
    pub query: Option<String>,
    /// True until the first match is found.
    pub is_running: bool,
    /// The pane that was searched last.
    pub pane: Option<SearchPane>,
    /// Matches in that pane; `None` while they are counted.
    pub matches: Option<PaneMatches>,
    /// Number of entries of the run when the search began.
    pub entries: u64,
    /// What to return to if the text is discarded; `None` unless it is being typed.
    pub origin: Option<Box<SearchOrigin>>,
}

impl SearchState {
    /// True while the result of this search is wanted.
    pub(crate) fn awaits(&self, request: &SearchRequest) -> bool {
        let is_same = self.query.as_ref() == Some(&request.query)
            && self.pane.map(|pane| pane.scope) == Some(request.scope);
        is_same && (self.is_running || self.matches.is_none())
    }
}

/// The content that a search covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SearchPane {
    pub scope: SearchScope,
    /// Number of open views.
    depth: usize,
    /// Attempt, panel and action of a document.
    document: (usize, usize, usize),
}

/// The places that match, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PaneMatches {
    /// In ascending order, at most [`MAX_MATCHES`].
    pub places: Vec<usize>,
    /// Number of places at the start of the pane that were searched.
    pub searched: usize,
    /// True if the whole pane was searched.
    pub is_complete: bool,
}

impl PaneMatches {
    /// Tries places in memory.
    pub(crate) fn collect(len: usize, passes: impl Fn(usize) -> bool) -> Self {
        let mut places: Vec<usize> = (0..len)
            .filter(|place| passes(*place))
            .take(MAX_MATCHES + 1)
            .collect();
        let is_complete = places.len() <= MAX_MATCHES;
        places.truncate(MAX_MATCHES);
        let searched = if is_complete {
            len
        } else {
            places.last().map_or(0, |last| last + 1)
        };
        Self {
            places,
            searched,
            is_complete,
        }
    }

    /// True if the place matches, and that is known.
    pub(crate) fn contains(&self, place: usize) -> bool {
        self.places.binary_search(&place).is_ok()
    }

    /// Which match is selected, and how many there are.
    fn summary(&self, selected: usize) -> String {
        let more = if self.is_complete { "" } else { "+" };
        match self.places.binary_search(&selected) {
            _ if self.places.is_empty() => "no match".to_owned(),
            Ok(index) if selected < self.searched => {
                format!("{}/{}{more}", index + 1, self.places.len())
            }
            Err(_) if self.is_complete => match self.places.len() {
                1 => "1 match".to_owned(),
                len => format!("{len} matches"),
            },
            Ok(_) | Err(_) => format!("?/{}{more}", self.places.len()),
        }
    }
}

/// The positions of the screen before a text to search for is typed, and the search before it.
#[derive(Clone, Debug)]
pub(crate) struct SearchOrigin {
    /// The selected place in the pane.
    pub selected: usize,
    /// The text for which the pane was searched.
    pub typed: String,
    before: SearchState,
    units_view: UnitsView,
    view: Option<OverlayView>,
}

impl ScreenModel {
    /// The content that a search covers, its selected place and number of places; `None` if nothing can be searched.
    pub(crate) fn search_pane(&self, run_view: &RunView) -> Option<(SearchPane, usize, usize)> {
        let deck = &self.units_view;
        let mut document = (0, 0, 0);
        let (scope, selected, len) = match self.views.last() {
            Some(
                OverlayView::Help(_)
                | OverlayView::Breakpoints(_)
                | OverlayView::Bookmarks(_)
                | OverlayView::Grid
                | OverlayView::Compare(_)
                | OverlayView::Home(_),
            ) => return None,
            Some(OverlayView::Lanes(view)) => (
                SearchScope::Lanes,
                view.selected_index(),
                view.lanes.attempts.len(),
            ),
            Some(OverlayView::Review(view)) => {
                (SearchScope::Changes, view.list.selected, view.lines.len())
            }
            Some(OverlayView::Artifacts(view)) => match &view.document {
                Some(shown) => {
                    document.2 = view.list.selected;
                    (
                        SearchScope::Document,
                        shown.match_line.unwrap_or(shown.scroll),
                        shown.lines,
                    )
                }
                None => (
                    SearchScope::Artifacts,
                    view.list.selected,
                    view.listed.len(),
                ),
            },
            Some(OverlayView::Find(view)) => {
                (SearchScope::Hits, view.list.selected, view.hits.len())
            }
            Some(OverlayView::Log(list)) => (
                SearchScope::Messages,
                list.selected,
                run_view.messages().len(),
            ),
            Some(OverlayView::FailureGroups(view)) => (
                SearchScope::FailureGroups,
                view.list.selected,
                view.lines.len(),
            ),
            Some(OverlayView::Transcript(view)) => {
                let attempt_id = view.attempt_id(run_view)?;
                (
                    SearchScope::Entries(attempt_id),
                    view.list.selected,
                    run_view.entries(attempt_id).len(),
                )
            }
            Some(OverlayView::Inspect(view)) if view.is_list() => {
                let attempt_id = view.attempt_id(run_view)?;
                (
                    SearchScope::Rows(attempt_id),
                    view.actions.selected,
                    run_view.rows(attempt_id).len(),
                )
            }
            Some(OverlayView::Inspect(view)) => {
                document = (view.attempt, view.panel as usize, view.actions.selected);
                (
                    SearchScope::Document,
                    view.lines.selected,
                    view.document.lines,
                )
            }
            Some(OverlayView::Entry(view)) => {
                document.2 = view.entry;
                (
                    SearchScope::Document,
                    view.match_line.unwrap_or(view.scroll),
                    view.lines,
                )
            }
            None if deck.focus == Pane::Units => (
                SearchScope::Units,
                self.unit_rank(),
                deck.listing.listed_count(),
            ),
            None => {
                let attempt_id = deck.attempt_id?;
                (
                    SearchScope::Rows(attempt_id),
                    deck.stream.selected,
                    run_view.rows(attempt_id).len(),
                )
            }
        };
        Some((
            SearchPane {
                scope,
                depth: self.views.len(),
                document,
            },
            selected,
            len,
        ))
    }

    /// The text that was searched in the pane that has the focus.
    pub(crate) fn shown_query(&self, run_view: &RunView) -> Option<&str> {
        let pane = self.search.pane?;
        let (shown, ..) = self.search_pane(run_view)?;
        self.search.query.as_deref().filter(|_| shown == pane)
    }

    /// Which match is selected and how many the pane has, such as `3/17`. `?` while the number is unknown.
    pub(crate) fn match_summary(&self, run_view: &RunView) -> Option<String> {
        self.shown_query(run_view)?;
        let (_, selected, _) = self.search_pane(run_view)?;
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
            .search_pane(run_view)
            .map_or(0, |(_, selected, _)| selected);
        let before = std::mem::take(&mut self.search);
        let view = self.views.last().cloned();
        self.search.origin = Some(Box::new(SearchOrigin {
            selected,
            typed: String::new(),
            before,
            units_view,
            view,
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
        match (self.views.last_mut(), &origin.view) {
            (Some(OverlayView::Transcript(view)), Some(OverlayView::Transcript(before))) => {
                view.list = before.list
            }
            (Some(OverlayView::Entry(view)), Some(OverlayView::Entry(before))) => {
                (view.scroll, view.match_line) = (before.scroll, before.match_line);
            }
            (Some(OverlayView::Inspect(view)), Some(OverlayView::Inspect(before))) => {
                restore_inspector(view, before)
            }
            (Some(OverlayView::Log(list)), Some(OverlayView::Log(before))) => *list = *before,
            (Some(OverlayView::FailureGroups(view)), Some(OverlayView::FailureGroups(before))) => {
                view.list = before.list;
            }
            (Some(OverlayView::Artifacts(view)), Some(OverlayView::Artifacts(before))) => {
                (view.list, view.document) = (before.list, before.document);
            }
            (Some(OverlayView::Find(view)), Some(OverlayView::Find(before))) => {
                view.list = before.list
            }
            (Some(OverlayView::Lanes(view)), Some(OverlayView::Lanes(before))) => {
                view.select(before.selected_index())
            }
            _ => {}
        }
    }
}

fn restore_inspector(view: &mut InspectView, before: &InspectView) {
    (view.actions, view.lines, view.match_line) = (before.actions, before.lines, before.match_line);
    (view.scroll_to_end, view.toggled_folds) = (before.scroll_to_end, before.toggled_folds.clone());
}

/// Ranges of `cells` that contain `query`, which is compared with or without case as in a search.
pub(crate) fn matching_cells(cells: &[&str], query: &str) -> Vec<std::ops::Range<usize>> {
    let ignores_case = !query.chars().any(char::is_uppercase);
    let query = if ignores_case {
        query.to_lowercase()
    } else {
        query.to_owned()
    };
    let (mut row, mut starts) = (String::new(), Vec::new());
    for cell in cells {
        starts.push(row.len());
        match ignores_case {
            true => row.push_str(&cell.to_lowercase()),
            false => row.push_str(cell),
        }
    }
    if query.is_empty() || text::width(&query) > cells.len() {
        return Vec::new();
    }
    let cell_at = |byte: usize| starts.partition_point(|start| *start <= byte) - 1;
    row.match_indices(&query)
        .map(|(at, found)| cell_at(at)..cell_at(at + found.len() - 1) + 1)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_names_the_selected_match_and_the_total() {
        let matches = PaneMatches::collect(40, |place| place % 10 == 3);
        assert_eq!(matches.summary(23), "3/4");
        assert_eq!(matches.summary(24), "4 matches");
        assert_eq!(
            PaneMatches::collect(9, |place| place == 1).summary(0),
            "1 match"
        );
        assert_eq!(PaneMatches::collect(9, |_| false).summary(0), "no match");
        let many = PaneMatches::collect(5000, |place| place % 2 == 0);
        assert_eq!(
            (many.summary(4).as_str(), many.summary(3000).as_str()),
            ("3/1000+", "?/1000+")
        );
        assert!(many.contains(4) && !many.contains(5));
        assert!(PaneMatches::collect(MAX_MATCHES, |_| true).is_complete);
    }

    #[test]
    fn matching_cells_ignore_case_like_the_search() {
        let cells = ["A", "b", " ", "漢", "", "a", "B"];
        assert_eq!(matching_cells(&cells, "ab"), [0..2, 5..7]);
        assert_eq!(matching_cells(&cells, "aB").first(), Some(&(5..7)));
        assert_eq!(matching_cells(&cells, "漢a").first(), Some(&(3..6)));
        assert!(matching_cells(&cells, "").is_empty() && matching_cells(&["x"], "xx").is_empty());
    }
}
