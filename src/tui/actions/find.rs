//! Search, and moving from failure to failure, in the focused pane.
//!
//! Content in memory is searched immediately; a search that has to read is left to the shell.

use super::{
    ActionSpec, Availability, Unavailable, change, effects, grid, listing, navigation::select_rank,
    require,
};
use crate::{
    action::UserAction,
    effect::{ScreenEffect, SearchRequest, SearchScope},
    layout::Pane,
    model::{
        AttemptHits, FindView, InputPurpose, InspectView, LineInput, OverlayView, PaneMatches,
        ScreenModel, SearchState, is_problem_end,
    },
    search_match::{matches, nearest},
};
use ingestdeck_core::run::state::{AttemptId, RunView, UnitNeed};

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
    .when(listing::has_filter),
    change(
        UserAction::FilterText,
        "filter-text",
        "filter text",
        "only units with a name, file:… or cause:…",
        listing::type_filter,
    )
    .when(listing::has_filter),
    change(
        UserAction::Sort,
        "sort",
        "sort",
        "order units by cost, time, failures or key",
        |model, run_view| {
            listing::change(model, run_view, |listing| {
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
            listing::change(model, run_view, |listing| {
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
            listing::change(model, run_view, |listing| {
                listing.grouping = listing.grouping.cycle()
            });
        },
    )
    .when(listing::is_shown),
];

fn can_search(model: &ScreenModel, run_view: &RunView) -> Availability {
    let key = || model.keymap.first(UserAction::Open).unwrap_or_default();
    match model.views.last() {
        Some(OverlayView::Grid) => Err(Unavailable::because(format!(
            "{} opens the pane; its content can be searched there",
            key()
        ))),
        Some(OverlayView::Compare(_)) => Err(Unavailable::because(format!(
            "{} opens a call; its content can be searched there",
            key()
        ))),
        _ => require(model.search_pane(run_view).is_some()),
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

/// True if the view can have failures.
pub(crate) fn has_failures(model: &ScreenModel, _: &RunView) -> Availability {
    require(match model.views.last() {
        Some(
            OverlayView::Help(_)
            | OverlayView::Breakpoints(_)
            | OverlayView::Bookmarks(_)
            | OverlayView::Find(_)
            | OverlayView::Home(_)
            | OverlayView::Review(_),
        ) => false,
        Some(OverlayView::FailureGroups(view)) => !view.lines.is_empty(),
        Some(OverlayView::Artifacts(view)) => view.document.is_none() && !view.listed.is_empty(),
        _ => true,
    })
}

/// Submits the search text. The pane is already searched.
pub(crate) fn accept(
    model: &mut ScreenModel,
    run_view: &RunView,
    typed: String,
) -> Vec<ScreenEffect> {
    let effects = search_typed(model, run_view, &typed);
    model.search.origin = None;
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
                model.search_pane(run_view)
            } else {
                None
            };
            opened.map_or_else(Vec::new, |(_, selected, _)| {
                search(model, run_view, true, Some(selected))
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
    let Some((pane, selected, len)) = model.search_pane(run_view) else {
        return Vec::new();
    };
    let from = match first {
        Some(first) => first.checked_sub(1).unwrap_or(len.saturating_sub(1)),
        None => selected,
    };
    let known = model.search.matches.take().filter(|matches| {
        let is_current =
            model.search.pane == Some(pane) && model.search.entries == run_view.state.entries;
        // What is in memory may have another order now.
        let is_read = matches!(pane.scope, SearchScope::Rows(_) | SearchScope::Entries(_));
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
            is_match_in_memory(model, run_view, pane.scope, place, &query)
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
    let is_read = matches!(
        scope,
        SearchScope::Rows(_) | SearchScope::Entries(_) | SearchScope::Document
    );
    (!is_read).then(|| {
        PaneMatches::collect(len, |place| {
            is_match_in_memory(model, run_view, scope, place, query)
        })
    })
}

fn is_match_in_memory(
    model: &ScreenModel,
    run_view: &RunView,
    scope: SearchScope,
    place: usize,
    query: &str,
) -> bool {
    let units = &run_view.state.units;
    match (scope, model.views.last()) {
        (SearchScope::Units, _) => {
            let unit = model
                .units_view
                .listing
                .unit(place)
                .and_then(|unit| units.get(unit));
            unit.is_some_and(|unit| {
                let label = unit
                    .planned
                    .as_ref()
                    .and_then(|planned| planned.label.as_deref());
                matches(&unit.key, query) || label.is_some_and(|label| matches(label, query))
            })
        }
        (SearchScope::Messages, _) => run_view.messages().get(place).is_some_and(|message| {
            matches(&message.text, query)
                || message
                    .unit
                    .as_deref()
                    .is_some_and(|unit| matches(unit, query))
        }),
        (SearchScope::FailureGroups, Some(OverlayView::FailureGroups(view))) => {
            view.line_has(place, units, |text| matches(text, query))
        }
        (SearchScope::Changes, Some(OverlayView::Review(view))) => {
            let review = run_view.state.publication.review.as_deref();
            review
                .zip(view.lines.get(place))
                .is_some_and(|(review, line)| line.matches(review, query))
        }
        (SearchScope::Lanes, Some(OverlayView::Lanes(view))) => {
            let unit = view
                .lanes
                .attempts
                .get(place)
                .and_then(|attempt| units.get(attempt.unit));
            unit.is_some_and(|unit| matches(&unit.key, query))
        }
        (SearchScope::Artifacts, Some(OverlayView::Artifacts(view))) => view
            .listed
            .get(place)
            .is_some_and(|artifact| matches(&artifact.path, query)),
        (SearchScope::Hits, Some(OverlayView::Find(view))) => {
            let unit = view.hits.get(place).and_then(|hits| units.get(hits.unit));
            unit.is_some_and(|unit| matches(&unit.key, query))
        }
        _ => false,
    }
}

/// Lists where a text occurs in the whole run.
pub(crate) fn find_in_run(model: &mut ScreenModel, query: String) -> Vec<ScreenEffect> {
    model
        .views
        .retain(|view| !matches!(view, OverlayView::Find(_)));
    model
        .views
        .push(OverlayView::Find(FindView::new(query.clone())));
    vec![ScreenEffect::FindInRun(query)]
}

/// Adds what a search of the whole run found meanwhile.
pub(crate) fn add_hits(model: &mut ScreenModel, hits: Vec<AttemptHits>, searched: (usize, usize)) {
    let view = model.views.iter_mut().rev().find_map(|view| match view {
        OverlayView::Find(view) => Some(view),
        _ => None,
    });
    if let Some(view) = view {
        view.hits.extend(hits);
        view.searched = Some(searched);
    }
}

/// The search of the whole run ended early.
pub(crate) fn search_of_run_failed(model: &mut ScreenModel, why: &str) {
    for view in &mut model.views {
        if let OverlayView::Find(view) = view {
            view.failure = Some(why.to_owned());
        }
    }
}

/// Inspects the first match of the selected attempt; the keys of the search continue from there.
pub(crate) fn open_hits(model: &mut ScreenModel, run_view: &RunView) {
    let Some(OverlayView::Find(view)) = model.views.last() else {
        return;
    };
    let Some(hits) = view.selected().copied() else {
        return;
    };
    let Some(unit) = run_view.state.units.get(hits.unit) else {
        return;
    };
    model.search = SearchState {
        query: Some(view.query.clone()),
        ..SearchState::default()
    };
    let view = InspectView::new(unit.key.clone(), hits.attempt, Some(hits.first));
    model.views.push(OverlayView::Inspect(Box::new(view)));
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
    let elsewhere = match (model.views.is_empty(), model.units_view.focus) {
        (true, Pane::Units) => " in unit names; Tab moves to the actions",
        _ => "",
    };
    let text = format!("not found: {query}{elsewhere}");
    model.toasts.show(text);
}

fn select_match(model: &mut ScreenModel, run_view: &RunView, place: usize) {
    match model.views.last_mut() {
        Some(OverlayView::Transcript(view)) => {
            let len = view
                .attempt_id(run_view)
                .map_or(0, |attempt_id| run_view.entries(attempt_id).len());
            view.list.select(place, len);
        }
        Some(OverlayView::Compare(_)) => {}
        Some(OverlayView::Inspect(view)) if view.is_list() => {
            let len = view
                .attempt_id(run_view)
                .map_or(0, |attempt_id| run_view.rows(attempt_id).len());
            view.select(place, len);
        }
        Some(OverlayView::Inspect(view)) => {
            view.match_line = Some(place);
            view.select_line(place);
        }
        Some(OverlayView::Entry(view)) => {
            view.match_line = Some(place);
            view.scroll = place.saturating_sub(2);
        }
        Some(OverlayView::Log(list)) => list.select(place, run_view.messages().len()),
        Some(OverlayView::FailureGroups(view)) => view.list.select(place, view.lines.len()),
        Some(OverlayView::Find(view)) => view.list.select(place, view.hits.len()),
        Some(OverlayView::Lanes(view)) => view.select(place),
        Some(OverlayView::Review(view)) => {
            let len = view.lines.len();
            view.list.select(place, len);
        }
        Some(OverlayView::Artifacts(view)) => match &mut view.document {
            Some(shown) => {
                (shown.match_line, shown.scroll) = (Some(place), place.saturating_sub(2))
            }
            None => view.list.select(place, view.listed.len()),
        },
        Some(
            OverlayView::Help(_)
            | OverlayView::Breakpoints(_)
            | OverlayView::Bookmarks(_)
            | OverlayView::Grid
            | OverlayView::Home(_),
        ) => {}
        None if model.units_view.focus == Pane::Units => select_rank(model, place),
        None => {
            let len = model
                .units_view
                .attempt_id
                .map_or(0, |attempt_id| run_view.rows(attempt_id).len());
            model.units_view.stream.select(place, len);
        }
    }
}

/// Moves to the next or previous failure in the pane.
pub(crate) fn select_next_failure<const FORWARD: bool>(
    model: &mut ScreenModel,
    run_view: &RunView,
) {
    let forward = FORWARD;
    let entries = run_view.state.entries;
    match model.views.last() {
        Some(OverlayView::Compare(_)) => return super::compare::difference(model, forward),
        Some(OverlayView::Grid) => return grid::select_next_problem(model, run_view, forward),
        _ => {}
    }
    if let Some(OverlayView::Inspect(view)) = model.views.last_mut() {
        if !super::inspect::select_next_failure(view, run_view, forward) {
            model.toasts.show("no failure here");
        }
        return;
    }
    let hit = match model.views.last() {
        Some(
            OverlayView::Help(_)
            | OverlayView::Inspect(_)
            | OverlayView::Compare(_)
            | OverlayView::Breakpoints(_)
            | OverlayView::Bookmarks(_)
            | OverlayView::Find(_)
            | OverlayView::Home(_)
            | OverlayView::Review(_)
            | OverlayView::Grid,
        ) => return,
        Some(OverlayView::FailureGroups(_)) => return super::failure_groups::next(model, forward),
        Some(OverlayView::Artifacts(view)) => {
            let is_open = |index: usize| {
                let artifact = &view.listed[index];
                !artifact.state.counts() || artifact.unsourced().next().is_some()
            };
            nearest(view.listed.len(), view.list.selected, forward, is_open)
        }
        Some(OverlayView::Lanes(view)) => {
            let attempts = &view.lanes.attempts;
            nearest(attempts.len(), view.selected_index(), forward, |index| {
                attempts[index].status.need() == UnitNeed::Person
            })
        }
        Some(OverlayView::Log(list)) => {
            let messages = run_view.messages();
            nearest(messages.len(), list.selected, forward, |row| {
                messages[row].level >= ingestdeck_core::tape::note::Severity::Warning
            })
        }
        Some(OverlayView::Transcript(view)) => view.attempt_id(run_view).and_then(|attempt_id| {
            problem_entry(run_view, attempt_id, view.list.selected, forward)
        }),
        Some(OverlayView::Entry(view)) => {
            let (attempt_id, entry) = (view.attempt_id, view.entry);
            let hit = problem_entry(run_view, attempt_id, entry, forward);
            if let (Some(hit), Some(OverlayView::Entry(view))) = (hit, model.views.last_mut()) {
                let by = isize::try_from(hit).unwrap_or_default()
                    - isize::try_from(entry).unwrap_or_default();
                return view.show_neighbour(run_view, by);
            }
            hit
        }
        None if model.units_view.focus == Pane::Units => {
            let listing = &model.units_view.listing;
            let len = listing.listed_count();
            // From a heading, the first unit of its group is the next one.
            let from = match model.heading() {
                Some(_) if forward => model
                    .unit_rank()
                    .checked_sub(1)
                    .unwrap_or(len.saturating_sub(1)),
                _ => model.unit_rank(),
            };
            nearest(len, from, forward, |rank| {
                let unit = listing
                    .unit(rank)
                    .and_then(|unit| run_view.state.units.get(unit));
                unit.is_some_and(|unit| unit.status.need() == UnitNeed::Person)
            })
        }
        None => model.units_view.attempt_id.and_then(|attempt_id| {
            let rows = run_view.rows(attempt_id);
            nearest(
                rows.len(),
                model.units_view.stream.selected,
                forward,
                |row| is_problem_end(rows[row].end(entries)),
            )
        }),
    };
    match hit {
        Some(place) => select_match(model, run_view, place),
        None if model.views.is_empty() && model.units_view.focus == Pane::Units => {
            model.toasts.show("no unit needs you")
        }
        None => model.toasts.show("no failure here"),
    }
}

/// The nearest entry that ends a row with a problem.
fn problem_entry(
    run_view: &RunView,
    attempt_id: AttemptId,
    from: usize,
    forward: bool,
) -> Option<usize> {
    let (rows, entries) = (run_view.rows(attempt_id), run_view.entries(attempt_id));
    let mut bad: Vec<u64> = rows
        .iter()
        .filter(|row| is_problem_end(row.end(run_view.state.entries)))
        .filter_map(|row| row.last(run_view.state.entries))
        .map(|seq| seq.0)
        .collect();
    bad.sort_unstable();
    nearest(entries.len(), from, forward, |row| {
        bad.binary_search(&u64::from(entries[row])).is_ok()
    })
}
