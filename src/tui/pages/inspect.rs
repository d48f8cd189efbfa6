//! The inspector: one unit, one attempt at a time, in panels.

use ratatui::{
    buffer::Buffer,
    layout::{Position, Rect},
};

use super::transcript::TranscriptPage;
use crate::{
    action::UserAction,
    cache::{
        CacheRequest, DocumentContent, DocumentRequest, MAX_PROLOGUE_ENTRIES, PanelPage, RowId,
        ScreenCache,
    },
    effect::{ExportRequest, ExportTool, PagerContent, ScreenEffect, SearchScope},
    export_request::{self, copy_row},
    layout::ScreenLayout,
    model::{ScrollList, SharedModel, SidePane, is_problem_end},
    moment,
    moved_rows::MovedRows,
    page::{
        ContentContext, DrawContext, InspectPlace, Page, PageKey, ScreenModel, SearchPlace,
        clicked_row,
    },
    reading_order::RowAddress,
    search_match::nearest,
    widgets::stream,
};
use ingestdeck_core::{
    run::{
        bookmark::Bookmark,
        state::{AttemptState, RunView, UnitState},
    },
    tape::UnitKey,
};

mod state;
pub(super) mod view;

pub(crate) use crate::inspect_panel::InspectPanel;
pub(crate) use state::InspectPage;
use state::InspectSide;

impl Page for InspectPage {
    fn name(&self) -> &'static str {
        "the inspector"
    }

    fn move_positions(&mut self, moved: &MovedRows<'_>) {
        let Some(attempt_id) = self.attempt_id(moved.before) else {
            return;
        };
        let row = self.actions.selected;
        let found = moved.row(RowAddress { attempt_id, row });
        let id = found.map(|found| found.attempt_id);
        let id = id.or_else(|| moved.attempt(attempt_id).map(|(.., id)| id));
        if let Some(found) = found {
            MovedRows::select(&mut self.actions, found.row);
        }
        if let Some((unit, attempt, _)) = id.and_then(|id| moved.named(id)) {
            (self.unit, self.attempt) = (unit, attempt);
        }
    }

    fn hints(&self, _: &SharedModel, _: &RunView) -> &'static [UserAction] {
        use UserAction::*;
        &[
            Back,
            NextPane,
            Retry,
            NextAttempt,
            Counterpart,
            Search,
            NextFailure,
            Copy,
        ]
    }

    fn help(&self, _: &SharedModel) -> (&'static str, &'static [UserAction]) {
        use UserAction::*;
        (
            self.name(),
            &[
                Open,
                Tab,
                PreviousAttempt,
                RetryWith,
                NextMatch,
                PreviousFailure,
                Zoom,
                Bookmark,
                CopyName,
                Compare,
                OpenFile,
                Editor,
                Pager,
            ],
        )
    }

    fn keys(&self) -> &'static [PageKey] {
        const KEYS: &[PageKey] = &[PageKey::new(UserAction::Open, "open", enter)];
        KEYS
    }

    fn step(&mut self, _: &mut SharedModel, run_view: &RunView, by: isize) {
        if self.is_list() {
            let len = self.rows(run_view).len();
            self.select(self.actions.selected.saturating_add_signed(by), len);
        } else {
            self.select_line(self.lines.selected.saturating_add_signed(by));
        }
    }

    fn go_to_end(&mut self, _: &mut SharedModel, run_view: &RunView, last: bool) {
        let len = self.rows(run_view).len();
        match (self.is_list(), last) {
            (true, true) => self.follow(len),
            (true, false) => self.select(0, len),
            (false, true) => self.scroll_to_end = true,
            (false, false) => self.select_line(0),
        }
    }

    fn page_rows(&self, _: &SharedModel, _: &RunView, plan: &ScreenLayout) -> usize {
        let areas = self.areas(plan.body);
        let area = if self.is_list() {
            areas.actions
        } else {
            areas.detail
        };
        area.map_or(1, |area| usize::from(area.height))
    }

    fn scroll(&mut self, _: &mut SharedModel, _: &RunView, by: isize) {
        self.select_line(self.lines.selected.saturating_add_signed(by));
    }

    fn sideways(&mut self, _: &mut SharedModel, _: &RunView, right: bool) {
        if self.panel == InspectPanel::Actions {
            self.side = if right {
                InspectSide::Detail
            } else {
                InspectSide::Actions
            };
        }
    }

    fn next_pane(&mut self, _: &mut SharedModel, _: bool) {
        if self.panel == InspectPanel::Actions {
            self.side = match self.side {
                InspectSide::Actions => InspectSide::Detail,
                InspectSide::Detail => InspectSide::Actions,
            };
        }
    }

    fn zoom(&mut self, _: &mut SharedModel) {
        self.zoom = !self.zoom;
    }

    fn next_failure(
        &mut self,
        _: &mut SharedModel,
        run_view: &RunView,
        forward: bool,
    ) -> Result<(), &'static str> {
        let (rows, entries) = (self.rows(run_view), run_view.state.entries);
        let hit = nearest(rows.len(), self.actions.selected, forward, |row| {
            is_problem_end(rows[row].end(entries))
        });
        let hit = hit.ok_or("no failure here")?;
        let side = self.side;
        self.show_panel(self.attempt, InspectPanel::Actions);
        self.side = side;
        self.select(hit, rows.len());
        Ok(())
    }

    /// Elsewhere than in the actions, moves to the next section.
    fn counterpart(&mut self, _: &RunView) -> Result<(), &'static str> {
        let sections = &self.document.sections;
        let next = sections
            .iter()
            .find(|line| **line > self.lines.selected)
            .or(sections.first());
        let line = *next.ok_or("no content is laid out yet")?;
        if self.panel == InspectPanel::Actions {
            self.side = InspectSide::Detail;
        }
        self.select_line(line);
        // Show the section from its first line.
        self.lines.offset = line;
        Ok(())
    }

    fn back(&mut self, _: &mut SharedModel) -> bool {
        let is_inside = self.panel == InspectPanel::Actions && self.side == InspectSide::Detail;
        if is_inside {
            self.side = InspectSide::Actions;
        }
        is_inside
    }

    fn unit<'a>(&self, _: &SharedModel, run_view: &'a RunView) -> Option<&'a UnitState> {
        run_view.state.unit(&self.unit)
    }

    fn attempt(&self, _: &SharedModel, run_view: &RunView) -> Option<usize> {
        self.shown(run_view).map(|(index, _)| index)
    }

    fn show_attempt(&mut self, _: &mut SharedModel, run_view: &RunView, attempt: usize) {
        if let Some((index, _)) = self.shown(run_view) {
            (self.attempt, self.awaited) = (index, None);
            self.show_panel(attempt, self.panel);
        }
    }

    fn await_attempt(&mut self, unit: &UnitKey, attempts: Option<usize>) {
        if self.unit == *unit {
            self.awaited = attempts;
        }
    }

    fn row<'a>(&self, _: &SharedModel, run_view: &'a RunView) -> Option<(&'a AttemptState, usize)> {
        let (_, attempt) = self.shown(run_view)?;
        (self.panel == InspectPanel::Actions).then_some((attempt, self.actions.selected))
    }

    fn moment(&self, _: &SharedModel, run_view: &RunView) -> Option<Bookmark> {
        moment::of_row(run_view, self.attempt_id(run_view)?, self.actions.selected)
    }

    fn copy(&self, _: &SharedModel, run_view: &RunView) -> Vec<ScreenEffect> {
        if !self.is_list() {
            return vec![ScreenEffect::CopySection {
                line: self.lines.selected,
            }];
        }
        let row = self.rows(run_view).get(self.actions.selected);
        row.map_or_else(Vec::new, |row| copy_row(run_view, row))
    }

    /// Copies the name in the selected call, or the command that resumes the session.
    fn copy_name(&self, _: &SharedModel, run_view: &RunView) -> Vec<ScreenEffect> {
        let row = (self.panel == InspectPanel::Actions)
            .then(|| self.rows(run_view).get(self.actions.selected))
            .flatten();
        let attempt = self.shown(run_view).map(|(_, attempt)| attempt);
        let session = attempt.and_then(|attempt| attempt.setup.session.as_deref());
        let (text, what) = match session {
            Some(session) => (format!("claude --resume {session}"), "resume line"),
            None => (self.unit.as_str().to_owned(), "unit key"),
        };
        vec![ScreenEffect::CopyName {
            row: row.map(|row| (row.first(), row.block)),
            text,
            what,
        }]
    }

    fn export(
        &self,
        model: &SharedModel,
        run_view: &RunView,
        tool: ExportTool,
    ) -> Option<ExportRequest> {
        if self.panel == InspectPanel::Actions {
            let (attempt, row) = self.row(model, run_view)?;
            return export_request::row(run_view, attempt.id, row, tool);
        }
        let document = PagerContent::Document;
        Some(ExportRequest {
            selected: Some(self.lines.selected),
            ..ExportRequest::pager_only(self.panel.label(), document, tool)
        })
    }

    fn search(&self, _: &SharedModel, run_view: &RunView) -> Option<SearchPlace> {
        if self.is_list() {
            let attempt_id = self.attempt_id(run_view)?;
            return Some(SearchPlace::new(
                SearchScope::Rows(attempt_id),
                self.actions.selected,
                run_view.rows(attempt_id).len(),
            ));
        }
        Some(SearchPlace {
            scope: SearchScope::Document,
            document: (self.attempt, self.panel as usize, self.actions.selected),
            selected: self.lines.selected,
            len: self.document.lines,
        })
    }

    fn select_match(&mut self, _: &mut SharedModel, run_view: &RunView, place: usize) {
        if self.is_list() {
            self.select(place, self.rows(run_view).len());
        } else {
            self.match_line = Some(place);
            self.select_line(place);
        }
    }

    fn restore(&mut self, before: &dyn Page) {
        if let Some(before) = (before as &dyn std::any::Any).downcast_ref::<Self>() {
            (self.actions, self.lines) = (before.actions, before.lines);
            (self.match_line, self.scroll_to_end) = (before.match_line, before.scroll_to_end);
            self.toggled_folds.clone_from(&before.toggled_folds);
        }
    }

    fn searched_rows(
        &self,
        _: &SharedModel,
        _: &RunView,
        plan: &ScreenLayout,
    ) -> Option<(Rect, Option<usize>)> {
        let areas = self.areas(plan.body);
        if self.is_list() {
            Some((areas.actions?, Some(self.actions.offset)))
        } else {
            Some((areas.detail?, None))
        }
    }

    fn click(
        &mut self,
        _: &mut SharedModel,
        run_view: &RunView,
        plan: &ScreenLayout,
        at: Position,
    ) -> bool {
        let areas = self.areas(plan.body);
        let len = self.rows(run_view).len();
        if let Some(row) = areas.actions.and_then(|area| clicked_row(area, at)) {
            self.side = InspectSide::Actions;
            if self.actions.offset + row < len {
                self.select(self.actions.offset + row, len);
            }
            return true;
        }
        let row = areas.detail.and_then(|area| clicked_row(area, at));
        if let Some(row) = row {
            self.side = InspectSide::Detail;
            self.select_line(self.lines.offset + row);
        }
        row.is_some()
    }

    fn wheel(
        &mut self,
        _: &mut SharedModel,
        run_view: &RunView,
        plan: &ScreenLayout,
        at: Position,
        by: isize,
    ) {
        self.scroll_at(run_view, plan.body, at, by);
    }

    fn refresh(&mut self, _: &mut SharedModel, run_view: &RunView, plan: &ScreenLayout) {
        self.clamp(run_view, plan.body);
    }

    fn add_content(&self, scene: &ContentContext<'_>, wants: &mut CacheRequest) {
        let run_view = scene.run_view;
        let mut units = run_view.state.units.iter();
        let Some(unit) = units.position(|unit| unit.key == self.unit) else {
            return;
        };
        let Some((index, attempt)) = self.shown(run_view) else {
            return;
        };
        let (rows, areas) = (run_view.rows(attempt.id), self.areas(scene.plan.body));
        if let Some(area) = areas.actions {
            let shown = rows.iter().skip(self.actions.offset);
            wants.rows.extend(shown.take(usize::from(area.height)));
        }
        let mut page = PanelPage {
            unit,
            attempt: index,
            panel: self.panel,
            action: None,
            toggled_folds: self.toggled_folds.clone(),
            version: (0, 0, 0),
            second: None,
        };
        match self.panel {
            InspectPanel::Actions => {
                let Some(row) = rows.get(self.actions.selected) else {
                    return;
                };
                page.action = Some((self.actions.selected, RowId::new(row, run_view)));
            }
            // The prompts are among the first entries.
            InspectPanel::Prompt => {
                page.version.0 = run_view.entries(attempt.id).len().min(MAX_PROLOGUE_ENTRIES)
            }
            InspectPanel::Isolation | InspectPanel::Stderr | InspectPanel::Verdict => {
                wants.summaries.push(attempt.id);
                let version = scene.cache.summary_version(attempt.id);
                let ends = attempt
                    .counts
                    .open_calls
                    .wrapping_mul(2)
                    .wrapping_add(u32::from(attempt.ended_at.is_some()));
                page.version = (rows.len(), ends, version);
                let runs = self.panel == InspectPanel::Verdict && attempt.ended_at.is_none();
                page.second = runs.then_some(run_view.state.clock.0 / 1000);
            }
        }
        if let Some(area) = areas.detail {
            wants.document = Some(DocumentRequest {
                content: DocumentContent::InspectPanel(page),
                width: area.width,
            });
        }
    }

    fn take_layout(
        &mut self,
        run_view: &RunView,
        cache: &ScreenCache,
        wants: &CacheRequest,
    ) -> bool {
        let columns = wants.rows.iter().filter_map(|row| {
            let line = cache.row(RowId::new(row, run_view))?;
            u16::try_from(stream::call_columns(row, line)).ok()
        });
        // The list does not become narrower while the user moves in it.
        self.call_columns = columns.fold(self.call_columns, u16::max);
        self.set_document(cache.requested_document(wants), cache.is_complete());
        true
    }

    fn reads_after_layout(&self) -> bool {
        true
    }

    fn side_pane(
        &self,
        _: &SharedModel,
        run_view: &RunView,
        plan: &ScreenLayout,
    ) -> Option<SidePane> {
        let areas = self.areas(plan.body);
        self.is_list().then_some(())?;
        Some(SidePane {
            list: self.attempt_id(run_view),
            selected: self.actions.selected,
            moves_by_itself: self.actions.follow,
            area: areas.actions.and(areas.detail)?,
        })
    }

    fn draw(&self, scene: &DrawContext<'_>, plan: &ScreenLayout, buf: &mut Buffer) {
        view::draw(scene, self, plan.body, buf);
    }
}

/// Opens the inspector at the selection, or closes it.
pub(crate) fn open(model: &mut ScreenModel, run_view: &RunView) {
    if model.top::<InspectPage>().is_some() {
        model.close();
        return;
    }
    if model.shows_selected_unit() {
        model.units_view.follows_work = false;
    }
    match model.page().inspected(model, run_view) {
        Ok(InspectPlace {
            unit,
            attempt,
            action,
        }) => {
            model.open(InspectPage::new(unit, attempt, action));
        }
        Err(reason) => {
            model.show_reason(reason);
        }
    }
}

/// Opens the inspector, as a key of a page.
pub(crate) fn inspect(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    open(model, run_view);
    Vec::new()
}

/// Opens the selection: an action, or a folded value.
fn enter(model: &mut ScreenModel, _: &RunView) -> Vec<ScreenEffect> {
    if let Some(page) = model.top_mut::<InspectPage>() {
        if page.is_list() {
            page.side = InspectSide::Detail;
        } else if let Some(fold) = page.document.fold
            && !page.toggled_folds.remove(&fold)
        {
            page.toggled_folds.insert(fold);
        }
    }
    Vec::new()
}

/// Selects a panel by its number, from 0. The last one is the wire, a separate page.
pub(crate) fn select_panel(model: &mut ScreenModel, number: usize) {
    if number < InspectPanel::ALL.len() {
        leave_wire(model);
    }
    let Some(page) = model.top_mut::<InspectPage>() else {
        return;
    };
    match InspectPanel::ALL.get(number) {
        Some(panel) => page.show_panel(page.attempt, *panel),
        None if number == InspectPanel::ALL.len() => {
            let wire = TranscriptPage {
                unit: page.unit.clone(),
                attempt: page.attempt,
                list: ScrollList::following(),
                awaited: page.awaited,
            };
            model.open(wire);
        }
        None => {}
    }
}

/// From the wire back to the panel below it, which then shows the same attempt.
pub(crate) fn leave_wire(model: &mut ScreenModel) {
    let Some(wire) = model.top::<TranscriptPage>() else {
        return;
    };
    let (attempt, awaited) = (wire.attempt, wire.awaited);
    if let Some(page) = model.below_mut::<InspectPage>() {
        page.show_panel(attempt, page.panel);
        page.awaited = awaited;
        model.close();
    }
}
