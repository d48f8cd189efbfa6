//! One line of the wire, laid out for reading.

use ratatui::{
    buffer::Buffer,
    layout::{Position, Rect},
};

use crate::{
    action::{Unavailable, UserAction},
    cache::{CacheRequest, DocumentContent, DocumentRequest, ScreenCache},
    effect::{ExportRequest, ExportTool, ScreenEffect, SearchScope},
    entry_part::{EntryPart, PartContent},
    export_request::{copy_entry, of_parts},
    layout::{self, ScreenLayout},
    model::SharedModel,
    moment,
    moved_rows::MovedRows,
    page::{ContentContext, DrawContext, InspectPlace, Page, PageKey, ScreenModel, SearchPlace},
    stream_rows::{other_end, problem_entry, row_at},
};
use ingestdeck_core::{
    run::{
        bookmark::Bookmark,
        state::{AttemptId, RunView, UnitState},
    },
    tape::{Seq, UnitKey},
};

mod view;

#[derive(Clone, Debug)]
pub(crate) struct EntryPage {
    unit: UnitKey,
    /// The attempt whose neighbouring entries can be shown.
    attempt_id: AttemptId,
    /// Index of the entry in the attempt.
    entry: usize,
    /// Parts to show at the current moment.
    parts: Vec<EntryPart>,
    /// First line on screen.
    scroll: usize,
    /// Lines of the document; 0 until the shell has laid it out.
    lines: usize,
    /// Line of the last match.
    match_line: Option<usize>,
}

impl EntryPage {
    pub(crate) fn new(unit: UnitKey, attempt_id: AttemptId, entry: usize) -> Self {
        Self {
            unit,
            attempt_id,
            entry,
            parts: Vec::new(),
            scroll: 0,
            lines: 0,
            match_line: None,
        }
    }

    fn show(&mut self, run_view: &RunView, entry: usize) {
        let last = run_view.entries(self.attempt_id).len().saturating_sub(1);
        let entry = entry.min(last);
        if entry != self.entry {
            self.entry = entry;
            (self.scroll, self.match_line) = (0, None);
        }
    }

    fn seq(&self, run_view: &RunView) -> Option<Seq> {
        let seq = run_view.entries(self.attempt_id).get(self.entry)?;
        Some(Seq(u64::from(*seq)))
    }
}

impl Page for EntryPage {
    fn name(&self) -> &'static str {
        "a line of the wire"
    }

    fn hints(&self, _: &SharedModel, _: &RunView) -> &'static [UserAction] {
        use UserAction::*;
        &[Back, Right, Search, Copy, NextFailure]
    }

    fn help(&self, _: &SharedModel) -> (&'static str, &'static [UserAction]) {
        use UserAction::*;
        (self.name(), &[Left, Inspect, NextMatch, Editor, Pager])
    }

    fn keys(&self) -> &'static [PageKey] {
        const KEYS: &[PageKey] = &[PageKey::new(UserAction::Right, "next", show_next)];
        KEYS
    }

    fn move_positions(&mut self, moved: &MovedRows<'_>) {
        if let Some((id, entry)) = moved.entry(self.attempt_id, self.entry) {
            (self.attempt_id, self.entry) = (id, entry);
            self.unit = moved.named(id).map_or(self.unit.clone(), |(unit, ..)| unit);
        }
    }

    fn offers(&self, action: UserAction) -> bool {
        action != UserAction::Open
    }

    fn step(&mut self, _: &mut SharedModel, _: &RunView, by: isize) {
        self.scroll = self.scroll.saturating_add_signed(by);
    }

    fn go_to_end(&mut self, _: &mut SharedModel, _: &RunView, last: bool) {
        self.scroll = if last { self.lines } else { 0 };
    }

    fn sideways(&mut self, _: &mut SharedModel, run_view: &RunView, right: bool) {
        let by = if right { 1 } else { -1 };
        self.show(run_view, self.entry.saturating_add_signed(by));
    }

    fn next_failure(
        &mut self,
        _: &mut SharedModel,
        run_view: &RunView,
        forward: bool,
    ) -> Result<(), &'static str> {
        let hit = problem_entry(run_view, self.attempt_id, self.entry, forward);
        self.show(run_view, hit.ok_or("no failure here")?);
        Ok(())
    }

    fn counterpart(&mut self, run_view: &RunView) -> Result<(), &'static str> {
        let place = other_end(run_view, self.attempt_id, self.entry);
        self.show(run_view, place.ok_or("this line has no counterpart")?);
        Ok(())
    }

    fn unit<'a>(&self, _: &SharedModel, run_view: &'a RunView) -> Option<&'a UnitState> {
        run_view.state.unit(&self.unit)
    }

    fn moment(&self, _: &SharedModel, run_view: &RunView) -> Option<Bookmark> {
        moment::of_entry(run_view, self.attempt_id, self.entry)
    }

    fn inspected(
        &self,
        model: &SharedModel,
        run_view: &RunView,
    ) -> Result<InspectPlace, Unavailable> {
        let attempt = self.unit(model, run_view).and_then(|unit| {
            let mut attempts = unit.attempts.iter();
            attempts.position(|attempt| attempt.id == self.attempt_id)
        });
        let rows = run_view.rows(self.attempt_id);
        let seq = self.seq(run_view);
        Ok(InspectPlace {
            unit: self.unit.clone(),
            attempt: attempt.unwrap_or_default(),
            action: seq.and_then(|seq| row_at(rows, seq, run_view.state.entries)),
        })
    }

    fn copy(&self, _: &SharedModel, _: &RunView) -> Vec<ScreenEffect> {
        let lines = self.parts.iter();
        let lines = lines.filter(|part| part.content == PartContent::Line);
        copy_entry(lines.map(|part| part.seq).collect())
    }

    fn export(&self, _: &SharedModel, _: &RunView, tool: ExportTool) -> Option<ExportRequest> {
        Some(of_parts("line", &self.parts, tool))
    }

    fn search(&self, _: &SharedModel, _: &RunView) -> Option<SearchPlace> {
        Some(SearchPlace {
            scope: SearchScope::Document,
            document: (0, 0, self.entry),
            selected: self.match_line.unwrap_or(self.scroll),
            len: self.lines,
        })
    }

    fn select_match(&mut self, _: &mut SharedModel, _: &RunView, place: usize) {
        (self.match_line, self.scroll) = (Some(place), place.saturating_sub(2));
    }

    fn restore(&mut self, before: &dyn Page) {
        if let Some(before) = (before as &dyn std::any::Any).downcast_ref::<Self>() {
            (self.scroll, self.match_line) = (before.scroll, before.match_line);
        }
    }

    fn click(&mut self, _: &mut SharedModel, _: &RunView, _: &ScreenLayout, _: Position) -> bool {
        false
    }

    fn refresh(&mut self, _: &mut SharedModel, run_view: &RunView, plan: &ScreenLayout) {
        let part = |seq| EntryPart {
            title: "line",
            seq,
            content: PartContent::Line,
        };
        self.parts = self.seq(run_view).map(part).into_iter().collect();
        let height = usize::from(plan.body_rows());
        self.scroll = self.scroll.min(self.lines.saturating_sub(height));
    }

    fn add_content(&self, scene: &ContentContext<'_>, wants: &mut CacheRequest) {
        wants.document = Some(DocumentRequest {
            content: DocumentContent::Parts(self.parts.clone()),
            width: layout::inner(scene.plan.body).width,
        });
    }

    fn take_layout(&mut self, _: &RunView, cache: &ScreenCache, wants: &CacheRequest) -> bool {
        let document = cache.requested_document(wants);
        self.lines = document.map_or(0, |document| document.lines.len());
        true
    }

    fn draw(&self, scene: &DrawContext<'_>, plan: &ScreenLayout, buf: &mut Buffer) {
        let area: Rect = plan.body;
        view::draw(scene, self, area, buf);
    }
}

fn show_next(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let (page, shared) = model.page_mut();
    page.sideways(shared, run_view, true);
    Vec::new()
}
