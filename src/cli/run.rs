//! `run`: the work units of a project, through the user's own Claude Code.

use super::{
    args::{Global, RunArgs, SelectArgs, TermArgs, Ui},
    doctor,
    execute::{Agent, PassTerms, Terms},
    exit::{Exit, Failure},
    ground::{self, Prepared},
    launch::{self, Fate, Launch},
    model::Choice,
    pass::Pass,
    plan, project,
    resume::{self, Taken},
    settings, show,
};
use crate::{
    claude::unit::AttemptTimeouts,
    config::schema::ToolFailures,
    ingest::project::Role,
    tape::{UnitKey, note::PlannedUnit},
    units::tally::FailureRule,
};

/// Runs what was asked for.
///
/// # Errors
/// When the project, the settings or the agent cannot be used, or the run cannot be recorded.
pub fn run(global: &Global, args: &RunArgs) -> Result<Exit, Failure> {
    let want = Want { concurrency: args.concurrency, held: Vec::new(), reconcile: !args.no_reconcile };
    start(global, &args.select, &args.terms, want)
}

/// What else is asked of a run.
#[derive(Clone, Debug, Default)]
pub struct Want {
    /// Units at once, instead of the project's.
    pub concurrency: Option<u32>,
    /// Units that are held from the beginning, by their keys in the run or in KTX.
    pub held: Vec<UnitKey>,
    /// Put together what the units wrote, unless a setting says otherwise.
    pub reconcile: bool,
}

/// Runs what `select` names.
///
/// # Errors
/// As [`run`].
pub fn start(
    global: &Global,
    select: &SelectArgs,
    args: &TermArgs,
    Want { concurrency, held, reconcile }: Want,
) -> Result<Exit, Failure> {
    let config = settings::load(global)?;
    let project = project::open(global)?;
    project.runnable().map_err(|error| Failure::usage(error.to_string()))?;
    if args.model.as_ref().is_some_and(|model| model.trim().is_empty()) {
        return Err(Failure::usage("--model names no model; give one, as in `--model sonnet`"));
    }
    let model = Choice::of(&project, Role::CandidateExtraction, args.model.as_deref()).model;
    let taken = resume::planned(global, &project, select, model.as_deref())?;
    // The lines of the run tell them, as they are on its record.
    let in_lines = show::resolve(global.ui) == Ui::Lines;
    let left_out = match global.ui {
        Ui::Json => taken.planned.warnings.clone(),
        _ => taken.planned.folded_warnings(),
    };
    if !in_lines {
        project::warn(&left_out);
    }
    let terms = Terms {
        model,
        step_budget: positive("--step-budget", args.step_budget)?.unwrap_or(project.settings.work_units.step_budget),
        max_budget_usd: budget("--max-budget-usd", args.max_budget_usd)?,
        run_budget_usd: budget("--max-run-budget-usd", args.max_run_budget_usd)?,
        silence_after: *config.ingest.silence_after,
        timeouts: AttemptTimeouts {
            silence: args.silence_timeout.or(*config.ingest.silence_timeout),
            attempt: args.unit_timeout.or(*config.ingest.unit_timeout),
        },
        partial_messages: *config.ingest.partial_messages,
        pass_env: config.claude.pass_env.value.clone(),
        rule: match *config.ingest.tool_failures {
            ToolFailures::Strict => FailureRule::Strict,
            ToolFailures::Recoverable => FailureRule::Recoverable,
        },
    };
    let slots = positive("--concurrency", concurrency)?.unwrap_or(project.settings.work_units.max_concurrency);
    let pass = Pass::of(reconcile && *config.ingest.reconcile, ground::has_history(&project.root));
    pass.sentences(&taken).iter().for_each(|sentence| show::tell(&format!("ingestdeck: {sentence}")));
    let is_done = taken.is_done() && !pass.is_enough(&taken, select);
    let pass = pass.terms(&taken);
    let pass = pass
        .map(|pass| PassTerms { model: Choice::of(&project, Role::Reconcile, args.model.as_deref()).model, ..pass });
    let told: Vec<String> = taken.left.iter().map(|left| left.sentence(global)).collect();
    project::warn(&told);
    if is_done {
        if let Some(failure) = plan::unusable(&taken) {
            return Err(failure);
        }
        if in_lines {
            project::warn(&left_out);
        }
        project::warn(&taken.planned.skipped.iter().map(|skipped| skipped.why.clone()).collect::<Vec<_>>());
        show::tell(&format!("ingestdeck: {}", plan::nothing(&taken)));
        return Ok(Exit::Ok);
    }
    let Taken { planned, continues, .. } = taken;
    let is_held = |unit: &&PlannedUnit| held.iter().any(|name| *name == unit.unit || name == unit.ktx_key());
    let held = planned.units.iter().map(|unit| &unit.planned).filter(is_held).map(|unit| unit.unit.clone()).collect();
    for source in &planned.sources {
        if let Some(place) = plan::outside(source) {
            show::tell(&format!("ingestdeck: connection {}: {place}", source.connection));
        }
    }
    let ground = Prepared::new(&project, &planned)?;
    let claude = launch::find_claude(global)?;
    doctor::preflight(&claude, &terms.pass_env, args.probe || *config.ingest.probe, terms.model.as_deref())?;
    if ground.branch.is_none() {
        show::tell(&format!("ingestdeck: {}", ground::NO_HISTORY));
    }
    let agent = Agent::Claude(claude);
    let fate = Fate::Project { flag: global.project_dir.clone() };
    let outcome = launch::launch(
        global,
        Launch { project, planned, continues, agent, terms, slots, config, fate, held, ground, reconcile: pass, told },
    )?;
    Ok(outcome.exit)
}

fn budget(flag: &str, value: Option<f64>) -> Result<Option<f64>, Failure> {
    match value {
        Some(budget) if !(budget.is_finite() && budget > 0.0) => {
            Err(Failure::usage(format!("{flag} {budget} is no budget; give a number above 0")))
        }
        value => Ok(value),
    }
}

fn positive(flag: &str, value: Option<u32>) -> Result<Option<u32>, Failure> {
    match value {
        Some(0) => Err(Failure::usage(format!("{flag} 0 would run nothing; give 1 or more"))),
        value => Ok(value),
    }
}
