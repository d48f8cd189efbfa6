//! Actions on units: retrying, stopping, holding, the concurrency, and their confirmations.

use super::{amend, answer, find, group_retry, hold, marks, refusal, rerun};
use crate::{
    action::{ActionScope, Availability, Unavailable, UserAction, require},
    action_spec::{ActionSpec, change, effects},
    effect::ScreenEffect,
    forecast_text::forecast_words,
    model::{ConfirmQuestion, is_failure, listed_keys},
    page::ScreenModel,
    pages::failure_groups::FailureGroupsPage,
};
use ingestdeck_core::{
    control::{CONCURRENCY_RANGE, RunCommand},
    run::{
        run_forecast::RunForecast,
        state::{RunState, RunView, UnitState, UnitStatus},
    },
    tape::{UnitKey, note::RunEndOutcome},
    text::{clock, one_row, pluralize},
};

pub(super) const ACTIONS: &[ActionSpec] = &[
    change(
        UserAction::Retry,
        "retry",
        "retry",
        "retry the unit or the group; asks",
        retry,
    )
    .when(can_retry)
    .selects_unit(),
    change(
        UserAction::RetryWith,
        "retry-with",
        "retry with",
        "retry the unit or the group with feedback, another model or budget",
        amend::open,
    )
    .when(|model, run_view| {
        require_present(model, UserAction::RetryWith)?;
        can_retry_selection(model, run_view)
    })
    .selects_unit(),
    change(
        UserAction::RetryFailed,
        "retry-failed",
        "retry all",
        "retry unfinished units, or saving; asks",
        retry_failed,
    )
    .when(can_retry_failed)
    .special_hint(|_, run_view| is_only_unsaved(&run_view.state).then_some("save again")),
    change(
        UserAction::Causes,
        "causes",
        "causes",
        "failures by cause; remaining work",
        |model, _| model.toggle(FailureGroupsPage::default()),
    ),
    change(
        UserAction::Stop,
        "stop",
        "stop",
        "stop the unit; asks",
        stop,
    )
    .when(can_stop)
    .selects_unit(),
    change(
        UserAction::Mark,
        "mark",
        "mark",
        "mark the unit or the group: r, e and x apply to all marked",
        marks::toggle,
    )
    .when(marks::can_mark),
    effects(
        UserAction::More,
        "more-at-once",
        "more",
        "raise the concurrency by one",
        |_, _| {
            vec![ScreenEffect::Command(RunCommand::AdjustConcurrency {
                by: 1,
            })]
        },
    )
    .when(|model, run_view| {
        let concurrency = adjustable_concurrency(model, run_view, UserAction::More)?;
        match concurrency {
            Some(now) if now >= *CONCURRENCY_RANGE.end() => Err(Unavailable::because(format!(
                "the maximum concurrency is {}",
                CONCURRENCY_RANGE.end()
            ))),
            _ => Ok(()),
        }
    }),
    effects(
        UserAction::Fewer,
        "fewer-at-once",
        "fewer",
        "lower the concurrency by one; stops none",
        |_, _| {
            vec![ScreenEffect::Command(RunCommand::AdjustConcurrency {
                by: -1,
            })]
        },
    )
    .when(|model, run_view| {
        let concurrency = adjustable_concurrency(model, run_view, UserAction::Fewer)?;
        match concurrency {
            Some(now) if now <= *CONCURRENCY_RANGE.start() => Err(Unavailable::because(
                "the minimum concurrency is 1; drain or stop the run instead",
            )),
            _ => Ok(()),
        }
    }),
    change(
        UserAction::LiftLimit,
        "go-on",
        "resume",
        "do not wait for the limit; asks",
        |model, _| {
            model.dialogs.question = Some(ConfirmQuestion::new(
                "Resume without waiting for the limit?".to_owned(),
                vec!["The service may refuse again; the run then waits again.".to_owned()],
                vec![ScreenEffect::Command(RunCommand::LiftLimit)],
            ));
        },
    )
    .when(can_lift_limit),
    effects(
        UserAction::PauseRun,
        "pause",
        "pause",
        "pause the run: nothing starts, calls wait; again to resume",
        pause,
    )
    .when(can_pause)
    .special_hint(|_, run_view| run_view.state.limits.is_paused.then_some("resume")),
    effects(
        UserAction::Hold,
        "hold",
        "hold",
        "hold a running unit at its next call",
        hold::hold,
    )
    .scope(ActionScope::Live)
    .when(|model, run_view| {
        require(
            hold::subject(model, run_view)
                .is_some_and(|unit| !hold::is_or_will_be_held(model, unit)),
        )
    }),
    effects(
        UserAction::LetGo,
        "let-go",
        "release",
        "release a held unit; asks if a call waits",
        hold::release,
    )
    .scope(ActionScope::Held)
    .when(hold::is_held),
    effects(
        UserAction::RunOn,
        "run-on",
        "run on",
        "run it to a failure or a breakpoint",
        hold::run_to_breakpoint,
    )
    .scope(ActionScope::Held)
    .when(hold::is_held),
    change(
        UserAction::Say,
        "say",
        "message",
        "send a message to the agent of a running unit",
        hold::ask_message,
    )
    .when(hold::can_say),
    effects(
        UserAction::AllowOnce,
        "allow-once",
        "allow once",
        "allow the held call; the next waits",
        answer::allow,
    )
    .scope(ActionScope::Held)
    .special_hint(answer::allow_hint)
    .when(hold::has_pending_approval),
    change(
        UserAction::EditCall,
        "edit",
        "edit",
        "edit the arguments of the held call",
        hold::edit,
    )
    .scope(ActionScope::Held)
    .when(hold::can_edit),
    change(
        UserAction::DenyCall,
        "deny",
        "deny",
        "deny the held call; asks for a reason",
        hold::ask_deny_reason,
    )
    .scope(ActionScope::Held)
    .special_hint(answer::deny_hint)
    .when(hold::can_deny),
    change(
        UserAction::NextFailure,
        "next-failure",
        "failure",
        "next problem, failure or difference in the pane",
        find::select_next_failure::<true>,
    ),
    change(
        UserAction::PreviousFailure,
        "previous-failure",
        "failure",
        "previous problem, failure or difference in the pane",
        find::select_next_failure::<false>,
    ),
];

/// A command applies to the present, not to an earlier moment that is shown.
fn require_present(model: &ScreenModel, action: UserAction) -> Availability {
    if !model.is_in_past() {
        return Ok(());
    }
    let key = model
        .keymap
        .first(UserAction::ToEnd)
        .unwrap_or_else(|| ":live".to_owned());
    let behind = clock(model.playhead.bounds.now.since(model.playhead.time));
    let hint = action.spec().hint;
    Err(Unavailable::because(format!(
        "this is the past, {behind} behind live; press {key} for LIVE, then {hint}"
    )))
}

/// The run accepts commands, or its units can be in a new run.
fn require_commands(model: &ScreenModel, run_view: &RunView) -> Availability {
    match model.connection.accepts_commands() || rerun::is_possible(model) {
        true => Ok(()),
        false => Err(Unavailable::because(refusal::read_only(model, run_view))),
    }
}

fn can_retry(model: &ScreenModel, run_view: &RunView) -> Availability {
    require_present(model, UserAction::Retry)?;
    can_retry_selection(model, run_view)
}

/// Marked units come before a group, and a group before a unit.
fn can_retry_selection(model: &ScreenModel, run_view: &RunView) -> Availability {
    match group_retry::retryable(model, run_view) {
        Some(_) if require_commands(model, run_view).is_err() => require_commands(model, run_view),
        Some(units) if units.is_empty() && marks::has_marks(model) => {
            Err(Unavailable::because("no marked unit can be retried now"))
        }
        Some(units) if units.is_empty() => Err(Unavailable::because(
            "no unit of this group can be retried now",
        )),
        Some(_) => Ok(()),
        None => can_retry_unit(model, run_view),
    }
}

fn can_retry_unit(model: &ScreenModel, run_view: &RunView) -> Availability {
    let unit = model
        .unit_of_page(run_view)
        .ok_or_else(Unavailable::no_unit_selected)?;
    refusal::retry(model, run_view, unit).map_or(Ok(()), |reason| Err(Unavailable::Because(reason)))
}

/// Asks, because an attempt costs money.
fn retry(model: &mut ScreenModel, run_view: &RunView) {
    if rerun::is_possible(model) {
        return rerun::ask_retry(model, run_view);
    }
    if let Some(units) = group_retry::retryable(model, run_view) {
        return group_retry::retry(model, run_view, &units);
    }
    model.units_view.follows_work = false;
    let Some(unit) = model.unit_of_page(run_view).map(|unit| unit.key.clone()) else {
        return;
    };
    let place = run_view
        .state
        .units
        .iter()
        .position(|known| known.key == unit);
    let forecast = RunForecast::for_retry(&run_view.state, place.as_slice());
    model.dialogs.question = Some(ConfirmQuestion::new(
        format!("New attempt at {unit}?"),
        model
            .reading_note()
            .into_iter()
            .chain([forecast_words(&forecast)])
            .collect(),
        vec![ScreenEffect::Command(RunCommand::Retry {
            unit,
            amendment: None,
        })],
    ));
}

/// Units that the schedule would retry: those that are not done, then those that never started if no unit failed or a
/// limit ended the run. Returns their indexes and the number of the former.
fn retry_candidates(state: &RunState) -> (Vec<usize>, usize) {
    let ended = state.ended.as_ref().map(|ended| &ended.outcome);
    let of = |wanted: fn(UnitStatus) -> bool| -> Vec<usize> {
        (0..state.units.len())
            .filter(|unit| wanted(state.units[*unit].status))
            .collect()
    };
    let mut places = of(UnitStatus::is_retryable);
    let failed = places.len();
    if of(is_failure).is_empty()
        || matches!(ended, Some(RunEndOutcome::Limit | RunEndOutcome::Unusable))
    {
        places.extend(of(|status| status == UnitStatus::NotStarted));
    }
    (places, failed)
}

/// Units of an ended run whose results are not saved.
fn unsaved_units(state: &RunState) -> Vec<UnitKey> {
    let units = state
        .units
        .iter()
        .filter(|unit| state.ended.is_some() && state.is_unsaved(unit));
    units.map(|unit| unit.key.clone()).collect()
}

/// True if only saving the results failed.
pub(crate) fn is_only_unsaved(state: &RunState) -> bool {
    state.publication.save_error.is_some()
        && state.ended.is_some()
        && !state.units.iter().any(|unit| is_failure(unit.status))
}

fn can_retry_failed(model: &ScreenModel, run_view: &RunView) -> Availability {
    require_present(model, UserAction::RetryFailed)?;
    require_commands(model, run_view)?;
    let state = &run_view.state;
    if rerun::is_possible(model) && state.planned.as_ref().is_some_and(|plan| plan.scripted) {
        return Err(Unavailable::because(
            "a script played this run; `ingestdeck demo` plays one again",
        ));
    }
    let is_unsaved = |unit: &UnitState| state.ended.is_some() && state.is_unsaved(unit);
    let is_candidate = |unit: &UnitState| unit.status.is_retryable() || is_unsaved(unit);
    if !state.units.iter().any(is_candidate) && retry_candidates(state).0.is_empty() {
        return Err(Unavailable::because("no unit has failed"));
    }
    Ok(())
}

/// Asks for retrying everything that the schedule accepts. If there is nothing, asks for saving the results again.
fn retry_failed(model: &mut ScreenModel, run_view: &RunView) {
    if rerun::is_possible(model) {
        return rerun::ask_resume(model, run_view);
    }
    let state = &run_view.state;
    let (places, failed) = retry_candidates(state);
    let untried = places.len() - failed;
    let all_failed = places
        .iter()
        .take(failed)
        .all(|unit| is_failure(state.units[*unit].status));
    let what = if all_failed {
        "failed unit"
    } else {
        "unfinished unit"
    };
    let mut units: Vec<UnitKey> = places
        .iter()
        .map(|unit| state.units[*unit].key.clone())
        .collect();
    let consequence = || forecast_words(&RunForecast::for_retry(state, &places));
    let (text, first) = match (failed, untried) {
        (0, 0) => {
            units = unsaved_units(state);
            let why = state
                .publication
                .save_error
                .as_deref()
                .unwrap_or("it was kept back");
            (
                format!("Save the results of {}?", pluralize(units.len(), "unit")),
                one_row(why, 200),
            )
        }
        (0, _) => (
            format!("Run {}?", pluralize(untried, "untried unit")),
            consequence(),
        ),
        (_, 0) => (format!("Retry {}?", pluralize(failed, what)), consequence()),
        _ => {
            let untried = pluralize(untried, "untried unit");
            (
                format!("Retry {}, and run {untried}?", pluralize(failed, what)),
                consequence(),
            )
        }
    };
    model.dialogs.question = Some(ConfirmQuestion::new(
        text,
        model
            .reading_note()
            .into_iter()
            .chain([first])
            .chain(listed_keys(&units))
            .collect(),
        vec![ScreenEffect::Command(RunCommand::RetryUnsuccessful)],
    ));
}

/// Pauses the run, or asks whether to end its pause.
fn pause(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    if !run_view.state.limits.is_paused {
        return vec![ScreenEffect::Command(RunCommand::Pause)];
    }
    let totals = &model.playhead.bounds.present_totals;
    let (held, queued) = (
        totals.count(UnitStatus::Held),
        totals.count(UnitStatus::Queued),
    );
    model.dialogs.question = Some(ConfirmQuestion::new(
        "Resume the run?".to_owned(),
        vec![format!(
            "{} can start, and the calls of {} can be made.",
            pluralize(queued, "unit"),
            pluralize(held, "unit")
        )],
        vec![ScreenEffect::Command(RunCommand::Resume)],
    ));
    Vec::new()
}

fn can_pause(model: &ScreenModel, run_view: &RunView) -> Availability {
    if !model.connection.accepts_commands() {
        return Err(Unavailable::because(match model.connection.is_watching {
            true => refusal::WATCHING,
            false => "this is a recorded run; nothing can be paused",
        }));
    }
    if model.is_in_past() {
        return Err(Unavailable::because(
            "this is the past; go back to the present first",
        ));
    }
    if run_view.state.ended.is_some() {
        return Err(Unavailable::because("the run has ended"));
    }
    Ok(())
}

/// The user may lift throttling, knowing that the service accepts requests again.
fn can_lift_limit(model: &ScreenModel, run_view: &RunView) -> Availability {
    require_present(model, UserAction::LiftLimit)?;
    let reason = if model.connection.is_watching {
        refusal::WATCHING
    } else if !model.connection.is_live {
        "this is a recorded run; nothing waits"
    } else if run_view.state.limits.pause.is_none() {
        "the run is not waiting for a limit"
    } else {
        return Ok(());
    };
    Err(Unavailable::because(reason))
}

/// The concurrency, if it can be changed. The run decides; its note updates the header.
fn adjustable_concurrency(
    model: &ScreenModel,
    run_view: &RunView,
    action: UserAction,
) -> Result<Option<u32>, Unavailable> {
    require_present(model, action)?;
    if model.connection.is_watching {
        Err(Unavailable::because(refusal::WATCHING))
    } else if !model.connection.is_live {
        Err(Unavailable::because(
            "this is a recorded run; its concurrency cannot change",
        ))
    } else {
        Ok(run_view.state.planned.as_ref().map(|plan| plan.concurrency))
    }
}

/// Consequence of a stop for the files of the attempt.
const STOPS_ATTEMPT: &str = "The attempt's changes are discarded; the tape keeps its entries.";
const STOPS_SESSION: &str = "Changed files are kept; the session can be resumed later.";

fn can_stop(model: &ScreenModel, run_view: &RunView) -> Availability {
    require_present(model, UserAction::Stop)?;
    if marks::has_marks(model) && model.connection.accepts_commands() {
        return match marks::stoppable(model, run_view).is_empty() {
            true => Err(Unavailable::because("every marked unit has ended")),
            false => Ok(()),
        };
    }
    let unit = model
        .unit_of_page(run_view)
        .ok_or_else(Unavailable::no_unit_selected)?;
    let reason = if model.connection.is_watching {
        refusal::WATCHING.to_owned()
    } else if !model.connection.is_live {
        "this is a recorded run; nothing can be stopped".to_owned()
    } else if unit.status.is_finished() {
        format!("{} has ended: {}", unit.key, unit.status_text())
    } else if unit.status == UnitStatus::Queued && run_view.state.limits.is_stopping {
        format!("{} cannot start: the run is ending", unit.key)
    } else {
        return Ok(());
    };
    Err(Unavailable::Because(reason))
}

/// Asks before stopping a unit.
fn stop(model: &mut ScreenModel, run_view: &RunView) {
    model.units_view.follows_work = false;
    let details = vec![
        if model.connection.is_session {
            STOPS_SESSION
        } else {
            STOPS_ATTEMPT
        }
        .to_owned(),
    ];
    if marks::has_marks(model) {
        let units = marks::stoppable(model, run_view);
        let text = format!(
            "Stop {} of {} marked?",
            pluralize(units.len(), "unit"),
            model.units_view.marked.len()
        );
        let details = details.into_iter().chain(listed_keys(&units)).collect();
        let then = units
            .into_iter()
            .map(|unit| ScreenEffect::Command(RunCommand::Stop { unit }))
            .collect();
        model.dialogs.question = Some(ConfirmQuestion::new(text, details, then));
        return;
    }
    let Some(key) = model.unit_of_page(run_view).map(|unit| unit.key.clone()) else {
        return;
    };
    model.dialogs.question = Some(ConfirmQuestion::new(
        format!("Stop {key}?"),
        details,
        vec![ScreenEffect::Command(RunCommand::Stop { unit: key })],
    ));
}
