//! Failures by cause: from a line to its unit, and a whole heap of failures tried again.

use super::orders;
use crate::{
    run::{outlook::Outlook, state::Story},
    tape::UnitKey,
    tui::{
        effect::{Command, Effect},
        model::{CauseLine, Model, Pane, Question, View},
        update::find::nearest,
        view::causes::forecast_words,
    },
};

/// Shows the unit of the selected line in the deck.
pub(super) fn open(model: &mut Model, story: &Story) {
    let Some(View::Causes(view)) = model.views.last() else { return };
    if let Some(unit) = view.unit() {
        reveal(model, story, unit);
    }
}

/// Selects a unit in the deck, whatever hides it.
pub(super) fn reveal(model: &mut Model, story: &Story, unit: usize) {
    model.views.clear();
    model.deck.auto = false;
    (model.deck.unit, model.deck.attempt, model.deck.focus) = (unit, None, Pane::Units);
    if model.deck.listing.row(unit).is_none() {
        super::listing::clear(model, story);
    }
}

/// The next cause, or the one before.
pub(super) fn next(model: &mut Model, forward: bool) {
    let Some(View::Causes(view)) = model.views.last_mut() else { return };
    let len = view.lines.len();
    let hit = nearest(len, view.list.selected, forward, |line| matches!(view.lines[line], CauseLine::Cause(_)));
    if let Some(hit) = hit {
        view.list.select(hit, len);
    }
}

/// New attempts at all units that failed like the selected one.
pub(super) fn retry(model: &mut Model, story: &Story) {
    let Some(View::Causes(view)) = model.views.last() else { return };
    let Some(failures) = view.failures() else { return };
    let units: Vec<UnitKey> =
        failures.units.iter().filter_map(|unit| story.state.units.get(*unit)).map(|unit| unit.key.clone()).collect();
    if !model.takes_orders() {
        model.say(orders::closed(model));
        return;
    }
    let mut details = vec![crate::tui::text::one_row(&failures.example, 200)];
    details.push(forecast_words(&Outlook::of_retrying(&story.state, &failures.units)));
    details.extend(orders::listed(&units));
    let text =
        format!("Retry {} that failed for the same reason ({})?", orders::counted(units.len(), "unit"), failures.cause);
    model.question = Some(Question { text, details, then: vec![Effect::Command(Command::RetryFailed { units })] });
}
