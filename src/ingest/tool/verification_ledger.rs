//! `record_verification_ledger`: records the agent's checks before it writes. One entry unlocks the guarded tools.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{AgentTool, ToolContext};
use ingestdeck_core::units::ToolReply;

/// One entry of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct LedgerEntry {
    /// What you checked, and how.
    #[schemars(length(min = 1, max = 2000))]
    pub summary: String,
    /// Identifiers that you found in the raw files; at most 100.
    #[serde(default)]
    #[schemars(length(max = 100))]
    pub verified_identifiers: Vec<String>,
    /// Identifiers that you mention but did not find; at most 100.
    #[serde(default)]
    #[schemars(length(max = 100))]
    pub unverified_identifiers: Vec<String>,
    /// Further remarks about the verification.
    pub notes: Option<String>,
}

#[derive(Debug)]
pub(super) struct RecordVerificationLedger;

impl AgentTool for RecordVerificationLedger {
    const NAME: &'static str = "record_verification_ledger";
    const DESCRIPTION: &'static str = "Record what you verified, before you write. The first entry unlocks \
        wiki_write, wiki_remove, sl_write_source, sl_edit_source and emit_unmapped_fallback; in a resumed session \
        they are locked again.";
    const READ_ONLY: bool = false;
    type Input = LedgerEntry;

    fn run(context: &ToolContext, entry: LedgerEntry) -> ToolReply {
        let (verified, unverified) = (
            entry.verified_identifiers.len(),
            entry.unverified_identifiers.len(),
        );
        let mut records = context.records();
        records.ledger.push(entry);
        ToolReply {
            markdown: format!(
                "Recorded: {verified} verified, {unverified} unverified. Writing is unlocked."
            ),
            structured: Some(json!({
                "success": true, "entries": records.ledger.len(), "verified": verified, "unverified": unverified,
            })),
            ..ToolReply::default()
        }
    }
}
