//! Groups the units that need a person by cause and error, each group with a remedy. Pure.

use std::borrow::Cow;

use super::state::{RunState, UnitNeed, UnitState, UnitStatus};
use crate::{
    tape::note::VerdictCause,
    units::error_groups::{MAX_ERROR_CHARS, UnitFailure, group_failures, headline},
};

/// Precedes the error of the first unit where those of others differ.
pub const EXAMPLE: &str = "for example: ";

/// Units that need a person for the same reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureGroup {
    /// Label of the cause.
    pub cause: String,
    /// The common part of their errors. It identifies the group and is not shown.
    pub pattern: String,
    /// The unchanged error of the first unit.
    pub example: String,
    /// The error for a heading: that of the first unit, marked as an example if those of others differ.
    pub reason: String,
    /// How a person can fix it, if known.
    pub remedy: Option<String>,
    /// Unit indices in plan order.
    pub units: Vec<usize>,
}

/// Returns the units that failed, wait for a person, are silent or cannot start, the largest group first.
pub fn failure_groups(state: &RunState) -> Vec<FailureGroup> {
    let failed: Vec<(usize, &UnitState)> = state
        .units
        .iter()
        .enumerate()
        .filter(|(_, unit)| needs_person(unit))
        .collect();
    let errors: Vec<Cow<'_, str>> = failed
        .iter()
        .map(|(_, unit)| state.failure_reason(unit))
        .collect();
    let failures = failed
        .iter()
        .zip(&errors)
        .map(|((_, unit), error)| UnitFailure {
            cause: cause(state, unit),
            error,
            unit: unit
                .planned
                .as_ref()
                .map_or(&unit.key, |planned| planned.ktx_key()),
        });
    let groups = group_failures(failures);
    groups
        .into_iter()
        .map(|group| {
            let first = group
                .members
                .first()
                .and_then(|member| failed.get(*member))
                .map(|(_, unit)| *unit);
            let mut texts = group
                .members
                .iter()
                .filter_map(|member| errors.get(*member))
                .map(|error| &**error);
            let example = texts.next().unwrap_or_default();
            FailureGroup {
                cause: group.cause,
                pattern: match group.error.chars().count() {
                    MAX_ERROR_CHARS.. => group.error + "…",
                    _ => group.error,
                },
                reason: match group.members.len() {
                    ..2 => example.to_owned(),
                    _ if texts.all(|text| headline(text) == headline(example)) => {
                        headline(example).into_owned()
                    }
                    _ => format!("{EXAMPLE}{}", headline(example)),
                },
                example: example.to_owned(),
                remedy: first.and_then(|unit| state.remedy(unit)).map(str::to_owned),
                units: group
                    .members
                    .iter()
                    .filter_map(|member| failed.get(*member))
                    .map(|(unit, _)| *unit)
                    .collect(),
            }
        })
        .collect()
}

/// True for a unit that a person must look at, or whose agent refused to start.
fn needs_person(unit: &UnitState) -> bool {
    let verdict = || unit.latest().and_then(|attempt| attempt.verdict.as_ref());
    let is_refused = || verdict().is_some_and(|verdict| verdict.cause == VerdictCause::StartFailed);
    unit.status.need() == UnitNeed::Person
        || (unit.status == UnitStatus::NotStarted && is_refused())
}

fn cause<'a>(state: &'a RunState, unit: &'a UnitState) -> &'a str {
    match state.verdict(unit) {
        Some(verdict) => verdict.cause.label(),
        None if unit.status == UnitStatus::Failed => "failed",
        None => unit.status.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        run::state::{AttemptState, PriorPatchIntegration},
        tape::note::{AttemptOutcome, PatchResult, StopReason, Verdict},
    };

    fn unit(
        key: &str,
        cause: Option<VerdictCause>,
        reason: &str,
        failure: Option<&str>,
    ) -> UnitState {
        let verdict = cause.map(|cause| Verdict {
            outcome: AttemptOutcome::Failed,
            stop: StopReason::Natural,
            cause,
            reason: reason.into(),
            remedy: Some("look".into()),
        });
        let status = if verdict.is_some() {
            UnitStatus::Failed
        } else {
            UnitStatus::Interrupted
        };
        let attempt = AttemptState {
            verdict,
            deciding_failure: failure.map(Into::into),
            ..AttemptState::default()
        };
        UnitState {
            key: key.into(),
            planned: None,
            status,
            attempts: vec![attempt],
            retry_at: None,
            hold_mode: Default::default(),
        }
    }

    #[test]
    fn failed_calls_group_by_error_and_verdicts_by_cause() {
        let calls = |key, failure| {
            let reason = format!("1 tool call(s) failed during WorkUnit {key}");
            unit(
                key,
                Some(VerdictCause::ToolFailures),
                &reason,
                Some(failure),
            )
        };
        let units = vec![
            unit("ok", None, "", None),
            calls("page-1", "wiki_write: page \"a\" has no title"),
            calls("page-2", "read_raw_file: no file raw/x.md"),
            calls("page-3", "wiki_write: page \"b\" has no title"),
            unit(
                "page-4",
                Some(VerdictCause::UsageLimit { resets_at: Some(4) }),
                "usage limit until 4",
                None,
            ),
            unit(
                "page-5",
                Some(VerdictCause::UsageLimit { resets_at: None }),
                "usage limit until 77",
                None,
            ),
        ];
        let state = RunState {
            units,
            ..RunState::default()
        };
        let groups: Vec<_> = failure_groups(&state)
            .into_iter()
            .map(|group| (group.cause, group.pattern, group.units))
            .collect();
        assert_eq!(
            groups,
            [
                (
                    "tool failures".into(),
                    "wiki_write: page \"…\" has no title".into(),
                    vec![1, 3]
                ),
                (
                    "usage limit".into(),
                    "usage limit until #".into(),
                    vec![4, 5]
                ),
                (
                    "interrupted".into(),
                    "interrupted before it had a verdict".into(),
                    vec![0]
                ),
                (
                    "tool failures".to_owned(),
                    "read_raw_file: no file …".to_owned(),
                    vec![2]
                ),
            ]
        );
        let shown: Vec<_> = failure_groups(&state)
            .into_iter()
            .map(|group| (group.example, group.reason))
            .collect();
        let first = "wiki_write: page \"a\" has no title";
        assert_eq!(
            shown[0],
            (first.to_owned(), format!("for example: {first}"))
        );
        assert_eq!(
            shown[3].1, "read_raw_file: no file raw/x.md",
            "the error of one unit is shown as it is"
        );
        assert_eq!(failure_groups(&RunState::default()), []);
    }

    #[test]
    fn group_with_equal_errors_shows_their_text() {
        let error = "returned no result message (exit code 139)";
        let crashed = |key| unit(key, Some(VerdictCause::Transient), error, None);
        let state = RunState {
            units: vec![crashed("a"), crashed("b")],
            ..RunState::default()
        };
        let shown: Vec<_> = failure_groups(&state)
            .into_iter()
            .map(|group| (group.reason, group.units))
            .collect();
        assert_eq!(shown, [(error.to_owned(), vec![0, 1])]);
    }

    #[test]
    fn rejected_patch_of_prior_run_reports_its_reason() {
        let mut lost = unit(
            "juice",
            Some(VerdictCause::Conflict),
            "textual conflict in terms.md",
            None,
        );
        let verdict = lost.attempts.remove(0).verdict.map(std::sync::Arc::new);
        let mut state = RunState {
            units: vec![lost],
            ..RunState::default()
        };
        let taken = PriorPatchIntegration {
            result: PatchResult::TextualConflict,
            verdict,
            is_saved: false,
            shared_writes: Default::default(),
        };
        state
            .publication
            .prior_patches
            .insert("juice".into(), taken);
        let groups = failure_groups(&state);
        assert_eq!(
            (groups[0].cause.as_str(), groups[0].example.as_str()),
            ("conflict", "terms.md (textual conflict)")
        );
        assert_eq!(groups[0].remedy.as_deref(), Some("look"));
        // The earlier attempt does not affect the verdict of another attempt.
        state.units[0].attempts.push(AttemptState::default());
        assert_eq!(
            state.failure_reason(&state.units[0]),
            "no reason is on record"
        );
    }
}
