//! The reading page: one session from its first prompt to its end, with texts, results, changes and sub-agents in place.

use ratatui::{
    buffer::Buffer,
    layout::{Position, Rect},
};

use crate::{
    action::{Availability, Unavailable, UserAction, require},
    cache::{CacheRequest, ScreenCache},
    effect::{ScreenEffect, SearchScope},
    export_request::copy_row,
    layout::{self, ScreenLayout},
    model::{SessionPage, SharedModel},
    moved_rows::MovedRows,
    page::{
        ContentContext, DrawContext, InspectPlace, Page, PageKey, ScreenModel, SearchPlace,
        clicked_row, half_page_rows, selected_attempt,
    },
    playback::Playback,
    reading_order::single_session,
};
use ingestdeck_core::run::state::{
    AttemptState, RowKind, RunView, StreamRow, UnitState, UnitStatus,
};

mod state;
mod view;

pub(crate) use state::ReadingPage;

/// Number of rows among which the first prompt is searched.
const MAX_TITLE_ROWS: usize = 1024;

impl ReadingPage {
    /// The first prompt of a person, which is the title of the page.
    fn first_prompt<'a>(&self, run_view: &'a RunView) -> Option<&'a StreamRow> {
        let unit = run_view.state.unit(&self.unit)?;
        let mut rows = run_view.rows(unit.attempts.first()?.id).iter();
        rows.by_ref()
            .take(MAX_TITLE_ROWS)
            .find(|row| row.kind == RowKind::Prompt && row.depth == 0)
    }
}

impl Page for ReadingPage {
    fn name(&self) -> &'static str {
        "the session"
    }

    fn hints(&self, _: &SharedModel, _: &RunView) -> &'static [UserAction] {
        use UserAction::*;
        &[Back, Open, NextPane, Search, NextFailure, Inspect]
    }

    fn help(&self, _: &SharedModel) -> (&'static str, &'static [UserAction]) {
        use UserAction::*;
        (
            self.name(),
            &[
                Left,
                Right,
                PreviousPane,
                ScrollDown,
                ScrollUp,
                NextMatch,
                PreviousFailure,
                Bookmark,
                Copy,
                CopyName,
                OpenFile,
                Pager,
            ],
        )
    }

    fn keys(&self) -> &'static [PageKey] {
        const KEYS: &[PageKey] = &[
            PageKey::new(UserAction::Back, "units", back).about("the table of units"),
            PageKey::new(UserAction::Open, "unfold", |model, run_view| {
                fold(model, run_view, None)
            })
            .about("unfold or fold the row or the sub-agent"),
            PageKey::new(UserAction::Right, "unfold", |model, run_view| {
                fold(model, run_view, Some(true))
            })
            .about("unfold the row or the sub-agent"),
            PageKey::new(UserAction::Left, "fold", |model, run_view| {
                fold(model, run_view, Some(false))
            })
            .about("fold the row, then its sub-agent"),
            PageKey::new(UserAction::NextPane, "next prompt", go_to_prompt::<true>)
                .about("the next prompt"),
            PageKey::new(
                UserAction::PreviousPane,
                "previous prompt",
                go_to_prompt::<false>,
            )
            .about("the previous prompt"),
        ];
        KEYS
    }

    fn offers(&self, action: UserAction) -> bool {
        use UserAction::*;
        !matches!(
            action,
            Zoom | Counterpart | NextAttempt | PreviousAttempt | Compare
        )
    }

    fn rows_area(&self, _: &SharedModel, body: Rect) -> Rect {
        layout::inner(body)
    }

    fn step(&mut self, _: &mut SharedModel, _: &RunView, by: isize) {
        self.step_lines(by);
    }

    fn go_to_end(&mut self, _: &mut SharedModel, _: &RunView, last: bool) {
        self.go_to(last);
    }

    fn half_pages(&mut self, model: &mut SharedModel, run_view: &RunView, halves: isize) {
        let page = self.page_rows(model, run_view, &model.layout());
        self.page_lines(half_page_rows(page, halves));
    }

    fn scroll(&mut self, _: &mut SharedModel, _: &RunView, by: isize) {
        self.scroll_lines(by);
    }

    fn next_failure(
        &mut self,
        _: &mut SharedModel,
        run_view: &RunView,
        forward: bool,
    ) -> Result<(), &'static str> {
        let place = self.nearest_failure(run_view, forward);
        self.select_place(place.ok_or("no failure here")?);
        Ok(())
    }

    fn unit<'a>(&self, _: &SharedModel, run_view: &'a RunView) -> Option<&'a UnitState> {
        run_view.state.unit(&self.unit)
    }

    fn row<'a>(&self, _: &SharedModel, run_view: &'a RunView) -> Option<(&'a AttemptState, usize)> {
        let (_, _, attempt, row) = self.selected_attempt(run_view)?;
        Some((attempt, row))
    }

    fn inspected(&self, _: &SharedModel, run_view: &RunView) -> Result<InspectPlace, Unavailable> {
        let selected = self.selected_attempt(run_view);
        let (unit, attempt, _, row) = selected.ok_or(Unavailable::NoEffect)?;
        Ok(InspectPlace {
            unit: unit.key.clone(),
            attempt,
            action: Some(row),
        })
    }

    fn copy(&self, model: &SharedModel, run_view: &RunView) -> Vec<ScreenEffect> {
        let selected = self.row(model, run_view);
        let row = selected.and_then(|(attempt, row)| run_view.rows(attempt.id).get(row));
        row.map_or_else(Vec::new, |row| copy_row(run_view, row))
    }

    /// Copies the name in the selected call, or the command that resumes the session.
    fn copy_name(&self, model: &SharedModel, run_view: &RunView) -> Vec<ScreenEffect> {
        let Some((attempt, row)) = self.row(model, run_view) else {
            return Vec::new();
        };
        let row = run_view.rows(attempt.id).get(row);
        let (text, what) = match attempt.setup.session.as_deref() {
            Some(session) => (format!("claude --resume {session}"), "resume line"),
            None => (self.unit.as_str().to_owned(), "unit key"),
        };
        vec![ScreenEffect::CopyName {
            row: row.map(|row| (row.first(), row.block)),
            text,
            what,
        }]
    }

    fn search(&self, _: &SharedModel, run_view: &RunView) -> Option<SearchPlace> {
        let first = run_view.state.unit(&self.unit)?.attempts.first()?;
        let scope = SearchScope::Session(first.id);
        Some(SearchPlace::new(scope, self.cursor.place, self.order.len()))
    }

    fn select_match(&mut self, model: &mut SharedModel, _: &RunView, place: usize) {
        self.select_found(place, model.search.query.clone());
    }

    fn restore(&mut self, before: &dyn Page) {
        if let Some(before) = (before as &dyn std::any::Any).downcast_ref::<Self>() {
            self.clone_from(before);
        }
    }

    fn searched_rows(
        &self,
        model: &SharedModel,
        _: &RunView,
        plan: &ScreenLayout,
    ) -> Option<(Rect, Option<usize>)> {
        Some((self.rows_area(model, plan.body), None))
    }

    fn click(
        &mut self,
        model: &mut SharedModel,
        _: &RunView,
        plan: &ScreenLayout,
        at: Position,
    ) -> bool {
        let row = clicked_row(self.rows_area(model, plan.body), at);
        if let Some(row) = row {
            self.select_screen_row(row);
        }
        row.is_some()
    }

    fn wheel(
        &mut self,
        _: &mut SharedModel,
        _: &RunView,
        _: &ScreenLayout,
        _: Position,
        by: isize,
    ) {
        self.scroll_lines(by);
    }

    fn refresh(&mut self, model: &mut SharedModel, run_view: &RunView, plan: &ScreenLayout) {
        let rows = self.rows_area(model, plan.body);
        let times = model.playhead.moment_columns();
        let width = rows
            .width
            .saturating_sub(u16::try_from(times).unwrap_or(u16::MAX));
        self.update(run_view, (width, usize::from(rows.height)));
    }

    fn move_positions(&mut self, moved: &MovedRows<'_>) {
        self.move_rows(moved);
    }

    fn add_content(&self, scene: &ContentContext<'_>, wants: &mut CacheRequest) {
        let run_view = scene.run_view;
        wants.rows.extend(self.first_prompt(run_view));
        let rows = self.wanted();
        let rows = rows
            .iter()
            .filter_map(|place| self.page_row(run_view, *place));
        for row in rows {
            wants.rows.push(*row.row);
            wants.reading.push(self.key(run_view, &row));
        }
    }

    fn take_layout(&mut self, _: &RunView, cache: &ScreenCache, wants: &CacheRequest) -> bool {
        self.take_texts(&wants.reading, cache);
        true
    }

    fn reads_after_layout(&self) -> bool {
        true
    }

    fn draw(&self, scene: &DrawContext<'_>, plan: &ScreenLayout, buf: &mut Buffer) {
        view::draw(scene, self, plan.body, buf);
    }
}

/// Shows the only session of a record when it is opened. If another one is found in it, shows the table instead, unless
/// the user has moved.
pub(crate) fn show_single_session(model: &mut ScreenModel, run_view: &RunView) {
    let state = &run_view.state;
    match model.connection.session_page {
        SessionPage::Wanted if !model.is_bottom() => {
            model.connection.session_page = SessionPage::Unwanted
        }
        SessionPage::Wanted if !state.units.is_empty() => {
            let is_at_end = model.playhead.playback != Playback::Follow;
            model.connection.session_page = SessionPage::Unwanted;
            if let Some(page) = ReadingPage::of_single_session(run_view, is_at_end) {
                model.connection.session_page = SessionPage::Shown;
                model.open(page);
            }
        }
        SessionPage::Shown => {
            let page = model.top::<ReadingPage>();
            if !page.is_some_and(|page| page.is_automatic) {
                model.connection.session_page = SessionPage::Unwanted;
            } else if single_session(state).is_none() && !state.units.is_empty() {
                model.connection.session_page = SessionPage::Unwanted;
                model.close();
            } else if let Some(failure) = failure(run_view).filter(|_| model.playhead.at_end) {
                if let Some(page) = model.top_mut::<ReadingPage>() {
                    page.go_to(true);
                }
                model.toasts.announce(failure);
            }
        }
        SessionPage::Wanted | SessionPage::Unwanted => {}
    }
}

/// Why the only session of a record failed, and the remedy; `None` if it did not fail.
fn failure(run_view: &RunView) -> Option<String> {
    let state = &run_view.state;
    let unit = state.units.get(single_session(state)?)?;
    let reason = (unit.status == UnitStatus::Failed).then(|| state.failure_reason(unit))?;
    Some(match state.remedy(unit) {
        Some(remedy) => format!("{reason}; {remedy}"),
        None => reason.into_owned(),
    })
}

/// True if the selected unit has something to read.
pub(crate) fn can_read(model: &ScreenModel, run_view: &RunView) -> Availability {
    if model.shows_selected_unit() {
        return selected_attempt(model, run_view).map(drop);
    }
    let unit = model.unit_of_page(run_view);
    require(unit.is_some_and(|unit| !unit.attempts.is_empty()))
}

/// Shows the selected unit as a page to read, or closes that page.
pub(crate) fn toggle(model: &mut ScreenModel, run_view: &RunView) {
    if let Some(unit) = model.unit_of_page(run_view) {
        let is_at_end = model.connection.is_live;
        model.toggle(ReadingPage::new(unit.key.clone(), is_at_end));
    }
}

fn back(model: &mut ScreenModel, _: &RunView) -> Vec<ScreenEffect> {
    model.pending.clear();
    model.close();
    Vec::new()
}

fn fold(model: &mut ScreenModel, run_view: &RunView, unfold: Option<bool>) -> Vec<ScreenEffect> {
    let page = model.top_mut::<ReadingPage>();
    if let Some(Err(reason)) = page.map(|page| page.fold(run_view, unfold)) {
        model.toasts.show(reason);
    }
    Vec::new()
}

/// Selects the next or previous prompt of a person.
fn go_to_prompt<const FORWARD: bool>(
    model: &mut ScreenModel,
    run_view: &RunView,
) -> Vec<ScreenEffect> {
    let Some(page) = model.top_mut::<ReadingPage>() else {
        return Vec::new();
    };
    let prompt = page.nearest(run_view, FORWARD, |row| {
        row.row.kind == RowKind::Prompt && !row.is_sub_agent
    });
    match prompt {
        Some(place) => page.show_prompt(place),
        None => model.toasts.show("no prompt here"),
    }
    Vec::new()
}
