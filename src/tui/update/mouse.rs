//! The mouse: the left button selects a row or does what the painted text is for, a double click opens, and the wheel
//! scrolls the pane under the pointer.

use ratatui::layout::Position;

use crate::{
    action::UserAction,
    actions::{listing, time},
    effect::ScreenEffect,
    model::ClickAction,
    page::ScreenModel,
    pages::inspect,
};
use ingestdeck_core::run::state::RunView;

/// Rows scrolled per turn of the wheel.
const WHEEL_ROWS: isize = 3;

pub(super) fn click(
    model: &mut ScreenModel,
    run_view: &RunView,
    x: u16,
    y: u16,
) -> Vec<ScreenEffect> {
    let plan = model.layout();
    let at = Position { x, y };
    if plan.is_too_small() {
        return Vec::new();
    }
    let is_covered = model.dialogs.covers_view() || model.dialogs.line_input.is_some();
    let target = model.mouse.target(at, &plan, is_covered);
    model.mouse.is_dragging_bar = plan.bar.contains(at) && !model.dialogs.covers_view();
    if let Some(target) = target {
        model.mouse.last_click = None;
        return act(model, run_view, target);
    }
    if model.dialogs.covers_view() {
        return Vec::new();
    }
    if model.mouse.is_dragging_bar {
        return time::scrub_to_column(model, plan.bar, x);
    }
    let (page, shared) = model.page_mut();
    if !page.click(shared, run_view, &plan, at) {
        shared.mouse.last_click = None;
    } else if shared.mouse.is_double_click(at, shared.toasts.now) {
        return UserAction::Open.spec().perform(model, run_view);
    }
    Vec::new()
}

/// Does what the clicked part of the screen is for.
fn act(model: &mut ScreenModel, run_view: &RunView, target: ClickAction) -> Vec<ScreenEffect> {
    match target {
        ClickAction::Perform(action) => {
            model.toasts.dismiss_answers();
            model.pending.clear();
            return action.spec().perform(model, run_view);
        }
        ClickAction::Panel(number) => inspect::select_panel(model, number),
        ClickAction::Attempt(index) => {
            let (page, model) = model.page_mut();
            page.show_attempt(model, run_view, index);
        }
        ClickAction::Sort(sort) => listing::sort_by(model, run_view, sort),
        ClickAction::Seek(target) => return time::scrub(model, target),
    }
    Vec::new()
}

/// Handles the button held down: on the timeline bar it moves the cursor.
pub(super) fn drag(model: &mut ScreenModel, x: u16) -> Vec<ScreenEffect> {
    let plan = model.layout();
    let may = model.mouse.is_dragging_bar
        && model.dialogs.question.is_none()
        && !model.dialogs.is_editing()
        && !plan.is_too_small();
    if may && plan.bar.height > 0 {
        time::scrub_to_column(model, plan.bar, x)
    } else {
        Vec::new()
    }
}

pub(super) fn wheel(
    model: &mut ScreenModel,
    run_view: &RunView,
    x: u16,
    y: u16,
    down: bool,
) -> Vec<ScreenEffect> {
    let plan = model.layout();
    if model.dialogs.question.is_some() || plan.is_too_small() {
        return Vec::new();
    }
    let at = Position { x, y };
    if plan.bar.contains(at) && !model.dialogs.is_editing() {
        return time::scrub_with_wheel(model, run_view, plan.bar, down);
    }
    let by = if down { WHEEL_ROWS } else { -WHEEL_ROWS };
    let (page, model) = model.page_mut();
    page.wheel(model, run_view, &plan, at, by);
    Vec::new()
}
