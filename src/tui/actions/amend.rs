//! The form for a retry with changed parameters, and its submission.

use std::collections::HashSet;

use super::{group_retry, refusal, rerun};
use crate::{
    effect::ScreenEffect,
    model::{AmendForm, TextPurpose, WrittenText},
    page::ScreenModel,
    theme::{StyleRole, status_role},
};
use ingestdeck_core::{
    control::RunCommand,
    diagnostic::Diagnostic as _,
    run::{
        note_sentence::with_outcome,
        state::{RunState, RunView, UnitState},
    },
    tape::UnitKey,
    text::{self, pluralize},
};

/// Opens the form for the marked units, the group or the unit in view.
pub(crate) fn open(model: &mut ScreenModel, run_view: &RunView) {
    model.units_view.follows_work = false;
    let state = &run_view.state;
    let selected: Vec<&UnitState> = match group_retry::retryable(model, run_view) {
        Some(places) => places
            .iter()
            .filter_map(|unit| state.units.get(*unit))
            .collect(),
        None => model.unit_of_page(run_view).into_iter().collect(),
    };
    if let Some((unit, others)) = selected.split_first() {
        let mut form = AmendForm::new(unit, others, state);
        if rerun::is_possible(model) {
            // A new run begins new sessions.
            (form.session, form.resume) = (None, false);
        }
        if let Some(text) = model
            .dialogs
            .kept_texts
            .take(&TextPurpose::Feedback(form.units.clone()))
        {
            form.replace_feedback(&text);
        }
        model.dialogs.amend_form = Some(form);
    }
}

/// Why the units of the form cannot be retried now.
fn refusal(model: &ScreenModel, run_view: &RunView, form: &AmendForm) -> Option<String> {
    let find = |key: &UnitKey| run_view.state.units.iter().find(|unit| unit.key == *key);
    form.units
        .iter()
        .filter_map(find)
        .find_map(|unit| refusal::retry(model, run_view, unit))
}

/// Why the units of the form need another attempt, and its role; `None` if none of them has failed.
pub(crate) fn reason(state: &RunState, form: &AmendForm) -> Option<(StyleRole, String)> {
    // A form for a group may have as many units as the run.
    let wanted: HashSet<&UnitKey> = form.units.iter().collect();
    let failed: Vec<_> = state
        .units
        .iter()
        .filter(|unit| unit.status.is_retryable() && wanted.contains(&unit.key))
        .collect();
    let first = failed.first()?;
    let reason = state.failure_reason(first);
    let is_same = |unit: &&UnitState| state.failure_reason(unit) == reason;
    let others = match failed.iter().all(is_same) {
        true => "",
        false => "; others for other reasons",
    };
    let reason = with_outcome(first.status_text(), &text::one_row(&reason, 600));
    Some((status_role(first.status), format!("{reason}{others}")))
}

/// What the form reports: a problem of a field, or that a unit has started meanwhile.
pub(crate) fn problem(model: &ScreenModel, run_view: &RunView, form: &AmendForm) -> Option<String> {
    // Of several units, those that have started get no further attempt.
    let is_one = form.units.len() == 1;
    form.problem
        .clone()
        .or_else(|| refusal(model, run_view, form).filter(|_| is_one))
}

pub(crate) fn send(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let Some(mut form) = model.dialogs.amend_form.take() else {
        return Vec::new();
    };
    let amendment = match form.amendment() {
        Ok(amendment) => amendment,
        Err(problem) => {
            form.problem = Some(problem.to_line());
            model.dialogs.amend_form = Some(form);
            return Vec::new();
        }
    };
    // Units of several may have been retried meanwhile; the others get the amendment.
    if form.units.len() > 1 {
        form.units.retain(|key| {
            !run_view
                .state
                .units
                .iter()
                .any(|unit| unit.key == *key && !unit.status.is_retryable())
        });
        if form.units.is_empty() {
            model
                .toasts
                .show("every unit of this form was retried meanwhile");
            return Vec::new();
        }
    }
    // A unit may have started while the user edited the form. Keep the form, so that the edits are not lost.
    if let Some(refusal) = refusal(model, run_view, &form) {
        form.problem = Some(refusal);
        model.dialogs.amend_form = Some(form);
        return Vec::new();
    }
    if rerun::is_possible(model) {
        // After a no, the next form begins with the text.
        let purpose = TextPurpose::Feedback(form.units.clone());
        let feedback = amendment.feedback.clone();
        feedback.and_then(|text| model.dialogs.kept_texts.keep(WrittenText { purpose, text }));
        rerun::ask(model, run_view, form.units, amendment);
        return Vec::new();
    }
    let how = if amendment.is_empty() {
        "as planned".to_owned()
    } else {
        amendment.to_string()
    };
    for unit in &form.units {
        model.await_attempt(run_view, unit);
    }
    let mut units = form.units;
    let command = match units.pop() {
        Some(unit) if units.is_empty() => {
            model.toasts.show(format!("new attempt at {unit}: {how}"));
            RunCommand::Retry {
                unit,
                amendment: Some(amendment),
            }
        }
        last => {
            units.extend(last);
            model.toasts.show(format!(
                "new attempts at {}: {how}",
                pluralize(units.len(), "unit")
            ));
            model.units_view.marked.clear();
            RunCommand::RetryUnits {
                units,
                amendment: Some(amendment),
            }
        }
    };
    vec![ScreenEffect::Command(command)]
}
