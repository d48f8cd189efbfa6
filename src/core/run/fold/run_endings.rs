//! The fold of events that end a unit without an attempt: a stop request, the end of the run, the end of the tape.
//!
//! It reproduces the decisions of the scheduler, which writes no note for each unit that it removes from its queue.

use std::sync::Arc;

use super::{Fold, RunEvent, SinkEvent, attempt::status_after_attempt};
use crate::{
    run::{
        EntryRef, EntryScope,
        state::RECONCILE_KEY,
        state::{AttemptState, RunState, RunView, UnitState, UnitStatus},
    },
    tape::{
        Millis,
        note::{RunEnded, RunPlanned, Severity, StopMode, VerdictCause},
    },
    units::retry::MAX_LOST_ATTEMPTS,
};

impl Fold {
    /// Handles a stop request. Running attempts end with their own verdicts; units without an attempt do not start.
    pub(super) fn stop_requested(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        how: StopMode,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        match entry.scope {
            EntryScope::Run => {
                view.state.limits.is_stopping = true;
                let latest = view.state.units.iter().filter_map(UnitState::latest);
                for attempt in
                    latest.filter(|attempt| attempt.verdict.is_none() && how != StopMode::Drain)
                {
                    self.attempt_fold(attempt.id).mark_interrupted();
                }
            }
            EntryScope::Attempt(key, number) => {
                let index = self.unit_index(view, &key.into());
                let unit = &mut view.state.units[index];
                // The next attempt is being prepared and has a number, so it ends like a running one.
                let runs = unit
                    .latest()
                    .is_some_and(|latest| latest.number == number && latest.verdict.is_none());
                let begins = number > unit.latest().map_or(0, |attempt| attempt.number);
                if matches!(unit.status, UnitStatus::Queued | UnitStatus::Waiting) && !begins {
                    set_final_status(unit, UnitStatus::Stopped, entry.at, emit);
                }
                if runs
                    && how != StopMode::Drain
                    && let Some(attempt_id) = self.resolve_attempt(view, entry, None, emit)
                {
                    self.attempt_fold(attempt_id).mark_interrupted();
                }
            }
            EntryScope::BySession => {}
        }
        self.report_message(
            view,
            entry,
            Severity::Warning,
            format!("{} requested", stop_label(how)),
        );
    }

    /// Handles the end of the run: units do not start automatically from here on.
    pub(super) fn run_ended(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        ended: &RunEnded,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        if ended.not_run > 0 {
            self.add_lone_step(view);
        }
        for index in 0..view.state.units.len() {
            let unit = &view.state.units[index];
            let is_open = matches!(unit.status, UnitStatus::Queued | UnitStatus::Waiting);
            if is_open || (unit.status == UnitStatus::Failed && has_lost_its_place(unit)) {
                let status = status_when_withdrawn(&view.state, unit);
                set_final_status(&mut view.state.units[index], status, entry.at, emit);
            }
        }
        if view.state.publication.is_integrating {
            Self::discard_integration(view);
        }
        view.state.ended = Some(ended.clone());
        view.state.publication.is_integrating = false;
        emit(SinkEvent::Run {
            at: entry.at,
            change: RunEvent::Ended(ended),
        });
    }

    /// Handles the end of a tape while units wait for an attempt, which will never start.
    pub(super) fn interrupt_waiting_units(
        &mut self,
        view: &mut RunView,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        let now = view.state.last_entry_at;
        if view.state.ended.is_none() {
            self.add_lone_step(view);
        }
        // Its result does not count: a reviewer asked for another one.
        let review = view.state.publication.unsaved_review();
        let sent_back = review
            .filter(|_| view.state.ended.is_none())
            .map(|review| review.sent_back.clone())
            .unwrap_or_default();
        for index in 0..view.state.units.len() {
            let unit = &view.state.units[index];
            let status = match unit.status {
                UnitStatus::Waiting => UnitStatus::Interrupted,
                _ if sent_back.contains(&unit.key) => UnitStatus::Interrupted,
                UnitStatus::Queued => status_when_withdrawn(&view.state, unit),
                _ => continue,
            };
            set_final_status(&mut view.state.units[index], status, now, emit);
        }
    }
}

impl Fold {
    /// Adds the reconcile step of a run that consists of nothing else and ended before the step began: no plan names
    /// it.
    fn add_lone_step(&mut self, view: &mut RunView) {
        let is_lone =
            |planned: &Arc<RunPlanned>| planned.units.is_empty() && !planned.job.is_empty();
        if view.state.units.is_empty() && view.state.planned.as_ref().is_some_and(is_lone) {
            self.unit_index(view, &RECONCILE_KEY.into());
        }
    }
}

/// Returns the status of a unit that was queued and does not run: its status before.
fn status_when_withdrawn(state: &RunState, unit: &UnitState) -> UnitStatus {
    let is_reused = state
        .prior_unit_summary(&unit.key)
        .is_some_and(|earlier| earlier.reused.is_some());
    match state.verdict(unit) {
        Some(_) if has_lost_its_place(unit) => UnitStatus::NotStarted,
        Some(verdict) => status_after_attempt(verdict),
        None if is_reused => UnitStatus::Reused,
        None => UnitStatus::NotStarted,
    }
}

/// True if the last attempt at a unit was lost with its worker and the unit was to run in another place.
fn has_lost_its_place(unit: &UnitState) -> bool {
    let is_lost = |attempt: &AttemptState| {
        attempt
            .verdict
            .as_ref()
            .is_some_and(|verdict| verdict.cause == VerdictCause::WorkerLost)
    };
    let lost = unit
        .attempts
        .iter()
        .rev()
        .take_while(|attempt| is_lost(attempt))
        .count();
    (1..MAX_LOST_ATTEMPTS as usize).contains(&lost)
}

/// The attempt that a person requested has started, or will not start.
pub(super) fn no_longer_requested(unit: &mut UnitState) {
    // It was requested after the last attempt, or after the one before that if it has started.
    for attempt in unit.attempts.iter_mut().rev().take(2) {
        attempt.delivery.next = None;
    }
}

fn set_final_status(
    unit: &mut UnitState,
    status: UnitStatus,
    at: Millis,
    emit: &mut dyn FnMut(SinkEvent<'_>),
) {
    (unit.status, unit.retry_at) = (status, None);
    no_longer_requested(unit);
    let attempt = unit.latest();
    let verdict = attempt
        .and_then(|attempt| attempt.verdict.as_ref())
        .filter(|_| status == UnitStatus::Failed);
    emit(SinkEvent::Unit {
        at,
        unit: &unit.key,
        attempt: attempt.map_or(0, |attempt| attempt.number),
        status,
        reason: verdict.map(|verdict| verdict.reason.as_str()),
        cause: attempt
            .filter(|_| verdict.is_some())
            .and_then(AttemptState::failure_reason)
            .as_deref(),
    });
}

fn stop_label(how: StopMode) -> &'static str {
    match how {
        StopMode::Drain => "drain",
        StopMode::Stop => "stop",
        StopMode::Kill => "kill",
    }
}
