//! Decisions that an attempt recorded in addition to its changes, as text for people: conflicts, evictions, merged
//! artifacts, raw files that could not be mapped, and those that it left unread. Pure. It must not depend on where they are displayed.

use serde_json::Value;

use super::{state::RECONCILE_KEY, state::RunState};
use crate::tape::note::{
    AttemptOutput,
    attempt_output::{UnmappedFile, UnreadFile},
};

/// Maximum number of subjects that the summary names.
const MAX_NAMED_SUBJECTS: usize = 5;

/// A decision that an agent recorded. Its texts are written by the agent, so they are untrusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedDecision {
    pub kind: RecordedDecisionKind,
    /// The page, source or raw file that the decision concerns.
    pub about: String,
    /// The decision and its reason.
    pub text: String,
    /// True if a person should review it.
    pub is_flagged: bool,
}

/// The subject of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedDecisionKind {
    Conflict,
    /// A raw file that was deleted.
    Eviction,
    /// A page or source that was merged into another one, or replaced by it.
    Resolution,
    /// A raw file that could not be mapped.
    Fallback,
    /// A raw file that the agent left unread although it was asked to read it.
    Unread,
}

impl RecordedDecisionKind {
    /// Its label in reports.
    pub fn label(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Eviction => "eviction",
            Self::Resolution => "merge",
            Self::Fallback => "not mapped",
            Self::Unread => "left unread",
        }
    }
}

impl RecordedDecision {
    fn conflict(value: &Value) -> Self {
        let kind = field(value, "kind").replace('_', " ");
        let contested = value["contestedKey"]
            .as_str()
            .map(|key| format!(" about {key}"))
            .unwrap_or_default();
        let unit = value["unitKey"]
            .as_str()
            .map(|unit| format!(" (unit {unit})"))
            .unwrap_or_default();
        Self {
            kind: RecordedDecisionKind::Conflict,
            about: field(value, "artifactKey").to_owned(),
            text: format!("{kind}{contested}{unit}: {}", field(value, "detail")),
            is_flagged: value["flaggedForHuman"] == true,
        }
    }

    fn eviction(value: &Value) -> Self {
        let (path, action) = (field(value, "rawPath"), field(value, "action"));
        Self {
            kind: RecordedDecisionKind::Eviction,
            about: artifact(value),
            text: format!(
                "{action}, because {path} was deleted: {}",
                field(value, "reason")
            ),
            is_flagged: false,
        }
    }

    fn resolution(value: &Value) -> Self {
        let (path, action) = (field(value, "rawPath"), field(value, "actionType"));
        Self {
            kind: RecordedDecisionKind::Resolution,
            about: artifact(value),
            text: format!("{action} ({path}): {}", field(value, "reason")),
            is_flagged: false,
        }
    }

    fn fallback(file: &UnmappedFile) -> Self {
        let detail = file
            .detail
            .as_deref()
            .map(|detail| format!(" – {detail}"))
            .unwrap_or_default();
        Self {
            kind: RecordedDecisionKind::Fallback,
            about: file.raw_path.clone(),
            text: format!("{} → {}{detail}", file.reason, file.fallback),
            is_flagged: file.fallback == "flagged",
        }
    }

    fn unread(file: &UnreadFile) -> Self {
        Self {
            kind: RecordedDecisionKind::Unread,
            about: file.path.clone(),
            text: file.state(),
            is_flagged: false,
        }
    }
}

/// Formats it as `crates – near duplicate: merged`.
impl std::fmt::Display for RecordedDecision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let flag = if self.is_flagged {
            " [flagged for a person]"
        } else {
            ""
        };
        write!(f, "{} – {}{flag}", self.about, self.text)
    }
}

/// All decisions in `work`, flagged conflicts first.
pub fn recorded_decisions(work: &AttemptOutput) -> Vec<RecordedDecision> {
    let conflicts = work.conflicts.iter().map(RecordedDecision::conflict);
    let evictions = work.evictions.iter().map(RecordedDecision::eviction);
    let resolutions = work.resolutions.iter().map(RecordedDecision::resolution);
    let fallbacks = work.unmapped.iter().map(RecordedDecision::fallback);
    let unread = work.unread.iter().map(RecordedDecision::unread);
    let mut all: Vec<RecordedDecision> = conflicts
        .chain(evictions)
        .chain(resolutions)
        .chain(fallbacks)
        .chain(unread)
        .collect();
    all.sort_by_key(|decision| {
        (
            decision.kind != RecordedDecisionKind::Conflict,
            !decision.is_flagged,
        )
    });
    all
}

/// Conflicts that the reconcile step of a run settled and flagged for a person.
pub fn flagged_conflicts(state: &RunState) -> Vec<RecordedDecision> {
    let step = state
        .units
        .iter()
        .find(|unit| unit.planned.is_none() && unit.key.as_str() == RECONCILE_KEY);
    step.and_then(|step| state.work(step))
        .map(flagged_conflicts_of)
        .unwrap_or_default()
}

/// Conflicts in `work` that are flagged for a person.
fn flagged_conflicts_of(work: &AttemptOutput) -> Vec<RecordedDecision> {
    let is_wanted = |decision: &RecordedDecision| {
        decision.kind == RecordedDecisionKind::Conflict && decision.is_flagged
    };
    recorded_decisions(work)
        .into_iter()
        .filter(is_wanted)
        .collect()
}

/// Returns `2 conflicts are flagged for a person: crates, terms`, or `None` without flagged conflicts.
pub fn flagged_conflicts_summary(work: &AttemptOutput) -> Option<String> {
    conflicts_summary(&flagged_conflicts_of(work))
}

/// Like [`flagged_conflicts_summary`], for decisions that are all flagged.
pub fn conflicts_summary(flagged: &[RecordedDecision]) -> Option<String> {
    let count = match flagged.len() {
        0 => return None,
        1 => "1 conflict is".to_owned(),
        count => format!("{count} conflicts are"),
    };
    let named: Vec<&str> = flagged
        .iter()
        .take(MAX_NAMED_SUBJECTS)
        .map(|decision| decision.about.as_str())
        .collect();
    let more = match flagged.len().saturating_sub(MAX_NAMED_SUBJECTS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "{count} flagged for a person: {}{more}",
        named.join(", ")
    ))
}

fn artifact(value: &Value) -> String {
    format!(
        "{} {}",
        field(value, "artifactKind"),
        field(value, "artifactKey")
    )
}

/// Returns an empty text for a missing field: tapes of other programs may lack it.
fn field<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn work() -> AttemptOutput {
        let conflict = |key: &str, flagged: bool| json!({"unitKey": "docs-a", "kind": "near_duplicate", "artifactKey": key, "detail": "merged", "flaggedForHuman": flagged});
        let about = json!({"kind": "definitional_contradiction", "contestedKey": "churn", "artifactKey": "wiki churn", "detail": "both named", "flaggedForHuman": true});
        let fallback = UnmappedFile {
            raw_path: "a.yml".into(),
            reason: "parse_error".into(),
            detail: Some("Jinja".into()),
            fallback: "wiki_only".into(),
        };
        AttemptOutput {
            conflicts: vec![conflict("crates", false), about, json!(7)],
            evictions: vec![
                json!({"rawPath": "kb/b.md", "artifactKind": "wiki", "artifactKey": "b", "action": "removed", "reason": "nothing else supports it"}),
            ],
            resolutions: vec![
                json!({"rawPath": "kb/a.md", "artifactKind": "sl", "artifactKey": "orders", "actionType": "merged", "reason": "into sales"}),
            ],
            unmapped: vec![fallback],
            ..AttemptOutput::default()
        }
    }

    #[test]
    fn decisions_read_as_sentences_and_flagged_ones_come_first() {
        let lines: Vec<String> = recorded_decisions(&work())
            .iter()
            .map(|it| format!("{}: {it}", it.kind.label()))
            .collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        conflict: wiki churn – definitional contradiction about churn: both named [flagged for a person]
        conflict: crates – near duplicate (unit docs-a): merged
        conflict: ? – ?: ?
        eviction: wiki b – removed, because kb/b.md was deleted: nothing else supports it
        merge: sl orders – merged (kb/a.md): into sales
        not mapped: a.yml – parse_error → wiki_only – Jinja
        ");
    }

    #[test]
    fn flagged_conflicts_are_counted_and_named() {
        let with = |flagged: usize| {
            let one = json!({"artifactKey": "k", "flaggedForHuman": true});
            flagged_conflicts_summary(&AttemptOutput {
                conflicts: vec![one; flagged],
                ..AttemptOutput::default()
            })
        };
        assert_eq!(with(0), None);
        assert_eq!(
            with(1).as_deref(),
            Some("1 conflict is flagged for a person: k")
        );
        assert_eq!(
            with(7).as_deref(),
            Some("7 conflicts are flagged for a person: k, k, k, k, k and 2 more")
        );
        assert_eq!(
            flagged_conflicts_summary(&work()).as_deref(),
            Some("1 conflict is flagged for a person: wiki churn")
        );
    }
}
