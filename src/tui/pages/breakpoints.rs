//! The breakpoints: conditions at which playback stops.

use ratatui::buffer::Buffer;

use crate::{
    action::{ActionScope, UserAction},
    effect::{ExportRequest, ExportTool, PagerContent, ScreenEffect},
    layout::ScreenLayout,
    model::{ScrollList, SharedModel},
    page::{DrawContext, Page, PageKey, ScreenModel, acts_on_unit},
};
use ingestdeck_core::run::state::RunView;

mod view;

#[derive(Clone, Debug, Default)]
pub(crate) struct BreakpointsPage(ScrollList);

impl Page for BreakpointsPage {
    fn name(&self) -> &'static str {
        "the breakpoints"
    }

    fn hints(&self, _: &SharedModel, _: &RunView) -> &'static [UserAction] {
        use UserAction::*;
        &[Back, Open, Stop, CommandLine]
    }

    fn keys(&self) -> &'static [PageKey] {
        const KEYS: &[PageKey] = &[
            PageKey::new(UserAction::Open, "on or off", toggle)
                .about("switch the breakpoint on or off"),
            PageKey::new(UserAction::Stop, "delete", delete).about("delete the breakpoint"),
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
        model.playhead.breakpoints.len()
    }

    fn export(&self, model: &SharedModel, _: &RunView, tool: ExportTool) -> Option<ExportRequest> {
        let lines = model
            .playhead
            .breakpoints
            .iter()
            .map(|breakpoint| format!("{}\n", breakpoint.condition));
        Some(ExportRequest::pager_only(
            "breakpoints",
            PagerContent::Text(lines.collect()),
            tool,
        ))
    }

    fn draw(&self, scene: &DrawContext<'_>, plan: &ScreenLayout, buf: &mut Buffer) {
        view::draw(scene, &self.0, plan.body, buf);
    }
}

fn selected(model: &ScreenModel) -> Option<usize> {
    let selected = model.top::<BreakpointsPage>()?.0.selected;
    (selected < model.playhead.breakpoints.len()).then_some(selected)
}

fn toggle(model: &mut ScreenModel, _: &RunView) -> Vec<ScreenEffect> {
    if let Some(selected) = selected(model) {
        let breakpoint = &mut model.playhead.breakpoints[selected];
        breakpoint.is_enabled = !breakpoint.is_enabled;
    }
    Vec::new()
}

fn delete(model: &mut ScreenModel, _: &RunView) -> Vec<ScreenEffect> {
    if let Some(selected) = selected(model) {
        model.playhead.breakpoints.remove(selected);
    }
    Vec::new()
}
