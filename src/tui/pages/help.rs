//! The help: the keys of the page from which it was opened, and on demand all keys and signs.

use ratatui::{buffer::Buffer, layout::Position};

use crate::{
    action::{ActionScope, UserAction},
    effect::{ExportRequest, ExportTool, PagerContent},
    layout::{self, ScreenLayout},
    model::SharedModel,
    page::{DrawContext, Page, acts_on_unit},
};
use ingestdeck_core::run::state::RunView;

mod view;

/// Preferred columns of a line of the help.
const HELP_COLUMNS: u16 = 58;

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

    /// Number of columns of the help at this width.
    fn columns(&self, width: u16) -> u16 {
        match self.is_complete {
            true => (width / HELP_COLUMNS).clamp(1, 3),
            false => 1,
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

    fn refresh(&mut self, model: &mut SharedModel, _: &RunView, plan: &ScreenLayout) {
        let columns = self.columns(plan.body.width);
        let width = layout::inner(plan.body).width / columns;
        let lines = view::lines(self, &model.keymap, width).len();
        let lines = lines.div_ceil(usize::from(columns));
        let height = usize::from(plan.body_rows());
        self.offset = self.offset.min(lines.saturating_sub(height));
    }

    fn draw(&self, scene: &DrawContext<'_>, plan: &ScreenLayout, buf: &mut Buffer) {
        view::draw(scene, self, plan.body, buf);
    }
}
