//! `runs`: what was recorded in the project.

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
};

use serde_json::json;

use super::{
    args::{Global, RunsCommand, Ui},
    exit::{Exit, Failure},
    output, project, replay, show,
    summary::{Next, Summary, counted},
};
use crate::{
    claude::lock::Locks,
    config::paths::UserDirs,
    replay::{FileSource, file::Finish},
    run::{Progress, Source, Timeline, decisions},
    store::{Db, Found, Refreshed, Runs, Standing, refresh::RefreshError, runs::RunsError},
    tui::{text, view::dollars},
};

/// Widest unit key of a table, in columns.
const KEY: usize = 60;
/// Longest decision, in columns.
const DECISION: usize = 300;

/// Carries out a `runs` command.
///
/// # Errors
/// When there is no such run, or the records cannot be read.
pub fn runs(global: &Global, command: &RunsCommand) -> Result<Exit, Failure> {
    let runs = place(global)?;
    match command {
        RunsCommand::List => list(global, &runs),
        RunsCommand::Show { run } => show_one(global, &runs, run),
        RunsCommand::Export(args) => super::export::export(global, args),
        RunsCommand::Prune(args) => super::prune::prune(global, &runs, args),
        RunsCommand::Reindex => reindex(&runs),
    }
}

/// Where runs are recorded: in the project, and outside of any in the user's state directory, where plain sessions are.
///
/// # Errors
/// When the given directory does not exist, or there is neither a project nor a home.
pub fn place(global: &Global) -> Result<Runs, Failure> {
    let directory = project::directory(global)?;
    if global.project_dir.is_some() && !directory.is_dir() {
        let given = directory.display();
        return Err(Failure::usage(format!("{given} is no directory; name your project's with --project-dir")));
    }
    let here = Runs::of_project(&directory);
    if global.project_dir.is_some() || directory.join("ktx.yaml").is_file() || here.root().is_dir() {
        return Ok(here);
    }
    UserDirs::from_environment()
        .state
        .map(|state| Runs::of_project(&state))
        .ok_or_else(|| Failure::usage("there is no place for records; set HOME, or go to a project"))
}

/// Where sessions are locked: they belong to the user, in whatever project they go on. Those of a script are nobody's but
/// the project's.
pub fn locks(runs: &Runs, scripted: bool) -> Locks {
    let of_user = UserDirs::from_environment().locks().filter(|_| !scripted);
    // The runs of a project are in `.ktx/ingestdeck` below it.
    let project = || Locks::in_project(runs.root().ancestors().nth(2).unwrap_or(runs.root()));
    of_user.map_or_else(project, Locks::new)
}

/// The run that `what` means, and its tape, open for reading. No link leads to the tape, whatever happens to its path
/// meanwhile.
///
/// # Errors
/// When no run matches, several do, or the tape cannot be opened.
pub fn tape_of(global: &Global, what: &str) -> Result<(Found, File), Failure> {
    let runs = place(global)?;
    let found = runs.resolve(what).map_err(|error| unknown(&error))?;
    let tape = open_run(&runs, &found)?;
    Ok((found, tape))
}

fn open_run(runs: &Runs, found: &Found) -> Result<File, Failure> {
    let failed = |error| Failure::internal(format!("cannot read {}: {error}", found.tape.display()));
    runs.open_tape(found).map_err(failed)
}

/// The record of `found` as it is now, opened without following links.
///
/// # Errors
/// When the tape cannot be opened or read.
pub fn source_of(runs: &Runs, found: &Found) -> Result<FileSource, Failure> {
    FileSource::from_file(&found.tape, open_run(runs, found)?).map_err(|error| replay::failure(&error))
}

/// As [`source_of`], for a record that is still written.
///
/// # Errors
/// As [`source_of`].
pub fn follow(runs: &Runs, found: &Found) -> Result<(FileSource, Finish), Failure> {
    FileSource::follow_file(&found.tape, open_run(runs, found)?).map_err(|error| replay::failure(&error))
}

/// The run of this place whose record `source` is, if it goes on. `what` is how a person named it.
///
/// # Errors
/// When the runs cannot be read.
pub fn running(global: &Global, what: &str, source: &FileSource) -> Result<Option<Found>, Failure> {
    let Some(run) = source.origin().header.as_ref().map(|header| header.run) else { return Ok(None) };
    let Ok(runs) = place(global) else { return Ok(None) };
    let found = runs.list().map_err(Failure::internal)?.into_iter().find(|found| found.id == run);
    let is_named = |found: &Found| same_file(&found.tape, what) || !what.contains(['/', '.']);
    let Some(found) = found.filter(is_named) else { return Ok(None) };
    let is_running = runs.standing(&found).map_err(Failure::internal)? == Standing::Running;
    Ok(is_running.then_some(found))
}

fn same_file(tape: &Path, what: &str) -> bool {
    match (fs::canonicalize(tape), fs::canonicalize(what)) {
        (Ok(tape), Ok(what)) => tape == what,
        _ => false,
    }
}

/// Brings the index up to date. It can be built again at any time, so a failure is only logged.
pub fn index_quietly(runs: &Runs) {
    if let Err(error) = indexed(runs) {
        tracing::warn!(%error, "the index is behind; `ingestdeck runs reindex` builds it anew");
    }
}

/// Opens the index, up to date, and tells in a sentence each which runs cannot be read.
///
/// # Errors
/// When the index cannot be used.
pub fn indexed(runs: &Runs) -> Result<(Db, Vec<String>), RefreshError> {
    let mut db = runs.open_database()?;
    let left_out = left_out(&runs.refresh(&mut db, &open_tape)?);
    Ok((db, left_out))
}

fn left_out(refreshed: &Refreshed) -> Vec<String> {
    refreshed.unreadable.iter().map(|(run, cause)| format!("run {} is left out: {cause}", run.short())).collect()
}

fn open_tape(path: &Path, file: File) -> Result<Box<dyn Source>, String> {
    FileSource::from_file(path, file)
        .map(|source| Box::new(source.shortened()) as Box<dyn Source>)
        .map_err(|error| error.to_string())
}

fn list(global: &Global, runs: &Runs) -> Result<Exit, Failure> {
    let found = runs.list().map_err(Failure::internal)?;
    if found.is_empty() {
        return if global.ui == Ui::Json { Ok(Exit::Ok) } else { say_none().map(|()| Exit::Ok) };
    }
    index_quietly(runs);
    let listed = runs.open_database().and_then(|db| db.list()).unwrap_or_default();
    let mut out = output::stdout_for(global.ui);
    for run in &found {
        let standing = runs.standing(run).map_err(Failure::internal)?;
        let known = listed.iter().find(|listed| listed.id == run.id);
        let printed = if global.ui == Ui::Json {
            let known = known.map(|run| {
                json!({"started_at": run.started_at, "outcome": run.outcome, "units": run.units,
                    "succeeded": run.succeeded, "budget": run.budget, "reused": run.reused, "failed": run.failed, "cost_usd": run.cost_usd})
            });
            writeln!(out, "{}", json!({"run": run.id, "state": standing.word(), "index": known}))
        } else {
            writeln!(out, "{}", line(run, standing, known))
        };
        printed.map_err(|error| show::stdout_failed(&error))?;
    }
    Ok(Exit::Ok)
}

pub(super) fn say_none() -> Result<(), Failure> {
    writeln!(output::stdout(), "no runs yet; `ingestdeck run` records one").map_err(|error| show::stdout_failed(&error))
}

fn line(run: &Found, standing: Standing, known: Option<&crate::store::db::Listed>) -> String {
    // How a run ended says more than that it did.
    let outcome = known.and_then(|known| known.outcome.as_deref()).filter(|_| standing == Standing::Finished);
    let word = text::safe(outcome.unwrap_or(standing.word()), 11);
    let mut line = format!("{}  {word:<11}", run.id.short());
    if let Some(known) = known {
        let started = text::safe(known.started_at.split('.').next().unwrap_or_default(), 20).into_owned();
        let cost = dollars(known.cost_usd);
        let scripted = if known.scripted { "  scripted" } else { "" };
        let plural = if known.units == 1 { " " } else { "s" };
        let budget = if known.budget > 0 { format!("  {} budget", known.budget) } else { String::new() };
        let reused = if known.reused > 0 { format!("  {} reused", known.reused) } else { String::new() };
        line.push_str(&format!(
            "  {started}  {:>3} unit{plural}  {:>3} succeeded{budget}{reused}  {:>3} failed  {cost}{scripted}",
            known.units, known.succeeded, known.failed
        ));
    }
    line
}

fn show_one(global: &Global, runs: &Runs, what: &str) -> Result<Exit, Failure> {
    let found = runs.resolve(what).map_err(|error| unknown(&error))?;
    let standing = runs.standing(&found).map_err(Failure::internal)?;
    // Somebody still writes to the tape of a run that is on: its end is not the end of the run.
    let source = match standing {
        Standing::Running => follow(runs, &found).map(|(source, _)| source),
        _ => source_of(runs, &found),
    };
    let source = source?.shortened();
    let mut timeline = Timeline::new(Box::new(source));
    while timeline.advance(1 << 20, &mut |_| {}).map_err(Failure::internal)? == Progress::More {}
    let state = &timeline.story().state;
    let summary = Summary::of(state).going_on(standing == Standing::Running);
    let mut out = output::stdout_for(global.ui);
    let printed = if global.ui == Ui::Json {
        let mut event = summary.to_json();
        event["run"] = json!(found.id);
        event["standing"] = json!(standing.word());
        event["tape"] = json!(found.tape);
        if !state.projected.is_empty() {
            event["projected"] = state.projected.iter().map(|projected| json!(**projected)).collect();
        }
        writeln!(out, "{event}")
    } else {
        (|| {
            writeln!(out, "run {}  {}", found.id, standing.word())?;
            let widest = state.units.iter().map(|unit| text::width(&unit.key)).max().unwrap_or_default().min(KEY);
            out.write_all(summary.to_text(timeline.source().origin(), state).as_bytes())?;
            for projected in &state.projected {
                writeln!(out, "  {:<11} {}", "projected", text::safe(&projected.to_string(), DECISION))?;
            }
            for unit in &state.units {
                let pad = widest.saturating_sub(text::width(&unit.key));
                let key = text::safe(&unit.key, KEY);
                let attempts = counted(unit.attempts.len(), "attempt");
                // What a run that goes on has done is on its way.
                let is_unsaved = standing != Standing::Running && state.is_unsaved(unit);
                let saved = if is_unsaved { ", not saved" } else { "" };
                writeln!(out, "  {:<11} {key}{:pad$}  {attempts}{saved}", unit.status.word(), "")?;
                for decision in state.work(unit).map(decisions::decisions).unwrap_or_default() {
                    let line = format!("{}: {decision}", decision.kind.word());
                    writeln!(out, "    {}", text::safe(&line, DECISION))?;
                }
            }
            let is_scripted = timeline.source().origin().header.as_ref().is_some_and(|header| header.scripted);
            let next = Next::Project {
                tape: &found.tape,
                flag: global.project_dir.as_deref(),
                run: &found.id.short().to_string(),
                retry: !is_scripted && standing != Standing::Running,
            };
            out.write_linked(&summary.next_steps(next), &found.tape)
        })()
    };
    printed.map_err(|error| show::stdout_failed(&error))?;
    Ok(Exit::Ok)
}

fn reindex(runs: &Runs) -> Result<Exit, Failure> {
    if runs.list().map_err(Failure::internal)?.is_empty() {
        say_none()?;
        return Ok(Exit::Ok);
    }
    let mut db = runs.recreate_database().map_err(Failure::internal)?;
    let done = runs.refresh(&mut db, &open_tape).map_err(Failure::internal)?;
    project::warn(&left_out(&done));
    writeln!(output::stdout(), "indexed {}", counted(done.indexed, "run"))
        .map_err(|error| show::stdout_failed(&error))?;
    Ok(Exit::Ok)
}

/// Sorts a refusal into exit codes.
pub fn unknown(error: &RunsError) -> Failure {
    let exit = match error {
        RunsError::NotFound(_) | RunsError::Empty => Exit::NotFound,
        RunsError::Ambiguous { .. } => Exit::Usage,
        RunsError::Io { .. } | RunsError::Record(_) => Exit::Internal,
    };
    Failure::new(exit, error.to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::tape::RunId;

    #[test]
    fn record_that_became_a_link_is_refused() {
        let (project, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let tape = include_bytes!("../../tests/fixtures/tapes/demo.jsonl");
        let id = RunId(uuid::Uuid::from_u128(7));
        let dir = project.path().join(".ktx/ingestdeck/runs").join(id.to_string());
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("tape.jsonl"), tape).unwrap();
        fs::write(outside.path().join("tape.jsonl"), tape).unwrap();
        let runs = Runs::of_project(project.path());
        let found = runs.resolve("latest").unwrap();
        let is_open = || source_of(&runs, &found).is_ok() && follow(&runs, &found).is_ok();
        let is_refused = || source_of(&runs, &found).is_err() && follow(&runs, &found).is_err();
        assert!(is_open());
        fs::remove_file(dir.join("tape.jsonl")).unwrap();
        symlink(outside.path().join("tape.jsonl"), dir.join("tape.jsonl")).unwrap();
        assert!(is_refused(), "the tape");
        fs::remove_dir_all(&dir).unwrap();
        symlink(outside.path(), &dir).unwrap();
        assert!(is_refused(), "its directory");
    }
}
