//! What a launch makes of its options: the schedule of the run, and the notes at the beginning of its tape.

use std::num::NonZero;

use jiff::Timestamp;

use super::{Launch, PriorWork};
use crate::resume;
use ingestdeck_core::{
    config::TurnLimitAction,
    diagnostic::Diagnostic,
    run::state::RECONCILE_KEY,
    tape::{
        Note, UnitKey,
        note::{RunPlanned, Severity},
    },
    units::{
        governor::ThrottlePolicy,
        schedule::{FailureMode, ReviewMode, Schedule, ScheduleSettings},
    },
};
use ingestdeck_ingest::{job::IngestJob, plan::UnplannedConnection, project::RateLimitSettings};

impl Launch {
    fn failure_mode(&self) -> FailureMode {
        self.project.settings.work_units.failure_mode
    }

    /// The schedule of the run, which writes projections before the first attempt if it `projects`.
    pub(super) fn schedule(&self, is_interactive: bool, projects: bool) -> Schedule {
        let PriorWork {
            continues,
            projected,
            committed,
            sessions,
        } = &self.prior;
        let options = &self.options;
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let settings = ScheduleSettings {
            failure_mode: self.failure_mode(),
            retry: options.retry,
            integrates_patches: true,
            integrates_ahead: true,
            // Each text starts from what the earlier ones became, as in KTX.
            saves_between_units: self.planned.is_of_texts,
            budget_usd: self.options.run_budget_usd,
            waits_at_turn_limit: is_interactive
                && *options.ingest.turn_limit == TurnLimitAction::Wait,
            reviews: match &self.review {
                None => ReviewMode::Off,
                Some(review) if is_interactive || review.is_decided => ReviewMode::Wait,
                Some(_) => ReviewMode::End,
            },
            throttle_policy: throttle_policy(&self.project.settings.rate_limit),
            worker_slots: (!self.places.workers.is_empty()).then_some(0),
            worker_wait_ms: u64::try_from(options.ingest.worker_wait.as_millis())
                .unwrap_or(u64::MAX),
            ..ScheduleSettings::new(
                self.places.concurrency,
                u32::try_from(cores).unwrap_or(u32::MAX),
            )
        };
        let schedule = Schedule::new(
            self.planned
                .units
                .iter()
                .map(|unit| unit.planned.unit.clone())
                .collect(),
            settings,
        )
        .with_reused(resume::reused_units(continues.as_ref()))
        .with_prior_patches(resume::pending_patches(continues.as_ref()).map(|(unit, _)| unit))
        .with_sessions(
            sessions
                .iter()
                .map(|(unit, cut)| (unit, cut.session.as_str())),
        )
        .projecting(projects);
        let is_reconciled = |(unit, _): (&UnitKey, &str)| unit.as_str() == RECONCILE_KEY;
        let has_prior_step = self.reconcile.is_none()
            && resume::pending_patches(continues.as_ref()).any(is_reconciled);
        let schedule = schedule
            .with_prior_changes(!projected.is_empty() || committed.is_some() || has_prior_step);
        let schedule = match &options.feedback {
            Some(feedback) => schedule.with_feedback(feedback),
            None => schedule,
        };
        match &self.reconcile {
            Some(pass) => schedule.with_reconcile_step(RECONCILE_KEY.into(), pass.is_due()),
            None => schedule,
        }
    }

    pub(super) fn plan_notes(&self, job: &IngestJob) -> Vec<Note> {
        let plan = Note::RunPlanned(Box::new(RunPlanned {
            job: job.id.clone(),
            units: self
                .planned
                .units
                .iter()
                .map(|unit| unit.planned.clone())
                .collect(),
            skipped: self
                .planned
                .skipped
                .iter()
                .map(UnplannedConnection::to_note)
                .collect(),
            concurrency: self.places.concurrency,
            step_budget: self.options.step_budget,
            failure_mode: self.failure_mode().as_str().to_owned(),
            tool_failures: self.options.ingest.tool_failures.as_str().to_owned(),
            model: self.options.model.clone(),
            scripted: self.agent.is_scripted(),
            run_budget_usd: self.options.run_budget_usd,
            instructions: self
                .project
                .instructions
                .overrides
                .iter()
                .map(ToString::to_string)
                .collect(),
            continues: self.prior.continues.clone(),
            silence_after_ms: u64::try_from(self.options.ingest.silence_after.as_millis()).ok(),
            selection: Some(self.planned.selection.clone()),
            starter: self.trace.starter.clone(),
        }));
        let read = self
            .planned
            .sources
            .iter()
            .map(|source| Note::SourceRead(Box::new(source.to_note())));
        // The record must mention files that were left out.
        let left_out = self.planned.warnings.iter();
        let left_out = left_out.map(|text| Note::Message {
            level: Severity::Warning,
            text: text.to_line(),
        });
        let branch = self.prepared.repository.target_branch();
        let branch = branch.map(|branch| Note::BranchSelected {
            branch: Some(branch),
        });
        let review = self.review.as_ref().map(|_| Note::ReviewPlanned);
        let projected = self
            .prior
            .projected
            .iter()
            .map(|projected| Note::SourcesProjected(Box::new(projected.clone())));
        let committed = self
            .prior
            .committed
            .as_ref()
            .map(|of| Note::CommittedReviewPlanned { run: of.run });
        let notes = std::iter::once(plan)
            .chain(review)
            .chain(committed)
            .chain(branch)
            .chain(projected);
        notes.chain(read).chain(left_out).collect()
    }
}

/// The jitter must differ between runs; only its seed varies.
fn throttle_policy(limits: &RateLimitSettings) -> ThrottlePolicy {
    let seed = || Timestamp::now().as_nanosecond().unsigned_abs() as u64;
    ThrottlePolicy {
        enabled: limits.enabled,
        threshold: limits.throttle_threshold,
        concurrency_under_pressure: limits.min_concurrency_under_pressure,
        max_wait_ms: limits.max_wait_ms.map(u64::from),
        max_limit_attempts: limits.retry.max_attempts,
        base_delay_ms: limits.retry.base_delay_ms.into(),
        max_delay_ms: limits.retry.max_delay_ms.into(),
        jitter: limits.retry.jitter.then(seed),
    }
}
