//! The artifacts of the run: a list, and the document of one.

use ratatui::{
    buffer::Buffer,
    layout::{Position, Rect},
};

use crate::{
    action::{Availability, Unavailable, UserAction, require},
    cache::{CacheRequest, DocumentContent, DocumentRequest, ScreenCache},
    effect::{ExportRequest, ExportTool, PagerContent, ScreenEffect, SearchScope, WrittenLine},
    layout::{self, ScreenLayout},
    model::{InputPurpose, LineInput, ScrollList, SharedModel},
    page::{
        ContentContext, DrawContext, InspectPlace, Page, PageKey, ScreenModel, SearchPlace,
        clicked_row, initial_action,
    },
    search_match::{matches, nearest},
};
use ingestdeck_core::run::state::{RunView, UnitState};

mod state;
pub(crate) mod view;

use state::ArtifactDocument;
pub(crate) use state::ArtifactsPage;

/// The keys of the list.
const LIST_KEYS: &[PageKey] = &[
    PageKey::new(UserAction::Open, "open", open_document).when(has_selection),
    PageKey::new(UserAction::Filter, "filter", cycle_filter),
    PageKey::new(UserAction::FilterText, "filter text", type_filter),
    PageKey::new(UserAction::Why, "why", why).when(has_selection),
];

/// The keys of a document.
const DOCUMENT_KEYS: &[PageKey] = &[PageKey::new(UserAction::Why, "why", why).when(has_selection)];

impl Page for ArtifactsPage {
    fn name(&self) -> &'static str {
        match self.document {
            Some(_) => "an artifact",
            None => "the artifacts",
        }
    }

    fn hints(&self, _: &SharedModel, _: &RunView) -> &'static [UserAction] {
        use UserAction::*;
        match self.document {
            Some(_) => &[Back, Right, Inspect, Search],
            None => &[Back, Open, Filter, FilterText, Inspect, Search],
        }
    }

    fn help(&self, _: &SharedModel) -> (&'static str, &'static [UserAction]) {
        use UserAction::*;
        let actions: &[UserAction] = match self.document {
            Some(_) => &[Left, Inspect, NextMatch, Copy],
            None => &[FilterText, NextFailure, PreviousFailure, Copy, NextMatch],
        };
        (self.name(), actions)
    }

    fn keys(&self) -> &'static [PageKey] {
        match self.document {
            Some(_) => DOCUMENT_KEYS,
            None => LIST_KEYS,
        }
    }

    fn offers(&self, action: UserAction) -> bool {
        use UserAction::*;
        match action {
            Open => self.document.is_none(),
            NextFailure | PreviousFailure => self.document.is_none() && !self.listed.is_empty(),
            _ => true,
        }
    }

    fn list(&self) -> Option<&ScrollList> {
        self.document.is_none().then_some(&self.list)
    }

    fn list_mut(&mut self) -> Option<&mut ScrollList> {
        self.document.is_none().then_some(&mut self.list)
    }

    fn len(&self, _: &SharedModel, _: &RunView) -> usize {
        self.listed.len()
    }

    fn rows_area(&self, _: &SharedModel, body: Rect) -> Rect {
        let area = match self.document {
            Some(_) => body,
            None => view::split(body).0,
        };
        layout::inner(area)
    }

    fn step(&mut self, _: &mut SharedModel, _: &RunView, by: isize) {
        match &mut self.document {
            Some(shown) => shown.scroll = shown.scroll.saturating_add_signed(by),
            None => self.list.step(by, self.listed.len()),
        }
    }

    fn go_to_end(&mut self, _: &mut SharedModel, _: &RunView, last: bool) {
        match &mut self.document {
            Some(shown) => shown.scroll = if last { shown.lines } else { 0 },
            None => {
                let place = if last { usize::MAX } else { 0 };
                self.list.select(place, self.listed.len());
            }
        }
    }

    fn sideways(&mut self, _: &mut SharedModel, _: &RunView, right: bool) {
        if self.document.is_some() {
            self.list
                .step(if right { 1 } else { -1 }, self.listed.len());
            self.document = Some(ArtifactDocument::default());
        }
    }

    fn next_failure(
        &mut self,
        _: &mut SharedModel,
        _: &RunView,
        forward: bool,
    ) -> Result<(), &'static str> {
        let len = self.listed.len();
        let hit = nearest(len, self.list.selected, forward, |index| {
            let artifact = &self.listed[index];
            !artifact.state.counts()
                || artifact.unsourced().next().is_some()
                || !artifact.verification().contradicted.is_empty()
        });
        self.list.select(hit.ok_or("no failure here")?, len);
        Ok(())
    }

    fn back(&mut self, _: &mut SharedModel) -> bool {
        if self.document.take().is_some() {
            return true;
        }
        let is_filtered = self.is_filtered();
        if is_filtered {
            self.set_filter(Default::default(), String::new());
        }
        is_filtered
    }

    fn unit<'a>(&self, _: &SharedModel, run_view: &'a RunView) -> Option<&'a UnitState> {
        run_view.state.unit(&self.writer()?.unit)
    }

    fn inspected(
        &self,
        model: &SharedModel,
        run_view: &RunView,
    ) -> Result<InspectPlace, Unavailable> {
        let unit = self
            .unit(model, run_view)
            .ok_or_else(|| Unavailable::because("no unit of this run wrote it"))?;
        let number = self.writer().map(|writer| writer.attempt);
        let attempts = unit.attempts.iter().enumerate();
        let (index, attempt) = attempts
            .into_iter()
            .find(|(_, attempt)| Some(attempt.number) == number)
            .ok_or_else(|| Unavailable::because("a prior run wrote it"))?;
        Ok(InspectPlace {
            unit: unit.key.clone(),
            attempt: index,
            action: initial_action(run_view, attempt),
        })
    }

    fn copy(&self, _: &SharedModel, _: &RunView) -> Vec<ScreenEffect> {
        let path = self.selected().map(|artifact| ScreenEffect::Copy {
            text: artifact.path.clone(),
            what: "path".to_owned(),
        });
        path.into_iter().collect()
    }

    fn export(&self, _: &SharedModel, _: &RunView, tool: ExportTool) -> Option<ExportRequest> {
        let (what, content) = match self.document {
            Some(_) => ("artifact", PagerContent::Document),
            None => {
                let paths = self.listed.iter();
                let paths = paths.map(|artifact| format!("{}\n", artifact.path));
                ("artifacts", PagerContent::Text(paths.collect()))
            }
        };
        Some(ExportRequest::pager_only(what, content, tool))
    }

    fn search(&self, _: &SharedModel, _: &RunView) -> Option<SearchPlace> {
        Some(match &self.document {
            Some(shown) => SearchPlace {
                scope: SearchScope::Document,
                document: (0, 0, self.list.selected),
                selected: shown.match_line.unwrap_or(shown.scroll),
                len: shown.lines,
            },
            None => SearchPlace::new(
                SearchScope::Page(self.name()),
                self.list.selected,
                self.listed.len(),
            ),
        })
    }

    fn is_match(&self, _: &SharedModel, _: &RunView, place: usize, query: &str) -> bool {
        let artifact = self.listed.get(place);
        artifact.is_some_and(|artifact| matches(&artifact.path, query))
    }

    fn select_match(&mut self, _: &mut SharedModel, _: &RunView, place: usize) {
        match &mut self.document {
            Some(shown) => {
                (shown.match_line, shown.scroll) = (Some(place), place.saturating_sub(2))
            }
            None => self.list.select(place, self.listed.len()),
        }
    }

    fn restore(&mut self, before: &dyn Page) {
        if let Some(before) = (before as &dyn std::any::Any).downcast_ref::<Self>() {
            (self.list, self.document) = (before.list, before.document);
        }
    }

    fn click(
        &mut self,
        model: &mut SharedModel,
        _: &RunView,
        plan: &ScreenLayout,
        at: Position,
    ) -> bool {
        let row = clicked_row(self.rows_area(model, plan.body), at);
        let row = row.filter(|_| self.document.is_none());
        let place = row.map(|row| self.list.offset + row);
        if let Some(place) = place.filter(|place| *place < self.listed.len()) {
            self.list.select(place, self.listed.len());
        }
        row.is_some()
    }

    fn refresh(&mut self, _: &mut SharedModel, run_view: &RunView, plan: &ScreenLayout) {
        self.update(run_view, usize::from(plan.body_rows()));
    }

    fn add_content(&self, scene: &ContentContext<'_>, wants: &mut CacheRequest) {
        let body = scene.plan.body;
        let area = match self.document {
            Some(_) => Some(body),
            None => view::split(body).1,
        };
        if let (Some(area), Some(artifact)) = (area, self.selected()) {
            wants.document = Some(DocumentRequest {
                content: DocumentContent::Artifact(Box::new(artifact.clone())),
                width: layout::inner(area).width,
            });
        }
    }

    fn take_layout(&mut self, _: &RunView, cache: &ScreenCache, wants: &CacheRequest) -> bool {
        if let Some(shown) = &mut self.document {
            let document = cache.requested_document(wants);
            shown.lines = document.map_or(0, |document| document.lines.len());
        }
        true
    }

    fn draw(&self, scene: &DrawContext<'_>, plan: &ScreenLayout, buf: &mut Buffer) {
        view::draw(scene, self, plan.body, buf);
    }
}

fn has_selection(model: &ScreenModel, _: &RunView) -> Availability {
    let page = model.top::<ArtifactsPage>();
    require(page.is_some_and(|page| page.selected().is_some()))
}

fn open_document(model: &mut ScreenModel, _: &RunView) -> Vec<ScreenEffect> {
    if let Some(page) = model.top_mut::<ArtifactsPage>() {
        page.document = Some(ArtifactDocument::default());
    }
    Vec::new()
}

fn cycle_filter(model: &mut ScreenModel, _: &RunView) -> Vec<ScreenEffect> {
    if let Some(page) = model.top_mut::<ArtifactsPage>() {
        page.set_filter(page.filter.cycle(), page.text.clone());
    }
    Vec::new()
}

/// Lets the user type the text that listed artifacts contain.
fn type_filter(model: &mut ScreenModel, _: &RunView) -> Vec<ScreenEffect> {
    let text = model.top::<ArtifactsPage>().map(|page| page.text.clone());
    model.dialogs.line_input = text.map(|text| LineInput {
        text,
        purpose: InputPurpose::FilterUnits,
    });
    Vec::new()
}

/// Finds the last call that wrote the artifact.
fn why(model: &mut ScreenModel, _: &RunView) -> Vec<ScreenEffect> {
    let artifact = model
        .top::<ArtifactsPage>()
        .and_then(ArtifactsPage::selected);
    let line = artifact.map(|artifact| WrittenLine {
        path: artifact.path.clone(),
        line: None,
        text: None,
        lines: None,
    });
    line.map(ScreenEffect::Explain).into_iter().collect()
}
