//! What a bench prints: its plan, each run, and the scores, for people or as JSON lines.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::cli::{
    args::{GlobalArgs, TableFormat, Ui},
    exit::CliError,
    output, playback_output,
    table::TableWriter,
};
use ingestdeck_bench::{
    BenchDir, BenchOutcome, BenchPlan, BenchResult, RESULT_FILE, VERSION,
    scores::{self, BenchFigure},
};
use ingestdeck_core::{
    run::quality::QualityFigure,
    text::{self, dollars, pluralize},
};
use ingestdeck_report::redact::Redactor;

/// Maximum number of units that the plan names.
const MAX_NAMED: usize = 20;
/// Maximum width of a name, in columns.
const MAX_NAME_WIDTH: usize = 60;
/// Maximum width of an id that a file names, in columns.
const MAX_ID_WIDTH: usize = 40;
/// Maximum width of the reason of a run that is not complete, in columns.
const MAX_REASON_WIDTH: usize = 160;

/// Prints a bench for people or programs.
pub(super) struct BenchOutput {
    ui: Ui,
    project: PathBuf,
}

impl BenchOutput {
    pub(super) fn new(global: &GlobalArgs, project: &Path) -> Self {
        Self {
            ui: global.ui,
            project: project.to_path_buf(),
        }
    }

    /// Prints what will run, before anything is spent.
    pub(super) fn plan(
        &mut self,
        result: &BenchResult,
        forecast: &str,
        bench: &BenchPlan,
        left_out: usize,
    ) -> Result<(), CliError> {
        let (max_cost, baseline) = (bench.max_cost, bench.baseline.as_ref());
        let runs = result.cells.len() * result.repeat as usize;
        if self.ui == Ui::Json {
            let cells: Vec<Value> = result
                .cells
                .iter()
                .enumerate()
                .map(|(index, cell)| cell.to_json(index))
                .collect();
            let mut plan = json!({
                "v": VERSION, "type": "plan", "bench": result.id.to_string(), "commit": result.commit,
                "units": result.units, "cells": cells, "repeat": result.repeat, "runs": runs, "max_cost_usd": max_cost,
            });
            if let Some(baseline) = baseline {
                plan["baseline"] = json!({"bench": baseline.bench, "commit": baseline.commit});
            }
            if left_out > 0 {
                plan["left_out"] = json!(left_out);
            }
            return self.json(plan);
        }
        let commit = result.commit.get(..8).unwrap_or(&result.commit);
        let mut lines = vec![format!("bench {} at commit {commit}", result.id.short())];
        if left_out > 0 {
            lines.push(format!(
                "{left_out} of its pages and sources are left out: earlier runs created them from the same connections"
            ));
        }
        let named = result
            .units
            .iter()
            .take(MAX_NAMED)
            .map(|unit| text::printable(unit, MAX_NAME_WIDTH).into_owned());
        let more = result.units.len().saturating_sub(MAX_NAMED);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let named: Vec<String> = named.collect();
        lines.push(format!(
            "{}: {}{more}",
            pluralize(result.units.len(), "unit"),
            named.join(", ")
        ));
        for (index, cell) in result.cells.iter().enumerate() {
            lines.push(format!("cell {}: {}", index + 1, cell.name()));
        }
        let repeats = pluralize(result.repeat as usize, "repeat");
        lines.push(format!(
            "{} × {repeats} = {}",
            pluralize(result.cells.len(), "cell"),
            pluralize(runs, "run")
        ));
        lines.push(format!("forecast by earlier runs of any model: {forecast}"));
        lines.extend(max_cost.map(|cost| format!("cost limit: {}", dollars(Some(cost)))));
        lines.extend(baseline.map(|before| {
            let bench = text::printable(&before.bench, MAX_ID_WIDTH);
            let commit = before.commit.get(..8).unwrap_or(&before.commit);
            format!(
                "compared with bench {bench} at commit {}",
                text::printable(commit, MAX_ID_WIDTH)
            )
        }));
        self.lines(&lines)
    }

    /// Prints the run that ended last.
    pub(super) fn last_run(&mut self, result: &BenchResult) -> Result<(), CliError> {
        let Some(finished) = result.runs.last() else {
            return Ok(());
        };
        if self.ui == Ui::Json {
            return self.json(tagged("run", finished.to_json()));
        }
        let run = &finished.run;
        let runs = result.cells.len() * result.repeat as usize;
        let cost = dollars(run.quality.value(QualityFigure::Cost));
        let incomplete = match &finished.reason {
            _ if run.is_complete => String::new(),
            Some(reason) => {
                format!(
                    " · incomplete, does not count: {}",
                    text::printable(reason, MAX_REASON_WIDTH)
                )
            }
            None => " · incomplete, does not count".to_owned(),
        };
        let step = if run.is_reconciled || !run.is_complete {
            ""
        } else {
            " · reconcile step failed"
        };
        let kept = finished
            .clone
            .as_ref()
            .map(|clone| format!(" · kept in {}", clone.display()))
            .unwrap_or_default();
        self.lines(&[format!(
            "run {} of {runs}: cell {}, repeat {} · {} of {} succeeded · {cost} · {}{step}{incomplete}{kept}",
            result.runs.len(),
            run.cell + 1,
            run.repeat,
            run.succeeded_units,
            pluralize(run.units, "unit"),
            text::seconds(run.duration),
        )])
    }

    /// Prints the score of each cell, and whether it meets the rules.
    pub(super) fn scores(&mut self, result: &BenchResult) -> Result<(), CliError> {
        match self.ui {
            Ui::None => return Ok(()),
            Ui::Json => {
                (0..result.cells.len())
                    .try_for_each(|index| self.json(tagged("cell", result.cell_json(index))))?;
                return result
                    .gates
                    .iter()
                    .try_for_each(|gate| self.json(tagged("gate", gate.to_json())));
            }
            Ui::Auto | Ui::Tui | Ui::Lines => {}
        }
        let cells = result
            .cells
            .iter()
            .enumerate()
            .map(|(index, cell)| format!("{} {}", index + 1, cell.name()));
        let columns: Vec<String> = ["figure".to_owned()].into_iter().chain(cells).collect();
        let redactor = Redactor::for_process(Some(&self.project));
        let mut table = TableWriter::new(TableFormat::Text, columns, None, redactor);
        let scored: Vec<_> = (0..result.cells.len())
            .map(|index| scores::score(result.runs_of(index)))
            .collect();
        for (row, figure) in BenchFigure::all().enumerate() {
            let cells = scored.iter().map(|score| score[row].text());
            table.push(
                [figure.label().to_owned()]
                    .into_iter()
                    .chain(cells)
                    .map(Value::from)
                    .collect(),
            );
        }
        let mut note = "mean (95% interval) of the complete runs of each cell\n".to_owned();
        for gate in &result.gates {
            let (glyph, cell) = (if gate.is_met { '✓' } else { '✗' }, gate.cell + 1);
            note.push_str(&format!(
                "{glyph} gate {}: in cell {cell}, {}\n",
                gate.rule, gate.found
            ));
        }
        table.finish(&note)
    }

    /// Prints how the bench ended, and where its results are.
    pub(super) fn end(&mut self, result: &BenchResult, dir: &BenchDir) -> Result<(), CliError> {
        let path = dir.relative_path(RESULT_FILE);
        if self.ui == Ui::Json {
            let outcome = result.outcome.as_str();
            let gates = result.gates.iter().all(|gate| gate.is_met);
            let mut end = json!({
                "v": VERSION, "type": "bench", "bench": result.id.to_string(), "outcome": outcome,
                "runs": result.runs.len(), "gates_met": gates, "result": path,
            });
            if let Some(error) = &result.error {
                end["error"] = json!(error);
            }
            return self.json(end);
        }
        let runs = result.cells.len() * result.repeat as usize;
        let mut lines = Vec::new();
        if result.outcome != BenchOutcome::Complete {
            let word = result.outcome.as_str();
            lines.push(format!(
                "{word}: {} of {runs} runs recorded",
                result.runs.len()
            ));
        }
        lines.push(format!(
            "result: {path}; `ingestdeck diff`, `report` and `replay` open the tapes next to it"
        ));
        self.lines(&lines)
    }

    fn lines(&self, lines: &[String]) -> Result<(), CliError> {
        if self.ui == Ui::None {
            return Ok(());
        }
        let mut out = output::stdout_for(Ui::Lines);
        let written = lines
            .iter()
            .try_for_each(|line| writeln!(out, "{line}"))
            .and_then(|()| out.flush());
        written.map_err(|error| playback_output::stdout_failed(&error))
    }

    fn json(&self, value: Value) -> Result<(), CliError> {
        let mut out = output::stdout_for(Ui::Json);
        let written = writeln!(out, "{value}").and_then(|()| out.flush());
        written.map_err(|error| playback_output::stdout_failed(&error))
    }
}

/// The object with version and type in front.
fn tagged(kind: &str, value: Value) -> Value {
    let mut tagged = json!({"v": VERSION, "type": kind});
    if let (Some(tagged), Value::Object(fields)) = (tagged.as_object_mut(), value) {
        tagged.extend(fields);
    }
    tagged
}
