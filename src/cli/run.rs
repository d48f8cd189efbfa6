//! `run`: runs the work units of a project with the user's own Claude Code.

use std::sync::Arc;

use super::{
    args::{AttemptArgs, GlobalArgs, RunArgs, Ui},
    attach, doctor,
    exit::{self, CliError, Exit},
    failed_from, git_sources,
    launch::{self, TapeLocation},
    model_choice::ModelChoice,
    otel, plan, playback_output, policy,
    project::{self, PlannedAttempts},
    rehearsal,
    review_rules::ReviewRules,
    run_limits, settings, texts,
};
use ingestdeck_agent::Agent;
use ingestdeck_core::{
    config::{Config, IngestSettings},
    control::MAX_FEEDBACK_CHARS,
    diagnostic::{Problem, to_lines},
    run::RunOptions,
    tape::{UnitKey, note::PlannedUnit},
};
use ingestdeck_engine::{
    execute::{ReconcileOptions, RunPlaces},
    launch::{HeldCalls, Launch, PriorWork, ReviewOptions, runtime},
    prepare::{self, PreparedProject, TargetBranch},
    reconcile_policy::ReconcilePolicy,
    resume::{self, RunPlan},
    worker::{host::WorkerSources, own_server::OwnServer},
};
use ingestdeck_ingest::{
    KTX_DATABASE,
    project::{ModelRole, Project},
    text_input::{TEXT_STEP_BUDGET, TextInputs, TextMode},
};

/// Runs the selected units.
///
/// # Errors
/// If the project, the settings or the agent cannot be used, or if the run cannot be recorded.
pub(crate) fn run(global: &GlobalArgs, args: &RunArgs) -> Result<Exit, CliError> {
    if let Some(run) = &args.rehearse {
        return rehearsal::rehearse(global, run, &args.select);
    }
    if !global.is_engine {
        args.nats.warning().iter().for_each(exit::print_warning);
    }
    let mode = match args.verbatim {
        true => TextMode::Verbatim,
        false => TextMode::Captured,
    };
    let texts = texts::read(global, &args.texts, mode, &args.select)?;
    if args.lock_timeout.is_some() {
        run_limits::wait_for_lock(&project::open(global)?.root, args)?;
    }
    // The engine of this command finds what has been fetched.
    if !global.is_engine && texts.is_none() {
        git_sources::fetch(global, &args.select)?;
    }
    if args.detach && !global.is_engine {
        return attach::start_detached(global, texts.as_ref());
    }
    if attach::is_on_screen(global) {
        let location = TapeLocation::InProject {
            flag: global.project_dir.clone(),
        };
        return Ok(attach::start_on_screen(global, texts.as_ref(), location, None)?.exit);
    }
    let request = RunRequest {
        texts,
        review: args.review.then(ReviewOptions::default),
        ..RunRequest::default()
    };
    start_run(global, args, request)
}

/// What commands determine about a run apart from the flags of `run`.
#[derive(Debug, Default)]
pub(crate) struct RunRequest {
    /// Units that are held from the beginning, by their keys in the run or in KTX.
    pub held: Vec<UnitKey>,
    /// Texts to capture instead of the units of connections.
    pub texts: Option<TextInputs>,
    /// The review before the commit; a setting may ask for it, too.
    pub review: Option<ReviewOptions>,
    /// The run whose changes are reviewed: nothing is attempted.
    pub reviewed_run: Option<String>,
    /// How the changes are decided without a screen.
    pub rules: Option<Arc<ReviewRules>>,
}

/// Runs the units that `args` select.
///
/// # Errors
/// As [`run`].
pub(crate) fn start_run(
    global: &GlobalArgs,
    args: &RunArgs,
    request: RunRequest,
) -> Result<Exit, CliError> {
    let RunArgs {
        select, attempt, ..
    } = args;
    let RunRequest {
        held,
        texts,
        review,
        reviewed_run,
        rules,
    } = request;
    let feedback = feedback(args.feedback.as_deref())?;
    let day_budget = budget("--max-day-budget-usd", args.max_day_budget_usd)?;
    let config = settings::load(global)?;
    let project = project::open(global)?;
    let ssh = match args.worker.as_slice() {
        [] => None,
        workers => {
            let server = OwnServer::prepare(&project.root);
            let server = server.map_err(|problem| CliError::from_error(Exit::Setup, &problem))?;
            Some((server, workers.to_vec()))
        }
    };
    let workers = WorkerSources {
        ssh,
        nats: args.nats.server(),
    };
    if !args.verbatim {
        project
            .check_backend()
            .map_err(|error| CliError::from_error(Exit::Usage, &error))?;
    }
    let notifications = settings::notification_targets(&config)?;
    let trace = otel::trace_options(&config)?;
    let policy = policy::call_policy(&config, &project.root)?;
    let mut options = run_options(&config, &project, attempt)?;
    options.feedback = feedback;
    let has_texts = texts.is_some();
    let taken = match (texts, &reviewed_run) {
        (Some(texts), _) => resume::plan_new_texts(&project, &project::selection(select), texts)?,
        (None, Some(run)) => resume::plan_review(&project, run, &exit::print_warning)?,
        (None, None) => {
            let attempts = PlannedAttempts {
                // New feedback is for the beginning of a session.
                continues_sessions: options.feedback.is_none(),
                ..PlannedAttempts::new(options.model.as_deref(), &options.ingest)
            };
            match failed_from::plan_run(global, &project, select, attempts)? {
                Some(planned) => planned,
                None => return Ok(Exit::Ok),
            }
        }
    };
    let is_of_texts = taken.planned.is_of_texts;
    if is_of_texts {
        options.step_budget = attempt.step_budget.unwrap_or(TEXT_STEP_BUDGET);
    }
    // A selection names what to run, whatever KTX has ingested.
    let is_selected = has_texts
        || select.full
        || !select.only.is_empty()
        || select.resume.failed.is_some()
        || select.resume.resume_run.is_some()
        || reviewed_run.is_some();
    if taken.is_ktx_locked && !is_selected {
        return Err(CliError::usage(format!(
            "{KTX_DATABASE} is locked by another program, so units that KTX has ingested would run again"
        ))
        .with_help("wait for its end, or run all units with `ingestdeck run --full`"));
    }
    // In line output, these sentences appear as messages of the run.
    let in_lines = playback_output::resolve_ui(global.ui) == Ui::Lines;
    let left_out = match global.ui {
        Ui::Json => taken.planned.warnings.clone(),
        _ => taken.planned.folded_warnings(),
    };
    if !in_lines {
        exit::print_warnings(&left_out);
    }
    // One text after the other, so that each can build on what the earlier ones became.
    // With workers, this machine may run nothing.
    let concurrency = if workers.is_empty() {
        positive("--concurrency", args.concurrency).map_err(|error| {
            error.with_help("to run units on workers only, name them with --worker or --nats")
        })?
    } else {
        args.concurrency
    };
    let slots = concurrency.unwrap_or(if is_of_texts {
        1
    } else {
        project.settings.work_units.max_concurrency
    });
    let pass = ReconcilePolicy::new(!args.no_reconcile && *config.ingest.reconcile && !is_of_texts);
    pass.messages(&taken)
        .iter()
        .for_each(|sentence| playback_output::print_stderr(&format!("ingestdeck: {sentence}")));
    let is_done = taken.is_done() && !pass.justifies_a_run(&taken, select.is_everything());
    let reconcile = pass.options(&taken);
    let unsaved: Vec<Problem> = taken
        .unsaved_run
        .iter()
        .map(|left| left.problem(global.project_dir.as_deref()))
        .collect();
    unsaved.iter().for_each(exit::print_warning);
    let notices = to_lines(&unsaved);
    if is_done {
        if let Some(failure) = plan::unusable_plan_error(&taken) {
            return Err(failure);
        }
        if in_lines {
            exit::print_warnings(&left_out);
        }
        taken
            .planned
            .skipped
            .iter()
            .for_each(|skipped| exit::print_warning(&skipped.problem));
        for sentence in plan::unread_messages(&taken.planned) {
            playback_output::print_stderr(&format!("ingestdeck: {sentence}"));
        }
        playback_output::print_stderr(&format!("ingestdeck: {}", plan::empty_plan_message(&taken)));
        return Ok(Exit::Ok);
    }
    if let Some(rest) = run_limits::rest_of_day(global, day_budget)? {
        let of_run = options.run_budget_usd.unwrap_or(rest);
        options.run_budget_usd = Some(of_run.min(rest));
    }
    // A run that continues a review never commits without one.
    let is_wanted = *config.ingest.review || taken.review.is_some() || taken.is_reviewed;
    let review = review
        .or_else(|| is_wanted.then(ReviewOptions::default))
        .filter(|_| !is_of_texts);
    let RunPlan {
        planned,
        continues,
        review: prior,
        branch: prior_branch,
        projected,
        committed,
        sessions,
        ..
    } = taken;
    let review = review.map(|review| ReviewOptions { prior, ..review });
    let is_held = |unit: &&PlannedUnit| {
        held.iter()
            .any(|name| *name == unit.unit || name == unit.ktx_key())
    };
    let held = planned
        .units
        .iter()
        .map(|unit| &unit.planned)
        .filter(is_held)
        .map(|unit| unit.unit.clone())
        .collect();
    for source in &planned.sources {
        if let Some(place) = plan::outside_project_message(source) {
            playback_output::print_stderr(&format!(
                "ingestdeck: connection {}: {place}",
                source.connection
            ));
        }
    }
    if let Some(server) = &workers.nats {
        // A wrong login or address is an error before anything starts; later, the connection is repeated.
        let connected = runtime(1)?.block_on(server.connect());
        connected.map_err(|problem| CliError::from_error(Exit::Setup, &problem))?;
    }
    let branch = target_branch(args.branch.clone(), prior_branch)?;
    // A review shows which files are in the way, and the others can be committed.
    let allow_dirty = reviewed_run.is_some();
    let prepared = PreparedProject::new(
        &project,
        &planned,
        branch.as_ref(),
        allow_dirty,
        &exit::print_warning,
    )?;
    let (mut account, mut is_local_usable) = (None, slots > 0);
    let needs_no_agent = planned.units.is_empty()
        && planned.has_documents()
        && !reconcile.as_ref().is_some_and(ReconcileOptions::is_due);
    let (claude, release) = match &reviewed_run {
        None if needs_no_agent => (
            launch::find_claude(global).unwrap_or_else(|_| "claude".into()),
            None,
        ),
        // Only a change that is sent back needs it. A reviewer on a screen may send none back.
        Some(_) if !rules.as_ref().is_some_and(|rules| rules.sends_back()) => (
            launch::find_claude(global).unwrap_or_else(|_| "claude".into()),
            None,
        ),
        // Units may run here later, if this machine is fit for them.
        _ if slots == 0 => match launch::find_claude(global) {
            Err(_) => ("claude".into(), None),
            Ok(claude) => {
                let found = doctor::preflight(&claude, &options.pass_env, false, None);
                is_local_usable = found.is_ok();
                let found = found.ok();
                account = found.as_ref().and_then(|found| found.account());
                (claude, found.and_then(|found| found.version()))
            }
        },
        _ => {
            let claude = launch::find_claude(global)?;
            let is_probed = attempt.probe || *config.ingest.probe;
            let found = doctor::preflight(
                &claude,
                &options.pass_env,
                is_probed,
                options.model.as_deref(),
            )?;
            account = found.account();
            (claude, found.version())
        }
    };
    if prepared.repository.is_private() {
        playback_output::print_stderr(&format!("ingestdeck: {}", prepare::NO_REPOSITORY));
    }
    let agent = Arc::new(Agent::claude_code(claude, release));
    let record_location = TapeLocation::InProject {
        flag: global.project_dir.clone(),
    };
    let order = Launch {
        project,
        planned,
        prior: PriorWork {
            continues,
            projected,
            committed,
            sessions,
        },
        agent,
        options: Arc::new(options),
        places: RunPlaces {
            concurrency: slots,
            workers,
            is_local_usable,
            account,
        },
        held: HeldCalls {
            units: held,
            policy,
        },
        notifications,
        trace,
        prepared,
        reconcile,
        review,
    };
    Ok(launch::launch(global, &config, order, record_location, notices, rules)?.exit)
}

/// The branch for the commits: the named one, or that of the continued run.
fn target_branch(
    named: Option<String>,
    prior: Option<TargetBranch>,
) -> Result<Option<TargetBranch>, CliError> {
    match (named, prior) {
        (
            Some(name),
            Some(TargetBranch {
                name: known,
                commit: Some(_),
            }),
        ) if name != known => Err(CliError::usage(format!(
            "the run has commits on branch `{known}` already"
        ))
        .with_help("leave out --branch, or start over with `ingestdeck run --full`")),
        (Some(name), prior) => {
            let commit = prior.and_then(|prior| prior.commit.filter(|_| prior.name == name));
            Ok(Some(TargetBranch { name, commit }))
        }
        (None, prior) => Ok(prior),
    }
}

/// Checks the feedback for the first attempts.
fn feedback(text: Option<&str>) -> Result<Option<String>, CliError> {
    match text.map(str::trim) {
        Some("") => Err(CliError::usage("--feedback is empty")
            .with_help("leave it out, or describe the change")),
        Some(text) if text.chars().count() > MAX_FEEDBACK_CHARS => Err(CliError::usage(format!(
            "--feedback is too long; the limit is {MAX_FEEDBACK_CHARS} characters"
        ))),
        text => Ok(text.map(str::to_owned)),
    }
}

fn budget(flag: &str, value: Option<f64>) -> Result<Option<f64>, CliError> {
    match value {
        Some(budget) if !(budget.is_finite() && budget > 0.0) => Err(CliError::usage(format!(
            "invalid {flag} `{budget}`; expected a number above 0"
        ))),
        value => Ok(value),
    }
}

fn positive(flag: &str, value: Option<u32>) -> Result<Option<u32>, CliError> {
    match value {
        Some(0) => Err(CliError::usage(format!(
            "invalid {flag} `0`; expected 1 or more"
        ))),
        value => Ok(value),
    }
}

/// The options of a run of units: the flags, and else the settings and the project.
fn run_options(
    config: &Config,
    project: &Project,
    args: &AttemptArgs,
) -> Result<RunOptions, CliError> {
    let model = args.model.as_deref();
    if model.is_some_and(|model| model.trim().is_empty()) {
        return Err(
            CliError::usage("--model names no model").with_help("give one, as in `--model sonnet`")
        );
    }
    let step_budget = positive("--step-budget", args.step_budget)?
        .unwrap_or(project.settings.work_units.step_budget);
    let mut options = RunOptions {
        model: ModelChoice::resolve(project, ModelRole::CandidateExtraction, model).model,
        reconcile_model: ModelChoice::resolve(project, ModelRole::Reconcile, model).model,
        max_budget_usd: budget("--max-budget-usd", args.max_budget_usd)?,
        run_budget_usd: budget("--max-run-budget-usd", args.max_run_budget_usd)?,
        ..RunOptions::from_config(config, step_budget)
    };
    override_time_limits(&mut options.ingest, args);
    Ok(options)
}

/// Replaces the time limits of the settings by those of flags.
fn override_time_limits(settings: &mut IngestSettings, args: &AttemptArgs) {
    for (setting, flag) in [
        (&mut settings.silence_timeout, args.silence_timeout),
        (&mut settings.unit_timeout, args.unit_timeout),
        (&mut settings.approval_timeout, args.approval_timeout),
    ] {
        setting.value = flag.unwrap_or(setting.value);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use ingestdeck_agent::attempt::time_limits::{
        AttemptTimeouts, TimeLimitSettings, UNATTENDED_ATTEMPT, UNATTENDED_SILENCE, UNATTENDED_WAIT,
    };
    use ingestdeck_core::config::time_limit::TimeLimitSetting;

    fn effective(args: &AttemptArgs, mut config: Config, is_remote: bool) -> AttemptTimeouts {
        override_time_limits(&mut config.ingest, args);
        TimeLimitSettings::from_config(&config.ingest).effective(is_remote, false)
    }

    #[test]
    fn time_limits_without_flags_are_the_defaults() {
        let limits = effective(&AttemptArgs::default(), Config::default(), false);
        assert_eq!(limits.silence, Some(UNATTENDED_SILENCE));
        assert_eq!(UNATTENDED_SILENCE, Duration::from_secs(600));
        assert_eq!(
            (limits.total, limits.approval),
            (Some(UNATTENDED_ATTEMPT), Some(UNATTENDED_WAIT))
        );
    }

    #[test]
    fn time_limit_of_a_flag_overrides_the_setting() {
        let mut config = Config::default();
        config.ingest.silence_timeout.value = TimeLimitSetting::Unlimited;
        config.ingest.unit_timeout.value = TimeLimitSetting::Unlimited;
        let after = TimeLimitSetting::After(Duration::from_secs(20));
        let args = AttemptArgs {
            silence_timeout: Some(after),
            ..AttemptArgs::default()
        };
        let limits = effective(&args, config, true);
        assert_eq!(
            (limits.silence, limits.total),
            (Some(Duration::from_secs(20)), None)
        );
    }
}
