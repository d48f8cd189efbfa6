//! The listing of the unit table: filters, order and headings, by keys and by typed text.

use super::{Availability, require};
use crate::{
    layout::Pane,
    model::{
        ArtifactsView, InputPurpose, LineInput, OverlayView, ScreenModel, StatusFilter,
        UnitListing, UnitSort,
    },
};
use ingestdeck_core::run::state::RunView;

pub(crate) fn is_shown(model: &ScreenModel, _: &RunView) -> Availability {
    require(model.views.is_empty())
}

/// True if the view has a list with filters.
pub(crate) fn has_filter(model: &ScreenModel, _: &RunView) -> Availability {
    require(model.views.is_empty() || artifact_list(model).is_some())
}

fn artifact_list(model: &ScreenModel) -> Option<&ArtifactsView> {
    match model.views.last() {
        Some(OverlayView::Artifacts(view)) if view.document.is_none() => Some(view),
        _ => None,
    }
}

/// Selects the next filter of the list.
pub(crate) fn cycle_filter(model: &mut ScreenModel, run_view: &RunView) {
    if let Some(OverlayView::Artifacts(view)) = model.views.last_mut() {
        view.set_filter(view.filter.cycle(), view.text.clone());
        return;
    }
    change(model, run_view, |listing| {
        listing.filter = listing.filter.cycle()
    });
}

/// Changes filter or order.
pub(crate) fn change(
    model: &mut ScreenModel,
    run_view: &RunView,
    change: impl FnOnce(&mut UnitListing),
) {
    change(&mut model.units_view.listing);
    model.units_view.focus = Pane::Units;
    model.search.matches = None;
    model.units_view.listing.refresh(&run_view.state);
}

/// Orders by a column, or reverses its order.
pub(crate) fn sort_by(model: &mut ScreenModel, run_view: &RunView, sort: UnitSort) {
    change(model, run_view, |listing| {
        let is_repeated = listing.sort == sort;
        (listing.sort, listing.is_reversed) = (sort, is_repeated && !listing.is_reversed);
    });
}

/// Lets the user type the text that listed units or artifacts contain.
pub(crate) fn type_filter(model: &mut ScreenModel, _: &RunView) {
    if let Some(view) = artifact_list(model) {
        model.dialogs.line_input = Some(LineInput {
            text: view.text.clone(),
            purpose: InputPurpose::FilterUnits,
        });
        return;
    }
    let text = model.units_view.listing.text.clone();
    model.dialogs.line_input = Some(LineInput {
        text,
        purpose: InputPurpose::FilterUnits,
    });
    model.units_view.focus = Pane::Units;
}

/// Lists the units or artifacts that contain `text`.
pub(crate) fn filter_by_text(model: &mut ScreenModel, run_view: &RunView, text: String) {
    if let Some(OverlayView::Artifacts(view)) = model.views.last_mut() {
        view.set_filter(view.filter, text);
        return;
    }
    if model.units_view.listing.text != text {
        model.units_view.listing.text = text;
        model.search.matches = None;
        model.units_view.listing.refresh(&run_view.state);
    }
}

/// Filters the table while the user types.
pub(crate) fn filter_while_typing(model: &mut ScreenModel, run_view: &RunView) {
    if let Some(LineInput {
        text,
        purpose: InputPurpose::FilterUnits,
    }) = &model.dialogs.line_input
    {
        let text = text.clone();
        filter_by_text(model, run_view, text);
    }
}

/// Clears all filters. Returns false if there were none.
pub(crate) fn clear(model: &mut ScreenModel, run_view: &RunView) -> bool {
    let listing = &mut model.units_view.listing;
    let filtered = listing.is_filtered();
    if filtered {
        listing.filter = StatusFilter::All;
        listing.text.clear();
        listing.refresh(&run_view.state);
    }
    filtered
}
