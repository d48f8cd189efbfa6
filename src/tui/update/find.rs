//! Searching and jumping from failure to failure in whatever pane has the focus.
//!
//! What is at hand is searched at once; what has to be read is left to the shell.

use super::{
    super::{
        action::Action,
        effect::{Effect, Find, Over},
        model::{Model, Pane, Subject, View, is_problem},
    },
    is_bad,
    moves::choose,
};
use crate::run::state::{LaneId, Story};

/// The text of a search is complete.
pub(super) fn accept(model: &mut Model, story: &Story, typed: String) -> Vec<Effect> {
    if typed.is_empty() {
        model.search = None;
        return Vec::new();
    }
    model.search = Some(typed);
    go(model, story, true, true)
}

/// The next or the previous match.
pub(super) fn again(model: &mut Model, story: &Story, forward: bool) -> Vec<Effect> {
    if model.search.is_none() {
        let key = model.keymap.first(Action::Search).unwrap_or_default();
        model.say(format!("nothing searched yet; {key} searches"));
        return Vec::new();
    }
    go(model, story, forward, false)
}

/// `here` is true when the selected row itself may match.
fn go(model: &mut Model, story: &Story, forward: bool, here: bool) -> Vec<Effect> {
    let Some(query) = model.search.clone() else { return Vec::new() };
    // A search that starts at the selection begins one before it.
    let before = |row: usize, len: usize| match row.checked_sub(1) {
        _ if !here => row,
        Some(before) => before,
        None => len.saturating_sub(1),
    };
    let (over, from) = match model.views.last() {
        Some(View::Help(_) | View::Breakpoints(_) | View::Grid) => return Vec::new(),
        Some(View::Log(list)) => {
            let remarks = story.remarks();
            let from = before(list.selected, remarks.len());
            let hit = nearest(remarks.len(), from, forward, |row| {
                matches(&remarks[row].text, &query)
                    || remarks[row].unit.as_deref().is_some_and(|unit| matches(unit, &query))
            });
            found(model, story, hit);
            return Vec::new();
        }
        Some(View::Causes(view)) => {
            let len = view.lines.len();
            let hit = nearest(len, before(view.list.selected, len), forward, |line| {
                view.line_has(line, &story.state.units, |text| matches(text, &query))
            });
            found(model, story, hit);
            return Vec::new();
        }
        Some(View::Transcript(view)) => {
            let Some(lane) = view.lane(story) else { return Vec::new() };
            (Over::Entries(lane), before(view.list.selected, story.entries(lane).len()))
        }
        Some(View::Compare(_)) => {
            let key = model.keymap.first(Action::Open).unwrap_or_default();
            model.say(format!("{key} opens a call; what is in it can be searched there"));
            return Vec::new();
        }
        Some(View::Inspect(view)) if view.is_list() => {
            let Some(lane) = view.lane(story) else { return Vec::new() };
            (Over::Rows(lane), before(view.actions.selected, story.rows(lane).len()))
        }
        Some(View::Inspect(view)) => (Over::Document, before(view.lines.selected, view.laid.lines)),
        Some(View::Entry(view)) => (Over::Document, view.hit.unwrap_or_else(|| before(view.scroll, view.lines))),
        None if model.deck.focus == Pane::Units => {
            let (len, units) = (model.listed(story), &story.state.units);
            let hit = nearest(len, before(model.unit_row(), len), forward, |row| {
                model.listed_unit(row).and_then(|unit| units.get(unit)).is_some_and(|unit| {
                    let label = unit.planned.as_ref().and_then(|planned| planned.label.as_deref());
                    matches(&unit.key, &query) || label.is_some_and(|label| matches(label, &query))
                })
            });
            found(model, story, hit);
            return Vec::new();
        }
        None => {
            let Some(lane) = model.deck.lane else { return Vec::new() };
            (Over::Rows(lane), before(model.deck.stream.selected, story.rows(lane).len()))
        }
    };
    model.searching = true;
    vec![Effect::Find(Find { query, over, from, forward })]
}

/// A search ended.
pub(super) fn found(model: &mut Model, story: &Story, place: Option<usize>) {
    model.searching = false;
    let Some(place) = place else {
        let query = model.search.clone().unwrap_or_default();
        let elsewhere = match (model.views.is_empty(), model.deck.focus) {
            (true, Pane::Units) => " among the names of units; Tab leads to the actions",
            _ => "",
        };
        model.say(format!("not found: {query}{elsewhere}"));
        return;
    };
    land(model, story, place);
}

fn land(model: &mut Model, story: &Story, place: usize) {
    match model.views.last_mut() {
        Some(View::Transcript(view)) => {
            let len = view.lane(story).map_or(0, |lane| story.entries(lane).len());
            view.list.select(place, len);
        }
        Some(View::Compare(_)) => {}
        Some(View::Inspect(view)) if view.is_list() => {
            let len = view.lane(story).map_or(0, |lane| story.rows(lane).len());
            view.select(place, len);
        }
        Some(View::Inspect(view)) => {
            view.hit = Some(place);
            view.select_line(place);
        }
        Some(View::Entry(view)) => {
            view.hit = Some(place);
            view.scroll = place.saturating_sub(2);
        }
        Some(View::Log(list)) => list.select(place, story.remarks().len()),
        Some(View::Causes(view)) => view.list.select(place, view.lines.len()),
        Some(View::Help(_) | View::Breakpoints(_) | View::Grid) => {}
        None if model.deck.focus == Pane::Units => choose(model, story, place),
        None => {
            let len = model.deck.lane.map_or(0, |lane| story.rows(lane).len());
            model.deck.stream.select(place, len);
        }
    }
}

/// The next or the previous failure of the pane.
pub(super) fn failure(model: &mut Model, story: &Story, forward: bool) {
    let entries = story.state.entries;
    if let Some(View::Compare(_)) = model.views.last() {
        super::compare::difference(model, forward);
        return;
    }
    if let Some(View::Inspect(view)) = model.views.last_mut() {
        if !super::inspect::failure(view, story, forward) {
            model.say("no failure here");
        }
        return;
    }
    let hit = match model.views.last() {
        Some(View::Help(_) | View::Inspect(_) | View::Compare(_) | View::Breakpoints(_) | View::Grid) => return,
        Some(View::Causes(_)) => return super::causes::next(model, forward),
        Some(View::Log(list)) => {
            let remarks = story.remarks();
            nearest(remarks.len(), list.selected, forward, |row| {
                remarks[row].level >= crate::tape::note::Level::Warning
            })
        }
        Some(View::Transcript(view)) => {
            view.lane(story).and_then(|lane| bad_entry(story, lane, view.list.selected, forward))
        }
        Some(View::Entry(view)) => {
            let (lane, subject) = (view.lane, view.subject);
            let hit = match subject {
                Subject::Row(row) => {
                    let rows = story.rows(lane);
                    nearest(rows.len(), row, forward, |row| is_bad(rows[row].end(entries)))
                }
                Subject::Entry(row) => bad_entry(story, lane, row, forward),
            };
            if let (Some(hit), Some(View::Entry(view))) = (hit, model.views.last_mut()) {
                let at = match subject {
                    Subject::Row(at) | Subject::Entry(at) => at,
                };
                view.turn(story, isize::try_from(hit).unwrap_or_default() - isize::try_from(at).unwrap_or_default());
                return;
            }
            hit
        }
        None if model.deck.focus == Pane::Units => nearest(model.listed(story), model.unit_row(), forward, |row| {
            model
                .listed_unit(row)
                .and_then(|unit| story.state.units.get(unit))
                .is_some_and(|unit| is_problem(unit.status))
        }),
        None => model.deck.lane.and_then(|lane| {
            let rows = story.rows(lane);
            nearest(rows.len(), model.deck.stream.selected, forward, |row| is_bad(rows[row].end(entries)))
        }),
    };
    match hit {
        Some(place) => land(model, story, place),
        None if model.views.is_empty() && model.deck.focus == Pane::Units => model.say("no problem here"),
        None => model.say("no failure here"),
    }
}

/// The nearest entry that ends a row badly.
fn bad_entry(story: &Story, lane: LaneId, from: usize, forward: bool) -> Option<usize> {
    let (rows, entries) = (story.rows(lane), story.entries(lane));
    let mut bad: Vec<u64> = rows
        .iter()
        .filter(|row| is_bad(row.end(story.state.entries)))
        .filter_map(|row| row.last(story.state.entries))
        .map(|seq| seq.0)
        .collect();
    bad.sort_unstable();
    nearest(entries.len(), from, forward, |row| bad.binary_search(&u64::from(entries[row])).is_ok())
}

/// The first row after `from` (before it, if not `forward`) that passes; goes round the end; `from` itself last.
pub(crate) fn nearest(len: usize, from: usize, forward: bool, passes: impl Fn(usize) -> bool) -> Option<usize> {
    let from = from.min(len.checked_sub(1)?);
    (1..=len).map(|away| if forward { (from + away) % len } else { (from + len - away) % len }).find(|row| passes(*row))
}

/// Case counts only when the query has capitals.
pub(crate) fn matches(text: &str, query: &str) -> bool {
    if query.chars().any(char::is_uppercase) { text.contains(query) } else { text.to_lowercase().contains(query) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_goes_round_and_takes_the_start_last() {
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
