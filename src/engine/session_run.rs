//! Runs one plain Claude Code session like a unit.

use std::{path::PathBuf, sync::Arc};

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{mpsc, oneshot};

use super::{
    approval::ApprovalQueue,
    attempt_limits::AttemptLimits,
    attempt_order::AttemptOrder,
    driver::{self, AttemptEnd, Executor},
    launch::{self, HeldCalls, LaunchError, LiveRun, RunSetup},
    local_attempt::forward_orders,
    notifier::NotificationTargets,
    run_meter::RunMeter,
    span_exporter::TraceOptions,
    started_run::StartedRun,
};
use ingestdeck_agent::{
    Agent,
    attempt::{AttemptContext, time_limits::TimeLimitSettings},
    process::StreamLimits,
    session::{self, SessionChanges, SessionLaunch},
};
use ingestdeck_core::{
    config::Config,
    run::otlp::RunTrace,
    tape::{
        AgentName, Note, SESSION_KEY, UnitKey,
        note::{Amendment, AttemptEnded, PlannedUnit, RunPlanned, VerdictCause},
    },
    units::{
        call_policy::CallPolicy,
        failure_tally::FailureRule,
        retry::{RetryMode, RetryPolicy},
        schedule::{Schedule, ScheduleSettings},
    },
};
use ingestdeck_ingest::standard_tools::StandardTools;
use ingestdeck_records::store::RunStore;

/// Turns of a session without a limit.
const NO_TURN_LIMIT: u32 = 0;

/// A session that a person requests.
#[derive(Debug)]
pub struct SessionRequest {
    pub exe: PathBuf,
    pub cwd: PathBuf,
    pub prompt: String,
    pub args: session::ClaudeSessionArgs,
    /// The store for the record.
    pub runs: RunStore,
    /// True if the run waits for commands after the session.
    pub is_interactive: bool,
    /// Where the spans of the run go.
    pub trace: TraceOptions,
    /// The session speaks the two-way protocol, with these tools and rules. Without it, a session is one prompt.
    pub conversation: Option<ConversationRequest>,
}

/// Standard tools and rules for a session.
#[derive(Debug)]
pub struct ConversationRequest {
    /// Standard tools; may be none.
    pub tools: Arc<StandardTools>,
    pub policy: CallPolicy,
}

/// Runs a session. Returns the result of the client, and the id of the session if it can be continued.
///
/// # Errors
/// If the session cannot be recorded. A running session has been ended by then.
pub fn run<T>(
    request: SessionRequest,
    config: &Config,
    client: impl AsyncFnOnce(LiveRun) -> T,
) -> Result<(T, Option<String>), LaunchError> {
    let SessionRequest {
        exe,
        cwd,
        prompt,
        args,
        runs,
        is_interactive,
        trace,
        conversation,
    } = request;
    let plan = Note::RunPlanned(Box::new(RunPlanned {
        units: vec![PlannedUnit {
            unit: SESSION_KEY.into(),
            why: "asked for".into(),
            ..PlannedUnit::default()
        }],
        concurrency: 1,
        model: args.model.clone(),
        starter: trace.starter.clone(),
        ..RunPlanned::default()
    }));
    let settings = ScheduleSettings {
        retry: RetryPolicy::from(&config.retry),
        is_session: true,
        ..ScheduleSettings::new(1, 1)
    };
    let schedule = Schedule::new(vec![SESSION_KEY.into()], settings);
    let locks = launch::session_locks(&runs, false);
    let turns = args.max_turns.unwrap_or(NO_TURN_LIMIT);
    let limits = Arc::new(AttemptLimits::new(
        turns,
        FailureRule::default(),
        TimeLimitSettings::from_config(&config.ingest),
    ));
    let policy = conversation
        .as_ref()
        .map(|conversation| conversation.policy.clone())
        .unwrap_or_default();
    let setup = RunSetup {
        runs,
        project_name: Some(SESSION_KEY.into()),
        agent: AgentName::ClaudeCode,
        held: HeldCalls {
            units: Vec::new(),
            policy,
        },
        is_interactive,
        limits: Arc::clone(&limits),
        is_plain_session: conversation.is_none(),
        review_idle_timeout: None,
        notifications: NotificationTargets::default(),
        trace,
        prior_review: None,
    };
    let resumable = Arc::new(Mutex::new(None));
    let make = |started: StartedRun| SessionExecutor {
        meter: Arc::clone(started.approvals.meter()),
        limits: Arc::clone(&limits),
        conversation: conversation.map(|request| (request.tools, Arc::clone(&started.approvals))),
        asks_permission: is_interactive,
        launch: SessionLaunch {
            context: AttemptContext {
                worker: None,
                agent: Arc::new(Agent::claude_code(exe, None)),
                unit: SESSION_KEY.into(),
                attempt: 1,
                cwd,
                limits: StreamLimits::default(),
                recorder: started.recorder,
                observer: Some(Arc::clone(started.approvals.meter()) as _),
                amendment: None,
                paid_usd: None,
                traceparent: None,
            },
            prompt,
            args,
            use_api_billing: *config.claude.use_api_billing,
            mismatch: *config.claude.session_mismatch,
            locks,
            time_limits: limits.timeouts(),
            conversation: None,
        },
        resumable: Arc::clone(&resumable),
        continuation: Mutex::default(),
        changes: Mutex::default(),
        trace: started.trace,
    };
    let result = setup.run_schedule(Timestamp::now(), schedule, &[plan], make, client)?;
    let resumable = resumable.lock().take();
    Ok((result, resumable))
}

#[derive(Debug)]
struct SessionExecutor {
    meter: Arc<RunMeter>,
    /// The limits that clients can change.
    limits: Arc<AttemptLimits>,
    /// Set for the two-way protocol.
    conversation: Option<(Arc<StandardTools>, Arc<ApprovalQueue>)>,
    /// A person answers requests for permission.
    asks_permission: bool,
    launch: SessionLaunch,
    /// The session that the next attempt can continue.
    resumable: Arc<Mutex<Option<String>>>,
    /// The first message of the next session, if the context of the last one is full.
    continuation: Mutex<Option<String>>,
    /// What a person changed in earlier turns.
    changes: Mutex<SessionChanges>,
    /// The trace that agents continue, if anything records it.
    trace: Option<RunTrace>,
}

impl SessionExecutor {
    /// The requested session with the amendments of a person.
    fn amended_launch(&self, amendment: Option<&Amendment>) -> SessionLaunch {
        let mut launch = self.launch.clone();
        let changes = self.changes.lock().clone();
        launch.args.model = changes.model.or(launch.args.model);
        launch.args.permission_mode = changes.permission_mode;
        let Some(amendment) = amendment else {
            return launch;
        };
        let feedback = amendment.feedback.as_deref();
        let mut amendment = amendment.clone();
        let is_new_turn = amendment.message.is_some() || feedback.is_some();
        if let Some(continuation) = self.continuation().clone() {
            // The context of the earlier session is full.
            (amendment.resume, launch.args.resume, launch.args.fork) = (None, None, false);
            let message = amendment
                .message
                .as_deref()
                .or(feedback)
                .filter(|message| *message != continuation);
            launch.prompt = [Some(continuation.as_str()), message]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join("\n\n");
            amendment.message = Some(launch.prompt.clone());
            launch.args.model = amendment.model.clone().or(launch.args.model);
            launch.context.amendment = Some(amendment);
            return launch;
        }
        if is_new_turn && amendment.resume.is_none() {
            amendment.resume = self.resumable().clone();
        }
        if let Some(message) = &amendment.message {
            launch.args.resume = amendment.resume.clone().or(launch.args.resume);
            launch.args.fork &= amendment.resume.is_none();
            launch.prompt.clone_from(message);
        } else if amendment.resume.is_some() {
            launch.args.resume.clone_from(&amendment.resume);
            launch.args.fork = false;
            launch.prompt = feedback.map_or_else(
                || "Continue with the task".to_owned(),
                |feedback| format!("Continue with the following feedback: {feedback}"),
            );
        } else if let Some(feedback) = feedback {
            launch.prompt = format!("{}\n\n{feedback}", launch.prompt);
        }
        launch.args.model = amendment.model.clone().or(launch.args.model);
        launch.args.max_turns = amendment.step_budget.or(launch.args.max_turns);
        launch.context.amendment = Some(amendment);
        launch
    }

    /// Turns of the next attempt, if a client has changed them or there is a limit.
    fn max_turns(&self) -> Option<u32> {
        Some(self.limits.current().step_budget).filter(|turns| *turns != NO_TURN_LIMIT)
    }

    fn continuation(&self) -> MutexGuard<'_, Option<String>> {
        self.continuation.lock()
    }

    fn resumable(&self) -> MutexGuard<'_, Option<String>> {
        self.resumable.lock()
    }
}

impl Executor for SessionExecutor {
    async fn run(
        &self,
        unit: UnitKey,
        attempt: u32,
        amendment: Option<Arc<Amendment>>,
        orders: mpsc::Receiver<AttemptOrder>,
        ready: oneshot::Sender<()>,
    ) -> AttemptEnd {
        let mut launch = self.amended_launch(amendment.as_deref());
        launch.args.max_turns = amendment
            .and_then(|amendment| amendment.step_budget)
            .or(self.max_turns());
        launch.conversation =
            self.conversation
                .as_ref()
                .map(|(tools, approvals)| session::Conversation {
                    gate: approvals.gate(&unit, attempt),
                    tools: Arc::clone(tools) as _,
                    asks_permission: self.asks_permission,
                });
        let resumed = launch.args.resume.as_deref();
        launch.context.paid_usd =
            resumed.and_then(|session| self.meter.session_cost(&unit, session));
        launch.context.attempt = attempt;
        launch.context.traceparent = self
            .trace
            .as_ref()
            .map(|trace| trace.traceparent_of_attempt(&unit, attempt));
        let (send, commands) = mpsc::channel(4);
        let forwarding = tokio::spawn(forward_orders(Vec::new(), orders, send, |_| {}));
        let end = session::run_session(launch, commands, ready).await;
        forwarding.abort();
        let SessionChanges {
            model,
            permission_mode,
        } = end.changes.clone();
        let mut changes = self.changes.lock();
        changes.model = model.or(changes.model.take());
        changes.permission_mode = permission_mode.or(changes.permission_mode.take());
        drop(changes);
        let verdict = end.verdict(&unit);
        let is_full =
            verdict.cause == VerdictCause::ContextOverflow && !end.continuation.is_empty();
        *self.resumable() = end.resumable().filter(|_| !is_full).map(str::to_owned);
        *self.continuation() = is_full.then(|| end.continuation.clone());
        let repeat = if is_full {
            RetryMode::NewSession(end.continuation)
        } else {
            end.retry_mode()
        };
        driver::log_verdict(
            &unit,
            attempt,
            &verdict,
            end.facts.process.exit_code,
            end.facts.process.signal,
        );
        let ended = AttemptEnded {
            verdict: verdict.clone(),
            tool_failures: 0,
            failed_call: None,
            exit_code: end.facts.process.exit_code,
            signal: end.facts.process.signal,
            stderr_tail: end.facts.process.stderr_tail,
            wrote: Vec::new(),
            work: Default::default(),
            extra: serde_json::Map::default(),
        };
        let note = Note::AttemptEnded(Box::new(ended));
        if let Err(error) = self
            .launch
            .context
            .recorder
            .record_note(Some((&unit, attempt)), &note)
        {
            tracing::error!(%error, "a verdict is lost");
        }
        AttemptEnd {
            verdict,
            repeat,
            undelivered: end.undelivered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt_limits::UNLIMITED_TIME;
    use ingestdeck_core::{
        config::MismatchPolicy,
        run::{NewEntry, Recorder, entry_source::RecordError},
    };

    #[derive(Debug)]
    struct NullRecorder;

    impl Recorder for NullRecorder {
        fn record(&self, _: &[NewEntry<'_>]) -> Result<(), RecordError> {
            Ok(())
        }
    }

    fn sessions() -> SessionExecutor {
        let args = session::ClaudeSessionArgs {
            fork: true,
            model: Some("sonnet".into()),
            ..session::ClaudeSessionArgs::default()
        };
        SessionExecutor {
            launch: SessionLaunch {
                context: AttemptContext {
                    worker: None,
                    agent: Arc::new(Agent::claude_code("claude".into(), None)),
                    unit: SESSION_KEY.into(),
                    attempt: 1,
                    cwd: "/".into(),
                    limits: StreamLimits::default(),
                    recorder: Arc::new(NullRecorder),
                    observer: None,
                    amendment: None,
                    paid_usd: None,
                    traceparent: None,
                },
                prompt: "Read it.".into(),
                args,
                use_api_billing: false,
                mismatch: MismatchPolicy::Error,
                locks: ingestdeck_agent::session_lock::SessionLocks::new("/locks"),
                time_limits: AttemptLimits::new(
                    1,
                    FailureRule::default(),
                    TimeLimitSettings::default(),
                )
                .timeouts(),
                conversation: None,
            },
            limits: Arc::new(AttemptLimits::new(
                NO_TURN_LIMIT,
                FailureRule::default(),
                UNLIMITED_TIME,
            )),
            conversation: None,
            asks_permission: false,
            meter: Arc::new(RunMeter::new(mpsc::channel(1).0.downgrade())),
            resumable: Arc::default(),
            continuation: Mutex::default(),
            changes: Mutex::default(),
            trace: None,
        }
    }

    #[test]
    fn amendment_resumes_the_session_or_extends_the_prompt() {
        let plain = sessions().amended_launch(None);
        assert_eq!((plain.prompt.as_str(), plain.args.fork), ("Read it.", true));
        let amendment = Amendment {
            feedback: Some("Slowly.".into()),
            ..Amendment::default()
        };
        let launch = sessions().amended_launch(Some(&amendment));
        assert_eq!(
            (launch.prompt.as_str(), launch.args.model.as_deref()),
            ("Read it.\n\nSlowly.", Some("sonnet"))
        );
        let resumed = Amendment {
            resume: Some("s".into()),
            model: Some("opus".into()),
            step_budget: Some(3),
            ..amendment
        };
        let launch = sessions().amended_launch(Some(&resumed));
        assert_eq!(
            launch.prompt,
            "Continue with the following feedback: Slowly."
        );
        assert_eq!(
            (launch.args.resume.as_deref(), launch.args.fork),
            (Some("s"), false)
        );
        assert_eq!(
            (launch.args.model.as_deref(), launch.args.max_turns),
            (Some("opus"), Some(3))
        );
        let executor = sessions();
        *executor.resumable() = Some("s".into());
        let message = Amendment {
            message: Some("And now?".into()),
            ..Amendment::default()
        };
        let launch = executor.amended_launch(Some(&message));
        assert_eq!(
            (launch.prompt.as_str(), launch.args.resume.as_deref()),
            ("And now?", Some("s"))
        );
        // With a full context, no session is resumed, not even one of the command line.
        let mut executor = executor;
        executor.launch.args.resume = Some("old".into());
        *executor.continuation() = Some("You continue.".into());
        let launch = executor.amended_launch(Some(&message));
        assert_eq!(
            (launch.prompt.as_str(), launch.args.resume),
            ("You continue.\n\nAnd now?", None)
        );
        let continuation = Amendment {
            message: Some("You continue.".into()),
            ..Amendment::default()
        };
        assert_eq!(
            executor.amended_launch(Some(&continuation)).prompt,
            "You continue."
        );
        let executor = sessions();
        executor.changes.lock().permission_mode = Some("plan".into());
        executor.changes.lock().model = Some("opus".into());
        let launch = executor.amended_launch(Some(&message));
        assert_eq!(
            (
                launch.args.model.as_deref(),
                launch.args.permission_mode.as_deref()
            ),
            (Some("opus"), Some("plan"))
        );
        let silent = sessions().amended_launch(Some(&Amendment {
            feedback: None,
            ..resumed
        }));
        assert_eq!(silent.prompt, "Continue with the task");
    }
}
