//! The effect of a tool call on earlier failures, by KTX's rule: which later call recovers a failed write.
//!
//! The functions read a call and its reply and keep no state. [`FailureTally`](super::failure_tally::FailureTally) counts.

use serde_json::Value;

use super::toolset::{ToolCall, ToolReply};

/// Subject of a write. Failures and successes of different tools on the same subject belong together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WriteSubject {
    /// A wiki page, identified by its key.
    Page(String),
    Source {
        connection: String,
        name: String,
    },
}

/// Effect of an answered call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CallEffect {
    /// No effect on other calls.
    #[default]
    Neutral,
    /// The call was not carried out, because its tool is unknown or its arguments are invalid. Contains the subject if
    /// the arguments name it.
    Rejected(Option<WriteSubject>),
    /// The tool itself broke. No later call recovers this.
    ToolCrashed,
    /// The tool understood the call and declined it. The reply decides whether this is a failure.
    Declined(Option<WriteSubject>),
    /// The call wrote its subject, which recovers earlier failures on the same subject.
    Wrote(WriteSubject),
    /// The agent reported that a raw file, possibly for this table, cannot be mapped: it will have no source.
    Unmappable {
        /// Name of the table or source.
        table: Option<String>,
        /// False if the tool declined the report.
        is_recorded: bool,
    },
}

/// Returns the effect of `call`, given its `reply`.
pub fn call_effect(call: &ToolCall, reply: &ToolReply) -> CallEffect {
    let success = reply
        .structured
        .as_ref()
        .and_then(|structured| structured.get("success"))
        .and_then(Value::as_bool);
    match (success, call.name.as_str()) {
        _ if reply.is_error && reply.structured.is_none() => {
            CallEffect::Rejected(call_subject(call))
        }
        (_, "emit_unmapped_fallback") => CallEffect::Unmappable {
            table: text_argument(call, "tableRef"),
            is_recorded: success != Some(false),
        },
        (Some(false), _) => CallEffect::Declined(call_subject(call)),
        (Some(true), _) => call_subject(call).map_or(CallEffect::Neutral, CallEffect::Wrote),
        (None, _) => CallEffect::Neutral,
    }
}

fn call_subject(call: &ToolCall) -> Option<WriteSubject> {
    match call.name.as_str() {
        "wiki_write" | "wiki_remove" => {
            text_argument(call, "key").map(|key| WriteSubject::Page(flatten_key(&key)))
        }
        "sl_write_source" | "sl_edit_source" => Some(WriteSubject::Source {
            connection: text_argument(call, "connectionId")?,
            name: text_argument(call, "sourceName")?,
        }),
        _ => None,
    }
}

/// Keys are flat. An agent whose key was declined for a slash writes the same page under the flat key.
fn flatten_key(key: &str) -> String {
    key.chars()
        .map(|char| {
            if char.is_ascii_alphanumeric() || char == '_' {
                char
            } else {
                '-'
            }
        })
        .collect()
}

fn text_argument(call: &ToolCall, name: &str) -> Option<String> {
    call.arguments.get(name)?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn effect(
        name: &str,
        arguments: Value,
        structured: Option<Value>,
        is_error: bool,
    ) -> CallEffect {
        let call = ToolCall {
            name: name.into(),
            arguments,
            tool_use_id: None,
        };
        call_effect(
            &call,
            &ToolReply {
                markdown: "text".into(),
                structured,
                is_error,
                ..ToolReply::default()
            },
        )
    }

    #[test]
    fn writes_are_identified_by_subject_not_by_tool() {
        let source = WriteSubject::Source {
            connection: "warehouse".into(),
            name: "orders".into(),
        };
        let page = WriteSubject::Page("orders".into());
        let of_source = || json!({"connectionId": "warehouse", "sourceName": "orders"});
        let of_page = || json!({"key": "orders"});
        let good = || Some(json!({"success": true}));
        let declined = || Some(json!({"success": false}));
        let cases = [
            (
                effect("wiki_write", of_page(), good(), false),
                CallEffect::Wrote(page.clone()),
            ),
            (
                effect("wiki_remove", of_page(), declined(), true),
                CallEffect::Declined(Some(page)),
            ),
            (
                effect("sl_write_source", of_source(), declined(), true),
                CallEffect::Declined(Some(source.clone())),
            ),
            (
                effect("sl_edit_source", of_source(), good(), false),
                CallEffect::Wrote(source),
            ),
            (
                effect("sl_rollback", of_source(), good(), false),
                CallEffect::Neutral,
            ),
            (
                effect("wiki_write", json!({"key": "a/b c"}), declined(), true),
                CallEffect::Declined(Some(WriteSubject::Page("a-b-c".into()))),
            ),
            (
                effect("wiki_read", of_page(), None, false),
                CallEffect::Neutral,
            ),
            (
                effect("wiki_write", json!({"key": 7}), None, true),
                CallEffect::Rejected(None),
            ),
            (
                effect("wiki_write", json!({"key": "p", "content": 7}), None, true),
                CallEffect::Rejected(Some(WriteSubject::Page("p".into()))),
            ),
            (
                effect("wiki_write", json!([]), good(), false),
                CallEffect::Neutral,
            ),
            (
                effect("no_such_tool", json!({}), None, true),
                CallEffect::Rejected(None),
            ),
            (
                effect("emit_unmapped_fallback", json!({}), declined(), false),
                CallEffect::Unmappable {
                    table: None,
                    is_recorded: false,
                },
            ),
            (
                effect(
                    "emit_unmapped_fallback",
                    json!({"tableRef": "db.orders"}),
                    good(),
                    false,
                ),
                CallEffect::Unmappable {
                    table: Some("db.orders".into()),
                    is_recorded: true,
                },
            ),
        ];
        for (found, expected) in cases {
            assert_eq!(found, expected);
        }
    }
}
