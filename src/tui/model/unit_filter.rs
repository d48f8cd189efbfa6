//! The text filter of the table: names by default, or the files, failures, costs or times of units.

use crate::search_match::matches;
use ingestdeck_core::{
    config::value::parse_duration,
    run::{
        spending::UnitSpending,
        state::{AttemptState, RunState, UnitNeed, UnitState},
    },
};

/// What can be typed, for the prompt.
pub(crate) const FILTER_SYNTAX: &str = "a name, file:…, cause:…, cost:>0.50 or time:>5m";

/// True if the parts of `pattern` between `*` are in `text`, in this order.
fn contains(text: &str, pattern: &str) -> bool {
    let is_exact = pattern.chars().any(char::is_uppercase);
    let text = if is_exact {
        text.to_owned()
    } else {
        text.to_lowercase()
    };
    let mut rest = text.as_str();
    pattern.split('*').all(|part| {
        let found = rest.find(part).and_then(|at| rest.get(at + part.len()..));
        rest = found.unwrap_or_default();
        found.is_some()
    })
}

/// True if the unit passes the typed text. `file:` compares the files that the unit reads or wrote, `cause:` why it failed,
/// `cost:` its cost in US dollars and `time:` the time in which its attempts ran.
pub(super) fn passes(state: &RunState, unit: &UnitState, text: &str) -> bool {
    let (kind, pattern) = text.split_once(':').unwrap_or_default();
    match (kind, pattern.trim_start()) {
        ("file" | "cause" | "cost" | "time", "") => true,
        ("cost", limit) => {
            let dollars = |text: &str| text.trim_start_matches('$').parse().ok();
            is_within(spending(state, unit).shown.usd, limit, dollars)
        }
        ("time", limit) => {
            let spent = spending(state, unit).active_time;
            let seconds = |text: &str| parse_duration(text).map(|time| time.as_secs_f64());
            is_within(Some(spent.0 as f64 / 1000.0), limit, seconds)
        }
        ("file", pattern) => files(unit).any(|file| contains(file, pattern)),
        ("cause", pattern) => has_cause(state, unit, pattern),
        _ => names(unit).any(|name| matches(name, text)),
    }
}

fn spending(state: &RunState, unit: &UnitState) -> UnitSpending {
    UnitSpending::new(unit, state.last_entry_at)
}

/// True if a value is above a limit such as `>5`, or below one such as `<5`. An incomplete limit limits nothing; an
/// unknown value is not within any.
fn is_within(value: Option<f64>, limit: &str, parse: impl Fn(&str) -> Option<f64>) -> bool {
    let (is_above, number) = match limit.strip_prefix('<') {
        Some(number) => (false, number),
        None => (true, limit.strip_prefix('>').unwrap_or(limit)),
    };
    match (number.trim(), value) {
        ("", _) => true,
        (_, None) => false,
        (number, Some(value)) => parse(number).is_some_and(|limit| match is_above {
            true => value > limit,
            false => value < limit,
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
                || label.is_some_and(|label| contains(label, pattern)))
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
    fn stars_of_a_pattern_match_any_text() {
        for (pattern, expected) in [
            ("*.md", true),
            ("wiki/*", true),
            ("w*ORD*", false),
            ("w*ord*", true),
            ("*", true),
        ] {
            assert_eq!(
                contains("wiki/global/orders.md", pattern),
                expected,
                "{pattern}"
            );
        }
        assert!(
            !contains("wiki/global/orders.md", "orders*wiki"),
            "the order counts"
        );
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
            let units = state.units.iter().filter(|unit| passes(&state, unit, text));
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
            ("cost:<2", &["refunds"]),
            ("cost:>2", &[]),
            ("cost:>", &["refunds", "orders"]),
            ("cost:much", &[]),
            ("time:>1m", &["refunds"]),
            ("time: < 1m", &["orders"]),
            ("time:>1", &[]),
        ] {
            assert_eq!(passing(text), expected, "{text}");
        }
        assert_eq!(
            (passing("cause:"), passing("cause:nothing")),
            (vec!["refunds", "orders"], vec![])
        );
    }
}
