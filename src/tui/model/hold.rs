//! State for decisions about held calls: the call, and the line that is being typed.

use std::sync::Arc;

use ingestdeck_core::{
    actions::sql_query::arguments_row,
    run::{bookmark::Bookmark, state::UnitState},
    tape::UnitKey,
    text,
};

/// Maximum number of calls that the question about a release lists.
const MAX_LISTED_CALLS: usize = 5;

/// A tool call that waits for a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallId {
    pub unit: UnitKey,
    /// Id of the call, if known.
    pub call: Option<Arc<str>>,
}

/// What the release of a held unit runs, one line per call that waits. Empty if none does.
pub(crate) fn release_consequences(unit: &UnitState) -> Vec<String> {
    let held = unit.latest().map_or(&[][..], |attempt| &attempt.held_calls);
    let mut lines: Vec<String> = held
        .iter()
        .take(MAX_LISTED_CALLS)
        .map(|call| {
            let input = arguments_row(&call.tool, &call.input);
            text::one_row(&format!("{} {input} runs", call.tool), 120)
        })
        .collect();
    if held.len() > MAX_LISTED_CALLS {
        lines.push(format!("and {} more", held.len() - MAX_LISTED_CALLS));
    }
    if !held.is_empty() {
        lines.push("Later calls do not wait.".to_owned());
    }
    lines
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LineInput {
    pub text: String,
    pub purpose: InputPurpose,
}

/// Purpose of a typed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InputPurpose {
    /// A message to the agent of a unit.
    Say(UnitKey),
    /// Text to search for.
    Search,
    /// Reason for denying a call.
    Deny(CallId),
    /// Reason for denying the next call of a held unit.
    DenyNext(UnitKey),
    /// A command of the command line.
    Command,
    /// Text that listed units contain.
    FilterUnits,
    /// A file or directory to open from the home screen.
    OpenPath,
    /// Text to find in all runs and sessions.
    FindInRecords,
    /// Note of a bookmark.
    Bookmark(Box<Bookmark>),
    /// What a unit should change.
    SendBack(ReviewTarget),
    /// Why a change is rejected; may be empty.
    Reject(ReviewTarget),
}

/// A changed file, or one hunk of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReviewTarget {
    /// Path relative to the project.
    pub path: String,
    /// Id of the hunk; `None` for the whole file.
    pub hunk: Option<String>,
}

impl LineInput {
    pub(crate) fn new(purpose: InputPurpose) -> Self {
        Self {
            text: String::new(),
            purpose,
        }
    }
}
