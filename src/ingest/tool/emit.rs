//! `emit_conflict_resolution`, `emit_eviction_decision` and `emit_artifact_resolution`: record decisions of the
//! reconcile step about the changes of the units.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{AgentTool, ToolContext, refusal, sl_common::join_names};
use crate::{
    ingest::{reconcile, schema::excerpt, wiki},
    units::ToolReply,
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ReconcileDecision {
    /// Resolution of a conflict between units.
    Conflict(ConflictResolution),
    /// Decision about an artifact whose raw file was deleted.
    Eviction(EvictionDecision),
    /// A page or source that was replaced by another one.
    Artifact(ArtifactResolution),
}

/// A conflict between units, and how it was settled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ConflictResolution {
    /// A unit that took part in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit_key: Option<String>,
    /// What kind of conflict it is.
    pub kind: ConflictKind,
    /// The key that both wanted, if that is what it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contested_key: Option<String>,
    /// The page or source that now holds.
    #[schemars(length(min = 1, max = 200))]
    pub artifact_key: String,
    /// What was done, in a sentence or two.
    #[schemars(length(min = 1, max = 2000))]
    pub detail: String,
    /// True if a person should look at it.
    #[serde(default)]
    pub flagged_for_human: bool,
}

/// Kinds of conflicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConflictKind {
    StructuralDuplicate,
    NearDuplicate,
    DefinitionalContradiction,
    ReIngestChange,
}

/// What became of something that rested on a raw file that is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct EvictionDecision {
    /// The raw file, as eviction_list shows it.
    pub raw_path: String,
    /// Page or source.
    pub artifact_kind: ArtifactKind,
    /// Its key; with the connection, if sources of several connections have this name.
    #[schemars(length(min = 1, max = 800))]
    pub artifact_key: String,
    /// Whether it was removed.
    pub action: EvictionAction,
    /// Why.
    #[schemars(length(min = 1, max = 2000))]
    pub reason: String,
}

/// Pages and sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ArtifactKind {
    Wiki,
    Sl,
}

impl ArtifactKind {
    fn word(self) -> &'static str {
        match self {
            Self::Wiki => "wiki",
            Self::Sl => "sl",
        }
    }
}

/// What is done about a raw file that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EvictionAction {
    Removed,
    Kept,
}

/// A page or source that another one took the place of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ArtifactResolution {
    /// A raw file that it rests on, as the stage index names it.
    pub raw_path: String,
    /// Page or source.
    pub artifact_kind: ArtifactKind,
    /// Its key.
    #[schemars(length(min = 1, max = 200))]
    pub artifact_key: String,
    /// What became of it.
    pub action_type: ArtifactAction,
    /// Why.
    #[schemars(length(min = 1, max = 2000))]
    pub reason: String,
}

/// What became of a page or source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ArtifactAction {
    Merged,
    Subsumed,
}

#[derive(Debug)]
pub(super) struct EmitConflictResolution;

impl AgentTool for EmitConflictResolution {
    const NAME: &'static str = "emit_conflict_resolution";
    const DESCRIPTION: &'static str = "Put on record how a conflict between work units was settled, and whether a person should \
        look at it.";
    const READ_ONLY: bool = false;
    type Input = ConflictResolution;

    fn is_offered(context: &ToolContext) -> bool {
        context.stage_index().is_some()
    }

    fn run(context: &ToolContext, conflict: ConflictResolution) -> ToolReply {
        let unknown = conflict
            .unit_key
            .as_deref()
            .filter(|key| context.stage_index().is_none_or(|stage| stage.unit(key).is_none()));
        if let Some(key) = unknown {
            let text = format!("there is no unit `{}` here; stage_list names them", excerpt(key));
            return refusal(Self::NAME, text, json!({"reason": "unknown_unit", "unitKey": key}));
        }
        let about = conflict.artifact_key.clone();
        record_decision(context, ReconcileDecision::Conflict(conflict), &about)
    }
}

#[derive(Debug)]
pub(super) struct EmitEvictionDecision;

impl AgentTool for EmitEvictionDecision {
    const NAME: &'static str = "emit_eviction_decision";
    const DESCRIPTION: &'static str = "Put on record what became of a page or source that rested on a raw file which is gone. \
        Remove the page or source before the decision `removed`. A gone file is handled once every page and source that \
        rests on it has a decision.";
    const READ_ONLY: bool = false;
    type Input = EvictionDecision;

    fn is_offered(context: &ToolContext) -> bool {
        context.stage_index().is_some()
    }

    fn run(context: &ToolContext, eviction: EvictionDecision) -> ToolReply {
        let mut evictions = context.stage_index().map(|stage| stage.evictions.iter()).unwrap_or_default();
        let Some(gone) = evictions.find(|gone| gone.raw_path == eviction.raw_path) else {
            let text = format!("`{}` is not in the eviction set; eviction_list shows it", excerpt(&eviction.raw_path));
            return refusal(Self::NAME, text, json!({"reason": "raw_path_not_allowed", "rawPath": eviction.raw_path}));
        };
        if let Err((reason, text)) = is_about_artifact(context, gone, &eviction) {
            let resting: Vec<String> = gone.artifacts.iter().map(reconcile::EvictionCandidate::name).collect();
            let detail = json!({"reason": reason, "artifactKey": eviction.artifact_key, "artifacts": resting});
            return refusal(Self::NAME, text, detail);
        }
        let about = eviction.artifact_key.clone();
        record_decision(context, ReconcileDecision::Eviction(eviction), &about)
    }
}

/// KTX accepts any key. Here a decision resolves a deleted file, so it must refer to an artifact that exists or depends
/// on the file.
fn is_about_artifact(
    context: &ToolContext,
    gone: &reconcile::Eviction,
    of: &EvictionDecision,
) -> Result<(), (&'static str, String)> {
    let (kind, key) = (of.artifact_kind, of.artifact_key.as_str());
    let resting = || gone.artifacts.iter().filter(|artifact| artifact.is_named(kind.word(), key));
    let names: Vec<&str> = resting().map(|artifact| artifact.provenance.key.as_str()).collect();
    if let [_, _, ..] = names.as_slice()
        && !names.contains(&key)
    {
        let text = format!(
            "`{}` names several sources that rest on `{}`: {}; decide about each with its connection",
            excerpt(key),
            excerpt(&gone.raw_path),
            join_names(&names)
        );
        return Err(("ambiguous_artifact_key", text));
    }
    let is_changed = || {
        context
            .records()
            .actions
            .iter()
            .any(|did| did.target.as_str() == kind.word() && (did.key == key || did.full_key() == key))
    };
    if resting().next().is_none() && !exists(context, kind, key) && !is_changed() {
        let names: Vec<String> = gone.artifacts.iter().map(reconcile::EvictionCandidate::name).collect();
        let text = format!(
            "there is no {} `{}`, and none rested on `{}`; what rests on that file: {}",
            kind.word(),
            excerpt(key),
            excerpt(&gone.raw_path),
            join_names(&names)
        );
        return Err(("artifact_not_found", text));
    }
    let remains = resting().map(|artifact| artifact.provenance.key.as_str()).find(|key| exists(context, kind, key));
    let remains = remains.or_else(|| (resting().next().is_none() && exists(context, kind, key)).then_some(key));
    match remains.filter(|_| of.action == EvictionAction::Removed) {
        Some(key) => {
            let text = format!(
                "{} `{}` is not removed yet: remove it, then call this again; or decide `kept`",
                kind.word(),
                excerpt(key)
            );
            Err(("artifact_not_removed", text))
        }
        None => Ok(()),
    }
}

/// True if the workspace contains the page, or the source with or without its connection. What cannot be read, or is
/// defined in several files, exists.
fn exists(context: &ToolContext, kind: ArtifactKind, key: &str) -> bool {
    match kind {
        ArtifactKind::Wiki => {
            wiki::is_page_key(key) && !matches!(context.workspace.peek(&wiki::page_path(key)), Ok(None))
        }
        ArtifactKind::Sl => context.scope.targets().any(|target| {
            let own = key.strip_prefix(target.id.as_str()).and_then(|rest| rest.strip_prefix('/'));
            [own, Some(key)]
                .into_iter()
                .flatten()
                .any(|name| !matches!(context.semantic_layer().find_source_file(&target.id, name), Ok(None)))
        }),
    }
}

#[derive(Debug)]
pub(super) struct EmitArtifactResolution;

impl AgentTool for EmitArtifactResolution {
    const NAME: &'static str = "emit_artifact_resolution";
    const DESCRIPTION: &'static str =
        "Put on record that a page or source was merged into another one, or replaced by it.";
    const READ_ONLY: bool = false;
    type Input = ArtifactResolution;

    fn is_offered(context: &ToolContext) -> bool {
        context.stage_index().is_some()
    }

    fn run(context: &ToolContext, artifact: ArtifactResolution) -> ToolReply {
        if !context.unit.planned.raw_files.contains(&artifact.raw_path) {
            let text =
                format!("`{}` is not a raw file of this ingest; stage_list names them", excerpt(&artifact.raw_path));
            return refusal(Self::NAME, text, json!({"reason": "raw_path_not_allowed", "rawPath": artifact.raw_path}));
        }
        let about = artifact.artifact_key.clone();
        record_decision(context, ReconcileDecision::Artifact(artifact), &about)
    }
}

fn record_decision(context: &ToolContext, decision: ReconcileDecision, about: &str) -> ToolReply {
    let mut kept = context.records();
    kept.decisions.push(decision);
    ToolReply {
        markdown: format!("Recorded the decision about `{about}`."),
        structured: Some(json!({"success": true, "artifactKey": about, "decisions": kept.decisions.len()})),
        ..ToolReply::default()
    }
}
