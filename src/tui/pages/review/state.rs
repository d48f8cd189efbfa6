//! State of the review page: its lines, the selection, and the part of the diff on screen.

use std::sync::Arc;

use ratatui::layout::Rect;

use crate::{layout, model::ScrollList, search_match};
use ingestdeck_core::{
    run::{
        review::{ReviewState, parse_hunks},
        state::{RunView, UnitState},
    },
    tape::note::{ReviewDecision, ReviewRequested},
    text,
};

/// Least width of a page that shows list and diff side by side.
const SPLIT_WIDTH: u16 = 100;
/// Least and greatest width of the list then.
const LIST_WIDTH: (u16, u16) = (40, 72);
/// Columns before the text of a row of the diff.
pub(crate) const DIFF_INDENT: usize = 8;
/// Most rows above the diff, with what it rests on.
const BASIS_ROWS: u16 = 2;

/// The page about the changes that wait for a review.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReviewPage {
    pub list: ScrollList,
    pub lines: Vec<ReviewLine>,
    /// First row of the diff on screen.
    pub diff_offset: usize,
    /// True while the keys move in the diff.
    pub in_diff: bool,
    /// Selected row of the diff.
    pub diff_row: usize,
    /// The request that `lines` were made from.
    made_from: Option<Arc<ReviewRequested>>,
    /// The selected line that `diff_offset` belongs to.
    shown: Option<usize>,
}

/// A line of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReviewLine {
    /// The file with this index.
    File(usize),
    /// One of several hunks of a file.
    Hunk {
        /// Index of the file.
        file: usize,
        /// Index of the hunk in the file.
        hunk: usize,
    },
}

impl ReviewLine {
    /// Index of the file that the line belongs to.
    pub(crate) fn file(self) -> usize {
        match self {
            Self::File(file) | Self::Hunk { file, .. } => file,
        }
    }
}

impl ReviewLine {
    /// True if its path or its first change contains the query.
    pub(crate) fn matches(self, review: &ReviewState, query: &str) -> bool {
        let Some(file) = review.request.files.get(self.file()) else {
            return false;
        };
        match self {
            Self::File(_) => search_match::matches(&file.path, query),
            Self::Hunk { hunk, .. } => {
                let hunks = parse_hunks(&file.diff);
                hunks
                    .get(hunk)
                    .is_some_and(|hunk| search_match::matches(&hunk.changed_lines(), query))
            }
        }
    }
}

/// A row of the diff of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiffRow<'a> {
    /// Index of its hunk.
    pub hunk: usize,
    /// `+`, `-` or a blank; `@` for the heading of a hunk; `=` for a line of an edited file.
    pub marker: char,
    /// Number of the line in the new text; for a removed line, in the old text.
    pub line: usize,
    pub text: &'a str,
}

/// The rows of a file on the page: its text if a reviewer edited it, otherwise its diff.
pub(crate) fn shown_rows(review: &ReviewState, file: usize) -> Vec<DiffRow<'_>> {
    let edited = review
        .files
        .get(file)
        .and_then(|file| file.edited.as_deref());
    match (edited, review.request.files.get(file)) {
        (Some(text), _) => {
            let row = |(index, text)| DiffRow {
                hunk: 0,
                marker: '=',
                line: index + 1,
                text,
            };
            text.lines().enumerate().map(row).collect()
        }
        (None, Some(file)) => diff_rows(&file.diff),
        (None, None) => Vec::new(),
    }
}

impl DiffRow<'_> {
    /// True for an added or removed line.
    fn is_change(&self) -> bool {
        matches!(self.marker, '+' | '-')
    }
}

/// The rows of a diff, in order.
pub(crate) fn diff_rows(diff: &str) -> Vec<DiffRow<'_>> {
    let mut rows = Vec::new();
    for (index, hunk) in parse_hunks(diff).iter().enumerate() {
        let (mut old, mut new) = (hunk.old_start, hunk.new_start);
        // No line is left out before a hunk at the top of the file.
        if old + new > 0 {
            rows.push(DiffRow {
                hunk: index,
                marker: '@',
                line: new + 1,
                text: "",
            });
        }
        for (marker, text) in hunk.marked_lines() {
            let line = if marker == '-' { old + 1 } else { new + 1 };
            old += usize::from(matches!(marker, ' ' | '-'));
            new += usize::from(matches!(marker, ' ' | '+'));
            rows.push(DiffRow {
                hunk: index,
                marker,
                line,
                text,
            });
        }
    }
    rows
}

impl ReviewPage {
    /// Updates the page to the run view, and brings selection and offsets into range.
    pub(super) fn update(&mut self, run_view: &RunView, body: Rect) {
        let review = run_view.state.publication.review.as_deref();
        let request = review.map(|review| &review.request);
        let is_same = match (&self.made_from, request) {
            (Some(known), Some(request)) => Arc::ptr_eq(known, request),
            (known, request) => known.is_none() && request.is_none(),
        };
        if !is_same {
            self.made_from = request.map(Arc::clone);
            self.lines = review.map(lines_of).unwrap_or_default();
            self.shown = None;
            if let Some(review) = review {
                // The first line is the last that is looked at, so that it is selected if no other is open.
                self.list.selected = self.lines.len().saturating_sub(1);
                self.select_next_open(review);
                if !self.selected().is_some_and(|line| is_open(review, line)) {
                    self.list.selected = 0;
                }
            }
        }
        let [list, diff] = self.areas(body);
        self.list
            .clamp(self.lines.len(), usize::from(layout::inner(list).height));
        let Some((review, line)) = review.zip(self.selected()) else {
            return;
        };
        let rows = shown_rows(review, line.file());
        let hunk = match line {
            ReviewLine::File(_) => None,
            ReviewLine::Hunk { hunk, .. } => Some(hunk),
        };
        if self.shown != Some(self.list.selected) {
            self.shown = Some(self.list.selected);
            self.diff_offset = rows
                .iter()
                .position(|row| Some(row.hunk) == hunk)
                .unwrap_or_default();
            let is_change =
                |row: &DiffRow<'_>| hunk.is_none_or(|hunk| row.hunk == hunk) && row.is_change();
            self.diff_row = rows.iter().position(is_change).unwrap_or(self.diff_offset);
        }
        self.diff_row = self.diff_row.min(rows.len().saturating_sub(1));
        if self.in_diff {
            self.keep_row_visible(&rows, layout::inner(diff));
        }
        // Long lines are wrapped, so any row may be the first on screen.
        self.diff_offset = self.diff_offset.min(rows.len().saturating_sub(1));
    }

    /// Moves the selection in the list, or in the diff while it has the focus.
    pub(super) fn move_by(&mut self, by: isize) {
        match self.in_diff {
            true => self.diff_row = self.diff_row.saturating_add_signed(by),
            false => self.list.step(by, self.lines.len()),
        }
    }

    /// Scrolls so that the selected row of the diff is in `area`.
    fn keep_row_visible(&mut self, rows: &[DiffRow<'_>], area: Rect) {
        let height = usize::from(area.height.saturating_sub(BASIS_ROWS)).max(1);
        let width = usize::from(area.width).saturating_sub(DIFF_INDENT).max(1);
        let mut used = 0;
        let mut fits = |row: &DiffRow<'_>| {
            used += text::wrap(row.text, width).len().max(1);
            used <= height
        };
        let before = rows.get(..=self.diff_row).unwrap_or_default();
        let count = before
            .iter()
            .rev()
            .map_while(|row| fits(row).then_some(()))
            .count()
            .max(1);
        let first = (self.diff_row + 1).saturating_sub(count);
        self.diff_offset = self.diff_offset.clamp(first, self.diff_row.max(first));
    }

    /// The selected row of the diff: while the list has the focus, the first change of its selection.
    pub(crate) fn row<'a>(&self, review: &'a ReviewState) -> Option<DiffRow<'a>> {
        let rows = shown_rows(review, self.selected()?.file());
        rows.get(self.diff_row)
            .copied()
            .filter(|row| row.marker != '@')
    }

    /// Scrolls the diff by `by` rows.
    pub(crate) fn scroll_diff(&mut self, by: isize) {
        self.diff_offset = self.diff_offset.saturating_add_signed(by);
    }

    /// The list, and the diff of the selected file.
    pub(crate) fn areas(&self, body: Rect) -> [Rect; 2] {
        if body.width >= SPLIT_WIDTH {
            let width = (body.width * 2 / 5).clamp(LIST_WIDTH.0, LIST_WIDTH.1);
            let diff = Rect {
                x: body.x + width,
                width: body.width - width,
                ..body
            };
            return [Rect { width, ..body }, diff];
        }
        let height = (body.height * 2 / 5).max(body.height.min(4));
        let diff = Rect {
            y: body.y + height,
            height: body.height - height,
            ..body
        };
        [Rect { height, ..body }, diff]
    }

    pub(crate) fn selected(&self) -> Option<ReviewLine> {
        self.lines.get(self.list.selected).copied()
    }

    /// The unit that changed the selected file last.
    pub(super) fn changed_unit<'a>(&self, run_view: &'a RunView) -> Option<&'a UnitState> {
        let review = run_view.state.publication.review.as_deref()?;
        let file = review.request.files.get(self.selected()?.file())?;
        let mut units = file.units.iter().rev();
        units.find_map(|key| run_view.state.units.iter().find(|unit| unit.key == *key))
    }

    /// Selects the line of a file.
    pub(crate) fn select_file(&mut self, file: usize) {
        if let Some(line) = self
            .lines
            .iter()
            .position(|line| *line == ReviewLine::File(file))
        {
            self.list.select(line, self.lines.len());
        }
    }

    /// Selects the next line whose change is open; stays where it is if there is none.
    pub(crate) fn select_next_open(&mut self, review: &ReviewState) {
        let (from, len) = (self.list.selected, self.lines.len());
        let after = (from + 1..len).chain(0..from);
        // Files whose hunks are listed are decided by their hunks.
        let is_leaf = |line: &ReviewLine| match line {
            ReviewLine::File(file) => review
                .files
                .get(*file)
                .is_some_and(|file| file.hunks.len() <= 1),
            ReviewLine::Hunk { .. } => true,
        };
        let next = after.into_iter().find(|at| {
            self.lines
                .get(*at)
                .is_some_and(|line| is_leaf(line) && is_open(review, *line))
        });
        if let Some(next) = next {
            self.list.select(next, len);
        }
    }
}

fn is_open(review: &ReviewState, line: ReviewLine) -> bool {
    decision_of(review, line).is_none_or(|decision| decision == ReviewDecision::Open)
}

/// The decision about the change of a line; `None` if the hunks of a file differ.
pub(crate) fn decision_of(review: &ReviewState, line: ReviewLine) -> Option<ReviewDecision> {
    let file = review.files.get(line.file())?;
    match line {
        ReviewLine::File(_) => file.decision(),
        ReviewLine::Hunk { hunk, .. } => Some(file.hunks.get(hunk)?.decision),
    }
}

fn lines_of(review: &ReviewState) -> Vec<ReviewLine> {
    let mut lines = Vec::new();
    for (file, decisions) in review.files.iter().enumerate() {
        lines.push(ReviewLine::File(file));
        if decisions.hunks.len() > 1 {
            lines.extend((0..decisions.hunks.len()).map(|hunk| ReviewLine::Hunk { file, hunk }));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diff_rows_are_numbered_by_their_side() {
        let rows = diff_rows("@@ -2,2 +2,3 @@\n a\n-b\n+c\n+d\n@@ -9,0 +10 @@\n+e\n");
        let rows: Vec<_> = rows
            .iter()
            .map(|row| (row.hunk, row.marker, row.line, row.text))
            .collect();
        let expected = [
            (0, '@', 2, ""),
            (0, ' ', 2, "a"),
            (0, '-', 3, "b"),
            (0, '+', 3, "c"),
            (0, '+', 4, "d"),
            (1, '@', 10, ""),
            (1, '+', 10, "e"),
        ];
        assert_eq!(rows, expected);
        let created: Vec<_> = diff_rows("@@ -0,0 +1 @@\n+a\n")
            .iter()
            .map(|row| (row.marker, row.line))
            .collect();
        assert_eq!(created, [('+', 1)]);
    }
}
