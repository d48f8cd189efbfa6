//! Commands to the run, quitting and copying: actions with effects outside the screen, and their confirmations.

use crate::{
    control::RunCommand,
    run::{
        run_forecast::RunForecast,
        state::{AttemptId, RowKind, RunView, StreamRow, UnitState, UnitStatus},
    },
    tape::{Seq, UnitKey},
    text::{clock, one_row, pluralize},
    tui::{
        action::UserAction,
        effect::ScreenEffect,
        model::{
            ConfirmQuestion, EntryView, OverlayView, Pane, PartContent, ScreenModel, ToastTopic, TranscriptView,
            is_failure,
        },
        view::failure_groups::forecast_words,
    },
    units::schedule::CONCURRENCY_RANGE,
};

/// The unit that a command applies to.
pub(super) fn target<'a>(model: &ScreenModel, run_view: &'a RunView) -> Option<&'a UnitState> {
    match model.views.last() {
        Some(OverlayView::Transcript(TranscriptView { unit, .. }) | OverlayView::Entry(EntryView { unit, .. })) => {
            run_view.state.units.iter().find(|known| known.key == *unit)
        }
        Some(OverlayView::FailureGroups(view)) => run_view.state.units.get(view.unit()?),
        Some(OverlayView::Inspect(view)) => view.unit(run_view),
        Some(OverlayView::Compare(view)) => view.unit(run_view),
        _ => model.unit(run_view),
    }
}

const RECORDED: &str = "this is a recorded run; `ingestdeck run --only UNIT` runs a unit again";
const WATCHING_MESSAGE: &str = "this run belongs to another process; control it there";

/// Why the run accepts no commands from this screen.
pub(super) fn read_only_reason(model: &ScreenModel) -> &'static str {
    if model.is_watching { WATCHING_MESSAGE } else { RECORDED }
}

/// Returns true and shows a message if `action` is a command but an earlier moment is shown.
pub(super) fn refuse_in_past(model: &mut ScreenModel, action: UserAction) -> bool {
    let is_command = matches!(
        action,
        UserAction::Retry
            | UserAction::RetryWith
            | UserAction::RetryFailed
            | UserAction::Stop
            | UserAction::LiftLimit
            | UserAction::More
            | UserAction::Fewer
    );
    let late = is_command && model.is_in_past() && !matches!(model.views.last(), Some(OverlayView::Breakpoints(_)));
    if late {
        let order = action.hint();
        let key = model.keymap.first(UserAction::ToEnd).unwrap_or_else(|| ":live".to_owned());
        let behind = clock(model.bounds.now.since(model.time));
        model.show_message(format!("this is the past, {behind} behind live; press {key} for LIVE, then {order}"));
    }
    late
}

pub(super) fn retry(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    model.units_view.follows_work = false;
    let Some(unit) = target(model, run_view) else { return no_unit_selected(model) };
    if let Some(refusal) = retry_refusal(model, run_view, unit) {
        model.show_message(refusal);
        return Vec::new();
    }
    let unit = unit.key.clone();
    model.show_message(format!("new attempt at {unit}"));
    vec![ScreenEffect::Command(RunCommand::Retry { unit, amendment: None })]
}

pub(super) fn no_unit_selected(model: &mut ScreenModel) -> Vec<ScreenEffect> {
    model.show_message("no unit is selected");
    Vec::new()
}

/// Why the unit cannot be retried now.
pub(super) fn retry_refusal(model: &ScreenModel, run_view: &RunView, unit: &UnitState) -> Option<String> {
    match unit.status {
        _ if !model.accepts_commands() => Some(read_only_reason(model).to_owned()),
        UnitStatus::Running | UnitStatus::Silent | UnitStatus::Held => {
            Some(format!("{} is {}; stop it first", unit.key, unit.status_text()))
        }
        UnitStatus::Queued if run_view.state.is_stopping => {
            Some(format!("{} cannot start: the run is ending; retry it afterwards", unit.key))
        }
        UnitStatus::Queued => Some(format!("{} is queued and starts automatically", unit.key)),
        UnitStatus::NotStarted
        | UnitStatus::Waiting
        | UnitStatus::Succeeded
        | UnitStatus::BudgetExhausted
        | UnitStatus::Failed
        | UnitStatus::Stopped
        | UnitStatus::Interrupted
        | UnitStatus::Reused => None,
    }
}

/// Retries everything that the schedule accepts: units that are not done, and units that never started if no unit failed
/// or a limit ended the run. If there are none, tries again to save the results.
pub(super) fn retry_failed(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    if !model.accepts_commands() {
        model.show_message(read_only_reason(model));
        return Vec::new();
    }
    let state = &run_view.state;
    let ended = state.ended.as_ref().map(|ended| ended.outcome.as_str());
    let of = |wanted: fn(UnitStatus) -> bool| -> Vec<usize> {
        (0..state.units.len()).filter(|unit| wanted(state.units[*unit].status)).collect()
    };
    let mut places = of(UnitStatus::is_retryable);
    let failed = places.len();
    if of(is_failure).is_empty() || matches!(ended, Some("limit" | "unusable")) {
        places.extend(of(|status| status == UnitStatus::NotStarted));
    }
    let untried = places.len() - failed;
    let all_failed = places.iter().take(failed).all(|unit| is_failure(state.units[*unit].status));
    let what = if all_failed { "failed unit" } else { "unfinished unit" };
    let units: Vec<UnitKey> = places.iter().map(|unit| state.units[*unit].key.clone()).collect();
    let text = match (failed, untried) {
        (0, 0) => return save_again(model, run_view),
        (0, _) => format!("Run {}?", pluralize(untried, "untried unit")),
        (_, 0) => format!("Retry {}?", pluralize(failed, what)),
        _ => format!("Retry {}, and run {}?", pluralize(failed, what), pluralize(untried, "untried unit")),
    };
    let forecast = forecast_words(&RunForecast::for_retry(state, &places));
    model.question = Some(ConfirmQuestion {
        text,
        details: [forecast].into_iter().chain(listed(&units)).collect(),
        then: vec![ScreenEffect::Command(RunCommand::RetryUnsuccessful)],
    });
    Vec::new()
}

fn save_again(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let state = &run_view.state;
    let unsaved: Vec<UnitKey> =
        state.units.iter().filter(|unit| state.is_unsaved(unit)).map(|unit| unit.key.clone()).collect();
    if state.ended.is_none() || unsaved.is_empty() {
        model.show_message("no unit has failed");
    } else {
        let why = state.publication.save_error.as_deref().unwrap_or("it was kept back");
        model.question = Some(ConfirmQuestion {
            text: format!("Save the results of {}?", pluralize(unsaved.len(), "unit")),
            details: [one_row(why, 200)].into_iter().chain(listed(&unsaved)).collect(),
            then: vec![ScreenEffect::Command(RunCommand::RetryUnsuccessful)],
        });
    }
    Vec::new()
}

/// Lifts throttling: the user may know that the service accepts requests again.
pub(super) fn lift_limit(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    if model.is_watching {
        model.show_message(WATCHING_MESSAGE);
    } else if !model.is_live {
        model.show_message("this is a recorded run; nothing waits");
    } else if run_view.state.limits.pause.is_none() {
        model.show_message("the run is not waiting for a limit");
    } else {
        model.show_message("resuming without waiting for the limit");
        return vec![ScreenEffect::Command(RunCommand::LiftLimit)];
    }
    Vec::new()
}

/// Changes the concurrency. The run decides; its note updates the header.
pub(super) fn adjust_concurrency(model: &mut ScreenModel, run_view: &RunView, by: i32) -> Vec<ScreenEffect> {
    let now = run_view.state.planned.as_ref().map(|plan| plan.concurrency);
    if model.is_watching {
        model.show_message(WATCHING_MESSAGE);
    } else if !model.is_live {
        model.show_message("this is a recorded run; its concurrency cannot change");
    } else if by > 0 && now.is_some_and(|now| now >= *CONCURRENCY_RANGE.end()) {
        model.show_message(format!("the maximum concurrency is {}", CONCURRENCY_RANGE.end()));
    } else if by < 0 && now.is_some_and(|now| now <= *CONCURRENCY_RANGE.start()) {
        model.show_message("the minimum concurrency is 1; drain or stop the run instead");
    } else {
        return vec![ScreenEffect::Command(RunCommand::AdjustConcurrency { by })];
    }
    Vec::new()
}

/// Consequence of a stop for the files of the attempt.
const STOPS_ATTEMPT: &str = "The attempt's changes are discarded; the tape keeps its entries.";
const STOPS_SESSION: &str = "Changed files are kept; the session can be resumed later.";

pub(super) fn stop(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    model.units_view.follows_work = false;
    let Some(unit) = target(model, run_view) else { return no_unit_selected(model) };
    let key = unit.key.clone();
    if model.is_watching {
        model.show_message(WATCHING_MESSAGE);
    } else if !model.is_live {
        model.show_message("this is a recorded run; nothing can be stopped");
    } else if unit.status.is_finished() {
        model.show_message(format!("{key} has ended: {}", unit.status_text()));
    } else if unit.status == UnitStatus::Queued && run_view.state.is_stopping {
        model.show_message(format!("{key} cannot start: the run is ending"));
    } else {
        model.question = Some(ConfirmQuestion {
            text: format!("Stop {key}?"),
            details: vec![if model.is_session() { STOPS_SESSION } else { STOPS_ATTEMPT }.to_owned()],
            then: vec![ScreenEffect::Command(RunCommand::Stop { unit: key })],
        });
    }
    Vec::new()
}

pub(super) fn listed(units: &[UnitKey]) -> Vec<String> {
    const MOST: usize = 5;
    let mut lines: Vec<_> = units.iter().take(MOST).map(|unit| unit.as_str().to_owned()).collect();
    if units.len() > MOST {
        lines.push(format!("and {} more", units.len() - MOST));
    }
    lines
}

pub(super) fn quit(model: &mut ScreenModel) -> Vec<ScreenEffect> {
    let active = model.bounds.present_totals.active_units();
    if !model.accepts_commands() || active == 0 {
        return vec![ScreenEffect::Quit];
    }
    model.question = Some(ConfirmQuestion {
        text: format!("{} still running. Stop all and quit?", pluralize(active, "unit")),
        details: vec!["Running units are stopped; the tape keeps their entries.".to_owned()],
        then: vec![ScreenEffect::Command(RunCommand::StopAll), ScreenEffect::Quit],
    });
    Vec::new()
}

pub(super) fn interrupt(model: &mut ScreenModel) -> Vec<ScreenEffect> {
    let (active, queued) =
        (model.bounds.present_totals.active_units(), model.bounds.present_totals.count(UnitStatus::Queued));
    if !model.accepts_commands() || active + queued == 0 {
        return vec![ScreenEffect::Quit];
    }
    model.question = None;
    model.interrupts = model.interrupts.saturating_add(1);
    match model.interrupts {
        1 => {
            let finishing = format!("{} finishing, nothing new starts; again to stop them", pluralize(active, "unit"));
            model.show_message_about(ToastTopic::Ending, finishing);
            vec![ScreenEffect::Command(RunCommand::Drain)]
        }
        2 => {
            model.show_message_about(ToastTopic::Ending, "stopping all; again to kill and quit");
            vec![ScreenEffect::Command(RunCommand::StopAll)]
        }
        _ => vec![ScreenEffect::Command(RunCommand::KillAll), ScreenEffect::Quit],
    }
}

pub(super) fn copy(model: &ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    match model.views.last() {
        Some(OverlayView::Entry(view)) => {
            let lines = view.parts.iter().filter(|part| part.content == PartContent::Line);
            let seqs = lines.map(|part| part.seq).collect();
            vec![ScreenEffect::CopyEntries { seqs, what: "entry".to_owned() }]
        }
        Some(OverlayView::Transcript(view)) => {
            let Some(attempt_id) = view.attempt_id(run_view) else { return Vec::new() };
            copy_entry(run_view, attempt_id, view.list.selected)
        }
        Some(OverlayView::Log(list)) => run_view.messages().get(list.selected).map_or_else(Vec::new, |message| {
            vec![ScreenEffect::Copy { text: message.text.clone(), what: "message".to_owned() }]
        }),
        Some(OverlayView::FailureGroups(view)) => view.group().map_or_else(Vec::new, |failures| {
            vec![ScreenEffect::Copy { text: failures.example.clone(), what: "error".to_owned() }]
        }),
        Some(OverlayView::Inspect(view)) => super::inspect::copy(view, run_view),
        Some(OverlayView::Compare(view)) => super::compare::copy(view, run_view),
        Some(OverlayView::Help(_) | OverlayView::Breakpoints(_)) => Vec::new(),
        Some(OverlayView::Grid) => copy_name(model, run_view),
        None if model.units_view.focus == Pane::Units => copy_name(model, run_view),
        None => {
            let Some(attempt_id) = model.units_view.attempt_id else { return Vec::new() };
            let Some(row) = run_view.rows(attempt_id).get(model.units_view.stream.selected) else { return Vec::new() };
            copy_row(run_view, row)
        }
    }
}

/// Copies the raw lines of a row.
pub(super) fn copy_row(run_view: &RunView, row: &StreamRow) -> Vec<ScreenEffect> {
    let mut seqs = vec![row.first()];
    seqs.extend(row.last(run_view.state.entries).filter(|last| *last != row.first()));
    let what = if row.kind == RowKind::Tool { "call and result" } else { "entry" };
    vec![ScreenEffect::CopyEntries { seqs, what: what.to_owned() }]
}

fn copy_entry(run_view: &RunView, attempt_id: AttemptId, index: usize) -> Vec<ScreenEffect> {
    let Some(seq) = run_view.entries(attempt_id).get(index) else { return Vec::new() };
    let seqs = vec![Seq(u64::from(*seq))];
    vec![ScreenEffect::CopyEntries { seqs, what: "entry".to_owned() }]
}

pub(super) fn copy_name(model: &ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let Some(unit) = target(model, run_view) else { return Vec::new() };
    let session = match model.views.last() {
        Some(OverlayView::Inspect(view)) => return super::inspect::copy_name(view, run_view),
        Some(OverlayView::Transcript(view)) => {
            view.attempt(run_view).and_then(|(_, attempt)| attempt.setup.session.clone())
        }
        _ => None,
    };
    match session {
        Some(session) => {
            vec![ScreenEffect::Copy { text: format!("claude --resume {session}"), what: "resume line".to_owned() }]
        }
        None => vec![ScreenEffect::Copy { text: unit.key.as_str().to_owned(), what: "unit key".to_owned() }],
    }
}
