//! The log: the messages of the run, oldest first.

use ratatui::{buffer::Buffer, layout::Rect};

use crate::{
    action::{ActionScope, UserAction},
    effect::{ExportRequest, ExportTool, PagerContent, ScreenEffect},
    layout::{self, ScreenLayout},
    model::{ScrollList, SharedModel},
    page::{DrawContext, Page, PageKey, ScreenModel, SearchPlace, rows_to_search},
    search_match::{matches, nearest},
};
use ingestdeck_core::{
    run::{
        bookmark::Bookmark,
        state::{LogMessage, RunView, UnitState},
    },
    tape::{Millis, note::Severity},
    text,
};

mod view;

#[derive(Clone, Debug)]
pub(crate) struct LogPage(ScrollList);

impl LogPage {
    pub(crate) fn new() -> Self {
        Self(ScrollList::following())
    }

    /// The log with a message selected, by its index.
    pub(crate) fn at(selected: usize) -> Self {
        Self(ScrollList {
            selected,
            seen: usize::MAX,
            ..ScrollList::default()
        })
    }

    fn selected<'a>(&self, run_view: &'a RunView) -> Option<&'a LogMessage> {
        run_view.messages().get(self.0.selected)
    }
}

/// Why recording failed, which the tape cannot contain, as lines above the messages inside such a pane.
fn recording_failure_lines(model: &SharedModel, inside: Rect) -> Vec<String> {
    let Some(failure) = model.connection.recording_failure.as_deref() else {
        return Vec::new();
    };
    let mut lines = text::wrap(
        &format!("broken: {}", text::one_row(failure, 600)),
        usize::from(inside.width),
    );
    lines.truncate(usize::from(inside.height.saturating_sub(2)));
    lines
}

impl Page for LogPage {
    fn name(&self) -> &'static str {
        "the log"
    }

    fn hints(&self, _: &SharedModel, _: &RunView) -> &'static [UserAction] {
        use UserAction::*;
        &[Back, Open, Search, NextFailure]
    }

    fn help(&self, _: &SharedModel) -> (&'static str, &'static [UserAction]) {
        use UserAction::*;
        (
            self.name(),
            &[NextMatch, PreviousFailure, Copy, Editor, Pager],
        )
    }

    fn keys(&self) -> &'static [PageKey] {
        const KEYS: &[PageKey] = &[PageKey::new(UserAction::Open, "open", go_to_unit)];
        KEYS
    }

    fn offers(&self, action: UserAction) -> bool {
        !matches!(action, UserAction::Inspect | UserAction::Compare)
    }

    fn scope(&self) -> ActionScope {
        ActionScope::View
    }

    fn list(&self) -> Option<&ScrollList> {
        Some(&self.0)
    }

    fn list_mut(&mut self) -> Option<&mut ScrollList> {
        Some(&mut self.0)
    }

    fn len(&self, _: &SharedModel, run_view: &RunView) -> usize {
        run_view.messages().len()
    }

    /// The unit of the selected message.
    fn unit<'a>(&self, _: &SharedModel, run_view: &'a RunView) -> Option<&'a UnitState> {
        let key = self.selected(run_view)?.unit.as_ref()?;
        run_view.state.units.iter().find(|unit| unit.key == *key)
    }

    fn rows_area(&self, model: &SharedModel, body: Rect) -> Rect {
        let inside = layout::inner(body);
        layout::below(inside, recording_failure_lines(model, inside).len())
    }

    fn next_failure(
        &mut self,
        model: &mut SharedModel,
        run_view: &RunView,
        forward: bool,
    ) -> Result<(), &'static str> {
        let messages = run_view.messages();
        let hit = nearest(messages.len(), self.0.selected, forward, |row| {
            messages[row].level >= Severity::Warning
        });
        self.select_match(model, run_view, hit.ok_or("no failure here")?);
        Ok(())
    }

    fn moment(&self, _: &SharedModel, run_view: &RunView) -> Option<Bookmark> {
        let message = self.selected(run_view)?;
        let is_unit = |unit: &&_| Some(*unit) == message.unit.as_ref();
        let keys = run_view.state.units.iter().map(|unit| &unit.key);
        Some(Bookmark {
            entry: message.seq,
            at: Millis(0),
            unit: keys.into_iter().find(is_unit).cloned(),
            attempt: None,
            note: String::new(),
        })
    }

    fn copy(&self, _: &SharedModel, run_view: &RunView) -> Vec<ScreenEffect> {
        let message = self.selected(run_view).map(|message| ScreenEffect::Copy {
            text: message.text.clone(),
            what: "message".to_owned(),
        });
        message.into_iter().collect()
    }

    fn export(
        &self,
        _: &SharedModel,
        run_view: &RunView,
        tool: ExportTool,
    ) -> Option<ExportRequest> {
        let line = |message: &LogMessage| {
            let unit = message
                .unit
                .as_ref()
                .map(|unit| format!("{unit}: "))
                .unwrap_or_default();
            format!("+{} {}{}\n", message.at, unit, message.text)
        };
        let text = run_view.messages().iter().map(line).collect();
        Some(ExportRequest::pager_only(
            "log",
            PagerContent::Text(text),
            tool,
        ))
    }

    fn search(&self, model: &SharedModel, run_view: &RunView) -> Option<SearchPlace> {
        rows_to_search(self, model, run_view)
    }

    fn is_match(&self, _: &SharedModel, run_view: &RunView, place: usize, query: &str) -> bool {
        run_view.messages().get(place).is_some_and(|message| {
            matches(&message.text, query)
                || message
                    .unit
                    .as_deref()
                    .is_some_and(|unit| matches(unit, query))
        })
    }

    fn draw(&self, scene: &DrawContext<'_>, plan: &ScreenLayout, buf: &mut Buffer) {
        view::draw(scene, &self.0, plan.body, buf);
    }
}

/// Selects the unit of the message in the table.
fn go_to_unit(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let message = model
        .top::<LogPage>()
        .and_then(|page| page.selected(run_view));
    let unit = message.and_then(|message| message.unit.as_ref());
    if let Some(place) = unit.and_then(|key| {
        run_view
            .state
            .units
            .iter()
            .position(|unit| unit.key == *key)
    }) {
        model.close();
        model.select_unit(place);
    }
    Vec::new()
}
