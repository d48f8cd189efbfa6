//! What the search of all runs and sessions found. The caller searches; this reads no file.

use std::path::PathBuf;

use tokio::sync::{mpsc, watch};

use crate::model::ScrollList;

/// The search of all runs and sessions, which another thread does.
#[derive(Clone, Debug)]
pub struct RecordSearchChannel {
    /// Receives each text as it is typed.
    pub queries: mpsc::UnboundedSender<String>,
    /// What is found for the last text.
    pub found: watch::Receiver<RecordMatches>,
    /// What is shown first: the search from which a record was opened.
    pub reopened: Option<Box<OpenSearch>>,
}

/// What was found so far, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordMatches {
    /// The text that was searched, as it was typed.
    pub query: String,
    /// What an entry must contain, for the highlights.
    pub texts: Vec<String>,
    pub rows: Vec<RecordMatch>,
    /// True if there are more than those of `rows`.
    pub has_more: bool,
    /// What is done now; empty once everything is searched.
    pub progress: String,
    /// Why nothing is found, with a remedy; empty if the search works.
    pub problem: String,
    /// What is not searched, one sentence each.
    pub left_out: Vec<String>,
}

/// An entry that contains the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordMatch {
    /// The id of its run; empty for a session.
    pub run: String,
    /// The file of its session; empty for a run.
    pub session: PathBuf,
    pub entry: u64,
    /// The short id of its run or session.
    pub short: String,
    /// Its unit and attempt; empty if it belongs to none.
    pub unit: String,
    /// `call`, `result`, `answer` or another kind.
    pub kind: String,
    /// The tool of a call or a result; empty for others.
    pub tool: String,
    pub has_failed: bool,
    /// Time since it was written.
    pub age: String,
    /// The found text, and what is around it.
    pub text: String,
}

impl RecordMatch {
    /// True for an entry of a session file.
    pub(super) fn is_of_session(&self) -> bool {
        self.run.is_empty()
    }
}

/// A search and the place in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenSearch {
    pub found: RecordMatches,
    /// Index of the selected row.
    pub selected: usize,
}

/// The state of the page.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordSearchPage {
    /// The text whose matches are wanted. Those of an earlier text are shown until the first of its matches is known.
    pub query: String,
    pub found: RecordMatches,
    pub list: ScrollList,
}

impl RecordSearchPage {
    pub(crate) fn reopened(search: OpenSearch) -> Self {
        let mut page = Self {
            query: search.found.query.clone(),
            found: search.found,
            ..Self::default()
        };
        page.list.select(search.selected, page.found.rows.len());
        page
    }

    /// Shows what was found meanwhile. The selection stays on its row while those of the same text change.
    pub(crate) fn replace(&mut self, found: RecordMatches) {
        if found.query != self.query {
            return;
        }
        let is_same_text = self.found.query == found.query;
        let selected = self
            .selected()
            .filter(|_| is_same_text && self.list.selected > 0);
        let place = |row: &RecordMatch| (row.run.clone(), row.session.clone(), row.entry);
        let selected = selected.map(place);
        let row = selected.and_then(|selected| {
            let mut rows = found.rows.iter();
            rows.position(|row| place(row) == selected)
        });
        self.found = found;
        self.list.select(row.unwrap_or(0), self.found.rows.len());
    }

    pub(crate) fn selected(&self) -> Option<&RecordMatch> {
        self.found.rows.get(self.list.selected)
    }

    /// True while no answer to the last text has arrived.
    pub(crate) fn is_outdated(&self) -> bool {
        self.found.query != self.query
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(query: &str, entries: &[u64]) -> RecordMatches {
        let row = |entry: &u64| RecordMatch {
            entry: *entry,
            ..RecordMatch::default()
        };
        RecordMatches {
            query: query.to_owned(),
            rows: entries.iter().map(row).collect(),
            ..RecordMatches::default()
        }
    }

    #[test]
    fn selection_stays_on_its_row_until_the_text_changes() {
        let mut page = RecordSearchPage {
            query: "a".to_owned(),
            ..RecordSearchPage::default()
        };
        page.replace(found("a", &[3, 2]));
        page.list.select(1, 2);
        page.replace(found("a", &[9, 3, 2]));
        assert_eq!(page.selected().map(|row| row.entry), Some(2));
        // The answer to an earlier text arrives late.
        page.query = "ab".to_owned();
        page.replace(found("a", &[7]));
        assert!(page.is_outdated() && page.found.rows.len() == 3);
        page.replace(found("ab", &[5, 2]));
        assert_eq!(page.selected().map(|row| row.entry), Some(5));
    }
}
