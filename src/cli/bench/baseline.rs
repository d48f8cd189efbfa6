//! The result of an earlier bench as rules: no figure of a cell may be worse than before. It must not run anything.

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;

use super::{read_named_file, result::Cell};
use crate::{
    cli::exit::{self, CliError},
    diagnostic::Problem,
    run::bench::{BenchFigure, Estimate, GateRule},
};

/// Largest result of a bench, in bytes.
const MAX_RESULT_BYTES: u64 = 64 << 20;

/// The parts of a result that are compared.
#[derive(Debug, Deserialize)]
struct BaselineFile {
    cells: Vec<BaselineCell>,
}

#[derive(Debug, Deserialize)]
struct BaselineCell {
    model: Option<String>,
    prompt: Option<String>,
    score: BTreeMap<String, BaselineScore>,
}

/// A figure of a cell; its values are null if they are unknown.
#[derive(Clone, Copy, Debug, Deserialize)]
struct BaselineScore {
    mean: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
}

/// The rules of each cell that follow from the result in `file`. A cell with another model or prompt has none.
///
/// # Errors
/// If the file is not the result of a bench, or has none of the cells.
pub(super) fn read_rules(file: &Path, cells: &[Cell]) -> Result<Vec<Vec<GateRule>>, CliError> {
    let name = file.display().to_string();
    let failed = |cause: &dyn std::fmt::Display| {
        CliError::usage(format!("cannot read the result {name}"))
            .with_cause(cause)
            .with_help("name the `result.json` of an earlier bench")
    };
    let bytes = read_named_file(file, MAX_RESULT_BYTES).map_err(|error| failed(&error))?;
    let baseline: BaselineFile = serde_json::from_slice(&bytes).map_err(|error| failed(&error))?;
    let same = |cell: &Cell| {
        baseline.cells.iter().find(|before| (&before.model, &before.prompt) == (&cell.model, &cell.prompt))
    };
    if !cells.iter().any(|cell| same(cell).is_some()) {
        return Err(CliError::usage(format!("the result {name} has no model and prompt of this bench"))
            .with_help("give the same --model and --prompt as for that result"));
    }
    for cell in cells.iter().filter(|cell| same(cell).is_none()) {
        let text = format!("{} is not in the result {name}, so it is not compared", cell.name());
        exit::print_warning(&Problem::new(text));
    }
    Ok(cells.iter().map(|cell| same(cell).map(rules).unwrap_or_default()).collect())
}

fn rules(before: &BaselineCell) -> Vec<GateRule> {
    let estimate = |figure: BenchFigure| {
        let BaselineScore { mean, low, high } = *before.score.get(figure.key())?;
        GateRule::not_worse_than(&Estimate { figure, mean, interval: low.zip(high) })
    };
    BenchFigure::all().filter_map(estimate).collect()
}
