//! What a run ingests: the project, the units and the job, and what follows from them. Fixed for the whole run.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::PathBuf,
    sync::Arc,
};

use ingestdeck_core::{
    run::commit_trailers::{AttemptTrailer, CommitMessage, RunTrailers, trailer_key},
    tape::{
        RunId, UnitKey,
        note::{ContinuedRun, DiffCounts, FetchedRepository, FilesEvicted, SourcesProjected},
    },
};
use ingestdeck_ingest::{
    committed_changes::CommittedRun,
    integrate::{IntegrationError, PatchIntegrator, RawCopy, UnitPatch},
    job::IngestJob,
    plan::PlannedDiff,
    project::Project,
    projection::PendingProjection,
    reconcile::{self, EvictionCandidate},
    text_input::TEXT_ADAPTER,
    work_unit::WorkUnit,
    worktree::Worktrees,
};

/// The inputs of a run.
#[derive(Debug)]
pub struct IngestRun {
    pub id: RunId,
    pub project: Arc<Project>,
    /// The units with their positions in the plan.
    pub units: HashMap<UnitKey, (usize, WorkUnit)>,
    /// The changes of their sources.
    pub diff: PlannedDiff,
    /// The repositories of connections whose files git fetched.
    pub repositories: Vec<(String, FetchedRepository)>,
    pub job: IngestJob,
    pub worktrees: Arc<Worktrees>,
    /// The reconcile step, if one is wanted.
    pub reconcile: Option<ReconcileOptions>,
    /// The pending projections of each connection. If one cannot be written, units run without it.
    pub projections: Vec<PendingProjection>,
    /// What notes begin with about the projections that a prior run did not save.
    pub prior_projections: Vec<SourcesProjected>,
    /// Projections wait for the review, like the changes of units.
    pub is_reviewed: bool,
    /// The attempts of prior runs whose patches this run may save.
    pub prior_attempts: HashMap<UnitKey, (RunId, u32)>,
    /// The run whose commits are reviewed, if they are.
    pub committed: Option<CommittedRun>,
}

impl IngestRun {
    /// The units of a plan, by their keys.
    pub(crate) fn index_units(units: Vec<WorkUnit>) -> HashMap<UnitKey, (usize, WorkUnit)> {
        units
            .into_iter()
            .enumerate()
            .map(|(index, unit)| (unit.planned.unit.clone(), (index, unit)))
            .collect()
    }

    /// The prior run and the attempt of each reused success.
    pub(crate) fn reused_attempts(
        continues: Option<&ContinuedRun>,
    ) -> HashMap<UnitKey, (RunId, u32)> {
        let units = continues.into_iter().flat_map(|continues| &continues.units);
        units
            .filter_map(|(unit, prior)| {
                Some((unit.clone(), (prior.run, prior.reused.as_ref()?.attempt)))
            })
            .collect()
    }

    pub(super) fn work_unit(&self, unit: &UnitKey) -> Option<&WorkUnit> {
        self.units.get(unit).map(|(_, unit)| unit)
    }

    /// An integration of the patches of the run, without any patch of a unit.
    pub(super) fn open_integrator(&self) -> Result<PatchIntegrator, IntegrationError> {
        let new = PatchIntegrator::open(&self.worktrees, self.all_targets())?;
        Ok(new.with_known_tables(&self.project))
    }

    /// The patch of a unit, in `file` unless it is empty.
    pub(super) fn unit_patch(&self, unit: &UnitKey, file: Option<PathBuf>) -> UnitPatch {
        let work_unit = self.work_unit(unit);
        let may_write = work_unit.is_none_or(WorkUnit::may_write_sources);
        let writable = || {
            self.project
                .target_ids(work_unit.and_then(WorkUnit::own_connection))
        };
        UnitPatch {
            unit: unit.clone(),
            file,
            source_connections: may_write.then(writable).unwrap_or_default(),
            targets: work_unit.map_or_else(
                || self.all_targets(),
                |unit| self.project.target_ids(unit.own_connection()),
            ),
        }
    }

    /// All connections whose sources the pages of a unit may refer to.
    pub(super) fn all_targets(&self) -> Vec<String> {
        let of_units = self.units.values().map(|(_, unit)| unit.own_connection());
        let of_deleted = self
            .reconcile
            .iter()
            .flat_map(|pass| &pass.evictions)
            .map(|of| Some(of.connection.as_str()));
        let connections: BTreeSet<Option<&str>> = of_units.chain(of_deleted).collect();
        let all: BTreeSet<String> = connections
            .into_iter()
            .flat_map(|connection| self.project.target_ids(connection))
            .collect();
        if all.is_empty() {
            self.project.target_ids(None)
        } else {
            all.into_iter().collect()
        }
    }

    /// The raw files of these units.
    pub(super) fn raw_copies(&self, units: &[UnitKey]) -> Vec<RawCopy> {
        let units = units.iter().filter_map(|unit| self.work_unit(unit));
        let copies = units.flat_map(|unit| {
            let copies = unit.raw_copies(&self.job.sync_id);
            copies.map(|(file, to)| RawCopy {
                source: unit.source_root.join(file),
                source_root: unit.source_root.clone(),
                destination: to,
            })
        });
        // Units may share files.
        copies
            .map(|copy| (copy.destination.clone(), copy))
            .collect::<BTreeMap<_, _>>()
            .into_values()
            .collect()
    }

    /// The changes that a commit with the raw files of these units alone contains.
    pub(super) fn diff_of(&self, units: &[UnitKey], is_first: bool) -> DiffCounts {
        self.diff.of_units(
            units
                .iter()
                .filter_map(|unit| Some(&self.work_unit(unit)?.planned)),
            is_first,
        )
    }

    /// The message for the commit of an ingest that changes `paths` with the patches of these attempts, in integration
    /// order: KTX's message, and trailers that name the attempts. Attempt 0 is one of a prior run.
    pub(super) fn commit_message<'a>(
        &self,
        (failed, diff): (&[UnitKey], DiffCounts),
        paths: impl IntoIterator<Item = &'a String>,
        attempts: &[(UnitKey, u32)],
    ) -> CommitMessage {
        let trailer = |(unit, attempt): &(UnitKey, u32)| {
            let prior = self.prior_attempts.get(unit).filter(|_| *attempt == 0);
            let (prior_run, attempt) =
                prior.map_or((None, *attempt), |(run, attempt)| (Some(*run), *attempt));
            AttemptTrailer {
                unit: trailer_key(unit),
                attempt,
                prior_run,
            }
        };
        let trailers = RunTrailers {
            run: self.id,
            attempts: attempts.iter().map(trailer).collect(),
            noted: None,
        };
        let message = match &self.committed {
            Some(of) => format!(
                "review of run {}: changes that its commits made",
                of.run.short()
            ),
            None => self.ktx_message(failed, diff, paths),
        };
        trailers.append_to(&message)
    }

    fn ktx_message<'a>(
        &self,
        failed: &[UnitKey],
        diff: DiffCounts,
        paths: impl IntoIterator<Item = &'a String>,
    ) -> String {
        let mut is_of_texts = self.units.values().map(|(_, unit)| unit.is_text());
        let keeps_texts = self
            .projections
            .iter()
            .any(|due| due.adapter == TEXT_ADAPTER);
        if keeps_texts || is_of_texts.any(|is_text| is_text) {
            return memory_message(&self.job, paths);
        }
        let mut sources: BTreeSet<&str> = self
            .units
            .values()
            .map(|(_, unit)| unit.planned.adapter.as_str())
            .collect();
        sources.extend(self.projections.iter().map(|due| due.adapter.as_str()));
        if sources.is_empty() {
            // A commit without units is about deleted files.
            sources.extend(
                self.reconcile
                    .iter()
                    .flat_map(|pass| &pass.evictions)
                    .map(|of| of.adapter.as_str()),
            );
        }
        let sources: Vec<&str> = sources.into_iter().collect();
        let mut message = ingest_message(&sources, &self.job, diff, failed);
        for (connection, of) in self.repositories.iter().take(MAX_NAMED_REPOSITORIES) {
            message.push_str(&format!(
                "\nsource {connection}: {} at {}",
                of.url, of.commit
            ));
        }
        message
    }
}

/// KTX's message, which is one line, as a subject and a body.
fn ingest_message(
    sources: &[&str],
    job: &IngestJob,
    diff: DiffCounts,
    failed: &[UnitKey],
) -> String {
    let count = if failed.is_empty() {
        String::new()
    } else {
        format!(", {} failed", failed.len())
    };
    let subject = |sources: &str| format!("ingest({sources}): {} diff={diff}{count}", job.id);
    let mut message = subject(&sources.join(","));
    if let (true, [first, others @ ..]) = (message.len() > MAX_SUBJECT_CHARS, sources) {
        message = subject(&format!("{first}+{}", others.len()));
    }
    message.push_str(&format!("\n\nsyncId={}", job.sync_id));
    if !failed.is_empty() {
        let names: Vec<String> = failed
            .iter()
            .take(MAX_NAMED_FAILURES)
            .map(trailer_key)
            .collect();
        let more = failed.len() - names.len();
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        message.push_str(&format!("\nfailed WUs: {}{more}", names.join(", ")));
    }
    message
}

/// Longest subject of a commit, which tools show on one line.
const MAX_SUBJECT_CHARS: usize = 72;
/// Most repositories that a message names.
const MAX_NAMED_REPOSITORIES: usize = 10;
/// Most failed units that a message names.
const MAX_NAMED_FAILURES: usize = 20;

/// KTX's message for the commit of captured texts that changes `paths`. It names the job, where KTX names a chat.
fn memory_message<'a>(job: &IngestJob, paths: impl IntoIterator<Item = &'a String>) -> String {
    const CHAT_CHARS: usize = 8;
    let (wiki, sources): (Vec<_>, Vec<_>) = paths
        .into_iter()
        .partition(|path| path.starts_with("wiki/"));
    let chat: String = job
        .id
        .trim_start_matches("local-")
        .chars()
        .take(CHAT_CHARS)
        .collect();
    format!(
        "Memory ingest ({TEXT_ADAPTER}): {} wiki, {} sl [chat={chat}]",
        wiki.len(),
        sources.len()
    )
}

/// The work for the reconcile step that precedes the run.
#[derive(Clone, Debug, Default)]
pub struct ReconcileOptions {
    /// Deleted raw files, by connection.
    pub evictions: Vec<FilesEvicted>,
    /// The artifacts that came from them, by `connection/path`.
    pub artifacts_by_deleted_file: BTreeMap<String, Vec<EvictionCandidate>>,
    /// Patches that a prior run saved without a reconcile step; paths are relative to the project.
    pub unreconciled: BTreeMap<UnitKey, String>,
}

impl ReconcileOptions {
    /// True if there is something to review even without any unit.
    pub fn is_due(&self) -> bool {
        !self.evictions.is_empty() || !self.unreconciled.is_empty()
    }

    /// Maximum number of turns of the step.
    pub(super) fn step_budget(&self) -> u32 {
        reconcile::step_budget(self.artifacts_by_deleted_file.values().map(Vec::len).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subject_of_an_ingest_is_short() {
        let job = IngestJob::new("2026-03-17T15:30:01.5Z".parse().unwrap());
        let failed: Vec<UnitKey> = (0..22)
            .map(|unit| format!("docs-{unit}\n").as_str().into())
            .collect();
        let diff = DiffCounts {
            added: 2000,
            modified: 30,
            deleted: 4,
            unchanged: 5,
        };
        let message = |sources: &[&str], failed| ingest_message(sources, &job, diff, failed);
        insta::assert_snapshot!(message(&["dbt", "docs"], &failed[..1]), @"
        ingest(dbt,docs): local-mmurqopo diff=+2000/~30/-4/=5, 1 failed

        syncId=2026-03-17-153001-local-mmurqopo
        failed WUs: docs-0%0A
        ");
        let many = message(
            &[
                "dbt",
                "docs",
                "looker",
                "lookml",
                "metabase",
                "metricflow",
                "notion",
            ],
            &failed,
        );
        let subject = many.lines().next().unwrap();
        assert_eq!(
            subject,
            "ingest(dbt+6): local-mmurqopo diff=+2000/~30/-4/=5, 22 failed"
        );
        assert!(
            many.ends_with("docs-19%0A and 2 more") && !message(&["dbt"], &[]).contains("failed"),
            "{many}"
        );
    }

    #[test]
    fn message_of_texts_counts_pages_and_sources() {
        let job = IngestJob::new("2026-03-17T15:30:01.5Z".parse().unwrap());
        let paths = [
            "semantic-layer/wh/orders.yaml",
            "wiki/global/a.md",
            "wiki/global/b.md",
        ]
        .map(str::to_owned);
        let message = memory_message(&job, &paths);
        assert_eq!(
            message,
            "Memory ingest (external_ingest): 2 wiki, 1 sl [chat=mmurqopo]"
        );
    }
}
