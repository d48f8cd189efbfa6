//! The command `bench`: runs the units of a project with several models and prompts, and scores each combination, a
//! cell.
//!
//! Each run is this program in a temporary clone of the commit at HEAD, so it is an ordinary run. `cell_run` starts
//! one, `result` is the file with the results, `scores` has the figures and the rules, and `baseline` those of an earlier
//! bench. [`rehearsal`] repeats a recorded run in the same way. It must not know how anything is printed.

mod args;
mod baseline;
mod cell_run;
pub mod rehearsal;
mod result;
pub mod scores;

use std::{collections::BTreeSet, fmt::Display, io, path::Path};

pub use self::{
    args::BenchArgs,
    baseline::EarlierBench,
    cell_run::{CellRunner, ChildControl, CloneDir},
    result::{BenchDir, BenchOutcome, BenchResult, Cell, RESULT_FILE, VERSION},
};
use self::{
    cell_run::{BenchRunBudget, RunEnd},
    result::GateOutcome,
    scores::GateRule,
};
use ingestdeck_core::{
    diagnostic::{Diagnostic, Problem},
    exit::Exit,
    run::quality::QualityFigure,
    text,
};
use ingestdeck_ingest::instructions;
use ingestdeck_os::scoped_dir::ScopedDir;

/// Why a bench ended, and how the program ends.
#[derive(Debug)]
pub struct BenchError {
    pub exit: Exit,
    pub problem: Problem,
}

impl BenchError {
    fn new(exit: Exit, problem: impl Into<Problem>) -> Self {
        Self {
            exit,
            problem: problem.into(),
        }
    }

    fn usage(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self::new(Exit::Usage, Problem::new(message).with_help(help))
    }

    /// The program itself failed to do `what`.
    fn failed(what: impl Display, cause: impl Display) -> Self {
        Self::new(Exit::Internal, format!("{what}: {cause}"))
    }
}

/// An error of another layer.
impl<E: Diagnostic> From<E> for BenchError {
    fn from(error: E) -> Self {
        Self::new(Exit::Internal, Problem::from_error(&error))
    }
}

/// Instructions that replace those of the project.
#[derive(Clone, Debug)]
pub(crate) struct PromptFile {
    /// As the user named it.
    name: String,
    text: Vec<u8>,
}

/// What a bench runs.
#[derive(Debug)]
pub struct BenchPlan {
    pub cells: Vec<Cell>,
    prompts: Vec<Option<PromptFile>>,
    /// The rules of each cell.
    gates: Vec<Vec<GateRule>>,
    pub baseline: Option<EarlierBench>,
    /// US dollars for all runs.
    pub max_cost: Option<f64>,
}

/// Why the runs of a bench ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchEnd {
    Complete,
    /// A limit ended a run, or the cost limit is reached.
    Limit,
    Interrupted,
}

impl BenchPlan {
    /// Validates everything that does not need the project.
    pub fn new(args: &BenchArgs, warn: &dyn Fn(&Problem)) -> Result<Self, BenchError> {
        let gate = |text: &String| {
            GateRule::parse(text).map_err(|expected| {
                BenchError::new(Exit::Usage, format!("invalid --gate `{text}`: {expected}"))
            })
        };
        let gates = args.gate.iter().map(gate).collect::<Result<Vec<_>, _>>()?;
        if let Some(cost) = args
            .max_cost
            .filter(|cost| !(cost.is_finite() && *cost > 0.0))
        {
            let message = format!("invalid --max-cost `{cost}`; expected a number above 0");
            return Err(BenchError::new(Exit::Usage, message));
        }
        if args.model.iter().any(|model| model.trim().is_empty()) {
            let help = "give one, as in `--model sonnet`";
            return Err(BenchError::usage("--model names no model", help));
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
            return Err(BenchError::usage(
                format!("{twice} is given twice"),
                "name each model and prompt once; --repeat sets the number of runs",
            ));
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
            .map(|file| EarlierBench::read(file, &cells, warn))
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

fn read_prompt(file: &Path) -> Result<PromptFile, BenchError> {
    let name = file.display().to_string();
    let failed = |cause: &dyn Display| {
        let limit = text::size(instructions::MAX_FILE_BYTES);
        BenchError::usage(
            format!("cannot read the prompt {name}: {cause}"),
            format!("name a text file of at most {limit}"),
        )
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

/// Runs every cell once, then again until all repeats are done. At most `slots` units of a run are active.
///
/// # Errors
/// If a run cannot be started or recorded, or `print` fails for it.
pub async fn run_cells(
    plan: &BenchPlan,
    runner: &CellRunner<'_>,
    slots: usize,
    control: &ChildControl,
    result: &mut BenchResult,
    warn: &dyn Fn(&Problem),
    print: &mut dyn FnMut(&BenchResult) -> Result<(), BenchError>,
) -> Result<BenchEnd, BenchError> {
    let mut spent = Some(0.0);
    for repeat in 1..=runner.args.repeat {
        for (index, cell) in plan.cells.iter().enumerate() {
            let left = match (plan.max_cost, spent) {
                (None, _) => None,
                (Some(limit), Some(spent)) if spent < limit => Some(limit - spent),
                (Some(_), Some(_)) => {
                    warn(&Problem::new(
                        "the cost limit is reached, so no further run starts",
                    ));
                    return Ok(BenchEnd::Limit);
                }
                (Some(_), None) => {
                    let text = "the cost of a run is unknown, so --max-cost cannot be kept and no further run starts";
                    warn(&Problem::new(text).with_help("leave out --max-cost"));
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
                print(result)?;
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

/// Checks that every cell has a score.
///
/// # Errors
/// If a cell has no complete run; names its number and its model.
pub fn check_runs(result: &BenchResult) -> Result<(), BenchError> {
    let is_empty = |index: &usize| !result.runs_of(*index).any(|run| run.is_complete);
    let Some(index) = (0..result.cells.len()).find(is_empty) else {
        return Ok(());
    };
    let name = result.cells[index].name();
    let number = index + 1;
    let problem = Problem::new(format!(
        "cell {number} ({name}) has no complete run, so no score"
    ));
    let help = "see the reasons above and the reports of its tapes";
    Err(BenchError::new(Exit::UnitFailed, problem.with_help(help)))
}

/// Checks every cell against every rule.
pub fn check_gates(plan: &BenchPlan, result: &BenchResult) -> Vec<GateOutcome> {
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
