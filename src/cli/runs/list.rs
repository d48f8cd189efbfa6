//! `runs list`: recorded runs, filtered, in an order, or by a saved view.

use std::io::{self, Write as _};

use serde_json::json;

use super::{
    print_no_runs, resolve_store,
    run_filter::{self, ListedRun, RunFilter, VIEWS_FILE},
};
use crate::cli::{
    args::{GlobalArgs, RunSort, RunsListArgs, Ui},
    exit::{CliError, Exit},
    output, playback_output,
    table_memory::ProjectMemory,
};
use ingestdeck_core::{
    run::{
        RunOutcome,
        outcome::{self, REVIEWED},
    },
    tape::RunId,
    text::{self, dollars_of_sum, pluralize},
};
use ingestdeck_engine::{continued_runs::ContinuedRuns, recorded_tapes};
use ingestdeck_records::store::{RecordedRun, RunStatus, db::IndexedRun};

/// `runs list`.
///
/// # Errors
/// If a condition is invalid, there is no such view, or the records cannot be read.
pub(crate) fn list(global: &GlobalArgs, args: &RunsListArgs) -> Result<Exit, CliError> {
    let runs = &resolve_store(global)?;
    let memory = ProjectMemory::open(VIEWS_FILE);
    let project = runs.project().display().to_string();
    if let Some(name) = &args.delete_view {
        run_filter::delete_view(&memory, &project, name)?;
        return Ok(Exit::Ok);
    }
    let filter = RunFilter::new(args, &memory, &project)?;
    let found = runs.list()?;
    if found.is_empty() {
        if global.ui != Ui::Json {
            print_no_runs()?;
        }
        return filter.save(args, &memory, &project).map(|()| Exit::Ok);
    }
    recorded_tapes::try_update_index(runs);
    let db = runs.open_database().ok();
    let db = db.as_ref();
    let listed = db.and_then(|db| db.list().ok()).unwrap_or_default();
    let idle = db
        .and_then(|db| db.nothing_written_counts().ok())
        .unwrap_or_default();
    let units = db
        .filter(|_| filter.needs_units())
        .and_then(|db| db.unit_sources().ok())
        .unwrap_or_default();
    let continued = db
        .and_then(|db| ContinuedRuns::from_index(db, runs.project()).ok())
        .unwrap_or_default();
    let mut rows = Vec::new();
    for run in &found {
        let status = runs.status(run)?;
        let known = listed.iter().find(|listed| listed.id == run.id);
        let reviewed_by = continued.reviewed_by(run.id);
        let waits = status == RunStatus::Running && continued.has_open_review(run.id);
        let outcome = outcome_text(status, known, (reviewed_by.is_some(), waits));
        let listed = ListedRun {
            outcome: outcome::column_text(outcome),
            known,
            units: units.get(&run.id).map_or(&[], Vec::as_slice),
        };
        if !filter.passes(&listed) {
            continue;
        }
        rows.push(ListRow {
            run,
            status,
            reviewed_by,
            idle: idle.get(&run.id).copied().unwrap_or_default(),
            listed,
        });
    }
    sort(&mut rows, filter.sort(), filter.is_reversed());
    let printed = if global.ui == Ui::Json {
        let mut out = output::stdout_for(global.ui);
        rows.iter()
            .try_for_each(|row| writeln!(out, "{}", row.to_json()))
    } else if rows.is_empty() {
        let hidden = pluralize(found.len(), "recorded run");
        writeln!(
            output::stdout(),
            "no run fulfils {}; there are {hidden}",
            filter.described()
        )
    } else {
        let cells: Vec<RunCells> = rows.iter().map(ListRow::cells).collect();
        write_rows(
            &mut output::stdout_for(global.ui),
            &cells,
            output::columns(),
        )
    };
    printed.map_err(|error| playback_output::stdout_failed(&error))?;
    filter.save(args, &memory, &project)?;
    Ok(Exit::Ok)
}

/// A run of the list.
struct ListRow<'a> {
    run: &'a RecordedRun,
    status: RunStatus,
    reviewed_by: Option<RunId>,
    /// Number of units that read and wrote nothing.
    idle: u64,
    listed: ListedRun<'a>,
}

impl ListRow<'_> {
    fn to_json(&self) -> serde_json::Value {
        let index = self.listed.known.map(|run| {
            json!({"started_at": run.started_at, "outcome": run.outcome, "units": run.units,
                "succeeded": run.succeeded, "budget": run.budget, "reused": run.reused, "failed": run.failed,
                "cost_usd": run.cost_usd, "cost_partial": run.is_cost_partial, "reviewed_by": self.reviewed_by,
                "nothing_written": self.idle})
        });
        json!({"run": self.run.id, "state": self.status.as_str(), "index": index})
    }

    fn cells(&self) -> RunCells {
        run_cells(self.run, &self.listed, self.idle)
    }
}

/// Orders runs, which are newest first. Unknown values are last in both directions.
fn sort(rows: &mut [ListRow<'_>], order: RunSort, is_reversed: bool) {
    let weight = |row: &ListRow<'_>| {
        let run = row.listed.known?;
        match order {
            RunSort::Started => None,
            RunSort::Cost => run.cost_usd,
            RunSort::Duration => Some(run.duration_ms as f64),
            RunSort::Units => Some(run.units as f64),
            RunSort::Failed => Some(run.failed as f64),
        }
    };
    if order == RunSort::Started {
        if is_reversed {
            rows.reverse();
        }
        return;
    }
    rows.sort_by(|a, b| match (weight(a), weight(b)) {
        (Some(a), Some(b)) if is_reversed => a.total_cmp(&b),
        (Some(a), Some(b)) => b.total_cmp(&a),
        (a, b) => b.is_some().cmp(&a.is_some()),
    });
}

/// The outcome of a finished run, which is more specific than its status.
fn outcome_text<'a>(
    status: RunStatus,
    known: Option<&'a IndexedRun>,
    (is_reviewed, waits): (bool, bool),
) -> &'a str {
    let outcome = known
        .and_then(|known| known.outcome.as_deref())
        .filter(|_| status == RunStatus::Finished);
    match () {
        () if is_reviewed => REVIEWED,
        () if waits => RunOutcome::WaitingApproval.as_str(),
        () => outcome.unwrap_or(status.as_str()),
    }
}

/// The cells of a row: run, outcome, start, cost and counts.
type RunCells = [String; 5];

/// Writes rows with aligned columns. They are cut at the width of the terminal.
fn write_rows(
    out: &mut impl io::Write,
    rows: &[RunCells],
    columns: Option<usize>,
) -> io::Result<()> {
    let width = |cell: usize| {
        rows.iter()
            .map(|row| text::width(&row[cell]))
            .max()
            .unwrap_or(0)
    };
    let widths = [0, 1, 2, 3].map(width);
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let pad = width.saturating_sub(text::width(cell));
            line.push_str(&format!("{cell}{:pad$}  ", ""));
        }
        line.push_str(&row[4]);
        writeln!(
            out,
            "{}",
            text::printable(line.trim_end(), columns.unwrap_or(usize::MAX))
        )?;
    }
    Ok(())
}

fn run_cells(run: &RecordedRun, listed: &ListedRun<'_>, idle: u64) -> RunCells {
    let word = text::printable(listed.outcome, 11).into_owned();
    let id = run.id.short().to_string();
    let Some(known) = listed.known else {
        return [id, word, String::new(), String::new(), String::new()];
    };
    // In UTC, to the minute.
    let started = known
        .started_at
        .get(..16)
        .map(|at| format!("{}Z", at.replace('T', " ")));
    let started = text::printable(started.as_deref().unwrap_or("?"), 17).into_owned();
    let scripted = if known.scripted { ", scripted" } else { "" };
    let idle = match idle {
        0 => String::new(),
        idle => format!(" ({idle} read, nothing written)"),
    };
    let counts = [
        (known.failed, "failed", ""),
        (known.budget, "budget", ""),
        (known.succeeded, "succeeded", idle.as_str()),
        (known.reused, "reused", ""),
    ];
    let counts = counts.iter().filter(|(count, ..)| *count > 0);
    let counts: Vec<String> = counts
        .map(|(count, word, more)| format!("{count} {word}{more}"))
        .collect();
    let units = pluralize(usize::try_from(known.units).unwrap_or(usize::MAX), "unit");
    let colon = if counts.is_empty() { "" } else { ": " };
    let cost = dollars_of_sum(known.cost_usd, known.is_cost_partial);
    [
        id,
        word,
        started,
        cost,
        format!("{units}{colon}{}{scripted}", counts.join(", ")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_runs_are_aligned_and_cut_at_the_terminal() {
        let row = |cells: [&str; 5]| cells.map(str::to_owned);
        let rows = [
            row([
                "4753af",
                "partial",
                "2026-11-22 10:00Z",
                "$0.87 +?",
                "9 units: 2 failed, 6 budget, 1 succeeded",
            ]),
            row([
                "526efd",
                "done",
                "2026-11-22 10:00Z",
                "$12.01",
                "40 units: 40 reused",
            ]),
            row(["99aabb", "interrupted", "", "", ""]),
        ];
        let shown = |columns| {
            let mut out = Vec::new();
            write_rows(&mut out, &rows, columns).unwrap();
            String::from_utf8(out).unwrap()
        };
        let complete = "\
4753af  partial      2026-11-22 10:00Z  $0.87 +?  9 units: 2 failed, 6 budget, 1 succeeded
526efd  done         2026-11-22 10:00Z  $12.01    40 units: 40 reused
99aabb  interrupted
";
        assert_eq!(shown(None), complete);
        let narrow = shown(Some(80));
        assert!(
            narrow.lines().all(|line| text::width(line) <= 80)
                && narrow.contains("9 units: 2 failed"),
            "{narrow}"
        );
    }
}
