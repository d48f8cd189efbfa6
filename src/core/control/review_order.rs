//! Decisions of a person about the changes of a run, as clients send them.

use serde::{Deserialize, Serialize};

use super::{MAX_FEEDBACK_CHARS, MAX_REQUEST_BYTES, RunCommand};
use crate::tape::note::{ReviewDecided, ReviewDecision};

/// Maximum length of the text of an edited file, in bytes. It has to fit into a request.
pub const MAX_EDITED_BYTES: usize = 256 * 1024;

/// Bytes of decisions in a request, which has other fields, too.
const MAX_ORDERS_BYTES: usize = MAX_REQUEST_BYTES - 16 * 1024;

/// A decision about a changed file or one hunk of it.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReviewOrder {
    /// Path of the file, relative to the project.
    pub path: String,
    /// Id of the hunk; `None` for the whole file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hunk: Option<String>,
    pub verdict: ReviewVerdict,
    /// Why a change is rejected, if the person wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What becomes of a change.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReviewVerdict {
    Accept,
    Reject,
    /// The unit makes it again, with this feedback.
    SendBack(String),
    /// The whole file gets this text.
    Edit(String),
    /// The decision is withdrawn.
    Reopen,
}

impl ReviewOrder {
    /// The order as it is recorded.
    pub fn into_decision(self) -> ReviewDecided {
        let Self {
            path,
            hunk,
            verdict,
            reason,
        } = self;
        let (decision, text, feedback) = match verdict {
            ReviewVerdict::Accept => (ReviewDecision::Accepted, None, None),
            ReviewVerdict::Reject => (ReviewDecision::Rejected, None, None),
            ReviewVerdict::SendBack(feedback) => (ReviewDecision::SentBack, None, Some(feedback)),
            ReviewVerdict::Edit(text) => (ReviewDecision::Edited, Some(text), None),
            ReviewVerdict::Reopen => (ReviewDecision::Open, None, None),
        };
        ReviewDecided {
            path,
            hunk,
            decision,
            text,
            feedback,
            reason,
        }
    }

    /// The decisions as commands, as few as the length of a request allows.
    pub fn into_commands(orders: Vec<Self>) -> Vec<RunCommand> {
        let mut commands: Vec<Vec<Self>> = Vec::new();
        let mut bytes = usize::MAX;
        for order in orders {
            let length =
                serde_json::to_vec(&order).map_or(MAX_REQUEST_BYTES, |json| json.len() + 1);
            bytes = bytes.saturating_add(length);
            match commands.last_mut().filter(|_| bytes <= MAX_ORDERS_BYTES) {
                Some(decisions) => decisions.push(order),
                None => {
                    bytes = length;
                    commands.push(vec![order]);
                }
            }
        }
        commands
            .into_iter()
            .map(|decisions| RunCommand::Review { decisions })
            .collect()
    }

    /// What is wrong with the values of the order, whatever the run has changed.
    pub(super) fn problem(&self) -> Option<String> {
        let is_long = self
            .reason
            .as_ref()
            .is_some_and(|reason| reason.chars().count() > MAX_FEEDBACK_CHARS);
        let problem = match &self.verdict {
            ReviewVerdict::Reject if is_long => {
                format!("reason too long; the limit is {MAX_FEEDBACK_CHARS} characters")
            }
            ReviewVerdict::Reject => return None,
            _ if self.reason.is_some() => "only a rejection has a reason".to_owned(),
            ReviewVerdict::SendBack(feedback) if feedback.trim().is_empty() => {
                "no feedback; the agent needs to know what to change".to_owned()
            }
            ReviewVerdict::SendBack(feedback) if feedback.chars().count() > MAX_FEEDBACK_CHARS => {
                format!("feedback too long; the limit is {MAX_FEEDBACK_CHARS} characters")
            }
            ReviewVerdict::Edit(_) if self.hunk.is_some() => {
                "only a whole file can be edited".to_owned()
            }
            ReviewVerdict::Edit(text) if text.len() > MAX_EDITED_BYTES => {
                format!(
                    "the edited text is longer than {} KiB; shorten it",
                    MAX_EDITED_BYTES / 1024
                )
            }
            ReviewVerdict::Edit(text) if text.contains('\0') => {
                "the edited text contains a NUL character".to_owned()
            }
            _ => return None,
        };
        Some(problem)
    }
}
