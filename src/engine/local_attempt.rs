//! Attempts on this machine: workspace, agent and verdict. The engine runs them itself, or a worker does on its behalf.
//!
//! It must not know which runs they belong to, nor what becomes of their patches.

mod session_texts;

use std::{sync::Arc, time::Instant};

use serde::{Deserialize, Serialize};
use tokio::{
    sync::{mpsc, oneshot},
    task,
};
use uuid::Uuid;

use self::session_texts::SessionTexts;
use super::{
    attempt_limits::AttemptLimits,
    attempt_order::{AttemptOrder, preparation_failed},
    cut_sessions::CutSession,
    descriptors,
};
use ingestdeck_agent::{
    Agent,
    attempt::{ApprovalGate, AttemptCommand, AttemptContext, LineObserver},
    caught_panics,
    process::StreamLimits,
    session_lock::{SessionLock, SessionLocks, TryLockOutcome},
    unit::{self, UnitLaunch},
};
use ingestdeck_core::{
    config::{IngestSettings, UnreadAction, UnsourcedAction},
    diagnostic::Diagnostic,
    run::{Recorder, RunOptions, state::RECONCILE_KEY},
    tape::{
        Note, UnitKey,
        note::{
            Amendment, AttemptEnded, AttemptOutcome, AttemptOutput, ContentDigests, ContinuedWork,
            CountedFailure, Severity, StopMode, Verdict, VerdictCause,
            attempt_output::{UNSOURCED_LIST, UnsourcedIdentifier},
            verification::ArtifactVerification,
        },
    },
    text,
    units::{
        failure_tally::FailureRule,
        retry,
        verdict::{self, AttemptFacts, InterruptionFacts, IsolationStatus},
    },
};
use ingestdeck_ingest::{
    attempt::{AttemptPreparationError, UnitAttempt, WrittenPatch},
    job::IngestJob,
    project::Project,
    prompt::PromptAmendment,
    tool,
    transcript::RejectedCall,
    unsourced::{SkippedCheck, UnsourcedCheck},
    work_unit::WorkUnit,
    worktree::Worktrees,
};
use ingestdeck_os::scoped_dir;

/// Runs attempts of one run on this machine.
#[derive(Debug)]
pub(crate) struct LocalAttempts {
    pub project: Arc<Project>,
    pub job: IngestJob,
    pub agent: Arc<Agent>,
    pub options: Arc<RunOptions>,
    pub limits: Arc<AttemptLimits>,
    pub locks: SessionLocks,
    /// The name of this machine as a worker; `None` for the engine's own machine.
    worker: Option<String>,
    /// Number of running attempts, as the number of further references.
    running: Arc<()>,
    session_texts: Arc<SessionTexts>,
}

/// One attempt: what it works on, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct AttemptTask {
    pub unit: UnitKey,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Position in the plan.
    pub index: usize,
    pub work_unit: WorkUnit,
    /// Changes that a person requested, for the tape.
    pub amendment: Amendment,
    /// What the agent reads in addition to the prompt: feedback, and what a review did not accept.
    pub feedback: Option<String>,
    /// The last attempt at the unit is saved in the project.
    pub files_kept: bool,
    /// Id of the session: a new UUID, or that of the continued session.
    pub session: String,
    /// Model; `None` means the agent's default.
    pub model: Option<String>,
    /// Maximum number of turns.
    pub step_budget: u32,
    /// Cost of the earlier attempts of the continued session, in US dollars; `None` if that is unknown.
    pub paid_usd: Option<f64>,
    /// What it continues where it was cut. Only the engine's own machine has such sessions.
    #[serde(skip)]
    pub cut: Option<CutSession>,
    /// `TRACEPARENT` of the agent, if anything records the trace of the run.
    pub traceparent: Option<String>,
}

impl AttemptTask {
    /// The same attempt from the start, in a new session.
    fn restarted(&self) -> Self {
        Self {
            session: Uuid::new_v4().to_string(),
            amendment: Amendment {
                resume: None,
                ..self.amendment.clone()
            },
            paid_usd: None,
            cut: None,
            ..self.clone()
        }
    }

    /// Maximum number of turns of its process. Those of the continued session count.
    fn turns_left(&self) -> u32 {
        let all = self.amendment.step_budget.unwrap_or(self.step_budget);
        let spent = self.cut.as_ref().map_or(0, |cut| cut.work.turns);
        all.saturating_sub(spent).max(1)
    }
}

/// What an attempt reports to while it runs.
#[derive(Debug)]
pub(crate) struct AttemptSinks {
    pub recorder: Arc<dyn Recorder>,
    /// Sees each recorded line.
    pub observer: Option<Arc<dyn LineObserver>>,
    /// Decides about each call.
    pub gate: Arc<dyn ApprovalGate>,
}

/// An attempt that has ended. Nothing of this is on the tape yet.
#[derive(Debug)]
pub(crate) struct FinishedAttempt {
    pub ended: AttemptEnded,
    /// The changes of a successful attempt.
    pub patch: Option<WrittenPatch>,
    /// What a person should know about its artifacts.
    pub warning: Option<String>,
    /// What its session cost so far, if it was cut from outside and can be continued.
    pub cut: Option<ContinuedWork>,
    /// Claude Code does not have the session that it was to continue.
    pub has_lost_session: bool,
    /// The session that it began instead of the one that it was to continue.
    pub new_session: Option<String>,
}

impl FinishedAttempt {
    fn new(verdict: Verdict, facts: AttemptFacts, work: AttemptOutput, rule: FailureRule) -> Self {
        let deciding = facts.work.tally.deciding_call(rule);
        let failures = facts.work.tally.count(FailureRule::Strict);
        let is_cut = verdict.outcome == AttemptOutcome::Failed
            && facts.isolation == IsolationStatus::Verified
            && retry::is_cut_from_outside(&verdict.cause, failures);
        let cut = is_cut.then(|| ContinuedWork {
            turns: facts.reported.turns,
            tokens: facts.reported.tokens,
            cost_usd: facts.reported.cost_usd,
            ..ContinuedWork::default()
        });
        let has_lost_session = facts.is_unknown_session();
        let ended = AttemptEnded {
            verdict,
            tool_failures: u32::try_from(facts.work.tally.calls().len()).unwrap_or(u32::MAX),
            failed_call: deciding.map(|call| CountedFailure {
                tool: call.tool.clone(),
                message: call.message.clone(),
            }),
            exit_code: facts.process.exit_code,
            signal: facts.process.signal,
            stderr_tail: facts.process.stderr_tail,
            wrote: Vec::new(),
            work,
            extra: serde_json::Map::default(),
        };
        Self {
            ended,
            patch: None,
            warning: None,
            cut,
            has_lost_session,
            new_session: None,
        }
    }

    /// An attempt that ran elsewhere.
    pub(crate) fn of_worker(
        ended: AttemptEnded,
        patch: Option<WrittenPatch>,
        warning: Option<String>,
    ) -> Self {
        let (cut, new_session) = (None, None);
        Self {
            ended,
            patch,
            warning,
            cut,
            has_lost_session: false,
            new_session,
        }
    }

    /// An attempt that ended before its agent started.
    pub(crate) fn without_agent(verdict: Verdict) -> Self {
        Self::new(
            verdict,
            AttemptFacts::default(),
            AttemptOutput::default(),
            FailureRule::default(),
        )
    }
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
            Self::Failed(why, remedy) => Verdict {
                remedy,
                ..preparation_failed(why)
            },
        }
    }
}

impl LocalAttempts {
    pub(crate) fn new(
        project: Arc<Project>,
        job: IngestJob,
        agent: Arc<Agent>,
        options: Arc<RunOptions>,
        limits: Arc<AttemptLimits>,
        locks: SessionLocks,
    ) -> Self {
        let (worker, running, session_texts) = Default::default();
        Self {
            project,
            job,
            agent,
            options,
            limits,
            locks,
            worker,
            running,
            session_texts,
        }
    }

    /// Attempts run on this machine as the worker `name`.
    pub(crate) fn on_worker(self, name: &str) -> Self {
        Self {
            worker: Some(name.to_owned()),
            ..self
        }
    }

    /// An attempt that was stopped before it began.
    pub(crate) fn stopped(&self, task: &AttemptTask, how: StopMode) -> FinishedAttempt {
        let rule = self.limits.current().rule;
        let interruption = InterruptionFacts {
            stopped: Some(how),
            ..InterruptionFacts::default()
        };
        let facts = AttemptFacts {
            interruption,
            ..AttemptFacts::default()
        };
        let verdict = verdict::judge_attempt(task.work_unit.planned.ktx_key(), &facts, rule);
        FinishedAttempt::new(verdict, facts, AttemptOutput::default(), rule)
    }

    /// Runs an attempt to its end, in a new worktree of `worktrees`. Fires `ready` when start-up is over, and ends soon
    /// after it receives a stop request; the first orders have arrived already.
    pub(crate) async fn run(
        &self,
        task: &AttemptTask,
        worktrees: &Arc<Worktrees>,
        sinks: AttemptSinks,
        (mut early, mut orders): (Vec<AttemptOrder>, mpsc::Receiver<AttemptOrder>),
        ready: oneshot::Sender<()>,
    ) -> FinishedAttempt {
        let running = Arc::clone(&self.running);
        // Running attempts must not fail because a new one uses the last descriptors. A single attempt always starts.
        if Arc::strong_count(&running) > 2 && !descriptors::has_room_for_attempt() {
            return FinishedAttempt::without_agent(verdict::open_files_verdict(
                "no room for one more unit",
            ));
        }
        let began = Instant::now();
        // The session id is chosen before the agent starts, so that the lock is held from its first line.
        let mut prepared = self.prepare(task, worktrees).await;
        let (restarted, mut task, mut is_restarted) = (task.restarted(), task, false);
        if let (Err(PrepareError::Failed(why, _)), Some(_)) = (&prepared, &task.cut) {
            let text = format!("{why}: the attempt begins from the start, in a new session");
            record(
                &sinks,
                task,
                &Note::Message {
                    level: Severity::Warning,
                    text,
                },
            );
            (task, is_restarted) = (&restarted, true);
            prepared = self.prepare(task, worktrees).await;
        }
        // A message before the start has no agent to receive it; the schedule knows only that the attempt is in flight.
        while let Ok(order) = orders.try_recv() {
            early.push(order);
        }
        let stop = early.iter().find_map(|order| {
            if let AttemptOrder::Stop(how) = order {
                Some(*how)
            } else {
                None
            }
        });
        if let Some(how) = stop {
            return self.stopped(task, how);
        }
        let (_lock, opened, content) = match prepared {
            Ok((lock, (opened, content))) => (lock, Arc::new(opened), content),
            Err(error) => return FinishedAttempt::without_agent(error.verdict()),
        };
        if let Some(cut) = &task.cut {
            record(&sinks, task, &Note::WorkContinued(cut.work.clone()));
        }
        let launch = UnitLaunch {
            content,
            ..self.unit_launch(task, &opened, sinks)
        };
        let (forward, commands) = mpsc::channel(early.len().max(4));
        self.session_texts
            .of(&task.session)
            .iter()
            .for_each(|text| opened.record_message(text));
        if let Some(feedback) = &task.feedback {
            self.session_texts.push(&task.session, feedback);
        }
        let (receiving, texts, in_session) = (
            Arc::clone(&opened),
            Arc::clone(&self.session_texts),
            task.session.clone(),
        );
        let on_message = move |text: &str| {
            receiving.record_message(text);
            texts.push(&in_session, text);
        };
        let forwarding = task::spawn(forward_orders(early, orders, forward, on_message));
        let facts = unit::run_unit(launch, commands, ready).await;
        forwarding.abort();
        let finished = self.finish(task, opened, facts).await;
        let active_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        FinishedAttempt {
            cut: finished.cut.map(|work| ContinuedWork { active_ms, ..work }),
            new_session: is_restarted.then(|| task.session.clone()),
            ..finished
        }
    }

    /// Determines the verdict, and writes the patch of a successful attempt.
    async fn finish(
        &self,
        task: &AttemptTask,
        opened: Arc<UnitAttempt>,
        mut facts: AttemptFacts,
    ) -> FinishedAttempt {
        facts.work.tally.settle_absent_tools(tool::is_tool_name);
        record_rejected_calls(&opened, &facts);
        let (key, rule) = (
            task.work_unit.planned.ktx_key().clone(),
            self.limits.current().rule,
        );
        let (closing, options) = (Arc::clone(&opened), Arc::clone(&self.options));
        let closed = caught_panics::spawn_blocking_caught(move || {
            let judge = |facts: &AttemptFacts| verdict::judge_attempt(&key, facts, rule);
            let (verdict, delivered) =
                finish_attempt(&closing, &key, &mut facts, &options.ingest, &judge);
            (verdict, delivered, facts)
        });
        let (verdict, patch, facts) = match closed.await {
            Ok(closed) => closed,
            Err(error) => (
                preparation_failed(format!(
                    "cannot check the changes of {}: {error}",
                    task.unit
                )),
                None,
                AttemptFacts::default(),
            ),
        };
        let work = attempt_output(&opened, &verdict, &facts);
        let check = opened.unsourced();
        let warnings = unsourced_message(&check).into_iter();
        let warnings: Vec<String> = warnings.chain(contradictions_message(&check)).collect();
        let warning = (!warnings.is_empty()).then(|| warnings.join("; "));
        FinishedAttempt {
            patch,
            warning,
            ..FinishedAttempt::new(verdict, facts, work, self.limits.current().rule)
        }
    }

    async fn prepare(
        &self,
        task: &AttemptTask,
        worktrees: &Arc<Worktrees>,
    ) -> Result<(SessionLock, (UnitAttempt, Option<ContentDigests>)), PrepareError> {
        let lock = self.lock_session(&task.session)?;
        Ok((lock, self.open_attempt(task, worktrees).await?))
    }

    /// Locks a session: two writers would split its history.
    fn lock_session(&self, session: &str) -> Result<SessionLock, PrepareError> {
        match self
            .locks
            .try_lock(session)
            .map_err(|error| PrepareError::from_error(&error))?
        {
            TryLockOutcome::Acquired(lock) => Ok(lock),
            TryLockOutcome::HeldByOther(holder) => {
                let holder = holder.map_or_else(
                    || "another process".to_owned(),
                    |pid| format!("process {pid}"),
                );
                let why = format!(
                    "session {session} is in use by {holder}: end that, or retry in a new session"
                );
                Err(PrepareError::Failed(why, None))
            }
        }
    }

    /// Opens the attempt and collects the inputs of its unit. The agent reports files that it cannot read.
    async fn open_attempt(
        &self,
        task: &AttemptTask,
        worktrees: &Arc<Worktrees>,
    ) -> Result<(UnitAttempt, Option<ContentDigests>), PrepareError> {
        let (project, job, worktrees) = (
            Arc::clone(&self.project),
            self.job.clone(),
            Arc::clone(worktrees),
        );
        let (index, attempt, work_unit) = (task.index, task.attempt, task.work_unit.clone());
        let (resume, feedback, files_kept) = (
            task.amendment.resume.is_some(),
            task.feedback.clone(),
            task.files_kept,
        );
        let cut = task.cut.as_ref().map(|cut| cut.calls.clone());
        // Amendments of one attempt do not change the identity of its unit.
        let model = self.options.model.clone();
        caught_panics::spawn_blocking_caught(move || {
            let amended = match &cut {
                Some(calls) => PromptAmendment::Continued(calls),
                None => prompt_amendment(resume, feedback.as_deref(), files_kept),
            };
            let opened = UnitAttempt::open(
                &project,
                (index, &work_unit),
                &job,
                attempt,
                amended,
                &worktrees,
            )?;
            let content = opened.content(model.as_deref()).ok();
            Ok::<_, AttemptPreparationError>((opened, content))
        })
        .await
        .map_err(|error| PrepareError::Failed(error.to_string(), None))?
        .map_err(|error| PrepareError::from_error(&error))
    }

    fn unit_launch(
        &self,
        task: &AttemptTask,
        opened: &UnitAttempt,
        sinks: AttemptSinks,
    ) -> UnitLaunch {
        UnitLaunch {
            context: AttemptContext {
                agent: Arc::clone(&self.agent),
                unit: task.unit.clone(),
                attempt: task.attempt,
                cwd: self.project.root.clone(),
                limits: StreamLimits::default(),
                recorder: sinks.recorder,
                observer: sinks.observer,
                amendment: (!task.amendment.is_empty()).then(|| task.amendment.clone()),
                paid_usd: task.paid_usd,
                worker: self.worker.clone(),
                traceparent: task.traceparent.clone(),
            },
            options: Arc::clone(&self.options),
            timeouts: self.limits.timeouts(),
            system_prompt: opened.prompt().system.clone(),
            prompt: opened.prompt().user.clone(),
            new_session: task.session.clone(),
            model: task.amendment.model.clone().or_else(|| task.model.clone()),
            step_budget: task.turns_left(),
            tools: opened.tools(),
            gate: sinks.gate,
            content: None,
        }
    }
}

/// The additions of a person to the prompt.
fn prompt_amendment(resume: bool, feedback: Option<&str>, files_kept: bool) -> PromptAmendment<'_> {
    match (resume, feedback) {
        (true, feedback) => PromptAmendment::Resumed {
            feedback,
            files_kept,
        },
        (false, Some(feedback)) => PromptAmendment::Feedback(feedback),
        (false, None) => PromptAmendment::Unchanged,
    }
}

/// Records a note about the attempt. A failed tape ends the run anyway.
fn record(sinks: &AttemptSinks, task: &AttemptTask, note: &Note) {
    let attempt = Some((&task.unit, task.attempt));
    if let Err(error) = sinks.recorder.record_note(attempt, note) {
        tracing::error!(%error, "a note is lost");
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
            Some(AttemptOrder::Request(request)) => AttemptCommand::Request(request),
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
    settings: &IngestSettings,
    judge: &dyn Fn(&AttemptFacts) -> Verdict,
) -> (Verdict, Option<WrittenPatch>) {
    let mut verdict = judge(facts);
    let mut delivered = None;
    if verdict.outcome == AttemptOutcome::Succeeded {
        let checked = attempt.check();
        facts.work.evidence = Some(attempt.evidence(*settings.unread == UnreadAction::Fail));
        facts.work.dangling_refs = checked.dangling_links;
        facts.work.invalid_artifacts = checked.invalid;
        if *settings.unsourced != UnsourcedAction::Off {
            match attempt.find_unsourced() {
                Ok(check) if *settings.unsourced == UnsourcedAction::Fail => {
                    let undeclared = check
                        .found
                        .iter()
                        .flatten()
                        .filter(|identifier| !identifier.declared);
                    let undeclared = undeclared.map(UnsourcedIdentifier::finding);
                    let findings = undeclared.chain(contradictions(&check));
                    facts.work.invalid_artifacts.extend(findings);
                }
                Ok(_) => {}
                Err(error) => facts
                    .work
                    .invalid_artifacts
                    .push(format!("the artifacts cannot be read: {error}")),
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
        verdict.remedy =
            Some("run `ingestdeck run` again: decisions about deleted files are kept".into());
    }
    (verdict, delivered)
}

/// The recorded output of the attempt. A failed attempt has saved nothing, whatever it wrote.
fn attempt_output(attempt: &UnitAttempt, verdict: &Verdict, facts: &AttemptFacts) -> AttemptOutput {
    let fatal = facts.work.tally.count(FailureRule::Recoverable);
    let is_success = verdict.outcome == AttemptOutcome::Succeeded;
    let done = if is_success {
        attempt.work()
    } else {
        attempt.discarded_work()
    };
    let evidence = facts.work.evidence.clone().unwrap_or_default();
    AttemptOutput {
        unread: evidence.unread,
        nothing_written: is_success && evidence.nothing_written,
        transcript: Some(attempt.transcript().relative_path().to_owned()),
        fatal_failures: Some(u32::try_from(fatal).unwrap_or(u32::MAX)),
        ..done
    }
}

/// The warning about unsourced identifiers, or that they were not looked for.
fn unsourced_message(check: &UnsourcedCheck) -> Option<String> {
    if let Some(SkippedCheck { paths, reason }) = &check.skipped {
        let paths = text::list_some(paths);
        return Some(format!(
            "unsourced identifiers were not looked for in {paths}: {reason}"
        ));
    }
    let names: Vec<String> = check
        .found
        .iter()
        .flatten()
        .map(ToString::to_string)
        .collect();
    let count = if names.len() == 1 {
        "1 identifier".to_owned()
    } else {
        format!("{} identifiers", names.len())
    };
    (!names.is_empty()).then(|| {
        format!(
            "{count} in its artifacts {UNSOURCED_LIST} {}",
            text::list_some(&names)
        )
    })
}

/// The identifiers in its artifacts that answers disprove, a sentence without its end for each.
fn contradictions(check: &UnsourcedCheck) -> impl Iterator<Item = String> {
    let record = check.verification.iter();
    record
        .flat_map(|record| &record.artifacts)
        .flat_map(ArtifactVerification::findings)
}

/// The warning about these identifiers.
fn contradictions_message(check: &UnsourcedCheck) -> Option<String> {
    let findings: Vec<String> = contradictions(check).collect();
    let count = if findings.len() == 1 {
        "1 identifier in its artifacts contradicts".to_owned()
    } else {
        format!("{} identifiers in its artifacts contradict", findings.len())
    };
    (!findings.is_empty()).then(|| {
        format!(
            "{count} the answers it received: {}",
            text::list_some(&findings)
        )
    })
}

/// Adds calls that failed before they reached the tools to the transcript, each once.
/// The reasons of a person count as received.
fn record_rejected_calls(attempt: &UnitAttempt, facts: &AttemptFacts) {
    facts
        .work
        .tally
        .refusals()
        .iter()
        .for_each(|call| attempt.record_message(&call.message));
    for call in facts
        .work
        .tally
        .calls()
        .iter()
        .chain(facts.work.tally.refusals())
    {
        let input = call
            .tool_use_id
            .as_ref()
            .and_then(|id| facts.work.failed_inputs.get(id));
        attempt.transcript().record_failure(&RejectedCall {
            tool: &call.tool,
            tool_use_id: call.tool_use_id.as_deref(),
            input: input.unwrap_or(&serde_json::Value::Null),
            message: &call.message,
            duration_ms: 0,
        });
    }
}
