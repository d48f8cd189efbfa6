//! `runs`: the recorded runs of the project.

#![expect(
    clippy::disallowed_methods,
    reason = "whether a directory is a project"
)]

mod list;
mod run_filter;

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
};

use serde_json::json;

pub(super) use self::list::list;
use super::{
    args::{GlobalArgs, Ui},
    exit::{self, CliError, Exit},
    output, playback_output, project,
    summary::{NextSteps, RunSummary},
};
use ingestdeck_core::{
    diagnostic::Problem,
    run::{EntrySource as _, PollStatus, SourceInfo, Timeline, recorded_decisions},
    text::{self, commands, pluralize},
};
use ingestdeck_engine::{continued_runs::ContinuedRuns, recorded_tapes, resume};
use ingestdeck_os::user_dirs::UserDirs;
use ingestdeck_records::{
    replay::FileSource,
    store::{RecordedRun, RunStatus, RunStore},
};

/// Maximum width of a unit key in a table, in columns.
const MAX_KEY_WIDTH: usize = 60;
/// Maximum width of a decision, in columns.
const MAX_DECISION_WIDTH: usize = 300;

/// The store of the project; outside of projects the user's state directory, which also holds plain sessions.
///
/// # Errors
/// If the given directory does not exist, or there is neither a project nor a home directory.
pub(crate) fn resolve_store(global: &GlobalArgs) -> Result<RunStore, CliError> {
    let directory = project::resolve_directory(global)?;
    if global.project_dir.is_some() && !directory.is_dir() {
        let given = directory.display();
        return Err(CliError::usage(format!("{given} is not a directory"))
            .with_help("name your project's directory with --project-dir"));
    }
    let here = RunStore::new(&directory);
    if global.project_dir.is_some() || directory.join("ktx.yaml").is_file() || here.root().is_dir()
    {
        return Ok(here);
    }
    UserDirs::from_environment()
        .state
        .map(|state| RunStore::new(&state))
        .ok_or_else(|| {
            CliError::usage("there is no directory for records")
                .with_help("set HOME, or change to a project")
        })
}

/// The run that `what` names, with its tape open for reading. The tape is opened without following links, even if its
/// path changes meanwhile.
///
/// # Errors
/// If no run matches, several match, or the tape cannot be opened.
pub(crate) fn resolve_tape(
    global: &GlobalArgs,
    what: &str,
) -> Result<(RecordedRun, File), CliError> {
    let runs = resolve_store(global)?;
    let found = runs.resolve(what)?;
    let tape = recorded_tapes::open_file(&runs, &found)?;
    Ok((found, tape))
}

/// The active run of the project; `None` if there is none.
///
/// # Errors
/// If the runs cannot be read.
pub(super) fn find_active(global: &GlobalArgs) -> Result<Option<RecordedRun>, CliError> {
    let store = resolve_store(global)?;
    Ok(store
        .list()?
        .into_iter()
        .find(|run| store.is_alive(run.id).unwrap_or(false)))
}

/// Names the active run of the project, with the commands that show and stop it.
pub(super) fn active_run_problem(global: &GlobalArgs) -> Option<Problem> {
    let run = find_active(global).ok()??.id.short();
    let commands = commands::active_run_commands(global.project_dir.as_deref(), &run.to_string());
    Some(Problem::new(format!("run {run} of this project is active")).with_help(commands))
}

/// The run in this store whose record is `source`, if it is running. `what` is the name that the user gave.
///
/// # Errors
/// If the runs cannot be read.
pub(crate) fn find_running(
    global: &GlobalArgs,
    what: &str,
    source: &FileSource,
) -> Result<Option<RecordedRun>, CliError> {
    let Some((runs, found)) = find_recorded(global, what, source.info())? else {
        return Ok(None);
    };
    let is_running = runs.status(&found)? == RunStatus::Running;
    Ok(is_running.then_some(found))
}

/// The run whose record is described by `info`, with its store. `what` is the name that the user gave: a file with the
/// header of a run need not be its tape.
///
/// # Errors
/// If the runs cannot be read.
pub(crate) fn find_recorded(
    global: &GlobalArgs,
    what: &str,
    info: &SourceInfo,
) -> Result<Option<(RunStore, RecordedRun)>, CliError> {
    let Some(run) = info.header.as_ref().map(|header| header.run) else {
        return Ok(None);
    };
    let Ok(runs) = resolve_store(global) else {
        return Ok(None);
    };
    let found = runs.list()?.into_iter().find(|found| found.id == run);
    let is_named = |found: &RecordedRun| {
        same_file(&found.tape, what) || what != "-" && !what.contains(['/', '.'])
    };
    Ok(found.filter(is_named).map(|found| (runs, found)))
}

fn same_file(tape: &Path, what: &str) -> bool {
    match (fs::canonicalize(tape), fs::canonicalize(what)) {
        (Ok(tape), Ok(what)) => tape == what,
        _ => false,
    }
}

pub(super) fn print_no_runs() -> Result<(), CliError> {
    writeln!(
        output::stdout(),
        "no runs yet; `ingestdeck run` records one"
    )
    .map_err(|error| playback_output::stdout_failed(&error))
}

/// `runs show`.
///
/// # Errors
/// If the run does not exist or cannot be read.
pub(super) fn show(global: &GlobalArgs, what: &str) -> Result<Exit, CliError> {
    let runs = &resolve_store(global)?;
    let found = runs.resolve(what)?;
    let standing = runs.status(&found)?;
    // The tape of an active run still grows: its end is not the end of the run.
    let source = match standing {
        RunStatus::Running => recorded_tapes::follow(runs, &found).map(|(source, _)| source),
        _ => recorded_tapes::open_source(runs, &found),
    };
    let source = source?.with_shortened_lines();
    let mut timeline = Timeline::new(Box::new(source));
    while timeline.advance(1 << 20, &mut |_| {})? == PollStatus::More {}
    let state = &timeline.view().state;
    let summary = RunSummary::from_state(state).with_open_end(standing == RunStatus::Running);
    let continued = ContinuedRuns::read(runs)?;
    let (reviewed_by, settled) = (
        continued.reviewed_by(found.id),
        continued.settled_units(found.id),
    );
    let mut out = output::stdout_for(global.ui);
    let printed = if global.ui == Ui::Json {
        let mut event = summary.to_json();
        event["run"] = json!(found.id);
        event["standing"] = json!(standing.as_str());
        event["tape"] = json!(found.tape);
        event["reviewed_by"] = json!(reviewed_by);
        if !state.inputs.projected.is_empty() {
            event["projected"] = state
                .inputs
                .projected
                .iter()
                .map(|projected| json!(**projected))
                .collect();
        }
        writeln!(out, "{event}")
    } else {
        (|| {
            let summary = if reviewed_by.is_some() {
                summary.with_settled_review()
            } else {
                summary
            };
            writeln!(out, "run {}  {}", found.id, standing.as_str())?;
            let widest = state
                .units
                .iter()
                .map(|unit| text::width(&unit.key))
                .max()
                .unwrap_or_default()
                .min(output::max_width(MAX_KEY_WIDTH));
            out.write_all(summary.to_text(timeline.source().info(), state).as_bytes())?;
            for projected in &state.inputs.projected {
                writeln!(
                    out,
                    "  {:<11} {}",
                    "projected",
                    text::printable(
                        &projected.to_string(),
                        output::max_width(MAX_DECISION_WIDTH)
                    )
                )?;
            }
            if let Some(by) = reviewed_by {
                writeln!(
                    out,
                    "its changes waited for a review, which run {} finished",
                    by.short()
                )?;
            }
            for unit in &state.units {
                let key = output::name(&unit.key, MAX_KEY_WIDTH);
                let pad = widest.saturating_sub(text::width(&key));
                let attempts = pluralize(unit.attempts.len(), "attempt");
                // Results of an active run are not unsaved yet.
                let is_unsaved = standing != RunStatus::Running
                    && state.is_unsaved(unit)
                    && !settled.contains(&unit.key);
                let saved = if is_unsaved { ", not saved" } else { "" };
                writeln!(
                    out,
                    "  {:<11} {key}{:pad$}  {attempts}{saved}",
                    unit.status.as_str(),
                    ""
                )?;
                for decision in state
                    .work(unit)
                    .map(recorded_decisions::recorded_decisions)
                    .unwrap_or_default()
                {
                    let line = format!("{}: {decision}", decision.kind.label());
                    writeln!(
                        out,
                        "    {}",
                        text::printable(&line, output::max_width(MAX_DECISION_WIDTH))
                    )?;
                }
            }
            let is_scripted = timeline
                .source()
                .info()
                .header
                .as_ref()
                .is_some_and(|header| header.scripted);
            let next = NextSteps::Project {
                tape: &found.tape,
                flag: global.project_dir.as_deref(),
                run: &found.id.short().to_string(),
                retry: !is_scripted
                    && standing != RunStatus::Running
                    && resume::not_resumable_reason(state).is_none(),
            };
            out.write_linked(&summary.next_steps(next), &found.tape)
        })()
    };
    printed.map_err(|error| playback_output::stdout_failed(&error))?;
    Ok(Exit::Ok)
}

/// `runs reindex`.
///
/// # Errors
/// If the records cannot be read or the index cannot be written.
pub(super) fn reindex(global: &GlobalArgs) -> Result<Exit, CliError> {
    let runs = &resolve_store(global)?;
    if runs.list()?.is_empty() {
        print_no_runs()?;
        return Ok(Exit::Ok);
    }
    let mut db = runs.recreate_database()?;
    let done = recorded_tapes::refresh(runs, &mut db)?;
    exit::print_warnings(&recorded_tapes::unreadable_messages(&done));
    writeln!(
        output::stdout(),
        "indexed {}",
        pluralize(done.indexed, "run")
    )
    .map_err(|error| playback_output::stdout_failed(&error))?;
    Ok(Exit::Ok)
}
