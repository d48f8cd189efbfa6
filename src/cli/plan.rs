//! `plan`: what would run, and why.

use std::io::{self, Write as _};

use serde_json::json;

use super::{
    args::{Global, SelectArgs, Ui},
    exit::{Exit, Failure},
    project,
    summary::counted,
};
use crate::{ingest::plan::Planned, tui::text};

/// Prints the plan.
///
/// # Errors
/// When there is no project, or nothing in it that matches.
pub fn plan(global: &Global, select: &SelectArgs) -> Result<Exit, Failure> {
    let project = project::open(global)?;
    let planned = project::planned(&project, select)?;
    project::warn(&planned.warnings);
    let printed = match global.ui {
        Ui::Json => objects(&planned),
        Ui::None => Ok(()),
        Ui::Auto | Ui::Tui | Ui::Lines => table(&planned),
    };
    printed.map_err(|error| super::show::stdout_failed(&error))?;
    Ok(Exit::Ok)
}

fn objects(planned: &Planned) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for unit in planned.units.iter().map(|unit| &unit.planned) {
        let object = json!({
            "unit": unit.unit, "connection": unit.connection, "adapter": unit.adapter, "rawFiles": unit.raw_files,
            "dependencyPaths": unit.dependency_paths, "why": unit.why,
        });
        writeln!(out, "{object}")?;
    }
    Ok(())
}

fn table(planned: &Planned) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let widest = planned.units.iter().map(|unit| text::width(&unit.planned.unit)).max().unwrap_or(0).min(60);
    for unit in &planned.units {
        let files = unit.planned.raw_files.len();
        let plural = if files == 1 { " " } else { "s" };
        let key = text::safe(&unit.planned.unit, 60);
        let pad = widest.saturating_sub(text::width(&unit.planned.unit));
        writeln!(out, "{key}{:pad$}  {files:>3} file{plural}  {}", "", text::safe(&unit.planned.why, 100))?;
    }
    writeln!(out, "{} planned", counted(planned.units.len(), "unit"))?;
    for skipped in &planned.skipped {
        writeln!(out, "{}", text::safe(&skipped.why, 200))?;
    }
    Ok(())
}
