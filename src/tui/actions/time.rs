//! Movement through time: playing, stepping, seeking, and the selection when time stops.

use ratatui::layout::Rect;

use crate::{
    action::{Availability, Unavailable, UserAction, require},
    action_spec::{ActionSpec, change, effects},
    effect::{ScreenEffect, TimeStep},
    model::ScrollList,
    page::ScreenModel,
    pages::{
        bookmarks::{BookmarksPage, actions as bookmarks},
        breakpoints::BreakpointsPage,
        lanes::LanesPage,
        recent,
    },
    playback::Playback,
};
use ingestdeck_core::{
    run::breakpoint::TimeStop,
    run::{
        SeekTarget,
        state::{AttemptId, RunView},
    },
    tape::{Millis, Seq},
};

pub(super) const ACTIONS: &[ActionSpec] = &[
    effects(
        UserAction::Play,
        "play",
        "play",
        "play or pause a record; on a live view only while in the past",
        play,
    )
    .when(can_play),
    effects(
        UserAction::StepForward,
        "step-forward",
        "step",
        "one entry forward",
        step_entry::<true>,
    ),
    effects(
        UserAction::StepBack,
        "step-back",
        "back",
        "one entry back",
        step_entry::<false>,
    ),
    effects(
        UserAction::ActionForward,
        "action-forward",
        "action",
        "one action of the unit forward",
        action::<true>,
    )
    .when(has_visible_target),
    effects(
        UserAction::ActionBack,
        "action-back",
        "action back",
        "one action of the unit back",
        action::<false>,
    )
    .when(has_visible_target),
    effects(
        UserAction::TurnForward,
        "turn-forward",
        "turn",
        "one turn of the unit forward",
        turn::<true>,
    )
    .when(has_visible_target),
    effects(
        UserAction::TurnBack,
        "turn-back",
        "turn back",
        "one turn of the unit back",
        turn::<false>,
    )
    .when(has_visible_target),
    effects(
        UserAction::RunToFailure,
        "run-to-failure",
        "to failure",
        "run to the next failure of any unit",
        to_failure::<true>,
    ),
    effects(
        UserAction::BackToFailure,
        "back-to-failure",
        "back to failure",
        "back to the last failure of any unit",
        to_failure::<false>,
    ),
    effects(
        UserAction::Faster,
        "faster",
        "faster",
        "double the speed; past 64, unlimited",
        faster,
    ),
    effects(
        UserAction::Slower,
        "slower",
        "slower",
        "half the speed",
        slower,
    ),
    change(
        UserAction::SkipIdle,
        "skip-idle",
        "skip idle",
        "playback skips times without entries, or not",
        skip_idle,
    ),
    effects(
        UserAction::ToStart,
        "to-start",
        "start",
        "to the first entry",
        |model, _| model.pause_and_seek(ScreenEffect::Seek(SeekTarget::Entries(0))),
    ),
    effects(
        UserAction::ToEnd,
        "to-end",
        "live",
        "to the last entry; live again",
        to_end,
    ),
    change(
        UserAction::Breakpoints,
        "breakpoints",
        "breakpoints",
        "breakpoints; Enter toggles, x deletes",
        |model, _| model.toggle(BreakpointsPage::default()),
    ),
    change(
        UserAction::Bookmark,
        "bookmark",
        "bookmark",
        "bookmark this moment or edit its note",
        bookmarks::edit,
    )
    .when(bookmarks::can_bookmark),
    change(
        UserAction::Bookmarks,
        "bookmarks",
        "bookmarks",
        "bookmarks; Enter goes there, e edits, x deletes",
        |model, _| model.toggle(BookmarksPage::default()),
    ),
    change(
        UserAction::Lanes,
        "lanes",
        "lanes",
        "slots over time: waits, critical path",
        |model, _| model.toggle(LanesPage::default()),
    ),
    change(
        UserAction::LastMinutes,
        "last",
        "last minutes",
        "what all units did in the last minutes; `:last 10m`",
        recent::toggle,
    )
    .when(recent::has_times),
    change(
        UserAction::WallClock,
        "wall-clock",
        "time of day",
        "times of day instead of times since the start, and back",
        |model, _| {
            let playhead = &mut model.playhead;
            playhead.shows_wall_clock = !playhead.shows_wall_clock;
        },
    )
    .when(|model, _| require(model.playhead.bounds.started_at.is_some())),
];

/// Slowest and fastest numeric speed.
pub(crate) const SPEEDS: (f64, f64) = (0.25, 64.0);

/// On a live view, the key holds and releases units. A press after the end of its unit, or of
/// the run, must not leave the present.
fn can_play(model: &ScreenModel, _: &RunView) -> Availability {
    if !model.connection.was_live || model.playhead.playback != Playback::Follow {
        return Ok(());
    }
    let key = |action: UserAction| {
        model
            .keymap
            .first(action)
            .unwrap_or_else(|| action.spec().name.to_owned())
    };
    let why = match model.connection.is_watching {
        true => "this screen only watches, so it holds no unit",
        false => "no running unit to hold",
    };
    Err(Unavailable::because(format!(
        "{why}; {} steps back in time, and {} plays from a moment",
        key(UserAction::StepBack),
        key(UserAction::CommandLine)
    )))
}

fn play(model: &mut ScreenModel, _: &RunView) -> Vec<ScreenEffect> {
    model.playhead.playback = match model.playhead.playback {
        Playback::Paused if model.connection.is_live => Playback::Follow,
        // At the end of a recorded run, play starts again from the beginning.
        Playback::Follow if !model.connection.is_live && model.playhead.at_end => {
            Playback::Speed(1.0)
        }
        Playback::Paused => Playback::Speed(1.0),
        Playback::Follow | Playback::Speed(_) | Playback::Unthrottled => Playback::Paused,
    };
    vec![ScreenEffect::SetPlayback(model.playhead.playback)]
}

/// `Err` if filters hide all units, so that a step has no visible target.
fn has_visible_target(model: &ScreenModel, run_view: &RunView) -> Availability {
    if !run_view.state.units.is_empty() && model.unit_of_page(run_view).is_none() {
        return Err(Unavailable::no_unit_selected());
    }
    Ok(())
}

fn step_entry<const FORWARD: bool>(model: &mut ScreenModel, _: &RunView) -> Vec<ScreenEffect> {
    model.pause_and_seek(ScreenEffect::Step(TimeStep::Entry { forward: FORWARD }))
}

fn to_failure<const FORWARD: bool>(model: &mut ScreenModel, _: &RunView) -> Vec<ScreenEffect> {
    model.pause_and_seek(ScreenEffect::Step(TimeStep::Failure { forward: FORWARD }))
}

fn turn<const FORWARD: bool>(model: &mut ScreenModel, _: &RunView) -> Vec<ScreenEffect> {
    let unit = model.units_view.unit;
    model.pause_and_seek(ScreenEffect::Step(TimeStep::Turn {
        unit,
        forward: FORWARD,
    }))
}

fn action<const FORWARD: bool>(model: &mut ScreenModel, _: &RunView) -> Vec<ScreenEffect> {
    let unit = model.units_view.unit;
    model.pause_and_seek(ScreenEffect::Step(TimeStep::Action {
        unit,
        forward: FORWARD,
    }))
}

fn skip_idle(model: &mut ScreenModel, _: &RunView) {
    let skips = !model.playhead.skips_idle;
    model.playhead.skips_idle = skips;
    model.toasts.show(if skips {
        "playback skips times without entries"
    } else {
        "playback keeps times without entries"
    });
}

fn faster(model: &mut ScreenModel, _: &RunView) -> Vec<ScreenEffect> {
    set_speed(
        model,
        match model.playhead.playback {
            Playback::Speed(speed) if speed < SPEEDS.1 => {
                Playback::Speed((speed * 2.0).min(SPEEDS.1))
            }
            Playback::Speed(_) | Playback::Unthrottled => Playback::Unthrottled,
            // The first press plays at recorded speed.
            Playback::Follow | Playback::Paused => Playback::Speed(1.0),
        },
    )
}

fn slower(model: &mut ScreenModel, _: &RunView) -> Vec<ScreenEffect> {
    set_speed(
        model,
        match model.playhead.playback {
            Playback::Speed(speed) => Playback::Speed((speed / 2.0).max(SPEEDS.0)),
            Playback::Unthrottled => Playback::Speed(SPEEDS.1),
            Playback::Follow | Playback::Paused => Playback::Speed(1.0),
        },
    )
}

pub(crate) fn set_speed(model: &mut ScreenModel, playback: Playback) -> Vec<ScreenEffect> {
    model.playhead.playback = playback;
    vec![ScreenEffect::SetPlayback(playback)]
}

/// Moves to the last entry and follows the run.
pub(crate) fn to_end(model: &mut ScreenModel, _: &RunView) -> Vec<ScreenEffect> {
    model.playhead.playback = Playback::Follow;
    vec![
        ScreenEffect::SetPlayback(Playback::Follow),
        ScreenEffect::Step(TimeStep::End),
    ]
}

/// The moment of a column of the timeline bar.
fn target_at_column(model: &ScreenModel, bar: Rect, x: u16) -> SeekTarget {
    let cells = u128::from(bar.width.saturating_sub(1).max(1));
    let at = (u128::from(x.saturating_sub(bar.x)) * u128::from(model.playhead.bounds.last_at.0))
        .div_ceil(cells);
    SeekTarget::Time(Millis(
        u64::try_from(at)
            .unwrap_or(u64::MAX)
            .min(model.playhead.bounds.last_at.0),
    ))
}

/// Seeks to a column of the timeline bar.
pub(crate) fn scrub_to_column(model: &mut ScreenModel, bar: Rect, x: u16) -> Vec<ScreenEffect> {
    let moment = target_at_column(model, bar, x.clamp(bar.x, bar.right().saturating_sub(1)));
    scrub(model, moment)
}

/// Moves by one column of the timeline bar for each turn of the wheel.
pub(crate) fn scrub_with_wheel(
    model: &mut ScreenModel,
    run_view: &RunView,
    bar: Rect,
    down: bool,
) -> Vec<ScreenEffect> {
    let column = model.playhead.bounds.last_at.0 / u64::from(bar.width.max(1)) + 1;
    let now = run_view.state.last_entry_at.0;
    let at = if down {
        now.saturating_add(column)
            .min(model.playhead.bounds.last_at.0)
    } else {
        now.saturating_sub(column)
    };
    scrub(model, SeekTarget::Time(Millis(at)))
}

pub(crate) fn scrub(model: &mut ScreenModel, moment: SeekTarget) -> Vec<ScreenEffect> {
    model.units_view.follows_work = false;
    // A playing tape continues from the new moment.
    if matches!(
        model.playhead.playback,
        Playback::Speed(_) | Playback::Unthrottled
    ) {
        return vec![ScreenEffect::Scrub(moment)];
    }
    model.playhead.playback = Playback::Paused;
    vec![
        ScreenEffect::SetPlayback(Playback::Paused),
        ScreenEffect::Scrub(moment),
    ]
}

/// Selects and announces the reason why time stopped.
pub(crate) fn time_stopped(model: &mut ScreenModel, run_view: &RunView, hit: &TimeStop) {
    model.playhead.playback = Playback::Paused;
    let unit = hit
        .attempt
        .and_then(|attempt_id| select(model, run_view, attempt_id, hit.seq));
    let why = match hit.breakpoint {
        Some(place) => {
            let condition = model
                .playhead
                .breakpoints
                .get(place)
                .map(|breakpoint| breakpoint.condition.to_string());
            format!(
                "breakpoint {} ({}): ",
                place + 1,
                condition.unwrap_or_default()
            )
        }
        None => String::new(),
    };
    if !hit.description.is_empty() {
        let unit = unit.map(|unit| format!("{unit}: ")).unwrap_or_default();
        model.toasts.show(format!("{why}{unit}{}", hit.description));
    }
}

/// Selects the row of an entry with its unit and attempt. Returns the name of the unit.
fn select(
    model: &mut ScreenModel,
    run_view: &RunView,
    attempt_id: AttemptId,
    seq: Seq,
) -> Option<String> {
    let units = &run_view.state.units;
    let (place, attempt) = units.iter().enumerate().find_map(|(place, unit)| {
        let attempt = unit
            .attempts
            .iter()
            .position(|attempt| attempt.id == attempt_id)?;
        Some((place, attempt))
    })?;
    let unit = units.get(place)?;
    (model.units_view.follows_work, model.units_view.heading) = (false, None);
    model.units_view.unit = place;
    model.units_view.attempt = (attempt + 1 < unit.attempts.len()).then_some(attempt);
    if model.units_view.listing.rank(place).is_none() {
        model.clear_filter(run_view);
    }
    let rows = run_view.rows(attempt_id);
    let row = rows
        .iter()
        .rposition(|row| row.first() == seq || row.last(run_view.state.entries) == Some(seq));
    if let Some(row) = row {
        model.units_view.attempt_id = Some(attempt_id);
        let follow = row + 1 == rows.len();
        model.units_view.stream = ScrollList {
            selected: row,
            follow,
            seen: rows.len(),
            ..model.units_view.stream
        };
    }
    Some(unit.key.as_str().to_owned())
}
