//! Reports broken references after a write, in the answer to the write, so that the agent can correct them.
//!
//! A page may refer to one that is written later, so broken references are not errors. This module must not change
//! anything.

use serde_json::json;

use super::ToolContext;
use crate::{
    sl_ref_repair,
    workspace_check::{self, WorkspaceCheckReport},
};
use ingestdeck_core::units::ToolReply;

/// Most references that an answer names.
const MAX_LISTED: usize = 10;

/// Tools whose calls can cause broken references.
const WRITE_TOOLS: [&str; 5] = [
    "wiki_write",
    "wiki_remove",
    "sl_write_source",
    "sl_edit_source",
    "sl_rollback",
];

/// Appends the broken references to the `reply` of `tool`.
pub(super) fn append_broken_references(context: &ToolContext, tool: &str, reply: &mut ToolReply) {
    let Some(structured) = reply
        .structured
        .as_mut()
        .and_then(serde_json::Value::as_object_mut)
    else {
        return;
    };
    if !WRITE_TOOLS.contains(&tool) || structured.get("success") != Some(&true.into()) {
        return;
    }
    let targets = context.scope.target_ids();
    let Ok(WorkspaceCheckReport {
        dangling_links: dangling,
        invalid,
        ..
    }) = workspace_check::check_references(&context.workspace, &targets)
    else {
        return;
    };
    let unresolved: Vec<String> = dangling
        .into_iter()
        .map(|link| format!("wiki page {link}: there is no such page"))
        .chain(invalid)
        .collect();
    if !unresolved.is_empty() {
        let text = "These references do not resolve yet. Before you end, write the missing pages and sources, or \
                    correct the references";
        reply.markdown.push_str(&bullet_list(text, &unresolved));
        structured.insert("unresolved".into(), json!(unresolved));
        return;
    }
    let repaired = sl_ref_repair::repair_sl_refs(&context.workspace, &targets).unwrap_or_default();
    let repairs: Vec<String> = repaired
        .iter()
        .map(|page| page.repair.to_string())
        .collect();
    if !repairs.is_empty() {
        let text = "These entries of sl_refs will be removed when your changes are saved. Each entry must be a \
                    source, or a measure or segment of a source (`orders`, `orders.revenue`)";
        reply.markdown.push_str(&bullet_list(text, &repairs));
    }
}

fn bullet_list(text: &str, lines: &[String]) -> String {
    let shown: Vec<String> = lines
        .iter()
        .take(MAX_LISTED)
        .map(|line| format!("\n- {line}"))
        .collect();
    let more = lines.len().saturating_sub(MAX_LISTED);
    let more = if more == 0 {
        String::new()
    } else {
        format!("\n- and {more} more")
    };
    format!("\n\n{text}:{}{more}", shown.concat())
}
