//! The form for a retry with changed parameters, and its submission.

use super::units;
use crate::{
    control::RunCommand,
    run::state::RunView,
    tui::{
        effect::ScreenEffect,
        model::{AmendForm, ScreenModel},
    },
};

/// Opens the form for the unit in view.
pub(crate) fn open(model: &mut ScreenModel, run_view: &RunView) {
    model.units_view.follows_work = false;
    if let Some(unit) = units::target(model, run_view) {
        model.dialogs.amend_form = Some(AmendForm::new(unit, &run_view.state));
    }
}

pub(crate) fn send(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let Some(mut form) = model.dialogs.amend_form.take() else { return Vec::new() };
    let amendment = match form.amendment() {
        Ok(amendment) => amendment,
        Err(problem) => {
            form.problem = Some(problem);
            model.dialogs.amend_form = Some(form);
            return Vec::new();
        }
    };
    // The unit may have started while the user edited the form. Keep the form, so that the edits are not lost.
    let unit = run_view.state.units.iter().find(|unit| unit.key == form.unit);
    if let Some(refusal) = unit.and_then(|unit| units::retry_refusal(model, run_view, unit)) {
        form.problem = Some(refusal);
        model.dialogs.amend_form = Some(form);
        return Vec::new();
    }
    let unit = form.unit;
    model.await_attempt(run_view, &unit);
    let how = if amendment.is_empty() { "as planned".to_owned() } else { amendment.to_string() };
    model.toasts.show(format!("new attempt at {unit}: {how}"));
    vec![ScreenEffect::Command(RunCommand::Retry { unit, amendment: Some(amendment) })]
}
