//! The fold of what ends a unit without an attempt: a person's word, the end of its run, the end of its record.
//!
//! Says what the schedule did, which writes no note about every unit that it takes off its board.

use std::sync::Arc;

use super::{Fold, FoldEvent, RunChange, attempt::status_for_verdict};
use crate::{
    run::{
        EntryRef, EntryScope as Address,
        report::RECONCILE_KEY,
        state::{RunState, RunView, UnitState, UnitStatus},
    },
    tape::{
        Millis,
        note::{RunEnded, RunPlanned, Severity, StopMode},
    },
};

impl Fold {
    /// What runs ends by a verdict of its own. What does not will not begin.
    pub(super) fn stop_requested(
        &mut self,
        story: &mut RunView,
        arrived: &EntryRef<'_>,
        how: StopMode,
        emit: &mut dyn FnMut(FoldEvent<'_>),
    ) {
        match arrived.scope {
            Address::Run => {
                story.state.is_stopping = true;
                let latest = story.state.units.iter().filter_map(UnitState::latest);
                for attempt in latest.filter(|attempt| attempt.verdict.is_none() && how != StopMode::Drain) {
                    self.attempt_fold(attempt.id).abort_open_calls();
                }
            }
            Address::Attempt(key, number) => {
                let index = self.unit_index(story, &key.into());
                let unit = &mut story.state.units[index];
                // An attempt with a number of its own is being prepared: it ends like one that runs.
                let runs = unit.latest().is_some_and(|latest| latest.number == number && latest.verdict.is_none());
                let begins = number > unit.latest().map_or(0, |attempt| attempt.number);
                if matches!(unit.status, UnitStatus::Queued | UnitStatus::Waiting) && !begins {
                    set_final_status(unit, UnitStatus::Stopped, arrived.at, emit);
                }
                if runs
                    && how != StopMode::Drain
                    && let Some(lane) = self.resolve_attempt(story, arrived, None, emit)
                {
                    self.attempt_fold(lane).abort_open_calls();
                }
            }
            Address::BySession => {}
        }
        self.report_message(story, arrived, Severity::Warning, format!("asked to {}", stop_label(how)));
    }

    /// Nothing starts by itself any more.
    pub(super) fn run_ended(
        &mut self,
        story: &mut RunView,
        arrived: &EntryRef<'_>,
        ended: &RunEnded,
        emit: &mut dyn FnMut(FoldEvent<'_>),
    ) {
        if ended.not_run > 0 {
            self.add_lone_step(story);
        }
        for index in 0..story.state.units.len() {
            let unit = &story.state.units[index];
            if matches!(unit.status, UnitStatus::Queued | UnitStatus::Waiting) {
                let status = status_when_withdrawn(&story.state, unit);
                set_final_status(&mut story.state.units[index], status, arrived.at, emit);
            }
        }
        if story.state.is_integrating {
            Self::discard_integration(story);
        }
        story.state.ended = Some(ended.clone());
        story.state.is_integrating = false;
        emit(FoldEvent::Run { at: arrived.at, change: RunChange::Ended(ended) });
    }

    /// The record breaks off while units wait for an attempt, which will never come.
    pub(super) fn interrupt_waiting_units(&mut self, story: &mut RunView, emit: &mut dyn FnMut(FoldEvent<'_>)) {
        let now = story.state.last_entry_at;
        if story.state.ended.is_none() {
            self.add_lone_step(story);
        }
        for index in 0..story.state.units.len() {
            let unit = &story.state.units[index];
            let status = match unit.status {
                UnitStatus::Waiting => UnitStatus::Interrupted,
                UnitStatus::Queued => status_when_withdrawn(&story.state, unit),
                _ => continue,
            };
            set_final_status(&mut story.state.units[index], status, now, emit);
        }
    }
}

impl Fold {
    /// Adds the reconcile step of a run that has nothing else and ended before it began: no plan names it.
    fn add_lone_step(&mut self, story: &mut RunView) {
        let is_lone = |planned: &Arc<RunPlanned>| planned.units.is_empty() && !planned.job.is_empty();
        if story.state.units.is_empty() && story.state.planned.as_ref().is_some_and(is_lone) {
            self.unit_index(story, &RECONCILE_KEY.into());
        }
    }
}

/// Where a unit stands that was to run and does not: where it stood before.
fn status_when_withdrawn(state: &RunState, unit: &UnitState) -> UnitStatus {
    let is_reused = state.prior_unit_summary(&unit.key).is_some_and(|earlier| earlier.reused.is_some());
    match state.verdict(unit) {
        Some(verdict) => status_for_verdict(verdict),
        None if is_reused => UnitStatus::Reused,
        None => UnitStatus::NotStarted,
    }
}

fn set_final_status(unit: &mut UnitState, status: UnitStatus, at: Millis, emit: &mut dyn FnMut(FoldEvent<'_>)) {
    (unit.status, unit.retry_at) = (status, None);
    let attempt = unit.latest();
    let verdict = attempt.and_then(|attempt| attempt.verdict.as_ref()).filter(|_| status == UnitStatus::Failed);
    emit(FoldEvent::Unit {
        at,
        unit: &unit.key,
        attempt: attempt.map_or(0, |attempt| attempt.number),
        status,
        reason: verdict.map(|verdict| verdict.reason.as_str()),
    });
}

fn stop_label(how: StopMode) -> &'static str {
    match how {
        StopMode::Drain => "drain",
        StopMode::Stop => "stop",
        StopMode::Kill => "kill",
    }
}
