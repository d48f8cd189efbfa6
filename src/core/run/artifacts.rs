//! The artifacts of a run: what became of each page and source, and every attempt that wrote it. Derived from the state.
//!
//! It must not know how artifacts are shown. Related: `coverage` lists the raw files with the artifacts that rest on
//! them.

mod net_lines;
mod output_index;
mod patch_section;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use self::output_index::{ActionIndex, OutputIndex, distinct, net_change};
use super::{
    review::FileReview,
    shared_files::{SharedFile, find_shared_files},
    state::{AttemptState, RECONCILE_KEY, RunState, UnitState, UnitStatus},
    verification::VerifiedNames,
};
use crate::tape::{
    UnitKey,
    note::{
        AttemptOutcome, PatchResult, ReviewDecision, SourcesProjected,
        attempt_output::{ArtifactChange, ArtifactTarget, MemoryAction, UnsourcedIdentifier},
        verification::ArtifactVerification,
    },
};

pub use net_lines::LineCounts;
pub use patch_section::patch_sections;

/// Longest part of a file name that is made from the name of a source, in bytes.
const MAX_SLUG_BYTES: usize = 64;
/// Most raw files that all writers of a run have together.
const MAX_RAW_FILES: usize = 1_000_000;

/// A page or source that a run created, changed or removed, or tried to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunArtifact {
    /// Relative to the project.
    pub path: String,
    /// `None` for a file that is neither a page nor a source.
    pub target: Option<ArtifactTarget>,
    /// The combined change of all writers that count; `None` if it is not recorded.
    pub change: Option<ArtifactChange>,
    pub state: ArtifactStatus,
    /// Attempts that wrote it, by unit in plan order, oldest first.
    pub writers: Vec<ArtifactWriter>,
    /// Raw files that the changes of its effective writers rest on, sorted.
    pub raw_files: Vec<RawFileName>,
    /// The decision of a review about all of its changes; `None` without a review, and if its parts differ.
    pub review: Option<ReviewDecision>,
    /// Set if several units wrote it.
    pub shared: Option<SharedFile>,
    /// The commit that contains it.
    pub commit: Option<Arc<str>>,
}

/// A raw file of a connection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RawFileName {
    pub connection: String,
    /// Relative to the source.
    pub path: String,
}

/// What became of the change of one writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArtifactStatus {
    /// The attempt succeeded, and its patch is not integrated yet.
    Pending,
    /// Result of the integration of its patch, before it is saved.
    Integration(PatchResult),
    /// It is on the branch.
    Saved,
    /// A later attempt at the unit takes its place.
    Replaced,
    /// Its attempt failed, so it was discarded.
    Discarded,
    /// A reviewer rejected all of it.
    Rejected,
}

impl ArtifactStatus {
    /// Its word on screens and in JSON.
    pub fn label(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Integration(result) => result.label(),
            Self::Saved => "saved",
            Self::Replaced => "replaced",
            Self::Discarded => "discarded",
            Self::Rejected => "rejected",
        }
    }

    /// True if the change is part of the result of the run.
    pub fn counts(self) -> bool {
        match self {
            Self::Pending | Self::Saved => true,
            Self::Integration(result) => result.keeps_success(),
            Self::Replaced | Self::Discarded | Self::Rejected => false,
        }
    }
}

/// What one attempt did to an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactWriter {
    pub unit: UnitKey,
    /// Number of the attempt; 0 for an attempt of a prior run, and for the projection.
    pub attempt: u32,
    pub state: ArtifactStatus,
    /// Why the change does not count.
    pub reason: Option<String>,
    /// `None` if it is not recorded.
    pub change: Option<ArtifactChange>,
    /// Number of calls that wrote it; `None` if they are not recorded.
    pub calls: Option<usize>,
    /// Ids of these calls, if they are known.
    pub call_ids: Vec<String>,
    /// Lines that the attempt added and removed; `None` if its writes are not recorded.
    pub lines: Option<LineCounts>,
    pub unsourced: Vec<UnsourcedIdentifier>,
    /// What answers prove about its tables and columns; `None` if it names none, or nothing was compared.
    pub verification: Option<ArtifactVerification>,
    /// Raw files that the change rests on.
    pub raw_files: Vec<RawFileName>,
    /// Patch file that contains the change, relative to the project.
    pub patch: Option<String>,
}

impl RunArtifact {
    /// The writers whose changes count, or the last one if there is none.
    pub fn effective_writers(&self) -> impl Iterator<Item = &ArtifactWriter> {
        let any = self.writers.iter().any(|writer| writer.state.counts());
        let last = self.writers.len().saturating_sub(1);
        let is_effective = move |index: usize, writer: &ArtifactWriter| match any {
            true => writer.state.counts(),
            false => index == last,
        };
        self.writers
            .iter()
            .enumerate()
            .filter(move |(index, writer)| is_effective(*index, writer))
            .map(|(_, it)| it)
    }

    /// Identifiers that its writers never received.
    pub fn unsourced(&self) -> impl Iterator<Item = &UnsourcedIdentifier> {
        self.effective_writers()
            .flat_map(|writer| &writer.unsourced)
    }

    /// What answers prove about its tables and columns; empty if nothing was compared.
    pub fn verification(&self) -> VerifiedNames {
        self.effective_writers()
            .filter_map(|writer| writer.verification.as_ref())
            .collect()
    }

    /// Lines that its writers added and removed; `None` if a writer has no recorded writes.
    pub fn lines(&self) -> Option<LineCounts> {
        self.effective_writers().map(|writer| writer.lines).sum()
    }

    /// Number of calls that wrote it; `None` if a writer has no recorded writes.
    pub fn calls(&self) -> Option<usize> {
        self.effective_writers().map(|writer| writer.calls).sum()
    }
}

/// Raw files that a change rests on, with their connections. A change that names none rests on all raw files of its
/// unit; the reconcile step belongs to no connection, so it names files as `connection/path`.
pub fn action_raw_files<'a>(
    unit: &'a UnitState,
    action: &'a MemoryAction,
) -> Vec<(&'a str, &'a str)> {
    let named = action.raw_paths.as_ref().filter(|paths| !paths.is_empty());
    match &unit.planned {
        Some(planned) => {
            let paths = named.unwrap_or(&planned.raw_files).iter();
            paths
                .map(|path| (planned.connection.as_str(), path.as_str()))
                .collect()
        }
        None if unit.key.as_str() == RECONCILE_KEY => named
            .into_iter()
            .flatten()
            .filter_map(|path| path.split_once('/'))
            .collect(),
        None => Vec::new(),
    }
}

/// The usual path of a page or source, relative to the project.
pub fn artifact_path(target: ArtifactTarget, connection: Option<&str>, key: &str) -> String {
    match target {
        ArtifactTarget::Wiki => format!("wiki/global/{key}.md"),
        ArtifactTarget::SemanticLayer => {
            format!("semantic-layer/{}/{key}.yaml", connection.unwrap_or("?"))
        }
    }
}

/// Returns the page or source at a path. The path does not show whether it is new.
pub fn action_at(path: &str) -> Option<MemoryAction> {
    let (target, key, connection) = if let Some(page) = path.strip_prefix("wiki/global/") {
        (ArtifactTarget::Wiki, page.strip_suffix(".md")?, None)
    } else {
        let (connection, file) = path.strip_prefix("semantic-layer/")?.split_once('/')?;
        (
            ArtifactTarget::SemanticLayer,
            file.strip_suffix(".yaml")
                .or_else(|| file.strip_suffix(".yml"))?,
            Some(connection.to_owned()),
        )
    };
    Some(MemoryAction {
        target,
        change: ArtifactChange::Updated,
        key: key.to_owned(),
        detail: String::new(),
        target_connection_id: connection,
        raw_paths: None,
    })
}

/// The changes except those of the artifacts at `paths`.
pub(crate) fn changes_except(actions: Vec<MemoryAction>, paths: &[String]) -> Vec<MemoryAction> {
    if actions.is_empty() || paths.is_empty() {
        return actions;
    }
    let index = ActionIndex::new(&actions);
    let left_out: HashSet<usize> = paths.iter().flat_map(|path| index.places(path)).collect();
    let kept = actions
        .into_iter()
        .enumerate()
        .filter(|(place, _)| !left_out.contains(place));
    kept.map(|(_, action)| action).collect()
}

/// The projected sources without those that a review rejected.
pub fn accepted_projections(state: &RunState) -> Vec<Arc<SourcesProjected>> {
    let rejected: Vec<String> = state
        .publication
        .rejected_paths()
        .map(str::to_owned)
        .collect();
    let projected = state.inputs.projected.iter();
    if rejected.is_empty() {
        return projected.cloned().collect();
    }
    let accepted = projected.filter_map(|projected| {
        // With a commit and without a patch, they were committed before the review.
        if projected.actions.is_empty() || (projected.commit.is_some() && projected.patch.is_none())
        {
            return Some(Arc::clone(projected));
        }
        let actions = changes_except(projected.actions.clone(), &rejected);
        let paths = projected
            .paths
            .iter()
            .filter(|path| !rejected.contains(path))
            .cloned()
            .collect();
        let accepted = SourcesProjected {
            actions,
            paths,
            ..(**projected).clone()
        };
        (!accepted.actions.is_empty()).then(|| accepted.into())
    });
    accepted.collect()
}

/// The artifacts of a run, sorted by path.
pub fn run_artifacts(state: &RunState) -> Vec<RunArtifact> {
    let mut found = ArtifactCollector::default();
    for projected in state
        .inputs
        .projected
        .iter()
        .filter(|projected| projected.reason.is_none())
    {
        let actions = ActionIndex::new(&projected.actions);
        for path in distinct(projected.paths.iter().map(String::as_str)) {
            let action = actions.of(path).first().copied();
            let artifact = found.artifact(path);
            artifact.commit = projected.commit.as_deref().map(Arc::from);
            let raw_files = action.into_iter().flat_map(|action| {
                let connection = projected.connection_of(action).unwrap_or_default();
                let paths = action.raw_paths.iter().flatten();
                paths.map(move |path| RawFileName {
                    connection: connection.to_owned(),
                    path: path.clone(),
                })
            });
            artifact.writers.push(ArtifactWriter {
                unit: projected.writer().into(),
                state: if projected.is_unsaved() {
                    ArtifactStatus::Pending
                } else {
                    ArtifactStatus::Saved
                },
                patch: projected.patch.clone(),
                change: action.map(|action| action.change),
                raw_files: raw_files.collect(),
                ..ArtifactWriter::new(0)
            });
        }
    }
    for unit in &state.units {
        if unit.status == UnitStatus::Reused {
            found.add_prior_patch(state, unit);
        }
        for (index, attempt) in unit.attempts.iter().enumerate() {
            let is_latest = index + 1 == unit.attempts.len();
            found.add_attempt(unit, attempt, is_latest);
        }
    }
    found.finish(state)
}

/// True if `action` is about the artifact at `path`. The file of a source whose name is not plain has another name.
pub fn is_action_of(action: &MemoryAction, path: &str) -> bool {
    let connection = action.target_connection_id.as_deref();
    if artifact_path(action.target, connection, &action.key) == path {
        return true;
    }
    let of_connection = || {
        path.strip_prefix("semantic-layer/")?
            .strip_prefix(connection?)?
            .strip_prefix('/')
    };
    if action.target == ArtifactTarget::Wiki {
        return false;
    }
    let Some((stem, _)) = of_connection().and_then(|file| file.rsplit_once('.')) else {
        return false;
    };
    let slug = source_slug(&action.key);
    stem == action.key
        || stem
            .rsplit_once('-')
            .is_some_and(|(name, hash)| name == slug && hash.len() == 8)
}

/// The part of a file name that is made from the name of a source.
fn source_slug(name: &str) -> String {
    let words: Vec<String> = name
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    words.join("_").chars().take(MAX_SLUG_BYTES).collect()
}

impl ArtifactWriter {
    fn new(attempt: u32) -> Self {
        Self {
            unit: UnitKey::from("?"),
            attempt,
            state: ArtifactStatus::Pending,
            reason: None,
            change: None,
            calls: None,
            call_ids: Vec::new(),
            lines: None,
            unsourced: Vec::new(),
            verification: None,
            raw_files: Vec::new(),
            patch: None,
        }
    }

    /// Adds what the output of the attempt records about the artifact at `path`.
    fn with_output(mut self, path: &str, output: &OutputIndex<'_>) -> Self {
        self.change = net_change(
            output
                .actions
                .of(path)
                .into_iter()
                .map(|action| Some(action.change)),
        )
        .flatten();
        let writes = output.writes(path);
        if !writes.is_empty() {
            self.calls = Some(writes.len());
            self.call_ids = writes
                .iter()
                .filter_map(|write| write.call.clone())
                .collect();
            self.lines = Some(net_lines::net_lines(
                writes.iter().map(|write| write.edits.as_slice()),
            ));
        }
        self.unsourced
            .extend(output.unsourced(path).iter().copied().cloned());
        self.verification = output.verification(path).cloned();
        self
    }
}

#[derive(Default)]
struct ArtifactCollector {
    by_path: BTreeMap<String, RunArtifact>,
    /// Raw files of all writers so far.
    raw_files: usize,
}

impl ArtifactCollector {
    fn artifact(&mut self, path: &str) -> &mut RunArtifact {
        self.by_path
            .entry(path.to_owned())
            .or_insert_with(|| RunArtifact {
                path: path.to_owned(),
                target: match path {
                    _ if path.starts_with("wiki/") => Some(ArtifactTarget::Wiki),
                    _ if path.starts_with("semantic-layer/") => Some(ArtifactTarget::SemanticLayer),
                    _ => None,
                },
                change: None,
                state: ArtifactStatus::Pending,
                writers: Vec::new(),
                raw_files: Vec::new(),
                review: None,
                shared: None,
                commit: None,
            })
    }

    fn add_attempt(&mut self, unit: &UnitState, attempt: &AttemptState, is_latest: bool) {
        let (delivery, output) = (&attempt.delivery, attempt.delivery.output.as_deref());
        let state = attempt_state(attempt, is_latest);
        let paths: &[String] = match (&delivery.patch, output) {
            (Some(patch), _) => &patch.paths,
            (None, Some(output)) if !output.discarded.is_empty() => &output.discarded,
            (None, _) => &delivery.published,
        };
        let index = output.map(OutputIndex::new);
        for path in distinct(paths.iter().map(String::as_str)) {
            let new = ArtifactWriter {
                unit: unit.key.clone(),
                state,
                reason: (!state.counts())
                    .then(|| attempt.failure_reason().map(String::from))
                    .flatten(),
                patch: delivery.patch_path().map(str::to_owned),
                ..ArtifactWriter::new(attempt.number)
            };
            self.add_writer(unit, path, index.as_ref(), new);
        }
    }

    /// Adds the artifacts of a prior run: those of a patch that it left, or those of its commits while they are reviewed.
    fn add_prior_patch(&mut self, state: &RunState, unit: &UnitState) {
        let reused = state
            .prior_unit_summary(&unit.key)
            .and_then(|prior| prior.reused.as_ref());
        let committed = state.committed_work(unit);
        let Some(output) = state.work(unit).or(committed) else {
            return;
        };
        let patch = reused.and_then(|reused| reused.pending_patch.clone());
        let integration = state.publication.prior_patches.get(&unit.key);
        let result = match integration {
            Some(patch) if patch.is_saved => ArtifactStatus::Saved,
            Some(patch) => ArtifactStatus::Integration(patch.result),
            None if committed.is_some() => ArtifactStatus::Saved,
            None => ArtifactStatus::Pending,
        };
        let index = OutputIndex::new(output);
        let paths = index.action_paths(output);
        for path in distinct(paths.iter().map(String::as_str)) {
            let reason = integration
                .and_then(|patch| patch.verdict.as_ref())
                .map(|verdict| verdict.reason.clone());
            let (unit_key, patch) = (unit.key.clone(), patch.clone());
            let new = ArtifactWriter {
                unit: unit_key,
                state: result,
                reason,
                patch,
                ..ArtifactWriter::new(0)
            };
            self.add_writer(unit, path, Some(&index), new);
        }
    }

    fn add_writer(
        &mut self,
        unit: &UnitState,
        path: &str,
        output: Option<&OutputIndex<'_>>,
        writer: ArtifactWriter,
    ) {
        let actions = output
            .map(|output| output.actions.of(path))
            .unwrap_or_default();
        // All changes that name no raw files rest on the same ones.
        let (named, others): (Vec<_>, Vec<_>) = actions.into_iter().partition(|action| {
            action
                .raw_paths
                .as_ref()
                .is_some_and(|paths| !paths.is_empty())
        });
        let raw_files = named.into_iter().chain(others.into_iter().take(1));
        let raw_files: BTreeSet<(&str, &str)> = raw_files
            .flat_map(|action| action_raw_files(unit, action))
            .take(MAX_RAW_FILES.saturating_sub(self.raw_files))
            .collect();
        self.raw_files += raw_files.len();
        let raw_files = raw_files.into_iter();
        let name = |(connection, path): (&str, &str)| RawFileName {
            connection: connection.into(),
            path: path.into(),
        };
        let writer = ArtifactWriter {
            raw_files: raw_files.map(name).collect(),
            ..writer
        };
        self.artifact(path).writers.push(match output {
            Some(output) => writer.with_output(path, output),
            None => writer,
        });
    }

    fn finish(mut self, state: &RunState) -> Vec<RunArtifact> {
        for shared in find_shared_files(state) {
            if let Some(artifact) = self.by_path.get_mut(&shared.path) {
                artifact.shared = Some(shared);
            }
        }
        for saved in &state.publication.saves {
            for path in &saved.paths {
                if let Some(artifact) = self.by_path.get_mut(path) {
                    artifact.commit = saved.commit.as_deref().map(Arc::from);
                }
            }
        }
        let review = state.publication.review.as_deref();
        let mut reviewed: HashMap<&str, &FileReview> = HashMap::new();
        for (file, decided) in review.into_iter().flat_map(|review| review.by_path()) {
            reviewed.entry(&file.path).or_insert(decided);
        }
        let rejected: HashSet<&str> = state.publication.rejected_paths().collect();
        for artifact in self.by_path.values_mut() {
            let is_rejected = rejected.contains(artifact.path.as_str());
            artifact.review = match reviewed.get(artifact.path.as_str()) {
                Some(decided) => decided.decision(),
                None => is_rejected.then_some(ReviewDecision::Rejected),
            };
            for writer in artifact
                .writers
                .iter_mut()
                .filter(|writer| is_rejected && writer.state.counts())
            {
                writer.state = ArtifactStatus::Rejected;
            }
            artifact.combine_writers();
        }
        let is_reviewed = state.publication.committed_run.is_some()
            && review.is_some_and(|review| !review.is_waiting);
        if is_reviewed {
            // What a review of commits left as it was is in the report of the run that wrote it.
            let is_changed = |artifact: &RunArtifact| {
                let is_own = artifact
                    .writers
                    .iter()
                    .any(|writer| writer.attempt > 0 || writer.patch.is_some());
                is_own
                    || (reviewed.contains_key(&*artifact.path)
                        && artifact.review != Some(ReviewDecision::Accepted))
            };
            self.by_path.retain(|_, artifact| is_changed(artifact));
        }
        self.by_path.into_values().collect()
    }
}

/// What became of the changes of an attempt.
fn attempt_state(attempt: &AttemptState, is_latest: bool) -> ArtifactStatus {
    let delivery = &attempt.delivery;
    let has_failed = attempt
        .verdict
        .as_ref()
        .is_some_and(|verdict| verdict.outcome != AttemptOutcome::Succeeded);
    match delivery.integration {
        Some(result) if !result.keeps_success() => ArtifactStatus::Integration(result),
        _ if has_failed => ArtifactStatus::Discarded,
        _ if delivery.is_saved || (delivery.patch.is_none() && !delivery.published.is_empty()) => {
            match delivery.integration {
                Some(PatchResult::Noop) => ArtifactStatus::Integration(PatchResult::Noop),
                _ => ArtifactStatus::Saved,
            }
        }
        _ if !is_latest => ArtifactStatus::Replaced,
        Some(result) => ArtifactStatus::Integration(result),
        None => ArtifactStatus::Pending,
    }
}

impl RunArtifact {
    /// Sets what follows from its writers.
    fn combine_writers(&mut self) {
        let effective: Vec<&ArtifactWriter> = self.effective_writers().collect();
        let change = net_change(effective.iter().map(|writer| writer.change));
        let state = effective
            .last()
            .map_or(ArtifactStatus::Pending, |writer| writer.state);
        let raw_files: BTreeSet<&RawFileName> = effective
            .iter()
            .flat_map(|writer| &writer.raw_files)
            .collect();
        let raw_files = raw_files.into_iter().cloned().collect();
        (self.state, self.raw_files) = (state, raw_files);
        if change == Some(None) && state == ArtifactStatus::Saved {
            // The run created and removed it, so the branch is as before.
            (self.state, self.raw_files) =
                (ArtifactStatus::Integration(PatchResult::Noop), Vec::new());
            self.commit = None;
        }
        self.change = change.flatten();
    }

    /// Why attempts at it were rejected by checks: their reasons, oldest first.
    pub fn findings(&self) -> impl Iterator<Item = (&UnitKey, u32, &str)> {
        let rejected = self.writers.iter().filter(|writer| !writer.state.counts());
        rejected
            .filter_map(|writer| Some((&writer.unit, writer.attempt, writer.reason.as_deref()?)))
    }
}

#[cfg(test)]
mod tests;
