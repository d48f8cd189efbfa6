//! The fold of what ends a unit without an attempt: a person's word, the end of its run, the end of its record.
//!
//! Says what the schedule did, which writes no note about every unit that it takes off its board.

use std::sync::Arc;

use super::{Emitted, Fold, RunChange, attempt::status_of};
use crate::{
    run::{
        Arrived, Lane as Address,
        report::PASS,
        state::{RunState, Story, Unit, UnitStatus},
    },
    tape::{
        Millis,
        note::{Level, RunEnded, RunPlanned, StopHow},
    },
};

impl Fold {
    /// What runs ends by a verdict of its own. What does not will not begin.
    pub(super) fn stop_requested(
        &mut self,
        story: &mut Story,
        arrived: &Arrived<'_>,
        how: StopHow,
        emit: &mut dyn FnMut(Emitted<'_>),
    ) {
        match arrived.lane {
            Address::Run => {
                story.state.stopping = true;
                let latest = story.state.units.iter().filter_map(Unit::latest);
                for attempt in latest.filter(|attempt| attempt.verdict.is_none() && how != StopHow::Drain) {
                    self.lane(attempt.lane).cut_short();
                }
            }
            Address::Attempt(key, number) => {
                let index = self.unit_index(story, &key.into());
                let unit = &mut story.state.units[index];
                // An attempt with a number of its own is being prepared: it ends like one that runs.
                let runs = unit.latest().is_some_and(|latest| latest.number == number && latest.verdict.is_none());
                let begins = number > unit.latest().map_or(0, |attempt| attempt.number);
                if matches!(unit.status, UnitStatus::Queued | UnitStatus::Waiting) && !begins {
                    settle(unit, UnitStatus::Stopped, arrived.at, emit);
                }
                if runs
                    && how != StopHow::Drain
                    && let Some(lane) = self.address(story, arrived, None, emit)
                {
                    self.lane(lane).cut_short();
                }
            }
            Address::BySession => {}
        }
        self.remark(story, arrived, Level::Warning, format!("asked to {}", word(how)));
    }

    /// Nothing starts by itself any more.
    pub(super) fn run_ended(
        &mut self,
        story: &mut Story,
        arrived: &Arrived<'_>,
        ended: &RunEnded,
        emit: &mut dyn FnMut(Emitted<'_>),
    ) {
        if ended.not_run > 0 {
            self.add_lone_step(story);
        }
        for index in 0..story.state.units.len() {
            let unit = &story.state.units[index];
            if matches!(unit.status, UnitStatus::Queued | UnitStatus::Waiting) {
                let status = withdrawn(&story.state, unit);
                settle(&mut story.state.units[index], status, arrived.at, emit);
            }
        }
        if story.state.integrating {
            Self::taken_apart(story);
        }
        story.state.ended = Some(ended.clone());
        story.state.integrating = false;
        emit(Emitted::Run { at: arrived.at, change: RunChange::Ended(ended) });
    }

    /// The record breaks off while units wait for an attempt, which will never come.
    pub(super) fn broken_off(&mut self, story: &mut Story, emit: &mut dyn FnMut(Emitted<'_>)) {
        let now = story.state.now;
        if story.state.ended.is_none() {
            self.add_lone_step(story);
        }
        for index in 0..story.state.units.len() {
            let unit = &story.state.units[index];
            let status = match unit.status {
                UnitStatus::Waiting => UnitStatus::Interrupted,
                UnitStatus::Queued => withdrawn(&story.state, unit),
                _ => continue,
            };
            settle(&mut story.state.units[index], status, now, emit);
        }
    }
}

impl Fold {
    /// Adds the reconcile step of a run that has nothing else and ended before it began: no plan names it.
    fn add_lone_step(&mut self, story: &mut Story) {
        let is_lone = |planned: &Arc<RunPlanned>| planned.units.is_empty() && !planned.job.is_empty();
        if story.state.units.is_empty() && story.state.planned.as_ref().is_some_and(is_lone) {
            self.unit_index(story, &PASS.into());
        }
    }
}

/// Where a unit stands that was to run and does not: where it stood before.
fn withdrawn(state: &RunState, unit: &Unit) -> UnitStatus {
    let is_reused = state.earlier(&unit.key).is_some_and(|earlier| earlier.reused.is_some());
    match state.verdict(unit) {
        Some(verdict) => status_of(verdict),
        None if is_reused => UnitStatus::Reused,
        None => UnitStatus::Untried,
    }
}

fn settle(unit: &mut Unit, status: UnitStatus, at: Millis, emit: &mut dyn FnMut(Emitted<'_>)) {
    (unit.status, unit.retry_at) = (status, None);
    let attempt = unit.latest();
    let verdict = attempt.and_then(|attempt| attempt.verdict.as_ref()).filter(|_| status == UnitStatus::Failed);
    emit(Emitted::Unit {
        at,
        unit: &unit.key,
        attempt: attempt.map_or(0, |attempt| attempt.number),
        status,
        reason: verdict.map(|verdict| verdict.reason.as_str()),
    });
}

fn word(how: StopHow) -> &'static str {
    match how {
        StopHow::Drain => "drain",
        StopHow::Stop => "stop",
        StopHow::Kill => "kill",
    }
}
