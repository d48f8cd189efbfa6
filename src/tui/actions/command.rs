//! Executes typed commands: resolves places to moments and names to actions, and explains errors.

use jiff::civil;

use super::{
    command_line::{self, CommandRequest, TimeTarget},
    hold, listing, scopes, time,
};
use crate::{
    action::{ActionScope, UserAction},
    effect::ScreenEffect,
    model::{InputPurpose, LineInput, wall_clock},
    page::ScreenModel,
    pages::{
        bookmarks::actions as bookmarks, find, recent, review::actions as review, tasks::TasksPage,
    },
    playback::Playback,
};
use ingestdeck_core::{
    control::{AgentRequest, BreakCondition, RunCommand},
    diagnostic::{Diagnostic, Problem},
    run::breakpoint::Breakpoint,
    run::{
        SeekTarget,
        state::{AgentTask, RunView, TaskState, UnitState},
    },
    tape::Millis,
    text::{self, clock},
};

/// Maximum number of breakpoints.
const MAX_BREAKPOINTS: usize = 50;

/// Handles a submitted command line.
pub(crate) fn accept(
    model: &mut ScreenModel,
    run_view: &RunView,
    text: String,
) -> Vec<ScreenEffect> {
    let done = match command_line::parse(&text) {
        Ok(request) => {
            model.dialogs.history.push(&text);
            execute(model, run_view, request).map_err(|problem| problem.to_line())
        }
        Err(error) => Err(error.to_line()),
    };
    done.unwrap_or_else(|error| {
        model.toasts.show(error);
        // Keep the text, so that the user can correct it.
        model.dialogs.line_input = Some(LineInput {
            text,
            purpose: InputPurpose::Command,
        });
        Vec::new()
    })
}

fn execute(
    model: &mut ScreenModel,
    run_view: &RunView,
    request: CommandRequest,
) -> Result<Vec<ScreenEffect>, Problem> {
    Ok(match request {
        CommandRequest::Seek(TimeTarget::Start) => {
            model.pause_and_seek(ScreenEffect::Seek(SeekTarget::Entries(0)))
        }
        CommandRequest::Seek(TimeTarget::End) | CommandRequest::Live => {
            time::to_end(model, run_view)
        }
        CommandRequest::Seek(place) => {
            let moment = to_seek_target(model, run_view, place)?;
            let ahead = match moment {
                SeekTarget::Time(at) => {
                    at > model.playhead.bounds.last_at.max(model.playhead.bounds.now)
                }
                SeekTarget::Entries(entries) => {
                    entries
                        > model
                            .playhead
                            .bounds
                            .known_entries
                            .max(run_view.state.entries)
                }
            };
            if model.connection.is_live && ahead {
                return Err(Problem::new("that moment is in the future"));
            }
            model.pause_and_seek(ScreenEffect::Seek(moment))
        }
        CommandRequest::Speed(speed) => {
            time::set_speed(model, speed.map_or(Playback::Unthrottled, Playback::Speed))
        }
        CommandRequest::Until(condition) => until(model, run_view, condition)?,
        CommandRequest::Break(condition) => {
            add(model, condition)?;
            Vec::new()
        }
        CommandRequest::Find(query) => find::find_in_run(model, query),
        CommandRequest::Last(time) => {
            match UserAction::LastMinutes.spec().is_available(model, run_view) {
                true => {
                    recent::show(model, time);
                    Vec::new()
                }
                // The action shows why.
                false => UserAction::LastMinutes.spec().perform(model, run_view),
            }
        }
        CommandRequest::Leash(calls) => match hold::subject(model, run_view) {
            Some(unit) => vec![ScreenEffect::Command(RunCommand::Leash {
                unit: unit.key.clone(),
                calls,
            })],
            None => {
                return Err(Problem::new("no unit is selected that can be held")
                    .with_help("select a running one"));
            }
        },
        CommandRequest::Accept => match model
            .unit(run_view)
            .filter(|_| model.connection.accepts_commands())
        {
            Some(unit)
                if unit.status == ingestdeck_core::run::state::UnitStatus::BudgetExhausted =>
            {
                vec![ScreenEffect::Command(RunCommand::Accept {
                    unit: unit.key.clone(),
                })]
            }
            _ => {
                return Err(Problem::new("the selected unit is not out of turns")
                    .with_help("select one that is"));
            }
        },
        CommandRequest::Ask(request) => match hold::subject(model, run_view) {
            Some(unit) if model.connection.is_session => {
                check_task(unit, &request)?;
                vec![ScreenEffect::Command(RunCommand::Request {
                    unit: unit.key.clone(),
                    request,
                })]
            }
            _ => {
                return Err(Problem::new(format!(
                    "no turn of a session runs that {} could belong to",
                    request.subject()
                ))
                .with_help("send a message first"));
            }
        },
        CommandRequest::Review(verdict, pattern, reason) => {
            review::decide_matching(model, run_view, &verdict, &pattern, reason.as_deref())?
        }
        CommandRequest::UndoReview => review::undo_by_name(model, run_view)?,
        CommandRequest::FinishReview(branch) => match UserAction::FinishReview
            .spec()
            .is_available(model, run_view)
        {
            true => {
                review::ask_finish_on(model, run_view, Some(branch));
                Vec::new()
            }
            // The action shows why.
            false => UserAction::FinishReview.spec().perform(model, run_view),
        },
        CommandRequest::Bookmark(note) => {
            match UserAction::Bookmark.spec().is_available(model, run_view) {
                true => bookmarks::add(model, run_view, &note),
                // The action shows why.
                false => UserAction::Bookmark.spec().perform(model, run_view),
            }
        }
        CommandRequest::View(request) => {
            listing::view(model, run_view, request)?;
            Vec::new()
        }
        CommandRequest::Tasks => {
            model.open(TasksPage::default());
            Vec::new()
        }
        CommandRequest::Breaks => UserAction::Breakpoints.spec().perform(model, run_view),
        CommandRequest::Action(action)
            if scopes(model, run_view).contains(&action.spec().scope) =>
        {
            action.spec().perform(model, run_view)
        }
        CommandRequest::Action(action) => {
            let what = match action.spec().scope {
                ActionScope::Held => "a unit that you hold",
                ActionScope::Live => "a unit that runs and can be held",
                _ => "something that is not on the screen",
            };
            return Err(
                Problem::new(format!("`{}` is for {what}", action.spec().name))
                    .with_help("select one first"),
            );
        }
    })
}

/// Claude Code answers a request to stop a task that does not run like any other.
fn check_task(unit: &UnitState, request: &AgentRequest) -> Result<(), Problem> {
    let AgentRequest::StopTask(id) = request else {
        return Ok(());
    };
    let tasks = unit
        .latest()
        .and_then(|attempt| attempt.live.tasks.as_deref());
    let is_running = |task: &AgentTask| *task.id == **id && task.state == TaskState::Running;
    match tasks.into_iter().flatten().any(is_running) {
        true => Ok(()),
        false => Err(
            Problem::new(format!("no task `{}` runs", text::printable(id, 40)))
                .with_help("`:tasks` lists them, and `x` stops one there"),
        ),
    }
}

/// Advances a recorded run until `condition` is met. In a live run, lets the selected unit run until then.
fn until(
    model: &mut ScreenModel,
    run_view: &RunView,
    condition: BreakCondition,
) -> Result<Vec<ScreenEffect>, Problem> {
    if !model.connection.is_live || model.playhead.playback != Playback::Follow {
        return Ok(model.pause_and_seek(ScreenEffect::RunUntil(condition)));
    }
    let silent = matches!(condition, BreakCondition::Silence(_));
    match hold::subject(model, run_view) {
        Some(unit) if silent => Err(Problem::new(format!(
            "{} can only be held at a call, not at a silence",
            unit.key
        ))
        .with_help("write failure, tool NAME, path GLOB or cost $0.50")),
        Some(_) => Ok(hold::run_until(model, run_view, condition)),
        None => Err(Problem::new(format!(
            "no unit is selected that can run until {condition}"
        ))
        .with_help("select one, or leave LIVE")),
    }
}

fn add(model: &mut ScreenModel, condition: BreakCondition) -> Result<(), Problem> {
    if let Some(known) = model
        .playhead
        .breakpoints
        .iter_mut()
        .find(|known| known.condition == condition)
    {
        known.is_enabled = true;
        model.toasts.show(format!(
            "a breakpoint for {condition} already exists; it is on"
        ));
        return Ok(());
    }
    if model.playhead.breakpoints.len() >= MAX_BREAKPOINTS {
        return Err(
            Problem::new(format!("there are {MAX_BREAKPOINTS} breakpoints already"))
                .with_help("delete one in the list first"),
        );
    }
    let number = model.playhead.breakpoints.len() + 1;
    model
        .toasts
        .show(format!("breakpoint {number}: {condition}"));
    model.playhead.breakpoints.push(Breakpoint {
        condition,
        is_enabled: true,
    });
    Ok(())
}

/// Resolves a place that the user typed to a moment.
fn to_seek_target(
    model: &ScreenModel,
    run_view: &RunView,
    place: TimeTarget,
) -> Result<SeekTarget, Problem> {
    let (now, last) = (run_view.state.last_entry_at, model.playhead.bounds.last_at);
    let at = match place {
        TimeTarget::Start => Millis(0),
        TimeTarget::End => last,
        TimeTarget::Elapsed(at) => at,
        TimeTarget::Later(by) => Millis(now.0.saturating_add(by.0)),
        TimeTarget::Earlier(by) => Millis(now.0.saturating_sub(by.0)),
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss
        )]
        TimeTarget::Percent(share) => Millis((last.0 as f64 * share / 100.0).round() as u64),
        TimeTarget::Entry(entries) => return Ok(SeekTarget::Entries(entries)),
        TimeTarget::ElapsedOrWallClock(hours, minutes, seconds) => {
            let minutes = hours.saturating_mul(60).saturating_add(u64::from(minutes));
            let at = Millis(
                minutes
                    .saturating_mul(60)
                    .saturating_add(u64::from(seconds))
                    .saturating_mul(1000),
            );
            match u8::try_from(hours) {
                // Longer than the run, so it cannot mean a duration.
                Ok(hours @ 0..24) if at > last && model.playhead.bounds.started_at.is_some() => {
                    let minutes = u8::try_from(minutes % 60).unwrap_or_default();
                    time_of_day(model, hours, minutes, seconds)?
                }
                _ => at,
            }
        }
        TimeTarget::WallClock(hours, minutes, seconds) => {
            time_of_day(model, hours, minutes, seconds)?
        }
    };
    if !model.playhead.bounds.has_times {
        return Err(Problem::new("this tape has no times")
            .with_help("use an entry such as #120 or a percentage such as 50%"))
        .or_else(|error| {
            if matches!(place, TimeTarget::Percent(_)) {
                Ok(SeekTarget::Time(at))
            } else {
                Err(error)
            }
        });
    }
    Ok(SeekTarget::Time(at))
}

/// The first run time after the start at which the wall clock shows this time of day.
fn time_of_day(
    model: &ScreenModel,
    hours: u8,
    minutes: u8,
    seconds: u8,
) -> Result<Millis, Problem> {
    let extent = &model.playhead.bounds;
    let start = extent.started_at.filter(|_| extent.has_times);
    let start = start.ok_or_else(|| {
        Problem::new("the start time of this tape is unknown")
            .with_help("write a time since its start, such as 12m30s")
    })?;
    let start = start.to_zoned(extent.zone.clone());
    let fields = [hours, minutes, seconds].map(|field| i8::try_from(field).unwrap_or_default());
    let shown = || format!("{hours:02}:{minutes:02}:{seconds:02}");
    let found = civil::Time::new(fields[0], fields[1], fields[2], 999_000_000)
        .ok()
        .and_then(|time| {
            let today = start
                .date()
                .to_datetime(time)
                .to_zoned(start.time_zone().clone())
                .ok()?;
            let there = if today < start {
                today.tomorrow().ok()?
            } else {
                today
            };
            u64::try_from(start.duration_until(&there).as_millis())
                .ok()
                .map(Millis)
        });
    let at =
        found.ok_or_else(|| Problem::new(format!("{} does not exist on that day", shown())))?;
    if at.0 > extent.last_at.0.saturating_add(1000) {
        let from = wall_clock(start.timestamp(), Millis(0), &extent.zone).unwrap_or_default();
        let to = wall_clock(start.timestamp(), extent.last_at, &extent.zone).unwrap_or_default();
        let length = clock(extent.last_at);
        return Err(Problem::new(format!(
            "{} is outside this tape, which covers {from} to {to} ({length})",
            shown()
        )));
    }
    Ok(at)
}

/// Completes the current word as far as it is unambiguous.
pub(crate) fn complete(model: &mut ScreenModel, _: &RunView) {
    if let Some(LineInput {
        text,
        purpose: InputPurpose::Command,
    }) = &mut model.dialogs.line_input
    {
        *text = command_line::complete(text);
    }
}

/// Shows an older or a newer line of the history.
pub(crate) fn recall<const OLDER: bool>(model: &mut ScreenModel, _: &RunView) {
    let dialogs = &mut model.dialogs;
    if let Some(LineInput {
        text,
        purpose: InputPurpose::Command,
    }) = &mut dialogs.line_input
    {
        let line = if OLDER {
            dialogs.history.older(text)
        } else {
            dialogs.history.newer()
        };
        if let Some(line) = line {
            *text = line;
        }
    }
}

pub(crate) fn open(model: &mut ScreenModel, _: &RunView) {
    model.dialogs.history.reset();
    model.dialogs.line_input = Some(LineInput::new(InputPurpose::Command));
}
