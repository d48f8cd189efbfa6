//! Painting: brings the model into range, reads the visible content and draws.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{App, RedrawPriority};
use crate::{
    cache, load,
    model::ClickTargets,
    page::DrawContext,
    pages::{self, recent::RecentPage},
    view,
    wide_cells::WideRows,
};
use ingestdeck_core::run::state::UnitState;
use std::sync::Arc;

impl App {
    /// Paints a frame: brings the model into range, reads the visible content and draws. `is_shown` is true if the last
    /// frame is on the screen. Returns the area that keeps its content.
    pub fn paint(&mut self, buf: &mut Buffer, is_shown: bool) -> Rect {
        self.model.size = (buf.area.width, buf.area.height);
        self.date_recent_page();
        self.read_held_changes();
        pages::refresh(&mut self.model, self.timeline.view());
        let side_pane = self.model.side_pane(self.timeline.view());
        let is_kept = is_shown && self.frames.side_pane.is_kept(self.clock.now, side_pane);
        let wants = self.wanted_content(is_kept);
        self.load(&wants);
        if self.model.page().reads_after_layout() {
            let wants = self.wanted_content(false);
            self.load(&wants);
        }
        let (targets, wide_rows) = (ClickTargets::default(), WideRows::default());
        let scene = DrawContext {
            model: &self.model,
            run_view: self.timeline.view(),
            activity: self.timeline.activity(),
            cache: &self.cache,
            theme: &self.theme,
            source: &self.shown,
            targets: &targets,
            wide_rows: &wide_rows,
            is_side_pane_kept: is_kept,
        };
        view::draw(&scene, buf);
        self.model.mouse.targets = targets.into_targets();
        let side_pane = self.model.side_pane(self.timeline.view());
        self.frames.side_pane.finish(side_pane, is_kept)
    }

    /// Determines where the time begins that the page of the last minutes shows. True if that is another entry now.
    pub(super) fn date_recent_page(&mut self) -> bool {
        let now = self.model.playhead.time;
        let Some(page) = self.model.top_mut::<RecentPage>() else {
            return false;
        };
        match self.timeline.first_entry_at(now.since(page.time)) {
            Ok(since) => std::mem::replace(&mut page.since, since) != since,
            Err(error) => {
                self.model.toasts.show(error.to_string());
                false
            }
        }
    }

    /// The content of the next frame. For a kept pane next to the table, nothing is read.
    fn wanted_content(&self, is_kept: bool) -> cache::CacheRequest {
        let mut layout = self.model.layout();
        if is_kept && self.model.is_bottom() {
            layout.stream = None;
        }
        self.model
            .content(&layout, self.timeline.view(), &self.cache)
    }

    /// Reads what the calls that wait would change, once for each.
    fn read_held_changes(&mut self) {
        let units = self.timeline.view().state.units.iter();
        let attempts = units.filter_map(UnitState::latest);
        let held: Vec<_> = attempts
            .filter_map(|attempt| Some((attempt.id, attempt.held_calls.first()?.clone())))
            .collect();
        let changes = &mut self.model.dialogs.held_changes;
        changes.retain(|(attempt, input), _| {
            let mut held = held.iter();
            held.any(|(id, call)| id.0 == *attempt && call.input == *input)
        });
        for (attempt_id, call) in held {
            let key = (attempt_id.0, Arc::clone(&call.input));
            changes
                .entry(key)
                .or_insert_with(|| load::pending_change(&mut self.timeline, attempt_id, &call));
        }
    }

    /// Reads the visible content, and updates the page with its size.
    fn load(&mut self, wants: &cache::CacheRequest) {
        load::load(&mut self.timeline, &mut self.cache, wants);
        self.reading.has_unread = load::has_more(&self.timeline, &self.cache, wants);
        let (page, _) = self.model.page_mut();
        if page.take_layout(self.timeline.view(), &self.cache, wants) {
            self.model.refresh(self.timeline.view());
        }
    }

    /// Reads more of the requested content that the first frame did not wait for.
    pub(super) fn read_more(&mut self) {
        let wants = self.wanted_content(false);
        self.reading.has_unread = load::load_more(&mut self.timeline, &mut self.cache, &wants);
        // Once everything is read, show it immediately.
        self.frames.limiter.mark(if self.reading.has_unread {
            RedrawPriority::Soon
        } else {
            RedrawPriority::Now
        });
    }
}
