//! Where a text occurs in all runs and sessions of the project. It opens on the home screen.

use ratatui::{buffer::Buffer, layout::Rect};

use crate::{
    action::{ActionScope, UserAction},
    effect::{ExportRequest, ExportTool},
    layout::{self, ScreenLayout},
    model::{ScrollList, SharedModel},
    page::{DrawContext, Page, PageKey},
};
use ingestdeck_core::run::state::RunView;

pub(crate) mod actions;
mod state;
mod view;

pub(crate) use state::RecordSearchPage;

impl Page for RecordSearchPage {
    fn name(&self) -> &'static str {
        "the search of all runs"
    }

    fn hints(&self, _: &SharedModel, _: &RunView) -> &'static [UserAction] {
        use UserAction::*;
        &[Back, Open, FindText]
    }

    fn keys(&self) -> &'static [PageKey] {
        const KEYS: &[PageKey] = &[PageKey::new(UserAction::Open, "open", actions::open)
            .when(actions::has_rows)
            .about("open the run or session at this moment; quitting it comes back")];
        KEYS
    }

    fn scope(&self) -> ActionScope {
        ActionScope::Home
    }

    fn list(&self) -> Option<&ScrollList> {
        Some(&self.list)
    }

    fn list_mut(&mut self) -> Option<&mut ScrollList> {
        Some(&mut self.list)
    }

    fn len(&self, _: &SharedModel, _: &RunView) -> usize {
        self.found.rows.len()
    }

    fn rows_area(&self, _: &SharedModel, body: Rect) -> Rect {
        view::rows_area(self, layout::inner(body))
    }

    fn go_to_end(&mut self, _: &mut SharedModel, _: &RunView, last: bool) {
        // It does not follow its end: more rows are older.
        let len = self.found.rows.len();
        self.list.select(if last { usize::MAX } else { 0 }, len);
    }

    fn export(&self, _: &SharedModel, _: &RunView, _: ExportTool) -> Option<ExportRequest> {
        None
    }

    fn draw(&self, scene: &DrawContext<'_>, plan: &ScreenLayout, buf: &mut Buffer) {
        view::draw(scene, self, plan.body, buf);
    }
}
