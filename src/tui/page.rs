//! A page of the screen is one type behind one trait: its keys, rows, search, export, mouse, drawing and refresh.
//!
//! [`ScreenModel`] is the stack of open pages and what they share. A page changes itself and the shared part; opening
//! and closing pages is left to the actions, which have the whole stack. The pages are in [`crate::pages`].

use std::{
    any::Any,
    fmt,
    ops::{Deref, DerefMut},
};

use dyn_clone::DynClone;
use ratatui::{
    buffer::Buffer,
    layout::{Position, Rect},
};

use crate::{
    action::{ActionScope, Availability, Unavailable, UserAction},
    cache::{CacheRequest, ScreenCache},
    effect::{ExportRequest, ExportTool, ScreenEffect, SearchScope},
    export_request,
    layout::{self, Pane, ScreenLayout},
    model::{ClickTargets, ScrollList, SearchPane, SharedModel, SidePane, is_problem_end},
    moment,
    moved_rows::MovedRows,
    theme::Theme,
    wide_cells::WideRows,
};
use ingestdeck_core::{
    run::{
        ActivityIndex, SourceInfo,
        bookmark::Bookmark,
        state::{AttemptState, RowKind, RunView, StreamRow, UnitState, UnitStatus},
    },
    tape::UnitKey,
};

mod search;

/// A page of the screen. Methods that a page does not define do nothing, or act on its list.
///
/// `model` is what all pages share, and `run_view` the run at the moment that is shown.
pub(crate) trait Page: Any + fmt::Debug + DynClone + Send + Sync {
    /// Its name, such as "the log".
    fn name(&self) -> &'static str;

    /// Actions to offer as hints, most useful first.
    fn hints(&self, model: &SharedModel, run_view: &RunView) -> &'static [UserAction];

    /// Title of its help, and the actions that it lists after the hints.
    fn help(&self, _model: &SharedModel) -> (&'static str, &'static [UserAction]) {
        (self.name(), &[])
    }

    /// Actions with another meaning on this page.
    fn keys(&self) -> &'static [PageKey] {
        &[]
    }

    /// False for a general action without a meaning here.
    fn offers(&self, _action: UserAction) -> bool {
        true
    }

    /// Where keys are looked up first. [`ActionScope::Live`] if those of a running unit act here.
    fn scope(&self) -> ActionScope {
        ActionScope::Live
    }

    // The list, and moving in it.

    fn list(&self) -> Option<&ScrollList> {
        None
    }

    fn list_mut(&mut self) -> Option<&mut ScrollList> {
        None
    }

    /// Number of rows of the list.
    fn len(&self, _model: &SharedModel, _run_view: &RunView) -> usize {
        0
    }

    /// The area of the rows in the body of the screen.
    fn rows_area(&self, _model: &SharedModel, body: Rect) -> Rect {
        layout::inner(body)
    }

    /// Moves the selection by `by` rows.
    fn step(&mut self, model: &mut SharedModel, run_view: &RunView, by: isize) {
        let len = self.len(model, run_view);
        if let Some(list) = self.list_mut() {
            list.step(by, len);
        }
    }

    /// Selects the first row, or the last one and follows new ones.
    fn go_to_end(&mut self, model: &mut SharedModel, run_view: &RunView, last: bool) {
        let len = self.len(model, run_view);
        if let Some(list) = self.list_mut() {
            list.go_to_end(len, last);
        }
    }

    /// Rows of a screenful.
    fn page_rows(&self, model: &SharedModel, _run_view: &RunView, plan: &ScreenLayout) -> usize {
        usize::from(self.rows_area(model, plan.body).height)
    }

    /// Moves by this number of half pages: -2, -1, 1 or 2.
    fn half_pages(&mut self, model: &mut SharedModel, run_view: &RunView, halves: isize) {
        let page = self.page_rows(model, run_view, &model.layout());
        self.step(model, run_view, half_page_rows(page, halves));
    }

    /// Scrolls what is next to the selection.
    fn scroll(&mut self, model: &mut SharedModel, run_view: &RunView, by: isize) {
        self.step(model, run_view, by);
    }

    /// Moves to the right or left neighbour.
    fn sideways(&mut self, _model: &mut SharedModel, _run_view: &RunView, _right: bool) {}

    fn next_pane(&mut self, _model: &mut SharedModel, _forward: bool) {}

    /// Shows the focused pane alone, or all panes again.
    fn zoom(&mut self, _model: &mut SharedModel) {}

    /// Selects the next or previous failure. Returns what is missing if there is none.
    fn next_failure(
        &mut self,
        _model: &mut SharedModel,
        _run_view: &RunView,
        _forward: bool,
    ) -> Result<(), &'static str> {
        Ok(())
    }

    /// Moves between a call and its result. Returns why not, if there is none.
    fn counterpart(&mut self, _run_view: &RunView) -> Result<(), &'static str> {
        Ok(())
    }

    /// Leaves something inside the page. False if the page itself is to be closed.
    fn back(&mut self, _model: &mut SharedModel) -> bool {
        false
    }

    // What the selection is about.

    /// The unit that commands apply to; `None` if the page is not about one.
    fn unit<'a>(&self, _model: &SharedModel, _run_view: &'a RunView) -> Option<&'a UnitState> {
        None
    }

    /// Index of the attempt that is shown, if another one can be shown.
    fn attempt(&self, _model: &SharedModel, _run_view: &RunView) -> Option<usize> {
        None
    }

    /// Shows the attempt with this index.
    fn show_attempt(&mut self, _model: &mut SharedModel, _run_view: &RunView, _attempt: usize) {}

    /// The user asked for another attempt at `unit`, which has `attempts`: a page of the unit shows it once it has
    /// begun.
    fn await_attempt(&mut self, _unit: &UnitKey, _attempts: Option<usize>) {}

    /// The selected row of an attempt.
    fn row<'a>(
        &self,
        _model: &SharedModel,
        _run_view: &'a RunView,
    ) -> Option<(&'a AttemptState, usize)> {
        None
    }

    /// A bookmark of the selection; `None` if it has no moment. Its time is read when it is saved.
    fn moment(&self, model: &SharedModel, run_view: &RunView) -> Option<Bookmark> {
        let (attempt, row) = self.row(model, run_view)?;
        moment::of_row(run_view, attempt.id, row)
    }

    /// What the inspector shows of the selection.
    fn inspected(
        &self,
        model: &SharedModel,
        run_view: &RunView,
    ) -> Result<InspectPlace, Unavailable> {
        let unit = self.unit(model, run_view);
        let latest = unit.and_then(|unit| Some((unit, unit.latest()?)));
        let (unit, attempt) = latest.ok_or(Unavailable::NoEffect)?;
        Ok(InspectPlace {
            unit: unit.key.clone(),
            attempt: unit.attempts.len() - 1,
            action: initial_action(run_view, attempt),
        })
    }

    fn copy(&self, model: &SharedModel, run_view: &RunView) -> Vec<ScreenEffect> {
        self.copy_name(model, run_view)
    }

    /// Copies what names the selection: the key of the unit.
    fn copy_name(&self, model: &SharedModel, run_view: &RunView) -> Vec<ScreenEffect> {
        let unit = self.unit(model, run_view).map(|unit| ScreenEffect::Copy {
            text: unit.key.as_str().to_owned(),
            what: "unit key".to_owned(),
        });
        unit.into_iter().collect()
    }

    /// What an editor or a pager shows; `None` if nothing is recorded.
    fn export(
        &self,
        model: &SharedModel,
        run_view: &RunView,
        tool: ExportTool,
    ) -> Option<ExportRequest> {
        let latest = self.unit(model, run_view)?.latest()?;
        Some(export_request::attempt(run_view, latest.id, None, tool))
    }

    // The search.

    /// The content that a search covers; `None` if nothing can be searched. A page whose rows can be searched returns
    /// [`rows_to_search`] and defines `is_match`.
    fn search(&self, _model: &SharedModel, _run_view: &RunView) -> Option<SearchPlace> {
        None
    }

    /// Where the content of a page without a search can be searched.
    fn search_elsewhere(&self) -> Option<&'static str> {
        None
    }

    /// True if a place of content in memory contains `query`.
    fn is_match(
        &self,
        _model: &SharedModel,
        _run_view: &RunView,
        _place: usize,
        _query: &str,
    ) -> bool {
        false
    }

    /// Selects a place that the search found.
    fn select_match(&mut self, model: &mut SharedModel, run_view: &RunView, place: usize) {
        let len = self.len(model, run_view);
        if let Some(list) = self.list_mut() {
            list.select(place, len);
        }
    }

    /// Returns to the position that the page had before a search.
    fn restore(&mut self, before: &dyn Page) {
        if let (Some(list), Some(before)) = (self.list_mut(), before.list()) {
            *list = *before;
        }
    }

    /// The rows that a search covers, and the place of the first one if each row is a place.
    fn searched_rows(
        &self,
        model: &SharedModel,
        _run_view: &RunView,
        plan: &ScreenLayout,
    ) -> Option<(Rect, Option<usize>)> {
        let offset = self.list().map(|list| list.offset);
        Some((self.rows_area(model, plan.body), offset))
    }

    // The mouse.

    /// Selects the row at a place. False if there is none, or if a second click has another meaning.
    fn click(
        &mut self,
        model: &mut SharedModel,
        run_view: &RunView,
        plan: &ScreenLayout,
        at: Position,
    ) -> bool {
        let rows = self.rows_area(model, plan.body);
        let row = clicked_row(rows, at);
        let len = self.len(model, run_view);
        if let (Some(row), Some(list)) = (row, self.list_mut())
            && list.offset + row < len
        {
            list.select(list.offset + row, len);
        }
        row.is_some()
    }

    /// Scrolls by `by` rows what is under the pointer.
    fn wheel(
        &mut self,
        model: &mut SharedModel,
        run_view: &RunView,
        _plan: &ScreenLayout,
        _at: Position,
        by: isize,
    ) {
        self.step(model, run_view, by);
    }

    // Painting.

    /// True if it selects a unit whatever the table hides.
    fn ignores_listing(&self) -> bool {
        false
    }

    /// Determines the unit that is selected, before the table is brought into range.
    fn select_unit(&mut self, model: &mut SharedModel, run_view: &RunView) {
        model.restore_selection(run_view);
    }

    /// Updates what depends on the run view or the size.
    fn refresh(&mut self, model: &mut SharedModel, run_view: &RunView, plan: &ScreenLayout) {
        let height = usize::from(self.rows_area(model, plan.body).height);
        let len = self.len(model, run_view);
        if let Some(list) = self.list_mut() {
            list.clamp(len, height);
        }
    }

    /// Keeps its positions on their rows, after the whole source became known.
    fn move_positions(&mut self, _moved: &MovedRows<'_>) {}

    /// Adds the content that the next frame shows.
    fn add_content(&self, _scene: &ContentContext<'_>, _wants: &mut CacheRequest) {}

    /// Takes the size of the documents that the cache has laid out. True if that may change the page.
    fn take_layout(
        &mut self,
        _run_view: &RunView,
        _cache: &ScreenCache,
        _wants: &CacheRequest,
    ) -> bool {
        false
    }

    /// True if what is visible is only known after the layout.
    fn reads_after_layout(&self) -> bool {
        false
    }

    /// The pane that shows the item selected in the adjacent list.
    fn side_pane(
        &self,
        _model: &SharedModel,
        _run_view: &RunView,
        _plan: &ScreenLayout,
    ) -> Option<SidePane> {
        None
    }

    /// Draws another header than that of a run, also while pages are open on this one. False if the page has none.
    fn draw_header(&self, _scene: &DrawContext<'_>, _area: Rect, _buf: &mut Buffer) -> bool {
        false
    }

    fn draw(&self, scene: &DrawContext<'_>, plan: &ScreenLayout, buf: &mut Buffer);
}

dyn_clone::clone_trait_object!(Page);

/// True for actions that mean nothing on a page that is not about a unit or its calls.
pub(crate) fn acts_on_unit(action: UserAction) -> bool {
    use UserAction::*;
    matches!(
        action,
        Retry
            | RetryWith
            | Stop
            | Inspect
            | Compare
            | Bookmark
            | NextFailure
            | PreviousFailure
            | Copy
            | CopyName
    )
}

/// The rows of the list of a page, as the content of a search.
pub(crate) fn rows_to_search(
    page: &impl Page,
    model: &SharedModel,
    run_view: &RunView,
) -> Option<SearchPlace> {
    let (scope, list) = (SearchScope::Page(page.name()), page.list()?);
    let len = page.len(model, run_view);
    Some(SearchPlace::new(scope, list.selected, len))
}

/// The row of `rows` at a place.
pub(crate) fn clicked_row(rows: Rect, at: Position) -> Option<usize> {
    rows.contains(at).then(|| usize::from(at.y - rows.y))
}

/// Rows of this number of half pages, at least one.
pub(crate) fn half_page_rows(page: usize, halves: isize) -> isize {
    let page = isize::try_from(page).unwrap_or(1).max(1);
    let by = if halves.abs() == 1 {
        (page / 2).max(1)
    } else {
        page
    };
    by * halves.signum()
}

/// What an action means on one page, in place of its general meaning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageKey {
    pub action: UserAction,
    /// Short label for the line of hints.
    pub hint: &'static str,
    /// What it does here, for the help; `None` if the general description is true here as well.
    pub description: Option<&'static str>,
    pub available: fn(&ScreenModel, &RunView) -> Availability,
    pub run: fn(&mut ScreenModel, &RunView) -> Vec<ScreenEffect>,
}

impl PageKey {
    pub(crate) const fn new(
        action: UserAction,
        hint: &'static str,
        run: fn(&mut ScreenModel, &RunView) -> Vec<ScreenEffect>,
    ) -> Self {
        Self {
            action,
            hint,
            description: None,
            available: |_, _| Ok(()),
            run,
        }
    }

    pub(crate) const fn when(self, available: fn(&ScreenModel, &RunView) -> Availability) -> Self {
        Self { available, ..self }
    }

    pub(crate) const fn about(self, description: &'static str) -> Self {
        Self {
            description: Some(description),
            ..self
        }
    }
}

/// An action of an attempt.
#[derive(Clone, Debug)]
pub(crate) struct InspectPlace {
    pub unit: UnitKey,
    /// Index of the attempt.
    pub attempt: usize,
    /// Index of the action; `None` for the newest.
    pub action: Option<usize>,
}

/// The content that a search covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SearchPlace {
    pub scope: SearchScope,
    /// Attempt, panel and action of a document.
    pub document: (usize, usize, usize),
    pub selected: usize,
    /// Number of places in the content.
    pub len: usize,
}

impl SearchPlace {
    pub(crate) fn new(scope: SearchScope, selected: usize, len: usize) -> Self {
        Self {
            scope,
            document: (0, 0, 0),
            selected,
            len,
        }
    }

    /// The place in the stack of pages.
    fn pane(&self, depth: usize) -> SearchPane {
        SearchPane {
            scope: self.scope,
            depth,
            document: self.document,
        }
    }
}

/// Everything that determines which content a frame shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContentContext<'a> {
    pub model: &'a SharedModel,
    pub run_view: &'a RunView,
    pub plan: &'a ScreenLayout,
    pub cache: &'a ScreenCache,
}

/// Everything that a draw reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DrawContext<'a> {
    pub model: &'a ScreenModel,
    pub run_view: &'a RunView,
    /// Activity of the run over time.
    pub activity: &'a ActivityIndex,
    /// Loaded bodies of the visible entries.
    pub cache: &'a ScreenCache,
    pub theme: &'a Theme,
    pub source: &'a SourceStatus,
    /// Receives what the mouse can act on.
    pub targets: &'a ClickTargets,
    /// Receives the rows with wide characters; a widget that writes text must add its area.
    pub wide_rows: &'a WideRows,
    /// True while the pane next to the list keeps its previous content. It must not be painted then.
    pub is_side_pane_kept: bool,
}

/// Facts about the source of the entries.
#[derive(Clone, Debug)]
pub(crate) struct SourceStatus {
    pub origin: SourceInfo,
    /// Number of entries read so far.
    pub known_entries: u64,
    /// Bytes read, and total bytes if known.
    pub position: (u64, Option<u64>),
    /// True if no more entries are available now.
    pub at_end: bool,
    /// True while a live run is read up to its present: the moment that is shown is an old one.
    pub is_catching_up: bool,
    /// True if no more entries will follow.
    pub ended: bool,
    /// Why reading failed, if it did.
    pub read_error: Option<String>,
}

impl SourceStatus {
    /// The share of the source that is read, in percent; `None` if all of it is read, or its size is unknown.
    pub(crate) fn percent_read(&self) -> Option<u64> {
        let (read, total) = self.position;
        let total = total.filter(|total| !self.at_end && *total > 0)?;
        Some(read.min(total).saturating_mul(100) / total)
    }
}

/// The state of the screen: the stack of pages, and what they share.
#[derive(Debug)]
pub(crate) struct ScreenModel {
    shared: SharedModel,
    /// The page below all others, which is never closed.
    bottom: Box<dyn Page>,
    /// Pages opened on top of it; the last one is shown.
    pages: Vec<Box<dyn Page>>,
    /// The page that was shown when a text to search for began to be typed.
    page_before_search: Option<Box<dyn Page>>,
    /// The page from which a unit was revealed, until another page opens.
    page_before_reveal: Option<(usize, Box<dyn Page>)>,
}

impl Deref for ScreenModel {
    type Target = SharedModel;

    fn deref(&self) -> &SharedModel {
        &self.shared
    }
}

impl DerefMut for ScreenModel {
    fn deref_mut(&mut self) -> &mut SharedModel {
        &mut self.shared
    }
}

impl ScreenModel {
    pub(crate) fn new(shared: SharedModel, bottom: impl Page) -> Self {
        Self {
            shared,
            bottom: Box::new(bottom),
            pages: Vec::new(),
            page_before_search: None,
            page_before_reveal: None,
        }
    }

    /// The page that is shown.
    pub(crate) fn page(&self) -> &dyn Page {
        &**self.pages.last().unwrap_or(&self.bottom)
    }

    /// The lowest page that was opened, or the one below all others.
    pub(crate) fn lowest(&self) -> &dyn Page {
        &**self.pages.first().unwrap_or(&self.bottom)
    }

    /// The page that is shown, and what pages share.
    pub(crate) fn page_mut(&mut self) -> (&mut dyn Page, &mut SharedModel) {
        let page = self.pages.last_mut().unwrap_or(&mut self.bottom);
        (&mut **page, &mut self.shared)
    }

    /// The unit that a command applies to.
    pub(crate) fn unit_of_page<'a>(&self, run_view: &'a RunView) -> Option<&'a UnitState> {
        self.page().unit(self, run_view)
    }

    /// True if no page covers the one below all others.
    pub(crate) fn is_bottom(&self) -> bool {
        self.pages.is_empty()
    }

    /// The page that is shown, if it is a `P`.
    pub(crate) fn top<P: Page>(&self) -> Option<&P> {
        (self.page() as &dyn Any).downcast_ref()
    }

    pub(crate) fn top_mut<P: Page>(&mut self) -> Option<&mut P> {
        (self.page_mut().0 as &mut dyn Any).downcast_mut()
    }

    /// The topmost open `P`.
    pub(crate) fn find_mut<P: Page>(&mut self) -> Option<&mut P> {
        let pages = self.pages.iter_mut().rev();
        pages
            .filter_map(|page| (&mut **page as &mut dyn Any).downcast_mut())
            .next()
    }

    /// The page just below the one that is shown, if it is a `P`.
    pub(crate) fn below_mut<P: Page>(&mut self) -> Option<&mut P> {
        let below = self.pages.iter_mut().rev().nth(1)?;
        (&mut **below as &mut dyn Any).downcast_mut()
    }

    /// Shows a page on top of the others.
    pub(crate) fn open(&mut self, page: impl Page) {
        self.page_before_reveal = None;
        self.pages.push(Box::new(page));
        self.stack_changed();
    }

    /// Closes the page that is shown. False if it is the one below all others.
    pub(crate) fn close(&mut self) -> bool {
        let is_closed = self.pages.pop().is_some();
        self.stack_changed();
        is_closed
    }

    pub(crate) fn close_all(&mut self) {
        self.pages.clear();
        self.stack_changed();
    }

    /// Closes every `P`, wherever it is in the stack.
    pub(crate) fn close_every<P: Page>(&mut self) {
        self.pages.retain(|page| !(&**page as &dyn Any).is::<P>());
        self.stack_changed();
    }

    /// Closes the topmost `P` and the pages on it. False if no `P` is open.
    pub(crate) fn close_down_to<P: Page>(&mut self) -> bool {
        let place = self
            .pages
            .iter()
            .rposition(|page| (&**page as &dyn Any).is::<P>());
        self.pages.truncate(place.unwrap_or(self.pages.len()));
        self.stack_changed();
        place.is_some()
    }

    /// Shows a page, or closes it if it is shown.
    pub(crate) fn toggle<P: Page>(&mut self, page: P) {
        if self.top::<P>().is_some() {
            self.close();
        } else {
            self.close_every::<P>();
            self.open(page);
        }
    }

    /// Shows why something is not available. False if there is no reason to show.
    pub(crate) fn show_reason(&mut self, reason: Unavailable) -> bool {
        match reason {
            Unavailable::NoEffect => false,
            Unavailable::Because(reason) => {
                self.toasts.show(reason);
                true
            }
        }
    }

    /// True if the selected unit of the table or the grid is shown.
    pub(crate) fn shows_selected_unit(&self) -> bool {
        self.is_bottom() || self.grid.is_shown
    }

    /// Shows a unit on the page below all others, without a filter that hides it.
    pub(crate) fn reveal(&mut self, run_view: &RunView, unit: usize) {
        self.close_all();
        self.select_unit(unit);
        (self.units_view.attempt, self.units_view.focus) = (None, Pane::Units);
        if self.units_view.listing.rank(unit).is_none() {
            self.clear_filter(run_view);
        }
    }

    /// Reveals a unit of the page that is shown, to which [`Self::return_to_page`] returns.
    pub(crate) fn reveal_from_page(&mut self, run_view: &RunView, unit: usize) {
        let page = self.pages.pop();
        self.reveal(run_view, unit);
        self.page_before_reveal = page.map(|page| (unit, page));
    }

    /// Shows the page again from which the selected unit was revealed. False if there is none.
    pub(crate) fn return_to_page(&mut self) -> bool {
        let Some((unit, page)) = self.page_before_reveal.take() else {
            return false;
        };
        let is_selected = self.units_view.unit == unit;
        if is_selected {
            self.pages.push(page);
            self.stack_changed();
        }
        is_selected
    }

    fn stack_changed(&mut self) {
        self.shared.grid.is_shown = self.page().ignores_listing();
    }

    /// The user asked for another attempt at a unit.
    pub(crate) fn await_attempt(&mut self, run_view: &RunView, unit: &UnitKey) {
        let known = run_view
            .state
            .units
            .iter()
            .find(|known| known.key == *unit)
            .map(|unit| unit.attempts.len());
        for page in &mut self.pages {
            page.await_attempt(unit, known);
        }
    }

    /// Updates everything that depends on the run view or the size. Its cost does not depend on the number of stream
    /// rows.
    pub(crate) fn refresh(&mut self, run_view: &RunView) {
        self.shared.refresh_run(run_view);
        let (page, shared) = self.page_mut();
        page.select_unit(shared, run_view);
        let is_held = shared
            .unit(run_view)
            .is_some_and(|unit| unit.status == UnitStatus::Held);
        shared.dialogs.awaits_decision = is_held || page.scope() == ActionScope::Review;
        shared.refresh_table(run_view);
        let plan = shared.layout();
        page.refresh(shared, run_view, &plan);
    }

    /// Keeps all positions on their rows, after the whole source became known.
    pub(crate) fn move_positions(&mut self, moved: &MovedRows<'_>) {
        moved.move_selection(&mut self.shared);
        self.bottom.move_positions(moved);
        let searched = self.page_before_search.iter_mut();
        for page in self.pages.iter_mut().chain(searched) {
            page.move_positions(moved);
        }
        self.refresh(moved.after);
    }

    /// The pane next to the focused list, if there is one and nothing covers it.
    pub(crate) fn side_pane(&self, run_view: &RunView) -> Option<SidePane> {
        let plan = self.layout();
        let is_free = !self.is_covered() && !plan.is_too_small();
        is_free
            .then(|| self.page().side_pane(self, run_view, &plan))
            .flatten()
    }

    /// Content that the next frame shows, if the screen has this layout.
    pub(crate) fn content(
        &self,
        plan: &ScreenLayout,
        run_view: &RunView,
        cache: &ScreenCache,
    ) -> CacheRequest {
        let mut wants = CacheRequest::default();
        let scene = ContentContext {
            model: self,
            run_view,
            plan,
            cache,
        };
        if !plan.is_too_small() {
            self.page().add_content(&scene, &mut wants);
        }
        wants
    }
}

/// The selected unit and the attempt at it that is shown.
///
/// # Errors
/// If there is none.
pub(crate) fn selected_attempt<'a>(
    model: &SharedModel,
    run_view: &'a RunView,
) -> Result<(&'a UnitState, usize, &'a AttemptState), Unavailable> {
    let unit = model
        .unit(run_view)
        .ok_or_else(Unavailable::no_unit_selected)?;
    let (index, attempt) = model
        .attempt(run_view)
        .ok_or_else(|| Unavailable::because(format!("{} has not run yet", unit.key)))?;
    Ok((unit, index, attempt))
}

/// The first failure of a finished attempt, otherwise its first action; the newest action of a running attempt.
pub(crate) fn initial_action(run_view: &RunView, attempt: &AttemptState) -> Option<usize> {
    attempt.ended_at?;
    let (rows, entries) = (run_view.rows(attempt.id), run_view.state.entries);
    let bad = |row: &StreamRow| row.kind == RowKind::Tool && is_problem_end(row.end(entries));
    let telling = |row: &StreamRow| matches!(row.kind, RowKind::Tool | RowKind::Text);
    rows.iter()
        .position(bad)
        .or_else(|| rows.iter().position(telling))
        .or(Some(0))
}
