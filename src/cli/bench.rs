//! `bench`: runs the units of a project with several models and prompts, and scores each combination, a cell.
//!
//! Each run is this program in a temporary clone of the commit at HEAD, so it is an ordinary run. `cell_run` starts
//! one, `result` is the file with the results, and `output` prints them. [`ingestdeck_core::run::bench`] has the scores.

mod baseline;
mod cell_run;
mod output;
mod result;

use std::{collections::BTreeSet, io, path::Path, sync::Arc};

use self::{
    baseline::EarlierBench,
    cell_run::{BenchRunBudget, CellRunner, ChildControl, CloneDir, RunEnd},
    output::BenchOutput,
    result::{BenchDir, BenchOutcome, BenchResult, Cell, GateOutcome},
};
use super::{
    args::{BenchArgs, GlobalArgs, SelectArgs},
    exit::{self, CliError, Exit, SIGINT},
    launch, plan, policy, project, settings,
    signals::{ShutdownState, SignalListener},
};
use ingestdeck_agent::private_dir;
use ingestdeck_core::{
    diagnostic::{Diagnostic as _, Problem},
    run::{
        bench::{self as scores, GateRule},
        quality::QualityFigure,
    },
    text::{self, pluralize},
};
use ingestdeck_engine::{recorded_tapes, resume::RunPlan};
use ingestdeck_ingest::{instructions, project::Project, project_snapshot::ProjectSnapshot};
use ingestdeck_os::scoped_dir::ScopedDir;
use ingestdeck_records::store::RunStore;

/// Instructions that replace those of the project.
#[derive(Clone, Debug)]
struct PromptFile {
    /// As the user named it.
    name: String,
    text: Vec<u8>,
}

/// What a bench runs.
#[derive(Debug)]
struct BenchPlan {
    cells: Vec<Cell>,
    prompts: Vec<Option<PromptFile>>,
    /// The rules of each cell.
    gates: Vec<Vec<GateRule>>,
    baseline: Option<EarlierBench>,
    max_cost: Option<f64>,
}

/// Why the runs of a bench ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BenchEnd {
    Complete,
    /// A limit ended a run, or the cost limit is reached.
    Limit,
    Interrupted,
}

/// Runs every cell the wanted number of times, and prints and records the scores.
///
/// # Errors
/// If an argument is invalid, the project has no committed state or no such units, or a run cannot be started.
pub(super) fn bench(global: &GlobalArgs, args: &BenchArgs) -> Result<Exit, CliError> {
    let plan = BenchPlan::new(args)?;
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
    let forecast = plan::forecast_rounds(&efforts, concurrency, &planned.planned.units, rounds);
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
        global,
        args,
        snapshot,
        rules,
        claude: &claude,
        dir: &dir,
    };
    let control = ChildControl::default();
    let waited = runtime.block_on(async {
        let running = run_cells(&plan, &runner, slots, &control, &mut result, &mut output);
        signals
            .wait_for(ShutdownState::default(), running, async |command| {
                control.handle(command).await
            })
            .await
    });
    let (ended, signal) = match waited {
        Ok((ended, signal)) => (ended, signal),
        Err(error) => (Err(error), None),
    };
    finish_bench(&plan, &dir, result, &mut output, ended, signal)
}

impl BenchPlan {
    /// Validates everything that does not need the project.
    fn new(args: &BenchArgs) -> Result<Self, CliError> {
        let gate = |text: &String| {
            GateRule::parse(text)
                .map_err(|expected| CliError::usage(format!("invalid --gate `{text}`: {expected}")))
        };
        let gates = args.gate.iter().map(gate).collect::<Result<Vec<_>, _>>()?;
        if let Some(cost) = args
            .max_cost
            .filter(|cost| !(cost.is_finite() && *cost > 0.0))
        {
            return Err(CliError::usage(format!(
                "invalid --max-cost `{cost}`; expected a number above 0"
            )));
        }
        if args.model.iter().any(|model| model.trim().is_empty()) {
            return Err(CliError::usage("--model names no model")
                .with_help("give one, as in `--model sonnet`"));
        }
        let prompts = match args.prompt.as_slice() {
            [] => vec![None],
            files => files
                .iter()
                .map(|file| read_prompt(file).map(Some))
                .collect::<Result<_, _>>()?,
        };
        let paths: Vec<_> = args
            .prompt
            .iter()
            .map(|file| std::path::absolute(file).unwrap_or_else(|_| file.clone()))
            .collect();
        let twice = repeated(&args.model).map(|model| format!("--model {model}"));
        let twice =
            twice.or_else(|| repeated(&paths).map(|file| format!("--prompt {}", file.display())));
        if let Some(twice) = twice {
            return Err(CliError::usage(format!("{twice} is given twice"))
                .with_help("name each model and prompt once; --repeat sets the number of runs"));
        }
        let models = match args.model.as_slice() {
            [] => vec![None],
            models => models.iter().cloned().map(Some).collect(),
        };
        let cell = |model: &Option<String>, index: usize| Cell {
            model: model.clone(),
            prompt: prompts[index].as_ref().map(|prompt| prompt.name.clone()),
            prompt_index: index,
        };
        let of_model = |model| (0..prompts.len()).map(move |index| (model, index));
        let cells: Vec<Cell> = models
            .iter()
            .flat_map(of_model)
            .map(|(model, index)| cell(model, index))
            .collect();
        let mut gates = vec![gates; cells.len()];
        let baseline = args
            .gate_against
            .as_ref()
            .map(|file| EarlierBench::read(file, &cells))
            .transpose()?;
        if let Some(before) = &baseline {
            gates
                .iter_mut()
                .zip(&before.rules)
                .for_each(|(of_cell, rules)| of_cell.extend_from_slice(rules));
        }
        Ok(Self {
            cells,
            prompts,
            gates,
            baseline,
            max_cost: args.max_cost,
        })
    }
}

/// The first value that is there twice.
fn repeated<T: Ord>(values: &[T]) -> Option<&T> {
    let mut known = BTreeSet::new();
    values.iter().find(|value| !known.insert(*value))
}

fn read_prompt(file: &Path) -> Result<PromptFile, CliError> {
    let name = file.display().to_string();
    let failed = |cause: &dyn std::fmt::Display| {
        CliError::usage(format!("cannot read the prompt {name}"))
            .with_cause(cause)
            .with_help(format!(
                "name a text file of at most {}",
                text::size(instructions::MAX_FILE_BYTES)
            ))
    };
    let text =
        read_named_file(file, instructions::MAX_FILE_BYTES).map_err(|error| failed(&error))?;
    match std::str::from_utf8(&text) {
        Err(_) => Err(failed(&"it is not UTF-8 text")),
        Ok(text) if text.trim().is_empty() => Err(failed(&"it is empty")),
        Ok(_) => Ok(PromptFile {
            name: name.clone(),
            text,
        }),
    }
}

/// Reads a file that the command line names, of at most `limit` bytes.
fn read_named_file(file: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let directory = match file.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let base = file.file_name().and_then(|base| base.to_str());
    let base = base.ok_or_else(|| io::Error::other("the path has no file name in UTF-8"))?;
    ScopedDir::open(directory)?.read(base, limit)
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
    let paths = settings::allowed_paths(global)?;
    let project = project::read(clone.path())?.with_allowed_paths(paths.allowed, &paths.file);
    let run = project::plan_run(&of_clone, &project, &selection(args), None)?;
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
fn prior_efforts(project: &Project) -> Vec<ingestdeck_records::store::db::UnitEffort> {
    let store = RunStore::new(&project.root);
    if store.list().map_or(true, |runs| runs.is_empty()) {
        return Vec::new();
    }
    let index = recorded_tapes::open_updated_index(&store).ok();
    index
        .and_then(|(db, _)| db.prior_efforts().ok())
        .unwrap_or_default()
}

/// Runs every cell once, then again until all repeats are done. At most `slots` units of a run are active.
async fn run_cells(
    plan: &BenchPlan,
    runner: &CellRunner<'_>,
    slots: usize,
    control: &ChildControl,
    result: &mut BenchResult,
    output: &mut BenchOutput,
) -> Result<BenchEnd, CliError> {
    let mut spent = Some(0.0);
    for repeat in 1..=runner.args.repeat {
        for (index, cell) in plan.cells.iter().enumerate() {
            let left = match (plan.max_cost, spent) {
                (None, _) => None,
                (Some(limit), Some(spent)) if spent < limit => Some(limit - spent),
                (Some(_), Some(_)) => {
                    exit::print_warning(&Problem::new(
                        "the cost limit is reached, so no further run starts",
                    ));
                    return Ok(BenchEnd::Limit);
                }
                (Some(_), None) => {
                    let text = "the cost of a run is unknown, so --max-cost cannot be kept and no further run starts";
                    exit::print_warning(&Problem::new(text).with_help("leave out --max-cost"));
                    return Ok(BenchEnd::Limit);
                }
            };
            let budget = left.map(|run| BenchRunBudget::new(run, slots));
            let prompt = plan.prompts[cell.prompt_index].as_ref();
            let Some(ended) = runner
                .run((index, repeat), cell, prompt, budget, control)
                .await?
            else {
                return Ok(BenchEnd::Interrupted);
            };
            if let Some(finished) = ended.finished {
                spent = spent
                    .zip(finished.run.quality.value(QualityFigure::Cost))
                    .map(|(sum, cost)| sum + cost);
                result.runs.push(finished);
                // A reader of the output that is gone must not lose the run.
                runner.dir.write_result(result)?;
                output.last_run(result)?;
            }
            match ended.cause {
                RunEnd::Finished => {}
                RunEnd::Limit => return Ok(BenchEnd::Limit),
                RunEnd::Interrupted => return Ok(BenchEnd::Interrupted),
                RunEnd::Failed(error) => return Err(error),
            }
        }
    }
    Ok(BenchEnd::Complete)
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
        Ok(BenchEnd::Complete) => check_runs(&result).map(|()| BenchEnd::Complete),
        ended => ended,
    };
    result.outcome = match &ended {
        Ok(BenchEnd::Complete) => BenchOutcome::Complete,
        Ok(BenchEnd::Limit) => BenchOutcome::Limit,
        Ok(BenchEnd::Interrupted) => BenchOutcome::Interrupted,
        Err(_) => BenchOutcome::Failed,
    };
    result.error = ended.as_ref().err().map(|error| error.to_line());
    result.gates = check_gates(plan, &result);
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

/// Fails if a cell has no complete run, so no score.
fn check_runs(result: &BenchResult) -> Result<(), CliError> {
    let is_empty = |index: &usize| !result.runs_of(*index).any(|run| run.is_complete);
    let Some(index) = (0..result.cells.len()).find(is_empty) else {
        return Ok(());
    };
    let name = result.cells[index].name();
    Err(CliError::new(
        Exit::UnitFailed,
        format!(
            "cell {} ({name}) has no complete run, so no score",
            index + 1
        ),
    )
    .with_help("see the reasons above and the reports of its tapes"))
}

/// Checks every cell against every rule.
fn check_gates(plan: &BenchPlan, result: &BenchResult) -> Vec<GateOutcome> {
    let mut outcomes = Vec::new();
    for (cell, rules) in plan.gates.iter().enumerate() {
        let score = scores::score(result.runs_of(cell));
        for rule in rules {
            let checked = rule.check(&score);
            let (rule, is_met, found) = (rule.text.clone(), checked.is_met, checked.found);
            outcomes.push(GateOutcome {
                rule,
                cell,
                is_met,
                found,
            });
        }
    }
    outcomes
}
