//! Holding a running unit, and decisions about its calls.
//!
//! A decision names the call that the user saw; the run decides whether that call still waits.

use std::sync::Arc;

use crate::{
    action::{ActionScope, Availability, Unavailable, require},
    effect::ScreenEffect,
    layout::MIN_DIALOG_ROWS,
    model::{
        ArgumentsEditor, CallId, ConfirmQuestion, InputPurpose, LineInput, TextPurpose, ToastTopic,
        WrittenText, release_consequences,
    },
    page::ScreenModel,
    playback::Playback,
};
use ingestdeck_core::{
    actions::input_form::takes_answer,
    control::{BreakCondition, RunCommand, UserDecision},
    diagnostic::Diagnostic as _,
    run::state::{HeldCallState, RunView, UnitState},
    tape::UnitKey,
};

/// The unit that can be held or released; requires a live run shown at the present.
pub(crate) fn subject<'a>(model: &ScreenModel, run_view: &'a RunView) -> Option<&'a UnitState> {
    let shown = model.page().scope() == ActionScope::Live;
    let reachable =
        model.connection.accepts_commands() && model.playhead.playback == Playback::Follow && shown;
    model
        .unit_of_page(run_view)
        .filter(|unit| reachable && !unit.status.is_finished())
}

/// True if a run whose units can be held lists no unit.
pub(crate) fn has_no_listed_unit(model: &ScreenModel, run_view: &RunView) -> bool {
    let reachable = model.connection.accepts_commands()
        && model.playhead.playback == Playback::Follow
        && model.is_bottom();
    reachable && !run_view.state.units.is_empty() && model.unit(run_view).is_none()
}

/// The pending call of the unit, if any.
pub(super) fn waiting<'a>(
    model: &ScreenModel,
    run_view: &'a RunView,
) -> Option<(&'a UnitState, &'a HeldCallState)> {
    let unit = subject(model, run_view)?;
    Some((unit, unit.oldest_held_call()?))
}

/// True if a unit is held, or the hold was requested on this screen.
pub(crate) fn is_or_will_be_held(model: &ScreenModel, unit: &UnitState) -> bool {
    unit.is_held() || model.dialogs.requested_holds.contains(&unit.key)
}

pub(crate) fn is_held(model: &ScreenModel, run_view: &RunView) -> Availability {
    require(subject(model, run_view).is_some_and(|unit| is_or_will_be_held(model, unit)))
}

pub(crate) fn has_pending_approval(model: &ScreenModel, run_view: &RunView) -> Availability {
    match (waiting(model, run_view), subject(model, run_view)) {
        (Some(_), _) => Ok(()),
        (None, Some(unit)) if is_or_will_be_held(model, unit) => {
            Err(Unavailable::because(no_held_call(&unit.key)))
        }
        (None, _) => Err(Unavailable::NoEffect),
    }
}

/// A reason can be typed before the next call of a held unit.
pub(crate) fn can_deny(model: &ScreenModel, run_view: &RunView) -> Availability {
    let can =
        |unit: &UnitState| is_or_will_be_held(model, unit) || unit.oldest_held_call().is_some();
    require(subject(model, run_view).is_some_and(can))
}

fn no_held_call(unit: &UnitKey) -> String {
    format!("no call of {unit} is held yet")
}

/// A call that asks for an answer is not edited.
pub(crate) fn can_edit(model: &ScreenModel, run_view: &RunView) -> Availability {
    has_pending_approval(model, run_view)?;
    match waiting(model, run_view) {
        None => Err(Unavailable::NoEffect),
        Some((_, call)) if takes_answer(&call.tool) => Err(Unavailable::because(
            "this call waits for an answer; give it, or decline",
        )),
        Some(_) => Ok(()),
    }
}

pub(super) fn call_id(unit: &UnitState, call: &HeldCallState) -> CallId {
    CallId {
        unit: unit.key.clone(),
        call: call.tool_use_id.clone(),
    }
}

pub(crate) fn hold(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let Some(unit) = subject(model, run_view).map(|unit| unit.key.clone()) else {
        return Vec::new();
    };
    model.units_view.follows_work = false;
    let size = match model.size.1 < MIN_DIALOG_ROWS {
        true => format!("; deciding about it needs {MIN_DIALOG_ROWS} rows"),
        false => String::new(),
    };
    model.toasts.show_about(
        ToastTopic::Holding(unit.clone()),
        format!("{unit} will wait at its next tool call{size}"),
    );
    model.dialogs.requested_holds.push(unit.clone());
    vec![ScreenEffect::Command(RunCommand::Hold { unit })]
}

/// Forgets that a unit is to be held and that its next call is to be denied.
fn forget_hold(model: &mut ScreenModel, unit: &UnitKey) {
    model.dialogs.requested_holds.retain(|held| held != unit);
    model.dialogs.next_denials.remove(unit);
    model.toasts.dismiss(&ToastTopic::Holding(unit.clone()));
}

pub(crate) fn release(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let Some(subject) = subject(model, run_view) else {
        return Vec::new();
    };
    let (unit, details) = (subject.key.clone(), release_consequences(subject));
    model.units_view.follows_work = false;
    forget_hold(model, &unit);
    let then = vec![ScreenEffect::Command(RunCommand::Release {
        unit: unit.clone(),
    })];
    if details.is_empty() {
        model.toasts.show(format!("{unit} is released"));
        return then;
    }
    model.dialogs.question = Some(ConfirmQuestion::new(
        format!("Release {unit}?"),
        details,
        then,
    ));
    Vec::new()
}

/// Lets a held unit run to the next failure or breakpoint.
pub(crate) fn run_to_breakpoint(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    run_until(model, run_view, BreakCondition::Failure)
}

/// Lets a unit run until one of its calls meets `condition` or a breakpoint; that call then waits.
pub(crate) fn run_until(
    model: &mut ScreenModel,
    run_view: &RunView,
    condition: BreakCondition,
) -> Vec<ScreenEffect> {
    let Some(unit) = subject(model, run_view) else {
        return Vec::new();
    };
    let (unit, call) = (
        unit.key.clone(),
        unit.oldest_held_call()
            .and_then(|call| call.tool_use_id.clone()),
    );
    model.units_view.follows_work = false;
    // A silence can end with any event, not only a call, so it cannot stop a call.
    let stops = |condition: &BreakCondition| !matches!(condition, BreakCondition::Silence(_));
    let on = model
        .playhead
        .breakpoints
        .iter()
        .filter(|breakpoint| breakpoint.is_enabled)
        .map(|breakpoint| &breakpoint.condition);
    let mut conditions = vec![condition];
    for condition in on.filter(|condition| stops(condition)) {
        if !conditions.contains(condition) {
            conditions.push(condition.clone());
        }
    }
    let words: Vec<_> = conditions.iter().map(ToString::to_string).collect();
    forget_hold(model, &unit);
    model
        .toasts
        .show(format!("{unit} runs until {}", words.join(", ")));
    vec![ScreenEffect::Command(RunCommand::RunUntil {
        unit,
        call,
        conditions,
    })]
}

pub(crate) fn allow(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let Some((unit, call)) = waiting(model, run_view) else {
        return Vec::new();
    };
    model.units_view.follows_work = false;
    let CallId { unit, call } = call_id(unit, call);
    vec![ScreenEffect::Command(RunCommand::Decide {
        unit,
        call,
        decision: UserDecision::Allow,
    })]
}

pub(crate) fn edit(model: &mut ScreenModel, run_view: &RunView) {
    let Some((unit, call)) = waiting(model, run_view) else {
        return;
    };
    model.units_view.follows_work = false;
    match ArgumentsEditor::new(call_id(unit, call), call) {
        Ok(editor) => model.dialogs.editor = Some(editor),
        Err(problem) => model.toasts.show(problem.to_line()),
    }
}

pub(crate) fn ask_deny_reason(model: &mut ScreenModel, run_view: &RunView) {
    let Some(unit) = subject(model, run_view) else {
        return;
    };
    let purpose = match unit.oldest_held_call() {
        Some(call) => InputPurpose::Deny(call_id(unit, call)),
        None => InputPurpose::DenyNext(unit.key.clone()),
    };
    let key = unit.key.clone();
    model.units_view.follows_work = false;
    model.dialogs.ask_text(purpose);
    // The reason is changed, or given up by leaving the line.
    if let (Some(reason), Some(typed)) = (
        model.dialogs.next_denials.remove(&key),
        &mut model.dialogs.line_input,
    ) {
        typed.text = reason;
    }
}

/// The call that the typed reason denies: of a held unit, the oldest one by now.
pub(crate) fn denied_call(run_view: &RunView, purpose: &InputPurpose) -> Option<CallId> {
    match purpose {
        InputPurpose::Deny(call) => Some(call.clone()),
        InputPurpose::DenyNext(key) => {
            let unit = run_view.state.units.iter().find(|unit| unit.key == *key)?;
            Some(call_id(unit, unit.oldest_held_call()?))
        }
        _ => None,
    }
}

/// Remembers the reason of a denial that was submitted before there was a call.
pub(crate) fn remember_denial(model: &mut ScreenModel, unit: UnitKey, reason: String) {
    if reason.trim().is_empty() {
        model.toasts.show("type a reason for the model");
        return model.dialogs.ask_text(InputPurpose::DenyNext(unit));
    }
    model.toasts.show_about(
        ToastTopic::Holding(unit.clone()),
        format!("the next call of {unit} will be denied"),
    );
    model.dialogs.next_denials.insert(unit, reason);
}

/// Denies the calls that came after the reasons for denying them.
pub(crate) fn deny_next(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    if model.is_in_past() {
        return Vec::new();
    }
    let mut effects = Vec::new();
    for (key, reason) in std::mem::take(&mut model.dialogs.next_denials) {
        let unit = run_view.state.units.iter().find(|unit| unit.key == key);
        let Some(unit) = unit.filter(|unit| !unit.status.is_finished()) else {
            let written = WrittenText {
                purpose: TextPurpose::Denial(key.clone()),
                text: reason,
            };
            let refusal = format!("{key} ended before its next call; nothing was denied");
            let text = model.dialogs.refused(&refusal, Some(written));
            model.toasts.show(text);
            continue;
        };
        match unit.oldest_held_call() {
            Some(call) => {
                let id = call_id(unit, call);
                effects.extend(deny(model, run_view, id, reason));
            }
            None => {
                model.dialogs.next_denials.insert(key, reason);
            }
        }
    }
    effects
}

/// Submits the reason of a denial.
pub(crate) fn deny(
    model: &mut ScreenModel,
    run_view: &RunView,
    id: CallId,
    reason: String,
) -> Vec<ScreenEffect> {
    if reason.trim().is_empty() {
        model.toasts.show("type a reason for the model");
        model.dialogs.line_input = Some(LineInput::new(InputPurpose::Deny(id)));
        return Vec::new();
    }
    if !is_waiting(run_view, &id) {
        let written = WrittenText {
            purpose: TextPurpose::Denial(id.unit),
            text: reason,
        };
        let text = model.dialogs.refused(CALL_IS_OVER, Some(written));
        model.toasts.show(text);
        return Vec::new();
    }
    let CallId { unit, call } = id;
    vec![ScreenEffect::Command(RunCommand::Decide {
        unit,
        call,
        decision: UserDecision::Deny(reason),
    })]
}

/// The unit that can receive a message: a running one, or a session at any time.
fn message_target<'a>(model: &ScreenModel, run_view: &'a RunView) -> Option<&'a UnitState> {
    let is_idle_session = model.connection.is_session
        && model.connection.accepts_commands()
        && model.playhead.playback == Playback::Follow;
    subject(model, run_view).or_else(|| model.unit_of_page(run_view).filter(|_| is_idle_session))
}

/// Whether the agent of the selected unit can receive a message.
pub(crate) fn can_say(model: &ScreenModel, run_view: &RunView) -> Availability {
    match message_target(model, run_view) {
        Some(unit) if unit.status.is_in_flight() || model.connection.is_session => Ok(()),
        Some(unit) => Err(Unavailable::because(format!(
            "{} does not run yet",
            unit.key
        ))),
        None => Err(Unavailable::because(
            "no running unit is selected; retry a finished one with feedback",
        )),
    }
}

pub(crate) fn ask_message(model: &mut ScreenModel, run_view: &RunView) {
    if let Some(unit) = message_target(model, run_view).map(|unit| unit.key.clone()) {
        model.units_view.follows_work = false;
        model.dialogs.ask_text(InputPurpose::Say(unit));
    }
}

/// Submits a message for an agent.
pub(crate) fn say(
    model: &mut ScreenModel,
    run_view: &RunView,
    unit: UnitKey,
    text: String,
) -> Vec<ScreenEffect> {
    if text.trim().is_empty() {
        return Vec::new();
    }
    if model.connection.is_session {
        model
            .toasts
            .show("the session receives the message in this turn or as its next one");
    } else {
        let known = run_view.state.units.iter().find(|known| known.key == unit);
        let Some(attempt) = known
            .filter(|unit| unit.status.is_in_flight())
            .and_then(UnitState::latest)
        else {
            let written = WrittenText {
                purpose: TextPurpose::Feedback(vec![unit.clone()]),
                text,
            };
            let shown = model.dialogs.refused(
                &format!("{unit} does not run, so it gets no message"),
                Some(written),
            );
            model.toasts.show(shown);
            return Vec::new();
        };
        model.toasts.show(format!(
            "the message to {unit} waits for a call of its agent"
        ));
        model.dialogs.message_sent(&unit, attempt, text.clone());
    }
    vec![ScreenEffect::Command(RunCommand::Say { unit, text })]
}

/// Submits the edited arguments.
pub(crate) fn send(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let Some(mut editor) = model.dialogs.editor.take() else {
        return Vec::new();
    };
    if !is_waiting(run_view, &editor.call) {
        // The text stays open, so that it can be copied.
        model.dialogs.editor = Some(editor);
        return Vec::new();
    }
    match editor.input(
        model
            .connection
            .check_arguments
            .unwrap_or(|_, _| Vec::new()),
    ) {
        Some(input) => {
            let CallId { unit, call } = editor.call;
            // Without a change, the call is allowed as it is.
            let is_changed = editor.original != input;
            let decision = if is_changed {
                UserDecision::Edit(input)
            } else {
                UserDecision::Allow
            };
            vec![ScreenEffect::Command(RunCommand::Decide {
                unit,
                call,
                decision,
            })]
        }
        None => {
            model.dialogs.editor = Some(editor);
            Vec::new()
        }
    }
}

/// Why the text that is being typed can no longer be sent, because its subject ended meanwhile.
pub(crate) fn ended_subject(
    model: &ScreenModel,
    run_view: &RunView,
    purpose: &InputPurpose,
) -> Option<String> {
    match purpose {
        InputPurpose::Say(key) => {
            let unit = run_view.state.units.iter().find(|unit| unit.key == *key)?;
            (!unit.status.is_in_flight() && !model.connection.is_session)
                .then(|| format!("{key} no longer runs"))
        }
        InputPurpose::Deny(call) => (!is_waiting(run_view, call)).then(|| CALL_IS_OVER.to_owned()),
        InputPurpose::DenyNext(key) => {
            let unit = run_view.state.units.iter().find(|unit| unit.key == *key)?;
            (unit.status.is_finished()).then(|| format!("{key} no longer runs"))
        }
        InputPurpose::Reject(_) | InputPurpose::SendBack(_) => run_view
            .state
            .open_review()
            .is_none()
            .then(|| "the review is over".to_owned()),
        InputPurpose::Search
        | InputPurpose::Command
        | InputPurpose::FilterUnits
        | InputPurpose::OpenPath
        | InputPurpose::FindInRecords
        | InputPurpose::Bookmark(_) => None,
    }
}

pub(super) const CALL_IS_OVER: &str = "that call is no longer waiting";

/// True while the call waits for a decision.
pub(crate) fn is_waiting(run_view: &RunView, id: &CallId) -> bool {
    let unit = run_view.state.units.iter().find(|unit| unit.key == id.unit);
    let held = unit
        .and_then(UnitState::latest)
        .map_or(&[][..], |attempt| attempt.held_calls.as_slice());
    held.iter()
        .any(|call| call.tool_use_id.as_deref() == id.call.as_ref().map(Arc::as_ref))
}

/// The problem of the editor for the arguments of a call: that of its text, or that the call is over.
pub(crate) fn editor_problem(run_view: &RunView, editor: &ArgumentsEditor) -> Option<String> {
    let is_over = !is_waiting(run_view, &editor.call);
    if is_over {
        Some(CALL_IS_OVER.to_owned())
    } else {
        editor.problem.clone()
    }
}
