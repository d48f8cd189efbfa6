//! Answers to held calls that ask a person for input: opening their form, its keys and its submission.

use super::hold::{self, CALL_IS_OVER};
use crate::{
    effect::ScreenEffect,
    key::KeyPress,
    model::{AnswerForm, CallId, FormStep, InputPurpose},
    page::ScreenModel,
};
use ingestdeck_core::{
    actions::input_form::{ELICITATION, InputForm, PLAN_TOOL, QUESTION_TOOL},
    control::{RunCommand, UserDecision},
    run::state::{HeldCallState, RunView},
};

/// The form of the call that waits, if it asks for input.
fn waiting_form(model: &ScreenModel, run_view: &RunView) -> Option<AnswerForm> {
    let (unit, call) = hold::waiting(model, run_view)?;
    let form = InputForm::of_call(&call.tool, &call.input)?;
    Some(AnswerForm::new(hold::call_id(unit, call), form))
}

/// Opens the form of the call that waits, with one option chosen. Returns false if the call does not ask for input.
pub(crate) fn open(model: &mut ScreenModel, run_view: &RunView, option: Option<usize>) -> bool {
    let Some(mut form) = waiting_form(model, run_view) else {
        return false;
    };
    if let Some(option) = option {
        form.choose(option);
    }
    model.units_view.follows_work = false;
    model.dialogs.answer_form = Some(form);
    true
}

/// What allowing the call that waits means, if that is not its general meaning.
pub(crate) fn allow_hint(model: &ScreenModel, run_view: &RunView) -> Option<&'static str> {
    let (_, call) = hold::waiting(model, run_view)?;
    match &*call.tool {
        PLAN_TOOL => Some("approve"),
        tool if InputForm::of_call(tool, &call.input).is_some() => Some("answer"),
        _ => None,
    }
}

/// What refusing the call that waits means, if that is not its general meaning.
pub(crate) fn deny_hint(model: &ScreenModel, run_view: &RunView) -> Option<&'static str> {
    let unit = hold::subject(model, run_view)?;
    if model.dialogs.next_denials.contains_key(&unit.key) {
        return Some("change denial");
    }
    allow_hint(model, run_view).map(|hint| match hint {
        "approve" => "refuse",
        _ => "decline",
    })
}

/// What submitting the reason of a denial does.
pub(crate) fn deny_word(run_view: &RunView, id: &CallId) -> &'static str {
    match find(run_view, id).map(|call| &*call.tool) {
        Some(ELICITATION | QUESTION_TOOL) => "decline",
        Some(PLAN_TOOL) => "refuse",
        _ => "deny",
    }
}

/// What the line for the reason of a denial begins with.
pub(crate) fn deny_prompt(run_view: &RunView, id: &CallId) -> &'static str {
    match find(run_view, id).map(|call| &*call.tool) {
        Some(ELICITATION) => "decline because (nothing cancels): ",
        Some(QUESTION_TOOL) => "decline because: ",
        Some(PLAN_TOOL) => "refuse the plan because: ",
        _ => "deny because: ",
    }
}

/// Allows the call that waits, or opens its form if it asks for input.
pub(crate) fn allow(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    if open(model, run_view, None) {
        Vec::new()
    } else {
        hold::allow(model, run_view)
    }
}

/// Submits the reason of a denial. Without one, a request of a tool server is cancelled.
pub(crate) fn deny(
    model: &mut ScreenModel,
    run_view: &RunView,
    id: CallId,
    reason: String,
) -> Vec<ScreenEffect> {
    let is_elicitation = find(run_view, &id).is_some_and(|call| &*call.tool == ELICITATION);
    if !is_elicitation || !reason.trim().is_empty() {
        return hold::deny(model, run_view, id, reason);
    }
    let CallId { unit, call } = id;
    vec![ScreenEffect::Command(RunCommand::Decide {
        unit,
        call,
        decision: UserDecision::Cancel,
    })]
}

fn find<'a>(run_view: &'a RunView, id: &CallId) -> Option<&'a HeldCallState> {
    let unit = run_view.state.units.iter().find(|unit| unit.key == id.unit);
    let mut held = unit?.latest()?.held_calls.iter();
    held.find(|call| call.tool_use_id == id.call)
}

/// Passes a key to the form.
pub(crate) fn handle_key(
    model: &mut ScreenModel,
    run_view: &RunView,
    key: KeyPress,
) -> Vec<ScreenEffect> {
    let step = model
        .dialogs
        .answer_form
        .as_mut()
        .map(|form| form.handle_key(key));
    match step {
        Some(FormStep::Send) => send(model, run_view),
        Some(FormStep::Decline) => {
            if let Some(form) = model.dialogs.answer_form.take() {
                model.dialogs.ask_text(InputPurpose::Deny(form.call));
            }
            Vec::new()
        }
        Some(FormStep::Stay) | None => Vec::new(),
    }
}

/// Sends the answer, or shows what is missing.
pub(crate) fn send(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let Some(mut form) = model.dialogs.answer_form.take() else {
        return Vec::new();
    };
    let answer = hold::is_waiting(run_view, &form.call)
        .then(|| form.answer())
        .flatten();
    let Some(answer) = answer else {
        // The text stays open, so that it can be copied.
        model.dialogs.answer_form = Some(form);
        return Vec::new();
    };
    let CallId { unit, call } = form.call;
    vec![ScreenEffect::Command(RunCommand::Decide {
        unit,
        call,
        decision: UserDecision::Answer(answer),
    })]
}

/// The problem of the form: that of a field, or that the call is over.
pub(crate) fn problem(run_view: &RunView, form: &AnswerForm) -> Option<String> {
    if hold::is_waiting(run_view, &form.call) {
        form.problem.clone()
    } else {
        Some(CALL_IS_OVER.to_owned())
    }
}
