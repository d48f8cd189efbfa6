//! The typed filter of the table: names by default, or conditions for files, causes, states, sources, costs and durations.

use std::fmt;

use crate::search_match::matches;
use ingestdeck_core::{
    conditions::{
        ConditionError, ConditionField, ConditionKind, ConditionTest, Conditions, contains,
    },
    run::{
        spending::UnitSpending,
        state::{AttemptState, RunState, UnitNeed, UnitState, UnitStatus},
    },
};

/// What can be typed, for the prompt.
pub(crate) const FILTER_SYNTAX: &str = "name, cost>0.50, duration>5m, cause:…, file:…, state:…";

const FIELDS: [ConditionField; 6] = [
    field("cost", ConditionKind::Dollars),
    field("duration", ConditionKind::Duration),
    field("cause", ConditionKind::Text),
    field("file", ConditionKind::Path),
    field("state", ConditionKind::Words(&UnitStatus::TEXTS)),
    field("source", ConditionKind::Text),
];

const fn field(name: &'static str, kind: ConditionKind) -> ConditionField {
    ConditionField { name, kind }
}

/// The typed text with its conditions. Invalid conditions are left out, so that the table can follow the typing.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnitFilter {
    text: String,
    conditions: Conditions,
    error: Option<ConditionError>,
}

impl PartialEq for UnitFilter {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl<T: Into<String>> From<T> for UnitFilter {
    fn from(text: T) -> Self {
        let text = text.into();
        let (conditions, error) = Conditions::parse(&text, &FIELDS);
        Self {
            text,
            conditions,
            error,
        }
    }
}

impl fmt::Display for UnitFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl UnitFilter {
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Why a part of the text is not a condition.
    pub(crate) fn error(&self) -> Option<&ConditionError> {
        self.error.as_ref()
    }

    /// True if the unit fulfils all conditions.
    pub(super) fn passes(&self, state: &RunState, unit: &UnitState) -> bool {
        let Conditions { plain, tests } = &self.conditions;
        plain
            .as_deref()
            .is_none_or(|plain| names(unit).any(|name| matches(name, plain)))
            && tests
                .iter()
                .all(|(name, test)| is_fulfilled(state, unit, name, test))
    }
}

fn is_fulfilled(state: &RunState, unit: &UnitState, field: &str, test: &ConditionTest) -> bool {
    let spending = || UnitSpending::new(unit, state.last_entry_at);
    match field {
        "cost" => test.is_within(spending().shown.usd),
        "duration" => test.is_within(Some(spending().active_time.0 as f64 / 1000.0)),
        "cause" => test.text().is_some_and(|text| has_cause(state, unit, text)),
        "file" => files(unit).any(|file| test.accepts(file)),
        "state" => test.accepts(unit.status.as_str()),
        _ => unit.planned.as_deref().is_some_and(|planned| {
            test.accepts(&planned.connection) || test.accepts(&planned.adapter)
        }),
    }
}

fn names(unit: &UnitState) -> impl Iterator<Item = &str> {
    let planned = unit.planned.as_deref();
    let texts = [
        Some(unit.key.as_str()),
        planned.and_then(|planned| planned.label.as_deref()),
        planned.map(|planned| planned.connection.as_str()),
        planned.map(|planned| planned.adapter.as_str()),
    ];
    texts.into_iter().flatten()
}

fn files(unit: &UnitState) -> impl Iterator<Item = &str> {
    let planned = unit
        .planned
        .iter()
        .flat_map(|planned| planned.raw_files.iter().chain(&planned.dependency_paths));
    let written = unit.attempts.iter().map(|attempt| &attempt.delivery);
    let written = written.flat_map(|delivery| {
        delivery
            .published
            .iter()
            .chain(delivery.patch.iter().flat_map(|patch| &patch.paths))
    });
    planned.chain(written).map(String::as_str)
}

fn has_cause(state: &RunState, unit: &UnitState, pattern: &str) -> bool {
    let calls = unit
        .attempts
        .iter()
        .filter_map(|attempt: &AttemptState| attempt.deciding_failure.as_deref());
    let label = state.verdict(unit).map(|verdict| verdict.cause.label());
    let needs_person = unit.status.need() == UnitNeed::Person;
    calls.into_iter().any(|call| contains(call, pattern))
        || needs_person
            && (contains(&state.failure_reason(unit), pattern)
                || label.is_some_and(|label| {
                    // Also as in JSON, where spaces are underscores.
                    contains(label, pattern) || contains(&label.replace(' ', "_"), pattern)
                }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use ingestdeck_core::{
        run::state::UnitStatus,
        tape::{
            Millis,
            note::{AttemptOutcome, PatchWritten, PlannedUnit, StopReason, Verdict, VerdictCause},
        },
    };

    fn unit(key: &str, status: UnitStatus) -> UnitState {
        let planned = PlannedUnit {
            raw_files: vec![format!("docs/{key}.md")],
            connection: "docs".into(),
            ..PlannedUnit::default()
        };
        UnitState {
            key: key.into(),
            planned: Some(Arc::new(planned)),
            status,
            attempts: vec![AttemptState::default()],
            retry_at: None,
            hold_mode: Default::default(),
        }
    }

    #[test]
    fn units_are_filtered_by_name_file_and_cause() {
        let mut failed = unit("refunds", UnitStatus::Failed);
        failed.attempts[0].deciding_failure = Some("wiki_write: `text` is not a field".into());
        failed.attempts[0].verdict = Some(Verdict {
            outcome: AttemptOutcome::Failed,
            stop: StopReason::Natural,
            cause: VerdictCause::ToolFailures,
            reason: String::new(),
            remedy: None,
        });
        failed.attempts[0].counts.cost_usd = Some(1.0);
        failed.attempts[0].ended_at = Some(Millis(90_000));
        let mut good = unit("orders", UnitStatus::Succeeded);
        good.attempts[0].ended_at = Some(Millis(500));
        let patch = PatchWritten {
            paths: vec!["wiki/global/orders.md".into()],
            ..PatchWritten::default()
        };
        good.attempts[0].delivery.patch = Some(Arc::new(patch));
        let state = RunState {
            units: vec![failed, good],
            ..RunState::default()
        };
        let passing = |text: &str| {
            let filter = UnitFilter::from(text);
            let units = state
                .units
                .iter()
                .filter(|unit| filter.passes(&state, unit));
            units.map(|unit| unit.key.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(passing("REFUNDS"), [""; 0]);
        assert_eq!(
            (passing("refunds"), passing("docs")),
            (vec!["refunds"], vec!["refunds", "orders"])
        );
        assert_eq!(
            (passing("file:docs/ref"), passing("file: wiki/")),
            (vec!["refunds"], vec!["orders"])
        );
        assert_eq!(
            (passing("cause:not a field"), passing("cause:tool fail")),
            (vec!["refunds"], vec!["refunds"])
        );
        for (text, expected) in [
            ("cost:>0.5", &["refunds"][..]),
            ("cost:$0.5", &["refunds"]),
            ("cost<2", &["refunds"]),
            ("cost>2", &[]),
            ("cost>", &["refunds", "orders"]),
            ("cost>much", &["refunds", "orders"]),
            ("duration>1m", &["refunds"]),
            ("duration: < 1m", &["orders"]),
            ("file:docs/**", &["refunds", "orders"]),
            ("file:wiki/**", &["orders"]),
            ("state:failed,held", &["refunds"]),
            ("source:doc", &["refunds", "orders"]),
            (
                "cost>0.5 cause:tool_failures file:docs/** duration>1m state:failed",
                &["refunds"],
            ),
            ("ord file:docs/** state:succeeded", &["orders"]),
            ("ord state:failed", &[]),
        ] {
            assert_eq!(passing(text), expected, "{text}");
        }
        assert_eq!(
            (passing("cause:"), passing("cause:nothing")),
            (vec!["refunds", "orders"], vec![])
        );
    }
}
