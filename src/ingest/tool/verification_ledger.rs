//! `record_verification_ledger`: records the agent's checks before it writes. One entry unlocks the guarded tools, but not
//! for identifiers that are neither in the ledger nor in anything that the agent has read.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{AgentTool, ToolContext};
use crate::{
    line_budget::first_names,
    unsourced::{ReceivedNames, is_claimed_in_line, unsourced_in_draft},
    untrusted_text::excerpt,
    verification::Verifier,
    wiki::{self, WikiPage},
};
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
        they are locked again. Pages and sources may contain the identifiers in the ledger and those that you have \
        read, and no others.";
    const READ_ONLY: bool = false;
    type Input = LedgerEntry;

    fn run(context: &ToolContext, entry: LedgerEntry) -> ToolReply {
        let (verified, unverified) = (
            entry.verified_identifiers.len(),
            entry.unverified_identifiers.len(),
        );
        let mut records = context.records();
        let mut unproven = Vec::new();
        if let Some(received) = &mut records.received {
            received.add_ledger(&entry.verified_identifiers, &entry.unverified_identifiers);
            unproven = unproven_names(context, received, &entry);
        }
        records.ledger.push(entry);
        let mut structured = json!({
            "success": true, "entries": records.ledger.len(), "verified": verified, "unverified": unverified,
        });
        let mut markdown = format!(
            "Recorded: {verified} verified, {unverified} unverified. Writing is unlocked for these identifiers \
             and for those that you have read."
        );
        if !unproven.is_empty() {
            let quoted: Vec<String> = unproven.iter().map(|name| format!("`{name}`")).collect();
            let names = first_names(&quoted, MAX_NAMED);
            markdown.push_str(&format!(
                "\nNo answer of a database or scan has these verified identifiers: {names}. Look up those that are tables \
                 or columns with entity_details before you write them."
            ));
            unproven.truncate(MAX_NAMED);
            structured["unproven"] = json!(unproven);
        }
        ToolReply {
            markdown,
            structured: Some(structured),
            ..ToolReply::default()
        }
    }
}

/// The identifiers that `entry` lists as verified although no answer has them.
fn unproven_names(
    context: &ToolContext,
    received: &ReceivedNames,
    entry: &LedgerEntry,
) -> Vec<String> {
    let verifier = Verifier {
        workspace: &context.workspace,
        scope: &context.scope,
        facts: received.facts(),
    };
    let stated = entry.verified_identifiers.iter().map(String::as_str);
    match received.is_incomplete() {
        true => Vec::new(),
        false => verifier.unproven(stated),
    }
}

/// Most identifiers that an answer names.
const MAX_NAMED: usize = 20;

/// Why the artifact at `path` must not get the content `text`, as a clause and its machine-readable reason. Its identifiers
/// must be in the ledger or in what the agent has received, and pages mark those that are unverified.
///
/// What the agent received was shown to it by this program: its prompt and the replies of its tools. Sources of the
/// semantic layer and raw files are known once the agent has read them. Without a record of that nothing is refused.
pub(super) fn refusal_of_identifiers(
    context: &ToolContext,
    path: &str,
    text: &str,
) -> Option<(&'static str, String)> {
    if context.unit.is_text() {
        return None;
    }
    let records = context.records();
    let found = unsourced_in_draft(&context.workspace, (path, text), records.received.as_ref()?);
    let found = found.unwrap_or_default();
    let quoted = |names: &[&str]| {
        let names = names.iter().take(MAX_NAMED);
        let names: Vec<String> = names.map(|name| format!("`{}`", excerpt(name))).collect();
        names.join(", ")
    };
    let missing = found.iter().filter(|identifier| !identifier.declared);
    let missing: Vec<&str> = missing.map(|identifier| identifier.name.as_str()).collect();
    if !missing.is_empty() {
        let listed: Vec<&&str> = missing.iter().take(MAX_NAMED).collect();
        let call = json!({"summary": "…", "unverifiedIdentifiers": listed});
        let text = format!(
            "it contains identifiers that are neither in the verification ledger nor in anything that you have read: {}; \
             call record_verification_ledger with {call}, or list those that you have found in verifiedIdentifiers, then \
             repeat this call",
            quoted(&missing)
        );
        return Some(("identifiers_not_in_ledger", text));
    }
    let body = wiki::page_key(path)
        .and_then(|_| WikiPage::parse(text.as_bytes()).ok())?
        .body;
    let is_unmarked = |name: &&str| {
        let lines: Vec<&str> = markable_lines(&body)
            .filter(|line| is_claimed_in_line(line, name))
            .collect();
        !lines.is_empty() && !lines.iter().any(|line| line.contains(UNVERIFIED_MARK))
    };
    let declared = found.iter().map(|identifier| identifier.name.as_str());
    let unmarked: Vec<&str> = declared.filter(is_unmarked).collect();
    (!unmarked.is_empty()).then(|| {
        let text = format!(
            "the ledger lists identifiers as unverified that the page does not mark: {}; write `{UNVERIFIED_MARK} - from \
             RAW_FILE]` behind each where it first occurs outside of headings and code blocks",
            quoted(&unmarked)
        );
        ("identifiers_not_marked", text)
    })
}

/// Beginning of the mark behind an identifier that the agent could not verify.
const UNVERIFIED_MARK: &str = "[unverified";

/// The lines of a page that can contain a mark: those outside of headings and fenced code blocks.
fn markable_lines(body: &str) -> impl Iterator<Item = &str> {
    let mut is_in_block = false;
    body.lines().filter(move |line| {
        let line = line.trim_start();
        if line.starts_with("```") {
            is_in_block = !is_in_block;
            return false;
        }
        !is_in_block && !line.starts_with('#')
    })
}
