//! Movement through time: playing, stepping, seeking, and the selection when time stops.

use ratatui::layout::Rect;

use super::{listing, run_commands};
use crate::{
    run::breakpoint::TimeStop,
    run::{
        SeekTarget,
        state::{AttemptId, RunView},
    },
    tape::{Millis, Seq},
    tui::{
        command::SPEEDS,
        effect::{ScreenEffect, TimeStep},
        model::{OverlayView, Playback, ScreenModel, ScrollList},
    },
};

pub(super) fn play(model: &mut ScreenModel) -> Vec<ScreenEffect> {
    model.playback = match model.playback {
        Playback::Paused if model.is_live => Playback::Follow,
        // At the end of a recorded run, play starts again from the beginning.
        Playback::Follow if !model.is_live && model.at_end => Playback::Speed(1.0),
        Playback::Paused => Playback::Speed(1.0),
        Playback::Follow | Playback::Speed(_) | Playback::Unthrottled => Playback::Paused,
    };
    vec![ScreenEffect::SetPlayback(model.playback)]
}

/// Pauses and seeks to another moment.
pub(super) fn pause_and_seek(model: &mut ScreenModel, effect: ScreenEffect) -> Vec<ScreenEffect> {
    model.playback = Playback::Paused;
    model.units_view.follows_work = false;
    vec![ScreenEffect::SetPlayback(Playback::Paused), effect]
}

/// True if filters hide all units, so that a step has no visible target.
fn is_everything_filtered(model: &ScreenModel, run_view: &RunView) -> bool {
    !run_view.state.units.is_empty() && run_commands::target(model, run_view).is_none()
}

pub(super) fn turn(model: &mut ScreenModel, run_view: &RunView, forward: bool) -> Vec<ScreenEffect> {
    if is_everything_filtered(model, run_view) {
        return run_commands::no_unit_selected(model);
    }
    let unit = model.units_view.unit;
    pause_and_seek(model, ScreenEffect::Step(TimeStep::Turn { unit, forward }))
}

pub(super) fn action(model: &mut ScreenModel, run_view: &RunView, forward: bool) -> Vec<ScreenEffect> {
    if is_everything_filtered(model, run_view) {
        return run_commands::no_unit_selected(model);
    }
    let unit = model.units_view.unit;
    pause_and_seek(model, ScreenEffect::Step(TimeStep::Action { unit, forward }))
}

pub(super) fn faster(model: &mut ScreenModel) -> Vec<ScreenEffect> {
    set_speed(
        model,
        match model.playback {
            Playback::Speed(speed) if speed < SPEEDS.1 => Playback::Speed((speed * 2.0).min(SPEEDS.1)),
            Playback::Speed(_) | Playback::Unthrottled => Playback::Unthrottled,
            // The first press plays at recorded speed.
            Playback::Follow | Playback::Paused => Playback::Speed(1.0),
        },
    )
}

pub(super) fn slower(model: &mut ScreenModel) -> Vec<ScreenEffect> {
    set_speed(
        model,
        match model.playback {
            Playback::Speed(speed) => Playback::Speed((speed / 2.0).max(SPEEDS.0)),
            Playback::Unthrottled => Playback::Speed(SPEEDS.1),
            Playback::Follow | Playback::Paused => Playback::Speed(1.0),
        },
    )
}

pub(super) fn set_speed(model: &mut ScreenModel, playback: Playback) -> Vec<ScreenEffect> {
    model.playback = playback;
    vec![ScreenEffect::SetPlayback(playback)]
}

/// Moves to the last entry and follows the run.
pub(super) fn to_end(model: &mut ScreenModel) -> Vec<ScreenEffect> {
    model.playback = Playback::Follow;
    vec![ScreenEffect::SetPlayback(Playback::Follow), ScreenEffect::Step(TimeStep::End)]
}

/// The moment of a column of the timeline bar.
fn target_at_column(model: &ScreenModel, bar: Rect, x: u16) -> SeekTarget {
    let cells = u128::from(bar.width.saturating_sub(1).max(1));
    let at = (u128::from(x.saturating_sub(bar.x)) * u128::from(model.bounds.last_at.0)).div_ceil(cells);
    SeekTarget::Time(Millis(u64::try_from(at).unwrap_or(u64::MAX).min(model.bounds.last_at.0)))
}

/// Seeks to a column of the timeline bar.
pub(super) fn scrub_to_column(model: &mut ScreenModel, bar: Rect, x: u16) -> Vec<ScreenEffect> {
    let moment = target_at_column(model, bar, x.clamp(bar.x, bar.right().saturating_sub(1)));
    scrub(model, moment)
}

/// Moves by one column of the timeline bar for each turn of the wheel.
pub(super) fn scrub_with_wheel(
    model: &mut ScreenModel,
    run_view: &RunView,
    bar: Rect,
    down: bool,
) -> Vec<ScreenEffect> {
    let column = model.bounds.last_at.0 / u64::from(bar.width.max(1)) + 1;
    let now = run_view.state.last_entry_at.0;
    let at = if down { now.saturating_add(column).min(model.bounds.last_at.0) } else { now.saturating_sub(column) };
    scrub(model, SeekTarget::Time(Millis(at)))
}

fn scrub(model: &mut ScreenModel, moment: SeekTarget) -> Vec<ScreenEffect> {
    model.units_view.follows_work = false;
    // A playing tape continues from the new moment.
    if matches!(model.playback, Playback::Speed(_) | Playback::Unthrottled) {
        return vec![ScreenEffect::Scrub(moment)];
    }
    model.playback = Playback::Paused;
    vec![ScreenEffect::SetPlayback(Playback::Paused), ScreenEffect::Scrub(moment)]
}

/// Selects and announces the reason why time stopped.
pub(super) fn time_stopped(model: &mut ScreenModel, run_view: &RunView, hit: &TimeStop) {
    model.playback = Playback::Paused;
    let unit = hit.attempt.and_then(|attempt_id| select(model, run_view, attempt_id, hit.seq));
    let why = match hit.breakpoint {
        Some(place) => {
            let condition = model.breakpoints.get(place).map(|breakpoint| breakpoint.condition.to_string());
            format!("breakpoint {} ({}): ", place + 1, condition.unwrap_or_default())
        }
        None => String::new(),
    };
    if !hit.description.is_empty() {
        let unit = unit.map(|unit| format!("{unit}: ")).unwrap_or_default();
        model.show_message(format!("{why}{unit}{}", hit.description));
    }
}

/// Selects the row of an entry with its unit and attempt. Returns the name of the unit.
fn select(model: &mut ScreenModel, run_view: &RunView, attempt_id: AttemptId, seq: Seq) -> Option<String> {
    let units = &run_view.state.units;
    let (place, attempt) = units.iter().enumerate().find_map(|(place, unit)| {
        let attempt = unit.attempts.iter().position(|attempt| attempt.id == attempt_id)?;
        Some((place, attempt))
    })?;
    let unit = units.get(place)?;
    model.units_view.follows_work = false;
    model.units_view.unit = place;
    model.units_view.attempt = (attempt + 1 < unit.attempts.len()).then_some(attempt);
    if model.units_view.listing.row(place).is_none() {
        listing::clear(model, run_view);
    }
    let rows = run_view.rows(attempt_id);
    let row = rows.iter().rposition(|row| row.first() == seq || row.last(run_view.state.entries) == Some(seq));
    if let Some(row) = row {
        model.units_view.attempt_id = Some(attempt_id);
        let follow = row + 1 == rows.len();
        model.units_view.stream = ScrollList { selected: row, follow, seen: rows.len(), ..model.units_view.stream };
    }
    Some(unit.key.as_str().to_owned())
}

pub(super) fn toggle(model: &mut ScreenModel) {
    if let Some(OverlayView::Breakpoints(list)) = model.views.last()
        && let Some(breakpoint) = model.breakpoints.get_mut(list.selected)
    {
        breakpoint.is_enabled = !breakpoint.is_enabled;
    }
}

pub(super) fn delete(model: &mut ScreenModel) {
    if let Some(OverlayView::Breakpoints(list)) = model.views.last()
        && list.selected < model.breakpoints.len()
    {
        model.breakpoints.remove(list.selected);
    }
}
