//! The wire, the last panel of the inspector: every line of an attempt, in both directions.

use ratatui::{buffer::Buffer, layout::Rect};

use super::entry::EntryPage;
use crate::{
    action::{Unavailable, UserAction},
    cache::CacheRequest,
    effect::{ExportRequest, ExportTool, ScreenEffect, SearchScope},
    export_request::{self, copy_entry},
    layout::{self, ScreenLayout},
    model::{ScrollList, SharedModel},
    moment,
    moved_rows::MovedRows,
    page::{ContentContext, DrawContext, InspectPlace, Page, PageKey, ScreenModel, SearchPlace},
    stream_rows::{other_end, problem_entry, row_at},
};
use ingestdeck_core::{
    run::{
        bookmark::Bookmark,
        state::{AttemptId, AttemptState, RunView, UnitState},
    },
    tape::{Seq, UnitKey},
};

mod view;

#[derive(Clone, Debug)]
pub(crate) struct TranscriptPage {
    pub unit: UnitKey,
    /// Index of the attempt.
    pub attempt: usize,
    /// Scroll position in its entries.
    pub list: ScrollList,
    /// Number of attempts when the user asked for another one, as in the inspector.
    pub awaited: Option<usize>,
}

impl TranscriptPage {
    /// The attempt that is shown, with its index.
    fn shown<'a>(&self, run_view: &'a RunView) -> Option<(usize, &'a AttemptState)> {
        let unit = run_view.state.unit(&self.unit)?;
        let index = self.attempt.min(unit.attempts.len().checked_sub(1)?);
        unit.attempts.get(index).map(|attempt| (index, attempt))
    }

    fn attempt_id(&self, run_view: &RunView) -> Option<AttemptId> {
        self.shown(run_view).map(|(_, attempt)| attempt.id)
    }

    fn selected_entry(&self, run_view: &RunView) -> Option<Seq> {
        let entries = run_view.entries(self.attempt_id(run_view)?);
        entries
            .get(self.list.selected)
            .map(|seq| Seq(u64::from(*seq)))
    }
}

impl Page for TranscriptPage {
    fn name(&self) -> &'static str {
        "the wire"
    }

    fn hints(&self, _: &SharedModel, _: &RunView) -> &'static [UserAction] {
        use UserAction::*;
        &[Back, Open, Retry, NextAttempt, Search, NextFailure, Copy]
    }

    fn help(&self, _: &SharedModel) -> (&'static str, &'static [UserAction]) {
        use UserAction::*;
        (
            self.name(),
            &[
                Inspect,
                PreviousAttempt,
                Tab,
                NextMatch,
                CopyName,
                Editor,
                Pager,
            ],
        )
    }

    fn keys(&self) -> &'static [PageKey] {
        const KEYS: &[PageKey] = &[PageKey::new(UserAction::Open, "open", open_entry)];
        KEYS
    }

    fn list(&self) -> Option<&ScrollList> {
        Some(&self.list)
    }

    fn list_mut(&mut self) -> Option<&mut ScrollList> {
        Some(&mut self.list)
    }

    fn len(&self, _: &SharedModel, run_view: &RunView) -> usize {
        self.attempt_id(run_view)
            .map_or(0, |attempt_id| run_view.entries(attempt_id).len())
    }

    fn rows_area(&self, _: &SharedModel, body: Rect) -> Rect {
        let [.., rows] = layout::inspector_areas(body);
        rows
    }

    fn next_failure(
        &mut self,
        model: &mut SharedModel,
        run_view: &RunView,
        forward: bool,
    ) -> Result<(), &'static str> {
        let hit = self
            .attempt_id(run_view)
            .and_then(|id| problem_entry(run_view, id, self.list.selected, forward));
        self.select_match(model, run_view, hit.ok_or("no failure here")?);
        Ok(())
    }

    fn counterpart(&mut self, run_view: &RunView) -> Result<(), &'static str> {
        let attempt_id = self.attempt_id(run_view);
        let found =
            attempt_id.and_then(|id| Some((id, other_end(run_view, id, self.list.selected)?)));
        let (attempt_id, place) = found.ok_or("this line has no counterpart")?;
        self.list.select(place, run_view.entries(attempt_id).len());
        Ok(())
    }

    fn move_positions(&mut self, moved: &MovedRows<'_>) {
        let place = self
            .attempt_id(moved.before)
            .and_then(|id| moved.entry(id, self.list.selected));
        let Some((id, entry)) = place else {
            return;
        };
        MovedRows::select(&mut self.list, entry);
        if let Some((unit, attempt, _)) = moved.named(id) {
            (self.unit, self.attempt) = (unit, attempt);
        }
    }

    fn unit<'a>(&self, _: &SharedModel, run_view: &'a RunView) -> Option<&'a UnitState> {
        run_view.state.unit(&self.unit)
    }

    fn attempt(&self, _: &SharedModel, run_view: &RunView) -> Option<usize> {
        self.shown(run_view).map(|(index, _)| index)
    }

    fn show_attempt(&mut self, _: &mut SharedModel, _: &RunView, attempt: usize) {
        if self.attempt != attempt {
            (self.attempt, self.list, self.awaited) = (attempt, ScrollList::following(), None);
        }
    }

    fn await_attempt(&mut self, unit: &UnitKey, attempts: Option<usize>) {
        if self.unit == *unit {
            self.awaited = attempts;
        }
    }

    fn moment(&self, _: &SharedModel, run_view: &RunView) -> Option<Bookmark> {
        moment::of_entry(run_view, self.attempt_id(run_view)?, self.list.selected)
    }

    fn inspected(&self, _: &SharedModel, run_view: &RunView) -> Result<InspectPlace, Unavailable> {
        let (attempt, shown) = self.shown(run_view).ok_or(Unavailable::NoEffect)?;
        let seq = self.selected_entry(run_view);
        Ok(InspectPlace {
            unit: self.unit.clone(),
            attempt,
            action: seq
                .and_then(|seq| row_at(run_view.rows(shown.id), seq, run_view.state.entries)),
        })
    }

    fn copy(&self, _: &SharedModel, run_view: &RunView) -> Vec<ScreenEffect> {
        self.selected_entry(run_view)
            .map_or_else(Vec::new, |seq| copy_entry(vec![seq]))
    }

    fn copy_name(&self, _: &SharedModel, run_view: &RunView) -> Vec<ScreenEffect> {
        let attempt = self.shown(run_view).map(|(_, attempt)| attempt);
        let session = attempt.and_then(|attempt| attempt.setup.session.as_deref());
        vec![match session {
            Some(session) => ScreenEffect::Copy {
                text: format!("claude --resume {session}"),
                what: "resume line".to_owned(),
            },
            None => ScreenEffect::Copy {
                text: self.unit.as_str().to_owned(),
                what: "unit key".to_owned(),
            },
        }]
    }

    fn export(
        &self,
        _: &SharedModel,
        run_view: &RunView,
        tool: ExportTool,
    ) -> Option<ExportRequest> {
        let attempt_id = self.attempt_id(run_view)?;
        let selected = Some(self.list.selected);
        Some(export_request::attempt(
            run_view, attempt_id, selected, tool,
        ))
    }

    fn search(&self, model: &SharedModel, run_view: &RunView) -> Option<SearchPlace> {
        let scope = SearchScope::Entries(self.attempt_id(run_view)?);
        let len = self.len(model, run_view);
        Some(SearchPlace::new(scope, self.list.selected, len))
    }

    fn refresh(&mut self, model: &mut SharedModel, run_view: &RunView, plan: &ScreenLayout) {
        let unit = run_view.state.unit(&self.unit);
        let attempts = unit.map_or(0, |unit| unit.attempts.len());
        if self.awaited.is_some_and(|known| attempts > known) {
            self.awaited = None;
            (self.attempt, self.list) = (attempts - 1, ScrollList::following());
        }
        let height = usize::from(self.rows_area(model, plan.body).height);
        let len = self.len(model, run_view);
        self.list.clamp(len, height);
    }

    fn add_content(&self, scene: &ContentContext<'_>, wants: &mut CacheRequest) {
        let Some(attempt_id) = self.attempt_id(scene.run_view) else {
            return;
        };
        let entries = scene.run_view.entries(attempt_id).iter();
        let seqs = entries
            .skip(self.list.offset)
            .take(usize::from(scene.plan.body_rows()));
        wants.entries = seqs.map(|seq| Seq(u64::from(*seq))).collect();
    }

    fn draw(&self, scene: &DrawContext<'_>, plan: &ScreenLayout, buf: &mut Buffer) {
        view::draw(scene, self, plan.body, buf);
    }
}

/// Shows the selected line as a whole.
fn open_entry(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let entry = model.top::<TranscriptPage>().and_then(|page| {
        let attempt_id = page
            .attempt_id(run_view)
            .filter(|attempt_id| !run_view.entries(*attempt_id).is_empty())?;
        Some(EntryPage::new(
            page.unit.clone(),
            attempt_id,
            page.list.selected,
        ))
    });
    if let Some(entry) = entry {
        model.open(entry);
    }
    Vec::new()
}
