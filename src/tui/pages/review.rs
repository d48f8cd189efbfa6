//! The review: changes of a run that wait for a decision, and the diff of the selected file.

use std::sync::Arc;

use ratatui::{
    buffer::Buffer,
    layout::{Position, Rect},
};

use super::inspect;
use crate::{
    action::{ActionScope, UserAction},
    effect::{ExportRequest, ExportTool, ScreenEffect},
    layout::{self, ScreenLayout},
    model::{ScrollList, SharedModel},
    page::{DrawContext, Page, PageKey, ScreenModel, SearchPlace, half_page_rows, rows_to_search},
    playback::Playback,
};
use ingestdeck_core::run::state::{RunView, UnitState};

pub(crate) mod actions;
mod state;
mod view;

use state::ReviewLine;
pub(crate) use state::ReviewPage;

impl Page for ReviewPage {
    fn name(&self) -> &'static str {
        "the review"
    }

    fn hints(&self, _: &SharedModel, run_view: &RunView) -> &'static [UserAction] {
        use UserAction::*;
        let review = run_view.state.open_review();
        if review.is_some_and(|review| review.counts().open == 0) {
            &[
                FinishReview,
                UndoDecision,
                AcceptChange,
                RejectChange,
                SendBack,
                EditChange,
                WhyLine,
                NextPane,
                Back,
            ]
        } else {
            &[
                AcceptChange,
                RejectChange,
                SendBack,
                EditChange,
                AcceptRest,
                FinishReview,
                UndoDecision,
                WhyLine,
                NextPane,
                Back,
            ]
        }
    }

    fn help(&self, _: &SharedModel) -> (&'static str, &'static [UserAction]) {
        use UserAction::*;
        (self.name(), &[ScrollDown, ScrollUp])
    }

    fn keys(&self) -> &'static [PageKey] {
        const KEYS: &[PageKey] = &[
            PageKey::new(UserAction::Open, "open", inspect::inspect),
            PageKey::new(UserAction::Why, "why", actions::why).when(actions::has_changed_line),
        ];
        KEYS
    }

    fn offers(&self, action: UserAction) -> bool {
        use UserAction::*;
        !matches!(
            action,
            // A file of a review is not a moment of the run.
            Bookmark | Play | Compare | NextFailure | PreviousFailure
        )
    }

    fn scope(&self) -> ActionScope {
        ActionScope::Review
    }

    fn list(&self) -> Option<&ScrollList> {
        Some(&self.list)
    }

    fn list_mut(&mut self) -> Option<&mut ScrollList> {
        Some(&mut self.list)
    }

    fn len(&self, _: &SharedModel, _: &RunView) -> usize {
        self.lines.len()
    }

    fn rows_area(&self, _: &SharedModel, body: Rect) -> Rect {
        layout::inner(self.areas(body)[0])
    }

    fn step(&mut self, _: &mut SharedModel, _: &RunView, by: isize) {
        self.move_by(by);
    }

    fn go_to_end(&mut self, _: &mut SharedModel, _: &RunView, last: bool) {
        if self.in_diff {
            self.diff_row = if last { usize::MAX } else { 0 };
        } else {
            self.list.go_to_end(self.lines.len(), last);
        }
    }

    fn half_pages(&mut self, model: &mut SharedModel, _: &RunView, halves: isize) {
        let page = usize::from(model.layout().body_rows());
        let by = half_page_rows(page, halves);
        if self.in_diff {
            self.move_by(by);
        } else {
            self.scroll_diff(by);
        }
    }

    fn scroll(&mut self, _: &mut SharedModel, _: &RunView, by: isize) {
        if self.in_diff {
            self.move_by(by);
        } else {
            self.scroll_diff(by);
        }
    }

    fn next_pane(&mut self, _: &mut SharedModel, _: bool) {
        self.in_diff = !self.in_diff;
    }

    fn back(&mut self, _: &mut SharedModel) -> bool {
        std::mem::take(&mut self.in_diff)
    }

    fn unit<'a>(&self, _: &SharedModel, run_view: &'a RunView) -> Option<&'a UnitState> {
        self.changed_unit(run_view)
    }

    fn copy(&self, _: &SharedModel, run_view: &RunView) -> Vec<ScreenEffect> {
        actions::copy(self, run_view)
    }

    fn export(&self, _: &SharedModel, _: &RunView, _: ExportTool) -> Option<ExportRequest> {
        None
    }

    fn search(&self, model: &SharedModel, run_view: &RunView) -> Option<SearchPlace> {
        rows_to_search(self, model, run_view)
    }

    fn is_match(&self, _: &SharedModel, run_view: &RunView, place: usize, query: &str) -> bool {
        let review = run_view.state.publication.review.as_deref();
        review
            .zip(self.lines.get(place))
            .is_some_and(|(review, line)| line.matches(review, query))
    }

    fn wheel(
        &mut self,
        _: &mut SharedModel,
        _: &RunView,
        plan: &ScreenLayout,
        at: Position,
        by: isize,
    ) {
        if self.areas(plan.body)[1].contains(at) {
            self.scroll_diff(by);
        } else {
            self.move_by(by);
        }
    }

    fn refresh(&mut self, _: &mut SharedModel, run_view: &RunView, plan: &ScreenLayout) {
        self.update(run_view, plan.body);
    }

    fn draw(&self, scene: &DrawContext<'_>, plan: &ScreenLayout, buf: &mut Buffer) {
        view::draw(scene, self, plan.body, buf);
    }
}

/// Opens the page of a review once when the run begins to wait for it.
pub(super) fn show_new_review(model: &mut ScreenModel, run_view: &RunView) {
    let waits = model.connection.accepts_commands() && model.playhead.playback == Playback::Follow;
    let review = run_view.state.open_review();
    let Some(review) = review.filter(|_| waits) else {
        return;
    };
    let shown = model.connection.shown_review.as_ref();
    if !shown.is_some_and(|shown| Arc::ptr_eq(shown, &review.request)) {
        model.connection.shown_review = Some(Arc::clone(&review.request));
        model.close_every::<ReviewPage>();
        model.open(ReviewPage::default());
    }
}
