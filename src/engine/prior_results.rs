//! What the next plan needs from prior runs: the processed files, and the effort of units by adapter.
//!
//! Reads the index, and KTX's database for runs of KTX. The plan and these two sources do not depend on each other.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use jiff::Timestamp;

use super::{continued_runs::ContinuedRuns, recorded_tapes, unsaved_run::UnsavedRun};
use ingestdeck_core::{
    run::state::UnitStatus,
    tape::{RunId, note::attempt_output::ArtifactChange},
    text::pluralize,
    units::reuse::BudgetExhaustion,
};
use ingestdeck_ingest::{
    self as ingest, DamagedRows, KTX_DATABASE, KtxArtifact, KtxFile, KtxHistory,
    baseline::{
        Baseline, FileEvent, FileOutcome, LastUnitOutcome, PriorFileRecord, RecordOrigin,
        RecordTime, UnitFileOutcome,
    },
    plan::{IngestPlan, SourcePlan},
    project::Project,
    reconcile::PriorProvenance,
    reconcile::{EvictionCandidate, staged_path},
    source::Fingerprint,
};
use ingestdeck_records::store::{
    Db, RunStore,
    db::{ArtifactHistory, FileKey, FileRecord, PriorEfforts, UnitHistory},
    index_refresh::RefreshError,
    index_rows::{ArtifactIndexRow, FileState, UnitFileResult},
};

/// The results of prior runs.
#[derive(Clone, Debug, Default)]
pub struct PriorResults {
    pub baseline: Baseline,
    /// What earlier runs of the project cost.
    pub efforts: PriorEfforts,
    /// The newest run with unsaved units.
    pub unsaved_run: Option<UnsavedRun>,
    /// What reviewers did not accept, by connection and KTX's key of the unit.
    review_remarks: HashMap<(String, String), String>,
    /// Artifacts by connection and raw file.
    artifacts: HashMap<(String, String), Vec<WrittenArtifact>>,
}

/// The last change of an artifact by a prior run because of a raw file.
#[derive(Clone, Debug)]
struct WrittenArtifact {
    /// When the run started, or when KTX's job completed, in milliseconds since 1970.
    began_ms: u64,
    /// Short id of the run, or of KTX's job.
    run: String,
    row: ArtifactIndexRow,
}

/// Target, its connection and key.
type ArtifactId<'a> = (&'a str, &'a str, &'a str);

/// The state of an artifact over all raw files.
#[derive(Clone, Debug, Default)]
struct ArtifactState {
    began_ms: u64,
    is_removed: bool,
    /// Existing raw files that it is based on, as `connection/path`.
    supporting_files: BTreeSet<String>,
}

impl PriorResults {
    /// Adds to each unit of `planned` the artifacts of its raw files and the remarks of reviewers, and to each source the artifacts of its deleted
    /// files.
    pub(crate) fn annotate(&self, planned: &mut IngestPlan) {
        for unit in &mut planned.units {
            let connection = &unit.planned.connection;
            let found = unit
                .planned
                .raw_files
                .iter()
                .filter_map(|path| self.artifacts.get(&(connection.clone(), path.clone())));
            unit.prior_provenance = found.flatten().map(WrittenArtifact::to_prior).collect();
            let key = (
                connection.clone(),
                unit.planned.ktx_key().as_str().to_owned(),
            );
            unit.review_remarks = self.review_remarks.get(&key).cloned();
        }
        let mut gone = HashSet::new();
        for source in &planned.sources {
            gone.extend(
                source
                    .diff
                    .deleted
                    .iter()
                    .map(|path| (source.connection.clone(), path.clone())),
            );
        }
        if gone.is_empty() {
            return;
        }
        let states = self.artifact_states(&gone);
        for source in &mut planned.sources {
            source.eviction_candidates = self.dependent_artifacts(source, &states);
        }
    }

    /// Adds an artifact of another record, unless a newer change is known.
    fn add_artifact(&mut self, artifact: WrittenArtifact) {
        let known = self
            .artifacts
            .entry((artifact.row.connection.clone(), artifact.row.path.clone()))
            .or_default();
        match known.iter_mut().find(|known| known.id() == artifact.id()) {
            Some(known) if known.began_ms >= artifact.began_ms => {}
            Some(known) => *known = artifact,
            None => known.push(artifact),
        }
    }

    /// All artifacts of prior runs, without support from files that are `gone`.
    fn artifact_states(
        &self,
        gone: &HashSet<(String, String)>,
    ) -> HashMap<ArtifactId<'_>, ArtifactState> {
        let mut states: HashMap<ArtifactId<'_>, ArtifactState> = HashMap::new();
        for (file @ (connection, path), found) in &self.artifacts {
            let is_there =
                !gone.contains(file) && self.baseline.is_processed_by_any_adapter(connection, path);
            for written in found {
                let state = states.entry(written.id()).or_default();
                if written.began_ms > state.began_ms {
                    (state.began_ms, state.is_removed) = (written.began_ms, written.is_removal());
                } else if written.began_ms == state.began_ms {
                    // The reconcile step may remove an artifact that a unit of the same run wrote.
                    state.is_removed |= written.is_removal();
                }
                if is_there && !written.is_removal() {
                    state.supporting_files.insert(staged_path(connection, path));
                }
            }
        }
        states
    }

    fn dependent_artifacts(
        &self,
        source: &SourcePlan,
        states: &HashMap<ArtifactId<'_>, ArtifactState>,
    ) -> BTreeMap<String, Vec<EvictionCandidate>> {
        let artifacts_by_deleted_file = |written: &WrittenArtifact| {
            let state = states
                .get(&written.id())
                .filter(|state| !state.is_removed && !written.is_removal())?;
            Some(EvictionCandidate {
                provenance: written.to_prior(),
                supporting_files: state.supporting_files.iter().cloned().collect(),
            })
        };
        let of_file = |path: &String| {
            let found = self
                .artifacts
                .get(&(source.connection.clone(), path.clone()))?;
            let artifacts_by_deleted_file: Vec<EvictionCandidate> =
                found.iter().filter_map(artifacts_by_deleted_file).collect();
            (!artifacts_by_deleted_file.is_empty())
                .then(|| (path.clone(), artifacts_by_deleted_file))
        };
        source.diff.deleted.iter().filter_map(of_file).collect()
    }
}

impl WrittenArtifact {
    fn from_ktx(artifact: &KtxArtifact) -> Self {
        let artifact = artifact.clone();
        Self {
            began_ms: artifact.completed_ms,
            run: artifact.job,
            row: ArtifactIndexRow {
                connection: artifact.connection,
                path: artifact.path,
                target: artifact.kind,
                target_connection: artifact.target_connection,
                key: artifact.key,
                change: artifact.action,
            },
        }
    }

    fn from_history(past: ArtifactHistory) -> Self {
        let run = RunId::parse(&past.run);
        Self {
            began_ms: run.map_or(0, |run| run.started_at_ms()),
            run: run.map_or(past.run, |run| run.short()),
            row: past.row,
        }
    }

    fn id(&self) -> ArtifactId<'_> {
        (&self.row.target, &self.row.target_connection, &self.row.key)
    }

    fn is_removal(&self) -> bool {
        self.row.change == ArtifactChange::Removed.as_str()
    }

    fn to_prior(&self) -> PriorProvenance {
        let row = &self.row;
        let key = match row.target_connection.as_str() {
            "" => row.key.clone(),
            connection => format!("{connection}/{}", row.key),
        };
        let (path, run) = (row.path.clone(), self.run.clone());
        PriorProvenance {
            raw_path: path,
            run,
            artifact_kind: row.target.clone(),
            artifact_key: key,
            action: row.change.clone(),
        }
    }
}

/// The records of a project that its next plan is based on.
#[derive(Debug)]
pub struct ProjectHistory {
    /// Unreadable records, one sentence each.
    pub warnings: Vec<String>,
    /// True if another program has locked KTX's database, so that it may be readable later.
    pub is_ktx_locked: bool,
    own: Option<IndexedRunHistory>,
    ktx: KtxHistory,
}

#[derive(Debug)]
struct IndexedRunHistory {
    runs: RunStore,
    db: Db,
    /// Runs that this installation recorded.
    marked: HashSet<RunId>,
    newest: RunId,
}

impl ProjectHistory {
    /// Opens the records of `project`. If the project has no runs, no index is created.
    ///
    /// # Errors
    /// If the index cannot be used: a plan without it would consider every file new.
    pub fn open(project: &Project) -> Result<Self, RefreshError> {
        let mut warnings = Vec::new();
        let mut is_ktx_locked = false;
        let ktx = ingest::ktx_history(&project.root, &project.sql_workers).unwrap_or_else(|error| {
            is_ktx_locked = error.is_locked();
            warnings.push(format!(
                "cannot read what KTX recorded in {KTX_DATABASE}, so files that only KTX ingested count as new: {error}"
            ));
            None
        });
        let ktx = ktx.unwrap_or_default();
        warnings.extend(ktx_gaps(&ktx));
        let runs = RunStore::new(&project.root);
        let recorded = runs.list()?;
        let Some(newest) = recorded.first().map(|found| found.id) else {
            return Ok(Self {
                warnings,
                is_ktx_locked,
                own: None,
                ktx,
            });
        };
        // A copied index may name runs that have no tape, so only runs with a mark count as written by this
        // installation.
        let marked = recorded
            .iter()
            .map(|found| found.id)
            .filter(|run| ingest::is_run_marked(&project.root, *run));
        let marked: HashSet<RunId> = marked.collect();
        let (db, unreadable) = recorded_tapes::open_updated_index(&runs)?;
        warnings.extend(unreadable);
        Ok(Self {
            warnings,
            is_ktx_locked,
            own: Some(IndexedRunHistory {
                runs,
                db,
                marked,
                newest,
            }),
            ktx,
        })
    }

    /// How the recorded runs continue each other.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub(crate) fn continued_runs(&self) -> Result<ContinuedRuns, RefreshError> {
        let Some(own) = &self.own else {
            return Ok(ContinuedRuns::default());
        };
        Ok(ContinuedRuns::from_index(&own.db, own.runs.project())?)
    }

    /// The newest run, or one that it continues, if its changes wait for a review.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub(crate) fn newest_open_review(&self) -> Result<Option<RunId>, RefreshError> {
        let Some(own) = &self.own else {
            return Ok(None);
        };
        Ok(self.continued_runs()?.open_review_of(own.newest))
    }

    /// Reads the prior results. Only runs earlier than `before` count as processing.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn past(&self, before: Option<RunId>) -> Result<PriorResults, RefreshError> {
        let (mut past, mut files) = self
            .own
            .as_ref()
            .map(|own| own.prior_results(before))
            .transpose()?
            .unwrap_or_default();
        // A time in the future would outrank every later run.
        let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
        let is_before = |completed_ms: u64| {
            completed_ms <= now && before.is_none_or(|run| completed_ms < run.started_at_ms())
        };
        for file in self
            .ktx
            .files
            .iter()
            .filter(|file| is_before(file.completed_ms))
        {
            let key = (
                file.connection.clone(),
                file.adapter.clone(),
                file.path.clone(),
            );
            files.entry(key).or_default().push(ktx_event(file));
        }
        for ((connection, adapter, path), mut events) in files {
            events.sort_by_key(|event| event.time);
            past.baseline.add_file(
                &connection,
                &adapter,
                path,
                PriorFileRecord::from_events(events),
            );
        }
        for artifact in self
            .ktx
            .artifacts
            .iter()
            .filter(|artifact| is_before(artifact.completed_ms))
        {
            past.add_artifact(WrittenArtifact::from_ktx(artifact));
        }
        Ok(past)
    }
}

impl IndexedRunHistory {
    /// The prior results in the index, and the records of files, which are not in the baseline yet.
    fn prior_results(
        &self,
        before: Option<RunId>,
    ) -> Result<(PriorResults, BTreeMap<FileKey, Vec<FileEvent>>), RefreshError> {
        let Self {
            runs, db, marked, ..
        } = self;
        let mut baseline = Baseline::default();
        let records = db.file_records(before)?.into_iter();
        let events = |of: Vec<FileRecord>| {
            of.into_iter()
                .map(|record| file_event(record, marked))
                .collect()
        };
        let files = records.map(|(key, of)| (key, events(of))).collect();
        let left = UnsavedRun::find(runs, db, &db.prior_successes()?, marked)?;
        for unit in db.prior_units(before)? {
            let standing = unit_outcome(&unit);
            baseline.add_unit(unit.connection, unit.unit_key, standing);
        }
        for unit in db.last_successes(before)? {
            baseline.add_success(
                (unit.connection, unit.unit_key),
                unit.read_in,
                marked.contains(&unit.run),
            );
        }
        let artifacts = db.prior_artifacts(before)?;
        let artifacts = artifacts
            .into_iter()
            .map(|(file, found)| {
                (
                    file,
                    found
                        .into_iter()
                        .map(WrittenArtifact::from_history)
                        .collect(),
                )
            })
            .collect();
        let efforts = db.prior_efforts()?;
        // The remarks reach the prompt, so those of a record from elsewhere are not used.
        let remarks = db
            .review_remarks()?
            .into_iter()
            .filter(|of| marked.contains(&of.run) && !of.text.is_empty());
        let review_remarks = remarks
            .map(|of| ((of.connection, of.unit_key), of.text))
            .collect();
        Ok((
            PriorResults {
                baseline,
                efforts,
                unsaved_run: left,
                review_remarks,
                artifacts,
            },
            files,
        ))
    }
}

/// Gaps in the history of KTX, one sentence each.
fn ktx_gaps(ktx: &KtxHistory) -> impl Iterator<Item = String> {
    let DamagedRows { count, example } = &ktx.damaged;
    let damaged = example.as_ref().map(|example| {
        format!(
            "skipped {} in {KTX_DATABASE}; one is {example}",
            pluralize(usize::try_from(*count).unwrap_or(usize::MAX), "damaged row")
        )
    });
    let incomplete = ktx.incomplete.as_ref().map(|why| {
        format!(
            "only the newest rows of {KTX_DATABASE} were read ({why}), so files that only older rows name count as new"
        )
    });
    damaged.into_iter().chain(incomplete)
}

fn file_event(record: FileRecord, marked: &HashSet<RunId>) -> FileEvent {
    let result = |result| match result {
        UnitFileResult::Succeeded(read_in) => {
            UnitFileOutcome::Succeeded(RecordTime::from_run(read_in))
        }
        UnitFileResult::Failed => UnitFileOutcome::Failed,
    };
    FileEvent {
        time: RecordTime::from_run(record.run),
        origin: if marked.contains(&record.run) {
            RecordOrigin::Own
        } else {
            RecordOrigin::Foreign
        },
        content: record.sha256.as_deref().and_then(Fingerprint::parse),
        outcome: match record.state {
            FileState::Processed => FileOutcome::Processed,
            FileState::Evicted => FileOutcome::Evicted,
            FileState::Failed | FileState::Unfinished | FileState::Missing => FileOutcome::Open,
        },
        units: record
            .units
            .into_iter()
            .map(|(unit, of)| (unit, result(of)))
            .collect(),
        unread: record.unread,
        defines: record.defines,
    }
}

fn ktx_event(file: &KtxFile) -> FileEvent {
    let content = file.sha256.as_deref().and_then(Fingerprint::parse);
    FileEvent {
        time: RecordTime::from_ktx(file.completed_ms),
        origin: RecordOrigin::Ktx {
            completed_ms: file.completed_ms,
        },
        content,
        outcome: if content.is_some() {
            FileOutcome::Processed
        } else {
            FileOutcome::Evicted
        },
        ..FileEvent::default()
    }
}

fn unit_outcome(past: &UnitHistory) -> LastUnitOutcome {
    let is = |statuses: &[UnitStatus]| statuses.iter().any(|known| known.as_str() == past.status);
    let run = past.run.short();
    if is(&[UnitStatus::BudgetExhausted]) {
        let spent = past
            .detail
            .clone()
            .unwrap_or_else(|| BudgetExhaustion::default().to_string());
        LastUnitOutcome::Incomplete(format!("{spent} in run {run}"))
    } else if past.unsaved {
        LastUnitOutcome::Unsaved
    } else if is(&[UnitStatus::Stopped]) {
        LastUnitOutcome::Incomplete(format!("was stopped in run {run}"))
    } else if is(&[UnitStatus::Succeeded, UnitStatus::Reused]) {
        LastUnitOutcome::Succeeded
    } else if is(&[UnitStatus::Failed]) {
        LastUnitOutcome::Failed
    } else {
        LastUnitOutcome::Unfinished
    }
}

#[cfg(test)]
mod tests;
