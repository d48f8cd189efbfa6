//! The inspector: the selected unit, attempt, panel and action, and the scroll position in each.
//!
//! It must not read bodies of entries: the shell lays out documents and reports their number of lines.

use std::collections::BTreeSet;

use ratatui::layout::{Position, Rect};

use super::InspectPanel;
use crate::{
    document::{JsonNodeId, LaidOutDocument},
    layout,
    model::ScrollList,
};
use ingestdeck_core::{
    run::state::{AttemptId, AttemptState, RowKind, RowOutcome, RunView, StreamRow},
    tape::UnitKey,
};

/// Rows of the detail pane below which it is not shown next to the actions.
const MIN_DETAIL_ROWS: u16 = 6;
/// Fewest columns of the list of actions next to the details, and the columns of the times in it.
const MIN_LIST_COLUMNS: u16 = 30;
const TIME_COLUMNS: u16 = 6;

/// A view of one unit, one attempt at a time.
#[derive(Clone, Debug)]
pub(crate) struct InspectPage {
    pub unit: UnitKey,
    /// Index of the attempt.
    pub attempt: usize,
    /// The panel that is shown.
    pub panel: InspectPanel,
    /// The side that has the focus while the actions are shown.
    pub side: InspectSide,
    /// True when only the focused side is shown.
    pub zoom: bool,
    /// Scroll position in the actions of the attempt.
    pub actions: ScrollList,
    /// Columns of the widest call that was shown in the list.
    pub call_columns: u16,
    /// Scroll position in the lines of the document.
    pub lines: ScrollList,
    /// Folds that the user opened or closed.
    pub toggled_folds: BTreeSet<JsonNodeId>,
    /// The line of the last match.
    pub match_line: Option<usize>,
    /// Facts about the document that the shell has laid out.
    pub document: DocumentState,
    /// True to scroll to the end of the document once it is laid out.
    pub scroll_to_end: bool,
    /// Number of attempts when the user asked for another one. The view shows it once it has begun.
    pub awaited: Option<usize>,
    /// Scroll positions on other panels and attempts.
    positions: Vec<(usize, InspectPanel, PanelPosition)>,
}

/// A half of the panel with the actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum InspectSide {
    /// The list of actions.
    #[default]
    Actions,
    /// The details of the selected action.
    Detail,
}

/// Facts about the document on screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DocumentState {
    pub lines: usize,
    /// True when the layout is complete.
    pub complete: bool,
    /// First lines of the sections.
    pub sections: Vec<usize>,
    /// The value that the selected line folds.
    pub fold: Option<JsonNodeId>,
}

#[derive(Clone, Debug)]
struct PanelPosition {
    actions: ScrollList,
    lines: ScrollList,
    side: InspectSide,
    toggled_folds: BTreeSet<JsonNodeId>,
}

/// Areas of the parts of the inspector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InspectAreas {
    pub attempts: Rect,
    /// The tabs of the panels.
    pub panels: Rect,
    /// The actions, if they are shown.
    pub actions: Option<Rect>,
    /// The rule between actions and document, if both are shown.
    pub rule: Option<Rect>,
    /// The document, if it is shown.
    pub detail: Option<Rect>,
}

impl InspectPage {
    /// The inspector of an attempt, at an action or at the newest one.
    pub(crate) fn new(unit: UnitKey, attempt: usize, action: Option<usize>) -> Self {
        let actions = action.map_or_else(ScrollList::following, |selected| ScrollList {
            selected,
            seen: usize::MAX,
            ..ScrollList::default()
        });
        Self {
            unit,
            attempt,
            panel: InspectPanel::Actions,
            side: InspectSide::Actions,
            zoom: false,
            actions,
            call_columns: 0,
            lines: ScrollList::default(),
            toggled_folds: BTreeSet::new(),
            match_line: None,
            document: DocumentState::default(),
            scroll_to_end: false,
            awaited: None,
            positions: Vec::new(),
        }
    }

    /// The attempt that is shown, with its index.
    pub(crate) fn shown<'a>(&self, run_view: &'a RunView) -> Option<(usize, &'a AttemptState)> {
        let unit = run_view.state.unit(&self.unit)?;
        let index = self.attempt.min(unit.attempts.len().checked_sub(1)?);
        unit.attempts.get(index).map(|attempt| (index, attempt))
    }

    pub(crate) fn attempt_id(&self, run_view: &RunView) -> Option<AttemptId> {
        self.shown(run_view).map(|(_, attempt)| attempt.id)
    }

    /// Rows of the attempt that is shown.
    pub(super) fn rows<'a>(&self, run_view: &'a RunView) -> &'a [StreamRow] {
        self.attempt_id(run_view)
            .map_or(&[], |attempt_id| run_view.rows(attempt_id))
    }

    /// True when keys move the selection in the list of actions.
    pub(crate) fn is_list(&self) -> bool {
        self.panel == InspectPanel::Actions && self.side == InspectSide::Actions
    }

    /// Shows another panel or attempt, at its last scroll position.
    pub(crate) fn show_panel(&mut self, attempt: usize, panel: InspectPanel) {
        if (attempt, panel) == (self.attempt, self.panel) {
            return;
        }
        let here = (self.attempt, self.panel);
        self.positions
            .retain(|(attempt, panel, _)| (*attempt, *panel) != here);
        let place = PanelPosition {
            actions: self.actions,
            lines: self.lines,
            side: self.side,
            toggled_folds: std::mem::take(&mut self.toggled_folds),
        };
        self.positions.push((here.0, here.1, place));
        let known = self
            .positions
            .iter()
            .find(|(known, of, _)| (*known, *of) == (attempt, panel));
        match known.map(|(_, _, place)| place.clone()) {
            Some(place) => {
                (self.actions, self.lines, self.side, self.toggled_folds) =
                    (place.actions, place.lines, place.side, place.toggled_folds);
            }
            None => {
                if attempt != self.attempt {
                    self.actions = ScrollList::following();
                }
                self.lines = ScrollList::default();
                self.side = InspectSide::Actions;
            }
        }
        (self.attempt, self.panel) = (attempt, panel);
        (self.match_line, self.scroll_to_end) = (None, false);
    }

    /// Selects an action; its document starts at the top.
    pub(crate) fn select(&mut self, action: usize, len: usize) {
        let before = self.actions.selected;
        self.actions.select(action, len);
        if self.actions.selected != before {
            self.restart();
        }
    }

    /// Selects the last action and follows new ones.
    pub(crate) fn follow(&mut self, len: usize) {
        let before = self.actions.selected;
        self.actions.end(len);
        if self.actions.selected != before {
            self.restart();
        }
    }

    fn restart(&mut self) {
        self.lines = ScrollList::default();
        self.toggled_folds.clear();
        (self.match_line, self.scroll_to_end) = (None, false);
    }

    /// Selects a line of the document.
    pub(crate) fn select_line(&mut self, line: usize) {
        self.scroll_to_end = false;
        self.lines.select(line, self.document.lines);
    }

    /// Copies the facts about the document from the shell.
    pub(crate) fn set_document(&mut self, document: Option<&LaidOutDocument>, complete: bool) {
        let Some(document) = document else {
            self.document = DocumentState::default();
            return;
        };
        self.document.lines = document.lines.len();
        self.document.complete = complete;
        if self.document.sections.len() != document.sections.len() || complete {
            self.document.sections = document
                .sections
                .iter()
                .map(|section| section.line)
                .collect();
        }
        self.document.fold = document.folds.get(&self.lines.selected).copied();
    }

    pub(super) fn clamp(&mut self, run_view: &RunView, body: Rect) {
        let attempts = run_view
            .state
            .unit(&self.unit)
            .map_or(0, |unit| unit.attempts.len());
        if self.awaited.is_some_and(|known| attempts > known) {
            self.awaited = None;
            self.show_panel(attempts - 1, self.panel);
        }
        let areas = self.areas(body);
        let len = self
            .attempt_id(run_view)
            .map_or(0, |attempt_id| run_view.rows(attempt_id).len());
        let height = |area: Option<Rect>| area.map_or(1, |area| usize::from(area.height));
        let before = self.actions.selected;
        let rows = self.rows(run_view);
        // A person reads calls, texts, results and failures, not what else is noted about them.
        let is_read = |row: usize| {
            rows.get(row).is_some_and(|row| {
                row.kind != RowKind::Note || row.end(run_view.state.entries) == RowOutcome::Failed
            })
        };
        self.actions
            .clamp_to_last(len, height(areas.actions), is_read);
        if self.actions.selected != before && self.panel == InspectPanel::Actions {
            self.restart();
        }
        if self.scroll_to_end {
            self.lines.selected = self.document.lines.saturating_sub(1);
            self.scroll_to_end = !self.document.complete;
        }
        // Until the document is laid out that far, keep the restored scroll position.
        if self.document.complete || self.document.lines > self.lines.selected {
            self.lines.clamp(self.document.lines, height(areas.detail));
        }
    }

    /// Scrolls the half at a place, and leaves the other one as it is.
    pub(crate) fn scroll_at(&mut self, run_view: &RunView, body: Rect, at: Position, by: isize) {
        let areas = self.areas(body);
        if let Some(area) = areas.detail.filter(|area| area.contains(at)) {
            self.scroll_to_end = false;
            self.lines
                .scroll(by, self.document.lines, usize::from(area.height));
        } else if areas.actions.is_some_and(|area| area.contains(at)) {
            let len = self
                .attempt_id(run_view)
                .map_or(0, |attempt_id| run_view.rows(attempt_id).len());
            self.select(self.actions.selected.saturating_add_signed(by), len);
        }
    }

    /// Areas of the inspector inside the body of the screen.
    pub(crate) fn areas(&self, body: Rect) -> InspectAreas {
        let [attempts, panels, rest] = layout::inspector_areas(body);
        let areas = InspectAreas {
            attempts,
            panels,
            actions: None,
            rule: None,
            detail: None,
        };
        let one = |side: InspectSide| match side {
            InspectSide::Actions => InspectAreas {
                actions: Some(rest),
                ..areas
            },
            InspectSide::Detail => InspectAreas {
                detail: Some(rest),
                ..areas
            },
        };
        if self.panel != InspectPanel::Actions {
            return one(InspectSide::Detail);
        }
        if self.zoom {
            return one(self.side);
        }
        if body.width >= layout::MIN_WIDE_COLUMNS {
            let least = (rest.width / 3).max(MIN_LIST_COLUMNS);
            let left = (self.call_columns + TIME_COLUMNS).clamp(least, rest.width * 3 / 7);
            return InspectAreas {
                actions: Some(Rect {
                    width: left,
                    ..rest
                }),
                rule: Some(Rect {
                    x: rest.x + left,
                    width: 1,
                    ..rest
                }),
                detail: Some(Rect {
                    x: rest.x + left + 2,
                    width: rest.width - left - 2,
                    ..rest
                }),
                ..areas
            };
        }
        let top = (rest.height / 3).max(4);
        if rest.height < top + 1 + MIN_DETAIL_ROWS {
            return one(self.side);
        }
        InspectAreas {
            actions: Some(Rect {
                height: top,
                ..rest
            }),
            rule: Some(Rect {
                y: rest.y + top,
                height: 1,
                ..rest
            }),
            detail: Some(Rect {
                y: rest.y + top + 1,
                height: rest.height - top - 1,
                ..rest
            }),
            ..areas
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn inspector_restores_position_per_panel_and_attempt() {
        let mut inspect = InspectPage::new("u".into(), 1, Some(7));
        inspect.document = DocumentState {
            lines: 50,
            complete: true,
            ..DocumentState::default()
        };
        inspect.select_line(20);
        inspect.show_panel(1, InspectPanel::Prompt);
        assert_eq!((inspect.lines.selected, inspect.actions.selected), (0, 7));
        inspect.select_line(9);
        inspect.show_panel(0, InspectPanel::Actions);
        assert!(inspect.actions.follow, "another attempt has other actions");
        inspect.show_panel(1, InspectPanel::Actions);
        assert_eq!((inspect.actions.selected, inspect.lines.selected), (7, 20));
        inspect.show_panel(1, InspectPanel::Prompt);
        assert_eq!(inspect.lines.selected, 9);
    }

    #[test]
    fn selecting_an_action_scrolls_to_its_top() {
        let mut inspect = InspectPage::new("u".into(), 0, Some(3));
        inspect.document = DocumentState {
            lines: 50,
            complete: true,
            ..DocumentState::default()
        };
        inspect.select_line(20);
        inspect.select(3, 9);
        assert_eq!(inspect.lines.selected, 20);
        inspect.select(4, 9);
        assert_eq!(inspect.lines.selected, 0);
    }

    proptest! {
        #[test]
        fn the_parts_stay_inside_and_apart(width in 0..300_u16, height in 0..100_u16, zoom in any::<bool>(), detail in any::<bool>(), panel in 0..5_usize) {
            let mut inspect = InspectPage::new("u".into(), 0, None);
            inspect.zoom = zoom;
            inspect.side = if detail { InspectSide::Detail } else { InspectSide::Actions };
            inspect.panel = InspectPanel::ALL[panel];
            let body = Rect::new(0, 2, width, height);
            let areas = inspect.areas(body);
            let all = [Some(areas.attempts), Some(areas.panels), areas.actions, areas.rule, areas.detail];
            let all: Vec<_> = all.into_iter().flatten().collect();
            prop_assert!(areas.actions.is_some() || areas.detail.is_some());
            for (index, area) in all.iter().enumerate() {
                prop_assert!(area.is_empty() || area.intersection(body) == *area);
                for other in &all[index + 1..] {
                    prop_assert!(area.intersection(*other).is_empty());
                }
            }
        }
    }
}
