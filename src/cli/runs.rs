//! `runs`: what was recorded in the project.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use serde_json::json;

use super::{
    args::{Global, RunsCommand, Ui},
    exit::{Exit, Failure},
    project, replay, show,
    summary::Summary,
};
use crate::{
    replay::FileSource,
    run::{Progress, Source, Timeline},
    store::{Db, Found, Runs, Standing, refresh::RefreshError, runs::RunsError},
    tui::text,
};

/// Carries out a `runs` command.
///
/// # Errors
/// When there is no such run, or the records cannot be read.
pub fn runs(global: &Global, command: &RunsCommand) -> Result<Exit, Failure> {
    let runs = Runs::of_project(&project::directory(global)?);
    match command {
        RunsCommand::List => list(global, &runs),
        RunsCommand::Show { run } => show_one(global, &runs, run),
        RunsCommand::Reindex => reindex(&runs),
    }
}

/// The tape of the run that `what` means.
///
/// # Errors
/// When no run matches, or several do.
pub fn tape_of(global: &Global, what: &str) -> Result<PathBuf, Failure> {
    let runs = Runs::of_project(&project::directory(global)?);
    runs.resolve(what).map(|found| found.tape).map_err(|error| unknown(&error))
}

/// Brings the index up to date. It can be built again at any time, so a failure is only logged.
pub fn index_quietly(runs: &Runs) {
    let refreshed =
        Db::open(&runs.database()).map_err(RefreshError::from).and_then(|mut db| runs.refresh(&mut db, &open_tape));
    if let Err(error) = refreshed {
        tracing::warn!(%error, "the index is behind; `ingestdeck runs reindex` builds it anew");
    }
}

fn open_tape(path: &Path) -> Result<Box<dyn Source>, String> {
    FileSource::open(path).map(|source| Box::new(source) as Box<dyn Source>).map_err(|error| error.to_string())
}

fn list(global: &Global, runs: &Runs) -> Result<Exit, Failure> {
    index_quietly(runs);
    let found = runs.list().map_err(Failure::internal)?;
    let listed = Db::open(&runs.database()).and_then(|db| db.list()).unwrap_or_default();
    let mut out = io::stdout().lock();
    for run in &found {
        let standing = runs.standing(run).map_err(Failure::internal)?;
        let known = listed.iter().find(|listed| listed.id == run.id);
        let printed = if global.ui == Ui::Json {
            let known = known.map(|run| {
                json!({"started_at": run.started_at, "outcome": run.outcome, "units": run.units,
                    "succeeded": run.succeeded, "failed": run.failed, "cost_usd": run.cost_usd})
            });
            writeln!(out, "{}", json!({"run": run.id, "state": standing.word(), "index": known}))
        } else {
            writeln!(out, "{}", line(run, standing, known))
        };
        printed.map_err(|error| show::stdout_failed(&error))?;
    }
    if found.is_empty() && global.ui != Ui::Json {
        writeln!(out, "no runs yet; `ingestdeck run` records one").map_err(|error| show::stdout_failed(&error))?;
    }
    Ok(Exit::Ok)
}

fn line(run: &Found, standing: Standing, known: Option<&crate::store::db::Listed>) -> String {
    let mut line = format!("{}  {:<11}", run.id.short(), standing.word());
    if let Some(known) = known {
        let started = text::safe(known.started_at.split('.').next().unwrap_or_default(), 20).into_owned();
        let cost = known.cost_usd.map_or_else(|| "cost ?".into(), |cost| format!("${cost:.2}"));
        let scripted = if known.scripted { "  scripted" } else { "" };
        line.push_str(&format!(
            "  {started}  {:>3} units  {:>3} succeeded  {:>3} failed  {cost}{scripted}",
            known.units, known.succeeded, known.failed
        ));
    }
    line
}

fn show_one(global: &Global, runs: &Runs, what: &str) -> Result<Exit, Failure> {
    let found = runs.resolve(what).map_err(|error| unknown(&error))?;
    let standing = runs.standing(&found).map_err(Failure::internal)?;
    let source = FileSource::open(&found.tape).map_err(|error| replay::failure(&error))?;
    let mut timeline = Timeline::new(Box::new(source));
    while timeline.advance(1 << 20, &mut |_| {}).map_err(Failure::internal)? == Progress::More {}
    let state = &timeline.story().state;
    let summary = Summary::of(state);
    let mut out = io::stdout().lock();
    let printed = if global.ui == Ui::Json {
        let mut event = summary.to_json();
        event["run"] = json!(found.id);
        event["standing"] = json!(standing.word());
        event["tape"] = json!(found.tape);
        writeln!(out, "{event}")
    } else {
        (|| {
            writeln!(out, "run {}  {}", found.id, standing.word())?;
            out.write_all(summary.to_text(timeline.source().origin(), state).as_bytes())?;
            for unit in &state.units {
                let attempts = unit.attempts.len();
                let plural = if attempts == 1 { "" } else { "s" };
                writeln!(
                    out,
                    "  {:<11} {}  {attempts} attempt{plural}",
                    unit.status.word(),
                    text::safe(&unit.key, 60)
                )?;
            }
            writeln!(out, "tape {}", found.tape.display())
        })()
    };
    printed.map_err(|error| show::stdout_failed(&error))?;
    Ok(Exit::Ok)
}

fn reindex(runs: &Runs) -> Result<Exit, Failure> {
    let mut db = Db::start_over(&runs.database()).map_err(Failure::internal)?;
    let done = runs.refresh(&mut db, &open_tape).map_err(Failure::internal)?;
    let sentences: Vec<String> =
        done.unreadable.iter().map(|(run, cause)| format!("run {} is left out: {cause}", run.short())).collect();
    project::warn(&sentences);
    let plural = if done.indexed == 1 { "" } else { "s" };
    writeln!(io::stdout(), "indexed {} run{plural}", done.indexed).map_err(|error| show::stdout_failed(&error))?;
    Ok(Exit::Ok)
}

fn unknown(error: &RunsError) -> Failure {
    let exit = match error {
        RunsError::NotFound(_) | RunsError::Empty => Exit::NotFound,
        RunsError::Ambiguous { .. } => Exit::Usage,
        RunsError::Io { .. } | RunsError::Record(_) => Exit::Internal,
    };
    Failure::new(exit, error.to_string())
}
