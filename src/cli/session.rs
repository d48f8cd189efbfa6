//! `session`: one plain Claude Code session, recorded and shown like a unit.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::{
    args::{Global, Profile, SessionArgs, Ui},
    debug, doctor,
    drive::{AttemptEnd, Executor},
    execute::pass_on,
    exit::{Exit, Failure},
    launch::{self, Fate, Stage},
    output, runs, settings, show,
};
use crate::{
    claude::{
        process::StreamLimits,
        session::{self, SessionLaunch, order, resume_line},
        unit::Program,
    },
    config::Config,
    run::{Item, Recorder},
    tape::{
        Body, Note, UnitKey,
        note::{Amendment, AttemptEnded, PlannedUnit, RunPlanned, StopHow},
    },
    units::schedule::{Schedule, Settings},
};

/// The unit that a session is on its tape.
const UNIT: &str = "session";

/// Runs a session.
///
/// # Errors
/// When the prompt cannot be sent, there is no `claude`, or the session cannot be recorded.
pub fn session(global: &Global, args: &SessionArgs) -> Result<Exit, Failure> {
    let config = settings::load(global)?;
    let prompt = args.prompt.join(" ");
    order::delivery(&prompt).map_err(|error| Failure::usage(error.to_string()))?;
    let flags = flags(&config, args);
    let stage = Stage {
        global,
        config: &config,
        runs: runs::place(global)?,
        name: Some(UNIT.into()),
        scripted: false,
        // A plain session asks nobody before its calls.
        held: None,
        fate: Fate::Path,
        told: Vec::new(),
    };
    let plan = Note::RunPlanned(Box::new(RunPlanned {
        units: vec![PlannedUnit { unit: UNIT.into(), why: "asked for".into(), ..PlannedUnit::default() }],
        concurrency: 1,
        model: flags.model.clone(),
        ..RunPlanned::default()
    }));
    let exe = launch::find_claude(global)?;
    doctor::check_release(&exe, order::environment(std::env::vars_os(), *config.claude.use_api_billing))?;
    let launch = SessionLaunch {
        program: Program { exe, prefix: Vec::new(), scripted: false },
        cwd: std::env::current_dir().map_err(Failure::internal)?,
        unit: UNIT.into(),
        attempt: 1,
        prompt,
        args: flags,
        use_api_billing: *config.claude.use_api_billing,
        mismatch: *config.claude.session_mismatch,
        locks: runs::locks(&stage.runs, false),
        limits: StreamLimits::default(),
        recorder: Arc::new(Nowhere),
        amendment: None,
    };
    let settings = Settings { retry: launch::retry_policy(&config), ..Settings::new(1, 1) };
    let schedule = Schedule::new(vec![UNIT.into()], settings);
    let resumable = Arc::new(Mutex::new(None));
    let outcome = stage.perform(Timestamp::now(), schedule, &[plan], |recorder, _, _| Sessions {
        launch: SessionLaunch { recorder, ..launch },
        resumable: Arc::clone(&resumable),
    })?;
    let resumable = resumable.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(session) = &resumable
        && show::resolve(global.ui) != Ui::Json
        && show::resolve(global.ui) != Ui::None
    {
        use std::io::Write as _;
        let written = writeln!(output::stdout(), "{}", resume_line(session));
        // A terminal that hung up takes no resume line; the exit code names the signal.
        if !matches!(outcome.exit, Exit::Signal(_)) {
            written.map_err(|error| show::stdout_failed(&error))?;
        }
    }
    Ok(outcome.exit)
}

fn flags(config: &Config, args: &SessionArgs) -> session::SessionArgs {
    let of_profile = match args.profile {
        Profile::Claude => session::SessionArgs {
            model: config.claude.model.value.clone(),
            allowed_tools: config.claude.allowed_tools.value.clone(),
            skip_permissions: *config.claude.dangerously_skip_permissions,
            ..session::SessionArgs::default()
        },
        Profile::Agent => session::SessionArgs {
            model: Some(config.agent.model.value.clone()),
            allowed_tools: config.agent.allowed_tools.value.clone(),
            max_turns: Some(*config.agent.max_turns),
            system_prompt: config.agent.system_prompt.value.clone(),
            ..session::SessionArgs::default()
        },
    };
    session::SessionArgs {
        resume: args.resume.clone(),
        fork: args.fork_session,
        model: args.model.clone().or(of_profile.model),
        ..of_profile
    }
}

/// Stands in until the run has a tape.
#[derive(Debug)]
struct Nowhere;

impl Recorder for Nowhere {
    fn record(&self, _: &[Item<'_>]) -> Result<(), crate::run::source::RecordError> {
        Ok(())
    }
}

#[derive(Debug)]
struct Sessions {
    launch: SessionLaunch,
    /// The session that can be continued after the last attempt.
    resumable: Arc<Mutex<Option<String>>>,
}

impl Sessions {
    /// The session as it was asked for, but for what a person wants otherwise.
    fn amended(&self, amendment: Option<&Amendment>) -> SessionLaunch {
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

impl Executor for Sessions {
    async fn run(
        &self,
        unit: UnitKey,
        attempt: u32,
        amendment: Option<Arc<Amendment>>,
        stop: mpsc::Receiver<StopHow>,
        ready: oneshot::Sender<()>,
    ) -> AttemptEnd {
        let launch = SessionLaunch { attempt, ..self.amended(amendment.as_deref()) };
        let (send, commands) = mpsc::channel(4);
        let forwarding = tokio::spawn(pass_on(stop, send));
        let end = session::run_session(launch, commands, ready).await;
        forwarding.abort();
        *self.resumable.lock().unwrap_or_else(PoisonError::into_inner) = end.resumable().map(str::to_owned);
        let repeat = end.repeat();
        let verdict = end.verdict(&unit);
        debug::log_verdict(&unit, attempt, &verdict, end.facts.exit_code, end.facts.signal);
        let ended = AttemptEnded {
            verdict: verdict.clone(),
            tool_failures: 0,
            failed_call: None,
            exit_code: end.facts.exit_code,
            signal: end.facts.signal,
            stderr_tail: end.facts.stderr_tail,
            wrote: Vec::new(),
            work: Default::default(),
            more: serde_json::Map::default(),
        };
        let json = Note::AttemptEnded(Box::new(ended)).to_json();
        let item = Item { lane: Some((&unit, attempt)), body: Body::Note(&json) };
        if let Err(error) = self.launch.recorder.record(&[item]) {
            tracing::error!(%error, "a verdict is lost");
        }
        AttemptEnd { verdict, repeat }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Mismatch;

    fn sessions() -> Sessions {
        let args = session::SessionArgs { fork: true, model: Some("sonnet".into()), ..session::SessionArgs::default() };
        Sessions {
            launch: SessionLaunch {
                program: Program { exe: "claude".into(), prefix: Vec::new(), scripted: false },
                cwd: "/".into(),
                unit: UNIT.into(),
                attempt: 1,
                prompt: "Read it.".into(),
                args,
                use_api_billing: false,
                mismatch: Mismatch::Error,
                locks: crate::claude::lock::Locks::new("/locks"),
                limits: StreamLimits::default(),
                recorder: Arc::new(Nowhere),
                amendment: None,
            },
            resumable: Arc::default(),
        }
    }

    #[test]
    fn a_person_answers_in_the_session_or_adds_to_the_prompt() {
        let plain = sessions().amended(None);
        assert_eq!((plain.prompt.as_str(), plain.args.fork), ("Read it.", true));
        let amendment = Amendment { feedback: Some("Slowly.".into()), ..Amendment::default() };
        let told = sessions().amended(Some(&amendment));
        assert_eq!((told.prompt.as_str(), told.args.model.as_deref()), ("Read it.\n\nSlowly.", Some("sonnet")));
        let resumed =
            Amendment { resume: Some("s".into()), model: Some("opus".into()), step_budget: Some(3), ..amendment };
        let launch = sessions().amended(Some(&resumed));
        assert_eq!(launch.prompt, "Continue with the following feedback: Slowly.");
        assert_eq!((launch.args.resume.as_deref(), launch.args.fork), (Some("s"), false));
        assert_eq!((launch.args.model.as_deref(), launch.args.max_turns), (Some("opus"), Some(3)));
        let silent = sessions().amended(Some(&Amendment { feedback: None, ..resumed }));
        assert_eq!(silent.prompt, "Continue with the task");
    }
}
