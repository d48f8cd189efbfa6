//! Moving about in the inspector: attempts, panels, actions, lines, folds, sections.

use super::{find, is_problem_end};
use crate::{
    run::state::{AttemptState, RowKind, RunView, StreamRow},
    tape::Seq,
    tui::{
        effect::ScreenEffect,
        model::{EntrySubject, EntryView, InspectSide, InspectView, OverlayView, Pane, Panel, ScreenModel},
    },
};

/// Opens the inspector at what is selected.
pub(super) fn open(model: &mut ScreenModel, story: &RunView) {
    let view = match model.views.last() {
        Some(OverlayView::Inspect(_)) => {
            model.views.pop();
            return;
        }
        Some(OverlayView::Transcript(view)) => {
            let Some((index, attempt)) = view.attempt(story) else { return };
            let seq = story.entries(attempt.id).get(view.list.selected).map(|seq| Seq(u64::from(*seq)));
            let action = seq.and_then(|seq| row_at(story.rows(attempt.id), seq, story.state.entries));
            InspectView::new(view.unit.clone(), index, action)
        }
        Some(OverlayView::Entry(EntryView { unit, attempt_id: lane, subject, .. })) => {
            let found = story.state.units.iter().find(|known| known.key == *unit);
            let attempt = found.and_then(|unit| unit.attempts.iter().position(|attempt| attempt.id == *lane));
            let action = match subject {
                EntrySubject::Row(row) => Some(*row),
                EntrySubject::Entry(entry) => {
                    let seq = story.entries(*lane).get(*entry).map(|seq| Seq(u64::from(*seq)));
                    seq.and_then(|seq| row_at(story.rows(*lane), seq, story.state.entries))
                }
            };
            InspectView::new(unit.clone(), attempt.unwrap_or_default(), action)
        }
        Some(OverlayView::Compare(_) | OverlayView::Grid) => {
            super::compare::enter(model);
            return;
        }
        Some(OverlayView::Help(_) | OverlayView::Log(_) | OverlayView::Breakpoints(_)) => return,
        Some(OverlayView::FailureGroups(_)) => {
            let Some(unit) = super::run_commands::target(model, story) else { return };
            let Some((index, attempt)) = unit.attempts.iter().enumerate().next_back() else { return };
            InspectView::new(unit.key.clone(), index, initial_action(story, attempt))
        }
        None => {
            model.units_view.follows_work = false;
            let Some(unit) = model.unit(story) else {
                super::run_commands::no_unit_selected(model);
                return;
            };
            let Some((index, attempt)) = model.attempt(story) else {
                let text = format!("{} has not run yet", unit.key);
                model.show_message(text);
                return;
            };
            let chosen = model.units_view.focus == Pane::Stream || !model.units_view.stream.follow;
            let action = if chosen { Some(model.units_view.stream.selected) } else { initial_action(story, attempt) };
            InspectView::new(unit.key.clone(), index, action)
        }
    };
    model.views.push(OverlayView::Inspect(Box::new(view)));
}

/// The first failure of an attempt that is over, else its first action; the newest of one that runs.
fn initial_action(story: &RunView, attempt: &AttemptState) -> Option<usize> {
    attempt.ended_at?;
    let (rows, entries) = (story.rows(attempt.id), story.state.entries);
    let bad = |row: &StreamRow| row.kind == RowKind::Tool && is_problem_end(row.end(entries));
    let telling = |row: &StreamRow| matches!(row.kind, RowKind::Tool | RowKind::Text);
    rows.iter().position(bad).or_else(|| rows.iter().position(telling)).or(Some(0))
}

/// The row that an entry began or ended, or the one before it.
fn row_at(rows: &[StreamRow], seq: Seq, entries: u64) -> Option<usize> {
    /// Rows before an entry among which the one that it ended is looked for.
    const BACK: usize = 4096;
    let after = rows.partition_point(|row| row.first() <= seq);
    let near = &rows[after.saturating_sub(BACK)..after];
    let from = after - near.len();
    let begun = near.iter().rposition(|row| row.first() == seq);
    let ended = || near.iter().rposition(|row| row.last(entries) == Some(seq));
    begun.or_else(ended).map(|index| from + index).or(after.checked_sub(1))
}

/// Rows of the half that has the keys.
pub(super) fn page(view: &InspectView, body: ratatui::layout::Rect) -> usize {
    let areas = view.areas(body);
    let area = if view.is_list() { areas.actions } else { areas.detail };
    area.map_or(1, |area| usize::from(area.height))
}

pub(super) fn step(view: &mut InspectView, story: &RunView, by: isize) {
    if view.is_list() {
        let len = rows(view, story).len();
        view.select(view.actions.selected.saturating_add_signed(by), len);
    } else {
        view.select_line(view.lines.selected.saturating_add_signed(by));
    }
}

pub(super) fn ends(view: &mut InspectView, story: &RunView, last: bool) {
    match (view.is_list(), last) {
        (true, true) => view.follow(rows(view, story).len()),
        (true, false) => view.select(0, rows(view, story).len()),
        (false, true) => view.scroll_to_end = true,
        (false, false) => view.select_line(0),
    }
}

/// Another attempt.
pub(super) fn sideways(view: &mut InspectView, story: &RunView, by: isize) {
    let (Some((index, _)), Some(unit)) = (view.attempt(story), view.unit(story)) else { return };
    let next = index.saturating_add_signed(by).min(unit.attempts.len().saturating_sub(1));
    view.attempt = index;
    view.show_panel(next, view.panel);
}

/// A panel by its number, from 0.
pub(super) fn panel(model: &mut ScreenModel, number: usize) {
    if let (Some(OverlayView::Inspect(view)), Some(panel)) = (model.views.last_mut(), Panel::ALL.get(number)) {
        view.show_panel(view.attempt, *panel);
    }
}

pub(super) fn other_side(view: &mut InspectView) {
    if view.panel == Panel::Actions {
        view.side = match view.side {
            InspectSide::Actions => InspectSide::Detail,
            InspectSide::Detail => InspectSide::Actions,
        };
    }
}

/// Opens what is selected: an action, or a value that is folded.
pub(super) fn enter(view: &mut InspectView) {
    if view.is_list() {
        view.side = InspectSide::Detail;
    } else if let Some(fold) = view.document.fold
        && !view.toggled_folds.remove(&fold)
    {
        view.toggled_folds.insert(fold);
    }
}

/// One level back. False when that is out of the inspector.
pub(super) fn back(view: &mut InspectView) -> bool {
    let inside = view.panel == Panel::Actions && view.side == InspectSide::Detail;
    if inside {
        view.side = InspectSide::Actions;
    }
    inside
}

/// The next or the previous action that failed.
pub(super) fn failure(view: &mut InspectView, story: &RunView, forward: bool) -> bool {
    let (rows, entries) = (rows(view, story), story.state.entries);
    let hit = find::nearest(rows.len(), view.actions.selected, forward, |row| is_problem_end(rows[row].end(entries)));
    let Some(hit) = hit else { return false };
    let side = view.side;
    view.show_panel(view.attempt, Panel::Actions);
    view.side = side;
    view.select(hit, rows.len());
    true
}

/// From a call to its result and back; elsewhere to the next section.
pub(super) fn counterpart(model: &mut ScreenModel, story: &RunView) {
    let missing = match model.views.last_mut() {
        Some(OverlayView::Inspect(view)) => {
            let sections = &view.document.sections;
            let next = sections.iter().find(|line| **line > view.lines.selected).or(sections.first()).copied();
            if let Some(line) = next {
                if view.panel == Panel::Actions {
                    view.side = InspectSide::Detail;
                }
                view.select_line(line);
                // The section is read from its top.
                view.lines.offset = line;
            }
            next.is_none().then_some("nothing is laid out yet")
        }
        Some(OverlayView::Transcript(view)) => {
            let lane = view.attempt(story).map(|(_, attempt)| attempt.id);
            let found = lane.and_then(|lane| other_end(story, lane, view.list.selected));
            if let (Some(lane), Some(place)) = (lane, found) {
                view.list.select(place, story.entries(lane).len());
            }
            found.is_none().then_some("this line has no counterpart")
        }
        Some(OverlayView::Entry(view)) => match view.subject {
            EntrySubject::Row(_) => Some("call and result are both shown here"),
            EntrySubject::Entry(entry) => match other_end(story, view.attempt_id, entry) {
                Some(place) => {
                    let by = isize::try_from(place).unwrap_or_default() - isize::try_from(entry).unwrap_or_default();
                    view.show_neighbour(story, by);
                    None
                }
                None => Some("this line has no counterpart"),
            },
        },
        Some(
            OverlayView::Help(_)
            | OverlayView::Log(_)
            | OverlayView::FailureGroups(_)
            | OverlayView::Compare(_)
            | OverlayView::Breakpoints(_)
            | OverlayView::Grid,
        )
        | None => None,
    };
    if let Some(words) = missing {
        model.show_message(words);
    }
}

/// The entry at the other end of the call that an entry begins or ends.
fn other_end(story: &RunView, lane: crate::run::state::AttemptId, entry: usize) -> Option<usize> {
    let (rows, entries, now) = (story.rows(lane), story.entries(lane), story.state.entries);
    let seq = Seq(u64::from(*entries.get(entry)?));
    let row = rows.get(row_at(rows, seq, now)?)?;
    let last = row.last(now).filter(|last| *last != row.first())?;
    let other = if seq == row.first() {
        last
    } else if seq == last {
        row.first()
    } else {
        return None;
    };
    entries.binary_search(&u32::try_from(other.0).ok()?).ok()
}

/// What is selected, as it truly is.
pub(super) fn copy(view: &InspectView, story: &RunView) -> Vec<ScreenEffect> {
    if !view.is_list() {
        return vec![ScreenEffect::CopySection { line: view.lines.selected }];
    }
    let rows = rows(view, story);
    rows.get(view.actions.selected).map_or_else(Vec::new, |row| super::run_commands::copy_row(story, row))
}

/// What the selected call names, or how to go on with the session.
pub(super) fn copy_name(view: &InspectView, story: &RunView) -> Vec<ScreenEffect> {
    let rows = rows(view, story);
    let row = (view.panel == Panel::Actions).then(|| rows.get(view.actions.selected)).flatten();
    let session = view.attempt(story).and_then(|(_, attempt)| attempt.session.as_deref());
    let resume = session.map(|session| format!("claude --resume {session}"));
    vec![ScreenEffect::CopyName {
        row: row.map(|row| (row.first(), row.block)),
        text: resume.clone().unwrap_or_else(|| view.unit.as_str().to_owned()),
        what: if resume.is_some() { "resume line" } else { "unit key" },
    }]
}

fn rows<'a>(view: &InspectView, story: &'a RunView) -> &'a [StreamRow] {
    view.lane(story).map_or(&[], |lane| story.rows(lane))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::state::RowEnd;

    #[test]
    fn an_entry_belongs_to_the_row_that_it_begins_or_ends() {
        let row = |first: u64, last: u64| {
            let mut row = StreamRow::new(Seq(first), 0, RowKind::Tool, RowEnd::Open, 0);
            row.close(Seq(last), RowEnd::Ok);
            row
        };
        let rows = [row(2, 9), row(4, 6), row(8, 11)];
        for (seq, expected) in [(2, Some(0)), (9, Some(0)), (6, Some(1)), (5, Some(1)), (12, Some(2)), (1, None)] {
            assert_eq!(row_at(&rows, Seq(seq), 99), expected, "{seq}");
        }
        assert_eq!(row_at(&rows, Seq(9), 9), Some(2), "what has not happened yet ends nothing");
    }
}
