//! The help: the keys of the page from which it was opened, and on demand all keys and signs.

use ratatui::{buffer::Buffer, layout::Position};

use crate::{
    action::{ActionScope, UserAction, help_size},
    effect::{ExportRequest, ExportTool, PagerContent},
    layout::ScreenLayout,
    model::SharedModel,
    page::{DrawContext, Page, acts_on_unit},
};
use ingestdeck_core::run::state::RunView;

mod view;

#[derive(Clone, Debug)]
pub(crate) struct HelpPage {
    /// First line on screen.
    offset: usize,
    /// Name of the page from which it was opened.
    about: &'static str,
    /// The actions of that page, and what they do there.
    actions: Vec<(UserAction, &'static str)>,
    /// True to show all keys and signs, too.
    is_complete: bool,
}

impl HelpPage {
    pub(crate) fn new(about: &'static str, actions: Vec<(UserAction, &'static str)>) -> Self {
        Self {
            offset: 0,
            about,
            actions,
            is_complete: false,
        }
    }

    /// Shows all keys and signs. Returns false if they are shown already.
    pub(crate) fn complete(&mut self) -> bool {
        !std::mem::replace(&mut self.is_complete, true)
    }

    /// Number of columns of the help at this width, and their rows: the section of the page after its heading, with an
    /// empty row below, and the sections of all actions and signs or the key that shows them.
    fn size(&self, width: u16) -> (u16, usize) {
        let above = self.actions.len() + 2;
        match self.is_complete {
            true => help_size(width, above),
            false => (1, above + 1),
        }
    }
}

impl Page for HelpPage {
    fn name(&self) -> &'static str {
        "the help"
    }

    fn hints(&self, _: &SharedModel, _: &RunView) -> &'static [UserAction] {
        &[UserAction::Back]
    }

    fn offers(&self, action: UserAction) -> bool {
        !acts_on_unit(action) && action != UserAction::Open
    }

    fn scope(&self) -> ActionScope {
        ActionScope::View
    }

    fn step(&mut self, _: &mut SharedModel, _: &RunView, by: isize) {
        self.offset = self.offset.saturating_add_signed(by);
    }

    fn go_to_end(&mut self, _: &mut SharedModel, _: &RunView, last: bool) {
        self.offset = if last { usize::MAX } else { 0 };
    }

    fn export(&self, model: &SharedModel, _: &RunView, tool: ExportTool) -> Option<ExportRequest> {
        let text = PagerContent::Text(model.keymap.markdown());
        Some(ExportRequest::pager_only("help", text, tool))
    }

    fn click(&mut self, _: &mut SharedModel, _: &RunView, _: &ScreenLayout, _: Position) -> bool {
        false
    }

    fn refresh(&mut self, _: &mut SharedModel, _: &RunView, plan: &ScreenLayout) {
        let lines = self.size(plan.body.width).1;
        let height = usize::from(plan.body_rows());
        self.offset = self.offset.min(lines.saturating_sub(height));
    }

    fn draw(&self, scene: &DrawContext<'_>, plan: &ScreenLayout, buf: &mut Buffer) {
        view::draw(scene, self, plan.body, buf);
    }
}
