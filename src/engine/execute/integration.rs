//! The patches of a run: their collection, integration, and the commit that contains them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    path::PathBuf,
    sync::{Arc, PoisonError},
};

use super::{AttemptExecutor, reconcile_step::ReconcileBacklog};
use crate::{
    agent::caught_panics,
    diagnostic::Diagnostic,
    ingest::{
        git::CommitId,
        integrate::{IntegrationError, PatchIntegrator, PatchOutcome, RawCopy, UnitPatch},
        work_unit::WorkUnit,
        worktree::Worktrees,
    },
    run::{NewEntry, Recorder, state::RECONCILE_KEY},
    tape::{
        EntryBody, Note, UnitKey,
        note::{self, IntegrationStarted, PatchIntegrated, SaveFailed, Severity, SlRefsRepaired, VerdictCause},
    },
    text::pluralize,
    units::{
        schedule::{IntegratedUnit, IntegrationReport},
        verdict,
    },
};

/// Maximum number of findings and units that a sentence names.
const MAX_NAMED: usize = 5;

/// Waiting patches, and the state of their integration.
#[derive(Debug, Default)]
pub(super) struct IntegrationQueue {
    /// The newest patch of each unit: its attempt, and its file unless the patch is empty.
    pub(super) patches: HashMap<UnitKey, (u32, Option<PathBuf>)>,
    /// Units that may not change the semantic layer.
    semantic_layer_denied: HashSet<UnitKey>,
    /// For each planned unit, the connections whose sources its pages may refer to.
    targets: HashMap<UnitKey, Vec<String>>,
    /// All connections of the planned units.
    connections: Vec<String>,
    /// Set between integration and saving.
    integration: Option<PatchIntegrator>,
    /// The commit that contains the integrated patches.
    pub(super) head: Option<CommitId>,
    /// Units whose patches are in that commit.
    pub(super) integrated: Vec<UnitKey>,
    /// Those units of them that changed something, without the reconcile step.
    accepted: Vec<UnitKey>,
    /// Units whose patches the last integration rejected, with the reasons.
    pub(super) rejected: HashMap<UnitKey, String>,
    /// Why there is nothing to save.
    error: Option<String>,
    /// Other work that the reconcile step must still review.
    pub(super) reconcile_backlog: ReconcileBacklog,
}

impl IntegrationQueue {
    /// Adds the patch of an attempt.
    pub(super) fn add_patch(&mut self, unit: &UnitKey, attempt: u32, file: Option<PathBuf>) {
        self.patches.insert(unit.clone(), (attempt, file));
    }

    fn patch_of(&self, unit: &UnitKey, attempt: u32) -> UnitPatch {
        let file = self.patches.get(unit).filter(|(of, _)| *of == attempt).and_then(|(_, file)| file.clone());
        let targets = self.targets.get(unit).unwrap_or(&self.connections).clone();
        UnitPatch {
            unit: unit.clone(),
            file,
            may_change_semantic_layer: !self.semantic_layer_denied.contains(unit),
            targets,
        }
    }
}

impl AttemptExecutor {
    /// Adds patches of a prior run; paths are relative to the project.
    pub(crate) fn with_prior_patches<'a>(self, patches: impl IntoIterator<Item = (&'a UnitKey, &'a str)>) -> Self {
        for (unit, path) in patches {
            // Attempt 0 marks a prior run, as the attempts of this run count from 1.
            self.integration_queue().add_patch(unit, 0, Some(self.project.root.join(path)));
        }
        self
    }

    pub(super) async fn integrate_patches(&self, units: Vec<(UnitKey, u32)>) -> IntegrationReport {
        let (trees, round, recorder) =
            (Arc::clone(&self.worktrees), Arc::clone(&self.integration_queue), Arc::clone(&self.recorder));
        let is_barred =
            |(key, (_, unit)): (&UnitKey, &(usize, WorkUnit))| unit.planned.sl_disallowed.as_ref().map(|_| key.clone());
        let barred = self.units.iter().filter_map(is_barred).collect();
        let (units_of_plan, project) = (Arc::clone(&self.units), Arc::clone(&self.project));
        let gone: Vec<String> =
            self.reconcile.iter().flat_map(|pass| &pass.evictions).map(|of| of.connection.clone()).collect();
        let work = caught_panics::spawn_blocking_caught(move || {
            let mut round = round.lock().unwrap_or_else(PoisonError::into_inner);
            round.semantic_layer_denied = barred;
            let of_unit = |(key, (_, unit)): (&UnitKey, &(usize, WorkUnit))| {
                (key.clone(), project.target_ids(Some(&unit.planned.connection)))
            };
            round.targets = units_of_plan.iter().map(of_unit).collect();
            let of_gone = gone.iter().flat_map(|connection| project.target_ids(Some(connection)));
            let all: BTreeSet<String> = round.targets.values().flatten().cloned().chain(of_gone).collect();
            round.connections = if all.is_empty() { project.target_ids(None) } else { all.into_iter().collect() };
            let mut results = Vec::new();
            if !(is_reconcile_step(&units) && round.error.is_some()) {
                let done = integrate_units(&trees, &mut round, &units, recorder.as_ref(), &mut results);
                round.error = done.err().map(|error| error.to_line());
            }
            IntegrationReport { results, ok: round.error.is_none() }
        });
        work.await.unwrap_or_else(|error| {
            self.integration_queue().error = Some(error.to_string());
            IntegrationReport::default()
        })
    }

    pub(super) async fn save_to_branch(&self, failed: Vec<UnitKey>) -> bool {
        let message = self.commit_message(&failed);
        let (round, recorder) = (Arc::clone(&self.integration_queue), Arc::clone(&self.recorder));
        let (units, sync, reconciles) = (Arc::clone(&self.units), self.job.sync_id.clone(), self.reconcile.is_some());
        let work = caught_panics::spawn_blocking_caught(move || {
            let mut round = round.lock().unwrap_or_else(PoisonError::into_inner);
            let (integration, taken) = (round.integration.take(), std::mem::take(&mut round.integrated));
            let accepted = std::mem::take(&mut round.accepted);
            round.head = None;
            let saved = match (round.error.take(), integration) {
                (Some(reason), _) => Err(reason),
                (None, None) => Err("no patches were integrated".to_owned()),
                (None, Some(mut integration)) => {
                    integration.save(&message, &raw_copies(&units, &taken, &sync)).map_err(|error| error.to_line())
                }
            };
            let saved = match saved {
                Ok(saved) => saved,
                Err(reason) => {
                    record_note(recorder.as_ref(), None, &Note::SaveFailed(SaveFailed { reason }));
                    return None;
                }
            };
            if !saved.skipped_raw_files.is_empty() {
                let count = pluralize(saved.skipped_raw_files.len(), "raw file");
                let folder = format!("/{sync}/");
                let name =
                    |place: &String| place.split_once(&folder).map_or(place.clone(), |(_, name)| name.to_owned());
                let names: Vec<String> = saved.skipped_raw_files.iter().map(name).collect();
                let text = format!("the commit omits {count} that git rejects: {}", list_some(&names));
                record_note(recorder.as_ref(), None, &Note::Message { level: Severity::Warning, text });
            }
            let passed = taken.iter().any(|unit| unit.as_str() == RECONCILE_KEY);
            let settled = if reconciles { round.reconcile_backlog.mark_saved(accepted, passed) } else { Vec::new() };
            let note = note::RunSaved {
                subject: message.lines().next().unwrap_or_default().to_owned(),
                commit: saved.commit,
                branch: saved.branch,
                paths: saved.paths,
                unreconciled: round.reconcile_backlog.unreconciled_units(),
            };
            record_note(recorder.as_ref(), None, &Note::RunSaved(note));
            if !saved.sl_ref_repairs.is_empty() {
                let repaired = SlRefsRepaired { repairs: saved.sl_ref_repairs };
                record_note(recorder.as_ref(), None, &Note::SlRefsRepaired(repaired));
            }
            for evicted in settled {
                record_note(recorder.as_ref(), None, &Note::FilesEvicted(Box::new(evicted)));
            }
            if passed {
                let remarks = [
                    undecided_message(&round.reconcile_backlog.take_undecided()),
                    round.reconcile_backlog.take_flagged(),
                ];
                for text in remarks.into_iter().flatten() {
                    record_note(recorder.as_ref(), None, &Note::Message { level: Severity::Warning, text });
                }
            }
            Some(taken)
        });
        match work.await {
            Ok(Some(taken)) => {
                self.saved_units().extend(taken);
                true
            }
            Ok(None) => false,
            Err(error) => {
                tracing::error!(%error, "saving broke off");
                record_note(self.recorder.as_ref(), None, &Note::SaveFailed(SaveFailed { reason: error.to_string() }));
                false
            }
        }
    }

    /// KTX's message for the commit of an ingest.
    fn commit_message(&self, failed: &[UnitKey]) -> String {
        let units = || self.units.values().map(|(_, unit)| &unit.planned);
        let mut sources: BTreeSet<&str> = units().map(|unit| unit.adapter.as_str()).collect();
        if sources.is_empty() {
            sources.extend(self.evicted_adapters());
        }
        let sources: Vec<&str> = sources.into_iter().collect();
        let failed: Vec<&str> = failed.iter().map(UnitKey::as_str).collect();
        let failed = if failed.is_empty() { String::new() } else { format!("; failed WUs: {}", failed.join(", ")) };
        format!("ingest({}): {} syncId={} diff={}{failed}", sources.join(","), self.job.id, self.job.sync_id, self.diff)
    }
}

/// The raw files of the integrated units.
fn raw_copies(units: &HashMap<UnitKey, (usize, WorkUnit)>, taken: &[UnitKey], sync: &str) -> Vec<RawCopy> {
    let units = taken.iter().filter_map(|unit| units.get(unit)).map(|(_, unit)| unit);
    let copies = units.flat_map(|unit| {
        unit.raw_copies(sync).map(|(file, to)| RawCopy { source: unit.source_root.join(file), destination: to })
    });
    // Units may share files.
    copies.map(|copy| (copy.destination.clone(), copy)).collect::<BTreeMap<_, _>>().into_values().collect()
}

fn integrate_units(
    trees: &Arc<Worktrees>,
    round: &mut IntegrationQueue,
    units: &[(UnitKey, u32)],
    recorder: &dyn Recorder,
    results: &mut Vec<IntegratedUnit>,
) -> Result<(), IntegrationError> {
    // The patch of the reconcile step is applied on top of the integration that it reviewed.
    let mut integration = match round.integration.take() {
        Some(begun) if is_reconcile_step(units) => begun,
        _ => {
            (round.head, round.integrated, round.accepted) = Default::default();
            PatchIntegrator::open(trees, round.connections.clone())?
        }
    };
    if !is_reconcile_step(units) && !units.is_empty() {
        round.rejected.clear();
    }
    let keys = units.iter().map(|(unit, _)| unit.clone()).collect();
    record_note(
        recorder,
        None,
        &Note::IntegrationStarted(IntegrationStarted { onto: integration.base().to_string(), units: keys }),
    );
    let patches: Vec<UnitPatch> = units.iter().map(|(unit, attempt)| round.patch_of(unit, *attempt)).collect();
    let mut attempts = units.iter();
    let (mut taken, mut accepted, mut lost) = (Vec::new(), Vec::new(), Vec::new());
    integration.integrate_all(&patches, |patch, integrated| {
        let attempt = attempts.next().map_or(0, |(_, attempt)| *attempt);
        let mut note = integration_note(integrated);
        if patch.unit.as_str() == RECONCILE_KEY {
            // The reconcile step edits the work of other units on purpose.
            note.shared.clear();
        }
        if note.result.keeps_success() {
            taken.push(patch.unit.clone());
        }
        if let Some(verdict) = &note.verdict {
            lost.push((patch.unit.clone(), verdict.reason.clone()));
        }
        let changed = note.result == note::PatchResult::Accepted;
        if changed && patch.unit.as_str() != RECONCILE_KEY {
            accepted.push(patch.unit.clone());
        }
        results.push(IntegratedUnit {
            unit: patch.unit.clone(),
            attempt,
            verdict: note.verdict.clone(),
            has_changes: changed,
        });
        record_note(recorder, Some((&patch.unit, attempt)), &Note::PatchIntegrated(Box::new(note)));
    })?;
    round.integrated.extend(taken);
    round.accepted.extend(accepted);
    round.rejected.extend(lost);
    round.head = Some(integration.head()?);
    round.integration = Some(integration);
    Ok(())
}

fn is_reconcile_step(units: &[(UnitKey, u32)]) -> bool {
    matches!(units, [(unit, _)] if unit.as_str() == RECONCILE_KEY)
}

/// The note about an integrated patch.
fn integration_note(integrated: &PatchOutcome) -> PatchIntegrated {
    use note::PatchResult;
    let (result, cause, reason) = match integrated {
        PatchOutcome::Accepted { commit, paths, shared_writes: shared } => {
            let (commit, paths, shared) = (Some(commit.clone()), paths.clone(), shared.clone());
            return PatchIntegrated { result: PatchResult::Accepted, commit, paths, shared, verdict: None };
        }
        PatchOutcome::Noop { shared_writes: shared } => {
            return PatchIntegrated { shared: shared.clone(), ..PatchIntegrated::default() };
        }
        PatchOutcome::TextualConflict { paths, others } => {
            let with =
                if others.is_empty() { " with the current state of the branch".to_owned() } else { with_units(others) };
            let reason = format!("textual conflict in {}{with}", list_some(paths));
            (PatchResult::TextualConflict, VerdictCause::Conflict, reason)
        }
        PatchOutcome::SemanticConflict { findings, others } => {
            let reason = format!("its changes are no longer valid{}: {}", with_units(others), list_some(findings));
            (PatchResult::SemanticConflict, VerdictCause::Conflict, reason)
        }
        PatchOutcome::PolicyViolation { reason: why } => {
            (PatchResult::ForbiddenPaths, VerdictCause::Policy, format!("its patch {why}"))
        }
        PatchOutcome::Unreadable { reason: why } => {
            (PatchResult::PatchUnreadable, VerdictCause::Internal, format!("its patch {why}"))
        }
    };
    let paths = match integrated {
        PatchOutcome::TextualConflict { paths, .. } => paths.clone(),
        _ => Vec::new(),
    };
    let verdict = Some(verdict::integration_failure(cause, reason));
    PatchIntegrated { result, paths, verdict, ..PatchIntegrated::default() }
}

/// The warning about deleted files that the reconcile step left open.
fn undecided_message(paths: &[String]) -> Option<String> {
    let files = pluralize(paths.len(), "gone file");
    (!paths.is_empty()).then(|| {
        format!(
            "reconcile left {files} open, without a decision on each page and source ({}); the next run asks again",
            list_some(paths)
        )
    })
}

fn with_units(others: &[UnitKey]) -> String {
    if others.is_empty() { String::new() } else { format!(" with {}", list_some(others)) }
}

pub(super) fn list_some(names: &[impl std::ops::Deref<Target = str>]) -> String {
    let shown: Vec<&str> = names.iter().take(MAX_NAMED).map(|name| &**name).collect();
    let more = names.len().saturating_sub(MAX_NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{more}", shown.join(", "))
}

/// A failed write ends the run independently.
pub(super) fn record_note(recorder: &dyn Recorder, attempt: Option<(&UnitKey, u32)>, note: &Note) {
    let json = note.to_json();
    if let Err(error) = recorder.record(&[NewEntry { attempt, body: EntryBody::Note(&json) }]) {
        tracing::error!(%error, "a note is lost");
    }
}
