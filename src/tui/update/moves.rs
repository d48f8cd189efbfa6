//! Moving about: rows, pages, ends, and sideways among attempts and neighbours.

use super::{compare, inspect};
use crate::{
    run::state::Story,
    tui::model::{List, Model, Pane, View},
};

pub(super) fn other(pane: Pane) -> Pane {
    match pane {
        Pane::Units => Pane::Stream,
        Pane::Stream => Pane::Units,
    }
}

/// Rows of the pane with the focus.
pub(super) fn page(model: &Model, story: &Story) -> usize {
    let plan = model.plan(story);
    match (model.views.last(), model.deck.focus) {
        (Some(View::Inspect(view)), _) => inspect::page(view, plan.body),
        (Some(View::Compare(view)), _) => usize::from(view.areas(plan.body).calls.height),
        (Some(_), _) => usize::from(plan.body_rows()),
        (None, Pane::Units) => plan.unit_rows(),
        (None, Pane::Stream) => plan.stream_rows(model.attempt(story).map(|(_, attempt)| attempt)),
    }
}

pub(super) fn step(model: &mut Model, story: &Story, by: isize) {
    match model.views.last_mut() {
        Some(View::Transcript(view)) => {
            let len = view.lane(story).map_or(0, |lane| story.entries(lane).len());
            view.list.step(by, len);
        }
        Some(View::Inspect(view)) => inspect::step(view, story, by),
        Some(View::Compare(view)) => {
            let len = view.known();
            view.list.step(by, len);
        }
        Some(View::Entry(view)) => view.scroll = view.scroll.saturating_add_signed(by),
        Some(View::Log(list)) => list.step(by, story.remarks().len()),
        Some(View::Breakpoints(list)) => list.step(by, model.breakpoints.len()),
        Some(View::Causes(view)) => view.list.step(by, view.lines.len()),
        // Its keys are its own.
        Some(View::Grid) => {}
        Some(View::Help(list)) => list.offset = list.offset.saturating_add_signed(by),
        None if model.deck.focus == Pane::Units => {
            let row = model.unit_row().saturating_add_signed(by);
            choose(model, story, row);
        }
        None => {
            let len = model.deck.lane.map_or(0, |lane| story.rows(lane).len());
            model.deck.stream.step(by, len);
        }
    }
}

/// Selects a row of the unit table.
pub(super) fn choose(model: &mut Model, story: &Story, row: usize) {
    model.deck.auto = false;
    let row = row.min(model.listed(story).saturating_sub(1));
    if let Some(unit) = model.listed_unit(row)
        && unit != model.deck.unit
    {
        model.deck.unit = unit;
        model.deck.attempt = None;
    }
}

pub(super) fn ends(model: &mut Model, story: &Story, last: bool) {
    let go = |list: &mut List, len: usize| if last { list.end(len) } else { list.select(0, len) };
    match model.views.last_mut() {
        Some(View::Transcript(view)) => {
            let len = view.lane(story).map_or(0, |lane| story.entries(lane).len());
            go(&mut view.list, len);
        }
        Some(View::Inspect(view)) => inspect::ends(view, story, last),
        Some(View::Compare(view)) => compare::ends(view, last),
        Some(View::Entry(view)) => view.scroll = if last { view.lines } else { 0 },
        Some(View::Log(list)) => go(list, story.remarks().len()),
        Some(View::Breakpoints(list)) => go(list, model.breakpoints.len()),
        Some(View::Causes(view)) => go(&mut view.list, view.lines.len()),
        Some(View::Grid) => {}
        Some(View::Help(list)) => list.offset = if last { usize::MAX } else { 0 },
        None if model.deck.focus == Pane::Units => choose(model, story, if last { usize::MAX } else { 0 }),
        None => {
            let len = model.deck.lane.map_or(0, |lane| story.rows(lane).len());
            go(&mut model.deck.stream, len);
        }
    }
}

/// Attempts of a unit, or neighbours of an entry.
pub(super) fn sideways(model: &mut Model, story: &Story, by: isize) {
    match model.views.last_mut() {
        Some(View::Transcript(view)) => {
            if let Some((index, _)) = view.attempt(story) {
                let next = index.saturating_add_signed(by);
                if next != view.attempt {
                    view.attempt = next;
                    view.list = List::following();
                }
            }
        }
        Some(View::Inspect(view)) => inspect::sideways(view, story, by),
        Some(View::Compare(_)) => compare::sideways(model, story, by > 0),
        Some(View::Entry(view)) => view.turn(story, by),
        Some(View::Help(_) | View::Log(_) | View::Causes(_) | View::Breakpoints(_) | View::Grid) => {}
        None => {
            model.deck.auto = false;
            if let (Some((index, _)), Some(unit)) = (model.attempt(story), model.unit(story)) {
                let next = index.saturating_add_signed(by).min(unit.attempts.len().saturating_sub(1));
                // At the newest one, newer ones are shown as they come.
                model.deck.attempt = (next + 1 < unit.attempts.len()).then_some(next);
            }
        }
    }
}
