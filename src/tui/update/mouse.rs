//! The mouse: the left button selects, the wheel scrolls what it is over.

use ratatui::layout::{Position, Rect};

use super::{
    moves::{choose, step},
    time,
};
use crate::{
    run::state::Story,
    tui::{
        effect::Effect,
        layout,
        model::{Line, Model, Pane, Side, View},
    },
};

/// Rows that a turn of the wheel moves.
const WHEEL: isize = 3;

pub(super) fn click(model: &mut Model, story: &Story, x: u16, y: u16) -> Vec<Effect> {
    let plan = model.plan(story);
    let at = Position { x, y };
    if model.question.is_some() || model.editor.is_some() || model.amending.is_some() || plan.too_small() {
        return Vec::new();
    }
    model.pointing = plan.bar.contains(at);
    if model.pointing {
        return time::point(model, plan.bar, x);
    }
    let clicked = |rows: Rect| rows.contains(at).then(|| usize::from(y - rows.y));
    match model.views.last_mut() {
        Some(View::Transcript(view)) => {
            let mut rows = layout::inner(plan.body);
            (rows.y, rows.height) = (rows.y + 1, rows.height.saturating_sub(1));
            if let Some(row) = clicked(rows) {
                let len = view.lane(story).map_or(0, |lane| story.entries(lane).len());
                view.list.select(view.list.offset + row, len);
            }
        }
        Some(View::Log(list)) => {
            let mut rows = layout::inner(plan.body);
            let above = crate::tui::view::log::head(model.broken.as_deref(), rows);
            (rows.y, rows.height) = (rows.y + above, rows.height - above);
            if let Some(row) = clicked(rows) {
                list.select(list.offset + row, story.remarks().len());
            }
        }
        Some(View::Grid) => {
            let panes = model.grid.panes(plan.body);
            if let Some((place, _)) = panes.into_iter().find(|(_, area)| area.contains(at)) {
                model.grid.choose(place);
            }
        }
        Some(View::Breakpoints(list)) => {
            if let Some(row) = clicked(layout::inner(plan.body)) {
                list.select(list.offset + row, model.breakpoints.len());
            }
        }
        Some(View::Causes(view)) => {
            let mut rows = layout::inner(plan.body);
            let above = crate::tui::view::causes::head(rows.height).min(rows.height);
            (rows.y, rows.height) = (rows.y + above, rows.height - above);
            if let Some(row) = clicked(rows) {
                view.list.select(view.list.offset + row, view.lines.len());
            }
        }
        Some(View::Inspect(view)) => {
            let areas = view.areas(plan.body);
            let len = view.lane(story).map_or(0, |lane| story.rows(lane).len());
            if let Some(row) = areas.actions.and_then(clicked).map(|row| view.actions.offset + row) {
                view.side = Side::Actions;
                if row < len {
                    view.select(row, len);
                }
            } else if let Some(row) = areas.detail.and_then(clicked) {
                view.side = Side::Detail;
                view.select_line(view.lines.offset + row);
            }
        }
        Some(View::Compare(view)) => {
            let len = view.known();
            let areas = view.areas(plan.body);
            if let Some(row) = clicked(areas.calls).map(|row| view.list.offset + row).filter(|row| *row < len) {
                view.list.select(row, len);
            }
        }
        Some(View::Entry(_) | View::Help(_)) => {}
        None => {
            if let Some(pane) = plan.units.filter(|pane| pane.contains(at)) {
                model.deck.focus = Pane::Units;
                let line = clicked(layout::unit_list(pane)).map(|line| model.deck.offset + line);
                if let Some(Line::Unit { row, .. }) = line.and_then(|line| model.deck.listing.at(line))
                    && row < model.listed(story)
                {
                    choose(model, story, row);
                }
            } else if let Some(pane) = plan.stream.filter(|pane| pane.contains(at)) {
                model.deck.focus = Pane::Stream;
                let rows = layout::stream_list(pane, model.attempt(story).map(|(_, attempt)| attempt)).0;
                let len = model.deck.lane.map_or(0, |lane| story.rows(lane).len());
                if let Some(row) = clicked(rows).map(|row| model.deck.stream.offset + row).filter(|row| *row < len) {
                    model.deck.stream.select(row, len);
                }
            }
        }
    }
    Vec::new()
}

/// The button is held down: whoever points at the bar draws its cursor along.
pub(super) fn drag(model: &mut Model, story: &Story, x: u16) -> Vec<Effect> {
    let plan = model.plan(story);
    let may = model.pointing && model.question.is_none() && model.editor.is_none() && !plan.too_small();
    if may && plan.bar.height > 0 { time::point(model, plan.bar, x) } else { Vec::new() }
}

pub(super) fn wheel(model: &mut Model, story: &Story, x: u16, y: u16, down: bool) -> Vec<Effect> {
    if model.question.is_some() {
        return Vec::new();
    }
    let plan = model.plan(story);
    let at = Position { x, y };
    if plan.bar.contains(at) && model.editor.is_none() {
        return time::turn_wheel(model, story, plan.bar, down);
    }
    if matches!(model.views.last(), Some(View::Grid)) {
        let panes = model.grid.panes(plan.body);
        if let Some((place, _)) = panes.into_iter().find(|(_, area)| area.contains(at)) {
            super::grid::scroll(model, story, Some((place, WHEEL)), down);
        }
    } else if model.views.is_empty() {
        let under = [(plan.units, Pane::Units), (plan.stream, Pane::Stream)];
        let Some((_, pane)) = under.into_iter().find(|(area, _)| area.is_some_and(|area| area.contains(at))) else {
            return Vec::new();
        };
        // The wheel scrolls what it is over; the focus stays where the keys are.
        let focus = std::mem::replace(&mut model.deck.focus, pane);
        step(model, story, if down { WHEEL } else { -WHEEL });
        model.deck.focus = focus;
    } else {
        step(model, story, if down { WHEEL } else { -WHEEL });
    }
    Vec::new()
}
