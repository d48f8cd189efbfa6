//! Search, and moving from failure to failure, in the focused pane.
//!
//! Content in memory is searched immediately; a search that has to read is left to the shell.

use super::listing;
use crate::{
    action::{Availability, Unavailable, UserAction},
    action_spec::{ActionSpec, change, effects},
    effect::{ScreenEffect, SearchRequest, SearchScope},
    layout::Pane,
    model::{InputPurpose, LineInput, PaneMatches, SearchState},
    page::ScreenModel,
    pages::find::FindPage,
    search_match::nearest,
};
use ingestdeck_core::run::state::RunView;

pub(super) const ACTIONS: &[ActionSpec] = &[
    change(
        UserAction::Search,
        "search",
        "search",
        "search in the pane",
        |model, run_view| {
            model.begin_search(run_view);
            model.dialogs.line_input = Some(LineInput::new(InputPurpose::Search));
        },
    )
    .when(can_search),
    effects(
        UserAction::NextMatch,
        "next-match",
        "next match",
        "next match",
        repeat_search::<true>,
    )
    .when(can_repeat_search),
    effects(
        UserAction::PreviousMatch,
        "previous-match",
        "previous match",
        "previous match",
        repeat_search::<false>,
    )
    .when(can_repeat_search),
    change(
        UserAction::Filter,
        "filter",
        "filter",
        "all units; those that need you, not done, running, …",
        listing::cycle_filter,
    )
    .when(listing::filters_units),
    change(
        UserAction::FilterText,
        "filter-text",
        "filter text",
        "only units with a name or conditions: cost, cause, file, …",
        listing::type_filter,
    )
    .when(listing::filters_units),
    change(
        UserAction::Sort,
        "sort",
        "sort",
        "order units by cost, time, failures or key",
        |model, run_view| {
            model.change_listing(run_view, |listing| {
                (listing.sort, listing.is_reversed) = (listing.sort.cycle(), false)
            });
        },
    )
    .when(listing::is_shown),
    change(
        UserAction::Reverse,
        "reverse",
        "reverse",
        "reverse the order",
        |model, run_view| {
            model.change_listing(run_view, |listing| {
                listing.is_reversed = !listing.is_reversed
            });
        },
    )
    .when(listing::is_shown),
    change(
        UserAction::Group,
        "group",
        "group",
        "group units by need or connection, or not",
        |model, run_view| {
            model.change_listing(run_view, |listing| {
                listing.grouping = listing.grouping.cycle()
            });
        },
    )
    .when(listing::is_shown),
];

fn can_search(model: &ScreenModel, run_view: &RunView) -> Availability {
    match (
        model.search_place(run_view),
        model.page().search_elsewhere(),
    ) {
        (Some(_), _) => Ok(()),
        (None, Some(place)) => {
            let key = model.keymap.first(UserAction::Open).unwrap_or_default();
            Err(Unavailable::because(format!("{key} {place}")))
        }
        (None, None) => Err(Unavailable::NoEffect),
    }
}

fn can_repeat_search(model: &ScreenModel, run_view: &RunView) -> Availability {
    can_search(model, run_view)?;
    if model.search.query.is_none() {
        let key = model.keymap.first(UserAction::Search).unwrap_or_default();
        return Err(Unavailable::because(format!(
            "no search yet; {key} searches"
        )));
    }
    Ok(())
}

/// Submits the search text. The pane is already searched.
pub(crate) fn accept(
    model: &mut ScreenModel,
    run_view: &RunView,
    typed: String,
) -> Vec<ScreenEffect> {
    let effects = search_typed(model, run_view, &typed);
    model.end_search();
    if model.search.query.is_some()
        && model
            .search
            .matches
            .as_ref()
            .is_some_and(|matches| matches.places.is_empty())
    {
        show_not_found(model);
    }
    effects
}

/// Searches the pane while the user types, or when it was opened with a text. A discarded text restores the position.
pub(crate) fn search_pane(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    match &model.dialogs.line_input {
        Some(LineInput {
            text,
            purpose: InputPurpose::Search,
        }) => {
            let text = text.clone();
            search_typed(model, run_view, &text)
        }
        _ => {
            model.discard_search();
            let is_new = model.search.query.is_some() && model.search.pane.is_none();
            let opened = if is_new {
                model.search_place(run_view)
            } else {
                None
            };
            opened.map_or_else(Vec::new, |place| {
                search(model, run_view, true, Some(place.selected))
            })
        }
    }
}

/// Searches for a text that changed, from the position before it was typed.
fn search_typed(model: &mut ScreenModel, run_view: &RunView, typed: &str) -> Vec<ScreenEffect> {
    let Some(mut origin) = model.search.origin.take_if(|origin| origin.typed != typed) else {
        return Vec::new();
    };
    typed.clone_into(&mut origin.typed);
    model.search = SearchState {
        query: (!typed.is_empty()).then(|| typed.to_owned()),
        ..SearchState::default()
    };
    if typed.is_empty() {
        model.restore_positions(&origin);
    }
    let selected = origin.selected;
    model.search.origin = Some(origin);
    search(model, run_view, true, Some(selected))
}

/// Moves to the next or previous match.
fn repeat_search<const FORWARD: bool>(
    model: &mut ScreenModel,
    run_view: &RunView,
) -> Vec<ScreenEffect> {
    search(model, run_view, FORWARD, None)
}

/// Searches from the selected place, which is tried last, or from `first`, which is tried first.
fn search(
    model: &mut ScreenModel,
    run_view: &RunView,
    forward: bool,
    first: Option<usize>,
) -> Vec<ScreenEffect> {
    let Some(query) = model.search.query.clone() else {
        return Vec::new();
    };
    let Some(place) = model.search_place(run_view) else {
        return Vec::new();
    };
    let pane = model.search_pane(&place);
    let (selected, len) = (place.selected, place.len);
    let from = match first {
        Some(first) => first.checked_sub(1).unwrap_or(len.saturating_sub(1)),
        None => selected,
    };
    let known = model.search.matches.take().filter(|matches| {
        let is_current =
            model.search.pane == Some(pane) && model.search.entries == run_view.state.entries;
        // What is in memory may have another order now.
        let is_read = matches!(
            pane.scope,
            SearchScope::Rows(_) | SearchScope::Entries(_) | SearchScope::Session(_)
        );
        is_current && matches.is_complete && is_read
    });
    (model.search.pane, model.search.entries) = (Some(pane), run_view.state.entries);
    let Some(matches) =
        known.or_else(|| matches_in_memory(model, run_view, pane.scope, len, &query))
    else {
        model.search.is_running = true;
        return vec![ScreenEffect::Find(SearchRequest {
            query,
            scope: pane.scope,
            from,
            forward,
        })];
    };
    let place = match matches.is_complete {
        true => nearest(len, from, forward, |place| matches.contains(place)),
        false => nearest(len, from, forward, |place| {
            model.page().is_match(model, run_view, place, &query)
        }),
    };
    model.search.matches = Some(matches);
    search_finished(model, run_view, place);
    Vec::new()
}

/// The matches in a pane whose content is in memory.
fn matches_in_memory(
    model: &ScreenModel,
    run_view: &RunView,
    scope: SearchScope,
    len: usize,
    query: &str,
) -> Option<PaneMatches> {
    let is_in_memory = matches!(scope, SearchScope::Page(_));
    let page = model.page();
    is_in_memory
        .then(|| PaneMatches::collect(len, |place| page.is_match(model, run_view, place, query)))
}

/// Handles the result of a search.
pub(crate) fn search_finished(model: &mut ScreenModel, run_view: &RunView, place: Option<usize>) {
    model.search.is_running = false;
    if model.shown_query(run_view).is_none() {
        return;
    }
    match (place, model.search.origin.take()) {
        (Some(place), origin) => {
            model.search.origin = origin;
            select_match(model, run_view, place);
        }
        (None, None) => show_not_found(model),
        (None, Some(origin)) => {
            model.restore_positions(&origin);
            model.search.origin = Some(origin);
        }
    }
}

fn show_not_found(model: &mut ScreenModel) {
    let query = model.search.query.as_deref().unwrap_or_default();
    let place = match (model.is_bottom(), model.units_view.focus) {
        (true, Pane::Units) => " in unit names",
        _ => "",
    };
    let elsewhere = if model.is_home || model.top::<FindPage>().is_some() {
        ""
    } else {
        "; :find searches all actions"
    };
    let text = format!("not found: {query}{place}{elsewhere}");
    model.toasts.show(text);
}

fn select_match(model: &mut ScreenModel, run_view: &RunView, place: usize) {
    let (page, model) = model.page_mut();
    page.select_match(model, run_view, place);
}

/// Moves to the next or previous failure in the pane.
pub(crate) fn select_next_failure<const FORWARD: bool>(
    model: &mut ScreenModel,
    run_view: &RunView,
) {
    let (page, model) = model.page_mut();
    if let Err(missing) = page.next_failure(model, run_view, FORWARD) {
        model.toasts.show(missing);
    }
}
