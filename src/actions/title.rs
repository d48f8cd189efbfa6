//! Tool name and arguments → kind and title of an action, by the contract's table. Names are matched to the letter.

use std::borrow::Cow;

use super::event::ActionKind;
use crate::decode::Raw;

/// What a call is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Titled<'a> {
    pub(super) kind: ActionKind,
    pub(super) title: Cow<'a, str>,
    /// `update` or `add` when `title` is the path of a file that changes.
    pub(super) change: Option<&'static str>,
}

pub(super) fn of<'a>(name: &Cow<'a, str>, input: Option<Raw<'a>>) -> Titled<'a> {
    let plain = |kind| Titled { kind, title: name.clone(), change: None };
    let titled = |kind, keys: [&str; 1]| match text(input, keys) {
        Some(title) => Titled { kind, title, change: None },
        None => plain(kind),
    };
    match &**name {
        "Bash" | "Shell" | "KillShell" => titled(ActionKind::Command, ["command"]),
        "Write" | "Edit" | "MultiEdit" | "NotebookEdit" => match path(input) {
            Some(title) => {
                let adds = input.and_then(|input| input.get("create")).is_some_and(|create| create.0 == "true");
                let change = Some(if adds { "add" } else { "update" });
                Titled { kind: ActionKind::FileChange, title, change }
            }
            None => plain(ActionKind::FileChange),
        },
        "Read" => match path(input) {
            Some(path) => Titled { kind: ActionKind::Tool, title: Cow::Owned(format!("Read {path}")), change: None },
            None => plain(ActionKind::Tool),
        },
        "WebSearch" => titled(ActionKind::WebSearch, ["query"]),
        "" => Titled { kind: ActionKind::Tool, title: Cow::Borrowed("tool"), change: None },
        _ => plain(ActionKind::Tool),
    }
}

/// The path of a file tool, under whichever of its names.
pub(super) fn path(input: Option<Raw<'_>>) -> Option<Cow<'_, str>> {
    text(input, ["file_path", "path", "notebook_path"])
}

/// The first of these arguments that is a text and not empty.
pub(super) fn text<'a, const N: usize>(input: Option<Raw<'a>>, keys: [&str; N]) -> Option<Cow<'a, str>> {
    let values = input?.pick(keys);
    values.into_iter().flatten().filter_map(Raw::as_str).find(|text| !text.is_empty())
}
