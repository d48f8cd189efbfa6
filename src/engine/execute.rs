//! One attempt, from its workspace to its verdict; connects the ingest stage with the Claude backend.

mod ingest_run;
mod integration;
mod projection;
mod reconcile_step;
mod session_texts;

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    task,
};
use uuid::Uuid;

pub(crate) use self::{ingest_run::IngestRun, reconcile_step::ReconcileOptions};
use self::{
    integration::{Integration, record_note},
    session_texts::SessionTexts,
};
use super::{
    approval::ApprovalQueue,
    attempt_limits::AttemptLimits,
    descriptors,
    driver::{self, AttemptEnd, AttemptOrder, Executor, SaveOutcome, preparation_failed},
    review::RunReview,
};
use crate::{
    agent::{
        Agent,
        attempt::{AgentOptions, AttemptCommand, AttemptContext},
        caught_panics,
        process::StreamLimits,
        session_lock::{SessionLock, SessionLocks, TryLockOutcome},
        unit::{self, UnitLaunch},
    },
    config::schema::UnsourcedAction,
    diagnostic::Diagnostic,
    ingest::{
        attempt::{AttemptPreparationError, UnitAttempt, WrittenPatch},
        git::CommitId,
        prompt::PromptAmendment,
        transcript::RejectedCall,
        unsourced::{SkippedCheck, UnsourcedCheck},
        work_unit::WorkUnit,
    },
    run::{Recorder, otlp::RunTrace, state::RECONCILE_KEY},
    scoped_dir,
    tape::{
        Note, UnitKey,
        note::{
            Amendment, AttemptEnded, AttemptOutcome, AttemptOutput, ContentDigests, CountedFailure, PatchWritten,
            Severity, StopMode, Verdict, VerdictCause,
            attempt_output::{UNSOURCED_LIST, UnsourcedIdentifier},
        },
    },
    units::{
        failure_tally::FailureRule,
        schedule::IntegrationReport,
        verdict::{self, AttemptFacts, InterruptionFacts},
    },
};

/// Options that all attempts of a run share.
#[derive(Clone, Debug)]
pub(crate) struct AttemptOptions {
    /// Model; `None` means the agent's default.
    pub model: Option<String>,
    /// Maximum number of turns of an attempt.
    pub step_budget: u32,
    /// Cost limit of all attempts together, in US dollars.
    pub run_budget_usd: Option<f64>,
    /// Time without output after which an attempt is shown as silent.
    pub silence_after: Duration,
    /// Options of each agent.
    pub agent: AgentOptions,
    /// The rule by which failed calls fail a unit.
    pub rule: FailureRule,
    /// What unsourced identifiers do to a unit.
    pub unsourced: UnsourcedAction,
}

/// Runs the attempts of one run.
#[derive(Debug)]
pub(crate) struct AttemptExecutor {
    run: Arc<IngestRun>,
    integration: Arc<Integration>,
    agent: Arc<dyn Agent>,
    options: AttemptOptions,
    limits: Arc<AttemptLimits>,
    recorder: Arc<dyn Recorder>,
    approvals: Arc<ApprovalQueue>,
    locks: SessionLocks,
    /// The trace that agents continue, if anything records it.
    trace: Option<RunTrace>,
    /// Reference-counted: each running attempt holds a clone.
    attempt_counter: Arc<()>,
    session_texts: Arc<SessionTexts>,
}

/// The inputs of an attempt.
struct AttemptInputs {
    /// Position in the plan.
    index: usize,
    work_unit: WorkUnit,
    /// The commit that the attempt starts from, if it is not the common one.
    base: Option<CommitId>,
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
    pub(crate) fn new(
        run: IngestRun,
        agent: Arc<dyn Agent>,
        options: AttemptOptions,
        limits: Arc<AttemptLimits>,
        recorder: Arc<dyn Recorder>,
        (approvals, review): (Arc<ApprovalQueue>, Arc<RunReview>),
        locks: SessionLocks,
    ) -> Self {
        let run = Arc::new(run);
        let integration = Arc::new(Integration::new(Arc::clone(&run), Arc::clone(&recorder), review));
        let (trace, attempt_counter, session_texts) = Default::default();
        Self {
            run,
            integration,
            agent,
            options,
            limits,
            recorder,
            approvals,
            locks,
            trace,
            attempt_counter,
            session_texts,
        }
    }

    /// Agents continue this trace.
    pub(crate) fn with_trace(self, trace: Option<RunTrace>) -> Self {
        Self { trace, ..self }
    }

    /// Adds patches of a prior run; paths are relative to the project.
    pub(crate) fn with_prior_patches<'a>(self, patches: impl IntoIterator<Item = (&'a UnitKey, &'a str)>) -> Self {
        patches.into_iter().for_each(|(unit, path)| self.integration.add_prior_patch(unit, path));
        self
    }

    async fn run_attempt(
        &self,
        unit: &UnitKey,
        attempt: u32,
        amendment: &Amendment,
        mut orders: mpsc::Receiver<AttemptOrder>,
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
        let used_session = session.clone();
        let prepared = self.prepare(unit, attempt, amendment, &session).await;
        // A message before the start has no agent to receive it; the schedule knows only that the attempt is in flight.
        let mut early = Vec::new();
        while let Ok(order) = orders.try_recv() {
            early.push(order);
        }
        let stop = early.iter().find_map(|order| if let AttemptOrder::Stop(how) = order { Some(*how) } else { None });
        if let Some(how) = stop {
            let interruption = InterruptionFacts { stopped: Some(how), ..InterruptionFacts::default() };
            let facts = AttemptFacts { interruption, ..AttemptFacts::default() };
            let verdict = self.agent.classify(self.run.ktx_key(unit), &facts, self.limits.current().rule);
            return (verdict, facts, AttemptOutput::default());
        }
        let (_lock, opened, content) = match prepared {
            Ok((lock, (opened, content))) => (lock, Arc::new(opened), content),
            Err(error) => return (error.verdict(), AttemptFacts::default(), AttemptOutput::default()),
        };
        let launch = UnitLaunch { content, ..self.unit_launch(unit, attempt, amendment, &opened, session) };
        let (forward, commands) = mpsc::channel(early.len().max(4));
        self.session_texts.of(&used_session).iter().for_each(|text| opened.record_message(text));
        if let Some(feedback) = &amendment.feedback {
            self.session_texts.push(&used_session, feedback);
        }
        let (receiving, texts, in_session) =
            (Arc::clone(&opened), Arc::clone(&self.session_texts), used_session.clone());
        let on_message = move |text: &str| {
            receiving.record_message(text);
            texts.push(&in_session, text);
        };
        let forwarding = task::spawn(forward_orders(early, orders, forward, on_message));
        let mut facts = unit::run_unit(launch, commands, ready).await;
        forwarding.abort();
        record_rejected_calls(&opened, &facts);
        let (key, rule, agent) = (self.run.ktx_key(unit).clone(), self.limits.current().rule, Arc::clone(&self.agent));
        let (closing, unsourced) = (Arc::clone(&opened), self.options.unsourced);
        let closed = caught_panics::spawn_blocking_caught(move || {
            let judge = |facts: &AttemptFacts| agent.classify(&key, facts, rule);
            let (verdict, delivered) = finish_attempt(&closing, &key, &mut facts, unsourced, &judge);
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
            let file = path.as_ref().map(|path| self.run.project.root.join(path));
            self.integration.add_patch(unit, attempt, file);
            self.integration.review().record_session(unit, &used_session);
            let note = Note::PatchWritten(PatchWritten { base, path, paths });
            record_note(self.recorder.as_ref(), Some((unit, attempt)), &note);
        }
        let work = attempt_output(&opened, &verdict, &facts);
        if let Some(text) = unsourced_message(&opened.unsourced()) {
            let note = Note::Message { level: Severity::Warning, text };
            record_note(self.recorder.as_ref(), Some((unit, attempt)), &note);
        }
        if unit.as_str() == RECONCILE_KEY && verdict.outcome == AttemptOutcome::Succeeded {
            self.integration.record_reconciled(verdict.stop, &work);
        }
        (verdict, facts, work)
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
        let run = Arc::clone(&self.run);
        let (mut amendment, files_kept) = (amendment.clone(), self.integration.is_saved(unit));
        if let Some(remarks) = self.integration.review().remarks(unit) {
            let feedback = amendment.feedback.take().map(|feedback| format!("{feedback}\n\n{remarks}"));
            amendment.feedback = Some(feedback.unwrap_or(remarks));
        }
        // Amendments of one attempt do not change the identity of its unit.
        let model = self.options.model.clone();
        caught_panics::spawn_blocking_caught(move || {
            let worktrees = base.map_or_else(|| Arc::clone(&run.worktrees), |commit| run.worktrees.with_base(&commit));
            let (amended, inputs) = (prompt_amendment(&amendment, files_kept), (index, &work_unit));
            let opened = UnitAttempt::open(&run.project, inputs, &run.job, attempt, amended, &worktrees)?;
            let content = opened.content(model.as_deref()).ok();
            Ok::<_, AttemptPreparationError>((opened, content))
        })
        .await
        .map_err(|error| PrepareError::Failed(error.to_string(), None))?
        .map_err(|error| PrepareError::from_error(&error))
    }

    /// The inputs of an attempt at `unit`; `None` for an unplanned unit.
    fn attempt_inputs(&self, unit: &UnitKey) -> Option<AttemptInputs> {
        if let Some((index, work_unit)) = self.run.units.get(unit) {
            return Some(AttemptInputs { index: *index, work_unit: work_unit.clone(), base: None });
        }
        self.run.reconcile.as_ref().filter(|_| unit.as_str() == RECONCILE_KEY)?;
        let (stage, base) = self.integration.reconcile_stage();
        Some(AttemptInputs { index: self.run.units.len(), work_unit: WorkUnit::reconcile_step(stage), base })
    }

    fn unit_launch(
        &self,
        unit: &UnitKey,
        attempt: u32,
        amendment: &Amendment,
        opened: &UnitAttempt,
        new_session: String,
    ) -> UnitLaunch {
        let (model, step_budget) = match &self.run.reconcile {
            Some(pass) if unit.as_str() == RECONCILE_KEY => (pass.model.clone(), pass.step_budget()),
            _ => (self.options.model.clone(), self.limits.current().step_budget),
        };
        let meter = self.approvals.meter();
        UnitLaunch {
            context: AttemptContext {
                agent: Arc::clone(&self.agent),
                unit: unit.clone(),
                attempt,
                cwd: self.run.project.root.clone(),
                limits: StreamLimits::default(),
                recorder: Arc::clone(&self.recorder),
                observer: Some(Arc::clone(meter) as _),
                amendment: (!amendment.is_empty()).then(|| amendment.clone()),
                paid_usd: amendment.resume.as_deref().and_then(|session| meter.session_cost(unit, session)),
                traceparent: self.trace.as_ref().map(|trace| trace.traceparent_of_attempt(unit, attempt)),
            },
            options: self.options.agent.clone(),
            timeouts: self.limits.timeouts(),
            system_prompt: opened.prompt().system.clone(),
            prompt: opened.prompt().user.clone(),
            new_session,
            model: amendment.model.clone().or(model),
            step_budget: amendment.step_budget.unwrap_or(step_budget),
            tools: opened.tools(),
            gate: self.approvals.gate(unit, attempt),
            content: None,
        }
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
        let amendment = amendment.as_deref().cloned().unwrap_or_default();
        let (verdict, facts, work) = self.run_attempt(&unit, attempt, &amendment, orders, ready).await;
        driver::log_verdict(&unit, attempt, &verdict, facts.process.exit_code, facts.process.signal);
        self.integration.mark_unsaved(&unit);
        let ended = AttemptEnded {
            verdict: verdict.clone(),
            tool_failures: u32::try_from(facts.work.tally.calls().len()).unwrap_or(u32::MAX),
            failed_call: facts
                .work
                .tally
                .deciding_call(self.limits.current().rule)
                .map(|call| CountedFailure { tool: call.tool.clone(), message: call.message.clone() }),
            exit_code: facts.process.exit_code,
            signal: facts.process.signal,
            stderr_tail: facts.process.stderr_tail,
            wrote: Vec::new(),
            work,
            extra: serde_json::Map::default(),
        };
        record_note(self.recorder.as_ref(), Some((&unit, attempt)), &Note::AttemptEnded(Box::new(ended)));
        verdict.into()
    }

    async fn write_projections(&self) -> bool {
        self.write_pending_projections().await;
        !self.run.worktrees.base_patches().is_empty()
    }

    async fn integrate(&self, units: Vec<(UnitKey, u32)>) -> IntegrationReport {
        Arc::clone(&self.integration).integrate(units).await
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

/// The additions of a person to the prompt.
fn prompt_amendment(amendment: &Amendment, files_kept: bool) -> PromptAmendment<'_> {
    match (&amendment.resume, amendment.feedback.as_deref()) {
        (Some(_), feedback) => PromptAmendment::Resumed { feedback, files_kept },
        (None, Some(feedback)) => PromptAmendment::Feedback(feedback),
        (None, None) => PromptAmendment::Unchanged,
    }
}

/// Forwards requests to an agent, beginning with `early` ones, and reports messages to `on_message`. A drain is not
/// forwarded: running attempts may finish.
pub(crate) async fn forward_orders(
    early: Vec<AttemptOrder>,
    mut orders: mpsc::Receiver<AttemptOrder>,
    commands: mpsc::Sender<AttemptCommand>,
    on_message: impl Fn(&str),
) {
    let mut early = early.into_iter();
    loop {
        let order = match early.next() {
            Some(order) => Some(order),
            None => orders.recv().await,
        };
        let command = match order {
            None => return,
            Some(AttemptOrder::Stop(StopMode::Drain)) => continue,
            Some(AttemptOrder::Stop(StopMode::Stop)) => AttemptCommand::Interrupt,
            Some(AttemptOrder::Stop(StopMode::Kill)) => AttemptCommand::Kill,
            Some(AttemptOrder::Message(text)) => {
                on_message(&text);
                AttemptCommand::Message(text)
            }
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
    unsourced: UnsourcedAction,
    judge: &dyn Fn(&AttemptFacts) -> Verdict,
) -> (Verdict, Option<WrittenPatch>) {
    let mut verdict = judge(facts);
    let mut delivered = None;
    if verdict.outcome == AttemptOutcome::Succeeded {
        let checked = attempt.check();
        facts.work.dangling_refs = checked.dangling_links;
        facts.work.invalid_artifacts = checked.invalid;
        if unsourced != UnsourcedAction::Off {
            match attempt.find_unsourced() {
                Ok(check) if unsourced == UnsourcedAction::Fail => {
                    let undeclared = check.found.iter().flatten().filter(|identifier| !identifier.declared);
                    facts.work.invalid_artifacts.extend(undeclared.map(UnsourcedIdentifier::finding));
                }
                Ok(_) => {}
                Err(error) => facts.work.invalid_artifacts.push(format!("the artifacts cannot be read: {error}")),
            }
        }
        verdict = judge(facts);
    }
    if verdict.outcome == AttemptOutcome::Succeeded {
        match attempt.write_patch() {
            Ok(done) => delivered = Some(done),
            Err(error) => {
                facts.work.patch_error = Some(error.to_line());
                verdict = judge(facts);
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
    let is_success = verdict.outcome == AttemptOutcome::Succeeded;
    let done = if is_success { attempt.work() } else { attempt.discarded_work() };
    AttemptOutput {
        transcript: Some(attempt.transcript().relative_path().to_owned()),
        fatal_failures: Some(u32::try_from(fatal).unwrap_or(u32::MAX)),
        ..done
    }
}

/// The warning about unsourced identifiers, or that they were not looked for.
fn unsourced_message(check: &UnsourcedCheck) -> Option<String> {
    if let Some(SkippedCheck { paths, reason }) = &check.skipped {
        let paths = integration::list_some(paths);
        return Some(format!("unsourced identifiers were not looked for in {paths}: {reason}"));
    }
    let names: Vec<String> = check.found.iter().flatten().map(ToString::to_string).collect();
    let count = if names.len() == 1 { "1 identifier".to_owned() } else { format!("{} identifiers", names.len()) };
    (!names.is_empty()).then(|| format!("{count} in its artifacts {UNSOURCED_LIST} {}", integration::list_some(&names)))
}

/// Adds calls that failed before they reached the tools to the transcript, each once.
/// The reasons of a person count as received.
fn record_rejected_calls(attempt: &UnitAttempt, facts: &AttemptFacts) {
    facts.work.tally.refusals().iter().for_each(|call| attempt.record_message(&call.message));
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
