//! `session`: one plain Claude Code session, recorded and shown like a unit.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::{
    args::{GlobalArgs, Profile, SessionArgs, Ui},
    doctor,
    exit::{CliError, Exit},
    launch::{self, RunSetup, TapeLocation},
    output, runs, settings, show,
};
use crate::{
    claude::{
        process::StreamLimits,
        session::{self, SessionLaunch, launch_args, resume_line},
        unit::AgentProgram,
    },
    config::Config,
    engine::{
        driver::{self, AttemptEnd, Executor},
        execute::forward_stops,
        run_meter::RunMeter,
    },
    run::{NewEntry, Recorder},
    tape::{
        EntryBody, Note, UnitKey,
        note::{Amendment, AttemptEnded, PlannedUnit, RunPlanned, StopMode},
    },
    units::schedule::{Schedule, ScheduleSettings},
};

/// The unit key of a session on its tape.
const SESSION_UNIT: &str = "session";

/// Runs a session.
///
/// # Errors
/// If the prompt cannot be sent, there is no `claude`, or the session cannot be recorded.
pub(crate) fn session(global: &GlobalArgs, args: &SessionArgs) -> Result<Exit, CliError> {
    let config = settings::load(global)?;
    let prompt = args.prompt.join(" ");
    launch_args::choose_delivery(&prompt).map_err(|error| CliError::from_error(Exit::Usage, &error))?;
    let flags = session_args(&config, args);
    let stage = RunSetup {
        global,
        config: &config,
        runs: runs::resolve_store(global)?,
        project_name: Some(SESSION_UNIT.into()),
        scripted: false,
        // Calls of a plain session do not wait for approval.
        initially_held: None,
        record_location: TapeLocation::PathOnly,
        notices: Vec::new(),
    };
    let plan = Note::RunPlanned(Box::new(RunPlanned {
        units: vec![PlannedUnit { unit: SESSION_UNIT.into(), why: "asked for".into(), ..PlannedUnit::default() }],
        concurrency: 1,
        model: flags.model.clone(),
        ..RunPlanned::default()
    }));
    let exe = launch::find_claude(global)?;
    doctor::check_release(&exe, launch_args::session_environment(std::env::vars_os(), *config.claude.use_api_billing))?;
    let launch = SessionLaunch {
        program: AgentProgram { exe, prefix: Vec::new(), scripted: false },
        cwd: std::env::current_dir().map_err(CliError::internal)?,
        unit: SESSION_UNIT.into(),
        attempt: 1,
        prompt,
        args: flags,
        use_api_billing: *config.claude.use_api_billing,
        mismatch: *config.claude.session_mismatch,
        locks: runs::session_locks(&stage.runs, false),
        limits: StreamLimits::default(),
        recorder: Arc::new(NullRecorder),
        observer: None,
        paid_usd: None,
        amendment: None,
    };
    let settings = ScheduleSettings { retry: launch::retry_policy(&config), ..ScheduleSettings::new(1, 1) };
    let schedule = Schedule::new(vec![SESSION_UNIT.into()], settings);
    let resumable = Arc::new(Mutex::new(None));
    let outcome = stage.run_schedule(Timestamp::now(), schedule, &[plan], |recorder, approvals| SessionExecutor {
        meter: Arc::clone(approvals.meter()),
        launch: SessionLaunch { recorder, observer: Some(Arc::clone(approvals.meter()) as _), ..launch },
        resumable: Arc::clone(&resumable),
    })?;
    let resumable = resumable.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(session) = &resumable
        && show::resolve_ui(global.ui) != Ui::Json
        && show::resolve_ui(global.ui) != Ui::None
    {
        use std::io::Write as _;
        let written = writeln!(output::stdout(), "{}", resume_line(session));
        // A closed terminal cannot show the resume line; the exit code names the signal.
        if !matches!(outcome.exit, Exit::Signal(_)) {
            written.map_err(|error| show::stdout_failed(&error))?;
        }
    }
    Ok(outcome.exit)
}

fn session_args(config: &Config, args: &SessionArgs) -> session::ClaudeSessionArgs {
    let of_profile = match args.profile {
        Profile::Claude => session::ClaudeSessionArgs {
            model: config.claude.model.value.clone(),
            allowed_tools: config.claude.allowed_tools.value.clone(),
            bypass_permissions: *config.claude.dangerously_skip_permissions,
            ..session::ClaudeSessionArgs::default()
        },
        Profile::Agent => session::ClaudeSessionArgs {
            model: Some(config.agent.model.value.clone()),
            allowed_tools: config.agent.allowed_tools.value.clone(),
            max_turns: Some(*config.agent.max_turns),
            system_prompt: config.agent.system_prompt.value.clone(),
            ..session::ClaudeSessionArgs::default()
        },
    };
    session::ClaudeSessionArgs {
        resume: args.resume.clone(),
        fork: args.fork_session,
        model: args.model.clone().or(of_profile.model),
        ..of_profile
    }
}

/// A placeholder until the run has a tape.
#[derive(Debug)]
struct NullRecorder;

impl Recorder for NullRecorder {
    fn record(&self, _: &[NewEntry<'_>]) -> Result<(), crate::run::entry_source::RecordError> {
        Ok(())
    }
}

#[derive(Debug)]
struct SessionExecutor {
    meter: Arc<RunMeter>,
    launch: SessionLaunch,
    /// The session that the next attempt can continue.
    resumable: Arc<Mutex<Option<String>>>,
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
        launch.amendment = Some(amendment.clone());
        launch
    }
}

impl Executor for SessionExecutor {
    async fn run(
        &self,
        unit: UnitKey,
        attempt: u32,
        amendment: Option<Arc<Amendment>>,
        stop: mpsc::Receiver<StopMode>,
        ready: oneshot::Sender<()>,
    ) -> AttemptEnd {
        let launch = self.amended_launch(amendment.as_deref());
        let resumed = launch.args.resume.as_deref();
        let paid_usd = resumed.and_then(|session| self.meter.session_cost(&unit, session));
        let launch = SessionLaunch { attempt, paid_usd, ..launch };
        let (send, commands) = mpsc::channel(4);
        let forwarding = tokio::spawn(forward_stops(stop, send));
        let end = session::run_session(launch, commands, ready).await;
        forwarding.abort();
        *self.resumable.lock().unwrap_or_else(PoisonError::into_inner) = end.resumable().map(str::to_owned);
        let repeat = end.retry_mode();
        let verdict = end.verdict(&unit);
        driver::log_verdict(&unit, attempt, &verdict, end.facts.exit_code, end.facts.signal);
        let ended = AttemptEnded {
            verdict: verdict.clone(),
            tool_failures: 0,
            failed_call: None,
            exit_code: end.facts.exit_code,
            signal: end.facts.signal,
            stderr_tail: end.facts.stderr_tail,
            wrote: Vec::new(),
            work: Default::default(),
            extra: serde_json::Map::default(),
        };
        let json = Note::AttemptEnded(Box::new(ended)).to_json();
        let item = NewEntry { attempt: Some((&unit, attempt)), body: EntryBody::Note(&json) };
        if let Err(error) = self.launch.recorder.record(&[item]) {
            tracing::error!(%error, "a verdict is lost");
        }
        AttemptEnd { verdict, repeat }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MismatchPolicy;

    fn sessions() -> SessionExecutor {
        let args = session::ClaudeSessionArgs {
            fork: true,
            model: Some("sonnet".into()),
            ..session::ClaudeSessionArgs::default()
        };
        SessionExecutor {
            launch: SessionLaunch {
                program: AgentProgram { exe: "claude".into(), prefix: Vec::new(), scripted: false },
                cwd: "/".into(),
                unit: SESSION_UNIT.into(),
                attempt: 1,
                prompt: "Read it.".into(),
                args,
                use_api_billing: false,
                mismatch: MismatchPolicy::Error,
                locks: crate::claude::session_lock::SessionLocks::new("/locks"),
                limits: StreamLimits::default(),
                recorder: Arc::new(NullRecorder),
                observer: None,
                paid_usd: None,
                amendment: None,
            },
            meter: Arc::new(RunMeter::new(mpsc::channel(1).0.downgrade())),
            resumable: Arc::default(),
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
