//! Derives kind and title of an action from tool name and arguments, by the contract's table. Names are case-sensitive.

use std::borrow::Cow;

use super::event::ActionKind;
use crate::decode::RawJson;

/// Kind and title of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CallTitle<'a> {
    pub(super) kind: ActionKind,
    pub(super) title: Cow<'a, str>,
    /// `update` or `add` if `title` is the path of a changed file.
    pub(super) change: Option<&'static str>,
}

pub(super) fn call_title<'a>(name: &Cow<'a, str>, input: Option<RawJson<'a>>) -> CallTitle<'a> {
    let plain = |kind| CallTitle {
        kind,
        title: name.clone(),
        change: None,
    };
    let titled = |kind, keys: [&str; 1]| match first_text_argument(input, keys) {
        Some(title) => CallTitle {
            kind,
            title,
            change: None,
        },
        None => plain(kind),
    };
    match &**name {
        "Bash" | "Shell" | "KillShell" => titled(ActionKind::Command, ["command"]),
        "Write" | "Edit" | "MultiEdit" | "NotebookEdit" => match path_argument(input) {
            Some(title) => {
                let adds = input
                    .and_then(|input| input.get("create"))
                    .is_some_and(|create| create.0 == "true");
                let change = Some(if adds { "add" } else { "update" });
                CallTitle {
                    kind: ActionKind::FileChange,
                    title,
                    change,
                }
            }
            None => plain(ActionKind::FileChange),
        },
        "Read" => match path_argument(input) {
            Some(path) => CallTitle {
                kind: ActionKind::Tool,
                title: Cow::Owned(format!("Read {path}")),
                change: None,
            },
            None => plain(ActionKind::Tool),
        },
        "WebSearch" => titled(ActionKind::WebSearch, ["query"]),
        "" => CallTitle {
            kind: ActionKind::Tool,
            title: Cow::Borrowed("tool"),
            change: None,
        },
        _ => plain(ActionKind::Tool),
    }
}

/// The path argument of a file tool, under any of its names.
pub(super) fn path_argument(input: Option<RawJson<'_>>) -> Option<Cow<'_, str>> {
    first_text_argument(input, ["file_path", "path", "notebook_path"])
}

/// The first of these arguments that is a non-empty text.
pub(super) fn first_text_argument<'a, const N: usize>(
    input: Option<RawJson<'a>>,
    keys: [&str; N],
) -> Option<Cow<'a, str>> {
    let values = input?.pick(keys);
    values
        .into_iter()
        .flatten()
        .filter_map(RawJson::as_str)
        .find(|text| !text.is_empty())
}
