//! One attempt, from its workspace to its verdict; connects the ingest stage with the Claude backend.

mod integration;
mod projection;
mod reconcile_step;

use std::{
    collections::{HashMap, HashSet},
    ffi::OsString,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    task,
};
use uuid::Uuid;

pub(crate) use self::reconcile_step::ReconcileOptions;
use self::{integration::IntegrationQueue, reconcile_step::AttemptInputs};
use super::{
    approval::ApprovalQueue,
    descriptors,
    driver::{self, AttemptEnd, Executor, preparation_failed},
};
use crate::{
    agent::{
        caught_panics,
        process::StreamLimits,
        session_lock::{SessionLock, SessionLocks, TryLockOutcome},
        unit::{self, AgentProgram, AttemptTimeouts, StopCommand, UnitLaunch},
    },
    diagnostic::Diagnostic,
    ingest::{
        attempt::{AttemptPreparationError, UnitAttempt, WrittenPatch},
        job::IngestJob,
        project::Project,
        projection::PendingProjection,
        prompt::PromptAmendment,
        transcript::RejectedCall,
        work_unit::WorkUnit,
        worktree::Worktrees,
    },
    run::{NewEntry, Recorder, state::RECONCILE_KEY},
    scoped_dir,
    tape::{
        EntryBody, Note, UnitKey,
        note::{
            Amendment, AttemptEnded, AttemptOutcome, AttemptOutput, ContentDigests, CountedFailure, PatchWritten,
            StopMode, Verdict, VerdictCause,
        },
    },
    units::{
        failure_tally::FailureRule,
        schedule::IntegrationReport,
        verdict::{self, AttemptFacts, InterruptionFacts},
    },
};

/// The program that plays the model.
#[derive(Clone, Debug)]
pub(crate) enum AgentBackend {
    /// The user's Claude Code.
    Claude(PathBuf),
    /// A script for demos and tests.
    Scripted {
        /// Path of this program, which plays the script.
        exe: PathBuf,
        script: PathBuf,
        /// Speed factor; 1 is real time.
        speed: f64,
    },
}

impl AgentBackend {
    pub(crate) fn is_scripted(&self) -> bool {
        matches!(self, Self::Scripted { .. })
    }

    fn program(&self, unit: &UnitKey, attempt: u32) -> AgentProgram {
        match self {
            Self::Claude(exe) => AgentProgram { exe: exe.clone(), prefix: Vec::new(), scripted: false },
            Self::Scripted { exe, script, speed } => {
                let mut prefix: Vec<OsString> = vec!["scripted-agent".into(), "--script".into(), script.into()];
                prefix.extend(["--attempt".into(), attempt.to_string().into()]);
                prefix.extend(["--unit".into(), unit.as_str().into()]);
                prefix.extend(["--speed".into(), speed.to_string().into(), "--".into()]);
                AgentProgram { exe: exe.clone(), prefix, scripted: true }
            }
        }
    }
}

/// Options that all attempts of a run share.
#[derive(Clone, Debug)]
pub(crate) struct AttemptOptions {
    /// Model; `None` means the agent's default.
    pub model: Option<String>,
    /// Maximum number of turns of an attempt.
    pub step_budget: u32,
    /// Cost limit of an attempt, in US dollars.
    pub max_budget_usd: Option<f64>,
    /// Cost limit of all attempts together, in US dollars.
    pub run_budget_usd: Option<f64>,
    /// Time without output after which an attempt is shown as silent.
    pub silence_after: Duration,
    /// Time limits of an attempt.
    pub timeouts: AttemptTimeouts,
    /// Whether text is streamed while it is written.
    pub partial_messages: bool,
    /// Variables that the agent inherits although they would be withheld by default.
    pub pass_env: Vec<String>,
    /// The rule by which failed calls fail a unit.
    pub rule: FailureRule,
}

/// Runs the attempts of one run.
#[derive(Debug)]
pub(crate) struct AttemptExecutor {
    project: Arc<Project>,
    /// The units with their positions in the plan.
    units: Arc<HashMap<UnitKey, (usize, WorkUnit)>>,
    /// The changes of their sources, in KTX's format.
    diff: String,
    job: IngestJob,
    worktrees: Arc<Worktrees>,
    integration_queue: Arc<Mutex<IntegrationQueue>>,
    agent: AgentBackend,
    options: AttemptOptions,
    recorder: Arc<dyn Recorder>,
    approvals: Arc<ApprovalQueue>,
    locks: SessionLocks,
    saved_units: Mutex<HashSet<UnitKey>>,
    /// Reference-counted: each running attempt holds a clone.
    attempt_counter: Arc<()>,
    reconcile: Option<ReconcileOptions>,
    projections: Vec<PendingProjection>,
}

/// Why an attempt could not be prepared.
enum PrepareError {
    /// Too many open files; names what was to be opened.
    TooManyOpenFiles(String),
    /// The reason, and the remedy if one is known.
    Failed(String, Option<String>),
}

impl PrepareError {
    fn from_error(error: &(impl Diagnostic + 'static)) -> Self {
        let why = error.to_string();
        if scoped_dir::is_out_of_files(error) {
            return Self::TooManyOpenFiles(why);
        }
        let remedy = error.help().map(|help| match help.ends_with("try again") {
            true => help,
            false => format!("{help}, then retry"),
        });
        Self::Failed(why, remedy)
    }

    fn verdict(self) -> Verdict {
        match self {
            Self::TooManyOpenFiles(why) => verdict::open_files_verdict(&why),
            Self::Failed(why, remedy) => Verdict { remedy, ..preparation_failed(why) },
        }
    }
}

impl AttemptExecutor {
    /// Prepares to run attempts at `units`, which write to `worktrees`.
    #[expect(clippy::too_many_arguments, reason = "the parts of a run, each named once")]
    pub(crate) fn new(
        project: Arc<Project>,
        units: &[WorkUnit],
        diff: String,
        job: IngestJob,
        worktrees: Arc<Worktrees>,
        agent: AgentBackend,
        terms: AttemptOptions,
        recorder: Arc<dyn Recorder>,
        approvals: Arc<ApprovalQueue>,
        locks: SessionLocks,
    ) -> Self {
        let placed = |(index, unit): (usize, &WorkUnit)| (unit.planned.unit.clone(), (index, unit.clone()));
        let units = Arc::new(units.iter().enumerate().map(placed).collect());
        let (round, saved, running) = Default::default();
        let (pass, projections) = Default::default();
        Self {
            project,
            units,
            diff,
            job,
            worktrees,
            integration_queue: round,
            agent,
            options: terms,
            recorder,
            approvals,
            locks,
            saved_units: saved,
            attempt_counter: running,
            reconcile: pass,
            projections,
        }
    }

    async fn run_attempt(
        &self,
        unit: &UnitKey,
        attempt: u32,
        amendment: &Amendment,
        mut stop: mpsc::Receiver<StopMode>,
        ready: oneshot::Sender<()>,
    ) -> (Verdict, AttemptFacts, AttemptOutput) {
        let running = Arc::clone(&self.attempt_counter);
        // Running attempts must not fail because a new one uses the last descriptors. A single attempt always starts.
        if Arc::strong_count(&running) > 2 && !descriptors::has_room_for_attempt() {
            return (
                verdict::open_files_verdict("no room for one more unit"),
                AttemptFacts::default(),
                AttemptOutput::default(),
            );
        }
        // The session id is chosen before the agent starts, so that the lock is held from its first line.
        let session = amendment.resume.clone().unwrap_or_else(|| Uuid::new_v4().to_string());
        let prepared = self.prepare(unit, attempt, amendment, &session).await;
        if let Ok(how) = stop.try_recv() {
            let facts = AttemptFacts {
                interruption: InterruptionFacts { stopped: Some(how), ..InterruptionFacts::default() },
                ..AttemptFacts::default()
            };
            return (
                verdict::judge_attempt(self.ktx_key(unit), &facts, self.options.rule),
                facts,
                AttemptOutput::default(),
            );
        }
        let (_lock, opened, content) = match prepared {
            Ok((lock, (opened, content))) => (lock, Arc::new(opened), content),
            Err(error) => return (error.verdict(), AttemptFacts::default(), AttemptOutput::default()),
        };
        let launch = UnitLaunch { content, ..self.unit_launch(unit, attempt, amendment, &opened, session) };
        let (forward, commands) = mpsc::channel(4);
        let forwarding = task::spawn(forward_stops(stop, forward));
        let mut facts = unit::run_unit(launch, commands, ready).await;
        forwarding.abort();
        record_rejected_calls(&opened, &facts);
        let (key, rule) = (self.ktx_key(unit).clone(), self.options.rule);
        let closing = Arc::clone(&opened);
        let closed = caught_panics::spawn_blocking_caught(move || {
            let (verdict, delivered) = finish_attempt(&closing, &key, &mut facts, rule);
            (verdict, delivered, facts)
        });
        let (verdict, delivered, facts) = match closed.await {
            Ok(closed) => closed,
            Err(error) => (
                preparation_failed(format!("cannot check the changes of {unit}: {error}")),
                None,
                AttemptFacts::default(),
            ),
        };
        if let Some(WrittenPatch { base, path, paths }) = delivered {
            let file = path.as_ref().map(|path| self.project.root.join(path));
            self.integration_queue().add_patch(unit, attempt, file);
            self.record_note(unit, attempt, &Note::PatchWritten(PatchWritten { base, path, paths }));
        }
        let work = attempt_output(&opened, &verdict, &facts);
        if let Some(pass) = self.reconcile.as_ref().filter(|_| unit.as_str() == RECONCILE_KEY)
            && verdict.outcome == AttemptOutcome::Succeeded
        {
            self.integration_queue().reconcile_backlog.record_success(
                verdict.stop,
                &work,
                &pass.artifacts_by_deleted_file,
            );
        }
        (verdict, facts, work)
    }

    /// KTX's key of `unit`, which occurs in the reasons of verdicts.
    fn ktx_key<'a>(&'a self, unit: &'a UnitKey) -> &'a UnitKey {
        self.units.get(unit).map_or(unit, |(_, planned)| planned.planned.ktx_key())
    }

    async fn prepare(
        &self,
        unit: &UnitKey,
        attempt: u32,
        amendment: &Amendment,
        session: &str,
    ) -> Result<(SessionLock, (UnitAttempt, Option<ContentDigests>)), PrepareError> {
        let lock = self.lock_session(session)?;
        Ok((lock, self.open_attempt(unit, attempt, amendment).await?))
    }

    /// Locks a session: two writers would split its history.
    fn lock_session(&self, session: &str) -> Result<SessionLock, PrepareError> {
        match self.locks.try_lock(session).map_err(|error| PrepareError::from_error(&error))? {
            TryLockOutcome::Acquired(lock) => Ok(lock),
            TryLockOutcome::HeldByOther(holder) => {
                let holder = holder.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
                let why = format!("session {session} is in use by {holder}: end that, or retry in a new session");
                Err(PrepareError::Failed(why, None))
            }
        }
    }

    /// Opens the attempt and collects the inputs of its unit. The agent reports files that it cannot read.
    async fn open_attempt(
        &self,
        unit: &UnitKey,
        attempt: u32,
        amendment: &Amendment,
    ) -> Result<(UnitAttempt, Option<ContentDigests>), PrepareError> {
        let Some(AttemptInputs { index, work_unit, base }) = self.attempt_inputs(unit) else {
            return Err(PrepareError::Failed(format!("unit {unit} is not part of the plan"), None));
        };
        let (project, job) = (Arc::clone(&self.project), self.job.clone());
        let worktrees = base.map_or_else(|| Arc::clone(&self.worktrees), |commit| self.worktrees.with_base(&commit));
        let (amendment, files_kept) = (amendment.clone(), self.saved_units().contains(unit));
        // Amendments of one attempt do not change the identity of its unit.
        let model = self.options.model.clone();
        caught_panics::spawn_blocking_caught(move || {
            let amended = prompt_amendment(&amendment, files_kept);
            let opened = UnitAttempt::open(&project, (index, &work_unit), &job, attempt, amended, &worktrees)?;
            let content = opened.content(model.as_deref()).ok();
            Ok::<_, AttemptPreparationError>((opened, content))
        })
        .await
        .map_err(|error| PrepareError::Failed(error.to_string(), None))?
        .map_err(|error| PrepareError::from_error(&error))
    }

    /// Locks the patches and their integration state. If a thread panicked, the next integration replaces the state.
    fn integration_queue(&self) -> MutexGuard<'_, IntegrationQueue> {
        self.integration_queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Units whose last attempt is saved in the project. The set stays valid if a thread panics while it holds the lock.
    fn saved_units(&self) -> MutexGuard<'_, HashSet<UnitKey>> {
        self.saved_units.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unit_launch(
        &self,
        unit: &UnitKey,
        attempt: u32,
        amendment: &Amendment,
        opened: &UnitAttempt,
        new_session: String,
    ) -> UnitLaunch {
        let (model, step_budget) = self.model_and_turns(unit);
        let meter = self.approvals.meter();
        UnitLaunch {
            program: self.agent.program(unit, attempt),
            cwd: self.project.root.clone(),
            unit: unit.clone(),
            attempt,
            system_prompt: opened.prompt().system.clone(),
            prompt: opened.prompt().user.clone(),
            new_session,
            model: amendment.model.clone().or(model),
            step_budget: amendment.step_budget.unwrap_or(step_budget),
            max_budget_usd: self.options.max_budget_usd,
            partial_messages: self.options.partial_messages,
            pass_env: self.options.pass_env.clone(),
            timeouts: self.options.timeouts,
            limits: StreamLimits::default(),
            tools: opened.tools(),
            recorder: Arc::clone(&self.recorder),
            observer: Some(Arc::clone(meter) as _),
            gate: self.approvals.gate(unit, attempt),
            amendment: (!amendment.is_empty()).then(|| amendment.clone()),
            paid_usd: amendment.resume.as_deref().and_then(|session| meter.session_cost(unit, session)),
            content: None,
        }
    }

    /// A failed write does not change the verdict: the next record of the attempt fails in the same way.
    fn record_note(&self, unit: &UnitKey, attempt: u32, note: &Note) {
        let json = note.to_json();
        let item = NewEntry { attempt: Some((unit, attempt)), body: EntryBody::Note(&json) };
        if let Err(error) = self.recorder.record(&[item]) {
            tracing::error!(%error, "a note is lost");
        }
    }
}

impl Executor for AttemptExecutor {
    async fn run(
        &self,
        unit: UnitKey,
        attempt: u32,
        amendment: Option<Arc<Amendment>>,
        stop: mpsc::Receiver<StopMode>,
        ready: oneshot::Sender<()>,
    ) -> AttemptEnd {
        let amendment = amendment.as_deref().cloned().unwrap_or_default();
        let (verdict, facts, work) = self.run_attempt(&unit, attempt, &amendment, stop, ready).await;
        driver::log_verdict(&unit, attempt, &verdict, facts.process.exit_code, facts.process.signal);
        self.saved_units().remove(&unit);
        let ended = AttemptEnded {
            verdict: verdict.clone(),
            tool_failures: u32::try_from(facts.work.tally.calls().len()).unwrap_or(u32::MAX),
            failed_call: facts
                .work
                .tally
                .counted(self.options.rule)
                .next()
                .map(|call| CountedFailure { tool: call.tool.clone(), message: call.message.clone() }),
            exit_code: facts.process.exit_code,
            signal: facts.process.signal,
            stderr_tail: facts.process.stderr_tail,
            wrote: Vec::new(),
            work,
            extra: serde_json::Map::default(),
        };
        self.record_note(&unit, attempt, &Note::AttemptEnded(Box::new(ended)));
        verdict.into()
    }

    async fn write_projections(&self) {
        self.write_pending_projections().await;
    }

    async fn integrate(&self, units: Vec<(UnitKey, u32)>) -> IntegrationReport {
        self.integrate_patches(units).await
    }

    async fn save(&self, failed: Vec<UnitKey>) -> bool {
        self.save_to_branch(failed).await
    }
}

/// The additions of a person to the prompt.
fn prompt_amendment(amendment: &Amendment, files_kept: bool) -> PromptAmendment<'_> {
    match (&amendment.resume, amendment.feedback.as_deref()) {
        (Some(_), feedback) => PromptAmendment::Resumed { feedback, files_kept },
        (None, Some(feedback)) => PromptAmendment::Feedback(feedback),
        (None, None) => PromptAmendment::Unchanged,
    }
}

/// Forwards stop requests to an agent. A drain is not forwarded, because running attempts may finish.
pub(crate) async fn forward_stops(mut stop: mpsc::Receiver<StopMode>, commands: mpsc::Sender<StopCommand>) {
    while let Some(how) = stop.recv().await {
        let command = match how {
            StopMode::Drain => continue,
            StopMode::Stop => StopCommand::Interrupt,
            StopMode::Kill => StopCommand::Kill,
        };
        if commands.send(command).await.is_err() {
            return;
        }
    }
}

/// Determines the verdict. Checks the work of a successful attempt and writes its patch; discards that of any other.
fn finish_attempt(
    attempt: &UnitAttempt,
    unit: &UnitKey,
    facts: &mut AttemptFacts,
    rule: FailureRule,
) -> (Verdict, Option<WrittenPatch>) {
    let mut verdict = verdict::judge_attempt(unit, facts, rule);
    let mut delivered = None;
    if verdict.outcome == AttemptOutcome::Succeeded {
        let checked = attempt.check();
        facts.work.dangling_refs = checked.dangling_links;
        facts.work.invalid_artifacts = checked.invalid;
        verdict = verdict::judge_attempt(unit, facts, rule);
    }
    if verdict.outcome == AttemptOutcome::Succeeded {
        match attempt.write_patch() {
            Ok(done) => delivered = Some(done),
            Err(error) => {
                facts.work.patch_error = Some(error.to_line());
                verdict = verdict::judge_attempt(unit, facts, rule);
            }
        }
    }
    if verdict.outcome != AttemptOutcome::Succeeded {
        attempt.discard();
    }
    if unit.as_str() == RECONCILE_KEY && verdict.cause == VerdictCause::Budget {
        // No setting raises the turns of this step.
        verdict.remedy = Some("run `ingestdeck run` again: decisions about deleted files are kept".into());
    }
    (verdict, delivered)
}

/// The recorded output of the attempt. A failed attempt has saved nothing, whatever it wrote.
fn attempt_output(attempt: &UnitAttempt, verdict: &Verdict, facts: &AttemptFacts) -> AttemptOutput {
    let fatal = facts.work.tally.count(FailureRule::Recoverable);
    let done = if verdict.outcome == AttemptOutcome::Succeeded { attempt.work() } else { AttemptOutput::default() };
    AttemptOutput {
        transcript: Some(attempt.transcript().relative_path().to_owned()),
        fatal_failures: Some(u32::try_from(fatal).unwrap_or(u32::MAX)),
        ..done
    }
}

/// Adds calls that failed before they reached the tools to the transcript, each once.
fn record_rejected_calls(attempt: &UnitAttempt, facts: &AttemptFacts) {
    for call in facts.work.tally.calls().iter().chain(facts.work.tally.refusals()) {
        let input = call.tool_use_id.as_ref().and_then(|id| facts.work.failed_inputs.get(id));
        attempt.transcript().record_failure(&RejectedCall {
            tool: &call.tool,
            tool_use_id: call.tool_use_id.as_deref(),
            input: input.unwrap_or(&serde_json::Value::Null),
            message: &call.message,
            duration_ms: 0,
        });
    }
}
