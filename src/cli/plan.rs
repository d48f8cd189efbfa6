//! `plan`: what would run, and why.

use std::{
    collections::HashSet,
    io::{self, Write as _},
};

use serde_json::json;

use super::{
    args::{Global, SelectArgs, Ui},
    exit::{Exit, Failure},
    model::Choice,
    project,
    resume::{self, Taken},
    summary::counted,
};
use crate::{ingest::project::Role, tape::UnitKey, tui::text};

/// Prints the plan.
///
/// # Errors
/// When there is no project, or nothing in it that matches.
pub fn plan(global: &Global, select: &SelectArgs) -> Result<Exit, Failure> {
    let project = project::open(global)?;
    let choice = Choice::of(&project, Role::CandidateExtraction, None);
    let taken = resume::planned(global, &project, select, choice.model.as_deref())?;
    project::warn(&taken.planned.warnings);
    let printed = match global.ui {
        Ui::Json => objects(&taken, &choice),
        Ui::None => Ok(()),
        Ui::Auto | Ui::Tui | Ui::Lines => table(&taken, &choice),
    };
    printed.map_err(|error| super::show::stdout_failed(&error))?;
    Ok(Exit::Ok)
}

fn objects(taken: &Taken, choice: &Choice) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let reused: HashSet<&UnitKey> = taken.reused().collect();
    for unit in taken.planned.units.iter().map(|unit| &unit.planned) {
        let mut object = json!({
            "unit": unit.unit, "connection": unit.connection, "adapter": unit.adapter, "rawFiles": unit.raw_files,
            "dependencyPaths": unit.dependency_paths, "why": unit.why,
            "model": choice.model,
        });
        if reused.contains(&unit.unit) {
            object["reused"] = true.into();
        }
        writeln!(out, "{object}")?;
    }
    Ok(())
}

fn table(taken: &Taken, choice: &Choice) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let planned = &taken.planned;
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
    let reused = taken.reused().count();
    let reused = if reused > 0 { format!(", {reused} of them reused") } else { String::new() };
    writeln!(out, "{} planned{reused}", counted(planned.units.len(), "unit"))?;
    for skipped in &planned.skipped {
        writeln!(out, "{}", text::safe(&skipped.why, 200))?;
    }
    Ok(())
}
