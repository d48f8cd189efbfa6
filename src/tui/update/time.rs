//! Walking through time: playing, stepping, pointing at a moment, and what is selected where time stops.

use ratatui::layout::Rect;

use super::{listing, orders};
use crate::{
    run::{
        Moment,
        state::{LaneId, Story},
    },
    tape::{Millis, Seq},
    tui::{
        breakpoint::Hit,
        command::SPEEDS,
        effect::{Effect, Step},
        model::{List, Model, Pace, View},
    },
};

pub(super) fn play(model: &mut Model) -> Vec<Effect> {
    model.pace = match model.pace {
        Pace::Hold if model.live => Pace::Follow,
        // At the end of a record there is nothing to pause: it plays from the beginning.
        Pace::Follow if !model.live && model.at_end => Pace::Scaled(1.0),
        Pace::Hold => Pace::Scaled(1.0),
        Pace::Follow | Pace::Scaled(_) | Pace::Full => Pace::Hold,
    };
    vec![Effect::SetPace(model.pace)]
}

/// Time stands, at another moment.
pub(super) fn moved(model: &mut Model, effect: Effect) -> Vec<Effect> {
    model.pace = Pace::Hold;
    model.deck.auto = false;
    vec![Effect::SetPace(Pace::Hold), effect]
}

/// Units are there, and none is listed: nobody sees whose turn or action a step would be about.
fn hides_all(model: &Model, story: &Story) -> bool {
    !story.state.units.is_empty() && orders::target(model, story).is_none()
}

pub(super) fn turn(model: &mut Model, story: &Story, forward: bool) -> Vec<Effect> {
    if hides_all(model, story) {
        return orders::nobody(model);
    }
    let unit = model.deck.unit;
    moved(model, Effect::Step(Step::Turn { unit, forward }))
}

pub(super) fn action(model: &mut Model, story: &Story, forward: bool) -> Vec<Effect> {
    if hides_all(model, story) {
        return orders::nobody(model);
    }
    let unit = model.deck.unit;
    moved(model, Effect::Step(Step::Action { unit, forward }))
}

pub(super) fn faster(model: &mut Model) -> Vec<Effect> {
    set_speed(
        model,
        match model.pace {
            Pace::Scaled(speed) if speed < SPEEDS.1 => Pace::Scaled((speed * 2.0).min(SPEEDS.1)),
            Pace::Scaled(_) | Pace::Full => Pace::Full,
            // The first press plays at the speed of the record.
            Pace::Follow | Pace::Hold => Pace::Scaled(1.0),
        },
    )
}

pub(super) fn slower(model: &mut Model) -> Vec<Effect> {
    set_speed(
        model,
        match model.pace {
            Pace::Scaled(speed) => Pace::Scaled((speed / 2.0).max(SPEEDS.0)),
            Pace::Full => Pace::Scaled(SPEEDS.1),
            Pace::Follow | Pace::Hold => Pace::Scaled(1.0),
        },
    )
}

pub(super) fn set_speed(model: &mut Model, pace: Pace) -> Vec<Effect> {
    model.pace = pace;
    vec![Effect::SetPace(pace)]
}

/// To the last entry, and on with the run.
pub(super) fn to_end(model: &mut Model) -> Vec<Effect> {
    model.pace = Pace::Follow;
    vec![Effect::SetPace(Pace::Follow), Effect::Step(Step::End)]
}

/// The moment that a column of the bar stands for.
fn pointed(model: &Model, bar: Rect, x: u16) -> Moment {
    let cells = u128::from(bar.width.saturating_sub(1).max(1));
    let at = (u128::from(x.saturating_sub(bar.x)) * u128::from(model.extent.last.0)).div_ceil(cells);
    Moment::Time(Millis(u64::try_from(at).unwrap_or(u64::MAX).min(model.extent.last.0)))
}

/// Somebody points at a column of the bar.
pub(super) fn point(model: &mut Model, bar: Rect, x: u16) -> Vec<Effect> {
    let moment = pointed(model, bar, x.clamp(bar.x, bar.right().saturating_sub(1)));
    scrub(model, moment)
}

/// Somebody turns the wheel over the bar: one column.
pub(super) fn turn_wheel(model: &mut Model, story: &Story, bar: Rect, down: bool) -> Vec<Effect> {
    let column = model.extent.last.0 / u64::from(bar.width.max(1)) + 1;
    let now = story.state.now.0;
    let at = if down { now.saturating_add(column).min(model.extent.last.0) } else { now.saturating_sub(column) };
    scrub(model, Moment::Time(Millis(at)))
}

fn scrub(model: &mut Model, moment: Moment) -> Vec<Effect> {
    model.deck.auto = false;
    // A record that plays goes on playing from there.
    if matches!(model.pace, Pace::Scaled(_) | Pace::Full) {
        return vec![Effect::Scrub(moment)];
    }
    model.pace = Pace::Hold;
    vec![Effect::SetPace(Pace::Hold), Effect::Scrub(moment)]
}

/// Time has stopped by itself: what it stopped at is selected and told.
pub(super) fn stopped(model: &mut Model, story: &Story, hit: &Hit) {
    model.pace = Pace::Hold;
    let unit = hit.lane.and_then(|lane| select(model, story, lane, hit.seq));
    let why = match hit.breakpoint {
        Some(place) => {
            let condition = model.breakpoints.get(place).map(|breakpoint| breakpoint.condition.to_string());
            format!("breakpoint {} ({}): ", place + 1, condition.unwrap_or_default())
        }
        None => String::new(),
    };
    if !hit.what.is_empty() {
        let unit = unit.map(|unit| format!("{unit}: ")).unwrap_or_default();
        model.say(format!("{why}{unit}{}", hit.what));
    }
}

/// Selects the row of an entry, and the unit and the attempt that it belongs to. Gives the name of the unit.
fn select(model: &mut Model, story: &Story, lane: LaneId, seq: Seq) -> Option<String> {
    let units = &story.state.units;
    let (place, attempt) = units.iter().enumerate().find_map(|(place, unit)| {
        let attempt = unit.attempts.iter().position(|attempt| attempt.lane == lane)?;
        Some((place, attempt))
    })?;
    let unit = units.get(place)?;
    model.deck.auto = false;
    model.deck.unit = place;
    model.deck.attempt = (attempt + 1 < unit.attempts.len()).then_some(attempt);
    if model.deck.listing.row(place).is_none() {
        listing::clear(model, story);
    }
    let rows = story.rows(lane);
    let row = rows.iter().rposition(|row| row.first() == seq || row.last(story.state.entries) == Some(seq));
    if let Some(row) = row {
        model.deck.lane = Some(lane);
        let follow = row + 1 == rows.len();
        model.deck.stream = List { selected: row, follow, seen: rows.len(), ..model.deck.stream };
    }
    Some(unit.key.as_str().to_owned())
}

/// Switches the selected breakpoint on or off.
pub(super) fn toggle(model: &mut Model) {
    if let Some(View::Breakpoints(list)) = model.views.last()
        && let Some(breakpoint) = model.breakpoints.get_mut(list.selected)
    {
        breakpoint.on = !breakpoint.on;
    }
}

/// Deletes the selected breakpoint.
pub(super) fn delete(model: &mut Model) {
    if let Some(View::Breakpoints(list)) = model.views.last()
        && list.selected < model.breakpoints.len()
    {
        model.breakpoints.remove(list.selected);
    }
}
