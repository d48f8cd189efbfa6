//! Navigation in the inspector: attempts, panels, actions, lines, folds and sections.

use crate::{
    effect::ScreenEffect,
    layout::Pane,
    model::{
        EntryView, InspectPanel, InspectSide, InspectView, OverlayView, ScreenModel, ScrollList,
        TranscriptView, is_problem_end,
    },
    search_match::nearest,
};
use ingestdeck_core::{
    run::state::{AttemptState, RowKind, RunView, StreamRow},
    tape::Seq,
};

/// Opens the inspector at the selection.
pub(crate) fn open(model: &mut ScreenModel, run_view: &RunView) {
    let view = match model.views.last() {
        Some(OverlayView::Inspect(_)) => {
            model.views.pop();
            return;
        }
        Some(OverlayView::Transcript(view)) => {
            let Some((index, attempt)) = view.attempt(run_view) else {
                return;
            };
            let seq = run_view
                .entries(attempt.id)
                .get(view.list.selected)
                .map(|seq| Seq(u64::from(*seq)));
            let action =
                seq.and_then(|seq| row_at(run_view.rows(attempt.id), seq, run_view.state.entries));
            InspectView::new(view.unit.clone(), index, action)
        }
        Some(OverlayView::Entry(EntryView {
            unit,
            attempt_id,
            entry,
            ..
        })) => {
            let found = run_view.state.units.iter().find(|known| known.key == *unit);
            let attempt = found.and_then(|unit| {
                unit.attempts
                    .iter()
                    .position(|attempt| attempt.id == *attempt_id)
            });
            let seq = run_view
                .entries(*attempt_id)
                .get(*entry)
                .map(|seq| Seq(u64::from(*seq)));
            let action =
                seq.and_then(|seq| row_at(run_view.rows(*attempt_id), seq, run_view.state.entries));
            InspectView::new(unit.clone(), attempt.unwrap_or_default(), action)
        }
        Some(OverlayView::Compare(_)) => {
            super::compare::enter(model);
            return;
        }
        Some(
            OverlayView::Help(_)
            | OverlayView::Log(_)
            | OverlayView::Breakpoints(_)
            | OverlayView::Bookmarks(_)
            | OverlayView::Home(_),
        ) => return,
        Some(OverlayView::Find(_)) => return super::find::open_hits(model, run_view),
        Some(OverlayView::Lanes(view)) => {
            let Some(shown) = view.selected() else { return };
            let Some(unit) = run_view.state.units.get(shown.unit) else {
                return;
            };
            let Some(attempt) = unit.attempts.get(shown.attempt) else {
                return;
            };
            InspectView::new(
                unit.key.clone(),
                shown.attempt,
                initial_action(run_view, attempt),
            )
        }
        Some(OverlayView::Artifacts(view)) => {
            let Some(unit) = super::units::target(model, run_view) else {
                return model.toasts.show("no unit of this run wrote it");
            };
            let number = view.writer().map(|writer| writer.attempt);
            let found = unit
                .attempts
                .iter()
                .enumerate()
                .find(|(_, attempt)| Some(attempt.number) == number);
            let Some((index, attempt)) = found else {
                return model.toasts.show("a prior run wrote it");
            };
            InspectView::new(unit.key.clone(), index, initial_action(run_view, attempt))
        }
        Some(OverlayView::FailureGroups(_) | OverlayView::Review(_)) => {
            let Some(unit) = super::units::target(model, run_view) else {
                return;
            };
            let Some((index, attempt)) = unit.attempts.iter().enumerate().next_back() else {
                return;
            };
            InspectView::new(unit.key.clone(), index, initial_action(run_view, attempt))
        }
        Some(OverlayView::Grid) | None => {
            model.units_view.follows_work = false;
            let Some(unit) = model.unit(run_view) else {
                return super::units::no_unit_selected(model);
            };
            let Some((index, attempt)) = model.attempt(run_view) else {
                let text = format!("{} has not run yet", unit.key);
                model.toasts.show(text);
                return;
            };
            let chosen = model.views.is_empty()
                && (model.units_view.focus == Pane::Stream || !model.units_view.stream.follow);
            let action = if chosen {
                Some(model.units_view.stream.selected)
            } else {
                initial_action(run_view, attempt)
            };
            InspectView::new(unit.key.clone(), index, action)
        }
    };
    model.views.push(OverlayView::Inspect(Box::new(view)));
}

/// The first failure of a finished attempt, otherwise its first action; the newest action of a running attempt.
fn initial_action(run_view: &RunView, attempt: &AttemptState) -> Option<usize> {
    attempt.ended_at?;
    let (rows, entries) = (run_view.rows(attempt.id), run_view.state.entries);
    let bad = |row: &StreamRow| row.kind == RowKind::Tool && is_problem_end(row.end(entries));
    let telling = |row: &StreamRow| matches!(row.kind, RowKind::Tool | RowKind::Text);
    rows.iter()
        .position(bad)
        .or_else(|| rows.iter().position(telling))
        .or(Some(0))
}

/// The row that an entry began or ended, or the row before it.
pub(crate) fn row_at(rows: &[StreamRow], seq: Seq, entries: u64) -> Option<usize> {
    /// Number of rows before an entry in which the row that it ended is searched.
    const BACK: usize = 4096;
    let after = rows.partition_point(|row| row.first() <= seq);
    let near = &rows[after.saturating_sub(BACK)..after];
    let from = after - near.len();
    let begun = near.iter().rposition(|row| row.first() == seq);
    let ended = || near.iter().rposition(|row| row.last(entries) == Some(seq));
    begun
        .or_else(ended)
        .map(|index| from + index)
        .or(after.checked_sub(1))
}

/// Rows of the focused half.
pub(crate) fn page(view: &InspectView, body: ratatui::layout::Rect) -> usize {
    let areas = view.areas(body);
    let area = if view.is_list() {
        areas.actions
    } else {
        areas.detail
    };
    area.map_or(1, |area| usize::from(area.height))
}

pub(crate) fn step(view: &mut InspectView, run_view: &RunView, by: isize) {
    if view.is_list() {
        let len = rows(view, run_view).len();
        view.select(view.actions.selected.saturating_add_signed(by), len);
    } else {
        view.select_line(view.lines.selected.saturating_add_signed(by));
    }
}

pub(crate) fn go_to_first_or_last(view: &mut InspectView, run_view: &RunView, last: bool) {
    match (view.is_list(), last) {
        (true, true) => view.follow(rows(view, run_view).len()),
        (true, false) => view.select(0, rows(view, run_view).len()),
        (false, true) => view.scroll_to_end = true,
        (false, false) => view.select_line(0),
    }
}

/// Shows another attempt, in the same panel.
pub(crate) fn show_attempt(view: &mut InspectView, run_view: &RunView, attempt: usize) {
    if let Some((index, _)) = view.attempt(run_view) {
        (view.attempt, view.awaited) = (index, None);
        view.show_panel(attempt, view.panel);
    }
}

/// Shows the attempt with this index, in the panel that is shown.
pub(crate) fn select_attempt(model: &mut ScreenModel, run_view: &RunView, index: usize) {
    match model.views.last_mut() {
        Some(OverlayView::Inspect(view)) => show_attempt(view, run_view, index),
        Some(OverlayView::Transcript(view)) if view.attempt != index => {
            (view.attempt, view.list, view.awaited) = (index, ScrollList::following(), None);
        }
        _ => {}
    }
}

/// Moves the focus to the details at the right, or to the actions at the left.
pub(crate) fn go_to_side(view: &mut InspectView, right: bool) {
    if view.panel == InspectPanel::Actions {
        view.side = if right {
            InspectSide::Detail
        } else {
            InspectSide::Actions
        };
    }
}

/// Selects a panel by its number, from 0. The last one is the wire, a separate view.
pub(crate) fn select_panel(model: &mut ScreenModel, number: usize) {
    if number < InspectPanel::ALL.len() {
        leave_wire(model);
    }
    let Some(OverlayView::Inspect(view)) = model.views.last_mut() else {
        return;
    };
    match InspectPanel::ALL.get(number) {
        Some(panel) => view.show_panel(view.attempt, *panel),
        None if number == InspectPanel::ALL.len() => {
            let (unit, attempt) = (view.unit.clone(), view.attempt);
            let (list, awaited) = (ScrollList::following(), view.awaited);
            model.views.push(OverlayView::Transcript(TranscriptView {
                unit,
                attempt,
                list,
                awaited,
            }));
        }
        None => {}
    }
}

/// From the wire back to the panel below it, which then shows the same attempt.
pub(crate) fn leave_wire(model: &mut ScreenModel) {
    if let [.., OverlayView::Inspect(_), OverlayView::Transcript(_)] = model.views.as_slice()
        && let Some(OverlayView::Transcript(wire)) = model.views.pop()
        && let Some(OverlayView::Inspect(view)) = model.views.last_mut()
    {
        view.show_panel(wire.attempt, view.panel);
        view.awaited = wire.awaited;
    }
}

pub(crate) fn toggle_side(view: &mut InspectView) {
    if view.panel == InspectPanel::Actions {
        view.side = match view.side {
            InspectSide::Actions => InspectSide::Detail,
            InspectSide::Detail => InspectSide::Actions,
        };
    }
}

/// Opens the selection: an action, or a folded value.
pub(crate) fn enter(view: &mut InspectView) {
    if view.is_list() {
        view.side = InspectSide::Detail;
    } else if let Some(fold) = view.document.fold
        && !view.toggled_folds.remove(&fold)
    {
        view.toggled_folds.insert(fold);
    }
}

/// Goes back one level. Returns false if that leaves the inspector.
pub(crate) fn back(view: &mut InspectView) -> bool {
    let inside = view.panel == InspectPanel::Actions && view.side == InspectSide::Detail;
    if inside {
        view.side = InspectSide::Actions;
    }
    inside
}

/// Selects the next or previous failed action.
pub(crate) fn select_next_failure(
    view: &mut InspectView,
    run_view: &RunView,
    forward: bool,
) -> bool {
    let (rows, entries) = (rows(view, run_view), run_view.state.entries);
    let hit = nearest(rows.len(), view.actions.selected, forward, |row| {
        is_problem_end(rows[row].end(entries))
    });
    let Some(hit) = hit else { return false };
    let side = view.side;
    view.show_panel(view.attempt, InspectPanel::Actions);
    view.side = side;
    view.select(hit, rows.len());
    true
}

/// Moves between a call and its result; elsewhere to the next section.
pub(crate) fn counterpart(model: &mut ScreenModel, run_view: &RunView) {
    let missing = match model.views.last_mut() {
        Some(OverlayView::Inspect(view)) => {
            let sections = &view.document.sections;
            let next = sections
                .iter()
                .find(|line| **line > view.lines.selected)
                .or(sections.first())
                .copied();
            if let Some(line) = next {
                if view.panel == InspectPanel::Actions {
                    view.side = InspectSide::Detail;
                }
                view.select_line(line);
                // Show the section from its first line.
                view.lines.offset = line;
            }
            next.is_none().then_some("no content is laid out yet")
        }
        Some(OverlayView::Transcript(view)) => {
            let attempt_id = view.attempt(run_view).map(|(_, attempt)| attempt.id);
            let found = attempt_id
                .and_then(|attempt_id| other_end(run_view, attempt_id, view.list.selected));
            if let (Some(attempt_id), Some(place)) = (attempt_id, found) {
                view.list.select(place, run_view.entries(attempt_id).len());
            }
            found.is_none().then_some("this line has no counterpart")
        }
        Some(OverlayView::Entry(view)) => match other_end(run_view, view.attempt_id, view.entry) {
            Some(place) => {
                let by = isize::try_from(place).unwrap_or_default()
                    - isize::try_from(view.entry).unwrap_or_default();
                view.show_neighbour(run_view, by);
                None
            }
            None => Some("this line has no counterpart"),
        },
        Some(
            OverlayView::Help(_)
            | OverlayView::Log(_)
            | OverlayView::FailureGroups(_)
            | OverlayView::Find(_)
            | OverlayView::Home(_)
            | OverlayView::Review(_)
            | OverlayView::Lanes(_)
            | OverlayView::Artifacts(_)
            | OverlayView::Compare(_)
            | OverlayView::Breakpoints(_)
            | OverlayView::Bookmarks(_)
            | OverlayView::Grid,
        )
        | None => None,
    };
    if let Some(words) = missing {
        model.toasts.show(words);
    }
}

/// The entry at the other end of the call that an entry begins or ends.
fn other_end(
    run_view: &RunView,
    attempt_id: ingestdeck_core::run::state::AttemptId,
    entry: usize,
) -> Option<usize> {
    let (rows, entries, now) = (
        run_view.rows(attempt_id),
        run_view.entries(attempt_id),
        run_view.state.entries,
    );
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

/// Copies the raw content of the selection.
pub(crate) fn copy(view: &InspectView, run_view: &RunView) -> Vec<ScreenEffect> {
    if !view.is_list() {
        return vec![ScreenEffect::CopySection {
            line: view.lines.selected,
        }];
    }
    let rows = rows(view, run_view);
    rows.get(view.actions.selected)
        .map_or_else(Vec::new, |row| super::screen::copy_row(run_view, row))
}

/// Copies the name in the selected call, or the command that resumes the session.
pub(crate) fn copy_name(view: &InspectView, run_view: &RunView) -> Vec<ScreenEffect> {
    let rows = rows(view, run_view);
    let row = (view.panel == InspectPanel::Actions)
        .then(|| rows.get(view.actions.selected))
        .flatten();
    let session = view
        .attempt(run_view)
        .and_then(|(_, attempt)| attempt.setup.session.as_deref());
    let resume = session.map(|session| format!("claude --resume {session}"));
    vec![ScreenEffect::CopyName {
        row: row.map(|row| (row.first(), row.block)),
        text: resume
            .clone()
            .unwrap_or_else(|| view.unit.as_str().to_owned()),
        what: if resume.is_some() {
            "resume line"
        } else {
            "unit key"
        },
    }]
}

fn rows<'a>(view: &InspectView, run_view: &'a RunView) -> &'a [StreamRow] {
    view.attempt_id(run_view)
        .map_or(&[], |attempt_id| run_view.rows(attempt_id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingestdeck_core::run::state::RowOutcome;

    #[test]
    fn an_entry_belongs_to_the_row_that_it_begins_or_ends() {
        let row = |first: u64, last: u64| {
            let mut row = StreamRow::new(Seq(first), 0, RowKind::Tool, RowOutcome::Open, 0);
            row.close(Seq(last), RowOutcome::Ok);
            row
        };
        let rows = [row(2, 9), row(4, 6), row(8, 11)];
        for (seq, expected) in [
            (2, Some(0)),
            (9, Some(0)),
            (6, Some(1)),
            (5, Some(1)),
            (12, Some(2)),
            (1, None),
        ] {
            assert_eq!(row_at(&rows, Seq(seq), 99), expected, "{seq}");
        }
        assert_eq!(
            row_at(&rows, Seq(9), 9),
            Some(2),
            "a future entry ends no row"
        );
    }
}
