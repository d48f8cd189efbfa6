//! Runs one plain Claude Code session like a unit.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::{
    approval::ApprovalQueue,
    driver::{self, AttemptEnd, AttemptOrder, Executor},
    execute::forward_orders,
    launch::{self, LaunchError, LiveRun, RunSetup},
    notifier::NotificationTargets,
    run_meter::RunMeter,
    span_exporter::TraceOptions,
};
use crate::{
    agent::{
        attempt::AttemptContext,
        claude::ClaudeCode,
        process::StreamLimits,
        session::{self, SessionLaunch},
    },
    config::Config,
    run::otlp::RunTrace,
    store::RunStore,
    tape::{
        AgentName, Note, UnitKey,
        note::{Amendment, AttemptEnded, PlannedUnit, RunPlanned},
    },
    units::schedule::{Schedule, ScheduleSettings},
};

/// The unit key of a session on its tape.
const SESSION_UNIT: &str = "session";

/// A session that a person requests.
#[derive(Debug)]
pub(crate) struct SessionRequest {
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
}

/// Runs a session. Returns the result of the client, and the id of the session if it can be continued.
///
/// # Errors
/// If the session cannot be recorded. A running session has been ended by then.
pub(crate) fn run<T>(
    request: SessionRequest,
    config: &Config,
    client: impl AsyncFnOnce(LiveRun) -> T,
) -> Result<(T, Option<String>), LaunchError> {
    let SessionRequest { exe, cwd, prompt, args, runs, is_interactive, trace } = request;
    let plan = Note::RunPlanned(Box::new(RunPlanned {
        units: vec![PlannedUnit { unit: SESSION_UNIT.into(), why: "asked for".into(), ..PlannedUnit::default() }],
        concurrency: 1,
        model: args.model.clone(),
        traceparent: trace.parent.clone(),
        ..RunPlanned::default()
    }));
    let settings = ScheduleSettings { retry: launch::retry_policy(config), ..ScheduleSettings::new(1, 1) };
    let schedule = Schedule::new(vec![SESSION_UNIT.into()], settings);
    let locks = launch::session_locks(&runs, false);
    let setup = RunSetup {
        runs,
        project_name: Some(SESSION_UNIT.into()),
        agent: AgentName::ClaudeCode,
        initially_held: Vec::new(),
        is_interactive,
        limits: None,
        notifications: NotificationTargets::default(),
        trace,
    };
    let resumable = Arc::new(Mutex::new(None));
    let make = |recorder, approvals: Arc<ApprovalQueue>, trace| SessionExecutor {
        meter: Arc::clone(approvals.meter()),
        launch: SessionLaunch {
            context: AttemptContext {
                agent: Arc::new(ClaudeCode { exe }),
                unit: SESSION_UNIT.into(),
                attempt: 1,
                cwd,
                limits: StreamLimits::default(),
                recorder,
                observer: Some(Arc::clone(approvals.meter()) as _),
                amendment: None,
                paid_usd: None,
                traceparent: None,
            },
            prompt,
            args,
            use_api_billing: *config.claude.use_api_billing,
            mismatch: *config.claude.session_mismatch,
            locks,
        },
        resumable: Arc::clone(&resumable),
        trace,
    };
    let result = setup.run_schedule(Timestamp::now(), schedule, &[plan], make, client)?;
    let resumable = resumable.lock().unwrap_or_else(PoisonError::into_inner).take();
    Ok((result, resumable))
}

#[derive(Debug)]
struct SessionExecutor {
    meter: Arc<RunMeter>,
    launch: SessionLaunch,
    /// The session that the next attempt can continue.
    resumable: Arc<Mutex<Option<String>>>,
    /// The trace that agents continue, if anything records it.
    trace: Option<RunTrace>,
}

impl SessionExecutor {
    /// The requested session with the amendments of a person.
    fn amended_launch(&self, amendment: Option<&Amendment>) -> SessionLaunch {
        let mut launch = self.launch.clone();
        let Some(amendment) = amendment else { return launch };
        let feedback = amendment.feedback.as_deref();
        if amendment.resume.is_some() {
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
        launch.context.amendment = Some(amendment.clone());
        launch
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
        let resumed = launch.args.resume.as_deref();
        launch.context.paid_usd = resumed.and_then(|session| self.meter.session_cost(&unit, session));
        launch.context.attempt = attempt;
        launch.context.traceparent = self.trace.as_ref().map(|trace| trace.traceparent_of_attempt(&unit, attempt));
        let (send, commands) = mpsc::channel(4);
        let forwarding = tokio::spawn(forward_orders(Vec::new(), orders, send));
        let end = session::run_session(launch, commands, ready).await;
        forwarding.abort();
        *self.resumable.lock().unwrap_or_else(PoisonError::into_inner) = end.resumable().map(str::to_owned);
        let repeat = end.retry_mode();
        let verdict = end.verdict(self.launch.context.agent.as_ref(), &unit);
        driver::log_verdict(&unit, attempt, &verdict, end.facts.process.exit_code, end.facts.process.signal);
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
        if let Err(error) = self.launch.context.recorder.record_note(Some((&unit, attempt)), &note) {
            tracing::error!(%error, "a verdict is lost");
        }
        AttemptEnd { verdict, repeat }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
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
                    agent: Arc::new(ClaudeCode { exe: "claude".into() }),
                    unit: SESSION_UNIT.into(),
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
                locks: crate::agent::session_lock::SessionLocks::new("/locks"),
            },
            meter: Arc::new(RunMeter::new(mpsc::channel(1).0.downgrade())),
            resumable: Arc::default(),
            trace: None,
        }
    }

    #[test]
    fn amendment_resumes_the_session_or_extends_the_prompt() {
        let plain = sessions().amended_launch(None);
        assert_eq!((plain.prompt.as_str(), plain.args.fork), ("Read it.", true));
        let amendment = Amendment { feedback: Some("Slowly.".into()), ..Amendment::default() };
        let launch = sessions().amended_launch(Some(&amendment));
        assert_eq!((launch.prompt.as_str(), launch.args.model.as_deref()), ("Read it.\n\nSlowly.", Some("sonnet")));
        let resumed =
            Amendment { resume: Some("s".into()), model: Some("opus".into()), step_budget: Some(3), ..amendment };
        let launch = sessions().amended_launch(Some(&resumed));
        assert_eq!(launch.prompt, "Continue with the following feedback: Slowly.");
        assert_eq!((launch.args.resume.as_deref(), launch.args.fork), (Some("s"), false));
        assert_eq!((launch.args.model.as_deref(), launch.args.max_turns), (Some("opus"), Some(3)));
        let silent = sessions().amended_launch(Some(&Amendment { feedback: None, ..resumed }));
        assert_eq!(silent.prompt, "Continue with the task");
    }
}
