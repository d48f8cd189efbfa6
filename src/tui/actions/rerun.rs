//! New runs for the units of a recorded run: what a retry is in a replay.

use super::group_retry;
use crate::{
    action::UserAction,
    effect::ScreenEffect,
    forecast_text::forecast_words,
    home_choice::HomeChoice,
    model::{ConfirmQuestion, listed_keys, unfinished_units},
    page::ScreenModel,
};
use ingestdeck_core::{
    run::{
        run_forecast::RunForecast,
        state::{RunView, UnitState},
    },
    tape::{UnitKey, note::Amendment},
    text::pluralize,
};

/// True if the record is of a run of the project, so that its units can run again in a new run.
pub(super) fn is_possible(model: &ScreenModel) -> bool {
    !model.connection.is_live
        && model
            .connection
            .recorded_run
            .as_ref()
            .is_some_and(|run| run.is_of_project)
}

/// Why nothing in this record can run again from here, and what can.
pub(super) fn refusal(model: &ScreenModel, run_view: &RunView) -> String {
    let key = model.keymap.first(UserAction::Retry).unwrap_or_default();
    match &model.connection.recorded_run {
        Some(run) => format!(
            "run {} is of another project; open it there with `ingestdeck replay {}`, where {key} starts a new run",
            run.short, run.short
        ),
        None if model.connection.was_live => {
            "the engine of this run has ended; open the run from `ingestdeck`".into()
        }
        None => {
            let unit = model.unit_of_page(run_view).and_then(UnitState::latest);
            match unit.and_then(|attempt| attempt.setup.session.as_deref()) {
                Some(session) => {
                    format!(
                        "this record does not belong to a project; `claude --resume {session}` continues its session"
                    )
                }
                None => {
                    "this record does not belong to a project, so nothing can run again".to_owned()
                }
            }
        }
    }
}

/// Why a new run cannot be for this unit.
pub(super) fn unit_refusal(run_view: &RunView, unit: &UnitState) -> Option<String> {
    if run_view
        .state
        .planned
        .as_ref()
        .is_some_and(|plan| plan.scripted)
    {
        return Some("a script played this run; `ingestdeck demo` plays one again".to_owned());
    }
    match &unit.planned {
        None => Some(format!(
            "{} is not in the plan; a new run decides whether it is needed",
            unit.key
        )),
        Some(planned) if planned.text.is_some() => Some(format!(
            "{} captures a text; give it to `ingestdeck run --text` again",
            unit.key
        )),
        Some(_) => None,
    }
}

/// Asks whether to start a new run for the marked units, the group or the unit in view.
pub(super) fn ask_retry(model: &mut ScreenModel, run_view: &RunView) {
    let places = group_retry::retryable(model, run_view).unwrap_or_else(|| {
        let unit = model.unit_of_page(run_view).map(|unit| &unit.key);
        let place = unit.and_then(|unit| {
            run_view
                .state
                .units
                .iter()
                .position(|known| known.key == *unit)
        });
        place.into_iter().collect()
    });
    let all = &run_view.state.units;
    let units = places
        .iter()
        .filter_map(|unit| all.get(*unit))
        .map(|unit| unit.key.clone())
        .collect();
    ask(model, run_view, units, Amendment::default());
}

/// Asks whether to start a new run for `units`, with the changes of `amendment`.
pub(super) fn ask(
    model: &mut ScreenModel,
    run_view: &RunView,
    units: Vec<UnitKey>,
    amendment: Amendment,
) {
    let all = &run_view.state.units;
    let is_usable = |unit: &UnitKey| {
        all.iter()
            .find(|known| known.key == *unit)
            .is_some_and(|known| unit_refusal(run_view, known).is_none())
    };
    let (units, others): (Vec<UnitKey>, Vec<UnitKey>) = units.into_iter().partition(is_usable);
    let places: Vec<usize> = (0..all.len())
        .filter(|unit| units.contains(&all[*unit].key))
        .collect();
    let text = match units.as_slice() {
        [] => return model.toasts.show("none of these units can be in a new run"),
        [unit] => format!("Start a new run for {unit}?"),
        units => format!(
            "Start a new run for these {}?",
            pluralize(units.len(), "unit")
        ),
    };
    let mut details: Vec<String> = model.reading_note().into_iter().collect();
    details.push(forecast_words(&RunForecast::for_retry(
        &run_view.state,
        &places,
    )));
    if !amendment.is_empty() {
        details.push(format!("Changed: {amendment}"));
    }
    if !others.is_empty() {
        details.push(format!(
            "{} left out: not in the plan",
            pluralize(others.len(), "unit")
        ));
    }
    details.extend(listed_keys(&units));
    let publication = &run_view.state.publication;
    let (review, branch) = (
        publication.is_reviewed,
        publication.target_branch.as_deref().map(str::to_owned),
    );
    details.push(match (review, &branch) {
        (true, _) => "As in this run, nothing is committed before a review.".to_owned(),
        (false, Some(branch)) => format!("Its changes are committed to branch {branch}."),
        (false, None) => "Its changes are committed to the current branch.".to_owned(),
    });
    let Amendment {
        feedback,
        model: model_name,
        step_budget,
        ..
    } = amendment;
    let units = units.iter().map(|unit| unit.as_str().to_owned()).collect();
    let choice = HomeChoice::RunUnits {
        units,
        feedback,
        model: model_name,
        step_budget,
        review,
        branch,
    };
    model.dialogs.question = Some(ConfirmQuestion::new(
        text,
        details,
        vec![ScreenEffect::Choose(choice)],
    ));
}

/// Asks whether to start a run that continues this one: what succeeded is reused.
pub(super) fn ask_resume(model: &mut ScreenModel, run_view: &RunView) {
    let Some(run) = &model.connection.recorded_run else {
        return;
    };
    let text = format!("Resume run {}?", run.short);
    let mut details: Vec<String> = model.reading_note().into_iter().collect();
    details.extend([
        "Units that succeeded with the same content are reused; the others run.".to_owned(),
        format!("Command: ingestdeck run --resume-run {}", run.short),
    ]);
    let unfinished = unfinished_units(&run_view.state);
    if !unfinished.is_empty() {
        let units = pluralize(unfinished.len(), "unfinished unit");
        details.push(format!(
            "{units}: {}",
            forecast_words(&RunForecast::for_retry(&run_view.state, &unfinished))
        ));
    }
    let choice = HomeChoice::Resume(run.id.clone());
    model.dialogs.question = Some(ConfirmQuestion::new(
        text,
        details,
        vec![ScreenEffect::Choose(choice)],
    ));
}
