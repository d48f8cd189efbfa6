//! `emit_unmapped_fallback`: records a raw file that could not be mapped, and the fallback.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{AgentTool, ToolContext, refusal};
use crate::{references::names_table, untrusted_text::excerpt};
use ingestdeck_core::{tape::note::attempt_output::UnmappedFile, units::ToolReply};

/// Largest detail of one record in bytes. No more text is added beyond it.
const MAX_DETAIL_BYTES: usize = 4_000;

/// A raw file without a place in the semantic layer.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct UnmappedFallback {
    /// One of the rawFiles of this work unit; in the reconcile step, a raw file that stage_list lists.
    raw_path: String,
    /// Why it cannot be mapped.
    reason: UnmappedReason,
    /// What you did instead.
    fallback: FallbackAction,
    /// Table or source that the raw file refers to, if known, such as `schema.table`.
    table_ref: Option<String>,
    /// Information for a person that the reason does not contain.
    clarification: Option<String>,
}

impl UnmappedFallback {
    /// A sentence with the reason and the table, then the clarification.
    fn detail(&self) -> String {
        let table = self
            .table_ref
            .as_deref()
            .map(str::trim)
            .filter(|table| !table.is_empty());
        let table = table.map_or_else(
            || "The referenced object".to_owned(),
            |table| format!("`{}`", excerpt(table)),
        );
        let clarification = self
            .clarification
            .as_deref()
            .map(str::trim)
            .unwrap_or_default();
        format!("{table} {}. {clarification}", self.reason.predicate())
            .trim_end()
            .to_owned()
    }

    fn to_unmapped(&self) -> UnmappedFile {
        let name = |value: serde_json::Result<serde_json::Value>| {
            value
                .ok()
                .and_then(|value| value.as_str().map(str::to_owned))
                .unwrap_or_default()
        };
        UnmappedFile {
            raw_path: self.raw_path.clone(),
            reason: name(serde_json::to_value(self.reason)),
            detail: Some(self.detail()),
            fallback: name(serde_json::to_value(self.fallback)),
        }
    }
}

/// Why a raw file cannot be mapped.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum UnmappedReason {
    NoConnectionMapping,
    LookerTemplateUnresolved,
    DerivedTableNotSupported,
    NoPhysicalTable,
    MultipleTableReferences,
    UnsupportedDialect,
    ParseError,
    MissingTargetTable,
    CumulativeMetricUnsupported,
    ConversionMetricUnsupported,
}

impl UnmappedReason {
    /// The predicate of a sentence about the table.
    fn predicate(self) -> &'static str {
        match self {
            Self::NoConnectionMapping => "belongs to no connection that sources can be written for",
            Self::LookerTemplateUnresolved => "uses LookML templates that cannot be resolved",
            Self::DerivedTableNotSupported => {
                "is a derived table, which is not supported as a source"
            }
            Self::NoPhysicalTable => "is described, but no connection has a source for it",
            Self::MultipleTableReferences => {
                "refers to several tables, so that no single source fits it"
            }
            Self::UnsupportedDialect => "is written in an SQL dialect that is not supported",
            Self::ParseError => "cannot be parsed",
            Self::MissingTargetTable => "is referred to, but its table was not found",
            Self::CumulativeMetricUnsupported => {
                "is a cumulative metric, which a source cannot express"
            }
            Self::ConversionMetricUnsupported => {
                "is a conversion metric, which a source cannot express"
            }
        }
    }

    /// Whether the reason claims that no source exists for the table.
    fn is_missing_table(self) -> bool {
        matches!(self, Self::NoPhysicalTable | Self::MissingTargetTable)
    }
}

/// What was done instead.
#[derive(Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum FallbackAction {
    SqlStandalone,
    WikiOnly,
    Flagged,
}

#[derive(Debug)]
pub(super) struct EmitUnmappedFallback;

impl AgentTool for EmitUnmappedFallback {
    const NAME: &'static str = "emit_unmapped_fallback";
    const DESCRIPTION: &'static str = "Record that a raw file of this work unit could not be mapped, why, and what \
        you did instead. The record explains `reason` and `tableRef` in a sentence; add to `clarification` only what \
        that sentence does not contain. Requires an entry in the verification ledger.";
    const READ_ONLY: bool = false;
    const NEEDS_LEDGER: bool = true;
    type Input = UnmappedFallback;

    fn run(context: &ToolContext, fallback: UnmappedFallback) -> ToolReply {
        if !context.unit.planned.raw_files.contains(&fallback.raw_path) {
            let listed = if context.stage_index().is_some() {
                "stage_list lists"
            } else {
                "rawFiles lists"
            };
            let text = format!(
                "`{}` cannot be recorded; use a path that {listed}",
                excerpt(&fallback.raw_path)
            );
            return refusal(
                Self::NAME,
                text,
                json!({"reason": "raw_path_not_allowed", "rawPath": fallback.raw_path}),
            );
        }
        let table = fallback
            .table_ref
            .as_deref()
            .filter(|_| fallback.reason.is_missing_table());
        if let Some((table, (connection, source))) =
            table.and_then(|table| Some((table, find_source(context, table)?)))
        {
            let text = format!(
                "`{}` is not missing, it is source `{}` of connection `{connection}`; use that source, or give another \
                 reason",
                excerpt(table),
                excerpt(&source)
            );
            let detail = json!({"reason": "source_exists", "tableRef": table, "connectionId": connection, "sourceName": source});
            return refusal(Self::NAME, text, detail);
        }
        let unmapped = fallback.to_unmapped();
        let text = format!(
            "Recorded `{}` as unmapped ({}): {}",
            unmapped.raw_path,
            unmapped.fallback,
            unmapped.detail.as_deref().unwrap_or_default()
        );
        let structured =
            json!({"success": true, "rawPath": unmapped.raw_path, "reason": unmapped.reason});
        merge_record(&mut context.records().unmapped, unmapped);
        ToolReply {
            structured: Some(structured),
            ..ToolReply::text(text)
        }
    }
}

/// Adds `new`. If the file is already recorded with the same reason and fallback, only its detail is added.
fn merge_record(records: &mut Vec<UnmappedFile>, new: UnmappedFile) {
    let same = |old: &&mut UnmappedFile| {
        (&old.raw_path, &old.reason, &old.fallback) == (&new.raw_path, &new.reason, &new.fallback)
    };
    let Some(old) = records.iter_mut().find(same) else {
        return records.push(new);
    };
    let (Some(detail), Some(more)) = (&mut old.detail, new.detail) else {
        return;
    };
    if !detail.contains(&more) && detail.len() + more.len() < MAX_DETAIL_BYTES {
        detail.push(' ');
        detail.push_str(&more);
    }
}

/// The connection and name of the source that `table` refers to, among the connections that sources may be written for.
/// It matches the name of the source, or its table, whose leading parts may be omitted.
fn find_source(context: &ToolContext, table: &str) -> Option<(String, String)> {
    context.scope.targets().find_map(|target| {
        let sources = context
            .semantic_layer()
            .sources(&target.id)
            .unwrap_or_default();
        let source = sources
            .by_name
            .into_values()
            .find(|source| names_table(source, table))?;
        Some((target.id.clone(), source.name))
    })
}
