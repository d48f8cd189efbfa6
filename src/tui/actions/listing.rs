//! The listing of the unit table: filters, order and headings, by keys and by typed text.

use crate::{
    action::{Availability, require},
    layout::Pane,
    model::{InputPurpose, LineInput, UnitSort},
    page::ScreenModel,
    pages::{artifacts::ArtifactsPage, recent::RecentPage},
};
use ingestdeck_core::run::state::RunView;

pub(crate) fn is_shown(model: &ScreenModel, _: &RunView) -> Availability {
    require(model.is_bottom())
}

/// True if the filter of the table decides what is shown.
pub(crate) fn filters_units(model: &ScreenModel, _: &RunView) -> Availability {
    require(model.is_bottom() || model.top::<RecentPage>().is_some())
}

/// Selects the next filter of the table.
pub(crate) fn cycle_filter(model: &mut ScreenModel, run_view: &RunView) {
    model.change_listing(run_view, |listing| listing.filter = listing.filter.cycle());
}

/// Orders by a column, or reverses its order.
pub(crate) fn sort_by(model: &mut ScreenModel, run_view: &RunView, sort: UnitSort) {
    model.change_listing(run_view, |listing| {
        let is_repeated = listing.sort == sort;
        (listing.sort, listing.is_reversed) = (sort, is_repeated && !listing.is_reversed);
    });
}

/// Lets the user type the text that listed units contain.
pub(crate) fn type_filter(model: &mut ScreenModel, _: &RunView) {
    let text = model.units_view.listing.text.clone();
    model.dialogs.line_input = Some(LineInput {
        text,
        purpose: InputPurpose::FilterUnits,
    });
    model.units_view.focus = Pane::Units;
}

/// Lists the units or artifacts that contain `text`.
pub(crate) fn filter_by_text(model: &mut ScreenModel, run_view: &RunView, text: String) {
    if let Some(page) = model.top_mut::<ArtifactsPage>() {
        page.set_filter(page.filter, text);
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
