//! Navigation by rows, pages and ends, and sideways among attempts and neighbours.

use super::marks;
use crate::{
    action::{Availability, UserAction, require},
    action_spec::{ActionSpec, change, effects},
    effect::ScreenEffect,
    layout::Pane,
    model::SearchState,
    page::ScreenModel,
    pages::{compare, grid::GridPage, inspect, reading},
};
use ingestdeck_core::run::state::RunView;

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
    ),
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
            let (page, model) = model.page_mut();
            page.zoom(model);
        },
    ),
    change(
        UserAction::Open,
        "open",
        "inspect",
        "inspect, open or unfold the selection",
        open,
    )
    .special_hint(|model, _| model.heading().map(|_| "fold or unfold")),
    change(
        UserAction::Inspect,
        "inspect",
        "inspect",
        "inspect the unit, and back",
        inspect::open,
    ),
    change(
        UserAction::Read,
        "read",
        "read",
        "read the unit as a page, and back",
        reading::toggle,
    )
    .when(reading::can_read),
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
        counterpart,
    ),
    effects(
        UserAction::Back,
        "back",
        "back",
        "one level back; never quits",
        back,
    ),
];

/// Opens the selection of the table; other pages have their meaning of the key.
fn open(model: &mut ScreenModel, run_view: &RunView) {
    let is_folded = model.units_view.focus == Pane::Units && model.fold(None);
    if !is_folded {
        inspect::open(model, run_view);
    }
}

/// True if there is another attempt.
fn has_attempts(model: &ScreenModel, run_view: &RunView) -> Availability {
    let page = model.page();
    let unit = page.unit(model, run_view);
    require(
        page.attempt(model, run_view).is_some() && unit.is_some_and(|unit| unit.attempts.len() > 1),
    )
}

/// Shows the next or previous attempt, around the ends.
fn next_attempt<const BY: isize>(model: &mut ScreenModel, run_view: &RunView) {
    let (page, model) = model.page_mut();
    let count = page
        .unit(model, run_view)
        .map_or(0, |unit| unit.attempts.len());
    let Some(index) = page.attempt(model, run_view) else {
        return;
    };
    let next = if BY > 0 { index + 1 } else { index + count - 1 };
    page.show_attempt(model, run_view, next % count.max(1));
}

/// Scrolls the actions while the table has the focus, and the details while the list of actions has it.
fn scroll<const DOWN: bool>(model: &mut ScreenModel, run_view: &RunView) {
    let (page, model) = model.page_mut();
    page.scroll(model, run_view, if DOWN { 1 } else { -1 });
}

/// Moves by a row; in the grid, to the pane below or above.
fn rows<const DOWN: bool>(model: &mut ScreenModel, run_view: &RunView) {
    let (page, model) = model.page_mut();
    page.step(model, run_view, if DOWN { 1 } else { -1 });
}

fn half_pages<const HALVES: isize>(model: &mut ScreenModel, run_view: &RunView) {
    let (page, model) = model.page_mut();
    page.half_pages(model, run_view, HALVES);
}

fn next_pane<const FORWARD: bool>(model: &mut ScreenModel, _: &RunView) {
    let (page, model) = model.page_mut();
    page.next_pane(model, FORWARD);
}

/// Selects a pane of the grid or a panel of the inspector by its number, from 0.
pub(crate) fn select_tab(model: &mut ScreenModel, number: usize) {
    if model.top::<GridPage>().is_some() {
        model.grid.choose(number);
    } else {
        inspect::select_panel(model, number);
    }
}

fn go_to_first_or_last<const LAST: bool>(model: &mut ScreenModel, run_view: &RunView) {
    let (page, model) = model.page_mut();
    page.go_to_end(model, run_view, LAST);
}

/// Moves to the pane or neighbour at one side.
fn sideways<const BY: isize>(model: &mut ScreenModel, run_view: &RunView) {
    let (page, model) = model.page_mut();
    page.sideways(model, run_view, BY > 0);
}

/// Moves between a call and its result, or to the next section.
fn counterpart(model: &mut ScreenModel, run_view: &RunView) {
    let (page, model) = model.page_mut();
    if let Err(reason) = page.counterpart(run_view) {
        model.toasts.show(reason);
    }
}

/// Leaves one level, from the inside out.
fn back(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    model.pending.clear();
    let (page, shared) = model.page_mut();
    if page.back(shared) {
        return Vec::new();
    }
    // The wire is a panel of the inspector.
    inspect::leave_wire(model);
    if model.close() {
        return Vec::new();
    }
    if model.shown_query(run_view).is_some() {
        model.search = SearchState::default();
    } else if marks::clear(model) {
        // One key press only removes the marks.
    } else if model.return_to_page() {
        // One key press only returns to the causes.
    } else if model.clear_filter(run_view) {
        // One key press only clears the filter.
    } else if model.units_view.zoom {
        model.units_view.zoom = false;
    } else if model.connection.is_from_home {
        return vec![ScreenEffect::Quit];
    } else {
        model.units_view.focus = Pane::Units;
        // Without a selection, the end of a recorded run shows its results.
        model.units_view.follows_work |= model.has_results(run_view);
    }
    Vec::new()
}
