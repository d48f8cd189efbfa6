//! Tool name and arguments → kind and title of an action, by the contract's table. Names are matched to the letter.

use std::borrow::Cow;

use super::event::ActionKind;
use crate::decode::RawJson;

/// What a call is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CallTitle<'a> {
    pub(super) kind: ActionKind,
    pub(super) title: Cow<'a, str>,
    /// `update` or `add` when `title` is the path of a file that changes.
    pub(super) change: Option<&'static str>,
}

pub(super) fn call_title<'a>(name: &Cow<'a, str>, input: Option<RawJson<'a>>) -> CallTitle<'a> {
    let plain = |kind| CallTitle { kind, title: name.clone(), change: None };
    let titled = |kind, keys: [&str; 1]| match first_text_argument(input, keys) {
        Some(title) => CallTitle { kind, title, change: None },
        None => plain(kind),
    };
    match &**name {
        "Bash" | "Shell" | "KillShell" => titled(ActionKind::Command, ["command"]),
        "Write" | "Edit" | "MultiEdit" | "NotebookEdit" => match path_argument(input) {
            Some(title) => {
                let adds = input.and_then(|input| input.get("create")).is_some_and(|create| create.0 == "true");
                let change = Some(if adds { "add" } else { "update" });
                CallTitle { kind: ActionKind::FileChange, title, change }
            }
            None => plain(ActionKind::FileChange),
        },
        "Read" => match path_argument(input) {
            Some(path) => CallTitle { kind: ActionKind::Tool, title: Cow::Owned(format!("Read {path}")), change: None },
            None => plain(ActionKind::Tool),
        },
        "WebSearch" => titled(ActionKind::WebSearch, ["query"]),
        "" => CallTitle { kind: ActionKind::Tool, title: Cow::Borrowed("tool"), change: None },
        _ => plain(ActionKind::Tool),
    }
}

/// The path of a file tool, under whichever of its names.
pub(super) fn path_argument(input: Option<RawJson<'_>>) -> Option<Cow<'_, str>> {
    first_text_argument(input, ["file_path", "path", "notebook_path"])
}

/// The first of these arguments that is a text and not empty.
pub(super) fn first_text_argument<'a, const N: usize>(
    input: Option<RawJson<'a>>,
    keys: [&str; N],
) -> Option<Cow<'a, str>> {
    let values = input?.pick(keys);
    values.into_iter().flatten().filter_map(RawJson::as_str).find(|text| !text.is_empty())
}
