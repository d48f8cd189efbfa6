//! Navigation in the failure groups: from a line to its unit, and retrying a whole group.

use super::{marks, navigation::select_unit, units};
use crate::{
    effect::ScreenEffect,
    forecast_text::forecast_words,
    layout::Pane,
    model::{ConfirmQuestion, FailureGroupLine, OverlayView, ScreenModel},
    search_match::nearest,
};
use ingestdeck_core::{
    control::RunCommand,
    run::{run_forecast::RunForecast, state::RunView},
    tape::UnitKey,
    text::{one_row, pluralize},
};

/// Shows the unit of the selected line on the main view.
pub(crate) fn open(model: &mut ScreenModel, run_view: &RunView) {
    let Some(OverlayView::FailureGroups(view)) = model.views.last() else {
        return;
    };
    if let Some(unit) = view.unit() {
        reveal(model, run_view, unit);
    }
}

/// Selects a unit on the main view, clearing filters that hide it.
pub(crate) fn reveal(model: &mut ScreenModel, run_view: &RunView, unit: usize) {
    model.views.clear();
    select_unit(model, unit);
    (model.units_view.attempt, model.units_view.focus) = (None, Pane::Units);
    if model.units_view.listing.rank(unit).is_none() {
        super::listing::clear(model, run_view);
    }
}

/// Selects the next or previous cause.
pub(crate) fn next(model: &mut ScreenModel, forward: bool) {
    let Some(OverlayView::FailureGroups(view)) = model.views.last_mut() else {
        return;
    };
    let len = view.lines.len();
    let hit = nearest(len, view.list.selected, forward, |line| {
        matches!(view.lines[line], FailureGroupLine::Group(_))
    });
    if let Some(hit) = hit {
        view.list.select(hit, len);
    }
}

/// The marked units, or those of a selected group, on this view or in the table, that can be retried; `None` if no unit
/// is marked and no group is selected.
pub(crate) fn retryable(model: &ScreenModel, run_view: &RunView) -> Option<Vec<usize>> {
    let units = match model.views.last() {
        Some(OverlayView::FailureGroups(view)) => view.group()?.units.clone(),
        None if marks::has_marks(model) => model.units_view.marked.iter().copied().collect(),
        None => model.units_view.listing.units_of(model.heading()?).to_vec(),
        Some(_) => return None,
    };
    let is_retryable = |unit: &usize| {
        run_view
            .state
            .units
            .get(*unit)
            .is_some_and(|unit| unit.status.is_retryable())
    };
    Some(units.into_iter().filter(is_retryable).collect())
}

/// Asks for retrying the units of the selected group.
pub(crate) fn retry(model: &mut ScreenModel, run_view: &RunView, places: &[usize]) {
    let units: Vec<UnitKey> = places
        .iter()
        .filter_map(|unit| run_view.state.units.get(*unit))
        .map(|unit| unit.key.clone())
        .collect();
    let count = pluralize(units.len(), "unit");
    let (text, example) = match model.views.last() {
        Some(OverlayView::FailureGroups(view)) => {
            let Some(failures) = view.group() else { return };
            let text = format!(
                "Retry {count} that failed for the same reason ({})?",
                failures.cause
            );
            (text, Some(one_row(&failures.example, 200)))
        }
        _ if marks::has_marks(model) => (
            format!("Retry {count} of {} marked?", model.units_view.marked.len()),
            None,
        ),
        _ => (format!("Retry {count} of this group?"), None),
    };
    let forecast = forecast_words(&RunForecast::for_retry(&run_view.state, places));
    let details = units::reading_note(model)
        .into_iter()
        .chain(example)
        .chain([forecast])
        .chain(units::listed(&units))
        .collect();
    model.dialogs.question = Some(ConfirmQuestion::new(
        text,
        details,
        vec![ScreenEffect::Command(RunCommand::RetryUnits {
            units,
            amendment: None,
        })],
    ));
}
