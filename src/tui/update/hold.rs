//! Holding a unit that runs, and deciding over its calls.
//!
//! A decision names the call that the person saw; whether that call still waits is for the run to say.

use std::sync::Arc;

use super::orders;
use crate::{
    run::state::{HeldCall, Story, Unit},
    tui::{
        breakpoint::Condition,
        effect::{Command, Effect},
        model::{About, CallId, Editor, Model, Pace, Purpose, Typing, View},
    },
};

/// The unit that can be held or let go: of a run that is shown as it goes on.
pub(in crate::tui) fn subject<'a>(model: &Model, story: &'a Story) -> Option<&'a Unit> {
    let shown = !matches!(model.views.last(), Some(View::Help(_) | View::Log(_) | View::Breakpoints(_)));
    let reachable = model.can_hold && model.pace == Pace::Follow && shown;
    orders::target(model, story).filter(|unit| reachable && !unit.status.is_over())
}

/// True where a key would hold a unit, of a session that runs.
pub(super) fn is_session(model: &Model, story: &Story) -> bool {
    let follows = model.is_session() && model.pace == Pace::Follow;
    follows && orders::target(model, story).is_some_and(|unit| !unit.status.is_over())
}

/// True on a table that lists no unit, of a run whose units can be held.
pub(super) fn lacks_unit(model: &Model, story: &Story) -> bool {
    let reachable = model.can_hold && model.pace == Pace::Follow && model.views.is_empty();
    reachable && !story.state.units.is_empty() && model.unit(story).is_none()
}

/// Its call that waits, if one does.
pub(in crate::tui) fn waiting<'a>(model: &Model, story: &'a Story) -> Option<(&'a Unit, &'a HeldCall)> {
    let unit = subject(model, story)?;
    Some((unit, unit.held()?))
}

fn id(unit: &Unit, call: &HeldCall) -> CallId {
    CallId { unit: unit.key.clone(), call: call.tool_use_id.clone() }
}

pub(super) fn hold(model: &mut Model, story: &Story) -> Vec<Effect> {
    let Some(unit) = subject(model, story).map(|unit| unit.key.clone()) else { return Vec::new() };
    model.deck.auto = false;
    model.say_about(About::Holding(unit.clone()), format!("{unit} will wait at its next tool call"));
    vec![Effect::Command(Command::Hold { unit })]
}

pub(super) fn let_go(model: &mut Model, story: &Story) -> Vec<Effect> {
    let Some(unit) = subject(model, story).map(|unit| unit.key.clone()) else { return Vec::new() };
    model.deck.auto = false;
    model.unsay(&About::Holding(unit.clone()));
    model.say(format!("{unit} is let go"));
    vec![Effect::Command(Command::LetGo { unit })]
}

/// Lets a held unit run to the next failure, or to a breakpoint.
pub(super) fn run_on(model: &mut Model, story: &Story) -> Vec<Effect> {
    run_until(model, story, Condition::Failure)
}

/// Lets a unit run until a call of it meets `condition` or a breakpoint; that one waits.
pub(super) fn run_until(model: &mut Model, story: &Story, condition: Condition) -> Vec<Effect> {
    let Some(unit) = subject(model, story) else { return Vec::new() };
    let (unit, call) = (unit.key.clone(), unit.held().and_then(|call| call.tool_use_id.clone()));
    model.deck.auto = false;
    // A silence ends with whatever comes next, which need not be a call.
    let stops = |condition: &Condition| !matches!(condition, Condition::Silence(_));
    let on = model.breakpoints.iter().filter(|breakpoint| breakpoint.on).map(|breakpoint| &breakpoint.condition);
    let mut conditions = vec![condition];
    for condition in on.filter(|condition| stops(condition)) {
        if !conditions.contains(condition) {
            conditions.push(condition.clone());
        }
    }
    let words: Vec<_> = conditions.iter().map(ToString::to_string).collect();
    model.unsay(&About::Holding(unit.clone()));
    model.say(format!("{unit} runs until {}", words.join(", ")));
    vec![Effect::Command(Command::RunUntil { unit, call, conditions })]
}

pub(super) fn allow(model: &mut Model, story: &Story) -> Vec<Effect> {
    let Some((unit, call)) = waiting(model, story) else { return Vec::new() };
    model.deck.auto = false;
    let CallId { unit, call } = id(unit, call);
    vec![Effect::Command(Command::Step { unit, call })]
}

pub(super) fn edit(model: &mut Model, story: &Story) {
    let Some((unit, call)) = waiting(model, story) else { return };
    model.deck.auto = false;
    match Editor::new(id(unit, call), call) {
        Ok(editor) => model.editor = Some(editor),
        Err(why) => model.say(why),
    }
}

pub(super) fn ask_why(model: &mut Model, story: &Story) {
    if let Some((unit, call)) = waiting(model, story) {
        model.deck.auto = false;
        model.typing = Some(Typing::new(Purpose::Deny(id(unit, call))));
    }
}

/// The reason is complete.
pub(super) fn deny(model: &mut Model, story: &Story, id: CallId, reason: String) -> Vec<Effect> {
    if reason.trim().is_empty() {
        model.say("the model needs a reason to go on from; type one");
        model.typing = Some(Typing::new(Purpose::Deny(id)));
        return Vec::new();
    }
    if !still_waits(model, story, &id) {
        return Vec::new();
    }
    let CallId { unit, call } = id;
    vec![Effect::Command(Command::Deny { unit, call, reason })]
}

/// The edited arguments are complete.
pub(super) fn send(model: &mut Model, story: &Story) -> Vec<Effect> {
    let Some(mut editor) = model.editor.take() else { return Vec::new() };
    if !still_waits(model, story, &editor.call) {
        return Vec::new();
    }
    match editor.input() {
        Ok(input) => {
            let CallId { unit, call } = editor.call;
            vec![Effect::Command(Command::Edit { unit, call, input })]
        }
        Err(problem) => {
            editor.problem = Some(problem);
            model.editor = Some(editor);
            Vec::new()
        }
    }
}

/// A call may be withdrawn while somebody thinks about it.
fn still_waits(model: &mut Model, story: &Story, id: &CallId) -> bool {
    let unit = story.state.units.iter().find(|unit| unit.key == id.unit);
    let held = unit.and_then(Unit::latest).map_or(&[][..], |attempt| attempt.held.as_slice());
    let waits = held.iter().any(|call: &HeldCall| call.tool_use_id.as_deref() == id.call.as_ref().map(Arc::as_ref));
    if !waits {
        model.say("that call waits no longer");
    }
    waits
}
