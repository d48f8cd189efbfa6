//! The resulting changes of an attempt: one action for each page and source that it changed, as KTX reports them.
//!
//! Derived from calls and their replies. This module must not know how the tools work.

use serde::Deserialize;
use serde_json::Value;

use ingestdeck_core::{
    tape::note::attempt_output::{ArtifactChange, ArtifactTarget, MemoryAction},
    units::{ToolCall, ToolReply},
};

/// Merges the effect of a call into `actions`.
pub(super) fn record_call(actions: &mut Vec<MemoryAction>, call: &ToolCall, reply: &ToolReply) {
    let Some(result) = reply
        .structured
        .as_ref()
        .filter(|result| result["success"] == true)
    else {
        return;
    };
    if call.name == "sl_rollback" {
        let name = text(result, "sourceName").unwrap_or_default();
        actions
            .retain(|action| action.target != ArtifactTarget::SemanticLayer || action.key != name);
        return;
    }
    let Some(action) = action(call, result) else {
        return;
    };
    let before = actions
        .iter()
        .position(|known| is_same(known, &action))
        .map(|at| actions.remove(at));
    let change = before.map_or(Some(action.change), |before| {
        before.change.merged_with(action.change)
    });
    actions.extend(change.map(|change| MemoryAction { change, ..action }));
}

/// The part of a transcript line that shows a change or a decision.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ChangingCall {
    tool_name: String,
    output: Option<ChangingReply>,
}

#[derive(Deserialize)]
struct ChangingReply {
    structured: Option<Value>,
}

/// True if a call in the transcript of earlier attempts changed a page or a source, or recorded a decision. Lines that are
/// not valid are skipped.
pub(crate) fn transcript_has_work(transcript: &[u8]) -> bool {
    transcript.split(|byte| *byte == b'\n').any(|line| {
        let Ok(call) = serde_json::from_slice::<ChangingCall>(line) else {
            return false;
        };
        let result = call
            .output
            .and_then(|output| output.structured)
            .filter(|result| result["success"] == true);
        let is_decision =
            call.tool_name.starts_with("emit_") && call.tool_name != "emit_verification_ledger";
        let has_action = |result: &Value| {
            ["created", "updated", "removed"]
                .iter()
                .any(|done| result["action"] == *done)
        };
        result.is_some_and(|result| is_decision || has_action(&result))
    })
}

fn action(call: &ToolCall, result: &Value) -> Option<MemoryAction> {
    let change = match text(result, "action")?.as_str() {
        "created" => ArtifactChange::Created,
        "updated" => ArtifactChange::Updated,
        "removed" => ArtifactChange::Removed,
        _ => return None,
    };
    let (target, key, target_connection_id) = match call.name.as_str() {
        "wiki_write" | "wiki_remove" => (ArtifactTarget::Wiki, text(result, "key")?, None),
        "sl_write_source" | "sl_edit_source" => (
            ArtifactTarget::SemanticLayer,
            text(result, "sourceName")?,
            text(result, "connectionId"),
        ),
        _ => return None,
    };
    let edits = result.get("editCount").and_then(Value::as_u64);
    let detail = match (target, change) {
        (ArtifactTarget::Wiki, ArtifactChange::Removed) => format!("Removed page \"{key}\""),
        (ArtifactTarget::Wiki, _) => text(&call.arguments, "summary").unwrap_or_default(),
        (ArtifactTarget::SemanticLayer, ArtifactChange::Created) => "Created source".to_owned(),
        (ArtifactTarget::SemanticLayer, ArtifactChange::Updated) => edits.map_or_else(
            || "Rewrote source".to_owned(),
            |edits| format!("Applied {edits} edit(s)"),
        ),
        (ArtifactTarget::SemanticLayer, ArtifactChange::Removed) => "Deleted source".to_owned(),
    };
    let raw_paths = call.arguments.get("rawPaths").and_then(Value::as_array);
    let raw_paths = raw_paths.map(|paths| {
        paths
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    });
    Some(MemoryAction {
        target,
        change,
        key,
        detail,
        target_connection_id,
        raw_paths,
    })
}

fn is_same(a: &MemoryAction, b: &MemoryAction) -> bool {
    (a.target, &a.key, &a.target_connection_id) == (b.target, &b.key, &b.target_connection_id)
}

fn text(value: &Value, key: &str) -> Option<String> {
    value.get(key)?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn work_of_earlier_attempts_is_found_in_their_transcript() {
        let line = |tool: &str, structured: Value| {
            json!({"toolName": tool, "input": {}, "output": {"markdown": "", "structured": structured}}).to_string()
        };
        let read = line(
            "read_raw_file",
            json!({"path": "a", "startLine": 1, "endLine": 1, "totalLines": 1}),
        );
        let has_work =
            |last: String| transcript_has_work(format!("{read}\n{{\n{last}\n").as_bytes());
        assert!(has_work(line(
            "wiki_write",
            json!({"success": true, "key": "a", "action": "created"})
        )));
        assert!(has_work(line(
            "sl_edit_source",
            json!({"success": true, "action": "updated"})
        )));
        assert!(has_work(line(
            "emit_unmapped_fallback",
            json!({"success": true, "rawPath": "a"})
        )));
        assert!(!has_work(line(
            "wiki_write",
            json!({"success": false, "action": "created"})
        )));
        assert!(!has_work(line(
            "emit_verification_ledger",
            json!({"success": true, "entries": 1})
        )));
        assert!(!has_work(line("load_skill", json!({"success": true}))));
        assert!(!has_work(String::new()));
    }

    fn record(actions: &mut Vec<MemoryAction>, name: &str, arguments: Value, structured: Value) {
        let call = ToolCall {
            name: name.into(),
            arguments,
            tool_use_id: None,
        };
        record_call(
            actions,
            &call,
            &ToolReply {
                structured: Some(structured),
                ..ToolReply::text("done")
            },
        );
    }

    #[test]
    fn actions_are_detailed_as_in_reports_of_ktx() {
        let detail = |name: &str, arguments: Value, more: Value| {
            let mut actions = Vec::new();
            let mut done = json!({"success": true, "connectionId": "w", "sourceName": "orders", "key": "orders"});
            done.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            record(&mut actions, name, arguments, done);
            actions[0].detail.clone()
        };
        let cases = [
            ("wiki_write", json!({"action": "updated"}), "Orders"),
            (
                "wiki_remove",
                json!({"action": "removed"}),
                "Removed page \"orders\"",
            ),
            (
                "sl_write_source",
                json!({"action": "created"}),
                "Created source",
            ),
            (
                "sl_write_source",
                json!({"action": "updated"}),
                "Rewrote source",
            ),
            (
                "sl_write_source",
                json!({"action": "removed"}),
                "Deleted source",
            ),
            (
                "sl_edit_source",
                json!({"action": "updated", "editCount": 2}),
                "Applied 2 edit(s)",
            ),
        ];
        for (name, more, expected) in cases {
            assert_eq!(
                detail(name, json!({"summary": "Orders"}), more),
                expected,
                "{name}"
            );
        }
    }

    fn page(action: &str) -> (Value, Value) {
        (
            json!({"key": "orders", "summary": "Orders", "rawPaths": ["a.md"]}),
            json!({"success": true, "key": "orders", "action": action}),
        )
    }

    #[test]
    fn writes_of_one_page_are_one_action() {
        let mut actions = Vec::new();
        for change in ["created", "updated"] {
            let (arguments, structured) = page(change);
            record(&mut actions, "wiki_write", arguments, structured);
        }
        let [action] = &actions[..] else {
            panic!("{actions:?}")
        };
        assert_eq!(
            (action.change, action.detail.as_str()),
            (ArtifactChange::Created, "Orders")
        );
        assert_eq!(action.raw_paths.as_deref(), Some(&["a.md".to_owned()][..]));
        let (arguments, structured) = page("removed");
        record(&mut actions, "wiki_remove", arguments, structured);
        assert_eq!(actions, []);
    }

    #[test]
    fn rolled_back_and_declined_calls_are_not_actions() {
        let mut actions = Vec::new();
        let done = json!({"success": true, "connectionId": "w", "sourceName": "orders", "action": "updated"});
        record(&mut actions, "sl_edit_source", json!({}), done);
        record(
            &mut actions,
            "sl_write_source",
            json!({}),
            json!({"success": false, "action": "created"}),
        );
        assert_eq!(
            (actions.len(), actions[0].target_connection_id.as_deref()),
            (1, Some("w"))
        );
        record(
            &mut actions,
            "sl_rollback",
            json!({}),
            json!({"success": true, "sourceName": "orders"}),
        );
        assert_eq!(actions, []);
    }
}
