//! What a run takes over from an earlier one: `--resume-run` and `--failed`.
//!
//! Reads the record of the earlier run and holds it against the plan of now. It must not start anything.

mod gone;
mod left;
mod unreconciled;

pub use left::Left;

use std::collections::{HashMap, HashSet};

use super::{
    args::{Global, PastArgs, SelectArgs},
    exit::{Exit, Failure},
    past::ProjectHistory,
    project, runs,
    summary::counted,
};
use crate::{
    ingest::{
        content,
        plan::{PlanError, Planned, Selection, WorkUnit, plan, plan_against},
        project::Project,
    },
    run::{
        Progress, RunState, Timeline,
        earlier::Before,
        state::{Unit, UnitStatus},
    },
    scoped_dir::ScopedDir,
    store::{Found, Runs, Standing, db::PastEffort},
    tape::{
        RunId, UnitKey,
        note::{Continues, PlannedUnit, Work},
    },
    units::reuse::{Choice, Past, Standing as Stood, choose},
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
    /// A run that has something to be gone on with, and is not.
    pub left: Option<Left>,
    /// Why no unit is planned, where the earlier run tells.
    pub nothing: Option<String>,
}

impl Taken {
    /// Units that an earlier run did.
    pub fn reused(&self) -> impl Iterator<Item = &UnitKey> {
        reused(self.continues.as_ref())
    }

    /// Units that the run has to do itself.
    pub fn units_to_run(&self) -> impl Iterator<Item = &WorkUnit> {
        let reused: HashSet<&UnitKey> = self.reused().collect();
        self.planned.units.iter().filter(move |unit| !reused.contains(&unit.planned.unit))
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
    let asked = project::selection(select);
    let PastArgs { resume_run, failed: of_failed } = &select.past;
    let Some(what) = resume_run.as_ref().or(of_failed.as_ref()) else {
        let past = history(project)?.past(None)?;
        let mut planned = project::planned(project, &asked, &past.baseline)?;
        past.annotate(&mut planned);
        let left = still_there(project, past.left)?;
        return Ok(Taken { planned, continues: None, efforts: past.efforts, left, nothing: None });
    };
    let chain = Chain::of(&runs, recorded(global, &runs, what)?)?;
    // Units must be chosen and cut as they were then, or nothing of them could be compared.
    let history = history(project)?;
    let past = history.past(Some(chain.first()))?;
    let then = chain.state().planned.as_ref().and_then(|plan| plan.selection.clone());
    let then = then.unwrap_or_else(|| asked.clone());
    let selection = Selection { full: then.full || asked.full, ..then };
    let mut planned = plan_against(project, &selection, &past.baseline).map_err(|error| match error {
        PlanError::NoSuchUnit { .. } => none_left(chain.id()),
        error => project::unplanned(&error),
    })?;
    planned.call_as(chain.units());
    unreconciled::forget_evicted(&history, &mut planned)?;
    let others = planned.narrow(project, &asked).map_err(|error| match error {
        // `--failed RUN` reads like `--resume-run RUN`, but its value needs an equals sign.
        PlanError::NoSuchConnection(name, _) if of_failed.is_some() && runs.resolve(&name).is_ok() => {
            Failure::usage(format!("ktx.yaml has no connection `{name}`; to name the run, write `--failed={name}`"))
        }
        error => project::unplanned(&error),
    })?;
    past.annotate(&mut planned);
    let ground = Footing { project, chain: &chain, model };
    let mut taken = match of_failed {
        None => ground.resume(planned, others)?,
        Some(_) => ground.failed(planned, others)?,
    };
    unreconciled::forget_seen(&runs, &mut taken)?;
    forget_saved(&runs, chain.id(), &mut taken)?;
    let left = still_there(project, past.left.filter(|_| of_failed.is_some()))?;
    Ok(Taken { efforts: past.efforts, left, ..taken })
}

/// The records of earlier runs, with a warning about what cannot be read of them.
fn history(project: &Project) -> Result<ProjectHistory, Failure> {
    let history = ProjectHistory::open(project)?;
    project::warn(&history.warnings);
    Ok(history)
}

/// What of it the project still has: neither a plan of a part nor one of what changed tells.
fn still_there(project: &Project, left: Option<Left>) -> Result<Option<Left>, Failure> {
    let Some(left) = left else { return Ok(None) };
    let whole = plan(project, &Selection::default()).map_err(|error| project::unplanned(&error))?;
    Ok(left.among(&whole.units))
}

/// Leaves out the patches that a later run put on the branch: put there twice, what somebody undid since would come back.
///
/// # Errors
/// When runs that went on with `run` took on all that it left.
fn forget_saved(runs: &Runs, run: RunId, taken: &mut Taken) -> Result<(), Failure> {
    let Some(continues) = &mut taken.continues else { return Ok(()) };
    let of = |unit: &UnitKey| Some((unit.clone(), continues.units.get(unit)?.run));
    let mut waiting: HashMap<UnitKey, RunId> = patches(Some(continues)).filter_map(|(unit, _)| of(unit)).collect();
    if waiting.is_empty() {
        return Ok(());
    }
    let standing: HashSet<&UnitKey> = reused(Some(continues)).collect();
    let keys = taken.planned.units.iter().map(|unit| &unit.planned.unit);
    let mut open: HashSet<UnitKey> = keys.filter(|unit| !standing.contains(unit)).cloned().collect();
    let (mut saved, mut newest) = (HashSet::new(), None);
    for found in runs.list().map_err(Failure::internal)?.into_iter().take_while(|found| found.id != run) {
        // A record that nobody can read saved nothing that anybody knows of.
        let Ok(state) = fold(runs, &found) else { continue };
        let of_it: HashSet<UnitKey> =
            waiting.iter().filter(|waiting| has_saved(&state, *waiting)).map(|(unit, _)| unit.clone()).collect();
        if of_it.is_empty() {
            continue;
        }
        newest.get_or_insert(found.id);
        let took_on: HashSet<&UnitKey> = of_the_plan(&state).map(|unit| &unit.key).collect();
        open.retain(|unit| !took_on.contains(unit));
        waiting.retain(|unit, _| !of_it.contains(unit));
        saved.extend(of_it);
    }
    if let Some(later) = newest.filter(|_| waiting.is_empty() && open.is_empty()) {
        let (run, later) = (run.short(), later.short());
        return Err(Failure::usage(format!(
            "run {later} went on with run {run} and saved what it had left; resume that: `--resume-run {later}`"
        )));
    }
    for (_, earlier) in continues.units.iter_mut().filter(|(unit, _)| saved.contains(*unit)) {
        if let Some(reused) = &mut earlier.reused {
            // As for every unit that is on the branch.
            (reused.patch, reused.work) = (None, Work::default());
        }
    }
    Ok(())
}

/// True for a run that took over what `unit` had left in run `of`, and saved it.
fn has_saved(state: &RunState, (unit, of): (&UnitKey, &RunId)) -> bool {
    let took = state.earlier(unit).is_some_and(|earlier| earlier.run == *of && earlier.reused.is_some());
    took && state.taken_over.get(unit).is_some_and(|taken| taken.saved)
}

/// A run, and those that it continues, one after the other; newest first.
#[derive(Debug)]
struct Chain {
    last: (RunId, RunState),
    before: Vec<(RunId, RunState)>,
}

impl Chain {
    fn of(runs: &Runs, last: (Found, RunState)) -> Result<Self, Failure> {
        const MOST: usize = 64;
        let continued = |state: &RunState| state.planned.as_ref()?.continues.as_ref().map(|continues| continues.run);
        let recorded = runs.list().map_err(Failure::internal)?;
        let (found, state) = last;
        let mut next = continued(&state);
        let mut chain = Self { last: (found.id, state), before: Vec::new() };
        while chain.before.len() < MOST {
            let Some(found) = next.and_then(|run| recorded.iter().find(|found| found.id == run)) else { break };
            let state = folded(runs, found)?;
            next = continued(&state);
            chain.before.push((found.id, state));
        }
        Ok(chain)
    }

    fn id(&self) -> RunId {
        self.last.0
    }

    fn state(&self) -> &RunState {
        &self.last.1
    }

    fn first(&self) -> RunId {
        self.before.last().unwrap_or(&self.last).0
    }

    /// The units of all of them, those of the newest run first.
    fn units(&self) -> impl Iterator<Item = &PlannedUnit> {
        let all = std::iter::once(&self.last).chain(&self.before);
        all.flat_map(|(_, state)| of_the_plan(state)).filter_map(|unit| unit.planned.as_deref())
    }

    /// The runs from `run` on, newest first; none if it is not among them.
    fn since(&self, run: RunId) -> Vec<&RunState> {
        let all: Vec<_> = std::iter::once(&self.last).chain(&self.before).collect();
        let count = all.iter().position(|(id, _)| *id == run).map_or(0, |at| at + 1);
        all.into_iter().take(count).map(|(_, state)| state).collect()
    }

    /// How `unit` stood in the last of the runs that planned it.
    fn past(&self, unit: &str) -> Option<Past<'_>> {
        let mut all = std::iter::once(&self.last).chain(&self.before);
        all.find_map(|(run, state)| {
            let unit = of_the_plan(state).find(|planned| planned.key.as_str() == unit)?;
            Some(Before::new(state, *run).past(unit))
        })
    }
}

/// What a plan is held against.
#[derive(Clone, Copy, Debug)]
struct Footing<'a> {
    project: &'a Project,
    chain: &'a Chain,
    model: Option<&'a str>,
}

impl<'a> Footing<'a> {
    fn before(&self) -> Before<'a> {
        Before::new(self.chain.state(), self.chain.id())
    }

    /// What is to be done about a unit that stood like this.
    fn choice(&self, unit: &WorkUnit, past: &Past<'_>) -> Choice {
        let now = match past.standing {
            Stood::Succeeded => content::of(self.project, unit, self.model).ok(),
            _ => None,
        };
        choose(past, now.as_ref())
    }

    /// Leaves out of `planned` what is no part of the run, but for what stands already; returns the rest.
    fn leave_out(&self, planned: &mut Planned, units: Vec<WorkUnit>) -> Vec<WorkUnit> {
        let stands = |unit: &WorkUnit| {
            let Some(past) = self.chain.past(unit.planned.unit.as_str()) else { return false };
            matches!(self.choice(unit, &past), Choice::Reuse(reused) if reused.patch.is_none())
        };
        let (done, left): (Vec<_>, Vec<_>) = units.into_iter().partition(stands);
        done.iter().for_each(|unit| planned.leave_out(unit, true));
        left.iter().for_each(|unit| planned.leave_out(unit, false));
        left
    }

    /// The units of an earlier run: those whose success stands as reused, and the others to be run.
    fn resume(&self, mut planned: Planned, others: Vec<WorkUnit>) -> Result<Taken, Failure> {
        let before = self.before();
        let mut continues = before.continues();
        let known: HashMap<&str, &Unit> =
            of_the_plan(self.chain.state()).map(|unit| (unit.key.as_str(), unit)).collect();
        let (units, new): (Vec<_>, Vec<_>) = std::mem::take(&mut planned.units)
            .into_iter()
            .partition(|unit| known.contains_key(unit.planned.unit.as_str()));
        // A run for nothing but files that are gone had no units to begin with.
        if units.is_empty() && !known.is_empty() {
            return Err(none_left(continues.run));
        }
        planned.units = units;
        let mut gone_since = Vec::new();
        let root = ScopedDir::open(&self.project.root);
        for unit in &mut planned.units {
            let Some(then) = known.get(unit.planned.unit.as_str()) else { continue };
            let past = before.past(then);
            let mut earlier = before.earlier(then);
            let is_gone = |patch: &String| !root.as_ref().is_ok_and(|root| root.is_file(patch));
            unit.planned.why = match self.choice(unit, &past) {
                Choice::Run(why) => why,
                Choice::Reuse(reused) if reused.patch.as_ref().is_some_and(is_gone) => {
                    format!("succeeded in run {}, but its patch is gone", past.run.short())
                }
                Choice::Reuse(reused) => {
                    if let Some(earlier) = &mut earlier {
                        (earlier.run, earlier.reused) = (past.run, Some(*reused));
                    }
                    let stands = format!("succeeded in run {} with the same content", past.run.short());
                    let since = self.chain.since(past.run);
                    match gone::words(&gone::of(&self.project.root, &since, &then.key, past.attempt)) {
                        None => stands,
                        Some(gone) => {
                            gone_since.push(format!("{} ({gone})", unit.planned.unit));
                            format!("{stands}, but {gone}")
                        }
                    }
                }
            };
            continues.units.extend(earlier.map(|earlier| (unit.planned.unit.clone(), earlier)));
        }
        self.leave_out(&mut planned, others);
        let new = self.leave_out(&mut planned, new);
        unreconciled::keep(self.project, &mut continues);
        warn_of_others(&continues, &known, &planned.units, &new);
        warn_of_gone(&gone_since);
        Ok(Taken { planned, continues: Some(continues), efforts: Vec::new(), left: None, nothing: None })
    }

    /// The units that failed, ran out of turns or were stopped in an earlier run.
    fn failed(&self, mut planned: Planned, others: Vec<WorkUnit>) -> Result<Taken, Failure> {
        let before = self.before();
        let mut continues = before.continues();
        let known: HashMap<&str, &Unit> = of_the_plan(self.chain.state())
            .filter(|unit| {
                matches!(before.past(unit).standing, Stood::Failed(_) | Stood::OutOfBudget(_) | Stood::Stopped)
            })
            .map(|unit| (unit.key.as_str(), unit))
            .collect();
        let (units, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut planned.units)
            .into_iter()
            .partition(|unit| known.contains_key(unit.planned.unit.as_str()));
        if units.is_empty() && !known.is_empty() {
            let run = continues.run.short();
            let mut names: Vec<&str> = known.keys().copied().collect();
            names.sort_unstable();
            return Err(Failure::not_found(format!(
                "no unit that failed in run {run} is left in the plan; those that failed are {}",
                listed(&names)
            )));
        }
        let nothing = units.is_empty().then(|| none_failed(continues.run, self.chain.state()));
        planned.units = units;
        for unit in &mut planned.units {
            let Some(then) = known.get(unit.planned.unit.as_str()) else { continue };
            if let Choice::Run(why) = choose(&before.past(then), None) {
                unit.planned.why = why;
            }
            continues.units.extend(before.earlier(then).map(|earlier| (unit.planned.unit.clone(), earlier)));
        }
        self.leave_out(&mut planned, others.into_iter().chain(rest).collect());
        unreconciled::keep_failed(self.project, &mut continues, self.chain.state());
        warn_of_others(&continues, &known, &planned.units, &[]);
        Ok(Taken { planned, continues: Some(continues), efforts: Vec::new(), left: None, nothing })
    }
}

/// That nothing failed does not say that everything is done.
fn none_failed(run: RunId, state: &RunState) -> String {
    let run = run.short();
    let unsaved = of_the_plan(state).filter(|unit| state.is_unsaved(unit)).count();
    let open = of_the_plan(state).filter(|unit| is_left(unit.status)).count();
    let are = |count: usize| if count == 1 { "is" } else { "are" };
    let what = match (open, unsaved) {
        (0, 0) => return format!("no unit failed in run {run}: there is nothing to run"),
        (open, 0) => format!("{} of it {} not done", counted(open, "unit"), are(open)),
        (0, unsaved) => format!("{} of it {} not saved", counted(unsaved, "unit"), are(unsaved)),
        (open, unsaved) => {
            format!("{} of it {} not done, {unsaved} {} not saved", counted(open, "unit"), are(open), are(unsaved))
        }
    };
    format!("no unit failed in run {run}, but {what}; `--resume-run {run}` goes on with it")
}

fn none_left(run: RunId) -> Failure {
    let run = run.short();
    Failure::not_found(format!("no unit of run {run} is left in the plan; `ingestdeck plan` shows it"))
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

/// What was deleted may be meant to be: it is written anew only for those who ask.
fn warn_of_gone(units: &[String]) {
    if units.is_empty() {
        return;
    }
    let names: Vec<&str> = units.iter().map(String::as_str).collect();
    project::warn(&[format!(
        "what reused units wrote was deleted: {}; `run --full --only UNIT` writes it anew",
        listed(&names)
    )]);
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
    // Plain sessions are recorded beside the runs, and one of them may be alive.
    for found in runs.list().map_err(Failure::internal)? {
        let over = is_over(runs, &found);
        let state = fold(runs, &found)?;
        if unfit(&state).is_none() {
            return over.map(|()| (found, state));
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
    is_over(runs, found)?;
    fold(runs, found)
}

fn is_over(runs: &Runs, found: &Found) -> Result<(), Failure> {
    if runs.standing(found).map_err(Failure::internal)? != Standing::Running {
        return Ok(());
    }
    let run = found.id.short();
    let holder = runs.holder(found.id).map(|pid| format!(" in process {pid}")).unwrap_or_default();
    Err(Failure::new(
        Exit::Usage,
        format!("run {run} still runs{holder}; look on with `ingestdeck watch {run}`, or end it first"),
    ))
}

/// What the record of a run says so far.
fn fold(runs: &Runs, found: &Found) -> Result<RunState, Failure> {
    let source = runs::source_of(runs, found)?.shortened();
    let mut timeline = Timeline::forward(Box::new(source));
    while timeline.advance(SLICE, &mut |_| {}).map_err(Failure::internal)? == Progress::More {}
    Ok(timeline.story().state.clone())
}

/// True for a unit that another try would make sense for.
pub fn is_left(status: UnitStatus) -> bool {
    !matches!(status, UnitStatus::Succeeded | UnitStatus::Reused)
}
