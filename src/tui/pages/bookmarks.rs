//! The bookmarks: moments of the run that the user marked.

use ratatui::buffer::Buffer;

use crate::{
    action::{ActionScope, UserAction},
    effect::{ExportRequest, ExportTool, PagerContent},
    layout::ScreenLayout,
    model::{ScrollList, SharedModel},
    page::{DrawContext, Page, PageKey, acts_on_unit},
};
use ingestdeck_core::run::{bookmark, state::RunView};

pub(crate) mod actions;
mod view;

#[derive(Clone, Debug, Default)]
pub(crate) struct BookmarksPage(ScrollList);

impl Page for BookmarksPage {
    fn name(&self) -> &'static str {
        "the bookmarks"
    }

    fn hints(&self, _: &SharedModel, _: &RunView) -> &'static [UserAction] {
        use UserAction::*;
        &[Back, Open, RetryWith, Stop]
    }

    fn keys(&self) -> &'static [PageKey] {
        use actions::{
            can_go_to_selected, delete_selected, edit_selected, go_to_selected, is_selected,
        };
        const KEYS: &[PageKey] = &[
            PageKey::new(UserAction::Open, "go there", go_to_selected)
                .when(can_go_to_selected)
                .about("show the moment of the bookmark"),
            PageKey::new(UserAction::RetryWith, "edit note", edit_selected)
                .when(is_selected)
                .about("change the note of the bookmark"),
            PageKey::new(UserAction::Stop, "delete", delete_selected)
                .when(is_selected)
                .about("delete the bookmark"),
        ];
        KEYS
    }

    fn offers(&self, action: UserAction) -> bool {
        !acts_on_unit(action)
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

    fn len(&self, model: &SharedModel, _: &RunView) -> usize {
        model.playhead.bookmarks.list.len()
    }

    fn export(&self, model: &SharedModel, _: &RunView, tool: ExportTool) -> Option<ExportRequest> {
        let text = bookmark::to_lines(&model.playhead.bookmarks.list);
        Some(ExportRequest::pager_only(
            "bookmarks",
            PagerContent::Text(text),
            tool,
        ))
    }

    fn draw(&self, scene: &DrawContext<'_>, plan: &ScreenLayout, buf: &mut Buffer) {
        view::draw(scene, &self.0, plan.body, buf);
    }
}
