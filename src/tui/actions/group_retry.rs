//! Retrying the marked units, or those of a selected group.

use crate::{
    effect::ScreenEffect,
    forecast_text::forecast_words,
    model::{ConfirmQuestion, listed_keys},
    page::ScreenModel,
    pages::failure_groups::FailureGroupsPage,
};
use ingestdeck_core::{
    control::RunCommand,
    run::{run_forecast::RunForecast, state::RunView},
    tape::UnitKey,
    text::{one_row, pluralize},
};

/// The marked units, or those of a selected group, on this view or in the table, that can be retried; `None` if no unit
/// is marked and no group is selected.
pub(crate) fn retryable(model: &ScreenModel, run_view: &RunView) -> Option<Vec<usize>> {
    let units = match model.top::<FailureGroupsPage>() {
        Some(page) => page.group()?.units.clone(),
        None if !model.is_bottom() => return None,
        None if !model.units_view.marked.is_empty() => {
            model.units_view.marked.iter().copied().collect()
        }
        None => model.units_view.listing.units_of(model.heading()?).to_vec(),
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
    let has_marks = model.is_bottom() && !model.units_view.marked.is_empty();
    let (text, example) = match model.top::<FailureGroupsPage>() {
        Some(page) => {
            let Some(failures) = page.group() else { return };
            let text = format!(
                "Retry {count} that failed for the same reason ({})?",
                failures.cause
            );
            (text, Some(one_row(&failures.example, 200)))
        }
        None if has_marks => (
            format!("Retry {count} of {} marked?", model.units_view.marked.len()),
            None,
        ),
        None => (format!("Retry {count} of this group?"), None),
    };
    let forecast = forecast_words(&RunForecast::for_retry(&run_view.state, places));
    let details = model
        .reading_note()
        .into_iter()
        .chain(example)
        .chain([forecast])
        .chain(listed_keys(&units))
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
