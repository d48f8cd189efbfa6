//! One attempt, from its workspace to its verdict; connects the ingest stage with the Claude backend.

mod ahead;
mod ingest_run;
mod integration;
mod projection;
mod reconcile_step;

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

pub use self::ingest_run::{IngestRun, ReconcileOptions};
use self::integration::{Integration, record_note};
use super::{
    attempt_limits::AttemptLimits,
    attempt_order::{AttemptOrder, preparation_failed},
    cut_sessions::{CutSession, CutSessions, session_file},
    driver::{self, AttemptEnd, Executor, SaveOutcome},
    local_attempt::{AttemptSinks, AttemptTask, FinishedAttempt, LocalAttempts},
    started_run::StartedRun,
    worker::{
        host::{ClaimError, WorkerHost, WorkerSources, WorkerTransports},
        pool::{AttemptPlace, SessionLost, WorkerPermit},
        prior_attempts::PriorTape,
        protocol::RunTerms,
        shipment::ShipmentStore,
    },
};
use ingestdeck_agent::{Agent, session_lock::SessionLocks};
use ingestdeck_core::{
    config::ContinueAction,
    run::{RunOptions, state::RECONCILE_KEY},
    tape::{
        Note, UnitKey,
        note::{Amendment, AttemptOutcome, ContinuedWork, PatchWritten, Severity},
    },
    units::{retry::RetryMode, schedule::IntegrationReport},
};
use ingestdeck_ingest::{
    attempt::WrittenPatch, git::CommitId, transcript::RecordedCalls, work_unit::WorkUnit,
};

/// The machines that the units of a run use.
#[derive(Debug)]
pub struct RunPlaces {
    /// Number of units that run on this machine at the same time; at least 1 without workers.
    pub concurrency: u32,
    pub workers: WorkerSources,
    /// Units may run on this machine later although it begins with none.
    pub is_local_usable: bool,
    /// Whose usage limits apply on this machine; `None` if that is unknown.
    pub account: Option<String>,
}

impl RunPlaces {
    /// A run without any workers.
    pub fn local(concurrency: u32) -> Self {
        Self {
            concurrency,
            workers: WorkerSources::default(),
            is_local_usable: true,
            account: None,
        }
    }
}

/// Runs the attempts of one run.
#[derive(Debug)]
pub(crate) struct AttemptExecutor {
    run: Arc<IngestRun>,
    integration: Arc<Integration>,
    /// Runs them on this machine.
    local: LocalAttempts,
    /// Runs them on workers, if the run has any.
    workers: Option<Arc<WorkerTransports>>,
    options: Arc<RunOptions>,
    limits: Arc<AttemptLimits>,
    started: StartedRun,
    /// What the next attempts continue on this machine.
    cut: CutSessions,
}

impl AttemptExecutor {
    pub(crate) fn new(
        run: IngestRun,
        agent: Arc<Agent>,
        options: Arc<RunOptions>,
        limits: Arc<AttemptLimits>,
        locks: SessionLocks,
        started: StartedRun,
    ) -> Self {
        let run = Arc::new(run);
        let integration = Arc::new(Integration::new(
            Arc::clone(&run),
            Arc::clone(&started.recorder),
            Arc::clone(&started.review),
        ));
        let local = LocalAttempts::new(
            Arc::clone(&run.project),
            run.job.clone(),
            agent,
            Arc::clone(&options),
            Arc::clone(&limits),
            locks,
        );
        Self {
            run,
            integration,
            local,
            workers: None,
            options,
            limits,
            started,
            cut: CutSessions::default(),
        }
    }

    /// The first attempts at these units continue sessions of a prior run.
    pub(crate) fn with_sessions(self, sessions: Vec<(UnitKey, CutSession)>) -> Self {
        Self {
            cut: CutSessions::new(sessions),
            ..self
        }
    }

    /// Attempts also run on the workers of `places`, if it names any. Those of `prior` that still run there are continued.
    pub(crate) fn with_places(mut self, places: RunPlaces, prior: Option<PriorTape>) -> Self {
        if places.workers.is_empty() {
            return self;
        }
        let (run, started) = (&self.run, &self.started);
        let terms = RunTerms::new(
            (run.id, run.job.clone()),
            ShipmentStore::connections_of(&run.project),
            RunOptions::clone(&self.options),
        );
        let host = WorkerHost::new(
            (Arc::clone(&run.project), run.worktrees.repository().clone()),
            terms,
            (places.concurrency, places.account),
            Arc::clone(&self.limits),
            (
                Arc::clone(&started.recorder),
                Arc::clone(started.approvals.meter()),
            ),
        );
        if places.is_local_usable {
            host.pool.allow_local();
        }
        let workers = WorkerTransports::start(host, places.workers, prior);
        self.workers = Some(Arc::new(workers));
        self
    }

    /// Adds patches of a prior run; paths are relative to the project.
    pub(crate) fn with_prior_patches<'a>(
        self,
        patches: impl IntoIterator<Item = (&'a UnitKey, &'a str)>,
    ) -> Self {
        patches
            .into_iter()
            .for_each(|(unit, path)| self.integration.add_prior_patch(unit, path));
        self
    }

    /// The attempt at `unit`, and the commit that it starts from; `None` for a unit that is not planned.
    fn attempt_task(
        &self,
        unit: &UnitKey,
        attempt: u32,
        amendment: &Amendment,
    ) -> Option<(AttemptTask, CommitId)> {
        let mut base = None;
        let (mut model, mut step_budget) = (&self.options.model, self.limits.current().step_budget);
        let (index, work_unit) = match (self.run.units.get(unit), &self.run.reconcile) {
            (Some((index, work_unit)), _) => (*index, work_unit.clone()),
            (None, Some(pass)) if unit.as_str() == RECONCILE_KEY => {
                (model, step_budget) = (&self.options.reconcile_model, pass.step_budget());
                let stage;
                (stage, base) = self.integration.reconcile_stage();
                (self.run.units.len(), WorkUnit::reconcile_step(stage))
            }
            _ => return None,
        };
        let meter = self.started.approvals.meter();
        let resumed = amendment.resume.as_deref();
        let cut = resumed
            .filter(|_| amendment.feedback.is_none())
            .and_then(|session| self.cut.of(unit, session));
        let task = AttemptTask {
            unit: unit.clone(),
            attempt,
            index,
            work_unit,
            amendment: amendment.clone(),
            feedback: self.feedback(unit, amendment),
            files_kept: self.integration.is_saved(unit),
            session: amendment
                .resume
                .clone()
                .unwrap_or_else(|| Uuid::new_v4().to_string()),
            model: model.clone(),
            step_budget,
            paid_usd: match &cut {
                Some(cut) => cut.work.cost_usd,
                None => resumed.and_then(|session| {
                    let own = meter.session_cost(unit, session)?;
                    self.cut.whole_cost(session, own)
                }),
            },
            cut,
            traceparent: self
                .started
                .trace
                .as_ref()
                .map(|trace| trace.traceparent_of_attempt(unit, attempt)),
        };
        Some((task, base.unwrap_or_else(|| self.run.worktrees.base())))
    }

    /// The amendment, without a session whose worker or whose file is gone.
    fn reachable_amendment(&self, unit: &UnitKey, attempt: u32, amendment: Amendment) -> Amendment {
        let session = amendment.resume.as_deref();
        let lost = self.workers.as_ref().zip(session);
        let lost_worker =
            lost.and_then(|(workers, session)| workers.host.pool.worker_of_lost_session(session));
        // A person may have continued the session meanwhile: its changes would not be those of the transcript.
        let unusable = |session: &str| {
            let cut = self.cut.of(unit, session)?;
            match (
                session_file(&self.run.project.root, session),
                cut.file_bytes,
            ) {
                (None, _) => Some(SessionLost::Deleted),
                (Some(file), Some(bytes)) if file.len() != bytes => Some(SessionLost::Changed),
                _ => None,
            }
        };
        let reason = match lost_worker {
            Some(worker) => SessionLost::Draining(worker),
            None => match session.and_then(unusable) {
                Some(reason) => reason,
                None => return amendment,
            },
        };
        self.report_new_session(unit, attempt, &reason);
        Amendment {
            resume: None,
            ..amendment
        }
    }

    fn report_new_session(&self, unit: &UnitKey, attempt: u32, reason: &SessionLost) {
        let text = format!("{reason}: a new session begins");
        record_note(
            self.started.recorder.as_ref(),
            Some((unit, attempt)),
            &Note::Message {
                level: Severity::Warning,
                text,
            },
        );
    }

    /// What a person and a review ask for, in this order.
    fn feedback(&self, unit: &UnitKey, amendment: &Amendment) -> Option<String> {
        let remarks = self.integration.review().remarks(unit);
        match (amendment.feedback.clone(), remarks) {
            (Some(feedback), Some(remarks)) => Some(format!("{feedback}\n\n{remarks}")),
            (feedback, remarks) => feedback.or(remarks),
        }
    }

    async fn run_attempt(
        &self,
        unit: &UnitKey,
        attempt: u32,
        amendment: &Amendment,
        mut orders: mpsc::Receiver<AttemptOrder>,
        ready: oneshot::Sender<()>,
        held: &mut Option<Box<WorkerPermit>>,
    ) -> (FinishedAttempt, Option<String>, RetryMode) {
        let unplanned = || {
            let reason = format!("unit {unit} is not part of the plan");
            (
                FinishedAttempt::without_agent(preparation_failed(reason)),
                None,
                RetryMode::FromStart,
            )
        };
        let Some((mut task, mut base)) = self.attempt_task(unit, attempt, amendment) else {
            return unplanned();
        };
        let mut early = Vec::new();
        let place = match &self.workers {
            None => None,
            Some(workers) => loop {
                match workers.host.claim(&task, &mut orders, &mut early).await {
                    Ok(place) => break Some(place),
                    Err(ClaimError::Stopped(how)) => {
                        return (self.local.stopped(&task, how), None, RetryMode::FromStart);
                    }
                    Err(ClaimError::SessionLost(reason)) => {
                        self.report_new_session(unit, attempt, &reason);
                        let amendment = Amendment {
                            resume: None,
                            ..amendment.clone()
                        };
                        let Some(in_new_session) = self.attempt_task(unit, attempt, &amendment)
                        else {
                            return unplanned();
                        };
                        (task, base) = in_new_session;
                    }
                }
            },
        };
        let sinks = AttemptSinks {
            recorder: Arc::clone(&self.started.recorder),
            observer: Some(Arc::clone(self.started.approvals.meter()) as _),
            gate: self.started.approvals.gate(unit, attempt),
        };
        if let Some(AttemptPlace::Worker(permit)) = &place
            && let Some(adopted) = &permit.adopted
        {
            task.session.clone_from(&adopted.session);
        }
        let session = task.session.clone();
        self.cut.set(unit, None);
        match (&self.workers, place) {
            (Some(workers), Some(AttemptPlace::Worker(mut permit))) => {
                let host = &workers.host;
                let (finished, repeat) = host
                    .run_attempt(&mut permit, task, &base, sinks, (early, orders), ready)
                    .await;
                *held = Some(permit);
                (finished, Some(session), repeat)
            }
            // The slot is given back when the attempt is over.
            (workers, _local_permit) => {
                let worktrees = self.run.worktrees.with_base(&base);
                let host = workers.as_ref().map(|workers| &workers.host);
                // Limits are kept per account once there are several.
                let observer = host
                    .map(|host| host.observer(&host.account, None))
                    .or(sinks.observer);
                let sinks = AttemptSinks { observer, ..sinks };
                let finished = self
                    .local
                    .run(&task, &worktrees, sinks, (early, orders), ready)
                    .await;
                let repeat =
                    host.map(|host| host.repeat_of(&finished.ended.verdict, (&host.account, None)));
                let repeat = match (
                    repeat.unwrap_or(RetryMode::FromStart),
                    self.keep_cut_session(&task, &finished),
                ) {
                    (RetryMode::FromStart, Some(session)) => RetryMode::ResumeSession(session),
                    (RetryMode::FromStart, None)
                        if task.cut.is_some() && finished.has_lost_session =>
                    {
                        RetryMode::LostSession
                    }
                    (repeat, _) => repeat,
                };
                let session = finished.new_session.clone().unwrap_or(session);
                (finished, Some(session), repeat)
            }
        }
    }

    /// Keeps what the next attempt at the unit can continue. Returns its session.
    fn keep_cut_session(&self, task: &AttemptTask, finished: &FinishedAttempt) -> Option<String> {
        let is_wanted = *self.options.ingest.continue_cut == ContinueAction::Auto
            && !self.local.agent.is_scripted()
            && task.unit.as_str() != RECONCILE_KEY;
        let work = finished.cut.clone().filter(|_| is_wanted)?;
        // An attempt that began a new session continued nothing.
        let earlier = task.cut.as_ref().filter(|_| finished.new_session.is_none());
        let session = finished.new_session.as_ref().unwrap_or(&task.session);
        let file = session_file(&self.run.project.root, session)?;
        let work = ContinuedWork {
            attempt: task.attempt,
            ..work
        };
        let work = work.after(earlier.map(|cut| &cut.work));
        // Before the first message of the model, there is nothing to continue.
        if work.turns == 0 {
            return None;
        }
        let mut calls = earlier.map_or_else(Vec::new, |cut| cut.calls.clone());
        calls.push(RecordedCalls {
            job: self.run.job.id.clone(),
            attempt: task.attempt,
        });
        let cut = CutSession {
            session: session.clone(),
            work,
            calls,
            file_bytes: Some(file.len()),
        };
        self.cut.set(&task.unit, Some(cut));
        Some(session.clone())
    }

    /// Records the patch of an attempt, for the integration.
    fn keep_patch(&self, unit: &UnitKey, attempt: u32, session: Option<&str>, patch: WrittenPatch) {
        let WrittenPatch { base, path, paths } = patch;
        let file = path.as_ref().map(|path| self.run.project.root.join(path));
        self.integration.add_patch(unit, attempt, file);
        session
            .iter()
            .for_each(|session| self.integration.review().record_session(unit, session));
        let note = Note::PatchWritten(PatchWritten { base, path, paths });
        record_note(self.started.recorder.as_ref(), Some((unit, attempt)), &note);
    }
}

impl Executor for AttemptExecutor {
    async fn run(
        &self,
        unit: UnitKey,
        attempt: u32,
        amendment: Option<Arc<Amendment>>,
        orders: mpsc::Receiver<AttemptOrder>,
        ready: oneshot::Sender<()>,
    ) -> AttemptEnd {
        let amendment = self.reachable_amendment(
            &unit,
            attempt,
            amendment.as_deref().cloned().unwrap_or_default(),
        );
        // The permit of a worker, until the end of the attempt is recorded.
        let mut held = None;
        let (finished, session, repeat) = self
            .run_attempt(&unit, attempt, &amendment, orders, ready, &mut held)
            .await;
        let FinishedAttempt {
            ended,
            patch,
            warning,
            ..
        } = finished;
        let verdict = ended.verdict.clone();
        driver::log_verdict(&unit, attempt, &verdict, ended.exit_code, ended.signal);
        if let Some(patch) = patch {
            self.keep_patch(&unit, attempt, session.as_deref(), patch);
        }
        if let Some(text) = warning {
            let note = Note::Message {
                level: Severity::Warning,
                text,
            };
            record_note(
                self.started.recorder.as_ref(),
                Some((&unit, attempt)),
                &note,
            );
        }
        if unit.as_str() == RECONCILE_KEY && verdict.outcome == AttemptOutcome::Succeeded {
            self.integration
                .record_reconciled(verdict.stop, &ended.work);
        }
        self.integration.mark_unsaved(&unit);
        record_note(
            self.started.recorder.as_ref(),
            Some((&unit, attempt)),
            &Note::AttemptEnded(Box::new(ended)),
        );
        drop(held);
        AttemptEnd {
            repeat,
            ..verdict.into()
        }
    }

    fn workers(&self) -> Option<Arc<WorkerTransports>> {
        self.workers.clone()
    }

    async fn close(&self) {
        self.integration.close().await;
        if let Some(workers) = &self.workers {
            workers.close().await;
        }
    }

    fn set_local_slots(&self, slots: u32) {
        self.workers
            .iter()
            .for_each(|workers| workers.host.pool.set_local_slots(slots));
    }

    async fn write_projections(&self) -> bool {
        self.write_pending_projections().await;
        !self.run.worktrees.base_patches().is_empty()
    }

    async fn integrate(&self, units: Vec<(UnitKey, u32)>) -> IntegrationReport {
        Arc::clone(&self.integration).integrate(units).await
    }

    fn integrate_ahead(&self, kept: usize, units: Vec<(UnitKey, u32)>) {
        self.integration.integrate_ahead(kept, &units);
    }

    async fn request_review(&self) -> bool {
        Arc::clone(&self.integration).request_review().await
    }

    fn close_review(&self) {
        self.integration.review().close();
    }

    async fn save(&self, failed: Vec<UnitKey>) -> SaveOutcome {
        Arc::clone(&self.integration).save(failed).await
    }
}
