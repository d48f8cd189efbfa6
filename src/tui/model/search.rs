//! State of the search in a pane: the text, its matches, and the position to which a discarded search returns.
//!
//! It must not search; [`crate::actions::find`] does.

use std::borrow::Cow;

use super::UnitsView;
use crate::effect::{SearchRequest, SearchScope};
use ingestdeck_core::text;

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
    /// Number of open pages.
    pub depth: usize,
    /// Attempt, panel and action of a document.
    pub document: (usize, usize, usize),
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
    pub(crate) fn summary(&self, selected: usize) -> String {
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
    pub before: SearchState,
    pub units_view: UnitsView,
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

/// A line from some characters before the first occurrence of `query` on, if that is not within its first `most`
/// characters.
pub(crate) fn around_match<'a>(line: &'a str, query: &str, most: usize) -> Cow<'a, str> {
    let ignores_case = !query.chars().any(char::is_uppercase);
    let begins = |at: usize| {
        let mut rest = line[at..].chars().flat_map(char::to_lowercase);
        query.chars().all(|char| rest.next() == Some(char))
    };
    let found = match ignores_case {
        true => line.char_indices().map(|(at, _)| at).find(|at| begins(*at)),
        false => line.find(query),
    };
    let found = found.unwrap_or_default();
    let end = line[..found].chars().count() + query.chars().count();
    if end <= most {
        return Cow::Borrowed(line);
    }
    let before = line[..found].char_indices().rev();
    let from = before.take(most / 3).last().map_or(found, |(at, _)| at);
    Cow::Owned(format!("…{}", &line[from..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_cut_around_its_match() {
        let line = format!(
            "{}a Refund of it {}",
            "before ".repeat(20),
            "after ".repeat(20)
        );
        let cut = around_match(&line, "refund", 30);
        assert!(cut.starts_with('…') && cut.contains("Refund"), "{cut}");
        assert!(cut.find("Refund").is_some_and(|at| at < 20), "{cut}");
        assert_eq!(around_match("a short one", "short", 30), "a short one");
        assert_eq!(around_match("漢字Ab", "b", 2), "…b");
    }

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
