//! The form for a retry with changed parameters, and its submission.

use super::run_commands;
use crate::{
    control::RunCommand,
    run::state::RunView,
    tui::{
        effect::ScreenEffect,
        model::{AmendForm, ScreenModel},
    },
};

/// Opens the form for the unit in view.
pub(super) fn open(model: &mut ScreenModel, run_view: &RunView) {
    model.units_view.follows_work = false;
    let Some(unit) = run_commands::target(model, run_view) else {
        run_commands::no_unit_selected(model);
        return;
    };
    match run_commands::retry_refusal(model, run_view, unit) {
        Some(refusal) => model.show_message(refusal),
        None => model.amend_form = Some(AmendForm::new(unit, &run_view.state)),
    }
}

pub(super) fn send(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let Some(mut form) = model.amend_form.take() else { return Vec::new() };
    let amendment = match form.amendment() {
        Ok(amendment) => amendment,
        Err(problem) => {
            form.problem = Some(problem);
            model.amend_form = Some(form);
            return Vec::new();
        }
    };
    // The unit may have started while the user edited the form. Keep the form, so that the edits are not lost.
    let unit = run_view.state.units.iter().find(|unit| unit.key == form.unit);
    if let Some(refusal) = unit.and_then(|unit| run_commands::retry_refusal(model, run_view, unit)) {
        form.problem = Some(refusal);
        model.amend_form = Some(form);
        return Vec::new();
    }
    let unit = form.unit;
    let how = if amendment.is_empty() { "as planned".to_owned() } else { amendment.to_string() };
    model.show_message(format!("new attempt at {unit}: {how}"));
    vec![ScreenEffect::Command(RunCommand::Retry { unit, amendment: Some(amendment) })]
}
