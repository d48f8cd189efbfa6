//! The search of all runs and sessions: its text, and the selected row.

use crate::{
    model::ScrollList,
    record_matches::{OpenSearch, RecordMatch, RecordMatches},
};

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
        // A repeated search first has fewer rows than the one before.
        if is_same_text && found.rows.len() < self.found.rows.len() && !found.progress.is_empty() {
            self.found.progress = found.progress;
            return;
        }
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
        // The text is searched again.
        let again = |entries: &[u64], progress: &str| RecordMatches {
            progress: progress.to_owned(),
            ..found("ab", entries)
        };
        page.replace(again(&[5], "searching"));
        assert_eq!(
            (page.found.rows.len(), page.found.progress.as_str()),
            (2, "searching")
        );
        page.replace(again(&[5], ""));
        assert_eq!(
            (page.found.rows.len(), page.found.progress.as_str()),
            (1, "")
        );
    }
}
