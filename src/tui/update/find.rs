//! Search, and moving from failure to failure, in the focused pane.
//!
//! Content in memory is searched immediately; a search that has to read is left to the shell.

use super::{
    super::{
        action::UserAction,
        effect::{ScreenEffect, SearchRequest, SearchScope},
        model::{EntrySubject, OverlayView, Pane, ScreenModel, is_problem},
    },
    is_problem_end,
    navigation::select_unit_row,
};
use crate::run::state::{AttemptId, RunView};

/// Submits the search text.
pub(super) fn accept(model: &mut ScreenModel, run_view: &RunView, typed: String) -> Vec<ScreenEffect> {
    if typed.is_empty() {
        model.search = None;
        return Vec::new();
    }
    model.search = Some(typed);
    search(model, run_view, true, true)
}

/// Moves to the next or previous match.
pub(super) fn repeat_search(model: &mut ScreenModel, run_view: &RunView, forward: bool) -> Vec<ScreenEffect> {
    if model.search.is_none() {
        let key = model.keymap.first(UserAction::Search).unwrap_or_default();
        model.show_message(format!("no search yet; {key} searches"));
        return Vec::new();
    }
    search(model, run_view, forward, false)
}

/// If `here` is true, the selected row itself may match.
fn search(model: &mut ScreenModel, run_view: &RunView, forward: bool, here: bool) -> Vec<ScreenEffect> {
    let Some(query) = model.search.clone() else { return Vec::new() };
    // To include the selection, the search begins one row before it.
    let before = |row: usize, len: usize| match row.checked_sub(1) {
        _ if !here => row,
        Some(before) => before,
        None => len.saturating_sub(1),
    };
    let (over, from) = match model.views.last() {
        Some(OverlayView::Help(_) | OverlayView::Breakpoints(_) | OverlayView::Grid) => return Vec::new(),
        Some(OverlayView::Log(list)) => {
            let messages = run_view.messages();
            let from = before(list.selected, messages.len());
            let hit = nearest(messages.len(), from, forward, |row| {
                matches(&messages[row].text, &query)
                    || messages[row].unit.as_deref().is_some_and(|unit| matches(unit, &query))
            });
            search_finished(model, run_view, hit);
            return Vec::new();
        }
        Some(OverlayView::FailureGroups(view)) => {
            let len = view.lines.len();
            let hit = nearest(len, before(view.list.selected, len), forward, |line| {
                view.line_has(line, &run_view.state.units, |text| matches(text, &query))
            });
            search_finished(model, run_view, hit);
            return Vec::new();
        }
        Some(OverlayView::Transcript(view)) => {
            let Some(attempt_id) = view.attempt_id(run_view) else { return Vec::new() };
            (SearchScope::Entries(attempt_id), before(view.list.selected, run_view.entries(attempt_id).len()))
        }
        Some(OverlayView::Compare(_)) => {
            let key = model.keymap.first(UserAction::Open).unwrap_or_default();
            model.show_message(format!("{key} opens a call; its content can be searched there"));
            return Vec::new();
        }
        Some(OverlayView::Inspect(view)) if view.is_list() => {
            let Some(attempt_id) = view.attempt_id(run_view) else { return Vec::new() };
            (SearchScope::Rows(attempt_id), before(view.actions.selected, run_view.rows(attempt_id).len()))
        }
        Some(OverlayView::Inspect(view)) => (SearchScope::Document, before(view.lines.selected, view.document.lines)),
        Some(OverlayView::Entry(view)) => {
            (SearchScope::Document, view.match_line.unwrap_or_else(|| before(view.scroll, view.lines)))
        }
        None if model.units_view.focus == Pane::Units => {
            let (len, units) = (model.listed_count(run_view), &run_view.state.units);
            let hit = nearest(len, before(model.unit_row(), len), forward, |row| {
                model.listed_unit(row).and_then(|unit| units.get(unit)).is_some_and(|unit| {
                    let label = unit.planned.as_ref().and_then(|planned| planned.label.as_deref());
                    matches(&unit.key, &query) || label.is_some_and(|label| matches(label, &query))
                })
            });
            search_finished(model, run_view, hit);
            return Vec::new();
        }
        None => {
            let Some(attempt_id) = model.units_view.attempt_id else { return Vec::new() };
            (SearchScope::Rows(attempt_id), before(model.units_view.stream.selected, run_view.rows(attempt_id).len()))
        }
    };
    model.is_searching = true;
    vec![ScreenEffect::Find(SearchRequest { query, scope: over, from, forward })]
}

/// Handles the result of a search.
pub(super) fn search_finished(model: &mut ScreenModel, run_view: &RunView, place: Option<usize>) {
    model.is_searching = false;
    let Some(place) = place else {
        let query = model.search.clone().unwrap_or_default();
        let elsewhere = match (model.views.is_empty(), model.units_view.focus) {
            (true, Pane::Units) => " in unit names; Tab moves to the actions",
            _ => "",
        };
        model.show_message(format!("not found: {query}{elsewhere}"));
        return;
    };
    select_match(model, run_view, place);
}

fn select_match(model: &mut ScreenModel, run_view: &RunView, place: usize) {
    match model.views.last_mut() {
        Some(OverlayView::Transcript(view)) => {
            let len = view.attempt_id(run_view).map_or(0, |attempt_id| run_view.entries(attempt_id).len());
            view.list.select(place, len);
        }
        Some(OverlayView::Compare(_)) => {}
        Some(OverlayView::Inspect(view)) if view.is_list() => {
            let len = view.attempt_id(run_view).map_or(0, |attempt_id| run_view.rows(attempt_id).len());
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
        Some(OverlayView::Help(_) | OverlayView::Breakpoints(_) | OverlayView::Grid) => {}
        None if model.units_view.focus == Pane::Units => select_unit_row(model, run_view, place),
        None => {
            let len = model.units_view.attempt_id.map_or(0, |attempt_id| run_view.rows(attempt_id).len());
            model.units_view.stream.select(place, len);
        }
    }
}

/// Moves to the next or previous failure in the pane.
pub(super) fn select_next_failure(model: &mut ScreenModel, run_view: &RunView, forward: bool) {
    let entries = run_view.state.entries;
    if let Some(OverlayView::Compare(_)) = model.views.last() {
        super::compare::difference(model, forward);
        return;
    }
    if let Some(OverlayView::Inspect(view)) = model.views.last_mut() {
        if !super::inspect::select_next_failure(view, run_view, forward) {
            model.show_message("no failure here");
        }
        return;
    }
    let hit = match model.views.last() {
        Some(
            OverlayView::Help(_)
            | OverlayView::Inspect(_)
            | OverlayView::Compare(_)
            | OverlayView::Breakpoints(_)
            | OverlayView::Grid,
        ) => return,
        Some(OverlayView::FailureGroups(_)) => return super::failure_groups::next(model, forward),
        Some(OverlayView::Log(list)) => {
            let messages = run_view.messages();
            nearest(messages.len(), list.selected, forward, |row| {
                messages[row].level >= crate::tape::note::Severity::Warning
            })
        }
        Some(OverlayView::Transcript(view)) => view
            .attempt_id(run_view)
            .and_then(|attempt_id| problem_entry(run_view, attempt_id, view.list.selected, forward)),
        Some(OverlayView::Entry(view)) => {
            let (attempt_id, subject) = (view.attempt_id, view.subject);
            let hit = match subject {
                EntrySubject::Row(row) => {
                    let rows = run_view.rows(attempt_id);
                    nearest(rows.len(), row, forward, |row| is_problem_end(rows[row].end(entries)))
                }
                EntrySubject::Entry(row) => problem_entry(run_view, attempt_id, row, forward),
            };
            if let (Some(hit), Some(OverlayView::Entry(view))) = (hit, model.views.last_mut()) {
                let at = match subject {
                    EntrySubject::Row(at) | EntrySubject::Entry(at) => at,
                };
                view.show_neighbour(
                    run_view,
                    isize::try_from(hit).unwrap_or_default() - isize::try_from(at).unwrap_or_default(),
                );
                return;
            }
            hit
        }
        None if model.units_view.focus == Pane::Units => {
            nearest(model.listed_count(run_view), model.unit_row(), forward, |row| {
                model
                    .listed_unit(row)
                    .and_then(|unit| run_view.state.units.get(unit))
                    .is_some_and(|unit| is_problem(unit.status))
            })
        }
        None => model.units_view.attempt_id.and_then(|attempt_id| {
            let rows = run_view.rows(attempt_id);
            nearest(rows.len(), model.units_view.stream.selected, forward, |row| is_problem_end(rows[row].end(entries)))
        }),
    };
    match hit {
        Some(place) => select_match(model, run_view, place),
        None if model.views.is_empty() && model.units_view.focus == Pane::Units => {
            model.show_message("no problem here")
        }
        None => model.show_message("no failure here"),
    }
}

/// The nearest entry that ends a row with a problem.
fn problem_entry(run_view: &RunView, attempt_id: AttemptId, from: usize, forward: bool) -> Option<usize> {
    let (rows, entries) = (run_view.rows(attempt_id), run_view.entries(attempt_id));
    let mut bad: Vec<u64> = rows
        .iter()
        .filter(|row| is_problem_end(row.end(run_view.state.entries)))
        .filter_map(|row| row.last(run_view.state.entries))
        .map(|seq| seq.0)
        .collect();
    bad.sort_unstable();
    nearest(entries.len(), from, forward, |row| bad.binary_search(&u64::from(entries[row])).is_ok())
}

/// The first row after `from` (before it, if not `forward`) that passes, with wrap-around; `from` itself is tried last.
pub(crate) fn nearest(len: usize, from: usize, forward: bool, passes: impl Fn(usize) -> bool) -> Option<usize> {
    let from = from.min(len.checked_sub(1)?);
    (1..=len).map(|away| if forward { (from + away) % len } else { (from + len - away) % len }).find(|row| passes(*row))
}

/// Smart case: case-sensitive only if the query contains capitals.
pub(crate) fn matches(text: &str, query: &str) -> bool {
    if query.chars().any(char::is_uppercase) { text.contains(query) } else { text.to_lowercase().contains(query) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_wraps_and_tries_the_start_last() {
        let even = |row: usize| row.is_multiple_of(2);
        assert_eq!(nearest(5, 0, true, even), Some(2));
        assert_eq!(nearest(5, 4, true, even), Some(0));
        assert_eq!(nearest(5, 0, false, even), Some(4));
        assert_eq!(nearest(5, 3, true, |row| row == 3), Some(3));
        assert_eq!(nearest(0, 3, true, even), None);
        assert_eq!(nearest(5, 9, true, |_| false), None);
    }

    #[test]
    fn capitals_make_a_search_exact() {
        assert!(matches("Mart_ARR", "arr"));
        assert!(!matches("mart_arr", "ARR"));
    }
}
