//! What a call of our tools means for the failures before it, by KTX's rule: which failed write a later call makes good.
//!
//! Reads calls and replies, keeps nothing. The count itself is [`Tally`](super::Tally)'s.

use serde_json::Value;

use super::tool::{ToolCall, ToolReply};

/// What a write is about: failures and successes of different tools on one subject belong together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
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
pub enum Effect {
    /// Nothing that other calls wait for.
    #[default]
    Plain,
    /// It was not carried out: its tool is unknown, or its arguments are broken. What it was about, as far as they say.
    Rejected(Option<Subject>),
    /// Its tool broke down. Nothing makes that good.
    Broken,
    /// The tool understood it and declined. Whether that is a failure, the reply says.
    Declined(Option<Subject>),
    /// It wrote, and so makes good what failed on its subject before.
    Wrote(Subject),
    /// The agent said that a raw file cannot be mapped, maybe onto this table: there will be no source for it.
    GaveUp {
        /// The table or source.
        table: Option<String>,
        /// It is on record. If the call was declined, it is not.
        is_recorded: bool,
    },
}

/// What `call` did, now that it has its `reply`.
pub fn of(call: &ToolCall, reply: &ToolReply) -> Effect {
    let success = reply.structured.as_ref().and_then(|structured| structured.get("success")).and_then(Value::as_bool);
    match (success, call.name.as_str()) {
        _ if reply.is_error && reply.structured.is_none() => Effect::Rejected(subject(call)),
        (_, "emit_unmapped_fallback") => {
            Effect::GaveUp { table: argument(call, "tableRef"), is_recorded: success != Some(false) }
        }
        (Some(false), _) => Effect::Declined(subject(call)),
        (Some(true), _) => subject(call).map_or(Effect::Plain, Effect::Wrote),
        (None, _) => Effect::Plain,
    }
}

fn subject(call: &ToolCall) -> Option<Subject> {
    match call.name.as_str() {
        "wiki_write" | "wiki_remove" => argument(call, "key").map(|key| Subject::Page(flat(&key))),
        "sl_write_source" | "sl_edit_source" => {
            Some(Subject::Source { connection: argument(call, "connectionId")?, name: argument(call, "sourceName")? })
        }
        _ => None,
    }
}

/// Keys are flat; whoever is told so writes the same page under the flat form of the key.
fn flat(key: &str) -> String {
    key.chars().map(|char| if char.is_ascii_alphanumeric() || char == '_' { char } else { '-' }).collect()
}

fn argument(call: &ToolCall, name: &str) -> Option<String> {
    call.arguments.get(name)?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn effect(name: &str, arguments: Value, structured: Option<Value>, is_error: bool) -> Effect {
        let call = ToolCall { name: name.into(), arguments, tool_use_id: None };
        of(&call, &ToolReply { markdown: "text".into(), structured, is_error, ..ToolReply::default() })
    }

    #[test]
    fn writes_are_told_by_their_subject_not_by_their_tool() {
        let source = Subject::Source { connection: "warehouse".into(), name: "orders".into() };
        let page = Subject::Page("orders".into());
        let of_source = || json!({"connectionId": "warehouse", "sourceName": "orders"});
        let of_page = || json!({"key": "orders"});
        let good = || Some(json!({"success": true}));
        let declined = || Some(json!({"success": false}));
        let cases = [
            (effect("wiki_write", of_page(), good(), false), Effect::Wrote(page.clone())),
            (effect("wiki_remove", of_page(), declined(), true), Effect::Declined(Some(page))),
            (effect("sl_write_source", of_source(), declined(), true), Effect::Declined(Some(source.clone()))),
            (effect("sl_edit_source", of_source(), good(), false), Effect::Wrote(source)),
            (effect("sl_rollback", of_source(), good(), false), Effect::Plain),
            (
                effect("wiki_write", json!({"key": "a/b c"}), declined(), true),
                Effect::Declined(Some(Subject::Page("a-b-c".into()))),
            ),
            (effect("wiki_read", of_page(), None, false), Effect::Plain),
            (effect("wiki_write", json!({"key": 7}), None, true), Effect::Rejected(None)),
            (
                effect("wiki_write", json!({"key": "p", "content": 7}), None, true),
                Effect::Rejected(Some(Subject::Page("p".into()))),
            ),
            (effect("wiki_write", json!([]), good(), false), Effect::Plain),
            (effect("no_such_tool", json!({}), None, true), Effect::Rejected(None)),
            (
                effect("emit_unmapped_fallback", json!({}), declined(), false),
                Effect::GaveUp { table: None, is_recorded: false },
            ),
            (
                effect("emit_unmapped_fallback", json!({"tableRef": "db.orders"}), good(), false),
                Effect::GaveUp { table: Some("db.orders".into()), is_recorded: true },
            ),
        ];
        for (found, expected) in cases {
            assert_eq!(found, expected);
        }
    }
}
