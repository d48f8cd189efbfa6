//! Navigation in the failure groups: from a line to its unit, and retrying a whole group.

use super::units;
use crate::{
    control::RunCommand,
    run::{run_forecast::RunForecast, state::RunView},
    tape::UnitKey,
    tui::{
        effect::ScreenEffect,
        forecast_text::forecast_words,
        layout::Pane,
        model::{ConfirmQuestion, FailureGroupLine, OverlayView, ScreenModel},
        search_match::nearest,
    },
};

/// Shows the unit of the selected line on the main view.
pub(crate) fn open(model: &mut ScreenModel, run_view: &RunView) {
    let Some(OverlayView::FailureGroups(view)) = model.views.last() else { return };
    if let Some(unit) = view.unit() {
        reveal(model, run_view, unit);
    }
}

/// Selects a unit on the main view, clearing filters that hide it.
pub(crate) fn reveal(model: &mut ScreenModel, run_view: &RunView, unit: usize) {
    model.views.clear();
    model.units_view.follows_work = false;
    (model.units_view.unit, model.units_view.attempt, model.units_view.focus) = (unit, None, Pane::Units);
    if model.units_view.listing.row(unit).is_none() {
        super::listing::clear(model, run_view);
    }
}

/// Selects the next or previous cause.
pub(crate) fn next(model: &mut ScreenModel, forward: bool) {
    let Some(OverlayView::FailureGroups(view)) = model.views.last_mut() else { return };
    let len = view.lines.len();
    let hit = nearest(len, view.list.selected, forward, |line| matches!(view.lines[line], FailureGroupLine::Group(_)));
    if let Some(hit) = hit {
        view.list.select(hit, len);
    }
}

/// Retries all units in the failure group of the selected unit.
pub(crate) fn retry(model: &mut ScreenModel, run_view: &RunView) {
    let Some(OverlayView::FailureGroups(view)) = model.views.last() else { return };
    let Some(failures) = view.group() else { return };
    let units: Vec<UnitKey> =
        failures.units.iter().filter_map(|unit| run_view.state.units.get(*unit)).map(|unit| unit.key.clone()).collect();
    let mut details = vec![crate::text::one_row(&failures.example, 200)];
    details.push(forecast_words(&RunForecast::for_retry(&run_view.state, &failures.units)));
    details.extend(units::listed(&units));
    let text = format!(
        "Retry {} that failed for the same reason ({})?",
        crate::text::pluralize(units.len(), "unit"),
        failures.cause
    );
    model.dialogs.question =
        Some(ConfirmQuestion { text, details, then: vec![ScreenEffect::Command(RunCommand::RetryUnits { units })] });
}
