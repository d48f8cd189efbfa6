//! `bench`: runs the units of a project with several models and prompts, and scores each combination, a cell.
//!
//! The crate [`ingestdeck_bench`] runs and scores the cells; `output` prints them.

mod output;

use std::{collections::BTreeSet, sync::Arc};

use self::output::BenchOutput;
use super::{
    args::{BenchArgs, GlobalArgs, SelectArgs},
    exit::{self, CliError, Exit, SIGINT},
    launch,
    plan::{self, PlanForecast},
    policy,
    project::{self, PlannedAttempts},
    settings,
    signals::{ShutdownState, SignalListener},
};
use ingestdeck_agent::private_dir;
use ingestdeck_bench::{
    self as cells, BenchDir, BenchEnd, BenchError, BenchOutcome, BenchPlan, BenchResult,
    CellRunner, ChildControl, CloneDir,
};
use ingestdeck_core::{
    diagnostic::{Diagnostic as _, Problem},
    text::{self, pluralize},
};
use ingestdeck_engine::{recorded_tapes, resume::RunPlan};
use ingestdeck_ingest::{project::Project, project_snapshot::ProjectSnapshot};
use ingestdeck_records::store::{RunStore, db::PriorEfforts};

/// Runs every cell the wanted number of times, and prints and records the scores.
///
/// # Errors
/// If an argument is invalid, the project has no committed state or no such units, or a run cannot be started.
pub(super) fn bench(global: &GlobalArgs, args: &BenchArgs) -> Result<Exit, CliError> {
    let plan = BenchPlan::new(args, &exit::print_warning)?;
    let project = project::open(global)?;
    let snapshot = ProjectSnapshot::open(&project.root)
        .map_err(|error| CliError::from_error(Exit::Usage, &error))?;
    let rules = policy::read_project_file(&project.root)?;
    warn_about_changes(&snapshot, rules.is_some());
    let claude = launch::find_claude(global)?;
    private_dir::remove_abandoned_dirs();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::failed("cannot start the runtime").with_cause(error))?;
    // From here on, a signal must not end this process before it has deleted its clones.
    let signals = {
        let _context = runtime.enter();
        SignalListener::listen()?
    };
    // The project may change while the bench runs, so all clones are clones of this one.
    let base = CloneDir::create(&snapshot, false)?;
    let planned = plan_units(global, args, &base)?;
    let outputs = earlier_outputs(&snapshot, &planned.run)?;
    let commit = snapshot.commit.clone();
    let snapshot = ProjectSnapshot::open(base.path()).map_err(CliError::internal)?;
    let snapshot = match outputs.is_empty() {
        true => snapshot,
        false => snapshot
            .without_files(&outputs)
            .map_err(CliError::internal)?,
    };
    let snapshot = Arc::new(snapshot);
    let concurrency = planned.concurrency;
    let planned = planned.run;
    let units: Vec<String> = planned
        .planned
        .units
        .iter()
        .map(|unit| unit.planned.unit.to_string())
        .collect();
    let rounds = plan.cells.len() * args.repeat as usize;
    let efforts = prior_efforts(&project);
    let units_of_plan = &planned.planned.units;
    let outlook = PlanForecast::new(&project, units_of_plan, &efforts, None, concurrency);
    let forecast = outlook.sum_text(std::iter::repeat_n(units_of_plan, rounds).flatten());
    let dir = BenchDir::create(&project.root)?;
    let mut result = BenchResult::new(&dir, &commit, units, plan.cells.clone(), args.repeat);
    let mut output = BenchOutput::new(global, &project.root);
    if let Err(error) = output.plan(&result, &forecast, &plan, outputs.len()) {
        return finish_bench(&plan, &dir, result, &mut output, Err(error), None);
    }
    plan.baseline
        .iter()
        .filter_map(|it| it.units_warning(&result.units))
        .for_each(|it| exit::print_warning(&it));
    let slots = result.units.len().min(concurrency as usize);
    let runner = CellRunner {
        config: global.config.as_deref(),
        args,
        snapshot,
        rules: rules.map(|rules| (policy::PROJECT_FILE.to_owned(), rules)),
        claude: &claude,
        dir: &dir,
    };
    let control = ChildControl::default();
    let waited = runtime.block_on(async {
        let mut print = |result: &BenchResult| {
            output.last_run(result).map_err(|error| BenchError {
                exit: error.exit,
                problem: Problem::from_error(&error),
            })
        };
        let running = cells::run_cells(
            &plan,
            &runner,
            slots,
            &control,
            &mut result,
            &exit::print_warning,
            &mut print,
        );
        signals
            .wait_for(ShutdownState::default(), running, async |command| {
                control.handle(command).await
            })
            .await
    });
    let (ended, signal) = match waited {
        Ok((ended, signal)) => (ended.map_err(CliError::from), signal),
        Err(error) => (Err(error), None),
    };
    finish_bench(&plan, &dir, result, &mut output, ended, signal)
}

/// A bench measures the commit, which may differ from what the user sees.
fn warn_about_changes(snapshot: &ProjectSnapshot, has_rules: bool) {
    const MAX_NAMED: usize = 3;
    let Ok(mut files) = snapshot.uncommitted_files() else {
        return;
    };
    if has_rules {
        // Every clone gets them.
        files.remove(policy::PROJECT_FILE);
    }
    if files.is_empty() {
        return;
    }
    let names: Vec<_> = files
        .iter()
        .take(MAX_NAMED)
        .map(|file| text::printable(file, 60).into_owned())
        .collect();
    let more = if files.len() > MAX_NAMED { ", …" } else { "" };
    let count = pluralize(files.len(), "file");
    let problem = Problem::new(format!(
        "{count} not committed, so the bench does not include them: {}{more}",
        names.join(", ")
    ));
    exit::print_warning(&problem.with_help("commit them to include them"));
}

/// The selection of each run.
fn selection(args: &BenchArgs) -> SelectArgs {
    SelectArgs {
        only: args.units.clone(),
        full: true,
        ..SelectArgs::default()
    }
}

/// What a run of the bench does.
struct PlannedUnits {
    run: RunPlan,
    /// Maximum number of units that run concurrently.
    concurrency: u32,
}

/// The units of the commit.
fn plan_units(
    global: &GlobalArgs,
    args: &BenchArgs,
    clone: &CloneDir,
) -> Result<PlannedUnits, CliError> {
    let of_clone = GlobalArgs {
        project_dir: Some(clone.path().to_path_buf()),
        ..global.clone()
    };
    let (permissions, _) = settings::permissions(global)?;
    let project = project::read(clone.path())?.with_permissions(permissions);
    let run = project::plan_run(
        &of_clone,
        &project,
        &selection(args),
        PlannedAttempts::default(),
    )?;
    if run.planned.units.is_empty() {
        return Err(plan::unusable_plan_error(&run).unwrap_or_else(|| {
            CliError::not_found("the commit at HEAD has no units")
                .with_help("commit the files of the sources")
        }));
    }
    Ok(PlannedUnits {
        run,
        concurrency: project.settings.work_units.max_concurrency,
    })
}

/// Pages and sources that earlier runs created from the connections of the units. The runs would find them finished, so
/// that no candidate would score for them.
fn earlier_outputs(
    snapshot: &ProjectSnapshot,
    run: &RunPlan,
) -> Result<BTreeSet<String>, CliError> {
    let units = run.planned.units.iter();
    let connections = units.map(|unit| unit.planned.connection.as_str()).collect();
    snapshot
        .ingested_artifacts(&connections)
        .map_err(|error| CliError::from_error(Exit::Usage, &error))
}

/// Efforts of units in the runs of the project; none without a usable index.
fn prior_efforts(project: &Project) -> PriorEfforts {
    let store = RunStore::new(&project.root);
    if store.list().map_or(true, |runs| runs.is_empty()) {
        return PriorEfforts::default();
    }
    let index = recorded_tapes::open_updated_index(&store).ok();
    index
        .and_then(|(db, _)| db.prior_efforts().ok())
        .unwrap_or_default()
}

/// Writes and prints what the bench found. The results so far are kept, whatever failed.
fn finish_bench(
    plan: &BenchPlan,
    dir: &BenchDir,
    mut result: BenchResult,
    output: &mut BenchOutput,
    ended: Result<BenchEnd, CliError>,
    signal: Option<Exit>,
) -> Result<Exit, CliError> {
    let ended = match ended {
        Ok(BenchEnd::Complete) => cells::check_runs(&result)
            .map(|()| BenchEnd::Complete)
            .map_err(CliError::from),
        ended => ended,
    };
    result.outcome = match &ended {
        Ok(BenchEnd::Complete) => BenchOutcome::Complete,
        Ok(BenchEnd::Limit) => BenchOutcome::Limit,
        Ok(BenchEnd::Interrupted) => BenchOutcome::Interrupted,
        Err(_) => BenchOutcome::Failed,
    };
    result.error = ended.as_ref().err().map(|error| error.to_line());
    result.gates = cells::check_gates(plan, &result);
    dir.write_result(&result)?;
    let printed = output
        .scores(&result)
        .and_then(|()| output.end(&result, dir));
    // The first error is the cause.
    let end = ended?;
    printed?;
    let is_met = result.gates.iter().all(|gate| gate.is_met);
    Ok(match end {
        BenchEnd::Interrupted => signal.unwrap_or(Exit::Signal(SIGINT)),
        BenchEnd::Limit => Exit::Limit,
        BenchEnd::Complete if is_met => Exit::Ok,
        BenchEnd::Complete => Exit::GateFailed,
    })
}
