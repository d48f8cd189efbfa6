//! The mouse: the left button selects a row or does what the painted text is for, a double click opens, and the wheel
//! scrolls the pane under the pointer.

use ratatui::layout::{Position, Rect};

use crate::{
    action::UserAction,
    actions::{
        grid, inspect, listing,
        navigation::{fold, select_line, step},
        time,
    },
    effect::ScreenEffect,
    layout::{self, Pane, ScreenLayout},
    model::{
        ClickAction, FailureGroupsView, InspectSide, OverlayView, ScreenModel, TableLine,
        recording_failure_lines,
    },
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
    if !select(model, run_view, at, &plan) {
        model.mouse.last_click = None;
    } else if model.mouse.is_double_click(at, model.toasts.now) {
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
        ClickAction::Attempt(index) => inspect::select_attempt(model, run_view, index),
        ClickAction::Sort(sort) => listing::sort_by(model, run_view, sort),
        ClickAction::Seek(target) => return time::scrub(model, target),
    }
    Vec::new()
}

/// Selects the row at a place. Returns false if there is none, or if a second click has another meaning.
fn select(model: &mut ScreenModel, run_view: &RunView, at: Position, plan: &ScreenLayout) -> bool {
    let y = at.y;
    let mut is_row = false;
    let mut clicked = |rows: Rect| {
        let row = rows.contains(at).then(|| usize::from(y - rows.y));
        is_row |= row.is_some();
        row
    };
    match model.views.last_mut() {
        Some(OverlayView::Transcript(view)) => {
            let [.., rows] = layout::inspector_areas(plan.body);
            let len = view
                .attempt_id(run_view)
                .map_or(0, |attempt_id| run_view.entries(attempt_id).len());
            if let Some(row) = clicked(rows)
                .map(|row| view.list.offset + row)
                .filter(|row| *row < len)
            {
                view.list.select(row, len);
            }
        }
        Some(OverlayView::Find(view)) => {
            let row = clicked(layout::inner(plan.body)).map(|row| view.list.offset + row);
            if let Some(row) = row.filter(|row| *row < view.hits.len()) {
                view.list.select(row, view.hits.len());
            }
        }
        Some(OverlayView::Artifacts(view)) if view.document.is_none() => {
            let row = clicked(layout::inner(plan.body)).map(|row| view.list.offset + row);
            if let Some(row) = row.filter(|row| *row < view.listed.len()) {
                view.list.select(row, view.listed.len());
            }
        }
        Some(OverlayView::Home(view)) => {
            let row = clicked(layout::inner(plan.body)).map(|row| view.list.offset + row);
            if let Some(row) = row.filter(|row| *row < view.content.lines.len()) {
                view.select(row, true);
            }
        }
        Some(OverlayView::Lanes(view)) => {
            let [_, rows, _] = view.areas(layout::inner(plan.body));
            if let (Some(row), Some(selected)) = (clicked(rows), view.selected()) {
                view.step((view.offset + row).cast_signed() - selected.lane.cast_signed());
            }
        }
        Some(OverlayView::Log(list)) => {
            let mut rows = layout::inner(plan.body);
            let above =
                recording_failure_lines(model.connection.recording_failure.as_deref(), rows).len();
            let above = u16::try_from(above).unwrap_or(rows.height).min(rows.height);
            (rows.y, rows.height) = (rows.y + above, rows.height - above);
            if let Some(row) = clicked(rows) {
                list.select(list.offset + row, run_view.messages().len());
            }
        }
        Some(OverlayView::Grid) => {
            let panes = model.grid.panes(plan.body);
            if let Some((place, _)) = panes.into_iter().find(|(_, area)| area.contains(at)) {
                model.grid.choose(place);
                is_row = true;
            }
        }
        Some(OverlayView::Breakpoints(list)) => {
            if let Some(row) = clicked(layout::inner(plan.body)) {
                list.select(list.offset + row, model.playhead.breakpoints.len());
            }
        }
        Some(OverlayView::Bookmarks(list)) => {
            if let Some(row) = clicked(layout::inner(plan.body)) {
                list.select(list.offset + row, model.playhead.bookmarks.list.len());
            }
        }
        Some(OverlayView::FailureGroups(view)) => {
            let mut rows = layout::inner(plan.body);
            let above = FailureGroupsView::header_rows(rows.height).min(rows.height);
            (rows.y, rows.height) = (rows.y + above, rows.height - above);
            if let Some(row) = clicked(rows) {
                view.list.select(view.list.offset + row, view.lines.len());
            }
        }
        Some(OverlayView::Inspect(view)) => {
            let areas = view.areas(plan.body);
            let len = view
                .attempt_id(run_view)
                .map_or(0, |attempt_id| run_view.rows(attempt_id).len());
            if let Some(row) = areas
                .actions
                .and_then(&mut clicked)
                .map(|row| view.actions.offset + row)
            {
                view.side = InspectSide::Actions;
                if row < len {
                    view.select(row, len);
                }
            } else if let Some(row) = areas.detail.and_then(&mut clicked) {
                view.side = InspectSide::Detail;
                view.select_line(view.lines.offset + row);
            }
        }
        Some(OverlayView::Compare(view)) => {
            let len = view.pair_count();
            let areas = view.areas(plan.body);
            if let Some(row) = clicked(areas.calls)
                .map(|row| view.list.offset + row)
                .filter(|row| *row < len)
            {
                view.list.select(row, len);
            }
        }
        Some(OverlayView::Review(view)) => {
            let [list, _] = view.areas(plan.body);
            let row = clicked(layout::inner(list)).map(|row| view.list.offset + row);
            if let Some(row) = row.filter(|row| *row < view.lines.len()) {
                view.list.select(row, view.lines.len());
            }
        }
        Some(OverlayView::Entry(_) | OverlayView::Help(_) | OverlayView::Artifacts(_)) => {}
        None => {
            if let Some(pane) = plan.units.filter(|pane| pane.contains(at)) {
                model.units_view.focus = Pane::Units;
                let line =
                    clicked(layout::unit_list(pane)).map(|line| model.units_view.offset + line);
                match line.and_then(|line| Some((line, model.units_view.listing.at(line)?))) {
                    Some((line, TableLine::Unit(_))) => select_line(model, line, true),
                    Some((line, TableLine::Group(_))) => {
                        // The first click selects a heading, the next one folds it.
                        is_row = false;
                        if line != model.selected_line() || !fold(model, None) {
                            select_line(model, line, true);
                        }
                    }
                    Some((_, TableLine::Connection(_))) | None => {}
                }
            } else if let Some(pane) = plan
                .stream
                .filter(|pane| pane.contains(at) && model.heading().is_none())
            {
                model.units_view.focus = Pane::Stream;
                let rows =
                    layout::stream_areas(pane, model.attempt(run_view).map(|(_, attempt)| attempt))
                        .rows;
                let len = model
                    .units_view
                    .attempt_id
                    .map_or(0, |attempt_id| run_view.rows(attempt_id).len());
                if let Some(row) = clicked(rows)
                    .map(|row| model.units_view.stream.offset + row)
                    .filter(|row| *row < len)
                {
                    model.units_view.stream.select(row, len);
                }
            }
        }
    }
    is_row
}

/// Handles the button held down: on the timeline bar it moves the cursor.
pub(super) fn drag(model: &mut ScreenModel, x: u16) -> Vec<ScreenEffect> {
    let plan = model.layout();
    let may = model.mouse.is_dragging_bar
        && model.dialogs.question.is_none()
        && model.dialogs.editor.is_none()
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
    if plan.bar.contains(at) && model.dialogs.editor.is_none() {
        return time::scrub_with_wheel(model, run_view, plan.bar, down);
    }
    if matches!(model.views.last(), Some(OverlayView::Grid)) {
        let panes = model.grid.panes(plan.body);
        if let Some((place, _)) = panes.into_iter().find(|(_, area)| area.contains(at)) {
            grid::scroll(model, run_view, Some((place, WHEEL_ROWS)), down);
        }
    } else if model.views.is_empty() {
        let under = [(plan.units, Pane::Units), (plan.stream, Pane::Stream)];
        let Some((_, pane)) = under
            .into_iter()
            .find(|(area, _)| area.is_some_and(|area| area.contains(at)))
        else {
            return Vec::new();
        };
        // The wheel scrolls the pane under the pointer; the focus does not change.
        let focus = std::mem::replace(&mut model.units_view.focus, pane);
        step(model, run_view, if down { WHEEL_ROWS } else { -WHEEL_ROWS });
        model.units_view.focus = focus;
    } else {
        let by = if down { WHEEL_ROWS } else { -WHEEL_ROWS };
        if let Some(OverlayView::Inspect(view)) = model.views.last_mut() {
            view.scroll_at(run_view, plan.body, at, by);
        } else if let Some(OverlayView::Review(view)) = model.views.last_mut()
            && view.areas(plan.body)[1].contains(at)
        {
            view.scroll_diff(by);
        } else {
            step(model, run_view, by);
        }
    }
    Vec::new()
}
