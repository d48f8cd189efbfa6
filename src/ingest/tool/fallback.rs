//! `emit_unmapped_fallback`: a raw file that could not be mapped, and what was done instead.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Bench, Tool, refusal};
use crate::{ingest::schema::shown, tape::note::work::Unmapped, units::ToolReply};

/// A raw file without a place in the semantic layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Fallback {
    /// One of the rawFiles of this work unit.
    pub raw_path: String,
    /// Why it cannot be mapped.
    pub reason: Reason,
    /// What was done instead.
    pub fallback: Instead,
    /// Table that it is about, if one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table_ref: Option<String>,
    /// What a person should know or decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clarification: Option<String>,
}

impl Fallback {
    /// As it stands on the tape.
    pub fn on_record(&self) -> Unmapped {
        let word = |value: serde_json::Result<serde_json::Value>| {
            value.ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
        };
        Unmapped {
            raw_path: self.raw_path.clone(),
            reason: word(serde_json::to_value(self.reason)),
            detail: self.clarification.clone(),
            fallback: word(serde_json::to_value(self.fallback)),
        }
    }
}

/// Why a raw file cannot be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
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

/// What was done instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Instead {
    SqlStandalone,
    WikiOnly,
    Flagged,
}

#[derive(Debug)]
pub(super) struct EmitUnmappedFallback;

impl Tool for EmitUnmappedFallback {
    const NAME: &'static str = "emit_unmapped_fallback";
    const ABOUT: &'static str = "Record that a raw file of this work unit could not be mapped, why, and what you did \
        instead.";
    const READ_ONLY: bool = false;
    const GUARDED: bool = true;
    type Input = Fallback;

    fn run(bench: &Bench, fallback: Fallback) -> ToolReply {
        if !bench.unit.planned.raw_files.contains(&fallback.raw_path) {
            let text = format!("`{}` is not among the rawFiles of this work unit", shown(&fallback.raw_path));
            return refusal(Self::NAME, text, json!({"reason": "raw_path_not_allowed", "rawPath": fallback.raw_path}));
        }
        let structured = json!({"success": true, "rawPath": fallback.raw_path, "reason": fallback.reason});
        let markdown = format!("Recorded `{}` as unmapped.", fallback.raw_path);
        bench.kept().fallbacks.push(fallback);
        ToolReply { markdown, structured: Some(structured), ..ToolReply::default() }
    }
}
