//! Retrying a unit otherwise than before: the form, and what it sends.

use super::orders;
use crate::{
    run::state::Story,
    tui::{
        effect::{Command, Effect},
        model::{Amending, Model},
    },
};

/// Opens the form for the unit in view.
pub(super) fn open(model: &mut Model, story: &Story) {
    model.deck.auto = false;
    let Some(unit) = orders::target(model, story) else {
        orders::nobody(model);
        return;
    };
    match orders::refusal(model, story, unit) {
        Some(refusal) => model.say(refusal),
        None => model.amending = Some(Amending::new(unit, &story.state)),
    }
}

/// The form is complete.
pub(super) fn send(model: &mut Model, story: &Story) -> Vec<Effect> {
    let Some(mut form) = model.amending.take() else { return Vec::new() };
    let amendment = match form.amendment() {
        Ok(amendment) => amendment,
        Err(problem) => {
            form.problem = Some(problem);
            model.amending = Some(form);
            return Vec::new();
        }
    };
    // A unit that waited may have started while somebody wrote. What was written must not be lost.
    let unit = story.state.units.iter().find(|unit| unit.key == form.unit);
    if let Some(refusal) = unit.and_then(|unit| orders::refusal(model, story, unit)) {
        form.problem = Some(refusal);
        model.amending = Some(form);
        return Vec::new();
    }
    let unit = form.unit;
    let how = if amendment.is_empty() { "as planned".to_owned() } else { amendment.to_string() };
    model.say(format!("new attempt at {unit}: {how}"));
    vec![Effect::Command(Command::Retry { unit, amendment: Some(amendment) })]
}
