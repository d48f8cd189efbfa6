//! Navigation by rows, pages and ends, and sideways among attempts and neighbours.

use super::{
    ActionSpec, Availability, bookmarks, change, compare, effects, grid, inspect, is_grid, require,
    views,
};
use crate::{
    action::UserAction,
    layout::{self, Pane},
    model::{
        ArtifactDocument, HomeRunState, OverlayView, PaneDirection, ScreenModel, ScrollList,
        TableLine,
    },
};
use ingestdeck_core::run::state::{RunView, UnitState};

pub(super) const ACTIONS: &[ActionSpec] = &[
    change(UserAction::Down, "down", "down", "next row", rows::<true>),
    change(UserAction::Up, "up", "up", "previous row", rows::<false>),
    change(
        UserAction::Top,
        "top",
        "top",
        "first row",
        go_to_first_or_last::<false>,
    ),
    change(
        UserAction::Bottom,
        "bottom",
        "end",
        "last row; follow new rows",
        go_to_first_or_last::<true>,
    ),
    change(
        UserAction::HalfDown,
        "half-down",
        "½ down",
        "half a page down",
        half_pages::<1>,
    ),
    change(
        UserAction::HalfUp,
        "half-up",
        "½ up",
        "half a page up",
        half_pages::<-1>,
    ),
    change(
        UserAction::PageDown,
        "page-down",
        "page down",
        "a page down",
        half_pages::<2>,
    ),
    change(
        UserAction::PageUp,
        "page-up",
        "page up",
        "a page up",
        half_pages::<-2>,
    ),
    change(
        UserAction::Right,
        "right",
        "right",
        "pane or neighbour at the right; unfold",
        sideways::<1>,
    )
    .special_hint(|model, _| {
        matches!(model.views.last(), Some(OverlayView::Entry(_))).then_some("next")
    }),
    change(
        UserAction::Left,
        "left",
        "left",
        "pane or neighbour at the left; fold",
        sideways::<-1>,
    ),
    change(
        UserAction::NextAttempt,
        "next-attempt",
        "attempt",
        "next attempt, then the first",
        next_attempt::<1>,
    )
    .when(has_attempts),
    change(
        UserAction::PreviousAttempt,
        "previous-attempt",
        "attempt",
        "previous attempt, then the last",
        next_attempt::<-1>,
    )
    .when(has_attempts),
    change(
        UserAction::ScrollDown,
        "scroll-down",
        "scroll",
        "scroll the actions down",
        scroll::<true>,
    ),
    change(
        UserAction::ScrollUp,
        "scroll-up",
        "scroll",
        "scroll the actions up",
        scroll::<false>,
    ),
    change(
        UserAction::NextPane,
        "next-pane",
        "pane",
        "next pane",
        next_pane::<true>,
    ),
    change(
        UserAction::PreviousPane,
        "previous-pane",
        "pane",
        "previous pane",
        next_pane::<false>,
    ),
    change(
        UserAction::Zoom,
        "zoom",
        "zoom",
        "the focused pane alone, and back",
        |model, _| {
            let zoom = match model.views.last_mut() {
                Some(OverlayView::Inspect(view)) => &mut view.zoom,
                Some(OverlayView::Grid) => &mut model.grid.zoom,
                _ => &mut model.units_view.zoom,
            };
            *zoom = !*zoom;
        },
    ),
    effects(
        UserAction::Open,
        "open",
        "inspect",
        "inspect, open or unfold the selection",
        views::open,
    )
    .when(|model, _| match model.views.last() {
        Some(OverlayView::FailureGroups(view)) => require(!view.lines.is_empty()),
        Some(OverlayView::Find(view)) => require(!view.hits.is_empty()),
        Some(OverlayView::Bookmarks(_)) => bookmarks::is_selected(model),
        Some(OverlayView::Home(view)) => require(view.line().is_some()),
        Some(OverlayView::Lanes(view)) => require(view.selected().is_some()),
        Some(OverlayView::Artifacts(view)) => {
            require(view.document.is_none() && view.selected().is_some())
        }
        _ => Ok(()),
    })
    .special_hint(|model, _| match model.views.last() {
        Some(OverlayView::Breakpoints(_)) => Some("on or off"),
        Some(OverlayView::Bookmarks(_)) => Some("go there"),
        None if model.heading().is_some() => Some("fold or unfold"),
        Some(OverlayView::Home(view))
            if view
                .run()
                .is_some_and(|run| run.state == HomeRunState::Active) =>
        {
            Some("watch")
        }
        Some(OverlayView::Grid) | None => None,
        Some(_) => Some("open"),
    }),
    change(
        UserAction::Inspect,
        "inspect",
        "inspect",
        "inspect the unit, and back",
        inspect::open,
    ),
    change(
        UserAction::Compare,
        "compare",
        "compare",
        "two attempts side by side, and back",
        compare::open,
    ),
    // The key selects by its number; see `update`.
    change(
        UserAction::Tab,
        "tab",
        "panel",
        "panel or pane by number",
        |_, _| {},
    ),
    change(
        UserAction::Counterpart,
        "counterpart",
        "match",
        "from a call to its result and back",
        inspect::counterpart,
    ),
    change(
        UserAction::Back,
        "back",
        "back",
        "one level back; never quits",
        views::back,
    ),
];

/// The unit and the attempt that are shown.
fn shown_attempt<'a>(model: &ScreenModel, run_view: &'a RunView) -> Option<(usize, &'a UnitState)> {
    let (index, unit) = match model.views.last() {
        Some(OverlayView::Transcript(view)) => (view.attempt(run_view)?.0, view.unit(run_view)?),
        Some(OverlayView::Inspect(view)) => (view.attempt(run_view)?.0, view.unit(run_view)?),
        None => (model.attempt(run_view)?.0, model.unit(run_view)?),
        Some(_) => return None,
    };
    Some((index, unit))
}

/// True if there is another attempt.
fn has_attempts(model: &ScreenModel, run_view: &RunView) -> Availability {
    require(shown_attempt(model, run_view).is_some_and(|(_, unit)| unit.attempts.len() > 1))
}

/// Shows the next or previous attempt, around the ends.
fn next_attempt<const BY: isize>(model: &mut ScreenModel, run_view: &RunView) {
    let Some((index, unit)) = shown_attempt(model, run_view) else {
        return;
    };
    let count = unit.attempts.len();
    let next = if BY > 0 {
        (index + 1) % count
    } else {
        (index + count - 1) % count
    };
    match model.views.last_mut() {
        Some(OverlayView::Transcript(view)) => {
            (view.attempt, view.list, view.awaited) = (next, ScrollList::following(), None);
        }
        Some(OverlayView::Inspect(view)) => inspect::show_attempt(view, run_view, next),
        // With the newest attempt selected, later attempts are shown automatically.
        _ => {
            model.units_view.follows_work = false;
            model.units_view.attempt = (next + 1 < count).then_some(next);
        }
    }
}

/// Scrolls the actions while the table has the focus, and the details while the list of actions has it.
fn scroll<const DOWN: bool>(model: &mut ScreenModel, run_view: &RunView) {
    let by = if DOWN { 1 } else { -1 };
    match model.views.last_mut() {
        None => {
            let focus = std::mem::replace(&mut model.units_view.focus, Pane::Stream);
            step(model, run_view, by);
            model.units_view.focus = focus;
        }
        Some(OverlayView::Inspect(view)) => {
            view.select_line(view.lines.selected.saturating_add_signed(by))
        }
        Some(OverlayView::Review(view)) if !view.in_diff => view.scroll_diff(by),
        Some(_) => step(model, run_view, by),
    }
}

/// Moves by a row; in the grid, to the pane below or above.
fn rows<const DOWN: bool>(model: &mut ScreenModel, run_view: &RunView) {
    if is_grid(model) {
        let body = model.layout().body;
        model.grid.go(
            if DOWN {
                PaneDirection::Down
            } else {
                PaneDirection::Up
            },
            body,
        );
    } else {
        step(model, run_view, if DOWN { 1 } else { -1 });
    }
}

/// Moves by half a page, or by two halves; in the grid always by half of the pane.
fn half_pages<const HALVES: isize>(model: &mut ScreenModel, run_view: &RunView) {
    if is_grid(model) {
        return grid::scroll(model, run_view, None, HALVES > 0);
    }
    let page = isize::try_from(page(model, run_view)).unwrap_or(1).max(1);
    if let Some(OverlayView::Review(view)) = model.views.last_mut()
        && !view.in_diff
    {
        return view.scroll_diff(if HALVES.abs() == 1 { page / 2 } else { page } * HALVES.signum());
    }
    let by = if HALVES.abs() == 1 {
        (page / 2).max(1)
    } else {
        page
    };
    step(model, run_view, by * HALVES.signum());
}

fn next_pane<const FORWARD: bool>(model: &mut ScreenModel, _: &RunView) {
    // The units of a selected group are only listed in the other pane.
    let is_heading = model.heading().is_some();
    match model.views.last_mut() {
        Some(OverlayView::Inspect(view)) => inspect::toggle_side(view),
        Some(OverlayView::Compare(view)) => view.side = 1 - view.side,
        Some(OverlayView::Review(view)) => view.in_diff = !view.in_diff,
        Some(OverlayView::Grid) => model.grid.step(FORWARD),
        Some(_) => {}
        None if is_heading => model.units_view.focus = Pane::Units,
        None => model.units_view.focus = other(model.units_view.focus),
    }
}

/// Selects a pane of the grid or a panel of the inspector by its number, from 0.
pub(crate) fn select_tab(model: &mut ScreenModel, number: usize) {
    if is_grid(model) {
        model.grid.choose(number);
    } else {
        inspect::select_panel(model, number);
    }
}

fn other(pane: Pane) -> Pane {
    match pane {
        Pane::Units => Pane::Stream,
        Pane::Stream => Pane::Units,
    }
}

/// Rows of the focused pane.
fn page(model: &ScreenModel, run_view: &RunView) -> usize {
    let plan = model.layout();
    match (model.views.last(), model.units_view.focus) {
        (Some(OverlayView::Inspect(view)), _) => inspect::page(view, plan.body),
        (Some(OverlayView::Compare(view)), _) => usize::from(view.areas(plan.body).calls.height),
        (Some(OverlayView::Transcript(_)), _) => {
            usize::from(layout::inspector_areas(plan.body)[2].height)
        }
        (Some(_), _) => usize::from(plan.body_rows()),
        (None, Pane::Units) => plan.unit_rows(),
        (None, Pane::Stream) => {
            plan.stream_rows(model.attempt(run_view).map(|(_, attempt)| attempt))
        }
    }
}

pub(crate) fn step(model: &mut ScreenModel, run_view: &RunView, by: isize) {
    match model.views.last_mut() {
        Some(OverlayView::Transcript(view)) => {
            let len = view
                .attempt_id(run_view)
                .map_or(0, |attempt_id| run_view.entries(attempt_id).len());
            view.list.step(by, len);
        }
        Some(OverlayView::Inspect(view)) => inspect::step(view, run_view, by),
        Some(OverlayView::Compare(view)) => {
            let len = view.pair_count();
            view.list.step(by, len);
        }
        Some(OverlayView::Entry(view)) => view.scroll = view.scroll.saturating_add_signed(by),
        Some(OverlayView::Log(list)) => list.step(by, run_view.messages().len()),
        Some(OverlayView::Breakpoints(list)) => list.step(by, model.playhead.breakpoints.len()),
        Some(OverlayView::Bookmarks(list)) => list.step(by, model.playhead.bookmarks.list.len()),
        Some(OverlayView::FailureGroups(view)) => view.list.step(by, view.lines.len()),
        Some(OverlayView::Find(view)) => view.list.step(by, view.hits.len()),
        Some(OverlayView::Home(view)) => {
            view.select(view.list.selected.saturating_add_signed(by), by > 0)
        }
        Some(OverlayView::Lanes(view)) => view.step(by),
        Some(OverlayView::Review(view)) => view.step(by),
        Some(OverlayView::Artifacts(view)) => match &mut view.document {
            Some(shown) => shown.scroll = shown.scroll.saturating_add_signed(by),
            None => view.list.step(by, view.listed.len()),
        },
        Some(OverlayView::Grid) => {}
        Some(OverlayView::Help(view)) => view.offset = view.offset.saturating_add_signed(by),
        None if model.units_view.focus == Pane::Units => {
            let line = model.selected_line().saturating_add_signed(by);
            select_line(model, line, by > 0);
        }
        None => {
            let len = model
                .units_view
                .attempt_id
                .map_or(0, |attempt_id| run_view.rows(attempt_id).len());
            model.units_view.stream.step(by, len);
        }
    }
}

/// Selects a unit of the table.
pub(crate) fn select_unit(model: &mut ScreenModel, unit: usize) {
    let view = &mut model.units_view;
    (view.follows_work, view.heading) = (false, None);
    if unit != view.unit {
        (view.unit, view.attempt) = (unit, None);
    }
}

/// Selects a unit by its rank among the listed ones.
pub(crate) fn select_rank(model: &mut ScreenModel, rank: usize) {
    if let Some(unit) = model.units_view.listing.unit(rank) {
        select_unit(model, unit);
    }
}

/// Selects a line of the table, or the nearest one that can be selected: a unit or a heading.
pub(crate) fn select_line(model: &mut ScreenModel, line: usize, forward: bool) {
    let listing = &model.units_view.listing;
    let line = line.min(listing.line_count().saturating_sub(1));
    let selectable =
        |line: &usize| !matches!(listing.at(*line), None | Some(TableLine::Connection(_)));
    let after = || (line..listing.line_count()).find(selectable);
    let before = || (0..=line).rev().find(selectable);
    let found = if forward {
        after().or_else(before)
    } else {
        before().or_else(after)
    };
    match found.and_then(|line| listing.at(line)) {
        Some(TableLine::Unit(unit)) => select_unit(model, unit),
        Some(TableLine::Group(group)) => {
            model.units_view.heading = Some(group.key.clone());
            model.units_view.follows_work = false;
        }
        Some(TableLine::Connection(_)) | None => {}
    }
}

/// Folds or unfolds the selected group; `None` changes it. Returns false if that changes nothing.
pub(crate) fn fold(model: &mut ScreenModel, folded: Option<bool>) -> bool {
    let Some(key) = model.heading().map(|group| group.key.clone()) else {
        return false;
    };
    model.units_view.listing.set_folded(&key, folded)
}

fn go_to_first_or_last<const LAST: bool>(model: &mut ScreenModel, run_view: &RunView) {
    let go = |list: &mut ScrollList, len: usize| {
        if LAST {
            list.end(len)
        } else {
            list.select(0, len)
        }
    };
    match model.views.last_mut() {
        Some(OverlayView::Transcript(view)) => {
            let len = view
                .attempt_id(run_view)
                .map_or(0, |attempt_id| run_view.entries(attempt_id).len());
            go(&mut view.list, len);
        }
        Some(OverlayView::Inspect(view)) => inspect::go_to_first_or_last(view, run_view, LAST),
        Some(OverlayView::Compare(view)) => compare::go_to_first_or_last(view, LAST),
        Some(OverlayView::Entry(view)) => view.scroll = if LAST { view.lines } else { 0 },
        Some(OverlayView::Log(list)) => go(list, run_view.messages().len()),
        Some(OverlayView::Breakpoints(list)) => go(list, model.playhead.breakpoints.len()),
        Some(OverlayView::Bookmarks(list)) => go(list, model.playhead.bookmarks.list.len()),
        Some(OverlayView::FailureGroups(view)) => go(&mut view.list, view.lines.len()),
        Some(OverlayView::Find(view)) => go(&mut view.list, view.hits.len()),
        Some(OverlayView::Home(view)) => view.select(if LAST { usize::MAX } else { 0 }, !LAST),
        Some(OverlayView::Lanes(view)) => view.select(if LAST { usize::MAX } else { 0 }),
        Some(OverlayView::Review(view)) if view.in_diff => {
            view.diff_row = if LAST { usize::MAX } else { 0 }
        }
        Some(OverlayView::Review(view)) => {
            let len = view.lines.len();
            go(&mut view.list, len);
        }
        Some(OverlayView::Artifacts(view)) => match &mut view.document {
            Some(shown) => shown.scroll = if LAST { shown.lines } else { 0 },
            None => view
                .list
                .select(if LAST { usize::MAX } else { 0 }, view.listed.len()),
        },
        Some(OverlayView::Grid) => {
            if let Some(pane) = model.grid.panes.get_mut(model.grid.focus) {
                let len = pane.len(run_view);
                go(&mut pane.list, len);
            }
        }
        Some(OverlayView::Help(view)) => view.offset = if LAST { usize::MAX } else { 0 },
        None if model.units_view.focus == Pane::Units => {
            select_line(model, if LAST { usize::MAX } else { 0 }, !LAST)
        }
        None => {
            let len = model
                .units_view
                .attempt_id
                .map_or(0, |attempt_id| run_view.rows(attempt_id).len());
            go(&mut model.units_view.stream, len);
        }
    }
}

/// Moves to the pane or neighbour at one side. On a heading, unfolds or folds its group.
fn sideways<const BY: isize>(model: &mut ScreenModel, run_view: &RunView) {
    let right = BY > 0;
    match model.views.last_mut() {
        Some(OverlayView::Inspect(view)) => inspect::go_to_side(view, right),
        Some(OverlayView::Compare(_)) => compare::show_adjacent(model, run_view, right),
        Some(OverlayView::Entry(view)) => view.show_neighbour(run_view, BY),
        Some(OverlayView::Lanes(view)) => view.step_in_lane(right),
        Some(OverlayView::Artifacts(view)) => {
            if view.document.is_some() {
                view.list.step(BY, view.listed.len());
                view.document = Some(ArtifactDocument::default());
            }
        }
        Some(OverlayView::Grid) => {
            let body = model.layout().body;
            model.grid.go(
                if right {
                    PaneDirection::Right
                } else {
                    PaneDirection::Left
                },
                body,
            );
        }
        Some(_) => {}
        None => sideways_in_units(model, right),
    }
}

fn sideways_in_units(model: &mut ScreenModel, right: bool) {
    let focus = model.units_view.focus;
    if focus == Pane::Units && fold(model, Some(!right)) {
        return;
    }
    match (focus, right) {
        (_, true) if model.heading().is_some() => {}
        (_, true) => model.units_view.focus = Pane::Stream,
        (Pane::Stream, false) => model.units_view.focus = Pane::Units,
        (Pane::Units, false) => {
            let group = model
                .units_view
                .listing
                .group_of(model.units_view.unit)
                .map(|group| group.key.clone());
            if group.is_some() {
                (model.units_view.heading, model.units_view.follows_work) = (group, false);
            }
        }
    }
}
