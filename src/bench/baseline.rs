//! The result of an earlier bench as rules: no figure of a cell may be worse than before. It must not run anything.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde::Deserialize;

use super::{
    BenchError, read_named_file,
    result::{BenchOutcome, Cell},
    scores::{BenchFigure, Estimate, GateRule},
};
use ingestdeck_core::diagnostic::Problem;

/// Largest result of a bench, in bytes.
const MAX_RESULT_BYTES: u64 = 64 << 20;

/// The parts of a result that are compared.
#[derive(Debug, Deserialize)]
struct BaselineFile {
    bench: String,
    commit: String,
    outcome: String,
    units: BTreeSet<String>,
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

/// What a bench is compared with.
#[derive(Debug)]
pub struct EarlierBench {
    pub bench: String,
    pub commit: String,
    units: BTreeSet<String>,
    /// The rules of each cell. A cell with another model or prompt has none.
    pub rules: Vec<Vec<GateRule>>,
}

impl EarlierBench {
    /// Reads the result in `file`, for the bench of `cells`.
    ///
    /// # Errors
    /// If the file is not the result of a bench that came to its end, or has none of the cells, or no figure of one.
    pub fn read(file: &Path, cells: &[Cell], warn: &dyn Fn(&Problem)) -> Result<Self, BenchError> {
        let name = file.display().to_string();
        let failed = |cause: &dyn std::fmt::Display| {
            BenchError::usage(
                format!("cannot read the result {name}: {cause}"),
                "name the `result.json` of an earlier bench",
            )
        };
        let bytes = read_named_file(file, MAX_RESULT_BYTES).map_err(|error| failed(&error))?;
        let before: BaselineFile =
            serde_json::from_slice(&bytes).map_err(|error| failed(&error))?;
        if before.outcome != BenchOutcome::Complete.as_str() {
            let message = format!(
                "the bench of {name} is not complete: its outcome is {:?}",
                before.outcome
            );
            return Err(BenchError::usage(
                message,
                "name the result of a bench that came to its end",
            ));
        }
        let same = |cell: &Cell| {
            before
                .cells
                .iter()
                .find(|it| (&it.model, &it.prompt) == (&cell.model, &cell.prompt))
        };
        if !cells.iter().any(|cell| same(cell).is_some()) {
            return Err(BenchError::usage(
                format!("the result {name} has no model and prompt of this bench"),
                "give the same --model and --prompt as for that result",
            ));
        }
        let mut rules = Vec::new();
        for cell in cells {
            let before = same(cell);
            let of_cell = before.map(no_worse_rules).unwrap_or_default();
            match before {
                None => {
                    let text = format!(
                        "{} is not in the result {name}, so it is not compared",
                        cell.name()
                    );
                    warn(&Problem::new(text));
                }
                Some(_) if of_cell.is_empty() => {
                    let message =
                        format!("the result {name} has no known figure of {}", cell.name());
                    return Err(BenchError::usage(
                        message,
                        "name a result in which every model has a run",
                    ));
                }
                Some(_) => {}
            }
            rules.push(of_cell);
        }
        Ok(Self {
            bench: before.bench,
            commit: before.commit,
            units: before.units,
            rules,
        })
    }

    /// A warning if the bench has other units than the one it is compared with.
    pub fn units_warning(&self, units: &[String]) -> Option<Problem> {
        let added = units
            .iter()
            .filter(|unit| !self.units.contains(*unit))
            .count();
        let missing = self
            .units
            .iter()
            .filter(|unit| !units.contains(unit))
            .count();
        let text = format!(
            "the earlier bench had other units ({added} are new, {missing} are missing), so figures may differ for \
             this reason"
        );
        (added + missing > 0)
            .then(|| Problem::new(text).with_help("repeat the earlier bench with the same units"))
    }
}

fn no_worse_rules(before: &BaselineCell) -> Vec<GateRule> {
    let estimate = |figure: BenchFigure| {
        let BaselineScore { mean, low, high } = *before.score.get(figure.key())?;
        GateRule::not_worse_than(&Estimate {
            figure,
            mean,
            interval: low.zip(high),
        })
    };
    BenchFigure::all().filter_map(estimate).collect()
}
