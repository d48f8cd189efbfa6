//! The home screen: the runs and sessions of the project. It is below all other pages, and is never closed.

use ratatui::{
    buffer::Buffer,
    layout::{Position, Rect},
};

use crate::{
    action::{ActionScope, Availability, UserAction, require},
    effect::{ExportRequest, ExportTool},
    layout::ScreenLayout,
    model::{ScrollList, SharedModel},
    page::{DrawContext, Page, PageKey, ScreenModel, clicked_row},
};
use ingestdeck_core::run::state::RunView;

pub(crate) mod actions;
mod state;
mod view;

pub(crate) use state::HomePage;
pub use state::{HomeContent, HomeLine, HomeRun, HomeRunState, HomeSession, HomeSessionState};

impl Page for HomePage {
    fn name(&self) -> &'static str {
        "the home screen"
    }

    fn hints(&self, _: &SharedModel, _: &RunView) -> &'static [UserAction] {
        use UserAction::*;
        match self.session() {
            Some(session) if session.background.is_some() => {
                &[Open, Say, Stop, StartRun, FindText, OpenPath]
            }
            _ => &[Open, ResumeRun, DiffRuns, StartRun, FindText, OpenPath],
        }
    }

    fn keys(&self) -> &'static [PageKey] {
        const WATCH: &[PageKey] =
            &[PageKey::new(UserAction::Open, "watch", actions::open).when(has_line)];
        const BACKGROUND: &[PageKey] = &[
            PageKey::new(UserAction::Open, "watch", actions::open).when(has_line),
            PageKey::new(UserAction::Say, "answer", actions::attach_session)
                .about("open the background session in Claude Code, to answer it"),
            PageKey::new(UserAction::Stop, "stop", actions::stop_session)
                .about("stop the background session"),
        ];
        const OPEN: &[PageKey] =
            &[PageKey::new(UserAction::Open, "open", actions::open).when(has_line)];
        if let Some(session) = self.session().filter(|session| session.is_active()) {
            return if session.background.is_some() {
                BACKGROUND
            } else {
                WATCH
            };
        }
        let run = self.run();
        if run.is_some_and(|run| run.state == HomeRunState::Active) {
            WATCH
        } else {
            OPEN
        }
    }

    fn offers(&self, action: UserAction) -> bool {
        action != UserAction::Search
    }

    fn scope(&self) -> ActionScope {
        ActionScope::Home
    }

    fn list(&self) -> Option<&ScrollList> {
        Some(&self.list)
    }

    fn len(&self, _: &SharedModel, _: &RunView) -> usize {
        self.content.lines.len()
    }

    fn step(&mut self, _: &mut SharedModel, _: &RunView, by: isize) {
        self.select(self.list.selected.saturating_add_signed(by), by > 0);
    }

    fn go_to_end(&mut self, _: &mut SharedModel, _: &RunView, last: bool) {
        self.select(if last { usize::MAX } else { 0 }, !last);
    }

    fn back(&mut self, _: &mut SharedModel) -> bool {
        self.compared = None;
        true
    }

    fn export(&self, _: &SharedModel, _: &RunView, _: ExportTool) -> Option<ExportRequest> {
        None
    }

    fn click(
        &mut self,
        model: &mut SharedModel,
        _: &RunView,
        plan: &ScreenLayout,
        at: Position,
    ) -> bool {
        let row = clicked_row(self.rows_area(model, plan.body), at);
        let line = row.map(|row| self.list.offset + row);
        if let Some(line) = line.filter(|line| *line < self.content.lines.len()) {
            self.select(line, true);
        }
        row.is_some()
    }

    fn refresh(&mut self, _: &mut SharedModel, _: &RunView, plan: &ScreenLayout) {
        self.clamp(usize::from(plan.body_rows()));
    }

    fn draw_header(&self, scene: &DrawContext<'_>, area: Rect, buf: &mut Buffer) -> bool {
        view::draw_header(scene, self, area, buf);
        true
    }

    fn draw(&self, scene: &DrawContext<'_>, plan: &ScreenLayout, buf: &mut Buffer) {
        view::draw(scene, self, plan.body, buf);
    }
}

fn has_line(model: &ScreenModel, _: &RunView) -> Availability {
    let page = model.top::<HomePage>();
    require(page.is_some_and(|page| page.line().is_some()))
}
