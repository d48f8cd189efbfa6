//! Navigation in the comparison of two attempts: which attempts, which call, and the next difference.

use crate::{
    comparison::align::CallDifference,
    effect::ScreenEffect,
    model::{CompareView, EntryView, InspectView, OverlayView, ScreenModel, TranscriptView},
    search_match::nearest,
};
use ingestdeck_core::run::state::RunView;

/// Opens the comparison of the selected unit's last two attempts, or closes it.
pub(crate) fn open(model: &mut ScreenModel, run_view: &RunView) {
    let unit = match model.views.last() {
        Some(OverlayView::Compare(_)) => {
            model.views.pop();
            return;
        }
        Some(
            OverlayView::Help(_)
            | OverlayView::Log(_)
            | OverlayView::Breakpoints(_)
            | OverlayView::Bookmarks(_)
            | OverlayView::Home(_)
            | OverlayView::Review(_),
        ) => return,
        Some(OverlayView::Inspect(view)) => view.unit(run_view),
        Some(
            OverlayView::Transcript(TranscriptView { unit, .. })
            | OverlayView::Entry(EntryView { unit, .. }),
        ) => run_view.state.units.iter().find(|known| known.key == *unit),
        Some(
            OverlayView::FailureGroups(_)
            | OverlayView::Find(_)
            | OverlayView::Lanes(_)
            | OverlayView::Artifacts(_)
            | OverlayView::Grid,
        ) => super::units::target(model, run_view),
        None => model.unit(run_view),
    };
    let Some(unit) = unit else {
        return super::units::no_unit_selected(model);
    };
    let (key, attempts) = (unit.key.clone(), unit.attempts.len());
    model.units_view.follows_work = false;
    match attempts {
        0 => model.toasts.show(format!("{key} has not run yet")),
        1 => model.toasts.show(format!(
            "{key} has one attempt; there is nothing to compare it with"
        )),
        attempts => model
            .views
            .push(OverlayView::Compare(Box::new(CompareView::new(
                key, attempts,
            )))),
    }
}

pub(crate) fn go_to_first_or_last(view: &mut CompareView, last: bool) {
    let len = view.pair_count();
    view.list.select(if last { len } else { 0 }, len);
}

pub(crate) fn show_adjacent(model: &mut ScreenModel, run_view: &RunView, forward: bool) {
    let Some(OverlayView::Compare(view)) = model.views.last_mut() else {
        return;
    };
    if !view.change_attempt(run_view, forward) {
        model.toasts.show(if forward {
            "there is no newer attempt"
        } else {
            "there is no older attempt"
        });
    }
}

/// Selects the next or previous pair that differs.
pub(crate) fn difference(model: &mut ScreenModel, forward: bool) {
    let Some(OverlayView::Compare(view)) = model.views.last_mut() else {
        return;
    };
    let pairs = view.pairs.as_deref().unwrap_or_default();
    let hit = nearest(pairs.len(), view.list.selected, forward, |pair| {
        pairs[pair].difference != CallDifference::Same
    });
    match hit {
        Some(hit) => view.list.select(hit, pairs.len()),
        None => model.toasts.show("no call differs"),
    }
}

/// Side and row of the selected pair, on the focused side if it has a row there, otherwise on the other side.
pub(crate) fn selected_row(view: &CompareView) -> Option<(usize, usize)> {
    let pair = view.pairs.as_ref()?.get(view.list.selected)?;
    let rows = [pair.left, pair.right];
    [view.side, 1 - view.side]
        .into_iter()
        .find_map(|side| Some((side, rows[side]?)))
}

/// Opens the selected call in the inspector.
pub(crate) fn enter(model: &mut ScreenModel) {
    let Some(OverlayView::Compare(view)) = model.views.last() else {
        return;
    };
    let Some((side, row)) = selected_row(view) else {
        return;
    };
    let inspect = InspectView::new(view.unit.clone(), view.sides[side], Some(row));
    model.views.push(OverlayView::Inspect(Box::new(inspect)));
}

/// Copies the raw lines of the selected call.
pub(crate) fn copy(view: &CompareView, run_view: &RunView) -> Vec<ScreenEffect> {
    let found = selected_row(view).and_then(|(side, row)| {
        let attempt_id = view.attempts(run_view)?[side].id;
        run_view.rows(attempt_id).get(row)
    });
    found.map_or_else(Vec::new, |row| super::screen::copy_row(run_view, row))
}
