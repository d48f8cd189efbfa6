//! The stack of overlay views: opening and closing.

use std::mem::discriminant;

use super::{
    bookmarks, compare, failure_groups, find, home, inspect, is_grid, listing, marks,
    navigation::{fold, select_unit},
    time,
};
use crate::{
    effect::ScreenEffect,
    layout::Pane,
    model::{ArtifactDocument, EntryView, OverlayView, ScreenModel, SearchState},
};
use ingestdeck_core::run::state::RunView;

pub(crate) fn open(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    if let Some(OverlayView::Home(_)) = model.views.last() {
        return home::open(model);
    }
    if bookmarks::is_shown(model) {
        return bookmarks::go_to_selected(model, run_view);
    }
    open_view(model, run_view);
    Vec::new()
}

fn open_view(model: &mut ScreenModel, run_view: &RunView) {
    if let Some(OverlayView::Inspect(view)) = model.views.last_mut() {
        inspect::enter(view);
        return;
    }
    if let Some(OverlayView::Compare(_)) = model.views.last() {
        compare::enter(model);
        return;
    }
    let view = match model.views.last() {
        Some(OverlayView::Transcript(view)) => {
            let Some(attempt_id) = view
                .attempt_id(run_view)
                .filter(|attempt_id| !run_view.entries(*attempt_id).is_empty())
            else {
                return;
            };
            OverlayView::Entry(EntryView::new(
                view.unit.clone(),
                attempt_id,
                view.list.selected,
            ))
        }
        Some(
            OverlayView::Entry(_)
            | OverlayView::Help(_)
            | OverlayView::Inspect(_)
            | OverlayView::Compare(_)
            | OverlayView::Bookmarks(_)
            | OverlayView::Home(_),
        ) => {
            return;
        }
        Some(OverlayView::Review(_)) => return inspect::open(model, run_view),
        Some(OverlayView::FailureGroups(_)) => return failure_groups::open(model, run_view),
        Some(OverlayView::Find(_)) => return find::open_hits(model, run_view),
        Some(OverlayView::Lanes(_)) => return inspect::open(model, run_view),
        Some(OverlayView::Artifacts(_)) => {
            if let Some(OverlayView::Artifacts(view)) = model.views.last_mut() {
                view.document = Some(ArtifactDocument::default());
            }
            return;
        }
        Some(OverlayView::Breakpoints(_)) => {
            time::toggle(model);
            return;
        }
        Some(OverlayView::Log(list)) => {
            // Go to the unit of the message.
            let about = run_view
                .messages()
                .get(list.selected)
                .and_then(|message| message.unit.clone());
            if let Some(place) =
                about.and_then(|key| run_view.state.units.iter().position(|unit| unit.key == key))
            {
                model.views.pop();
                select_unit(model, place);
            }
            return;
        }
        Some(OverlayView::Grid) => {
            model.grid.mark_seen(model.unit(run_view));
            return inspect::open(model, run_view);
        }
        None => {
            let is_folded = model.units_view.focus == Pane::Units && fold(model, None);
            if !is_folded {
                inspect::open(model, run_view);
            }
            return;
        }
    };
    model.views.push(view);
}

pub(crate) fn back(model: &mut ScreenModel, run_view: &RunView) {
    model.pending.clear();
    if let Some(OverlayView::Home(view)) = model.views.last_mut() {
        view.compared = None;
        return;
    }
    if is_grid(model) && std::mem::take(&mut model.grid.zoom) {
        return;
    }
    if let Some(OverlayView::Inspect(view)) = model.views.last_mut()
        && inspect::back(view)
    {
        return;
    }
    if let Some(OverlayView::Review(view)) = model.views.last_mut()
        && std::mem::take(&mut view.in_diff)
    {
        return;
    }
    if let Some(OverlayView::Artifacts(view)) = model.views.last_mut() {
        if view.document.take().is_some() {
            return;
        }
        if view.is_filtered() {
            return view.set_filter(Default::default(), String::new());
        }
    }
    // The wire is a panel of the inspector.
    inspect::leave_wire(model);
    if model.views.pop().is_some() {
        return;
    }
    if model.shown_query(run_view).is_some() {
        model.search = SearchState::default();
    } else if marks::clear(model) {
        // One key press only removes the marks.
    } else if listing::clear(model, run_view) {
        // One key press only clears the filter.
    } else if model.units_view.zoom {
        model.units_view.zoom = false;
    } else {
        model.units_view.focus = Pane::Units;
    }
}

/// Opens a view, or closes it if it is shown.
pub(crate) fn toggle(model: &mut ScreenModel, view: OverlayView) {
    let is_it = |known: &OverlayView| discriminant(known) == discriminant(&view);
    if model.views.last().is_some_and(is_it) {
        model.views.pop();
    } else {
        model.views.retain(|known| !is_it(known));
        model.views.push(view);
    }
}

pub(crate) fn is_breakpoints(model: &ScreenModel) -> bool {
    matches!(model.views.last(), Some(OverlayView::Breakpoints(_)))
}
