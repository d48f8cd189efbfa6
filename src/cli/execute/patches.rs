//! The patches of a run, from the attempts that left them to the one commit that holds them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    path::PathBuf,
    sync::{Arc, PoisonError},
};

use super::{super::summary::counted, Attempts, Ground, pass::Left};
use crate::{
    claude::contained,
    ingest::{
        git::CommitId,
        integrate::{IntegrateError, Integrated, Integration, Patch, RawCopy},
        plan::WorkUnit,
        reconcile::RECONCILE,
        worktree::Worktrees,
    },
    run::{Item, Recorder},
    tape::{
        Body, Note, UnitKey,
        note::{self, Cause, Integrating, Level, PatchIntegrated, SaveFailed, SlRefsRepaired},
    },
    units::{
        schedule::{Taken, Together},
        verdict,
    },
};

/// Most findings and units that a sentence names.
const NAMED: usize = 5;

/// Patches that wait, and what is being made of them.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// The newest patch of each unit: its attempt, and its file unless it changes nothing.
    pub(super) patches: HashMap<UnitKey, (u32, Option<PathBuf>)>,
    /// Units that may not change the semantic layer.
    barred: HashSet<UnitKey>,
    /// Connections whose sources the pages of a unit may speak of, for the units of the plan.
    targets: HashMap<UnitKey, Vec<String>>,
    /// The connections of all of them.
    connections: Vec<String>,
    /// Set between putting together and saving.
    integration: Option<Integration>,
    /// The commit that holds what is in it.
    pub(super) head: Option<CommitId>,
    /// Units whose patches are in it.
    pub(super) taken: Vec<UnitKey>,
    /// Those of them that changed something, but for the pass.
    accepted: Vec<UnitKey>,
    /// Units whose patches were not taken when units were last put together, and why.
    pub(super) lost: HashMap<UnitKey, String>,
    /// Why there is nothing to save.
    failed: Option<String>,
    /// What the pass has yet to look at besides.
    pub(super) left: Left,
}

impl Round {
    /// An attempt left a patch.
    pub(super) fn written(&mut self, unit: &UnitKey, attempt: u32, file: Option<PathBuf>) {
        self.patches.insert(unit.clone(), (attempt, file));
    }

    fn patch(&self, unit: &UnitKey, attempt: u32) -> Patch {
        let file = self.patches.get(unit).filter(|(of, _)| *of == attempt).and_then(|(_, file)| file.clone());
        let targets = self.targets.get(unit).unwrap_or(&self.connections).clone();
        Patch { unit: unit.clone(), file, semantic_layer: !self.barred.contains(unit), targets }
    }
}

impl Attempts {
    /// The same attempts, with patches that an earlier run left, relative to the project.
    pub fn taking_over<'a>(self, patches: impl IntoIterator<Item = (&'a UnitKey, &'a str)>) -> Self {
        for (unit, path) in patches {
            // No attempt of this run: they are counted from 1.
            self.round().written(unit, 0, Some(self.project.root.join(path)));
        }
        self
    }

    pub(super) async fn put_together(&self, units: Vec<(UnitKey, u32)>) -> Together {
        let Ground::Worktrees(trees) = &self.ground else { return Together { results: Vec::new(), ok: true } };
        let (trees, round, recorder) = (Arc::clone(trees), Arc::clone(&self.round), Arc::clone(&self.recorder));
        let is_barred =
            |(key, (_, unit)): (&UnitKey, &(usize, WorkUnit))| unit.planned.sl_disallowed.as_ref().map(|_| key.clone());
        let barred = self.units.iter().filter_map(is_barred).collect();
        let (units_of_plan, project) = (Arc::clone(&self.units), Arc::clone(&self.project));
        let gone: Vec<String> =
            self.pass.iter().flat_map(|pass| &pass.evictions).map(|of| of.connection.clone()).collect();
        let work = contained::blocking(move || {
            let mut round = round.lock().unwrap_or_else(PoisonError::into_inner);
            round.barred = barred;
            let of_unit = |(key, (_, unit)): (&UnitKey, &(usize, WorkUnit))| {
                (key.clone(), project.targets(Some(&unit.planned.connection)))
            };
            round.targets = units_of_plan.iter().map(of_unit).collect();
            let of_gone = gone.iter().flat_map(|connection| project.targets(Some(connection)));
            let all: BTreeSet<String> = round.targets.values().flatten().cloned().chain(of_gone).collect();
            round.connections = if all.is_empty() { project.targets(None) } else { all.into_iter().collect() };
            let mut results = Vec::new();
            if !(is_pass(&units) && round.failed.is_some()) {
                let done = put_together(&trees, &mut round, &units, recorder.as_ref(), &mut results);
                round.failed = done.err().map(|error| error.to_string());
            }
            Together { results, ok: round.failed.is_none() }
        });
        work.await.unwrap_or_else(|error| {
            self.round().failed = Some(error.to_string());
            Together::default()
        })
    }

    pub(super) async fn put_on_branch(&self, failed: Vec<UnitKey>) -> bool {
        let message = self.message(&failed);
        let (round, recorder) = (Arc::clone(&self.round), Arc::clone(&self.recorder));
        let (units, sync, reconciles) = (Arc::clone(&self.units), self.job.sync_id.clone(), self.pass.is_some());
        let work = contained::blocking(move || {
            let mut round = round.lock().unwrap_or_else(PoisonError::into_inner);
            let (integration, taken) = (round.integration.take(), std::mem::take(&mut round.taken));
            let accepted = std::mem::take(&mut round.accepted);
            round.head = None;
            let saved = match (round.failed.take(), integration) {
                (Some(reason), _) => Err(reason),
                (None, None) => Err("nothing was put together".to_owned()),
                (None, Some(mut integration)) => {
                    integration.save(&message, &raw_copies(&units, &taken, &sync)).map_err(|error| error.to_string())
                }
            };
            let saved = match saved {
                Ok(saved) => saved,
                Err(reason) => {
                    record(recorder.as_ref(), None, &Note::SaveFailed(SaveFailed { reason }));
                    return None;
                }
            };
            if !saved.refused.is_empty() {
                let count = counted(saved.refused.len(), "raw file");
                let folder = format!("/{sync}/");
                let name =
                    |place: &String| place.split_once(&folder).map_or(place.clone(), |(_, name)| name.to_owned());
                let names: Vec<String> = saved.refused.iter().map(name).collect();
                let text = format!("the commit is without {count} that git does not take: {}", some(&names));
                record(recorder.as_ref(), None, &Note::Said { level: Level::Warning, text });
            }
            let passed = taken.iter().any(|unit| unit.as_str() == RECONCILE);
            let settled = if reconciles { round.left.saved(accepted, passed) } else { Vec::new() };
            let note = note::Saved {
                subject: message.lines().next().unwrap_or_default().to_owned(),
                commit: saved.commit,
                branch: saved.branch,
                paths: saved.paths,
                unreconciled: round.left.units(),
            };
            record(recorder.as_ref(), None, &Note::Saved(note));
            if !saved.repairs.is_empty() {
                let repaired = SlRefsRepaired { repairs: saved.repairs };
                record(recorder.as_ref(), None, &Note::SlRefsRepaired(repaired));
            }
            for evicted in settled {
                record(recorder.as_ref(), None, &Note::Evicted(Box::new(evicted)));
            }
            if passed {
                let remarks = [undecided(&round.left.undecided()), round.left.take_flagged()];
                for text in remarks.into_iter().flatten() {
                    record(recorder.as_ref(), None, &Note::Said { level: Level::Warning, text });
                }
            }
            Some(taken)
        });
        match work.await {
            Ok(Some(taken)) => {
                self.published().extend(taken);
                true
            }
            Ok(None) => false,
            Err(error) => {
                tracing::error!(%error, "saving broke off");
                record(self.recorder.as_ref(), None, &Note::SaveFailed(SaveFailed { reason: error.to_string() }));
                false
            }
        }
    }

    /// KTX's message for the commit of an ingest.
    fn message(&self, failed: &[UnitKey]) -> String {
        let units = || self.units.values().map(|(_, unit)| &unit.planned);
        let mut sources: BTreeSet<&str> = units().map(|unit| unit.adapter.as_str()).collect();
        if sources.is_empty() {
            sources.extend(self.evicting());
        }
        let sources: Vec<&str> = sources.into_iter().collect();
        let failed: Vec<&str> = failed.iter().map(UnitKey::as_str).collect();
        let failed = if failed.is_empty() { String::new() } else { format!("; failed WUs: {}", failed.join(", ")) };
        format!("ingest({}): {} syncId={} diff={}{failed}", sources.join(","), self.job.id, self.job.sync_id, self.diff)
    }
}

/// The raw files of the units that were taken.
fn raw_copies(units: &HashMap<UnitKey, (usize, WorkUnit)>, taken: &[UnitKey], sync: &str) -> Vec<RawCopy> {
    let units = taken.iter().filter_map(|unit| units.get(unit)).map(|(_, unit)| unit);
    let copies = units
        .flat_map(|unit| unit.raw_copies(sync).map(|(file, to)| RawCopy { from: unit.source_root.join(file), to }));
    // Units may share files.
    copies.map(|copy| (copy.to.clone(), copy)).collect::<BTreeMap<_, _>>().into_values().collect()
}

fn put_together(
    trees: &Arc<Worktrees>,
    round: &mut Round,
    units: &[(UnitKey, u32)],
    recorder: &dyn Recorder,
    results: &mut Vec<Taken>,
) -> Result<(), IntegrateError> {
    // The pass looked at what is put together, and its patch is put on top of that.
    let mut integration = match round.integration.take() {
        Some(begun) if is_pass(units) => begun,
        _ => {
            (round.head, round.taken, round.accepted) = Default::default();
            Integration::begin(trees, round.connections.clone())?
        }
    };
    if !is_pass(units) && !units.is_empty() {
        round.lost.clear();
    }
    let keys = units.iter().map(|(unit, _)| unit.clone()).collect();
    record(recorder, None, &Note::Integrating(Integrating { onto: integration.onto().to_string(), units: keys }));
    let patches: Vec<Patch> = units.iter().map(|(unit, attempt)| round.patch(unit, *attempt)).collect();
    let mut attempts = units.iter();
    let (mut taken, mut accepted, mut lost) = (Vec::new(), Vec::new(), Vec::new());
    integration.integrate(&patches, |patch, integrated| {
        let attempt = attempts.next().map_or(0, |(_, attempt)| *attempt);
        let mut note = noted(integrated);
        if patch.unit.as_str() == RECONCILE {
            // It is there to go over what others wrote.
            note.shared.clear();
        }
        if note.result.is_taken() {
            taken.push(patch.unit.clone());
        }
        if let Some(verdict) = &note.verdict {
            lost.push((patch.unit.clone(), verdict.reason.clone()));
        }
        let changed = note.result == note::Integration::Accepted;
        if changed && patch.unit.as_str() != RECONCILE {
            accepted.push(patch.unit.clone());
        }
        results.push(Taken { unit: patch.unit.clone(), attempt, verdict: note.verdict.clone(), changed });
        record(recorder, Some((&patch.unit, attempt)), &Note::PatchIntegrated(Box::new(note)));
    })?;
    round.taken.extend(taken);
    round.accepted.extend(accepted);
    round.lost.extend(lost);
    round.head = Some(integration.head()?);
    round.integration = Some(integration);
    Ok(())
}

fn is_pass(units: &[(UnitKey, u32)]) -> bool {
    matches!(units, [(unit, _)] if unit.as_str() == RECONCILE)
}

/// What the tape says of a patch.
fn noted(integrated: &Integrated) -> PatchIntegrated {
    use note::Integration;
    let (result, cause, reason) = match integrated {
        Integrated::Accepted { commit, paths, shared } => {
            let (commit, paths, shared) = (Some(commit.clone()), paths.clone(), shared.clone());
            return PatchIntegrated { result: Integration::Accepted, commit, paths, shared, verdict: None };
        }
        Integrated::Noop { shared } => {
            return PatchIntegrated { shared: shared.clone(), ..PatchIntegrated::default() };
        }
        Integrated::TextualConflict { paths, others } => {
            let with = if others.is_empty() { " with what the branch has there now".to_owned() } else { with(others) };
            let reason = format!("textual conflict in {}{with}", some(paths));
            (Integration::TextualConflict, Cause::Conflict, reason)
        }
        Integrated::SemanticConflict { findings, others } => {
            let reason = format!("what it wrote does not hold any more{}: {}", with(others), some(findings));
            (Integration::SemanticConflict, Cause::Conflict, reason)
        }
        Integrated::Policy { why } => (Integration::Policy, Cause::Policy, format!("its patch {why}")),
        Integrated::Lost { why } => (Integration::Lost, Cause::Internal, format!("its patch {why}")),
    };
    let paths = match integrated {
        Integrated::TextualConflict { paths, .. } => paths.clone(),
        _ => Vec::new(),
    };
    let verdict = Some(verdict::not_taken(cause, reason));
    PatchIntegrated { result, paths, verdict, ..PatchIntegrated::default() }
}

/// The warning about gone files that the pass left open.
fn undecided(paths: &[String]) -> Option<String> {
    let files = counted(paths.len(), "gone file");
    (!paths.is_empty()).then(|| {
        format!(
            "reconcile left {files} open, without a decision on each page and source ({}); the next run asks again",
            some(paths)
        )
    })
}

fn with(others: &[UnitKey]) -> String {
    if others.is_empty() { String::new() } else { format!(" with {}", some(others)) }
}

pub(super) fn some(names: &[impl std::ops::Deref<Target = str>]) -> String {
    let shown: Vec<&str> = names.iter().take(NAMED).map(|name| &**name).collect();
    let more = names.len().saturating_sub(NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{more}", shown.join(", "))
}

/// A note that cannot be written ends the run by itself.
pub(super) fn record(recorder: &dyn Recorder, lane: Option<(&UnitKey, u32)>, note: &Note) {
    let json = note.to_json();
    if let Err(error) = recorder.record(&[Item { lane, body: Body::Note(&json) }]) {
        tracing::error!(%error, "a note is lost");
    }
}
