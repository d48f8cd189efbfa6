//! `plan`: what would run, and why.

use std::io::{self, Write as _};

use serde_json::json;

use super::{
    args::{Global, SelectArgs, Ui},
    exit::{Exit, Failure},
    model::Choice,
    project,
    summary::counted,
};
use crate::{
    ingest::{plan::Planned, project::Role},
    tui::text,
};

/// Prints the plan.
///
/// # Errors
/// When there is no project, or nothing in it that matches.
pub fn plan(global: &Global, select: &SelectArgs) -> Result<Exit, Failure> {
    let project = project::open(global)?;
    let planned = project::planned(&project, select)?;
    project::warn(&planned.warnings);
    let choice = Choice::of(&project, Role::CandidateExtraction, None);
    let printed = match global.ui {
        Ui::Json => objects(&planned, &choice),
        Ui::None => Ok(()),
        Ui::Auto | Ui::Tui | Ui::Lines => table(&planned, &choice),
    };
    printed.map_err(|error| super::show::stdout_failed(&error))?;
    Ok(Exit::Ok)
}

fn objects(planned: &Planned, choice: &Choice) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for unit in planned.units.iter().map(|unit| &unit.planned) {
        let object = json!({
            "unit": unit.unit, "connection": unit.connection, "adapter": unit.adapter, "rawFiles": unit.raw_files,
            "dependencyPaths": unit.dependency_paths, "why": unit.why,
            "model": choice.model,
        });
        writeln!(out, "{object}")?;
    }
    Ok(())
}

fn table(planned: &Planned, choice: &Choice) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let widest = planned.units.iter().map(|unit| text::width(&unit.planned.unit)).max().unwrap_or(0).min(60);
    for unit in &planned.units {
        let files = unit.planned.raw_files.len();
        let plural = if files == 1 { " " } else { "s" };
        let key = text::safe(&unit.planned.unit, 60);
        let pad = widest.saturating_sub(text::width(&unit.planned.unit));
        writeln!(out, "{key}{:pad$}  {files:>3} file{plural}  {}", "", text::safe(&unit.planned.why, 100))?;
    }
    if !planned.units.is_empty() {
        writeln!(out, "{}", text::safe(&choice.sentence(), 200))?;
    }
    writeln!(out, "{} planned", counted(planned.units.len(), "unit"))?;
    for skipped in &planned.skipped {
        writeln!(out, "{}", text::safe(&skipped.why, 200))?;
    }
    Ok(())
}
