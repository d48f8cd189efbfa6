//! The listing of the unit table: filters, order and headings, by keys and by typed text.

use crate::{
    run::state::RunView,
    tui::{
        action::UserAction,
        model::{InputPurpose, LineInput, Pane, ScreenModel, StatusFilter},
    },
};

/// Changes filter or order. Does nothing if no table is shown.
pub(super) fn change(model: &mut ScreenModel, run_view: &RunView, action: UserAction) {
    if !model.views.is_empty() {
        return;
    }
    let listing = &mut model.units_view.listing;
    match action {
        UserAction::Filter => listing.filter = listing.filter.cycle(),
        UserAction::FilterText => {
            model.line_input = Some(LineInput { text: listing.text.clone(), purpose: InputPurpose::FilterUnits });
        }
        UserAction::Sort => {
            listing.sort = listing.sort.cycle();
            listing.is_reversed = false;
        }
        UserAction::Reverse => listing.is_reversed = !listing.is_reversed,
        UserAction::Group => listing.is_grouped = !listing.is_grouped,
        _ => return,
    }
    model.units_view.focus = Pane::Units;
    model.units_view.listing.refresh(&run_view.state);
}

/// Lists the units that contain `text`.
pub(super) fn filter_by_text(model: &mut ScreenModel, run_view: &RunView, text: String) {
    if model.units_view.listing.text != text {
        model.units_view.listing.text = text;
        model.units_view.listing.refresh(&run_view.state);
    }
}

/// Filters the table while the user types.
pub(super) fn filter_while_typing(model: &mut ScreenModel, run_view: &RunView) {
    if let Some(LineInput { text, purpose: InputPurpose::FilterUnits }) = &model.line_input {
        let text = text.clone();
        filter_by_text(model, run_view, text);
    }
}

/// Clears all filters. Returns false if there were none.
pub(super) fn clear(model: &mut ScreenModel, run_view: &RunView) -> bool {
    let listing = &mut model.units_view.listing;
    let filtered = listing.is_filtered();
    if filtered {
        listing.filter = StatusFilter::All;
        listing.text.clear();
        listing.refresh(&run_view.state);
    }
    filtered
}
