//! `emit_conflict_resolution`, `emit_eviction_decision` and `emit_artifact_resolution`: record decisions of the
//! reconcile step about the changes of the units.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{AgentTool, ToolContext, refusal, sl_common::join_names};
use crate::{reconcile, untrusted_text::excerpt, wiki};
use ingestdeck_core::units::ToolReply;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum ReconcileDecision {
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
pub(crate) struct ConflictResolution {
    /// Key of a work unit that is part of the conflict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit_key: Option<String>,
    /// Kind of the conflict.
    pub kind: ConflictKind,
    /// The key that several units claimed, if the conflict is about a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contested_key: Option<String>,
    /// Key of the page or source that is valid now.
    #[schemars(length(min = 1, max = 200))]
    pub artifact_key: String,
    /// One or two sentences about the resolution.
    #[schemars(length(min = 1, max = 2000))]
    pub detail: String,
    /// Whether a person should review it; false by default.
    #[serde(default)]
    pub flagged_for_human: bool,
}

/// The kinds of conflicts between units, with KTX's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ConflictKind {
    StructuralDuplicate,
    NearDuplicate,
    DefinitionalContradiction,
    ReIngestChange,
}

/// A decision about a page or source that is based on a deleted raw file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct EvictionDecision {
    /// The deleted raw file, exactly as eviction_list lists it.
    pub raw_path: String,
    /// Whether it is a page (`wiki`) or a source (`sl`).
    pub artifact_kind: ArtifactKind,
    /// Key of the page or source. If sources of several connections have this name, `connection/name`.
    #[schemars(length(min = 1, max = 800))]
    pub artifact_key: String,
    /// Whether you removed or kept the page or source.
    pub action: EvictionAction,
    /// Reason for the decision.
    #[schemars(length(min = 1, max = 2000))]
    pub reason: String,
}

/// The kind of an artifact, with KTX's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ArtifactKind {
    Wiki,
    #[serde(rename = "sl")]
    SemanticLayer,
}

impl ArtifactKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Wiki => "wiki",
            Self::SemanticLayer => "sl",
        }
    }
}

/// What was done with an artifact of a deleted raw file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EvictionAction {
    Removed,
    Kept,
}

/// A page or source that was replaced by another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct ArtifactResolution {
    /// A raw file that it was based on, exactly as stage_list lists it.
    pub raw_path: String,
    /// Whether it is a page (`wiki`) or a source (`sl`).
    pub artifact_kind: ArtifactKind,
    /// Key of the page or source that was replaced.
    #[schemars(length(min = 1, max = 200))]
    pub artifact_key: String,
    /// Whether it was merged into another one, or subsumed by it.
    pub action_type: ArtifactAction,
    /// Reason for the decision.
    #[schemars(length(min = 1, max = 2000))]
    pub reason: String,
}

/// How another page or source replaced this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ArtifactAction {
    Merged,
    Subsumed,
}

#[derive(Debug)]
pub(super) struct EmitConflictResolution;

impl AgentTool for EmitConflictResolution {
    const NAME: &'static str = "emit_conflict_resolution";
    const DESCRIPTION: &'static str = "Record how you resolved a conflict between work units, and whether a person should review it.";
    const READ_ONLY: bool = false;
    type Input = ConflictResolution;

    fn is_offered(context: &ToolContext) -> bool {
        context.stage_index().is_some()
    }

    fn run(context: &ToolContext, conflict: ConflictResolution) -> ToolReply {
        let unknown = conflict.unit_key.as_deref().filter(|key| {
            context
                .stage_index()
                .is_none_or(|stage| stage.unit(key).is_none())
        });
        if let Some(key) = unknown {
            let text = format!(
                "there is no unit `{}`; use a key that stage_list lists",
                excerpt(key)
            );
            return refusal(
                Self::NAME,
                text,
                json!({"reason": "unknown_unit", "unitKey": key}),
            );
        }
        let key = conflict.artifact_key.clone();
        record_decision(context, ReconcileDecision::Conflict(conflict), &key)
    }
}

#[derive(Debug)]
pub(super) struct EmitEvictionDecision;

impl AgentTool for EmitEvictionDecision {
    const NAME: &'static str = "emit_eviction_decision";
    const DESCRIPTION: &'static str = "Record whether you removed or kept a page or source that is based on a deleted \
        raw file. Remove the page or source before you record `removed`. A deleted file is settled once every page \
        and source that is based on it has a decision or was changed.";
    const READ_ONLY: bool = false;
    type Input = EvictionDecision;

    fn is_offered(context: &ToolContext) -> bool {
        context.stage_index().is_some()
    }

    fn run(context: &ToolContext, eviction: EvictionDecision) -> ToolReply {
        let mut evictions = context
            .stage_index()
            .map(|stage| stage.evictions.iter())
            .unwrap_or_default();
        let Some(deleted) = evictions.find(|deleted| deleted.raw_path == eviction.raw_path) else {
            let text = format!(
                "`{}` is not in the eviction set; use a raw file that eviction_list lists",
                excerpt(&eviction.raw_path)
            );
            return refusal(
                Self::NAME,
                text,
                json!({"reason": "raw_path_not_allowed", "rawPath": eviction.raw_path}),
            );
        };
        if let Err((reason, text)) = check_artifact(context, deleted, &eviction) {
            let artifacts: Vec<String> = deleted
                .artifacts
                .iter()
                .map(reconcile::EvictionCandidate::name)
                .collect();
            let detail = json!({"reason": reason, "artifactKey": eviction.artifact_key, "artifacts": artifacts});
            return refusal(Self::NAME, text, detail);
        }
        let key = eviction.artifact_key.clone();
        record_decision(context, ReconcileDecision::Eviction(eviction), &key)
    }
}

/// KTX accepts any key. Here a decision resolves a deleted file, so it must refer to an artifact that exists or depends
/// on the file.
fn check_artifact(
    context: &ToolContext,
    deleted: &reconcile::Eviction,
    decision: &EvictionDecision,
) -> Result<(), (&'static str, String)> {
    let (kind, key) = (decision.artifact_kind, decision.artifact_key.as_str());
    let matching = || {
        deleted
            .artifacts
            .iter()
            .filter(|artifact| artifact.is_named(kind.as_str(), key))
    };
    let names: Vec<&str> = matching()
        .map(|artifact| artifact.provenance.artifact_key.as_str())
        .collect();
    if let [_, _, ..] = names.as_slice()
        && !names.contains(&key)
    {
        let text = format!(
            "`{}` names several sources that are based on `{}`: {}; decide about each of them as `connection/name`",
            excerpt(key),
            excerpt(&deleted.raw_path),
            join_names(&names)
        );
        return Err(("ambiguous_artifact_key", text));
    }
    let is_changed = || {
        context.records().actions.iter().any(|action| {
            action.target.as_str() == kind.as_str()
                && (action.key == key || action.full_key() == key)
        })
    };
    if matching().next().is_none() && !exists(context, kind, key) && !is_changed() {
        let names: Vec<String> = deleted
            .artifacts
            .iter()
            .map(reconcile::EvictionCandidate::name)
            .collect();
        let text = format!(
            "there is no {} `{}`, and none was based on `{}`; decide about an artifact of that file: {}",
            kind.as_str(),
            excerpt(key),
            excerpt(&deleted.raw_path),
            join_names(&names)
        );
        return Err(("artifact_not_found", text));
    }
    let remains = matching()
        .map(|artifact| artifact.provenance.artifact_key.as_str())
        .find(|key| exists(context, kind, key));
    let remains = remains
        .or_else(|| (matching().next().is_none() && exists(context, kind, key)).then_some(key));
    match remains.filter(|_| decision.action == EvictionAction::Removed) {
        Some(key) => {
            let text = format!(
                "{} `{}` still exists; remove it and repeat this call, or record `kept`",
                kind.as_str(),
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
            wiki::is_page_key(key)
                && !matches!(context.workspace.peek(&wiki::page_path(key)), Ok(None))
        }
        ArtifactKind::SemanticLayer => context.scope.targets().any(|target| {
            let own = key
                .strip_prefix(target.id.as_str())
                .and_then(|rest| rest.strip_prefix('/'));
            [own, Some(key)].into_iter().flatten().any(|name| {
                !matches!(
                    context.semantic_layer().find_source_file(&target.id, name),
                    Ok(None)
                )
            })
        }),
    }
}

#[derive(Debug)]
pub(super) struct EmitArtifactResolution;

impl AgentTool for EmitArtifactResolution {
    const NAME: &'static str = "emit_artifact_resolution";
    const DESCRIPTION: &'static str =
        "Record that you merged a page or source into another one, or replaced it by another one.";
    const READ_ONLY: bool = false;
    type Input = ArtifactResolution;

    fn is_offered(context: &ToolContext) -> bool {
        context.stage_index().is_some()
    }

    fn run(context: &ToolContext, artifact: ArtifactResolution) -> ToolReply {
        if !context.unit.planned.raw_files.contains(&artifact.raw_path) {
            let text = format!(
                "`{}` is not a raw file of this ingest; use a path that stage_list lists",
                excerpt(&artifact.raw_path)
            );
            return refusal(
                Self::NAME,
                text,
                json!({"reason": "raw_path_not_allowed", "rawPath": artifact.raw_path}),
            );
        }
        let key = artifact.artifact_key.clone();
        record_decision(context, ReconcileDecision::Artifact(artifact), &key)
    }
}

fn record_decision(context: &ToolContext, decision: ReconcileDecision, key: &str) -> ToolReply {
    let mut records = context.records();
    records.decisions.push(decision);
    ToolReply {
        markdown: format!("Recorded the decision about `{key}`."),
        structured: Some(
            json!({"success": true, "artifactKey": key, "decisions": records.decisions.len()}),
        ),
        ..ToolReply::default()
    }
}
