//! What a run takes over from an earlier one: `--resume-run` and `--failed`.
//!
//! Reads the record of the earlier run and holds it against the plan of now. It must not start anything.

mod unreconciled;

use std::collections::HashMap;

use super::{
    args::{Global, PastArgs, SelectArgs},
    exit::{Exit, Failure},
    past, project, replay, runs,
    summary::counted,
};
use crate::{
    ingest::{
        content,
        plan::{Planned, WorkUnit},
        project::Project,
    },
    replay::FileSource,
    run::{
        Progress, RunState, Timeline,
        earlier::Before,
        state::{Unit, UnitStatus},
    },
    store::{Found, Runs, Standing, db::PastEffort},
    tape::{RunId, UnitKey, note::Continues},
    units::reuse::{Choice, Standing as Stood, choose},
};

/// Bytes of a record that are folded at once.
const SLICE: usize = 4 << 20;

/// Units that a sentence names at most.
const NAMED: usize = 6;

/// A plan, and what it takes over.
#[derive(Debug)]
pub struct Taken {
    /// The units of the run, reused ones among them.
    pub planned: Planned,
    /// The run that is continued.
    pub continues: Option<Continues>,
    /// What units took in earlier runs, oldest first.
    pub efforts: Vec<PastEffort>,
}

impl Taken {
    /// Units that an earlier run did.
    pub fn reused(&self) -> impl Iterator<Item = &UnitKey> {
        reused(self.continues.as_ref())
    }

    /// True when no unit is left to be run, and nothing to be put on the branch. There may be something for the pass.
    pub fn is_done(&self) -> bool {
        self.reused().count() == self.planned.units.len() && patches(self.continues.as_ref()).next().is_none()
    }
}

/// Units that stand in what is continued.
pub fn reused(continues: Option<&Continues>) -> impl Iterator<Item = &UnitKey> {
    let units = continues.into_iter().flat_map(|continues| &continues.units);
    units.filter(|(_, earlier)| earlier.reused.is_some()).map(|(unit, _)| unit)
}

/// Patches of those units that are not on the branch yet, relative to the project.
pub fn patches(continues: Option<&Continues>) -> impl Iterator<Item = (&UnitKey, &str)> {
    let units = continues.into_iter().flat_map(|continues| &continues.units);
    units.filter_map(|(unit, earlier)| Some((unit, earlier.reused.as_ref()?.patch.as_deref()?)))
}

/// Plans what `select` asks for, `model` being what units would be run with.
///
/// # Errors
/// When it asks for something that does not exist, that cannot be ingested, or that still runs.
pub fn planned(global: &Global, project: &Project, select: &SelectArgs, model: Option<&str>) -> Result<Taken, Failure> {
    let runs = Runs::of_project(&project.root);
    let PastArgs { resume_run, failed: of_failed } = &select.past;
    let Some(what) = resume_run.as_ref().or(of_failed.as_ref()) else {
        let past = past::read(project, None)?;
        let mut planned = project::planned(project, select, &past.baseline)?;
        past.tell(&mut planned.units);
        return Ok(Taken { planned, continues: None, efforts: past.efforts });
    };
    let (found, state) = recorded(global, &runs, what)?;
    // Units must be cut as they were cut then, or nothing of them could be compared.
    let past = past::read(project, Some(beginning(&runs, &found, &state)?))?;
    let mut planned = project::planned(project, select, &past.baseline)?;
    unreconciled::forget_evicted(project, &mut planned)?;
    past.tell(&mut planned.units);
    let before = Before::new(&state, found.id);
    let of = |planned: &Planned, id: &str| planned.units.iter().filter(|unit| unit.planned.connection == id).count();
    let called_for: Vec<usize> = planned.sources.iter().map(|source| of(&planned, &source.connection)).collect();
    let mut taken = match of_failed {
        None => resume(project, planned, &before, &state, model)?,
        Some(_) => failed(project, planned, &before, &state),
    };
    let left: Vec<usize> = taken.planned.sources.iter().map(|source| of(&taken.planned, &source.connection)).collect();
    for (source, (called_for, left)) in taken.planned.sources.iter_mut().zip(called_for.into_iter().zip(left)) {
        source.complete &= left == called_for;
    }
    Ok(Taken { efforts: past.efforts, ..taken })
}

/// The first run of those that were continued, one after the other, up to this one.
fn beginning(runs: &Runs, found: &Found, state: &RunState) -> Result<RunId, Failure> {
    const MOST: usize = 64;
    let continued = |state: &RunState| state.planned.as_ref()?.continues.as_ref().map(|continues| continues.run);
    let recorded = runs.list().map_err(Failure::internal)?;
    let (mut first, mut next) = (found.id, continued(state));
    for _ in 0..MOST {
        let Some(found) = next.and_then(|run| recorded.iter().find(|found| found.id == run)) else { break };
        first = found.id;
        next = continued(&folded(runs, found)?);
    }
    Ok(first)
}

/// The units of an earlier run: those whose success stands as reused, and the others to be run.
fn resume(
    project: &Project,
    mut planned: Planned,
    before: &Before<'_>,
    state: &RunState,
    model: Option<&str>,
) -> Result<Taken, Failure> {
    let mut continues = before.continues();
    let known: HashMap<&str, &Unit> = of_the_plan(state).map(|unit| (unit.key.as_str(), unit)).collect();
    let (units, new): (Vec<_>, Vec<_>) =
        planned.units.into_iter().partition(|unit| known.contains_key(unit.planned.unit.as_str()));
    // A run for nothing but files that are gone had no units to begin with.
    if units.is_empty() && !known.is_empty() {
        let run = continues.run.short();
        return Err(Failure::not_found(format!(
            "no unit of run {run} is left in the plan; `ingestdeck plan` shows it"
        )));
    }
    planned.units = units;
    for unit in &mut planned.units {
        let Some(then) = known.get(unit.planned.unit.as_str()) else { continue };
        let past = before.past(then);
        let now = match past.standing {
            Stood::Succeeded { .. } => content::of(project, unit, model).ok(),
            _ => None,
        };
        let mut earlier = before.earlier(then);
        unit.planned.why = match choose(&past, now.as_ref()) {
            Choice::Run(why) => why,
            Choice::Reuse(reused) if reused.patch.as_ref().is_some_and(|patch| !project.root.join(patch).is_file()) => {
                format!("succeeded in run {}, but its patch is gone", past.run.short())
            }
            Choice::Reuse(reused) => {
                if let Some(earlier) = &mut earlier {
                    (earlier.run, earlier.reused) = (past.run, Some(reused));
                }
                format!("succeeded in run {} with the same content", past.run.short())
            }
        };
        continues.units.extend(earlier.map(|earlier| (unit.planned.unit.clone(), earlier)));
    }
    unreconciled::keep(project, &mut continues);
    warn_of_others(&continues, &known, &planned.units, &new);
    Ok(Taken { planned, continues: Some(continues), efforts: Vec::new() })
}

/// The units that failed in an earlier run.
fn failed(project: &Project, mut planned: Planned, before: &Before<'_>, state: &RunState) -> Taken {
    let mut continues = before.continues();
    let known: HashMap<&str, &Unit> = of_the_plan(state)
        .filter(|unit| matches!(before.past(unit).standing, Stood::Failed(_)))
        .map(|unit| (unit.key.as_str(), unit))
        .collect();
    planned.units.retain_mut(|unit| {
        let Some(then) = known.get(unit.planned.unit.as_str()) else { return false };
        if let Choice::Run(why) = choose(&before.past(then), None) {
            unit.planned.why = why;
        }
        continues.units.extend(before.earlier(then).map(|earlier| (unit.planned.unit.clone(), earlier)));
        true
    });
    unreconciled::keep_failed(project, &mut continues, state);
    warn_of_others(&continues, &known, &planned.units, &[]);
    Taken { planned, continues: Some(continues), efforts: Vec::new() }
}

/// Units that were planned, not those that only appear on the record.
fn of_the_plan(state: &RunState) -> impl Iterator<Item = &Unit> {
    state.units.iter().filter(|unit| unit.planned.is_some())
}

/// What is not part of the run although somebody may expect it.
fn warn_of_others(continues: &Continues, known: &HashMap<&str, &Unit>, units: &[WorkUnit], new: &[WorkUnit]) {
    let run = continues.run.short();
    let mut gone: Vec<&str> =
        known.keys().copied().filter(|key| !units.iter().any(|unit| unit.planned.unit.as_str() == *key)).collect();
    gone.sort_unstable();
    let mut sentences = Vec::new();
    if !gone.is_empty() {
        let what = counted(gone.len(), "unit");
        sentences.push(format!("{what} of run {run} left out, being no part of this plan: {}", listed(&gone)));
    }
    if !new.is_empty() {
        let names: Vec<&str> = new.iter().map(|unit| unit.planned.unit.as_str()).collect();
        let what = counted(new.len(), "unit");
        sentences.push(format!("{what} left out, being no part of run {run}: {}", listed(&names)));
    }
    project::warn(&sentences);
}

fn listed(names: &[&str]) -> String {
    let more = if names.len() > NAMED { ", …" } else { "" };
    names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ") + more
}

/// The run of units that `what` means, and how it ended.
fn recorded(global: &Global, runs: &Runs, what: &str) -> Result<(Found, RunState), Failure> {
    if what != "latest" {
        let found = runs.resolve(what).map_err(|error| runs::unknown(&error))?;
        let state = folded(runs, &found)?;
        return match unfit(&state) {
            None => Ok((found, state)),
            Some(why) => Err(Failure::usage(format!("run {} {why}", found.id.short()))),
        };
    }
    // Plain sessions are recorded beside the runs.
    for found in runs.list().map_err(Failure::internal)? {
        let state = folded(runs, &found)?;
        if unfit(&state).is_none() {
            return Ok((found, state));
        }
    }
    let flag = global.project_dir.as_ref().map(|_| " --project-dir DIR").unwrap_or_default();
    Err(Failure::not_found(format!(
        "no run of units is recorded in this project yet; start one with `ingestdeck run{flag}`"
    )))
}

/// Why a run cannot be gone on with.
pub fn unfit(state: &RunState) -> Option<&'static str> {
    match &state.planned {
        Some(plan) if plan.scripted => Some("was played by a script; there is nothing to go on with"),
        Some(plan) if plan.units.iter().any(|unit| !unit.connection.is_empty()) => None,
        Some(_) if !state.sources.is_empty() => None,
        _ => Some("is no run of work units; `ingestdeck runs list` shows the recorded runs"),
    }
}

/// The end of a run that is over.
fn folded(runs: &Runs, found: &Found) -> Result<RunState, Failure> {
    if runs.standing(found).map_err(Failure::internal)? == Standing::Running {
        let run = found.id.short();
        let holder = runs.holder(found.id).map(|pid| format!(" in process {pid}")).unwrap_or_default();
        return Err(Failure::new(
            Exit::Usage,
            format!("run {run} still runs{holder}; look on with `ingestdeck watch {run}`, or end it first"),
        ));
    }
    let source = FileSource::open(&found.tape).map_err(|error| replay::failure(&error))?;
    let mut timeline = Timeline::forward(Box::new(source));
    while timeline.advance(SLICE, &mut |_| {}).map_err(Failure::internal)? == Progress::More {}
    Ok(timeline.story().state.clone())
}

/// True for a unit that another try would make sense for.
pub fn is_left(status: UnitStatus) -> bool {
    !matches!(status, UnitStatus::Succeeded | UnitStatus::Budget | UnitStatus::Reused)
}
