//! What a call of our tools means for the failures before it, by KTX's rule: which failed write a later call makes good.
//!
//! Reads calls and replies, keeps nothing. The count itself is [`Tally`](super::FailureTally)'s.

use serde_json::Value;

use super::tool::{ToolCall, ToolReply};

/// What a write is about: failures and successes of different tools on one subject belong together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WriteSubject {
    /// A wiki page, by its key.
    Page(String),
    /// A source of the semantic layer.
    Source {
        /// Connection id.
        connection: String,
        /// Name of the source.
        name: String,
    },
}

/// What an answered call did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CallEffect {
    /// Nothing that other calls wait for.
    #[default]
    Neutral,
    /// It was not carried out: its tool is unknown, or its arguments are broken. What it was about, as far as they say.
    Rejected(Option<WriteSubject>),
    /// Its tool broke down. Nothing makes that good.
    ToolCrashed,
    /// The tool understood it and declined. Whether that is a failure, the reply says.
    Declined(Option<WriteSubject>),
    /// It wrote, and so makes good what failed on its subject before.
    Wrote(WriteSubject),
    /// The agent said that a raw file cannot be mapped, maybe onto this table: there will be no source for it.
    Unmappable {
        /// The table or source.
        table: Option<String>,
        /// It is on record. If the call was declined, it is not.
        is_recorded: bool,
    },
}

/// What `call` did, now that it has its `reply`.
pub fn call_effect(call: &ToolCall, reply: &ToolReply) -> CallEffect {
    let success = reply.structured.as_ref().and_then(|structured| structured.get("success")).and_then(Value::as_bool);
    match (success, call.name.as_str()) {
        _ if reply.is_error && reply.structured.is_none() => CallEffect::Rejected(call_subject(call)),
        (_, "emit_unmapped_fallback") => {
            CallEffect::Unmappable { table: text_argument(call, "tableRef"), is_recorded: success != Some(false) }
        }
        (Some(false), _) => CallEffect::Declined(call_subject(call)),
        (Some(true), _) => call_subject(call).map_or(CallEffect::Neutral, CallEffect::Wrote),
        (None, _) => CallEffect::Neutral,
    }
}

fn call_subject(call: &ToolCall) -> Option<WriteSubject> {
    match call.name.as_str() {
        "wiki_write" | "wiki_remove" => text_argument(call, "key").map(|key| WriteSubject::Page(flatten_key(&key))),
        "sl_write_source" | "sl_edit_source" => Some(WriteSubject::Source {
            connection: text_argument(call, "connectionId")?,
            name: text_argument(call, "sourceName")?,
        }),
        _ => None,
    }
}

/// Keys are flat; whoever is told so writes the same page under the flat form of the key.
fn flatten_key(key: &str) -> String {
    key.chars().map(|char| if char.is_ascii_alphanumeric() || char == '_' { char } else { '-' }).collect()
}

fn text_argument(call: &ToolCall, name: &str) -> Option<String> {
    call.arguments.get(name)?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn effect(name: &str, arguments: Value, structured: Option<Value>, is_error: bool) -> CallEffect {
        let call = ToolCall { name: name.into(), arguments, tool_use_id: None };
        call_effect(&call, &ToolReply { markdown: "text".into(), structured, is_error, ..ToolReply::default() })
    }

    #[test]
    fn writes_are_identified_by_subject_not_by_tool() {
        let source = WriteSubject::Source { connection: "warehouse".into(), name: "orders".into() };
        let page = WriteSubject::Page("orders".into());
        let of_source = || json!({"connectionId": "warehouse", "sourceName": "orders"});
        let of_page = || json!({"key": "orders"});
        let good = || Some(json!({"success": true}));
        let declined = || Some(json!({"success": false}));
        let cases = [
            (effect("wiki_write", of_page(), good(), false), CallEffect::Wrote(page.clone())),
            (effect("wiki_remove", of_page(), declined(), true), CallEffect::Declined(Some(page))),
            (effect("sl_write_source", of_source(), declined(), true), CallEffect::Declined(Some(source.clone()))),
            (effect("sl_edit_source", of_source(), good(), false), CallEffect::Wrote(source)),
            (effect("sl_rollback", of_source(), good(), false), CallEffect::Neutral),
            (
                effect("wiki_write", json!({"key": "a/b c"}), declined(), true),
                CallEffect::Declined(Some(WriteSubject::Page("a-b-c".into()))),
            ),
            (effect("wiki_read", of_page(), None, false), CallEffect::Neutral),
            (effect("wiki_write", json!({"key": 7}), None, true), CallEffect::Rejected(None)),
            (
                effect("wiki_write", json!({"key": "p", "content": 7}), None, true),
                CallEffect::Rejected(Some(WriteSubject::Page("p".into()))),
            ),
            (effect("wiki_write", json!([]), good(), false), CallEffect::Neutral),
            (effect("no_such_tool", json!({}), None, true), CallEffect::Rejected(None)),
            (
                effect("emit_unmapped_fallback", json!({}), declined(), false),
                CallEffect::Unmappable { table: None, is_recorded: false },
            ),
            (
                effect("emit_unmapped_fallback", json!({"tableRef": "db.orders"}), good(), false),
                CallEffect::Unmappable { table: Some("db.orders".into()), is_recorded: true },
            ),
        ];
        for (found, expected) in cases {
            assert_eq!(found, expected);
        }
    }
}
