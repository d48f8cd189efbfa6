//! `record_verification_ledger`: records the agent's checks before it writes. One entry unlocks the guarded tools.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{AgentTool, ToolContext};
use crate::units::ToolReply;

/// One entry of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct LedgerEntry {
    /// What was checked, and how.
    #[schemars(length(min = 1, max = 2000))]
    pub summary: String,
    /// Identifiers that were found in the raw files.
    #[serde(default)]
    #[schemars(length(max = 100))]
    pub verified_identifiers: Vec<String>,
    /// Identifiers that are mentioned without having been found.
    #[serde(default)]
    #[schemars(length(max = 100))]
    pub unverified_identifiers: Vec<String>,
    /// Anything else worth knowing.
    #[serde(default)]
    pub notes: Option<String>,
}

#[derive(Debug)]
pub(super) struct RecordVerificationLedger;

impl AgentTool for RecordVerificationLedger {
    const NAME: &'static str = "record_verification_ledger";
    const DESCRIPTION: &'static str = "Record what you verified before you write. Needed once per session: it unlocks \
        wiki_write, wiki_remove, sl_write_source, sl_edit_source and emit_unmapped_fallback.";
    const READ_ONLY: bool = false;
    type Input = LedgerEntry;

    fn run(context: &ToolContext, entry: LedgerEntry) -> ToolReply {
        let (verified, unverified) = (entry.verified_identifiers.len(), entry.unverified_identifiers.len());
        let mut kept = context.records();
        kept.ledger.push(entry);
        ToolReply {
            markdown: format!("Recorded: {verified} verified, {unverified} unverified. Writing is unlocked."),
            structured: Some(json!({
                "success": true, "entries": kept.ledger.len(), "verified": verified, "unverified": unverified,
            })),
            ..ToolReply::default()
        }
    }
}
